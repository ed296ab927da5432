"""Adam's rescaling by running averages of gradients and of their squares.

Receives updates, gives updates of size about 1. Next on the walk: `decay.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import dtypes, tree
from fnx.core.array import Array
from fnx.errors import OptionError
from fnx.optim.hyperparameters import DECAY, NOT_NEGATIVE, float_dtype
from fnx.optim.transformation import (
    GradientTransformation,
    OptState,
    Params,
    Updates,
    transformation,
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


class ScaleByAdamState(NamedTuple):
    """The number of updates made (int32), and the averages: trees like the parameters.

    `mu` averages the updates, `nu` their squares.
    """

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates
    nu: Updates


def scale_by_adam(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Rescale updates as Adam does; a zero gradient from the start on gives zero.

    mu ← b1 mu + (1 - b1) g and nu ← b2 nu + (1 - b2) |g|², then, at the t-th update,
    (mu / (1 - b1ᵗ)) / (√(nu / (1 - b2ᵗ) + eps_root) + eps). With `nesterov`, the
    numerator is b1 mu / (1 - b1ᵗ⁺¹) + (1 - b1) g / (1 - b1ᵗ).

    `mu` is kept in `mu_dtype`, by default the parameter's dtype. `nu` is kept in
    float32 for 16-bit parameters (optax keeps it in 16 bits, where steps of 1 - b2 are
    lost in the rounding).
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015; Dozat,
    "Incorporating Nesterov Momentum into Adam", 2016.

    >>> adam = scale_by_adam()
    >>> state = adam.init(fnp.zeros(3))
    >>> adam.update(fnp.array([5.0, -0.01, 0.0]), state)[0].round(4)
    Array([ 1., -1.,  0.], dtype=float32)
    """
    return adam_scaling("scale_by_adam", b1, b2, eps, eps_root, mu_dtype, nesterov)


def adam_scaling(
    function: str,
    b1: Any,
    b2: Any,
    eps: Any,
    eps_root: Any,
    mu_dtype: Any,
    nesterov: Any,
) -> GradientTransformation:
    """`scale_by_adam` on behalf of an algorithm that its errors name."""
    _check(function, b1, b2, eps, eps_root)
    mu_dtype = float_dtype(function, "mu_dtype", mu_dtype)

    def init(params: Params) -> OptState:
        params = floating(function, "params", params)
        mu = tree.map(lambda p: fnp.zeros(p.shape, mu_dtype or p.dtype), params)
        nu = tree.map(lambda p: fnp.zeros(p.shape, _square_dtype(p.dtype)), params)
        return ScaleByAdamState(first_count(), mu, nu)

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        check_alike(function, "updates", updates, "state", state.mu)
        count = next_count(state.count)
        gradients = tree.map(wide, updates)
        mu = tree.map(lambda m, g: _average(wide(m), g, b1), state.mu, gradients)
        nu = tree.map(lambda v, g: _average(v, squared(g), b2), state.nu, gradients)

        def step(g: Leaf, m: Leaf, v: Leaf) -> Leaf:
            average = m / _correction(b1, count, v.dtype)
            if nesterov:
                ahead = m / _correction(b1, next_count(count), v.dtype)
                average = _average(ahead, g / _correction(b1, count, v.dtype), b1)
            root: Leaf = fnp.sqrt(v / _correction(b2, count, v.dtype) + eps_root)
            return average / (root + eps)

        steps = tree.map(step, gradients, mu, nu)
        new = ScaleByAdamState(count, _cast(mu, state.mu), _cast(nu, state.nu))
        return _cast(steps, updates), new

    return transformation(init, update)


def _check(function: str, b1: Any, b2: Any, eps: Any, eps_root: Any) -> None:
    DECAY.check(function, "b1", b1)
    DECAY.check(function, "b2", b2)
    NOT_NEGATIVE.check(function, "eps", eps)
    NOT_NEGATIVE.check(function, "eps_root", eps_root)
    if _is_zero(eps) and _is_zero(eps_root):
        raise OptionError(
            f"{function}: eps and eps_root are both 0, so a zero gradient would be "
            "divided by zero; make one of them positive"
        )


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def _average(old: Leaf, new: Leaf, decay: Any) -> Leaf:
    return decay * old + (1 - decay) * new


def _correction(decay: Any, count: Leaf, dtype: Any) -> Leaf:
    """1 - decay**count, to full precision also where decay is close to 1."""
    known = isinstance(decay, int | float)
    if known and decay == 0:
        return fnp.ones((), dtype)
    log = math.log(decay) if known else fnp.log(decay)
    power: Leaf = fnp.expm1(count.astype(dtype) * log)
    return -power


def _square_dtype(dtype: Any) -> Any:
    return dtypes.real_dtype(dtypes.compute_dtype(dtype))


def _cast(values: Any, like: Any) -> Any:
    return tree.map(lambda x, y: x.astype(y.dtype), values, like)
