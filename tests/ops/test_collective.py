"""Collectives over several replicas: what `batch` of their own axis makes of them."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.core import axes
from fnx.core.primitive import LinearInput, MappedAxis
from fnx.core.trace import trace
from fnx.core.types import array_type
from fnx.ops import collective
from fnx.ops.collective import (
    all_gather,
    all_to_all,
    pmax,
    pmean,
    pmin,
    psum,
    psum_scatter,
)
from fnx.ops.meeting import axis_index
from fnx.ops.sending import pbroadcast, ppermute
from fnx.runtime.array import from_numpy
from fnx.transforms.batch import map_over

N = 4
SHIFT = ((0, 1), (1, 2), (2, 3), (3, 0))
SOME = ((0, 2), (3, 1))
ONE = array_type((3,), np.float32)
X = np.random.default_rng(0).standard_normal((N, 3))
ROWS = np.random.default_rng(1).standard_normal((N, N, 3))


def replicas(function, *xs, name="i", mapped=None):
    """Runs a function on replicas that lie along axis 0, as `vmap` does."""
    mapped = mapped or [True] * len(xs)
    axis = MappedAxis(name, N)
    types = [
        array_type(x.shape[1:] if on else x.shape, x.dtype)
        for x, on in zip(xs, mapped, strict=True)
    ]
    with axes.bound_axis(name, N):
        traced = trace(lambda *args: [function(*args)], types)
    (out,), (is_mapped,) = map_over(
        traced.program, axis, [from_numpy(x) for x in xs], mapped
    )
    out = np.asarray(out)
    return out if is_mapped else np.stack([out] * N)


EXPECTED = {
    "psum": (lambda x: psum(x, axis_name="i"), lambda x: [x.sum(0)] * N),
    "pmean": (lambda x: pmean(x, "i"), lambda x: [x.mean(0)] * N),
    "pmax": (lambda x: pmax(x, axis_name="i"), lambda x: [x.max(0)] * N),
    "pmin": (lambda x: pmin(x, axis_name="i"), lambda x: [x.min(0)] * N),
    "all_gather": (lambda x: all_gather(x, axis_name="i"), lambda x: [x] * N),
    "shift": (
        lambda x: ppermute(x, axis_name="i", perm=SHIFT),
        lambda x: np.roll(x, 1, 0),
    ),
    "some": (
        lambda x: ppermute(x, axis_name="i", perm=SOME),
        lambda x: np.stack([0 * x[0], x[3], x[0], 0 * x[0]]),
    ),
    "pbroadcast": (
        lambda x: pbroadcast(x, axis_name="i", source=2),
        lambda x: [x[2]] * N,
    ),
    "axis_index": (
        lambda x: axis_index(axis_name="i"),
        lambda x: np.arange(N, dtype=np.int32),
    ),
}
ROW_WISE = {
    "psum_scatter": (
        lambda x: psum_scatter(x, axis_name="i"),
        lambda x: x.sum(0),
    ),
    "all_to_all": (
        lambda x: all_to_all(x, axis_name="i"),
        lambda x: x.swapaxes(0, 1),
    ),
}
# Members in an order of their own: replica 3 is number 0 of its group.
GROUPS = ((0, 2), (3, 1))
PAIRS = np.random.default_rng(3).standard_normal((N, 2, 3))


def of_groups(function):
    """What each replica gets of a function of its group's values, in NumPy."""

    def expected(x):
        found = [None] * N
        for group in GROUPS:
            for member, row in zip(group, function(x[list(group)]), strict=True):
                found[member] = row
        return np.stack(found)

    return expected


IN_GROUPS = {"axis_name": "i", "groups": GROUPS}
EXPECTED |= {
    "psum of groups": (
        lambda x: psum(x, **IN_GROUPS),
        of_groups(lambda x: [x.sum(0)] * 2),
    ),
    "pmean of groups": (
        lambda x: pmean(x, "i", GROUPS),
        of_groups(lambda x: [x.mean(0)] * 2),
    ),
    "pmax of groups": (
        lambda x: pmax(x, **IN_GROUPS),
        of_groups(lambda x: [x.max(0)] * 2),
    ),
    "pmin of groups": (
        lambda x: pmin(x, **IN_GROUPS),
        of_groups(lambda x: [x.min(0)] * 2),
    ),
    "all_gather of groups": (
        lambda x: all_gather(x, **IN_GROUPS),
        of_groups(lambda x: [x] * 2),
    ),
}
PAIR_WISE = {
    "psum_scatter of groups": (
        lambda x: psum_scatter(x, **IN_GROUPS),
        of_groups(lambda x: x.sum(0)),
    ),
    "all_to_all of groups": (
        lambda x: all_to_all(x, **IN_GROUPS),
        of_groups(lambda x: x.swapaxes(0, 1)),
    ),
}
EVERY = [(X, *row) for row in EXPECTED.values()]
EVERY += [(ROWS, *row) for row in ROW_WISE.values()]
EVERY += [(PAIRS, *row) for row in PAIR_WISE.values()]
IDS = [*EXPECTED, *ROW_WISE, *PAIR_WISE]
each = pytest.mark.parametrize(("x", "function", "expected"), EVERY, ids=IDS)


@each
def test_replicas_along_the_axis(x, function, expected):
    np.testing.assert_allclose(replicas(function, x), expected(x), 1e-12)


@each
def test_a_value_that_all_replicas_share(x, function, expected):
    shared = x[0]
    want = expected(np.stack([shared] * N))
    got = replicas(function, shared, mapped=[False])
    np.testing.assert_allclose(got, want, 1e-12)


@each
def test_an_unrelated_axis_inside(x, function, expected):
    """vmap(vmap(f), axis_name="i"): the inner axis has another name."""
    many = np.stack([x, 2 * x, x - 1], 1)

    def inner(xs):
        traced = trace(lambda x: [function(x)], [array_type(x.shape[1:], x.dtype)])
        axis = MappedAxis("j", 3)
        (out,), (is_mapped,) = map_over(traced.program, axis, [xs], [True])
        inner.mapped = is_mapped
        return out

    got = replicas(inner, many)
    for n in range(3):
        row = got[:, n] if inner.mapped else got
        np.testing.assert_allclose(row, expected(many[:, n]), 1e-12)


LINEAR = ["psum", "all_gather", "shift", "some", "psum_scatter", "all_to_all"]
LINEAR += ["pbroadcast"]
LINEAR += [f"{name} of groups" for name in ("psum", "all_gather", *ROW_WISE)]


@pytest.mark.parametrize("name", LINEAR)
def test_transpose_is_the_adjoint_over_all_replicas(name):
    """The inner product runs over the replicas as well."""
    x, function, _ = EVERY[IDS.index(name)]
    with axes.bound_axis("i", N):
        traced = trace(lambda x: [function(x)], [array_type(x.shape[1:], x.dtype)])
    (eqn,) = traced.program.eqns
    forward = replicas(function, x)
    ct = np.random.default_rng(2).standard_normal(forward.shape)

    def back(ct):
        linear = LinearInput(eqn.inputs[0].type)
        return eqn.primitive.transpose(ct, linear, **eqn.params)[0]

    backward = replicas(back, ct)
    np.testing.assert_allclose((forward * ct).sum(), (x * backward).sum(), 1e-12)


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_tied_replicas_share_the_tangent(name):
    reduce = getattr(collective, name)
    x = np.array([2.0, 1.0, 2.0, 1.0])
    t = np.array([1.0, 10.0, 3.0, 20.0])

    def tangent(x, t):
        return reduce.jvp([x], [t], axis_name="i", axis_size=N, groups=None)[1]

    want = 2.0 if name == "pmax" else 15.0
    np.testing.assert_array_equal(replicas(tangent, x, t), [want] * N)


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_tied_members_of_a_group_share_the_tangent(name):
    reduce = getattr(collective, name)
    x = np.array([2.0, 5.0, 2.0, 1.0])
    t = np.array([1.0, 10.0, 3.0, 20.0])

    def tangent(x, t):
        return reduce.jvp([x], [t], axis_name="i", axis_size=N, groups=GROUPS)[1]

    want = [2, 10, 2, 10] if name == "pmax" else [2, 20, 2, 20]
    np.testing.assert_array_equal(replicas(tangent, x, t), want)


@pytest.mark.parametrize(
    "groups", [[[0, 1], [2]], [[0, 1], [1, 2]], [[0, 1]], [], [[0, 4], [1, 2]]]
)
def test_groups_have_each_replica_once(groups):
    with axes.bound_axis("i", N), pytest.raises(errors.AxisError, match="0 to 3"):
        trace(lambda x: [psum(x, axis_name="i", groups=groups)], [ONE])


def test_one_group_of_all_in_their_order_is_the_axis():
    with axes.bound_axis("i", N):
        whole = trace(lambda x: [psum(x, axis_name="i", groups=[range(N)])], [ONE])
        (eqn,) = whole.program.eqns
    assert eqn.params["groups"] is None


def test_the_sum_of_a_literal_counts_the_members():
    def total(x):
        return x + psum(1, axis_name="i", groups=GROUPS)

    np.testing.assert_array_equal(replicas(total, X), X + 2)


def test_the_sum_of_a_shared_integer_wraps():
    got = replicas(lambda x: psum(x, axis_name="i"), np.int8([100, 1]), mapped=[False])
    np.testing.assert_array_equal(got[0], np.int8([-112, 4]))


def test_the_innermost_axis_of_a_name_counts():
    with axes.bound_axis("i", 2), axes.bound_axis("j", 3):
        with axes.bound_axis("i", 5):
            assert axes.axis_size("i") == 5
            assert axes.bound_axes() == (("i", 2), ("j", 3), ("i", 5))
        assert axes.axis_size("i") == 2
    with pytest.raises(errors.AxisError, match="no axis is bound here"):
        axes.axis_size("i")
    with (
        axes.bound_axis("j", 3),
        pytest.raises(errors.AxisError, match="bound here are 'j'"),
    ):
        axes.axis_size("i")


def test_gradients_of_replicas_add_up():
    """vmap(grad(f)) and grad(vmap(f)) over a named axis; JAX gives the same numbers."""
    x = np.arange(3.0)

    def total(x):
        return psum(x * x, axis_name="i")

    inside = fnx.vmap(fnx.grad(total), axis_name="i")(x)
    np.testing.assert_array_equal(np.asarray(inside), [0, 6, 12])
    outside = fnx.grad(lambda x: fnx.vmap(total, axis_name="i")(x).sum())(x)
    np.testing.assert_array_equal(np.asarray(outside), [0, 6, 12])
    mean = fnx.vmap(fnx.grad(lambda x: pmean(x * x, "i")), axis_name="i")(x)
    np.testing.assert_array_equal(np.asarray(mean), [0, 2, 4])


def test_an_axis_without_a_name_is_no_axis():
    with axes.bound_axis(None, 3):
        assert axes.bound_axes() == ()
    x = from_numpy(X)
    params = {"axis_name": "i", "axis_size": 1, "groups": None}
    got = psum.batch(MappedAxis(None, N), [x], [True], **params)
    np.testing.assert_array_equal(np.asarray(got[0]), X)
