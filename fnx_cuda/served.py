"""Which routines a library may do, as calls and launches around them.

Matrices of a library are column-major: a row-major one is its transposed there, which
is as good where the other triangle is read or the factors change places, and is copied
elsewhere. Few large matrices go to the library one by one, and many small ones at once,
if that is quicker than the launches of `decompositions.py`. Receives a `HostStep`,
gives stages; `None` for what no library takes. Used by `lower.py`; next on the walk:
`cufft.py`, `served_stacks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from fnx import dtypes
from fnx.runtime.plan import HostStep, Place
from fnx_cuda import cufft, cusolver, served_stacks
from fnx_cuda.cufft import Transform
from fnx_cuda.cusolver import LOWER, UPPER
from fnx_cuda.eigen import General
from fnx_cuda.instructions import Call, Launch, Served
from fnx_cuda.matrices import Algebra, Matrix, dense
from fnx_cuda.matrices_text import LOWER as LOWER_PART
from fnx_cuda.matrices_text import UPPER as UPPER_PART
from fnx_cuda.served_matrices import Matrices, ServedBy, Stages
from fnx_cuda.served_stacks import STACKS
from fnx_cuda.stacks import Stack
from fnx_cuda.work import Work

_MOST = 1 << 30  # elements of a row, and rows of a matrix, that are counted


def stages(step: HostStep, work: Work) -> Stages | None:
    """What a library does of a step; `None` if none takes it."""
    made = [table.get(step.routine or "") for table in (STACKS, _ROUTINES)]
    types = *step.input_types, *step.output_types
    if (
        not any(made)
        or any(type_.size == 0 for type_ in types)
        or any(not isinstance(item, Place) for item in step.inputs)
    ):
        return None
    for routine in made:
        found = None if routine is None else routine(step, work)
        if found is not None:
            return found
    return None


def _fft(step: HostStep, work: Work) -> Stages | None:
    """The library divides nothing, and overwrites halves of spectra."""
    made = cufft.transform(step)
    if made is None or max(step.input_types[0].size, step.output_types[0].size) > _MOST:
        return None
    (source,), (out,) = step.inputs, step.outputs
    (type_,), (out_type,) = step.input_types, step.output_types
    assert isinstance(source, Place)
    found: list[Launch | Call] = []
    if made.kind == "IRFFT":
        copy = work.place(type_.size * type_.dtype.itemsize)
        algebra = Algebra(type_.dtype, 1, work)
        algebra.copy(_flat(source, type_.size), _flat(copy, type_.size))
        found += algebra.launches
        source = copy
    found.append(Call(made, (source, out)))
    if made.kind in ("IFFT", "IRFFT"):
        algebra = Algebra(out_type.dtype, 1, work)
        factor = 1 / prod(step.params["lengths"])
        algebra.scale(_flat(out, out_type.size), factor)
        found += algebra.launches
    return tuple(found)


def _flat(place: Place, size: int) -> Matrix:
    """An array's elements as one row."""
    return dense(place, 1, size)


# ---------------------------------------------------------------- decompositions


def _few(large: bool) -> Callable[[Callable[[Matrices], None]], ServedBy]:
    """A routine for a few matrices; only for large ones, where we have kernels."""

    def given(make: Callable[[Matrices], None]) -> ServedBy:
        def served(step: HostStep, work: Work) -> Stages | None:
            made = Matrices(step, work, [])
            sizes = step.input_types[0].shape[-2:]
            if (
                made.count > served_stacks.MOST_CALLS
                or (large and min(sizes) < served_stacks.LARGE)
                or max(sizes) > _MOST
            ):
                return None
            make(made)
            return tuple(made.found)

        return served

    return given


def _cholesky(made: Matrices) -> None:
    """The upper factor of the transposed matrix is the transposed lower one."""
    out, n, failed = made.out(0), made.x.rows, made.integers(1)
    made.launch(lambda algebra: algebra.copy(made.x, out))
    arrays = (out.place, n * n * made.itemsize), (failed, 4)
    made.call("potrf", arrays, (n, n), UPPER)
    made.launch(lambda algebra: algebra.copy(out, out, LOWER_PART))
    made.launch(lambda algebra: algebra.spoil(out, failed, LOWER_PART))


def _eigh(made: Matrices) -> None:
    """The transposed matrix is the conjugated one, with conjugated vectors."""
    params, n = made.step.params, made.x.rows
    copy, failed = made.room(n, n), made.integers(1)
    values = made.out(0)
    made.launch(lambda algebra: algebra.copy(made.x, copy))
    real = dtypes.real_dtype(made.step.input_types[0].dtype).itemsize
    arrays = (
        (copy.place, n * n * made.itemsize),
        (values.place, n * real),
        (failed, 4),
    )
    triangle = UPPER if params["lower"] else LOWER
    wanted = "A" if params["compute_vectors"] else "N"
    made.call("syevd", arrays, (n, n), triangle, wanted)
    if params["compute_vectors"]:
        vectors = made.out(1)
        made.launch(lambda algebra: algebra.copy(copy.T, vectors, conjugated=True))
    made.spoil(failed)


def _svd(made: Matrices) -> None:
    """The library has no more columns than rows: a wide matrix is transposed for it.

    The factors of xᵀ are those of x, transposed, in the other order.
    """
    params, (m, n) = made.step.params, (made.x.rows, made.x.columns)
    k, size = min(m, n), made.itemsize
    failed, copy = made.integers(1), made.room(m, n)
    column_major = Matrix(copy.place, m, n, m * n, 1, m)
    target = column_major if m > n else copy
    made.launch(lambda algebra: algebra.copy(made.x, target))
    real = dtypes.real_dtype(made.step.input_types[0].dtype).itemsize
    values = made.out(0)
    arrays = [(copy.place, m * n * size), (values.place, k * real)]
    job = "N"
    after: list[tuple[Matrix, Matrix]] = []
    if params["compute_uv"]:
        u, vt = made.out(1), made.out(2)
        job = "A" if params["full_matrices"] else "S"
        ends = [u, vt] if m > n else [vt, u]
        for end in ends:
            # Column by column: of a wide matrix, that is where it belongs.
            place = end
            if m > n:
                place = made.room(end.columns, end.rows)
                after.append((place.T, end))
            arrays.append((place.place, end.rows * end.columns * size))
    arrays.append((failed, 4))
    made.call("gesvd", tuple(arrays), (max(m, n), k), vectors=job)
    algebra = made.algebra()
    for place, end in after:
        algebra.copy(place, end)
    made.found.extend(algebra.launches)
    made.spoil(failed)


def _lu(made: Matrices) -> None:
    """By way of a transposed copy."""
    x, out = made.x, made.out(0)
    m, n = x.rows, x.columns
    copy = made.room(n, m)
    pivots, failed = made.integers(min(m, n)), made.integers(1)
    ends = made.step.outputs
    made.launch(lambda algebra: algebra.copy(x, copy.T))
    arrays = (
        (copy.place, m * n * made.itemsize),
        (pivots, 4 * min(m, n)),
        (failed, 4),
    )
    made.call("getrf", arrays, (m, n))
    made.launch(lambda algebra: algebra.copy(copy.T, out))
    made.launch(lambda algebra: algebra.count_from_0(pivots, min(m, n), ends[1]))
    made.launch(lambda algebra: algebra.order(ends[1], min(m, n), ends[2], m))


def _geqrf(made: Matrices) -> None:
    """By way of a transposed copy."""
    taus = made.step.outputs[1]
    packed = _reflected(made, taus)
    made.launch(lambda algebra: algebra.copy(packed.T, made.out(0)))


def _qr(made: Matrices) -> None:
    """Reflections in a transposed copy, and their product in another one."""
    x, q, r = made.x, made.out(0), made.out(1)
    m, n, width = x.rows, x.columns, q.columns
    count, both = min(m, n), min(n, width)
    taus = made.room(1, count).place
    packed, product = _reflected(made, taus).T, made.room(width, m)

    def prepare(algebra: Algebra) -> None:
        algebra.copy(packed.part(0, 0, width, n), r, UPPER_PART)
        # Of a square q, the columns behind those of x count as those of the identity.
        algebra.identity(product.T)
        algebra.copy(packed.part(0, 0, m, both), product.T.part(0, 0, m, both))

    made.launch(prepare)
    arrays = (
        (product.place, m * width * made.itemsize),
        (taus, count * made.itemsize),
        (made.integers(1), 4),
    )
    made.call("orgqr", arrays, (m, width), reflections=count)
    made.launch(lambda algebra: algebra.copy(product.T, q))


def _reflected(made: Matrices, taus: Place) -> Matrix:
    """The reflections of a transposed copy of the input, where that is."""
    x = made.x
    packed = made.room(x.columns, x.rows)
    made.launch(lambda algebra: algebra.copy(x, packed.T))
    arrays = (
        (packed.place, x.rows * x.columns * made.itemsize),
        (taus, min(x.rows, x.columns) * made.itemsize),
        (made.integers(1), 4),
    )
    made.call("geqrf", arrays, (x.rows, x.columns))
    return packed


def _eig(made: Matrices) -> None:
    """Of a transposed copy, which is the matrix itself for the library."""
    n, dtype = made.x.rows, made.step.input_types[0].dtype
    wanted = made.step.params["right"]
    copy, failed = made.room(n, n), made.integers(1)
    made.launch(lambda algebra: algebra.copy(made.x, copy.T))
    vectors, values = made.room(n, n), made.out(0).place
    size = n * n * made.itemsize
    some = [(vectors.place, size)] if wanted else []
    row = n * made.step.output_types[0].dtype.itemsize
    arrays = [(copy.place, size), (values, row), *some, (failed, 4)]
    steps = tuple([nbytes for _, nbytes in arrays])
    call = General(dtype, n, made.count, steps, wanted)
    made.found.append(Call(call, tuple([place for place, _ in arrays])))

    def finish(algebra: Algebra) -> None:
        out = made.out(1)
        if dtypes.is_complex(dtype):
            algebra.copy(vectors.T, out)
        else:
            algebra.pair(vectors.place, values, out.place, n)

    if wanted:
        made.launch(finish)
    made.spoil(failed)


_eig_stages = _few(large=False)(_eig)


def _eig_to_the_right(step: HostStep, work: Work) -> Stages | None:
    """The library has no left vectors."""
    return None if step.params["left"] else _eig_stages(step, work)


_qr_stages = _few(large=True)(_qr)


def _qr_without_pivoting(step: HostStep, work: Work) -> Stages | None:
    """The library has none with pivoting."""
    return None if step.params["pivoting"] else _qr_stages(step, work)


_ROUTINES: dict[str, ServedBy] = {
    "cholesky": _few(large=True)(_cholesky),
    "eig": _eig_to_the_right,
    "eigh": _few(large=False)(_eigh),
    "fft": _fft,
    "geqrf": _few(large=True)(_geqrf),
    "lu": _few(large=True)(_lu),
    "qr": _qr_without_pivoting,
    "svd": _few(large=False)(_svd),
}


# ---------------------------------------------------------------- who serves


def is_served(item: Served) -> bool:
    """Whether the libraries are there, with the functions that a routine calls."""
    return all(_is_there(stage) for stage in item.stages if isinstance(stage, Call))


def _is_there(call: Call) -> bool:
    made = call.made
    match made:
        case Transform():
            return cufft.LIBRARY.serves()
        case Stack():
            library = made.library
        case _:
            library = cusolver.LIBRARY
    return library.serves() and all(map(library.has, made.names))


def served_nodes(item: Served) -> int | None:
    """How many nodes of a graph a routine is; most of cuSOLVER cannot be in one."""
    if not is_served(item):
        return None if item.own is None else max(len(item.own), 1)
    calls = [stage for stage in item.stages if isinstance(stage, Call)]
    if not all(map(_is_captured, calls)):
        return None
    # A call is several.
    return max(len(item.stages) + len(calls), len(item.own or ()))


def _is_captured(call: Call) -> bool:
    """What has a status on the device only, and needs no memory of its own, can be."""
    made = call.made
    if isinstance(made, Stack):
        return made.routine in ("potrf", "getrf", "getrs", "geqrf")
    return isinstance(made, Transform)
