"""Lanes: the members of a batch that take part in a branch or a round, and the others.

Where `vmap` runs one program for members that chose differently, those that did not
choose it run along with the operands of one that did. Nothing can go wrong for them
then that does not go wrong for that one (an endless loop, an error, a NaN that a
product would spread), and what they compute is dropped. Where members meet they run
with their own operands, since the others see those.
Receives a program with a leading axis on its outputs, gives such a program that also
takes a mask. Next on the walk: `cond.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.control.held import with_axis
from fnx.core.cache import cached
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.program import Eqn, Program, walk
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.dtypes import bool_, int32
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.collective import all_gather
from fnx.ops.elementwise import div
from fnx.ops.index import take
from fnx.ops.prefix import filled
from fnx.ops.reduce import argmax
from fnx.ops.shape import all_along, broadcast_in_dim, iota, reshape, scalar
from fnx.ops.window_dims import clipped
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.shard import Part


class _Lanes(Primitive):
    """lanes(mask, first, x): x, with row `first` in every row that is not marked.

    What becomes of those rows is dropped, so that the derivative need not care: the
    tangent of a row stays its own, and so does its cotangent, which is 0.
    """

    linear = True

    def infer(self, mask: ArrayType, first: ArrayType, x: ArrayType) -> ArrayType:
        """The type of the operand."""
        return x

    def reference(self, mask: Any, first: Any, x: Any) -> Any:
        """NumPy's where."""
        marked = np.reshape(mask, (-1,) + (1,) * (np.ndim(x) - 1))
        return np.where(marked, x, x[int(first)])

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The tangent as it is."""
        return self(*primals), tangents[2]

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        """The cotangent as it is."""
        return None, None, ct

    def padded(self, pads: Pads, mask: Padded, first: Padded, x: Padded) -> Any:
        """No padding is marked, so that nothing can go wrong for it, either."""
        return self(filled(pads, mask, False), first.array, x.array)

    def batch(
        self, axis: MappedAxis, args: Sequence[Any], mapped: Sequence[bool]
    ) -> tuple[Any, bool]:
        """A gather of the row that each lane is given, since masks may differ."""
        if not any(mapped):
            return self(*args), False
        mask, first, x = all_along(axis, args, mapped)
        size, count = x.shape[:2]
        own = iota(shape=(size, count), dtype=int32, axis=1)
        first = broadcast_in_dim(first, shape=(size, count), dims=(0,))
        start = mul(
            iota(shape=(size, count), dtype=int32, axis=0), scalar(count, int32)
        )
        row = reshape(add(start, select(mask, own, first)), shape=(size * count,))
        rows = reshape(x, shape=(size * count, *x.shape[2:]))
        return reshape(take(rows, row, 0), shape=x.shape), True

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """Lanes on several devices are given the row by the device that has it."""
        mask, first, x = parts
        names, *rest = x.spec
        mask = cutter.moved(mask, (names,)).value
        if not names:
            return [Part(self(mask, first.value, x.value), x.spec)]
        count = scalar(x.value.shape[0], int32)
        number = sub(first.value, mul(cutter.place(names), count))
        row = take(x.value, number, 0)
        for name in reversed(names):
            row = all_gather(row, axis_name=name, axis_size=cutter.sizes[name])
        row = reshape(row, shape=(cutter.count(names), *x.value.shape[1:]))
        row = take(row, div(first.value, count), 0)
        dims = tuple(range(1, x.value.ndim))
        given = broadcast_in_dim(row, shape=x.value.shape, dims=dims)
        found = select(along_lanes(mask, x.value.shape), x.value, given)
        return [Part(found, (names, *rest))]

    def element(self, k: Any, index: Any, mask: Any, first: Any, x: Any) -> Any:
        """The element of its own row, or of the first one."""
        row = clipped(k, first(()), x.shape[0] - 1)[0]
        marked = mask(index[:1])
        return k.where(marked, lambda: x(index), lambda: x((row, *index[1:])))


class _Lane(Primitive):
    """lane(active, x): x. Where the lane is not active, any x would do.

    Over a batch that becomes `lanes`; loops, branches and calls take it in, so that of
    large operands only what they read is chosen.
    """

    linear = True

    def infer(self, active: ArrayType, x: ArrayType) -> ArrayType:
        """The type of the operand."""
        return x

    def reference(self, active: Any, x: Any) -> Any:
        """The operand."""
        return np.asarray(x)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The tangent as it is."""
        return self(*primals), tangents[1]

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        """The cotangent as it is."""
        return None, ct

    def padded(self, pads: Pads, active: Padded, x: Padded) -> Any:
        """As without padding."""
        return self(active.array, x.array)

    def batch(
        self, axis: MappedAxis, args: Sequence[Any], mapped: Sequence[bool]
    ) -> tuple[Any, bool]:
        """The operand's row of the first active lane in all that are not active."""
        active, x = args
        if not (mapped[0] and mapped[1]):
            return (x, True) if mapped[1] else (x, False)
        return lanes(active, argmax(active, axis=0, index_dtype=int32), x), True

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """The operand as it is cut; the lane is all devices'."""
        active, x = parts
        return [Part(self(cutter.gathered(active).value, x.value), x.spec)]

    def element(self, k: Any, index: Any, active: Any, x: Any) -> Any:
        """The operand's element."""
        return x(index)


lanes = _Lanes("lanes")
lane = _Lane("lane")


def is_for_all(program: Program) -> bool:
    """Whether a program runs for members that are not meant, too, without a mask.

    It does where nothing can go wrong for them: what they compute is dropped. And where
    members meet (`psum`), along this axis or another one: then the others see their
    values, which must be their own, and wait for them.
    """
    if all(eqn.primitive.lanewise for eqn in program.eqns):
        return True
    return any(eqn.primitive.meets for eqn in walk(program))


@cached
def lane_program(
    program: Program, axis: MappedAxis, mapped: Mask, wanted: Mask
) -> Program:
    """The batched program for the lanes of a mask, which is its first input.

    `mapped` says which of the others have the axis, `wanted` which outputs get it.
    """

    def run(active: Any, *operands: Any) -> list[Any]:
        rows = zip(operands, mapped, strict=True)
        given = [lane(active, x) if is_mapped else x for x, is_mapped in rows]
        return evaluate(program, given)

    types = [ArrayType((), bool_), *program.input_types]
    guarded = rewrite(run, types, "batch", program)
    return with_axis(guarded, axis, (True, *mapped), wanted)


def selected(mask: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    """The new values in the lanes of a mask, the old ones in the others."""
    rows = zip(new, old, strict=True)
    return [select(along_lanes(mask, x.shape), x, y) for x, y in rows]


def along_lanes(mask: Any, shape: tuple[int, ...]) -> Any:
    """A mask of lanes repeated along the other axes of a shape."""
    if mask.shape == shape:
        return mask
    return broadcast_in_dim(mask, shape=shape, dims=(0,))
