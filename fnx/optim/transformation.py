"""GradientTransformation: a pair of pure functions, and how several make one.

`init(params)` gives a state, `update(updates, state, params)` gives new updates and the
next state. Nothing is hidden: the state is a tree that `jit`, `vmap` and a checkpoint
take like any other. Next on the walk: `updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fnx.errors import ArgumentError, api_boundary

Params = Any
"""A tree of floating-point arrays."""
Updates = Any
"""A tree like that of the parameters: gradients on their way to becoming steps."""
OptState = Any
"""A tree of arrays: what a transformation remembers from step to step."""


class GradientTransformation(NamedTuple):
    """What turns gradients into updates: `init(params)` and `update`.

    `update(updates, state, params=None)` gives the new updates, with the structure,
    shapes and dtypes of the old ones, and the new state. The parameters are needed by
    some transformations only (weight decay); those say so when they lack them.

    >>> import fnx.numpy as fnp
    >>> from fnx.optim import scale
    >>> half = scale(0.5)
    >>> half.update(fnp.array([1.0, 2.0]), half.init(None))
    (Array([0.5, 1. ], dtype=float32), EmptyState())
    """

    init: Callable[[Params], OptState]
    update: Callable[..., tuple[Updates, OptState]]


class EmptyState(NamedTuple):
    """The state of a transformation that remembers nothing."""


def transformation(
    init: Callable[[Params], OptState],
    update: Callable[..., tuple[Updates, OptState]],
) -> GradientTransformation:
    """The transformation of two functions; its errors hide fnx's own frames."""
    return GradientTransformation(api_boundary(init), api_boundary(update))


def stateless(
    function: Callable[[Updates, Params], Updates],
) -> GradientTransformation:
    """The transformation that applies `function(updates, params)` and keeps no state.

    >>> flip = stateless(lambda updates, params: -updates)
    >>> flip.update(1.0, flip.init(None))
    (-1.0, EmptyState())
    """

    def init(params: Params) -> OptState:
        return EmptyState()

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        return function(updates, params), state

    return transformation(init, update)


def identity() -> GradientTransformation:
    """The transformation that changes nothing.

    >>> identity().update([1.0], EmptyState())
    ([1.0], EmptyState())
    """
    return stateless(lambda updates, params: updates)


def chain(*transformations: GradientTransformation) -> GradientTransformation:
    """The transformation that applies the given ones in order.

    Its state is the tuple of their states. Raises `ArgumentError` for an argument that
    is no transformation, and for a state that `init` did not make.

    >>> from fnx.optim import clip, scale
    >>> both = chain(scale(2.0), clip(1.0))
    >>> both.init(None)
    (EmptyState(), EmptyState())
    """
    for place, one in enumerate(transformations):
        _check_transformation(place, one)

    def init(params: Params) -> OptState:
        return tuple([one.init(params) for one in transformations])

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        _check_state(state, len(transformations))
        states = []
        for one, old in zip(transformations, state, strict=True):
            updates, new = one.update(updates, old, params)
            states.append(new)
        return updates, tuple(states)

    return transformation(init, update)


def _check_transformation(place: int, value: Any) -> None:
    if not (hasattr(value, "init") and hasattr(value, "update")):
        raise ArgumentError(
            f"chain: argument {place} must be a gradient transformation, such as "
            f"fnx.optim.scale(0.1); got {value!r} of type {type(value).__name__}"
        )


def _check_state(state: Any, count: int) -> None:
    if type(state) is not tuple or len(state) != count:
        found = f"of length {len(state)}" if type(state) is tuple else "that is none"
        raise ArgumentError(
            f"chain: the state must be the tuple of {count} states that init(params) "
            f"gave, got a {type(state).__name__} {found}; the order of arguments is "
            "update(updates, state, params)"
        )
