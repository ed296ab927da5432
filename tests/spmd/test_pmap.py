"""pmap against vmap and loops: values, derivatives, control flow, placement."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.sharding import NamedSharding, SingleDeviceSharding
from fnx.sharding import PartitionSpec as P
from tests.spmd.arrays import random

pytestmark = pytest.mark.multi_device

COLLECTIVES = {
    "psum": lambda x: lax.psum(x, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "pmin": lambda x: lax.pmin(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "tiled": lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda x: lax.psum_scatter(x, "i", tiled=True),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 3), (3, 0)]),
    "pshuffle": lambda x: lax.pshuffle(x, "i", [3, 2, 1, 0]),
    "axis_index": lambda x: x * lax.axis_index("i").astype(x.dtype),
    "twice": lambda x: lax.psum(lax.ppermute(x, "i", [(0, 1)]) * x, "i") * 2,
}


@pytest.mark.parametrize("shape", [(4, 3), (8, 70), (4, 5000)], ids=str)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_pmap_is_vmap_bit_for_bit(name, shape):
    x = random(4, *shape)
    f = COLLECTIVES[name]
    got, want = fnx.pmap(f, "i")(x), fnx.vmap(f, axis_name="i")(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(), (2,), (3, 1)], ids=str)
@pytest.mark.parametrize("size", [2, 3, 7, 8])
def test_sums_have_the_order_of_the_replicas(size, shape):
    """However few numbers they are: the bits do not tell which way they went."""
    for seed in range(20):
        x = 100 * random(size, *shape, seed=seed)
        want = x[0]
        for row in x[1:]:
            want = want + row
        got = fnx.pmap(lambda x: lax.psum(x, "i"), "i")(x)
        np.testing.assert_array_equal(got, np.stack([want] * size))


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int8", "uint32", "complex64", "bfloat16"]
)
@pytest.mark.parametrize("name", ["psum", "all_gather", "psum_scatter", "pmax"])
def test_dtypes(name, dtype):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    if name == "pmax" and np.dtype(dtype).kind == "c":
        pytest.skip("complex numbers have no order")
    x = fnp.asarray(
        random(
            4,
            4,
            3000,
            dtype="float32" if dtype not in ("int8", "uint32", "complex64") else dtype,
        )
    ).astype(dtype)
    f = COLLECTIVES[name]
    got, want = fnx.pmap(f, "i")(x), fnx.vmap(f, axis_name="i")(x)
    assert got.dtype == want.dtype == x.dtype
    np.testing.assert_array_equal(got, want)


def test_nan_and_bool_extremes():
    x = random(4, 5)
    x[2, 3] = np.nan
    found = np.asarray(fnx.pmap(lambda x: lax.pmax(x, "i"), "i")(x))
    np.testing.assert_array_equal(found, np.broadcast_to(x.max(0), (4, 5)))
    flags = random(4, 5) > 1
    found = fnx.pmap(lambda x: lax.pmax(x, "i"), "i")(flags)
    np.testing.assert_array_equal(found, np.broadcast_to(flags.any(0), (4, 5)))


def _with_jvp():
    f = fnx.custom_jvp(lambda x: lax.psum(x, "i"))
    f.defjvp(lambda p, t: (f(*p), 3 * lax.pmean(t[0], "i")))
    return f


def _with_vjp():
    f = fnx.custom_vjp(lambda x: lax.psum(x, "i"))
    f.defvjp(
        lambda x: (lax.psum(x, "i"), lax.axis_size("i")),
        lambda size, ct: (3 * lax.psum(ct, "i") / size,),
    )
    return f


def _with_symbolic_vjp():
    f = fnx.custom_vjp(lambda x: lax.psum(x, "i"))
    f.defvjp(
        lambda x: (lax.psum(x.value, "i"), None),
        lambda _, ct: (3 * lax.pmean(ct, "i"),),
        symbolic_zeros=True,
    )
    return f


def _with_transpose():
    """3 times the mean; the function is of another slope than its rule says."""
    return fnx.custom_rule(
        lambda x: lax.psum(x, "i"), transpose=lambda ct: (3 * lax.pmean(ct, "i"),)
    )


def _with_batch_rule():
    f = fnx.custom_batching.custom_vmap(lambda x: 3 * lax.pmean(x, "i"))
    f.def_vmap(lambda size, mapped, x: (3 * lax.pmean(x, "i"), mapped[0]))
    return lambda x: fnx.vmap(f)(x)


@pytest.mark.parametrize("around", ["plain", "jit", "checkpoint", "scan", "vmap"])
@pytest.mark.parametrize("over", ["vmap", "pmap"])
@pytest.mark.parametrize(
    "made",
    [_with_jvp, _with_vjp, _with_symbolic_vjp, _with_transpose, _with_batch_rule],
)
def test_rules_of_functions_meet_the_other_replicas(made, over, around):
    """Rules are traced when the function is derived, outside of the axis."""
    f = made()
    inner = {
        "plain": f,
        "jit": fnx.jit(f),
        "checkpoint": fnx.checkpoint(f),
        "scan": lambda x: lax.scan(lambda c, _: (f(c), None), x, length=1)[0],
        "vmap": lambda x: fnx.vmap(f)(x[None])[0],
    }[around]
    outer = fnx.pmap(inner, "i") if over == "pmap" else fnx.vmap(inner, axis_name="i")
    x = random(4, 5)
    weights = random(4, 5, seed=1)
    got = fnx.grad(lambda x: (outer(x) * weights).sum())(x)
    np.testing.assert_allclose(got, np.stack([3 * weights.mean(0)] * 4), rtol=1e-5)
    _, got = fnx.jvp(outer, (x,), (weights,))
    want = weights.sum(0) if made is _with_transpose else 3 * weights.mean(0)
    np.testing.assert_allclose(got, np.stack([want] * 4), rtol=1e-5)


@pytest.mark.parametrize("size", [3, 30_000])
def test_checks_of_replicas_are_values(size):
    """However much the replicas do: a check, an index and a NaN of the third one."""

    def f(n, x):
        fnx.checkify.check(n < 7, "n is {}", n)
        return lax.psum(x[n], "i") + fnp.sqrt(6.5 - n)

    x = random(4, size)
    for kinds, text in [
        (fnx.checkify.user_checks, "n is 7"),
        (fnx.checkify.index_checks, "index 7 is out of bounds" if size < 7 else None),
        (fnx.checkify.nan_checks, "nan generated by primitive: sqrt"),
    ]:
        checked = fnx.checkify.checkify(fnx.pmap(f, "i"), kinds)
        error, y = checked(np.array([0, 1, 7, 2]), x)
        assert (text is None) == (error.get() is None)
        assert text is None or text in error.get()
        error, y = fnx.jit(checked)(np.array([0, 1, 2, 2]), x)
        assert error.get() is None
        want = x[np.arange(4), [0, 1, 2, 2]].sum() + np.sqrt(
            6.5 - np.array([0, 1, 2, 2])
        )
        np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in COLLECTIVES if n != "axis_index"])
def test_gradients_inside_and_outside(name):
    x = random(4, 4, 3)
    f = COLLECTIVES[name]

    def inside(x):
        return fnx.grad(lambda x: (fnp.sin(f(x)) ** 2).sum())(x)

    def outside(over):
        return fnx.grad(lambda x: (fnp.sin(over(f)(x)) ** 2).sum())

    def over_pmap(f):
        return fnx.pmap(f, "i")

    def over_vmap(f):
        return fnx.vmap(f, axis_name="i")

    pairs = [
        (over_pmap(inside)(x), over_vmap(inside)(x)),
        (outside(over_pmap)(x), outside(over_vmap)(x)),
    ]
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_axes_of_arguments_and_results():
    x, w, n = random(3, 4), random(3, 2, seed=1), random(5, 4, seed=2)

    def f(x, w, tree):
        return {"a": x @ w, "b": lax.psum(tree["n"], "i") * x.sum()}, w.sum()

    mapped = fnx.pmap(
        f, "i", in_axes=(1, None, {"n": 1}), out_axes=({"a": -1, "b": 0}, None)
    )
    found, total = mapped(x, w, {"n": n})
    np.testing.assert_allclose(found["a"], (x.T @ w).T, rtol=1e-5)
    want = np.outer(x.sum(0), n.sum(1))
    np.testing.assert_allclose(found["b"], want, rtol=1e-5)
    np.testing.assert_allclose(total, w.sum(), rtol=1e-6)


def test_static_named_and_donated_arguments():
    def f(x, times, *, y):
        assert isinstance(times, int)
        return x * times + y

    x, y = fnp.asarray(random(4, 2)), random(4, 2, seed=1)
    mapped = fnx.pmap(f, static_broadcasted_argnums=1, donate_argnums=0)
    data = np.asarray(x).copy()
    np.testing.assert_array_equal(mapped(x, 3, y=y), data * 3 + y)
    assert x.is_deleted()
    np.testing.assert_array_equal(mapped(data, 4, y=y), data * 4 + y)


def test_without_a_mapped_argument():
    found = fnx.pmap(lambda x: x + lax.axis_index("i"), "i", in_axes=None, axis_size=4)
    np.testing.assert_array_equal(found(10), [10, 11, 12, 13])


def test_nested_in_other_transformations():
    x, w = random(3, 4, 5), random(5, 2, seed=1)

    def f(x, w):
        return lax.psum(fnp.tanh(x @ w), "i") * x.sum()

    def loss(over, w, x):
        return (over(f)(x, w) ** 2).sum()

    def pmapped(f):
        return fnx.pmap(f, "i", in_axes=(0, None))

    def vmapped(f):
        return fnx.vmap(f, axis_name="i", in_axes=(0, None))

    def results(over):
        one = fnx.vmap(lambda x: over(f)(x, w))(x)
        hessian = fnx.hessian(lambda w: loss(over, w, x[0]))(w)
        many = fnx.vmap(fnx.grad(lambda w, x: loss(over, w, x)), (None, 0))(w, x)
        compiled = fnx.jit(fnx.value_and_grad(lambda w: loss(over, w, x[1])))(w)
        looped = lax.scan(
            lambda w, x: (w - 0.01 * fnx.grad(lambda w: loss(over, w, x))(w), w.sum()),
            w,
            x,
        )
        tangent = fnx.jvp(lambda w: loss(over, w, x[0]), (w,), (w,))
        return one, hessian, many, compiled, looped, tangent

    pairs = zip(
        fnx.tree.leaves(results(pmapped)),
        fnx.tree.leaves(results(vmapped)),
        strict=True,
    )
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)


def test_a_pmap_inside_a_pmap():
    x = random(2, 3, 4)

    def f(x):
        return fnx.pmap(lambda y: lax.psum(y, "j") + lax.psum(y, "i"), "j")(x)

    def g(x):
        return fnx.vmap(lambda y: lax.psum(y, "j") + lax.psum(y, "i"), axis_name="j")(x)

    got = fnx.pmap(f, "i")(x)
    np.testing.assert_allclose(got, fnx.vmap(g, axis_name="i")(x), rtol=1e-6)


def test_results_stay_in_parts():
    x = random(4, 6)
    found = fnx.pmap(lambda x: x * 2)(x)
    assert found.devices() == set(fnx.devices("cpu")[:4])
    assert isinstance(found.sharding, NamedSharding)
    shards = found.addressable_shards
    assert [shard.device for shard in shards] == fnx.devices("cpu")[:4]
    for row, shard in enumerate(shards):
        assert shard.replica_id == 0
        np.testing.assert_array_equal(np.asarray(shard.data)[0], x[row] * 2)
        assert np.shares_memory(np.asarray(shard.data), np.asarray(found))
    again = fnx.pmap(lambda x: x + 1)(found)
    np.testing.assert_array_equal(again, x * 2 + 1)
    np.testing.assert_array_equal(found[1] + 1, x[1] * 2 + 1)
    np.testing.assert_array_equal(fnx.jit(lambda x: x.sum(0))(found), (x * 2).sum(0))


def test_device_put_in_parts():
    mesh = fnx.make_mesh((2, 4), ("a", "b"))
    x = random(4, 8)
    for spec, shape, count in (
        (P("a", "b"), (2, 2), 1),
        (P("b"), (1, 8), 2),
        (P(("b", "a")), None, None),
        (P(None, ("a", "b")), (4, 1), 1),
        (P(), (4, 8), 8),
    ):
        sharding = NamedSharding(mesh, spec)
        if shape is None:
            with pytest.raises(errors.ShapeError, match="4 is no multiple of 8"):
                fnx.device_put(x, sharding)
            continue
        found = fnx.device_put(x, sharding)
        np.testing.assert_array_equal(found, x)
        assert sharding.shard_shape((4, 8)) == shape
        assert found.sharding == sharding
        shards = found.addressable_shards
        assert max(shard.replica_id for shard in shards) == count - 1
        for shard in shards:
            np.testing.assert_array_equal(shard.data, x[shard.index])
    one = fnx.device_put(x, SingleDeviceSharding(fnx.devices("cpu")[3]))
    assert str(one.device) == "cpu:3"


def test_arrays_on_other_cpu_devices():
    a, b = fnx.devices("cpu")[1:3]
    x = fnx.device_put(np.arange(3.0), a)
    assert (x + 1).device == a and fnx.jit(lambda x: x * 2)(x).device == a
    with pytest.raises(errors.ArgumentError, match="different devices"):
        x + fnx.device_put(np.arange(3.0), b)
    with fnx.default_device(b):
        assert fnp.zeros(3).device == b
    x.delete()
    with pytest.raises(errors.ArgumentError, match="deleted"):
        x + 1


def newton(x):
    return lax.custom_root(
        lambda y: y**3 + y - x,
        x,
        lambda f, y: lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2 + 1), y),
        lambda g, y: y / g(fnp.ones_like(y)),
    )


LOOPS = {
    "scan": lambda x: lax.scan(
        lambda c, r: (fnp.sin(c) + lax.pmean(r, "i"), c * r), x[0], x
    ),
    "scan with checkpoints": lambda x: lax.scan(
        lambda c, r: (fnp.sin(c) * lax.psum(r, "i"), c), x[0], x, checkpoint="sqrt"
    ),
    "fori_loop": lambda x: lax.fori_loop(
        0, 3, lambda n, c: fnp.tanh(c) + lax.ppermute(c, "i", [(0, 1), (1, 0)]), x
    ),
    "while_loop": lambda x: lax.while_loop(
        lambda c: c[0] < 4, lambda c: (c[0] + 1, lax.psum(fnp.sin(c[1]), "i")), (0, x)
    )[1],
    "cond": lambda x: lax.cond(
        lax.psum(x.sum(), "i") > 0,
        lambda x: lax.psum(x, "i") ** 2,
        lambda x: fnp.cos(x) * lax.pmean(x, "i"),
        x,
    ),
    "switch": lambda x: lax.switch(
        lax.axis_index("i"), [fnp.sin, fnp.cos, lambda x: x**2, fnp.tanh], x
    ),
    "map": lambda x: lax.map(lambda r: lax.psum(fnp.sin(r), "i"), x),
    "associative_scan": lambda x: lax.associative_scan(
        lambda a, b: a * b, lax.pmean(x, "i")
    ),
    "custom_root": newton,
    "remat": lambda x: fnx.checkpoint(lambda x: lax.psum(fnp.sin(x), "i") * x)(x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow_in_replicas(name):
    x, f = random(4, 3, 5) / 2, LOOPS[name]

    def results(over):
        def loss(x):
            return sum(fnp.sum(y**2) for y in fnx.tree.leaves(over(f)(x)))

        def inside(x):
            return fnx.grad(
                lambda x: sum(fnp.sum(y**2) for y in fnx.tree.leaves(f(x)))
            )(x)

        return over(f)(x), fnx.grad(loss)(x), over(inside)(x)

    got = results(lambda f: fnx.pmap(f, "i"))
    want = results(lambda f: fnx.vmap(f, axis_name="i"))
    pairs = zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)
