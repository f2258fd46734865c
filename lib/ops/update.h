#pragma once
#include <span>

#include "lib/core/tensor_impl.h"

namespace reel {

/// One optimizer step of the fused kernel Functor (scalar.h) on parameter p with gradient g and its states (undefined
/// where Functor has none), all contiguous and of p's dtype. With ids, g holds the gradients of those rows only, and
/// only they are changed.
template <class Functor>
void update(const Functor& functor, const Tensor& p, const Tensor& g,
            std::span<const Tensor, scalar::kMostStates> states, const Tensor* ids) {
  const View* views[scalar::kMostStates];
  for (int i = 0; i < scalar::kMostStates; ++i) views[i] = states[i].defined() ? &view_of(states[i]) : nullptr;
  const View& pv = view_of(p);
  const Tensor dense = g.contiguous();
  backend_of(p).update[scalar::index_of<scalar::UpdateList, Functor>](&functor, pv, view_of(dense), views,
                                                                      ids ? &view_of(*ids) : nullptr);
  TensorImpl::of(p)->storage->changed();
}

}  // namespace reel
