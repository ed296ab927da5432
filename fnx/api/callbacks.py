"""pure_callback, io_callback: functions of the user's that run on the host.

Receives a function over trees of NumPy arrays, what its result looks like, and its
arguments; binds one equation of `fnx/control/callback.py`. What the function returns is
checked there and then, leaf by leaf. `host_call` is what `fnx.debug` builds upon.
Next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    as_array,
    call_names,
    check_callable,
    leaf_names,
    name_of,
    type_of,
)
from fnx.api.custom import custom_vjp
from fnx.control.call import chosen, spread
from fnx.control.callback import VMAP_METHODS, Arrays, Host, Types
from fnx.control.callback import io_callback as io_callback_
from fnx.control.callback import pure_callback as pure_callback_
from fnx.control.held import parted
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.tree import PyTreeDef

__all__ = ["Called", "effects_barrier", "host_call", "io_callback", "pure_callback"]


# ---------------------------------------------------------------- public


@errors.api_boundary
def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    vjp: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> Any:
    """What `callback(*args, **kwargs)` gives on the host, where it gets NumPy arrays.

    The function computes its result from its arguments alone: the call may be dropped
    if nobody uses the result, and made again. Arguments are trees of arrays; the
    function gets them as read-only NumPy arrays and returns a tree like
    `result_shape_dtypes`, whose leaves have shapes and dtypes (`ShapeDtypeStruct`s, or
    arrays). A Python number will do for a scalar.

    `vmap_method` says what `vmap` does: with "sequential" (or "sequential_unrolled")
    the function is called for one member after the other; with "expand_dims",
    "broadcast_all" or "legacy_vectorized" once, with a leading axis on the arguments
    and the result. Arguments that are not mapped get an axis of length 1, are repeated,
    or stay as they are. Without it, `vmap` raises.

    `vjp(args, outputs, cotangents)` makes reverse mode work: it runs on the host, too,
    gets the arguments as a tuple, the result, and the result's cotangents (`None` for
    integers), and returns a tuple with a cotangent, or `None` for zero, for each
    argument. Without it derivatives raise, unless a custom rule is around the call.

    Raises `ArgumentError` for arguments that are no arrays, `OptionError` for unknown
    options; when it runs, `TreeError`, `ShapeError` or `DTypeError` where the result is
    not as declared. What the function raises reaches the caller as it is.

    >>> import fnx, numpy as np
    >>> shape = fnx.ShapeDtypeStruct((), "float32")
    >>> f = fnx.jit(lambda x: fnx.pure_callback(np.sin, shape, x) + 1)
    >>> f(0.0).item()
    1.0
    """
    check_callable("pure_callback", callback)
    if sharding is not None:
        raise errors.OptionError("pure_callback: sharding must be None")
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise errors.OptionError(
            f"pure_callback: vmap_method={vmap_method!r}; the methods are "
            f"{', '.join(VMAP_METHODS)}"
        )
    called = host_call("pure_callback", callback, args, kwargs)
    asked = _declared("pure_callback", result_shape_dtypes)
    if vjp is None:
        return asked.treedef.unflatten(_bound(called, asked, vmap_method))
    check_callable("pure_callback", vjp)
    if kwargs:
        raise errors.ArgumentError(
            errors.explain(
                "pure_callback with vjp=",
                f"{', '.join(kwargs)} given by name, and the vjp function gets the "
                "arguments by position",
                "pass all arguments by position",
            )
        )
    return _with_vjp(called, asked, vmap_method, vjp)


@errors.api_boundary
def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """What `callback(*args, **kwargs)` gives on the host, for a function with effects.

    As `pure_callback`, but the call is made exactly once each time the program comes to
    it, whether its result is used or not, and calls follow each other in the order of
    the program. Under `vmap` there is a call for one member after the other, and with
    `ordered` an error, since the calls of the members would be interleaved. Derivatives
    raise.

    >>> import fnx, numpy as np
    >>> seen = []
    >>> f = fnx.jit(lambda x: fnx.io_callback(lambda x: seen.append(x.item()), None, x))
    >>> f(1.0), f(2.0), seen
    (None, None, [1.0, 2.0])
    """
    check_callable("io_callback", callback)
    if sharding is not None:
        raise errors.OptionError("io_callback: sharding must be None")
    called = host_call("io_callback", callback, args, kwargs)
    asked = _declared("io_callback", result_shape_dtypes)
    leaves = io_callback_(
        *called.leaves,
        host=called.host(asked.treedef, asked.names),
        declared=asked.types,
        members=(),
        ordered=bool(ordered),
    )
    return asked.treedef.unflatten(leaves)


def effects_barrier() -> None:
    """Waits for the effects of all calls; here they have happened when a call returns.

    >>> import fnx
    >>> fnx.effects_barrier()
    """


# ---------------------------------------------------------------- calls on the host


@record
class Called:
    """A call of a function on the host: its arguments as arrays."""

    asker: str
    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    treedef: PyTreeDef

    def host(self, out_tree: PyTreeDef, names: Sequence[str]) -> Host:
        """The function over flat arrays, which checks what it gives."""
        asker = f"{self.asker} of {name_of(self.function)}"
        function, treedef = self.function, self.treedef

        def run(arrays: Arrays, types: Types) -> Arrays:
            args, kwargs = cast(Any, treedef.unflatten(arrays))
            result = function(*args, **kwargs)
            return _checked(asker, result, out_tree, names, types)

        return Host(name_of(function), run)


def host_call(
    asker: str, function: Callable[..., Any], args: Any, kwargs: Any
) -> Called:
    """The call of a function with these arguments, all of them arrays."""
    leaves, treedef = tree.flatten((args, kwargs))
    names = call_names(function, args, kwargs)
    fix = "let the function close over what is no array"
    where = f"{asker} of {name_of(function)}"
    rows = zip(leaves, names, strict=True)
    arrays = tuple([as_array(leaf, where, name, fix) for leaf, name in rows])
    return Called(asker, function, arrays, treedef)


@record
class _Declared:
    """What a callback is declared to return."""

    treedef: PyTreeDef
    types: Types
    names: tuple[str, ...]


def _declared(asker: str, result: Any) -> _Declared:
    leaves, treedef = tree.flatten(result)
    names = leaf_names(["result_shape_dtypes"], [treedef])
    rows = zip(leaves, names, strict=True)
    types = [type_of(leaf, asker, name).strong() for leaf, name in rows]
    shown = leaf_names(["the result"], [treedef])
    return _Declared(treedef, tuple(types), tuple(shown))


def _bound(called: Called, asked: _Declared, method: str | None) -> tuple[Any, ...]:
    """The leaves of the result."""
    results: tuple[Any, ...] = pure_callback_(
        *called.leaves,
        host=called.host(asked.treedef, asked.names),
        declared=asked.types,
        members=(),
        method=method,
    )
    return results


# ---------------------------------------------------------------- what it returns


def _checked(
    asker: str, result: Any, treedef: PyTreeDef, names: Sequence[str], types: Types
) -> Arrays:
    leaves = _leaves_like(asker, result, treedef, "the result", "result_shape_dtypes")
    rows = zip(leaves, names, types, strict=True)
    return [_leaf(asker, x, name, type) for x, name, type in rows]


def _leaves_like(
    asker: str, result: Any, treedef: PyTreeDef, what: str, of: str
) -> list[Any]:
    """The leaves of a tree that must have a certain structure."""
    leaves, found = tree.flatten(result)
    if found != treedef:
        lines = tree.difference(treedef, found, first=of, second=what)
        raise errors.TreeError(
            f"{asker}: {what} must have the structure of {of}:\n  "
            + lines.replace("\n", "\n  ")
        )
    return leaves


def _leaf(asker: str, x: Any, name: str, type: ArrayType) -> np.ndarray[Any, Any]:
    """A leaf of the result as an array of the declared type."""
    array = np.asarray(x)
    number = x.__class__ in (bool, int, float, complex) and not type.shape
    if number and np.can_cast(array.dtype, type.dtype, "same_kind"):
        return np.array(x, type.dtype)
    declared = f"{type.strong()} was declared"
    if array.dtype == object:
        raise errors.ArgumentError(
            f"{asker}: {name} is of type {x.__class__.__name__}; {declared}"
        )
    if array.shape != type.shape:
        shown = f"{array.dtype}{list(array.shape)}"
        raise errors.ShapeError(f"{asker}: {name} is {shown}; {declared}")
    if array.dtype != type.dtype:
        raise errors.DTypeError(
            errors.explain(
                f"{asker}: {name} is of dtype {array.dtype}",
                declared,
                f"convert it with .astype({type.dtype.name!r}) in the function",
            )
        )
    return array


# ---------------------------------------------------------------- with a vjp


def _with_vjp(
    called: Called, asked: _Declared, method: str | None, vjp: Callable[..., Any]
) -> Any:
    """The call as a function with a rule, whose backward part is a callback too."""
    inexact = [dtypes.is_inexact(x.dtype) for x in called.leaves]
    types = tuple([x.type.strong() for x in chosen(called.leaves, inexact)])
    moving = [dtypes.is_inexact(type.dtype) for type in asked.types]
    host = Host(name_of(vjp), _pulling(called, asked, vjp, inexact, moving))

    def call(*leaves: Any) -> tuple[Any, ...]:
        return _bound(replace(called, leaves=leaves), asked, method)

    def forward(*leaves: Any) -> tuple[Any, Any]:
        outputs = ruled(*leaves)
        return outputs, (leaves, outputs)

    def backward(residuals: Any, cotangents: Any) -> tuple[Any, ...]:
        leaves, outputs = residuals
        given = chosen(cotangents, moving)
        params: dict[str, Any] = {"declared": types, "members": (), "method": method}
        found = pure_callback_(*leaves, *outputs, *given, host=host, **params)
        return tuple(spread(found, inexact))

    call.__name__ = name_of(called.function)
    ruled = custom_vjp(call)
    ruled.defvjp(forward, backward)
    return asked.treedef.unflatten(ruled(*called.leaves))


def _pulling(
    called: Called,
    asked: _Declared,
    vjp: Callable[..., Any],
    inexact: Sequence[bool],
    moving: Sequence[bool],
) -> Callable[[Arrays, Types], Arrays]:
    """The user's vjp function over flat arrays: arguments, outputs, cotangents."""
    asker = f"pure_callback of {name_of(called.function)}: {name_of(vjp)}"

    def run(arrays: Arrays, types: Types) -> Arrays:
        leaves, outputs, given = parted(arrays, len(inexact), len(moving))
        args, _ = cast(Any, called.treedef.unflatten(leaves))
        cotangents = asked.treedef.unflatten(spread(given, moving))
        result = vjp(args, asked.treedef.unflatten(outputs), cotangents)
        wanted = spread(types, inexact)
        return _cotangents(asker, args, result, wanted)

    return run


def _cotangents(
    asker: str, args: tuple[Any, ...], result: Any, types: Sequence[ArrayType | None]
) -> Arrays:
    """The leaves of what a vjp function returned that belong to inexact leaves."""
    if not isinstance(result, tuple | list) or len(result) != len(args):
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: it must return a tuple with a cotangent for each of the "
                f"{len(args)} arguments",
                f"it returned {type(result).__name__}",
                "return None in the place of an argument whose cotangent is zero",
            )
        )
    found: list[Any] = []
    rest = iter(types)
    for number, (arg, ct) in enumerate(zip(args, result, strict=True)):
        what = f"the cotangent of argument {number}"
        treedef = tree.structure(arg)
        own = [next(rest) for _ in range(treedef.num_leaves)]
        if ct is None:
            found += [np.zeros(type.shape, type.dtype) for type in own if type]
            continue
        leaves = _leaves_like(asker, ct, treedef, what, "the argument")
        rows = zip(leaves, leaf_names([what], [treedef]), own, strict=True)
        found += [_leaf(asker, x, name, type) for x, name, type in rows if type]
    return found
