"""Memory of devices: transfers of any size, reuse in order, other devices, shortage."""

from __future__ import annotations

import gc
import threading

import ml_dtypes
import numpy as np
import pytest

from fnx import errors
from fnx.core.types import ArrayType
from fnx.runtime.plan import Place
from fnx_cuda import device, memory, staging, transfer
from fnx_cuda.memory import readable
from fnx_cuda.usage import Row, usage_text
from tests import cuda_emulator as emulator
from tests.cuda.parts import (
    F32,
    arena,
    f32,
    got,
    inputs,
    outputs,
    plan,
    program,
    put,
    scale_add,
)

pytestmark = pytest.mark.cuda

DTYPES = [np.bool_, np.int8, np.uint64, np.float16, np.float64, np.complex64]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces and thresholds of a few kilobytes, so that arrays can be small."""
    monkeypatch.setattr(transfer, "LARGE", 20_000)
    monkeypatch.setattr(transfer, "CHUNK", 8192)
    monkeypatch.setattr(staging, "_MOST_BUSY", 20_000)


def random(n, dtype=F32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 100, n).astype(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.bfloat16])
@pytest.mark.parametrize("n", [0, 1, 5, 1000, 4096])
def test_there_and_back(machine, n, dtype):
    x = random(n, dtype)
    (buffer,) = put(x, device=1)
    assert (buffer.nbytes, buffer.device) == (x.nbytes, 1)
    assert (buffer.pointer == 0) == (n == 0)
    back = got(buffer, x)
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("shape", [(), (3, 0, 2), (7, 11, 13), (2, 8191)])
def test_shapes(machine, shape):
    x = np.asarray(random(int(np.prod(shape)))).reshape(shape)
    (buffer,) = put(x)
    assert got(buffer, x).shape == shape
    np.testing.assert_array_equal(got(buffer, x), x)


def test_many_arrays_on_their_way(machine):
    xs = [random(n, seed=n) for n in (10, 9000, 30, 3000, 6000, 6000, 9000, 2, 9000)]
    buffers = put(*xs)
    for x, buffer in reversed(list(zip(xs, buffers, strict=True))):
        np.testing.assert_array_equal(got(buffer, x), x)


def adding(n):
    (a, b), (out,) = inputs(0, 1), outputs(0)
    return program(plan([f32(n)] * 2, [f32(n)]), [scale_add(a, b, out, 1.0, n)])


@pytest.mark.parametrize("n", [1000, 9000])
def test_memory_is_used_again_in_order(machine, n):
    """Arrays go as soon as they are used; the next ones come into their memory."""
    run, sums = adding(n), []
    for seed in range(12):
        x, y = random(n, seed=seed), random(n, seed=seed + 50)
        (found,) = run(put(x, y), 0)
        sums.append((found, x + y))
    for found, want in sums:
        np.testing.assert_array_equal(got(found, want), want)
    total = device.device(0).memory.stats()["bytes_reserved"]
    assert total <= 4 * n * (12 + 8) + 2**16


def test_incoming_memory_waits_for_its_last_reader(machine):
    n, run = 9000, adding(9000)
    (ones,) = put(np.ones(n, F32))
    addresses, results = set(), []
    for seed in range(20):
        (x,) = put(random(n, seed=seed))
        addresses.add(x.pointer)
        (found,) = run([x, ones], 0)
        results.append((found, random(n, seed=seed) + 1))
        del x, found
    assert len(addresses) <= 4
    for found, want in results:
        np.testing.assert_array_equal(got(found, want), want)


def test_incoming_memory_of_other_sizes_goes_back(machine):
    on = device.device(0)
    for n in range(6000, 6000 + 12 * 64, 64):
        np.testing.assert_array_equal(got(put(random(n))[0], random(n)), random(n))
    kept = [put(random(7000))[0] for _ in range(memory.KEPT + 3)]
    del kept
    put(random(1))
    assert max(map(len, on.memory._waiting.values())) <= memory.KEPT
    on.memory.release()
    assert on.memory.stats()["bytes_reserved"] <= 2**14


def test_between_devices(machine):
    n, run = 9000, adding(9000)
    x, y = random(n), random(n, seed=1)
    for _ in range(5):
        (total,) = run(put(x, y), 0)
        there = transfer.moved(total, 1)
        del total  # its memory is not used again before the copy
        run(put(y, y), 0)
        (back,) = [transfer.moved(there, 0)]
        same = transfer.moved(back, 0)
        assert same.pointer != back.pointer
        for buffer, number in ((there, 1), (back, 0), (same, 0)):
            assert buffer.device == number
            np.testing.assert_array_equal(got(buffer, x), x + y)


def test_empty_arrays_move(machine):
    (x,) = put(random(0))
    assert transfer.moved(x, 1).nbytes == 0


def test_threads_take_turns(machine):
    n, run = 500, adding(500)
    wrong = []

    def work(seed):
        for number in range(6):
            x = random(n, seed=seed * 100 + number)
            (found,) = run(put(x, x, device=seed % 2), seed % 2)
            if not np.array_equal(got(found, x), x + x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_the_current_device_of_a_thread_stays(machine):
    runtime = emulator.cupy_module().cuda.runtime
    runtime.setDevice(1)
    x = random(100)
    (found,) = adding(100)(put(x, x), 0)
    np.testing.assert_array_equal(got(found, x), x + x)
    assert runtime.getDevice() == 1
    assert emulator.cupy_module().cuda.get_current_stream().ptr == 0


def test_nothing_waits_before_a_result_is_wanted(machine):
    x = random(100)
    (found,) = adding(100)(put(x, x), 0)
    assert any(stream.queue for stream in machine.of_device(0))
    found.moment.wait()
    assert found.moment.passed()
    np.testing.assert_array_equal(got(found, x), x + x)


def test_what_is_large_goes_to_the_pool(machine, monkeypatch):
    monkeypatch.setattr(memory, "LARGEST_KEPT", 4 * 100)
    on = device.device(0)
    for n, kept in ((100, 512), (101, 0)):
        run = adding(n)
        held = put(random(n), random(n))
        (found,) = run(held, 0)
        np.testing.assert_array_equal(got(found, random(n)), 2 * random(n))
        with on:
            on.memory.release()  # an arena, and what came back
            before = on.memory.stats()["bytes_reserved"]
            del found
            on.memory.pool.free_all_blocks()
            freed = before - on.memory.stats()["bytes_reserved"]
        assert freed == 512 - kept


def test_a_forked_process_is_told(machine):
    run = adding(10)
    held = put(random(10), random(10))
    run(held, 0)
    device._in_child()
    with pytest.raises(errors.DeviceError, match="does not survive a fork"):
        run(held, 0)


# ---------------------------------------------------------------- figures


def test_stats(machine):
    on = device.device(0)
    with on:
        before = on.memory.stats()
        assert before["bytes_in_use"] == 0
        first = on.memory.allocate(3000)
        second = on.memory.allocate(1000)
        del first
        third = on.memory.allocate(500)
        now = on.memory.stats()
    assert now["bytes_in_use"] == 1500
    assert now["peak_bytes_in_use"] == 4000
    assert now["largest_alloc_size"] == 3000
    assert now["num_allocs"] == 3
    assert now["bytes_limit"] == machine.settings.memory
    del second, third
    gc.collect()
    with on:
        assert on.memory.stats()["bytes_in_use"] == 0


def test_nothing_leaks(machine):
    run, x = adding(1000), random(1000)
    on = device.device(0)
    for number in range(6):
        (found,) = run(put(x, x), 0)
        got(found, x)
        del found
        gc.collect()
        with on:
            in_use = on.memory.stats()["bytes_in_use"]
        if number == 2:
            first = in_use
    assert in_use == first


# ---------------------------------------------------------------- shortage


def test_too_much_is_an_error_with_figures(machine):
    on = device.device(0)
    with (
        on,
        pytest.raises(errors.DeviceMemoryError, match=r"1\.0 GiB, .* free") as caught,
    ):
        emulator.inject.out_of_memory()
        on.memory.allocate(2**30, "the weights")
    emulator.inject.clear()
    assert isinstance(caught.value, MemoryError)
    assert "CUDA device 0 has no memory for the weights" in str(caught.value)
    with on:
        on.memory.allocate(2**20)


def rows_program(n):
    (a, b), (out,) = inputs(0, 1), outputs(0)
    made = program(
        plan([f32(n)] * 2, [f32(n)], 8 * n),
        [
            scale_add(a, b, arena(0), 2.0, n),
            scale_add(arena(0), b, Place("work", 0), 1.0, n),
            scale_add(Place("work", 0), b, out, 1.0, n),
        ],
        work=4 * n,
    )
    rows = (Row(4 * n, "scale_add", "encoder/attention"), Row(64, "sum", ""))
    object.__setattr__(made.compiled, "rows", rows)
    return made


def test_the_table_names_the_largest_values(machine):
    run = rows_program(2048)
    held = put(random(2048), random(2048))
    emulator.inject.out_of_memory(after=1)  # that of the output
    with pytest.raises(errors.DeviceMemoryError) as caught:
        run(held, 0)
    text = str(caught.value)
    assert "no memory for the arena of a program" in text
    assert "an arena of 16.0 KiB" in text
    assert "8.0 KiB  scale_add  in encoder/attention" in text


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("after", range(9))
def test_a_shortage_at_any_allocation(machine, after, always):
    """The n-th allocation fails, for good or once: an error or none, and no leak."""
    x, y = random(6000), random(6000, seed=1)
    want = ((x * 2 + y) + y) + y

    def once(run):
        (found,) = run(put(x, y), 0)
        np.testing.assert_array_equal(got(found, x), want)

    run = rows_program(6000)
    emulator.inject.out_of_memory(after=after, always=always)
    try:
        once(run)
    except errors.DeviceMemoryError:
        assert always
    emulator.inject.clear()
    once(run)
    on = device.device(0)
    del run
    gc.collect()
    with on:
        on.settle()
        on.memory.release()
        assert on.memory.stats()["bytes_in_use"] == 0
        assert on.memory.stats()["bytes_reserved"] == 0


def test_idle_programs_give_up_their_arenas(machine):
    """What would not fit beside the arenas of other programs fits after all."""
    for known in machine.memories:
        known.capacity = 2**20
    n = 20_000  # of 80 kB; each program takes three of them
    runs = [rows_program(n) for _ in range(6)]
    x, y = random(n), random(n, seed=1)
    for run in runs * 2:
        (found,) = run(put(x, y), 0)
        np.testing.assert_array_equal(got(found, x), ((x * 2 + y) + y) + y)
        del found


def test_the_table():
    types = (ArrayType((2**20,), F32),)
    rows = (Row(4 * 2**20, "dot", "layer1"),)
    text = usage_text(plan(types, types, 3 * 2**30), rows)
    assert text == (
        "The program has inputs of 4.0 MiB, outputs of 4.0 MiB and an arena of "
        "3.0 GiB. Its largest values:\n      4.0 MiB  dot  in layer1"
    )
    assert readable(0) == "0 bytes"
