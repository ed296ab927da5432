"""Transforms of real numbers, made of those of half as many complex ones.

Reals are taken in pairs as complex numbers z, h of them. `after` has the transform of z
and finds the coefficients x of the reals: x[k] = e + w o and x[h - k] = conj(e - w o),
where 2 e = z[k] + conj z[h - k], 2 i o = z[k] - conj z[h - k], w = exp(-2 pi i k / 2h).
`before` is the reverse, times two: z[k] = e + i o, z[h - k] = conj(e - i o), where
e = x[k] + conj x[h - k] and o = (x[k] - conj x[h - k]) / w. Both do some k of a line, a
vector of them at once, with their mirror images; `after_rows` and `before_rows` do them
in a block (see `fft_moves.py`), to which reals come by pairs of rows. Receives the
lanes, gives the text of functions. Next on the walk: `fft_text.py`.
"""

from __future__ import annotations

from fnx.cpu.assembly import Index
from fnx.cpu.fft_arithmetic import Lanes, Number
from fnx.cpu.fft_moves import TAKE, Moves, function, give

_HALF = "ptr %x, ptr %y, ptr %roots, i64 %length, i64 %begin, i64 %end"
_ROWS = "ptr %rows, i64 %length, i64 %re, i64 %im, ptr %roots"


def reals_text(lanes: Lanes) -> list[str]:
    """The functions, and what is called for single numbers."""
    one = Lanes(1, lanes.nbytes)
    v = one.vector
    return [
        f"declare {v} @llvm.fmuladd.{one.suffix}({v}, {v}, {v})",
        function("before", _HALF, _Half(lanes, False).lines()),
        function("after", _HALF, _Half(lanes, True).lines()),
        function("before_rows", _ROWS, _Mixed(lanes, False).rows()),
        function("after_rows", _ROWS, _Mixed(lanes, True).rows()),
        function("take_real_rows", TAKE, Moves(lanes).take_real_rows()),
        function("give_real_rows", give(lanes), Moves(lanes).give_real_rows()),
    ]


class _Mixed(Moves):
    """Writes what is done to pairs of coefficients, `after` or before the transform."""

    def __init__(self, lanes: Lanes, after: bool) -> None:
        super().__init__(lanes)
        self.after = after

    def mixed(self, x: Number, y: Number, root: Number) -> tuple[Number, Number]:
        """Those at k and at h - k, of what is at both places."""
        other = y[0], self.negative(y[1])
        even, odd = self.add(x, other), self.sub(x, other)
        if self.after:
            half = self.lanes.splat(0.5)
            even = self.scaled(even, half)
            odd = self.times(self.scaled(odd, half), root)
            front, back = self.sub_turned(even, odd), self.add_turned(even, odd)
        else:
            odd = self.times(odd, (root[0], self.negative(root[1])))
            front, back = self.add_turned(even, odd), self.sub_turned(even, odd)
        return front, (back[0], self.negative(back[1]))

    def rows(self) -> list[str]:
        """Those of all lines of a block."""
        a, (re, im) = self.a, self.get_row("0")
        other = im if self.after else self.get_row("%length")[0]
        plus, minus = self.real("fadd", re, other), self.real("fsub", re, other)
        self.put_row("0", (plus, self.lanes.splat(0) if self.after else minus))
        if self.after:
            self.put_row("%length", (minus, self.lanes.splat(0)))
        half = a.value("lshr i64 %length, 1")
        with a.loop(1, a.add(half, 1)) as k:
            mirror = a.value(f"sub i64 %length, {k}")
            root = a.at("%roots", a.mul(k, self.pair))
            parts = [a.load(self.lanes.element, root, n) for n in range(2)]
            turn = self.broadcast(parts[0]), self.broadcast(parts[1])
            front, back = self.mixed(self.get_row(k), self.get_row(mirror), turn)
            self.put_row(k, front)
            self.put_row(mirror, back)
        return a.lines


class _Half(_Mixed):
    """Writes `before` or `after`, for lines in memory."""

    def lines(self) -> list[str]:
        """The first pair, whole vectors of pairs, then one after the other."""
        a, count = self.a, self.lanes.count
        is_first = a.value("icmp eq i64 %begin, 0")
        with a.where(is_first):
            self.first()
        begin = a.select(is_first, "i64", "1", "%begin")
        left = a.value(f"sub i64 %end, {begin}")
        vectors = a.value(f"and i64 {left}, {-count}")
        middle = a.value(f"add i64 {begin}, {vectors}")
        with a.loop(begin, middle, count) as k:
            self.pairs(k)
        one = _Half(Lanes(1, self.lanes.nbytes), self.after)
        one.a = a
        with a.loop(middle, "%end") as k:
            one.pairs(k)
        return a.lines

    def pairs(self, k: str) -> None:
        """As many pairs as there are lanes, from k on."""
        a = self.a
        last = a.value(f"sub i64 %length, {k}")
        mirror = a.add(last, 1 - self.lanes.count)
        x, root = self.number("%x", k), self.number("%roots", k)
        re, im = [self.reversed(part) for part in self.number("%x", mirror)]
        front, back = self.mixed(x, (re, im), root)
        self.put_number(front, k)
        self.put_number((self.reversed(back[0]), self.reversed(back[1])), mirror)

    def number(self, array: str, k: Index) -> Number:
        """Numbers that lie as pairs, from number k on."""
        place = self.a.at(array, self.a.mul(k, self.pair))
        ends = [self.a.at(place, self.half * n) for n in range(2)]
        return self.parted(*[self.load_vector(end) for end in ends])

    def put_number(self, number: Number, k: Index) -> None:
        """Writes numbers as pairs, from number k on."""
        place = self.a.at("%y", self.a.mul(k, self.pair))
        for n, pairs in enumerate(self.paired(number)):
            self.store_vector(pairs, self.a.at(place, self.half * n))

    def reversed(self, part: str) -> str:
        """The lanes in the reverse order."""
        return self.shuffled(part, part, range(self.lanes.count - 1, -1, -1))

    def first(self) -> None:
        """The coefficients that are real: their sum and difference are a pair."""
        a, element = self.a, self.lanes.element
        other = a.at("%x", a.mul("%length", self.pair))
        re = a.load(element, "%x")
        im = a.load(element, "%x", 1) if self.after else a.load(element, other)
        plus = a.value(f"fadd {element} {re}, {im}")
        minus = a.value(f"fsub {element} {re}, {im}")
        a.store(element, plus, "%y")
        if not self.after:
            a.store(element, minus, "%y", 1)
            return
        a.store(element, "0.0", "%y", 1)
        last = a.at("%y", a.mul("%length", self.pair))
        a.store(element, minus, last)
        a.store(element, "0.0", last, 1)
