"""fnx.flatten_util: ravel_pytree, a tree of arrays as one vector.

Receives a tree, gives a vector and the function that makes such trees of vectors. Next
on the walk: `dlpack.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import fnx.numpy as np_
from fnx import errors, tree
from fnx.api.arguments import as_array, leaf_names
from fnx.core.array import Array


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """All elements of a tree of arrays in one vector, and the function back.

    The vector has the dtype that the leaves are promoted to (float32 for a tree without
    leaves). The function takes a vector of that length and gives a tree of the same
    structure and shapes. If all leaves had one dtype, the new ones have that of the
    vector, whatever it is; else it must be the promoted one, and each leaf gets its own
    dtype back. Both directions are differentiable.

    The function raises `ShapeError` for another length, `DTypeError` for another dtype.

    >>> import numpy as np
    >>> flat, back = ravel_pytree({"w": np.ones((2, 2)), "b": np.zeros(1)})
    >>> flat.tolist(), back(2 * flat)["w"].tolist()
    ([0.0, 1.0, 1.0, 1.0, 1.0], [[2.0, 2.0], [2.0, 2.0]])
    """
    leaves, treedef = tree.flatten(pytree)
    names = leaf_names(["pytree"], [treedef])
    named = zip(leaves, names, strict=True)
    arrays = [as_array(leaf, "ravel_pytree", name) for leaf, name in named]
    if not arrays:
        flat = np_.zeros(0, "float32")
    else:
        dtype = np_.result_type(*arrays)
        parts = [np_.reshape(np_.asarray(x, dtype), -1) for x in arrays]
        flat = np_.concatenate(parts)
    types = [x.type for x in arrays]
    ends = list(itertools.accumulate([type.size for type in types]))
    alike = len({type.dtype for type in types}) < 2

    def unravel(vector: Any) -> Any:
        x = as_array(vector, "unravel", "the vector")
        if x.shape != flat.shape:
            raise errors.ShapeError(
                f"unravel: the vector must have shape {flat.shape}, got {x.type}"
            )
        if not alike and x.dtype != flat.dtype:
            raise errors.DTypeError(
                errors.explain(
                    f"unravel: the vector is {x.type}",
                    f"the leaves have several dtypes, whose vector is {flat.type}",
                    "convert it",
                )
            )
        rows = []
        for end, type in zip(ends, types, strict=True):
            row: Any = np_.reshape(x[end - type.size : end], type.shape)
            rows.append(row if alike else _converted(row, type.dtype))
        return treedef.unflatten(rows)

    return flat, unravel


def _converted(x: Any, dtype: Any) -> Any:
    """The array in the dtype of a leaf; the imaginary part of a real one is 0."""
    is_real = not np_.issubdtype(dtype, np_.complexfloating)
    return np_.asarray(x.real if is_real and np_.iscomplexobj(x) else x, dtype)
