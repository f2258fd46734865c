// The destructor of a POSIX key makes the calls at the end of a thread.
#include "lib/base/per_thread.h"
#include "lib/base/lazy.h"

#include <dlfcn.h>
#include <pthread.h>

#include <optional>

namespace reel {
namespace {

constinit thread_local ThreadEnd* ends = nullptr;

// Destructors of keys run after those of thread_local objects, and once more if one of them has set its key again.
void end_thread(void*) {
  while (ThreadEnd* const end = ends) {
    ends = end->next;
    end->call(end);
  }
}

// Threads call end_thread when they end, so a plug-in that contains it stays when the program closes it.
void stay_loaded() {
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&end_thread), &here))
    dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

std::optional<pthread_key_t> make_key() {
  stay_loaded();
  pthread_key_t key;
  if (pthread_key_create(&key, end_thread) != 0) return {};
  return key;
}

}  // namespace

void at_thread_end(ThreadEnd& end) noexcept {
  static constinit Lazy<std::optional<pthread_key_t>> made;
  const std::optional<pthread_key_t>& key = made.get(make_key);
  end.next = std::exchange(ends, &end);
  if (key) pthread_setspecific(*key, &ends);
}

}  // namespace reel
