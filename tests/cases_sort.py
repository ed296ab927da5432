"""Cases of `fnx/ops/sort.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from tests.cases import BAD_CASES, CASES, BadCase, Case


def apart(*shape: int, dtype: Any = np.float32) -> Any:
    """Numbers in random order that lie far apart, so that their order is smooth."""

    def args(rng: np.random.Generator) -> tuple[Any, ...]:
        size = int(np.prod(shape))
        return ((rng.permutation(size) - size // 2).reshape(shape).astype(dtype),)

    return args


def both(first: Any, second: Any) -> Any:
    return lambda rng: first(rng) + second(rng)


def normal(*shape: int) -> Any:
    return lambda rng: (rng.standard_normal(shape).astype(np.float32),)


def few(*shape: int, dtype: Any) -> Any:
    """Numbers with many ties."""
    return lambda rng: (rng.integers(0, 3, shape).astype(dtype),)


def special(rng: np.random.Generator) -> tuple[Any, ...]:
    """Zeros of both signs, NaNs of both signs, infinities."""
    nan = np.copysign(np.nan, -1)
    values = [0.0, -0.0, nan, np.inf, -1.0, np.nan, -np.inf, -0.0, 2.0, 1e-30]
    return (rng.permutation(np.array(values, np.float32)),)


def complex_special(rng: np.random.Generator) -> tuple[Any, ...]:
    parts = [0.0, -0.0, 1.0, -1.0, np.nan]
    values = [complex(x, y) for x in parts for y in parts]
    return (rng.permutation(np.array(values, np.complex64)),)


def iota_beside(args: Any) -> Any:
    """The same, with the places as a second operand, so that the order shows."""

    def with_places(rng: np.random.Generator) -> tuple[Any, ...]:
        (x,) = args(rng)
        return x, np.arange(x.size, dtype=np.int32).reshape(x.shape)

    return with_places


def jax_sort(*operands: Any, axis: int, **rest: Any) -> Any:
    """The oracle."""
    import jax.lax  # lazy: only the oracle tests need JAX

    keys = rest.get("num_keys", 1)
    result = jax.lax.sort(operands, dimension=axis, num_keys=keys, is_stable=True)
    return tuple(result)


def jax_top_k(x: Any, *, k: int, axis: int) -> Any:
    """The oracle."""
    import jax.lax  # lazy: only the oracle tests need JAX

    return tuple(jax.lax.top_k(x, k, axis=axis))


def case(label: str, args: Any, oracle: Any = jax_sort, **changes: Any) -> Case:
    smooth = changes.pop("smooth", ())
    params = {"axis": 0, **changes}
    return Case("sort", label, args, params, smooth=smooth, ulp=0, oracle=oracle)


CASES += [
    case("f32", apart(10), smooth=(0,)),
    case("axis-1", apart(3, 4), axis=1, smooth=(0,)),
    case("axis-middle", apart(2, 5, 3), axis=1, smooth=(0,)),
    case("f64", apart(10, dtype=np.float64), smooth=(0,)),
    case("f16", apart(10, dtype=np.float16), smooth=(0,)),
    case("bf16", apart(10, dtype=dtypes.bfloat16), smooth=(0,)),
    case("key-and-value", both(apart(10), normal(10)), smooth=(0, 1)),
    case(
        "int-key", both(few(10, dtype=np.int32), normal(10)), stable=True, smooth=(1,)
    ),
    case(
        "two-keys",
        both(few(4, 6, dtype=np.int32), both(apart(4, 6), normal(4, 6))),
        num_keys=2,
        axis=1,
        smooth=(1, 2),
    ),
    case("unstable", apart(10), stable=False, smooth=(0,)),
    case("bool", iota_beside(few(10, dtype=np.bool_))),
    case("special", special),
    case("special-order", iota_beside(special)),
    case("special-f64", lambda rng: (special(rng)[0].astype(np.float64),)),
    # XLA takes the subnormal number for a zero.
    case("subnormal", lambda rng: (np.float32([1e-45, 0, -1e-45]),), oracle=None),
    case("complex", lambda rng: (complex_special(rng)[0].astype(np.complex128),)),
    case("complex-order", iota_beside(complex_special)),
    case("one", apart(1), smooth=(0,)),
    case("empty", normal(0)),
    case("empty-axis", normal(0, 3), axis=1),
]
CASES.extend(
    case(dtypes.short(dtype), iota_beside(few(3, 20, dtype=dtype)), axis=1)
    for dtype in (
        dtypes.int8,
        dtypes.int16,
        dtypes.int64,
        dtypes.uint8,
        dtypes.uint32,
        dtypes.uint64,
    )
)


def extremes(dtype: Any) -> Any:
    """The smallest and largest integers, and -1, 0, 1."""
    info = np.iinfo(dtype)

    def args(rng: np.random.Generator) -> tuple[Any, ...]:
        values = [info.min, info.max, 1, 0, info.max // 2]
        return (rng.permutation(np.array(values, dtype)),)

    return args


CASES.extend(
    case(f"extremes-{dtypes.short(dtype)}", iota_beside(extremes(dtype)))
    for dtype in (dtypes.int32, dtypes.int64, dtypes.uint32)
)


def top(label: str, args: Any, k: int, axis: int = 0, **rest: Any) -> Case:
    return Case("top_k", label, args, {"k": k, "axis": axis}, ulp=0, **rest)


CASES += [
    top("f32", apart(10), 3, smooth=(0,), oracle=jax_top_k),
    top("last", apart(3, 4), 2, 1, smooth=(0,), oracle=jax_top_k),
    top("middle", apart(2, 5, 3), 2, 1, smooth=(0,), oracle=jax_top_k),
    top("all", apart(4, dtype=np.float64), 4, smooth=(0,), oracle=jax_top_k),
    top("none", apart(4), 0, smooth=(0,), oracle=jax_top_k),
    top("bf16", apart(10, dtype=dtypes.bfloat16), 3, smooth=(0,), oracle=jax_top_k),
    top("ties", few(3, 10, dtype=np.int32), 5, 1, oracle=jax_top_k),
    top("unsigned", extremes(dtypes.uint32), 3, oracle=jax_top_k),
    top("smallest-int", extremes(dtypes.int32), 5, oracle=jax_top_k),
    # JAX puts -0.0 below 0.0 and negative NaNs last; ours is the order of sort.
    top("special", special, 5),
]

BAD_CASES += [
    BadCase("sort", "axis", normal(3), errors.AxisError, "axis 1", {"axis": 1}),
    BadCase(
        "sort",
        "shapes",
        both(normal(3), normal(4)),
        errors.ShapeError,
        "equal shapes",
        {"axis": 0},
    ),
    BadCase(
        "sort",
        "keys",
        normal(3),
        errors.OptionError,
        "num_keys",
        {"axis": 0, "num_keys": 2},
    ),
    BadCase(
        "top_k", "k", normal(3), errors.ShapeError, "from 0 to 3", {"k": 4, "axis": 0}
    ),
    BadCase(
        "top_k",
        "complex",
        complex_special,
        errors.DTypeError,
        "no order",
        {"k": 1, "axis": 0},
    ),
]
