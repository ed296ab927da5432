"""Questions about CUDA graphs: what is captured, calls of libraries included.

Each program runs a few times with new values; the emulator cannot tell what a library
does under capture, so this is for a GPU. Next on the walk: `bandwidth.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax, nn
from fnx_cuda import graph
from fnx_cuda.check.report import Row, Setting

RUNS = 5


def graphs(setting: Setting) -> Iterator[Row]:
    """How many of the runs behind the first are replays, and whether values stay."""
    for name, function, x in _programs(setting.small):
        yield _row(setting, name, function, x)


def _programs(small: bool) -> list[tuple[str, Callable[[Any], Any], Any]]:
    size, count = (32, 3) if small else (512, 64)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size, size)).astype("float32")
    side = 8 if small else 48
    many = rng.standard_normal((count, side, side)).astype("float32")
    many = many @ many.swapaxes(1, 2) / side + np.eye(side, dtype="float32")
    features = 4 if small else 64
    images = rng.standard_normal((2, features, 12, 12)).astype("float32")
    kernel = rng.standard_normal((features, features, 3, 3)).astype("float32")

    def convolved(x: Any) -> Any:
        return lax.conv(x, kernel, (1, 1), "SAME")

    def loop(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, y: fnp.tanh(y) * 1.1 + i, x)

    return [
        ("two kernels", lambda x: fnp.cumsum(nn.softmax(x), axis=0), x),
        ("products", lambda x: nn.relu(x @ x) @ x, x),
        ("convolutions", lambda x: convolved(nn.relu(convolved(x))), images),
        ("a short loop", loop, x),
        ("Fourier transforms", lambda x: fnp.fft.irfft(fnp.fft.rfft(x) * 2), x),
        ("Cholesky factors of a stack", lambda x: fnp.linalg.cholesky(x) * 2, many),
        ("solutions of a stack", lambda x: fnp.linalg.solve(x * 2, x[..., :3]), many),
        ("QR of a stack", lambda x: fnp.linalg.qr(x * 2)[1] + 1, many),
        ("QR with pivoting", lambda x: _pivoted(x[0] * 2) + 1, many),
        ("sorts", lambda x: fnp.sort(x * 2, axis=1) + 1, x),
    ]


def _pivoted(x: Any) -> Any:
    return fnx.scipy.linalg.qr(x, pivoting=True)[1]


def _row(setting: Setting, name: str, function: Callable[[Any], Any], x: Any) -> Row:
    run, wanted = fnx.jit(function), fnx.jit(function)
    before, largest = graph.replayed(), 0.0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for turn in range(RUNS):
            given = (x * (1 + turn / 8)).astype(x.dtype)
            found = np.asarray(run(fnx.device_put(given, setting.device)))
            want = np.asarray(wanted(fnx.device_put(given, setting.cpu)))
            size = max(float(np.abs(want).max()), 1e-30)
            largest = max(largest, float(np.abs(found - want).max()) / size)
    replays = graph.replayed() - before
    notes = [f"error {largest:.1e}", *[str(each.message) for each in told]]
    return Row(
        "graphs",
        name,
        replays,
        f"replays in {RUNS} runs",
        "> 0, error < 1e-3, no warning",
        replays > 0 and largest < 1e-3 and not told,
        "; ".join(notes),
    )
