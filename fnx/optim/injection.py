"""Hyperparameters in the state, and a tree as one vector: two wrappers.

Receives transformations or what makes them, gives transformations. Next on the walk:
`squares.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import fnx.numpy as fnp
from fnx import dtypes
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.flatten_util import ravel_pytree
from fnx.optim.hyperparameters import float_dtype
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
from fnx.optim.updates import Leaf, first_count, floating, next_count


class InjectHyperparamsState(NamedTuple):
    """The number of updates made (int32), the hyperparameters, and the inner state.

    `hyperparams` is a dict from names to arrays: what the latest update used.
    """

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    hyperparams: dict[str, Array]
    inner_state: OptState


def inject_hyperparams(
    inner_factory: Callable[..., GradientTransformation],
    static_args: str | Iterable[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., GradientTransformationExtraArgs]:
    """A function like `inner_factory`, whose numbers live in the state.

    Numbers and arrays given to it, defaults included, can be changed from step to step
    in `state.hyperparams`, without a new compilation; functions are schedules, called
    with the number of updates before this one. Booleans, None, strings and the
    `static_args` go to `inner_factory` as they are. `hyperparam_dtype` is the dtype of
    the floating-point ones.

    >>> from fnx.optim import sgd
    >>> optimizer = inject_hyperparams(sgd)(learning_rate=0.5)
    >>> state = optimizer.init(fnp.zeros(1))
    >>> optimizer.update(fnp.ones(1), state)[0]
    Array([-0.5], dtype=float32)
    >>> state.hyperparams["learning_rate"] = fnp.array(0.25)
    >>> optimizer.update(fnp.ones(1), state)[0]
    Array([-0.25], dtype=float32)
    """
    name = "inject_hyperparams"
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    dtype = float_dtype(name, "hyperparam_dtype", hyperparam_dtype)
    signature = inspect.signature(inner_factory)
    unknown = sorted(static - signature.parameters.keys())
    if unknown:
        raise ArgumentError(
            f"{name}: static_args has {unknown[0]!r}, which is no parameter of "
            f"{getattr(inner_factory, '__name__', inner_factory)}"
        )

    @functools.wraps(inner_factory)
    def factory(*args: Any, **kwargs: Any) -> GradientTransformationExtraArgs:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {k: v for k, v in bound.arguments.items() if k not in static}
        schedules = {k: v for k, v in given.items() if callable(v)}
        numbers = {k: _as_array(v, dtype) for k, v in given.items() if _is_number(v)}

        def now(count: Leaf) -> dict[str, Array]:
            return {
                k: _as_array(schedule(count), dtype)
                for k, schedule in schedules.items()
            }

        def inner(values: dict[str, Array]) -> GradientTransformationExtraArgs:
            arguments = inspect.BoundArguments(
                signature, type(bound.arguments)({**bound.arguments, **values})
            )
            made = inner_factory(*arguments.args, **arguments.kwargs)
            return with_extra_args_support(made)

        def init(params: Params) -> OptState:
            count = first_count()
            values = {**numbers, **now(count)}
            return InjectHyperparamsState(count, values, inner(values).init(params))

        def update(
            updates: Updates, state: OptState, params: Params = None, **extra_args: Any
        ) -> tuple[Updates, OptState]:
            values = {k: _as_array(v, dtype) for k, v in state.hyperparams.items()}
            values |= now(state.count)
            updates, inner_state = inner(values).update(
                updates, state.inner_state, params, **extra_args
            )
            count = next_count(state.count)
            return updates, InjectHyperparamsState(count, values, inner_state)

        return extended(init, update)

    return factory


inject_stateful_hyperparams = inject_hyperparams


def _is_number(value: Any) -> bool:
    kinds = int | float | Array | np.ndarray | np.number
    return isinstance(value, kinds) and not isinstance(value, bool)


def _as_array(value: Any, dtype: Any) -> Leaf:
    array: Leaf = fnp.asarray(value)
    if dtype is not None and dtypes.is_inexact(array.dtype):
        return array.astype(dtype)
    return array.astype(array.dtype)  # strongly typed: the state's types stay


def flatten(inner: GradientTransformation) -> GradientTransformationExtraArgs:
    """The inner transformation of all leaves as one vector.

    What it does to a leaf as a whole it then does to all of them together. The leaves
    are joined in the widest of their dtypes, and come back in their own.

    >>> from fnx.optim import clip_by_block_rms
    >>> one = flatten(clip_by_block_rms(1.0))
    >>> grads = [fnp.array([1.0]), fnp.array([7.0])]
    >>> one.update(grads, one.init(grads))[0]
    [Array([0.2], dtype=float32), Array([1.4], dtype=float32)]
    """
    check_transformation("flatten", "inner", inner)
    inside = with_extra_args_support(inner)

    def init(params: Params) -> OptState:
        return inside.init(ravel_pytree(params)[0])

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        vector, unravel = ravel_pytree(floating("flatten", "updates", updates))
        beside = None if params is None else ravel_pytree(params)[0]
        vector, state = inside.update(vector, state, beside, **extra_args)
        return unravel(vector), state

    return extended(init, update)
