"""Cases of `fnx/ops/marks.py`: every value comes out as it went in."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes
from tests.cases import CASES, Case
from tests.cases_shape import DTYPES, arrays, unary


def _same(x: Any, **params: Any) -> Any:
    return x


def _both(*xs: Any, **params: Any) -> Any:
    return xs


for _shape in ((), (5,), (2, 0, 3), (3, 4)):
    unary("checkpoint_name", _shape, _same, every_dtype=True, name="a")
    _spec = tuple([("x",) if axis == 0 else () for axis in range(len(_shape))])
    unary("sharding_constraint", _shape, _same, every_dtype=True, spec=_spec)


def _mixed(rng: np.random.Generator) -> tuple[Any, ...]:
    flags = rng.standard_normal(4) > 0
    return rng.standard_normal((2, 3)), flags, rng.standard_normal(()) + 1j


CASES.append(Case("optimization_barrier", "none", lambda rng: (), {"number": 0}))
for _dtype in DTYPES:
    _inexact = dtypes.is_inexact(_dtype)
    CASES.append(
        Case(
            "optimization_barrier",
            dtypes.short(_dtype),
            arrays((2, 3), (4,), dtype=_dtype),
            {"number": 2},
            smooth=(0, 1) if _dtype == dtypes.float64 else (),
            linear=((0,), (1,), (0, 1)) if _inexact else (),
            ulp=0,
            oracle=_both,
        )
    )
CASES.append(
    Case(
        "optimization_barrier",
        "mixed",
        _mixed,
        {"number": 0},
        ulp=0,
        oracle=_both,
    )
)
