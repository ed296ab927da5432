"""What a call costs when there is next to nothing to compute.

Receives whether to be quick (no difference here), gives cases: a compiled function of
ten floats, compiled functions of a tree of 100 small arrays, eager operations on ten
floats, and making arrays from lists and from NumPy. Next on the walk: `dynamic.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import (
    COLUMNS,
    Build,
    Case,
    Inputs,
    Run,
    both,
    eager,
    everywhere,
    installed,
    leaves,
    namespace,
    normal,
    normals,
)

RATE = 1e-3


def nested(rng: np.random.Generator) -> dict[str, Any]:
    """A tree: 50 layers of two small arrays in nested dicts."""
    return {
        f"layer{n:02}": {
            "w": rng.standard_normal((4, 4), dtype=np.float32),
            "b": rng.standard_normal(4, dtype=np.float32),
        }
        for n in range(50)
    }


# ---------------------------------------------------------------- compiled


def add_one(xp: Any) -> Any:
    return lambda x: x + 1


def doubled_tree(library: Any, inputs: Inputs) -> Run:
    (tree,) = inputs
    double = library.jit(lambda t: library.tree.map(lambda x: x * 2, t))
    return lambda: double(tree)


def adam_update(library: Any, inputs: Inputs) -> Run:
    """A run that takes the same gradients one update further at each call."""
    params, grads = inputs
    module = importlib.import_module(
        "optax" if library.__name__ == "jax" else "fnx.optim"
    )
    optimizer = module.adam(RATE)
    state = optimizer.init(params)

    @library.jit
    def update(params: Any, grads: Any, state: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return module.apply_updates(params, updates), state

    def run() -> Any:
        nonlocal params, state
        params, state = update(params, grads, state)
        return params

    return run


def torch_adam_update(torch: Any, inputs: Inputs) -> Run:
    params, grads = inputs
    for leaf, gradient in zip(leaves(params), leaves(grads), strict=True):
        leaf.requires_grad_().grad = gradient
    optimizer = torch.optim.Adam(leaves(params), lr=RATE)

    def run() -> Any:
        optimizer.step()
        return params

    return run


def adam_columns() -> dict[str, Build]:
    columns = {"fnx": adam_update, "torch": torch_adam_update}
    return columns | ({"jax": adam_update} if installed("optax") else {})


# ---------------------------------------------------------------- eager


EAGER: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "x + 1": add_one,
    "sin(x)": lambda xp: xp.sin,
    "x @ y": lambda xp: lambda x, y: x @ y,
    "x[3]": lambda xp: lambda x: x[3],
    "concatenate([x, y])": lambda xp: lambda x, y: xp.concatenate([x, y]),
    "x.reshape(2, 5)": lambda xp: lambda x: x.reshape(2, 5),
}


def eager_case(name: str, make: Callable[[Any], Callable[..., Any]]) -> Case:
    inputs = normals((10,), (10,)) if "y" in name else normal(10)
    return Case(
        f"{name} eagerly, 10 floats", inputs, dict.fromkeys(COLUMNS, eager(make))
    )


# ---------------------------------------------------------------- construction


def from_list(library: Any, inputs: Inputs) -> Run:
    values = np.array(inputs[0]).tolist()
    if library.__name__ == "torch":
        return lambda: library.tensor(values)
    xp = namespace(library)
    return lambda: xp.array(values, dtype=xp.float32)


def copied(library: Any, inputs: Inputs) -> Run:
    source = np.array(inputs[0])
    if library.__name__ == "torch":
        return lambda: library.tensor(source)
    xp = namespace(library)
    return lambda: xp.array(source)


def shared(library: Any, inputs: Inputs) -> Run:
    source, xp = np.array(inputs[0]), namespace(library)
    return lambda: xp.from_dlpack(source)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    del quick  # every case is small
    million = 10**6
    return [
        Case("jit(x + 1), 10 floats", normal(10), everywhere(add_one)),
        Case(
            "jit of tree.map(x * 2), 100 leaves",
            lambda rng: (nested(rng),),
            both(doubled_tree),
        ),
        Case(
            "Adam update, 100 leaves",
            lambda rng: (nested(rng), nested(rng)),
            adam_columns(),
            tolerance=1e-4,
        ),
        *(eager_case(name, make) for name, make in EAGER.items()),
        Case("array(list of 10)", normal(10), dict.fromkeys(COLUMNS, from_list)),
        Case("array(NumPy), 10 floats", normal(10), dict.fromkeys(COLUMNS, copied)),
        Case(
            "array(NumPy), 1e6 floats",
            normal(million),
            dict.fromkeys(COLUMNS, copied),
            moved=8 * million,
        ),
        Case(
            "from_dlpack(NumPy), 1e6 floats",
            normal(million),
            dict.fromkeys(COLUMNS, shared),
        ),
    ]
