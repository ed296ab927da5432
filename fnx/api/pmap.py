"""pmap: a function that every device applies to its member of stacked arguments.

Receives a function and which axes hold the members; gives one that is traced once for
each signature, for one member, and runs on as many devices at once. The meaning is that
of `vmap` with a named axis. Next on the walk: `shard_map.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

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
from fnx.api.key_arrays import axes_of_words
from fnx.api.spread import Spread, refuse_bound, refuse_members, replicated
from fnx.api.static import Divided, Nums, Options, check_hashable, read_options
from fnx.api.vmap import Axes, MappedLeaf, check_axes, common_size, mapped_leaf
from fnx.config import config
from fnx.core.axes import bound_axes, bound_axis
from fnx.core.trace import Tracer
from fnx.dtypes import default_bits
from fnx.ops.shape import reshape
from fnx.runtime.device import Device, all_devices, devices, named
from fnx.runtime.mesh import Mesh
from fnx.runtime.processes import processes
from fnx.tree import PyTreeDef

if TYPE_CHECKING:
    from fnx.api.stages import Lowered

_UNNAMED = "<pmap>"
_CACHE_SIZE = 4096


class Pmapped:
    """A function under `pmap`; called like the function, with stacked arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        in_axes: Axes,
        out_axes: Axes,
        axis: tuple[Hashable, int | None],
        chosen: tuple[Device, ...] | None,
    ) -> None:
        look_like(self, function)
        self._function = function
        self._options = options
        self._in_axes = in_axes
        self._out_axes = out_axes
        self._name, self._size = axis
        self._chosen = chosen
        self._entries: dict[Any, tuple[Spread, PyTreeDef]] = {}
        self._asker = f"pmap of {name_of(function)}"

    def __repr__(self) -> str:
        return f"<{self._asker}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The stacked results of the function for all members."""
        try:
            return self._call(args, kwargs)
        except BaseException as error:
            errors.hide_internal(error)
            raise

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program of a call on all devices, without running it."""
        # lazy: only who looks at a function needs it
        from fnx.api.jit import jit

        return jit(self).lower(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forgets what was traced."""
        self._entries.clear()

    # -- inside

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        divided = self._options.divide(args, kwargs)
        leaves, treedef = tree.flatten(divided[:2])
        arrays = [self._array(divided, x, n) for n, x in enumerate(leaves)]
        key = self._key(divided, treedef, arrays)
        try:
            found = self._entries.get(key)
        except TypeError:
            check_hashable(self._asker, divided)
            raise
        if found is None:
            found = self._traced(divided, treedef, arrays)
            if not any(isinstance(x, Tracer) for x in found[0].captured):
                while len(self._entries) >= _CACHE_SIZE:
                    del self._entries[next(iter(self._entries))]
                self._entries[key] = found
        spread, out_tree = found
        results = spread.of_members(arrays)
        if self._options.donate_nums:
            self._delete(arrays, self._options.donated(divided))
        return out_tree.unflatten(results)

    def _delete(self, arrays: Sequence[Any], donated: Sequence[bool]) -> None:
        """Deletes the arrays that were donated."""
        for x, is_donated in zip(arrays, donated, strict=True):
            if is_donated and not isinstance(x, Tracer):
                x.delete()

    def _key(self, divided: Divided, treedef: PyTreeDef, arrays: Sequence[Any]) -> Any:
        """What the traced program, and where it runs, depend on."""
        return (
            treedef,
            tuple([x.type for x in arrays]),
            divided.key,
            default_bits(),
            config.strong_zero,
            bound_axes(),
            config.cpu_devices,
            processes(),
        )

    def _array(self, divided: Divided, leaf: Any, index: int) -> Any:
        fix = "name it in static_broadcasted_argnums if it is an option of the function"
        try:
            return as_array(leaf, self._asker, "", fix)
        except errors.FnxError:
            name = call_names(self._function, *divided.shown())[index]
            return as_array(leaf, self._asker, name, fix)

    def _leaves(self, divided: Divided, arrays: Sequence[Any]) -> list[MappedLeaf]:
        """The leaves of a call, each with its name and its mapped axis."""
        names = call_names(self._function, *divided.shown())
        axes = self._axes(divided)
        rows = zip(names, arrays, axes, strict=True)
        return [mapped_leaf(self._asker, *row) for row in rows]

    def _axes(self, divided: Divided) -> list[int | None]:
        """The mapped axis of each leaf of the dynamic arguments."""
        static = {where for where, _ in divided.statics}
        total = len(divided.args) + len(static)
        entries = self._in_axes
        if isinstance(entries, tuple):
            if len(entries) != total:
                raise errors.ArgumentError(
                    errors.explain(
                        f"{self._asker}: in_axes={entries!r} has {len(entries)} "
                        "entries",
                        f"it was called with {total} positional arguments",
                        "give in_axes one entry for each positional argument",
                    )
                )
            entries = tuple([x for n, x in enumerate(entries) if n not in static])
        prefix = tree.broadcast_prefix(entries, divided.args, "pmap's in_axes")
        prefix = axes_of_words(prefix, divided.args)
        return prefix + [0] * len(tree.leaves(divided.kwargs))

    def _mesh(self, size: int) -> Mesh:
        """As many devices as there are members."""
        if not size:
            raise errors.ArgumentError(
                f"{self._asker}: the mapped axes have size 0: there is no member."
            )
        there = devices() if self._chosen is None else self._chosen
        if size > len(there):
            fix = "pass fewer members"
            if self._chosen is None and there[0].backend == "cpu":
                fix = f"set fnx.config.cpu_devices = {size}, or pass fewer members"
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: the mapped axes have size {size}",
                    f"there {'is' if len(there) == 1 else 'are'} {len(there)} "
                    f"device{'s' * (len(there) != 1)} for it",
                    fix,
                )
            )
        chosen = there[:size]
        if self._chosen is None:  # the members of all processes
            everywhere = all_devices()
            starts = range(0, len(everywhere), len(there))
            chosen = tuple([d for n in starts for d in everywhere[n : n + size]])
        return Mesh(np.array(chosen, dtype=object), (self._name,))

    def _traced(
        self, divided: Divided, treedef: PyTreeDef, arrays: Sequence[Any]
    ) -> tuple[Spread, PyTreeDef]:
        """The function traced for one member, and the tree of its results."""
        refuse_bound(self._asker, (self._name,))
        given = self._leaves(divided, arrays)
        size = common_size(self._asker, given, self._size)
        mesh = self._mesh(size)
        out_axes: list[int | None] = []
        out_tree: Any = None

        def run(parts: Sequence[Any]) -> Any:
            nonlocal out_tree
            members = [_member(*row) for row in zip(parts, given, strict=True)]
            parted: Any = treedef.unflatten(members)
            full, by_name = divided.joined(*parted)
            result = self._function(*full, **by_name)
            leaves, out_tree = tree.flatten(result)
            axes = tree.broadcast_prefix(self._out_axes, out_tree, "pmap's out_axes")
            axes = axes_of_words(axes, out_tree.unflatten(range(len(axes))))
            names = leaf_names(["the output"], [out_tree])
            fix = "return arrays, numbers or trees of them; None has no leaves"
            found = [
                as_array(x, self._asker, name, fix)
                for x, name in zip(leaves, names, strict=True)
            ]
            rows = list(zip(found, axes, names, strict=True))
            out_axes[:] = [_checked_out(self._asker, *row) for row in rows]
            return [_part(x, n) for x, n in zip(found, out_axes, strict=True)]

        types = [_part_type(leaf) for leaf in given]
        names = [f"{leaf.name} (a part, by pmap)" for leaf in given]
        with bound_axis(self._name, mesh.size):
            traced = trace_tree(run, types, asker=self._asker, names=names)
        refuse_members(self._asker, traced.program)
        held = [replicated(x.shape) for x in traced.captured]
        ins = [
            _spec(len(type.shape), leaf.axis, self._name)
            for type, leaf in zip(types, given, strict=True)
        ]
        ends = zip(traced.program.output_types, out_axes, strict=True)
        spread = Spread(
            self._asker,
            traced.program,
            traced.captured,
            mesh,
            (*held, *ins),
            tuple([_spec(len(type.shape), n, self._name) for type, n in ends]),
            (
                *[f"captured array {n}" for n in range(len(held))],
                *[leaf.name for leaf in given],
            ),
            tuple(leaf_names(["the result"], [out_tree])),
        )
        return spread, out_tree


def _part_type(leaf: MappedLeaf) -> Any:
    """What a replica has of a leaf: along the mapped axis one element."""
    shape = list(leaf.value.shape)
    if leaf.axis is not None:
        shape[leaf.axis] = 1
    return leaf.value.type.with_shape(tuple(shape))


def _spec(ndim: int, axis: int | None, name: Hashable) -> Any:
    return tuple([(name,) if d == axis else () for d in range(ndim)])


def _member(part: Any, leaf: MappedLeaf) -> Any:
    """A replica's part without the mapped axis."""
    if leaf.axis is None:
        return part
    shape = part.shape
    return reshape(part, shape=(*shape[: leaf.axis], *shape[leaf.axis + 1 :]))


def _part(x: Any, axis: int | None) -> Any:
    """A result with an axis of size 1 where the mapped one is to be."""
    if axis is None:
        return x
    return reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def _checked_out(asker: str, x: Any, axis: int | None, name: str) -> int | None:
    """Where the mapped axis of a result stands, counted from 0."""
    if axis is None:
        return None
    rank = x.ndim + 1
    if not -rank <= axis < rank:
        raise errors.AxisError(
            errors.explain(
                f"{asker}: out_axes is {axis} for {name}",
                f"with the mapped axis it has rank {rank}",
            )
        )
    return axis % rank


def pmap(
    fun: Callable[..., Any],
    axis_name: Hashable | None = None,
    *,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    static_broadcasted_argnums: Nums = (),
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: Nums = (),
) -> Pmapped:
    """A function that applies `fun` to every member of stacked arguments, each on a
    device of its own.

    It means what `vmap` means with the same `in_axes`, `out_axes`, `axis_name` and
    `axis_size`; the members, of which there may be as many as devices, run at once, and
    meet in collectives such as `fnx.lax.psum`. An output with `None` in `out_axes` is
    that of the first member. Results stay on their devices: `x.addressable_shards` are
    their parts, and whoever looks at them as a whole gathers them. CPU devices are made
    by `fnx.config.cpu_devices = n`.

    In a job of several processes (`fnx.distributed`) each one passes its own members
    and gets their results, and the axis has those of all. In derivatives the losses of
    all processes count. With `devices` the members are this process's alone.

    `devices` or `backend` say which devices, in their order; arguments whose numbers
    are in `static_broadcasted_argnums` are Python values that every member sees;
    arrays of those in `donate_argnums` are deleted after the call.

    Raises as `vmap` does, and `ArgumentError` where there is no member or there are
    more than devices, `AxisError` where the name is bound outside, `CollectiveError`
    where members do not call the same collectives.

    >>> import fnx, fnx.numpy as fnp
    >>> fnx.pmap(lambda x: x / fnx.lax.psum(x, "i"), "i")(fnp.array([3.0]))
    Array([1.], dtype=float32)
    """
    check_callable("pmap", fun)
    if devices is not None and backend is not None:
        raise errors.OptionError(
            errors.explain(
                "pmap: devices and backend are both given",
                "devices say where they are",
                "leave one of them out",
            )
        )
    chosen = None
    if devices is not None:
        chosen = tuple([named(d, "pmap: devices", names=False) for d in devices])
    elif backend is not None:
        chosen = _devices_of(backend)
    options = read_options(
        "pmap", fun, static_broadcasted_argnums, None, donate_argnums, None
    )
    name = _UNNAMED if axis_name is None else axis_name
    return Pmapped(
        fun,
        options,
        check_axes("pmap", "in_axes", in_axes),
        check_axes("pmap", "out_axes", out_axes),
        (name, axis_size),
        chosen,
    )


def _devices_of(backend: str) -> tuple[Device, ...]:
    return tuple(devices(backend))
