"""fft: discrete Fourier transforms along one axis or several.

Receives an array, the kind of transform and its axes with their lengths; gives the
transformed array. Backends have machine code for most lengths; where there is none, and
for small arrays outside of `jit`, SciPy's pocketfft computes it, with as many threads
as kernels have. The transforms are linear and transpose to each other: a complex one is
its own transpose, and a real one pairs with its inverse, in which every coefficient but
those at 0 and in the middle stands for two. Next on the walk: `fnx/numpy/fft.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.config import threads
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, OptionError, ShapeError, explain
from fnx.ops.arithmetic import eq, mul, select
from fnx.ops.families import OnHost
from fnx.ops.parts import conj, or_
from fnx.ops.rearrange import Ints, check_axes, shifted
from fnx.ops.shape import iota, kept_axes

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
"""The transform, its inverse (divided by the number of elements), both of reals."""

MANY = 2**14
"""From so many elements on, threads share a transform."""


class _Fft(OnHost):
    """fft(x, kind, lengths, axes): a Fourier transform along some axes.

    `lengths` are those of the real or full signals. The last one of `axes` is that of
    which RFFT gives, and IRFFT takes, the first half: length // 2 + 1 coefficients.
    """

    linear = True
    gathers = True
    whole_before = True
    routine = "fft"
    compiled_from = 2**18

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        axes: Ints,
        **params: Any,
    ) -> Flow:
        """The other axes run along the output."""
        return kept_axes(types, outs, axes)

    def infer(self, x: ArrayType, *, kind: str, lengths: Ints, axes: Ints) -> ArrayType:
        """The type of the coefficients, or of the signal."""
        asked = f"fft({x}, kind={kind!r}, lengths={lengths}, axes={axes})"
        if kind not in KINDS:
            raise OptionError(explain(asked, f"the kinds are {', '.join(KINDS)}"))
        check_axes(asked, x, axes)
        if not axes or len(axes) != len(lengths):
            raise ShapeError(explain(asked, "each axis needs one length"))
        if min(lengths) < 1:
            raise ShapeError(explain(asked, "lengths are at least 1"))
        real = kind == "RFFT"
        if x.dtype.itemsize == 2 or not (
            dtypes.is_float(x.dtype) if real else dtypes.is_complex(x.dtype)
        ):
            wanted = "float32 or float64" if real else "complex64 or complex128"
            raise DTypeError(explain(asked, f"it takes {wanted}"))
        given = dict(zip(axes, lengths, strict=True))
        half = lengths[-1] // 2 + 1
        needed = {**given, axes[-1]: half} if kind == "IRFFT" else given
        for axis, size in needed.items():
            if x.shape[axis] != size:
                reason = f"axis {axis} must have length {size}, not {x.shape[axis]}"
                raise ShapeError(explain(asked, reason))
        if real:
            out = _with_length(x.shape, axes[-1], half)
            return x.with_shape(out).with_dtype(dtypes.complex_dtype(x.dtype))
        if kind == "IRFFT":
            out = _with_length(x.shape, axes[-1], lengths[-1])
            return x.with_shape(out).with_dtype(dtypes.real_dtype(x.dtype))
        return x

    def reference(self, x: Any, *, kind: str, lengths: Ints, axes: Ints) -> Any:
        """SciPy's transform."""
        out_type = self.infer(
            ArrayType(x.shape, x.dtype), kind=kind, lengths=lengths, axes=axes
        )
        if not x.size:
            return np.zeros(out_type.shape, out_type.dtype)
        return _transformed(x, kind, lengths, axes, overwrite=False)

    def write(self, outputs: Sequence[Any], x: Any, /, **params: Any) -> None:
        """A complex transform in place: the output's memory is there already."""
        (out,) = outputs
        if params["kind"] not in ("FFT", "IFFT") or not x.size:
            super().write(outputs, x, **params)
            return
        out[...] = x
        found = _transformed(out, **params, overwrite=True)
        if not np.may_share_memory(found, out):
            out[...] = found

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, **params), self(*tangents, **params)

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, **params), [self(t, **params) for t in series[0]]

    def transpose(
        self, ct: Any, x: Any, *, kind: str, lengths: Ints, axes: Ints
    ) -> tuple[Any]:
        """With cotangents that pair without conjugation, as everywhere."""
        ends = {"lengths": lengths, "axes": axes}
        if kind in ("FFT", "IFFT"):
            return (self(ct, kind=kind, **ends),)
        count = float(math.prod(lengths))
        if kind == "RFFT":
            halved = _weighted(conj(ct), 0.5, lengths[-1], axes[-1])
            return (mul(self(halved, kind="IRFFT", **ends), count),)
        spectrum = conj(self(ct, kind="RFFT", **ends))
        return (mul(_weighted(spectrum, 2.0, lengths[-1], axes[-1]), 1 / count),)

    def padded(self, pads: Pads, x: Padded, *, axes: Ints, **params: Any) -> Any:
        """The same transforms, of axes that do not vary."""
        if {*x.varying} & {*axes}:
            raise pads.cannot("the length of the transform varies")
        return self(x.array, axes=axes, **params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,
        **params: Any,
    ) -> tuple[Any, bool]:
        """The same axes, behind the new one."""
        if mapped[0]:
            params["axes"] = shifted(params["axes"])
        return self(*args, **params), mapped[0]


def _with_length(shape: Ints, axis: int, length: int) -> Ints:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _transformed(x: Any, kind: str, lengths: Ints, axes: Ints, overwrite: bool) -> Any:
    import scipy.fft  # lazy: SciPy is slow to load

    workers = threads[0] if x.size >= MANY else 1
    options = {"axes": axes, "overwrite_x": overwrite, "workers": workers}
    match kind:
        case "FFT":
            return scipy.fft.fftn(x, **options)
        case "IFFT":
            return scipy.fft.ifftn(x, **options)
        case "RFFT":
            return scipy.fft.rfftn(x, **options)
    return scipy.fft.irfftn(x, lengths, **options)


def _weighted(z: Any, weight: float, length: int, axis: int) -> Any:
    """Half a spectrum, weighted but for the coefficients that stand for themselves."""
    place = iota(shape=z.type.shape, dtype=dtypes.int32, axis=axis)
    alone = eq(place, 0)
    if length % 2 == 0:
        alone = or_(alone, eq(place, length // 2))
    return select(alone, z, mul(z, weight))


fft = _Fft("fft")
