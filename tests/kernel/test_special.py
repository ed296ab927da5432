"""Special functions as routines: accuracy, and that compiled code means the same.

The exact values are computed by mpmath at the float64 arguments. SciPy's own errors at
the same points are bounds too: ours are mostly far below.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import mpmath
import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.kernel import scalar, special
from fnx.kernel.build import KernelBuilder
from fnx.kernel.routine import branch, repeat, routine
from fnx.kernel.routine_numpy import evaluate
from fnx_cuda.values import literal
from tests.kernel.test_scalar import C_TYPES, SHIM

RNG = np.random.default_rng(0)
SMALL = np.exp(RNG.uniform(-12, 6, 40))
SIGNED = np.concatenate([RNG.uniform(-8, 8, 40), SMALL, -SMALL])
EPS = 2.0**-52
mp = mpmath.mpf


# ---------------------------------------------------------------- exact values


def _gamma_pair(lower):
    def exact(a, x):
        ends = (0, x) if lower else (x, mpmath.inf)
        return mpmath.gammainc(a, *ends, regularized=True)

    return exact


def _gamma_a(order):
    """The derivative of P in a; by that of -Q where Q is the smaller."""

    def exact(a, x):
        side = _gamma_pair(x < a)
        sign = 1 if x < a else -1
        step = mp(10) ** -20 * a
        return sign * mpmath.diff(lambda t: side(t, x), a, order, h=step)

    return exact


def _beta(a, b, x):
    def lower(a, b, x):
        series = mpmath.hyp2f1(a + b, 1, a + 1, x, maxterms=10**6)
        return x**a * (1 - x) ** b / (a * mpmath.beta(a, b)) * series

    return lower(a, b, x) if x < a / (a + b) else 1 - lower(b, a, 1 - x)


def _beta_derivative(i, j):
    def exact(a, b, x):
        step = mp(10) ** -25 * min(a, b)
        return mpmath.diff(lambda s, t: _beta(s, t, x), (a, b), (i, j), h=step)

    return exact


def _moment(x, m):
    def integrand(t):
        rise = 1 - mpmath.cos(t)
        return rise**m * mpmath.exp(-abs(x) * rise)

    ends = [min(mpmath.pi, c / mpmath.sqrt(abs(x) + 1)) for c in (0.5, 1, 2, 4, 8)]
    return mpmath.quad(integrand, [0, *ends, mpmath.pi]) / mpmath.pi


def _erfcx_moment(x, n):
    start = max(0, -x)
    ends = [start + c / (1 + max(x, 0)) for c in (0.5, 1, 2, 4, 8, 16, 32)]

    def integrand(t):
        return t**n * mpmath.exp(-t * t - 2 * x * t)

    total = mpmath.quad(integrand, [0, start / 2, start, *ends])
    return 2 / mpmath.sqrt(mpmath.pi) * total


def _owens_t(h, a):
    def integrand(x):
        return mpmath.exp(-h * h * (1 + x * x) / 2) / (1 + x * x)

    ends = [a * c for c in (1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 1)]
    return mpmath.quad(integrand, [0, *ends]) / (2 * mpmath.pi)


def _dawsn(x, n):
    with mpmath.workdps(120):
        values = [mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)]
        values.append(1 - 2 * x * values[0])
        for k in range(1, 3):
            values.append(-2 * (x * values[-1] + k * values[-2]))
        return values[int(n)]


def _zeta(s, q):
    with mpmath.workdps(150):  # mpmath loses digits for a large q
        return mpmath.zeta(s, q)


def _entropy(mu, n):
    def of(mu):
        def term(k):
            share = mpmath.exp(k * mpmath.log(mu) - mu - mpmath.loggamma(k + 1))
            return share * mpmath.loggamma(k + 1)

        total = mpmath.fsum(term(k) for k in range(1200))
        return mu - mu * mpmath.log(mu) + total

    return mpmath.diff(of, mu, int(n))


_A = np.exp(RNG.uniform(-10, 8, 60))
_X = np.where(
    RNG.random(60) < 0.6,
    np.abs(_A + 2.5 * np.sqrt(_A) * RNG.standard_normal(60)),
    _A * np.exp(RNG.uniform(-2, 1, 60)),
)
_P, _Q = np.exp(RNG.uniform(-8, 7, 40)), np.exp(RNG.uniform(-8, 7, 40))
_MEAN = _P / (_P + _Q)
_Z = _MEAN + 2 * RNG.standard_normal(40) * np.sqrt(_MEAN * (1 - _MEAN) / (_P + _Q + 1))
_Z = np.clip(_Z, 1e-9, 1 - 1e-9)
_N = np.arange(40.0) % 4

# name: exact value, arguments, and the error in units of 2^-52 of it; for functions
# with zeros also in units of 2^-52
TABLE = {
    "gamma": (
        mpmath.gamma,
        (np.concatenate([RNG.uniform(-30, 170, 60), SMALL / 5]),),
        8,
    ),
    "betaln": (
        lambda a, b: mpmath.log(mpmath.beta(a, b)),
        (SMALL, np.roll(SMALL, 7) * 50),
        64,
    ),
    "igamma": (_gamma_pair(True), (_A, _X), 200),
    "igammac": (_gamma_pair(False), (_A, _X), 200),
    "igamma_grad_a": (_gamma_a(1), (_A[:20], _X[:20]), 200),
    "igamma_grad_aa": (_gamma_a(2), (_A[:12], _X[:12]), 1e5),
    "betainc": (_beta, (_P, _Q, _Z), 200),
    "betainc_10": (_beta_derivative(1, 0), (_P[:12], _Q[:12], _Z[:12]), 1e3),
    "betainc_01": (_beta_derivative(0, 1), (_P[:12], _Q[:12], _Z[:12]), 1e3),
    "zeta": (_zeta, (1 + np.exp(RNG.uniform(-6, 3, 40)), SMALL), 64),
    "zeta_1": (
        lambda s, q: mpmath.zeta(s, q, 1),
        (1 + np.exp(RNG.uniform(-6, 3, 12)), SMALL[:12]),
        64,
    ),
    "polygamma": (
        lambda n, x: mpmath.polygamma(int(n), x),
        (_N + 1, np.concatenate([SMALL[:20], -RNG.uniform(0, 30, 20)])),
        64,
    ),
    "bessel_i": (lambda x, n: mpmath.besseli(int(n), x), (SIGNED[:40], _N), 8),
    "bessel_ie": (
        lambda x, n: mpmath.besseli(int(n), x) * mpmath.exp(-abs(x)),
        (np.roll(SIGNED, 30)[:40], _N),
        8,
    ),
    "bessel_moment": (_moment, (np.array([0.0, 0.1, 3, 29, 31, -500]), _N[:6]), 16),
    "bessel_j": (
        lambda x, n: mpmath.besselj(int(n), x),
        (np.concatenate([SIGNED[:20], np.exp(RNG.uniform(2, 9, 20))]), _N),
        (64, 4),
    ),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), (SIGNED[:80],), 4),
    "erfcx_moment": (_erfcx_moment, (np.linspace(-5, 30, 8), _N[:8]), 16),
    "ndtr": (mpmath.ncdf, (np.concatenate([SIGNED[:60] * 4, SIGNED[80:]]) / 2,), 4),
    "ndtri": (
        lambda p: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p),
        (np.concatenate([np.exp(RNG.uniform(-30, 0, 30)), RNG.uniform(0, 1, 30)]),),
        4,
    ),
    "dawsn_derivative": (
        _dawsn,
        (np.concatenate([SIGNED[:20], np.linspace(7, 15, 20)]), _N % 3),
        (16, 64),
    ),
    "owens_t": (_owens_t, (SIGNED[:15], np.exp(RNG.standard_normal(15))), 64),
    "expn": (lambda n, x: mpmath.expint(int(n), x), (_N + 1, SMALL), 8),
    "expi": (mpmath.ei, (np.concatenate([SMALL, -SMALL, [0.37, 0.3726, 0.4]]),), 8),
    "sine_integral": (mpmath.si, (SIGNED,), 8),
    "cosine_integral": (mpmath.ci, (SMALL,), (16, 2)),
    "fresnel_sine": (mpmath.fresnels, (SIGNED,), 8),
    "fresnel_cosine": (mpmath.fresnelc, (SIGNED,), 8),
    "spence": (lambda x: mpmath.re(mpmath.polylog(2, 1 - x)), (SMALL,), 8),
    "sin_ratio": (
        lambda x, n: mpmath.diff(mpmath.sinc, x, int(n)),
        (RNG.uniform(-9, 9, 12), _N[:12] % 3),
        (32, 4),
    ),
    "log1p_ratio": (
        lambda u, n: mpmath.diff(lambda v: mpmath.log(1 + v) / v, u, int(n)),
        (np.expm1(RNG.uniform(-4, 4, 12)), _N[:12] % 3),
        64,
    ),
    "expm1_ratio": (
        lambda t, n: mpmath.quad(lambda s: s**n * mpmath.exp(s * t), [0, 0.5, 0.9, 1]),
        (RNG.uniform(-40, 40, 20), _N[:20]),
        16,
    ),
    "poisson_entropy": (
        _entropy,
        (np.array([0.01, 0.7, 4, 30, 499, 501.0]), np.array([0.0, 1, 2, 0, 1, 1])),
        (4096, 256),  # the slope is a difference of logarithms
    ),
    "hyp1f1": (
        mpmath.hyp1f1,
        (
            RNG.uniform(-4, 4, 40),
            RNG.uniform(0.3, 6, 40),
            np.concatenate(
                [RNG.uniform(-30, 30, 30), [60, 300, -60, -300] * 2, [1, 2]]
            ),
        ),
        2048,
    ),
    "hyp2f1": (
        mpmath.hyp2f1,
        (
            RNG.uniform(-4, 4, 30),
            RNG.uniform(-4, 4, 30),
            RNG.uniform(0.3, 6, 30),
            np.concatenate([RNG.uniform(-1, 0.95, 20), -np.exp(RNG.uniform(0, 4, 10))]),
        ),
        4096,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_errors_are_small(name):
    exact, args, bound = TABLE[name]
    relative, absolute = bound if isinstance(bound, tuple) else (bound, 0)
    got = special.evaluate(name, *args)
    with mpmath.workdps(50):
        for y, point in zip(got.tolist(), zip(*args, strict=True), strict=True):
            want = exact(*[mp(float(v)) for v in point])
            if not mp("1e-300") < abs(want) < mp("1e300"):
                continue
            error = abs(y - want) / EPS
            allowed = relative * abs(want) + absolute
            assert error <= allowed, (point, y, mpmath.nstr(want, 20), float(error))


# ---------------------------------------------------------------- the machinery


def _collatz(x):
    """Rounds, branches and an inner loop, of which each element takes its own."""

    def step(value, count):
        half = value * 0.5
        even = half.op("floor").equals(half)
        following = branch(even, lambda: half, lambda: value * 3.0 + 1.0)
        return (following, count + 1.0), following > 1.0

    return branch(
        x > 1.0, lambda: repeat((x, 0.0), step, 1000)[1], lambda: x.like(-1.0)
    )


def test_bessel_functions_of_the_smallest_numbers():
    x = np.array([5e-324, 1e-310, 3e-150, 1e-101, 1e-99, 1e-60])
    for n in range(6):
        exact = [float(mpmath.besselj(n, mpmath.mpf(v))) for v in x]
        found = special.evaluate("bessel_j", x, n)
        np.testing.assert_allclose(found, exact, 1e-14, 5e-324)


def test_every_element_takes_its_own_way():
    x = np.array([[0.0, 1, 2, 3], [7, 27, 97, 6]])
    want = [[-1, -1, 1, 7], [16, 111, 118, 8]]
    assert evaluate(routine("test_collatz", 1, _collatz), x).tolist() == want
    assert evaluate(routine("test_collatz", 1, _collatz), x[:0]).shape == (0, 4)


def points(name):
    """Arguments of a row: those of the table, or numbers in (0, 1) and some corners."""
    arity = special.ROUTINES[name]
    if name in TABLE and len(TABLE[name][1][0]) > 7:
        return [np.resize(x, 37) for x in TABLE[name][1]]
    drawn = RNG.uniform(0.1, 0.9, (arity, 37))
    drawn[0, :3] = 0, np.inf, np.nan
    if name.startswith(("zeta", "polygamma")):
        drawn[0] += 2
    return list(drawn)


def close(got, want):
    """Exponentials that differ by an ulp: 1e-12 relative, but where zeros are near."""
    np.testing.assert_allclose(got, want, 1e-10, 1e-14)


@pytest.mark.parametrize("name", special.ROUTINES)
def test_compiled_routines_are_the_evaluated_ones(name):
    args = points(name)
    out = np.empty(37)
    k = KernelBuilder()
    (i,) = k.domain((37,))
    inputs = [k.buffer(f"b{n}", dtypes.float64, 37, "in") for n, _ in enumerate(args)]
    result = k.buffer("out", dtypes.float64, 37, "out")
    k.store(result, i, k.op(name, *[k.load(b, i) for b in inputs]))
    module = emit.Module()
    kernel = module.add(k.finish(name))
    module.define(emit.exported("main", kernel, len(args) + 1))
    library = jit.load(jit.assemble(module.text()), ["main"])
    function = library.function("main", len(args) + 1)
    function(*[x.ctypes.data for x in (*args, out)])
    close(out, special.evaluate(name, *args))


class _CudaText:
    """Types, constants and helpers as `fnx_cuda/values.py` has them."""

    def __init__(self):
        self.helpers = {}

    def type(self, dtype):
        return C_TYPES[dtype]

    def constant(self, value, dtype):
        return literal(value, dtype)

    def helper(self, name, definition):
        self.helpers[name] = definition

    def has_helper(self, name):
        return name in self.helpers


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cuda_text_of_routines_means_the_same(tmp_path):
    text, functions = _CudaText(), []
    for name, arity in special.ROUTINES.items():
        names = [f"x{n}[i]" for n in range(arity)]
        called = scalar.TABLE[name].cuda(text, names, [], dtypes.float64)
        inputs = "".join(f"const double *x{n}, " for n in range(arity))
        functions.append(
            f'extern "C" void {name}_({inputs}double *out, long n) '
            f"{{ for (long i = 0; i < n; ++i) out[i] = {called}; }}\n"
        )
    source, library = tmp_path / "special.cpp", tmp_path / "special.so"
    source.write_text(SHIM + "\n".join(text.helpers.values()) + "".join(functions))
    flags = ["-O0", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    for name in special.ROUTINES:
        args = points(name)
        out = np.empty(37)
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*args, out)]
        loaded[f"{name}_"](*pointers, ctypes.c_long(37))
        close(out, special.evaluate(name, *args))
