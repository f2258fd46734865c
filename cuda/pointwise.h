#pragma once
#include <optional>

#include "cuda/elementwise.h"
#include "cuda/kernels.h"

// The pointwise entries of the table. Each list of lib/functors/pointwise.h has source files of its own, as they take
// long to compile: a kernel for each functor and each dtype.
namespace reel::cuda {

void install_binary(KernelTable& table);
void install_binary_grad(KernelTable& table);
void install_ternary(KernelTable& table);
void install_bits(KernelTable& table);
void install_compare(KernelTable& table);

/// A view for map_flat: the given one or, where that is strided, a contiguous copy.
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
