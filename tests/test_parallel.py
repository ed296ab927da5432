"""The recipes of `fnx.demo.parallel`: what one device computes, on many."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, random
from fnx.control import joint
from fnx.demo.__main__ import main
from fnx.demo.parallel import checks, data, model, pipeline, sequence, tensor
from fnx.demo.parallel.replicas import on_devices, on_replicas, spread, together

pytestmark = pytest.mark.multi_device

RNG = np.random.default_rng(0)
LAYERS = model.init_layers(random.key(0), model.Sizes(), "float64")
NAMES = list(checks.recipes(model.Sizes(), LAYERS, optim.adam(1e-3)))


@pytest.fixture(autouse=True)
def eight(monkeypatch):
    """Eight CPU devices, each with its thread, however little they do."""
    monkeypatch.setattr(joint, "runs_as_one", lambda *_: False)
    fnx.clear_caches()
    with fnx.config.override(cpu_devices=8):
        yield
    fnx.clear_caches()


def by_pmap(function, axes):
    """A function of one replica on devices along the only axis."""
    (name,) = axes
    return fnx.pmap(function, name)


def check(name, run, steps):
    rows = checks.checks(run, steps, "float64", name)
    return next(row for row in rows if row.name == name)


@pytest.mark.parametrize("run", [on_replicas, on_devices, by_pmap])
@pytest.mark.parametrize("name", NAMES)
def test_recipes_learn_as_one_device(name, run):
    if run is by_pmap and name.startswith("data x"):
        pytest.skip("pmap has one axis")
    row = check(name, run, 4)
    assert row.loss_difference < 1e-14
    assert row.layer_difference < 1e-14
    assert row.losses[-1] < 0.9 * row.losses[0]


def test_a_gradient_that_is_not_summed_is_seen(monkeypatch):
    """The check can fail: without the sum of shares, copies learn apart."""
    monkeypatch.setattr(tensor, "summed", lambda grads: grads)
    row = check("tensor", on_replicas, 2)
    assert row.layer_difference > 1e-6
    text, equal = checks.report(iter([row]), 1e-6)
    assert not equal
    assert "DIFFERENT" in text


@pytest.mark.parametrize("where", ["devices", "one"])
def test_the_command_compares_and_says_so(where, capsys):
    assert main(["parallel", "--steps", "2", "--on", where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(NAMES)
    assert all(line.endswith("equal") for line in lines[1:])


# ---------------------------------------------------------------- arrays for replicas


@pytest.mark.parametrize(
    "cuts", [{}, {"a": 1}, {"b": 1}, {"a": 0, "b": 1}, {"a": 1, "b": 0}, {"b": 2}]
)
def test_what_is_spread_comes_together(cuts):
    axes = {"a": 2, "b": 3}
    x = RNG.standard_normal((6, 12, 3))
    parts = spread(fnp.array(x), axes, cuts)
    assert parts.shape[:2] == (2, 3)
    np.testing.assert_array_equal(together(parts, axes, cuts), x)
    want = np.split(x, 2, cuts["a"])[1] if "a" in cuts else x
    want = np.split(want, 3, cuts["b"])[2] if "b" in cuts else want
    np.testing.assert_array_equal(parts[1, 2], want)


@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_shards_of_any_number_come_together(replicas):
    layers = {"w": fnp.array(RNG.standard_normal((2, 3, 7))), "b": fnp.ones((2, 1))}
    shapes = {"w": (3, 7), "b": (1,)}
    shards = data.shard(layers, replicas)
    assert shards["w"].shape == (replicas, 2, -(-21 // replicas))
    for name, x in data.unshard(shards, shapes).items():
        np.testing.assert_array_equal(x, layers[name])

    def whole(shard):
        return data.gather(shard, (3, 7))

    found = on_replicas(whole, {"data": replicas})(shards["w"][:, 1])
    np.testing.assert_array_equal(found[-1], layers["w"][1])


def test_a_layer_is_gathered_where_it_is_used():
    """In the loops over layers, forward and back; never the layers together."""
    shapes = {name: x.shape[1:] for name, x in LAYERS.items()}
    optimizer = optim.sgd(0.1)
    step = data.sharded(optimizer, 1, shapes)
    x, y = model.make_batch(random.key(0), model.Sizes(), "float64")
    shards = data.shard(LAYERS, 2)
    parts = fnx.tree.map(lambda x: x[0], shards)
    with fnx.core.axes.bound_axis("data", 2):
        program = fnx.make_jaxpr(step)(parts, optimizer.init(parts), x, y)
    text = str(program)
    # the gradient asks for all but the last bias once more
    assert text.count("all_gather[") == 2 * len(LAYERS) - 1
    whole = LAYERS["up"].shape
    kept = f"f64[{','.join(map(str, whole))}]"
    assert kept not in text


# ---------------------------------------------------------------- pipelines


@pytest.mark.parametrize("run", [on_replicas, on_devices])
@pytest.mark.parametrize("schedule", checks.SCHEDULES.values(), ids=checks.SCHEDULES)
@pytest.mark.parametrize(("stages", "count"), [(1, 3), (2, 1), (3, 2), (3, 7), (5, 5)])
def test_schedules_give_the_gradient(schedule, stages, count, run):
    weights = RNG.standard_normal((stages, 3, 3))
    x, y = RNG.standard_normal((2, count, 2, 3))

    def stage(w, x):
        return fnp.tanh(x @ w)

    def error(found, wanted):
        return ((found - wanted) ** 2).sum()

    def loss(weights):
        found = fnp.array(x)
        for w in weights:
            found = stage(w, found)
        return error(found, y)

    def replica(w, x, y):
        return schedule(stage, error, w, x, y, "stage")

    axes = {"stage": stages}
    found = run(replica, axes)(
        fnp.array(weights), spread(fnp.array(x), axes, {}), spread(y, axes, {})
    )
    value, slope = fnx.value_and_grad(loss)(fnp.array(weights))
    np.testing.assert_allclose(found[0], [*[0] * (stages - 1), value], 1e-13)
    np.testing.assert_allclose(found[1], slope, 1e-12, 1e-13)


def test_one_forward_one_backward_keeps_inputs_of_as_many_as_stages():
    """GPipe keeps those of all micro-batches."""
    count, rows = 11, (7, 3)
    x = fnp.zeros((count, *rows))

    def text(schedule):
        def replica(w, x):
            stage = lambda w, x: fnp.tanh(x @ w)  # noqa: E731
            return schedule(stage, lambda a, b: ((a - b) ** 2).sum(), w, x, x, "stage")

        with fnx.core.axes.bound_axis("stage", 2):
            return str(fnx.make_jaxpr(replica)(fnp.zeros((3, 3)), x))

    ticks = f"f32[{count + 1},{rows[0]},{rows[1]}]"
    assert ticks in text(pipeline.gpipe_gradient)
    inner = text(pipeline.one_forward_one_backward)
    assert ticks not in inner
    assert f"f32[2,{rows[0]},{rows[1]}]" in inner


# ---------------------------------------------------------------- attention


def numpy_attention(query, key, value, causal):
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
    if causal:
        n = query.shape[1]
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, value)


@pytest.mark.parametrize("run", [on_replicas, on_devices])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("replicas", "positions"), [(1, 5), (3, 1), (4, 3)])
def test_ring_attention_is_attention(causal, replicas, positions, run):
    n = replicas * positions
    blocks = 30 * RNG.standard_normal((3, 2, n, 2, 5))
    axes = {"sequence": replicas}

    def replica(query, key, value):
        return sequence.ring_attention(query, key, value, "sequence", causal)

    parts = [spread(fnp.array(x), axes, {"sequence": 1}) for x in blocks]
    found = together(run(replica, axes)(*parts), axes, {"sequence": 1})
    want = numpy_attention(*blocks, causal)
    np.testing.assert_allclose(found, want, 1e-11, 1e-12)


@pytest.mark.parametrize("run", [on_replicas, on_devices])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_go_round_the_ring(causal, run):
    """Against differences of the attention in NumPy."""
    axes = {"sequence": 3}
    blocks = RNG.standard_normal((3, 1, 6, 1, 2))
    ct = RNG.standard_normal((1, 6, 1, 2))
    cut = {"sequence": 1}

    def replica(query, key, value, ct):
        def share(*blocks):
            return (sequence.ring_attention(*blocks, "sequence", causal) * ct).sum()

        return fnx.grad(share, (0, 1, 2))(query, key, value)

    parts = [spread(fnp.array(x), axes, cut) for x in (*blocks, ct)]
    found = run(replica, axes)(*parts)
    for which in range(3):
        slope = np.asarray(together(found[which], axes, cut))
        change = RNG.standard_normal(blocks[which].shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = blocks.copy()
            moved[which] += step * change
            ends.append((numpy_attention(*moved, causal) * ct).sum())
        np.testing.assert_allclose(
            (slope * change).sum(), (ends[0] - ends[1]) / 2e-6, 1e-7
        )
