"""sparse_jacobian, sparse_hessian: derivatives most of whose elements are always 0.

Receives a function; reads from its program which elements can be other than 0, gives
columns (or rows) that never meet one color, and computes one derivative for each color
instead of one for each column. Next on the walk: `vmap.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    call_names,
    check_callable,
    look_like,
    positions,
    trace_tree,
    type_of,
)
from fnx.api.derivatives import jvp, vjp
from fnx.api.grad import grad
from fnx.api.jit import jit
from fnx.api.vmap import vmap
from fnx.core.links import IndexSets
from fnx.core.types import ArrayType
from fnx.ops.index import take
from fnx.ops.shape import full, reshaped
from fnx.records import record
from fnx.runtime.array import ConcreteArray, from_numpy
from fnx.transforms.coloring import columns, star, star_reads
from fnx.transforms.sparsity import pattern
from fnx.tree import PyTreeDef, register_dataclass, static

Ints = np.ndarray[Any, Any]


@register_dataclass
@record(eq=False)
class COO:
    """An array given by some of its elements; the others are 0. It is a tree.

    `data` has shape (n,), `indices` shape (n, ndim), in row-major order and without
    repetition.
    """

    data: Any
    indices: Any
    shape: tuple[int, ...] = static()

    def todense(self) -> Any:
        """The whole array."""
        zeros = full(self.shape, self.data.dtype, 0)
        places = tuple([self.indices[:, d] for d in range(len(self.shape))])
        return zeros.at[places].set(self.data)

    def to_scipy(self) -> Any:
        """A `scipy.sparse.coo_array`. Raises `ShapeError` unless it has two axes."""
        # lazy: SciPy is optional, and only this needs it
        from scipy import sparse

        if len(self.shape) != 2:
            raise errors.ShapeError(
                errors.explain(
                    f"to_scipy: the array has shape {self.shape}",
                    "SciPy's sparse arrays have two axes",
                    "flatten the argument and the result of the function",
                )
            )
        rows, cols = np.asarray(self.indices).T
        return sparse.coo_array((np.asarray(self.data), (rows, cols)), self.shape)


@record(eq=False)
class Coloring:
    """How a sparse derivative is computed.

    `by` is "columns" or "rows", of which `count` are computed at once; `colors` has the
    color of each, -1 where nothing is. Element i of the derivative, in row `rows[i]`
    and column `cols[i]`, is element `places[i]` of the product of color `reads[i]`.
    """

    by: str
    count: int
    colors: Ints
    rows: Ints
    cols: Ints
    reads: Ints
    places: Ints
    out_shape: tuple[int, ...]
    in_type: ArrayType

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the derivative."""
        return self.out_shape + self.in_type.shape

    def indices(self) -> Ints:
        """The index of each element in the derivative."""
        numbers = self.rows * np.int64(self.in_type.size) + self.cols
        found = np.unravel_index(numbers, self.shape) if self.shape else ()
        return np.stack(found, -1) if found else np.zeros((len(numbers), 0), np.int64)

    def seeds(self, shape: tuple[int, ...]) -> Ints:
        """For each color, which columns (or rows) are added up in its product."""
        chosen = self.colors == np.arange(self.count)[:, None]
        return chosen.astype(self.in_type.dtype).reshape(self.count, *shape)

    def read(self, products: Any) -> Any:
        """The elements, from the products of all colors."""
        size = products.size // self.count
        numbers = self.reads * np.int64(size) + self.places
        return take(reshaped(products, (products.size,)), from_numpy(numbers), 0)


class SparseDerivative:
    """A function that gives a sparse derivative; `coloring` says how."""

    def __init__(
        self, fun: Callable[..., Any], argnums: int, asker: str, symmetric: bool
    ) -> None:
        look_like(self, fun)
        self._fun = fun
        self._number = argnums
        self._asker = asker
        self._symmetric = symmetric
        self._prepared = functools.lru_cache(maxsize=64)(self._prepare)

    def __call__(self, *args: Any, **kwargs: Any) -> COO:
        """The derivative at the arguments."""
        return self._call(args, kwargs)

    def coloring(self, *args: Any, **kwargs: Any) -> Coloring:
        """How the derivative at arguments of these shapes and dtypes is computed."""
        return self._found(args, kwargs)[0]

    @errors.api_boundary
    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> COO:
        coloring, compute = self._found(args, kwargs)
        return COO(
            compute(*args, **kwargs), from_numpy(coloring.indices()), coloring.shape
        )

    def _found(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Coloring, Callable[..., Any]]:
        leaves, in_tree = tree.flatten((args, kwargs))
        names = call_names(self._fun, args, kwargs)
        rows = zip(leaves, names, strict=True)
        types = tuple([type_of(x, self._asker, name) for x, name in rows])
        (number,) = positions(self._asker, "argnums", (self._number,), len(args))
        if not tree.structure(args[number]).is_leaf():
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: argument {number} is a tree",
                    "it must be one array",
                    "put its leaves into one, or choose other argnums",
                )
            )
        place = len(tree.leaves(args[:number]))
        return self._prepared(in_tree, types, tuple(names), number, place)

    def _prepare(
        self,
        in_tree: PyTreeDef,
        types: tuple[ArrayType, ...],
        names: tuple[str, ...],
        number: int,
        place: int,
    ) -> tuple[Coloring, Callable[..., Any]]:
        """What belongs to arguments of certain types."""
        self._check_real(types[place], names[place])
        fun = grad(self._fun, number) if self._symmetric else self._fun

        def call(leaves: Any) -> Any:
            args, kwargs = in_tree.unflatten(leaves)
            return fun(*args, **kwargs)

        traced = trace_tree(call, types, asker=self._asker, names=names)
        if not traced.out_tree.is_leaf():
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: the function gives a tree",
                    "it must give one array",
                    "put the leaves of its result into one array",
                )
            )
        (out,) = traced.out_types
        self._check_real(out, "the function's result")
        count = len(traced.captured)
        known = [
            x._numpy() if isinstance(x, ConcreteArray) else None
            for x in traced.captured
        ]
        (sets,) = pattern(traced.program, count + place, [*known, *[None] * len(types)])
        colored = _symmetric_coloring if self._symmetric else _coloring
        coloring = colored(sets, out.shape, types[place])
        return coloring, jit(_computing(fun, number, coloring))

    def _check_real(self, type: ArrayType, name: str) -> None:
        if not dtypes.is_float(type.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{self._asker}: {name} is {type}",
                    "sparse derivatives are those of real functions of real numbers",
                    "convert it to a float dtype",
                )
            )


def _computing(
    fun: Callable[..., Any], number: int, coloring: Coloring
) -> Callable[..., Any]:
    """The function from the arguments to the elements of the derivative."""

    def data(*args: Any, **kwargs: Any) -> Any:
        def alone(x: Any) -> Any:
            return fun(*args[:number], x, *args[number + 1 :], **kwargs)

        x = args[number]
        if not coloring.count:
            return full((0,), coloring.in_type.dtype, 0)
        if coloring.by == "columns":
            seeds = from_numpy(coloring.seeds(coloring.in_type.shape))
            return coloring.read(vmap(lambda t: jvp(alone, (x,), (t,))[1])(seeds))
        out, pull = vjp(alone, x)
        seeds = from_numpy(coloring.seeds(coloring.out_shape).astype(out.dtype))
        return coloring.read(vmap(lambda ct: pull(ct)[0])(seeds))

    return data


def _coloring(
    sets: IndexSets, out_shape: tuple[int, ...], in_type: ArrayType
) -> Coloring:
    """Columns or rows, whichever need fewer colors."""
    rows, cols = sets.elements, sets.items
    shape = sets.count, sets.universe
    by_column = columns(rows, cols, shape)
    by_row = columns(cols, rows, shape[::-1])
    many, few = [int(c.max(initial=-1)) + 1 for c in (by_column, by_row)]
    ends = rows, cols
    if many <= few:
        how = "columns", many, by_column, *ends, by_column[cols], rows
    else:
        how = "rows", few, by_row, *ends, by_row[rows], cols
    return Coloring(*how, out_shape, in_type)


def _symmetric_coloring(
    sets: IndexSets, out_shape: tuple[int, ...], in_type: ArrayType
) -> Coloring:
    """Columns of a matrix that is symmetric, though its pattern may not be found so."""
    size = np.int64(max(sets.universe, 1))
    one, other = sets.elements, sets.items
    keys = np.concatenate([one * size + other, other * size + one])
    rows, cols = np.divmod(np.unique(keys), size)
    colors = star(rows, cols, sets.universe)
    reads, places = star_reads(rows, cols, colors)
    many = int(colors.max(initial=-1)) + 1
    how = "columns", many, colors, rows, cols, reads, places
    return Coloring(*how, out_shape, in_type)


# ---------------------------------------------------------------- public


def sparse_jacobian(fun: Callable[..., Any], argnums: int = 0) -> SparseDerivative:
    """A function that gives the Jacobian of `fun` as the elements that may not be 0.

    `fun` gives one real array, and is differentiated by one real array, argument
    `argnums`. The result has `data`, `indices` and `shape`, which is that of the output
    followed by that of the argument; `todense()` and `to_scipy()` convert it. Which
    elements they are is read from the program once for arguments of certain shapes and
    dtypes, and does not depend on their values. `coloring(*args)` of the function tells
    how many columns or rows are computed.

    Raises `ArgumentError` where there are trees, `DTypeError` for other dtypes.

    >>> import fnx, numpy as np
    >>> jacobian = fnx.sparse_jacobian(lambda x: x[1:] * x[:-1])
    >>> found = jacobian(np.arange(100.0))
    >>> found.shape, found.data.shape, jacobian.coloring(np.arange(100.0)).count
    ((99, 100), (198,), 2)
    """
    return _sparse("sparse_jacobian", fun, argnums, False)


def sparse_hessian(fun: Callable[..., Any], argnums: int = 0) -> SparseDerivative:
    """A function that gives the Hessian of `fun` as the elements that may not be 0.

    `fun` gives a real scalar. Results, options and errors are those of
    `sparse_jacobian`; the colors make use of the symmetry.

    >>> import fnx, numpy as np
    >>> hessian = fnx.sparse_hessian(lambda x: (x[1:] * x[:-1] ** 2).sum())
    >>> found = hessian(np.arange(100.0))
    >>> found.shape, found.data.shape, hessian.coloring(np.arange(100.0)).count
    ((100, 100), (297,), 3)
    """
    return _sparse("sparse_hessian", fun, argnums, True)


def _sparse(
    asker: str, fun: Callable[..., Any], argnums: int, symmetric: bool
) -> SparseDerivative:
    check_callable(asker, fun)
    if isinstance(argnums, bool) or not isinstance(argnums, int):
        raise errors.ArgumentError(
            f"{asker}: argnums must be an integer, got {argnums!r}"
        )
    return SparseDerivative(fun, argnums, asker, symmetric)


__all__ = ["COO", "Coloring", "SparseDerivative", "sparse_hessian", "sparse_jacobian"]
