"""fnx.lax.linalg: names, results and options, against JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.testing import check_grads

RNG = np.random.default_rng(7)
A = RNG.standard_normal((2, 4, 4)) + 3 * np.eye(4)
S = A @ A.swapaxes(-1, -2)
WIDE, TALL = RNG.standard_normal((3, 5)), RNG.standard_normal((5, 3))
B = RNG.standard_normal((2, 4, 3))


def close(found: Any, wanted: Any) -> None:
    found = found if isinstance(found, tuple | list) else [found]
    wanted = wanted if isinstance(wanted, tuple | list) else [wanted]
    for x, y in zip(found, wanted, strict=True):
        assert (x.shape, x.dtype) == (np.shape(y), y.dtype)
        np.testing.assert_allclose(x, y, 1e-9, 1e-9)


# Calls with the same result in both, signs and all.
CALLS = {
    "cholesky": lambda m: m.cholesky(S),
    "cholesky triangle": lambda m: m.cholesky(np.tril(S), symmetrize_input=False),
    "cholesky_update": lambda m: m.cholesky_update(
        np.linalg.cholesky(S[0]).T, B[0, :, 0]
    ),
    "hessenberg": lambda m: m.hessenberg(A),
    "householder_product": lambda m: m.householder_product(TALL, TALL[0]),
    "lu": lambda m: m.lu(A),
    "lu wide": lambda m: m.lu(WIDE),
    "pivots": lambda m: m.lu_pivots_to_permutation(np.array([2, 2, 2], np.int32), 4),
    "ormqr": lambda m: m.ormqr(TALL, TALL[0], RNG_C, left=True),
    "ormqr right": lambda m: m.ormqr(
        TALL, TALL[0], RNG_C.T, left=False, transpose=True
    ),
    "qr": lambda m: m.qr(TALL),
    "qr thin": lambda m: m.qr(TALL, full_matrices=False),
    "qr pivoting": lambda m: m.qr(WIDE, pivoting=True),
    "schur": lambda m: m.schur(A),
    "schur values": lambda m: m.schur(A, compute_schur_vectors=False),
    "svd values": lambda m: m.svd(WIDE, compute_uv=False),
    "triangular_solve": lambda m: m.triangular_solve(A, B, left_side=True, lower=True),
    "triangular_solve right": lambda m: m.triangular_solve(
        A, B.swapaxes(-1, -2), transpose_a=True, unit_diagonal=True
    ),
    "triangular_solve conjugate": lambda m: m.triangular_solve(
        A + 1j * S, B + 0j, left_side=True, conjugate_a=True
    ),
    "tridiagonal": lambda m: m.tridiagonal(S),
    "tridiagonal upper": lambda m: m.tridiagonal(S, lower=False),
    "tridiagonal_solve": lambda m: m.tridiagonal_solve(
        B[..., 0], B[..., 1] + 6, B[..., 2], B
    ),
    "symmetric_product": lambda m: m.symmetric_product(
        A, S, alpha=2.0, beta=0.5, symmetrize_output=True
    ),
}
RNG_C = RNG.standard_normal((5, 2))


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_jax(name: str, jax: Any) -> None:
    if name == "tridiagonal_solve":
        # JAX reads the elements of dl and du that are outside of the matrix.
        assert B[0, 0, 0] != 0
    found = CALLS[name](lax.linalg)
    wanted = CALLS[name](jax.lax.linalg)
    if name == "symmetric_product":
        wanted = np.asarray(wanted)
    close(found, tuple(wanted) if isinstance(wanted, list | tuple) else wanted)
    close(fnx.jit(lambda: CALLS[name](lax.linalg))(), found)


@pytest.mark.oracle
def test_all_names_of_jax_are_there(jax: Any) -> None:
    names = {n for n in dir(jax.lax.linalg) if not n.startswith("_")}
    assert {n for n in names if not n.endswith("_p")} == {*lax.linalg.__all__}
    for name in ("EigImplementation", "EighImplementation", "SvdAlgorithm"):
        own, other = getattr(lax.linalg, name), getattr(jax.lax.linalg, name)
        assert [m.name for m in own] == [m.name for m in other]


def test_eigenvalues_and_their_order() -> None:
    v, w = lax.linalg.eigh(S)
    close(w, np.linalg.eigvalsh(S))
    np.testing.assert_allclose(S @ np.asarray(v), v * w[:, None, :], 1e-9, 1e-9)
    some, values = lax.linalg.eigh(S, subset_by_index=(1, 3))
    close(values, w[:, 1:3])
    close(some, v[:, :, 1:3])
    values, left, right = map(np.asarray, lax.linalg.eig(A))
    np.testing.assert_allclose(A @ right, right * values[:, None], 1e-9, 1e-9)
    turned = left.conj().swapaxes(-1, -2)
    np.testing.assert_allclose(turned @ A, values[..., None] * turned, 1e-9, 1e-9)
    values, left = lax.linalg.eig(A, compute_right_eigenvectors=False)
    assert left.shape == A.shape


def test_parts_of_svd() -> None:
    u, s, vt = lax.linalg.svd(WIDE, full_matrices=False, subset_by_index=(0, 2))
    assert (u.shape, s.shape, vt.shape) == ((3, 2), (2,), (2, 5))
    close(s, np.linalg.svd(WIDE)[1][:2])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_polar_factors(dtype: str) -> None:
    x = TALL.astype(dtype)
    x = x + 1j * x[::-1] if dtype == "complex128" else x
    u, h, rounds, converged = lax.linalg.qdwh(x)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(u @ h, x, 0, 50 * eps)
    np.testing.assert_allclose(np.conj(u).T @ u, np.eye(3), 0, 50 * eps)
    assert converged and rounds <= 8
    assert (np.linalg.eigvalsh(h) > 0).all()
    *_, rounds, converged = lax.linalg.qdwh(x, max_iterations=1)
    assert rounds == 1 and not converged
    u, *_ = lax.linalg.qdwh(S[0], is_hermitian=True)
    np.testing.assert_allclose(u, np.eye(4), 0, 1e-12)


@pytest.mark.parametrize(
    "name",
    ["cholesky", "cholesky_update", "householder_product", "lu", "ormqr", "qr thin"],
)
def test_derivatives(name: str) -> None:
    def scaled(x: Any) -> Any:
        class Scaled:
            def __getattr__(self, name: str) -> Any:
                function = getattr(lax.linalg, name)
                return lambda first, *rest, **options: function(
                    fnp.multiply(first, x), *rest, **options
                )

        return CALLS[name](Scaled())

    check_grads(scaled, (1.25,), order=2, atol=1e-4, rtol=1e-4)


MISTAKES = {
    "implementation": (
        lambda: lax.linalg.eigh(S, implementation=lax.linalg.EighImplementation.JACOBI),
        errors.OptionError,
        "leave implementation out",
    ),
    "algorithm": (
        lambda: lax.linalg.svd(S, algorithm=lax.linalg.SvdAlgorithm.POLAR),
        errors.OptionError,
        "leave algorithm out",
    ),
    "order": (
        lambda: lax.linalg.schur(A, sort_eig_vals=True),
        errors.OptionError,
        "sort_eig_vals",
    ),
    "perturb": (
        lambda: lax.linalg.tridiagonal_solve(
            np.ones(2), np.ones(2), np.ones(2), np.ones((2, 1)), perturb_singular=True
        ),
        errors.OptionError,
        "perturb_singular",
    ),
    "subset": (
        lambda: lax.linalg.eigh(S, subset_by_index=(2, 9)),
        errors.OptionError,
        "from 0 to 4",
    ),
    "update": (
        lambda: lax.linalg.cholesky_update(S[0], np.ones(3)),
        errors.ShapeError,
        "shape of its rows",
    ),
    "product": (
        lambda: lax.linalg.symmetric_product(WIDE, S[0]),
        errors.ShapeError,
        "as large as",
    ),
    "qdwh": (lambda: lax.linalg.qdwh(WIDE), errors.ShapeError, "transposed"),
    "no derivative": (
        lambda: fnx.jacfwd(lambda x: lax.linalg.hessenberg(x)[0])(S[0]),
        errors.ArgumentError,
        "derivative of hessenberg",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    call, error, match = MISTAKES[name]
    with pytest.raises(error, match=match):
        call()
