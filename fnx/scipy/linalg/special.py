"""Matrices of a known form: Toeplitz, Hankel, circulant, Hilbert, Pascal and others.

Receives vectors, of which there may be a stack, or sizes; gives matrices. This is the
end of the walk through `fnx.scipy.linalg`; next: `fnx/scipy/sparse`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fnx.numpy as fnp
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    cast,
    inexact_dtype,
    promoted,
)
from fnx.scipy.linalg.arguments import choice, vector


def block_diag(*arrs: ArrayLike) -> Array:
    """The matrix with these blocks along its diagonal; vectors are rows.

    >>> import numpy as np
    >>> block_diag(np.ones((1, 2)), 5.0)
    Array([[1., 1., 0.],
           [0., 0., 5.]], dtype=float64)
    """
    if not arrs:
        return fnp.zeros((1, 0))
    values, dtype, _ = promoted("block_diag", arrs)
    blocks = [cast(as_array("block_diag", x), dtype) for x in values]
    for x in blocks:
        if x.ndim > 2:
            raise errors.ShapeError(
                errors.explain(
                    f"linalg.block_diag: {x.type}", "blocks have two axes at most"
                )
            )
    blocks = [fnp.atleast_2d(x) for x in blocks]
    width, begin, parts = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        after = width - begin - x.shape[1]
        parts.append(fnp.pad(x, ((0, 0), (begin, after))))
        begin += x.shape[1]
    return fnp.concatenate(parts)


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with first column c and first row r, constant along its diagonals.

    Without r, it is the conjugate of c. The first element of r is not read.

    >>> import numpy as np
    >>> toeplitz(np.array([1, 2]), np.array([1, 5, 6]))
    Array([[1, 5, 6],
           [2, 1, 5]], dtype=int64)
    """
    column = vector("toeplitz", "c", c)
    row = fnp.conj(column) if r is None else vector("toeplitz", "r", r)
    m, n = column.shape[-1], row.shape[-1]
    places = np.arange(m)[:, None] - np.arange(n)
    return _placed(column, row, np.where(places < 0, m - 1 - places, places))


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with first column c and last row r, constant along antidiagonals.

    Without r, that is zeros. The first element of r is not read.

    >>> import numpy as np
    >>> hankel(np.array([1, 2]), np.array([2, 5]))
    Array([[1, 2],
           [2, 5]], dtype=int64)
    """
    column = vector("hankel", "c", c)
    row = fnp.zeros_like(column) if r is None else vector("hankel", "r", r)
    m, n = column.shape[-1], row.shape[-1]
    return _placed(column, row, np.arange(m)[:, None] + np.arange(n))


def _placed(column: Array, row: Array, places: Any) -> Array:
    """The elements of two vectors, the second without its first one, at places."""
    values, dtype, _ = promoted("linalg", (column, row))
    first, second = [cast(x, dtype) for x in values]
    stack = fnp.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    first = fnp.broadcast_to(first, (*stack, first.shape[-1]))
    second = fnp.broadcast_to(second[..., 1:], (*stack, max(second.shape[-1] - 1, 0)))
    return fnp.concatenate([first, second], axis=-1)[..., places]


def circulant(c: ArrayLike) -> Array:
    """The square matrix with first column c, whose columns are c turned round.

    >>> import numpy as np
    >>> circulant(np.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int64)
    """
    column = vector("circulant", "c", c)
    places = np.arange(column.shape[-1])
    return column[..., (places[:, None] - places) % max(len(places), 1)]


def companion(a: ArrayLike) -> Array:
    """The companion matrix of a polynomial, whose eigenvalues are its roots.

    `a` are two or more coefficients, that of the highest power first.

    >>> import numpy as np
    >>> companion(np.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float64)
    """
    x = _inexact(vector("companion", "a", a, 2))
    n = x.shape[-1] - 1
    row = -x[..., None, 1:] / x[..., None, :1]
    ones = fnp.eye(n - 1, n, dtype=row.dtype)
    return fnp.concatenate([row, fnp.broadcast_to(ones, (*x.shape[:-1], n - 1, n))], -2)


def fiedler(a: ArrayLike) -> Array:
    """The differences of all pairs of elements, without their signs.

    >>> import numpy as np
    >>> fiedler(np.array([1, 4]))
    Array([[0, 3],
           [3, 0]], dtype=int64)
    """
    x = vector("fiedler", "a", a)
    return abs(x[..., :, None] - x[..., None, :])


def fiedler_companion(a: ArrayLike) -> Array:
    """The companion matrix of a polynomial with five diagonals.

    `a` are its coefficients, that of the highest power first.

    >>> import numpy as np
    >>> fiedler_companion(np.array([1.0, -6.0, 11.0, -6.0]))
    Array([[ 6., -11.,  1.],
           [ 1.,   0.,  0.],
           [ 0.,   6.,  0.]], dtype=float64)
    """
    x = _inexact(vector("fiedler_companion", "a", a, 1))
    n = x.shape[-1] - 1
    if n == 0:
        return fnp.zeros((*x.shape[:-1], 0, 0), x.dtype)
    # Which coefficient is at a place, or one past them all for 1, or two for 0.
    places = np.full((n, n), n + 2)
    places[0, 0] = 1
    if n > 1:
        places[1, 0] = n + 1
    for i in range(2, n + 1, 2):
        places[i - 2, i - 1] = i
    for i in range(0, n - 2, 2):
        places[i, i + 2] = n + 1
    for i in range(3, n + 1, 2):
        places[i - 1, i - 2] = i
    for i in range(3, n, 2):
        places[i, i - 2] = n + 1
    shape = (*x.shape[:-1], 1)
    values = [-x / x[..., :1], fnp.ones(shape, x.dtype), fnp.zeros(shape, x.dtype)]
    return fnp.concatenate(values, -1)[..., places]


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix by which a vector of n elements is convolved with `a`.

    `mode` is "full", "valid" or "same".

    >>> import numpy as np
    >>> convolution_matrix(np.array([1, 2]), 2)
    Array([[1, 0],
           [2, 1],
           [0, 2]], dtype=int64)
    """
    choice("convolution_matrix", "mode", mode, ("full", "valid", "same"))
    x = vector("convolution_matrix", "a", a, 1)
    n = _size("convolution_matrix", n)
    m = x.shape[-1]
    places = np.arange(m + n - 1)[:, None] - np.arange(n)
    if mode == "same":
        begin = (min(m, n) - 1) // 2
        places = places[begin : begin + max(m, n)]
    elif mode == "valid":
        begin = min(m, n) - 1
        places = places[begin : begin + max(m, n) - min(m, n) + 1]
    places = np.where((places < 0) | (places >= m), m, places)
    zero = fnp.zeros((*x.shape[:-1], 1), x.dtype)
    return fnp.concatenate([x, zero], -1)[..., places]


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """The matrix with first row f, and s below the diagonal.

    >>> import numpy as np
    >>> leslie(np.array([0.5, 2.0]), np.array([0.1]))
    Array([[0.5, 2. ],
           [0.1, 0. ]], dtype=float64)
    """
    row = vector("leslie", "f", f, 2)
    below = vector("leslie", "s", s, 1)
    n = row.shape[-1]
    if below.shape != (*row.shape[:-1], n - 1):
        raise errors.ShapeError(
            errors.explain(
                f"linalg.leslie: f is {row.type}, s is {below.type}",
                "s must have one element less",
            )
        )
    values, dtype, _ = promoted("leslie", (row, below))
    row, below = [cast(x, dtype) for x in values]
    lower = below[..., None] * fnp.eye(n - 1, n, dtype=dtype)
    return fnp.concatenate([row[..., None, :], lower], -2)


# ---------------------------------------------------------------- of a size


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike = None) -> Array:
    """The matrix of the discrete Fourier transform.

    `scale` is `None`, "sqrtn" (a unitary matrix) or "n"; `dtype` a complex one.

    >>> dft(2).real
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    choice("dft", "scale", scale, (None, "sqrtn", "n"))
    n = _size("dft", n)
    kind = dtypes.default_complex() if dtype is None else dtypes.as_dtype(dtype)
    numbers = np.arange(n)
    turns = np.outer(numbers, numbers) % max(n, 1) / max(n, 1)
    values = np.exp(-2j * np.pi * turns)
    divisor = {None: 1.0, "sqrtn": math.sqrt(n), "n": float(n)}[scale]
    return fnp.asarray((values / divisor if n else values).astype(kind))


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Hadamard's matrix of 1 and -1 with orthogonal rows; n is a power of 2.

    >>> hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    n = _size("hadamard", n)
    if n < 1 or n & (n - 1):
        raise errors.OptionError(
            errors.explain(f"linalg.hadamard: n={n}", "it must be a power of 2")
        )
    values = np.ones((1, 1))
    while len(values) < n:
        values = np.block([[values, values], [values, -values]])
    kind = dtypes.python_dtype(dtype) if isinstance(dtype, type) else dtype
    return fnp.asarray(values.astype(dtypes.as_dtype(kind)))


def helmert(n: int, full: bool = False) -> Array:
    """Helmert's matrix: orthonormal rows, whose sums are 0; the first row if `full`.

    >>> helmert(2)
    Array([[ 0.70710677, -0.70710677]], dtype=float32)
    """
    n = _size("helmert", n)
    if n < 1:
        raise errors.OptionError(
            errors.explain(f"linalg.helmert: n={n}", "it must be positive")
        )
    below = np.arange(1, n)
    values = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    values[0] = 1
    lengths = np.concatenate([[n], below * (below + 1)])
    values /= np.sqrt(lengths)[:, None]
    return _default(values if full else values[1:])


def hilbert(n: int) -> Array:
    """The matrix of 1 / (i + j + 1).

    >>> hilbert(2)
    Array([[1.        , 0.5       ],
           [0.5       , 0.33333334]], dtype=float32)
    """
    numbers = np.arange(_size("hilbert", n))
    return _default(1 / (numbers[:, None] + numbers + 1))


def invhilbert(n: int) -> Array:
    """The inverse of `hilbert(n)`, whose elements are integers.

    >>> invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    n = _size("invhilbert", n)

    def element(i: int, j: int) -> float:
        s = i + j
        product = math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1)
        return float((-1) ** s * (s + 1) * product * math.comb(s, i) ** 2)

    return _of_elements(n, element)


def pascal(n: int, kind: str | None = None) -> Array:
    """Pascal's matrix of binomial coefficients.

    `kind` is "symmetric" (the default), "lower" or "upper".

    >>> pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    choice("pascal", "kind", kind, (None, "symmetric", "lower", "upper"))
    n = _size("pascal", n)
    if kind == "lower":
        return _of_elements(n, lambda i, j: float(math.comb(i, j)))
    if kind == "upper":
        return _of_elements(n, lambda i, j: float(math.comb(j, i)))
    return _of_elements(n, lambda i, j: float(math.comb(i + j, i)))


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of `pascal(n, kind)`.

    >>> invpascal(2)
    Array([[ 2., -1.],
           [-1.,  1.]], dtype=float32)
    """
    choice("invpascal", "kind", kind, (None, "symmetric", "lower", "upper"))
    n = _size("invpascal", n)

    def symmetric(i: int, j: int) -> float:
        # The upper inverse times the lower one.
        terms = [math.comb(k, i) * math.comb(k, j) for k in range(max(i, j), n)]
        return float((-1) ** (i + j) * sum(terms))

    if kind == "lower":
        return _of_elements(n, lambda i, j: float((-1) ** (i + j) * math.comb(i, j)))
    if kind == "upper":
        return _of_elements(n, lambda i, j: float((-1) ** (i + j) * math.comb(j, i)))
    return _of_elements(n, symmetric)


def _of_elements(n: int, element: Any) -> Array:
    values = [[element(i, j) for j in range(n)] for i in range(n)]
    return _default(np.array(values).reshape(n, n))


def _default(values: Any) -> Array:
    return fnp.asarray(values.astype(dtypes.default_float()))


def _inexact(x: Array) -> Array:
    return cast(x, inexact_dtype(x.dtype, x.type.weak))


def _size(function: str, n: Any) -> int:
    if not isinstance(n, int | np.integer) or n < 0:
        raise errors.OptionError(
            errors.explain(f"linalg.{function}: n={n!r}", "it is a size, an integer")
        )
    return int(n)
