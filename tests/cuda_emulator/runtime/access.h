// One access of a kernel looked up in the shadows; inlined into every hook.
//
// The addresses that a kernel may use are the memory of its device, shared memory, its
// own stack and the variables of its module. Next: races.h.
#pragma once
#include "races.h"

extern "C" char fnx_dynamic_shared[];

namespace emulator {

// A volatile access is not ordered, but meant to meet others: like a relaxed atomic.
enum class Access { read, write, atomic, volatile_read, volatile_write };

[[noreturn]] void access_fault(int kind, uintptr_t address, size_t size, Access access);
[[noreturn]] void race_fault(uintptr_t address, size_t size, Access access, Record other,
                             bool other_write);
void synchronise_blocks();

// The space of an address; null where no check is needed.
inline const Space* find_space(uintptr_t address, size_t size, Access access) {
  const Launch& launch = *state.launch;
  if (address - launch.device.start < launch.device.size) return &launch.device;
  if (address - stacks_start() < stacks_size()) return nullptr;
  if (address - static_shared.start < static_shared.size) return &static_shared;
  if (address - dynamic_shared.start < dynamic_shared.size) return &dynamic_shared;
  for (const auto& range : launch.own)
    if (address - range.start < range.size) return nullptr;
  access_fault(out_of_bounds, address, size, access);
}

inline void check_race(const Space& space, uintptr_t address, size_t size, Access access,
                       uint64_t bytes) {
  Cell& cell = space.cells[(address - space.start) / 4];
  const bool meant = access >= Access::atomic;
  const Record now = make_record(state.serial, warp_clock[state.current / 32],
                                 state.current, bytes, meant);
  const bool writes = access != Access::read && access != Access::volatile_read;
  if (unordered(cell.write, now, space.shared) && !(meant && atomic_of(cell.write)))
    race_fault(address, size, access, cell.write, true);
  if (!writes) {
    cell.read = merged(cell.read, now, space.shared);
    return;
  }
  if (unordered(cell.read, now, space.shared) && !(meant && atomic_of(cell.read)))
    race_fault(address, size, access, cell.read, false);
  cell.write = now;
}

inline void check_states(const Space& space, uintptr_t address, size_t size,
                         Access access) {
  uint8_t* states = space.state + (address - space.start);
  const bool reads = access != Access::write && access != Access::volatile_write;
  for (size_t n = 0; n < size; ++n) {
    if (!(states[n] & allocated)) access_fault(out_of_bounds, address, size, access);
    if (!reads) {
      states[n] = initialised;
    } else if (states[n] != initialised) {
      access_fault(uninitialised, address, size, access);
    }
  }
}

inline void check_range(void* p, size_t size, Access access) {
  const uintptr_t address = (uintptr_t)p;
  const Space* space = find_space(address, size, access);
  if (!space) return;
  if (address - space->start + size > space->size)
    access_fault(out_of_bounds, address, size, access);
  check_states(*space, address, size, access);
  for (size_t n = 0; n < size;) {
    const size_t first = (address + n) % 4, count = size - n < 4 - first ? size - n : 4 - first;
    check_race(*space, address + n, size, access, ((1u << count) - 1) << first);
    n += count;
  }
}

template <int size, Access access>
inline void check(void* p) {
  const uintptr_t address = (uintptr_t)p;
  const Space* space = find_space(address, size, access);
  if (!space) return;
  if (address % size) access_fault(misaligned, address, size, access);
  uint8_t* states = space->state + (address - space->start);
  constexpr bool reads = access != Access::write && access != Access::volatile_write;
  constexpr uint64_t mask = size >= 8 ? ~0ull : (1ull << size % 8 * 8) - 1;
  constexpr uint64_t wanted = 0x0101010101010101ull * (reads ? initialised : allocated) & mask;
  for (int n = 0; n < (size + 7) / 8; ++n) {
    uint64_t have = 0;
    __builtin_memcpy(&have, states + 8 * n, size < 8 ? size : 8);
    if ((have & wanted) != wanted) check_states(*space, address, size, access);
  }
  if (!reads) __builtin_memset(states, initialised, size);
  if (size < 4) {
    check_race(*space, address, size, access, ((1u << size) - 1) << address % 4);
  } else {
    for (int n = 0; n < size / 4; ++n)
      check_race(*space, address + 4 * n, size, access, 15);
  }
}

}  // namespace emulator
