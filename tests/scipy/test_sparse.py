"""fnx.scipy.sparse.linalg: solutions, derivatives, trees, where the solvers end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.scipy.sparse.linalg as sparse
from fnx import errors
from fnx.testing import check_grads

RNG = np.random.default_rng(3)
A = RNG.standard_normal((30, 30)) / 5 + 3 * np.eye(30)
C = A + 0.3j * RNG.standard_normal((30, 30))
b = RNG.standard_normal(30)
SOLVERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cg": (sparse.cg, {}),
    "bicgstab": (sparse.bicgstab, {}),
    "gmres": (sparse.gmres, {}),
    "gmres incremental": (sparse.gmres, {"solve_method": "incremental"}),
    "gmres restarted": (sparse.gmres, {"restart": 5}),
}
EACH = pytest.mark.parametrize("name", SOLVERS)


def matrix(name: str, x: Any) -> Any:
    return x @ x.conj().T if name == "cg" else x


@EACH
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_solutions(name: str, dtype: str) -> None:
    solve, options = SOLVERS[name]
    m = matrix(name, A if dtype == "float64" else C)
    right = b.astype(dtype)
    inverse = np.diag(1 / np.diag(m))
    wanted = np.linalg.solve(m, right)
    for more in ({}, {"x0": 0.1 * right}, {"M": inverse}, {"M": lambda x: inverse @ x}):
        given = {"tol": 1e-11, **options, **more}
        x, info = solve(m, right, **given)
        assert info is None
        assert x.dtype == dtype
        np.testing.assert_allclose(x, wanted, 1e-8, 1e-8)
        jitted = fnx.jit(lambda v, g=given, m=m: solve(lambda u: m @ u, v, **g)[0])
        np.testing.assert_allclose(jitted(right), wanted, 1e-8, 1e-8)


@EACH
def test_derivatives(name: str) -> None:
    solve, options = SOLVERS[name]

    def solution(a: Any, right: Any) -> Any:
        a = a @ a.T if name == "cg" else a
        return solve(lambda x: a @ x, right, tol=1e-13, **options)[0]

    check_grads(solution, (A[:5, :5], b[:5]), order=2, atol=1e-4, rtol=1e-4)


@EACH
def test_stacks_and_trees(name: str) -> None:
    solve, options = SOLVERS[name]
    m = matrix(name, A)
    rows = np.stack([b, 2 * b, -b])
    found = fnx.vmap(lambda v: solve(m, v, tol=1e-11, **options)[0])(rows)
    np.testing.assert_allclose(found, np.linalg.solve(m, rows.T).T, 1e-8, 1e-8)
    right = {"u": np.ones(2), "v": (np.ones((2, 2), np.float32),)}
    scaled = lambda x: {"u": 2 * x["u"], "v": (4 * x["v"][0],)}  # noqa: E731
    x, _ = solve(scaled, right, **options)
    assert x["v"][0].dtype == np.float32
    np.testing.assert_allclose(x["u"], [0.5, 0.5], 1e-5)
    np.testing.assert_allclose(x["v"][0], np.full((2, 2), 0.25), 1e-5)


@EACH
def test_where_they_end(name: str) -> None:
    solve, options = SOLVERS[name]
    m = matrix(name, A)
    coarse = solve(m, b, tol=0.1, **options)[0]
    assert np.linalg.norm(m @ np.asarray(coarse) - b) <= 0.1 * np.linalg.norm(b)
    np.testing.assert_array_equal(solve(m, b, maxiter=0, **options)[0], 0 * b)
    np.testing.assert_array_equal(solve(m, b, atol=1e3, **options)[0], 0 * b)
    np.testing.assert_array_equal(solve(m, 0 * b, **options)[0], 0 * b)
    done = solve(np.eye(3), np.ones(3), np.ones(3), **options)[0]
    np.testing.assert_array_equal(done, np.ones(3))


def test_mistakes() -> None:
    with pytest.raises(errors.ShapeError, match=r"A is .* square matrix"):
        sparse.cg(np.ones((2, 3)), np.ones(2))
    with pytest.raises(errors.ShapeError, match="x0 is not like b"):
        sparse.cg(np.eye(2), np.ones(2), np.ones(3))
    with pytest.raises(errors.OptionError, match="solve_method='exact'"):
        sparse.gmres(np.eye(2), np.ones(2), solve_method="exact")
    with pytest.raises(errors.FnxError, match="linear"):
        fnx.jit(lambda v: sparse.cg(fnx.numpy.sin, v)[0])(np.ones(2))
