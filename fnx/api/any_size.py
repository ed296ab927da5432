"""jit(dynamic=...) where sizes are numbers of the machine code: one compile for all.

Receives the traced program of a call and how to trace it at other sizes; gives the
entry that runs it. The function is traced at a few sizes, once, which tells the program
for all of them (`fnx.transforms.sized`); that is compiled. Another size is traced, so
that Python sees its numbers, and compared: where its program is that one, the code runs
at the true size. What has no such program goes on to `dynamic.py`, next on the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from fnx import errors
from fnx.api.entry import Entry
from fnx.core.program import Program, sub_programs
from fnx.records import record
from fnx.runtime.any_size import code_size, compiled_for_sizes, executable_at
from fnx.runtime.executable import Executable
from fnx.sizes import MOST, Symbol, Undecided
from fnx.transforms.sized import SizedProgram, Values, samples, sized_program

Traced = Callable[[Mapping[int, int]], Entry]
"""Traces the function with other sizes in the place of those of now."""

_MOST_SIZES = 3
"""So many sizes may vary by themselves: each of them, and each pair, is a sample."""


_STEPS = (1, 2, 3, 4, 8)
"""How far apart sizes are of one program: a loop of which 4 rounds are written out is
one for each number of rows that may be left over."""

_LARGER = 65
"""From here on few sizes are special, those that are odd least."""

_PROGRAM = 2**15
"""About the bytes that are kept of a size besides its code: the program, pages."""

_MOST_TRIES = 3
"""So many calls may have no such code before the others are not looked at any more."""


@record
class AnySize(Entry):
    """The entry of a signature whose machine code serves all sizes."""

    made: Executable | None = None
    nbytes: int = 0

    @property
    def executable(self) -> Executable:
        """The machine code at the sizes of this signature."""
        assert self.made is not None
        return self.made


@record
class _Grid:
    """Sizes that have the same `rests` when they are divided by a step.

    Their symbols are what the division gives, so that formulas know no remainder.
    """

    step: int
    rests: tuple[int, ...]

    @staticmethod
    def of(now: Sequence[int], step: int) -> _Grid:
        """The grid on which sizes are."""
        return _Grid(step, tuple([size % step for size in now]))

    def values(self, now: Sequence[int]) -> dict[Symbol, int] | None:
        """The symbols' values at sizes; `None` if they are not on the grid."""
        if self != _Grid.of(now, self.step) or min(now) < self.step:
            return None
        return {
            self._symbol(number): size // self.step for number, size in enumerate(now)
        }

    def _symbol(self, number: int) -> Symbol:
        if self.step == 1:
            return Symbol(f"n{number}")
        return Symbol(f"(n{number}//{self.step})", 1, MOST // self.step)

    def sizes(self, values: Values) -> list[int]:
        """The sizes at values of the symbols."""
        pairs = zip(values.values(), self.rests, strict=True)
        return [self.step * value + rest for value, rest in pairs]


@record
class _Form:
    """A program for all sizes of a grid, its code, and the samples it was made of."""

    grid: _Grid
    program: Program
    code: Any
    sampled: tuple[Values, ...]
    others: tuple[Program, ...]


class AnySizes:
    """What has been compiled for all sizes, by what the programs depend on besides."""

    def __init__(self) -> None:
        self._forms: dict[Hashable, list[_Form]] = {}
        self._problems: dict[Hashable, list[Exception]] = {}
        self.problem: Exception | None = None  # why the last one was not, or was anew

    def clear(self) -> None:
        """Forgets all of it."""
        self._forms.clear()
        self._problems.clear()

    def found(self, key: Hashable, exact: Entry, now: Sequence[int]) -> AnySize | None:
        """The entry of a call, if there is code for its program."""
        self.problem = None
        if not self._may(exact, now):
            return None
        flat = _flat(exact.program)
        for form in self._forms.get(key, ()):
            values = form.grid.values(now)
            if values is None:
                continue
            try:
                made = sized_program(flat, values, form.others, form.sampled)
            except errors.DynamicSizeError as error:
                self.problem = error
                continue
            if made.program == form.program:
                return _entry(exact, made, form)
        return None

    def new(
        self, key: Hashable, exact: Entry, now: Sequence[int], traced: Traced
    ) -> AnySize | None:
        """The entry of a call whose program is compiled for all sizes.

        `None` where that cannot be.
        """
        if not self._may(exact, now):
            return None
        problems = self._problems.setdefault(key, [])
        if len(problems) >= _MOST_TRIES:
            self.problem = problems[-1]
            return None
        flat = _flat(exact.program)
        for grid, below in _ways(flat, now, traced):
            values = grid.values(now) or {}
            sampled = tuple(samples(values, below=below))
            try:
                others = tuple([_at(traced, now, grid, other) for other in sampled])
                made = sized_program(flat, values, others, sampled)
                code = compiled_for_sizes(made.program)
            except Undecided as error:
                self.problem = error
                if error.rounded:
                    continue
                break
            except errors.DynamicSizeError as error:
                self.problem = error
                continue
            if code is None:
                return None
            form = _Form(grid, made.program, code, sampled, others)
            self._forms.setdefault(key, []).append(form)
            return _entry(exact, made, form)
        if self.problem is not None:
            problems.append(self.problem)
        return None

    def special(self, now: Sequence[int], traced: Traced) -> bool:
        """Whether sizes far away are one program, which those of now are not."""
        for step in (1, 2):
            grid = _Grid.of(now, step)
            values = grid.values(now)
            for below in (False, True) if values else ():
                far = {
                    s: n // 2 if below else 2 * n + _LARGER
                    for s, n in (values or {}).items()
                }
                sampled = tuple(samples(far, below=below))
                try:
                    others = [_at(traced, now, grid, other) for other in sampled]
                    sized_program(others[0], sampled[0], others, sampled)
                except (Undecided, errors.DynamicSizeError):
                    continue
                return True
        return False

    def _may(self, exact: Entry, now: Sequence[int]) -> bool:
        """Whether code for all sizes is thought of: it runs on the CPU."""
        few = len(now) <= _MOST_SIZES and max(now) <= MOST
        return few and exact.placement is None


def _ways(
    flat: Program, now: Sequence[int], traced: Traced
) -> Iterator[tuple[_Grid, bool]]:
    """The grids that sizes may be on, and whether samples are smaller than they are.

    Steps are tried if the program a step further on has the same equations.
    """
    for step in _STEPS:
        grid = _Grid.of(now, step)
        values = grid.values(now)
        if values is None:
            continue
        if step > 2:
            further = {symbol: value + 1 for symbol, value in values.items()}
            try:
                if _outline(_at(traced, now, grid, further)) != _outline(flat):
                    continue
            except errors.DynamicSizeError:
                continue
        yield grid, False
        yield grid, True


def _outline(program: Program) -> tuple[Any, ...]:
    """The operations of a program, and of those that it holds."""
    return tuple(
        [(eqn.primitive, *map(_outline, sub_programs(eqn))) for eqn in program.eqns]
    )


def _at(traced: Traced, now: Sequence[int], grid: _Grid, other: Values) -> Program:
    """The program at other sizes."""
    moved = dict(zip(now, grid.sizes(other), strict=True))
    return _flat(traced(moved).program)


def _flat(program: Program) -> Program:
    # lazy: the compiler takes longer to import than the rest
    from fnx.compiler.inline import inline

    return inline(program, hoists=False)


def _entry(exact: Entry, made: SizedProgram, form: _Form) -> AnySize:
    return AnySize(
        exact.asker,
        exact.program,
        exact.captured,
        exact.signature,
        exact.out_tree,
        exact.donated,
        exact.calls,
        None,
        executable_at(exact.program, form.code, made.values),
        _PROGRAM + code_size(form.code),
    )
