"""The dtypes of fnx: which there are, how they are named, and how they promote.

A dtype is always the canonical `np.dtype` object of `SUPPORTED`, so that types can be
compared by identity. Explicit dtypes are honoured, Python scalars are weak and take the
defaults (32-bit unless `default_dtypes(64)`), promotion is JAX's lattice. Receives
dtype specifications, gives canonical dtypes; next on the walk: `fnx/tree.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np

from fnx.config import scoped
from fnx.errors import ArgumentError, DTypeError, OptionError

DType = np.dtype[Any]


class extended(np.generic):
    """What elements are that are no numbers: keys. For `fnx.numpy.issubdtype`."""


class prng_key(extended):
    """What the elements of key arrays are: `issubdtype(key.dtype, prng_key)`."""


bool_ = np.dtype(np.bool_)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)

float0: DType = np.dtype([("float0", np.void, 0)])
"""The dtype of tangents of integer and boolean values: no bytes, always zero."""

# Floats of 8 bits and fewer, integers of fewer: arrays hold them and convert them,
# nothing computes.
_STORED_FLOATS = tuple(
    np.dtype(getattr(ml_dtypes, name))
    for name in (
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
        *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    )
)
_STORED_INTEGERS = tuple(
    np.dtype(getattr(ml_dtypes, name)) for name in ("int2", "int4", "uint2", "uint4")
)
_STORAGE = _STORED_FLOATS + _STORED_INTEGERS
float8_e8m0fnu = np.dtype(ml_dtypes.float8_e8m0fnu)
_SIGNED = (int8, int16, int32, int64)
_UNSIGNED = (uint8, uint16, uint32, uint64)
_FLOATS = (float16, bfloat16, float32, float64)
_COMPLEX = (complex64, complex128)

SUPPORTED: tuple[DType, ...] = (bool_, *_SIGNED, *_UNSIGNED, *_FLOATS, *_COMPLEX)
"""Every dtype that is computed with, in the order of the kinds."""

STORAGE: tuple[DType, ...] = _STORAGE
"""The dtypes that arrays can only be stored in; each element takes a byte."""

_CANONICAL: dict[DType, DType] = {dtype: dtype for dtype in SUPPORTED + STORAGE}
_NAMED: dict[Any, DType] = {
    name: dtype for dtype in SUPPORTED + STORAGE for name in (dtype.type, dtype.name)
}

# The table of short names: printed in types, programs and error texts.
_SHORT: dict[DType, str] = {
    bool_: "bool",
    **{dtype: f"i{dtype.itemsize * 8}" for dtype in _SIGNED},
    **{dtype: f"u{dtype.itemsize * 8}" for dtype in _UNSIGNED},
    **{dtype: f"f{dtype.itemsize * 8}" for dtype in _FLOATS},
    **{dtype: f"c{dtype.itemsize * 8}" for dtype in _COMPLEX},
    bfloat16: "bf16",
    **{dtype: f"f{dtype.name.removeprefix('float')}" for dtype in _STORED_FLOATS},
    **{dtype: dtype.name.replace("int", "i", 1) for dtype in _STORED_INTEGERS[:2]},
    **{dtype: dtype.name.replace("uint", "u", 1) for dtype in _STORED_INTEGERS[2:]},
    float0: "float0",
}


def same(dtype: DType) -> DType:
    """The canonical object of a supported dtype; any other dtype as it is.

    >>> same(np.dtype("float32", metadata={"unit": "m"})) is float32
    True
    """
    return _CANONICAL.get(dtype, dtype)


def short(dtype: DType) -> str:
    """The short name of a dtype, as types print it.

    >>> short(float32), short(bfloat16), short(uint8), short(bool_)
    ('f32', 'bf16', 'u8', 'bool')
    """
    return _SHORT[dtype]


def is_bool(dtype: DType) -> bool:
    """Whether the dtype is boolean."""
    return dtype == bool_


def is_signed(dtype: DType) -> bool:
    """Whether the dtype is a signed integer."""
    return dtype in _SIGNED


def is_unsigned(dtype: DType) -> bool:
    """Whether the dtype is an unsigned integer."""
    return dtype in _UNSIGNED


def is_integer(dtype: DType) -> bool:
    """Whether the dtype is an integer; booleans are not."""
    return dtype in _SIGNED or dtype in _UNSIGNED


def is_float(dtype: DType) -> bool:
    """Whether the dtype is a real floating-point type, bfloat16 included."""
    return dtype in _FLOATS


def is_storage(dtype: DType) -> bool:
    """Whether arrays are only stored in it: a small float or integer (`STORAGE`)."""
    return dtype in _STORAGE


def is_stored_integer(dtype: DType) -> bool:
    """Whether the dtype is an integer of fewer than 8 bits, for storage."""
    return dtype in _STORED_INTEGERS


def limits(dtype: DType) -> Any:
    """The limits of an integer dtype, `min` and `max`.

    >>> limits(as_dtype("int4")).min
    -8
    """
    return ml_dtypes.iinfo(dtype) if is_stored_integer(dtype) else np.iinfo(dtype)


def is_complex(dtype: DType) -> bool:
    """Whether the dtype is complex."""
    return dtype in _COMPLEX


def is_inexact(dtype: DType) -> bool:
    """Whether the dtype holds real or complex floats: what can have a gradient."""
    return dtype in _FLOATS or dtype in _COMPLEX or dtype in _STORED_FLOATS


def compute_dtype(dtype: DType) -> DType:
    """The dtype that kernels compute in: float32 for 16-bit floats, else the same."""
    return float32 if dtype in (float16, bfloat16) else dtype


def real_dtype(dtype: DType) -> DType:
    """The dtype of the real part: float32 for complex64, float64 for complex128."""
    if dtype not in _COMPLEX:
        return dtype
    return float32 if dtype == complex64 else float64


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype whose parts hold this float (16-bit floats widen to 32).

    Raises `DTypeError` for integers and booleans.
    """
    if dtype in _COMPLEX:
        return dtype
    if dtype not in _FLOATS:
        raise DTypeError(
            f"no complex dtype has {short(dtype)} parts; convert to a float dtype."
        )
    return complex128 if dtype == float64 else complex64


# ---------------------------------------------------------------- defaults

default_bits_variable: ContextVar[int] = ContextVar("fnx_default_bits", default=32)


def default_bits() -> int:
    """32 or 64: the width of the default dtypes here; part of every compile key."""
    return default_bits_variable.get()


@contextmanager
def default_dtypes(bits: int) -> Iterator[None]:
    """Make the default dtypes 32 or 64 bits wide inside a `with` block.

    It decides what Python scalars and creation functions become; explicit dtypes are
    honoured regardless. Local to the thread (and the async task).

    >>> with default_dtypes(64):
    ...     default_float()
    dtype('float64')
    """
    if bits not in (32, 64):
        raise OptionError(f"default_dtypes takes 32 or 64, got {bits!r}.")
    token = default_bits_variable.set(bits)
    try:
        yield
    finally:
        default_bits_variable.reset(token)


scoped["enable_x64"] = lambda enable: default_bits_variable.set(64 if enable else 32)


def default_int() -> DType:
    """The dtype of a Python int here: int32, or int64 in 64-bit mode."""
    return int64 if default_bits_variable.get() == 64 else int32


def default_float() -> DType:
    """The dtype of a Python float here: float32, or float64 in 64-bit mode."""
    return float64 if default_bits_variable.get() == 64 else float32


def default_complex() -> DType:
    """The dtype of a Python complex here: complex64, or complex128 in 64-bit mode."""
    return complex128 if default_bits_variable.get() == 64 else complex64


def scalar_dtype(value: bool | int | float | complex) -> DType:
    """The dtype of a Python scalar here; all but bool are weak.

    >>> scalar_dtype(True), scalar_dtype(2), scalar_dtype(2.0)
    (dtype('bool'), dtype('int32'), dtype('float32'))
    """
    if not isinstance(value, np.generic):  # np.float64 is a float, and is not weak
        for kind in (bool, int, float, complex):
            if isinstance(value, kind):
                return python_dtype(kind)
    raise ArgumentError(
        f"{value!r} of type {type(value).__name__} is no Python scalar."
    )


def python_dtype(kind: type) -> DType:
    """The dtype here of numbers of one of Python's classes.

    >>> python_dtype(complex)
    dtype('complex64')
    """
    if kind is bool:
        return bool_
    if kind is int:
        return default_int()
    return default_float() if kind is float else default_complex()


# ---------------------------------------------------------------- specifications


def as_dtype(spec: Any) -> DType:
    """The canonical dtype that a specification means.

    Takes dtypes, NumPy scalar types, names, Python's bool, int, float and complex
    (which mean the defaults), and objects of type character with a `dtype` attribute.
    Raises `DTypeError` for anything that fnx has no arrays of.

    >>> as_dtype("float64"), as_dtype(int)
    (dtype('float64'), dtype('int32'))
    """
    # The usual ones, in a third of the time: to ask whether it is a dtype is slow.
    found, kind = None, spec.__class__
    if kind is str or kind is type:
        found = _NAMED.get(spec)
    else:
        own = getattr(spec, "dtype", spec)
        if own is spec or not hasattr(spec, "shape"):
            try:
                found = _CANONICAL.get(own)
            except TypeError:  # it is not hashable
                found = None
    return _meant(spec) if found is None else found


def _meant(spec: Any) -> DType:
    if isinstance(spec, np.dtype):
        return _canonical(spec)
    if isinstance(spec, type) and spec in (bool, int, float, complex):
        return python_dtype(spec)
    own = getattr(spec, "dtype", None)
    if isinstance(own, np.dtype) and not hasattr(spec, "shape"):
        return _canonical(own)
    if not isinstance(spec, type | str):
        raise DTypeError(_unsupported(spec))
    try:
        return _canonical(np.dtype(spec))
    except TypeError:
        raise DTypeError(_unsupported(spec)) from None


def _canonical(dtype: DType) -> DType:
    found = _CANONICAL.get(dtype)
    if found is None:  # the same type in the other byte order is still that type
        found = _CANONICAL.get(dtype.newbyteorder("="))
    if found is None:
        raise DTypeError(_unsupported(dtype))
    return found


def _unsupported(spec: object) -> str:
    names = ", ".join(dtype.name for dtype in SUPPORTED)
    return f"{spec!r} is no dtype of fnx arrays; supported are {names}."


# ---------------------------------------------------------------- promotion

# JAX's lattice (https://docs.jax.dev/en/latest/type_promotion.html): each node and what
# lies directly above it. "int", "float" and "complex" are the weak nodes of Python
# scalars.
_Node = DType | str
_ABOVE: dict[_Node, tuple[_Node, ...]] = {
    bool_: ("int",),
    "int": (uint8, int8),
    uint8: (uint16, int16),
    uint16: (uint32, int32),
    uint32: (uint64, int64),
    uint64: ("float",),
    int8: (int16,),
    int16: (int32,),
    int32: (int64,),
    int64: ("float",),
    "float": (bfloat16, float16, "complex"),
    bfloat16: (float32,),
    float16: (float32,),
    float32: (float64, complex64),
    float64: (complex128,),
    "complex": (complex64,),
    complex64: (complex128,),
    complex128: (),
}


@functools.cache
def _upper_bounds(node: _Node) -> frozenset[_Node]:
    above = (_upper_bounds(parent) for parent in _ABOVE[node])
    return frozenset({node}).union(*above)


_BOUNDS = {node: _upper_bounds(node) for node in _ABOVE}


def _join(nodes: frozenset[_Node]) -> _Node:
    """The least node above all of them: the one that every common bound is above."""
    common = frozenset.intersection(*(_BOUNDS[node] for node in nodes))
    return next(node for node in common if common <= _BOUNDS[node])


def _weak_node(dtype: DType) -> _Node:
    if dtype == bool_:
        return bool_
    if is_integer(dtype):
        return "int"
    return "float" if is_float(dtype) else "complex"


def promote(*pairs: tuple[DType, bool]) -> tuple[DType, bool]:
    """The common type of several (dtype, weak) pairs by JAX's lattice.

    A weak operand (a Python scalar, or a value made of them only) takes the other
    operands' dtype where its kind allows; where the result is weak itself it has the
    width of the weak operands of that kind, or the default one. An integer never widens
    a float.

    >>> promote((int32, False), (bfloat16, False))
    (dtype(bfloat16), False)
    >>> promote((float64, False), (float32, True))
    (dtype('float64'), False)
    """
    return _promote(pairs, default_bits_variable.get())


@functools.cache
def _promote(pairs: tuple[tuple[DType, bool], ...], bits: int) -> tuple[DType, bool]:
    stored = {dtype for dtype, _ in pairs if dtype in _STORAGE}
    if stored:
        if {dtype for dtype, _ in pairs} == stored and len(stored) == 1:
            return stored.pop(), False
        shown = " and ".join(sorted({dtype.name for dtype, _ in pairs}))
        raise DTypeError(
            f"{shown} have no dtype in common: {min(d.name for d in stored)} is for "
            "storage. Convert it with .astype(...) to compute with it."
        )
    if not pairs:
        raise ArgumentError("promote takes at least one (dtype, weak) pair, got none.")
    strong = frozenset(dtype for dtype, weak in pairs if not weak)
    weak = frozenset(dtype for dtype, weak in pairs if weak)
    if not strong:  # the strong counterparts decide, and the result is weak again
        dtype = _strong(_join(weak), weak, bits)
        return dtype, dtype != bool_
    node = _join(strong | frozenset(map(_weak_node, weak)))
    return _strong(node, weak, bits), isinstance(node, str)


def _strong(node: _Node, weak: frozenset[DType], bits: int) -> DType:
    """The dtype that stands for a weak node: the widest weak operand of that kind."""
    if not isinstance(node, str):
        return node
    same_kind = frozenset(dtype for dtype in weak if _weak_node(dtype) == node)
    joined = _join(same_kind) if same_kind else node
    if not isinstance(joined, str):
        return joined
    kind = {"int": int, "float": float, "complex": complex}[joined]
    with default_dtypes(bits):
        return python_dtype(kind)
