"""Policies of `checkpoint`: which values are kept for the backward pass.

A policy is called with the primitive of an equation, the types of its operands and its
params, and says whether the results may be kept; whatever else is needed is computed
again. Policies are records, so that equal ones make equal programs.
Next on the walk: `remat.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors
from fnx.core.primitive import Primitive
from fnx.ops.conv import conv_general_dilated
from fnx.ops.dot import dot_general
from fnx.ops.marks import checkpoint_name
from fnx.records import record

Policy = Callable[..., Any]


@record
class _All:
    """Everything, or nothing."""

    saved: bool

    def __call__(self, primitive: Primitive, *types: Any, **params: Any) -> bool:
        return self.saved


@record
class _Dots:
    """Products and convolutions; or, unless `batched`, products without batch axes."""

    batched: bool

    def __call__(self, primitive: Primitive, *types: Any, **params: Any) -> bool:
        if self.batched:
            return primitive in (dot_general, conv_general_dilated)
        return primitive is dot_general and params["batch"] == ((), ())


@record
class _Names:
    """Values that have a name that is `listed`, or one that is not.

    `unnamed` says whether values without a name are saved.
    """

    names: tuple[str, ...]
    listed: bool
    unnamed: bool

    def __call__(self, primitive: Primitive, *types: Any, **params: Any) -> bool:
        if primitive is not checkpoint_name:
            return self.unnamed
        return (params["name"] in self.names) == self.listed

    def refuses(self, name: str) -> bool:
        """Whether a value of that name is not even saved as what it was before."""
        return self.unnamed and name in self.names


@record
class _Either:
    """What one or both of two policies save."""

    first: Policy
    second: Policy

    def __call__(self, primitive: Primitive, *types: Any, **params: Any) -> bool:
        pair = self.first, self.second
        return any(policy(primitive, *types, **params) for policy in pair)


everything_saveable: Policy = _All(True)
"""Keeps whatever the backward pass reads, as if there were no checkpoint."""

nothing_saveable: Policy = _All(False)
"""Keeps the arguments alone; what a checkpoint without a policy does."""

dots_saveable: Policy = _Dots(True)
"""Keeps matrix products, other contractions and convolutions."""

dots_with_no_batch_dims_saveable: Policy = _Dots(False)
"""Keeps contractions without batch axes, such as the products with weights.

No convolutions: they have a batch.
"""

checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@errors.api_boundary
def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Keeps the values that `checkpoint_name` gave one of these names.

    Raises `ArgumentError` for a name that is no string.

    >>> import fnx
    >>> from fnx.ad_checkpoint import checkpoint_name
    >>> policy = fnx.checkpoint_policies.save_only_these_names("hidden")
    >>> @fnx.checkpoint(policy=policy)
    ... def f(x):
    ...     return fnx.numpy.sin(checkpoint_name(fnx.numpy.exp(x), "hidden"))
    >>> fnx.grad(f)(0.0).item() == fnx.numpy.cos(1.0).item()
    True
    """
    names = _names("save_only_these_names", names_which_can_be_saved)
    return _Names(names, listed=True, unnamed=False)


@errors.api_boundary
def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Keeps the values that have a name, unless it is one of these.

    Raises `ArgumentError` for a name that is no string.

    >>> save_any_names_but_these("a") == save_any_names_but_these("a")
    True
    """
    names = _names("save_any_names_but_these", names_not_to_save)
    return _Names(names, listed=False, unnamed=False)


@errors.api_boundary
def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Keeps everything but the values that have one of these names.

    Raises `ArgumentError` for a name that is no string.

    >>> save_anything_except_these_names("a") == save_anything_except_these_names("b")
    False
    """
    names = _names("save_anything_except_these_names", names_not_to_save)
    return _Names(names, listed=False, unnamed=True)


@errors.api_boundary
def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Keeps what one or both of two policies keep.

    Raises `OptionError` for a policy that cannot be called.

    >>> both = save_from_both_policies(dots_saveable, save_only_these_names("a"))
    """
    asker = "save_from_both_policies"
    first = check_policy(asker, "policy_1", policy_1)
    return _Either(first, check_policy(asker, "policy_2", policy_2))


# ---------------------------------------------------------------- offloading


def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
    """Keeps contractions without batch axes in the memory `offload_dst`.

    A CPU has one memory, so they stay where they are: the policy is that of
    `dots_with_no_batch_dims_saveable`, whatever the two memories are called.

    >>> policy = offload_dot_with_no_batch_dims("device", "pinned_host")
    >>> policy == dots_with_no_batch_dims_saveable
    True
    """
    return dots_with_no_batch_dims_saveable


@errors.api_boundary
def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str,
    offload_dst: str,
) -> Policy:
    """Keeps values with these names, some of them in the memory `offload_dst`.

    A CPU has one memory, so all of them stay where they are. Raises `ArgumentError` for
    a name that is no string, `OptionError` for one that is in both lists.

    >>> policy = save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["a"],
    ...     names_which_can_be_offloaded=["b"],
    ...     offload_src="device",
    ...     offload_dst="pinned_host",
    ... )
    >>> policy == save_only_these_names("a", "b")
    True
    """
    asker = "save_and_offload_only_these_names"
    saved = _names(asker, names_which_can_be_saved)
    offloaded = _names(asker, names_which_can_be_offloaded)
    both = [name for name in saved if name in offloaded]
    if both:
        raise errors.OptionError(
            f"{asker}: {both[0]!r} is in names_which_can_be_saved and in "
            "names_which_can_be_offloaded; name it once."
        )
    return save_only_these_names(*saved, *offloaded)


# ---------------------------------------------------------------- checks


def check_policy(asker: str, option: str, policy: Any) -> Policy:
    """A policy that can be called, and is hashable as params are; or `OptionError`."""
    found: Policy = policy
    if isinstance(policy, str) or not callable(policy):
        raise errors.OptionError(
            errors.explain(
                f"{asker}: {option} is {policy!r}",
                "a policy is a function policy(primitive, *types, **params) that says "
                "whether results are saved",
                "take one from fnx.checkpoint_policies, or None",
            )
        )
    try:
        hash(policy)
    except TypeError:
        kind = type(policy).__name__
        raise errors.OptionError(
            f"{asker}: {option} is of type {kind}, which cannot be hashed; give it a "
            "__hash__, or pass a function."
        ) from None
    return found


def _names(asker: str, names: Sequence[str]) -> tuple[str, ...]:
    """Names in one order, each once."""
    for name in names:
        if not isinstance(name, str):
            kind = type(name).__name__
            raise errors.ArgumentError(
                f"{asker}: names are strings, got {name!r} of type {kind}"
            )
    if isinstance(names, str):
        raise errors.ArgumentError(f"{asker}: takes a list of names, got {names!r}")
    return tuple(sorted(set(names)))
