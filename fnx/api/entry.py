"""What one signature of a jitted function comes to, and what makes up a signature.

Receives a call, divided in what is dynamic and what is static; gives its `Signature`,
with names for people. `Entry` holds the program that was traced for it, and runs it.
Next on the walk: `misses.py`, `stages.py`, then `jit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.api.arguments import leaf_names, parameter_names
from fnx.api.native import Calls
from fnx.api.static import Divided
from fnx.config import config, watching
from fnx.core import hooks
from fnx.core.array import Array
from fnx.core.axes import bound_axes
from fnx.core.program import Program
from fnx.core.types import ArrayType
from fnx.dtypes import default_bits
from fnx.records import record
from fnx.runtime.device import Placement
from fnx.runtime.eager import checked_kinds
from fnx.runtime.executable import Executable, executable_for
from fnx.tree import PyTreeDef


@record
class Signature:
    """What the program of a call depends on, with names for people.

    `arguments` are the dynamic arguments' names and structures, `named` of which are
    passed by name; `names` and `types` are those of their leaves.
    """

    in_tree: PyTreeDef
    arguments: tuple[tuple[str, PyTreeDef], ...]
    named: int
    names: tuple[str, ...]
    types: tuple[ArrayType, ...]
    statics: Mapping[str, Any]
    settings: Mapping[str, Any]


def signature(
    function: Callable[..., Any],
    divided: Divided,
    in_tree: PyTreeDef,
    types: Sequence[ArrayType],
    placement: Placement | None = None,
) -> Signature:
    """The signature of a call whose dynamic leaves have these types, at a place."""
    static = dict(divided.statics)
    total = len(divided.args) + sum(isinstance(where, int) for where in static)
    labels = parameter_names(function, total)
    positions = [i for i in range(total) if i not in static]
    roots = [labels[i] for i in positions] + sorted(divided.kwargs)
    args, kwargs = in_tree.children()
    trees = [*args.children(), *kwargs.children()]
    return Signature(
        in_tree,
        tuple(zip(roots, trees, strict=True)),
        len(divided.kwargs),
        tuple(leaf_names(roots, trees)),
        tuple(types),
        {labels[k] if isinstance(k, int) else k: static[k] for k in static},
        {
            "fnx.default_dtypes": default_bits(),
            "fnx.config.strong_zero": config.strong_zero,
            "fnx.config.numpy_dtype_promotion": config.numpy_dtype_promotion,
            "fnx.config.numpy_rank_promotion": config.numpy_rank_promotion,
            "fnx.config.default_matmul_precision": config.default_matmul_precision,
            "the bound axes": dict(bound_axes()),
            "the device": shown(placement),
        },
    )


@record
class Entry:
    """What one signature came to: the program and what it captured.

    The program's inputs are the `captured` arrays, then the leaves of the arguments.
    `donated` marks the inputs that are deleted after the call. It runs at `placement`,
    where the captured arrays are; `None` is the CPU, where nothing is committed.
    """

    asker: str
    program: Program
    captured: tuple[Array, ...]
    signature: Signature
    out_tree: PyTreeDef
    donated: tuple[bool, ...]
    calls: Calls
    placement: Placement | None = None

    @property
    def backend(self) -> str:
        """What runs the program."""
        return "cpu" if self.placement is None else self.placement.device.backend

    @property
    def executable(self) -> Executable:
        """The program, compiled; equal programs share it."""
        return executable_for(self.program, self.backend)

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result for concrete leaves of the arguments."""
        arrays: Any = [*self.captured, *leaves]
        try:
            executable = self.executable
        except errors.RecompileError as error:
            raise errors.RecompileError(f"{self.asker}: {error}") from None
        if self.placement is None:
            results = executable.run(arrays)
        else:
            results = executable.run_at(
                arrays, self.placement, self.asker, self.donated
            )
        if hooks.busy and watching():
            self._check(arrays, results)
        if hooks.busy and checked_kinds.get():
            # lazy: few look for what goes wrong
            from fnx.runtime.checks import look_at_program

            look_at_program(self.asker, self.program, arrays)
        if True in self.donated:
            self._delete_donated(arrays, results)
        return self.out_tree.unflatten(results)

    def _check(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """Raises where a result has a NaN, or whatever is looked for."""
        # lazy: few look for NaNs
        from fnx.runtime.nonfinite import check_program

        held = [f"captured array {i} ({x.type})" for i, x in enumerate(self.captured)]
        inputs = [*held, *self.signature.names]
        outputs = leaf_names(["the result"], [self.out_tree])
        check_program(self.asker, self.program, arrays, results, inputs, outputs)

    def check_donated(self, leaves: Sequence[Any]) -> None:
        """Raises where the memory of an array would be given away and kept."""
        arrays = [*self.captured, *leaves]
        rows = list(zip(arrays, self.donated, strict=True))
        for x in [x for x, donated in rows if donated]:
            if sum(x is other for other in arrays) > 1:
                raise errors.ArgumentError(
                    errors.explain(
                        f"{self.asker}: an array of type {x.type} is donated",
                        "the same array is another argument of the call, or captured",
                        "pass a copy, or do not donate it",
                    )
                )

    def _delete_donated(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """Frees the memory of donated arrays, but where an output is a view of it."""
        if self.backend != "cpu":  # an output that is an input has its own hold of it
            for x, donated in zip(arrays, self.donated, strict=True):
                if donated:
                    x.delete()
            return
        passed = {id(result) for result in results}
        held = [np.asarray(x) for x in results if x.parts is None]
        for x, donated in zip(arrays, self.donated, strict=True):
            if not donated or id(x) in passed:
                continue
            if x.parts is not None or not any(
                np.shares_memory(np.asarray(x), y) for y in held
            ):
                x.delete()


def shown(placement: Placement | None) -> str:
    """A placement as error texts call it."""
    if placement is None:
        return "cpu:0"
    return f"{placement.device}{' (committed)' * placement.committed}"
