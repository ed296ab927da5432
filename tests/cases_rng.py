"""Cases of `fnx/ops/rng.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import errors
from tests.cases import BAD_CASES, CASES, BadCase, Case


def words(*shape: int, count: int = 4, dtype: Any = np.uint32) -> Any:
    return lambda rng: tuple(
        [rng.integers(0, 2**32, shape, dtype=np.uint32).astype(dtype)] * count
    )


def jax_threefry(*operands: Any) -> Any:
    """The oracle."""
    import jax.extend.random  # lazy: only the oracle tests need JAX

    return tuple(jax.extend.random.threefry2x32_p.bind(*operands))


CASES += [
    Case("threefry2x32", "one", words(), ulp=0, oracle=jax_threefry),
    Case("threefry2x32", "many", words(5, 7), ulp=0, oracle=jax_threefry),
    Case("threefry2x32", "none", words(0), ulp=0, oracle=jax_threefry),
    Case("threefry2x32", "blocks", words(40_000), ulp=0, oracle=jax_threefry),
]
BAD_CASES += [
    BadCase("threefry2x32", "dtype", words(3, dtype=np.int32), errors.DTypeError, "u"),
    BadCase(
        "threefry2x32",
        "shapes",
        lambda rng: words(3, count=2)(rng) + words(4, count=2)(rng),
        errors.ShapeError,
        "equal shapes",
    ),
]
