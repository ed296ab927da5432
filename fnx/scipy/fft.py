"""fnx.scipy.fft: discrete cosine transforms of the types I to IV.

Receives real arrays, gives real arrays; names and meaning are those of
`jax.scipy.fft`, with all types and norms of SciPy. Each transform is one Fourier
transform of twice the length, of elements turned before and after.
Next on the walk: `signal/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx import numpy as fnp
from fnx.core.array import Array
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    axes_tuple,
    axis_index,
    cast,
    inexact_dtype,
)
from fnx.ops.pieces import pad

__all__ = ["dct", "dctn", "idct", "idctn"]

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_NORMS = ("backward", "ortho", "forward")


def dct(
    x: ArrayLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
) -> Array:
    """The discrete cosine transform of a type from 1 to 4 along an axis.

    Type 2 is 2 sum_j x[j] cos(pi k (2j + 1) / 2n). The axis is cut, or filled with
    zeros, to length `n`. With norm="ortho" it is orthonormal, with "forward" divided by
    what the inverse is divided by otherwise. Raises `OptionError` for another type or
    norm and for n < 1 (n < 2 of type 1), `DTypeError` for complex numbers.

    >>> dct(np.array([1.0, 2.0, 4.0])).round(3).tolist()
    [14.0, -5.196, 1.0]
    """
    return _along("dct", _one(x, "dct", type), type, n, axis, _norm("dct", norm))


def idct(
    x: ArrayLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
) -> Array:
    """The inverse of `dct` with the same type and norm.

    >>> idct(dct(np.array([1.0, 2.0, 3.0]))).round(3).tolist()
    [1.0, 2.0, 3.0]
    """
    array, other = _one(x, "idct", type), _INVERSE[type]
    return _along("idct", array, other, n, axis, 2 - _norm("idct", norm))


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`dct` along several axes: all by default, or the last ones if `s` has sizes.

    >>> dctn(np.eye(2)).round(3).tolist()
    [[8.0, 0.0], [0.0, 4.0]]
    """
    return _each("dctn", dct, x, type, s, axes, norm)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn` with the same type and norm.

    >>> idctn(dctn(np.ones((2, 2)))).round(3).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _each("idctn", idct, x, type, s, axes, norm)


def _each(
    function: str,
    one: Callable[..., Array],
    x: ArrayLike,
    type: int,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Array:
    array = as_array(function, x)
    if axes is None and s is not None:
        axes = range(array.ndim - len(s), array.ndim)
    places = axes_tuple(function, None if axes is None else tuple(axes), array.ndim)
    if s is not None and len(s) != len(places):
        raise errors.OptionError(
            f"{function}: s={s!r} and axes={axes!r} have different lengths"
        )
    for number, axis in enumerate(places):
        array = one(array, type, None if s is None else s[number], axis, norm)
    return array


# ---------------------------------------------------------------- one axis


def _one(x: ArrayLike, function: str, type: int) -> Array:
    """The operand in the dtype that it is computed in; the type is checked."""
    if type not in _INVERSE:
        raise errors.OptionError(f"{function}: type={type!r} is none of 1, 2, 3 and 4")
    array = as_array(function, x)
    if dtypes.is_complex(array.dtype):
        raise errors.DTypeError(
            errors.explain(
                f"{function} of {array.type}",
                "cosine transforms take real numbers",
                "transform the real and the imaginary part",
            )
        )
    dtype = inexact_dtype(array.dtype, array.type.weak)
    return cast(array, dtypes.compute_dtype(dtype))


def _norm(function: str, norm: str | None) -> int:
    if norm is not None and norm not in _NORMS:
        raise errors.OptionError(
            f"{function}: norm={norm!r} is none of {', '.join(_NORMS)}"
        )
    return _NORMS.index(norm or "backward")


def _along(
    function: str, x: Array, type: int, n: int | None, axis: int, norm: int
) -> Array:
    """A transform along an axis, divided by its length to the power norm / 2."""
    x = fnp.moveaxis(x, axis_index(function, axis, x.ndim), -1)
    count = x.shape[-1] if n is None else n
    if count < (2 if type == 1 else 1):
        raise errors.OptionError(
            f"{function}: a transform of type {type} of {count} data points"
        )
    x = _resized(x, count)
    length = 2 * (count - 1) if type == 1 else 2 * count
    if norm == 1:
        x = _ends(x, type, math.sqrt(2), before=True)
    y = _TRANSFORMS[type](x, count, length)
    if norm == 1:
        y = _ends(y, type, 1 / math.sqrt(2), before=False)
    if norm:
        y = y * (1 / length ** (norm / 2))
    return fnp.moveaxis(y, -1, axis_index(function, axis, x.ndim))


def _resized(x: Array, count: int) -> Array:
    none = (0,) * x.ndim
    high = (*none[1:], count - x.shape[-1])
    return pad(x, 0, low=none, high=high, interior=none) if high[-1] else x


def _ends(x: Array, type: int, factor: float, before: bool) -> Array:
    """The elements at the ends weighted as an orthonormal transform has them."""
    places = {1: [0, -1], 2: [] if before else [0], 3: [0] if before else [], 4: []}
    weights = np.ones(x.shape[-1])
    weights[places[type]] = factor
    return x * weights.astype(x.dtype)


def _turns(x: Array, start: float, count: int, length: int) -> Any:
    """exp(-pi i (k + start) / length), for k below `count`."""
    angles = np.pi / length * (np.arange(count) + start)
    return np.exp(-1j * angles).astype(dtypes.complex_dtype(x.dtype))


def _type1(x: Array, count: int, length: int) -> Array:
    """x[0] + (-1)^k x[-1] + 2 sum x[j] cos(2 pi j k / length)."""
    weights = np.ones(count)
    weights[[0, -1]] = 0.5
    whole = fnp.fft.rfft(x * (2 * weights).astype(x.dtype), length)
    return fnp.real(whole)


def _type2(x: Array, count: int, length: int) -> Array:
    """2 sum x[j] cos(pi k (2j + 1) / length)."""
    whole = fnp.fft.rfft(x, length)[..., :count]
    return 2 * fnp.real(whole * _turns(x, 0, count, length))


def _type3(x: Array, count: int, length: int) -> Array:
    """x[0] + 2 sum x[j] cos(pi j (2k + 1) / length)."""
    turned = x * _turns(x, 0, count, length).conj()
    return length * fnp.fft.irfft(turned, length)[..., :count]


def _type4(x: Array, count: int, length: int) -> Array:
    """2 sum x[j] cos(pi (2j + 1) (2k + 1) / 2 length)."""
    whole = fnp.fft.fft(x * _turns(x, 0, count, length), length)[..., :count]
    return 2 * fnp.real(whole * _turns(x, 0.5, count, length))


_TRANSFORMS = {1: _type1, 2: _type2, 3: _type3, 4: _type4}
