"""The math functions as arithmetic: the rows of the scalar table without printers.

Each function here takes the builder and expressions of float32 or float64 and gives an
expression of machine operations: branch-free, without tables, so that loops over them
vectorise and every backend gives the same bits (sin, cos and tan of huge angles aside).
Errors are at most 2 ulp over the whole range, but `erfc` 2.1, `erf_inv` 3, `lgamma` 6
and `digamma` 8 (of positive numbers); infinities, NaN, -0.0 and subnormals are as in
NumPy. Receives and gives expressions; next on the walk: `math_value.py`, then the
families.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fnx.kernel import math_error, math_exp, math_gamma, math_log, math_trig
from fnx.kernel.math_value import Value

if TYPE_CHECKING:  # build.py imports this file
    from fnx.kernel.build import KernelBuilder
    from fnx.kernel.expr import Expr

Unary = Callable[["KernelBuilder", "Expr"], "Expr"]
Binary = Callable[["KernelBuilder", "Expr", "Expr"], "Expr"]


def _unary(function: Callable[[Value], Value]) -> Unary:
    """`function` of a `Value` as a function of builder and expression."""

    def expanded(k: KernelBuilder, x: Expr) -> Expr:
        return function(Value(k, x)).expr

    expanded.__name__, expanded.__doc__ = function.__name__, function.__doc__
    return expanded


def _binary(function: Callable[[Value, Value], Value]) -> Binary:
    def expanded(k: KernelBuilder, x: Expr, y: Expr) -> Expr:
        return function(Value(k, x), Value(k, y)).expr

    expanded.__name__, expanded.__doc__ = function.__name__, function.__doc__
    return expanded


exp = _unary(math_exp.exp)
exp2 = _unary(math_exp.exp2)
expm1 = _unary(math_exp.expm1)
sinh = _unary(math_exp.sinh)
cosh = _unary(math_exp.cosh)
tanh = _unary(math_exp.tanh)
logistic = _unary(math_exp.logistic)

log = _unary(math_log.log)
log2 = _unary(math_log.log2)
log10 = _unary(math_log.log10)
log1p = _unary(math_log.log1p)
pow = _binary(math_log.pow)
cbrt = _unary(math_log.cbrt)
rsqrt = _unary(math_log.rsqrt)
asinh = _unary(math_log.asinh)
acosh = _unary(math_log.acosh)
atanh = _unary(math_log.atanh)

sin = _unary(math_trig.sin)
cos = _unary(math_trig.cos)
tan = _unary(math_trig.tan)
asin = _unary(math_trig.asin)
acos = _unary(math_trig.acos)
atan = _unary(math_trig.atan)
atan2 = _binary(math_trig.atan2)

erf = _unary(math_error.erf)
erfc = _unary(math_error.erfc)
erf_inv = _unary(math_error.erf_inv)
lgamma = _unary(math_gamma.lgamma)
digamma = _unary(math_gamma.digamma)
