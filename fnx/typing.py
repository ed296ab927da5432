"""fnx.typing: what annotations of functions that take arrays say.

`Array` is `fnx.Array`. `ArrayLike` is what functions take in its place: arrays of NumPy
and Python's numbers. `DTypeLike` is what says a dtype: itself, its name, its type.
Next on the walk: `fnx/scipy`.

>>> def scaled(x: ArrayLike, factor: float) -> Array: ...
"""

from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, DTypeLike

__all__ = ["Array", "ArrayLike", "DTypeLike"]
