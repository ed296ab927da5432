// k0: 1024 x 1 x 1 blocks of 128 threads, 0 bytes, on input0, output0
struct __align__(16) float_x4 { float at[4]; };
struct P0 { const float* in0; float* out1; };
extern "C" __global__ void __launch_bounds__(128)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in0 = p.in0;
  float* __restrict__ out1 = p.out1;
  __shared__ float s0[4];
  __shared__ float s1[4];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 1024; g += groups) {
    const int i0 = g;
    float f1_0 = __int_as_float(-0x800000);
    float f1_1 = __int_as_float(-0x800000);
    float f1_2 = __int_as_float(-0x800000);
    float f1_3 = __int_as_float(-0x800000);
    float row2[8];
    float row3[8];
    #pragma unroll
    for (int q2 = 0; q2 < 2; ++q2) {
      const int i3 = (q2 * 128 + t) * 4;
      if (i3 < 1000) {
        const float_x4 w4 = *(const float_x4*)(&in0[i0 * 1000 + i3]);
        const float v5_0 = w4.at[0];
        const float v5_1 = w4.at[1];
        const float v5_2 = w4.at[2];
        const float v5_3 = w4.at[3];
        row2[q2 * 4 + 0] = v5_0;
        row2[q2 * 4 + 1] = v5_1;
        row2[q2 * 4 + 2] = v5_2;
        row2[q2 * 4 + 3] = v5_3;
        f1_0 = (f1_0 > v5_0 || f1_0 != f1_0 ? f1_0 : v5_0);
        f1_1 = (f1_1 > v5_1 || f1_1 != f1_1 ? f1_1 : v5_1);
        f1_2 = (f1_2 > v5_2 || f1_2 != f1_2 ? f1_2 : v5_2);
        f1_3 = (f1_3 > v5_3 || f1_3 != f1_3 ? f1_3 : v5_3);
      }
    }
    f1_0 = (f1_0 > f1_2 || f1_0 != f1_0 ? f1_0 : f1_2);
    f1_1 = (f1_1 > f1_3 || f1_1 != f1_1 ? f1_1 : f1_3);
    f1_0 = (f1_0 > f1_1 || f1_0 != f1_0 ? f1_0 : f1_1);
    const float v6 = __shfl_down_sync(0xffffffffu, f1_0, 16);
    f1_0 = (f1_0 > v6 || f1_0 != f1_0 ? f1_0 : v6);
    const float v7 = __shfl_down_sync(0xffffffffu, f1_0, 8);
    f1_0 = (f1_0 > v7 || f1_0 != f1_0 ? f1_0 : v7);
    const float v8 = __shfl_down_sync(0xffffffffu, f1_0, 4);
    f1_0 = (f1_0 > v8 || f1_0 != f1_0 ? f1_0 : v8);
    const float v9 = __shfl_down_sync(0xffffffffu, f1_0, 2);
    f1_0 = (f1_0 > v9 || f1_0 != f1_0 ? f1_0 : v9);
    const float v10 = __shfl_down_sync(0xffffffffu, f1_0, 1);
    f1_0 = (f1_0 > v10 || f1_0 != f1_0 ? f1_0 : v10);
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f1_0; }
    __syncthreads();
    f1_0 = s0[0];
    for (int w11 = 1; w11 < 4; ++w11) {
      const float v12 = s0[w11];
      f1_0 = (f1_0 > v12 || f1_0 != f1_0 ? f1_0 : v12);
    }
    const bool v13 = (fabsf(f1_0) <= 0x1.fffffep+127f);
    const float v14 = (v13 ? f1_0 : 0x0p+0f);
    float f15_0 = (-0x0p+0f);
    float f15_1 = (-0x0p+0f);
    float f15_2 = (-0x0p+0f);
    float f15_3 = (-0x0p+0f);
    #pragma unroll
    for (int q16 = 0; q16 < 2; ++q16) {
      const int i17 = (q16 * 128 + t) * 4;
      if (i17 < 1000) {
        const float v18_0 = row2[q16 * 4 + 0];
        const float v18_1 = row2[q16 * 4 + 1];
        const float v18_2 = row2[q16 * 4 + 2];
        const float v18_3 = row2[q16 * 4 + 3];
        const float v19_0 = (v18_0 - v14);
        const float v19_1 = (v18_1 - v14);
        const float v19_2 = (v18_2 - v14);
        const float v19_3 = (v18_3 - v14);
        const bool v20_0 = (v19_0 > 0x1.64p+6f);
        const bool v20_1 = (v19_1 > 0x1.64p+6f);
        const bool v20_2 = (v19_2 > 0x1.64p+6f);
        const bool v20_3 = (v19_3 > 0x1.64p+6f);
        const float v21_0 = (v20_0 ? 0x1.64p+6f : v19_0);
        const float v21_1 = (v20_1 ? 0x1.64p+6f : v19_1);
        const float v21_2 = (v20_2 ? 0x1.64p+6f : v19_2);
        const float v21_3 = (v20_3 ? 0x1.64p+6f : v19_3);
        const bool v22_0 = (v21_0 < (-0x1.ap+6f));
        const bool v22_1 = (v21_1 < (-0x1.ap+6f));
        const bool v22_2 = (v21_2 < (-0x1.ap+6f));
        const bool v22_3 = (v21_3 < (-0x1.ap+6f));
        const float v23_0 = (v22_0 ? (-0x1.ap+6f) : v21_0);
        const float v23_1 = (v22_1 ? (-0x1.ap+6f) : v21_1);
        const float v23_2 = (v22_2 ? (-0x1.ap+6f) : v21_2);
        const float v23_3 = (v22_3 ? (-0x1.ap+6f) : v21_3);
        const float v24_0 = fmaf(v23_0, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v24_1 = fmaf(v23_1, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v24_2 = fmaf(v23_2, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v24_3 = fmaf(v23_3, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v25_0 = (v24_0 - 0x1.8001fcp+23f);
        const float v25_1 = (v24_1 - 0x1.8001fcp+23f);
        const float v25_2 = (v24_2 - 0x1.8001fcp+23f);
        const float v25_3 = (v24_3 - 0x1.8001fcp+23f);
        const float v26_0 = fmaf(v25_0, (-0x1.62e43p-1f), v23_0);
        const float v26_1 = fmaf(v25_1, (-0x1.62e43p-1f), v23_1);
        const float v26_2 = fmaf(v25_2, (-0x1.62e43p-1f), v23_2);
        const float v26_3 = fmaf(v25_3, (-0x1.62e43p-1f), v23_3);
        const float v27_0 = fmaf(v25_0, 0x1.05c61p-29f, v26_0);
        const float v27_1 = fmaf(v25_1, 0x1.05c61p-29f, v26_1);
        const float v27_2 = fmaf(v25_2, 0x1.05c61p-29f, v26_2);
        const float v27_3 = fmaf(v25_3, 0x1.05c61p-29f, v26_3);
        const float v28_0 = fmaf(0x1.6beafcp-10f, v27_0, 0x1.1227f8p-7f);
        const float v28_1 = fmaf(0x1.6beafcp-10f, v27_1, 0x1.1227f8p-7f);
        const float v28_2 = fmaf(0x1.6beafcp-10f, v27_2, 0x1.1227f8p-7f);
        const float v28_3 = fmaf(0x1.6beafcp-10f, v27_3, 0x1.1227f8p-7f);
        const float v29_0 = fmaf(v28_0, v27_0, 0x1.555676p-5f);
        const float v29_1 = fmaf(v28_1, v27_1, 0x1.555676p-5f);
        const float v29_2 = fmaf(v28_2, v27_2, 0x1.555676p-5f);
        const float v29_3 = fmaf(v28_3, v27_3, 0x1.555676p-5f);
        const float v30_0 = fmaf(v29_0, v27_0, 0x1.5554bp-3f);
        const float v30_1 = fmaf(v29_1, v27_1, 0x1.5554bp-3f);
        const float v30_2 = fmaf(v29_2, v27_2, 0x1.5554bp-3f);
        const float v30_3 = fmaf(v29_3, v27_3, 0x1.5554bp-3f);
        const float v31_0 = fmaf(v30_0, v27_0, 0x1.fffffep-2f);
        const float v31_1 = fmaf(v30_1, v27_1, 0x1.fffffep-2f);
        const float v31_2 = fmaf(v30_2, v27_2, 0x1.fffffep-2f);
        const float v31_3 = fmaf(v30_3, v27_3, 0x1.fffffep-2f);
        const float v32_0 = fmaf(v27_0, v31_0, 0x1p+0f);
        const float v32_1 = fmaf(v27_1, v31_1, 0x1p+0f);
        const float v32_2 = fmaf(v27_2, v31_2, 0x1p+0f);
        const float v32_3 = fmaf(v27_3, v31_3, 0x1p+0f);
        const float v33_0 = fmaf(v27_0, v32_0, 0x1p+0f);
        const float v33_1 = fmaf(v27_1, v32_1, 0x1p+0f);
        const float v33_2 = fmaf(v27_2, v32_2, 0x1p+0f);
        const float v33_3 = fmaf(v27_3, v32_3, 0x1p+0f);
        const unsigned int v34_0 = (unsigned int)__float_as_int(v24_0);
        const unsigned int v34_1 = (unsigned int)__float_as_int(v24_1);
        const unsigned int v34_2 = (unsigned int)__float_as_int(v24_2);
        const unsigned int v34_3 = (unsigned int)__float_as_int(v24_3);
        const unsigned int v35_0 = (unsigned int)((unsigned int)v34_0 >> 1);
        const unsigned int v35_1 = (unsigned int)((unsigned int)v34_1 >> 1);
        const unsigned int v35_2 = (unsigned int)((unsigned int)v34_2 >> 1);
        const unsigned int v35_3 = (unsigned int)((unsigned int)v34_3 >> 1);
        const unsigned int v36_0 = (unsigned int)((unsigned int)v35_0 << 23);
        const unsigned int v36_1 = (unsigned int)((unsigned int)v35_1 << 23);
        const unsigned int v36_2 = (unsigned int)((unsigned int)v35_2 << 23);
        const unsigned int v36_3 = (unsigned int)((unsigned int)v35_3 << 23);
        const float v37_0 = __int_as_float((int)v36_0);
        const float v37_1 = __int_as_float((int)v36_1);
        const float v37_2 = __int_as_float((int)v36_2);
        const float v37_3 = __int_as_float((int)v36_3);
        const unsigned int v38_0 = (unsigned int)((unsigned int)v34_0 - (unsigned int)v35_0);
        const unsigned int v38_1 = (unsigned int)((unsigned int)v34_1 - (unsigned int)v35_1);
        const unsigned int v38_2 = (unsigned int)((unsigned int)v34_2 - (unsigned int)v35_2);
        const unsigned int v38_3 = (unsigned int)((unsigned int)v34_3 - (unsigned int)v35_3);
        const unsigned int v39_0 = (unsigned int)((unsigned int)v38_0 << 23);
        const unsigned int v39_1 = (unsigned int)((unsigned int)v38_1 << 23);
        const unsigned int v39_2 = (unsigned int)((unsigned int)v38_2 << 23);
        const unsigned int v39_3 = (unsigned int)((unsigned int)v38_3 << 23);
        const float v40_0 = __int_as_float((int)v39_0);
        const float v40_1 = __int_as_float((int)v39_1);
        const float v40_2 = __int_as_float((int)v39_2);
        const float v40_3 = __int_as_float((int)v39_3);
        const float v41_0 = (v33_0 * v37_0);
        const float v41_1 = (v33_1 * v37_1);
        const float v41_2 = (v33_2 * v37_2);
        const float v41_3 = (v33_3 * v37_3);
        const float v42_0 = (v41_0 * v40_0);
        const float v42_1 = (v41_1 * v40_1);
        const float v42_2 = (v41_2 * v40_2);
        const float v42_3 = (v41_3 * v40_3);
        row3[q16 * 4 + 0] = v42_0;
        row3[q16 * 4 + 1] = v42_1;
        row3[q16 * 4 + 2] = v42_2;
        row3[q16 * 4 + 3] = v42_3;
        f15_0 = (f15_0 + v42_0);
        f15_1 = (f15_1 + v42_1);
        f15_2 = (f15_2 + v42_2);
        f15_3 = (f15_3 + v42_3);
      }
    }
    f15_0 = (f15_0 + f15_2);
    f15_1 = (f15_1 + f15_3);
    f15_0 = (f15_0 + f15_1);
    const float v43 = __shfl_down_sync(0xffffffffu, f15_0, 16);
    f15_0 = (f15_0 + v43);
    const float v44 = __shfl_down_sync(0xffffffffu, f15_0, 8);
    f15_0 = (f15_0 + v44);
    const float v45 = __shfl_down_sync(0xffffffffu, f15_0, 4);
    f15_0 = (f15_0 + v45);
    const float v46 = __shfl_down_sync(0xffffffffu, f15_0, 2);
    f15_0 = (f15_0 + v46);
    const float v47 = __shfl_down_sync(0xffffffffu, f15_0, 1);
    f15_0 = (f15_0 + v47);
    __syncthreads();
    if (t % 32 == 0) { s1[t / 32] = f15_0; }
    __syncthreads();
    f15_0 = s1[0];
    for (int w48 = 1; w48 < 4; ++w48) {
      const float v49 = s1[w48];
      f15_0 = (f15_0 + v49);
    }
    #pragma unroll
    for (int q50 = 0; q50 < 2; ++q50) {
      const int i51 = (q50 * 128 + t) * 4;
      if (i51 < 1000) {
        const float v52_0 = row3[q50 * 4 + 0];
        const float v52_1 = row3[q50 * 4 + 1];
        const float v52_2 = row3[q50 * 4 + 2];
        const float v52_3 = row3[q50 * 4 + 3];
        const float v53_0 = (v52_0 / f15_0);
        const float v53_1 = (v52_1 / f15_0);
        const float v53_2 = (v52_2 / f15_0);
        const float v53_3 = (v52_3 / f15_0);
        float_x4 w54;
        w54.at[0] = v53_0;
        w54.at[1] = v53_1;
        w54.at[2] = v53_2;
        w54.at[3] = v53_3;
        *(float_x4*)(&out1[i0 * 1000 + i51]) = w54;
      }
    }
  }
}
