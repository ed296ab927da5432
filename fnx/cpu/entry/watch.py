"""Which loops and copies of NumPy a Python function comes to, seen by watching it.

Receives a function of NumPy arrays (what eager operations do, one `reference` rule
after the other) and runs it on arrays that report what is done with them: each call of
a ufunc, each view, each copy. If that is all, the same calls can be made without Python
(`steps.py`): `watch` gives the steps and where the results lie. A function that asks an
array for a value, writes into one or calls anything else raises `Unwatched`.
Next on the walk: `steps.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Never

import numpy as np

from fnx.cpu.entry.layout import ufunc_loops
from fnx.cpu.entry.steps import (
    CONVERT,
    COPY,
    FIXED,
    MOST_OPERANDS,
    SELECT,
    Operand,
    Step,
    conversion,
)
from fnx.kernel.scalar import saturated
from fnx.records import record

Array = np.ndarray[Any, Any]

# A function that takes more steps gains little by running them without Python.
MOST_STEPS = 64
_ALIGNMENT = 64
# NumPy chooses among and converts the elements of long arrays faster than steps do.
_MOST_SINGLE = 4096


class Unwatched(Exception):
    """The function does something that is no step."""


@dataclass(slots=True)
class _Block:
    """Memory that is known: of an input, of a constant, or of a result of a step."""

    kind: str  # "input", "constant", "made"
    number: int
    array: Array
    start: int


@record
class Found:
    """Where a result lies: `offset` bytes into input or made block `number`."""

    kind: str
    number: int
    offset: int
    whole: bool


@record
class _Call:
    function: int | str
    data: int
    operands: tuple[tuple[_Block, int], ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Watch:
    """One run of a function, and what was seen; it may be held to views of arrays."""

    def __init__(self, only_views: bool = False) -> None:
        self.only_views = only_views
        self.blocks: list[_Block] = []
        self.calls: list[_Call] = []
        self.made: list[Array] = []
        self.work = 0  # how many elements the steps compute or copy
        # The class knows its watch: NumPy hands instances around without attributes.
        self.kind: Any = type("_Watched", (_Watched,), {"watch": self})

    # -- memory

    def known(self, kind: str, number: int, array: Array) -> _Block:
        """Notes memory."""
        if not array.size:
            raise Unwatched("an empty array")
        block = _Block(kind, number, array, _address(array))
        self.blocks.append(block)
        return block

    def make(self, array: Array) -> _Block:
        """Notes memory that a step fills."""
        self.made.append(array)
        return self.known("made", len(self.made) - 1, array)

    def place(self, array: Array) -> tuple[_Block, int]:
        """The known block that an array is a view of, and its offset there."""
        address = _address(array)
        for block in reversed(self.blocks):
            if block.start <= address < block.start + block.array.nbytes:
                return block, address - block.start
        raise Unwatched("an array of unknown origin")

    def view(self, array: Any) -> Any:
        """A NumPy array as one that reports what is done with it."""
        return np.asarray(array).view(self.kind)

    def input(self, number: int, array: Array) -> Any:
        """An argument of the function."""
        self.known("input", number, array)
        return self.view(array)

    def settle(self, value: Any) -> Any:
        """A result, contiguous, or a literal, as an operand of what follows."""
        if isinstance(value, np.generic):
            return self.view(self.known("constant", 0, np.array(value)).array)
        plain = np.asarray(value)
        self.place(plain)
        if not plain.flags.c_contiguous:
            plain = self.copied(plain)
        return self.view(plain)

    # -- calls

    def ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
        """Makes a call of a ufunc and notes it."""
        plain = [self._operand(x) for x in inputs]
        results = ufunc(*plain)
        many = results if isinstance(results, tuple) else (results,)
        outputs = [np.asarray(result) for result in many]
        for output in outputs:
            self.make(output)
        function, data, dtypes = ufunc_loops(ufunc, plain, outputs)
        arrays = [
            x if isinstance(x, np.ndarray) else self._constant(x, dtype)
            for x, dtype in zip([*plain, *outputs], dtypes, strict=True)
        ]
        if ufunc is np.matmul:
            self._matmul(function, data, arrays)
        elif ufunc.signature is None:
            self._elementwise(function, data, arrays)
        else:
            raise Unwatched(f"the loop of {ufunc}")
        watched = [self.view(output) for output in outputs]
        return tuple(watched) if isinstance(results, tuple) else watched[0]

    def reduce(
        self,
        ufunc: np.ufunc,
        operand: Any,
        axis: Any = 0,
        dtype: Any = None,
        initial: Any = None,
    ) -> Any:
        """Makes a reduction over leading or trailing axes and notes it.

        As in NumPy the loop is given the result as its first operand and as its output,
        which begins as `initial`, or as the first element.
        """
        x = self._operand(operand)
        out = np.asarray(ufunc.reduce(x, axis, dtype, initial=_given(initial)))
        if out.dtype != x.dtype or not x.flags.c_contiguous:
            raise Unwatched("a reduction in another dtype or order")
        self.make(out)
        function, data, _ = ufunc_loops(ufunc, [x, x], [out])
        axes = axis if isinstance(axis, tuple) else (axis,)
        start = ufunc.identity if initial is None else initial
        first = 1 if start is None else 0
        if tuple(axes) == tuple(range(x.ndim - len(axes), x.ndim)):
            rows = x.reshape(out.size, -1)
            pairs = list(zip(rows[:, first:], out.reshape(-1, 1), strict=True))
            begin = rows[:, 0]
        elif tuple(axes) == tuple(range(len(axes))):
            rows = x.reshape(-1, out.size)
            pairs = [(row, out.reshape(-1)) for row in rows[first:]]
            begin = rows[0]
        else:
            raise Unwatched("a reduction of axes in the middle")
        if start is not None:
            begin = np.broadcast_to(self._constant(start, x.dtype), out.size)
        self.copy(begin, out.reshape(-1))
        for row, target in pairs:
            step = row.strides[-1], target.strides[-1] if target.size > 1 else 0
            places = self._places((target, row, target))
            self._call(function, data, places, row.shape, (step[1], *step))
        self.work += x.size
        return self.view(out)

    def accumulate(
        self, ufunc: np.ufunc, operand: Any, axis: int = 0, dtype: Any = None
    ) -> Any:
        """Makes a cumulative reduction along the last axis and notes it.

        As in NumPy the loop is given the result as its first operand, and one further
        on as its output.
        """
        x = self._operand(operand)
        out = ufunc.accumulate(x, axis, dtype)
        if out.dtype != x.dtype or axis != x.ndim - 1 or not x.flags.c_contiguous:
            raise Unwatched("a cumulative reduction in another dtype or order")
        self.make(out)
        function, data, _ = ufunc_loops(ufunc, [x, x], [out])
        self.copy(x[..., :1], out[..., :1])
        n = x.shape[-1]
        for row, target in zip(x.reshape(-1, n), out.reshape(-1, n), strict=True):
            if n > 1:
                places = self._places((target, row[1:], target[1:]))
                self._call(function, data, places, (n - 1,), (x.itemsize,) * 3)
        self.work += x.size
        return self.view(out)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        """Elements of x where the condition holds, of y elsewhere."""
        plain = [self._operand(operand) for operand in (condition, x, y)]
        out = np.where(*plain)
        plain[1:] = [
            a if isinstance(a, np.ndarray) else self._constant(a, out.dtype)
            for a in plain[1:]
        ]
        if plain[0].dtype != np.bool_ or {a.dtype for a in plain[1:]} != {out.dtype}:
            raise Unwatched("a conversion")
        self.make(out)
        shape, strides = _merged(
            out.shape, [np.broadcast_to(a, out.shape).strides for a in (*plain, out)]
        )
        if len(shape) > 1 or out.size > _MOST_SINGLE:
            raise Unwatched("a long selection")
        sizes = (*shape, out.itemsize)
        places = self._places((*plain, out))
        self._call(SELECT, 0, places, sizes, tuple([row[0] for row in strides]))
        self.work += out.size
        return self.view(out)

    def convert(self, operand: Any, dtype: Any) -> Any:
        """The elements in another dtype."""
        x = self._operand(operand)
        out = x.astype(dtype)
        if out.dtype is x.dtype:
            return self.view(x)
        codes = conversion(x.dtype, out.dtype)
        shape, strides = _merged(x.shape, [x.strides, self.make(out).array.strides])
        if codes is None or len(shape) > 1 or out.size > _MOST_SINGLE:
            raise Unwatched("a conversion")
        steps = tuple([row[0] for row in strides])
        self._call(CONVERT, codes, self._places((x, out)), shape, steps)
        self.work += out.size
        return self.view(out)

    def constant(self, value: Array) -> Any:
        """An array of the function's own."""
        return self.view(self.known("constant", 0, value).array)

    def copied(self, source: Array) -> Array:
        """A contiguous copy."""
        self._check_steps()
        target = np.ascontiguousarray(source).reshape(source.shape)
        self.make(target)
        self.copy(source, target)
        return target

    def concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        """Each array copied to its part of the result."""
        plain = [self._operand(x) for x in arrays]
        target = np.concatenate(plain, axis)
        if any(x.dtype is not target.dtype for x in plain):
            raise Unwatched("a conversion")
        self.make(target)
        ends = itertools.accumulate([x.shape[axis] for x in plain])
        for x, end in zip(plain, ends, strict=True):
            index = (slice(None),) * axis + (slice(end - x.shape[axis], end),)
            self.copy(x, target[index])
        return self.view(target)

    def copy(self, source: Array, target: Array) -> None:
        """Notes a copy, as blocks of adjacent elements."""
        shape, strides = _merged(source.shape, [source.strides, target.strides])
        nbytes = source.itemsize
        if {row[-1] for row in strides} == {nbytes} or shape[-1] == 1:
            nbytes *= shape[-1]
            shape, strides = shape[:-1], [row[:-1] for row in strides]
        if not shape:
            shape, strides = (1,), [(0,), (0,)]
        inner = tuple([row[-1] for row in strides])
        for offsets in _outer(shape[:-1], [row[:-1] for row in strides]):
            places = self._places((source, target), offsets)
            self._call(COPY, 0, places, (shape[-1], nbytes), inner)
        self.work += source.nbytes // 8

    def _elementwise(self, function: int, data: int, arrays: Sequence[Array]) -> None:
        shape = arrays[-1].shape
        rows = [np.broadcast_to(x, shape).strides for x in arrays]
        shape, strides = _merged(shape, rows)
        inner = tuple([row[-1] for row in strides])
        for offsets in _outer(shape[:-1], [row[:-1] for row in strides]):
            places = self._places(arrays, offsets)
            self._call(function, data, places, shape[-1:], inner)
        self.work += arrays[-1].size

    def _matmul(self, function: int, data: int, arrays: Sequence[Array]) -> None:
        """Stacks of matrices, one call for all: sizes are (stack, m, k, n)."""
        x, y, out = arrays
        if {x.ndim, y.ndim, out.ndim} != {3} or len({len(a) for a in arrays}) > 1:
            raise Unwatched("a product of vectors, or one that is broadcast")
        sizes = len(x), x.shape[1], x.shape[2], y.shape[2]
        outer = tuple([a.strides[0] for a in arrays])
        inner = x.strides[1:] + y.strides[1:] + out.strides[1:]
        self._call(function, data, self._places(arrays), sizes, outer + inner)
        self.work += math.prod(sizes)

    def _call(
        self,
        function: int | str,
        data: int,
        places: tuple[tuple[_Block, int], ...],
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        if len(self.calls) == MOST_STEPS or len(places) > MOST_OPERANDS:
            raise Unwatched("too many steps")
        self.calls.append(_Call(function, data, places, sizes, strides))

    def _places(
        self, arrays: Sequence[Array], offsets: Sequence[int] | None = None
    ) -> tuple[tuple[_Block, int], ...]:
        found = [self.place(array) for array in arrays]
        more = offsets or [0] * len(found)
        return tuple([(b, n + m) for (b, n), m in zip(found, more, strict=True)])

    def _operand(self, value: Any) -> Any:
        """A plain operand: known memory, or a Python number of the function's own."""
        if type(value) in (bool, int, float, complex):
            return value
        self._check_steps()
        if not isinstance(value, np.ndarray):
            raise Unwatched(f"an operand of type {type(value).__name__}")
        plain = np.asarray(value)
        self.place(plain)
        return plain

    def _check_steps(self) -> None:
        if self.only_views:
            raise Unwatched("a step beside views")

    def _constant(self, value: Any, dtype: np.dtype[Any]) -> Array:
        return self.known("constant", 0, np.array(value, dtype)).array

    # -- what was seen

    def found(self, results: Sequence[Any]) -> list[Found]:
        """Where the results of the function lie."""
        many = []
        for result in results:
            plain = np.asarray(result)
            block, offset = self.place(plain)
            if block.kind == "constant":
                raise Unwatched("a constant result")
            whole = not offset and plain.nbytes == block.array.nbytes
            many.append(Found(block.kind, block.number, offset, whole))
        return many

    def steps(self, slots: Sequence[Operand]) -> list[Step]:
        """The steps, where the blocks that were made lie in `slots`."""

        def operand(block: _Block, offset: int) -> Operand:
            if block.kind == "constant":
                return Operand(FIXED, block.start + offset)
            if block.kind == "input":
                return Operand(block.number, offset)
            slot = slots[block.number]
            return Operand(slot.slot, slot.offset + offset)

        return [
            Step(
                call.function,
                call.data,
                tuple([operand(*place) for place in call.operands]),
                call.sizes,
                call.strides,
            )
            for call in self.calls
        ]


def watch(
    function: Callable[..., Sequence[Any]],
    inputs: Sequence[Array],
    only_views: bool = False,
) -> tuple[Watch, list[Found]]:
    """Runs `function(watcher, *inputs)`; what it did, and where its results lie.

    With `only_views` it may do nothing but view the inputs.
    """
    seen = Watch(only_views)
    results = function(seen, *[seen.input(*pair) for pair in enumerate(inputs)])
    return seen, seen.found(results)


# ---------------------------------------------------------------- arrays that report


def _refuse(*args: Any, **options: Any) -> Never:
    raise Unwatched("the function asks for a value, or changes one")


class _Watched(np.ndarray[Any, Any]):
    """An array whose operations are noted by the `watch` of its class."""

    watch: Watch

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> Any:
        if method == "__call__" and not options:
            return self.watch.ufunc(ufunc, inputs)
        if method == "accumulate" and options.keys() <= {"axis", "dtype"}:
            return self.watch.accumulate(ufunc, *inputs, **options)
        if method == "reduce" and options.keys() <= {"axis", "dtype", "initial"}:
            return self.watch.reduce(ufunc, *inputs, **options)
        raise Unwatched(f"{ufunc}.{method} with {list(options)}")

    def __array_function__(
        self, function: Any, types: Any, args: Any, options: Any
    ) -> Any:
        if function in _FACTS:
            return function(*map(_plain, args), **options)
        if function in _VIEWS:
            view = function(*map(_plain, args), **options)
            self.watch.place(view)
            return self.watch.view(view)
        if function in _LIKE:
            return self.watch.constant(function(*map(_plain, args), **options))
        if function is np.concatenate and not options:
            return self.watch.concatenate(*args)
        if function is np.where and not options:
            return self.watch.select(*args)
        raise Unwatched(f"numpy.{function.__name__}")

    def __getitem__(self, index: Any) -> Any:
        found = np.asarray(self)[index]
        if not isinstance(found, np.ndarray):
            _refuse()
        self.watch.place(found)
        return self.watch.view(found)

    def astype(self, dtype: Any, *options: Any, **named: Any) -> Any:
        target = np.dtype(dtype)
        if self.dtype.kind == "f" and target.kind in "iu":
            raise Unwatched("NumPy's way from floats to integers, which depends")
        return self.watch.convert(self, target)

    __setitem__ = __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    __iter__ = item = tolist = tobytes = fill = sort = partition = put = _refuse
    argmax = argmin = argsort = _refuse


@saturated.register(_Watched)
def _saturated(x: _Watched, dtype: np.dtype[Any]) -> Any:
    """Steps convert floats to integers as kernels do."""
    return x.watch.convert(x, dtype)


_FACTS = frozenset({np.shape, np.ndim, np.size})
_LIKE = frozenset({np.ones_like, np.zeros_like})
_VIEWS = frozenset(
    {
        np.broadcast_to,
        np.expand_dims,
        np.flip,
        np.moveaxis,
        np.reshape,
        np.squeeze,
        np.swapaxes,
        np.transpose,
    }
)


def _given(initial: Any) -> Any:
    return np._NoValue if initial is None else initial


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, _Watched) else value


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


# ---------------------------------------------------------------- loops over axes


def _merged(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The same loops with axes put together where all operands allow it."""
    sizes: list[int] = []
    rows: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [row[axis] for row in strides]
        if sizes and all(
            row[-1] == step * size for row, step in zip(rows, steps, strict=True)
        ):
            sizes[-1] *= size
            for row, step in zip(rows, steps, strict=True):
                row[-1] = step
            continue
        sizes.append(size)
        for row, step in zip(rows, steps, strict=True):
            row.append(step)
    if not sizes:
        last = [row[-1] if row else 0 for row in strides]
        return (1,), [(step,) for step in last]
    return tuple(sizes), [tuple(row) for row in rows]


def _outer(
    shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """The offsets of the operands at each place of the outer loops."""
    if math.prod(shape) > MOST_STEPS:
        raise Unwatched("too many steps")
    return [
        [sum(map(math.prod, zip(index, row, strict=True))) for row in strides]
        for index in itertools.product(*map(range, shape))
    ]


def align(nbytes: int) -> int:
    """A size rounded up, so that what follows begins at a multiple of 64 bytes."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
