"""The CUDA C of Fourier transforms: passes over an array, and chirps.

A pass is one step of Stockham's transform of any length n = R·m, in order and without
a reversal of digits: of every R elements that lie n/R apart, the transform of R points
in shared memory, times a root of unity, written side by side. In shared memory the same
step is done again and again with small radices. So a row is one pass where it fits, and
a few where it does not. Roots of unity are computed from exact fractions of a turn.
Receives a dtype and the size of the largest array, gives a text. Used by `fft.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes
from fnx.dtypes import DType

THREADS = 256

RADICES = 8
"""The radices of a pass at most."""

WHOLE, HALF, REAL = range(3)
"""What memory holds of rows: all, the first half of a Hermitian one, or real parts."""

_TERMS = {dtypes.complex64: 5, dtypes.complex128: 9}
"""Terms of the series of sine and cosine up to an eighth of a turn."""


def text(dtype: DType, large: bool) -> str:
    """The translation unit for complex numbers of a dtype."""
    real = "float" if dtype == dtypes.complex64 else "double"
    suffix = "f" if real == "float" else ""
    index = "unsigned long long" if large else "unsigned int"
    sine = [(-1) ** n / math.factorial(2 * n + 1) for n in range(_TERMS[dtype])]
    cosine = [(-1) ** n / math.factorial(2 * n) for n in range(_TERMS[dtype] + 1)]
    return "".join(
        [
            f"typedef {real} Real;\ntypedef {index} Index;\n",
            f"enum {{ THREADS = {THREADS}, WHOLE = {WHOLE}, HALF = {HALF} }};\n",
            _TURNS.replace("SINE", _horner(sine, suffix))
            .replace("COS_SERIES", _horner(cosine, suffix))
            .replace("QUARTER", f"{math.pi / 2!r}{suffix}"),
            _MEMORY.replace("RADICES", str(RADICES)),
            _BUTTERFLIES.replace("ROOT3", f"{math.sqrt(0.75)!r}{suffix}"),
            _PASS,
            _CHIRPS,
        ]
    )


def _horner(coefficients: list[float], suffix: str) -> str:
    """A polynomial in `square`."""
    *rest, found = [f"{c!r}{suffix}" for c in coefficients]
    for coefficient in reversed(rest):
        found = f"({coefficient} + square * {found})"
    return found


_TURNS = """\
typedef unsigned long long Long;
struct __align__(2 * sizeof(Real)) Complex { Real re, im; };

__device__ __forceinline__ Complex complex(Real re, Real im) {
  Complex z;
  z.re = re;
  z.im = im;
  return z;
}
__device__ __forceinline__ Complex operator+(Complex x, Complex y) {
  return complex(x.re + y.re, x.im + y.im);
}
__device__ __forceinline__ Complex operator-(Complex x, Complex y) {
  return complex(x.re - y.re, x.im - y.im);
}
__device__ __forceinline__ Complex operator*(Complex x, Complex y) {
  return complex(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}
__device__ __forceinline__ Complex scaled(Complex x, Real y) {
  return complex(x.re * y, x.im * y);
}
// x times i, or times -i.
__device__ __forceinline__ Complex turned(Complex x, Real sign) {
  return complex(-sign * x.im, sign * x.re);
}

// exp(sign 2 pi i k / n) for k < n: integers bring k / n to an eighth of a turn, where
// the series are as good as the numbers are.
__device__ __noinline__ Complex root(Long k, Long n, Real sign) {
  Long part = 2 * k;  // of 2 n to a turn
  const bool below = part > n;
  if (below) part = 2 * n - part;
  const bool behind = 2 * part > n;
  if (behind) part = n - part;
  part *= 2;  // of 4 n to a turn
  const bool steep = 2 * part > n;
  if (steep) part = n - part;
  const Real x = QUARTER * ((Real)part / (Real)n), square = x * x;
  const Real sine = x * SINE, cosine = COS_SERIES;
  const Real re = steep ? sine : cosine, im = steep ? cosine : sine;
  return complex(behind ? -re : re, below ? -sign * im : sign * im);
}
"""

_MEMORY = """
// How rows lie in memory: `inner` of them side by side, `length` numbers to a row,
// `span` to all of those; and what is kept of them.
struct Side { long long inner, length, span; int kind, unused; };

__device__ __forceinline__ Complex loaded(const Side& side, const void* x, Index row,
                                          Index at) {
  if (side.kind == WHOLE) return ((const Complex*)x)[row * (Index)side.span + at];
  if (side.kind != HALF)
    return complex(((const Real*)x)[row * (Index)side.span + at], 0);
  const Index inner = (Index)side.inner, length = (Index)side.length;
  const Index half = length / 2 + 1, number = at / inner;
  const bool mirrored = number >= half;
  const Index from = mirrored ? length - number : number;
  Complex z = ((const Complex*)x)[(row * half + from) * inner + at % inner];
  if (mirrored) z.im = -z.im;
  return z;
}
__device__ __forceinline__ void store(const Side& side, void* out, Index row, Index at,
                                      Complex z) {
  if (side.kind == WHOLE) {
    ((Complex*)out)[row * (Index)side.span + at] = z;
  } else if (side.kind != HALF) {
    ((Real*)out)[row * (Index)side.span + at] = z.re;
  } else {
    const Index inner = (Index)side.inner, half = (Index)side.length / 2 + 1;
    const Index number = at / inner;
    if (number < half)
      ((Complex*)out)[(row * half + number) * inner + at % inner] = z;
  }
}

struct Pass {
  const void* x;
  void* out;
  Side from, to;
  double scale;
  long long lines;  // transforms of `radix` points in all
  long long step;   // the numbers that lie side by side already
  long long rest;   // what is left of the length, `radix` included
  int radix, count, shift, sign;
  int radices[RADICES];
};
"""

_BUTTERFLIES = """
// Transforms of 2, 3, 4 and 5 points, in place.
__device__ __forceinline__ void pair(Complex* z) {
  const Complex x = z[0];
  z[0] = x + z[1];
  z[1] = x - z[1];
}
__device__ __forceinline__ void triple(Complex* z, Real sign) {
  const Complex sum = z[1] + z[2], difference = z[1] - z[2];
  const Complex middle = z[0] - scaled(sum, (Real)0.5);
  const Complex side = turned(scaled(difference, ROOT3), sign);
  z[0] = z[0] + sum;
  z[1] = middle + side;
  z[2] = middle - side;
}
__device__ __forceinline__ void quadruple(Complex* z, Real sign) {
  const Complex a = z[0] + z[2], b = z[0] - z[2], c = z[1] + z[3];
  const Complex d = turned(z[1] - z[3], sign);
  z[0] = a + c;
  z[1] = b + d;
  z[2] = a - c;
  z[3] = b - d;
}
__device__ __forceinline__ void quintuple(Complex* z, Complex w, Complex v) {
  const Complex a = z[1] + z[4], b = z[2] + z[3];
  const Complex c = z[1] - z[4], d = z[2] - z[3];
  const Complex e = z[0] + scaled(a, w.re) + scaled(b, v.re);
  const Complex f = z[0] + scaled(a, v.re) + scaled(b, w.re);
  const Complex g = turned(scaled(c, w.im) + scaled(d, v.im), 1);
  const Complex h = turned(scaled(c, v.im) - scaled(d, w.im), 1);
  z[0] = z[0] + a + b;
  z[1] = e + g;
  z[2] = f + h;
  z[3] = f - h;
  z[4] = e - g;
}
"""

_PASS = """
// A step of all lines of a block, from shared memory to shared memory: elements of a
// line are `lines` apart, and roots are those of the pass.
template <int R>
__device__ __forceinline__ void small_step(const Complex* from, Complex* to,
                                           const Complex* roots, int radix, int shift,
                                           int step, int rest, Real sign) {
  const int columns = radix / R, apart = rest / R, fraction = radix / rest;
  for (int n = threadIdx.x; n < columns << shift; n += THREADS) {
    const int line = n & ((1 << shift) - 1), column = n >> shift;
    const int side = column % step, place = column / step;
    Complex z[R];
    #pragma unroll
    for (int k = 0; k < R; ++k) z[k] = from[(column + k * columns << shift) + line];
    if (R == 2) pair(z);
    if (R == 3) triple(z, sign);
    if (R == 4) quadruple(z, sign);
    if (R == 5) quintuple(z, roots[radix / 5], roots[radix / 5 * 2]);
    #pragma unroll
    for (int k = 0; k < R; ++k) {
      if (k && apart > 1) z[k] = z[k] * roots[place * k * fraction];
      to[(side + step * (R * place + k) << shift) + line] = z[k];
    }
  }
}

// The same for any radix r: a thread sums up one element.
__device__ __forceinline__ void step_of(int r, const Complex* from, Complex* to,
                                        const Complex* roots, int radix, int shift,
                                        int step, int rest) {
  const int columns = radix / r, fraction = radix / rest;
  for (int n = threadIdx.x; n < radix << shift; n += THREADS) {
    const int line = n & ((1 << shift) - 1), column = (n >> shift) % columns;
    const int k = (n >> shift) / columns;
    const int side = column % step, place = column / step;
    Complex sum = from[(column << shift) + line];
    for (int i = 1, turn = k; i < r; ++i) {
      sum = sum + from[(column + i * columns << shift) + line] * roots[turn * columns];
      turn += k;
      if (turn >= r) turn -= r;
    }
    to[(side + step * (r * place + k) << shift) + line] =
        sum * roots[place * k * fraction];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
transform(const __grid_constant__ Pass p) {
  extern __shared__ __align__(16) unsigned long long memory[];
  const int t = threadIdx.x, radix = p.radix, shift = p.shift, count = radix << shift;
  const Index lines = (Index)p.lines, first = (Index)blockIdx.x << shift;
  const Index span = (Index)p.from.span / radix;
  const Real sign = (Real)p.sign;
  Complex* roots = (Complex*)memory;
  Complex* from = roots + radix;
  Complex* to = from + count;
  for (int k = t; k < radix; k += THREADS) roots[k] = root(k, radix, sign);
  // Neighbours in memory are those of a row, if there is but one line in it.
  for (int n = t; n < count; n += THREADS) {
    const int line = span == 1 ? n / radix : n & ((1 << shift) - 1);
    const int k = span == 1 ? n % radix : n >> shift;
    const Index here = first + line, row = here / span, column = here % span;
    Complex z = complex(0, 0);
    if (here < lines) z = loaded(p.from, p.x, row, column + k * span);
    from[(k << shift) + line] = z;
  }
  int step = 1, rest = radix;
  for (int n = 0; n < p.count; ++n) {
    const int r = p.radices[n];
    __syncthreads();
    if (r == 4)
      small_step<4>(from, to, roots, radix, shift, step, rest, sign);
    else if (r == 2)
      small_step<2>(from, to, roots, radix, shift, step, rest, sign);
    else if (r == 3)
      small_step<3>(from, to, roots, radix, shift, step, rest, sign);
    else if (r == 5)
      small_step<5>(from, to, roots, radix, shift, step, rest, sign);
    else
      step_of(r, from, to, roots, radix, shift, step, rest);
    Complex* other = from;
    from = to;
    to = other;
    step *= r;
    rest /= r;
  }
  __syncthreads();
  const Index side = (Index)p.step;
  const Real scale = (Real)p.scale;
  for (int n = t; n < count; n += THREADS) {
    const int line = side == 1 ? n / radix : n & ((1 << shift) - 1);
    const int k = side == 1 ? n % radix : n >> shift;
    const Index here = first + line, row = here / span, column = here % span;
    if (here >= lines) continue;
    const Index place = column / side;
    Complex z = from[(k << shift) + line];
    if (p.rest > radix) z = z * root((Long)place * k, (Long)p.rest, sign);
    store(p.to, p.out, row, column % side + side * (radix * place + k),
          scaled(z, scale));
  }
}
"""

_CHIRPS = """
// Bluestein's transform of any length n: with the chirp w[t] = exp(sign pi i t t / n),
// it is w times the convolution of x w with the conjugated chirp, of a longer length m.
struct Chirp {
  const void* x;
  void* out;
  const Complex* filter;
  Side from, to;
  double scale;
  long long count, longer;  // elements, and m
  int sign, unused;
};

__device__ __forceinline__ Complex chirp(Index t, long long length, Real sign) {
  return root((Long)t * t % (2 * (Long)length), 2 * (Long)length, sign);
}

// The conjugated chirp around 0, and zeros.
extern "C" __global__ void __launch_bounds__(THREADS)
make_filter(const __grid_constant__ Chirp p) {
  const Index longer = (Index)p.longer, length = (Index)p.from.length;
  const Index stride = (Index)gridDim.x * THREADS;
  for (Index t = (Index)blockIdx.x * THREADS + threadIdx.x; t < longer; t += stride) {
    const Index from = t < longer - t ? t : longer - t;
    Complex z = complex(0, 0);
    if (from < length) z = chirp(from, p.from.length, (Real)-p.sign);
    ((Complex*)p.out)[t] = z;
  }
}

// Rows times the chirp, and zeros behind them.
extern "C" __global__ void __launch_bounds__(THREADS)
spread(const __grid_constant__ Chirp p) {
  const Index inner = (Index)p.from.inner, span = (Index)p.to.span;
  const Index stride = (Index)gridDim.x * THREADS, count = (Index)p.count;
  for (Index n = (Index)blockIdx.x * THREADS + threadIdx.x; n < count; n += stride) {
    const Index row = n / span, at = n % span, t = at / inner;
    Complex z = complex(0, 0);
    if (t < (Index)p.from.length)
      z = loaded(p.from, p.x, row, at) * chirp(t, p.from.length, (Real)p.sign);
    ((Complex*)p.out)[n] = z;
  }
}

// The product of spectra, in place.
extern "C" __global__ void __launch_bounds__(THREADS)
filtered(const __grid_constant__ Chirp p) {
  const Index inner = (Index)p.from.inner, span = (Index)p.from.span;
  const Index stride = (Index)gridDim.x * THREADS, count = (Index)p.count;
  Complex* out = (Complex*)p.out;
  for (Index n = (Index)blockIdx.x * THREADS + threadIdx.x; n < count; n += stride)
    out[n] = scaled(out[n] * p.filter[n % span / inner], (Real)p.scale);
}

// The first elements of rows times the chirp.
extern "C" __global__ void __launch_bounds__(THREADS)
collect(const __grid_constant__ Chirp p) {
  const Index inner = (Index)p.from.inner, span = (Index)p.to.span;
  const Index stride = (Index)gridDim.x * THREADS, count = (Index)p.count;
  for (Index n = (Index)blockIdx.x * THREADS + threadIdx.x; n < count; n += stride) {
    const Index row = n / span, at = n % span;
    const Complex z = ((const Complex*)p.x)[row * (Index)p.from.span + at];
    const Complex turn = chirp(at / inner, p.to.length, (Real)p.sign);
    store(p.to, p.out, row, at, scaled(z * turn, (Real)p.scale));
  }
}
"""
