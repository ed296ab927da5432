"""The table of a signature: what the walker checks, makes and builds.

Receives a plan, where its machine code is, and the form of a call (arguments and result
as trees with `Leaf`s in them); gives a `Table` of words for `walker.py`, or `None` for
forms that only Python can serve: containers of other classes, keys that are no strings,
scalars without a row. Next on the walk: `__init__.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.cpu.entry import layout, memory
from fnx.cpu.entry.rows import ROW_WORDS, Build, Check, Word
from fnx.records import record
from fnx.runtime.backend import Argument, Called, CallForm, Index, Leaf

if TYPE_CHECKING:  # native calls of eager operations need no compiler
    from fnx.runtime.plan import Plan

# The row that stores a Python number of a class in an input of a dtype.
_NUMBERS = {
    ("float", "float32"): Check.FLOAT32,
    ("float", "float64"): Check.FLOAT64,
    ("int", "float32"): Check.INTEGER32,
    ("int", "float64"): Check.INTEGER64,
    ("bool", "bool"): Check.BOOL,
}
# A frame lies on the stack, which must not overflow.
_MOST_WORDS = 16_384


@record
class Result:
    """An output: memory of an input or of a buffer from `offset` on, or a literal."""

    role: str  # "input", "buffer", "literal"
    index: int
    type: Any
    offset: int = 0
    literal: Any = None


@record
class Runnable:
    """What a table must know of the code that it runs: types, as in a plan."""

    inputs: tuple[Any, ...]
    outputs: tuple[Result, ...] = ()
    buffers: tuple[Any, ...] = ()
    arena: int = 0

    @staticmethod
    def of(plan: Plan) -> Runnable:
        """What there is to know of a compiled plan."""
        outputs = [Result(o.role, o.index, o.type, 0, o.literal) for o in plan.outputs]
        return Runnable(plan.inputs, tuple(outputs), plan.buffers, plan.arena)


class Table:
    """The words that the walker reads, and all that must live as long as they do."""

    __slots__ = ("address", "kept", "words")

    def __init__(self, words: np.ndarray[Any, Any], kept: Sequence[Any]) -> None:
        self.words = words
        self.address: int = words.ctypes.data
        self.kept = kept

    @property
    def hits(self) -> int:
        """How many calls it has served."""
        return int(self.words[Word.HITS])


class ArenaCell:
    """Keeps a plan's arena between calls."""

    __slots__ = ("_free", "word")

    def __init__(self) -> None:
        self.word = ctypes.c_uint64(0)
        # Looked up now: modules may be gone when the last plan goes.
        self._free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(
            layout.python_address("PyMem_RawFree")
        )

    @property
    def address(self) -> int:
        """Where the address of the arena is kept; 0 means there is none."""
        return ctypes.addressof(self.word)

    def __del__(self) -> None:
        self._free(self.word.value)


class _Inexpressible(Exception):
    """The form of a call has no table."""


def make_table(
    plan: Runnable,
    run: int,
    cell: ArenaCell,
    form: CallForm,
    *,
    release: bool,
    keep: Any = None,
    data: int = 0,
) -> Table | None:
    """The table of one form of call.

    `keep` is what the code at `run` belongs to, `data` its second argument.
    """
    builder = _Builder(plan, form)
    try:
        builder.arguments()
        builder.outputs()
        builder.results()
    except _Inexpressible:
        return None
    builder.kept += [cell, keep]
    return builder.finish(
        {
            Word.ARENA: plan.arena,
            Word.ARENA_CELL: cell.address,
            Word.RUN: run,
            Word.RELEASE: int(release),
            Word.DATA: data,
        }
    )


class _Builder:
    def __init__(self, plan: Runnable, form: CallForm) -> None:
        self.plan = plan
        self.form = form
        self.kept: list[Any] = [form]
        self.rows: dict[str, list[list[int]]] = {"check": [], "make": [], "build": []}
        # The frame: arguments, pointers, held arrays, more values, and the stack.
        arrays = len(plan.inputs) + len(plan.buffers)
        self.pointers = len(form.args)
        self.held = self.pointers + arrays + 1
        self.size = self.held + arrays
        self.without_array: set[int] = set()  # inputs that no array of ours holds
        self.places: dict[int, int] = {}  # where the arguments of inputs lie

    # -- arguments

    def arguments(self) -> None:
        """Rows that check every argument, and find those that were captured."""
        for number, array in enumerate(self.form.captured):
            place = self.take(1)
            self.row("check", Check.LOAD, place, self.object(array))
            self.leaf(place, Leaf(number, "array"))
        for number, arg in enumerate(self.form.args):
            self.argument(number, arg)

    def argument(self, place: int, value: Any) -> None:
        """Rows for a subtree that lies in a word of the frame."""
        kind = type(value)
        if kind is Leaf:
            self.leaf(place, value)
        elif kind is dict:
            self.row("check", Check.DICT, place, len(value))
            for key, item in value.items():
                self.entry(place, key, item)
        elif kind is list or _is_tuple(kind):
            first = self.take(len(value))
            operation = Check.LIST if kind is list else Check.TUPLE
            self.row("check", operation, place, len(value), first, self.object(kind))
            for number, item in enumerate(value):
                self.argument(first + number, item)
        elif kind is slice:
            first = self.take(3)
            self.row("check", Check.SLICE, place, 0, first)
            for number, item in enumerate((value.start, value.stop, value.step)):
                self.argument(first + number, item)
        elif kind is Index:
            moved = self.pointers + value.input
            self.row(
                "check",
                Check.INDEX,
                place,
                value.value,
                moved,
                value.size,
                value.stride,
            )
        elif kind is int and -(2**63) <= value < 2**63:
            scratch = self.take(2)
            row = place, scratch, scratch + 1, value, value
            self.row("check", Check.INTEGER, *row)
        else:  # None, or the value of a static argument
            self.row("check", Check.SAME, place, self.object(value))

    def entry(self, place: int, key: Any, value: Any) -> None:
        """Rows for an entry of a dict."""
        child = self.take(1)
        self.row("check", Check.ITEM, place, self.key(key), child)
        self.argument(child, value)

    def leaf(self, place: int, leaf: Leaf) -> None:
        """The row for an array or a number."""
        type_ = self.plan.inputs[leaf.index]
        self.places[leaf.index] = place
        pointer, held = self.pointers + leaf.index, self.held + leaf.index
        if leaf.kind == "array":
            self.row("check", Check.ARRAY, place, self.object(type_), pointer, held)
            return
        self.without_array.add(leaf.index)
        if leaf.kind == "numpy":
            sizes = self.words([len(type_.shape), *type_.shape])
            dtype = self.object(type_.dtype)
            self.row("check", Check.NUMPY, place, dtype, pointer, held, sizes)
            return
        is_integer = type_.dtype.kind in "iu"
        bounds = np.iinfo(type_.dtype if is_integer else np.int32)
        number = _NUMBERS.get((leaf.kind, type_.dtype.name))
        if leaf.kind == "int" and is_integer:
            number = Check.INTEGER
        if number is None:
            raise _Inexpressible
        low, high = int(bounds.min), min(int(bounds.max), np.iinfo(np.int64).max)
        self.row("check", number, place, self.take(1), pointer, low, high)

    # -- outputs

    def outputs(self) -> None:
        """Rows that make the plan's output arrays."""
        first = len(self.plan.inputs)
        for number, type_ in enumerate(self.plan.buffers, first):
            dtype, rank, sizes = self.layout(type_)
            places = self.pointers + number, self.held + number
            large = memory.is_large(type_.shape, type_.dtype)
            handler = memory.handler() if large else None
            address = 0 if handler is None else self.object(handler)
            self.row("make", dtype, rank, sizes, *places, address)

    def results(self) -> None:
        """Rows that build the result."""
        self.result(self.form.result)

    def result(self, value: Any) -> None:
        """Rows that leave a subtree of the result on the stack."""
        kind = type(value)
        if kind is Leaf:
            self.output(self.plan.outputs[value.index])
        elif kind is Argument:
            self.row("build", Build.ARGUMENT, self.places[value.index])
        elif kind is Called:
            for index in value.inputs:
                self.row("build", Build.DATA, self.held + index)
            called = self.object(value.function)
            self.row("build", Build.CALL, len(value.inputs), called)
        elif value is None:
            self.row("build", Build.OBJECT, 0, id(None))
        elif kind is dict:
            keys = [self.key(key) for key in value]
            self.pieces(Build.DICT, list(value.values()), self.words(keys))
        elif kind is list:
            self.pieces(Build.LIST, value)
        elif kind is tuple:
            self.pieces(Build.TUPLE, value)
        elif _is_tuple(kind):
            self.pieces(Build.CALL, value, self.object(kind))
        else:
            raise _Inexpressible

    def pieces(self, operation: Build, values: Sequence[Any], what: int = 0) -> None:
        """Rows for the children of a container, then for itself."""
        for value in values:
            self.result(value)
        self.row("build", operation, len(values), what)

    def output(self, output: Result) -> None:
        """The row for an output array."""
        type_ = self.object(output.type)
        if output.literal is not None:
            value = np.array(output.literal.value, output.type.dtype)
            value.flags.writeable = False
            self.row("build", Build.CONSTANT, 0, type_, self.object(value))
            return
        is_input = output.role == "input"
        if is_input and output.index in self.without_array:
            raise _Inexpressible
        group = self.plan.inputs if is_input else self.plan.buffers
        place = self.held + output.index + (0 if is_input else len(self.plan.inputs))
        whole = group[output.index]
        offset, dtype, shape = output.offset, output.type.dtype, output.type.shape
        if whole.shape == shape and whole.dtype is dtype and not offset:
            self.row("build", Build.ARRAY, place, type_)
        else:
            sizes = self.words([offset, *shape])
            view = self.object(dtype), len(shape), sizes
            self.row("build", Build.VIEW, place, type_, *view)

    # -- pieces

    def finish(self, known: dict[Word, int]) -> Table:
        """The table: its head, then its rows."""
        stack = self.take(len(self.rows["build"]))
        names = self.form.names
        arrays = len(self.plan.inputs) + len(self.plan.buffers)
        known |= {
            Word.POSITIONAL: len(self.form.args) - len(names),
            Word.NAMED: len(names),
            Word.NAMES: self.words([self.object(name) for name in names]),
            Word.BITS: self.object(self.form.bits),
            Word.STRONG_ZERO: id(self.form.strong_zero),
            Word.FRAME: self.size,
            Word.HELD: self.held,
            Word.HELD_END: self.held + arrays,
            Word.POINTERS: self.pointers,
            Word.ARENA_POINTER: self.pointers + arrays,
            Word.STACK: stack,
            Word.HITS: 0,
        }
        rows = [word for kind in self.rows.values() for row in kind for word in row]
        words = np.array([0] * len(Word) + rows, np.int64)
        start = words.ctypes.data + 8 * len(Word)
        for word, kind in zip(
            (Word.CHECKS, Word.OUTPUTS, Word.RESULTS), self.rows, strict=True
        ):
            known[word] = start
            start += 8 * ROW_WORDS * len(self.rows[kind])
        known[Word.END] = start
        for word, value in known.items():
            words[word] = value
        return Table(words, tuple(self.kept))

    def row(self, kind: str, *words: int) -> None:
        """Adds a row."""
        row = [int(word) for word in words]
        self.rows[kind].append(row + [0] * (ROW_WORDS - len(row)))

    def take(self, count: int) -> int:
        """The first of so many more words of the frame."""
        first = self.size
        self.size += count
        if self.size > _MOST_WORDS:
            raise _Inexpressible
        return first

    def object(self, value: Any) -> int:
        """The address of an object, which is kept alive."""
        self.kept.append(value)
        return id(value)

    def key(self, key: Any) -> int:
        """The address of a key; looking up other keys could run Python code."""
        if type(key) is not str:
            raise _Inexpressible
        return self.object(key)

    def words(self, values: Sequence[int]) -> int:
        """The address of some words."""
        made = np.array(values, np.int64)
        self.kept.append(made)
        return int(made.ctypes.data)

    def layout(self, type_: Any) -> tuple[int, int, int]:
        """Dtype, rank and the address of the sizes, for a new array."""
        sizes = self.words(type_.shape)
        return self.object(type_.dtype), len(type_.shape), sizes


def _is_tuple(kind: type) -> bool:
    """Whether a class is tuple, or a named tuple (as `fnx.tree` sees it)."""
    return kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
