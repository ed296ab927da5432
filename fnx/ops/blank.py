"""`blank`: memory in which nobody has written anything, and that nobody reads.

Branches give it in the place of a loop's rows that another branch has recorded: those
of a loop that made no round. It costs nothing at run time.
Next on the walk: `contraction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.primitive import MappedAxis
from fnx.core.program import Eqn
from fnx.core.types import ArrayType
from fnx.ops.families import Nullary
from fnx.ops.rearrange import Ints, check_sizes


class _Blank(Nullary):
    """blank(shape, dtype, weak, number): an array whose elements may be anything.

    Those of other numbers are other arrays.
    """

    sized = ("shape",)
    lanewise = True
    sees_axes = True

    def infer(
        self, *, shape: Ints, dtype: np.dtype[Any], weak: bool, number: int
    ) -> ArrayType:
        """An array of that shape and dtype."""
        check_sizes(f"blank(shape={shape}, dtype={dtype})", shape)
        return ArrayType(shape, dtype, weak)

    def reference(
        self, *, shape: Ints, dtype: np.dtype[Any], weak: bool, number: int
    ) -> Any:
        """Zeros, which are no worse than others."""
        return np.zeros(shape, dtype)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        shape: Ints,
        dtype: np.dtype[Any],
        weak: bool,
        number: int,
    ) -> tuple[Any, bool]:
        """One for each member: one that they share would be copied."""
        shape = (axis.size, *shape)
        return self(shape=shape, dtype=dtype, weak=weak, number=number), True

    def unfilled(self, eqn: Eqn, given: Sequence[bool]) -> Sequence[bool]:
        """All of it."""
        return (True,)

    def steps(
        self, plan: Any, *, shape: Ints, dtype: np.dtype[Any], weak: bool, number: int
    ) -> None:
        """Memory alone."""
        plan.reserve()


blank = _Blank("blank")
