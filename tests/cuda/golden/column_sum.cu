// k0: 128 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, work0
// k1: 64 x 1 x 1 blocks of 128 threads, 0 bytes, on output0, work0
struct __align__(16) float_x4 { float at[4]; };
struct P0 { const float* in0; float* local2; };
extern "C" __global__ void __launch_bounds__(256)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in0 = p.in0;
  float* __restrict__ local2 = p.local2;
  const int groups = (int)gridDim.x * 256;
  for (int g = (int)blockIdx.x * 256 + (int)threadIdx.x; g < 32768; g += groups) {
    const int i0 = (int)((unsigned int)g % 256u);
    const int i1 = (int)((unsigned int)g / 256u);
    float f2 = (-0x0p+0f);
    #pragma unroll 4
    for (int i3 = 0; i3 < 32; i3 += 1) {
      const float v4 = in0[i0 + i1 * 8192 + i3 * 256];
      f2 = (f2 + v4);
    }
    local2[i0 * 128 + i1] = f2;
  }
}

struct P1 { float* out1; const float* local2; };
extern "C" __global__ void __launch_bounds__(128)
k1(const __grid_constant__ P1 p) {
  float* __restrict__ out1 = p.out1;
  const float* __restrict__ local2 = p.local2;
  const int t = (int)(threadIdx.x % 32u);
  const int groups = (int)gridDim.x * 4;
  for (int g = (int)blockIdx.x * 4 + (int)(threadIdx.x / 32u); g < 256; g += groups) {
    const int i0 = g;
    float f1_0 = (-0x0p+0f);
    float f1_1 = (-0x0p+0f);
    float f1_2 = (-0x0p+0f);
    float f1_3 = (-0x0p+0f);
    #pragma unroll 4
    for (int i2 = t * 4; i2 < 128; i2 += 128) {
      const float_x4 w3 = *(const float_x4*)(&local2[i0 * 128 + i2]);
      const float v4_0 = w3.at[0];
      const float v4_1 = w3.at[1];
      const float v4_2 = w3.at[2];
      const float v4_3 = w3.at[3];
      f1_0 = (f1_0 + v4_0);
      f1_1 = (f1_1 + v4_1);
      f1_2 = (f1_2 + v4_2);
      f1_3 = (f1_3 + v4_3);
    }
    f1_0 = (f1_0 + f1_2);
    f1_1 = (f1_1 + f1_3);
    f1_0 = (f1_0 + f1_1);
    const float v5 = __shfl_down_sync(0xffffffffu, f1_0, 16);
    f1_0 = (f1_0 + v5);
    const float v6 = __shfl_down_sync(0xffffffffu, f1_0, 8);
    f1_0 = (f1_0 + v6);
    const float v7 = __shfl_down_sync(0xffffffffu, f1_0, 4);
    f1_0 = (f1_0 + v7);
    const float v8 = __shfl_down_sync(0xffffffffu, f1_0, 2);
    f1_0 = (f1_0 + v8);
    const float v9 = __shfl_down_sync(0xffffffffu, f1_0, 1);
    f1_0 = (f1_0 + v9);
    f1_0 = __shfl_sync(0xffffffffu, f1_0, 0);
    if (t == 0) {
      out1[i0] = f1_0;
    }
  }
}
