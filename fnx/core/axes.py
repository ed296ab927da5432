"""The named axes that are bound where a function is being traced.

`vmap(axis_name=)`, `pmap` and `shard_map` bind a name to a size while they trace; a
collective looks its axis up when it is called, so that a name nobody bound is an error
at the user's line. Where a program runs as one of several replicas, its thread has a
`Communicator` for each axis. Receives names and sizes, gives sizes and communicators.
Next on the walk: `fnx/ops/collective.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

from fnx import errors
from fnx.core import hooks
from fnx.core.communicator import Communicator


class _Bound(threading.local):
    """Per thread: the bound axes, outermost first, and who is met along them."""

    axes: tuple[tuple[Hashable, int], ...] = ()
    members: Mapping[Hashable, Communicator] | None = None


_bound = _Bound()


@contextmanager
def bound_axis(name: Hashable, size: int) -> Iterator[None]:
    """A context in which an axis of that name and size is bound.

    An axis of the same name bound further out is hidden inside. `None` binds nothing.

    >>> with bound_axis("batch", 8):
    ...     axis_size("batch")
    8
    """
    before = _bound.axes
    hooks.busy.append(None)
    if name is not None:
        _bound.axes = (*before, (name, size))
    try:
        yield
    finally:
        _bound.axes = before
        hooks.busy.pop()


@contextmanager
def rebound(bound: tuple[tuple[Hashable, int], ...]) -> Iterator[None]:
    """A context in which these axes are bound and no others.

    What is traced later than the function that it belongs to sees the axes of that
    function (`bound_axes` there).
    """
    before = _bound.axes
    hooks.busy.append(None)
    _bound.axes = bound
    try:
        yield
    finally:
        _bound.axes = before
        hooks.busy.pop()


def bound_axes() -> tuple[tuple[Hashable, int], ...]:
    """The (name, size) pairs bound here, outermost first."""
    return _bound.axes


def axis_size(name: Hashable) -> int:
    """The size of the innermost axis of that name.

    Raises `AxisError` where no axis of that name is bound.
    """
    for known, size in reversed(_bound.axes):
        if known == name:
            return size
    names = ", ".join([repr(known) for known, _ in _bound.axes])
    found = f"the axes bound here are {names}" if names else "no axis is bound here"
    raise errors.AxisError(
        errors.explain(
            f"the axis name {name!r} is not bound",
            found,
            "call it inside fnx.vmap(..., axis_name=...), pmap or shard_map with that "
            "name",
        )
    )


@contextmanager
def replica(members: Mapping[Hashable, Communicator]) -> Iterator[None]:
    """A context in which this thread runs one replica of a program.

    `members` has a communicator for each of the program's axes.
    """
    before = _bound.members
    _bound.members = members
    try:
        yield
    finally:
        _bound.members = before


def is_replica() -> bool:
    """Whether this thread runs one of several replicas."""
    return _bound.members is not None


def met() -> tuple[tuple[int, int], ...]:
    """Numbers of those that are met along all axes, which stay from run to run, and
    the number that the replica of this thread has among them.
    """
    found = {} if _bound.members is None else _bound.members
    return tuple([(getattr(one, "identity", 0), one.rank) for one in found.values()])


def communicator(name: Hashable) -> Communicator | None:
    """Who is met along an axis; `None` where this is no replica of several."""
    return None if _bound.members is None else _bound.members.get(name)
