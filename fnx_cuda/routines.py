"""Routines that there is code for here: what a step leaves to the backend.

Receives a `HostStep`, gives the launches that do what its primitive's `reference` rule
does, or None where that has to run on the host. Used by `lower.py`; next on the walk:
`ordering.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fnx.runtime.plan import HostStep, Place
from fnx_cuda.decompositions import DECOMPOSITIONS
from fnx_cuda.fft import fft_launches
from fnx_cuda.instructions import Launch
from fnx_cuda.ordering import Rows
from fnx_cuda.work import Work


def routine_launches(step: HostStep, work: Work) -> list[Launch] | None:
    """The launches of a step whose routine there is code for; None elsewhere."""
    routine = _ROUTINES.get(step.routine or "")
    if routine is None or any(not isinstance(x, Place) for x in step.inputs):
        return None
    return routine(step, work)


def _sort(step: HostStep, work: Work) -> list[Launch] | None:
    """All operands in the order of the first ones."""
    count, axis = step.params.get("num_keys", 1), step.params["axis"]
    array = Rows(step.input_types[0].shape, axis)
    if not array.size or not array.fits():
        return None if array.size else []
    inputs = [(x, type_.dtype) for x, type_ in _inputs(step)]
    found, places = array.order(inputs[:count], False, work)
    return found + [
        array.take(out, x, dtype, places, array.length)
        for out, (x, dtype) in zip(step.outputs, inputs, strict=True)
    ]


def _top_k(step: HostStep, work: Work) -> list[Launch] | None:
    """The first elements of each row in descending order, and their places."""
    k, axis = step.params["k"], step.params["axis"]
    ((x, type_),) = _inputs(step)
    array = Rows(type_.shape, axis)
    if not k * array.size or not array.fits():
        return None if k * array.size else []
    found, order = array.order([(x, type_.dtype)], True, work)
    values, places = step.outputs
    return [
        *found,
        array.take(values, x, type_.dtype, order, k),
        array.numbers(places, order, k),
    ]


_ROUTINES: dict[str, Callable[[HostStep, Work], list[Launch] | None]] = {
    "fft": fft_launches,
    "sort": _sort,
    "top_k": _top_k,
    **DECOMPOSITIONS,
}


def _inputs(step: HostStep) -> Iterator[tuple[Place, Any]]:
    for place, type_ in zip(step.inputs, step.input_types, strict=True):
        assert isinstance(place, Place)
        yield place, type_
