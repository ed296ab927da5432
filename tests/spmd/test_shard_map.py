"""shard_map against the same on whole arrays: values and derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors, lax
from fnx.sharding import PartitionSpec as P
from tests.spmd.arrays import random

pytestmark = pytest.mark.multi_device


def test_shard_map_over_two_axes():
    mesh = fnx.make_mesh((2, 4), ("a", "b"))
    x, w = random(4, 8), random(8, 12, seed=1)

    def f(x, w):
        assert x.shape == (2, 2) and w.shape == (2, 12)
        return lax.psum(x @ w, "b")

    mapped = fnx.shard_map(
        f, mesh=mesh, in_specs=(P("a", "b"), P("b")), out_specs=P("a")
    )
    np.testing.assert_allclose(mapped(x, w), x @ w, rtol=1e-5)
    got = fnx.grad(lambda x, w: (mapped(x, w) ** 2).sum(), (0, 1))(x, w)
    want = fnx.grad(lambda x, w: ((x @ w) ** 2).sum(), (0, 1))(x, w)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    compiled = fnx.jit(mapped)(x, w)
    np.testing.assert_allclose(compiled, x @ w, rtol=1e-5)


def test_shard_map_cuts_any_axis_by_several():
    mesh = fnx.make_mesh((2, 4), ("a", "b"))
    x = random(3, 16)

    def f(x):
        number = lax.axis_index("b") * 2 + lax.axis_index("a")
        return x * 0 + number.astype(x.dtype)

    found = fnx.shard_map(
        f, mesh=mesh, in_specs=P(None, ("b", "a")), out_specs=P(None, ("b", "a"))
    )(x)
    want = np.repeat(np.arange(8.0), 2)
    np.testing.assert_array_equal(found, np.broadcast_to(want, (3, 16)))


def test_a_replicated_output_is_that_of_the_first_device():
    mesh = fnx.make_mesh((4,), ("a",))
    x = random(4, 3)

    def first(x):
        return x[0]

    with pytest.raises(errors.AxisError, match="may have different values"):
        fnx.shard_map(first, mesh=mesh, in_specs=P("a"), out_specs=P())(x)
    mapped = fnx.shard_map(
        first, mesh=mesh, in_specs=P("a"), out_specs=P(), check_vma=False
    )
    np.testing.assert_array_equal(mapped(x), x[0])
    got = fnx.grad(lambda x: (mapped(x) ** 3).sum())(x)
    want = np.zeros_like(x)
    want[0] = 3 * x[0] ** 2
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_replicated_inputs_get_the_sum():
    mesh = fnx.make_mesh((4,), ("a",))
    x, w = random(8, 3), random(3, seed=1)

    def loss(w, x):
        return lax.pmean(((x @ w) ** 2).mean(), "a")

    mapped = fnx.shard_map(loss, mesh=mesh, in_specs=(P(), P("a")), out_specs=P())
    got = fnx.grad(mapped)(w, x)
    want = fnx.grad(lambda w: ((x @ w) ** 2).mean())(w)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_mesh_around_and_as_a_decorator():
    x = random(4, 3)

    @fnx.shard_map(in_specs=P("a"), out_specs=P())
    def total(x):
        return lax.psum(x.sum(), "a")

    with pytest.raises(errors.ArgumentError, match="there is no mesh"):
        total(x)
    with fnx.make_mesh((4,), ("a",)):
        np.testing.assert_allclose(total(x), x.sum(), rtol=1e-5)
