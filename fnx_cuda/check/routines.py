"""Questions about routines: Fourier transforms and decompositions, ours and libraries'.

Each row runs a function on the device, compares some of its results with NumPy in
float64, and takes its time in milliseconds; once with the libraries that are there, and
once without them: by kernels of our own or on the host. Next on the walk: `models.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import scipy.linalg

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.records import record
from fnx_cuda import cufft, cusolver
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import beside, per_call
from fnx_cuda.stacks import BLAS

_LIBRARIES = cufft.LIBRARY, cusolver.LIBRARY, BLAS

Arrays = tuple[np.ndarray[Any, Any], ...]


@record
class _Case:
    """A function of fnx's and what it should give; its name in peers, if it has one."""

    name: str
    function: Callable[..., Any]
    wanted: Callable[..., Any]
    args: Arrays
    peer: str = ""


def fourier(setting: Setting) -> Iterator[Row]:
    """Milliseconds of transforms; `good` if all are as exact as their dtype."""
    rng = np.random.default_rng(0)
    small = setting.small
    shapes = [
        (3, 64) if small else (4096, 1024),
        (2, 37) if small else (1024, 4099),
        (1, 3000) if small else (1, 2**22),
        (5, 12) if small else (2048, 2048),
    ]
    names = ["short rows", "rows of a prime", "one long row", "two axes"]
    for name, shape in zip(names, shapes, strict=True):
        twice = name == "two axes"
        x = rng.standard_normal((*shape, 2)).view("complex128")[..., 0]
        function, which = (fnp.fft.fft2, "fft2") if twice else (fnp.fft.fft, "fft")
        for dtype in ("complex64", "complex128"):
            case = _Case(
                f"{name}, {'×'.join(map(str, shape))} {dtype}",
                function,
                getattr(np.fft, which),
                (x.astype(dtype),),
                f"fft.{which}",
            )
            yield from _rows("fourier", case, setting)
    real = rng.standard_normal(shapes[0]).astype("float32")
    case = _Case("and back, of reals", _there_and_back, np.asarray, (real,))
    yield from _rows("fourier", case, setting)


def _there_and_back(x: Any) -> Any:
    return fnp.fft.irfft(fnp.fft.rfft(x), x.shape[-1])


def decompositions(setting: Setting) -> Iterator[Row]:
    """Milliseconds of decompositions of one large matrix."""
    small = setting.small
    for size, names in (
        (40 if small else 2048, ("cholesky", "solve", "qr")),
        (40 if small else 1024, ("eigvalsh", "svdvals", "pivoted qr")),
        (20 if small else 512, ("eigvals", "hessenberg", "tridiagonal solve")),
    ):
        yield from _matrices("decompositions", names, (size, size), setting)


def stacks(setting: Setting) -> Iterator[Row]:
    """Milliseconds of decompositions of many small matrices at once."""
    small = setting.small
    shapes = [(3, 12, 12), (4, 5, 5)] if small else [(1000, 64, 64), (10_000, 16, 16)]
    names = "cholesky", "lu", "solve", "qr", "eigvalsh"
    for shape in shapes:
        some = (*names, "svdvals", "tridiagonal solve") if shape[-1] <= 32 else names
        yield from _matrices("stacks", some, shape, setting)


def _matrices(
    question: str, names: Sequence[str], shape: tuple[int, ...], setting: Setting
) -> Iterator[Row]:
    """Rows for positive definite matrices of a shape."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype("float32")
    gram = x @ x.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1], dtype="float32")
    told = "×".join(map(str, shape))
    for name in names:
        function, wanted, peer = _DECOMPOSED[name]
        case = _Case(f"{name}, {told}", function, wanted, (gram,), peer)
        yield from _rows(question, case, setting)


def _tridiagonal_solve(a: Any) -> Any:
    """Of the rows of matrices, which have a dominant diagonal."""
    below, above = a[..., 0, :] * 0.1, a[..., 1, :] * 0.1
    middle = fnp.abs(a[..., 2, :]) + 3
    return lax.linalg.tridiagonal_solve(below, middle, above, a)


def _tridiagonal_wanted(a: Any) -> Any:
    n = a.shape[-1]
    below, above = a[..., 0, :] * 0.1, a[..., 1, :] * 0.1
    dense = np.zeros_like(a)
    dense[..., range(n), range(n)] = np.abs(a[..., 2, :]) + 3
    dense[..., range(1, n), range(n - 1)] = below[..., 1:]
    dense[..., range(n - 1), range(1, n)] = above[..., :-1]
    return np.linalg.solve(dense, a)


def _ordered(values: Any, xp: Any) -> Any:
    return xp.sort(xp.real(values), axis=-1)


def _diagonal(r: Any, xp: Any) -> Any:
    """Of columns of one length, either may be the first: the diagonal is the same."""
    return xp.abs(xp.diagonal(r))


def _traces(h: Any, xp: Any) -> Any:
    """What similar matrices share: their elements may differ by much."""
    n = h.shape[-1]
    return xp.stack([xp.trace(h) / n, xp.sum(h * h.T) / n, xp.trace(h @ h @ h) / n])


_DECOMPOSED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "cholesky": (fnp.linalg.cholesky, np.linalg.cholesky, "linalg.cholesky"),
    "lu": (
        # A diagonal of u that does not depend on the signs of rows.
        lambda a: fnp.linalg.det(a)[..., None] ** (1 / a.shape[-1]),
        lambda a: np.linalg.det(a)[..., None] ** (1 / a.shape[-1]),
        "",
    ),
    "solve": (
        lambda a: fnp.linalg.solve(a, a[..., :8]),
        lambda a: np.linalg.solve(a, a[..., :8]),
        "",
    ),
    "qr": (
        lambda a: fnp.linalg.qr(a)[1],
        lambda a: np.linalg.qr(a)[1],
        "linalg.qr",
    ),
    "pivoted qr": (
        lambda a: _diagonal(fnx.scipy.linalg.qr(a, mode="r", pivoting=True)[0], fnp),
        lambda a: _diagonal(scipy.linalg.qr(a, mode="r", pivoting=True)[0], np),
        "",
    ),
    "eigvalsh": (fnp.linalg.eigvalsh, np.linalg.eigvalsh, "linalg.eigvalsh"),
    "eigvals": (
        lambda a: _ordered(fnp.linalg.eigvals(a), fnp),
        lambda a: _ordered(np.linalg.eigvals(a), np),
        "",
    ),
    "hessenberg": (
        lambda a: _traces(fnx.scipy.linalg.hessenberg(a), fnp),
        lambda a: _traces(scipy.linalg.hessenberg(a), np),
        "",
    ),
    "svdvals": (
        lambda a: fnp.linalg.svd(a, compute_uv=False),
        lambda a: np.linalg.svd(a, compute_uv=False),
        "linalg.svdvals",
    ),
    "tridiagonal solve": (_tridiagonal_solve, _tridiagonal_wanted, ""),
}
"""Names, functions of fnx and of NumPy, and the name of the former in other
libraries."""


def _rows(question: str, case: _Case, setting: Setting) -> Iterator[Row]:
    """With the libraries, and without them."""
    wide = [x.astype(np.result_type(x.dtype, np.float64)) for x in case.args]
    wanted = case.wanted(*wide)
    there = any(library.serves() for library in _LIBRARIES)
    for note in ("libraries", "without") if there else ("without",):
        with _without() if note == "without" else nullcontext():
            yield _row(question, case, setting, wanted, note)


def _row(question: str, case: _Case, setting: Setting, wanted: Any, note: str) -> Row:
    run = fnx.jit(lambda *args: case.function(*args))
    args = fnx.device_put(case.args, setting.device)
    found = np.asarray(run(*args))
    size = max(float(np.abs(wanted).max()), 1e-30)
    error = float(np.abs(found - wanted).max()) / size
    # Of sums of n terms, or of log n of them; the matrices are well conditioned.
    length = max(case.args[0].size, 4)
    terms = np.log2(length) if question == "fourier" else np.sqrt(length)
    limit = 30 * float(np.finfo(found.dtype).eps * terms)
    seconds = per_call(lambda: run(*args), fnx.block_until_ready, setting.small)
    peers: tuple[tuple[str, float], ...] = ()
    if case.peer and note != "without":
        calls = {name: _peer(name, case) for name in ("torch", "cupy", "jax")}
        peers = tuple([(name, 1e3 * taken) for name, taken in beside(calls)])
    return Row(
        question,
        case.name,
        1e3 * seconds,
        "ms",
        f"error < {limit:.1e}",
        error <= limit,
        f"{note}; error {error:.1e}",
        peers,
    )


def _peer(library: str, case: _Case) -> Callable[[Any], Callable[[], Any]]:
    """What makes the call of another library."""

    def make(module: Any) -> Callable[[], Any]:
        space = module.numpy if library == "jax" else module
        function = space
        for part in case.peer.split("."):
            function = getattr(function, part)
        (x,) = case.args
        if library == "torch":
            given = module.from_numpy(x).cuda()
        else:
            given = space.asarray(x)
        return lambda: function(given)

    return make


@contextmanager
def _without() -> Iterator[None]:
    """No library: programs that are loaded inside take what is there without."""
    fnx.clear_caches()
    for library in _LIBRARIES:
        library.forbidden = True
    try:
        yield
    finally:
        for library in _LIBRARIES:
            library.forbidden = False
        fnx.clear_caches()
