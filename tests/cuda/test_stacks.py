"""Many matrices by one call of cuBLAS or cuSOLVER: values, choices, and failures.

The libraries are stand-ins whose work waits in the emulated machine's streams, and that
refuse what the libraries would: arrays that are not on the device, other sizes than
those that they were asked memory for, matrices that are too large.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.ops import linalg
from fnx_cuda import _cupy, choosing, cusolver, device, stacks
from fnx_cuda.called import Library
from tests import cuda_emulator as emulator
from tests.cuda.compare import on_cpu, on_device
from tests.cuda.conftest import emulated
from tests.cuda.library_fakes import later_on
from tests.cuda.solver_fakes import FakeBlas, FakeSolver
from tests.cuda.test_linear_algebra import (
    DTYPES,
    adjoint,
    close,
    definite,
    exact,
    matrices,
)

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize


@pytest.fixture
def machine() -> Iterator[Any]:
    """A machine for one test; the CPU is the default, to compare with."""
    with emulated(1) as made, fnx.default_device(fnx.devices("cpu")[0]):
        yield made


@pytest.fixture
def solver(machine: Any) -> Iterator[FakeSolver]:
    with standing_in(cusolver.LIBRARY, FakeSolver(), machine) as made:
        yield made


@pytest.fixture
def blas(machine: Any) -> Iterator[FakeBlas]:
    with standing_in(stacks.BLAS, FakeBlas(), machine) as made:
        yield made


class standing_in:
    """A stand-in in the place of a library, with work in a machine's streams."""

    def __init__(self, library: Library, made: Any, machine: Any) -> None:
        self.library, self.made = library, made
        made.later = later_on(machine)
        made.is_on_device = machine.memories[0].contains

    def __enter__(self) -> Any:
        self.library.use(self.made)
        choosing.forget()
        return self.made

    def __exit__(self, *error: Any) -> None:
        self.library.use(None)
        choosing.forget()


@pytest.fixture
def quicker(monkeypatch: Any) -> list[bool]:
    """Whether the library is the quicker one, instead of times: it is."""
    found = [True]

    def fastest(starts: Any, clock: Any) -> int:
        for start in starts:
            start()
        return 0 if found[0] else 1

    monkeypatch.setattr(choosing, "fastest", fastest)
    return found


# ---------------------------------------------------------------- eigenvalues


def fix(x: Any, lower: bool) -> Any:
    """The Hermitian matrix of one triangle."""
    half = np.tril(exact(x), -1) if lower else np.triu(exact(x), 1)
    diagonal = np.einsum("...ii->...i", exact(x)).real
    return half + adjoint(half) + diagonal[..., None] * np.eye(x.shape[-1])


@named("dtype", DTYPES)
@named("lower", [False, True])
@named("old", [False, True], ids=["syev", "syevj"])
def test_eigh(solver, rng, old: bool, lower: bool, dtype: str) -> None:
    if old:
        solver.missing.add("cusolverDnXsyevBatched")
    for shape in [(2, 7, 7), (5, 4, 1, 1), (17, 33, 33)]:
        x = matrices(rng, shape, dtype)

        def function(x: Any) -> Any:
            return linalg.eigh(x, lower=lower, compute_vectors=True)

        values, vectors = on_device(function, x)
        full = fix(x, lower)
        close(values, np.linalg.eigvalsh(full), shape[-1])
        product = exact(vectors) * exact(values)[..., None, :]
        close((full @ exact(vectors)).astype(dtype), product, shape[-1])
        (alone,) = on_device(
            lambda x: linalg.eigh(x, lower=lower, compute_vectors=False), x
        )
        close(alone, values, shape[-1])
    kind = "heevj" if "complex" in dtype else "syevj"
    name = f"{'SDCZ'[DTYPES.index(dtype)]}{kind}Batched" if old else "XsyevBatched"
    assert solver.ran == [name] * 6


@named("dtype", DTYPES)
@named("shape", [(3, 1, 1), (20, 4, 4), (2, 7, 3), (2, 3, 32), (2, 3, 1, 5)])
@named("full", [False, True])
def test_svd(solver, rng, shape: Any, full: bool, dtype: str) -> None:
    x = matrices(rng, shape, dtype)

    def function(x: Any) -> Any:
        return linalg.svd(x, full_matrices=full, compute_uv=True)

    s, u, vt = on_device(function, x)
    for one, other in zip((s, u, vt), on_cpu(function, x), strict=True):
        assert one.shape == other.shape
    k = min(shape[-2:])
    close(s, np.linalg.svd(exact(x), compute_uv=False), k)
    product = (exact(u)[..., :k] * s[..., None, :]) @ exact(vt)[..., :k, :]
    close(product.astype(dtype), x, 10)
    for square in (u, adjoint(vt)):
        gram = adjoint(square) @ square
        close(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), 10)
    (alone,) = on_device(
        lambda x: linalg.svd(x, full_matrices=full, compute_uv=False), x
    )
    close(alone, s, k)
    assert len(solver.ran) == 2


def test_larger_matrices_are_not_jacobis(solver, rng) -> None:
    x = matrices(rng, (17, 33, 2), "float32")
    values = on_device(
        lambda x: linalg.svd(x, full_matrices=False, compute_uv=False), x
    )
    close(values[0], np.linalg.svd(exact(x), compute_uv=False))
    assert not solver.ran


def test_what_does_not_converge_is_nan(solver, rng) -> None:
    solver.stalls = True
    x = rng.standard_normal((20, 4, 4))
    for function in (
        lambda x: linalg.eigh(x, lower=True, compute_vectors=True),
        lambda x: linalg.svd(x, full_matrices=True, compute_uv=True),
        lambda x: linalg.eig(x[:2], left=False, right=True),
    ):
        for out in on_device(function, x):
            assert np.isnan(out).all()


@named("dtype", DTYPES)
@named("n", [1, 2, 9])
def test_eig(solver, rng, n: int, dtype: str) -> None:
    """One by one; left vectors are the host's."""
    x = matrices(rng, (3, n, n), dtype)
    if n > 1 and "complex" not in dtype:
        # A pair at the first place, one at the last one, and real values.
        x[0, :2, :2] = [[1, 2], [-2, 1]]
        x[0, :2, 2:] = x[1, :-2, -2:] = 0
        x[1, -2:, -2:] = [[1, 2], [-2, 1]]
        x[2] = np.triu(x[2]) + np.triu(x[2], 1).T

    def function(x: Any) -> Any:
        return linalg.eig(x, left=False, right=True)

    values, vectors = on_device(function, x)
    product = exact(vectors) * exact(values)[..., None, :]
    close((exact(x) @ exact(vectors)).astype(values.dtype), product, 30 * n)
    wanted = on_cpu(function, x)
    order = np.argsort(values, -1), np.argsort(wanted[0], -1)
    close(
        np.take_along_axis(values, order[0], -1),
        np.take_along_axis(wanted[0], order[1], -1),
        30 * n,
    )
    (alone,) = on_device(lambda x: linalg.eig(x, left=False, right=False), x)
    close(alone, values, 30 * n)
    assert solver.ran == ["Xgeev"] * 6
    on_device(lambda x: linalg.eig(x, left=True, right=False), x)
    assert len(solver.ran) == 6


def test_an_older_library_leaves_eig_to_the_host(solver, rng) -> None:
    solver.missing.add("cusolverDnXgeev")
    x = matrices(rng, (5, 5), "float64")
    values = fnx.jit(fnp.linalg.eigvals)(fnx.device_put(x, fnx.devices("cuda")[0]))
    close(np.sort(np.asarray(values)), np.sort(np.linalg.eigvals(x)))
    assert not solver.ran


# ---------------------------------------------------------------- factors


@named("dtype", DTYPES)
@named("own", [False, True], ids=["library", "own"])
def test_factors(blas, solver, rng, quicker, own: bool, dtype: str) -> None:
    """Either way they are the CPU's; both have run when times were taken."""
    quicker[0] = not own
    x, b = matrices(rng, (2, 3, 9, 9), dtype), matrices(rng, (2, 3, 9, 5), dtype)
    functions = {
        "lu": (linalg.lu, (x,)),
        "geqrf": (linalg.geqrf, (x[..., :6],)),
        "wide": (linalg.geqrf, (x[..., :6, :],)),
        "qr": (
            lambda x: linalg.qr(x, pivoting=False, full_matrices=True),
            (x[..., :6],),
        ),
        "thin": (
            lambda x: linalg.qr(x, pivoting=False, full_matrices=False),
            (x[..., :6],),
        ),
        "solve": (lambda a, b: linalg.solve(a, b), (x, b)),
        "transposed": (lambda a, b: linalg.solve(a, b, transpose_a=True), (x, b)),
        "cholesky": (linalg.cholesky, (definite(rng, (6, 9, 9), dtype),)),
    }
    for function, args in functions.values():
        for one, other in zip(
            on_device(function, *args), on_cpu(function, *args), strict=True
        ):
            if one.dtype == np.int32:
                np.testing.assert_array_equal(one, other)
            else:
                close(one, other, 300)
    times = 1 if own else 2
    assert [name[1:] for name in solver.ran] == ["potrfBatched"] * times
    ran = [name[1:-7] for name in blas.ran]
    assert ran.count("getrf") == 3 * times and ran.count("getrs") == 2 * times
    assert ran.count("geqrf") == 4 * times


def test_what_has_no_factor_or_solution_is_nan(blas, solver, rng, quicker) -> None:
    x = definite(rng, (3, 6, 6), "float64")
    x[1, 3, 3] = -1
    (found,) = on_device(linalg.cholesky, x)
    close(found[::2], np.linalg.cholesky(x[::2]), 9)
    np.testing.assert_array_equal(np.isnan(found[1]), np.tril(np.ones((6, 6))) == 1)
    x[1, :, 2] = 0
    (found,) = on_device(lambda a: linalg.solve(a, a), x)
    assert np.isnan(found[1]).all() and np.isfinite(found[::2]).all()


def test_a_choice_is_made_once_and_kept(blas, rng, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path))
    asked = []

    def fastest(starts: Any, clock: Any) -> int:
        asked.append([clock(start) >= 0 for start in starts])
        return 0

    monkeypatch.setattr(choosing, "fastest", fastest)
    x = matrices(rng, (3, 6, 6), "float32")
    with fnx.config.override(disk_cache=True):
        for _ in range(2):
            for _ in range(2):
                on_device(linalg.lu, x)
            choosing.forget()
        on_device(linalg.lu, x[:2])
    assert asked == [[True, True]] * 2


def test_one_matrix_or_few_large_ones_are_no_stack(blas, rng, quicker) -> None:
    for shape in [(1, 6, 6), (6, 6), (2, 256, 256)]:
        on_device(linalg.lu, matrices(rng, shape, "float32"))
    on_device(linalg.lu, matrices(rng, (2, 6, 5), "float32"))  # not square
    assert not blas.ran


@named("factor", [1.0, 2.0])
def test_stacks_are_part_of_a_graph(blas, rng, quicker, factor: float) -> None:
    a, b = definite(rng, (4, 6, 6), "float64"), matrices(rng, (4, 6, 2), "float64")
    low = fnx.jit(lambda a, b: fnp.linalg.solve(a * 2, b) + 1)
    device_ = fnx.devices("cuda")[0]
    for turn in range(1, 5):
        found = np.asarray(low(*fnx.device_put((a, turn * factor * b), device_)))
        wanted = np.linalg.solve(a * 2, turn * factor * b) + 1
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    # The times, and the first run; then one that is captured, and what is replayed.
    assert [name[1:6] for name in blas.ran] == ["getrf", "getrs"] * 5


@named("name", ["eigh", "svd", "solve"])
def test_transformations(blas, solver, rng, quicker, name: str) -> None:
    x = definite(rng, (20, 6, 6), "float64")
    x = np.tril(x) + adjoint(np.tril(x, -1))
    functions = {
        "eigh": fnp.linalg.eigvalsh,
        "svd": lambda x: fnp.linalg.svd(x, compute_uv=False),
        "solve": lambda x: fnp.linalg.solve(x, x[..., :2] ** 2),
    }

    def total(x: Any) -> Any:
        return fnp.sum(fnp.sin(functions[name](x)))

    function = fnx.vmap(fnx.value_and_grad(total))
    for one, other in zip(on_device(function, x), on_cpu(function, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    assert blas.ran or solver.ran


# ---------------------------------------------------------------- failures

FUNCTIONS = {
    "cusolverDnXsyevBatched": fnp.linalg.eigvalsh,
    "cusolverDnXsyevBatched_bufferSize": fnp.linalg.eigvalsh,
    "cusolverDnCreateParams": fnp.linalg.eigvalsh,
    "cusolverDnDgesvdjBatched": lambda x: fnp.linalg.svd(x, compute_uv=False),
    "cusolverDnDgesvdjBatched_bufferSize": lambda x: fnp.linalg.svd(
        x, compute_uv=False
    ),
    "cusolverDnCreateGesvdjInfo": lambda x: fnp.linalg.svd(x, compute_uv=False),
    "cusolverDnDpotrfBatched": fnp.linalg.cholesky,
    "cublasCreate_v2": lambda x: linalg.lu(x)[0],
    "cublasSetStream_v2": lambda x: linalg.lu(x)[0],
    "cublasDgetrfBatched": lambda x: linalg.lu(x)[0],
    "cublasDgetrsBatched": lambda x: linalg.solve(x, x * 2),
    "cublasDgeqrfBatched": lambda x: linalg.geqrf(x)[0],
    "cublasGetProperty": lambda x: linalg.lu(x)[0],
    "cusolverDnXgeev": lambda x: fnp.linalg.eigvals(x[:2]).real,
    "cusolverDnXgeev_bufferSize": lambda x: fnp.linalg.eigvals(x[:2]).real,
}


@named("name", FUNCTIONS)
def test_a_call_that_fails_is_told_once(blas, solver, rng, quicker, name: str) -> None:
    """Our kernels or the host do it, now and at the next call."""
    for library in (blas, solver):
        library.fails[name] = 7
    x = definite(rng, (20, 5, 5), "float64")
    x = np.tril(x) + adjoint(np.tril(x, -1))
    function = fnx.jit(FUNCTIONS[name])
    given = fnx.device_put(x, fnx.devices("cuda")[0])
    (wanted,) = on_cpu(FUNCTIONS[name], x)
    with pytest.warns(RuntimeWarning, match=f"takes .*{name} gave status 7") as told:
        np.testing.assert_allclose(function(given), wanted, rtol=1e-9, atol=1e-9)
    for _ in range(3):
        np.testing.assert_allclose(function(given), wanted, rtol=1e-9, atol=1e-9)
    assert len(told) == 1


@named(
    "name", ["cusolverDnXsyevBatched", "cusolverDnDgesvdjBatched", "cusolverDnXgeev"]
)
@named("always", [True, False])
def test_a_shortage_of_workspace(solver, rng, quicker, name: str, always: bool) -> None:
    """The n-th allocation fails: an error or none, no leak, and the next call works."""
    x = definite(rng, (20, 5, 5), "float64")
    (wanted,) = on_cpu(FUNCTIONS[name], x)
    refused = 0
    for after in range(6):
        given = fnx.device_put(x, fnx.devices("cuda")[0])
        function = fnx.jit(FUNCTIONS[name])
        emulator.inject.out_of_memory(after=after, always=always)
        try:
            np.testing.assert_allclose(function(given), wanted, rtol=1e-9, atol=1e-9)
        except errors.DeviceMemoryError as error:
            assert "no memory for" in str(error)
            refused += 1
        emulator.inject.clear()
        np.testing.assert_allclose(function(given), wanted, rtol=1e-9, atol=1e-9)
        del function, given
        fnx.clear_caches()
        gc.collect()
        on = device.device(0)
        with on:
            on.settle()
            on.memory.release()
            assert on.memory.stats()["bytes_in_use"] == 0
    assert refused >= (2 if always else 0)
    _cupy.wait_for_device(0)


def test_without_libraries_it_is_the_host_or_our_kernels(machine, rng) -> None:
    assert not stacks.BLAS.serves()
    x = definite(rng, (20, 5, 5), "float64")
    for name in ("cusolverDnXsyevBatched", "cublasDgetrfBatched"):
        (found,), (wanted,) = (
            on_device(FUNCTIONS[name], x),
            on_cpu(FUNCTIONS[name], x),
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
