"""What goes column by column on the device, against LAPACK on the CPU and in float64.

Sizes on both sides of a block, stacks of none and of one, every dtype and triangle,
matrices of less than full rank, singular systems, and every transformation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import fnx
import fnx.numpy as fnp
from fnx.errors import CompileError
from fnx.ops import linalg
from fnx_cuda import decompositions, nvrtc, reductions, reductions_text
from fnx_cuda.resources import resources
from tests.cuda.compare import on_cpu, on_device, runs_on_the_host
from tests.cuda.test_linear_algebra import DTYPES, adjoint, close, exact, matrices

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

# ---------------------------------------------------------------- pivoted QR

SHAPES = [(1, 1), (9, 9), (33, 33), (50, 40), (40, 50), (1, 40), (40, 1)]


def pivoted(x: Any, full: bool = False) -> Any:
    return linalg.qr(x, pivoting=True, full_matrices=full)


@named("dtype", DTYPES)
@named("shape", SHAPES)
@named("full", [False, True])
def test_pivoted_qr(gpu, rng, shape: Any, full: bool, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)

    def factors(x: Any) -> Any:
        return pivoted(x, full)

    assert not runs_on_the_host(factors, x)
    q, r, order = on_device(factors, x)
    for one, other in zip((q, r, order), on_cpu(factors, x), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    for matrix, pivots in zip(x, order, strict=True):
        *_, wanted = scipy.linalg.qr(exact(matrix), pivoting=True)
        np.testing.assert_array_equal(pivots, wanted)
    ordered = np.take_along_axis(x, order[:, None].astype(int), -1)
    close((exact(q) @ exact(r)).astype(dtype), ordered, max(shape))
    unit = np.broadcast_to(np.eye(q.shape[-1]), (2, *q.shape[-1:] * 2))
    close((adjoint(exact(q)) @ exact(q)).astype(dtype), unit, max(shape))
    assert (np.tril(r, -1) == 0).all()


@named("dtype", ["float32", "complex128"])
def test_rank_is_seen(gpu, rng, dtype: str) -> None:
    """Of rank 3, with columns of all sizes: nothing overflows, nothing is lost."""
    x = matrices(rng, (1, 40, 3), dtype) @ matrices(rng, (1, 3, 20), dtype)
    for scale in (1, 1e-25, 1e25):
        _, r, order = on_device(pivoted, (x * scale).astype(dtype))
        sizes = np.abs(np.diagonal(r[0]))
        assert (sizes[3:] <= 1e-5 * sizes[0]).all() and sizes[2] > 1e-3 * sizes[0]
        wanted = scipy.linalg.qr(exact(x[0]), pivoting=True)[2]
        np.testing.assert_array_equal(order[0, :3], wanted[:3])


def test_columns_of_zeros_and_equal_ones(gpu) -> None:
    """Of equal ones, the first is taken; what is left of the others is rounding."""
    x = np.zeros((2, 5, 4), "float32")
    x[1] = 1
    q, r, order = on_device(pivoted, x)
    np.testing.assert_array_equal(order[0], range(4))
    assert not r[0].any() and order[1, 0] == 0
    np.testing.assert_array_equal(q[0], np.eye(5, 4))
    np.testing.assert_allclose(q @ r, x, atol=1e-6)
    assert sorted(order[1]) == [0, 1, 2, 3]


# ---------------------------------------------------------------- forms


@named("dtype", DTYPES)
@named("n", [1, 2, 3, 9, 33, 40])
def test_hessenberg(gpu, rng, n: int, dtype: str) -> None:
    x = matrices(rng, (2, n, n), dtype)
    assert not runs_on_the_host(linalg.hessenberg, x)
    found, wanted = on_device(linalg.hessenberg, x), on_cpu(linalg.hessenberg, x)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        close(one, other, 30 * n)
    (packed, taus), h = found, np.triu(exact(found[0]), -1)
    for item in range(2):
        q = np.eye(n, dtype=h.dtype)
        for k in range(n - 1):
            v = np.r_[np.zeros(k + 1), 1, exact(packed[item])[k + 2 :, k]]
            q = q @ (np.eye(n) - exact(taus[item])[k] * np.outer(v, v.conj()))
        close((q @ h[item] @ adjoint(q)).astype(dtype), x[item], n)


@named("dtype", DTYPES)
@named("lower", [False, True])
@named("n", [1, 2, 3, 9, 33, 40])
def test_tridiagonal(gpu, rng, n: int, lower: bool, dtype: str) -> None:
    """Of both triangles, one is read, and the other stays."""
    x = matrices(rng, (2, n, n), dtype)
    x[:, range(n), range(n)] = x[:, range(n), range(n)].real

    def reduced(x: Any) -> Any:
        return linalg.tridiagonal(x, lower=lower)

    assert not runs_on_the_host(reduced, x)
    found, wanted = on_device(reduced, x), on_cpu(reduced, x)
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        close(one, other, 100 * n)
    half = np.tril(exact(x)) if lower else np.triu(exact(x))
    strict = np.tril(half, -1) + np.triu(half, 1)
    diagonal = np.einsum("...ii->...i", half).real
    full = strict + adjoint(strict) + diagonal[..., None] * np.eye(n)
    _, d, e, _ = found
    for item in range(2):
        values = scipy.linalg.eigvalsh_tridiagonal(
            d[item].astype(float), e[item].astype(float)
        )
        close(values.astype(d.dtype), np.linalg.eigvalsh(full[item]), n)


def test_large_matrices_are_the_hosts(gpu, monkeypatch) -> None:
    x = np.ones((1, 9, 9), "float32")
    monkeypatch.setattr(reductions, "MOST_COLUMNS", 8)
    assert runs_on_the_host(linalg.hessenberg, x) and runs_on_the_host(pivoted, x)
    assert not runs_on_the_host(linalg.hessenberg, x[:, :8, :8])


# ---------------------------------------------------------------- systems


def system(rng: Any, shape: Any, columns: int, dtype: str) -> Any:
    below, diagonal, above = [matrices(rng, shape, dtype) for _ in range(3)]
    return below, diagonal, above, matrices(rng, (*shape, columns), dtype)


@named("dtype", DTYPES)
@named("shape", [(1,), (2,), (3, 3), (2, 70), (300, 5), (2, 1, 33)])
@named("columns", [1, 5])
def test_tridiagonal_solve(gpu, rng, shape: Any, columns: int, dtype: str) -> None:
    given = system(rng, shape, columns, dtype)
    solve = linalg.tridiagonal_solve
    assert not runs_on_the_host(solve, *given)
    (found,), (wanted,) = on_device(solve, *given), on_cpu(solve, *given)
    below, diagonal, above, b = map(exact, given)
    n = shape[-1]
    a = np.zeros((*shape, n), b.dtype)
    a[..., range(n), range(n)] = diagonal
    a[..., range(1, n), range(n - 1)] = below[..., 1:]
    a[..., range(n - 1), range(1, n)] = above[..., :-1]
    # The residual is that of LAPACK: some of the matrices are nearly singular.
    for x in (found, wanted):
        size = np.abs(a).sum(-1, keepdims=True).max(-2, keepdims=True)
        size = size * np.abs(exact(x)).max(-2, keepdims=True)
        assert (np.abs(a @ exact(x) - b) <= 20 * np.finfo(dtype).eps * size).all()


def test_exchanged_rows_and_singular_ones(gpu) -> None:
    """Zeros on the diagonal need an exchange; if none helps, there is no solution."""
    below = np.array([[9, 1, 2, 1], [9, 0, 2, 1], [9, 1, 1, 1]], "float64")
    diagonal = np.array([[0, 0, 0, 0], [0, 1, 1, 1], [1, 1, 0, 2]], "float64")
    above = np.array([[3, 2, 1, 9], [0, 1, 1, 9], [1, 1, 1, 9]], "float64")
    b = np.arange(12.0).reshape(3, 4, 1)
    found = on_device(linalg.tridiagonal_solve, below, diagonal, above, b)[0]
    wanted = on_cpu(linalg.tridiagonal_solve, below, diagonal, above, b)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()


def test_few_long_systems_are_the_hosts(gpu, rng, monkeypatch) -> None:
    monkeypatch.setattr(decompositions, "_LONG_SYSTEM", 8)
    assert runs_on_the_host(linalg.tridiagonal_solve, *system(rng, (31, 9), 1, "f4"))
    for shape, columns in [((32, 9), 1), ((1, 9), 32), ((1, 8), 1)]:
        given = system(rng, shape, columns, "f4")
        assert not runs_on_the_host(linalg.tridiagonal_solve, *given)


# ---------------------------------------------------------------- all of them

ROUTINES = {
    "qr": pivoted,
    "hessenberg": linalg.hessenberg,
    "tridiagonal": lambda x: linalg.tridiagonal(x, lower=True),
    "tridiagonal_solve": lambda x: linalg.tridiagonal_solve(
        fnp.sum(x, -1), fnp.sum(x * 3, -1) + 1, fnp.sum(x, -1), x
    ),
}


@named("name", ROUTINES)
@named("shape", [(0, 9, 9), (3, 0, 0), (1, 1, 2, 2)])
def test_stacks_of_nothing(gpu, rng, name: str, shape: Any) -> None:
    x = matrices(rng, shape, "float64")
    found, wanted = on_device(ROUTINES[name], x), on_cpu(ROUTINES[name], x)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@named("name", ["qr", "tridiagonal_solve"])
def test_transformations(gpu, rng, name: str) -> None:
    """The gradient for each matrix of a stack, compiled, is that of the CPU."""
    x = matrices(rng, (3, 7, 7), "float64")

    def total(x: Any) -> Any:
        leaves = fnx.tree_util.tree_leaves(ROUTINES[name](x))
        return sum(fnp.sum(fnp.sin(y)) for y in leaves if y.dtype == np.float64)

    function = fnx.vmap(fnx.value_and_grad(total))
    found, wanted = on_device(function, x), on_cpu(function, x)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_a_captured_program(gpu, rng) -> None:
    x = rng.standard_normal((12, 12))

    def function(x: Any) -> Any:
        _, r, order = pivoted(x * 2)
        packed, _ = linalg.hessenberg(x + 1)
        solved = linalg.tridiagonal_solve(x[0], x[1] + 5, x[2], x)
        return r, order, packed, solved

    low = fnx.jit(function)
    for factor in (1.0, 2.0, 3.0):  # from the second time on it is a graph
        found = low(fnx.device_put(factor * x, gpu))
        for one, other in zip(found, on_cpu(function, factor * x), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@named("dtype", DTYPES)
@named("target", ["sm_80", "sm_90"])
def test_nothing_spills(dtype: str, target: str) -> None:
    try:
        compiler = nvrtc.compiler()
    except CompileError as error:
        pytest.skip(str(error))
    log = compiler.compile(reductions_text.text(np.dtype(dtype)), target).log
    found = resources(log)
    assert len(found) == 9
    assert all(takes.spills == takes.stack == 0 for takes in found.values())
