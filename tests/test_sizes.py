"""Formulas in the place of sizes: arithmetic and comparison, against integers."""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.sizes import (
    MOST,
    Size,
    Symbol,
    Undecided,
    lesser,
    surely_at_most,
    surely_below,
    symbol,
    usual,
)

N, M = Symbol("n"), Symbol("m")
n, m = symbol("n"), symbol("m")


def value(size: Any, at: dict[Symbol, int]) -> int:
    return size.at(at) if isinstance(size, Size) else size


Formula = Callable[[Any, Any], Any]

FORMULAS: list[Formula] = [
    lambda n, m: n * 4 - 3,
    lambda n, m: 7 - n * m * 2 + m,
    lambda n, m: (n * 64 + 63) // 64 * 64,
    lambda n, m: (n + 1) // 2,
    lambda n, m: n % 8 + n // 8 * 8,
    lambda n, m: (3 * n * m - 1) // m,
    lambda n, m: (n - 1) * 5 + 4 - (n * 5 - 1),
    lambda n, m: n // 512 * 512 + 511,
    lambda n, m: lesser(n // 3, 4) * m,
]


@pytest.mark.parametrize("number", range(len(FORMULAS)))
def test_formulas_are_right_at_any_size(number: int) -> None:
    formula = FORMULAS[number]
    size = formula(n, m)
    for i, j in itertools.product((2, 3, 8, 511, 512, 10_000), (2, 5, 64)):
        assert value(size, {N: i, M: j}) == formula(i, j)


@given(
    st.sampled_from(FORMULAS),
    st.sampled_from(FORMULAS),
    st.lists(st.tuples(st.integers(2, 5000), st.integers(2, 5000)), min_size=5),
)
def test_what_is_decided_holds_for_every_size(
    a: Formula, b: Formula, where: list[tuple[int, int]]
) -> None:
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        try:
            found = compare(a(n, m), b(n, m))
        except Undecided:
            continue
        assert all(compare(a(i, j), b(i, j)) == found for i, j in where)


def test_one_form() -> None:
    assert n * 2 - n == n
    assert n - n == 0
    assert hash(n * 3 + 1) == hash(1 + n + 2 * n)
    assert n * m == m * n
    assert n != 5
    assert n != m
    assert (n * 6) // 3 == n * 2
    assert n * 3 // n == 3
    assert 1 // n == 0
    assert pickle.loads(pickle.dumps(n * m // 3)) == n * m // 3
    assert repr(3 - n * 2 + n * m) == "3 - 2*n + m*n"


def test_what_differs_is_not_decided() -> None:
    """Whatever would make an integer of a size raises, too."""
    asked: list[Callable[[], Any]] = [
        lambda: n < 5,
        lambda: n > m,
        lambda: bool(n - 2),
        lambda: range(n),
        lambda: int(n),
        lambda: f"{n}",
        lambda: n // m,
        lambda: 5 % n,
        lambda: [1, 2, 3][n],
    ]
    for question in asked:
        with pytest.raises(Undecided):
            question()


def test_bounds() -> None:
    assert n >= 2
    assert n <= MOST
    assert n * m - n > 0
    assert surely_below(n // 512 * 512 - 1, n)
    assert surely_at_most(n - n // 512 * 512, 511)
    assert not surely_below(n, 100)
    assert not surely_at_most(100, n)
    assert lesser(n, 1) == 1
    assert lesser(n - n // 4 * 4, 7) == n - n // 4 * 4
    assert usual(n * 2) == 2 * usual(n) > 0
    assert usual(7) == 7
