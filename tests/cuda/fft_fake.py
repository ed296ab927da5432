"""What stands in the place of cuFFT: the same functions, by NumPy.

Arrays are read by strides and distances, from addresses of this process. The input of a
complex to real transform is overwritten. Next: `test_served.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cuda.library_fakes import Fake, Written, memory


@dataclass
class FakePlan:
    """A plan so far."""

    stream: int | None = None
    area: int | None = None
    layout: dict[str, Any] = field(default_factory=dict)


# Numbers of cufftType: names, and the dtypes of input and output.
FFT_TYPES: dict[int, tuple[str, Any, Any]] = {
    0x29: ("C2C", np.complex64, np.complex64),
    0x69: ("Z2Z", np.complex128, np.complex128),
    0x2A: ("R2C", np.float32, np.complex64),
    0x6A: ("D2Z", np.float64, np.complex128),
    0x2C: ("C2R", np.complex64, np.float32),
    0x6C: ("Z2D", np.complex128, np.float64),
}


class FakeFft(Fake):
    """cuFFT."""

    prefix = "cufft"

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[int, FakePlan] = {}

    def find(self, routine: str) -> Callable[..., Any] | None:
        if routine.startswith("Exec"):
            return functools.partial(self.run, routine.removeprefix("Exec"))
        own = {
            "Destroy": self.destroy,
            "SetAutoAllocation": self.set_automatic,
            "MakePlanMany64": self.make,
            "SetWorkArea": self.set_area,
        }
        return own.get(routine) or super().find(routine)

    def create(self, made: Any) -> None:
        super().create(made)
        self.plans[made._obj.value] = FakePlan()

    def destroy(self, plan: int) -> None:
        del self.plans[plan]

    def set_automatic(self, plan: int, automatic: int) -> None:
        assert automatic == 0

    def set_area(self, plan: int, area: int) -> None:
        self.plans[plan].area = area

    def set_stream(self, plan: int, stream: int) -> None:
        super().set_stream(plan, stream)
        self.plans[plan].stream = stream

    def make(
        self,
        plan: int,
        rank: int,
        lengths: Any,
        in_embed: Any,
        in_stride: int,
        in_distance: int,
        out_embed: Any,
        out_stride: int,
        out_distance: int,
        type_: int,
        batch: int,
        size: Any,
    ) -> None:
        assert (in_embed is None) == (out_embed is None)
        kind = FFT_TYPES[type_][0]
        shapes = [list(lengths), list(lengths)]
        assert len(shapes[0]) == rank <= 3
        halves = ("C2R", "Z2D"), ("R2C", "D2Z")
        for shape, halving in zip(shapes, halves, strict=True):
            if kind in halving:
                shape[-1] = shape[-1] // 2 + 1
        strides, distances = [1, 1], [int(np.prod(shape)) for shape in shapes]
        if in_embed is not None:
            # Of one axis, only strides count.
            assert rank == 1
            strides = [in_stride, out_stride]
            distances = [in_distance, out_distance]
        self.plans[plan].layout = {
            "type": type_,
            "lengths": tuple(lengths),
            "shapes": shapes,
            "strides": strides,
            "distances": distances,
            "batch": batch,
        }
        size._obj.value = 64

    def run(self, kind: str, plan: int, source: int, out: int, way: int = 0) -> None:
        found = self.plans[plan]
        layout = found.layout
        named, *types = FFT_TYPES[layout["type"]]
        assert named == kind and found.area and found.stream is not None
        assert (way in (-1, 1)) == (kind in ("C2C", "Z2Z"))
        # Complex numbers are read in pairs.
        for address, dtype in zip((source, out), types, strict=True):
            assert address % np.dtype(dtype).itemsize == 0
        views, spans = [], []
        for end, address in enumerate((source, out)):
            shape, stride = layout["shapes"][end], layout["strides"][end]
            size = np.dtype(types[end]).itemsize
            steps = [stride * size]
            for length in reversed(shape[1:]):
                steps.insert(0, steps[0] * length)
            distance = layout["distances"][end]
            count = (layout["batch"] - 1) * distance + (np.prod(shape) - 1) * stride + 1
            flat = memory(address, int(count), types[end])
            spans.append(flat)
            views.append(
                np.lib.stride_tricks.as_strided(
                    flat, (layout["batch"], *shape), (distance * size, *steps)
                )
            )

        def run() -> Written:
            views[1][...] = _transformed(kind, views[0], way, layout["lengths"])
            if kind in ("C2R", "Z2D"):
                views[0][...] = np.nan
            return [(out, spans[1].nbytes)]

        self.stream = found.stream
        self.start(kind, run)


def _transformed(kind: str, x: Any, way: int, lengths: Any) -> Any:
    axes = tuple(range(1, 1 + len(lengths)))
    whole = np.prod(lengths)
    if kind in ("R2C", "D2Z"):
        return np.fft.rfftn(x, axes=axes)
    if kind in ("C2R", "Z2D"):
        return np.fft.irfftn(x, lengths, axes) * whole
    return np.fft.fftn(x, axes=axes) if way < 0 else np.fft.ifftn(x, axes=axes) * whole
