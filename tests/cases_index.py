"""Cases of `fnx/ops/index.py`, `gather.py` and `scatter.py`: indices out of bounds in
every mode, duplicates, batching dims, empty windows. JAX is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.errors import DTypeError, OptionError, ShapeError
from fnx.ops.window_dims import WindowDims
from tests.cases import BAD_CASES, CASES, Arrays, BadCase, Case
from tests.cases_arithmetic import numbers

Shape = tuple[int, ...]
Generator = Callable[[np.random.Generator], Arrays]

DTYPES = (
    dtypes.bool_,
    dtypes.int16,
    dtypes.uint8,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.complex64,
)
KINDS = {
    "scatter": "set",
    "scatter_add": "add",
    "scatter_mul": "mul",
    "scatter_min": "min",
    "scatter_max": "max",
}

# ---------------------------------------------------------------- dynamic slices


def _dynamic_slice(x: Any, *starts: Any, sizes: Shape) -> Any:
    import jax  # lazy: an oracle is only called where JAX is installed

    # Its primitive clips; the function above it wraps negative starts first.
    lows = [jax.numpy.maximum(start, 0) for start in starts]
    return jax.lax.dynamic_slice(x, lows, sizes)


def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    import jax  # lazy: an oracle is only called where JAX is installed

    lows = [jax.numpy.maximum(start, 0) for start in starts]
    return jax.lax.dynamic_update_slice(x, update, lows)


def _sliced(
    shape: Shape,
    sizes: Shape,
    starts: Sequence[int],
    dtype: np.dtype[Any] = dtypes.float64,
    index: Any = np.int32,
) -> None:
    label = f"{dtypes.short(dtype)}-{shape}-{sizes}-{starts}-{np.dtype(index)}"
    label = label.replace(" ", "")
    smooth = dtype == dtypes.float64
    # XLA clips with a bound that wraps in the dtype of the start.
    fits = max(shape, default=0) <= np.iinfo(index).max
    inexact = dtypes.is_inexact(dtype)

    def places(rng: np.random.Generator) -> list[Any]:
        moved = [start + int(rng.integers(0, 2)) for start in starts]
        return [np.array(start, index) for start in moved]

    CASES.append(
        Case(
            "dynamic_slice",
            label,
            lambda rng: (numbers(rng, shape, dtype), *places(rng)),
            {"sizes": sizes},
            smooth=(0,) if smooth else (),
            linear=((0,),) if inexact else (),
            ulp=0,
            oracle=_dynamic_slice if fits else None,
        )
    )
    CASES.append(
        Case(
            "dynamic_update_slice",
            label,
            lambda rng: (
                numbers(rng, shape, dtype),
                numbers(rng, sizes, dtype),
                *places(rng),
            ),
            smooth=(0, 1) if smooth else (),
            linear=((0,), (1,), (0, 1)) if inexact else (),
            ulp=0,
            oracle=_dynamic_update_slice if fits else None,
        )
    )


for _shape, _sizes, _starts in [
    ((6,), (3,), (1,)),
    ((6,), (3,), (5,)),
    ((6,), (3,), (-4,)),
    ((4, 5), (2, 3), (1, 4)),
    ((4, 5), (4, 5), (3, -3)),
    ((4, 5), (1, 5), (2, 0)),
    ((3, 2), (0, 2), (1, 0)),
    ((0, 2), (0, 1), (0, 1)),
    ((1, 3), (1, 2), (0, 1)),
    ((), (), ()),
]:
    _sliced(_shape, _sizes, _starts)
for _dtype in DTYPES:
    _sliced((4, 5), (2, 3), (1, 1), _dtype)
for _index in (np.int8, np.uint8, np.uint64, np.int64):
    _sliced((300,), (2,), (100,), index=_index)
CASES.append(
    Case(
        "dynamic_slice",
        "python-starts",
        lambda rng: (rng.standard_normal((4, 5)), np.array(2, np.int64), 1),
        {"sizes": (2, 2)},
        linear=((0,),),
    )
)
CASES.append(
    Case(
        "dynamic_update_slice",
        "python-starts",
        lambda rng: (rng.standard_normal((4, 5)), rng.standard_normal((2, 2)), 3, 1),
        linear=((0,), (1,), (0, 1)),
    )
)

# ---------------------------------------------------------------- gather, scatter


def _gather(
    operand: Any,
    indices: Any,
    *,
    dims: WindowDims,
    sizes: Shape,
    mode: str = "clip",
    fill_value: Any = None,
) -> Any:
    import jax  # lazy: an oracle is only called where JAX is installed

    numbers = jax.lax.GatherDimensionNumbers(
        dims.offset_dims,
        dims.collapsed_slice_dims,
        dims.start_index_map,
        dims.operand_batching_dims,
        dims.start_indices_batching_dims,
    )
    return jax.lax.gather(
        operand, indices, numbers, sizes, mode=mode, fill_value=fill_value
    )


def _scatter(name: str) -> Callable[..., Any]:
    def oracle(
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dims: WindowDims,
        mode: str = "clip",
        unique: bool = False,
    ) -> Any:
        import jax  # lazy: an oracle is only called where JAX is installed

        numbers = jax.lax.ScatterDimensionNumbers(
            dims.offset_dims,
            dims.collapsed_slice_dims,
            dims.start_index_map,
            dims.operand_batching_dims,
            dims.start_indices_batching_dims,
        )
        return getattr(jax.lax, name)(
            operand, indices, updates, numbers, unique_indices=unique, mode=mode
        )

    return oracle


def _vectors(
    rng: np.random.Generator, shape: Shape, ends: Shape, dtype: Any, margin: int
) -> Any:
    """Index vectors in [-margin, end + margin) for each of their entries."""
    columns = [rng.integers(-margin, end + margin, shape) for end in ends]
    stacked = np.stack(columns, -1) if columns else np.zeros((*shape, 0))
    return stacked.astype(dtype)


def _windows(
    label: str,
    operand: Shape,
    batch: Shape,
    dims: WindowDims,
    sizes: Shape,
    *,
    dtype: np.dtype[Any] = dtypes.float64,
    index: Any = np.int32,
    modes: Sequence[str] = ("clip", "fill", "promise_in_bounds"),
    margin: int = 2,
    kinds: Sequence[str] = tuple(KINDS),
) -> None:
    """A gather in each mode, and the scatters into the same windows."""
    ends = tuple([operand[d] - sizes[d] + 1 for d in dims.start_index_map])
    window = iter([sizes[d] for d in dims.window_axes(len(operand))])
    outer = iter(batch)
    ndim = len(batch) + len(dims.offset_dims)
    shape = tuple(
        [next(window if d in dims.offset_dims else outer) for d in range(ndim)]
    )
    smooth, inexact = dtype == dtypes.float64, dtypes.is_inexact(dtype)
    for mode in modes:
        reach = 0 if mode == "promise_in_bounds" else margin

        def read(rng: np.random.Generator, reach: int = reach) -> Arrays:
            return (
                numbers(rng, operand, dtype),
                _vectors(rng, batch, ends, index, reach),
            )

        def write(rng: np.random.Generator, reach: int = reach) -> Arrays:
            x, indices = read(rng, reach)
            updates = numbers(rng, shape, dtype)
            if smooth:  # no two are so close that a difference could exchange them
                x, updates = [np.round(a, 3) + d for a, d in ((x, 0), (updates, 5e-4))]
            return x, indices, updates

        name = f"{label}-{dtypes.short(dtype)}-{np.dtype(index)}-{mode}"
        fill = 1 if mode == "fill" else None
        params = {"dims": dims, "mode": mode}
        CASES.append(
            Case(
                "gather",
                name,
                read,
                {**params, "sizes": sizes, "fill_value": fill},
                smooth=(0,) if smooth else (),
                linear=((0,),) if inexact else (),
                ulp=0,
                oracle=None if 0 in operand else _gather,
            )
        )
        for kind in kinds:
            if kind in ("scatter_mul", "scatter_add") and dtypes.is_bool(dtype):
                continue
            if kind in ("scatter_min", "scatter_max") and dtype.kind in "bc":
                continue
            linear = kind in ("scatter", "scatter_add")
            # JAX leaves the order of writes open, and its sums round at every step.
            doubtful = kind == "scatter" or (dtype.itemsize == 2 and inexact)
            # It forgets the mode in the derivative of extremes.
            doubtful |= mode == "clip" and kind in ("scatter_min", "scatter_max")
            # Its compiler fails, or it refuses, where there is nothing to index.
            doubtful |= not dims.start_index_map or 0 in operand
            # It has no derivative of a product with duplicates.
            doubtful |= kind == "scatter_mul"
            CASES.append(
                Case(
                    kind,
                    name,
                    write,
                    {**params, "unique": False},
                    smooth=(0, 2) if smooth else (),
                    linear=((0,), (2,), (0, 2)) if linear and inexact else (),
                    ulp=20,
                    oracle=None if doubtful else _scatter(kind),
                )
            )


_windows("points", (7,), (4,), WindowDims((), (0,), (0,)), (1,))
_windows("point", (7,), (), WindowDims((), (0,), (0,)), (1,))
_windows("scalar", (), (3,), WindowDims((), (), ()), ())
_windows("rows", (5, 3), (2, 3), WindowDims((2,), (0,), (0,)), (1, 3))
_windows("columns", (3, 5), (4,), WindowDims((0,), (1,), (1,)), (3, 1))
_windows("pairs", (4, 5), (6,), WindowDims((), (0, 1), (0, 1)), (1, 1))
_windows("swapped", (4, 5), (6,), WindowDims((), (0, 1), (1, 0)), (1, 1))
_windows("parts", (6, 5), (4,), WindowDims((1, 2), (), (0, 1)), (2, 3))
_windows("parts-first", (6, 5), (4,), WindowDims((0, 1), (), (0, 1)), (3, 5))
_windows("parts-around", (6, 5), (3,), WindowDims((0, 2), (), (1, 0)), (2, 2))
_windows("middle", (3, 6, 2), (2, 2), WindowDims((0, 3), (1,), (1,)), (3, 1, 2))
_windows("empty-batch", (5, 3), (0,), WindowDims((1,), (0,), (0,)), (1, 3))
_windows("empty-window", (5, 3), (2,), WindowDims((1,), (0,), (0,)), (1, 0))
_windows("one", (1, 3), (3,), WindowDims((1,), (0,), (0,)), (1, 3))
_along = WindowDims((), (1,), (1,), (0, 2), (0, 2))
_windows("along", (3, 5, 2), (3, 4, 2), _along, (1, 1, 1))
_crossed = WindowDims((1,), (1,), (1,), (0, 2), (2, 0))
_windows("crossed", (3, 5, 2, 4), (2, 3, 3), _crossed, (1, 1, 1, 2))
_rows = WindowDims((1,), (0,), (0,))
_windows("nothing", (0, 3), (2,), _rows, (1, 3), modes=("fill",), margin=1)
for _dtype in DTYPES:
    _windows("rows", (5, 3), (6,), _rows, (1, 3), dtype=_dtype, modes=("clip", "fill"))
for _index in (np.int8, np.uint8, np.int64, np.uint64):
    _points = WindowDims((), (0,), (0,))
    _margin = 2 if np.dtype(_index).kind == "i" else 0
    _windows(
        "long",
        (300,) if _index != np.int8 else (100,),
        (5,),
        _points,
        (1,),
        index=_index,
        modes=("clip", "fill"),
        margin=_margin,
        kinds=("scatter_add",),
    )


def _default_fill(dtype: np.dtype[Any]) -> None:
    CASES.append(
        Case(
            "gather",
            f"default-fill-{dtypes.short(dtype)}",
            lambda rng: (numbers(rng, (3,), dtype), np.array([[1], [3], [-1]])),
            {"dims": _points, "sizes": (1,), "mode": "fill", "fill_value": None},
            oracle=_gather,
        )
    )


for _dtype in DTYPES:
    _default_fill(_dtype)


def _written(label: str, name: str, args: Generator, unique: bool = False) -> None:
    """Scatters to single elements, of which some are written several times."""
    linear = name in ("scatter", "scatter_add")
    params = {"dims": _points, "mode": "clip", "unique": unique}
    # JAX leaves the order of writes open, and cannot derive products with duplicates.
    doubtful = not unique and name in ("scatter", "scatter_mul")
    CASES.append(
        Case(
            name,
            label,
            args,
            params,
            smooth=(0, 2),
            linear=((0,), (2,), (0, 2)) if linear else (),
            oracle=None if doubtful else _scatter(name),
        )
    )


_PLACES = np.array([[1], [3], [1], [1], [0], [3]])
for _name in KINDS:
    _written(
        "duplicates",
        _name,
        lambda rng: (rng.standard_normal(5), _PLACES, rng.standard_normal(6)),
    )
    _written(
        "unique",
        _name,
        lambda rng: (
            rng.standard_normal(5),
            rng.permutation(5)[:3, None],
            rng.standard_normal(3),
        ),
        unique=True,
    )
for _label, _factors in {
    "one-zero": [2.0, 0.0, 3.0, 4.0, 5.0, 6.0],
    "two-zeros": [0.0, 2.0, 3.0, 0.0, 5.0, 6.0],
    "zeros": [0.0] * 6,
}.items():
    _written(
        _label,
        "scatter_mul",
        lambda rng, factors=_factors: (
            np.array([2.0, 0.0, 1.0, 3.0, 0.0]),
            _PLACES,
            np.array(factors),
        ),
    )
CASES.append(
    Case(
        "scatter_add",
        "f16-accumulates-wide",
        lambda rng: (
            np.zeros(2, np.float16),
            np.zeros((5000, 1), np.int32),
            np.ones(5000, np.float16),
        ),
        {"dims": _points, "mode": "clip", "unique": False},
    )
)

# ---------------------------------------------------------------- errors


def _bad(
    primitive: str,
    label: str,
    args: Generator,
    error: type[Exception],
    match: str,
    **params: Any,
) -> None:
    BAD_CASES.append(BadCase(primitive, label, args, error, match, params))


def _given(*arrays: Any) -> Generator:
    return lambda rng: arrays


_x = np.zeros((4, 5))
_i = np.array(0)
_bad(
    "dynamic_slice", "count", _given(_x, _i), ShapeError, "needs 2 starts", sizes=(1, 1)
)
_bad(
    "dynamic_slice",
    "sizes",
    _given(_x, _i, _i),
    ShapeError,
    r"at most those of the operand, \(4, 5\)",
    sizes=(1, 6),
)
_bad(
    "dynamic_slice",
    "vector",
    _given(_x, np.zeros(1, int), _i),
    ShapeError,
    "starts must be scalars",
    sizes=(1, 1),
)
_bad(
    "dynamic_slice",
    "float",
    _given(_x, np.array(0.0), np.array(0.0)),
    DTypeError,
    "starts must be integers",
    sizes=(1, 1),
)
_bad(
    "dynamic_slice",
    "mixed",
    _given(_x, np.array(0, np.int8), _i),
    DTypeError,
    "starts' dtypes differ",
    sizes=(1, 1),
)
_bad(
    "dynamic_update_slice",
    "large",
    _given(_x, np.zeros((5, 5)), _i, _i),
    ShapeError,
    "update is larger than the operand",
)
_bad(
    "dynamic_update_slice",
    "dtype",
    _given(_x, np.zeros((1, 1), np.float32), _i, _i),
    DTypeError,
    "the dtypes differ",
)


def _misfit(label: str, match: str, dims: WindowDims, sizes: Shape = (1, 5)) -> None:
    args = _given(_x, np.zeros((3, 1), int))
    _bad("gather", label, args, ShapeError, match, dims=dims, sizes=sizes)


_misfit("map", "index vectors have 1 entries", WindowDims((1,), (0,), (0, 1)))
_misfit("sizes", "one size for each", WindowDims((1,), (0,), (0,)), (1,))
_misfit("twice", "must be different axes", WindowDims((1,), (0, 0), (0,)))
_misfit("range", "must be different axes", WindowDims((1,), (2,), (0,)))
_misfit("order", "increasing order", WindowDims((2, 1), (), (0,)))
_misfit("offset", "offset_dims must be 1 axes", WindowDims((), (0,), (0,)))
_misfit(
    "size", r"size of axis 1 must be in \[0, 5\]", WindowDims((1,), (0,), (0,)), (1, 6)
)
_misfit(
    "collapsed", "axis 0, collapsed or batching", WindowDims((1,), (0,), (0,)), (2, 5)
)
_misfit("batching", "equally many batching dims", WindowDims((1,), (), (1,), (0,)))
_misfit("batch-size", "differ in size", WindowDims((1,), (), (1,), (0,), (0,)), (1, 2))
_bad(
    "gather",
    "float",
    _given(_x, np.zeros((3, 1))),
    DTypeError,
    "indices must be integers",
    dims=_rows,
    sizes=(1, 5),
)
_bad(
    "gather",
    "rank",
    _given(_x, np.array(0)),
    ShapeError,
    "need a last axis",
    dims=_rows,
    sizes=(1, 5),
)
_bad(
    "gather",
    "mode",
    _given(_x, np.zeros((3, 1), int)),
    OptionError,
    "mode 'wrap' is none of clip",
    dims=_rows,
    sizes=(1, 5),
    mode="wrap",
)
_bad(
    "gather",
    "empty",
    _given(np.zeros((0, 5)), np.zeros((3, 1), int)),
    ShapeError,
    "no elements to index",
    dims=_rows,
    sizes=(1, 5),
)
for _name in KINDS:
    _bad(
        _name,
        "dtype",
        _given(_x, np.zeros((3, 1), int), np.zeros((3, 5), np.float32)),
        DTypeError,
        "the dtypes differ",
        dims=_rows,
    )
    _bad(
        _name,
        "rank",
        _given(_x, np.zeros((3, 1), int), np.zeros(5)),
        ShapeError,
        "updates need 1 axes of the indices",
        dims=_rows,
    )
    _bad(
        _name,
        "shape",
        _given(_x, np.zeros((3, 1), int), np.zeros((2, 5))),
        ShapeError,
        r"shape of the updates must be \(3, 5\)",
        dims=_rows,
    )
_bad(
    "scatter_add",
    "bool",
    _given(_x > 0, np.zeros((3, 1), int), np.zeros((3, 5), bool)),
    DTypeError,
    "bool is not supported",
    dims=_rows,
)
