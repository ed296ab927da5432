"""A contraction as matrix products that BLAS computes, and what is copied before."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fnx.core.layout import Layout, row_major
from fnx.ops import matrices as module
from fnx.ops.contraction import output_shape, sides
from fnx.ops.matrices import matmul_layout
from tests.strided import elements, matrices


def layout(x_shape, y_shape, contract, batch=((), ()), layouts=None):
    roles = sides(len(x_shape), len(y_shape), contract, batch)
    return matmul_layout((x_shape, y_shape), *roles, layouts)


@pytest.fixture
def any_split(monkeypatch):
    """Free axes become axes of the stack however little is left."""
    monkeypatch.setattr(module, "_LEFT", 1)
    matmul_layout.cache_clear()
    yield
    matmul_layout.cache_clear()


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "contract", "batch", "transposed"),
    [
        ((3, 4), (4, 5), ((1,), (0,)), ((), ()), (False, False)),
        ((4, 3), (4, 5), ((0,), (0,)), ((), ()), (True, False)),
        ((3, 4), (5, 4), ((1,), (1,)), ((), ()), (False, True)),
        ((2, 3, 4), (4, 5), ((2,), (0,)), ((), ()), (False, False)),
        ((2, 3, 4), (2, 3, 5), ((0, 1), (0, 1)), ((), ()), (True, False)),
        ((2, 3, 4), (2, 4, 5), ((2,), (1,)), ((0,), (0,)), (False, False)),
        ((2, 4, 3), (2, 5, 4), ((1,), (2,)), ((0,), (0,)), (True, True)),
        ((3, 2, 4), (2, 4, 5), ((2,), (1,)), ((1,), (0,)), (False, False)),
        ((4, 1, 3), (4, 5), ((0,), (0,)), ((), ()), (True, False)),
    ],
    ids=str,
)
def test_operands_that_are_read_where_they_lie(
    x_shape, y_shape, contract, batch, transposed
):
    found = layout(x_shape, y_shape, contract, batch)
    assert found.dims == (None, None)
    assert (found.product.x.transposed, found.product.y.transposed) == transposed


def test_attention_is_read_from_one_array_of_queries_keys_and_values():
    # [batch, tokens, (3, heads, width)]; products over batch and heads.
    b, t, h, d = 2, 5, 3, 8
    strides = (t * 3 * h * d, 3 * h * d, d, 1)
    queries, keys = Layout(0, strides), Layout(h * d, strides)
    out = row_major((b, h, t, t))
    shape = (b, t, h, d)
    layouts = queries, keys, out
    found = layout(shape, shape, ((3,), (3,)), ((0, 2), (0, 2)), layouts)
    assert found.dims == (None, None)
    product = found.product
    assert (product.batch, product.m, product.n, product.k) == ((b, h), t, t, d)
    assert product.x.offset == 0 and product.y.offset == h * d
    assert product.x.strides == product.y.strides == (t * 3 * h * d, d)
    assert product.x.leading == product.y.leading == 3 * h * d
    assert product.y.transposed and not product.x.transposed
    assert product.out.strides == (h * t * t, t * t)


def test_an_operand_without_an_axis_of_stride_1_is_copied():
    strided = layout(
        (3, 4),
        (4, 5),
        ((1,), (0,)),
        layouts=(Layout(0, (8, 2)), row_major((4, 5)), row_major((3, 5))),
    )
    assert strided.dims == ((0, 1), None)
    batch_last = layout((3, 4, 2), (2, 4, 5), ((1,), (1,)), ((2,), (0,)))
    assert batch_last.dims == ((2, 0, 1), None)
    contracted_apart = layout((3, 5, 4), (3, 4, 6), ((0, 2), (0, 1)))
    assert contracted_apart.dims == ((1, 0, 2), None)


def test_a_leading_dimension_has_32_bits():
    for stride, dims in ((2**31 - 1, None), (2**31, (0, 1))):
        layouts = Layout(0, (stride, 1)), row_major((4, 5)), row_major((3, 5))
        found = layout((3, 4), (4, 5), ((1,), (0,)), layouts=layouts)
        assert found.dims == (dims, None)


def test_a_repeated_matrix_axis_is_copied_a_repeated_stack_is_not():
    layouts = Layout(0, (0, 0, 4, 1)), row_major((2, 3, 4, 5)), row_major((2, 3, 3, 5))
    sizes = (2, 3, 3, 4), (2, 3, 4, 5)
    found = layout(*sizes, ((3,), (2,)), ((0, 1), (0, 1)), layouts)
    assert found.dims == (None, None)
    assert found.product.x.strides == (0,)
    repeated_rows = Layout(0, (0, 1)), row_major((4, 5)), row_major((3, 5))
    found = layout((3, 4), (4, 5), ((1,), (0,)), layouts=repeated_rows)
    assert found.dims == ((0, 1), None)


def test_a_free_axis_becomes_one_of_the_stack_rather_than_a_copy():
    found = layout((50, 60), (7, 60, 40), ((1,), (1,)))
    assert found.dims == (None, None)
    assert found.product.batch == (7,)
    assert found.product.x.strides == (0,)
    assert found.product.out.leading == 7 * 40
    # One larger product is better where nothing must be copied ...
    found = layout((50, 60), (60, 7, 40), ((1,), (0,)))
    assert (found.product.batch, found.product.n) == ((), 280)
    # ... and better than many narrow ones.
    found = layout((50, 60), (40, 60, 7), ((1,), (1,)))
    assert found.dims == (None, (1, 0, 2))
    assert (found.product.batch, found.product.n) == ((), 280)


def test_the_order_of_contracted_axes_spares_the_larger_operand():
    # x wants (0, 1), y wants (1, 0): the smaller one is copied.
    found = layout((2, 3, 50), (3, 2, 4), ((0, 1), (1, 0)))
    assert found.dims[0] is None and found.dims[1] is not None
    found = layout((2, 3, 4), (3, 2, 50), ((0, 1), (1, 0)))
    assert found.dims[0] is not None and found.dims[1] is None


def test_nothing_is_no_product():
    assert layout((3, 0), (0, 4), ((1,), (0,))) is None
    assert layout((0, 3), (3, 4), ((1,), (0,))) is None


def every_contraction(ndim):
    """Every choice of roles for the axes of two operands of that rank."""
    for roles in itertools.product("bcf", repeat=ndim):
        batch = [i for i, role in enumerate(roles) if role == "b"]
        contract = [i for i, role in enumerate(roles) if role == "c"]
        for order in itertools.permutations(range(ndim)):
            yield tuple(batch), tuple(contract), order


def in_memory(x, order):
    """A flat array that holds x with its axes in that order, and where x lies in it."""
    memory = x.transpose(order).copy()
    strides = [memory.strides[order.index(axis)] for axis in range(x.ndim)]
    return memory.ravel(), Layout(0, tuple([s // x.itemsize for s in strides]))


def multiplied(found, x, y, out):
    """What BLAS does: reads two flat arrays, writes a third."""
    p = found.product
    x, y = (y, x) if found.swapped else (x, y)
    matrices(out, p.batch, p.m, p.n, p.out)[...] = matrices(
        x, p.batch, p.m, p.k, p.x
    ) @ matrices(y, p.batch, p.k, p.n, p.y)


@pytest.mark.parametrize("lies", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_every_layout_gives_the_product(any_split, lies, turned, rng):
    sizes = (2, 3, 4)
    for batch, contract, order in every_contraction(3):
        x = rng.standard_normal(sizes)
        y = rng.standard_normal(tuple([sizes[axis] for axis in order]))
        place = [order.index(axis) for axis in range(3)]
        contracts = contract, tuple([place[i] for i in contract])
        batches = batch, tuple([place[i] for i in batch])
        roles = sides(3, 3, contracts, batches)
        shape = output_shape(x.shape, y.shape, *roles)
        back = tuple(range(len(shape)))[:: -1 if turned else 1]
        (x_memory, x_lies), (y_memory, y_lies) = in_memory(x, lies), in_memory(y, lies)
        out, out_lies = in_memory(np.full(shape, np.nan), back)
        layouts = x_lies, y_lies, out_lies
        found = matmul_layout((x.shape, y.shape), *roles, layouts)
        if found is None:
            assert turned and len(shape) > 1
            continue
        x_dims, y_dims = found.dims
        x_read = x_memory if x_dims is None else x.transpose(x_dims).ravel()
        y_read = y_memory if y_dims is None else y.transpose(y_dims).ravel()
        multiplied(found, x_read, y_read, out)
        free = [i for i in range(3) if i not in batch + contract]
        labels = [*batch, *free, *[i + 3 for i in roles[1].free]]
        y_labels = [i if i in batch + contract else place[i] + 3 for i in order]
        wanted = np.einsum(x, [0, 1, 2], y, y_labels, labels)
        np.testing.assert_allclose(elements(out, shape, out_lies), wanted, 1e-12)
        assert math.prod(found.product.batch) == found.product.stack


def test_an_output_may_lie_transposed():
    layouts = row_major((3, 4)), row_major((4, 5)), Layout(0, (1, 3))
    found = layout((3, 4), (4, 5), ((1,), (0,)), layouts=layouts)
    assert found.swapped
    assert (found.product.m, found.product.n) == (5, 3)
    assert not found.product.out.transposed


def test_an_output_without_an_axis_of_stride_1_cannot_be_written():
    layouts = row_major((3, 4)), row_major((4, 5)), Layout(0, (10, 2))
    assert layout((3, 4), (4, 5), ((1,), (0,)), layouts=layouts) is None
