"""Cases of `fnx/ops/dot.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from tests.cases import BAD_CASES, CASES, BadCase, Case


def normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Arguments with normally distributed elements."""
    return lambda rng: tuple([rng.standard_normal(s).astype(dtype) for s in shapes])


def integers(*shapes: tuple[int, ...], dtype: Any, high: int = 120) -> Any:
    """Arguments whose products overflow the small dtypes."""
    return lambda rng: tuple([rng.integers(0, high, s).astype(dtype) for s in shapes])


def complex_normal(*shapes: tuple[int, ...]) -> Any:
    """Complex arguments."""
    return lambda rng: tuple(
        [rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in shapes]
    )


def jax_dot_general(x: Any, y: Any, *, contract: Any, batch: Any, **rest: Any) -> Any:
    """The oracle."""
    import jax.lax  # lazy: only the oracle tests need JAX

    preferred = rest.get("preferred_element_type")
    numbers = contract, batch
    return jax.lax.dot_general(x, y, numbers, preferred_element_type=preferred)


def params(contract: Any, batch: Any = ((), ()), **rest: Any) -> dict[str, Any]:
    return {"contract": contract, "batch": batch, **rest}


BOTH = ((0,), (1,))
SHAPES = {
    "matmul": (((3, 4), (4, 5)), ((1,), (0,)), ((), ())),
    "transposed": (((4, 3), (5, 4)), ((0,), (1,)), ((), ())),
    "matvec": (((3, 4), (4,)), ((1,), (0,)), ((), ())),
    "vecmat": (((4,), (4, 3)), ((0,), (0,)), ((), ())),
    "inner": (((4,), (4,)), ((0,), (0,)), ((), ())),
    "outer": (((3,), (4,)), ((), ()), ((), ())),
    "scalars": (((), ()), ((), ()), ((), ())),
    "batch": (((2, 3, 4), (2, 4, 5)), ((2,), (1,)), ((0,), (0,))),
    "batch-inside": (((3, 2, 4), (4, 5, 2)), ((2,), (0,)), ((1,), (2,))),
    "two-batch": (((2, 3, 4), (3, 5, 2)), ((), ()), ((0, 1), (2, 0))),
    "two-batch-attention": (
        ((2, 5, 3, 4), (2, 6, 3, 4)),
        ((3,), (3,)),
        ((0, 2), (0, 2)),
    ),
    "two-contracted": (((2, 3, 4), (3, 2, 5)), ((0, 1), (1, 0)), ((), ())),
    "contract-apart": (((2, 3, 4), (4, 5, 2)), ((0, 2), (2, 0)), ((), ())),
    "free-on-both-sides": (((2, 4, 3), (5, 4, 2)), ((1,), (1,)), ((), ())),
    "ones": (((1, 4, 3), (4, 1, 5)), ((1,), (0,)), ((), ())),
    "all-batch": (((3, 4), (3, 4)), ((), ()), ((0, 1), (0, 1))),
    "all-contracted": (((3, 4), (4, 3)), ((0, 1), (1, 0)), ((), ())),
    "nothing-contracted": (((3, 0), (0, 4)), ((1,), (0,)), ((), ())),
    "empty": (((0, 3), (3, 4)), ((1,), (0,)), ((), ())),
    "large": (((20, 30), (30, 10)), ((1,), (0,)), ((), ())),
}

CASES.extend(
    Case(
        "dot_general",
        label,
        normal(*shapes),
        params(contract, batch),
        smooth=(0, 1),
        linear=((0,), (1,)),
        ulp=100,
        oracle=jax_dot_general,
    )
    for label, (shapes, contract, batch) in SHAPES.items()
)

MATMUL = params(((1,), (0,)))
DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float64)
CASES.extend(
    Case(
        "dot_general",
        dtypes.short(dtype),
        normal((3, 20), (20, 4), dtype=dtype),
        MATMUL,
        smooth=(0, 1),
        linear=((0,), (1,)),
        ulp=100,
    )
    for dtype in DTYPES
)
CASES.extend(
    Case(
        "dot_general",
        dtypes.short(dtype),
        integers((3, 20), (20, 4), dtype=dtype),
        MATMUL,
        oracle=jax_dot_general,
    )
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint64)
)
CASES += [
    Case(
        "dot_general",
        "bool",
        integers((3, 4), (4, 5), dtype=np.bool_, high=2),
        MATMUL,
        oracle=jax_dot_general,
    ),
    Case(
        "dot_general",
        "bool-counted",
        integers((3, 4), (4, 5), dtype=np.bool_, high=2),
        {**MATMUL, "preferred_element_type": dtypes.int32},
    ),
    Case(
        "dot_general",
        "complex",
        complex_normal((3, 4), (4, 5)),
        MATMUL,
        smooth=(0, 1),
        linear=((0,), (1,)),
        ulp=100,
        oracle=jax_dot_general,
    ),
    Case(
        "dot_general",
        "i8-in-i32",
        integers((3, 20), (20, 4), dtype=np.int8),
        {**MATMUL, "preferred_element_type": dtypes.int32},
        oracle=jax_dot_general,
    ),
    Case(
        "dot_general",
        "i8-in-f32",
        integers((3, 20), (20, 4), dtype=np.int8),
        {**MATMUL, "preferred_element_type": dtypes.float32},
    ),
    Case(
        "dot_general",
        "bf16-in-f32",
        normal((3, 20), (20, 4), dtype=dtypes.bfloat16),
        {**MATMUL, "preferred_element_type": dtypes.float32},
        ulp=100,
        oracle=jax_dot_general,
    ),
    Case(
        "dot_general",
        "f32-in-f64",
        normal((3, 20), (20, 4)),
        {**MATMUL, "preferred_element_type": dtypes.float64},
        linear=((0,), (1,)),
        ulp=1000,
        oracle=jax_dot_general,
    ),
    Case(
        "dot_general",
        "precise",
        normal((3, 4), (4, 5)),
        {**MATMUL, "precision": ("highest", "default")},
    ),
]


def bad(
    label: str, args: Any, error: type[Exception], match: str, **changes: Any
) -> BadCase:
    return BadCase("dot_general", label, args, error, match, {**MATMUL, **changes})


F32 = normal((3, 4), (4, 5))
BAD_CASES += [
    bad("sizes", normal((3, 4), (5, 6)), errors.ShapeError, r"axis 1 of size 4"),
    bad(
        "batch-sizes",
        normal((2, 3), (4, 3)),
        errors.ShapeError,
        r"batch pairs axis 0 of size 2",
        contract=((1,), (1,)),
        batch=((0,), (0,)),
    ),
    bad("unpaired", F32, errors.ShapeError, r"2 and 1", contract=((0, 1), (0,))),
    bad("no-axis", F32, errors.AxisError, r"not in \[0, 2\)", contract=((1,), (2,))),
    bad("negative", F32, errors.AxisError, r"axis -1", contract=((-1,), (0,))),
    bad(
        "twice",
        normal((4, 4), (4, 4)),
        errors.AxisError,
        "named twice",
        contract=((0,), (0,)),
        batch=((0,), (1,)),
    ),
    bad("no-pair", F32, errors.ArgumentError, "pair of sequences", contract=(1, 0)),
    bad(
        "dtypes",
        lambda rng: (np.ones((3, 4), np.float32), np.ones((4, 5))),
        errors.DTypeError,
        "float32 and float64",
    ),
    bad(
        "narrower",
        F32,
        errors.DTypeError,
        "cannot hold",
        preferred_element_type=dtypes.float16,
    ),
    bad(
        "other-kind",
        F32,
        errors.DTypeError,
        "cannot hold",
        preferred_element_type=dtypes.int64,
    ),
    bad("precision", F32, errors.OptionError, "unknown", precision="fast"),
]
