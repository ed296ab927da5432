// Threads of a block on fibers, and the launch: blocks in random order, one by one.
//
// A thread runs on its stack until it waits (barrier, shuffle) or returns; then the same
// stack starts the next one, so that kernels without barriers are a plain loop. The
// order of blocks, of threads and of who goes on after a barrier comes from the seed:
// results that depend on it are races. Next: warp.cpp.
#include <sys/mman.h>

#include <cstring>

#include "state.h"

namespace emulator {

State state;
Thread threads[max_threads];
uint32_t warp_clock[32], barrier_clock[32], exited[32], existing[32];

// ---------------------------------------------------------------- switching stacks

// Saves the registers that a call preserves and the stack pointer, and loads the other's.
extern "C" void fnx_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.hidden fnx_switch
.globl fnx_switch
.type fnx_switch, @function
fnx_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fnx_switch, . - fnx_switch
)");
constexpr int saved_words = 6, return_word = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.hidden fnx_switch
.globl fnx_switch
.type fnx_switch, %function
fnx_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size fnx_switch, . - fnx_switch
)");
constexpr int saved_words = 20, return_word = 11;
#else
#error "the emulator knows x86-64 and aarch64"
#endif

// An odd number of pages, and tops that lie apart inside of a page: stacks at equal
// offsets would fight for the same lines of the caches.
constexpr size_t page = 4096, stack_size = 65 * page;
static size_t colour(int stack) { return stack % 32 * 128; }
static char* stacks;
static void* main_stack;
static int free_stacks[max_threads], free_count;

uintptr_t stacks_start() { return (uintptr_t)stacks; }
size_t stacks_size() { return stack_size * max_threads; }

static void allocate_stacks() {
  stacks = (char*)mmap(nullptr, stacks_size(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // the lowest page of each is a guard
  for (int n = 0; n < max_threads; ++n)
    mprotect(stacks + n * stack_size, page, PROT_NONE);
}

static void worker();

static void* fresh_stack(int number) {
  void** top = (void**)(stacks + (number + 1) * stack_size - colour(number));
  // at a function's entry the stack is 8 bytes off its alignment, as after a call
  void** frame = top - 2 - saved_words;
  memset(frame, 0, (char*)top - (char*)frame);
  frame[return_word] = (void*)worker;
  return frame;
}

// ---------------------------------------------------------------- the order of things

static uint32_t random_state = 1;

static uint32_t random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  return random_state ^= random_state << 5;
}

// All numbers below `count` in a scattered order: start + n * step, with no common factor.
struct Order {
  uint64_t count, start, step;
  uint64_t operator()(uint64_t n) const { return (start + n * step) % count; }
};

static Order random_order(uint64_t count) {
  if (count < 3 || count >> 31) return {count, random_number() % count, 1};
  uint64_t step = 1 + random_number() % (count - 1);
  for (;; ++step) {
    uint64_t a = count, b = step;
    while (b) {
      const uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) return {count, random_number() % count, step % count};
  }
}

// ---------------------------------------------------------------- threads of a block

static int ready[max_threads], ready_count;      // can go on, in no order
static int starting[max_threads], started_count;  // all, in the order of their start
static int done_count;

}  // namespace emulator

// Read by kernels as constants (shim.h).
extern "C" {
emulator::Index threadIdx, blockIdx, blockDim, gridDim;
}

namespace emulator {

static void enter(int number) {
  const Index& block = state.launch->block;
  state.current = number;
  if (block.y * block.z == 1) {
    threadIdx = {(uint32_t)number, 0, 0};
  } else {
    const uint32_t n = number;
    threadIdx = {n % block.x, n / block.x % block.y, n / (block.x * block.y)};
  }
}

void make_ready(int number) {
  threads[number].status = Status::ready;
  ready[ready_count++] = number;
}

void suspend(Status status) {
  Thread& self = threads[state.current];
  self.status = status;
  fnx_switch(&self.stack_pointer, main_stack);
}

[[noreturn]] static void leave() {
  void* unused;
  fnx_switch(&unused, main_stack);
  __builtin_unreachable();
}

void fault(Report report) {
  report.thread = state.current;
  report.block = state.block;
  state.report = report;
  leave();
}

// Begins the next thread on a stack.
static void start(int stack) {
  const int number = starting[started_count++];
  threads[number].stack = stack;
  threads[number].status = Status::ready;
  threads[number].spins = 0;
  enter(number);
}

// What a stack runs: one thread after the other until one of them waits.
static void worker() {
  for (;;) {
    state.launch->run(state.launch->parameters);
    threads[state.current].status = Status::done;
    ++done_count;
    thread_exited(state.current);
    const int stack = threads[state.current].stack;
    if (ready_count || started_count == state.threads || state.report.fault) {
      free_stacks[free_count++] = stack;
      leave();
    }
    start(stack);
  }
}

static void run_threads() {
  while (done_count < state.threads && !state.report.fault) {
    if (ready_count) {
      const int n = (uint64_t)random_number() * ready_count >> 32, number = ready[n];
      ready[n] = ready[--ready_count];
      enter(number);
      fnx_switch(&main_stack, threads[number].stack_pointer);
    } else if (started_count < state.threads) {
      const int stack = free_stacks[--free_count];
      start(stack);
      fnx_switch(&main_stack, fresh_stack(stack));
    } else {
      explain_deadlock();
    }
  }
}

static void prepare_block() {
  const Order warps = random_order(state.warps);
  const uint32_t first_lane = random_number(), step = random_number() | 1;
  int count = 0;
  for (int w = 0; w < state.warps; ++w) {
    // warp by warp, so that few stacks are in use
    const int first = warps(w) * 32;
    for (int n = 0; n < 32; ++n) {
      const int number = first + (first_lane + n * step) % 32;
      if (number < state.threads) starting[count++] = number;
    }
  }
  for (int w = 0; w < state.warps; ++w) {
    const int lanes_of = state.threads - 32 * w;
    existing[w] = lanes_of >= 32 ? 0xffffffffu : (1u << lanes_of) - 1;
    exited[w] = 0;
    warp_clock[w] = barrier_clock[w] = 1;
  }
  for (int n = 0; n < state.threads; ++n) threads[n].status = Status::unstarted;
  ready_count = started_count = done_count = 0;
  reset_barrier();
  // shared memory holds nothing when a block starts: all ones is NaN as a float
  const Launch& launch = *state.launch;
  memset(launch.shared_start, 0xff, launch.shared_size);
  memcpy(static_shared.state, launch.shared_state, launch.shared_size);
  memset((char*)dynamic_shared.start, 0xff, launch.dynamic_shared);
  memset(dynamic_shared.state, allocated, launch.dynamic_shared);
}

// Runs a launch; returns the number of the fault, whose report lies in fnx_report.
extern "C" int fnx_launch(const Launch* launch) {
  if (!stacks) allocate_stacks();
  const Index grid = launch->grid, block = launch->block;
  const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
  state.launch = launch;
  state.threads = block.x * block.y * block.z;
  state.warps = (state.threads + 31) / 32;
  state.report = {};
  gridDim = grid;
  blockDim = block;
  random_state = launch->seed | 1;
  free_count = 0;
  for (int n = 0; n < max_threads; ++n) free_stacks[free_count++] = n;
  prepare_spaces(*launch);
  const Order order = random_order(blocks);
  catch_signals();
  for (uint64_t n = 0; n < blocks && !state.report.fault; ++n) {
    const uint64_t number = order(n);
    state.block = number;
    state.serial = state.launch_base + number;
    blockIdx = {(uint32_t)(number % grid.x), (uint32_t)(number / grid.x % grid.y),
                (uint32_t)(number / grid.x / grid.y)};
    prepare_block();
    run_threads();
  }
  restore_signals();
  finish_spaces(blocks);
  return state.report.fault;
}

extern "C" const Report* fnx_report() { return &state.report; }

}  // namespace emulator
