"""fnx.scipy.linalg against SciPy and JAX: values, derivatives, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import fnx
import fnx.numpy as fnp
import fnx.scipy.linalg
from fnx import errors
from fnx.testing import check_grads

RNG = np.random.default_rng(11)
A = RNG.standard_normal((4, 4))
C = A + 1j * RNG.standard_normal((4, 4))
S, H = A @ A.T + np.eye(4), C @ C.conj().T + np.eye(4)
TALL, WIDE = RNG.standard_normal((5, 3)), RNG.standard_normal((3, 5))
b, B = RNG.standard_normal(4), RNG.standard_normal((4, 3))
own, other = fnx.scipy.linalg, scipy.linalg


def close(found: Any, wanted: Any, tolerance: float = 1e-8) -> None:
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for x, y in zip(found, wanted, strict=True):
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(x, y, tolerance, tolerance)


# What has the same text and the same result in both, signs and all.
SAME: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda m: m.cholesky(S),
    "cholesky lower": lambda m: m.cholesky(H, lower=True),
    "cho_solve": lambda m: m.cho_solve(m.cho_factor(S), b),
    "cho_solve lower": lambda m: m.cho_solve(m.cho_factor(S, lower=True), B),
    "cho_solve complex": lambda m: m.cho_solve(m.cho_factor(H), B),
    "det": lambda m: m.det(A),
    "inv": lambda m: m.inv(A),
    "eigh": lambda m: m.eigh(A, eigvals_only=True),
    "eigh upper": lambda m: m.eigh(A, lower=False, eigvals_only=True),
    "eigh general": lambda m: m.eigh(A, S, eigvals_only=True),
    "eigh general upper": lambda m: m.eigh(C, H, lower=False, eigvals_only=True),
    "eigh_tridiagonal": lambda m: m.eigh_tridiagonal(b, b[1:], eigvals_only=True),
    "eigh_tridiagonal some": lambda m: m.eigh_tridiagonal(
        b, b[1:], eigvals_only=True, select="i", select_range=(1, 2)
    ),
    "hessenberg": lambda m: m.hessenberg(A, calc_q=True),
    "hessenberg complex": lambda m: m.hessenberg(C),
    "hessenberg one": lambda m: m.hessenberg(A[:1, :1], calc_q=True),
    "lu": lambda m: m.lu(A),
    "lu wide": lambda m: m.lu(WIDE),
    "lu permuted": lambda m: m.lu(TALL, permute_l=True),
    "lu_factor": lambda m: m.lu_factor(C),
    "qr": lambda m: m.qr(TALL),
    "qr economic": lambda m: m.qr(TALL, mode="economic"),
    "qr r": lambda m: m.qr(TALL, mode="r"),
    "qr pivoting": lambda m: m.qr(WIDE, pivoting=True),
    "qr r pivoting": lambda m: m.qr(WIDE, pivoting=True, mode="r"),
    "schur": lambda m: m.schur(A),
    "solve": lambda m: m.solve(A, b),
    "solve sym": lambda m: m.solve(S + np.triu(A, 1), B, assume_a="sym", lower=True),
    "solve her": lambda m: m.solve(H + np.tril(A, -1), B, assume_a="her"),
    "solve pos": lambda m: m.solve(H + np.tril(A, -1), b, assume_a="pos"),
    "solve pos lower": lambda m: m.solve(S, b, assume_a="pos", lower=True),
    "solve_sylvester": lambda m: m.solve_sylvester(A, S[:3, :3], B),
    "solve_sylvester complex": lambda m: m.solve_sylvester(C, S[:3, :3], B),
    "sqrtm": lambda m: m.sqrtm(C),
    "sqrtm positive": lambda m: m.sqrtm(S),
    "funm": lambda m: m.funm(A, m.sin),
    "expm": lambda m: m.expm(A),
    "expm small": lambda m: m.expm(0.01 * A),
    "expm large": lambda m: m.expm(-10 * S),
    "expm stack": lambda m: m.expm(np.stack([A, 5 * A, 0 * A])),
    "expm complex": lambda m: m.expm(C),
    "expm_frechet": lambda m: m.expm_frechet(A, S),
    "expm_frechet blocks": lambda m: m.expm_frechet(A, S, method="blockEnlarge"),
    "block_diag": lambda m: m.block_diag(A, b, 1, np.zeros((0, 2))),
    "circulant": lambda m: m.circulant(b),
    "companion": lambda m: m.companion(b),
    "fiedler": lambda m: m.fiedler(b),
    "hankel": lambda m: m.hankel(b),
    "hankel row": lambda m: m.hankel(b, WIDE[0]),
    "leslie": lambda m: m.leslie(b, b[1:]),
    "toeplitz": lambda m: m.toeplitz(C[0]),
    "toeplitz row": lambda m: m.toeplitz(b, WIDE[0]),
    "hadamard": lambda m: m.hadamard(8),
}
for trans in (0, 1, 2):
    SAME[f"lu_solve {trans}"] = lambda m, t=trans: m.lu_solve(m.lu_factor(C), B, t)
    SAME[f"solve_triangular {trans}"] = lambda m, t=trans: m.solve_triangular(
        C, b, trans=t, lower=t == 1, unit_diagonal=t == 2
    )
for side in ("right", "left"):
    SAME[f"polar {side}"] = lambda m, s=side: m.polar(A, s)
    for conjugate in (False, True):
        SAME[f"qr_multiply {side} {conjugate}"] = lambda m, s=side, c=conjugate: (
            m.qr_multiply(
                TALL + 1j * TALL[::-1],
                WIDE[:2] if s == "right" else WIDE,
                mode=s,
                conjugate=c,
                pivoting=c,
            )
        )
for kind in ("symmetric", "lower", "upper"):
    SAME[f"pascal {kind}"] = lambda m, k=kind: m.pascal(5, k)
    SAME[f"invpascal {kind}"] = lambda m, k=kind: m.invpascal(5, k)
for mode in ("full", "valid", "same"):
    for size in (2, 3, 4, 7):
        SAME[f"convolution_matrix {mode} {size}"] = lambda m, n=size, s=mode: (
            m.convolution_matrix(b, n, s)
        )
for size in range(2, 8):
    SAME[f"fiedler_companion {size}"] = lambda m, n=size: m.fiedler_companion(
        np.arange(1.0, n + 1)
    )


class With:
    """A namespace with one function more."""

    def __init__(self, namespace: Any, sin: Any) -> None:
        self.namespace = namespace
        self.sin = sin

    def __getattr__(self, name: str) -> Any:
        return getattr(self.namespace, name)


@pytest.mark.parametrize("name", SAME)
def test_values_are_those_of_scipy(name: str) -> None:
    found = SAME[name](With(own, fnp.sin))
    close(found, SAME[name](With(other, np.sin)))
    close(fnx.jit(lambda: SAME[name](With(own, fnp.sin)))(), found)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("dft", (6,)),
        ("dft", (5, "sqrtn")),
        ("dft", (4, "n")),
        ("helmert", (5,)),
        ("helmert", (4, True)),
        ("hilbert", (4,)),
        ("invhilbert", (5,)),
    ],
)
def test_matrices_of_a_size(name: str, args: Any) -> None:
    with fnx.default_dtypes(64):
        found = getattr(own, name)(*args)
    assert found.dtype in (np.float64, np.complex128)
    close(found, getattr(other, name)(*args))
    assert getattr(own, name)(*args).dtype in (np.float32, np.complex64)


def test_factors_whose_signs_are_free() -> None:
    u, s, vh = map(np.asarray, own.svd(TALL, full_matrices=False))
    close(u * s @ vh, TALL)
    close(own.svd(TALL, compute_uv=False), other.svd(TALL, compute_uv=False))
    w, v = map(np.asarray, own.eigh(H, S))
    close(H @ v, S @ v * w)
    close(v.conj().T @ S @ v, np.eye(4))
    w, v = map(np.asarray, own.eigh_tridiagonal(b, b[1:]))
    matrix = np.diag(b) + np.diag(b[1:], 1) + np.diag(b[1:], -1)
    close(matrix @ v, v * w)
    for source in (A, C):
        t, z = map(np.asarray, own.schur(source, output="complex"))
        close(z @ t @ z.conj().T, source.astype(complex))
        close(np.tril(t, -1), np.zeros((4, 4)))
    t, z = map(np.asarray, own.rsf2csf(*own.schur(A)))
    close(z @ t @ z.conj().T, A.astype(complex))
    close(np.tril(t, -1), np.zeros((4, 4)))
    for shape in (TALL, WIDE):
        for side in ("right", "left"):
            found = own.polar(shape, side, method="svd")
            close(found, other.polar(shape, side))


def test_other_ways_to_the_same() -> None:
    wanted = other.solve_sylvester(A, S[:3, :3], B)
    close(own.solve_sylvester(A, S[:3, :3], B, method="eigen"), wanted)
    assert np.isnan(own.solve_sylvester(A, -A, A)).all()
    upper = np.triu(A)
    close(own.expm(upper, upper_triangular=True), other.expm(upper))
    assert np.isnan(own.expm(1e6 * A)).all()
    assert np.isnan(own.expm(8 * S, max_squarings=1)).all()
    value, error = own.funm(A, fnp.exp, disp=False)
    close(value, other.expm(A).astype(complex), 1e-6)
    assert 0 < error < 1e-8
    close(own.circulant(np.stack([b, 2 * b]))[1], 2 * other.circulant(b))
    close(own.toeplitz(np.stack([b, 2 * b]))[1], 2 * other.toeplitz(b))


def test_stacks() -> None:
    x, right = np.stack([S, 2 * S]), np.stack([B, B])
    wanted = np.linalg.solve(x, right)
    close(own.cho_solve(own.cho_factor(x), right), wanted)
    close(own.lu_solve(own.lu_factor(x), right), wanted)
    close(own.solve(x, right, assume_a="pos"), wanted)
    p, low, up = own.lu(x)
    close(p @ low @ up, x)


@pytest.mark.oracle
def test_all_names_of_jax_are_there(jax: Any) -> None:
    module = pytest.importorskip("jax.scipy.linalg")
    public = {name for name in dir(module) if not name.startswith("_")}
    assert {*own.__all__} == public


# ---------------------------------------------------------------- derivatives

GRADS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cho_solve": (lambda a, b: own.cho_solve(own.cho_factor(a), b), (S, b)),
    "lu": (own.lu, (A,)),
    "lu_solve": (lambda a, b: own.lu_solve(own.lu_factor(a), b, trans=1), (A, b)),
    "qr": (lambda a: own.qr(a, mode="economic", pivoting=True)[:2], (TALL,)),
    "qr_multiply": (own.qr_multiply, (TALL, TALL.T)),
    "eigh": (lambda a, b: own.eigh(a, b, eigvals_only=True), (A, S)),
    "eigh_tridiagonal": (
        lambda d, e: own.eigh_tridiagonal(d, e, eigvals_only=True),
        (b, b[1:]),
    ),
    "solve": (own.solve, (A, b)),
    "solve pos": (lambda a, b: own.solve(a, b, assume_a="pos"), (S, b)),
    "solve_triangular": (own.solve_triangular, (A, b)),
    "solve_sylvester": (own.solve_sylvester, (A, S[:3, :3], B)),
    "expm": (own.expm, (A,)),
    "expm stack": (own.expm, (np.stack([A, 4 * A]) / 3,)),
    "expm_frechet": (lambda a, e: own.expm_frechet(a, e)[1], (A / 2, S / 4)),
    "sqrtm": (own.sqrtm, (C,)),
    "sqrtm of a unit": (lambda x: own.sqrtm(x).real, (np.eye(3),)),
    "funm": (lambda x: own.funm(x, fnp.sin), (A,)),
    "polar": (own.polar, (A,)),
    "polar svd": (lambda x: own.polar(x, method="svd"), (A,)),
    "polar of a unit": (lambda x: own.polar(x, method="svd"), (np.eye(3),)),
    "toeplitz": (own.toeplitz, (b, WIDE[0])),
    "companion": (own.companion, (b,)),
}


@pytest.mark.parametrize("name", GRADS)
def test_derivatives(name: str) -> None:
    function, args = GRADS[name]
    first = ("polar of a unit", "polar")
    order = 1 if name in first else 2
    check_grads(function, args, order=order, atol=2e-4, rtol=2e-4)


# ---------------------------------------------------------------- mistakes

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "assume_a": (
        lambda: own.solve(A, b, assume_a="banded"),
        errors.OptionError,
        "assume_a='banded'",
    ),
    "trans": (
        lambda: own.solve_triangular(A, b, trans="X"),
        errors.OptionError,
        "trans='X'",
    ),
    "rows": (lambda: own.solve(A, b[:3]), errors.ShapeError, "b must have 4 rows"),
    "not square": (
        lambda: own.expm(WIDE),
        errors.ShapeError,
        "linalg.expm: A is .* square",
    ),
    "driver": (
        lambda: own.svd(A, lapack_driver="gesvd"),
        errors.OptionError,
        "lapack_driver",
    ),
    "lwork": (lambda: own.qr(A, lwork=100), errors.OptionError, "leave lwork out"),
    "mode": (lambda: own.qr(A, mode="raw"), errors.OptionError, "mode='raw'"),
    "type": (lambda: own.eigh(A, S, type=2), errors.OptionError, "type=2"),
    "one matrix": (
        lambda: own.sqrtm(np.stack([A, A])),
        errors.ShapeError,
        "it takes one matrix",
    ),
    "sylvester": (
        lambda: own.solve_sylvester(A, A, B),
        errors.ShapeError,
        "C has the rows of A",
    ),
    "select": (
        lambda: own.eigh_tridiagonal(b, b[1:], select="v"),
        errors.OptionError,
        "select='v'",
    ),
    "polar": (lambda: own.polar(WIDE), errors.ShapeError, "method='svd'"),
    "hadamard": (lambda: own.hadamard(3), errors.OptionError, "power of 2"),
    "leslie": (lambda: own.leslie(b, b), errors.ShapeError, "one element less"),
    "size": (lambda: own.hilbert(2.5), errors.OptionError, "n=2.5"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    call, error, match = MISTAKES[name]
    with pytest.raises(error, match=match):
        call()
