"""Convolutions of spread arrays (gradients of strided ones), one for each phase.

Between the elements of an array that is spread by `b` there are zeros. Output number
b·q + r meets every b-th element of the kernel only, so that the outputs with the same r
are a convolution of the array as it is by these. Receives such a convolution, gives
the others and puts their outputs together. Next on the walk: `dense.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

from fnx.ops.convolution import Convolution
from fnx.ops.dot import DType
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import full, reshape
from fnx.ops.windows import Windows


def has_phases(convolution: Convolution) -> bool:
    """Whether there are phases: strides of 1 along what is spread."""
    rows = list(convolution.windows.rows)
    spread = [row for row in rows if row[3] > 1]
    return bool(spread) and all(row[1] == row[4] == 1 for row in spread)


def in_phases(
    primitive: Any,
    x: Any,
    kernel: Any,
    convolution: Convolution,
    out: DType,
    precision: Any,
) -> Any:
    """The outputs of all phases, interleaved."""
    windows, dims = convolution.windows, convolution.dims
    shape = convolution.output_shape(x.shape, kernel.shape)
    bases = windows.base_dilation
    space = dims.out_spec[2:]
    rows = list(shape)
    for axis, base in zip(space, bases, strict=True):
        rows[axis] = -(-shape[axis] // base)
    counts = [rows[axis] for axis in space]
    params = {"preferred_element_type": out, "precision": precision}
    parts = {}
    for phase in itertools.product(*map(range, bases)):
        part, taken = kernel, []
        for n, axis in enumerate(dims.rhs_spec[2:]):
            size, _, (low, _), base, _ = list(windows.rows)[n]
            first = (low - phase[n]) % base
            part = part_of(part, axis, min(first, size), size, base)
            length, before = part.shape[axis], (low - phase[n] - first) // base
            after = counts[n] + length - 1 - before - x.shape[dims.lhs_spec[2 + n]]
            taken.append((length, (before, after)))
        if any(not length for length, _ in taken):
            parts[phase] = full(tuple(rows), out, 0)
            continue
        inner = _unspread(windows, taken)
        of_phase = Convolution(
            dims, inner, convolution.feature_groups, convolution.batch_groups
        )
        parts[phase] = primitive(x, part, convolution=of_phase, **params)
    found = _interleaved(parts, space, bases)
    for axis in space:
        if found.shape[axis] > shape[axis]:
            found = part_of(found, axis, 0, shape[axis])
    return found


def _unspread(windows: Windows, taken: list[tuple[int, tuple[int, int]]]) -> Windows:
    """Windows of a phase; along what is not spread they are as they were."""
    size, padding = [], []
    for row, (length, ends) in zip(windows.rows, taken, strict=True):
        size.append(length)
        padding.append(ends if row[3] > 1 else row[2])
    return Windows.of(
        tuple(size), strides=windows.strides, padding=padding, dilation=windows.dilation
    )


def _interleaved(parts: dict[Any, Any], space: Any, bases: Any) -> Any:
    """One array of those of all phases, axis by axis from the last."""
    for n in reversed(range(len(space))):
        axis, base = space[n], bases[n]
        joined = {}
        for phase in itertools.product(*map(range, bases[:n])):
            each = [parts[(*phase, r)] for r in range(base)]
            joined[phase] = each[0] if base == 1 else _woven(each, axis)
        parts = joined
    return parts[()]


def _woven(arrays: list[Any], axis: int) -> Any:
    """Arrays interleaved along an axis."""
    shape = arrays[0].shape
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    rows = [reshape(x, shape=apart) for x in arrays]
    whole = (*shape[:axis], shape[axis] * len(arrays), *shape[axis + 1 :])
    return reshape(concatenate(*rows, axis=axis + 1), shape=whole)
