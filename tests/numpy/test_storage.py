"""Small floats and integers: stored and converted as ml_dtypes does, in every way.

Where ml_dtypes leaves open what an integer of few bits becomes of a float, it is what
the other integers become: the nearest towards zero, moved inside; NaN is 0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes

INTEGERS = ["int2", "int4", "uint2", "uint4"]
NAMES = [dtype.name for dtype in dtypes.STORAGE if dtype.name not in INTEGERS]
EACH = pytest.mark.parametrize("name", NAMES)
EACH_INTEGER = pytest.mark.parametrize("name", INTEGERS)


def codes(name):
    """All numbers of a dtype."""
    width = 4 if "float4" in name else 6 if "float6" in name else 8
    return np.arange(2**width, dtype=np.uint8).view(getattr(ml_dtypes, name))


def values(rng, name):
    """Numbers of every size, those halfway between two of the dtype, and the ends."""
    exact = codes(name).astype(np.float64)
    exact = np.unique(exact[np.isfinite(exact)])
    halfway = (exact[1:] + exact[:-1]) / 2
    near = np.concatenate(
        [np.nextafter(halfway, np.inf), np.nextafter(halfway, -np.inf)]
    )
    spread = rng.standard_normal(500) * 2.0 ** rng.integers(-30, 30, 500)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300, 2.0**-127, 3e-39]
    return np.concatenate([exact, halfway, near, spread, ends])


def same(found, wanted):
    """The same bits, where it is no NaN, and NaN where that is one."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    is_nan = np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), is_nan)
    wide = f"u{wanted.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(wide)[~is_nan], wanted.view(wide)[~is_nan])


def ways(function):
    """Eagerly, compiled, and compiled with more around it."""
    yield function
    yield fnx.jit(function)
    yield fnx.jit(fnx.vmap(function))


@EACH
@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16"])
def test_rounded_as_ml_dtypes(name, source, rng):
    with np.errstate(all="ignore"):
        x = values(rng, name).astype(dtypes.as_dtype(source))
        wanted = x.astype(np.float32).astype(getattr(ml_dtypes, name))
    without_nan = name.startswith(("float4", "float6"))
    for function in ways(lambda x: x.astype(name)):
        found = np.asarray(function(fnp.array(x)))
        if without_nan:  # NaN has no code there
            keep = ~np.isnan(x.astype(np.float64))
            same(found[keep], wanted[keep])
        else:
            same(found, wanted)


@EACH
@pytest.mark.parametrize("target", ["float64", "float32", "float16", "bfloat16"])
def test_read_as_ml_dtypes(name, target):
    x = codes(name)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32).astype(dtypes.as_dtype(target))
    for function in ways(lambda x: x.astype(target)):
        same(function(fnp.array(x)), wanted)


@EACH
def test_integers_booleans_and_other_formats(name):
    x = codes(name)
    for function in ways(lambda x: (x.astype("int32"), x.astype(bool))):
        whole, truth = function(fnp.array(x))
        exact = x.astype(np.float64)
        with np.errstate(all="ignore"):
            wanted = np.nan_to_num(np.clip(exact, -(2.0**31), 2.0**31 - 1)).astype("i4")
        np.testing.assert_array_equal(whole, wanted)
        np.testing.assert_array_equal(truth, exact != 0)
    numbers = np.arange(-9, 10)
    wanted = numbers.astype(np.float64).astype(getattr(ml_dtypes, name))
    for function in ways(lambda i: i.astype(name)):
        same(function(fnp.array(numbers)), wanted)
    for function in ways(lambda x: x.astype("float8_e5m2")):
        same(function(fnp.array(x)), x.astype(np.float32).astype(ml_dtypes.float8_e5m2))


@EACH
@pytest.mark.parametrize("jitted", [False, True])
def test_stored_arrays_are_moved(name, jitted):
    x = codes(name)[:12].reshape(3, 4)

    def moved(x):
        rows = fnp.concatenate([x, x[::-1]], 0)
        chosen = fnp.where(rows.astype("float32") > 0, rows, rows[:1])
        places = fnp.array([2, 0])
        return rows.T, chosen, x[places], x.reshape(2, 6), fnp.stack([x, x]), x[1, 2]

    wanted_rows = np.concatenate([x, x[::-1]], 0)
    positive = wanted_rows.astype(np.float32) > 0
    wanted = [
        wanted_rows.T,
        np.where(positive, wanted_rows, wanted_rows[:1]),
        x[[2, 0]],
        x.reshape(2, 6),
        np.stack([x, x]),
        x[1, 2],
    ]
    found = (fnx.jit(moved) if jitted else moved)(fnp.array(x))
    for f, w in zip(found, wanted, strict=True):
        same(f, w)


@EACH
def test_made_and_named(name):
    kind = getattr(fnp, name)
    assert kind(1.0).dtype == name
    assert fnp.ones(3, kind).astype("float32").tolist() == [1, 1, 1]
    assert fnp.array([1, 2], name).dtype == np.dtype(getattr(ml_dtypes, name))
    assert fnp.full((2,), 2.0, name).astype(float).tolist() == [2, 2]
    assert str(fnx.typeof(fnp.ones(3, name))) == f"f{name.removeprefix('float')}[3]"
    assert fnp.finfo(name).bits == (
        4 if "float4" in name else 6 if "float6" in name else 8
    )
    x = fnp.array(codes(name))
    for function in ways(lambda x: x.view("uint8")):
        np.testing.assert_array_equal(function(x), np.arange(x.size))


@EACH
def test_nothing_is_computed_in_them(name):
    x = fnp.ones(3, name)
    y = fnp.ones(3, "float32")
    for call in (
        lambda: x + y,
        lambda: x * 2,
        lambda: x + x,
        lambda: fnp.sin(x),
        lambda: fnp.sum(x),
        lambda: fnp.concatenate([x, y]),
        lambda: x @ x,
        lambda: x < x,
        lambda: fnx.jit(lambda x: x + 1)(x),
    ):
        with pytest.raises(fnx.errors.DTypeError):
            call()
    with pytest.raises(fnx.errors.DTypeError, match=f"{name} is for storage"):
        x + y


@EACH
def test_gradients_go_through_conversions(name):
    def stored(x):
        return (x.astype(name).astype("float32") * 2).sum()

    x = fnp.array([0.5, 1.0, 2.0])
    for function in (fnx.grad(stored), fnx.jit(fnx.grad(stored))):
        assert function(x).tolist() == [2, 2, 2]
    assert fnx.jvp(stored, (x,), (x,))[1] == 7


def test_a_program_shows_them_and_keeps_them_on_disk():
    def f(x):
        return x.astype("float8_e4m3fn")

    text = str(fnx.make_jaxpr(f)(fnp.ones(3)))
    assert "f8_e4m3fn[3]" in text
    lowered = fnx.jit(f).lower(fnp.ones(3))
    assert "kernel0" in lowered.as_text("plan")  # compiled, not called back
    assert "u8" in lowered.as_text("kernel")


# ---------------------------------------------------------------- integers


def integers(name):
    """All numbers of a dtype, and their values."""
    bits = int(name[-1])
    low = -(2 ** (bits - 1)) if name.startswith("int") else 0
    exact = np.arange(low, low + 2**bits)
    return exact.astype(getattr(ml_dtypes, name)), exact


@EACH_INTEGER
def test_integers_of_few_bits_saturate_and_wrap(name):
    kind = getattr(ml_dtypes, name)
    _, exact = integers(name)
    for source in ("float64", "float32", "float16", "bfloat16"):
        x = np.array([-9.7, -2.5, -0.5, 0.5, 1.5, 2.5, 3.9, 7.9, 9.2, 15.5, 1e4])
        x = np.concatenate([x, [np.nan, np.inf, -np.inf]]).astype(
            dtypes.as_dtype(source)
        )
        whole = np.nan_to_num(np.trunc(x.astype(np.float64)))
        wanted = np.clip(whole, exact[0], exact[-1]).astype(np.int8).astype(kind)
        for function in ways(lambda x: x.astype(name)):
            same(function(fnp.array(x)), wanted)
    numbers = np.array([-(2**40) - 3, -129, -9, -3, -1, 0, 1, 2, 7, 8, 15, 16, 255])
    for source in ("int64", "int32", "int8", "uint8", "uint64", "bool"):
        x = numbers.astype(source)
        wanted = x.astype(np.int8).astype(kind)
        for function in ways(lambda x: x.astype(name)):
            same(function(fnp.array(x)), wanted)


@EACH_INTEGER
@pytest.mark.parametrize("target", ["float32", "bfloat16", "int8", "uint32", "bool"])
def test_integers_of_few_bits_are_read(name, target):
    x, exact = integers(name)
    wanted = exact.astype(dtypes.as_dtype(target))
    for function in ways(lambda x: x.astype(target)):
        same(function(fnp.array(x)), wanted)
    for function in ways(lambda x: x.astype("float8_e4m3fn").astype(name)):
        same(function(fnp.array(x)), x)


@EACH_INTEGER
def test_integers_of_few_bits_are_made_moved_and_not_computed_with(name):
    x, exact = integers(name)
    array = fnp.array(x)
    assert array.dtype == name and getattr(fnp, name)(1).dtype == name
    assert str(array.type) == f"{name[0]}{name[-1]}[{x.size}]"
    assert (fnp.iinfo(name).min, fnp.iinfo(name).max) == (exact[0], exact[-1])
    for wrap in (lambda f: f, fnx.jit):
        same(wrap(lambda x: x[::-1][:3])(array), x[::-1][:3])
        same(
            wrap(lambda x: fnp.where(x.astype(bool), x, x[1:2]))(array[:4]),
            np.where(exact[:4] != 0, exact[:4], exact[1])
            .astype(np.int8)
            .astype(x.dtype),
        )
        same(wrap(lambda x: x.at[1].set(x[0]))(array), x[[0, 0, *range(2, x.size)]])
    filled = fnp.take(array, fnp.array([0, 99]), mode="fill")
    assert filled[1].astype(int) == (exact[0] or exact[-1])
    for call in (lambda: array + 1, lambda: array @ array, lambda: fnp.sum(array)):
        with pytest.raises(fnx.errors.DTypeError):
            call()


def test_integers_of_few_bits_have_no_gradient():
    def scaled(x, scale):
        return (x.astype("float32") * scale).sum()

    x = fnp.array([1, -8, 7], fnp.int4)
    assert fnx.grad(scaled, 1)(x, 2.0) == 0.0
    with pytest.raises(fnx.errors.DTypeError, match=r"i4\[3\]: there is no"):
        fnx.grad(scaled)(x, 2.0)

    def rounded(x):
        return (x.astype(fnp.int4).astype("float32") * x).sum()

    assert fnx.jit(fnx.grad(rounded))(fnp.array([1.5, -20.0])).tolist() == [1, -8]
