"""A small network learns handwritten digits: the functional training loop, whole.

Receives options, gives a `Run`: the jitted step, the trained parameters and what was
measured. The data are scikit-learn's 1 797 images of 8×8 pixels, split once and for
all. Next on the walk: `report.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import nn, optim, random
from fnx.errors import OptionError

SIZES = {"hidden1": (64, 128), "hidden2": (128, 128), "output": (128, 10)}
TEST_IMAGES = 360
PEAK_RATE = 3e-3

Params = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Data:
    """Images as rows of 64 numbers from 0 to 1, labels 0 to 9."""

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


@dataclass(frozen=True, slots=True)
class Run:
    """What a training run came to."""

    accuracy: float
    loss: float
    steps: int
    seconds: float
    trace_seconds: float
    step: Any
    example: tuple[Any, ...]


# ---------------------------------------------------------------- the model


def init_params(key: Any) -> Params:
    """Weights of variance 2 / inputs (He et al., 2015) and zero biases."""
    keys = random.split(key, len(SIZES))
    return {
        name: {
            "w": random.normal(layer_key, (inputs, outputs)) * (2 / inputs) ** 0.5,
            "b": fnp.zeros(outputs),
        }
        for layer_key, (name, (inputs, outputs)) in zip(
            keys, SIZES.items(), strict=True
        )
    }


def predict(params: Params, images: Any) -> Any:
    """The logits of the ten classes, a row for each image."""
    x = nn.relu(dense(params["hidden1"], images))
    x = nn.relu(dense(params["hidden2"], x))
    return dense(params["output"], x)


def dense(layer: dict[str, Any], x: Any) -> Any:
    """A linear layer."""
    return x @ layer["w"] + layer["b"]


def loss(params: Params, images: Any, labels: Any) -> Any:
    """The mean cross-entropy of the predictions."""
    scores: Any = nn.log_softmax(predict(params, images))
    return -(nn.one_hot(labels, 10) * scores).sum(-1).mean()


@fnx.jit
def accuracy(params: Params, images: Any, labels: Any) -> Any:
    """The share of images whose largest logit is that of their label."""
    return (predict(params, images).argmax(-1) == labels).mean()


# ---------------------------------------------------------------- the training


def make_step(optimizer: optim.GradientTransformation) -> Any:
    """One step of training, compiled: new parameters, new state, the loss."""

    @fnx.jit
    def step(params: Params, state: Any, images: Any, labels: Any) -> Any:
        value, grads = fnx.value_and_grad(loss)(params, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, value

    return step


def load_data(load_digits: Any) -> Data:
    """The images that `load_digits` gives, always shuffled and split alike."""
    images, labels = load_digits(return_X_y=True)
    order = np.asarray(random.permutation(random.key(0), len(images)))
    images = (images / 16).astype("float32")[order]
    labels = labels.astype("int32")[order]
    rest, test = images[TEST_IMAGES:], images[:TEST_IMAGES]
    rest_labels, test_labels = labels[TEST_IMAGES:], labels[:TEST_IMAGES]
    return Data(*map(fnp.asarray, (rest, rest_labels, test, test_labels)))


def batches(data: Data, size: int, epochs: int, key: Any) -> Iterator[tuple[Any, Any]]:
    """Batches of shuffled images; what is left of an epoch is dropped."""
    count = len(data.images)
    for epoch in range(epochs):
        order: Any = random.permutation(random.fold_in(key, epoch), count)
        for start in range(0, count - size + 1, size):
            chosen = order[start : start + size]
            yield data.images[chosen], data.labels[chosen]


def prepare(
    data: Data, seed: int, steps: int, size: int
) -> tuple[Any, tuple[Any, ...]]:
    """The jitted step and the arguments of its first call."""
    rate = optim.warmup_cosine_decay_schedule(0.0, PEAK_RATE, steps // 10, steps)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(rate))
    params = init_params(random.key(seed))
    first = data.images[:size], data.labels[:size]
    return make_step(optimizer), (params, optimizer.init(params), *first)


def count_steps(data: Data, size: int, epochs: int) -> int:
    """How many steps the epochs take; `OptionError` if not even one batch fits."""
    count = len(data.images)
    if size > count:
        raise OptionError(
            f"--batch {size} is more than the {count} images there are to train on"
        )
    return count // size * epochs


def train(data: Data, seed: int, epochs: int, size: int, bar: Any) -> Run:
    """Train from scratch; `bar(iterable, total=n)` shows the progress, as tqdm does."""
    steps = count_steps(data, size, epochs)
    step, (params, state, *first) = prepare(data, seed, steps, size)
    example = (params, state, *first)
    trace_seconds = _time_to_trace_and_compile(step, example)
    value: Any = None
    stream = batches(data, size, epochs, random.key(seed + 1))
    start = time.perf_counter()
    for images, labels in bar(stream, total=steps):
        params, state, value = step(params, state, images, labels)
    seconds = time.perf_counter() - start
    found = float(accuracy(params, data.test_images, data.test_labels))
    return Run(found, float(value), steps, seconds, trace_seconds, step, example)


def _time_to_trace_and_compile(step: Any, example: tuple[Any, ...]) -> float:
    """The seconds of tracing; the step is compiled too, so that the loop only runs."""
    start = time.perf_counter()
    step.trace(*example)
    seconds = time.perf_counter() - start
    step(*example)
    return seconds
