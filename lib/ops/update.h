#pragma once
#include "lib/core/tensor_impl.h"

namespace reel {

/// One optimizer step of the fused kernel Functor (scalar.h) on parameter p with gradient g and the states s and t
/// (nullptr where Functor has none), all contiguous and of p's dtype. With ids, g holds the gradients of those rows
/// only, and only they are changed.
template <class Functor>
void update(const Functor& functor, const Tensor& p, const Tensor& g, const Tensor* s, const Tensor* t,
            const Tensor* ids) {
  const View& pv = view_of(p);
  const Tensor dense = g.contiguous();
  backend_of(p).update[scalar::index_of<scalar::UpdateList, Functor>](
      &functor, pv, view_of(dense), s ? &view_of(*s) : nullptr, t ? &view_of(*t) : nullptr,
      ids ? &view_of(*ids) : nullptr);
  TensorImpl::of(p)->storage->changed();
}

}  // namespace reel
