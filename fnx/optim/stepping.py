"""Transformations that act at some steps only: accumulation, conditions, finiteness.

Each holds another transformation, and runs it where a condition on the device says so.
Receives transformations, gives transformations. Next on the walk: `slow_weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import fnx.numpy as fnp
from fnx import dtypes, lax, tree
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.optim.hyperparameters import float_dtype, steps
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
    check_alike,
    first_count,
    floating,
    next_count,
    squared,
    wide,
)

# ---------------------------------------------------------------- accumulation


class ShouldSkipUpdateFunction(Protocol):
    """What says whether a mini-step's gradients are to be left out."""

    def __call__(
        self, updates: Updates, gradient_step: Array, params: Params | None
    ) -> tuple[Array, Any]:
        """Whether to skip (bool, rank 0), and a tree to keep in the state."""


class MultiStepsState(NamedTuple):
    """Where an accumulation stands: counts (int32), the inner state, the gradients."""

    mini_step: Array
    gradient_step: Array
    inner_opt_state: OptState
    acc_grads: Updates
    skip_state: Any = ()


class MultiSteps:
    """Gives the inner transformation the gradients of several calls at once.

    Of `every_k_schedule` calls (a number, or a function of how many inner updates were
    made) all but the last return zeros; the last returns the inner update of the mean
    of the gradients (their sum, if not `use_grad_mean`). Gradients for which
    `should_skip_update_fn` says so do not count: `skip_not_finite` and
    `skip_large_updates` are such functions. The sum is kept in `accumulator_dtype`, by
    default float32, or float64 for parameters of that.

    >>> from fnx.optim import sgd
    >>> every = MultiSteps(sgd(1.0), every_k_schedule=2)
    >>> state = every.init(fnp.zeros(1))
    >>> for g in (1.0, 3.0):
    ...     updates, state = every.update(fnp.array([g]), state)
    ...     print(updates, every.has_updated(state))
    [0.] False
    [-2.] True
    """

    def __init__(
        self,
        opt: GradientTransformation,
        every_k_schedule: int | Callable[[Any], Any],
        use_grad_mean: bool = True,
        should_skip_update_fn: ShouldSkipUpdateFunction | None = None,
        accumulator_dtype: Any = None,
    ) -> None:
        check_transformation("MultiSteps", "opt", opt)
        self.inner_opt = with_extra_args_support(opt)
        self._every = every_k_schedule
        if not callable(every_k_schedule):
            steps("MultiSteps", "every_k_schedule", every_k_schedule)
        self._use_grad_mean = use_grad_mean
        self._should_skip = should_skip_update_fn
        self._dtype = float_dtype("MultiSteps", "accumulator_dtype", accumulator_dtype)

    def init(self, params: Params) -> MultiStepsState:
        """The state before the first call."""
        params = floating("MultiSteps", "params", params)
        sums = tree.map(
            lambda p: fnp.zeros(p.shape, self._dtype or dtypes.compute_dtype(p.dtype)),
            params,
        )
        skip_state: Any = ()
        if self._should_skip is not None:
            zeros = tree.map(fnp.zeros_like, params)
            _, skip_state = self._should_skip(zeros, first_count(), params)
        return MultiStepsState(
            first_count(), first_count(), self.inner_opt.init(params), sums, skip_state
        )

    def update(
        self,
        updates: Updates,
        state: MultiStepsState,
        params: Params = None,
        **extra_args: Any,
    ) -> tuple[Updates, MultiStepsState]:
        """Add the gradients; at the last call of a group, the inner update of all."""
        updates = floating("MultiSteps", "updates", updates)
        check_alike("MultiSteps", "updates", updates, "state", state.acc_grads)
        sums = tree.map(
            lambda total, g: self._added(total, g, state.mini_step),
            state.acc_grads,
            updates,
        )
        zeros = tree.map(fnp.zeros_like, updates)
        every = self._every
        group = every(state.gradient_step) if callable(every) else every

        def last() -> tuple[Updates, MultiStepsState]:
            gradients = tree.map(lambda total, g: total.astype(g.dtype), sums, updates)
            steps, inner = self.inner_opt.update(
                gradients, state.inner_opt_state, params, **extra_args
            )
            return tree.map(_as_like, steps, updates), MultiStepsState(
                first_count(),
                next_count(state.gradient_step),
                inner,
                tree.map(fnp.zeros_like, sums),
                state.skip_state,
            )

        def earlier() -> tuple[Updates, MultiStepsState]:
            counted = next_count(state.mini_step)
            return zeros, state._replace(mini_step=counted, acc_grads=sums)

        def act() -> tuple[Updates, MultiStepsState]:
            return lax.cond(state.mini_step + 1 >= group, last, earlier)

        if self._should_skip is None:
            return act()
        skips, skip_state = self._should_skip(updates, state.gradient_step, params)
        given, new = lax.cond(skips, lambda: (zeros, state), act)
        return given, new._replace(skip_state=skip_state)

    def _added(self, total: Leaf, g: Leaf, mini_step: Leaf) -> Leaf:
        g = g.astype(total.dtype)
        if not self._use_grad_mean:
            return total + g
        return total + (g - total) / (mini_step + 1).astype(total.dtype)

    def has_updated(self, state: MultiStepsState) -> Leaf:
        """Whether the latest call was the last of a group (bool, rank 0)."""
        return fnp.logical_and(state.mini_step == 0, state.gradient_step != 0)

    def gradient_transformation(self) -> GradientTransformationExtraArgs:
        """The pair of `init` and `update`, to be chained."""
        return extended(self.init, self.update)


def skip_not_finite(
    updates: Updates, gradient_step: Array, params: Params | None
) -> tuple[Array, dict[str, Array]]:
    """Whether some element of the updates is infinite or NaN; and how many there are.

    >>> skip_not_finite(fnp.array([1.0, float("inf")]), 0, None)[0]
    Array(True, dtype=bool)
    """
    leaves = tree.leaves(floating("skip_not_finite", "updates", updates))
    counts = [fnp.sum(fnp.logical_not(fnp.isfinite(x)), dtype="int32") for x in leaves]
    count = tree.reduce(fnp.add, counts, first_count())
    skips = fnp.not_equal(count, 0)
    return skips, {"should_skip": skips, "num_not_finite": count}


def skip_large_updates(
    updates: Updates,
    gradient_step: Array,
    params: Params | None,
    max_squared_norm: float,
) -> tuple[Array, dict[str, Array]]:
    """Whether the squared norm of the updates is `max_squared_norm` or more, or NaN.

    Give it to `MultiSteps` with `functools.partial`.

    >>> skip_large_updates(fnp.array([3.0, 4.0]), 0, None, 20.0)[0]
    Array(True, dtype=bool)
    """
    leaves = tree.leaves(floating("skip_large_updates", "updates", updates))
    squares = [fnp.sum(squared(wide(x))) for x in leaves]
    total = tree.reduce(fnp.add, squares, fnp.zeros((), "float32"))
    skips = fnp.logical_not(total < max_squared_norm)
    return skips, {"should_skip": skips, "norm_squared": total}


# ---------------------------------------------------------------- finiteness


class ApplyIfFiniteState(NamedTuple):
    """How many updates were refused: lately in a row, and in all; the inner state."""

    notfinite_count: Array
    last_finite: Array
    total_notfinite: Array
    inner_state: OptState


def apply_if_finite(
    inner: GradientTransformation, max_consecutive_errors: int
) -> GradientTransformationExtraArgs:
    """Zeros, and no change of the inner state, for gradients that are not finite.

    After `max_consecutive_errors` of them in a row the next ones are let through. The
    inner update runs only where it is wanted.

    >>> from fnx.optim import sgd
    >>> safe = apply_if_finite(sgd(1.0), max_consecutive_errors=5)
    >>> updates, state = safe.update(fnp.array([float("nan")]), safe.init(fnp.zeros(1)))
    >>> print(updates, state.total_notfinite)
    [0.] 1
    """
    check_transformation("apply_if_finite", "inner", inner)
    most = steps("apply_if_finite", "max_consecutive_errors", max_consecutive_errors, 0)
    inside = with_extra_args_support(inner)

    def init(params: Params) -> OptState:
        fine = fnp.ones((), "bool")
        return ApplyIfFiniteState(
            first_count(), fine, first_count(), inside.init(params)
        )

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating("apply_if_finite", "updates", updates)
        finite: Leaf = fnp.ones((), "bool")
        for g in tree.leaves(updates):
            finite = finite & fnp.all(fnp.isfinite(g))
        in_a_row = fnp.where(finite, 0, next_count(state.notfinite_count))
        given, inner_state = lax.cond(
            finite | (in_a_row > most),
            lambda: inside.update(updates, state.inner_state, params, **extra_args),
            lambda: (tree.map(fnp.zeros_like, updates), state.inner_state),
        )
        refused = state.total_notfinite
        total = fnp.where(finite, refused, next_count(refused))
        return given, ApplyIfFiniteState(in_a_row, finite, total, inner_state)

    return extended(init, update)


# ---------------------------------------------------------------- conditions


class ConditionallyTransformState(NamedTuple):
    """The inner state, and the number of updates made (int32)."""

    inner_state: OptState
    step: Array


class ConditionallyMaskState(NamedTuple):
    """The number of updates made (int32), and the inner state."""

    step: Array
    inner_state: OptState


def conditionally_transform(
    inner: GradientTransformation,
    should_transform_fn: Callable[..., Any],
    forward_extra_args: bool = False,
) -> GradientTransformationExtraArgs:
    """The inner transformation where `should_transform_fn(step)` is true.

    `step` is the number of updates before this one (int32); elsewhere the updates pass
    unchanged. `forward_extra_args` gives that function the extra arguments, too.

    >>> from fnx.optim import scale
    >>> first = conditionally_transform(scale(0.5), lambda step: step < 1)
    >>> state = first.init(fnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = first.update(fnp.ones(1), state)
    ...     print(updates)
    [0.5]
    [1.]
    """
    return _conditional(
        "conditionally_transform",
        inner,
        should_transform_fn,
        forward_extra_args,
        ConditionallyTransformState,
        lambda g: g,
    )


def conditionally_mask(
    inner: GradientTransformation,
    should_transform_fn: Callable[..., Any],
    forward_extra_args: bool = False,
) -> GradientTransformationExtraArgs:
    """As `conditionally_transform`, with zeros where the condition is false.

    >>> from fnx.optim import scale
    >>> first = conditionally_mask(scale(0.5), lambda step: step < 1)
    >>> state = first.init(fnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = first.update(fnp.ones(1), state)
    ...     print(updates)
    [0.5]
    [0.]
    """
    return _conditional(
        "conditionally_mask",
        inner,
        should_transform_fn,
        forward_extra_args,
        ConditionallyMaskState,
        fnp.zeros_like,
    )


def _conditional(
    function: str,
    inner: GradientTransformation,
    condition: Callable[..., Any],
    forwards: bool,
    kind: Any,
    otherwise: Callable[[Leaf], Leaf],
) -> GradientTransformationExtraArgs:
    check_transformation(function, "inner", inner)
    if not callable(condition):
        raise ArgumentError(
            f"{function}: should_transform_fn must be a function of the step, got "
            f"{condition!r}"
        )
    inside = with_extra_args_support(inner)

    def init(params: Params) -> OptState:
        return kind(step=first_count(), inner_state=inside.init(params))

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        shown = extra_args if forwards else {}
        given, inner_state = lax.cond(
            condition(state.step, **shown),
            lambda: inside.update(updates, state.inner_state, params, **extra_args),
            lambda: (tree.map(otherwise, updates), state.inner_state),
        )
        return given, kind(step=next_count(state.step), inner_state=inner_state)

    return extended(init, update)


def _as_like(x: Leaf, like: Leaf) -> Leaf:
    return x.astype(like.dtype)
