"""jit(dynamic=...) where sizes are numbers of the machine code: one compile for all.

Receives the traced program of a call and how to trace it at other sizes; gives the
entry that runs it. The function is traced at a few sizes, once, which tells the program
for all of them (`fnx.transforms.sized`); that is compiled. Another size is traced, so
that Python sees its numbers, and compared: where its program is that one, the code runs
at the true size. What has no such program goes on to `dynamic.py`, next on the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from fnx import errors
from fnx.api.entry import Entry
from fnx.core.program import Program
from fnx.records import record
from fnx.runtime.any_size import compiled_for_sizes, executable_at
from fnx.runtime.executable import Executable
from fnx.sizes import MOST, Symbol, Undecided
from fnx.transforms.sized import SizedProgram, Values, samples, sized_program

Traced = Callable[[Mapping[int, int]], Entry]
"""Traces the function with other sizes in the place of those of now."""

_MOST_SIZES = 3
"""So many sizes may vary by themselves: each of them, and each pair, is a sample."""


_WAYS = ((1, False), (1, True), (2, False), (2, True))
"""How far apart samples are, and whether they are smaller than the sizes of now."""

_LARGER = 65
"""From here on few sizes are special, those that are odd least."""

_MOST_TRIES = 3
"""So many calls may have no such code before the others are not looked at any more."""


@record
class AnySize(Entry):
    """The entry of a signature whose machine code serves all sizes."""

    made: Executable | None = None

    @property
    def executable(self) -> Executable:
        """The machine code at the sizes of this signature."""
        assert self.made is not None
        return self.made


@record
class _Form:
    """A program for all sizes, its code, and the samples it was made of."""

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
        flat, values = _flat(exact.program), _values(now)
        for form in self._forms.get(key, ()):
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
        values = _values(now)
        for step, below in _WAYS:
            sampled = tuple(samples(values, step, below=below))
            try:
                others = tuple([_at(traced, values, other) for other in sampled])
                made = sized_program(_flat(exact.program), values, others, sampled)
                code = compiled_for_sizes(made.program)
            except Undecided as error:
                self.problem = error
                break
            except errors.DynamicSizeError as error:
                self.problem = error
                continue
            if code is None:
                return None
            form = _Form(made.program, code, sampled, others)
            self._forms.setdefault(key, []).append(form)
            return _entry(exact, made, form)
        if self.problem is not None:
            problems.append(self.problem)
        return None

    def special(self, now: Sequence[int], traced: Traced) -> bool:
        """Whether sizes far away are one program, which those of now are not."""
        values = _values(now)
        for step, below in _WAYS:
            far = {s: n // 2 if below else 2 * n + _LARGER for s, n in values.items()}
            sampled = tuple(samples(far, step, below=below))
            try:
                others = [_at(traced, values, other) for other in sampled]
                sized_program(others[0], sampled[0], others, sampled)
            except (Undecided, errors.DynamicSizeError):
                continue
            return True
        return False

    def _may(self, exact: Entry, now: Sequence[int]) -> bool:
        """Whether code for all sizes is thought of: it runs on the CPU."""
        few = len(now) <= _MOST_SIZES and max(now) <= MOST
        return few and exact.placement is None


def _values(now: Sequence[int]) -> dict[Symbol, int]:
    return {Symbol(f"n{number}"): size for number, size in enumerate(now)}


def _at(traced: Traced, now: Values, other: Values) -> Program:
    """The program at other sizes."""
    return _flat(traced({size: other[symbol] for symbol, size in now.items()}).program)


def _flat(program: Program) -> Program:
    # lazy: the compiler takes longer to import than the rest
    from fnx.compiler.inline import inline  # lazy: see above

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
    )
