// k0: 488 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, work0
// k1: 1 x 1 x 1 blocks of 64 threads, 0 bytes, on work0, work2048
// k2: 488 x 1 x 1 blocks of 256 threads, 0 bytes, on output0, input0, work2048
// k3: 1 x 1 x 1 blocks of 128 threads, 0 bytes, on output0, input0, work2048
struct __align__(16) float_x4 { float at[4]; };
struct P0 { const float* in1; float* local2; };
extern "C" __global__ void __launch_bounds__(256)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in1 = p.in1;
  float* __restrict__ local2 = p.local2;
  __shared__ float s0[8];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 488; g += groups) {
    const int i0 = g;
    float f1_0 = (-0x0p+0f);
    float f1_1 = (-0x0p+0f);
    float f1_2 = (-0x0p+0f);
    float f1_3 = (-0x0p+0f);
    #pragma unroll 4
    for (int i2 = t * 4; i2 < 2048; i2 += 1024) {
      const float_x4 w3 = *(const float_x4*)(&in1[i0 * 2048 + i2]);
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
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f1_0; }
    __syncthreads();
    f1_0 = s0[0];
    for (int w10 = 1; w10 < 8; ++w10) {
      const float v11 = s0[w10];
      f1_0 = (f1_0 + v11);
    }
    if (t == 0) {
      local2[i0] = f1_0;
    }
  }
}

struct P1 { const float* local2; float* local3; };
extern "C" __global__ void __launch_bounds__(64)
k1(const __grid_constant__ P1 p) {
  const float* __restrict__ local2 = p.local2;
  float* __restrict__ local3 = p.local3;
  __shared__ float s0[2];
  const int t = (int)(threadIdx.x);
  {
    float f0 = (-0x0p+0f);
    for (int i1 = 0; i1 < 488; i1 += 256) {
      const bool inside = i1 + t * 4 < 488;
      const int i2 = inside ? i1 + t * 4 : 484;
      const float_x4 w3 = *(const float_x4*)(&local2[i2]);
      const float v4_0 = w3.at[0];
      const float v4_1 = w3.at[1];
      const float v4_2 = w3.at[2];
      const float v4_3 = w3.at[3];
      float f5 = inside ? v4_0 : (-0x0p+0f);
      float f6 = inside ? v4_1 : (-0x0p+0f);
      f6 = (f5 + f6);
      float f7 = inside ? v4_2 : (-0x0p+0f);
      f7 = (f6 + f7);
      float f8 = inside ? v4_3 : (-0x0p+0f);
      f8 = (f7 + f8);
      float f9 = f8;
      const float v10 = __shfl_up_sync(0xffffffffu, f9, 1);
      if (t % 32 >= 1) f9 = (v10 + f9);
      const float v11 = __shfl_up_sync(0xffffffffu, f9, 2);
      if (t % 32 >= 2) f9 = (v11 + f9);
      const float v12 = __shfl_up_sync(0xffffffffu, f9, 4);
      if (t % 32 >= 4) f9 = (v12 + f9);
      const float v13 = __shfl_up_sync(0xffffffffu, f9, 8);
      if (t % 32 >= 8) f9 = (v13 + f9);
      const float v14 = __shfl_up_sync(0xffffffffu, f9, 16);
      if (t % 32 >= 16) f9 = (v14 + f9);
      __syncthreads();
      if (t % 32 == 31) s0[t / 32] = f9;
      __syncthreads();
      float f15 = f0;
      #pragma unroll 4
      for (int w16 = 0; w16 < 2; ++w16) {
        const float v17 = s0[w16];
        if (w16 < t / 32) f15 = (f15 + v17);
        f0 = (f0 + v17);
      }
      const float v18 = __shfl_up_sync(0xffffffffu, f9, 1);
      const float v19 = t % 32 ? v18 : (-0x0p+0f);
      const float v20 = (f15 + v19);
      const float v21_0 = (v20 + f5);
      const float v21_1 = (v20 + f6);
      const float v21_2 = (v20 + f7);
      const float v21_3 = (v20 + f8);
      if (inside) {
        float_x4 w22;
        w22.at[0] = v21_0;
        w22.at[1] = v21_1;
        w22.at[2] = v21_2;
        w22.at[3] = v21_3;
        *(float_x4*)(&local3[i2]) = w22;
      }
    }
  }
}

struct P2 { float* out0; const float* in1; const float* local3; };
extern "C" __global__ void __launch_bounds__(256)
k2(const __grid_constant__ P2 p) {
  float* __restrict__ out0 = p.out0;
  const float* __restrict__ in1 = p.in1;
  const float* __restrict__ local3 = p.local3;
  __shared__ float s0[8];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 488; g += groups) {
    const int i0 = g;
    const bool v1 = (unsigned int)(i0 + (-1)) < 487u;
    const float v2 = v1 ? local3[i0 + (-1)] : 0x0p+0f;
    const float v3 = (v1 ? v2 : (-0x0p+0f));
    float f4 = (-0x0p+0f);
    for (int i5 = 0; i5 < 2048; i5 += 1024) {
      const bool inside = i5 + t * 4 < 2048;
      const int i6 = inside ? i5 + t * 4 : 2044;
      const float_x4 w7 = *(const float_x4*)(&in1[i0 * 2048 + i6]);
      const float v8_0 = w7.at[0];
      const float v8_1 = w7.at[1];
      const float v8_2 = w7.at[2];
      const float v8_3 = w7.at[3];
      float f9 = inside ? v8_0 : (-0x0p+0f);
      float f10 = inside ? v8_1 : (-0x0p+0f);
      f10 = (f9 + f10);
      float f11 = inside ? v8_2 : (-0x0p+0f);
      f11 = (f10 + f11);
      float f12 = inside ? v8_3 : (-0x0p+0f);
      f12 = (f11 + f12);
      float f13 = f12;
      const float v14 = __shfl_up_sync(0xffffffffu, f13, 1);
      if (t % 32 >= 1) f13 = (v14 + f13);
      const float v15 = __shfl_up_sync(0xffffffffu, f13, 2);
      if (t % 32 >= 2) f13 = (v15 + f13);
      const float v16 = __shfl_up_sync(0xffffffffu, f13, 4);
      if (t % 32 >= 4) f13 = (v16 + f13);
      const float v17 = __shfl_up_sync(0xffffffffu, f13, 8);
      if (t % 32 >= 8) f13 = (v17 + f13);
      const float v18 = __shfl_up_sync(0xffffffffu, f13, 16);
      if (t % 32 >= 16) f13 = (v18 + f13);
      __syncthreads();
      if (t % 32 == 31) s0[t / 32] = f13;
      __syncthreads();
      float f19 = f4;
      #pragma unroll 4
      for (int w20 = 0; w20 < 8; ++w20) {
        const float v21 = s0[w20];
        if (w20 < t / 32) f19 = (f19 + v21);
        f4 = (f4 + v21);
      }
      const float v22 = __shfl_up_sync(0xffffffffu, f13, 1);
      const float v23 = t % 32 ? v22 : (-0x0p+0f);
      const float v24 = (f19 + v23);
      const float v25_0 = (v24 + f9);
      const float v25_1 = (v24 + f10);
      const float v25_2 = (v24 + f11);
      const float v25_3 = (v24 + f12);
      const float v26_0 = (v3 + v25_0);
      const float v26_1 = (v3 + v25_1);
      const float v26_2 = (v3 + v25_2);
      const float v26_3 = (v3 + v25_3);
      if (inside) {
        float_x4 w27;
        w27.at[0] = v26_0;
        w27.at[1] = v26_1;
        w27.at[2] = v26_2;
        w27.at[3] = v26_3;
        *(float_x4*)(&out0[i0 * 2048 + i6]) = w27;
      }
    }
  }
}

struct P3 { float* out0; const float* in1; const float* local3; };
extern "C" __global__ void __launch_bounds__(128)
k3(const __grid_constant__ P3 p) {
  float* __restrict__ out0 = p.out0;
  const float* __restrict__ in1 = p.in1;
  const float* __restrict__ local3 = p.local3;
  __shared__ float s0[4];
  const int t = (int)(threadIdx.x);
  {
    const float v0 = local3[487];
    const float v1 = (true ? v0 : (-0x0p+0f));
    float f2 = (-0x0p+0f);
    for (int i3 = 0; i3 < 576; i3 += 512) {
      const bool inside = i3 + t * 4 < 576;
      const int i4 = inside ? i3 + t * 4 : 572;
      const float_x4 w5 = *(const float_x4*)(&in1[i4 + 999424]);
      const float v6_0 = w5.at[0];
      const float v6_1 = w5.at[1];
      const float v6_2 = w5.at[2];
      const float v6_3 = w5.at[3];
      float f7 = inside ? v6_0 : (-0x0p+0f);
      float f8 = inside ? v6_1 : (-0x0p+0f);
      f8 = (f7 + f8);
      float f9 = inside ? v6_2 : (-0x0p+0f);
      f9 = (f8 + f9);
      float f10 = inside ? v6_3 : (-0x0p+0f);
      f10 = (f9 + f10);
      float f11 = f10;
      const float v12 = __shfl_up_sync(0xffffffffu, f11, 1);
      if (t % 32 >= 1) f11 = (v12 + f11);
      const float v13 = __shfl_up_sync(0xffffffffu, f11, 2);
      if (t % 32 >= 2) f11 = (v13 + f11);
      const float v14 = __shfl_up_sync(0xffffffffu, f11, 4);
      if (t % 32 >= 4) f11 = (v14 + f11);
      const float v15 = __shfl_up_sync(0xffffffffu, f11, 8);
      if (t % 32 >= 8) f11 = (v15 + f11);
      const float v16 = __shfl_up_sync(0xffffffffu, f11, 16);
      if (t % 32 >= 16) f11 = (v16 + f11);
      __syncthreads();
      if (t % 32 == 31) s0[t / 32] = f11;
      __syncthreads();
      float f17 = f2;
      #pragma unroll 4
      for (int w18 = 0; w18 < 4; ++w18) {
        const float v19 = s0[w18];
        if (w18 < t / 32) f17 = (f17 + v19);
        f2 = (f2 + v19);
      }
      const float v20 = __shfl_up_sync(0xffffffffu, f11, 1);
      const float v21 = t % 32 ? v20 : (-0x0p+0f);
      const float v22 = (f17 + v21);
      const float v23_0 = (v22 + f7);
      const float v23_1 = (v22 + f8);
      const float v23_2 = (v22 + f9);
      const float v23_3 = (v22 + f10);
      const float v24_0 = (v1 + v23_0);
      const float v24_1 = (v1 + v23_1);
      const float v24_2 = (v1 + v23_2);
      const float v24_3 = (v1 + v23_3);
      if (inside) {
        float_x4 w25;
        w25.at[0] = v24_0;
        w25.at[1] = v24_1;
        w25.at[2] = v24_2;
        w25.at[3] = v24_3;
        *(float_x4*)(&out0[i4 + 999424]) = w25;
      }
    }
  }
}
