"""Two sets of parameters, fast and slow: the lookahead optimizer.

Receives an optimizer of the fast parameters, gives one of both. Next on the walk:
`injection.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import lax, tree
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.optim.hyperparameters import UNIT, steps
from fnx.optim.transformation import (
    GradientTransformation,
    OptState,
    Params,
    Updates,
    check_transformation,
    transformation,
)
from fnx.optim.updates import Leaf, first_count, floating, wide


class LookaheadParams(NamedTuple):
    """The parameters that are trained, `fast`, and those that follow them, `slow`."""

    fast: Params
    slow: Params

    @classmethod
    def init_synced(cls, params: Params) -> LookaheadParams:
        """Both the same."""
        return cls(params, params)


class LookaheadState(NamedTuple):
    """The fast optimizer's state, and its updates since both were alike (int32)."""

    fast_state: OptState
    steps_since_sync: Array


def lookahead(
    fast_optimizer: GradientTransformation,
    sync_period: int,
    slow_step_size: float | Array,
    reset_state: bool = False,
) -> GradientTransformation:
    """Every `sync_period` updates slow parameters go part of the way to the fast ones.

    `params` is a `LookaheadParams`; the gradients are those of `params.fast`, and the
    updates are for both. At a synchronisation the slow ones move by `slow_step_size`
    (0 to 1) of the distance, the fast ones go there, and the fast optimizer starts anew
    if `reset_state`. Zhang et al., "Lookahead Optimizer: k steps forward, 1 step back",
    2019.

    >>> from fnx.optim import apply_updates, sgd
    >>> optimizer = lookahead(sgd(1.0), sync_period=2, slow_step_size=0.5)
    >>> params = LookaheadParams.init_synced(fnp.zeros(1))
    >>> state = optimizer.init(params)
    >>> for _ in range(2):
    ...     updates, state = optimizer.update(fnp.ones(1), state, params)
    ...     params = apply_updates(params, updates)
    ...     print(params.fast, params.slow)
    [-1.] [0.]
    [-1.] [-1.]
    """
    check_transformation("lookahead", "fast_optimizer", fast_optimizer)
    period = steps("lookahead", "sync_period", sync_period)
    UNIT.check("lookahead", "slow_step_size", slow_step_size)

    def init(params: Params) -> OptState:
        _check_params(params)
        return LookaheadState(fast_optimizer.init(params.fast), first_count())

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        _check_params(params)
        fast, slow = floating("lookahead", "params", params)
        fast_steps, fast_state = fast_optimizer.update(updates, state.fast_state, fast)
        syncs = state.steps_since_sync + 1 == period

        def slow_step(p: Leaf, step: Leaf, q: Leaf) -> Leaf:
            move = slow_step_size * (wide(p) + wide(step) - wide(q))
            return fnp.where(syncs, move, 0)

        moves = tree.map(slow_step, fast, fast_steps, slow)

        def fast_step(p: Leaf, step: Leaf, q: Leaf, move: Leaf) -> Leaf:
            there = wide(q) + move - wide(p)
            return fnp.where(syncs, there, wide(step)).astype(step.dtype)

        fast_steps = tree.map(fast_step, fast, fast_steps, slow, moves)
        moves = tree.map(lambda move, q: move.astype(q.dtype), moves, slow)
        if reset_state:
            fast_state = lax.cond(
                syncs, lambda: fast_optimizer.init(fast), lambda: fast_state
            )
        since = fnp.where(syncs, 0, state.steps_since_sync + 1)
        return LookaheadParams(fast_steps, moves), LookaheadState(fast_state, since)

    return transformation(init, update)


def _check_params(params: Any) -> None:
    if not isinstance(params, LookaheadParams):
        raise ArgumentError(
            "lookahead: params must be a LookaheadParams, such as "
            "LookaheadParams.init_synced(params); got one of type "
            f"{type(params).__name__}"
        )
