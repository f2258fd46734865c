// These handlers hold all ForkLocks while the process forks.
#include "lib/base/fork_lock.h"

#include <pthread.h>

#include <mutex>

namespace reel {
namespace {

constinit ForkLock* first = nullptr;
constinit std::mutex forking;  // guards the list, and is held by a thread that forks

}  // namespace

ForkLock::ForkLock(Order order, void* on, Call lock, Call unlock, Call renew)
    : order_(order), on_(on), lock_(lock), unlock_(unlock), renew_(renew) {
  const std::lock_guard guard(forking);
  // Where there is no memory the registration fails, and children do without.
  if (!first)
    pthread_atfork(
        before_fork, [] { after_fork(&ForkLock::unlock_), forking.unlock(); },
        [] {
          after_fork(&ForkLock::renew_);
          new (&forking) std::mutex;
        });
  ForkLock** link = &first;
  while (*link && (*link)->order_ <= order_) link = &(*link)->next_;
  next_ = *link;
  *link = this;
}

void ForkLock::before_fork() {
  forking.lock();
  for (const ForkLock* l = first; l; l = l->next_) l->lock_(l->on_);
}

void ForkLock::after_fork(const Call ForkLock::*call) {
  for (const ForkLock* l = first; l; l = l->next_) (l->*call)(l->on_);
}

}  // namespace reel
