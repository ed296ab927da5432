"""The CUDA C of orthogonal factors: panels of reflections, and how they are applied.

`COLUMN` makes one reflection. The product of those of a panel is I - V T Vᴴ with an
upper triangular T (the compact form of Schreiber and Van Loan, 1989); V has ones on its
diagonal, zeros above it, and below it what lies in memory. It goes on from the scalars
and views of `matrices_text.py`; next on the walk: `matrices.py`.
"""

COLUMN = """
// The sum of a number over the threads, or the largest of them.
__device__ __forceinline__ Real over_threads(Real value, Real* memory, bool adds) {
  const int t = threadIdx.x;
  __syncthreads();
  memory[t] = value;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) {
      const Real x = memory[t], y = memory[t + half];
      memory[t] = adds ? x + y : (x > y || x != x ? x : y);
    }
  }
  __syncthreads();
  return memory[0];
}

// The reflection that brings a column below a row to zeros, and the element there to a
// real number: the vector in place of the zeros, and its factor. Whether there is one.
__device__ bool reflect(T* a, const View& view, Long item, int m, int row, int column,
                        T& tau, Real* memory) {
  const int t = threadIdx.x;
  // The length of what is below, scaled so that no square is lost.
  Real largest = 0;
  for (int i = row + 1 + t; i < m; i += THREADS) {
    const Real found = size(a[place(view, item, i, column)]);
    if (found > largest || found != found) largest = found;
  }
  largest = over_threads(largest, memory, false);
  const T alpha = a[place(view, item, row, column)];
  const bool none = largest == 0 && imaginary(alpha) == 0;
  const Real own = size(alpha), scale = own > largest ? own : largest;
  Real total = 0;
  for (int i = row + 1 + t; i < m && !none; i += THREADS) {
    const T x = a[place(view, item, i, column)];
    const Real re = real(x) / scale, im = imaginary(x) / scale;
    total += re * re + im * im;
  }
  total = over_threads(total, memory, true);
  const Real re = real(alpha) / scale, im = imaginary(alpha) / scale;
  const Real length = scale * SQRT(re * re + im * im + total);
  const Real beta = real(alpha) < 0 ? length : -length;
  tau = none ? number(0) : (number(beta) - alpha) / number(beta);
  const T divisor = alpha - number(beta);
  for (int i = row + 1 + t; i < m && !none; i += THREADS) {
    T* x = a + place(view, item, i, column);
    *x = *x / divisor;
  }
  if (t == 0 && !none) a[place(view, item, row, column)] = number(beta);
  __syncthreads();
  return !none;
}
"""

REFLECTIONS = """
struct Reflecting {
  T* a;
  T* taus;
  View view;  // of the matrix from the panel's first element on
  Long tau;   // the factors of a matrix
  int m, width, first, unused;
};

// Reflections that bring the columns of a panel to a triangle.
extern "C" __global__ void __launch_bounds__(THREADS)
qr_panel(const __grid_constant__ Reflecting p) {
  __shared__ Real memory[THREADS];
  __shared__ T sums[THREADS];
  const int t = threadIdx.x, group = t / N, lane = t % N;
  const Long item = blockIdx.x;
  for (int l = 0; l < p.width && l < p.m; ++l) {
    T tau;
    const bool some = reflect(p.a, p.view, item, p.m, l, l, tau, memory);
    if (t == 0) p.taus[item * p.tau + p.first + l] = tau;
    if (!some) continue;
    // The other columns of the panel, one a lane.
    const int j = l + 1 + lane;
    T sum = number(0);
    if (j < p.width) {
      if (group == 0) sum = p.a[place(p.view, item, l, j)];
      for (int i = l + 1 + group; i < p.m; i += THREADS / N)
        sum = sum + conjugate(p.a[place(p.view, item, i, l)]) *
                        p.a[place(p.view, item, i, j)];
    }
    sums[t] = sum;
    __syncthreads();
    if (j < p.width) {
      sum = number(0);
      for (int n = 0; n < THREADS / N; ++n) sum = sum + sums[n * N + lane];
      sum = conjugate(tau) * sum;
      if (group == 0) {
        T* x = p.a + place(p.view, item, l, j);
        *x = *x - sum;
      }
      for (int i = l + 1 + group; i < p.m; i += THREADS / N) {
        T* x = p.a + place(p.view, item, i, j);
        *x = *x - p.a[place(p.view, item, i, l)] * sum;
      }
    }
    __syncthreads();
  }
}

// An element of V.
__device__ __forceinline__ T of_vector(const T* a, const View& view, Long item, int i,
                                       int j, int m, int width) {
  if (i >= m || j >= width || i < j) return number(0);
  return i == j ? number(1) : a[place(view, item, i, j)];
}

struct Triangle {
  const T* a;
  const T* taus;
  T* out;
  View view;
  Long tau;
  int m, width, first, unused;
};

// T: from the products of the vectors, column after column.
extern "C" __global__ void __launch_bounds__(THREADS)
make_triangle(const __grid_constant__ Triangle p) {
  __shared__ T tile[N][N + 1], triangle[N][N + 1];
  const int t = threadIdx.x;
  const Long item = blockIdx.x;
  T own[N * N / THREADS];
  #pragma unroll
  for (int q = 0; q < N * N / THREADS; ++q) own[q] = number(0);
  for (int top = 0; top < p.m; top += N) {
    __syncthreads();
    for (int e = t; e < N * N; e += THREADS)
      tile[e / N][e % N] =
          of_vector(p.a, p.view, item, top + e / N, e % N, p.m, p.width);
    __syncthreads();
    #pragma unroll
    for (int q = 0; q < N * N / THREADS; ++q) {
      const int e = t + q * THREADS, r = e / N, c = e % N;
      T sum = own[q];
      #pragma unroll 4
      for (int l = 0; l < N; ++l) sum = sum + conjugate(tile[l][r]) * tile[l][c];
      own[q] = sum;
    }
  }
  __syncthreads();
  #pragma unroll
  for (int q = 0; q < N * N / THREADS; ++q) {
    const int e = t + q * THREADS, r = e / N, c = e % N;
    tile[r][c] = own[q];
    triangle[r][c] = number(0);
  }
  for (int j = 0; j < p.width; ++j) {
    __syncthreads();
    if (t > j) continue;
    const T tau = p.taus[item * p.tau + p.first + j];
    T sum = number(0);
    for (int l = t; l < j; ++l) sum = sum + triangle[t][l] * tile[l][j];
    triangle[t][j] = t == j ? tau : number(0) - tau * sum;
  }
  __syncthreads();
  for (int e = t; e < N * N; e += THREADS)
    p.out[item * (N * N) + e] = triangle[e / N][e % N];
}

struct Applying {
  const T* a;
  const T* triangle;
  T* c;
  View view, to;
  int m, width, columns, tiles;
  int adjoint, conjugated;
};

// c -= V T Vᴴ c, or with Tᴴ; a block has N columns of c.
extern "C" __global__ void __launch_bounds__(THREADS)
apply_reflections(const __grid_constant__ Applying p) {
  __shared__ T tile[N][N + 1], other[N][N + 1];
  const int t = threadIdx.x;
  const Long item = blockIdx.x / (unsigned)p.tiles;
  const int first = (int)(blockIdx.x % (unsigned)p.tiles) * N;
  T own[N * N / THREADS];
  #pragma unroll
  for (int q = 0; q < N * N / THREADS; ++q) own[q] = number(0);
  for (int top = 0; top < p.m; top += N) {
    __syncthreads();
    for (int e = t; e < N * N; e += THREADS) {
      const int r = e / N, c = e % N;
      tile[r][c] = chosen(
          of_vector(p.a, p.view, item, top + r, c, p.m, p.width), p.conjugated);
      T value = number(0);
      if (top + r < p.m && first + c < p.columns)
        value = p.c[place(p.to, item, top + r, first + c)];
      other[r][c] = value;
    }
    __syncthreads();
    #pragma unroll
    for (int q = 0; q < N * N / THREADS; ++q) {
      const int e = t + q * THREADS, r = e / N, c = e % N;
      T sum = own[q];
      #pragma unroll 4
      for (int l = 0; l < N; ++l) sum = sum + conjugate(tile[l][r]) * other[l][c];
      own[q] = sum;
    }
  }
  __syncthreads();
  #pragma unroll
  for (int q = 0; q < N * N / THREADS; ++q) {
    const int e = t + q * THREADS, r = e / N, c = e % N;
    other[r][c] = own[q];
    // Tᴴ is conj(T) transposed.
    const T value = chosen(p.triangle[item * (N * N) + e], p.conjugated);
    if (p.adjoint)
      tile[c][r] = conjugate(value);
    else
      tile[r][c] = value;
  }
  __syncthreads();
  #pragma unroll
  for (int q = 0; q < N * N / THREADS; ++q) {
    const int e = t + q * THREADS, r = e / N, c = e % N;
    T sum = number(0);
    #pragma unroll 4
    for (int l = 0; l < N; ++l) sum = sum + tile[r][l] * other[l][c];
    own[q] = sum;
  }
  __syncthreads();
  #pragma unroll
  for (int q = 0; q < N * N / THREADS; ++q) {
    const int e = t + q * THREADS;
    other[e / N][e % N] = own[q];
  }
  for (int top = 0; top < p.m; top += N) {
    __syncthreads();
    for (int e = t; e < N * N; e += THREADS)
      tile[e / N][e % N] =
          chosen(of_vector(p.a, p.view, item, top + e / N, e % N, p.m, p.width),
                 p.conjugated);
    __syncthreads();
    for (int e = t; e < N * N; e += THREADS) {
      const int r = e / N, c = e % N;
      if (top + r >= p.m || first + c >= p.columns) continue;
      T sum = number(0);
      #pragma unroll 4
      for (int l = 0; l < N; ++l) sum = sum + tile[r][l] * other[l][c];
      T* x = p.c + place(p.to, item, top + r, first + c);
      *x = *x - sum;
    }
  }
}
"""
