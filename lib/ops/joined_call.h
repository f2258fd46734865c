// This file has JoinedCall, the base of calls in batching::map that become one though their rows depend on each other.
#pragma once
#include <optional>

#include "reel/tensor/detail/batching.h"

namespace reel {

/// A JoinedCall is a call of an op or layer with sequences of its own: it says itself how several calls become one.
class JoinedCall : public batching::internal::Call {
 public:
  /// Returns whether a call with x may wait and is faster with others, as it is on a GPU, where a launch takes longer
  /// than a small kernel.
  static bool may_wait(const Tensor& x) { return x.device() != kCPU && batching::internal::scheduler(); }
  /// Returns true if the call was made as one with those of other examples. If it found none, `alone` keeps its parts
  /// from waiting for some.
  bool wait(std::optional<detail::NoSuspendGuard>& alone) {
    batching::internal::BatchScheduler* const scheduler = batching::internal::scheduler();
    if (!scheduler) return false;
    if (scheduler->wait(*this)) return true;
    alone.emplace();
    return false;
  }

 protected:
  JoinedCall(const void* callee, const std::type_info& type) : Call(Kind::kSequences, callee, type) {}
  ~JoinedCall() = default;
  /// Calls f with each call of the group that `first` is the first of.
  template <class Self>
  static void for_each_call(Self& first, const auto& f) {
    for (Call* call = &first; call; call = call->next) f(*static_cast<Self*>(call));
  }
};

}  // namespace reel
