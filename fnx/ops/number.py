"""`number`: a scalar that is known when a program runs, by its bits.

A program for many sizes has it where programs of one size have literals that differ,
such as the 1/n of a mean; then its bits are a formula (`fnx.sizes`).
Next on the walk: `fnx.transforms.sized`, which makes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, explain
from fnx.ops.families import Nullary
from fnx.sizes import Size


class _Number(Nullary):
    """number(bits, dtype, weak): the scalar of that dtype with these bits.

    They are an integer of 64 bits, of which the first are those of the scalar.
    """

    lanewise = True

    def infer(self, *, bits: int | Size, dtype: np.dtype[Any], weak: bool) -> ArrayType:
        """A scalar type."""
        if dtypes.is_complex(dtype):
            asked = f"number(dtype={dtype})"
            raise DTypeError(explain(asked, "it has more parts than one"))
        return ArrayType((), dtype, weak)

    def reference(self, *, bits: int, dtype: np.dtype[Any], weak: bool) -> Any:
        """The scalar."""
        return np.array([bits], np.int64).view(dtype)[0]

    def element(
        self,
        k: Any,
        index: Any,
        *,
        bits: int | Size,
        dtype: np.dtype[Any],
        weak: bool,
    ) -> Any:
        """An index without loops, as a value."""
        if dtypes.is_bool(dtype):
            return k.ne(k.index_value(bits, dtypes.int64), k.constant(0, dtypes.int64))
        same = dtypes.as_dtype(f"int{8 * dtype.itemsize}")
        return k.bitcast(k.index_value(bits, same), dtype)


number = _Number("number")


def bits_of(value: Any) -> int:
    """The bits of a NumPy scalar that is not complex, as 64 of them; an integer's sign
    goes on in front.

    >>> bits_of(np.float32(1.0)) == 0x3F800000, bits_of(np.int8(-1))
    (True, -1)
    """
    scalar = np.asarray(value)
    if dtypes.is_integer(scalar.dtype):
        return int(scalar.astype(np.int64))
    word = np.zeros(8 // scalar.dtype.itemsize, scalar.dtype)
    word[0] = scalar
    return int(word.view(np.int64)[0])


def bits_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the largest bits of a scalar of that dtype."""
    of = dtype if dtypes.is_integer(dtype) and dtype.itemsize < 8 else np.int64
    return int(np.iinfo(of).min), int(np.iinfo(of).max)
