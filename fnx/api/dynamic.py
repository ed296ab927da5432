"""jit(dynamic=...): a function that is compiled once for many sizes of an axis.

Receives a function and which axes of which arguments vary. Where sizes can be numbers
of the machine code, that serves all sizes (`any_size.py`). What has no such code is
compiled once for a range of sizes: a call is traced at its own sizes, so that Python
sees true numbers, and at the largest sizes of its range; what differs varies, and gives
one padded program (`fnx.transforms.padded`). Another size of the range is traced, and
runs compiled if its program is the same when it is padded. Ranges end at 8, 12, 16, 24,
32 and so on. Next on the walk: `stages.py`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.api.any_size import AnySize, AnySizes
from fnx.api.arguments import name_of
from fnx.api.entry import Entry, Signature, signature
from fnx.api.jit import CACHE_SIZE, Jitted, Key
from fnx.api.native import Calls
from fnx.api.static import Divided, Options
from fnx.config import config, for_any_size, watching
from fnx.core.array import Array
from fnx.core.padding import Ints
from fnx.core.program import Program
from fnx.core.trace import tracing
from fnx.core.types import ArrayType
from fnx.ops.pieces import pad, slice_
from fnx.records import record
from fnx.runtime.array import wrap
from fnx.runtime.device import Placement
from fnx.runtime.device_array import put
from fnx.runtime.eager import checked_kinds
from fnx.runtime.executable import compiling_forbidden
from fnx.sizes import Undecided, symbol
from fnx.transforms.padded import PaddedProgram, Sized, pad_program
from fnx.tree import PyTreeDef
from fnx.tree import structure as tree_structure

Axes = Mapping[str, Ints]
MOST_BYTES = 2**27
"""The bytes that a function keeps of the sizes that it has seen, about."""

_LEAST = 8
_FIX = "compute it in another way, or do not make that axis dynamic"


# ---------------------------------------------------------------- the option


def read_axes(asker: str, function: Callable[..., Any], dynamic: Any) -> Axes:
    """The option `dynamic`: names of arguments, and which of their axes vary."""
    if not isinstance(dynamic, Mapping) or not dynamic:
        raise _wrong(f"{asker}: dynamic={dynamic!r}")
    found: dict[str, Ints] = {}
    for name, axes in dynamic.items():
        many = axes if isinstance(axes, tuple) else (axes,)
        if not isinstance(name, str) or not many or not all(map(_is_index, many)):
            raise _wrong(f"{asker}: dynamic={{{name!r}: {axes!r}}}")
        found[name] = many
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters]
    for name in found:
        if name not in known and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise errors.OptionError(
                f"{asker}: dynamic has {name!r}, and the function has no argument of "
                f"that name; it takes {', '.join(known) or 'none by name'}."
            )
    return found


def _is_index(axis: Any) -> bool:
    return isinstance(axis, int) and not isinstance(axis, bool)


def _wrong(asked: str) -> Exception:
    reason = "it maps the name of an argument to an axis, or to several in a tuple"
    return errors.OptionError(errors.explain(asked, reason, "write dynamic={'x': 0}"))


# ---------------------------------------------------------------- ranges of sizes


def range_end(size: int) -> int:
    """The largest size of the range that a size is in.

    >>> [range_end(n) for n in (2, 8, 9, 13, 17, 100, 128, 129)]
    [8, 8, 12, 16, 24, 128, 128, 192]
    """
    power = max(1 << (size - 1).bit_length(), _LEAST)
    middle = power * 3 // 4
    return middle if _LEAST < size <= middle else power


def _other_sizes(ends: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Sizes of the ranges, which show what varies: none is the largest."""
    candidates = [_others(end) for end in ends.values()]
    for number in range(max(map(len, candidates))):
        picked = [sizes[number % len(sizes)] for sizes in candidates]
        yield dict(zip(ends, picked, strict=True))


def _others(end: int) -> list[int]:
    """Sizes of the range that ends there, even ones first."""
    first = next(n for n in range(end, 1, -1) if n == 2 or range_end(n - 1) != end)
    sizes = (first + first % 2, end - 2, first + 2, end - 1)
    return list(dict.fromkeys([n for n in sizes if first <= n < end]))


@record
class _Sizes:
    """The sizes of the dynamic axes of all leaves, and the types that have them."""

    types: tuple[ArrayType, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def now(self) -> list[int]:
        """The sizes, each once, in order."""
        sizes = [self.types[leaf].shape[axis] for leaf, axis in self.places]
        return list(dict.fromkeys(sizes))

    @property
    def symbolic(self) -> tuple[ArrayType, ...]:
        """The types with a symbol in the place of each size."""
        symbols: Mapping[int, Any] = {
            size: symbol(f"n{number}") for number, size in enumerate(self.now)
        }
        return self.with_sizes(symbols)

    def largest(self) -> dict[int, int]:
        """The end of the range of each size; those of two sizes differ, too."""
        found: dict[int, int] = {}
        for size in self.now:
            end = range_end(size)
            while end in found.values():
                end = range_end(end + 1)
            found[size] = end
        return found

    def with_sizes(self, sizes: Mapping[int, int]) -> tuple[ArrayType, ...]:
        """The types with other sizes in the place of those."""
        shapes = [list(type.shape) for type in self.types]
        for leaf, axis in self.places:
            shapes[leaf][axis] = sizes[shapes[leaf][axis]]
        rows = zip(self.types, shapes, strict=True)
        return tuple([type.with_shape(tuple(shape)) for type, shape in rows])


# ---------------------------------------------------------------- calls


@record
class _Form:
    """A padded program, ready to run, and the programs from which it was made."""

    entry: Entry
    other: Program
    largest: Program


@record
class _Ready(Entry):
    """The entry of a signature that runs a padded program.

    That takes the `numbers` of this signature behind its arrays.
    """

    padded: Entry | None = None
    numbers: tuple[Array, ...] = ()

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result for leaves of the true sizes."""
        if self.padded is None or _looked_at():
            return Entry.run(self, leaves)
        wanted = self.padded.program.input_types
        rows = zip([*self.captured, *leaves], wanted, strict=False)
        arrays = [_padded(x, type.shape) for x, type in rows]
        results = self.padded.run([*arrays, *self.numbers])
        ends = zip(results, self.program.output_types, strict=True)
        cut = [_cut(x, type.shape) for x, type in ends]
        if True in self.donated:
            self._delete_donated([*self.captured, *leaves], cut)
        return self.out_tree.unflatten(cut)


def _padded(x: Any, shape: Ints) -> Any:
    if x.shape == shape:
        return x
    none = (0,) * len(shape)
    high = tuple([n - m for n, m in zip(shape, x.shape, strict=True)])
    return pad(x, 0, low=none, high=high, interior=none)


def _number(value: Any, type: ArrayType) -> Any:
    array = np.asarray(value, type.dtype)
    return _padded(wrap(array, type.with_shape(array.shape)), type.shape)


def _cut(x: Any, shape: Ints) -> Any:
    return x if x.shape == shape else slice_(x, start=(0,) * len(shape), stop=shape)


def _looked_at() -> bool:
    """Whether what is wrong with values is looked for, which padding must not show."""
    return watching() or bool(checked_kinds.get())


class Dynamic(Jitted):
    """A function under `jit(dynamic=...)`; called like the function itself."""

    def __init__(
        self, function: Callable[..., Any], options: Options, axes: Axes
    ) -> None:
        super().__init__(function, options)
        self._axes = axes
        self._any = AnySizes()
        self._forms: dict[Any, list[_Form]] = {}
        # What programs depend on besides sizes, for those that had one for many sizes.
        self._worked: set[Any] = set()
        self._nbytes = 0  # of what is kept of sizes
        self._reason = ""  # why the last call that was compiled was

    def __reduce__(self) -> tuple[Any, ...]:
        return Dynamic, (self._function, self._options, self._axes)

    def clear_cache(self) -> None:
        """Forgets every traced program of this function."""
        super().clear_cache()
        self._nbytes = 0
        self._any.clear()
        self._forms.clear()
        self._worked.clear()

    def explain_miss(self) -> str:
        """Why the last call that was compiled was, as `jit` says it, and a reason."""
        text = super().explain_miss()
        return f"{text}\n  {self._reason}" if self._missed and self._reason else text

    def _add_path(self, entry: Entry, *call: Any) -> None:
        if not isinstance(entry, _Ready):  # else arrays are padded by Python
            super()._add_path(entry, *call)

    def _first_call(
        self, key: Key, divided: Divided, leaves: Sequence[Array], treedef: PyTreeDef
    ) -> Any:
        found = signature(
            self._function, divided, treedef, [x.type for x in leaves], key.placement
        )
        sizes = self._sizes(found)
        if tracing() or _looked_at() or not sizes.places or min(sizes.now) < 2:
            return super()._first_call(key, divided, leaves, treedef)
        ready = self._ready_for(key, divided, found, sizes)
        self._keep(key, ready)
        return self._apply(ready, leaves)

    def _keep(self, key: Key, ready: Entry) -> None:
        """Keeps what calls of a signature run, and forgets the oldest if it is much.

        A size that comes again is traced and linked again, and compiled no more.
        """
        self._entries[key] = ready
        self._nbytes += _nbytes(ready)
        while len(self._entries) > 1 and (
            len(self._entries) > CACHE_SIZE or self._nbytes > MOST_BYTES
        ):
            oldest = self._entries.pop(next(iter(self._entries)))
            self._nbytes -= _nbytes(oldest)

    def _sizes(self, found: Signature) -> _Sizes:
        """Where the dynamic axes are; raises if an array has no such axis."""
        places: list[tuple[int, int]] = []
        leaf = 0
        for root, branch in found.arguments:
            for number in range(leaf, leaf + branch.num_leaves):
                type = found.types[number]
                for axis in self._axes.get(root, ()):
                    if not -type.ndim <= axis < type.ndim:
                        asked = f"{self._asker}: axis {axis} of {found.names[number]}"
                        reason = f"it is dynamic, and {type} has no such axis"
                        raise errors.AxisError(errors.explain(asked, reason))
                    places.append((number, axis % type.ndim))
            leaf += branch.num_leaves
        return _Sizes(found.types, tuple(places))

    def _staged(
        self, divided: Divided, found: Signature, placement: Placement | None
    ) -> Entry:
        """The traced program, which is to be like that of other sizes."""
        token = for_any_size.set(True)
        try:
            return super()._staged(divided, found, placement)
        finally:
            for_any_size.reset(token)

    def _ready_for(
        self, key: Key, divided: Divided, found: Signature, sizes: _Sizes
    ) -> Entry:
        """What calls of a signature run: code for all sizes, or for its range."""
        exact = self._staged(divided, found, key.placement)
        alike = key._replace(types=sizes.symbolic)
        known = self._any.found(alike, exact, sizes.now) or self._padded(
            key, exact, sizes
        )
        if known is not None:
            self._hits += 1
            return known
        if compiling_forbidden.get():
            raise errors.RecompileError(
                f"{self._asker} was called with sizes for which it is compiled anew: "
                f"{', '.join(map(str, found.types))}"
            )

        def traced(changed: Mapping[int, int]) -> Entry:
            return self._at(divided, found, sizes, changed, exact)

        self._misses += 1
        self._missed = found
        ready: Entry | None = self._any.new(alike, exact, sizes.now, traced)
        if ready is None:
            try:
                ready = self._new_padded(key, divided, found, sizes, exact)
            except errors.DynamicSizeError:
                if alike not in self._worked and not self._any.special(
                    sizes.now, traced
                ):
                    raise
                ready = exact
        self._worked.add(alike)
        self._reason = _reason(ready, self._any.problem)
        if config.explain_cache_misses:
            print(self.explain_miss(), file=sys.stderr)
        return ready

    def _padded(self, key: Key, exact: Entry, sizes: _Sizes) -> _Ready | None:
        """A program of the range of the sizes, padded, if there is one."""
        types = sizes.with_sizes(sizes.largest())
        for form in self._forms.get(key._replace(types=types), ()):
            try:
                made = pad_program(Sized(exact.program, form.other, form.largest))
            except errors.DynamicSizeError:
                continue
            if made.program == form.entry.program:
                return self._ready(exact, form.entry, made)
        return None

    def _new_padded(
        self,
        key: Key,
        divided: Divided,
        found: Signature,
        sizes: _Sizes,
        exact: Entry,
    ) -> Entry:
        """A new padded program; raises if there is none."""
        form, made = self._form(divided, found, sizes, exact)
        types = sizes.with_sizes(sizes.largest())
        self._forms.setdefault(key._replace(types=types), []).append(form)
        return self._ready(exact, form.entry, made)

    def _form(
        self, divided: Divided, found: Signature, sizes: _Sizes, exact: Entry
    ) -> tuple[_Form, PaddedProgram]:
        """A new padded program, by comparison with the first other sizes that do."""
        ends = sizes.largest()
        largest = self._at(divided, found, sizes, ends, exact).program
        problem: Exception | None = None
        for changed in _other_sizes(ends):
            try:
                other = self._at(divided, found, sizes, changed, exact).program
                made = pad_program(Sized(exact.program, other, largest))
            except errors.DynamicSizeError as error:
                problem = problem or error
                continue
            entry = Entry(
                self._asker,
                made.program,
                (),
                found,
                tree_structure([0] * len(made.program.outputs)),
                (False,) * len(made.program.inputs),
                Calls(),
                exact.placement,
            )
            return _Form(entry, other, largest), made
        raise errors.DynamicSizeError(
            f"{self._asker} is no one program for all sizes ({_shown(ends)}).\n"
            f"  {problem}\n  Fix: {_FIX}."
        )

    def _at(
        self,
        divided: Divided,
        found: Signature,
        sizes: _Sizes,
        changed: Mapping[int, int],
        exact: Entry,
    ) -> Entry:
        """The entry of the function at other sizes."""
        types = sizes.with_sizes(changed)
        treedef, statics = found.in_tree, divided
        moved = signature(self._function, statics, treedef, types, exact.placement)
        try:
            return self._staged(divided, moved, exact.placement)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise errors.DynamicSizeError(
                errors.explain(
                    f"{self._asker}: it was traced at {_shown(changed)}, too, to "
                    "see what varies with the size",
                    f"that raised {reason}",
                    _FIX,
                )
            ) from error

    def _ready(self, exact: Entry, padded: Entry, made: PaddedProgram) -> _Ready:
        """The entry of a signature."""
        types = made.program.input_types[len(exact.program.inputs) :]
        rows = zip(made.numbers, types, strict=True)
        numbers: list[Any] = [_number(*row) for row in rows]
        if exact.placement is not None:
            numbers = [put(x, exact.placement) for x in numbers]
        return _Ready(
            exact.asker,
            exact.program,
            exact.captured,
            exact.signature,
            exact.out_tree,
            exact.donated,
            exact.calls,
            exact.placement,
            padded,
            tuple(numbers),
        )


def _nbytes(entry: Entry) -> int:
    """What is kept of a size that has code of its own, in bytes."""
    return entry.nbytes if isinstance(entry, AnySize) else 0


def _reason(ready: Entry, problem: Exception | None) -> str:
    """Why a call was compiled, beside what differs in its types."""
    if problem is None:
        return ""
    what = str(problem).splitlines()[0]
    if isinstance(problem, Undecided):
        what = f"code for all sizes would have to know {what}, where n0 is one"
    if isinstance(ready, _Ready):
        return f"it is compiled for a range of sizes: {what}"
    return f"at these sizes its program is another one: {what}"


def _shown(sizes: Mapping[int, int]) -> str:
    """Sizes in words: what is in the place of which."""
    rows = sizes.items()
    return ", ".join([f"size {end} in the place of {size}" for size, end in rows])


def dynamic_jit(
    function: Callable[..., Any], options: Options, dynamic: Any
) -> Dynamic:
    """The function under `jit` with this option; raises if it does not fit."""
    asker = f"jit of {name_of(function)}"
    axes = read_axes(asker, function, dynamic)
    for name in sorted(options.static_names & {*axes}):
        reason = "a static argument is no array"
        raise errors.OptionError(
            errors.explain(f"{asker}: {name} is static and dynamic", reason)
        )
    return Dynamic(function, options, axes)
