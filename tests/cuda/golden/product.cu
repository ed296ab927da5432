// fnx_tiles: 256 x 1 x 1 blocks of 128 threads, 0 bytes, on input0, input1, work0
typedef float Element;
typedef float Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return a; }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a + b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return fmaf(a, b, c); }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return __shfl_xor_sync(0xffffffffu, c, away);
}

typedef Element Result;
__device__ __forceinline__ Result narrowed(Sum c) { return c; }
struct P {
  const Element* x;
  const Element* y;
  Sum* out;
  long long offsets[3];
  long long out_split;
  long long row;
  long long column;
  int x_leading;
  int y_leading;
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
constexpr int DEPTH = 16;
constexpr int THREADS = 128;
constexpr int TOGETHER = 4;
constexpr int WARPS_ACROSS = 2;
constexpr int LANES_ACROSS = 8;
constexpr int LANES_DOWN = 4;
constexpr int MY_ROWS = 8;
constexpr int MY_COLUMNS = 4;
constexpr int VECTOR = 4;
constexpr int PAD = 4;
constexpr int X_WIDTH = 4;
constexpr int Y_WIDTH = 4;
constexpr int OUT_WIDTH = 4;
constexpr int AT_ONCE = 64;
constexpr bool X_ALONG = true;
constexpr bool Y_ALONG = false;
typedef int Index;
typedef Sum Written;
__device__ __forceinline__ Written written(Sum c) { return c; }
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

// Lines of a matrix that lie along k, or across it.
template <bool ALONG> struct Matrix {
  const Element* from;
  int lines, leading;
  // Whether there is an element of a line, before the end of k; and where it is.
  __device__ __forceinline__ bool find(int line, int depth, int end, Index& at) const {
    at = ALONG ? (Index)line * leading + depth : (Index)depth * leading + line;
    return line < lines && depth < end;
  }
};
typedef Matrix<X_ALONG> XSource;
typedef Matrix<Y_ALONG> YSource;
__device__ __forceinline__ XSource x_source(const P& p, const Element* from) {
  return {from, p.m, p.x_leading};
}
__device__ __forceinline__ YSource y_source(const P& p, const Element* from) {
  return {from, p.n, p.y_leading};
}

__device__ __forceinline__ Index out_place(const P& p, int row, int column) {
  return (Index)row * p.row + (Index)column * p.column;
}

// What a thread reads of a tile of EXTENT rows (of x, or columns of y) by DEPTH.
template <typename Source, int EXTENT, int WIDTH, bool ALONG> struct Part {
  static constexpr int COUNT = EXTENT * DEPTH / WIDTH / THREADS;
  static constexpr int PITCH = EXTENT + PAD;
  static constexpr int STORED = ALONG ? 1 : WIDTH < VECTOR ? WIDTH : VECTOR;
  typedef Vector<Element, WIDTH> Read;
  Read parts[COUNT];

  __device__ __forceinline__ static int row_of(int part) {
    const int number = threadIdx.x + part * THREADS;
    return ALONG ? number / (DEPTH / WIDTH) : number % (EXTENT / WIDTH) * WIDTH;
  }
  __device__ __forceinline__ static int depth_of(int part) {
    const int number = threadIdx.x + part * THREADS;
    return ALONG ? number % (DEPTH / WIDTH) * WIDTH : number / (EXTENT / WIDTH);
  }
  __device__ __forceinline__ void read(
      const Source& source, int first, int k, int end) {
#pragma unroll
    for (int part = 0; part < COUNT; ++part) {
      Index at;
      Read found = {};
      if (source.find(first + row_of(part), k + depth_of(part), end, at))
        found = *(const Read*)(source.from + at);
      parts[part] = found;
    }
  }
  __device__ __forceinline__ void keep(Sum (*tile)[PITCH]) const {
#pragma unroll
    for (int part = 0; part < COUNT; ++part) {
      const int row = row_of(part), depth = depth_of(part);
#pragma unroll
      for (int each = 0; each < WIDTH; each += STORED) {
        if (ALONG) {
          tile[depth + each][row] = widened(parts[part].each[each]);
          continue;
        }
        Vector<Sum, STORED> values;
#pragma unroll
        for (int i = 0; i < STORED; ++i)
          values.each[i] = widened(parts[part].each[each + i]);
        *(Vector<Sum, STORED>*)&tile[depth][row + each] = values;
      }
    }
  }
};


extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER)
fnx_tiles(const __grid_constant__ P p) {
  typedef Part<XSource, ROWS, X_WIDTH, X_ALONG> XPart;
  typedef Part<YSource, COLUMNS, Y_WIDTH, Y_ALONG> YPart;
  typedef Vector<Sum, VECTOR> Sums;
  __shared__ __align__(16) Sum x_tiles[2][DEPTH][XPart::PITCH];
  __shared__ __align__(16) Sum y_tiles[2][DEPTH][YPart::PITCH];

  const Block block = block_of(p);
  const int start = block.split * p.span, end = min(p.k, start + p.span);
  long long at[3];
  place(p, block.item, at);
  const XSource x = x_source(p, p.x + at[1]);
  const YSource y = y_source(p, p.y + at[2]);

  // A thread's rows and columns are vectors, far from each other, so that those of the
  // threads of a warp lie side by side in shared memory.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int my_row = warp / WARPS_ACROSS * (LANES_DOWN * MY_ROWS)
                   + lane / LANES_ACROSS * VECTOR;
  const int my_column = warp % WARPS_ACROSS * (LANES_ACROSS * MY_COLUMNS)
                      + lane % LANES_ACROSS * VECTOR;

  Sum sums[MY_ROWS][MY_COLUMNS];
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; ++j) sums[i][j] = zero();

  XPart x_part;
  YPart y_part;
  x_part.read(x, block.row, start, end);
  y_part.read(y, block.column, start, end);
  x_part.keep(x_tiles[0]);
  y_part.keep(y_tiles[0]);
  __syncthreads();
  int now = 0;
  for (int k = start; k < end; k += DEPTH) {
    const bool more = k + DEPTH < end;
    if (more) {
      x_part.read(x, block.row, k + DEPTH, end);
      y_part.read(y, block.column, k + DEPTH, end);
    }
// Two at a time: more steps ask for more registers than there are.
#pragma unroll 2
    for (int depth = 0; depth < DEPTH; ++depth) {
      Sums a[MY_ROWS / VECTOR], b[MY_COLUMNS / VECTOR];
#pragma unroll
      for (int i = 0; i < MY_ROWS / VECTOR; ++i)
        a[i] = *(const Sums*)&x_tiles[now][depth][my_row + i * LANES_DOWN * VECTOR];
#pragma unroll
      for (int j = 0; j < MY_COLUMNS / VECTOR; ++j)
        b[j] = *(const Sums*)&y_tiles[now][depth][my_column
                                                  + j * LANES_ACROSS * VECTOR];
#pragma unroll
      for (int i = 0; i < MY_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS; ++j)
          sums[i][j] = added(sums[i][j], a[i / VECTOR].each[i % VECTOR],
                             b[j / VECTOR].each[j % VECTOR]);
    }
    if (more) {
      now ^= 1;
      x_part.keep(x_tiles[now]);
      y_part.keep(y_tiles[now]);
      __syncthreads();
    }
  }

  Written* out = p.out + at[0] + block.split * p.out_split;
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i) {
    const int row = block.row + my_row + i / VECTOR * LANES_DOWN * VECTOR + i % VECTOR;
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; j += OUT_WIDTH) {
      const int column = block.column + my_column
                       + j / VECTOR * LANES_ACROSS * VECTOR + j % VECTOR;
      Vector<Written, OUT_WIDTH> vector;
#pragma unroll
      for (int each = 0; each < OUT_WIDTH; ++each)
        vector.each[each] = written(sums[i][j + each]);
      if (row < p.m && column < p.n)
        *(Vector<Written, OUT_WIDTH>*)(out + out_place(p, row, column)) = vector;
    }
  }
}

// fnx_split_sum: 1024 x 1 x 1 blocks of 256 threads, 0 bytes, on work0, output0
typedef float Element;
typedef float Sum;
__device__ __forceinline__ Sum zero() { return 0; }
__device__ __forceinline__ Sum widened(Element a) { return a; }
__device__ __forceinline__ Sum plus(Sum a, Sum b) { return a + b; }
__device__ __forceinline__ Sum added(Sum c, Sum a, Sum b) { return fmaf(a, b, c); }
__device__ __forceinline__ Sum from_lane(Sum c, int away) {
  return __shfl_xor_sync(0xffffffffu, c, away);
}

typedef Element Result;
__device__ __forceinline__ Result narrowed(Sum c) { return c; }
struct P {
  const Sum* parts;
  Result* out;
  long long offsets[3];
  long long row;
  long long column;
  long long total;
  int m;
  int n;
  int splits;
};

__device__ __forceinline__ void place(const P& p, int item, long long at[3]) {
  at[0] = p.offsets[0], at[1] = p.offsets[1], at[2] = p.offsets[2];
}

typedef long long Index;

__device__ __forceinline__ Index out_place(const P& p, int row, int column) {
  return (Index)row * p.row + (Index)column * p.column;
}

extern "C" __global__ void __launch_bounds__(256)
fnx_split_sum(const __grid_constant__ P p) {
  const long long number = blockIdx.x * 256ll + threadIdx.x;
  if (number >= p.total) return;
  Sum sum = p.parts[number];
  for (int split = 1; split < p.splits; ++split)
    sum = plus(sum, p.parts[split * p.total + number]);
  const int row = (int)(number / p.n % p.m), column = (int)(number % p.n);
  long long at[3];
  place(p, (int)(number / p.n / p.m), at);
  p.out[at[0] + out_place(p, row, column)] = narrowed(sum);
}
