// This file packs factors of products and multiplies the packs.
#include "lib/autograd/deferred_gemm.h"

#include <algorithm>
#include <array>
#include <span>

#include "lib/autograd/dense_grad.h"
#include "lib/autograd/tape.h"
#include "lib/device/kernels/gemm.h"

namespace reel {
namespace {

constexpr int64_t kMaxRows = 512;      // of a pack
constexpr int64_t kMinRowsOnGpu = 16;  // which a GPU multiplies in about the time of one

int64_t capacity_of(const GradMetadata& target) {
  const int64_t row_bytes = std::max<int64_t>((target.shape[0] + target.shape[1]) * size_of(target.dtype), 1);
  return std::clamp<int64_t>(kMaxPackBytes / row_bytes, 8, kMaxRows);
}

// Returns true if x may alias a parameter, which a hook may change before the deferred product is computed.
bool may_change(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  if (impl->in_place == InPlace::kSaved) return false;  // only of a parameter is the view itself saved
  return impl->in_place != InPlace::kRecorded || (impl->base ? impl->base : impl)->requires_grad;
}

uint32_t version_of(const Tensor& x) { return TensorImpl::of(x)->storage->version.load(std::memory_order_relaxed); }

}  // namespace

void add_gemm(Tensor& dense, const GradMetadata& target, const View& g, const View& x, const Tensor& column_sums) {
  double beta = 1;
  if (!dense.defined()) {
    dense = make_tensor(target.shape, target.dtype, target.device);
    beta = 0;
  } else {
    make_writable(dense, target);
  }
  const int64_t out = g.shape[1], in = x.shape[1];
  kernels_on(target.device)
      .gemm({.dtype = target.dtype,
             .trans_a = true,
             .m = out,
             .n = in,
             .k = g.shape[0],
             .a = g.data,
             .lda = out,
             .b = x.data,
             .ldb = in,
             .c = view_of(dense).data,
             .ldc = in,
             .beta = beta,
             .a_sums = column_sums.defined() ? view_of(column_sums).data : nullptr});
}

DeferredGemm::Factor::Factor(const Tensor& t) : tensor(t), version(version_of(t)) {}

const View& DeferredGemm::Factor::view() const {
  REEL_CHECK(version_of(tensor) == version, "backward: a tensor of shape ", tensor.shape(),
             " was changed in place before the gradient of a weight that it was multiplied by was complete");
  return view_of(tensor);
}

int64_t DeferredGemm::min_rows_of_gemm(const GradMetadata& target) {
  const int64_t capacity = capacity_of(target);
  return target.device == kCPU ? capacity / 4 : std::min(kMinRowsOnGpu, capacity);
}

void DeferredGemm::add(Tensor& dense, const GradMetadata& target, const Tensor& g, const Tensor& x) {
  const int64_t n = view_of(g).shape[0];
  if (rows() + n > capacity_of(target)) flush_into(dense, target);
  if (!is_small_on_gpu(g) || !is_small_on_gpu(x) || may_change(g) || may_change(x))
    return append_now(target, view_of(g), view_of(x));
  if (unpacked_.size() == kMaxSmallTensors) pack(target);
  unpacked_.push_back({Factor(g), Factor(x)});
  unpacked_rows_ += n;
}

// Makes room for the rows of g and x at the ends of the packs, and says in `copies` what is to be copied there.
void DeferredGemm::append(const GradMetadata& target, const View& g, const View& x, BlockCopy* copies) {
  if (!x_pack_.defined()) {
    g_pack_ = make_tensor({capacity_of(target), target.shape[0]}, target.dtype, target.device);
    x_pack_ = make_tensor({capacity_of(target), target.shape[1]}, target.dtype, target.device);
  }
  const auto copy = [&](const View& from, const Tensor& pack) {
    char* const end = view_of(pack).as<char>() + packed_rows_ * from.shape[1] * size_of(from.dtype);
    return whole_copy(from.data, from.dtype, end, from.dtype, from.numel);
  };
  copies[0] = copy(g, g_pack_), copies[1] = copy(x, x_pack_);
  packed_rows_ += g.shape[0];
}

void DeferredGemm::append_now(const GradMetadata& target, const View& g, const View& x) {
  std::array<BlockCopy, 2> copies;
  append(target, g, x, copies.data());
  kernels_on(target.device).copy_blocks(copies);
}

void DeferredGemm::pack(const GradMetadata& target) {
  if (unpacked_.empty()) return;
  std::array<BlockCopy, 2 * kMaxSmallTensors> copies;
  size_t count = 0;
  for (const Product& p : unpacked_) {
    append(target, p.g.view(), p.x.view(), &copies[count]);
    count += 2;
  }
  kernels_on(target.device).copy_blocks(std::span(copies).first(count));
  unpacked_.clear(), unpacked_rows_ = 0;
}

void DeferredGemm::merge(Tensor& dense, const GradMetadata& target, DeferredGemm& other) {
  if (!other.packed_rows_) return;
  if (!g_pack_.defined()) {
    std::swap(g_pack_, other.g_pack_), std::swap(x_pack_, other.x_pack_), std::swap(packed_rows_, other.packed_rows_);
    return;
  }
  if (rows() + other.packed_rows_ > capacity_of(target)) flush_into(dense, target);
  append_now(target, rows_of(view_of(other.g_pack_), other.packed_rows_),
             rows_of(view_of(other.x_pack_), other.packed_rows_));
}

void DeferredGemm::flush_into(Tensor& dense, const GradMetadata& target) {
  if (!packed_rows_ && unpacked_.size() == 1) {  // there is nothing to pack it with
    const Product p = std::move(unpacked_[0]);
    unpacked_.clear(), unpacked_rows_ = 0;
    return add_gemm(dense, target, p.g.view(), p.x.view());
  }
  pack(target);
  if (!packed_rows_) return;
  add_gemm(dense, target, rows_of(view_of(g_pack_), packed_rows_), rows_of(view_of(x_pack_), packed_rows_));
  packed_rows_ = 0;
}

void DeferredGemm::record_current_stream() const {
  if (!x_pack_.defined()) return;
  reel::record_current_stream(g_pack_), reel::record_current_stream(x_pack_);
}

}  // namespace reel
