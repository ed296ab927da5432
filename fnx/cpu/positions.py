"""argmax and argmin: which of two (value, position) pairs is the better one.

A NaN beats every number, then the better value wins, then the lower position. In most
loops positions only rise, so that the newer pair must be strictly better; what a lane
begins with then has the position of the lane's first element, which is right if nothing
beats the worst of all values. Next on the walk: `emit.py`.
"""

from __future__ import annotations

from fnx import dtypes
from fnx.cpu.access import Access
from fnx.dtypes import DType
from fnx.kernel.expr import Fold, IndexValue, terms_of
from fnx.kernel.ir import Loop


class Positions(Access):
    """A writer that compares pairs of a value and its position."""

    def rises(self, fold: Fold) -> bool:
        """Whether each round of a fold's only loop brings higher positions."""
        if not fold.combine.startswith("arg") or len(fold.indices) > 1:
            return False
        position, (loop,) = fold.bodies[1], fold.indices
        if not isinstance(position, IndexValue):
            return False
        terms, _ = terms_of(position.index)
        others = [atom for atom, _ in terms if atom is not loop]
        steady = all(loop not in a.free and self.lanes(a) == 1 for a in others)
        return steady and dict(terms).get(loop, 0) > 0

    def first_position(self, fold: Fold, loop: Loop, lanes: int) -> str:
        """The position of the first element of each lane, before a loop begins."""
        position = fold.bodies[1]
        assert isinstance(position, IndexValue)
        terms, offset = terms_of(position.index)
        outer = tuple(term for term in terms if term[0] is not loop.index)
        bits = position.dtype.itemsize * 8
        value = self.total(outer, offset) if outer else str(offset)
        value = self.resized(value, dtypes.int64, bits, 1)
        if lanes == 1:
            return value
        value = self.broadcast(value, f"i{bits}", lanes)
        if loop.width == 1:  # the lanes are those of an outer loop
            return value
        step = dict(terms)[loop.index]
        each = ", ".join(f"i{bits} {n * step}" for n in range(lanes))
        return self.emit(f"add {self.integer(bits, lanes)} {value}, <{each}>")

    def later(
        self, combine: str, types: list[DType], a: list[str], b: list[str], lanes: int
    ) -> list[str]:
        """The better of two pairs of which the second has the higher position."""
        value, flag = types[0], dtypes.bool_
        greater = combine == "argmax"
        if dtypes.is_float(value):
            type_ = self.type(value, lanes)
            beats = self.emit(
                f"fcmp {'ugt' if greater else 'ult'} {type_} {b[0]}, {a[0]}"
            )
            number = self.emit(f"fcmp ord {type_} {a[0]}, {a[0]}")
            takes = self.row("and", [beats, number], [flag, flag], flag, lanes)
        else:
            name = "gt" if greater else "lt"
            takes = self.row(name, [b[0], a[0]], [value, value], flag, lanes)
        return self.picked(takes, types, a, b, lanes)

    def better(
        self, combine: str, types: list[DType], a: list[str], b: list[str], lanes: int
    ) -> list[str]:
        """The better of two pairs, of which either may have the lower position."""
        value, position = types
        flag = dtypes.bool_

        def test(name: str, x: str, y: str, dtype: DType = flag) -> str:
            return self.row(name, [x, y], [dtype, dtype], flag, lanes)

        wins = test("gt" if combine == "argmax" else "lt", b[0], a[0], value)
        ties = test("eq", b[0], a[0], value)
        if dtypes.is_float(value):
            was_nan, is_nan = (test("ne", x[0], x[0], value) for x in (a, b))
            was_none = self.row("not", [was_nan], [flag], flag, lanes)
            wins = test("or", wins, test("and", is_nan, was_none))
            ties = test("or", ties, test("and", was_nan, is_nan))
        earlier = test("lt", b[1], a[1], position)
        takes = test("or", wins, test("and", ties, earlier))
        return self.picked(takes, types, a, b, lanes)

    def picked(
        self, takes: str, types: list[DType], a: list[str], b: list[str], lanes: int
    ) -> list[str]:
        """The second pair where the flag is set, else the first."""
        return [
            self.row("select", [takes, y, x], [dtypes.bool_, t, t], t, lanes)
            for x, y, t in zip(a, b, types, strict=True)
        ]
