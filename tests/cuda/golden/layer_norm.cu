// k0: 512 x 1 x 1 blocks of 128 threads, 0 bytes, on input0, input1, input2, output0
struct P0 { const float* in0; const float* in1; const float* in2; float* out3; };
extern "C" __global__ void __launch_bounds__(128)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in0 = p.in0;
  const float* __restrict__ in1 = p.in1;
  const float* __restrict__ in2 = p.in2;
  float* __restrict__ out3 = p.out3;
  __shared__ float s0[4];
  __shared__ float s1[4];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 512; g += groups) {
    const int i0 = g;
    float f1 = (-0x0p+0f);
    float row4[6];
    #pragma unroll
    for (int q2 = 0; q2 < 6; ++q2) {
      const int i3 = (q2 * 128 + t);
      const float v4 = in0[i0 * 768 + i3];
      row4[q2] = v4;
      f1 = (f1 + v4);
    }
    const float v5 = __shfl_down_sync(0xffffffffu, f1, 16);
    f1 = (f1 + v5);
    const float v6 = __shfl_down_sync(0xffffffffu, f1, 8);
    f1 = (f1 + v6);
    const float v7 = __shfl_down_sync(0xffffffffu, f1, 4);
    f1 = (f1 + v7);
    const float v8 = __shfl_down_sync(0xffffffffu, f1, 2);
    f1 = (f1 + v8);
    const float v9 = __shfl_down_sync(0xffffffffu, f1, 1);
    f1 = (f1 + v9);
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f1; }
    __syncthreads();
    f1 = s0[0];
    for (int w10 = 1; w10 < 4; ++w10) {
      const float v11 = s0[w10];
      f1 = (f1 + v11);
    }
    const float v12 = (f1 / 0x1.8p+9f);
    float f13 = (-0x0p+0f);
    #pragma unroll
    for (int q14 = 0; q14 < 6; ++q14) {
      const int i15 = (q14 * 128 + t);
      const float v16 = row4[q14];
      const float v17 = (v16 - v12);
      const float v18 = (v17 * v17);
      f13 = (f13 + v18);
    }
    const float v19 = __shfl_down_sync(0xffffffffu, f13, 16);
    f13 = (f13 + v19);
    const float v20 = __shfl_down_sync(0xffffffffu, f13, 8);
    f13 = (f13 + v20);
    const float v21 = __shfl_down_sync(0xffffffffu, f13, 4);
    f13 = (f13 + v21);
    const float v22 = __shfl_down_sync(0xffffffffu, f13, 2);
    f13 = (f13 + v22);
    const float v23 = __shfl_down_sync(0xffffffffu, f13, 1);
    f13 = (f13 + v23);
    __syncthreads();
    if (t % 32 == 0) { s1[t / 32] = f13; }
    __syncthreads();
    f13 = s1[0];
    for (int w24 = 1; w24 < 4; ++w24) {
      const float v25 = s1[w24];
      f13 = (f13 + v25);
    }
    const float v26 = (f13 / 0x1.8p+9f);
    const float v27 = (v26 + 0x1.4f8b58p-17f);
    const float v28 = sqrtf(v27);
    #pragma unroll
    for (int q29 = 0; q29 < 6; ++q29) {
      const int i30 = (q29 * 128 + t);
      const float v31 = row4[q29];
      const float v32 = in1[i30];
      const float v33 = in2[i30];
      const float v34 = (v31 - v12);
      const float v35 = (v34 / v28);
      const float v36 = (v35 * v32);
      const float v37 = (v36 + v33);
      out3[i0 * 768 + i30] = v37;
    }
  }
}
