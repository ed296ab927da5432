"""fnx.checkify: errors as values, with the names of `jax.experimental.checkify`."""

from fnx.api.checks import (
    Error,
    all_checks,
    automatic_checks,
    check,
    check_error,
    checkify,
    debug_check,
    div_checks,
    float_checks,
    index_checks,
    nan_checks,
    user_checks,
)
from fnx.control.findings import Kinds as ErrorCategory
from fnx.errors import CheckError as JaxRuntimeError

init_error = Error(0, (), ())
"""No error: what a function that has been checked begins with."""

__all__ = [
    "Error",
    "ErrorCategory",
    "JaxRuntimeError",
    "all_checks",
    "automatic_checks",
    "check",
    "check_error",
    "checkify",
    "debug_check",
    "div_checks",
    "float_checks",
    "index_checks",
    "init_error",
    "nan_checks",
    "user_checks",
]
