"""What NumPy computes at once eagerly is what the functions themselves give."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.core import hooks
from fnx.numpy import on_numpy

_RNG = np.random.default_rng(3)
_TYPES = ("int8", "uint8", "int32", "uint32", "int64", "float32", "float64")


def _whole(dtype, shape=(12,), low=0, high=9):
    return _RNG.integers(low, high, shape).astype(dtype)


def _real(dtype, shape=(12,)):
    x = _RNG.normal(size=shape).astype(dtype)
    x.flat[:2] = [0.0, -0.0]
    return x


def _ends(dtype):
    info = np.iinfo(dtype)
    return np.array([info.min, info.max, 0, 1, 12, info.max // 3, info.min + 1], dtype)


def _cases():
    """(name, arguments, options): those that NumPy is to serve."""
    for dtype in ("int8", "uint8", "int32", "uint32", "int64"):
        x = _whole(dtype)
        yield "bincount", (x,), {}
        yield "bincount", (x,), {"length": 4}
        yield "bincount", (x, None, 20), {}
        yield "bincount", (x, _real("float32")), {}
        yield "bincount", (x, _real("float64"), 3), {"length": 7}
        yield "bincount", (x, _whole("int32")), {}
        yield "bincount", (x[:0],), {}
        yield "bincount", (x[:0], _real("float32")[:0], 4), {}
        yield "gcd", (_ends(dtype), _ends(dtype)[::-1].copy()), {}
        yield "lcm", (_ends(dtype), _ends(dtype)[::-1].copy()), {}
        yield "lcm", (_whole(dtype, (3, 4)), _whole(dtype, (4,))), {}
        yield "gcd", (_whole(dtype, (3, 1)), _whole(dtype, (4,))), {}
        yield "gcd", (_whole(dtype, ()), _whole(dtype, ())), {}
        yield "bitwise_count", (_ends(dtype),), {}
        yield "packbits", (_whole(dtype, (3, 10), 0, 2), 1, "little"), {}
        yield "packbits", (_whole(dtype, (3, 10), 0, 2),), {}
    yield "bincount", (np.array([-3, 0, 2, -1, 2]),), {}
    yield "bincount", (np.array([-3, 0, 2, -1, 2]), _real("float32")[:5]), {}
    for dtype in _TYPES:
        x, order = _whole(dtype, (3, 4)), np.argsort(_real("float32", (3, 4)), 1)
        for axis, places in ((1, order), (0, order[:1] % 3), (-1, order - 4)):
            yield "take_along_axis", (x, places, axis), {}
        yield "nonzero", (x % 3,), {}
        yield "nonzero", (x[:0],), {}
        yield "compress", (np.array([True, False, True]), x), {}
        yield "compress", (np.array([0, 3, 1]), x, 1), {}
        yield "extract", (x > 3, x), {}
        yield "delete", (x, 2), {}
        yield "delete", (x, -1, 1), {}
        yield "delete", (x, slice(None, None, 2), 0), {}
        yield "insert", (x, 2, 5), {}
        yield "insert", (x[0], -1, x[1]), {}
        yield "insert", (x[0], 0, x[0, 0]), {}
        few = x % 3
        for axis in (None, 0, -1):
            for name in ("argmax", "argmin", "sort", "argsort"):
                yield name, (few, axis), {}
                yield name, (few[0, :1], axis), {}
            yield "take", (x, np.array([[0, -1], [2, 0]]), axis), {}
            yield "take", (x, np.array(1), axis), {}
        for side in ("left", "right"):
            yield "searchsorted", (np.sort(x.ravel()), x, side), {}
        for edges in (np.sort(x[0]), np.sort(x[0])[::-1].copy()):
            yield "digitize", (x, edges), {}
            yield "digitize", (x, edges, True), {}
        for mode in ("full", "same", "valid"):
            yield "convolve", (x[0], x[1][:3], mode), {}
            yield "convolve", (x[1][:2], x[0], mode), {}
            yield "correlate", (x[0], x[1][:3], mode), {}
            yield "correlate", (x[1][:2], x[0], mode), {}
    for dtype in ("int32", "int64", "uint32"):
        yield "polyadd", (_whole(dtype), _whole(dtype)[:2]), {}
        yield "polysub", (_ends(dtype)[:3], _ends(dtype)), {}
        yield "unravel_index", (_whole(dtype), (3, 4)), {}
        yield "unravel_index", (_whole(dtype, (2, 3)), 9), {}
    byte = _whole("uint8", (2, 3), 0, 256)
    for count in (None, 5, -3, 30):
        yield "unpackbits", (byte, 1, count), {}
        yield "unpackbits", (byte,), {"count": count, "bitorder": "little"}
    for dtype in ("float32", "float64"):
        tiny = np.finfo(dtype).smallest_subnormal
        odd = np.array([0, -0.0, np.inf, -np.inf, np.nan, tiny, -3 * tiny, 1, 7], dtype)
        for name in ("argmax", "argmin", "sort", "argsort", "median"):
            for there in (odd, odd[:4], odd[::-1].copy(), odd.reshape(3, 3)):
                yield name, (there,), {}
        for axis in (None, 0, -1):
            for q in (0, 0.1, 0.5, 0.7, 1):
                for size in (3, 4):
                    yield "quantile", (_real(dtype, (5, size, 4)), q, axis), {}
                yield "quantile", (odd.reshape(3, 3), q, axis), {}
        yield "median", (_real(dtype, (3, 4)), 1), {}
        for count in (1, 3, 10, 50):
            yield "histogram", (_real(dtype, (5, 40)), count), {}
            yield "histogram", (np.full(3, 0.1, dtype), count), {}
        edges = np.linspace(0.1, 0.7, 13).astype(dtype)
        yield "histogram", (edges, 12), {}
        yield "frexp", (odd,), {}
        yield "frexp", (_real(dtype, (2, 3)),), {}
        yield "nanmedian", (odd[5:],), {}
        yield "nanmedian", (odd[4:8],), {}
        yield "nanmedian", (odd[4:5],), {}
        yield "det", (_real(dtype, (7, 7)),), {}
        yield "det", (np.ones((6, 6), dtype),), {}
        xp = np.array([-1, 0, 0, 0.5, 2], dtype)
        at = np.concatenate([_real(dtype), xp, np.array([np.nan, 9, -9], dtype)])
        yield "interp", (at, xp, _real(dtype)[:5]), {}
        yield "interp", (at.reshape(4, 5), xp[[0, 4]], _real(dtype)[2:4]), {}
        yield "interp", (at[3], xp, _real(dtype)[:5]), {}
        yield "slogdet", (_real(dtype, (7, 7)),), {}
        yield "slogdet", (_real(dtype, (1, 1)),), {}
        yield "slogdet", (np.zeros((3, 3), dtype),), {}
        yield "slogdet", (np.zeros((0, 0), dtype),), {}
        for shape in ((7, 3), (3, 7), (4, 4), (1, 1)):
            matrix = _real(dtype, shape) + 4 * np.eye(*shape, dtype=dtype)
            yield "lstsq", (matrix, _real(dtype, shape[:1])), {}
            yield "lstsq", (matrix, _real(dtype, (shape[0], 2))), {}
            yield "lstsq", (matrix, _real(dtype, shape[:1]), 0.5), {}
        yield "lstsq", (np.ones((5, 3), dtype), _real(dtype, (5,))), {}
        yield "polyadd", (_real(dtype)[:3], _real(dtype)), {}
        yield "polysub", (_real(dtype), _real(dtype)[:3]), {}
        yield "polysub", (_real(dtype)[:0], _real(dtype)[:3]), {}
        for size in (1, 4):
            yield "poly", (_real(dtype, (5,))[:size],), {}
        ahead = np.linspace(-1, 2, 12).astype(dtype)
        yield "polyfit", (ahead, _real(dtype), 3), {}
        yield "polyfit", (ahead, _real(dtype, (12, 2)), 2), {}
        yield "polyfit", (ahead, _real(dtype), 2, 1e-3), {}
        yield "polyfit", (ahead[:2], _real(dtype)[:2], 0), {}
        yield "sort_complex", (odd,), {}
        yield "sort_complex", (_real(dtype, (3, 4)),), {}
        nans = np.array([np.nan, 1.0, -np.inf, np.inf, 0.0], dtype)
        yield "searchsorted", (np.sort(nans), nans), {}


_SAME_ARITHMETIC = ("sort", "take", "median", "quantile", "histogram")


def _public(name):
    of_matrices = name in ("det", "slogdet", "lstsq")
    return getattr(fnp.linalg if of_matrices else fnp, name)


def _by_itself(f, *args, **options):
    """What the function gives while calls are watched."""
    hooks.busy.append(None)
    try:
        return f(*args, **options)
    finally:
        hooks.busy.pop()


@pytest.mark.parametrize("name", dict.fromkeys([case[0] for case in _cases()]))
def test_the_short_way_gives_what_the_function_gives(name):
    for _, args, options in [case for case in _cases() if case[0] == name]:
        args = [np.asarray(x) if isinstance(x, np.generic) else x for x in args]
        with np.errstate(all="ignore"):
            assert getattr(on_numpy, name)(*args, **options) is not NotImplemented
        arrays = [fnp.array(x) if isinstance(x, np.ndarray) else x for x in args]
        found = _public(name)(*arrays, **options)
        wanted = _by_itself(_public(name), *arrays, **options)
        many = found if isinstance(found, tuple) else (found,)
        others = wanted if isinstance(wanted, tuple) else (wanted,)
        for x, y in zip(many, others, strict=True):
            assert x.type == y.type, (args, options)
            loose = 2e-6 if x.dtype == np.float32 else 1e-14
            near = {"rtol": loose, "atol": loose * 4}
            if x.dtype.kind != "f":
                near = {"rtol": 0, "atol": 0}
            np.testing.assert_allclose(x, y, **near, err_msg=str((args, options)))
            if name in _SAME_ARITHMETIC:
                same = np.signbit(x) == np.signbit(y)
                assert (same | np.isnan(x)).all(), (args, options)
                np.testing.assert_array_equal(x, y, err_msg=str((args, options)))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(2, 4), (3, 4), (4, 2), (5, 5), (1, 3), (2, 7)])
def test_a_correlation_is_numpy_s_whichever_is_longer(sizes, mode):
    x, y = [_RNG.normal(size=n) + 1j * _RNG.normal(size=n) for n in sizes]
    for f in (fnp.correlate, fnx.jit(fnp.correlate, static_argnums=2)):
        np.testing.assert_allclose(f(x, y, mode), np.correlate(x, y, mode), rtol=1e-13)


@pytest.mark.parametrize("bits", [32, 64])
def test_integers_have_the_default_dtype(bits):
    with fnx.default_dtypes(bits):
        x = fnp.array(np.array([0, 3, 0, 1], np.int8))
        assert fnp.bincount(x).dtype == fnp.nonzero(x)[0].dtype == f"int{bits}"


def test_errors_and_rare_arguments_are_the_function_s():
    x = fnp.arange(4)
    with pytest.raises(fnx.errors.IndexOutOfRange):
        fnp.take(x, fnp.array([7]))
    for f in (fnp.argmax, fnp.sort, fnp.argsort, fnp.median):
        with pytest.raises(fnx.errors.AxisError):
            f(x, 3)
    assert fnp.sort(fnp.array([1, 2]), descending=True).tolist() == [2, 1]
    assert fnp.argmax(fnp.zeros((2, 2)), keepdims=True).shape == (1, 1)
    assert fnp.sort(fnp.asarray(2.0)[None]).type.weak
    with pytest.raises(fnx.errors.IndexOutOfRange):
        fnp.take_along_axis(x, fnp.array([7]), 0)
    with pytest.raises(fnx.errors.ShapeError, match="vector"):
        fnp.bincount(fnp.zeros((2, 2), "int32"))
    assert [int(i) for i in fnp.unravel_index(fnp.array(99), (2, 3))] == [1, 0]
    weak = fnp.asarray(3)
    assert fnp.gcd(weak, weak).type.weak
    assert fnp.bincount(fnp.array([1, 1]), length=0).shape == (0,)


def test_methods_are_the_functions():
    x = fnp.array(np.array([3.0, 1.0, 2.0], np.float32))
    for _ in range(40):
        assert int(x.argmax()) == 0 and int(x.argmin()) == 1
        assert x.argsort().tolist() == [1, 2, 0]
        assert x.sort().tolist() == [1.0, 2.0, 3.0]
        assert x.take(fnp.array([-1])).tolist() == [2.0]
        assert int(x.sort().searchsorted(fnp.array(np.float32(2.5)))) == 2


def test_nothing_shares_memory_with_an_argument():
    x = np.arange(6.0)
    made = [
        fnp.delete(x, slice(0, 0)),
        fnp.compress(np.ones(6, bool), x),
        fnp.interp(x, x, x),
        fnp.extract(np.ones(6, bool), x),
    ]
    x[:] = -1
    assert all(bool((y >= 0).all()) for y in made)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_become_integers_saturating(source, dtype):
    info = np.iinfo(dtype)
    ends = [info.min, info.max, np.inf, -np.inf, np.nan, 1e30]
    x = np.array([*ends, 1.9, -1.9, 0.0], source)
    whole = [info.min, info.max, info.max, info.min, 0, info.max]
    wanted = np.array([*whole, 1, max(-1, info.min), 0], dtype)
    np.testing.assert_array_equal(fnp.astype(x, dtype), wanted)
    for value, number in zip(x, wanted, strict=True):
        assert int(fnp.astype(fnp.array(value), dtype)) == number
