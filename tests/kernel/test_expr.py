"""Interning and the normal form of index arithmetic."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from fnx import dtypes
from fnx.kernel.expr import (
    AsIndex,
    FloorDiv,
    IndexExpr,
    Linear,
    LoopIndex,
    Mod,
    linear_offset,
    stride,
    unravel,
    walk,
)
from fnx.kernel.table import ExprTable


def value(index: IndexExpr | int, at: dict[IndexExpr, int]) -> int:
    """What an index expression is for given loop indices."""
    match index:
        case int():
            return index
        case Linear():
            return index.offset + sum(c * value(atom, at) for atom, c in index.terms)
        case FloorDiv():
            return value(index.index, at) // index.divisor
        case Mod():
            return value(index.index, at) % index.divisor
    return at[index]


# ---------------------------------------------------------------- interning


def test_equal_expressions_are_the_same_object():
    table = ExprTable()
    one, two = (table.constant(v, dtypes.float32) for v in (1.0, 2.0))
    first = table.op("add", (one, two), dtypes.float32)
    assert first is table.op("add", (one, two), dtypes.float32)
    assert first is not table.op("add", (two, one), dtypes.float32)
    assert table.loop("i", 4) is table.loop("i", 4)
    assert table.loop("i", 4) is not table.loop("i", 5)


def test_constants_are_told_apart_by_their_bits():
    table = ExprTable()
    f32 = dtypes.float32
    assert table.constant(0.0, f32) is not table.constant(-0.0, f32)
    assert table.constant(math.nan, f32) is table.constant(math.nan, f32)
    assert table.constant(1, dtypes.int32) is not table.constant(1, dtypes.int64)
    assert table.constant(True, dtypes.bool_) is not table.constant(1, dtypes.int8)


def test_constants_are_rounded_and_wrapped():
    table = ExprTable()
    assert table.constant(0.1, dtypes.float32).value == np.float32(0.1)
    assert table.constant(1e300, dtypes.float32).value == math.inf
    assert table.constant(300, dtypes.uint8).value == 44
    assert table.constant(200, dtypes.int8).value == -56
    assert table.constant(0.1, dtypes.bfloat16).value == 0.10009765625


# ---------------------------------------------------------------- index arithmetic


def test_sums_are_in_normal_form():
    table = ExprTable()
    i, j = table.loop("i", 4), table.loop("j", 8)
    assert i + j is j + i
    assert i * 3 + j - i * 3 is j
    assert (i + 1) * 2 - 2 is i * 2
    assert 5 - i is -i + 5
    assert (i * 8 + j + 3).range == (3, 34)
    assert (i - j).range == (-7, 3)


def test_a_loop_of_extent_one_is_zero():
    table = ExprTable()
    assert table.loop("i", 1) is table.number(0)
    assert (table.loop("i", 1) + table.loop("j", 3)) is table.loop("j", 3)


def test_division_by_ranges():
    table = ExprTable()
    i, j = table.loop("i", 4), table.loop("j", 8)
    assert (i * 8 + j) // 8 is i
    assert (i * 8 + j) % 8 is j
    assert (i * 16 + j) // 8 is i * 2
    assert (i * 8 + j) % 4 is j % 4
    assert (i * 8 + j) // 4 is i * 2 + j // 4
    assert (j + 8) // 8 is table.number(1)
    assert (j - 8) // 8 is table.number(-1)
    assert (j - 8) % 8 is j
    assert (i * 6) // 4 is (i * 3) // 2


def test_nested_divisions():
    table = ExprTable()
    x = table.loop("x", 1000)
    assert (x // 3) // 5 is x // 15
    assert (x % 20) % 5 is x % 5
    assert (x % 20) // 5 is (x // 5) % 4
    assert (x // 7) * 7 + x % 7 is x
    assert (x * 2) // 2 is x


def test_unravel_inverts_linear_offset():
    table = ExprTable()
    for shape in [(6,), (2, 3), (4, 1, 5), (2, 3, 4, 5)]:
        index = [table.loop(n, extent) for n, extent in enumerate(shape)]
        offset = table.number(0) + linear_offset(index, shape)
        assert unravel(offset, shape) == tuple(index)
        flat = table.loop("flat", math.prod(shape))
        assert linear_offset(unravel(flat, shape), shape) is flat


def test_reshape_of_a_reshape_is_one():
    table = ExprTable()
    index = [table.loop(n, extent) for n, extent in enumerate((6, 4))]
    offset = linear_offset(index, (6, 4))
    assert linear_offset(unravel(offset, (3, 8)), (3, 8)) is offset


@st.composite
def index_programs(draw):
    """Steps of index arithmetic over two loops."""
    extents = draw(st.tuples(st.integers(2, 7), st.integers(2, 7)))
    number = st.integers(-9, 9)
    step = st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), st.integers(0, 9), number),
        st.tuples(st.just("offset"), st.integers(0, 9), number),
        st.tuples(st.just("floordiv"), st.integers(0, 9), st.integers(1, 9)),
        st.tuples(st.just("mod"), st.integers(0, 9), st.integers(1, 9)),
    )
    return extents, draw(st.lists(step, min_size=1, max_size=7))


@given(index_programs())
def test_arithmetic_is_right(program):
    extents, steps = program
    table = ExprTable()
    indices = [table.loop(n, extent) for n, extent in enumerate(extents)]
    exprs = list(indices)
    points = [
        dict(zip(indices, p, strict=True))
        for p in itertools.product(*map(range, extents))
    ]
    values = [[at[i] for at in points] for i in indices]
    for name, *operands in steps:
        a = operands[0] % len(exprs)
        match name:
            case "add":
                b, c = operands[1] % len(exprs), operands[2]
                exprs.append(exprs[a] + exprs[b] * c)
                values.append(
                    [x + y * c for x, y in zip(values[a], values[b], strict=True)]
                )
            case "offset":
                exprs.append(exprs[a] + operands[1])
                values.append([x + operands[1] for x in values[a]])
            case "floordiv":
                exprs.append(exprs[a] // operands[1])
                values.append([x // operands[1] for x in values[a]])
            case "mod":
                exprs.append(exprs[a] % operands[1])
                values.append([x % operands[1] for x in values[a]])
    for expr, expected in zip(exprs, values, strict=True):
        assert [value(expr, at) for at in points] == expected
        assert expr.lo <= min(expected) and max(expected) <= expr.hi


def test_stride():
    table = ExprTable()
    i, j = table.loop("i", 40), table.loop("j", 8)
    assert stride(i * 3 + j, i) == 3
    assert stride(j, i) == 0
    assert stride(i // 4 + i, i) is None
    assert stride(i // 4 + j, j) == 1


def test_values_as_indices():
    table = ExprTable()
    i = table.loop("i", 40)
    assert table.as_index(table.index_value(i, dtypes.int32), 0, 39) is i
    assert table.as_index(table.constant(3, dtypes.int32), 0, 39) is table.number(3)
    narrow = table.index_value(table.loop("j", 400), dtypes.int8)  # wraps
    assert isinstance(table.as_index(narrow, -128, 127), AsIndex)


def test_inside_is_folded_by_ranges():
    table = ExprTable()
    i = table.loop("i", 10)
    true, false = (table.constant(v, dtypes.bool_) for v in (True, False))
    assert table.inside(i, 0, 10) is true
    assert table.inside(i + 10, 0, 10) is false
    assert table.inside(i - 10, 0, 10) is false
    assert table.inside(i, 2, 10) is table.inside(i - 2, 0, 8)
    assert table.inside(i, 2, 99) is table.inside(i, 2, 10)


# ---------------------------------------------------------------- rewriting


def test_walk_gives_children_first():
    table = ExprTable()
    i, j = table.loop("i", 4), table.loop("j", 8)
    root = (i + j) // 3
    order = walk([root])
    assert order[-1] is root and set(order) == {i, j, i + j, root}


def test_substitution_leaves_bound_indices_alone():
    table = ExprTable()
    i, j = table.loop("i", 4), table.loop("j", 8)
    assert isinstance(i, LoopIndex) and isinstance(j, LoopIndex)
    body = table.index_value(i + j, dtypes.int32)
    total = table.part(table.fold("add", (j,), (body,)), 0)
    assert total.free == {i}
    outside = table.op("add", (total, body), dtypes.int32)
    (result,) = table.substitute([outside], {j: i * 2})
    moved = table.index_value(i * 3, dtypes.int32)
    assert result is table.op("add", (total, moved), dtypes.int32)
