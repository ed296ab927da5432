"""Files, buffers and text: load, save, frombuffer, fromstring, array_repr.

Receives paths, open files, bytes and arrays with known values; what is read is an array
of its own. Loaded when it is first used. Next on the walk: `binary.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.array import Array
from fnx.numpy.creation import array
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """The array that `save` wrote; of a file with several, NumPy's mapping of them.

    The other arguments are those of `numpy.load`.
    """
    found = np.load(file, *args, **kwargs)
    return array(found) if isinstance(found, np.ndarray) else found


def save(file: Any, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Writes an array in NumPy's format, which never needs pickling for its dtypes."""
    np.save(file, np.asarray(as_array("save", arr)), allow_pickle=allow_pickle)


def savez(
    file: Any, *args: ArrayLike, allow_pickle: bool = True, **kwds: ArrayLike
) -> None:
    """Writes several arrays into one file in NumPy's format."""
    rows = [np.asarray(as_array("savez", x, i)) for i, x in enumerate(args)]
    named = {name: np.asarray(as_array("savez", x)) for name, x in kwds.items()}
    np.savez(file, *rows, allow_pickle=allow_pickle, **named)


def frombuffer(
    buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0
) -> Array:
    """The bytes of a buffer as a vector.

    >>> frombuffer(b"abc", "uint8").tolist()
    [97, 98, 99]
    """
    return array(np.frombuffer(buffer, dtypes.as_dtype(dtype), count, offset))


def fromfile(
    file: Any,
    dtype: DTypeLike = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
) -> Array:
    """The numbers in a file: bytes, or text with a separator, as `numpy.fromfile`."""
    # An offset is refused beside a separator, even if it is 0.
    place: dict[str, Any] = {} if sep else {"offset": offset}
    return array(np.fromfile(file, dtypes.as_dtype(dtype), count, sep, **place))


def fromiter(iterable: Iterable[Any], dtype: DTypeLike, count: int = -1) -> Array:
    """A vector of what an iterable gives.

    >>> fromiter((n * n for n in range(4)), "int32").tolist()
    [0, 1, 4, 9]
    """
    return array(np.fromiter(iterable, dtypes.as_dtype(dtype), count))


def fromstring(
    string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str
) -> Array:
    """A vector of the numbers in a text, between separators.

    >>> fromstring("1, 2, 3", "int32", sep=",").tolist()
    [1, 2, 3]
    """
    return array(np.fromstring(string, dtypes.as_dtype(dtype), count, sep=sep))


def array_repr(
    arr: ArrayLike,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The array as `repr` shows it, with a width and precision of its own.

    >>> array_repr(np.array([1.23456, 2.0]), precision=2)
    'Array([1.23, 2.  ], dtype=float64)'
    """
    x = as_array("array_repr", arr)
    weak = ", weak_type=True" if x.type.weak else ""
    tail = f"dtype={x.dtype.name}{weak})"
    values = np.array2string(
        np.asarray(x), max_line_width, precision, suppress_small, ", ", "Array("
    )
    text = f"Array({values},"
    last = text[text.rfind("\n") + 1 :]
    is_wide = max_line_width is not None and len(last) + len(tail) >= max_line_width
    gap = "\n" + " " * len("Array(") if is_wide else " "
    return text + gap + tail


def array_str(
    a: ArrayLike,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The array as `str` shows it, with a width and precision of its own.

    >>> array_str(np.array([1.23456, 2.0]), precision=2)
    '[1.23 2.  ]'
    """
    x = np.asarray(as_array("array_str", a))
    return np.array_str(x, max_line_width, precision, suppress_small)
