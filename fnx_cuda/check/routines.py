"""Questions about routines: Fourier transforms and decompositions, ours and libraries'.

Each row runs a function on the device, compares some of its results with NumPy in
float64, and takes its time in milliseconds; once with the libraries that are there, and
once by kernels of our own or on the host. Next on the walk: `models.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx.records import record
from fnx_cuda import cufft, cusolver
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import beside, per_call

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
    """Milliseconds of decompositions of one large matrix and of many small ones."""
    rng = np.random.default_rng(1)
    large, count, side = (40, 3, 12) if setting.small else (2048, 1000, 64)
    for shape in ((large, large), (count, side, side)):
        x = rng.standard_normal(shape).astype("float32")
        gram = x @ x.swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1], dtype="float32")
        told = "×".join(map(str, shape))
        for name, function in (
            ("cholesky", lambda a: fnp.linalg.cholesky(a)),
            ("solve", lambda a: fnp.linalg.solve(a, a[..., :8])),
            ("qr", lambda a: fnp.linalg.qr(a)[1]),
            ("eigvalsh", lambda a: fnp.linalg.eigvalsh(a)),
            ("svdvals", lambda a: fnp.linalg.svd(a, compute_uv=False)),
        ):
            case = _Case(
                f"{name}, {told}",
                function,
                _WANTED[name],
                (gram,),
                _PEERS.get(name, ""),
            )
            yield from _rows("decompositions", case, setting)


_WANTED: dict[str, Callable[[Any], Any]] = {
    "cholesky": np.linalg.cholesky,
    "solve": lambda a: np.linalg.solve(a, a[..., :8]),
    "qr": lambda a: np.linalg.qr(a)[1],
    "eigvalsh": np.linalg.eigvalsh,
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
}
_PEERS = {
    "cholesky": "linalg.cholesky",
    "qr": "linalg.qr",
    "eigvalsh": "linalg.eigvalsh",
}


def _rows(question: str, case: _Case, setting: Setting) -> Iterator[Row]:
    """With the libraries, and without them."""
    wide = [x.astype(np.result_type(x.dtype, np.float64)) for x in case.args]
    wanted = case.wanted(*wide)
    there = cufft.LIBRARY.serves() or cusolver.LIBRARY.serves()
    for note in ("libraries", "own") if there else ("own",):
        with _without() if note == "own" else _with():
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
    if case.peer and note != "own":
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
def _with() -> Iterator[None]:
    yield


@contextmanager
def _without() -> Iterator[None]:
    """No library: programs that are loaded inside take what is there without."""
    both = cufft.LIBRARY, cusolver.LIBRARY
    fnx.clear_caches()
    for library in both:
        library.forbidden = True
    try:
        yield
    finally:
        for library in both:
            library.forbidden = False
        fnx.clear_caches()
