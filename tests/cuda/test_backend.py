"""Compiled programs on a device, call after call: eager, captured, replayed, failing.

Values are compared with the CPU's. Arenas are poisoned between calls, so that a replay
that needs what an earlier one left behind is found.
"""

from __future__ import annotations

import gc
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax, tree
from fnx.compiler.pipeline import plan_program
from fnx_cuda import _cupy, program
from fnx_cuda.backend import BACKEND
from fnx_cuda.device import device
from tests import cuda_emulator as emulator
from tests.control.flows import FLOWS, X
from tests.cuda.parts import numbers
from tests.cuda.test_suites import MOST_BYTES

pytestmark = pytest.mark.cuda


def poison(number: int = 0) -> None:
    """What is in the arenas of programs that do not run is what nobody has written."""
    runtime = emulator.cupy_module().cuda.runtime
    for cache in list(device(number).memory.caches):
        memory = getattr(cache, "memory", None)
        if memory is not None and memory.nbytes:
            runtime.fnx_poison(memory.pointer, memory.nbytes, device(number).compute)


def softmax_step(x, w):
    return fnp.sum(fnx.nn.softmax(fnp.tanh(x @ w)) * x, axis=0), fnp.max(x, axis=1)


def scanned(x, w):
    def body(carry, row):
        carry = fnp.tanh(carry * 0.5 + row)
        return carry, carry * 2

    return lax.scan(body, w[0], x, reverse=True)


def counted(x, w):
    def body(state):
        i, y = state
        return i + 1, y * 0.5 + w

    return lax.while_loop(lambda s: s[0] < fnp.sum(x > 0) % 7, body, (0, w))


def branched(x, w):
    index = fnp.sum(x > 0).astype(np.int32) % 3
    return lax.switch(index, [fnp.sin, lambda y: y * 2 + 1, fnp.exp], w)


def called_back(x, w):
    shape = fnx.ShapeDtypeStruct(w.shape, w.dtype)
    y = fnx.pure_callback(lambda v: np.sort(v, axis=-1), shape, w * 2)
    return y + fnp.sum(x), y


def differentiated(x, w):
    def loss(w):
        return fnp.mean(fnx.nn.log_softmax(fnp.tanh(x @ w)) ** 2)

    return fnx.value_and_grad(loss)(w)


FUNCTIONS = [softmax_step, scanned, counted, branched, called_back, differentiated]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_replays_are_the_cpus_values(gpu: Any, function: Any) -> None:
    compiled = fnx.jit(function)
    kept = []
    for seed in range(7):
        x, w = numbers(seed, 6, 5), numbers(seed + 30, 5, 5)
        wanted = tree.leaves(compiled(x, w))
        found = compiled(*fnx.device_put((x, w), gpu))
        for mine, other in zip(tree.leaves(found), wanted, strict=True):
            np.testing.assert_allclose(
                np.asarray(mine), np.asarray(other), rtol=2e-5, atol=2e-6
            )
        if seed % 2:
            kept.append(found)  # so that outputs move about
        poison()


@pytest.mark.parametrize("flow", FLOWS, ids=[flow.name for flow in FLOWS])
def test_control_flow_again_and_again(gpu: Any, flow: Any) -> None:
    """Every kind of loop and branch, with its gradient, on other values each time."""

    def both(x: Any) -> Any:
        return flow.function(x), fnx.grad(lambda x: fnp.sum(flow.function(x)))(x)

    if plan_program(fnx.make_jaxpr(both)(X)).arena > MOST_BYTES:
        pytest.skip("it reserves memory for more rounds than the emulator can check")
    compiled = fnx.jit(both)
    for number in range(5):
        x = X + 0.01 * number
        wanted = compiled(x)
        found = compiled(fnx.device_put(x, gpu))
        for mine, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(other), 1e-9, 1e-9)
        del found, mine
        poison()


def test_large_rows_of_an_odd_size(gpu: Any) -> None:
    """Where a thread computes two elements at once, and rows begin at odd addresses."""
    n = 65_536

    def function(xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            y = fnp.tanh(x[:n]) * carry
            return y, fnp.concatenate([y, x[:1]])

        return lax.scan(body, xs[0, :n], xs)

    compiled = fnx.jit(function)
    xs = numbers(1, 3, n + 1)
    text = compiled.lower(fnx.device_put(xs, gpu)).as_text("cuda")
    assert "float_x2" in text
    found, wanted = compiled(fnx.device_put(xs, gpu)), compiled(xs)
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=1e-5)


def test_a_training_loop(gpu: Any) -> None:
    """The state comes back in; the losses are kept."""

    @fnx.jit
    def step(params, batch):
        def loss(params):
            hidden = fnp.tanh(batch @ params["w"] + params["b"])
            return fnp.mean((hidden - 0.5) ** 2)

        value, grads = fnx.value_and_grad(loss)(params)
        return tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    start = {"w": numbers(1, 5, 3), "b": numbers(2, 3)}
    batches = [numbers(seed, 8, 5) for seed in range(12)]
    found, wanted = fnx.device_put(start, gpu), start
    losses, expected = [], []
    for batch in batches:
        found, value = step(found, fnx.device_put(batch, gpu))
        losses.append(value)
        poison()
    for batch in batches:
        wanted, value = step(wanted, batch)
        expected.append(float(value))
    np.testing.assert_allclose([float(x) for x in losses], expected, rtol=1e-5)
    for name in start:
        np.testing.assert_allclose(
            np.asarray(found[name]), np.asarray(wanted[name]), rtol=1e-4, atol=1e-6
        )


def test_donated_state(gpu: Any) -> None:
    step = fnx.jit(lambda s, x: (s * 0.9 + fnp.sum(x), fnp.max(s)), donate_argnums=0)
    state = fnx.device_put(numbers(1, 300), gpu)
    want = numbers(1, 300)
    for seed in range(6):
        x = numbers(seed, 10)
        state, top = step(state, fnx.device_put(x, gpu))
        np.testing.assert_allclose(float(top), want.max(), rtol=1e-5)
        want = want * np.float32(0.9) + x.sum()
    np.testing.assert_allclose(np.asarray(state), want, rtol=1e-5, atol=1e-5)


def test_threads_share_a_program(gpu: Any) -> None:
    compiled = fnx.jit(softmax_step)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for number in range(4):
            x, w = numbers(seed * 9 + number, 4, 4), numbers(number, 4, 4)
            found = tree.leaves(compiled(*fnx.device_put((x, w), gpu)))
            wanted = tree.leaves(compiled(x, w))
            for mine, other in zip(found, wanted, strict=True):
                if not np.allclose(np.asarray(mine), np.asarray(other), rtol=1e-4):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong


def test_a_callbacks_error_is_the_users(gpu: Any) -> None:
    def fails(x):
        if x.sum() > 0:
            raise KeyError("a sum above zero")
        return x

    def function(x):
        shape = fnx.ShapeDtypeStruct(x.shape, x.dtype)
        return fnx.pure_callback(fails, shape, x * 2) + 1

    compiled = fnx.jit(function)
    good, bad = (fnx.device_put(np.full(3, v, "f4"), gpu) for v in (-1.0, 1.0))
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(compiled(good)), np.full(3, -1.0))
        with pytest.raises(KeyError, match="above zero"):
            compiled(bad)


@pytest.fixture
def injected() -> Any:
    yield emulator.inject
    emulator.inject.clear()


@pytest.mark.parametrize("after", range(0, 8, 2))
def test_a_shortage_is_an_error_and_the_next_call_works(
    gpu: Any, injected: Any, after: int
) -> None:
    n = 3001 + after  # a program of its own

    def function(x):
        with fnx.named_scope("layer"):
            y = fnp.cumsum(x) * 2
        return y[::-1] + fnp.sum(y), y

    compiled = fnx.jit(function)
    x = numbers(1, n)
    wanted = tree.leaves(compiled(x))
    injected.out_of_memory(after=after)
    for _ in range(2):
        try:
            compiled(fnx.device_put(x, gpu))
        except errors.DeviceMemoryError as error:
            assert "no memory for" in str(error) or "out of memory" in str(error)
    injected.clear()
    for mine, other in zip(
        tree.leaves(compiled(fnx.device_put(x, gpu))), wanted, strict=True
    ):
        np.testing.assert_allclose(
            np.asarray(mine), np.asarray(other), rtol=1e-4, atol=1e-4
        )


def test_a_launch_error_says_where(gpu: Any, injected: Any) -> None:
    def function(x):
        with fnx.named_scope("attention"):
            return fnp.sum(fnp.exp(x * 1.25), axis=0)

    compiled = fnx.jit(function)
    x = fnx.device_put(numbers(1, 7, 9), gpu)
    injected.launch_error()
    with pytest.raises(errors.DeviceError, match="device 0, in attention"):
        compiled(x)
    np.testing.assert_allclose(
        np.asarray(compiled(x)), np.exp(numbers(1, 7, 9) * 1.25).sum(0), rtol=1e-5
    )


def test_nothing_leaks_over_calls(gpu: Any) -> None:
    compiled = fnx.jit(differentiated)
    on = device(0)
    used = []
    for seed in range(9):
        x, w = numbers(seed, 6, 5), numbers(seed + 30, 5, 5)
        tree.map(np.asarray, compiled(*fnx.device_put((x, w), gpu)))
        gc.collect()
        with on:
            used.append(on.memory.stats()["bytes_in_use"])
    assert used[-1] == used[-3]


def test_what_is_compiled_can_be_kept(gpu: Any) -> None:
    traced = fnx.jit(counted).trace(numbers(1, 3, 4), numbers(2, 4))
    plan = plan_program(traced.jaxpr, BACKEND.target)
    compiled = pickle.loads(pickle.dumps(BACKEND.compile(plan)))
    run = BACKEND.load(compiled)
    assert isinstance(run, program.Program)
    x, w = numbers(1, 3, 4), numbers(2, 4)
    for _ in range(3):
        found = run([BACKEND.put(x, 0), BACKEND.put(w, 0)], 0)
    wanted = tree.leaves(fnx.jit(counted)(x, w))
    for buffer, other in zip(found, wanted, strict=True):
        mine = BACKEND.get(buffer, other.shape, other.dtype)
        np.testing.assert_allclose(mine, np.asarray(other), rtol=1e-5)


def test_texts(gpu: Any) -> None:
    plan = plan_program(
        fnx.jit(softmax_step).trace(numbers(1, 3, 4), numbers(2, 4, 4)).jaxpr,
        BACKEND.target,
    )
    assert 'extern "C" __global__' in BACKEND.as_text(plan, "cuda")


def test_figures_and_findings(gpu: Any) -> None:
    assert len(BACKEND.found().kinds) == emulator.machine().settings.devices
    found = {line.what: line.found for line in BACKEND.findings()}
    assert found["CUDA runtime"].startswith("13.")
    assert "compute capability 9.0" in found["CUDA device 1"]
    assert {"cuBLASLt, loaded", "cuDNN, loaded", "cuFFT, loaded"} <= found.keys()
    stats = BACKEND.memory_stats(1)
    assert stats["bytes_limit"] == emulator.machine().settings.memory
    assert _cupy.version() in BACKEND.machine()
    assert BACKEND.stream(0) != BACKEND.stream(1)


def test_a_buffer_is_waited_for(gpu: Any) -> None:
    buffer = BACKEND.put(numbers(1, 100), 0)
    BACKEND.wait(buffer)
    assert BACKEND.is_ready(buffer)
    assert BACKEND.moved(buffer, 1).device == 1
