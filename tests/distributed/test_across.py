"""Programs of several processes: the same as those of one process with as many devices.

One process with four devices is the oracle: its results are compared with NumPy and
`vmap` elsewhere. Arrays are so large that replicas run in threads of their own.
"""

from __future__ import annotations

import numpy as np
import pytest

from fnx.cpu.threads import cpus
from tests.distributed.jobs import run

pytestmark = pytest.mark.multi_device

BEGIN = """
    import zlib
    from fnx import lax
    from fnx.distributed import process_allgather
    from fnx.sharding import Mesh, NamedSharding, PartitionSpec as P

    fnx.config.cpu_devices = 4 // size
    fnx.config.collective_timeout = 30
    mesh = fnx.make_mesh((2, 2), ("a", "b"))

    def whole(x):
        return np.asarray(x) if x.is_fully_addressable else process_allgather(x)

    def bits(x):
        x = whole(x)
        return [list(x.shape), str(x.dtype), zlib.crc32(x.tobytes())]

    x = np.random.default_rng(0).normal(size=(160, 240)).astype("float32")
"""

COLLECTIVES = (
    BEGIN
    + """
    def every(x):
        groups = [[0, 1]] if size == 3 else [[1], [0]]
        return {
            "psum": lax.psum(x, "a"),
            "psum of both": lax.psum(x.sum(), ("a", "b")),
            "half": lax.psum(x.astype("bfloat16"), "a"),
            "pmax": lax.pmax(x, "b"),
            "pmin of integers": lax.pmin((100 * x).astype(int), "a"),
            "all_gather": lax.all_gather(x, "a", axis=1),
            "scatter": lax.psum_scatter(x, "a", scatter_dimension=0, tiled=True),
            "all_to_all": lax.all_to_all(x, "a", 0, 1, tiled=True),
            "shift": lax.ppermute(x, "a", [(0, 1)]),
            "swap": lax.ppermute(x, "b", [(0, 1), (1, 0)]),
            "groups": lax.psum(x, "a", axis_index_groups=groups),
            "index": lax.axis_index("a") * 10 + lax.axis_index("b") + 0 * x[:1, :1],
        }

    specs = {name: P("a", "b") for name in (
        "psum", "half", "pmax", "pmin of integers", "all_to_all", "shift", "swap",
        "scatter", "groups", "index",
    )} | {"all_gather": P("a", None, "b"), "psum of both": P()}
    f = fnx.shard_map(every, mesh=mesh, in_specs=P("a", "b"), out_specs=specs,
                      check_vma=False)
    found = {name: bits(y) for name, y in f(x).items()}
    again = {name: bits(y) for name, y in fnx.jit(f)(x).items()}
    assert found == again

    # what is not cut is the first replica's
    first = fnx.shard_map(lambda x: x, mesh=mesh, in_specs=P("a", "b"),
                          out_specs=P("a"), check_vma=False)(x)
    found["first"] = bits(first)

    def loss(x):
        y = f(x)
        return (y["psum"] ** 2).sum() + (y["all_gather"] * y["all_gather"]).sum()

    found["gradient"] = bits(fnx.grad(loss)(x))
    line = Mesh(np.array(fnx.devices())[[2, 0, 3, 1]], ("i",))
    turned = fnx.shard_map(
        lambda x: (lax.all_gather(x, "i"), lax.ppermute(x, "i", [(0, 3), (3, 1)]),
                   lax.psum(x, "i", axis_index_groups=[[0, 3], [1, 2]]),
                   lax.all_to_all(x, "i", 0, 0, tiled=True), lax.psum(x, "i")),
        mesh=line, in_specs=P("i"), out_specs=(P(None, "i"), *[P("i")] * 4),
        check_vma=False,
    )
    found["turned"] = [bits(y) for y in turned(x)]
    product = fnx.jit(lambda x, y: x @ y, in_shardings=NamedSharding(mesh, P("a", "b")))
    found["product"] = bits(product(x, x.T))
    given = fnx.device_put(x, NamedSharding(mesh, P("a", "b")))
    followed = fnx.jit(lambda x, y: fnp.tanh(x) @ y)(given, x.T)
    assert followed.sharding.mesh == mesh
    found["followed"] = bits(followed)
    report(found)
"""
)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    job = run("tcp", 1, COLLECTIVES, tmp_path_factory.mktemp("alone"))
    assert job.codes == [0], job.printed
    return job.reports[0]


@pytest.mark.parametrize(("kind", "count"), [("mpi", 2), ("tcp", 2), ("tcp", 4)])
def test_programs_are_those_of_one_process(kind, count, tmp_path, oracle):
    job = run(kind, count, COLLECTIVES, tmp_path)
    assert set(job.codes) == {0}, job.printed
    for found in job.reports:
        different = [name for name in oracle if found[name] != oracle[name]]
        assert not different and found.keys() == oracle.keys()


ARRAYS = (
    BEGIN
    + """
    from fnx.experimental.mesh_utils import create_hybrid_device_mesh

    def hybrid(near, far):
        return [device.id for device in create_hybrid_device_mesh(near, far).flat]

    sharding = NamedSharding(mesh, P("a", "b"))
    rows = x[fnx.distributed.shard_of(160)]
    made = fnx.make_array_from_process_local_data(sharding, rows)
    called = fnx.make_array_from_callback(x.shape, sharding, lambda index: x[index])
    put = fnx.device_put(x, sharding)
    pieces = [fnx.device_put(s.data, s.device) for s in put.addressable_shards]
    joined = fnx.make_array_from_single_device_arrays(x.shape, sharding, pieces[::-1])
    for y in (made, called, put, joined):
        assert y.shape == x.shape and not y.is_fully_addressable
        assert [s.device for s in y.addressable_shards] == fnx.local_devices()
        for shard in y.addressable_shards:
            assert np.array_equal(shard.data, x[shard.index])
            assert shard.replica_id == 0
        assert np.array_equal(whole(y), x)
    same = fnx.make_array_from_process_local_data(
        NamedSharding(mesh, P(None, "b")), x, x.shape
    )
    moved = fnx.device_put(made, NamedSharding(mesh, P("b")))
    copies = fnx.device_put(x, NamedSharding(mesh, P()))
    with fnx.config.override(cpu_devices=3):  # an axis of two and one
        total = fnx.shard_map(lambda x: lax.psum(x, "i"), in_specs=P("i"),
                              out_specs=P(), mesh=fnx.make_mesh((3, 2), ("i", "j")))
        mixed = [caught(total, x[:6]) for _ in range(2)]
    report({
        "looking": caught(np.asarray, made),
        "repr": repr(made),
        "str": str(made),
        "same": bool(np.array_equal(whole(same), x)),
        "copies of columns": [s.replica_id for s in same.addressable_shards],
        "moved": bool(np.array_equal(whole(moved), x)),
        "everywhere": bool(np.array_equal(np.asarray(copies), x)),
        "replicated": copies.is_fully_replicated,
        "devices": [str(d) for d in fnx.devices()],
        "threads": fnx.num_threads(),
        "local": [str(d) for d in fnx.local_devices()],
        "processes": [d.process_index for d in fnx.devices()],
        "default": str(fnp.zeros(2).device),
        "wrong": caught(
            fnx.make_array_from_process_local_data, sharding, rows[1:], (160, 240)),
        "twice": caught(fnx.make_array_from_single_device_arrays, x.shape, sharding,
                        pieces[:1] * 2),
        "remote": caught(fnx.device_put, x, fnx.devices()[2 - 2 * rank]),
        "uneven": caught(
            fnx.shard_map(lambda x: x, in_specs=P("i"), out_specs=P("i"),
                          mesh=fnx.make_mesh((3,), ("i",))), x[:3]),
        "mixed": mixed,
        "near and far": [
            hybrid((1, 2), (2, 1)), hybrid((2, 1), (1, 2)), hybrid((2,), (2,)),
            caught(hybrid, (1,), (3,)), caught(hybrid, (3,), (2,)),
        ],
        "pmap in shard_map": caught(
            fnx.shard_map(fnx.pmap(lambda x: x), in_specs=P("a"), out_specs=P("a"),
                          mesh=mesh), x[:4]),
        "pmap under checkify": caught(fnx.checkify.checkify(fnx.jit(
            fnx.pmap(lambda x: x))), x[:2]),
    })
"""
)


AUTOMATIC = (
    BEGIN
    + """
    from fnx.experimental import multihost_utils

    named = NamedSharding(mesh, P("a", "b"))

    def f(x):
        fnx.debug.print("once {}", x.shape[0])

        def body(c):
            return c[0] + 1, lax.cond(c[0] % 2 == 0, fnp.sin, lambda x: x * 2, c[1])

        n, y = lax.while_loop(lambda c: fnp.abs(c[1]).sum() < 6e4, body, (0, x))
        return y + n

    got = fnx.jit(f, in_shardings=named)(x)
    some = fnx.shard_map(lambda x: x + lax.psum(x, "a"), mesh=mesh, axis_names={"a"},
                         in_specs=P("a"), out_specs=P("a"))(got)
    own = multihost_utils.global_array_to_host_local_array(got, mesh, P("a", "b"))
    again = multihost_utils.host_local_array_to_global_array(own, mesh, P("a", "b"))
    report({
        "values": bits(got), "some": bits(some), "again": bits(again),
        "specs": [str(got.sharding.spec), str(some.sharding.spec)],
        "own": list(own.shape),
        "shards": [s.data is None for s in got.global_shards],
    })
"""
)


@pytest.mark.parametrize("kind", ["mpi", "tcp"])
def test_jit_and_shard_map_along_some_axes(kind, tmp_path):
    one = run("tcp", 1, AUTOMATIC, tmp_path)
    (want,) = one.reports
    job = run(kind, 2, AUTOMATIC, tmp_path)
    assert set(job.codes) == {0}, job.printed
    assert str(job.printed).count("once 160") == 1
    for rank, found in enumerate(job.reports):
        for name in ("values", "some", "again", "specs"):
            assert found[name] == want[name]
        assert found["own"] == [80, 240]
        assert found["shards"] == [rank == 1, rank == 1, rank == 0, rank == 0]
    assert want["values"] == want["again"]
    assert want["specs"] == ["PartitionSpec('a', 'b')"] * 2


@pytest.mark.parametrize("kind", ["mpi", "tcp"])
def test_arrays_of_several_processes(kind, tmp_path):
    job = run(kind, 2, ARRAYS, tmp_path)
    assert set(job.codes) == {0}, job.printed
    for rank, found in enumerate(job.reports):
        assert "f32[160,240] cut over several processes" in found["looking"]
        assert "process_allgather" in found["looking"]
        assert found["str"] == found["repr"]
        assert found["repr"].startswith("Array(of several processes, f32[160,240]")
        assert found["same"] and found["moved"]
        assert found["copies of columns"] == [rank, rank]
        assert found["everywhere"] and found["replicated"]
        assert found["devices"] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]
        assert found["local"] == found["devices"][2 * rank : 2 * rank + 2]
        assert found["default"] == f"cpu:{2 * rank}"
        assert found["processes"] == [0, 0, 1, 1]
        assert found["threads"] == max(cpus() // 2, 1)
        assert "of axis 0 this process has 80 of 160" in found["wrong"]
        assert "no device" in found["remote"]
        assert f"part on each of cpu:{2 * rank}, cpu:{2 * rank + 1}" in found["twice"]
        assert "of its devices 2, 1 belong to the processes 0 to 1" in found["uneven"]
        for text in found["mixed"]:
            assert text.startswith("ArgumentError: an axis of a mesh over several")
        *grids, far, near = found["near and far"]
        assert grids == [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 3]]
        assert "takes 3 processes, and there are 2" in far
        assert "takes 3 devices, and there are 2" in near
        assert "pmap in a job of several processes" in found["pmap in shard_map"]
        assert "only its own members" in found["pmap under checkify"]


EAGER = """
    from fnx import lax
    from fnx.distributed import process_allgather
    from fnx.sharding import NamedSharding, PartitionSpec as P

    fnx.config.cpu_devices = 4 // size
    fnx.config.collective_timeout = 60
    mesh = fnx.make_mesh((2, 2), ("a", "b"))
    x = np.random.default_rng(0).normal(size=(8, 6))
    y = fnx.device_put(x, NamedSharding(mesh, P("a", "b")))
    operations = {
        "a number": lambda x: 2 * x + 1,
        "a whole array": lambda y: y * x,
        "product": lambda x: x.T @ x,
        "sum": lambda x: float(x.sum()),
        "mean": lambda x: x.mean(0),
        "sort": lambda x: fnp.sort(x, 0),
        "index": lambda x: x[3],
        "rows": lambda x: [row for row in x],
        "set": lambda x: x.at[2, 1].set(9.0),
        "where": lambda x: fnp.where(x > 0, x, -x),
        "truth": lambda x: bool((x > -9).all()),
        "join": lambda x: fnp.concatenate([x, x], 1),
        "svd": lambda x: fnp.linalg.svd(x)[1],
        "grad": fnx.grad(lambda x: fnp.sin(x).sum()),
        "vmap": fnx.vmap(fnp.cumsum),
        "scan": lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x),
        "while": lambda x: lax.while_loop(lambda x: x.sum() < 50, lambda x: x + 1, x),
    }

    def values(tree):
        return [
            np.asarray(process_allgather(x) if getattr(x, "is_remote", False) else x)
            for x in fnx.tree.leaves(tree)
        ]

    different = []
    for name, operation in operations.items():
        for a, b in zip(values(operation(y)), values(operation(fnp.array(x))),
                        strict=True):
            if a.shape != b.shape or not np.allclose(a, b, 1e-10, 1e-12):
                different.append(name)
    other = fnx.device_put(x, NamedSharding(fnx.make_mesh((4,), ("c",)), P("c")))
    report({
        "different": different,
        "sharding": str((y + 1).sharding),
        "meshes": caught(lambda: y + other),
        "sizes": caught(lambda: fnp.unique(y)),
    })
"""


@pytest.mark.parametrize("kind", ["mpi", "tcp"])
def test_operations_on_arrays_of_several_processes(kind, tmp_path):
    job = run(kind, 2, EAGER, tmp_path)
    assert set(job.codes) == {0}, job.printed
    for found in job.reports:
        assert found["different"] == []
        assert "PartitionSpec('a', 'b')" in found["sharding"]
        assert "add: arrays of several processes on different" in found["meshes"]
        assert "this process has only some of them" in found["sizes"]


MEMBERS = """
    from fnx import lax

    fnx.config.cpu_devices = 4 // size
    fnx.config.collective_timeout = 60
    n = 4 // size
    x = np.random.default_rng(0).normal(size=(4, 3))
    w = np.random.default_rng(1).normal(size=3)
    mine = x[rank * n : (rank + 1) * n]
    scale = np.array([1.5, 2.5, 0.5, -1.0])[:size]

    def member(w, x):  # a part, what all have, and what the first one has
        total = lax.psum(fnp.sin(w * x), "i")
        return total * x, lax.psum(w * x, "i").sum(), w * x

    out_axes = (0, None, None)
    here = fnx.pmap(member, "i", in_axes=(None, 0), out_axes=out_axes)

    def everywhere(w, x):  # the same in one process, by vmap
        parts, all, first = fnx.vmap(member, axis_name="i", in_axes=(None, 0),
                                     out_axes=(0, None, 0))(w, x)
        return parts, all, first[0]

    def loss(w, x):  # that of this process
        parts, all, first = here(w, x)
        return (parts**2).sum() + scale[rank] * (all**2 + (first**3).sum())

    def losses(w, x):  # of all processes together
        parts, all, first = everywhere(w, x)
        return (parts**2).sum() + scale.sum() * (all**2 + (first**3).sum())

    def rounds(f, x):
        def round(w, _):
            _, all, first = f(w, x)
            return w - 0.01 * all * first, all
        return fnx.jit(lambda w: lax.scan(round, w, None, length=3))(w)

    close = {}

    def compare(name, found, wanted, axis=0):
        # what has as many members as all have is compared in this process's part
        rows = []
        for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
            if a.shape != b.shape:
                b = np.split(np.asarray(b), size, axis)[rank]
            rows.append(bool(np.allclose(a, b, 1e-10, 1e-12)))
        close[name] = rows

    compare("called", here(w, mine), everywhere(w, x))
    compare("jit", fnx.jit(here)(w, mine), everywhere(w, x))
    compare("grad", fnx.grad(loss, (0, 1))(w, mine), fnx.grad(losses, (0, 1))(w, x))
    compare("jit of grad", fnx.jit(fnx.grad(loss, (0, 1)))(w, mine),
            fnx.grad(losses, (0, 1))(w, x))
    compare("jvp", fnx.jvp(here, (w, mine), (2 * w, mine + 1))[1],
            fnx.jvp(everywhere, (w, x), (2 * w, x + 1))[1])
    compare("vmap", fnx.vmap(here, (0, None))(np.stack([w, 2 * w]), mine),
            fnx.vmap(everywhere, (0, None))(np.stack([w, 2 * w]), x), axis=1)
    compare("scan", rounds(here, mine), rounds(everywhere, x))
    # each process has a gradient, and that of all of them counts
    compare("grad of grad", fnx.grad(lambda w: fnx.grad(loss)(w, mine).sum())(w),
            size * fnx.grad(lambda w: fnx.grad(losses)(w, x).sum())(w))
    report(close)
"""


@pytest.mark.parametrize(("kind", "count"), [("mpi", 2), ("tcp", 4)])
def test_pmap_inside_of_other_transformations(kind, count, tmp_path):
    job = run(kind, count, MEMBERS, tmp_path)
    assert set(job.codes) == {0}, job.printed
    for found in job.reports:
        assert len(found) == 8 and all(map(all, found.values())), found


TRAINING = """
    from fnx import optim, random
    from fnx.sharding import NamedSharding, PartitionSpec as P

    fnx.config.cpu_devices = 2 // size
    fnx.config.collective_timeout = 30
    distributed = fnx.distributed
    data = np.random.default_rng(1).normal(size=(512, 20)).astype("float32")
    target = np.sin(data[:, 0]) * data[:, 1]
    sampler = distributed.Sampler(512, batch_size=128, seed=3)
    optimizer = optim.adam(0.01)

    def start():
        keys = random.split(random.key(0), 2)
        params = {"w": random.normal(keys[0], (20, 64)) / 4, "b": fnp.zeros(64),
                  "v": random.normal(keys[1], (64,)) / 8}
        return params, optimizer.init(params)

    def loss(params, x, y):
        hidden = fnp.tanh(x @ params["w"] + params["b"])
        return fnp.mean((hidden @ params["v"] - y) ** 2)

    def update(params, state, x, y):
        value, grads = fnx.value_and_grad(loss)(params, x, y)
        grads, value = fnx.lax.pmean((grads, value), "data")
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    def by_pmap():
        step = fnx.pmap(update, "data", in_axes=(None, None, 0, 0),
                        out_axes=(None, None, None))
        params, state = start()
        for number in range(12):
            rows = sampler.batch(number)
            count = fnx.local_device_count()
            x, y = data[rows].reshape(count, -1, 20), target[rows].reshape(count, -1)
            params, state, value = step(params, state, x, y)
            yield value.item()
        distributed.assert_equal(params, "after training")

    def by_shard_map():
        mesh = fnx.make_mesh((2,), ("data",))
        step = fnx.shard_map(update, mesh=mesh, out_specs=P(),
                             in_specs=(P(), P(), P("data"), P("data")))
        cut = NamedSharding(mesh, P("data"))
        params, state = start()
        for number in range(12):
            rows = sampler.batch(number)
            x, y = fnx.make_array_from_process_local_data(
                cut, (data[rows], target[rows]))
            params, state, value = step(params, state, x, y)
            yield float(value)
        distributed.assert_equal(params, "after training")

    def in_parts():
        # parameters and optimizer state are cut, and gathered for the step
        mesh = fnx.make_mesh((2,), ("data",))
        params, state = start()
        leaves, tree = fnx.tree.flatten((params, state))
        specs = [P("data") if x.ndim and x.shape[0] % 2 == 0 else P() for x in leaves]

        def update_parts(parts, x, y):
            full = [
                fnx.lax.all_gather(p, "data", axis=0, tiled=True) if s else p
                for p, s in zip(parts, specs)
            ]
            *new, value = update(*tree.unflatten(full), x, y)
            me = fnx.lax.axis_index("data")
            new = [
                fnx.lax.dynamic_slice_in_dim(n, me * p.shape[0], p.shape[0]) if s else n
                for n, p, s in zip(fnx.tree.leaves(new), parts, specs)
            ]
            return new, value

        step = fnx.shard_map(update_parts, mesh=mesh, out_specs=(specs, P()),
                             in_specs=(specs, P("data"), P("data")), check_vma=False)
        cut = NamedSharding(mesh, P("data"))
        parts = [
            fnx.device_put(x, NamedSharding(mesh, s)) for x, s in zip(leaves, specs)
        ]
        for number in range(12):
            if number == 6:  # through a checkpoint, in parts
                distributed.save(os.environ["FOLDER"], parts, number)
                like = [fnx.device_put(0 * np.asarray(x), p.sharding)
                        for x, p in zip(leaves, parts)]
                parts = distributed.restore(os.environ["FOLDER"], like)
                assert all(a.sharding == b.sharding for a, b in zip(parts, like))
            rows = sampler.batch(number)
            x, y = fnx.make_array_from_process_local_data(
                cut, (data[rows], target[rows]))
            parts, value = step(parts, x, y)
            yield float(value)

    report([list(by_pmap()), list(by_shard_map()), list(in_parts())])
"""


@pytest.mark.parametrize("kind", ["mpi", "tcp"])
def test_training_is_that_of_one_process(kind, tmp_path):
    folder = {"FOLDER": str(tmp_path / "checkpoints")}
    alone = run("tcp", 1, TRAINING, tmp_path, **folder)
    assert alone.codes == [0], alone.printed
    ((by_pmap, by_shard_map, in_parts),) = alone.reports
    assert by_pmap == by_shard_map == in_parts  # to the last bit
    assert by_pmap[-1] < by_pmap[0]
    job = run(kind, 2, TRAINING, tmp_path, **folder)
    assert set(job.codes) == {0}, job.printed
    ((there, *rest), other) = job.reports
    assert other == [there, *rest] and rest == [there, there]  # to the last bit
    # One process multiplies the parts of both at once, which rounds otherwise.
    np.testing.assert_allclose(there, by_pmap, rtol=1e-5)


FAULTS = (
    BEGIN
    + """
    fnx.config.collective_timeout = 10

    def another(x):
        reduce = lax.pmax if rank == 1 else lax.psum
        return reduce(x, "a")

    def raising(x):
        def check(x):
            if rank == 1:
                raise ValueError("a bad day")
            return x
        x = fnx.pure_callback(check, fnx.ShapeDtypeStruct(x.shape, x.dtype), x,
                              vmap_method="sequential")
        return lax.psum(x, "a")

    f = {"another": another, "raising": raising}[os.environ["FAULT"]]
    report(caught(fnx.shard_map(f, mesh=mesh, in_specs=P("a", "b"),
                                out_specs=P(None, "b")), x))
"""
)


@pytest.mark.parametrize("kind", ["mpi", "tcp"])
@pytest.mark.parametrize("fault", ["another", "raising"])
def test_faults_are_errors_on_every_process(kind, fault, tmp_path):
    job = run(kind, 2, FAULTS, tmp_path, limit=60, FAULT=fault)
    first, second = job.reports
    assert first.startswith("CollectiveError: "), first
    if fault == "another":
        for text in (first, second):
            assert "process 0: collective" in text and "all_reduce(f32" in text
            assert ", max)" in text and ", sum)" in text
    else:
        assert "process 1 failed" in first and "a bad day" in first
        assert "a bad day" in second
