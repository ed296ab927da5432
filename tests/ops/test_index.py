"""What the cases of gathers and scatters cannot say: who wins, and NumPy's takes."""

from __future__ import annotations

import numpy as np
import pytest

from fnx.core.primitive import LinearInput
from fnx.ops.gather import points
from fnx.ops.index import take, take_along
from fnx.ops.scatter import scatter, scatter_max, scatter_min, scatter_mul
from fnx.ops.window_dims import WindowDims
from fnx.runtime.array import from_numpy

POINTS = WindowDims((), (0,), (0,))
WINDOWS = WindowDims((1,), (), (0,))
WINDOWS_FIRST = WindowDims((0,), (), (0,))


def column(*places):
    return from_numpy(np.array(places)[:, None])


def array(*values):
    return from_numpy(np.array(values, float))


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_the_last_update_wins_and_gets_the_gradient(mode):
    x, updates, places = array(1, 2, 3), array(10, 20, 30, 40), column(0, 2, 0, 5)
    params = {"dims": POINTS, "mode": mode, "unique": False}
    out = np.asarray(scatter(x, places, updates, **params))
    clip = mode == "clip"
    np.testing.assert_array_equal(out, [30, 2, 40 if clip else 20])
    inputs = LinearInput(x.type), places, LinearInput(updates.type)
    at_x, _, at_updates = scatter.transpose(array(1, 2, 3), *inputs, **params)
    np.testing.assert_array_equal(at_x, [0, 2, 0])
    np.testing.assert_array_equal(
        at_updates, [0, 0 if clip else 3, 1, 3 if clip else 0]
    )


@pytest.mark.parametrize(
    ("dims", "wanted"),
    # Row-major order of the updates: window by window, or place in the window first.
    [(WINDOWS, [1, 4, 5, 6, 0]), (WINDOWS_FIRST, [1, 2, 3, 6, 0])],
)
def test_overlapping_windows_are_written_in_the_order_of_the_updates(dims, wanted):
    updates = np.arange(1.0, 7.0).reshape(2, 3)
    if dims is WINDOWS_FIRST:
        updates = updates.T
    given = array(0, 0, 0, 0, 0), column(0, 1), from_numpy(updates.copy())
    out = np.asarray(scatter(*given, dims=dims))
    in_order = np.zeros(5)
    for i, j in np.ndindex(updates.shape):
        window, place = (i, j) if dims is WINDOWS else (j, i)
        in_order[window + place] = updates[i, j]
    np.testing.assert_array_equal(out, in_order)
    np.testing.assert_array_equal(out, wanted)


def test_the_tied_of_an_extremum_share_equally():
    x, places, updates = array(5, 1, 0), column(0, 0, 1, 1), array(5, 5, 2, 1)
    shares = np.zeros((3, 7))
    shares[0, [0, 3, 4]] = 1 / 3
    shares[1, 5] = 1
    shares[2, 2] = 1
    params = {"dims": POINTS, "mode": "clip", "unique": False}
    for function, sign in ((scatter_max, 1), (scatter_min, -1)):
        primals = [from_numpy(sign * np.asarray(a)) for a in (x, updates)]
        found = []
        for row in np.eye(7):
            t, t_updates = from_numpy(row[:3].copy()), from_numpy(row[3:].copy())
            rule = function.jvp(
                (primals[0], places, primals[1]), (t, None, t_updates), **params
            )
            found.append(np.asarray(rule[1]))
        np.testing.assert_allclose(np.transpose(found), shares, 1e-15)


def test_the_gradient_of_a_product_with_one_factor_zero():
    x, places, updates = array(2, 3), column(0, 0, 0, 1), array(0, 5, 7, 0)
    params = {"dims": POINTS, "mode": "clip", "unique": False}
    found = []
    for row in np.eye(4):
        tangents = None, None, from_numpy(row.copy())
        rule = scatter_mul.jvp((x, places, updates), tangents, **params)
        found.append(np.asarray(rule[1]))
    np.testing.assert_array_equal(found, [[70, 0], [0, 0], [0, 0], [0, 3]])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_take_is_that_of_numpy(rng, axis, shape):
    x, indices = rng.standard_normal((3, 4, 5)), rng.integers(0, 3, shape)
    found = take(from_numpy(x), from_numpy(np.asarray(indices)), axis)
    np.testing.assert_array_equal(found, np.take(x, indices, axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_along_is_that_of_numpy(rng, axis):
    x = rng.standard_normal((3, 4, 5))
    indices = rng.permuted(np.argsort(x, axis), axis=axis)
    found = take_along(from_numpy(x), from_numpy(indices), axis)
    np.testing.assert_array_equal(found, np.take_along_axis(x, indices, axis))


def test_points():
    found = points(array(5, 6, 7), from_numpy(np.array([[2, 0], [1, 1]])))
    np.testing.assert_array_equal(found, [[7, 5], [6, 6]])
