"""conv_general_dilated: sums of products over windows and features, of any rank.

Receives an array `lhs` with a batch axis, a feature axis and spatial axes, and a kernel
`rhs` with axes of output features, input features and windows; a `Convolution` says
which axis is which, how windows lie, and what the groups are. All derivatives are
convolutions again. Small ones and those with few features in a group (depthwise) are
folds in a kernel; the others are steps of a backend that has convolutions, or matrix
products, of which `dense.py` says how.
Next on the walk: `winograd.py`, `squares.py`, `phases.py`, `forms.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.layout import Convolved
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Primitive, is_linear
from fnx.core.program import Eqn
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import leibniz, plus
from fnx.ops.convolution import Convolution, check_convolution
from fnx.ops.dense import (
    TOGETHER,
    add_dense,
    is_dense,
    multiply_adds,
    written_dense,
)
from fnx.ops.dot import (
    DType,
    asked_precision,
    check_precision,
    is_coarse,
    product_dtype,
)
from fnx.ops.elementwise import convert
from fnx.ops.families import NUMBER
from fnx.ops.forms import is_plain
from fnx.ops.prefix import filled
from fnx.ops.rearrange import Ints, inverse
from fnx.ops.reduce import check_kind, fold_tag
from fnx.ops.shape import permute, reshape, reverse, zeros_like
from fnx.ops.window_prefix import check_ungrouped, check_windows_alike
from fnx.ops.windows import (
    offsets,
    padded_array,
    sum_of_products,
    window_slices,
)


class _Convolution(Primitive):
    """conv_general_dilated(lhs, rhs, convolution): bilinear.

    16-bit floats are multiplied and added in float32 and rounded once;
    `preferred_element_type` is the dtype to compute in and to give. `precision` bounds
    what a backend may round away; on the CPU every product has the full precision.
    """

    gathers = True
    linear = True
    reads = "many"
    whole_before = True
    combine = "add"

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        convolution: Convolution,
        **params: Any,
    ) -> Flow:
        """Batch and output features run along the output, unless they are in groups.

        Input features of one group are folded; axes of space are where no windows are.
        """
        (batch, feature, *space), (outs_at, ins, *_), (count, made, *places) = (
            convolution.dims
        )
        lhs: list[Any] = [None] * types[0].ndim
        rhs: list[Any] = [None] * types[1].ndim
        out: list[Any] = [None] * outs[0].ndim
        if convolution.batch_groups == 1:
            lhs[batch] = out[count] = "batch"
        if convolution.feature_groups == 1:
            lhs[feature] = rhs[ins] = "folded"
        if convolution.groups == 1:
            rhs[outs_at] = out[made] = "made"
        covered = convolution.windows.axes
        for axis, (at, place) in enumerate(zip(space, places, strict=True)):
            if axis not in covered:
                lhs[at] = out[place] = axis
        return Flow((tuple(lhs), tuple(rhs)), (tuple(out),))

    def __call__(
        self,
        lhs: Any,
        rhs: Any,
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Any:
        params = {
            "convolution": convolution,
            "preferred_element_type": preferred_element_type,
            "precision": asked_precision(precision),
        }
        return bind(self, (lhs, rhs), params)

    def infer(
        self,
        lhs: ArrayType,
        rhs: ArrayType,
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> ArrayType:
        """The batch, the output features and the windows; weak if both operands are."""
        asked = f"conv_general_dilated({lhs}, {rhs})"
        check_kind(asked, lhs, NUMBER)
        dtype = product_dtype(asked, lhs, rhs, preferred_element_type)
        check_precision(asked, precision)
        check_convolution(asked, lhs, rhs, convolution)
        shape = convolution.output_shape(lhs.shape, rhs.shape)
        return ArrayType(shape, dtype, lhs.weak and rhs.weak)

    def reference(
        self,
        lhs: Any,
        rhs: Any,
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Any:
        """For each offset in a window the product of two stacks of matrices."""
        out = preferred_element_type or lhs.dtype
        wide = dtypes.compute_dtype(out)
        windows, groups = convolution.windows, convolution.groups
        lhs_spec, rhs_spec, out_spec = convolution.dims
        counts = windows.over(tuple([lhs.shape[d] for d in lhs_spec[2:]]))
        x = _grouped(lhs.transpose(lhs_spec), convolution).astype(wide, copy=False)
        kernel = rhs.transpose(rhs_spec).astype(wide, copy=False)
        outs, *rest = kernel.shape
        kernel = kernel.reshape(groups, outs // groups, *rest)
        padded = padded_array(x, windows.beside(2, 1), 0)
        total = np.zeros((groups, x.shape[1], *counts, kernel.shape[1]), wide)
        for offset in offsets(windows):
            part = padded[:, :, *window_slices(windows, counts, offset)]
            matrix = kernel[(..., *offset)].swapaxes(1, 2)
            rows = part.reshape(groups, math.prod(total.shape[1:-1]), x.shape[-1])
            total += (rows @ matrix).reshape(total.shape)
        # The groups of output features come before these, and both behind the batch.
        value = np.moveaxis(total, (0, -1), (1, 2)).astype(out, copy=False)
        value = value.reshape(x.shape[1], outs, *counts)
        return value.transpose(inverse(out_spec))

    sized = ("convolution",)

    def padded(
        self,
        pads: Pads,
        lhs: Padded,
        rhs: Padded,
        *,
        convolution: Convolution,
        **params: Any,
    ) -> Any:
        """What is behind a prefix is 0, as padding is."""
        now: Convolution = pads.now["convolution"]
        window = convolution.dims.rhs_spec[2:]
        varying = tuple([i for i, axis in enumerate(window) if axis in rhs.varying])
        check_windows_alike(pads, now.windows, convolution.windows, varying)
        if replace(now, windows=convolution.windows) != convolution:
            raise pads.cannot("its axes or groups are others")
        check_ungrouped(pads, lhs, rhs, convolution)
        left, right = filled(pads, lhs, 0), filled(pads, rhs, 0)
        return self(left, right, convolution=convolution, **params)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The product rule; no strong zero, so that it stays two convolutions."""
        (lhs, rhs), (t_lhs, t_rhs) = primals, tangents
        left = None if t_lhs is None else self(t_lhs, rhs, **params)
        right = None if t_rhs is None else self(lhs, t_rhs, **params)
        return self(lhs, rhs, **params), plus(left, right)

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Leibniz' rule."""

        def product(lhs: Any, rhs: Any) -> Any:
            return self(lhs, rhs, **params)

        def swapped(rhs: Any, lhs: Any) -> Any:
            return product(lhs, rhs)

        terms = leibniz(primals, series, swapped, product, product)
        return product(*primals), terms

    def transpose(
        self,
        ct: Any,
        lhs: Any,
        rhs: Any,
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Sequence[Any]:
        """The cotangent convolved with the other operand."""
        if is_linear(lhs):
            if not ct.size or not math.prod(lhs.shape):
                return zeros_like(lhs), None
            found = self._to_lhs(ct, lhs.shape, rhs, convolution, precision)
            return _converted(found, lhs.dtype), None
        if not ct.size or not math.prod(rhs.shape):
            return None, zeros_like(rhs)
        turned = convolution.of_rhs(lhs.shape)
        lhs = _converted(lhs, ct.type.dtype)
        found = self(lhs, ct, convolution=turned, precision=precision)
        return None, _converted(found, rhs.dtype)

    def _to_lhs(
        self, ct: Any, shape: Ints, rhs: Any, convolution: Convolution, precision: Any
    ) -> Any:
        """The cotangent of lhs."""
        (batch, feature, *_), (outs, ins, *window), _ = convolution.dims
        kernel = reverse(_converted(rhs, ct.type.dtype), axes=tuple(sorted(window)))
        kernel = _regrouped(kernel, outs, ins, convolution.groups)
        turned = convolution.of_lhs(shape)
        found = self(ct, kernel, convolution=turned, precision=precision)
        return _regrouped(found, feature, batch, convolution.batch_groups)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> tuple[Any, Any]:
        """The new axis becomes part of the batch, of the features, or of the groups."""
        lhs, rhs = args
        (batch, feature, *_), (outs, _, *_), (count, made, *_) = convolution.dims
        groups, batches = convolution.groups, convolution.batch_groups
        both = all(mapped)
        if both:
            lhs = _taken_in(lhs, batch if batches > 1 else feature, 1)
            rhs = _taken_in(rhs, outs, 1)
        elif mapped[0]:
            lhs = _taken_in(lhs, batch, batches)
        elif mapped[1]:
            rhs = _taken_in(rhs, outs, groups)
        out = self(
            lhs,
            rhs,
            convolution=convolution.grouped(axis.size) if both else convolution,
            preferred_element_type=preferred_element_type,
            precision=precision,
        )
        if not any(mapped):
            return out, False
        if both or mapped[1]:
            return _taken_out(out, made, 1 if both else groups, axis.size), True
        return _taken_out(out, count, 1, axis.size), True

    def element(
        self,
        k: Any,
        index: Any,
        lhs: Any,
        rhs: Any,
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> Any:
        """A fold of products over the window and the input features of the group."""
        out = preferred_element_type or lhs.dtype
        wide = dtypes.compute_dtype(out)
        windows, dims = convolution.windows, convolution.dims
        (batch, _, *space), (outs, ins, *_), (count, made, *places) = dims
        features, spatial = rhs.shape[ins], tuple([lhs.shape[d] for d in space])
        group = index[made] // (rhs.shape[outs] // convolution.groups)
        n = index[count]
        if convolution.batch_groups > 1:
            n = group * (lhs.shape[batch] // convolution.batch_groups) + n
        first = group * features if convolution.feature_groups > 1 else 0
        window = [index[d] for d in places]

        def factors(c: Any, place: Any, offset: Any) -> tuple[Any, Any]:
            at = _placed(dims.lhs_spec, (n, first + c, *place))
            own = _placed(dims.rhs_spec, (index[made], c, *offset))
            return k.convert(lhs(at), wide), k.convert(rhs(own), wide)

        def of_feature(inner: Any) -> Any:
            (c,) = inner
            of_place = partial(factors, c)
            return sum_of_products(k, window, windows, spatial, wide, of_place)

        if features == 1:
            return k.convert(of_feature((0,)), out)
        total = k.fold("add", fold_tag(index), (features,), of_feature)
        return k.convert(total, out)

    def fusible(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Whether a fold serves: BLAS has no such product, or is not worth a call."""
        lhs, rhs = types
        return not is_dense(lhs, rhs, params)

    def shared_by_threads(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Replicas compute small ones, and folds, together."""
        lhs, rhs = types
        small = multiply_adds(lhs, rhs, params["convolution"]) <= TOGETHER
        return small or self.fusible(types, params)

    def hoisted(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """Where it is made of matrix products: operands as those need them."""
        lhs, rhs = [atom.type for atom in eqn.inputs]
        return written_dense(self, eqn) if is_dense(lhs, rhs, eqn.params) else None

    def convolved(
        self, types: Sequence[ArrayType], params: Any
    ) -> tuple[DType, DType, Convolved] | None:
        """Its numbers; `None` if it is a product of matrices as they are."""
        lhs, rhs = types
        convolution: Convolution = params["convolution"]
        windows = convolution.windows
        once = windows == replace(windows.unpadded, strides=(1,) * len(windows.size))
        plain = once and is_plain(convolution, lhs.shape)
        if plain and is_dense(lhs, rhs, params):
            return None
        out = params["preferred_element_type"] or lhs.dtype
        return lhs.dtype, out, convolution.numbers(lhs.shape, rhs.shape)

    def steps(
        self,
        plan: Any,
        lhs: Any,
        rhs: Any,
        *,
        convolution: Convolution,
        preferred_element_type: DType | None = None,
        precision: Any = None,
    ) -> None:
        """One step of a backend that has such, else a loop of matrix products."""
        convolved = plan.convolution()
        if convolved is not None:
            tf32 = lhs.type.dtype == dtypes.float32 and is_coarse(precision)
            innermost = plan.innermost(lhs, convolved)
            if innermost is not None:
                turned, of_lhs, of_rhs = convolution.with_innermost(innermost)
                lhs = plan.permuted(lhs, of_lhs)
                if of_rhs != tuple(range(len(of_rhs))):
                    rhs = plan.permuted(rhs, of_rhs)
                convolved = turned.numbers(lhs.type.shape, rhs.type.shape)
            plan.convolve(lhs, rhs, convolved, tf32)
            return
        add_dense(plan, lhs, rhs, convolution, precision)


# ---------------------------------------------------------------- the rules' parts


def _grouped(x: Any, convolution: Convolution) -> Any:
    """A NumPy array (batch, features, *space) as (groups, batch, *space, features)."""
    n, c, *space = x.shape
    if convolution.batch_groups > 1:
        groups = convolution.batch_groups
        x = x.reshape(groups, n // groups, c, *space)
    else:
        groups = convolution.feature_groups
        x = x.reshape(n, groups, c // groups, *space).swapaxes(0, 1)
    return np.moveaxis(x, 2, -1)


def _placed(spec: Ints, index: Sequence[Any]) -> tuple[Any, ...]:
    """An index along the axes that a spec names, in the order of the array's axes."""
    return tuple([index[i] for i in inverse(spec)])


def _converted(x: Any, dtype: DType) -> Any:
    return x if x.type.dtype == dtype else convert(x, dtype=dtype)


def _regrouped(x: Any, source: int, target: int, groups: int) -> Any:
    """The array with the groups that are the first part of one axis in another one."""
    if groups == 1:
        return x
    shape = list(x.type.shape)
    shape[source : source + 1] = groups, shape[source] // groups
    x, moved = reshape(x, shape=tuple(shape)), list(range(len(shape)))
    moved.remove(source)
    place = moved.index(target if target < source else target + 1)
    moved.insert(place, source)
    return _merged(permute(x, dims=tuple(moved)), place)


def _taken_in(x: Any, axis: int, groups: int) -> Any:
    """The array with its leading axis in another one, behind the groups in that.

    `axis` is its number without the leading one.
    """
    size, *shape = x.type.shape
    shape[axis : axis + 1] = groups, shape[axis] // groups
    order = list(range(1, len(shape) + 1))
    order.insert(axis + 1, 0)
    x = permute(reshape(x, shape=(size, *shape)), dims=tuple(order))
    return _merged(_merged(x, axis), axis)


def _taken_out(x: Any, axis: int, groups: int, size: int) -> Any:
    """The array with the part of an axis that was taken in as its leading axis."""
    shape = list(x.type.shape)
    shape[axis : axis + 1] = groups, size, shape[axis] // (groups * size)
    order = list(range(len(shape)))
    order.remove(axis + 1)
    x = permute(reshape(x, shape=tuple(shape)), dims=(axis + 1, *order))
    return _merged(x, axis + 1)


def _merged(x: Any, axis: int) -> Any:
    """The array with an axis and the next one as one."""
    shape = list(x.type.shape)
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return reshape(x, shape=tuple(shape))


conv_general_dilated = _Convolution("conv_general_dilated")
