"""Rates that follow the loss, and complex parameters as pairs of real ones.

Receives updates (and the loss), gives updates. Part of `contrib`; next on the walk:
`contrib.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import dtypes, lax, tree
from fnx.core.array import Array
from fnx.errors import ArgumentError, OptionError
from fnx.optim.hyperparameters import NOT_NEGATIVE, UNIT, Range, steps
from fnx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    check_transformation,
    extended,
    with_extra_args_support,
)
from fnx.optim.updates import (
    Leaf,
    first_count,
    floating,
    next_count,
    number_dtype,
    scaled,
)

_FACTOR = Range("above 0 and below 1", lambda x: 0 < x < 1)


class ReduceLROnPlateauState(NamedTuple):
    """The factor of the updates, the best mean loss, and the counts it depends on.

    How many means were no better, updates to wait, losses in the mean, and the mean.
    """

    scale: Array
    best_value: Array
    plateau_count: Array
    cooldown_count: Array
    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    avg_value: Array


def reduce_on_plateau(
    factor: float = 0.1,
    patience: int = 10,
    rtol: float = 1e-4,
    atol: float = 0.0,
    cooldown: int = 0,
    accumulation_size: int = 1,
    min_scale: float = 0.0,
) -> GradientTransformationExtraArgs:
    """Multiply updates by a number that shrinks by `factor` when the loss does not.

    It shrinks, to `min_scale` at least, when `patience` means of `accumulation_size`
    losses were not below (1 - rtol) · best - atol; for `cooldown` means thereafter none
    counts. `update` needs the loss, `value=`.

    >>> plateau = reduce_on_plateau(factor=0.5, patience=1)
    >>> state = plateau.init(fnp.zeros(1))
    >>> for loss in (1.0, 1.0):
    ...     updates, state = plateau.update(fnp.ones(1), state, value=loss)
    ...     print(updates)
    [1.]
    [0.5]
    """
    name = "reduce_on_plateau"
    _FACTOR.check(name, "factor", factor)
    UNIT.check(name, "rtol", rtol)
    NOT_NEGATIVE.check(name, "atol", atol)
    if rtol == 0 and atol == 0:
        raise OptionError(f"{name}: rtol and atol are both 0; make one positive")
    NOT_NEGATIVE.check(name, "min_scale", min_scale)
    most = steps(name, "patience", patience)
    wait = steps(name, "cooldown", cooldown, least=0)
    size = steps(name, "accumulation_size", accumulation_size)

    def init(params: Params) -> OptState:
        dtype = number_dtype(floating(name, "params", params))
        one, best = fnp.ones((), dtype), fnp.asarray(float("inf"), dtype)
        counts = first_count(), first_count(), first_count()
        return ReduceLROnPlateauState(one, best, *counts, fnp.zeros((), dtype))

    def update(
        updates: Updates,
        state: OptState,
        params: Params = None,
        *,
        value: Any = None,
        **extra_args: Any,
    ) -> tuple[Updates, OptState]:
        if value is None:
            raise ArgumentError(
                f"{name}: the scale follows the loss; call "
                "update(updates, state, params, value=loss)"
            )
        updates = floating(name, "updates", updates)
        count = next_count(state.count)
        loss = fnp.asarray(value, state.avg_value.dtype)
        mean = state.avg_value + (loss - state.avg_value) / count
        full = count == size
        better = mean < (1 - rtol) * state.best_value - atol
        waits = state.cooldown_count > 0
        worse = fnp.where(better | waits, 0, next_count(state.plateau_count))
        shrinks = worse == most
        less = fnp.maximum(state.scale * factor, min_scale)
        counted = ReduceLROnPlateauState(
            scale=fnp.where(shrinks, less, state.scale),
            best_value=fnp.where(better, mean, state.best_value),
            plateau_count=fnp.where(shrinks, 0, worse),
            cooldown_count=fnp.where(
                waits, state.cooldown_count - 1, fnp.where(shrinks, wait, 0)
            ),
            count=first_count(),
            avg_value=fnp.zeros_like(mean),
        )
        going_on = state._replace(count=count, avg_value=mean)
        new = tree.map(
            lambda a, b: fnp.where(full, a, b).astype(b.dtype), counted, going_on
        )
        return tree.map(lambda g: scaled(g, new.scale), updates), new

    return extended(init, update)


# ---------------------------------------------------------------- complex numbers


class SplitRealAndImaginaryState(NamedTuple):
    """The state of the transformation inside, of pairs of real arrays."""

    inner_state: OptState


class SplitRealAndImaginaryArrays(NamedTuple):
    """What a complex array becomes: its two parts."""

    real: Leaf
    imaginary: Leaf


def split_real_and_imaginary(
    inner: GradientTransformation,
) -> GradientTransformationExtraArgs:
    """The transformation on complex arrays as pairs of real ones.

    Each part is then scaled by itself, as if it were a parameter of its own.

    >>> from fnx.optim import sign_sgd
    >>> optimizer = split_real_and_imaginary(sign_sgd(0.5))
    >>> optimizer.update(fnp.array([3 - 4j]), optimizer.init(fnp.array([0j])))[0]
    Array([-0.5+0.5j], dtype=complex64)
    """
    check_transformation("split_real_and_imaginary", "inner", inner)
    inside = with_extra_args_support(inner)

    def init(params: Params) -> OptState:
        params = floating("split_real_and_imaginary", "params", params)
        return SplitRealAndImaginaryState(inside.init(tree.map(_split, params)))

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating("split_real_and_imaginary", "updates", updates)
        beside = None if params is None else tree.map(_split, params)
        given, new = inside.update(
            tree.map(_split, updates), state.inner_state, beside, **extra_args
        )
        whole = tree.map(
            _joined,
            given,
            is_leaf=lambda x: isinstance(x, SplitRealAndImaginaryArrays),
        )
        return whole, SplitRealAndImaginaryState(new)

    return extended(init, update)


def _split(x: Any) -> Any:
    x = fnp.asarray(x)
    if not dtypes.is_complex(x.dtype):
        return x
    return SplitRealAndImaginaryArrays(fnp.real(x), fnp.imag(x))


def _joined(x: Any) -> Any:
    if not isinstance(x, SplitRealAndImaginaryArrays):
        return x
    return lax.complex(x.real, x.imaginary)
