"""How exact functions are to be: the option `accuracy` of `exp` and others.

Receives what users ask for, raises where that is more than what is computed. Next on
the walk: `elementwise.py`.
"""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors


class AccuracyMode(enum.Enum):
    """How exact a function is to be: as exact as there is, or the usual."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """An error that is allowed: absolute, relative, or in units of the last place.

    Two of them may be given, one of which is `atol`.
    """

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0) -> None:
        if min(atol, rtol, ulps) < 0 or (rtol and ulps) or not (atol or rtol or ulps):
            raise errors.OptionError(
                f"Tolerance: {atol=}, {rtol=}, {ulps=}; give atol, and one of rtol and "
                "ulps, none below 0"
            )
        self.atol, self.rtol, self.ulps = atol, rtol, ulps

    def __repr__(self) -> str:
        return f"Tolerance(atol={self.atol}, rtol={self.rtol}, ulps={self.ulps})"


# What elementary functions keep in every dtype and on every device.
_ULPS = 2


def check_accuracy(function: str, accuracy: Any, dtype: np.dtype[Any]) -> None:
    """Raises unless a function is as exact as it is asked to be."""
    if accuracy is None or isinstance(accuracy, AccuracyMode):
        return
    if not isinstance(accuracy, Tolerance):
        raise errors.OptionError(
            f"{function}: accuracy is an AccuracyMode or a Tolerance, got {accuracy!r}"
        )
    eps = float(ml_dtypes.finfo(dtypes.real_dtype(dtype)).eps)
    if accuracy.ulps < _ULPS and accuracy.rtol < _ULPS * eps:
        raise errors.OptionError(
            f"{function}: {accuracy} is less than the {_ULPS} units in the last place "
            f"that results of {dtype.name} may be off"
        )
