"""Copies, allocations, pools and arrays keep CUDA's and CuPy's rules."""

from __future__ import annotations

import gc
import re
import threading
from typing import Any

import numpy as np
import pytest

from tests import cuda_emulator as emulator
from tests.cuda_emulator.conftest import ADD, SET, Launcher, on_seeds

pytestmark = pytest.mark.cuda


def test_pageable_memory_is_staged_at_the_call(cupy, launch):
    x = np.arange(8.0)
    memory = launch.put(x)
    x[:] = 0
    np.testing.assert_array_equal(launch.get(memory, np.float64, 8), np.arange(8.0))


def test_pinned_memory_is_read_when_the_copy_runs(cupy, launch):
    runtime = cupy.cuda.runtime
    pinned = cupy.cuda.alloc_pinned_memory(64)
    view = np.frombuffer(pinned, np.float64, 8)
    view[:] = 1
    memory = launch.empty(64)
    runtime.memcpyAsync(memory.ptr, pinned.ptr, 64, 1, launch.stream.ptr)
    view[:] = 2
    assert set(launch.get(memory, np.float64, 8)) == {2.0}
    view[:] = 3
    runtime.memcpyAsync(pinned.ptr, memory.ptr, 64, 2, launch.stream.ptr)
    assert set(view) == {3.0}
    launch.stream.synchronize()
    assert set(view) == {2.0}


def test_pinned_memory_must_live_until_the_copy_has_run(cupy, launch):
    pinned = cupy.cuda.alloc_pinned_memory(64)
    memory = launch.empty(64)
    cupy.cuda.runtime.memcpyAsync(memory.ptr, pinned.ptr, 64, 1, launch.stream.ptr)
    del pinned
    gc.collect()
    with pytest.raises(emulator.Finding, match="pinned memory that was freed"):
        launch.stream.synchronize()


def test_memory_that_nobody_wrote_is_not_copied_to_the_host(cupy, launch):
    memory = launch.empty(64)
    cupy.cuda.runtime.memsetAsync(memory.ptr, 7, 63, launch.stream.ptr)
    assert set(launch.get(memory, np.uint8, 63)) == {7}
    with pytest.raises(emulator.Finding, match="nobody has written: byte 63 of"):
        launch.get(memory, np.uint8, 64)


def test_copies_carry_what_is_written_and_what_is_not(cupy, launch):
    a, b = launch.empty(64), launch.empty(64)
    runtime = cupy.cuda.runtime
    runtime.memsetAsync(a.ptr, 1, 32, launch.stream.ptr)
    runtime.memcpyAsync(b.ptr, a.ptr, 64, 3, launch.stream.ptr)
    assert set(launch.get(b, np.uint8, 32)) == {1}
    with pytest.raises(emulator.Finding, match="byte 32 of"):
        launch.get(b, np.uint8, 64)


@pytest.mark.parametrize("what", ["long", "kind", "device", "freed", "host", "over"])
def test_wrong_copies(cupy, launch, what):
    runtime = cupy.cuda.runtime
    a, b = launch.empty(512), launch.empty(512)
    with cupy.cuda.Device(1):
        far = launch.empty(512)
    calls = {
        "long": lambda: runtime.memcpyAsync(a.ptr, b.ptr, 513, 3, launch.stream.ptr),
        "kind": lambda: runtime.memcpyAsync(a.ptr, b.ptr, 8, 1, launch.stream.ptr),
        "device": lambda: runtime.memcpyAsync(a.ptr, far.ptr, 8, 4, launch.stream.ptr),
        "freed": lambda: runtime.memsetAsync(a.ptr + 8192, 0, 8, launch.stream.ptr),
        "host": lambda: runtime.memsetAsync(8192, 0, 8, launch.stream.ptr),
        "over": lambda: runtime.memcpyAsync(a.ptr + 8, a.ptr, 16, 3, launch.stream.ptr),
    }
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
        calls[what]()


def test_peer_copies(cupy, launch):
    runtime = cupy.cuda.runtime
    a = launch.put(np.arange(16.0))
    with cupy.cuda.Device(1):
        b = launch.empty(128)
    assert runtime.deviceCanAccessPeer(0, 1) and not runtime.deviceCanAccessPeer(0, 0)
    runtime._deviceEnsurePeerAccess(1)
    runtime.memcpyPeerAsync(b.ptr, 1, a.ptr, 0, 128, launch.stream.ptr)
    launch.stream.synchronize()
    with cupy.cuda.Device(1):
        other = Launcher(cupy)
        np.testing.assert_array_equal(other.get(b, np.float64, 16), np.arange(16.0))
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
        runtime.memcpyPeerAsync(b.ptr, 0, a.ptr, 1, 128, launch.stream.ptr)


def test_a_kernel_may_not_touch_another_device(cupy, launch):
    with cupy.cuda.Device(1):
        far = launch.empty(128)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="another device"):
        launch(ADD, 1, 32, far, np.float32(1))


# ---------------------------------------------------------------- allocations


def test_memory_is_freed_and_counted(cupy, launch):
    runtime = cupy.cuda.runtime
    free, total = runtime.memGetInfo()
    assert free == total == 1 << 28
    address = runtime.malloc(1 << 20)
    assert address % 256 == 0
    assert runtime.memGetInfo() == (total - (1 << 20), total)
    assert runtime.pointerGetAttributes(address + 5).device == 0
    runtime.free(address)
    assert runtime.memGetInfo() == (total, total)
    for wrong in (address, 4096):
        with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
            runtime.free(wrong)
    with pytest.raises(runtime.CUDARuntimeError, match="MemoryAllocation"):
        runtime.malloc((1 << 28) + 1)


def test_freed_addresses_are_used_again_when_there_are_no_others(cupy):
    runtime = cupy.cuda.runtime
    with emulator.another(emulator.Settings(memory=1 << 20)):
        for _ in range(50):
            blocks = [runtime.malloc(100 << 10) for _ in range(10)]
            for block in blocks[::2] + blocks[1::2]:
                runtime.free(block)
        assert runtime.malloc(1 << 20)


def test_a_long_run_stays_small(cupy):
    runtime = cupy.cuda.runtime
    seen = set()
    for _ in range(12000):
        address = runtime.malloc(64)
        seen.add(address)
        runtime.free(address)
    assert 1000 < len(seen) < 5000


def test_a_freed_block_is_not_to_be_used(cupy, launch):
    x = launch.put(np.ones(32, np.float32))
    address = x.ptr
    launch.keep.clear()
    del x
    text = ADD.replace("float* x", "unsigned long long at")
    text = text.replace("{", "{ float* x = (float*)at;")
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        launch(text, 1, 32, np.uint64(address), np.float32(1))


def test_a_block_that_is_given_back_goes_to_one_thread_at_a_time(cupy, monkeypatch):
    pool, machine = cupy.cuda.MemoryPool(), emulator.machine()
    taken: list[Any] = []
    finalize, other = machine.finalize, threading.Thread()

    def slowly(act):
        nonlocal other
        other = threading.Thread(target=lambda: taken.append(pool.malloc(100)))
        other.start()
        other.join(0.3)
        finalize(act)

    first = pool.malloc(100)
    address = first.ptr
    monkeypatch.setattr(machine, "finalize", slowly)
    del first
    other.join()
    assert taken[0].ptr == address
    cupy.cuda.runtime.memset(address, 0, 100)  # it is allocated


def test_a_pool_gives_blocks_in_the_order_of_its_stream(cupy, launch):
    pool = cupy.cuda.MemoryPool()
    add = launch.function(ADD, "f")
    with launch.stream:
        a = pool.malloc(100)
        assert (pool.used_bytes(), pool.total_bytes()) == (512, 512)
        address = a.ptr
        cupy.cuda.runtime.memsetAsync(address, 0, 128, launch.stream.ptr)
        add((1,), (32,), (np.uint64(address), np.float32(1)), 0, launch.stream)
        del a  # the kernel that is on its way may still use it
        b = pool.malloc(120)
        assert b.ptr == address
        assert (b + 8).ptr == address + 8
    launch.stream.synchronize()
    with pytest.raises(emulator.Finding, match="nobody has written"):
        launch(ADD, 1, 32, b, np.float32(1))
    del b
    assert (pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks()) == (0, 512, 1)
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_blocks_survive_the_garbage_that_held_them(cupy, launch):
    """The collector finalizes all of a circle of garbage, in any order."""
    pool = cupy.cuda.MemoryPool()
    circle = [pool.malloc(64)]
    circle.append(circle)
    del circle
    gc.collect()
    again = pool.malloc(64)
    cupy.cuda.runtime.memsetAsync(again.ptr, 1, 64, launch.stream.ptr)
    assert set(launch.get(again, np.uint8, 64)) == {1}


@pytest.mark.parametrize("wait", [False, True])
def test_a_block_of_a_pool_that_another_stream_still_uses(wait):
    def check(launch):
        cuda = launch.cupy.cuda
        pool = cuda.MemoryPool()
        other = cuda.Stream(non_blocking=True)
        add = launch.function(ADD, "f")
        with launch.stream:
            a = pool.malloc(128)
            cuda.runtime.memsetAsync(a.ptr, 0, 128, launch.stream.ptr)
            other.wait_event(launch.stream.record())
            add((1,), (32,), (np.uint64(a.ptr), np.float32(1)), 0, other)
            del a
            if wait:
                launch.stream.wait_event(other.record())
            b = pool.malloc(128)
            cuda.runtime.memsetAsync(b.ptr, 0, 128, launch.stream.ptr)
        try:
            launch.stream.synchronize()
        except emulator.Finding as error:
            assert "a memset of 128 bytes is a race: kernel f" in str(error)
            return "race"
        return "silent"

    assert set(on_seeds(check)) == {"silent" if wait else "race"}


def test_a_block_of_a_pool_may_be_used_by_any_stream_at_first(cupy, launch):
    pool = cupy.cuda.MemoryPool()
    for _ in range(3):
        a = pool.malloc(128)
        launch.start(launch.function(SET, "f"), 1, 32, a, np.float32(1))
        del a
    launch.stream.synchronize()


def test_pools_raise_with_sizes_when_there_is_no_room(cupy):
    pool = cupy.cuda.MemoryPool()
    pool.malloc(1 << 20)
    memory = cupy.cuda.memory
    with pytest.raises(memory.OutOfMemoryError, match="268,435,456 bytes"):
        pool.malloc(1 << 28)
    assert pool.total_bytes() == 0  # it gave back what was free before it gave up
    pool.set_limit(size=4096)
    with pytest.raises(MemoryError, match=re.escape("limit set to: 4,096 bytes")):
        pool.malloc(8192)


def test_arenas_are_poisoned_on_request(cupy, launch):
    x = launch.put(np.zeros(32, np.float32))
    cupy.cuda.runtime.fnx_poison(x.ptr + 64, 4, launch.stream.ptr)
    with pytest.raises(emulator.Finding, match=r"thread \(16, 0, 0\).*nobody has writ"):
        launch(ADD, 1, 32, x, np.float32(1))


def test_arrays_are_exported_and_imported(cupy, launch):
    x = np.arange(12, dtype=np.float32)
    memory = launch.put(x)
    launch.stream.synchronize()
    cuda = cupy.cuda
    pointer = cuda.MemoryPointer(cuda.UnownedMemory(memory.ptr, 48, memory), 0)
    array = cupy.ndarray((3, 4), np.float32, pointer)
    np.testing.assert_array_equal(array.get(), x.reshape(3, 4))
    again = cupy.from_dlpack(array)
    assert again.data.ptr == memory.ptr and again.shape == (3, 4)
    assert array.__dlpack_device__() == (2, 0)
    turned = cupy.ndarray((4, 3), np.float32, pointer, strides=(4, 16))

    class Foreign:
        __cuda_array_interface__ = turned.__cuda_array_interface__

    packed = cupy.ascontiguousarray(cupy.asarray(Foreign()))
    np.testing.assert_array_equal(packed.get(), x.reshape(3, 4).T)
