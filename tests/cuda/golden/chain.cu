// k0: 977 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, input1, output0
struct __align__(16) float_x4 { float at[4]; };
struct P0 { const float* in0; const float* in1; float* out2; };
extern "C" __global__ void __launch_bounds__(256)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in0 = p.in0;
  const float* __restrict__ in1 = p.in1;
  float* __restrict__ out2 = p.out2;
  const int groups = (int)gridDim.x * 256;
  for (int g = (int)blockIdx.x * 256 + (int)threadIdx.x; g < 250000; g += groups) {
    const int i0 = g * 4;
    const float_x4 w1 = *(const float_x4*)(&in0[i0]);
    const float v2_0 = w1.at[0];
    const float v2_1 = w1.at[1];
    const float v2_2 = w1.at[2];
    const float v2_3 = w1.at[3];
    const float_x4 w3 = *(const float_x4*)(&in1[i0]);
    const float v4_0 = w3.at[0];
    const float v4_1 = w3.at[1];
    const float v4_2 = w3.at[2];
    const float v4_3 = w3.at[3];
    const float v5_0 = (v2_0 * v4_0);
    const float v5_1 = (v2_1 * v4_1);
    const float v5_2 = (v2_2 * v4_2);
    const float v5_3 = (v2_3 * v4_3);
    const float v6_0 = (v5_0 + 0x1p+1f);
    const float v6_1 = (v5_1 + 0x1p+1f);
    const float v6_2 = (v5_2 + 0x1p+1f);
    const float v6_3 = (v5_3 + 0x1p+1f);
    const float v7_0 = (v6_0 > v2_0 || v6_0 != v6_0 ? v6_0 : v2_0);
    const float v7_1 = (v6_1 > v2_1 || v6_1 != v6_1 ? v6_1 : v2_1);
    const float v7_2 = (v6_2 > v2_2 || v6_2 != v6_2 ? v6_2 : v2_2);
    const float v7_3 = (v6_3 > v2_3 || v6_3 != v6_3 ? v6_3 : v2_3);
    const float v8_0 = (v7_0 * 0x1p-1f);
    const float v8_1 = (v7_1 * 0x1p-1f);
    const float v8_2 = (v7_2 * 0x1p-1f);
    const float v8_3 = (v7_3 * 0x1p-1f);
    float_x4 w9;
    w9.at[0] = v8_0;
    w9.at[1] = v8_1;
    w9.at[2] = v8_2;
    w9.at[3] = v8_3;
    *(float_x4*)(&out2[i0]) = w9;
  }
}
