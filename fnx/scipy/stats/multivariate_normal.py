"""The normal distribution of several dimensions.

Receives points x and the mean along their last axis, and the covariance in the last two
axes of `cov`; a number or a vector of variances stands for a diagonal matrix. Gives an
array of the other axes.

>>> import numpy as np
>>> round(logpdf(np.zeros(2), np.zeros(2), np.eye(2)).item(), 4)
-1.8379
"""

from __future__ import annotations

import math
from typing import Any

from fnx import errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import operands, reductions
from fnx.numpy.operands import ArrayLike, typed
from fnx.ops import elementwise as ops
from fnx.scipy.stats.covariance import factor, log_determinant, squared_length


@becomes_native
def logpdf(
    x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: Any = None
) -> Array:
    """The logarithm of the density at x; NaN for a covariance that is not definite.

    `allow_singular` must be left out.
    """
    name = "multivariate_normal.logpdf"
    if allow_singular is not None:
        raise errors.OptionError(
            f"{name}: allow_singular={allow_singular!r} is not supported; leave it out"
        )
    values, dtype, weak = operands.promoted(name, (x, mean, cov), inexact=True)
    point, center, covariance = [
        typed(name, value, dtype, weak, position)
        for position, value in enumerate(values)
    ]
    if not center.shape:
        if covariance.shape and covariance.size != 1:
            raise _mismatch(center, covariance)
        if covariance.ndim == 2:
            covariance = covariance[0, 0]
        return _one(point, center, covariance)
    size = center.shape[-1]
    if not point.shape or point.shape[-1] not in (size, 1):
        raise _mismatch(center, point)
    if covariance.ndim < 2:
        return _diagonal(point, center, covariance)
    if covariance.shape[-2:] != (size, size):
        raise _mismatch(center, covariance)
    apart = point - center
    triangle = factor(covariance)
    square = squared_length(triangle, [apart[..., i] for i in range(size)])
    norm = log_determinant(triangle) + 0.5 * size * math.log(2 * math.pi)
    return -0.5 * square - norm


def _mismatch(mean: Array, other: Array) -> errors.ShapeError:
    return errors.ShapeError(
        "multivariate_normal: the dimensions of the arguments differ: the mean is "
        f"{mean.type}, another is {other.type}"
    )


def _one(x: Array, mean: Array, variance: Array) -> Array:
    square = (x - mean) ** 2 / variance
    return -0.5 * (square + ops.log(variance) + math.log(2 * math.pi))


def _diagonal(x: Array, mean: Array, variances: Array) -> Array:
    """Independent coordinates, of one variance or of their own."""
    if variances.ndim and variances.shape[0] not in (1, mean.shape[-1]):
        raise _mismatch(mean, variances)
    return reductions.sum(_one(x, mean, variances), axis=-1)


@becomes_native
def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, mean, cov))
