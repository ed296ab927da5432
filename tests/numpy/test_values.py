"""The functions of `fnx.numpy` that NumPy has, against NumPy, in one table of calls."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors

RNG = np.random.default_rng(7)
F = RNG.standard_normal((3, 4)).astype("f4")
G = RNG.standard_normal((3, 4)).astype("f4")
P = np.abs(F) + np.float32(1.1)
I = RNG.integers(-9, 9, (3, 4)).astype("i4")  # noqa: E741
J = RNG.integers(1, 5, (3, 4)).astype("i4")
C = (F + 1j * G).astype("c8")
B = F > 0
N = np.where(G > 0.5, np.nan, F).astype("f4")
SPECIAL = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, np.inf, -np.inf, np.nan, 7], "f4")
X, Y = (np.ascontiguousarray(a) for a in np.meshgrid(SPECIAL, SPECIAL))

UNARY = """exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh abs absolute fabs
negative positive sign square reciprocal floor ceil trunc rint fix isnan isinf isfinite
isposinf isneginf signbit sinc degrees radians rad2deg deg2rad cbrt logical_not round
modf real imag conj angle nan_to_num isreal iscomplex""".split()
BINARY = """add subtract multiply divide true_divide maximum minimum fmax fmin arctan2
hypot logaddexp logaddexp2 copysign heaviside floor_divide remainder mod fmod divmod
equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
isclose nextafter""".split()
REDUCTIONS = """sum prod max min mean var std any all argmax argmin ptp median
count_nonzero nansum nanprod nanmean nanvar nanstd nanmax nanmin nanargmax nanargmin
average""".split()
COMPLEX = """exp sin tanh sqrt log abs square reciprocal real imag conj angle isnan
isinf isfinite sign negative sum prod mean var std cumsum""".split()

CALLS = [
    *[(name, (F,), {}) for name in UNARY],
    *[(name, (P,), {}) for name in "log log2 log10 log1p sqrt arccosh".split()],
    *[(name, (F / 5,), {}) for name in "arcsin arccos arctanh".split()],
    *[(name, (C,), {}) for name in COMPLEX],
    *[(name, (F, G), {}) for name in BINARY],
    *[(name, (F, G[0]), {}) for name in BINARY],
    *[(name, (X, Y), {}) for name in BINARY if name not in ("nextafter",)],
    *[(name, (SPECIAL,), {}) for name in UNARY if name not in ("sinc", "nan_to_num")],
    *[(name, (P, G), {}) for name in "power float_power".split()],
    *[(n, (I, J), {}) for n in BINARY if n not in ("copysign", "nextafter", "isclose")],
    *[(n, (I, J), {}) for n in "bitwise_and bitwise_or bitwise_xor left_shift".split()],
    *[(n, (I,), {}) for n in "bitwise_not invert abs sign sum".split()],
    *[(n, (B, ~B), {}) for n in "add multiply maximum minimum bitwise_xor".split()],
    ("right_shift", (I, J), {}),
    ("power", (I, J), {}),
    ("power", (I, J * 33), {}),
    ("power", (I, 3), {}),
    ("power", (F, 3), {}),
    ("power", (F, 2.0), {}),
    ("ldexp", (F, J), {}),
    *[(n, (F,), {}) for n in REDUCTIONS],
    *[(n, (F,), {"axis": 0}) for n in REDUCTIONS],
    *[(n, (F,), {"axis": -1, "keepdims": True}) for n in REDUCTIONS],
    *[
        (n, (N,), {"axis": 0})
        for n in REDUCTIONS
        if n not in ("nanargmax", "nanargmin")
    ],
    *[(n, (F[None],), {"axis": (0, 2)}) for n in "sum max mean var any ptp".split()],
    *[(n, (I,), {}) for n in "sum prod mean max argmax var std".split()],
    *[(n, (F,), {"where": B}) for n in "sum prod mean any all var std".split()],
    *[(n, (F,), {"axis": a}) for n in ("cumsum", "cumprod") for a in (None, 0, 1)],
    *[(n, (F,), {"axis": a}) for n in ("sort", "argsort") for a in (None, 0, 1)],
    ("sort", (N,), {}),
    ("argsort", (I,), {"kind": "stable"}),
    ("max", (F,), {"where": B, "initial": -5.0}),
    ("sum", (F,), {"initial": 3.0}),
    ("sum", (F,), {"dtype": "f8"}),
    ("var", (F,), {"axis": 0, "ddof": 1}),
    ("average", (F,), {"axis": 1, "weights": P[0]}),
    ("quantile", (F, np.array([0.1, 0.5, 0.9])), {"axis": 1}),
    ("quantile", (F, 0.3), {}),
    ("quantile", (F, 0.37), {"axis": 1, "method": "lower"}),
    ("quantile", (F, 0.37), {"axis": 1, "method": "midpoint"}),
    ("percentile", (F, 30), {"axis": 0, "keepdims": True}),
    ("reshape", (F, (4, 3)), {}),
    ("reshape", (F, (-1, 2)), {}),
    ("reshape", (F, (4, 3)), {"order": "F"}),
    ("ravel", (F,), {}),
    ("ravel", (F,), {"order": "F"}),
    ("transpose", (F,), {}),
    ("transpose", (F[None], (1, 0, 2)), {}),
    ("swapaxes", (F[None], 0, 2), {}),
    ("moveaxis", (F[None], 0, -1), {}),
    ("moveaxis", (F[None], (0, 1), (2, 0)), {}),
    ("rollaxis", (F[None], 2), {}),
    ("expand_dims", (F, (0, 2)), {}),
    ("squeeze", (F[None],), {}),
    ("broadcast_to", (F, (2, 3, 4)), {}),
    ("broadcast_arrays", (F, G[0]), {}),
    ("flip", (F,), {}),
    ("flip", (F, 1), {}),
    ("fliplr", (F,), {}),
    ("flipud", (F,), {}),
    *[("rot90", (F, k), {}) for k in range(4)],
    ("roll", (F, 2), {}),
    ("roll", (F, -1, 0), {}),
    ("roll", (F, (1, 2), (0, 1)), {}),
    ("tile", (F, (2, 1, 2)), {}),
    ("tile", (F, 3), {}),
    ("repeat", (F, 2), {}),
    ("repeat", (F, 3, 1), {}),
    ("repeat", (F, np.array([1, 0, 2]), 0), {}),
    *[("diag", (F, k), {}) for k in (-1, 0, 1, 2)],
    *[("diag", (F[0], k), {}) for k in (-2, 0, 1)],
    ("diagonal", (F[None], 1, 1, 2), {}),
    ("diagflat", (F[:2, :2],), {}),
    ("tril", (F,), {}),
    ("triu", (F, 1), {}),
    ("trace", (F, 1), {}),
    ("tri", (3, 4, 1), {}),
    ("eye", (3, 4, 1), {}),
    ("identity", (2,), {}),
    ("atleast_1d", (F[0, 0],), {}),
    ("atleast_2d", (F[0],), {}),
    ("atleast_3d", (F,), {}),
    ("diff", (F,), {}),
    ("diff", (F, 2, 0), {}),
    ("diff", (F,), {"prepend": 0.0, "append": F}),
    ("take", (F, np.array([0, 5, -1])), {}),
    ("take", (F, np.array([[0, 1], [2, 0]]), 0), {}),
    ("take", (F, np.array([7, -9])), {"mode": "wrap"}),
    ("take_along_axis", (F, np.argsort(F, 1), 1), {}),
    ("searchsorted", (np.sort(F[0]), G), {}),
    ("searchsorted", (np.array([1, 2, 2, 3]), np.array([2, 0, 5]), "right"), {}),
    ("digitize", (F[0], np.array([-1.0, 0, 1])), {}),
    ("digitize", (F[0], np.array([1.0, 0, -1])), {}),
    ("digitize", (np.array([-1.0, 0, 1, 2]), np.array([1.0, 0, -1])), {}),
    ("digitize", (np.array([-1.0, 0, 1, 2]), np.array([1.0, 0, -1]), True), {}),
    ("clip", (F, -0.5, 0.5), {}),
    ("clip", (F, None, 0.5), {}),
    ("clip", (I, -2, None), {}),
    ("where", (B, F, G), {}),
    ("where", (B, F, 0.0), {}),
    ("where", (B[0], F, G[:, :1]), {}),
    ("where", (B,), {}),
    ("select", ([B, G > 0], [F, G], 3.0), {}),
    ("nonzero", (B,), {}),
    ("argwhere", (B,), {}),
    ("flatnonzero", (B,), {}),
    ("unique", (I,), {}),
    ("unique", (I,), {"return_index": True, "return_counts": True}),
    ("isin", (I, J), {}),
    ("bincount", (np.array([0, 2, 2]),), {"minlength": 5}),
    ("bincount", (np.array([0, 2, 2]), np.array([1.0, 2, 3])), {}),
    ("interp", (F[0], np.array([-1.0, 0, 2]), np.array([3.0, 1, 5])), {}),
    ("interp", (F[0], np.array([0.0, 1, 2]), np.array([3.0, 1, 5]), -7.0, 9.0), {}),
    (
        "interp",
        (F[0], np.array([2.0, 0, 1]), np.array([3.0, 1, 5])),
        {"period": 3.0},
    ),
    ("unravel_index", (np.array([3, 7]), (2, 5)), {}),
    ("ravel_multi_index", ((np.array([0, 1]), np.array([3, 2])), (2, 5)), {}),
    ("delete", (F, 1, 0), {}),
    ("insert", (F[0], 1, 7.0), {}),
    ("insert", (F, np.array([0, 2]), 7.0, 1), {}),
    ("append", (F, G, 0), {}),
    ("lexsort", ((F[0], I[0]),), {}),
    ("array_equal", (F, F), {}),
    ("array_equiv", (F, F[0]), {}),
    ("allclose", (F, F + 1e-7), {}),
    ("arange", (3,), {}),
    ("arange", (1, 7, 2), {}),
    ("arange", (5, 0, -2), {}),
    ("arange", (0, 1, 0.25), {}),
    ("linspace", (0, 1, 7), {}),
    ("linspace", (0, 1, 7), {"endpoint": False}),
    ("linspace", (0, 1, 1), {}),
    ("linspace", (F[0], G[0], 3), {"axis": 1}),
    ("logspace", (0, 2, 5), {}),
    ("geomspace", (1, 16, 5), {}),
    ("indices", ((2, 3),), {}),
    ("meshgrid", (F[0], G[:, 0]), {}),
    ("meshgrid", (F[0], G[:, 0]), {"indexing": "ij", "sparse": True}),
    ("tril_indices", (3,), {}),
    ("triu_indices", (3, 1), {}),
    ("split", (F, 2, 1), {}),
    ("split", (F, [1, 3], 1), {}),
    ("array_split", (F, 3, 1), {}),
    ("array_split", (F, [1, 7, -1], 1), {}),
    ("concatenate", ([F, G], 1), {}),
    ("concatenate", ([F, G], None), {}),
    *[(n, ([F, G],), {}) for n in "stack vstack hstack dstack column_stack".split()],
    *[(n, ([F[0], G[0]],), {}) for n in "vstack hstack dstack column_stack".split()],
    ("stack", ([F, G], -1), {}),
    ("block", ([[F, G], [G, F]],), {}),
    ("unstack", (F,), {"axis": 1}),
    ("dot", (F, G.T), {}),
    ("dot", (F[0], G[0]), {}),
    ("dot", (np.stack([F, G]), np.stack([G.T, F.T])), {}),
    ("inner", (F, G), {}),
    ("outer", (F[0], G[0]), {}),
    ("vdot", (C, C), {}),
    ("vecdot", (C, C), {}),
    ("tensordot", (F, G, 2), {}),
    ("tensordot", (F, G.T, 1), {}),
    ("tensordot", (F, G, ([0], [0])), {}),
    ("kron", (F[:2, :2], G), {}),
    ("cross", (F[:, :3], G[:, :3]), {}),
    ("matvec", (C, C[0]), {}),
    ("vecmat", (C[:, 0], C), {}),
    ("histogram", (F, 4), {"density": True}),
    ("histogram", (F,), {"range": (-1.0, 1.0), "density": True}),
    ("histogram", (F, np.array([-1.0, 0, 2])), {"weights": P}),
    ("cov", (F,), {}),
    ("cov", (F, G), {"bias": True}),
    ("cov", (C,), {"rowvar": False}),
    ("corrcoef", (F,), {}),
    ("trapezoid", (F,), {}),
    ("trapezoid", (F, P[:, 0]), {"axis": 0}),
    ("gradient", (F,), {}),
    ("gradient", (F, 0.5), {"axis": 1}),
    ("unwrap", (F * 9,), {}),
    ("unwrap", (F * 9,), {"axis": 0, "period": 4.0}),
    ("polyval", (F[0], G), {}),
    ("vander", (F[0], 3), {}),
    *[("convolve", (F[0], G[1, :3], mode), {}) for mode in ("full", "same", "valid")],
    *[("correlate", (F[0], C[1, :3], mode), {}) for mode in ("full", "same", "valid")],
    ("nancumsum", (N, 1), {}),
    ("nancumprod", (N,), {}),
    *[(n, (I, J), {}) for n in "union1d intersect1d setdiff1d setxor1d".split()],
    *[(n, (5,), {}) for n in "bartlett blackman hamming hanning".split()],
    ("apply_along_axis", (lambda row: row.cumsum(), 1, np.stack([F, G])), {}),
    ("apply_along_axis", (lambda row: row.sum(), 0, F), {}),
    ("piecewise", (F, [B, G > 0], [1.0, lambda x: x * 2, lambda x: -x]), {}),
    ("choose", (J % 3, [I, J, 5]), {}),
    ("compress", ([True, False, True], F, 0), {}),
    ("extract", (B, F), {}),
    ("resize", (F, (2, 7)), {}),
    ("tril_indices_from", (F,), {}),
    ("ix_", (np.array([0, 2]), np.array([True, False, True])), {}),
]


def _id(call):
    name, args, options = call
    kinds = [getattr(a, "dtype", type(a).__name__) for a in args]
    return f"{name}-{','.join(map(str, kinds))}-{','.join(map(str, options))}"


def _ours(x):
    if isinstance(x, np.ndarray | np.generic):
        return fnp.array(x)
    return [_ours(y) for y in x] if isinstance(x, list) else x


def _compare(got, want, tolerance=2e-5):
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _compare(g, w)
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype.kind == want.dtype.kind
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "call", CALLS, ids=[f"{i}-{_id(c)}" for i, c in enumerate(CALLS)]
)
@pytest.mark.filterwarnings("ignore")
def test_as_numpy(call):
    name, args, options = call
    want = getattr(np, name)(*args, **options)
    options = {name: value for name, value in options.items() if name != "kind"}
    got = getattr(fnp, name)(*map(_ours, args), **options)
    _compare(got, want)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "copysign"])
def test_signs_of_zero(name):
    got = np.asarray(getattr(fnp, name)(X, Y))
    want = getattr(np, name)(X, Y)
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_ldexp_rounds_once(dtype, jitted, rng):
    info = np.finfo(dtype)
    random = rng.uniform(-2, 2, 50) * 2.0 ** rng.integers(info.minexp, info.maxexp, 50)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny]
    x = np.array([*ends, info.smallest_subnormal, *random], dtype)[:, None]
    near = np.arange(-60, 60)
    far = [2**31 - 1, -(2**31), 2100, -2200, 1000, -1000, 280, -280, 149, -149, 127]
    far = [*far, *(near + info.minexp), *near]
    for exponent in (np.array(far, "i4"), np.arange(-128, 128, dtype="i1")):
        ldexp = fnx.jit(fnp.ldexp) if jitted else fnp.ldexp
        np.testing.assert_array_equal(ldexp(x, exponent), np.ldexp(x, exponent))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_logaddexp2_is_exact_far_apart(dtype):
    x = np.array([0.0, -1, -20, -100, 3, np.inf, -np.inf], dtype)
    got = fnp.logaddexp2(x[:, None], x)
    np.testing.assert_array_max_ulp(
        np.asarray(got)[np.isfinite(got)],
        np.logaddexp2(x[:, None].astype("f8"), x)[np.isfinite(got)].astype(dtype),
        maxulp=4,
    )
    np.testing.assert_allclose(got, np.logaddexp2(x[:, None], x), rtol=1e-6)


def test_take_clips_negative_places_to_the_first():
    x, places = np.arange(14.0), np.array([-20, -11, -1, 0, 13, 20])
    want = np.take(x, places, mode="clip")
    np.testing.assert_array_equal(fnp.take(x, places, mode="clip"), want)
    taken = fnx.jit(lambda x, i: fnp.take(x, i, mode="clip"))
    np.testing.assert_array_equal(taken(x, places), want)
    np.testing.assert_array_equal(taken(x, np.array([20], "u1")), [13.0])


def test_bit_counts_have_the_dtype_of_numpy():
    least = np.array([-128, -1, 0, 127], "i1")
    for x in (I, I.astype("u8"), least, I > 0):
        for count in (fnp.bitwise_count, fnx.jit(fnp.bitwise_count)):
            got, want = (
                count(x),
                np.bitwise_count(x.astype("u1") if x.dtype == bool else x),
            )
            assert got.dtype == want.dtype == np.uint8
            np.testing.assert_array_equal(got, want)


def test_complex_numbers_have_no_sign_bit():
    with pytest.raises(errors.DTypeError, match="signbit: c64"):
        fnp.signbit(np.complex64(-1))


def test_integer_division_by_zero_gives_zero():
    x = fnp.array([7, -7, 0])
    assert (x // 0).tolist() == [0, 0, 0]
    assert (x % 0).tolist() == [0, 0, 0]
    least = fnp.array([-(2**31)])
    assert (least // -1).tolist() == [-(2**31)]


SHAPES = [
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 4), (2, 4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((6, 2, 3, 4), (6, 1, 4, 5)),
    ((7, 1, 2, 3), (1, 8, 3, 2)),
    ((1, 1, 2, 3), (1, 8, 3, 2)),
    ((4,), (4,)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul(left, right, rng):
    x, y = rng.standard_normal(left), rng.standard_normal(right)
    _compare(fnp.array(x) @ fnp.array(y), x @ y, 1e-12)


EINSUMS = [
    ("ij,jk->ik", (F, G.T)),
    ("ij,ij->", (F, G)),
    ("ij->ji", (F,)),
    ("ii->i", (F[:, :3],)),
    ("ii", (F[:, :3],)),
    ("ij,ij->i", (F, G)),
    ("...j,j->...", (F, G[0])),
    ("ij,kj,kl->il", (F, G, F)),
    ("ij,jk,kl,lm", (F, G.T, F, G.T)),
    ("i,j->ij", (F[0], G[0])),
    ("bij,bjk->bik", (F[None], G.T[None])),
    ("ij,j", (F, G[0])),
    ("ijk->k", (F[None],)),
    ("ij,k->", (F, G[0])),
    ("iij->j", (np.stack([F] * 3)[:, :3],)),
    ("...ij,...jk->...ik", (np.stack([F] * 2), G.T)),
    ("ij,kl->jl", (F, G)),
    ("ij,ij->ij", (F, F[:1])),
]


@pytest.mark.parametrize(("subscripts", "operands"), EINSUMS)
def test_einsum(subscripts, operands):
    ours = [fnp.array(x) for x in operands]
    _compare(fnp.einsum(subscripts, *ours), np.einsum(subscripts, *operands), 1e-4)


def test_einsum_of_axis_lists():
    got = fnp.einsum(fnp.array(F), [0, 1], fnp.array(G), [2, 1], [0, 2])
    _compare(got, F @ G.T)


MODES = [
    "constant",
    "edge",
    "reflect",
    "symmetric",
    "wrap",
    "maximum",
    "minimum",
    "mean",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("widths", [2, (1, 3), ((0, 2), (5, 1)), 7])
def test_pad(mode, widths):
    _compare(fnp.pad(fnp.array(F), widths, mode), np.pad(F, widths, mode))


@pytest.mark.parametrize("widths", [2, (1, 3), ((0, 2), (5, 1)), 11])
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("median", {}),
        ("maximum", {"stat_length": 2}),
        ("minimum", {"stat_length": ((1, 2), (3, 99))}),
        ("mean", {"stat_length": (2, 1)}),
        ("median", {"stat_length": 3}),
        ("reflect", {"reflect_type": "odd"}),
        ("symmetric", {"reflect_type": "odd"}),
        ("linear_ramp", {}),
        ("linear_ramp", {"end_values": ((5, -4), (3, 0))}),
    ],
)
def test_options_of_pad(mode, options, widths):
    for x in (F, I, F[:1], F[:, :1]):
        got = fnp.pad(fnp.array(x), widths, mode, **options)
        _compare(got, np.pad(x, widths, mode, **options))
    got = fnx.jit(lambda x: fnp.pad(x, widths, mode, **options))(F)
    _compare(got, np.pad(F, widths, mode, **options))


def test_pad_by_a_function():
    def ends(vector, pair, axis, _):
        places = fnp.arange(vector.size)
        inside = (places >= pair[0]) & (places < vector.size - pair[1])
        return fnp.where(inside, vector, 10 * (axis + 1))

    def ends_in_place(vector, pair, axis, _):
        vector[: pair[0]] = vector[vector.size - pair[1] :] = 10 * (axis + 1)

    widths = ((1, 2), (3, 1))
    _compare(fnp.pad(fnp.array(F), widths, ends), np.pad(F, widths, ends_in_place))


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("reflect", {"reflect_type": "strange"}),
        ("edge", {"constant_values": 1}),
        ("constant", {"stat_length": 2}),
        ("mean", {"stat_length": 0}),
        ("mean", {"reflect_type": "odd"}),
        ("wrap", {"end_values": 3}),
        ("nearest", {}),
    ],
)
def test_pad_refuses_what_has_no_meaning(mode, options):
    with pytest.raises(errors.OptionError, match="pad"):
        fnp.pad(F, 2, mode, **options)


def test_pad_with_values():
    widths, values = ((1, 2), (3, 0)), ((1, 2), (3, 4))
    got = fnp.pad(fnp.array(F), widths, constant_values=values)
    _compare(got, np.pad(F, widths, constant_values=values))


@pytest.mark.parametrize("order", [None, 1, 2, np.inf, -np.inf, 0, 3])
def test_vector_norm(order):
    got = fnp.linalg.norm(fnp.array(F), order, axis=1)
    _compare(got, np.linalg.norm(F, order, axis=1))


@pytest.mark.parametrize("order", [None, "fro", 1, -1, np.inf, -np.inf])
def test_matrix_norm(order):
    got = fnp.linalg.norm(fnp.array(F[None]), order, axis=(1, 2), keepdims=True)
    _compare(got, np.linalg.norm(F[None], order, axis=(1, 2), keepdims=True))


@pytest.mark.parametrize("dtype", ["f2", "bf16"])
def test_16_bit_floats_are_summed_in_float32(dtype):
    dtype = fnp.bfloat16 if dtype == "bf16" else fnp.float16
    x = fnp.full((4096,), 1.0, dtype)
    assert float(fnp.sum(x)) == 4096
    assert float(fnp.mean(fnp.full((4096,), 60.0, dtype))) == 60
    assert fnp.mean(x).dtype == dtype


def test_random_shapes_of_reductions():
    for seed in range(20):
        rng = np.random.default_rng(zlib.crc32(bytes([seed])))
        shape = tuple(rng.integers(1, 4, rng.integers(1, 5)))
        axes = tuple(np.flatnonzero(rng.random(len(shape)) > 0.5).tolist())
        x = rng.standard_normal(shape)
        _compare(fnp.sum(fnp.array(x), axes), np.sum(x, axes), 1e-12)


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("dtype", [bool, "i4", "f2", "c8"])
def test_triangles_of_every_kind(name, dtype):
    x = np.ones((2, 3, 4), dtype)
    for k in (-1, 0, 2):
        found = getattr(fnp, name)(x, k)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, k))
