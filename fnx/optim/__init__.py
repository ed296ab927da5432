"""Layer 10: optimizers as chains of gradient transformations, under optax's names.

A transformation turns gradients into updates; `apply_updates` adds them to the
parameters. Receives trees of floating-point arrays, gives trees of the same structure;
state is plain trees too. Read `transformation.py` first, `algorithms.py` last.

>>> import fnx.numpy as fnp
>>> optimizer = sgd(0.1)
>>> params = {"w": fnp.array([1.0, 2.0])}
>>> state = optimizer.init(params)
>>> updates, state = optimizer.update({"w": fnp.array([10.0, 0.0])}, state, params)
>>> apply_updates(params, updates)
{'w': Array([0., 2.], dtype=float32)}
"""

from fnx.optim.algorithms import adam, adamw, sgd
from fnx.optim.clipping import clip, clip_by_global_norm
from fnx.optim.decay import AddDecayedWeightsState, add_decayed_weights
from fnx.optim.hyperparameters import ScalarOrSchedule, Schedule
from fnx.optim.moments import ScaleByAdamState, scale_by_adam
from fnx.optim.momentum import TraceState, trace
from fnx.optim.scaling import (
    ScaleByScheduleState,
    scale,
    scale_by_learning_rate,
    scale_by_schedule,
)
from fnx.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    join_schedules,
    linear_schedule,
    warmup_cosine_decay_schedule,
)
from fnx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    OptState,
    Params,
    Updates,
    chain,
    identity,
    stateless,
)
from fnx.optim.updates import apply_updates, global_norm

__all__ = [
    # what a transformation is
    "EmptyState",
    "GradientTransformation",
    "OptState",
    "Params",
    "ScalarOrSchedule",
    "Schedule",
    "Updates",
    "apply_updates",
    "chain",
    "identity",
    "stateless",
    # transformations
    "AddDecayedWeightsState",
    "ScaleByAdamState",
    "ScaleByScheduleState",
    "TraceState",
    "add_decayed_weights",
    "clip",
    "clip_by_global_norm",
    "global_norm",
    "scale",
    "scale_by_adam",
    "scale_by_learning_rate",
    "scale_by_schedule",
    "trace",
    # schedules
    "constant_schedule",
    "cosine_decay_schedule",
    "join_schedules",
    "linear_schedule",
    "warmup_cosine_decay_schedule",
    # algorithms
    "adam",
    "adamw",
    "sgd",
]
