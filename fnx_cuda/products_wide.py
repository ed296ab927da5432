"""The text of matrix products of float64 and of rounded float32 by tensor cores.

Tiles go to shared memory by way of registers, as in `products_tile.py`. Operands of
float32 are rounded on that way to the nearest number of 10 bits (TF32), ties away from
zero, where the user's precision allows it; sums are float32. Receives nothing, gives
text for `products_tensor.py`. Next on the walk: `products_vector.py`.
"""

from __future__ import annotations

from fnx_cuda.products_tile import PARTS, staged

DOUBLE = """
// d += a @ b, where a warp holds 8 by 4 elements of a and 4 by 8 of b.
__device__ __forceinline__ void multiply(double (&d)[2], double a, double b) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
#else
  fnx_emulated_mma_m8n8k4_f64(d, &a, &b);
#endif
}
""" + staged(
    "fnx_tensor_double",
    "double",
    own="""\
  // A lane holds element (g, t) of a, (t, g) of b, and (g, 2 t) and (g, 2 t + 1) of d.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int my_row = warp / WARPS_ACROSS * MY_ROWS;
  const int my_column = warp % WARPS_ACROSS * MY_COLUMNS;

  double sums[MY_ROWS / 8][MY_COLUMNS / 8][2];
#pragma unroll
  for (int i = 0; i < MY_ROWS / 8; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS / 8; ++j) sums[i][j][0] = sums[i][j][1] = 0;

""",
    step="""\
#pragma unroll
    for (int depth = 0; depth < DEPTH; depth += 4) {
      double a[MY_ROWS / 8], b[MY_COLUMNS / 8];
#pragma unroll
      for (int i = 0; i < MY_ROWS / 8; ++i)
        a[i] = x_tiles[now][depth + t][my_row + 8 * i + g];
#pragma unroll
      for (int j = 0; j < MY_COLUMNS / 8; ++j)
        b[j] = y_tiles[now][depth + t][my_column + 8 * j + g];
#pragma unroll
      for (int i = 0; i < MY_ROWS / 8; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS / 8; ++j) multiply(sums[i][j], a[i], b[j]);
    }
""",
    written="""\
  typedef Vector<Written, OUT_WIDTH> Pair;
  Written* out = p.out + at[0] + block.split * p.out_split;
#pragma unroll
  for (int i = 0; i < MY_ROWS / 8; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS / 8; ++j)
#pragma unroll
      for (int each = 0; each < 2; each += OUT_WIDTH) {
        const int row = block.row + my_row + 8 * i + g;
        const int column = block.column + my_column + 8 * j + 2 * t + each;
        Pair pair;
#pragma unroll
        for (int part = 0; part < OUT_WIDTH; ++part)
          pair.each[part] = written(sums[i][j][each + part]);
        if (row < p.m && column < p.n)
          *(Pair*)(out + out_place(p, row, column)) = pair;
      }
""",
)

_ROUND = """
// The nearest number of 10 bits behind the point; infinities and NaN stay.
__device__ __forceinline__ float rounded(float x) {
#ifdef __CUDA_ARCH__
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#else
  const unsigned bits = __float_as_uint(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return finite ? __uint_as_float((bits + 0x1000u) & 0xffffe000u) : x;
#endif
}
"""

_ROUNDED = """
// d += a @ b, where a warp holds 16 by 8 elements of a and 8 by 8 of b.
__device__ __forceinline__ void multiply(float (&d)[4], unsigned (&a)[4],
                                         unsigned (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  fnx_emulated_mma_m16n8k8_tf32(d, a, b);
#endif
}
""" + staged(
    "fnx_tensor_rounded",
    "float",
    own="""\
  // A lane holds (g, t), (g + 8, t) of a, and those four columns on; (t, g), (t + 4, g)
  // of b; and of d (g, 2 t), (g, 2 t + 1), and those eight rows below.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int my_row = warp / WARPS_ACROSS * MY_ROWS;
  const int my_column = warp % WARPS_ACROSS * MY_COLUMNS;

  float sums[MY_ROWS / 16][MY_COLUMNS / 8][4];
#pragma unroll
  for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS / 8; ++j)
#pragma unroll
      for (int each = 0; each < 4; ++each) sums[i][j][each] = 0;

""",
    step="""\
#pragma unroll
    for (int depth = 0; depth < DEPTH; depth += 8) {
      unsigned a[MY_ROWS / 16][4], b[MY_COLUMNS / 8][2];
#pragma unroll
      for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
        for (int each = 0; each < 4; ++each) {
          const int row = my_row + 16 * i + g + each % 2 * 8;
          a[i][each] = __float_as_uint(x_tiles[now][depth + t + each / 2 * 4][row]);
        }
#pragma unroll
      for (int j = 0; j < MY_COLUMNS / 8; ++j)
#pragma unroll
        for (int each = 0; each < 2; ++each) {
          const int column = my_column + 8 * j + g;
          b[j][each] = __float_as_uint(y_tiles[now][depth + t + each * 4][column]);
        }
#pragma unroll
      for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS / 8; ++j) multiply(sums[i][j], a[i], b[j]);
    }
""",
    written="""\
  typedef Vector<Written, OUT_WIDTH> Pair;
  Written* out = p.out + at[0] + block.split * p.out_split;
#pragma unroll
  for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS / 8; ++j)
#pragma unroll
      for (int each = 0; each < 4; each += OUT_WIDTH) {
        const int row = block.row + my_row + 16 * i + g + each / 2 * 8;
        const int column = block.column + my_column + 8 * j + 2 * t + each % 2;
        Pair pair;
#pragma unroll
        for (int part = 0; part < OUT_WIDTH; ++part)
          pair.each[part] = written(sums[i][j][each + part]);
        if (row < p.m && column < p.n)
          *(Pair*)(out + out_place(p, row, column)) = pair;
      }
""",
)

ROUNDED = _ROUND + PARTS.replace("widened(", "rounded(") + _ROUNDED
"""The kernel for float32, whose tiles are rounded when they are kept."""
