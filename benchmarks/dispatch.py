"""What a call costs when there is next to nothing to compute.

Receives whether to be quick (no difference here), gives cases: a compiled function of
ten floats, the same eagerly, and a compiled function of a tree of 100 small arrays.
Next on the walk: `fusion.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import Case, Inputs, Run, eager, everywhere, normal


def add_one(xp: Any) -> Any:
    return lambda x: x + 1


def nested(rng: np.random.Generator) -> Inputs:
    """One tree: 50 layers of two small arrays in nested dicts."""
    layers = {
        f"layer{n:02}": {
            "w": rng.standard_normal((4, 4), dtype=np.float32),
            "b": rng.standard_normal(4, dtype=np.float32),
        }
        for n in range(50)
    }
    return (layers,)


def doubled_tree(library: Any, inputs: Inputs) -> Run:
    (tree,) = inputs
    double = library.jit(lambda t: library.tree.map(lambda x: x * 2, t))
    return lambda: double(tree)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    del quick  # every case is small
    all_eager = dict.fromkeys(("fnx", "jax", "torch", "numpy"), eager(add_one))
    trees = dict.fromkeys(("fnx", "jax"), doubled_tree)
    return [
        Case("jit(x + 1), 10 floats", normal(10), everywhere(add_one)),
        Case("x + 1 eagerly, 10 floats", normal(10), all_eager),
        Case("jit of tree.map(x * 2), 100 leaves", nested, trees),
    ]
