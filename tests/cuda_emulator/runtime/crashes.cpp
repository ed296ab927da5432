// What would end the process: a stack that overflows, a division by zero.
//
// While a kernel runs, these signals become faults of its running thread. A signal that
// another thread of the process caused goes where it went before. Next: matrix.cpp.
#include <pthread.h>
#include <signal.h>

#include "state.h"

namespace emulator {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction before[3];
static pthread_t running;
alignas(16) static char handler_stack[64 << 10];
static stack_t stack_before;

static void handle(int number, siginfo_t* info, void*) {
  const uintptr_t address = (uintptr_t)info->si_addr;
  const bool ours = pthread_equal(pthread_self(), running);
  Report report = {};
  if (ours && number == SIGFPE) {
    report.fault = divided_by_zero;
    fault(report);
  }
  if (ours && address - stacks_start() < stacks_size()) {
    report.fault = stack_overflow;
    fault(report);
  }
  // None of ours: as without a handler, the access is repeated under the old one.
  restore_signals();
}

void catch_signals() {
  running = pthread_self();
  const stack_t own = {handler_stack, 0, sizeof handler_stack};
  sigaltstack(&own, &stack_before);
  struct sigaction action = {};
  action.sa_sigaction = handle;
  // The handler is left by a switch of stacks: nothing must stay blocked.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int n = 0; n < 3; ++n) sigaction(signals[n], &action, &before[n]);
}

void restore_signals() {
  for (int n = 0; n < 3; ++n) sigaction(signals[n], &before[n], nullptr);
  sigaltstack(&stack_before, nullptr);
}

}  // namespace emulator
