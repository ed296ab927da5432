"""Cases of `fnx/ops/reduce.py` and `fnx/ops/cumulative.py`: ties, zeros in products,
NaN, empty axes, 16-bit accumulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.errors import AxisError, DTypeError, ShapeError
from tests.cases import BAD_CASES, CASES, Arrays, BadCase, Case
from tests.cases_arithmetic import numbers

Shape = tuple[int, ...]
Generator = Callable[[np.random.Generator], Arrays]

SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((3, 4, 2), (1,)),
    ((3, 4, 2), (0, 2)),
    ((3, 4), (0, 1)),
    ((5,), (0,)),
    ((2, 1, 3), (1,)),
    ((2, 3), ()),
    ((0, 3), (1,)),
    ((0, 3), (0,)),
    ((), ()),
)
REALS = (
    dtypes.int8,
    dtypes.int64,
    dtypes.uint32,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
)


def distinct(*shape: int, dtype: Any = np.float64) -> Generator:
    """Different numbers, at least 0.1 apart, in random order."""
    size = int(np.prod(shape))

    def args(rng: np.random.Generator) -> Arrays:
        steps = rng.permutation(size) - size / 2 + rng.uniform(0.1, 0.4, size)
        return (np.asarray(steps.reshape(shape) / 2, dtype),)

    return args


def constant(values: Any, dtype: Any = np.float64) -> Generator:
    """Always the same array."""
    return lambda rng: (np.asarray(values, dtype),)


def random(shape: Shape, dtype: np.dtype[Any] = dtypes.float64) -> Generator:
    """Random numbers."""
    return lambda rng: (numbers(rng, shape, dtype),)


def case(
    primitive: str, label: str, args: Generator, *, smooth: bool = False, **params: Any
) -> None:
    """One case; the sums are linear."""
    linear = primitive in ("reduce_sum", "cumsum")
    inexact = dtypes.is_inexact(args(np.random.default_rng(0))[0].dtype)
    shown = "-".join([str(value) for value in params.values()]).replace(" ", "")
    CASES.append(
        Case(
            primitive,
            f"{label}-{shown}",
            args,
            params,
            smooth=(0,) if smooth else (),
            linear=((0,),) if linear and inexact else (),
            ulp=40,
            oracle=_ORACLES.get(primitive),
        )
    )


def _lax(function: str, **defaults: Any) -> Callable[..., Any]:
    def oracle(x: Any, **params: Any) -> Any:
        import jax  # lazy: an oracle is only called where JAX is installed

        return getattr(jax.lax, function)(x, **defaults, **params)

    return oracle


def _lax_reduce(function: str) -> Callable[..., Any]:
    def oracle(x: Any, axes: Shape) -> Any:
        import jax  # lazy: an oracle is only called where JAX is installed

        return getattr(jax.lax, function)(x, axes)

    return oracle


_ORACLES: dict[str, Callable[..., Any]] = {
    "reduce_max": _lax_reduce("reduce_max"),
    "reduce_min": _lax_reduce("reduce_min"),
    "reduce_prod": _lax_reduce("reduce_prod"),
    "reduce_or": _lax_reduce("reduce_or"),
    "reduce_and": _lax_reduce("reduce_and"),
    "argmax": _lax("argmax"),
    "argmin": _lax("argmin"),
    "cumsum": _lax("cumsum"),
    "cumprod": _lax("cumprod"),
    "cumlogsumexp": _lax("cumlogsumexp"),
}

# ---------------------------------------------------------------- reductions

for _shape, _axes in SHAPES:
    _label = f"f64-{_shape}".replace(" ", "")
    for _name in ("reduce_sum", "reduce_prod"):
        case(_name, _label, random(_shape), smooth=True, axes=_axes)
    for _name in ("reduce_max", "reduce_min"):
        _empty = _shape == (0, 3) and _axes == (0,)
        case(_name, _label, distinct(*_shape), smooth=not _empty, axes=_axes)
    for _name in ("reduce_or", "reduce_and"):
        for _dtype in (dtypes.bool_, dtypes.int16, dtypes.uint64):
            _label = f"{dtypes.short(_dtype)}-{_shape}".replace(" ", "")
            case(_name, _label, random(_shape, _dtype), axes=_axes)
for _dtype in REALS:
    for _name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
        case(_name, dtypes.short(_dtype), random((3, 5), _dtype), axes=(1,))
        case(_name, f"{dtypes.short(_dtype)}-empty", random((0, 2), _dtype), axes=(0,))
for _name in ("reduce_sum", "reduce_prod"):
    case(_name, "c128", random((3, 4), dtypes.complex128), smooth=True, axes=(0,))
    case(_name, "c64", random((3, 4), dtypes.complex64), axes=(0, 1))
    case(_name, "u8-wraps", constant([200, 100, 7], np.uint8), axes=(0,))
# 4096 is where float16 cannot count on by ones, 256 where bfloat16 cannot.
case("reduce_sum", "f16-long", constant(np.ones(5000), np.float16), axes=(0,))
case("reduce_sum", "bf16-long", constant(np.ones(3000), dtypes.bfloat16), axes=(0,))
case("reduce_sum", "f32-wide", random((2, 1000), dtypes.float32), axes=(1,))
case("reduce_sum", "f32-tall", random((1000, 2), dtypes.float32), axes=(0,))
for _values in (
    [2.0, 0.0, 3.0, 4.0],
    [2.0, 0.0, 0.0, 4.0],
    [0.0] * 3,
    [0.0],
    [3.0] * 7,
):
    case("reduce_prod", f"{_values}", constant(_values), smooth=True, axes=(0,))
case(
    "reduce_prod",
    "zeros-in-rows",
    constant([[0.0, 2.0], [0.0, 0.0], [3.0, 4.0]]),
    smooth=True,
    axes=(0, 1),
)
for _name in ("reduce_max", "reduce_min"):
    case(_name, "nan", constant([[1.0, np.nan], [np.inf, -np.inf]]), axes=(1,))
    case(_name, "ties", constant([[1.0, 1.0, -2.0], [-3.0, 0.5, -3.0]]), axes=(1,))
    case(_name, "zeros", constant([[0.0, 0.0], [-0.0, -0.0]]), axes=(1,))

for _name in ("argmax", "argmin"):
    for _dtype in (*REALS, dtypes.bool_):
        _label = dtypes.short(_dtype)
        case(_name, _label, random((3, 5), _dtype), axis=1, index_dtype=dtypes.int32)
    for _shape, _axis in [((4,), 0), ((3, 4, 2), 1), ((3, 1), 1), ((0, 2), 1)]:
        _label = f"f64-{_shape}".replace(" ", "")
        case(_name, _label, random(_shape), axis=_axis, index_dtype=dtypes.int64)
    for _label, _values in {
        "ties": [1.0, 3.0, -1.0, 3.0, -1.0],
        "nan": [1.0, np.nan, 3.0, np.nan, -np.inf],
        "zeros": [-0.0, 0.0, -0.0],
    }.items():
        case(_name, _label, constant(_values), axis=0, index_dtype=dtypes.uint8)

# ---------------------------------------------------------------- cumulative

_CUMULATIVE: tuple[tuple[Shape, int], ...] = (
    ((7,), 0),
    ((3, 4, 2), 1),
    ((2, 5), 1),
    ((1,), 0),
    ((2, 1), 1),
    ((0, 2), 0),
    ((0, 2), 1),
)
for _reverse in (False, True):
    for _shape, _axis in _CUMULATIVE:
        _label = f"f64-{_shape}".replace(" ", "")
        for _name in ("cumsum", "cumprod", "cumlogsumexp"):
            _args = random(_shape)
            case(_name, _label, _args, smooth=True, axis=_axis, reverse=_reverse)
        for _name in ("cummax", "cummin"):
            _args = distinct(*_shape)
            case(_name, _label, _args, smooth=True, axis=_axis, reverse=_reverse)
    for _dtype in REALS:
        for _name in ("cumsum", "cumprod", "cummax", "cummin"):
            _label = dtypes.short(_dtype)
            case(_name, _label, random((3, 5), _dtype), axis=1, reverse=_reverse)
    for _values in ([2.0, 0.0, 3.0, 0.0, 5.0], [0.0] * 3):
        case(
            "cumprod",
            f"{_values}",
            constant(_values),
            smooth=True,
            axis=0,
            reverse=_reverse,
        )
for _name in ("cumsum", "cumprod"):
    _args = random((2, 5), dtypes.complex128)
    case(_name, "c128", _args, smooth=True, axis=1, reverse=False)
for _name in ("cummax", "cummin"):
    _args = constant([1.0, -2.0, np.nan, 3.0])
    case(_name, "nan", _args, axis=0, reverse=False)
for _dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
    _args = random((2, 5), _dtype)
    case("cumlogsumexp", dtypes.short(_dtype), _args, axis=1, reverse=False)
case(
    "cumlogsumexp",
    "infinite",
    constant([-np.inf, -np.inf, 1.0, 1000.0, -np.inf, np.inf, 2.0]),
    axis=0,
    reverse=False,
)

# ---------------------------------------------------------------- errors


def _bad(
    primitive: str, label: str, error: type[Exception], match: str, **params: Any
) -> None:
    args = params.pop("args", random((2, 3)))
    BAD_CASES.append(BadCase(primitive, label, args, error, match, params))


_bad("reduce_sum", "axis", AxisError, r"axis 2 is not in \[0, 2\)", axes=(2,))
_bad("reduce_sum", "order", AxisError, "increasing order", axes=(1, 0))
_bad("reduce_max", "twice", AxisError, "named twice", axes=(0, 0))
_bool = random((2,), dtypes.bool_)
_bad("reduce_sum", "bool", DTypeError, "takes int, uint", args=_bool, axes=(0,))
_bad("reduce_or", "float", DTypeError, "takes bool, int, uint", axes=(0,))
_complex = random((2,), dtypes.complex64)
_bad("reduce_max", "complex", DTypeError, "complex64", args=_complex, axes=(0,))
for _name in ("argmax", "argmin"):
    _bad(
        _name,
        "empty",
        ShapeError,
        "axis 0 has no elements",
        args=random((0, 3)),
        axis=0,
        index_dtype=dtypes.int32,
    )
    _bad(
        _name,
        "index",
        DTypeError,
        "an index is an integer",
        axis=0,
        index_dtype=dtypes.float32,
    )
_bad(
    "argmax",
    "range",
    DTypeError,
    "the indices do not fit",
    args=random((200,)),
    axis=0,
    index_dtype=dtypes.int8,
)
_bad("cumsum", "axis", AxisError, "axis 2 is not", axis=2, reverse=False)
_bad("cumsum", "scalar", AxisError, "axis 0", args=random(()), axis=0, reverse=False)
_bad("cumprod", "bool", DTypeError, "bool", args=_bool, axis=0, reverse=False)
_int = random((3,), dtypes.int32)
_bad("cumlogsumexp", "int", DTypeError, "takes float", args=_int, axis=0, reverse=False)
