"""fnx.scipy.cluster.vq: the nearest code of each observation.

Receives vectors as rows, gives indices and distances. Next on the walk:
`fnx/scipy/integrate.py`.
"""

from __future__ import annotations

import numpy as np

import fnx.numpy as np_
from fnx import errors
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, as_array, cast, promoted
from fnx.runtime.array import ConcreteArray


def vq(
    obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True
) -> tuple[Array, Array]:
    """For each row of `obs` the number of the nearest row of `code_book`, and how far.

    Both have shape (rows, N), or are vectors of numbers. The first of rows that are
    equally near counts. Distances are Euclidean, in the dtype that both are promoted
    to, and have derivative 0 where they are 0. `check_finite` raises for NaN and
    infinities in arrays whose values are known.

    Raises `ShapeError` where ranks or widths differ, `ArgumentError` for numbers that
    are not finite.

    >>> codes, distances = vq(np.array([1.0, 4.0]), np.array([0.0, 3.0]))
    >>> codes.tolist(), distances.tolist()
    ([0, 1], [1.0, 1.0])
    """
    values, dtype, _ = promoted("vq", (obs, code_book), inexact=True)
    rows, codes = [cast(as_array("vq", x), dtype) for x in values]
    if rows.ndim != codes.ndim or rows.ndim not in (1, 2):
        raise errors.ShapeError(
            errors.explain(
                f"vq: obs is {rows.type}, code_book is {codes.type}",
                "both have rows, or are vectors",
            )
        )
    if rows.ndim == 1:
        rows, codes = np_.expand_dims(rows, 1), np_.expand_dims(codes, 1)
    if rows.shape[1] != codes.shape[1] or not codes.shape[0]:
        raise errors.ShapeError(
            f"vq: rows of obs and code_book must be of one width, and there must be a "
            f"code: they are {rows.type} and {codes.type}"
        )
    if check_finite:
        for name, x in (("obs", rows), ("code_book", codes)):
            if isinstance(x, ConcreteArray) and not np.isfinite(np.asarray(x)).all():
                raise errors.ArgumentError(
                    f"vq: {name} has numbers that are not finite; pass "
                    f"check_finite=False to take them"
                )
    apart = np_.expand_dims(rows, 1) - np_.expand_dims(codes, 0)  # type: ignore[operator]
    distances = np_.linalg.norm(apart, axis=-1)
    nearest = np_.argmin(distances, -1)
    places = np_.expand_dims(nearest, 1)
    return nearest, np_.squeeze(np_.take_along_axis(distances, places, 1), 1)
