#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <variant>

#include "lib/device/kernels/update.h"
#include "lib/functors/update.h"
#include "lib/tensor/tensor_impl.h"

namespace reel {

using UpdateStates = std::span<const Tensor, functors::kMaxStates>;

/// One optimizer step of the fused kernel Functor (lib/functors/update.h) on parameter p with gradient g and its states
/// (undefined where Functor has none), all contiguous and of p's dtype, states of half-precision parameters of float32.
/// With ids, g holds the gradients of those rows only, and only they are changed.
template <class Functor>
void update(const Functor& functor, const Tensor& p, const Tensor& g, UpdateStates states, const Tensor* ids) {
  const View* views[functors::kMaxStates];
  for (int i = 0; i < functors::kMaxStates; ++i) views[i] = states[i].defined() ? &view_of(states[i]) : nullptr;
  const View& pv = view_of(p);
  const Tensor dense = g.contiguous();
  kernels_of(p).update[functors::index_of<functors::UpdateList, Functor>](&functor, pv, view_of(dense), views,
                                                                          ids ? &view_of(*ids) : nullptr);
  TensorImpl::of(p)->storage->changed();
}

/// While one of these lives, a thread's dense steps are gathered as long as they are equal, and then taken at once: a
/// GPU launches one kernel for them.
class UpdateBatch {
 public:
  UpdateBatch() : outer_(std::exchange(current_, this)) {}
  ~UpdateBatch() {
    current_ = outer_;
    try {
      flush();
    } catch (...) {  // only where another error is under way already
    }
  }
  UpdateBatch(const UpdateBatch&) = delete;
  UpdateBatch& operator=(const UpdateBatch&) = delete;

  /// nullptr where there is none.
  static UpdateBatch* current() { return current_; }

  /// Before each add(): steps are gathered only where both numbers are equal. A captured graph depends on it: at each
  /// replay the same steps have to be gathered, whatever their functors have become.
  void next(std::pair<int, int64_t> kind) {
    if (kind != std::exchange(kind_, kind)) flush();
  }
  /// The same as update(). p and its states are to live as long as this.
  template <class Functor>
  void add(const Functor& functor, const Tensor& p, const Tensor& g, UpdateStates states) {
    const View& view = view_of(p);
    if (count_ > 0) {
      const Functor* same = std::get_if<Functor>(&functor_);
      if (count_ == kMaxParameters || !same || *same != functor || view.dtype != parameters_[0].dtype ||
          p.device() != device_ || overlaps(view))
        flush();
    }
    if (count_ == 0) functor_ = functor, device_ = p.device();
    Tensor& gradient = gradients_[count_] = g.contiguous();
    Updated& parameter = parameters_[count_++] = {view.dtype, view.data, view_of(gradient).data, {}, view.numel};
    for (int i = 0; i < functors::kMaxStates; ++i)
      if (states[i].defined()) parameter.states[i] = view_of(states[i]).data;
    TensorImpl::of(p)->storage->changed();
  }

  void flush() {
    const size_t count = std::exchange(count_, 0);
    if (count == 0) return;
    const void* functor = std::visit([](const auto& f) -> const void* { return &f; }, functor_);
    kernels_on(device_).multi_tensor_update[functor_.index()](functor, {parameters_.data(), count});
    for (size_t i = 0; i < count; ++i) gradients_[i] = {};
  }

 private:
  /// With a parameter that has been gathered: a view of it, say, which then takes its step after it.
  bool overlaps(const View& view) const {
    const auto bytes = [](const auto& x) { return x.numel * size_of(x.dtype); };
    const auto* const begin = static_cast<const char*>(view.data);
    return std::any_of(parameters_.begin(), parameters_.begin() + count_, [&](const Updated& other) {
      const auto* const there = static_cast<const char*>(other.p);
      return begin < there + bytes(other) && there < begin + bytes(view);
    });
  }
  template <class... Functors>
  static std::variant<Functors...> any_of(std::tuple<Functors...>*);
  static constexpr size_t kMaxParameters = 64;
  static inline thread_local UpdateBatch* current_ = nullptr;

  UpdateBatch* outer_;
  decltype(any_of(static_cast<functors::UpdateList*>(nullptr))) functor_;
  Device device_;
  std::pair<int, int64_t> kind_;
  size_t count_ = 0;
  std::array<Updated, kMaxParameters> parameters_;
  std::array<Tensor, kMaxParameters> gradients_;
};

}  // namespace reel
