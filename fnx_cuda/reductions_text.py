"""The CUDA C of what goes column by column: pivoted QR, Hessenberg and tridiagonal
forms, and tridiagonal systems.

Each column is a reflection by one block a matrix, and its application to the rest of
the matrix by many. It goes on from the scalars and views of `matrices_text.py` and the
reflection of `reflections_text.py`. Receives a dtype, gives a text; used by
`reductions.py`, which is next on the walk.
"""

from __future__ import annotations

from fnx.dtypes import DType
from fnx_cuda.matrices_text import scalars
from fnx_cuda.reflections_text import COLUMN


def text(dtype: DType) -> str:
    """The translation unit for a dtype."""
    return "".join([scalars(dtype), COLUMN, _LENGTHS, _STEPS, _FORMS, _SYSTEMS])


_LENGTHS = """
// The length of a vector is scale * sqrt(sum), so that no square is lost.
struct Length { Real scale, sum; };

__device__ __forceinline__ void add(Length& x, Real scale, Real sum) {
  if (scale == 0) return;
  const bool larger = x.scale < scale;
  const Real ratio = larger ? x.scale / scale : scale / x.scale;
  x.sum = larger ? sum + x.sum * ratio * ratio : x.sum + sum * ratio * ratio;
  if (larger) x.scale = scale;
}

__device__ __forceinline__ void add(Length& x, T y) {
  add(x, positive(real(y)), 1);
  add(x, positive(imaginary(y)), 1);
}

// The length that the groups of a lane have measured, in its first group.
__device__ __forceinline__ Real over_groups(Length own, Length* memory) {
  const int t = threadIdx.x;
  memory[t] = own;
  __syncthreads();
  if (t < N)
    for (int n = 1; n < THREADS / N; ++n)
      add(own, memory[t + n * N].scale, memory[t + n * N].sum);
  return own.scale * SQRT(own.sum);
}

struct Measuring {
  const T* a;
  Real* lengths;
  int* order;
  View view;
  int m, n, tiles, unused;
};

// The lengths of columns, and their first order; a block has N columns.
extern "C" __global__ void __launch_bounds__(THREADS)
measure_columns(const __grid_constant__ Measuring p) {
  __shared__ Length memory[THREADS];
  const Long item = blockIdx.x / (unsigned)p.tiles;
  const int j = (int)(blockIdx.x % (unsigned)p.tiles) * N + threadIdx.x % N;
  Length own = {0, 0};
  for (int i = threadIdx.x / N; i < p.m && j < p.n; i += THREADS / N)
    add(own, p.a[place(p.view, item, i, j)]);
  const Real length = over_groups(own, memory);
  if (threadIdx.x < N && j < p.n) {
    p.lengths[item * p.n + j] = length;
    p.order[item * p.n + j] = j;
  }
}
"""

_STEPS = """
// The whole vector of a reflection, one element after the other.
__device__ __forceinline__ void keep_vector(const T* a, const View& view, Long item,
                                            int m, int row, int column, T* vector) {
  for (int i = row + threadIdx.x; i < m; i += THREADS)
    vector[item * m + i] = i == row ? number(1) : a[place(view, item, i, column)];
}

struct Reducing {
  T* a;
  T* taus;
  T* vector;
  View view;
  Long tau;  // the factors of a matrix
  int m, row, column, number;
};

// The reflection of one column, below a row; its factor has a number.
extern "C" __global__ void __launch_bounds__(THREADS)
reflect_column(const __grid_constant__ Reducing p) {
  __shared__ Real memory[THREADS];
  const Long item = blockIdx.x;
  T tau;
  reflect(p.a, p.view, item, p.m, p.row, p.column, tau, memory);
  if (threadIdx.x == 0) p.taus[item * p.tau + p.number] = tau;
  keep_vector(p.a, p.view, item, p.m, p.row, p.column, p.vector);
}

struct Choosing {
  T* a;
  T* taus;
  T* vector;
  Real* lengths;
  int* order;
  View view;
  Long tau;
  int m, n, number, unused;
};

// The longest column of those that are left takes the place of the first one, and is
// reflected.
extern "C" __global__ void __launch_bounds__(THREADS)
choose_column(const __grid_constant__ Choosing p) {
  __shared__ Real memory[THREADS];
  __shared__ int where[THREADS];
  const int t = threadIdx.x, k = p.number;
  const Long item = blockIdx.x;
  Real* lengths = p.lengths + item * p.n;
  int* order = p.order + item * p.n;
  Real largest = -1;
  int column = k;
  for (int j = k + t; j < p.n; j += THREADS) {
    if (lengths[j] > largest) {
      largest = lengths[j];
      column = j;
    }
  }
  memory[t] = largest;
  where[t] = column;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) {
      const Real other = memory[t + half];
      const bool first = other == memory[t] && where[t + half] < where[t];
      if (other > memory[t] || first) {
        memory[t] = other;
        where[t] = where[t + half];
      }
    }
  }
  __syncthreads();
  const int pivot = where[0];
  if (pivot != k) {
    for (int i = t; i < p.m; i += THREADS) {
      T* left = p.a + place(p.view, item, i, k);
      T* right = p.a + place(p.view, item, i, pivot);
      const T kept = *left;
      *left = *right;
      *right = kept;
    }
    if (t == 0) {
      const int kept = order[k];
      order[k] = order[pivot];
      order[pivot] = kept;
      lengths[pivot] = lengths[k];
    }
  }
  __syncthreads();
  T tau;
  reflect(p.a, p.view, item, p.m, k, k, tau, memory);
  if (t == 0) p.taus[item * p.tau + k] = tau;
  keep_vector(p.a, p.view, item, p.m, k, k, p.vector);
}

struct Left {
  T* c;
  const T* vector;
  const T* taus;
  Real* lengths;
  View view;
  Long tau, length;  // the factors and the elements of the vector of a matrix
  int m, n, tiles, number, first, measured;
};

// c -= conj(tau) v vᴴ c, where v begins with its first element; a block has N columns.
// Their lengths without the first row are measured, if that is asked for.
extern "C" __global__ void __launch_bounds__(THREADS)
reflect_left(const __grid_constant__ Left p) {
  __shared__ T sums[THREADS];
  __shared__ Length memory[THREADS];
  const int t = threadIdx.x, group = t / N, lane = t % N;
  const Long item = blockIdx.x / (unsigned)p.tiles;
  const int j = (int)(blockIdx.x % (unsigned)p.tiles) * N + lane;
  const T tau = conjugate(p.taus[item * p.tau + p.number]);
  const T* v = p.vector + item * p.length + p.first;
  T sum = number(0);
  for (int i = group; i < p.m && j < p.n; i += THREADS / N)
    sum = sum + conjugate(v[i]) * p.c[place(p.view, item, i, j)];
  sums[t] = sum;
  __syncthreads();
  sum = number(0);
  for (int n = 0; n < THREADS / N; ++n) sum = sum + sums[n * N + lane];
  sum = size(tau) == 0 ? number(0) : tau * sum;
  Length own = {0, 0};
  for (int i = group; i < p.m && j < p.n; i += THREADS / N) {
    T* x = p.c + place(p.view, item, i, j);
    *x = *x - v[i] * sum;
    if (i > 0) add(own, *x);
  }
  if (!p.measured) return;
  const Real length = over_groups(own, memory);
  const int before = p.number + 1;  // columns of the matrix
  if (group == 0 && j < p.n)
    p.lengths[item * (before + p.n) + before + j] = length;
}

struct Right {
  T* c;
  const T* vector;
  const T* taus;
  View view;
  Long tau, length;
  int m, n, tiles, number, first, unused;
};

// c -= tau c v vᴴ; a row has N threads.
extern "C" __global__ void __launch_bounds__(THREADS)
reflect_right(const __grid_constant__ Right p) {
  __shared__ T sums[THREADS];
  const int t = threadIdx.x, group = t / N, lane = t % N;
  const Long item = blockIdx.x / (unsigned)p.tiles;
  const int i = (int)(blockIdx.x % (unsigned)p.tiles) * (THREADS / N) + group;
  const T tau = p.taus[item * p.tau + p.number];
  const T* v = p.vector + item * p.length + p.first;
  T sum = number(0);
  for (int j = lane; j < p.n && i < p.m; j += N)
    sum = sum + p.c[place(p.view, item, i, j)] * v[j];
  sums[t] = sum;
  __syncthreads();
  sum = number(0);
  for (int n = 0; n < N; ++n) sum = sum + sums[group * N + n];
  sum = size(tau) == 0 ? number(0) : tau * sum;
  for (int j = lane; j < p.n && i < p.m; j += N) {
    T* x = p.c + place(p.view, item, i, j);
    *x = *x - sum * conjugate(v[j]);
  }
}
"""

_FORMS = """
struct Mirroring { const T* a; T* out; View from, to; Long count; int n, unused; };

// The whole Hermitian matrix of a lower triangle.
extern "C" __global__ void __launch_bounds__(THREADS)
mirror(const __grid_constant__ Mirroring p) {
  const Long stride = (Long)gridDim.x * THREADS;
  for (Long g = (Long)blockIdx.x * THREADS + threadIdx.x; g < p.count; g += stride) {
    const int j = (int)(g % p.n), i = (int)(g / p.n % p.n);
    const Long item = g / p.n / p.n;
    T value = p.a[place(p.from, item, i > j ? i : j, i > j ? j : i)];
    if (i == j) value = number(real(value));
    if (i < j) value = conjugate(value);
    p.out[place(p.to, item, i, j)] = value;
  }
}

struct Taking {
  const T* a;
  T* out;
  Real* diagonal;
  Real* beside;
  View from, to;
  Long count;
  int n, reversed;
};

// The lower triangle, and both diagonals, which are real.
extern "C" __global__ void __launch_bounds__(THREADS)
take_diagonals(const __grid_constant__ Taking p) {
  const Long stride = (Long)gridDim.x * THREADS;
  for (Long g = (Long)blockIdx.x * THREADS + threadIdx.x; g < p.count; g += stride) {
    const int j = (int)(g % p.n), i = (int)(g / p.n % p.n);
    const Long item = g / p.n / p.n;
    if (i < j) continue;
    T value = p.a[place(p.from, item, i, j)];
    const int last = p.n - 1, at = p.reversed ? last - i : i;
    if (i == j) p.diagonal[item * p.n + at] = real(value);
    if (i == j + 1) p.beside[item * last + (p.reversed ? at : at - 1)] = real(value);
    p.out[place(p.to, item, i, j)] = i <= j + 1 ? number(real(value)) : value;
  }
}
"""

_SYSTEMS = """
struct Factoring {
  const T* below;
  const T* diagonal;
  const T* above;
  T* factors;  // row after row: of all systems the multiplier, and three diagonals of u
  int* swaps;
  int* failed;
  Long count;
  int n, unused;
};

// The factors of tridiagonal matrices, with exchanged rows; a thread has a matrix.
extern "C" __global__ void __launch_bounds__(THREADS)
factor_systems(const __grid_constant__ Factoring p) {
  const Long item = (Long)blockIdx.x * THREADS + threadIdx.x;
  if (item >= p.count) return;
  const T *below = p.below + item * p.n, *diagonal = p.diagonal + item * p.n;
  const T* above = p.above + item * p.n;
  T own = diagonal[0], right = p.n > 1 ? above[0] : number(0);
  bool failed = false;
  for (int i = 0; i < p.n - 1; ++i) {
    const T lower = below[i + 1], next = diagonal[i + 1];
    const T behind = i + 2 < p.n ? above[i + 1] : number(0);
    const bool stays = size(own) >= size(lower), zero = stays && size(own) == 0;
    failed = failed || zero;
    const T factor = zero ? number(0) : stays ? lower / own : own / lower;
    T* out = p.factors + (Long)i * 4 * p.count + item;
    out[0] = factor;
    out[p.count] = stays ? own : lower;
    out[2 * p.count] = stays ? right : next;
    out[3 * p.count] = stays ? number(0) : behind;
    p.swaps[(Long)i * p.count + item] = !stays;
    own = stays ? next - factor * right : right - factor * next;
    right = stays ? behind : number(0) - factor * behind;
  }
  p.factors[((Long)(p.n - 1) * 4 + 1) * p.count + item] = own;
  p.failed[item] = p.n > 1 && (failed || size(own) == 0);
}

struct Systems {
  T* x;
  const T* factors;
  const int* swaps;
  Long count;
  int n, columns;
};

// Solves with the factors, in place; a thread has a column.
extern "C" __global__ void __launch_bounds__(THREADS)
solve_systems(const __grid_constant__ Systems p) {
  const Long column = (Long)blockIdx.x * THREADS + threadIdx.x;
  if (column >= p.count * p.columns) return;
  const Long item = column / p.columns, row = 4 * p.count;
  T* x = p.x + item * p.n * p.columns + column % p.columns;
  const T* factors = p.factors + item;
  T own = x[0];
  for (int i = 0; i < p.n - 1; ++i) {
    const T next = x[(Long)(i + 1) * p.columns], factor = factors[i * row];
    const bool swapped = p.swaps[(Long)i * p.count + item];
    x[(Long)i * p.columns] = swapped ? next : own;
    own = swapped ? own - factor * next : next - factor * own;
  }
  T one = number(0), two = number(0);  // the elements below
  for (int i = p.n - 1; i >= 0; --i) {
    const T* u = factors + i * row + p.count;
    if (i < p.n - 1) {
      own = x[(Long)i * p.columns] - u[p.count] * one;
      if (i < p.n - 2) own = own - u[2 * p.count] * two;
    }
    two = one;
    one = own / u[0];
    x[(Long)i * p.columns] = one;
  }
}
"""
