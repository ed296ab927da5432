"""Continuous distributions, each a function of uniform numbers.

Receives a key and parameters, gives samples of a float dtype; derivatives with respect
to the parameters are those of the formula (the reparameterisation). The samples agree
with JAX's to the accuracy of the functions used. Next on the walk: `extreme.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.array import Array
from fnx.ops.arithmetic import add, mul, neg, select, sub
from fnx.ops.elementwise import (
    abs,
    clamp,
    div,
    erf,
    erf_inv,
    exp,
    le,
    log,
    log1p,
    lt,
    pow,
    sign,
    sqrt,
    square,
    tan,
)
from fnx.ops.families import literal
from fnx.ops.parts import complex_, nextafter, stop_gradient
from fnx.ops.reduce import reduce_sum
from fnx.random.arguments import DType, Shape, finfo, float_dtype, parameters, shape_of
from fnx.random.drawing import draw
from fnx.random.integers import random_signs
from fnx.random.interval import between, uniform_between, unit_uniform
from fnx.random.keys import Words, key_words, split_words


def normal(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Normally distributed numbers with mean 0 and variance 1.

    `dtype` is a float dtype (float32 by default) or a complex one, of which real and
    imaginary part have variance 1/2 each.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> normal(PRNGKey(0), (2, 3)).shape
    (2, 3)
    """
    words, sizes = key_words("normal", key), shape_of("normal", shape)
    if dtype is None or not dtypes.is_complex(dtypes.as_dtype(dtype)):
        return draw(normal_from, words, (), sizes, float_dtype("normal", dtype))
    part = dtypes.real_dtype(dtypes.as_dtype(dtype))
    return draw(_complex_normal, words, (), sizes, part)


def _complex_normal(words: Words, shape: Shape, dtype: DType) -> Any:
    re, im = [normal_from(w, shape, dtype) for w in split_words(words, 2)]
    return complex_(div(re, math.sqrt(2)), div(im, math.sqrt(2)))


def normal_from(words: Words, shape: Shape, dtype: DType) -> Any:
    """Normally distributed numbers from the words of a key."""
    return normal_of(unit_uniform(words, shape, dtype), dtype)


def normal_of(unit: Any, dtype: DType) -> Any:
    """Normally distributed numbers from uniform ones in [0, 1)."""
    lowest = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype))
    u = between(unit, literal(lowest, dtype), literal(1.0, dtype))
    return mul(erf_inv(u), math.sqrt(2))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None
) -> Array:
    """Normally distributed numbers given that they lie in (lower, upper).

    The default shape is that of the bounds.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> x = truncated_normal(PRNGKey(0), -1.0, 1.0, (100,))
    >>> float(x._numpy().min()) > -1
    True
    """
    dtype = float_dtype("truncated_normal", dtype)
    bounds = {"lower": lower, "upper": upper}
    shape, ends = parameters("truncated_normal", shape, dtype, **bounds)
    words = key_words("truncated_normal", key)
    return draw(_truncated_normal, words, ends, shape, dtype)


def _truncated_normal(
    words: Words, low: Any, high: Any, shape: Shape, dtype: DType
) -> Any:
    ends = [erf(div(end, math.sqrt(2))) for end in (low, high)]
    u = between(unit_uniform(words, shape, dtype), *ends)
    # Rounding must not lead out of the open interval.
    infinity = literal(math.inf, dtype)
    least = nextafter(stop_gradient(low), infinity)
    most = nextafter(stop_gradient(high), neg(infinity))
    return clamp(least, mul(erf_inv(u), math.sqrt(2)), most)


def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None
) -> Array:
    """The exponential of normal numbers of standard deviation `sigma`."""
    dtype = float_dtype("lognormal", dtype)
    shape, scale = parameters("lognormal", shape, dtype, sigma=sigma)
    return draw(_lognormal, key_words("lognormal", key), scale, shape, dtype)


def _lognormal(words: Words, scale: Any, shape: Shape, dtype: DType) -> Any:
    return exp(mul(normal_from(words, shape, dtype), scale))


def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Exponentially distributed numbers of mean 1: density exp(-x) on [0, inf).

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> exponential(PRNGKey(0), (2, 3)).shape
    (2, 3)
    """
    dtype = float_dtype("exponential", dtype)
    words, sizes = key_words("exponential", key), shape_of("exponential", shape)
    return draw(exponential_from, words, (), sizes, dtype)


def exponential_from(words: Words, shape: Shape, dtype: DType) -> Any:
    """Exponentially distributed numbers from the words of a key."""
    # log1p(-u) never sees 1, since u is below it.
    return neg(log1p(neg(unit_uniform(words, shape, dtype))))


def laplace(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Laplace distributed numbers: density exp(-|x|) / 2."""
    dtype = float_dtype("laplace", dtype)
    words, sizes = key_words("laplace", key), shape_of("laplace", shape)
    return draw(_laplace, words, (), sizes, dtype)


def _laplace(words: Words, shape: Shape, dtype: DType) -> Any:
    lowest = -1.0 + float(finfo(dtype).epsneg)
    u = uniform_between(words, shape, dtype, lowest, 1.0)
    return mul(sign(u), log1p(neg(abs(u))))


def logistic(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Logistically distributed numbers: log(u / (1 - u)) of uniform u."""
    dtype = float_dtype("logistic", dtype)
    words, sizes = key_words("logistic", key), shape_of("logistic", shape)
    return draw(_logistic, words, (), sizes, dtype)


def _logistic(words: Words, shape: Shape, dtype: DType) -> Any:
    u = uniform_between(words, shape, dtype, finfo(dtype).tiny, 1.0)
    return sub(log(u), log1p(neg(u)))


def cauchy(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Cauchy distributed numbers: density 1 / (pi (1 + x*x))."""
    dtype = float_dtype("cauchy", dtype)
    words, sizes = key_words("cauchy", key), shape_of("cauchy", shape)
    return draw(_cauchy, words, (), sizes, dtype)


def _cauchy(words: Words, shape: Shape, dtype: DType) -> Any:
    u = uniform_between(words, shape, dtype, finfo(dtype).eps, 1.0)
    return tan(mul(sub(u, 0.5), math.pi))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Pareto distributed numbers: density b / x**(b + 1) on [1, inf)."""
    dtype = float_dtype("pareto", dtype)
    shape, exponent = parameters("pareto", shape, dtype, b=b)
    return draw(_pareto, key_words("pareto", key), exponent, shape, dtype)


def _pareto(words: Words, exponent: Any, shape: Shape, dtype: DType) -> Any:
    return exp(div(exponential_from(words, shape, dtype), exponent))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Rayleigh distributed numbers: lengths of normal vectors in the plane."""
    dtype = float_dtype("rayleigh", dtype)
    shape, factor = parameters("rayleigh", shape, dtype, scale=scale)
    return draw(_rayleigh, key_words("rayleigh", key), factor, shape, dtype)


def _rayleigh(words: Words, factor: Any, shape: Shape, dtype: DType) -> Any:
    u = unit_uniform(words, shape, dtype)
    return mul(sqrt(mul(log(u), -2.0)), factor)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Array:
    """Weibull distributed numbers: powers of exponentially distributed ones.

    The parameters broadcast to `shape`.
    """
    dtype = float_dtype("weibull_min", dtype)
    values = {"scale": scale, "concentration": concentration}
    shape, both = parameters("weibull_min", shape, dtype, **values)
    return draw(_weibull, key_words("weibull_min", key), both, shape, dtype)


def _weibull(words: Words, factor: Any, power: Any, shape: Shape, dtype: DType) -> Any:
    e = exponential_from(words, shape, dtype)
    return mul(pow(e, div(1.0, power)), factor)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None
) -> Array:
    """Numbers whose density rises from `left` to `mode` and falls to `right`."""
    dtype = float_dtype("triangular", dtype)
    corners = {"left": left, "mode": mode, "right": right}
    shape, row = parameters("triangular", shape, dtype, **corners)
    return draw(_triangular, key_words("triangular", key), row, shape, dtype)


def _triangular(
    words: Words, a: Any, c: Any, b: Any, shape: Shape, dtype: DType
) -> Any:
    u = unit_uniform(words, shape, dtype)
    width, rise, fall = sub(b, a), sub(c, a), sub(b, c)
    rising = add(sqrt(mul(mul(u, width), rise)), a)
    falling = sub(b, sqrt(mul(mul(sub(1.0, u), width), fall)))
    return select(lt(u, div(rise, width)), rising, falling)


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Maxwell distributed numbers: lengths of normal vectors in space."""
    dtype = float_dtype("maxwell", dtype)
    words, sizes = key_words("maxwell", key), shape_of("maxwell", shape)
    return draw(_maxwell, words, (), sizes, dtype)


def _maxwell(words: Words, shape: Shape, dtype: DType) -> Any:
    vectors = normal_from(words, (*shape, 3), dtype)
    return sqrt(reduce_sum(square(vectors), axes=(len(shape),)))


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None
) -> Array:
    """Maxwell distributed numbers with random signs, scaled and moved.

    The samples have the shape `shape` followed by that of the parameters.
    """
    dtype = float_dtype("double_sided_maxwell", dtype)
    values = {"loc": loc, "scale": scale}
    inner, _ = parameters("double_sided_maxwell", None, dtype, **values)
    outer = shape_of("double_sided_maxwell", shape) or inner
    sizes = outer + inner
    _, both = parameters("double_sided_maxwell", sizes, dtype, **values)
    words = key_words("double_sided_maxwell", key)
    return draw(_double_sided_maxwell, words, both, sizes, dtype)


def _double_sided_maxwell(
    words: Words, centre: Any, factor: Any, shape: Shape, dtype: DType
) -> Any:
    first, second = split_words(words, 2)
    size = _maxwell(first, shape, dtype)
    signed = mul(random_signs(second, shape, dtype), size)
    return add(mul(signed, factor), centre)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Wald (inverse Gaussian) distributed numbers of that mean and scale 1."""
    dtype = float_dtype("wald", dtype)
    shape, m = parameters("wald", shape, dtype, mean=mean)
    return draw(_wald, key_words("wald", key), m, shape, dtype)


def _wald(words: Words, m: Any, shape: Shape, dtype: DType) -> Any:
    first, second = split_words(words, 2)
    y = square(normal_from(first, shape, dtype))
    z = unit_uniform(second, shape, dtype)
    root = sqrt(add(mul(mul(y, m), 4.0), mul(square(y), square(m))))
    x = sub(add(div(mul(square(m), y), 2.0), m), mul(root, div(m, 2.0)))
    return select(le(z, div(m, add(x, m))), x, div(square(m), x))
