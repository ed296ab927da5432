"""Routines on NumPy arrays: each branch and each round sees only the elements in it.

The value that compiled code is compared with, and that of operations outside of `jit`.
Functions such as exp are NumPy's here. Receives a `Routine` and arrays, gives an array.
Next on the walk: `routine_print.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.kernel import scalar
from fnx.kernel.routine import (
    Block,
    Branch,
    Cell,
    Lookup,
    Loop,
    Number,
    Operand,
    Routine,
    Step,
)

Array = np.ndarray[Any, np.dtype[Any]]


class _Scope:
    """The values of some elements: all, or those at some places of an outer scope."""

    def __init__(self, size: int, outer: _Scope | None = None, places: Any = None):
        self.size = size
        self.outer, self.places = outer, places
        self.values: dict[Cell, Array] = {}

    def inner(self, places: Array) -> _Scope:
        """The elements at these places."""
        return _Scope(places.size, self, places)

    def get(self, operand: Operand) -> Any:
        """The values of an operand, or the one that it is everywhere."""
        if isinstance(operand, Number):
            return operand.dtype.type(operand.value)
        found = self.values.get(operand)
        if found is None:
            assert self.outer is not None, operand
            found = self.outer.get(operand)
            if found.ndim:
                found = found[self.places]
            self.values[operand] = found
        return found

    def full(self, operand: Operand) -> Array:
        """The values as an array that may be written."""
        return np.array(np.broadcast_to(self.get(operand), (self.size,)))


def evaluate(routine: Routine, *args: Any) -> Array:
    """The routine's values on arrays of float64 that broadcast."""
    arrays = np.broadcast_arrays(*[np.asarray(x, np.float64) for x in args])
    shape = arrays[0].shape
    scope = _Scope(arrays[0].size)
    for cell, array in zip(routine.inputs, arrays, strict=True):
        scope.values[cell] = array.ravel()
    if not scope.size:
        return np.empty(shape)
    with np.errstate(all="ignore"):
        _run(routine.body, scope)
        return scope.full(routine.body.results[0]).reshape(shape)


def _run(block: Block, scope: _Scope) -> None:
    for statement in block.statements:
        match statement:
            case Step():
                scope.values[statement.result] = _step(statement, scope)
            case Lookup(table, index, result):
                places = np.asarray(scope.get(index)).astype(np.int64)
                scope.values[result] = np.asarray(table)[places]
            case Branch():
                _branch(statement, scope)
            case Loop():
                _loop(statement, scope)


def _step(step: Step, scope: _Scope) -> Array:
    args = [scope.get(arg) for arg in step.args]
    if step.name in ("convert", "bitcast"):
        args.append(step.result.dtype)
    meaning: Any = scalar.TABLE[step.name].numpy
    # Warnings are off already.
    return np.asarray(getattr(meaning, "__wrapped__", meaning)(*args))


def _branch(branch: Branch, scope: _Scope) -> None:
    condition = np.broadcast_to(scope.get(branch.condition), (scope.size,))
    places = np.flatnonzero(condition), np.flatnonzero(~condition)
    for block, here in zip((branch.then, branch.otherwise), places, strict=True):
        if here.size == scope.size:
            _run(block, scope)
            for cell, result in zip(branch.results, block.results, strict=True):
                scope.values[cell] = np.asarray(scope.get(result))
            return
    values = [np.empty(scope.size, cell.dtype) for cell in branch.results]
    for block, here in zip((branch.then, branch.otherwise), places, strict=True):
        inner = scope.inner(here)
        _run(block, inner)
        for value, result in zip(values, block.results, strict=True):
            value[here] = inner.get(result)
    scope.values.update(zip(branch.results, values, strict=True))


def _loop(loop: Loop, scope: _Scope) -> None:
    values = [scope.full(operand) for operand in loop.initial]
    places = np.arange(scope.size)
    current: list[Any] = values
    for _ in range(loop.limit):
        inner = scope.inner(places)
        inner.values.update(zip(loop.state, current, strict=True))
        _run(loop.body, inner)
        *results, more = loop.body.results
        current = [inner.full(result) for result in results]
        going = np.broadcast_to(inner.get(more), (inner.size,))
        if not going.all():
            for value, now in zip(values, current, strict=True):
                value[places] = now
            current = [now[going] for now in current]
            places = places[going]
        if not places.size:
            break
    for value, now in zip(values, current, strict=True):
        value[places] = now
    scope.values.update(zip(loop.results, values, strict=True))
