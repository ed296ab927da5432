"""L-BFGS: steps by an estimate of the inverse Hessian from the last few gradients.

Receives hyperparameters, gives transformations. The last file of the walk but for
`contrib.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import lax, tree
from fnx.core.array import Array
from fnx.optim.hyperparameters import ScalarOrSchedule, steps
from fnx.optim.leafwise import beside_updates
from fnx.optim.linesearch import scale_by_zoom_linesearch
from fnx.optim.scaling import scale, signed_rate
from fnx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    chain,
    identity,
    transformation,
)
from fnx.optim.updates import (
    Leaf,
    first_count,
    floating,
    inner,
    next_count,
    number_dtype,
    wide,
)


class ScaleByLBFGSState(NamedTuple):
    """The last parameters and gradients, and the differences before, one a row.

    The rows are a ring: that of step t is t modulo the memory's size. `weights_memory`
    has the inverse of each pair's inner product, or 0 where there is no pair.
    """

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    params: Params
    updates: Params
    diff_params_memory: Params
    diff_updates_memory: Params
    weights_memory: Array


def scale_by_lbfgs(
    memory_size: int = 10, scale_init_precond: bool = True
) -> GradientTransformation:
    """Multiply the gradient by an estimate of the inverse Hessian.

    The estimate begins as a multiple of the identity: s·y / y·y of the latest pair, and
    for the first gradient 1 / ‖g‖, at most 1 (always 1 if not `scale_init_precond`). A
    pair whose s·y is not positive has no part in it. `update` needs the parameters. Liu
    and Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization", 1989.

    >>> scaling, params = scale_by_lbfgs(), fnp.array([3.0, 4.0])
    >>> state = scaling.init(params)
    >>> updates, state = scaling.update(params, state, params)  # of ‖x‖² / 2
    >>> scaling.update(params / 2, state, params / 2)[0]
    Array([1.5, 2. ], dtype=float32)
    """
    return _lbfgs("scale_by_lbfgs", memory_size, scale_init_precond)


_ZOOM = scale_by_zoom_linesearch(max_linesearch_steps=20, initial_guess_strategy="one")


def lbfgs(
    learning_rate: ScalarOrSchedule | None = None,
    memory_size: int = 10,
    scale_init_precond: bool = True,
    linesearch: GradientTransformation | None = _ZOOM,
) -> GradientTransformationExtraArgs:
    """L-BFGS with a line search, by default that of Wolfe's conditions.

    For functions without noise. `update` needs the parameters and what the line search
    needs: `update(grads, state, params, value=loss, grad=grads, value_fn=function)`.
    Without `linesearch` the steps are multiplied by the learning rate alone. Liu and
    Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization", 1989.

    >>> from fnx.optim import apply_updates, value_and_grad_from_state
    >>> f = lambda x: ((x - 1.0) ** 2).sum()
    >>> optimizer, x = lbfgs(), fnp.array([1.0, 2.0, 3.0])
    >>> state, gradient = optimizer.init(x), value_and_grad_from_state(f)
    >>> for _ in range(3):
    ...     value, grad = gradient(x, state=state)
    ...     updates, state = optimizer.update(
    ...         grad, state, x, value=value, grad=grad, value_fn=f
    ...     )
    ...     x = apply_updates(x, updates)
    >>> x.round(3)
    Array([1., 1., 1.], dtype=float32)
    """
    return chain(
        _lbfgs("lbfgs", memory_size, scale_init_precond),
        scale(-1.0) if learning_rate is None else signed_rate("lbfgs", learning_rate),
        identity() if linesearch is None else linesearch,
    )


def _lbfgs(function: str, memory_size: int, scales: bool) -> GradientTransformation:
    rows = steps(function, "memory_size", memory_size)

    def init(params: Params) -> OptState:
        params = floating(function, "params", params)
        zeros = tree.map(fnp.zeros_like, params)
        memory = tree.map(lambda p: fnp.zeros((rows, *p.shape), p.dtype), params)
        weights = fnp.zeros((rows,), number_dtype(params))
        return ScaleByLBFGSState(first_count(), zeros, zeros, memory, memory, weights)

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        params = beside_updates(function, "the Hessian's estimate", updates, params)
        moved = tree.map(lambda x, y: wide(x) - wide(y), params, state.params)
        turned = tree.map(lambda x, y: wide(x) - wide(y), updates, state.updates)
        dtype = state.weights_memory.dtype
        known = inner(moved, turned, dtype)
        useful = (state.count > 0) & (known > 0)
        row = (state.count - 1) % rows
        weight = fnp.where(useful, 1 / fnp.where(useful, known, 1), 0)
        moves = _stored(state.diff_params_memory, row, moved)
        turns = _stored(state.diff_updates_memory, row, turned)
        weights = state.weights_memory.at[row].set(weight)
        size = fnp.sqrt(inner(updates, updates, dtype))
        first = 1 / fnp.maximum(size, 1)
        later = known / fnp.where(useful, inner(turned, turned, dtype), 1)
        start = fnp.where(state.count == 0, first, fnp.where(useful, later, 1))
        start = start if scales else fnp.ones_like(first)
        order = (state.count - 1 - fnp.arange(rows, dtype="int32")) % rows
        steps = _two_loops(updates, moves, turns, weights, start, order)
        steps = tree.map(lambda s, g: s.astype(g.dtype), steps, updates)
        kept = tree.map(lambda x, old: x.astype(old.dtype), updates, state.updates)
        count = next_count(state.count)
        return steps, ScaleByLBFGSState(count, params, kept, moves, turns, weights)

    return transformation(init, update)


def _two_loops(
    updates: Updates, moves: Any, turns: Any, weights: Leaf, start: Leaf, order: Leaf
) -> Updates:
    """The estimate times a gradient: through the pairs, newest first, and back.

    Nocedal and Wright, "Numerical Optimization", 2006, algorithm 7.4.
    """
    dtype = weights.dtype

    def pair(row: Leaf) -> tuple[Any, Any]:
        return tree.map(lambda m: wide(m[row]), moves), tree.map(
            lambda m: wide(m[row]), turns
        )

    def back(q: Any, row: Leaf) -> tuple[Any, Leaf]:
        move, turn = pair(row)
        part = weights[row] * inner(move, q, dtype)
        return _added(q, -part, turn), part

    def forth(r: Any, given: tuple[Leaf, Leaf]) -> tuple[Any, None]:
        row, part = given
        move, turn = pair(row)
        return _added(r, part - weights[row] * inner(turn, r, dtype), move), None

    q, parts = lax.scan(back, tree.map(wide, updates), order)
    r = tree.map(lambda x: x * start.astype(x.dtype), q)
    r, _ = lax.scan(forth, r, (order[::-1], parts[::-1]))
    return r


def _stored(memory: Any, row: Leaf, new: Any) -> Any:
    return tree.map(lambda m, x: m.at[row].set(x.astype(m.dtype)), memory, new)


def _added(x: Any, factor: Leaf, y: Any) -> Any:
    return tree.map(lambda a, b: a + factor.astype(a.dtype) * b, x, y)
