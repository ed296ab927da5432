"""Marks on values, which change nothing: names, barriers, and how arrays are cut.

A name is what a policy of `fnx.control.remat` knows a value by. What is computed from a
value and what is computed from the same value behind a barrier are never merged, nor
fused, so that a recomputation stays one. At run time there is nothing: the outputs are
views. Next on the walk: `contraction.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.layout import Layout
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Eqn, Literal
from fnx.core.types import ArrayType
from fnx.ops.families import ANY, STORED, Elementwise


class _Named(Elementwise):
    """checkpoint_name(x, name): the operand, under a name."""

    linear = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, name: str
    ) -> tuple[Any, Any]:
        """The tangent has no name."""
        return self(*primals, name=name), tangents[0]

    def transpose(self, ct: Any, x: Any, *, name: str) -> tuple[Any]:
        """Nor has the cotangent."""
        return (ct,)

    def element(self, k: Any, index: Any, x: Any, *, name: str) -> Any:
        """The operand's element."""
        return x(index)

    def viewed(self, layout: Layout, x: ArrayType, *, name: str) -> Layout:
        """Where the operand lies."""
        return layout


class _Barrier(Primitive):
    """barrier(*xs, number): the operands, once all of them are there.

    Barriers of the same operands are one if they have the same number.
    """

    multiple = True
    linear = True
    lanewise = True

    def infer(self, *types: ArrayType, number: int) -> tuple[ArrayType, ...]:
        """The operands' types."""
        return types

    def reference(self, *arrays: Any, number: int) -> tuple[Any, ...]:
        """The operands."""
        return tuple(map(np.asarray, arrays))

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, number: int
    ) -> tuple[Any, Any]:
        """The tangents behind a barrier of their own."""
        return self(*primals, number=number), self._behind(tangents, number)

    def transpose(self, ct: Any, *inputs: Any, number: int) -> Sequence[Any]:
        """The cotangents behind a barrier."""
        rows = zip(ct, inputs, strict=True)
        return self._behind([c if is_linear(x) else None for c, x in rows], number)

    def padded(self, pads: Pads, *xs: Padded, number: int) -> Any:
        """The padded operands behind the barrier."""
        return self(*[x.array for x in xs], number=number)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        number: int,
    ) -> tuple[Any, Any]:
        """The batched operands behind the barrier."""
        return self(*args, number=number), tuple(mapped)

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """Each operand as it is cut."""
        behind = self(*[part.value for part in parts], **eqn.params)
        rows = zip(behind, parts, strict=True)
        return [type(part)(x, part.spec) for x, part in rows]

    def dependences(
        self, follow: Any, sets: Sequence[Any], known: Sequence[Any], *, number: int
    ) -> Sequence[Any]:
        """Each output on its operand."""
        return sets

    def unfilled(self, eqn: Eqn, given: Sequence[bool]) -> Sequence[bool]:
        """Each output as its operand."""
        return given

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """Without the operands that nobody reads behind it."""
        if all(used):
            return eqn
        rows = [
            pair
            for *pair, is_used in zip(eqn.inputs, eqn.outputs, used, strict=True)
            if is_used
        ]
        inputs, outputs = zip(*rows, strict=True)
        return Eqn(self, inputs, outputs, eqn.params, eqn.source)

    def fusible(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Never: what is before it is stored."""
        return False

    def viewed(self, layout: Layout, x: ArrayType, *, number: int) -> Layout:
        """Where the operand lies."""
        return layout

    def steps(self, plan: Any, *inputs: Any, number: int) -> None:
        """Literals are stored; the other outputs are views."""
        for out, x in zip(plan.outputs, inputs, strict=True):
            if isinstance(x, Literal):
                plan.fill(out, x)

    def _behind(self, values: Sequence[Any], number: int) -> list[Any]:
        """The values, `None` for zeros among them, behind a barrier."""
        behind = iter(self(*[x for x in values if x is not None], number=number))
        return [None if x is None else next(behind) for x in values]


class _Constraint(Elementwise):
    """sharding_constraint(x, spec): the operand, cut along the axes of a mesh.

    `spec` has the names that cut each axis, or `None` for one that stays as it is. On
    one device there is nothing to be done.
    """

    linear = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, spec: Any
    ) -> tuple[Any, Any]:
        """The tangent is cut as the value is."""
        return self(*primals, spec=spec), self(tangents[0], spec=spec)

    def transpose(self, ct: Any, x: Any, *, spec: Any) -> tuple[Any]:
        """So is the cotangent."""
        return (self(ct, spec=spec),)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        spec: Any,
    ) -> tuple[Any, bool]:
        """The new axis stays as it is."""
        return self(*args, spec=(None, *spec) if mapped[0] else spec), mapped[0]

    def element(self, k: Any, index: Any, x: Any, *, spec: Any) -> Any:
        """The operand's element."""
        return x(index)

    def viewed(self, layout: Layout, x: ArrayType, *, spec: Any) -> Layout:
        """Where the operand lies."""
        return layout

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """The operand cut as the spec says; along axes of another mesh it is not."""
        spec = eqn.params["spec"]
        if not {name for names in spec for name in names or ()} <= {*cutter.sizes}:
            return parts
        return [cutter.settled(parts[0], spec)]


sharding_constraint = _Constraint(
    "sharding_constraint", ANY + STORED, lambda x, spec: np.asarray(x), cheap=True
)
barrier = _Barrier("optimization_barrier")
checkpoint_name = _Named(
    "checkpoint_name", ANY + STORED, lambda x, name: np.asarray(x), cheap=True
)
