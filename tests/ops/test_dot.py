"""When a contraction is matrix products and when a kernel, and the steps around it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fnx
from fnx import dtypes
from fnx.compiler.multiply import BLAS, Products
from fnx.compiler.pipeline import plan_program
from fnx.compiler.step import KernelStep, MatmulStep
from fnx.compiler.target import CPU
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
    dtype, out, extents = dot_general.product(types, params)
    is_step = BLAS.has(dtype, out) and BLAS.pays(*extents)
    assert (dot_general.fusible(types, params) and not is_step) is fuses


EVERY = Products(lambda dtype, out: True, lambda stack, m, n, k: True)
ALL = replace(CPU, products=EVERY)


def test_a_backend_may_have_products_of_other_dtypes():
    shape = fnx.ShapeDtypeStruct((30, 30), dtypes.bfloat16)
    program = fnx.jit(lambda x, y: fnx.numpy.tanh(x @ y)).trace(shape, shape).jaxpr
    steps = plan_program(program).steps
    assert [type(step) for step in steps] == [KernelStep]
    steps = plan_program(program, ALL).steps
    assert [type(step) for step in steps] == [MatmulStep, KernelStep]
    assert steps[0].dtype == steps[0].out_dtype == dtypes.bfloat16


@pytest.mark.parametrize(
    ("precision", "tf32"),
    [
        (None, False),
        ("highest", False),
        ("high", True),
        ("default", True),
        (("default", "highest"), False),
        (("default", "high"), True),
    ],
)
def test_float32_is_rounded_only_where_that_is_asked_for(precision, tf32):
    def product(x, y):
        return fnx.lax.dot(x, y, precision=precision)

    for dtype in dtypes.float32, dtypes.float64:
        shape = fnx.ShapeDtypeStruct((30, 30), dtype)
        program = fnx.jit(fnx.grad(lambda x, y: product(x, y).sum(), argnums=0))
        program = program.trace(shape, shape).jaxpr
        steps = [s for s in plan_program(program).steps if isinstance(s, MatmulStep)]
        assert [step.tf32 for step in steps] == [tf32 and dtype == dtypes.float32]


def test_a_result_may_be_wider_than_operands():
    def wide(x, y):
        return fnx.lax.dot(x, y, preferred_element_type=dtypes.float32)

    shape = fnx.ShapeDtypeStruct((30, 40), dtypes.float16)
    other = fnx.ShapeDtypeStruct((40, 30), dtypes.float16)
    program = fnx.jit(wide).trace(shape, other).jaxpr
    plan = plan_program(program, ALL)
    (step,) = plan.steps
    assert (step.dtype, step.out_dtype) == (dtypes.float16, dtypes.float32)
    assert "1×30×30×40 float16 to float32" in str(plan)


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

    def multiplies(self, x, y):
        return BLAS.has(x.type.dtype, self.outputs[0].type.dtype)

    def matmul(self, out, x, y, product, tf32):
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
