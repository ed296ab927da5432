"""vq, trapezoid, RegularGridInterpolator, map_coordinates: against SciPy and JAX."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
import scipy.interpolate
import scipy.ndimage

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.scipy.cluster.vq import vq
from fnx.scipy.integrate import trapezoid
from fnx.scipy.interpolate import RegularGridInterpolator
from fnx.scipy.ndimage import map_coordinates
from fnx.testing.gradients import check_grads

RNG = np.random.default_rng(0)


# ---------------------------------------------------------------- vq


def test_vq_is_that_of_scipy():
    for shape in ((8, 3), (8,), (0, 3)):
        obs, codes = RNG.standard_normal(shape), RNG.standard_normal((5, *shape[1:]))
        got = vq(obs, codes)
        if shape[0]:
            for ours, theirs in zip(got, scipy.cluster.vq.vq(obs, codes), strict=True):
                np.testing.assert_allclose(ours, theirs, 1e-12)
        for ours, again in zip(got, fnx.jit(vq)(obs, codes), strict=True):
            np.testing.assert_allclose(ours, again, 1e-12)
        assert got[0].shape == got[1].shape == shape[:1]
    code, distance = vq(np.arange(4, dtype="int32"), np.array([1, 1], "int32"))
    assert code.tolist() == [0] * 4 and distance.dtype == np.float32


def test_vq_derivatives_and_members():
    obs, codes = RNG.standard_normal((6, 3)), RNG.standard_normal((4, 3))
    check_grads(lambda a, b: vq(a, b)[1], (obs, codes), 2)
    gradient = fnx.grad(lambda x: fnp.sum(vq(x, codes)[1]))(codes)
    assert not np.asarray(gradient).any()  # of distances that are 0
    got = fnx.vmap(vq, (0, None))(obs[:, None], codes)
    np.testing.assert_array_equal(got[0][:, 0], vq(obs, codes)[0])


def test_vq_errors():
    with pytest.raises(errors.ShapeError, match=r"obs is f64\[2,3\], code_book is"):
        vq(np.ones((2, 3)), np.ones(3))
    with pytest.raises(errors.ShapeError, match="of one width"):
        vq(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(errors.ArgumentError, match="code_book has numbers"):
        vq(np.ones(2), np.array([1.0, np.nan]))
    assert np.isnan(vq(np.ones(2), np.array([np.nan]), check_finite=False)[1]).all()


def test_trapezoid():
    y, x = RNG.standard_normal((3, 7)), np.sort(RNG.standard_normal(7))
    want = scipy.integrate.trapezoid(y, x, axis=1)
    np.testing.assert_allclose(trapezoid(y, x, axis=1), want, 1e-12)
    want = scipy.integrate.trapezoid(y, dx=0.3, axis=0)
    np.testing.assert_allclose(trapezoid(y, dx=0.3, axis=0), want, 1e-12)


# ---------------------------------------------------------------- interpolation

GRID = np.array([0.0, 1.0, 2.5]), np.array([-1.0, 0.0, 0.5, 4.0])
VALUES = RNG.standard_normal((3, 4, 2))
POINTS = np.column_stack([RNG.uniform(0, 2.5, 20), RNG.uniform(-1, 4, 20)])
POINTS = np.concatenate([POINTS, [[0, -1], [2.5, 4], [1, 0.5], [3, 0], [1, -2]]])


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill", [np.nan, 7.0, None])
def test_interpolation_is_that_of_scipy(method, fill):
    options = {"method": method, "bounds_error": False, "fill_value": fill}
    theirs = scipy.interpolate.RegularGridInterpolator(GRID, VALUES, **options)
    ours = RegularGridInterpolator(GRID, VALUES, **options)
    np.testing.assert_allclose(ours(POINTS), theirs(POINTS), 1e-12, 1e-14)
    square = POINTS.reshape(5, 5, 2)
    np.testing.assert_allclose(ours(square), theirs(square), 1e-12, 1e-14)
    apart = tuple(square.transpose(2, 0, 1))
    np.testing.assert_allclose(ours(apart), theirs(square), 1e-12, 1e-14)
    jitted = fnx.jit(lambda f, x: f(x))(ours, POINTS)
    np.testing.assert_allclose(jitted, theirs(POINTS), 1e-12, 1e-14)
    mapped = fnx.vmap(ours)(POINTS)
    np.testing.assert_allclose(mapped[:, 0], theirs(POINTS), 1e-12, 1e-14)
    other = "nearest" if method == "linear" else "linear"
    got, want = ours(POINTS, method=other), theirs(POINTS, method=other)
    np.testing.assert_allclose(got, want, 1e-12, 1e-14)


def test_interpolation_of_one_axis_and_dtypes():
    f = RegularGridInterpolator((np.arange(3),), np.array([0, 10, 40], "int32"))
    assert f(np.array([0.5, 2.0])).tolist() == [5, 40]
    assert f(np.float32([1.5])).dtype == np.float32
    f = RegularGridInterpolator((np.arange(3.0),), np.array([1, 1j, 2]))
    assert f(np.array([0.5])).tolist() == [0.5 + 0.5j]


def test_interpolation_derivatives():
    def run(first, values, x):
        return RegularGridInterpolator((first, GRID[1]), values)(x)

    check_grads(run, (GRID[0], VALUES, POINTS[:20]), 2)


def test_interpolation_errors():
    with pytest.raises(errors.ShapeError, match=r"values is f64\[3,4,2\]"):
        RegularGridInterpolator((GRID[1],), VALUES)
    with pytest.raises(errors.ArgumentError, match=r"points\[0\] do not rise"):
        RegularGridInterpolator((GRID[0][::-1],), VALUES)
    with pytest.raises(errors.OptionError, match="'cubic' is none of"):
        RegularGridInterpolator(GRID, VALUES, "cubic")
    with pytest.raises(errors.OptionError, match="bounds_error=True"):
        RegularGridInterpolator(GRID, VALUES, bounds_error=True)
    with pytest.raises(errors.DTypeError, match="fill_value is c64"):
        RegularGridInterpolator(GRID, VALUES, fill_value=1j)
    with pytest.raises(errors.ShapeError, match=r"2 axes, and xi is f64\[4,3\]"):
        RegularGridInterpolator(GRID, VALUES)(np.ones((4, 3)))


# ---------------------------------------------------------------- map_coordinates

MODES = {
    "constant": "grid-constant",
    "nearest": "nearest",
    "wrap": "grid-wrap",
    "mirror": "mirror",
    "reflect": "reflect",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates_is_that_of_scipy(mode, order):
    for shape in ((5,), (4, 6), (1, 3)):
        x = RNG.standard_normal(shape)
        places = [RNG.uniform(-12, 12, (3, 7)) for _ in shape]
        options = {"order": order, "mode": mode, "cval": -2.0}
        got = map_coordinates(x, places, **options)
        want = scipy.ndimage.map_coordinates(
            x, places, **options | {"mode": MODES[mode]}
        )
        np.testing.assert_allclose(got, want, 1e-9, 1e-12)
        again = fnx.jit(lambda x, p, o=options: map_coordinates(x, p, **o))(x, places)
        np.testing.assert_allclose(again, got, 1e-12, 1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "complex64"])
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates_is_that_of_jax(jax, dtype, order):
    x = (RNG.uniform(0, 9, (4, 5))).astype(dtype)
    places = [RNG.uniform(-2, 6, 50), RNG.integers(-2, 6, 50)]
    places = [p.astype("f4") if p.dtype.kind == "f" else p for p in places]
    got = map_coordinates(x, places, order, "reflect")
    want = jax.scipy.ndimage.map_coordinates(x, places, order, "reflect")
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_map_coordinates_derivatives_and_members():
    x, places = RNG.standard_normal((4, 5)), RNG.uniform(0.1, 2.9, (2, 6)) % 1 + 1.05
    check_grads(lambda x, p: map_coordinates(x, list(p), 1), (x, places), 2)
    got = fnx.vmap(lambda p: map_coordinates(x, list(p), 1), in_axes=1)(places)
    np.testing.assert_allclose(got, map_coordinates(x, list(places), 1), 1e-12)


def test_map_coordinates_errors():
    x = np.ones((2, 3))
    with pytest.raises(errors.ShapeError, match="there are 1 coordinates"):
        map_coordinates(x, [np.ones(2)], 1)
    with pytest.raises(errors.OptionError, match="order is 0 or 1, got 3"):
        map_coordinates(x, [np.ones(2)] * 2, 3)
    with pytest.raises(errors.OptionError, match="mode 'fill' is none of"):
        map_coordinates(x, [np.ones(2)] * 2, 1, "fill")
