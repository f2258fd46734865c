#pragma once
#include <cstdint>
#include <memory>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// The number of threads that one op may use, and loops over them.
namespace reel {

/// How many threads one large op may use, this one included: a product, a convolution, a pass over a large tensor.
/// Initially REEL_NUM_THREADS or, if that is not set, the physical cores that the process may run on (its affinity, and
/// the quota of its control group). Less than 1 is an Error, and so is, at the first op, a REEL_NUM_THREADS that is no
/// such number. For all threads of the program, from their next op on. Results are the same bits for any number.
///
/// There is one pool of helping threads. It serves one op at a time: of several threads that train on their own, one
/// has those helpers that the others leave, and the others go on alone. Small ops, and ops within a part of
/// parallel_for, use one thread. Helpers sleep when there is nothing to do, and leave the calling thread's processor. A
/// helper that does not run, because another process has its core, delays an op; helpers that lose more time that way
/// than they gain rest for a while. A forked child starts helpers of its own. Neither OpenMP nor its variables
/// (OMP_NUM_THREADS, …) have any effect on reel.
void set_num_threads(int threads);
int num_threads();  ///< What is set.

namespace detail {
using ChunkFunction = void (*)(const void* f, int64_t begin, int64_t end);
void run_chunks(int64_t size, int64_t chunk, ChunkFunction call, const void* f);
}  // namespace detail

/// f(begin, end) for consecutive parts of [0, size) of `grain` indices each (the last may have fewer), on several
/// threads at once. Returns when all of them have. The parts do not depend on the number of threads; which thread gets
/// which does; all of them round as the calling thread does. With one thread, within a part of another parallel_for,
/// and while another thread has the pool, the calling thread takes all parts in turn. Exceptions reach the caller: that
/// of the first part that throws, when no part runs any more; parts that had not begun are left out. A part of some 50
/// µs of work is worth another thread.
///
/// What is set for the calling thread (NoGrad, Autocast, the default device, manual_seed) is not for the others: f is
/// for plain loops over memory, and ops of tensors in it must not depend on any of that. A part must not fork.
template <class F>
void parallel_for(int64_t size, int64_t grain, const F& f) {
  if (size <= grain) {
    if (size > 0) f(int64_t{0}, size);
    return;
  }
  const auto call = [](const void* g, int64_t begin, int64_t end) { (*static_cast<const F*>(g))(begin, end); };
  detail::run_chunks(size, grain, call, std::addressof(f));
}

}  // namespace reel
#pragma GCC visibility pop
