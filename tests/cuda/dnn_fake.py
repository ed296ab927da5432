"""What stands in cuDNN's place: its convolutions and their gradients, by NumPy.

It is called as ctypes calls the library, and reads tensors by their strides and dense
filters from addresses of this process. What the library would refuse it refuses, with
the library's status or an AssertionError. Next: `test_cudnn.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda.library_fakes import Fake, Written, memory, number

BAD_PARAM, NOT_SUPPORTED = 2000, 3000
DATA = {0: np.float32, 1: np.float64, 2: np.float16, 9: ml_dtypes.bfloat16}
DEFAULT_MATH, TENSOR_OP_MATH, ALLOW_CONVERSION, FMA_MATH = 0, 1, 2, 3
KINDS = {"Forward": "xwy", "BackwardData": "wyx", "BackwardFilter": "xyw"}
"""What a function reads, and last what it writes."""

Perf = list[tuple[int, int, int]]
"""Algorithms that are offered: numbers, determinism, and arithmetic."""

OFFERED: dict[str, Perf] = {
    "Forward": [(6, 1, 0), (1, 1, 0), (1, 1, 1), (1, 1, 3), (0, 1, 3), (1, 1, 2)],
    "BackwardData": [(0, 0, 3), (0, 0, 1), (1, 1, 1), (1, 1, 3), (1, 1, 2)],
    "BackwardFilter": [(3, 0, 3), (0, 0, 1), (1, 1, 1), (1, 1, 3), (1, 1, 2)],
}
WORKSPACE = 4096


class FakeDnn(Fake):
    """cuDNN; `ran` are the functions with their algorithms and arithmetics.

    Functions that are `refused` are offered no algorithm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.descriptors: dict[int, dict[str, Any]] = {}
        self.refused: set[str] = set()
        self.stream = 0
        self.calls: list[tuple[str, int, int]] = []

    def cudnnGetVersion(self) -> int:
        return 92800

    def cudnnCreate(self, handle: Any) -> int:
        handle._obj.value = next(self.numbers)
        return self.status("cudnnCreate")

    def cudnnSetStream(self, handle: Any, stream: Any) -> int:
        assert number(handle)
        self.stream = number(stream)
        return 0

    # ------------------------------------------------------------ descriptors

    def __getattr__(self, name: str) -> Any:
        for kind in ("Tensor", "Filter", "Convolution"):
            if name == f"cudnnCreate{kind}Descriptor":
                return lambda made: self._create(kind, made)
            if name == f"cudnnDestroy{kind}Descriptor":
                return lambda made: self.descriptors.pop(number(made)) and 0
        for kind in KINDS:
            if name == f"cudnnGetConvolution{kind}Algorithm_v7":
                return lambda *arguments: self._find(kind, *arguments)
            if name == f"cudnnConvolution{kind}":
                return lambda *arguments: self._convolve(kind, *arguments)
        raise AttributeError(name)

    def _create(self, kind: str, made: Any) -> int:
        made._obj.value = next(self.numbers)
        self.descriptors[made._obj.value] = {"kind": kind}
        return 0

    def _of(self, kind: str, pointer: Any) -> dict[str, Any]:
        found = self.descriptors[number(pointer)]
        assert found["kind"] == kind
        return found

    def cudnnSetTensorNdDescriptor(
        self, made: Any, data: int, count: int, sizes: Any, strides: Any
    ) -> int:
        if not 4 <= count <= 8 or min(*sizes, *strides) < 1:
            return BAD_PARAM
        known = {"dtype": DATA[data], "sizes": [*sizes], "strides": [*strides]}
        self._of("Tensor", made).update(known)
        return 0

    def cudnnSetFilterNdDescriptor(
        self, made: Any, data: int, layout: int, count: int, sizes: Any
    ) -> int:
        if not 4 <= count <= 8 or min(sizes) < 1 or layout not in (0, 1):
            return BAD_PARAM
        known = {"dtype": DATA[data], "sizes": [*sizes], "last": bool(layout)}
        self._of("Filter", made).update(known)
        return 0

    def cudnnSetConvolutionNdDescriptor(
        self,
        made: Any,
        count: int,
        pads: Any,
        strides: Any,
        dilations: Any,
        mode: int,
        compute: int,
    ) -> int:
        if count < 2 or min(pads) < 0 or min(*strides, *dilations) < 1:
            return BAD_PARAM
        axes = list(zip(pads, strides, dilations, strict=True))
        known = {"axes": axes, "flipped": mode == 0, "compute": compute, "groups": 1}
        self._of("Convolution", made).update(known)
        return 0

    def cudnnSetConvolutionGroupCount(self, made: Any, groups: int) -> int:
        self._of("Convolution", made)["groups"] = groups
        return 0

    def cudnnSetConvolutionMathType(self, made: Any, math: int) -> int:
        self._of("Convolution", made)["math"] = int(math)
        return 0

    # ------------------------------------------------------------ convolutions

    def _arrays(self, kind: str, given: Sequence[Any]) -> dict[str, Any]:
        """The descriptors of x, the filter (w) and y, which go together."""
        names = KINDS[kind]
        found = {
            name: self._of("Filter" if name == "w" else "Tensor", pointer)
            for name, pointer in zip(names, given, strict=True)
        }
        assert len({each["dtype"] for each in found.values()}) == 1
        return found

    def _fits(self, found: dict[str, Any], convolution: dict[str, Any]) -> bool:
        x, w, y = [found[name]["sizes"] for name in "xwy"]
        groups, counts = convolution["groups"], []
        for size, window, axis in zip(x[2:], w[2:], convolution["axes"], strict=True):
            pad, stride, dilation = axis
            counts.append((size + 2 * pad - (window - 1) * dilation - 1) // stride + 1)
        assert convolution["compute"] == int(found["x"]["dtype"] == np.float64)
        features = x[1] == w[1] * groups and y[1] == w[0] and not w[0] % groups
        return features and x[0] == y[0] and y[2:] == counts

    def _find(
        self,
        kind: str,
        handle: Any,
        first: Any,
        second: Any,
        convolution: Any,
        last: Any,
        asked: int,
        count: Any,
        found: Any,
    ) -> int:
        assert number(handle)
        known = self._of("Convolution", convolution)
        if not self._fits(self._arrays(kind, (first, second, last)), known):
            return BAD_PARAM
        if kind in self.refused:
            return NOT_SUPPORTED
        offered = OFFERED[kind][:asked]
        for place, (algorithm, determinism, math) in zip(found, offered, strict=False):
            place.algorithm, place.status, place.memory = algorithm, 0, WORKSPACE
            place.determinism, place.math = determinism, math
        count._obj.value = len(offered)
        return self.status(f"find{kind}")

    def _convolve(self, kind: str, handle: Any, alpha: Any, *arguments: Any) -> int:
        first, one, second, two, convolution, algorithm, work, size, beta, *out = (
            arguments
        )
        last, three = out
        known = self._of("Convolution", convolution)
        arrays = self._arrays(kind, (first, second, last))
        if not self._fits(arrays, known):
            return BAD_PARAM
        dtype = arrays["x"]["dtype"]
        scalar = np.float64 if dtype == np.float64 else np.float32
        assert memory(number(alpha), 1, scalar)[0] == 1
        assert memory(number(beta), 1, scalar)[0] == 0
        assert number(size) == WORKSPACE and number(work) % 256 == 0
        math = known["math"]
        assert (algorithm, math) in [(a, m) for a, _, m in OFFERED[kind]]
        status = self.status(f"cudnnConvolution{kind}")
        if status:
            return status
        names, places = KINDS[kind], [number(p) for p in (one, two, three)]
        views = {
            name: _view(arrays[name], place)
            for name, place in zip(names, places, strict=True)
        }
        # The descriptors may change before the stream comes to it.
        settings = dict(known)

        def run() -> Written:
            self.calls.append((kind, int(algorithm), math))
            memory(number(work), WORKSPACE, np.uint8)[...] = 0xAB
            given = {name: view.astype(np.float64) for name, view in views.items()}
            if dtype == np.float32 and math != FMA_MATH:
                given = {name: _rounded(view) for name, view in given.items()}
            made = _computed(kind, settings, given)
            with np.errstate(over="ignore"):
                views[names[-1]][...] = made.astype(dtype)
            written = places[-1], _span(views[names[-1]])
            return [written, (number(work), WORKSPACE)]

        self.later(self.stream, run)
        return 0


def _view(described: dict[str, Any], place: int) -> Any:
    """A tensor, or a filter in the order of its descriptor, in memory."""
    sizes, item = described["sizes"], np.dtype(described["dtype"]).itemsize
    strides = described.get("strides")
    if strides is None:
        order = [0, *range(2, len(sizes)), 1] if described["last"] else None
        order = order or list(range(len(sizes)))
        strides, step = [0] * len(sizes), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= sizes[axis]
    reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
    flat = memory(place, reach, described["dtype"])
    steps = [step * item for step in strides]
    return np.lib.stride_tricks.as_strided(flat, sizes, steps)


def _span(view: Any) -> int:
    steps = zip(view.shape, view.strides, strict=True)
    return sum((size - 1) * step for size, step in steps) + view.itemsize


def _rounded(x: Any) -> Any:
    """Ten bits behind the point."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64)


def _computed(kind: str, settings: dict[str, Any], given: dict[str, Any]) -> Any:
    """The output: of y, of x, or of the filter."""
    groups, axes = settings["groups"], settings["axes"]
    x, w, y = given["x"], given["w"], given["y"]
    space = tuple(range(2, x.ndim))
    if settings["flipped"]:
        w = np.flip(w, space)
    padded = np.pad(x, [(0, 0), (0, 0), *[(pad, pad) for pad, _, _ in axes]])
    n, c, k = len(x), w.shape[1], w.shape[0] // groups
    padded = padded.reshape(n, groups, c, *padded.shape[2:])
    made = {
        "Forward": np.zeros((n, groups, k, *y.shape[2:])),
        "BackwardData": np.zeros_like(padded),
        "BackwardFilter": np.zeros((groups, k, c, *w.shape[2:])),
    }[kind]
    w = w.reshape(groups, k, c, *w.shape[2:])
    y = y.reshape(n, groups, k, *y.shape[2:])
    for offsets in itertools.product(*map(range, w.shape[3:])):
        part = (
            ...,
            *[
                slice(o * d, o * d + (count - 1) * s + 1, s)
                for o, count, (_, s, d) in zip(offsets, y.shape[3:], axes, strict=True)
            ],
        )
        at = (..., *offsets)
        if kind == "Forward":
            made += np.einsum("ngc...,gkc->ngk...", padded[part], w[at])
        elif kind == "BackwardData":
            made[part] += np.einsum("ngk...,gkc->ngc...", y, w[at])
        else:
            made[at] = np.einsum("ngkz,ngcz->gkc", _flat(y), _flat(padded[part]))
    if kind == "BackwardData":
        rows = zip(axes, x.shape[2:], strict=True)
        inside = [slice(pad, pad + size) for (pad, _, _), size in rows]
        return made[(..., *inside)].reshape(x.shape)
    if kind == "Forward":
        return made.reshape(n, groups * k, *made.shape[3:])
    made = made.reshape(groups * k, c, *made.shape[3:])
    return np.flip(made, space) if settings["flipped"] else made


def _flat(x: Any) -> Any:
    return x.reshape(*x.shape[:3], -1)
