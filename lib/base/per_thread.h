// A PerThread is the state of each thread whose destructor matters. A thread_local object will not do: it is destroyed
// before those that the program has made earlier in the thread, and before all static objects, whose destructors may
// call any op.
#pragma once
#include <cstddef>
#include <new>
#include <utility>

namespace reel {

/// A ThreadEnd is called when its thread ends.
struct ThreadEnd {
  void (*call)(ThreadEnd*) = nullptr;
  ThreadEnd* next = nullptr;
};
/// Calls end.call(&end) when the calling thread ends, after the destructors of all its thread_local objects; what was
/// added last is called first. These calls, and code that runs after them, may add more. In the thread that ends the
/// process nothing is called, nor where the system has no key left.
void at_thread_end(ThreadEnd& end) noexcept;

/// A PerThread holds a T of each thread, which is made when it is first used and destroyed by at_thread_end:
/// destructors of all static and thread_local objects of the program may use it. It is declared `constinit
/// thread_local`.
template <class T>
class PerThread : private ThreadEnd {
 public:
  constexpr PerThread() = default;
  T& operator*() {
    if (object_) [[likely]]
      return *object_;
    return make();
  }
  T* operator->() { return &**this; }
  /// Returns nullptr if the thread has none at present.
  T* get_if_made() const { return object_; }

 private:
  [[gnu::noinline]] T& make() {
    object_ = new (bytes_) T();
    call = [](ThreadEnd* end) { std::exchange(static_cast<PerThread*>(end)->object_, nullptr)->~T(); };
    at_thread_end(*this);
    return *object_;
  }
  T* object_ = nullptr;
  alignas(T) std::byte bytes_[sizeof(T)] = {};
};

}  // namespace reel
