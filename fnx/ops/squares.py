"""Convolutions by kernels of three by three, and their gradients, square by square.

Four by four outputs come from six by six elements by 36 products in the place of 144,
once both are transformed (see `winograd.py`); so do three by three outputs, those of
the gradient of the kernel, from a cotangent of four by four. The error is some ten
times that of direct sums, so that whoever asks for a `precision` above the default one
gets those. Arrays have the features last, and the operands whole squares: `dense.py`,
next on the walk, pads them.
"""

from __future__ import annotations

import math
from typing import Any

from fnx import dtypes
from fnx.core.program import Literal
from fnx.core.trace import trace
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add
from fnx.ops.convolution import Convolution
from fnx.ops.dot import dot_general
from fnx.ops.elementwise import convert
from fnx.ops.rearrange import Ints
from fnx.ops.shape import permute, reshape
from fnx.ops.windows import Windows, patches
from fnx.ops.winograd import (
    INPUT,
    Matrix,
    add_sandwich,
    kernel_matrix,
    output_matrix,
    sandwich,
)
from fnx.records import record
from fnx.sizes import Size

SIDE = 4
"""The sides of the squares of outputs, or of the cotangent."""

TILE = SIDE + 2
"""The sides of the squares of input, which overlap."""

BYTES = 5 * 2**19
"""What the transformed squares of a slice take that are made at once."""

LEAST_SQUARES, LEAST_SUMMED = 64, 32
"""So many squares are worth transforming the kernel, or its gradient."""

LEAST_FEATURES = 16
"""Of fewer features transforms cost more than products."""

MOST_WASTE = 1.7
"""How many times the outputs the squares may have."""

FLOAT = dtypes.float32


@record
class Squares:
    """How the plane is cut: squares down and across, and blocks of rows of squares.

    `down` is a multiple of `blocks`; `together` blocks of a batch are made at once.
    """

    down: int
    across: int
    blocks: int
    together: int


def squares_of(
    shape: Ints, kernel: Ints, convolution: Convolution, precision: Any
) -> Squares | None:
    """How a convolution is cut in squares, or `None` where that is not wise.

    The shapes are those of both operands, before any padding.
    """
    windows, dims = convolution.windows, convolution.dims
    batch, feature, *space = dims.lhs_spec
    counts = windows.over(tuple([shape[d] for d in space]))
    summed = is_sum(windows, counts)
    plain = (1, 1)
    steps = windows.strides, windows.base_dilation, windows.dilation
    if len(space) != 2 or steps != (plain,) * 3 or convolution.groups > 1:
        return None
    if not (summed or windows.size == (3, 3)) or not _is_default(precision):
        return None
    n, c, made = shape[batch], shape[feature], kernel[dims.rhs_spec[0]]
    if summed:
        n, c = c, n
    if any(isinstance(size, Size) for size in (n, c, *windows.size, *counts)):
        return None  # how many squares go together depends on all of them
    plane = windows.size if summed else counts
    down, across = [-(-size // SIDE) for size in plane]
    wide = SIDE * SIDE * down * across > MOST_WASTE * math.prod(plane)
    least = LEAST_SUMMED if summed else LEAST_SQUARES
    if min(c, made) < LEAST_FEATURES or n * down * across < least or wide:
        return None
    return _cut(n, down, across, 4 * TILE * TILE * (c + made), 256 if summed else 128)


def is_sum(windows: Windows, counts: Ints) -> bool:
    """Whether the outputs are the three by three of a kernel's gradient."""
    return counts == (3, 3) and min(windows.size, default=0) >= SIDE


def _is_default(precision: Any) -> bool:
    each = precision if isinstance(precision, tuple) else (precision,)
    return all(one in (None, "default") for one in each)


def _cut(n: int, down: int, across: int, each: int, least: int) -> Squares:
    """Blocks of about as many squares as `BYTES` hold, or `least`."""
    most = max(BYTES // each, least)
    blocks = -(-down // max(most // across, 1))
    rows = -(-down // blocks)
    blocks = -(-down // rows)
    fitting = most // (rows * across)
    every = range(1, n * blocks + 1)
    together = max(i for i in every if n * blocks % i == 0 and i <= max(fitting, 1))
    return Squares(rows * blocks, across, blocks, together)


# ---------------------------------------------------------------- the steps


def add_rows(plan: Any, x: Any, kernel: Any, together: int) -> None:
    """From x (n, 4·down + 2, 4·across + 2, c) and a kernel (3, 3, c, o)."""
    features = kernel.shape[2:]
    turned = plan.value(ArrayType((TILE, TILE, *features), FLOAT))
    _transform(plan, "kernel", kernel, turned, kernel_matrix(3))

    def made(kernel: Any, x: Any) -> list[Any]:
        product = dot_general(
            _tiles(x, TILE, INPUT),
            kernel,
            contract=((5,), (2,)),
            batch=((0, 1), (0, 1)),
        )
        y = permute(sandwich(product, matrix=output_matrix(4)), dims=(2, 3, 0, 4, 1, 5))
        n, down, _, across, _, outs = y.shape
        return [reshape(y, shape=(n, SIDE * down, SIDE * across, outs))]

    program = trace(made, [turned.type, _part(x.type, together)]).program
    plan.loop(program, [turned], [], [x], length=x.shape[0] // together)


def add_sums(plan: Any, x: Any, kernel: Any, together: int) -> None:
    """From x (n, 4·down + 2, 4·across + 2, c) and a kernel (n, 4·down, 4·across, o)."""
    out = plan.outputs[0]
    total = plan.value(ArrayType((TILE, TILE, *out.shape[2:]), FLOAT))

    def part(x: Any, kernel: Any) -> Any:
        return dot_general(
            _tiles(x, TILE, INPUT),
            _tiles(kernel, SIDE, kernel_matrix(SIDE)),
            contract=((2, 3, 4), (2, 3, 4)),
            batch=((0, 1), (0, 1)),
        )

    rounds = x.shape[0] // together
    types = [_part(x.type, together), _part(kernel.type, together)]
    if rounds == 1:
        program = trace(lambda x, kernel: [part(x, kernel)], types).program
        plan.loop(program, [], [], [x, kernel], length=1, outputs=[total])
    else:
        types = [total.type, *types]
        program = trace(lambda t, x, y: [add(t, part(x, y))], types).program
        start = plan.filled(Literal(0, ArrayType((), FLOAT)), total.shape)
        rows = [x, kernel]
        plan.loop(program, [], [start], rows, length=rounds, outputs=[total])
    _transform(plan, "sums", total, out, output_matrix(3))


def _tiles(x: Any, side: int, matrix: Matrix) -> Any:
    """The squares of x (n, height, width, c), transformed: (6, 6, n, down, across, c).

    Whether they overlap or not, they begin four elements apart.
    """
    x = x if x.dtype == FLOAT else convert(x, dtype=FLOAT)
    windows = Windows.of((1, side, side, 1), strides=(1, SIDE, SIDE, 1))
    # The axes of length 1 come last, so that no reshape is before the transform.
    found = patches(x, windows=windows, dims=(5, 6, 0, 1, 2, 3, 4, 7))
    found = sandwich(found, matrix=matrix)
    return reshape(found, shape=found.shape[:6])


def _transform(plan: Any, name: str, x: Any, out: Any, matrix: Matrix) -> None:
    """A kernel that transforms the squares of the two leading axes."""

    def build(k: Any, index: Any, buffer: Any, x: Any) -> None:
        add_sandwich(k, index, buffer, x, matrix, out.layout)

    plan.kernel(name, [x], out, out.shape[2:], build)


def _part(type: ArrayType, together: int) -> ArrayType:
    """The type of so many of the leading axis."""
    return type.with_shape((together, *type.shape[1:])).strong()
