"""What gamma distributed numbers make: beta, dirichlet, chisquare, f, t, balls.

Receives a key and parameters, gives samples. Ratios and powers are taken of logarithms,
so that small parameters neither underflow to 0/0 nor lose the tails; derivatives are
those of `loggamma`. Next on the walk: `counts.py`.
"""

from __future__ import annotations

import operator
from typing import Any

import fnx.numpy as np_
from fnx import errors, lax
from fnx.core.array import Array
from fnx.random.arguments import (
    DType,
    Shape,
    array_parameters,
    float_dtype,
    sample_shape,
    shape_of,
    value_of,
)
from fnx.random.continuous import exponential_from, normal_from
from fnx.random.drawing import draw
from fnx.random.gammas import log_gamma_of
from fnx.random.integers import random_signs
from fnx.random.keys import Words, key_words, split_words


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Beta distributed numbers: density proportional to x**(a-1) (1-x)**(b-1).

    Both parameters are positive and broadcast to `shape`, which is theirs by default.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> beta(PRNGKey(0), 0.5, 2.0, (3,)).shape
    (3,)
    """
    dtype = float_dtype("beta", dtype)
    shape, both = array_parameters("beta", shape, dtype, a=a, b=b)
    return draw(_beta, key_words("beta", key), both, shape)


def _beta(words: Words, a: Any, b: Any, shape: Shape) -> Any:
    one, other = map(log_gamma_of, split_words(words, 2), (a, b))
    return lax.logistic(one - other)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Dirichlet distributed vectors: density proportional to the product of x**(α-1).

    The last axis of `alpha` has the concentrations, all positive; the others broadcast
    to `shape`, which is theirs by default. The samples have shape (*shape, n), and add
    up to 1 along the last axis.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> dirichlet(PRNGKey(0), np_.ones(3), (2,)).shape
    (2, 3)
    """
    dtype = float_dtype("dirichlet", dtype)
    values = value_of("dirichlet", "alpha", alpha)
    if not isinstance(values, Array) or not values.ndim:
        raise errors.ShapeError(
            errors.explain(
                "dirichlet: alpha is a scalar",
                "its last axis has the concentrations",
                "pass a vector",
            )
        )
    whole = values.shape
    if shape is not None:
        whole = (*shape_of("dirichlet", shape), values.shape[-1])
    whole, array = array_parameters("dirichlet", whole, dtype, alpha=values)
    return draw(_dirichlet, key_words("dirichlet", key), array, whole)


def _dirichlet(words: Words, alpha: Any, shape: Shape) -> Any:
    logs = log_gamma_of(words, alpha)
    terms = np_.exp(logs - np_.max(logs, -1, keepdims=True, initial=-np_.inf))
    return terms / np_.sum(terms, -1, keepdims=True)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Sums of `df` squares of normal numbers; `df` is positive, whole or not.

    It broadcasts to `shape`, which is its own by default.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> chisquare(PRNGKey(0), 3.0, (3,)).shape
    (3,)
    """
    dtype = float_dtype("chisquare", dtype)
    shape, freedom = array_parameters("chisquare", shape, dtype, df=df)
    return draw(_chisquare, key_words("chisquare", key), freedom, shape)


def _chisquare(words: Words, freedom: Any, shape: Shape) -> Any:
    return np_.exp(log_gamma_of(words, freedom / 2)) * 2


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Ratios of two chi-square numbers, each divided by its degrees of freedom.

    `dfnum` are the degrees of freedom of the numerator, `dfden` of the denominator;
    both broadcast to `shape`, which is theirs by default.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> f(PRNGKey(0), 3.0, 5.0, (3,)).shape
    (3,)
    """
    dtype = float_dtype("f", dtype)
    values = {"dfnum": dfnum, "dfden": dfden}
    shape, both = array_parameters("f", shape, dtype, **values)
    return draw(_f, key_words("f", key), both, shape)


def _f(words: Words, above: Any, below: Any, shape: Shape) -> Any:
    first, second = split_words(words, 2)
    difference = log_gamma_of(second, above / 2) - log_gamma_of(first, below / 2)
    return np_.exp(difference) * (below / above)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Student's t: a normal number over the root of a chi-square number over `df`.

    `df` is positive and broadcasts to `shape`, which is its own by default.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> t(PRNGKey(0), 4.0, (3,)).shape
    (3,)
    """
    dtype = float_dtype("t", dtype)
    shape, freedom = array_parameters("t", shape, dtype, df=df)
    return draw(_t, key_words("t", key), freedom, shape, dtype)


def _t(words: Words, freedom: Any, shape: Shape, dtype: DType) -> Any:
    first, second = split_words(words, 2)
    half = freedom / 2
    scale = np_.exp((np_.log(half) - log_gamma_of(second, half)) * 0.5)
    return normal_from(first, shape, dtype) * scale


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Numbers of density proportional to exp(-|x|**p); `p` is positive.

    `p` broadcasts to `shape`. For p = 2 they are normal with variance 1/2.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> generalized_normal(PRNGKey(0), 1.5, (3,)).shape
    (3,)
    """
    dtype = float_dtype("generalized_normal", dtype)
    shape, power = array_parameters("generalized_normal", shape, dtype, p=p)
    return draw(_generalized, key_words("generalized_normal", key), power, shape)


def _generalized(words: Words, power: Any, shape: Shape) -> Any:
    inverse = 1 / power
    first, second = split_words(words, 2)
    size = np_.exp(log_gamma_of(first, inverse) * inverse)
    return random_signs(second, inverse.shape, inverse.dtype) * size


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Array:
    """Points distributed uniformly over the ball of radius 1 in the p-norm.

    The samples have the shape (*shape, d); `p` is a positive scalar.

    Source: F. Barthe et al., "A probabilistic approach to the geometry of the lp ball",
    2005.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> bool(np_.linalg.norm(ball(PRNGKey(0), 3)) < 1)
    True
    """
    dtype = float_dtype("ball", dtype)
    sizes = shape_of("ball", shape)
    count = _dimension(d)
    sample_shape("ball", (), p=value_of("ball", "p", p))
    whole, power = array_parameters("ball", (*sizes, count), dtype, p=p)
    return draw(_ball, key_words("ball", key), power, whole, dtype)


def _ball(words: Words, power: Any, shape: Shape, dtype: DType) -> Any:
    first, second = split_words(words, 2)
    x = _generalized(first, power, shape)
    rest = exponential_from(second, shape[:-1], dtype)
    norm = np_.sum(np_.abs(x) ** power, -1) + rest
    return x / (norm[..., None] ** (1 / power))


def _dimension(d: Any) -> int:
    try:
        count = operator.index(d)
    except TypeError:
        count = -1
    if count < 0:
        raise errors.ArgumentError(f"ball: d is a number of dimensions, got {d!r}")
    return count
