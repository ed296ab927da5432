"""Adam's rescaling by running averages of gradients and of their squares.

Receives updates, gives updates of size about 1. Next on the walk: `decay.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.errors import OptionError
from fnx.optim.averages import average, correction, zero_squares, zeros
from fnx.optim.hyperparameters import DECAY, NOT_NEGATIVE, float_dtype
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.transformation import GradientTransformation, Updates
from fnx.optim.updates import Leaf, next_count, squared


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
    check_adam(function, b1, b2, eps, eps_root)
    mu_dtype = float_dtype(function, "mu_dtype", mu_dtype)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p, mu_dtype), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        g, count = here.g, here.count
        mu, nu = average(mu, g, b1), average(nu, squared(g), b2)
        mean = corrected_mean(mu, g, b1, count, nu.dtype, nesterov)
        root: Leaf = fnp.sqrt(nu / correction(b2, count, nu.dtype) + eps_root)
        return mean / (root + eps), mu, nu

    return leafwise(function, ScaleByAdamState, start, rule)


def corrected_mean(
    mu: Leaf, g: Leaf, b1: Any, count: Leaf, dtype: Any, nesterov: Any
) -> Leaf:
    """The average of updates without its start at 0; or what the next one will be."""
    mean = mu / correction(b1, count, dtype)
    if nesterov:
        ahead = mu / correction(b1, next_count(count), dtype)
        mean = average(ahead, g / correction(b1, count, dtype), b1)
    return mean


def check_adam(function: str, b1: Any, b2: Any, eps: Any, eps_root: Any) -> None:
    """Raise unless the two decays and the two small numbers are in their ranges."""
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
