"""Different transformations for different parameters: masks, labels, frozen ones.

A masked leaf is replaced by a `MaskedNode`, which has no leaves, so that the inner
transformation keeps no state for it. Receives transformations and trees of booleans or
labels, gives transformations. Next on the walk: `stepping.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.errors import OptionError
from fnx.optim.decay import chosen
from fnx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    check_transformation,
    extended,
    stateless,
    with_extra_args_support,
)
from fnx.optim.updates import floating


class MaskedNode(NamedTuple):
    """In the place of a leaf that a masked transformation does not see."""


class MaskedState(NamedTuple):
    """The state of the transformation that sees only what the mask lets through."""

    inner_state: OptState


class PartitionState(NamedTuple):
    """The states of the transformations, each a `MaskedState`, by label."""

    inner_states: Mapping[Any, OptState]


MultiTransformState = PartitionState


def masked(
    inner: GradientTransformation,
    mask: Any,
    *,
    mask_compatible_extra_args: bool = False,
) -> GradientTransformationExtraArgs:
    """Transform only the leaves where the mask is True; the others pass unchanged.

    `mask` is a tree of booleans like the parameters, a prefix of it (one boolean for a
    whole subtree), or a function from parameters or updates to such a tree. With
    `mask_compatible_extra_args`, extra arguments of the updates' structure are masked,
    too.

    >>> from fnx.optim import scale
    >>> halves = masked(scale(0.5), {"w": True, "b": False})
    >>> grads = {"w": fnp.ones(1), "b": fnp.ones(1)}
    >>> halves.update(grads, halves.init(grads))[0]
    {'w': Array([0.5], dtype=float32), 'b': Array([1.], dtype=float32)}
    """
    check_transformation("masked", "inner", inner)
    return _masked("masked", inner, mask, mask_compatible_extra_args)


def _masked(
    function: str, inner: GradientTransformation, mask: Any, masks_extra: bool
) -> GradientTransformationExtraArgs:
    inside = with_extra_args_support(inner)

    def init(params: Params) -> OptState:
        return MaskedState(inside.init(_hidden(params, chosen(function, mask, params))))

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        flags = chosen(function, mask, updates)
        if masks_extra:
            structure = tree.structure(updates)
            extra_args = {
                name: _hidden(value, flags)
                if tree.structure(value) == structure
                else value
                for name, value in extra_args.items()
            }
        shown = None if params is None else _hidden(params, flags)
        seen, inner_state = inside.update(
            _hidden(updates, flags), state.inner_state, shown, **extra_args
        )
        return _merged(updates, seen, flags), MaskedState(inner_state)

    return extended(init, update)


def _hidden(values: Any, flags: Any) -> Any:
    """The tree with a `MaskedNode` in the place of each leaf whose flag is False."""
    return tree.map(lambda flag, x: x if flag else MaskedNode(), flags, values)


def _merged(updates: Updates, seen: Updates, flags: Any) -> Updates:
    """The inner transformation's leaves where there are some, else the given ones."""
    inner = iter(tree.leaves(seen))
    return tree.map(lambda flag, x: next(inner) if flag else x, flags, updates)


def partition(
    transforms: Mapping[Any, GradientTransformation],
    param_labels: Any,
    *,
    mask_compatible_extra_args: bool = False,
) -> GradientTransformationExtraArgs:
    """Each parameter's updates go through the transformation that its label names.

    `param_labels` is a tree of keys of `transforms` like the parameters, a prefix of
    it, or a function from parameters or updates to such a tree. Raises `OptionError`
    for a label without transformation. Also called `multi_transform`.

    >>> from fnx.optim import scale
    >>> labels = {"w": "slow", "b": "fast"}
    >>> both = partition({"slow": scale(0.1), "fast": scale(2.0)}, labels)
    >>> grads = {"w": fnp.ones(1), "b": fnp.ones(1)}
    >>> both.update(grads, both.init(grads))[0]
    {'w': Array([0.1], dtype=float32), 'b': Array([2.], dtype=float32)}
    """
    for label, one in transforms.items():
        check_transformation("partition", f"transforms[{label!r}]", one)

    def parts(params: Params) -> dict[Any, GradientTransformationExtraArgs]:
        labels = _labels(transforms, param_labels, params)
        treedef = tree.structure(params)
        return {
            label: _masked(
                "partition",
                one,
                tree.unflatten(treedef, [given == label for given in labels]),
                mask_compatible_extra_args,
            )
            for label, one in transforms.items()
        }

    def init(params: Params) -> OptState:
        made = parts(params)
        return PartitionState({label: made[label].init(params) for label in made})

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        states = {}
        for label, part in parts(updates).items():
            inner_state = state.inner_states[label]
            updates, new = part.update(updates, inner_state, params, **extra_args)
            states[label] = new
        return updates, PartitionState(states)

    return extended(init, update)


multi_transform = partition


def _labels(transforms: Mapping[Any, Any], param_labels: Any, params: Params) -> Any:
    given = param_labels(params) if callable(param_labels) else param_labels
    labels = tree.broadcast_prefix(given, params, "partition: param_labels")
    unknown = [label for label in labels if label not in transforms]
    if unknown:
        place = tree.paths(tree.structure(params))[labels.index(unknown[0])]
        raise OptionError(
            f"partition: params{tree.keystr(place)} has the label {unknown[0]!r}, "
            f"which is not one of transforms: {', '.join(map(repr, transforms))}"
        )
    return labels


# ---------------------------------------------------------------- frozen parameters


def set_to_zero() -> GradientTransformation:
    """Replace all updates by zeros: the parameters stay as they are.

    >>> set_to_zero().update(fnp.ones(2), ())[0]
    Array([0., 0.], dtype=float32)
    """

    def nothing(updates: Updates, params: Params) -> Updates:
        return tree.map(fnp.zeros_like, floating("set_to_zero", "updates", updates))

    return stateless(nothing)


def freeze(mask: Any) -> GradientTransformationExtraArgs:
    """Set the updates to zero where the mask is True, and leave the others.

    >>> grads = {"w": fnp.ones(1), "b": fnp.ones(1)}
    >>> frozen = freeze({"w": False, "b": True})
    >>> frozen.update(grads, frozen.init(grads))[0]
    {'w': Array([1.], dtype=float32), 'b': Array([0.], dtype=float32)}
    """
    return _masked("freeze", set_to_zero(), mask, False)


def selective_transform(
    optimizer: GradientTransformation, *, freeze_mask: Any
) -> GradientTransformationExtraArgs:
    """The optimizer where the mask is False; zeros, and no state, where it is True.

    >>> grads = {"w": fnp.ones(1), "b": fnp.ones(1)}
    >>> from fnx.optim import scale
    >>> half = selective_transform(scale(0.5), freeze_mask={"w": False, "b": True})
    >>> half.update(grads, half.init(grads))[0]
    {'w': Array([0.5], dtype=float32), 'b': Array([0.], dtype=float32)}
    """
    check_transformation("selective_transform", "optimizer", optimizer)

    def labels(params: Params) -> Any:
        flags = chosen("selective_transform", freeze_mask, params)
        return tree.map(lambda flag: "frozen" if flag else "trained", flags)

    return partition({"trained": optimizer, "frozen": set_to_zero()}, labels)
