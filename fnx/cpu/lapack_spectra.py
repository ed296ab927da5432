"""LAPACK's routines for eigenvalues and singular values, and what they begin with.

LAPACK may never end where a matrix has NaN or infinite elements: of such, all results
are NaN. Each function writes the code for one matrix of a stack; next on the walk:
`lapack_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fnx.cpu.lapack import BLOCK, Routine


@contextmanager
def _finite(r: Routine) -> Iterator[None]:
    """What is done for a matrix of finite numbers; else, or on failure, NaN."""
    rows, columns = r.shape(0)
    finite = r.all_finite(r.inputs[0], rows * columns)
    r.store("i32", 1, r.info)
    with r.where(finite):
        yield
    with r.where(r.failed()):
        r.spoil_outputs()


def eigh(r: Routine) -> None:
    """LAPACK's syevd of the transposed matrix, of which the vectors are conjugated."""
    n, _ = r.shape(0)
    values, *vectors = r.outputs
    letter = r.letter("V" if vectors else "N")
    triangle = r.letter("U" if r.params["lower"] else "L")
    with _finite(r):
        a = r.memory(n * n)
        r.copy(a, r.inputs[0], n * n)
        work = _dense_work(r, n, bool(vectors))
        r.call(
            "syevd",
            letter,
            triangle,
            r.number(n),
            a,
            r.number(n),
            values,
            *work,
            r.info,
        )
        if vectors:
            r.transpose(vectors[0], a, n, n)
            r.conjugate(vectors[0], n * n)


def _dense_work(r: Routine, n: int, vectors: bool) -> list[str]:
    integers = 3 + 5 * n
    if not r.is_complex:
        size = 1 + (6 + BLOCK) * n + (2 * n * n if vectors else 0)
        return [
            r.memory(size),
            r.number(size),
            r.memory(integers, 4),
            r.number(integers),
        ]
    size = 1 + (2 + BLOCK) * n + (n * n if vectors else 0)
    real = 1 + 5 * n + (2 * n * n if vectors else 0)
    work = [r.memory(size), r.number(size), r.memory(real, r.real_item), r.number(real)]
    return [*work, r.memory(integers, 4), r.number(integers)]


def eig(r: Routine) -> None:
    """LAPACK's geev. Vectors of a real matrix are pairs of real and imaginary parts."""
    n, _ = r.shape(0)
    values, *vectors = r.outputs
    asked = [r.params["left"], r.params["right"]]
    letters = [r.letter("V" if side else "N") for side in asked]
    with _finite(r):
        a, size = r.transposed(0), (4 + BLOCK) * n
        found = [r.memory(n * n if side else 1) for side in asked]
        work = [r.memory(size), r.number(size)]
        if r.is_complex:
            parts = [values]
            work.append(r.memory(2 * n, r.real_item))
        else:
            parts = [r.memory(n), r.memory(n)]
        places = [x for v in found for x in (v, r.number(n))]
        head = [*letters, r.number(n), a, r.number(n)]
        r.call("geev", *head, *parts, *places, *work, r.info)
        used = [v for v, side in zip(found, asked, strict=True) if side]
        if r.is_complex:
            for out, v in zip(vectors, used, strict=True):
                r.transpose(out, v, n, n)
        else:
            _paired(r, values, parts, vectors, used, n)


def _paired(
    r: Routine,
    values: str,
    parts: list[str],
    vectors: list[str],
    found: list[str],
    n: int,
) -> None:
    """Complex values and vectors, from real ones column by column."""
    real = r.real
    with r.loop(0, n) as j:
        imaginary = r.load(real, parts[1], j)
        r.store(real, r.load(real, parts[0], j), values, r.mul(j, 2))
        r.store(real, imaginary, values, r.add(r.mul(j, 2), 1))
        first = r.value(f"fcmp ogt {real} {imaginary}, 0.0")
        second = r.value(f"fcmp olt {real} {imaginary}, 0.0")
        # The column of real parts, and that of imaginary ones.
        own = r.select(second, "i64", str(r.add(j, -1)), j)
        other = r.select(first, "i64", str(r.add(j, 1)), j)
        for out, v in zip(vectors, found, strict=True):
            with r.loop(0, n) as i:
                x = r.load(real, v, r.add(r.mul(own, n), i))
                y = r.load(real, v, r.add(r.mul(other, n), i))
                minus = r.value(f"fneg {real} {y}")
                y = r.select(first, real, y, r.select(second, real, minus, "0.0"))
                place = r.mul(r.add(r.mul(i, n), j), 2)
                r.store(real, x, out, place)
                r.store(real, y, out, r.add(place, 1))


def svd(r: Routine) -> None:
    """LAPACK's gesdd of the transposed matrix, which lies there as it is.

    Its factors change places, and so they are row-major, too.
    """
    m, n = r.shape(0)
    values, *vectors = r.outputs
    k = min(m, n)
    job = "N" if not vectors else "A" if r.params["full_matrices"] else "S"
    with _finite(r):
        a = r.memory(m * n)
        r.copy(a, r.inputs[0], m * n)
        u, vt = vectors if vectors else [a, a]
        columns = r.output_types[1].shape[-1] if vectors else 1
        places = [vt, r.number(n), u, r.number(columns)]
        large = max(m, n)
        size = 4 * k * k + 7 * k + large + BLOCK * (large + k)
        work = [r.memory(size), r.number(size)]
        if r.is_complex:
            real = max(5 * k * k + 7 * k, 2 * large * k + 2 * k * k + k)
            work.append(r.memory(real, r.real_item))
        head = [r.letter(job), r.number(n), r.number(m), a, r.number(n), values]
        r.call("gesdd", *head, *places, *work, r.memory(8 * k, 4), r.info)


def schur(r: Routine) -> None:
    """LAPACK's gees, without an order of the eigenvalues."""
    n, _ = r.shape(0)
    triangle, *vectors = r.outputs
    with _finite(r):
        a, size = r.transposed(0), (3 + BLOCK) * n
        z = r.memory(n * n if vectors else 1)
        values = [r.memory(n)] if r.is_complex else [r.memory(n), r.memory(n)]
        work = [r.memory(size), r.number(size)]
        work += [r.memory(n, r.real_item)] if r.is_complex else []
        head = [
            r.letter("V" if vectors else "N"),
            r.letter("N"),
            "null",
            r.number(n),
            a,
        ]
        place = [r.number(n), r.memory(1, 4), *values, z, r.number(n)]
        r.call("gees", *head, *place, *work, r.memory(n, 4), r.info)
        r.transpose(triangle, a, n, n)
        if vectors:
            r.transpose(vectors[0], z, n, n)


def hessenberg(r: Routine) -> None:
    """LAPACK's gehrd."""
    n, _ = r.shape(0)
    a, size = r.transposed(0), BLOCK * (n + BLOCK + 1)
    taus = r.outputs[1] if n > 1 else r.memory(1)
    head = [r.number(n), r.number(1), r.number(n), a, r.number(n), taus]
    r.call("gehrd", *head, r.memory(size), r.number(size), r.info)
    r.transpose(r.outputs[0], a, n, n)


def tridiagonal(r: Routine) -> None:
    """LAPACK's sytrd."""
    n, _ = r.shape(0)
    a, size = r.transposed(0), BLOCK * n
    out, *found = r.outputs
    if n == 1:
        found = [found[0], r.memory(1), r.memory(1)]
    head = [r.letter("L" if r.params["lower"] else "U"), r.number(n), a, r.number(n)]
    r.call("sytrd", *head, *found, r.memory(size), r.number(size), r.info)
    r.transpose(out, a, n, n)
