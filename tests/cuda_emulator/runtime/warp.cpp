// What threads do together: barriers of the block, shuffles, votes and their mistakes.
//
// A barrier is complete when every thread of the block has arrived at the same line; an
// operation of a warp when every thread of its mask that has not left the kernel has
// arrived at the same operation, with the same mask. What can never be complete is found
// when no thread can go on, and reported with who waits where. Next: access.h.
#include <cstdio>
#include <cstring>

#include "state.h"

namespace emulator {

enum Kind : int {
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  sync,
  ballot,
  any,
  all,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_and,
  reduce_or,
  reduce_xor,
  match_any,
  multiply,
  unsigned_kinds = 16,  // added to a reduction of unsigned numbers
};

static const char* const names[] = {
    "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync",
    "__syncwarp",        "__ballot_sync",     "__any_sync",        "__all_sync",
    "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync",
    "__reduce_or_sync",  "__reduce_xor_sync", "__match_any_sync",  "an mma"};

// ---------------------------------------------------------------- barriers

static int arrived, barrier_line, barrier_kind, counted;
static int barrier_first;

extern "C" int fnx_barrier(int line, int kind, int predicate) {
  if (!arrived) {
    barrier_line = line;
    barrier_kind = kind;
    barrier_first = state.current;
    counted = 0;
  } else if (line != barrier_line || kind != barrier_kind) {
    Report report = {divergent_barrier, line};
    report.other_line = barrier_line;
    report.other_thread = barrier_first;
    strcpy(report.note, "another thread of the block waits at another barrier");
    fault(report);
  }
  counted += predicate;
  threads[state.current].line = line;
  if (++arrived < state.threads) {
    suspend(Status::barrier);
    return threads[state.current].result;
  }
  int result = counted;
  if (kind == 2) result = counted == state.threads;
  if (kind == 3) result = counted > 0;
  arrived = 0;
  for (int w = 0; w < state.warps; ++w) barrier_clock[w] = ++warp_clock[w];
  for (int n = 0; n < state.threads; ++n) {
    threads[n].result = result;
    if (n != state.current) make_ready(n);
  }
  return result;
}

void reset_barrier() { arrived = 0; }

// ---------------------------------------------------------------- warps

static uint32_t reduced(int kind, const Thread* lanes, uint32_t mask) {
  const bool is_unsigned = kind >= unsigned_kinds;
  bool first = true;
  uint32_t total = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const uint32_t x = lanes[lane].value;
    if (first) {
      total = x;
      first = false;
      continue;
    }
    const bool less = is_unsigned ? x < total : (int32_t)x < (int32_t)total;
    switch (kind % unsigned_kinds) {
      case reduce_add: total += x; break;
      case reduce_min: total = less ? x : total; break;
      case reduce_max: total = less ? total : x; break;
      case reduce_and: total &= x; break;
      case reduce_or: total |= x; break;
      default: total ^= x;
    }
  }
  return total;
}

// The lane whose value a shuffle gives: its own where the source is out of the segment.
static int source_lane(const Thread& thread, int lane) {
  const int first = lane & ~(thread.width - 1), last = first + thread.width - 1;
  switch (thread.kind) {
    case shuffle: return first + (thread.lane & (thread.width - 1));
    case shuffle_up: return lane - thread.lane < first ? lane : lane - thread.lane;
    case shuffle_down: return lane + thread.lane > last ? lane : lane + thread.lane;
    default: return (lane ^ thread.lane) > last ? lane : lane ^ thread.lane;
  }
}

static void finish(int warp, uint32_t mask) {
  Thread* lanes = threads + 32 * warp;
  const int any_lane = __builtin_ctz(mask), kind = lanes[any_lane].kind;
  uint32_t votes = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) votes |= (uint32_t)(lanes[lane].value != 0) << lane;
  if (kind == multiply) multiply_matrices(lanes);
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Thread& thread = lanes[lane];
    if (kind <= shuffle_xor) {
      const int source = source_lane(thread, lane);
      if (source != lane && !(mask >> source & 1)) {
        Report report = {bad_lane, thread.line};
        report.thread = 32 * warp + lane;
        report.block = state.block;
        report.mask = thread.mask;
        report.lanes = source;
        snprintf(report.note, sizeof report.note,
                 "%s reads lane %d, which takes no part in it", names[kind], source);
        state.report = report;
        return;
      }
      thread.result = lanes[source].value;
    } else if (kind == ballot) {
      thread.result = votes;
    } else if (kind == any) {
      thread.result = votes != 0;
    } else if (kind == all) {
      thread.result = votes == mask;
    } else if (kind == match_any) {
      thread.result = 0;
      for (int other = 0; other < 32; ++other)
        if (mask >> other & 1 && lanes[other].value == thread.value)
          thread.result |= 1u << other;
    } else if (kind != sync && kind != multiply) {
      thread.result = reduced(kind, lanes, mask);
    }
  }
  if (kind == sync) ++warp_clock[warp];
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) make_ready(32 * warp + lane);
}

// Finishes the operation that `number` waits in, if all it waits for have arrived.
static void try_to_finish(int number) {
  const int warp = number / 32;
  const Thread& self = threads[number];
  const uint32_t present = self.mask & existing[warp] & ~exited[warp];
  for (int lane = 0; lane < 32; ++lane) {
    if (!(present >> lane & 1)) continue;
    const Thread& other = threads[32 * warp + lane];
    if (other.status != Status::warp || other.kind != self.kind ||
        other.mask != self.mask || other.line != self.line)
      return;
  }
  if (self.kind == multiply && present != self.mask) return;
  finish(warp, present);
}

static void wait_for_warp() {
  const int number = state.current;
  threads[number].status = Status::warp;
  try_to_finish(number);
  // Ready or not, the thread gives way: which of a warp goes on first is random.
  suspend(threads[number].status);
}

static void arrive(int line, int kind, uint32_t mask) {
  Thread& self = threads[state.current];
  self.line = line;
  self.kind = kind;
  self.mask = mask;
  if (mask >> (state.current & 31) & 1) return;
  Report report = {divergent_warp, line};
  report.mask = mask;
  snprintf(report.note, sizeof report.note, "%s: the thread's own lane %d is not in its mask",
           names[kind % unsigned_kinds], state.current & 31);
  fault(report);
}

extern "C" uint64_t fnx_warp(int line, int kind, uint32_t mask, uint64_t value, int lane,
                             int width) {
  Thread& self = threads[state.current];
  arrive(line, kind, mask);
  self.value = value;
  self.lane = lane;
  self.width = width;
  self.result = 0;
  wait_for_warp();
  return self.result;
}

// A product of matrices that a whole warp computes: see matrix.cpp.
void together(int shape, void* sums, const void* x, const void* y) {
  Thread& self = threads[state.current];
  arrive(0, multiply, 0xffffffffu);
  self.value = shape;
  self.operands[0] = sums;
  self.operands[1] = x;
  self.operands[2] = y;
  wait_for_warp();
}

extern "C" uint32_t fnx_activemask() { return 1u << (state.current & 31); }

void thread_exited(int number) {
  const int warp = number / 32;
  exited[warp] |= 1u << (number & 31);
  for (int lane = 0; lane < 32; ++lane) {
    const int other = 32 * warp + lane;
    if (existing[warp] >> lane & 1 && threads[other].status == Status::warp)
      try_to_finish(other);
  }
}

// ---------------------------------------------------------------- mistakes

static int find(Status status) {
  for (int n = 0; n < state.threads; ++n)
    if (threads[n].status == status) return n;
  return -1;
}

void explain_deadlock() {
  Report report = {};
  report.block = state.block;
  const int in_warp = find(Status::warp), in_barrier = find(Status::barrier);
  const int gone = find(Status::done);
  if (in_warp < 0) {
    report.fault = divergent_barrier;
    report.thread = in_barrier;
    report.line = threads[in_barrier].line;
    report.other_thread = gone;
    snprintf(report.note, sizeof report.note,
             "thread %d left the kernel without arriving at the barrier", gone);
    state.report = report;
    return;
  }
  const Thread& waiting = threads[in_warp];
  report.fault = divergent_warp;
  report.thread = in_warp;
  report.line = waiting.line;
  report.mask = waiting.mask;
  const int warp = in_warp / 32;
  const char* name = names[waiting.kind % unsigned_kinds];
  for (int lane = 0; lane < 32; ++lane) {
    const int number = 32 * warp + lane;
    const Thread& other = threads[number];
    if (!(waiting.mask & existing[warp] & ~exited[warp] & 1u << lane)) continue;
    if (other.status == Status::barrier) {
      snprintf(report.note, sizeof report.note,
               "%s waits for thread %d, which waits in __syncthreads at line %d", name,
               number, other.line);
    } else if (other.kind != waiting.kind || other.line != waiting.line) {
      snprintf(report.note, sizeof report.note,
               "%s waits for thread %d, which waits in %s at line %d", name, number,
               names[other.kind % unsigned_kinds], other.line);
    } else if (other.mask != waiting.mask) {
      snprintf(report.note, sizeof report.note,
               "%s waits for thread %d, which gives another mask, %08x", name, number,
               other.mask);
    } else {
      continue;
    }
    report.other_thread = number;
    break;
  }
  state.report = report;
}

}  // namespace emulator
