"""What every function of `fnx.numpy` does with its arguments: read, promote, broadcast.

Receives what users pass (arrays, NumPy arrays, Python scalars), gives what primitives
take: arrays of one dtype and one shape, where a scalar stays a literal that stands for
any shape. Lists are refused, as in JAX: converting them at every call is slow and hides
mistakes. Next on the walk: `creation.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.config import busy, config
from fnx.core.array import Array
from fnx.core.program import Literal
from fnx.core.trace import constant, tracing
from fnx.core.types import ArrayType
from fnx.ops.elementwise import convert
from fnx.ops.shape import broadcast_in_dim
from fnx.runtime import array as making

Shape = tuple[int, ...]
DTypeLike = Any
ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex

_SCALARS = (bool, int, float, complex)


def is_scalar(x: object) -> bool:
    """Whether a value is a Python scalar (a NumPy scalar is an array of rank 0)."""
    return x.__class__ in _SCALARS


def read(function: str, x: Any, position: int = 0) -> Any:
    """An argument as an array, or as the Python scalar that it is.

    Raises `ArgumentError` for lists and other objects, naming function and position.
    """
    if isinstance(x, Array) or x.__class__ in _SCALARS:
        return x
    if isinstance(x, np.ndarray | np.generic):
        return making.own(x)
    if hasattr(x, "__jax_array__"):
        return read(function, x.__jax_array__(), position)
    if isinstance(x, _SCALARS):  # a subclass, such as an IntEnum
        kinds: tuple[Any, ...] = _SCALARS
        return next(kind(x) for kind in kinds if isinstance(x, kind))
    if isinstance(x, list | tuple) or not tree.structure(x).num_children:
        fix = "Convert it with fnx.numpy.array(...) first."
    else:  # a dict, say, or a key
        fix = (
            f"It is a tree: fnx.tree.map(lambda *x: {function}(...), ...) goes into it."
        )
    raise errors.ArgumentError(
        f"{function} takes arrays and scalars, got {type(x).__name__} at position "
        f"{position}. {fix}"
    )


def as_array(function: str, x: Any, position: int = 0) -> Array:
    """An argument as an array; a Python scalar becomes a weakly typed one."""
    if isinstance(x, Array):
        return x
    x = read(function, x, position)
    return x if isinstance(x, Array) else constant(Literal(x))


def cast(x: Array, dtype: np.dtype[Any], weak: bool = False) -> Array:
    """The array in another dtype; itself if it has that dtype and weakness."""
    type = x.type
    if type.dtype is dtype and type.weak is weak:
        return x
    return convert(x, dtype=dtype, weak=weak)


def typed(
    function: str, x: Any, dtype: np.dtype[Any], weak: bool = False, position: int = 0
) -> Array:
    """An argument as an array of a dtype; a scalar is rounded once, to that dtype."""
    value = read(function, x, position)
    if isinstance(value, Array):
        return cast(value, dtype, weak)
    return constant(literal(value, dtype, weak))


def strong(x: Array) -> Array:
    """The array without weakness: what reductions give."""
    return convert(x, dtype=x.dtype, weak=False) if x.type.weak else x


def pair(x: Any) -> tuple[np.dtype[Any], bool]:
    """Dtype and weakness of an array or a Python scalar."""
    if isinstance(x, Array):
        return x.type.dtype, x.type.weak
    return dtypes.scalar_dtype(x), x.__class__ is not bool


def inexact_dtype(dtype: np.dtype[Any], weak: bool = False) -> np.dtype[Any]:
    """The dtype that a function such as `sin` computes integers and booleans in.

    64-bit integers are computed in float64, others in float32, Python's in the default.
    """
    if dtypes.is_inexact(dtype):
        return dtype
    if weak:
        return dtypes.default_float()
    return dtypes.float64 if dtype.itemsize == 8 else dtypes.float32


def promoted(
    function: str, args: Sequence[Any], *, inexact: bool = False
) -> tuple[list[Any], np.dtype[Any], bool]:
    """The arguments read, the dtype that they share, and whether it is weak."""
    values = [read(function, x, i) for i, x in enumerate(args)]
    if busy and config.numpy_dtype_promotion == "strict":
        _check_one_dtype(function, values)
    dtype, weak = dtypes.promote(*[pair(x) for x in values])
    return values, inexact_dtype(dtype, weak) if inexact else dtype, weak


def _check_one_dtype(function: str, values: Sequence[Any]) -> None:
    """Raises for arrays of different dtypes, where they are not promoted."""
    strong = {x.dtype.name for x in values if isinstance(x, Array) and not x.weak_type}
    if len(strong) > 1:
        shown = " and ".join(sorted(strong))
        raise errors.DTypeError(
            f"{function}: {shown} have no dtype in common while "
            "numpy_dtype_promotion is 'strict'; convert one of them"
        )


def _check_one_rank(function: str, shapes: set[Shape]) -> None:
    """Warns or raises for arrays of different ranks, where that is asked for."""
    ranks = {len(shape) for shape in shapes if shape}
    if len(ranks) < 2:
        return
    text = (
        f"{function}: arrays of ranks {sorted(ranks)} are broadcast, which "
        f"numpy_rank_promotion={config.numpy_rank_promotion!r} is about; reshape one"
    )
    if config.numpy_rank_promotion == "raise":
        raise errors.ShapeError(text)
    warnings.warn(text, stacklevel=4)


def operands(function: str, *args: Any, inexact: bool = False) -> list[Any]:
    """Operands of an elementwise primitive: one dtype, one shape, literals for scalars.

    Raises `ShapeError` where the shapes cannot be broadcast, naming function and types.
    """
    values, dtype, weak = promoted(function, args, inexact=inexact)
    shape = common_shape(function, values)
    if any(isinstance(x, Array) for x in values):
        return [operand(x, dtype, weak, shape) for x in values]
    return [constant(literal(x, dtype, weak)) for x in values]


def operand(x: Any, dtype: np.dtype[Any], weak: bool, shape: Shape) -> Any:
    """One operand beside arrays: a scalar becomes a literal, an array is broadcast."""
    if not isinstance(x, Array):
        return literal(x, dtype)
    if x.type.dtype is not dtype:
        x = convert(x, dtype=dtype, weak=weak)
    if x.shape == shape:
        return x
    # Outside of a trace an array of rank 0 is a number: no need to write it out.
    if not x.shape and not tracing():
        return Literal(np.asarray(x)[()], x.type)
    return broadcast(x, shape)


def literal(x: Any, dtype: np.dtype[Any], weak: bool = True) -> Literal:
    """A Python scalar as a literal of a dtype; one that does not fit raises."""
    return Literal(dtype.type(x), ArrayType((), dtype, weak))


def common_shape(function: str, values: Sequence[Any]) -> Shape:
    """The shape that arrays are broadcast to; scalars do not count."""
    shape: Shape | None = None
    same = True
    for x in values:
        if isinstance(x, Array) and x.shape != shape:
            same = same and shape is None
            shape = x.shape
    if same:
        return shape or ()
    shapes = tuple([x.shape for x in values if isinstance(x, Array)])
    if busy and config.numpy_rank_promotion != "allow":
        _check_one_rank(function, set(shapes))
    found = _broadcast(shapes)
    if found is None:
        types = [str(x.type) for x in values if isinstance(x, Array)]
        shown = ", ".join(types[:-1]) + f" and {types[-1]}"
        raise errors.ShapeError(f"{function}: {shown} cannot be broadcast")
    return found


@lru_cache(maxsize=4096)
def _broadcast(shapes: tuple[Shape, ...]) -> Shape | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def broadcast(x: Array, shape: Shape) -> Array:
    """An array repeated to a shape that its own broadcasts to."""
    if x.shape == shape:
        return x
    dims = tuple(range(len(shape) - x.ndim, len(shape)))
    return broadcast_in_dim(x, shape=shape, dims=dims)


def axis_index(function: str, axis: Any, ndim: int, argument: str = "axis") -> int:
    """An axis as a number from 0; negative ones count from the end.

    Raises `AxisError` for an axis that an array of that rank does not have.
    """
    try:
        number = axis.__index__()
    except AttributeError:
        raise errors.ArgumentError(
            f"{function}: {argument} must be an integer, got {axis!r}"
        ) from None
    if not -ndim <= number < ndim:
        raise errors.AxisError(
            f"{function}: {argument} {number} is out of range for an array of rank "
            f"{ndim}"
        )
    return number % ndim if ndim else 0


def axes_tuple(function: str, axis: Any, ndim: int, argument: str = "axis") -> Shape:
    """One axis, several, or all (`None`) as numbers from 0, in the order given."""
    if axis is None:
        return tuple(range(ndim))
    many = axis if isinstance(axis, tuple | list) else (axis,)
    found = tuple([axis_index(function, a, ndim, argument) for a in many])
    if len(set(found)) < len(found):
        raise errors.AxisError(f"{function}: {argument} {axis!r} names an axis twice")
    return found


def shape_tuple(function: str, shape: Any) -> Shape:
    """A shape given as an integer or a sequence of integers."""
    many = shape if isinstance(shape, tuple | list | np.ndarray) else (shape,)
    try:
        found = tuple([n.__index__() for n in many])
    except AttributeError:
        raise errors.ShapeError(
            f"{function}: a shape is made of integers, got {shape!r}"
        ) from None
    if any(n < 0 for n in found):
        raise errors.ShapeError(f"{function}: a size cannot be negative, got {shape!r}")
    return found


def refuse(function: str, **options: Any) -> None:
    """Raises for options of NumPy that arrays which never change cannot have."""
    for name, value in options.items():
        if value is not None:
            raise errors.OptionError(
                f"{function}: {name}={value!r} is not supported; leave it out"
            )
