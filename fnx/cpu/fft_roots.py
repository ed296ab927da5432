"""Roots of one for Fourier transforms, rounded once.

Receives the dtype of real numbers and lengths; gives arrays for the functions of
`fft_text.py`. Angles are reduced to an eighth of the circle in integers, sines and
cosines are computed in a wider type. Next on the walk: `fft_arithmetic.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Values = np.ndarray[Any, Any]


def roots(numerators: Values, denominator: int, dtype: str) -> Values:
    """exp(-2 pi i p / q), as pairs along a last axis.

    >>> roots(np.array([0, 1, 2, 3]), 4, "float32").tolist()
    [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
    """
    found = _circle(numerators % denominator, denominator, dtype)
    return np.ascontiguousarray(found)


def _circle(p: Values, q: int, dtype: str) -> Values:
    if p.size > 2 * q:
        return _each(np.arange(q), q, dtype)[p]
    return _each(p, q, dtype)


def _each(p: Values, q: int, dtype: str) -> Values:
    """Each for itself; p is in [0, q)."""
    octant, rest = np.divmod(8 * p, q)
    odd = octant % 2 == 1
    eighths = np.where(odd, q - rest, rest)  # of an eighth of the circle, in [0, q]
    wide: Any = np.float64 if dtype == "float32" else np.longdouble
    pi = wide(math.pi) if wide is np.float64 else _PI
    angle = eighths.astype(wide) * (pi / (4 * wide(q)))
    cosine, sine = np.cos(angle), np.sin(angle)
    across = (octant + 1) // 2 % 2 == 1  # nearer to the imaginary axis
    x, y = np.where(across, sine, cosine), np.where(across, cosine, sine)
    x = np.where((octant >= 2) & (octant < 6), -x, x)
    y = np.where(octant < 4, -y, y)
    # Not -0.
    return np.stack([x, y], -1).astype(dtype) + np.dtype(dtype).type(0)


_PI = np.longdouble("3.14159265358979323846264338327950288")


def pass_roots(radices: Sequence[int], dtype: str) -> Values:
    """Those of all passes but the last: for each place, all but that of number 0."""
    left, tables = math.prod(radices), list[Values]()
    for radix in radices[:-1]:
        places, numbers = np.arange(left // radix), np.arange(1, radix)
        tables.append(roots(np.outer(places, numbers), left, dtype).reshape(-1))
        left //= radix
    return np.concatenate([*tables, np.zeros(2, dtype)])


def turning_roots(rows: int, columns: int, lanes: int, dtype: str) -> Values:
    """Those by which the rows of a line are turned: fine ones, then coarse ones.

    Row k of column j is turned by exp(-2 pi i j k / length). For column j of a block
    that is a fine one (real parts of all lanes, then imaginary ones), times that of the
    first column of the block.
    """
    length, every = rows * columns, np.arange(rows)
    fine = roots(np.outer(every, np.arange(lanes)), length, dtype)
    shared = math.gcd(lanes, length)
    starts = np.arange(0, columns, lanes) // shared
    coarse = roots(np.outer(starts, every), length // shared, dtype)
    return np.concatenate([fine.transpose(0, 2, 1).reshape(-1), coarse.reshape(-1)])


def half_roots(length: int, dtype: str) -> Values:
    """Those of the first half of the coefficients of `2 length` reals."""
    return roots(np.arange(length // 2 + 1), 2 * length, dtype).reshape(-1)
