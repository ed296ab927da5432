"""jit with shardings: programs cut over a mesh against the same on one device."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.control import joint
from fnx.runtime import replicas
from fnx.sharding import NamedSharding, SingleDeviceSharding
from fnx.sharding import PartitionSpec as P

pytestmark = pytest.mark.multi_device


@pytest.fixture(autouse=True)
def eight():
    """Eight CPU devices."""
    with fnx.config.override(cpu_devices=8):
        yield


@pytest.fixture
def mesh():
    return fnx.make_mesh((2, 4), ("a", "b"))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def collectives(function, *args):
    """The names of the collectives in the program of one device."""
    found = []
    entries = list(function._entries.values())
    for eqn in entries[-1].spread.program.eqns:
        if "axis_name" in eqn.params:
            found.append(eqn.primitive.name)
    return sorted(name for name in found if name != "axis_index")


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


def test_shardings_of_arguments_are_followed(mesh):
    x = fnx.device_put(random(8, 4), NamedSharding(mesh, P("a")))
    got = fnx.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P("a", "b")))(x)
    np.testing.assert_array_equal(got, np.asarray(x) * 2)
    assert got.sharding == NamedSharding(mesh, P("a", "b"))


def in_parts(x, mesh, *spec):
    return fnx.device_put(x, NamedSharding(mesh, P(*spec)))


def threads(monkeypatch):
    """Has small programs run in threads, too; gives the meshes that were used."""
    monkeypatch.setattr(joint, "runs_as_one", lambda *_: False)
    fnx.clear_caches()
    runs = []
    original = replicas.Replicas.run

    def run(self, outputs, arrays):
        runs.append(dict(self.axes))
        return original(self, outputs, arrays)

    monkeypatch.setattr(replicas.Replicas, "run", run)
    return runs


def test_jit_computes_arrays_in_parts_in_parts(mesh, monkeypatch):
    """Without a word about shardings, as JAX's jit does."""
    runs = threads(monkeypatch)
    x, w, b = random(8, 12), random(12, 4, seed=1), random(4, seed=2)

    @fnx.jit
    def layer(params, x):
        return fnp.tanh(x @ params["w"] + params["b"])

    params = {"w": in_parts(w, mesh, None, "b"), "b": b}
    got = layer(params, in_parts(x, mesh, "a"))
    np.testing.assert_allclose(got, np.tanh(x @ w + b), rtol=1e-5, atol=1e-6)
    assert got.sharding == NamedSharding(mesh, P("a", "b"))
    assert runs == [{"a": 2, "b": 4}]
    total = fnx.jit(fnx.grad(lambda x: (layer(params, x) ** 2).sum()))(got @ w.T)
    want = fnx.grad(lambda x: (fnp.tanh(x @ w + b) ** 2).sum())(np.asarray(got) @ w.T)
    np.testing.assert_allclose(total, want, rtol=1e-4, atol=1e-5)
    # The same types, not in parts, are another signature.
    assert layer({"w": w, "b": b}, x).devices() == {fnx.devices("cpu")[0]}
    before = layer.cache_info()
    assert before.misses == 2
    layer(params, in_parts(x, mesh, "a"))
    assert layer.cache_info() == before._replace(hits=before.hits + 1)
    assert len(runs) == 2


def test_what_jit_follows_and_cannot_cut_is_computed_whole(mesh):
    x = random(8, 8)
    x = x @ x.T + 8 * np.eye(8, dtype="float32")
    got = fnx.jit(fnp.linalg.cholesky)(in_parts(x, mesh, "a"))
    np.testing.assert_allclose(got, np.linalg.cholesky(x), rtol=1e-4, atol=1e-5)


def test_jit_follows_another_mesh_of_the_same_devices(mesh):
    other = fnx.make_mesh((8,), ("c",))
    x, y = random(8, 4), random(8, 4, seed=1)
    got = fnx.jit(lambda x, y: x + y)(in_parts(x, mesh, "a"), in_parts(y, other, "c"))
    np.testing.assert_array_equal(got, x + y)
    assert got.sharding.mesh == mesh
    few = fnx.make_mesh((2,), ("c",), devices=fnx.devices()[:2])
    with pytest.raises(errors.ArgumentError, match="on different devices"):
        fnx.jit(lambda x, y: x + y)(in_parts(x, mesh, "a"), in_parts(y, few, "c"))


def test_effects_happen_once_for_arrays_in_parts(mesh, capsys):
    x = random(8, 4)

    def f(x):
        fnx.debug.print("seen {}", x.shape[0])
        return x * 2

    got = fnx.jit(f)(in_parts(x, mesh, "a"))
    np.testing.assert_array_equal(got, x * 2)
    assert capsys.readouterr().out == "seen 8\n"


def test_what_every_cpu_device_has_is_computed_once(mesh, monkeypatch):
    runs = threads(monkeypatch)
    x = random(8, 4)
    np.testing.assert_array_equal(fnx.jit(lambda x: x * 2)(in_parts(x, mesh)), x * 2)
    assert runs == []


def test_donated_arguments_in_parts(mesh):
    x = random(8, 4)
    cut = in_parts(x, mesh, "a")
    got = fnx.jit(lambda x: x * 2, donate_argnums=0)(cut)
    np.testing.assert_array_equal(got, x * 2)
    assert cut.is_deleted()


def test_random_bits_do_not_depend_on_the_parts(mesh):
    key, x = fnx.random.key(3), random(8, 4)

    @fnx.jit
    def noisy(x):
        return x + fnx.random.normal(key, x.shape)

    got = noisy(in_parts(x, mesh, "a", "b"))
    np.testing.assert_array_equal(got, noisy(x))


def test_no_device_draws_more_than_its_part(mesh):
    key, x = fnx.random.key(3), random(8, 16)

    def noisy(x):
        kept = fnx.random.bernoulli(key, 0.5, x.shape)
        return fnp.where(kept, x + fnx.random.normal(key, x.shape), 0)

    with mesh:
        cut = fnx.jit(noisy, in_shardings=P("a", "b"))
        got = cut(x)
    np.testing.assert_array_equal(got, fnx.jit(noisy)(x))
    program = next(iter(cut._entries.values())).spread.program
    sizes = {
        out.type.size
        for eqn in program.eqns
        if eqn.primitive.name in ("threefry2x32", "erf_inv", "lt")
        for out in eqn.outputs
    }
    assert sizes == {8 * 16 // 8}


def test_long_chains_of_what_every_device_has(mesh):
    x, c = random(8, 4), random(4, seed=1)

    def f(x, c):
        for _ in range(500):
            c = fnp.sin(c) + 0.1
        return x + c, c.sum()

    with mesh:
        got = fnx.jit(f, in_shardings=(P("a", "b"), None))(x, c)
    for one, other in zip(got, fnx.jit(f)(x, c), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_stages_show_what_a_device_does(mesh):
    x, w = random(8, 12), random(12, 4, seed=1)
    cut = fnx.jit(
        lambda x, w: x @ w,
        in_shardings=(NamedSharding(mesh, P(None, "b")), NamedSharding(mesh, P("b"))),
    )
    lowered = cut.lower(x, w)
    text = lowered.as_text()
    assert "psum" in text
    assert "f32[8,3]" in text  # a device's part of x
    assert "a replica on each of cpu:0, cpu:1" in lowered.as_text("plan")
    compiled = lowered.compile()
    np.testing.assert_allclose(compiled(x, w), x @ w, rtol=1e-4, atol=1e-5)
    assert compiled(x, w).sharding.mesh == mesh
    assert compiled.memory_analysis().output_size_in_bytes == 8 * 4 * 4
    one = 2 * 8 * 12 * 4
    assert compiled.cost_analysis()["flops"] >= one
    followed = fnx.jit(lambda x: x.sum()).lower(in_parts(x, mesh, "a"))
    assert "psum" in followed.as_text()


def test_static_and_donated_arguments(mesh):
    with mesh:
        f = fnx.jit(
            lambda x, n: x * n, static_argnums=1, donate_argnums=0, in_shardings=P("a")
        )
        x = fnp.asarray(random(8))
        data = np.array(x)
        np.testing.assert_array_equal(f(x, 3), data * 3)
        assert x.is_deleted()


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


def test_an_output_that_is_constrained_along_one_axis(mesh):
    x = random(8, 4)
    free = P.UNCONSTRAINED
    with mesh:
        found = [
            fnx.jit(lambda x: 2 * x, in_shardings=P("a"), out_shardings=spec)(x)
            for spec in (P(free, "b"), P(free), P(None, free), P(free, "a"))
        ]
    for y in found:
        np.testing.assert_array_equal(y, 2 * x)
    specs = [y.sharding.spec for y in found]
    assert specs == [P("a", "b"), P("a"), P(), P(None, "a")]


def test_a_constraint_on_an_array_leaves_what_it_does_not_name(mesh):
    x = fnx.device_put(random(8, 4), NamedSharding(mesh, P("a")))
    y = lax.with_sharding_constraint(x, NamedSharding(mesh, P(P.UNCONSTRAINED, "b")))
    assert y.sharding.spec == P("a", "b")
    again = pickle.loads(pickle.dumps(P(P.UNCONSTRAINED)))
    assert again[0] is P.UNCONSTRAINED and repr(again) == "PartitionSpec(UNCONSTRAINED)"
    assert fnx.device_put(x, NamedSharding(mesh, again)).is_fully_replicated


MAKERS = {
    "zeros": lambda **at: fnp.zeros((8, 4), **at),
    "full": lambda **at: fnp.full((8, 4), 3, **at),
    "arange": lambda **at: fnp.arange(8, **at),
    "array": lambda **at: fnp.array(random(8, 4), **at),
    "asarray": lambda **at: fnp.asarray(random(8, 4), **at),
    "ones_like": lambda **at: fnp.ones_like(random(8, 4), **at),
    "linspace": lambda **at: fnp.linspace(0, 1, 8, **at),
    "eye": lambda **at: fnp.eye(8, **at),
    "fftfreq": lambda **at: fnp.fft.fftfreq(8, **at),
}


@pytest.mark.parametrize("name", MAKERS)
def test_arrays_are_made_in_parts(name, mesh):
    """In a traced function the sharding is a constraint."""
    make, sharding = MAKERS[name], NamedSharding(mesh, P("a"))
    found = make(device=sharding)
    assert found.sharding == sharding and found.committed
    np.testing.assert_array_equal(found, make())
    with mesh:
        assert make(device=P("a")).sharding == sharding
    traced = fnx.jit(lambda x: x.sum() * make(device=sharding), in_shardings=sharding)
    np.testing.assert_allclose(traced(np.ones(8, "float32")), 8 * make(), 1e-6)


def test_device_put_of_a_traced_array_is_a_constraint(mesh):
    sharding = NamedSharding(mesh, P(None, "b"))

    def f(x):
        return (fnx.device_put({"x": x * 2}, {"x": sharding})["x"] ** 2).sum()

    x = random(8, 4)
    cut = fnx.jit(f, in_shardings=NamedSharding(mesh, P("a")))
    np.testing.assert_allclose(cut(x), f(fnp.array(x)), 1e-5)
    assert "all_gather" in collectives(cut)
    np.testing.assert_allclose(fnx.grad(f)(x), 8 * x, 1e-6)
    np.testing.assert_allclose(fnx.vmap(f)(np.stack([x, x])), [f(x)] * 2, 1e-5)


def test_device_put_by_a_spec_of_the_mesh_around(mesh):
    x = random(8, 4)
    with mesh:
        found = fnx.device_put({"x": x, "y": x}, {"x": P("a"), "y": P(None, "b")})
    assert found["x"].sharding == NamedSharding(mesh, P("a"))
    assert found["y"].sharding == NamedSharding(mesh, P(None, "b"))
    with pytest.raises(errors.ArgumentError, match="there is no mesh around"):
        fnx.device_put(x, P("a"))


def test_jit_on_one_device_by_a_sharding():
    device = fnx.devices()[2]
    one = SingleDeviceSharding(device)
    x = random(4, 3)
    for f in (
        fnx.jit(lambda x: x + 1, in_shardings=one),
        fnx.jit(lambda x: x + 1, out_shardings=one),
        fnx.jit(lambda x: x + 1, in_shardings=one, out_shardings=one),
    ):
        y = f(x)
        np.testing.assert_array_equal(y, x + 1)
        assert y.devices() == {device} and y.sharding.is_equivalent_to(one, 2)
