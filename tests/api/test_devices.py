"""Arrays and programs on devices: where they are, what follows, what can be done there.

Everything runs on the mirror (`tests/mirror.py`), two devices that compute nothing
before somebody waits, and on the emulated CUDA devices. It is compared with NumPy; the
rules of placement are compared with those of JAX, which is given two CPU devices.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.config import busy
from fnx.runtime.array import ConcreteArray

X = np.array([[0.5, -1.25, 3.0], [2.0, 0.0, -0.0]], np.float32)


def at(x: Any) -> tuple[str, bool]:
    """Where an array is, and whether it is committed to that."""
    return ("cpu" if x.device.backend == "cpu" else f"d{x.device.id}"), x.committed


# ---------------------------------------------------------------- placement

# What is done with arrays on two devices, in words that JAX understands, too.
SCENES = """
x = put(ones(3), d0)
y = put(ones(3), d1)
u = array([1.0, 2.0, 3.0])
n = np.ones(3, np.float32)
show(x); show(y); show(u)
show(x + 1); show(y + u); show(u + y); show(u + u); show(u * n); show(y * n)
show(sin(y)); show(y[0]); show(y.sum()); show(zeros_like(y)); show(zeros_like(u))
show(where(u > 1, y, 0.0)); show(concatenate([u, y])); show(-u)
show(jit(lambda a: a * 2)(y)); show(jit(lambda a: a * 2)(u)); show(jit(lambda a: a)(n))
show(jit(lambda a, b: a + b)(u, y)); show(jit(lambda a, b: b)(u, y))
show(jit(lambda a: a + u)(y)); show(jit(lambda: ones(2))())
show(grad(lambda a: (a * a).sum())(y)); show(vmap(lambda a: a * 2)(y))
show(put(y, d0)); show(put(y)); show(put(u)); show(put(n)); show(put(u, d0))
with default_device(d1):
    v = ones(3)
    show(v); show(array([1.0])); show(u + 1); show(x + v); show(jit(lambda a: a + 1)(u))
    show(zeros_like(x)); show(arange(3.0)); show(put(n))
show(v + 1); show(v)
for other in (lambda: x + y, lambda: jit(lambda a, b: a + b)(x, y)):
    try:
        other()
        rows.append("nothing raised")
    except Exception:
        rows.append("raised")
"""
NAMES = "ones array sin zeros_like where concatenate arange"

JAX = f"""
import json
import numpy as np, jax, jax.numpy as jnp
from jax import jit, grad, vmap, device_put as put, default_device
for name in {NAMES!r}.split():
    globals()[name] = getattr(jnp, name)
d0, d1 = jax.devices()
rows = []
def show(x):
    (device,) = x.devices()
    rows.append([device.id, x.committed])
exec({SCENES!r})
print(json.dumps(rows))
"""


@pytest.mark.oracle
def test_placement_is_that_of_jax(a, b):
    pytest.importorskip("jax")
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", JAX]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    expected = json.loads(ran.stdout.splitlines()[-1])

    rows: list[Any] = []
    scope = {name: getattr(fnp, name) for name in NAMES.split()}
    scope |= {"np": np, "jit": fnx.jit, "grad": fnx.grad, "vmap": fnx.vmap}
    scope |= {"put": fnx.device_put, "default_device": fnx.default_device}
    scope |= {"d0": a, "d1": b, "rows": rows}
    scope["show"] = lambda x: rows.append([x.device.id, x.committed])
    with fnx.config.override(default_device=a):
        exec(SCENES, scope)
    shown = [part.strip() for part in SCENES.replace(";", "\n").split("\n")]
    calls = [part for part in shown if part.startswith("show(")]
    assert len(rows) == len(expected) == len(calls) + 2
    wrong = [
        (call, got, want)
        for call, got, want in zip(
            [*calls, "x + y", "jit"], rows, expected, strict=True
        )
        if got != want
    ]
    assert not wrong


def test_uncommitted_arrays_follow_and_the_result_is_committed(a, b):
    x = fnx.device_put(X, b)
    for result in (
        x + X,
        2 * x,
        x @ fnp.ones(3),
        fnp.where(X > 0, x, 1),
        x + np.int8(1),
    ):
        assert at(result) == ("d1", True)
    np.testing.assert_array_equal(np.asarray(x + X), X + X)


def test_the_cpu_holds_what_was_put_there(a):
    cpu = fnx.devices("cpu")[0]
    x, y = fnx.device_put(X, cpu), fnx.device_put(X, a)
    assert at(x) == ("cpu", True) == at(x + 1) == at(fnx.jit(lambda x: x + 1)(x))
    assert at(fnp.ones(3)) == ("cpu", False)
    with fnx.default_device(a):
        assert at(fnp.exp(x)) == ("cpu", True)
        assert at(x + fnp.ones(3)) == ("cpu", True)
        np.testing.assert_array_equal(np.asarray(x + fnp.ones(3)), X + 1)
        (mapped,) = fnx.vmap(lambda x: (x + 1,))(x)
        assert at(mapped) == ("cpu", True)
        index, value = lax.top_k(x, 2)
        assert at(index) == at(value) == ("cpu", True)
    with pytest.raises(errors.ArgumentError, match=rf"on cpu:0 and .* on {a}"):
        x + y
    np.testing.assert_array_equal(np.asarray(fnx.device_put(y, cpu)), X)
    assert at(fnx.device_put(y, cpu)) == ("cpu", True)


def test_a_conflict_names_the_arguments(a, b):
    @fnx.jit
    def step(params, batch):
        return params["w"] * batch

    x, y = fnx.device_put(X, a), fnx.device_put(X, b)
    with pytest.raises(errors.ArgumentError) as found:
        step({"w": x}, y)
    assert str(found.value) == (
        "jit of step: arrays are committed to different devices: params['w'] "
        f"(f32[2,3]) on {a} and batch (f32[2,3]) on {b}.\n"
        "  Fix: move them to one device with fnx.device_put(x, device)"
    )
    with pytest.raises(errors.ArgumentError, match=rf"operand 0 .* on {a} and oper"):
        fnp.concatenate([x, y])
    with pytest.raises(errors.ArgumentError, match=r"different devices"):
        fnx.vmap(lambda x, y: x + y)(x, y)
    with pytest.raises(errors.ArgumentError, match=r"different devices"):
        lax.scan(lambda c, x: (c + x, c), y[0], x)


def test_a_compiled_function_is_for_one_device(a, b):
    x = fnx.device_put(X, a)
    compiled = fnx.jit(lambda x: x * 3).lower(x).compile()
    np.testing.assert_array_equal(np.asarray(compiled(x)), X * 3)
    with pytest.raises(errors.ArgumentError, match=rf"compiled for {a}.* {b}"):
        compiled(fnx.device_put(X, b))


def test_native_calls_are_left_alone(a):
    """A jitted function whose calls are native still sees arrays of other devices."""
    f = fnx.jit(lambda x: x + 1)
    here, away = fnp.array(X), fnx.device_put(X, a)
    for _ in range(50):
        assert type(f(here)) is ConcreteArray
    assert f.cache_info().hits > 40
    for _ in range(50):
        assert at(f(away)) == ("d0", True)
        assert type(f(here)) is ConcreteArray
    with fnx.default_device(a):
        assert at(f(here)) == ("d0", False)
        assert at(here + 1) == ("d0", False)
    assert type(f(here)) is ConcreteArray


def test_the_default_device_can_be_set_for_the_process(a, b):
    with fnx.config.override(default_device=b):
        assert fnx.devices() == [a, b]
        assert fnx.default_backend() == b.platform
        assert busy
        assert at(fnp.zeros(2)) == ("d1", False)
        with fnx.default_device("cpu"):
            assert at(fnp.zeros(2)) == ("cpu", False)
            with fnx.default_device(None):
                assert at(fnp.zeros(2)) == ("cpu", False)
        with fnx.config.override(default_device=a.backend):
            assert at(fnp.zeros(2)) == ("d0", False)
    assert at(fnp.zeros(2)) == ("cpu", False)
    assert not busy
    with pytest.raises(errors.ArgumentError, match=r"takes a device, a name such as"):
        fnx.config.default_device = 1
    with fnx.config.override(default_device=f"{a.backend}:7"):
        with pytest.raises(errors.ArgumentError, match=r"config.default_device: '"):
            fnp.zeros(2)
        fnx.config.default_device = "cpu"
        assert at(fnp.zeros(2)) == ("cpu", False)


def test_makers_make_on_the_default_device(b):
    with fnx.default_device(b):
        for made in (
            fnp.array(X),
            fnp.asarray([1, 2]),
            fnp.array(2.0),
            fnp.zeros((2, 3)),
            fnp.full(2, np.float32(3)),
            fnp.arange(5),
            fnp.arange(0.5, 3),
            fnp.linspace(0, 1, 3),
            fnp.eye(2),
            fnp.tril_indices(2)[0],
            fnp.hanning(4),
            fnx.device_put(X),
            fnp.unique(X),
            fnp.nonzero(X)[0],
            fnx.random.key_data(fnx.random.key(0)),
            fnx.random.normal(fnx.random.key(0), (2,)),
        ):
            assert at(made) == ("d1", False)
    np.testing.assert_array_equal(np.asarray(fnp.array(X)), X)


def test_makers_take_a_device(a, b):
    x = fnx.device_put(X, a)
    makers = {
        "array": lambda **on: fnp.array(X, **on),
        "asarray": lambda **on: fnp.asarray(x, "float64", **on),
        "zeros": lambda **on: fnp.zeros((2, 3), "int8", **on),
        "ones": lambda **on: fnp.ones(3, **on),
        "empty": lambda **on: fnp.empty(3, **on),
        "full": lambda **on: fnp.full(2, 7, **on),
        "zeros_like": lambda **on: fnp.zeros_like(x, **on),
        "ones_like": lambda **on: fnp.ones_like(X, "float16", **on),
        "empty_like": lambda **on: fnp.empty_like(x, **on),
        "full_like": lambda **on: fnp.full_like(x, 2.5, **on),
        "arange": lambda **on: fnp.arange(2, 9, 3, **on),
        "linspace": lambda **on: fnp.linspace(0, 1, 5, **on),
        "eye": lambda **on: fnp.eye(2, 3, 1, **on),
    }
    for name, make in makers.items():
        for device in (a, b, fnx.devices("cpu")[0]):
            made, usual = make(device=device), make()
            assert made.device == device, name
            assert made.committed
            assert made.type is usual.type
            np.testing.assert_array_equal(np.asarray(made), np.asarray(usual))
        with pytest.raises(errors.ArgumentError, match=rf"{name}: 'gpu': this is no d"):
            make(device="gpu")
    with pytest.raises(errors.ArgumentError, match=r"zeros\(device=.*\) in a function"):
        fnx.jit(lambda x: x + fnp.zeros(3, device=a))(X)
    values, step = fnp.linspace(0, 1, 5, retstep=True, device=b)
    assert at(values) == ("d1", True)
    assert float(step) == 0.25
    step = fnx.jit(lambda x: x + 1, donate_argnums=0)
    with fnx.default_device(b):
        free = fnp.array(X)
    step(fnp.asarray(free, device=b))
    np.testing.assert_array_equal(np.asarray(free), X)


def test_what_the_host_computes_goes_back(b):
    x = fnx.device_put(X, b)
    for result in (fnp.unique(x), fnp.nonzero(x)[1], fnp.union1d(x, X), x[X > 0], x[1]):
        assert at(result) == ("d1", True)
    np.testing.assert_array_equal(np.asarray(fnp.unique(x)), np.unique(X))
    np.testing.assert_array_equal(np.asarray(x[x > 0]), X[X > 0])


# ---------------------------------------------------------------- moving


def test_put_and_get_trees(a, b):
    tree = {"w": X, "n": 3, "k": [fnp.ones(2), None]}
    placed = fnx.device_put(tree, {"w": a, "n": None, "k": b})
    assert [at(placed["w"]), at(placed["n"]), at(placed["k"][0])] == [
        ("d0", True),
        ("cpu", False),
        ("d1", True),
    ]
    got = fnx.device_get(placed)
    np.testing.assert_array_equal(got["w"], X)
    assert isinstance(got["w"], np.ndarray)
    assert got["n"] == 3
    assert not got["w"].flags.writeable
    with pytest.raises(errors.TreeError, match=r"device"):
        fnx.device_put(tree, {"w": a})


def test_a_traced_array_cannot_be_put_somewhere(a):
    with pytest.raises(errors.ArgumentError, match=r"is a traced array \(f32\[2,3\]\)"):
        fnx.jit(lambda x: fnx.device_put(x, a))(X)
    stays = fnx.jit(lambda x: fnx.device_put(x) + 1)
    assert at(stays(fnx.device_put(X, a))) == ("d0", True)


def test_conversions_wait(a):
    x = fnx.device_put(X, a)
    first = x[0, 0]
    assert float(first) == 0.5
    assert int(first) == 0
    assert bool(x[1, 1] > 1) is False
    assert [10, 20, 30][fnp.argmax(x[1])] == 10
    assert x.tolist() == X.tolist()
    assert f"{first:.2f}" == "0.50"
    assert repr(x[0]) == "Array([ 0.5 , -1.25,  3.  ], dtype=float32)"
    assert [float(v) for v in x[0]] == [0.5, -1.25, 3.0]
    assert np.asarray(x).flags.writeable is False
    assert len(x) == 2


# ---------------------------------------------------------------- what can be done


def f(x):
    return fnp.tanh(x @ x.T).sum() + fnp.where(x > 0, x, x * x).mean()


def test_transformations_stay_on_the_device(a):
    x = fnx.device_put(X, a)
    for g in (
        fnx.grad(f),
        fnx.jit(fnx.grad(f)),
        fnx.vmap(lambda r: fnp.cumsum(r) / 2),
        fnx.jit(fnx.vmap(fnx.grad(lambda r: (r**3).sum()))),
        fnx.hessian(f),
        lambda x: fnx.jvp(f, (x,), (x,))[1],
        lambda x: fnx.vjp(f, x)[1](x[0, 0])[0],
        lambda x: fnx.linearize(f, x)[1](x),
        fnx.checkpoint(lambda x: fnp.sin(x)),
    ):
        result = g(x)
        assert at(result) == ("d0", True)
        np.testing.assert_allclose(
            np.asarray(result), np.asarray(g(fnp.array(X))), rtol=1e-6, atol=1e-6
        )


def test_control_flow(a):
    x = fnx.device_put(np.arange(4, dtype=np.float32), a)
    carry, rows = lax.scan(lambda c, v: (c + v, c * v), x[0], x)
    assert at(carry) == at(rows) == ("d0", True)
    assert float(carry) == 6.0
    np.testing.assert_array_equal(np.asarray(rows), [0, 0, 2, 9])
    looped = lax.while_loop(lambda c: c[0] < 40, lambda c: c * 2, x + 1)
    np.testing.assert_array_equal(np.asarray(looped), [64, 128, 192, 256])
    either = lax.cond(x[1] > 0, lambda x: x + 1, lambda x: x - 1, x)
    np.testing.assert_array_equal(np.asarray(either), [1, 2, 3, 4])
    assert at(looped) == at(either) == ("d0", True)

    def loss(w):
        return lax.scan(lambda c, v: (fnp.sin(c * w + v), c), w, x)[0]

    slope = fnx.jit(fnx.grad(loss))(x[1])
    assert at(slope) == ("d0", True)
    h = 1e-3
    rise = float(loss(fnp.float64(1 + h))) - float(loss(fnp.float64(1 - h)))
    assert abs(float(slope) - rise / (2 * h)) < 1e-4


def test_values_on_demand(a):
    seen = []

    def loss(x):
        y = (x * x).sum()
        if y > 3:
            seen.append(float(y))
        return y

    slope = fnx.grad(loss)(fnx.device_put(X, a))
    assert seen == [float((X * X).sum())]
    assert at(slope) == ("d0", True)


def test_rules_of_the_users_and_callbacks(a):
    @fnx.custom_jvp
    def double(x):
        return x * 2

    @double.defjvp
    def rule(primals, tangents):
        return double(primals[0]), tangents[0] * 5

    x = fnx.device_put(X, a)
    assert at(double(x)) == ("d0", True)
    np.testing.assert_array_equal(np.asarray(fnx.grad(lambda x: double(x).sum())(x)), 5)
    like = fnx.ShapeDtypeStruct(X.shape, X.dtype)
    for function in (
        lambda x: fnx.pure_callback(np.abs, like, x),
        fnx.jit(lambda x: fnx.pure_callback(np.abs, like, x)),
    ):
        result = function(x)
        assert at(result) == ("d0", True)
        np.testing.assert_array_equal(np.asarray(result), np.abs(X))
    table = fnp.array(X[0])

    @fnx.custom_vjp
    def scaled(x):
        return x * table

    scaled.defvjp(lambda x: (x * table, None), lambda _, ct: (ct * table,))
    slope = fnx.grad(lambda x: scaled(x).sum())(x)
    np.testing.assert_array_equal(np.asarray(slope), np.broadcast_to(X[0], X.shape))
    assert at(slope) == ("d0", True)


def test_numbers_meet_any_shape_and_keep_their_types(a):
    x = fnx.device_put(X, a)
    half = fnx.device_put(X.astype(np.float16), a)
    one = fnp.float32(1)
    assert (2.5 * half).dtype == np.float16
    np.testing.assert_array_equal(np.asarray(x * one), X)
    np.testing.assert_array_equal(np.asarray(fnp.clip(x, -1, 1)), np.clip(X, -1, 1))
    np.testing.assert_array_equal(np.asarray(x > 0), X > 0)
    np.testing.assert_array_equal(np.asarray(1 - x), 1 - X)
    np.testing.assert_array_equal(np.asarray(x[1] ** 2), X[1] ** 2)
    assert (x.astype("int8") + 1).dtype == np.int8
    assert (fnp.sum(x) * 2).weak_type is False


def test_one_operation_is_compiled_once(a):
    x = fnx.device_put(X, a)
    x * 1.5 + 1, fnp.sin(x), x.sum(axis=0)
    with fnx.no_recompile():
        x * 2.5 + 2, fnp.sin(x), x.sum(axis=0)
        with pytest.raises(errors.RecompileError, match=r"no_recompile"):
            x.sum(axis=1)


def test_empty_arrays_and_big_ranks(a):
    empty = fnx.device_put(np.zeros((0, 3), np.float32), a)
    assert np.asarray(empty * 2 + 1).shape == (0, 3)
    assert float(empty.sum()) == 0.0
    deep = fnx.device_put(np.arange(64, dtype=np.int64).reshape((2,) * 6), a)
    np.testing.assert_array_equal(
        np.asarray(deep.sum(axis=(1, 4))), np.asarray(deep).sum(axis=(1, 4))
    )


# ---------------------------------------------------------------- donation, deletion


def test_a_training_loop_with_donation(a):
    target = X.sum(axis=1)

    @fnx.jit
    def loss(w, x):
        return ((x @ w - target) ** 2).mean()

    step = fnx.jit(
        lambda w, m, x: (w - 0.05 * (m := 0.9 * m + fnx.grad(loss)(w, x)), m),
        donate_argnums=(0, 1),
    )
    x = fnx.device_put(X, a)
    w, m = fnp.zeros_like(x[0]), fnp.zeros_like(x[0])
    wn, mn = np.zeros(3), np.zeros(3)
    for _ in range(20):
        w, m = step(w, m, x)
        mn = 0.9 * mn + X.T.astype("f8") @ (X @ wn - target)
        wn = wn - 0.05 * mn
    np.testing.assert_allclose(np.asarray(w), wn, rtol=1e-4)
    assert at(w) == ("d0", True)


def test_delete(a):
    x = fnx.device_put(X, a)
    np.asarray(x)
    x.delete()
    assert x.is_deleted() and x.shape == (2, 3)
    for use in (np.asarray, fnp.sin, pickle.dumps, lambda x: x.block_until_ready()):
        with pytest.raises(errors.ArgumentError, match=r"after it had been deleted"):
            use(x)
    x.delete()


# ---------------------------------------------------------------- other libraries


def test_pickles_and_copies(a, b):
    x = fnx.device_put(X, b)
    again = pickle.loads(pickle.dumps(x))
    assert at(again) == ("cpu", False)
    with fnx.default_device(a):
        assert at(pickle.loads(pickle.dumps(x))) == ("d0", False)
    np.testing.assert_array_equal(np.asarray(again), X)
    assert copy.copy(x) is x
    assert copy.deepcopy([x])[0] is x
    assert pickle.loads(pickle.dumps(b)) == b
    weak = fnx.device_put(2.0, a)
    assert weak.weak_type and pickle.loads(pickle.dumps(weak)).weak_type


# ---------------------------------------------------------------- what goes wrong


def test_nans_and_checks_are_found_on_devices(a):
    x = fnx.device_put(X, a)
    with fnx.debug_nans(True):
        with pytest.raises(errors.NonFiniteError, match=r"log gave NaN"):
            fnp.log(x)
        with pytest.raises(errors.NonFiniteError, match=r"jit of <lambda> gave NaN"):
            fnx.jit(lambda x: fnp.log(x))(x)
    with fnx.debug.checks(), pytest.raises(errors.CheckError, match=r"index"):
        fnx.jit(lambda x, i: x[i])(x, 7)


def test_many_threads_with_devices_of_their_own(a, b):
    def work(device):
        with fnx.default_device(device):
            return [at(fnp.ones(3) * i) for i in range(30)]

    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(work, [a, b, "cpu", a]))
    for name, row in zip(("d0", "d1", "cpu", "d0"), rows, strict=True):
        assert set(row) == {(name, False)}


# ---------------------------------------------------------------- donation


def test_donated_arrays_are_gone_and_the_results_right(a, b):
    step = fnx.jit(lambda x, y: (x + y, y), donate_argnums=(0, 1))
    for device in (a, b):
        x, y = fnx.device_put(X, device), fnx.device_put(X + 1, device)
        (alias,) = fnx.jit(lambda x: (x,))(x)
        total, same = step(x, y)
        assert x.is_deleted() and y.is_deleted()
        np.testing.assert_array_equal(np.asarray(total), X + X + 1)
        np.testing.assert_array_equal(np.asarray(same), X + 1)
        np.testing.assert_array_equal(np.asarray(alias), X)
        with pytest.raises(errors.ArgumentError, match=r"used after it had been delet"):
            step(total, x)
