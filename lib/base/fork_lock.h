// A ForkLock is a lock that a forked child finds free.
// A forked child has the forking thread alone. What another thread had locked in that moment would stay locked in the
// child, and be half changed.
#pragma once
#include <new>

namespace reel {

/// A ForkLock holds a lock while the process forks: the child finds it free, and what it guards complete. It is made in
/// static storage and never destroyed. `Lock` has lock() and unlock(), and may have renew(), which resets it in the
/// child.
class ForkLock {
 public:
  /// Locks are taken in this order: whoever holds one may lock those below it, and no other.
  enum class Order { kGradients, kLibraries, kProfile, kTensors, kMemory };
  template <class Lock>
  ForkLock(Order order, Lock& lock)
      : ForkLock(
            order, &lock, [](void* on) { static_cast<Lock*>(on)->lock(); },
            [](void* on) { static_cast<Lock*>(on)->unlock(); },
            [](void* on) {  // a mutex knows its owner by a number that is another one in the child
              if constexpr (requires(Lock & l) { l.renew(); })
                static_cast<Lock*>(on)->renew();
              else
                new (on) Lock;
            }) {}

 private:
  using Call = void (*)(void* lock);
  ForkLock(Order order, void* on, Call lock, Call unlock, Call renew);
  static void before_fork();
  static void after_fork(const Call ForkLock::*call);

  const Order order_;
  void* const on_;
  const Call lock_, unlock_, renew_;
  ForkLock* next_ = nullptr;  // in the order in which they are taken
};

}  // namespace reel
