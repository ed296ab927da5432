"""Reductions, alone and with what comes before and after them in one kernel.

Receives whether to be quick (smaller arrays), gives cases: the sum of squares, row and
column sums, softmax and layer norm. Next on the walk: `mlp.py`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Build, Case, Inputs, Run, eager, everywhere, normal


def sum_of_squares(xp: Any) -> Any:
    return lambda x: xp.sum(x * x)


def row_sums(xp: Any) -> Any:
    return lambda x: x.sum(1)


def column_sums(xp: Any) -> Any:
    return lambda x: x.sum(0)


def softmax(xp: Any) -> Any:
    def function(x: Any) -> Any:
        y = xp.exp(x - x.max(axis=-1, keepdims=True))
        return y / y.sum(axis=-1, keepdims=True)

    return function


def layer_norm(xp: Any) -> Any:
    def function(x: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / xp.sqrt(variance + 1e-5)

    return function


def library_softmax(library: Any, inputs: Inputs) -> Run:
    """The library's own softmax: jitted under fnx and JAX, one operator in PyTorch."""
    (x,) = inputs
    if library.__name__ == "torch":
        return lambda: library.softmax(x, -1)
    function = library.jit(lambda x: library.nn.softmax(x, axis=-1))
    return lambda: function(x)


def torch_layer_norm(library: Any, inputs: Inputs) -> Run:
    (x,) = inputs
    return lambda: library.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sizes = {"1e6": 10**6} if quick else {"1e6": 10**6, "1e7": 10**7}
    side = 512 if quick else 1024
    square, elements = normal(side, side), side * side
    soft: dict[str, Build] = dict.fromkeys(("fnx", "jax", "torch"), library_softmax)
    soft["numpy"] = eager(softmax)
    norm = everywhere(layer_norm) | {"torch": torch_layer_norm}
    # a sum only reads: its traffic is half of a copy's
    sums = [
        Case(
            f"sum(x*x), {text}",
            normal(n),
            everywhere(sum_of_squares),
            tolerance=1e-4,
            moved=4 * n,
        )
        for text, n in sizes.items()
    ]
    named = [
        ("row sums", everywhere(row_sums), 4),
        ("column sums", everywhere(column_sums), 4),
        ("softmax", soft, 8),
        ("layer norm", norm, 8),
    ]
    return sums + [
        Case(
            f"{name}, {side}x{side}",
            square,
            columns,
            tolerance=1e-4,
            moved=per_element * elements,
        )
        for name, columns, per_element in named
    ]
