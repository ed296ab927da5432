"""The values that steer an optimizer, checked when it is made.

Receives a number, an array of rank 0 or a schedule, gives it back unchanged, or raises
an error that names the function, the argument, the value and the range. A traced value
is not known yet: only its shape and dtype are checked. Next on the walk: `scaling.py`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.errors import ArgumentError, OptionError
from fnx.records import record

Schedule = Callable[[Any], Any]
"""A function from the number of updates made so far (0 at the first) to a number."""
ScalarOrSchedule = float | Array | Schedule
"""A fixed hyperparameter, or one that changes from step to step."""


@record
class Range:
    """The values that an argument may have, in words and as a test."""

    words: str
    holds: Callable[[float], bool]

    def check(self, function: str, argument: str, value: Any) -> Any:
        """The value itself; `OptionError` outside the range, `ArgumentError` for a
        value that is no number.
        """
        known = _number(function, argument, value)
        if known is not None and not (math.isfinite(known) and self.holds(known)):
            raise OptionError(
                f"{function}: {argument} must be {self.words}, got {known!r}"
            )
        return value

    def check_or_schedule(self, function: str, argument: str, value: Any) -> Any:
        """As `check`; a schedule is accepted as it is."""
        return value if callable(value) else self.check(function, argument, value)


FINITE = Range("a finite number", lambda x: True)
POSITIVE = Range("a finite number above 0", lambda x: x > 0)
NOT_NEGATIVE = Range("a finite number, 0 or more", lambda x: x >= 0)
UNIT = Range("from 0 to 1", lambda x: 0 <= x <= 1)
DECAY = Range("from 0 up to, not including, 1", lambda x: 0 <= x < 1)


def steps(function: str, argument: str, value: Any, least: int = 1) -> int:
    """A whole number of steps, `least` or more."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ArgumentError(
            f"{function}: {argument} must be an integer, got {value!r} of type "
            f"{type(value).__name__}"
        )
    if value < least:
        raise OptionError(
            f"{function}: {argument} must be {least} or more, got {value}"
        )
    return int(value)


def float_dtype(function: str, argument: str, value: Any) -> np.dtype[Any] | None:
    """A floating-point or complex dtype, or None where none was asked for."""
    if value is None:
        return None
    dtype = dtypes.as_dtype(value)
    if not dtypes.is_inexact(dtype):
        raise OptionError(
            f"{function}: {argument} must be a floating-point dtype, got {dtype}"
        )
    return dtype


def _number(function: str, argument: str, value: Any) -> float | None:
    """The value as a Python number; None for a tracer."""
    if isinstance(value, Array | np.ndarray) and value.ndim == 0:
        if not (dtypes.is_inexact(value.dtype) or dtypes.is_integer(value.dtype)):
            raise _no_number(function, argument, value)
        return None if isinstance(value, Tracer) else float(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real | np.number):
        raise _no_number(function, argument, value)
    return float(value)


def _no_number(function: str, argument: str, value: Any) -> Exception:
    shown = str(value.type) if isinstance(value, Array) else repr(value)
    return ArgumentError(
        f"{function}: {argument} must be a number (an array of rank 0 will do), got "
        f"{shown} of type {type(value).__name__}"
    )
