"""A training step of a small GPT: 4 layers, width 256, 4 heads, 128 tokens, batch 8.

Receives whether to be quick (then 1 layer and 64 tokens), gives cases: the Adam step
on the last step's parameters and the forward pass. fnx and JAX run the same text,
PyTorch the same model with its own operators. Next on the walk: `compile.py`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, leaves
from benchmarks.mlp import RATE, adam, initial_state, step

WIDTH, HEADS, VOCABULARY, BATCH = 256, 4, 512, 8


def size(quick: bool) -> tuple[int, int]:
    """Layers and tokens."""
    return (1, 64) if quick else (4, 128)


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


# ---------------------------------------------------------------- fnx and JAX


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


def training(library: Any, inputs: Inputs) -> Run:
    """A run that takes one training step further at each call."""
    params, x, y = inputs
    state = initial_state(library, params)
    train = library.jit(step(library, loss_function(library), adam))

    def run() -> Any:
        nonlocal params, state
        loss, params, state = train(params, state, x, y)
        return loss

    return run


def forward(library: Any, inputs: Inputs) -> Run:
    """A run of the loss alone."""
    return functools.partial(library.jit(loss_function(library)), *inputs)


# ---------------------------------------------------------------- PyTorch


def torch_norm(torch: Any, p: Any, x: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (WIDTH,), p["scale"], p["shift"], 1e-5)


def torch_attention(torch: Any, p: Any, x: Any) -> Any:
    batch, tokens, width = x.shape
    q, k, v = (
        y.reshape(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
        for y in (x @ p["qkv"]).split(width, -1)
    )
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).reshape(x.shape) @ p["out"]


def torch_loss(torch: Any, params: Any, x: Any, y: Any) -> Any:
    functions = torch.nn.functional
    h = functions.embedding(x, params["tokens"]) + params["places"]
    for p in params["blocks"]:
        h = h + torch_attention(torch, p, torch_norm(torch, p["norm1"], h))
        up = torch_norm(torch, p["norm2"], h) @ p["up"]
        h = h + functions.gelu(up, approximate="tanh") @ p["down"]
    logits = torch_norm(torch, params["norm"], h) @ params["tokens"].T
    return functions.cross_entropy(logits.flatten(0, 1), y.flatten())


def torch_training(torch: Any, inputs: Inputs) -> Run:
    params, x, y = inputs
    parameters = [leaf.requires_grad_() for leaf in leaves(params)]
    optimizer, targets = torch.optim.Adam(parameters, lr=RATE), y.long()

    def run() -> Any:
        optimizer.zero_grad()
        loss = torch_loss(torch, params, x, targets)
        loss.backward()
        optimizer.step()
        return loss

    return run


def torch_forward(torch: Any, inputs: Inputs) -> Run:
    params, x, y = inputs
    return functools.partial(torch_loss, torch, params, x, y.long())


TRAINING = both(training) | {"torch": torch_training}


def stepped(build: Build) -> Build:
    """Build a run whose first result is the second loss: it depends on the update."""

    def build_stepped(library: Any, inputs: Inputs) -> Run:
        run = build(library, inputs)
        run()
        return run

    return build_stepped


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    layers, tokens = size(quick)
    rows = BATCH * tokens
    per_layer = 12 * WIDTH * WIDTH + 2 * tokens * WIDTH
    flops = 2 * rows * (layers * per_layer + WIDTH * VOCABULARY)
    steps = {column: stepped(build) for column, build in TRAINING.items()}
    passes = both(forward) | {"torch": torch_forward}
    inputs = data(layers, tokens)
    return [
        Case("Adam step", inputs, steps, tolerance=1e-3, flops=3 * flops),
        Case("forward", inputs, passes, tolerance=1e-4, flops=flops),
    ]
