"""Cases of `fnx/ops/shape.py` and `pieces.py`: awkward shapes, pads and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.errors import ArgumentError, AxisError, DTypeError, ShapeError
from fnx.ops.number import bits_of
from tests.cases import BAD_CASES, CASES, BadCase, Case
from tests.cases_arithmetic import numbers

Shape = tuple[int, ...]

DTYPES = (
    dtypes.bool_,
    dtypes.int8,
    dtypes.uint64,
    dtypes.bfloat16,
    dtypes.float16,
    dtypes.float32,
    dtypes.float64,
    dtypes.complex64,
)


def arrays(
    *shapes: Shape, dtype: np.dtype[Any] = dtypes.float64
) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """A generator of arrays of these shapes and one dtype."""
    return lambda rng: tuple([numbers(rng, shape, dtype) for shape in shapes])


def unary(
    primitive: str,
    shape: Shape,
    /,
    oracle: Callable[..., Any] | None = None,
    every_dtype: bool = False,
    **params: Any,
) -> None:
    """Cases of a linear operation with one operand of that shape."""
    label = f"{shape}-" + "-".join([str(value) for value in params.values()])
    label = label.replace(" ", "")
    for dtype in DTYPES if every_dtype else (dtypes.float64,):
        inexact = dtypes.is_inexact(dtype)
        CASES.append(
            Case(
                primitive,
                f"{dtypes.short(dtype)}-{label}",
                arrays(shape, dtype=dtype),
                params,
                smooth=(0,) if dtype == dtypes.float64 else (),
                linear=((0,),) if inexact else (),
                ulp=0,
                oracle=oracle,
            )
        )


# ---------------------------------------------------------------- rearrangements


def _broadcast(x: Any, shape: Shape, dims: Shape) -> Any:
    import jax  # lazy: an oracle is only called where JAX is installed

    return jax.lax.broadcast_in_dim(x, shape, dims)


for _shape, _new, _dims in [
    ((), (2, 3), ()),
    ((3,), (2, 3), (1,)),
    ((2,), (2, 3), (0,)),
    ((1, 3), (4, 2, 3), (0, 2)),
    ((1, 1), (2, 3), (0, 1)),
    ((2, 1, 3), (2, 5, 3), (0, 1, 2)),
    ((1,), (0,), (0,)),
    ((0,), (2, 0), (1,)),
    ((2, 3), (2, 3), (0, 1)),
    ((), (), ()),
]:
    unary(
        "broadcast_in_dim",
        _shape,
        _broadcast,
        every_dtype=_shape == (1, 3),
        shape=_new,
        dims=_dims,
    )
CASES.append(
    Case(
        "broadcast_in_dim",
        "scalar",
        lambda rng: (2.5,),
        {"shape": (2, 3), "dims": ()},
        oracle=_broadcast,
    )
)

for _shape, _new in [
    ((2, 3), (3, 2)),
    ((2, 3), (6,)),
    ((12,), (2, 1, 3, 2)),
    ((4, 6), (2, 3, 4)),
    ((), (1, 1)),
    ((1,), ()),
    ((0, 3), (5, 0)),
    ((2, 3), (2, 3)),
]:
    unary("reshape", _shape, every_dtype=_new == (3, 2), shape=_new)

for _shape, _dims in [
    ((2, 3), (1, 0)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 1, 4), (1, 0, 2)),
    ((0, 3), (1, 0)),
    ((3,), (0,)),
    ((), ()),
]:
    unary("permute", _shape, every_dtype=_dims == (2, 0, 1), dims=_dims)

for _shape, _axes in [
    ((5,), (0,)),
    ((2, 3), (0, 1)),
    ((2, 3, 4), (1,)),
    ((0, 3), (0, 1)),
    ((1, 3), (0,)),
    ((2,), ()),
]:
    unary("reverse", _shape, every_dtype=_shape == (2, 3), axes=_axes)

for _shape, _dtype, _axis in [
    ((4,), dtypes.int32, 0),
    ((2, 3), dtypes.float32, 1),
    ((2, 3), dtypes.bfloat16, 0),
    ((300,), dtypes.uint8, 0),
    ((300,), dtypes.int8, 0),
    ((300,), dtypes.float16, 0),
    ((0, 3), dtypes.float64, 1),
    ((1, 3), dtypes.int64, 0),
    ((3,), dtypes.complex64, 0),
]:
    CASES.append(
        Case(
            "iota",
            f"{dtypes.short(_dtype)}-{_shape}-{_axis}".replace(" ", ""),
            lambda rng: (),
            {"shape": _shape, "dtype": _dtype, "axis": _axis},
        )
    )

# What it is on the CPU it is on every platform that has no place of its own.
CASES.append(
    Case(
        "platform_index",
        "default",
        lambda rng: (),
        {"platforms": ("tpu", "rocm"), "default": True},
    )
)

# ---------------------------------------------------------------- slice and pad


def _slice(x: Any, start: Shape, stop: Shape, strides: Shape) -> Any:
    import jax  # lazy: an oracle is only called where JAX is installed

    return jax.lax.slice(x, start, stop, strides)


for _shape, _start, _stop, _strides in [
    ((6,), (1,), (5,), (1,)),
    ((7,), (0,), (7,), (3,)),
    ((8,), (1,), (8,), (3,)),
    ((3, 5), (1, 0), (3, 5), (1, 2)),
    ((3, 5), (3, 0), (3, 5), (1, 1)),
    ((3, 5), (0, 2), (3, 2), (2, 4)),
    ((0, 2), (0, 0), (0, 2), (1, 1)),
    ((1, 4), (0, 3), (1, 4), (5, 5)),
    ((2, 3), (0, 0), (2, 3), (1, 1)),
    ((), (), (), ()),
]:
    unary(
        "slice",
        _shape,
        _slice,
        every_dtype=_shape == (8,),
        start=_start,
        stop=_stop,
        strides=_strides,
    )


def _pad(x: Any, value: Any, low: Shape, high: Shape, interior: Shape) -> Any:
    import jax  # lazy: an oracle is only called where JAX is installed

    config = list(zip(low, high, interior, strict=True))
    return jax.lax.pad(x, jax.numpy.asarray(value, x.dtype), config)


def _pads(dtype: np.dtype[Any], shape: Shape, **params: Shape) -> None:
    label = "-".join([str(value) for value in (shape, *params.values())])
    inexact = dtypes.is_inexact(dtype)
    CASES.append(
        Case(
            "pad",
            f"{dtypes.short(dtype)}-{label}".replace(" ", ""),
            arrays(shape, (), dtype=dtype),
            params,
            smooth=(0, 1) if dtype == dtypes.float64 else (),
            linear=((0,), (1,), (0, 1)) if inexact else (),
            ulp=0,
            oracle=_pad,
        )
    )


for _shape, _low, _high, _interior in [
    ((3,), (1,), (2,), (0,)),
    ((3,), (0,), (0,), (2,)),
    ((4,), (-1,), (2,), (0,)),
    ((4,), (1,), (-3,), (1,)),
    ((4,), (-2,), (-3,), (2,)),
    ((4,), (-5,), (3,), (1,)),
    ((2,), (-4,), (5,), (0,)),
    ((2,), (5,), (-4,), (0,)),
    ((5,), (-1,), (-1,), (3,)),
    ((2, 3), (1, -1), (-2, 2), (1, 2)),
    ((2, 3), (0, 0), (0, 0), (0, 0)),
    ((2, 3), (-1, 0), (-1, 0), (0, 0)),
    ((0,), (2,), (1,), (3,)),
    ((0, 2), (0, 1), (0, 0), (0, 0)),
    ((1, 2), (0, 0), (0, 0), (4, 0)),
    ((), (), (), ()),
]:
    _pads(dtypes.float64, _shape, low=_low, high=_high, interior=_interior)
for _dtype in DTYPES:
    _pads(_dtype, (3, 2), low=(1, -1), high=(0, 2), interior=(1, 0))
CASES.append(
    Case(
        "pad",
        "scalar",
        lambda rng: (numbers(rng, (3,), dtypes.float32), 1.5),
        {"low": (1,), "high": (1,), "interior": (0,)},
        linear=((0,),),
        ulp=0,
        oracle=_pad,
    )
)

# ---------------------------------------------------------------- concatenate


def _joined(dtype: np.dtype[Any], *shapes: Shape, axis: int) -> None:
    label = "-".join([str(value) for value in (*shapes, axis)])
    places = tuple(range(len(shapes)))
    alone = tuple([(place,) for place in places])
    CASES.append(
        Case(
            "concatenate",
            f"{dtypes.short(dtype)}-{label}".replace(" ", ""),
            arrays(*shapes, dtype=dtype),
            {"axis": axis},
            smooth=places if dtype == dtypes.float64 else (),
            linear=(*alone, places) if dtypes.is_inexact(dtype) else (),
            ulp=0,
        )
    )


for _shapes, _axis in [
    (((2,), (3,)), 0),
    (((2, 3), (2, 1), (2, 4)), 1),
    (((1, 3), (0, 3), (2, 3)), 0),
    (((0, 3), (0, 3)), 0),
    (((2, 0), (3, 0)), 0),
    (((0, 3), (2, 3), (0, 3)), 0),
    (((2, 3, 4), (2, 1, 4)), 1),
]:
    _joined(dtypes.float64, *_shapes, axis=_axis)
_joined(dtypes.float32, (2, 3), axis=1)
for _dtype in DTYPES:
    _joined(_dtype, (3, 2), (1, 2), axis=0)
# Single numbers: a few are chosen from, many are stored one by one.
_joined(dtypes.float64, *((1, 1),) * 7, axis=1)
for _dtype in (dtypes.float64, dtypes.complex64, dtypes.bool_, dtypes.int8):
    _joined(_dtype, *((1, 1),) * 9, axis=1)

# ---------------------------------------------------------------- errors


def _bad(
    primitive: str,
    label: str,
    args: Callable[[np.random.Generator], tuple[Any, ...]],
    error: type[Exception],
    match: str,
    **params: Any,
) -> None:
    BAD_CASES.append(BadCase(primitive, label, args, error, match, params))


_x23 = arrays((2, 3))
_bad(
    "broadcast_in_dim",
    "size",
    _x23,
    ShapeError,
    r"f64\[2,3\].*size 2 does not fit size 4 of axis 0",
    shape=(4, 3),
    dims=(0, 1),
)
_bad(
    "broadcast_in_dim",
    "order",
    _x23,
    ShapeError,
    "2 axes in increasing order",
    shape=(3, 2),
    dims=(1, 0),
)
_bad(
    "broadcast_in_dim",
    "range",
    _x23,
    AxisError,
    r"dims must be in \[0, 2\)",
    shape=(2, 3),
    dims=(0, 2),
)
_bad(
    "broadcast_in_dim",
    "negative",
    arrays(()),
    ShapeError,
    "cannot be negative",
    shape=(-1,),
    dims=(),
)
_bad(
    "reshape",
    "size",
    _x23,
    ShapeError,
    r"reshape\(f64\[2,3\].*6 elements, the new shape 8",
    shape=(4, 2),
)
_bad("reshape", "negative", _x23, ShapeError, "cannot be negative", shape=(-2, -3))
_bad("permute", "twice", _x23, AxisError, "permutation of the 2 axes", dims=(0, 0))
_bad("reverse", "twice", _x23, AxisError, "named twice", axes=(1, 1))
_bad("reverse", "range", _x23, AxisError, r"axis 2 is not in \[0, 2\)", axes=(2,))
_bad(
    "slice",
    "bounds",
    _x23,
    ShapeError,
    "axis 1 needs 0 <= start <= stop <= 3",
    start=(0, 2),
    stop=(2, 4),
)
_bad(
    "slice",
    "stride",
    _x23,
    ShapeError,
    "stride of axis 0 is not positive",
    start=(0, 0),
    stop=(2, 3),
    strides=(0, 1),
)
_bad(
    "slice",
    "rank",
    _x23,
    ShapeError,
    "each of the 2 axes needs a start",
    start=(0,),
    stop=(2,),
)
_none = {"low": (0, 0), "high": (0, 0), "interior": (0, 0)}
_bad(
    "pad",
    "dtype",
    lambda rng: (np.zeros((2, 3)), np.zeros((), np.float32)),
    DTypeError,
    r"scalar of type f64\[\]",
    **_none,
)
_bad("pad", "rank", arrays((2,), ()), ShapeError, "each of the 1 axes", **_none)
_bad(
    "pad",
    "interior",
    arrays((2, 3), ()),
    ShapeError,
    "interior padding cannot be negative",
    **{**_none, "interior": (-1, 0)},
)
_bad(
    "pad",
    "cut",
    arrays((2, 3), ()),
    ShapeError,
    r"cuts off more than there is: the shape would be \(-1, 3\)",
    **{**_none, "low": (-3, 0)},
)
_bad("concatenate", "none", lambda rng: (), ShapeError, "at least one", axis=0)
_bad(
    "concatenate",
    "shape",
    arrays((2, 3), (3, 2)),
    ShapeError,
    "equal except along the axis",
    axis=0,
)
_bad("concatenate", "axis", _x23, AxisError, r"axis 2 is not in \[0, 2\)", axis=2)
_bad(
    "concatenate",
    "dtype",
    lambda rng: (np.zeros(2), np.zeros(2, np.float32)),
    DTypeError,
    "the dtypes differ",
    axis=0,
)
_bad(
    "iota",
    "bool",
    lambda rng: (),
    DTypeError,
    "an index is no bool",
    shape=(2,),
    dtype=dtypes.bool_,
    axis=0,
)
_bad(
    "iota",
    "axis",
    lambda rng: (),
    AxisError,
    r"axis 0 is not in \[0, 0\)",
    shape=(),
    dtype=dtypes.int32,
    axis=0,
)
_bad(
    "iota",
    "negative",
    lambda rng: (),
    ShapeError,
    "cannot be negative",
    shape=(-2,),
    dtype=dtypes.int32,
    axis=0,
)
_bad(
    "platform_index",
    "nothing",
    lambda rng: (),
    ArgumentError,
    "nothing to choose",
    platforms=(),
    default=False,
)

for dtype in (dtypes.float32, dtypes.float64, dtypes.int8, dtypes.bool_):
    CASES.append(
        Case(
            "number",
            dtypes.short(dtype),
            lambda rng: (),
            {"bits": bits_of(np.ones((), dtype)), "dtype": dtype, "weak": False},
        )
    )
_bad(
    "number",
    "complex",
    lambda rng: (),
    DTypeError,
    "more parts than one",
    bits=0,
    dtype=dtypes.complex64,
    weak=False,
)
