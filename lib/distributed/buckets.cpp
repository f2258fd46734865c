#include "lib/distributed/buckets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::distributed {
namespace {

constexpr int64_t kAlignment = 64;             // of a parameter's place, in bytes
constexpr int64_t kPiece = int64_t{16} << 20;  // of broadcast_tensors

int64_t bytes_of(const Tensor& tensor) { return tensor.numel() * size_of(tensor.dtype()); }
int64_t aligned(int64_t elements, DType dtype) {
  const int64_t unit = kAlignment / size_of(dtype);
  return (elements + unit - 1) / unit * unit;
}

template <class T>
void divide(const void* from, int64_t n, double divisor, void* to) {
  const T* const in = static_cast<const T*>(from);
  T* const out = static_cast<T*>(to);
  int exponent;
  if (std::frexp(divisor, &exponent) == 0.5) {  // a power of two: the product is the quotient
    const T factor = static_cast<T>(1 / divisor);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] * factor;
  } else {
    const T by = static_cast<T>(divisor);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] / by;
  }
}

/// By the leaf and by the caller, and by nobody else.
bool is_held_twice(const Tensor& grad) { return TensorImpl::of(grad)->refs.load(std::memory_order_acquire) == 2; }

bool may_overwrite(const Tensor& grad) {
  return grad.defined() && grad.is_contiguous() && !grad.requires_grad() && !TensorImpl::of(grad)->is_wrapped_number;
}

}  // namespace

void* memory_of(const Tensor& tensor) { return view_of(tensor).data; }

std::vector<Bucket> make_buckets(std::span<const Tensor> parameters, std::span<const uint32_t> slots,
                                 size_t first_bytes, size_t bytes) {
  std::vector<Bucket> buckets;
  std::map<std::tuple<DType, DeviceType, int>, Bucket> open;
  const auto close = [&](Bucket& bucket) {
    bucket.missing = static_cast<uint32_t>(bucket.slots.size());
    buckets.push_back(std::exchange(bucket, {}));
  };
  for (size_t i = slots.size(); i-- > 0;) {
    const Tensor& parameter = parameters[slots[i]];
    const Device device = parameter.device();
    Bucket& bucket = open[{parameter.dtype(), device.type, device.index}];
    const size_t limit = buckets.empty() ? first_bytes : bytes;
    if (!bucket.slots.empty() && static_cast<size_t>(bucket.bytes() + bytes_of(parameter)) > limit) close(bucket);
    bucket.dtype = parameter.dtype();
    bucket.device = device;
    bucket.slots.push_back(slots[i]);
    bucket.offsets.push_back(bucket.count);
    bucket.count += aligned(parameter.numel(), bucket.dtype);
    if (static_cast<size_t>(bucket.bytes()) >= limit) close(bucket);
  }
  for (auto& [_, bucket] : open)
    if (!bucket.slots.empty()) close(bucket);
  for (size_t i = 0; i < buckets.size(); ++i)
    buckets[i].name = detail::concat("bucket ", i, " (", buckets[i].dtype, ")");
  return buckets;
}

void put_gradient(const Tensor& grad, const Tensor& flat, int64_t offset, int64_t numel) {
  if (flat.is_cuda()) {
    Tensor place = flat.narrow(0, offset, numel);
    if (grad.defined())
      place.view(grad.shape()).copy_(grad);
    else
      place.zero_();
    return;
  }
  const int64_t size = size_of(flat.dtype());
  void* const to = static_cast<char*>(memory_of(flat)) + offset * size;
  if (!grad.defined())
    std::memset(to, 0, static_cast<size_t>(numel * size));
  else if (grad.is_contiguous() && !grad.is_cuda())
    std::memcpy(to, memory_of(grad), static_cast<size_t>(numel * size));
  else
    from_blob(to, flat.dtype(), grad.shape()).copy_(grad);
}

void set_gradient(const Tensor& parameter, const Tensor& flat, int64_t offset, double divisor) {
  Tensor owner = parameter;
  Tensor grad = parameter.grad();
  const bool in_place = may_overwrite(grad);
  if (!in_place) grad = empty(parameter.shape(), {.dtype = parameter.dtype(), .device = parameter.device()});
  char* const from = static_cast<char*>(memory_of(flat)) + offset * size_of(flat.dtype());
  if (flat.is_cuda()) {  // kernels divide halves in float32 and round them once
    const Tensor sum = flat.narrow(0, offset, parameter.numel()).view(grad.shape());
    grad.copy_(divisor == 1 ? sum : sum / divisor);
  } else if (grad.dtype() == kFloat32) {
    divide<float>(from, grad.numel(), divisor, memory_of(grad));
  } else if (grad.dtype() == kFloat64) {
    divide<double>(from, grad.numel(), divisor, memory_of(grad));
  } else {
    grad.copy_(from_blob(from, grad.dtype(), grad.shape()).to(kFloat32) / divisor);
  }
  if (in_place)
    TensorImpl::of(grad)->storage->changed();
  else
    owner.set_grad(grad);
}

bool can_adopt(const Bucket& bucket, int divisor) {
  return bucket.device == kCPU && (bucket.dtype == kFloat32 || bucket.dtype == kFloat64) &&
         (divisor & (divisor - 1)) == 0;
}

void put_divided(const Tensor& grad, const Tensor& flat, int64_t offset, int64_t numel, double divisor) {
  if (!grad.defined()) return put_gradient(grad, flat, offset, numel);
  const Tensor packed = grad.contiguous();
  void* const to = static_cast<char*>(memory_of(flat)) + offset * size_of(flat.dtype());
  if (flat.dtype() == kFloat32)
    divide<float>(memory_of(packed), numel, divisor, to);
  else
    divide<double>(memory_of(packed), numel, divisor, to);
}

bool adopt_gradient(const Tensor& parameter, const Tensor& flat, int64_t offset) {
  {
    const Tensor grad = parameter.grad();
    if (grad.defined() && !is_held_twice(grad)) return false;
  }
  Tensor owner = parameter;
  void* const at = static_cast<char*>(memory_of(flat)) + offset * size_of(flat.dtype());
  owner.set_grad(from_blob(at, flat.dtype(), parameter.shape(), [flat] {}));
  return true;
}

void broadcast_tensors(Channel& channel, std::span<const Tensor> tensors, int root, int rank, const char* name) {
  const NoGrad guard;
  const auto is_like = [](const Tensor& a, const Tensor& b) {
    return a.device() == b.device() && (!a.is_cuda() || a.dtype() == b.dtype());
  };
  const auto room = [](const Tensor& t) { return aligned(t.numel(), t.dtype()) * size_of(t.dtype()); };
  for (size_t first = 0; first < tensors.size();) {
    size_t end = first;
    int64_t bytes = 0;
    while (end < tensors.size() && is_like(tensors[end], tensors[first]) &&
           (end == first || bytes + room(tensors[end]) <= kPiece))
      bytes += room(tensors[end++]);
    // Bytes of any dtypes on the CPU, elements of one on a GPU, which cannot look at memory in two ways.
    const Device device = tensors[first].device();
    const DType dtype = device == kCPU ? kUInt8 : tensors[first].dtype();
    const Tensor piece = empty({bytes / size_of(dtype)}, {.dtype = dtype, .device = device});
    const auto each = [&](auto f) {
      int64_t at = 0;
      for (size_t i = first; i < end; at += room(tensors[i++])) {
        const Tensor& t = tensors[i];
        if (!t.numel()) continue;
        f(t, device == kCPU ? from_blob(static_cast<char*>(memory_of(piece)) + at, t.dtype(), t.shape())
                            : piece.narrow(0, at / size_of(dtype), t.numel()).view(t.shape()));
      }
    };
    if (rank == root) each([](const Tensor& t, Tensor place) { place.copy_(t); });
    channel.wait(channel.broadcast(piece, root, name));
    if (rank != root) each([](Tensor t, const Tensor& place) { t.copy_(place); });
    first = end;
  }
}

}  // namespace reel::distributed
