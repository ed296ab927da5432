"""What all arrays share, whether they hold a value or stand for one in a trace.

`Array` is the public type: `isinstance(x, fnx.Array)` holds for tracers too. Its two
kinds are `core.trace.Tracer` and `runtime.array.ConcreteArray`; both give their value
as a NumPy array, from which the conversions to Python are made here, once. Operators
and methods such as `x + y` and `x.sum()` are installed by `fnx.numpy`, which lives
above (`install`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.types import ArrayType


class Array:
    """An immutable array: concrete, or a tracer inside a transformation."""

    __slots__ = ()
    # NumPy defers to our operators: numpy_array + array is an array.
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    type: ArrayType

    if TYPE_CHECKING:
        # Installed by the layer above: the operators, and methods such as `sum`.
        __add__: Any
        __radd__: Any
        __sub__: Any
        __rsub__: Any
        __mul__: Any
        __rmul__: Any
        __truediv__: Any
        __rtruediv__: Any
        __pow__: Any
        __matmul__: Any
        __neg__: Any
        __getitem__: Any
        __getattr__: Any

    def _numpy(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array; a tracer of unknown value raises."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self.type.dtype

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields to that of an operand with an explicit dtype."""
        return self.type.weak

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements."""
        return self.type.size * self.type.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """The number of bytes of one element."""
        return self.type.dtype.itemsize

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        return np.array(self._numpy(), dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._numpy())

    def __int__(self) -> int:
        return int(self._numpy())

    def __float__(self) -> float:
        return float(self._numpy())

    def __complex__(self) -> complex:
        return complex(self._numpy())

    def __index__(self) -> int:
        value = self._numpy()
        if value.ndim or value.dtype.kind not in "iu":
            raise TypeError(
                f"only an integer array of rank 0 can be an index, not {self.type}"
            )
        return int(value)

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("an array of rank 0 has no length")
        return self.type.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.type.shape:
            raise TypeError("an array of rank 0 cannot be iterated over")
        return (self[i] for i in range(self.type.shape[0]))

    def __format__(self, spec: str) -> str:
        if spec and not self.type.shape:
            return format(self._numpy()[()], spec)
        if spec and not spec.endswith("s") and spec[-1].isalpha():
            raise TypeError(
                f"the format {spec!r} is that of one number, this is {self.type}; for "
                "all elements: fnx.numpy.printoptions(precision=...) or x.tolist()"
            )
        return format(str(self), spec)

    def item(self, *index: int) -> Any:
        """The element as a Python scalar; the array has one element, or `index`."""
        return self._numpy().item(*index)

    def tolist(self) -> Any:
        """The elements as nested Python lists."""
        return self._numpy().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The elements as bytes, row by row, or column by column for "F"."""
        return self._numpy().tobytes(order)  # type: ignore[arg-type]


def install(**members: Any) -> None:
    """Gives every array the operators, methods and properties of a layer above."""
    for name, member in members.items():
        setattr(Array, name, member)
