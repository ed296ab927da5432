"""x[index] and x.at[index] with random indices, and random orders, as in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as fnp

EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def indices(draw, masks=True, flags=True):
    """A shape, and an index that fits it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    broadcast = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    items, axis, dots = [], 0, False
    while axis < len(shape):
        n = shape[axis]
        kind = draw(st.integers(0, 8))
        if kind == 0:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == 1:
            bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            step = draw(st.sampled_from([None, 1, 2, -1, -2, 3]))
            items.append(slice(draw(bound), draw(bound), step))
        elif kind == 2:
            items.append(None)
            continue
        elif kind == 3 and not dots:
            dots = True
            items.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis))
            rest = len(shape) - axis
            # What follows the dots is for the last axes.
            axis = len(shape) - rest
            continue
        elif kind in (4, 5):
            ones = tuple(draw(st.sampled_from([1, m])) for m in broadcast)
            ones = ones[draw(st.integers(0, len(ones))) :]
            size = int(np.prod(ones))
            values = draw(
                st.lists(st.integers(-n, n - 1), min_size=size, max_size=size)
            )
            items.append(np.array(values, np.int64).reshape(ones))
        elif kind == 6 and masks:
            count = draw(st.integers(1, min(2, len(shape) - axis)))
            part = shape[axis : axis + count]
            bits = st.booleans()
            size = int(np.prod(part))
            mask = draw(st.lists(bits, min_size=size, max_size=size))
            items.append(np.array(mask, bool).reshape(part))
            axis += count
            continue
        elif kind == 7 and flags:
            items.append(np.array(draw(st.booleans())))
            continue
        elif kind == 8:
            break
        else:
            items.append(slice(None))
        axis += 1
    return shape, tuple(items)


def ours(index):
    return tuple(fnp.array(i) if isinstance(i, np.ndarray) else i for i in index)


def numpys(function):
    """What NumPy gives, or None where it raises."""
    try:
        return function()
    except (IndexError, ValueError):
        return None


@EXAMPLES
@given(indices())
def test_reading(case):
    shape, index = case
    x = np.arange(np.prod(shape)).reshape(shape)
    wanted = numpys(lambda: x[index])
    if wanted is None:
        with pytest.raises(fnx.errors.FnxError):
            fnp.array(x)[ours(index)]
        return
    np.testing.assert_array_equal(fnp.array(x)[ours(index)], wanted)


@EXAMPLES
@given(indices(masks=False, flags=False))
def test_reading_at_traced_places(case):
    shape, index = case
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    wanted = numpys(lambda: x[index])
    if wanted is None:
        return
    arrays = [i for i in index if isinstance(i, np.ndarray)]

    def read(x, arrays):
        left = iter(arrays)
        return x[tuple(next(left) if isinstance(i, np.ndarray) else i for i in index)]

    np.testing.assert_array_equal(fnx.jit(read)(x, arrays), wanted)


UPDATES = {
    "set": lambda x, i, v: x.__setitem__(i, v),
    "add": np.add.at,
    "subtract": np.subtract.at,
    "multiply": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


@EXAMPLES
@given(indices(flags=False), st.sampled_from(sorted(UPDATES)), st.booleans())
def test_writing(case, name, jitted):
    shape, index = case
    x = np.arange(np.prod(shape), dtype="f8").reshape(shape) + 1
    part = numpys(lambda: x[index])
    if part is None:
        return
    values = np.random.default_rng(part.size).integers(2, 9, part.shape) / 2
    wanted = x.copy()
    UPDATES[name](wanted, index, values)

    def write(x, values):
        return getattr(x.at[ours(index)], name)(values)

    function = fnx.jit(write) if jitted else write
    np.testing.assert_allclose(function(fnp.array(x), values), wanted, rtol=1e-15)


@EXAMPLES
@given(
    indices(masks=False, flags=False),
    st.sampled_from(["apply", "divide", "power", "get"]),
)
def test_the_other_methods(case, name):
    shape, index = case
    x = np.arange(np.prod(shape), dtype="f8").reshape(shape) + 1
    part = numpys(lambda: x[index])
    if part is None:
        return
    at = fnp.array(x).at[ours(index)]
    if name == "get":
        np.testing.assert_array_equal(at.get(), part)
        return
    wanted = x.copy()
    if name == "apply":
        np.negative.at(wanted, index)
        found = at.apply(lambda v: -v)
    else:
        ufunc = np.divide if name == "divide" else np.power
        ufunc.at(wanted, index, 2.0)
        found = getattr(at, name)(2.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("mode", [None, "clip", "fill", "drop", "promise_in_bounds"])
@pytest.mark.parametrize("jitted", [False, True])
def test_modes(mode, jitted):
    x = np.arange(5.0)
    places = (
        np.array([1, 7, -9, -1]) if mode != "promise_in_bounds" else np.array([1, -1])
    )
    inside = places[(places >= -5) & (places < 5)]

    def read(x, i):
        return x.at[i].get(mode=mode, fill_value=-7.0)

    def write(x, i):
        return x.at[i].add(1.0, mode=mode)

    if mode is None and not jitted:
        for function in (read, write):
            with pytest.raises(IndexError):
                function(fnp.array(x), fnp.array(places))
        return
    read, write = (fnx.jit(read), fnx.jit(write)) if jitted else (read, write)
    # Reads follow JAX: traced ones fill by default in at[].get.
    got = np.asarray(read(fnp.array(x), fnp.array(places)))
    clipped = x[np.clip(np.where(places < 0, places + 5, places), 0, 4)]
    filled = np.where((places >= -5) & (places < 5), clipped, -7.0)
    assert got.tolist() in (
        [clipped.tolist()] if mode == "clip" else [filled.tolist(), clipped.tolist()]
    )
    if mode in ("fill", "drop"):
        assert got.tolist() == filled.tolist()
    wanted = x.copy()
    if mode == "clip":
        np.add.at(wanted, np.clip(np.where(places < 0, places + 5, places), 0, 4), 1.0)
    else:
        np.add.at(wanted, inside, 1.0)
    np.testing.assert_array_equal(write(fnp.array(x), fnp.array(places)), wanted)


# ---------------------------------------------------------------- orders

VALUES = st.lists(
    st.sampled_from([0.0, -0.0, 1.0, 2.5, -1.0, np.inf, -np.inf, np.nan]), max_size=9
)


@EXAMPLES
@given(VALUES, st.booleans())
def test_sorts_with_ties_and_nan(values, descending):
    x = np.array(values)
    ordered = np.sort(x)
    found = fnp.sort(x, descending=descending)
    np.testing.assert_array_equal(found, ordered[::-1] if descending else ordered)
    places = np.asarray(fnp.argsort(x, descending=descending))
    np.testing.assert_array_equal(x[places], np.asarray(found))
    # Equal elements keep their order, NaNs among them.
    for i, j in itertools.pairwise(places):
        if x[i] == x[j] or (np.isnan(x[i]) and np.isnan(x[j])):
            assert i < j
    jitted = fnx.jit(lambda x: fnp.argsort(x, descending=descending))
    np.testing.assert_array_equal(jitted(x), places)


@EXAMPLES
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
        min_size=1,
        max_size=8,
    )
)
def test_several_keys(rows):
    keys = np.array(rows).T
    np.testing.assert_array_equal(fnp.lexsort(fnp.array(keys)), np.lexsort(keys))
    found = fnx.lax.sort([fnp.array(k) for k in keys], num_keys=2)
    order = np.lexsort(keys[1::-1])
    np.testing.assert_array_equal(np.stack(found), keys[:, order])


@EXAMPLES
@given(VALUES, VALUES, st.sampled_from(["left", "right"]))
def test_searches(values, wanted, side):
    x, v = np.sort(np.array(values)), np.array(wanted)
    for method in ("scan", "compare_all", "sort"):
        found = fnp.searchsorted(x, v, side, method=method)
        np.testing.assert_array_equal(found, np.searchsorted(x, v, side))


@EXAMPLES
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9), st.integers(-9, 8))
def test_partitions(values, kth):
    x = np.array(values)
    kth = kth % x.size if kth >= 0 else -(-kth % x.size) - 1
    found = np.asarray(fnp.partition(x, kth))
    ordered = np.sort(x)
    assert found[kth] == ordered[kth]
    assert (found[: kth % x.size] <= found[kth]).all()
    assert (found[kth % x.size :] >= found[kth]).all()
    places = np.asarray(fnp.argpartition(x, kth))
    np.testing.assert_array_equal(np.sort(places), np.arange(x.size))
    assert x[places][kth] == ordered[kth]


@EXAMPLES
@given(st.lists(st.booleans(), max_size=7), st.integers(0, 9))
def test_masks_of_a_size_when_traced(bits, size):
    mask = np.array(bits, bool)
    (places,) = fnx.jit(lambda m: fnp.nonzero(m, size=size, fill_value=-1))(mask)
    wanted = np.full(size, -1)
    exact = mask.nonzero()[0][:size]
    wanted[: exact.size] = exact
    np.testing.assert_array_equal(places, wanted)
