"""jit over the devices of a mesh: a program of whole arrays, run in parts.

Receives a function and shardings of its arguments and results; the traced program is
cut (`fnx/transforms/shard.py`) and runs as what `shard_map` gives. Next on the walk:
`device.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import leaf_names, look_like, name_of
from fnx.api.entry import Entry
from fnx.api.jit import Jitted
from fnx.api.spread import Spread, replicated
from fnx.api.stages import Lowered, Staged
from fnx.config import config
from fnx.core.trace import Tracer, tracing
from fnx.core.types import ArrayType
from fnx.ops.marks import sharding_constraint
from fnx.records import record
from fnx.runtime.executable import Executable
from fnx.runtime.in_parts import named_sharding
from fnx.runtime.mesh import Mesh, current_mesh
from fnx.runtime.pieces import executable_in_parts
from fnx.runtime.sharding import (
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    full_spec,
    names_in,
    open_spec,
    spec_names,
)
from fnx.runtime.spread import spec_of
from fnx.transforms.shard import partition_program, settled

_CACHE_SIZE = 4096


@record
class InParts(Entry):
    """What one signature of a function computed in parts came to.

    Its program is the equation of what every device does with its parts.
    """

    spread: Spread | None = None

    @property
    def executable(self) -> Executable:
        """The program, compiled for one device."""
        return executable_in_parts(self.program, self.backend)

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result in parts, for leaves wherever they are."""
        assert self.spread is not None
        results = self.spread(leaves)
        donated = self.donated[len(self.captured) :]
        for x, is_donated in zip(leaves, donated, strict=True):
            if is_donated:
                x.delete()
        return self.out_tree.unflatten(results)


def cut_entry(
    entry: Entry, ins: Sequence[Any], outs: Sequence[Any], mesh: Mesh, replicate: bool
) -> InParts:
    """A traced function, cut as these shardings say; an output without comes as it may.

    With `replicate`, what cannot be cut is computed whole on every device.
    """
    ends = leaf_names(["the result"], [entry.out_tree])
    names = entry.signature.names
    program, count = entry.program, len(entry.captured)
    types = program.input_types[count:]
    specs = _specs(entry.asker, ins, types, mesh, names, _spec)
    targets = _specs(entry.asker, outs, program.output_types, mesh, ends, _open)
    given = [replicated(x.shape) for x in entry.captured]
    for spec, type in zip(specs, types, strict=True):
        given.append(replicated(type.shape) if spec is None else spec)
    local, found = partition_program(
        program, mesh.axes, tuple(given), tuple(targets), replicate
    )
    held = tuple([f"captured array {n}" for n in range(count)])
    spread = Spread(
        entry.asker,
        local,
        entry.captured,
        mesh,
        tuple(given),
        found,
        (*held, *names),
        tuple(ends),
    )
    return InParts(
        entry.asker,
        spread.as_program(),
        entry.captured,
        entry.signature,
        entry.out_tree,
        entry.donated,
        entry.calls,
        entry.placement,
        spread,
    )


def followed(entry: Entry, shardings: Sequence[NamedSharding | None]) -> Entry:
    """A traced function, cut as its arguments are that come in parts.

    A function with effects has them once, so it is not cut. Raises `ArgumentError` for
    arguments on different devices.
    """
    if entry.program.effect:
        return entry
    given = [sharding for sharding in shardings if sharding is not None]
    mesh = given[0].mesh
    for sharding in given:
        if sharding.device_set != given[0].device_set:
            raise errors.ArgumentError(
                errors.explain(
                    f"{entry.asker}: its arguments are on different devices",
                    f"{mesh} and {sharding.mesh}",
                    "put all arrays on one mesh with fnx.device_put",
                )
            )
    # What is cut along another mesh of the same devices is cut anew.
    ins = [x if x is not None and x.mesh == mesh else None for x in shardings]
    return cut_entry(entry, ins, [None] * entry.out_tree.num_leaves, mesh, True)


class Partitioned:
    """A function under `jit` with shardings."""

    def __init__(self, jitted: Jitted, in_shardings: Any, out_shardings: Any) -> None:
        look_like(self, jitted)
        self._jitted = jitted
        self._ins = in_shardings
        self._outs = out_shardings
        self._entries: dict[Any, InParts] = {}

    def __repr__(self) -> str:
        return f"<{self._asker}>"

    @property
    def _asker(self) -> str:
        return f"jit of {name_of(self._jitted)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, computed in parts."""
        try:
            return self._call(args, kwargs)
        except BaseException as error:
            errors.hide_internal(error)
            raise

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program of a call, cut, and its compiled forms, without running it."""
        return self.trace(*args, **kwargs).lower()

    @errors.api_boundary
    def trace(self, *args: Any, **kwargs: Any) -> Staged:
        """The traced program of a call, cut: what each device does with its parts."""
        divided, leaves = self._jitted.divided(args, kwargs)
        entry = self._jitted.staged(args, kwargs)
        return Staged(self._made(entry, (divided.args, divided.kwargs), leaves))

    # -- inside

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if tracing():
            return self._within(args, kwargs)
        divided, arrays, traced = self._jitted.signature_of(args, kwargs)
        given = tuple(map(named_sharding, arrays))
        key = traced, given, current_mesh(), config.replicate_uncut
        found = self._entries.get(key)
        if found is None:
            full = divided.args, divided.kwargs
            found = self._made(self._jitted.staged(args, kwargs), full, arrays)
            while len(self._entries) >= _CACHE_SIZE:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = found
        return found.run(arrays)

    def _within(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside of a trace shardings are constraints on values."""
        if self._ins is not None:
            args = with_sharding_constraint(args, self._ins)
        result = self._jitted(*args, **kwargs)
        if self._outs is None:
            return result
        return with_sharding_constraint(result, self._outs)

    def _made(self, entry: Entry, full: Any, leaves: Sequence[Any]) -> InParts:
        """The program of a call, cut."""
        ends = leaf_names(["the result"], [entry.out_tree])
        ins = self._wanted("in_shardings", self._ins, full, leaves)
        outs = self._wanted("out_shardings", self._outs, entry.out_tree, ends)
        mesh = self._mesh([*ins, *outs])
        return cut_entry(entry, ins, outs, mesh, config.replicate_uncut)

    def _wanted(
        self, option: str, shardings: Any, full: Any, leaves: Sequence[Any]
    ) -> list[Sharding | PartitionSpec | None]:
        """The sharding of each leaf: what was asked for, else what an array has."""
        if option == "in_shardings" and shardings is not None:
            args, kwargs = full
            prefix = tree.broadcast_prefix(
                shardings, args, "jit's in_shardings", is_leaf=_is_sharding
            )
            found = prefix + [None] * len(tree.leaves(kwargs))
        elif shardings is not None:
            found = tree.broadcast_prefix(
                shardings, full, "jit's out_shardings", is_leaf=_is_sharding
            )
        else:
            found = [None] * len(leaves)
        rows = zip(found, leaves, strict=True)
        return [
            named_sharding(leaf)
            if wanted is None
            else _checked(self._asker, option, wanted)
            for wanted, leaf in rows
        ]

    def _mesh(self, shardings: Sequence[Any]) -> Mesh:
        """The mesh of all shardings."""
        found = [x.mesh for x in shardings if isinstance(x, NamedSharding)]
        around = current_mesh()
        if around is not None:
            found.append(around)
        if not found:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: in_shardings and out_shardings name no mesh",
                    "a PartitionSpec is one of the mesh around, and there is none",
                    "pass fnx.sharding.NamedSharding(mesh, spec), or call it inside "
                    "`with mesh:`",
                )
            )
        for other in found[1:]:
            if other != found[0]:
                raise errors.ArgumentError(
                    errors.explain(
                        f"{self._asker}: shardings of different meshes",
                        f"{found[0]} and {other}",
                        "put all arrays on one mesh with fnx.device_put",
                    )
                )
        return found[0]


def _specs(
    asker: str,
    shardings: Sequence[Any],
    types: Sequence[ArrayType],
    mesh: Mesh,
    names: Sequence[str],
    read: Callable[..., Any],
) -> list[Any]:
    """What `read` makes of each sharding; `None` for an array without."""
    rows = zip(shardings, types, names, strict=True)
    return [
        None if s is None else read(asker, s, type.shape, mesh, name)
        for s, type, name in rows
    ]


def _is_sharding(x: Any) -> bool:
    return x is None or isinstance(x, Sharding | PartitionSpec)


def _checked(asker: str, option: str, wanted: Any) -> Sharding | PartitionSpec:
    if isinstance(wanted, NamedSharding | PartitionSpec):
        return wanted
    if isinstance(wanted, SingleDeviceSharding):
        return NamedSharding(Mesh([wanted.device], "device"), PartitionSpec())
    raise errors.ArgumentError(
        errors.explain(
            f"{asker}: {option} has {wanted!r}",
            "a sharding here is a NamedSharding, a SingleDeviceSharding, a "
            "PartitionSpec, or None",
        )
    )


def _spec(
    asker: str, sharding: Any, shape: tuple[int, ...], mesh: Mesh, name: str
) -> Any:
    """The names that cut each axis."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
    names_in(spec, mesh, asker, f"the spec of {name}")
    return full_spec(spec, shape, mesh, name, asker)


def _open(
    asker: str, sharding: Any, shape: tuple[int, ...], mesh: Mesh, name: str
) -> Any:
    """The names that cut each axis; `None` for one that is unconstrained."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
    return open_spec(spec, _spec(asker, sharding, shape, mesh, name))


@errors.api_boundary
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The arrays of a tree, cut along the axes of a mesh where they stand.

    `shardings` is a `NamedSharding` or `PartitionSpec` (of the mesh around, `with
    mesh:`), or a tree of them and `None` that is a prefix of `x`. Inside a function
    under `jit` with shardings the value is cut so from there on; a concrete array is
    put so. Where a program runs on one device there is nothing to cut.

    Raises `ArgumentError` for what is no sharding or without a mesh, `AxisError` for
    names that the mesh lacks, `ShapeError` where an axis cannot be cut.

    >>> import fnx, fnx.numpy as fnp
    >>> from fnx.sharding import PartitionSpec as P
    >>> with fnx.make_mesh((1,), ("i",), devices=fnx.devices("cpu")[:1]):
    ...     fnx.lax.with_sharding_constraint(fnp.full(2, 4), P("i"))
    Array([4, 4], dtype=int32, weak_type=True)
    """
    leaves, treedef = tree.flatten(x)
    names = leaf_names(["the argument"], [treedef])
    prefix = tree.broadcast_prefix(shardings, x, "shardings", is_leaf=_is_sharding)
    rows = zip(leaves, prefix, names, strict=True)
    return treedef.unflatten([_constrained(*row) for row in rows])


def _constrained(x: Any, sharding: Any, name: str) -> Any:
    asker = "with_sharding_constraint"
    if sharding is None:
        return x
    _checked(asker, "shardings", sharding)
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else current_mesh()
    if mesh is None:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: {sharding} for {name}",
                "a PartitionSpec is one of the mesh around, and there is none",
                "pass a NamedSharding, or call it inside `with mesh:`",
            )
        )
    spec = _open(asker, sharding, x.shape, mesh, name)
    if isinstance(x, Tracer):
        return sharding_constraint(x, spec=spec)
    own = named_sharding(x)
    now = own.spec if own is not None and own.mesh == mesh else PartitionSpec()
    spec = settled(spec_names(now, len(spec)), spec)
    # lazy: `device.py` comes after this file
    from fnx.api.device import device_put

    return device_put(x, NamedSharding(mesh, spec_of(spec)))
