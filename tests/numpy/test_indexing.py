"""x[index] and x.at[index]: against NumPy, traced, out of range, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors

RNG = np.random.default_rng(3)
A = RNG.standard_normal((4, 5, 6))
ROWS = np.array([0, 2, -1])
GRID = np.array([[1], [3]])
MASK = RNG.random((4, 5)) > 0.5
ALL = slice(None)

INDICES = [
    0,
    -1,
    (1, 2, 3),
    slice(None, None, -1),
    slice(1, 3),
    (ALL, slice(4, 0, -2)),
    (ALL, slice(None, None, 2), slice(1, None, 3)),
    (..., 0),
    (None, 1),
    (0, None, ..., None),
    (...,),
    (),
    slice(5, 2),
    ROWS,
    (ROWS, ROWS),
    (ALL, ROWS),
    (ROWS, ALL, ROWS),
    (0, ALL, ROWS),
    (ALL, 0, ROWS),
    (ROWS, 0),
    (GRID, ROWS),
    (ALL, GRID, ROWS),
    (GRID, slice(1, 4), ROWS),
    (..., ROWS),
    (None, ROWS),
    (ROWS, None, ROWS),
    (slice(None, None, 2), ROWS, slice(None, None, -1)),
    MASK,
    (MASK, 0),
    (MASK, slice(None, None, 2)),
    (ALL, np.array([True, False, True, True, False])),
    (np.array([True, False, True, True]), ALL, ROWS[:1]),
    np.array([], int),
    (ROWS[:0], ROWS[:0]),
    (slice(3, 1), 1),
    (ALL, ROWS, None, 0),
    np.array(1),
    (np.int64(1), ALL),
    (ROWS.astype(np.uint8) % 4,),
    (ROWS.astype(np.int8),),
]
EACH = pytest.mark.parametrize(
    "index", INDICES, ids=[str(i) for i in range(len(INDICES))]
)


def ours(index):
    if isinstance(index, tuple):
        return tuple(ours(i) for i in index)
    return fnp.array(index) if isinstance(index, np.ndarray) else index


@EACH
def test_get(index):
    got = fnp.array(A)[ours(index)]
    np.testing.assert_array_equal(got, A[index])


UPDATES = {
    "set": None,
    "add": np.add,
    "subtract": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@EACH
@pytest.mark.parametrize("kind", UPDATES)
def test_update(index, kind):
    values = np.random.default_rng(5).standard_normal(A[index].shape)
    want = A.copy()
    if kind == "set":
        want[index] = values
    else:
        UPDATES[kind].at(want, index, values)
    got = getattr(fnp.array(A).at[ours(index)], kind)(values)
    np.testing.assert_allclose(got, want, rtol=1e-15)


@EACH
def test_update_by_scalar(index):
    want = A.copy()
    want[index] = 7
    np.testing.assert_array_equal(fnp.array(A).at[ours(index)].set(7), want)


@EACH
def test_jit_and_gradient(index):
    x = fnp.array(A)
    weights = np.random.default_rng(5).standard_normal(A[index].shape)
    index = ours(index)
    np.testing.assert_array_equal(fnx.jit(lambda x: x[index])(x), x[index])
    got = fnx.grad(lambda x: fnp.sum(x[index] * weights))(x)
    want = fnp.zeros_like(x).at[index].add(weights)
    np.testing.assert_allclose(got, want, rtol=1e-15)
    grad = fnx.grad(lambda y: fnp.sum(x.at[index].set(y) * x))(fnp.array(weights))
    if isinstance(index, tuple) and any(isinstance(i, fnp.ndarray) for i in index):
        return  # places may repeat: the last wins
    if isinstance(index, fnp.ndarray):
        return
    np.testing.assert_allclose(grad, x[index], rtol=1e-15)


def test_divide_power_apply():
    x = fnp.array([2.0, 3.0, 4.0])
    assert x.at[1].divide(2).tolist() == [2.0, 1.5, 4.0]
    assert x.at[np.array([1, 1])].divide(2).tolist() == [2.0, 0.75, 4.0]
    assert x.at[1].power(2.0).tolist() == [2.0, 9.0, 4.0]
    assert x.at[::2].apply(fnp.square).tolist() == [4.0, 3.0, 16.0]


def test_the_last_of_equal_places_wins():
    x = fnp.zeros(3).at[np.array([1, 1])].set(np.array([5.0, 7.0]))
    assert x.tolist() == [0.0, 7.0, 0.0]
    places = np.array([1, 1])
    grad = fnx.grad(lambda y: fnp.zeros(3).at[places].set(y).sum())(fnp.ones(2))
    assert grad.tolist() == [0.0, 1.0]


# ---------------------------------------------------------------- out of range


@pytest.mark.parametrize(
    "index", [3, -4, (0, 7), np.array([0, 3]), (ALL, np.array([9]))]
)
def test_known_index_out_of_range_raises(index):
    x = fnp.zeros((3, 5))
    with pytest.raises(errors.IndexOutOfRange, match=r"axis \d with size [35] of f32"):
        x[index]
    with pytest.raises(IndexError):
        x.at[index].set(1)
    with pytest.raises(IndexError):
        fnx.jit(lambda x: x[index])(x)


def test_traced_reads_clip_and_writes_drop():
    x = fnp.arange(4.0)
    get = fnx.jit(lambda x, i: x[i])
    put = fnx.jit(lambda x, i: x.at[i].set(9.0))
    add = fnx.jit(lambda x, i: x.at[i].add(9.0))
    for i, read in [(1, 1.0), (-1, 3.0), (7, 3.0), (-9, 0.0)]:
        assert get(x, i) == read
        inside = -4 <= i < 4
        want = np.arange(4.0)
        if inside:
            want[i] = 9
        assert put(x, i).tolist() == want.tolist()
        if inside:
            want[i] = x[i] + 9
        assert add(x, i).tolist() == want.tolist()
    many = np.array([0, 7, -1, -9])
    assert get(x, many).tolist() == [0.0, 3.0, 3.0, 0.0]
    assert put(x, many).tolist() == [9.0, 1.0, 2.0, 9.0]
    assert fnx.grad(lambda x: get(x, many).sum())(x).tolist() == [2.0, 0.0, 0.0, 2.0]


def test_modes():
    x = fnp.array([1.0, 2.0, 3.0])
    assert fnp.isnan(x.at[5].get(mode="fill"))
    assert x.at[5].get(mode="fill", fill_value=-1) == -1
    assert x.at[5].get(mode="clip") == 3
    assert x.at[np.array([5, 0])].get(mode="fill", fill_value=0).tolist() == [0.0, 1.0]
    assert x.at[5].set(9, mode="drop").tolist() == [1.0, 2.0, 3.0]
    assert x.at[5].set(9, mode="clip").tolist() == [1.0, 2.0, 9.0]
    assert x.at[-1].set(9, mode="drop", wrap_negative_indices=False).tolist() == [
        1,
        2,
        3,
    ]
    assert x.at[np.array([0, 5])].add(1.0, mode="drop").tolist() == [2.0, 2.0, 3.0]
    with pytest.raises(errors.OptionError, match="mode 'wrong' is none of"):
        x.at[0].set(1, mode="wrong")


# ---------------------------------------------------------------- traced and refused


def test_vmap_of_reads_and_writes():
    x = fnp.array(A[0])
    places = np.array([0, 4, 2, -1])
    got = fnx.vmap(lambda i: x[i])(places)
    np.testing.assert_array_equal(got, A[0][places])
    got = fnx.vmap(lambda i: x.at[i].set(0.0))(places)
    for row, i in zip(got, places, strict=True):
        want = A[0].copy()
        want[i] = 0
        np.testing.assert_array_equal(row, want)


def test_masks():
    x = fnp.array([1.0, -2.0, 3.0])
    clear = fnx.jit(lambda x: x.at[x < 0].set(0.0))
    assert clear(x).tolist() == [1.0, 0.0, 3.0]
    with pytest.raises(errors.TracerValueError, match=r"fnx\.numpy\.where"):
        fnx.jit(lambda x: x[x > 0])(x)
    # under grad the values are known
    grad = fnx.grad(lambda x: x[x > 0].sum())(x)
    assert grad.tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(IndexError, match="a mask of size 2 does not fit axis 0"):
        x[np.array([True, False])]


def test_refused_indices():
    x = fnp.zeros((3, 5))
    with pytest.raises(errors.ArgumentError, match="a list is no index"):
        x[[0, 1]]
    with pytest.raises(errors.ArgumentError, match="integers or booleans, got f32"):
        x[fnp.array([0.0])]
    with pytest.raises(IndexError, match=r"3 items is too long for f32\[3,5\]"):
        x[0, 0, 0]
    with pytest.raises(errors.ArgumentError, match="single ellipsis"):
        x[..., 0, ...]
    with pytest.raises(errors.ImmutableError, match=r"x = x\.at\[i\]\.set\(v\)"):
        x[0] = 1
    with pytest.raises(errors.TracerValueError, match="dynamic_slice"):
        fnx.jit(lambda x, n: x[:n])(x, 2)


def test_refused_updates():
    x = fnp.zeros(3, int)
    with pytest.raises(errors.DTypeError, match=r"astype\('int32'\)"):
        x.at[0].set(1.5)
    with pytest.raises(errors.ShapeError, match="cannot be broadcast"):
        x.at[:2].set(np.zeros(3, int))
