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
        const bool v6_0 = (v5_0 == __int_as_float(0x7f800000));
        const bool v6_1 = (v5_1 == __int_as_float(0x7f800000));
        const bool v6_2 = (v5_2 == __int_as_float(0x7f800000));
        const bool v6_3 = (v5_3 == __int_as_float(0x7f800000));
        const float v7_0 = (v6_0 ? 0x1.fffffep+127f : v5_0);
        const float v7_1 = (v6_1 ? 0x1.fffffep+127f : v5_1);
        const float v7_2 = (v6_2 ? 0x1.fffffep+127f : v5_2);
        const float v7_3 = (v6_3 ? 0x1.fffffep+127f : v5_3);
        row2[q2 * 4 + 0] = v7_0;
        row2[q2 * 4 + 1] = v7_1;
        row2[q2 * 4 + 2] = v7_2;
        row2[q2 * 4 + 3] = v7_3;
        f1_0 = (f1_0 > v7_0 || f1_0 != f1_0 ? f1_0 : v7_0);
        f1_1 = (f1_1 > v7_1 || f1_1 != f1_1 ? f1_1 : v7_1);
        f1_2 = (f1_2 > v7_2 || f1_2 != f1_2 ? f1_2 : v7_2);
        f1_3 = (f1_3 > v7_3 || f1_3 != f1_3 ? f1_3 : v7_3);
      }
    }
    f1_0 = (f1_0 > f1_2 || f1_0 != f1_0 ? f1_0 : f1_2);
    f1_1 = (f1_1 > f1_3 || f1_1 != f1_1 ? f1_1 : f1_3);
    f1_0 = (f1_0 > f1_1 || f1_0 != f1_0 ? f1_0 : f1_1);
    const float v8 = __shfl_down_sync(0xffffffffu, f1_0, 16);
    f1_0 = (f1_0 > v8 || f1_0 != f1_0 ? f1_0 : v8);
    const float v9 = __shfl_down_sync(0xffffffffu, f1_0, 8);
    f1_0 = (f1_0 > v9 || f1_0 != f1_0 ? f1_0 : v9);
    const float v10 = __shfl_down_sync(0xffffffffu, f1_0, 4);
    f1_0 = (f1_0 > v10 || f1_0 != f1_0 ? f1_0 : v10);
    const float v11 = __shfl_down_sync(0xffffffffu, f1_0, 2);
    f1_0 = (f1_0 > v11 || f1_0 != f1_0 ? f1_0 : v11);
    const float v12 = __shfl_down_sync(0xffffffffu, f1_0, 1);
    f1_0 = (f1_0 > v12 || f1_0 != f1_0 ? f1_0 : v12);
    __syncthreads();
    if (t % 32 == 0) { s0[t / 32] = f1_0; }
    __syncthreads();
    f1_0 = s0[0];
    for (int w13 = 1; w13 < 4; ++w13) {
      const float v14 = s0[w13];
      f1_0 = (f1_0 > v14 || f1_0 != f1_0 ? f1_0 : v14);
    }
    const bool v15 = (fabsf(f1_0) <= 0x1.fffffep+127f);
    const float v16 = (v15 ? f1_0 : 0x0p+0f);
    float f17_0 = (-0x0p+0f);
    float f17_1 = (-0x0p+0f);
    float f17_2 = (-0x0p+0f);
    float f17_3 = (-0x0p+0f);
    #pragma unroll
    for (int q18 = 0; q18 < 2; ++q18) {
      const int i19 = (q18 * 128 + t) * 4;
      if (i19 < 1000) {
        const float v20_0 = row2[q18 * 4 + 0];
        const float v20_1 = row2[q18 * 4 + 1];
        const float v20_2 = row2[q18 * 4 + 2];
        const float v20_3 = row2[q18 * 4 + 3];
        const float v21_0 = (v20_0 - v16);
        const float v21_1 = (v20_1 - v16);
        const float v21_2 = (v20_2 - v16);
        const float v21_3 = (v20_3 - v16);
        const bool v22_0 = (v21_0 > 0x1.64p+6f);
        const bool v22_1 = (v21_1 > 0x1.64p+6f);
        const bool v22_2 = (v21_2 > 0x1.64p+6f);
        const bool v22_3 = (v21_3 > 0x1.64p+6f);
        const float v23_0 = (v22_0 ? 0x1.64p+6f : v21_0);
        const float v23_1 = (v22_1 ? 0x1.64p+6f : v21_1);
        const float v23_2 = (v22_2 ? 0x1.64p+6f : v21_2);
        const float v23_3 = (v22_3 ? 0x1.64p+6f : v21_3);
        const bool v24_0 = (v23_0 < (-0x1.ap+6f));
        const bool v24_1 = (v23_1 < (-0x1.ap+6f));
        const bool v24_2 = (v23_2 < (-0x1.ap+6f));
        const bool v24_3 = (v23_3 < (-0x1.ap+6f));
        const float v25_0 = (v24_0 ? (-0x1.ap+6f) : v23_0);
        const float v25_1 = (v24_1 ? (-0x1.ap+6f) : v23_1);
        const float v25_2 = (v24_2 ? (-0x1.ap+6f) : v23_2);
        const float v25_3 = (v24_3 ? (-0x1.ap+6f) : v23_3);
        const float v26_0 = fmaf(v25_0, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v26_1 = fmaf(v25_1, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v26_2 = fmaf(v25_2, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v26_3 = fmaf(v25_3, 0x1.715476p+0f, 0x1.8001fcp+23f);
        const float v27_0 = (v26_0 - 0x1.8001fcp+23f);
        const float v27_1 = (v26_1 - 0x1.8001fcp+23f);
        const float v27_2 = (v26_2 - 0x1.8001fcp+23f);
        const float v27_3 = (v26_3 - 0x1.8001fcp+23f);
        const float v28_0 = fmaf(v27_0, (-0x1.62e43p-1f), v25_0);
        const float v28_1 = fmaf(v27_1, (-0x1.62e43p-1f), v25_1);
        const float v28_2 = fmaf(v27_2, (-0x1.62e43p-1f), v25_2);
        const float v28_3 = fmaf(v27_3, (-0x1.62e43p-1f), v25_3);
        const float v29_0 = fmaf(v27_0, 0x1.05c61p-29f, v28_0);
        const float v29_1 = fmaf(v27_1, 0x1.05c61p-29f, v28_1);
        const float v29_2 = fmaf(v27_2, 0x1.05c61p-29f, v28_2);
        const float v29_3 = fmaf(v27_3, 0x1.05c61p-29f, v28_3);
        const float v30_0 = fmaf(0x1.6beafcp-10f, v29_0, 0x1.1227f8p-7f);
        const float v30_1 = fmaf(0x1.6beafcp-10f, v29_1, 0x1.1227f8p-7f);
        const float v30_2 = fmaf(0x1.6beafcp-10f, v29_2, 0x1.1227f8p-7f);
        const float v30_3 = fmaf(0x1.6beafcp-10f, v29_3, 0x1.1227f8p-7f);
        const float v31_0 = fmaf(v30_0, v29_0, 0x1.555676p-5f);
        const float v31_1 = fmaf(v30_1, v29_1, 0x1.555676p-5f);
        const float v31_2 = fmaf(v30_2, v29_2, 0x1.555676p-5f);
        const float v31_3 = fmaf(v30_3, v29_3, 0x1.555676p-5f);
        const float v32_0 = fmaf(v31_0, v29_0, 0x1.5554bp-3f);
        const float v32_1 = fmaf(v31_1, v29_1, 0x1.5554bp-3f);
        const float v32_2 = fmaf(v31_2, v29_2, 0x1.5554bp-3f);
        const float v32_3 = fmaf(v31_3, v29_3, 0x1.5554bp-3f);
        const float v33_0 = fmaf(v32_0, v29_0, 0x1.fffffep-2f);
        const float v33_1 = fmaf(v32_1, v29_1, 0x1.fffffep-2f);
        const float v33_2 = fmaf(v32_2, v29_2, 0x1.fffffep-2f);
        const float v33_3 = fmaf(v32_3, v29_3, 0x1.fffffep-2f);
        const float v34_0 = fmaf(v29_0, v33_0, 0x1p+0f);
        const float v34_1 = fmaf(v29_1, v33_1, 0x1p+0f);
        const float v34_2 = fmaf(v29_2, v33_2, 0x1p+0f);
        const float v34_3 = fmaf(v29_3, v33_3, 0x1p+0f);
        const float v35_0 = fmaf(v29_0, v34_0, 0x1p+0f);
        const float v35_1 = fmaf(v29_1, v34_1, 0x1p+0f);
        const float v35_2 = fmaf(v29_2, v34_2, 0x1p+0f);
        const float v35_3 = fmaf(v29_3, v34_3, 0x1p+0f);
        const unsigned int v36_0 = (unsigned int)__float_as_int(v26_0);
        const unsigned int v36_1 = (unsigned int)__float_as_int(v26_1);
        const unsigned int v36_2 = (unsigned int)__float_as_int(v26_2);
        const unsigned int v36_3 = (unsigned int)__float_as_int(v26_3);
        const unsigned int v37_0 = (unsigned int)((unsigned int)v36_0 >> 1);
        const unsigned int v37_1 = (unsigned int)((unsigned int)v36_1 >> 1);
        const unsigned int v37_2 = (unsigned int)((unsigned int)v36_2 >> 1);
        const unsigned int v37_3 = (unsigned int)((unsigned int)v36_3 >> 1);
        const unsigned int v38_0 = (unsigned int)((unsigned int)v37_0 << 23);
        const unsigned int v38_1 = (unsigned int)((unsigned int)v37_1 << 23);
        const unsigned int v38_2 = (unsigned int)((unsigned int)v37_2 << 23);
        const unsigned int v38_3 = (unsigned int)((unsigned int)v37_3 << 23);
        const float v39_0 = __int_as_float((int)v38_0);
        const float v39_1 = __int_as_float((int)v38_1);
        const float v39_2 = __int_as_float((int)v38_2);
        const float v39_3 = __int_as_float((int)v38_3);
        const unsigned int v40_0 = (unsigned int)((unsigned int)v36_0 - (unsigned int)v37_0);
        const unsigned int v40_1 = (unsigned int)((unsigned int)v36_1 - (unsigned int)v37_1);
        const unsigned int v40_2 = (unsigned int)((unsigned int)v36_2 - (unsigned int)v37_2);
        const unsigned int v40_3 = (unsigned int)((unsigned int)v36_3 - (unsigned int)v37_3);
        const unsigned int v41_0 = (unsigned int)((unsigned int)v40_0 << 23);
        const unsigned int v41_1 = (unsigned int)((unsigned int)v40_1 << 23);
        const unsigned int v41_2 = (unsigned int)((unsigned int)v40_2 << 23);
        const unsigned int v41_3 = (unsigned int)((unsigned int)v40_3 << 23);
        const float v42_0 = __int_as_float((int)v41_0);
        const float v42_1 = __int_as_float((int)v41_1);
        const float v42_2 = __int_as_float((int)v41_2);
        const float v42_3 = __int_as_float((int)v41_3);
        const float v43_0 = (v35_0 * v39_0);
        const float v43_1 = (v35_1 * v39_1);
        const float v43_2 = (v35_2 * v39_2);
        const float v43_3 = (v35_3 * v39_3);
        const float v44_0 = (v43_0 * v42_0);
        const float v44_1 = (v43_1 * v42_1);
        const float v44_2 = (v43_2 * v42_2);
        const float v44_3 = (v43_3 * v42_3);
        row3[q18 * 4 + 0] = v44_0;
        row3[q18 * 4 + 1] = v44_1;
        row3[q18 * 4 + 2] = v44_2;
        row3[q18 * 4 + 3] = v44_3;
        f17_0 = (f17_0 + v44_0);
        f17_1 = (f17_1 + v44_1);
        f17_2 = (f17_2 + v44_2);
        f17_3 = (f17_3 + v44_3);
      }
    }
    f17_0 = (f17_0 + f17_2);
    f17_1 = (f17_1 + f17_3);
    f17_0 = (f17_0 + f17_1);
    const float v45 = __shfl_down_sync(0xffffffffu, f17_0, 16);
    f17_0 = (f17_0 + v45);
    const float v46 = __shfl_down_sync(0xffffffffu, f17_0, 8);
    f17_0 = (f17_0 + v46);
    const float v47 = __shfl_down_sync(0xffffffffu, f17_0, 4);
    f17_0 = (f17_0 + v47);
    const float v48 = __shfl_down_sync(0xffffffffu, f17_0, 2);
    f17_0 = (f17_0 + v48);
    const float v49 = __shfl_down_sync(0xffffffffu, f17_0, 1);
    f17_0 = (f17_0 + v49);
    __syncthreads();
    if (t % 32 == 0) { s1[t / 32] = f17_0; }
    __syncthreads();
    f17_0 = s1[0];
    for (int w50 = 1; w50 < 4; ++w50) {
      const float v51 = s1[w50];
      f17_0 = (f17_0 + v51);
    }
    #pragma unroll
    for (int q52 = 0; q52 < 2; ++q52) {
      const int i53 = (q52 * 128 + t) * 4;
      if (i53 < 1000) {
        const float v54_0 = row3[q52 * 4 + 0];
        const float v54_1 = row3[q52 * 4 + 1];
        const float v54_2 = row3[q52 * 4 + 2];
        const float v54_3 = row3[q52 * 4 + 3];
        const float v55_0 = (v54_0 / f17_0);
        const float v55_1 = (v54_1 / f17_0);
        const float v55_2 = (v54_2 / f17_0);
        const float v55_3 = (v54_3 / f17_0);
        float_x4 w56;
        w56.at[0] = v55_0;
        w56.at[1] = v55_1;
        w56.at[2] = v55_2;
        w56.at[3] = v55_3;
        *(float_x4*)(&out1[i0 * 1000 + i53]) = w56;
      }
    }
  }
}
