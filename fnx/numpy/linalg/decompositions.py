"""Decompositions of matrices: cholesky, eigh, eig, qr, svd.

Receives stacks of matrices, gives their factors. Next on the walk: `norms.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fnx import errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.linalg.operands import apply, matrices
from fnx.numpy.mathematics import absolute
from fnx.numpy.operands import ArrayLike
from fnx.numpy.shaping import expand_dims
from fnx.numpy.sorting import argsort
from fnx.numpy.taking import take_along_axis
from fnx.numpy.ufuncs import multiply, sign
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import (
    as_dtype,
    columns,
    hermitian_part,
    mH,
    mT,
    rows,
)


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """A factor with orthonormal columns, and an upper triangular one."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values, right vectors as rows."""

    U: Array
    S: Array
    Vh: Array


@becomes_native
def cholesky(
    a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True
) -> Array:
    """The lower triangular l with `l @ lᴴ = a`, or with `upper` lᴴ.

    `a` is Hermitian positive definite; it is replaced by the mean of itself and its
    conjugated transposed, unless `symmetrize_input` is false: then its lower triangle
    is read. NaN where it is not positive definite.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 10.0]]))
    Array([[2., 0.],
           [1., 3.]], dtype=float64)
    """
    x = matrices("cholesky", "a", a, square=True)
    factor = apply(ops.cholesky, hermitian_part(x) if symmetrize_input else x)
    return mH(factor) if upper else factor


def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and right eigenvectors: complex, in no particular order.

    Vectors have length 1, and their largest element is real.

    >>> import numpy as np
    >>> eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    Array([0.+1.j, 0.-1.j], dtype=complex128)
    """
    x = matrices("eig", "a", a, square=True)
    return EigResult(*apply(ops.eig, x, left=False, right=True))


def eigvals(a: ArrayLike) -> Array:
    """The eigenvalues: complex, in no particular order.

    >>> import numpy as np
    >>> eigvals(np.diag(np.array([1.0, 2.0])))
    Array([1.+0.j, 2.+0.j], dtype=complex128)
    """
    x = matrices("eigvals", "a", a, square=True)
    return apply(ops.eig, x, left=False, right=False)[0]


@becomes_native
def eigh(
    a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True
) -> EighResult:
    """Eigenvalues, which ascend, and eigenvectors of Hermitian matrices.

    `a` is replaced by the mean of itself and its conjugated transposed, unless
    `symmetrize_input` is false: then the triangle `UPLO` is read, "L" (the lower one,
    by default) or "U". Of equal eigenvalues, any basis of their vectors is given:
    functions of the values that treat all alike, and of the space of the vectors, have
    the right first derivative. Their second ones, and the first ones of functions that
    pair such vectors with their values, `v * f(w) @ v.T`, lack what equal values do to
    each other.

    >>> import numpy as np
    >>> eigh(np.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.round(3)
    Array([1., 3.], dtype=float64)
    """
    x = matrices("eigh", "a", a, square=True)
    lower = _is_lower("eigh", UPLO)
    x = hermitian_part(x) if symmetrize_input else x
    return EighResult(*apply(ops.eigh, x, lower=lower, compute_vectors=True))


@becomes_native
def eigvalsh(
    a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True
) -> Array:
    """The eigenvalues of Hermitian matrices, which ascend.

    Arguments and derivatives are as of `eigh`.

    >>> import numpy as np
    >>> eigvalsh(np.array([[2.0, 1.0], [1.0, 2.0]])).round(3)
    Array([1., 3.], dtype=float64)
    """
    x = matrices("eigvalsh", "a", a, square=True)
    lower = _is_lower("eigvalsh", UPLO)
    x = hermitian_part(x) if symmetrize_input else x
    return apply(ops.eigh, x, lower=lower, compute_vectors=False)[0]


def _is_lower(function: str, triangle: str | None) -> bool:
    if triangle not in (None, "L", "U"):
        raise errors.OptionError(
            errors.explain(f"linalg.{function}: UPLO={triangle!r}", "it is 'L' or 'U'")
        )
    return triangle != "U"


def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """The factors q, with orthonormal columns, and r, upper triangular: `q @ r = a`.

    `mode` is "reduced" (q has as many columns as r has rows, the smaller number of the
    two), "complete" (q is square), "r" (r alone), or "raw": reflections, as columns of
    the transposed matrix, and their τ.

    >>> import numpy as np
    >>> qr(np.array([[3.0], [4.0]])).R
    Array([[-5.]], dtype=float64)
    """
    x = matrices("qr", "a", a)
    if mode == "raw":
        packed, taus = apply(ops.geqrf, x)
        return QRResult(mT(packed), taus)
    if mode not in ("reduced", "complete", "full", "r"):
        raise errors.OptionError(
            errors.explain(
                f"linalg.qr: mode={mode!r}",
                "it is 'reduced', 'complete', 'r' or 'raw'",
            )
        )
    full = mode in ("complete", "full")
    q, r = apply(ops.qr, x, pivoting=False, full_matrices=full)
    return r if mode == "r" else QRResult(q, r)


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """The factors u, s, vh with `u @ diag(s) @ vh = a`; s alone unless `compute_uv`.

    The singular values descend. With `full_matrices`, u and vh are square. Of a
    `hermitian` matrix they come from its eigenvalues. `subset_by_index=(begin, end)`
    gives some values and their vectors. Where values are equal, derivatives lack what
    these do to each other, as those of `eigh`.

    >>> import numpy as np
    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float64)
    """
    x = matrices("svd", "a", a, square=hermitian)
    if subset_by_index is not None and full_matrices and compute_uv:
        raise errors.OptionError(
            errors.explain(
                f"linalg.svd: subset_by_index={subset_by_index}",
                "some vectors are no square matrix",
                "pass full_matrices=False",
            )
        )
    if hermitian:
        found = _hermitian_svd(x, compute_uv)
    else:
        found = apply(ops.svd, x, full_matrices=full_matrices, compute_uv=compute_uv)
    s, *vectors = found
    begin, end = _subset(subset_by_index, s.shape[-1])
    if (begin, end) != (0, s.shape[-1]):
        s = columns(s, begin, end)
        if vectors:
            vectors = [columns(vectors[0], begin, end), rows(vectors[1], begin, end)]
    return SVDResult(vectors[0], s, vectors[1]) if compute_uv else s


def _hermitian_svd(x: Array, compute_uv: bool) -> tuple[Array, ...]:
    """Singular values are those of eigenvalues, whose signs go to one side."""
    if not compute_uv:
        w = apply(ops.eigh, hermitian_part(x), lower=True, compute_vectors=False)[0]
        size = absolute(w)
        return (take_along_axis(size, argsort(-size, axis=-1), -1),)
    w, v = apply(ops.eigh, hermitian_part(x), lower=True, compute_vectors=True)
    order = argsort(-absolute(w), axis=-1)
    w = take_along_axis(w, order, -1)
    v = take_along_axis(v, expand_dims(order, -2), -1)
    signs = expand_dims(as_dtype(sign(w), v.dtype), -2)
    return absolute(w), v, mH(multiply(v, signs))


def _subset(subset: tuple[int, int] | None, count: int) -> tuple[int, int]:
    if subset is None:
        return 0, count
    begin, end = subset
    if not 0 <= begin <= end <= count:
        raise errors.OptionError(
            errors.explain(
                f"linalg.svd: subset_by_index={subset}",
                f"both must be from 0 to {count}, the first one not larger",
            )
        )
    return begin, end


def svdvals(x: ArrayLike, /) -> Array:
    """The singular values, which descend.

    >>> import numpy as np
    >>> svdvals(np.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([4., 3.], dtype=float64)
    """
    array = matrices("svdvals", "x", x)
    return apply(ops.svd, array, full_matrices=False, compute_uv=False)[0]
