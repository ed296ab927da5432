"""Convolutions and correlations of two signals of one rank.

They are sums of products (`fnx.lax`), or products of Fourier transforms where that is
asked for. Integers are computed in floating point, as in JAX.
Next on the walk: `spectra.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes, errors
from fnx import numpy as fnp
from fnx.core.array import Array
from fnx.lax.convolving import conv_general_dilated
from fnx.numpy.operands import ArrayLike, axes_tuple, cast, promoted, typed

_MODES = ("full", "same", "valid")


def convolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: Any = None,
) -> Array:
    """The convolution of two arrays of one rank.

    `mode`: "full", "same" (the middle of it, as large as in1) or "valid" (where one
    lies in the other). `method`: "direct" (also "auto") or "fft", see `fftconvolve`.
    Raises `ShapeError` for different ranks, `OptionError` for another mode or method.

    >>> import numpy as np
    >>> convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    x, y = _pair("convolve", in1, in2, mode)
    if method == "fft":
        return fftconvolve(x, y, mode)
    if method not in ("auto", "direct"):
        raise errors.OptionError(
            f"convolve: method={method!r} is none of auto, direct and fft"
        )
    return _direct("convolve", x, y, mode, precision)


def correlate(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: Any = None,
) -> Array:
    """The correlation of two arrays: `convolve` with in2 reversed and conjugated.

    >>> import numpy as np
    >>> correlate(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0])).tolist()
    [1.0, 2.0, 3.0, 0.0]
    """
    x, y = _pair("correlate", in1, in2, mode)
    return convolve(x, _reversed(y), mode, method, precision)


def fftconvolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    axes: Sequence[int] | None = None,
) -> Array:
    """The convolution along some axes (all by default) by Fourier transforms.

    Along other axes the shapes are equal or 1. The cost grows with n log n; errors are
    relative to the largest element. Modes and errors as of `convolve`.

    >>> import numpy as np
    >>> fftconvolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])).round(3).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    x, y = _pair("fftconvolve", in1, in2, mode)
    places = axes_tuple("fftconvolve", axes, x.ndim, "axes")
    others = [d for d in range(x.ndim) if d not in places]
    if any(
        x.shape[d] != y.shape[d] and 1 not in (x.shape[d], y.shape[d]) for d in others
    ):
        raise errors.ShapeError(
            f"fftconvolve: {x.type} and {y.type} cannot be broadcast along the axes "
            f"other than {places}"
        )
    if mode == "valid":
        x, y = _by_size("fftconvolve", x, y, places)
    sizes = [x.shape[d] + y.shape[d] - 1 for d in places]
    whole = (
        _product(x, y, sizes, places) if sizes and 0 not in (x.size, y.size) else x * y
    )
    return _cut(whole, x, y, mode, places)


def _product(x: Array, y: Array, sizes: Sequence[int], places: Sequence[int]) -> Array:
    lengths = [_fast_length(size) for size in sizes]
    if dtypes.is_complex(x.dtype):
        both = fnp.fft.fftn(x, lengths, places) * fnp.fft.fftn(y, lengths, places)
        return fnp.fft.ifftn(both, lengths, places)
    both = fnp.fft.rfftn(x, lengths, places) * fnp.fft.rfftn(y, lengths, places)
    return fnp.fft.irfftn(both, lengths, places)


def _fast_length(size: int) -> int:
    """The next number whose only factors are 2, 3 and 5."""
    while True:
        rest = size
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return size
        size += 1


# ---------------------------------------------------------------- two dimensions


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Array:
    """The convolution of two matrices, with a choice of what lies around in1.

    `boundary`: "fill" (with `fillvalue`), "wrap" (in1 again) or "symm" (its mirror
    image). Modes and errors as of `convolve`.

    >>> import numpy as np
    >>> convolve2d(np.eye(2), np.ones((2, 2))).tolist()
    [[1.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 1.0]]
    """
    x, y = _matrices("convolve2d", in1, in2, mode)
    if mode == "valid":
        x, y = _by_size("convolve2d", x, y, (0, 1))
        return _direct("convolve2d", x, y, mode, precision)
    around = _around("convolve2d", x, y, boundary, fillvalue)
    whole = _direct("convolve2d", around, y, "valid", precision)
    return _cut(whole, x, y, mode, (0, 1))


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Array:
    """The correlation of two matrices; see `convolve2d`.

    >>> import numpy as np
    >>> correlate2d(np.eye(2), np.array([[0.0, 1.0]])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    x, y = _matrices("correlate2d", in1, in2, mode)
    turned = _reversed(y)
    if mode != "same":
        return convolve2d(x, turned, mode, boundary, fillvalue, precision)
    # The middle is that of the correlation, which counts from the other end.
    around = _around("correlate2d", x, y, boundary, fillvalue)
    whole = _direct("correlate2d", around, turned, "valid", precision)
    begins = [n // 2 for n in y.shape]
    ends = [begin + size for begin, size in zip(begins, x.shape, strict=True)]
    return whole[begins[0] : ends[0], begins[1] : ends[1]]


def _matrices(
    function: str, in1: ArrayLike, in2: ArrayLike, mode: str
) -> tuple[Array, Array]:
    x, y = _pair(function, in1, in2, mode)
    if x.ndim != 2:
        raise errors.ShapeError(f"{function} takes two matrices, got {x.type}")
    return x, y


def _around(
    function: str, x: Array, y: Array, boundary: str, fillvalue: float
) -> Array:
    """What a full convolution sees: in1, and around it what the boundary says."""
    widths = tuple([(n - 1, n - 1) for n in y.shape])
    match boundary:
        case "fill":
            return fnp.pad(x, widths, constant_values=fillvalue)
        case "wrap":
            return fnp.pad(x, widths, "wrap")
        case "symm":
            return fnp.pad(x, widths, "symmetric")
    raise errors.OptionError(
        f"{function}: boundary={boundary!r} is none of fill, wrap and symm"
    )


# ---------------------------------------------------------------- parts of all


def _pair(
    function: str, in1: ArrayLike, in2: ArrayLike, mode: str
) -> tuple[Array, Array]:
    """The signals in one floating dtype."""
    if mode not in _MODES:
        raise errors.OptionError(
            f"{function}: mode={mode!r} is none of {', '.join(_MODES)}"
        )
    values, dtype, _ = promoted(function, (in1, in2), inexact=True)
    x, y = [typed(function, value, dtype) for value in values]
    if x.ndim != y.ndim:
        raise errors.ShapeError(
            f"{function}: the signals must have one rank, got {x.type} and {y.type}"
        )
    return x, y


def _reversed(y: Array) -> Array:
    return fnp.flip(fnp.conj(y))


def _by_size(
    function: str, x: Array, y: Array, axes: Sequence[int]
) -> tuple[Array, Array]:
    """The larger one first; one must be as large as the other along every axis."""
    if all(x.shape[d] >= y.shape[d] for d in axes):
        return x, y
    if all(x.shape[d] <= y.shape[d] for d in axes):
        return y, x
    raise errors.ShapeError(
        f"{function}: mode='valid' of {x.type} and {y.type}: one must fit in the other"
    )


def _direct(function: str, x: Array, y: Array, mode: str, precision: Any) -> Array:
    every = range(x.ndim)
    if not x.ndim or 0 in (x.size, y.size):
        return _empty(x, y, mode) if x.ndim else x * y
    small, large = y, x
    if mode == "valid":
        large, small = _by_size(function, x, y, every)
    padding = [(n - 1, n - 1) if mode != "valid" else (0, 0) for n in small.shape]
    whole = conv_general_dilated(
        large[None, None],
        fnp.flip(small)[None, None],
        (1,) * x.ndim,
        padding,
        precision=precision,
    )[0, 0]
    return cast(_cut(whole, x, y, mode, every) if mode == "same" else whole, x.dtype)


def _empty(x: Array, y: Array, mode: str) -> Array:
    """The convolution with nothing: zeros as large as the mode says."""
    shape = {"full": [a + b - 1 for a, b in zip(x.shape, y.shape, strict=True)]}
    shape["same"] = list(x.shape)
    shape["valid"] = [abs(a - b) + 1 for a, b in zip(x.shape, y.shape, strict=True)]
    return fnp.zeros([max(n, 0) for n in shape[mode]], x.dtype)


def _cut(whole: Array, x: Array, y: Array, mode: str, axes: Sequence[int]) -> Array:
    """The part of a full convolution (or longer, with zeros at the end) for a mode."""
    slices = [slice(None)] * whole.ndim
    for d in axes:
        a, b = x.shape[d], y.shape[d]
        begin, size = 0, a + b - 1
        if mode == "same":
            begin, size = (b - 1) // 2, a
        elif mode == "valid":
            begin, size = min(a, b) - 1, abs(a - b) + 1
        slices[d] = slice(begin, begin + size)
    return whole[tuple(slices)]
