"""SGD and Adam, plain, with momentum, with weight decay, with Nesterov's.

Each is a chain of the transformations beside this file. Receives hyperparameters, gives
a `GradientTransformation`; `init` and `update` are all that a training loop calls. Next
on the walk: `squares.py`, where other optimizers begin.
"""

from __future__ import annotations

from typing import Any

from fnx.core.array import Array
from fnx.errors import OptionError
from fnx.optim.decay import weight_decaying
from fnx.optim.hyperparameters import ScalarOrSchedule
from fnx.optim.moments import adam_scaling
from fnx.optim.momentum import momentum as momentum_trace
from fnx.optim.scaling import signed_rate
from fnx.optim.transformation import GradientTransformation, chain, identity


def sgd(
    learning_rate: ScalarOrSchedule,
    momentum: float | Array | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> GradientTransformation:
    """Stochastic gradient descent, with momentum if given: p ← p - rate · t.

    t is the gradient, or the running sum of gradients that `trace` gives.
    `nesterov` and `accumulator_dtype` concern the momentum: `OptionError` without it.

    >>> import fnx, fnx.numpy as fnp
    >>> optimizer = sgd(0.1, momentum=0.9)
    >>> params = fnp.array([1.0, -2.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(100):
    ...     grads = fnx.grad(lambda p: (p**2).sum())(params)
    ...     updates, state = optimizer.update(grads, state, params)
    ...     params = fnx.optim.apply_updates(params, updates)
    >>> bool((abs(params) < 0.02).all())
    True
    """
    return chain(
        _momentum(momentum, nesterov, accumulator_dtype),
        signed_rate("sgd", learning_rate),
    )


def _momentum(
    decay: float | Array | None, nesterov: bool, dtype: Any
) -> GradientTransformation:
    if decay is not None:
        return momentum_trace("sgd", "momentum", decay, nesterov, dtype)
    if nesterov or dtype is not None:
        option = "nesterov" if nesterov else "accumulator_dtype"
        raise OptionError(
            f"sgd: {option} has a meaning only with momentum, which is None; give a "
            "momentum such as 0.9"
        )
    return identity()


def adam(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam: p ← p - rate · mu / (√nu + eps), the averages that `scale_by_adam` keeps.

    Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015.

    >>> import fnx.numpy as fnp
    >>> optimizer = adam(0.1)
    >>> state = optimizer.init({"w": fnp.array([1.0, 1.0])})
    >>> updates, state = optimizer.update({"w": fnp.array([300.0, -0.2])}, state)
    >>> updates["w"].round(4)
    Array([-0.1,  0.1], dtype=float32)
    """
    return chain(
        adam_scaling("adam", b1, b2, eps, eps_root, mu_dtype, nesterov),
        signed_rate("adam", learning_rate),
    )


def adamw(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam with decoupled weight decay: p ← p - rate · (adam's step + decay · p).

    `mask` says which parameters decay, as in `add_decayed_weights`; `update` needs the
    parameters. As in PyTorch, the decay is multiplied by the learning rate.
    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.

    >>> import fnx.numpy as fnp
    >>> from fnx import tree
    >>> params = {"w": fnp.ones((2, 2)), "b": fnp.ones(2)}
    >>> matrices = lambda params: tree.map(lambda p: p.ndim > 1, params)
    >>> optimizer = adamw(0.1, weight_decay=0.5, mask=matrices)
    >>> zeros = tree.map(fnp.zeros_like, params)
    >>> updates, state = optimizer.update(zeros, optimizer.init(params), params)
    >>> updates["w"].min().item() < 0, updates["b"].min().item() == 0
    (True, True)
    """
    return chain(
        adam_scaling("adamw", b1, b2, eps, eps_root, mu_dtype, nesterov),
        weight_decaying("adamw", weight_decay, mask),
        signed_rate("adamw", learning_rate),
    )


def nadam(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
) -> GradientTransformation:
    """Adam with Nesterov momentum: `adam` with `nesterov` unless it is said otherwise.

    Dozat, "Incorporating Nesterov Momentum into Adam", 2016.

    >>> import fnx.numpy as fnp
    >>> optimizer = nadam(0.1)
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-0.1474], dtype=float32)
    """
    return chain(
        adam_scaling("nadam", b1, b2, eps, eps_root, mu_dtype, nesterov),
        signed_rate("nadam", learning_rate),
    )


def nadamw(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = True,
) -> GradientTransformation:
    """`adamw` with Nesterov momentum; `update` needs the parameters.

    Dozat, "Incorporating Nesterov Momentum into Adam", 2016.

    >>> import fnx.numpy as fnp
    >>> optimizer, params = nadamw(0.1, weight_decay=1.0), fnp.array([1.0])
    >>> optimizer.update(params, optimizer.init(params), params)[0].round(4)
    Array([-0.2474], dtype=float32)
    """
    return chain(
        adam_scaling("nadamw", b1, b2, eps, eps_root, mu_dtype, nesterov),
        weight_decaying("nadamw", weight_decay, mask),
        signed_rate("nadamw", learning_rate),
    )
