"""Replicas on GPUs inside of jit, derivatives, loops and other replicas: they run where
they are to, not on the CPU, and arrays stay there."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.runtime import device_replicas, replicas
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P
from tests.cuda.test_replicas import machine, random

pytestmark = [pytest.mark.cuda, pytest.mark.multi_device]


@pytest.fixture
def gpus():
    with machine() as found:
        yield found


@pytest.fixture
def runs(monkeypatch):
    """The devices of each run of replicas; the CPU must run none."""
    found = []
    original = device_replicas.DeviceReplicas.run

    def run(self, arrays, shardings, devices, what):
        found.append([str(device) for device in devices])
        return original(self, arrays, shardings, devices, what)

    def refuse(self, outputs, arrays):
        raise AssertionError("replicas run on the CPU")

    monkeypatch.setattr(device_replicas.DeviceReplicas, "run", run)
    monkeypatch.setattr(replicas.Replicas, "run", refuse)
    monkeypatch.setattr(replicas.AsOne, "run", refuse)
    return found


FOUR = [f"cuda:{n}" for n in range(4)]


def centred(x):
    return fnp.tanh(x) - lax.pmean(x, "i")


@pytest.mark.parametrize("shape", [(4,), (4, 30, 70)], ids=["small", "large"])
def test_under_jit(gpus, runs, shape):
    x = random(*shape)
    mapped = fnx.pmap(centred, "i", devices=gpus)
    want = fnx.vmap(centred, axis_name="i")(x)
    got = fnx.jit(mapped)(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert runs == [FOUR]
    assert got.devices() == set(gpus)


def test_what_is_around_it(gpus, runs):
    x, y = random(4, 50), random(50, seed=1)
    mapped = fnx.pmap(centred, "i", devices=gpus)

    @fnx.jit
    def f(x, y):
        first = mapped(x * y)
        second = mapped(first)  # whose parts stay where they are
        return second, fnp.sin(second).sum() + y[0], x, 3.0

    one, total, passed, number = f(x, y)
    over = fnx.vmap(centred, axis_name="i")
    want = over(over(x * y))
    np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, np.sin(want).sum() + y[0], rtol=1e-4)
    np.testing.assert_array_equal(passed, x)
    assert number == 3
    assert runs == [FOUR, FOUR]
    assert one.devices() == set(gpus)


def test_a_jit_in_a_jit(gpus, runs):
    x = random(4, 6)
    inner = fnx.jit(fnx.pmap(centred, "i", devices=gpus))
    got = fnx.jit(lambda x: inner(x) * 2)(x)
    want = 2 * np.asarray(fnx.vmap(centred, axis_name="i")(x))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert runs == [FOUR]


@pytest.mark.parametrize("jitted", [False, True])
def test_derivatives(gpus, runs, jitted):
    x = random(4, 9) / 10
    mapped = fnx.pmap(centred, "i", devices=gpus)

    def loss(f):
        return fnx.grad(lambda x: (f(x) ** 2).sum())

    slope = fnx.jit(loss(mapped)) if jitted else loss(mapped)
    want = loss(fnx.vmap(centred, axis_name="i"))(x)
    np.testing.assert_allclose(slope(x), want, rtol=1e-4, atol=1e-5)
    assert len(runs) >= 2
    assert all(names == FOUR for names in runs)


def test_in_a_loop(gpus, runs):
    x = random(4, 5) / 10
    mapped = fnx.pmap(centred, "i", devices=gpus)

    def three(f):
        return lambda x: lax.fori_loop(0, 3, lambda _, x: f(x) + x, x)

    got = fnx.jit(three(mapped))(x)
    want = three(fnx.vmap(centred, axis_name="i"))(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert runs == [FOUR] * 3


def test_under_vmap(gpus, runs):
    x = random(3, 4, 5)
    got = fnx.jit(fnx.vmap(fnx.pmap(centred, "i", devices=gpus)))(x)
    want = fnx.vmap(fnx.vmap(centred, axis_name="i"))(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert runs == [FOUR]


def test_where_programs_run_on_a_gpu(gpus, runs):
    """What is around the replicas runs on the first device."""
    x = random(4, 5)
    with fnx.default_device(gpus[0]):
        mapped = fnx.pmap(centred, "i")
        got = fnx.jit(lambda x: mapped(x + 1) * 2)(x)
        loop = fnx.jit(lambda x: lax.fori_loop(0, 2, lambda _, x: mapped(x) + x, x))
        over = fnx.vmap(centred, axis_name="i")
        want = over(x + 1) * 2
        assert got.devices() == {gpus[0]}
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        expected = lax.fori_loop(0, 2, lambda _, x: over(x) + x, x)
        np.testing.assert_allclose(loop(x), expected, rtol=1e-5, atol=1e-5)
    assert runs == [FOUR] * 3


def test_cpu_devices_that_a_program_of_a_gpu_names(gpus):
    x = random(2, 30)
    with fnx.config.override(cpu_devices=2), fnx.default_device(gpus[0]):
        cpus = fnx.devices("cpu")
        mapped = fnx.pmap(centred, "i", devices=cpus)
        got = fnx.jit(lambda x: mapped(x * 2))(x)
        assert got.devices() == set(cpus)
        want = fnx.vmap(centred, axis_name="i")(x * 2)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_replicas_in_replicas(gpus, runs):
    """The devices are busy: those inside are one program on the device around them."""
    x = random(2, 2, 5)

    def f(outer, inner):
        return outer(
            lambda x: inner(lambda x: x - lax.psum(x, ("i", "j")), "j")(x), "i"
        )

    def mapped(f, name):
        return fnx.pmap(f, name, devices=gpus[:2])

    def vmapped(f, name):
        return fnx.vmap(f, axis_name=name)

    got = f(mapped, mapped)(x)
    np.testing.assert_allclose(got, f(vmapped, vmapped)(x), rtol=1e-5, atol=1e-5)
    assert runs == [FOUR[:2]]
    with fnx.config.override(cpu_devices=2):
        cpus = fnx.devices("cpu")

        def elsewhere(f, name):
            return fnx.pmap(f, name, devices=cpus)

        with pytest.raises(errors.ArgumentError, match=r"cpu:0, cpu:1 inside of a"):
            f(mapped, elsewhere)(x)


def test_donated_parts_are_deleted(gpus):
    x = fnx.pmap(lambda x: x * 1, devices=gpus)(random(4, 5))
    want = np.asarray(x) * 3
    f = fnx.jit(fnx.pmap(lambda x: x * 3, devices=gpus), donate_argnums=0)
    np.testing.assert_array_equal(f(x), want)
    assert x.is_deleted()
    y = random(4, 5)
    given = fnx.pmap(lambda x: x * 1, devices=gpus)(y)
    passing = fnx.jit(
        lambda y: (y, fnx.pmap(lambda x: x * 3, devices=gpus)(y)), donate_argnums=0
    )
    same, other = passing(given)
    np.testing.assert_array_equal(same, y)
    np.testing.assert_array_equal(other, y * 3)


def test_stages(gpus):
    x = random(4, 5)
    lowered = fnx.pmap(centred, "i", devices=gpus).lower(x)
    text = lowered.as_text("cuda")
    assert "a replica on each of cuda:0, cuda:1, cuda:2, cuda:3" in text
    assert "tanh" in lowered.as_text()
    assert lowered.cost_analysis()["transcendentals"] == 4 * 5
    want = fnx.vmap(centred, axis_name="i")(x)
    np.testing.assert_allclose(lowered.compile()(x), want, rtol=1e-5, atol=1e-5)


def test_a_mesh_has_devices_of_one_kind(gpus):
    mixed = [fnx.devices("cpu")[0], gpus[0]]
    with pytest.raises(errors.ArgumentError, match="devices of cpu and of cuda"):
        fnx.make_mesh((2,), ("a",), devices=mixed)


def test_jit_of_arrays_in_parts(gpus, runs):
    mesh = fnx.make_mesh((4,), ("a",), devices=gpus)
    x, w = random(8, 6), random(6, 3, seed=1)
    cut = fnx.device_put(x, NamedSharding(mesh, P("a")))
    f = fnx.jit(lambda x, w: fnp.tanh(x @ w))
    got = f(cut, w)
    assert got.sharding == NamedSharding(mesh, P("a"))
    np.testing.assert_allclose(got, np.tanh(x @ w), rtol=1e-4, atol=1e-5)
    again = fnx.jit(lambda y: y.sum())(got)
    np.testing.assert_allclose(again, np.tanh(x @ w).sum(), rtol=1e-4)
    assert runs == [FOUR, FOUR]
