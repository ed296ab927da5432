"""grad and value_and_grad: reverse mode for functions with a scalar value.

Receives a function; gives one with the same arguments, which linearizes it where it is
called (`derivatives.linearized`) and pulls the cotangent 1 back. Arguments that are not
differentiated are passed on as they are, so they may be anything.
Next on the walk: `jacobian.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    check_callable,
    indices,
    leaf_names,
    parameter_names,
    positions,
    type_of,
)
from fnx.api.derivatives import Point, linearized
from fnx.core.array import Array
from fnx.core.program import Literal
from fnx.core.trace import constant
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime.device_array import put

Argnums = int | Sequence[int] | None
Argnames = str | Sequence[str] | None


@record
class Selection:
    """Which arguments a derivative is taken by: their numbers, or their names.

    `many` says whether the result is a tuple.
    """

    keys: tuple[int | str, ...]
    many: bool

    @staticmethod
    def of(
        asker: str, fun: Callable[..., Any], argnums: Argnums, argnames: Argnames
    ) -> Selection:
        """The selection of the two options: the first argument if both are `None`."""
        if argnames is None:
            chosen = 0 if argnums is None else argnums
            numbers = indices(asker, "argnums", chosen)
            return Selection(numbers, isinstance(chosen, tuple | list))
        if argnums is not None:
            raise errors.OptionError(
                f"{asker}: argnums={argnums!r} beside argnames={argnames!r}; choose "
                "arguments by one of the two."
            )
        one = isinstance(argnames, str)
        names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
        _check_names(asker, fun, names)
        return Selection(names, not one)

    def result(self, values: Any) -> Any:
        """What the chosen arguments have, as a tuple if there may be many."""
        return tuple(values) if self.many else values[0]


def _check_names(asker: str, fun: Callable[..., Any], names: tuple[Any, ...]) -> None:
    """Raises for a name that is none of the function's parameters."""
    parameters = _parameters(fun)
    kinds = [parameter.kind for parameter in parameters.values()]
    anything = not parameters or inspect.Parameter.VAR_KEYWORD in kinds
    for name in names:
        if not isinstance(name, str):
            raise errors.ArgumentError(
                f"{asker}: argnames takes a name or a sequence of names, got {name!r}"
            )
        if name not in parameters and not anything:
            raise errors.OptionError(
                f"{asker}: argnames has {name!r}; the function takes "
                f"{', '.join(parameters)}."
            )


def _parameters(fun: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(fun).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return {}


@record
class Chosen:
    """The arguments that a derivative is taken by, apart from the others."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    roots: list[str]


def choose(
    asker: str,
    fun: Callable[..., Any],
    selection: Selection,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Chosen:
    """Splits a call: `call` takes the chosen arguments and closes over the others."""
    keys = _places(asker, fun, selection.keys, args, kwargs)
    names = parameter_names(fun, len(args))

    def call(*chosen: Any) -> Any:
        full, named = list(args), dict(kwargs)
        for key, value in zip(keys, chosen, strict=True):
            if isinstance(key, str):
                named[key] = value
            else:
                full[key] = value
        return fun(*full, **named)

    given = [kwargs[key] if isinstance(key, str) else args[key] for key in keys]
    roots = [key if isinstance(key, str) else names[key] for key in keys]
    return Chosen(call, tuple(given), roots)


def _places(
    asker: str,
    fun: Callable[..., Any],
    keys: tuple[int | str, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[int | str]:
    """Where a call has the chosen arguments: at a position, or under a name."""
    found: list[int | str] = []
    for key in keys:
        if isinstance(key, int):
            found += positions(asker, "argnums", (key,), len(args))
        elif key in kwargs:
            found.append(key)
        else:
            names = parameter_names(fun, len(args))
            if key not in names:
                raise errors.ArgumentError(
                    f"{asker}: argnames has {key!r}, and the call does not pass it"
                )
            found.append(names.index(key))
    if len(set(found)) < len(found):
        shown = ", ".join(map(repr, keys))
        raise errors.ArgumentError(f"{asker}: ({shown}) chooses an argument twice")
    return found


def check_inputs(
    asker: str, chosen: Chosen, *, holomorphic: bool, allow_int: bool
) -> None:
    """Raises for leaves that cannot be differentiated by, naming each argument."""
    leaves = tree.leaves(chosen.args)
    if not holomorphic and all(
        isinstance(leaf, Array) and dtypes.is_inexact(leaf.dtype) for leaf in leaves
    ):
        return  # the common case: names are for errors
    names = leaf_names(chosen.roots, chosen.args)
    for leaf, name in zip(leaves, names, strict=True):
        type = type_of(leaf, asker, name)
        if holomorphic and not dtypes.is_complex(type.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{asker} with holomorphic=True: {name} is {type}",
                    "a holomorphic function takes complex arguments",
                    "convert it to a complex dtype, or leave holomorphic out",
                )
            )
        if not allow_int and not dtypes.is_inexact(type.dtype):
            raise errors.DTypeError(_integer_input(asker, name, type))


def _integer_input(asker: str, name: str, type: ArrayType) -> str:
    kind = "a bool" if dtypes.is_bool(type.dtype) else "an integer"
    return errors.explain(
        f"{asker}: {name} is {type}",
        f"there is no derivative by {kind}",
        f"pass a float (such as {name}.astype('float32')), choose other argnums, or "
        "pass allow_int=True to get float0 zeros",
    )


def check_outputs(asker: str, point: Point, holomorphic: bool) -> None:
    """Raises for outputs that have no gradient, with the fix."""
    if not holomorphic and all(dtypes.is_float(x.dtype) for x in point.outputs):
        return
    names = leaf_names(["the output"], [point.out_tree])
    for x, name in zip(point.outputs, names, strict=True):
        if holomorphic:
            if not dtypes.is_complex(x.dtype):
                raise errors.DTypeError(
                    errors.explain(
                        f"{asker} with holomorphic=True: {name} is {x.type}",
                        "a holomorphic function gives complex values",
                        "leave holomorphic out",
                    )
                )
        elif dtypes.is_complex(x.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{asker}: {name} is {x.type}",
                    "the output must be real",
                    "take its real part, imaginary part or absolute value, or pass "
                    "holomorphic=True if the function is holomorphic",
                )
            )
        elif not dtypes.is_inexact(x.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{asker}: {name} is {x.type}",
                    "integers and bools do not move when the arguments do",
                    "return a float",
                )
            )


def _check_scalar(asker: str, point: Point) -> None:
    """Raises unless the function's value is one number."""
    fix = (
        "take fnx.numpy.sum or mean of it, return one output (the others with "
        "has_aux=True), or use fnx.jacrev for all derivatives"
    )
    if not point.out_tree.is_leaf(strict=True):
        shown = point.out_tree.unflatten([x.type for x in point.outputs])
        reason = f"the function returned a tree: {shown}"
    elif point.outputs[0].shape:
        reason = f"the function returned {point.outputs[0].type}"
    else:
        return
    raise errors.ShapeError(
        errors.explain(f"{asker} needs a scalar output", reason, fix)
    )


def value_and_grad(
    fun: Callable[..., Any],
    argnums: Argnums = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    argnames: Argnames = None,
) -> Callable[..., Any]:
    """A function that gives the value of `fun` and its gradient.

    The function takes the arguments of `fun` and gives `(value, gradient)`, or
    `((value, aux), gradient)` with `has_aux`. The other options and the errors are
    those of `grad`.

    >>> import fnx
    >>> value, gradient = fnx.value_and_grad(lambda x: x * x)(3.0)
    >>> value.item(), gradient.item()
    (9.0, 6.0)
    """
    check_callable("grad", fun)
    selection = Selection.of("grad", fun, argnums, argnames)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = choose("grad", fun, selection, args, kwargs)
        check_inputs("grad", chosen, holomorphic=holomorphic, allow_int=allow_int)
        point = linearized("grad", chosen.call, chosen.args, chosen.roots, has_aux)
        _check_scalar("grad", point)
        check_outputs("grad", point, holomorphic)
        value = point.outputs[0]
        one: Any = constant(Literal(1, ArrayType((), value.dtype, value.type.weak)))
        placement = getattr(value, "placement", None)
        if placement is not None:  # so that what depends on it alone is there, too
            one = put(one, placement)
        flat = point.map.pull_flat(point.residuals, [one])
        gradient = point.map.in_tree.unflatten(flat)
        result = (value, point.aux) if has_aux else value
        return result, selection.result(gradient)

    return errors.api_boundary(functools.wraps(fun)(value_and_gradient))


def grad(
    fun: Callable[..., Any],
    argnums: Argnums = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    argnames: Argnames = None,
) -> Callable[..., Any]:
    """A function that gives the gradient of `fun`.

    For a complex argument z = x + iy of a real-valued function f, the gradient is
    ∂f/∂x - i ∂f/∂y, as in JAX: the *conjugate* of the direction of steepest ascent, so
    a descent step is `z - rate * conj(gradient)`. With `holomorphic=True` arguments and
    value are complex, and the gradient is the complex derivative f'(z).

    `argnums` says which positional arguments to differentiate by: a number gives one
    gradient, a tuple a tuple of them; without it, that is the first one. `argnames`
    chooses by name instead (a name or a tuple of names), whether the call passes them
    by position or as keywords. Each gradient has the structure, shapes and dtypes of
    its argument. With `has_aux` the function returns `(value, aux)` and the result is
    `(gradient, aux)`. With `allow_int` integer leaves are accepted and get zeros of
    dtype `float0`. The arguments' values are known inside of `fun`, so it may branch
    on them and print them.

    Raises `ShapeError` if the output is not a scalar, `DTypeError` for integer inputs
    and for complex or integer outputs, `ArgumentError` for `argnums` out of range and
    for a name that the call does not pass, `OptionError` for a name that the function
    does not have and for `argnames` beside `argnums`.

    >>> import fnx
    >>> fnx.grad(lambda x: x * x)(3.0)
    Array(6., dtype=float32, weak_type=True)
    >>> fnx.grad(lambda x, *, scale: x * x * scale, argnames="scale")(3.0, scale=2.0)
    Array(9., dtype=float32, weak_type=True)
    """
    both = value_and_grad(
        fun, argnums, has_aux, holomorphic, allow_int, argnames=argnames
    )

    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, found = both(*args, **kwargs)
        return (found, result[1]) if has_aux else found

    return errors.api_boundary(functools.wraps(fun)(gradient))
