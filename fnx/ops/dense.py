"""Convolutions as matrix products: operands brought into a form, and the steps.

`written_dense` pads and permutes the operands, in the place of the equation, into one
of the forms of `forms.py`, or into whole squares for `squares.py`; where the patches of
one image are large, it cuts images in blocks of rows, which become part of the batch.
`add_dense` adds a loop over slices of the batch, so that patches stay in the cache.
Next on the walk: `families.py` and `fnx.core.program`, of which programs are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fnx import dtypes
from fnx.core.program import Eqn, Literal
from fnx.core.trace import trace
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add
from fnx.ops.convolution import Convolution
from fnx.ops.dot import DType
from fnx.ops.elementwise import convert
from fnx.ops.forms import Form, form_product, is_plain
from fnx.ops.phases import has_phases, in_phases
from fnx.ops.pieces import pad, padded_along, part_of, slice_
from fnx.ops.rearrange import Ints
from fnx.ops.rewriting import rewritten
from fnx.ops.shape import permute, reshaped
from fnx.ops.squares import (
    SIDE,
    Squares,
    add_rows,
    add_sums,
    is_sum,
    squares_of,
)
from fnx.ops.windows import Windows, patches
from fnx.sizes import Size, surely_at_most, surely_below, usual

PATCHES = 4 * 2**20
"""The bytes of patches that are made at once, if one of the batch is no more."""

FEWEST = 4
"""Of so few output features in a group a fold is no slower than BLAS."""

LEAST = 2**14
"""Multiply-adds that are worth a call of BLAS."""

TOGETHER = 2**22
"""Up to so many multiply-adds, replicas gain more by not waking threads than they lose
where the gradient of each one's kernel is a group, which BLAS does not multiply."""


MANY = 8
"""So many features make rows that are worth laying out one after the other."""


def is_dense(lhs: ArrayType, rhs: ArrayType, params: Mapping[str, Any]) -> bool:
    """Whether it is worth products of matrices, of dtypes that BLAS multiplies."""
    out = params["preferred_element_type"] or lhs.dtype
    convolution: Convolution = params["convolution"]
    if not dtypes.is_float(out) or dtypes.compute_dtype(out) not in _REAL:
        return False
    made = rhs.shape[convolution.dims.rhs_spec[0]] // convolution.groups
    summed = _summands(rhs, convolution)
    work = multiply_adds(lhs, rhs, convolution)
    return bool(
        usual(made) >= FEWEST and usual(summed) >= FEWEST and usual(work) >= LEAST
    )


def multiply_adds(lhs: ArrayType, rhs: ArrayType, convolution: Convolution) -> int:
    """How many there are, those with padding included."""
    size = math.prod(convolution.output_shape(lhs.shape, rhs.shape))
    return size * _summands(rhs, convolution)


def _summands(rhs: ArrayType, convolution: Convolution) -> int:
    """How many products are added up for one element of the output."""
    return rhs.shape[convolution.dims.rhs_spec[1]] * convolution.windows.count


_REAL = (dtypes.float32, dtypes.float64)


# ---------------------------------------------------------------- into a form


def written_dense(primitive: Any, eqn: Eqn) -> Sequence[Eqn] | None:
    """Equations that bring the operands into a form; `None` if they are in one."""
    lhs, rhs = [atom.type for atom in eqn.inputs]
    convolution: Convolution = eqn.params["convolution"]
    precision, out = eqn.params["precision"], eqn.outputs[0].type.dtype
    if has_phases(convolution):

        def phases(x: Any, kernel: Any) -> Any:
            return in_phases(primitive, x, kernel, convolution, out, precision)

        return rewritten(eqn, phases)
    squares = _squares(lhs, rhs, convolution, out, precision)
    if squares is not None:
        if _is_square(lhs, convolution):
            return None

        def cut(x: Any, kernel: Any) -> Any:
            return _cut_in_squares(primitive, x, kernel, convolution, out, squares)

        return rewritten(eqn, cut)
    form = _form(convolution, lhs.shape)
    plain = is_plain(convolution, lhs.shape)
    whole = plain or _blocks(form, convolution, lhs.shape, out) == 1
    if _is_in(form, convolution) and out in _REAL and whole and not plain:
        return None

    def dense(x: Any, kernel: Any) -> Any:
        return _dense(primitive, x, kernel, convolution, form, out, precision)

    return rewritten(eqn, dense)


def _squares(
    lhs: ArrayType, rhs: ArrayType, convolution: Convolution, out: DType, precision: Any
) -> Squares | None:
    """How it is cut in squares, if it is."""
    if dtypes.compute_dtype(out) != dtypes.float32:
        return None
    return squares_of(lhs.shape, rhs.shape, convolution, precision)


def _is_square(lhs: ArrayType, convolution: Convolution) -> bool:
    """Whether a convolution that is cut in squares has whole ones, in its form."""
    windows = convolution.windows
    space = tuple([lhs.shape[d] for d in convolution.dims.lhs_spec[2:]])
    form = Form(last=True, summed=is_sum(windows, windows.over(space)))
    return _is_in(form, convolution) and all(n % SIDE == 2 for n in space)


def _cut_in_squares(
    primitive: Any,
    x: Any,
    kernel: Any,
    convolution: Convolution,
    out: DType,
    squares: Squares,
) -> Any:
    """The convolution of operands with whole squares, in blocks of rows of them."""
    windows, dims = convolution.windows, convolution.dims
    space = tuple([x.shape[d] for d in dims.lhs_spec[2:]])
    counts = windows.over(space)
    form = Form(last=True, summed=is_sum(windows, counts))
    target = form.dims(4)
    sides = SIDE * squares.down, SIDE * squares.across
    # Beyond the padding there are zeros up to the end of the last square.
    more = [
        (low, n + 2 - low - size)
        for low, n, size in zip(windows.low, sides, space, strict=True)
    ]
    x = _padded(x, replace(windows, padding=tuple(more)), dims.lhs_spec[2:])
    x = _respecified(x, dims.lhs_spec, target.lhs_spec)
    kernel = _respecified(kernel, dims.rhs_spec, target.rhs_spec)
    n, blocks = x.shape[0], squares.blocks
    rows = sides[0] // blocks
    if blocks > 1:
        cut = Windows.of((rows + 2,), strides=(rows,)).beside(1, 2)
        found = patches(x, windows=cut, dims=(0, 1, 5, 2, 3, 4, 6, 7))
        x = reshaped(found, (n * blocks, rows + 2, *x.shape[2:]))
    if form.summed:
        high = [(0, 0), *[(0, n - k) for n, k in zip(sides, windows.size, strict=True)]]
        around = Windows.of((1,) * 4, padding=(*high, (0, 0)))
        kernel = _padded(kernel, around, (0, 1, 2, 3))
        kernel = reshaped(kernel, (n * blocks, rows, *kernel.shape[2:]))
    size = (rows, sides[1]) if form.summed else (3, 3)
    inside = Convolution(target, Windows.of(size))
    y = primitive(x, kernel, convolution=inside, preferred_element_type=dtypes.float32)
    if not form.summed:
        y = reshaped(y, (n, *sides, y.shape[-1]))
        y = slice_(y, start=(0,) * 4, stop=(n, *counts, y.shape[-1]))
    return _in(out, _respecified(y, target.out_spec, dims.out_spec))


def _form(convolution: Convolution, lhs: Ints) -> Form:
    """The form that the operands are nearest to.

    Patches are made fastest with the features last, however they lie before, unless
    there are few, or patches are the elements as they are.
    """
    (batch, feature, *space), (_, ins, *_), _ = convolution.dims
    summed = feature == ins == 0 and convolution.feature_groups == 1
    other = batch if summed else feature
    last = not space or other > max(space)
    if not last and not is_plain(convolution, lhs):
        last = lhs[other] // convolution.groups >= MANY
    return Form(last, summed)


def _is_in(form: Form, convolution: Convolution) -> bool:
    """Whether steps can be made of it."""
    windows = convolution.windows
    plain = windows == windows.unpadded
    grouped = convolution.batch_groups > 1 and not form.summed
    return (
        plain and not grouped and convolution.dims == form.dims(len(windows.size) + 2)
    )


def _dense(
    primitive: Any,
    x: Any,
    kernel: Any,
    convolution: Convolution,
    form: Form,
    out: DType,
    precision: Any,
) -> Any:
    """The convolution, of operands that are padded and permuted into a form."""
    windows, dims = convolution.windows, convolution.dims
    wide = dtypes.compute_dtype(out)
    x = _padded(x, windows, dims.lhs_spec[2:])
    target = form.dims(x.ndim)
    groups = convolution.groups
    if convolution.batch_groups > 1 and not form.summed:
        x = _features_of_batch(x, convolution, target.lhs_spec)
        convolution = Convolution(dims, windows, groups)
    else:
        x = _respecified(x, dims.lhs_spec, target.lhs_spec)
    kernel = _respecified(kernel, dims.rhs_spec, target.rhs_spec)
    inside = Convolution(
        target,
        windows.unpadded,
        convolution.feature_groups,
        convolution.batch_groups,
    )
    if is_plain(inside, x.shape):
        y = form_product(form, inside, _in(wide, x), _in(wide, kernel))
    else:
        given = {"preferred_element_type": wide, "precision": precision}
        blocks = _blocks(form, inside, x.shape, wide)
        if blocks > 1:
            y = _in_blocks(primitive, x, kernel, inside, form, blocks, given)
        else:
            y = primitive(x, kernel, convolution=inside, **given)
    return _in(out, _respecified(y, target.out_spec, dims.out_spec))


def _padded(x: Any, windows: Windows, space: Ints) -> Any:
    """The array with its padding written out."""
    if windows == windows.unpadded:
        return x
    fields = []
    for values in (windows.low, windows.high, windows.interior):
        given = dict(zip(space, values, strict=True))
        fields.append(tuple([given.get(d, 0) for d in range(x.ndim)]))
    low, high, interior = fields
    return pad(x, 0, low=low, high=high, interior=interior)


def _respecified(x: Any, spec: Ints, target: Ints) -> Any:
    """The array with its axes where another specification has them."""
    place = dict(zip(target, spec, strict=True))
    dims = tuple([place[d] for d in range(len(spec))])
    return x if dims == tuple(range(len(dims))) else permute(x, dims=dims)


def _features_of_batch(x: Any, convolution: Convolution, target: Ints) -> Any:
    """The operand of batch groups as one of feature groups."""
    x = permute(x, dims=convolution.dims.lhs_spec)
    n, c, *space = x.shape
    groups = convolution.batch_groups
    x = reshaped(x, (groups, n // groups, c, *space))
    order = (1, 0, *range(2, x.ndim))
    x = reshaped(permute(x, dims=order), (n // groups, groups * c, *space))
    return _respecified(x, tuple(range(x.ndim)), target)


def _blocks(form: Form, convolution: Convolution, shape: Ints, out: DType) -> int:
    """In how many blocks of rows images are cut, so that patches of one are few."""
    each, rows = _patch_bytes(convolution, shape, out), _rows(form, convolution, shape)
    if surely_at_most(each, 2 * PATCHES) or surely_below(rows, 2):
        return 1
    return -(-rows // max(rows * PATCHES // each, 1))


def _rows(form: Form, convolution: Convolution, shape: Ints) -> int:
    """How many rows of the output, or of the cotangent that is summed over."""
    windows = convolution.windows
    if form.summed:
        return windows.size[0]
    return windows.over(tuple([shape[d] for d in convolution.dims.lhs_spec[2:]]))[0]


def _in_blocks(
    primitive: Any,
    x: Any,
    kernel: Any,
    convolution: Convolution,
    form: Form,
    blocks: int,
    params: dict[str, Any],
) -> Any:
    """The convolution of operands in a form, of which blocks of rows are the batch."""
    windows, axis = convolution.windows, 1 if form.last else 2
    rows = _rows(form, convolution, x.shape)
    length = -(-rows // blocks)
    blocks = -(-rows // length)
    (size, stride, _, _, spread), *_ = windows.rows
    count = windows.over(tuple([x.shape[d] for d in convolution.dims.lhs_spec[2:]]))[0]
    if form.summed:
        step, span = length * spread, (length - 1) * spread + (count - 1) * stride + 1
    else:
        step, span = length * stride, (length - 1) * stride + (size - 1) * spread + 1
    more = (blocks - 1) * step + span - x.shape[axis]
    x = padded_along(x, axis, 0, more)
    cut = Windows.of((span,), strides=(step,)).beside(axis, x.ndim - axis - 1)
    inner = [x.ndim + d if d == axis else d for d in range(1, x.ndim)]
    single = [x.ndim + d for d in range(x.ndim) if d != axis]
    x = patches(x, windows=cut, dims=(0, axis, *inner, *single))
    x = reshaped(x, (x.shape[0] * blocks, *x.shape[2 : x.ndim // 2 + 1]))
    if form.summed:
        kernel = padded_along(kernel, axis, 0, blocks * length - rows)
        kernel = _rows_in_batch(kernel, axis, blocks)
        windows = replace(windows, size=(length, *windows.size[1:]))
        convolution = replace(convolution, windows=windows)
        return primitive(x, kernel, convolution=convolution, **params)
    y = primitive(x, kernel, convolution=convolution, **params)
    y = _rows_of_batch(y, axis, blocks)
    return part_of(y, axis, 0, rows) if y.shape[axis] > rows else y


def _rows_in_batch(x: Any, axis: int, blocks: int) -> Any:
    """The array with blocks of an axis as part of the leading one."""
    n, *rest = x.shape
    shape = [n, *rest[: axis - 1], blocks, x.shape[axis] // blocks, *rest[axis:]]
    order = [0, axis, *[d for d in range(1, len(shape)) if d != axis]]
    x = permute(reshaped(x, tuple(shape)), dims=tuple(order))
    return reshaped(x, (n * blocks, *x.shape[2:]))


def _rows_of_batch(x: Any, axis: int, blocks: int) -> Any:
    """The array with blocks of the leading axis as part of another one."""
    n, *rest = x.shape
    x = reshaped(x, (n // blocks, blocks, *rest))
    order = [0, *range(2, axis + 1), 1, *range(axis + 1, x.ndim)]
    x = permute(x, dims=tuple(order))
    shape = [*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]]
    return reshaped(x, tuple(shape))


def _in(dtype: DType, x: Any) -> Any:
    return x if x.dtype == dtype else convert(x, dtype=dtype)


# ---------------------------------------------------------------- the steps


def add_dense(
    plan: Any, lhs: Any, rhs: Any, convolution: Convolution, precision: Any
) -> None:
    """A loop over slices of the leading axis: patches, then a product."""
    out = plan.outputs[0].type
    squares = _squares(lhs.type, rhs.type, convolution, out.dtype, precision)
    if squares is not None and _is_square(lhs.type, convolution):
        summed = convolution.windows.size != (3, 3)
        (add_sums if summed else add_rows)(plan, lhs, rhs, squares.together)
        return
    form = _form(convolution, lhs.type.shape)
    if out.dtype not in _REAL or not _is_in(form, convolution):
        plan.host()
        return
    count = _slices(convolution, lhs.type, out.dtype)

    def product(x: Any, kernel: Any) -> Any:
        wide = [_in(out.dtype, operand) for operand in (x, kernel)]
        return form_product(form, convolution, *wide)

    x = _slice_of(lhs.type, count)
    if not form.summed:
        program = trace(lambda kernel, x: [product(x, kernel)], [rhs.type, x]).program
        plan.loop(program, [rhs], [], [lhs], length=count)
        return
    kernel = _slice_of(rhs.type, count)
    if count == 1:
        program = trace(lambda x, kernel: [product(x, kernel)], [x, kernel]).program
        plan.loop(program, [], [], [lhs, rhs], length=1)
        return
    program = trace(
        lambda total, x, kernel: [add(total, product(x, kernel))],
        [out.strong(), x, kernel],
    ).program
    zero = Literal(0, ArrayType((), out.dtype))
    start = plan.filled(zero, out.shape)
    plan.loop(program, [], [start], [lhs, rhs], length=count)


def _slices(convolution: Convolution, lhs: ArrayType, out: DType) -> int:
    """How many slices of the leading axis there are, all of them equal."""
    count = lhs.shape[0]
    if isinstance(count, Size):
        return count  # what else divides it, nobody knows
    most = max(PATCHES // _patch_bytes(convolution, lhs.shape, out), 1)
    size = max(n for n in range(1, count + 1) if count % n == 0 and n <= most)
    return count // size


def _patch_bytes(convolution: Convolution, shape: Ints, out: DType) -> int:
    """The bytes of the patches of one of the leading axis."""
    spec, windows = convolution.dims.lhs_spec, convolution.windows
    places = math.prod(windows.over(tuple([shape[d] for d in spec[2:]])))
    features = math.prod([shape[d] for d in spec[:2]]) // shape[0]
    return features * places * windows.count * out.itemsize


def _slice_of(type: ArrayType, count: int) -> ArrayType:
    """The type of one of so many slices."""
    return type.with_shape((type.shape[0] // count, *type.shape[1:])).strong()
