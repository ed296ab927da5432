"""What common functions cost eagerly on small arrays, beside NumPy.

Receives whether to be quick (no difference here), gives a case for each of ninety
functions, on arrays of about ten elements. Next on the walk: `fusion.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Case, Row, eager

LIBRARIES = ("fnx", "jax", "numpy")
# Functions that take more than so many times as long as NumPy's are listed.
FACTOR = 5

UNARY = """abs negative exp log1p sin tanh sqrt square floor sign isnan
logical_not""".split()
BINARY = """add subtract multiply divide maximum power arctan2 equal less logical_and
floor_divide remainder""".split()
FOLDS = "sum prod mean var max argmax any cumsum".split()
OTHERS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "sum, axis 0": lambda xp: lambda x, y: xp.sum(x, 0),
    "std, axis 1": lambda xp: lambda x, y: xp.std(x, 1),
    "median": lambda xp: lambda x, y: xp.median(x),
    "sort": lambda xp: lambda x, y: xp.sort(x),
    "argsort": lambda xp: lambda x, y: xp.argsort(x),
    "where": lambda xp: lambda x, y: xp.where(x > 0, x, y),
    "clip": lambda xp: lambda x, y: xp.clip(x, 0.0, 1.0),
    "x[1]": lambda xp: lambda x, y: x[1],
    "x[:, 1:3]": lambda xp: lambda x, y: x[:, 1:3],
    "x[x > 0]": lambda xp: lambda x, y: x[x > 0],
    "take": lambda xp: lambda x, y: xp.take(x, _places(xp), 1),
    "reshape": lambda xp: lambda x, y: xp.reshape(x, (4, 3)),
    "transpose": lambda xp: lambda x, y: xp.transpose(x),
    "concatenate": lambda xp: lambda x, y: xp.concatenate([x, y]),
    "stack": lambda xp: lambda x, y: xp.stack([x, y]),
    "expand_dims": lambda xp: lambda x, y: xp.expand_dims(x, 0),
    "squeeze": lambda xp: lambda x, y: xp.squeeze(x[:1]),
    "flip": lambda xp: lambda x, y: xp.flip(x, 0),
    "roll": lambda xp: lambda x, y: xp.roll(x, 1, 0),
    "repeat": lambda xp: lambda x, y: xp.repeat(x, 2, 0),
    "tile": lambda xp: lambda x, y: xp.tile(x, (2, 1)),
    "pad": lambda xp: lambda x, y: xp.pad(x, 1),
    "broadcast_to": lambda xp: lambda x, y: xp.broadcast_to(x, (2, 3, 4)),
    "x @ y.T": lambda xp: lambda x, y: x @ y.T,
    "einsum": lambda xp: lambda x, y: xp.einsum("ij,kj->ik", x, y),
    "outer": lambda xp: lambda x, y: xp.outer(x[0], y[0]),
    "zeros": lambda xp: lambda x, y: xp.zeros((3, 4), "float32"),
    "arange": lambda xp: lambda x, y: xp.arange(12),
    "linspace": lambda xp: lambda x, y: xp.linspace(0.0, 1.0, 12),
    "interp": lambda xp: lambda x, y: xp.interp(x[0], _ticks(xp), y[0]),
    "searchsorted": lambda xp: lambda x, y: xp.searchsorted(_ticks(xp), x[0]),
    "digitize": lambda xp: lambda x, y: xp.digitize(x[0], _ticks(xp)),
    "bincount": lambda xp: lambda x, y: xp.bincount(_counts(xp)),
    "histogram": lambda xp: lambda x, y: xp.histogram(x, 4),
    "unique": lambda xp: lambda x, y: xp.unique(_counts(xp)),
    "isin": lambda xp: lambda x, y: xp.isin(_counts(xp), _places(xp)),
    "nonzero": lambda xp: lambda x, y: xp.nonzero(x > 1),
    "argwhere": lambda xp: lambda x, y: xp.argwhere(x > 1),
    "compress": lambda xp: lambda x, y: xp.compress(x[0] > 1, x, 1),
    "take_along_axis": lambda xp: (
        lambda x, y: xp.take_along_axis(x, xp.argsort(x, 1), 1)
    ),
    "delete": lambda xp: lambda x, y: xp.delete(x, 1, 1),
    "insert": lambda xp: lambda x, y: xp.insert(x[0], 1, 2.0),
    "append": lambda xp: lambda x, y: xp.append(x, y),
    "convolve": lambda xp: lambda x, y: xp.convolve(x[0], y[0]),
    "gcd": lambda xp: lambda x, y: xp.gcd(_counts(xp), _counts(xp)),
    "astype": lambda xp: lambda x, y: x.astype("int32"),
    "diff": lambda xp: lambda x, y: xp.diff(x),
    "gradient": lambda xp: lambda x, y: xp.gradient(x[0]),
    "trapezoid": lambda xp: lambda x, y: xp.trapezoid(x),
    "cov": lambda xp: lambda x, y: xp.cov(x),
    "cross": lambda xp: lambda x, y: xp.cross(x[:, :3], y[:, :3]),
    "quantile": lambda xp: lambda x, y: xp.quantile(x, 0.3),
    "nanmean": lambda xp: lambda x, y: xp.nanmean(x),
    "unravel_index": lambda xp: lambda x, y: xp.unravel_index(_counts(xp), (3, 4)),
    "solve": lambda xp: lambda x, y: xp.linalg.solve(x[:, :3], y),
    "det": lambda xp: lambda x, y: xp.linalg.det(x[:, :3]),
    "norm": lambda xp: lambda x, y: xp.linalg.norm(x),
}


def _places(xp: Any) -> Any:
    return np.array([0, 2]) if xp is np else xp.array([0, 2])


def _ticks(xp: Any) -> Any:
    ticks = np.array([0.0, 0.5, 1.0, 1.5], np.float32)
    return ticks if xp is np else xp.array(ticks)


def _counts(xp: Any) -> Any:
    counts = np.array([3, 1, 4, 1, 5], np.int32)
    return counts if xp is np else xp.array(counts)


def _unary(name: str) -> Callable[[Any], Callable[..., Any]]:
    return lambda xp: lambda x, y: getattr(xp, name)(x)


def _binary(name: str) -> Callable[[Any], Callable[..., Any]]:
    return lambda xp: lambda x, y: getattr(xp, name)(x, y)


def _inputs(rng: np.random.Generator) -> tuple[Any, ...]:
    x, y = rng.uniform(0.1, 2, (2, 3, 4)).astype(np.float32)
    return x, y


def cases(quick: bool) -> list[Case]:
    """A case for each function."""
    functions = {
        **{name: _unary(name) for name in (*UNARY, *FOLDS)},
        **{name: _binary(name) for name in BINARY},
        **OTHERS,
    }
    return [
        Case(name, _inputs, {library: eager(f) for library in LIBRARIES})
        for name, f in functions.items()
    ]


def remarks(rows: Sequence[Row]) -> list[str]:
    """Which functions take more than so many times as long as NumPy's."""
    ratios = {row.name: row.ratio("numpy") for row in rows}
    over = {name: ratio for name, ratio in ratios.items() if ratio and ratio > FACTOR}
    listed = [
        f"{n} ({r:.1f})" for n, r in sorted(over.items(), key=lambda pair: -pair[1])
    ]
    text = ", ".join(listed) or "none"
    return [f"{len(over)} of {len(rows)} over {FACTOR} times NumPy: {text}"]
