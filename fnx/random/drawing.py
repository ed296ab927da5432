"""Formulas of samplers as machine code, so that a sample has the same bits everywhere.

An eager sampler and a jitted one must give the same numbers. Machine code and NumPy
round logarithms and the like differently, so eager samplers run their formula as
machine code, too. Receives the formula with what it is of, gives the samples. Next on
the walk: `continuous.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fnx.api.jit import jit
from fnx.core.array import Array
from fnx.ops.shape import full
from fnx.random.arguments import Shape, spread
from fnx.random.keys import Words


def draw(
    formula: Callable[..., Any],
    words: Words,
    parameters: Sequence[Any],
    shape: Shape,
    *fixed: Any,
) -> Any:
    """`formula(words, *parameters, shape, *fixed)` as one compiled call.

    Parameters are operands beside arrays of the shape; what is `fixed` is hashable.
    """
    arrays = [_array(x) for x in parameters]
    return _compiled(formula, words, arrays, (shape, *fixed))


@partial(jit, static_argnums=(0, 3))
def _compiled(
    formula: Callable[..., Any], words: Words, parameters: Any, fixed: tuple[Any, ...]
) -> Any:
    repeated = [spread(x, fixed[0]) for x in parameters]
    return formula(words, *repeated, *fixed)


def _array(x: Any) -> Array:
    return x if isinstance(x, Array) else full((), x.type.dtype, x.value)
