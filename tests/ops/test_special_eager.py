"""Eager special functions of many elements run their compiled kernel.

The oracle is the reference rule, which runs under NumPy's masks; few kernels serve all
shapes, and few elements are computed without any.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
import fnx.scipy.special as fsp
from fnx.ops import special, special_integrals
from fnx.runtime import eager

pytest.importorskip("llvmlite")


@pytest.fixture
def kernels(monkeypatch):
    """What is run compiled meanwhile: the names, and the numbers of elements."""
    seen = []
    real = eager.run_kernel

    def run_kernel(primitive, arrays, params):
        value = real(primitive, arrays, params)
        seen.append((primitive.name, value.size))
        return value

    monkeypatch.setattr(eager, "run_kernel", run_kernel)
    return seen


def operands(count, shape, dtype):
    values = np.random.default_rng(count).uniform(0.1, 0.9, (count, *shape))
    return [fnp.array(x.astype(dtype)) for x in values]


CASES = {
    "betainc": (special.betainc, 3, {}),
    "derivative of betainc": (special.betainc_derivative, 3, {"i": 1, "j": 0}),
    "igamma": (special.igamma, 2, {}),
    "expn": (special_integrals.expn, 2, {}),
    "owens_t": (special.owens_t, 2, {}),
    "erfcx_moment": (special.erfcx_moment, 1, {"order": 2}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("shape", [(32,), (5, 9), (2, 1, 37)])
def test_values_are_those_of_the_reference(case, shape, kernels):
    function, count, params = case
    for dtype in ("float32", "float64", "bfloat16"):
        xs = operands(count, shape, fnp.dtype(dtype))
        found = function(*xs, **params)
        wanted = function.reference(*map(np.asarray, xs), **params)
        assert found.shape == shape and found.dtype == dtype
        ends = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
        step = 2.0**-7 if dtype == "bfloat16" else np.finfo(dtype).eps
        np.testing.assert_allclose(*ends, 8 * step)
    assert kernels == [(function.name, int(np.prod(shape)))] * 3


def test_few_elements_are_computed_without_a_kernel(kernels):
    xs = operands(3, (31,), "float32")
    assert np.isfinite(fsp.betainc(*xs)).all() and not kernels
    assert np.isfinite(special.gamma(fnp.ones(4095))).all() and not kernels
    assert special.gamma(fnp.full((4096,), 4.0)).tolist() == [6.0] * 4096
    assert kernels == [("gamma", 4096)]


def test_numbers_and_special_values_beside_arrays(kernels):
    x = fnp.array(np.tile([0.0, 1.0, np.nan, -0.5, 0.25], 9))
    found = np.asarray(special.betainc(2.0, 3.0, x))
    a, b = (fnp.full((5,), value, "float64") for value in (2.0, 3.0))
    wanted = np.asarray(special.betainc(a, b, x[:5]))
    np.testing.assert_array_equal(found, np.tile(wanted, 9))
    assert kernels == [("betainc", 45)]


def test_one_kernel_serves_several_shapes():
    fsp.betainc(*operands(3, (64,), "float32"))
    with fnx.no_recompile():
        fsp.betainc(*operands(3, (33,), "float32"))
        fsp.betainc(*operands(3, (7, 8), "float32"))


def test_more_elements_than_a_kernel_has():
    x = np.random.default_rng(0).uniform(0.5, 5, 65536 + 77)
    found = np.asarray(special.gamma(fnp.array(x)))
    np.testing.assert_allclose(found, special.gamma.reference(x), 1e-15)
    assert found.shape == x.shape


def test_repeated_calls_and_derivatives_give_the_same(kernels):
    xs = operands(3, (5, 9), "float32")
    first = fsp.betainc(*xs)
    for _ in range(40):
        again = fsp.betainc(*xs)
    assert np.array_equal(first, again)
    slope = fnx.grad(lambda x: fsp.betainc(xs[0], xs[1], x).sum())(xs[2])
    np.testing.assert_allclose(slope, special.beta_pdf(*xs), 1e-5)
