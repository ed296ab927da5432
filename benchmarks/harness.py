"""Runs one question under several libraries and says how they compare.

Receives `Case`s: inputs and, for each library, a function that builds what is timed.
Outputs are compared before anything is timed; repeats are interleaved (A B A B …) after
a warm-up, every result is waited for, medians are reported, and beside them the limit
that the machine sets (measured copy time and matrix-product rate of the same run).
An absent library is a blank column. Next on the walk: `dispatch.py`.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import itertools
import json
import math
import operator
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

COLUMNS = ("fnx", "jax", "torch", "numpy")
Inputs = tuple[Any, ...]
Run = Callable[[], Any]
Build = Callable[[Any, Inputs], Run]
Unit = Literal["seconds", "bytes"]

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the peers are measured on the CPU
# What this process compiles it has to compile: nothing may be found on disk.
NO_DISK_CACHE = {"FNX_DISK_CACHE": "0", "JAX_ENABLE_COMPILATION_CACHE": "false"}


@dataclass(frozen=True)
class Case:
    """One row of a table: the same computation under several libraries.

    `inputs` draws NumPy arrays (in nested dicts, lists, tuples); `columns[library]`
    receives the library and its own copies of the inputs and gives the function of no
    arguments that is timed. `moved` (bytes) and `flops` (of `dtype`) are what any
    implementation has to do: they give the limit. `once` times single calls, each after
    `before(library)`; with `reported` a call measures itself and gives `Reported`; of a
    `single` case, too slow for more, the call that is compared is the only sample.
    Everything of a library happens inside `scope(library)`.
    """

    name: str
    inputs: Callable[[np.random.Generator], Inputs]
    columns: Mapping[str, Build]
    tolerance: float = 1e-5
    moved: int = 0
    flops: int = 0
    dtype: str = "float32"
    once: bool = False
    reported: bool = False
    single: bool = False
    unit: Unit = "seconds"
    before: Callable[[Any], None] = lambda library: None
    scope: Callable[[Any], AbstractContextManager[Any]] = lambda library: nullcontext()


class Reported(NamedTuple):
    """What a call gave, and what it measured about itself."""

    outputs: Any
    measured: float


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds of one sample, and rounds of all columns; no more
    than the `least` rounds once a case has taken `budget` seconds.
    """

    sample: float
    rounds: int
    least: int
    budget: float


FULL = Effort(sample=0.02, rounds=15, least=3, budget=5.0)
QUICK = Effort(sample=0.003, rounds=5, least=1, budget=0.5)


@dataclass
class Row:
    """What was measured for a case: samples (seconds a call, bytes) of each library."""

    name: str
    unit: Unit = "seconds"
    samples: dict[str, list[float]] = field(default_factory=dict)
    limit: float | None = None
    errors: dict[str, str] = field(default_factory=dict)

    def median(self, column: str) -> float | None:
        """The median sample, or None where the library is absent or failed."""
        times = self.samples.get(column)
        return statistics.median(times) if times else None

    def ratio(self, peer: str) -> float | None:
        """The time of fnx over the time of a peer: below 1, fnx is faster."""
        ours, theirs = self.median("fnx"), self.median(peer)
        return ours / theirs if ours and theirs else None


# ---------------------------------------------------------------- building columns


def on_arguments(function: Callable[..., Any], inputs: Inputs) -> Run:
    """The call of a function on its inputs."""
    if len(inputs) == 1:
        (only,) = inputs
        return lambda: function(only)
    return lambda: function(*inputs)


def eager(make: Callable[[Any], Callable[..., Any]]) -> Build:
    """Build a column that calls `make(namespace)` as it is."""
    return lambda library, inputs: on_arguments(make(namespace(library)), inputs)


def jitted(make: Callable[[Any], Callable[..., Any]]) -> Build:
    """Build a column that calls `make(namespace)` compiled by the library's `jit`."""

    def build(library: Any, inputs: Inputs) -> Run:
        return on_arguments(library.jit(make(namespace(library))), inputs)

    return build


def everywhere(make: Callable[[Any], Callable[..., Any]]) -> dict[str, Build]:
    """The same text under all libraries: compiled by fnx and JAX, eager elsewhere."""
    return both(jitted(make)) | dict.fromkeys(("torch", "numpy"), eager(make))


def both(build: Build) -> dict[str, Build]:
    """The same text under the two libraries that have the same functions."""
    return dict.fromkeys(("fnx", "jax"), build)


def namespace(library: Any) -> Any:
    """Where a library keeps NumPy's functions."""
    return library.numpy if library.__name__ in ("fnx", "jax") else library


def normal(*shape: int) -> Callable[[np.random.Generator], Inputs]:
    """Inputs: one float32 array of unit variance."""
    return normals(shape)


def normals(
    *shapes: Sequence[int], dtype: Any = np.float32
) -> Callable[[np.random.Generator], Inputs]:
    """Inputs: arrays of unit variance."""
    return lambda rng: tuple(rng.standard_normal(shape, dtype) for shape in shapes)


# ---------------------------------------------------------------- libraries


def load(column: str) -> Any | None:
    """The library of a column, or None where it is not installed."""
    try:
        library = importlib.import_module(column)
        if column in ("fnx", "jax"):
            importlib.import_module(f"{column}.numpy")
    except ImportError:
        return None
    if column == "torch":
        library.set_num_threads(cores())
    return library


def installed(module: str) -> bool:
    """Whether a module that a column needs beside its library is there."""
    return importlib.util.find_spec(module) is not None


def cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def put(library: Any, tree: Any) -> Any:
    """A tree of NumPy arrays as the library's own arrays (own copies)."""
    match tree:
        case dict():
            return {key: put(library, value) for key, value in tree.items()}
        case list() | tuple():
            return type(tree)(put(library, value) for value in tree)
    if library.__name__ == "torch":
        return library.from_numpy(tree.copy())
    return namespace(library).array(tree)


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree of dicts, lists and tuples; dicts by their sorted keys."""
    match tree:
        case dict():
            return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
        case list() | tuple():
            return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def fetch(result: Any) -> list[np.ndarray]:
    """The leaves of a result as NumPy arrays; waits for them."""
    if isinstance(result, Reported):
        result = result.outputs
    return [
        np.array(leaf.detach() if hasattr(leaf, "detach") else leaf)
        for leaf in leaves(result)
    ]


def waiter(library: Any, result: Any) -> Callable[[Any], Any] | None:
    """What waits for results like this one; None where calls return finished arrays."""
    if hasattr(result, "block_until_ready"):
        return operator.methodcaller("block_until_ready")
    return getattr(library, "block_until_ready", None)


# ---------------------------------------------------------------- measuring


@dataclass
class Column:
    """A library that takes part in a case, ready to be timed."""

    name: str
    library: Any
    case: Case
    run: Run
    wait: Callable[[Any], Any] | None
    calls: int = 1

    def sample(self) -> float:
        """Seconds a call: the mean of `calls` calls in a row, each waited for."""
        with self.case.scope(self.library):
            if self.case.reported:
                return self.run().measured
            return self._seconds() / self.calls

    def _seconds(self) -> float:
        run, wait, calls = self.run, self.wait, itertools.repeat(None, self.calls)
        collecting = gc.isenabled()
        gc.disable()
        try:
            start = time.perf_counter()
            if wait is None:
                for _ in calls:
                    run()
            else:
                for _ in calls:
                    wait(run())
            return time.perf_counter() - start
        finally:
            if collecting:
                gc.enable()


def measure(case: Case, effort: Effort, seed: int, columns: Sequence[str]) -> Row:
    """Compare the outputs of a case, then time it."""
    inputs = case.inputs(np.random.default_rng(seed))
    row = Row(case.name, case.unit)
    running = list(_start(case, inputs, row, columns))
    if not case.single:
        _sample(case, effort, running, row)
    row.limit = physical_limit(case)
    return row


def _sample(case: Case, effort: Effort, running: Sequence[Column], row: Row) -> None:
    """Time the columns in turns."""
    for column in running:
        _warm_up(column, effort)
    end = time.perf_counter() + effort.budget
    for turn in range(effort.rounds):
        if turn >= effort.least and time.perf_counter() > end:
            break
        for column in running:
            case.before(column.library)
            row.samples.setdefault(column.name, []).append(column.sample())


def _start(
    case: Case, inputs: Inputs, row: Row, columns: Sequence[str]
) -> Iterator[Column]:
    """The columns that run and agree with the first of the peers that does."""
    expected: list[np.ndarray] | None = None
    for name in sorted(columns, key=COLUMNS.index, reverse=True):
        library = load(name) if name in case.columns else None
        if library is None:
            continue
        try:
            with case.scope(library):
                case.before(library)
                run = case.columns[name](library, put(library, inputs))
                start = time.perf_counter()
                result = run()
                values = fetch(result)
                seconds = time.perf_counter() - start
            expected = values if expected is None else expected
            _compare(values, expected, case.tolerance)
        except Exception as error:
            row.errors[name] = " ".join([type(error).__name__, *str(error).split()])
            continue
        if case.single:
            row.samples[name] = [result.measured if case.reported else seconds]
        yield Column(name, library, case, run, waiter(library, result))


def _compare(
    values: list[np.ndarray], expected: list[np.ndarray], tolerance: float
) -> None:
    if len(values) != len(expected):
        raise ValueError(f"{len(values)} outputs where the peer has {len(expected)}")
    for value, other in zip(values, expected, strict=True):
        scale = float(np.max(np.abs(other), initial=1e-30))
        np.testing.assert_allclose(
            value, other, rtol=tolerance, atol=tolerance * scale, verbose=False
        )


def _warm_up(column: Column, effort: Effort) -> None:
    """Run until the time settles and choose how many calls make a sample."""
    if column.case.once or column.case.reported:
        return
    # The first calls compile, some libraries once more for the call itself; a sample
    # that holds a compilation would pass for a slow call.
    end = time.perf_counter() + 10 * effort.sample
    for _ in range(200):
        column.sample()
        if time.perf_counter() > end:
            break
    while (seconds := column.sample() * column.calls) < effort.sample:
        grow = 2 if seconds == 0 else min(10.0, 1.2 * effort.sample / seconds)
        column.calls = math.ceil(column.calls * max(grow, 1.2))


# ---------------------------------------------------------------- limits of the machine


def physical_limit(case: Case) -> float | None:
    """The seconds that the machine needs for a case's traffic and arithmetic alone."""
    limits = []
    if case.moved:
        limits.append(copy_time(case.moved))
    if case.flops:
        limits.append(case.flops / matmul_rate(case.dtype))
    return max(limits, default=None)


_limits: dict[Any, float] = {}


def copy_time(moved: int) -> float:
    """Seconds to move so many bytes (half read, half written), by the better of one
    thread and all: measured once a size.
    """
    if moved not in _limits:
        source = np.ones(max(moved // 8, 1), np.float32)
        target = np.zeros_like(source)
        parts = [np.array_split(array, cores()) for array in (target, source)]
        with ThreadPoolExecutor(cores()) as pool:
            alone = _best(lambda: np.copyto(target, source))
            together = _best(lambda: list(pool.map(np.copyto, *parts)))
        _limits[moved] = min(alone, together)
    return _limits[moved]


def matmul_rate(dtype: str, size: int = 1024) -> float:
    """Floating-point operations a second of a matrix product."""
    if dtype not in _limits:
        x = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
        _limits[dtype] = 2 * size**3 / _best(lambda: x @ x)
    return _limits[dtype]


def _best(run: Run, repeats: int = 7) -> float:
    """Seconds of the fastest of a few calls: a limit is what can be reached."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


# ---------------------------------------------------------------- reports


def table(title: str, rows: Sequence[Row]) -> str:
    """The rows as text: times, fnx over the best peer, the limit of the machine."""
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    text = [f"\n{title}"]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [
            cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
        ]
        text.append("  ".join(cells).rstrip())
    text.insert(2, "-" * max(map(len, text)))
    text += [
        f"{row.name}, {column}: {error[:200]}"
        for row in rows
        for column, error in row.errors.items()
    ]
    return "\n".join(text)


HEAD = ["case", *COLUMNS, "fnx / best peer", "limit"]


def _cells(row: Row) -> list[str]:
    """What a table shows of a row, in the order of `HEAD`."""
    medians = {column: row.median(column) for column in COLUMNS}
    peers = COLUMNS[1:]
    ratios = [ratio for peer in peers if (ratio := row.ratio(peer)) is not None]
    times = [
        "failed" if c in row.errors else amount(medians[c], row.unit) for c in COLUMNS
    ]
    worst = f"{max(ratios):.2f}" if ratios else ""
    return [row.name, *times, worst, amount(row.limit, row.unit)]


def markdown(tables: Mapping[str, Sequence[Row]]) -> str:
    """All rows as one table for a README, with the question before each case."""
    lines = [["", *HEAD], ["---"] * (len(HEAD) + 1)]
    for title, rows in tables.items():
        cells = map(_cells, rows)
        lines += [[title if not n else "", *row] for n, row in enumerate(cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def amount(value: float | None, unit: Unit) -> str:
    """A time or a memory size in the unit that reads best; '' for None."""
    if value is None:
        return ""
    if unit == "bytes":
        return f"{value / 1e6:.3g} MB"
    for name, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value * 1e9:.3g} ns"


def report(
    tables: Mapping[str, Sequence[Row]],
    remarks: Mapping[str, Sequence[str]],
    seed: int,
    quick: bool,
) -> dict[str, Any]:
    """Everything measured, with the machine and the versions, ready for JSON."""
    versions = {
        name: getattr(sys.modules[name], "__version__", None)
        for name in COLUMNS
        if name in sys.modules
    }
    machine = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": cores(),
        "versions": versions,
    }
    rows = {
        title: [
            {
                "case": row.name,
                "unit": row.unit,
                "medians": {c: row.median(c) for c in row.samples},
                "fnx_over": {c: row.ratio(c) for c in row.samples if c != "fnx"},
                "limit": row.limit,
                "samples": row.samples,
                "errors": row.errors,
            }
            for row in measured
        ]
        for title, measured in tables.items()
    }
    return {
        "machine": machine,
        "seed": seed,
        "quick": quick,
        "tables": rows,
        "remarks": remarks,
    }


def write_json(file: str, content: dict[str, Any]) -> None:
    """Write a report."""
    Path(file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def plot(file: str, tables: Mapping[str, Sequence[Row]]) -> None:
    """Draw each library's time, relative to the fastest of its row, as bars."""
    import matplotlib  # lazy: only a run that asks for a plot needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot  # lazy: after the choice of the drawing backend

    rows = [row for measured in tables.values() for row in measured if row.samples]
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.6 * len(rows)))
    for shift, column in enumerate(COLUMNS):
        times = [row.median(column) for row in rows]
        fastest = [
            min(statistics.median(s) for s in row.samples.values()) for row in rows
        ]
        places = [i + 0.2 * shift for i, t in enumerate(times) if t is not None]
        bars = [t / f for t, f in zip(times, fastest, strict=True) if t is not None]
        axes.barh(places, bars, height=0.18, label=column)
    axes.set_yticks([i + 0.3 for i in range(len(rows))], [row.name for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time relative to the fastest")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)
