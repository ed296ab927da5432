"""Cases of `fnx/ops/linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from fnx import dtypes, errors
from tests.cases import BAD_CASES, CASES, Arrays, BadCase, Case

Make = Callable[[np.random.Generator], Arrays]
DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard normal numbers, complex ones where asked."""
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def normal(*shapes: tuple[int, ...], dtype: Any = np.float64) -> Make:
    return lambda rng: tuple(numbers(rng, shape, dtype) for shape in shapes)


def regular(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Square matrices far from singular ones."""
    return numbers(rng, shape, dtype) + (3 * np.eye(shape[-1])).astype(dtype)


def positive(*shape: int, dtype: Any = np.float64) -> Make:
    """Hermitian matrices with eigenvalues from 1 on."""

    def args(rng: np.random.Generator) -> Arrays:
        x = numbers(rng, shape, dtype)
        return (x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1], dtype=dtype),)

    return args


def spread(*shape: int, dtype: Any = np.float64) -> Make:
    """Matrices whose singular values are 1, 2, 3, …"""

    def args(rng: np.random.Generator) -> Arrays:
        u, s, vt = np.linalg.svd(numbers(rng, shape, dtype), full_matrices=False)
        values = 1 + np.arange(s.shape[-1])
        return ((u * values @ vt).astype(dtype),)

    return args


def system(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float64) -> Make:
    """A regular matrix and right sides."""
    return lambda rng: (regular(rng, a, dtype), numbers(rng, b, dtype))


def factored(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float64) -> Make:
    """A matrix, its factors, and right sides."""

    def args(rng: np.random.Generator) -> Arrays:
        matrix, right = system(a, b, dtype)(rng)
        factors, pivots = scipy.linalg.lu_factor(matrix)
        return matrix, factors, pivots.astype(np.int32), right

    return args


def tridiagonal(b: tuple[int, ...], dtype: Any = np.float64) -> Make:
    """Three diagonals, the middle one dominant, and right sides."""

    def args(rng: np.random.Generator) -> Arrays:
        low, middle, up = [numbers(rng, b[:-1], dtype) for _ in range(3)]
        return low, middle + dtype(6), up, numbers(rng, b, dtype)

    return args


def short(dtype: Any) -> str:
    return dtypes.short(np.dtype(dtype))


def names(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> str:
    sizes = ["x".join(map(str, shape)) for shape in shapes]
    return "-".join([*sizes, short(dtype)])


def jax_cholesky(x: Any) -> Any:
    """The oracle."""
    import jax.numpy as jnp  # lazy: only the oracle tests need JAX

    low = jnp.tril(x, -1)  # its derivative expects a symmetric tangent
    own = jnp.real(jnp.diagonal(x, axis1=-2, axis2=-1))[..., None]
    full = low + low.conj().swapaxes(-1, -2) + own * jnp.eye(x.shape[-1])
    return jnp.linalg.cholesky(full.astype(x.dtype), symmetrize_input=False)


def jax_solve(a: Any, b: Any, *, transpose_a: bool) -> Any:
    """The oracle."""
    import jax.numpy as jnp  # lazy: only the oracle tests need JAX

    return jnp.linalg.solve(a.swapaxes(-1, -2) if transpose_a else a, b)


def jax_factored_solve(a: Any, f: Any, p: Any, b: Any, *, transpose_a: bool) -> Any:
    """The oracle."""
    return jax_solve(a, b, transpose_a=transpose_a)


# What LAPACK computes differs by roundings that depend on how it works in blocks.
ULP = 20_000.0


def add(
    name: str,
    label: str,
    args: Make,
    params: dict[str, Any] | None = None,
    smooth: tuple[int, ...] = (),
    linear: tuple[tuple[int, ...], ...] = (),
    oracle: Any = None,
) -> None:
    CASES.append(Case(name, label, args, params or {}, smooth, linear, ULP, oracle))


for dtype in DTYPES:
    for shape in ((1, 1), (3, 3), (12, 12), (2, 3, 4, 4), (0, 0), (0, 2, 2)):
        add(
            "cholesky",
            names((shape,), dtype),
            positive(*shape, dtype=dtype),
            smooth=(0,),
            oracle=jax_cholesky,
        )
    for a, b in (
        ((1, 1), (1, 1)),
        ((3, 3), (3, 2)),
        ((10, 10), (10, 3)),
        ((2, 4, 4), (2, 4, 1)),
        ((0, 0), (0, 2)),
        ((3, 3), (3, 0)),
    ):
        for flip in (False, True):
            add(
                "solve",
                f"{names((a, b), dtype)}-{flip}",
                system(a, b, dtype),
                {"transpose_a": flip},
                smooth=(0, 1),
                linear=((1,),),
                oracle=jax_solve,
            )
    for a, b in (((4, 4), (4, 2)), ((9, 9), (9, 1))):
        add(
            "factored_solve",
            names((a, b), dtype),
            factored(a, b, dtype),
            {"transpose_a": False},
            linear=((3,),),
            oracle=jax_factored_solve,
        )
        add(
            "factored_solve",
            f"{names((a, b), dtype)}-transposed",
            factored(a, b, dtype),
            {"transpose_a": True},
            linear=((3,),),
            oracle=jax_factored_solve,
        )
    for shape in ((1, 1), (3, 3), (2, 4, 4), (2, 3, 5), (5, 3), (11, 11), (0, 3)):
        label = names((shape,), dtype)
        add("lu", label, normal(shape, dtype=dtype), smooth=(0,))
        add("geqrf", label, normal(shape, dtype=dtype), smooth=(0,))
        for pivoting in (False, True):
            params = {"pivoting": pivoting, "full_matrices": False}
            args = normal(shape, dtype=dtype)
            add("qr", f"{label}-{pivoting}", args, params, smooth=(0,))
        params = {"full_matrices": False, "compute_uv": False}
        args = spread(*shape, dtype=dtype)
        add("svd", f"{label}-values", args, params, smooth=(0,))
    for shape in ((4, 3), (3, 4)):
        params = {"pivoting": False, "full_matrices": True}
        label = f"{names((shape,), dtype)}-full"
        add("qr", label, normal(shape, dtype=dtype), params)
        params = {"full_matrices": True, "compute_uv": True}
        add("svd", label, normal(shape, dtype=dtype), params)
    for shape in ((1, 1), (3, 3), (2, 3, 5), (5, 3), (0, 3)):
        # The phases of complex vectors are LAPACK's choice.
        smooth = () if np.dtype(dtype).kind == "c" else (0,)
        params = {"full_matrices": False, "compute_uv": True}
        label = names((shape,), dtype)
        add("svd", label, spread(*shape, dtype=dtype), params, smooth=smooth)
    for shape in ((1, 1), (4, 4), (2, 3, 3), (0, 0)):
        label = names((shape,), dtype)
        complex_ = np.dtype(dtype).kind == "c"
        for lower in (False, True):
            for vectors in (False, True):
                add(
                    "eigh",
                    f"{label}-{lower}-{vectors}",
                    normal(shape, dtype=dtype),
                    {"lower": lower, "compute_vectors": vectors},
                    smooth=() if complex_ and vectors else (0,),
                )
        for left in (False, True):
            params = {"left": left, "right": not left}
            add("eig", f"{label}-{left}", normal(shape, dtype=dtype), params)
        params = {"left": True, "right": True}
        add("eig", label, normal(shape, dtype=dtype), params)
        add(
            "eig",
            f"{label}-values",
            normal(shape, dtype=dtype),
            dict.fromkeys(params, False),
        )
        for vectors in (False, True):
            params = {"compute_vectors": vectors}
            add("schur", f"{label}-{vectors}", normal(shape, dtype=dtype), params)
        add("hessenberg", label, normal(shape, dtype=dtype))
        for lower in (False, True):
            args = positive(*shape, dtype=dtype)
            add("tridiagonal", f"{label}-{lower}", args, {"lower": lower})
    for a, taus in (((4, 3), (3,)), ((2, 5, 5), (2, 3)), ((3, 2), (0,))):
        args = normal(a, taus, dtype=dtype)
        label = names((a, taus), dtype)
        add("householder_product", label, args, smooth=(0, 1))
        for left in (False, True):
            for transpose in (False, True):
                other = (*a[:-2], a[-2], 2) if left else (*a[:-2], 2, a[-2])
                add(
                    "ormqr",
                    f"{label}-{left}-{transpose}",
                    normal(a, taus, other, dtype=dtype),
                    {"left": left, "transpose": transpose},
                    smooth=(0, 1, 2),
                    linear=((2,),),
                )
    for b in ((1, 1), (2, 2), (5, 3), (2, 4, 1), (3, 0)):
        add(
            "tridiagonal_solve",
            names((b,), dtype),
            tridiagonal(b, dtype),
            smooth=(0, 1, 2, 3),
            linear=((3,),),
        )
    for left in (False, True):
        for lower in (False, True):
            for transposed in (False, True):
                for unit in (False, True):
                    add(
                        "triangular_solve",
                        f"{short(dtype)}-{left}-{lower}-{transposed}-{unit}",
                        system((3, 3), (3, 2) if left else (2, 3), dtype),
                        {
                            "left_side": left,
                            "lower": lower,
                            "transpose_a": transposed,
                            "conjugate_a": transposed and lower,
                            "unit_diagonal": unit,
                        },
                        smooth=(0, 1),
                        linear=((1,),),
                    )

PLAIN = {
    "left_side": True,
    "lower": True,
    "transpose_a": False,
    "conjugate_a": False,
    "unit_diagonal": False,
}
for label, a, b in (("stack", (2, 3, 3), (2, 3, 1)), ("empty", (0, 0), (0, 2))):
    add("triangular_solve", label, system(a, b), PLAIN, (0, 1), ((1,),))


def separated(rng: np.random.Generator) -> Arrays:
    """A matrix with real eigenvalues that lie apart."""
    turn = regular(rng, (4, 4), np.float64)
    return (np.linalg.inv(turn) @ np.diag([1.0, 3.0, -2.0, 6.0]) @ turn,)


add("schur", "real-eigenvalues", separated, {"compute_vectors": True}, smooth=(0,))
add("eig", "real-eigenvalues", separated, {"left": True, "right": True}, smooth=(0,))


def indefinite(rng: np.random.Generator) -> Arrays:
    """Three matrices, of which the second one is not positive definite."""
    (x,) = positive(3, 4, 4)(rng)
    x[1, 2, 2] = -1
    return (x,)


def big_indefinite(rng: np.random.Generator) -> Arrays:
    (x,) = positive(3, 10, 10)(rng)
    x[1, 2, 2] = -1
    return (x,)


def singular(rng: np.random.Generator) -> Arrays:
    """Systems of which the second one has no solution."""
    a, b = system((3, 4, 4), (3, 4, 2))(rng)
    a[1, :, 2] = 0
    return a, b


def with_nan(*shape: int) -> Make:
    """Three matrices, the second one with a NaN."""

    def args(rng: np.random.Generator) -> Arrays:
        x = numbers(rng, (3, *shape), np.float64)
        x[1, 0, 0] = np.nan
        return (x,)

    return args


for shape in ((70, 5, 5), (64, 5, 3), (65, 3, 5), (3, 4, 4), (1, 4)):
    for dtype in (np.float32, np.float64):
        add("lu", f"{names((shape,), dtype)}-kernel", normal(shape, dtype=dtype))


def ranks(rng: np.random.Generator) -> Arrays:
    """Matrices of every rank, the first one 0."""
    x = np.rint(4 * numbers(rng, (5, 4, 4), np.float64))
    for rank in range(4):
        x[rank] = x[rank, :, :rank] @ x[rank, :rank]
    return (x,)


add("lu", "zero", lambda rng: (np.zeros((2, 3, 3)),))
add("lu", "ranks", lambda rng: (ranks(rng)[0][[0, 1, 4]],))

for n in (5, 8):
    stack = (64, n, n)
    add("cholesky", f"many-{n}", positive(*stack), oracle=jax_cholesky)
    params = {"transpose_a": n == 8}
    right = (64, n, 1)
    add("solve", f"many-{n}", system(stack, right), params, oracle=jax_solve)

add("cholesky", "indefinite", indefinite)
add("cholesky", "big-indefinite", big_indefinite)
add("solve", "singular", singular, {"transpose_a": False})
add("eigh", "nan", with_nan(4, 4), {"lower": True, "compute_vectors": True})
add("svd", "nan", with_nan(3, 4), {"full_matrices": False, "compute_uv": True})
add("eig", "nan", with_nan(3, 3), {"left": True, "right": True})
add("schur", "nan", with_nan(3, 3), {"compute_vectors": True})


def pivots(*shape: int) -> Make:
    return lambda rng: (rng.integers(0, 3, shape).astype(np.int32),)


def permutation_of(pivots: Any, *, permutation_size: int) -> Any:
    from jax.lax import linalg  # lazy: only the oracle tests need JAX

    return linalg.lu_pivots_to_permutation(pivots, permutation_size)


for shape in ((3,), (2, 3), (2, 0)):
    params = {"permutation_size": 4}
    label = "x".join(map(str, shape))
    oracle = permutation_of if shape[-1] else None
    add("lu_pivots_to_permutation", label, pivots(*shape), params, oracle=oracle)


# ---------------------------------------------------------------- what raises


def bad(
    name: str, label: str, args: Make, error: type[Exception], match: str, **params: Any
) -> None:
    BAD_CASES.append(BadCase(name, label, args, error, match, params))


def small(rng: np.random.Generator) -> Arrays:
    return (rng.standard_normal((2, 2)).astype(np.float16),)


SQUARE = {
    "cholesky": {},
    "eigh": {"lower": True, "compute_vectors": True},
    "eig": {"left": True, "right": True},
    "schur": {"compute_vectors": True},
    "hessenberg": {},
    "tridiagonal": {"lower": True},
}
ANY = {
    "lu": {},
    "geqrf": {},
    "qr": {"pivoting": False, "full_matrices": False},
    "svd": {"full_matrices": False, "compute_uv": True},
}
for name, params in SQUARE.items():
    bad(name, "wide", normal((2, 3)), errors.ShapeError, "square", **params)
for name, params in (SQUARE | ANY).items():
    bad(name, "vector", normal((3,)), errors.ShapeError, "two axes", **params)
    bad(name, "f16", small, errors.DTypeError, "f16", **params)

bad(
    "solve",
    "rows",
    normal((2, 2), (3, 1)),
    errors.ShapeError,
    "2 rows",
    transpose_a=False,
)
bad(
    "solve",
    "stack",
    normal((2, 2, 2), (2, 1)),
    errors.ShapeError,
    "leading",
    transpose_a=False,
)
bad("triangular_solve", "rows", normal((2, 2), (3, 1)), errors.ShapeError, "2 rows")
bad(
    "triangular_solve",
    "dtypes",
    lambda rng: (np.eye(2), np.ones((2, 1), np.float32)),
    errors.DTypeError,
    "differ in dtype",
)
bad(
    "factored_solve",
    "factors",
    lambda rng: (np.eye(2), np.eye(3), np.zeros(2, np.int32), np.ones((2, 1))),
    errors.ShapeError,
    "those of a",
    transpose_a=False,
)
bad(
    "tridiagonal_solve",
    "shape",
    normal((3,), (3,), (2,), (3, 1)),
    errors.ShapeError,
    "du must",
)
bad(
    "householder_product",
    "wide",
    normal((2, 3), (2,)),
    errors.ShapeError,
    "more columns",
)
bad("householder_product", "taus", normal((3, 2), (3,)), errors.ShapeError, "taus")
bad(
    "ormqr",
    "rows",
    normal((3, 2), (2,), (2, 2)),
    errors.ShapeError,
    "3 rows",
    left=True,
    transpose=False,
)
bad(
    "lu_pivots_to_permutation",
    "dtype",
    normal((3,)),
    errors.DTypeError,
    "int32",
    permutation_size=3,
)
bad(
    "lu_pivots_to_permutation",
    "size",
    pivots(3),
    errors.ShapeError,
    "at most",
    permutation_size=2,
)
