// What a kernel's text sees instead of NVRTC's built-in names, when g++ compiles it.
//
// Included before every text. There is no standard header here: a module must compile
// in hundredths of a second. Everything that threads do together (barriers, shuffles,
// votes) and every atomic is a call into the runtime (runtime/*.cpp); plain memory
// accesses reach the runtime through the hooks that -fsanitize=thread puts before each.
// Overloads name their function of the runtime by an asm label, so that calls need no
// wrapper. Next: runtime/state.h.
#pragma once
#pragma GCC visibility push(default)

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
// Each array lies in a section of its own; native.py puts a guard before each.
#define FNX_TEXT(x) #x
#define FNX_SECTION(n) __attribute__((section("fnx_shared_" FNX_TEXT(n))))
#define __shared__ static FNX_SECTION(__COUNTER__)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

using size_t = decltype(sizeof(0));
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};

// Constant while one thread runs, so that a read of them needs no check; the runtime
// writes them whenever it switches threads.
extern "C" const uint3 threadIdx, blockIdx;
extern "C" const dim3 blockDim, gridDim;
constexpr int warpSize = 32;
extern "C" alignas(1024) char fnx_dynamic_shared[];

// ---------------------------------------------------------------- kernels

namespace fnx {

template <class F>
struct Entry;
template <class... A>
struct Entry<void (*)(A...)> {
  static constexpr int count = sizeof...(A);
  static constexpr int sizes[count + 1] = {(int)sizeof(A)..., 0};
  template <void (*kernel)(A...), int... n>
  static __attribute__((no_sanitize("thread", "undefined"))) void run(void** a) {
    kernel(*(A*)a[n]...);
  }
};
template <int... n>
struct Numbers {
  template <class F, F kernel>
  static constexpr void (*entry)(void**) = &Entry<F>::template run<kernel, n...>;
};
template <int count>
struct Upto {
  using type = Numbers<__integer_pack(count)...>;
};

}  // namespace fnx

// What the loader reads of each kernel; `threads` and `blocks` are its launch bounds.
struct fnx_kernel {
  void (*run)(void** parameters);
  const int* sizes;
  int count, threads, blocks;
};
template <class F, F kernel>
constexpr auto fnx_entry =
    fnx::Upto<fnx::Entry<F>::count>::type::template entry<F, kernel>;
#define FNX_KERNEL(name, threads, blocks)                                           \
  extern "C" __attribute__((used, visibility("default")))                           \
  const fnx_kernel fnx_kernel_##name = {                                            \
      fnx_entry<decltype(&name), &name>, fnx::Entry<decltype(&name)>::sizes,        \
      fnx::Entry<decltype(&name)>::count, threads, blocks};

// ---------------------------------------------------------------- threads together

extern "C" int fnx_barrier(int line, int kind, int predicate);
#define __syncthreads() ((void)fnx_barrier(__LINE__, 0, 0))
#define __syncthreads_count(p) fnx_barrier(__LINE__, 1, (p) != 0)
#define __syncthreads_and(p) fnx_barrier(__LINE__, 2, (p) != 0)
#define __syncthreads_or(p) fnx_barrier(__LINE__, 3, (p) != 0)

// The kinds are those of runtime/warp.cpp.
extern "C" unsigned long long fnx_warp(int line, int kind, unsigned mask,
                                       unsigned long long value, int lane, int width);

// Shorter integers become int, as for CUDA's overloads.
template <class T>
inline auto fnx_shuffle(int line, int kind, unsigned mask, T given, int lane,
                        int width = 32) -> decltype(+given) {
  auto value = +given;
  static_assert(sizeof(value) == 4 || sizeof(value) == 8, "4 or 8 bytes are moved");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(value));
  bits = fnx_warp(line, kind, mask, bits, lane, width);
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
#define __shfl_sync(...) fnx_shuffle(__LINE__, 0, __VA_ARGS__)
#define __shfl_up_sync(...) fnx_shuffle(__LINE__, 1, __VA_ARGS__)
#define __shfl_down_sync(...) fnx_shuffle(__LINE__, 2, __VA_ARGS__)
#define __shfl_xor_sync(...) fnx_shuffle(__LINE__, 3, __VA_ARGS__)

inline void fnx_syncwarp(int line, unsigned mask = 0xffffffffu) {
  fnx_warp(line, 4, mask, 0, 0, 32);
}
#define __syncwarp(...) fnx_syncwarp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __ballot_sync(mask, p) ((unsigned)fnx_warp(__LINE__, 5, mask, (p) != 0, 0, 32))
#define __any_sync(mask, p) ((int)fnx_warp(__LINE__, 6, mask, (p) != 0, 0, 32))
#define __all_sync(mask, p) ((int)fnx_warp(__LINE__, 7, mask, (p) != 0, 0, 32))

template <class T>
inline T fnx_reduce(int line, int kind, unsigned mask, T value) {
  static_assert(sizeof(T) == 4, "a warp reduction takes 4-byte integers");
  const bool is_signed = (T)-1 < (T)0;
  return (T)fnx_warp(line, kind + (is_signed ? 0 : 16), mask, (unsigned)value, 0, 32);
}
#define __reduce_add_sync(mask, v) fnx_reduce(__LINE__, 8, mask, v)
#define __reduce_min_sync(mask, v) fnx_reduce(__LINE__, 9, mask, v)
#define __reduce_max_sync(mask, v) fnx_reduce(__LINE__, 10, mask, v)
#define __reduce_and_sync(mask, v) fnx_reduce(__LINE__, 11, mask, v)
#define __reduce_or_sync(mask, v) fnx_reduce(__LINE__, 12, mask, v)
#define __reduce_xor_sync(mask, v) fnx_reduce(__LINE__, 13, mask, v)

template <class T>
inline unsigned fnx_match(int line, unsigned mask, T value) {
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return (unsigned)fnx_warp(line, 14, mask, bits, 0, 32);
}
#define __match_any_sync(mask, v) fnx_match(__LINE__, mask, v)

// A thread may only rely on its own bit: which others run beside it is not defined.
extern "C" unsigned fnx_activemask();
#define __activemask() fnx_activemask()

extern "C" void fnx_fence();
inline void __threadfence() { fnx_fence(); }
inline void __threadfence_block() { fnx_fence(); }
inline void __threadfence_system() { fnx_fence(); }

// ---------------------------------------------------------------- atomics

#define FNX_ATOMIC(name, type, suffix) \
  type name(type* address, type value) __asm__("fnx_" #name "_" #suffix);
#define FNX_INTEGERS(name)             \
  FNX_ATOMIC(name, int, i32)           \
  FNX_ATOMIC(name, unsigned, u32)      \
  FNX_ATOMIC(name, unsigned long long, u64)
FNX_INTEGERS(atomicAdd)
FNX_ATOMIC(atomicAdd, float, f32)
FNX_ATOMIC(atomicAdd, double, f64)
FNX_ATOMIC(atomicSub, int, i32)
FNX_ATOMIC(atomicSub, unsigned, u32)
FNX_INTEGERS(atomicMin)
FNX_ATOMIC(atomicMin, long long, i64)
FNX_INTEGERS(atomicMax)
FNX_ATOMIC(atomicMax, long long, i64)
FNX_INTEGERS(atomicAnd)
FNX_INTEGERS(atomicOr)
FNX_INTEGERS(atomicXor)
FNX_INTEGERS(atomicExch)
FNX_ATOMIC(atomicExch, float, f32)
FNX_ATOMIC(atomicInc, unsigned, u32)
FNX_ATOMIC(atomicDec, unsigned, u32)
#define FNX_COMPARE(type, suffix)                            \
  type atomicCAS(type* address, type compare, type value)    \
      __asm__("fnx_atomicCAS_" #suffix);
FNX_COMPARE(int, i32)
FNX_COMPARE(unsigned, u32)
FNX_COMPARE(unsigned short, u16)
FNX_COMPARE(unsigned long long, u64)

// ---------------------------------------------------------------- numbers

template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class To, class From>
inline To fnx_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same number of bits");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}
inline float __int_as_float(int x) { return fnx_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return fnx_bits<float>(x); }
inline int __float_as_int(float x) { return fnx_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return fnx_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return fnx_bits<double>(x); }
inline long long __double_as_longlong(double x) { return fnx_bits<long long>(x); }
inline int __double2hiint(double x) {
  return (int)(__double_as_longlong(x) >> 32);
}
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)high << 32 | (unsigned)low);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
  x = (x >> 1 & 0x5555555555555555ull) | (x & 0x5555555555555555ull) << 1;
  x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0full) | (x & 0x0f0f0f0f0f0f0f0full) << 4;
  return __builtin_bswap64(x);
}
inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int n = 0; n < 4; ++n) {
    const unsigned from = selector >> 4 * n;
    unsigned byte = both >> 8 * (from & 7) & 0xff;
    if (from & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * n;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned distance) {
  distance &= 31;
  return distance ? high << distance | low >> (32 - distance) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned distance) {
  distance &= 31;
  return distance ? low >> distance | high << (32 - distance) : low;
}
inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return (unsigned)((unsigned long long)x * y >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline long long __mul64hi(long long x, long long y) {
  return (long long)((__int128)x * y >> 64);
}

#define FNX_UNARY(name) \
  extern "C" double name(double) noexcept; \
  extern "C" float name##f(float) noexcept;
#define FNX_BINARY(name) \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept;
FNX_UNARY(sqrt)
FNX_UNARY(rint)
FNX_UNARY(nearbyint)
FNX_UNARY(round)
FNX_UNARY(floor)
FNX_UNARY(ceil)
FNX_UNARY(trunc)
FNX_UNARY(fabs)
FNX_UNARY(exp)
FNX_UNARY(exp2)
FNX_UNARY(expm1)
FNX_UNARY(log)
FNX_UNARY(log2)
FNX_UNARY(log10)
FNX_UNARY(log1p)
FNX_UNARY(sin)
FNX_UNARY(cos)
FNX_UNARY(tan)
FNX_UNARY(asin)
FNX_UNARY(acos)
FNX_UNARY(atan)
FNX_UNARY(sinh)
FNX_UNARY(cosh)
FNX_UNARY(tanh)
FNX_UNARY(asinh)
FNX_UNARY(acosh)
FNX_UNARY(atanh)
FNX_UNARY(cbrt)
FNX_UNARY(erf)
FNX_UNARY(erfc)
FNX_UNARY(lgamma)
FNX_UNARY(tgamma)
FNX_BINARY(fmod)
FNX_BINARY(remainder)
FNX_BINARY(copysign)
FNX_BINARY(fmax)
FNX_BINARY(fmin)
FNX_BINARY(pow)
FNX_BINARY(atan2)
FNX_BINARY(hypot)
FNX_BINARY(nextafter)
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" double scalbn(double, int) noexcept;
extern "C" float scalbnf(float, int) noexcept;
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline int isnan(double x) { return x != x; }
inline int isinf(double x) { return __builtin_isinf(x); }
inline int isfinite(double x) { return __builtin_isfinite(x); }
inline int min(int x, int y) { return x < y ? x : y; }
inline int max(int x, int y) { return x > y ? x : y; }
inline unsigned min(unsigned x, unsigned y) { return x < y ? x : y; }
inline unsigned max(unsigned x, unsigned y) { return x > y ? x : y; }
inline long long min(long long x, long long y) { return x < y ? x : y; }
inline long long max(long long x, long long y) { return x > y ? x : y; }
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
inline int abs(int x) { return x < 0 ? -x : x; }

// d += a @ b by a warp, with the fragments of PTX's mma.sync (runtime/matrix.cpp).
extern "C" void fnx_emulated_mma_m16n8k16_f16(float* d, unsigned* a, unsigned* b);
extern "C" void fnx_emulated_mma_m16n8k16_bf16(float* d, unsigned* a, unsigned* b);
extern "C" void fnx_emulated_mma_m16n8k8_tf32(float* d, unsigned* a, unsigned* b);
extern "C" void fnx_emulated_mma_m8n8k4_f64(double* d, double* a, double* b);

extern "C" int printf(const char*, ...);

#define FNX_VECTOR(type, name)                                              \
  struct __align__(2 * sizeof(type)) name##2 { type x, y; };                \
  struct name##3 { type x, y, z; };                                         \
  struct __align__(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { \
    type x, y, z, w;                                                        \
  };                                                                        \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }          \
  inline name##4 make_##name##4(type x, type y, type z, type w) {           \
    return {x, y, z, w};                                                    \
  }
FNX_VECTOR(float, float)
FNX_VECTOR(double, double)
FNX_VECTOR(int, int)
FNX_VECTOR(unsigned char, uchar)
FNX_VECTOR(unsigned short, ushort)
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

#pragma GCC visibility pop
