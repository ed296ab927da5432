"""Kernels compute on the emulator what they say: against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.cuda

LANES = np.arange(32)


def test_one_parameter_struct(launch):
    text = """
    struct P { const float* x; float* out; int n; float scale; };
    extern "C" __global__ void __launch_bounds__(64) f(const __grid_constant__ P p) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < p.n) p.out[i] = p.x[i] * p.scale;
    }
    """
    x = np.linspace(-3, 5, 1001, dtype=np.float32)
    a, out = launch.put(x), launch.empty(x.nbytes)
    P = np.dtype([("x", "u8"), ("out", "u8"), ("n", "i4"), ("scale", "f4")])
    p = np.array([(a.ptr, out.ptr, x.size, 1.5)], P)
    launch(text, 16, 64, p)
    np.testing.assert_array_equal(launch.get(out, np.float32, x.size), x * 1.5)


def test_indices_of_three_axes(launch):
    text = """
    extern "C" __global__ void f(int* out) {
      int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      int size = blockDim.x * blockDim.y * blockDim.z;
      out[block * size + t] = 1000 * block + t;
    }
    """
    out = launch.empty(4 * 24 * 30)
    launch(text, (2, 3, 4), (5, 3, 2), out)
    wanted = 1000 * np.arange(24)[:, None] + np.arange(30)
    got = launch.get(out, np.int32, 24 * 30)
    np.testing.assert_array_equal(got.reshape(24, 30), wanted)


SUM = """
extern "C" __global__ void f(const float* x, float* out, int n) {
  %s
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k >>= 1) {
    if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
"""


@pytest.mark.parametrize(
    ("declaration", "shared"),
    [
        ("__shared__ float s[256];", 0),
        ("extern __shared__ float s[];", 1024),
        ("extern __shared__ __align__(16) float s[];", 1024),
    ],
)
def test_barriers_and_shared_memory(launch, declaration, shared):
    x = np.random.default_rng(0).integers(-99, 99, 2000).astype(np.float32)
    a, out = launch.put(x), launch.empty(4 * 8)
    launch(SUM % declaration, 8, 256, a, out, np.int32(x.size), shared=shared)
    wanted = np.pad(x, (0, 48)).reshape(8, 256).sum(1)
    np.testing.assert_array_equal(launch.get(out, np.float32, 8), wanted)


@pytest.mark.parametrize("block", [1, 31, 33, 100, 1024])
def test_blocks_that_are_no_whole_warps(launch, block):
    text = """
    extern "C" __global__ void f(int* out) {
      __shared__ int s[1024];
      s[threadIdx.x] = threadIdx.x;
      __syncthreads();
      out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
      int last = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 0);
      if (last != threadIdx.x) out[threadIdx.x] = -1;
    }
    """
    out = launch.empty(4 * block)
    launch(text, 1, block, out)
    np.testing.assert_array_equal(
        launch.get(out, np.int32, block), np.arange(block)[::-1]
    )


def up(x, n, width=32):
    return np.where(LANES % width >= n, np.roll(x, n), x)


def down(x, n, width=32):
    return np.where(LANES % width + n < width, np.roll(x, -n), x)


def test_short_numbers_are_shuffled_as_int(launch):
    text = """
    extern "C" __global__ void f(const unsigned short* in, unsigned short* out) {
      out[threadIdx.x] = __shfl_xor_sync(~0u, in[threadIdx.x], 1);
    }
    """
    x = np.arange(65500, 65532).astype(np.uint16)
    a, out = launch.put(x), launch.empty(x.nbytes)
    launch(text, 1, 32, a, out)
    np.testing.assert_array_equal(launch.get(out, np.uint16, 32), x[LANES ^ 1])


@pytest.mark.parametrize("type_", ["int", "unsigned", "long long", "float", "double"])
@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("__shfl_sync(~0u, x, 7)", lambda x: np.full(32, x[7])),
        ("__shfl_sync(~0u, x, 37)", lambda x: np.full(32, x[5])),
        (
            "__shfl_sync(~0u, x, lane + 1, 8)",
            lambda x: x[LANES // 8 * 8 + (LANES + 1) % 8],
        ),
        ("__shfl_up_sync(~0u, x, 3)", lambda x: up(x, 3)),
        ("__shfl_up_sync(~0u, x, 1, 4)", lambda x: up(x, 1, 4)),
        ("__shfl_down_sync(~0u, x, 5)", lambda x: down(x, 5)),
        ("__shfl_down_sync(~0u, x, 2, 16)", lambda x: down(x, 2, 16)),
        ("__shfl_xor_sync(~0u, x, 21)", lambda x: x[LANES ^ 21]),
        ("__shfl_xor_sync(~0u, x, 1, 2)", lambda x: x[LANES ^ 1]),
    ],
)
def test_shuffles(launch, type_, call, wanted):
    text = f"""
    extern "C" __global__ void f(const {type_}* in, {type_}* out) {{
      int lane = threadIdx.x % 32;
      {type_} x = in[threadIdx.x];
      out[threadIdx.x] = {call};
    }}
    """
    names = {"int": "i4", "unsigned": "u4", "long long": "i8", "float": "f4"}
    dtype = np.dtype(names.get(type_, "f8"))
    x = (np.random.default_rng(1).integers(0, 2**31, 64) * 3).astype(dtype)
    a, out = launch.put(x), launch.empty(x.nbytes)
    launch(text, 1, 64, a, out)
    got = launch.get(out, dtype, 64)
    np.testing.assert_array_equal(got, np.concatenate([wanted(x[:32]), wanted(x[32:])]))


def test_part_of_a_warp(launch):
    text = """
    extern "C" __global__ void f(int* out) {
      int lane = threadIdx.x;
      int value = -1;
      if (lane < 10) value = __shfl_down_sync(0x3ffu, lane, lane == 9 ? 0 : 1);
      else if (lane >= 20) value = __ballot_sync(0xfff00000u, lane & 1);
      out[lane] = value;
    }
    """
    out = launch.empty(128)
    launch(text, 1, 32, out)
    got = launch.get(out, np.int32, 32)
    np.testing.assert_array_equal(got[:10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 9])
    np.testing.assert_array_equal(got[10:20], -1)
    assert set(got[20:]) == {np.int32(np.uint32(0xAAA00000).astype(np.int32))}


def test_votes_and_reductions(launch):
    text = """
    extern "C" __global__ void f(const int* in, int* out) {
      int x = in[threadIdx.x];
      unsigned u = (unsigned)x;
      int results[] = {
        (int)__ballot_sync(~0u, x > 0), __any_sync(~0u, x == 3),
        __all_sync(~0u, x < 99),
        __reduce_add_sync(~0u, x), __reduce_min_sync(~0u, x), __reduce_max_sync(~0u, x),
        (int)__reduce_max_sync(~0u, u), (int)__reduce_min_sync(~0u, u),
        (int)__reduce_and_sync(~0u, u), (int)__reduce_or_sync(~0u, u),
        (int)__reduce_xor_sync(~0u, u), (int)__match_any_sync(~0u, x & 3)};
      for (int n = 0; n < 12; ++n) out[n * 32 + threadIdx.x] = results[n];
    }
    """
    x = np.random.default_rng(2).integers(-90, 90, 32).astype(np.int32)
    u = x.view(np.uint32)
    a, out = launch.put(x), launch.empty(4 * 12 * 32)
    launch(text, 1, 32, a, out)
    got = launch.get(out, np.uint32, 12 * 32).reshape(12, 32)
    bits = np.uint64(1) << LANES.astype(np.uint64)
    match = [bits[(x & 3) == v].sum() for v in x & 3]
    wanted = [
        *(bits[x > 0].sum(), (x == 3).any(), (x < 99).all()),
        *(x.sum(), x.min(), x.max(), u.max(), u.min()),
        *(np.bitwise_and.reduce(u), np.bitwise_or.reduce(u), np.bitwise_xor.reduce(u)),
    ]
    for row, value in zip(got, wanted, strict=False):
        np.testing.assert_array_equal(row, np.int64(value).astype(np.uint32))
    np.testing.assert_array_equal(got[11], match)


def test_barriers_that_count(launch):
    text = """
    extern "C" __global__ void f(int* out) {
      int t = threadIdx.x;
      int a = __syncthreads_count(t % 3 == 0);
      int b = __syncthreads_or(t == 40);
      int c = __syncthreads_and(t != 40);
      out[t] = 10000 * a + 10 * b + c;
    }
    """
    out = launch.empty(4 * 64)
    launch(text, 1, 64, out)
    assert set(launch.get(out, np.int32, 64)) == {220010}


@pytest.mark.parametrize(
    ("type_", "dtype", "call", "wanted"),
    [
        ("int", "i4", "atomicAdd(out, x)", lambda x: x.sum()),
        ("unsigned", "u4", "atomicMax(out, x)", np.max),
        ("int", "i4", "atomicMin(out, -x)", lambda x: -x.max()),
        ("unsigned long long", "u8", "atomicAdd(out, x * x)", lambda x: (x * x).sum()),
        ("float", "f4", "atomicAdd(out, x)", lambda x: x.sum()),
        ("double", "f8", "atomicAdd(out, x)", lambda x: x.sum()),
        ("unsigned", "u4", "atomicXor(out, x)", np.bitwise_xor.reduce),
        ("int", "i4", "atomicOr(out, x)", np.bitwise_or.reduce),
        ("unsigned", "u4", "atomicInc(out, 99u)", lambda x: 1000 % 100),
    ],
)
def test_atomics(launch, type_, dtype, call, wanted):
    text = f"""
    extern "C" __global__ void f(const {type_}* in, {type_}* out, int n) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) {{ {type_} x = in[i]; {call}; }}
    }}
    """
    x = np.random.default_rng(3).integers(0, 999, 1000).astype(dtype)
    a, out = launch.put(x), launch.put(np.zeros(1, dtype))
    launch(text, 8, 128, a, out, np.int32(1000))
    assert launch.get(out, dtype, 1)[0] == wanted(x)


def test_compare_and_swap(launch):
    text = """
    __device__ float atomic_max(float* address, float value) {
      int* bits = (int*)address;
      int old = *(volatile int*)bits, assumed;
      do {
        assumed = old;
        float larger = fmaxf(value, __int_as_float(assumed));
        old = atomicCAS(bits, assumed, __float_as_int(larger));
      } while (assumed != old);
      return __int_as_float(old);
    }
    extern "C" __global__ void f(const float* x, float* out) {
      atomic_max(out, x[blockIdx.x * blockDim.x + threadIdx.x]);
    }
    """
    x = np.random.default_rng(4).normal(size=512).astype(np.float32)
    a, out = launch.put(x), launch.put(np.full(1, -np.inf, np.float32))
    launch(text, 4, 128, a, out)
    assert launch.get(out, np.float32, 1)[0] == x.max()


def test_a_lock_between_threads_of_a_block(launch):
    text = """
    extern "C" __global__ void f(int* lock, int* out) {
      bool done = false;
      while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
          __threadfence();
          int x = *(volatile int*)out;
          __syncwarp(1u << threadIdx.x % 32);
          *(volatile int*)out = x + 1;
          __threadfence();
          atomicExch(lock, 0);
          done = true;
        }
    }
    """
    lock, out = launch.put(np.zeros(1, np.int32)), launch.put(np.zeros(1, np.int32))
    launch(text, 2, 64, lock, out)
    assert launch.get(out, np.int32, 1)[0] == 128


def test_intrinsics(launch):
    text = """
    extern "C" __global__ void f(const unsigned* in, unsigned* out) {
      unsigned x = in[threadIdx.x];
      unsigned long long w = (unsigned long long)x << 20 | x;
      unsigned* o = out + 12 * threadIdx.x;
      o[0] = __popc(x); o[1] = __popcll(w); o[2] = __clz(x); o[3] = __clzll(w);
      o[4] = __ffs(x); o[5] = __brev(x); o[6] = __umulhi(x, x); o[7] = __mulhi(x, x);
      o[8] = __ldg(in + threadIdx.x); o[9] = __float_as_uint(__uint_as_float(x));
      o[10] = (unsigned)(__umul64hi(w << 12, w) >> 16);
      o[11] = __byte_perm(x, 0x01020304, 0x0716);
    }
    """
    x = np.array([0, 1, 2, 0x80000000, 0x7FC00001, 0xDEADBEEF, 0xFFFFFFFF], np.uint32)
    a, out = launch.put(x), launch.empty(4 * 12 * x.size)
    launch(text, 1, x.size, a, out)
    for row, value in zip(
        launch.get(out, np.uint32, 12 * x.size).reshape(-1, 12),
        map(int, x),
        strict=True,
    ):
        w = value << 20 | value
        signed = value - 2**32 if value >= 2**31 else value
        lowest = value & -value
        xs, ys = value.to_bytes(4, "little"), (0x01020304).to_bytes(4, "little")
        both = xs + ys
        wanted = [
            *(value.bit_count(), w.bit_count()),
            *(32 - value.bit_length(), 64 - w.bit_length(), lowest.bit_length()),
            int(f"{value:032b}"[::-1], 2),
            *(value * value >> 32, (signed * signed >> 32) & 0xFFFFFFFF),
            *(value, value, ((w << 12) * w >> 80) & 0xFFFFFFFF),
            int.from_bytes(bytes([both[6], both[1], both[7], both[0]]), "little"),
        ]
        assert [int(v) for v in row] == wanted


def test_vector_accesses(launch):
    text = """
    struct __align__(16) Four { float x, y, z, w; };
    extern "C" __global__ void f(const float* in, float* out) {
      Four v = *(const Four*)(in + 4 * threadIdx.x);
      *(Four*)(out + 4 * threadIdx.x) = Four{v.w, v.z, v.y, v.x};
    }
    """
    x = np.arange(128, dtype=np.float32)
    a, out = launch.put(x), launch.empty(x.nbytes)
    launch(text, 1, 32, a, out)
    got = launch.get(out, np.float32, 128).reshape(32, 4)
    np.testing.assert_array_equal(got, x.reshape(32, 4)[:, ::-1])


def test_floats_are_not_contracted(launch):
    text = """
    extern "C" __global__ void f(const float* x, float* out) {
      out[0] = x[0] * x[1] + x[2];
      out[1] = fmaf(x[0], x[1], x[2]);
      out[2] = x[3] * 0.5f;
    }
    """
    smallest = np.float32(1.5e-45)
    x = np.array([1 + 2**-12, 1 + 2**-12, -1 - 2**-11, 3 * smallest], np.float32)
    a, out = launch.put(x), launch.empty(12)
    launch(text, 1, 1, a, out)
    wanted = [x[0] * x[1] + x[2], np.float32(2.0**-24), x[3] * np.float32(0.5)]
    np.testing.assert_array_equal(launch.get(out, np.float32, 3), wanted)
    assert wanted[0] != wanted[1]


MMA = """
void fnx_emulated_mma_m16n8k16_%(kind)s(float d[4], unsigned a[4], unsigned b[2]);
extern "C" __global__ void f(const unsigned short* x, const unsigned short* y,
                             const float* z, float* out) {
  int g = threadIdx.x / 4, t = threadIdx.x %% 4;
  unsigned a[4], b[2];
  float d[4];
  for (int n = 0; n < 4; ++n) {
    int row = g + n %% 2 * 8, column = 2 * t + n / 2 * 8;
    a[n] = x[row * 16 + column] | (unsigned)x[row * 16 + column + 1] << 16;
  }
  for (int n = 0; n < 2; ++n) {
    int row = 2 * t + n * 8;
    b[n] = y[row * 8 + g] | (unsigned)y[(row + 1) * 8 + g] << 16;
  }
  for (int n = 0; n < 4; ++n) d[n] = z[(g + n / 2 * 8) * 8 + 2 * t + n %% 2];
  fnx_emulated_mma_m16n8k16_%(kind)s(d, a, b);
  for (int n = 0; n < 4; ++n) out[(g + n / 2 * 8) * 8 + 2 * t + n %% 2] = d[n];
}
"""


@pytest.mark.parametrize(
    ("kind", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
def test_tensor_core_products(launch, kind, dtype):
    rng = np.random.default_rng(5)
    x, y = (rng.normal(size=s).astype(dtype) for s in ((16, 16), (16, 8)))
    x[0, 0] = np.float32(6e-5)  # subnormal as float16
    z = rng.normal(size=(16, 8)).astype(np.float32)
    out = launch.empty(z.nbytes)
    args = [launch.put(v) for v in (x.view(np.uint16), y.view(np.uint16), z)]
    launch(MMA % {"kind": kind}, 1, 32, *args, out)
    wanted = z + x.astype(np.float64) @ y.astype(np.float64)
    got = launch.get(out, np.float32, 128).reshape(16, 8)
    np.testing.assert_array_equal(got, wanted.astype(np.float32))


def test_double_products(launch):
    text = """
    extern "C" __global__ void f(const double* x, const double* y, double* out) {
      int g = threadIdx.x / 4, t = threadIdx.x % 4;
      double a = x[g * 4 + t], b = y[t * 8 + g], d[2] = {1, 2};
      fnx_emulated_mma_m8n8k4_f64(d, &a, &b);
      out[g * 8 + 2 * t] = d[0];
      out[g * 8 + 2 * t + 1] = d[1];
    }
    """
    rng = np.random.default_rng(6)
    x, y = rng.integers(-9, 9, (8, 4)) * 1.0, rng.integers(-9, 9, (4, 8)) * 1.0
    a, b, out = launch.put(x), launch.put(y), launch.empty(512)
    launch(text, 1, 32, a, b, out)
    got = launch.get(out, np.float64, 64).reshape(8, 8)
    np.testing.assert_array_equal(got, x @ y + np.tile([1.0, 2.0], 4))


def test_tf32_products(launch):
    text = """
    extern "C" __global__ void f(const unsigned* x, const unsigned* y, float* out) {
      int g = threadIdx.x / 4, t = threadIdx.x % 4;
      unsigned a[4] = {x[g * 8 + t], x[(g + 8) * 8 + t], x[g * 8 + t + 4],
                       x[(g + 8) * 8 + t + 4]};
      unsigned b[2] = {y[t * 8 + g], y[(t + 4) * 8 + g]};
      float d[4] = {0, 0, 0, 0};
      fnx_emulated_mma_m16n8k8_tf32(d, a, b);
      for (int n = 0; n < 4; ++n) out[(g + n / 2 * 8) * 8 + 2 * t + n % 2] = d[n];
    }
    """
    rng = np.random.default_rng(7)
    x = rng.normal(size=(16, 8)).astype(np.float32)
    y = rng.normal(size=(8, 8)).astype(np.float32)
    a, b, out = launch.put(x), launch.put(y), launch.empty(512)
    launch(text, 1, 32, a, b, out)
    short = [
        (v.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        for v in (x, y)
    ]
    got = launch.get(out, np.float32, 128).reshape(16, 8)
    np.testing.assert_array_equal(got, (short[0] @ short[1]).astype(np.float32))


def test_helpers_may_have_shared_memory_of_their_own(launch):
    text = """
    template <class T> __device__ __forceinline__ T block_sum(T x) {
      __shared__ T parts[32];
      for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
      __syncthreads();
      T total = 0;
      for (int w = 0; w < blockDim.x / 32; ++w) total += parts[w];
      return total;
    }
    inline __device__ int other(int x) { __shared__ int s; s = 1; return x + s; }
    extern "C" __global__ void f(int* out) {
      int a = block_sum((int)threadIdx.x);
      float b = block_sum(1.0f);
      out[threadIdx.x] = a + (int)b;
    }
    """
    out = launch.empty(4 * 128)
    launch(text, 1, 128, out)
    assert set(launch.get(out, np.int32, 128)) == {127 * 64 + 128}
