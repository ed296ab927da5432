"""det and slogdet, whose derivatives hold for singular matrices, too.

The derivative of a determinant is the matrix of cofactors. Of small matrices it comes
from the polynomial that a determinant is; of larger ones from a QR decomposition whose
pivots show the rank. Receives stacks of square matrices; next on the walk:
`products.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.custom import custom_jvp
from fnx.core.array import Array
from fnx.numpy import on_numpy, reductions
from fnx.numpy.counting import where
from fnx.numpy.creation import arange
from fnx.numpy.joining import concatenate
from fnx.numpy.linalg.operands import apply, matrices
from fnx.numpy.mathematics import absolute, conj, imag, real, remainder
from fnx.numpy.operands import ArrayLike, cast
from fnx.numpy.shaping import expand_dims
from fnx.numpy.sorting import argsort
from fnx.numpy.taking import take_along_axis
from fnx.numpy.ufuncs import log, sign
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import (
    columns,
    diagonal,
    matmul,
    mH,
    on_diagonal,
    rows,
    tril,
    with_diagonal,
)
from fnx.ops.parts import stop_gradient
from fnx.ops.shape import full, iota, zeros_like


class SlogdetResult(NamedTuple):
    """The sign (or phase) of a determinant, and the logarithm of its modulus."""

    sign: Array
    logabsdet: Array


SMALL = 4
"""The determinants of matrices with so many rows are written out."""


@at_once(on_numpy.det)
def det(a: ArrayLike) -> Array:
    """The determinant.

    Its derivatives of first and second order are right where it is 0, too; of matrices
    that are not larger than 4 by 4 all of them are.

    >>> import numpy as np
    >>> det(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float64)
    """
    x = matrices("det", "a", a, square=True)
    return _written_out(x) if x.shape[-1] <= SMALL else _det(x)


def _written_out(x: Array) -> Array:
    """By the minors of the upper rows and those of the lower ones."""
    n = x.shape[-1]
    a = [[x[..., i, j] for j in range(n)] for i in range(n)]
    if n == 0:
        return full(x.shape[:-2], x.dtype, 1)
    if n == 1:
        return a[0][0]
    if n == 2:
        return _minor(a, 0, 0, 1)
    if n == 3:
        parts = [a[0][j] * _minor(a, 1, *others) for j, others in enumerate(_OTHERS)]
        return parts[0] - parts[1] + parts[2]
    total: Any = 0
    for (i, j), (k, m), positive in _PAIRS:
        term = _minor(a, 0, i, j) * _minor(a, 2, k, m)
        total = total + term if positive else total - term
    return total


_OTHERS = ((1, 2), (0, 2), (0, 1))
# Two columns for the upper rows, two for the lower ones, and the sign of that.
_PAIRS = (
    ((0, 1), (2, 3), True),
    ((0, 2), (1, 3), False),
    ((0, 3), (1, 2), True),
    ((1, 2), (0, 3), True),
    ((1, 3), (0, 2), False),
    ((2, 3), (0, 1), True),
)


def _minor(a: Any, row: int, i: int, j: int) -> Any:
    """The determinant of two rows from that one on, and of two columns."""
    return a[row][i] * a[row + 1][j] - a[row][j] * a[row + 1][i]


@custom_jvp
def _det(x: Array) -> Array:
    factors, pivots, _ = apply(ops.lu, x)
    return reductions.prod(diagonal(factors), -1) * _parity(pivots, x.dtype)


@_det.defjvp
def _det_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _det(x), reductions.sum(_adjugate(x) * t.swapaxes(-1, -2), (-2, -1))


def _parity(pivots: Any, dtype: Any) -> Any:
    """1 or -1: whether rows are exchanged an even number of times."""
    shape, axis = pivots.shape, pivots.ndim - 1
    own = iota(shape=shape, dtype=dtypes.int32, axis=axis)
    odd = remainder(reductions.sum(pivots != own, -1), 2)
    return cast(where(odd == 1, -1, 1), dtype)


@custom_jvp
def _adjugate(x: Array) -> Array:
    """The transposed matrix of cofactors.

    With x[:, p] = q r it is that of r, between qᴴ and the permutation, times their
    determinants. Of r, at most the last row is 0 unless the cofactors all are.
    """
    n = x.shape[-1]
    q, r, order = apply(ops.qr, x, pivoting=True, full_matrices=False)
    back = argsort(order, axis=-1)
    unitary = _det(take_along_axis(q, expand_dims(back, -2), -1))
    head, last = columns(rows(r, 0, n - 1), 0, n - 1), rows(columns(r, n - 1, n), 0, n)
    own = diagonal(head)
    filled = with_diagonal(head, where(own == 0, 1, own))
    corner = rows(last, n - 1, n)
    unit = where(on_diagonal(head), 1, zeros_like(head))
    right = concatenate([unit * corner, -rows(last, 0, n - 1)], -1)
    above = apply(ops.triangular_solve, filled, right, left_side=True)
    below = zeros_like(columns(rows(r, 0, 1), 0, n - 1))
    below = concatenate([below, zeros_like(corner) + 1], -1)
    scale = reductions.prod(own, -1) * unitary
    product = matmul(concatenate([above, below], -2), mH(q)) * scale[..., None, None]
    return take_along_axis(product, expand_dims(back, -1), -2)


@_adjugate.defjvp
def _adjugate_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    adjugate = _adjugate(x)
    moved = matmul(adjugate, t)
    trace = reductions.sum(diagonal(moved), -1)[..., None, None]
    s, u, vh = apply(ops.svd, x, full_matrices=False, compute_uv=True)
    near = s[..., -1] <= s[..., 0] * float(np.finfo(s.dtype).eps) ** 0.25
    by_values = _adjugate_change(stop_gradient(u), s, stop_gradient(vh), t)
    divisor = where(near, 1, _det(x))[..., None, None]
    change = (trace * adjugate - matmul(moved, adjugate)) / divisor
    return adjugate, where(near[..., None, None], by_values, change)


def _adjugate_change(u: Array, s: Array, vh: Array, t: Array) -> Array:
    """How the adjugate of u s vh moves, for singular values that may be 0.

    That of a diagonal matrix s moves by the products of all values but those of the
    row and the column: on the diagonal once for each other place, elsewhere negative.
    """
    inner = matmul(matmul(mH(u), t), mH(vh))
    products = cast(_products_without_two(s), u.dtype)
    products = where(on_diagonal(products), 0, products)
    own = matmul(products, expand_dims(diagonal(inner), -1))
    change = where(on_diagonal(inner), own, -products * inner)
    phase = (_det(u) * _det(vh))[..., None, None]
    return phase * matmul(matmul(mH(vh), change), mH(u))


def _products_without_two(s: Array) -> Array:
    """For each i and j, the product of all other values of a descending vector.

    Only the last two may have to be left out of it as zeros; all others divide it.
    """
    n = s.shape[-1]
    head, (first, second) = s[..., : n - 2], (s[..., n - 2], s[..., n - 1])
    inverse = where(head == 0, 0, 1 / where(head == 0, 1, head))
    weights = concatenate([inverse, zeros_like(s[..., n - 2 :]) + 1], -1)
    common = reductions.prod(head, -1)[..., None, None]
    products = common * expand_dims(weights, -1) * expand_dims(weights, -2)
    places = arange(n)
    for place, value in ((n - 2, first), (n - 1, second)):
        without = (places[:, None] == place) | (places == place)
        products = products * where(without, 1, value[..., None, None])
    return products


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """The sign (or phase) of the determinant, and the logarithm of its modulus.

    `method` is "lu" (the default) or "qr". Of a singular matrix they are 0 and -inf.

    >>> import numpy as np
    >>> slogdet(np.array([[0.0, 1.0], [2.0, 0.0]])).sign
    Array(-1., dtype=float64)
    """
    x = matrices("slogdet", "a", a, square=True)
    if method not in (None, "lu", "qr"):
        raise errors.OptionError(
            errors.explain(f"linalg.slogdet: method={method!r}", "it is 'lu' or 'qr'")
        )
    return SlogdetResult(*(_slogdet_qr(x) if method == "qr" else _slogdet_lu(x)))


@at_once(on_numpy.slogdet)
def _slogdet_lu(x: Array) -> tuple[Array, Array]:
    return _slogdet(x)


@custom_jvp
def _slogdet(x: Array) -> tuple[Array, Array]:
    factors, pivots, _ = apply(ops.lu, x)
    own = diagonal(factors)
    phase = reductions.prod(sign(own), -1) * _parity(pivots, x.dtype)
    return phase, reductions.sum(log(absolute(own)), -1)


@_slogdet.defjvp
def _slogdet_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    phase, size = _slogdet(x)
    factors, pivots, _ = apply(ops.lu, stop_gradient(x))
    moved = apply(ops.factored_solve, x, factors, pivots, t, transpose_a=False)
    trace = reductions.sum(diagonal(moved), -1)
    if not dtypes.is_complex(x.dtype):
        return (phase, size), (zeros_like(phase), trace)
    return (phase, size), (phase * 1j * imag(trace), real(trace))


def _slogdet_qr(x: Array) -> tuple[Array, Array]:
    """A reflection has determinant 1 - τ |v|²."""
    packed, taus = apply(ops.geqrf, x)
    own = diagonal(packed)
    v = where(on_diagonal(packed), 1, tril(packed, -1))
    lengths = cast(reductions.sum(real(v * conj(v)), -2), x.dtype)
    phase = reductions.prod(1 - taus * lengths, -1) * reductions.prod(sign(own), -1)
    return phase, reductions.sum(log(absolute(own)), -1)
