"""How one equation reads its operands, and what it costs: what `fuse.py` decides by.

Receives equations, gives numbers and axes; primitives tell them by their attributes
and their `alignment` rule. Next on the walk: `fuse.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import dtypes
from fnx.compiler.multiply import Products
from fnx.core.program import Atom, Eqn
from fnx.sizes import usual

# Work to compute a value again, in units of one arithmetic operation.
SIMPLE, DIVISION, FUNCTION, REDUCTION = 1, 5, 12, 100
# A value is narrow beside another one that has at least so many times its elements.
_NARROW = 8
# At so many indices a fold may be computed for nothing: a kernel of its own costs more.
_IDLE = 64


LEAST_ROWS = 2**20
"""Elements of an array to read which once more takes longer than to start a kernel."""


def own_cost(eqn: Eqn) -> int:
    """The work of one element of an equation's output, beside its operands'."""
    if eqn.primitive.reads == "folded":
        return REDUCTION
    if eqn.primitive.is_cheap(**eqn.params):
        return SIMPLE
    return DIVISION if eqn.primitive.division else FUNCTION


def function_values(eqn: Eqn) -> int:
    """How many values of a function, such as `exp`, an equation computes."""
    primitive = eqn.primitive
    elementwise = primitive.lanewise and primitive.reads == "once"
    if not elementwise or not primitive.has("element") or own_cost(eqn) != FUNCTION:
        return 0
    type = eqn.outputs[0].type
    return int(usual(type.size)) if dtypes.is_inexact(type.dtype) else 0


def alignment(eqn: Eqn, position: int) -> tuple[int | None, ...] | None:
    """For each axis of an operand the output axis that it runs along, if known."""
    types = [atom.type for atom in eqn.inputs]
    return eqn.primitive.alignment(position, types, **eqn.params)


def row_prefix(eqn: Eqn, position: int) -> int | None:
    """Along how many axes of the output's index an operand is read, if it is read at a
    prefix of that index, or along rows; None elsewhere.

    Without folded axes a prefix will do: the element is computed once for all that
    follows. With them every axis of the output must come first, or the fold's elements
    would be computed again along those that are left out.
    """
    reading = _reading(eqn, position)
    if reading is None:
        return None
    along, ordered, folds, wanted = reading
    prefix = ordered and along == (wanted if folds else wanted[: len(along)])
    return len(along) if prefix else None


def repeats(eqn: Eqn, position: int) -> bool:
    """Whether one element of an operand is read for many elements of the output."""
    reading = _reading(eqn, position)
    if reading is None:
        return eqn.primitive.reads == "many"
    along, _, _, wanted = reading
    return not set(along) >= set(wanted)


def is_small_part(eqn: Eqn, position: int) -> bool:
    """Whether most of the output is other operands', as of a concatenation.

    A kernel computes all operands at every index, and chooses.
    """
    size = usual(eqn.inputs[position].type.size)
    idle = usual(eqn.outputs[0].type.size) - size
    return bool(idle > max(size, _IDLE)) and not repeats(eqn, position)


def _reading(eqn: Eqn, position: int) -> tuple[list[int], bool, bool, list[int]] | None:
    """The output axes that an operand runs along, whether folded axes come after
    them only, whether there are any, and all axes of the output; `None` if unknown.

    Axes of length 1 do not count: their index is always 0.
    """
    axes = alignment(eqn, position)
    if axes is None:
        return None
    given = eqn.inputs[position].type.shape
    wanted = [n for n, size in enumerate(eqn.outputs[0].type.shape) if size != 1]
    kept = [axis for axis, size in zip(axes, given, strict=True) if size != 1]
    along = [axis for axis in kept if axis is not None]
    return along, kept[: len(along)] == along, len(along) < len(kept), wanted


def sums_rows(eqn: Eqn) -> bool:
    """Whether an equation adds up the rows of a large array: all axes but the last."""
    primitive = eqn.primitive
    if primitive.reads != "folded" or not primitive.linear or len(eqn.inputs) != 1:
        return False
    operand = eqn.inputs[0].type
    rows = operand.ndim - 1
    whole = rows > 0 and alignment(eqn, 0) == (*[None] * rows, 0)
    return bool(whole and usual(operand.size) >= LEAST_ROWS)


def product_of(eqn: Eqn) -> Any:
    """The dtypes and sizes of the product of matrices that an equation is, if any."""
    return eqn.primitive.product([atom.type for atom in eqn.inputs], eqn.params)


def is_fusible(eqn: Eqn, products: Products) -> bool:
    """Whether kernels may compute an equation inline, and it is no step."""
    types = [atom.type for atom in eqn.inputs]
    product = product_of(eqn)
    if product is not None:
        dtype, out_dtype, extents = product
        if products.has(dtype, out_dtype) and products.pays(*extents):
            return False
    convolution = products.convolution(eqn)
    if convolution is not None and products.convolves is not None:
        return not products.convolves(*convolution)
    return eqn.primitive.fusible(types, eqn.params)


def rank(atom: Atom) -> int:
    """How many axes count, being longer than 1."""
    return sum(size != 1 for size in atom.type.shape)


def is_narrow(atom: Atom, eqn: Eqn) -> bool:
    """Whether an operand has far fewer elements than what is made of it."""
    return bool(_NARROW * usual(atom.type.size) <= usual(eqn.outputs[0].type.size))
