#include "lib/autograd/backward.h"
#include "lib/core/op_trace.h"

// Copies of a tensor in another dtype, on another device or in row-major order.
namespace reel {

void copy_between(Device source, const View& from, Device target, const View& to) {
  if (source.type == target.type && source != target) return kernels_on(target).copy_from(source.index, from, to);
  kernels_on(target == kCPU ? source : target).copy(from, to);
}

namespace {
// The gradient goes back through the same conversion: Backward::set casts it to x's dtype.
Tensor converted(const char* name, const Tensor& x, DType dtype, Device device) {
  if (op_modes.traces) [[unlikely]]
    return traced(dtype == view_of(x).dtype ? "clone" : "to", {x}, {},
                  [&] { return converted(name, x, dtype, device); });
  const View& xv = view_of(x);
  Tensor y = make_tensor(xv.shape, dtype, device);
  const Device from = TensorImpl::of(x)->device();
  copy_between(from, xv, device, view_of(y));
  if (is_floating_point(xv.dtype) && is_floating_point(dtype) && recording(x))
    record(name, y, inputs(x), [from](Backward& back) { back.set(0, back.grad().to(from)); });
  return y;
}
}  // namespace

Tensor Tensor::to(DType dtype) const {
  return view_of(*this, "to").dtype == dtype ? *this : converted("to", *this, dtype, device());
}
Tensor Tensor::to(Device target) const {
  return device() == target ? *this : converted("to", *this, view_of(*this).dtype, target);
}
Tensor Tensor::clone() const {
  const View& view = view_of(*this, "clone");
  return converted("clone", *this, view.dtype, device());
}
Tensor Tensor::contiguous() const {
  const View& view = view_of(*this, "contiguous");
  return view.contiguous ? *this : converted("contiguous", *this, view.dtype, device());
}

}  // namespace reel
