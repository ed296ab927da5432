"""`fnx.distributed.simulate`: formulas that are published, and plans done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax, optim, random
from fnx.demo.parallel import data, model
from fnx.demo.parallel.checks import MICRO, SCHEDULES
from fnx.demo.parallel.pipeline import pipeline_parallel
from fnx.distributed import (
    Chip,
    Cluster,
    Level,
    dgx_h100,
    simulate,
    simulate_pipeline,
)
from fnx.distributed.transfers import message, transfer, ways

CHIP = Chip(flops=1e12, bandwidth=1e15, memory=1e9)
LINK = Level("links", 8, 1e9, 0.0)


def flat(n, bandwidth=1e9, latency=0.0, chip=CHIP):
    return Cluster(chip, (Level("links", n, bandwidth, latency),))


# ---------------------------------------------------------------- collectives

# What NCCL's tests multiply the bytes a second of a collective with, so that the result
# is that of the links.
BUS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}


@pytest.mark.parametrize("n", [2, 3, 8, 100, 4096])
@pytest.mark.parametrize("kind", BUS)
def test_bus_bandwidth_is_that_of_the_links(kind, n):
    level = Level("links", n, 450e9, 1e-6)
    nbytes = 1e18
    seconds = transfer(kind, nbytes, [(level, n)]).seconds
    np.testing.assert_allclose(nbytes / seconds * BUS[kind](n), 450e9, 1e-3)


@pytest.mark.parametrize("machines", [2, 16, 512])
@pytest.mark.parametrize("adapter", [25e9, 50e9, 400e9])
def test_rings_through_machines_use_all_adapters(machines, adapter):
    """One for each device: eight of 50 GB/s carry what NVLink does, and no more."""
    reached = [
        (Level("NVLink", 8, 450e9, 0), 8),
        (Level("network", machines, adapter, 0), machines),
    ]
    n = 8 * machines
    seconds = transfer("all_reduce", 1e12, reached).seconds
    bus = 1e12 / seconds * BUS["all_reduce"](n)
    scattered = 2 * (7 / 8 / 450e9 + (machines - 1) / machines / 8 / adapter)
    want = max(min(450e9, 8 * adapter), BUS["all_reduce"](n) / scattered)
    np.testing.assert_allclose(bus, want, 1e-12)


@pytest.mark.parametrize("n", [2, 5, 8, 1000])
def test_small_messages_take_the_steps_of_a_tree(n):
    level = Level("links", n, 1e12, 1e-6)
    found = transfer("all_reduce", 8, [(level, n)])
    np.testing.assert_allclose(found.seconds, 2 * math.ceil(math.log2(n)) * 1e-6, 1e-3)
    assert found.algorithm == ("ring" if n == 2 else "tree")


@pytest.mark.parametrize("n", [2, 3, 7])
def test_a_ring_step_by_step(n):
    """Chunks go round: each step a chunk from each member to the next."""
    nbytes, bandwidth, latency = 1e6, 3e8, 2e-4
    have = [[{member} for _ in range(n)] for member in range(n)]
    seconds = 0.0
    for step in range(n - 1):  # sums of chunks
        sent = [have[m][(m - step) % n] for m in range(n)]
        for m in range(n):
            have[(m + 1) % n][(m - step) % n] |= sent[m]
        seconds += latency + nbytes / n / bandwidth
    for step in range(n - 1):  # the sums themselves
        for m in range(n):
            chunk = (m + 1 - step) % n
            assert have[m][chunk] == set(range(n))
            have[(m + 1) % n][chunk] = set(range(n))
        seconds += latency + nbytes / n / bandwidth
    level = Level("links", n, bandwidth, latency)
    ring = next(
        w for w in ways("all_reduce", nbytes, [(level, n)]) if w.algorithm == "ring"
    )
    np.testing.assert_allclose(ring.seconds, seconds, 1e-12)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6, 8, 12])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 12])
def test_levels_are_those_that_members_meet_in(stride, count):
    """Beside counting: every axis, in every group of devices."""
    sizes = (4, 2, 3)
    levels = tuple(Level(f"level {n}", n, 1.0, 0.0) for n in sizes)
    cluster = Cluster(CHIP, levels)
    span = stride * count
    axes = [
        [block + low + stride * k for k in range(count)]
        for block in range(0, 24 // span * span, span)
        for low in range(stride)
    ]
    want, size, even, before = [], 1, True, 1
    for level in levels:
        size *= level.size
        counts = set()
        for members in axes:
            groups = [m // size for m in members]
            counts |= {groups.count(g) for g in set(groups)}
        even &= len(counts) == 1
        inside = max(counts, default=1)
        if even and inside > before:
            want.append((level, inside // before))
        before = inside
    if not axes or not even:
        with pytest.raises(
            errors.ArgumentError, match=r"does not fit|different numbers"
        ):
            cluster.reached(stride, count)
    else:
        assert list(cluster.reached(stride, count)) == want


# ---------------------------------------------------------------- plans by hand

X = fnx.ShapeDtypeStruct((1000, 1000), "float32")
PRODUCT = 2e9 / 1e12
SUM = 2 * 3 / 4 * 4e6 / 1e9  # over four members


def two_products(x):
    first = x @ x
    return lax.psum(first, "i"), x @ x.T


def test_what_is_sent_while_the_device_computes_is_hidden():
    found = simulate(two_products, flat(4), X, axes={"i": 4})
    np.testing.assert_allclose(found.seconds, PRODUCT + SUM)
    np.testing.assert_allclose(found.communication, SUM)
    np.testing.assert_allclose(found.waiting, SUM - PRODUCT)
    assert found.bound == "matrix products"
    alone = simulate(two_products, flat(4), X, axes={"i": 4}, overlap=False)
    np.testing.assert_allclose(alone.seconds, 2 * PRODUCT + SUM)
    np.testing.assert_allclose(alone.waiting, SUM)
    assert alone.bound == "links of links"
    assert alone.sent == 4e6


def test_slow_memory_bounds_what_little_is_computed_with():
    chip = Chip(flops=1e15, bandwidth=1e9, memory=1e6, vector_flops=1e12, launch=1e-3)
    found = simulate(lambda x: x * 2 + 1, flat(1, chip=chip), X, axes={"i": 1})
    assert found.bound == "memory bandwidth"
    np.testing.assert_allclose(found.seconds, 8e6 / 1e9 + 1e-3)
    assert found.memory >= 8e6
    assert not found.fits
    assert "DOES NOT FIT" in str(found)


def test_rounds_add_up_and_the_slowest_branch_counts():
    def rounds(x):
        return lax.fori_loop(0, 7, lambda _, x: lax.psum(x @ x, "i"), x)

    found = simulate(rounds, flat(4), X, axes={"i": 4})
    np.testing.assert_allclose(found.seconds, 7 * (PRODUCT + SUM), 1e-5)

    def branches(x, which):
        return lax.cond(which, lambda x: x @ x, lambda x: x @ x @ x, x)

    flag = fnx.ShapeDtypeStruct((), "bool")
    found = simulate(branches, flat(4), X, flag, axes={"i": 4})
    np.testing.assert_allclose(found.seconds, 2 * PRODUCT, 1e-5)


def test_a_pmapped_function_is_that_of_its_replica():
    with fnx.config.override(cpu_devices=4):
        whole = fnx.ShapeDtypeStruct((4, 1000, 1000), "float32")
        mapped = simulate(fnx.pmap(two_products, "i"), flat(4), whole)
    alone = simulate(two_products, flat(4), X, axes={"i": 4})
    assert mapped.axes == alone.axes == (("i", 4),)
    np.testing.assert_allclose(mapped.seconds, alone.seconds, 1e-3)


@pytest.mark.parametrize(
    ("groups", "level"),
    [
        ([[0, 1], [2, 3], [4, 5], [6, 7]], "near"),
        ([[0, 4], [1, 5], [2, 6], [3, 7]], "far"),
    ],
)
def test_groups_meet_where_they_are(groups, level):
    near, far = Level("near", 4, 1e9, 0.0), Level("far", 2, 1e8, 0.0)

    def total(x):
        return lax.psum(x, "i", axis_index_groups=groups)

    found = simulate(total, Cluster(CHIP, (near, far)), X, axes={"i": 8})
    assert found.bound == f"links of {level}"
    np.testing.assert_allclose(found.seconds, 4e6 / (1e9 if level == "near" else 1e8))


def test_a_message_passes_the_outermost_level_on_its_way():
    near, far = Level("near", 4, 1e9, 1e-3), Level("far", 2, 1e8, 1e-2)
    cluster = Cluster(CHIP, (near, far))

    def sent(perm):
        return simulate(lambda x: lax.ppermute(x, "i", perm), cluster, X, axes={"i": 8})

    inside = message(4e6, near).seconds
    np.testing.assert_allclose(sent([(0, 3), (5, 6)]).seconds, inside)
    np.testing.assert_allclose(
        sent([(0, 3), (3, 4)]).seconds, message(4e6, far).seconds
    )
    assert sent([(2, 2)]).communication == 0


def test_the_last_axis_is_the_nearest():
    near, far = Level("near", 4, 1e9, 0.0), Level("far", 2, 1e8, 0.0)
    cluster = Cluster(CHIP, (near, far))
    axes = {"outer": 2, "inner": 4}
    found = simulate(lambda x: lax.psum(x, "inner"), cluster, X, axes=axes)
    assert found.bound == "links of near"
    found = simulate(lambda x: lax.psum(x, "outer"), cluster, X, axes=axes)
    assert found.bound == "links of far"
    assert "8 devices: outer 2 x inner 4" in str(found)


# ---------------------------------------------------------------- whole steps


def sharded_step(devices):
    """The sharded recipe of a large network, on as many devices."""
    sizes = model.Sizes(24, 2048, 16, 8192, 4, 1024)
    layers = fnx.eval_shape(lambda k: model.init_layers(k, sizes), random.key(0))
    optimizer = optim.adam(1e-3)
    shapes = {name: x.shape[1:] for name, x in layers.items()}
    step = data.sharded(optimizer, 1, shapes)
    parts = {
        name: fnx.ShapeDtypeStruct((24, -(-math.prod(shape) // devices)), "float32")
        for name, shape in shapes.items()
    }
    state = fnx.eval_shape(optimizer.init, parts)
    x = fnx.ShapeDtypeStruct((sizes.batch, sizes.positions, sizes.width), "float32")
    return step, (parts, state, x, x)


@pytest.mark.parametrize("devices", [8, 1024, 100_000])
def test_a_training_step_on_many_devices(devices):
    step, arguments = sharded_step(devices)
    cluster = dgx_h100(devices // 8)
    found = simulate(step, cluster, *arguments, axes={"data": devices})
    assert found.devices == devices
    np.testing.assert_allclose(sum(t for _, t in found.spent), found.seconds)
    assert found.communication >= found.waiting - 1e-9
    apart = simulate(step, cluster, *arguments, axes={"data": devices}, overlap=False)
    assert apart.seconds >= found.seconds
    # forward, once more but for the last product, and twice as much back
    tokens = 4 * 1024
    weights = 24 * (4 * 2048**2 + 2 * 2048 * 8192)
    least = 4 * 2 * tokens * weights / cluster.chip.flops
    assert dict(found.spent)["matrix products"] >= 0.85 * least
    assert found.seconds < 20 * least
    assert "bound by" in str(found)


def test_shards_need_less_memory_on_more_devices():
    few, many = [
        simulate(step, dgx_h100(n // 8), *arguments, axes={"data": n}).memory
        for n in (8, 64)
        for step, arguments in [sharded_step(n)]
    ]
    weights = 24 * (4 * 2048**2 + 2 * 2048 * 8192)
    # weights and two moments come in and go out
    assert few - many > 2 * 3 * 4 * weights * (1 / 8 - 1 / 64)


@pytest.mark.parametrize("name", SCHEDULES)
def test_recipes_of_pipelines_are_simulated(name):
    sizes = model.Sizes()
    optimizer = optim.adam(1e-3)
    layers = model.init_layers(random.key(0), sizes)
    part = {name: x[:1] for name, x in layers.items()}
    step = pipeline_parallel(optimizer, SCHEDULES[name], MICRO)
    x, y = model.make_batch(random.key(0), sizes)
    arguments = part, optimizer.init(part), x, y
    found = simulate(step, flat(4), *arguments, axes={"stage": 4})
    # each of the ticks or slots sends one micro-batch, or two, through the links
    micro = x.size * 4 / MICRO
    ticks = (MICRO + 3) * 2 if name == "GPipe" else 2 * 2 * (MICRO + 3)
    assert abs(found.sent - ticks * micro) <= 3 * micro


# ---------------------------------------------------------------- pipelines


@pytest.mark.parametrize(
    ("stages", "count"), [(1, 1), (4, 4), (4, 12), (8, 3), (3, 100)]
)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_bubble_of_a_pipeline(stages, count, schedule):
    found = simulate_pipeline(stages, count, 1.0, 2.0, schedule=schedule)
    np.testing.assert_allclose(found.seconds, 3 * (count + stages - 1))
    np.testing.assert_allclose(
        found.bubble, (stages - 1) / (count + stages - 1), atol=1e-15
    )
    assert found.held == (count if schedule == "gpipe" else min(stages, count))


def test_messages_between_stages_take_time():
    quick = simulate_pipeline(4, 8, 1.0, 2.0)
    slow = simulate_pipeline(4, 8, 1.0, 2.0, send=0.5)
    assert slow.seconds >= quick.seconds + 2 * 3 * 0.5
    many = simulate_pipeline(64, 512, 1.0, 2.0, schedule="gpipe")
    assert many.seconds == 3 * (512 + 63)


def test_a_function_under_jit_with_shardings():
    """Each device has its rows of the product, whose columns it fetches."""
    with fnx.config.override(cpu_devices=4):
        mesh = fnx.make_mesh((4,), ("i",))
        rows = fnx.sharding.NamedSharding(mesh, fnx.sharding.PartitionSpec("i"))
        product = fnx.jit(lambda x, y: x @ y, in_shardings=rows)
        x = fnx.ShapeDtypeStruct((400, 400), "float32")
        found = simulate(product, flat(4), x, x)
    assert (found.devices, found.axes) == (4, (("i", 4),))
    part = 4 * 400 * 100
    assert found.sent == 4 * part  # all of y
    np.testing.assert_allclose(found.communication, 3 * part / 1e9)
    alone = simulate(lambda x, y: x @ y, flat(1), x, x)
    assert "on 1 device\n" in str(alone) and "4 devices: i 4" in str(found)


# ---------------------------------------------------------------- errors


def test_errors():
    with pytest.raises(errors.ArgumentError, match="have 16 replicas"):
        simulate(lambda x: x, flat(8), X, axes={"i": 16})
    for size in (0, -2):
        with pytest.raises(errors.ArgumentError, match="one replica or more"):
            simulate(lambda x: lax.psum(x, "i"), flat(8), X, axes={"i": size})
    with pytest.raises(errors.ArgumentError, match="different numbers"):
        simulate(lambda x: lax.psum(x, "i"), dgx_h100(2), X, axes={"i": 12})
    with pytest.raises(errors.AxisError, match="'j' is not bound"):
        simulate(lambda x: lax.psum(x, "j"), flat(4), X, axes={"i": 4})
    groups = [[0, 1, 3], [2, 4, 5]]
    with pytest.raises(errors.ArgumentError, match="not equally far"):
        simulate(
            lambda x: lax.psum(x, "i", axis_index_groups=groups),
            flat(6),
            X,
            axes={"i": 6},
        )
    with pytest.raises(errors.ArgumentError, match="none of"):
        simulate_pipeline(2, 2, 1.0, 1.0, schedule="zero bubble")
    with pytest.raises(errors.ArgumentError, match="at least"):
        simulate_pipeline(0, 2, 1.0, 1.0)
    program = fnx.make_jaxpr(fnp.sin)(1.0)
    with pytest.raises(errors.ArgumentError, match="has its arguments"):
        simulate(program, flat(1), 1.0)
