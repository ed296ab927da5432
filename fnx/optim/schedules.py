"""Schedules, under the names of `optax.schedules`: from step counts to hyperparameters.

The count starts at 0 everywhere. The walk goes through `curves.py` and `piecewise.py`.

>>> [float(linear_schedule(0.0, 1.0, 4)(count)) for count in (0, 2, 9)]
[0.0, 0.5, 1.0]
"""

from fnx.optim.curves import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    linear_schedule,
    polynomial_schedule,
)
from fnx.optim.hyperparameters import Schedule
from fnx.optim.injection import (
    InjectHyperparamsState,
    inject_hyperparams,
    inject_stateful_hyperparams,
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

__all__ = [
    "InjectHyperparamsState",
    "Schedule",
    "constant_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "exponential_decay",
    "inject_hyperparams",
    "inject_stateful_hyperparams",
    "join_schedules",
    "linear_onecycle_schedule",
    "linear_schedule",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial_schedule",
    "sgdr_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]
