#include "lib/base/fibers.h"

#include "lib/base/op_modes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#include "lib/base/sanitizers.h"

#if defined(REEL_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(REEL_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

// Not <cxxabi.h>'s, whose declaration says that the result is always the same: it is not for a fiber that another
// thread continues.
namespace __cxxabiv1 {
extern "C" void* __cxa_get_globals() noexcept;
}

// Saves the callee-saved registers and where the stack ends, and continues on another stack.
#ifdef __x86_64__
extern "C" void reel_switch_stack(void** save, void* stack);
asm(R"(
.text
.globl reel_switch_stack
.hidden reel_switch_stack
.type reel_switch_stack,@function
reel_switch_stack:
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
.size reel_switch_stack,.-reel_switch_stack
)");
#else
static void reel_switch_stack(void** save, void* stack) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t*>(stack));
}
#endif

namespace reel {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t kRedZone = 128;  // below the top of a stack, which code may use
constexpr size_t round_down(size_t bytes) { return bytes / kPage * kPage; }
}  // namespace

constinit thread_local OpModes op_modes;
constinit thread_local detail::FiberWaits fiber_waits;
constinit thread_local bool in_joined_call = false;

detail::NoSuspendGuard::NoSuspendGuard(bool active) : before_(active ? exchange_fiber_waits({}) : fiber_waits) {}
detail::NoSuspendGuard::~NoSuspendGuard() { exchange_fiber_waits(before_); }

constinit thread_local Fiber Fiber::own_, *Fiber::running_ = nullptr, *Fiber::before_ = nullptr;

Fiber::Fiber(void (*main)(void*), void* argument, size_t stack_bytes) : main_(main), argument_(argument) {
  bytes_ = kGuardBytes + round_down(stack_bytes + kPage - 1);
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  if (mprotect(memory_, kGuardBytes, PROT_NONE) != 0) {
    munmap(memory_, bytes_);
    throw std::bad_alloc();
  }
  madvise(memory_, bytes_, MADV_NOHUGEPAGE);  // most stacks use a page or two
  bottom_ = memory_ + kGuardBytes;
  size_ = bytes_ - kGuardBytes;
  // Stacks are aligned to pages, and what is used of each lies at its end: shifted, not all in the same cache sets.
  static constinit thread_local unsigned made = 0;
  char* const end = memory_ + bytes_ - ++made % 32 * 192;
#ifdef __x86_64__
  void** top = reinterpret_cast<void**>(end);
  *--top = nullptr;  // as the address that begin() returns to: a stack trace ends there
  *--top = reinterpret_cast<void*>(&begin);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  top_ = top;
#else
  auto* const context = new (end - sizeof(ucontext_t) / 64 * 64 - 64) ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = memory_ + kGuardBytes;
  context->uc_stack.ss_size = static_cast<size_t>(reinterpret_cast<char*>(context) - memory_) - kGuardBytes;
  makecontext(context, begin, 0);
  top_ = context;
#endif
#ifdef REEL_THREAD_SANITIZER
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!memory_) return;
#ifdef REEL_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(bottom_, size_);  // by the redzones of functions that have not returned
#elif defined(REEL_THREAD_SANITIZER)
  __tsan_destroy_fiber(tsan_);
#endif
  munmap(memory_, bytes_);
}

void Fiber::trim(size_t kept) {
  const auto used = static_cast<size_t>(memory_ + bytes_ - static_cast<char*>(top_));
  kept = round_down(std::max(kept, used + kRedZone) + kPage - 1);
  if (kept >= bytes_ - kGuardBytes) return;
  madvise(memory_ + kGuardBytes, bytes_ - kGuardBytes - kept, MADV_DONTNEED);
}

Fiber& Fiber::running() {
  if (!running_) running_ = &own_;
  return *running_;
}

void Fiber::begin() {
  arrive();
  running_->main_(running_->argument_);
  __builtin_trap();
}

// In a function of its own: what switch_to() knows of thread-local variables is wrong if another thread continues it.
[[gnu::noinline]] void Fiber::arrive() {
#ifdef REEL_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(running_->fake_stack_, &before_->bottom_, &before_->size_);
#endif
}

void Fiber::switch_to() {
  Fiber& from = running();
  before_ = &from;
  running_ = this;
  void* const exceptions = __cxxabiv1::__cxa_get_globals();
  std::memcpy(&from.exceptions_, exceptions, sizeof exceptions_);
  std::memcpy(exceptions, &exceptions_, sizeof exceptions_);
#ifdef REEL_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&from.fake_stack_, bottom_, size_);
#elif defined(REEL_THREAD_SANITIZER)
  if (!from.memory_) from.tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, 0);
#endif
  reel_switch_stack(&from.top_, top_);
  arrive();
}

}  // namespace reel
