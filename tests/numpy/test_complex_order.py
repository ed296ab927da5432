"""Complex numbers have NumPy's order, in comparisons, extrema and rounding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp

_INF, _NAN = np.inf, np.nan
_PARTS = (-_INF, -2.5, -0.0, 0.0, 1.0, 1.5, _INF)
_GRID = np.array([complex(a, b) for a, b in itertools.product(_PARTS, _PARTS)])
_RNG = np.random.default_rng(5)
_SPOILT = np.array([1 + 2j, complex(_NAN, 1), complex(3, _NAN), complex(_NAN, _NAN), 5])


def _pairs(with_nan):
    values = np.concatenate([_GRID, _SPOILT]) if with_nan else _GRID
    return [x.ravel() for x in np.meshgrid(values, values)]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "name",
    "less less_equal greater greater_equal maximum minimum fmax fmin".split(),
)
def test_pairs(name, compiled, dtype):
    x, y = [side.astype(dtype) for side in _pairs(with_nan=True)]
    f = fnx.jit(getattr(fnp, name)) if compiled else getattr(fnp, name)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(x, y)
    np.testing.assert_array_equal(f(x, y), wanted)
    if name == "less":
        np.testing.assert_array_equal(f(x[:9], 1.0), np.less(x[:9], 1))
        np.testing.assert_array_equal(f(2, x[:9]), np.less(2, x[:9]))


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 0, 2)])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin", "ptp"])
def test_extrema(name, compiled, axis):
    x = _RNG.choice(_GRID[np.isfinite(_GRID)], (3, 4, 5))
    spoilt = x.copy()
    spoilt[1, 2, 3], spoilt[1, 2, 1] = complex(_NAN, 1), complex(1, _NAN)
    f = getattr(fnp, name)
    for keepdims in (False, True):
        g = lambda x: f(x, axis=axis, keepdims=keepdims)  # noqa: E731,B023
        for values in (x, spoilt):
            wanted = getattr(np, name)(values, axis=axis, keepdims=keepdims)
            found = (fnx.jit(g) if compiled else g)(values)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin", "nanargmax", "nanargmin"])
def test_places(name, axis):
    x = _RNG.choice(_GRID, (6, 40))
    f = fnx.jit(lambda x: getattr(fnp, name)(x, axis))
    g = getattr(np, name)
    for values in (x, np.where(_RNG.uniform(size=x.shape) < 0.1, _NAN, x)):
        np.testing.assert_array_equal(f(values), g(values, axis))
        np.testing.assert_array_equal(getattr(fnp, name)(values, axis), g(values, axis))
    low = np.array([complex(-_INF, -_INF)] * 3)
    assert int(fnp.argmax(low)) == 0


def test_options_of_extrema():
    x = _RNG.choice(_GRID[np.isfinite(_GRID)], (4, 5))
    there = x.real > 0
    wanted = np.max(x, axis=1, where=there, initial=-9 + 1j)
    found = fnp.max(x, axis=1, where=there, initial=-9 + 1j)
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(fnx.errors.ShapeError):
        fnp.max(fnp.zeros((0,), "complex64"))


def test_the_gradient_of_an_extremum_is_that_of_its_element():
    z = np.array([1 + 2j, 3 - 1j, 3 + 1j])
    grad = fnx.grad(lambda z: fnp.real(fnp.max(z) ** 2))(z)
    np.testing.assert_allclose(grad, [0, 0, 2 * (3 + 1j)])


@pytest.mark.parametrize("name", ["rint", "round"])
def test_rounding_is_that_of_both_parts(name):
    z = np.concatenate([_GRID, _SPOILT, [2.5 - 3.5j, -0.4 + 0.6j]])
    for f in (getattr(fnp, name), fnx.jit(getattr(fnp, name))):
        np.testing.assert_array_equal(f(z), getattr(np, name)(z))


def test_places_in_sorted_complex_numbers():
    x = np.sort(_RNG.choice(_GRID, 20))
    for side in ("left", "right"):
        found = fnp.searchsorted(x, _GRID, side)
        np.testing.assert_array_equal(found, np.searchsorted(x, _GRID, side))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_products_of_complex_numbers_are_compiled(n, reverse, axis):
    shape = [3, 3]
    shape[axis] = n
    z = (_RNG.normal(size=shape) + 1j * _RNG.normal(size=shape)) / 1.2
    f = fnx.jit(lambda z: fnx.lax.cumprod(z, axis=axis, reverse=reverse))
    assert "host" not in f.lower(z).as_text("plan")
    turned = np.flip(z, axis) if reverse else z
    wanted = np.cumprod(turned, axis)
    wanted = np.flip(wanted, axis) if reverse else wanted
    np.testing.assert_allclose(f(z), wanted, rtol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
def test_extrema_of_lax(compiled):
    def wrapped(f):
        return fnx.jit(f) if compiled else f

    x, y = _pairs(with_nan=True)
    for name, known in (("max", np.maximum), ("min", np.minimum)):
        f = getattr(fnx.lax, name)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(wrapped(f)(x, y), known(x, y))
        found = wrapped(lambda x, f=f: f(x, 1 + 1j))(_GRID)
        np.testing.assert_array_equal(found, known(_GRID, 1 + 1j))
    rows = _RNG.choice(_GRID, (5, 6))
    largest = wrapped(lambda x: fnx.lax.reduce_max(x, (1,)))(rows)
    np.testing.assert_array_equal(largest, np.max(rows, 1))
    smallest = wrapped(lambda x: fnx.lax.reduce_min(x, (1,)))(rows)
    np.testing.assert_array_equal(smallest, np.min(rows, 1))
    low, high = np.array(-1 - 1j), np.array(1 + 2j)
    found = wrapped(fnx.lax.clamp)(low, _GRID, high)
    np.testing.assert_array_equal(found, np.minimum(np.maximum(_GRID, low), high))
