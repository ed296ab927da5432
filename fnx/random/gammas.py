"""The gamma distribution: gamma, loggamma.

Receives a key and shape parameters, gives samples by the method of Marsaglia and Tsang:
a cube of a normal number, accepted with a probability near 1. Every element has a key
of its own. Next on the walk: `of_gammas.py`.
"""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as np_
from fnx.api.custom import custom_jvp
from fnx.api.jit import jit
from fnx.api.loops import while_loop
from fnx.core.array import Array
from fnx.ops.special import digamma, random_gamma_grad
from fnx.random.arguments import array_parameters, finfo, float_dtype
from fnx.random.keys import Words, hashed, key_words
from fnx.random.lanes import (
    by_elements,
    chosen,
    key_number,
    lane_normal,
    lane_uniform,
)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Gamma distributed numbers: density x**(a - 1) exp(-x) / Γ(a) on [0, inf).

    `a` is positive and broadcasts to `shape`; the default shape is that of `a`. Samples
    of small `a` are often too small for the dtype, and 0; `loggamma` gives their
    logarithms. The derivative with respect to `a` is the one along which the
    distribution function stays (implicit reparameterisation).

    Source: G. Marsaglia, W. Tsang, "A simple method for generating gamma variables",
    2000; M. Figurnov et al., "Implicit reparameterization gradients", 2018.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> gamma(PRNGKey(0), 2.5, (2, 3)).shape
    (2, 3)
    """
    return _gamma("gamma", key, a, shape, dtype, False)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Logarithms of gamma distributed numbers, precise also for small `a`.

    The numbers are those of `gamma` for the same key.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> bool(loggamma(PRNGKey(0), 1e-4) < -1000)
    True
    """
    return _gamma("loggamma", key, a, shape, dtype, True)


def _gamma(
    sampler: str, key: Any, a: Any, shape: Any, dtype: Any, logarithm: bool
) -> Array:
    dtype = float_dtype(sampler, dtype)
    _, (array,) = array_parameters(sampler, shape, dtype, a=a)
    return gamma_of(key_words(sampler, key), array, logarithm)


def gamma_of(words: Words, a: Any, logarithm: bool) -> Any:
    """Samples (or their logarithms) for an array of parameters."""
    return _compiled(*words, a, logarithm)


def log_gamma_of(words: Words, a: Any) -> Any:
    """The logarithms of samples for an array of parameters."""
    return _compiled(*words, a, True)


def _all_keys(high: Any, low: Any, a: Any, logarithm: bool) -> Any:
    words = hashed((high, low), a.shape)
    return (_log_sample if logarithm else _sample)(*words, a)


_compiled = jit(_all_keys, static_argnums=3)


@custom_jvp
def _sample(high: Any, low: Any, a: Any) -> Any:
    words = (high, low)
    unit = 1 - lane_uniform(key_number(words, 1), a.dtype)
    scale, cube = _boosted(a), _cube(high, low, a)
    boost = np_.where(a >= 1, 1, unit ** (1 / a))
    return scale * cube * boost


@custom_jvp
def _log_sample(high: Any, low: Any, a: Any) -> Any:
    words = (high, low)
    log_unit = np_.log1p(-lane_uniform(key_number(words, 1), a.dtype))
    scale, cube = _boosted(a), _cube(high, low, a)
    # 0 times the infinite reciprocal of a tiny parameter would be NaN.
    boost = np_.where((a >= 1) | (log_unit == 0), 0, log_unit * (1 / a))
    return np_.log(scale) + np_.log(cube) + boost


@_sample.defjvp
def _sample_moves(primals: Any, tangents: Any) -> Any:
    """With the distribution function held: what random_gamma_grad computes."""
    sample, a = _sample(*primals), primals[2]
    slope = random_gamma_grad(a, sample)
    return sample, tangents[2] * slope


@_log_sample.defjvp
def _log_sample_moves(primals: Any, tangents: Any) -> Any:
    """That slope over the sample; for tiny samples by F(x; a) = x**a / Γ(a + 1)."""
    log_sample, a = _log_sample(*primals), primals[2]
    tiny = log_sample < math.log(finfo(a.dtype).eps)
    sample = np_.exp(np_.where(tiny, 0, log_sample))
    slope = random_gamma_grad(a, sample) / sample
    limit = (digamma(a + 1) - log_sample) / a
    return log_sample, tangents[2] * np_.where(tiny, limit, slope)


def _boosted(a: Any) -> Any:
    """The scale d of the method, which takes parameters from 1 on.

    One that is smaller is made larger by 1, and the sample multiplied by a power of a
    uniform number.
    """
    return np_.where(a >= 1, a, a + 1) - 1 / 3


@by_elements
def _cube(high: Any, low: Any, a: Any) -> Any:
    """A number such that, times the scale, it is gamma distributed for a >= 1."""
    dtype = a.dtype
    scale = _boosted(a)
    width = (1 / 3) / np_.sqrt(scale)

    def waiting(state: Any) -> Any:
        return np_.any(~state[0])

    def round(state: Any) -> Any:
        # An attempt begins with three keys; then normal numbers are drawn, from a chain
        # of keys, until the cube is positive, and it is accepted or another one begins.
        accepted, begins, key, chain, last, cube = state
        fresh = [key_number(key, n) for n in range(3)]
        key, chain, last = [
            chosen(begins, new, old)
            for new, old in zip(fresh, (key, chain, last), strict=True)
        ]
        x = lane_normal(key_number(chain, 1), dtype)
        chain = key_number(chain, 0)
        root = 1 + x * width
        positive, found = root > 0, root * root * root
        u = lane_uniform(last, dtype)
        square = x * x
        outside = u >= 1 - 0.0331 * (square * square)
        above = np_.log(u) >= square * 0.5 + scale * (1 - found + np_.log(found))
        accept = positive & ~(outside & above) & ~accepted
        cube = np_.where(accept, found, cube)
        return accepted | accept, positive, key, chain, last, cube

    none: Any = np_.zeros(a.shape, bool)
    start = key_number((high, low), 0)
    state = none, ~none, start, start, start, np_.ones_like(a)
    return while_loop(waiting, round, state)[-1]
