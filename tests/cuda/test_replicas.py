"""pmap and shard_map on several GPUs, through NCCL, against vmap on the CPU."""

from __future__ import annotations

import time
from contextlib import contextmanager

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.runtime import device_array
from fnx.sharding import PartitionSpec as P
from fnx_cuda import _cupy, collectives, graph, modules
from tests import cuda_emulator as emulator
from tests.cuda.compare import runs_on_the_host
from tests.cuda.conftest import cupy, forget

pytestmark = [pytest.mark.cuda, pytest.mark.multi_device]


@contextmanager
def machine(seed=0, devices=4):
    """A machine with several devices; the CPU is the default."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(f"the CUDA emulator cannot run: {reason}")
    before = _cupy._module
    _cupy.use(cupy())
    forget()
    settings = emulator.Settings(seed=seed, devices=devices, memory=1 << 28)
    with emulator.another(settings) as made, fnx.default_device("cpu"):
        try:
            yield fnx.devices("cuda")
        finally:
            collectives.forget()
            forget()
            modules.prepare([], 0)  # lets go of what was loaded on its devices
            _cupy.use(before)
    assert not made.findings


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def gpus(request):
    with machine(request.param) as found:
        yield found


def random(*shape, dtype="float32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 10
    return x.astype(dtype)


COLLECTIVES = {
    "psum": lambda x: lax.psum(x * 2, "i"),
    "pmax": lambda x: lax.pmax(x * 2, "i"),
    "pmin": lambda x: lax.pmin(x * 2, "i"),
    "all_gather": lambda x: lax.all_gather(x * 2, "i"),
    "psum_scatter": lambda x: lax.psum_scatter(x * 2, "i", tiled=True),
    "all_to_all": lambda x: lax.all_to_all(x * 2, "i", 0, 1, tiled=True),
    "ppermute": lambda x: lax.ppermute(x * 2, "i", [(0, 1), (1, 3), (3, 0)]),
    "pbroadcast": lambda x: lax.pbroadcast(x * 2, "i", 2),
    "groups": lambda x: lax.psum(x * 2, "i", axis_index_groups=[[0, 3], [1, 2]]),
    "axis_index": lambda x: x * lax.axis_index("i").astype(x.dtype),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(gpus, name):
    x, f = random(4, 4, 70), COLLECTIVES[name]
    got = fnx.pmap(f, "i", devices=gpus)(x)
    assert got.devices() == set(gpus)
    want = fnx.vmap(f, axis_name="i")(x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_number_of_a_replica_is_in_its_graph(gpus, monkeypatch):
    """In another order of the devices, each has another one."""
    replayed = []
    original = graph.Graphs._launch

    def launched(self, made):
        replayed.append(self.device.number)
        original(self, made)

    monkeypatch.setattr(graph.Graphs, "_launch", launched)

    def f(x):
        def body(c, _):
            return fnp.tanh(c + lax.axis_index("i")), c * lax.axis_index("i")

        return lax.scan(body, lax.psum(x, "i") / 4 + lax.axis_index("i"), None, 5)

    assert not runs_on_the_host(
        lambda x: fnp.tanh(x) * lax.axis_index("i"), np.ones(3, "f"), axes=[("i", 4)]
    )
    x = random(4, 30) / 10
    wanted = fnx.vmap(f, axis_name="i")(x)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        devices = [gpus[number] for number in order]
        given = fnx.pmap(lambda x: x * 1, "i", devices=devices)(x)
        mapped = fnx.pmap(f, "i", devices=devices)
        for _ in range(4):
            got = mapped(given)
            for one, want in zip(got, wanted, strict=True):
                np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)
            del got, one
    assert set(replayed) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "int8", "int16", "uint32", "complex64"]
)
def test_sums_of_dtypes(dtype):
    with machine() as gpus:
        x = fnp.asarray(random(4, 4, 9)).astype(dtype)
        for name in ("psum", "psum_scatter", "all_gather"):
            f = COLLECTIVES[name]
            got = fnx.pmap(f, "i", devices=gpus)(x)
            want = fnx.vmap(f, axis_name="i")(x)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(
                np.asarray(
                    got.astype("complex128" if dtype == "complex64" else "float64")
                ),
                np.asarray(
                    want.astype("complex128" if dtype == "complex64" else "float64")
                ),
                rtol=1e-2 if "16" in dtype else 1e-6,
            )


def test_extremes_of_nan_and_of_booleans():
    x = random(4, 5)
    x[2, 3] = np.nan
    with machine() as gpus:
        over = fnx.pmap(lambda x: lax.pmax(x, "i"), "i", devices=gpus)
        np.testing.assert_array_equal(over(x), np.broadcast_to(x.max(0), x.shape))
        flags = x > 1
        want = np.broadcast_to(flags.any(0), flags.shape)
        np.testing.assert_array_equal(over(flags), want)


def test_steps_of_training_stay_on_the_devices(gpus):
    rng = np.random.default_rng(0)
    w, x = random(6, 3) / 10, random(4, 8, 6) / 10
    y = rng.standard_normal((4, 8, 3)).astype("float32")

    def step(w, x, y):
        loss, g = fnx.value_and_grad(lambda w: ((fnp.tanh(x @ w) - y) ** 2).mean())(w)
        return w - 0.1 * lax.pmean(g, "i"), lax.pmean(loss, "i")

    def train(over, w):
        losses = []
        for _ in range(4):
            w, loss = over(w, x, y)
            losses.append(loss)
        return w, losses

    stacked = np.broadcast_to(w, (4, 6, 3))
    got, losses = train(fnx.pmap(step, "i", devices=gpus), stacked)
    want, expected = train(fnx.vmap(step, axis_name="i"), stacked)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    for one, other in zip(losses, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert [shard.data.device for shard in got.addressable_shards] == list(gpus)


def test_collectives_in_loops_and_branches(gpus):
    x = random(4, 30) / 10

    def f(x):
        def body(c, _):
            c = lax.cond(c.sum() > -1e9, lambda c: lax.psum(c, "i") / 4, lambda c: c, c)
            return c * 0.9 + x, lax.ppermute(
                c, "i", [(i, (i + 1) % 4) for i in range(4)]
            )

        return lax.scan(body, x, None, length=3)

    def total(over):
        return fnx.grad(lambda x: sum(fnp.sum(y**2) for y in over(f)(x)))

    def pmapped(f):
        return fnx.pmap(f, "i", devices=gpus)

    def vmapped(f):
        return fnx.vmap(f, axis_name="i")

    for got, want in zip(pmapped(f)(x), vmapped(f)(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(total(pmapped)(x), total(vmapped)(x), rtol=1e-4)


def test_a_mesh_of_two_axes(gpus):
    mesh = fnx.make_mesh((2, 2), ("a", "b"), devices=gpus)
    x, w = random(4, 8), random(8, 12, seed=1)
    mapped = fnx.shard_map(
        lambda x, w: lax.psum(x @ w, "b"),
        mesh=mesh,
        in_specs=(P("a", "b"), P("b")),
        out_specs=P("a"),
    )
    np.testing.assert_allclose(mapped(x, w), x @ w, rtol=1e-4, atol=1e-3)
    got = fnx.grad(lambda w: (mapped(x, w) ** 2).sum())(w)
    np.testing.assert_allclose(got, 2 * x.T @ (x @ w), rtol=1e-4, atol=1e-1)


def test_arguments_on_a_device_are_read_before_its_replica_waits(gpus, monkeypatch):
    """The first replica, which others wait for, has the device with the arguments."""
    x = fnx.device_put(random(4, 30), gpus[0])
    w = fnx.device_put(random(30, seed=1), gpus[0])
    total = fnx.pmap(
        lambda x, w: lax.psum(x * w, "i"), "i", in_axes=(0, None), devices=gpus
    )
    total(x, w)  # compiled
    original = device_array.buffer_at

    def slowly(x, placement):
        if placement.device.id:
            time.sleep(0.3)
        return original(x, placement)

    monkeypatch.setattr(device_array, "buffer_at", slowly)
    with fnx.config.override(collective_timeout=10):
        got = total(x, w)
    want = (np.asarray(x) * np.asarray(w)).sum(0)
    np.testing.assert_allclose(got, np.stack([want] * 4), rtol=1e-4)


def test_replicas_that_do_not_meet(gpus):
    def f(x):
        return lax.cond(
            lax.axis_index("i") == 0, lambda: lax.psum(x, "i"), lambda: x * 2
        )

    with pytest.raises(errors.CollectiveError, match="has ended without it"):
        fnx.pmap(f, "i", devices=gpus)(random(4, 3))
    got = fnx.pmap(lambda x: lax.psum(x, "i"), "i", devices=gpus)(np.ones((4, 2)))
    np.testing.assert_array_equal(got, np.full((4, 2), 4))


def test_without_nccl_arrays_go_over_the_host(monkeypatch):
    monkeypatch.setattr(_cupy, "nccl", lambda: None)
    x = random(2, 4, 70)
    with machine(devices=2) as gpus:
        for name in ("psum", "psum_scatter", "all_to_all", "all_gather"):
            f = COLLECTIVES[name]
            got = fnx.pmap(f, "i", devices=gpus)(x)
            want = fnx.vmap(f, axis_name="i")(x)
            np.testing.assert_allclose(got, want, rtol=1e-6)
