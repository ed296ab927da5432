// k0: 1056 x 1 x 1 blocks of 512 threads, 0 bytes, on input0, work0
// k1: 1 x 1 x 1 blocks of 128 threads, 0 bytes, on input0, work0
// k2: 1 x 1 x 1 blocks of 256 threads, 0 bytes, on output0, work0
struct __align__(16) float_x4 { float at[4]; };
struct P0 { const float* in0; float* local2; };
extern "C" __global__ void __launch_bounds__(512)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in0 = p.in0;
  float* __restrict__ local2 = p.local2;
  __shared__ float s0[16];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 1056; g += groups) {
    const int i0 = g;
    float f1 = (-0x0p+0f);
    #pragma unroll 4
    for (int i2 = t; i2 < 9469; i2 += 512) {
      const float v3 = in0[i0 * 9469 + i2];
      f1 = (f1 + v3);
    }
    const float v4 = __shfl_down_sync(0xffffffffu, f1, 16);
    f1 = (f1 + v4);
    const float v5 = __shfl_down_sync(0xffffffffu, f1, 8);
    f1 = (f1 + v5);
    const float v6 = __shfl_down_sync(0xffffffffu, f1, 4);
    f1 = (f1 + v6);
    const float v7 = __shfl_down_sync(0xffffffffu, f1, 2);
    f1 = (f1 + v7);
    const float v8 = __shfl_down_sync(0xffffffffu, f1, 1);
    f1 = (f1 + v8);
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f1; }
    __syncthreads();
    f1 = s0[0];
    for (int w9 = 1; w9 < 16; ++w9) {
      const float v10 = s0[w9];
      f1 = (f1 + v10);
    }
    if (t == 0) {
      local2[i0] = f1;
    }
  }
}

struct P1 { const float* in0; float* local2; };
extern "C" __global__ void __launch_bounds__(128)
k1(const __grid_constant__ P1 p) {
  const float* __restrict__ in0 = p.in0;
  float* __restrict__ local2 = p.local2;
  __shared__ float s0[4];
  const int t = (int)(threadIdx.x);
  {
    float f0_0 = (-0x0p+0f);
    float f0_1 = (-0x0p+0f);
    float f0_2 = (-0x0p+0f);
    float f0_3 = (-0x0p+0f);
    #pragma unroll 4
    for (int i1 = t * 4; i1 < 736; i1 += 512) {
      const float_x4 w2 = *(const float_x4*)(&in0[i1 + 9999264]);
      const float v3_0 = w2.at[0];
      const float v3_1 = w2.at[1];
      const float v3_2 = w2.at[2];
      const float v3_3 = w2.at[3];
      f0_0 = (f0_0 + v3_0);
      f0_1 = (f0_1 + v3_1);
      f0_2 = (f0_2 + v3_2);
      f0_3 = (f0_3 + v3_3);
    }
    f0_0 = (f0_0 + f0_2);
    f0_1 = (f0_1 + f0_3);
    f0_0 = (f0_0 + f0_1);
    const float v4 = __shfl_down_sync(0xffffffffu, f0_0, 16);
    f0_0 = (f0_0 + v4);
    const float v5 = __shfl_down_sync(0xffffffffu, f0_0, 8);
    f0_0 = (f0_0 + v5);
    const float v6 = __shfl_down_sync(0xffffffffu, f0_0, 4);
    f0_0 = (f0_0 + v6);
    const float v7 = __shfl_down_sync(0xffffffffu, f0_0, 2);
    f0_0 = (f0_0 + v7);
    const float v8 = __shfl_down_sync(0xffffffffu, f0_0, 1);
    f0_0 = (f0_0 + v8);
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f0_0; }
    __syncthreads();
    f0_0 = s0[0];
    for (int w9 = 1; w9 < 4; ++w9) {
      const float v10 = s0[w9];
      f0_0 = (f0_0 + v10);
    }
    if (t == 0) {
      local2[1056] = f0_0;
    }
  }
}

struct P2 { float* out1; const float* local2; };
extern "C" __global__ void __launch_bounds__(256)
k2(const __grid_constant__ P2 p) {
  float* __restrict__ out1 = p.out1;
  const float* __restrict__ local2 = p.local2;
  __shared__ float s0[8];
  const int t = (int)(threadIdx.x);
  {
    float f0 = (-0x0p+0f);
    #pragma unroll 4
    for (int i1 = t; i1 < 1057; i1 += 256) {
      const float v2 = local2[i1];
      f0 = (f0 + v2);
    }
    const float v3 = __shfl_down_sync(0xffffffffu, f0, 16);
    f0 = (f0 + v3);
    const float v4 = __shfl_down_sync(0xffffffffu, f0, 8);
    f0 = (f0 + v4);
    const float v5 = __shfl_down_sync(0xffffffffu, f0, 4);
    f0 = (f0 + v5);
    const float v6 = __shfl_down_sync(0xffffffffu, f0, 2);
    f0 = (f0 + v6);
    const float v7 = __shfl_down_sync(0xffffffffu, f0, 1);
    f0 = (f0 + v7);
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f0; }
    __syncthreads();
    f0 = s0[0];
    for (int w8 = 1; w8 < 8; ++w8) {
      const float v9 = s0[w8];
      f0 = (f0 + v9);
    }
    if (t == 0) {
      out1[0] = f0;
    }
  }
}
