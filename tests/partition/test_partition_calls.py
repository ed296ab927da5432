"""jit with shardings: arrays in parts as arguments, made and asked for; effects."""

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
from tests.partition.collectives import collectives
from tests.spmd.arrays import random

pytestmark = pytest.mark.multi_device


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
