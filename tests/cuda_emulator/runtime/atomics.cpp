// Atomic operations: one fiber runs at a time, so that each is a plain read and write.
//
// A thread that makes one atomic after the other is waiting for another thread's; it
// gives way now and then, and is stopped when nothing else can come. Next: crashes.cpp.
#include "access.h"

namespace emulator {

constexpr int patience = 1000, most_spins = 20'000'000;

// Called by every atomic, before it reads.
template <class T>
static void enter_atomic(T* address) {
  check<sizeof(T), Access::atomic>(address);
  synchronise_blocks();
  Thread& self = threads[state.current];
  if (++self.spins % patience) return;
  if (self.spins > most_spins) {
    Report report = {endless};
    report.address = (uintptr_t)address;
    report.size = sizeof(T);
    fault(report);
  }
  make_ready(state.current);
  suspend(Status::ready);
}

template <class T, class F>
static T update(T* address, F change) {
  enter_atomic(address);
  const T old = *address;
  *address = change(old);
  return old;
}

}  // namespace emulator

using emulator::update;

extern "C" {

#define ATOMIC(name, suffix, type, result)                        \
  type fnx_##name##_##suffix(type* address, type value) {         \
    return update(address, [=](type old) -> type { return result; }); \
  }
#define INTEGERS(name, result)              \
  ATOMIC(name, i32, int, result)            \
  ATOMIC(name, u32, unsigned, result)       \
  ATOMIC(name, u64, unsigned long long, result)

ATOMIC(atomicAdd, i32, int, (int)((unsigned)old + (unsigned)value))
ATOMIC(atomicAdd, u32, unsigned, old + value)
ATOMIC(atomicAdd, u64, unsigned long long, old + value)
ATOMIC(atomicAdd, f32, float, old + value)
ATOMIC(atomicAdd, f64, double, old + value)
ATOMIC(atomicSub, i32, int, (int)((unsigned)old - (unsigned)value))
ATOMIC(atomicSub, u32, unsigned, old - value)
INTEGERS(atomicMin, old < value ? old : value)
ATOMIC(atomicMin, i64, long long, old < value ? old : value)
INTEGERS(atomicMax, old > value ? old : value)
ATOMIC(atomicMax, i64, long long, old > value ? old : value)
INTEGERS(atomicAnd, old & value)
INTEGERS(atomicOr, old | value)
INTEGERS(atomicXor, old ^ value)
INTEGERS(atomicExch, value)
ATOMIC(atomicExch, f32, float, value)
ATOMIC(atomicInc, u32, unsigned, old >= value ? 0 : old + 1)
ATOMIC(atomicDec, u32, unsigned, old == 0 || old > value ? value : old - 1)

#define COMPARE(suffix, type)                                                 \
  type fnx_atomicCAS_##suffix(type* address, type compare, type value) {      \
    return update(address, [=](type old) { return old == compare ? value : old; }); \
  }
COMPARE(i32, int)
COMPARE(u32, unsigned)
COMPARE(u16, unsigned short)
COMPARE(u64, unsigned long long)
}
