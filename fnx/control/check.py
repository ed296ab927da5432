"""`check`: something must hold where the program is; and what is said if it does not.

An equation `check` has an effect: where its condition does not hold, it raises. What
`fnx.checkify` transforms has none: `findings.py`, next on the walk, makes values of
them, of which each belongs to a `Site`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.program import Eqn
from fnx.core.types import ArrayType
from fnx.dtypes import int32
from fnx.errors import Source
from fnx.ops.index import dynamic_slice
from fnx.ops.reduce import argmin, reduce_and
from fnx.ops.shape import reshape, scalar
from fnx.records import record
from fnx.tree import PyTreeDef


@record
class Message:
    """A format, and how the arrays that it shows are divided.

    The first `lanes` of them are places along axes of `vmap`, the outermost first; the
    others are the leaves of `treedef`, a tree of positional and named arguments. With
    `debug`, it counts only where `fnx.checkify` looks at it.
    """

    text: str
    treedef: PyTreeDef
    lanes: int = 0
    debug: bool = False

    def shown(self, arrays: Sequence[Any]) -> str:
        """The text for the values of the arrays."""
        values = [np.asarray(x)[()] for x in arrays]
        shown: Any = self.treedef.unflatten(values[self.lanes :])
        args, kwargs = shown
        text = self.text.format(*args, **kwargs)
        if not self.lanes:
            return text
        places = ", ".join([str(int(x)) for x in values[: self.lanes]])
        return f"at mapped index {places}: {text}"


@record
class Site:
    """A place in a program where something may be wrong."""

    message: Message
    types: tuple[ArrayType, ...]
    source: Source | None

    def shown(self, arrays: Sequence[Any]) -> str:
        """What is wrong there, and the user's line."""
        text = self.message.shown(arrays)
        return f"{text}\n  at {self.source}" if self.source else text


class _Check(Primitive):
    """check(holds, *shown, message): nothing, or `CheckError` if it does not hold."""

    multiple = True
    effect = True

    def infer(
        self, holds: ArrayType, *shown: ArrayType, message: Message
    ) -> tuple[ArrayType, ...]:
        """It has no outputs."""
        return ()

    def reference(self, holds: Any, *shown: Any, message: Message) -> tuple[Any, ...]:
        """Raises what the message says."""
        if not holds and not message.debug:
            raise errors.CheckError(message.shown(shown))
        return ()

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, message: Message
    ) -> tuple[Any, Any]:
        """The check itself, once."""
        return self(*primals, message=message), ()

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        message: Message,
    ) -> tuple[Any, Any]:
        """The first member for which it does not hold speaks for all."""
        if not axis.size:
            return (), ()
        holds, *shown = args
        lane: Any = scalar(0, int32)
        if mapped[0]:
            lane = argmin(holds, axis=0, index_dtype=int32)
            holds = reduce_and(holds, axes=(0,))
        rows = zip(shown, mapped[1:], strict=True)
        own = [row_of(x, lane) if is_mapped else x for x, is_mapped in rows]
        lifted = Message(
            message.text, message.treedef, message.lanes + 1, message.debug
        )
        return self(holds, lane, *own, message=lifted), ()

    def checked(self, found: Any, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
        """A value, if it does not hold."""
        holds, *shown = inputs
        found.require(eqn, holds, eqn.params["message"], shown)
        return ()

    def steps(self, plan: Any, *inputs: Any, **params: Any) -> None:
        """Looked at by the host."""
        plan.host()


check = _Check("check")


def row_of(x: Any, number: Any) -> Any:
    """A row of an array at a place that is known only when the program runs."""
    zero = scalar(0, int32)
    starts = [number, *[zero for _ in x.type.shape[1:]]]
    part = dynamic_slice(x, *starts, sizes=(1, *x.type.shape[1:]))
    return reshape(part, shape=x.type.shape[1:])
