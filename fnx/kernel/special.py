"""The rows of the scalar table that are routines: special functions of float64 numbers.

A routine is recorded when it is first used. Some take an integer in place of their last
operand: the order of a derivative, or of a Bessel function. Importing this file
completes `scalar.TABLE`; next on the walk: `build.py`.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.kernel import scalar

# The functions by the file that has them and by the number of their operands.
_FILES = {
    "special_tools": {
        1: "gamma gamma_sign log1p_rest",
        2: """beta betaln combinations digamma_difference lgamma_difference poch""",
    },
    "special_gamma": {
        2: """gamma_pdf igamma igammac igamma_grad_a igamma_grad_aa igamma_ratio_aa
            poisson_entropy random_gamma_grad""",
    },
    "special_beta": {
        3: """beta_pdf betainc betainc_01 betainc_02 betainc_10 betainc_11
            betainc_20""",
    },
    "special_zeta": {2: "polygamma zeta zeta_1 zeta_2"},
    "special_bessel": {
        2: "bessel_i bessel_ie bessel_j bessel_moment",
        3: "legendre_on_sphere",
    },
    "special_error": {
        1: "bell erfcx ndtr ndtri",
        2: "dawsn_derivative erfcx_moment owens_t",
    },
    "special_integral": {
        1: "cosine_integral expi fresnel_cosine fresnel_sine sine_integral spence",
        2: "expm1_ratio expn log1p_ratio sin_ratio",
    },
    "special_hyper": {
        3: "hyp1f1 hyp1f1_slope_a hyp1f1_slope_b",
        4: "hyp2f1 hyp2f1_slope_a hyp2f1_slope_c",
    },
}
_PLACES = {
    name: (file, arity)
    for file, rows in _FILES.items()
    for arity, names in rows.items()
    for name in names.split()
}
ROUTINES = {name: arity for name, (_, arity) in _PLACES.items()}
"""The names of the rows with the number of their operands."""

_OPERATIONS = 400  # of a float unit, about: for the choice of threads


def _late(file: str) -> Any:
    """A file of this folder, loaded when it is first used: most programs need none."""
    return importlib.import_module(f"fnx.kernel.{file}")


@functools.cache
def recorded(name: str) -> Any:
    """The `Routine` of a row."""
    file, arity = _PLACES[name]
    return _late("routine").routine(name, arity, getattr(_late(file), name))


def evaluate(name: str, *args: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """The routine of a row on arrays."""
    values: np.ndarray[Any, np.dtype[Any]]
    values = _late("routine_numpy").evaluate(recorded(name), *args)
    return values


def _add(name: str, arity: int) -> None:
    def print_llvm(*args: Any) -> str:
        text: str = _late("routine_print").llvm(recorded(name))(*args)
        return text

    def print_cuda(*args: Any) -> str:
        text: str = _late("routine_print").cuda(recorded(name))(*args)
        return text

    scalar.add_row(
        name,
        arity,
        (dtypes.float64,),
        functools.partial(evaluate, name),
        print_llvm,
        print_cuda,
        operations=_OPERATIONS,
    )


for _name, _arity in ROUTINES.items():
    _add(_name, _arity)
