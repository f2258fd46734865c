#include "lib/autograd/backward.h"
#include "lib/device/device.h"
#include "lib/tensor/op_trace.h"

// This file copies tensors to another dtype, another device or row-major order.
namespace reel {

namespace {
// Queues a copy between a GPU and pinned memory. Does nothing and returns false if it is another kind of copy.
bool copy_without_waiting(Device source, const View& from, Device target, const View& to) {
  if (source.type == target.type || from.numel == 0) return false;
  const bool up = source == kCPU;
  const View &host = up ? from : to, &there = up ? to : from;
  const Device gpu = up ? target : source;
  DeviceRuntime& device = runtime(gpu);
  if (!host.contiguous || !device.is_pinned(host.data)) return false;
  Tensor packed;  // the GPU changes dtype and layout
  if (!there.contiguous || from.dtype != to.dtype) packed = make_tensor(host.shape, host.dtype, gpu);
  const View& near = packed.defined() ? view_of(packed) : there;
  const auto bytes = static_cast<size_t>(host.numel * size_of(host.dtype));
  if (up) {
    device.upload(gpu.index, host.data, near.data, bytes);
    if (packed.defined()) kernels_on(gpu).copy(near, to);
  } else {
    if (packed.defined()) kernels_on(gpu).copy(from, near);
    device.download(gpu.index, near.data, host.data, bytes);
  }
  return true;
}
}  // namespace

void copy_between(Device source, const View& from, Device target, const View& to, CopyOptions options) {
  if (options.non_blocking && copy_without_waiting(source, from, target, to)) return;
  if (source.type == target.type && source != target) return kernels_on(target).copy_from(source.index, from, to);
  kernels_on(target == kCPU ? source : target).copy(from, to);
}

namespace {
/// An Order names how a result lies in memory.
enum class Order { kRowMajor, kOfOperand };

// Copies x, a permutation of row-major elements, without its history: as they lie in memory.
Tensor copied_in_order(const Tensor& x, DType dtype) {
  const Tensor y = make_like(x, dtype);
  const auto flat = [](const View& v) { return make_view(v.data, {v.numel}, {1}, v.dtype); };
  kernels_of(x).copy(flat(view_of(x)), flat(view_of(y)));
  return y;
}

// The gradient goes back through the same conversion: Backward::set casts it to x's dtype.
Tensor converted(const char* name, const Tensor& x, DType dtype, Device device, CopyOptions options = {},
                 Order order = Order::kRowMajor) {
  if (is_tracing()) [[unlikely]]
    return traced(dtype == view_of(x).dtype ? "clone" : "to", {x}, {},
                  [&] { return converted(name, x, dtype, device, options, order); });
  const View& xv = view_of(x);
  const Device from = TensorImpl::of(x)->device();
  const bool to_pinned = options.non_blocking && device == kCPU && from != kCPU;
  Tensor y;
  if (order == Order::kOfOperand && is_permuted(xv)) {
    y = copied_in_order(x, dtype);
  } else {
    y = to_pinned ? make_pinned_tensor(xv.shape, dtype) : make_tensor(xv.shape, dtype, device);
    copy_between(from, xv, device, view_of(y), options);
  }
  if (is_floating_point(xv.dtype) && is_floating_point(dtype) && recording(x))
    record(name, y, inputs(x), [from](Backward& back) { back.set(0, back.grad().to(from)); });
  return y;
}
}  // namespace

Tensor Tensor::to(DType dtype) const {
  return view_of(*this, "to").dtype == dtype ? *this : converted("to", *this, dtype, device(), {}, Order::kOfOperand);
}
Tensor Tensor::to(Device target, CopyOptions options) const {
  return device() == target ? *this : converted("to", *this, view_of(*this).dtype, target, options);
}
Tensor Tensor::clone() const {
  const View& view = view_of(*this, "clone");
  return converted("clone", *this, view.dtype, device());
}
Tensor make_like(const Tensor& x, DType dtype) {
  const View& xv = view_of(x);
  Tensor y = make_tensor(xv.shape, dtype, TensorImpl::of(x)->device());
  if (is_permuted(xv)) {
    View& yv = TensorImpl::of(y)->view;
    yv.strides = xv.strides, yv.contiguous = false;
  }
  return y;
}
Tensor clone_in_order(const Tensor& x) {
  return converted("clone", x, view_of(x, "clone").dtype, x.device(), {}, Order::kOfOperand);
}
Tensor Tensor::contiguous() const {
  const View& view = view_of(*this, "contiguous");
  return view.contiguous ? *this : converted("contiguous", *this, view.dtype, device());
}

}  // namespace reel
