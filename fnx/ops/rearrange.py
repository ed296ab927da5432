"""What the operations share that move elements: their family, and shapes' arithmetic.

`Rearrangement` is the family of linear operations with one operand whose output holds
its elements; the functions compute and check shapes and axes, on plain integers.
Next on the walk: `shape.py`, which defines the operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis
from fnx.core.program import Atom
from fnx.core.types import ArrayType
from fnx.errors import AxisError, ShapeError, explain
from fnx.kernel.expr import Const
from fnx.ops.families import Copying

Ints = tuple[int, ...]


class Rearrangement(Copying, ABC):
    """A linear operation whose output elements are elements of its one operand.

    A subclass gives the params of the same operation one axis up (`raised`).
    """

    linear = True
    cheap = True
    lanewise = True
    moves = True

    @abstractmethod
    def raised(self, size: int, **params: Any) -> dict[str, Any]:
        """The params that leave a new leading axis of that size alone."""

    @abstractmethod
    def still(self, x: ArrayType, **params: Any) -> bool:
        """Whether every element stays where it is."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The tangent moves like the value."""
        return self(*primals, **params), self(*tangents, **params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Any,
    ) -> tuple[Any, bool]:
        """The same operation on the axes after the new one."""
        if mapped[0]:
            params = self.raised(axis.size, **params)
        return self(*args, **params), mapped[0]

    def padded(self, pads: Pads, x: Padded, **params: Any) -> Any:
        """The same operation, where a prefix goes to a prefix."""
        return self(x.array, **params)

    def identity(self, inputs: Sequence[Atom], **params: Any) -> Atom | None:
        """The operand, where nothing moves."""
        return inputs[0] if self.still(inputs[0].type, **params) else None


# ---------------------------------------------------------------- shapes and axes


def inverse(dims: Ints) -> Ints:
    """The permutation that undoes another one.

    >>> inverse((1, 2, 0))
    (2, 0, 1)
    """
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


def shifted(axes: Ints) -> Ints:
    """Axes one further back, behind a new leading one."""
    return tuple([axis + 1 for axis in axes])


def padded(shape: Ints, low: Ints, high: Ints, interior: Ints) -> Ints:
    """The shape that `pad` gives."""
    spread = dilated(shape, interior)
    return tuple([a + n + b for a, n, b in zip(low, spread, high, strict=True)])


def dilated(shape: Ints, interior: Ints) -> Ints:
    """The shape with `interior` elements put between neighbours."""
    rows = zip(shape, interior, strict=True)
    return tuple([n + max(n - 1, 0) * between for n, between in rows])


def without(shape: Ints, axis: int) -> Ints:
    """The shape without one axis."""
    return shape[:axis] + shape[axis + 1 :]


# ---------------------------------------------------------------- checks


def check_axes(asked: str, type: ArrayType, axes: Ints) -> None:
    """Raises unless the axes are there and all different."""
    for axis in axes:
        if not 0 <= axis < type.ndim:
            raise AxisError(explain(asked, f"axis {axis} is not in [0, {type.ndim})"))
    if len(set(axes)) < len(axes):
        raise AxisError(explain(asked, "an axis is named twice"))


def check_sizes(asked: str, shape: Ints) -> None:
    """Raises if a size is negative."""
    if any(size < 0 for size in shape):
        raise ShapeError(explain(asked, "sizes cannot be negative"))


# ---------------------------------------------------------------- kernels


def all_of(k: Any, conditions: Sequence[Any]) -> Any:
    """The conjunction of boolean expressions, constant where they are."""
    true = k.constant(True, dtypes.bool_)
    open_ = [c for c in conditions if c is not true]
    if any(isinstance(c, Const) for c in open_):
        return k.constant(False, dtypes.bool_)
    result = open_[0] if open_ else true
    for condition in open_[1:]:
        result = k.and_(result, condition)
    return result
