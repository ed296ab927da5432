"""The CUDA C of linear algebra: scalars, and kernels on stacks of matrices of any size.

Matrices are in global memory and are seen by strides, so that a transposed one is no
other; factors are made panel by panel of 32 columns, and what a panel does to the rest
is one product. One block has a panel, many share the rest. Receives a dtype, gives a
text; next on the walk: `reflections_text.py`, used by `matrices.py`.
"""

from __future__ import annotations

from fnx import dtypes
from fnx.dtypes import DType
from fnx_cuda.reflections_text import COLUMN, REFLECTIONS

THREADS = 256

PANEL = 32
"""The columns of a panel, and the sides of a tile."""

ORDERED = 8192
"""The longest permutation that is made in shared memory."""

WHOLE, LOWER, UPPER, IDENTITY = range(4)
"""What is copied of a matrix; the rest is zeros."""


def text(dtype: DType) -> str:
    """The translation unit for a dtype."""
    parts = scalars(dtype), _PARTS, _LIBRARIES, _SOLVING, _FACTORS, COLUMN, REFLECTIONS
    return "".join(parts)


def scalars(dtype: DType) -> str:
    """What units begin with: arithmetic of a dtype, and views of matrices."""
    double = dtypes.real_dtype(dtype) == dtypes.float64
    head = [
        f"typedef {'double' if double else 'float'} Real;",
        f"#define SQRT {'sqrt' if double else 'sqrtf'}",
        f"enum {{ THREADS = {THREADS}, N = {PANEL}, ORDERED = {ORDERED} }};",
        f"enum {{ WHOLE = {WHOLE}, LOWER = {LOWER}, UPPER = {UPPER} }};",
    ]
    kind = _COMPLEX if dtypes.is_complex(dtype) else _REAL
    return "".join(["\n".join(head), kind, _COMMON])


_REAL = """
typedef Real T;
__device__ __forceinline__ T number(Real x) { return x; }
__device__ __forceinline__ T conjugate(T x) { return x; }
__device__ __forceinline__ Real real(T x) { return x; }
__device__ __forceinline__ Real imaginary(T x) { return 0; }
__device__ __forceinline__ T times(T x, Real y) { return x * y; }
"""

_COMPLEX = """
struct __align__(2 * sizeof(Real)) T { Real re, im; };
__device__ __forceinline__ T number(Real re, Real im = 0) {
  T z;
  z.re = re;
  z.im = im;
  return z;
}
__device__ __forceinline__ T conjugate(T x) { return number(x.re, -x.im); }
__device__ __forceinline__ Real real(T x) { return x.re; }
__device__ __forceinline__ Real imaginary(T x) { return x.im; }
__device__ __forceinline__ T times(T x, Real y) { return number(x.re * y, x.im * y); }
__device__ __forceinline__ T operator+(T x, T y) {
  return number(x.re + y.re, x.im + y.im);
}
__device__ __forceinline__ T operator-(T x, T y) {
  return number(x.re - y.re, x.im - y.im);
}
__device__ __forceinline__ T operator*(T x, T y) {
  return number(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}
// By the larger part of y, so that nothing overflows on the way (Smith, 1962).
__device__ __forceinline__ T operator/(T x, T y) {
  const bool flat = (y.re < 0 ? -y.re : y.re) >= (y.im < 0 ? -y.im : y.im);
  const Real large = flat ? y.re : y.im, small = flat ? y.im : y.re;
  const Real ratio = small / large, divisor = large + small * ratio;
  if (flat)
    return number((x.re + x.im * ratio) / divisor, (x.im - x.re * ratio) / divisor);
  return number((x.re * ratio + x.im) / divisor, (x.im * ratio - x.re) / divisor);
}
"""

_COMMON = """
typedef long long Long;

__device__ __forceinline__ Real positive(Real x) { return x < 0 ? -x : x; }
// What pivots are compared by, and whether a number is 0.
__device__ __forceinline__ Real size(T x) {
  return positive(real(x)) + positive(imaginary(x));
}
__device__ __forceinline__ T chosen(T x, int conjugated) {
  return conjugated ? conjugate(x) : x;
}

// A stack of matrices in memory, in elements.
struct View { Long offset, stack, row, column; };

__device__ __forceinline__ Long place(const View& v, Long item, int i, int j) {
  return v.offset + item * v.stack + i * v.row + j * v.column;
}
"""

_PARTS = """
struct Copying {
  const T* x;
  T* out;
  View from, to;
  Long count;
  int m, n, kind, conjugated;
};

extern "C" __global__ void __launch_bounds__(THREADS)
copy_part(const __grid_constant__ Copying p) {
  const Long stride = (Long)gridDim.x * THREADS;
  for (Long g = (Long)blockIdx.x * THREADS + threadIdx.x; g < p.count; g += stride) {
    const int j = (int)(g % p.n), i = (int)(g / p.n % p.m);
    const Long item = g / p.n / p.m;
    const bool kept = p.kind == WHOLE || (p.kind == LOWER && i >= j) ||
                      (p.kind == UPPER && i <= j);
    T value = number(p.kind > UPPER && i == j ? 1 : 0);
    if (kept) value = chosen(p.x[place(p.from, item, i, j)], p.conjugated);
    p.out[place(p.to, item, i, j)] = value;
  }
}

struct Scaling { T* x; View view; double factor; Long count; int m, n; };

// A factor for all, each of the parts of complex numbers rounded once.
extern "C" __global__ void __launch_bounds__(THREADS)
scale(const __grid_constant__ Scaling p) {
  const Long stride = (Long)gridDim.x * THREADS;
  for (Long g = (Long)blockIdx.x * THREADS + threadIdx.x; g < p.count; g += stride) {
    T* x = p.x + place(p.view, g / p.n / p.m, (int)(g / p.n % p.m), (int)(g % p.n));
    *x = times(*x, (Real)p.factor);
  }
}

struct Spoiling {
  T* out;
  const int* failed;
  View to;
  Long count;
  int m, n, kind, unused;
};

// NaN for the matrices that have failed.
extern "C" __global__ void __launch_bounds__(THREADS)
spoil(const __grid_constant__ Spoiling p) {
  const Long stride = (Long)gridDim.x * THREADS;
  for (Long g = (Long)blockIdx.x * THREADS + threadIdx.x; g < p.count; g += stride) {
    const int j = (int)(g % p.n), i = (int)(g / p.n % p.m);
    const Long item = g / p.n / p.m;
    if (!p.failed[item] || (p.kind == LOWER && i < j)) continue;
    T nan = number(0);
    nan = nan / nan;
    p.out[place(p.to, item, i, j)] = nan;
  }
}
"""

_LIBRARIES = """
struct Listing { char* start; char** out; Long step; int count, unused; };

// The addresses of arrays that lie some bytes apart.
extern "C" __global__ void __launch_bounds__(THREADS)
list_addresses(const __grid_constant__ Listing p) {
  const Long i = (Long)blockIdx.x * THREADS + threadIdx.x;
  if (i < p.count) p.out[i] = p.start + i * p.step;
}

struct Pairing {
  const T* vectors;
  const Real* values;
  Real* out;
  Long count;
  int n, unused;
};

// Complex vectors of a real matrix: where values have an imaginary part, two columns
// are the parts of the first of two vectors, and the second one is conjugated.
extern "C" __global__ void __launch_bounds__(THREADS)
pair_vectors(const __grid_constant__ Pairing p) {
  const Long stride = (Long)gridDim.x * THREADS;
  for (Long g = (Long)blockIdx.x * THREADS + threadIdx.x; g < p.count; g += stride) {
    const int j = (int)(g % p.n), i = (int)(g / p.n % p.n);
    const Long column = g / p.n / p.n * p.n + j;
    const Real turning = p.values[2 * column + 1];
    const Long first = turning < 0 ? column - 1 : column;
    p.out[2 * g] = real(p.vectors[first * p.n + i]);
    Real part = turning == 0 ? 0 : real(p.vectors[(first + 1) * p.n + i]);
    p.out[2 * g + 1] = turning < 0 ? -part : part;
  }
}
"""

_SOLVING = """
struct Solving {
  const T* a;
  T* x;
  View left, right;
  int n, count;  // the sizes of x
  int tiles, shift;  // blocks of so many columns of x, and the logarithm of that
  int reversed, unit, conjugated, unused;
};

// op(a) x = x in place, with a lower triangle; an upper one is seen from its end. A
// block has some columns of x, and goes down tile by tile.
extern "C" __global__ void __launch_bounds__(THREADS)
solve_columns(const __grid_constant__ Solving p) {
  __shared__ T tile[N][N + 1], known[N][N + 1];
  const int t = threadIdx.x, width = 1 << p.shift, n = p.n;
  const Long item = blockIdx.x / (unsigned)p.tiles;
  const int first = (int)(blockIdx.x % (unsigned)p.tiles) * width;
  T own[N * N / THREADS];
  for (int top = 0; top < n; top += N) {
    #pragma unroll
    for (int q = 0; q < N * N / THREADS; ++q) {
      const int e = t + q * THREADS, r = e >> p.shift, c = first + (e & (width - 1));
      own[q] = number(0);
      if (r < N && top + r < n && c < p.count) {
        const int i = p.reversed ? n - 1 - top - r : top + r;
        own[q] = p.x[place(p.right, item, i, c)];
      }
    }
    for (int left = 0; left <= top; left += N) {
      __syncthreads();
      for (int e = t; e < N * N; e += THREADS) {
        const int r = e / N, c = e % N;
        T value = number(0);
        if (top + r < n && left + c < n && left + c <= top + r) {
          const int i = p.reversed ? n - 1 - top - r : top + r;
          const int j = p.reversed ? n - 1 - left - c : left + c;
          value = chosen(p.a[place(p.left, item, i, j)], p.conjugated);
        }
        tile[r][c] = value;
      }
      if (left == top) break;
      for (int e = t; e < N << p.shift; e += THREADS) {
        const int r = e >> p.shift, c = e & (width - 1);
        const int i = p.reversed ? n - 1 - left - r : left + r;
        T value = number(0);
        if (first + c < p.count) value = p.x[place(p.right, item, i, first + c)];
        known[r][c] = value;
      }
      __syncthreads();
      #pragma unroll
      for (int q = 0; q < N * N / THREADS; ++q) {
        const int e = t + q * THREADS, r = e >> p.shift, c = e & (width - 1);
        if (r >= N) continue;
        T sum = own[q];
        #pragma unroll 4
        for (int l = 0; l < N; ++l) sum = sum - tile[r][l] * known[l][c];
        own[q] = sum;
      }
    }
    // The tile on the diagonal, row by row.
    for (int l = 0; l < N && top + l < n; ++l) {
      if (l == 0) __syncthreads();
      #pragma unroll
      for (int q = 0; q < N * N / THREADS; ++q) {
        const int e = t + q * THREADS, r = e >> p.shift, c = e & (width - 1);
        if (r != l) continue;
        if (!p.unit) own[q] = own[q] / tile[l][l];
        known[l][c] = own[q];
        const int i = p.reversed ? n - 1 - top - r : top + r;
        if (first + c < p.count) p.x[place(p.right, item, i, first + c)] = own[q];
      }
      __syncthreads();
      #pragma unroll
      for (int q = 0; q < N * N / THREADS; ++q) {
        const int e = t + q * THREADS, r = e >> p.shift, c = e & (width - 1);
        if (r > l && r < N) own[q] = own[q] - tile[r][l] * known[l][c];
      }
    }
  }
}

struct Updating {
  const T* a;
  const T* b;
  T* c;
  View left, right, out;
  int m, n, depth, tiles_m, tiles_n, lower, conjugated, unused;
};

// c -= a b with up to N terms; only the lower triangle, if that is asked for.
extern "C" __global__ void __launch_bounds__(THREADS)
update(const __grid_constant__ Updating p) {
  __shared__ T left[N][N + 1], right[N][N + 1];
  const int t = threadIdx.x;
  const unsigned tiles = (unsigned)p.tiles_m * p.tiles_n, here = blockIdx.x % tiles;
  const Long item = blockIdx.x / tiles;
  const int top = (int)(here / p.tiles_n) * N, first = (int)(here % p.tiles_n) * N;
  if (p.lower && first > top) return;
  for (int e = t; e < N * N; e += THREADS) {
    const int r = e / N, c = e % N;
    T value = number(0);
    if (top + r < p.m && c < p.depth) value = p.a[place(p.left, item, top + r, c)];
    left[r][c] = value;
    value = number(0);
    if (r < p.depth && first + c < p.n)
      value = chosen(p.b[place(p.right, item, r, first + c)], p.conjugated);
    right[r][c] = value;
  }
  __syncthreads();
  for (int e = t; e < N * N; e += THREADS) {
    const int r = e / N, c = e % N, i = top + r, j = first + c;
    if (i >= p.m || j >= p.n || (p.lower && j > i)) continue;
    T sum = number(0);
    for (int l = 0; l < p.depth; ++l) sum = sum + left[r][l] * right[l][c];
    T* out = p.c + place(p.out, item, i, j);
    *out = *out - sum;
  }
}
"""

_FACTORS = """
struct Panel {
  T* a;
  int* notes;  // of each matrix: whether it has failed, or its pivots
  View view;   // of the matrix from the panel's first element on
  Long note;   // the notes of a matrix
  int m, width, first, unused;  // rows and columns of the panel, and where it begins
};

// The lower Cholesky factor of a square panel; it fails where a pivot is not positive.
extern "C" __global__ void __launch_bounds__(THREADS)
cholesky_panel(const __grid_constant__ Panel p) {
  __shared__ T tile[N][N + 1];
  const int t = threadIdx.x;
  const Long item = blockIdx.x;
  bool failed = false;
  for (int e = t; e < N * N; e += THREADS) {
    const int r = e / N, c = e % N;
    if (r < p.width && c <= r) tile[r][c] = p.a[place(p.view, item, r, c)];
  }
  for (int l = 0; l < p.width; ++l) {
    __syncthreads();
    const Real pivot = real(tile[l][l]);
    failed = failed || !(pivot > 0);
    const Real root = SQRT(pivot);
    __syncthreads();
    if (t == l) tile[l][l] = number(root);
    if (t > l && t < p.width) tile[t][l] = tile[t][l] / number(root);
    __syncthreads();
    for (int e = t; e < N * N; e += THREADS) {
      const int r = e / N, c = e % N;
      if (r < p.width && c > l && c <= r)
        tile[r][c] = tile[r][c] - tile[r][l] * conjugate(tile[c][l]);
    }
  }
  __syncthreads();
  for (int e = t; e < N * N; e += THREADS) {
    const int r = e / N, c = e % N;
    if (r < p.width && c <= r) p.a[place(p.view, item, r, c)] = tile[r][c];
  }
  if (t == 0) p.notes[item] = failed || (p.first > 0 && p.notes[item]);
}

// The factors of a panel of columns, with exchanged rows; notes are the pivots.
extern "C" __global__ void __launch_bounds__(THREADS)
lu_panel(const __grid_constant__ Panel p) {
  __shared__ Real best[THREADS];
  __shared__ int where[THREADS];
  const int t = threadIdx.x;
  const Long item = blockIdx.x;
  for (int l = 0; l < p.width && l < p.m; ++l) {
    Real largest = -1;
    int row = l;
    for (int i = l + t; i < p.m; i += THREADS) {
      const Real found = size(p.a[place(p.view, item, i, l)]);
      if (found > largest) {
        largest = found;
        row = i;
      }
    }
    best[t] = largest;
    where[t] = row;
    for (int half = THREADS / 2; half > 0; half /= 2) {
      __syncthreads();
      if (t < half) {
        const Real other = best[t + half];
        const bool first = other == best[t] && where[t + half] < where[t];
        if (other > best[t] || first) {
          best[t] = other;
          where[t] = where[t + half];
        }
      }
    }
    __syncthreads();
    const int pivot = where[0];
    if (t == 0) p.notes[item * p.note + p.first + l] = p.first + pivot;
    if (t < p.width && pivot != l) {
      T* upper = p.a + place(p.view, item, l, t);
      T* lower = p.a + place(p.view, item, pivot, t);
      const T kept = *upper;
      *upper = *lower;
      *lower = kept;
    }
    __syncthreads();
    const T divisor = p.a[place(p.view, item, l, l)];
    if (size(divisor) != 0) {
      for (int i = l + 1 + t; i < p.m; i += THREADS) {
        T* factor = p.a + place(p.view, item, i, l);
        *factor = *factor / divisor;
      }
    }
    __syncthreads();
    const int j = l + 1 + t % N;
    if (j < p.width) {
      const T upper = p.a[place(p.view, item, l, j)];
      for (int i = l + 1 + t / N; i < p.m; i += THREADS / N) {
        T* element = p.a + place(p.view, item, i, j);
        *element = *element - p.a[place(p.view, item, i, l)] * upper;
      }
    }
    __syncthreads();
  }
}

struct Exchanging {
  T* x;
  const int* pivots;
  View view;
  Long note;
  int columns, chunks, first, count;  // which pivots
  int begin, end;  // columns that are not meant
  int reversed, unused;
};

// Each column exchanges its rows as the pivots say, or back.
extern "C" __global__ void __launch_bounds__(THREADS)
exchange_rows(const __grid_constant__ Exchanging p) {
  const Long item = blockIdx.x / (unsigned)p.chunks;
  const int j = (int)(blockIdx.x % (unsigned)p.chunks) * THREADS + threadIdx.x;
  if (j >= p.columns || (j >= p.begin && j < p.end)) return;
  for (int n = 0; n < p.count; ++n) {
    const int i = p.first + (p.reversed ? p.count - 1 - n : n);
    const int other = p.pivots[item * p.note + i];
    if (other == i) continue;
    T* one = p.x + place(p.view, item, i, j);
    T* two = p.x + place(p.view, item, other, j);
    const T kept = *one;
    *one = *two;
    *two = kept;
  }
}

struct Ordering { const int* pivots; int* out; int count, length; };

// The numbers of rows after the exchanges.
extern "C" __global__ void __launch_bounds__(THREADS)
order_rows(const __grid_constant__ Ordering p) {
  __shared__ int memory[ORDERED];
  const Long item = blockIdx.x;
  int* out = p.out + item * p.length;
  int* order = p.length <= ORDERED ? memory : out;
  for (int i = threadIdx.x; i < p.length; i += THREADS) order[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.count; ++i) {
      const int other = p.pivots[item * p.count + i], kept = order[i];
      order[i] = order[other];
      order[other] = kept;
    }
  }
  __syncthreads();
  if (order == out) return;
  for (int i = threadIdx.x; i < p.length; i += THREADS) out[i] = order[i];
}

// Pivots that are counted from 1, from 0.
extern "C" __global__ void __launch_bounds__(THREADS)
count_from_0(const __grid_constant__ Ordering p) {
  const Long item = blockIdx.x;
  for (int i = threadIdx.x; i < p.count; i += THREADS)
    p.out[item * p.count + i] = p.pivots[item * p.count + i] - 1;
}

struct Looking { const T* a; int* failed; View view; Long n; };

// Whether there is a 0 on the diagonal.
extern "C" __global__ void __launch_bounds__(THREADS)
find_zeros(const __grid_constant__ Looking p) {
  const Long item = blockIdx.x;
  int found = 0;
  for (int i = threadIdx.x; i < p.n; i += THREADS)
    found |= size(p.a[place(p.view, item, i, i)]) == 0;
  found = __syncthreads_or(found);
  if (threadIdx.x == 0) p.failed[item] = found;
}
"""
