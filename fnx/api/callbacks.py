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
from fnx.api.custom import custom_jvp, custom_vjp
from fnx.api.tangents import zeros
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
    jvp: Callable[..., Any] | None = None,
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
    argument. `jvp(args, outputs, tangents)` does the same for forward mode: it gets the
    tangents in trees like `args` (`None` for integers), and returns a tree like the
    result, with `None` for what does not move. Each serves its own mode, and the first
    derivative; without it that mode raises, unless a custom rule is around the call.

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
    asked = declared_results(
        "pure_callback", result_shape_dtypes, "result_shape_dtypes"
    )
    if vjp is None and jvp is None:
        return asked.treedef.unflatten(_bound(called, asked, vmap_method))
    for name, rule in (("vjp", vjp), ("jvp", jvp)):
        if rule is None:
            continue
        check_callable("pure_callback", rule)
        if kwargs:
            raise errors.ArgumentError(
                errors.explain(
                    f"pure_callback with {name}=",
                    f"{', '.join(kwargs)} given by name, and the {name} function gets "
                    "the arguments by position",
                    "pass all arguments by position",
                )
            )
    return _with_rules(called, asked, vmap_method, vjp, jvp)


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
    asked = declared_results("io_callback", result_shape_dtypes, "result_shape_dtypes")
    leaves = io_callback_(
        *called.leaves,
        host=called.host(asked),
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

    def host(self, declared: Declared) -> Host:
        """The function over flat arrays, which checks what it gives."""
        asker = f"{self.asker} of {name_of(self.function)}"
        function, treedef = self.function, self.treedef

        def run(arrays: Arrays, types: Types) -> Arrays:
            args, kwargs = cast(Any, treedef.unflatten(arrays))
            result = function(*args, **kwargs)
            return _checked(asker, result, declared, types)

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
class Declared:
    """What a callback is declared to return, by which option."""

    treedef: PyTreeDef
    types: Types
    names: tuple[str, ...]
    option: str


def declared_results(asker: str, result: Any, option: str) -> Declared:
    """A tree of shapes and dtypes, which the user has given as that option."""
    leaves, treedef = tree.flatten(result)
    names = leaf_names([option], [treedef])
    rows = zip(leaves, names, strict=True)
    types = [type_of(leaf, asker, name).strong() for leaf, name in rows]
    shown = leaf_names(["the result"], [treedef])
    return Declared(treedef, tuple(types), tuple(shown), option)


def _bound(called: Called, asked: Declared, method: str | None) -> tuple[Any, ...]:
    """The leaves of the result."""
    results: tuple[Any, ...] = pure_callback_(
        *called.leaves,
        host=called.host(asked),
        declared=asked.types,
        members=(),
        method=method,
    )
    return results


# ---------------------------------------------------------------- what it returns


def _checked(asker: str, result: Any, declared: Declared, types: Types) -> Arrays:
    leaves = _leaves_like(
        asker, result, declared.treedef, "the result", declared.option
    )
    rows = zip(leaves, declared.names, types, strict=True)
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


# ---------------------------------------------------------------- with rules

_ONCE = (
    "write the rule in fnx (fnx.custom_jvp, fnx.custom_vjp), with callbacks that have "
    "rules of their own"
)
"""What to do where a derivative of a rule on the host is asked for."""


@record
class _Ruled:
    """A call of a function on the host, whose rules are callbacks, too."""

    called: Called
    asked: Declared
    method: str | None

    @property
    def inexact(self) -> list[bool]:
        """Which leaves of the arguments have tangents."""
        return [dtypes.is_inexact(x.dtype) for x in self.called.leaves]

    @property
    def moving(self) -> list[bool]:
        """Which leaves of the result have tangents."""
        return [dtypes.is_inexact(type.dtype) for type in self.asked.types]

    def asker(self, rule: Callable[..., Any]) -> str:
        """What error texts call a rule."""
        return f"pure_callback of {name_of(self.called.function)}: {name_of(rule)}"

    def call(self, *leaves: Any) -> tuple[Any, ...]:
        """The call itself."""
        return _bound(replace(self.called, leaves=leaves), self.asked, self.method)

    def rule(self, host: Host, types: Types, *arrays: Any) -> Any:
        """What a rule on the host gives, of these types."""
        params: dict[str, Any] = {"members": (), "method": self.method}
        return pure_callback_(*arrays, host=host, declared=types, **params)


def _with_rules(
    called: Called,
    asked: Declared,
    method: str | None,
    vjp: Callable[..., Any] | None,
    jvp: Callable[..., Any] | None,
) -> Any:
    """The call as a function with rules."""
    call = _Ruled(called, asked, method)

    def apply(*leaves: Any) -> tuple[Any, ...]:
        return call.call(*leaves)

    apply.__name__ = name_of(called.function)
    ruled: Any
    if vjp is None:
        assert jvp is not None
        ruled = custom_jvp(apply)
        ruled.defjvp(_forward_rule(call, jvp, apply))
    else:
        ruled = custom_vjp(apply)
        ruled.defvjp(*_backward_rule(call, vjp, ruled))
        if jvp is not None:
            ruled.jvp = _forward_rule(call, jvp, ruled)
    return asked.treedef.unflatten(ruled(*called.leaves))


def _backward_rule(
    call: _Ruled, vjp: Callable[..., Any], ruled: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two functions of a custom_vjp."""
    types = tuple([x.type.strong() for x in chosen(call.called.leaves, call.inexact)])
    host = Host(name_of(vjp), _pulling(call, vjp), _ONCE)

    def forward(*leaves: Any) -> tuple[Any, Any]:
        outputs = ruled(*leaves)
        return outputs, (leaves, outputs)

    def backward(residuals: Any, cotangents: Any) -> tuple[Any, ...]:
        leaves, outputs = residuals
        given = chosen(cotangents, call.moving)
        found = call.rule(host, types, *leaves, *outputs, *given)
        return tuple(spread(found, call.inexact))

    return forward, backward


def _forward_rule(
    call: _Ruled, jvp: Callable[..., Any], ruled: Callable[..., Any]
) -> Callable[..., Any]:
    """The function of a custom_jvp."""
    types = tuple(chosen(call.asked.types, call.moving))
    host = Host(name_of(jvp), _pushing(call, jvp), _ONCE)

    def forward(primals: Any, tangents: Any) -> tuple[Any, Any]:
        outputs = ruled(*primals)
        given = chosen(tangents, call.inexact)
        found = spread(call.rule(host, types, *primals, *outputs, *given), call.moving)
        rows = zip(found, call.asked.types, strict=True)
        return outputs, tuple([zeros(type) if t is None else t for t, type in rows])

    return forward


def _pushing(
    call: _Ruled, jvp: Callable[..., Any]
) -> Callable[[Arrays, Types], Arrays]:
    """The user's jvp function over flat arrays: arguments, outputs, tangents."""
    asker = call.asker(jvp)
    inexact, moving, called, asked = call.inexact, call.moving, call.called, call.asked

    def run(arrays: Arrays, types: Types) -> Arrays:
        leaves, outputs, given = parted(arrays, len(inexact), len(moving))
        args, _ = cast(Any, called.treedef.unflatten(leaves))
        tangents, _ = cast(Any, called.treedef.unflatten(spread(given, inexact)))
        result = jvp(args, asked.treedef.unflatten(outputs), tangents)
        found, treedef = tree.flatten(result, is_leaf=_is_none)
        if treedef != asked.treedef:
            _leaves_like(asker, result, asked.treedef, "the tangent", "the result")
        rows = zip(found, asked.names, spread(types, moving), strict=True)
        return [
            np.zeros(type.shape, type.dtype)
            if t is None
            else _leaf(asker, t, name.replace("the result", "the tangent"), type)
            for t, name, type in rows
            if type is not None
        ]

    return run


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _pulling(
    call: _Ruled, vjp: Callable[..., Any]
) -> Callable[[Arrays, Types], Arrays]:
    """The user's vjp function over flat arrays: arguments, outputs, cotangents."""
    asker = call.asker(vjp)
    inexact, moving, called, asked = call.inexact, call.moving, call.called, call.asked

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
