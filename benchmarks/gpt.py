"""A training step of a small GPT: 4 layers, width 256, 4 heads, 128 tokens, batch 8.

Receives whether to be quick (then 2 layers and 64 tokens), gives cases: the Adam step
on the last step's parameters, the forward pass, and the time to the first step.
fnx and JAX run the same text.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run
from benchmarks.mlp import RATE, adam, initial_state

WIDTH, HEADS, VOCABULARY, BATCH = 256, 4, 512, 8


def data(layers: int, tokens: int) -> Any:
    """A generator of parameters (nested dicts) and of a batch of token sequences."""

    def make(rng: np.random.Generator) -> Inputs:
        def normal(*shape: int) -> Any:
            return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

        def norm() -> Any:
            return {"scale": np.ones(WIDTH, "f4"), "shift": np.zeros(WIDTH, "f4")}

        def block() -> Any:
            return {
                "norm1": norm(),
                "norm2": norm(),
                "qkv": normal(WIDTH, 3 * WIDTH),
                "out": normal(WIDTH, WIDTH),
                "up": normal(WIDTH, 4 * WIDTH),
                "down": normal(4 * WIDTH, WIDTH),
            }

        params = {
            "tokens": normal(VOCABULARY, WIDTH),
            "places": normal(tokens, WIDTH),
            "norm": norm(),
            "blocks": [block() for _ in range(layers)],
        }
        text = rng.integers(VOCABULARY, size=(BATCH, tokens + 1)).astype(np.int32)
        return params, text[:, :-1], text[:, 1:]

    return make


def layer_norm(library: Any, p: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / library.numpy.sqrt(variance + 1e-5) * p["scale"] + p["shift"]


def attention(library: Any, p: Any, x: Any) -> Any:
    xp = library.numpy
    batch, tokens, width = x.shape

    def heads(y: Any) -> Any:
        return y.reshape(batch, tokens, HEADS, width // HEADS).transpose(0, 2, 1, 3)

    q, k, v = map(heads, xp.split(x @ p["qkv"], 3, axis=-1))
    scores = q @ k.transpose(0, 1, 3, 2) * (width // HEADS) ** -0.5
    scores = xp.where(xp.tril(xp.ones((tokens, tokens), bool)), scores, -1e30)
    mixed = library.nn.softmax(scores, axis=-1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"]


def loss_function(library: Any) -> Any:
    xp = library.numpy

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = params["tokens"][x] + params["places"]
        for p in params["blocks"]:
            h = h + attention(library, p, layer_norm(library, p["norm1"], h))
            up = library.nn.gelu(layer_norm(library, p["norm2"], h) @ p["up"])
            h = h + up @ p["down"]
        logits = layer_norm(library, params["norm"], h) @ params["tokens"].T
        scores = library.nn.log_softmax(logits, axis=-1)
        return -xp.take_along_axis(scores, y[..., None], axis=-1).mean()

    return loss


def step_function(library: Any, rate: float = RATE) -> Any:
    gradient = library.value_and_grad(loss_function(library))

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = gradient(params, x, y)
        return loss, *adam(library, params, state, grads, rate)

    return library.jit(step)


def training(library: Any, inputs: Inputs) -> Run:
    """A run that takes one training step further at each call."""
    params, x, y = inputs
    state = initial_state(library, params)
    step = step_function(library)

    def run() -> Any:
        nonlocal params, state
        loss, params, state = step(params, state, x, y)
        return loss

    return run


def forward(library: Any, inputs: Inputs) -> Run:
    """A run of the loss alone."""
    return functools.partial(library.jit(loss_function(library)), *inputs)


def first_step(library: Any, inputs: Inputs) -> Run:
    """A run that makes, compiles and calls a new step; no cache has its rate."""
    params, x, y = inputs
    state = initial_state(library, params)

    def run() -> Any:
        step = step_function(library, RATE * (1 + 1e-6 * random.random()))
        return step(params, state, x, y)[0]

    return run


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    layers, tokens = (2, 64) if quick else (4, 128)
    rows = BATCH * tokens
    per_layer = 12 * WIDTH * WIDTH + 2 * tokens * WIDTH
    flops = 2 * rows * (layers * per_layer + WIDTH * VOCABULARY)

    def both(build: Build) -> dict[str, Build]:
        return dict.fromkeys(("fnx", "jax"), build)

    inputs = data(layers, tokens)
    return [
        Case("Adam step", inputs, both(training), tolerance=1e-3, flops=3 * flops),
        Case("forward", inputs, both(forward), tolerance=1e-4, flops=flops),
        Case(
            "first step (compile)",
            inputs,
            both(first_step),
            tolerance=1e-3,
            once=True,
            before=lambda library: library.clear_caches(),
        ),
    ]
