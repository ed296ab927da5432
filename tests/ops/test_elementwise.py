"""The numerical policies of elementwise operations: tails, kinks, corners, saturation.

What every primitive owes (types, derivatives, batching) is in `test_primitives.py`;
here are the values that a policy fixes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import fnx
import fnx.ops.elementwise as ops
from fnx import dtypes
from fnx.core.primitive import primitives
from fnx.ops import special, special_integrals
from fnx.ops.arithmetic import Smooth
from fnx.ops.families import kind
from fnx.ops.parts import (
    nextafter,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from fnx.runtime.array import from_numpy

inf, nan = float("inf"), float("nan")


def array(*values: Any, dtype: Any = np.float64) -> Any:
    return from_numpy(np.array(values, dtype))


def slope(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative of an elementwise function of one array."""

    def derivative(x: Any) -> Any:
        return fnx.jvp(function, (x,), (from_numpy(np.ones(x.shape, x.dtype)),))[1]

    return derivative


def slopes(function: Callable[[Any], Any], *points: float, order: int = 1) -> Any:
    """Derivatives at some points, forwards, and the same backwards."""
    for _ in range(order - 1):
        function = slope(function)
    x = array(*points)
    forward = np.asarray(slope(function)(x)).tolist()
    backward = np.asarray(fnx.vjp(function, x)[1](array(*[1.0] * len(points)))[0])
    np.testing.assert_array_equal(backward, forward)
    return forward


# ---------------------------------------------------------------- tails


def _both_sides(low: float, high: float) -> Any:
    grid = np.geomspace(low, high, 30)
    return np.concatenate([-grid, grid])


_TINY_TO_ONE = _both_sides(1e-30, 0.999)
_BOTH_SIDES = _both_sides(1e-12, 80)
_WIDE = _both_sides(1e-12, 1e12)
_POSITIVE = np.geomspace(1e-12, 1e12, 40)

# name: the function in mpmath, the points, and how often it may be derived there
_TAILS: dict[str, tuple[Any, Any, int]] = {
    "exp": (mpmath.exp, _BOTH_SIDES, 2),
    "exp2": (lambda x: mpmath.mpf(2) ** x, _BOTH_SIDES, 2),
    "expm1": (mpmath.expm1, _BOTH_SIDES, 2),
    "log1p": (lambda x: mpmath.log(1 + x), _TINY_TO_ONE, 2),
    "log": (mpmath.log, _POSITIVE, 2),
    "sqrt": (mpmath.sqrt, _POSITIVE, 2),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), _POSITIVE, 2),
    "cbrt": (mpmath.cbrt, _POSITIVE, 2),
    "tanh": (mpmath.tanh, _BOTH_SIDES, 2),
    "logistic": (lambda x: 1 / (1 + mpmath.exp(-x)), _BOTH_SIDES, 2),
    "sinh": (mpmath.sinh, _BOTH_SIDES, 2),
    "cosh": (mpmath.cosh, _BOTH_SIDES, 2),
    "asinh": (mpmath.asinh, _WIDE, 2),
    "acosh": (mpmath.acosh, 1 + np.geomspace(1e-6, 1e12, 40), 2),
    "atanh": (mpmath.atanh, _TINY_TO_ONE, 2),
    "asin": (mpmath.asin, _TINY_TO_ONE, 2),
    "acos": (mpmath.acos, _TINY_TO_ONE, 2),
    "atan": (mpmath.atan, _WIDE, 2),
    "erf": (mpmath.erf, _BOTH_SIDES, 2),
    "erfc": (mpmath.erfc, _BOTH_SIDES, 2),
    "sech_squared": (lambda x: mpmath.sech(x) ** 2, _BOTH_SIDES, 1),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", _TAILS)
def test_tails_are_accurate(name: str, dtype: Any, compiled: bool) -> None:
    """Value, first and second derivative within 8 ulp of 50 digits."""
    _, points, orders = _TAILS[name]
    x = np.asarray(points, dtype)
    function: Any = getattr(ops, name)
    for order in range(orders + 1):
        run = fnx.jit(function) if compiled else function
        got = np.asarray(run(from_numpy(x)))
        with mpmath.workdps(50):
            worst = max(
                _ulps(y, _exact(name, float(v), order))
                for y, v in zip(got, x, strict=False)
            )
        assert worst <= 8, f"order {order}: {worst} ulp"
        function = slope(function)


@functools.cache
def _exact(name: str, x: float, order: int) -> Any:
    """The derivative of that order, to 50 digits."""
    function, _, _ = _TAILS[name]
    if order == 0:
        return function(mpmath.mpf(x))
    with mpmath.workdps(200):  # differences lose most of the digits
        step = abs(mpmath.mpf(x)) * mpmath.mpf(10) ** -50
        return mpmath.diff(function, mpmath.mpf(x), order, h=step)


def _ulps(got: Any, want: Any) -> float:
    """The error in units of the last place, above the subnormal numbers."""
    info = np.finfo(got.dtype)
    size = abs(want)
    if size < 4 * float(info.smallest_normal):
        return 0.0 if abs(float(got)) <= 8 * float(info.smallest_normal) else np.inf
    if size > float(info.max):
        return 0.0 if abs(float(got)) >= float(info.max) / 2 else np.inf
    return float(abs(mpmath.mpf(float(got)) - want) / size / float(info.eps))


# ---------------------------------------------------------------- strong zeros

_CORNERS = [0.0, -0.0, 0.5, 1.0, -1.0, 2.0, -2.0, 1e300, -1e300, 5e-324, inf, -inf]
# Those of `ops/special.py` and `special_integrals.py` have a test of their own: some
# have no second derivative.
_SPECIAL = {id(f) for part in (special, special_integrals) for f in vars(part).values()}
_SPECIAL -= {*map(id, vars(ops).values())}
_SMOOTH = [
    p
    for p in primitives()
    if isinstance(p, Smooth) and "f" in p.kinds and id(p) not in _SPECIAL
]
_SPECIAL_SMOOTH = [
    p
    for p in primitives()
    if isinstance(p, Smooth) and "f" in p.kinds and id(p) in _SPECIAL
]
_ORDERED = """bessel_i bessel_j bessel_moment dawsn_derivative erfcx_moment expm1_ratio
log1p_ratio poisson_entropy sin_ratio zeta_derivative""".split()
_SPECIAL_PARAMS = {
    **{name: {"order": 1} for name in _ORDERED},
    "betainc_derivative": {"i": 0, "j": 1},
}
_ARITIES = {"betainc_derivative": 3, "zeta_derivative": 2}
# Derivatives of functions that are bounded are finite for all numbers, but not for NaN.
_BOUNDED_INSIDE = {"ndtr", "owens_t"}
_PARAMS = {"integer_pow": {"y": -2}}


@pytest.mark.parametrize("primitive", _SMOOTH, ids=str)
def test_a_zero_tangent_stays_zero(primitive: Smooth) -> None:
    """Also where the derivative is infinite or NaN; also in second derivatives."""
    arity = len(primitive.partials)
    xs = [g.ravel() for g in np.meshgrid(*[_CORNERS] * arity)]
    xs = tuple([from_numpy(x) for x in xs])
    zeros = tuple([from_numpy(np.zeros(x.shape)) for x in xs])
    ones = tuple([from_numpy(np.ones(x.shape)) for x in xs])

    def function(*xs: Any) -> Any:
        return primitive(*xs, **_PARAMS.get(primitive.name, {}))

    def derivative(*xs: Any) -> Any:
        return fnx.jvp(function, xs, ones)[1]

    for f in (function, derivative):
        tangent = np.asarray(fnx.jvp(f, xs, zeros)[1])
        assert (tangent == 0).all()
        for cotangent in fnx.vjp(f, *xs)[1](zeros[0]):
            assert (np.asarray(cotangent) == 0).all()


@pytest.mark.parametrize("primitive", _SPECIAL_SMOOTH, ids=str)
def test_a_zero_tangent_of_a_special_function_stays_zero(primitive: Smooth) -> None:
    """Of each operand by itself, and of each after the slope in each."""
    name, params = primitive.name, _SPECIAL_PARAMS.get(primitive.name, {})
    arity = _ARITIES.get(name, len(primitive.partials))
    points = _CORNERS if arity < 3 else _CORNERS[2:6] + _CORNERS[7:8] + [inf]
    if not primitive.bounded and name not in _BOUNDED_INSIDE:
        points = [*points, float("nan")]
    xs = [
        g.ravel() for g in np.meshgrid(*[points[-4:] if arity > 3 else points] * arity)
    ]
    arrays = [from_numpy(x) for x in xs]
    zero, one = from_numpy(np.zeros(xs[0].shape)), from_numpy(np.ones(xs[0].shape))

    def moved(function: Any, i: int, tangent: Any) -> Any:
        def along(x: Any, rest: Any) -> Any:
            return function([*rest[:i], x, *rest[i + 1 :]])

        return lambda xs: fnx.jvp(lambda x: along(x, xs), (xs[i],), (tangent,))[1]

    def value(xs: Any) -> Any:
        return primitive(*xs, **params)

    found = 0
    for i in range(arity):
        for function in (value, *[moved(value, j, one) for j in range(arity)]):
            try:
                tangent = np.asarray(moved(function, i, zero)(arrays))
            except fnx.errors.ArgumentError as error:
                assert "none of this order" in str(error)
                continue
            found += 1
            wrong = np.flatnonzero(tangent != 0)
            assert not wrong.size, [[float(x[k]) for x in xs] for k in wrong[:5]]
    assert found or name in ("igamma_grad_aa", "igamma_ratio_aa")


def test_the_branch_not_taken_is_silent() -> None:
    def safe(x: Any) -> Any:
        return ops.select(ops.gt(x, 0), ops.log(x), 0.0)

    assert slopes(safe, -1.0, 0.0, 2.0) == [0.0, 0.0, 0.5]
    assert slopes(safe, -1.0, 0.0, 2.0, order=2) == [0.0, 0.0, -0.25]


# ---------------------------------------------------------------- kinks


def test_kinks() -> None:
    zero = array(0.0, -0.0)
    assert slopes(ops.abs, 0.0, -0.0, 2.0, -2.0) == [0.0, 0.0, 1.0, -1.0]
    assert slopes(ops.sign, 0.0, 1.0) == [0.0, 0.0]
    assert slopes(lambda x: ops.max(x, 0.0), -1.0, 0.0, 1.0) == [0.0, 0.5, 1.0]
    assert slopes(lambda x: ops.min(x, 0.0), -1.0, 0.0, 1.0) == [1.0, 0.5, 0.0]
    shares = fnx.vjp(ops.max, zero, zero)[1](array(1.0, 1.0))
    assert [np.asarray(x).tolist() for x in shares] == [[0.5, 0.5], [0.5, 0.5]]
    points = (-1.5, -1.0, 0.0, 1.0, 1.5)
    clamped = slopes(lambda x: ops.clamp(-1.0, x, 1.0), *points)
    assert clamped == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_the_derivative_of_a_complex_modulus_at_zero_is_zero() -> None:
    z, t = array(0.0, 3 + 4j, dtype=complex), array(1 + 1j, 1j, dtype=complex)
    tangent = np.asarray(fnx.jvp(ops.abs, (z,), (t,))[1])
    np.testing.assert_allclose(tangent, [0.0, 0.8])
    (gradient,) = fnx.vjp(ops.abs, z)[1](array(1.0, 1.0))
    np.testing.assert_allclose(np.asarray(gradient), [0.0, 0.6 - 0.8j])


# ---------------------------------------------------------------- powers


def test_pow_at_zero() -> None:
    zero = array(0.0, 0.0, 0.0, 0.0, 0.0)
    p = array(2.0, 1.0, 0.5, 0.0, -1.0)
    assert np.asarray(ops.pow(zero, p)).tolist() == [0.0, 0.0, 0.0, 1.0, inf]
    by_base, by_exponent = fnx.vjp(ops.pow, zero, p)[1](array(*[1.0] * 5))
    assert np.asarray(by_base).tolist() == [0.0, 1.0, inf, 0.0, -inf]
    assert np.asarray(by_exponent).tolist() == [0.0] * 5
    for exponent, slope_at_zero in ((2.0, 0.0), (1.0, 1.0), (0.5, inf), (0.0, 0.0)):
        assert slopes(lambda x, p=exponent: ops.pow(x, p), 0.0) == [slope_at_zero]


@pytest.mark.parametrize(
    ("order", "expected"), [(1, [0.0, 12.0]), (2, [0.0, 12.0]), (3, [6.0, 6.0])]
)
def test_integer_powers_have_polynomial_derivatives(
    order: int, expected: list[float]
) -> None:
    assert slopes(lambda x: ops.integer_pow(x, y=3), 0.0, 2.0, order=order) == expected
    assert slopes(lambda x: ops.integer_pow(x, y=3), 1.0, order=4) == [0.0]


def test_negative_powers_reach_the_subnormal_numbers() -> None:
    x = array(1e20, 1e-20, dtype=np.float32)
    got = np.asarray(ops.integer_pow(x, y=-2))
    np.testing.assert_allclose(got, [1e-40, inf], rtol=1e-4)


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integer_division(dtype: Any) -> None:
    low = np.iinfo(dtype).min
    x, y = array(7, -7, 7, 5, low, dtype=dtype), array(2, 2, -2, 0, -1, dtype=dtype)
    assert np.asarray(ops.div(x, y)).tolist() == [3, -3, -3, 0, low]
    assert np.asarray(ops.rem(x, y)).tolist() == [1, -1, 1, 0, 0]


def test_integers_wrap() -> None:
    low = array(-128, dtype=np.int8)
    assert np.asarray(ops.abs(low)).tolist() == [-128]
    assert np.asarray(ops.integer_pow(array(16, dtype=np.uint8), y=2)).tolist() == [0]


def test_shifts_by_the_width_or_more() -> None:
    x, by = array(-1, -1, 64, dtype=np.int8), array(8, 100, -1, dtype=np.int8)
    assert np.asarray(shift_left(x, by)).tolist() == [0, 0, 0]
    assert np.asarray(shift_right_logical(x, by)).tolist() == [0, 0, 0]
    assert np.asarray(shift_right_arithmetic(x, by)).tolist() == [-1, -1, 0]


@pytest.mark.parametrize("target", dtypes.SUPPORTED, ids=dtypes.short)
@pytest.mark.parametrize("source", [d for d in dtypes.SUPPORTED if kind(d) == "f"])
def test_floats_saturate_as_integers(source: Any, target: Any) -> None:
    x = from_numpy(np.array([nan, inf, -inf, 2.75, -0.5], source))
    got = np.asarray(ops.convert(x, dtype=target)).tolist()
    if kind(target) in "iu":
        info = np.iinfo(target)
        assert got == [0, info.max, info.min, 2, 0]
    elif kind(target) == "b":
        assert got == [True] * 5


def test_the_real_part_is_left_of_a_complex_number() -> None:
    z = array(1.5 + 2j, -300 + 1j, 1j, dtype=complex)
    assert np.asarray(ops.convert(z, dtype=np.float32)).tolist() == [1.5, -300.0, 0.0]
    assert np.asarray(ops.convert(z, dtype=np.int8)).tolist() == [1, -128, 0]
    assert np.asarray(ops.convert(z, dtype=bool)).tolist() == [True, True, True]


# ---------------------------------------------------------------- values


def test_rounding_is_to_even_and_the_sign_of_zero_is_numpys() -> None:
    x = array(0.5, 1.5, -0.5, 2.5, -0.2)
    assert str(np.asarray(ops.round(x)).tolist()) == "[0.0, 2.0, -0.0, 2.0, -0.0]"
    assert str(np.asarray(ops.sign(array(-0.0))).tolist()) == "[0.0]"
    assert str(np.asarray(ops.erf_inv(array(-0.0))).tolist()) == "[-0.0]"


def test_nan_wins_over_numbers() -> None:
    x, y = array(nan, 1.0), array(1.0, nan)
    for function in (ops.max, ops.min):
        assert np.isnan(np.asarray(function(x, y))).all()


def test_neighbours_of_16_bit_numbers_are_16_bit_numbers() -> None:
    one, two = (
        array(1.0, dtype=ml_dtypes.bfloat16),
        array(2.0, dtype=ml_dtypes.bfloat16),
    )
    assert np.asarray(nextafter(one, two)).astype(float).tolist() == [1 + 2**-7]


def test_booleans_are_ordered() -> None:
    x, y = array(False, False, True, dtype=bool), array(False, True, False, dtype=bool)
    assert np.asarray(ops.lt(x, y)).tolist() == [False, True, False]
    assert np.asarray(ops.max(x, y)).tolist() == [False, True, True]
    assert np.asarray(ops.min(x, y)).tolist() == [False, False, False]


def test_a_float_scalar_beside_integers_is_refused() -> None:
    with pytest.raises(fnx.errors.DTypeError, match=r"i32\[2\].*f32\[\]\*"):
        ops.max(array(1, 2, dtype=np.int32), 1.5)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "uint64"])
def test_integer_powers_wrap(dtype):
    """Python's integers do not, and are cut to the bits afterwards."""
    info = np.iinfo(dtype)
    signed = [-1] * (info.min < 0)
    bases = [0, 1, 2, 3, 10, info.max, info.min, *signed]
    powers = [0, 1, 5, 63, 64, 65, 100, info.max, *signed]

    def power(a, b):
        if b < 0:
            return a if abs(a) == 1 else 0
        return pow(a, b, 2**64)

    wanted = np.array([[power(a, b) % 2**64 for b in powers] for a in bases], "uint64")
    x, y = np.meshgrid(np.array(bases, dtype), np.array(powers, dtype), indexing="ij")
    power_of = fnx.numpy.power
    for f in (power_of, fnx.jit(power_of)):
        np.testing.assert_array_equal(f(x, y), wanted.astype(dtype))
