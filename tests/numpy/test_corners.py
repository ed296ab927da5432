"""Corners of the functions of `fnx.numpy`, against NumPy: eager and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from tests.numpy.given import arrays, same

A = np.arange(24.0).reshape(2, 3, 4)
M = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
YES = np.ones((2, 2), bool)
NAN = np.nan
U = np.array([200, 100, 7], "u1")
LINE = np.array([0.0, 1.0, 3.0]), np.array([2.0, 5.0, -1.0])
AT = np.array([-2.0, 0.0, 0.5, 2.0, 3.0, 7.5])

CALLS = [
    ("average", (A,), {"axis": (2, 0), "weights": np.arange(1.0, 9).reshape(4, 2)}),
    ("average", (A,), {"axis": (0, 2), "weights": np.arange(1.0, 9).reshape(2, 4)}),
    ("average", (A,), {"axis": (-1,), "weights": np.arange(1.0, 5), "returned": True}),
    ("roll", (M, (1, 2)), {"axis": 1}),
    ("roll", (M, (1, -2)), {"axis": (1, 1)}),
    ("roll", (M, 1), {"axis": (0, 1)}),
    ("roll", (M, np.array([1, 2])), {"axis": (0, -1)}),
    ("roll", (M, np.array([4], "u1")), {"axis": 1}),
    ("resize", (np.zeros(0), (2, 2)), {}),
    ("max", (YES,), {"initial": 0}),
    ("min", (YES, 1), {"initial": False, "keepdims": True}),
    ("max", (np.zeros((0, 2), "c8"), 0), {"initial": 1 + 2j}),
    ("min", (np.zeros((2, 0), "c16"), 1), {"initial": 1 - 2j, "keepdims": True}),
    ("einsum", ("ij->", YES), {}),
    ("einsum", ("ij->j", ~YES), {}),
    ("einsum", ("ab,cd->", YES, YES), {}),
    ("einsum", ("ab,bd->a", YES, ~YES), {}),
    ("size", (A, (0, -1)), {}),
    ("size", (A, ()), {}),
    ("delete", (M, [], 1), {}),
    ("insert", (M, [], 7.0, 1), {}),
    ("insert", (M, 1, np.array([8.0, 9.0]), 1), {}),
    ("insert", (M, -1, np.array([[8.0], [9.0]]), 1), {}),
    ("insert", (A, 2, M[:, [0, 1, 2, 0]], 1), {}),
    ("insert", (A, 0, np.array([8.0, 9.0, 7.0, 6.0]), 0), {}),
    ("insert", (M, [1], np.array([[8.0], [9.0]]), 1), {}),
    ("interp", (AT, *LINE), {"period": -4.0}),
    ("interp", (AT, *LINE), {"period": 2.5}),
    ("interp", (AT, LINE[0], LINE[1] * (1 - 2j)), {}),
    ("interp", (AT, LINE[0], LINE[1] * (1 - 2j)), {"left": 3j, "right": 1.0}),
    ("digitize", (np.array([0.5, 2, NAN, -1]), np.array([0, 1, NAN])), {}),
    ("digitize", (np.array([0.5, 2, NAN, 0]), np.array([NAN, 1, 0])), {}),
    ("digitize", (np.array([0.5, 2, NAN, 0]), np.array([NAN, 1, 0])), {"right": True}),
    ("polyder", (np.array([True, True, True]),), {}),
    ("trapezoid", (U.astype("f8"), U.astype("f8")), {}),
    ("bincount", (np.array([0, 2, 2]), np.array([True, True, True])), {}),
]


@pytest.mark.parametrize(("name", "args", "options"), CALLS)
def test_as_numpy(name, args, options):
    wanted = getattr(np, name)(*args, **options)
    function = getattr(fnp, name)
    ours = {k: arrays(v) for k, v in options.items()}
    same(function(*map(arrays, args), **ours), wanted)
    if name in ("size", "resize", "bincount", "delete"):
        return
    places = [i for i, x in enumerate(args) if isinstance(x, np.ndarray)]

    def of_arrays(*given):
        row = list(args)
        for i, x in zip(places, given, strict=True):
            row[i] = x
        return function(*row, **ours)

    same(fnx.jit(of_arrays)(*[fnp.array(args[i]) for i in places]), wanted)


def test_extrema_keep_the_dtype_beside_an_initial_value():
    assert fnp.max(fnp.array(YES), initial=0).dtype == np.bool_
    assert fnp.max(fnp.array([1, 2]), initial=1.5).dtype == np.int32
    assert fnp.nanmin(fnp.array([1.0], "f2"), initial=3).dtype == np.float16


def test_the_ends_of_a_line_can_be_continued():
    where, heights = map(fnp.array, LINE)
    both = fnp.interp(AT, where, heights, "extrapolate", "extrapolate")
    same(both, np.array([-4.0, 2.0, 3.5, 2.0, -1.0, -14.5]))
    same(
        fnp.interp(AT, where, heights, left="extrapolate"),
        np.array([-4, 2, 3.5, 2, -1, -1.0]),
    )
    same(
        fnp.interp(AT, where, heights, 9, "extrapolate"),
        np.array([9, 2, 3.5, 2, -1, -14.5]),
    )
    slope = fnx.grad(lambda x: fnp.interp(x, where, heights, right="extrapolate"))
    assert float(slope(9.0)) == -3.0
    one = fnp.array([1.0])
    assert fnp.interp(7.0, one, one, "extrapolate", "extrapolate").item() == 1.0


def test_rolling_by_traced_shifts():
    for shift in (-7, -1, 0, 2, 9):
        rolled = fnx.jit(lambda s: fnp.roll(fnp.array(M), s, 1))(shift)
        same(rolled, np.roll(M, shift, 1))
        flat = fnx.jit(lambda s: fnp.roll(fnp.array(M), s))(fnp.array([shift]))
        same(flat, np.roll(M, shift))
    shifts = fnp.array([0, 1, 5], "uint8")
    mapped = fnx.vmap(lambda x, s: fnp.roll(x, s), in_axes=(1, 0))(fnp.array(M), shifts)
    wanted = [np.roll(M[:, i], int(s)) for i, s in enumerate(shifts)]
    same(mapped, np.array(wanted))
    slope = fnx.grad(lambda x: fnp.roll(x, fnx.lax.stop_gradient(shifts[1]))[0])
    assert slope(fnp.array([1.0, 2.0, 3.0])).tolist() == [0.0, 0.0, 1.0]


def test_areas_of_small_integers_do_not_wrap():
    same(fnp.trapezoid(fnp.array(U)), 203.5)
    same(fnp.trapezoid(fnp.array([1.0, 1.0, 1.0]), fnp.array(U)), -193.0)


def test_weights_that_are_booleans_count():
    values, yes = fnp.array([0.0, 1.0, 1.0]), fnp.array([True, True, True])
    for run in (lambda f: f, fnx.jit):
        counts, _ = run(lambda x, w: fnp.histogram(x, 2, weights=w))(values, yes)
        same(counts, np.array([1, 2]))


def test_counts_of_complex_numbers_are_real():
    points = fnp.array([1 + 1j, 2, 0])
    assert fnp.histogram(points, 2)[0].dtype == np.float32


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: fnp.isposinf(x * 1j), errors.DTypeError, "isposinf: the infinity"),
        (lambda x: fnp.isneginf(x * 1j), errors.DTypeError, "isneginf: the infinity"),
        (lambda x: fnp.fabs(x * 1j), errors.DTypeError, "fabs takes real numbers"),
        (lambda x: fnp.interp(x * 1j, x, x), errors.DTypeError, "interp: x is c64"),
        (lambda x: fnp.interp(x, x * 1j, x), errors.DTypeError, "interp: xp is c64"),
        (lambda x: fnp.interp(x, x, x, "up"), errors.OptionError, "left is a value"),
        (lambda x: fnp.interp(x, x, x, period=0), errors.OptionError, "not be 0"),
        (lambda x: fnp.interp(x, x, x, period=x), errors.ShapeError, "a number"),
        (
            lambda x: fnp.digitize(x, x[None]),
            errors.ShapeError,
            "bins must be a vector",
        ),
        (
            lambda x: fnp.percentile(x, [1, 2]),
            errors.ArgumentError,
            "^percentile takes",
        ),
        (
            lambda x: fnp.roll(x[None], (1, 2), (0, 1, 1)),
            errors.ShapeError,
            "roll: shi",
        ),
        (lambda x: fnp.roll(x, (1, 2), (0, 2)), errors.AxisError, "roll: axis 2"),
        (lambda x: fnp.insert(x, 1, x[None]), errors.ShapeError, "insert: values"),
        (lambda x: fnp.insert(x, [1, 2], x), errors.ShapeError, "insert: values"),
        (lambda x: fnp.size(x, (0, 1)), errors.AxisError, "size: axis 1"),
        (
            lambda x: fnp.average(x[None], (0, 1), x[:, None]),
            errors.ShapeError,
            "average: weights",
        ),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(fnp.array([0.0, 1.0, 2.0]))


def test_logarithms_of_sums_of_complex_exponentials():
    a = fnp.array([1 + 2j, 3j, -1 + 1j, 500 + 3j])
    b = fnp.array([2 - 1j, 3j, -1 - 2j, 499 + 3j])
    wanted = np.log(np.exp(np.asarray(a[:3])) + np.exp(np.asarray(b[:3])))
    for run in (lambda f: f, fnx.jit):
        found = run(fnp.logaddexp)(a, b)
        np.testing.assert_allclose(found[:3], wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[3].imag, 3.0, rtol=1e-6)
    nothing = fnp.array(complex(-np.inf, 0))
    assert fnp.logaddexp(nothing, nothing).real == -np.inf
