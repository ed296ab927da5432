"""on_host: a solver over NumPy arrays, such as SciPy's, in functions that are traced.

Receives a solver that needs values; gives one that calls it on the host when the
program runs (`fnx.pure_callback`). Next on the walk: `solutions.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    as_array,
    check_callable,
    leaf_names,
    name_of,
    parameter_names,
    trace_tree,
    with_type,
)
from fnx.api.callbacks import pure_callback
from fnx.api.inspect import ShapeDtypeStruct
from fnx.api.jit import jit
from fnx.api.solve import check_pair
from fnx.control.call import chosen
from fnx.core.array import Array
from fnx.core.trace import Tracer, evaluate
from fnx.records import record
from fnx.tree import PyTreeDef

Function = Callable[..., Any]

_ARRAYS = (Array, np.ndarray, np.generic)


def on_host(
    solver: Function, *, vmap_method: str = "sequential", aux: Any = None
) -> Function:
    """A solver for `root`, `fixed_point` and `minimum` that runs on the host.

    `solver(fun, init, *args)` is called when the program runs, with NumPy arrays in the
    trees of `init` and `args`; it may use SciPy, loops of Python, whatever it likes,
    and returns a tree like `init`, which gets the dtypes of `init`. `fun` is compiled
    for the shapes and dtypes of this call: it gives NumPy arrays for NumPy arrays, and
    `fnx.grad(fun)` and `fnx.jacobian(fun)` work. `fun` may close over traced arrays.
    What is no array in `args` is passed as it is.

    So `jit`, `grad`, `vmap`, loops and branches compose. `vmap_method` is that of
    `pure_callback`; by default the solver runs for one member after the other. A solver
    that returns `(x, aux)` (`has_aux` of `root`) says by `aux` what that looks like, as
    a tree of `ShapeDtypeStruct`s. What the solver raises reaches the caller.

    >>> import fnx, numpy as np
    >>> from scipy import optimize
    >>> @fnx.implicit.on_host
    ... def bracketed(fun, init, a):
    ...     return optimize.brentq(fun, 0.0, 10.0, args=(a,))
    >>> anomaly = lambda x, a: x - 0.5 * fnx.numpy.sin(x) - a
    >>> kepler = fnx.implicit.root(anomaly, bracketed)
    >>> slopes = fnx.jit(fnx.vmap(fnx.grad(kepler, argnums=1), (None, 0)))
    >>> slopes(np.float64(0.0), np.array([1.0, 2.0])).round(6)
    Array([1.037362, 0.739173], dtype=float64)
    """
    check_callable("implicit.on_host: solver", solver)
    asker = f"implicit.on_host of {name_of(solver)}"

    @functools.wraps(solver)
    def hosted(fun: Function, init: Any, *args: Any) -> Any:
        call = _Call.of(asker, fun, (init, *args))

        @functools.wraps(solver)
        def run(captured: Sequence[Any], arrays: Sequence[Any]) -> Any:
            start, *rest = call.arguments(arrays)
            found = solver(functools.partial(call.value, captured), start, *rest)
            if aux is None:
                return _typed(start, found)
            check_pair(asker, name_of(solver), found)
            x, beside = found
            return _typed(start, x), beside

        start = call.arguments(call.arrays)[0]
        shapes = tree.map(lambda x: ShapeDtypeStruct(x.shape, x.dtype), start)
        wanted = shapes if aux is None else (shapes, aux)
        return pure_callback(
            run, wanted, call.captured, call.arrays, vmap_method=vmap_method
        )

    return hosted


@record(eq=False)
class _Call:
    """A call of the function that is solved: its arguments, and it itself, compiled.

    `leaves` are those of the arguments, `arrays` the ones that are marked as such;
    `compiled` takes what the function closes over, and arrays.
    """

    asker: str
    treedef: PyTreeDef
    leaves: tuple[Any, ...]
    marks: tuple[bool, ...]
    arrays: tuple[Array, ...]
    captured: tuple[Array, ...]
    compiled: Function
    out_tree: PyTreeDef

    @staticmethod
    def of(asker: str, fun: Function, args: tuple[Any, ...]) -> _Call:
        """The call with these arguments."""
        leaves, treedef = tree.flatten(args)
        marks = tuple([isinstance(leaf, _ARRAYS) for leaf in leaves])
        names = chosen(leaf_names(parameter_names(fun, len(args)), args), marks)
        rows = zip(chosen(leaves, marks), names, strict=True)
        arrays = tuple([as_array(x, asker, name) for x, name in rows])
        traced = trace_tree(
            lambda values: fun(*treedef.unflatten(_filled(leaves, marks, values))),
            [x.type for x in arrays],
            asker=asker,
            names=names,
        )
        return _Call(
            asker,
            treedef,
            tuple(leaves),
            marks,
            arrays,
            traced.captured,
            jit(lambda *values: evaluate(traced.program, values)),
            traced.out_tree,
        )

    def arguments(self, arrays: Sequence[Any]) -> Any:
        """All arguments, with these arrays."""
        return self.treedef.unflatten(_filled(self.leaves, self.marks, arrays))

    def value(self, captured: Sequence[Any], *args: Any) -> Any:
        """The function at arguments like those of the call; NumPy arrays for such."""
        leaves, found = tree.flatten(args)
        if found != self.treedef:
            lines = tree.difference(self.treedef, found, first="the call", second="fun")
            raise errors.TreeError(f"{self.asker}: fun is given other trees:\n{lines}")
        rows = zip(chosen(leaves, self.marks), self.arrays, strict=True)
        given = [self._like(x, like) for x, like in rows]
        results = self.compiled(*captured, *given)
        known = [x if isinstance(x, Tracer) else np.asarray(x) for x in results]
        return self.out_tree.unflatten(known)

    def _like(self, x: Any, like: Array) -> Array:
        """An argument in the dtype that the function was compiled for."""
        if not isinstance(x, Array):
            x = np.asarray(x, like.dtype)  # a float of Python's has 64 bits
        return with_type(as_array(x, self.asker, "an argument of fun"), like.type)


def _filled(
    leaves: Sequence[Any], marks: Sequence[bool], arrays: Sequence[Any]
) -> list[Any]:
    """The leaves, with arrays in the marked places."""
    rest = iter(arrays)
    rows = zip(leaves, marks, strict=True)
    return [next(rest) if marked else leaf for leaf, marked in rows]


def _typed(start: Any, found: Any) -> Any:
    """What a solver found, in the dtypes of the guess."""
    if tree.structure(start) != tree.structure(found):
        return found  # the callback says where they differ
    return tree.map(_in_dtype, start, found)


def _in_dtype(start: Any, found: Any) -> Any:
    """A leaf in the dtype of the guess, unless it would lose an imaginary part."""
    dtype = np.asarray(start).dtype
    if np.iscomplexobj(found) and not dtypes.is_complex(dtype):
        return found  # the callback says that the dtypes differ
    return np.asarray(found, dtype)
