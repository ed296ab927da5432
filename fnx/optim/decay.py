"""Weight decay: a part of each parameter added to its update.

Receives updates and parameters, gives updates. Next on the walk: `clipping.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fnx import tree
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.optim.hyperparameters import NOT_NEGATIVE, ScalarOrSchedule
from fnx.optim.leafwise import beside_updates
from fnx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    OptState,
    Params,
    Updates,
    identity,
    transformation,
)
from fnx.optim.updates import Leaf, first_count, floating, next_count, wide


class AddDecayedWeightsState(NamedTuple):
    """How many updates were made (int32), where the decay is a schedule."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed


def add_decayed_weights(
    weight_decay: ScalarOrSchedule = 0.0, mask: Any = None
) -> GradientTransformation:
    """Add `weight_decay` times the parameter to each update.

    `mask` is a tree of booleans like the parameters, a prefix of it (one boolean for a
    whole subtree), or a function from the parameters to such a tree; only what is True
    decays. `update` needs the parameters. Loshchilov and Hutter, "Decoupled Weight
    Decay Regularization", 2019.

    >>> import fnx.numpy as fnp
    >>> params = {"w": fnp.array([10.0]), "b": fnp.array([10.0])}
    >>> zeros = {"w": fnp.array([0.0]), "b": fnp.array([0.0])}
    >>> decay = add_decayed_weights(0.1, mask={"w": True, "b": False})
    >>> decay.update(zeros, decay.init(params), params)[0]
    {'w': Array([1.], dtype=float32), 'b': Array([0.], dtype=float32)}
    """
    return weight_decaying("add_decayed_weights", weight_decay, mask)


def weight_decaying(
    function: str, weight_decay: ScalarOrSchedule, mask: Any
) -> GradientTransformation:
    """`add_decayed_weights` on behalf of an algorithm that its errors name."""
    NOT_NEGATIVE.check_or_schedule(function, "weight_decay", weight_decay)
    scheduled = callable(weight_decay)

    def init(params: Params) -> OptState:
        return AddDecayedWeightsState(first_count()) if scheduled else EmptyState()

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        params = beside_updates(function, "weight decay", updates, params)
        rate: Any = (
            weight_decay(state.count) if callable(weight_decay) else weight_decay
        )

        def decayed(g: Leaf, p: Leaf, chosen: bool) -> Leaf:
            return (wide(g) + rate * wide(p)).astype(g.dtype) if chosen else g

        updates = tree.map(decayed, updates, params, chosen(function, mask, params))
        if not scheduled:
            return updates, state
        return updates, AddDecayedWeightsState(next_count(state.count))

    return transformation(init, update)


def optional_decay(
    function: str, weight_decay: Any, mask: Any
) -> GradientTransformation:
    """Weight decay, or nothing for the number 0: `update` needs no parameters then."""
    NOT_NEGATIVE.check_or_schedule(function, "weight_decay", weight_decay)
    if isinstance(weight_decay, int | float) and weight_decay == 0:
        return identity()
    return weight_decaying(function, weight_decay, mask)


def chosen(function: str, mask: Any, params: Params) -> Any:
    """A mask for parameters (or updates) as a full tree of booleans."""
    treedef = tree.structure(params)
    if mask is None:
        return tree.unflatten(treedef, [True] * treedef.num_leaves)
    given = mask(params) if callable(mask) else mask
    flags = tree.broadcast_prefix(given, params, f"{function}: mask")
    for path, flag in zip(tree.paths(treedef), flags, strict=True):
        if not isinstance(flag, bool):
            raise ArgumentError(
                f"{function}: mask holds True and False, got {flag!r} of type "
                f"{type(flag).__name__} for params{tree.keystr(path)}"
            )
    return tree.unflatten(treedef, flags)
