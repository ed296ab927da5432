"""GradientTransformation: a pair of pure functions, and how several make one.

`init(params)` gives a state, `update(updates, state, params)` gives new updates and the
next state. Nothing is hidden: the state is a tree that `jit`, `vmap` and a checkpoint
take like any other. Some transformations want more than that: the loss, or a function
that computes it. Such extra arguments go by name through every wrapper to whoever
takes them. Next on the walk: `updates.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fnx import tree
from fnx.errors import ArgumentError, OptionError, api_boundary

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


class GradientTransformationExtraArgs(GradientTransformation):
    """One whose `update` takes more arguments, by name, and ignores those of others.

    `update(updates, state, params=None, **extra_args)`; `chain` and the wrappers hand
    the extra arguments on to all that they hold.
    """


class EmptyState(NamedTuple):
    """The state of a transformation that remembers nothing."""


def transformation(
    init: Callable[[Params], OptState],
    update: Callable[..., tuple[Updates, OptState]],
) -> GradientTransformation:
    """The transformation of two functions; its errors hide fnx's own frames."""
    return GradientTransformation(api_boundary(init), api_boundary(update))


def extended(
    init: Callable[[Params], OptState],
    update: Callable[..., tuple[Updates, OptState]],
) -> GradientTransformationExtraArgs:
    """As `transformation`, of an `update` that takes extra arguments."""
    return GradientTransformationExtraArgs(api_boundary(init), api_boundary(update))


def with_extra_args_support(
    tx: GradientTransformation,
) -> GradientTransformationExtraArgs:
    """The same transformation, that also takes extra arguments, and ignores them.

    >>> from fnx.optim import scale
    >>> half = with_extra_args_support(scale(0.5))
    >>> half.update([4.0], half.init(None), value=3.0)[0]
    [Array(2., dtype=float32)]
    """
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx
    check_transformation("with_extra_args_support", "tx", tx)

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)


def check_transformation(function: str, argument: str, value: Any) -> None:
    """Raise `ArgumentError` unless the argument is a gradient transformation."""
    if not (hasattr(value, "init") and hasattr(value, "update")):
        raise ArgumentError(
            f"{function}: {argument} must be a gradient transformation, such as "
            f"fnx.optim.scale(0.1); got {value!r} of type {type(value).__name__}"
        )


def stateless(
    f: Callable[[Updates, Params], Updates],
) -> GradientTransformation:
    """The transformation that applies `f(updates, params)` and keeps no state.

    >>> flip = stateless(lambda updates, params: -updates)
    >>> flip.update(1.0, flip.init(None))
    (-1.0, EmptyState())
    """

    def init(params: Params) -> OptState:
        return EmptyState()

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        return f(updates, params), state

    return transformation(init, update)


def stateless_with_tree_map(
    f: Callable[[Any, Any], Any],
) -> GradientTransformation:
    """The transformation that applies `f(update, parameter)` to each leaf.

    The parameter is None where `update` is called without parameters.

    >>> import fnx.numpy as fnp
    >>> shrink = stateless_with_tree_map(lambda g, p: g - 0.1 * p)
    >>> shrink.update([fnp.ones(1)], shrink.init(None), [fnp.ones(1)])[0]
    [Array([0.9], dtype=float32)]
    """

    def each(updates: Updates, params: Params) -> Updates:
        if params is None:
            return tree.map(lambda g: f(g, None), updates)
        return tree.map(f, updates, params)

    return stateless(each)


def identity() -> GradientTransformation:
    """The transformation that changes nothing.

    >>> identity().update([1.0], EmptyState())
    ([1.0], EmptyState())
    """
    return stateless(lambda updates, params: updates)


def chain(*transformations: GradientTransformation) -> GradientTransformationExtraArgs:
    """The transformation that applies the given ones in order.

    Its state is the tuple of their states; extra arguments go to each. Raises
    `ArgumentError` for an argument that is no transformation, and for a state that
    `init` did not make.

    >>> from fnx.optim import clip, scale
    >>> both = chain(scale(2.0), clip(1.0))
    >>> both.init(None)
    (EmptyState(), EmptyState())
    """
    links = _extended("chain", transformations)

    def init(params: Params) -> OptState:
        return tuple([link.init(params) for link in links])

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        _check_state(state, len(links))
        states = []
        for link, old in zip(links, state, strict=True):
            updates, new = link.update(updates, old, params, **extra_args)
            states.append(new)
        return updates, tuple(states)

    return extended(init, update)


def named_chain(
    *transformations: tuple[str, GradientTransformation],
) -> GradientTransformationExtraArgs:
    """As `chain`, of (name, transformation) pairs; the state is a dict by these names.

    Raises `OptionError` for a name given twice.

    >>> from fnx.optim import scale
    >>> named_chain(("half", scale(0.5)), ("minus", scale(-1.0))).init(None)
    {'half': EmptyState(), 'minus': EmptyState()}
    """
    names = [name for name, _ in transformations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"named_chain: {twice[0]!r} is the name of two links")
    links = _extended("named_chain", [one for _, one in transformations])

    def init(params: Params) -> OptState:
        pairs = zip(names, links, strict=True)
        return {name: link.init(params) for name, link in pairs}

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        states = {}
        for name, link in zip(names, links, strict=True):
            updates, new = link.update(updates, state[name], params, **extra_args)
            states[name] = new
        return updates, states

    return extended(init, update)


def _extended(
    function: str, transformations: Sequence[GradientTransformation]
) -> list[GradientTransformationExtraArgs]:
    for place, one in enumerate(transformations):
        check_transformation(function, f"argument {place}", one)
    return [with_extra_args_support(one) for one in transformations]


def _check_state(state: Any, count: int) -> None:
    if type(state) is not tuple or len(state) != count:
        found = f"of length {len(state)}" if type(state) is tuple else "that is none"
        raise ArgumentError(
            f"chain: the state must be the tuple of {count} states that init(params) "
            f"gave, got a {type(state).__name__} {found}; the order of arguments is "
            "update(updates, state, params)"
        )
