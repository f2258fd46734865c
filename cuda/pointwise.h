#pragma once
#include <optional>

#include "cuda/elementwise.h"
#include "cuda/kernels.h"

// The pointwise rows of the table, each half in a source of its own: they take long to compile.
namespace reel::cuda {

void install_unary(Backend& table);
void install_unary_grad(Backend& table);
void install_binary(Backend& table);
void install_binary_grad(Backend& table);

/// A view that map_flat takes: the copy of one that is strided.
class Flat {
 public:
  explicit Flat(const View* view) : view_(view) {
    if (view && !detail::is_flat(view)) view_ = &(copy_.emplace(*view)).view();
  }
  const View* view() const { return view_; }

 private:
  const View* view_;
  std::optional<Contiguous> copy_;
};

template <class F>
const F& functor(const void* f) {
  return *static_cast<const F*>(f);
}

}  // namespace reel::cuda
