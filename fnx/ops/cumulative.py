"""Cumulative operations along an axis: cumsum, cumprod, cummax, cummin, cumlogsumexp.

Receives an array, gives one of the same type whose elements combine all up to their
place (from their place on, if `reverse`). The derivatives that are recurrences run in
log2(n) steps over the whole axis (`scanned`), made of operations that can be
differentiated and transposed again. Next on the walk: `gather.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.links import MOST, Links, numbered
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Primitive, Pulled
from fnx.core.program import Atom, Eqn
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, eq, mul, scale, select, sub
from fnx.ops.elementwise import div, exp
from fnx.ops.families import FLOAT, NUMBER, REAL, widened
from fnx.ops.pieces import padded_along
from fnx.ops.prefix import extreme, filled
from fnx.ops.rearrange import check_axes
from fnx.ops.reduce import check_kind, winners, zero_or_one
from fnx.ops.rewriting import rewritten
from fnx.ops.shape import kept_axes
from fnx.sizes import Size, usual

Parts = tuple[Any, ...]

LANES = 64
"""From so many scans side by side on, a kernel has lanes and threads for them."""


CHUNK = 1040
"""A long sum is that of chunks, and of what is in its own, which is more accurate."""


class Cumulative(Primitive):
    """Accumulates a NumPy ufunc along `axis`, from the end if `reverse`.

    `combine` is what a kernel calls it, None where that has no name for it.
    """

    def __init__(
        self, name: str, kinds: str, numpy: np.ufunc, combine: str | None
    ) -> None:
        super().__init__(name)
        self.kinds = kinds
        self.numpy = numpy
        self.combine = combine

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        axis: int,
        reverse: bool,
    ) -> Flow:
        """The other axes run along the output."""
        return kept_axes(types, outs, (axis,))

    def infer(self, x: ArrayType, *, axis: int, reverse: bool) -> ArrayType:
        """The operand's type."""
        asked = f"{self.name}({x}, axis={axis}, reverse={reverse})"
        check_kind(asked, x, self.kinds)
        check_axes(asked, x, (axis,))
        return x

    def reference(self, x: Any, *, axis: int, reverse: bool) -> Any:
        """NumPy's accumulate; 16-bit floats accumulate in float32."""
        wide = widened(x)
        if reverse:
            wide = np.flip(wide, axis)
        if self.numpy is np.add and x.shape[axis] >= 2 * CHUNK:
            value = _sums_of_chunks(wide, axis)
        else:
            value = self.numpy.accumulate(wide, axis, wide.dtype)
        if reverse:
            value = np.flip(value, axis)
        return value.astype(x.dtype, copy=False)

    def identity(
        self, inputs: Sequence[Atom], *, axis: int, reverse: bool
    ) -> Atom | None:
        """A single element is what it comes to."""
        size = inputs[0].type.shape[axis]
        return inputs[0] if not isinstance(size, Size) and size < 2 else None

    def padded(self, pads: Pads, x: Padded, *, axis: int, reverse: bool) -> Any:
        """What is behind a prefix comes later; from the end on, it changes nothing."""
        array = x.array
        if reverse:
            array = filled(pads, x, self.neutral(array.dtype), (axis,))
        return self(array, axis=axis, reverse=reverse)

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """The number that changes no result."""
        if self.numpy.identity is not None:
            return np.asarray(self.numpy.identity).astype(dtype).item()
        return extreme(dtype, lowest=self.numpy is not np.minimum)

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        *,
        axis: int,
        reverse: bool,
    ) -> Links | None:
        """Each element to those behind it."""
        size = out.shape[axis]
        if out.size * size > MOST:
            return None
        lines = np.moveaxis(numbered(out.shape), axis, 0)
        given, made = np.triu_indices(size)
        if reverse:
            given, made = made, given
        return lines[given].ravel(), lines[made].ravel()

    def _is_native(self, x: ArrayType) -> bool:
        """Whether kernels have such a running value; of complex numbers only sums."""
        if dtypes.is_complex(x.dtype):
            return self.combine == "add"
        return self.combine is not None

    def steps(self, plan: Any, x: Any, *, axis: int, reverse: bool) -> None:
        """A kernel with a running value."""
        if not self._is_native(x.type):
            plan.host()
        else:
            plan.scan(self.combine, axis, reverse)

    def pulled(self, types: Sequence[ArrayType], params: Any) -> dict[int, Pulled]:
        """The operand; the axis runs in the innermost loop."""
        if not self._is_native(types[0]):
            return {}
        shape, axis = types[0].shape, params["axis"]
        lanes = types[0].size // max(shape[axis], 1)
        return {0: Pulled(ordered=axis == len(shape) - 1, serial=usual(lanes) < LANES)}

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,  # the params have an axis, too
        **params: Any,
    ) -> tuple[Any, bool]:
        """The same along the next axis."""
        if mapped[0]:
            params["axis"] += 1
        return self(*args, **params), mapped[0]


def _sums_of_chunks(x: Any, axis: int) -> Any:
    """NumPy's accumulated sums, chunk by chunk."""
    x = np.moveaxis(x, axis, -1)
    whole = x.shape[-1] // CHUNK
    end = whole * CHUNK
    out = np.empty(x.shape, x.dtype)
    head = x[..., :end].reshape(*x.shape[:-1], whole, CHUNK)
    own = np.add.accumulate(head, -1, x.dtype)
    totals = np.add.accumulate(own[..., -1], -1, x.dtype)
    own[..., 1:, :] += totals[..., :-1, None]
    out[..., :end] = own.reshape(*x.shape[:-1], end)
    rest = np.add.accumulate(x[..., end:], -1, x.dtype)
    out[..., end:] = rest + totals[..., -1:]
    return np.moveaxis(out, -1, axis)


class _CumSum(Cumulative):
    linear = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, **params), self(*tangents, **params)

    def transpose(self, ct: Any, x: Any, *, axis: int, reverse: bool) -> tuple[Any]:
        """The sum from the other end."""
        return (self(ct, axis=axis, reverse=not reverse),)


class _CumProd(Cumulative):
    """Derivatives are right where x has zeros: they divide by nothing."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The product rule, pair by pair."""
        parts = (primals[0], tangents[0])
        _, tangent = scanned(product_rule, parts, (1, 0), **params)
        return self(*primals, **params), tangent

    def hoisted(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """Complex products, which kernels do not have as running values, in steps."""
        (x,) = eqn.inputs
        size = x.type.shape[eqn.params["axis"]]
        if not dtypes.is_complex(x.type.dtype) or isinstance(size, Size) or size < 2:
            return None
        return rewritten(eqn, lambda x: scanned(_product, (x,), (1,), **eqn.params)[0])


class _CumExtremum(Cumulative):
    """cummax and cummin: NaN wins. The tied so far share the cotangent equally."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The mean of the tangents of the elements that are equal to the output.

        They all stand in the run of equal outputs that the place belongs to, so that
        sums which start again with each run give sum and number of their tangents.
        """
        (x,), (t,) = primals, tangents
        out = self(x, **params)
        same_run = winners(before(out, 1, 0, **params), out)
        mask = winners(x, out)
        parts = (same_run, select(mask, t, 0), zero_or_one(mask, t.dtype))
        _, total, count = scanned(_sums_of_runs, parts, (False, 0, 0), **params)
        return out, div(total, count)


class _CumLogSumExp(Cumulative):
    """log of the cumulative sum of exponentials; -inf, with derivative 0, of -inf."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Each output's tangent is a mean of the one before and of the new one."""
        (x,), (t,) = primals, tangents
        out = self(x, **params)
        old = _share(before(out, 1, -math.inf, **params), out)
        new = scale(_share(x, out), t, bounded=True)
        _, tangent = scanned(_recurrence, (old, new), (1, 0), **params)
        return out, tangent


def _product(left: Parts, right: Parts) -> Parts:
    return (mul(left[0], right[0]),)


def _share(x: Any, total: Any) -> Any:
    """exp(x - total), which is at most 1, also where both are infinite."""
    at_top = zero_or_one(eq(x, math.inf), x.type.dtype)
    finite = select(eq(total, -math.inf), 0, exp(sub(x, total)))
    return select(eq(total, math.inf), at_top, finite)


def _sums_of_runs(left: Parts, right: Parts) -> Parts:
    """(whether nothing has started since the left part, sum, number)."""
    same_run, total, count = right
    joined = [select(same_run, part, 0) for part in left[1:]]
    return (
        select(same_run, left[0], False),
        add(total, joined[0]),
        add(count, joined[1]),
    )


def _recurrence(left: Parts, right: Parts) -> Parts:
    """(a, b) stands for h -> a * h + b."""
    (a, b), (c, d) = left, right
    return mul(a, c), add(scale(c, b, bounded=True), d)


cumsum = _CumSum("cumsum", NUMBER, np.add, "add")
cumprod = _CumProd("cumprod", NUMBER, np.multiply, "mul")
cummax = _CumExtremum("cummax", REAL, np.maximum, "max")
cummin = _CumExtremum("cummin", REAL, np.minimum, "min")
cumlogsumexp = _CumLogSumExp("cumlogsumexp", FLOAT, np.logaddexp, None)


# ---------------------------------------------------------------- for other rules


def scanned(
    combine: Callable[[Parts, Parts], Parts],
    parts: Sequence[Any],
    neutral: Sequence[bool | int],
    *,
    axis: int,
    reverse: bool = False,
) -> Parts:
    """The cumulative combination of several arrays along an axis.

    `combine` is associative and takes the parts of what stands before and of what
    stands after; `neutral` stands before the first. Each step combines what earlier
    ones made over twice the distance, so there are log2(n) of them.
    """
    parts, step = tuple(parts), 1
    while step < parts[0].type.shape[axis]:
        rows = zip(parts, neutral, strict=True)
        left = [before(x, step, value, axis=axis, reverse=reverse) for x, value in rows]
        parts = combine(tuple(left), parts)
        step *= 2
    return parts


def before(x: Any, step: int, first: Any, *, axis: int, reverse: bool = False) -> Any:
    """For each place the element `step` places before it, `first` where none is."""
    low, high = (-step, step) if reverse else (step, -step)
    return padded_along(x, axis, low, high, first)


def product_rule(left: Parts, right: Parts) -> Parts:
    """The product of two values, and its tangent; each part is (value, tangent)."""
    (a, ta), (b, tb) = left, right
    return mul(a, b), add(scale(b, ta), scale(a, tb))
