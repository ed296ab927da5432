"""Sizes that are known when a program runs: integers in whose place formulas stand.

A program for many sizes has a `Size` where a program of one size has an integer: a
polynomial over symbols, each of which is at least 2. It adds, multiplies and divides
like an integer. Comparing it gives an answer only where that is the same for all
sizes, and raises `Undecided` elsewhere, as does asking for its value: so nothing can
be decided for one size by mistake. `usual` is for choices that are right for any size.
Next on the walk: `fnx.transforms.sized`, which finds the formulas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from math import prod
from typing import Any

from fnx.records import record

LEAST = 2
"""The least value of a symbol: sizes 0 and 1 are other programs, in which axes end."""

MOST = 2**24
"""The largest value of a symbol: so many rows of a hundred elements can be counted with
32 bits."""

_USUAL = 10_000
"""What choices assume of a symbol."""


class Undecided(Exception):
    """What was asked of a size has another answer for another size."""

    @property
    def rounded(self) -> bool:
        """Whether a quotient is in it, which is exact where the size is known better.

        Texts tell: passes add to them what they were about.
        """
        return "//" in str(self)


@record
class Symbol:
    """A number of its own, such as the size of an argument's axis."""

    name: str
    least: int = LEAST
    most: int = MOST

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        return self.least, self.most

    def at(self, sizes: Mapping[Symbol, int]) -> int:
        """The value."""
        return sizes[self]

    @property
    def key(self) -> tuple[Any, ...]:
        """The order among the factors of a product."""
        return (0, self.name)


@record
class Quotient:
    """`size // divisor`, rounded down, where the divisor divides no part of it."""

    size: Size
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        lo, hi = self.size.bounds
        return lo // self.divisor, hi // self.divisor

    def at(self, sizes: Mapping[Symbol, int]) -> int:
        """The value."""
        return self.size.at(sizes) // self.divisor

    @property
    def key(self) -> tuple[Any, ...]:
        """The order among the factors of a product."""
        return (1, str(self.size), self.divisor)


@record
class Lesser:
    """The lesser one of two sizes."""

    first: Size
    second: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value."""
        lo, hi = self.first.bounds
        return min(lo, self.second), min(hi, self.second)

    def at(self, sizes: Mapping[Symbol, int]) -> int:
        """The value."""
        return min(self.first.at(sizes), self.second)

    @property
    def key(self) -> tuple[Any, ...]:
        """The order among the factors of a product."""
        return (2, str(self.first), self.second)


Factor = Symbol | Quotient | Lesser
Product = tuple[Factor, ...]
"""Factors in order; the product of none is 1."""


class Size:
    """A sum of products with integer coefficients, none of which is 0.

    >>> n = symbol("n")
    >>> n * 4 - n * 3 - 1, n * 6 // 3, n < n + 1, n == 5
    (-1 + n, 2*n, True, False)
    >>> n < 5
    Traceback (most recent call last):
    fnx.sizes.Undecided: whether -5 + n is below 0
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Product, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (self.terms,)

    def __repr__(self) -> str:
        parts = [_term(product, c) for product, c in self.terms]
        return " + ".join(parts).replace("+ -", "- ")

    def __format__(self, spec: str) -> str:
        raise Undecided(f"the value of {self!r}")

    def __index__(self) -> int:
        raise Undecided(f"the value of {self!r}")

    __int__ = __float__ = __index__

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int | Size):
            return NotImplemented
        return _sum([*self.terms, *_terms(other)])

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int | Size):
            return NotImplemented
        return _sum(
            (tuple(sorted((*a, *b), key=_key)), c * d)
            for a, c in self.terms
            for b, d in _terms(other)
        )

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Size):
            return _ratio(self, other)
        if other <= 0:
            raise Undecided(f"{self!r} divided by {other}")
        # What the divisor divides comes out, whatever is rounded.
        whole = _sum([(p, c // other) for p, c in self.terms])
        rest = _sum([(p, c % other) for p, c in self.terms])
        if isinstance(rest, int):
            return whole + rest // other
        lo, hi = rest.bounds
        if lo // other == hi // other:
            return whole + lo // other
        return whole + _sum([((Quotient(rest, other),), 1)])

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other

    def __rfloordiv__(self, other: Any) -> Any:
        if other >= 0 and surely_below(other, self):
            return 0
        raise Undecided(f"{other} divided by {self!r}")

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    # -- comparison

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __lt__(self, other: Any) -> bool:
        return _is_negative(self - other)

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __gt__(self, other: Any) -> bool:
        return _is_negative(other - self)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        lo, hi = self.bounds
        if lo <= 0 <= hi:
            raise Undecided(f"whether {self!r} is 0")
        return True

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value, or numbers beyond them."""
        return _bounds(self.terms)

    def at(self, sizes: Mapping[Symbol, int]) -> int:
        """The value, if symbols have these."""
        total = 0
        for product, c in self.terms:
            for factor in product:
                c *= factor.at(sizes)
            total += c
        return total


def lesser(first: int | Size, second: int) -> int | Size:
    """The lesser one of two numbers."""
    if not isinstance(first, Size) or surely_at_most(first, second):
        return min(first, second)
    if surely_at_most(second, first):
        return second
    return _sum([((Lesser(first, second),), 1)])


def symbol(name: str) -> Size:
    """A size of its own."""
    return as_size(Symbol(name))


def as_size(symbol: Symbol) -> Size:
    """A symbol as a formula."""
    return Size((((symbol,), 1),))


def _terms(value: int | Size) -> tuple[tuple[Product, int], ...]:
    return value.terms if isinstance(value, Size) else (((), value),)


def _sum(terms: Iterable[tuple[Product, int]]) -> int | Size:
    """The sum of products in its one form: an integer if nothing else is left."""
    sums = defaultdict[Product, int](int)
    for product, c in terms:
        sums[product] += c
    left = {product: c for product, c in sums.items() if c}
    if not left.keys() - {()}:
        return left.get((), 0)
    return Size(tuple(sorted(left.items(), key=lambda item: _order(item[0]))))


def _key(factor: Factor) -> tuple[Any, ...]:
    return factor.key


def _order(product: Product) -> tuple[Any, ...]:
    return len(product), tuple([factor.key for factor in product])


def _term(product: Product, c: int) -> str:
    names = list(map(_shown, product))
    return "*".join([str(c)] * (c != 1 or not names) + names)


def _shown(factor: Factor) -> str:
    match factor:
        case Symbol(name=name):
            return name
        case Quotient(size=size, divisor=divisor):
            return f"({size!r})//{divisor}"
        case Lesser(first=first, second=second):
            return f"min({first!r}, {second})"


def _ratio(size: Size, divisor: Size) -> int | Size:
    """A sum divided by one product, rounded down, where what is left tells how."""
    if len(divisor.terms) == 1:
        ((factors, d),) = divisor.terms
        whole: list[tuple[Product, int]] = []
        for product, c in size.terms:
            left = _without(product, factors)
            if left is not None and c % d == 0:
                whole.append((left, c // d))
        quotient = _sum(whole)
        rest = size - divisor * quotient
        for less in (0, 1):
            least = surely_at_most(0, rest + divisor * less)
            if least and surely_below(rest + divisor * less, divisor):
                return quotient - less
    raise Undecided(f"{size!r} divided by {divisor!r}")


def _without(product: Product, factors: Product) -> Product | None:
    left = list(product)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


# ---------------------------------------------------------------- bounds


def _bounds(terms: tuple[tuple[Product, int], ...]) -> tuple[int, int]:
    lo, hi = _range(terms)
    # q = x // d is (x - r) / d, with 0 <= r < d: often that tells more.
    rest = slack = 0
    exact: list[tuple[Product, int]] = []
    for product, c in terms:
        only = product[0] if len(product) == 1 else None
        if isinstance(only, Quotient) and c % only.divisor == 0:
            times = c // only.divisor
            exact += [(p, times * d) for p, d in only.size.terms]
            spread = times * (only.divisor - 1)
            slack, rest = slack - max(spread, 0), rest - min(spread, 0)
        else:
            exact.append((product, c))
    if not slack and not rest:
        return lo, hi
    whole = _sum(exact)
    below, above = (whole, whole) if isinstance(whole, int) else _range(whole.terms)
    return max(lo, below + slack), min(hi, above + rest)


def _range(terms: Iterable[tuple[Product, int]]) -> tuple[int, int]:
    """Bounds of a sum, of which every factor is its least value and what is above."""
    shifted = defaultdict[Product, int](int)
    for product, c in terms:
        for count in range(len(product) + 1):
            for kept in combinations(range(len(product)), count):
                least = [f.bounds[0] for n, f in enumerate(product) if n not in kept]
                shifted[tuple([product[n] for n in kept])] += c * prod(least)
    lo = hi = 0
    for product, c in shifted.items():
        far = c * prod([f.bounds[1] - f.bounds[0] for f in product])
        lo, hi = (
            lo + (min(far, 0) if product else c),
            hi + (max(far, 0) if product else c),
        )
    return lo, hi


def _is_negative(difference: int | Size) -> bool:
    if isinstance(difference, int):
        return difference < 0
    lo, hi = difference.bounds
    if lo < 0 <= hi:
        raise Undecided(f"whether {difference!r} is below 0")
    return hi < 0


# ---------------------------------------------------------------- choices


def usual(value: Any) -> Any:
    """A positive number that choices may go by, if they are right for any size."""
    return max(value.at(_Usual()), 1) if isinstance(value, Size) else value


class _Usual(dict[Symbol, int]):
    def __missing__(self, symbol: Symbol) -> int:
        return _USUAL


def surely_below(a: Any, b: Any) -> bool:
    """Whether a < b, whatever the sizes are."""
    try:
        return bool(a < b)
    except Undecided:
        return False


def surely_at_most(a: Any, b: Any) -> bool:
    """Whether a <= b, whatever the sizes are."""
    try:
        return bool(a <= b)
    except Undecided:
        return False
