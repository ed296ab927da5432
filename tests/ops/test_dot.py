"""When BLAS computes a contraction and when a kernel, and the steps around BLAS."""

from __future__ import annotations

import pytest

from fnx import dtypes
from fnx.core.layout import Layout, row_major
from fnx.core.types import array_type
from fnx.ops.dot import dot_general


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


class Operand:
    def __init__(self, shape, dtype="float32"):
        self.type = array_type(shape, dtype)
        self.layout = row_major(shape)


class Plan:
    """Records what a `steps` rule asks for."""

    def __init__(self, *shape):
        self.outputs = (Operand(shape),)
        self.calls = []

    def permuted(self, operand, dims):
        self.calls.append(("permuted", operand, dims))
        return f"copy of {operand.type}"

    def matmul(self, out, x, y, product):
        sizes = product.stack, product.m, product.n, product.k
        self.calls.append(("matmul", x, y, sizes))

    def host(self):
        self.calls.append(("host",))


def test_steps_are_a_matmul_after_the_copies():
    plan, x, y = Plan(30, 20, 50), Operand((30, 20, 40)), Operand((50, 40))
    dot_general.steps(plan, x, y, contract=((2,), (1,)))
    assert plan.calls == [("matmul", x, y, (1, 600, 50, 40))]

    plan, x, y = Plan(20, 30, 50), Operand((30, 40, 20)), Operand((20, 40, 50))
    dot_general.steps(plan, x, y, contract=((1,), (1,)), batch=((2,), (0,)))
    assert plan.calls == [
        ("permuted", x, (2, 0, 1)),
        ("matmul", "copy of f32[30,40,20]", y, (20, 30, 50, 40)),
    ]


def test_a_product_that_is_written_transposed_has_its_operands_swapped():
    plan, x, y = Plan(30, 50), Operand((30, 40)), Operand((40, 50))
    plan.outputs[0].layout = Layout(0, (1, 30))
    dot_general.steps(plan, x, y, contract=((1,), (0,)))
    assert plan.calls == [("matmul", y, x, (1, 50, 30, 40))]


def test_a_product_in_a_wider_complex_dtype_runs_on_the_host():
    plan = Plan(9, 9)
    x, y = Operand((9, 9), "complex64"), Operand((9, 9), "complex64")
    dot_general.steps(
        plan,
        x,
        y,
        contract=((1,), (0,)),
        preferred_element_type=dtypes.complex128,
    )
    assert plan.calls == [("host",)]
