// k0: 512 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, output0
struct P0 { const float* in0; float* out1; };
extern "C" __global__ void __launch_bounds__(256)
k0(const __grid_constant__ P0 p) {
  const float* __restrict__ in0 = p.in0;
  float* __restrict__ out1 = p.out1;
  __shared__ float shared2[1056];
  const int t = (int)(threadIdx.x);
  const int groups = (int)gridDim.x;
  for (int g = (int)blockIdx.x; g < 512; g += groups) {
    const int i0 = (int)((unsigned int)g % 32u);
    const int i1 = (int)((unsigned int)g / 32u);
    __syncthreads();
    #pragma unroll 4
    for (int i2 = t; i2 < 1024; i2 += 256) {
      const int i3 = (int)((unsigned int)i2 % 32u);
      const int i4 = (int)((unsigned int)i2 / 32u);
      const float v5 = in0[i1 * 32 + i0 * 16384 + i3 + i4 * 512];
      shared2[i3 + i4 * 33] = v5;
    }
    __syncthreads();
    #pragma unroll 4
    for (int i6 = t; i6 < 1024; i6 += 256) {
      const int i7 = (int)((unsigned int)i6 / 32u);
      const int i8 = (int)((unsigned int)i6 % 32u);
      const float v9 = shared2[i7 + i8 * 33];
      const float v10 = (v9 + 0x1p+0f);
      out1[i1 * 32768 + i0 * 32 + i7 * 1024 + i8] = v10;
    }
  }
}
