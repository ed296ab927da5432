"""Capture and replay keep CUDA's rules."""

from __future__ import annotations

import numpy as np
import pytest

from tests import cuda_emulator as emulator
from tests.cuda_emulator.conftest import ADD, SCALE, on_seeds, parameters

pytestmark = pytest.mark.cuda


def start(function, stream, memory, value):
    function((1,), (32,), (np.uint64(memory.ptr), np.float32(value)), 0, stream)


def test_replays_read_memory_again_and_keep_parameters(cupy, launch):
    add, scale = launch.function(ADD, "f"), launch.function(SCALE, "f")
    x = launch.put(np.ones(32, np.float32))
    stream = launch.stream
    (buffers, _table), address = parameters(np.uint64(x.ptr), np.float32(1))
    stream.begin_capture()
    assert stream.is_capturing()
    cupy.cuda.driver.launchKernel(add.ptr, 1, 1, 1, 32, 1, 1, 0, stream.ptr, address, 0)
    start(scale, stream, x, 10)
    graph = stream.end_capture()
    assert not stream.is_capturing()
    buffers[1].raw = np.float32(99).tobytes()
    del add, scale  # a graph keeps its functions
    stream.synchronize()
    assert emulator.machine().launches == 0
    graph.upload(stream)
    graph.launch(stream)
    assert set(launch.get(x, np.float32, 32)) == {20.0}
    cupy.cuda.runtime.memsetAsync(x.ptr, 0, 128, stream.ptr)
    graph.launch(stream)
    graph.launch(stream)
    assert set(launch.get(x, np.float32, 32)) == {110.0}
    assert graph.labels == ["kernel f", "kernel f"]
    assert "n0 -> n1" in graph.debug_dot_str()


def forked(launch, join):
    """A graph with two branches; the second one writes what the first one wrote."""
    cuda = launch.cupy.cuda
    add, scale = launch.function(ADD, "f"), launch.function(SCALE, "f")
    x = launch.put(np.ones(32, np.float32))
    launch.stream.synchronize()
    first, second = launch.stream, cuda.Stream(non_blocking=True)
    first.begin_capture()
    begun = first.record()
    start(add, first, x, 2)
    second.wait_event(first.record() if join else begun)
    start(scale, second, x, 10)
    first.wait_event(second.record())
    graph = first.end_capture()
    assert not second.is_capturing()
    graph.launch(first)
    graph.launch(first)
    try:
        return float(launch.get(x, np.float32, 32)[0])
    except emulator.Finding as error:
        assert "is a race: kernel f" in str(error)
        return "race"


@pytest.mark.parametrize(("join", "wanted"), [(True, 320), (False, "race")])
def test_branches_are_ordered_by_events(join, wanted):
    assert set(on_seeds(lambda launch: forked(launch, join))) == {wanted}


def test_work_that_is_not_joined(cupy, launch):
    x = launch.put(np.ones(32, np.float32))
    launch.stream.synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    launch.stream.begin_capture()
    other.wait_event(launch.stream.record())
    start(launch.function(ADD, "f"), other, x, 1)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="CaptureUnjoined"):
        launch.stream.end_capture()
    assert not launch.stream.is_capturing() and not other.is_capturing()


FORBIDDEN = {
    "synchronize": lambda c, s, e, m: s.synchronize(),
    "query": lambda c, s, e, m: s.done,
    "device": lambda c, s, e, m: c.runtime.deviceSynchronize(),
    "runtime": lambda c, s, e, m: c.runtime.streamSynchronize(s.ptr),
    "event": lambda c, s, e, m: s.record().synchronize(),
    "event query": lambda c, s, e, m: s.record().done,
    "pageable": lambda c, s, e, m: c.runtime.memcpyAsync(
        m.ptr, np.ones(8).ctypes.data, 64, 1, s.ptr
    ),
    "to host": lambda c, s, e, m: c.runtime.memcpyAsync(
        np.ones(8).ctypes.data, m.ptr, 64, 2, s.ptr
    ),
    "outside event": lambda c, s, e, m: s.wait_event(e),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_cannot_be_captured_spoils_the_capture(cupy, launch, what):
    error = cupy.cuda.runtime.CUDARuntimeError
    memory = launch.put(np.zeros(8))
    event = launch.stream.record()
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    with pytest.raises(error, match="Capture"):
        FORBIDDEN[what](cupy.cuda, stream, event, memory)
    with pytest.raises(error, match="CaptureInvalidated"):
        start(launch.function(ADD, "f"), stream, memory, 1)
    with pytest.raises(error, match="CaptureInvalidated"):
        stream.end_capture()
    stream.synchronize()


def test_the_legacy_stream_and_capture(cupy, launch):
    cuda = cupy.cuda
    with pytest.raises(RuntimeError, match="legacy"):
        cuda.Stream.null.begin_capture()
    memory = launch.put(np.zeros(8))
    stream = cuda.Stream()
    stream.begin_capture()
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="CaptureImplicit"):
        cuda.runtime.memsetAsync(memory.ptr, 0, 8, 0)
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="CaptureInvalidated"):
        stream.end_capture()


@pytest.mark.parametrize("mode", ["Global", "ThreadLocal", "Relaxed"])
def test_allocation_during_capture(cupy, mode):
    runtime = cupy.cuda.runtime
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture(getattr(runtime, f"streamCaptureMode{mode}"))
    with stream:
        if mode == "Relaxed":
            assert runtime.malloc(64)
        else:
            with pytest.raises(runtime.CUDARuntimeError, match="CaptureUnsupported"):
                runtime.malloc(64)
    if mode == "Relaxed":
        stream.end_capture()


def test_pinned_copies_and_host_functions_are_captured(cupy, launch):
    runtime, stream = cupy.cuda.runtime, launch.stream
    pinned = cupy.cuda.alloc_pinned_memory(64)
    view = np.frombuffer(pinned, np.float64, 8)
    memory = launch.empty(64)
    seen = []
    stream.begin_capture()
    runtime.memcpyAsync(memory.ptr, pinned.ptr, 64, 1, stream.ptr)
    stream.launch_host_func(seen.append, "called")
    graph = stream.end_capture()
    for value in (1.0, 2.0):
        view[:] = value
        graph.launch(stream)
        assert set(launch.get(memory, np.float64, 8)) == {value}
    assert seen == ["called", "called"]


def test_a_replay_with_memory_that_was_freed(cupy, launch):
    x = launch.put(np.ones(32, np.float32))
    launch.stream.synchronize()
    launch.stream.begin_capture()
    start(launch.function(ADD, "f"), launch.stream, x, 1)
    graph = launch.stream.end_capture()
    launch.keep.clear()
    del x
    graph.launch(launch.stream)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        launch.stream.synchronize()
