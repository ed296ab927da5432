"""Roots of polynomials and polynomials of roots; fits by least squares.

Receives vectors and matrices, gives vectors. Loaded when it is first used. Next on the
walk: `histograms.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.core.array import Array
from fnx.numpy import linalg, on_numpy, ufuncs
from fnx.numpy import reductions as over
from fnx.numpy.contractions import matmul
from fnx.numpy.creation import asarray, zeros
from fnx.numpy.creation import full as filled
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate
from fnx.numpy.mathematics import conj, real
from fnx.numpy.operands import ArrayLike, as_array, cast, inexact_dtype, promoted, typed
from fnx.numpy.polynomials import coefficients_of, known, trimmed
from fnx.numpy.shaping import atleast_1d, expand_dims, transpose
from fnx.numpy.statistics import vander
from fnx.ops.pieces import padded_along


@at_once(on_numpy.poly)
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with the given roots and leading coefficient 1.

    Of a square matrix it is the characteristic polynomial.

    >>> poly(np.array([1.0, 3.0])).tolist()
    [1.0, -4.0, 3.0]
    """
    x = as_array("poly", seq_of_zeros)
    x = atleast_1d(cast(x, inexact_dtype(x.dtype)))
    of_real_matrix = x.ndim == 2 and not dtypes.is_complex(x.dtype)
    if x.ndim == 2:
        x = linalg.eigvals(x)
    if x.ndim > 2:
        raise errors.ShapeError(f"poly takes roots or a matrix, got {x.type}")
    found = filled((1,), 1, x.dtype)
    for i in range(x.size):
        shifted = padded_along(found, 0, 1, 0)
        longer = padded_along(found, 0, 0, 1)
        found = ufuncs.subtract(longer, ufuncs.multiply(shifted, get(x, i)))
    # The roots of a real matrix are real or come in pairs.
    return real(found) if of_real_matrix else found


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, complex, as eigenvalues of its companion matrix.

    With `strip_zeros=False` leading zeros, which give infinite or NaN roots, stay, so
    that values need not be known.

    >>> roots(np.array([1.0, -4.0, 3.0])).real.round(4).tolist()
    [3.0, 1.0]
    """
    x = coefficients_of("roots", p)
    x = cast(x, inexact_dtype(x.dtype))
    behind = 0
    if strip_zeros:
        x = trimmed("roots", x)
        places = np.flatnonzero(known("roots", x))
        behind = x.size - (int(places[-1]) + 1 if places.size else 0)
        x = get(x, slice(x.size - behind))
    found = zeros((behind,), dtypes.complex_dtype(x.dtype))
    if x.size < 2:
        return found
    first = ufuncs.negative(ufuncs.divide(get(x, slice(1, None)), get(x, 0)))
    below = np.eye(x.size - 2, x.size - 1).astype(x.dtype)
    companion = concatenate([expand_dims(first, 0), asarray(below)])
    return concatenate([linalg.eigvals(companion), found])


@at_once(on_numpy.polyfit)
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """The polynomial of a degree that is nearest to the points, by least squares.

    `y` has rank 1 or 2 (a fit for each column); `w` are weights of the residuals. With
    `full` also residuals, rank, singular values and rcond; with `cov` also the
    covariance of the coefficients, scaled by the residuals unless `cov="unscaled"`.

    >>> polyfit(np.arange(4.0), 2 * np.arange(4.0) + 1, 1).round(4).tolist()
    [2.0, 1.0]
    """
    if deg < 0:
        raise errors.OptionError(f"polyfit: the degree {deg} is negative")
    values, dtype, _ = promoted("polyfit", (x, y), inexact=True)
    places, heights = [typed("polyfit", value, dtype) for value in values]
    if places.ndim != 1 or heights.ndim not in (1, 2) or not places.size:
        raise errors.ShapeError(
            f"polyfit takes a vector x and y of rank 1 or 2, got {places.type} and "
            f"{heights.type}"
        )
    if places.shape[0] != heights.shape[0]:
        raise errors.ShapeError(
            f"polyfit: x {places.type} and y {heights.type} differ in length"
        )
    cutoff = places.size * float(np.finfo(dtype).eps) if rcond is None else rcond
    left, right = vander(places, deg + 1), heights
    if w is not None:
        weights = _weights(w, places, dtype)
        left = ufuncs.multiply(left, expand_dims(weights, 1))
        each = expand_dims(weights, 1) if right.ndim == 2 else weights
        right = ufuncs.multiply(right, each)
    scale = ufuncs.sqrt(real(over.sum(ufuncs.multiply(left, conj(left)), 0)))
    scaled = ufuncs.divide(left, scale)
    found, residuals, rank, singular = linalg.lstsq(scaled, right, cutoff)
    wide = expand_dims(scale, 1) if right.ndim == 2 else scale
    coefficients = ufuncs.divide(found, wide)
    if full:
        return coefficients, residuals, rank, singular, asarray(cutoff)
    if not cov:
        return coefficients
    inverse = linalg.inv(matmul(transpose(conj(scaled)), scaled))
    inverse = ufuncs.divide(inverse, ufuncs.multiply(expand_dims(scale, 1), scale))
    if cov == "unscaled":
        factor: Any = asarray(1.0, dtype)
    elif places.size <= deg + 1:
        raise errors.OptionError(
            f"polyfit: {places.size} points leave no residuals for a degree of {deg}; "
            "cov='unscaled' needs none"
        )
    else:
        factor = ufuncs.divide(residuals, float(places.size - deg - 1))
    if right.ndim == 1:
        return coefficients, ufuncs.multiply(inverse, factor)
    return coefficients, ufuncs.multiply(expand_dims(inverse, 2), factor)


def _weights(w: ArrayLike, places: Array, dtype: np.dtype[Any]) -> Array:
    weights = typed("polyfit", w, dtype, position=5)
    if weights.shape != places.shape:
        raise errors.ShapeError(
            f"polyfit: w {weights.type} must be a vector as long as x {places.type}"
        )
    return weights
