"""Spectra of overlapping segments of a signal: stft and its inverse, csd, welch.

Each segment has its trend taken away, is multiplied by a window, and transformed.
Windows by name are SciPy's. Of complex signals all frequencies are given, whatever
`return_onesided` says. Next on the walk: the other parts of `fnx.scipy`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx import numpy as fnp
from fnx.core.array import Array
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    axis_index,
    cast,
    inexact_dtype,
    promoted,
    typed,
)
from fnx.ops.parts import complex_
from fnx.records import record

Window = Any
"""A name ("hann"), a name with parameters, or an array as long as a segment."""

Spectrum = tuple[Array, Array, Array]
"""Frequencies, the middles of the segments in time, and the transforms."""


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] = 0,
    overwrite_data: None = None,
) -> Array:
    """The data without its mean (type="constant") or least-squares line ("linear").

    `bp` are the places at which a new line begins. Raises `OptionError` for another
    type, for places outside of the data, and for `overwrite_data`.

    >>> detrend(np.array([1.0, 2.0, 3.0, 5.0]), type="constant").tolist()
    [-1.75, -0.75, 0.25, 2.25]
    """
    if overwrite_data is not None:
        raise errors.OptionError(
            "detrend: arrays never change; leave overwrite_data out"
        )
    (x,), dtype, _ = promoted("detrend", (data,), inexact=True)
    x = typed("detrend", x, dtype)
    place = axis_index("detrend", axis, x.ndim)
    if type == "constant":
        return x - fnp.mean(x, place, keepdims=True)
    if type != "linear":
        raise errors.OptionError(
            f"detrend: type={type!r} is neither linear nor constant"
        )
    x = fnp.moveaxis(x, place, -1)
    size = x.shape[-1]
    bounds = sorted({0, *np.atleast_1d(bp).tolist(), size})
    if bounds[0] < 0 or bounds[-1] > size:
        raise errors.OptionError(f"detrend: bp={bp!r} lies outside of {size} elements")
    pieces = [_without_line(x[..., begin:end]) for begin, end in pairwise(bounds)]
    return fnp.moveaxis(fnp.concatenate(pieces, -1), -1, place)


def _without_line(x: Array) -> Array:
    """The last axis without its projection on lines."""
    size = x.shape[-1]
    lines = np.stack([np.ones(size), np.arange(size) - (size - 1) / 2], 1)
    lines = lines[:, : min(size, 2)] / np.linalg.norm(lines[:, : min(size, 2)], axis=0)
    lines = lines.astype(x.dtype)
    return x - (x @ lines) @ lines.T


# ---------------------------------------------------------------- segments


@record
class _Segments:
    """How a signal is cut: the window, the steps between segments, and the lengths."""

    window: Array
    step: int
    length: int


def _segments(
    function: str,
    window: Window,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    *,
    size: int,
    dtype: np.dtype[Any],
) -> _Segments:
    """The choices, checked; segments are at most as long as the signal."""
    if isinstance(window, str | tuple):
        count = min(256 if nperseg is None else operator.index(nperseg), size)
        _at_least_one(function, "nperseg", count)
        values = _named_window(window, count).astype(dtypes.real_dtype(dtype))
        weights = fnp.asarray(values)
    else:
        weights = typed(function, window, dtypes.real_dtype(dtype))
        if weights.ndim != 1 or weights.shape[0] > size:
            raise errors.ShapeError(
                f"{function}: a window {weights.type} for a signal of {size} elements"
            )
        count = weights.shape[0]
        if nperseg is not None and nperseg != count:
            raise errors.OptionError(
                f"{function}: nperseg={nperseg} and a window of {count} elements"
            )
    overlap = count // 2 if noverlap is None else operator.index(noverlap)
    if not 0 <= overlap < count:
        raise errors.OptionError(
            f"{function}: noverlap={noverlap} must be at least 0 and less than "
            f"nperseg={count}"
        )
    length = count if nfft is None else operator.index(nfft)
    if length < count:
        raise errors.OptionError(
            f"{function}: nfft={nfft} is less than nperseg={count}"
        )
    return _Segments(weights, count - overlap, length)


def _named_window(window: Any, count: int) -> Any:
    import scipy.signal  # lazy: SciPy is slow to load

    try:
        return scipy.signal.get_window(window, count)
    except ValueError as error:
        raise errors.OptionError(f"window={window!r}: {error}") from None


def _at_least_one(function: str, argument: str, value: int) -> None:
    if value < 1:
        raise errors.OptionError(
            f"{function}: {argument} must be at least 1, got {value}"
        )


def _places(size: int, cut: _Segments) -> Any:
    """For each segment, where its elements lie."""
    count = cut.window.shape[0]
    starts = np.arange(0, size - count + 1, cut.step)
    return starts[:, None] + np.arange(count)


def _transforms(
    x: Array, cut: _Segments, trend: Callable[[Array], Array], one: bool
) -> Any:
    """The transforms of all segments along the last axis: (..., segment, frequency)."""
    parts = trend(x[..., _places(x.shape[-1], cut)]) * cut.window
    if one:
        return fnp.fft.rfft(parts, cut.length)
    return fnp.fft.fft(parts, cut.length)


def _trend(function: str, kind: Any) -> Callable[[Array], Array]:
    """What takes the trend away along the last axis."""
    if kind is False:
        return lambda x: x
    if callable(kind):
        return kind
    if kind not in ("constant", "linear"):
        raise errors.OptionError(
            f"{function}: detrend={kind!r} is none of 'constant', 'linear', False and "
            "a function"
        )
    return lambda x: detrend(x, type=kind)


def _frequencies(cut: _Segments, fs: ArrayLike, one: bool, dtype: Any) -> Array:
    names = fnp.fft.rfftfreq if one else fnp.fft.fftfreq
    return names(cut.length, dtype=dtypes.real_dtype(dtype)) * fs


def _signals(
    function: str, signals: Sequence[Any], axis: int
) -> tuple[list[Array], int]:
    """Signals in one floating dtype, time as the last axis, zeros after the shorter.

    Also where time was, counted from the end.
    """
    values, dtype, _ = promoted(function, signals, inexact=True)
    moved = []
    for value in values:
        array = typed(function, value, dtypes.compute_dtype(dtype))
        place = axis_index(function, axis, array.ndim)
        if not array.shape[place]:
            raise errors.ShapeError(f"{function}: {array.type} has no elements in time")
        moved.append(fnp.moveaxis(array, place, -1))
    size = max(array.shape[-1] for array in moved)
    return [_filled(array, size) for array in moved], place - array.ndim


# ---------------------------------------------------------------- densities


def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The cross spectral density of two signals by Welch's method.

    Gives the frequencies and the average of conj(X) Y over segments of `nperseg`
    elements (256) that overlap by `noverlap` (half of them), each filled with zeros to
    `nfft`. `fs` is the sampling frequency; `scaling`: "density" (per frequency) or
    "spectrum"; `average`: "mean" or "median". `y=None` stands for x. The shorter signal
    is filled with zeros. Raises `OptionError` for other choices.

    >>> x = np.sin(np.arange(64) * np.pi / 4)
    >>> frequencies, power = csd(x, x, nperseg=16)
    >>> frequencies[fnp.argmax(power.real)].item()
    0.125
    """
    segments = window, nperseg, noverlap, nfft
    how = detrend, return_onesided, scaling, axis, average
    return _density("csd", (x, y), fs, segments, *how)


def welch(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The power spectral density of a signal by Welch's method: `csd` with itself.

    >>> frequencies, power = welch(np.sin(np.arange(64) * np.pi / 4), nperseg=16)
    >>> frequencies[fnp.argmax(power)].item()
    0.125
    """
    segments = window, nperseg, noverlap, nfft
    how = detrend, return_onesided, scaling, axis, average
    return _density("welch", (x, None), fs, segments, *how)


def _density(
    function: str,
    signals: tuple[ArrayLike, ArrayLike | None],
    fs: ArrayLike,
    segments: tuple[Any, ...],
    trend: Any,
    return_onesided: bool,
    scaling: str,
    axis: int,
    average: str,
) -> tuple[Array, Array]:
    if scaling not in ("density", "spectrum"):
        raise errors.OptionError(
            f"{function}: scaling={scaling!r} is neither density nor spectrum"
        )
    if average not in ("mean", "median"):
        raise errors.OptionError(
            f"{function}: average={average!r} is no mean or median"
        )
    same = signals[1] is None or signals[1] is signals[0]
    parts, place = _signals(function, signals[:1] if same else signals, axis)
    dtype, size = parts[0].dtype, parts[0].shape[-1]
    one = return_onesided and not dtypes.is_complex(dtype)
    cut = _segments(function, *segments, size=size, dtype=dtype)
    take = _trend(function, trend)
    spectra = [_transforms(part, cut, take, one) for part in parts]
    product = fnp.conj(spectra[0]) * spectra[-1]
    product = fnp.real(product) if same else product
    squares = fnp.sum(cut.window**2) * fs
    whole = squares if scaling == "density" else fnp.sum(cut.window) ** 2
    power = _averaged(product * _doubled(cut.length, one) / whole, average)
    return _frequencies(cut, fs, one, dtype), fnp.moveaxis(power, -1, place)


def _filled(x: Array, size: int) -> Array:
    missing = size - x.shape[-1]
    return fnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x


def _doubled(length: int, one: bool) -> Any:
    """How many coefficients each given one stands for."""
    if not one:
        return 1
    weights = np.full(length // 2 + 1, 2.0, np.float32)
    weights[0] = 1
    if length % 2 == 0:
        weights[-1] = 1
    return weights


def _averaged(products: Array, average: str) -> Array:
    """The average over segments; a median is corrected for its bias."""
    if average == "mean" or products.shape[-2] == 1:
        return fnp.mean(products, -2)
    count = products.shape[-2]
    even = 2 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = float(1 + np.sum(1 / (even + 1) - 1 / even))
    if dtypes.is_complex(products.dtype):
        parts = [part(products) for part in (fnp.real, fnp.imag)]
        middle = complex_(*[fnp.median(part, -2) for part in parts])
    else:
        middle = fnp.median(products, -2)
    return middle / bias


# ---------------------------------------------------------------- stft


def stft(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> Spectrum:
    """The Fourier transforms of overlapping segments of a signal.

    Gives frequencies, the times of the segments, and the transforms with the segments
    as the last axis. `boundary` says how half a segment is put on at both ends:
    "zeros", "even", "odd", "constant" or `None` (not at all); with `padded`, zeros
    at the end fill the last segment. The rest as of `csd`, with scaling="spectrum".

    >>> frequencies, times, transforms = stft(np.ones(32), nperseg=8)
    >>> transforms.shape
    (5, 9)
    """
    (array,), place = _signals("stft", (x,), axis)
    one = return_onesided and not dtypes.is_complex(array.dtype)
    size = array.shape[-1]
    choices = window, nperseg, noverlap, nfft
    cut = _segments("stft", *choices, size=size, dtype=array.dtype)
    count = cut.window.shape[0]
    array = _extended(array, boundary, count // 2)
    if padded:
        more = (-(array.shape[-1] - count) % cut.step) % count
        array = _filled(array, array.shape[-1] + more)
    spectra = _transforms(array, cut, _trend("stft", detrend), one)
    spectra = spectra / fnp.sum(cut.window)
    middles = np.arange(count / 2, array.shape[-1] - count / 2 + 1, cut.step)
    middles = (middles - (count / 2 if boundary else 0)).astype(cut.window.dtype)
    order = fnp.moveaxis(spectra, -1, place - 1)
    return _frequencies(cut, fs, one, array.dtype), fnp.asarray(middles) / fs, order


def _extended(x: Array, boundary: str | None, width: int) -> Array:
    """The signal with so many elements more at both ends."""
    if boundary is None:
        return x
    widths = [(0, 0)] * (x.ndim - 1) + [(width, width)]
    match boundary:
        case "zeros":
            return fnp.pad(x, widths)
        case "constant":
            return fnp.pad(x, widths, "edge")
        case "even":
            return fnp.pad(x, widths, "reflect")
        case "odd":
            mirrored = fnp.pad(x, widths, "reflect")
            turned = 2 * fnp.pad(x, widths, "edge") - mirrored
            ends = [turned[..., :width], x, turned[..., width + x.shape[-1] :]]
            return fnp.concatenate(ends, -1)
    raise errors.OptionError(
        f"stft: boundary={boundary!r} is none of zeros, even, odd, constant and None"
    )


def istft(
    Zxx: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The times and the signal of which `stft` with the same choices gives Zxx.

    Segments are added up where they overlap and divided by the sum of the squared
    windows. `boundary` says whether the ends were extended.

    >>> _, _, transforms = stft(np.arange(32.0), nperseg=8)
    >>> istft(transforms, nperseg=8)[1][:4].round(3).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    array = as_array("istft", Zxx)
    array = cast(array, inexact_dtype(array.dtype))
    if array.ndim < 2:
        raise errors.ShapeError(
            f"istft: Zxx must have two axes at least, got {array.type}"
        )
    places = [axis_index("istft", a, array.ndim) for a in (time_axis, freq_axis)]
    if places[0] == places[1]:
        raise errors.AxisError("istft: time_axis and freq_axis are the same")
    array = fnp.moveaxis(array, places, (-2, -1))
    found = array.shape[-1]
    count = 2 * (found - 1) if input_onesided else found
    if nperseg is not None:
        count = operator.index(nperseg)
        _at_least_one("istft", "nperseg", count)
    length = count if nfft is None else operator.index(nfft)
    dtype = dtypes.real_dtype(array.dtype)
    choices = window, count, noverlap, length
    cut = _segments("istft", *choices, size=count, dtype=dtype)
    if cut.length != (2 * (found - 1) + cut.length % 2 if input_onesided else found):
        raise errors.OptionError(
            f"istft: {found} frequencies are not those of segments of {cut.length}"
        )
    inverse = fnp.fft.irfft if input_onesided else fnp.fft.ifft
    parts = inverse(array, cut.length)[..., :count] * fnp.sum(cut.window)
    x, weight = _overlapped(parts, cut)
    if boundary:
        inside = slice(count // 2, x.shape[-1] - count // 2)
        x, weight = x[..., inside], weight[inside]
    x = x / fnp.where(fnp.greater(weight, 1e-10), weight, 1)
    times = fnp.asarray(np.arange(x.shape[-1]).astype(dtype)) / fs
    # Where the time was, among the axes without that of the frequencies.
    target = places[0] - (places[1] < places[0])
    return times, fnp.moveaxis(x, -1, target)


def _overlapped(parts: Array, cut: _Segments) -> tuple[Array, Array]:
    """The windowed segments added up, and the sum of the squared windows."""
    segments, count = parts.shape[-2:]
    size = count + (segments - 1) * cut.step
    places = _places(size, cut)
    zeros: Any = fnp.zeros((*parts.shape[:-2], size), parts.dtype)
    weight: Any = fnp.zeros(size, cut.window.dtype)
    squares = fnp.broadcast_to(cut.window**2, places.shape)
    sums = zeros.at[..., places].add(parts * cut.window)
    return sums, weight.at[places].add(squares)
