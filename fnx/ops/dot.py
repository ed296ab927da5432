"""dot_general: every contraction of two arrays, with batch axes.

Receives two arrays of one dtype and which of their axes are contracted and which are
batched; the output has the batch axes, then the free axes of the first operand, then
those of the second. Large products are steps where the backend has them (of BLAS: 32-
and 64-bit floats), all others are folds in a kernel. Next on the walk:
`convolution.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.config import config
from fnx.core.layout import Layout
from fnx.core.links import MOST, Links, aligned, numbered
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import leibniz, plus
from fnx.ops.contraction import (
    Axes,
    Pair,
    Side,
    axis_pair,
    check_contraction,
    extents,
    output_shape,
    sides,
)
from fnx.ops.elementwise import convert
from fnx.ops.matrices import MatmulLayout, matmul_layout
from fnx.ops.prefix import filled
from fnx.ops.rearrange import Ints, inverse, shifted
from fnx.ops.reduce import fold_tag
from fnx.ops.shape import permute
from fnx.sizes import usual

DType = np.dtype[Any]

NARROW, LONG, SHARED = 64, 32, 2**18
"""A product of fewer rows and columns is one thread's; so many terms take longer than
storing their sum; so many multiply-adds are worth a second thread."""

_PRECISIONS = (None, "default", "high", "highest")
# What users also call them: by the dtype that float32 may be rounded to.
PRECISION_ALIASES = {
    "fastest": "default",
    "bfloat16": "default",
    "bfloat16_3x": "high",
    "tensorfloat32": "high",
    "float32": "highest",
}


class _DotGeneral(Primitive):
    """dot_general(x, y, contract, batch): sums of products over the contracted axes.

    `contract` and `batch` are pairs of axes of x and of y. 16-bit floats are multiplied
    and added in float32 and rounded once; `preferred_element_type` is the dtype to
    compute in and to give. `precision` bounds what a backend may round away: on a GPU
    "default" and "high" let float32 operands be rounded to TF32; `None` and "highest"
    do not. On the CPU every product has the full precision.
    """

    gathers = True
    linear = True
    reads = "folded"
    combine = "add"

    def __call__(
        self,
        x: Any,
        y: Any,
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Any:
        params = {
            "contract": axis_pair(contract, "contract"),
            "batch": axis_pair(batch, "batch"),
            "preferred_element_type": preferred_element_type,
            "precision": asked_precision(precision),
        }
        return bind(self, (x, y), params)

    def infer(
        self,
        x: ArrayType,
        y: ArrayType,
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> ArrayType:
        """Batch axes, free axes of x, free axes of y; weak if both operands are."""
        asked = f"dot_general({x}, {y}, contract={contract}, batch={batch})"
        check_contraction(asked, x, y, contract, batch)
        dtype = product_dtype(asked, x, y, preferred_element_type)
        check_precision(asked, precision)
        roles = sides(x.ndim, y.ndim, contract, batch)
        shape = output_shape(x.shape, y.shape, *roles)
        return ArrayType(shape, dtype, x.weak and y.weak)

    def reference(
        self,
        x: Any,
        y: Any,
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Any:
        """NumPy's matmul of stacks of matrices, which are views where possible."""
        out = preferred_element_type or x.dtype
        wide = dtypes.compute_dtype(out)
        roles = left, right = sides(x.ndim, y.ndim, contract, batch)
        shapes = x.shape, y.shape
        stack, m, n, k = extents(shapes, *roles)
        layout = matmul_layout(shapes, *roles)
        rows, columns = contract if layout is None else layout.contract
        x, y = x.astype(wide, copy=False), y.astype(wide, copy=False)
        product = np.matmul(
            _ordered(x, left.batch + left.free + rows).reshape(stack, m, k),
            _ordered(y, right.batch + columns + right.free).reshape(stack, k, n),
        )
        return product.astype(out, copy=False).reshape(output_shape(*shapes, *roles))

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The product rule; no strong zero, so that it stays two matrix products."""
        (x, y), (tx, ty) = primals, tangents
        left = None if tx is None else self(tx, y, **params)
        right = None if ty is None else self(x, ty, **params)
        return self(x, y, **params), plus(left, right)

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Leibniz' rule."""

        def product(x: Any, y: Any) -> Any:
            return self(x, y, **params)

        def swapped(y: Any, x: Any) -> Any:
            return product(x, y)

        terms = leibniz(primals, series, swapped, product, product)
        return product(*primals), terms

    def transpose(
        self,
        ct: Any,
        x: Any,
        y: Any,
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Sequence[Any]:
        """The cotangent contracted with the other operand over that one's free axes."""
        left, right = sides(x.type.ndim, y.type.ndim, contract, batch)
        if is_linear(x):
            return _cotangent(ct, x.type.dtype, left, y, right, precision), None
        return None, _cotangent(ct, y.type.dtype, right, x, left, precision)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> tuple[Any, Any]:
        """A batch axis if both operands are mapped, else a free axis of the one."""
        x, y = args
        contract, batch = _raised(contract, mapped), _raised(batch, mapped)
        if all(mapped):
            batch = (0, *batch[0]), (0, *batch[1])
        left, right = sides(x.type.ndim, y.type.ndim, contract, batch)
        if not mapped[0] and right.free == (0,):
            # The mapped axis is all that is free in y: with y first, it leads.
            x, y, contract, batch = y, x, contract[::-1], batch[::-1]
            left, right = sides(x.type.ndim, y.type.ndim, contract, batch)
            mapped = (True, False)
        output = self(
            x,
            y,
            contract=contract,
            batch=batch,
            preferred_element_type=preferred_element_type,
            precision=precision,
        )
        side = left if mapped[0] else right
        return _leading(output, side.alignment[0]), True

    def padded(
        self, pads: Pads, x: Padded, y: Padded, *, contract: Pair, **params: Any
    ) -> Any:
        """What is behind a prefix that is summed over is 0 in both."""
        rows = zip((x, y), contract, strict=True)
        left, right = [filled(pads, operand, 0, axes) for operand, axes in rows]
        return self(left, right, contract=contract, **params)

    def alignment(
        self,
        position: int,
        types: Sequence[ArrayType],
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> tuple[int | None, ...]:
        """Contracted axes are folded, the others run along the output."""
        x, y = types
        return sides(x.ndim, y.ndim, contract, batch)[position].alignment

    def folded_together(self, *, contract: Pair, **params: Any) -> Any:
        """The contracted axes."""
        pairs = zip(*contract, strict=True)
        return [((0, left), (1, right)) for left, right in pairs]

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Links | None:
        """Along batch and free axes, but where the other operand is known to be 0."""
        x, y = types
        alignments = [s.alignment for s in sides(x.ndim, y.ndim, contract, batch)]
        value = known[1 - position]
        if value is None:
            return aligned(types[position].shape, out.shape, alignments[position])
        extents = *out.shape, *[x.shape[d] for d in contract[0]]
        if math.prod(extents) > MOST:
            return None
        # Every product of two elements, as a place along the output's axes, then along
        # the contracted ones.
        places = [_product_axes(alignments[n], contract[n], out.ndim) for n in (0, 1)]
        own, other = places[position], places[1 - position]
        given = _along(numbered(types[position].shape), own, len(extents))
        factor = _along(value != 0, other, len(extents))
        made = _along(numbered(out.shape), range(out.ndim), len(extents))
        chosen = np.flatnonzero(np.broadcast_to(factor, extents))
        rows = [np.broadcast_to(a, extents).ravel()[chosen] for a in (given, made)]
        return rows[0], rows[1]

    def element(
        self,
        k: Any,
        index: Any,
        x: Any,
        y: Any,
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Any:
        """A fold of products; 16-bit floats are widened before they are multiplied."""
        out = preferred_element_type or x.dtype
        wide = dtypes.compute_dtype(out)
        left, right = sides(x.type.ndim, y.type.ndim, contract, batch)
        logical = dtypes.is_bool(wide)

        def product(inner: Any) -> Any:
            a = k.convert(x(left.index(index, inner)), wide)
            b = k.convert(y(right.index(index, inner)), wide)
            return k.and_(a, b) if logical else k.mul(a, b)

        extents = [x.shape[axis] for axis in contract[0]]
        combine = "or" if logical else "add"
        return k.convert(k.fold(combine, fold_tag(index), extents, product), out)

    def product(
        self, types: Sequence[ArrayType], params: Any
    ) -> tuple[DType, DType, tuple[int, int, int, int]]:
        """A stack of matrix products."""
        x, y = types
        roles = sides(x.ndim, y.ndim, params["contract"], params["batch"])
        out = params.get("preferred_element_type") or x.dtype
        return x.dtype, out, extents((x.shape, y.shape), *roles)

    def absorb(
        self,
        inputs: Sequence[Any],
        makers: Mapping[Any, Any],
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        **params: Any,
    ) -> tuple[Sequence[Any], dict[str, Any]] | None:
        """Reads a permuted operand in its own order, where the output stays equal."""
        taken = list(inputs)
        roles = [contract[0], contract[1], batch[0], batch[1]]
        for side, atom in enumerate(inputs):
            maker = makers.get(atom)
            if maker is None or maker.primitive is not permute:
                continue
            dims = maker.params["dims"]
            taken_up = (*contract[side], *batch[side])
            free = [d for axis, d in enumerate(dims) if axis not in taken_up]
            if free == sorted(free):
                taken[side] = maker.inputs[0]
                for role in (side, side + 2):
                    roles[role] = tuple([dims[d] for d in roles[role]])
        if taken == list(inputs):
            return None
        given = {"contract": (roles[0], roles[1]), "batch": (roles[2], roles[3])}
        return taken, given | params

    def steps(
        self,
        plan: Any,
        x: Any,
        y: Any,
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> None:
        """Matrix products into the output, after the copies that they need."""
        types, found = (x.type, y.type), None
        # Scalars, which may be literals, are no matrices.
        if () not in (x.type.shape, y.type.shape) and plan.multiplies(x, y):
            layouts = x.layout, y.layout, plan.outputs[0].layout
            found = _layout(types, layouts, contract, batch)
        if found is None:
            plan.host()
            return
        read = [
            operand if dims is None else plan.permuted(operand, dims)
            for operand, dims in zip((x, y), found.dims, strict=True)
        ]
        if found.swapped:
            read.reverse()
        tf32 = x.type.dtype == dtypes.float32 and is_coarse(precision)
        plan.matmul(plan.outputs[0], *read, found.product, tf32)

    def over_rows(
        self, *, contract: Pair, batch: Pair = ((), ()), **params: Any
    ) -> dict[str, Any]:
        """The new leading axis is contracted, too."""
        raised = tuple([tuple([axis + 1 for axis in axes]) for axes in batch])
        summed = tuple([(0, *[axis + 1 for axis in axes]) for axes in contract])
        return {**params, "contract": summed, "batch": raised}

    def summed(
        self, axes: Sequence[int], types: Sequence[ArrayType], params: Any
    ) -> dict[str, Any] | None:
        """Contracts axes of the stack, too, where all that is contracted lies together.

        Otherwise an operand would have to be copied. Not where little is left to be
        shared by threads.
        """
        contract, batch = params["contract"], params.get("batch", ((), ()))
        stack = len(batch[0])
        if max(axes) >= stack:
            return None
        kept = [d for d in range(stack) if d not in axes]
        summed = tuple(
            [
                (*[outer[d] for d in axes], *inner)
                for outer, inner in zip(batch, contract, strict=True)
            ]
        )
        if not all(map(_together, summed)):
            return None
        rest = tuple([tuple([outer[d] for d in kept]) for outer in batch])
        size = math.prod([types[0].shape[batch[0][d]] for d in kept])
        if _is_shared_better(size, *self.product(types, params)[2]):
            return None
        return {**params, "contract": summed, "batch": rest}

    def copied(
        self,
        types: Sequence[ArrayType],
        layouts: Sequence[Layout],
        *,
        contract: Pair,
        batch: Pair = ((), ()),
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> int | None:
        """The elements of the operands that no product can read where they lie."""
        x, y = types
        if () in (x.shape, y.shape):
            return None
        found = _layout(types, layouts, contract, batch)
        return None if found is None else found.copied((x.shape, y.shape))


# ---------------------------------------------------------------- the rules' parts


def _ordered(x: Any, order: Axes) -> Any:
    """A NumPy array with its axes in that order."""
    return x if order == tuple(range(x.ndim)) else x.transpose(order)


def _together(axes: Axes) -> bool:
    """Whether axes follow one another."""
    return axes == tuple(range(axes[0], axes[0] + len(axes)))


def _is_shared_better(kept: int, stack: int, m: int, n: int, k: int) -> bool:
    """Whether a stack had better be multiplied by several threads, then be summed.

    Which is where `kept` sums have too few rows and columns to be cut, and take long;
    what is stored then is less than the operands.
    """
    is_long = usual(k) >= LONG and usual(stack * m * n * k) >= SHARED
    return is_long and usual(kept * max(m, n)) < NARROW


def _layout(
    types: Sequence[ArrayType], layouts: Sequence[Layout], contract: Pair, batch: Pair
) -> MatmulLayout | None:
    """The matrix products, if there are some."""
    (x, y), (x_layout, y_layout, out_layout) = types, layouts
    roles = sides(x.ndim, y.ndim, contract, batch)
    every = x_layout, y_layout, out_layout
    return matmul_layout((x.shape, y.shape), *roles, every)


def _cotangent(
    ct: Any, dtype: DType, mine: Side, known: Any, other: Side, precision: Any
) -> Any:
    """The cotangent of one operand, where `known` is the other one.

    The product has this operand's batch and free axes and, in the order of the other
    one, those that were contracted; or the contracted ones before the free ones, if
    that is the order that the operand has.
    """
    wide = ct.type.dtype
    known = _converted(known, wide)
    pairs = sorted(zip(other.contract, mine.contract, strict=True))
    contracted = tuple([own for _, own in pairs])
    batch = tuple(range(len(mine.batch)))
    swapped = mine.batch + contracted + mine.free
    if swapped == tuple(range(len(swapped))) and contracted and mine.free:
        product = dot_general(
            known,
            ct,
            contract=(other.free, other.placed),
            batch=(other.batch, batch),
            precision=precision,
        )
        return _converted(product, dtype)
    product = dot_general(
        ct,
        known,
        contract=(other.placed, other.free),
        batch=(batch, other.batch),
        precision=precision,
    )
    order = inverse(mine.batch + mine.free + contracted)
    return _converted(_permuted(product, order), dtype)


def _permuted(x: Any, dims: Axes) -> Any:
    return x if dims == tuple(range(len(dims))) else permute(x, dims=dims)


def _leading(x: Any, axis: Any) -> Any:
    """The array with that axis in front."""
    rest = [i for i in range(x.type.ndim) if i != axis]
    return _permuted(x, (axis, *rest))


def _converted(x: Any, dtype: DType) -> Any:
    return x if x.type.dtype == dtype else convert(x, dtype=dtype)


def _raised(pair: Pair, mapped: Sequence[bool]) -> Pair:
    """The axes of each operand, one further back if it is mapped."""
    x, y = [
        shifted(axes) if is_mapped else axes
        for axes, is_mapped in zip(pair, mapped, strict=True)
    ]
    return x, y


# ---------------------------------------------------------------- dtypes


def product_dtype(
    asked: str, x: ArrayType, y: ArrayType, preferred: DType | None
) -> DType:
    """The dtype of sums of products: that of the operands, or the preferred one."""
    if x.dtype != y.dtype:
        reason = f"the operands have dtypes {x.dtype} and {y.dtype}"
        fix = "convert one of them; fnx.numpy and fnx.lax promote"
        raise errors.DTypeError(errors.explain(asked, reason, fix))
    if dtypes.is_storage(x.dtype):
        reason = f"{x.dtype} is for storage"
        raise errors.DTypeError(errors.explain(asked, reason, "convert the operands"))
    if preferred is None or _holds(preferred, x.dtype):
        return preferred or x.dtype
    reason = f"preferred_element_type={preferred} cannot hold products of {x.dtype}"
    fix = "take the same kind of number, at least as wide, and convert the result"
    raise errors.DTypeError(errors.explain(asked, reason, fix))


def _holds(preferred: DType, dtype: DType) -> bool:
    """Whether products of one dtype may be summed in another: JAX's rule."""
    if dtypes.is_bool(dtype):
        return True
    if dtypes.is_integer(dtype) and dtypes.is_float(preferred):
        return True
    kinds = (
        dtypes.is_signed,
        dtypes.is_unsigned,
        dtypes.is_float,
        dtypes.is_complex,
    )
    same = any(is_kind(dtype) and is_kind(preferred) for is_kind in kinds)
    return same and preferred.itemsize >= dtype.itemsize


def asked_precision(precision: Any) -> Any:
    """The precision, or the default one where none is asked for."""
    return config.default_matmul_precision if precision is None else precision


def check_precision(asked: str, precision: Any) -> None:
    """Raises unless it is a precision, or a pair of them."""
    each = precision if isinstance(precision, tuple) else (precision,)
    if len(each) > 2 or any(p not in _PRECISIONS for p in each):
        reason = f"precision={precision!r} is unknown"
        fix = "take None, 'default', 'high' or 'highest', or a pair of them"
        raise errors.OptionError(errors.explain(asked, reason, fix))


def is_coarse(precision: Any) -> bool:
    """Whether operands of float32 may be rounded, as JAX rounds them to TF32."""
    each = precision if isinstance(precision, tuple) else (precision,)
    return all(p in ("default", "high") for p in each)


def _product_axes(
    alignment: Sequence[int | None], contract: Ints, ndim: int
) -> list[int]:
    """For each axis of an operand its place among the output's and contracted axes."""
    return [
        ndim + contract.index(d) if place is None else place
        for d, place in enumerate(alignment)
    ]


def _along(array: Any, places: Sequence[int], ndim: int) -> Any:
    """An array with its axes at places among so many, the others of length 1."""
    order = sorted(range(len(places)), key=lambda d: places[d])
    shape = [1] * ndim
    for d in order:
        shape[places[d]] = array.shape[d]
    return array.transpose(order).reshape(shape)


dot_general = _DotGeneral("dot_general")
