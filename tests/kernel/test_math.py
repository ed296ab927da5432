"""The math functions against higher precision, over the whole range of both formats.

`Eager` stands in for the kernel builder: it evaluates each operation at once with the
scalar table's NumPy meaning. So accuracy is tested without a compiler, and the compiled
functions must then give the same bits.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.kernel import math
from fnx.kernel.build import KernelBuilder
from fnx.kernel.scalar import TABLE

SINGLE, DOUBLE = dtypes.float32, dtypes.float64
FORMATS = [SINGLE, DOUBLE]
EXPANDED = [name for name, row in TABLE.items() if row.llvm is None]

needs_longdouble = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="needs an extended long double"
)


class Eager:
    """The part of `KernelBuilder` that math functions use, on arrays."""

    def constant(self, value, dtype):
        return np.array(value, dtype)

    def bitcast(self, x, dtype):
        return np.asarray(x).view(dtype)

    def select(self, condition, x, y):
        return np.where(condition, x, y)

    def op(self, name, *args):
        row = TABLE[name]
        if row.llvm is None:
            return getattr(math, name)(self, *args)
        assert len({arg.dtype for arg in args}) == 1, name
        return row.numpy(*args)


def evaluate(name, *args):
    return getattr(math, name)(Eager(), *args)


# ---------------------------------------------------------------- references


def reference(name, *args):
    """The function in a wider type: float64 for float32, else longdouble."""
    wide = np.float64 if args[0].dtype == SINGLE else np.longdouble
    with np.errstate(all="ignore"):
        args = [arg.astype(wide) for arg in args]
        match name:
            case "logistic":
                return 1 / (1 + np.exp(-args[0]))
            case "rsqrt":
                return 1 / np.sqrt(args[0])
        return TABLE[name].numpy(*args)


PRECISE = {
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erf_inv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "digamma": mpmath.digamma,
}


def precise(name, x):
    """The function by mpmath, as longdouble."""
    with mpmath.workdps(40):
        values = [PRECISE[name](mpmath.mpf(float(v))) for v in x]
        highs = [float(v) for v in values]
        rests = [float(v - h) for v, h in zip(values, highs, strict=True)]
    return np.array(highs, np.longdouble) + np.array(rests)


def ulps(got, want):
    """|got - want| in units of the last place of `want`, in `got`'s format."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        # Beyond half an ulp over the largest number, infinity is the right answer.
        overflow = np.abs(want) >= np.ldexp(want.dtype.type(2), info.maxexp - 1)
        _, exponent = np.frexp(np.where(np.isfinite(want), want, 1))
        exponent = np.maximum(exponent - 1, info.minexp) - info.nmant
        error = np.abs(got - want) / np.ldexp(want.dtype.type(1), exponent)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        same |= overflow & np.isinf(got) & (np.sign(got) == np.sign(want))
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error))


# ---------------------------------------------------------------- samples


def specials(dtype):
    info = np.finfo(dtype)
    sizes = [0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 7, 8, 27, 100, 1000, 1e10, np.inf]
    sizes += [info.tiny, info.smallest_subnormal, info.max]
    sizes = np.array(sizes, dtype)
    near = [np.nextafter(sizes[1:], dtype.type(0)), np.nextafter(sizes[:-2], info.max)]
    sizes = np.concatenate([sizes, *near])
    return np.concatenate([sizes, -sizes, np.array([np.nan], dtype)])


def samples(dtype, count, seed=0):
    """Specials, every exponent, and the ranges where the functions vary."""
    generator = np.random.default_rng(seed)
    top = 2 ** (8 * dtype.itemsize) - 1
    bits = generator.integers(0, top, count, f"u{dtype.itemsize}", endpoint=True)
    uniform = [generator.uniform(-s, s, count // 2) for s in (1, 3, 20, 120, 800)]
    logs = np.exp(generator.uniform(-30, 30, count)) * generator.choice([-1, 1], count)
    ones = 1 + generator.standard_normal(count) * np.exp(
        generator.uniform(-16, 0, count)
    )
    drawn = np.concatenate([*uniform, logs, ones]).astype(dtype)
    return np.concatenate([specials(dtype), bits.view(dtype), drawn])


def argument_pairs(dtype, count):
    special = specials(dtype)
    x, y = samples(dtype, count, 1), samples(dtype, count, 2)
    generator = np.random.default_rng(3)
    generator.shuffle(x)
    size = generator.uniform(-1, 1, count) * np.log(float(np.finfo(dtype).max))
    power = generator.standard_normal(count) * np.exp(generator.uniform(-3, 5, count))
    with np.errstate(all="ignore"):
        base = np.exp(size / power).astype(dtype)  # x^y anywhere in the range
    xs = [np.repeat(special, special.size), x, base]
    ys = [np.tile(special, special.size), y, power.astype(dtype)]
    return np.concatenate(xs), np.concatenate(ys)


# ---------------------------------------------------------------- accuracy

BOUNDS = {
    **dict.fromkeys(["log2", "log10", "cbrt"], 0.51),
    **dict.fromkeys(["exp", "exp2", "log", "pow"], 1.1),
    **dict.fromkeys(["expm1", "asin", "acos"], 1.3),
    **dict.fromkeys(["log1p", "logistic", "rsqrt", "cosh", "atanh"], 1.6),
    **dict.fromkeys(["sin", "cos", "tan", "tanh", "atan", "atan2", "asinh"], 1.75),
    **dict.fromkeys(["sinh", "acosh"], 1.9),
}


def test_every_function_of_the_table_has_a_bound():
    assert set(BOUNDS) | set(PRECISE) == set(EXPANDED)
    assert all(callable(getattr(math, name)) for name in EXPANDED)


@needs_longdouble
@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
@pytest.mark.parametrize("name", list(BOUNDS))
def test_error_in_ulps_over_the_whole_range(name, dtype):
    count = 2000
    if TABLE[name].arity == 2:
        args = argument_pairs(dtype, count)
    else:
        args = (samples(dtype, count),)
    got, want = evaluate(name, *args), reference(name, *args)
    assert got.dtype == dtype
    error = ulps(got, want)
    worst = np.argmax(error)
    case = [arg[worst] for arg in args]
    assert error[worst] <= BOUNDS[name], (case, got[worst], want[worst])


@needs_longdouble
@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
@pytest.mark.parametrize("name", list(PRECISE))
def test_error_of_special_functions_in_ulps(name, dtype):
    generator = np.random.default_rng(0)
    n = 120
    limit = 27.2 if dtype == DOUBLE else 10
    low = 36 if dtype == DOUBLE else 16
    x = {
        "erf": [generator.uniform(-6, 6, n), np.exp(generator.uniform(-80, 0, n))],
        "erfc": [generator.uniform(-6, limit, n), generator.uniform(-1, 1, n)],
        "erf_inv": [
            generator.uniform(-1, 1, n),
            1 - np.exp(generator.uniform(-low, 0, n)),
            np.exp(generator.uniform(-80, 0, n)),
        ],
        "lgamma": [generator.uniform(0, 20, n), np.exp(generator.uniform(-40, 40, n))],
        "digamma": [
            generator.uniform(0, 20, n),
            np.exp(generator.uniform(-40, 40, n)),
            1.4616 + generator.uniform(-0.01, 0.01, n),
        ],
    }[name]
    x = np.concatenate(x).astype(dtype)
    if name == "erf_inv":
        x = x[np.abs(x) < 1]
    error = ulps(evaluate(name, x), precise(name, x))
    bound = {"erf": 1.5, "erfc": 2.1, "erf_inv": 3, "lgamma": 6, "digamma": 8}[name]
    assert error.max() <= bound, x[np.argmax(error)]


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions_of_negative_numbers(name):
    x = np.random.default_rng(0).uniform(-20, 0, 300)
    want = precise(name, x)
    np.testing.assert_allclose(evaluate(name, x), want.astype(float), 1e-11, 1e-13)


# ---------------------------------------------------------------- special values


@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
@pytest.mark.parametrize("name", sorted(set(EXPANDED) - {"lgamma", "digamma"}))
def test_special_values_are_numpys(name, dtype):
    x = specials(dtype)
    args = (x,)
    if TABLE[name].arity == 2:
        args = (np.repeat(x, x.size), np.tile(x, x.size))
    got, want = evaluate(name, *args), TABLE[name].numpy(*args)
    # SciPy has no subnormal erfc and loses the sign of erfinv(-0.0).
    if name in ("erfc", "erf_inv"):
        keep = ~((x == 0) | ((x > 26) & (x < 28)))
        got, want = got[keep], want[keep]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    number = ~np.isnan(want)
    signs = [np.signbit(got[number]), np.signbit(want[number])]
    np.testing.assert_array_equal(*signs)
    np.testing.assert_array_equal(got == 0, want == 0)


@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
def test_special_values_of_the_gamma_functions(dtype):
    inf, nan = np.inf, np.nan
    x = np.array([inf, -inf, nan, 0.0, -0.0, -1, -7, 1e-42, -1e-42], dtype)
    lgamma, digamma = evaluate("lgamma", x), evaluate("digamma", x)
    np.testing.assert_array_equal(lgamma[:7], np.array([inf, inf, nan, *[inf] * 4]))
    np.testing.assert_array_equal(
        digamma[:7], np.array([inf, nan, nan, -inf, inf, nan, nan])
    )
    np.testing.assert_allclose(lgamma[7:], -np.log(np.abs(x[7:])), 1e-6)
    tiny = [-inf, inf] if dtype == SINGLE else [-1e42, 1e42]
    np.testing.assert_allclose(digamma[7:], tiny, 1e-6)


@pytest.mark.parametrize("dtype", FORMATS, ids=dtypes.short)
def test_exact_cases(dtype):
    def check(name, args, want):
        args = [np.array(arg, dtype) for arg in args]
        got = evaluate(name, *args)
        np.testing.assert_array_equal(got, np.array(want, dtype), name)

    integers = np.arange(-120, 121)
    check("exp", [[0.0, -0.0]], [1, 1])
    check("exp2", [integers], np.exp2(integers.astype(np.float64)))
    check("log2", [np.exp2(integers.astype(np.float64))], integers)
    check("log10", [[1, 10, 100, 1000, 1e10]], [0, 1, 2, 3, 10])
    check("cbrt", [[-8, 27, -0.125, 1e3, 2.0**-120]], [-2, 3, -0.5, 10, 2.0**-40])
    check("pow", [[3, -2, -2, 7, 0.25], [4, 3, -2, 0, 0.5]], [81, -8, 0.25, 1, 0.5])
    check("pow", [[1, np.nan, -1, 0], [np.nan, 0, np.inf, -1]], [1, 1, 1, np.inf])
    check("logistic", [[0, 200]], [0.5, 1])
    check("erf", [[10, -10]], [1, -1])
    check("lgamma", [[1, 2]], [0, 0])
    check("atan2", [[0, 0, 1], [1, -1, 0]], [0, np.pi, np.pi / 2])
    check("rsqrt", [[4, 0.25]], [0.5, 2])


def test_huge_angles():
    # Kahan's and others' hard cases: the angle nearest to a multiple of pi/2.
    x = np.array([6381956970095103.0 * 2.0**797, 1e22, 1e300, -(2.0**1000)])
    with mpmath.workdps(400):
        for name in ("sin", "cos", "tan"):
            want = [float(getattr(mpmath, name)(mpmath.mpf(v))) for v in x.tolist()]
            np.testing.assert_array_max_ulp(evaluate(name, x), np.array(want), 1)


# ---------------------------------------------------------------- compiled


def compiled(name, x, y):
    """The function of float32 and of float64, in one kernel, over arrays."""
    k = KernelBuilder()
    (i,) = k.domain((x[SINGLE].size,))
    arrays = []
    for dtype in FORMATS:
        values = []
        for array in (x, y)[: TABLE[name].arity]:
            number = len(arrays)
            buffer = k.buffer(f"b{number}", dtype, array[dtype].size, "in")
            values.append(k.load(buffer, i))
            arrays.append(array[dtype])
        arrays.append(np.empty_like(x[dtype]))
        out = k.buffer(f"b{len(arrays) - 1}", dtype, x[dtype].size, "out")
        k.store(out, i, k.op(name, *values))
    module = emit.Module()
    kernel = module.add(k.finish(name))
    module.define(emit.exported("main", kernel, len(arrays)))
    library = jit.load(jit.assemble(module.text()), ["main"])
    library.function("main", len(arrays))(*[array.ctypes.data for array in arrays])
    return {array.dtype: array for array in (arrays[len(arrays) // 2 - 1], arrays[-1])}


@needs_longdouble
@pytest.mark.parametrize("name", EXPANDED)
def test_compiled_functions_give_the_same_bits(name):
    size = 371  # whole vectors and a rest
    generator = np.random.default_rng(0)
    x, y = {}, {}
    for dtype in FORMATS:
        drawn = generator.standard_normal(size) * np.exp(generator.uniform(-3, 3, size))
        special = specials(dtype)
        x[dtype] = drawn.astype(dtype)
        x[dtype][: special.size] = special
        y[dtype] = generator.permutation(x[dtype])
    for dtype, got in compiled(name, x, y).items():
        want = evaluate(name, *(x[dtype], y[dtype])[: TABLE[name].arity])
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(
            np.signbit(got[got == 0]), np.signbit(want[want == 0])
        )
