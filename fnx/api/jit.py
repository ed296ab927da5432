"""jit: a function that is traced once for each signature and runs compiled.

Receives a function and which arguments are static; gives a `Jitted`, whose call is a
dictionary lookup (`_key`) and one executable. Inside another trace it becomes a
`call` equation. Arrays that the function captures are kept as inputs of the program,
never written into it. Next on the walk: `custom.py`.
"""

from __future__ import annotations

import contextlib
import sys
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fnx import errors, tree
from fnx.api import native, promote
from fnx.api.arguments import (
    as_array,
    call_names,
    check_callable,
    look_like,
    name_of,
    trace_tree,
)
from fnx.api.disabling import disabled
from fnx.api.entry import Entry, Signature, signature
from fnx.api.inspect import argument_types
from fnx.api.native import TURNS, Calls, Paths, new_path
from fnx.api.static import (
    Divided,
    Names,
    Nums,
    Options,
    check_hashable,
    read_options,
)
from fnx.config import config, traced_options
from fnx.control.call import call
from fnx.core import hooks
from fnx.core.array import Array
from fnx.core.axes import bound_axes
from fnx.core.cache import clear_programs
from fnx.core.frames import Cell, HasCell, discovering, entered
from fnx.core.trace import Tracer, tracing
from fnx.dtypes import default_bits
from fnx.runtime import device, eager
from fnx.runtime.array import ConcreteArray, followed_shardings
from fnx.runtime.backend import Functions
from fnx.runtime.device_array import DeviceArray, put
from fnx.runtime.executable import compiling_forbidden
from fnx.tree import PyTreeDef

if TYPE_CHECKING:
    from fnx.api.refs import Closed, Passed
    from fnx.api.stages import Lowered, Staged

# A function called with ever new shapes must not fill the memory.
CACHE_SIZE = 4096


class Key(NamedTuple):
    """What the program of a call depends on; an entry is kept under it.

    `static` are the arguments that are no arrays, `shardings` those that the program
    follows, and `placement` is where it runs.
    """

    treedef: PyTreeDef
    types: tuple[Any, ...]
    static: Any
    bits: int
    options: tuple[Any, ...]
    axes: tuple[Any, ...]
    shardings: Any
    placement: device.Placement | None


class CacheInfo(NamedTuple):
    """How often a jitted function was called with a known signature, and how not."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


# Every jitted function, for `clear_caches`.
_every: weakref.WeakSet[Jitted] = weakref.WeakSet()


class Jitted:
    """A function under `jit`; called like the function itself.

    What is called repeatedly gets paths in machine code (`native.py`), which are in the
    slot `_paths`; `__call__` is then native too, and the Python below serves the rest.
    """

    __slots__ = ("__dict__", "__weakref__", "_paths")

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        look_like(self, function)
        self._function = function
        self._options = options
        self._entries: dict[Any, Entry] = {}
        # Calls in which refs cross the border; those with refs as arguments under ().
        self._crossings: dict[Any, Closed | Passed] = {}
        _every.add(self)
        self._hits = self._misses = 0
        self._missed: Signature | None = None
        self._native = Paths()
        self._paths: tuple[Any, ...] = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        return Jitted, (self._function, self._options)  # what it learned stays here

    def __repr__(self) -> str:
        return f"<jit of {name_of(self._function)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, by the program of this call's signature."""
        if disabled.get():
            return self._function(*args, **kwargs)
        try:
            divided = self._options.divide(args, kwargs)
            leaves, treedef = tree.flatten(divided[:2])
            if any(isinstance(leaf, HasCell) for leaf in leaves):
                return self._with_refs(args, kwargs)
            key = self._key(divided, leaves, treedef)
            try:
                entry = self._entries.get(key)
            except TypeError:
                check_hashable(self._asker, divided)
                raise
            if entry is None:
                crossing = self._crossings.get(key)
                if crossing is None:
                    return self._first_call(key, divided, leaves, treedef)
                return crossing(*args, **kwargs)
            self._hits += 1
            entry.calls.slow += 1
            if entry.calls.slow in TURNS and not hooks.busy:
                self._add_path(entry, divided, treedef, tuple(kwargs))
            return self._apply(entry, leaves)
        except BaseException as error:
            errors.hide_internal(error)
            raise

    def signature_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Divided, list[Any], Key]:
        """A call in parts, the leaves as arrays, and what its program depends on."""
        divided = self._options.divide(args, kwargs)
        leaves, treedef = tree.flatten(divided[:2])
        key = self._key(divided, leaves, treedef)
        try:
            hash(key)
        except TypeError:
            check_hashable(self._asker, divided)
            raise
        return divided, leaves, key

    def _add_path(
        self, entry: Entry, divided: Divided, treedef: PyTreeDef, names: tuple[str, ...]
    ) -> None:
        """Makes calls of this form native from now on, where they can be."""
        found = new_path(entry, divided, treedef, names)
        if found is not None:
            calls, path = found
            self._paths = calls.linked(self._native.add(path))

    def _key(self, divided: Divided, leaves: list[Any], treedef: PyTreeDef) -> Key:
        """What the traced program depends on; makes arrays of the leaves."""
        usual = not hooks.busy
        for i, leaf in enumerate(leaves):
            if leaf.__class__ is not ConcreteArray:
                usual = False
                if leaf.__class__ is not DeviceArray:
                    leaves[i] = self._array(divided, leaf, i)
        return Key(
            treedef,
            tuple([leaf.type for leaf in leaves]),
            divided.key,
            default_bits(),
            traced_options(),
            bound_axes(),
            None if usual or tracing() else followed_shardings(leaves),
            None if usual or tracing() else self._placement(divided, leaves),
        )

    def _placement(
        self, divided: Divided, leaves: Sequence[Any]
    ) -> device.Placement | None:
        """Where a call runs; `None` is the CPU, to which nothing is committed."""
        try:
            return device.where(leaves)
        except device.Conflict as found:
            names = call_names(self._function, *divided.shown())
            raise device.conflict(self._asker, leaves, names, found.numbers) from None

    def _array(self, divided: Divided, leaf: Any, index: int) -> Array:
        fix = "name it in static_argnames if it is an option of the function"
        with contextlib.suppress(errors.FnxError):
            return as_array(leaf, self._asker, "", fix)
        # Again, for the name, which costs more than the conversion of many leaves.
        name = call_names(self._function, *divided.shown())[index]
        return as_array(leaf, self._asker, name, fix)

    @property
    def _asker(self) -> str:
        return f"jit of {name_of(self._function)}"

    def _first_call(
        self, key: Key, divided: Divided, leaves: Sequence[Array], treedef: PyTreeDef
    ) -> Any:
        types = [leaf.type for leaf in leaves]
        placement = key.placement
        self._missed = signature(self._function, divided, treedef, types, placement)
        if compiling_forbidden.get():
            raise _misses().traced_anew(self._asker, self._missed, self._earlier())
        entry, cells = self._trace(divided, self._missed, placement)
        if key.shardings is not None:
            entry = _partition().followed(entry, key.shardings)
        if cells:
            crossing = self._crossing(key, cells)
            given, named = divided.joined(*treedef.unflatten(leaves))
            return crossing(*given, **named)
        self._misses += 1
        if config.explain_cache_misses:
            print(self.explain_miss(), file=sys.stderr)
        # What captured tracers of an outer trace is good for this call only.
        if not any(isinstance(value, Tracer) for value in entry.captured):
            while len(self._entries) >= CACHE_SIZE:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = entry
        return self._apply(entry, leaves)

    def _with_refs(self, args: Any, kwargs: Any) -> Any:
        """A call with refs among the arguments."""
        crossing = self._crossings.get(())
        if crossing is None:
            crossing = _refs().Passed(self._function, self._jitted)
            self._crossings[()] = crossing
        return crossing(*args, **kwargs)

    def _jitted(self, function: Callable[..., Any]) -> Jitted:
        return Jitted(function, self._options)

    def _crossing(self, key: Key, cells: tuple[Cell, ...]) -> Closed | Passed:
        """The function with what these refs from outside hold beside its arguments."""
        for crossing in self._crossings.values():
            if crossing.cells == cells:
                break
        else:
            crossing = _refs().Closed(self._function, self._jitted, cells)
        while len(self._crossings) >= CACHE_SIZE:
            del self._crossings[next(iter(self._crossings))]
        self._crossings[key] = crossing
        return crossing

    def _trace(
        self, divided: Divided, found: Signature, placement: device.Placement | None
    ) -> tuple[Entry, tuple[Cell, ...]]:
        """Traces the function for one signature, to run at a place.

        Gives the refs from outside that it uses, too.
        """

        def run(leaves: Sequence[Any]) -> Any:
            args, kwargs = divided.joined(*found.in_tree.unflatten(leaves))
            return self._function(*args, **kwargs)

        start = time.perf_counter()
        with discovering() as frame:
            run = entered(run, frame)
            traced = trace_tree(run, found.types, asker=self._asker, names=found.names)
        if config.debug >= 1 or config.log_compiles:
            rows = zip(found.names, found.types, strict=True)
            shown = ", ".join([f"{name}: {type}" for name, type in rows])
            seconds = time.perf_counter() - start
            what = f"traced {name_of(self._function)}({shown})"
            print(f"{what} in {seconds:.4f} s", file=sys.stderr)
        kept = (False,) * len(traced.captured)
        donated = kept + self._options.donated(divided)
        captured, placement = self._followed(traced.captured, placement)
        entry = Entry(
            self._asker,
            traced.program,
            captured,
            found,
            traced.out_tree,
            donated,
            Calls(),
            placement,
        )
        return entry, tuple(frame.values)

    def _followed(
        self, captured: tuple[Array, ...], placement: device.Placement | None
    ) -> tuple[tuple[Array, ...], device.Placement | None]:
        """The captured arrays where the program runs, and where that is.

        They follow the arguments, unless only captured arrays are committed.
        """
        placements = [getattr(x, "placement", None) for x in captured]
        if tracing() or (placement is None and not any(placements)):
            return captured, placement
        if placement is None or not placement.committed:
            try:
                placement = device.where(captured)
            except device.Conflict as found:
                names = [f"captured array {i}" for i in range(len(captured))]
                raise device.conflict(
                    self._asker, captured, names, found.numbers
                ) from None
        if placement is None:
            return captured, None
        arrays: Any = captured
        return tuple([put(x, placement) for x in arrays]), placement

    def _apply(self, entry: Entry, leaves: Sequence[Array]) -> Any:
        """Runs the program, or records a `call` of it into the current trace."""
        if True in entry.donated:
            entry.check_donated(leaves)
        if not tracing():
            return entry.run(leaves)
        results = call(
            *entry.captured,
            *leaves,
            program=entry.program,
            name=name_of(self._function),
        )
        return entry.out_tree.unflatten(results)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The program of a call and its compiled forms, without running it.

        Arguments may be described by `ShapeDtypeStruct`.

        >>> import fnx
        >>> print(fnx.jit(lambda x: x + 1.0).lower(2.0).as_text("program"))
        { lambda a:f32[]*. let
            b:f32[]* = add a 1.0:f32[]*
          in (b,) }
        """
        return self.trace(*args, **kwargs).lower()

    @errors.api_boundary
    def trace(self, *args: Any, **kwargs: Any) -> Staged:
        """The traced program of a call, and the shapes of its result."""
        entry = self.staged(args, kwargs)
        _, leaves = self.divided(args, kwargs)
        cut = None if tracing() else followed_shardings(leaves)
        if cut is not None:
            entry = _partition().followed(entry, cut)
        # lazy: only who looks at a function needs its stages
        from fnx.api.stages import Staged

        return Staged(entry)

    def divided(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Divided, list[Any]]:
        """A call in parts, and the leaves of its dynamic arguments as they are."""
        divided = self._options.divide(args, kwargs)
        return divided, tree.leaves(divided[:2])

    def staged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        """What a call comes to, traced anew for one device."""
        divided, leaves = self.divided(args, kwargs)
        names = call_names(self._function, *divided.shown())
        types = argument_types(self._asker, leaves, names)
        placement = None if tracing() else self._placement(divided, leaves)
        treedef = tree.structure(divided[:2])
        found = signature(self._function, divided, treedef, types, placement)
        return self._staged(divided, found, placement)

    def prepared(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Entry, list[Any]]:
        """What a call comes to, traced anew, and the leaves of its arguments."""
        divided = self._options.divide(args, kwargs)
        leaves, treedef = tree.flatten(divided[:2])
        placement = self._key(divided, leaves, treedef).placement
        types = [leaf.type for leaf in leaves]
        found = signature(self._function, divided, treedef, types, placement)
        return self._staged(divided, found, placement), leaves

    def _staged(
        self, divided: Divided, found: Signature, placement: device.Placement | None
    ) -> Entry:
        """The traced program, for whoever wants to look at it."""
        entry, cells = self._trace(divided, found, placement)
        if cells:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: the function uses a Ref from outside",
                    "a program that is looked at or run by itself has no refs",
                    "pass ref[...], and return the new value",
                )
            )
        return entry

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and dtypes of the result, as `fnx.eval_shape`."""
        return self.trace(*args, **kwargs).out_info

    def cache_info(self) -> CacheInfo:
        """Hits and misses of the signatures, and how many are kept."""
        hits = self._hits + self._native.hits
        return CacheInfo(hits, self._misses, CACHE_SIZE, len(self._entries))

    def explain_miss(self) -> str:
        """Why the last call that was traced anew was none of the known signatures.

        A line for each thing in which it differs from the closest earlier call: types
        by the names of the arguments, static values, the structure of trees, settings.

        >>> import fnx, numpy as np
        >>> f = fnx.jit(lambda x, y: x * y)
        >>> z = f(np.ones(3), 2.0), f(np.ones(4), 2.0)
        >>> print(f.explain_miss())
        jit of <lambda>: the call differs from the one earlier call:
          x: f64[3] before, f64[4] now (shape)
        """
        if self._missed is None:
            return f"{self._asker}: no call has been traced."
        text: str = _misses().explanation(self._asker, self._missed, self._earlier())
        return text

    def _earlier(self) -> list[Signature]:
        """The known signatures but that of the last call that was traced."""
        known = [entry.signature for entry in list(self._entries.values())]
        return [known for known in known if known is not self._missed]

    def clear_cache(self) -> None:
        """Forgets every traced program of this function."""
        self._entries.clear()
        self._crossings.clear()
        self._missed = None
        self._hits = self._misses = 0
        self._native.clear()
        self._paths = ()


def _refs() -> Any:
    # lazy: few functions use refs
    from fnx.api import refs

    return refs


def _misses() -> Any:
    # lazy: most programs never ask why a call was traced
    from fnx.api import misses

    return misses


def _unused() -> Jitted:
    """A jitted function that knows nothing, to look at."""
    jitted = Jitted.__new__(Jitted)
    jitted._paths = ()
    return jitted


# The Python way of a call stays when `Jitted.__call__` becomes native.
native.functions["jitted"] = Functions(Jitted, _unused(), Jitted.__call__, disabled)


def jit(
    fun: Any = None,
    /,
    *,
    static_argnums: Nums = None,
    static_argnames: Names = None,
    donate_argnums: Nums = None,
    donate_argnames: Names = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    dynamic: Mapping[str, int | tuple[int, ...]] | None = None,
) -> Any:
    """Compiles a function.

    The function is traced at the first call with new shapes, dtypes or static values,
    and runs compiled from then on. It must compute with its arguments only: Python
    sees tracers, so a branch on an argument's value raises `TracerValueError` (use
    `fnx.numpy.where`, or make the argument static).

    Options: `static_argnums` and `static_argnames` (integers and names, one or several)
    choose arguments that are passed on as Python objects; they must be hashable, and a
    new value, or an equal one of another type, is a new signature. `donate_argnums` and
    `donate_argnames` choose arguments whose memory is given away: those arrays are
    deleted after the call (`x.is_deleted()`), and using one raises. `in_shardings` and
    `out_shardings` (trees of `fnx.sharding.NamedSharding`, `PartitionSpec` or `None`,
    prefixes of the arguments and of the result) have the function computed in parts on
    the devices of a mesh: where operations cannot be cut, `OptionError` names them.
    Without them, a call whose arguments come in parts is computed so, too; what cannot
    be cut is computed whole on every device. Without a function, gives a decorator.

    `dynamic` names arguments of which an axis (or several, a tuple) has many sizes, as
    in `dynamic={"x": 0}`; of a tree it is an axis of every leaf. Such a function is
    compiled once, and its code serves all sizes: they are numbers that it reads when it
    runs. A new size costs a trace. Where the code would depend on the size it is
    compiled once for a range of sizes, from one end of 8, 12, 16, 24, 32, … to the
    next, and runs at the largest of them with the rest as padding that no result
    depends on; `explain_miss` says why. The function must be one program for many
    sizes: what cannot be raises `DynamicSizeError`, which names the operation. It is
    traced at a few other sizes, too, with all that Python does.

    The result has `lower`, `trace`, `eval_shape`, `cache_info`, `explain_miss`,
    `clear_cache`. Raises `OptionError` for options that do not fit the function,
    `ArgumentError` for arguments that are neither arrays nor static.

    >>> import fnx
    >>> @fnx.jit
    ... def square(x):
    ...     return x * x
    >>> square(3.0)
    Array(9., dtype=float32, weak_type=True)
    """
    given = static_argnums, static_argnames, donate_argnums, donate_argnames

    def jitted(function: Callable[..., Any]) -> Any:
        check_callable("jit", function)
        options = read_options("jit", function, *given)
        cut = in_shardings is not None or out_shardings is not None
        if dynamic is None:
            made = Jitted(function, options)
            if not cut:
                return made
            return _partition().Partitioned(made, in_shardings, out_shardings)
        if cut:
            raise errors.OptionError(
                errors.explain(
                    "jit: dynamic and shardings are both given",
                    "a program in parts has fixed sizes",
                    "leave one of them out",
                )
            )
        # lazy: few functions have many sizes
        from fnx.api.dynamic import dynamic_jit

        return dynamic_jit(function, options, dynamic)

    return jitted if fun is None else errors.api_boundary(jitted)(fun)


def _partition() -> Any:
    # lazy: few have several devices
    from fnx.api import partition

    return partition


def clear_caches() -> None:
    """Forgets everything that was traced, transformed or compiled.

    >>> import fnx
    >>> f = fnx.jit(lambda x: x + 1)
    >>> y = f(1.0)
    >>> fnx.clear_caches()
    >>> f.cache_info().currsize
    0
    """
    for jitted in list(_every):
        jitted.clear_cache()
    promote.forget()
    eager.forget_types()
    # lazy: few have other devices
    from fnx.runtime.placed import forget_operations

    forget_operations()
    clear_programs()


__all__ = ["CacheInfo", "Jitted", "clear_caches", "jit"]
