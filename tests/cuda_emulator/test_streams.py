"""Streams run late, out of order, and in the order that events give them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests import cuda_emulator as emulator
from tests.cuda_emulator.conftest import ADD, SCALE, on_seeds

pytestmark = pytest.mark.cuda


def two_streams(launch, second, order):
    """(1 + 2) * 10 where a second stream waits for the first one."""
    x = launch.put(np.ones(32, np.float32))
    launch.stream.synchronize()
    first = launch.stream
    add, scale = launch.function(ADD, "f"), launch.function(SCALE, "f")
    add((1,), (32,), (np.uint64(x.ptr), np.float32(2)), 0, first)
    order(first, second)
    scale((1,), (32,), (np.uint64(x.ptr), np.float32(10)), 0, second)
    try:
        second.synchronize()
        first.synchronize()
    except emulator.Finding as error:
        assert "is a race: kernel f, in a stream that the kernel does not" in str(error)
        return "race"
    return float(launch.get(x, np.float32, 32)[0])


ORDERS = {
    "nothing": (lambda a, b: None, "race"),
    "an event": (lambda a, b: b.wait_event(a.record()), 30),
    "an event too early": (lambda a, b: b.wait_event(emulator_event()), "race"),
    "the host": (lambda a, b: a.synchronize(), 30),
    "the host by an event": (lambda a, b: a.record().synchronize(), 30),
    "the host by a query": (lambda a, b: poll(a.record()), 30),
    "the device": (lambda a, b: a_device().synchronize(), 30),
}


def emulator_event():
    return emulator.cupy_module().cuda.Event()


def a_device():
    return emulator.cupy_module().cuda.Device(0)


def poll(event):
    while not event.done:
        pass


@pytest.mark.parametrize("order", ORDERS)
def test_what_orders_streams(order):
    make, wanted = ORDERS[order]

    def check(launch):
        second = launch.cupy.cuda.Stream(non_blocking=True)
        return two_streams(launch, second, make)

    assert set(on_seeds(check)) == {wanted}


@pytest.mark.parametrize(("non_blocking", "wanted"), [(False, 30), (True, "race")])
def test_the_legacy_stream_orders_blocking_streams(non_blocking, wanted):
    def check(launch):
        cuda = launch.cupy.cuda
        launch.stream = cuda.Stream(non_blocking=non_blocking)
        return two_streams(launch, cuda.Stream.null, lambda a, b: None)

    assert set(on_seeds(check)) == {wanted}


def test_events_order_what_comes_after_what_was_before(cupy, launch):
    """A chain of three streams, the second of which does nothing."""
    cuda = cupy.cuda
    middle, last = (cuda.Stream(non_blocking=True) for _ in range(2))

    def order(first, second):
        middle.wait_event(first.record())
        second.wait_event(middle.record())

    assert two_streams(launch, last, order) == 30


def test_copies_and_fills_of_other_streams():
    def check(launch, kind, order):
        cuda = launch.cupy.cuda
        x = launch.put(np.ones(32, np.float32))
        y = launch.put(np.ones(32, np.float32))
        launch.stream.synchronize()
        other = cuda.Stream(non_blocking=True)
        launch.start(launch.function(ADD, "f"), 1, 32, x, np.float32(1))
        if order:
            other.wait_event(launch.stream.record())
        if kind == "fill":
            cuda.runtime.memsetAsync(x.ptr + 126, 0, 2, other.ptr)
        elif kind == "read":
            cuda.runtime.memcpyAsync(y.ptr, x.ptr, 128, 3, other.ptr)
        else:
            cuda.runtime.memcpyAsync(x.ptr, y.ptr, 128, 3, other.ptr)
        try:
            cuda.runtime.deviceSynchronize()
        except emulator.Finding as error:
            assert "is a race" in str(error)
            return "race"
        return "silent"

    for kind in ("fill", "read", "write"):
        results = on_seeds(lambda launch, k=kind: check(launch, k, order=False))
        assert set(results) == {"race"}
        results = on_seeds(lambda launch, k=kind: check(launch, k, order=True))
        assert set(results) == {"silent"}


def test_readers_do_not_race(cupy, launch):
    x = launch.put(np.ones(32, np.float32))
    y, z = launch.empty(128), launch.empty(128)
    launch.stream.synchronize()
    other = cupy.cuda.Stream(non_blocking=True)
    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(y.ptr, x.ptr, 128, 3, other.ptr)
    runtime.memcpyAsync(z.ptr, x.ptr, 128, 3, launch.stream.ptr)
    runtime.deviceSynchronize()


def test_unordered_streams_run_in_any_order():
    def check(launch):
        other = launch.cupy.cuda.Stream(non_blocking=True)
        seen = []
        launch.stream.launch_host_func(seen.append, 0)
        other.launch_host_func(seen.append, 1)
        launch.cupy.cuda.runtime.deviceSynchronize()
        return tuple(seen)

    assert set(on_seeds(check)) == {(0, 1), (1, 0)}


def test_work_runs_late_and_queries_let_it_go_on(cupy, launch):
    x = launch.put(np.ones(32, np.float32))
    launch.start(launch.function(ADD, "f"), 1, 32, x, np.float32(1))
    event = launch.stream.record()
    assert emulator.machine().launches == 0
    for _ in range(100):
        if event.done and launch.stream.done:
            break
    assert emulator.machine().launches == 1


def test_an_event_waited_for_is_the_last_record(cupy, launch):
    event = cupy.cuda.Event()
    event.synchronize()  # never recorded
    assert event.done
    other = cupy.cuda.Stream(non_blocking=True)
    other.wait_event(event)
    start, end = launch.stream.record(), launch.stream.record()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="NotReady"):
        cupy.cuda.get_elapsed_time(start, end)
    launch.stream.synchronize()
    assert cupy.cuda.get_elapsed_time(start, end) >= 0


def test_events_by_their_handles(cupy, launch):
    runtime = cupy.cuda.runtime
    event = cupy.cuda.Event(disable_timing=True)
    runtime.eventRecord(event.ptr, launch.stream.ptr)
    other = cupy.cuda.Stream()
    runtime.streamWaitEvent(other.ptr, event.ptr)
    handle = event.ptr
    launch.stream.synchronize()
    del event
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidResourceHandle"):
        runtime.eventRecord(handle, launch.stream.ptr)


def test_current_streams(cupy):
    cuda = cupy.cuda
    assert cuda.get_current_stream().ptr == 0
    with cuda.Stream() as a:
        assert cuda.get_current_stream() == a
        with cuda.Stream(non_blocking=True) as b:
            assert cuda.get_current_stream() == b
        assert cuda.get_current_stream() == a
        seen = []
        thread = threading.Thread(
            target=lambda: seen.append(cuda.get_current_stream().ptr)
        )
        thread.start()
        thread.join()
        assert seen == [0]
    with cuda.Device(1):
        assert cuda.get_current_stream().ptr == 0
        with pytest.raises(RuntimeError, match="another device"), a:
            pass


def test_host_functions_run_in_order_and_may_not_call_cuda(cupy, launch):
    x = launch.put(np.ones(1, np.float32))
    seen = []
    launch.start(launch.function(ADD, "f"), 1, 1, x, np.float32(1))
    launch.stream.launch_host_func(seen.append, emulator.machine().launches)
    launch.stream.launch_host_func(lambda _: seen.append(_launches()), None)
    launch.stream.launch_host_func(lambda _: cupy.cuda.runtime.memGetInfo(), None)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="NotPermitted"):
        launch.stream.synchronize()
    assert seen == [0, 1]


def _launches():
    return emulator.machine().launches
