"""Eager execution: runs one primitive on concrete arrays, at once.

Receives what `core.trace.bind` was given outside of any trace. Most primitives run
through their `reference` rule on NumPy, which is the fast way for one operation; those
that hold programs go through the compiler. Next on the walk: `executable.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fnx import errors
from fnx.core import hooks
from fnx.core.primitive import Primitive
from fnx.core.program import Literal
from fnx.core.trace import Tracer, leaked
from fnx.core.types import ArrayType
from fnx.runtime.array import ConcreteArray, wrap


def _no_compiler(
    primitive: Primitive, arrays: list[Any], params: Mapping[str, Any]
) -> Any:
    raise errors.InternalError("runtime.executable was not imported")


# Runs a primitive that holds programs; `runtime.executable` puts itself here.
run_compiled: Callable[[Primitive, list[Any], Mapping[str, Any]], Any] = _no_compiler


def evaluate(
    primitive: Primitive, args: tuple[Any, ...], params: Mapping[str, Any]
) -> Any:
    """The result of one primitive as a concrete array, or a tuple of them."""
    arrays = [_concrete(arg) for arg in args]
    if primitive.compiled:
        return run_compiled(primitive, arrays, params)
    types = primitive.infer(*[x.type for x in arrays], **params)
    # As in compiled code, inf and NaN are values, not warnings.
    with np.errstate(all="ignore"):
        values = primitive.reference(*[x._numpy() for x in arrays], **params)
    if primitive.multiple:
        return tuple([wrap(*pair) for pair in zip(values, types, strict=True)])
    return wrap(values, types)


def constant(literal: Literal) -> ConcreteArray:
    """A literal as a concrete array of rank 0."""
    return wrap(np.asarray(literal.value), literal.type)


def _concrete(arg: Any) -> ConcreteArray:
    if isinstance(arg, ConcreteArray):
        return arg
    if isinstance(arg, Tracer):
        raise leaked(arg)
    if isinstance(arg, Literal):
        return constant(arg)
    if isinstance(arg, np.ndarray | np.generic):
        return wrap(np.array(arg), ArrayType(arg.shape, arg.dtype))
    return constant(Literal(arg))


hooks.evaluate = evaluate
hooks.constant = constant
