"""Linear algebra on the device, by kernels of our own, against NumPy in float64.

Sizes on both sides of a panel, stacks of none and of one, every dtype and option,
matrices that have no factor, and every transformation.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.ops import linalg
from tests.cuda.compare import on_cpu, on_device, runs_on_the_host

pytestmark = pytest.mark.cuda

DTYPES = ["float32", "float64", "complex64", "complex128"]
SIZES = [1, 2, 9, 31, 32, 33, 70]
named = pytest.mark.parametrize


def matrices(rng: Any, shape: Any, dtype: str) -> Any:
    """Random numbers; complex ones have two parts."""
    x = rng.standard_normal((*shape, 2)).view("complex128")[..., 0]
    return (x if dtype.startswith("complex") else x.real).astype(dtype)


def definite(rng: Any, shape: Any, dtype: str) -> Any:
    """Positive definite matrices, with other numbers above the diagonal."""
    x = exact(matrices(rng, shape, dtype))
    full = x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1])
    found = np.tril(full) + 7 * np.triu(np.ones(shape[-1:] * 2), 1)
    return found.astype(dtype)


def close(found: Any, wanted: Any, scale: float = 1.0) -> None:
    """To some roundings of the dtype, relative to the largest number."""
    assert found.shape == wanted.shape
    tolerance = 300 * np.finfo(found.dtype).eps * scale
    size = max(np.abs(wanted).max(initial=0), 1e-30)
    np.testing.assert_allclose(found / size, wanted / size, rtol=0, atol=tolerance)


def exact(x: Any) -> Any:
    return x.astype("complex128" if np.iscomplexobj(x) else "float64")


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


# ---------------------------------------------------------------- cholesky


@named("dtype", DTYPES)
@named("n", SIZES)
def test_cholesky(gpu, rng, n: int, dtype: str) -> None:
    x = definite(rng, (2, n, n), dtype)
    assert not runs_on_the_host(linalg.cholesky, x)
    (found,) = on_device(linalg.cholesky, x)
    low = np.tril(exact(x), -1)
    full = low + adjoint(low) + np.stack([np.diag(np.diag(one)) for one in exact(x)])
    close(found, np.linalg.cholesky(full), n)
    assert (np.triu(found, 1) == 0).all()


@named("where", [0, 20, 40])
def test_a_matrix_that_is_not_definite(gpu, rng, where: int) -> None:
    x = definite(rng, (3, 41, 41), "float32")
    x[1, where, where] = -1
    x[2, 0, 0] = np.nan
    (found,) = on_device(linalg.cholesky, x)
    assert np.isfinite(found[0]).all()
    for one in found[1:]:
        np.testing.assert_array_equal(np.isnan(one), np.tril(np.ones((41, 41))) == 1)


# ---------------------------------------------------------------- triangles


@named("dtype", DTYPES)
@named("n, count", [(1, 1), (33, 1), (40, 5), (9, 70)])
def test_triangular_solve(gpu, rng, n: int, count: int, dtype: str) -> None:
    flags = itertools.product([False, True], repeat=5)
    a = matrices(rng, (2, n, n), dtype) / n + 2 * np.eye(n, dtype=dtype)
    for left, lower, transpose, conjugate, unit in flags:
        if conjugate and not transpose:
            continue
        b = matrices(rng, (2, n, count) if left else (2, count, n), dtype)

        def solve(
            a: Any,
            b: Any,
            left: Any = left,
            lower: Any = lower,
            transpose: Any = transpose,
            conjugate: Any = conjugate,
            unit: Any = unit,
        ) -> Any:
            return linalg.triangular_solve(
                a,
                b,
                left_side=left,
                lower=lower,
                transpose_a=transpose,
                conjugate_a=conjugate,
                unit_diagonal=unit,
            )

        assert not runs_on_the_host(solve, a, b)
        (found,) = on_device(solve, a, b)
        full = np.tril(exact(a)) if lower else np.triu(exact(a))
        if unit:
            full[:, range(n), range(n)] = 1
        if transpose:
            full = adjoint(full) if conjugate else full.swapaxes(-1, -2)
        wanted = exact(b)
        if left:
            close(found, np.linalg.solve(full, wanted))
        else:
            turned = np.linalg.solve(full.swapaxes(-1, -2), wanted.swapaxes(-1, -2))
            close(found, turned.swapaxes(-1, -2))


# ---------------------------------------------------------------- lu and solve


@named("dtype", DTYPES)
@named("shape", [(1, 1), (9, 9), (33, 33), (70, 40), (40, 70), (1, 40), (65, 1)])
def test_lu(gpu, rng, shape: Any, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)
    assert not runs_on_the_host(linalg.lu, x)
    factors, pivots, order = on_device(linalg.lu, x)
    wanted = on_cpu(linalg.lu, x)
    np.testing.assert_array_equal(pivots, wanted[1])
    np.testing.assert_array_equal(order, wanted[2])
    m, n = shape
    k = min(m, n)
    low = np.tril(exact(factors)[..., :k], -1) + np.eye(m, k)
    product = low @ np.triu(exact(factors)[:, :k])
    close(product.astype(dtype), np.take_along_axis(x, order[..., None], 1), k)


def test_equal_pivots_are_the_first_and_zeros_divide_nothing(gpu) -> None:
    x = np.ones((2, 40, 40), "float32")
    x[1] = 0
    for one, other in zip(on_device(linalg.lu, x), on_cpu(linalg.lu, x), strict=True):
        np.testing.assert_array_equal(one, other)


@named("size", [5, 40, 9000])
def test_permutations(gpu, rng, size: int) -> None:
    pivots = np.arange(5, dtype=np.int32) + rng.integers(0, size - 4, (3, 5), np.int32)

    def order(pivots: Any) -> Any:
        return lax.linalg.lu_pivots_to_permutation(pivots, size)

    assert not runs_on_the_host(order, pivots)
    np.testing.assert_array_equal(on_device(order, pivots)[0], on_cpu(order, pivots)[0])


@named("dtype", DTYPES)
@named("n, count", [(1, 1), (9, 3), (33, 1), (40, 40)])
@named("transposed", [False, True])
def test_solve(gpu, rng, n: int, count: int, transposed: bool, dtype: str) -> None:
    a = matrices(rng, (2, n, n), dtype) + 3 * np.eye(n, dtype=dtype)
    b = matrices(rng, (2, n, count), dtype)

    def solve(a: Any, b: Any) -> Any:
        return linalg.solve(a, b, transpose_a=transposed)

    def again(a: Any, b: Any) -> Any:
        factors, pivots, _ = linalg.lu(a)
        return linalg.factored_solve(a, factors, pivots, b, transpose_a=transposed)

    wanted = np.linalg.solve(exact(a.swapaxes(-1, -2) if transposed else a), exact(b))
    for function in (solve, again):
        assert not runs_on_the_host(function, a, b)
        close(on_device(function, a, b)[0], wanted, n)


def test_a_singular_matrix_has_no_solution(gpu, rng) -> None:
    a = rng.standard_normal((2, 40, 40)).astype("float32")
    a[1, :, 7] = 0
    b = np.ones((2, 40, 2), "float32")
    (found,) = on_device(lambda a, b: linalg.solve(a, b), a, b)
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()


# ---------------------------------------------------------------- reflections

SHAPES = [(1, 1), (9, 9), (33, 33), (70, 40), (40, 70), (1, 40), (65, 1)]


@named("dtype", DTYPES)
@named("shape", SHAPES)
@named("full", [False, True])
def test_qr(gpu, rng, shape: Any, full: bool, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)

    def factors(x: Any) -> Any:
        return linalg.qr(x, pivoting=False, full_matrices=full)

    assert not runs_on_the_host(factors, x)
    q, r = on_device(factors, x)
    for one, other in zip((q, r), on_cpu(factors, x), strict=True):
        assert one.shape == other.shape
    close((exact(q) @ exact(r)).astype(dtype), x, max(shape))
    unit = np.broadcast_to(np.eye(q.shape[-1]), (2, *q.shape[-1:] * 2))
    close((adjoint(exact(q)) @ exact(q)).astype(dtype), unit, max(shape))
    assert (np.tril(r, -1) == 0).all()
    # LAPACK's signs: the diagonal is real.
    close(r, on_cpu(factors, x)[1], 10 * max(shape))


@named("dtype", DTYPES)
@named("shape", SHAPES)
def test_geqrf(gpu, rng, shape: Any, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)
    assert not runs_on_the_host(linalg.geqrf, x)
    for one, other in zip(
        on_device(linalg.geqrf, x), on_cpu(linalg.geqrf, x), strict=True
    ):
        close(one, other, 30 * max(shape))


def test_columns_of_all_sizes(gpu) -> None:
    """Neither squares that overflow nor columns of zeros are lost."""
    x = np.zeros((1, 40, 3), "float32")
    x[0, :, 0] = 1e25
    x[0, 5:, 2] = 1e-30
    packed, taus = on_device(linalg.geqrf, x)
    wanted, others = on_cpu(linalg.geqrf, x)
    np.testing.assert_allclose(packed, wanted, rtol=1e-4, atol=1e-36)
    np.testing.assert_allclose(taus, others, rtol=1e-4)


@named("dtype", ["float32", "complex128"])
@named("m, n, count", [(9, 9, 4), (70, 40, 40), (70, 40, 33), (33, 1, 1)])
def test_products_of_reflections(
    gpu, rng, m: int, n: int, count: int, dtype: str
) -> None:
    packed, taus = on_cpu(linalg.geqrf, matrices(rng, (2, m, n), dtype))
    taus = taus[:, :count]
    function = linalg.householder_product
    assert not runs_on_the_host(function, packed, taus)
    found, wanted = on_device(function, packed, taus), on_cpu(function, packed, taus)
    close(found[0], wanted[0], m)
    for left, transpose in itertools.product([False, True], repeat=2):
        c = matrices(rng, (2, m, 37) if left else (2, 37, m), dtype)

        def multiplied(
            a: Any, taus: Any, c: Any, left: Any = left, transpose: Any = transpose
        ) -> Any:
            return linalg.ormqr(a, taus, c, left=left, transpose=transpose)

        assert not runs_on_the_host(multiplied, packed, taus, c)
        (one,) = on_device(multiplied, packed, taus, c)
        close(one, on_cpu(multiplied, packed, taus, c)[0], m)


# ---------------------------------------------------------------- all of them

ROUTINES = {
    "cholesky": linalg.cholesky,
    "lu": linalg.lu,
    "qr": lambda x: linalg.qr(x, pivoting=False, full_matrices=True),
    "geqrf": linalg.geqrf,
    "solve": lambda x: linalg.solve(x, x),
    "triangular_solve": lambda x: linalg.triangular_solve(x, x),
}


@named("name", ROUTINES)
@named("shape", [(0, 9, 9), (3, 0, 0), (0, 0), (1, 1, 2, 2)])
def test_stacks_of_nothing(gpu, rng, name: str, shape: Any) -> None:
    x = definite(rng, shape, "float64")
    found, wanted = on_device(ROUTINES[name], x), on_cpu(ROUTINES[name], x)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@named("name", [name for name in ROUTINES if name != "geqrf"])
def test_transformations(gpu, rng, name: str) -> None:
    """The gradient for each matrix of a stack, compiled, is that of the CPU."""
    x = definite(rng, (3, 12, 12), "float64")

    def total(x: Any) -> Any:
        leaves = fnx.tree_util.tree_leaves(ROUTINES[name](x))
        return sum(fnp.sum(fnp.sin(y)) for y in leaves if y.dtype == np.float64)

    function = fnx.vmap(fnx.value_and_grad(total))
    found, wanted = on_device(function, x), on_cpu(function, x)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_a_captured_program(gpu, rng) -> None:
    a = definite(rng, (40, 40), "float64")
    a = np.tril(a) + np.tril(a, -1).T
    solve = fnx.jit(lambda a, b: fnp.linalg.solve(a, b) + fnp.linalg.cholesky(a) @ b)
    for factor in (1.0, 2.0, 3.0):  # from the second time on it is a graph
        b = factor * np.arange(40.0)
        found = solve(*fnx.device_put((a, b), gpu))
        wanted = np.linalg.solve(a, b) + np.linalg.cholesky(a) @ b
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-9)
