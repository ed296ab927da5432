"""Decompositions of many small matrices by one call: cuBLAS's and cuSOLVER's batches.

Some routines take the addresses of their matrices, as an array on the device. Receives
a `Stack`, which is data, and a device; gives a function of addresses and a stream.
Used by `serving.py`; next on the walk: `choosing.py`.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.dtypes import DType
from fnx.records import record
from fnx_cuda import cusolver
from fnx_cuda.called import Library, LibraryError, address
from fnx_cuda.cusolver import LETTERS, LOWER
from fnx_cuda.device import Device
from fnx_cuda.eigen import TYPES, Room, sizes, wide

BLAS = Library("cublas")

JACOBI = 32
"""The rows and columns of a matrix at most whose singular values are found at once."""

_BLAS = ("getrf", "getrs", "geqrf")
_EIGEN = "cusolverDnXsyevBatched"
"""Since CUDA 12.6; before that, Jacobi's method does it."""


@record
class Stack:
    """A decomposition of `count` column-major matrices of m rows and n columns.

    They lie one behind the other, or where an array of addresses says: of potrf, getrf,
    getrs (with as many right `columns`) and geqrf. `triangle` is the one that is read
    of Hermitian matrices; getrs may solve with the `transposed` ones.
    """

    routine: str
    dtype: DType
    m: int
    n: int
    count: int
    triangle: int = LOWER
    vectors: bool = False
    columns: int = 0
    transposed: bool = False

    @property
    def library(self) -> Library:
        """Who has it."""
        return BLAS if self.routine in _BLAS else cusolver.LIBRARY

    @property
    def names(self) -> tuple[str, ...]:
        """The functions that it needs."""
        return (self.function(),)

    def function(self) -> str:
        """The library's name of the routine."""
        letter, name = LETTERS[self.dtype], self.routine
        if name == "syevj" and dtypes.is_complex(self.dtype):
            name = "heevj"
        kind = "cublas" if self.library is BLAS else "cusolverDn"
        return f"{kind}{letter}{name}Batched"


def solver(made: Stack, device: Device) -> _Start:
    """What starts a stack's call on a device, with the memory that it needs."""
    if made.library is BLAS:
        return _Blas(made, device)
    if made.routine == "potrf":
        return _Cholesky(made, device)
    if made.routine == "syevj" and cusolver.LIBRARY.has(_EIGEN):
        return _Hermitian(made, device)
    return _Jacobi(made, device)


class _Start(ABC):
    """A stack on a device."""

    def __init__(self, made: Stack, device: Device) -> None:
        self.made = made
        self.device = device

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Starts the call in the order of a stream."""
        places = [address(at) for at in addresses]
        library = self.made.library
        setter = "cublasSetStream_v2" if library is BLAS else "cusolverDnSetStream"
        library.call(setter, self.handle(), address(stream))
        self.start(places)

    def handle(self) -> Any:
        """That of this thread."""
        number = self.device.number
        if self.made.library is BLAS:
            return BLAS.made("cublasCreate_v2", number)
        return cusolver.handle(number)

    @abstractmethod
    def start(self, places: list[Any]) -> None:
        """The call, on arrays."""


class _Blas(_Start):
    """LU and QR factors, and what solves with the former."""

    def start(self, places: list[Any]) -> None:
        """Where it looks at its arguments only, the status is on the host."""
        made, status = self.made, ctypes.c_int()
        call, count, n = (made.function(), self.handle()), made.count, made.n
        match made.routine:
            case "getrf":
                a, pivots, info = places
                BLAS.call(*call, n, a, n, pivots, info, count)
            case "getrs":
                a, pivots, b = places
                how = int(made.transposed), n, made.columns
                right = b, n, ctypes.byref(status), count
                BLAS.call(*call, *how, a, n, pivots, *right)
            case "geqrf":
                a, taus = places
                behind = ctypes.byref(status), count
                BLAS.call(*call, made.m, n, a, made.m, taus, *behind)
        if status.value:
            raise LibraryError(made.function(), status.value)


class _Cholesky(_Start):
    """Cholesky factors, in place of a triangle."""

    def start(self, places: list[Any]) -> None:
        """It needs no memory."""
        made, n = self.made, self.made.n
        a, info = places
        ends = made.triangle, n, a, n, info, made.count
        cusolver.LIBRARY.call(made.function(), self.handle(), *ends)


class _Hermitian(_Start):
    """Eigenvalues of Hermitian matrices of any size."""

    def __init__(self, made: Stack, device: Device) -> None:
        super().__init__(made, device)
        found = sizes()
        ends = *self._matrices(address(0), address(0)), *map(ctypes.byref, found)
        cusolver.LIBRARY.call(f"{_EIGEN}_bufferSize", *ends, wide(made.count))
        self.room = Room(device, found)

    def start(self, places: list[Any]) -> None:
        """Values in ascending order, and vectors in place of the matrices."""
        a, values, info = places
        ends = *self._matrices(a, values), *self.room.arguments, info
        cusolver.LIBRARY.call(_EIGEN, *ends, wide(self.made.count))

    def _matrices(self, a: Any, values: Any) -> tuple[Any, ...]:
        made, n = self.made, wide(self.made.n)
        kind, real = TYPES[made.dtype], TYPES[dtypes.real_dtype(made.dtype)]
        params = cusolver.LIBRARY.made("cusolverDnCreateParams", self.device.number)
        what = int(made.vectors), made.triangle
        return self.handle(), params, *what, n, kind, a, n, real, values, kind


class _Jacobi(_Start):
    """Eigenvalues or singular values by Jacobi's method, of small matrices."""

    def __init__(self, made: Stack, device: Device) -> None:
        super().__init__(made, device)
        self.size = ctypes.c_int()
        nothing = [address(0)] * (2 if made.routine == "syevj" else 4)
        ends = *self._matrices(nothing), ctypes.byref(self.size), *self._end()
        query = f"{made.function()}_bufferSize"
        cusolver.LIBRARY.call(query, self.handle(), *ends)
        nbytes = max(self.size.value * made.dtype.itemsize, 1)
        self.memory = device.memory.allocate(nbytes, "the memory of a decomposition")

    def start(self, places: list[Any]) -> None:
        """Values in order, and vectors."""
        *arrays, info = places
        if len(arrays) == 2 and self.made.routine == "gesvdj":
            arrays += [address(0), address(0)]
        work = address(self.memory.pointer), self.size
        ends = *self._matrices(arrays), *work, info, *self._end()
        cusolver.LIBRARY.call(self.made.function(), self.handle(), *ends)

    def _matrices(self, places: list[Any]) -> tuple[Any, ...]:
        made, wanted = self.made, int(self.made.vectors)
        m, n = made.m, made.n
        if made.routine == "syevj":
            a, values = places
            return wanted, made.triangle, n, a, n, values
        a, values, u, v = places
        return wanted, m, n, a, m, values, u, m, v, n

    def _end(self) -> tuple[Any, int]:
        kind = "Syevj" if self.made.routine == "syevj" else "Gesvdj"
        create = f"cusolverDnCreate{kind}Info"
        return cusolver.LIBRARY.made(create, self.device.number), self.made.count
