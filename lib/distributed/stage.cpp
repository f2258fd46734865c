#include "lib/distributed/stage.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "lib/device/storage.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::distributed {
namespace {

/// Whether several positions may be the same element.
bool overlaps_itself(const Tensor& tensor) {
  if (tensor.is_contiguous() || tensor.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride and size
  for (int i = 0; i < tensor.shape().size(); ++i)
    if (tensor.shape()[i] > 1) steps.emplace_back(std::abs(tensor.strides()[i]), tensor.shape()[i]);
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

Device device_of(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (tensor.is_cuda()) return tensor.device();
  return kCPU;
}

}  // namespace

void check_tensor(const char* op, const Tensor& tensor) { REEL_CHECK(tensor.defined(), op, ": undefined tensor"); }

void check_written(const char* op, const Tensor& tensor) {
  check_tensor(op, tensor);
  REEL_CHECK(
      !grad_enabled() || !tensor.requires_grad(), op,
      ": would write into a tensor that requires grad, which is not recorded; use no_grad(), detach() or grad()");
  REEL_CHECK(!overlaps_itself(tensor), op, ": would write into a tensor of shape ", tensor.shape(), " and strides ",
             tensor.strides(), ", some of whose elements are the same");
}

void* address(const Tensor& tensor) { return TensorImpl::of(tensor)->view.data; }
size_t bytes_of(const Tensor& tensor) { return static_cast<size_t>(tensor.numel() * size_of(tensor.dtype())); }
bool share_memory(const Tensor& a, const Tensor& b) { return TensorImpl::of(a)->storage == TensorImpl::of(b)->storage; }

void record_stream(const Tensor& tensor, DeviceStream& stream) {
  const Storage& storage = *TensorImpl::of(tensor)->storage;
  if (storage.block) runtime(storage.device).record_stream(storage.block, stream);
}

Tensor host_memory(const Shape& shape, DType dtype, Device copied_with) {
  if (copied_with == kCPU) return empty(shape, {.dtype = dtype, .device = kCPU});
  DeviceRuntime& device = runtime(copied_with);
  void* const data = device.allocate_pinned(static_cast<size_t>(std::max<int64_t>(shape.numel(), 1) * size_of(dtype)));
  return from_blob(data, dtype, shape, [&device, data] { device.release_pinned(data); });
}

Tensor packed(const Tensor& tensor) {
  const NoGrad guard;
  return tensor.detach().contiguous();
}

// ---- reading --------------------------------------------------------------------------------------------------------

void Stage::read(const Tensor& tensor, const Tensor& into) {
  const NoGrad guard;
  if (!tensor.is_cuda()) {
    Tensor(into).copy_(tensor);
    return;
  }
  if (!tensor.numel()) return;
  const Device device = tensor.device();
  const Tensor dense = tensor.detach().contiguous();
  DeviceRuntime& from = runtime(device);
  const auto stream = core_.stream_of(device);
  const auto event = from.new_event(false);
  event->record(*from.current_stream(device.index));
  event->wait(*stream);
  {
    const DeviceStreamGuard on(from, stream);
    from.download(device.index, address(dense), address(into), bytes_of(dense));
  }
  record_stream(dense, *stream);
  for (auto& [where, copied] : copied_)
    if (where == device) return copied->record(*stream);
  copied_.emplace_back(device, from.new_event(false));
  copied_.back().second->record(*stream);
}

Tensor Stage::read(const Tensor& tensor) {
  if (!tensor.is_cuda()) return packed(tensor);
  const Tensor here = host_memory(tensor.shape(), tensor.dtype(), tensor.device());
  read(tensor, here);
  return here;
}

Tensor Stage::joined(std::span<const Tensor> tensors, std::vector<size_t>& sizes) {
  size_t total = 0;
  for (const Tensor& tensor : tensors) total += bytes_of(tensor);
  const Tensor all = host_memory({static_cast<int64_t>(total)}, kUInt8, device_of(tensors));
  size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    sizes.push_back(bytes_of(tensor));
    if (!sizes.back()) continue;
    if (tensor.is_cuda()) {
      read(tensor, from_blob(at(all, offset), tensor.dtype(), tensor.shape()));
    } else {
      std::memcpy(at(all, offset), address(packed(tensor)), sizes.back());
    }
    offset += sizes.back();
  }
  return all;
}

std::function<void()> Stage::wait_for() {
  if (copied_.empty()) return {};
  return [copied = copied_] {
    for (const auto& [_, event] : copied) event->synchronize();
  };
}

// ---- writing --------------------------------------------------------------------------------------------------------

Written::Written(const Tensor& tensor, At at) : tensor_(tensor), dense_(tensor) {
  if (at == kHost && tensor.is_cuda())
    dense_ = host_memory(tensor.shape(), tensor.dtype(), tensor.device());
  else if (!tensor.is_contiguous())
    dense_ = empty(tensor.shape(), {.dtype = tensor.dtype(), .device = tensor.device()});
  TensorImpl::of(tensor)->storage->changed();
}

void Written::fill(Stage& stage) const {
  const NoGrad guard;
  if (!is_copied()) return;
  if (dense_.is_cuda())
    Tensor(dense_).copy_(tensor_);
  else
    stage.read(tensor_, dense_);
}

void Written::finish() const {
  const NoGrad guard;
  if (is_copied()) Tensor(tensor_).copy_(dense_, {.non_blocking = true});  // nobody else has dense_
}

Parts::Parts(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    addresses_.push_back(nullptr);
    sizes_.push_back(0);
    if (!tensor.defined()) continue;
    written_.emplace_back(tensor, Written::kDevice);
    dense_.push_back(written_.back().dense());
    addresses_.back() = address(dense_.back());
    sizes_.back() = bytes_of(tensor);
  }
}

void Parts::finish() const {
  for (const Written& written : written_) written.finish();
}

std::pair<Tensor, std::function<void()>> split(std::span<const Tensor> tensors, std::vector<size_t>& sizes) {
  size_t total = 0;
  for (const Tensor& tensor : tensors) {
    sizes.push_back(bytes_of(tensor));
    total += sizes.back();
    TensorImpl::of(tensor)->storage->changed();
  }
  const Tensor all = host_memory({static_cast<int64_t>(total)}, kUInt8, device_of(tensors));
  return {all, [all, outs = std::vector<Tensor>(tensors.begin(), tensors.end())] {
            const NoGrad guard;
            size_t offset = 0;
            for (const Tensor& out : outs) {
              if (out.is_cuda() && out.numel()) {
                Tensor(out).copy_(from_blob(at(all, offset), out.dtype(), out.shape()), {.non_blocking = true});
              } else if (out.numel()) {  // whose alignment `all` need not have
                const Tensor dense =
                    out.is_contiguous() ? out : empty(out.shape(), {.dtype = out.dtype(), .device = kCPU});
                std::memcpy(address(dense), at(all, offset), bytes_of(out));
                if (!dense.is_same(out)) Tensor(out).copy_(dense);
              }
              offset += bytes_of(out);
            }
          }};
}

}  // namespace reel::distributed
