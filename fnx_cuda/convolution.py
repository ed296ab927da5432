"""Convolutions by the kernels of matrix products, which read windows where they lie.

Receives a `ConvolutionStep`; gives its launches. No patches are written out: a tile of
windows is read into shared memory as one of a matrix is. The derivatives of a
convolution are convolutions: that of the kernel sums over the batch, and its long sums
are split; that of x has spread elements, and is one launch for each phase.
Sums have a fixed order: results are the same in every run.
Next on the walk: `blaslt_api.py`.
"""

from __future__ import annotations

from fnx.runtime.plan import ConvolutionStep, Convolved, Place, Products
from fnx_cuda.attention_problem import attends
from fnx_cuda.convolution_problem import (
    MARGIN,
    Windowed,
    count_phases,
    phases,
    windowed,
)
from fnx_cuda.instructions import Launch
from fnx_cuda.joining import joined
from fnx_cuda.products import PROCESSORS, best_cut, cut_time, pays
from fnx_cuda.products_access import DType
from fnx_cuda.products_numbers import multiplies
from fnx_cuda.products_tensor import tensor_launches, tensor_tiles
from fnx_cuda.products_tile import tile_launches, work_bytes

MOST_PHASES = 64
"""So many launches are one convolution at most."""

_LEAST_OUTS = 16
"""Of so many output features, multiplying takes longer than a copy of x."""

_LAUNCH_CYCLES = 3000
"""How long it takes to start a kernel."""

_FOLD_RATE = 8
"""Multiply-adds of a multiprocessor in a cycle, where threads read both factors."""

_FOLD_CYCLES = 4
"""How long a thread takes for one of its multiply-adds."""


def convolves(dtype: DType, out_dtype: DType, convolved: Convolved) -> bool:
    """Whether a convolution is worth launches of its own.

    Otherwise each element is a fold in a kernel, into which other operations fuse: for
    small ones, and where groups have few output features (depthwise).
    """
    if not multiplies(dtype, out_dtype) or not convolved.axes or not convolved.work:
        return False
    if count_phases(convolved) > MOST_PHASES or _is_too_large(convolved):
        return False
    nowhere = (Place("work", 0),) * 3
    parts = [Windowed(dtype, out_dtype, nowhere, one) for one in phases(convolved)]
    tiles = sum(cut_time(part, best_cut(part)) + _LAUNCH_CYCLES for part in parts)
    work, summed = sum(part.given.work for part in parts), convolved.summed
    fold = max(work / (PROCESSORS * _FOLD_RATE), summed * _FOLD_CYCLES)
    return tiles < fold + _LAUNCH_CYCLES


def copies(dtype: DType, out_dtype: DType, convolved: Convolved) -> str | None:
    """Which axis of x (and of the kernel) is made the innermost one, in copies.

    Elements of 16 bits are copied to shared memory in pieces of 4 bytes or more, or
    each by itself, which a tensor core waits for. What is summed with a whole plane, as
    in the gradient of a kernel, keeps the order of space, and x has the batch last.
    """
    strides = convolved.x.strides
    if dtype.itemsize != 2 or 1 in strides[1:3] or convolved.outs < _LEAST_OUTS:
        return None
    if convolved.axes[-1].window > convolved.axes[-1].count:
        name, size = "batch", convolved.batch
    else:
        name, size = "features", convolved.features
    return None if size % 8 else name


PRODUCTS = Products(multiplies, pays, convolves, copies, joined, attends)
"""What are steps on a GPU: matrix products, convolutions, attentions; what joins them.
"""


def _is_too_large(convolved: Convolved) -> bool:
    """Whether kernels could not count its rows, or what is summed, by 31 bits."""
    rows = max(convolved.batch * convolved.places, convolved.outs)
    return max(rows, convolved.summed) >= 2**31 - MARGIN


def convolution_launches(step: ConvolutionStep) -> tuple[Launch, ...]:
    """The launches that compute a step, over places of the role "work" if k is split.

    That memory has `convolution_work(step)` bytes.
    """
    by_tensor = tensor_tiles(step.dtype, step.tf32)
    make = tensor_launches if by_tensor else tile_launches
    parts = [part for part in windowed(step) if part.m * part.n]
    return tuple([one for part in parts for one in make(part, best_cut(part))])


def convolution_work(step: ConvolutionStep) -> int:
    """The bytes of work memory that the launches of a step use, one after the other."""
    sizes = [0]
    for part in windowed(step):
        splits = best_cut(part).splits if part.m * part.n else 1
        sizes.append(work_bytes(part, splits) if splits > 1 else 0)
    return max(sizes)
