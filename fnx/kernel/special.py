"""The rows of the scalar table that are routines: special functions of float64 numbers.

A routine is recorded when it is first used. Some take an integer in place of their last
operand: the order of a derivative, or of a Bessel function. Importing this file completes
`scalar.TABLE`; next on the walk: `build.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.kernel import (
    routine_numpy,
    routine_print,
    scalar,
    special_bessel,
    special_beta,
    special_error,
    special_gamma,
    special_hyper,
    special_integral,
    special_tools,
    special_zeta,
)
from fnx.kernel.math_value import Value
from fnx.kernel.routine import Routine, routine

Function = Callable[..., Value]


def _betainc(i: int, j: int) -> Function:
    def derivative(a: Value, b: Value, x: Value) -> Value:
        return special_beta.betainc_derivative(a, b, x, i, j)

    return derivative


def _zeta(order: int) -> Function:
    def derivative(s: Value, q: Value) -> Value:
        return special_zeta.zeta_derivative(s, q, order)

    return derivative


_UNARY: dict[str, Function] = {
    "gamma": special_tools.gamma,
    "gamma_sign": special_hyper.gamma_sign,
    "erfcx": special_error.erfcx,
    "bell": special_error.bell,
    "ndtr": special_error.ndtr,
    "ndtri": special_error.ndtri,
    "expi": special_integral.expi,
    "sine_integral": special_integral.sine_integral,
    "cosine_integral": special_integral.cosine_integral,
    "fresnel_sine": special_integral.fresnel_sine,
    "fresnel_cosine": special_integral.fresnel_cosine,
    "spence": special_integral.spence,
}
_BINARY: dict[str, Function] = {
    "betaln": special_tools.betaln,
    "lgamma_difference": special_tools.lgamma_difference,
    "digamma_difference": special_tools.digamma_difference,
    "igamma": special_gamma.igamma,
    "igammac": special_gamma.igammac,
    "gamma_pdf": special_gamma.gamma_pdf,
    "igamma_grad_a": special_gamma.igamma_grad_a,
    "igamma_grad_aa": special_gamma.igamma_grad_aa,
    "igamma_ratio_aa": special_gamma.igamma_ratio_aa,
    "random_gamma_grad": special_gamma.random_gamma_grad,
    "polygamma": special_zeta.polygamma,
    "zeta": _zeta(0),
    "zeta_1": _zeta(1),
    "zeta_2": _zeta(2),
    "bessel_i": special_bessel.bessel_i,
    "bessel_ie": special_bessel.bessel_ie,
    "bessel_moment": special_bessel.bessel_moment,
    "erfcx_moment": special_error.erfcx_moment,
    "dawsn_derivative": special_error.dawsn_derivative,
    "owens_t": special_error.owens_t,
    "expn": special_integral.expn,
    "sin_ratio": special_integral.sin_ratio,
    "log1p_ratio": special_integral.log1p_ratio,
}
_TERNARY: dict[str, Function] = {
    "betainc": _betainc(0, 0),
    "beta_pdf": special_beta.beta_pdf,
    "betainc_10": _betainc(1, 0),
    "betainc_01": _betainc(0, 1),
    "betainc_20": _betainc(2, 0),
    "betainc_11": _betainc(1, 1),
    "betainc_02": _betainc(0, 2),
    "hyp1f1": special_hyper.hyp1f1,
    "hyp1f1_slope_a": special_hyper.hyp1f1_slope_a,
    "hyp1f1_slope_b": special_hyper.hyp1f1_slope_b,
}
_QUATERNARY: dict[str, Function] = {
    "hyp2f1": special_hyper.hyp2f1,
    "hyp2f1_slope_a": special_hyper.hyp2f1_slope_a,
    "hyp2f1_slope_c": special_hyper.hyp2f1_slope_c,
}
_ARITIES = {1: _UNARY, 2: _BINARY, 3: _TERNARY, 4: _QUATERNARY}

ROUTINES = {name: n for n, functions in _ARITIES.items() for name in functions}
"""The names of the rows with the number of their operands."""

_OPERATIONS = 400  # of a float unit, about: for the choice of threads


@functools.cache
def recorded(name: str) -> Routine:
    """The routine of a row."""
    arity = ROUTINES[name]
    return routine(name, arity, _ARITIES[arity][name])


def evaluate(name: str, *args: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """The routine of a row on arrays."""
    return routine_numpy.evaluate(recorded(name), *args)


def _add(name: str, arity: int) -> None:
    def print_llvm(*args: Any) -> str:
        return routine_print.llvm(recorded(name))(*args)

    def print_cuda(*args: Any) -> str:
        return routine_print.cuda(recorded(name))(*args)

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
