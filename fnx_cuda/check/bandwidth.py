"""Questions about memory: kernels as a share of what a copy reaches.

The bytes that a kernel must move are known; how many it moves in a second is compared
with a copy on the same device in the same run. Next on the walk: `order.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import beside, on_host, per_call

COUNT = 100_000_000
ROW = 1024


def _elements(setting: Setting, shape: tuple[int, ...]) -> Any:
    """An array of that shape on the device; a row of it where all is small."""
    shape = (2, *shape[1:]) if setting.small and len(shape) > 1 else shape
    shape = (4096,) if setting.small and len(shape) == 1 else shape
    return fnx.device_put(np.ones(shape, "float32"), setting.device)


def copied(x: Any) -> Any:
    """What costs as much as a copy; a plain one would be no program at all."""
    return -x


def chain(x: Any) -> Any:
    """Functions of each element, which are one kernel."""
    return fnp.tanh(x) * fnp.exp(-x * x) + 0.5 * fnp.sin(x)


CASES: list[tuple[str, Callable[[Any], Any], int, int, float | None]] = [
    ("elementwise chain", chain, 1, 2, 0.85),
    ("softmax of rows", nn.softmax, 2, 2, 0.85),
    ("layer norm of rows", nn.standardize, 2, 2, 0.85),
    ("sum", fnp.sum, 1, 1, None),
    ("sums of rows", lambda x: fnp.sum(x, axis=1), 2, 1, None),
    ("sums of columns", lambda x: fnp.sum(x, axis=0), 2, 1, None),
    ("transpose", lambda x: x.T + 1, 2, 2, None),
    ("running sums of rows", lambda x: fnp.cumsum(x, axis=1), 2, 2, None),
]
"""Names, functions, the axes of what they get, how often they must touch each of its
elements in memory, and the share of a copy's bandwidth that they should reach."""


def bandwidth(setting: Setting) -> Iterator[Row]:
    """Kernels that are bound by memory, as a share of a copy's bandwidth."""
    arrays = {
        1: _elements(setting, (COUNT,)),
        2: _elements(setting, (COUNT // ROW, ROW)),
    }
    copy = _rate(setting, copied, arrays[1], 2)
    yield Row("bandwidth", "copy", copy / 1e9, "GB/s")
    for name, function, axes, times, target in CASES:
        share = _rate(setting, function, arrays[axes], times) / copy
        yield _share(setting, name, share, target)
    yield _share(setting, "Adam on a tree", _adam_rate(setting) / copy, 0.8)


def _share(setting: Setting, name: str, share: float, target: float | None) -> Row:
    good = None if target is None or setting.small else share >= target
    goal = "" if target is None else f"≥ {target}"
    return Row("bandwidth", name, share, "of the copy", goal, good)


def _rate(setting: Setting, function: Any, x: Any, times: int) -> float:
    """The bytes of a second, where each element is touched so many times."""
    call = fnx.jit(function)
    seconds = per_call(lambda: call(x), fnx.block_until_ready, setting.small)
    return times * x.nbytes / seconds


def _adam_rate(setting: Setting) -> float:
    """Adam on a hundred leaves: each element is read four times and written thrice."""
    side = 8 if setting.small else 700
    leaves = [np.full((side, side), 0.1, "float32") for _ in range(100)]
    params = fnx.device_put({str(n): x for n, x in enumerate(leaves)}, setting.device)
    slopes = fnx.device_put({str(n): -x for n, x in enumerate(leaves)}, setting.device)
    optimizer = fnx.optim.adam(1e-3)
    state = fnx.device_put(optimizer.init(params), setting.device)

    @fnx.jit
    def step(params: Any, state: Any, slopes: Any) -> Any:
        updates, state = optimizer.update(slopes, state)
        return fnx.optim.apply_updates(params, updates), state

    held = [params, state]

    def call() -> Any:
        held[:] = step(*held, slopes)
        return held[0]

    seconds = per_call(call, fnx.block_until_ready, setting.small)
    return 7 * sum(x.nbytes for x in leaves) / seconds


def launch_cost(setting: Setting) -> Iterator[Row]:
    """The host's time for a step of many kernels that is replayed as a graph."""
    w = fnx.device_put(np.full((64, 64), 0.1, "float32"), setting.device)

    @fnx.jit
    def step(x: Any, w: Any) -> Any:
        for _ in range(8):
            x = nn.softmax(x @ w)
        return x

    seconds = on_host(lambda: step(w, w), fnx.block_until_ready, setting.small)
    good = None if setting.small else seconds <= 15e-6
    yield Row("launch cost", "a captured step", seconds * 1e6, "µs", "≤ 15", good)


def products(setting: Setting) -> Iterator[Row]:
    """Matrix products, beside cuBLAS through PyTorch and CuPy."""
    sizes = (32,) if setting.small else (1024, 4096, 8192)
    for size in sizes:
        for dtype in ("float32", "bfloat16", "float16", "float64"):
            if dtype == "float64" and size > 4096:
                continue
            yield _product(setting, size, dtype)


def _product(setting: Setting, size: int, dtype: str) -> Row:
    values = np.random.default_rng(0).standard_normal((size, size), "float32")
    x = fnx.device_put(values, setting.device).astype(dtype)
    call = fnx.jit(fnp.matmul)
    seconds = per_call(lambda: call(x, x), fnx.block_until_ready, setting.small)

    def torch_call(torch: Any) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = False
        y = torch.as_tensor(values).cuda().to(getattr(torch, dtype))
        return lambda: y @ y

    def cupy_call(cupy: Any) -> Any:
        y = cupy.asarray(values).astype(dtype)
        return lambda: y @ y

    peers = beside({"torch": torch_call, "cupy": cupy_call})
    best = min((t for _, t in peers), default=None)
    good = None if best is None else best / seconds >= 0.97
    rate = 2 * size**3 / seconds / 1e12
    return Row(
        "products",
        f"{size} x {size} {dtype}",
        rate,
        "TFLOP/s",
        "≥ 0.97 of cuBLAS",
        good,
        peers=tuple((name, 2 * size**3 / t / 1e12) for name, t in peers),
    )
