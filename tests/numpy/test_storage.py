"""Floats of 8 bits and fewer: stored and converted as ml_dtypes does, in every way."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes

NAMES = [dtype.name for dtype in dtypes.STORAGE]
EACH = pytest.mark.parametrize("name", NAMES)


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
