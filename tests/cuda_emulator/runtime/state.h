// What the parts of the runtime share: the running launch, its threads, the shadows.
//
// One kernel runs at a time in a process, block after block, in one thread of the
// system; a CUDA thread is a fiber (fibers.cpp). Every access of a kernel comes to
// checks.cpp, which looks the address up in a shadow. The first error ends the launch:
// fault() notes it and leaves to the main stack. Next: fibers.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

constexpr int max_threads = 1024;
constexpr int max_shared = 227 * 1024;

struct Index {
  uint32_t x, y, z;
};

// The states of a byte of memory.
enum : uint8_t { unallocated = 0, allocated = 1, initialised = 3 };

// The last write and the last read of four bytes: see races.h.
struct Cell {
  uint64_t write, read;
};

// A range of addresses with a shadow: a device's memory, or shared memory.
struct Space {
  uintptr_t start;
  size_t size;
  uint8_t* state;
  Cell* cells;
  bool shared;
};

enum class Status : uint8_t { unstarted, ready, barrier, warp, done };

struct Thread {
  void* stack_pointer;
  int stack;
  Status status;
  // of the operation that the thread waits in
  int line, kind, width, lane;
  uint32_t mask;
  uint64_t value, result;
  const void* operands[3];
  int spins;
};

enum Fault : int {
  no_fault,
  out_of_bounds,
  uninitialised,
  race,
  misaligned,
  divergent_barrier,
  divergent_warp,
  bad_lane,
  endless,
  divided_by_zero,
  stack_overflow,
  bad_index,
};

// The first error of a launch; Python formats it.
struct Report {
  int fault, line, write, atomic;
  uint64_t address, size;
  uint32_t thread, other_thread;
  uint64_t block, other_block;
  uint64_t other_serial;  // of a race with earlier work of another stream
  int other_write, other_line;
  uint32_t mask, lanes;
  char note[256];
};

struct Launch {
  void (*run)(void** parameters);
  void** parameters;
  Index grid, block;
  uint32_t seed;
  // static shared memory of the module: its section and the states at a block's start
  char* shared_start;
  size_t shared_size;
  const uint8_t* shared_state;
  size_t dynamic_shared;
  // the memory of the device, and the module's own variables and constants
  Space device;
  struct {
    uintptr_t start;
    size_t size;
  } own[3];
  // first and end serial numbers of earlier work that nothing orders before this
  const uint64_t* unordered;
  size_t unordered_count;
};

struct State {
  const Launch* launch;
  int threads, warps;    // of a block
  int current;           // the running thread
  uint64_t block;        // its number in the grid
  uint64_t launch_base;  // the serial number of the launch's first block
  uint64_t serial;       // ... and of the running block
  uint64_t oldest_unordered;
  Report report;
};

extern State state;
extern Thread threads[max_threads];
extern Space static_shared, dynamic_shared;
// A warp's clock ticks at each of its __syncwarp and at each barrier of the block.
extern uint32_t warp_clock[32], barrier_clock[32];
extern uint32_t exited[32], existing[32];

// Ends the launch; fills in the running thread and block.
[[noreturn]] void fault(Report report);

// checks.cpp: at a launch's start and end.
void prepare_spaces(const Launch& launch);
void finish_spaces(uint64_t blocks);

// Leaves the running thread until something makes it ready.
void suspend(Status status);
void make_ready(int thread);

// warp.cpp: a block starts; 32 threads multiply matrices (matrix.cpp), once all are there.
void reset_barrier();
void together(int shape, void* sums, const void* x, const void* y);
void multiply_matrices(const Thread* lanes);

// A thread left the kernel: whoever waits for it in its warp must not wait any longer.
void thread_exited(int thread);
// Reports what the threads wait for when none can run.
void explain_deadlock();

// crashes.cpp: around a launch.
void catch_signals();
void restore_signals();

uintptr_t stacks_start();
size_t stacks_size();

}  // namespace emulator
