"""Functions of matrices: expm and its derivative, sqrtm, funm.

Receives square matrices, gives matrices. Next on the walk: `special.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors
from fnx.api.custom import custom_jvp
from fnx.api.derivatives import jvp
from fnx.api.loops import fori_loop, while_loop
from fnx.api.solve import custom_linear_solve
from fnx.core.array import Array
from fnx.numpy.linalg.norms import norm
from fnx.numpy.linalg.operands import epsilon
from fnx.numpy.linalg.solving import solved
from fnx.numpy.operands import ArrayLike, cast
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import mH
from fnx.ops.parts import stop_gradient
from fnx.scipy.linalg.arguments import choice, matrices, promoted_pair
from fnx.scipy.linalg.schur import complex_schur
from fnx.scipy.linalg.solving import triangular_sylvester

# Coefficients of Padé's approximations of exp, and the norms up to which they serve.
# Source: N. J. Higham, The scaling and squaring method for the matrix exponential
# revisited, 2005.
_PADE = {
    4: (
        (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1),
        3.925724783138660,
    ),
    8: (
        (
            64764752532480000,
            32382376266240000,
            7771770303897600,
            1187353796428800,
            129060195264000,
            10559470521600,
            670442572800,
            33522128640,
            1323241920,
            40840800,
            960960,
            16380,
            182,
            1,
        ),
        5.371920351148152,
    ),
}


def expm(
    A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16
) -> Array:
    """The exponential of matrices, by Padé's approximation and squarings.

    NaN where more than `max_squarings` would be needed. An `upper_triangular` matrix is
    solved as such.

    >>> import numpy as np
    >>> expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    Array([[1., 1.],
           [0., 1.]], dtype=float64)
    """
    x = matrices("expm", "A", A, square=True)
    if not x.size:
        return x
    real = dtypes.real_dtype(x.dtype)
    coefficients, most = _PADE[real.itemsize]
    size = stop_gradient(norm(x, 1, (-2, -1)))
    count: Any = fnp.ceil(fnp.log2(fnp.maximum(size / most, 1)))
    scale = cast(fnp.exp2(-fnp.minimum(count, max_squarings)), x.dtype)
    result = _pade(x * scale[..., None, None], coefficients, upper_triangular)
    rounds = fnp.max(fnp.where(count > max_squarings, 0, count))

    def square(state: Any) -> Any:
        n, y = state
        squared = fnp.matmul(y, y)
        return n + 1, fnp.where((n < count)[..., None, None], squared, y)

    start = fnp.zeros((), count.dtype), result
    _, result = while_loop(
        lambda state: state[0] < rounds, square, start, max_steps=max_squarings
    )
    fine = (count <= max_squarings)[..., None, None]
    return fnp.where(fine, result, fnp.nan)


def _pade(x: Any, coefficients: tuple[int, ...], upper: bool) -> Any:
    """(V - U)⁻¹ (V + U), of the odd powers U and the even ones V.

    Powers are those of x², in which Horner's rule goes in steps of three.
    """
    unit = fnp.broadcast_to(fnp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    x2 = fnp.matmul(x, x)
    x4 = fnp.matmul(x2, x2)
    x6 = fnp.matmul(x4, x2)
    powers = [unit, x2, x4, x6]

    def polynomial(values: tuple[int, ...]) -> Any:
        low = sum(float(c) * p for c, p in zip(values, powers, strict=False))
        if len(values) <= 4:
            return low
        high = sum(float(c) * p for c, p in zip(values[4:], powers[1:], strict=False))
        return low + fnp.matmul(x6, high)

    even = polynomial(coefficients[0::2])
    odd = fnp.matmul(x, polynomial(coefficients[1::2]))
    if upper:
        return ops.triangular_solve(even - odd, even + odd)
    return solved(even - odd, even + odd)


def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Any:
    """The exponential of A, and its derivative at A in the direction E.

    `method` is "SPS" (the default: the derivative of `expm`) or "blockEnlarge" (the
    exponential of a matrix of four blocks). Without `compute_expm`, the derivative
    alone.

    >>> import numpy as np
    >>> expm_frechet(np.zeros((2, 2)), np.eye(2), compute_expm=False)
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    choice("expm_frechet", "method", method, (None, "SPS", "blockEnlarge"))
    a, e = promoted_pair("expm_frechet", A, E)
    a = matrices("expm_frechet", "A", a, square=True)
    if e.shape != a.shape or a.ndim != 2:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.expm_frechet: A is {a.type}, E is {e.type}",
                "they are two square matrices of the same shape",
            )
        )
    if method == "blockEnlarge":
        n = a.shape[0]
        whole = expm(fnp.block([[a, e], [fnp.zeros_like(a), a]]))
        value, moved = whole[:n, :n], whole[:n, n:]
    else:
        value, moved = jvp(expm, (a,), (e,))
    return (value, moved) if compute_expm else moved


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """The principal square root of a matrix: complex, by its Schur form.

    `blocksize` must be 1.

    >>> import numpy as np
    >>> sqrtm(np.array([[4.0, 0.0], [0.0, 9.0]]))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 3.+0.j]], dtype=complex128)
    """
    choice("sqrtm", "blocksize", blocksize, (1,))
    x = _one("sqrtm", A)
    if not dtypes.is_complex(x.dtype):
        x = cast(x, dtypes.complex_dtype(x.dtype))
    result: Array = _sqrtm(x)
    return result


@custom_jvp
def _sqrtm(x: Any) -> Any:
    t, z = complex_schur(x)
    return z @ _root(t) @ mH(z)


@_sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> Any:
    """The root r moves by the solution of r dr + dr r = dx."""
    (x,), (dx,) = primals, tangents
    root = _sqrtm(x)
    t, z = complex_schur(x)
    triangle = _root(t)

    def solve(_: Any, b: Any) -> Any:
        inner = triangular_sylvester(triangle, triangle, mH(z) @ b @ z)
        return z @ inner @ mH(z)

    def solve_transposed(_: Any, b: Any) -> Any:
        return solve(_, b.T).T

    # The solution's own derivative is that of the equation: one of Schur's vectors
    # would lack what equal eigenvalues do to each other.
    moved = custom_linear_solve(
        lambda dr: root @ dr + dr @ root, dx, solve, solve_transposed
    )
    return root, moved


def _root(t: Any) -> Any:
    """The root of an upper triangular matrix, one diagonal after the other."""
    own = fnp.sqrt(fnp.diagonal(t))
    sums = own[:, None] + own
    sums = fnp.where(sums == 0, 1, sums)

    def diagonal(p: Any, r: Any) -> Any:
        return r + fnp.where(_is_diagonal(t, p), (t - r @ r) / sums, 0)

    return fori_loop(1, t.shape[0], diagonal, fnp.diag(own))


def _is_diagonal(t: Any, number: Any) -> Any:
    places = fnp.arange(t.shape[0])
    return places - places[:, None] == number


def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """A function of a matrix, which is given as one of its eigenvalues: complex.

    `func` takes a vector of complex numbers. By Parlett's recurrence on the Schur form;
    inaccurate where eigenvalues are close to each other, and with wrong derivatives
    where they are equal. Unless `disp`, also gives an estimate of the error, relative
    to the norm.

    >>> import numpy as np
    >>> funm(np.diag(np.array([1.0, 2.0])), lambda x: x * x).real
    Array([[1., 0.],
           [0., 4.]], dtype=float64)
    """
    x = _one("funm", A)
    t, z = complex_schur(x)
    own = fnp.diagonal(t)
    gaps = own - own[:, None]
    safe = fnp.where(gaps == 0, 1, gaps)

    def diagonal(p: Any, f: Any) -> Any:
        return f + fnp.where(_is_diagonal(t, p), (t @ f - f @ t) / safe, 0)

    f = fori_loop(1, t.shape[0], diagonal, fnp.diag(cast(func(own), t.dtype)))
    value = z @ f @ mH(z)
    if disp:
        return value
    eps = epsilon(x)
    upper = _upper(t)
    size = norm(fnp.triu(t, 1), 1)
    least = fnp.min(fnp.where(upper, abs(gaps), math.inf), initial=math.inf)
    error = fnp.minimum(1, fnp.maximum(eps, eps / fnp.minimum(least, 1) * size))
    finite = fnp.all(fnp.isfinite(value))
    return value, fnp.where(finite, error, math.inf).astype(size.dtype)


def _upper(t: Any) -> Any:
    places = fnp.arange(t.shape[0])
    return places > places[:, None]


def _one(function: str, x: ArrayLike) -> Array:
    """One square matrix."""
    array = matrices(function, "A", x, square=True)
    if array.ndim != 2:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.{function}: A is {array.type}",
                "it takes one matrix",
                f"fnx.vmap({function}) takes a stack",
            )
        )
    return array
