// k0: 313 x 1 x 1 blocks of 256 threads, 0 bytes, on input1, input0, output0
struct __align__(16) float_x4 { float at[4]; };
struct P0 { const int* in0; const float* in1; float* out2; };
extern "C" __global__ void __launch_bounds__(256)
k0(const __grid_constant__ P0 p) {
  const int* __restrict__ in0 = p.in0;
  const float* __restrict__ in1 = p.in1;
  float* __restrict__ out2 = p.out2;
  const int groups = (int)gridDim.x * 256;
  for (int g = (int)blockIdx.x * 256 + (int)threadIdx.x; g < 80000; g += groups) {
    const int i0 = (int)((unsigned int)g % 16u) * 4;
    const int i1 = (int)((unsigned int)g / 16u);
    const int v2 = in0[i1];
    const bool v3 = (v2 < 0);
    const int v4 = (int)((unsigned int)v2 + (unsigned int)1000);
    const int v5 = (v3 ? v4 : v2);
    const int v6 = (v5 > 0 ? v5 : 0);
    const int v7 = (v6 < 999 ? v6 : 999);
    const int i8 = (int)(v7);
    const float_x4 w9 = *(const float_x4*)(&in1[i0 + i8 * 64]);
    const float v10_0 = w9.at[0];
    const float v10_1 = w9.at[1];
    const float v10_2 = w9.at[2];
    const float v10_3 = w9.at[3];
    float_x4 w11;
    w11.at[0] = v10_0;
    w11.at[1] = v10_1;
    w11.at[2] = v10_2;
    w11.at[3] = v10_3;
    *(float_x4*)(&out2[i1 * 64 + i0]) = w11;
  }
}
