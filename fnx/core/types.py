"""The type of an array: shape, dtype and weakness.

Receives shapes and dtypes, gives interned `ArrayType` objects, so that comparing two
types is comparing two pointers. A weak type comes from a Python scalar: it takes the
dtype of whatever it meets. Next on the walk: `program.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx import dtypes


class ArrayType:
    """Shape, dtype and weakness of an array; equal types are the same object.

    >>> ArrayType((3, 4), np.dtype("float32"))
    f32[3,4]
    """

    __slots__ = ("_text", "dtype", "shape", "size", "weak")

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak: bool
    size: int
    _text: str

    def __new__(
        cls, shape: tuple[int, ...], dtype: np.dtype[Any], weak: bool = False
    ) -> ArrayType:
        """The one object of that shape, dtype and weakness."""
        key = (shape, dtype, weak)
        found = _interned.get(key)
        if found is None:
            found = object.__new__(cls)
            # One that equals a canonical dtype may be another object: unpickled, say.
            found.shape, found.dtype, found.weak = shape, dtypes.same(dtype), weak
            found.size = math.prod(shape)
            mark = "*" if weak else ""
            sizes = ",".join(map(str, shape))
            found._text = f"{dtypes.short(dtype)}[{sizes}]{mark}"
            found = _interned.setdefault(key, found)
        return found

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> ArrayType:
        """The same dtype and weakness with another shape."""
        return ArrayType(tuple(shape), self.dtype, self.weak)

    def with_dtype(self, dtype: np.dtype[Any]) -> ArrayType:
        """The same shape and weakness with another dtype."""
        return ArrayType(self.shape, dtype, self.weak)

    def strong(self) -> ArrayType:
        """The same type without weakness."""
        return ArrayType(self.shape, self.dtype, False) if self.weak else self

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayType, (self.shape, self.dtype, self.weak)

    def __repr__(self) -> str:
        return self._text


# Types are few and small, and live as long as the process: interning must never make
# a new object for a type that somebody still compares by identity.
_interned: dict[tuple[tuple[int, ...], np.dtype[Any], bool], ArrayType] = {}


def array_type(shape: tuple[int, ...], dtype: Any, weak: bool = False) -> ArrayType:
    """The interned type of arrays of that shape and dtype.

    >>> array_type((), "float32", weak=True)
    f32[]*
    """
    return ArrayType(tuple(shape), np.dtype(dtype), weak)


def scalar_type(value: bool | complex) -> ArrayType:
    """The weak type of a Python scalar standing alone."""
    return ArrayType((), dtypes.scalar_dtype(value), not isinstance(value, bool))
