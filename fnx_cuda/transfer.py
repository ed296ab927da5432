"""Copies between host and devices, through pinned memory that is used again.

A device copies by itself only from and to pinned memory, so arrays pass through blocks
of it, each guarded by an event until its copy is done. Small arrays go in the order of
the compute stream, large ones on the transfer stream beside it. Receives NumPy arrays
and `Buffer`s, gives the other one. Next on the walk: `frame.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx_cuda import _cupy, failures
from fnx_cuda.device import Device, Moment, device
from fnx_cuda.memory import Buffer
from fnx_cuda.staging import Block, Bytes

LARGE = 2**20
"""Arrays of at least so many bytes go to the device on the transfer stream."""

CHUNK = 2**23
"""Copies are made of pieces of at most so many bytes; one is filled while another is
on its way."""


def pieces(nbytes: int) -> Iterator[tuple[int, int]]:
    """Where the pieces of a copy begin, and their bytes."""
    for start in range(0, nbytes, CHUNK):
        yield start, min(CHUNK, nbytes - start)


def put(data: np.ndarray[Any, Any], number: int) -> Buffer:
    """A buffer on a device with a copy of a contiguous array; does not wait for it."""
    with failures.named(number, "a copy from the host"):
        return _put(device(number), data)


def _put(on: Device, data: np.ndarray[Any, Any]) -> Buffer:
    large = data.nbytes >= LARGE
    stream = on.transfer if large else on.compute
    with on:
        on.settle()
        buffer: Buffer = (
            on.memory.incoming(data.nbytes, on.transfer_stream)
            if large
            else on.memory.allocate(data.nbytes)
        )
        on.join()
    send(on, buffer.pointer, data, stream)
    if data.nbytes:
        with on:
            buffer.moment = Moment(on, stream, "a copy from the host")
            if large:
                buffer.moment.before(on.compute)
    return buffer


def send(on: Device, address: int, data: np.ndarray[Any, Any], stream: int) -> None:
    """Copies an array to an address, in the order of a stream."""
    flat = data.reshape(-1).view(np.uint8)
    for start, size in pieces(flat.size):
        block = on.staging.take(size)
        block.bytes[:size] = flat[start : start + size]
        with on:
            _cupy.copy_to_device(address + start, block.pointer, size, stream)
            on.staging.give(block, Moment(on, stream, "a copy from the host"))


def get(
    buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """A new array with a copy of a buffer; waits, and raises what has gone wrong."""
    out = np.empty(buffer.nbytes, np.uint8)
    if buffer.nbytes:
        on, moment = device(buffer.device), buffer.moment
        what = "a copy to the host" if moment is None else moment.what
        with failures.named(buffer.device, what):
            if moment is not None:
                with on:
                    moment.before(on.transfer)
            receive(on, buffer.pointer, out, on.transfer, what)
    return out.view(dtype).reshape(shape)


def receive(on: Device, address: int, out: Bytes, stream: int, what: str) -> None:
    """Copies from an address into an array, in the order of a stream; waits.

    `what` ran there before: it is named if it has gone wrong.
    """
    on_way: deque[tuple[int, int, Block, Moment]] = deque()
    for start, size in pieces(out.size):
        block = on.staging.take(size)
        with on:
            _cupy.copy_to_host(block.pointer, address + start, size, stream)
            on_way.append((start, size, block, Moment(on, stream, what)))
        if len(on_way) == 2:
            _arrive(on, out, *on_way.popleft())
    while on_way:
        _arrive(on, out, *on_way.popleft())


def _arrive(
    on: Device, out: Bytes, start: int, size: int, block: Block, moment: Moment
) -> None:
    moment.wait()
    out[start : start + size] = block.bytes[:size]
    on.staging.give(block)


def moved(buffer: Buffer, number: int) -> Buffer:
    """A copy of a buffer on another device, or on the same one; does not wait."""
    with failures.named(number, f"a copy from CUDA device {buffer.device}"):
        return _moved(buffer, device(number), device(buffer.device))


def _moved(buffer: Buffer, to: Device, source: Device) -> Buffer:
    number = to.number
    with to:
        to.settle()
        copy = to.memory.allocate(buffer.nbytes)
        to.join()
        if not buffer.nbytes:
            return copy
        if to is source:
            _cupy.copy(copy.pointer, buffer.pointer, buffer.nbytes, to.compute)
        else:
            if buffer.moment is not None:
                buffer.moment.before(to.compute)
            connect(number, buffer.device)
            _cupy.copy_peer(
                copy.pointer,
                number,
                buffer.pointer,
                buffer.device,
                buffer.nbytes,
                to.compute,
            )
        copy.moment = to.now(f"a copy from CUDA device {buffer.device}")
        if to is not source:
            # Its memory may be used again, in the order of its own device, as soon as
            # nobody holds it.
            to.keep(copy.moment, buffer)
        return copy


def connect(number: int, peer: int) -> None:
    """Lets the current device, of that number, read a peer's memory if it can."""
    if (number, peer) not in _connected:
        if _cupy.can_access_peer(number, peer):
            _cupy.enable_peer(peer)
        _connected.add((number, peer))


_connected: set[tuple[int, int]] = set()
