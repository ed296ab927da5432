// make_keys: 3907 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, input0, work4000000
typedef unsigned int Index;
typedef unsigned int Element;
typedef unsigned int Key;
// Rows of so many elements, `inner` of them between each other; which part of each
// element is meant; and whether elements have no order yet.
struct Rows {
  long long rows, length, inner;
  int parts, part, numbered, unused;
};

__device__ __forceinline__ Index place_of(const Rows& n, Index row, Index i,
                                          Index length) {
  const Index inner = (Index)n.inner;
  return (row / inner * length + i) * inner + row % inner;
}

// An integer in the order of the elements.
__device__ __forceinline__ Key key_of(Element element) {
  const Key sign = (Key)1 << (8 * sizeof(Element) - 1), all = sign | (sign - 1);
  Key key = element;
  if ((key & (sign - 1)) > 0x7f800000ull) key = all;
  else if (key != sign) key = key & sign ? all - key : key | sign;
  return key;
}

struct Making { const Element* x; const unsigned int* before; Key* keys; Rows n; };

__device__ __forceinline__ Key key_at(const Rows& n, const Element* x,
                                      const unsigned int* before, Index row, Index i) {
  const Index length = (Index)n.length;
  const Index from = n.numbered ? i : before[row * length + i];
  return key_of(x[place_of(n, row, from, length) * n.parts + n.part]);
}

extern "C" __global__ void __launch_bounds__(256)
make_keys(const __grid_constant__ Making p) {
  const Index length = (Index)p.n.length, count = (Index)p.n.rows * length;
  const Index step = (Index)gridDim.x * 256;
  for (Index g = (Index)blockIdx.x * 256 + threadIdx.x; g < count; g += step)
    p.keys[g] = key_at(p.n, p.x, p.before, g / length, g % length);
}

struct Sorting {
  const Element* x;
  const unsigned int* before;
  Key* ordered;
  unsigned int* places;
  Rows n;
  int size, block;  // of a row, with what is behind its end, and of a block's rows
  int kept, unused;  // whether the ordered keys are wanted
};

// A bitonic network sorts the rows of a block: of keys that are equal, and of what is
// behind the end, their numbers decide.
extern "C" __global__ void __launch_bounds__(256)
sort_rows(const __grid_constant__ Sorting p) {
  extern __shared__ unsigned long long memory[];
  Key* keys = (Key*)memory;
  unsigned short* numbers = (unsigned short*)(keys + p.block);
  const int t = threadIdx.x, length = (int)p.n.length, inside = p.size - 1;
  const Index first = (Index)blockIdx.x * (p.block / p.size);
  for (int n = t; n < p.block; n += 256) {
    const Index row = first + n / p.size;
    const int i = n & inside;
    const bool real = i < length && row < (Index)p.n.rows;
    keys[n] = real ? key_at(p.n, p.x, p.before, row, i) : ~(Key)0;
    numbers[n] = (unsigned short)i;
  }
  for (int part = 2; part <= p.size; part *= 2) {
    for (int step = part / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int n = t; n < p.block / 2; n += 256) {
        const int a = (n & ~(step - 1)) * 2 + (n & (step - 1)), b = a + step;
        const Key x = keys[a], y = keys[b];
        const unsigned short i = numbers[a], j = numbers[b];
        const bool falls = x > y || (x == y && i > j);
        const bool upwards = (a & inside & part) == 0;
        if (falls == upwards) {
          keys[a] = y;
          keys[b] = x;
          numbers[a] = j;
          numbers[b] = i;
        }
      }
    }
  }
  __syncthreads();
  for (int n = t; n < p.block; n += 256) {
    const Index row = first + n / p.size;
    const int i = n & inside;
    if (i < length && row < (Index)p.n.rows) {
      const Index start = row * (Index)length;
      p.places[start + i] = p.n.numbered ? numbers[n] : p.before[start + numbers[n]];
      if (p.kept) p.ordered[start + i] = keys[n];
    }
  }
}

// count: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work4000000, work12000000
// add_up: 32 x 1 x 1 blocks of 256 threads, 0 bytes, on work12000000
// move: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work4000000, work4000000, work12000000, work12251904, work16251904
// count: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work12251904, work12000000
// add_up: 32 x 1 x 1 blocks of 256 threads, 0 bytes, on work12000000
// move: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work12251904, work16251904, work12000000, work8000000, work0
// count: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work8000000, work12000000
// add_up: 32 x 1 x 1 blocks of 256 threads, 0 bytes, on work12000000
// move: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work8000000, work0, work12000000, work12251904, work16251904
// count: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work12251904, work12000000
// add_up: 32 x 1 x 1 blocks of 256 threads, 0 bytes, on work12000000
// move: 245 x 1 x 1 blocks of 256 threads, 0 bytes, on work12251904, work16251904, work12000000, work8000000, work0
typedef unsigned int Key;
enum { THREADS = 256, WARPS = 8, TILE = 16384 / sizeof(Key) };
enum { ITEMS = TILE / THREADS, BITS = 8, DIGITS = 1 << BITS };
struct Numbers {
  long long rows;
  int length, tiles, shift;
  int numbered;  // whether elements have no places yet: they are numbered
};
struct Counting { const Key* keys; unsigned int* counts; Numbers n; };
struct Adding { unsigned int* counts; Numbers n; };
struct Moving {
  const Key* keys;
  const unsigned int* places;
  const unsigned int* counts;
  Key* moved;
  unsigned int* moved_places;
  Numbers n;
};

// Counts stand digit by digit in each row, and tile by tile in each digit; behind those
// of all rows are the sums of each digit.
__device__ __forceinline__ long long count_of(const Numbers& n, long long row,
                                              int digit, int tile) {
  return (row * DIGITS + digit) * n.tiles + tile;
}
__device__ __forceinline__ long long sum_of(const Numbers& n, long long row,
                                            int digit) {
  return (n.rows * n.tiles + row) * DIGITS + digit;
}
__device__ __forceinline__ int digit_of(Key key, int shift) {
  return (int)(key >> shift) & (DIGITS - 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
count(const __grid_constant__ Counting p) {
  __shared__ unsigned int found[DIGITS];
  const int t = threadIdx.x;
  const long long row = blockIdx.x / (unsigned int)p.n.tiles;
  const int tile = blockIdx.x % (unsigned int)p.n.tiles;
  const Key* __restrict__ keys = p.keys + row * p.n.length;
  found[t] = 0;
  __syncthreads();
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    const long long i = (long long)tile * TILE + n * THREADS + t;
    if (i < p.n.length) atomicAdd(&found[digit_of(keys[i], p.n.shift)], 1u);
  }
  __syncthreads();
  p.counts[count_of(p.n, row, t, tile)] = found[t];
}

// The sum of a value over the threads of a warp before this one and itself.
__device__ __forceinline__ unsigned int up_to_lane(unsigned int value, int lane) {
  #pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned int other = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

// A warp for each digit of each row: how many are in the tiles before, and in all.
extern "C" __global__ void __launch_bounds__(THREADS)
add_up(const __grid_constant__ Adding p) {
  const int lane = threadIdx.x % 32;
  const long long number = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
  const long long row = number / DIGITS;
  const int digit = number % DIGITS;
  if (row >= p.n.rows) return;
  unsigned int* counts = p.counts + count_of(p.n, row, digit, 0);
  unsigned int sum = 0;
  for (int first = 0; first < p.n.tiles; first += 32) {
    const int tile = first + lane;
    const unsigned int own = tile < p.n.tiles ? counts[tile] : 0;
    const unsigned int all = up_to_lane(own, lane);
    if (tile < p.n.tiles) counts[tile] = sum + all - own;
    sum += __shfl_sync(0xffffffffu, all, 31);
  }
  if (lane == 0) p.counts[sum_of(p.n, row, digit)] = sum;
}

// The sum of a value over the threads of the block before this one.
__device__ __forceinline__ unsigned int before_thread(unsigned int value,
                                                      unsigned int* sums, int t) {
  const unsigned int all = up_to_lane(value, t % 32);
  __syncthreads();
  if (t % 32 == 31) sums[t / 32] = all;
  __syncthreads();
  unsigned int before = all - value;
  for (int warp = 0; warp < t / 32; ++warp) before += sums[warp];
  return before;
}

// Which threads of the warp have the same digit.
__device__ __forceinline__ unsigned int with_same(int digit) {
  unsigned int same = 0xffffffffu;
  #pragma unroll
  for (int bit = 0; bit < BITS; ++bit) {
    const unsigned int set = __ballot_sync(0xffffffffu, digit >> bit & 1);
    same &= digit >> bit & 1 ? set : ~set;
  }
  return same;
}

extern "C" __global__ void __launch_bounds__(THREADS)
move(const __grid_constant__ Moving p) {
  // How many elements of a digit the warps before have; then where those of a warp go.
  __shared__ unsigned int found[WARPS][DIGITS];
  __shared__ unsigned int starts[DIGITS];
  __shared__ unsigned int sums[WARPS];
  __shared__ Key sorted[TILE];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const long long row = blockIdx.x / (unsigned int)p.n.tiles;
  const int tile = blockIdx.x % (unsigned int)p.n.tiles;
  const long long base = row * p.n.length;
  const long long first = (long long)tile * TILE;
  const int inside = p.n.length - first < TILE ? (int)(p.n.length - first) : TILE;
  for (int n = 0; n < WARPS; ++n) found[n][t] = 0;
  __syncthreads();

  // What is behind the end has the largest key, and so goes behind all others.
  Key keys[ITEMS];
  int at[ITEMS];
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    const int i = (warp * ITEMS + n) * 32 + lane;
    keys[n] = i < inside ? p.keys[base + first + i] : ~(Key)0;
  }
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    const int digit = digit_of(keys[n], p.n.shift);
    const unsigned int same = with_same(digit);
    const int before = __popc(same & ((1u << lane) - 1));
    const unsigned int earlier = found[warp][digit];
    __syncwarp();
    if (before == 0) found[warp][digit] = earlier + __popc(same);
    __syncwarp();
    at[n] = (int)earlier + before;
  }
  __syncthreads();

  // Thread t is for digit t.
  unsigned int own = 0;
  for (int n = 0; n < WARPS; ++n) own += found[n][t];
  unsigned int start = before_thread(own, sums, t);
  const unsigned int all = p.counts[sum_of(p.n, row, t)];
  const unsigned int whole = before_thread(all, sums, t);
  starts[t] = whole + p.counts[count_of(p.n, row, t, tile)] - start;
  for (int n = 0; n < WARPS; ++n) {
    const unsigned int count = found[n][t];
    found[n][t] = start;
    start += count;
  }
  __syncthreads();

  // Through shared memory, so that neighbours write side by side.
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    at[n] += (int)found[warp][digit_of(keys[n], p.n.shift)];
    sorted[at[n]] = keys[n];
  }
  __syncthreads();
  unsigned int to[ITEMS];
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    const int i = n * THREADS + t;
    const Key key = sorted[i];
    to[n] = starts[digit_of(key, p.n.shift)] + i;
    if (i < inside) p.moved[base + to[n]] = key;
  }
  __syncthreads();
  unsigned int* places = (unsigned int*)sorted;
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    const int i = (warp * ITEMS + n) * 32 + lane;
    if (i < inside) {
      const long long from = first + i;
      places[at[n]] = p.n.numbered ? (unsigned int)from : p.places[base + from];
    }
  }
  __syncthreads();
  #pragma unroll
  for (int n = 0; n < ITEMS; ++n) {
    const int i = n * THREADS + t;
    if (i < inside) p.moved_places[base + to[n]] = places[i];
  }
}

// take: 3907 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, work0, output0
typedef unsigned int Index;
typedef unsigned int Element;
// Rows of so many elements, `inner` of them between each other; which part of each
// element is meant; and whether elements have no order yet.
struct Rows {
  long long rows, length, inner;
  int parts, part, numbered, unused;
};

__device__ __forceinline__ Index place_of(const Rows& n, Index row, Index i,
                                          Index length) {
  const Index inner = (Index)n.inner;
  return (row / inner * length + i) * inner + row % inner;
}

struct Taking {
  const Element* x;
  const unsigned int* places;
  Element* out;
  Rows n;
  long long kept;
};

// The row and the number in it of an element of the output.
__device__ __forceinline__ void out_place(const Taking& p, Index g, Index* row,
                                          Index* i) {
  const Index inner = (Index)p.n.inner, kept = (Index)p.kept;
  *row = g / inner / kept * inner + g % inner;
  *i = g / inner % kept;
}

extern "C" __global__ void __launch_bounds__(256)
take(const __grid_constant__ Taking p) {
  const Index length = (Index)p.n.length, count = (Index)(p.n.rows * p.kept);
  const Index step = (Index)gridDim.x * 256;
  for (Index g = (Index)blockIdx.x * 256 + threadIdx.x; g < count; g += step) {
    Index row, i;
    out_place(p, g, &row, &i);
    const Index from = p.places[row * length + i];
    p.out[g] = p.x[place_of(p.n, row, from, length)];
  }
}

extern "C" __global__ void __launch_bounds__(256)
number(const __grid_constant__ Taking p) {
  const Index length = (Index)p.n.length, count = (Index)(p.n.rows * p.kept);
  const Index step = (Index)gridDim.x * 256;
  for (Index g = (Index)blockIdx.x * 256 + threadIdx.x; g < count; g += step) {
    Index row, i;
    out_place(p, g, &row, &i);
    *(unsigned int*)&p.out[g] = p.places[row * length + i];
  }
}
