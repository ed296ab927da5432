// fnx_tensor: 196 x 1 x 1 blocks of 128 threads, 0 bytes, on input0, input1, output0
__device__ __forceinline__ float bfloat16_to_float(unsigned short x) {
  return __int_as_float((int)((unsigned int)x << 16));
}

typedef unsigned short Element;
typedef float Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return bfloat16_to_float(a); }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a + b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return fmaf(a, b, c); }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return __shfl_xor_sync(0xffffffffu, c, away);
}
__device__ __forceinline__ unsigned short float_to_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  unsigned int bits = (unsigned int)__float_as_int(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

typedef Element Result;
__device__ __forceinline__ Result narrowed(Sum c) { return float_to_bfloat16(c); }
struct P {
  const Element* x;
  const Element* y;
  Result* out;
  long long offsets[3];
  long long out_split;
  long long before;
  long long x_batch;
  long long x_feature;
  long long kernel_out;
  long long kernel_feature;
  long long x_place[2];
  long long x_offset[2];
  long long kernel_offset[2];
  long long out_batch;
  long long out_feature;
  long long out_place[2];
  int batch_divisor[3];
  int feature_divisor[3];
  int count_divisors[6];
  int window_divisors[6];
  int sizes[2];
  int strides[2];
  int dilations[2];
  int low[2];
  int windows;
  int outs;
  int m;
  int n;
  int k;
  int span;
  int down;
  int across;
  int stack;
};

__device__ __forceinline__ void place(const P& p, int item, long long at[3]) {
  at[0] = p.offsets[0], at[1] = p.offsets[1], at[2] = p.offsets[2];
}
constexpr int ROWS = 64;
constexpr int COLUMNS = 64;
constexpr int DEPTH = 32;
constexpr int THREADS = 128;
constexpr int TOGETHER = 4;
constexpr int WARPS_ACROSS = 2;
constexpr int MY_ROWS = 32;
constexpr int MY_COLUMNS = 32;
constexpr int STAGES = 3;
constexpr int X_WIDTH = 8;
constexpr int Y_WIDTH = 8;
constexpr int OUT_WIDTH = 2;
constexpr int AT_ONCE = 4;
constexpr bool X_ALONG = true;
constexpr bool Y_ALONG = false;
typedef int Index;
typedef Result Written;
__device__ __forceinline__ Written written(Sum c) { return narrowed(c); }
template <typename T, int N> struct __align__(sizeof(T) * N) Vector { T each[N]; };

// Which tile of which item and which part of k a block computes. Tiles that follow each
// other lie in bands of 8 rows of tiles, so that they read the same columns of y.
struct Block { int row, column, item, split; };
__device__ __forceinline__ Block block_of(const P& p) {
  const int tiles = p.down * p.across;
  const int number = blockIdx.x % tiles, rest = blockIdx.x / tiles;
  const int band = number / (8 * p.across), inside = number % (8 * p.across);
  const int high = min(8, p.down - 8 * band);
  Block block = {(8 * band + inside % high) * ROWS, inside / high * COLUMNS,
                 rest % p.stack, rest / p.stack};
  return block;
}

constexpr int RANK = 2;
constexpr bool FEATURES_LAST = true, BATCH_LAST = false;

// What is left of a number by a divisor; the number becomes the quotient.
__device__ __forceinline__ int taken(unsigned& number, const int* divisor) {
  unsigned quotient = number;
  if (divisor[0] > 1)
    quotient = (unsigned)((unsigned long long)number * (unsigned)divisor[1] >> 32)
             >> divisor[2];
  const int rest = (int)(number - quotient * (unsigned)divisor[0]);
  number = quotient;
  return rest;
}
// The number of a window as an item of the batch and a place.
struct Place {
  int item, at[RANK];
  __device__ __forceinline__ Place(const P& p, unsigned number) {
    if (BATCH_LAST) item = taken(number, p.batch_divisor);
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis)
      at[axis] = BATCH_LAST && axis == 0 ? (int)number
                                         : taken(number, p.count_divisors + 3 * axis);
    if (!BATCH_LAST) item = (int)number;
  }
};

// The number of what is summed as a feature and an offset in a window.
struct Offset {
  int feature, at[RANK];
  __device__ __forceinline__ Offset(const P& p, unsigned number) {
    if (FEATURES_LAST) feature = taken(number, p.feature_divisor);
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis)
      at[axis] = FEATURES_LAST && axis == 0
                     ? (int)number
                     : taken(number, p.window_divisors + 3 * axis);
    if (!FEATURES_LAST) feature = (int)number;
  }
};
// Windows over x: what of them is outside is zero.
struct Windows {
  const Element* from;
  const P& p;
  __device__ __forceinline__ bool find(int line, int depth, int end, Index& at) const {
    const Place place(p, line);
    const Offset offset(p, depth);
    bool inside = line < p.windows && depth < end;
    Index begin = (Index)place.item * (Index)p.x_batch - (Index)p.before;
    Index behind = (Index)offset.feature * (Index)p.x_feature;
#pragma unroll
    for (int axis = 0; axis < RANK; ++axis) {
      const int start = place.at[axis] * p.strides[axis] - p.low[axis];
      const int element = start + offset.at[axis] * p.dilations[axis];
      inside = inside && (unsigned)element < (unsigned)p.sizes[axis];
      begin += (Index)place.at[axis] * (Index)p.x_place[axis];
      behind += (Index)offset.at[axis] * (Index)p.x_offset[axis];
    }
    at = begin + behind;
    return inside;
  }
};
// The kernel: lines are output features.
struct Kernel {
  const Element* from;
  const P& p;
  __device__ __forceinline__ bool find(int line, int depth, int end, Index& at) const {
    const Offset offset(p, depth);
    Index behind = (Index)offset.feature * (Index)p.kernel_feature;
#pragma unroll
    for (int axis = 0; axis < RANK; ++axis)
      behind += (Index)offset.at[axis] * (Index)p.kernel_offset[axis];
    at = (Index)line * (Index)p.kernel_out + behind;
    return line < p.outs && depth < end;
  }
};

typedef Windows XSource;
typedef Kernel YSource;
__device__ __forceinline__ XSource x_source(const P& p, const Element* from) {
  return {from, p};
}
__device__ __forceinline__ YSource y_source(const P& p, const Element* from) {
  return {from, p};
}

__device__ __forceinline__ Index out_place(const P& p, int row, int column) {
  const Place place(p, row);
  Index at = (Index)place.item * (Index)p.out_batch
           + (Index)column * (Index)p.out_feature;
#pragma unroll
  for (int axis = 0; axis < RANK; ++axis)
    at += (Index)place.at[axis] * (Index)p.out_place[axis];
  return at;
}

// d += a @ b, where a warp holds 16 by 16 elements of a and 16 by 8 of b.
__device__ __forceinline__ void multiply(float (&d)[4], unsigned (&a)[4],
                                         unsigned (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  fnx_emulated_mma_m16n8k16_bf16(d, a, b);
#endif
}

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
