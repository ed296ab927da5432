// Every memory access of a kernel: is it inside, initialised, aligned, and no race?
//
// g++ puts a call of these hooks before each access that is not to a thread's own
// registers (-fsanitize=thread, without its library), and calls of the last two where a
// pointer is not aligned for its type, or an index of an array of known size is too large
// (-fsanitize=alignment,bounds). Next: atomics.cpp.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "access.h"

namespace emulator {

Space static_shared, dynamic_shared;

static uint64_t next_serial = 1;

// ---------------------------------------------------------------- spaces

// Null where there are not so many addresses.
static void* reserve(size_t size) {
  void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return start == MAP_FAILED ? nullptr : start;
}

// Reserves `size` bytes of device memory and their shadows; nothing is allocated in it.
extern "C" bool fnx_reserve(Space* space, size_t size) {
  space->start = (uintptr_t)reserve(size);
  space->size = size;
  space->state = (uint8_t*)reserve(size);
  space->cells = (Cell*)reserve(size / 4 * sizeof(Cell));
  space->shared = false;
  return space->start && space->state && space->cells;
}

extern "C" void fnx_release(const Space* space) {
  munmap((void*)space->start, space->size);
  munmap(space->state, space->size);
  munmap(space->cells, space->size / 4 * sizeof(Cell));
}

// Sets the state of a range; what is not initialised is poisoned with NaN.
extern "C" void fnx_mark(const Space* space, uintptr_t start, size_t size, uint8_t state) {
  memset(space->state + (start - space->start), state, size);
  if (state != initialised) memset((void*)start, 0xff, size);
}

// Gives the pages of a range back to the system, with those of its shadows.
extern "C" void fnx_forget(const Space* space, uintptr_t start, size_t size) {
  const size_t page = 4096, offset = start - space->start;
  auto discard = [&](char* first, size_t bytes) {
    const uintptr_t low = ((uintptr_t)first + page - 1) & -page;
    const uintptr_t high = ((uintptr_t)first + bytes) & -page;
    if (low < high) madvise((void*)low, high - low, MADV_DONTNEED);
  };
  discard((char*)start, size);
  discard((char*)(space->cells + offset / 4), size / 4 * sizeof(Cell));
}

// The first byte of a range whose state lacks a bit of `wanted`, or `size`.
extern "C" size_t fnx_first_without(const Space* space, uintptr_t start, size_t size,
                                    uint8_t wanted) {
  const uint8_t* states = space->state + (start - space->start);
  size_t n = 0;
  const uint64_t all = 0x0101010101010101ull * wanted;
  for (; n + 8 <= size; n += 8) {
    uint64_t eight;
    memcpy(&eight, states + n, 8);
    if ((eight & all) != all) break;
  }
  while (n < size && (states[n] & wanted) == wanted) ++n;
  return n;
}

static void begin_accesses(const uint64_t* ranges, size_t count);

void prepare_spaces(const Launch& launch) {
  if (!dynamic_shared.state) {
    dynamic_shared = {(uintptr_t)fnx_dynamic_shared, max_shared, nullptr, nullptr, true};
    Space* const both[] = {&static_shared, &dynamic_shared};
    for (Space* space : both) {
      space->state = (uint8_t*)reserve(max_shared);
      space->cells = (Cell*)reserve(max_shared / 4 * sizeof(Cell));
      space->shared = true;
    }
  }
  static_shared.start = (uintptr_t)launch.shared_start;
  static_shared.size = launch.shared_size;
  memset(dynamic_shared.state, unallocated, max_shared);
  begin_accesses(launch.unordered, launch.unordered_count);
}

void finish_spaces(uint64_t blocks) { next_serial += blocks; }

// ---------------------------------------------------------------- other work

static const uint64_t* unordered_work;
static size_t unordered_count;

static void begin_accesses(const uint64_t* ranges, size_t count) {
  state.launch_base = next_serial;
  state.oldest_unordered = ~0ull;
  unordered_work = ranges;
  unordered_count = count;
  for (size_t n = 0; n < count; n += 2)
    if (ranges[n] < state.oldest_unordered) state.oldest_unordered = ranges[n];
}

bool of_unordered_work(uint64_t serial) {
  for (size_t n = 0; n < unordered_count; n += 2)
    if (serial >= unordered_work[n] && serial < unordered_work[n + 1]) return true;
  return false;
}

// The serial number that the next access gets.
extern "C" uint64_t fnx_next_serial() { return next_serial; }

// An access by other work than a kernel: a copy, a fill, a change of owner. Returns the
// serial number of the access that it races with, or 0.
extern "C" uint64_t fnx_touch(const Space* space, uintptr_t start, size_t size, int writes,
                              const uint64_t* ranges, size_t count) {
  begin_accesses(ranges, count);
  state.serial = next_serial++;
  uint64_t found = 0;
  const uintptr_t end = start + size;
  for (uintptr_t word = start & ~(uintptr_t)3; word < end; word += 4) {
    uint64_t bytes = 15;
    if (word < start) bytes &= bytes << (start - word);
    if (word + 4 > end) bytes &= (1 << (end - word)) - 1;
    Cell& cell = space->cells[(word - space->start) / 4];
    const Record now = make_record(state.serial, 1, 0, bytes & 15, false);
    if (!found && unordered(cell.write, now, false)) found = serial_of(cell.write);
    if (!found && writes && unordered(cell.read, now, false)) found = serial_of(cell.read);
    (writes ? cell.write : cell.read) = now;
  }
  return found;
}

// ---------------------------------------------------------------- faults

static Report report_of(int kind, uintptr_t address, size_t size, Access access) {
  Report report = {kind};
  report.address = address;
  report.size = size;
  report.write = access == Access::write || access == Access::volatile_write;
  report.atomic = access == Access::atomic;
  return report;
}

void access_fault(int kind, uintptr_t address, size_t size, Access access) {
  fault(report_of(kind, address, size, access));
}

void race_fault(uintptr_t address, size_t size, Access access, Record other,
                bool other_write) {
  Report report = report_of(race, address, size, access);
  if (serial_of(other) < state.launch_base) {
    report.other_serial = serial_of(other);
  } else {
    report.other_block = serial_of(other) - state.launch_base;
  }
  report.other_thread = thread_of(other);
  report.other_write = other_write;
  fault(report);
}

// ---------------------------------------------------------------- blocks and fences

// For each block of the launch that announced its writes: when it did; and when the
// running block last learnt of others. Grown as needed; times count announcements.
static uint64_t* announced;
static uint64_t announced_room, announced_base, announcements;
static uint64_t learnt, learnt_serial;
static int fenced_thread = -1;
static uint64_t fenced_serial;

bool blocks_ordered(uint64_t earlier) {
  const uint64_t n = earlier - state.launch_base;
  if (announced_base != state.launch_base || n >= announced_room) return false;
  return announced[n] && learnt_serial == state.serial && announced[n] <= learnt;
}

extern "C" void fnx_fence() {
  fenced_thread = state.current;
  fenced_serial = state.serial;
}

// An atomic after a fence announces what the block has written, and learns what others
// have announced.
void synchronise_blocks() {
  if (announced_base != state.launch_base) {
    announced_base = state.launch_base;
    memset(announced, 0, announced_room * sizeof *announced);
    announcements = 0;
  }
  learnt = announcements;
  learnt_serial = state.serial;
  if (fenced_serial != state.serial) return;
  const uint64_t n = state.block;
  if (n >= announced_room) {
    const uint64_t room = 2 * n + 64;
    uint64_t* grown = new uint64_t[room]();
    if (announced_room) memcpy(grown, announced, announced_room * sizeof *grown);
    delete[] announced;
    announced = grown;
    announced_room = room;
  }
  announced[n] = ++announcements;
}

}  // namespace emulator

// ---------------------------------------------------------------- hooks

using emulator::Access;
using emulator::check;
using emulator::check_range;

alignas(1024) char fnx_dynamic_shared[emulator::max_shared];

extern "C" {

#define HOOKS(size)                                                             \
  void __tsan_read##size(void* p) { check<size, Access::read>(p); }             \
  void __tsan_write##size(void* p) { check<size, Access::write>(p); }           \
  void __tsan_unaligned_read##size(void* p) { check_range(p, size, Access::read); }   \
  void __tsan_unaligned_write##size(void* p) { check_range(p, size, Access::write); } \
  void __tsan_volatile_read##size(void* p) { check<size, Access::volatile_read>(p); } \
  void __tsan_volatile_write##size(void* p) { check<size, Access::volatile_write>(p); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void* p, size_t size) { check_range(p, size, Access::read); }
void __tsan_write_range(void* p, size_t size) { check_range(p, size, Access::write); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}

// What -fsanitize=alignment passes: where, the type, log2 of its alignment, the access.
struct Mismatch {
  const char* file;
  uint32_t line, column;
  const void* type;
  uint8_t log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1(const Mismatch* data, uintptr_t pointer) {
  using namespace emulator;
  if (!(pointer & ((1ull << data->log_alignment) - 1))) return;
  Report report = {misaligned, (int)data->line};
  report.address = pointer;
  report.size = 1ull << data->log_alignment;
  report.write = data->kind == 1;
  fault(report);
}

// What -fsanitize=bounds passes: where, the type of the array and that of the index.
struct Type {
  uint16_t kind, info;  // for integers, info is 2 * log2 of the bits, + 1 if signed
  char name[1];
};
struct OutOfBounds {
  const char* file;
  uint32_t line, column;
  const Type *array, *index;
};

void __ubsan_handle_out_of_bounds(const OutOfBounds* data, uintptr_t index) {
  using namespace emulator;
  const bool is_signed = data->index->info & 1, is_short = data->index->info >> 1 <= 5;
  const long long value =
      is_signed && is_short ? (long long)(int32_t)index : (long long)index;
  Report report = {bad_index, (int)data->line};
  snprintf(report.note, sizeof report.note, "index %lld of an array %s", value,
           data->array->name);
  fault(report);
}
}
