"""CUDA C functions that printed kernels share: conversions of 16-bit floats.

A 16-bit float is held in an `unsigned short`, so that no header is needed. On a device
each conversion is one instruction; elsewhere (g++, older devices) it is integer
arithmetic with the same results: rounded once, to the nearest, ties to even, subnormal
numbers kept. NaNs stay NaNs, but not with the same bits everywhere: devices and the
text below give 0x7fff for every NaN, where NumPy keeps the sign and the upper bits,
and ml_dtypes and fnx's CPU backend keep the sign and give 0x7fc0 to bfloat16.
Receives nothing, gives texts by name; next on the walk: `emit.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

HALF_TO_FLOAT = """\
__device__ __forceinline__ float half_to_float(unsigned short x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
#else
  // As the bits of a float, the exponent is too small by 112.
  unsigned int sign = (x & 0x8000u) << 16, rest = (x & 0x7fffu) << 13;
  float y = __int_as_float((int)rest) * 0x1p112f;
  if (rest >= 0x0f800000u) y = __int_as_float((int)(rest + 0x70000000u));
  return __int_as_float((int)((unsigned int)__float_as_int(y) | sign));
#endif
}
"""

FLOAT_TO_HALF = """\
__device__ __forceinline__ unsigned short float_to_half(float x) {
#ifdef __CUDA_ARCH__
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  unsigned int bits = (unsigned int)__float_as_int(x), size = bits & 0x7fffffffu;
  unsigned int half;
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) {  // 65520, from where on it is infinity
    half = 0x7c00u;
  } else if (size < 0x38800000u) {  // 2**-14: the unit of 0.5f is the last place
    half = (unsigned int)__float_as_int(__int_as_float((int)size) + 0.5f) - 0x3f000000u;
  } else {
    half = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  }
  return (unsigned short)(bits >> 16 & 0x8000u | half);
#endif
}
"""

DOUBLE_TO_HALF = """\
__device__ __forceinline__ unsigned short double_to_half(double x) {
#ifdef __CUDA_ARCH__
  unsigned short y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x));
  return y;
#else
  unsigned long long bits = (unsigned long long)__double_as_longlong(x);
  unsigned long long size = bits & 0x7fffffffffffffffull, half;
  if (size > 0x7ff0000000000000ull) return 0x7fff;
  if (size >= 0x40effe0000000000ull) {  // 65520, from where on it is infinity
    half = 0x7c00u;
  } else if (size < 0x3f10000000000000ull) {  // 2**-14: 2**28 has the same last place
    double sum = __longlong_as_double((long long)size) + 0x1p28;
    half = (unsigned long long)__double_as_longlong(sum) - 0x41b0000000000000ull;
  } else {
    half = size - 0x3f00000000000000ull + 0x1ffffffffffull + (size >> 42 & 1u);
    half >>= 42;
  }
  return (unsigned short)(bits >> 48 & 0x8000u | half);
#endif
}
"""

BFLOAT16_TO_FLOAT = """\
__device__ __forceinline__ float bfloat16_to_float(unsigned short x) {
  return __int_as_float((int)((unsigned int)x << 16));
}
"""

FLOAT_TO_BFLOAT16 = """\
__device__ __forceinline__ unsigned short float_to_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  unsigned int bits = (unsigned int)__float_as_int(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}
"""

PREAMBLE: Mapping[str, str] = {
    "half_to_float": HALF_TO_FLOAT,
    "float_to_half": FLOAT_TO_HALF,
    "double_to_half": DOUBLE_TO_HALF,
    "bfloat16_to_float": BFLOAT16_TO_FLOAT,
    "float_to_bfloat16": FLOAT_TO_BFLOAT16,
}
"""The text of each function; none of them calls another one."""
