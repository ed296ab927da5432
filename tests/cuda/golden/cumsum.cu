// k0: 64 x 1 x 1 blocks of 512 threads, 0 bytes, on output0, input0
struct __align__(16) float_x4 { float at[4]; };
struct P0 { float* out0; const float* in1; };
extern "C" __global__ void __launch_bounds__(512)
k0(const __grid_constant__ P0 p) {
  float* __restrict__ out0 = p.out0;
  const float* __restrict__ in1 = p.in1;
  __shared__ float s0[16];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 64; g += groups) {
    const int i0 = g;
    float f1 = (-0x0p+0f);
    for (int i2 = 0; i2 < 5000; i2 += 2048) {
      const bool inside = i2 + t * 4 < 5000;
      const int i3 = inside ? i2 + t * 4 : 4996;
      const float_x4 w4 = *(const float_x4*)(&in1[i0 * 5000 + i3]);
      const float v5_0 = w4.at[0];
      const float v5_1 = w4.at[1];
      const float v5_2 = w4.at[2];
      const float v5_3 = w4.at[3];
      float f6 = inside ? v5_0 : (-0x0p+0f);
      float f7 = inside ? v5_1 : (-0x0p+0f);
      f7 = (f6 + f7);
      float f8 = inside ? v5_2 : (-0x0p+0f);
      f8 = (f7 + f8);
      float f9 = inside ? v5_3 : (-0x0p+0f);
      f9 = (f8 + f9);
      float f10 = f9;
      const float v11 = __shfl_up_sync(0xffffffffu, f10, 1);
      if (t % 32 >= 1) f10 = (v11 + f10);
      const float v12 = __shfl_up_sync(0xffffffffu, f10, 2);
      if (t % 32 >= 2) f10 = (v12 + f10);
      const float v13 = __shfl_up_sync(0xffffffffu, f10, 4);
      if (t % 32 >= 4) f10 = (v13 + f10);
      const float v14 = __shfl_up_sync(0xffffffffu, f10, 8);
      if (t % 32 >= 8) f10 = (v14 + f10);
      const float v15 = __shfl_up_sync(0xffffffffu, f10, 16);
      if (t % 32 >= 16) f10 = (v15 + f10);
      __syncthreads();
      if (t % 32 == 31) s0[t / 32] = f10;
      __syncthreads();
      float f16 = f1;
      #pragma unroll 4
      for (int w17 = 0; w17 < 16; ++w17) {
        const float v18 = s0[w17];
        if (w17 < t / 32) f16 = (f16 + v18);
        f1 = (f1 + v18);
      }
      const float v19 = __shfl_up_sync(0xffffffffu, f10, 1);
      const float v20 = t % 32 ? v19 : (-0x0p+0f);
      const float v21 = (f16 + v20);
      const float v22_0 = (v21 + f6);
      const float v22_1 = (v21 + f7);
      const float v22_2 = (v21 + f8);
      const float v22_3 = (v21 + f9);
      if (inside) {
        float_x4 w23;
        w23.at[0] = v22_0;
        w23.at[1] = v22_1;
        w23.at[2] = v22_2;
        w23.at[3] = v22_3;
        *(float_x4*)(&out0[i0 * 5000 + i3]) = w23;
      }
    }
  }
}
