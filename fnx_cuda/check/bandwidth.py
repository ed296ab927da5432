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


def bandwidth(setting: Setting) -> Iterator[Row]:
    """Kernels that are bound by memory, as a share of a copy's bandwidth."""
    rows = COUNT // ROW
    flat = _elements(setting, (COUNT,))
    square = _elements(setting, (rows, ROW))
    copy = _rate(setting, lambda x: x.reshape(-1) * 1.0, flat, 2 * flat.nbytes)
    yield Row("bandwidth", "copy", copy / 1e9, "GB/s")
    chain = lambda x: fnp.tanh(x) * fnp.exp(-x * x) + 0.5 * fnp.sin(x)  # noqa: E731
    both = 2 * square.nbytes
    cases: list[tuple[str, Callable[[Any], Any], Any, int, float | None]] = [
        ("elementwise chain", chain, flat, 2 * flat.nbytes, 0.85),
        ("softmax of rows", nn.softmax, square, both, 0.85),
        ("layer norm of rows", nn.standardize, square, both, 0.85),
        ("sum", fnp.sum, flat, flat.nbytes, None),
        ("sums of rows", lambda x: fnp.sum(x, axis=1), square, square.nbytes, None),
        ("sums of columns", lambda x: fnp.sum(x, axis=0), square, square.nbytes, None),
        ("transpose", lambda x: x.T + 1, square, both, None),
        ("running sums of rows", lambda x: fnp.cumsum(x, axis=1), square, both, None),
    ]
    for name, function, x, nbytes, target in cases:
        share = _rate(setting, function, x, nbytes) / copy
        good = None if target is None or setting.small else share >= target
        goal = "" if target is None else f"≥ {target}"
        yield Row("bandwidth", name, share, "of the copy", goal, good)
    share = _adam_rate(setting) / copy
    yield Row(
        "bandwidth", "Adam on a tree", share, "of the copy", "≥ 0.8", share >= 0.8
    )


def _rate(setting: Setting, function: Any, x: Any, nbytes: int) -> float:
    """The bytes of a second."""
    call = fnx.jit(function)
    seconds = per_call(lambda: call(x), fnx.block_until_ready, setting.small)
    return nbytes / seconds


def _adam_rate(setting: Setting) -> float:
    """Adam on a hundred leaves: each element is read four times and written thrice."""
    side = 8 if setting.small else 700
    leaves = [np.full((side, side), 0.1, "float32") for _ in range(100)]
    params = fnx.device_put({str(n): x for n, x in enumerate(leaves)}, setting.device)
    optimizer = fnx.optim.adam(1e-3)
    state = fnx.device_put(optimizer.init(params), setting.device)

    @fnx.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(params, state)
        return fnx.optim.apply_updates(params, updates), state

    held = [params, state]

    def call() -> Any:
        held[:] = step(*held)
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
    x = fnx.device_put(np.ones((size, size), "float32"), setting.device).astype(dtype)
    call = fnx.jit(fnp.matmul)
    seconds = per_call(lambda: call(x, x), fnx.block_until_ready, setting.small)

    def torch_call(torch: Any) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = False
        y = torch.ones((size, size), dtype=getattr(torch, dtype), device="cuda")
        return lambda: y @ y

    def cupy_call(cupy: Any) -> Any:
        y = cupy.ones((size, size), dtype)
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
