"""Routines by cuFFT and cuSOLVER: on streams, in graphs, and where a library fails.

The libraries are stand-ins whose work waits in the emulated machine's streams, so that
what reads a result too early gets it wrong.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.fft

import fnx
import fnx.numpy as fnp
from fnx.ops import linalg
from fnx_cuda import cufft, cusolver, served_stacks, stacks
from tests.cuda.compare import on_cpu, on_device
from tests.cuda.conftest import emulated
from tests.cuda.fft_fake import FakeFft
from tests.cuda.library_fakes import later_on
from tests.cuda.solver_fakes import FakeSolver
from tests.cuda.test_linear_algebra import close, definite, matrices

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize


@pytest.fixture
def machine() -> Iterator[Any]:
    """A machine for one test."""
    with emulated(1) as made:
        yield made


@pytest.fixture
def cpu(machine: Any) -> Iterator[None]:
    """The CPU is the default, so that results can be compared with its."""
    with fnx.default_device(fnx.devices("cpu")[0]):
        yield


@pytest.fixture
def fft(machine: Any, cpu: Any) -> Iterator[FakeFft]:
    made = FakeFft()
    made.later = later_on(machine)
    cufft.LIBRARY.use(made)
    yield made
    cufft.LIBRARY.use(None)


@pytest.fixture
def solver(machine: Any, cpu: Any, monkeypatch: Any) -> Iterator[FakeSolver]:
    monkeypatch.setattr(served_stacks, "LARGE", 5)
    monkeypatch.setattr(stacks, "JACOBI", 0)
    made = FakeSolver()
    made.later = later_on(machine)
    cusolver.LIBRARY.use(made)
    yield made
    cusolver.LIBRARY.use(None)


def transforms(axes: Any) -> dict[str, Any]:
    """fnx's and SciPy's functions."""
    return {
        name: (
            lambda x, name=name: getattr(fnp.fft, name)(x, axes=axes),
            lambda x, name=name: getattr(scipy.fft, name)(x, axes=axes),
        )
        for name in ("fftn", "ifftn", "rfftn", "irfftn")
    }


@named("axes", [(2,), (1,), (0,), (1, 2), (2, 1), (0, 1, 2), (0, 1), (0, 2)])
@named("dtype", ["complex64", "complex128"])
def test_transforms(fft, rng, axes: Any, dtype: str) -> None:
    x = matrices(rng, (2, 5, 6), dtype)
    for name, (function, wanted) in transforms(axes).items():
        given = x.real.copy() if name == "rfftn" else x
        before = len(fft.ran)
        close(on_device(function, given)[0], wanted(given))
        # Axes that are not the last ones, or whose real one is not, take our kernels.
        last = sorted(axes) == list(range(3 - len(axes), 3))
        real = name in ("rfftn", "irfftn")
        served = len(axes) == 1 or (last and (axes[-1] == 2 or not real))
        assert (len(fft.ran) > before) == served, name


def test_transforms_are_part_of_a_graph(fft, rng) -> None:
    x = matrices(rng, (3, 10), "complex64")
    low = fnx.jit(lambda x: fnp.fft.irfft(fnp.fft.rfft(x * 2)[:, ::-1], 10) + 1)
    device = fnx.devices("cuda")[0]
    for factor in (1, 2, 3, 4):
        given = factor * x.real
        found = np.asarray(low(fnx.device_put(given, device)))
        wanted = scipy.fft.irfft(scipy.fft.rfft(given * 2)[:, ::-1], 10) + 1
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert fft.ran == ["R2C", "C2R"] * 4
    assert {plan.stream for plan in fft.plans.values()} != {0}


def test_transformations(fft, rng) -> None:
    x = rng.standard_normal((3, 8))

    def power(x: Any) -> Any:
        return fnp.sum(fnp.abs(fnp.fft.rfft(x)) ** 2 * fnp.arange(5.0))

    function = fnx.vmap(fnx.value_and_grad(power))
    found = fnx.jit(function)(fnx.device_put(x, fnx.devices("cuda")[0]))
    for one, other in zip(found, function(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert fft.ran


@named("name", ["cufftMakePlanMany64", "cufftExecC2C"])
def test_a_transform_that_fails(fft, rng, name: str) -> None:
    x = matrices(rng, (2, 12), "complex64")
    fft.fails[name] = 5
    low = fnx.jit(fnp.fft.fft)
    given = fnx.device_put(x, fnx.devices("cuda")[0])
    with pytest.warns(
        RuntimeWarning, match=f"'fft' takes fnx's own.* {name}.*status 5"
    ):
        np.testing.assert_allclose(low(given), scipy.fft.fft(x), rtol=1e-4, atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is told once
        np.testing.assert_allclose(low(given), scipy.fft.fft(x), rtol=1e-4, atol=1e-4)
    assert not fft.ran


def test_plans_are_given_back(fft, rng) -> None:
    function = fnx.jit(lambda x: fnp.fft.fft(x) * 3)
    function(fnx.device_put(np.ones(6, "complex64"), fnx.devices("cuda")[0]))
    assert len(fft.plans) == 1
    del function
    fnx.clear_caches()
    gc.collect()
    # When the next one is made: in between, a graph may be captured.
    fnx.jit(fnp.fft.fft)(fnx.device_put(np.ones(7, "c8"), fnx.devices("cuda")[0]))
    (plan,) = fft.plans.values()
    assert plan.layout["lengths"] == (7,)


# ---------------------------------------------------------------- decompositions

DTYPES = ["float32", "complex128"]


def exact(x: Any) -> Any:
    return x.astype("complex128" if np.iscomplexobj(x) else "float64")


@named("dtype", DTYPES)
def test_cholesky(solver, rng, dtype: str) -> None:
    x = definite(rng, (2, 9, 9), dtype)
    x[1, 3, 3] = -1
    (found,) = on_device(linalg.cholesky, x)
    wanted = on_cpu(linalg.cholesky, x)[0]
    close(found[0], wanted[0], 9)
    np.testing.assert_array_equal(np.isnan(found[1]), np.tril(np.ones((9, 9))) == 1)
    assert len(solver.ran) == 2


@named("dtype", DTYPES)
@named("lower", [False, True])
@named("n", [1, 7])
def test_eigh(solver, rng, n: int, lower: bool, dtype: str) -> None:
    x = matrices(rng, (2, 2, n, n), dtype)
    half = np.tril(exact(x), -1) if lower else np.triu(exact(x), 1)
    diagonal = np.einsum("...ii->...i", exact(x)).real
    full = half + half.conj().swapaxes(-1, -2) + diagonal[..., None] * np.eye(n)

    def function(x: Any) -> Any:
        return linalg.eigh(x, lower=lower, compute_vectors=True)

    values, vectors = on_device(function, x)
    close(values, np.linalg.eigvalsh(full), n)
    product = exact(vectors) * exact(values)[..., None, :]
    close((full @ exact(vectors)).astype(dtype), product, n)
    (alone,) = on_device(
        lambda x: linalg.eigh(x, lower=lower, compute_vectors=False), x
    )
    close(alone, values, n)
    assert len(solver.ran) == 8


@named("dtype", DTYPES)
@named("shape", [(1, 1), (4, 4), (7, 3), (3, 7), (1, 5), (5, 1)])
@named("full", [False, True])
def test_svd(solver, rng, shape: Any, full: bool, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)

    def function(x: Any) -> Any:
        return linalg.svd(x, full_matrices=full, compute_uv=True)

    s, u, vt = on_device(function, x)
    for one, other in zip((s, u, vt), on_cpu(function, x), strict=True):
        assert one.shape == other.shape
    k = min(shape)
    close(s, np.linalg.svd(exact(x), compute_uv=False), k)
    product = (exact(u)[..., :k] * s[:, None]) @ exact(vt)[:, :k]
    close(product.astype(dtype), x, 10)
    for square in (u, vt.conj().swapaxes(-1, -2)):
        gram = square.conj().swapaxes(-1, -2) @ square
        close(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), 10)
    (alone,) = on_device(
        lambda x: linalg.svd(x, full_matrices=full, compute_uv=False), x
    )
    close(alone, s, k)


@named("dtype", DTYPES)
@named("shape", [(9, 9), (9, 6), (6, 9)])
def test_lu(solver, rng, shape: Any, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)
    found, wanted = on_device(linalg.lu, x), on_cpu(linalg.lu, x)
    close(found[0], wanted[0], 30)
    np.testing.assert_array_equal(found[1], wanted[1])
    np.testing.assert_array_equal(found[2], wanted[2])
    assert len(solver.ran) == 2


@named("dtype", DTYPES)
@named("shape", [(9, 9), (9, 6), (6, 9)])
def test_qr(solver, rng, shape: Any, dtype: str) -> None:
    x = matrices(rng, (2, *shape), dtype)
    for found, wanted in zip(
        on_device(linalg.geqrf, x), on_cpu(linalg.geqrf, x), strict=True
    ):
        close(found, wanted, 30)
    ran = [name[1:] for name in solver.ran]
    assert ran == ["geqrf"] * 2
    for full in (False, True):

        def factors(x: Any, full: bool = full) -> Any:
            return linalg.qr(x, pivoting=False, full_matrices=full)

        q, r = on_device(factors, x)
        for one, other in zip((q, r), on_cpu(factors, x), strict=True):
            assert one.shape == other.shape
        close((exact(q) @ exact(r)).astype(dtype), x, 30)
        close(r, on_cpu(factors, x)[1], 30)
        unit = np.broadcast_to(np.eye(q.shape[-1]), (2, *q.shape[-1:] * 2))
        close((q.conj().swapaxes(-1, -2) @ q).astype(dtype), unit, 30)
    assert len(solver.ran) == 10


def test_what_does_not_converge_is_nan(solver, rng) -> None:
    solver.stalls = True
    x = rng.standard_normal((2, 4, 4))
    for function in (
        lambda x: linalg.eigh(x, lower=True, compute_vectors=True),
        lambda x: linalg.svd(x, full_matrices=True, compute_uv=True),
    ):
        for out in on_device(function, x):
            assert np.isnan(out).all()


def test_decompositions_cut_the_graph(solver, rng) -> None:
    x = definite(rng, (8, 8), "float64")
    x = np.tril(x) + np.tril(x, -1).T

    def function(x: Any) -> Any:
        values, vectors = fnp.linalg.eigh(x * 2 + 1)
        return fnp.sum((vectors * values) @ vectors.T), fnp.linalg.cholesky(x) + 1

    low, device = fnx.jit(function), fnx.devices("cuda")[0]
    for factor in (1.0, 2.0, 3.0, 4.0):
        given = factor * x
        total, root = low(fnx.device_put(given, device))
        np.testing.assert_allclose(total, np.sum(given * 2 + 1), rtol=1e-9)
        np.testing.assert_allclose(root, np.linalg.cholesky(given) + 1, rtol=1e-9)
    assert solver.ran.count("Dsyevd") == solver.ran.count("Dpotrf") == 4


@named("name", ["eigh", "svd", "cholesky"])
def test_gradients(solver, rng, name: str) -> None:
    x = definite(rng, (3, 6, 6), "float64")
    x = np.tril(x) + np.tril(x, -1).swapaxes(-1, -2)
    functions = {
        "eigh": lambda x: fnp.linalg.eigvalsh(x),
        "svd": lambda x: fnp.linalg.svd(x[:, :4], compute_uv=False),
        "cholesky": fnp.linalg.cholesky,
    }

    def total(x: Any) -> Any:
        return fnp.sum(fnp.sin(functions[name](x)))

    function = fnx.vmap(fnx.value_and_grad(total))
    for one, other in zip(on_device(function, x), on_cpu(function, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    assert solver.ran


@named("name", ["cusolverDnCreate", "cusolverDnDsyevd", "cusolverDnDpotrf"])
def test_a_decomposition_that_fails(solver, rng, name: str) -> None:
    x = definite(rng, (6, 6), "float64")
    x = np.tril(x) + np.tril(x, -1).T
    solver.fails[name] = 3
    vectors = name == "cusolverDnDsyevd"
    function = fnp.linalg.eigvalsh if vectors else fnp.linalg.cholesky
    wanted = (np.linalg.eigvalsh if vectors else np.linalg.cholesky)(x)
    low = fnx.jit(function)
    given = fnx.device_put(x, fnx.devices("cuda")[0])
    instead = "the host" if vectors else "fnx's own kernels"
    with pytest.warns(RuntimeWarning, match=f"takes {instead}.*status 3"):
        np.testing.assert_allclose(low(given), wanted, rtol=1e-9)
    np.testing.assert_allclose(low(given), wanted, rtol=1e-9)


@named("library, names", [
    (cufft.LIBRARY, ["cufftCreate", "cufftMakePlanMany64", "cufftExecZ2D"]),
    (cusolver.LIBRARY, ["cusolverDnCreate", "cusolverDnZheevd", "cusolverDnSgesvd"]),
    (cusolver.LIBRARY, ["cusolverDnCheevjBatched", "cusolverDnSgesvdjBatched"]),
    (cusolver.LIBRARY, ["cusolverDnZpotrfBatched", "cusolverGetProperty"]),
    (stacks.BLAS, ["cublasSgetrfBatched", "cublasZgetrsBatched", "cublasGetProperty"]),
    (stacks.BLAS, ["cublasCreate_v2", "cublasSetStream_v2", "cublasCgeqrfBatched"]),
])  # fmt: skip
def test_the_libraries_have_these_names(library: Any, names: list[str]) -> None:
    """Where one is installed; no device is needed."""
    from fnx_cuda import libraries

    found = libraries.load(library.name)
    if found is None:
        pytest.skip(f"{library.name} is not installed")
    for name in names:
        assert getattr(found, name)


def test_no_library_serves_an_emulated_device(machine) -> None:
    assert not cufft.LIBRARY.serves() and not cusolver.LIBRARY.serves()
