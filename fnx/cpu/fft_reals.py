"""Transforms of real numbers, made of those of half as many complex ones.

Reals are taken in pairs as complex numbers z, h of them. `after` has the transform of z
and finds the coefficients x of the reals: x[k] = e + w o and x[h - k] = conj(e - w o),
where 2 e = z[k] + conj z[h - k], 2 i o = z[k] - conj z[h - k], w = exp(-2 pi i k / 2h).
`before` is the reverse, times two: z[k] = e + i o, z[h - k] = conj(e - i o), where
e = x[k] + conj x[h - k] and o = (x[k] - conj x[h - k]) / w. Both do some k of a line, a
vector of them at once, with their mirror images. Receives the lanes, gives the text of
functions. Next on the walk: `fft_text.py`.
"""

from __future__ import annotations

from fnx.cpu.assembly import Index
from fnx.cpu.fft_arithmetic import Lanes, Number
from fnx.cpu.fft_moves import Moves


def reals_text(lanes: Lanes) -> list[str]:
    """The functions, and what is called for single numbers."""
    one = Lanes(1, lanes.nbytes)
    v = one.vector
    declared = f"declare {v} @llvm.fmuladd.{one.suffix}({v}, {v}, {v})"
    return [declared, _text(lanes, "before"), _text(lanes, "after")]


_HALF = "ptr %x, ptr %y, ptr %roots, i64 %length, i64 %begin, i64 %end"


def _text(lanes: Lanes, name: str) -> str:
    half = _Half(lanes, name == "after")
    head = f"define internal void @{name}({_HALF}) {{"
    return "\n".join([head, "entry:", *half.lines(), "  ret void", "}"])


class _Half(Moves):
    """Writes `before` or `after`."""

    def __init__(self, lanes: Lanes, after: bool) -> None:
        super().__init__(lanes)
        self.after = after

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
        other = re, self.negative(im)
        even, odd = self.add(x, other), self.sub(x, other)
        if self.after:
            half = self.lanes.splat(0.5)
            even = self.scaled(even, half)
            odd = self.times(self.scaled(odd, half), root)
            front, back = self.sub_turned(even, odd), self.add_turned(even, odd)
        else:
            odd = self.times(odd, (root[0], self.negative(root[1])))
            front, back = self.add_turned(even, odd), self.sub_turned(even, odd)
        self.put_number(front, k)
        self.put_number(
            (self.reversed(back[0]), self.reversed(self.negative(back[1]))), mirror
        )

    def number(self, array: str, k: Index) -> Number:
        """Numbers that lie as pairs, from number k on."""
        place = self.a.at(array, self.a.mul(k, self.pair))
        ends = [self.a.at(place, self.half * n) for n in range(2)]
        return self.parted(*[self.load_pairs(end) for end in ends])

    def put_number(self, number: Number, k: Index) -> None:
        """Writes numbers as pairs, from number k on."""
        place = self.a.at("%y", self.a.mul(k, self.pair))
        for n, pairs in enumerate(self.paired(number)):
            self.store_pairs(pairs, self.a.at(place, self.half * n))

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
