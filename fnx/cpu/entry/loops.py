"""Eager operations as loops of NumPy: what a path runs, tried out before it is used.

Receives a function of NumPy arrays and the types of its arguments; `watch.py` finds the
loops and copies that it comes to, and here their memory is laid out, and they are run
on random arrays: if the bits are those of the function, a path may run them instead.
Next on the walk: `watch.py`.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.cpu.entry.steps import RUN, Operand, words
from fnx.cpu.entry.table import Result, Runnable
from fnx.cpu.entry.watch import Found, Watch, align, watch
from fnx.records import record

# With more work than this (in elements), other Python threads may run meanwhile.
_LONG_WORK = 50_000
# With more elements, or more work, an operation takes long, and trying it out, too;
# views do not.
_MOST_ELEMENTS, _MOST_WORK = 1 << 18, 1 << 22


@record
class Loops:
    """What a path runs: the words of its steps, at `data` (0 if there are none)."""

    runnable: Runnable
    data: int
    is_long: bool
    kept: Any


@record
class _Memory:
    """The type of a buffer that no result covers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def eager_loops(
    addresses: Mapping[str, int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    replay: Callable[..., Any],
) -> Loops | None:
    """The loops of `replay(watcher, *arrays)`, if it consists of nothing else.

    `addresses` are those of the functions of `steps.py`.
    """
    elements = sum([math.prod(t.shape) for t in (*inputs, *outputs)])
    only_views = elements > _MOST_ELEMENTS
    try:
        with np.errstate(all="ignore"):
            # What only views an array never looks at its elements.
            arrays = _unset(inputs) if only_views else samples(inputs, 0)
            seen, found = watch(replay, arrays, only_views)
    except Exception:
        # `Unwatched`, `Unsupported`, or what the function makes of arrays that refuse.
        return None
    if seen.work > _MOST_WORK:
        return None
    runnable, slots = _laid_out(seen, found, inputs, outputs)
    laid = words(seen.steps(slots), addresses)
    data = laid[0].ctypes.data
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(
        addresses[RUN]
    )
    tried = () if only_views else range(KINDS)
    if not all(_agrees(run, data, runnable, replay, kind) for kind in tried):
        return None
    constants = [b.array for b in seen.blocks if b.kind == "constant"]
    is_long = seen.work > _LONG_WORK
    return Loops(runnable, data if seen.calls else 0, is_long, (laid, constants))


def _agrees(
    run: Callable[..., Any],
    data: int,
    runnable: Runnable,
    replay: Callable[..., Any],
    kind: int,
) -> bool:
    """Whether the steps give the bits of the function, on arrays of some kind."""
    inputs = samples(runnable.inputs, kind)
    with np.errstate(all="ignore"):
        wanted = replay(_Unseen, *inputs)
    buffers = [np.empty(t.shape, t.dtype) for t in runnable.buffers]
    arrays = [*inputs, *buffers, np.empty(runnable.arena + 1, np.uint8)]
    for x in arrays[len(inputs) :]:  # what is not written must be seen
        x.reshape(-1).view(np.uint8)[...] = 0x5A
    run((ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays]), data)
    for output, value in zip(runnable.outputs, wanted, strict=True):
        held = inputs if output.role == "input" else buffers
        memory = held[output.index].reshape(-1).view(np.uint8)[output.offset :]
        if memory[: value.nbytes].tobytes() != value.tobytes():
            return False
    return True


class _Unseen:
    """What a function that is not watched is given for its values."""

    @staticmethod
    def settle(value: Any) -> Any:
        """The value, contiguous."""
        return np.ascontiguousarray(value).reshape(np.shape(value))

    @staticmethod
    def constant(value: Any) -> Any:
        """The array itself."""
        return value


def _laid_out(
    seen: Watch, found: Sequence[Found], inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Runnable, list[Operand]]:
    """Where the memory of a call lies: outputs in buffers, the rest in an arena."""
    buffers: dict[int, Any] = {}
    for place, type_ in zip(found, outputs, strict=True):
        if place.kind == "made" and (place.whole or place.number not in buffers):
            made = seen.made[place.number]
            known = _Memory(made.shape, made.dtype)
            buffers[place.number] = type_ if place.whole else known
    numbers = {made: n for n, made in enumerate(buffers)}
    slots, arena = [], 0
    for number, made in enumerate(seen.made):
        if number in numbers:
            slots.append(Operand(len(inputs) + numbers[number], 0))
            continue
        slots.append(Operand(len(inputs) + len(buffers), arena))
        arena += align(made.nbytes)
    results = [
        Result("input", place.number, type_, place.offset)
        if place.kind == "input"
        else Result("buffer", numbers[place.number], type_, place.offset)
        for place, type_ in zip(found, outputs, strict=True)
    ]
    many = tuple(inputs), tuple(results), tuple(buffers.values())
    return Runnable(*many, arena), slots


# So many random elements are repeated; a prime number, so that rows differ.
_RANDOM = 4099
KINDS = 4
# How many booleans are true, and how many floats are special, in each kind of arrays.
_TRUE = 0.5, 0.02, 0.98, 0.3
_SPECIAL = 0.2, 0.0, 1.0, 0.0


def _unset(types: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [np.empty(type_.shape, type_.dtype) for type_ in types]


def samples(types: Sequence[Any], kind: int) -> list[np.ndarray[Any, Any]]:
    """Arrays of these types with random elements, the same ones in every call."""
    found = []
    for number, type_ in enumerate(types):
        pool, size = _pool(type_.dtype, kind), math.prod(type_.shape)
        start = 97 * number
        if start + size <= _RANDOM:
            found.append(pool[start : start + size].reshape(type_.shape).copy())
        else:
            found.append(np.resize(np.roll(pool, start), type_.shape))
    return found


@functools.cache
def _pool(dtype: np.dtype[Any], kind: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(kind)
    if dtype.kind == "b":
        return np.asarray(rng.random(_RANDOM) < _TRUE[kind])
    if dtype.kind in "iu" and kind:
        return rng.integers(0, 3 + 40 * (kind == 3), _RANDOM).astype(dtype)
    if dtype.kind not in "fc":
        return np.frombuffer(rng.bytes(_RANDOM * dtype.itemsize), dtype)
    values = rng.standard_normal(_RANDOM) * np.exp(4 * rng.standard_normal(_RANDOM))
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(_RANDOM)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e-40, 1e30])
    rare = rng.random(_RANDOM) < _SPECIAL[kind]
    with np.errstate(all="ignore"):  # some are out of range for a narrow dtype
        return np.where(rare, rng.choice(special, _RANDOM), values).astype(dtype)
