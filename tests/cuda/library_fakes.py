"""What stands in the places of cuFFT and cuSOLVER: the same functions, by NumPy.

They are called as ctypes calls the libraries, and read arrays as these do: by strides
and distances, or column by column with leading dimensions, from addresses of this
process. Nothing runs before the stream that was set comes to it. The input of a complex
to real transform, and matrices that are factored, are overwritten. `fails` has a
function give a status. Next: `test_served.py`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

Run = Callable[[], None]
Later = Callable[[int, Run, Sequence[tuple[int, int]]], None]
"""Puts a run into a stream; it writes so many bytes at addresses."""


def number(argument: Any) -> int:
    """An argument as ctypes would give it to the library."""
    return (argument.value or 0) if hasattr(argument, "value") else int(argument)


def memory(address: int, size: int, dtype: Any) -> Any:
    """Memory of this process as an array."""
    nbytes = size * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)


class Fake:
    """What both have: functions that fail, streams, and a list of what ran."""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.later: Later = lambda stream, run, writes: run()
        self.ran: list[str] = []
        self.numbers = itertools.count(1)
        self.live: set[int] = set()

    def status(self, name: str) -> int:
        return self.fails.get(name, 0)


# ---------------------------------------------------------------- cuFFT


@dataclass
class FakePlan:
    """A plan so far."""

    stream: int | None = None
    area: int | None = None
    layout: dict[str, Any] = field(default_factory=dict)


# Numbers of cufftType: names, and the dtypes of input and output.
FFT_TYPES: dict[int, tuple[str, Any, Any]] = {
    0x29: ("C2C", np.complex64, np.complex64),
    0x69: ("Z2Z", np.complex128, np.complex128),
    0x2A: ("R2C", np.float32, np.complex64),
    0x6A: ("D2Z", np.float64, np.complex128),
    0x2C: ("C2R", np.complex64, np.float32),
    0x6C: ("Z2D", np.complex128, np.float64),
}


class FakeFft(Fake):
    """cuFFT."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[int, FakePlan] = {}

    def cufftCreate(self, made: Any) -> int:
        made._obj.value = next(self.numbers)
        self.plans[made._obj.value] = FakePlan()
        return self.status("cufftCreate")

    def cufftDestroy(self, plan: Any) -> int:
        del self.plans[number(plan)]
        return 0

    def cufftSetAutoAllocation(self, plan: Any, automatic: int) -> int:
        assert automatic == 0
        return 0

    def cufftMakePlanMany64(
        self,
        plan: Any,
        rank: int,
        lengths: Any,
        in_embed: Any,
        in_stride: Any,
        in_distance: Any,
        out_embed: Any,
        out_stride: Any,
        out_distance: Any,
        type_: int,
        batch: Any,
        size: Any,
    ) -> int:
        if self.status("cufftMakePlanMany64"):
            return self.status("cufftMakePlanMany64")
        assert (in_embed is None) == (out_embed is None)
        kind = FFT_TYPES[type_][0]
        shapes = [list(lengths), list(lengths)]
        assert len(shapes[0]) == rank <= 3
        for shape, halving in zip(
            shapes, (("C2R", "Z2D"), ("R2C", "D2Z")), strict=True
        ):
            if kind in halving:
                shape[-1] = shape[-1] // 2 + 1
        strides, distances = [1, 1], [int(np.prod(shape)) for shape in shapes]
        if in_embed is not None:
            # Of one axis, only strides count.
            assert rank == 1
            strides = [number(in_stride), number(out_stride)]
            distances = [number(in_distance), number(out_distance)]
        self.plans[number(plan)].layout = {
            "type": type_,
            "lengths": tuple(lengths),
            "shapes": shapes,
            "strides": strides,
            "distances": distances,
            "batch": number(batch),
        }
        size._obj.value = 64
        return 0

    def cufftSetWorkArea(self, plan: Any, area: Any) -> int:
        self.plans[number(plan)].area = number(area)
        return 0

    def cufftSetStream(self, plan: Any, stream: Any) -> int:
        self.plans[number(plan)].stream = number(stream)
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cufftExec"):
            return lambda *arguments: self._run(name, *arguments)
        raise AttributeError(name)

    def _run(self, name: str, plan: Any, source: Any, out: Any, way: int = 0) -> int:
        if self.status(name):
            return self.status(name)
        found = self.plans[number(plan)]
        layout = found.layout
        kind, *types = FFT_TYPES[layout["type"]]
        assert name == f"cufftExec{kind}" and found.area and found.stream is not None
        assert (way in (-1, 1)) == (kind in ("C2C", "Z2Z"))
        addresses = number(source), number(out)
        # Complex numbers are read in pairs.
        for address, dtype in zip(addresses, types, strict=True):
            assert address % np.dtype(dtype).itemsize == 0
        views, spans = [], []
        for end in range(2):
            shape, stride = layout["shapes"][end], layout["strides"][end]
            size = np.dtype(types[end]).itemsize
            steps = [stride * size]
            for length in reversed(shape[1:]):
                steps.insert(0, steps[0] * length)
            distance = layout["distances"][end]
            count = (layout["batch"] - 1) * distance + (np.prod(shape) - 1) * stride + 1
            flat = memory(addresses[end], int(count), types[end])
            spans.append(flat)
            views.append(
                np.lib.stride_tricks.as_strided(
                    flat, (layout["batch"], *shape), (distance * size, *steps)
                )
            )

        def run() -> None:
            self.ran.append(kind)
            views[1][...] = _transformed(kind, views[0], way, layout["lengths"])
            if kind in ("C2R", "Z2D"):
                views[0][...] = np.nan

        written = [(addresses[1], spans[1].nbytes)]
        self.later(found.stream, run, written)
        return 0


def _transformed(kind: str, x: Any, way: int, lengths: Any) -> Any:
    axes = tuple(range(1, 1 + len(lengths)))
    whole = np.prod(lengths)
    if kind in ("R2C", "D2Z"):
        return np.fft.rfftn(x, axes=axes)
    if kind in ("C2R", "Z2D"):
        return np.fft.irfftn(x, lengths, axes) * whole
    return np.fft.fftn(x, axes=axes) if way < 0 else np.fft.ifftn(x, axes=axes) * whole


# ---------------------------------------------------------------- cuSOLVER

SOLVER_TYPES = {
    "S": np.float32,
    "D": np.float64,
    "C": np.complex64,
    "Z": np.complex128,
}


_REAL = {"heevd": "syevd", "ungqr": "orgqr"}
"""What complex routines are called for real numbers."""


def column_major(address: int, rows: int, columns: int, leading: int, dtype: Any):
    """A matrix in memory."""
    assert leading >= max(rows, 1)
    flat = memory(address, (columns - 1) * leading + rows, dtype)
    size = np.dtype(dtype).itemsize
    return np.lib.stride_tricks.as_strided(
        flat, (rows, columns), (size, leading * size)
    )


class FakeSolver(Fake):
    """cuSOLVER's dense half; `stalls` has routines that iterate not converge."""

    def __init__(self) -> None:
        super().__init__()
        self.stalls = False
        self.stream = -1

    def cusolverDnCreate(self, made: Any) -> int:
        made._obj.value = next(self.numbers)
        return self.status("cusolverDnCreate")

    def cusolverDnSetStream(self, handle: Any, stream: Any) -> int:
        assert number(handle)
        self.stream = number(stream)
        return 0

    def __getattr__(self, name: str) -> Any:
        routine = name.removeprefix("cusolverDn")
        if routine == name:
            raise AttributeError(name)
        if name.endswith("_bufferSize"):
            return lambda *arguments: self._size(*arguments)
        dtype = SOLVER_TYPES[routine[0]]
        method = getattr(type(self), _REAL.get(routine[1:], routine[1:]))
        assert (routine[1:] in _REAL) <= (routine[0] in "CZ")
        assert (routine[1:] in _REAL.values()) <= (routine[0] in "SD")
        return lambda *arguments: (
            self.status(name) or method(self, name, dtype, *map(number, arguments))
        )

    def _size(self, *arguments: Any) -> int:
        arguments[-1]._obj.value = 17
        return 0

    def _start(self, name: str, run: Run, writes: Sequence[tuple[int, int]]) -> int:
        def noted() -> None:
            self.ran.append(name.removeprefix("cusolverDn"))
            run()

        self.later(self.stream, noted, writes)
        return 0

    def potrf(
        self,
        name: str,
        dtype: Any,
        handle: int,
        triangle: int,
        n: int,
        a: int,
        leading: int,
        work: int,
        size: int,
        info: int,
    ) -> int:
        assert work and size == 17 and triangle in (0, 1)
        matrix, status = column_major(a, n, n, leading, dtype), memory(info, 1, "i4")

        def run() -> None:
            routine = scipy.linalg.get_lapack_funcs("potrf", dtype=dtype)
            factor, status[0] = routine(matrix, lower=triangle == 0, clean=0)
            matrix[...] = factor

        return self._start(name, run, [(a, n * leading * matrix.itemsize), (info, 4)])

    def getrf(
        self,
        name: str,
        dtype: Any,
        handle: int,
        m: int,
        n: int,
        a: int,
        leading: int,
        work: int,
        pivots: int,
        info: int,
    ) -> int:
        assert work
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        places = memory(pivots, min(m, n), "i4")

        def run() -> None:
            routine = scipy.linalg.get_lapack_funcs("getrf", dtype=dtype)
            matrix[...], found, status[0] = routine(matrix)
            places[...] = found + 1

        writes = [(a, n * leading * matrix.itemsize), (pivots, places.nbytes)]
        return self._start(name, run, [*writes, (info, 4)])

    def geqrf(
        self,
        name: str,
        dtype: Any,
        handle: int,
        m: int,
        n: int,
        a: int,
        leading: int,
        taus: int,
        work: int,
        size: int,
        info: int,
    ) -> int:
        assert work and size == 17
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        found = memory(taus, min(m, n), dtype)

        def run() -> None:
            routine = scipy.linalg.get_lapack_funcs("geqrf", dtype=dtype)
            matrix[...], found[...], _, status[0] = routine(matrix)

        writes = [(a, n * leading * matrix.itemsize), (taus, found.nbytes)]
        return self._start(name, run, [*writes, (info, 4)])

    def orgqr(
        self,
        name: str,
        dtype: Any,
        handle: int,
        m: int,
        n: int,
        count: int,
        a: int,
        leading: int,
        taus: int,
        work: int,
        size: int,
        info: int,
    ) -> int:
        assert work and size == 17 and m >= n >= count
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        given = memory(taus, count, dtype)

        def run() -> None:
            kind = "ungqr" if np.iscomplexobj(matrix) else "orgqr"
            routine = scipy.linalg.get_lapack_funcs(kind, dtype=dtype)
            matrix[...], _, status[0] = routine(matrix, given)

        writes = [(a, n * leading * matrix.itemsize), (info, 4)]
        return self._start(name, run, writes)

    def syevd(
        self,
        name: str,
        dtype: Any,
        handle: int,
        mode: int,
        triangle: int,
        n: int,
        a: int,
        leading: int,
        values: int,
        work: int,
        size: int,
        info: int,
    ) -> int:
        assert work and size == 17 and mode in (0, 1) and triangle in (0, 1)
        matrix, status = column_major(a, n, n, leading, dtype), memory(info, 1, "i4")
        found = memory(values, n, np.empty(0, dtype).real.dtype)

        def run() -> None:
            status[0] = int(self.stalls)
            uplo = "LU"[triangle]
            found[...], vectors = np.linalg.eigh(matrix, uplo)
            matrix[...] = vectors if mode else np.nan

        writes = [(a, n * leading * matrix.itemsize), (values, found.nbytes)]
        return self._start(name, run, [*writes, (info, 4)])

    def gesvd(
        self,
        name: str,
        dtype: Any,
        handle: int,
        u_job: int,
        vt_job: int,
        m: int,
        n: int,
        a: int,
        leading: int,
        values: int,
        u: int,
        u_leading: int,
        vt: int,
        vt_leading: int,
        work: int,
        size: int,
        more: int,
        info: int,
    ) -> int:
        assert work and size == 17 and more
        assert m >= n, "the library takes no wide matrices"
        job = chr(u_job)
        assert job == chr(vt_job) and job in "NSA"
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        found = memory(values, n, np.empty(0, dtype).real.dtype)
        width = m if job == "A" else n
        writes = [(a, n * leading * matrix.itemsize), (values, found.nbytes)]
        ends: list[Any] = []
        if job != "N":
            ends = [
                column_major(u, m, width, u_leading, dtype),
                column_major(vt, n, n, vt_leading, dtype),
            ]
            itemsize = matrix.itemsize
            writes += [(u, width * u_leading * itemsize)]
            writes += [(vt, n * vt_leading * itemsize)]

        def run() -> None:
            status[0] = int(self.stalls)
            left, found[...], right = np.linalg.svd(matrix, full_matrices=job == "A")
            if ends:
                ends[0][...], ends[1][...] = left, right
            matrix[...] = np.nan

        return self._start(name, run, [*writes, (info, 4)])
