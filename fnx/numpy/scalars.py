"""The dtypes as users name them, and what is known of them: float32, finfo, constants.

`float32(3)` makes an array and `np.dtype(float32)`, `zeros(3, float32)` name the dtype,
as NumPy's scalar types do. Receives dtypes and values; next on the walk: `creation.py`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.creation import asarray
from fnx.numpy.operands import DTypeLike, axes_tuple, cast, pair, read


class ScalarType:
    """A dtype that can be called: `float32(x)` is x as an array of that dtype.

    >>> float32(3)
    Array(3., dtype=float32)
    >>> np.dtype(float32)
    dtype('float32')
    """

    __slots__ = ("__name__", "dtype")

    def __init__(self, name: str, dtype: np.dtype[Any]) -> None:
        self.__name__ = name
        self.dtype = dtype

    def __call__(self, x: Any = 0) -> Array:
        """The value as an array of this dtype."""
        return cast(asarray(x), self.dtype)

    def __eq__(self, other: object) -> bool:
        try:
            return self.dtype == dtypes.as_dtype(other)
        except errors.DTypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"<dtype fnx.numpy.{self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__


bool_ = ScalarType("bool_", dtypes.bool_)
int8 = ScalarType("int8", dtypes.int8)
int16 = ScalarType("int16", dtypes.int16)
int32 = ScalarType("int32", dtypes.int32)
int64 = ScalarType("int64", dtypes.int64)
uint8 = ScalarType("uint8", dtypes.uint8)
uint16 = ScalarType("uint16", dtypes.uint16)
uint32 = ScalarType("uint32", dtypes.uint32)
uint64 = ScalarType("uint64", dtypes.uint64)
float16 = ScalarType("float16", dtypes.float16)
bfloat16 = ScalarType("bfloat16", dtypes.bfloat16)
float32 = ScalarType("float32", dtypes.float32)
float64 = ScalarType("float64", dtypes.float64)
complex64 = ScalarType("complex64", dtypes.complex64)
complex128 = ScalarType("complex128", dtypes.complex128)
# Arrays are stored in these and converted, and nothing else (see `dtypes.STORAGE`).
float8_e3m4 = ScalarType("float8_e3m4", dtypes.as_dtype("float8_e3m4"))
float8_e4m3 = ScalarType("float8_e4m3", dtypes.as_dtype("float8_e4m3"))
float8_e4m3b11fnuz = ScalarType(
    "float8_e4m3b11fnuz", dtypes.as_dtype("float8_e4m3b11fnuz")
)
float8_e4m3fn = ScalarType("float8_e4m3fn", dtypes.as_dtype("float8_e4m3fn"))
float8_e4m3fnuz = ScalarType("float8_e4m3fnuz", dtypes.as_dtype("float8_e4m3fnuz"))
float8_e5m2 = ScalarType("float8_e5m2", dtypes.as_dtype("float8_e5m2"))
float8_e5m2fnuz = ScalarType("float8_e5m2fnuz", dtypes.as_dtype("float8_e5m2fnuz"))
float8_e8m0fnu = ScalarType("float8_e8m0fnu", dtypes.as_dtype("float8_e8m0fnu"))
float6_e2m3fn = ScalarType("float6_e2m3fn", dtypes.as_dtype("float6_e2m3fn"))
float6_e3m2fn = ScalarType("float6_e3m2fn", dtypes.as_dtype("float6_e3m2fn"))
float4_e2m1fn = ScalarType("float4_e2m1fn", dtypes.as_dtype("float4_e2m1fn"))
int2 = ScalarType("int2", dtypes.as_dtype("int2"))
int4 = ScalarType("int4", dtypes.as_dtype("int4"))
uint2 = ScalarType("uint2", dtypes.as_dtype("uint2"))
uint4 = ScalarType("uint4", dtypes.as_dtype("uint4"))
single, double, csingle, cdouble = float32, float64, complex64, complex128

# The abstract types of NumPy, for `issubdtype`.
generic, number, inexact = np.generic, np.number, np.inexact
integer, signedinteger, unsignedinteger = (
    np.integer,
    np.signedinteger,
    np.unsignedinteger,
)
floating, complexfloating = np.floating, np.complexfloating
# No array has one of these dtypes; `issubdtype` takes them.
flexible, character, object_ = np.flexible, np.character, np.object_
ComplexWarning = np.exceptions.ComplexWarning

pi = math.pi
e = math.e
euler_gamma = 0.57721566490153286060651209008240243
inf = math.inf
nan = math.nan
newaxis = None


def issubdtype(arg1: DTypeLike, arg2: Any) -> bool:
    """Whether a dtype is of a kind: `issubdtype(float32, floating)`; bfloat16 is one.

    That of key arrays is of the kind `fnx.dtypes.prng_key`, and of no number's.

    >>> issubdtype(bfloat16, floating)
    True
    """
    first = _scalar_class(arg1)
    second = _scalar_class(arg2)
    if first is dtypes.bfloat16.type and second is not first:
        return issubclass(np.float32, second) and second is not np.float32
    return issubclass(first, second)


def _scalar_class(spec: Any) -> type:
    if isinstance(spec, type) and issubclass(spec, np.generic):
        return spec
    kind = getattr(spec, "type", None)  # that of keys, which are no numbers
    if isinstance(kind, type) and issubclass(kind, dtypes.extended):
        return kind
    return dtypes.as_dtype(spec).type


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Whether a dtype is of a kind of the array API standard, or one of several.

    Kinds are "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric", and dtypes.

    >>> isdtype(int8, "integral")
    True
    """
    found = dtypes.as_dtype(dtype)
    many = kind if isinstance(kind, tuple) else (kind,)
    return any(_is_kind(found, k) for k in many)


_KINDS = {
    "bool": dtypes.is_bool,
    "signed integer": dtypes.is_signed,
    "unsigned integer": dtypes.is_unsigned,
    "integral": dtypes.is_integer,
    "real floating": dtypes.is_float,
    "complex floating": dtypes.is_complex,
    "numeric": lambda dtype: not dtypes.is_bool(dtype),
}


def _is_kind(dtype: np.dtype[Any], kind: Any) -> bool:
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind](dtype)
    return dtype == dtypes.as_dtype(kind)


def dtype(spec: DTypeLike) -> np.dtype[Any]:
    """The dtype that a name, a NumPy type or one of these objects means."""
    return dtypes.as_dtype(spec)


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """The limits of a floating-point dtype, as Python's numbers, by NumPy's names."""

    dtype: np.dtype[Any]
    bits: int
    eps: float
    epsneg: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    tiny: float
    resolution: float
    precision: int
    iexp: int
    machep: int
    maxexp: int
    minexp: int
    negep: int
    nexp: int
    nmant: int


def finfo(dtype: DTypeLike) -> FloatLimits:
    """The limits of a floating-point dtype, or of the parts of a complex one.

    >>> finfo("float16").max
    65504.0
    """
    found = dtypes.as_dtype(getattr(dtype, "dtype", dtype))
    return _float_limits(dtypes.real_dtype(found))


@functools.cache
def _float_limits(dtype: np.dtype[Any]) -> FloatLimits:
    info = ml_dtypes.finfo(dtype)
    numbers: dict[str, Any] = {}
    for field in fields(FloatLimits):
        value = getattr(info, field.name)
        is_float = field.type == "float"
        numbers[field.name] = float(value) if is_float else value
    numbers["dtype"] = dtype
    return FloatLimits(**numbers)


def iinfo(dtype: DTypeLike) -> Any:
    """The limits of an integer dtype.

    >>> iinfo("int8").max
    127
    """
    return dtypes.limits(dtypes.as_dtype(getattr(dtype, "dtype", dtype)))


def promote_types(a: DTypeLike, b: DTypeLike) -> np.dtype[Any]:
    """The dtype of a sum of arrays of two dtypes, by JAX's lattice.

    Python's types are weak, as Python scalars are.

    >>> promote_types("int32", "float16")
    dtype('float16')
    """
    return dtypes.promote(*[(dtypes.as_dtype(t), _is_weak(t)) for t in (a, b)])[0]


def result_type(*args: Any) -> np.dtype[Any]:
    """The dtype of a sum of arrays, scalars and dtypes.

    >>> result_type(np.zeros(2, "float16"), 1.0)
    dtype('float16')
    """
    return dtypes.promote(*[_typed(arg) for arg in args])[0]


def _typed(arg: Any) -> tuple[np.dtype[Any], bool]:
    if isinstance(arg, str | type | np.dtype | ScalarType):
        return dtypes.as_dtype(arg), _is_weak(arg)
    return pair(read("result_type", arg))


def can_cast(from_: Any, to: DTypeLike, casting: str = "safe") -> bool:
    """Whether NumPy's casting rule lets a dtype (or that of an array) become another.

    >>> can_cast("int32", "float64"), can_cast("float32", "int32")
    (True, False)
    """
    found = dtypes.as_dtype(from_.dtype if isinstance(from_, Array) else from_)
    return bool(np.can_cast(found, dtypes.as_dtype(to), casting))  # type: ignore[arg-type]


def ndim(a: Any) -> int:
    """The number of axes of an array or a scalar."""
    return len(shape(a))


def shape(a: Any) -> tuple[int, ...]:
    """The sizes of the axes of an array or a scalar.

    >>> shape(1.0), shape(np.zeros((2, 3)))
    ((), (2, 3))
    """
    value = read("shape", a)
    return value.shape if isinstance(value, Array) else ()


def size(a: Any, axis: int | tuple[int, ...] | None = None) -> int:
    """The number of elements, or the size of an axis, or of several together.

    >>> size(np.zeros((2, 3, 4)), (0, -1))
    8
    """
    sizes = shape(a)
    return math.prod([sizes[i] for i in axes_tuple("size", axis, len(sizes))])


def isscalar(element: Any) -> bool:
    """Whether a value is a scalar, or an array of rank 0."""
    if isinstance(element, Array | np.ndarray):
        return not element.shape
    return np.isscalar(element)


def iterable(y: Any) -> bool:
    """Whether a value can be iterated over; arrays of rank 0 cannot.

    >>> iterable(np.zeros(2)), iterable(1.0)
    (True, False)
    """
    return bool(y.shape) if isinstance(y, Array) else np.iterable(y)


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    return dtypes.is_complex(pair(read("iscomplexobj", x))[0])


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex."""
    return not iscomplexobj(x)


def _is_weak(dtype: Any) -> bool:
    """Whether it is a Python type; a dtype is only equal to the one that it holds."""
    return any(dtype is kind for kind in (int, float, complex))
