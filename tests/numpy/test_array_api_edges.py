"""The array API standard at its edges: errors, wide integers, infinite complex numbers.

https://data-apis.org/array-api/2024.12/ is what the tests are written from; complex
values are compared with those of Python's cmath, whose special cases are C99's.
"""

from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest

import fnx
import fnx.numpy as xp

# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("axis", [3, -4, 7])
def test_expand_dims_beyond_the_axes_is_an_index_error(axis):
    with pytest.raises(IndexError, match=f"expand_dims: axis {axis}"):
        xp.expand_dims(xp.ones((2, 3)), axis=axis)


def test_squeeze_of_a_long_axis_is_a_value_error():
    for axis in (0, (1, 2)):
        with pytest.raises(ValueError, match="not 1"):
            xp.squeeze(xp.ones((2, 1, 0)), axis)


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (2, 3)])
def test_vecdot_does_not_broadcast_its_axis(sizes):
    x, y = [xp.ones((4, size)) for size in sizes]
    with pytest.raises(fnx.errors.ShapeError, match="vecdot: sizes"):
        xp.vecdot(x, y)


def test_asarray_without_a_copy_keeps_the_dtype():
    x = xp.ones(2, dtype=xp.float32)
    assert xp.asarray(x, dtype=xp.float32, copy=False) is x
    for dtype in (xp.float64, xp.int32):
        with pytest.raises(ValueError, match="copy=False"):
            xp.asarray(x, dtype=dtype, copy=False)
        assert xp.asarray(x, dtype=dtype).dtype == dtype


# ---------------------------------------------------------------- limits and ranges


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_limits_are_numbers_of_python(name):
    info = xp.finfo(name)
    for field in ("eps", "max", "min", "smallest_normal", "tiny", "resolution"):
        assert type(getattr(info, field)) is float
    for field in ("bits", "nmant", "maxexp"):
        assert type(getattr(info, field)) is int
    x = xp.asarray(info.max, dtype=name)
    assert x.item() == info.max and xp.isinf(x * 2)
    assert xp.asarray(1 + info.eps, dtype=name) > 1


@pytest.mark.parametrize("step", [1, 2, -3])
def test_arange_near_the_ends_of_the_integers(step):
    for dtype in ("int64", "uint64"):
        info = xp.iinfo(dtype)
        for low, high in ((info.max - 9, info.max), (info.min, info.min + 9)):
            bounds = (low, high) if step > 0 else (high, low)
            found = xp.arange(*bounds, step, dtype=dtype)
            assert found.dtype == dtype
            assert [int(x) for x in found] == list(range(*bounds, step))


def test_grids_are_as_exact_as_their_dtype():
    found = xp.linspace(0.1, 0.7, 6, dtype=xp.float64)
    assert found[0] == 0.1 and found[-1] == 0.7
    np.testing.assert_allclose(found, np.linspace(0.1, 0.7, 6), rtol=1e-15)
    found = xp.linspace(0.1, 0.7j, 3, dtype=xp.complex128)
    np.testing.assert_allclose(found, np.linspace(0.1, 0.7j, 3), rtol=1e-15)
    last = 2**24 + 1
    assert xp.linspace(0, last, 2, dtype=xp.int32).tolist() == [0, last]
    start = np.array([0.1, 0.2], np.float32)
    found = xp.linspace(start, 1.7, 4, dtype=xp.float64)
    wanted = np.linspace(start.astype(float), 1.7, 4)
    np.testing.assert_allclose(found, wanted, rtol=1e-15)
    for name in ("logspace", "geomspace"):
        found = getattr(xp, name)(0.1, 0.7, 5, dtype=xp.float64)
        wanted = getattr(np, name)(0.1, 0.7, 5)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("k", [2**31 - 1, 2**31, 2**70])
def test_diagonals_far_out(k):
    x = np.arange(6).reshape(2, 3)
    for far in (k, -k):
        np.testing.assert_array_equal(xp.eye(2, 3, k=far), np.zeros((2, 3)))
        lower, upper = xp.tril(xp.asarray(x), k=far), xp.triu(xp.asarray(x), k=far)
        np.testing.assert_array_equal(lower, x if far > 0 else 0 * x)
        np.testing.assert_array_equal(upper, x if far < 0 else 0 * x)


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize("bits", [32, 64])
def test_places_have_the_default_int(bits):
    x = np.array([1.0, 2.0])
    with fnx.default_dtypes(bits):
        wanted = xp.__array_namespace_info__().default_dtypes()["indexing"]
        assert wanted == f"int{bits}"
        for method in ("scan", "compare_all"):
            found = xp.searchsorted(x, np.array([1.5, 2.0]), method=method)
            assert found.dtype == wanted and found.tolist() == [1, 1]
            jitted = fnx.jit(lambda v, m=method: xp.searchsorted(x, v, method=m))
            assert jitted(np.array([1.5])).dtype == wanted
        for function in (xp.argsort, xp.argmax, xp.count_nonzero, xp.nonzero):
            found = function(x)
            assert (found[0] if isinstance(found, tuple) else found).dtype == wanted
        assert xp.digitize(x, x).dtype == wanted


def test_no_differences_leave_the_array_alone():
    x = np.array([[3, 1], [4, 1]])
    found = xp.diff(xp.asarray(x), n=0, prepend=xp.zeros((2, 1)), append=1)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("jitted", [False, True])
def test_variance_of_too_few_elements_is_nan(jitted):
    x = xp.asarray([1.0, 2.0, 4.0])
    for function in (xp.var, xp.std):
        for correction, wanted in ((2, False), (2.5, False), (3, True), (5, True)):

            def of(x, function=function, correction=correction):
                return function(x, correction=correction)

            assert np.isnan((fnx.jit(of) if jitted else of)(x)) == wanted
    kept = np.array([[True, False, True], [True, False, False]])
    found = xp.var(xp.stack([x, x]), 1, ddof=1, where=kept)
    np.testing.assert_allclose(found, [4.5, np.nan])


# ---------------------------------------------------------------- complex numbers

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 750.0, math.inf, -math.inf, math.nan]
NUMBERS = np.array([complex(*pair) for pair in itertools.product(PARTS, PARTS)])


def _same(found, wanted, rtol):
    """Whether parts are equal, infinite and zero ones with their signs."""
    if math.isnan(wanted):
        return math.isnan(found)
    sign = math.copysign(1, found) == math.copysign(1, wanted)
    return sign and math.isclose(found, wanted, rel_tol=rtol)


def _log(z):
    """cmath.log, which raises for 0."""
    return cmath.log(z) if z else complex(-math.inf, cmath.phase(z))


def _log1p(z):
    return _log(complex(1 + z.real, z.imag))


def _over(z, number):
    return complex(z.real / number, z.imag / number)


LOGARITHMS = {
    "log": _log,
    "log2": lambda z: _over(_log(z), math.log(2)),
    "log10": lambda z: _over(_log(z), math.log(10)),
    "log1p": _log1p,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", LOGARITHMS)
def test_complex_logarithms(name, dtype, jitted):
    function = getattr(xp, name)
    z = NUMBERS
    if name == "log1p":  # whose real part 0 has the sign of z, or is +0
        z = z[z != 0]
    found = (fnx.jit(function) if jitted else function)(xp.asarray(z.astype(dtype)))
    assert found.dtype == dtype
    rtol = 1e-6 if dtype == "complex64" else 1e-14
    for number, got in zip(z.tolist(), np.asarray(found).tolist(), strict=True):
        want = LOGARITHMS[name](number)
        assert _same(got.real, want.real, rtol), (number, got, want)
        assert _same(got.imag, want.imag, rtol), (number, got, want)


# a, b and the parts of expm1(a + bj); None where the sign is left open.
EXPM1 = [
    (0.0, 0.0, 0.0, 0.0),
    (1.0, math.inf, math.nan, math.nan),
    (1.0, math.nan, math.nan, math.nan),
    (math.inf, 0.0, math.inf, 0.0),
    (math.inf, 2.0, -math.inf, math.inf),
    (-math.inf, 2.0, -1.0, 0.0),
    (-math.inf, math.inf, -1.0, None),
    (-math.inf, math.nan, -1.0, None),
    (math.inf, math.inf, None, math.nan),
    (math.inf, math.nan, None, math.nan),
    (math.nan, 0.0, math.nan, 0.0),
    (math.nan, 1.0, math.nan, math.nan),
    (math.nan, math.nan, math.nan, math.nan),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_expm1(dtype, jitted):
    function = fnx.jit(xp.expm1) if jitted else xp.expm1
    for a, b, real, imag in EXPM1:
        for sign in (1.0, -1.0):  # of the conjugate it is the conjugate
            z = xp.asarray(complex(a, sign * b), dtype=dtype)
            got = function(z).item()
            if real is None:
                assert math.isinf(got.real), (a, b, got)
            else:
                assert _same(got.real, real, 1e-6), (a, b, got)
            if imag is None:
                assert got.imag == 0, (a, b, got)
            else:
                assert _same(got.imag, sign * imag, 1e-6), (a, b, got)


def test_integers_between_two_are_those_of_numpy(rng):
    """Also where rounding could leave out the integer that is reached exactly."""
    for _ in range(100):
        (low, high), num = rng.integers(-50, 50, 2), int(rng.integers(0, 30))
        for end in (True, False):
            want = np.linspace(low, high, num, endpoint=end, dtype="int32")
            got = xp.linspace(int(low), int(high), num, endpoint=end, dtype="int32")
            np.testing.assert_array_equal(got, want)
