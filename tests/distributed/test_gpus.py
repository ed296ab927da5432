"""Processes with one emulated GPU each: NCCL joins them, and is part of their graphs.

Each process has an emulator of its own; their NCCL exchanges messages over sockets. The
oracle is `vmap`, in each process, on the CPU.
"""

from __future__ import annotations

import pytest

from tests import cuda_emulator as emulator
from tests.distributed.jobs import run

pytestmark = [pytest.mark.cuda, pytest.mark.multi_device]

BEGIN = """
    from fnx import lax
    from fnx.distributed import process_allgather
    from fnx.runtime import device
    from fnx.sharding import Mesh, NamedSharding, PartitionSpec as P
    from fnx_cuda import _cupy, links
    from tests import cuda_emulator as emulator

    fnx.config.collective_timeout = 60
    _cupy.use(emulator.cupy_module())
    device.forget()
    settings = emulator.Settings(devices=1, memory=1 << 28)
    machine = emulator.another(settings)
    machine.__enter__()
    fnx.config.default_device = "cpu"
    gpus = fnx.devices("cuda")
    mesh = Mesh(np.array(gpus), ("i",))
    mine = slice(rank, rank + 1)

    def mapped(f, **options):
        return fnx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), **options)

    def own(x):
        (shard,) = x.addressable_shards
        assert shard.device == gpus[rank] and shard.data.device == gpus[rank]
        return np.asarray(shard.data)

    x = np.random.default_rng(0).normal(size=(size, 4, 30)).astype("float32")
"""


def job(count, program, folder, **environment):
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(f"the CUDA emulator cannot run: {reason}")
    environment = {"FNX_EMULATED_RANKS": "processes", **environment}
    kind = environment.pop("KIND", "tcp")
    return run(kind, count, BEGIN + program, folder, limit=180, **environment)


COLLECTIVES = """
    def every(x):
        x = x[0] * 2
        rows = fnp.broadcast_to(x, (size, *x.shape)) + lax.axis_index("i")
        ring = [(i, (i + 1) % size) for i in range(size)]
        found = [
            lax.psum(x, "i"),
            lax.psum(x.astype("bfloat16"), "i").astype("float32"),
            lax.pmax(x, "i"),
            lax.pmin((x * 10).astype(int), "i").astype("float32"),
            lax.psum((x * 10).astype("int16"), "i").astype("float32"),
            lax.all_gather(x, "i"),
            lax.psum_scatter(rows, "i"),
            lax.all_to_all(rows, "i", 0, 0),
            lax.ppermute(x, "i", ring),
            lax.ppermute(x, "i", [(size - 1, 0)]),
            lax.pbroadcast(x, "i", 1),
            lax.axis_index("i") + 0 * x,
        ]
        return [y[None] for y in found]

    want = fnx.vmap(every, axis_name="i")(x[:, None])
    f = mapped(every, check_vma=False)
    for _ in range(3):  # the second time it is captured, the third time replayed
        for number, (got, expected) in enumerate(zip(f(x), want)):
            np.testing.assert_allclose(
                own(got), np.asarray(expected)[rank], rtol=1e-2, err_msg=str(number))
    assert links.are_there()
    everyone.barrier()  # the first one has the board of all
    report([str(d) for d in gpus] + [d.process_index for d in gpus]
           + [d.ordinal for d in gpus])
"""


@pytest.mark.parametrize("kind", ["tcp", "mpi"])
def test_collectives(kind, tmp_path):
    found = job(2, COLLECTIVES, tmp_path, KIND=kind)
    assert set(found.codes) == {0}, found.printed
    assert found.reports == [["cuda:0", "cuda:1", 0, 1, 0, 0]] * 2


TRAINING = """
    from fnx_cuda import graph
    captured = []
    original = graph._capture
    graph._capture = lambda *work: captured.append(1) or original(*work)

    def step(w, x, y):
        def loss(w):
            return fnp.mean((fnp.tanh(x @ w) - y) ** 2)
        value, g = fnx.value_and_grad(loss)(w)
        return w - 0.1 * lax.pmean(g, "i"), lax.pmean(value, "i")

    rng = np.random.default_rng(1)
    w = rng.normal(size=(6, 3)).astype("float32")
    xs = rng.normal(size=(size, 8, 6)).astype("float32")
    ys = rng.normal(size=(size, 8, 3)).astype("float32")
    stacked = np.broadcast_to(w, (size, 6, 3))

    want, over = stacked, fnx.vmap(step, axis_name="i")
    got, by_pmap = stacked[mine], fnx.pmap(step, "i")
    flat = fnx.shard_map(step, mesh=mesh, in_specs=(P(), P("i"), P("i")),
                         out_specs=(P(), P()))
    whole = w
    x, y = xs.reshape(-1, 6), ys.reshape(-1, 3)
    losses = []
    for _ in range(5):
        want, expected = over(want, xs, ys)
        with fnx.default_device(gpus[rank]):
            got, by_member = by_pmap(got, xs[mine], ys[mine])
        whole, value = flat(whole, x, y)
        np.testing.assert_allclose(by_member, expected[mine], rtol=1e-5)
        np.testing.assert_allclose(np.asarray(value), expected[0], rtol=1e-5)
        losses.append(float(value))
    np.testing.assert_allclose(np.asarray(whole), want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got, want[mine], rtol=1e-4, atol=1e-5)
    assert whole.addressable_shards[0].device == gpus[rank]
    assert captured, "the collectives are part of no graph"
    assert losses[-1] < losses[0]

    # jit of arrays in parts, too
    rows = fnx.device_put(x, NamedSharding(mesh, P("i")))
    total = fnx.jit(lambda x, w: (x @ w).sum(0))(rows, w)
    np.testing.assert_allclose(np.asarray(total), (x @ w).sum(0), rtol=1e-4, atol=1e-4)
    everyone.barrier()  # the first one has the board of all
    report(losses)
"""


def test_steps_of_training_with_captured_collectives(tmp_path):
    found = job(2, TRAINING, tmp_path)
    assert set(found.codes) == {0}, found.printed
    assert found.reports[0] == found.reports[1]


FAULTS = """
    fnx.config.collective_timeout = 8
    f = mapped(lambda x: lax.psum(x, "i"))
    np.testing.assert_allclose(own(f(x)), x.sum(0, keepdims=True), rtol=1e-5)
    fault = os.environ["FAULT"]
    start = time.monotonic()
    if rank == 1 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and fault == "another":
        f = mapped(lambda x: lax.pmax(x * 2, "i"))
    if fault == "rounds":  # what the host cannot see: one makes a round less
        f = mapped(lambda x: lax.while_loop(
            lambda c: c[0] < 3 - lax.axis_index("i"),
            lambda c: (c[0] + 1, lax.psum(c[1], "i")), (0, x))[1])
    text = caught(lambda: own(f(x)))
    report([text, time.monotonic() - start])
    os._exit(0)
"""


@pytest.mark.parametrize("fault", ["killed", "another", "rounds"])
def test_faults_are_errors_and_no_hang(fault, tmp_path):
    found = job(2, FAULTS, tmp_path, FAULT=fault, FNX_EMULATED_PATIENCE="6")
    text, seconds = found.reports[0]
    assert seconds < 60
    assert "CollectiveError" in text, text
    if fault == "killed":
        assert "process 1 has ended" in text
    if fault == "another":
        assert all("not all processes do the same" in t for t, _ in found.reports)
