"""fnx.scipy.sparse.linalg: cg, bicgstab and gmres, as in `jax.scipy.sparse.linalg`.

A matrix is an array, or a linear function of trees like the right side; so is a
preconditioner. The solvers' steps are in `krylov.py`, on vectors; nobody differentiates
them: derivatives are those of the equation (`fnx.lax.custom_linear_solve`), which one
more solution gives, in both modes and of any order. Next on the walk: `krylov.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors, tree
from fnx.api.solve import custom_linear_solve
from fnx.scipy.sparse import krylov

__all__ = ["bicgstab", "cg", "gmres"]

Linear = Callable[[Any], Any]


@errors.api_boundary
def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """The solution of `A(x) = b` by conjugate gradients, and `None`.

    A is Hermitian and positive definite: an array, or a function of trees like `b`. It
    ends when the norm of the residual is at most `tol` times that of `b`, or `atol`,
    and after `maxiter` steps (10 times the number of unknowns by default) whatever it
    is. `x0` is where it begins, `M` is close to the inverse of A.

    Raises `TreeError` or `ShapeError` where A(b) or x0 are not like b.

    >>> import numpy as np
    >>> x, _ = cg(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 4.0]))
    >>> x.round(5)
    Array([1., 1.], dtype=float64)
    """
    options = krylov.Options(tol, atol, maxiter)
    return _solved("cg", krylov.cg, A, b, x0, M, options, symmetric=True)


@errors.api_boundary
def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """The solution of `A(x) = b` by stabilised biconjugate gradients, and `None`.

    A is any regular linear map; the other arguments are those of `cg`.

    >>> import numpy as np
    >>> x, _ = bicgstab(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([3.0, 4.0]))
    >>> x.round(5)
    Array([1., 1.], dtype=float64)
    """
    options = krylov.Options(tol, atol, maxiter)
    return _solved("bicgstab", krylov.bicgstab, A, b, x0, M, options)


@errors.api_boundary
def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, None]:
    """The solution of `A(x) = b` by generalized minimal residuals, and `None`.

    A is any regular linear map. It begins anew after `restart` steps, and `maxiter`
    counts how often it does; the other arguments are those of `cg`. `solve_method` is
    "batched" (all steps up to a restart, then one least squares problem) or
    "incremental" (which ends as soon as the residual is small enough).

    >>> import numpy as np
    >>> x, _ = gmres(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([3.0, 4.0]))
    >>> x.round(5)
    Array([1., 1.], dtype=float64)
    """
    if solve_method not in ("batched", "incremental"):
        raise errors.OptionError(
            errors.explain(
                f"gmres: solve_method={solve_method!r}",
                "it is 'batched' or 'incremental'",
            )
        )
    if restart < 1:
        raise errors.OptionError(f"gmres: restart={restart} must be positive")
    early = solve_method == "incremental"
    options = krylov.Options(tol, atol, maxiter, restart, early)
    return _solved("gmres", krylov.gmres, A, b, x0, M, options)


def _solved(
    function: str,
    solver: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    M: Any,
    options: krylov.Options,
    symmetric: bool = False,
) -> tuple[Any, None]:
    """A solver of vectors as one of trees, with the derivatives of the equation."""
    b = tree.map(fnp.asarray, b)
    leaves, treedef = tree.flatten(b)
    dtype = fnp.result_type(*leaves, 1.0) if leaves else dtypes.default_float()
    b = treedef.unflatten([x.astype(fnp.result_type(x, 1.0)) for x in leaves])
    leaves = tree.leaves(b)
    matvec = _as_function(function, "A", A)
    precondition = _as_function(function, "M", M)
    start = None
    if x0 is not None:
        start = tree.map(fnp.asarray, x0)
        found, wanted = tree.structure(start), tree.structure(b)
        shapes = [x.shape for x in tree.leaves(start)], [x.shape for x in leaves]
        if found != wanted or shapes[0] != shapes[1]:
            raise errors.ShapeError(
                errors.explain(
                    f"{function}: x0 is not like b",
                    f"its leaves have the shapes {shapes[0]}, those of b {shapes[1]}",
                )
            )

    def joined(x: Any) -> Any:
        parts = [leaf.reshape(-1).astype(dtype) for leaf in tree.leaves(x)]
        return fnp.concatenate(parts) if parts else fnp.zeros(0, dtype)

    def parted(vector: Any) -> Any:
        parts, begin = [], 0
        for leaf in leaves:
            part = vector[begin : begin + leaf.size].reshape(leaf.shape)
            parts.append(_narrowed(part, leaf.dtype))
            begin += leaf.size
        return treedef.unflatten(parts)

    def solve(matvec: Linear, right: Any) -> Any:
        first = fnp.zeros(sum(x.size for x in leaves), dtype)
        if start is not None:
            first = joined(start)
        found = solver(
            lambda v: joined(matvec(parted(v))),
            joined(right),
            first,
            lambda v: joined(precondition(parted(v))),
            options,
        )
        return parted(found)

    real = not any(dtypes.is_complex(x.dtype) for x in leaves)
    x = custom_linear_solve(
        matvec, b, solve, transpose_solve=solve, symmetric=symmetric and real
    )
    return x, None


def _narrowed(x: Any, dtype: Any) -> Any:
    """A part of a vector in the dtype of its leaf, which may be real."""
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        x = x.real
    return x.astype(dtype)


def _as_function(function: str, name: str, linear: Any) -> Linear:
    """A matrix, or a function, as a function; `None` is the identity."""
    if linear is None:
        return lambda x: x
    if callable(linear):
        given: Linear = linear
        return given
    matrix = fnp.asarray(linear)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise errors.ShapeError(
            errors.explain(
                f"{function}: {name} is {matrix.type}",
                "it must be a square matrix, or a function",
            )
        )
    return lambda x: fnp.matmul(matrix, x)
