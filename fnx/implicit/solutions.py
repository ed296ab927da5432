"""root, fixed_point, minimum: solutions with the derivative of the implicit function.

Receives the function that says what is solved, and any solver; gives a function of the
first guess and of the parameters. Derivatives by the parameters come from the equation
at the solution (`fnx.lax.custom_root`), whatever the solver did.
Next on the walk: `fnx/optim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors, tree
from fnx.api.arguments import check_callable, name_of
from fnx.api.grad import grad
from fnx.api.solve import check_pair, root_from
from fnx.implicit.linear import linear_solve
from fnx.lax import custom_linear_solve

Function = Callable[..., Any]


def root(
    fun: Function,
    solver: Function,
    linear_solver: Function = linear_solve,
    has_aux: bool = False,
) -> Function:
    """A function that gives x with `fun(x, *args) = 0`, differentiable by `args`.

    `solver(fun, init, *args)` finds the root, and is never differentiated: it may loop
    until it has converged. One that uses NumPy or SciPy goes through `on_host`; where
    the values of its arguments are known (eagerly, and under `grad` and `jvp` of
    concrete arrays) it may do without. The result is called as `solution(init, *args)`.
    `init` is a tree of real arrays (or complex ones, if `fun` is holomorphic), `fun`
    gives trees like it, and so does the solver, whose dtypes are made those of `init`.
    `args` may be anything.

    Derivatives solve linear systems with the Jacobian of `fun` at the solution, by
    `linear_solver(matvec, b)`, in reverse mode with the transposed Jacobian too. They
    are as exact as the solution is; by `init` they are 0. Both modes, every order,
    `vmap` and `jit` compose. With `has_aux`, the solver gives `(x, aux)`, and so does
    the result.

    Raises `TreeError`, `ShapeError` or `DTypeError` where `fun` or the solver do not
    give trees like `init`.

    The square root, by Newton's method, and its first two derivatives:

    >>> import fnx
    >>> def newton(fun, x, *args):
    ...     def step(state):
    ...         x, _ = state
    ...         moved = x - fun(x, *args) / fnx.grad(fun)(x, *args)
    ...         return moved, abs(moved - x)
    ...     goes_on = lambda state: state[1] > 1e-6
    ...     return fnx.lax.while_loop(goes_on, step, (x, x + 1.0))[0]
    >>> square_root = fnx.implicit.root(lambda x, a: x * x - a, newton)
    >>> slope = fnx.grad(square_root, argnums=1)
    >>> round(square_root(1.0, 4.0).item(), 6), round(slope(1.0, 4.0).item(), 6)
    (2.0, 0.25)
    >>> round(fnx.grad(slope, argnums=1)(1.0, 4.0).item(), 6)
    -0.03125

    A root that SciPy finds:

    >>> import numpy as np
    >>> from scipy import optimize
    >>> def bracketed(fun, init, a):
    ...     at = lambda x: np.asarray(fun(x, np.asarray(a)))
    ...     return optimize.brentq(at, 0.0, 10.0)
    >>> anomaly = lambda x, a: x - 0.5 * fnx.numpy.sin(x) - a
    >>> kepler = fnx.implicit.root(anomaly, bracketed)
    >>> fnx.grad(kepler, argnums=1)(np.float64(0.0), np.float64(1.0)).round(6).item()
    1.037362
    """
    return _solution("root", fun, fun, solver, linear_solver, False, has_aux)


def fixed_point(
    fun: Function,
    solver: Function,
    linear_solver: Function = linear_solve,
    has_aux: bool = False,
) -> Function:
    """A function that gives x with `fun(x, *args) = x`, differentiable by `args`.

    Arguments, result, derivatives and errors are those of `root`.

    >>> import fnx
    >>> def iterated(fun, x, *args):
    ...     return fnx.lax.fori_loop(0, 60, lambda _, x: fun(x, *args), x)
    >>> decay = fnx.implicit.fixed_point(lambda x, a: fnx.numpy.exp(-a * x), iterated)
    >>> round(decay(1.0, 1.0).item(), 6)
    0.567143
    >>> round(fnx.grad(decay, argnums=1)(1.0, 1.0).item(), 6)
    -0.205247
    """

    def residual(x: Any, *args: Any) -> Any:
        moved = fun(x, *args)
        if _shapes(moved) != _shapes(x):
            return moved  # which the equation is then said to be
        return tree.map(lambda a, b: a - b, x, moved)

    return _solution(
        "fixed_point", fun, residual, solver, linear_solver, False, has_aux
    )


def minimum(
    fun: Function,
    solver: Function,
    linear_solver: Function = linear_solve,
    has_aux: bool = False,
) -> Function:
    """A function that gives the x that makes the scalar `fun(x, *args)` least.

    It is differentiable by `args` as a root of the gradient, whose Jacobian, the
    Hessian of `fun`, must be invertible at the solution; it is symmetric, so that a
    `linear_solver` for such matrices serves. `init` is real. Otherwise arguments,
    result, derivatives and errors are those of `root`; a maximum or a saddle that the
    solver finds is as good.

    The weights of a ridge regression, and how they depend on its strength:

    >>> import fnx, numpy as np
    >>> from scipy import optimize
    >>> x, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 4.0])
    >>> def loss(w, strength):
    ...     return ((x @ w - y) ** 2).sum() + strength * (w**2).sum()
    >>> def bfgs(fun, w, strength):
    ...     s = np.asarray(strength)
    ...     slope = lambda w: np.asarray(fnx.grad(fun)(w, s))
    ...     return optimize.minimize(lambda w: fun(w, s).item(), w, jac=slope).x
    >>> ridge = fnx.implicit.minimum(loss, bfgs)
    >>> ridge(np.zeros(1), 3.0).round(5)
    Array([1.], dtype=float64)
    >>> fnx.jacobian(ridge, argnums=1)(np.zeros(1), np.float64(3.0)).round(5)
    Array([-0.05882], dtype=float64)
    """
    return _solution("minimum", fun, grad(fun), solver, linear_solver, True, has_aux)


def _solution(
    asker: str,
    fun: Function,
    residual: Function,
    solver: Function,
    linear_solver: Function,
    symmetric: bool,
    has_aux: bool,
) -> Function:
    """The function of a guess and parameters whose result makes `residual` zero."""
    asker = f"implicit.{asker}"
    check_callable(f"{asker}: fun", fun)
    check_callable(f"{asker}: solver", solver)
    check_callable(f"{asker}: linear_solver", linear_solver)

    @functools.wraps(solver)
    def solution(init: Any, *args: Any) -> Any:
        @functools.wraps(solver)
        def solve(_: Function, guess: Any) -> Any:
            found = solver(fun, guess, *args)
            if not has_aux:
                return _typed_like(guess, found)
            check_pair(asker, name_of(solver), found)
            x, aux = found
            return _typed_like(guess, x), aux

        def tangent(matvec: Function, b: Any) -> Any:
            turned = None if symmetric else linear_solver
            return custom_linear_solve(matvec, b, linear_solver, turned, symmetric)

        @functools.wraps(fun)
        def equation(x: Any) -> Any:
            return residual(x, *args)

        return root_from(asker, {"init": init}, equation, solve, tangent, has_aux)

    return errors.api_boundary(solution)


def _typed_like(guess: Any, found: Any) -> Any:
    """What a solver found, in the dtypes of the guess; SciPy computes in float64."""
    if tree.structure(guess) != tree.structure(found):
        return found  # `root_from` says where they differ
    return tree.map(_in_dtype, guess, found)


def _in_dtype(guess: Any, found: Any) -> Any:
    """A leaf in the dtype of the guess, unless it would lose an imaginary part."""
    dtype, array = fnp.asarray(guess).dtype, fnp.asarray(found)
    if dtypes.is_complex(array.dtype) and not dtypes.is_complex(dtype):
        return found  # `root_from` says that the dtypes differ
    return fnp.asarray(array, dtype)


def _shapes(value: Any) -> Any:
    """The structure of a tree and the shapes of its leaves."""
    leaves, treedef = tree.flatten(value)
    return treedef, [fnp.shape(leaf) for leaf in leaves]
