"""What a function does, without running it: make_jaxpr, eval_shape, typeof.

Receives a function and arguments (or only their shapes, as `ShapeDtypeStruct`); gives
its traced program, or the types of its result. Next on the walk: `misses.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    call_names,
    check_callable,
    trace_tree,
    type_of,
)
from fnx.api.static import Nums, read_options
from fnx.core.axes import bound_axis
from fnx.core.types import ArrayType
from fnx.tree import PyTreeDef


class ShapeDtypeStruct:
    """Shape and dtype of an array that is not there: an argument of `eval_shape`.

    `sharding`, if given, is how it would be cut.

    >>> import fnx
    >>> fnx.ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("_sharding", "dtype", "shape", "weak_type")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtypes.as_dtype(dtype)
        self._sharding = sharding
        self.weak_type = weak_type

    @property
    def sharding(self) -> Any:
        """How the array would be cut, if that is said."""
        return self._sharding

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return ArrayType(self.shape, self.dtype).size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of rank 0 has no length")
        return self.shape[0]

    def _key(self) -> Any:
        return self.shape, self.dtype, self.weak_type, self.sharding

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        more = ", weak_type=True" if self.weak_type else ""
        if self.sharding is not None:
            more += f", sharding={self.sharding}"
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{more})"


def structs(treedef: PyTreeDef, types: Sequence[ArrayType]) -> Any:
    """Types as a tree of `ShapeDtypeStruct`."""
    return treedef.unflatten(
        [ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak) for t in types]
    )


def argument_types(
    asker: str, leaves: Sequence[Any], names: Sequence[str]
) -> list[ArrayType]:
    """The types of arguments, which may be only described."""
    rows = zip(leaves, names, strict=True)
    return [type_of(leaf, asker, name) for leaf, name in rows]


def typeof(x: Any) -> ArrayType:
    """The type of an array or number: shape, dtype and weakness.

    >>> import fnx
    >>> fnx.typeof(1.0)
    f32[]*
    """
    return type_of(x, "typeof", "the argument")


@errors.api_boundary
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what a function returns, without computing it.

    Arguments are arrays, numbers or `ShapeDtypeStruct`, in trees; the result is a tree
    of `ShapeDtypeStruct`. Raises what the function raises for such arguments.

    >>> import fnx
    >>> fnx.eval_shape(lambda x: x * 2, fnx.ShapeDtypeStruct((3,), "float32"))
    ShapeDtypeStruct(shape=(3,), dtype=float32)
    """
    check_callable("eval_shape", fun)
    leaves, treedef = tree.flatten((args, kwargs))
    names = call_names(fun, args, kwargs)

    def run(values: Sequence[Any]) -> Any:
        inner, named = treedef.unflatten(values)
        return fun(*inner, **named)

    types = argument_types("eval_shape", leaves, names)
    traced = trace_tree(run, types, asker="eval_shape", names=names)
    return structs(traced.out_tree, traced.out_types)


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: Nums = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that gives the traced program of `fun` for its arguments.

    The program's inputs are the arrays that `fun` captures, then the leaves of the
    arguments, which may be `ShapeDtypeStruct`. `axis_env` binds names of axes, for
    collectives, to sizes. With `return_shape` the result is the program and the shapes
    of the result, as `eval_shape` gives them. In a notebook the program is drawn.

    >>> import fnx
    >>> fnx.make_jaxpr(lambda x, y: x * y)(2.0, 3.0)
    { lambda a:f32[]* b:f32[]*. let
        c:f32[]* = mul a b
      in (c,) }
    """
    check_callable("make_jaxpr", fun)
    options = read_options("make_jaxpr", fun, static_argnums)
    axes = _axes(axis_env)

    def program_of(*args: Any, **kwargs: Any) -> Any:
        call = options.divide(args, kwargs)
        leaves, treedef = tree.flatten((call.args, call.kwargs))
        names = call_names(fun, *call.shown())

        def run(values: Sequence[Any]) -> Any:
            full, named = call.joined(*treedef.unflatten(values))
            return fun(*full, **named)

        types = argument_types("make_jaxpr", leaves, names)
        with ExitStack() as bound:
            for name, size in axes:
                bound.enter_context(bound_axis(name, size))
            traced = trace_tree(run, types, asker="make_jaxpr", names=names)
        shapes = structs(traced.out_tree, traced.out_types)
        return (traced.program, shapes) if return_shape else traced.program

    return errors.api_boundary(functools.wraps(fun)(program_of))


def _axes(axis_env: Any) -> list[tuple[Hashable, int]]:
    try:
        pairs = [(name, operator.index(size)) for name, size in axis_env or ()]
    except (TypeError, ValueError):
        raise errors.ArgumentError(
            errors.explain(
                "make_jaxpr: axis_env takes pairs of an axis name and a size",
                f"got {axis_env!r}",
            )
        ) from None
    return pairs


__all__ = [
    "ShapeDtypeStruct",
    "argument_types",
    "eval_shape",
    "make_jaxpr",
    "structs",
    "typeof",
]
