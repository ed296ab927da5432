"""What stands in the places of cuSOLVER and cuBLAS: the same functions, by LAPACK.

Matrices are column-major, with leading dimensions, at addresses of this process; where
a routine takes the addresses of matrices, they are read when the stream comes to it.
What is factored is overwritten. What a routine was told when it was asked how much
memory it needs, it must be told again. Next: `test_served.py`, `test_stacks.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from tests.cuda.library_fakes import Fake, Run, Written, memory

LETTERS = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
KINDS = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}

REAL = {"heevd": "syevd", "ungqr": "orgqr", "heevjBatched": "syevjBatched"}
"""What complex routines are called for real numbers."""

ROOM = 17


def column_major(
    address: int, rows: int, columns: int, leading: int, dtype: Any
) -> Any:
    """A matrix in memory."""
    assert leading >= max(rows, 1)
    flat = memory(address, (columns - 1) * leading + rows, dtype)
    size = np.dtype(dtype).itemsize
    return np.lib.stride_tricks.as_strided(
        flat, (rows, columns), (size, leading * size)
    )


def lapack(name: str, dtype: Any) -> Any:
    if np.dtype(dtype).kind == "c":
        name = name.replace("orgqr", "ungqr")
    return scipy.linalg.get_lapack_funcs(name, dtype=dtype)


def real(dtype: Any) -> Any:
    return np.empty(0, dtype).real.dtype


def span(matrix: Any) -> tuple[int, int]:
    """Where an array is, and its bytes."""
    start = matrix.__array_interface__["data"][0]
    steps = zip(matrix.shape, matrix.strides, strict=True)
    return start, sum((n - 1) * step for n, step in steps) + matrix.itemsize


class Lettered(Fake):
    """A library whose routines begin with the letter of a dtype."""

    def find(self, routine: str) -> Callable[..., Any] | None:
        letter, rest = routine[0], routine[1:]
        method = getattr(self, REAL.get(rest, rest), None)
        if letter not in LETTERS or method is None:
            return super().find(routine)
        assert (rest in REAL) <= (letter in "CZ")
        assert (rest in REAL.values()) <= (letter in "SD")
        return functools.partial(method, routine, LETTERS[letter])

    def listed(self, address: int, count: int) -> list[int]:
        """The addresses in an array on the device, each on the device."""
        found = [int(each) for each in memory(address, count, np.uint64)]
        assert all(map(self.is_on_device, found)), "an address of no device"
        return found


class FakeBlas(Lettered):
    """cuBLAS's batches."""

    prefix = "cublas"

    def getrfBatched(
        self,
        name: str,
        dtype: Any,
        handle: int,
        n: int,
        a: int,
        leading: int,
        pivots: int,
        info: int,
        count: int,
    ) -> None:
        self._on_device(a, pivots, info)

        def run() -> Written:
            every = memory(pivots, n * count, "i4").reshape(count, n)
            status, written = memory(info, count, "i4"), [(pivots, 4 * n * count)]
            for item, at in enumerate(self.listed(a, count)):
                matrix = column_major(at, n, n, leading, dtype)
                matrix[...], found, status[item] = lapack("getrf", dtype)(matrix)
                every[item] = found + 1
                written.append(span(matrix))
            return [*written, (info, 4 * count)]

        self.start(name, run)

    def getrsBatched(
        self,
        name: str,
        dtype: Any,
        handle: int,
        transposed: int,
        n: int,
        columns: int,
        a: int,
        leading: int,
        pivots: int,
        b: int,
        b_leading: int,
        info: Any,
        count: int,
    ) -> None:
        self._on_device(a, pivots, b)
        info._obj.value = 0  # on the host

        def run() -> Written:
            every = memory(pivots, n * count, "i4").reshape(count, n)
            written = []
            ends = zip(self.listed(a, count), self.listed(b, count), strict=True)
            for item, (at, right) in enumerate(ends):
                matrix = column_major(at, n, n, leading, dtype)
                x = column_major(right, n, columns, b_leading, dtype)
                x[...], _ = lapack("getrs", dtype)(
                    matrix, every[item] - 1, x, trans=transposed
                )
                written.append(span(x))
            return written

        self.start(name, run)

    def geqrfBatched(
        self,
        name: str,
        dtype: Any,
        handle: int,
        m: int,
        n: int,
        a: int,
        leading: int,
        taus: int,
        info: Any,
        count: int,
    ) -> None:
        self._on_device(a, taus)
        info._obj.value = 0  # on the host

        def run() -> Written:
            written = []
            ends = zip(self.listed(a, count), self.listed(taus, count), strict=True)
            for at, factors in ends:
                matrix = column_major(at, m, n, leading, dtype)
                found = memory(factors, min(m, n), dtype)
                matrix[...], found[...], *_ = lapack("geqrf", dtype)(matrix)
                written += [span(matrix), span(found)]
            return written

        self.start(name, run)

    def _on_device(self, *addresses: int) -> None:
        assert all(map(self.is_on_device, addresses)), "arrays are on the device"


class FakeSolver(Lettered):
    """cuSOLVER's dense half; `stalls` has routines that iterate not converge."""

    prefix = "cusolver"

    def __init__(self) -> None:
        super().__init__()
        self.stalls = False
        self.asked: set[tuple[Any, ...]] = set()

    def find(self, routine: str) -> Callable[..., Any] | None:
        if not routine.startswith("Dn"):
            return self.get_property if routine == "GetProperty" else None
        routine = routine.removeprefix("Dn")
        if routine.endswith("_bufferSize"):
            return self._size
        if routine in ("Xgeev", "XsyevBatched"):
            return functools.partial(getattr(self, routine), routine)
        return super().find(routine)

    def _size(self, *arguments: Any) -> None:
        for each in arguments:
            if hasattr(each, "_obj"):
                each._obj.value = ROOM
        self.asked.add(tuple([x for x in arguments if not hasattr(x, "_obj") and x]))

    def _was_asked(self, *sizes: Any) -> bool:
        return any(set(sizes) <= set(each) for each in self.asked)

    # -- one matrix

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
    ) -> None:
        assert work and size == ROOM and triangle in (0, 1)
        self.start(name, self._cholesky(dtype, triangle, n, [a], leading, info))

    def _cholesky(
        self,
        dtype: Any,
        triangle: int,
        n: int,
        addresses: list[int],
        leading: int,
        info: int,
    ) -> Run:
        def run() -> Written:
            status, written = memory(info, len(addresses), "i4"), []
            for item, at in enumerate(addresses):
                matrix = column_major(at, n, n, leading, dtype)
                factor, status[item] = lapack("potrf", dtype)(
                    matrix, lower=triangle == 0, clean=0
                )
                matrix[...] = factor
                written.append(span(matrix))
            return [*written, span(status)]

        return run

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
    ) -> None:
        assert work
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        places = memory(pivots, min(m, n), "i4")

        def run() -> Written:
            matrix[...], found, status[0] = lapack("getrf", dtype)(matrix)
            places[...] = found + 1
            return [span(matrix), span(places), span(status)]

        self.start(name, run)

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
    ) -> None:
        assert work and size == ROOM
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        found = memory(taus, min(m, n), dtype)

        def run() -> Written:
            matrix[...], found[...], _, status[0] = lapack("geqrf", dtype)(matrix)
            return [span(matrix), span(found), span(status)]

        self.start(name, run)

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
    ) -> None:
        assert work and size == ROOM and m >= n >= count
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        given = memory(taus, count, dtype)

        def run() -> Written:
            matrix[...], _, status[0] = lapack("orgqr", dtype)(matrix, given)
            return [span(matrix), span(status)]

        self.start(name, run)

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
    ) -> None:
        assert work and size == ROOM
        run = self._eigh(dtype, (mode, triangle), n, a, leading, values, info, 1)
        self.start(name, run)

    def _eigh(
        self,
        dtype: Any,
        how: tuple[int, int],
        n: int,
        a: int,
        leading: int,
        values: int,
        info: int,
        count: int,
    ) -> Run:
        mode, triangle = how
        assert mode in (0, 1) and triangle in (0, 1)
        step = n * leading * np.dtype(dtype).itemsize

        def run() -> Written:
            status = memory(info, count, "i4")
            found = memory(values, n * count, real(dtype)).reshape(count, n)
            written = [span(status), span(found)]
            for item in range(count):
                matrix = column_major(a + item * step, n, n, leading, dtype)
                status[item] = int(self.stalls)
                found[item], vectors = np.linalg.eigh(matrix, "LU"[triangle])
                matrix[...] = vectors if mode else np.nan
                written.append(span(matrix))
            return written

        return run

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
    ) -> None:
        assert work and size == ROOM and more
        assert m >= n, "the library takes no wide matrices"
        job = chr(u_job)
        assert job == chr(vt_job) and job in "NSA"
        matrix, status = column_major(a, m, n, leading, dtype), memory(info, 1, "i4")
        found = memory(values, n, real(dtype))
        width = m if job == "A" else n

        def run() -> Written:
            status[0] = int(self.stalls)
            left, found[...], right = np.linalg.svd(matrix, full_matrices=job == "A")
            written = [span(matrix), span(found), span(status)]
            if job != "N":
                ends = [
                    column_major(u, m, width, u_leading, dtype),
                    column_major(vt, n, n, vt_leading, dtype),
                ]
                ends[0][...], ends[1][...] = left, right
                written += map(span, ends)
            matrix[...] = np.nan
            return written

        self.start(name, run)

    def Xgeev(
        self,
        name: str,
        handle: int,
        params: int,
        left: int,
        right: int,
        n: int,
        kind: int,
        a: int,
        leading: int,
        values_kind: int,
        values: int,
        u_kind: int,
        u: int,
        u_leading: int,
        v_kind: int,
        v: int,
        v_leading: int,
        compute: int,
        work: int,
        size: int,
        host: int,
        host_size: int,
        info: int,
    ) -> None:
        assert params and work and host and size == host_size == ROOM
        assert left == 0, "the library has no left vectors"
        assert kind == u_kind == v_kind == compute and values_kind == (kind | 4)
        assert self._was_asked(handle, params, n, right or n)
        assert min(u_leading, v_leading) >= n
        dtype = KINDS[kind]
        matrix, status = column_major(a, n, n, leading, dtype), memory(info, 1, "i4")
        found = memory(values, n, KINDS[values_kind])

        def run() -> Written:
            *w, _, vectors, failed = lapack("geev", dtype)(matrix, compute_vl=0)
            found[...] = w[0] if len(w) == 1 else w[0] + 1j * w[1]
            status[0] = failed or int(self.stalls)
            written = [span(matrix), span(found), span(status)]
            matrix[...] = np.nan
            if right:
                end = column_major(v, n, n, v_leading, dtype)
                end[...] = vectors
                written.append(span(end))
            return written

        self.start(name, run)

    # -- stacks

    def potrfBatched(
        self,
        name: str,
        dtype: Any,
        handle: int,
        triangle: int,
        n: int,
        a: int,
        leading: int,
        info: int,
        count: int,
    ) -> None:
        assert self.is_on_device(a) and self.is_on_device(info)

        def run() -> Written:
            addresses = self.listed(a, count)
            return self._cholesky(dtype, triangle, n, addresses, leading, info)()

        self.start(name, run)

    def XsyevBatched(
        self,
        name: str,
        handle: int,
        params: int,
        mode: int,
        triangle: int,
        n: int,
        kind: int,
        a: int,
        leading: int,
        values_kind: int,
        values: int,
        compute: int,
        work: int,
        size: int,
        host: int,
        host_size: int,
        info: int,
        count: int,
    ) -> None:
        assert params and work and host and size == host_size == ROOM
        assert kind == compute and values_kind == (kind & 1)
        assert self._was_asked(handle, params, n, count)
        how = mode, triangle
        run = self._eigh(KINDS[kind], how, n, a, leading, values, info, count)
        self.start(name, run)

    def syevjBatched(
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
        params: int,
        count: int,
    ) -> None:
        assert params and work and size == ROOM
        assert self._was_asked(handle, n, params, count)
        how = mode, triangle
        self.start(name, self._eigh(dtype, how, n, a, leading, values, info, count))

    def gesvdjBatched(
        self,
        name: str,
        dtype: Any,
        handle: int,
        mode: int,
        m: int,
        n: int,
        a: int,
        leading: int,
        values: int,
        u: int,
        u_leading: int,
        v: int,
        v_leading: int,
        work: int,
        size: int,
        info: int,
        params: int,
        count: int,
    ) -> None:
        assert params and work and size == ROOM and max(m, n) <= 32
        assert self._was_asked(handle, m, n, params, count)
        itemsize, k = np.dtype(dtype).itemsize, min(m, n)

        def run() -> Written:
            status = memory(info, count, "i4")
            found = memory(values, k * count, real(dtype)).reshape(count, k)
            written = [span(status), span(found)]
            for item in range(count):
                at = a + item * n * leading * itemsize
                matrix = column_major(at, m, n, leading, dtype)
                status[item] = int(self.stalls)
                left, found[item], right = np.linalg.svd(matrix)
                if mode:
                    at = u + item * m * u_leading * itemsize
                    ends = [column_major(at, m, m, u_leading, dtype)]
                    at = v + item * n * v_leading * itemsize
                    ends += [column_major(at, n, n, v_leading, dtype)]
                    ends[0][...], ends[1][...] = left, right.conj().T
                    written += map(span, ends)
                matrix[...] = np.nan
                written.append(span(matrix))
            return written

        self.start(name, run)
