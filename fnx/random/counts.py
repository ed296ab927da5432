"""Random counts: poisson, binomial, multinomial.

Receives a key and rates or probabilities, gives whole numbers. Small means are counted
out, event by event; large ones are drawn by transformed rejection. The elements of an
array share the keys of each round, as in JAX, whose numbers these are but for a few of
10 000 large ones: it accepts by logarithms that cancel in float32, and by a tail of
Stirling's formula that stays at its value for 9. Next on the walk: `vectors.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors, lax
from fnx.api.jit import jit
from fnx.api.loops import scan, while_loop
from fnx.core.array import Array
from fnx.random.arguments import (
    SCALARS,
    DType,
    array_parameters,
    cast,
    float_dtype,
    int_dtype,
    shape_of,
    value_of,
)
from fnx.random.keys import Words, hashed, key_words
from fnx.random.lanes import by_rows, chosen, key_number, row_uniform


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of events where `lam` are expected, as integers (int32 by default).

    `lam` is at least 0 and broadcasts to `shape`, which is its own by default; it is
    rounded to float32. Where it is negative or NaN the sample is -1.

    Source: W. Hörmann, "The transformed rejection method for generating Poisson random
    variables", 1993, from 10 events on.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> poisson(PRNGKey(0), np.float32([0.0, 3.0, 1e6])).dtype
    dtype('int32')
    """
    dtype = int_dtype("poisson", dtype)
    _, (rate,) = array_parameters("poisson", shape, dtypes.float32, lam=lam)
    return np_.asarray(_poisson(*key_words("poisson", key), rate), dtype)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """How many of `n` trials succeed, each of probability `p`, as floats.

    Both broadcast to `shape`, which is theirs by default. `n` is rounded down, and the
    computation is in the float dtype of `p`. Where `n` is negative, or one of them is
    NaN or `p` is negative, the sample is NaN; where `n` is infinite it is infinite.

    Source: W. Hörmann, "The generation of binomial random variates", 1993, from 10
    expected successes (or failures) on.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> binomial(PRNGKey(0), np.float32([0, 5, 7]), np.float32([0.5, 0.0, 1.0]))
    Array([0., 0., 7.], dtype=float32)
    """
    dtype = float_dtype("binomial", dtype)
    wide = _float_of("p", value_of("binomial", "p", p))
    _, arrays = array_parameters("binomial", shape, wide, n=n, p=p)
    return cast(_binomial(*key_words("binomial", key), *arrays), dtype)


def multinomial(
    key: Any,
    n: Any,
    p: Any,
    *,
    shape: Any = None,
    dtype: Any = None,
    unroll: int | bool = 1,
) -> Array:
    """How often each outcome occurs in `n` trials, as floats.

    The last axis of `p` has the probabilities of the outcomes (only their ratios
    count). `shape` is that of the samples, outcomes included: `p` broadcasts to it, and
    `n` to it without the last axis; by default it is that of `p`. `unroll` is that of
    the `scan` over the outcomes.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> x = multinomial(PRNGKey(0), 10, np.float32([0.2, 0.0, 0.8]))
    >>> float(x[1]), float(x.sum())
    (0.0, 10.0)
    """
    dtype = float_dtype("multinomial", dtype)
    weights = value_of("multinomial", "p", p)
    if not isinstance(weights, Array) or not weights.ndim:
        raise errors.ShapeError(
            errors.explain(
                "multinomial: p is a scalar",
                "its last axis has the probabilities of the outcomes",
                "pass a vector",
            )
        )
    wide = _float_of("p", weights)
    whole = weights.shape if shape is None else shape_of("multinomial", shape)
    _, (weights,) = array_parameters("multinomial", whole, wide, p=weights)
    _, (trials,) = array_parameters("multinomial", whole[:-1], wide, n=n)
    words = key_words("multinomial", key)
    weights = np_.moveaxis(weights, -1, 0)
    left = lax.cumsum(weights, reverse=True)
    ratios = weights / np_.where(left == 0, 1, left)
    keys = hashed(words, (ratios.shape[0],))

    def outcome(rest: Any, row: Any) -> tuple[Any, Any]:
        ratio, high, low = row
        count = _binomial(high, low, rest, np_.clip(ratio, 0, 1))
        return rest - count, count

    counts = scan(outcome, trials, (ratios, *keys), unroll=unroll)[1]
    return cast(np_.moveaxis(counts, 0, -1), dtype)


# ---------------------------------------------------------------- rounds


def _in_rows(high: Any, low: Any, draw: Callable[..., Any], *parameters: Any) -> Any:
    """What `draw` gives for one row: all elements of the parameters, and one key."""
    shape = parameters[0].shape
    rows = [x.reshape(1, -1) for x in parameters]
    return draw(high[None], low[None], *rows).reshape(shape)


def _while_missing(
    words: Words, start: tuple[Any, ...], missing: Callable[..., Any], round: Any
) -> tuple[Any, ...]:
    """Rounds for every row of elements until none of them is missing.

    `missing(*state)` has one bool for each row, and `round(words, state)` gives new
    words and a new state. A row that is complete rests: what its elements are must not
    depend on the rows beside it.
    """

    def again(carry: Any) -> Any:
        return np_.any(missing(*carry[1]))

    def body(carry: Any) -> Any:
        words, state = carry
        active = missing(*state)
        words, after = round(words, state)
        return words, chosen(active[:, None], after, state)

    state: tuple[Any, ...] = while_loop(again, body, (words, start))[1]
    return state


def _rejection(
    words: Words,
    accepted: Any,
    dtype: DType,
    proposal: Callable[[Any, Any], tuple[Any, Any]],
) -> Any:
    """The last proposal that each element accepts while some of its row have none.

    `proposal(u, v)` gives counts for two uniform numbers, and which of them it accepts.
    """
    width = accepted.shape[1]

    def missing(accepted: Any, counts: Any) -> Any:
        return np_.any(~accepted, -1)

    def round(words: Words, state: Any) -> Any:
        accepted, counts = state
        key, first, second = [key_number(words, n) for n in range(3)]
        u = row_uniform(first, width, dtype)
        v = row_uniform(second, width, dtype)
        found, accept = proposal(u, v)
        return key, (accepted | accept, np_.where(accept, found, counts))

    start = accepted, np_.full_like(accepted, -1, dtype)
    return _while_missing(words, start, missing, round)[1]


_TAILS = [
    math.lgamma(k + 1)
    - (math.log(2 * math.pi) / 2 + (k + 0.5) * math.log(k + 1) - k - 1)
    for k in range(10)
]


def _stirling_tail(k: Any) -> Any:
    """log(k!) less log(sqrt(2π)) + (k + 1/2) log(k + 1) - (k + 1), for whole k."""
    table = np_.asarray(np.array(_TAILS, k.dtype))
    small = table[np_.asarray(np_.clip(k, 0, 9), np.int32)]
    m = k + 1
    square = m * m
    large = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / m
    return np_.where(k <= 9, small, large)


# ---------------------------------------------------------------- poisson


@jit
def _poisson(high: Any, low: Any, rate: Any) -> Any:
    return _in_rows(high, low, _poisson_rows, rate)


@by_rows
def _poisson_rows(high: Any, low: Any, rate: Any) -> Any:
    few = ~(rate >= 10)
    small, large = np_.where(few, rate, 0), np_.where(few, 1e5, rate)
    counted = _counted_events((high, low), small)
    # A row without large rates need not try.
    idle = np_.broadcast_to(np_.all(few, -1, keepdims=True), few.shape)
    drawn = _drawn_events((high, low), large, idle)
    found = np_.where(few, counted, drawn)
    return np_.where(rate == 0, 0, found)


def _counted_events(words: Words, rate: Any) -> Any:
    """Events at exponentially distributed distances, until time is over (Knuth)."""

    def missing(counts: Any, logs: Any) -> Any:
        return np_.any(logs > -rate, -1)

    def round(words: Words, state: Any) -> Any:
        counts, logs = state
        key, sub = [key_number(words, n) for n in range(2)]
        u = row_uniform(sub, rate.shape[1], rate.dtype)
        counts = np_.where(logs > -rate, counts + 1, counts)
        return key, (counts, logs + np_.log(u))

    start = np_.zeros_like(rate), np_.zeros_like(rate)
    return _while_missing(words, start, missing, round)[0] - 1


def _drawn_events(words: Words, rate: Any, idle: Any) -> Any:
    """Transformed rejection: algorithm PTRS."""
    b: Any = 0.931 + 2.53 * np_.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def proposal(u: Any, v: Any) -> tuple[Any, Any]:
        u = u - 0.5
        us: Any = 0.5 - np_.abs(u)
        k: Any = np_.floor((2 * a / us + b) * u + rate + 0.43)
        s = np_.log(v * inverse_alpha / (a / (us * us) + b))
        # The logarithm of the probability of k, in terms that do not cancel.
        more = rate - (k + 1)
        log_p = k * np_.log1p(more / (k + 1)) - more - 0.5 * np_.log(k + 1)
        log_p = log_p - math.log(2 * math.pi) / 2 - _stirling_tail(k)
        accept = (us >= 0.07) & (v <= v_r)
        reject = (k < 0) | ((us < 0.013) & (v > us))
        return k, accept | (~reject & (s <= log_p))

    return _rejection(words, idle, rate.dtype, proposal)


# ---------------------------------------------------------------- binomial


@jit
def _binomial(high: Any, low: Any, n: Any, p: Any) -> Any:
    return _in_rows(high, low, _binomial_rows, n, p)


@by_rows
def _binomial_rows(high: Any, low: Any, n: Any, p: Any) -> Any:
    rare = p < 0.5
    q = np_.where(rare, p, 1 - p)
    no_count, no_chance = ~(n >= 0), ~(q >= 0)
    q = np_.where(no_chance, 0.01, q)
    few = no_count | (n * q <= 10)
    trials = np_.floor(n)
    counted = _counted_successes((high, low), np_.where(few, trials, 0), q)
    idle = np_.broadcast_to(np_.all(few, -1, keepdims=True), few.shape)
    many, chance = np_.where(few, 1e4, trials), np_.where(few, 0.5, q)
    drawn = _drawn_successes((high, low), many, chance, idle)
    found = np_.where(few, counted, drawn)
    found = np_.where(rare, found, trials - found)
    found = np_.where(np_.isinf(n), np.inf, found)
    return np_.where(no_count | no_chance, np.nan, found)


def _counted_successes(words: Words, n: Any, p: Any) -> Any:
    """Successes at geometrically distributed distances, until n trials are over."""
    log_failure = np_.log1p(-p)

    def missing(counts: Any, trials: Any) -> Any:
        return np_.any(trials <= n, -1)

    def round(words: Words, state: Any) -> Any:
        counts, trials = state
        sub, key = [key_number(words, number) for number in range(2)]
        u = row_uniform(sub, n.shape[1], n.dtype)
        counts = np_.where(trials <= n, counts + 1, counts)
        return key, (counts, trials + np_.ceil(np_.log(u) / log_failure))

    start = np_.zeros_like(n), np_.zeros_like(n)
    return _while_missing(words, start, missing, round)[0] - 1


def _drawn_successes(words: Words, n: Any, p: Any, idle: Any) -> Any:
    """Transformed rejection: algorithm BTRS."""
    deviation: Any = np_.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = np_.floor((n + 1) * p)
    at_mode = _stirling_tail(mode) + _stirling_tail(n - mode)

    def proposal(u: Any, v: Any) -> tuple[Any, Any]:
        u = u - 0.5
        us: Any = 0.5 - np_.abs(u)
        k: Any = np_.floor((2 * a / us + b) * u + c)
        s = np_.log(v * alpha / (a / (us * us) + b))
        # The probability of k against that of the mode, in terms that do not cancel.
        away = k - mode
        log_p = (
            (n - mode + 0.5) * np_.log1p(away / (n - k + 1))
            - (mode + 0.5) * np_.log1p(away / (mode + 1))
            + away * np_.log(odds * (n - k + 1) / (k + 1))
        )
        log_p = log_p + (at_mode - _stirling_tail(k) - _stirling_tail(n - k))
        accept = (us >= 0.07) & (v <= v_r)
        reject = (k < 0) | (k > n)
        return k, accept | (~reject & (s <= log_p))

    return _rejection(words, idle, n.dtype, proposal)


def _float_of(name: str, x: Any) -> DType:
    """The dtype that a parameter is computed in: its own if it is a float."""
    if x.__class__ in SCALARS or not dtypes.is_float(x.dtype):
        return dtypes.default_float()
    return x.dtype
