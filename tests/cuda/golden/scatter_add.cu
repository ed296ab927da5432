// k0: 40 x 1 x 1 blocks of 128 threads, 0 bytes, on input1, work0
// k1: 1250 x 1 x 1 blocks of 256 threads, 0 bytes, on output0, input2, work20224, work40448
struct P0 { const int* in1; unsigned int* local3; };
extern "C" __global__ void __launch_bounds__(128)
k0(const __grid_constant__ P0 p) {
  const int* __restrict__ in1 = p.in1;
  unsigned int* __restrict__ local3 = p.local3;
  const int groups = (int)gridDim.x * 128;
  for (int g = (int)blockIdx.x * 128 + (int)threadIdx.x; g < 5000; g += groups) {
    const int i0 = g;
    const int v1 = in1[i0];
    const bool v2 = (v1 < 0);
    const int v3 = (int)((unsigned int)v1 + (unsigned int)1000);
    const int v4 = (v2 ? v3 : v1);
    const unsigned int v5 = (unsigned int)v4;
    const int i6 = (int)(v5);
    const bool v7 = (v5 <= 999u);
    const unsigned int v8 = (unsigned int)i6;
    const unsigned int v9 = (v7 ? v8 : 1000u);
    local3[i0] = v9;
  }
}

struct P1 { float* inout0; const float* in2; const unsigned int* local4; const unsigned int* local5; };
extern "C" __global__ void __launch_bounds__(256)
k1(const __grid_constant__ P1 p) {
  float* __restrict__ inout0 = p.inout0;
  const float* __restrict__ in2 = p.in2;
  const unsigned int* __restrict__ local4 = p.local4;
  const unsigned int* __restrict__ local5 = p.local5;
  const int groups = (int)gridDim.x * 256;
  for (int g = (int)blockIdx.x * 256 + (int)threadIdx.x; g < 320000; g += groups) {
    const int i0 = (int)((unsigned int)g % 64u);
    const int i1 = (int)((unsigned int)g / 64u);
    const unsigned int v2 = local4[i1];
    const int i3 = (int)(v2);
    const int i4 = i1;
    const unsigned int v5 = i4 < 5000 ? local4[i4] : 1000u;
    if (v5 < 1000u && (i4 == 0 || local4[i4 - 1] != v5)) {
      int i6 = 1;
      while (i6 < 5000 - i4 && local4[i4 + i6] == v5) i6 *= 2;
      int i7 = i4 + i6 / 2;
      int i8 = i4 + (i6 < 5000 - i4 ? i6 : 5000 - i4);
      while (i8 - i7 > 1) {
        const int i9 = i7 + (i8 - i7) / 2;
        if (local4[i9] == v5) i7 = i9;
        else i8 = i9;
      }
      float v10 = inout0[i0 + i3 * 64];
      #pragma unroll 16
      for (int i11 = i4; i11 < i8; ++i11) {
        const unsigned int v12 = local5[i11];
        const int i13 = (int)(v12);
        const float v14 = in2[i0 + i13 * 64];
        v10 = (v10 + v14);
      }
      inout0[i0 + i3 * 64] = v10;
    }
  }
}

// count: 2 x 1 x 1 blocks of 256 threads, 0 bytes, on work0, work60672
// add_up: 32 x 1 x 1 blocks of 256 threads, 0 bytes, on work60672
// move: 2 x 1 x 1 blocks of 256 threads, 0 bytes, on work0, work0, work60672, work63744, work83968
// count: 2 x 1 x 1 blocks of 256 threads, 0 bytes, on work63744, work60672
// add_up: 32 x 1 x 1 blocks of 256 threads, 0 bytes, on work60672
// move: 2 x 1 x 1 blocks of 256 threads, 0 bytes, on work63744, work83968, work60672, work20224, work40448
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
