"""Refs: arrays that can be written to, in functions that are transformed too.

`new_ref` makes one, `ref[...]` reads and writes, `freeze` ends it. While a function is
traced, a ref holds a tracer; so what is compiled or differentiated has no memory, only
values. Loops, branches and jitted functions pass refs from outside through their bodies
(`core.frames`). Next on the walk: `branches.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import as_array
from fnx.core.array import Array
from fnx.core.frames import Cell, HasCell, given, read, write, write_all
from fnx.core.trace import innermost
from fnx.core.types import ArrayType
from fnx.ops.elementwise import convert
from fnx.ops.shape import broadcast_in_dim
from fnx.tree_nodes import register_pytree_node_class


class Ref(HasCell):
    """An array that can be written to; its shape and dtype stay."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self._cell.type.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self._cell.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._cell.type.size

    @property
    def at(self) -> _At:
        """`ref.at[index]` has the methods `get`, `set`, `add`, `multiply`, `min`,
        `max`: as those of `x.at[index]`, but that they write to the ref.
        """
        return _At(self._cell)

    def __getitem__(self, index: Any) -> Any:
        value = read(self._cell)
        return value if index is Ellipsis else value[index]

    @errors.api_boundary
    def __setitem__(self, index: Any, value: Any) -> None:
        if index is Ellipsis or (isinstance(index, tuple) and not index):
            write(self._cell, _whole(self._cell.type, value))
        else:
            write(self._cell, read(self._cell).at[index].set(value))

    def __bool__(self) -> bool:
        return bool(self[...])

    def __len__(self) -> int:
        return len(self[...])

    def __iter__(self) -> Any:
        raise TypeError("a Ref cannot be iterated over; read it first, with ref[...]")

    def __repr__(self) -> str:
        if self._cell.frozen:
            return f"Ref<{self._cell.type}>(frozen)"
        return f"Ref<{self._cell.type}>"


class _At:
    """The places of a ref, before an index is given."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def __getitem__(self, index: Any) -> _Place:
        return _Place(self._cell, index)


class _Place:
    """One place of a ref."""

    __slots__ = ("_cell", "_index")

    def __init__(self, cell: Cell, index: Any) -> None:
        self._cell = cell
        self._index = index

    def get(self) -> Any:
        """What is there."""
        return read(self._cell)[self._index]

    def set(self, value: Any) -> None:
        """Writes a value."""
        self._apply("set", value)

    def add(self, value: Any) -> None:
        """Adds a value to what is there."""
        self._apply("add", value)

    def multiply(self, value: Any) -> None:
        """Multiplies what is there by a value."""
        self._apply("multiply", value)

    def min(self, value: Any) -> None:
        """Keeps the smaller one of what is there and a value."""
        self._apply("min", value)

    def max(self, value: Any) -> None:
        """Keeps the larger one of what is there and a value."""
        self._apply("max", value)

    def _apply(self, method: str, value: Any) -> None:
        place = read(self._cell).at[self._index]
        write(self._cell, getattr(place, method)(value))


# ---------------------------------------------------------------- across a jit


@register_pytree_node_class
class _Held:
    """Stands for a ref among the arguments of a jitted function: what it holds."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def tree_flatten(self) -> tuple[Any, None]:
        """The value is the child."""
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> _Held:
        """One that holds whatever stands for the value."""
        return cls(*children)


Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Gives the jitted form of a function."""


class Closed:
    """A function that uses refs from outside, as one that takes and gives their values.

    That one is jitted, by `make`.
    """

    def __init__(self, function: Callable[..., Any], make: Make, cells: Any) -> None:
        self.cells: tuple[Cell, ...] = cells

        @functools.wraps(function)
        def pure(*args: Any, fnx_refs: Any, **kwargs: Any) -> Any:
            return given(function, self.cells, fnx_refs, args, kwargs)

        self.jitted = make(pure)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; the refs hold what it has written."""
        values = [read(cell) for cell in self.cells]
        result, ends = self.jitted(*args, fnx_refs=values, **kwargs)
        write_all(self.cells, ends)
        return result


class Passed:
    """A function that is given refs, as one that takes and gives their values."""

    cells = ()

    def __init__(self, function: Callable[..., Any], make: Make) -> None:
        @functools.wraps(function)
        def pure(*args: Any, **kwargs: Any) -> Any:
            refs: list[Ref] = []

            def opened(leaf: Any) -> Any:
                if not isinstance(leaf, _Held):
                    return leaf
                type = ArrayType(leaf.value.shape, leaf.value.dtype)
                refs.append(Ref(Cell(_whole(type, leaf.value), type)))
                return refs[-1]

            own, named = tree.map(opened, (args, kwargs), is_leaf=_is_held)
            result = function(*own, **named)
            return result, [read(ref._cell) for ref in refs]

        self.jitted = make(pure)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; the refs hold what it has written."""
        cells: list[Cell] = []

        def held(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return leaf
            value = read(leaf._cell)
            leaf._cell.lent = True
            cells.append(leaf._cell)
            return _Held(value)

        try:
            given_args, named = tree.map(held, (args, kwargs))
            result, ends = self.jitted(*given_args, **named)
        finally:
            for cell in cells:
                cell.lent = False
        write_all(cells, ends)
        return result


def _is_held(leaf: Any) -> bool:
    return isinstance(leaf, _Held)


# ---------------------------------------------------------------- public


@errors.api_boundary
def new_ref(init_val: Any) -> Ref:
    """An array that can be written to, which begins as a copy of `init_val`.

    `ref[...]` is its value, `ref[index]` a part; `ref[...] = x` and `ref[index] = x`
    write, and `ref.at[index].add(x)` adds. What is written takes the ref's dtype, and
    must fit its shape. Arrays that were read before do not change.

    A ref works where it was made, be that in a function under `jit`, `grad` or `vmap`,
    and in functions inside of that: under `jit`, in loops and branches, under `grad`,
    `vjp`, `jvp`, `linearize`, `jacfwd`, `jacrev` and `vmap`. What these write is there
    afterwards. For a derivative, what a ref held before is a constant; `vmap` may only
    write what is the same for all members. Elsewhere a ref from outside is read, and
    writing raises `ArgumentError`. A jitted function takes refs as arguments, too, and
    none of them twice, and so does a mapped one, each member of which has a part; a
    result that holds one raises.

    >>> import fnx
    >>> @fnx.jit
    ... def triangle(n):
    ...     total = fnx.new_ref(0)
    ...     def body(i, _):
    ...         total[...] += i
    ...     fnx.lax.fori_loop(0, n + 1, body, None)
    ...     return fnx.freeze(total)
    >>> triangle(10).item()
    55
    """
    if isinstance(init_val, Ref):
        raise errors.ArgumentError("new_ref: init_val is a Ref; read it with ref[...]")
    array = as_array(init_val, "new_ref", "init_val")
    type = ArrayType(array.shape, array.dtype)
    return Ref(Cell(_whole(type, array), type))


@errors.api_boundary
def freeze(ref: Ref) -> Array:
    """The value of a ref, which cannot be used any more.

    >>> import fnx
    >>> ref = fnx.new_ref(1.0)
    >>> ref[...] = 2
    >>> fnx.freeze(ref)
    Array(2., dtype=float32)
    """
    if not isinstance(ref, Ref):
        raise errors.ArgumentError(f"freeze takes a Ref, got a {type(ref).__name__}")
    value: Array = ref[...]
    if ref._cell.home is not innermost():
        raise errors.ArgumentError(
            f"freeze: a Ref of type {ref._cell.type} is frozen inside of a loop, a "
            "branch or a transformation, and was made outside of it."
        )
    ref._cell.frozen = True
    return value


def _whole(type: ArrayType, value: Any) -> Any:
    """A value as all that a ref of this type holds."""
    array = as_array(value, "a Ref", "what is written")
    start = len(type.shape) - array.ndim
    fits = start >= 0 and all(
        n in (1, size) for n, size in zip(array.shape, type.shape[start:], strict=True)
    )
    if not fits:
        raise errors.ShapeError(
            errors.explain(
                f"a Ref of type {type} was written with {array.type}",
                "the shape of a ref stays",
            )
        )
    if array.type.dtype != type.dtype or array.type.weak:
        array = convert(array, dtype=type.dtype)
    if array.shape == type.shape:
        return array
    dims = tuple(range(start, len(type.shape)))
    return broadcast_in_dim(array, shape=type.shape, dims=dims)
