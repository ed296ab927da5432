"""What every function of `fnx.scipy.special` does with its arguments.

Receives what users pass, gives arrays of one floating-point dtype and one shape. Next
on the walk: `gamma.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.operands import broadcast, common_shape, promoted, typed


def arrays(function: str, **arguments: Any) -> list[Array]:
    """The arguments in floating point, broadcast; `arguments` are by their names.

    Integers are computed as `fnx.numpy.sin` does; complex numbers raise `DTypeError`.
    """
    values, dtype, weak = promoted(function, list(arguments.values()), inexact=True)
    if dtypes.is_complex(dtype):
        names = [
            name
            for name, value in zip(arguments, values, strict=True)
            if isinstance(value, complex)
            or (isinstance(value, Array) and dtypes.is_complex(value.dtype))
        ]
        raise errors.DTypeError(
            f"{function}: argument {names[0]!r} is complex, it takes real numbers"
        )
    shape = common_shape(function, values)
    return [
        broadcast(typed(function, value, dtype, weak, position), shape)
        for position, value in enumerate(values)
    ]


def array(function: str, **argument: Any) -> Array:
    """One argument as an array in floating point."""
    return arrays(function, **argument)[0]
