#include "lib/distributed/buckets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "lib/core/tensor_impl.h"
#include "lib/distributed/text.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::distributed {
namespace {

constexpr int64_t kAlignment = 64;           // of a parameter's place, in bytes
constexpr size_t kPiece = size_t{16} << 20;  // of broadcast_tensors

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
  std::map<DType, Bucket> open;
  const auto close = [&](Bucket& bucket) {
    bucket.missing = static_cast<uint32_t>(bucket.slots.size());
    buckets.push_back(std::exchange(bucket, {}));
  };
  for (size_t i = slots.size(); i-- > 0;) {
    const Tensor& parameter = parameters[slots[i]];
    Bucket& bucket = open[parameter.dtype()];
    const size_t limit = buckets.empty() ? first_bytes : bytes;
    if (!bucket.slots.empty() && static_cast<size_t>(bucket.bytes() + bytes_of(parameter)) > limit) close(bucket);
    bucket.dtype = parameter.dtype();
    bucket.slots.push_back(slots[i]);
    bucket.offsets.push_back(bucket.count);
    bucket.count += aligned(parameter.numel(), bucket.dtype);
    if (static_cast<size_t>(bucket.bytes()) >= limit) close(bucket);
  }
  for (auto& [dtype, bucket] : open)
    if (!bucket.slots.empty()) close(bucket);
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i].name = concat("bucket ", i, " (", buckets[i].dtype, ")");
  return buckets;
}

void put_gradient(const Tensor& grad, int64_t numel, DType dtype, void* to) {
  const size_t bytes = static_cast<size_t>(numel * size_of(dtype));
  if (!grad.defined())
    std::memset(to, 0, bytes);
  else if (grad.is_contiguous())
    std::memcpy(to, memory_of(grad), bytes);
  else
    from_blob(to, dtype, grad.shape()).copy_(grad);
}

void set_gradient(const Tensor& parameter, const void* from, double divisor) {
  Tensor owner = parameter;
  Tensor grad = parameter.grad();
  const bool in_place = may_overwrite(grad);
  if (!in_place) grad = empty(parameter.shape(), {.dtype = parameter.dtype()});
  if (grad.dtype() == kFloat32)
    divide<float>(from, grad.numel(), divisor, memory_of(grad));
  else if (grad.dtype() == kFloat64)
    divide<double>(from, grad.numel(), divisor, memory_of(grad));
  else
    grad.copy_(from_blob(const_cast<void*>(from), grad.dtype(), grad.shape()).to(kFloat32) / divisor);
  if (in_place)
    TensorImpl::of(grad)->storage->changed();
  else
    owner.set_grad(grad);
}

bool can_adopt(DType dtype, int divisor) {
  return (dtype == kFloat32 || dtype == kFloat64) && (divisor & (divisor - 1)) == 0;
}

void put_divided(const Tensor& grad, int64_t numel, DType dtype, double divisor, void* to) {
  if (!grad.defined()) return put_gradient(grad, numel, dtype, to);
  const Tensor packed = grad.contiguous();
  if (dtype == kFloat32)
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

SparseGrad add_rows(const Tensor& ids, const Tensor& values, double divisor) {
  const std::vector<int64_t> all = ids.to_vector<int64_t>();
  std::vector<int64_t> distinct = all;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<int64_t> places;
  for (const int64_t id : all)
    places.push_back(std::lower_bound(distinct.begin(), distinct.end(), id) - distinct.begin());
  Shape shape = values.shape();
  shape[0] = static_cast<int64_t>(distinct.size());
  Tensor sum = zeros(shape, {.dtype = values.dtype()});
  sum.index_add_(0, tensor(places).to(kInt64), values);
  return {tensor(distinct).to(kInt64), sum.div_(divisor)};
}

void broadcast_tensors(Channel& channel, std::span<const Tensor> tensors, int root, int rank, const char* name) {
  const NoGrad guard;
  std::vector<char> piece;
  for (size_t first = 0; first < tensors.size();) {
    size_t end = first, bytes = 0;
    const auto room = [](const Tensor& t) { return static_cast<size_t>(bytes_of(t) + 15) / 16 * 16; };
    while (end < tensors.size() && (end == first || bytes + room(tensors[end]) <= kPiece))
      bytes += room(tensors[end++]);
    piece.resize(bytes);
    const auto each = [&](auto f) {
      char* at = piece.data();
      for (size_t i = first; i < end; ++i) {
        f(tensors[i], at);
        at += room(tensors[i]);
      }
    };
    if (rank == root) each([](const Tensor& t, char* at) { put_gradient(t, t.numel(), t.dtype(), at); });
    channel.wait(channel.broadcast(piece.data(), bytes, root, name));
    if (rank != root)
      each([](Tensor t, char* at) {
        if (t.numel()) t.copy_(from_blob(at, t.dtype(), t.shape()));
      });
    first = end;
  }
}

}  // namespace reel::distributed
