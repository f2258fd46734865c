#pragma once
#include <cstddef>

namespace reel {

/// A function on a stack of its own, which continues where it was whenever it is switched to. kGuardBytes below the
/// stack are protected: an overflow by frames of up to 1 MiB ends the process instead of changing other memory.
///
/// Each fiber has its own exceptions, those in flight and those being handled. All other state of a thread, such as
/// thread_local variables and the rounding mode, is shared by the thread's fibers.
class Fiber {
 public:
  /// The guard is as large as a frame of 1 MiB and the frames of what it calls.
  static constexpr size_t kGuardBytes = (1 << 20) + (64 << 10);

  /// One that begins with main(argument) when it is first switched to. main neither returns nor throws. Throws
  /// std::bad_alloc if there is no memory for the stack.
  Fiber(void (*main)(void*), void* argument, size_t stack_bytes);
  /// Nothing is unwound: no object that needs its destructor may lie on the stack.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// What runs on the calling thread. The stack that a thread has anyway is one, too.
  static Fiber& running();
  /// Continues this one. Returns when the one that was running is switched to.
  void switch_to();
  /// Gives back the memory of its stack but for the outermost `kept` bytes and what is in use. It must not be running.
  void trim(size_t kept);
  /// It is switched to soon: begins to load the innermost part of its stack.
  void prefetch() const {
    for (int line = 0; line < 12; ++line) __builtin_prefetch(static_cast<const char*>(top_) + 64 * line);
  }

 private:
  constexpr Fiber() = default;
  static void begin();
  static void arrive();
  static thread_local Fiber own_;  // the thread's own stack
  static thread_local Fiber *running_, *before_;

  void* top_ = nullptr;  // of the stack while another one runs
  void (*main_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* memory_ = nullptr;  // the guard and the stack; of a thread's own one, nullptr
  size_t bytes_ = 0;
  struct {  // __cxa_eh_globals of the C++ ABI
    void* caught = nullptr;
    unsigned uncaught = 0;
  } exceptions_;
  // What the sanitizers want to know.
  const void* bottom_ = nullptr;
  size_t size_ = 0;
  [[maybe_unused]] void *fake_stack_ = nullptr, *tsan_ = nullptr;
};

}  // namespace reel
