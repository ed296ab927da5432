"""Zeros that a rule can tell from other arrays: `symbolic_zeros=True`.

A rule that asks for it is told which arguments are differentiated by, and which
cotangents (or tangents) are zero because nothing depends on them, and need not compute
what is multiplied by zero. Receives leaves of trees, gives such leaves.
Next on the walk: `rules.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import tree
from fnx.api.arguments import as_array
from fnx.api.tangents import zeros
from fnx.core.types import ArrayType
from fnx.records import record


@record
class SymbolicZero:
    """A tangent or cotangent that is zero, in place of an array of zeros.

    It has the `shape`, `dtype` and `ndim` of that array, which is `instantiate()`.

    >>> import fnx, numpy as np
    >>> f = fnx.custom_vjp(lambda x: (x, 2.0 * x))
    >>> def backward(_, cts):
    ...     print([type(ct).__name__ for ct in cts])
    ...     return (cts[0],)
    >>> f.defvjp(lambda x: (f(x.value), None), backward, symbolic_zeros=True)
    >>> fnx.grad(lambda x: f(x)[0])(3.0).item()
    ['Tracer', 'SymbolicZero']
    1.0
    """

    type: ArrayType

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of zeros."""
        return self.type.shape

    @property
    def dtype(self) -> Any:
        """Its dtype."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.type.shape)

    def instantiate(self) -> Any:
        """The array of zeros."""
        return zeros(self.type)


@record(eq=False)
class CustomVJPPrimal:
    """An argument of a forward rule: its `value`, and whether it is `perturbed`.

    A leaf is perturbed if the derivative by it is asked for.
    """

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(args: Any) -> Any:
    """A tree of arguments of a forward rule, with their values as leaves.

    >>> import fnx
    >>> from fnx.custom_derivatives import CustomVJPPrimal
    >>> fnx.custom_derivatives.custom_vjp_primal_tree_values([CustomVJPPrimal(3, True)])
    [3]
    """
    return tree.map(lambda x: x.value if isinstance(x, CustomVJPPrimal) else x, args)


def zero_from_primal(x: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of an array: an array, or a `SymbolicZero`.

    Of an integer it has dtype float0. Raises `ArgumentError` for what is no array.

    >>> import fnx
    >>> fnx.custom_derivatives.zero_from_primal(3.0)
    Array(0., dtype=float32, weak_type=True)
    >>> fnx.custom_derivatives.zero_from_primal(3.0, symbolic_zeros=True)
    SymbolicZero(type=f32[]*)
    """
    type = as_array(x, "zero_from_primal", "x").type
    return SymbolicZero(type) if symbolic_zeros else zeros(type)


def instantiated(values: Any) -> Any:
    """A tree of tangents with arrays in the place of symbolic zeros."""
    return tree.map(
        lambda t: t.instantiate() if isinstance(t, SymbolicZero) else t, values
    )


__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "custom_vjp_primal_tree_values",
    "instantiated",
    "zero_from_primal",
]
