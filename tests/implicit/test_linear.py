"""The solver for linear systems, against NumPy, at awkward sizes and matrices."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.implicit.linear import eliminated, gmres

RNG = np.random.default_rng(11)


def matrix(n, kind):
    a = RNG.normal(size=(n, n))
    if kind == "skew":  # rotations: a residual tells nothing of the next direction
        return a - a.T + 1e-3 * np.eye(n)
    if kind == "shift":  # nothing is on the diagonal
        return np.roll(np.eye(n), 1, axis=0) * (1 + np.arange(n))
    if kind == "scaled":
        return np.diag(10.0 ** RNG.uniform(-4, 4, n)) @ (a + 2 * n**0.5 * np.eye(n))
    return a + 2 * n**0.5 * np.eye(n)


@pytest.mark.parametrize("n", [1, 2, 5, 33, 100])
@pytest.mark.parametrize("kind", ["general", "skew", "shift", "scaled"])
def test_elimination(n, kind):
    if n % 2 and kind == "skew":
        n += 1
    a, b = matrix(n, kind), RNG.normal(size=n)
    wanted = np.linalg.solve(a, b)
    found = fnx.jit(lambda a, b: eliminated(lambda x: a @ x, b))(a, b)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9 * abs(wanted).max())


@pytest.mark.parametrize("n", [1, 2, 5, 33, 150])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_krylov_spaces(n, dtype):
    a, b = matrix(n, "general").astype(dtype), RNG.normal(size=n).astype(dtype)
    if dtype == "c16":
        a, b = a + 1j * RNG.normal(size=(n, n)), b * (1 + 2j)
    found = fnx.jit(lambda a, b: gmres(lambda x: a @ x, b))(a, b)
    wanted = np.linalg.solve(a.astype("c16"), b)
    tolerance = 1e-4 if dtype == "f4" else 1e-11
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, wanted, rtol=0, atol=tolerance * abs(wanted).max()
    )


@pytest.mark.parametrize("kind", ["skew", "shift"])
def test_krylov_spaces_of_the_whole_dimension(kind):
    n = 30
    a, b = matrix(n, kind), RNG.normal(size=n)
    found = gmres(lambda x: fnp.asarray(a) @ x, fnp.asarray(b))
    wanted = np.linalg.solve(a, b)
    np.testing.assert_allclose(a @ found, b, atol=1e-9 * abs(b).max())
    np.testing.assert_allclose(found, wanted, atol=1e-6 * abs(wanted).max())


def test_a_space_that_is_exhausted_early():
    a = np.diag([2.0] * 150 + [5.0] * 50)  # two directions are all there is
    b = RNG.normal(size=200)
    found = fnx.implicit.linear_solve(lambda x: a @ x, b)
    np.testing.assert_allclose(found, b / np.diag(a), rtol=1e-13)


@pytest.mark.parametrize("n", [3, 150])
def test_nothing_to_do_and_nothing_that_can_be_done(n):
    zeros = np.zeros(n)
    a = matrix(n, "general")
    np.testing.assert_array_equal(fnx.implicit.linear_solve(lambda x: a @ x, zeros), 0)
    singular = np.diag(np.arange(n) / n)
    found = fnx.implicit.linear_solve(lambda x: singular @ x, np.ones(n))
    assert not np.isfinite(found).all()


def test_members_of_a_batch_do_not_disturb_each_other():
    n = 120
    a = np.stack([matrix(n, "general"), np.zeros((n, n)), np.eye(n)])
    b = np.stack([RNG.normal(size=n), np.ones(n), np.zeros(n)])

    def solve(a, b):
        return fnx.implicit.linear_solve(lambda x: a @ x, b)

    found = fnx.vmap(solve)(a, b)
    np.testing.assert_allclose(found[0], np.linalg.solve(a[0], b[0]), atol=1e-11)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[2], 0)


def test_trees_of_several_dtypes():
    def matvec(x):
        return {"a": 2.0 * x["a"] + x["b"].sum(), "b": x["b"] * 4.0 - x["a"][0]}

    b = {"a": np.array([1.0, 2.0], "f4"), "b": np.array([[3.0]])}
    found = fnx.implicit.linear_solve(matvec, b)
    assert found["a"].dtype == np.float32 and found["b"].shape == (1, 1)
    again = matvec(found)
    np.testing.assert_allclose(again["a"], b["a"], rtol=1e-6)
    np.testing.assert_allclose(again["b"], b["b"], rtol=1e-6)
    assert fnx.implicit.linear_solve(lambda x: x, np.zeros(0)).shape == (0,)


def test_integers_are_refused():
    with pytest.raises(errors.DTypeError, match="b must be real or complex, not int32"):
        fnx.implicit.linear_solve(lambda x: x, 3)
