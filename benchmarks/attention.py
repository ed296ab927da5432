"""Attention of long and short sequences, with and without a bound, and its gradient.

Receives whether to be quick (short sequences), gives cases: `dot_product_attention`,
and the gradient of a weighted sum by queries, keys and values. PyTorch's is
`scaled_dot_product_attention`, of arrays in its own order of axes. Next on the walk:
`collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, on_arguments

Shape = tuple[int, int, int, int]
"""Batch, positions, heads, and numbers of a head."""

SHAPES: tuple[Shape, ...] = ((8, 128, 4, 64), (4, 512, 8, 64), (1, 2048, 8, 64))
SHAPES += ((1, 4096, 4, 64),)
QUICK: tuple[Shape, ...] = ((2, 128, 4, 32), (1, 512, 2, 32))

SEEN = {"all": {}, "causal": {"is_causal": True}}
WINDOW = 256


def attention(library: Any, **options: Any) -> Callable[..., Any]:
    """The function of queries, keys and values."""
    return lambda q, k, v: library.nn.dot_product_attention(q, k, v, **options)


def forward(**options: Any) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        return on_arguments(library.jit(attention(library, **options)), inputs[1:])

    return build


def gradient(**options: Any) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        function = attention(library, **options)

        def loss(weights: Any, *arguments: Any) -> Any:
            return (function(*arguments) * weights).sum()

        return on_arguments(library.jit(library.grad(loss, (1, 2, 3))), inputs)

    return build


def torch_attention(torch: Any, **options: Any) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        ordered = [x.transpose(1, 2) for x in arguments]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*ordered, **options).transpose(1, 2)

    return function


def torch_forward(**options: Any) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        return on_arguments(torch_attention(torch, **options), inputs[1:])

    return build


def torch_gradient(**options: Any) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        function, weights = torch_attention(torch, **options), inputs[0]
        arguments = [argument.requires_grad_() for argument in inputs[1:]]

        def run() -> Any:
            return torch.autograd.grad(
                (function(*arguments) * weights).sum(), arguments
            )

        return run

    return build


def inputs_of(shape: Shape) -> Callable[[np.random.Generator], Inputs]:
    """Weights, queries, keys and values."""

    def draw(rng: np.random.Generator) -> Inputs:
        return tuple(rng.standard_normal(shape, dtype=np.float32) for _ in range(4))

    return draw


def work(shape: Shape, products: int) -> int:
    """Floating-point operations of so many products of positions with positions."""
    batch, length, heads, width = shape
    return 2 * products * batch * heads * length * length * width


def cases_of(shape: Shape) -> list[Case]:
    found, size = [], "x".join(map(str, shape))
    for name, options in SEEN.items():
        rows = (
            ("", forward, torch_forward, 2),
            ("gradient of ", gradient, torch_gradient, 5),
        )
        for what, build, torch_build, products in rows:
            own, part = both(build(**options)), 2 if options else 1
            found.append(
                Case(
                    f"{what}attention to {name}, {size}",
                    inputs_of(shape),
                    own | {"torch": torch_build(**options)},
                    tolerance=1e-4,
                    flops=work(shape, products) // part,
                )
            )
    return found


def windowed(shape: Shape) -> list[Case]:
    """Attention to some positions before: PyTorch has a mask for it."""
    size = "x".join(map(str, shape))
    options = {"local_window_size": (WINDOW, 0)}
    builds = ("", forward), ("gradient of ", gradient)
    return [
        Case(
            f"{what}attention to {WINDOW} before, {size}",
            inputs_of(shape),
            both(build(**options)),
            tolerance=1e-4,
        )
        for what, build in builds
    ]


def cases(quick: bool) -> list[Case]:
    """All of them."""
    shapes = QUICK if quick else SHAPES
    return [*[case for s in shapes for case in cases_of(s)], *windowed(shapes[-1])]
