// This file packs small gradients and adds the packs.
#include "lib/autograd/small_sums.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "lib/autograd/dense_grad.h"
#include "lib/autograd/tape.h"
#include "lib/base/per_thread.h"
#include "lib/device/kernels/copy.h"
#include "lib/device/kernels/enums.h"

namespace reel {
namespace {

// Up to so many tensors are added one by one, which costs no more.
constexpr size_t kFewAddends = 2, kFewRows = 3;

// Returns contiguous tensors as one, of this shape.
Tensor packed(std::span<const Tensor> parts, const Shape& shape) {
  const Tensor whole = make_tensor(shape, parts[0].dtype(), parts[0].device());
  std::array<BlockCopy, kMaxSmallTensors + 1> copies;
  auto* to = static_cast<char*>(view_of(whole).data);
  for (size_t i = 0; i < parts.size(); ++i) {
    const View& part = view_of(parts[i]);
    copies[i] = whole_copy(part.data, part.dtype, to, part.dtype, part.numel);
    to += part.numel * size_of(part.dtype);
  }
  kernels_of(whole).copy_blocks(std::span(copies).first(parts.size()));
  return whole;
}

}  // namespace

void SmallSums::add(Tensor& dense, Tensor g) {
  if (addends_.size() == kMaxSmallTensors) flush_addends_into(dense);
  addends_.push_back(std::move(g));
}

void SmallSums::add_rows(Tensor& dense, const GradMetadata& target, const Tensor& ids, Tensor values) {
  if (row_ids_.size() == kMaxSmallTensors) flush_rows_into(dense, target);
  row_ids_.push_back(ids), row_values_.push_back(std::move(values));
}

void SmallSums::flush_addends_into(Tensor& dense) {
  if (addends_.empty()) return;
  if (dense.defined() && addends_.size() <= kFewAddends) {
    for (const Tensor& g : addends_) add_dense(dense, g);
  } else {
    if (dense.defined()) addends_.push_back(dense.contiguous());
    const int64_t numel = view_of(addends_[0]).numel;
    const Tensor rows = packed(addends_, {static_cast<int64_t>(addends_.size()), numel});
    Tensor total = make_tensor(addends_[0].shape(), rows.dtype(), rows.device());
    kernels_of(rows).reduce(ReduceOp::kSum, view_of(rows),
                            make_view(view_of(total).data, {1, numel}, {numel, 1}, rows.dtype()));
    dense = std::move(total);
  }
  addends_.clear();
}

void SmallSums::flush_rows_into(Tensor& dense, const GradMetadata& target) {
  if (row_ids_.empty()) return;
  const KernelTable& kernels = kernels_on(target.device);
  const View& whole = view_of(make_writable(dense, target));
  if (row_ids_.size() <= kFewRows) {
    for (size_t i = 0; i < row_ids_.size(); ++i)
      kernels.index_add(whole, 0, view_of(row_ids_[i]), view_of(row_values_[i]));
  } else {
    Shape shape = row_values_[0].shape();
    shape[0] = 0;
    for (const Tensor& ids : row_ids_) shape[0] += view_of(ids).numel;
    const Tensor ids = packed(row_ids_, {shape[0]}), values = packed(row_values_, shape);
    kernels.index_add(whole, 0, view_of(ids), view_of(values));
  }
  row_ids_.clear(), row_values_.clear();
}

// ---- of several outputs
// -----------------------------------------------------------------------------------------------

void sum_small_outputs(std::span<NodeOutput> outputs) {
  constexpr size_t kMinSums = 3;
  if (outputs[0].metadata.device == kCPU) return;
  size_t sums = 0, rounds = 0;
  int64_t numel = 0;
  const NodeOutput* first = nullptr;
  for (const NodeOutput& output : outputs) {
    const Tensor& dense = output.grad.dense();
    if (!dense.defined()) continue;
    if (!first) first = &output;
    if (output.metadata.dtype != first->metadata.dtype || !view_of(dense).contiguous) return;
    const size_t addends = output.grad.small_addends().size();
    if (addends == 0 && output.grad.has_pending()) return;
    sums += addends > 0, rounds = std::max(rounds, addends), numel += view_of(dense).numel;
  }
  if (sums < kMinSums) return;
  const DType dtype = first->metadata.dtype;
  const Tensor whole = make_tensor({numel}, dtype, first->metadata.device);
  static constinit thread_local PerThread<std::vector<BlockCopy>> kept;  // for its capacity
  std::vector<BlockCopy>& blocks = *kept;
  for (size_t round = 0; round < rounds; ++round) {
    blocks.clear();
    auto* to = static_cast<char*>(view_of(whole).data);
    for (const NodeOutput& output : outputs) {
      const Tensor& dense = output.grad.dense();
      if (!dense.defined()) continue;
      const std::span<const Tensor> addends = output.grad.small_addends();
      const int64_t count = view_of(dense).numel;
      if (round == 0 || round < addends.size()) {
        blocks.push_back(whole_copy(round == 0 ? view_of(dense).data : to, dtype, to, dtype, count));
        if (round < addends.size()) blocks.back().addend = view_of(addends[round]).data;
      }
      to += count * size_of(dtype);
    }
    kernels_of(whole).copy_blocks(blocks);
  }
  auto* part = static_cast<char*>(view_of(whole).data);
  for (NodeOutput& output : outputs) {
    if (!output.grad.dense().defined()) continue;
    const Shape& shape = output.metadata.shape;
    output.grad.replace_all(alias(whole, part, shape, contiguous_strides(shape)));
    part += shape.numel() * size_of(dtype);
  }
}

}  // namespace reel
