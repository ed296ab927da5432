"""How a contraction is laid out for BLAS, and when a kernel computes it instead."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fnx import dtypes
from fnx.core.types import array_type
from fnx.ops.contraction import Matrix, matmul_layout, output_shape, sides
from fnx.ops.dot import dot_general

IN_PLACE = Matrix(None, False)
TRANSPOSED = Matrix(None, True)


def layout(x_shape, y_shape, contract, batch=((), ())):
    return matmul_layout(
        x_shape, y_shape, *sides(len(x_shape), len(y_shape), contract, batch)
    )


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "contract", "batch", "x", "y"),
    [
        ((3, 4), (4, 5), ((1,), (0,)), ((), ()), IN_PLACE, IN_PLACE),
        ((4, 3), (4, 5), ((0,), (0,)), ((), ()), TRANSPOSED, IN_PLACE),
        ((3, 4), (5, 4), ((1,), (1,)), ((), ()), IN_PLACE, TRANSPOSED),
        ((2, 3, 4), (4, 5), ((2,), (0,)), ((), ()), IN_PLACE, IN_PLACE),
        ((2, 3, 4), (2, 3, 5), ((0, 1), (0, 1)), ((), ()), TRANSPOSED, IN_PLACE),
        ((2, 3, 4), (2, 4, 5), ((2,), (1,)), ((0,), (0,)), IN_PLACE, IN_PLACE),
        ((2, 4, 3), (2, 5, 4), ((1,), (2,)), ((0,), (0,)), TRANSPOSED, TRANSPOSED),
    ],
    ids=str,
)
def test_operands_in_matrix_order_are_not_copied(
    x_shape, y_shape, contract, batch, x, y
):
    found = layout(x_shape, y_shape, contract, batch)
    assert (found.x, found.y) == (x, y)


def test_an_operand_in_no_matrix_order_is_copied():
    batch_inside = layout((3, 2, 4), (2, 4, 5), ((2,), (1,)), ((1,), (0,)))
    assert batch_inside.x == Matrix((1, 0, 2), False)
    assert batch_inside.y == IN_PLACE
    contracted_apart = layout((3, 5, 4), (3, 4, 6), ((0, 2), (0, 1)), ((), ()))
    assert contracted_apart.x == Matrix((1, 0, 2), False)


def test_axes_of_size_1_do_not_count():
    assert layout((3, 1, 4), (1, 4, 5), ((2,), (1,)), ((1,), (0,))).x == IN_PLACE
    assert layout((4, 1, 3), (4, 5), ((0,), (0,))).x == TRANSPOSED


def test_the_order_of_contracted_axes_spares_the_larger_operand():
    # x wants (0, 1), y wants (1, 0): the smaller one is copied.
    found = layout((2, 3, 50), (3, 2, 4), ((0, 1), (1, 0)))
    assert found.x.dims is None and found.y.dims is not None
    found = layout((2, 3, 4), (3, 2, 50), ((0, 1), (1, 0)))
    assert found.x.dims is not None and found.y.dims is None


def every_contraction(ndim):
    """Every choice of roles for the axes of two operands of that rank."""
    for roles in itertools.product("bcf", repeat=ndim):
        batch = [i for i, role in enumerate(roles) if role == "b"]
        contract = [i for i, role in enumerate(roles) if role == "c"]
        for order in itertools.permutations(range(ndim)):
            yield tuple(batch), tuple(contract), order


def test_every_layout_gives_the_product():
    rng = np.random.default_rng(0)
    sizes = (2, 3, 4)
    for batch, contract, order in every_contraction(3):
        x = rng.standard_normal(sizes)
        y = x.transpose(order)
        place = [order.index(axis) for axis in range(3)]
        contracts = contract, tuple([place[i] for i in contract])
        batches = batch, tuple([place[i] for i in batch])
        roles = sides(3, 3, contracts, batches)
        found = matmul_layout(x.shape, y.shape, *roles)
        product = stack(x, found.x, found.batch, found.m, found.k) @ stack(
            y, found.y, found.batch, found.k, found.n
        )
        free = [i for i in range(3) if i not in batch + contract]
        labels = [*batch, *free, *[i + 3 for i in roles[1].free]]
        y_labels = [i if i in batch + contract else place[i] + 3 for i in order]
        want = np.einsum(x, [0, 1, 2], y, y_labels, labels)
        got = product.reshape(output_shape(x.shape, y.shape, *roles))
        np.testing.assert_allclose(got, want, 1e-12)


def stack(x, matrix, batch, rows, columns):
    """What BLAS reads: contiguous memory in the order of the layout."""
    x = np.ascontiguousarray(x if matrix.dims is None else x.transpose(matrix.dims))
    if matrix.transposed:
        return x.reshape(batch, columns, rows).swapaxes(1, 2)
    return x.reshape(batch, rows, columns)


@pytest.mark.parametrize(
    ("dtype", "shapes", "preferred", "fuses"),
    [
        ("float32", ((100, 100), (100, 100)), None, False),
        ("float64", ((100, 100), (100, 100)), None, False),
        ("float32", ((4, 4), (4, 4)), None, True),
        ("float32", ((100, 1), (1, 100)), None, True),
        ("float32", ((100, 0), (0, 100)), None, True),
        ("float16", ((100, 100), (100, 100)), None, True),
        ("int32", ((100, 100), (100, 100)), None, True),
        ("bool", ((100, 100), (100, 100)), None, True),
        ("float32", ((100, 100), (100, 100)), dtypes.float64, True),
        ("complex64", ((100, 100), (100, 100)), None, False),
    ],
)
def test_blas_serves_large_products_of_its_own_dtypes(dtype, shapes, preferred, fuses):
    types = [array_type(shape, dtype) for shape in shapes]
    params = {
        "contract": ((1,), (0,)),
        "batch": ((), ()),
        "preferred_element_type": preferred,
        "precision": None,
    }
    assert dot_general.fusible(types, params) is fuses


class Plan:
    """Records what a `steps` rule asks for."""

    def __init__(self):
        self.outputs = ("out",)
        self.calls = []

    def permuted(self, operand, dims):
        self.calls.append(("permuted", dims))
        return f"copy of {operand.type}"

    def matmul(self, *operands, **options):
        self.calls.append(("matmul", operands, options))

    def host(self):
        self.calls.append(("host",))


class Operand:
    def __init__(self, shape, dtype="float32"):
        self.type = array_type(shape, dtype)


def test_steps_are_a_matmul_after_the_copies():
    plan, x, y = Plan(), Operand((30, 20, 40)), Operand((50, 40))
    dot_general.steps(plan, x, y, contract=((2,), (1,)))
    sizes = {"batch": 1, "m": 600, "n": 50, "k": 40}
    flags = {"transpose_x": False, "transpose_y": True}
    assert plan.calls == [("matmul", ("out", x, y), sizes | flags)]

    plan = Plan()
    x, y = Operand((30, 20, 40)), Operand((20, 40, 50))
    dot_general.steps(plan, x, y, contract=((2,), (1,)), batch=((1,), (0,)))
    sizes = {"batch": 20, "m": 30, "n": 50, "k": 40}
    flags = {"transpose_x": False, "transpose_y": False}
    assert plan.calls == [
        ("permuted", (1, 0, 2)),
        ("matmul", ("out", "copy of f32[30,20,40]", y), sizes | flags),
    ]


def test_a_product_in_a_wider_complex_dtype_runs_on_the_host():
    plan, x, y = Plan(), Operand((9, 9), "complex64"), Operand((9, 9), "complex64")
    dot_general.steps(
        plan,
        x,
        y,
        contract=((1,), (0,)),
        preferred_element_type=dtypes.complex128,
    )
    assert plan.calls == [("host",)]
