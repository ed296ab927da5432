"""From a call to a flat program: what all transformations do with their arguments.

Receives functions, arguments and trees; gives leaves as arrays, their names for error
texts ("params['w'][0]"), and the function traced over flat arrays (`trace_tree`).
Next on the walk: `grad.py`.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.core.array import Array
from fnx.core.frames import Cell, discovering, entered, write_all
from fnx.core.primitive import Primitive
from fnx.core.program import Literal, Program
from fnx.core.simplify import simplify
from fnx.core.trace import Traced, Tracer, constant, leaked, trace, tracing
from fnx.core.types import ArrayType
from fnx.ops.elementwise import convert
from fnx.records import record
from fnx.runtime.array import ConcreteArray, from_numpy
from fnx.tree import PyTreeDef

SCALARS = (bool, int, float, complex)


# ---------------------------------------------------------------- leaves


def as_array(value: Any, asker: str, name: str, fix: str = "") -> Array:
    """A leaf as an array; a Python scalar becomes a weakly typed one.

    NumPy arrays are copied, unless nobody can write to them. Raises `ArgumentError` for
    anything that is no array or number, naming the argument.
    """
    if isinstance(value, Array):
        if isinstance(value, Tracer) and not tracing():
            raise leaked(value)
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _from_numpy(value, asker, name)
    if isinstance(value, SCALARS):
        return constant(_scalar(value, asker, name))
    if hasattr(value, "__jax_array__"):
        return as_array(value.__jax_array__(), asker, name, fix)
    raise errors.ArgumentError(
        errors.explain(
            f"{asker}: {name} is {_shown(value)} of type {type(value).__name__}",
            "only arrays, numbers and trees of them can be here",
            fix,
        )
    )


def _from_numpy(value: Any, asker: str, name: str) -> ConcreteArray:
    try:
        dtype = dtypes.as_dtype(value.dtype)
    except errors.DTypeError as error:
        raise errors.DTypeError(f"{asker}: {name}: {error}") from None
    shared = isinstance(value, np.ndarray) and not value.flags.writeable
    if shared and value.flags.owndata and value.dtype == dtype:
        return from_numpy(np.ascontiguousarray(value).reshape(value.shape))
    return from_numpy(np.array(value, dtype, order="C", subok=False))


def _scalar(value: Any, asker: str, name: str) -> Literal:
    kind = next(kind for kind in SCALARS if isinstance(value, kind))
    try:
        return Literal(kind(value))
    except OverflowError:
        raise errors.DTypeError(
            errors.explain(
                f"{asker}: {name} is {value}",
                f"it does not fit into {dtypes.default_int().name}",
                "pass numpy.int64(...), or use fnx.default_dtypes(64)",
            )
        ) from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def type_of(value: Any, asker: str, name: str) -> ArrayType:
    """The type of a leaf that may be only described, as a `ShapeDtypeStruct` does."""
    if isinstance(value, Array):
        return value.type
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        dtype = dtypes.as_dtype(value.dtype)
        weak = bool(getattr(value, "weak_type", False))
        return ArrayType(tuple(value.shape), dtype, weak)
    return as_array(value, asker, name).type


def with_type(x: Any, type: ArrayType) -> Any:
    """The array with the dtype and weakness of `type`."""
    if x.type.dtype is type.dtype and x.type.weak is type.weak:
        return x
    return convert(x, dtype=type.dtype, weak=type.weak)


# ---------------------------------------------------------------- names


def kind_of(value: Any) -> str:
    """What error texts say that a function returned."""
    if isinstance(value, Array):
        return f"an array of type {value.type}"
    if isinstance(value, ArrayType):
        return f"an array of type {value}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def check_callable(asker: str, function: Any) -> None:
    """Raises unless the first argument of a transformation can be called."""
    if not callable(function):
        raise errors.ArgumentError(
            errors.explain(
                f"{asker} takes a function",
                f"got {_shown(function)} of type {type(function).__name__}",
            )
        )


def look_like(wrapper: Any, function: Callable[..., Any]) -> None:
    """Gives an object that stands for a function its name, text and attributes.

    Not what begins with an underscore: those of another such object are its own, and
    would hide methods of this one.
    """
    functools.update_wrapper(wrapper, function, updated=())
    for name, value in getattr(function, "__dict__", {}).items():
        if not name.startswith("_"):
            wrapper.__dict__[name] = value


def name_of(function: Any) -> str:
    """What error texts and programs call a function."""
    found = getattr(function, "__name__", None)
    if found is None and hasattr(function, "func"):  # functools.partial
        return name_of(function.func)
    if found is None and isinstance(function, Primitive):
        return function.name
    return found or type(function).__name__


def parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first positional parameters, as an error text calls them."""
    names: list[str] = []
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        parameters = {}.values()
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = count - len(names)
            names += [f"{parameter.name}[{i}]" for i in range(rest)]
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            names.append(parameter.name)
    names += [f"argument {i}" for i in range(len(names), count)]
    return names[:count]


def leaf_names(roots: Iterable[str], trees: Iterable[Any]) -> list[str]:
    """The names of all leaves of several trees: the root's name and the path."""
    names: list[str] = []
    for root, branch in zip(roots, trees, strict=True):
        treedef = branch if isinstance(branch, PyTreeDef) else tree.structure(branch)
        names += [root + tree.keystr(path) for path in tree.paths(treedef)]
    return names


def call_names(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """The names of all leaves of `(args, kwargs)`, in the order of flattening."""
    roots = parameter_names(function, len(args))
    keys = sorted(kwargs)
    return leaf_names([*roots, *keys], [*args, *[kwargs[key] for key in keys]])


def indices(asker: str, option: str, value: Any) -> tuple[int, ...]:
    """An option that takes an integer or several, as a tuple."""
    many = value if isinstance(value, tuple | list) else (value,)
    try:
        return tuple([operator.index(i) for i in many])
    except TypeError:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: {option} takes an integer or a sequence of integers",
                f"got {_shown(value)}",
            )
        ) from None


def positions(
    asker: str, option: str, numbers: Sequence[int], count: int
) -> tuple[int, ...]:
    """Argument numbers counted from 0; negative ones count from the end."""
    for number in numbers:
        if not -count <= number < count:
            raise errors.ArgumentError(
                errors.explain(
                    f"{asker}: {option}={number}",
                    f"the call has {count} positional argument{'s' * (count != 1)}",
                    "pass that argument by position, or change the number",
                )
            )
    return tuple([number % count for number in numbers])


# ---------------------------------------------------------------- tracing


@record
class Auxiliary:
    """Results beside the outputs: traced arrays, and objects that are left alone."""

    treedef: PyTreeDef
    leaves: tuple[Any, ...]
    traced: tuple[bool, ...]

    def rebuild(self, values: Iterable[Any]) -> Any:
        """The tree, with the values of the leaves that were traced."""
        rest = iter(values)
        rows = zip(self.leaves, self.traced, strict=True)
        return self.treedef.unflatten([next(rest) if t else leaf for leaf, t in rows])


@record
class TracedTree:
    """A function traced over trees: program inputs are `captured`, then the leaves.

    The program's outputs are the leaves of the result, then the traced ones of `aux`,
    then what refs from outside hold that were `written` to.
    """

    program: Program
    captured: tuple[Array, ...]
    out_tree: PyTreeDef
    aux: Auxiliary | None
    written: tuple[Cell, ...] = ()

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        """The types of the leaves of the result."""
        return self.program.output_types[: self.out_tree.num_leaves]

    def without_refs(self, values: Sequence[Any]) -> Sequence[Any]:
        """The program's outputs but for the refs', which hold theirs from here on."""
        count = len(values) - len(self.written)
        write_all(self.written, values[count:])
        return values[:count]


def trace_tree(
    call: Callable[[Sequence[Any]], Any],
    types: Sequence[ArrayType],
    *,
    asker: str,
    names: Sequence[str],
    known: Sequence[Array | None] | None = None,
    has_aux: bool = False,
    refs: bool = False,
) -> TracedTree:
    """Traces `call`, which takes flat leaves and gives a tree (or a tree and `aux`).

    With `refs` it may write to refs from outside; the caller passes on what these hold.
    """
    out_tree: Any = None
    aux: Auxiliary | None = None

    def run(*tracers: Any) -> list[Any]:
        nonlocal out_tree, aux
        result = call(tracers)
        extra: list[Any] = []
        if has_aux:
            result, beside = _pair(asker, result)
            aux, extra = _auxiliary(beside)
        leaves, out_tree = tree.flatten(result)
        return output_arrays(asker, leaves, out_tree) + extra

    written: tuple[Cell, ...] = ()
    if refs:
        traced, written = _trace_with_refs(run, types, known, names)
    else:
        traced = trace(run, types, known=known, names=names)
    program = simplify(traced.program)
    return TracedTree(program, traced.captured, out_tree, aux, written)


def _trace_with_refs(
    run: Callable[..., list[Any]],
    types: Sequence[ArrayType],
    known: Sequence[Array | None] | None,
    names: Sequence[str],
) -> tuple[Traced, tuple[Cell, ...]]:
    """A trace whose last outputs are what refs hold that are written to."""
    with discovering() as frame:
        inside = entered(run, frame)

        def run_and_read(*tracers: Any) -> list[Any]:
            results = inside(*tracers)
            return [*results, *[frame.values[cell] for cell in frame.written]]

        traced = trace(run_and_read, types, known=known, names=names)
    return traced, tuple(frame.written)


def output_arrays(asker: str, leaves: Sequence[Any], out_tree: PyTreeDef) -> list[Any]:
    """The leaves of what a function returned, as arrays."""
    if all(isinstance(leaf, Array) for leaf in leaves):
        return list(leaves)
    names = leaf_names(["the function's result"], [out_tree])
    fix = "return arrays, numbers or trees of them; None has no leaves"
    rows = zip(leaves, names, strict=True)
    return [as_array(leaf, asker, name, fix) for leaf, name in rows]


def _pair(asker: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker} with has_aux=True: the function must return a pair (output, "
                "auxiliary data)",
                f"it returned {_shown(result)} of type {type(result).__name__}",
            )
        )
    return result[0], result[1]


def _auxiliary(beside: Any) -> tuple[Auxiliary, list[Any]]:
    """Auxiliary data, and the traced arrays in it."""
    leaves, treedef = tree.flatten(beside)
    traced = tuple([isinstance(leaf, Tracer) for leaf in leaves])
    arrays = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
    kept = tuple([None if isinstance(leaf, Tracer) else leaf for leaf in leaves])
    return Auxiliary(treedef, kept, traced), arrays
