"""`fnx.distributed.psum_in_buckets`: bit for bit what `psum` of each leaf gives."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.distributed import psum_in_buckets

pytestmark = pytest.mark.multi_device

RNG = np.random.default_rng(0)
N = 4
DTYPES = ["float32", "float16", "float32", "int8", "complex64", "float16", "float64"]
SHAPES = [(3, 5), (7,), (), (2, 1, 4), (6,), (0, 3), (513,)]


def leaves():
    rows = zip(DTYPES, SHAPES, strict=True)
    return [fnp.array(100 * RNG.standard_normal((N, *s))).astype(d) for d, s in rows]


def by_pmap(function):
    return fnx.pmap(function, "i")


def by_vmap(function):
    return fnx.vmap(function, axis_name="i")


@pytest.mark.parametrize("run", [by_vmap, by_pmap])
@pytest.mark.parametrize("nbytes", [1, 64, 2000, 2**25])
def test_buckets_are_psum_bit_for_bit(run, nbytes):
    tree = {"a": leaves(), "b": (leaves()[0], {"c": leaves()[2]})}
    with fnx.config.override(cpu_devices=N):
        found = run(lambda x: psum_in_buckets(x, "i", nbytes))(tree)
        wanted = run(lambda x: lax.psum(x, "i"))(tree)
    rows = zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True)
    for a, b in rows:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def collectives(nbytes):
    with fnx.core.axes.bound_axis("i", N):
        arrays = [x[0] for x in leaves()]
        program = fnx.make_jaxpr(lambda x: psum_in_buckets(x, "i", nbytes))(arrays)
    return str(program).count("psum[")


def test_few_collectives_do():
    """One for each dtype if buckets are large; a leaf is never cut."""
    assert collectives(2**25) == len(set(DTYPES))
    assert collectives(1) == len(DTYPES)
    # f32 of 60 bytes and of 4: together they are too many for 63
    assert collectives(64) == len(set(DTYPES))
    assert collectives(63) == len(set(DTYPES)) + 1


def test_gradients_pass_through():
    x = fnp.array(RNG.standard_normal((N, 3)))

    def share(x):
        a, b = psum_in_buckets([x[:2], x[2]], "i")
        return (a**2).sum() * x[0] + b**3

    def plain(x):
        a, b = lax.psum([x[:2], x[2]], "i")
        return (a**2).sum() * x[0] + b**3

    np.testing.assert_array_equal(
        by_vmap(fnx.grad(share))(x), by_vmap(fnx.grad(plain))(x)
    )


def test_a_bucket_has_a_byte_at_least():
    with pytest.raises(errors.ArgumentError, match="nbytes=0"):
        psum_in_buckets([], "i", 0)


def test_small_sums_in_the_body_of_a_loop_are_made_together():
    from fnx.transforms.combine import combined

    def f(x, y):
        def body(c, _):
            return (lax.psum(c[0], "i") / N, lax.psum(c[1], "i") / N), None

        return lax.scan(body, (x, y), None, length=3)[0]

    with fnx.core.axes.bound_axis("i", N):
        program = fnx.make_jaxpr(f)(np.ones((3, 2), "float32"), np.ones(5, "float32"))
    assert str(program).count("psum[") == 2
    assert str(combined(program)).count("psum[") == 1
    x = RNG.standard_normal((N, 3, 2)).astype("float32")
    y = RNG.standard_normal((N, 5)).astype("float32")
    with fnx.config.override(cpu_devices=N):
        found, wanted = by_pmap(f)(x, y), by_vmap(f)(x, y)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
