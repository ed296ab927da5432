"""Muon: the steps of matrices are made orthogonal; Adam does the rest.

Receives updates, gives updates whose matrices have singular values of about 1, by a few
iterations of Newton and Schulz, which are only products. Part of `contrib`; next on the
walk: `late_variants.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.errors import OptionError, ShapeError
from fnx.optim.algorithms import adamw
from fnx.optim.averages import average, zeros
from fnx.optim.decay import optional_decay
from fnx.optim.hyperparameters import (
    DECAY,
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
    float_dtype,
    steps,
)
from fnx.optim.leafwise import by_leaf
from fnx.optim.masking import partition
from fnx.optim.moments import corrected_mean
from fnx.optim.scaling import signed_rate
from fnx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    chain,
    stateless,
    transformation,
)
from fnx.optim.updates import Leaf, first_count, floating, next_count, scaled, wide

# The coefficients of the odd polynomials a x + b x³ + c x⁵ of the iterations.
_STANDARD = (3.4445, -4.775, 2.0315)
_PRESETS = {
    "standard": _STANDARD,
    "dion": (
        (4.0848, -6.8946, 2.927),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}
_PRECONDITIONINGS = ("frobenius", "spectral", "aol", "schatten")


class MuonDimensionNumbers(NamedTuple):
    """Which axes of a parameter are the rows, which the columns of its matrices.

    An axis or several; all others count the matrices.
    """

    reduction_axis: Sequence[int] | int = 0
    output_axis: Sequence[int] | int = 1


_MATRIX = MuonDimensionNumbers()


class MuonState(NamedTuple):
    """Counts, the average of the updates, and the polynomials' coefficients."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates
    ns_coeffs: Array


def scale_by_muon(
    ns_coeffs: Any = _STANDARD,
    ns_steps: int = 5,
    beta: float | Array = 0.95,
    eps: float | Array = 1e-8,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: str = "frobenius",
    weight_dimension_numbers: Any = None,
) -> GradientTransformation:
    """Replace each matrix of the average of updates by the nearest orthogonal one.

    `ns_coeffs` are three coefficients, or three for each of `ns_steps` iterations;
    before them the matrix is divided by a norm: "frobenius" or "spectral", or by rows
    ("aol"), or by that of its square ("schatten"). `adaptive` multiplies by the product
    with the average. `weight_dimension_numbers` is a `MuonDimensionNumbers`, a tree of
    them, or a function from the updates to one; without it all updates are matrices.
    Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.

    >>> muon = scale_by_muon()
    >>> g = fnp.array([[3.0, 0.0], [0.0, 2.0]])
    >>> muon.update(g, muon.init(g))[0].round(1)
    Array([[1.1, 0. ],
           [0. , 0.7]], dtype=float32)
    """
    name = "scale_by_muon"
    count = steps(name, "ns_steps", ns_steps)
    table = fnp.asarray(ns_coeffs, "float32")
    if table.ndim not in (1, 2) or table.shape[-1] != 3:
        raise ShapeError(
            f"{name}: ns_coeffs must have shape (3,) or (n, 3), got {table.type}"
        )
    if table.ndim == 2 and not 1 <= table.shape[0] <= count:
        raise OptionError(
            f"{name}: ns_coeffs has {table.shape[0]} rows for ns_steps={count}"
        )
    DECAY.check(name, "beta", beta)
    NOT_NEGATIVE.check(name, "eps", eps)
    dtype = float_dtype(name, "mu_dtype", mu_dtype)
    if preconditioning not in _PRECONDITIONINGS:
        names = ", ".join(_PRECONDITIONINGS)
        raise OptionError(
            f"{name}: preconditioning {preconditioning!r} is none of {names}"
        )

    def init(params: Params) -> OptState:
        params = floating(name, "params", params)
        means = tree.map(lambda p: zeros(p, dtype), params)
        return MuonState(first_count(), means, table)

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(name, "updates", updates)
        made = next_count(state.count)
        rows = state.ns_coeffs
        rows = list(rows) if rows.ndim == 2 else [rows] * count

        def gather(g: Leaf, mean: Leaf) -> tuple[Leaf, Leaf]:
            mean = average(mean, g, beta)
            return corrected_mean(mean, g, beta, made, mean.dtype, nesterov), mean

        means, memory = by_leaf(gather, updates, [], [state.mu])

        def turned(mean: Leaf, numbers: MuonDimensionNumbers) -> Leaf:
            wider = wide(mean)
            found = _orthogonal(wider, rows, preconditioning, eps, numbers)
            if adaptive:
                found = found * fnp.real(fnp.vdot(wider, found))
            return found.astype(mean.dtype)

        given = _with_numbers(turned, means, weight_dimension_numbers)
        return given, MuonState(made, memory, state.ns_coeffs)

    return transformation(init, update)


def muon(
    learning_rate: ScalarOrSchedule,
    ns_coeffs: Any = _STANDARD,
    ns_steps: int = 5,
    beta: float | Array = 0.95,
    eps: float | Array = 1e-8,
    weight_decay: float | Array = 0.0,
    weight_decay_mask: Any = None,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    preconditioning: str = "frobenius",
    adam_b1: float | Array = 0.9,
    adam_b2: float | Array = 0.999,
    adam_eps_root: float | Array = 0.0,
    adam_weight_decay: float | Array = 0.0,
    adam_learning_rate: ScalarOrSchedule | None = None,
    muon_weight_dimension_numbers: Any = None,
    consistent_rms: float | Array | None = None,
) -> GradientTransformationExtraArgs:
    """`scale_by_muon` for the matrices, AdamW for all other parameters.

    Matrices are the parameters of rank 2, or those for which the tree (or function)
    `muon_weight_dimension_numbers` has numbers and not None. Their steps are multiplied
    by √max(1, columns / rows), or, with `consistent_rms`, by it and
    √max(rows, columns). `ns_coeffs` may be "standard" or "dion". Jordan et al., "Muon:
    An optimizer for hidden layers in neural networks", 2024.

    >>> optimizer = muon(0.1)
    >>> params = {"w": fnp.eye(2), "b": fnp.zeros(2)}
    >>> grads = {"w": fnp.eye(2), "b": fnp.ones(2)}
    >>> updates, _ = optimizer.update(grads, optimizer.init(params), params)
    >>> updates["b"].round(3)
    Array([-0.147, -0.147], dtype=float32)
    """
    NOT_NEGATIVE.check_or_schedule("muon", "learning_rate", learning_rate)
    if consistent_rms is not None:
        POSITIVE.check("muon", "consistent_rms", consistent_rms)
    if isinstance(ns_coeffs, str):
        if ns_coeffs not in _PRESETS:
            raise OptionError(
                f"muon: ns_coeffs {ns_coeffs!r} is none of {', '.join(_PRESETS)}"
            )
        ns_coeffs = _PRESETS[ns_coeffs]
    numbers = muon_weight_dimension_numbers

    def labels(params: Params) -> Any:
        if numbers is None:
            return tree.map(lambda p: "muon" if p.ndim == 2 else "adam", params)
        return _with_numbers(lambda p, given: "muon", params, numbers, "adam")

    matrices = chain(
        scale_by_muon(
            ns_coeffs,
            ns_steps,
            beta,
            eps,
            mu_dtype,
            nesterov=nesterov,
            adaptive=adaptive,
            preconditioning=preconditioning,
            weight_dimension_numbers=numbers,
        ),
        _scale_by_shape(numbers, consistent_rms),
        optional_decay("muon", weight_decay, weight_decay_mask),
        signed_rate("muon", learning_rate),
    )
    others = adamw(
        learning_rate if adam_learning_rate is None else adam_learning_rate,
        adam_b1,
        adam_b2,
        eps,
        adam_eps_root,
        mu_dtype,
        adam_weight_decay,
        nesterov=nesterov,
    )
    return partition({"muon": matrices, "adam": others}, labels)


def _scale_by_shape(numbers: Any, consistent_rms: Any) -> GradientTransformation:
    def factor(g: Leaf, given: MuonDimensionNumbers) -> Leaf:
        rows, columns = [_size(g, axes) for axes in _axes(g, given)]
        if consistent_rms is None:
            return scaled(g, math.sqrt(max(1, columns / max(rows, 1))))
        return scaled(g, consistent_rms * math.sqrt(max(rows, columns)))

    return stateless(lambda updates, _: _with_numbers(factor, updates, numbers))


# ---------------------------------------------------------------- dimension numbers


def _is_numbers(x: Any) -> bool:
    return x is None or isinstance(x, MuonDimensionNumbers)


def _with_numbers(
    f: Callable[[Leaf, MuonDimensionNumbers], Any],
    values: Any,
    numbers: Any,
    otherwise: Any = None,
) -> Any:
    """`f(leaf, numbers)` for each leaf; `otherwise` where there are no numbers."""
    given = numbers(values) if callable(numbers) else numbers
    if given is None:
        given = _MATRIX

    def part(numbers: MuonDimensionNumbers | None, below: Any) -> Any:
        if numbers is None:
            return tree.map(lambda x: otherwise, below)
        return tree.map(lambda x: f(x, numbers), below)

    return tree.map(part, given, values, is_leaf=_is_numbers)


def _axes(
    x: Leaf, numbers: MuonDimensionNumbers
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of the rows and of the columns, from 0 to the rank."""
    sides = []
    for side in numbers:
        given = (side,) if isinstance(side, int) else tuple(side)
        if any(not -x.ndim <= axis < x.ndim for axis in given):
            raise ShapeError(f"muon: {numbers} does not fit to {x.type}")
        sides.append(tuple([axis % x.ndim for axis in given]))
    if set(sides[0]) & set(sides[1]):
        raise ShapeError(f"muon: {numbers} names an axis of {x.type} twice")
    return sides[0], sides[1]


def _size(x: Leaf, axes: tuple[int, ...]) -> int:
    return math.prod([x.shape[axis] for axis in axes])


def _orthogonal(
    x: Leaf, rows: list[Leaf], norm: str, eps: Any, numbers: MuonDimensionNumbers
) -> Leaf:
    """The array with its matrices made nearly orthogonal."""
    left, right = _axes(x, numbers)
    many = tuple([i for i in range(x.ndim) if i not in (*left, *right)])
    order = (*many, *left, *right)
    moved: Leaf = fnp.transpose(x, order)
    stack: Leaf = fnp.reshape(moved, (-1, _size(x, left), _size(x, right)))
    if not x.size:
        return x
    wide_enough = stack.shape[1] <= stack.shape[2]
    found = _iterated(stack if wide_enough else _turned(stack), rows, norm, eps)
    found = found if wide_enough else _turned(found)
    back = sorted(range(x.ndim), key=order.__getitem__)
    return fnp.transpose(fnp.reshape(found, moved.shape), back)


def _turned(x: Leaf) -> Leaf:
    return fnp.matrix_transpose(x)


def _iterated(x: Leaf, rows: list[Leaf], norm: str, eps: Any) -> Leaf:
    """The iterations on a stack of matrices, which have no more rows than columns."""
    if norm in ("frobenius", "spectral"):
        kind: Any = "fro" if norm == "frobenius" else 2
        x = x / (fnp.linalg.norm(x, kind, axis=(-2, -1), keepdims=True) + eps)
    else:
        square = x @ fnp.conj(_turned(x))
        if norm == "aol":
            size: Leaf = fnp.sum(fnp.abs(square), -1, keepdims=True)
        else:
            size = fnp.linalg.norm(square, "fro", axis=(-2, -1), keepdims=True)
        x = x / fnp.sqrt(fnp.maximum(size, eps))
    for row in rows:
        a, b, c = [part.astype(x.dtype) for part in row]
        square = x @ fnp.conj(_turned(x))
        x = a * x + (b * square + c * (square @ square)) @ x
    return x
