"""Layouts against what NumPy's strides say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fnx.core.layout import (
    Layout,
    is_row_major,
    merged,
    merged_alike,
    reshaped_layout,
    row_major,
)
from fnx.core.types import array_type
from fnx.ops.pieces import slice_
from fnx.ops.shape import broadcast_in_dim, permute
from tests.strided import elements

SHAPES = [(), (1,), (0,), (7,), (2, 3), (3, 1, 2), (2, 0, 3), (1, 4, 1, 3), (2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_array_by_itself(shape):
    memory = np.arange(math.prod(shape))
    layout = row_major(shape)
    np.testing.assert_array_equal(
        elements(memory, shape, layout), memory.reshape(shape)
    )
    assert is_row_major(layout, shape)


def test_what_is_not_row_major():
    assert not is_row_major(Layout(1, (3, 1)), (2, 3))
    assert not is_row_major(Layout(0, (1, 2)), (2, 3))
    assert is_row_major(Layout(0, (99, 3, 1)), (1, 2, 3))


RESHAPES = [
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (2, 12)),
    ((2, 3, 4), (24,)),
    ((2, 3, 4), (2, 3, 2, 2)),
    ((2, 3, 4), (4, 6)),
    ((2, 3, 4), (1, 2, 1, 3, 4, 1)),
    ((6, 4), (2, 3, 4)),
    ((6, 4), (3, 2, 2, 2)),
    ((1, 1), ()),
    ((), (1, 1)),
    ((2, 0), (0, 5)),
]


@pytest.mark.parametrize(("before", "after"), RESHAPES, ids=str)
def test_reshapes_of_permuted_arrays_are_layouts_where_numpy_needs_no_copy(
    before, after
):
    found = 0
    for order in itertools.permutations(range(len(before))):
        lying = tuple([before[axis] for axis in order])
        memory = np.arange(math.prod(before))
        view = memory.reshape(lying).transpose(np.argsort(order))
        strides = tuple([stride // memory.itemsize for stride in view.strides])
        layout = reshaped_layout(Layout(0, strides), before, after)
        shares = np.shares_memory(view.reshape(after), memory) or not memory.size
        assert (layout is not None) == shares
        if layout is not None:
            found += 1
            np.testing.assert_array_equal(
                elements(memory, after, layout), view.reshape(after)
            )
    assert found


def test_merged_axes():
    assert merged((2, 1, 3), (12, 99, 4)) == (6, 4)
    assert merged((2, 3), (0, 0)) == (6, 0)
    assert merged((2, 3), (4, 8)) is None
    assert merged((1, 1), (5, 7)) == (1, 1)
    # What one array has in a row lies apart in the other.
    assert merged_alike((2, 3), [(3, 1), (4, 1)]) == ((2, 3), [(3, 1), (4, 1)])
    assert merged_alike((2, 3, 1), [(3, 1, 0), (0, 0, 0)]) == ((6,), [(1,), (0,)])
    assert merged_alike((), [(), ()]) == ((), [(), ()])


VIEWED = [
    (permute, {"dims": (2, 0, 1)}),
    (slice_, {"start": (1, 0, 2), "stop": (4, 3, 5), "strides": (2, 1, 2)}),
    (broadcast_in_dim, {"shape": (2, 4, 3, 6, 5), "dims": (1, 2, 4)}),
]


@pytest.mark.parametrize(("primitive", "params"), VIEWED, ids=str)
def test_operations_on_layouts_that_move_elements(primitive, params):
    x = np.arange(4 * 3 * 5 + 7)[7:].reshape(5, 4, 3).transpose(1, 2, 0)
    layout = Layout(7, (3, 1, 12))
    type = array_type(x.shape, x.dtype)
    found = primitive.viewed(layout, type, **params)
    wanted = primitive.reference(x, **params)
    got = elements(np.arange(4 * 3 * 5 + 7), wanted.shape, found)
    np.testing.assert_array_equal(got, wanted)


def test_what_is_written_through_a_permutation():
    layout = permute.written(row_major((5, 4, 3)), dims=(2, 0, 1))
    memory = np.arange(60)
    source = elements(memory, (4, 3, 5), layout)
    np.testing.assert_array_equal(source.transpose(2, 0, 1), memory.reshape(5, 4, 3))
