"""Attention by blocks: values, derivatives, and that little of it is ever in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import fnx
from fnx.compiler.pipeline import plan_program
from fnx.core.attended import Attended
from fnx.nn.blocked import blocked

# Batch, positions of queries and of keys, heads of queries and of keys, width.
SHAPES = [
    (2, 300, 300, 4, 2, 16),
    (1, 128, 200, 3, 1, 8),
    (2, 65, 65, 2, 2, 4),
    (1, 1000, 1000, 2, 1, 8),
    (1, 700, 300, 2, 2, 8),
    (1, 200, 900, 1, 1, 8),
    (1, 1, 70, 2, 1, 4),
    (3, 64, 1, 2, 2, 3),
]
BOUNDS = [
    (None, None),
    (None, 0),
    (17, 0),
    (5, 9),
    (200, None),
    (None, 40),
    (700, 3),
    (0, 0),
]


def drawn(rng, shape, dtype=np.float64):
    batch, length, count, heads, shared, width = shape
    q = rng.standard_normal((batch, length, heads, width))
    k, v = rng.standard_normal((2, batch, count, shared, width))
    return [x.astype(dtype) for x in (q, k, v)]


def products_of(q, k, attended):
    """By NumPy: batch, heads, queries, keys."""
    k = np.repeat(k, q.shape[2] // k.shape[2], axis=2)
    return attended.scale * np.einsum("btnh,bsnh->bnts", q, k)


def is_seen(q, k, attended):
    t, s = np.ogrid[: q.shape[1], : k.shape[1]]
    seen = np.ones((q.shape[1], k.shape[1]), bool)
    if attended.left is not None:
        seen &= s >= t - attended.left
    if attended.right is not None:
        seen &= s <= t + attended.right
    return seen


def weights_of(q, k, attended):
    products = products_of(q, k, attended)
    powers = np.exp(products - products.max(-1, keepdims=True))
    powers = np.where(is_seen(q, k, attended), powers, 0)
    return powers / powers.sum(-1, keepdims=True)


def expected(q, k, v, attended):
    v = np.repeat(v, q.shape[2] // v.shape[2], axis=2)
    return np.einsum("bnts,bsnh->btnh", weights_of(q, k, attended), v)


def gradients(q, k, v, ct, attended):
    """Cotangents of q, k and v by the formulas of the softmax."""
    p, out = weights_of(q, k, attended), expected(q, k, v, attended)
    groups = q.shape[2] // k.shape[2]
    wide_k, wide_v = [np.repeat(x, groups, axis=2) for x in (k, v)]
    dp = np.einsum("btnh,bsnh->bnts", ct, wide_v)
    ds = p * (dp - np.einsum("btnh,btnh->bnt", ct, out)[..., None]) * attended.scale
    dq = np.einsum("bnts,bsnh->btnh", ds, wide_k)
    each = np.einsum("bnts,btnh->bsnh", ds, q), np.einsum("bnts,btnh->bsnh", p, ct)
    shape = (*k.shape[:3], groups, k.shape[3])
    return dq, *[x.reshape(shape).sum(3) for x in each]


def every_query_sees(shape, left):
    return left is None or shape[1] - 1 - left <= shape[2] - 1


PAIRS = [(s, b) for s in SHAPES for b in (BOUNDS if s is SHAPES[0] else BOUNDS[1:4])]
CASES = [(s, *b) for s, b in PAIRS if every_query_sees(s, b[0])]


@pytest.mark.parametrize(("shape", "left", "right"), CASES, ids=str)
def test_values_and_gradients(shape, left, right, rng):
    attended = Attended(0.3, left, right)
    q, k, v = drawn(rng, shape)
    ct = rng.standard_normal(q.shape)

    def loss(q, k, v):
        out, sums = blocked(q, k, v, attended)
        return (out * ct).sum(), (out, sums)

    found, (out, sums) = fnx.jit(fnx.grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
    np.testing.assert_allclose(out, expected(q, k, v, attended), rtol=1e-11, atol=1e-11)
    products = np.where(is_seen(q, k, attended), products_of(q, k, attended), -np.inf)
    np.testing.assert_allclose(sums, scipy.special.logsumexp(products, -1), atol=1e-11)
    for got, want in zip(found, gradients(q, k, v, ct, attended), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("left", [None, 30])
def test_transformations(left, rng):
    attended = Attended(0.5, left, 0)
    q, k, v = drawn(rng, (2, 200, 200, 2, 1, 4))
    function = fnx.jit(lambda q, k, v: blocked(q, k, v, attended)[0])
    at = q.size // 2
    step = np.zeros_like(q)
    step.flat[at] = 1
    _, tangent = fnx.jvp(lambda q: function(q, k, v), (q,), (step,))
    gap = 1e-5
    ends = [expected(q + sign * gap * step, k, v, attended) for sign in (1, -1)]
    np.testing.assert_allclose(tangent, (ends[0] - ends[1]) / (2 * gap), atol=1e-8)
    stack = np.stack([q, 2 * q, q - 1])
    each = fnx.vmap(function, in_axes=(0, None, None))(stack, k, v)
    want = [expected(x, k, v, attended) for x in stack]
    np.testing.assert_allclose(each, want, rtol=1e-10, atol=1e-10)

    def loss(q):
        return (function(q, k, v) ** 2).sum()

    curved = fnx.jvp(fnx.grad(loss), (q,), (step,))[1]
    slopes = [fnx.grad(loss)(q + sign * gap * step) for sign in (1, -1)]
    np.testing.assert_allclose(curved, (slopes[0] - slopes[1]) / (2 * gap), atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(dtype, rng):
    attended = Attended(0.25, None, 0)
    arrays = drawn(rng, (1, 256, 256, 4, 2, 16), dtype)
    out = fnx.jit(lambda q, k, v: blocked(q, k, v, attended)[0])(*arrays)
    assert out.dtype == dtype
    want = expected(*[x.astype(np.float64) for x in arrays], attended)
    tolerance = 4 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        np.asarray(out).astype(np.float64), want, rtol=tolerance, atol=4 * tolerance
    )


def arena(function: Any, *args: Any) -> int:
    return plan_program(fnx.make_jaxpr(function)(*args)).arena


def test_products_are_not_kept(rng):
    """Neither the forward nor the backward pass has room for all products."""
    q, k, v = drawn(rng, (1, 2048, 2048, 4, 4, 32), np.float32)
    all_products = 4 * 4 * 2048 * 2048
    for right in (None, 0):
        attended = Attended(0.2, None, right)

        def loss(q, k, v):
            return blocked(q, k, v, attended)[0].sum()  # noqa: B023

        assert arena(loss, q, k, v) < all_products / 8
        assert arena(fnx.grad(loss, (0, 1, 2)), q, k, v) < all_products / 4


def test_a_window_has_the_work_of_its_width(rng):
    """Not that of all positions."""
    q, k, v = drawn(rng, (1, 4096, 4096, 1, 1, 16), np.float32)

    def flops(attended):
        lowered = fnx.jit(lambda *x: blocked(*x, attended)[0]).lower(q, k, v)
        return lowered.cost_analysis()["flops"]

    everything = flops(Attended(1.0, None, None))
    assert flops(Attended(1.0, None, 0)) < 0.6 * everything
    assert flops(Attended(1.0, 100, 0)) < 0.1 * everything


def test_infinite_values_that_nobody_sees_do_not_matter(rng):
    attended = Attended(0.5, None, 0)
    q, k, v = drawn(rng, (1, 300, 300, 1, 1, 4))
    want = expected(q, k, v, attended)
    v[:, 290:] = np.inf
    k[:, 290:] = np.inf
    out = fnx.jit(lambda q, k, v: blocked(q, k, v, attended)[0])(q, k, v)
    np.testing.assert_allclose(out[:, :256], want[:, :256], rtol=1e-10)


def test_one_program_serves_any_size(rng):
    function = fnx.jit(
        lambda q, k, v: fnx.nn.dot_product_attention(q, k, v, is_causal=True),
        dynamic={"q": 1, "k": 1, "v": 1},
    )
    for length in (70, 130, 200, 257):
        q, k, v = drawn(rng, (2, length, length, 4, 2, 8))
        attended = Attended(8**-0.5, None, 0)
        np.testing.assert_allclose(function(q, k, v), expected(q, k, v, attended))
    assert function.cache_info().misses == 1


@pytest.mark.parametrize("mapped", [(0, None, None), (None, 0, 0), (0, 0, None)])
def test_what_members_share_is_still_attention_by_blocks(mapped, rng):
    q, k, v = drawn(rng, (1, 256, 256, 2, 2, 16), np.float32)
    stacks = [
        x if way is None else np.stack([x, 2 * x, x - 1])
        for x, way in zip((q, k, v), mapped, strict=True)
    ]

    def one(q, k, v):
        return fnx.nn.dot_product_attention(q, k, v, is_causal=True)

    every = fnx.vmap(one, in_axes=mapped)
    assert arena(every, *stacks) < 3 * 2 * 4 * 256 * 256
    attended = Attended(0.25, None, 0)
    whole = [
        np.stack([x] * 3) if way is None else x
        for x, way in zip(stacks, mapped, strict=True)
    ]
    want = [expected(*row, attended) for row in zip(*whole, strict=True)]
    np.testing.assert_allclose(every(*stacks), want, rtol=1e-4, atol=1e-5)


def test_a_window_of_any_size_is_one_program(rng):
    function = fnx.jit(
        lambda q: fnx.nn.dot_product_attention(q, q, q, local_window_size=(100, 0)),
        dynamic={"q": 1},
    )
    for length in (70, 130, 257):
        q = drawn(rng, (1, length, length, 1, 1, 8))[0]
        attended = Attended(8**-0.5, 100, 0)
        np.testing.assert_allclose(function(q), expected(q, q, q, attended))
    assert function.cache_info().misses == 1
