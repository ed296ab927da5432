"""Convolutions of tests: steps with arrays that lie in any order of axes.

`Case` says sizes and windows; its `step` is what a plan would have, `memories` makes
the arrays, and `check` compares with direct sums in float64 or in integers that wrap.
Next: `test_convolution.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes
from fnx.runtime.plan import ConvolutionStep, Convolved, Layout, Sliding
from tests.cuda.products import OUT, X, Y, random_numbers

ORDERS = {"NHWC": ("bsf", "sfo", "bso"), "NCHW": ("bfs", "ofs", "bos")}
"""Axes of x, kernel and out: batch, features, space, and output features."""


@dataclass(frozen=True)
class Case:
    """A convolution; each axis is (size, window, stride, dilation, base, low, high)."""

    axes: tuple[tuple[int, ...], ...]
    batch: int = 2
    outs: int = 40
    features: int = 24
    groups: int = 1
    dtype: Any = np.float32
    out_dtype: Any = None
    order: tuple[str, str, str] = ORDERS["NHWC"]

    @property
    def step(self) -> ConvolutionStep:
        """The step."""
        dtype = np.dtype(self.dtype)
        out_dtype = dtype if self.out_dtype is None else np.dtype(self.out_dtype)
        return ConvolutionStep(dtype, OUT, X, Y, self.convolved, out_dtype)

    @property
    def convolved(self) -> Convolved:
        """Its numbers."""
        axes = tuple([_sliding(*axis) for axis in self.axes])
        window, space, places = [
            [getattr(axis, name) for axis in axes]
            for name in ("window", "size", "count")
        ]
        x, kernel, out = self.order
        return Convolved(
            self.groups,
            self.batch,
            self.outs,
            self.features,
            axes,
            self._layout(out, "bo", places),
            self._layout(x, "bf", space),
            self._layout(kernel, "of", window),
        )

    def _layout(self, order: str, first: str, space: Sequence[int]) -> Layout:
        """A dense array; groups are the first part of the features."""
        sizes = {"b": self.batch, "f": self.features, "o": self.outs}
        grouped = "o" if "o" in first else "f"
        strides: dict[Any, int] = {}
        step = 1
        for name in reversed(order):
            if name == "s":
                for axis in reversed(range(len(space))):
                    strides[axis] = step
                    step *= space[axis]
                continue
            strides[name] = step
            step *= sizes[name]
            if name == grouped:
                strides["g"] = step
                step *= self.groups
        names = ("g", *first, *range(len(space)))
        return Layout(0, tuple([strides[name] for name in names]))


def _sliding(
    size: int, window: int, stride: int, dilation: int, base: int, low: int, high: int
) -> Sliding:
    room = (size - 1) * base + 1 + low + high - ((window - 1) * dilation + 1)
    count = room // stride + 1 if room >= 0 else 0
    return Sliding(size, count, window, stride, dilation, base, low)


def shapes(given: Convolved) -> tuple[tuple[int, ...], ...]:
    """The sizes along the layouts' axes: of out, x and the kernel."""
    axes, groups = given.axes, given.groups
    return (
        (groups, given.batch, given.outs, *[axis.count for axis in axes]),
        (groups, given.batch, given.features, *[axis.size for axis in axes]),
        (groups, given.outs, given.features, *[axis.window for axis in axes]),
    )


def _layouts(given: Convolved) -> tuple[Layout, Layout, Layout]:
    return given.out, given.x, given.kernel


def viewed(memory: Any, layout: Layout, shape: Sequence[int]) -> Any:
    """An array in flat memory."""
    steps = [step * memory.itemsize for step in layout.strides]
    begin = memory[layout.offset :]
    return np.lib.stride_tricks.as_strided(begin, shape, steps)


def memories(step: ConvolutionStep, rng: np.random.Generator) -> list[Any]:
    """Dense memory for out, x and the kernel, with random numbers."""
    types = step.out_dtype, step.dtype, step.dtype
    return [
        random_numbers(dtype, int(np.prod(shape)), rng)
        for dtype, shape in zip(types, shapes(step.convolved), strict=True)
    ]


def convolved(given: Convolved, x: Any, kernel: Any) -> Any:
    """The sums, one offset in the window after the other, in the arrays' dtype."""
    out_shape, _, _ = shapes(given)
    total = np.zeros(out_shape, x.dtype)
    for offsets in itertools.product(*[range(axis.window) for axis in given.axes]):
        part, here = x, slice(None)
        for number, (axis, offset) in enumerate(zip(given.axes, offsets, strict=True)):
            at = np.arange(axis.count) * axis.stride + offset * axis.dilation - axis.low
            met = (at % axis.base == 0) & (at >= 0) & (at < axis.size * axis.base)
            part = np.take(part, np.where(met, at // axis.base, 0), axis=3 + number)
            mask = met.reshape(-1, *[1] * (len(given.axes) - 1 - number))
            part = np.where(mask, part, part.dtype.type(0))
        factor = kernel[(here, here, here, *offsets)]
        total += np.einsum("gbf...,gof->gbo...", part, factor)
    return total


def check(step: ConvolutionStep, before: Sequence[Any], out: Any) -> None:
    """Asserts that `out` has the sums, within the error of any order of them."""
    given = step.convolved
    layouts, sizes = _layouts(given), shapes(given)
    x, kernel = [viewed(before[n], layouts[n], sizes[n]) for n in (1, 2)]
    got = viewed(out, layouts[0], sizes[0])
    if not dtypes.is_inexact(step.dtype):
        want = convolved(given, x.astype(np.uint64), kernel.astype(np.uint64))
        np.testing.assert_array_equal(got, want.astype(step.out_dtype))
        return
    wide = np.complex128 if dtypes.is_complex(step.dtype) else np.float64
    x, kernel = x.astype(wide), kernel.astype(wide)
    want, sums = convolved(given, x, kernel), convolved(given, abs(x), abs(kernel))
    summed = dtypes.real_dtype(dtypes.compute_dtype(step.dtype))
    bound = (given.summed + 2) * float(np.finfo(summed).eps) * sums
    if summed != dtypes.real_dtype(step.out_dtype):
        kept = ml_dtypes.finfo(step.out_dtype)
        bound = bound * 2 + float(kept.eps) / 2 * abs(want)
        bound += float(kept.smallest_subnormal)
    assert np.all(abs(got - want) <= bound)
