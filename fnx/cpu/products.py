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
from fnx.cpu.grain import Share
from fnx.cpu.llvm import Numbers
from fnx.cpu.pool import RUN, RUN_SHORT
from fnx.cpu.threads import cpus
from fnx.records import record
from fnx.runtime.plan import MatmulStep, Matrices
from fnx.sizes import Size, lesser, surely_at_most, usual

Operand = Callable[[int | Size], str]
"""Gives a number as an operand, which may be known only when the program runs."""

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


SHORT = 2**23
"""Multiply-adds, times the bytes of an element, of products that are over before a
parked worker is there: some forty microseconds."""

SMALL = 2**28
"""Multiply-adds, times the bytes of an element, of a product of which BLAS's packing
shows; it computes larger ones as fast as anything."""

NARROW = 128
"""Columns of products that `gemm.py` computes faster, however large: BLAS reads as much
for few columns as for many, and packs it."""

# The functions of `gemm.py`, by the name that plans have for them.
OWN = {"fnx_gemm_float32": "float32", "fnx_gemm_float64": "float64"}


def is_own(step: MatmulStep) -> bool:
    """Whether `gemm.py` computes a product: small or narrow, but some tiles."""
    shape = tile(step.dtype.name)
    m, n, k = step.product.m, step.product.n, step.product.k
    if shape is None or usual(m) < shape.rows or not surely_at_most(shape.lanes, n):
        return False
    small = bool(usual(m * n * k) * step.dtype.itemsize <= SMALL)
    return small or surely_at_most(n, NARROW)


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

    rows: int | Size
    columns: int | Size
    down: int | Size
    across: int | Size

    @property
    def pieces(self) -> int | Size:
        """The number of blocks."""
        return self.down * self.across


def cut(m: int | Size, n: int | Size, k: int | Size, processors: int) -> Cut:
    """The blocks of an output of m rows and n columns.

    The longer side is halved: square blocks read least, and BLAS packs what it reads
    anew for each. There are as many as processors, if each is worth a thread.

    >>> cut(80, 80, 80, 4)
    Cut(rows=80, columns=80, down=1, across=1)
    >>> cut(1024, 1024, 256, 4)
    Cut(rows=512, columns=512, down=2, across=2)
    """
    if isinstance(m, Size) or isinstance(n, Size):
        return _cut_any(m, n, usual(k), processors)
    rows, columns, pieces, k = m, n, 1, usual(k)
    while _is_cut_again(rows * columns * k, pieces, processors):
        if max(rows, columns) < 64:
            break
        if rows >= columns:
            rows = _half(rows)
        else:
            columns = _half(columns)
        pieces *= 2
    return Cut(rows, columns, -(-m // rows), -(-n // columns))


def _cut_any(m: int | Size, n: int | Size, k: int, processors: int) -> Cut:
    """The blocks of an output of which nobody knows how many rows it will have.

    Or columns, which are cut then. There are as many as processors at most, each with
    what is worth a thread; the last ones may be empty.
    """
    longer, other = (m, n) if isinstance(m, Size) else (n, m)
    least = _half(2 * max(LEAST // (usual(other) * k), 32))
    each = least + longer // (16 * processors) * 16
    count = lesser((longer - 1) // least + 1, processors)
    return Cut(each, n, count, 1) if isinstance(m, Size) else Cut(m, each, 1, count)


def _is_cut_again(work: int, pieces: int, processors: int) -> bool:
    if pieces < processors:
        return work >= 2 * LEAST
    return pieces < 2 * processors and work >= MANY


def _half(size: int) -> int:
    """Half, as a multiple of what fills BLAS's registers."""
    return -(-size // 32) * 16


def shared_pieces(step: MatmulStep) -> Share:
    """The rounds of a product's function, and how threads share them."""
    product = step.product
    pieces = cut(product.m, product.n, product.k, cpus()).pieces
    work = usual(product.m * product.n * product.k)
    every = product.stack * product.m * product.n * product.k * step.dtype.itemsize
    run = RUN_SHORT if surely_at_most(every, SHORT) else RUN
    if pieces != 1:
        return Share(product.stack * pieces, 1, run)
    return Share(product.stack, max(CHUNK // work, 1), run)


def product_text(
    step: MatmulStep,
    name: str,
    constant: Callable[[str, str], str],
    numbers: Numbers,
) -> str:
    """The function; `constant` gives the name of a number in memory."""
    product, size = step.product, numbers.operand
    blocks = cut(product.m, product.n, product.k, cpus())
    places = [
        _place_in_stack(product.batch, size),
        _address("out", product.out, step.dtype, ("row", "column"), size),
        _address("x", product.x, step.dtype, ("row", None), size),
        _address("y", product.y, step.dtype, (None, "column"), size),
    ]
    body = "\n  ".join([line for lines in places for line in lines])
    own = is_own(step)
    call = _own_call(step, size) if own else _blas_call(step, constant, numbers)
    rest = f"""  %rows = alloca i32
  %columns = alloca i32
  %out = load ptr, ptr %context
  %x.at = getelementptr ptr, ptr %context, i64 1
  %x = load ptr, ptr %x.at
  %y.at = getelementptr ptr, ptr %context, i64 2
  %y = load ptr, ptr %y.at
  %any = icmp ult i64 %begin, %end
  br i1 %any, label %next, label %done
next:
  %round = phi i64 [ %begin, %entry ], [ %after, %made ]
  %item = udiv i64 %round, {size(blocks.pieces)}
  %piece = urem i64 %round, {size(blocks.pieces)}
  %down = udiv i64 %piece, {size(blocks.across)}
  %across = urem i64 %piece, {size(blocks.across)}
  %row = mul i64 %down, {size(blocks.rows)}
  %column = mul i64 %across, {size(blocks.columns)}
  %rows.behind = sub i64 {size(product.m)}, %row
  %rows.left = call i64 @llvm.smax.i64(i64 %rows.behind, i64 0)
  %rows.here = call i64 @llvm.umin.i64(i64 %rows.left, i64 {size(blocks.rows)})
  %columns.behind = sub i64 {size(product.n)}, %column
  %columns.left = call i64 @llvm.smax.i64(i64 %columns.behind, i64 0)
  %columns.here = call i64 @llvm.umin.i64(i64 %columns.left, i64 {size(blocks.columns)})
  %elements = mul i64 %rows.here, %columns.here
  %some = icmp ne i64 %elements, 0
  br i1 %some, label %make, label %made
make:
  {body}
  {call}
  br label %made
made:
  %after = add i64 %round, 1
  %more = icmp ult i64 %after, %end
  br i1 %more, label %next, label %done
done:
  ret void
}}"""
    head = f"define internal void @{name}(ptr %context, i64 %begin, i64 %end) {{"
    return "\n".join(["", head, "entry:", *numbers.lines, rest])


def _own_call(step: MatmulStep, size: Operand) -> str:
    """A call of our function for a piece."""
    product = step.product
    operands = [f"ptr %out.here, i64 {size(product.out.leading)}"]
    for name, matrices in (("x", product.x), ("y", product.y)):
        strides = [f"i64 {size(stride)}" for stride in _strides(matrices)]
        operands.append(f"ptr %{name}.here, {', '.join(strides)}")
    sizes = f"i64 %rows.here, i64 %columns.here, i64 {size(product.k)}"
    return f"call void @{routine(step)[0]}({', '.join(operands)}, {sizes})"


def _blas_call(
    step: MatmulStep, constant: Callable[[str, str], str], numbers: Numbers
) -> str:
    """A call of BLAS for a piece.

    Row-major out = x @ y is column-major outᵀ = yᵀ @ xᵀ.
    """
    blas, type_, one, zero = _GEMM[step.dtype.name]
    product = step.product
    order = {False: constant("i8", str(ord("N"))), True: constant("i8", str(ord("T")))}

    def address(number: int | Size) -> str:
        if isinstance(number, Size):
            return numbers.address(number)
        return constant("i32", str(number))

    return f"""%rows.short = trunc i64 %rows.here to i32
  store i32 %rows.short, ptr %rows
  %columns.short = trunc i64 %columns.here to i32
  store i32 %columns.short, ptr %columns
  call void @{blas}(
    ptr {order[product.y.transposed]}, ptr {order[product.x.transposed]},
    ptr %columns, ptr %rows, ptr {address(product.k)},
    ptr {constant(type_, one)},
    ptr %y.here, ptr {address(product.y.leading)},
    ptr %x.here, ptr {address(product.x.leading)},
    ptr {constant(type_, zero)},
    ptr %out.here, ptr {address(product.out.leading)})"""


def _place_in_stack(batch: tuple[int, ...], size: Operand) -> list[str]:
    """The index of each axis of the stack, of the product number %item."""
    lines, left = [], "%item"
    for axis in reversed(range(1, len(batch))):
        lines += [
            f"%axis{axis} = urem i64 {left}, {size(batch[axis])}",
            f"%left{axis} = udiv i64 {left}, {size(batch[axis])}",
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
    size: Operand,
) -> list[str]:
    """Where the piece begins in an array: at which row and column, if these move."""
    steps = list(zip(moves, _strides(matrices), strict=True))
    steps += [(f"axis{n}", stride) for n, stride in enumerate(matrices.strides)]
    lines, total = [], size(matrices.offset)
    for index, stride in steps:
        if index is not None:
            lines += [
                f"%{name}.{index} = mul i64 %{index}, {size(stride)}",
                f"%{name}.to.{index} = add i64 {total}, %{name}.{index}",
            ]
            total = f"%{name}.to.{index}"
    return [
        *lines,
        f"%{name}.bytes = mul i64 {total}, {dtype.itemsize}",
        f"%{name}.here = getelementptr i8, ptr %{name}, i64 %{name}.bytes",
    ]
