"""Radix sort as CUDA C: rows of unsigned integers, and the place that each came from.

Eight bits at a time, from the lowest ones up: blocks count the digits of their tiles,
the counts of each digit are added up over the tiles, and blocks move the elements of
their tiles to where those of their digit go, equal ones in their order. Only as many
bits are looked at as the keys have. Nothing depends on which block is faster.
Receives places of memory, gives launches; used by `lower.py` and `routines.py`.
"""

from __future__ import annotations

import struct

from fnx.records import record
from fnx.runtime.plan import Place
from fnx_cuda.instructions import Launch
from fnx_cuda.work import Work

DIGIT = 8
"""Bits that one pass sorts by."""

THREADS = 256
"""Of a block; as many as a digit has values."""

TILE = 16_384
"""The bytes of the keys that a block counts and moves."""

_WARPS = THREADS // 32


@record
class Keys:
    """Rows of keys one behind the other: unsigned, of 4 or 8 bytes, below 2**bits."""

    rows: int
    length: int
    itemsize: int
    bits: int


def radix_sort(
    keys: Keys,
    source: Place,
    ordered: Place,
    places: Place,
    before: Place | None,
    work: Work,
) -> list[Launch]:
    """Launches that sort each row.

    `ordered` gets the keys, `places` a number of 32 bits for each: its number in the
    row, or the one that `before` has there. None of them may be the same memory.
    """
    tiles = -(-keys.length // (TILE // keys.itemsize))
    text = _text(keys.itemsize)
    counts = work.place(4 * keys.rows * (tiles + 1) << DIGIT)
    passes = -(-keys.bits // DIGIT)
    other = source, places
    if passes > 1:
        elements = keys.rows * keys.length
        other = work.place(elements * keys.itemsize), work.place(elements * 4)
    found = list[Launch]()
    given = source, before
    for number in range(passes):
        end = (ordered, places) if (passes - number) % 2 else other
        numbers = _numbers(keys, tiles, number * DIGIT, given[1] is None)
        blocks = keys.rows * tiles
        found += [
            Launch(
                text, "count", (blocks, 1, 1), THREADS, 0, (given[0], counts), numbers
            ),
            Launch(
                text,
                "add_up",
                (-(-(keys.rows << DIGIT) // _WARPS), 1, 1),
                THREADS,
                0,
                (counts,),
                numbers,
            ),
            Launch(
                text,
                "move",
                (blocks, 1, 1),
                THREADS,
                0,
                (given[0], given[1] or given[0], counts, *end),
                numbers,
            ),
        ]
        given = end
    return found


def _numbers(keys: Keys, tiles: int, shift: int, numbered: bool) -> bytes:
    """The struct `Numbers` of the text."""
    return struct.pack("<q4i", keys.rows, keys.length, tiles, shift, numbered)


def _text(itemsize: int) -> str:
    key = "unsigned int" if itemsize == 4 else "unsigned long long"
    return f"typedef {key} Key;\n{_RADIX}"


_RADIX = (
    f"""\
enum {{ THREADS = {THREADS}, WARPS = {_WARPS}, TILE = {TILE} / sizeof(Key) }};
enum {{ ITEMS = TILE / THREADS, BITS = {DIGIT}, DIGITS = 1 << BITS }};
"""
    + """\
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
"""
)
