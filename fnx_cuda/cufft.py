"""cuFFT: which Fourier transforms it takes, as plans and calls on addresses.

CuPy's plans run on its own current stream, and a graph is captured on another one, so
the library is called by ctypes. Receives a `HostStep`; gives a `Transform`, which is
data, and of that on a device a function of addresses and a stream, which can be in a
graph. The library overwrites the input of a complex to real transform, and divides
nothing. Used by `served.py`; next on the walk: `cusolver.py`.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from math import prod
from typing import Any

from fnx import dtypes
from fnx.dtypes import DType
from fnx.records import record
from fnx.runtime.plan import HostStep
from fnx_cuda.called import Library, address
from fnx_cuda.device import Device

LIBRARY = Library("cufft")

MOST_CALLS = 16
"""Calls of a transform at most: along an axis in the middle it takes several."""

MOST_AXES = 3

FORWARD, INVERSE = -1, 1

# cufftType: of float32 and float64.
_TYPES = {
    "FFT": (0x29, 0x69),
    "IFFT": (0x29, 0x69),
    "RFFT": (0x2A, 0x6A),
    "IRFFT": (0x2C, 0x6C),
}
_FUNCTIONS = {0x29: "C2C", 0x69: "Z2Z", 0x2A: "R2C", 0x6A: "D2Z", 0x2C: "C2R"}
_FUNCTIONS[0x6C] = "Z2D"


@record
class Transform:
    """Transforms of one layout: numbers of elements, and of bytes between calls.

    A signal's elements are `stride` apart, and `batch` signals so far as `distances`
    say, of input and output; there are `calls` of them.
    """

    kind: str
    dtype: DType
    lengths: tuple[int, ...]
    stride: int
    distances: tuple[int, int]
    batch: int
    calls: int
    steps: tuple[int, int]

    @property
    def type(self) -> int:
        """The number of cufftType."""
        return _TYPES[self.kind][self.dtype == dtypes.complex128]


def transform(step: HostStep) -> Transform | None:
    """A step for the library; `None` if it does not take it.

    It takes the last axes, or one axis of an array.
    """
    (type_,), (out,) = step.input_types, step.output_types
    kind, lengths, axes = [step.params[name] for name in ("kind", "lengths", "axes")]
    dtype = out.dtype if kind == "RFFT" else type_.dtype
    if not (type_.size and out.size):
        return None
    count, ndim = len(axes), type_.ndim
    if sorted(axes) == list(range(ndim - count, ndim)) and count <= MOST_AXES:
        if kind in ("RFFT", "IRFFT") and axes[-1] != ndim - 1:
            return None
        pairs = sorted(zip(axes, lengths, strict=True))
        sizes = [prod(each.shape[ndim - count :]) for each in (type_, out)]
        batch = prod(type_.shape[: ndim - count])
        ordered = tuple([length for _, length in pairs])
        ends = sizes[0], sizes[1]
        return Transform(kind, dtype, ordered, 1, ends, batch, 1, (0, 0))
    if count > 1:
        return None
    (axis,) = axes
    outer, inner = prod(type_.shape[:axis]), prod(type_.shape[axis + 1 :])
    if outer > MOST_CALLS:
        return None
    nbytes = [each.size // outer * each.dtype.itemsize for each in (type_, out)]
    steps = nbytes[0], nbytes[1]
    return Transform(kind, dtype, tuple(lengths), inner, (1, 1), inner, outer, steps)


Start = Callable[[int, int, int], None]
"""Starts transforms: addresses of input and output, and a stream."""


class Plan:
    """A plan of the library on the current device, with its memory."""

    def __init__(self, made: Transform, device: Device) -> None:
        _destroy_unused()
        self.made = made
        self.handle = ctypes.c_int()
        LIBRARY.call("cufftCreate", ctypes.byref(self.handle))
        self._destroy = LIBRARY.function("cufftDestroy")
        LIBRARY.call("cufftSetAutoAllocation", self.handle, 0)
        size = ctypes.c_size_t()
        rank = len(made.lengths)
        numbers = (ctypes.c_longlong * rank)(*made.lengths)
        # Without embedding, strides and distances would not count.
        embedded = None if made.stride == 1 and made.calls == 1 else numbers
        layout = []
        for distance in made.distances:
            pair = ctypes.c_longlong(made.stride), ctypes.c_longlong(distance)
            layout += [embedded, *pair]
        batch = ctypes.c_longlong(made.batch)
        name = "cufftMakePlanMany64"
        LIBRARY.call(
            name, self.handle, rank, numbers, *layout, made.type, batch,
            ctypes.byref(size),
        )  # fmt: skip
        self.memory = device.memory.allocate(size.value, "the memory of a transform")
        LIBRARY.call("cufftSetWorkArea", self.handle, address(self.memory.pointer))

    def __call__(self, source: int, out: int, stream: int) -> None:
        """Starts all transforms."""
        made = self.made
        LIBRARY.call("cufftSetStream", self.handle, address(stream))
        name = f"cufftExec{_FUNCTIONS[made.type]}"
        way: tuple[Any, ...] = ()
        if made.kind in ("FFT", "IFFT"):
            way = (FORWARD if made.kind == "FFT" else INVERSE,)
        for number in range(made.calls):
            ends = source + number * made.steps[0], out + number * made.steps[1]
            LIBRARY.call(name, self.handle, *map(address, ends), *way)

    def __del__(self) -> None:
        if hasattr(self, "_destroy"):  # it was made
            _unused.append((self._destroy, self.handle))


# Plans that nobody holds any more. The garbage collector may run while a graph is
# captured, where memory of the device is not given back.
_unused: deque[tuple[Any, Any]] = deque()


def _destroy_unused() -> None:
    while _unused:
        destroy, handle = _unused.popleft()
        destroy(handle)
