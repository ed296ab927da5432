"""fnx.check: does the compiled function compute what its operations mean?

Receives a function and arguments. Every value of its program is computed by the
reference rules, every equation is compiled by itself and compared, and the results of
the whole, fused program are compared. Gives a `Report`, or raises `DifferenceError`
that names the first equation that differs. Next on the walk: `gradients.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.arguments import check_callable, leaf_names, name_of
from fnx.api.jit import Jitted, jit
from fnx.compiler.inline import inline
from fnx.core.printer import shown_params
from fnx.core.program import Eqn, Program, Var
from fnx.core.reference import (
    reference_values,
    run_reference,
    value_of,
    watched,
)
from fnx.core.simplify import simplify
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime.array import wrap
from fnx.runtime.device import Placement
from fnx.runtime.executable import run_program

# The errors that a single operation and a whole program may have, relative to the
# largest element of the result, by the bytes of a real number.
SINGLE = {1: 0.1, 2: 0.02, 4: 1e-5, 8: 1e-12}
WHOLE = {1: 0.5, 2: 0.2, 4: 1e-3, 8: 1e-10}


@record
class Report:
    """What was compared, and the largest errors, as parts of what they may be.

    `sensitive` names the equation from which on the whole program differs by more, but
    as its own operands explain: an `argmax` among nearly equal numbers.
    """

    function: str
    equations: int
    single: float
    whole: float
    sensitive: str = ""

    def __str__(self) -> str:
        many = f"{self.equations} equation{'s' * (self.equations != 1)}"
        text = (
            f"check of {self.function}: {many}; the reference rules, each equation "
            "compiled by itself, and the whole compiled program agree; the largest "
            f"errors are {self.single:.0%} and {self.whole:.0%} of what they may be"
        )
        if self.sensitive:
            text += f"; rounding has an effect beyond that in {self.sensitive}"
        return text


def check(
    fun: Callable[..., Any], *, rtol: float | None = None
) -> Callable[..., Report]:
    """A function that compares three ways of computing `fun` for its arguments.

    The ways are the reference rules (NumPy), each equation compiled by itself, and the
    whole program compiled as `jit` does. Single equations are given the reference's
    operands, so that the first one named is the one at fault. `rtol` is the error that
    an element of the whole program's results may have, relative to the largest element
    of its array (by default 1e-10 in 64 bits, 1e-3 in 32, 0.2 in 16); single equations
    may have 1e-12, 1e-5, 0.02. Integers and booleans, infinities and NaNs must be the
    same. Programs are compiled for the device that `jit` would run them on: with
    arguments on a GPU, it is compared with NumPy.

    Gives a `Report`. Raises `DifferenceError`, an `AssertionError`, with the equation,
    the user's line, the index and both values. Calls to the host run each time.

    >>> import fnx, fnx.numpy as fnp
    >>> print(fnx.check(lambda x: fnp.sin(x) * 2)(fnp.arange(3.0)).equations)
    2
    """
    check_callable("check", fun)
    jitted: Jitted = fun if isinstance(fun, Jitted) else jit(fun)

    @functools.wraps(fun)
    def checked(*args: Any, **kwargs: Any) -> Report:
        entry, leaves = jitted.prepared(args, kwargs)
        arrays = [*entry.captured, *leaves]
        ends = leaf_names(["the result"], [entry.out_tree])
        return _Comparison(
            name_of(fun), entry.program, arrays, ends, rtol, entry.placement
        ).run()

    return errors.api_boundary(checked)


class _Comparison:
    """One program with its arguments, flat, and all values by the reference rules."""

    def __init__(
        self,
        name: str,
        program: Program,
        arrays: Sequence[Any],
        ends: Sequence[str],
        rtol: float | None,
        placement: Placement | None = None,
    ) -> None:
        self.placement = placement
        self.name, self.program, self.arrays, self.ends = name, program, arrays, ends
        self.whole = WHOLE if rtol is None else dict.fromkeys(WHOLE, rtol)
        self.flat = simplify(inline(program))
        numbers = [np.asarray(x) for x in arrays]
        self.values = reference_values(self.flat, numbers)

    def run(self) -> Report:
        """The report; raises at the first difference."""
        single = [self._single(n, eqn) for n, eqn in enumerate(self.flat.eqns)]
        results = self._ran(self.program, self.arrays)
        worst, sensitive = 0.0, ""
        rows = zip(self.flat.outputs, results, self.ends, strict=True)
        for atom, result, name in rows:
            found = _compared(result, value_of(self.values, atom), (), self.whole)
            if found.error <= 1:
                worst = max(worst, found.error)
            elif not sensitive:
                sensitive = self._explained(found, name)
        return Report(
            self.name, len(single), max(single, default=0.0), worst, sensitive
        )

    def _ran(self, program: Program, arrays: Sequence[Any]) -> Sequence[Any]:
        return run_program(program, arrays, self.placement, f"check of {self.name}")

    def _single(self, number: int, eqn: Eqn) -> float:
        """The error of an equation that is compiled by itself."""
        inputs = tuple(dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)))
        operands = [self.values[var] for var in inputs]
        arrays = [_array(x, var.type) for x, var in zip(operands, inputs, strict=True)]
        results = self._ran(Program(inputs, (eqn,), eqn.outputs), arrays)
        worst = 0.0
        for var, result in zip(eqn.outputs, results, strict=True):
            # What sums (or multiplies) has the errors of its largest operand.
            scale = () if eqn.primitive.lanewise else operands
            found = _compared(result, self.values[var], scale, SINGLE)
            if found.error > 1:
                self._check_held(eqn)
                raise self._difference("compiled by itself", number, eqn, found)
            worst = max(worst, found.error)
        return worst

    def _check_held(self, eqn: Eqn) -> None:
        """Raises for an equation of a held program that differs in its first run."""
        runs: dict[int, tuple[Program, Sequence[Any]]] = {}

        def seen(program: Program, arrays: Sequence[Any], results: Any) -> None:
            runs.setdefault(id(program), (program, arrays))

        operands = [value_of(self.values, atom) for atom in eqn.inputs]
        with watched(seen), np.errstate(all="ignore"):
            eqn.primitive.reference(*operands, **eqn.params)
        name = f"{self.name}, inside of {eqn.primitive.name}"
        for program, values in runs.values():
            pairs = zip(values, program.input_types, strict=True)
            arrays = [_array(*pair) for pair in pairs]
            inner = _Comparison(name, program, arrays, (), None, self.placement)
            for number, each in enumerate(inner.flat.eqns):
                inner._single(number, each)

    def _explained(self, found: _Difference, name: str) -> str:
        """The equation from which on the whole program differs, as its operands do.

        Raises for one that differs from its reference rule for the operands that it
        has in the compiled program. For each there is a program that ends with it.
        """
        sensitive = ""
        for number, eqn in enumerate(self.flat.eqns):
            read = tuple(dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)))
            ends = (*eqn.outputs, *read)
            part = Program(self.flat.inputs, self.flat.eqns[: number + 1], ends)
            results = self._ran(simplify(part), self.arrays)
            own = dict(zip(ends, map(np.asarray, results), strict=True))
            differs = [
                _compared(own[var], self.values[var], (), self.whole).error > 1
                for var in eqn.outputs
            ]
            if not any(differs):
                continue
            sensitive = sensitive or f"equation {number}, {eqn.primitive.name}"
            alone = Program(read, (eqn,), eqn.outputs)
            wanted = run_reference(alone, [own[var] for var in read])
            scale = () if eqn.primitive.lanewise else [own[var] for var in read]
            for var, value in zip(eqn.outputs, wanted, strict=True):
                here = _compared(own[var], value, scale, self.whole)
                if here.error > 1:
                    raise self._difference("in the whole program", number, eqn, here)
        if not sensitive:
            raise errors.DifferenceError(
                f"check of {self.name}: {name} of the whole compiled program differs "
                f"from the reference rules, but no equation of it.\n  {found.text}"
            )
        return sensitive

    def _difference(
        self, how: str, number: int, eqn: Eqn, found: _Difference
    ) -> Exception:
        types = " ".join([str(atom.type) for atom in eqn.inputs])
        outputs = " ".join([str(var.type) for var in eqn.outputs])
        params = shown_params(eqn.params)
        shown = f"{outputs} = {eqn.primitive.name}{params} {types}".rstrip()
        place = f"\n  at {eqn.source}" if eqn.source else ""
        return errors.DifferenceError(
            f"check of {self.name}: equation {number} of {len(self.flat.eqns)}, "
            f"{how}, is the first that differs from its reference rule.\n"
            f"  {shown}{place}\n  {found.text}"
        )


@record
class _Difference:
    """The largest error of an array as a part of what it may be, and a text for it."""

    error: float
    text: str


def _compared(
    found: Any,
    wanted: Any,
    scale: Sequence[Any],
    tolerances: Mapping[int, float],
) -> _Difference:
    """The largest error as a part of what it may be, and a text for it."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if not found.size:
        return _Difference(0.0, "")
    if not dtypes.is_inexact(found.dtype):
        wrong = found != wanted
        index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        return _Difference(
            np.inf if wrong.any() else 0.0, _text(found, wanted, index, 0.0)
        )
    width = found.dtype.itemsize // (2 if found.dtype.kind == "c" else 1)
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.result_type(x, np.float64)) for x in (found, wanted))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        off = np.where(same, 0.0, np.abs(a - b))
        off = np.where(np.isfinite(off), off, np.inf)
    largest = max([_largest(b), *map(_largest, scale)])
    index = np.unravel_index(int(np.argmax(off)), off.shape)
    limit = tolerances[width] * largest
    worst = float(off[index])
    error = worst / limit if limit else (np.inf if worst else 0.0)
    return _Difference(error, _text(found, wanted, index, limit))


def _array(x: Any, type: ArrayType) -> Any:
    return wrap(np.array(x, type.dtype), type)


def _largest(x: Any) -> float:
    """The largest finite element."""
    x = np.asarray(x)
    if not dtypes.is_inexact(x.dtype):
        return 0.0
    size = np.abs(x.astype(np.result_type(x, np.float64)))
    return float(np.max(size, where=np.isfinite(size), initial=0.0))


def _text(found: Any, wanted: Any, index: Any, limit: float) -> str:
    at = f" at index [{','.join(map(str, index))}]" if len(index) else ""
    allowed = f"; the error may be {limit:.3g}" if limit else ""
    return f"its value{at} is {found[index]}, by reference {wanted[index]}{allowed}"


__all__ = ["Report", "check"]
