"""Optimizers whose memory is a few vectors for each matrix: Adafactor and SM3.

Receives hyperparameters, gives transformations. Next on the walk: `optimistic.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.optim.averages import average, square_dtype, zeros
from fnx.optim.clipping import block_rms_clip
from fnx.optim.decay import weight_decaying
from fnx.optim.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    UNIT,
    ScalarOrSchedule,
    steps,
)
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.scaling import optional_rate, scale, signed_rate
from fnx.optim.smoothing import smoothing
from fnx.optim.transformation import GradientTransformation, Updates, chain
from fnx.optim.trust import param_block_rms
from fnx.optim.updates import Leaf, squared

# ---------------------------------------------------------------- Adafactor


class FactoredState(NamedTuple):
    """The number of updates made (int32) and averages of squared updates.

    `v_row` and `v_col` are means of them along one axis each, for leaves that are
    factored; `v` has all of them, for the others. What a leaf does not use has one
    element.
    """

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    v_row: Updates
    v_col: Updates
    v: Updates


def decay_rate_pow(count: Any, exponent: Any = 0.8) -> Any:
    """How far the past counts after `count` updates: 1 - (count + 1) ** -exponent."""
    times: Any = fnp.maximum(fnp.asarray(count, "float64") + 1, 1)
    return 1 - times ** (-exponent)


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float | Array = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float | Array = 1e-30,
    decay_rate_fn: Callable[[Any, Any], Any] = decay_rate_pow,
) -> GradientTransformation:
    """Divide by the root of an average of squares kept as a product of two vectors.

    Of g² + epsilon, the means along the two longest axes are averaged, and their outer
    product over the mean of both is the estimate; a leaf of fewer than two axes of
    `min_dim_size_to_factor` or more keeps all. The decay after t updates is
    `decay_rate_fn(t - step_offset, decay_rate)`. Shazeer and Stern, "Adafactor:
    Adaptive Learning Rates with Sublinear Memory Cost", 2018.

    >>> scaling = scale_by_factored_rms(min_dim_size_to_factor=2)
    >>> state = scaling.init(fnp.zeros((2, 3)))
    >>> state.v_row.shape, state.v_col.shape, state.v.shape
    ((2,), (3,), (1,))
    >>> scaling.update(fnp.full((2, 3), 5.0), state)[0][0].round(4)
    Array([1., 1., 1.], dtype=float32)
    """
    return _factored_rms(
        "scale_by_factored_rms",
        factored,
        (decay_rate, step_offset, decay_rate_fn),
        min_dim_size_to_factor,
        epsilon,
    )


def adafactor(
    learning_rate: ScalarOrSchedule | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: float | Array = 0.8,
    decay_offset: int = 0,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | Array | None = 1.0,
    momentum: float | Array | None = None,
    dtype_momentum: Any = "float32",
    weight_decay_rate: ScalarOrSchedule | None = None,
    eps: float | Array = 1e-30,
    factored: bool = True,
    weight_decay_mask: Any = None,
) -> GradientTransformation:
    """Adafactor: steps in proportion to a layer's size, with little memory.

    In this order: `scale_by_factored_rms`; `clip_by_block_rms` unless
    `clipping_threshold` is None; the learning rate; `scale_by_param_block_rms` if
    `multiply_by_parameter_scale`; a running average if there is a `momentum`; weight
    decay, not multiplied by the learning rate. `update` needs the parameters for the
    last and for the scale. Shazeer and Stern, "Adafactor: Adaptive Learning Rates with
    Sublinear Memory Cost", 2018.

    >>> optimizer, params = adafactor(0.1), fnp.array([1.0, 7.0])
    >>> optimizer.update(fnp.ones(2), optimizer.init(params), params)[0]
    Array([-0.5, -0.5], dtype=float32)
    """
    name = "adafactor"
    decay = decay_rate, decay_offset, decay_rate_pow
    links = [_factored_rms(name, factored, decay, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        links.append(block_rms_clip(name, "clipping_threshold", clipping_threshold))
    links.append(optional_rate(name, learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        links.append(param_block_rms(name, 1e-3))
    if momentum is not None:
        links.append(smoothing(name, "momentum", momentum, False, dtype_momentum))
    if weight_decay_rate is not None:
        links.append(weight_decaying(name, weight_decay_rate, weight_decay_mask))
    return chain(*links, scale(-1))


def _factored_rms(
    function: str,
    factored: bool,
    decay: tuple[Any, int, Callable[[Any, Any], Any]],
    least_size: int,
    epsilon: Any,
) -> GradientTransformation:
    exponent, offset, decay_after = decay
    POSITIVE.check(function, "decay_rate", exponent)
    POSITIVE.check(function, "epsilon", epsilon)
    least = steps(function, "min_dim_size_to_factor", least_size)

    def start(p: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        dtype, axes = square_dtype(p.dtype), _factored_axes(p.shape, factored, least)
        unused = fnp.zeros((1,), dtype)
        if axes is None:
            return unused, unused, fnp.zeros(p.shape, dtype)
        row, column = [fnp.zeros(_without(p.shape, axis), dtype) for axis in axes]
        return row, column, unused

    def rule(here: Here, row: Leaf, column: Leaf, full: Leaf) -> tuple[Leaf, ...]:
        kept = decay_after(here.count - 1 - offset, exponent)
        square: Leaf = squared(here.g) + epsilon
        kept = fnp.asarray(kept, square.dtype)
        axes = _factored_axes(here.g.shape, factored, least)
        if axes is None:
            full = average(full, square, kept)
            return here.g / fnp.sqrt(full), row, column, full
        along, across = axes
        row = average(row, fnp.mean(square, axis=along), kept)
        column = average(column, fnp.mean(square, axis=across), kept)
        rows = fnp.expand_dims(row, along)
        relative: Leaf = rows / fnp.mean(rows, axis=across, keepdims=True)
        columns = fnp.expand_dims(column, across)
        return here.g / fnp.sqrt(relative) / fnp.sqrt(columns), row, column, full

    return leafwise(function, FactoredState, start, rule, like="")


def _factored_axes(
    shape: Sequence[int], factored: bool, least: int
) -> tuple[int, int] | None:
    """The longest axis and the second longest; None if they are not long enough."""
    if not factored or len(shape) < 2:
        return None
    *_, second, first = sorted(range(len(shape)), key=lambda axis: shape[axis])
    return (first, second) if shape[second] >= least else None


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


# ---------------------------------------------------------------- SM3


class ScaleBySM3State(NamedTuple):
    """For each leaf a list with one vector an axis, `mu`, and the running average."""

    mu: Updates
    nu: Updates


def scale_by_sm3(
    b1: float | Array = 0.9, b2: float | Array = 1.0, eps: float | Array = 1e-8
) -> GradientTransformation:
    """Divide by the root of a bound on the sum of squares, kept as vectors.

    Each axis of a leaf has a vector; the bound of an element, the least of the numbers
    that belong to it, grows by g², and each number becomes the largest bound along its
    slice. With b2 below 1 it is a running average. The updates, too, are averaged, with
    decay b1. Anil, Gupta, Koren and Singer, "Memory-Efficient Adaptive Optimization",
    2019 (SM3-II).

    >>> scaling = scale_by_sm3(b1=0.0)
    >>> state = scaling.init(fnp.zeros((2, 2)))
    >>> updates, state = scaling.update(fnp.array([[1.0, 2.0], [2.0, 0.0]]), state)
    >>> [vector.tolist() for vector in state.mu]
    [[4.0, 4.0], [4.0, 4.0]]
    """
    return _sm3("scale_by_sm3", "b1", b1, b2, eps)


def sm3(
    learning_rate: ScalarOrSchedule, momentum: float | Array = 0.9
) -> GradientTransformation:
    """SM3: AdaGrad with one vector for each axis of a leaf as its memory.

    Anil, Gupta, Koren and Singer, "Memory-Efficient Adaptive Optimization", 2019.

    >>> optimizer = sm3(0.5, momentum=0.0)
    >>> optimizer.update(fnp.array([4.0]), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        _sm3("sm3", "momentum", momentum, 1.0, 1e-8), signed_rate("sm3", learning_rate)
    )


def _sm3(
    function: str, argument: str, b1: Any, b2: Any, eps: Any
) -> GradientTransformation:
    UNIT.check(function, argument, b1)
    UNIT.check(function, "b2", b2)
    NOT_NEGATIVE.check(function, "eps", eps)

    def start(p: Leaf) -> tuple[list[Leaf], Leaf]:
        dtype = square_dtype(p.dtype)
        return [fnp.zeros((n,), dtype) for n in p.shape or (1,)], zeros(p)

    def rule(
        here: Here, vectors: list[Leaf], mean: Leaf
    ) -> tuple[Leaf, list[Leaf], Leaf]:
        shape = here.g.shape or (1,)
        rank = len(shape)
        spread = [
            fnp.reshape(vector, [n if axis == place else 1 for axis in range(rank)])
            for place, (vector, n) in enumerate(zip(vectors, shape, strict=True))
        ]
        square = fnp.reshape(squared(here.g), shape)
        part = fnp.where(fnp.less(b2, 1), 1 - b2, 1)
        bound: Leaf = b2 * functools.reduce(fnp.minimum, spread) + part * square
        some = bound > 0
        factor = fnp.where(some, 1 / fnp.sqrt(fnp.where(some, bound + eps, 1)), 0)
        mean = average(mean, here.g * fnp.reshape(factor, here.g.shape), b1)
        return mean, [_largest(bound, place) for place in range(rank)], mean

    return leafwise(function, ScaleBySM3State, start, rule, like="nu")


def _largest(values: Leaf, axis: int) -> Leaf:
    """The largest value at each place of an axis."""
    others = tuple([place for place in range(values.ndim) if place != axis])
    return fnp.max(values, axis=others, initial=0) if others else values
