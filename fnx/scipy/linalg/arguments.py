"""What the functions of `fnx.scipy.linalg` do with their arguments.

Options that only allow something (`overwrite_a`, to destroy an array; `check_finite`,
to leave a check out) are accepted as SciPy has them: arrays here never change, and what
is not finite gives NaN without a check. Options that ask for something are obeyed or
raise. Next on the walk: `factors.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx import errors
from fnx.core.array import Array
from fnx.numpy.linalg.operands import check, matrices, promoted_pair, same_stack
from fnx.numpy.operands import ArrayLike, as_array
from fnx.numpy.shaping import expand_dims, reshape

__all__ = ["choice", "matrices", "promoted_pair", "refuse", "solving", "vector"]


def choice(function: str, option: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raises unless an option has one of the values that are allowed."""
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise errors.OptionError(
            errors.explain(
                f"linalg.{function}: {option}={value!r}", f"it is one of {listed}"
            )
        )


def refuse(function: str, option: str, value: Any) -> None:
    """Raises if an option is given that there is no code for."""
    if value is not None:
        raise errors.OptionError(
            errors.explain(
                f"linalg.{function}: {option}={value!r}",
                "there is nothing of that kind here",
                f"leave {option} out",
            )
        )


def vector(function: str, name: str, x: ArrayLike, least: int = 0) -> Array:
    """An argument as a stack of vectors of so many elements at least."""
    array = as_array(function, x)
    if array.ndim < 1 or array.shape[-1] < least:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.{function}: {name} is {array.type}",
                f"its last axis is that of a vector of {least} or more elements",
            )
        )
    return array


def solving(
    function: str, a: ArrayLike, b: ArrayLike, solve: Callable[[Array, Array], Array]
) -> Array:
    """What a function makes of a square matrix and right sides: their solution.

    b is a vector if it has one axis, or has the shape of a's rows; else matrices.
    """
    a, b = promoted_pair(function, a, b)
    check(function, "a", a, square=True)
    is_vector = b.ndim == 1 or b.ndim == a.ndim - 1
    right = expand_dims(b, -1) if is_vector else b
    if not right.ndim or right.shape[-2] != a.shape[-1]:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.{function}: the matrix is {a.type}, b is {b.type}",
                f"b must have {a.shape[-1]} rows",
            )
        )
    x = solve(*same_stack(function, a, right))
    return reshape(x, x.shape[:-1]) if is_vector else x
