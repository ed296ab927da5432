"""The published rules of the optimizers, in NumPy and float64, for one leaf.

A rule is `step(memory, g, p, t)`: the update for gradient g and parameter p at step t,
which counts from 1; `memory` is a dict that is empty at first. Written from the papers
that the optimizers' docstrings name, and from nothing else.
"""

from __future__ import annotations

import numpy as np

from fnx import optim

RATE = 0.05


def norm(x):
    return np.sqrt(np.sum(x * x))


def sgd(memory, g, p, t):
    return -RATE * g


def adagrad(memory, g, p, t):
    memory["n"] = memory.get("n", 0.1) + g**2
    return -RATE * g / np.sqrt(memory["n"] + 1e-7)


def rmsprop(memory, g, p, t):
    memory["n"] = 0.9 * memory.get("n", 0) + 0.1 * g**2
    return -RATE * g / np.sqrt(memory["n"] + 1e-8)


def rmsprop_centered_momentum(memory, g, p, t):
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    memory["n"] = 0.9 * memory.get("n", 0.5) + 0.1 * g**2
    variance = memory["n"] - memory["m"] ** 2
    step = -RATE * g / (np.sqrt(variance) + 1e-3)
    memory["v"] = 0.8 * memory.get("v", 0) + step
    return memory["v"]


def adadelta(memory, g, p, t):
    memory["n"] = 0.9 * memory.get("n", 0) + 0.1 * g**2
    past = memory.get("x", np.zeros_like(g))
    step = g * np.sqrt(past + 1e-6) / np.sqrt(memory["n"] + 1e-6)
    memory["x"] = 0.9 * past + 0.1 * step**2
    return -RATE * step


def moments(memory, g, b1, b2, t):
    memory["m"] = b1 * memory.get("m", 0) + (1 - b1) * g
    memory["v"] = b2 * memory.get("v", 0) + (1 - b2) * g**2
    return memory["m"] / (1 - b1**t), memory["v"] / (1 - b2**t)


def adam(memory, g, p, t, eps=1e-8):
    m, v = moments(memory, g, 0.9, 0.999, t)
    return -RATE * m / (np.sqrt(v) + eps)


def nadam(memory, g, p, t):
    _, v = moments(memory, g, 0.9, 0.999, t)
    ahead = 0.9 * memory["m"] / (1 - 0.9 ** (t + 1)) + 0.1 * g / (1 - 0.9**t)
    return -RATE * ahead / (np.sqrt(v) + 1e-8)


def nadamw(memory, g, p, t):
    return nadam(memory, g, p, t) - RATE * 0.1 * p


def amsgrad(memory, g, p, t):
    m, v = moments(memory, g, 0.9, 0.8, t)
    memory["most"] = np.maximum(memory.get("most", 0), v)
    return -RATE * m / (np.sqrt(memory["most"]) + 1e-8)


def amsgrad_uncorrected(memory, g, p, t):
    moments(memory, g, 0.9, 0.8, t)
    memory["most"] = np.maximum(memory.get("most", 0), memory["v"])
    return -RATE * memory["m"] / (np.sqrt(memory["most"]) + 1e-8)


def adamax(memory, g, p, t):
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    memory["u"] = np.maximum(0.99 * memory.get("u", 0), np.abs(g) + 1e-8)
    return -RATE / (1 - 0.9**t) * memory["m"] / memory["u"]


def adamaxw(memory, g, p, t):
    return adamax(memory, g, p, t) - RATE * 0.1 * p


def adabelief(memory, g, p, t):
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    error = (g - memory["m"]) ** 2
    memory["s"] = 0.99 * memory.get("s", 0) + 0.01 * error + 1e-6
    s = memory["s"] / (1 - 0.99**t)
    return -RATE * memory["m"] / (1 - 0.9**t) / (np.sqrt(s) + 1e-7)


def yogi(memory, g, p, t):
    memory["m"] = 0.9 * memory.get("m", 1e-6) + 0.1 * g
    v = memory.get("v", 1e-6)
    memory["v"] = v - 0.001 * np.sign(v - g**2) * g**2
    m, v = memory["m"] / (1 - 0.9**t), memory["v"] / (1 - 0.999**t)
    return -RATE * m / (np.sqrt(v) + 1e-3)


def radam(memory, g, p, t):
    b2 = 0.99
    m, v = moments(memory, g, 0.9, b2, t)
    limit = 2 / (1 - b2) - 1
    rho = limit - 2 * t * b2**t / (1 - b2**t)
    if rho < 5:
        return -RATE * m
    above = (rho - 4) * (rho - 2) * limit
    factor = np.sqrt(above / ((limit - 4) * (limit - 2) * rho))
    return -RATE * factor * m / (np.sqrt(v) + 1e-8)


def adan(memory, g, p, t):
    change = g - memory.get("g", g)
    memory["g"] = g
    memory["m"] = 0.98 * memory.get("m", 0) + 0.02 * g
    memory["v"] = 0.92 * memory.get("v", 0) + 0.08 * change
    memory["n"] = 0.99 * memory.get("n", 0) + 0.01 * (g + 0.92 * change) ** 2
    m, v = memory["m"] / (1 - 0.98**t), memory["v"] / (1 - 0.92**t)
    root = np.sqrt(memory["n"] / (1 - 0.99**t) + 1e-8)
    return -RATE * ((m + 0.92 * v) / (root + 1e-8) + 0.1 * p)


def novograd(memory, g, p, t):
    size = np.sum(g**2)
    memory["v"] = 0.25 * memory["v"] + 0.75 * size if memory else size
    step = g / (np.sqrt(memory["v"]) + 1e-6) + 0.1 * p
    memory["m"] = 0.9 * memory.get("m", 0) + step
    return -RATE * memory["m"]


def trusted(step, p):
    if norm(step) == 0 or norm(p) == 0:
        return step
    return step * norm(p) / norm(step)


def lamb(memory, g, p, t):
    step = -adam(memory, g, p, t, 1e-6) / RATE + 0.1 * p
    return -RATE * trusted(step, p)


def lars(memory, g, p, t):
    step = RATE * 0.01 * trusted(g + 0.1 * p, p)
    memory["v"] = 0.9 * memory.get("v", 0) - step
    return memory["v"]


def fromage(memory, g, p, t):
    return (p - RATE * trusted(g, p)) / np.sqrt(1 + RATE**2) - p


def lion(memory, g, p, t):
    m = memory.get("m", 0)
    memory["m"] = 0.99 * m + 0.01 * g
    return -RATE * (np.sign(0.9 * m + 0.1 * g) + 0.1 * p)


def sign_sgd(memory, g, p, t):
    return -RATE * np.sign(g)


def signum(memory, g, p, t):
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    return -RATE * np.sign(memory["m"])


def rprop(memory, g, p, t):
    size = memory.get("size", np.full_like(g, RATE))
    agreement = np.sign(g * memory.get("g", np.zeros_like(g)))
    size = np.where(agreement > 0, np.minimum(size * 1.2, 50.0), size)
    size = np.where(agreement < 0, np.maximum(size * 0.5, 1e-6), size)
    g = np.where(agreement < 0, 0, g)
    memory["size"], memory["g"] = size, g
    return -size * np.sign(g)


def adafactor(memory, g, p, t):
    decay = 1 - t**-0.8
    square = g**2 + 1e-30
    if g.ndim == 2:
        rows = decay * memory.get("r", 0) + (1 - decay) * square.mean(1)
        columns = decay * memory.get("c", 0) + (1 - decay) * square.mean(0)
        memory["r"], memory["c"] = rows, columns
        estimate = np.outer(rows, columns) / rows.mean()
    else:
        memory["v"] = decay * memory.get("v", 0) + (1 - decay) * square
        estimate = memory["v"]
    step = g / np.sqrt(estimate)
    step = step / max(1, np.sqrt(np.mean(step**2)))
    step = step * RATE * max(np.sqrt(np.mean(p**2)), 1e-3)
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * step
    return -(memory["m"] + 0.01 * p)


def sm3(memory, g, p, t):
    shape = g.shape or (1,)
    g = g.reshape(shape)
    axes = range(len(shape))
    others = [tuple(a for a in axes if a != axis) for axis in axes]
    bounds = memory.get("mu", [np.zeros(n) for n in shape])
    wide = [
        np.expand_dims(bound, rest) for bound, rest in zip(bounds, others, strict=True)
    ]
    bound = np.min(np.broadcast_arrays(*wide), axis=0) + g**2
    memory["mu"] = [bound.max(rest) for rest in others]
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g / np.sqrt(bound + 1e-8)
    return -RATE * memory["m"].reshape(p.shape)


def optimistic(memory, g, p, t):
    last = memory.get("g", g)
    memory["g"] = g
    return -RATE * ((0.7 + 0.3) * g - 0.3 * last)


def dog(memory, g, p, t):
    start = memory.setdefault("p", p)
    far = memory.get("far", 1e-2 * (1 + norm(p)))
    memory["far"] = max(far, norm(p - start))
    memory["n"] = memory.get("n", 0) + np.sum(g**2)
    return -RATE * g * memory["far"] / np.sqrt(memory["n"] + 1e-8)


def ema(memory, g, p, t):
    memory["m"] = 0.8 * memory.get("m", 0) + 0.2 * g
    return -RATE * memory["m"] / (1 - 0.8**t)


def block_rms(memory, g, p, t):
    return -RATE * g / max(1, np.sqrt(np.mean(g**2)) / 0.5)


def adaptive_clip(memory, g, p, t):
    axes = 0 if p.ndim == 2 else None
    size = np.sqrt(np.sum(g**2, axis=axes, keepdims=True))
    most = 0.3 * np.maximum(np.sqrt(np.sum(p**2, axis=axes, keepdims=True)), 1e-3)
    return -RATE * np.where(size > most, g * most / np.maximum(size, 1e-9), g)


def centralize(memory, g, p, t):
    return -RATE * (g - g.mean(1, keepdims=True) if g.ndim == 2 else g)


def every_third(memory, g, p, t):
    memory["sum"] = memory.get("sum", 0) - RATE * g
    if t % 3:
        return np.zeros_like(g)
    return memory.pop("sum")


# name: (how it is made, of fnx.optim or optax; its rule; the algorithm of fnx.optim
# whose learning rate is its first argument, if it is one)
RULES = {
    "adagrad": (lambda o: o.adagrad(RATE), adagrad),
    "rmsprop": (lambda o: o.rmsprop(RATE), rmsprop),
    "rmsprop, centred": (
        lambda o: o.rmsprop(RATE, 0.9, 1e-3, 0.5, False, True, momentum=0.8),
        rmsprop_centered_momentum,
    ),
    "adadelta": (lambda o: o.adadelta(RATE), adadelta),
    "adam": (lambda o: o.adam(RATE), adam),
    "nadam": (lambda o: o.nadam(RATE), nadam),
    "nadamw": (lambda o: o.nadamw(RATE, weight_decay=0.1), nadamw),
    "amsgrad": (lambda o: o.amsgrad(RATE, b2=0.8), amsgrad),
    "amsgrad, uncorrected": (
        lambda o: o.amsgrad(
            RATE, b2=0.8, bias_correction_mu=False, bias_correction_nu=False
        ),
        amsgrad_uncorrected,
    ),
    "adamax": (lambda o: o.adamax(RATE, b2=0.99), adamax),
    "adamaxw": (lambda o: o.adamaxw(RATE, b2=0.99, weight_decay=0.1), adamaxw),
    "adabelief": (
        lambda o: o.adabelief(RATE, b2=0.99, eps=1e-7, eps_root=1e-6),
        adabelief,
    ),
    "yogi": (lambda o: o.yogi(RATE), yogi),
    "radam": (lambda o: o.radam(RATE, b2=0.99), radam),
    "adan": (lambda o: o.adan(RATE, weight_decay=0.1), adan),
    "novograd": (lambda o: o.novograd(RATE, weight_decay=0.1), novograd),
    "lamb": (lambda o: o.lamb(RATE, weight_decay=0.1), lamb),
    "lars": (lambda o: o.lars(RATE, 0.1, trust_coefficient=0.01), lars),
    "fromage": (lambda o: o.fromage(RATE), fromage),
    "lion": (lambda o: o.lion(RATE, weight_decay=0.1), lion),
    "sign_sgd": (lambda o: o.sign_sgd(RATE), sign_sgd),
    "signum": (lambda o: o.signum(RATE), signum),
    "rprop": (lambda o: o.rprop(RATE), rprop),
    "adafactor": (
        lambda o: o.adafactor(
            RATE,
            2,
            momentum=0.9,
            dtype_momentum="float64",
            weight_decay_rate=0.01,
        ),
        adafactor,
    ),
    "sm3": (lambda o: o.sm3(RATE), sm3),
    "optimistic": (
        lambda o: o.optimistic_gradient_descent(RATE, alpha=0.7, beta=0.3),
        optimistic,
    ),
    "distance over gradients": (
        lambda o: o.chain(
            o.scale_by_distance_over_gradients(1e-2, param_dtype="float64"),
            o.scale(-RATE),
        ),
        dog,
    ),
    "ema": (lambda o: o.chain(o.ema(0.8), o.scale(-RATE)), ema),
    "block rms": (
        lambda o: o.chain(o.clip_by_block_rms(0.5), o.scale(-RATE)),
        block_rms,
    ),
    "adaptive clip": (
        lambda o: o.chain(o.adaptive_grad_clip(0.3), o.scale(-RATE)),
        adaptive_clip,
    ),
    "centralize": (
        lambda o: o.chain(o.centralize(), o.scale(-RATE)),
        centralize,
    ),
    "apply every": (
        lambda o: o.chain(o.scale(-RATE), o.apply_every(3)),
        every_third,
    ),
    "noise of none": (lambda o: o.noisy_sgd(RATE, eta=0.0, key=0), sgd),
}
OTHERWISE_IN_OPTAX = {
    "rprop": "its steps are those of the gradient before",
    "sm3": "it takes no leaves of rank 0",
    "adan": "it has 1 - b2 in the place of b2 where the paper multiplies",
}


def make(name):
    return RULES[name][0](optim)
