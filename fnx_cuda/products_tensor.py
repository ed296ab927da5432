"""Matrix products by tensor cores: 16-bit floats summed in float32, and wider ones.

Receives a `Contraction` of such a dtype, a tile and a number of splits; gives the
launches. Tiles of 16-bit floats are copied to shared memory asynchronously, three of
them in turn, in pieces of 16 bytes whose order changes from row to row, so that the
reads of eight rows by a warp meet in no bank. Those of float64, and of float32 where it
may be rounded, are in `products_wide.py`, next on the walk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes
from fnx_cuda.instructions import Launch
from fnx_cuda.products_access import Contraction
from fnx_cuda.products_numbers import numbers
from fnx_cuda.products_tile import PARTS, Body, Cut, Tile, cut_launches
from fnx_cuda.products_wide import DOUBLE, ROUNDED

SIXTEEN_TILES = (
    Tile(128, 128, 32, 2, 4, 450, 2),
    Tile(64, 64, 32, 2, 2, 280, 4),
)

DOUBLE_TILES = (
    Tile(64, 64, 16, 2, 2, 100, 3),
    Tile(32, 32, 16, 2, 1, 50, 6),
)

ROUNDED_TILES = (
    Tile(128, 128, 16, 2, 4, 220, 2),
    Tile(64, 64, 16, 2, 2, 140, 4),
)
"""The tiles of float32 that may be rounded to 10 bits."""

TENSOR_TILES: dict[np.dtype[Any], tuple[Tile, ...]] = {
    dtypes.float16: SIXTEEN_TILES,
    dtypes.bfloat16: SIXTEEN_TILES,
    dtypes.float64: DOUBLE_TILES,
}
"""The tiles of the dtypes that tensor cores multiply, the larger one first."""

STAGES = 3


def tensor_tiles(dtype: np.dtype[Any], tf32: bool) -> tuple[Tile, ...]:
    """The tiles for a dtype; none if tensor cores would round it and may not.

    >>> len(tensor_tiles(dtypes.float32, tf32=True))
    2
    >>> tensor_tiles(dtypes.float32, tf32=False)
    ()
    """
    if dtype == dtypes.float32:
        return ROUNDED_TILES if tf32 else ()
    return TENSOR_TILES.get(dtype, ())


def tensor_launches(given: Contraction, cut: Cut) -> tuple[Launch, ...]:
    """The product by tensor cores, and the sum of its splits."""
    kind, tile = numbers(given.dtype, given.out_dtype), cut.tile
    values = {
        "MY_ROWS": tile.rows // tile.warps_down,
        "MY_COLUMNS": tile.columns // tile.warps_across,
    }
    if given.dtype == dtypes.float64:
        # Four lines of a tile begin in different banks.
        values |= {"VECTOR": 2, "PAD": 4}
        body = Body(PARTS + DOUBLE, "fnx_tensor_double", values, 2)
    elif given.dtype == dtypes.float32:
        # Lines begin eight banks from each other, and a warp reads eight of four.
        values |= {"VECTOR": 4, "PAD": 8}
        body = Body(ROUNDED, "fnx_tensor_rounded", values, 2)
    else:
        values |= {"STAGES": STAGES}
        name = "f16" if given.dtype == dtypes.float16 else "bf16"
        text = MULTIPLY % {"kind": name} + TILES + _TENSOR
        body = Body(text, "fnx_tensor", values, 2)
    return cut_launches(given, cut, kind, body)


# ---------------------------------------------------------------- text

MULTIPLY = """
// d += a @ b, where a warp holds 16 by 16 elements of a and 16 by 8 of b.
__device__ __forceinline__ void multiply(float (&d)[4], unsigned (&a)[4],
                                         unsigned (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.%(kind)s.%(kind)s.f32 "
      "{%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, %%9}, {%%0, %%1, %%2, %%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  fnx_emulated_mma_m16n8k16_%(kind)s(d, a, b);
#endif
}
"""

TILES = """
// Copies BYTES to shared memory, or zeros; it is done after `wait_for_copies`.
template <int BYTES>
__device__ __forceinline__ void copy(unsigned short* to, const unsigned short* from,
                                     bool inside) {
#ifdef __CUDA_ARCH__
  if (BYTES >= 4) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    const int size = inside ? BYTES : 0;
    if (BYTES == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                   :: "r"(address), "l"(from), "r"(size) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                   :: "r"(address), "l"(from), "n"(BYTES < 4 ? 4 : BYTES), "r"(size)
                   : "memory");
    return;
  }
#endif
  for (int i = 0; i < BYTES / 2; ++i) to[i] = inside ? from[i] : (unsigned short)0;
}
__device__ __forceinline__ void end_of_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most so many groups of this thread's copies are still on their way.
template <int GROUPS> __device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" :: "n"(GROUPS) : "memory");
#endif
}

// Four matrices of 8 by 8, whose rows of 16 bytes the lanes 8 i to 8 i + 7 point at:
// a lane gets elements 2 t and 2 t + 1 of row g, where lane = 4 g + t; or of column g.
template <bool TURNED>
__device__ __forceinline__ void load_matrices(unsigned (&r)[4],
                                              const unsigned short* row) {
#ifdef __CUDA_ARCH__
  const unsigned address = (unsigned)__cvta_generic_to_shared(row);
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address) : "memory");
#else
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    unsigned pair = 0;
    for (int half = 0; half < 2; ++half) {
      const int line = TURNED ? 2 * t + half : g, place = TURNED ? g : 2 * t + half;
      const unsigned short* found = (const unsigned short*)__shfl_sync(
          0xffffffffu, (long long)row, 8 * i + line);
      pair |= (unsigned)found[place] << 16 * half;
    }
    r[i] = pair;
  }
#endif
}

// A tile of EXTENT rows (of x, or columns of y) by DEPTH, as it lies in memory: lines
// along k, or along the rows. The pieces of 8 elements of a line are exchanged.
template <typename Source, int EXTENT, int WIDTH, bool ALONG> struct Part {
  static constexpr int LINE = ALONG ? DEPTH : EXTENT;
  static constexpr int COUNT = EXTENT * DEPTH / WIDTH / THREADS;
  static constexpr int SIZE = EXTENT * DEPTH;

  __device__ __forceinline__ static int inside(int line, int element) {
    const int turn = LINE / 8 >= 8 ? line % 8 : line / 2 % 4;
    return line * LINE + ((element / 8 ^ turn) * 8 + element % 8);
  }
  __device__ __forceinline__ static void read(
      unsigned short* tile, const Source& source, int first, int k, int end) {
#pragma unroll AT_ONCE
    for (int part = 0; part < COUNT; ++part) {
      const int number = threadIdx.x + part * THREADS;
      const int line = number / (LINE / WIDTH);
      const int element = number % (LINE / WIDTH) * WIDTH;
      Index at;
      const bool exists = source.find(first + (ALONG ? line : element),
                                      k + (ALONG ? element : line), end, at);
      copy<2 * WIDTH>(tile + inside(line, element),
                      exists ? source.from + at : source.from, exists);
    }
  }
  // 16 rows by 16 elements of k: r[0] and r[1] hold k of 0 to 7 of the upper and the
  // lower 8 rows, r[2] and r[3] k of 8 to 15.
  __device__ __forceinline__ static void load(unsigned (&r)[4],
                                              const unsigned short* tile, int row,
                                              int depth) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, far = lane / 16 * 8;
    const int line = ALONG ? row + low + lane % 8 : depth + far + lane % 8;
    const int element = ALONG ? depth + far : row + low;
    load_matrices<!ALONG>(r, tile + inside(line, element));
  }
};
"""

_TENSOR = """
extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER)
fnx_tensor(const __grid_constant__ P p) {
  typedef Part<XSource, ROWS, X_WIDTH, X_ALONG> XPart;
  typedef Part<YSource, COLUMNS, Y_WIDTH, Y_ALONG> YPart;
  __shared__ __align__(128) unsigned short x_tiles[STAGES][XPart::SIZE];
  __shared__ __align__(128) unsigned short y_tiles[STAGES][YPart::SIZE];

  const Block block = block_of(p);
  const int start = block.split * p.span, end = min(p.k, start + p.span);
  long long at[3];
  place(p, block.item, at);
  const XSource x = x_source(p, p.x + at[1]);
  const YSource y = y_source(p, p.y + at[2]);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int my_row = warp / WARPS_ACROSS * MY_ROWS;
  const int my_column = warp % WARPS_ACROSS * MY_COLUMNS;

  float sums[MY_ROWS / 16][MY_COLUMNS / 8][4];
#pragma unroll
  for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS / 8; ++j)
#pragma unroll
      for (int each = 0; each < 4; ++each) sums[i][j][each] = 0;

#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    const int k = start + stage * DEPTH;
    XPart::read(x_tiles[stage], x, block.row, k, end);
    YPart::read(y_tiles[stage], y, block.column, k, end);
    end_of_copies();
  }
  int now = 0, next = STAGES - 1;
  for (int k = start; k < end; k += DEPTH) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    const int ahead = k + (STAGES - 1) * DEPTH;
    if (ahead < end) {
      XPart::read(x_tiles[next], x, block.row, ahead, end);
      YPart::read(y_tiles[next], y, block.column, ahead, end);
    }
    end_of_copies();
#pragma unroll
    for (int depth = 0; depth < DEPTH; depth += 16) {
      unsigned a[MY_ROWS / 16][4], b[MY_COLUMNS / 8][2];
#pragma unroll
      for (int i = 0; i < MY_ROWS / 16; ++i)
        XPart::load(a[i], x_tiles[now], my_row + 16 * i, depth);
#pragma unroll
      for (int j = 0; j < MY_COLUMNS / 16; ++j) {
        unsigned both[4];
        YPart::load(both, y_tiles[now], my_column + 16 * j, depth);
        b[2 * j][0] = both[0], b[2 * j][1] = both[2];
        b[2 * j + 1][0] = both[1], b[2 * j + 1][1] = both[3];
      }
#pragma unroll
      for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS / 8; ++j) multiply(sums[i][j], a[i], b[j]);
    }
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
  wait_for_copies<0>();

  // A lane has two elements of a row, and two of the row 8 below.
  typedef Vector<Written, OUT_WIDTH> Pair;
  Written* out = p.out + at[0] + block.split * p.out_split;
#pragma unroll
  for (int i = 0; i < MY_ROWS / 16; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS / 8; ++j)
#pragma unroll
      for (int each = 0; each < 4; each += OUT_WIDTH) {
        const int row = block.row + my_row + 16 * i + lane / 4 + each / 2 * 8;
        const int column = block.column + my_column + 8 * j + lane % 4 * 2 + each % 2;
        Pair pair;
#pragma unroll
        for (int part = 0; part < OUT_WIDTH; ++part)
          pair.each[part] = written(sums[i][j][each + part]);
        if (row < p.m && column < p.n)
          *(Pair*)(out + out_place(p, row, column)) = pair;
      }
}
"""
