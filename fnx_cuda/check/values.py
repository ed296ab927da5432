"""Questions about values: programs on the GPU against the CPU, again and again.

Next on the walk: `graphs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import errors, lax, nn, random, tree
from fnx_cuda.check.report import Row, Setting

REPLAYS = 1000


def _programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions of many kinds, each with arguments."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((65, 130)).astype("float32")
    wide = rng.standard_normal((3, 40_000)).astype("float32")
    w = rng.standard_normal((130, 70)).astype("float32")
    index = rng.integers(0, 65, 200)

    def loss(w: Any, x: Any) -> Any:
        return fnp.mean(nn.logsumexp(nn.gelu(x @ w), axis=1) ** 2)

    def doubled(x: Any) -> Any:
        return lax.while_loop(
            lambda y: fnp.less(fnp.sum(y * y), 1e6), lambda y: 2 * y, x
        )

    def running(x: Any) -> Any:
        return lax.scan(lambda c, row: (0.9 * c + row, fnp.sum(c)), x[0], x)

    return {
        "elementwise": (lambda x: fnp.tanh(x) * fnp.exp(-x * x) + fnp.sin(x), (x,)),
        "16 bits": (lambda x: x.astype("bfloat16") * 3 + 1, (x,)),
        "float64": (lambda x: fnp.cumsum(x.astype("float64"), axis=1), (x,)),
        "softmax": (nn.softmax, (x,)),
        "softmax, long rows": (nn.softmax, (wide,)),
        "sums": (lambda x: (fnp.sum(x), fnp.sum(x, axis=0), fnp.sum(x, axis=1)), (x,)),
        "argmax": (lambda x: fnp.argmax(x, axis=1), (wide,)),
        "running sums": (lambda x: fnp.cumsum(x, axis=1), (wide,)),
        "transpose": (lambda x: x.T * 2, (x,)),
        "gather": (lambda x, i: x[i], (x, index)),
        "scatter": (lambda x, i: x.at[i].add(1.5), (x, index)),
        "counts": (lambda c, i: c.at[i].add(1), (np.zeros(9, "int32"), index % 9)),
        "windows that meet": (lambda x, i: x.at[i].set(x[:1] * i[:, None]), (x, index)),
        "sort": (lambda x: (fnp.sort(x, axis=1), fnp.argsort(x, axis=0)), (x,)),
        "sort, long rows": (lambda x: (fnp.sort(x), fnp.argsort(x)), (wide,)),
        "running maximum": (lambda x: lax.cummax(x, axis=1), (wide,)),
        "random numbers": (lambda k: random.normal(k, (1000,)), (random.PRNGKey(7),)),
        "product": (lambda x, w: x @ w, (x, w)),
        "product, float64": (lambda x, w: x @ w, (x.astype("f8"), w.astype("f8"))),
        "gradient": (fnx.grad(loss), (w, x)),
        "second derivative": (
            lambda w, x: fnx.jvp(fnx.grad(loss), (w, x), (w, x))[1],
            (w, x),
        ),
        "per example": (fnx.vmap(fnx.grad(loss), in_axes=(None, 0)), (w, x[:, None])),
        "branch": (
            lambda x: lax.cond(
                fnp.greater(fnp.sum(x), 0), lambda y: y * 2, lambda y: y - 1, x
            ),
            (x,),
        ),
        "loop": (doubled, (x,)),
        "scan": (running, (x,)),
        "gradient of a scan": (fnx.grad(lambda x: fnp.sum(running(x)[1])), (x,)),
    }


def values(setting: Setting) -> Iterator[Row]:
    """Programs of many kinds give what they give on the CPU."""
    for name, (function, args) in _programs().items():
        try:
            wanted = _on(setting.cpu, function, args)
            found = _on(setting.device, function, args)
            distance = max(map(_distance, tree.leaves(found), tree.leaves(wanted)))
            note = ""
        except errors.FnxError as error:
            distance, note = float("inf"), str(error).splitlines()[0]
        yield Row(
            "values", name, distance, "of the largest", "≤ 1e-4", distance <= 1e-4, note
        )


def replays(setting: Setting) -> Iterator[Row]:
    """A captured program gives the right values a thousand times, with new inputs."""
    step = fnx.jit(lambda x, y: (fnp.cumsum(nn.softmax(x) * y, axis=1), x * 0.99 + y))
    y = np.linspace(0, 1, 64, dtype="float32")
    x = wanted = np.outer(y, y).astype("float32")
    x = fnx.device_put(x, setting.device)
    side = fnx.device_put(y, setting.device)
    count = 20 if setting.small else REPLAYS
    for _ in range(count):
        _, x = step(x, side)
        wanted = (wanted * np.float32(0.99) + y).astype("float32")
    distance = _distance(np.asarray(x), wanted)
    case = f"{count} runs of one program"
    yield Row(
        "replays", case, distance, "of the largest", "≤ 1e-4", bool(distance <= 1e-4)
    )


def several_devices(setting: Setting) -> Iterator[Row]:
    """Arrays go from each GPU to the next one and come back as they were."""
    devices = fnx.devices("cuda")
    x = np.arange(100_000, dtype="float32")
    moved = fnx.device_put(x, devices[0])
    for device in [*devices[1:], devices[0]]:
        moved = fnx.device_put(moved, device)
    same = bool(np.array_equal(np.asarray(moved), x))
    yield Row("several devices", f"a round over {len(devices)}", good=same)


def _on(device: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    placed = fnx.device_put(args, device)
    return fnx.device_get(fnx.jit(function)(*placed))


def _distance(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest value."""
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    size = max(np.abs(wanted).max(initial=0), 1e-30)
    return float(np.abs(found - wanted).max(initial=0) / size)
