"""Random programs of replicas on a grid, and what NumPy makes of them.

A program is a list of moves; each takes one value of those computed so far, an array of
shape `SHAPE` on each replica, to another of that shape, so that any sequence of moves
is a program. A move has two forms: a function of one replica's value, with collectives
over a named axis (or both), and one of the values of all replicas along that axis, in
NumPy. Next on the walk: `tests/test_spmd_random.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.sharding import PartitionSpec as P

# Each axis of the grid, and both together, divide the rows of a value.
GRID = {"i": 2, "j": 3}
SHAPE = (6, 2)
AXES: tuple[Any, ...] = ("i", "j", ("i", "j"))


@dataclass(frozen=True)
class Move:
    """A move's two forms."""

    replica: Callable[[Any, Any, int], Any]
    whole: Callable[[np.ndarray, int], np.ndarray]


def size(axis: Any) -> int:
    """The replicas along an axis."""
    return GRID[axis] if isinstance(axis, str) else GRID["i"] * GRID["j"]


def _for_all(x: np.ndarray, count: int) -> np.ndarray:
    return np.stack([x] * count)


# ---------------------------------------------------------------- sums and extremes


def _reduction(name: str, numpy: Callable[..., Any], shrink: bool) -> Move:
    def replica(x: Any, axis: Any, seed: int) -> Any:
        found = getattr(lax, name)(x, axis)
        return found / size(axis) if shrink else found

    def whole(x: np.ndarray, seed: int) -> np.ndarray:
        found = numpy(x, axis=0)
        return _for_all(found / len(x) if shrink else found, len(x))

    return Move(replica, whole)


def _groups(count: int, seed: int) -> list[list[int]]:
    """Groups of equal size, in an order that the seed tells."""
    members = [n for n in range(1, count + 1) if count % n == 0]
    width = members[seed % len(members)]
    order = np.random.default_rng(seed).permutation(count)
    return order.reshape(-1, width).tolist()


def _group_sum(x: Any, axis: Any, seed: int) -> Any:
    if not isinstance(axis, str):  # groups are along one axis
        return x
    groups = _groups(size(axis), seed)
    return lax.psum(x, axis, axis_index_groups=groups) / len(groups[0])


def _all_group_sums(x: np.ndarray, seed: int) -> np.ndarray:
    out = np.empty_like(x)
    for group in _groups(len(x), seed):
        out[group] = x[group].mean(0)
    return out


# ---------------------------------------------------------------- gathers, scatters


def _gather(x: Any, axis: Any, seed: int) -> Any:
    """All values, weighted by the number of their replica."""
    count = size(axis)
    rows = lax.all_gather(x, axis, axis=seed % 2, tiled=True)
    if seed % 2:
        rows = rows.reshape(SHAPE[0], count, SHAPE[1]).swapaxes(0, 1)
    weights = fnp.array(np.arange(1.0, count + 1) / count**2)
    return fnp.tensordot(weights, rows.reshape(count, *SHAPE), 1)


def _all_gathers(x: np.ndarray, seed: int) -> np.ndarray:
    weights = np.arange(1.0, len(x) + 1) / len(x) ** 2
    return _for_all(np.tensordot(weights, x, 1), len(x))


def _scatter(x: Any, axis: Any, seed: int) -> Any:
    """A part of the rows of the sum, so often as it takes."""
    count = size(axis)
    part = lax.psum_scatter(x, axis, scatter_dimension=0, tiled=True)
    return fnp.tile(part, (count, 1)) / count


def _all_scatters(x: np.ndarray, seed: int) -> np.ndarray:
    parts = np.split(x.sum(0), len(x))
    return np.stack([np.tile(part, (len(x), 1)) / len(x) for part in parts])


def _exchange(x: Any, axis: Any, seed: int) -> Any:
    if seed % 2:
        return lax.all_to_all(x, axis, 0, 0, tiled=True)
    rows = x.reshape(size(axis), -1, SHAPE[1])
    return lax.all_to_all(rows, axis, 0, 1).reshape(SHAPE)


def _all_exchanges(x: np.ndarray, seed: int) -> np.ndarray:
    parts = x.reshape(len(x), len(x), -1, SHAPE[1]).swapaxes(0, 1)
    if not seed % 2:
        parts = np.moveaxis(parts, 1, 2)
    return parts.reshape(x.shape)


# ---------------------------------------------------------------- messages


def _pairs(count: int, seed: int) -> list[tuple[int, int]]:
    """Some replicas send to different others."""
    rng = np.random.default_rng(seed)
    targets = rng.permutation(count)
    return [(i, int(targets[i])) for i in range(count) if rng.random() < 0.8]


def _send(x: Any, axis: Any, seed: int) -> Any:
    if not isinstance(axis, str):  # as JAX: along one axis
        return x
    return lax.ppermute(x, axis, _pairs(size(axis), seed))


def _all_sends(x: np.ndarray, seed: int) -> np.ndarray:
    out = np.zeros_like(x)
    for source, target in _pairs(len(x), seed):
        out[target] = x[source]
    return out


def _broadcast(x: Any, axis: Any, seed: int) -> Any:
    return lax.pbroadcast(x, axis, seed % size(axis))


def _all_broadcasts(x: np.ndarray, seed: int) -> np.ndarray:
    return _for_all(x[seed % len(x)], len(x))


def _numbered(x: Any, axis: Any, seed: int) -> Any:
    return x * (1.0 + lax.axis_index(axis)) / size(axis)


def _all_numbered(x: np.ndarray, seed: int) -> np.ndarray:
    numbers = np.arange(1.0, len(x) + 1).reshape(-1, 1, 1)
    return x * numbers / len(x)


# ---------------------------------------------------------------- local, and control


def _local(x: Any, axis: Any, seed: int) -> Any:
    return [fnp.sin, fnp.tanh, lambda x: fnp.roll(x, 1, 0)][seed % 3](x)


def _all_local(x: np.ndarray, seed: int) -> np.ndarray:
    return [np.sin, np.tanh, lambda x: np.roll(x, 1, 1)][seed % 3](x)


def _branch(x: Any, axis: Any, seed: int) -> Any:
    """Replicas take branches of their own; what they meet in stands outside."""
    even = lax.axis_index(axis) % 2 == 0
    return lax.pmean(lax.cond(even, fnp.sin, lambda x: 0.5 * x, x), axis) + x


def _all_branches(x: np.ndarray, seed: int) -> np.ndarray:
    even = (np.arange(len(x)) % 2 == 0).reshape(-1, 1, 1)
    return np.where(even, np.sin(x), 0.5 * x).mean(0) + x


def _loop(x: Any, axis: Any, seed: int) -> Any:
    """The replicas meet in every round."""
    return lax.fori_loop(
        0, 2 + seed % 2, lambda _, x: fnp.tanh(lax.pmean(x, axis) - x), x
    )


def _all_loops(x: np.ndarray, seed: int) -> np.ndarray:
    for _ in range(2 + seed % 2):
        x = np.tanh(x.mean(0) - x)
    return x


def _scan(x: Any, axis: Any, seed: int) -> Any:
    """The rows one after the other, each summed with what is carried."""

    def row(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = fnp.sin(carry + lax.psum(row, axis))
        return carry, carry

    return lax.scan(row, x[0], x)[1]


def _all_scans(x: np.ndarray, seed: int) -> np.ndarray:
    carry, rows = x[:, 0], []
    for n in range(SHAPE[0]):
        carry = np.sin(carry + x[:, n].sum(0))
        rows.append(carry)
    return np.stack(rows, 1)


MOVES = {
    "psum": _reduction("psum", np.sum, True),
    "pmean": _reduction("pmean", np.mean, False),
    "pmax": _reduction("pmax", np.max, False),
    "pmin": _reduction("pmin", np.min, False),
    "groups": Move(_group_sum, _all_group_sums),
    "all_gather": Move(_gather, _all_gathers),
    "psum_scatter": Move(_scatter, _all_scatters),
    "all_to_all": Move(_exchange, _all_exchanges),
    "ppermute": Move(_send, _all_sends),
    "pbroadcast": Move(_broadcast, _all_broadcasts),
    "axis_index": Move(_numbered, _all_numbered),
    "local": Move(_local, _all_local),
    "cond": Move(_branch, _all_branches),
    "fori_loop": Move(_loop, _all_loops),
    "scan": Move(_scan, _all_scans),
}
ONE_AXIS = ("groups", "ppermute")


# ---------------------------------------------------------------- programs

# The move, the axis, which earlier value it takes, and a number that tells the rest.
Step = tuple[str, Any, int, int]
Steps = tuple[Step, ...]

programs: st.SearchStrategy[Steps] = st.lists(
    st.tuples(
        st.sampled_from(sorted(MOVES)),
        st.sampled_from(AXES),
        st.integers(0, 5),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=6,
).map(tuple)


def replica(steps: Steps) -> Callable[[Any], Any]:
    """The program of one replica: the products of each value with the first, summed."""

    def run(x: Any) -> Any:
        values = [x]
        for name, axis, which, seed in steps:
            found = MOVES[name].replica(values[which % len(values)], axis, seed)
            values.append(found + 0.5 * values[-1])
        return sum([value * fnp.cos(x) for value in values[1:]], 0.1 * x)

    return run


def whole(steps: Steps, x: np.ndarray) -> np.ndarray:
    """What all replicas compute, in NumPy: x has the grid's axes in front."""
    values = [x]
    for name, axis, which, seed in steps:
        found = _along(MOVES[name], values[which % len(values)], axis, seed, name)
        values.append(found + 0.5 * values[-1])
    return sum([value * np.cos(x) for value in values[1:]], 0.1 * x)


def _along(move: Move, x: np.ndarray, axis: Any, seed: int, name: str) -> np.ndarray:
    a, b = GRID.values()
    if axis == "i":
        return np.stack([move.whole(x[:, j], seed) for j in range(b)], 1)
    if axis == "j":
        return np.stack([move.whole(x[i], seed) for i in range(a)])
    if name in ONE_AXIS:
        return x
    return move.whole(x.reshape(a * b, *SHAPE), seed).reshape(x.shape)


def on_grid(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one replica on the grid, by two maps."""
    return fnx.vmap(fnx.vmap(function, axis_name="j"), axis_name="i")


def on_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one replica on the grid, each replica on a device of its own."""
    mesh = fnx.make_mesh(tuple(GRID.values()), tuple(GRID))
    cut = P("i", "j")

    def one(*parts: Any) -> Any:
        return function(*[part[0, 0] for part in parts])[None, None]

    return fnx.shard_map(one, mesh=mesh, in_specs=cut, out_specs=cut)


def on_a_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one replica on the grid: a row of devices, each with a column."""
    return fnx.pmap(fnx.vmap(function, axis_name="j"), "i")
