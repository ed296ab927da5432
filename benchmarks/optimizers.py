"""Updates of a small network's parameters: 784-512-512-10, each optimizer alone.

Receives whether to be quick (no difference here), gives cases: one update of parameters
and state from given gradients, as `fnx.optim` and optax make it. The limit is the
traffic of gradients, parameters and state, each once. Next on the walk: `gpt.py`.
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both

SIZES = (784, 512, 512, 10)
RATE = 1e-3
# arrays as large as the parameters that an update reads and writes: parameters twice,
# gradients, and what the optimizer remembers, twice
PASSES = {
    "sgd": 3,
    "adam": 7,
    "adamw": 7,
    "adagrad": 5,
    "rmsprop": 5,
    "adabelief": 7,
    "lamb": 7,
    "lion": 5,
    "adafactor": 3,
    "sm3": 5,
}


def data(rng: np.random.Generator) -> Inputs:
    """Parameters and gradients, lists of dicts."""

    def draw() -> Inputs:
        return [
            {
                "w": rng.standard_normal((m, n), dtype=np.float32),
                "b": rng.standard_normal(n, dtype=np.float32),
            }
            for m, n in itertools.pairwise(SIZES)
        ]

    return draw(), draw()


def updating(name: str) -> Build:
    """Build a run of one update of the optimizer of this name, from the same state."""

    def build(library: Any, inputs: Inputs) -> Run:
        home = "fnx.optim" if library.__name__ == "fnx" else "optax"
        optim: Any = importlib.import_module(home)
        params, grads = inputs
        optimizer = getattr(optim, name)(RATE)
        state = optimizer.init(params)

        def step(params: Any, state: Any, grads: Any) -> Any:
            updates, state = optimizer.update(grads, state, params)
            return optim.apply_updates(params, updates), state

        jitted = library.jit(step)
        return lambda: jitted(params, state, grads)[0]

    return build


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    del quick  # an update takes less than a millisecond
    size = sum(m * n + n for m, n in itertools.pairwise(SIZES))
    return [
        Case(name, data, both(updating(name)), tolerance=1e-4, moved=4 * size * passes)
        for name, passes in PASSES.items()
    ]
