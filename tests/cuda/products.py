"""Matrix products of tests: operands as they may lie in memory, and what runs a step.

`operands` makes a `MatmulStep` and the arrays that its places hold, with room around
the matrices that products must leave alone; `launched` computes a step by launches on
the device that stands behind `_cupy`; `check` compares with NumPy in float64.
Next: `test_products.py`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes
from fnx.runtime.plan import MatmulStep, Matrices, Place, Product
from fnx_cuda import _cupy, modules
from fnx_cuda.instructions import Launch

OUT, X, Y = Place("output", 0), Place("input", 0), Place("input", 1)


@dataclass(frozen=True)
class Case:
    """A product: its sizes, and how the operands lie.

    `pad` is added to leading strides, `offset` to where arrays begin; `shared` says
    that all items of the stack have the same y. Results are of `out_dtype`, or `None`
    for that of the operands; `tf32` lets operands be rounded.
    """

    m: int
    n: int
    k: int
    dtype: Any = np.float32
    x_transposed: bool = False
    y_transposed: bool = False
    batch: tuple[int, ...] = ()
    pad: int = 0
    offset: int = 0
    shared: bool = False
    out_dtype: Any = None
    tf32: bool = False

    @property
    def step(self) -> MatmulStep:
        """The step."""
        m, n, k = self.m, self.n, self.k
        y = self._matrices(k, n, self.y_transposed)
        if self.shared:
            y = replace(y, strides=(0,) * len(self.batch))
        out, x = self._matrices(m, n, False), self._matrices(m, k, self.x_transposed)
        product = Product(self.batch, m, n, k, out, x, y)
        dtype = np.dtype(self.dtype)
        out_dtype = dtype if self.out_dtype is None else np.dtype(self.out_dtype)
        return MatmulStep(dtype, OUT, X, Y, product, out_dtype, self.tf32)

    def _matrices(self, rows: int, columns: int, transposed: bool) -> Matrices:
        lines, length = (columns, rows) if transposed else (rows, columns)
        leading = length + self.pad
        strides, item = [], max(lines, 1) * leading + self.pad
        for size in reversed(self.batch):
            strides.append(item)
            item *= size
        return Matrices(self.offset, tuple(strides[::-1]), leading, transposed)


def viewed(
    memory: Any, matrices: Matrices, batch: Sequence[int], m: int, n: int
) -> Any:
    """The stack of matrices as a view of flat memory."""
    row, column = matrices.leading, 1
    if matrices.transposed:
        row, column = column, row
    steps = [step * memory.itemsize for step in (*matrices.strides, row, column)]
    begin = memory[matrices.offset :]
    return np.lib.stride_tricks.as_strided(begin, (*batch, m, n), steps)


def size_of(matrices: Matrices, batch: Sequence[int], m: int, n: int) -> int:
    """The elements of memory that hold the matrices."""
    row, column = matrices.leading, 1
    if matrices.transposed:
        row, column = column, row
    steps = zip((*batch, m, n), (*matrices.strides, row, column), strict=True)
    last = sum(max(size - 1, 0) * step for size, step in steps)
    return matrices.offset + last + 1


def memories(step: MatmulStep, rng: np.random.Generator) -> list[Any]:
    """Memory for out, x and y: random numbers, NaN around matrices of floats."""
    p = step.product
    found = []
    for dtype, matrices, m, n in (
        (step.out_dtype, p.out, p.m, p.n),
        (step.dtype, p.x, p.m, p.k),
        (step.dtype, p.y, p.k, p.n),
    ):
        size = size_of(matrices, p.batch, m, n)
        memory = random_numbers(dtype, size, rng)
        if dtypes.is_inexact(dtype):
            inside = np.zeros(size, bool)
            viewed(inside, matrices, p.batch, m, n)[...] = True
            memory[~inside] = np.nan
        found.append(memory)
    return found


def random_numbers(dtype: Any, size: int, rng: np.random.Generator) -> Any:
    """Flat random memory of a dtype: integers use all of their range."""
    if dtypes.is_bool(dtype):
        return rng.random(size) < 0.2
    if dtypes.is_integer(dtype):
        raw = rng.integers(0, 256, size * dtype.itemsize, np.uint8)
        return raw.view(dtype)
    if dtypes.is_complex(dtype):
        parts = rng.standard_normal((2, size))
        return (parts[0] + 1j * parts[1]).astype(dtype)
    return rng.standard_normal(size).astype(dtype)


def check(step: MatmulStep, before: Sequence[Any], out: Any) -> None:
    """Asserts that `out`, the memory after a product, is what it should be.

    That is the product in float64 or in integers that wrap, within the error of any
    order of sums and one rounding at the end; and nothing around it has changed.
    """
    p = step.product
    x = viewed(before[1], p.x, p.batch, p.m, p.k)
    y = viewed(before[2], p.y, p.batch, p.k, p.n)
    got = viewed(out, p.out, p.batch, p.m, p.n).copy()
    if dtypes.is_inexact(step.dtype):
        wide = np.complex128 if dtypes.is_complex(step.dtype) else np.float64
        want = np.matmul(x.astype(wide), y.astype(wide))
        sums = np.matmul(abs(x.astype(wide)), abs(y.astype(wide)))
        assert np.all(abs(got - want) <= _bound(step, sums, abs(want)))
    elif dtypes.is_bool(step.dtype):
        np.testing.assert_array_equal(got, np.matmul(x, y))
    else:
        want = np.matmul(x.astype(np.uint64), y.astype(np.uint64))
        np.testing.assert_array_equal(got, want.astype(step.out_dtype))
    rest = out.copy()
    viewed(rest, p.out, p.batch, p.m, p.n)[...] = viewed(
        before[0], p.out, p.batch, p.m, p.n
    )
    np.testing.assert_array_equal(rest.view(np.uint8), before[0].view(np.uint8))


def _bound(step: MatmulStep, sums: Any, values: Any) -> Any:
    """The error that a product may have, where `sums` are those of absolute values."""
    summed = dtypes.real_dtype(dtypes.compute_dtype(step.dtype))
    bound = (step.product.k + 2) * float(np.finfo(summed).eps) * sums
    if summed != dtypes.real_dtype(step.out_dtype):
        kept = ml_dtypes.finfo(step.out_dtype)
        bound = bound * 2 + float(kept.eps) / 2 * values
        bound += float(kept.smallest_subnormal)
    return bound


def launched(launches: Sequence[Launch], memories: Sequence[Any], work: int) -> Any:
    """What is in the memory of out after launches; work memory has so many bytes."""
    pool, stream = _cupy.memory_pool(), _cupy.new_stream()
    held = [pool.malloc(max(memory.nbytes, 1)) for memory in memories]
    arena = pool.malloc(max(work, 1))
    for to, memory in zip(held, memories, strict=True):
        _copy_in(to.ptr, memory, stream)
    addresses = {OUT: held[0].ptr, X: held[1].ptr, Y: held[2].ptr}
    for launch in launches:
        pointers = [
            arena.ptr + place.index if place.role == "work" else addresses[place]
            for place in launch.pointers
        ]
        parameters = struct.pack(f"<{len(pointers)}Q", *pointers) + launch.numbers
        memory = ctypes.create_string_buffer(parameters, len(parameters))
        table = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        found = modules.function(launch.text, launch.function, 0, launch.shared)
        address, size = ctypes.addressof(table), (launch.block, 1, 1)
        _cupy.launch(
            found.pointer, launch.grid, size, launch.shared, stream.ptr, address
        )
    result = np.empty_like(memories[0])
    buffer = _cupy.pinned(max(result.nbytes, 1))
    _cupy.copy_to_host(buffer.ptr, held[0].ptr, result.nbytes, stream.ptr)
    stream.synchronize()
    ctypes.memmove(result.ctypes.data, buffer.ptr, result.nbytes)
    return result


def _copy_in(to: int, memory: Any, stream: Any) -> None:
    buffer = _cupy.pinned(max(memory.nbytes, 1))
    ctypes.memmove(buffer.ptr, memory.ctypes.data, memory.nbytes)
    _cupy.copy_to_device(to, buffer.ptr, memory.nbytes, stream.ptr)
    stream.synchronize()
