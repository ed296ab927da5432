"""What gradients of layers have beside products, as epilogues of cuBLASLt.

The gradient of relu(x @ w + b) passes where the sum was not at most 0, and so where it
was NaN. The library keeps that as bits: RELU_AUX writes them behind one product, DRELU
reads them behind another one. Our kernels for both are here, so that each step may be
the library's or ours, whatever the other one is. And the gradient of a bias is the sum
of a matrix' rows: of what DRELU gives, or of an operand of the product that is the
gradient of the weights. What a kernel computes is compared with what we would write for
the same. Receives steps and kernels, gives answers and kernels.
Next on the walk: `blaslt_before.py`.
"""

from __future__ import annotations

import math
from functools import cache

from fnx import dtypes
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import Expr, IndexExpr, linear_offset
from fnx.kernel.grid import grid_schedule
from fnx.kernel.ir import Kernel
from fnx.runtime.plan import MatmulStep
from fnx_cuda.blaslt_api import MASK_UNIT, Epilogue
from fnx_cuda.blaslt_epilogue import (
    BIAS,
    COTANGENT,
    PRODUCT,
    Element,
    alike,
    is_dense,
    read,
)
from fnx_cuda.products_access import DType, Ints

_BYTE = 8


def mask_leading(columns: int) -> int:
    """The bits that the library wants for each row of a mask.

    >>> mask_leading(200)
    256
    """
    return -(-columns // MASK_UNIT) * MASK_UNIT


def aux_leading(epilogue: Epilogue, columns: int) -> int:
    """The leading dimension of what an epilogue keeps for derivatives; 0 for nothing.

    Values before GELU lie row after row, without gaps.
    """
    if not epilogue.has_aux:
        return 0
    return mask_leading(columns) if epilogue.masks else columns


def mask_shape(step: MatmulStep) -> Ints:
    """The rows of a mask for a product, and the bytes of each."""
    return step.product.m, mask_leading(step.product.n) // _BYTE


def mask_kernel(dtype: DType, rows: int, columns: int) -> Kernel:
    """Makes bits of what ReLU gave: 1 where it is not at most 0, the lowest first."""
    k = KernelBuilder()
    room = mask_leading(columns) // _BYTE
    given = k.buffer("given", dtype, rows * columns, "in")
    mask = k.buffer("mask", dtypes.uint8, rows * room, "out")
    row, byte = k.domain((rows, room))
    none, zero = k.constant(0, dtypes.uint8), k.constant(0, dtype)
    bits = none
    for number in range(_BYTE):
        column = byte * _BYTE + number

        def bit(column=column, number=number):  # type: ignore[no-untyped-def]
            value = k.load(given, row * columns + column)
            one = k.constant(1 << number, dtypes.uint8)
            return k.op("select", k.op("le", value, zero), none, one)

        inside = k.inside(column, 0, columns)
        bits = k.op("or", bits, k.where(inside, bit, lambda: none))
    k.store(mask, row * room + byte, bits)
    return k.finish("mask", grid_schedule)


def masked_kernel(dtype: DType, rows: int, columns: int) -> Kernel:
    """Keeps the elements of a product whose bits are 1, and has 0 for the others."""
    k = KernelBuilder()
    room = mask_leading(columns) // _BYTE
    given = k.buffer("given", dtype, rows * columns, "in")
    mask = k.buffer("mask", dtypes.uint8, rows * room, "in")
    out = k.buffer("out", dtype, rows * columns, "out")
    row, column = k.domain((rows, columns))
    at = row * columns + column
    bits = k.load(mask, row * room + column // _BYTE)
    bits = k.convert(bits, dtypes.uint32)
    number = k.index_value(column % _BYTE, dtypes.uint32)
    bit = k.op("and", k.op("shr_logical", bits, number), k.constant(1, dtypes.uint32))
    passes = k.convert(bit, dtypes.bool_)
    value = k.op("select", passes, k.load(given, at), k.constant(0, dtype))
    k.store(out, at, value)
    return k.finish("masked", grid_schedule)


def derives_relu(
    step: MatmulStep, kernel: Kernel, layer: int, made: int
) -> Element | None:
    """A kernel that passes a product (of the buffer `made`) where a layer did.

    The buffer `layer` is that of the layer's product, to which a bias is added.
    """
    if not is_dense(step):
        return None
    names = {kernel.buffers[layer]: PRODUCT, kernel.buffers[made]: COTANGENT}
    element = read(step, kernel, names)
    if element is None or element.bias is None:
        return None
    template = _relu_derivative(step.out_dtype)
    return element if alike(element.value, template, names) else None


@cache
def _relu_derivative(dtype: DType) -> Expr:
    k = KernelBuilder()
    product, bias, cotangent = [
        k.load(k.buffer(name, dtype, 1, "in"), 0) for name in (PRODUCT, BIAS, COTANGENT)
    ]
    zero = k.constant(0, dtype)
    blocked = k.op("le", k.op("add", product, bias), zero)
    made: Expr = k.op("select", blocked, zero, cotangent)
    return made


# ---------------------------------------------------------------- sums of rows


def sums_rows(kernel: Kernel, dtype: DType, shape: Ints) -> bool:
    """Whether a kernel adds up the rows of an array: over all axes but the last."""
    if len(shape) < 2 or 0 in shape or len(kernel.buffers) != 2:
        return False
    return kernel.key == _sum_key(dtype, shape)


@cache
def _sum_key(dtype: DType, shape: Ints) -> object:
    *rows, columns = shape
    k = KernelBuilder()
    given = k.buffer("given", dtype, columns * math.prod(rows), "in")
    out = k.buffer("out", dtype, columns, "out")
    (column,) = k.domain((columns,))

    def value(index: tuple[IndexExpr, ...]) -> Expr:
        made: Expr = k.load(given, linear_offset((*index, column), shape))
        return made

    k.store(out, column, k.fold("add", "rows", rows, value))
    return k.finish("sums", grid_schedule).key


def sums_of_operand(step: MatmulStep, side: str, size: int) -> Epilogue | None:
    """What has the library sum up the rows of an operand, over which it sums anyway.

    The operand is all `size` elements of an array. That of y is the library's A; x is
    transposed, so that its rows are summed over.
    """
    product = step.product
    if product.batch or step.tf32 or step.dtype != step.out_dtype:
        return None
    columns = product.n if side == "y" else product.m
    operand = product.y if side == "y" else product.x
    is_rows = operand.transposed == (side == "x")
    whole = not operand.offset and operand.leading == columns
    if not is_rows or not whole or product.k * columns != size:
        return None
    return Epilogue.BGRADA if side == "y" else Epilogue.BGRADB
