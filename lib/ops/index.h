#pragma once
#include "lib/device/kernels/id_check.h"
#include "lib/ops/internal.h"

// What ops that look elements up by position share.
namespace reel {

/// An Error in op's name if an id is not in [low, size).
void check_range(const char* op, const Tensor& ids, int64_t low, int64_t size, int dim);
/// The same, found by a kernel.
[[noreturn]] void fail_range(const IdCheck& check, int64_t size, int dim);

/// The slices of x at the 1-d ids along dim, in op's name: negative ids count back. With `check` the ids have not been
/// checked, and must be in [0, size); `distinct` says that no id occurs twice. Recorded.
Tensor select_slices(const char* op, const Tensor& x, int dim, const Tensor& ids, bool check = false,
                     bool distinct = false);
/// x with the slices at ids along dim replaced by those of `source`, or with source added to them. Source has x's dtype
/// and fits. Recorded.
Tensor put_slices(const Tensor& x, int dim, const Tensor& ids, const Tensor& source);
Tensor add_slices(const Tensor& x, int dim, const Tensor& ids, const Tensor& source);

/// A value as x's elements are. A fraction is rounded towards 0 where they are integers, as a C++ number is that is
/// assigned to one; a number that they cannot hold is an Error.
Tensor value_for(const char* op, const Tensor& x, const Tensor& value);

/// Changes self: to `changed()`, recorded, where a gradient flows or self is also what is read; else by `write()`,
/// which touches no more than it has to.
template <class Changed, class Write>
Tensor& rewrite(const char* op, Tensor& self, const Tensor& ids, const Tensor& source, Changed changed, Write write) {
  check_in_place(op, self);
  if ((self.is_floating_point() && recording(self, source)) || shares_memory(ids, self) ||
      shares_memory(source, self) || is_tracing())
    return assign_in_place(op, self, changed());
  write();
  TensorImpl::of(self)->storage->changed();
  return self;
}

}  // namespace reel
