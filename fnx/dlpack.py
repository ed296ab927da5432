"""fnx.dlpack: arrays from and to other libraries, without a copy where memory allows.

An array of fnx is itself one that other libraries take (`torch.from_dlpack(x)`).
Receives such an array, gives one of fnx. Next on the walk: `fnx/scipy`.
"""

from __future__ import annotations

from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy import creation

__all__ = ["from_dlpack", "is_supported_dtype"]


def from_dlpack(external_array: Any, device: Any = None, copy: Any = None) -> Array:
    """`fnx.numpy.from_dlpack`, with the names and places of JAX's arguments.

    >>> import numpy as np
    >>> from_dlpack(np.arange(3, dtype="int32"))
    Array([0, 1, 2], dtype=int32)
    """
    return creation.from_dlpack(external_array, device=device, copy=copy)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of a dtype can be exchanged.

    These are bools, integers, floats (bfloat16 included) and complex numbers that fnx
    has. Raises `DTypeError` for `None`.

    >>> is_supported_dtype("float32"), is_supported_dtype("datetime64[s]")
    (True, False)
    """
    if dtype is None:
        raise errors.DTypeError("is_supported_dtype: dtype must not be None")
    try:
        found = dtypes.as_dtype(dtype)
    except errors.DTypeError:
        return False
    return found == dtypes.bfloat16 or found.kind in "biufc"
