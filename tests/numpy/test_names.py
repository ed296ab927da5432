"""The rarer functions of `fnx.numpy` against NumPy: eagerly and compiled."""

from __future__ import annotations

import io
import math

import jax.numpy as jnp
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from tests.numpy.given import (
    METHODS,
    RNG,
    TINY,
    TINY2,
    TINY4,
    F,
    I,
    J,
    N,
    Q,
    U,
    V,
    W,
    arrays,
    numpys,
    same,
)

TRACED = [
    ("gcd", (I, J), {}),
    ("gcd", (I, 0), {}),
    ("gcd", (np.array([0, -4, 6], "i8"), np.array([0, 6, 0], "i8")), {}),
    ("gcd", (np.zeros((0, 3), "i4"), np.zeros(3, "i4")), {}),
    ("gcd", (U, U[:1]), {}),
    ("lcm", (I, J), {}),
    ("lcm", (np.int64(12), np.int64(-18)), {}),
    *[("frexp", (x,), {}) for x in (F, TINY, TINY4, TINY2)],
    *[("spacing", (x,), {}) for x in (F, TINY, TINY4)],
    *[("packbits", (I > 0,), {"axis": a}) for a in (None, 0, 1)],
    ("packbits", (U,), {"bitorder": "little"}),
    ("packbits", (np.zeros((0,), bool),), {}),
    *[("unpackbits", (U,), {"axis": a}) for a in (None, 0, -1)],
    *[("unpackbits", (U,), {"axis": 1, "count": c}) for c in (3, 50, -9)],
    ("unpackbits", (U[0],), {"bitorder": "little", "count": 11}),
    ("polyadd", (V, W[:3]), {}),
    ("polysub", (V[:2], W), {}),
    ("polymul", (V, W[:3]), {}),
    ("polymul", (V[:1], W[:1]), {}),
    *[("polyder", (V,), {"m": m}) for m in (0, 1, 3, 9, 12)],
    *[("polyint", (V,), {"m": m}) for m in (0, 1, 3)],
    ("polyint", (V,), {"m": 2, "k": np.array([1.0, 2.0])}),
    ("polyint", (V,), {"m": 3, "k": 4.0}),
    ("polyval", (V, F), {}),
    ("histogram2d", (V, W), {"bins": 4}),
    ("histogram2d", (V, W), {"bins": (3, np.array([0, 1, 1.5, 2])), "weights": W}),
    ("histogram2d", (V, W), {"range": [[-1, 1], [0, 2]], "density": True}),
    ("histogramdd", (RNG.uniform(size=(20, 3)),), {"bins": (2, 3, 4)}),
    ("histogramdd", (np.stack([V, W], 1),), {"bins": 3, "density": True}),
    ("histogram", (V,), {"bins": np.array([-1, 0, 0.5, 2.0]), "weights": W}),
    ("histogram", (V,), {"bins": 5, "range": (-0.5, 0.5)}),
    ("histogram", (np.zeros(0),), {"bins": 2}),
    ("histogram", (np.full(3, 2.0),), {"bins": 2}),
    ("ediff1d", (I,), {}),
    ("ediff1d", (F,), {"to_end": np.array([1.0, 2.0]), "to_begin": 0.0}),
    ("ediff1d", (V[:1],), {"to_begin": 3.0}),
    ("sort_complex", (F[0] + 1j * F[1],), {}),
    ("sort_complex", (V,), {}),
    *[("nanmedian", (x,), {"axis": a}) for x in (F, N) for a in (None, 0, 1, (0, 1))],
    ("nanmedian", (N,), {"axis": 1, "keepdims": True}),
    *[("nanquantile", (N, Q), {"axis": 1, "method": m}) for m in METHODS],
    *[("quantile", (F, Q), {"axis": 0, "method": m}) for m in METHODS],
    *[("quantile", (V, 0.37), {"method": m}) for m in METHODS],
    ("quantile", (N, 0.5), {"axis": 1}),
    ("nanpercentile", (N, 30), {"axis": 0, "keepdims": True}),
    ("nanpercentile", (N, 100 * Q), {}),
    ("quantile", (V, Q), {"weights": W, "method": "inverted_cdf"}),
    ("quantile", (F, Q), {"axis": 1, "weights": W[:4], "method": "inverted_cdf"}),
    ("percentile", (V, 70), {"weights": np.round(W), "method": "inverted_cdf"}),
    ("cov", (F,), {"fweights": np.array([1, 2, 0, 3])}),
    ("cov", (F,), {"aweights": W[:4]}),
    ("cov", (F,), {"aweights": W[:4], "fweights": np.array([1, 2, 1, 3]), "ddof": 0}),
    ("cov", (F,), {"dtype": "f4"}),
    ("corrcoef", (F,), {"dtype": "f4"}),
    ("gradient", (V,), {"edge_order": 2}),
    ("gradient", (V, np.cumsum(W)), {}),
    ("gradient", (V, np.cumsum(W)), {"edge_order": 2}),
    ("gradient", (F, 2.0, np.cumsum(W[:4])), {}),
    ("gradient", (F,), {"axis": 1, "edge_order": 2}),
    ("nanvar", (N,), {"axis": 1, "mean": np.full((3, 1), 0.5)}),
    ("nanstd", (N,), {"axis": 1, "mean": np.full((3, 1), 0.5), "keepdims": True}),
    *[("isin", (I, J), {"invert": v}) for v in (False, True)],
    ("isin", (np.arange(100), np.arange(0, 200, 3)), {}),
    ("ravel_multi_index", ((np.array([1, 2]), np.array([3, 0])), (3, 4)), {}),
    (
        "ravel_multi_index",
        ((np.array([1, 2]), np.array([3, 0])), (3, 4)),
        {"order": "F"},
    ),
    ("digitize", (V, np.array([-1.0, 0, 1])), {}),
]
# These need known values.
KNOWN = [
    ("trim_zeros", (np.array([0, 0, 1, 0, 2, 0]),), {}),
    ("trim_zeros", (np.array([0, 0, 1, 0, 2, 0]), "f"), {}),
    ("trim_zeros", (np.array([0, 0, 1, 0, 2, 0]), "B"), {}),
    *[("trim_zeros", (np.zeros(3), t), {}) for t in ("f", "b", "fb")],
    ("trim_zeros", (np.zeros(0),), {}),
    ("trim_zeros", (np.pad(F, 2),), {}),
    ("trim_zeros", (np.pad(F, 2),), {"axis": 1}),
    ("mask_indices", (3, np.triu), {"k": 1}),
    ("diag_indices_from", (np.zeros((3, 3, 3)),), {}),
    *[("unique_all", (x,), {}) for x in (I, N, np.zeros((0, 2)), np.array(3))],
    *[("unique_counts", (x,), {}) for x in (I, N)],
    *[("unique_inverse", (x,), {}) for x in (I, N)],
    *[("unique_values", (x,), {}) for x in (I, N)],
    ("intersect1d", (I, J), {"return_indices": True}),
    ("setdiff1d", (J, I), {"assume_unique": True}),
    ("polydiv", (V, W[:3]), {}),
    ("polydiv", (W[:3], V), {}),
    ("polydiv", (V, W[:1]), {}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "args", "options"), TRACED)
def test_eagerly_and_compiled(name, args, options):
    wanted = getattr(np, name)(*args, **options)
    function = getattr(fnp, name)
    given = [tuple(map(arrays, x)) if isinstance(x, tuple) else arrays(x) for x in args]
    same(function(*given, **numpys(options)), wanted)
    traced = [i for i, x in enumerate(given) if isinstance(x, fnx.Array)]

    def of(*values):
        filled = list(given)
        for i, value in zip(traced, values, strict=True):
            filled[i] = value
        return function(*filled, **options)

    same(fnx.jit(of)(*[given[i] for i in traced]), wanted)


@pytest.mark.parametrize(("name", "args", "options"), KNOWN)
def test_of_known_values(name, args, options):
    wanted = getattr(np, name)(*args, **options)
    if name == "unique_values":  # NumPy may leave them unsorted
        wanted = np.sort(wanted)
    given = [fnp.triu if x is np.triu else arrays(x) for x in args]
    found = getattr(fnp, name)(*given, **options)
    if name == "polydiv":  # NumPy leaves leading zeros of the remainder out
        found = (found[0], fnp.trim_zeros(fnp.round(found[1], 10), "f"))
        rest = np.trim_zeros(np.round(wanted[1], 10), "f")
        wanted = (wanted[0], rest)
    same(found, wanted)


# ---------------------------------------------------------------- changed arrays


def _changed(name, x, *args, **options):
    copy = x.copy()
    getattr(np, name)(copy, *args, **options)
    return copy


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("put", (F, np.array([0, 5, -1]), np.array([7.0, 8.0])), {}),
        ("put", (F, np.array([0, 50, -90]), 3.0), {"mode": "clip"}),
        ("put", (F, np.array([0, 50, -90]), 3.0), {"mode": "wrap"}),
        ("put", (I, np.array([[0, 5]]), np.array([1, 2])), {"mode": "raise"}),
        ("put", (F, np.zeros(0, int), np.zeros(1)), {}),
        ("place", (F, F > 0, np.array([1.0, 2.0, 3.0])), {}),
        ("place", (I, I > 100, np.array([1], "i4")), {}),
        ("fill_diagonal", (F, 5.0), {}),
        ("fill_diagonal", (np.zeros((7, 3)), np.array([1.0, 2.0])), {}),
        ("fill_diagonal", (np.zeros((7, 3)), 4.0), {"wrap": True}),
        ("fill_diagonal", (np.zeros((2, 5)), 4.0), {"wrap": True}),
        ("fill_diagonal", (np.zeros((3, 3, 3)), np.arange(3.0)), {}),
        ("put_along_axis", (F, np.argmax(F, 1, keepdims=True), 9.0, 1), {}),
        ("put_along_axis", (F, np.array([3, 5]), 9.0, None), {}),
    ],
)
def test_what_numpy_changes_in_place(name, args, options, jitted):
    fill = dict(options)
    if name == "put" and options.get("mode") is None:
        fill["mode"] = "clip" if args[1].min(initial=0) >= 0 else "wrap"
    wanted = _changed(name, *args, **fill)
    x, *rest = [arrays(a) for a in args]

    def function(x):
        return getattr(fnp, name)(x, *rest, inplace=False, **options)

    found = (fnx.jit(function) if jitted else function)(x)
    same(found, wanted)
    with pytest.raises(fnx.errors.OptionError, match="never change"):
        getattr(fnp, name)(x, *rest, **options)


def test_put_where_places_are_wrong():
    with pytest.raises(IndexError):
        fnp.put(fnp.zeros(3), fnp.array([3]), 1.0, "raise", inplace=False)
    with pytest.raises(fnx.errors.OptionError, match="mode 'drop'"):
        fnp.put(fnp.zeros(3), fnp.array([0]), 1.0, "drop", inplace=False)


# ---------------------------------------------------------------- sets of a size

SETS = {
    "integers": (np.array([3, 1, 2, 3, 1]), np.array([2, 5, 3, 3])),
    "floats": (np.array([0.5, np.nan, -0.0, 0.0]), np.array([0.5, 2.0])),
    "none": (np.zeros((0,), int), np.array([2, 1])),
    "disjoint": (np.array([[1, 2]]), np.array([7, 8, 9])),
}


@pytest.mark.parametrize("sides", SETS)
@pytest.mark.parametrize("fill", [None, -1])
@pytest.mark.parametrize("name", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_of_a_size_when_traced(name, sides, fill):
    x, y = SETS[sides]
    if name == "setxor1d" and sides == "floats":
        y = np.array([0.5, np.nan])
    exact = np.asarray(getattr(np, name)(x, y))
    for size in (1, 3, 9):
        function = getattr(fnp, name)
        found = fnx.jit(
            lambda x, y, f=function, n=size: f(x, y, size=n, fill_value=fill)
        )
        got = np.asarray(found(x, y))
        kept = min(size, exact.size)
        assert got.shape == (size,)
        if not (sides == "floats" and np.isnan(exact).any()):
            np.testing.assert_array_equal(got[:kept], exact[:kept])
        if fill is not None:
            assert (got[max(kept, exact.size) :] == fill).all()


def test_places_of_an_intersection_of_a_size():
    x, y = np.array([3, 1, 2, 3]), np.array([2, 5, 3])
    options = {"return_indices": True, "size": 3}
    found = fnx.jit(lambda x, y: fnp.intersect1d(x, y, **options))(x, y)
    same(found, [np.asarray(v) for v in jnp.intersect1d(x, y, **options)])


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("size", [1, 2, 6])
@pytest.mark.parametrize("fill", [None, 7])
def test_unique_of_a_size_when_traced(axis, size, fill):
    x = np.array([[1, 3, 3, 1], [1, 2, 2, 1], [1, 3, 3, 1]])
    options = {"axis": axis, "size": size, "fill_value": fill}
    wanted = jnp.unique(x, True, True, True, **options)
    found = fnx.jit(lambda x: fnp.unique(x, True, True, True, **options))(x)
    for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
        # Where groups are left out, JAX counts them among the first: see below.
        if i != 2 or size >= 3:
            np.testing.assert_array_equal(got, np.asarray(want), err_msg=str(i))


@pytest.mark.parametrize("equal_nan", [True, False])
def test_unique_with_nan_when_traced(equal_nan):
    x = np.array([np.nan, 1.0, np.nan, 0.0, -0.0])
    found = fnx.jit(
        lambda x: fnp.unique(x, return_counts=True, equal_nan=equal_nan, size=5)
    )(x)
    counts = [2, 1, 2, 0, 0] if equal_nan else [2, 1, 1, 1, 0]
    assert found[1].tolist() == counts


# ---------------------------------------------------------------- written as an index

GRIDS = [
    lambda lib: lib.mgrid[0:3],
    lambda lib: lib.mgrid[0:2, 1:7:2],
    lambda lib: lib.mgrid[0:1:3j, 0:2],
    lambda lib: list(lib.ogrid[0:2, 1:7:2, 0:1]),
    lambda lib: lib.ogrid[-1:1:5j],
    lambda lib: lib.r_[1:4, 9, F[0]],
    lambda lib: lib.r_[F, F],
    lambda lib: lib.r_["1", F, F],
    lambda lib: lib.r_["0,2", 1:4, 4:7],
    lambda lib: lib.r_["0,2,0", 1:4, 4:7],
    lambda lib: lib.r_["1,2,0", 1:4, 4:7],
    lambda lib: lib.r_["0,3", F, F],
    lambda lib: lib.r_["0,3,1", F, F],
    lambda lib: lib.r_[0:1:5j],
    lambda lib: lib.c_[1:4, 4:7],
    lambda lib: lib.c_[F, F[:, :1]],
    lambda lib: lib.c_[5],
]


@pytest.mark.parametrize("number", range(len(GRIDS)))
def test_arrays_written_as_an_index(number):
    wanted = GRIDS[number](np)
    wanted = [np.asarray(w) for w in wanted] if isinstance(wanted, list) else wanted
    same(GRIDS[number](fnp), wanted)


def test_rows_and_columns():
    assert fnp.r_["r", 1:4].tolist() == [[1, 2, 3]]
    assert fnp.r_["c", 1:3, 7].tolist() == [[1], [2], [7]]


def test_what_the_brackets_do_not_take():
    with pytest.raises(fnx.errors.ArgumentError, match="has no end"):
        fnp.mgrid[1:]
    with pytest.raises(fnx.errors.ArgumentError, match="neither 'r' nor 'c'"):
        fnp.r_["x", 1:2]


# ---------------------------------------------------------------- files and text


def test_files(tmp_path):
    path = tmp_path / "numbers"
    V.tofile(path)
    same(fnp.fromfile(path, "f8", count=3, offset=8), V[1:4])
    path.write_text("1 2 3.5")
    same(fnp.fromfile(path, "f8", sep=" "), np.array([1, 2, 3.5]))
    same(fnp.fromiter(iter(V), "f8", 4), V[:4])
    same(fnp.fromstring("1,2", "i4", 1, sep=","), np.array([1], "i4"))
    file = io.BytesIO()
    fnp.save(file, F)
    file.seek(0)
    same(fnp.load(file), F)


def test_text():
    x = fnp.array(F.astype("f4"))
    assert fnp.array_repr(x) == repr(x)
    assert (
        fnp.array_repr(fnp.asarray(2.0)) == "Array(2., dtype=float32, weak_type=True)"
    )
    assert fnp.array_str(x) == str(x)
    assert fnp.array_str(x, precision=2) == np.array_str(F.astype("f4"), precision=2)
    narrow = fnp.array_repr(fnp.arange(30), max_line_width=30)
    assert max(map(len, narrow.splitlines())) <= 31  # NumPy counts no comma
    small = fnp.array([1e-10, 1.0])
    assert "e-" not in fnp.array_str(small, suppress_small=True)


# ---------------------------------------------------------------- the rest


def test_frexp_has_a_derivative():
    slope = fnx.grad(lambda x: fnp.frexp(x)[0])(6.0)
    assert slope == 0.125


def test_apply_over_axes():
    x = F[None]
    same(fnp.apply_over_axes(fnp.sum, x, (0, 2)), np.apply_over_axes(np.sum, x, (0, 2)))
    same(fnp.apply_over_axes(fnp.cumsum, x, -1), np.apply_over_axes(np.cumsum, x, -1))
    with pytest.raises(fnx.errors.ShapeError, match="apply_over_axes"):
        fnp.apply_over_axes(lambda x, axis: x[None], x, 0)


def test_masks_of_a_size():
    found = fnx.jit(lambda: fnp.mask_indices(3, fnp.triu, size=8))()
    assert [f.tolist() for f in found] == [
        [0, 0, 0, 1, 1, 2, 0, 0],
        [0, 1, 2, 1, 2, 2, 0, 0],
    ]


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress_and_extract_of_a_size(axis):
    condition = np.array([True, False, True])
    wanted = np.compress(condition, F, axis)
    same(fnp.compress(condition, F, axis), wanted)
    traced = fnx.jit(lambda c: fnp.compress(c, F, axis, size=3, fill_value=-1.0))(
        condition
    )
    kept = np.take(traced, range(2), axis or 0)
    same(kept, wanted)
    assert (np.take(traced, [2], axis or 0) == -1).all()
    same(fnp.extract(F > 0, F), np.extract(F > 0, F))
    sized = fnp.extract(F > 0, F, size=12, fill_value=9.0)
    assert (np.asarray(sized)[(F > 0).sum() :] == 9).all()
    with pytest.raises(IndexError):
        fnp.compress([False] * 5 + [True], F, 1)


def test_delete_of_traced_places():
    x, places = np.arange(7.0), np.array([5, -7, 2])
    found = fnx.jit(lambda p: fnp.delete(x, p, assume_unique_indices=True))(places)
    same(found, np.delete(x, places))
    with pytest.raises(fnx.errors.TracerValueError):
        fnx.jit(lambda p: fnp.delete(x, p))(places)


def test_iterable_and_abstract_dtypes():
    assert fnp.iterable(fnp.zeros(2)) and fnp.iterable([])
    assert not fnp.iterable(fnp.zeros(())) and not fnp.iterable(3)
    assert fnp.issubdtype(np.str_, fnp.character)
    assert not fnp.issubdtype("float32", fnp.flexible)
    assert issubclass(fnp.ComplexWarning, Warning)


def test_from_dlpack_copies_when_asked():
    source = np.arange(4.0)
    shared, own = fnp.from_dlpack(source), fnp.from_dlpack(source, copy=True)
    source[0] = 9
    assert shared[0] == 9 and own[0] == 0
    device = fnx.devices("cpu")[0]
    assert fnp.from_dlpack(source, device=device).devices() == {device}
    assert fnp.astype(source, "int32", device=device).device == device


ERRORS = [
    (lambda: fnp.gcd(1.5, 2), fnx.errors.DTypeError, "gcd takes integers"),
    (lambda: fnp.frexp(1j), fnx.errors.DTypeError, "real numbers"),
    (lambda: fnp.packbits(F), fnx.errors.DTypeError, "integers or booleans"),
    (lambda: fnp.unpackbits(I), fnx.errors.DTypeError, "uint8"),
    (lambda: fnp.packbits(U, bitorder="up"), fnx.errors.OptionError, "bitorder"),
    (lambda: fnp.trim_zeros(F, "x"), fnx.errors.OptionError, "trim"),
    (lambda: fnp.polyder(V, -1), fnx.errors.OptionError, "negative"),
    (lambda: fnp.polyint(V, 2, V), fnx.errors.ShapeError, "constants"),
    (lambda: fnp.polydiv(V, F), fnx.errors.ShapeError, "vector"),
    (lambda: fnp.quantile(V, 0.5, weights=W), fnx.errors.OptionError, "inverted_cdf"),
    (lambda: fnp.quantile(V, 0.5, method="x"), fnx.errors.OptionError, "none of"),
    (lambda: fnp.nanmedian(fnp.zeros(0)), fnx.errors.ShapeError, "no elements"),
    (lambda: fnp.histogram(V, "auto"), fnx.errors.OptionError, "depend"),
    (lambda: fnp.histogram(V, 0), fnx.errors.OptionError, "no number of bins"),
    (lambda: fnp.histogramdd(F, (1, 2)), fnx.errors.ShapeError, "2 entries for 4"),
    (lambda: fnp.histogram2d(V, W[:2]), fnx.errors.ShapeError, "length"),
    (lambda: fnp.cov(F, fweights=W[:4]), fnx.errors.DTypeError, "fweights"),
    (lambda: fnp.cov(F, aweights=W), fnx.errors.ShapeError, "aweights"),
    (lambda: fnp.gradient(V, W[:2]), fnx.errors.ShapeError, "coordinates"),
    (lambda: fnp.gradient(V, edge_order=3), fnx.errors.OptionError, "edge_order"),
    (lambda: fnp.isin(I, J, method="x"), fnx.errors.OptionError, "none of"),
    (lambda: fnp.fill_diagonal(V, 1, inplace=False), fnx.errors.ShapeError, "rank 2"),
    (lambda: fnp.diag_indices_from(F), fnx.errors.ShapeError, "one size"),
    (lambda: fnp.ravel_multi_index((3,), (3,)), IndexError, "out of range"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, text = ERRORS[number]
    with pytest.raises(kind, match=text):
        call()


def test_values_must_be_known():
    for function in (fnp.trim_zeros, fnp.unique_all):
        with pytest.raises(fnx.errors.TracerValueError, match="size of the result"):
            fnx.jit(function)(V)
    assert math.isnan(fnp.nanmedian(fnp.array([math.nan])))


@pytest.mark.parametrize("bounds", [(7, -1, -1), (200, 3, -50), (3, 3, -1)])
def test_unsigned_integers_count_down(bounds):
    same(fnp.arange(*bounds, dtype="uint8"), np.arange(*bounds, dtype="u1"))
