"""Attention as one equation: what it is under each transformation, on several devices,
and that values and derivatives are those of the same attention with a mask, which is
made of operations."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx.core.attended import Attended
from fnx.core.program import walk
from fnx.experimental.jet import jet
from fnx.nn.attending import band, by_formula, means_and_sums
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P

named = pytest.mark.parametrize
B, T, S, N, K, H = 2, 5, 3, 4, 2, 2
RNG = np.random.default_rng(1)
Q = RNG.standard_normal((B, T, N, H))
KEY, VALUE = RNG.standard_normal((2, B, S, K, H))
BANDS = {
    "all": (None, None),
    "causal": (None, 0),
    "window": (2, 1),
    "blind": (0, 0),  # the last queries see nothing
}


def options(name):
    left, right = BANDS[name]
    window = None if left is None else (left, right)
    return {"is_causal": right == 0, "local_window_size": window, "scale": 0.7}


def one(name):
    return lambda q, k, v: nn.dot_product_attention(q, k, v, **options(name))


def made_of_operations(name):
    """The same with a mask that hides nothing."""
    mask = np.ones((1, 1, T, S), bool)
    more = {**options(name), "mask": mask}
    return lambda q, k, v: nn.dot_product_attention(q, k, v, **more)


def total(function):
    return lambda q, k, v: fnp.sum(fnp.sin(function(q, k, v)))


def looped(function):
    def run(q, k, v):
        def step(x, pair):
            return x + function(x, *pair), None

        return fnx.lax.scan(step, q, (fnp.stack([k, v]), fnp.stack([v, k])))[0]

    return fnx.grad(total(run), (0, 1, 2))


def curve(function):
    return lambda q, k, v: jet(
        function, (q, k, v), ((q * 0.1, q), (k, k), (v, v * 0.2))
    )[1]


def pushed(function):
    def run(q, k, v):
        return fnx.jvp(function, (q, k, v), (fnp.cos(q), v, k))[1]

    return run


TRANSFORMED = {
    "values": lambda f: f,
    "grad": lambda f: fnx.grad(total(f), (0, 1, 2)),
    "grad by values": lambda f: fnx.grad(total(f), 2),
    "jvp": pushed,
    "grad of jvp": lambda f: fnx.grad(lambda *a: fnp.sum(pushed(f)(*a) ** 2), (0, 1)),
    "jvp of grad": lambda f: pushed(fnx.grad(total(f), 1)),
    "hessian": lambda f: fnx.hessian(total(f), 1),
    "jacrev": lambda f: fnx.jacrev(f, 0),
    "jet": curve,
    "scan": looped,
    "remat": lambda f: fnx.grad(fnx.checkpoint(total(f)), (0, 1, 2)),
}


@named("band_name", BANDS)
@named("name", TRANSFORMED)
def test_transformations(name, band_name):
    transform = TRANSFORMED[name]
    found = fnx.jit(transform(one(band_name)))(Q, KEY, VALUE)
    wanted = fnx.jit(transform(made_of_operations(band_name)))(Q, KEY, VALUE)
    for x, y in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, 1e-11, 1e-13)


def maps(which):
    rows = zip(which, (Q, KEY, VALUE), strict=True)
    arrays = [np.stack([x, -x, x * 0.5]) if mapped else x for mapped, x in rows]
    return tuple([0 if m else None for m in which]), arrays


@named("which", [(1, 1, 1), (1, 0, 0), (0, 1, 1), (0, 0, 1)], ids=str)
@named("name", ["values", "grad", "hessian"])
def test_under_vmap(name, which):
    axes, arrays = maps(which)
    found, wanted = [
        fnx.jit(fnx.vmap(TRANSFORMED[name](function), axes))(*arrays)
        for function in (one("causal"), made_of_operations("causal"))
    ]
    for x, y in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, 1e-11, 1e-13)


def equations(function, *arrays):
    """The attentions of a program: part and shape of the queries."""
    found = []
    for eqn in walk(fnx.make_jaxpr(function)(*arrays)):
        known = eqn.primitive.attends(**eqn.params)
        if known is not None:
            found.append((known[0], eqn.inputs[0].type.shape))
    return found


def test_what_is_one_equation():
    q = Q.shape
    assert equations(one("causal"), Q, KEY, VALUE) == [("forward", q)]
    gradient = fnx.grad(total(one("causal")), (0, 1, 2))
    both = [("forward", q), ("gradients", q)]
    assert equations(gradient, Q, KEY, VALUE) == both
    axes, arrays = maps((1, 1, 1))
    wide = (3 * B, T, N, H)
    both = [("forward", wide), ("gradients", wide)]
    assert equations(fnx.vmap(gradient, axes), *arrays) == both
    # Keys that members share are repeated for them, but not for few queries.
    axes, arrays = maps((1, 0, 0))
    assert equations(fnx.vmap(one("causal"), axes), *arrays) == [("forward", wide)]
    few = arrays[0][..., :1, :, :], *arrays[1:]
    assert not equations(fnx.vmap(one("causal"), axes), *few)
    assert not equations(made_of_operations("causal"), Q, KEY, VALUE)
    scaled = functools.partial(nn.dot_product_attention, Q, KEY, VALUE)
    assert not equations(lambda scale: scaled(scale=scale), 0.3)
    assert equations(lambda q: scaled(scale=np.float32(0.3)) * q, Q)


@named("name", BANDS)
def test_the_formula_is_the_gradient(name):
    """Also where queries see nothing: then it is 0."""
    attended = Attended(0.7, *BANDS[name])
    own = functools.partial(means_and_sums, attended=attended)
    (out, sums), ct = own(Q, KEY, VALUE), np.cos(Q)
    found = by_formula(Q, KEY, VALUE, out, sums, fnp.asarray(ct), attended)
    wanted = fnx.vjp(lambda *xs: own(*xs)[0], Q, KEY, VALUE)[1](fnp.asarray(ct))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, 1e-11, 1e-13)
    taken = band(T, S, *BANDS[name])
    if taken is not None:
        blind = ~np.asarray(taken).any(-1)[0, 0, 0]
        assert not np.asarray(found[0])[:, blind].any()
        assert blind.any() == (name == "blind")


@named(
    "spec, stays",
    [
        (P("x"), True),
        (P("x", None, "y"), True),
        (P(), True),
        (P(None, None, None, "x"), False),
    ],
    ids=str,
)
def test_on_several_devices(spec, stays):
    """Members and heads are independent: each device has an attention of its own."""
    with fnx.config.override(cpu_devices=4):
        mesh = fnx.make_mesh((2, 2), ("x", "y"))
        cut = NamedSharding(mesh, spec)
        function = TRANSFORMED["grad"](one("causal"))
        jitted = fnx.jit(function, in_shardings=(cut, cut, cut))
        for x, y in zip(jitted(Q, KEY, VALUE), function(Q, KEY, VALUE), strict=True):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), 1e-11, 1e-13)
        text = jitted.lower(Q, KEY, VALUE).as_text("program")
    assert ("= attention_gradients[" in text) == stays
