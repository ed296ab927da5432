"""fnx.numpy.linalg against NumPy and JAX: values, dtypes, derivatives, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.testing import check_grads

RNG = np.random.default_rng(5)
DTYPES = ("float32", "float64", "complex64", "complex128")


def normal(*shape: int, dtype: str = "float64") -> Any:
    x = RNG.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(dtype)


def regular(*shape: int, dtype: str = "float64") -> Any:
    return normal(*shape, dtype=dtype) + (3 * np.eye(shape[-1])).astype(dtype)


def positive(*shape: int, dtype: str = "float64") -> Any:
    x = normal(*shape, dtype=dtype)
    return x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1], dtype=dtype)


def leaves(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


def close(found: Any, wanted: Any, dtype: str = "float64") -> None:
    tolerance = 2e-3 if dtype in ("float32", "complex64") else 1e-9
    for x, y in zip(leaves(found), leaves(wanted), strict=True):
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(x, y, tolerance, tolerance)


# ---------------------------------------------------------------- values

SQUARE = [(1, 1), (3, 3), (10, 10), (2, 3, 4, 4), (0, 3, 3), (2, 0, 0)]
# Functions of square matrices whose values are NumPy's.
SAME: dict[str, Callable[[Any], Any]] = {
    "det": lambda m: m.linalg.det,
    "slogdet": lambda m: lambda x: tuple(m.linalg.slogdet(x)),
    "inv": lambda m: m.linalg.inv,
    "matrix_power": lambda m: lambda x: m.linalg.matrix_power(x, 5),
    "matrix_power negative": lambda m: lambda x: m.linalg.matrix_power(x, -3),
    "matrix_power 0": lambda m: lambda x: m.linalg.matrix_power(x, 0),
    "pinv": lambda m: m.linalg.pinv,
    "svdvals": lambda m: m.linalg.svdvals,
    "trace": lambda m: m.linalg.trace,
    "trace beside": lambda m: lambda x: m.linalg.trace(x, offset=1),
    "diagonal": lambda m: m.linalg.diagonal,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SAME)
def test_values_are_those_of_numpy(name: str, dtype: str) -> None:
    for shape in SQUARE:
        x = regular(*shape, dtype=dtype)
        found = SAME[name](fnp)(x)
        close(found, SAME[name](np)(x), dtype)
        close(fnx.jit(SAME[name](fnp))(x), found, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_cholesky(shape: Any, dtype: str) -> None:
    x = positive(*shape, dtype=dtype)
    wanted = np.linalg.cholesky(x)
    close(fnp.linalg.cholesky(x), wanted, dtype)
    close(fnx.jit(fnp.linalg.cholesky)(x), wanted, dtype)
    upper = fnp.linalg.cholesky(x, upper=True)
    close(upper, wanted.conj().swapaxes(-1, -2), dtype)
    spoiled = x + np.triu(np.ones(shape[-2:], dtype), 1)
    close(fnp.linalg.cholesky(spoiled, symmetrize_input=False), wanted, dtype)
    mean = (spoiled + spoiled.conj().swapaxes(-1, -2)) / 2
    if shape[-1] == 3:
        close(fnp.linalg.cholesky(spoiled), np.linalg.cholesky(mean), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_eigh(shape: Any, dtype: str) -> None:
    x = normal(*shape, dtype=dtype)
    whole = x + x.conj().swapaxes(-1, -2)
    for function in (fnp.linalg.eigh, fnx.jit(fnp.linalg.eigh)):
        w, v = function(whole)
        assert w.dtype == np.empty(0, dtype).real.dtype
        close(w, np.linalg.eigvalsh(whole), dtype)
        v = np.asarray(v)
        close(whole @ v, v * np.asarray(w)[..., None, :], dtype)
        unit = np.broadcast_to(np.eye(shape[-1]), shape)
        close(v.conj().swapaxes(-1, -2) @ v, unit, dtype)
    for triangle in ("L", "U"):
        wanted = np.linalg.eigvalsh(x, UPLO=triangle)
        options = {"UPLO": triangle, "symmetrize_input": False}
        close(fnp.linalg.eigh(x, **options).eigenvalues, wanted, dtype)
        close(fnp.linalg.eigvalsh(x, **options), wanted, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_eig(shape: Any, dtype: str) -> None:
    x = normal(*shape, dtype=dtype)
    for function in (fnp.linalg.eig, fnx.jit(fnp.linalg.eig)):
        w, v = map(np.asarray, function(x))
        assert w.dtype == v.dtype == np.result_type(dtype, "complex64")
        close(x @ v, v * w[..., None, :], dtype)
    values = np.asarray(fnp.linalg.eigvals(x))
    close(np.sort(values, -1), np.sort(np.linalg.eigvals(x), -1), dtype)


RECTANGLES = [(3, 5), (5, 3), (12, 4), (2, 3, 3), (0, 3), (3, 0), (0, 2, 3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", RECTANGLES)
def test_qr_and_svd(shape: Any, dtype: str) -> None:
    x = normal(*shape, dtype=dtype)
    for mode in ("reduced", "complete"):
        found = fnp.linalg.qr(x, mode)
        close(found, np.linalg.qr(x, mode), dtype)
        close(fnx.jit(lambda x, mode=mode: fnp.linalg.qr(x, mode))(x), found, dtype)
    close(fnp.linalg.qr(x, "r"), np.linalg.qr(x, "r"), dtype)
    close(fnp.linalg.qr(x, "raw"), np.linalg.qr(x, "raw"), dtype)
    for full in (False, True):
        found = fnp.linalg.svd(x, full)
        wanted = np.linalg.svd(x, full)
        assert [y.shape for y in found] == [y.shape for y in wanted]
        u, s, vh = map(np.asarray, found)
        k = s.shape[-1]
        close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x, dtype)
        unit = np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], *u.shape[-1:] * 2))
        close(u.conj().swapaxes(-1, -2) @ u, unit, dtype)
        close(s, wanted[1], dtype)
        close(fnx.jit(lambda x, full=full: fnp.linalg.svd(x, full))(x)[1], s, dtype)
    close(fnp.linalg.svd(x, compute_uv=False), wanted[1], dtype)


def test_svd_options() -> None:
    x = normal(2, 4, 4)
    x = x + x.swapaxes(-1, -2)
    u, s, vh = map(np.asarray, fnp.linalg.svd(x, hermitian=True))
    close(u * s[..., None, :] @ vh, x)
    close(s, np.linalg.svd(x)[1])
    close(fnp.linalg.svd(x, hermitian=True, compute_uv=False), s)
    part = fnp.linalg.svd(x, False, subset_by_index=(1, 3))
    assert [y.shape for y in part] == [(2, 4, 2), (2, 2), (2, 2, 4)]
    close(part.S, s[:, 1:3])
    with pytest.raises(errors.OptionError, match="full_matrices=False"):
        fnp.linalg.svd(x, subset_by_index=(0, 1))
    with pytest.raises(errors.OptionError, match="from 0 to 4"):
        fnp.linalg.svd(x, False, subset_by_index=(3, 5))


SYSTEMS = [
    ((3, 3), (3,)),
    ((3, 3), (3, 2)),
    ((9, 9), (9,)),
    ((9, 9), (9, 4)),
    ((5, 2, 2), (2, 1)),
    ((2, 2), (5, 2, 3)),
    ((4, 1, 10, 10), (3, 10, 2)),
    ((0, 3, 3), (3, 2)),
    ((0, 0), (0, 2)),
    ((3, 3), (3, 0)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("a", "b"), SYSTEMS)
def test_solve(a: Any, b: Any, dtype: str) -> None:
    matrix, right = regular(*a, dtype=dtype), normal(*b, dtype=dtype)
    wanted = np.linalg.solve(matrix, right)
    close(fnp.linalg.solve(matrix, right), wanted, dtype)
    close(fnx.jit(fnp.linalg.solve)(matrix, right), wanted, dtype)


@pytest.mark.parametrize("n", [2, 3, 8, 12])
def test_rows_are_exchanged(n: int) -> None:
    # No pivot is where it would be without exchanges, and all differ in size.
    order = np.roll(np.eye(n), 1, 0) * 10.0 ** np.arange(n)
    stack = np.stack([order, order[::-1], np.eye(n)])
    right = normal(3, n, 1)
    wanted = np.linalg.solve(stack, right)
    close(fnx.jit(fnp.linalg.solve)(stack, right), wanted)
    close(fnp.linalg.solve(stack, right), wanted)


@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("run", [lambda f: f, fnx.jit])
def test_what_has_no_result_is_nan_alone(n: int, run: Any) -> None:
    a, b = regular(3, n, n), normal(3, n, 2)
    a[1, :, 1] = 0
    for found, wanted in (
        (run(fnp.linalg.solve)(a, b), np.linalg.solve(a[::2], b[::2])),
        (run(fnp.linalg.inv)(a), np.linalg.inv(a[::2])),
    ):
        close(found[::2], wanted)
        assert np.isnan(found[1]).all()
    x = positive(3, n, n)
    x[1, 0, 0] = -1
    found = np.asarray(run(fnp.linalg.cholesky)(x))
    close(found[::2], np.linalg.cholesky(x[::2]))
    np.testing.assert_array_equal(np.isnan(found[1]), np.tri(n, dtype=bool))
    x[1, 0, 0] = np.nan
    for values in (fnp.linalg.eigvalsh, fnp.linalg.svdvals, fnp.linalg.eigvals):
        found = np.asarray(run(values)(x))
        assert np.isnan(found[1]).all() and np.isfinite(found[::2]).all()


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_least_squares(shape: Any) -> None:
    a = normal(*shape)
    for b in (normal(shape[0]), normal(shape[0], 2)):
        found = fnp.linalg.lstsq(a, b, numpy_resid=True)
        wanted = np.linalg.lstsq(a, b, None)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, np.reshape(y, x.shape), 1e-9, 1e-9)
        close(fnx.jit(lambda a, b: fnp.linalg.lstsq(a, b)[0])(a, b), found[0])
    low = np.outer(a[:, 0], a[0])
    x, _, rank, _ = fnp.linalg.lstsq(low, b)
    assert rank == 1
    close(x, np.linalg.lstsq(low, b, None)[0])


def test_rank_and_condition() -> None:
    low = np.stack([np.ones((4, 3)), normal(4, 3), np.zeros((4, 3))])
    np.testing.assert_array_equal(fnp.linalg.matrix_rank(low), [1, 3, 0])
    assert fnp.linalg.matrix_rank(np.zeros(3)) == 0
    assert fnp.linalg.matrix_rank(np.diag([1.0, 0.1, 0.01]), rtol=0.05) == 2
    assert fnp.linalg.matrix_rank(np.diag([1.0, 0.1, 0.01]), tol=0.5) == 1
    assert fnp.linalg.matrix_rank(np.diag([1.0, -2.0]), hermitian=True) == 2
    assert fnp.linalg.matrix_rank(np.zeros((2, 0))) == 0
    x = regular(2, 3, 3)
    for p in (None, 2, -2, "fro", "nuc", 1, -1, np.inf, -np.inf):
        close(fnp.linalg.cond(x, p), np.linalg.cond(x, p))
    assert fnp.linalg.cond(np.zeros((2, 2))) == np.inf
    assert np.isnan(fnp.linalg.cond(np.full((2, 2), np.nan)))


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_of_matrices(order: Any) -> None:
    x = normal(2, 4, 3)
    for axis in ((1, 2), (2, 1), (0, 2), (-1, 0)):
        for keep in (False, True):
            found = fnp.linalg.norm(x, order, axis, keep)
            close(found, np.linalg.norm(x, order, axis, keep))
    close(fnp.linalg.matrix_norm(x, ord=order), np.linalg.matrix_norm(x, ord=order))
    close(
        fnp.linalg.norm(x + 1j * x[::-1], order, (1, 2)),
        np.linalg.norm(x + 1j * x[::-1], order, (1, 2)),
    )


def test_products_and_tensors() -> None:
    x, y = normal(2, 3), normal(2, 3)
    close(fnp.linalg.outer(x[0], y[1]), np.outer(x[0], y[1]))
    close(fnp.linalg.cross(x, y), np.linalg.cross(x, y))
    close(fnp.linalg.cross(x.T, y.T, axis=0), np.linalg.cross(x.T, y.T, axis=0))
    chain = normal(10, 3), normal(3, 20), normal(20, 4), normal(4, 6)
    close(fnp.linalg.multi_dot(chain), np.linalg.multi_dot(chain))
    ends = normal(10), *chain, normal(6)
    close(fnp.linalg.multi_dot(ends), np.linalg.multi_dot(ends))
    a = normal(4, 6, 8, 3)
    close(fnp.linalg.tensorinv(a), np.linalg.tensorinv(a))
    close(fnp.linalg.tensorinv(a.reshape(24, 8, 3), 1).shape, (8, 3, 24))
    a, b = normal(2, 3, 6), normal(2, 3)
    close(fnp.linalg.tensorsolve(a, b), np.linalg.tensorsolve(a, b))
    a = normal(2, 6, 3)
    close(
        fnp.linalg.tensorsolve(a, b, axes=(1,)),
        np.linalg.tensorsolve(a, b, axes=(1,)),
    )


# ---------------------------------------------------------------- dtypes

# Functions of one square matrix.
ONE = ("cholesky", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "pinv")
ONE += ("matrix_rank", "qr", "slogdet", "svd", "svdvals")


@pytest.mark.oracle
@pytest.mark.parametrize("name", ONE)
def test_dtypes_are_those_of_jax(name: str, jax: Any) -> None:
    for dtype in (*DTYPES, "int32", "int64", "bool", "uint8"):
        x = np.eye(3).astype(dtype)
        found = getattr(fnp.linalg, name)(x)
        wanted = getattr(jax.numpy.linalg, name)(x)
        if name != "matrix_rank":  # an integer of the default size
            kinds = [[y.dtype for y in leaves(x)] for x in (found, wanted)]
            assert kinds[0] == kinds[1], dtype
        shapes = [y.shape for y in leaves(found)], [y.shape for y in leaves(wanted)]
        assert shapes[0] == shapes[1]


@pytest.mark.oracle
def test_all_names_of_jax_are_there(jax: Any) -> None:
    public = {name for name in dir(jax.numpy.linalg) if not name.startswith("_")}
    assert public <= {*dir(fnp.linalg)}
    assert {*fnp.linalg.__all__} == public


# ---------------------------------------------------------------- derivatives

A, WIDE, TALL = regular(2, 3, 3), normal(3, 5), normal(5, 3)
BIG = regular(10, 10)
GRADS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (lambda x: fnp.linalg.cholesky(x @ x.swapaxes(-1, -2)), (A,)),
    "cholesky upper": (
        lambda x: fnp.linalg.cholesky(x @ x.swapaxes(-1, -2), upper=True),
        (BIG,),
    ),
    "solve": (fnp.linalg.solve, (A, normal(2, 3, 1))),
    "solve large": (fnp.linalg.solve, (BIG, normal(10))),
    "solve complex": (fnp.linalg.solve, (A + 1j * A[::-1], normal(2, 3, 1) + 0j)),
    "inv": (fnp.linalg.inv, (A,)),
    "inv large": (fnp.linalg.inv, (BIG,)),
    "eigvalsh": (fnp.linalg.eigvalsh, (A,)),
    "eigvals": (fnp.linalg.eigvals, (A,)),
    "svdvals": (fnp.linalg.svdvals, (WIDE,)),
    "qr": (fnp.linalg.qr, (TALL,)),
    "qr wide": (fnp.linalg.qr, (WIDE,)),
    "qr r": (lambda x: fnp.linalg.qr(x, "r"), (TALL,)),
    "pinv wide": (fnp.linalg.pinv, (WIDE,)),
    "pinv tall": (fnp.linalg.pinv, (TALL,)),
    "pinv of a unit": (fnp.linalg.pinv, (np.eye(4, 3),)),
    "lstsq": (lambda a, b: fnp.linalg.lstsq(a, b)[0], (TALL, normal(5))),
    "lstsq wide": (lambda a, b: fnp.linalg.lstsq(a, b)[0], (WIDE, normal(3))),
    "lstsq residuals": (lambda a, b: fnp.linalg.lstsq(a, b)[1], (TALL, normal(5))),
    "matrix_power": (lambda x: fnp.linalg.matrix_power(x, 3), (A,)),
    "matrix_power negative": (lambda x: fnp.linalg.matrix_power(x, -2), (A,)),
    "slogdet": (fnp.linalg.slogdet, (A,)),
    "slogdet qr": (lambda x: fnp.linalg.slogdet(x, method="qr"), (A,)),
    "slogdet complex": (fnp.linalg.slogdet, (A + 1j * A[::-1],)),
    "cond": (fnp.linalg.cond, (A,)),
    "cond 1": (lambda x: fnp.linalg.cond(x, 1), (A,)),
    "nuclear norm": (lambda x: fnp.linalg.norm(x, "nuc"), (WIDE,)),
    "2-norm": (lambda x: fnp.linalg.norm(x, 2), (WIDE,)),
    "-2-norm": (lambda x: fnp.linalg.norm(x, -2), (WIDE,)),
    "multi_dot": (
        lambda *xs: fnp.linalg.multi_dot(xs),
        (normal(3), WIDE, TALL),
    ),
    "tensorsolve": (fnp.linalg.tensorsolve, (normal(2, 3, 6), normal(2, 3))),
    "tensorinv": (fnp.linalg.tensorinv, (normal(2, 3, 6),)),
}


@pytest.mark.parametrize("name", GRADS)
def test_derivatives(name: str) -> None:
    function, args = GRADS[name]
    check_grads(function, args, order=2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", GRADS)
def test_vmap_is_a_loop(name: str) -> None:
    function, args = GRADS[name]
    stacks = [
        np.stack([x, 1.5 * x, x[..., ::-1, :] if x.ndim > 1 else -x]) for x in args
    ]
    found = fnx.jit(fnx.vmap(function))(*stacks)
    rows = [leaves(function(*[s[n] for s in stacks])) for n in range(3)]
    for place, x in enumerate(leaves(found)):
        wanted = np.stack([np.asarray(row[place]) for row in rows])
        np.testing.assert_allclose(x, wanted, 1e-8, 1e-8)


def singular(n: int, rank: int) -> Any:
    return normal(n, rank) @ normal(rank, n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_a_determinant_of_zero_has_a_gradient(n: int) -> None:
    for rank in range(n):
        x = singular(n, rank)
        minors = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                rest = np.delete(np.delete(x, i, 0), j, 1)
                minors[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
        found = fnx.grad(fnp.linalg.det)(x)
        np.testing.assert_allclose(found, minors, 1e-8, 1e-8)
        check_grads(fnp.linalg.det, (x,), order=2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("n", [2, 4, 6])
def test_second_derivatives_of_determinants(n: int, dtype: str) -> None:
    x = regular(n, n, dtype=dtype)
    check_grads(fnp.linalg.det, (x,), order=2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("n", [5, 6])
def test_second_derivatives_of_determinants_of_zero(n: int, dtype: str) -> None:
    for rank in (n - 1, n - 2, n - 3, 0):
        x = normal(n, rank, dtype=dtype) @ normal(rank, n, dtype=dtype)
        t = normal(n, n, dtype=dtype)
        # det(x + s t) is a polynomial in s; its value at roots of unity has it all.
        roots = np.exp(2j * np.pi * np.arange(n + 1) / (n + 1))
        values = np.array([np.linalg.det(x + z * t) for z in roots])
        bend = 2 * np.fft.fft(values)[2] / (n + 1)

        def along(v: Any, x: Any = x, t: Any = t) -> Any:
            return fnx.jvp(fnp.linalg.det, (v,), (t,))[1]

        for run in (along, fnx.jit(along)):
            found = fnx.jvp(run, (x,), (t,))[1]
            np.testing.assert_allclose(found, bend, 1e-8, 1e-8)
    many = np.stack([x, regular(n, n, dtype=dtype)])
    found = fnx.vmap(lambda v: fnx.jvp(along, (v,), (t,))[1])(many)
    np.testing.assert_allclose(found[0], bend, 1e-8, 1e-8)
    check_grads(fnp.linalg.det, (many[1],), order=2, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_functions_that_do_not_see_equal_eigenvalues(dtype: str) -> None:
    unit = np.diag([2.0, 2.0, 2.0, 5.0]).astype(dtype)
    turn = np.linalg.qr(normal(4, 4, dtype=dtype))[0]
    x = turn @ unit @ turn.conj().T

    def total(x: Any) -> Any:
        return fnp.linalg.eigvalsh(x).sum()

    def squares(x: Any) -> Any:
        return (fnp.linalg.svdvals(x) ** 2).sum()

    close(fnx.grad(total)(x), np.eye(4))
    close(fnx.grad(squares)(x), 2 * x.conj())
    close(fnx.jacfwd(total)(unit.real), np.eye(4))
    nuclear = fnx.grad(lambda x: fnp.linalg.norm(x, "nuc"))
    close(nuclear(2 * turn), turn.conj())
    close(nuclear(np.zeros((3, 2))), np.zeros((3, 2)))

    def projector(x: Any) -> Any:
        _, v = fnp.linalg.eigh(x)
        return fnp.real(v[:, 3:] @ v[:, 3:].conj().T)

    check_grads(projector, (x,), order=1, atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------- mistakes

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no matrix": (
        lambda: fnp.linalg.inv(np.ones(3)),
        errors.ShapeError,
        r"linalg.inv: a is f64\[3\]: the last two axes",
    ),
    "not square": (
        lambda: fnp.linalg.det(np.ones((2, 3))),
        errors.ShapeError,
        "linalg.det: a is .* square matrices",
    ),
    "16 bits": (
        lambda: fnp.linalg.svd(np.ones((2, 2), np.float16)),
        errors.DTypeError,
        r"linalg.svd: a is f16\[2,2\]: .* 32 bits",
    ),
    "a list": (
        lambda: fnp.linalg.inv([[1.0]]),
        errors.ArgumentError,
        "takes arrays",
    ),
    "rows": (
        lambda: fnp.linalg.solve(np.eye(3), np.ones(2)),
        errors.ShapeError,
        "b must have 3 rows",
    ),
    "stacks": (
        lambda: fnp.linalg.solve(np.ones((2, 3, 3)), np.ones((4, 3, 1))),
        errors.ShapeError,
        "leading axes",
    ),
    "UPLO": (
        lambda: fnp.linalg.eigh(np.eye(2), "lower"),
        errors.OptionError,
        "UPLO='lower'",
    ),
    "mode": (
        lambda: fnp.linalg.qr(np.eye(2), "economic"),
        errors.OptionError,
        "mode='economic'",
    ),
    "method": (
        lambda: fnp.linalg.slogdet(np.eye(2), method="svd"),
        errors.OptionError,
        "method='svd'",
    ),
    "power": (
        lambda: fnp.linalg.matrix_power(np.eye(2), 0.5),
        errors.ArgumentError,
        "n=0.5",
    ),
    "tolerances": (
        lambda: fnp.linalg.pinv(np.eye(2), 0.1, rcond=0.1),
        errors.OptionError,
        "rtol or rcond",
    ),
    "order": (
        lambda: fnp.linalg.norm(np.eye(2), 3, (0, 1)),
        errors.OptionError,
        "ord=3",
    ),
    "outer": (
        lambda: fnp.linalg.outer(np.eye(2), np.ones(2)),
        errors.ShapeError,
        "must be vectors",
    ),
    "cross": (
        lambda: fnp.linalg.cross(np.ones(2), np.ones(2)),
        errors.ShapeError,
        "three elements",
    ),
    "one array": (
        lambda: fnp.linalg.multi_dot([np.eye(2)]),
        errors.ArgumentError,
        "two arrays",
    ),
    "chain": (
        lambda: fnp.linalg.multi_dot([np.ones((2, 3)), np.ones((2, 3))]),
        errors.ShapeError,
        "3 columns and 2 rows",
    ),
    "lstsq": (
        lambda: fnp.linalg.lstsq(np.ones((3, 2)), np.ones(2)),
        errors.ShapeError,
        "as many rows",
    ),
    "tensorinv": (
        lambda: fnp.linalg.tensorinv(np.ones((2, 3, 4))),
        errors.ShapeError,
        "as many elements",
    ),
    "tensorsolve": (
        lambda: fnp.linalg.tensorsolve(np.ones((2, 3)), np.ones(2)),
        errors.ShapeError,
        "as many elements",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    call, error, match = MISTAKES[name]
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("name", ["cholesky", "eigvalsh", "inv", "svdvals", "slogdet"])
def test_many_matrices_outside_of_traces(name: str) -> None:
    x = positive(1100, 3, 3)
    found = getattr(fnp.linalg, name)(x)
    close(found, tuple(leaves(getattr(np.linalg, name)(x))))
    gradient = fnx.grad(lambda x: leaves(getattr(fnp.linalg, name)(x))[-1].sum())
    close(gradient(x)[:2], gradient(x[:2]))
