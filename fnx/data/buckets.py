"""Bucketing: arrays padded to the next of a few sizes, with a mask of what is real.

Receives a tree of arrays that share the size of an axis; gives the tree with that axis
as long as its bucket, and the padding mask, which reductions take as `where`. NumPy
arrays stay NumPy arrays: batches are padded on the host, before they are given away.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import fnx.numpy as fnp
from fnx import dtypes, errors, tree
from fnx.api.dynamic import range_end
from fnx.core.array import Array


def bucket_size(size: int, buckets: Sequence[int] | None = None) -> int:
    """The least bucket that holds so many elements.

    `buckets` are sizes in increasing order; without them they are 8, 12, 16, 24, 32 and
    so on, so that at most a third is padding from 8 elements on. Raises `OptionError`
    for buckets that are no integers or do not increase, and `ShapeError` for a size
    that none holds.

    >>> bucket_size(9), bucket_size(100), bucket_size(100, [64, 128, 512])
    (12, 128, 128)
    """
    if buckets is None:
        return range_end(size)
    try:
        found = list(map(operator.index, buckets))
    except TypeError:
        found = []
    ordered = all(a < b for a, b in zip([0, *found], found, strict=False))
    if not found or not ordered:
        reason = "they must be positive sizes in increasing order"
        raise errors.OptionError(errors.explain(f"buckets={buckets!r}", reason))
    for bucket in found:
        if size <= bucket:
            return bucket
    asked = f"a size of {size} and buckets={found}"
    reason, fix = "the largest one is smaller", "cut the data, or add a bucket"
    raise errors.ShapeError(errors.explain(asked, reason, fix))


def pad_to_bucket(
    batch: Any,
    axis: int = 0,
    *,
    buckets: Sequence[int] | None = None,
    value: complex = 0,
) -> tuple[Any, Any]:
    """The arrays of a tree with an axis padded to its bucket, and the padding mask.

    All leaves have the same size along `axis`, which may be negative; behind it comes
    `value`. The mask is a bool array of one axis, as long as the bucket, and true where
    elements are real. It is an array of fnx if one of the leaves is, else NumPy's, as
    are the results for leaves of NumPy. `buckets` are as in `bucket_size`.

    Raises `AxisError` for a leaf without the axis, `ShapeError` for leaves that differ
    in its size, and for a size that no bucket holds, `DTypeError` for a leaf that
    cannot hold the value, `ArgumentError` for a tree without arrays.

    >>> import fnx, numpy as np
    >>> @fnx.jit
    ... def mean_loss(batch, mask):
    ...     return ((batch["x"] - batch["y"]) ** 2).mean(where=mask)
    >>> for size in (5, 7, 8):
    ...     batch = {"x": np.ones(size), "y": np.arange(size) / size}
    ...     loss = mean_loss(*fnx.data.pad_to_bucket(batch))
    >>> mean_loss.cache_info().misses
    1
    """
    named = [(f"batch{tree.keystr(p)}", x) for p, x in tree.leaves_with_path(batch)]
    leaves = [(name, _array(x)) for name, x in named]
    if not leaves:
        asked, reason = "pad_to_bucket of a tree", "it has no arrays"
        raise errors.ArgumentError(errors.explain(asked, reason))
    sizes = {name: _size(name, x, axis) for name, x in leaves}
    first, size = next(iter(sizes.items()))
    for name, other in sizes.items():
        if other != size:
            asked = f"pad_to_bucket: axis {axis} of {name} has size {other}"
            reason = f"that of {first} has size {size}"
            fix = "pad parts of different sizes by themselves"
            raise errors.ShapeError(errors.explain(asked, reason, fix))
    for name, x in leaves:
        if not _holds(x.dtype, value):
            asked = f"pad_to_bucket: value={value} in {name}"
            reason = f"its dtype {x.dtype} has no such value"
            raise errors.DTypeError(errors.explain(asked, reason, "pad it by itself"))
    end = bucket_size(size, buckets)
    padded = [_padded(x, axis, end - size, value) for _, x in leaves]
    mask: Any = np.arange(end) < size
    if any(isinstance(x, Array) for _, x in leaves):
        mask = fnp.asarray(mask)
    return tree.structure(batch).unflatten(padded), mask


def _array(x: Any) -> Any:
    return x if isinstance(x, Array | np.ndarray) else np.asarray(x)


def _size(name: str, x: Any, axis: int) -> int:
    if not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        asked = f"pad_to_bucket: axis {axis} of {name}"
        raise errors.AxisError(errors.explain(asked, f"its shape is {x.shape}"))
    return int(x.shape[axis])


def _holds(dtype: Any, value: complex) -> bool:
    """Whether a value can be one of a dtype, but for rounding."""
    number = complex(value)
    if number.imag and not dtypes.is_complex(dtype):
        return False
    if dtypes.is_bool(dtype):
        return number.real in (0, 1)
    if not (dtypes.is_integer(dtype) or dtypes.is_stored_integer(dtype)):
        return True
    limits = dtypes.limits(dtype)
    return number.real.is_integer() and bool(limits.min <= number.real <= limits.max)


def _padded(x: Any, axis: int, more: int, value: complex) -> Any:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, more)
    if isinstance(x, Array):
        return fnp.pad(x, widths, constant_values=value)
    return np.pad(x, widths, constant_values=value)
