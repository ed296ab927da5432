"""A training step of a small network: 784-512-512-10, batch 128, SGD and Adam.

Receives whether to be quick (no difference here), gives cases: the whole step (forward,
backward, update) as a training loop calls it, on the last step's parameters, and the
time to its first result. fnx and JAX run the same text. This is the last question.
"""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run

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


def step_function(library: Any, update: Any) -> Any:
    gradient = library.value_and_grad(loss_function(library))

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = gradient(params, x, y)
        return loss, *update(library, params, state, grads)

    return library.jit(step)


def training(update: Any) -> Build:
    """Build a run that takes one training step further at each call."""

    def build(library: Any, inputs: Inputs) -> Run:
        params, x, y = inputs
        state = initial_state(library, params)
        step = step_function(library, update)

        def run() -> Any:
            nonlocal params, state
            loss, params, state = step(params, state, x, y)
            return loss, params

        return run

    return build


def first_step(library: Any, inputs: Inputs) -> Run:
    """Build a run that makes, compiles and calls a new step function.

    The rate differs by a millionth from call to call, so that no cache has it.
    """
    params, x, y = inputs
    state = initial_state(library, params)

    def run() -> Any:
        update = functools.partial(adam, rate=RATE * (1 + 1e-6 * random.random()))
        loss, new, _ = step_function(library, update)(params, state, x, y)
        return loss, new

    return run


# ---------------------------------------------------------------- PyTorch


def torch_training(optimizer: str, **options: Any) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        layers, x, y = inputs
        leaves = [layer[name].requires_grad_() for layer in layers for name in "bw"]
        update = getattr(torch.optim, optimizer)(leaves, lr=RATE, **options)

        def run() -> Any:
            update.zero_grad()
            hidden = x
            for layer in layers[:-1]:
                hidden = torch.relu(torch.addmm(layer["b"], hidden, layer["w"]))
            logits = torch.addmm(layers[-1]["b"], hidden, layers[-1]["w"])
            loss = torch.nn.functional.cross_entropy(logits, y)
            loss.backward()
            update.step()
            return loss, layers

        return run

    return build


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    del quick  # a step takes milliseconds
    weights = sum(m * n for m, n in itertools.pairwise(SIZES))
    # forward, input gradient (not of the first layer) and weight gradient
    flops = 2 * BATCH * (3 * weights - SIZES[0] * SIZES[1])
    two = ("fnx", "jax")
    return [
        Case(
            "SGD step",
            data,
            dict.fromkeys(two, training(sgd)) | {"torch": torch_training("SGD")},
            tolerance=1e-4,
            flops=flops,
        ),
        Case(
            "Adam step",
            data,
            dict.fromkeys(two, training(adam))
            | {"torch": torch_training("Adam", betas=DECAY, eps=EPSILON)},
            tolerance=1e-3,  # Adam divides by gradients that are nearly zero
            flops=flops,
        ),
        Case(
            "first Adam step (compile)",
            data,
            dict.fromkeys(two, first_step),
            tolerance=1e-3,
            once=True,
            before=lambda library: library.clear_caches(),
        ),
    ]
