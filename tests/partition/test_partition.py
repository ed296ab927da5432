"""jit with shardings: programs cut over a mesh against the same on one device."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P
from tests.partition.collectives import collectives
from tests.spmd.arrays import random

pytestmark = pytest.mark.multi_device


# name: function, shapes, in_specs, out_spec, collectives
CASES = {
    "elementwise": (
        lambda x, y: fnp.sin(x) * y,
        [(4, 8), (4, 8)],
        (P("a", "b"), P("a", "b")),
        P("a", "b"),
        [],
    ),
    "one is whole": (lambda x, y: x + y, [(4, 8), (4, 8)], (P("a"), None), P("a"), []),
    "cut differently": (
        lambda x, y: x + y,
        [(4, 8), (4, 8)],
        (P("a"), P(None, "b")),
        P("a", "b"),
        [],
    ),
    "along the same axis of the mesh": (
        lambda x, y: x + y,
        [(4, 8), (4, 8)],
        (P("a"), P(None, "a")),
        P("a"),
        ["all_gather"],
    ),
    "sum over a cut axis": (lambda x: x.sum(0), [(8, 4)], (P("a"),), None, ["psum"]),
    "sum over two": (
        lambda x: x.sum(),
        [(8, 4)],
        (P("a", "b"),),
        None,
        ["psum", "psum"],
    ),
    "max": (lambda x: x.max(1), [(8, 4)], (P("a", "b"),), P("a"), ["pmax"]),
    "product over a cut axis": (
        lambda x: x.prod(0),
        [(8, 4)],
        (P("a"),),
        None,
        ["all_gather"],
    ),
    "columns of a product": (
        lambda x, w: x @ w,
        [(8, 6), (6, 4)],
        (P("a"), P(None, "b")),
        P("a", "b"),
        [],
    ),
    "contracted": (
        lambda x, w: x @ w,
        [(8, 4), (4, 6)],
        (P(None, "b"), P("b")),
        None,
        ["psum"],
    ),
    "contracted on one side": (
        lambda x, w: x @ w,
        [(8, 4), (4, 6)],
        (P(None, "b"), None),
        None,
        ["psum"],
    ),
    "the same axis twice": (
        lambda x, w: x @ w,
        [(8, 4), (4, 4)],
        (P("b"), P(None, "b")),
        P("b"),
        ["all_gather"],
    ),
    "transposed": (lambda x: x.T * 2, [(8, 4)], (P("a", "b"),), P("b", "a"), []),
    "axes that merge": (lambda x: x.reshape(16, 3), [(4, 4, 3)], (P("b"),), P("b"), []),
    "axes that split": (lambda x: x.reshape(4, 2, 3), [(8, 3)], (P("b"),), P("b"), []),
    "a new axis": (
        lambda x: x[:, None, :] + fnp.zeros((1, 5, 1)),
        [(8, 3)],
        (P("a"),),
        P("a"),
        [],
    ),
    "broadcast": (
        lambda x, b: x + b,
        [(8, 4), (4,)],
        (P("a", "b"), P("b")),
        P("a", "b"),
        [],
    ),
    "two axes on one": (
        lambda x: x * 2,
        [(16, 3)],
        (P(("a", "b")),),
        P("b"),
        ["all_gather", "all_gather"],
    ),
    "softmax": (
        lambda x: fnx.nn.softmax(x, axis=1),
        [(8, 4)],
        (P("a", "b"),),
        P("a", "b"),
        ["pmax", "psum"],
    ),
    "one hot": (
        lambda x: x * (fnp.arange(4) == 2),
        [(8, 4)],
        (P("a", "b"),),
        P("a", "b"),
        [],
    ),
    "in a jitted function": (
        lambda x: fnx.jit(lambda x: x.sum(0))(x) + 1,
        [(8, 4)],
        (P("a"),),
        None,
        ["psum"],
    ),
    "a part of another axis": (
        lambda x: x[:, 1:3] * 2,
        [(8, 4)],
        (P("a"),),
        P("a"),
        [],
    ),
    "padding": (
        lambda x: fnp.pad(x, ((0, 0), (1, 2))),
        [(8, 4)],
        (P("a", "b"),),
        P("a"),
        ["all_gather"],
    ),
    "joined": (
        lambda x, y: fnp.concatenate([x, y], 1),
        [(8, 4), (8, 3)],
        (P("b"), None),
        P("b"),
        [],
    ),
    "reversed": (lambda x: x[:, ::-1] + 1, [(8, 4)], (P("a"),), P("a"), []),
    "running sums": (lambda x: x.cumsum(1), [(8, 4)], (P("a"),), P("a"), []),
    "sorted rows": (lambda x: fnp.sort(x, 1), [(8, 4)], (P("a"),), P("a"), []),
    "the place of the largest": (
        lambda x: fnp.argmax(x, 1),
        [(8, 4)],
        (P("a"),),
        P("a"),
        [],
    ),
    "an embedding, by rows": (
        lambda w, x: w[(fnp.abs(x) * 3).astype(int) % 5],
        [(5, 6), (8, 4)],
        (None, P("a")),
        P("a"),
        [],
    ),
    "an embedding, by columns": (
        lambda w, x: w[(fnp.abs(x) * 3).astype(int) % 5],
        [(5, 8), (8, 4)],
        (P(None, "b"), None),
        P(None, None, "b"),
        [],
    ),
    "the gradient of an embedding": (
        lambda w, x: fnx.grad(
            lambda w: (w[(fnp.abs(x) * 3).astype(int) % 5] ** 2).sum()
        )(w),
        [(5, 8), (8, 4)],
        (P(None, "b"), None),
        P(None, "b"),
        [],
    ),
    "along another axis": (
        lambda x, y: fnp.take_along_axis(x, (fnp.abs(y) * 3).astype(int) % 4, 1),
        [(8, 4), (8, 2)],
        (P("a"), P("a")),
        P("a"),
        [],
    ),
    "a constraint": (
        lambda x: lax.with_sharding_constraint(x * 2, P(None, "b")) + 1,
        [(8, 4)],
        (P("a"),),
        P(None, "b"),
        ["all_gather"],
    ),
    "a constraint that leaves an axis": (
        lambda x: lax.with_sharding_constraint(x * 2, P(P.UNCONSTRAINED, "b")) + 1,
        [(8, 4)],
        (P("a"),),
        P("a", "b"),
        [],
    ),
    "a constraint that takes an axis's name": (
        lambda x: lax.with_sharding_constraint(x * 2, P(P.UNCONSTRAINED, "a")) + 1,
        [(8, 4)],
        (P("a"),),
        P(None, "a"),
        ["all_gather"],
    ),
    "a constraint on what is mapped": (
        fnx.vmap(lambda x: lax.with_sharding_constraint(x * 2, P("b")) + 1),
        [(8, 4)],
        (P("a"),),
        P("a", "b"),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_collectives(name, mesh):
    function, shapes, specs, out, wanted = CASES[name]
    args = [random(*shape, seed=n) for n, shape in enumerate(shapes)]
    with mesh:
        cut = fnx.jit(function, in_shardings=specs, out_shardings=out)
        got = cut(*args)
        want = fnx.jit(function)(*args)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
    assert collectives(cut) == wanted
    assert isinstance(got.sharding, NamedSharding)
    if out is not None:
        assert got.sharding.is_equivalent_to(NamedSharding(mesh, out), got.ndim)


def test_a_training_step(mesh):
    rng = np.random.default_rng(0)
    params = {
        "w1": random(6, 8) / 3,
        "b1": np.zeros(8, "float32"),
        "w2": random(8, 4, seed=1) / 3,
        "b2": np.zeros(4, "float32"),
    }
    x, y = random(16, 6, seed=2), rng.integers(0, 4, 16)

    def loss(params, x, y):
        h = fnx.nn.relu(x @ params["w1"] + params["b1"])
        logits = h @ params["w2"] + params["b2"]
        hot = fnx.nn.one_hot(y, 4)
        return -(fnx.nn.log_softmax(logits) * hot).sum(1).mean()

    def step(params, x, y):
        value, g = fnx.value_and_grad(loss)(params, x, y)
        return fnx.tree.map(lambda p, g: p - 0.1 * g, params, g), value

    specs = {"w1": P(None, "b"), "b1": P("b"), "w2": P("b"), "b2": P()}
    shardings = fnx.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda x: isinstance(x, P),
    )
    data = NamedSharding(mesh, P("a"))
    cut = fnx.jit(
        step,
        in_shardings=(shardings, data, data),
        out_shardings=(shardings, NamedSharding(mesh, P())),
    )
    plain = fnx.jit(step)
    got, want = params, params
    for _ in range(3):
        got, value = cut(got, x, y)
        want, expected = plain(want, x, y)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    for key in params:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-4, atol=1e-5)
        assert got[key].sharding == shardings[key]


def test_a_transformer_step(mesh):
    V, D, H, S, B = 16, 16, 4, 6, 4
    rng = np.random.default_rng(0)

    def made(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype("float32")

    params = {
        "embedding": made(V, D),
        "qkv": made(D, 3, D),
        "out": made(D, D),
        "up": made(D, 4 * D),
        "down": made(4 * D, D),
        "gain": np.ones(D, "float32"),
    }
    specs = {
        "embedding": P(),
        "qkv": P(None, None, "b"),
        "out": P("b"),
        "up": P(None, "b"),
        "down": P("b"),
        "gain": P(),
    }
    tokens, targets = rng.integers(0, V, (2, B, S))

    def norm(x, gain):
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain

    def loss(p, tokens, targets):
        x = p["embedding"][tokens]
        h = norm(x, p["gain"])
        q, k, v = [(h @ p["qkv"][:, i]).reshape(B, S, H, D // H) for i in range(3)]
        scores = fnp.einsum("bshd,bthd->bhst", q, k) / 2
        seen = fnp.tril(fnp.ones((S, S), bool))
        weights = fnx.nn.softmax(fnp.where(seen, scores, -1e9), axis=-1)
        mixed = fnp.einsum("bhst,bthd->bshd", weights, v).reshape(B, S, D)
        x = x + mixed @ p["out"]
        x = x + fnx.nn.gelu(norm(x, p["gain"]) @ p["up"]) @ p["down"]
        logits = norm(x, p["gain"]) @ p["embedding"].T
        found = fnp.take_along_axis(
            fnx.nn.log_softmax(logits), targets[..., None], axis=-1
        )
        return -found.mean()

    def step(p, tokens, targets):
        value, g = fnx.value_and_grad(loss)(p, tokens, targets)
        return fnx.tree.map(lambda p, g: p - 0.1 * g, p, g), value

    shardings = fnx.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda x: isinstance(x, P),
    )
    data = NamedSharding(mesh, P("a"))
    cut = fnx.jit(
        step,
        in_shardings=(shardings, data, data),
        out_shardings=(shardings, NamedSharding(mesh, P())),
    )
    got, want = cut(params, tokens, targets), fnx.jit(step)(params, tokens, targets)
    pairs = zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    # Weights are never gathered: what devices exchange is smaller.
    entry = next(iter(cut._entries.values())).spread
    gathered = [
        eqn.outputs[0].type.size
        for eqn in entry.program.eqns
        if eqn.primitive.name == "all_gather"
    ]
    assert max(gathered, default=0) < D * 4 * D


def test_a_scan(mesh):
    w, xs = random(4, 4) / 2, random(5, 8, 4, seed=1)

    def run(w, xs):
        def body(h, x):
            h = fnp.tanh(h @ w + x)
            return h, h.sum()

        return lax.scan(body, fnp.zeros((8, 4), "float32"), xs)

    specs = (P(), P(None, "a", None))
    with mesh:
        got = fnx.jit(run, in_shardings=specs)(w, xs)
        want = fnx.jit(run)(w, xs)
        assert got[0].sharding.spec == P("a")
        grad = fnx.jit(
            fnx.grad(lambda w, xs: (run(w, xs)[0] ** 2).sum()), in_shardings=specs
        )
        back = grad(w, xs)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    expected = fnx.grad(lambda w, xs: (run(w, xs)[0] ** 2).sum())(w, xs)
    np.testing.assert_allclose(back, expected, rtol=1e-4, atol=1e-4)


def test_a_shard_map_inside(mesh):
    x = random(8, 4)
    inner = fnx.shard_map(
        lambda x: x / lax.psum(x.sum(), ("a", "b")),
        mesh=mesh,
        in_specs=P("a", "b"),
        out_specs=P("a", "b"),
    )
    with mesh:
        got = fnx.jit(lambda x: inner(x * 2).sum(0), in_shardings=P("a"))(x)
    np.testing.assert_allclose(got, (x / x.sum()).sum(0), rtol=1e-4)


def test_what_cannot_be_cut_names_the_operation(mesh):
    x = random(8, 8)
    x = x @ x.T + 8 * np.eye(8, dtype="float32")
    with mesh:
        cut = fnx.jit(fnp.linalg.cholesky, in_shardings=P("a"))
        with pytest.raises(errors.OptionError, match=r"(?s)cholesky of f32.* cut"):
            cut(x)
        with fnx.config.override(replicate_uncut=True):
            want = np.linalg.cholesky(x)
            np.testing.assert_allclose(cut(x), want, rtol=1e-5, atol=1e-5)


def test_inside_of_another_trace(mesh):
    x = random(8, 4)
    with mesh:
        cut = fnx.jit(lambda x: (x * 2).sum(0), in_shardings=P("a"))
        got = fnx.grad(lambda x: (cut(x) ** 2).sum())(x)
    np.testing.assert_allclose(got, np.broadcast_to(8 * x.sum(0), x.shape), rtol=1e-5)


BAD = {
    "no mesh": (
        lambda m: fnx.jit(lambda x: x, in_shardings=P("a"))(np.zeros(8)),
        errors.ArgumentError,
        "name no mesh",
    ),
    "two meshes": (
        lambda m: fnx.jit(
            lambda x: x,
            in_shardings=NamedSharding(m, P("a")),
            out_shardings=NamedSharding(fnx.make_mesh((4, 2), ("a", "b")), P("a")),
        )(np.zeros(8)),
        errors.ArgumentError,
        "different meshes",
    ),
    "an unknown name": (
        lambda m: fnx.jit(lambda x: x, in_shardings=NamedSharding(m, P("c")))(
            np.zeros(8)
        ),
        errors.AxisError,
        "no axis 'c'",
    ),
    "no multiple": (
        lambda m: fnx.jit(lambda x: x, in_shardings=NamedSharding(m, P("b")))(
            np.zeros(6)
        ),
        errors.ShapeError,
        "6 is no multiple of 4",
    ),
    "no sharding": (
        lambda m: fnx.jit(lambda x: x, in_shardings="a")(np.zeros(8)),
        errors.ArgumentError,
        "in_shardings has 'a'",
    ),
    "a prefix": (
        lambda m: fnx.jit(lambda x: x, in_shardings=(NamedSharding(m, P()), None))(
            np.zeros(8)
        ),
        errors.TreeError,
        "in_shardings",
    ),
    "a constraint without a mesh": (
        lambda m: lax.with_sharding_constraint(np.zeros(8), P("a")),
        errors.ArgumentError,
        "there is none",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what, mesh):
    call, kind, text = BAD[what]
    with pytest.raises(kind, match=f"(?s){text}"):
        call(mesh)
