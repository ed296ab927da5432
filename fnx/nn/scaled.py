"""Products of matrices in few bits: scaled_matmul, scaled_dot_general.

A row of a matrix is cut into blocks, and each block has a scale, so that its elements
fit into floats of 8 or 4 bits. Receives matrices and scales, or matrices that are to be
rounded so; gives products. The formats are those of the OCP Microscaling specification
1.0 ("mxfp8") and NVIDIA's "nvfp4". Next on the walk: `initializers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes

import fnx.numpy as np_
from fnx import dtypes, errors
from fnx.api.custom import custom_vjp
from fnx.core.array import Array
from fnx.lax import dot_general
from fnx.nn.attention import check_sizes
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array
from fnx.records import record


@record(eq=False)
class BlockScaleConfig:
    """How an operand of `scaled_dot_general` is rounded.

    Blocks of `block_size` elements become `data_type`, each with a scale of
    `scale_type`; all scales are in units of `global_scale`, if there is one.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Array | None = None


def get_scaled_dot_general_config(
    mode: str, global_scale: ArrayLike | None = None
) -> BlockScaleConfig:
    """A format for `scaled_dot_general`: "mxfp8" or "nvfp4".

    "mxfp8" has float8_e4m3fn in blocks of 32, with powers of two as scales; "nvfp4"
    float4_e2m1fn in blocks of 16, with float8_e4m3fn as scales, in units of
    `global_scale`, a float32 of one element (1 unless given).

    Raises `OptionError` for another mode, or a global scale that "mxfp8" has not.

    >>> get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    asker = "get_scaled_dot_general_config"
    if mode == "mxfp8":
        if global_scale is not None:
            raise errors.OptionError(f"{asker}: global_scale is for nvfp4 alone")
        data, scale = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
        return BlockScaleConfig(mode, 32, data, scale)
    if mode != "nvfp4":
        raise errors.OptionError(f"{asker}: mode is 'mxfp8' or 'nvfp4', got {mode!r}")
    unit = as_array(asker, 1.0 if global_scale is None else global_scale)
    if unit.size != 1:
        raise errors.ShapeError(
            f"{asker}: global_scale must have one element, got {unit.type}"
        )
    unit = np_.reshape(np_.asarray(unit, dtypes.float32), (1,))
    data, scale = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn
    return BlockScaleConfig(mode, 16, data, scale, unit)


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    preferred_element_type: DTypeLike = dtypes.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Array:
    """`lax.dot_general` of operands that are rounded to few bits, block by block.

    `configs` are the formats of `lhs`, of `rhs` and of the cotangent, each of
    `get_scaled_dot_general_config`; without them nothing is rounded. Blocks lie along
    the contracted axes, and the last one of a row may be short. Sums are in float32.
    The cotangent passes the rounding as if there were none, and the products that make
    the gradients are of rounded operands, too: training in these formats is emulated.

    Raises `ArgumentError` where there are not three configs, `OptionError` for an
    `implementation`, since there is one.

    >>> import numpy as np
    >>> configs = [get_scaled_dot_general_config("mxfp8")] * 3
    >>> x = np.float32([[1.0, 1.03]])
    >>> scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=configs).item()
    2.0
    """
    if implementation is not None:
        raise errors.OptionError(
            f"scaled_dot_general: implementation={implementation!r}: there is one, "
            "which None stands for"
        )
    left, right = [as_array("scaled_dot_general", x) for x in (lhs, rhs)]
    wanted = dtypes.as_dtype(preferred_element_type)
    if configs is None:
        return dot_general(
            left, right, dimension_numbers, preferred_element_type=wanted
        )
    if len(configs) != 3:
        raise errors.ArgumentError(
            "scaled_dot_general: configs are of lhs, of rhs and of the cotangent, got "
            f"{len(configs)}"
        )
    (left_sum, right_sum), (left_batch, right_batch) = dimension_numbers
    one, batch, rows = _rows(left, left_batch, left_sum)
    two, _, columns = _rows(right, right_batch, right_sum)
    if one.shape[::2] != two.shape[::2]:
        raise errors.ShapeError(
            f"scaled_dot_general({left.type}, {right.type}): the axes of "
            f"dimension_numbers={dimension_numbers!r} differ in size"
        )
    units = tuple([_unit(config) for config in configs])
    product = _rounded_product(*configs)(one, two, units)
    return np_.reshape(np_.asarray(product, wanted), (*batch, *rows, *columns))


def _rows(
    x: Array, batch: Sequence[int], contracted: Sequence[int]
) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """The operand as (batch, rows, contracted), and the sizes of batch and rows."""
    first, last = [[axis % x.ndim for axis in axes] for axes in (batch, contracted)]
    rest = [axis for axis in range(x.ndim) if axis not in (*first, *last)]
    sizes = [tuple([x.shape[axis] for axis in axes]) for axes in (first, rest, last)]
    moved = np_.transpose(x, (*first, *rest, *last))
    shape = [math.prod(each) for each in sizes]
    return np_.reshape(moved, shape), sizes[0], sizes[1]


def _unit(config: BlockScaleConfig) -> Array:
    """What the scales of a format count."""
    given = config.global_scale
    return np_.ones(1, dtypes.float32) if given is None else given


def _rounded_product(
    left: BlockScaleConfig, right: BlockScaleConfig, cotangent: BlockScaleConfig
) -> Any:
    """The product of matrices (B, M, K) and (B, N, K), and its gradients.

    It also takes the units of the three formats' scales.
    """

    @custom_vjp
    def product(x: Array, y: Array, units: tuple[Array, ...]) -> Array:
        return _product((x, left, units[0]), (y, right, units[1]))

    def forward(x: Array, y: Array, units: tuple[Array, ...]) -> tuple[Array, Any]:
        return product(x, y, units), (x, y, units)

    def backward(residuals: Any, ct: Array) -> tuple[Any, ...]:
        x, y, units = residuals
        x_turned, y_turned, turned = [np_.swapaxes(a, 1, 2) for a in (x, y, ct)]
        of_x = _product((ct, cotangent, units[2]), (y_turned, right, units[1]))
        of_y = _product((turned, cotangent, units[2]), (x_turned, left, units[0]))
        return np_.asarray(of_x, x.dtype), np_.asarray(of_y, y.dtype), None

    product.defvjp(forward, backward)
    return product


Operand = tuple[Array, BlockScaleConfig, Array]
"""A matrix, its format, and the unit of its scales."""


def _product(left: Operand, right: Operand) -> Array:
    """The product of two matrices, each rounded in its format, in float32."""
    return np_.einsum("bmk,bnk->bmn", _rounded(*left), _rounded(*right))


def _rounded(x: Array, config: BlockScaleConfig, unit: Array) -> Array:
    """What is left of a matrix in a format, in float32."""
    wide = np_.asarray(x, dtypes.float32)
    size, width = config.block_size, x.shape[-1]
    blocks = -(-width // size)
    padded = np_.pad(wide, ((0, 0), (0, 0), (0, blocks * size - width)))
    apart = np_.reshape(padded, (*x.shape[:-1], blocks, size))
    finite = np_.isfinite(apart)
    largest = float(ml_dtypes.finfo(config.data_type).max)
    sizes = np_.where(finite, np_.abs(apart), 0)
    wanted = np_.max(sizes, axis=-1, keepdims=True, initial=0.0)
    scales = _scales(np_.divide(wanted, largest), config, unit)
    # A block of zeros, or of numbers below the least scale, becomes zeros.
    some = np_.greater(scales, 0)
    units = np_.where(some, np_.divide(apart, np_.where(some, scales, 1)), 0)
    data = _stored(np_.clip(units, -largest, largest), config.data_type)
    # Not every format has infinities and NaN: they stay as they are.
    whole = np_.multiply(np_.where(finite, data, apart), scales)
    return np_.reshape(whole, padded.shape)[..., :width]


def _scales(wanted: Array, config: BlockScaleConfig, unit: Array) -> Array:
    """Scales of a format, not less than what is wanted where these are powers of two.

    So no element is beyond the largest; other scales are the nearest ones.
    """
    if config.mode == "mxfp8":
        mantissa, exponent = np_.frexp(wanted)
        exponent = np_.where(np_.equal(mantissa, 0.5), exponent - 1, exponent)
        return np_.ldexp(np_.ones_like(wanted), np_.clip(exponent, -126, 127))
    most = float(ml_dtypes.finfo(config.scale_type).max)
    steps = np_.clip(np_.divide(wanted, unit), 0, most)
    return np_.multiply(_stored(steps, config.scale_type), unit)


def _stored(x: Array, dtype: Any) -> Array:
    """What is left of float32 after it was stored in few bits."""
    return np_.asarray(np_.asarray(x, dtype), dtypes.float32)


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = dtypes.float32,
) -> Array:
    """Products of matrices whose rows are in blocks, each with a scale of its own.

    `lhs` (B, M, K) and `rhs` (B, N, K) give (B, M, N): sums over K of products of
    scaled elements, in float32 (in float64 if that is preferred). The scales are
    (B, M, K1) and (B, N, K2) for blocks of K / K1 and K / K2 elements.

    Raises `ShapeError`, by the argument's name, where sizes do not fit.

    >>> import numpy as np
    >>> a, b = np.float32([[[1, 2, 3, 4]]]), np.ones((1, 1, 4), np.float32)
    >>> scaled_matmul(a, b, np.float32([[[1, 10]]]), np.float32([[[1]]])).item()
    73.0
    """
    wanted = dtypes.as_dtype(preferred_element_type)
    wide = np_.promote_types(wanted, dtypes.float32)
    left, right = [as_array("scaled_matmul", x) for x in (lhs, rhs)]
    check_sizes("scaled_matmul", "lhs", left, (None, None, None))
    batch, _, width = left.shape
    check_sizes("scaled_matmul", "rhs", right, (batch, None, width))
    scales = {"lhs_scales": (left, lhs_scales), "rhs_scales": (right, rhs_scales)}
    whole = [_scaled(name, x, s, wide) for name, (x, s) in scales.items()]
    return np_.asarray(np_.einsum("bmk,bnk->bmn", *whole), wanted)


def _scaled(name: str, x: Array, scales: Any, dtype: Any) -> Array:
    """A matrix times its scales, block by block."""
    factors = as_array("scaled_matmul", scales)
    check_sizes("scaled_matmul", name, factors, (*x.shape[:2], None))
    blocks = factors.shape[2]
    if not blocks or x.shape[2] % blocks:
        raise errors.ShapeError(
            f"scaled_matmul: {name} must divide the {x.shape[2]} elements of a row "
            f"into equal blocks, got {factors.type}"
        )
    apart = np_.reshape(np_.asarray(x, dtype), (*x.shape[:2], blocks, -1))
    scaled = np_.multiply(apart, np_.asarray(factors, dtype)[..., None])
    return np_.reshape(scaled, x.shape)
