"""Cases of `fnx/ops/arithmetic.py`, and the generators that all elementwise cases use.

`register` makes the cases of one elementwise primitive: awkward values and awkward
shapes in every dtype that it supports, and smooth points for derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.core.primitive import primitive as named
from fnx.ops.families import kind
from tests.cases import BAD_CASES, CASES, Arrays, BadCase, Case

DType = np.dtype[Any]
Interval = tuple[float, float]

SHAPES = ((3, 1, 5), (7,), (), (0,), (1,))
# JAX compiles each case, so it is asked about one dtype of a kind; the smooth cases ask
# about complex numbers.
_WITH_ORACLE = (
    dtypes.bool_,
    dtypes.int8,
    dtypes.uint32,
    dtypes.bfloat16,
    dtypes.float32,
)
_SMOOTH = (dtypes.float64, dtypes.complex128)


# ---------------------------------------------------------------- generators


def numbers(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: DType,
    interval: Interval = (-2.0, 2.0),
) -> Any:
    """Random numbers: floats from the interval, small integers, booleans."""
    if dtypes.is_bool(dtype):
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if dtypes.is_integer(dtype):
        low = -9 if dtypes.is_signed(dtype) else 0
        return np.asarray(rng.integers(low, 10, shape), dtype)
    x = rng.uniform(*interval, shape)
    if dtypes.is_complex(dtype):
        x = x + 1j * rng.uniform(0.2, 0.9, shape)
    return np.asarray(x, dtype)


def specials(dtype: DType, plain: bool = False) -> Any:
    """Zeros, ones, extremes, infinities, NaN of a dtype; subnormals, unless plain."""
    if dtypes.is_bool(dtype):
        return np.array([False, True])
    if dtypes.is_integer(dtype):
        info, bits = np.iinfo(dtype), dtype.itemsize * 8
        values = [0, 1, 2, 3, 7, bits - 1, bits, info.max, info.max - 1]
        values += [-1, -2, -7, info.min, info.min + 1] if info.min < 0 else []
        return np.array(values, dtype)
    if dtypes.is_complex(dtype):
        parts = np.array([0.0, 1.0, -1.0, 0.5, -2.5], dtypes.real_dtype(dtype))
        return (parts[:, None] + 1j * parts[[0, 1, 3, 4]]).ravel().astype(dtype)
    info = ml_dtypes.finfo(dtype)
    values = [0.0, 0.5, 1.0, 1.5, 2.5, 3.5, 100.0, np.inf]
    values += [float(info.max), float(info.smallest_normal), float(info.eps)]
    if not plain:
        values += [float(info.smallest_subnormal), float(info.smallest_normal) / 2]
    return np.array([*values, *[-x for x in values], np.nan], dtype)


def grid(
    dtype: DType, arity: int, plain: bool = False, signed_zeros: bool = True
) -> Arrays:
    """Every combination of special values, as flat arrays."""
    values = specials(dtype, plain)
    if not signed_zeros:
        values = values[~((values == 0) & np.signbit(values.real.astype(np.float64)))]
    if arity > 2:
        values = values[:: len(values) // 9 + 1]
    return tuple([x.ravel() for x in np.meshgrid(*[values] * arity)])


def supported(name: str) -> list[DType]:
    """The dtypes that an elementwise primitive takes."""
    kinds = named(name).kinds  # type: ignore[attr-defined]
    return [dtype for dtype in dtypes.SUPPORTED if kind(dtype) in kinds]


# ---------------------------------------------------------------- registration


def register(
    name: str,
    arity: int = 1,
    *,
    intervals: Sequence[Interval] | Interval = (-2.0, 2.0),
    smooth: tuple[int, ...] = (),
    linear: tuple[tuple[int, ...], ...] = (),
    oracle: Callable[..., Any] | None = None,
    params: Mapping[str, Any] | None = None,
    label: str = "",
    only: Sequence[DType] | None = None,
    signed_zeros: bool = True,
    ulp: float = 4,
    oracle_ulp: float = 4,
) -> None:
    """The cases of one elementwise primitive whose operands have one dtype.

    The oracle is shown no subnormal numbers, which XLA flushes to zero, and negative
    zeros only if `signed_zeros`; `oracle_ulp` is what it errs by itself, and `ulp` what
    the compiled function may.
    """
    each = intervals if isinstance(intervals[0], tuple) else [intervals] * arity
    params = params or {}

    def random(dtype: DType, shape: tuple[int, ...]) -> Callable[..., Arrays]:
        return lambda rng: tuple([numbers(rng, shape, dtype, i) for i in each])

    def special(dtype: DType, plain: bool = False) -> Callable[..., Arrays]:
        return lambda rng: grid(dtype, arity, plain, signed_zeros or not plain)

    for n, dtype in enumerate(only or supported(name)):
        prefix = label + dtypes.short(dtype)
        shape = SHAPES[n % len(SHAPES)]
        cases = [
            Case(name, f"{prefix}-values", special(dtype), params, ulp=ulp),
            Case(name, f"{prefix}-{shape}", random(dtype, shape), params, ulp=ulp),
        ]
        if oracle is not None and dtype in _WITH_ORACLE:
            values = special(dtype, plain=True)
            cases.append(
                Case(
                    name, f"{prefix}-jax", values, params, ulp=oracle_ulp, oracle=oracle
                )
            )
        if smooth and dtype in _SMOOTH:
            cases.append(
                Case(
                    name,
                    f"{prefix}-smooth",
                    random(dtype, (5,)),
                    params,
                    smooth,
                    linear,
                    oracle_ulp,
                    oracle,
                )
            )
        CASES.extend(cases)


def register_scalar(name: str, interval: Interval, scalar: float, side: int) -> None:
    """A binary primitive of an array and a Python scalar, which is a literal."""

    def args(rng: np.random.Generator) -> Arrays:
        x = numbers(rng, (5,), dtypes.float64, interval)
        return (x, scalar) if side else (scalar, x)

    label = f"{'right' if side else 'left'}-scalar-{scalar}"
    CASES.append(Case(name, label, args, smooth=(1 - side,)))


def register_bad(name: str, arity: int, wrong: DType | None = None) -> None:
    """Operands of different shapes or dtypes, or of a dtype that is not taken."""
    dtype = supported(name)[0]
    x, y = np.ones(3, dtype), np.ones(4, dtype)
    rest = (x,) * (arity - 2)
    if arity > 1:
        other = np.ones(3, next(d for d in dtypes.SUPPORTED if d != dtype))
        BAD_CASES.extend(
            [
                _bad(name, "shapes", (x, y, *rest), errors.ShapeError, "equal shapes"),
                _bad(name, "dtypes", (x, other, *rest), errors.DTypeError, "equal"),
            ]
        )
    if wrong is not None:
        operands = (np.ones(3, wrong),) * arity
        BAD_CASES.append(
            _bad(name, "kind", operands, errors.DTypeError, "is not supported")
        )


def _bad(
    name: str, label: str, args: Arrays, error: type[Exception], match: str
) -> BadCase:
    return BadCase(name, label, lambda rng: args, error, match)


def lax(name: str) -> Callable[..., Any]:
    """The oracle: a function of `jax.lax`, without the params."""

    def call(*args: Any, **params: Any) -> Any:
        import jax  # only where the oracle is asked

        return getattr(jax.lax, name)(*args)

    return call


def jnp(name: str) -> Callable[..., Any]:
    """The oracle: a function of `jax.numpy`, without the params."""

    def call(*args: Any, **params: Any) -> Any:
        import jax.numpy  # only where the oracle is asked

        return getattr(jax.numpy, name)(*args)

    return call


# ---------------------------------------------------------------- the cases

register("add", 2, smooth=(0, 1), linear=((0,), (1,), (0, 1)), oracle=lax("add"))
register("sub", 2, smooth=(0, 1), linear=((0,), (1,), (0, 1)), oracle=lax("sub"))
register("mul", 2, smooth=(0, 1), linear=((0,), (1,)), oracle=lax("mul"))
register("neg", smooth=(0,), linear=((0,),), oracle=lax("neg"))
register("eq", 2, oracle=lax("eq"))
register("mul_strong_zero", 2, smooth=(0, 1), linear=((1,),))
register("mul_tangents", 2, smooth=(0, 1), linear=((0,), (1,)))
for _name in ("add", "sub", "mul", "mul_strong_zero", "mul_tangents"):
    register_scalar(_name, (-2.0, 2.0), 3.0, 0)
    register_scalar(_name, (-2.0, 2.0), 3.0, 1)
    register_bad(_name, 2, dtypes.bool_)
register_bad("neg", 1, dtypes.bool_)
register_bad("eq", 2)


def _choice(dtype: DType, shape: tuple[int, ...]) -> Callable[..., Arrays]:
    def args(rng: np.random.Generator) -> Arrays:
        values = [numbers(rng, shape, dtype) for _ in range(2)]
        return (numbers(rng, shape, dtypes.bool_), *values)

    return args


for _n, _dtype in enumerate(dtypes.SUPPORTED):
    _short, _shape = dtypes.short(_dtype), SHAPES[_n % len(SHAPES)]
    CASES.append(Case("select", f"{_short}-{_shape}", _choice(_dtype, _shape)))
    if _dtype in _SMOOTH:
        CASES.append(
            Case(
                "select",
                f"{_short}-smooth",
                _choice(_dtype, (7,)),
                smooth=(1, 2),
                linear=((1,), (2,), (1, 2)),
                oracle=lax("select"),
            )
        )
CASES.extend(
    [
        Case(
            "select",
            "scalar-branch",
            lambda rng: (*_choice(dtypes.float64, (7,))(rng)[:2], 0.0),
            smooth=(1,),
            linear=((1,),),
        ),
        Case(
            "select",
            "scalar-condition",
            lambda rng: (True, *_choice(dtypes.float64, (7,))(rng)[1:]),
            smooth=(1, 2),
        ),
    ]
)
_truths = np.ones(3, bool)
BAD_CASES.extend(
    [
        _bad(
            "select",
            "condition",
            (np.ones(3), np.ones(3), np.ones(3)),
            errors.DTypeError,
            "condition must be bool",
        ),
        _bad(
            "select",
            "dtypes",
            (_truths, np.ones(3), np.ones(3, np.float32)),
            errors.DTypeError,
            "equal dtypes",
        ),
        _bad(
            "select",
            "shapes",
            (_truths, np.ones(4), np.ones(4)),
            errors.ShapeError,
            "equal shapes",
        ),
        _bad(
            "add",
            "scalar-kind",
            (np.ones(3, np.int32), 2.5),
            errors.DTypeError,
            "equal dtypes",
        ),
    ]
)
