"""fft and its kinds, under the names of `jax.lax`.

Receives arrays and lengths, gives what `fnx.ops.fft` computes. Next on the walk:
`convolving.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from fnx import errors
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, as_array, shape_tuple
from fnx.ops import fft as ffts


class FftType(enum.IntEnum):
    """The kinds of Fourier transforms: complex and real ones, and their inverses."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """A Fourier transform along the last axes, of which `fft_lengths` are the sizes.

    FFT and IFFT (divided by the number of elements) take complex64 or complex128. RFFT
    takes float32 or float64 and gives n // 2 + 1 coefficients along the last axis,
    IRFFT takes those and gives n real numbers. Raises `ShapeError` where the sizes are
    others, `DTypeError` for other dtypes, `OptionError` for an unknown kind.

    >>> import numpy as np
    >>> fft(np.array([1.0, 0.0, -1.0, 0.0]), FftType.RFFT, (4,)).real.tolist()
    [0.0, 2.0, 0.0]
    """
    array = as_array("fft", x)
    if isinstance(fft_type, str):
        kind = fft_type.upper()
    else:
        kind = FftType(fft_type).name
    lengths = shape_tuple("fft", fft_lengths)
    if not 1 <= len(lengths) <= array.ndim:
        raise errors.ShapeError(
            f"fft: fft_lengths={lengths} for {array.type}; give one for each axis that "
            "is transformed"
        )
    axes = tuple(range(array.ndim - len(lengths), array.ndim))
    return ffts.fft(array, kind=kind, lengths=lengths, axes=axes)
