// sort_rows: 1024 x 1 x 1 blocks of 256 threads, 6144 bytes, on input0, input0, work0, work0
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

// take: 4000 x 1 x 1 blocks of 256 threads, 0 bytes, on input0, work0, output0
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
