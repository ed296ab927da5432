"""Cases of `fnx/ops/special.py` and `special_integrals.py`.

Values are compared between the compiled routine and the one evaluated by NumPy, whose
exponentials differ by an ulp: large exponents make many of it in float64, hence `ulp`.
Accuracy is tested against higher precision in `tests/kernel/test_special.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from tests.cases import CASES, Arrays, Case
from tests.cases_arithmetic import (
    Interval,
    lax,
    numbers,
    register,
    register_bad,
    specials,
)

_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
_SHAPES = ((3, 1, 5), (7,), (), (0,))
_MANY = 4096.0  # ulps of float64

_UNIT, _POSITIVE, _WIDE = (0.1, 0.9), (0.3, 4.0), (-2.5, 2.5)

# name: intervals of the operands, of which numbers are held fixed as Python scalars
_FUNCTIONS: dict[str, Sequence[Interval | float]] = {
    "gamma": [_POSITIVE],
    "erfcx": [_WIDE],
    "bell": [_WIDE],
    "ndtr": [_WIDE],
    "ndtri": [_UNIT],
    "log1p_rest": [(-0.8, 2.0)],
    "expi": [_POSITIVE],
    "sine_integral": [(-6.0, 6.0)],
    "cosine_integral": [(0.3, 6.0)],
    "fresnel_sine": [_WIDE],
    "fresnel_cosine": [_WIDE],
    "spence": [_POSITIVE],
    "bessel_i0e": [(0.5, 4.0)],
    "bessel_i1e": [(0.5, 4.0)],
    "beta": [_POSITIVE, _POSITIVE],
    "betaln": [_POSITIVE, _POSITIVE],
    "poch": [_POSITIVE, _POSITIVE],
    "combinations": [(5.0, 9.0), (0.5, 4.0)],
    "lgamma_difference": [_POSITIVE, _POSITIVE],
    "digamma_difference": [_POSITIVE, _POSITIVE],
    "igamma": [_POSITIVE, _POSITIVE],
    "igammac": [_POSITIVE, _POSITIVE],
    "gamma_pdf": [_POSITIVE, _POSITIVE],
    "igamma_grad_a": [_POSITIVE, _POSITIVE],
    "igamma_grad_aa": [1.5, _POSITIVE],
    "random_gamma_grad": [_POSITIVE, _POSITIVE],
    "igamma_ratio_aa": [1.5, _POSITIVE],
    "betainc": [_POSITIVE, _POSITIVE, _UNIT],
    "beta_pdf": [_POSITIVE, _POSITIVE, _UNIT],
    "polygamma": [2.0, _POSITIVE],
    "zeta": [(1.5, 4.0), _POSITIVE],
    "owens_t": [_WIDE, _WIDE],
    "expn": [2.0, _POSITIVE],
    "legendre_on_sphere": [3.0, 2.0, (0.2, 2.9)],
    "hyp1f1": [_POSITIVE, _POSITIVE, _WIDE],
    "hyp1f1_slope_a": [1.5, 2.5, _WIDE],
    "hyp1f1_slope_b": [1.5, 2.5, _WIDE],
    "hyp2f1": [_POSITIVE, _POSITIVE, _POSITIVE, (-2.0, 0.8)],
    "hyp2f1_slope_a": [1.5, 0.5, 2.5, (-2.0, 0.8)],
    "hyp2f1_slope_c": [1.5, 0.5, 2.5, (-2.0, 0.8)],
}
# name: the interval, and orders of which the derivatives are tested
_ORDERS: dict[str, tuple[Interval, Sequence[Mapping[str, int]]]] = {
    "bessel_i": (_WIDE, [{"order": 0}, {"order": 1}, {"order": 3}]),
    "bessel_j": ((-9.0, 9.0), [{"order": 0}, {"order": 2}]),
    "bessel_moment": ((0.5, 4.0), [{"order": 0}, {"order": 2}]),
    "erfcx_moment": (_WIDE, [{"order": 0}, {"order": 3}]),
    "dawsn_derivative": (_WIDE, [{"order": 0}, {"order": 2}]),
    "sin_ratio": ((-6.0, 6.0), [{"order": 0}, {"order": 1}]),
    "log1p_ratio": ((-0.8, 2.0), [{"order": 0}, {"order": 1}]),
    "expm1_ratio": (_WIDE, [{"order": 0}, {"order": 1}]),
    "poisson_entropy": (_POSITIVE, [{"order": 0}]),
}
_ORACLES = {"igamma", "igammac", "bessel_i0e", "bessel_i1e"}


def _operands(
    name: str,
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: Any,
    intervals: Sequence[Interval | float],
) -> Arrays:
    return tuple(
        [
            numbers(rng, shape, dtype, each) if isinstance(each, tuple) else each
            for each in intervals
        ]
    )


def _add(
    name: str,
    intervals: Sequence[Interval | float],
    params: Mapping[str, int],
    smooth: bool = True,
) -> None:
    label = "-".join(f"{key}{value}" for key, value in params.items())
    places = [i for i, each in enumerate(intervals) if isinstance(each, tuple)]
    # Those of many arguments take hundreds of rounds for each element.
    many = len(places) > 2
    for n, dtype in enumerate(_FLOATS[-1:] if many else _FLOATS):
        prefix = f"{label}-{dtypes.short(dtype)}" if label else dtypes.short(dtype)
        shape = _SHAPES[n % len(_SHAPES)]

        def draw(rng: Any, shape: Any = shape, dtype: Any = dtype) -> Arrays:
            return _operands(name, rng, shape, dtype, intervals)

        ulp = _MANY if dtype == dtypes.float64 else 2.0
        CASES.append(Case(name, f"{prefix}-{shape}", draw, params, ulp=ulp))
        if len(places) == len(intervals) and not many:
            CASES.append(_corners(name, prefix, len(places), dtype, params, ulp))
    if smooth:
        CASES.append(
            Case(
                name,
                f"{label}-smooth",
                lambda rng: _operands(name, rng, (5,), dtypes.float64, intervals),
                params,
                tuple(places),
                ulp=_MANY,
                oracle=lax(name) if name in _ORACLES else None,
            )
        )


def _corners(
    name: str, prefix: str, arity: int, dtype: Any, params: Any, ulp: float
) -> Case:
    """Zeros, infinities and NaN, each with each, but no extreme finite numbers."""
    values = specials(dtype, plain=True)
    size = np.abs(values.astype(np.float64))
    values = values[(size == 0) | ~(size < np.inf) | ((size > 1e-3) & (size < 20))]

    def draw(rng: Any) -> Arrays:
        # All of them would be thousands, for what takes hundreds of rounds each.
        every = [x.ravel() for x in np.meshgrid(*[values] * arity)]
        some = rng.permutation(every[0].size)[:40]
        return tuple([x[some] for x in every])

    return Case(name, f"{prefix}-corners", draw, params, ulp=ulp)


for _name, _intervals in _FUNCTIONS.items():
    _add(_name, _intervals, {})
    register_bad(_name, len(_intervals), dtypes.int32)
for _name, (_interval, _params) in _ORDERS.items():
    for _each in _params:
        _add(_name, [_interval], _each)
for _i, _j in ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2)):
    _add(
        "betainc_derivative",
        [_POSITIVE, _POSITIVE, _UNIT] if _i + _j < 2 else [1.5, 2.5, _UNIT],
        {"i": _i, "j": _j},
    )
_add("zeta_derivative", [(1.5, 4.0), _POSITIVE], {"order": 1})
_add("zeta_derivative", [2.5, _POSITIVE], {"order": 2})

for _name in ("lgamma", "digamma"):
    register(
        _name,
        intervals=(0.3, 4.0),
        smooth=(0,),
        only=[dtypes.float32, dtypes.float64],
        label="positive-",
        ulp=64,  # near the zeros between -2 and -3
        oracle_ulp=64,
    )
    register_bad(_name, 1, dtypes.int32)
_add("gamma_sign", [_WIDE], {}, smooth=False)
register_bad("gamma_sign", 1, dtypes.int32)

# Complex numbers, on the host.
for _name in ("wofz", "loggamma", "complex_digamma"):
    for _dtype in (dtypes.complex64, dtypes.complex128):
        CASES.append(
            Case(
                _name,
                f"{dtypes.short(_dtype)}-{_SHAPES[0]}",
                lambda rng, dtype=_dtype: (numbers(rng, _SHAPES[0], dtype),),
            )
        )
    if _name != "complex_digamma":
        CASES.append(
            Case(
                _name,
                "smooth",
                lambda rng: (numbers(rng, (5,), dtypes.complex128),),
                smooth=(0,) if _name == "wofz" else (),
            )
        )
    register_bad(_name, 1, dtypes.float32)
