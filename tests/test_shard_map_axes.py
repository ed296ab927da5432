"""shard_map along some axes of a mesh: the others stay automatic.

The oracle is the same function along those axes alone, on whole arrays.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.sharding import NamedSharding
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


@pytest.fixture
def alone():
    return fnx.make_mesh((2,), ("a",), devices=fnx.devices()[:2])


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def gathered(x):
    rows = lax.all_gather(x, "a", axis=0, tiled=True)
    return rows - lax.pmean(x.sum(0), "a") + lax.axis_index("a")


def scattered(x):
    return lax.psum_scatter(x, "a", scatter_dimension=0, tiled=True) * 2


def exchanged(x):
    y = lax.all_to_all(x, "a", 0, 0, tiled=True)
    return lax.ppermute(y, "a", [(0, 1), (1, 0)]) + lax.pmax(x, "a")


def looped(x):
    def body(carry, row):
        total = lax.psum(row, "a")
        return carry * 0.5 + total, fnp.tanh(carry)

    return lax.scan(body, fnp.zeros(x.shape[1:]), x)[1]


def chosen(x):
    total = lax.psum(x.sum(), "a")
    return lax.cond(total > 0, lambda x: lax.pmean(x, "a"), lambda x: x * 2, x)


def layer(x, w):
    return lax.psum(fnp.tanh(x @ w), "a") / 2 + x[:, :8] @ w


# name: function, shapes, in_specs, out_specs, how arguments are cut besides, results
CASES = {
    "all_gather": (gathered, [(8, 4)], P("a"), P("a"), [P("a", "b")], P("a", "b")),
    "cut along the same axis": (
        lambda x: x * lax.axis_index("a"),
        [(8, 4)],
        P("a"),
        P("a"),
        [P(("a", "b"))],
        P(("a", "b")),
    ),
    "psum_scatter": (scattered, [(8, 4)], P("a"), P("a"), [P("a", "b")], P("a", "b")),
    "all_to_all": (exchanged, [(8, 4)], P("a"), P("a"), [P(None, "b")], P("a", "b")),
    "scan": (looped, [(6, 4)], P(None), P("a"), [P(None, "b")], P("a", "b")),
    "cond": (chosen, [(8, 4)], P("a"), P("a"), [P("a", "b")], P("a", "b")),
    "products": (
        layer,
        [(8, 8), (8, 4)],
        (P("a"), P()),
        P("a"),
        [P("a"), P(None, "b")],
        P("a", "b"),
    ),
    "summed over": (
        lambda x: lax.psum(x.sum(), "a"),
        [(8, 4)],
        P("a"),
        P(),
        [P("a", "b")],
        P(),
    ),
    "nothing is cut besides": (gathered, [(8, 4)], P("a"), P("a"), [None], P("a")),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_shardings(name, mesh, alone):
    function, shapes, ins, outs, cuts, wanted = CASES[name]
    args = [random(*shape, seed=n) for n, shape in enumerate(shapes)]
    some = fnx.shard_map(
        function,
        mesh=mesh,
        in_specs=ins,
        out_specs=outs,
        axis_names={"a"},
        check_vma=False,
    )
    want = fnx.shard_map(
        function, mesh=alone, in_specs=ins, out_specs=outs, check_vma=False
    )(*args)
    put = [
        x if cut is None else fnx.device_put(x, NamedSharding(mesh, cut))
        for x, cut in zip(args, cuts, strict=True)
    ]
    got = some(*put)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert got.sharding.is_equivalent_to(NamedSharding(mesh, wanted), got.ndim)
    # Inside of a function under jit with shardings, and of one without.
    shardings = tuple(None if cut is None else NamedSharding(mesh, cut) for cut in cuts)
    with mesh:
        within = fnx.jit(lambda *args: some(*args) * 1, in_shardings=shardings)(*args)
    np.testing.assert_allclose(within, want, rtol=1e-5, atol=1e-5)
    assert within.sharding.is_equivalent_to(NamedSharding(mesh, wanted), got.ndim)
    np.testing.assert_allclose(fnx.jit(some)(*args), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fnx.jit(some)(*put), want, rtol=1e-5, atol=1e-5)


def test_gradients(mesh, alone):
    x, w = random(8, 8), random(8, 4, seed=1)
    options = {"in_specs": (P("a"), P()), "out_specs": P("a")}
    some = fnx.shard_map(layer, mesh=mesh, axis_names=("a",), **options)
    one = fnx.shard_map(layer, mesh=alone, **options)

    def slopes(f):
        return fnx.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))

    put = fnx.device_put(w, NamedSharding(mesh, P(None, "b")))
    want = slopes(one)(x, w)
    for got in (slopes(some)(x, w), slopes(some)(x, put)):
        for found, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_constraints_inside(mesh):
    def f(x):
        y = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P(None, "b")))
        return y + lax.axis_index("a")

    run = fnx.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names="a")
    x = random(8, 4)
    got = run(x)
    want = x * 2 + np.repeat([0, 1], 4)[:, None]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.sharding.spec == P("a", "b")


def test_effects_happen_once_for_each_replica(mesh, capsys):
    def f(x):
        fnx.debug.print("replica {}", lax.axis_index("a"))
        return x * 2

    x = fnx.device_put(random(8, 4), NamedSharding(mesh, P("a", "b")))
    run = fnx.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names="a")
    np.testing.assert_allclose(run(x), np.asarray(x) * 2)
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "replica 0", "replica 1"]


def test_what_cannot_be_cut_and_what_is_not_its_own(mesh):
    x = random(8, 4)
    put = fnx.device_put(x, NamedSharding(mesh, P("a", "b")))

    def called(x):
        shape = fnx.ShapeDtypeStruct(x.shape, x.dtype)
        return fnx.pure_callback(np.sin, shape, x, vmap_method="sequential")

    options = {"mesh": mesh, "in_specs": P("a"), "out_specs": P("a")}
    run = fnx.shard_map(called, axis_names={"a"}, **options)
    np.testing.assert_allclose(run(x), np.sin(x), rtol=1e-6)
    with pytest.raises(errors.OptionError, match=r"pure_callback of f32\[4,4\] cut"):
        run(put)
    with fnx.config.override(replicate_uncut=True):
        np.testing.assert_allclose(run(put), np.sin(x), rtol=1e-6)
    with pytest.raises(errors.AxisError, match="no axis 'b'"):
        fnx.shard_map(
            lambda x: x, mesh=mesh, in_specs=P("b"), out_specs=P(), axis_names={"a"}
        )(x)
    with pytest.raises(errors.AxisError, match="the axes of the mesh are"):
        fnx.shard_map(lambda x: x, axis_names={"c"}, **options)(x)
