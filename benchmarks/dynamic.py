"""One compile for all sizes: what a new size costs, and what a call does at each.

Receives whether to be quick (fewer and smaller sizes), gives cases. "a new size" is the
first call at a size that the function has not seen: under `jit(dynamic=...)` of fnx it
is traced and linked, under JAX compiled anew, under PyTorch run by the code of
`torch.compile(dynamic=True)`. The other cases time calls at a size that is known, by
code for any size and by code for that size alone. Next on the walk: `eager_small.py`.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import (
    Build,
    Case,
    Inputs,
    Reported,
    Row,
    Run,
    namespace,
    normals,
)

F32 = np.float32
Make = Callable[[Any], Callable[..., Any]]

PLAIN, DYNAMIC = " at one size", " at any size"

# ---------------------------------------------------------------- functions of rows


def chain(library: Any) -> Any:
    xp = namespace(library)
    return lambda x: xp.tanh(x) * xp.exp(-x * x) + 0.5 * xp.sin(x)


def softmax(library: Any) -> Any:
    if library.__name__ == "torch":
        return lambda x: library.softmax(x, 1)
    return lambda x: library.nn.softmax(x, 1)


def column_sums(library: Any) -> Any:
    return lambda x: x.sum(0)


def product(library: Any) -> Any:
    return lambda x, w: x @ w


def recurrence(library: Any) -> Any:
    """Rounds of a scan, as many as there are rows."""
    tanh, scan = library.numpy.tanh, library.lax.scan

    def run(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            carry = tanh(carry * F32(0.5) + row)
            return carry, carry

        return scan(body, library.numpy.zeros(x.shape[1:], F32), x)[1]

    return run


def gradient(library: Any) -> Any:
    """The gradient of a small network by its weights, for a batch of rows."""
    xp = library.numpy

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = xp.tanh(x @ w)
        return (x * x).mean()

    slope = library.grad(loss)
    return lambda x, *weights: slope(weights, x)


# ---------------------------------------------------------------- a new size


def sizes() -> Iterator[int]:
    """Sizes that differ, none of which divides by much."""
    return itertools.count(203, 2)


def first_calls(make: Make, compiled: Callable[[Any, Any], Any]) -> Build:
    """Build a run that calls one function at one new size after the other."""

    def build(library: Any, inputs: Inputs) -> Run:
        x, *rest = inputs
        function = compiled(library, make(library))
        numbers = sizes()

        def timed(size: int) -> float:
            part = harness.put(library, np.asarray(x)[:size])
            start = time.perf_counter()
            result = function(part, *rest)
            wait = harness.waiter(library, result)
            if wait is not None:
                wait(result)
            return time.perf_counter() - start

        def run() -> Reported:
            seconds = timed(next(numbers))
            return Reported(function(x, *rest), seconds)

        timed(200)  # the first compile is not what is asked for
        timed(201)
        return run

    return build


def for_any_size(library: Any, function: Any) -> Any:
    """The function compiled for all sizes of the first axis of its first argument."""
    if library.__name__ == "torch":
        return library.compile(function, dynamic=True)
    return library.jit(function, dynamic={"x": 0})


def for_one_size(library: Any, function: Any) -> Any:
    """The function compiled for each size by itself."""
    return library.jit(function)


def new_sizes(name: str, inputs: Any, make: Make, in_torch: bool) -> list[Case]:
    """The case under `jit(dynamic=...)`, and the one under the plain `jit`."""
    anew = first_calls(make, for_one_size)
    columns = {"fnx": first_calls(make, for_any_size), "jax": anew}
    if in_torch and shutil.which("c++"):  # its code is C++
        columns["torch"] = first_calls(make, for_any_size)
    rest: dict[str, Any] = {"tolerance": 1e-4, "reported": True}
    return [
        Case(f"a new size: {name}", inputs, columns, **rest),
        Case(f"  compiled anew: {name}", inputs, {"fnx": anew, "jax": anew}, **rest),
    ]


# ---------------------------------------------------------------- known sizes


def calls(make: Make, compiled: Callable[[Any, Any], Any]) -> Build:
    """Build a run that calls a function at a size that it has seen, among others."""

    def build(library: Any, inputs: Inputs) -> Run:
        x, *rest = inputs
        function = compiled(library, make(library))
        function(harness.put(library, np.asarray(x)[:-1]), *rest)
        return lambda: function(x, *rest)

    return build


def known_sizes(name: str, inputs: Any, make: Make, **rest: Any) -> list[Case]:
    """Calls of code for any size, and of code for one; JAX has the latter alone."""
    one = calls(make, for_one_size)
    return [
        Case(
            f"{name},{way}",
            inputs,
            {"fnx": calls(make, compiled), "jax": one},
            tolerance=1e-4,
            **rest,
        )
        for way, compiled in ((DYNAMIC, for_any_size), (PLAIN, for_one_size))
    ]


# ---------------------------------------------------------------- cases


def network(rows: int) -> Callable[[np.random.Generator], Inputs]:
    """A batch, and the weights of four layers of 64."""

    def draw(rng: np.random.Generator) -> Inputs:
        weights = [rng.standard_normal((64, 64), F32) * F32(0.1) for _ in range(4)]
        return rng.standard_normal((rows, 64), F32), *weights

    return draw


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    found = [
        *new_sizes("tanh-exp-sin chain", normals((2003, 64)), chain, True),
        *new_sizes("softmax", normals((2003, 64)), softmax, True),
        *new_sizes("gradient of a network", network(2003), gradient, False),
    ]
    for rows in (101, 1003) if quick else (101, 1003, 10_007, 100_003):
        table, weights = (rows, 64), (64, 64)
        found += [
            *known_sizes(f"tanh-exp-sin chain, {rows}x64", normals(table), chain),
            *known_sizes(f"softmax, {rows}x64", normals(table), softmax),
            *known_sizes(f"column sums, {rows}x64", normals(table), column_sums),
            *known_sizes(f"x @ w, {rows}x64x64", normals(table, weights), product),
            *known_sizes(f"scan, {rows}x64", normals(table), recurrence),
        ]
    return found


def remarks(rows: list[Row]) -> list[str]:
    """What code for any size takes, relative to code for that size alone."""
    known = {row.name: row.median("fnx") for row in rows}
    ratios: dict[str, list[str]] = {}
    for name, seconds in known.items():
        alone = known.get(name.replace(DYNAMIC, PLAIN))
        if name.endswith(DYNAMIC) and seconds and alone:
            function = name.split(",")[0]
            ratios.setdefault(function, []).append(f"{seconds / alone:.2f}")
    return [
        f"{function}: {', '.join(found)} of the time of code for one size"
        for function, found in ratios.items()
    ]
