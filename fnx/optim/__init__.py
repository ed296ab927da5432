"""Layer 10: optimizers as chains of gradient transformations, under optax's names.

A transformation turns gradients into updates; `apply_updates` adds them to the
parameters. Receives trees of floating-point arrays, gives trees of the same structure;
state is plain trees too. What `sgd` and `adam` need is loaded at once, everything else
when it is first used. Read `transformation.py` first.

>>> import fnx.numpy as fnp
>>> optimizer = sgd(0.1)
>>> params = {"w": fnp.array([1.0, 2.0])}
>>> state = optimizer.init(params)
>>> updates, state = optimizer.update({"w": fnp.array([10.0, 0.0])}, state, params)
>>> apply_updates(params, updates)
{'w': Array([0., 2.], dtype=float32)}
"""

import importlib
from typing import TYPE_CHECKING, Any

from fnx.optim.algorithms import (
    adam,
    adamw,
    nadam,
    nadamw,
    sgd,
)
from fnx.optim.averages import (
    bias_correction,
    update_infinity_moment,
    update_moment,
    update_moment_per_elem_norm,
)
from fnx.optim.clipping import (
    adaptive_grad_clip,
    clip,
    clip_by_block_rms,
    clip_by_global_norm,
    per_example_global_norm_clip,
    per_example_layer_norm_clip,
)
from fnx.optim.curves import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    linear_schedule,
    polynomial_schedule,
)
from fnx.optim.decay import (
    AddDecayedWeightsState,
    add_decayed_weights,
)
from fnx.optim.hyperparameters import (
    ScalarOrSchedule,
    Schedule,
)
from fnx.optim.moments import (
    ScaleByAdamState,
    scale_by_adam,
)
from fnx.optim.momentum import (
    TraceState,
    trace,
)
from fnx.optim.piecewise import (
    cosine_onecycle_schedule,
    join_schedules,
    linear_onecycle_schedule,
    piecewise_constant_schedule,
    piecewise_interpolate_schedule,
    sgdr_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule,
)
from fnx.optim.scaling import (
    ScaleByScheduleState,
    scale,
    scale_by_learning_rate,
    scale_by_schedule,
)
from fnx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    chain,
    identity,
    named_chain,
    stateless,
    stateless_with_tree_map,
    with_extra_args_support,
)
from fnx.optim.updates import (
    apply_updates,
    global_norm,
    incremental_update,
    periodic_update,
    safe_increment,
    safe_int32_increment,
    safe_norm,
    safe_root_mean_squares,
    scale_gradient,
)

if TYPE_CHECKING:
    from fnx.optim import contrib, losses, schedules, tree, tree_utils
    from fnx.optim.adam_variants import (
        ScaleByAdanState,
        ScaleByAmsgradState,
        ScaleByBeliefState,
        ScaleByNovogradState,
        adabelief,
        adamax,
        adamaxw,
        adan,
        amsgrad,
        novograd,
        radam,
        scale_by_adamax,
        scale_by_adan,
        scale_by_amsgrad,
        scale_by_belief,
        scale_by_novograd,
        scale_by_radam,
        scale_by_yogi,
        yogi,
    )
    from fnx.optim.factored import (
        FactoredState,
        ScaleBySM3State,
        adafactor,
        scale_by_factored_rms,
        scale_by_sm3,
        sm3,
    )
    from fnx.optim.filters import (
        AddNoiseState,
        NonNegativeParamsState,
        ZeroNansState,
        add_noise,
        centralize,
        keep_params_nonnegative,
        noisy_sgd,
        normalize_by_update_norm,
        zero_nans,
    )
    from fnx.optim.injection import (
        InjectHyperparamsState,
        flatten,
        inject_hyperparams,
        inject_stateful_hyperparams,
    )
    from fnx.optim.linesearch import (
        BacktrackingLinesearchInfo,
        ScaleByBacktrackingLinesearchState,
        ScaleByZoomLinesearchState,
        ZoomLinesearchInfo,
        scale_by_backtracking_linesearch,
        scale_by_zoom_linesearch,
        value_and_grad_from_state,
    )
    from fnx.optim.losses import (
        convex_kl_divergence,
        cosine_distance,
        cosine_similarity,
        ctc_loss,
        generalized_kl_divergence,
        hinge_loss,
        huber_loss,
        kl_divergence,
        l2_loss,
        log_cosh,
        ntxent,
        safe_softmax_cross_entropy,
        sigmoid_binary_cross_entropy,
        sigmoid_focal_loss,
        smooth_labels,
        softmax_cross_entropy,
        softmax_cross_entropy_with_integer_labels,
        squared_error,
    )
    from fnx.optim.masking import (
        MaskedNode,
        MaskedState,
        MultiTransformState,
        PartitionState,
        freeze,
        masked,
        multi_transform,
        partition,
        selective_transform,
        set_to_zero,
    )
    from fnx.optim.optimistic import (
        ScaleByDistanceOverGradientsState,
        ScaleByOptimisticGradientState,
        optimistic_adam_v2,
        optimistic_gradient_descent,
        polyak_sgd,
        scale_by_distance_over_gradients,
        scale_by_optimistic_gradient,
        scale_by_polyak,
    )
    from fnx.optim.quasi_newton import (
        ScaleByLBFGSState,
        lbfgs,
        scale_by_lbfgs,
    )
    from fnx.optim.signs import (
        ScaleByLionState,
        ScaleByRpropState,
        lion,
        rprop,
        scale_by_lion,
        scale_by_rprop,
        scale_by_sign,
        sign_sgd,
        signum,
    )
    from fnx.optim.slow_weights import (
        LookaheadParams,
        LookaheadState,
        lookahead,
    )
    from fnx.optim.smoothing import (
        ApplyEvery,
        EmaState,
        apply_every,
        ema,
    )
    from fnx.optim.squares import (
        ScaleByAdaDeltaState,
        ScaleByRmsState,
        ScaleByRssState,
        ScaleByRStdDevState,
        adadelta,
        adagrad,
        rmsprop,
        scale_by_adadelta,
        scale_by_rms,
        scale_by_rss,
        scale_by_stddev,
    )
    from fnx.optim.stepping import (
        ApplyIfFiniteState,
        ConditionallyMaskState,
        ConditionallyTransformState,
        MultiSteps,
        MultiStepsState,
        ShouldSkipUpdateFunction,
        apply_if_finite,
        conditionally_mask,
        conditionally_transform,
        skip_large_updates,
        skip_not_finite,
    )
    from fnx.optim.trust import (
        fromage,
        lamb,
        lars,
        scale_by_param_block_norm,
        scale_by_param_block_rms,
        scale_by_trust_ratio,
    )

_LATE_MODULES = ("contrib", "losses", "schedules", "tree", "tree_utils")
_LATE_NAMES = {
    "fnx.optim.adam_variants": """ScaleByAdanState ScaleByAmsgradState
        ScaleByBeliefState ScaleByNovogradState adabelief adamax adamaxw adan amsgrad
        novograd radam scale_by_adamax scale_by_adan scale_by_amsgrad scale_by_belief
        scale_by_novograd scale_by_radam scale_by_yogi yogi""",
    "fnx.optim.factored": """FactoredState ScaleBySM3State adafactor
        scale_by_factored_rms scale_by_sm3 sm3""",
    "fnx.optim.filters": """AddNoiseState NonNegativeParamsState ZeroNansState add_noise
        centralize keep_params_nonnegative noisy_sgd normalize_by_update_norm
        zero_nans""",
    "fnx.optim.injection": """InjectHyperparamsState flatten inject_hyperparams
        inject_stateful_hyperparams""",
    "fnx.optim.slow_weights": "LookaheadParams LookaheadState lookahead",
    "fnx.optim.linesearch": """BacktrackingLinesearchInfo
        ScaleByBacktrackingLinesearchState ScaleByZoomLinesearchState
        ZoomLinesearchInfo scale_by_backtracking_linesearch scale_by_zoom_linesearch
        value_and_grad_from_state""",
    "fnx.optim.losses": """convex_kl_divergence cosine_distance cosine_similarity
        ctc_loss generalized_kl_divergence hinge_loss huber_loss kl_divergence l2_loss
        log_cosh ntxent safe_softmax_cross_entropy sigmoid_binary_cross_entropy
        sigmoid_focal_loss smooth_labels softmax_cross_entropy
        softmax_cross_entropy_with_integer_labels squared_error""",
    "fnx.optim.masking": """MaskedNode MaskedState MultiTransformState PartitionState
        freeze masked multi_transform partition selective_transform set_to_zero""",
    "fnx.optim.optimistic": """ScaleByDistanceOverGradientsState
        ScaleByOptimisticGradientState optimistic_adam_v2 optimistic_gradient_descent
        polyak_sgd scale_by_distance_over_gradients scale_by_optimistic_gradient
        scale_by_polyak""",
    "fnx.optim.quasi_newton": "ScaleByLBFGSState lbfgs scale_by_lbfgs",
    "fnx.optim.signs": """ScaleByLionState ScaleByRpropState lion rprop scale_by_lion
        scale_by_rprop scale_by_sign sign_sgd signum""",
    "fnx.optim.smoothing": "ApplyEvery EmaState apply_every ema",
    "fnx.optim.squares": """ScaleByAdaDeltaState ScaleByRStdDevState ScaleByRmsState
        ScaleByRssState adadelta adagrad rmsprop scale_by_adadelta scale_by_rms
        scale_by_rss scale_by_stddev""",
    "fnx.optim.stepping": """ApplyIfFiniteState ConditionallyMaskState
        ConditionallyTransformState MultiSteps MultiStepsState ShouldSkipUpdateFunction
        apply_if_finite conditionally_mask conditionally_transform skip_large_updates
        skip_not_finite""",
    "fnx.optim.trust": """fromage lamb lars scale_by_param_block_norm
        scale_by_param_block_rms scale_by_trust_ratio""",
}
_MODULE_OF = {
    name: home for home, names in _LATE_NAMES.items() for name in names.split()
}

__all__ = [
    "AddDecayedWeightsState",
    "AddNoiseState",
    "ApplyEvery",
    "ApplyIfFiniteState",
    "BacktrackingLinesearchInfo",
    "ConditionallyMaskState",
    "ConditionallyTransformState",
    "EmaState",
    "EmptyState",
    "FactoredState",
    "GradientTransformation",
    "GradientTransformationExtraArgs",
    "InjectHyperparamsState",
    "LookaheadParams",
    "LookaheadState",
    "MaskedNode",
    "MaskedState",
    "MultiSteps",
    "MultiStepsState",
    "MultiTransformState",
    "NonNegativeParamsState",
    "OptState",
    "Params",
    "PartitionState",
    "ScalarOrSchedule",
    "ScaleByAdaDeltaState",
    "ScaleByAdamState",
    "ScaleByAdanState",
    "ScaleByAmsgradState",
    "ScaleByBacktrackingLinesearchState",
    "ScaleByBeliefState",
    "ScaleByDistanceOverGradientsState",
    "ScaleByLBFGSState",
    "ScaleByLionState",
    "ScaleByNovogradState",
    "ScaleByOptimisticGradientState",
    "ScaleByRStdDevState",
    "ScaleByRmsState",
    "ScaleByRpropState",
    "ScaleByRssState",
    "ScaleBySM3State",
    "ScaleByScheduleState",
    "ScaleByZoomLinesearchState",
    "Schedule",
    "ShouldSkipUpdateFunction",
    "TraceState",
    "Updates",
    "ZeroNansState",
    "ZoomLinesearchInfo",
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamaxw",
    "adamw",
    "adan",
    "adaptive_grad_clip",
    "add_decayed_weights",
    "add_noise",
    "amsgrad",
    "apply_every",
    "apply_if_finite",
    "apply_updates",
    "bias_correction",
    "centralize",
    "chain",
    "clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "conditionally_mask",
    "conditionally_transform",
    "constant_schedule",
    "contrib",
    "convex_kl_divergence",
    "cosine_decay_schedule",
    "cosine_distance",
    "cosine_onecycle_schedule",
    "cosine_similarity",
    "ctc_loss",
    "ema",
    "exponential_decay",
    "flatten",
    "freeze",
    "fromage",
    "generalized_kl_divergence",
    "global_norm",
    "hinge_loss",
    "huber_loss",
    "identity",
    "incremental_update",
    "inject_hyperparams",
    "inject_stateful_hyperparams",
    "join_schedules",
    "keep_params_nonnegative",
    "kl_divergence",
    "l2_loss",
    "lamb",
    "lars",
    "lbfgs",
    "linear_onecycle_schedule",
    "linear_schedule",
    "lion",
    "log_cosh",
    "lookahead",
    "losses",
    "masked",
    "multi_transform",
    "nadam",
    "nadamw",
    "named_chain",
    "noisy_sgd",
    "normalize_by_update_norm",
    "novograd",
    "ntxent",
    "optimistic_adam_v2",
    "optimistic_gradient_descent",
    "partition",
    "per_example_global_norm_clip",
    "per_example_layer_norm_clip",
    "periodic_update",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polyak_sgd",
    "polynomial_schedule",
    "radam",
    "rmsprop",
    "rprop",
    "safe_increment",
    "safe_int32_increment",
    "safe_norm",
    "safe_root_mean_squares",
    "safe_softmax_cross_entropy",
    "scale",
    "scale_by_adadelta",
    "scale_by_adam",
    "scale_by_adamax",
    "scale_by_adan",
    "scale_by_amsgrad",
    "scale_by_backtracking_linesearch",
    "scale_by_belief",
    "scale_by_distance_over_gradients",
    "scale_by_factored_rms",
    "scale_by_lbfgs",
    "scale_by_learning_rate",
    "scale_by_lion",
    "scale_by_novograd",
    "scale_by_optimistic_gradient",
    "scale_by_param_block_norm",
    "scale_by_param_block_rms",
    "scale_by_polyak",
    "scale_by_radam",
    "scale_by_rms",
    "scale_by_rprop",
    "scale_by_rss",
    "scale_by_schedule",
    "scale_by_sign",
    "scale_by_sm3",
    "scale_by_stddev",
    "scale_by_trust_ratio",
    "scale_by_yogi",
    "scale_by_zoom_linesearch",
    "scale_gradient",
    "schedules",
    "selective_transform",
    "set_to_zero",
    "sgd",
    "sgdr_schedule",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "sign_sgd",
    "signum",
    "skip_large_updates",
    "skip_not_finite",
    "sm3",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "squared_error",
    "stateless",
    "stateless_with_tree_map",
    "trace",
    "tree",
    "tree_utils",
    "update_infinity_moment",
    "update_moment",
    "update_moment_per_elem_norm",
    "value_and_grad_from_state",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
    "with_extra_args_support",
    "yogi",
    "zero_nans",
]


def __getattr__(name: str) -> Any:
    if name in _LATE_MODULES:
        return importlib.import_module(f"fnx.optim.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fnx.optim' has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = found  # so that the next use does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
