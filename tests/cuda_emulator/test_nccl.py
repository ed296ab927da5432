"""Collectives give what NCCL gives, and hang where NCCL hangs, with words."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from tests import cuda_emulator as emulator

pytestmark = pytest.mark.cuda

SIZE = 3
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8]
NUMBERS = {
    np.float32: 7,
    np.float16: 6,
    ml_dtypes.bfloat16: 9,
    np.int64: 4,
    np.uint8: 1,
}


class Ranks:
    """A communicator, a stream and memory on each of several devices."""

    def __init__(self, cupy, comms, size=SIZE):
        self.cupy, self.nccl, self.comms = cupy, cupy.cuda.nccl, comms
        self.streams = []
        for device in range(size):
            with cupy.cuda.Device(device):
                self.streams.append(cupy.cuda.Stream(non_blocking=True))

    def put(self, arrays):
        return [
            self._memory(rank, array.nbytes, array) for rank, array in enumerate(arrays)
        ]

    def empty(self, nbytes):
        return [self._memory(rank, nbytes) for rank in range(len(self.streams))]

    def _memory(self, rank, nbytes, array=None):
        runtime = self.cupy.cuda.runtime
        with self.cupy.cuda.Device(rank):
            memory = self.cupy.cuda.Memory(nbytes)
            if array is not None:
                runtime.memcpyAsync(
                    *(memory.ptr, array.ctypes.data, nbytes, 1, self.streams[rank].ptr)
                )
        return memory

    def get(self, memories, dtype, count):
        runtime = self.cupy.cuda.runtime
        results = []
        for rank, memory in enumerate(memories):
            out = np.empty(count, dtype)
            with self.cupy.cuda.Device(rank):
                runtime.memcpyAsync(
                    *(out.ctypes.data, memory.ptr, out.nbytes, 2),
                    self.streams[rank].ptr,
                )
            results.append(out)
        return results

    def group(self, call, ranks=None):
        """`call(communicator, rank, stream)` for each rank, in one group."""
        self.nccl.groupStart()
        for rank in ranks or range(len(self.streams)):
            call(self.comms[rank], rank, self.streams[rank].ptr)
        self.nccl.groupEnd()


@pytest.fixture
def ranks(cupy, request):
    seed = emulator.machine().settings.seed
    with emulator.another(emulator.Settings(devices=SIZE, seed=seed, memory=1 << 24)):
        yield Ranks(cupy, cupy.cuda.nccl.NcclCommunicator.initAll(SIZE))


def data(dtype, count=10):
    rng = np.random.default_rng(8)
    return [rng.integers(1, 9, count).astype(dtype) for _ in range(SIZE)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("op", "function"),
    [
        (0, lambda xs: sum(x.astype("f8") for x in xs)),
        (1, lambda xs: np.prod([x.astype("f8") for x in xs], axis=0)),
        (2, lambda xs: np.max([x.astype("f8") for x in xs], axis=0)),
        (3, lambda xs: np.min([x.astype("f8") for x in xs], axis=0)),
        (4, lambda xs: np.mean([x.astype("f8") for x in xs], axis=0)),
    ],
)
def test_all_reduce(ranks, dtype, op, function):
    arrays = data(dtype)
    sources, outs = ranks.put(arrays), ranks.empty(arrays[0].nbytes)
    number = NUMBERS[dtype]
    ranks.group(
        lambda comm, r, stream: comm.allReduce(
            sources[r].ptr, outs[r].ptr, 10, number, op, stream
        )
    )
    wanted = function(arrays)
    if np.dtype(dtype).kind in "iu":
        wanted = np.floor(wanted)
    for got in ranks.get(outs, dtype, 10):
        np.testing.assert_array_equal(got, wanted.astype(dtype))


def test_other_collectives(ranks):
    arrays = data(np.float32, 12)
    sources, outs = ranks.put(arrays), ranks.empty(4 * 36)
    nccl = ranks.nccl
    ranks.group(
        lambda comm, r, s: comm.allGather(sources[r].ptr, outs[r].ptr, 12, 7, s)
    )
    for got in ranks.get(outs, np.float32, 36):
        np.testing.assert_array_equal(got, np.concatenate(arrays))
    ranks.group(
        lambda comm, r, s: comm.reduceScatter(
            sources[r].ptr, outs[r].ptr, 4, 7, nccl.NCCL_SUM, s
        )
    )
    for rank, got in enumerate(ranks.get(outs, np.float32, 4)):
        np.testing.assert_array_equal(got, sum(arrays)[4 * rank : 4 * rank + 4])
    ranks.group(
        lambda comm, r, s: comm.broadcast(sources[r].ptr, outs[r].ptr, 12, 7, 2, s)
    )
    for got in ranks.get(outs, np.float32, 12):
        np.testing.assert_array_equal(got, arrays[2])
    ranks.group(
        lambda comm, r, s: comm.reduce(sources[r].ptr, outs[r].ptr, 12, 7, 2, 1, s)
    )
    got = ranks.get(outs, np.float32, 12)
    np.testing.assert_array_equal(got[1], np.max(arrays, axis=0))
    np.testing.assert_array_equal(got[0], arrays[2])


def test_send_and_receive(ranks):
    """Every rank sends to the next one."""
    arrays = data(np.float32)
    sources, outs = ranks.put(arrays), ranks.empty(40)

    def call(comm, r, stream):
        comm.recv(outs[r].ptr, 10, 7, (r - 1) % SIZE, stream)
        comm.send(sources[r].ptr, 10, 7, (r + 1) % SIZE, stream)

    ranks.group(call)
    for rank, got in enumerate(ranks.get(outs, np.float32, 10)):
        np.testing.assert_array_equal(got, arrays[rank - 1])


def test_a_rank_that_is_missing(ranks):
    outs = ranks.put(data(np.float32))
    call = lambda comm, r, s: comm.bcast(outs[r].ptr, 10, 7, 0, s)  # noqa: E731
    with pytest.raises(
        emulator.Finding, match="would deadlock: rank 1 of 3 never joins broadcast"
    ):
        ranks.group(call, ranks=[0, 2])


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (((10, 7, 0), (9, 7, 0), (10, 7, 0)), "count 9 of rank 1, count 10 of rank 0"),
        (((10, 7, 0), (10, 7, 0), (10, 2, 0)), "dtype 2 of rank 2, dtype 7 of rank 0"),
        (((10, 7, 0), (10, 7, 2), (10, 7, 0)), "op 2 of rank 1, op 0 of rank 0"),
    ],
)
def test_ranks_that_disagree(ranks, numbers, words):
    outs = ranks.put(data(np.float32))
    with pytest.raises(emulator.Finding, match=f"would deadlock: allReduce .*{words}"):
        ranks.group(
            lambda comm, r, s: comm.allReduce(outs[r].ptr, outs[r].ptr, *numbers[r], s)
        )


def test_different_collectives(ranks):
    outs = ranks.put(data(np.float32))

    def call(comm, r, stream):
        if r == 2:
            comm.bcast(outs[r].ptr, 10, 7, 0, stream)
        else:
            comm.allReduce(outs[r].ptr, outs[r].ptr, 10, 7, 0, stream)

    with pytest.raises(emulator.Finding, match="rank 2 calls broadcast, not allReduce"):
        ranks.group(call)


def test_one_thread_without_a_group(ranks):
    outs = ranks.put(data(np.float32))
    ranks.comms[0].bcast(outs[0].ptr, 10, 7, 0, ranks.streams[0].ptr)
    with pytest.raises(
        emulator.Finding, match="one thread calls broadcast for several"
    ):
        ranks.comms[1].bcast(outs[1].ptr, 10, 7, 0, ranks.streams[1].ptr)


def test_waiting_for_a_rank_that_does_not_come(ranks):
    outs = ranks.put(data(np.float32))
    ranks.comms[0].bcast(outs[0].ptr, 10, 7, 0, ranks.streams[0].ptr)
    with pytest.raises(emulator.Finding, match="rank 1, 2 of 3 never joins"):
        ranks.streams[0].synchronize()


def test_a_message_that_nobody_sends(ranks):
    outs = ranks.empty(40)
    ranks.comms[1].recv(outs[1].ptr, 10, 7, 0, ranks.streams[1].ptr)
    with pytest.raises(emulator.Finding, match="rank 0 never calls send"):
        ranks.streams[1].synchronize()


def test_threads_with_a_rank_each(cupy):
    """One process a device, as threads: the identifier is shared."""
    nccl = cupy.cuda.nccl
    uid = nccl.get_unique_id()
    assert isinstance(uid, bytes) and len(uid) == 128
    results = {}

    def work(rank):
        with cupy.cuda.Device(rank):
            comm = nccl.NcclCommunicator(2, uid, rank)
            stream = cupy.cuda.Stream(non_blocking=True)
            memory = cupy.cuda.Memory(8)
            value = np.array([rank + 1.0])
            cupy.cuda.runtime.memcpyAsync(
                memory.ptr, value.ctypes.data, 8, 1, stream.ptr
            )
            comm.allReduce(memory.ptr, memory.ptr, 1, 8, 0, stream.ptr)
            gate.wait()
            cupy.cuda.runtime.memcpyAsync(
                value.ctypes.data, memory.ptr, 8, 2, stream.ptr
            )
            results[rank] = value[0], comm.rank_id(), comm.size(), comm.device_id()

    gate = threading.Barrier(2)
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: (3.0, 0, 2, 0), 1: (3.0, 1, 2, 1)}


def test_collectives_wait_for_their_streams(ranks):
    """A rank's data are those that its stream has at that point."""
    outs = ranks.put([np.zeros(10, np.float32)] * SIZE)
    runtime = ranks.cupy.cuda.runtime
    for rank in range(SIZE):
        with ranks.cupy.cuda.Device(rank):
            runtime.memsetAsync(outs[rank].ptr, 1, 40, ranks.streams[rank].ptr)
    ranks.group(
        lambda comm, r, s: comm.allReduce(outs[r].ptr, outs[r].ptr, 10, 2, 0, s)
    )
    for got in ranks.get(outs, np.int32, 10):
        assert set(got) == {3 * 0x01010101}


@pytest.mark.parametrize("order", [False, True])
def test_collectives_and_work_of_other_streams(ranks, order):
    """What all ranks have done before a collective is done before what comes after."""
    outs = ranks.put([np.zeros(10, np.float32)] * SIZE)
    with ranks.cupy.cuda.Device(1):
        ranks.streams[1].synchronize()
        other = ranks.cupy.cuda.Stream(non_blocking=True)
        ranks.cupy.cuda.runtime.memsetAsync(outs[1].ptr, 0, 40, other.ptr)
        if order:
            ranks.streams[1].wait_event(other.record())
    ranks.group(lambda comm, r, s: comm.bcast(outs[r].ptr, 10, 7, 0, s))

    def wait():
        with ranks.cupy.cuda.Device(2):
            ranks.streams[2].synchronize()
        with ranks.cupy.cuda.Device(1):
            ranks.cupy.cuda.runtime.memsetAsync(outs[1].ptr, 1, 40, other.ptr)
            ranks.cupy.cuda.runtime.deviceSynchronize()

    if order:
        wait()
    else:
        with pytest.raises(emulator.Finding, match="is a race"):
            wait()


def test_memory_of_collectives_is_checked(ranks):
    runtime = ranks.cupy.cuda.runtime
    good, short = ranks.put(data(np.float32)), ranks.empty(36)

    def run(sources, outs):
        ranks.group(
            lambda comm, r, s: comm.allReduce(sources[r].ptr, outs[r].ptr, 10, 7, 0, s)
        )
        ranks.streams[0].synchronize()

    with pytest.raises(emulator.Finding, match="reads memory that nobody has written"):
        run(ranks.empty(40), good)
    with pytest.raises(runtime.CUDARuntimeError, match="is not on its device"):
        run(good, good[1:] + good[:1])
    with pytest.raises(runtime.CUDARuntimeError, match="is out of bounds"):
        run(good, short)


def test_several_devices_are_not_captured(ranks):
    outs = ranks.put(data(np.float32))
    ranks.streams[0].synchronize()
    ranks.streams[0].begin_capture()
    with pytest.raises(emulator.Finding, match="captured, which may deadlock"):
        ranks.group(lambda comm, r, s: comm.bcast(outs[r].ptr, 10, 7, 0, s))


def test_wrong_arguments(ranks, cupy):
    comm, nccl = ranks.comms[0], ranks.nccl
    for call in (
        lambda: comm.bcast(0, 0, 99, 0, 0),
        lambda: comm.bcast(0, 0, 7, 3, 0),
        lambda: comm.allReduce(0, 0, 0, 7, 5, 0),
        lambda: nccl.NcclCommunicator(2, bytes(128), 2),
        lambda: nccl.NcclCommunicator(2, b"short", 0),
        lambda: nccl.groupEnd(),
    ):
        with pytest.raises(nccl.NcclError, match="NCCL_ERROR_INVALID"):
            call()
    comm.destroy()
    with pytest.raises(nccl.NcclError, match="destroyed"):
        comm.bcast(0, 0, 7, 0, 0)
