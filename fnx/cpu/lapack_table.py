"""Which host steps are calls of LAPACK, and the functions that make them.

Receives a `HostStep`; gives the text of its function (see `lapack.py`), and how threads
share its matrices. Next on the walk: `fft_roots.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.cpu import lapack_solving, lapack_spectra
from fnx.cpu.lapack import Constant, External, Routine
from fnx.runtime.plan import HostStep, Place

ROUTINES: dict[str, Callable[[Routine], None]] = {
    "cholesky": lapack_solving.cholesky,
    "eig": lapack_spectra.eig,
    "eigh": lapack_spectra.eigh,
    "factored_solve": lapack_solving.factored_solve,
    "geqrf": lapack_solving.geqrf,
    "hessenberg": lapack_spectra.hessenberg,
    "householder_product": lapack_solving.householder_product,
    "lu": lapack_solving.lu,
    "ormqr": lapack_solving.ormqr,
    "qr": lapack_solving.qr,
    "schur": lapack_spectra.schur,
    "solve": lapack_solving.solve,
    "svd": lapack_spectra.svd,
    "triangular_solve": lapack_solving.triangular_solve,
    "tridiagonal": lapack_spectra.tridiagonal,
    "tridiagonal_solve": lapack_solving.tridiagonal_solve,
}

CHUNK = 2**18
"""Multiply-adds, by and large, that are worth a thread."""

# LAPACK counts with 32-bit integers, the elements of its memory too.
_LARGEST = 20_000


def is_native(step: HostStep) -> bool:
    """Whether LAPACK runs a step here, and not the rule in Python."""
    if step.routine not in ROUTINES:
        return False
    if any(not isinstance(x, Place) for x in step.inputs):
        return False
    sizes = [size for type in step.input_types for size in type.shape[-2:]]
    # Of nothing, LAPACK has no idea.
    is_empty = any(type.size == 0 for type in step.input_types)
    return not is_empty and max(sizes) <= _LARGEST


def matrices(step: HostStep) -> int:
    """How many matrices there are."""
    largest = max(step.input_types, key=lambda type: type.ndim)
    return math.prod(largest.shape[:-2])


def chunk(step: HostStep) -> int:
    """How many matrices a thread takes at once."""
    m, n = max(step.input_types, key=lambda type: type.ndim).shape[-2:]
    return max(CHUNK // (m * n * min(m, n)), 1)


def routine_text(
    step: HostStep, name: str, constant: Constant, external: External
) -> str:
    """The function of a step."""
    r = Routine(step, constant, external)
    arrays = [*step.input_types, *step.output_types]
    with r.loop("%begin", "%end") as number:
        pointers = []
        for n, type in enumerate(arrays):
            nbytes = type.size // r.count * type.dtype.itemsize
            pointers.append(r.at(f"%array{n}", r.mul(number, nbytes)))
        r.inputs = pointers[: len(step.inputs)]
        r.outputs = pointers[len(step.inputs) :]
        ROUTINES[step.routine or ""](r)
    head = [
        f"define internal void @{name}(ptr %context, i64 %begin, i64 %end) {{",
        "entry:",
        "  %info = alloca i32",
        f"  %total = alloca {r.real}",
        f"  %memory = call ptr @malloc(i64 {max(r.taken, 64)})",
    ]
    for n in range(len(arrays)):
        head += [
            f"  %place{n} = getelementptr ptr, ptr %context, i64 {n}",
            f"  %array{n} = load ptr, ptr %place{n}",
        ]
    return "\n".join(
        [*head, *r.lines, "  call void @free(ptr %memory)", "  ret void", "}"]
    )


DECLARATIONS = {
    "malloc": "declare ptr @malloc(i64)",
    "free": "declare void @free(ptr)",
    "llvm.smin.i64": "declare i64 @llvm.smin.i64(i64, i64)",
    "llvm.memcpy.p0.p0.i64": ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"),
}
"""What the functions call, besides LAPACK."""
