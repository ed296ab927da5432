"""The stages of a jitted function: traced, lowered, compiled.

Receives an `Entry`, what one signature of a jitted function came to; `Staged` shows its
program, `Lowered` the compiler's forms of it and what it costs, `Compiled` is called
with arguments of exactly that signature. Next on the walk: `jit.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fnx import errors, tree
from fnx.api.arguments import as_array
from fnx.api.entry import Entry
from fnx.api.inspect import ShapeDtypeStruct, structs
from fnx.core.array import Array
from fnx.core.printer import print_program
from fnx.core.program import Program
from fnx.core.trace import Tracer
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime.device import CPU
from fnx.runtime.executable import executable_for
from fnx.tree import PyTreeDef


class MemoryAnalysis(NamedTuple):
    """The memory of one call, in bytes.

    Outputs that are an argument's memory are counted as `alias`. `temp` is the arena in
    which all intermediate values are, and `peak` is everything that is there at once.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    peak_memory_in_bytes: int


class ArgInfo(ShapeDtypeStruct):
    """Shape and dtype of an argument, and whether its memory is given away.

    >>> import fnx
    >>> f = fnx.jit(lambda x, y: x + y, donate_argnums=0)
    >>> (x, y), _ = f.lower(1.0, 2.0).args_info
    >>> x.donated, y.donated
    (True, False)
    """

    __slots__ = ("donated",)

    def __init__(self, type: ArrayType, donated: bool) -> None:
        super().__init__(type.shape, type.dtype, weak_type=type.weak)
        self.donated = donated

    def _key(self) -> Any:
        return *super()._key(), self.donated

    def __repr__(self) -> str:
        shape, dtype = self.shape, self.dtype.name
        return f"ArgInfo(shape={shape}, dtype={dtype}, donated={self.donated})"


@record
class Stage:
    """What the stages share.

    `args_info` is a tree of `ArgInfo`, a pair of the positional and the named arguments
    without those that are static; `out_info` is a tree of `ShapeDtypeStruct`.
    """

    entry: Entry

    @property
    def jaxpr(self) -> Program:
        """The program: over the captured arrays, then the leaves of the arguments."""
        return self.entry.program

    @property
    def captured(self) -> tuple[Array, ...]:
        """The arrays that the function captured, the program's first inputs."""
        return self.entry.captured

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return self.entry.asker.removeprefix("jit of ")

    @property
    def in_tree(self) -> PyTreeDef:
        """The structure of the arguments."""
        return self.entry.signature.in_tree

    @property
    def out_tree(self) -> PyTreeDef:
        """The structure of the result."""
        return self.entry.out_tree

    @property
    def args_info(self) -> Any:
        """The shapes and dtypes of the arguments, and which are given away."""
        signature = self.entry.signature
        donated = self.entry.donated[len(self.entry.captured) :]
        rows = zip(signature.types, donated, strict=True)
        return signature.in_tree.unflatten([ArgInfo(*row) for row in rows])

    @property
    def out_info(self) -> Any:
        """The shapes and dtypes of the result."""
        return structs(self.entry.out_tree, self.entry.program.output_types)

    def _shown(self, kind: str) -> str:
        """The function in a line: `as_text` has what is long."""
        names, types = self.entry.signature.names, self.entry.signature.types
        takes = ", ".join([f"{n}: {t}" for n, t in zip(names, types, strict=True)])
        return f"<{kind} {self.fun_name}({takes})>"

    def _text(self, stage: str, debug_info: bool) -> str:
        """The program at a stage."""
        program = self.entry.program
        if stage == "program":
            return print_program(program, sources=debug_info)
        if debug_info:
            raise errors.OptionError(
                f"as_text(stage={stage!r}): only the stage 'program' has debug_info"
            )
        return self.entry.executable.as_text(stage, program)

    def _cost(self) -> dict[str, float]:
        """What a call costs, under JAX's names and two more."""
        cost = self.entry.executable.cost()
        return {
            "flops": float(cost.operations),
            "transcendentals": float(cost.functions),
            "bytes accessed": float(cost.nbytes),
            "unknown loops": float(cost.unknown_loops),
            "host calls": float(cost.host_calls),
        }


@record
class Staged(Stage):
    """A jitted function traced for one signature: what `jit(f).trace(...)` gives."""

    def __repr__(self) -> str:
        return self._shown("traced")

    def lower(self) -> Lowered:
        """The program for the compiler."""
        return Lowered(self.entry)


@record
class Lowered(Stage):
    """A traced function and its compiled forms: what `jit(f).lower(...)` gives."""

    def __repr__(self) -> str:
        return self._shown("lowered")

    def as_text(self, stage: str = "program", *, debug_info: bool = False) -> str:
        """The program at a stage: "program", "plan", "kernel", or as it is printed.

        It is printed for the device of the arguments: as "llvm" and "asm" for the CPU,
        "cuda" and "asm" for a GPU. "cuda" is shown without a GPU, too. `debug_info`
        shows the user's line beside each equation of the program. Raises `OptionError`
        for a stage that there is not, or that has no lines.

        >>> import fnx
        >>> print(fnx.jit(lambda x: x + 1.0).lower(2.0).as_text())
        { lambda a:f32[]*. let
            b:f32[]* = add a 1.0:f32[]*
          in (b,) }
        """
        return self._text(stage, debug_info)

    def cost_analysis(self) -> dict[str, float]:
        """What a call costs: operations, values of functions, and bytes.

        "flops" are the floating-point operations of the compiled kernels, and with them
        those that compute functions: one value of `exp` is some twenty. There are
        "transcendentals" such values. "bytes accessed" is what kernels and products
        read and write. A loop counts with its rounds, if they are known; the loops that
        are not ("unknown loops") count with one. Of "host calls", operations that run
        in Python or by code of the user's, only the bytes are counted.

        >>> import fnx
        >>> x = fnx.ShapeDtypeStruct((100, 100), "float32")
        >>> fnx.jit(lambda x: x @ x).lower(x).cost_analysis()["flops"]
        2000000.0
        """
        return self._cost()

    def compile(self) -> Compiled:
        """The compiled function, for arguments of exactly these types."""
        executable_for(self.entry.program, self.entry.backend)  # now, not when called
        return Compiled(self.entry)


@record
class Compiled(Stage):
    """A function compiled for one signature; called with its dynamic arguments."""

    def __repr__(self) -> str:
        return self._shown("compiled")

    def as_text(self, stage: str = "plan", *, debug_info: bool = False) -> str:
        """What was compiled, at a stage; as `Lowered.as_text`."""
        return self._text(stage, debug_info)

    def cost_analysis(self) -> dict[str, float]:
        """What a call costs; as `Lowered.cost_analysis`."""
        return self._cost()

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results and intermediate values of one call.

        >>> import fnx
        >>> x = fnx.ShapeDtypeStruct((100, 100), "float32")
        >>> compiled = fnx.jit(lambda x: (x @ x) @ x).lower(x).compile()
        >>> compiled.memory_analysis().temp_size_in_bytes
        40000
        """
        program = self.entry.program
        plan = self.entry.executable.plan
        arguments = _nbytes(program.input_types)
        results = _nbytes(program.output_types)
        shared = [output.type for output in plan.outputs if output.role == "input"]
        aliases = _nbytes(shared)
        peak = arguments + results - aliases + plan.arena
        return MemoryAnalysis(arguments, results, aliases, plan.arena, peak)

    @errors.api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result; raises for arguments of another structure or type."""
        entry = self.entry
        leaves, found = tree.flatten((args, kwargs))
        if found != entry.signature.in_tree:
            lines = tree.difference(
                entry.signature.in_tree,
                found,
                first="the compiled function",
                second="the call",
            )
            shown = lines.replace("\n", "\n  ")
            raise errors.TreeError(f"{entry.asker}: other arguments:\n  {shown}")
        rows = zip(leaves, entry.signature.names, strict=True)
        arrays = [as_array(leaf, entry.asker, name) for leaf, name in rows]
        if any(isinstance(x, Tracer) for x in arrays):
            raise errors.ArgumentError(
                errors.explain(
                    f"{entry.asker}: the compiled function was called while tracing",
                    "it is machine code, which no transformation can look into",
                    "call the jitted function itself there",
                )
            )
        self._check_types(arrays)
        self._check_devices(arrays)
        if True in entry.donated:
            entry.check_donated(arrays)
        return entry.run(arrays)

    def _check_types(self, arrays: Sequence[Array]) -> None:
        """Raises where a type differs in more than weakness."""
        entry = self.entry
        rows = zip(entry.signature.names, entry.signature.types, arrays, strict=True)
        lines = [
            f"{name}: compiled for {type}, called with {x.type}"
            for name, type, x in rows
            if (x.shape, x.dtype) != (type.shape, type.dtype)
        ]
        if lines:
            raise errors.ArgumentError(
                "\n  ".join([f"{entry.asker}: other argument types:", *lines])
                + "\n  Fix: convert the arguments, or call the jitted function itself, "
                "which compiles for each type."
            )

    def _check_devices(self, arrays: Sequence[Any]) -> None:
        """Raises where an argument is committed to another device."""
        entry = self.entry
        own = CPU if entry.placement is None else entry.placement.device
        for name, x in zip(entry.signature.names, arrays, strict=True):
            if x.committed and x.device is not own:
                raise errors.ArgumentError(
                    errors.explain(
                        f"{entry.asker}: compiled for {own}, called with {name} on "
                        f"{x.device}",
                        fix="move it with fnx.device_put, or call the jitted function "
                        "itself, which compiles for each device",
                    )
                )


def _nbytes(types: Sequence[ArrayType]) -> int:
    return sum([type.size * type.dtype.itemsize for type in types])


__all__ = ["ArgInfo", "Compiled", "Lowered", "MemoryAnalysis", "Staged"]
