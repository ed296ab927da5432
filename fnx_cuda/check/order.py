"""Questions about order: sorts, updates that meet, and running values of long rows.

What a GPU does with many elements that depend on each other, in milliseconds, beside
what other libraries take. Next on the walk: `product_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import beside, per_call

COUNT = 10_000_000
WORDS, WIDTH = 50_000, 768


def order(setting: Setting) -> Iterator[Row]:
    """Milliseconds of sorts, scatters and scans."""
    count = 5_000 if setting.small else COUNT
    words, width = (20, 4) if setting.small else (WORDS, WIDTH)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(count).astype("float32")
    at = rng.integers(0, count // 10, count).astype("int32")
    text = rng.zipf(1.2, count // 150).astype("int64") % words
    rows = rng.standard_normal((text.size, width)).astype("float32")
    cases: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
        (
            "sort",
            fnp.sort,
            (x,),
            {"torch": _torch("sort", x), "cupy": _cupy("sort", x)},
        ),
        (
            "argsort",
            fnp.argsort,
            (x,),
            {"torch": _torch("argsort", x), "cupy": _cupy("argsort", x)},
        ),
        (
            "top 100",
            lambda x: lax.top_k(x, 100),
            (x,),
            {"torch": _torch("topk", x, 100)},
        ),
        (
            "running sums",
            fnp.cumsum,
            (x,),
            {"torch": _torch("cumsum", x, 0), "cupy": _cupy("cumsum", x)},
        ),
        (
            "counts",
            _added((count // 10,), "int32"),
            (1, at),
            {"torch": _torch("bincount", at), "cupy": _cupy("bincount", at)},
        ),
        (
            "sums by index",
            _added((count // 10,), "float32"),
            (x, at),
            {"torch": _torch_sums(x, at, count // 10)},
        ),
        (
            "sums of rows by index",
            _added((words, width), "float32"),
            (rows, text.astype("int32")),
            {"torch": _torch_sums(rows, text, words)},
        ),
    ]
    for name, function, args, peers in cases:
        placed = fnx.device_put(args, setting.device)
        yield _row(setting, name, function, placed, peers)


def _added(shape: tuple[int, ...], dtype: str) -> Callable[..., Any]:
    """A function that adds values where indices tell."""

    def added(x: Any, at: Any) -> Any:
        zeros: Any = fnp.zeros(shape, dtype)
        return zeros.at[at].add(x)

    return added


def _row(
    setting: Setting,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    peers: dict[str, Any],
) -> Row:
    call = fnx.jit(function)
    seconds = per_call(lambda: call(*args), fnx.block_until_ready, setting.small)
    others = tuple((peer, 1e3 * t) for peer, t in beside(peers))
    return Row("order", name, 1e3 * seconds, "ms", peers=others)


def _torch(name: str, x: Any, *more: Any) -> Callable[[Any], Any]:
    def make(torch: Any) -> Any:
        y = torch.as_tensor(x, device="cuda")
        return lambda: getattr(torch, name)(y, *more)

    return make


def _torch_sums(x: Any, at: Any, size: int) -> Callable[[Any], Any]:
    """Sums by atomics, in any order."""

    def make(torch: Any) -> Any:
        y, i = torch.as_tensor(x, device="cuda"), torch.as_tensor(at, device="cuda")
        zeros = torch.zeros((size, *y.shape[1:]), device="cuda")
        return lambda: torch.index_add(zeros, 0, i, y)

    return make


def _cupy(name: str, x: Any) -> Callable[[Any], Any]:
    def make(cupy: Any) -> Any:
        y = cupy.asarray(x)
        return lambda: getattr(cupy, name)(y)

    return make
