"""Shifts and places that are arguments of compiled functions, against NumPy.

`roll` and `insert` with numbers that are known when a function is traced are in
`test_names.py` and `test_array_api.py`; here they are traced, alone and under `vmap`.
Next: `test_orders.py`.
"""

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.errors import DTypeError, ShapeError

X = np.arange(35, dtype="float32").reshape(5, 7)
SHIFTS = [-36, -8, -7, -1, 0, 3, 7, 35, 100]

ROLLS = {
    "all elements": lambda m, x, n: m.roll(x, n),
    "columns": lambda m, x, n: m.roll(x, n, 1),
    "both axes": lambda m, x, n: m.roll(x, (n, 2), (0, -1)),
    "both axes alike": lambda m, x, n: m.roll(x, n, (0, 1)),
    "an array of shifts": lambda m, x, n: m.roll(x, m.stack([n, 2 * n]), (0, 1)),
    "shifts that add up": lambda m, x, n: m.roll(x, (n, 3), 1),
    "nothing": lambda m, x, n: m.roll(x[:, :0], n, 1),
}


@pytest.mark.parametrize("name", ROLLS)
def test_roll_by_a_traced_shift(name):
    rolled = ROLLS[name]
    compiled = fnx.jit(lambda x, n: rolled(fnp, x, n))
    for n in SHIFTS:
        np.testing.assert_array_equal(compiled(X, n), rolled(np, X, np.int32(n)))
    many = fnx.vmap(compiled, in_axes=(None, 0))(X, fnp.array(SHIFTS))
    wanted = [rolled(np, X, np.int32(n)) for n in SHIFTS]
    np.testing.assert_array_equal(many, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "int64", "bool"])
def test_shifts_of_any_integer_type(dtype):
    x = np.arange(300)
    shift = np.array(200).astype(dtype)
    found = fnx.jit(fnp.roll)(x, shift)
    np.testing.assert_array_equal(found, np.roll(x, int(shift)))


def test_the_gradient_of_a_roll_rolls_back():
    weights = np.linspace(-1, 1, X.size, dtype="float32").reshape(X.shape)

    def total(x, n):
        return (fnp.roll(x, n, 0) * weights).sum()

    found = fnx.jit(fnx.grad(total))(X, 2)
    np.testing.assert_array_equal(found, np.roll(weights, -2, 0))


def test_shifts_that_are_none():
    for n in (1, 1.5, np.array([1.0, 2.0])):
        with pytest.raises(DTypeError, match="roll: a shift is an integer, got f"):
            fnx.jit(lambda x, n: fnp.roll(x, n * 1.5, (0, 1)))(X, n)
        with pytest.raises(DTypeError, match="roll: a shift is an integer, got f"):
            fnp.roll(X, n * 1.5, (0, 1))
    with pytest.raises(ShapeError, match="roll: axis has 2 entries"):
        fnp.roll(X, (1, 2, 3), (0, 1))


INSERTS = {
    "a number": lambda m, x, n: m.insert(x, n, 9),
    "a row": lambda m, x, n: m.insert(x, n, x[2] + 50, axis=0),
    "columns": lambda m, x, n: m.insert(x, n, x[:, :2].T + 50, axis=1),
    "places": lambda m, x, n: m.insert(x, m.stack([n, n * 0, n]), x[:3], axis=0),
    "places, one value": lambda m, x, n: m.insert(x, m.stack([n, n + 1]), 7, axis=1),
}


# Several values for one place, whose first axis becomes that of a place without axes.
VALUES = np.arange(100, 110, dtype="float32")
KNOWN_INSERTS = {
    "columns": (X, 1, VALUES.reshape(2, 5), 1),
    "a column": (X, -1, VALUES[:5], 1),
    "a list of one": (X, [1], VALUES[:3], 1),
    "a list of one, columns": (X, [2], VALUES.reshape(5, 2), 1),
    "a list of one, of a vector": (X[0], [1], VALUES[:3]),
    "an array of none": (X, np.array([], int), VALUES[:7], 0),
    "a mask": (X[0], np.arange(7) % 3 == 0, 9.0),
}


@pytest.mark.parametrize("name", KNOWN_INSERTS)
def test_insert_several_values(name):
    arguments = KNOWN_INSERTS[name]
    wanted = np.insert(*arguments)
    np.testing.assert_array_equal(fnp.insert(*arguments), wanted)
    x, places, values, *axis = arguments
    compiled = fnx.jit(lambda x, v: fnp.insert(x, places, v, *axis))
    np.testing.assert_array_equal(compiled(x, values), wanted)


@pytest.mark.parametrize("name", INSERTS)
def test_insert_at_a_traced_place(name):
    inserted = INSERTS[name]
    compiled = fnx.jit(lambda x, n: inserted(fnp, x, n))
    places = range(-4, 5)
    for n in places:
        np.testing.assert_array_equal(compiled(X, n), inserted(np, X, np.int32(n)))
    many = fnx.vmap(compiled, in_axes=(None, 0))(X, fnp.arange(-4, 5))
    wanted = [inserted(np, X, np.int32(n)) for n in places]
    np.testing.assert_array_equal(many, wanted)


def test_a_traced_place_out_of_range_is_the_nearest():
    compiled = fnx.jit(fnp.insert)
    np.testing.assert_array_equal(compiled(X[0], 50, 9.0), [*X[0], 9])
    np.testing.assert_array_equal(compiled(X[0], -50, 9.0), [9, *X[0]])


def test_how_many_booleans_are_true_must_be_known():
    mask = np.array([True, False, True])
    with pytest.raises(errors.TracerValueError):
        fnx.jit(lambda m: fnp.insert(np.arange(3), m, 7))(mask)
    got = fnp.insert(np.arange(3), mask, 7)
    np.testing.assert_array_equal(got, np.insert(np.arange(3), mask, 7))


@pytest.mark.parametrize("place", [1.5, np.float32(1)])
def test_a_place_is_an_integer(place):
    with pytest.raises(DTypeError, match="insert: a place is an integer"):
        fnp.insert(np.arange(3), place, 7)
    with pytest.raises(DTypeError, match="insert: a place is an integer"):
        fnx.jit(lambda p: fnp.insert(np.arange(3), p, 7))(place)


@pytest.mark.parametrize("shift, axis", [((), ()), (1, ()), ((), 0)])
def test_nothing_is_rolled(shift, axis):
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(fnp.roll(x, shift, axis), x)


@pytest.mark.parametrize("function", [fnp.argmax, fnp.argmin, fnp.argsort])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_number_has_no_axis(function, axis):
    x = fnp.asarray(np.float32(2))
    with pytest.raises(errors.AxisError):
        function(x, axis)
    with pytest.raises(errors.AxisError):
        fnx.jit(lambda x: function(x, axis))(x)
