"""cuSOLVER: decompositions of a few matrices, one call for each.

Its matrices are column-major: it sees a row-major one transposed. Calls cannot be in
graphs. Receives a `Factoring`, which is data, and a device; gives a function of
addresses and a stream. Used by `served.py`; next on the walk: `served.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes
from fnx.dtypes import DType
from fnx.records import record
from fnx_cuda.called import Library, address
from fnx_cuda.device import Device

LIBRARY = Library("cusolver")

LOWER, UPPER = 0, 1
"""cublasFillMode_t."""

LETTERS = {
    dtypes.float32: "S",
    dtypes.float64: "D",
    dtypes.complex64: "C",
    dtypes.complex128: "Z",
}
_COMPLEX = {"syevd": "heevd", "orgqr": "ungqr"}


@record
class Factoring:
    """A decomposition of `count` column-major matrices of m rows and n columns.

    `triangle` is the one that is read of Hermitian matrices; `vectors` says which are
    wanted: "N" for none, "S" for as many as values, "A" for all. `reflections` are
    those that orgqr multiplies. `steps` are the bytes from one matrix to the next one,
    of each array that a call is given.
    """

    routine: str
    dtype: DType
    m: int
    n: int
    count: int
    steps: tuple[int, ...]
    triangle: int = LOWER
    vectors: str = "N"
    reflections: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The functions that it needs."""
        return (self.function(),)

    def function(self) -> str:
        """The library's name of the routine."""
        name = self.routine
        if dtypes.is_complex(self.dtype):
            name = _COMPLEX.get(name, name)
        return f"cusolverDn{LETTERS[self.dtype]}{name}"


class Solver:
    """A decomposition on a device, with the memory that the library asks for."""

    def __init__(self, made: Factoring, device: Device) -> None:
        self.made = made
        self.device = device
        size = ctypes.c_int()
        query, pointer = f"{made.function()}_bufferSize", ctypes.byref(size)
        solver = handle(device.number)
        nothing = [address(0) for _ in range(2)]
        m, n = made.m, made.n
        match made.routine:
            case "potrf":
                LIBRARY.call(query, solver, made.triangle, n, nothing[0], n, pointer)
            case "syevd":
                mode = int(made.vectors != "N")
                LIBRARY.call(
                    query, solver, mode, made.triangle, n, nothing[0], n, nothing[1],
                    pointer,
                )  # fmt: skip
            case "gesvd":  # it has no more columns than rows
                LIBRARY.call(query, solver, m, n, pointer)
            case "getrf" | "geqrf":
                LIBRARY.call(query, solver, m, n, nothing[0], m, pointer)
            case "orgqr":
                sizes = m, n, made.reflections
                LIBRARY.call(query, solver, *sizes, nothing[0], m, nothing[1], pointer)
        self.size = size.value
        nbytes = max(self.size * made.dtype.itemsize, 1)
        self.memory = device.memory.allocate(nbytes, "the memory of a decomposition")
        # Of complex matrices, gesvd needs real numbers, too.
        self.more = device.memory.allocate(8 * max(min(m, n), 1))

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Starts the calls; the last address is that of a status for each matrix."""
        solver = handle(self.device.number)
        LIBRARY.call("cusolverDnSetStream", solver, address(stream))
        for item in range(self.made.count):
            pairs = zip(addresses, self.made.steps, strict=True)
            self._one(solver, [address(at + item * step) for at, step in pairs])

    def _one(self, solver: Any, places: list[Any]) -> None:
        made, name = self.made, self.made.function()
        m, n, triangle = made.m, made.n, made.triangle
        work = address(self.memory.pointer), self.size
        match made.routine:
            case "potrf":
                a, info = places
                LIBRARY.call(name, solver, triangle, n, a, n, *work, info)
            case "syevd":
                a, values, info = places
                mode = int(made.vectors != "N")
                matrix = triangle, n, a, n, values
                LIBRARY.call(name, solver, mode, *matrix, *work, info)
            case "gesvd":
                a, values, *vectors, info = places
                u, vt = vectors or [address(0), address(0)]
                job = ctypes.c_byte(ord(made.vectors))
                LIBRARY.call(
                    name, solver, job, job, m, n, a, m, values, u, m, vt, n,
                    *work, address(self.more.pointer), info,
                )  # fmt: skip
            case "geqrf":
                a, taus, info = places
                LIBRARY.call(name, solver, m, n, a, m, taus, *work, info)
            case "orgqr":
                a, taus, info = places
                sizes = m, n, made.reflections
                LIBRARY.call(name, solver, *sizes, a, m, taus, *work, info)
            case "getrf":
                a, pivots, info = places
                LIBRARY.call(name, solver, m, n, a, m, work[0], pivots, info)


Start = Callable[[Sequence[int], int], None]


def handle(device: int) -> Any:
    """This thread's handle for a device, which is the current one."""
    return LIBRARY.made("cusolverDnCreate", device)
