"""shard_map: a function that every device of a mesh applies to its part of the arrays.

Receives a function, a mesh, and specs that say how arguments and results are cut along
the mesh's axes; gives one over whole arrays. Next on the walk: `device.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from fnx import errors, tree
from fnx.api.arguments import (
    as_array,
    call_names,
    check_callable,
    leaf_names,
    look_like,
    name_of,
    trace_tree,
)
from fnx.api.spread import Spread, refuse_bound, refuse_members, replicated
from fnx.config import config
from fnx.control.joint import Specs, names_of
from fnx.control.spmd import depends
from fnx.core.axes import bound_axes, bound_axis
from fnx.core.program import Program
from fnx.core.trace import Tracer, tracing
from fnx.dtypes import default_bits
from fnx.runtime.device import Device, all_devices, named
from fnx.runtime.in_parts import named_sharding
from fnx.runtime.mesh import Mesh, current_mesh
from fnx.runtime.processes import processes
from fnx.runtime.sharding import PartitionSpec, full_spec, names_in, spec_names
from fnx.transforms.shard import Cutter, nested, part_type
from fnx.tree import PyTreeDef

_CACHE_SIZE = 4096


class Sharded:
    """A function under `shard_map`."""

    def __init__(
        self,
        function: Callable[..., Any],
        mesh: Mesh | None,
        in_specs: Any,
        out_specs: Any,
        axis_names: Any,
        check: bool,
    ) -> None:
        look_like(self, function)
        self._function = function
        self._mesh = mesh
        self._in_specs = in_specs
        self._out_specs = out_specs
        self._axis_names = axis_names
        self._check = check
        self._entries: dict[Any, tuple[Spread, PyTreeDef]] = {}

    def __repr__(self) -> str:
        return f"<{self._asker}>"

    @property
    def _asker(self) -> str:
        return f"shard_map of {name_of(self._function)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results as whole arrays, for whole arguments."""
        try:
            if kwargs:
                raise errors.ArgumentError(
                    errors.explain(
                        f"{self._asker}: {next(iter(kwargs))} is passed by name",
                        "in_specs are those of positional arguments",
                        "pass it by position",
                    )
                )
            return self._call(args)
        except BaseException as error:
            errors.hide_internal(error)
            raise

    def _call(self, args: tuple[Any, ...]) -> Any:
        mesh, manual = self._meant()
        leaves, treedef = tree.flatten(args)
        names = call_names(self._function, args, {})
        rows = zip(leaves, names, strict=True)
        arrays = [as_array(x, self._asker, name) for x, name in rows]
        key = (
            mesh,
            treedef,
            tuple([x.type for x in arrays]),
            default_bits(),
            config.strong_zero,
            bound_axes(),
            self._around(mesh, manual, arrays),
        )
        found = self._entries.get(key)
        if found is None:
            found = self._traced(mesh, manual, treedef, arrays, names)
            if not any(isinstance(x, Tracer) for x in found[0].captured):
                while len(self._entries) >= _CACHE_SIZE:
                    del self._entries[next(iter(self._entries))]
                self._entries[key] = found
        spread, out_tree = found
        return out_tree.unflatten(spread(arrays))

    def _meant(self) -> tuple[Mesh, tuple[Hashable, ...]]:
        """The mesh that was passed, or that around the call, and its own axes."""
        mesh = self._mesh or current_mesh()
        if mesh is None:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: there is no mesh",
                    "none was passed, and none is around the call",
                    "pass mesh=..., or call it inside `with mesh:`",
                )
            )
        given = self._axis_names
        if given is not None and not isinstance(given, tuple | list | set | frozenset):
            given = (given,)
        names = {*(given or mesh.axis_names)}
        if not names <= {*mesh.axis_names}:
            raise errors.AxisError(
                errors.explain(
                    f"{self._asker}: axis_names={self._axis_names!r}",
                    f"the axes of the mesh are {mesh.axis_names!r}",
                )
            )
        return mesh, tuple([name for name in mesh.axis_names if name in names])

    def _around(
        self, mesh: Mesh, manual: tuple[Hashable, ...], arrays: Sequence[Any]
    ) -> Any:
        """How arguments are cut along axes that are not its own; `None` in a trace.

        Inside of a trace that is known when the program is cut that it is part of.
        """
        if len(manual) == mesh.devices.ndim:
            return ()
        if tracing():
            return None
        inner = Cutter(dict(mesh.axes), False).without(manual)
        rows = [(named_sharding(x), x.shape) for x in arrays]
        found = []
        for sharding, shape in rows:
            cut = replicated(shape)
            if sharding is not None and sharding.mesh == mesh:
                cut = spec_names(sharding.spec, len(shape))
            found.append(tuple([inner.own(names) for names in cut]))
        return tuple(found), config.replicate_uncut

    def _traced(
        self,
        mesh: Mesh,
        manual: tuple[Hashable, ...],
        treedef: PyTreeDef,
        arrays: Sequence[Any],
        names: Sequence[str],
    ) -> tuple[Spread, PyTreeDef]:
        """The function traced for one device, and the tree of its results."""
        refuse_bound(self._asker, manual)
        own = _along(mesh, manual)
        given = _specs(self._asker, "in_specs", self._in_specs, treedef, names, own)
        rows = zip(given, arrays, names, strict=True)
        ins = tuple(
            [full_spec(s, x.shape, mesh, name, self._asker) for s, x, name in rows]
        )
        pairs = zip(arrays, ins, strict=True)
        types = [part_type(x.type, spec, mesh.shape) for x, spec in pairs]
        shown = [f"{name} (a part, by shard_map)" for name in names]

        def run(parts: Sequence[Any]) -> Any:
            return self._function(*treedef.unflatten(parts))

        with ExitStack() as stack:
            for name, size in own.axes:
                stack.enter_context(bound_axis(name, size))
            traced = trace_tree(run, types, asker=self._asker, names=shown)
        refuse_members(self._asker, traced.program)
        out_names = leaf_names(["the result"], [traced.out_tree])
        outs = self._outs(own, traced.program, traced.out_tree, out_names)
        held = tuple([replicated(x.shape) for x in traced.captured])
        if self._check:
            self._varying(own, traced.program, (*held, *ins), outs, out_names)
        spread = Spread(
            self._asker,
            traced.program,
            traced.captured,
            own,
            (*held, *ins),
            outs,
            (*[f"captured array {n}" for n in range(len(held))], *names),
            tuple(out_names),
        )
        around = self._around(mesh, manual, arrays)
        if around:
            spread = _cut_again(spread, mesh, *around)
        return spread, traced.out_tree

    def _outs(
        self, mesh: Mesh, program: Program, out_tree: PyTreeDef, names: Sequence[str]
    ) -> Specs:
        """How the results are cut."""
        given = _specs(self._asker, "out_specs", self._out_specs, out_tree, names, mesh)
        found = []
        for spec, type, name in zip(given, program.output_types, names, strict=True):
            if len(spec) > len(type.shape):
                raise errors.AxisError(
                    errors.explain(
                        f"{self._asker}: {name} is {type} on each device",
                        f"its spec {spec} has an entry for more axes than there are",
                    )
                )
            found.append(spec_names(spec, len(type.shape)))
        return tuple(found)

    def _varying(
        self,
        mesh: Mesh,
        program: Program,
        ins: Specs,
        outs: Specs,
        names: Sequence[str],
    ) -> None:
        """Raises where devices may differ in what the specs call one and the same."""
        for name, size in mesh.axes:
            flags = depends(program, ins, (name, size))
            for spec, varies, out in zip(outs, flags, names, strict=True):
                if varies and name not in names_of(spec) and size > 1:
                    raise errors.AxisError(
                        errors.explain(
                            f"{self._asker}: out_specs says that {out} is not cut "
                            f"along {name!r}",
                            "the devices along that axis may have different values",
                            f"combine them (fnx.lax.psum, pmean, all_gather), name "
                            f"{name!r} in out_specs, or pass check_vma=False for that "
                            "of the first device",
                        )
                    )


def _along(mesh: Mesh, names: Sequence[Hashable]) -> Mesh:
    """The mesh without its other axes: the first devices along these."""
    if len(names) == mesh.devices.ndim:
        return mesh
    first: Any = tuple([slice(None) if n in names else 0 for n in mesh.axis_names])
    return Mesh(mesh.devices[first], tuple(names))


def _cut_again(
    spread: Spread, mesh: Mesh, ins: Sequence[Any], replicate: bool
) -> Spread:
    """A program of replicas along some axes of a mesh, cut along the others, too."""
    rest = Cutter(dict(mesh.axes), replicate).without(spread.mesh.axis_names)
    count = len(spread.captured)
    types = spread.program.input_types
    held = [replicated(type.shape) for type in types[:count]]
    rows = zip(ins, types[count:], strict=True)
    given = [*held, *[rest.remaining(spec, type.shape) for spec, type in rows]]
    free = (None,) * len(spread.outs)
    local, found = rest.program(spread.program, given, free)
    return Spread(
        spread.asker,
        local,
        spread.captured,
        mesh,
        tuple(map(nested, spread.ins, given)),
        tuple(map(nested, spread.outs, found)),
        spread.in_names,
        spread.out_names,
    )


def _specs(
    asker: str,
    option: str,
    specs: Any,
    treedef: PyTreeDef,
    names: Sequence[str],
    mesh: Mesh,
) -> list[PartitionSpec]:
    """The spec of each leaf; raises for what is no spec."""
    prefix = tree.broadcast_prefix(
        specs, treedef, f"shard_map's {option}", is_leaf=_is_spec
    )
    found = []
    for spec, name in zip(prefix, names, strict=True):
        if spec is not None and not isinstance(spec, PartitionSpec):
            raise errors.ArgumentError(
                errors.explain(
                    f"{asker}: {option} has {spec!r} for {name}",
                    "a spec is a PartitionSpec, or None for what is not cut",
                )
            )
        spec = PartitionSpec() if spec is None else spec
        names_in(spec, mesh, asker, f"{option} for {name}")
        found.append(spec)
    return found


def _is_spec(x: Any) -> bool:
    return x is None or isinstance(x, PartitionSpec)


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any,
    mesh: Mesh | None = None,
    axis_names: Any = None,
    check_vma: bool = True,
) -> Any:
    """A function that every device of a mesh applies to its part of whole arrays.

    `in_specs` and `out_specs` are `PartitionSpec`s, or trees of them that are prefixes
    of the arguments and of the result: along which axes of the mesh each axis of an
    array is cut. Inside, `fnx.lax` has collectives over the mesh's axes. `mesh` is that
    of the innermost `with mesh:` by default. Without a function it is a decorator.

    An output that is not cut along an axis is the same on all devices of that axis;
    with `check_vma` it is an error if that cannot be told from the program, without it
    the output is that of the first device. In derivatives the cotangents of all devices
    count: what is not cut gets the sum.

    With `axis_names` it runs along these axes of the mesh only, and specs name no
    others. Along the others the function is of whole arrays, computed in parts as `jit`
    with shardings would: as arguments are cut, and as `with_sharding_constraint` says.

    Raises `AxisError` for a spec with a name that the mesh lacks, `ShapeError` where an
    axis cannot be cut in equal parts, `TreeError` for specs that do not fit,
    `OptionError` for an operation that cannot be cut along axes not in `axis_names`.

    >>> import fnx, fnx.numpy as fnp
    >>> from fnx.sharding import PartitionSpec as P
    >>> mesh = fnx.make_mesh((1,), ("i",), devices=fnx.devices("cpu")[:1])
    >>> total = fnx.shard_map(lambda x: fnx.lax.psum(x.sum(), "i"), mesh=mesh,
    ...                       in_specs=P("i"), out_specs=P())
    >>> total(fnp.arange(4.0))
    Array(6., dtype=float32)
    """
    if f is None:
        return functools.partial(
            shard_map,
            out_specs=out_specs,
            in_specs=in_specs,
            mesh=mesh,
            axis_names=axis_names,
            check_vma=check_vma,
        )
    check_callable("shard_map", f)
    if mesh is not None and not isinstance(mesh, Mesh):
        raise errors.ArgumentError(f"shard_map: mesh is {mesh!r}, no fnx.sharding.Mesh")
    return Sharded(f, mesh, in_specs, out_specs, axis_names, check_vma)


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[Hashable],
    axis_types: Any = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """A mesh of axes of these sizes and names, of the first devices that there are.

    `axis_types`, if given, is `fnx.sharding.AxisType.Auto` for each axis.

    Raises `ArgumentError` where there are fewer devices than the mesh has places.

    >>> import fnx
    >>> fnx.make_mesh((1, 1), ("data", "model"), devices=fnx.devices("cpu")[:1])
    Mesh('data': 1, 'model': 1)
    """
    there = _there(devices)
    sizes = tuple([int(n) for n in axis_shapes])
    if any(n < 1 for n in sizes):
        raise errors.ArgumentError(
            f"make_mesh: axis_shapes={sizes}: each axis has one device or more."
        )
    count = int(np.prod(sizes))
    if count > len(there):
        fix = "pass smaller axis_shapes"
        if devices is None and there[0].backend == "cpu":
            fix = f"set fnx.config.cpu_devices = {count}, or pass smaller axis_shapes"
        raise errors.ArgumentError(
            errors.explain(
                f"make_mesh: axis_shapes={sizes}",
                f"that takes {count} devices, and there are {len(there)}",
                fix,
            )
        )
    grid = np.empty(count, dtype=object)
    grid[:] = there[:count]
    return Mesh(grid.reshape(sizes), tuple(axis_names), axis_types=axis_types)


def _there(chosen: Sequence[Device] | None) -> tuple[Device, ...]:
    if chosen is None:
        return all_devices()
    remote = {d: d for d in all_devices() if d.process_index != processes().index}
    return tuple(
        [remote.get(d) or named(d, "make_mesh: devices", names=False) for d in chosen]
    )
