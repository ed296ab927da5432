"""What a convolution is, as data: which axis is which, its windows, its groups; checks.

Receives shapes and dimension numbers, gives the shape of the output, `Convolution`s
for the derivatives, and for backends the strides of everything.
Next on the walk: `conv.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fnx.core.layout import Convolved, Layout, Sliding, row_major
from fnx.core.types import ArrayType
from fnx.errors import AxisError, OptionError, ShapeError, explain
from fnx.ops.rearrange import Ints
from fnx.ops.windows import Windows, check_windows
from fnx.records import record


class ConvDimensionNumbers(NamedTuple):
    """Which axes the operands and the output of a convolution have where.

    `lhs_spec` and `out_spec` are the numbers of the batch axis, the feature axis and
    the spatial axes; `rhs_spec` those of the axes of output features, input features
    and the window.
    """

    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints


@record
class Convolution:
    """Axes, windows and groups of a convolution.

    `windows` lie over the spatial axes of lhs and have the size of those of rhs. With
    feature groups each group of output features sees its own input features, with batch
    groups its own part of the batch; one of the two numbers is 1.
    """

    dims: ConvDimensionNumbers
    windows: Windows
    feature_groups: int = 1
    batch_groups: int = 1

    @property
    def groups(self) -> int:
        """The number of groups of either kind."""
        return max(self.feature_groups, self.batch_groups)

    def output_shape(self, lhs: Ints, rhs: Ints) -> Ints:
        """The shape of the output, its axes where `out_spec` has them."""
        batch, _, *spatial = self.dims.lhs_spec
        counts = self.windows.over(tuple([lhs[d] for d in spatial]))
        sizes = lhs[batch] // self.batch_groups, rhs[self.dims.rhs_spec[0]], *counts
        shape = dict(zip(self.dims.out_spec, sizes, strict=True))
        return tuple([shape[d] for d in range(len(shape))])

    def of_lhs(self, lhs: Ints) -> Convolution:
        """That of the cotangent and a turned kernel which gives the cotangent of lhs.

        The kernel is reversed in space, its axes of features change places, and those
        of output features are in groups with those of the input.
        """
        lhs_spec, (outs, ins, *window), out_spec = self.dims
        dims = ConvDimensionNumbers(out_spec, (ins, outs, *window), lhs_spec)
        shape = tuple([lhs[d] for d in lhs_spec[2:]])
        return Convolution(dims, self.windows.turned(shape), self.groups)

    def of_rhs(self, lhs: Ints) -> Convolution:
        """That of lhs and the cotangent which gives the cotangent of rhs.

        What was the batch is summed over like features, and the other way round.
        """
        (batch, feature, *space), (outs, ins, *window), out_spec = self.dims
        count, made, *places = out_spec
        dims = ConvDimensionNumbers(
            (feature, batch, *space), (made, count, *places), (ins, outs, *window)
        )
        shape = tuple([lhs[d] for d in space])
        windows = self.windows.swapped(shape)
        return Convolution(dims, windows, self.batch_groups, self.feature_groups)

    def numbers(self, lhs: Ints, rhs: Ints) -> Convolved:
        """The convolution of arrays of these shapes, in row-major order, as numbers."""
        (batch, feature, *space), (outs, ins, *window), (count, made, *places) = (
            self.dims
        )
        shape = self.output_shape(lhs, rhs)
        of_lhs, of_rhs, of_out = [row_major(each).strides for each in (lhs, rhs, shape)]
        items = lhs[batch] // self.batch_groups
        each = rhs[outs] // self.groups
        # Groups are the first part of the features, or of the batch.
        in_batch = self.batch_groups > 1
        group = items * of_lhs[batch] if in_batch else rhs[ins] * of_lhs[feature]
        axes = [
            Sliding(lhs[d], shape[place], size, stride, spread, base, low)
            for d, place, (size, stride, (low, _), base, spread) in zip(
                space, places, self.windows.rows, strict=True
            )
        ]
        x = of_lhs[batch], of_lhs[feature], *[of_lhs[d] for d in space]
        kernel = of_rhs[outs], of_rhs[ins], *[of_rhs[d] for d in window]
        out = of_out[count], of_out[made], *[of_out[d] for d in places]
        return Convolved(
            self.groups,
            items,
            each,
            rhs[ins],
            tuple(axes),
            Layout(0, (each * of_out[made], *out)),
            Layout(0, (group, *x)),
            Layout(0, (each * of_rhs[outs], *kernel)),
        )

    def with_innermost(self, axis: str) -> tuple[Convolution, Ints, Ints]:
        """That of lhs with its "batch" or "features" last; the orders of both's axes.

        With the features last those of rhs are, too. The others stay in their order.
        """
        (batch, feature, *_), (_, ins, *_), _ = self.dims
        of_rhs = tuple(range(len(self.dims.rhs_spec)))
        if axis == "features":
            of_lhs, of_rhs = _last(feature, of_rhs), _last(ins, of_rhs)
        else:
            of_lhs = _last(batch, of_rhs)
        pairs = zip(self.dims[:2], (of_lhs, of_rhs), strict=True)
        specs = [tuple([order.index(d) for d in spec]) for spec, order in pairs]
        turned = ConvDimensionNumbers(specs[0], specs[1], self.dims.out_spec)
        return replace(self, dims=turned), of_lhs, of_rhs

    def grouped(self, count: int) -> Convolution:
        """So many of them beside each other, each with its own operands."""
        if self.batch_groups > 1:
            return replace(self, batch_groups=count * self.batch_groups)
        return replace(self, feature_groups=count * self.feature_groups)


def _last(axis: int, order: Ints) -> Ints:
    """An order of axes with one of them last."""
    return (*[d for d in order if d != axis], axis)


def check_convolution(
    asked: str, lhs: ArrayType, rhs: ArrayType, convolution: Convolution
) -> None:
    """Raises unless the operands have such axes, windows and groups."""
    dims = convolution.dims
    for name, type, spec in (("lhs", lhs, dims[0]), ("rhs", rhs, dims[1])):
        if sorted(spec) != list(range(type.ndim)):
            reason = f"{name}_spec={spec} must be a permutation of {type.ndim} axes"
            raise AxisError(explain(asked, reason))
    if lhs.ndim != rhs.ndim:
        reason = f"the operands have {lhs.ndim} and {rhs.ndim} axes"
        fix = "both have two axes and one for each dimension of space"
        raise ShapeError(explain(asked, reason, fix))
    if sorted(dims.out_spec) != list(range(lhs.ndim)):
        reason = f"out_spec={dims.out_spec} must be a permutation of {lhs.ndim} axes"
        raise AxisError(explain(asked, reason))
    window = tuple([rhs.shape[d] for d in dims.rhs_spec[2:]])
    if convolution.windows.size != window:
        reason = f"the windows are of size {convolution.windows.size}, rhs of {window}"
        raise ShapeError(explain(asked, reason))
    check_windows(asked, window, convolution.windows)
    _check_groups(asked, lhs, rhs, convolution)


def _check_groups(
    asked: str, lhs: ArrayType, rhs: ArrayType, convolution: Convolution
) -> None:
    features, batches = convolution.feature_groups, convolution.batch_groups
    for name, count in (("feature", features), ("batch", batches)):
        if count < 1:
            reason = f"{name}_group_count={count}"
            raise OptionError(explain(asked, reason, "it must be at least 1"))
    if features > 1 and batches > 1:
        reason = f"feature_group_count={features} and batch_group_count={batches}"
        raise OptionError(explain(asked, reason, "one of them must be 1"))
    (batch, feature, *_), (outs, ins, *_), _ = convolution.dims
    given, taken = lhs.shape[feature], rhs.shape[ins]
    if given != taken * features:
        reason = f"lhs has {given} features, rhs takes {taken}"
        if features > 1:
            reason += f" in each of {features} groups"
        fix = "dimension_numbers says which axes these are; by default the second ones"
        raise ShapeError(explain(asked, reason, fix))
    for name, count, size in (
        ("feature_group_count", features, rhs.shape[outs]),
        ("batch_group_count", batches, rhs.shape[outs]),
        ("batch_group_count", batches, lhs.shape[batch]),
    ):
        if size % count:
            kind = "output features" if size == rhs.shape[outs] else "batch"
            reason = f"{name}={count} does not divide the {kind}, {size}"
            raise ShapeError(explain(asked, reason))
