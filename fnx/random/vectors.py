"""Random vectors and matrices: multivariate_normal, orthogonal.

Receives a key, means and covariances or sizes; gives normal numbers times a factor of
the covariance, or the orthogonal part of a matrix of them. Next on the walk:
`choosing.py`.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.operands import as_array, inexact_dtype
from fnx.random.arguments import float_dtype, shape_of
from fnx.random.continuous import normal, normal_from
from fnx.random.drawing import draw
from fnx.random.keys import key_words

METHODS = ("cholesky", "eigh", "svd")


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
) -> Array:
    """Normally distributed vectors of that mean and covariance.

    `mean` has shape (..., n) and `cov` (..., n, n); the other axes broadcast to
    `shape`, which is theirs by default. The samples have shape (*shape, n), and the
    dtype that both parameters are promoted to, unless `dtype` is given. `method` is how
    the covariance is factored: "cholesky" wants it positive definite (else the sample
    is NaN), "eigh" and "svd" take singular ones too. Differentiable by both parameters;
    by covariances with equal eigenvalues, with "cholesky" alone.

    Raises `ShapeError`, `DTypeError`, `OptionError`, by the argument's name.

    >>> from fnx.random import PRNGKey
    >>> multivariate_normal(PRNGKey(0), np.zeros(2), np.eye(2), (3,)).shape
    (3, 2)
    """
    if method not in METHODS:
        raise errors.OptionError(
            f"multivariate_normal: method {method!r} is none of {', '.join(METHODS)}"
        )
    centre, spread = [as_array("multivariate_normal", x) for x in (mean, cov)]
    _check_square(centre, spread)
    wide = inexact_dtype(np_.result_type(centre, spread))
    found = wide if dtype is None else float_dtype("multivariate_normal", dtype)
    if not dtypes.is_float(found):
        raise errors.DTypeError(
            f"multivariate_normal: mean and cov must be real, got {centre.type} and "
            f"{spread.type}"
        )
    batch = _batch(centre, spread, shape)
    words = key_words("multivariate_normal", key)
    noise = draw(normal_from, words, (), (*batch, centre.shape[-1]), found)
    # Decompositions need 32 bits at least.
    computed = dtypes.compute_dtype(found)
    centre, spread, noise = [np_.asarray(x, computed) for x in (centre, spread, noise)]
    moved = np_.einsum("...ij,...j->...i", _factor(spread, method), noise)
    return np_.asarray(np_.add(centre, moved), found)


def _factor(cov: Array, method: str) -> Array:
    """A matrix whose product with its transpose is the covariance."""
    if method == "cholesky":
        return np_.linalg.cholesky(cov)
    if method == "eigh":
        sizes, vectors = np_.linalg.eigh(cov)
    else:
        vectors, sizes, _ = np_.linalg.svd(cov)
    return np_.multiply(vectors, np_.expand_dims(np_.sqrt(sizes), -2))


def _check_square(mean: Array, cov: Array) -> None:
    size = mean.shape[-1] if mean.ndim else None
    if size is None or cov.shape[-2:] != (size, size):
        raise errors.ShapeError(
            errors.explain(
                f"multivariate_normal: mean is {mean.type}, cov is {cov.type}",
                "for vectors of n numbers they have shapes (..., n) and (..., n, n)",
            )
        )


def _batch(mean: Array, cov: Array, shape: Any) -> tuple[int, ...]:
    asked = () if shape is None else shape_of("multivariate_normal", shape)
    try:
        common = np.broadcast_shapes(mean.shape[:-1], cov.shape[:-2], asked)
    except ValueError:
        common = None
    if common is None or (shape is not None and common != asked):
        raise errors.ShapeError(
            f"multivariate_normal: mean ({mean.type}) and cov ({cov.type}) do not "
            f"broadcast to shape={asked}"
        )
    return common


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None
) -> Array:
    """Matrices distributed uniformly over the orthogonal (or unitary) ones.

    The samples have shape (*shape, n, m); m is n unless given. Of other matrices the
    rows are orthonormal (n <= m), or the columns. `dtype` is a float dtype, or a
    complex one, whose matrices are unitary.

    Raises `ArgumentError` for sizes that are no integers of at least 0.

    Source: F. Mezzadri, "How to generate random matrices from the classical compact
    groups", 2007.

    >>> from fnx.random import PRNGKey
    >>> orthogonal(PRNGKey(0), 3, (2,)).shape
    (2, 3, 3)
    """
    rows = _size("n", n)
    columns = rows if m is None else _size("m", m)
    sizes = shape_of("orthogonal", shape)
    longer, shorter = max(rows, columns), min(rows, columns)
    z = normal(key, (*sizes, longer, shorter), dtype)
    q, r = np_.linalg.qr(z)
    # A unique factor, so that the distribution is uniform: of positive diagonal.
    signs = np_.sign(np_.diagonal(r, axis1=-2, axis2=-1))
    found = np_.multiply(q, np_.expand_dims(signs, -2))
    return np_.swapaxes(found, -1, -2) if rows < columns else found


def _size(name: str, n: Any) -> int:
    try:
        size = operator.index(n)
    except TypeError:
        size = -1
    if size < 0:
        raise errors.ArgumentError(
            f"orthogonal: {name} must be an integer of at least 0, got {n!r}"
        )
    return size
