"""Questions about models: training steps, beside the same in PyTorch and JAX.

A multilayer perceptron, a small GPT and VGG16 with batch norm, each with Adam or plain
descent. fnx and JAX run the same text, with the library as an argument; PyTorch runs
the same model with its own layers. Next on the walk: `torch_models.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import fnx
from fnx_cuda.check import torch_models
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import Call, beside, per_call
from fnx_cuda.check.torch_models import RATE

VGG = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""The channels of VGG16's convolutions; 0 is a pooling."""

Loss = Callable[..., Any]


def models(setting: Setting) -> Iterator[Row]:
    """Training steps of models, beside JAX's and eager PyTorch's."""
    limits = {"torch": 0.5, "jax": 0.9}, {"torch": 1.0, "jax": 1.0}, {"torch": 1.0}
    for (name, model), goals in zip(_models(setting.small), limits, strict=True):
        yield _step(setting, "models", name, model, goals)


def compiled_models(setting: Setting) -> Iterator[Row]:
    """The same beside PyTorch's compiler, which takes long to compile them."""
    for name, model in _models(setting.small):
        yield _step(setting, "compiled models", name, model, {"torch compiled": 1.0})


def _models(small: bool) -> Iterator[tuple[str, Model]]:
    sizes = (784, 1024, 512, 256, 10) if not small else (12, 8, 4)
    yield "MLP", mlp(sizes, 200 if not small else 4)
    yield "GPT", gpt(*((6, 384, 6, 256, 16) if not small else (1, 16, 2, 8, 2)))
    image, batch = (32, 128) if not small else (32, 2)
    channels = VGG if not small else (4, 0, 8, 0, 8, 0, 8, 0, 8, 0)
    yield "VGG16-BN", vgg(channels, image, batch)


def _step(
    setting: Setting,
    question: str,
    name: str,
    model: Model,
    limits: Mapping[str, float],
) -> Row:
    """One training step of a model, beside the others."""
    seconds = per_call(
        _training(fnx, model, setting.device), fnx.block_until_ready, setting.small
    )
    if setting.small:
        return Row(question, name, seconds * 1e3, "ms")
    calls: dict[str, Callable[[Any], Call]] = {
        "torch": lambda torch: torch_models.training(torch, name, model, False),
        "torch compiled": lambda torch: torch_models.training(torch, name, model, True),
        "jax": lambda jax: _training(jax, model, None),
    }
    asked = ("torch compiled",) if "torch compiled" in limits else ("torch", "jax")
    peers = beside({other: calls[other] for other in asked})
    good = all(seconds <= limits.get(n, 1.0) * t for n, t in peers) if peers else None
    goal = ", ".join(f"≤ {limit} of {peer}" for peer, limit in limits.items())
    in_ms = tuple((n, t * 1e3) for n, t in peers)
    return Row(question, name, seconds * 1e3, "ms", goal, good, peers=in_ms)


class Model:
    """A loss of parameters and a batch, and NumPy arrays for both."""

    def __init__(
        self, loss: Loss, params: Any, batch: tuple[Any, ...], heads: int = 0
    ) -> None:
        self.loss, self.params, self.batch = loss, params, batch
        self.heads = heads  # of its attention


def _training(library: Any, model: Model, device: Any) -> Call:
    """Steps of plain descent, each on the parameters of the last one."""
    loss = functools.partial(model.loss, library)

    @functools.partial(library.jit, donate_argnums=0)
    def step(params: Any, *batch: Any) -> Any:
        slopes = library.grad(loss)(params, *batch)
        return library.tree.map(lambda p, g: p - RATE * g, params, slopes)

    put = functools.partial(library.device_put, device=device)
    held = [put(model.params)]
    batch = [put(x) for x in model.batch]

    def call() -> Any:
        held[0] = step(held[0], *batch)
        return held[0]

    return call


def _normal(rng: np.random.Generator, *shape: int, scale: float = 0.02) -> Any:
    return (rng.standard_normal(shape) * scale).astype("float32")


def _cross_entropy(library: Any, scores: Any, labels: Any) -> Any:
    logs = library.nn.log_softmax(scores)
    chosen = library.numpy.take_along_axis(logs, labels[..., None], axis=-1)
    return -chosen.mean()


# ---------------------------------------------------------------- the three models


def mlp(sizes: tuple[int, ...], batch: int) -> Model:
    """Dense layers with ReLU between them."""
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(sizes)
    params = [(_normal(rng, m, n), np.zeros(n, "float32")) for m, n in pairs]

    def loss(library: Any, params: Any, x: Any, labels: Any) -> Any:
        *hidden, (w, b) = params
        for weights, bias in hidden:
            x = library.nn.relu(x @ weights + bias)
        return _cross_entropy(library, x @ w + b, labels)

    labels = rng.integers(0, sizes[-1], batch).astype("int32")
    return Model(loss, params, (_normal(rng, batch, sizes[0], scale=1.0), labels))


def gpt(layers: int, width: int, heads: int, tokens: int, batch: int) -> Model:
    """A decoder of transformer blocks over a vocabulary of 512."""
    rng = np.random.default_rng(0)
    words = 512

    def block() -> dict[str, Any]:
        return {
            "qkv": _normal(rng, width, 3 * width),
            "out": _normal(rng, width, width),
            "up": _normal(rng, width, 4 * width),
            "down": _normal(rng, 4 * width, width),
            "scale1": np.ones(width, "float32"),
            "scale2": np.ones(width, "float32"),
        }

    params = {
        "words": _normal(rng, words, width),
        "places": _normal(rng, tokens, width),
        "blocks": [block() for _ in range(layers)],
    }

    def loss(library: Any, params: Any, text: Any) -> Any:
        xp = library.numpy
        x = params["words"][text[:, :-1]] + params["places"]
        hidden = xp.tril(xp.ones((tokens, tokens), "bool"))
        for p in params["blocks"]:
            x = x + _attention(library, p, x, hidden, heads)
            h = library.nn.standardize(x) * p["scale2"]
            x = x + library.nn.gelu(h @ p["up"]) @ p["down"]
        scores = library.nn.standardize(x) @ params["words"].T
        return _cross_entropy(library, scores, text[:, 1:])

    text = rng.integers(0, words, (batch, tokens + 1)).astype("int32")
    return Model(loss, params, (text,), heads)


def _attention(library: Any, p: Any, x: Any, hidden: Any, heads: int) -> Any:
    xp = library.numpy
    batch, tokens, width = x.shape

    def split(y: Any) -> Any:
        y = y.reshape(batch, tokens, heads, width // heads)
        return y.transpose(0, 2, 1, 3)

    h = library.nn.standardize(x) * p["scale1"]
    q, k, v = map(split, xp.split(h @ p["qkv"], 3, axis=-1))
    scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
    mixed = library.nn.softmax(xp.where(hidden, scores, -1e30)) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"]


def vgg(channels: tuple[int, ...], image: int, batch: int) -> Model:
    """Convolutions with batch norm, poolings, and one dense layer for ten classes."""
    rng = np.random.default_rng(0)
    params, before = [], 3
    for count in channels:
        if count:
            kernel = _normal(rng, count, before, 3, 3, scale=(9 * before) ** -0.5)
            ones = np.ones((count, 1, 1), "float32")
            params.append((kernel, ones, 0 * ones))
            before = count
    dense = _normal(rng, before, 10)

    def loss(library: Any, params: Any, x: Any, labels: Any) -> Any:
        lax = library.lax
        layers, dense = iter(params[0]), params[1]
        for count in channels:
            if count == 0:
                shape = (1, 1, 2, 2)
                x = lax.reduce_window(x, -np.inf, lax.max, shape, shape, "VALID")
                continue
            kernel, scale, shift = next(layers)
            x = lax.conv(x, kernel, (1, 1), "SAME")
            normal = library.nn.standardize(x, axis=(0, 2, 3))
            x = library.nn.relu(normal * scale + shift)
        return _cross_entropy(library, x.reshape(x.shape[0], -1) @ dense, labels)

    images = _normal(rng, batch, 3, image, image, scale=1.0)
    labels = rng.integers(0, 10, batch).astype("int32")
    return Model(loss, (params, dense), (images, labels))
