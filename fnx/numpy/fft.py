"""fnx.numpy.fft: discrete Fourier transforms, their frequencies and shifts.

Receives arrays, gives arrays; names and meaning are those of `jax.numpy.fft`. float32
and complex64 stay so; integers and 16-bit floats are computed in float32, 64-bit ones
in float64. `norm` says which direction is divided by the number of elements: the
inverse ("backward", the default), the forward one ("forward"), or both by its root
("ortho"). Next on the walk: `fnx/lax/fourier.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.creation import arange, made_on
from fnx.numpy.mathematics import conj
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axes_tuple,
    axis_index,
    cast,
    inexact_dtype,
    shape_tuple,
)
from fnx.numpy.shaping import roll
from fnx.numpy.ufuncs import divide, multiply
from fnx.ops import fft as ffts
from fnx.ops.pieces import pad
from fnx.runtime.device import Device

if TYPE_CHECKING:
    from fnx.runtime.sharding import Sharding

Shape = Sequence[int]

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


# ---------------------------------------------------------------- one axis


def fft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The Fourier transform along an axis: sum_j a[j] exp(-2 pi i j k / n) for each k.

    The axis is cut, or filled with zeros, to length `n`. Gives complex numbers. Raises
    `OptionError` (a `ValueError`) for n < 1 and an unknown `norm`, `AxisError` for an
    axis that is not there.

    >>> fft(np.array([1.0, 0.0, -1.0, 0.0])).real.tolist()
    [0.0, 2.0, 0.0, 2.0]
    """
    return _one("fft", "FFT", a, n, axis, norm)


def ifft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `fft`, divided by n unless `norm` says otherwise.

    >>> ifft(np.array([4.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return _one("ifft", "IFFT", a, n, axis, norm)


def rfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The first n // 2 + 1 coefficients of the Fourier transform of real numbers.

    The others are their conjugates. Raises `DTypeError` for complex numbers.

    >>> rfft(np.array([1.0, 0.0, -1.0, 0.0])).real.tolist()
    [0.0, 2.0, 0.0]
    """
    return _one("rfft", "RFFT", a, n, axis, norm)


def irfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `rfft`: real numbers, n of them (2 (m - 1) of m by default).

    The imaginary parts of the coefficients that stand for themselves do not count.

    >>> irfft(np.array([0.0, 2.0, 0.0])).tolist()
    [1.0, 0.0, -1.0, 0.0]
    """
    return _one("irfft", "IRFFT", a, n, axis, norm)


def hfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The real Fourier transform of a signal of which a is the first half.

    The other half are its conjugates; see `irfft` for n.

    >>> hfft(np.array([1.0, 1.0, 1.0])).tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    return _one("hfft", "IRFFT", conj(a), n, axis, _turned("hfft", norm))


def ihfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `hfft`: the first half of a signal with a real transform.

    >>> ihfft(np.array([4.0, 0.0, 0.0, 0.0])).real.tolist()
    [1.0, 1.0, 1.0]
    """
    return conj(_one("ihfft", "RFFT", a, n, axis, _turned("ihfft", norm)))


def _one(
    function: str, kind: str, a: ArrayLike, n: int | None, axis: int, norm: str | None
) -> Array:
    x = as_array(function, a)
    if not x.ndim:
        raise errors.AxisError(f"{function}: an array of rank 0 has no axis")
    place = axis_index(function, axis, x.ndim)
    return _many(function, kind, x, None if n is None else (n,), (place,), norm)


# ---------------------------------------------------------------- several axes


def fftn(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`fft` along several axes: all by default, or the last ones that `s` has sizes of.

    >>> fftn(np.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _many("fftn", "FFT", a, s, axes, norm)


def ifftn(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `fftn`.

    >>> ifftn(np.array([[4.0, 0.0], [0.0, 0.0]])).real.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _many("ifftn", "IFFT", a, s, axes, norm)


def rfftn(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`rfft` along the last one of several axes, `fft` along the others.

    >>> rfftn(np.ones((2, 4))).shape
    (2, 3)
    """
    return _many("rfftn", "RFFT", a, s, axes, norm)


def irfftn(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `rfftn`; `s` has the sizes of the real array.

    >>> irfftn(rfftn(np.ones((2, 3))), s=(2, 3)).shape
    (2, 3)
    """
    return _many("irfftn", "IRFFT", a, s, axes, norm)


def fft2(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`fftn` along two axes."""
    return _two("fft2", "FFT", a, s, axes, norm)


def ifft2(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`ifftn` along two axes."""
    return _two("ifft2", "IFFT", a, s, axes, norm)


def rfft2(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`rfftn` along two axes."""
    return _two("rfft2", "RFFT", a, s, axes, norm)


def irfft2(
    a: ArrayLike,
    s: Shape | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`irfftn` along two axes."""
    return _two("irfft2", "IRFFT", a, s, axes, norm)


def _two(
    function: str,
    kind: str,
    a: ArrayLike,
    s: Shape | None,
    axes: Sequence[int],
    norm: str | None,
) -> Array:
    if len(axes) != 2:
        raise errors.AxisError(f"{function}: it takes two axes, got axes={axes!r}")
    return _many(function, kind, a, s, axes, norm)


def _many(
    function: str,
    kind: str,
    a: ArrayLike,
    s: Shape | None,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Array:
    x = as_array(function, a)
    places = _places(function, s, axes, x.ndim)
    if not places:
        raise errors.AxisError(f"{function}: there is no axis to transform")
    sizes = [x.shape[axis] for axis in places]
    lengths = tuple(sizes) if s is None else tuple([operator.index(n) for n in s])
    if s is None and kind == "IRFFT":
        lengths = (*lengths[:-1], 2 * (lengths[-1] - 1))
    if min(lengths) < 1:
        raise errors.OptionError(
            f"{function}: a transform of {min(lengths)} data points; there must be at "
            "least 1"
        )
    taken = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "IRFFT" else lengths
    x = _converted(function, x, kind)
    x = _resized(x, dict(zip(places, taken, strict=True)))
    result = ffts.fft(x, kind=kind, lengths=lengths, axes=places)
    factor = _factor(function, norm, kind, math.prod(lengths))
    return result if factor == 1 else multiply(result, factor)


def _places(
    function: str, s: Shape | None, axes: Sequence[int] | None, ndim: int
) -> tuple[int, ...]:
    if axes is not None:
        places = axes_tuple(function, tuple(axes), ndim, "axes")
    elif s is None:
        places = tuple(range(ndim))
    elif len(s) <= ndim:
        places = tuple(range(ndim - len(s), ndim))
    else:
        raise errors.OptionError(f"{function}: s={s!r} has more than {ndim} sizes")
    if s is not None and len(s) != len(places):
        raise errors.OptionError(
            f"{function}: s={s!r} and axes={axes!r} have different lengths"
        )
    return places


def _converted(function: str, x: Array, kind: str) -> Array:
    """In a dtype that is transformed: at least float32, complex but for RFFT."""
    if kind == "RFFT" and dtypes.is_complex(x.dtype):
        raise errors.DTypeError(
            errors.explain(
                f"{function} of {x.type}",
                "it takes real numbers",
                "use fft for complex ones, or take the real part",
            )
        )
    dtype = dtypes.compute_dtype(inexact_dtype(x.dtype, x.type.weak))
    return cast(x, dtype if kind == "RFFT" else dtypes.complex_dtype(dtype))


def _resized(x: Array, sizes: dict[int, int]) -> Array:
    """The array cut, or filled with zeros, along its axes."""
    high = tuple([sizes.get(axis, n) - n for axis, n in enumerate(x.shape)])
    if not any(high):
        return x
    none = (0,) * x.ndim
    return pad(x, 0, low=none, high=high, interior=none)


_NORMS = ("backward", "ortho", "forward")


def _turned(function: str, norm: str | None) -> str:
    """The norm of the transform in the other direction."""
    return _NORMS[2 - _norm(function, norm)]


def _norm(function: str, norm: str | None) -> int:
    if norm is None:
        return 0
    if norm not in _NORMS:
        raise errors.OptionError(
            f"{function}: norm={norm!r} is none of {', '.join(_NORMS)}"
        )
    return _NORMS.index(norm)


def _factor(function: str, norm: str | None, kind: str, count: int) -> float:
    """What a norm multiplies the primitive's result by; its inverses are divided."""
    divided = (0, 0.5, 1)[_norm(function, norm)]
    return count**divided if kind in ("IFFT", "IRFFT") else 1 / count**divided


# ---------------------------------------------------------------- frequencies, shifts


@becomes_native
def fftfreq(
    n: int,
    d: ArrayLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    device: Device | Sharding | None = None,
) -> Array:
    """The frequencies of `fft`'s n coefficients, of samples that lie d apart.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    if device is not None:
        return made_on(device, "fftfreq", lambda: fftfreq(n, d, dtype=dtype))
    n = _count("fftfreq", n)
    places = arange(-(n // 2), n - n // 2, dtype=_frequency_dtype(dtype))
    return divide(ifftshift(places), _span(d, n))


@becomes_native
def rfftfreq(
    n: int,
    d: ArrayLike = 1.0,
    *,
    dtype: DTypeLike | None = None,
    device: Device | Sharding | None = None,
) -> Array:
    """The frequencies of `rfft`'s n // 2 + 1 coefficients, of samples d apart.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    if device is not None:
        return made_on(device, "rfftfreq", lambda: rfftfreq(n, d, dtype=dtype))
    n = _count("rfftfreq", n)
    places = arange(n // 2 + 1, dtype=_frequency_dtype(dtype))
    return divide(places, _span(d, n))


def _count(function: str, n: int) -> int:
    (count,) = shape_tuple(function, n)
    if not count:
        raise errors.OptionError(f"{function}: n must be at least 1, got {n!r}")
    return count


def _span(d: Any, n: int) -> Any:
    """The length of n samples; in Python's float if d is one."""
    return d * n


def _frequency_dtype(dtype: DTypeLike | None) -> np.dtype[Any]:
    return dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)


@becomes_native
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Moves the coefficient of frequency 0 to the middle, along some axes or all.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted("fftshift", x, axes, lambda n: n // 2)


@becomes_native
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`.

    >>> ifftshift(np.array([-0.5, -0.25, 0.0, 0.25])).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))


def _shifted(function: str, x: ArrayLike, axes: Any, shift: Any) -> Array:
    array = as_array(function, x)
    places = axes_tuple(function, axes, array.ndim, "axes")
    return roll(array, tuple([shift(array.shape[a]) for a in places]), places)
