"""Products of several matrices, and equations of tensors.

Receives arrays, gives arrays. This is the end of the walk through `fnx.numpy.linalg`;
next: `fnx/scipy/linalg`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from fnx import errors
from fnx.core.array import Array
from fnx.numpy.contractions import matmul
from fnx.numpy.linalg.solving import inv, solve
from fnx.numpy.operands import ArrayLike, as_array
from fnx.numpy.shaping import moveaxis, reshape


def multi_dot(arrays: Sequence[ArrayLike], *, precision: Any = None) -> Array:
    """The product of two or more matrices, in the order that takes fewest operations.

    The first and the last one may be vectors. `precision` is that of `fnx.numpy.dot`.

    >>> import numpy as np
    >>> multi_dot([np.ones((2, 3)), np.ones((3, 4)), np.ones(4)])
    Array([12., 12.], dtype=float64)
    """
    given = [as_array("multi_dot", x, n) for n, x in enumerate(arrays)]
    if len(given) < 2:
        raise errors.ArgumentError("linalg.multi_dot: it takes two arrays or more")
    first, last = given[0], given[-1]
    ranks = [x.ndim for x in given]
    if any(rank != 2 for rank in ranks[1:-1]) or not {ranks[0], ranks[-1]} <= {1, 2}:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.multi_dot: {', '.join(str(x.type) for x in given)}",
                "all are matrices, but the first and the last one may be vectors",
            )
        )
    given[0] = reshape(first, (1, -1)) if first.ndim == 1 else first
    given[-1] = reshape(last, (-1, 1)) if last.ndim == 1 else last
    for x, y in itertools.pairwise(given):
        if x.shape[1] != y.shape[0]:
            raise errors.ShapeError(
                errors.explain(
                    f"linalg.multi_dot: {x.type} before {y.type}",
                    f"there are {x.shape[1]} columns and {y.shape[0]} rows",
                )
            )
    splits = _splits([x.shape[0] for x in given] + [given[-1].shape[1]])

    def product(i: int, j: int) -> Array:
        if i == j:
            return given[i]
        k = splits[i, j]
        return matmul(product(i, k), product(k + 1, j), precision=precision)

    result = product(0, len(given) - 1)
    if first.ndim == 1:
        result = result[0]
    return result[..., 0] if last.ndim == 1 else result


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """For each run of matrices, after which one to cut it so that it costs least.

    Source: T. H. Cormen and others, Introduction to Algorithms, chapter 15.2.
    """
    count = len(sizes) - 1
    costs = {(i, i): 0.0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs[i, j] = math.inf
            for k in range(i, j):
                own = sizes[i] * sizes[k + 1] * sizes[j + 1]
                cost = costs[i, k] + costs[k + 1, j] + own
                if cost < costs[i, j]:
                    costs[i, j], splits[i, j] = cost, k
    return splits


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of a tensor as a map: of its first `ind` axes to the others.

    >>> import numpy as np
    >>> tensorinv(np.eye(6).reshape(6, 2, 3), ind=1).shape
    (2, 3, 6)
    """
    x = as_array("tensorinv", a)
    if ind <= 0:
        raise errors.OptionError(
            errors.explain(f"linalg.tensorinv: ind={ind}", "it must be positive")
        )
    head, tail = x.shape[:ind], x.shape[ind:]
    if math.prod(head) != math.prod(tail):
        raise errors.ShapeError(
            errors.explain(
                f"linalg.tensorinv: a is {x.type}, ind={ind}",
                "the first axes must have as many elements as the others",
            )
        )
    return reshape(inv(reshape(x, (math.prod(head), -1))), (*tail, *head))


def tensorsolve(
    a: ArrayLike, b: ArrayLike, axes: tuple[int, ...] | None = None
) -> Array:
    """The tensor x with `tensordot(a, x, x.ndim) = b`.

    The `axes` of `a` are moved to its end first.

    >>> import numpy as np
    >>> tensorsolve(np.eye(6).reshape(6, 2, 3), np.arange(6.0)).shape
    (2, 3)
    """
    x, right = as_array("tensorsolve", a), as_array("tensorsolve", b, 1)
    if axes is not None:
        x = moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim)))
    shape = x.shape[right.ndim :]
    if math.prod(shape) != right.size or x.size != right.size**2:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.tensorsolve: a is {x.type}, b is {right.type}",
                "the axes of a beyond those of b must have as many elements as b",
            )
        )
    solution = solve(reshape(x, (right.size, right.size)), reshape(right, (-1,)))
    return reshape(solution, shape)
