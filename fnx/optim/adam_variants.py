"""Kin of Adam: AMSGrad, Adamax, AdaBelief, Yogi, RAdam, Adan, NovoGrad.

Each scaling stands beside the optimizer that is made of it. Receives hyperparameters,
gives transformations. Next on the walk: `signs.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.optim.averages import (
    average,
    correction,
    square_dtype,
    zero_squares,
    zeros,
)
from fnx.optim.decay import optional_decay, weight_decaying
from fnx.optim.hyperparameters import (
    DECAY,
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
    float_dtype,
)
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.moments import ScaleByAdamState, check_adam, corrected_mean
from fnx.optim.scaling import signed_rate
from fnx.optim.transformation import GradientTransformation, Updates, chain
from fnx.optim.updates import Leaf, squared

# ---------------------------------------------------------------- AMSGrad


class ScaleByAmsgradState(NamedTuple):
    """As `ScaleByAdamState`, with the largest average of squares so far."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates
    nu: Updates
    nu_max: Updates


def scale_by_amsgrad(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformation:
    """As `scale_by_adam`, dividing by the largest average of squares so far.

    The two flags say which averages are corrected for their start at 0. Reddi, Kale
    and Kumar, "On the Convergence of Adam and Beyond", 2018.

    >>> scaling = scale_by_amsgrad()
    >>> scaling.update(fnp.array([5.0, 0.0]), scaling.init(fnp.zeros(2)))[0].round(4)
    Array([1., 0.], dtype=float32)
    """
    flags = bias_correction_mu, bias_correction_nu
    return _amsgrad("scale_by_amsgrad", b1, b2, eps, eps_root, mu_dtype, *flags)


def amsgrad(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformation:
    """AMSGrad: Adam whose divisor never shrinks.

    Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond", 2018.

    >>> optimizer = amsgrad(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-0.1], dtype=float32)
    """
    flags = bias_correction_mu, bias_correction_nu
    return chain(
        _amsgrad("amsgrad", b1, b2, eps, eps_root, mu_dtype, *flags),
        signed_rate("amsgrad", learning_rate),
    )


def _amsgrad(
    function: str,
    b1: Any,
    b2: Any,
    eps: Any,
    eps_root: Any,
    mu_dtype: Any,
    corrects_mu: bool,
    corrects_nu: bool,
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    mu_dtype = float_dtype(function, "mu_dtype", mu_dtype)

    def start(p: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        return zeros(p, mu_dtype), zero_squares(p), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf, most: Leaf) -> tuple[Leaf, ...]:
        mu, nu = average(mu, here.g, b1), average(nu, squared(here.g), b2)
        mean = mu / correction(b1, here.count, nu.dtype) if corrects_mu else mu
        now = nu / correction(b2, here.count, nu.dtype) if corrects_nu else nu
        most = fnp.maximum(most, now)
        return mean / (fnp.sqrt(most + eps_root) + eps), mu, nu, most

    return leafwise(function, ScaleByAmsgradState, start, rule)


# ---------------------------------------------------------------- Adamax


def scale_by_adamax(
    b1: float | Array = 0.9, b2: float | Array = 0.999, eps: float | Array = 1e-8
) -> GradientTransformation:
    """As `scale_by_adam`, dividing by a decaying maximum: nu ← max(b2 nu, |g| + eps).

    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, section 7.1.

    >>> scaling = scale_by_adamax()
    >>> scaling.update(fnp.array([5.0, 0.0]), scaling.init(fnp.zeros(2)))[0].round(4)
    Array([1., 0.], dtype=float32)
    """
    return _adamax("scale_by_adamax", b1, b2, eps)


def adamax(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
) -> GradientTransformation:
    """Adamax: Adam with the largest recent gradient in the place of their average.

    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, section 7.1.

    >>> optimizer = adamax(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-0.1], dtype=float32)
    """
    return chain(_adamax("adamax", b1, b2, eps), signed_rate("adamax", learning_rate))


def adamaxw(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
) -> GradientTransformation:
    """Adamax with decoupled weight decay, as `adamw`; `update` needs the parameters.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.

    >>> optimizer = adamaxw(0.1, weight_decay=1.0)
    >>> params = fnp.array([2.0])
    >>> optimizer.update(params, optimizer.init(params), params)[0].round(4)
    Array([-0.3], dtype=float32)
    """
    return chain(
        _adamax("adamaxw", b1, b2, eps),
        weight_decaying("adamaxw", weight_decay, mask),
        signed_rate("adamaxw", learning_rate),
    )


def _adamax(function: str, b1: Any, b2: Any, eps: Any) -> GradientTransformation:
    DECAY.check(function, "b1", b1)
    DECAY.check(function, "b2", b2)
    POSITIVE.check(function, "eps", eps)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        mu, nu = average(mu, here.g, b1), fnp.maximum(abs(here.g) + eps, b2 * nu)
        return mu / correction(b1, here.count, nu.dtype) / nu, mu, nu

    return leafwise(function, ScaleByAdamState, start, rule)


# ---------------------------------------------------------------- AdaBelief


class ScaleByBeliefState(NamedTuple):
    """As `ScaleByAdamState`; `nu` averages the squared distance from `mu`."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates
    nu: Updates


def scale_by_belief(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-16,
    eps_root: float | Array = 1e-16,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """As `scale_by_adam`, dividing by how far gradients are from their average.

    nu ← b2 nu + (1 - b2) (g - mu)² + eps_root, with the new mu. Zhuang et al.,
    "AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed Gradients", 2020.

    >>> scaling = scale_by_belief()
    >>> scaling.update(fnp.array([5.0, 0.0]), scaling.init(fnp.zeros(2)))[0].round(4)
    Array([1.1111, 0.    ], dtype=float32)
    """
    return _belief("scale_by_belief", b1, b2, eps, eps_root, nesterov)


def adabelief(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-16,
    eps_root: float | Array = 1e-16,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """AdaBelief: long steps where gradients are as foreseen, short ones elsewhere.

    Zhuang et al., "AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed
    Gradients", 2020.

    >>> optimizer = adabelief(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-0.1111], dtype=float32)
    """
    return chain(
        _belief("adabelief", b1, b2, eps, eps_root, nesterov),
        signed_rate("adabelief", learning_rate),
    )


def _belief(
    function: str, b1: Any, b2: Any, eps: Any, eps_root: Any, nesterov: bool
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        g, count = here.g, here.count
        mu = average(mu, g, b1)
        nu = average(nu, squared(g - mu), b2) + eps_root
        mean = corrected_mean(mu, g, b1, count, nu.dtype, nesterov)
        root: Leaf = fnp.sqrt(nu / correction(b2, count, nu.dtype))
        return mean / (root + eps), mu, nu

    return leafwise(function, ScaleByBeliefState, start, rule)


# ---------------------------------------------------------------- Yogi


def scale_by_yogi(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-3,
    eps_root: float | Array = 0.0,
    initial_accumulator_value: float = 1e-6,
) -> GradientTransformation:
    """As `scale_by_adam`, with an average of squares that moves by (1 - b2) g².

    nu ← nu - (1 - b2) sign(nu - g²) g²; both averages start at
    `initial_accumulator_value`. Zaheer et al., "Adaptive Methods for Nonconvex
    Optimization", 2018.

    >>> scaling = scale_by_yogi()
    >>> scaling.update(fnp.array([5.0]), scaling.init(fnp.zeros(1)))[0].round(3)
    Array([1.], dtype=float32)
    """
    return _yogi("scale_by_yogi", b1, b2, eps, eps_root, initial_accumulator_value)


def yogi(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-3,
) -> GradientTransformation:
    """Yogi: Adam whose divisor changes slowly, however small the gradients become.

    Zaheer et al., "Adaptive Methods for Nonconvex Optimization", 2018.

    >>> optimizer = yogi(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0].round(3)
    Array([-0.1], dtype=float32)
    """
    return chain(
        _yogi("yogi", b1, b2, eps, 0.0, 1e-6), signed_rate("yogi", learning_rate)
    )


def _yogi(
    function: str, b1: Any, b2: Any, eps: Any, eps_root: Any, initial: Any
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    NOT_NEGATIVE.check(function, "initial_accumulator_value", initial)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return fnp.full(p.shape, initial, p.dtype), zero_squares(p, initial)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        mu, square = average(mu, here.g, b1), squared(here.g)
        nu = nu - (1 - b2) * fnp.sign(nu - square) * square
        root: Leaf = fnp.sqrt(nu / correction(b2, here.count, nu.dtype) + eps_root)
        return mu / correction(b1, here.count, nu.dtype) / (root + eps), mu, nu

    return leafwise(function, ScaleByAdamState, start, rule)


# ---------------------------------------------------------------- RAdam


def scale_by_radam(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    threshold: float | Array = 5.0,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """As `scale_by_adam`, once the average of squares is worth enough samples.

    With rho = rho_inf - 2 t b2ᵗ / (1 - b2ᵗ) and rho_inf = 2 / (1 - b2) - 1: where
    rho ≥ `threshold` Adam's update is multiplied by the root of
    (rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho); before that the
    average gradient is the update. Liu et al., "On the Variance of the Adaptive
    Learning Rate and Beyond", 2020.

    >>> scaling = scale_by_radam()
    >>> scaling.update(fnp.array([5.0]), scaling.init(fnp.zeros(1)))[0]
    Array([5.], dtype=float32)
    """
    return _radam("scale_by_radam", b1, b2, eps, eps_root, threshold, nesterov)


def radam(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    threshold: float | Array = 5.0,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """RAdam: momentum at first, Adam as its average of squares becomes reliable.

    Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020.

    >>> optimizer = radam(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        _radam("radam", b1, b2, eps, eps_root, threshold, nesterov),
        signed_rate("radam", learning_rate),
    )


def _radam(
    function: str,
    b1: Any,
    b2: Any,
    eps: Any,
    eps_root: Any,
    threshold: Any,
    nesterov: bool,
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    POSITIVE.check(function, "threshold", threshold)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        g, count = here.g, here.count
        mu, nu = average(mu, g, b1), average(nu, squared(g), b2)
        mean = corrected_mean(mu, g, b1, count, nu.dtype, nesterov)
        root: Leaf = fnp.sqrt(nu / correction(b2, count, nu.dtype) + eps_root)
        rectified, factor = _rectifier(b2, count, threshold)
        adaptive = mean * factor.astype(nu.dtype) / (root + eps)
        return fnp.where(rectified, adaptive, mean), mu, nu

    return leafwise(function, ScaleByAdamState, start, rule)


def _rectifier(b2: Any, count: Leaf, threshold: Any) -> tuple[Leaf, Leaf]:
    """Whether Adam's update is to be trusted, and the factor of it.

    In float64, since rho is a small difference of numbers near 2 / (1 - b2).
    """
    times: Leaf = count.astype("float64")
    b2 = fnp.asarray(b2, "float64")
    limit: Leaf = 2 / (1 - b2) - 1
    rest = correction(b2, count, "float64")
    rho: Leaf = limit - 2 * times * (1 - rest) / rest
    trusted = rho >= threshold
    safe = fnp.where(trusted, rho, limit)
    ratio = (safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe)
    return trusted, fnp.sqrt(ratio)


# ---------------------------------------------------------------- Adan


class ScaleByAdanState(NamedTuple):
    """Averages of gradients, of their differences and of squares; the last gradient."""

    m: Updates
    v: Updates
    n: Updates
    g: Updates
    count: Array  # type: ignore[assignment]  # tuple.count is not missed


def scale_by_adan(
    b1: float | Array = 0.98,
    b2: float | Array = 0.92,
    b3: float | Array = 0.99,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
) -> GradientTransformation:
    """Rescale by averages of gradients, of their differences, and of both squared.

    With d the difference from the last gradient (0 at first): m, v and n average g, d
    and (g + b2 d)² with decays b1, b2 and b3, each corrected for its start at 0; the
    update is (m + b2 v) / (√(n + eps_root) + eps). The decays are one minus the paper's
    β. Xie et al., "Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing
    Deep Models", 2022.

    >>> scaling = scale_by_adan()
    >>> scaling.update(fnp.array([5.0]), scaling.init(fnp.zeros(1)))[0].round(4)
    Array([1.], dtype=float32)
    """
    return _adan("scale_by_adan", b1, b2, b3, eps, eps_root)


def adan(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.98,
    b2: float | Array = 0.92,
    b3: float | Array = 0.99,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> GradientTransformation:
    """Adan: Adam with a Nesterov momentum made of the differences of gradients.

    Xie et al., "Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep
    Models", 2022.

    >>> optimizer = adan(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-0.1], dtype=float32)
    """
    return chain(
        _adan("adan", b1, b2, b3, eps, eps_root),
        optional_decay("adan", weight_decay, mask),
        signed_rate("adan", learning_rate),
    )


def _adan(
    function: str, b1: Any, b2: Any, b3: Any, eps: Any, eps_root: Any
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    DECAY.check(function, "b3", b3)

    def start(p: Leaf) -> tuple[Leaf, Leaf, Leaf, Leaf]:
        return zeros(p), zeros(p), zero_squares(p), zeros(p)

    def rule(here: Here, m: Leaf, v: Leaf, n: Leaf, last: Leaf) -> tuple[Leaf, ...]:
        g, count, dtype = here.g, here.count, n.dtype
        change = fnp.where(count == 1, 0, g - last)
        m, v = average(m, g, b1), average(v, change, b2)
        n = average(n, squared(g + b2 * change), b3)
        mean = m / correction(b1, count, dtype)
        mean = mean + b2 * v / correction(b2, count, dtype)
        root: Leaf = fnp.sqrt(n / correction(b3, count, dtype) + eps_root)
        return mean / (root + eps), m, v, n, g

    return leafwise(function, ScaleByAdanState, start, rule)


# ---------------------------------------------------------------- NovoGrad


class ScaleByNovogradState(NamedTuple):
    """As `ScaleByAdamState`; `nu` has one number for each leaf."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates
    nu: Updates


def scale_by_novograd(
    b1: float | Array = 0.9,
    b2: float | Array = 0.25,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    weight_decay: float | Array = 0.0,
    mu_dtype: Any = None,
) -> GradientTransformation:
    """Divide each leaf by the average of its norm, and sum: one number a layer.

    nu ← b2 nu + (1 - b2) ‖g‖² (at first ‖g‖²), then
    mu ← b1 mu + g / (√(nu + eps_root) + eps) + weight_decay · p, which is the update.
    `update` needs the parameters if `weight_decay` is not 0. Ginsburg et al.,
    "Stochastic Gradient Methods with Layer-wise Adaptive Moments for Training of Deep
    Networks", 2019.

    >>> scaling = scale_by_novograd()
    >>> scaling.update(fnp.array([3.0, 4.0]), scaling.init(fnp.zeros(2)))[0].round(4)
    Array([0.6, 0.8], dtype=float32)
    """
    return _novograd("scale_by_novograd", b1, b2, eps, eps_root, weight_decay, mu_dtype)


def novograd(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.25,
    eps: float | Array = 1e-6,
    eps_root: float | Array = 0.0,
    weight_decay: float | Array = 0.0,
) -> GradientTransformation:
    """NovoGrad: momentum over gradients that each layer's norm has normalised.

    Ginsburg et al., "Stochastic Gradient Methods with Layer-wise Adaptive Moments for
    Training of Deep Networks", 2019.

    >>> optimizer = novograd(0.1)
    >>> optimizer.update(fnp.array([3.0, 4.0]), optimizer.init(fnp.ones(2)))[0].round(4)
    Array([-0.06, -0.08], dtype=float32)
    """
    return chain(
        _novograd("novograd", b1, b2, eps, eps_root, weight_decay, None),
        signed_rate("novograd", learning_rate),
    )


def _novograd(
    function: str,
    b1: Any,
    b2: Any,
    eps: Any,
    eps_root: Any,
    weight_decay: Any,
    mu_dtype: Any,
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    NOT_NEGATIVE.check(function, "weight_decay", weight_decay)
    mu_dtype = float_dtype(function, "mu_dtype", mu_dtype)
    decays = not (isinstance(weight_decay, int | float) and weight_decay == 0)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p, mu_dtype), fnp.zeros((), square_dtype(p.dtype))

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        size = fnp.sum(squared(here.g))
        nu = fnp.where(here.count == 1, size, average(nu, size, b2))
        step = here.g / (fnp.sqrt(nu + eps_root) + eps)
        if decays:
            step = step + weight_decay * here.p
        mu = b1 * mu + step
        return mu, mu, nu

    needs = "weight decay" if decays else ""
    return leafwise(function, ScaleByNovogradState, start, rule, needs_params=needs)
