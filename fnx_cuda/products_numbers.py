"""The numbers of matrix products in CUDA C: how each dtype is read, summed and written.

Receives a dtype, gives the text of `Element`, which is in memory, of `Sum`, in which
products are added up, and of functions between them. The kernels in
`products_tile.py`, `products_tensor.py` and `products_vector.py` stand on these names.
Next on the walk: `products_tile.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes
from fnx.records import record
from fnx_cuda.preamble import PREAMBLE

DType = np.dtype[Any]


@record
class Numbers:
    """A dtype in kernels: the text of its types and functions, and its bytes.

    `size` are the bytes of an `Element`, `sum_size` those of a `Sum`, and `out_size`
    those of a `Result`.
    """

    text: str
    size: int
    sum_size: int
    out_size: int


def multiplies(dtype: DType, out_dtype: DType) -> bool:
    """Whether there are products of a dtype with results of another one.

    Results may be as wide as sums are: float32 of 16-bit floats, and int32 of smaller
    integers.

    >>> multiplies(dtypes.bfloat16, dtypes.float32)
    True
    >>> multiplies(dtypes.float32, dtypes.float64)
    False
    """
    if dtype == out_dtype:
        return True
    if dtype in (dtypes.float16, dtypes.bfloat16):
        return out_dtype == dtypes.float32
    alike = any(
        is_kind(dtype) and is_kind(out_dtype)
        for is_kind in (dtypes.is_signed, dtypes.is_unsigned)
    )
    return alike and dtype.itemsize < out_dtype.itemsize <= 4


def numbers(dtype: DType, out_dtype: DType) -> Numbers:
    """The types `Element`, `Sum` and `Result`, and what is done with them.

    `widened` makes a `Sum` of an element, `added(c, a, b)` is c + a·b, `plus` adds two
    sums, `narrowed` rounds a sum to a result. 16-bit floats are summed in float32 and
    rounded once at most; integers wrap; `or` is the sum of booleans.

    >>> numbers(np.dtype(np.int8), np.dtype(np.int8)).sum_size
    4
    """
    text, sum_size = _sums(dtype)
    size, out_size = dtype.itemsize, out_dtype.itemsize
    return Numbers(text + _result(dtype, out_dtype), size, sum_size, out_size)


def _sums(dtype: DType) -> tuple[str, int]:
    """The text of `Element` and `Sum`, and the bytes of a `Sum`."""
    if dtypes.is_complex(dtype):
        real = "float" if dtype == dtypes.complex64 else "double"
        fma = "fmaf" if dtype == dtypes.complex64 else "fma"
        names = {"real": real, "fma": fma, "size": dtype.itemsize}
        return _COMPLEX % names, dtype.itemsize
    if dtype == dtypes.float64:
        return _REAL % {"type": "double", "fma": "fma"}, 8
    if dtype == dtypes.float32:
        return _REAL % {"type": "float", "fma": "fmaf"}, 4
    if dtype in (dtypes.float16, dtypes.bfloat16):
        widened = f"{_sixteen(dtype)}_to_float"
        return PREAMBLE[widened] + _SIXTEEN % {"widened": widened}, 4
    if dtypes.is_bool(dtype):
        return _BOOL, 4
    wide = dtype.itemsize == 8
    names = {
        "element": _integer(dtype),
        "sum": "unsigned long long" if wide else "unsigned int",
        "lane": "long long" if wide else "int",
    }
    return _INTEGER % names, 8 if wide else 4


def _result(dtype: DType, out_dtype: DType) -> str:
    """The text of `Result`, and of the function that makes one of a sum."""
    type_, rounded, before = "Element", "c", ""
    if out_dtype in (dtypes.float16, dtypes.bfloat16):
        function = f"float_to_{_sixteen(out_dtype)}"
        rounded, before = f"{function}(c)", PREAMBLE[function]
    elif dtypes.is_integer(out_dtype):
        type_, rounded = _integer(out_dtype), "(Result)c"
    elif dtypes.is_bool(out_dtype):
        rounded = "(Result)c"
    elif dtype != out_dtype:
        type_ = "float"
    return before + _RESULT % {"type": type_, "rounded": rounded}


def _sixteen(dtype: DType) -> str:
    return "half" if dtype == dtypes.float16 else "bfloat16"


def _integer(dtype: DType) -> str:
    sign = "signed" if dtypes.is_signed(dtype) else "unsigned"
    return f"{sign} {_INTEGERS[dtype.itemsize]}"


_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long"}

_RESULT = """
typedef %(type)s Result;
__device__ __forceinline__ Result narrowed(Sum c) { return %(rounded)s; }
"""

_REAL = """
typedef %(type)s Element;
typedef %(type)s Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return a; }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a + b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return %(fma)s(a, b, c); }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return __shfl_xor_sync(0xffffffffu, c, away);
}
"""

_COMPLEX = """
struct __align__(%(size)d) Element { %(real)s re, im; };
typedef Element Sum;
__device__ __forceinline__ Sum zero() { Sum c = {0, 0}; return c; }
__device__ __forceinline__ Sum widened(Element a) { return a; }
__device__ __forceinline__ Sum plus(Sum a, Sum b) {
  Sum c = {a.re + b.re, a.im + b.im};
  return c;
}
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) {
  c.re = %(fma)s(-a.im, b.im, %(fma)s(a.re, b.re, c.re));
  c.im = %(fma)s(a.im, b.re, %(fma)s(a.re, b.im, c.im));
  return c;
}
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  c.re = __shfl_xor_sync(0xffffffffu, c.re, away);
  c.im = __shfl_xor_sync(0xffffffffu, c.im, away);
  return c;
}
"""

_INTEGER = """
typedef %(element)s Element;
typedef %(sum)s Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return (Sum)a; }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a + b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return c + a * b; }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return (Sum)__shfl_xor_sync(0xffffffffu, (%(lane)s)c, away);
}
"""

_BOOL = """
typedef unsigned char Element;
typedef unsigned int Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return a != 0; }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a | b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return c | (a & b); }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return __shfl_xor_sync(0xffffffffu, c, away);
}
"""

_SIXTEEN = """
typedef unsigned short Element;
typedef float Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return %(widened)s(a); }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a + b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return fmaf(a, b, c); }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return __shfl_xor_sync(0xffffffffu, c, away);
}
"""
