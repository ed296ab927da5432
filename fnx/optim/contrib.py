"""The names of `optax.contrib`; here are the optimizers that hold others.

They are schedule-free averages and SAM; the files that this one imports its other names
from have the rest. Receives optimizers, gives transformations. The last file of the
walk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import lax, tree
from fnx.core.array import Array
from fnx.errors import ArgumentError, OptionError
from fnx.optim.adaptation import (
    DAdaptAdamWState,
    MechanicState,
    ProdigyState,
    dadapt_adamw,
    mechanize,
    prodigy,
)
from fnx.optim.algorithms import sgd
from fnx.optim.decay import optional_decay
from fnx.optim.distances import (
    COCOBState,
    DoGState,
    DoWGState,
    cocob,
    dog,
    dowg,
    scale_by_cocob,
)
from fnx.optim.hyperparameters import (
    NOT_NEGATIVE,
    Range,
    ScalarOrSchedule,
    float_dtype,
    steps,
)
from fnx.optim.late_variants import (
    MadgradState,
    ScaleByAdemamixState,
    ScaleBySimplifiedAdEMAMixState,
    acprop,
    ademamix,
    adopt,
    madgrad,
    scale_by_acprop,
    scale_by_ademamix,
    scale_by_adopt,
    scale_by_madgrad,
    scale_by_simplified_ademamix,
    simplified_ademamix,
)
from fnx.optim.leafwise import beside_updates
from fnx.optim.models import MomoAdamState, MomoState, momo, momo_adam
from fnx.optim.orthogonal import MuonDimensionNumbers, MuonState, muon, scale_by_muon
from fnx.optim.piecewise import warmup_constant_schedule
from fnx.optim.scaling import signed_rate
from fnx.optim.squares import scale_by_rms
from fnx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    chain,
    check_transformation,
    extended,
    stateless,
    with_extra_args_support,
)
from fnx.optim.updates import (
    Leaf,
    first_count,
    floating,
    global_norm,
    next_count,
    scaled,
    wide,
)
from fnx.optim.watching import (
    ReduceLROnPlateauState,
    SplitRealAndImaginaryState,
    reduce_on_plateau,
    split_real_and_imaginary,
)

# A line or more for each letter.
# fmt: off
__all__ = [
    "COCOBState",
    "DAdaptAdamWState", "DoGState", "DoWGState",
    "MadgradState", "MechanicState", "MomoAdamState", "MomoState",
    "MuonDimensionNumbers", "MuonState",
    "NormalizeState",
    "ProdigyState",
    "ReduceLROnPlateauState",
    "SAMState", "ScaleByAdemamixState", "ScaleBySimplifiedAdEMAMixState",
    "ScheduleFreeState", "SplitRealAndImaginaryState",
    "acprop", "ademamix", "adopt",
    "cocob",
    "dadapt_adamw", "dog", "dowg",
    "madgrad", "mechanize", "momo", "momo_adam", "muon",
    "normalize",
    "prodigy",
    "reduce_on_plateau",
    "sam", "scale_by_acprop", "scale_by_ademamix", "scale_by_adopt", "scale_by_cocob",
    "scale_by_madgrad", "scale_by_muon", "scale_by_simplified_ademamix",
    "schedule_free", "schedule_free_adamw", "schedule_free_eval_params",
    "schedule_free_sgd", "simplified_ademamix", "split_real_and_imaginary",
]
# fmt: on

_OPEN_UNIT = Range("above 0 and below 1", lambda x: 0 < x < 1)

# ---------------------------------------------------------------- schedule-free


class ScheduleFreeState(NamedTuple):
    """What the average needs: b1, the sum of weights, counts, and the sequence z.

    `step_count` (int32) is one more than the updates made; `max_lr` the greatest rate.
    """

    b1: Array
    weight_sum: Array
    step_count: Array
    max_lr: Array
    base_optimizer_state: OptState
    z: Params


def schedule_free(
    base_optimizer: GradientTransformation,
    learning_rate: ScalarOrSchedule,
    b1: float = 0.9,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """Averaging and interpolation in the place of momentum and a decaying rate.

    The base optimizer (without momentum) steps z; x averages z with weights
    max_rate^weight_lr_power, of the rates so far; gradients are taken at the parameters
    y = (1 - b1) z + b1 x. `update` needs the parameters, which are y;
    `schedule_free_eval_params(state, params)` are x. z is kept in `state_dtype`, by
    default the parameters'. Defazio et al., "The Road Less Scheduled", 2024.

    >>> from fnx.optim import apply_updates, sgd
    >>> optimizer = schedule_free(sgd(0.5), 0.5)
    >>> params = fnp.array([1.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(20):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = apply_updates(params, updates)
    >>> bool(abs(schedule_free_eval_params(state, params)[0]) < 0.2)
    True
    """
    check_transformation("schedule_free", "base_optimizer", base_optimizer)
    _OPEN_UNIT.check("schedule_free", "b1", b1)
    NOT_NEGATIVE.check_or_schedule("schedule_free", "learning_rate", learning_rate)
    NOT_NEGATIVE.check("schedule_free", "weight_lr_power", weight_lr_power)
    dtype = float_dtype("schedule_free", "state_dtype", state_dtype)
    base = with_extra_args_support(base_optimizer)
    rate_at: Any = learning_rate if callable(learning_rate) else lambda _: learning_rate

    def init(params: Params) -> OptState:
        params = floating("schedule_free", "params", params)
        z = tree.map(lambda p: p.astype(dtype or p.dtype), params)
        zero = fnp.zeros((), "float32")
        first = fnp.ones((), "int32")
        start = fnp.asarray(b1, "float32")
        return ScheduleFreeState(start, zero, first, zero, base.init(params), z)

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating("schedule_free", "updates", updates)
        params = beside_updates("schedule_free", "the average", updates, params)
        rate = fnp.asarray(rate_at(state.step_count - 1), "float32")
        most = fnp.maximum(state.max_lr, rate)
        weight: Leaf = most**weight_lr_power
        total = state.weight_sum + weight
        some = total > 0
        part: Leaf = fnp.where(some, weight / fnp.where(some, total, 1), 0)
        moves, base_state = base.update(
            updates, state.base_optimizer_state, params, **extra_args
        )

        def following(y: Leaf, z: Leaf, move: Leaf) -> tuple[Leaf, Leaf]:
            y_wide, z_wide = wide(y), wide(z)
            x = (y_wide - (1 - b1) * z_wide) / b1
            z_new = z_wide + wide(move)
            c = part.astype(x.dtype)
            x_new = (1 - c) * x + c * z_new
            step = (1 - b1) * z_new + b1 * x_new - y_wide
            return step.astype(move.dtype), z_new.astype(z.dtype)

        leaves, treedef = tree.flatten(params)
        rows = [
            following(y, z, move)
            for y, z, move in zip(
                leaves, tree.leaves(state.z), tree.leaves(moves), strict=True
            )
        ]
        given = tree.unflatten(treedef, [step for step, _ in rows])
        z = tree.unflatten(treedef, [z for _, z in rows])
        count = next_count(state.step_count)
        return given, ScheduleFreeState(state.b1, total, count, most, base_state, z)

    return extended(init, update)


def schedule_free_eval_params(state: OptState, params: Params) -> Params:
    """The averaged parameters, for evaluation, of a `schedule_free` state.

    >>> optimizer, params = schedule_free_sgd(0.5), fnp.array([1.0])
    >>> schedule_free_eval_params(optimizer.init(params), params)
    Array([1.], dtype=float32)
    """
    if not isinstance(state, ScheduleFreeState):
        raise ArgumentError(
            "schedule_free_eval_params: state must be that of schedule_free, got one "
            f"of type {type(state).__name__}"
        )

    def average(y: Leaf, z: Leaf) -> Leaf:
        y_wide = wide(y)
        b1: Leaf = fnp.asarray(state.b1, y_wide.dtype)
        return ((y_wide - (1 - b1) * wide(z)) / b1).astype(y.dtype)

    params = floating("schedule_free_eval_params", "params", params)
    return tree.map(average, params, state.z)


def schedule_free_sgd(
    learning_rate: float | Array = 1.0,
    warmup_steps: int | None = None,
    b1: float = 0.9,
    weight_decay: ScalarOrSchedule | None = None,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """`schedule_free` of SGD, with a linear warm-up if `warmup_steps` says so.

    Defazio et al., "The Road Less Scheduled", 2024.

    >>> optimizer, params = schedule_free_sgd(0.5), fnp.array([1.0])
    >>> optimizer.update(params, optimizer.init(params), params)[0]
    Array([-0.5], dtype=float32)
    """
    rate = _warmed_up("schedule_free_sgd", learning_rate, warmup_steps)
    base = chain(
        optional_decay("schedule_free_sgd", weight_decay or 0.0, None), sgd(rate)
    )
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)


def schedule_free_adamw(
    learning_rate: float | Array = 0.0025,
    warmup_steps: int | None = None,
    b1: float = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> GradientTransformationExtraArgs:
    """`schedule_free` of AdamW without its momentum, which b1 takes the place of.

    Defazio et al., "The Road Less Scheduled", 2024.

    >>> optimizer, params = schedule_free_adamw(0.5), fnp.array([4.0])
    >>> optimizer.update(params, optimizer.init(params), params)[0].round(4)
    Array([-0.5], dtype=float32)
    """
    name = "schedule_free_adamw"
    rate = _warmed_up(name, learning_rate, warmup_steps)
    base = chain(
        scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True),
        optional_decay(name, weight_decay, None),
        signed_rate(name, rate),
    )
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)


def _warmed_up(function: str, rate: Any, warmup_steps: int | None) -> Any:
    NOT_NEGATIVE.check(function, "learning_rate", rate)
    if warmup_steps is None:
        return rate
    count = steps(function, "warmup_steps", warmup_steps, least=0)
    return warmup_constant_schedule(0.0, rate, count)


# ---------------------------------------------------------------- sharpness


NormalizeState = EmptyState


def normalize() -> GradientTransformation:
    """Divide all updates by their global norm; zeros stay zeros.

    >>> normalize().update(fnp.array([3.0, 4.0]), ())[0].round(4)
    Array([0.6, 0.8], dtype=float32)
    """

    def normalized(updates: Updates, params: Params) -> Updates:
        updates = floating("normalize", "updates", updates)
        norm = global_norm(updates)
        factor = 1 / fnp.where(norm > 0, norm, 1)
        return tree.map(lambda g: scaled(g, factor), updates)

    return stateless(normalized)


class SAMState(NamedTuple):
    """Adversarial steps since the last true one (int32), both states, and the start.

    `cache` has the parameters that the adversarial steps began at.
    """

    steps_since_sync: Array
    opt_state: OptState
    adv_state: OptState
    cache: Params


def sam(
    optimizer: GradientTransformation,
    adv_optimizer: GradientTransformation,
    sync_period: int = 2,
    reset_state: bool = True,
) -> GradientTransformationExtraArgs:
    """Sharpness-aware minimization: true steps by the gradient at a worse place.

    Of `sync_period` updates all but the last go uphill, by minus the steps of
    `adv_optimizer`; the last goes back to where they began and takes the step of
    `optimizer` for the gradient found there. The adversary starts anew if
    `reset_state`. `update` needs the parameters. Foret et al., "Sharpness-Aware
    Minimization for Efficiently Improving Generalization", 2021.

    >>> from fnx.optim import apply_updates, sgd
    >>> optimizer = sam(sgd(0.5), chain(normalize(), sgd(0.25)))
    >>> params = fnp.array([1.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(2):  # the gradient of x² / 2 is x
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = apply_updates(params, updates)
    ...     print(params)
    [1.25]
    [0.375]
    """
    check_transformation("sam", "optimizer", optimizer)
    check_transformation("sam", "adv_optimizer", adv_optimizer)
    period = steps("sam", "sync_period", sync_period)
    if period < 2:
        raise OptionError("sam: sync_period must be 2 or more, got 1")
    outer = with_extra_args_support(optimizer)
    adversary = with_extra_args_support(adv_optimizer)

    def init(params: Params) -> OptState:
        params = floating("sam", "params", params)
        return SAMState(
            first_count(), outer.init(params), adversary.init(params), params
        )

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating("sam", "updates", updates)
        params = beside_updates("sam", "the way back", updates, params)
        begins = state.steps_since_sync == 0
        origin = tree.map(lambda p, old: fnp.where(begins, p, old), params, state.cache)

        def go_back() -> tuple[Updates, OptState, OptState]:
            moves, opt_state = outer.update(
                updates, state.opt_state, origin, **extra_args
            )
            there = tree.map(_way_back, moves, origin, params)
            start = adversary.init(origin) if reset_state else state.adv_state
            return there, opt_state, start

        def go_uphill() -> tuple[Updates, OptState, OptState]:
            moves, adv_state = adversary.update(
                updates, state.adv_state, params, **extra_args
            )
            uphill = tree.map(lambda u: scaled(u, -1), moves)
            return uphill, state.opt_state, adv_state

        last = state.steps_since_sync == period - 1
        given, opt_state, adv_state = lax.cond(last, go_back, go_uphill)
        since = fnp.where(last, 0, state.steps_since_sync + 1)
        return given, SAMState(since, opt_state, adv_state, origin)

    return extended(init, update)


def _way_back(move: Leaf, origin: Leaf, here: Leaf) -> Leaf:
    return (wide(move) + wide(origin) - wide(here)).astype(move.dtype)
