"""LAPACK's routines that solve, and the factors that they need.

Each function writes the code for one matrix of a stack; next on the walk:
`lapack_spectra.py`.
"""

from __future__ import annotations

from fnx.cpu.lapack import BLOCK, Routine


def cholesky(r: Routine) -> None:
    """LAPACK's potrf of the transposed matrix, which lies there as it is."""
    n, _ = r.shape(0)
    (x,), (out,) = r.inputs, r.outputs
    r.copy(out, x, n * n)
    r.call("potrf", r.letter("U"), r.number(n), out, r.number(n), r.info)
    with r.where(r.failed()):
        r.spoil(out, n * n)
    r.clear(out, n, n, lower=False)


def triangular_solve(r: Routine) -> None:
    """BLAS's trsm of the transposed equation."""
    (a, b), (out,) = r.inputs, r.outputs
    rows, columns = r.shape(1)
    r.copy(out, b, rows * columns)
    _trsm(r, a, out, **r.params)


def _trsm(
    r: Routine,
    a: str,
    x: str,
    left_side: bool = True,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> None:
    """Solves with a row-major triangle, in the place of the right sides."""
    n, _ = r.shape(0)
    rows, columns = r.output_types[0].shape[-2:]
    r.call(
        "trsm",
        r.letter("R" if left_side else "L"),
        r.letter("U" if lower else "L"),
        r.letter(("C" if conjugate_a else "T") if transpose_a else "N"),
        r.letter("U" if unit_diagonal else "N"),
        r.number(columns),
        r.number(rows),
        _one(r),
        a,
        r.number(n),
        x,
        r.number(columns),
    )


def _one(r: Routine) -> str:
    """The address of the number 1."""
    if r.is_complex:
        return r.constant(f"[2 x {r.real}]", f"[{r.real} 1.0, {r.real} 0.0]")
    return r.constant(r.real, "1.0")


def tridiagonal_solve(r: Routine) -> None:
    """LAPACK's gtsv, which overwrites the diagonals."""
    low, middle, up, _ = r.inputs
    n, sides = r.shape(3)
    diagonals = [r.memory(n) for _ in range(3)]
    r.copy(diagonals[0], r.at(low, r.item), n - 1)
    r.copy(diagonals[1], middle, n)
    r.copy(diagonals[2], up, n - 1)
    b = r.transposed(3)
    r.call("gtsv", r.number(n), r.number(sides), *diagonals, b, r.number(n), r.info)
    r.transpose(r.outputs[0], b, sides, n)
    with r.where(r.failed()):
        r.spoil_outputs()


def lu(r: Routine) -> None:
    """LAPACK's getrf; exchanges count from 0, and are done to the rows' numbers."""
    m, n = r.shape(0)
    k = min(m, n)
    factors, pivots, order = r.outputs
    a = r.transposed(0)
    r.call("getrf", r.number(m), r.number(n), a, r.number(m), pivots, r.info)
    r.transpose(factors, a, n, m)
    with r.loop(0, m) as i:
        r.store("i32", r.value(f"trunc i64 {i} to i32"), order, i)
    with r.loop(0, k) as i:
        pivot = r.value(f"sub i32 {r.load('i32', pivots, i)}, 1")
        r.store("i32", pivot, pivots, i)
        other = r.value(f"sext i32 {pivot} to i64")
        here, there = r.load("i32", order, i), r.load("i32", order, other)
        r.store("i32", there, order, i)
        r.store("i32", here, order, other)


def solve(r: Routine) -> None:
    """LAPACK's getrf of the transposed matrix, which lies there as it is, and getrs."""
    n, sides = r.shape(1)
    a, b = r.memory(n * n), r.transposed(1)
    pivots = r.memory(n, 4)
    r.copy(a, r.inputs[0], n * n)
    r.call("getrf", r.number(n), r.number(n), a, r.number(n), pivots, r.info)
    with r.where(r.failed()):
        r.spoil(a, n * n)
    trans = r.letter("N" if r.params["transpose_a"] else "T")
    arguments = [
        r.number(n),
        r.number(sides),
        a,
        r.number(n),
        pivots,
        b,
        r.number(n),
        r.info,
    ]
    r.call("getrs", trans, *arguments)
    r.transpose(r.outputs[0], b, sides, n)


def factored_solve(r: Routine) -> None:
    """Two triangles, each with trsm, and the exchanges of rows before or after."""
    n, sides = r.shape(3)
    _, factors, pivots, b = r.inputs
    (out,) = r.outputs
    turned = r.params["transpose_a"]
    r.copy(out, b, n * sides)
    if not turned:
        with r.loop(0, n) as i:
            _exchange(r, out, pivots, i, sides)
    for lower in (turned, not turned):
        lower = not lower
        _trsm(r, factors, out, lower=lower, unit_diagonal=lower, transpose_a=turned)
    if turned:
        with r.loop(0, n) as i:
            _exchange(r, out, pivots, r.value(f"sub i64 {n - 1}, {i}"), sides)
    with r.loop(0, n) as i:
        place = r.mul(i, n + 1)
        with r.where(_is_zero(r, factors, place)):
            r.spoil(out, n * sides)


def _exchange(r: Routine, x: str, pivots: str, i: str, columns: int) -> None:
    """Exchanges a row with its pivot."""
    other = r.value(f"sext i32 {r.load('i32', pivots, i)} to i64")
    with r.loop(0, columns) as j:
        here = r.add(r.mul(i, columns), j)
        there = r.add(r.mul(other, columns), j)
        values = r.load(r.element, x, here), r.load(r.element, x, there)
        r.store(r.element, values[1], x, here)
        r.store(r.element, values[0], x, there)


def _is_zero(r: Routine, x: str, place: str | int) -> str:
    """Whether an element is 0."""
    parts = 2 if r.is_complex else 1
    zero = ""
    for part in range(parts):
        value = r.load(r.real, x, r.add(r.mul(place, parts), part))
        this = r.value(f"fcmp oeq {r.real} {value}, 0.0")
        zero = r.value(f"and i1 {zero}, {this}") if zero else this
    return zero


# ---------------------------------------------------------------- orthogonal factors


def geqrf(r: Routine) -> None:
    """LAPACK's geqrf."""
    m, n = r.shape(0)
    a = r.transposed(0)
    _geqrf(r, a, r.outputs[1], m, n)
    r.transpose(r.outputs[0], a, n, m)


def _geqrf(r: Routine, a: str, taus: str, m: int, n: int) -> None:
    size = BLOCK * max(m, n)
    work = r.memory(size)
    r.call(
        "geqrf",
        r.number(m),
        r.number(n),
        a,
        r.number(m),
        taus,
        work,
        r.number(size),
        r.info,
    )


def qr(r: Routine) -> None:
    """LAPACK's geqrf or geqp3; orgqr in the same memory, once r is taken out."""
    m, n = r.shape(0)
    q, upper, *order = r.outputs
    k, count = r.output_types[0].shape[-1], min(m, n)
    a = r.memory(m * max(n, k))
    r.transpose(a, r.inputs[0], m, n)
    taus = r.memory(count)
    if order:
        _geqp3(r, a, taus, order[0], m, n)
    else:
        _geqrf(r, a, taus, m, n)
    with r.loop(0, k) as i, r.loop(0, n) as j:
        place = r.add(r.mul(j, m), i)
        is_low = r.value(f"icmp slt i64 {j}, {i}")
        value = r.load(r.element, a, place)
        value = r.select(is_low, r.element, "zeroinitializer", value)
        r.store(r.element, value, upper, r.add(r.mul(i, n), j))
    _orgqr(r, a, taus, m, k, count)
    r.transpose(q, a, k, m)


def _geqp3(r: Routine, a: str, taus: str, order: str, m: int, n: int) -> None:
    with r.loop(0, n) as j:
        r.store("i32", 0, order, j)
    size = BLOCK * max(m, n) + 2 * n
    work = [r.memory(size), r.number(size)]
    work += [r.memory(2 * n, r.real_item)] if r.is_complex else []
    r.call(
        "geqp3", r.number(m), r.number(n), a, r.number(m), order, taus, *work, r.info
    )
    with r.loop(0, n) as j:
        number = r.value(f"sub i32 {r.load('i32', order, j)}, 1")
        r.store("i32", number, order, j)


def _orgqr(r: Routine, a: str, taus: str, m: int, n: int, count: int) -> None:
    size = BLOCK * max(m, n)
    work = [r.memory(size), r.number(size)]
    sizes = r.number(m), r.number(n), r.number(count)
    r.call("orgqr", *sizes, a, r.number(m), taus, *work, r.info)


def householder_product(r: Routine) -> None:
    """LAPACK's orgqr."""
    m, n = r.shape(0)
    a = r.transposed(0)
    _orgqr(r, a, r.inputs[1], m, n, r.input_types[1].shape[-1])
    r.transpose(r.outputs[0], a, n, m)


def ormqr(r: Routine) -> None:
    """LAPACK's ormqr."""
    m, _ = r.shape(0)
    rows, columns = r.shape(2)
    count = r.input_types[1].shape[-1]
    a, c = r.transposed(0), r.transposed(2)
    size = BLOCK * (max(rows, columns, count) + BLOCK + 1)
    trans = "N" if not r.params["transpose"] else "C" if r.is_complex else "T"
    r.call(
        "ormqr",
        r.letter("L" if r.params["left"] else "R"),
        r.letter(trans),
        r.number(rows),
        r.number(columns),
        r.number(count),
        a,
        r.number(m),
        r.inputs[1],
        c,
        r.number(rows),
        r.memory(size),
        r.number(size),
        r.info,
    )
    r.transpose(r.outputs[0], c, columns, rows)
