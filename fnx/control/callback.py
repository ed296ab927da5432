"""Callbacks: equations that call a function of the user's on the host.

`pure_callback` computes: it may be dropped, or run again. `io_callback` and
`debug_callback` have effects: they run once, in the order of the program. Under `vmap`
an equation calls its function for one member after the other (`Member`s say how its
operands are divided), unless the user says that the function knows about axes.
What users call is in `fnx.api.callbacks`; next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.types import ArrayType
from fnx.ops.families import along
from fnx.ops.shape import reshape
from fnx.records import record
from fnx.transforms.batch import batched

ONE_BY_ONE = ("sequential", "sequential_unrolled")
"""The methods of `vmap` that call the function for one member after the other."""

VMAP_METHODS = (*ONE_BY_ONE, "expand_dims", "broadcast_all", "legacy_vectorized")

Types = tuple[ArrayType, ...]
Arrays = Sequence[np.ndarray[Any, Any]]


class Host:
    """A function from read-only arrays, and the types of its results, to arrays.

    Equal only to itself. `way_out` is what to do where its derivative is asked for, if
    that is something special.
    """

    __slots__ = ("function", "name", "way_out")

    def __init__(
        self,
        name: str,
        function: Callable[[Arrays, Types], Arrays],
        way_out: str = "",
    ) -> None:
        self.name = name
        self.function = function
        self.way_out = way_out

    def __repr__(self) -> str:
        return self.name


@record
class Members:
    """An axis along which the function is called for one member after the other."""

    size: int
    mapped: tuple[bool, ...]


class _Callback(Primitive):
    """What the three have in common.

    `declared` are the types of the results of one call; `members` are the axes over all
    calls, the outermost first.
    """

    multiple = True
    personal = True

    def infer(
        self, *given: ArrayType, declared: Types, members: tuple[Members, ...], **_: Any
    ) -> Types:
        """The declared types, with the axes of the members."""
        sizes = tuple([part.size for part in members])
        return tuple([type.with_shape((*sizes, *type.shape)) for type in declared])

    def reference(
        self,
        *arrays: Any,
        host: Host,
        declared: Types,
        members: tuple[Members, ...],
        **_: Any,
    ) -> tuple[Any, ...]:
        """What the function gives; its errors are the user's."""
        # Like a call of the user's own: compiled code has NumPy ignore errors.
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return tuple(_called(host, declared, members, list(map(private, arrays))))

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, host: Host, **_: Any
    ) -> tuple[Any, Any]:
        """There is none."""
        raise errors.ArgumentError(
            errors.explain(
                f"{self.name} of {host.name}: its derivative is asked for",
                "what a function does on the host cannot be differentiated",
                host.way_out or self.way_out,
            )
        )

    def transpose(self, ct: Any, *inputs: Any, host: Host, **_: Any) -> Any:
        """There is none, though a rule may apply it to tangents or cotangents."""
        raise errors.ArgumentError(
            errors.explain(
                f"{self.name} of {host.name} is a rule for the other mode",
                "what a function does on the host cannot be turned around",
                "pass both jvp= and vjp= to pure_callback, or use the other mode",
            )
        )

    way_out = (
        "keep the derivative away with fnx.lax.stop_gradient, or give the function "
        "that calls it a rule (fnx.custom_jvp, fnx.custom_vjp)"
    )

    def one_by_one(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        members: tuple[Members, ...],
        **params: Any,
    ) -> tuple[Any, Any]:
        """The equation over one more axis of members."""
        outer = Members(axis.size, tuple(mapped))
        results = self(*args, members=(outer, *members), **params)
        return results, (True,) * len(results)

    def steps(self, plan: Any, *inputs: Any, **params: Any) -> None:
        """Run by the host."""
        plan.host()


class _Pure(_Callback):
    way_out = (
        "pass vjp= or jvp=, functions on the host for cotangents and tangents, give "
        "the function that calls it a rule (fnx.custom_jvp, fnx.custom_vjp), or keep "
        "the derivative away with fnx.lax.stop_gradient"
    )

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        host: Host,
        declared: Types,
        members: tuple[Members, ...],
        method: str | None,
    ) -> tuple[Any, Any]:
        """One call after the other, or one call with one more axis."""
        params: dict[str, Any] = {"host": host, "method": method}
        if method is None:
            raise errors.ArgumentError(
                errors.explain(
                    f"vmap: pure_callback of {host.name} has no vmap_method",
                    "fnx cannot know whether the function works on stacks of arrays",
                    'pass vmap_method="sequential" for one call after the other, or '
                    '"expand_dims" or "broadcast_all" for one call with a leading axis',
                )
            )
        if method in ONE_BY_ONE:
            return self.one_by_one(
                axis, args, mapped, members, declared=declared, **params
            )
        rows = zip(args, mapped, strict=True)
        stacks = [x if m else _lifted(axis, x, method) for x, m in rows]
        many = tuple([batched(type, axis.size) for type in declared])
        results = self(*stacks, declared=many, members=members, **params)
        return results, (True,) * len(results)


class _Io(_Callback):
    effect = True

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        host: Host,
        members: tuple[Members, ...],
        declared: Types,
        ordered: bool,
    ) -> tuple[Any, Any]:
        """One call after the other, unless that would change a promised order."""
        if ordered:
            raise errors.ArgumentError(
                errors.explain(
                    f"vmap: io_callback of {host.name} is ordered",
                    "a mapped program runs each of its operations for all members, so "
                    "the calls of one member cannot come before those of the next",
                    "pass ordered=False, or go over the members with fnx.lax.map",
                )
            )
        params: dict[str, Any] = {
            "host": host,
            "declared": declared,
            "ordered": ordered,
        }
        return self.one_by_one(axis, args, mapped, members, **params)


class _Debug(_Callback):
    """debug_callback: it has no results, and the derivative passes it by."""

    effect = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The call itself, once."""
        return self(*primals, **params), ()

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        host: Host,
        members: tuple[Members, ...],
        declared: Types,
    ) -> tuple[Any, Any]:
        """One call after the other."""
        return self.one_by_one(
            axis, args, mapped, members, host=host, declared=declared
        )


pure_callback = _Pure("pure_callback")
io_callback = _Io("io_callback")
debug_callback = _Debug("debug_callback")


def _lifted(axis: MappedAxis, x: Any, method: str) -> Any:
    """An argument that is not mapped, as a method wants to have it."""
    if method == "expand_dims":
        return reshape(x, shape=(1, *x.type.shape))
    return along(axis, x) if method == "broadcast_all" else x


def private(x: Any) -> np.ndarray[Any, Any]:
    """An array that the user may keep: a plan uses its memory again."""
    array = np.asarray(x)
    if array.flags.writeable:
        array = np.array(array, order="C")
        array.flags.writeable = False
    return array


def _called(
    host: Host, types: Types, members: tuple[Members, ...], arrays: Arrays
) -> Arrays:
    """What all calls give, stacked along the axes of the members."""
    if not members:
        return host.function(arrays, types)
    (outer, *inner) = members
    rows = [
        _called(host, types, tuple(inner), _member(arrays, outer.mapped, number))
        for number in range(outer.size)
    ]
    sizes = tuple([part.size for part in members])
    if not rows:
        return [np.zeros((*sizes, *type.shape), type.dtype) for type in types]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _member(arrays: Arrays, mapped: tuple[bool, ...], number: int) -> Arrays:
    rows = zip(arrays, mapped, strict=True)
    # With the ellipsis a row of a vector is an array too, and not writable either.
    return [x[number, ...] if is_mapped else x for x, is_mapped in rows]
