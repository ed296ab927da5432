"""Linear systems and roots: derivatives from the equation, whatever the solver does."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.compiler.inline import inline
from fnx.core.program import walk
from fnx.core.simplify import simplify
from fnx.testing import check_grads

RNG = np.random.default_rng(3)
A = RNG.normal(size=(4, 4)) + 4 * np.eye(4)
B = RNG.normal(size=4)
S = A @ A.T


def direct(matvec, b):
    return fnx.implicit.linear_solve(matvec, b)


def solve(a, b, **options):
    return lax.custom_linear_solve(lambda x: a @ x, b, direct, direct, **options)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)


def test_derivatives_of_a_system_are_those_of_the_inverse():
    inverse = np.linalg.inv(A)
    x = inverse @ B
    close(solve(A, B), x)
    for jacobian in (fnx.jacfwd, fnx.jacrev):
        close(jacobian(solve, 1)(A, B), inverse)
        close(jacobian(solve, 0)(A, B), -inverse[:, :, None] * x)
    second = fnx.jit(fnx.hessian(lambda a: solve(a, B).sum()))(A)
    left = inverse.sum(0)
    wanted = np.einsum("i,jk,l->ijkl", left, inverse, x)
    close(second, wanted + wanted.transpose(2, 3, 0, 1))
    check_grads(solve, (A, B), order=2)


def test_the_solver_is_not_differentiated():
    def opaque(matvec, b):
        # its own derivative would be that of rounding, which is 0
        return fnp.round(direct(matvec, b) * 2.0**40) / 2.0**40

    def f(a, b):
        return lax.custom_linear_solve(lambda x: a @ x, b, opaque, opaque)

    inverse = np.linalg.inv(A)
    np.testing.assert_allclose(fnx.jacrev(f, 1)(A, B), inverse, atol=1e-9)
    np.testing.assert_allclose(fnx.jacfwd(f, 1)(A, B), inverse, atol=1e-9)


def test_symmetric_systems_need_one_solver():
    def f(s, b):
        return lax.custom_linear_solve(lambda x: s @ x, b, direct, symmetric=True)

    close(fnx.jacrev(f, 1)(S, B), np.linalg.inv(S))
    check_grads(lambda a, b: f(a @ a.T, b), (A, B), order=2)


def test_without_a_transposed_solver_forward_mode_works():
    def f(a, b):
        return lax.custom_linear_solve(lambda x: a @ x, b, direct)

    close(fnx.jacfwd(f, 1)(A, B), np.linalg.inv(A))
    close(fnx.jacfwd(fnx.jacfwd(f, 1), 1)(A, B), np.zeros((4, 4, 4)))
    with pytest.raises(errors.ArgumentError, match="pass transpose_solve"):
        fnx.grad(lambda b: f(A, b).sum())(B)


def test_complex_systems():
    a = A + 1j * RNG.normal(size=(4, 4))
    b = B + 0.5j
    inverse = np.linalg.inv(a)
    close(solve(a, b), inverse @ b)
    close(fnx.jacrev(solve, 1, holomorphic=True)(a, b), inverse)
    close(fnx.jacfwd(solve, 1, holomorphic=True)(a, b), inverse)


def test_what_a_solver_gives_beside_the_solution():
    def counted(matvec, b):
        x = direct(matvec, b)
        return x, {"residual": abs(matvec(x) - b).max(), "steps": 7}

    def f(a, b):
        return lax.custom_linear_solve(
            lambda x: a @ x, b, counted, counted, has_aux=True
        )

    for run in (f, fnx.jit(f)):
        x, aux = run(A, B)
        close(x, np.linalg.solve(A, B))
        assert aux["steps"] == 7 and aux["residual"] < 1e-12
    g = fnx.grad(lambda b: f(A, b)[0].sum() + f(A, b)[1]["residual"])(B)
    close(g, np.linalg.inv(A).sum(0))
    close(fnx.jacfwd(lambda b: f(A, b)[0])(B), np.linalg.inv(A))
    mapped = fnx.vmap(f, (None, 0))(A, np.stack([B, 2 * B]))
    close(mapped[0], np.stack([np.linalg.solve(A, B), np.linalg.solve(A, 2 * B)]))
    assert mapped[1]["residual"].shape == (2,)


def test_parts_that_nobody_maps_are_solved_once():
    """Two systems in one: only the one that is mapped gets the axis."""

    def f(b):
        tree = {"x": b, "y": fnp.asarray(B)}
        matvec = lambda v: {"x": 2.0 * v["x"], "y": 4.0 * v["y"]}  # noqa: E731
        halve = lambda mv, v: {"x": v["x"] / 2.0, "y": v["y"] / 4.0}  # noqa: E731
        return lax.custom_linear_solve(matvec, tree, halve, halve)

    found = fnx.vmap(f, out_axes={"x": 0, "y": None})(np.stack([B, 3 * B]))
    close(found["x"], np.stack([B, 3 * B]) / 2)
    close(found["y"], B / 4)


def test_equal_systems_are_factored_once():
    """What two solutions with one matrix share is computed once in compiled code."""

    def factored(matvec, b):
        inverse = fnp.exp(fnx.vmap(matvec)(np.eye(4)).sum())
        return b / inverse

    def f(b):
        return lax.custom_linear_solve(lambda x: A[0, 0] * x, b, factored)

    program = fnx.make_jaxpr(lambda b: fnx.jvp(f, (b,), (b + 1.0,)))(B)
    assert [e.primitive.name for e in walk(program)].count("linear_solve") == 2
    flat = simplify(inline(program))
    assert [e.primitive.name for e in flat.eqns].count("exp") == 1


def test_weak_numbers_take_the_dtype_of_the_matrix():
    def f(b):
        return lax.custom_linear_solve(
            lambda x: x * np.float64(4.0), b, lambda mv, y: y / mv(1.0)
        )

    for run in (f, fnx.jit(f)):
        assert run(2.0).dtype == np.float64 and run(2.0).item() == 0.5


def test_systems_in_loops_and_branches():
    """Implicit steps of a linear equation; the last ones with another matrix."""
    steps = np.arange(6)

    def run(a, b):
        def step(x, i):
            def first(x):
                return solve(np.eye(4) + 0.1 * a, x)

            x = lax.cond(i < 4, first, lambda x: solve(a, x + b), x)
            return x, x.sum()

        last, sums = lax.scan(step, b, steps)
        return (last * last).sum() + sums.sum()

    def plain(a, b):
        x, total = b, 0.0
        for i in steps:
            matrix, right = (np.eye(4) + 0.1 * a, x) if i < 4 else (a, x + b)
            x = solve(matrix, right)
            total = total + x.sum()
        return (x * x).sum() + total

    close(run(A, B), plain(A, B))
    for make in (lambda f: fnx.grad(f, (0, 1)), lambda f: fnx.hessian(f, 1)):
        found = fnx.tree.leaves(fnx.jit(make(run))(A, B))
        for x, y in zip(found, fnx.tree.leaves(make(plain)(A, B)), strict=True):
            close(x, y)
    stack = np.stack([A, A.T])
    mapped = fnx.vmap(fnx.grad(run), (0, None))(stack, B)
    close(mapped, np.stack([fnx.grad(plain)(a, B) for a in stack]))


# ---------------------------------------------------------------- roots


def newton(f, x):
    def step(state):
        x, _ = state
        moved = x - direct(fnx.linearize(f, x)[1], f(x))
        return moved, abs(moved - x).max()

    goes_on = lambda state: state[1] > 1e-13  # noqa: E731
    return lax.while_loop(goes_on, step, (x, np.float64(1.0)))[0]


def tangent(g, y):
    return lax.custom_linear_solve(g, y, direct, direct)


def root(p, x):
    return lax.custom_root(lambda x: x**3 + p @ x - 1.0, x, newton, tangent)


def test_derivatives_of_a_root_are_those_of_the_implicit_function():
    start = np.ones(4)
    x = np.asarray(root(S, start))
    close(x**3 + S @ x, 1.0)
    inverse = np.linalg.inv(np.diag(3 * x**2) + S)
    for jacobian in (fnx.jacfwd, fnx.jacrev):
        close(jacobian(root)(S, start), -inverse[:, :, None] * x)
        close(jacobian(root, 1)(S, start), np.zeros((4, 4)))
    check_grads(lambda p: root(p, start), (S,), order=2)
    lanes = np.stack([S, S + np.eye(4)])
    g = fnx.grad(lambda p: root(p, start).sum())
    close(fnx.jit(fnx.vmap(g))(lanes), np.stack([g(p) for p in lanes]))


def test_a_root_with_aux():
    def solver(f, x):
        x = newton(f, x)
        return x, (f(x), 3)

    def f(a):
        return lax.custom_root(lambda x: x * x - a, a, solver, tangent, has_aux=True)

    g, aux = fnx.grad(lambda a: (f(a)[0], f(a)[1]), has_aux=True)(np.float64(4.0))
    close(g, 0.25)
    assert aux[1] == 3 and abs(aux[0].item()) < 1e-12
    close(fnx.vmap(lambda a: f(a)[0])(np.array([4.0, 9.0])), [2.0, 3.0])


def test_a_solver_in_numpy_where_values_are_known():
    def bisect(f, x):
        low, high = 0.0, 10.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if float(f(middle)) > 0 else (middle, high)
        return np.float64(low)

    def f(a):
        return lax.custom_root(lambda x: x * x - a, a * 0.0, bisect, tangent)

    a = np.float64(9.0)
    close(f(a), 3.0)
    close(fnx.grad(f)(a), 1 / 6)
    close(fnx.grad(fnx.grad(f))(a), -1 / 108)
    close(fnx.hessian(f)(a), -1 / 108)
    close(fnx.jvp(f, (a,), (2.0,))[1], 1 / 3)
    with pytest.raises(errors.TracerValueError, match="unknown while tracing"):
        fnx.jit(f)(a)


def test_a_matvec_may_hold_a_loop_that_has_no_transpose():
    def matvec(x):
        def double(state):
            return state[0] + 1, 2 * state[1]

        return lax.while_loop(lambda state: state[0] < 3, double, (0, x))[1]

    def f(b):
        return lax.custom_linear_solve(matvec, b, lambda mv, b: b / 8, symmetric=True)

    close(fnx.jit(f)(B), B / 8)
    close(fnx.jacfwd(f)(B), np.eye(4) / 8)


def test_outside_of_a_trace_the_solver_is_believed():
    assert lax.custom_linear_solve(lambda x: x * x, 4.0, lambda mv, b: b**0.5) == 2


# ---------------------------------------------------------------- mistakes


def traced(f):
    """A call inside of a trace, where the equations are recorded."""
    return fnx.jit(f)(1.0)


BAD = {
    "integer b": (
        lambda: lax.custom_linear_solve(lambda x: x, 3, direct),
        errors.DTypeError,
        r"custom_linear_solve: b is i32\[\]\*: .*real or complex.*\n.*pass a float",
    ),
    "no function": (
        lambda: lax.custom_linear_solve(lambda x: x, 3.0, None),
        errors.ArgumentError,
        "custom_linear_solve: solve takes a function: got None of type NoneType",
    ),
    "matvec is not linear": (
        lambda: traced(
            lambda b: lax.custom_linear_solve(lambda x: fnp.sin(x), b, direct)
        ),
        errors.ArgumentError,
        "custom_linear_solve: <lambda> is not linear in its arguments: .*sin",
    ),
    "matvec is quadratic": (
        lambda: traced(
            lambda b: lax.custom_linear_solve(lambda x: x * x, b, direct, direct)
        ),
        errors.ArgumentError,
        "custom_linear_solve: <lambda> is not linear in its arguments: it multiplies",
    ),
    "matvec is quadratic, and nothing is transposed": (
        lambda: traced(lambda b: lax.custom_linear_solve(lambda x: x * x, b, direct)),
        errors.ArgumentError,
        r"<lambda> is not linear .*: it multiplies what depends on them at .*x \* x",
    ),
    "matvec is quadratic, and said to be symmetric": (
        lambda: fnx.grad(
            lambda b: lax.custom_linear_solve(
                lambda x: x @ x * x, b, direct, symmetric=True
            ).sum()
        )(B),
        errors.ArgumentError,
        "<lambda> is not linear in its arguments: it multiplies",
    ),
    "matvec divides by its argument": (
        lambda: fnx.jacfwd(
            lambda b: lax.custom_linear_solve(lambda x: 2 / x, b, direct)
        )(3.0),
        errors.ArgumentError,
        "<lambda> is not linear in its arguments: it multiplies",
    ),
    "matvec changes the shape": (
        lambda: traced(
            lambda b: lax.custom_linear_solve(lambda x: fnp.stack([x, x]), b, direct)
        ),
        errors.ShapeError,
        r"b is f32\[\]\*, in the result of <lambda> there is f32\[2\]",
    ),
    "matvec changes the tree": (
        lambda: traced(lambda b: lax.custom_linear_solve(lambda x: (x,), b, direct)),
        errors.TreeError,
        "b and the result of <lambda> differ",
    ),
    "the solution has another shape": (
        lambda: lax.custom_linear_solve(lambda x: x, B, lambda mv, b: b[:2]),
        errors.ShapeError,
        r"b is f64\[4\], the solution there is f64\[2\]",
    ),
    "the solution has another tree": (
        lambda: traced(
            lambda b: lax.custom_linear_solve(lambda x: x, b, lambda mv, b: [b])
        ),
        errors.TreeError,
        "b and the solution that <lambda> returned differ",
    ),
    "no aux": (
        lambda: lax.custom_linear_solve(lambda x: x, B, lambda mv, b: b, has_aux=True),
        errors.ArgumentError,
        r"has_aux=True: <lambda> must return a pair \(solution, aux\): it returned",
    ),
    "f changes the dtype": (
        lambda: traced(
            lambda a: lax.custom_root(
                lambda x: x.astype("f8") - a, np.float32(1.0), newton, tangent
            )
        ),
        errors.ShapeError,
        r"initial_guess is f32\[\], in the result of <lambda> there is f64\[\]",
    ),
    "the tangent has another shape": (
        lambda: traced(
            lambda a: lax.custom_root(
                lambda x: x - a, a, lambda f, x: x, lambda g, y: fnp.stack([y, y])
            )
        ),
        errors.ShapeError,
        r"the solution that <lambda> returned must be of the type of initial_guess",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(name):
    run, kind, text = BAD[name]
    with pytest.raises(kind, match=re.compile(text, re.DOTALL)):
        run()


@pytest.mark.oracle
def test_against_jax(jax):
    import jax.numpy as jnp

    def of(library, np_):
        def f(a, b):
            x = library.lax.custom_linear_solve(
                lambda x: a @ x,
                b,
                lambda mv, y: (
                    np_.stack(
                        [
                            (a[1, 1] * y[0] - a[0, 1] * y[1]),
                            (a[0, 0] * y[1] - a[1, 0] * y[0]),
                        ]
                    )
                    / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])
                ),
                lambda mv, y: (
                    np_.stack(
                        [
                            (a[1, 1] * y[0] - a[1, 0] * y[1]),
                            (a[0, 0] * y[1] - a[0, 1] * y[0]),
                        ]
                    )
                    / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])
                ),
            )
            return np_.sin(x).sum()

        return library.hessian(f, (0, 1))(A[:2, :2], B[:2])

    for found, wanted in zip(
        fnx.tree.leaves(of(fnx, fnp)), jax.tree.leaves(of(jax, jnp)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
