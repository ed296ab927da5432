"""Arrays of other libraries, in and out, without copies.

What comes in is read after what its library has started; what goes out is a CuPy array
that its library reads after what fnx has started. Memory that was out is used again
only after what CuPy did with it. Receives and gives `Buffer`s. Next on the walk:
`doctor.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from fnx import errors
from fnx_cuda import _cupy
from fnx_cuda.align import ALIGNMENT
from fnx_cuda.device import Device, device
from fnx_cuda.memory import Buffer


def taken(source: Any) -> tuple[Buffer, tuple[int, ...], np.dtype[Any]]:
    """The memory of another library's array, which is kept alive; its shape and dtype.

    A copy if the elements do not lie one after another, or not where kernels read
    several at once.
    """
    number = _device_of(source)
    on = device(number)
    before = _cupy.current_device()
    _cupy.ensure_context(number)
    try:
        # On CuPy's own stream, which is that of CuPy's arrays and waits for others'.
        array = _cupy.contiguous(_array(source, number))
        event = _cupy.new_event()
        _cupy.record_on(event, _cupy.current_stream(number))
    finally:
        _cupy.set_device(before)
    pointer = array.data.ptr if array.size else 0
    buffer = Buffer(number, pointer, array.nbytes, array)
    with on:
        _cupy.wait_for_event_of(on.compute, event)
        if pointer % ALIGNMENT:
            copy = on.memory.allocate(buffer.nbytes)
            _cupy.copy(copy.pointer, pointer, buffer.nbytes, on.compute)
            moment = on.now("a copy of another library's array")
            on.keep(moment, buffer)
            buffer = copy
        buffer.moment = on.now("the work of another library")
    return buffer, tuple(array.shape), np.dtype(array.dtype)


def _array(source: Any, number: int) -> Any:
    """A CuPy array on the source's memory."""
    if hasattr(source, "__dlpack__"):
        return _cupy.from_dlpack(source)
    # The interface need not say on which stream the values are made.
    _cupy.wait_for_device(number)
    return _cupy.from_interface(source)


def view(buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A CuPy array on a buffer."""
    on = device(buffer.device)
    stream = _cupy.current_stream(buffer.device)
    with on:
        if buffer.moment is not None:
            buffer.moment.before(stream)
        lent = _Lent(on, buffer, stream)
        memory = _cupy.unowned(buffer.pointer, buffer.nbytes, lent, buffer.device)
        return _cupy.array_on(memory, shape, dtype)


class _Lent:
    """Keeps a buffer that CuPy has.

    What fnx starts when it was given back waits for what CuPy's stream has to do.
    """

    def __init__(self, on: Device, buffer: Buffer, stream: int) -> None:
        self.on = on
        self.buffer = buffer
        self.stream = stream

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be on its way out
            before = _cupy.current_device()
            _cupy.set_device(self.on.number)  # an event's stream is of its own device
            try:
                event = _cupy.new_event()
                _cupy.record_on(event, self.stream)
            finally:
                _cupy.set_device(before)
            self.on.comes_after(event)


_CUDA_DEVICES = (2, 13)  # DLPack's numbers of CUDA memory, plain and managed


def _device_of(source: Any) -> int:
    """On which CUDA device an array is."""
    if hasattr(source, "__dlpack__"):
        kind, number = source.__dlpack_device__()
        if kind not in _CUDA_DEVICES:
            raise errors.ArgumentError(
                errors.explain(
                    f"an array of {type(source).__name__}",
                    "its memory is not on a CUDA device",
                    "move it to one, or pass it as a NumPy array",
                )
            )
        return int(number)
    pointer, _ = source.__cuda_array_interface__["data"]
    return _cupy.device_of(pointer) if pointer else _cupy.current_device()
