"""fnx.custom_derivatives: functions that bring their own derivative, and its parts."""

from fnx.api.closures import closure_convert, custom_gradient
from fnx.api.custom import custom_jvp, custom_vjp
from fnx.api.custom_rule import linear_call
from fnx.api.symbolic import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "zero_from_primal",
]
