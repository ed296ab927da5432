"""All replicas as one program: what it computes, and when it is what runs.

Receives the program of a replica, the axes of a mesh, and how arrays are cut along
them; gives the program of whole arrays, batched over every axis of the mesh, which is
what `vmap` would have run. Next on the walk: `spmd.py`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis
from fnx.core.program import Eqn, Program, sub_programs
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.families import along
from fnx.ops.pieces import part_of
from fnx.ops.shape import permute, reshape, reshaped
from fnx.transforms.batch import batch_program
from fnx.transforms.rewrite import rewrite

Axes = tuple[tuple[Hashable, int], ...]
"""The axes of a mesh, the slowest first: name and size."""

Spec = tuple[tuple[Hashable, ...], ...]
"""For each axis of an array the axes of the mesh that cut it, the slowest first."""

Specs = tuple[Spec, ...]


@cached
def as_one(program: Program, axes: Axes, ins: Specs, outs: Specs) -> Program:
    """What all replicas compute, as one program of whole arrays without collectives."""
    lifted = program
    held: list[list[Hashable]] = [[] for _ in ins]
    ends: list[list[Hashable]] = [[] for _ in outs]
    for name, size in reversed(axes):
        mapped = tuple([name in names_of(spec) for spec in ins])
        axis = MappedAxis(name, size, in_order=True)
        lifted, found = batch_program(lifted, axis, mapped)
        for names, is_mapped in zip((*held, *ends), (*mapped, *found), strict=True):
            if is_mapped:
                names.insert(0, name)

    def run(*args: Any) -> list[Any]:
        parts = [
            _stacked(x, spec, names, axes)
            for x, spec, names in zip(args, ins, held, strict=True)
        ]
        rows = zip(evaluate(lifted, parts), outs, ends, strict=True)
        return [_joined(x, spec, names, axes) for x, spec, names in rows]

    types = [whole(*row, axes) for row in zip(program.input_types, ins, strict=True)]
    return rewrite(run, types, "spmd", program)


def _stacked(x: Any, spec: Spec, names: Sequence[Hashable], axes: Axes) -> Any:
    """An array with its parts along leading axes, those of these names."""
    sizes = dict(axes)
    shape: list[int] = []
    places: dict[Hashable, int] = {}
    rest: list[int] = []
    for n, cut in zip(x.shape, spec, strict=True):
        for name in cut:
            places[name] = len(shape)
            shape.append(sizes[name])
        rest.append(len(shape))
        shape.append(n // size_of(cut, axes))
    dims = (*[places[name] for name in names], *rest)
    return _permuted(reshaped(x, tuple(shape)), dims)


def _joined(x: Any, spec: Spec, names: Sequence[Hashable], axes: Axes) -> Any:
    """The whole of parts that lie along leading axes of these names."""
    wanted = names_of(spec)
    left = []
    for name in names:
        if name in wanted:
            left.append(name)
        else:  # the first replica's
            x = _first(x, len(left))
    for name, size in reversed(axes):
        if name in wanted and name not in left:
            x = along(MappedAxis(name, size), x)
            left.insert(0, name)
    places = {name: place for place, name in enumerate(left)}
    dims: list[int] = []
    shape: list[int] = []
    for axis, cut in enumerate(spec):
        n = x.shape[len(left) + axis]
        dims += [*[places[name] for name in cut], len(left) + axis]
        shape.append(n * size_of(cut, axes))
    return reshaped(_permuted(x, tuple(dims)), tuple(shape))


def _permuted(x: Any, dims: tuple[int, ...]) -> Any:
    return x if dims == tuple(range(len(dims))) else permute(x, dims=dims)


def _first(x: Any, axis: int) -> Any:
    """The first member along an axis, which goes."""
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return reshape(part_of(x, axis, 0, 1), shape=shape)


def size_of(names: Sequence[Hashable], axes: Axes) -> int:
    """How many parts the axes of these names cut."""
    sizes = dict(axes)
    return math.prod([sizes[name] for name in names])


def whole(part: ArrayType, spec: Spec, axes: Axes) -> ArrayType:
    """The type of an array whose parts have a type."""
    rows = zip(part.shape, spec, strict=True)
    return part.with_shape(tuple([n * size_of(names, axes) for n, names in rows]))


def names_of(spec: Spec) -> tuple[Hashable, ...]:
    """The axes of the mesh that cut an array."""
    return tuple([name for names in spec for name in names])


# ---------------------------------------------------------------- when it runs


SMALL = 20_000
"""So many elements are computed by one thread while others wake up."""


def together(program: Program, axes: Axes, ins: Specs, outs: Specs) -> Program | None:
    """All replicas as one program, if that is what runs them on CPUs.

    `None` where each has a thread of its own.
    """
    return as_one(program, axes, ins, outs) if runs_as_one(program, axes) else None


@cached
def runs_as_one(program: Program, axes: Axes) -> bool:
    """Whether all replicas are computed together, as one program, by all threads.

    Where replicas do little, that takes less than waking a thread for each. Where they
    sum what products make, as training does, one program reads what the others have
    where it lies, and sums it while it multiplies: nothing is exchanged, and nobody
    waits. Not what has loops and branches, in which replicas may differ, nor what is
    faster side by side (`Primitive.shared_by_threads`).
    """
    steps = _steps(program)
    if any(map(_is_apart, steps)):
        return False
    count = size_of([name for name, _ in axes], axes)
    if count * sum(map(_work, steps)) <= SMALL:
        return True
    meets = any(eqn.primitive.meets for eqn in steps)
    multiplies = any(_products(eqn) is not None for eqn in steps)
    return meets and multiplies and all(map(_is_shared, steps))


def _steps(program: Program) -> list[Eqn]:
    """The equations of a program, and those that they stand for."""
    steps = []
    for eqn in program.eqns:
        body = eqn.primitive.body(**eqn.params)
        steps += [eqn] if body is None else _steps(body)
    return steps


def _is_apart(eqn: Eqn) -> bool:
    """Whether replicas may differ in an equation, or someone sees how often it runs."""
    return eqn.effect or eqn.primitive.personal or any(sub_programs(eqn))


def _is_shared(eqn: Eqn) -> bool:
    types = [atom.type for atom in eqn.inputs]
    return eqn.primitive.shared_by_threads(types, eqn.params)


def _products(eqn: Eqn) -> tuple[int, int, int, int] | None:
    """How many matrix products an equation is, and their sizes, if it is some."""
    types = [atom.type for atom in eqn.inputs]
    found = eqn.primitive.product(types, eqn.params)
    return None if found is None else found[2]


def _work(eqn: Eqn) -> int:
    """The elements or multiply-adds of an equation."""
    sizes = [atom.type.size for atom in (*eqn.inputs, *eqn.outputs)]
    return math.prod(_products(eqn) or (max(sizes, default=0),))
