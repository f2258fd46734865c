// Static objects that their first use makes without a lock.
// A function-local `static` has a lock: a child that is forked while another thread makes the object would wait for
// that thread, which the child does not have, for ever.
#pragma once
#include <atomic>
#include <memory>

namespace reel {

/// A Lazy is a static object that its first use makes and that is never destroyed, since threads and destructors of the
/// program may use it until the very end.
template <class T>
class Lazy {
 public:
  /// Returns the object, which is what make() returned in the first call. Of threads that call at once each may make
  /// one; one of these objects is kept and returned to all. If make() throws, the next call makes the object.
  template <class Make>
  T& get(Make make) {
    if (T* const made = made_.load(std::memory_order_acquire)) [[likely]]
      return *made;
    return keep(std::unique_ptr<T>(new T(make())));
  }
  T& get() {
    return get([] { return T(); });
  }

 private:
  T& keep(std::unique_ptr<T> mine) {
    T* kept = nullptr;
    return made_.compare_exchange_strong(kept, mine.get()) ? *mine.release() : *kept;
  }

  std::atomic<T*> made_{nullptr};
};

}  // namespace reel
