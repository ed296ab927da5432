// Who touched four bytes of memory last, and whether two accesses are ordered.
//
// A record is one word: the block's serial number, the warp's clock, the thread, whether
// several threads (of its warp, of its block, of several blocks) are meant, which of the
// four bytes, and whether it was atomic. A cell keeps the last write and the last read;
// reads of several threads that nothing orders are merged into one record. Accesses of a
// block are ordered by __syncthreads, those of a warp also by __syncwarp; accesses of
// two blocks only by a fence and an atomic in each. Next: checks.cpp.
#pragma once
#include "state.h"

namespace emulator {

using Record = uint64_t;

enum Readers : uint64_t { one, of_warp, of_block, of_blocks };

constexpr uint64_t clock_bits = 15, most_ticks = (1 << clock_bits) - 1;

inline Record make_record(uint64_t serial, uint64_t clock, uint64_t thread,
                          uint64_t bytes, bool atomic) {
  return serial << 32 | clock << 17 | thread << 7 | bytes << 1 | atomic;
}
inline uint64_t serial_of(Record r) { return r >> 32; }
inline uint64_t clock_of(Record r) { return r >> 17 & most_ticks; }
inline int thread_of(Record r) { return r >> 7 & 1023; }
inline Readers readers_of(Record r) { return (Readers)(r >> 5 & 3); }
inline bool atomic_of(Record r) { return r & 1; }
inline bool overlap(Record a, Record b) { return a & b & 0x1e; }

// Whether a block's earlier access is known to the running block: the first announced
// it by a fence and an atomic, and the running one has made an atomic since then.
bool blocks_ordered(uint64_t earlier);

// Whether earlier work of a stream that this launch does not wait for has the number.
bool of_unordered_work(uint64_t serial);

// Whether nothing orders `before`, made by another thread, and the running thread's
// access `now` to the same bytes.
inline bool unordered(Record before, Record now, bool shared) {
  const uint64_t serial = serial_of(before);
  if (serial < state.launch_base) {
    return serial >= state.oldest_unordered && overlap(before, now) && !shared &&
           of_unordered_work(serial);
  }
  if (!overlap(before, now)) return false;
  const int thread = thread_of(before), warp = thread / 32;
  if (serial != state.serial || readers_of(before) == of_blocks)
    return !shared && !blocks_ordered(serial);
  if (thread == state.current && readers_of(before) == one) return false;
  const uint64_t clock = clock_of(before);
  if (clock < barrier_clock[warp]) return false;
  const bool same_warp = warp == state.current / 32 && readers_of(before) <= of_warp;
  return !(same_warp && clock < warp_clock[warp]);
}

// The record of a read, merged with the last ones that it is not ordered after.
inline Record merged(Record before, Record now, bool shared) {
  const uint64_t serial = serial_of(before);
  // What a read of other work says is kept for the write that may follow.
  if (serial < state.launch_base) return unordered(before, now, shared) ? before : now;
  if (!overlap(before, now)) return now;
  if (serial != state.serial) return shared ? now : now | of_blocks << 5;
  if (readers_of(before) == of_blocks) return now | of_blocks << 5;
  if (!unordered(before, now, shared)) return now;
  const bool same_warp =
      thread_of(before) / 32 == state.current / 32 && readers_of(before) <= of_warp;
  return now | (same_warp ? of_warp : of_block) << 5;
}

}  // namespace emulator
