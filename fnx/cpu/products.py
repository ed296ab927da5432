"""Matrix products: a function of machine code for each kind of product.

Receives a `MatmulStep`; gives the text of `void name(ptr context, i64 begin, i64 end)`,
which computes some of the product's pieces, so that the thread pool shares them like
the rounds of a loop. The context holds the addresses of out, x and y. A piece is a
block of the output, cut by its shape and the number of the machine's processors, and
one thread computes it: small products by `gemm.py`, large ones by BLAS. Results do not
depend on the number of threads. Next on the walk: `driver.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.cpu.gemm import tile
from fnx.cpu.threads import cpus
from fnx.records import record
from fnx.runtime.plan import MatmulStep, Matrices, Product

LEAST = 2**18
"""Multiply-adds of a piece at least, some microseconds."""

MANY = 2**31
"""Multiply-adds of which there are two pieces for each processor, for balance."""

CHUNK = 2**20
"""Multiply-adds of whole products of a stack that a thread takes at once."""

# BLAS routine, LLVM type, one and zero of each dtype.
_GEMM = {
    "float32": ("sgemm", "float", "1.0", "0.0"),
    "float64": ("dgemm", "double", "1.0", "0.0"),
    "complex64": ("cgemm", "[2 x float]", "[float 1.0, float 0.0]", "zeroinitializer"),
    "complex128": (
        "zgemm",
        "[2 x double]",
        "[double 1.0, double 0.0]",
        "zeroinitializer",
    ),
}


SMALL = 2**28
"""Multiply-adds, times the bytes of an element, of a product of which BLAS's packing
shows; it computes larger ones as fast as anything."""

# The functions of `gemm.py`, by the name that plans have for them.
OWN = {"fnx_gemm_float32": "float32", "fnx_gemm_float64": "float64"}


def is_own(step: MatmulStep) -> bool:
    """Whether `gemm.py` computes a product: small, but some tiles, of a known type."""
    shape = tile(step.dtype.name)
    m, n, k = step.product.m, step.product.n, step.product.k
    if shape is None or m < shape.rows or n < shape.lanes:
        return False
    return m * n * k * step.dtype.itemsize <= SMALL


def routine(step: MatmulStep) -> tuple[str, str]:
    """The function that computes pieces of a product, and its parameters."""
    if is_own(step):
        sizes = ["i64"] * 3
        matrices = ["ptr, i64", *["ptr, i64, i64"] * 2]
        return f"fnx_gemm_{step.dtype.name}", ", ".join([*matrices, *sizes])
    return _GEMM[step.dtype.name][0], ", ".join(["ptr"] * 13)


@record
class Cut:
    """How the output of one product is cut: blocks of so many rows and columns."""

    rows: int
    columns: int
    down: int
    across: int

    @property
    def pieces(self) -> int:
        """The number of blocks."""
        return self.down * self.across


def cut(m: int, n: int, k: int, processors: int) -> Cut:
    """The blocks of an output of m rows and n columns.

    The longer side is halved: square blocks read least, and BLAS packs what it reads
    anew for each. There are as many as processors, if each is worth a thread.

    >>> cut(80, 80, 80, 4)
    Cut(rows=80, columns=80, down=1, across=1)
    >>> cut(1024, 1024, 256, 4)
    Cut(rows=512, columns=512, down=2, across=2)
    """
    rows, columns, pieces = m, n, 1
    while _is_cut_again(rows * columns * k, pieces, processors):
        if max(rows, columns) < 64:
            break
        if rows >= columns:
            rows = _half(rows)
        else:
            columns = _half(columns)
        pieces *= 2
    return Cut(rows, columns, -(-m // rows), -(-n // columns))


def _is_cut_again(work: int, pieces: int, processors: int) -> bool:
    if pieces < processors:
        return work >= 2 * LEAST
    return pieces < 2 * processors and work >= MANY


def _half(size: int) -> int:
    """Half, as a multiple of what fills BLAS's registers."""
    return -(-size // 32) * 16


def rounds_and_chunk(product: Product) -> tuple[int, int]:
    """The rounds of a product's function, and how many of them a thread takes."""
    pieces = cut(product.m, product.n, product.k, cpus()).pieces
    if pieces > 1:
        return product.stack * pieces, 1
    work = product.m * product.n * product.k
    return product.stack, max(CHUNK // work, 1)


def product_text(
    step: MatmulStep, name: str, constant: Callable[[str, str], str]
) -> str:
    """The function; `constant` gives the name of a number in memory."""
    product = step.product
    blocks = cut(product.m, product.n, product.k, cpus())
    addresses = [
        _address("out", product.out, step.dtype, ("row", "column")),
        _address("x", product.x, step.dtype, ("row", None)),
        _address("y", product.y, step.dtype, (None, "column")),
    ]
    lines = _place_in_stack(product.batch) + [row for rows in addresses for row in rows]
    body = "\n  ".join(lines)
    call = _own_call(step) if is_own(step) else _blas_call(step, constant)
    return f"""
define internal void @{name}(ptr %context, i64 %begin, i64 %end) {{
entry:
  %rows = alloca i32
  %columns = alloca i32
  %out = load ptr, ptr %context
  %x.at = getelementptr ptr, ptr %context, i64 1
  %x = load ptr, ptr %x.at
  %y.at = getelementptr ptr, ptr %context, i64 2
  %y = load ptr, ptr %y.at
  %any = icmp ult i64 %begin, %end
  br i1 %any, label %next, label %done
next:
  %round = phi i64 [ %begin, %entry ], [ %after, %next ]
  %item = udiv i64 %round, {blocks.pieces}
  %piece = urem i64 %round, {blocks.pieces}
  %down = udiv i64 %piece, {blocks.across}
  %across = urem i64 %piece, {blocks.across}
  %row = mul i64 %down, {blocks.rows}
  %column = mul i64 %across, {blocks.columns}
  %rows.left = sub i64 {product.m}, %row
  %rows.here = call i64 @llvm.umin.i64(i64 %rows.left, i64 {blocks.rows})
  %columns.left = sub i64 {product.n}, %column
  %columns.here = call i64 @llvm.umin.i64(i64 %columns.left, i64 {blocks.columns})
  {body}
  {call}
  %after = add i64 %round, 1
  %more = icmp ult i64 %after, %end
  br i1 %more, label %next, label %done
done:
  ret void
}}"""


def _own_call(step: MatmulStep) -> str:
    """A call of our function for a piece."""
    product = step.product
    operands = [f"ptr %out.here, i64 {product.out.leading}"]
    for name, matrices in (("x", product.x), ("y", product.y)):
        strides = [f"i64 {stride}" for stride in _strides(matrices)]
        operands.append(f"ptr %{name}.here, {', '.join(strides)}")
    sizes = f"i64 %rows.here, i64 %columns.here, i64 {product.k}"
    return f"call void @{routine(step)[0]}({', '.join(operands)}, {sizes})"


def _blas_call(step: MatmulStep, constant: Callable[[str, str], str]) -> str:
    """A call of BLAS for a piece.

    Row-major out = x @ y is column-major outᵀ = yᵀ @ xᵀ.
    """
    blas, type_, one, zero = _GEMM[step.dtype.name]
    product = step.product
    order = {False: constant("i8", str(ord("N"))), True: constant("i8", str(ord("T")))}
    return f"""%rows.short = trunc i64 %rows.here to i32
  store i32 %rows.short, ptr %rows
  %columns.short = trunc i64 %columns.here to i32
  store i32 %columns.short, ptr %columns
  call void @{blas}(
    ptr {order[product.y.transposed]}, ptr {order[product.x.transposed]},
    ptr %columns, ptr %rows, ptr {constant("i32", str(product.k))},
    ptr {constant(type_, one)},
    ptr %y.here, ptr {constant("i32", str(product.y.leading))},
    ptr %x.here, ptr {constant("i32", str(product.x.leading))},
    ptr {constant(type_, zero)},
    ptr %out.here, ptr {constant("i32", str(product.out.leading))})"""


def _place_in_stack(batch: tuple[int, ...]) -> list[str]:
    """The index of each axis of the stack, of the product number %item."""
    lines, left = [], "%item"
    for axis in reversed(range(1, len(batch))):
        lines += [
            f"%axis{axis} = urem i64 {left}, {batch[axis]}",
            f"%left{axis} = udiv i64 {left}, {batch[axis]}",
        ]
        left = f"%left{axis}"
    return [*lines, f"%axis0 = add i64 {left}, 0"]


def _strides(matrices: Matrices) -> tuple[int, int]:
    """The strides of a row and of a column."""
    leading = matrices.leading
    return (1, leading) if matrices.transposed else (leading, 1)


def _address(
    name: str,
    matrices: Matrices,
    dtype: np.dtype[Any],
    moves: tuple[str | None, str | None],
) -> list[str]:
    """Where the piece begins in an array: at which row and column, if these move."""
    steps = list(zip(moves, _strides(matrices), strict=True))
    steps += [(f"axis{n}", stride) for n, stride in enumerate(matrices.strides)]
    lines, total = [], str(matrices.offset)
    for index, stride in steps:
        if index is not None:
            lines += [
                f"%{name}.{index} = mul i64 %{index}, {stride}",
                f"%{name}.to.{index} = add i64 {total}, %{name}.{index}",
            ]
            total = f"%{name}.to.{index}"
    return [
        *lines,
        f"%{name}.bytes = mul i64 {total}, {dtype.itemsize}",
        f"%{name}.here = getelementptr i8, ptr %{name}, i64 %{name}.bytes",
    ]
