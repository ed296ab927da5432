"""Functions that normalise rows (softmax, layer norm, their kin), and their gradients.

Receives whether to be quick (smaller arrays), gives cases: each function, and the
gradient of its weighted sum by its input and its parameters. fnx and JAX run the same
text, PyTorch its own operators. Next on the walk: `movement.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, on_arguments

EPSILON = 1e-5


def softmax(library: Any) -> Any:
    return lambda x: library.nn.softmax(x, axis=-1)


def log_softmax(library: Any) -> Any:
    return lambda x: library.nn.log_softmax(x, axis=-1)


def layer_norm(library: Any) -> Any:
    def function(x: Any, scale: Any, bias: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / library.numpy.sqrt(variance + EPSILON) * scale + bias

    return function


def rms_norm(library: Any) -> Any:
    def function(x: Any, scale: Any) -> Any:
        square = (x * x).mean(axis=-1, keepdims=True)
        return x / library.numpy.sqrt(square + EPSILON) * scale

    return function


def torch_softmax(torch: Any) -> Any:
    return lambda x: torch.nn.functional.softmax(x, -1)


def torch_log_softmax(torch: Any) -> Any:
    return lambda x: torch.nn.functional.log_softmax(x, -1)


def torch_layer_norm(torch: Any) -> Any:
    norm = torch.nn.functional.layer_norm
    return lambda x, scale, bias: norm(x, x.shape[-1:], scale, bias, EPSILON)


def torch_rms_norm(torch: Any) -> Any:
    norm = torch.nn.functional.rms_norm
    return lambda x, scale: norm(x, x.shape[-1:], scale, EPSILON)


@dataclass(frozen=True)
class Norm:
    """A function of rows and of so many parameters as wide as a row."""

    name: str
    parameters: int
    make: Callable[[Any], Any]
    torch_make: Callable[[Any], Any]


NORMS = (
    Norm("softmax", 0, softmax, torch_softmax),
    Norm("log-softmax", 0, log_softmax, torch_log_softmax),
    Norm("layer norm", 2, layer_norm, torch_layer_norm),
    Norm("RMS norm", 1, rms_norm, torch_rms_norm),
)


def forward(make: Callable[[Any], Any]) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        function = make(library)
        if library.__name__ != "torch":
            function = library.jit(function)
        return on_arguments(function, inputs[1:])

    return build


def gradient(make: Callable[[Any], Any]) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        function = make(library)

        def loss(weights: Any, *arguments: Any) -> Any:
            return (function(*arguments) * weights).sum()

        by = tuple(range(1, len(inputs)))
        return on_arguments(library.jit(library.grad(loss, argnums=by)), inputs)

    return build


def torch_gradient(make: Callable[[Any], Any]) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        function, weights = make(torch), inputs[0]
        arguments = [argument.requires_grad_() for argument in inputs[1:]]

        def run() -> Any:
            loss = (function(*arguments) * weights).sum()
            return torch.autograd.grad(loss, arguments)

        return run

    return build


def inputs_of(
    norm: Norm, rows: int, width: int
) -> Callable[[np.random.Generator], Inputs]:
    """Weights, x and the parameters."""

    def draw(rng: np.random.Generator) -> Inputs:
        shapes = [(rows, width)] * 2 + [(width,)] * norm.parameters
        return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)

    return draw


def cases_of(norm: Norm, rows: int, width: int) -> list[Case]:
    size, inputs = f"{rows}x{width}", inputs_of(norm, rows, width)
    return [
        Case(
            f"{norm.name}, {size}",
            inputs,
            both(forward(norm.make)) | {"torch": forward(norm.torch_make)},
            tolerance=1e-4,
            moved=8 * rows * width,
        ),
        Case(
            f"gradient of {norm.name}, {size}",
            inputs,
            both(gradient(norm.make)) | {"torch": torch_gradient(norm.torch_make)},
            tolerance=1e-4,
            moved=12 * rows * width,  # reads x and the weights, writes the gradient
        ),
    ]


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sizes = [(512, 512), (8192, 64)] if quick else [(1024, 1024), (65536, 64)]
    return [case for size in sizes for norm in NORMS for case in cases_of(norm, *size)]
