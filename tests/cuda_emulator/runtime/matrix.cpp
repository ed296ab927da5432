// Products of small matrices that the 32 threads of a warp compute together.
//
// Fragments lie in the lanes' registers as PTX describes for mma.sync: with g = lane / 4
// and t = lane % 4, a lane holds rows g (and g + 8) of the first operand and of the
// result, and columns g of the second one. Products are exact and summed in double, so
// that a result is rounded once. Next: nccl.py.
#include <cstring>

#include "state.h"

namespace emulator {

enum Shape : int { f16_16_8_16, bf16_16_8_16, tf32_16_8_8, f64_8_8_4 };

static double from_half(uint16_t x) {
  const int exponent = x >> 10 & 31;
  const double fraction = x & 1023, sign = x >> 15 ? -1 : 1;
  if (exponent == 31)
    return fraction ? __builtin_nan("") : sign * __builtin_inf();
  if (exponent == 0) return sign * fraction * 0x1p-24;
  return sign * (1024 + fraction) * __builtin_ldexp(1.0, exponent - 25);
}

static double from_upper_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

static double element16(const void* registers, int n, Shape shape) {
  uint16_t bits;
  memcpy(&bits, (const char*)registers + 2 * n, 2);
  return shape == f16_16_8_16 ? from_half(bits) : from_upper_bits(bits << 16);
}

// Tensor cores ignore the lowest 13 bits of a float.
static double element_tf32(const void* registers, int n) {
  uint32_t bits;
  memcpy(&bits, (const char*)registers + 4 * n, 4);
  return from_upper_bits(bits & ~0x1fffu);
}

struct Matrices {
  double x[16][16], y[16][8];
};

static void gather_16(const Thread* lanes, Shape shape, Matrices& m) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int n = 0; n < 8; ++n)
      m.x[g + (n / 2 % 2) * 8][2 * t + n % 2 + n / 4 * 8] =
          element16(lanes[lane].operands[1], n, shape);
    for (int n = 0; n < 4; ++n)
      m.y[2 * t + n % 2 + n / 2 * 8][g] = element16(lanes[lane].operands[2], n, shape);
  }
}

static void gather_tf32(const Thread* lanes, Matrices& m) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int n = 0; n < 4; ++n)
      m.x[g + n % 2 * 8][t + n / 2 * 4] = element_tf32(lanes[lane].operands[1], n);
    for (int n = 0; n < 2; ++n)
      m.y[t + n * 4][g] = element_tf32(lanes[lane].operands[2], n);
  }
}

static double dot(const Matrices& m, int row, int column, int depth) {
  double total = 0;
  for (int k = 0; k < depth; ++k) total += m.x[row][k] * m.y[k][column];
  return total;
}

static void multiply_doubles(const Thread* lanes) {
  Matrices m;
  for (int lane = 0; lane < 32; ++lane) {
    m.x[lane / 4][lane % 4] = *(const double*)lanes[lane].operands[1];
    m.y[lane % 4][lane / 4] = *(const double*)lanes[lane].operands[2];
  }
  for (int lane = 0; lane < 32; ++lane) {
    double* sums = (double*)lanes[lane].operands[0];
    for (int n = 0; n < 2; ++n) sums[n] += dot(m, lane / 4, 2 * (lane % 4) + n, 4);
  }
}

void multiply_matrices(const Thread* lanes) {
  const Shape shape = (Shape)lanes[0].value;
  if (shape == f64_8_8_4) return multiply_doubles(lanes);
  Matrices m;
  if (shape == tf32_16_8_8) {
    gather_tf32(lanes, m);
  } else {
    gather_16(lanes, shape, m);
  }
  const int depth = shape == tf32_16_8_8 ? 8 : 16;
  for (int lane = 0; lane < 32; ++lane) {
    float* sums = (float*)lanes[lane].operands[0];
    for (int n = 0; n < 4; ++n) {
      const int row = lane / 4 + n / 2 * 8, column = 2 * (lane % 4) + n % 2;
      sums[n] = sums[n] + dot(m, row, column, depth);
    }
  }
}

}  // namespace emulator

extern "C" {

void fnx_emulated_mma_m16n8k16_f16(float* d, unsigned* a, unsigned* b) {
  emulator::together(emulator::f16_16_8_16, d, a, b);
}
void fnx_emulated_mma_m16n8k16_bf16(float* d, unsigned* a, unsigned* b) {
  emulator::together(emulator::bf16_16_8_16, d, a, b);
}
void fnx_emulated_mma_m16n8k8_tf32(float* d, unsigned* a, unsigned* b) {
  emulator::together(emulator::tf32_16_8_8, d, a, b);
}
void fnx_emulated_mma_m8n8k4_f64(double* d, double* a, double* b) {
  emulator::together(emulator::f64_8_8_4, d, a, b);
}
}
