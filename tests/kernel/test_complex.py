"""Complex scalars in kernels: accuracy against mpmath, special values against NumPy.

As in `test_math.py`, `Eager` stands in for the kernel builder; the compiled functions
must then give the same bits.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.errors import InternalError
from fnx.kernel.build import KernelBuilder
from fnx.kernel.complex import FUNCTIONS
from fnx.kernel.math_complex import Pair
from fnx.kernel.math_value import Value
from tests.kernel.test_math import Eager

FORMATS = [dtypes.complex64, dtypes.complex128]
NUMPY = {
    "div": np.divide,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "pow": np.power,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


def evaluate(name, *args):
    k = Eager()
    pairs = [Pair(Value(k, z.real.copy()), Value(k, z.imag.copy())) for z in args]
    result = FUNCTIONS[name](*pairs)
    if isinstance(result, Value):
        return result.expr
    z = np.empty(args[0].shape, args[0].dtype)
    z.real, z.imag = result.re.expr, result.im.expr
    return z


# ---------------------------------------------------------------- accuracy

# The error in units of the last place of the modulus: of the larger part's.
BOUNDS = {
    "mul": 2.5,
    "div": 3,
    "abs": 1.2,
    "sign": 3,
    "sqrt": 2,
    "rsqrt": 4,
    "exp": 3,
    "exp2": 3,
    "expm1": 4,
    "log": 2,
    "log1p": 2,
    "logistic": 6,
    "sin": 4,
    "cos": 4,
    "tan": 5,
    "sinh": 4,
    "cosh": 4,
    "tanh": 5,
    "asin": 4,
    "acos": 4,
    "atan": 4,
    "asinh": 4,
    "acosh": 4,
    "atanh": 4,
}
PRECISE = {
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "abs": abs,
    "sign": lambda z: z / abs(z),
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "exp2": lambda z: mpmath.exp(z * mpmath.log(2)),
    "expm1": lambda z: mpmath.exp(z) - 1,
    "log1p": lambda z: mpmath.log(1 + z),
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
}


def samples(dtype, seed):
    """Numbers of every size, near 1, near i and near the unit circle."""
    real = dtypes.real_dtype(dtype)
    rng, n = np.random.default_rng(seed), 40
    angle = rng.uniform(-np.pi, np.pi, n)
    top = np.log(float(np.finfo(real).max))
    sizes = [rng.uniform(-top, 0.98 * top, n), rng.uniform(-8, 4, n)]
    near = np.exp(rng.uniform(-30, -1, n)) * np.exp(1j * rng.uniform(-4, 4, n))
    drawn = [np.exp(size + 1j * angle) for size in sizes]
    drawn += [1 + near, 1j - near, -1 + near, np.exp(1j * angle) * (1 + near.real)]
    drawn += [rng.uniform(-9, 9, n) + 1j * rng.uniform(-9, 9, n), near]
    drawn += [np.exp(rng.uniform(-30, 20, n)) + 1j * np.exp(rng.uniform(-60, 9, n))]
    return np.concatenate(drawn).astype(dtype)


def precise(name, args):
    """The function with so many digits that 40 are left where it cancels."""
    function = PRECISE.get(name) or getattr(mpmath, name)
    with mpmath.workdps(700 if args[0].dtype == dtypes.complex128 else 140):
        numbers = [mpmath.mpmathify(complex(z)) for z in args]
        return function(*numbers)


@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
@pytest.mark.parametrize("name", list(BOUNDS))
def test_error_in_ulps_of_the_modulus(name, dtype):
    args = [samples(dtype, 0)]
    if name in ("mul", "div"):
        args.append(np.random.default_rng(2).permutation(samples(dtype, 1)))
    if name in ("sin", "cos", "tan", "exp", "exp2", "logistic", "sinh", "cosh", "tanh"):
        args = [z[np.maximum(np.abs(z.real), np.abs(z.imag)) < 1e5] for z in args]
    with np.errstate(all="ignore"):
        got = evaluate(name, *args)
    info = np.finfo(dtypes.real_dtype(dtype))
    for found, *operands in zip(got.tolist(), *args, strict=True):
        want = precise(name, operands)
        size = max(abs(mpmath.re(want)), abs(mpmath.im(want)))
        if size >= float(info.max):
            assert not np.isfinite(found), operands
            continue
        with mpmath.workdps(40):
            exponent = int(mpmath.floor(mpmath.log(size, 2))) if size else info.minexp
            ulp = mpmath.ldexp(1, max(exponent, info.minexp) - info.nmant)
            error = abs(mpmath.mpmathify(found) - want) / ulp
        assert error <= BOUNDS[name], (operands, found, want)


@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
def test_powers(dtype):
    x, p = samples(dtype, 3), np.random.default_rng(4).uniform(-3, 3, 720)
    p = (p[:360] + 1j * p[360:]).astype(dtype)
    x = x[(np.abs(x) > 1e-3) & (np.abs(x) < 1e3)]
    p = p[: x.size]
    error = abs(evaluate("pow", x, p) - np.power(x.astype("c16"), p.astype("c16")))
    limit = 40 * np.finfo(dtype).eps * np.abs(np.power(x.astype("c16"), p))
    assert (error <= limit).all()


# ---------------------------------------------------------------- special values


def specials(dtype):
    """Every pair of zeros, ones, infinities and NaN."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan]
    z = np.empty((len(values),) * 2, dtype)
    z.real, z.imag = np.array(values)[:, None], np.array(values)
    return z.ravel()


def classes(x):
    """NaN, the infinities, the zeros and the signs of numbers, told apart."""
    signs = np.where(np.signbit(x), -1, 1)
    return np.select(
        [np.isnan(x), np.isinf(x), x == 0], [0, 3 * signs, signs], 2 * signs
    )


# NumPy's own formulas, where C99 has none: NaN where a number or an infinity is known.
_NAIVE = ("expm1", "log1p", "exp2", "pow")


@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
@pytest.mark.parametrize("name", list(NUMPY))
def test_special_values_are_numpys(name, dtype):
    z = specials(dtype)
    args = (z,)
    if name in ("div", "pow"):
        args = (np.repeat(z, z.size), np.tile(z, z.size))
    with np.errstate(all="ignore"):
        found, wanted = evaluate(name, *args), NUMPY[name](*args)
    if name == "abs":
        np.testing.assert_array_equal(found == np.inf, wanted == np.inf)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        return
    for one, other in ((found.real, wanted.real), (found.imag, wanted.imag)):
        known = ~np.isnan(wanted) if name in _NAIVE else np.full(z.shape, True)
        if name in ("div", "pow"):
            known = np.isfinite(args[0]) & np.isfinite(args[1]) & ~np.isnan(wanted)
        if name == "pow":  # by repeated products, where the exponent is an integer
            known &= (args[0] == 0) | (args[1] == 0)
        got, want = classes(one)[known], classes(other)[known]
        # C99 leaves open which sign there is beside a NaN, and of an infinite angle.
        lost = np.isnan(found) | np.isinf(found.real)
        if len(args) == 1:
            lost |= ~np.isfinite(z.imag)
        lost = lost[known]
        np.testing.assert_array_equal(got[~lost], want[~lost])
        np.testing.assert_array_equal(abs(got[lost]), abs(want[lost]))


def test_extreme_quotients():
    tiny, big = 5e-324, 1.7e308
    x = np.array([tiny + tiny * 1j, big + big * 1j, 1 + 1j, big * 1j, 2 * tiny])
    y = np.array([tiny + tiny * 1j, big + big * 1j, big + big * 1j, big, tiny * 1j])
    wanted = [1, 1, 1 / big, 1j, -2j]
    np.testing.assert_allclose(evaluate("div", x, y), wanted, 1e-15)


def test_the_logarithm_near_the_unit_circle():
    """The sum of squares is 1 to the last bit, the logarithm is not 0."""
    z = np.array([0.6 + 0.8j, 0.28 + 0.96j, 1 + 1e-9j, 0.8 - 0.6j])
    for found, each in zip(evaluate("log", z), z, strict=True):
        np.testing.assert_allclose(
            found.real, float(precise("log", [each]).real), 1e-15
        )


# ---------------------------------------------------------------- compiled


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_compiled_functions_give_the_same_bits(name):
    arity = 2 if name in ("add", "sub", "mul", "div", "eq", "ne", "pow") else 1
    k = KernelBuilder()
    draws = [np.resize(samples(dtypes.complex64, n)[40:], 171) for n in range(arity)]
    draws = [np.concatenate([specials(dtypes.complex64), z]) for z in draws]
    (i,) = k.domain((draws[0].size,))
    buffers = [k.buffer(f"x{n}", z.dtype, z.size, "in") for n, z in enumerate(draws)]
    value = k.op(name, *[k.load(buffer, i) for buffer in buffers])
    out = np.empty(draws[0].size, value.dtype)
    k.store(k.buffer("out", value.dtype, out.size, "out"), i, value)
    module = emit.Module()
    kernel = module.add(k.finish(name))
    arrays = [*draws, out]
    module.define(emit.exported("main", kernel, len(arrays)))
    library = jit.load(jit.assemble(module.text()), ["main"])
    library.function("main", len(arrays))(*[array.ctypes.data for array in arrays])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, evaluate(name, *draws))


def test_what_has_no_complex_meaning_is_refused():
    k = KernelBuilder()
    z = k.constant(1 + 2j, dtypes.complex64)
    with pytest.raises(
        InternalError, match=r"complex scalar operation max\(c64, c64\)"
    ):
        k.op("max", z, z)
