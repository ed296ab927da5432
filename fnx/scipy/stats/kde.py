"""Gaussian kernel density estimates.

Receives points as the columns of an array, gives a `gaussian_kde`, which is a pytree:
it can be made and used inside of `jit`, and derivatives go through it. Next on the
walk: `fnx/random`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, random, tree
from fnx.core.array import Array
from fnx.nn import logsumexp
from fnx.numpy import contractions, reductions, shaping, ufuncs
from fnx.numpy.operands import ArrayLike, as_array, promoted, typed
from fnx.scipy.special import ndtr
from fnx.scipy.stats import covariance as triangles

Bandwidth = str | float | Array | Callable[[Any], ArrayLike] | None


@tree.register_pytree_node_class
class gaussian_kde:
    """A density that is a sum of normal ones, about the points of a data set.

    `dataset` holds a point a column (or a number each, if it has one axis), `weights` a
    weight a point. `bw_method` is "scott" (the default), "silverman", a factor, or a
    function that gives the factor for this object: the covariance is that of the data
    times its square. Raises `ShapeError` for fewer than two numbers or weights of
    another length, `OptionError` for another method.

    >>> import numpy as np
    >>> kde = gaussian_kde(np.array([0.0, 1.0, 2.0]))
    >>> round(kde(1.0)[0].item(), 4)
    0.3182
    """

    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: Bandwidth = None,
        weights: ArrayLike | None = None,
    ) -> None:
        given = [dataset] if weights is None else [dataset, weights]
        values, dtype, _ = promoted("gaussian_kde", given, inexact=True)
        if dtypes.is_complex(dtype):
            raise errors.DTypeError("gaussian_kde takes real numbers, not complex ones")
        data = _columns(typed("gaussian_kde", values[0], dtype))
        if data.size < 2:
            raise errors.ShapeError(
                "gaussian_kde: the data set must have several elements, it is "
                f"{data.type}"
            )
        self.dataset = data
        self.weights = self._shares(values[1:], dtype)
        self.neff = 1 / reductions.sum(self.weights**2)
        factor = self._factor(bw_method)
        mean = reductions.sum(data * self.weights, axis=1, keepdims=True)
        apart = data - mean
        spread = contractions.matmul(apart * self.weights, shaping.transpose(apart))
        spread = spread / (1 - reductions.sum(self.weights**2))
        self.covariance = spread * factor**2
        self.inv_cov = triangles.inverse(triangles.factor(self.covariance))

    def _shares(self, weights: Sequence[Any], dtype: Any) -> Array:
        if not weights:
            return typed("gaussian_kde", 1 / self.n, dtype) + self.dataset[0] * 0
        given = typed("gaussian_kde", weights[0], dtype)
        if given.shape != (self.n,):
            raise errors.ShapeError(
                f"gaussian_kde: there must be a weight for each of {self.n} points, "
                f"got {given.type}"
            )
        return given / reductions.sum(given)

    def _factor(self, method: Bandwidth) -> Any:
        power = -1.0 / (self.d + 4)
        if method is None or method == "scott":
            return self.neff**power
        if isinstance(method, str):
            if method == "silverman":
                return (self.neff * (self.d + 2) / 4.0) ** power
            raise errors.OptionError(
                "gaussian_kde: bw_method must be 'scott', 'silverman', a number or a "
                f"function, got {method!r}"
            )
        return method(self) if callable(method) else method

    def tree_flatten(self) -> tuple[tuple[Array, ...], None]:
        """The arrays that it holds."""
        parts = self.neff, self.dataset, self.weights, self.covariance, self.inv_cov
        return parts, None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Sequence[Any]) -> gaussian_kde:
        """The estimate that holds these arrays."""
        kde = cls.__new__(cls)
        kde.neff, kde.dataset, kde.weights, kde.covariance, kde.inv_cov = children
        return kde

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of points in the data set."""
        return self.dataset.shape[1]

    # -- densities

    def logpdf(self, x: ArrayLike) -> Array:
        """The logarithms of the density at points, one a column of x."""
        squares, norm = self._squares(x)
        return logsumexp(-0.5 * squares, axis=1, b=self.weights) - norm

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at points, one a column."""
        squares, norm = self._squares(points)
        terms = ufuncs.exp(-0.5 * squares) * self.weights
        return reductions.sum(terms, axis=1) * ufuncs.exp(-norm)

    def pdf(self, x: ArrayLike) -> Array:
        """The density at points, one a column of x."""
        return self.evaluate(x)

    def __call__(self, points: ArrayLike) -> Array:
        """The density at points, one a column."""
        return self.evaluate(points)

    def _squares(self, x: ArrayLike) -> tuple[Array, Array]:
        """The squared distances from the data, and the logarithm of the norm."""
        points = self._points(x)
        triangle = triangles.factor(self.covariance)
        return _distances(triangle, points, self.dataset), _log_norm(triangle)

    def _points(self, x: ArrayLike) -> Array:
        points = _columns(as_array("gaussian_kde", x))
        if points.shape[0] != self.d and points.shape == (1, self.d):
            points = shaping.transpose(points)
        if points.shape[0] != self.d:
            raise errors.ShapeError(
                f"gaussian_kde: points of {points.shape[0]} dimensions, but the data "
                f"set has {self.d}"
            )
        return points

    # -- integrals

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the density times a normal one."""
        center = shaping.reshape(as_array("integrate_gaussian", mean), (-1,))
        spread = as_array("integrate_gaussian", cov)
        spread = shaping.reshape(spread, (1, 1)) if spread.size == 1 else spread
        if center.shape != (self.d,) or spread.shape != (self.d, self.d):
            raise errors.ShapeError(
                f"integrate_gaussian: the data set has {self.d} dimensions, the mean "
                f"is {center.type} and the covariance {spread.type}"
            )
        return self._convolved(center[:, None], self.covariance + spread)[0]

    def _convolved(self, centers: Array, spread: Array) -> Array:
        triangle = triangles.factor(spread)
        squares = _distances(triangle, centers, self.dataset)
        terms = ufuncs.exp(-0.5 * squares - _log_norm(triangle)) * self.weights
        return reductions.sum(terms, axis=1)

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability between two numbers, in one dimension."""
        if self.d != 1:
            raise errors.ShapeError(
                f"integrate_box_1d: the data set has {self.d} dimensions, not one"
            )
        limits = [as_array("integrate_box_1d", x, n) for n, x in enumerate((low, high))]
        if limits[0].shape or limits[1].shape:
            raise errors.ShapeError("integrate_box_1d: the limits must be numbers")
        sigma = ufuncs.sqrt(self.covariance[0, 0])
        left, right = [(x - self.dataset[0]) / sigma for x in limits]
        return reductions.sum(self.weights * (ndtr(right) - ndtr(left)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two estimates."""
        if other.d != self.d:
            raise errors.ShapeError(
                f"integrate_kde: the data sets have {self.d} and {other.d} dimensions"
            )
        values = self._convolved(other.dataset, self.covariance + other.covariance)
        return reductions.sum(values * other.weights)

    def integrate_box(
        self, low_bounds: ArrayLike, high_bounds: ArrayLike, maxpts: int | None = None
    ) -> Array:
        """Raises `OptionError`: only boxes of one dimension are integrated."""
        raise errors.OptionError(
            "integrate_box is not supported; use integrate_box_1d for one dimension"
        )

    def set_bandwidth(self, bw_method: Bandwidth = None) -> None:
        """Raises `OptionError`: an estimate does not change; make another."""
        raise errors.OptionError(
            "set_bandwidth is not supported, as estimates do not change; make another "
            "gaussian_kde with this bw_method"
        )

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Array:
        """Random points of the estimated density: an array of shape (d, *shape)."""
        chosen_key, noise_key = random.split(key)
        chosen = random.choice(chosen_key, self.n, shape, p=self.weights)
        noise = random.normal(noise_key, (*shape, self.d), self.dataset.dtype)
        triangle = triangles.factor(self.covariance)
        moves = contractions.matmul(noise, shaping.transpose(triangle))
        return self.dataset[:, chosen] + shaping.moveaxis(moves, -1, 0)


def _columns(x: Array) -> Array:
    """Points as columns: a vector is a row of numbers."""
    return x if x.ndim == 2 else shaping.reshape(x, (1, -1))


def _distances(triangle: Array, x: Array, data: Array) -> Array:
    """Squared distances between the columns of two arrays, in units of a covariance."""
    apart = [row[:, None] - other[None, :] for row, other in zip(x, data, strict=True)]
    return triangles.squared_length(triangle, apart)


def _log_norm(triangle: Array) -> Array:
    size = triangle.shape[-1]
    return triangles.log_determinant(triangle) + 0.5 * size * math.log(2 * math.pi)
