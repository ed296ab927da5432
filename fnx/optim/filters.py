"""Small changes to updates: noise, centring, zeros for NaN, non-negative parameters.

Receives updates, gives updates. Next on the walk: `masking.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import random, tree
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.optim.hyperparameters import (
    FINITE,
    NOT_NEGATIVE,
    ScalarOrSchedule,
)
from fnx.optim.leafwise import beside_updates
from fnx.optim.scaling import signed_rate
from fnx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    OptState,
    Params,
    Updates,
    chain,
    stateless,
    transformation,
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

# ---------------------------------------------------------------- noise


class AddNoiseState(NamedTuple):
    """The number of updates made (int32) and the key of the next noise."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    rng_key: Array


def add_noise(
    eta: float | Array,
    gamma: float | Array,
    key: Any = None,
    *,
    seed: int | None = None,
) -> GradientTransformation:
    """Add normal noise of variance eta / (1 + t)^gamma, t the updates before this one.

    `key` is a key of `fnx.random` or an integer to make one from; `seed` is an older
    name of the latter. Neelakantan et al., "Adding Gradient Noise Improves Learning for
    Very Deep Networks", 2015.

    >>> noise = add_noise(eta=0.01, gamma=0.55, key=0)
    >>> updates, _ = noise.update(fnp.zeros(1000), noise.init(fnp.zeros(1000)))
    >>> bool(abs(updates.std() - 0.1) < 0.01)
    True
    """
    return _noise("add_noise", eta, gamma, key, seed)


def noisy_sgd(
    learning_rate: ScalarOrSchedule,
    eta: float | Array = 0.01,
    gamma: float | Array = 0.55,
    key: Any = None,
    *,
    seed: int | None = None,
) -> GradientTransformation:
    """SGD with the noise of `add_noise` on the gradients: p ← p - rate · (g + noise).

    Neelakantan et al., "Adding Gradient Noise Improves Learning for Very Deep
    Networks", 2015.

    >>> optimizer = noisy_sgd(0.5, eta=0.0, key=0)
    >>> optimizer.update(fnp.ones(1), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        _noise("noisy_sgd", eta, gamma, key, seed),
        signed_rate("noisy_sgd", learning_rate),
    )


def _noise(
    function: str, eta: Any, gamma: Any, key: Any, seed: int | None
) -> GradientTransformation:
    NOT_NEGATIVE.check(function, "eta", eta)
    FINITE.check(function, "gamma", gamma)
    if (key is None) == (seed is None):
        raise ArgumentError(
            f"{function}: give the key of the noise, such as key=fnx.random.key(0)"
            + ("" if key is None else "; or a seed, not both")
        )
    start = seed if key is None else key
    first: Any = random.key(start) if isinstance(start, int) else start

    def init(params: Params) -> OptState:
        return AddNoiseState(first_count(), first)

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        leaves, treedef = tree.flatten(floating(function, "updates", updates))
        count = next_count(state.count)
        deviation = fnp.sqrt(eta / count.astype("float32") ** gamma)
        following, drawn = random.split(state.rng_key)
        keys = random.split(drawn, len(leaves))
        noisy = [
            _with_noise(g, deviation, one) for g, one in zip(leaves, keys, strict=True)
        ]
        return tree.unflatten(treedef, noisy), AddNoiseState(count, following)

    return transformation(init, update)


def _with_noise(g: Leaf, deviation: Leaf, key: Leaf) -> Leaf:
    wider = wide(g)
    noise = random.normal(key, g.shape, wider.dtype)
    return (wider + deviation.astype(wider.dtype) * noise).astype(g.dtype)


# ---------------------------------------------------------------- leaves


def centralize() -> GradientTransformation:
    """Subtract the mean over all axes but the first, from leaves of two axes or more.

    Yong et al., "Gradient Centralization: A New Optimization Technique for Deep Neural
    Networks", 2020.

    >>> centralize().update(fnp.array([[1.0, 3.0], [5.0, 5.0]]), ())[0]
    Array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """

    def centred(g: Leaf) -> Leaf:
        if g.ndim < 2:
            return g
        mean = fnp.mean(wide(g), axis=tuple(range(1, g.ndim)), keepdims=True)
        return (wide(g) - mean).astype(g.dtype)

    def centre(updates: Updates, params: Params) -> Updates:
        return tree.map(centred, floating("centralize", "updates", updates))

    return stateless(centre)


def normalize_by_update_norm(
    scale_factor: float | Array = 1.0, eps: float | Array = 1e-6
) -> GradientTransformation:
    """Divide all updates by their global norm plus `eps`, times `scale_factor`.

    >>> normalize_by_update_norm(eps=0).update(fnp.array([3.0, 4.0]), ())[0]
    Array([0.6, 0.8], dtype=float32)
    """
    name = "normalize_by_update_norm"
    FINITE.check(name, "scale_factor", scale_factor)
    NOT_NEGATIVE.check(name, "eps", eps)

    def normalize(updates: Updates, params: Params) -> Updates:
        updates = floating(name, "updates", updates)
        norm = global_norm(updates)
        some = norm > 0  # zeros stay zeros, whatever eps is
        factor = scale_factor / (fnp.where(some, norm, 1) + eps)
        return tree.map(lambda g: scaled(g, factor), updates)

    return stateless(normalize)


class ZeroNansState(NamedTuple):
    """For each leaf, whether the latest update had a NaN."""

    found_nan: Updates


def zero_nans() -> GradientTransformation:
    """Replace NaN by 0; the state says which leaves had one in the latest update.

    >>> clean = zero_nans()
    >>> grads = fnp.array([1.0, float("nan")])
    >>> clean.update(grads, clean.init(grads))
    (Array([1., 0.], dtype=float32), ZeroNansState(found_nan=Array(True, dtype=bool)))
    """

    def init(params: Params) -> OptState:
        return ZeroNansState(tree.map(lambda p: fnp.zeros((), "bool"), params))

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating("zero_nans", "updates", updates)
        found = tree.map(lambda g: fnp.any(fnp.isnan(g)), updates)
        clean = tree.map(
            lambda g: fnp.where(fnp.isnan(g), fnp.zeros((), g.dtype), g), updates
        )
        return clean, ZeroNansState(found)

    return transformation(init, update)


NonNegativeParamsState = EmptyState


def keep_params_nonnegative() -> GradientTransformation:
    """Shorten updates that would make a parameter negative: it becomes 0.

    The last link of a chain; `update` needs the parameters.

    >>> params = fnp.array([1.0, 1.0])
    >>> keep_params_nonnegative().update(fnp.array([-3.0, -0.5]), (), params)[0]
    Array([-1. , -0.5], dtype=float32)
    """
    name = "keep_params_nonnegative"

    def keep(updates: Updates, params: Params) -> Updates:
        updates = floating(name, "updates", updates)
        params = beside_updates(name, "the limit", updates, params)
        return tree.map(
            lambda u, p: fnp.where(wide(p) + wide(u) < 0, -p, u).astype(u.dtype),
            updates,
            params,
        )

    return stateless(keep)
