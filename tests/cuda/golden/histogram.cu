// k0: 40 x 1 x 1 blocks of 128 threads, 0 bytes, on output0, input1
struct P0 { int* inout0; const int* in1; };
extern "C" __global__ void __launch_bounds__(128)
k0(const __grid_constant__ P0 p) {
  int* __restrict__ inout0 = p.inout0;
  const int* __restrict__ in1 = p.in1;
  const int groups = (int)gridDim.x * 128;
  for (int g = (int)blockIdx.x * 128 + (int)threadIdx.x; g < 5000; g += groups) {
    const int i0 = g;
    const int v1 = in1[i0];
    const bool v2 = (v1 < 0);
    const int v3 = (int)((unsigned int)v1 + (unsigned int)256);
    const int v4 = (v2 ? v3 : v1);
    const unsigned int v5 = (unsigned int)v4;
    const int i6 = (int)(v5);
    const bool v7 = (v5 <= 255u);
    if (v7) atomicAdd(&inout0[i6], 1);
  }
}
