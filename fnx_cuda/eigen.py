"""cuSOLVER's routines of 64 bits: eigenvalues of general matrices, one call for each.

They are there since CUDA 12.6. Receives a `General`, which is data, and a device; gives
a function of addresses and a stream. Used by `serving.py`; next on the walk:
`stacks.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.dtypes import DType
from fnx.records import record
from fnx_cuda.called import address
from fnx_cuda.cusolver import LIBRARY, handle
from fnx_cuda.device import Device

TYPES = {
    dtypes.float32: 0,
    dtypes.float64: 1,
    dtypes.complex64: 4,
    dtypes.complex128: 5,
}
"""cudaDataType."""


@record
class General:
    """Eigenvalues of `count` column-major matrices of n rows, and vectors where wanted.

    Values are complex; the vectors of real matrices are real, in LAPACK's pairs of
    columns. `steps` are the bytes from one matrix to the next one, of each array that a
    call is given.
    """

    dtype: DType
    n: int
    count: int
    steps: tuple[int, ...]
    vectors: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The functions that it needs."""
        return "cusolverDnXgeev", "cusolverDnXgeev_bufferSize"


class Room:
    """The memory that a routine of 64 bits asks for, on the device and on the host."""

    def __init__(self, device: Device, sizes: Sequence[Any]) -> None:
        what = "the memory of a decomposition"
        size, host = [max(each.value, 1) for each in sizes]
        self._device = device.memory.allocate(size, what)
        self._host = ctypes.create_string_buffer(host)
        self._sizes = sizes

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Both, each with its bytes."""
        there, here = self._device.pointer, ctypes.addressof(self._host)
        return address(there), self._sizes[0], address(here), self._sizes[1]


def sizes() -> list[Any]:
    """Where the library writes how much memory it wants."""
    return [ctypes.c_size_t(), ctypes.c_size_t()]


def wide(value: int) -> Any:
    """A number of 64 bits as an argument."""
    return ctypes.c_int64(value)


class Eigen:
    """Eigenvalues on a device."""

    def __init__(self, made: General, device: Device) -> None:
        self.made = made
        self.device = device
        found = sizes()
        nothing = [address(0)] * 3
        ends = self._matrices(*nothing)
        name = "cusolverDnXgeev_bufferSize"
        LIBRARY.call(name, *self._handles(), *ends, *map(ctypes.byref, found))
        self.room = Room(device, found)

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Starts the calls; the last address is that of a status for each matrix."""
        solver, params = self._handles()
        LIBRARY.call("cusolverDnSetStream", solver, address(stream))
        for item in range(self.made.count):
            pairs = zip(addresses, self.made.steps, strict=True)
            a, values, *vectors, info = [at + item * step for at, step in pairs]
            ends = self._matrices(a, values, vectors[0] if vectors else 0)
            room = self.room.arguments
            LIBRARY.call("cusolverDnXgeev", solver, params, *ends, *room, address(info))

    def _handles(self) -> tuple[Any, Any]:
        number = self.device.number
        return handle(number), LIBRARY.made("cusolverDnCreateParams", number)

    def _matrices(self, a: Any, values: Any, vectors: Any) -> tuple[Any, ...]:
        """What both functions are told: it has no left vectors."""
        made, n = self.made, wide(self.made.n)
        kind = TYPES[made.dtype]
        complex_ = made.dtype
        if not dtypes.is_complex(complex_):
            complex_ = dtypes.complex_dtype(complex_)
        a, values, vectors = map(_pointer, (a, values, vectors))
        left = kind, address(0), n
        right = kind, vectors, n
        ends = n, kind, a, n, TYPES[complex_], values, *left, *right, kind
        return 0, int(made.vectors), *ends


def _pointer(value: Any) -> Any:
    return address(value) if isinstance(value, int) else value
