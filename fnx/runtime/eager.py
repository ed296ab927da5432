"""Eager execution: runs one primitive on concrete arrays, at once.

Receives what `core.trace.bind` was given outside of any trace. Most primitives run
through their `reference` rule on NumPy, which is the fast way for one operation; those
that hold programs go through the compiler, and so does everything on another device
than the CPU (`placed.py`). Next on the walk: `executable.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from fnx import errors
from fnx.config import watching
from fnx.core import hooks
from fnx.core.primitive import Primitive
from fnx.core.program import Literal
from fnx.core.trace import Tracer, leaked
from fnx.core.types import ArrayType
from fnx.runtime import array as making
from fnx.runtime.array import ConcreteArray
from fnx.runtime.device import default


class _ErrorSettings:
    """NumPy's settings for errors in arithmetic, as a context variable would be."""

    def set(self, settings: Mapping[str, Any]) -> Any:
        return np.seterr(**settings)

    def reset(self, before: Mapping[str, Any]) -> None:
        np.seterr(**before)


# The kinds of checks that raise here; `fnx.debug.checks` sets them.
checked_kinds: ContextVar[frozenset[str]] = ContextVar(
    "fnx_checks", default=frozenset()
)

# `np.errstate` costs more than the arithmetic of a small array; NumPy 2 keeps the
# settings in a context variable, which is ten times faster to set.
_errors: Any = getattr(getattr(np, "_core", None), "umath", None)
_IGNORED: Any = {"all": "ignore"}
if hasattr(_errors, "_extobj_contextvar") and hasattr(_errors, "_make_extobj"):
    _IGNORED = _errors._make_extobj(**_IGNORED)
    _errors = _errors._extobj_contextvar
else:
    _errors = _ErrorSettings()


def _no_compiler(
    primitive: Primitive, arrays: list[Any], params: Mapping[str, Any]
) -> Any:
    raise errors.InternalError("runtime.executable was not imported")


# Runs a primitive that holds programs, and the compiled kernel of one without any;
# `runtime.executable` puts itself here.
run_compiled: Callable[[Primitive, list[Any], Mapping[str, Any]], Any] = _no_compiler
run_kernel: Callable[[Primitive, list[Any], Mapping[str, Any]], Any] = _no_compiler


def evaluate(
    primitive: Primitive, args: tuple[Any, ...], params: Mapping[str, Any]
) -> Any:
    """The result of one primitive as a concrete array, or a tuple of them."""
    if hooks.busy and default() is not None:
        return _placed(primitive, args, params)
    if primitive.compiled:
        operands = [_concrete(arg) for arg in args]
        if any(x.placement is not None or x.is_remote for x in operands):
            return _placed(primitive, args, params)
        return run_compiled(primitive, operands, params)
    arrays: list[Any] = []
    types: list[ArrayType] = []
    for arg in args:
        if arg.__class__ is ConcreteArray:
            arrays.append(arg._data)
        elif arg.__class__ is Literal:
            arrays.append(arg.value)
        else:
            arg = _concrete(arg)
            if arg.placement is not None or arg.is_remote:
                return _placed(primitive, args, params)
            arrays.append(arg._numpy())
        types.append(arg.type)
    out = _inferred(primitive, tuple(types), params)
    # As in compiled code, inf and NaN are values, not warnings.
    token = _errors.set(_IGNORED)
    try:
        if primitive.compiled_from and out.size >= primitive.compiled_from:
            values = run_kernel(primitive, arrays, params)
        else:
            values = primitive.reference(*arrays, **params)
    finally:
        _errors.reset(token)
    if hooks.busy and watching():
        check_values(primitive, arrays, values)
    if hooks.busy and checked_kinds.get():
        look(primitive, arrays, params)
    if primitive.multiple:
        return tuple([making.wrap(*pair) for pair in zip(values, out, strict=True)])
    return making.wrap(values, out)


def _placed(
    primitive: Primitive, args: tuple[Any, ...], params: Mapping[str, Any]
) -> Any:
    operands = [arg if arg.__class__ is Literal else _concrete(arg) for arg in args]
    if any(not isinstance(x, Literal) and x.is_remote for x in operands):
        # lazy: few have several processes
        from fnx.runtime.spread import evaluate_in_parts

        return evaluate_in_parts(primitive, operands, params)
    # lazy: few have other devices
    from fnx.runtime.placed import evaluate_placed

    return evaluate_placed(primitive, operands, params)


def check_values(primitive: Primitive, arrays: list[Any], values: Any) -> None:
    """Raises for NaNs that an operation has made."""
    # lazy: few look for NaNs
    from fnx.runtime.nonfinite import check_primitive

    check_primitive(primitive, arrays, values)


def look(primitive: Primitive, arrays: list[Any], params: Mapping[str, Any]) -> None:
    """Raises for what goes wrong in an operation."""
    # lazy: few look for what goes wrong
    from fnx.runtime.checks import look_at_primitive

    look_at_primitive(primitive, arrays, params)


def ignore_errors() -> Any:
    """From now on NumPy does not warn of inf and NaN."""
    return _errors.set(_IGNORED)


def restore_errors(token: Any) -> None:
    """Ends what `ignore_errors` began, which gave `token`."""
    _errors.reset(token)


# The output types of what has been inferred outside of traces.
_types: dict[Any, Any] = {}
_MOST_TYPES = 4096


def _inferred(
    primitive: Primitive, types: tuple[ArrayType, ...], params: Mapping[str, Any]
) -> Any:
    """What `infer` gives, remembered: inferring takes longer than a small operation."""
    try:
        key = (primitive, types, *params.items()) if params else (primitive, types)
        found = _types.get(key)
    except TypeError:  # a param that is not hashable
        return primitive.infer(*types, **params)
    if found is None:
        found = primitive.infer(*types, **params)
        # Inside a trace it may depend on the axes that are bound there.
        if not hooks.busy:
            if len(_types) >= _MOST_TYPES:
                _types.clear()
            _types[key] = found
    return found


def forget_types() -> None:
    """Forgets every inferred type."""
    _types.clear()


def constant(literal: Literal) -> ConcreteArray:
    """A literal as a concrete array of rank 0."""
    return making.wrap(np.asarray(literal.value), literal.type)


def _concrete(arg: Any) -> ConcreteArray:
    if isinstance(arg, ConcreteArray):
        return arg
    if isinstance(arg, Tracer):
        raise leaked(arg)
    if isinstance(arg, Literal):
        return constant(arg)
    if isinstance(arg, np.ndarray | np.generic):
        return making.wrap(np.array(arg), ArrayType(arg.shape, arg.dtype))
    return constant(Literal(arg))


hooks.evaluate = evaluate
hooks.constant = constant
