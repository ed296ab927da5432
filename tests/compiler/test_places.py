"""Places in the arena, where sizes are known and where they are formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fnx.compiler.places import Draft, Place, Value, place_in_arena
from fnx.core.types import ArrayType
from fnx.sizes import Size, Symbol, symbol

UINT8 = np.dtype("uint8")
SIZES = (2, 3, 15, 16, 17, 64, 257, 5000)


def at(formula: Any, n: int) -> int:
    """The value of a formula, or of a number."""
    return formula.at({Symbol("n"): n}) if isinstance(formula, Size) else formula


# The bytes of a value are this many sizes and a constant; it lives for so many steps.
LIVES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2000), st.integers(0, 5)),
    min_size=1,
    max_size=14,
)


def placed(lives: Any) -> tuple[list[Value], dict[Value, Place], Any]:
    """A step for each value, which reads what ends there; their places, the arena."""
    n = symbol("n")
    values = [Value(ArrayType((n * many + more,), UINT8)) for many, more, _ in lives]
    drafts = []
    for number, value in enumerate(values):
        ends = [
            before
            for k, before in enumerate(values[:number])
            if k + lives[k][2] == number
        ]
        drafts.append(Draft(tuple(ends), (value,), None))  # type: ignore[arg-type]
    places: dict[Value, Place] = {}
    return values, places, place_in_arena(drafts, places)


@given(LIVES)
def test_values_that_live_together_lie_apart_at_any_size(lives: Any) -> None:
    values, places, arena = placed(lives)
    for n in SIZES:
        begins = [at(places[v].index, n) for v in values]
        ends = [b + at(v.nbytes, n) for b, v in zip(begins, values, strict=True)]
        assert max(ends) <= at(arena, n)
        assert all(begin % 64 == 0 for begin in begins)
        last = [
            k + life if k + life < len(lives) else k
            for k, (*_, life) in enumerate(lives)
        ]
        for b in range(len(lives)):
            for a in range(b):
                if last[a] >= b:  # the step that makes b still reads a
                    apart = ends[a] <= begins[b] or ends[b] <= begins[a]
                    assert apart or begins[a] == ends[a] or begins[b] == ends[b]


def test_a_block_that_is_larger_at_some_sizes_stays() -> None:
    """Else the arena would end before it."""
    # 1000 bytes come after a free block of 3n, which is larger from n = 342 on.
    values, places, arena = placed([(3, 0, 1), (0, 8, 0), (0, 1000, 0)])
    for n in SIZES:
        assert at(arena, n) >= at(places[values[0]].index, n) + 3 * n
