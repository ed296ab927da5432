"""A training step of a small network: 784-512-512-10, batch 128, SGD and Adam.

Receives whether to be quick (no difference here), gives cases: the whole step (forward,
backward, update) as a training loop calls it, on the last step's parameters, and the
gradients of every example of the batch. fnx and JAX run the same text. Next on the
walk: `optimizers.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, leaves

SIZES = (784, 512, 512, 10)
BATCH = 128
RATE = 1e-3
DECAY = (0.9, 0.999)
EPSILON = 1e-8


def data(rng: np.random.Generator) -> Inputs:
    """Parameters (a list of dicts), a batch of images and one-hot labels."""
    params = [
        {
            "w": rng.standard_normal((m, n), dtype=np.float32) / np.float32(m**0.5),
            "b": np.zeros(n, np.float32),
        }
        for m, n in itertools.pairwise(SIZES)
    ]
    x = rng.standard_normal((BATCH, SIZES[0]), dtype=np.float32)
    y = np.eye(SIZES[-1], dtype=np.float32)[rng.integers(SIZES[-1], size=BATCH)]
    return params, x, y


# ---------------------------------------------------------------- fnx and JAX


def loss_function(library: Any) -> Any:
    def loss(params: Any, x: Any, y: Any) -> Any:
        for layer in params[:-1]:
            x = library.nn.relu(x @ layer["w"] + layer["b"])
        logits = x @ params[-1]["w"] + params[-1]["b"]
        return -(y * library.nn.log_softmax(logits, axis=-1)).sum(-1).mean()

    return loss


def sgd(library: Any, params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
    return library.tree.map(lambda p, g: p - RATE * g, params, grads), state


def adam(
    library: Any, params: Any, state: Any, grads: Any, rate: float = RATE
) -> tuple[Any, Any]:
    first, second, count = state
    (b1, b2), tree_map = DECAY, library.tree.map
    count = count + 1
    first = tree_map(lambda m, g: b1 * m + (1 - b1) * g, first, grads)
    second = tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, second, grads)

    def update(p: Any, m: Any, v: Any) -> Any:
        scale = rate / (1 - b1**count)
        return p - scale * m / (library.numpy.sqrt(v / (1 - b2**count)) + EPSILON)

    return tree_map(update, params, first, second), (first, second, count)


def initial_state(library: Any, params: Any) -> Any:
    zeros = library.tree.map(library.numpy.zeros_like, params)
    return zeros, zeros, library.numpy.float32(0)


def step(library: Any, loss_function: Any, update: Any) -> Any:
    """A training step of a loss: forward, backward, update."""
    gradient = library.value_and_grad(loss_function)

    def function(params: Any, state: Any, *batch: Any) -> Any:
        loss, grads = gradient(params, *batch)
        return loss, *update(library, params, state, grads)

    return function


def training(update: Any) -> Build:
    """Build a run that takes one training step further at each call."""

    def build(library: Any, inputs: Inputs) -> Run:
        params, x, y = inputs
        state = initial_state(library, params)
        train = library.jit(step(library, loss_function(library), update))

        def run() -> Any:
            nonlocal params, state
            loss, params, state = train(params, state, x, y)
            return loss, params

        return run

    return build


def example_gradients(library: Any, inputs: Inputs) -> Run:
    """A run of the gradients of each example: the batch axis is the first of all."""
    gradient = library.grad(loss_function(library))
    each = library.jit(library.vmap(gradient, in_axes=(None, 0, 0)))
    return lambda: each(*inputs)


# ---------------------------------------------------------------- PyTorch


def torch_logits(torch: Any, layers: Any, x: Any) -> Any:
    for layer in layers[:-1]:
        x = torch.relu(torch.nn.functional.linear(x, layer["w"].T, layer["b"]))
    return torch.nn.functional.linear(x, layers[-1]["w"].T, layers[-1]["b"])


def torch_training(optimizer: str, **options: Any) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        layers, x, y = inputs
        parameters = [leaf.requires_grad_() for leaf in leaves(layers)]
        update = getattr(torch.optim, optimizer)(parameters, lr=RATE, **options)

        def run() -> Any:
            update.zero_grad()
            logits = torch_logits(torch, layers, x)
            loss = torch.nn.functional.cross_entropy(logits, y)
            loss.backward()
            update.step()
            return loss, layers

        return run

    return build


def torch_example_gradients(torch: Any, inputs: Inputs) -> Run:
    def loss(layers: Any, x: Any, y: Any) -> Any:
        return -(y * torch.log_softmax(torch_logits(torch, layers, x), -1)).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return lambda: each(*inputs)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    del quick  # a step takes milliseconds
    weights = sum(m * n for m, n in itertools.pairwise(SIZES))
    # forward, input gradient (not of the first layer) and weight gradient
    flops = 2 * BATCH * (3 * weights - SIZES[0] * SIZES[1])
    return [
        Case(
            "SGD step",
            data,
            both(training(sgd)) | {"torch": torch_training("SGD")},
            tolerance=1e-4,
            flops=flops,
        ),
        Case(
            "Adam step",
            data,
            both(training(adam))
            | {"torch": torch_training("Adam", betas=DECAY, eps=EPSILON)},
            tolerance=1e-3,  # Adam divides by gradients that are nearly zero
            flops=flops,
        ),
        Case(
            "gradient of each example",
            data,
            both(example_gradients) | {"torch": torch_example_gradients},
            tolerance=1e-4,
            moved=4 * BATCH * weights,  # they are written: half of a copy's traffic
        ),
    ]
