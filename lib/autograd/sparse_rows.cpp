// This file collects rows of a gradient, and adds those with equal ids.
#include "lib/autograd/sparse_rows.h"

#include <algorithm>
#include <functional>

#include "lib/autograd/dense_grad.h"
#include "lib/device/device.h"

namespace reel {
namespace {

// Copies n rows behind the first `count` rows of a pack, which grows as a vector does.
void append_to(Tensor& pack, int64_t count, const View& rows, int64_t n, Device device) {
  const KernelTable& kernels = kernels_on(device);
  const int64_t capacity = pack.defined() ? pack.size(0) : 0;
  if (count + n > capacity) {
    Shape shape = rows.shape;
    shape[0] = std::max(count + n, 2 * capacity);
    Tensor larger = make_tensor(shape, rows.dtype, device);
    if (count) kernels.copy(rows_of(view_of(pack), count), rows_of(view_of(larger), count));
    pack = std::move(larger);
  }
  kernels.copy(rows, rows_of(view_of(pack), n, count));
}

}  // namespace

void SparseRows::add(const GradMetadata& target, const Tensor& ids, Tensor values, bool sparse) {
  const int64_t n = ids.numel();
  if (ids.device() != kCPU) {
    append_to(values_, count_, view_of(values), n, target.device);
    append_to(unread_ids_, unread_, view_of(ids), n, target.device);
    count_ += n, unread_ += n, sparse_ = sparse_ && sparse;
    return;
  }
  const std::span list(view_of(ids).as<const int64_t>(), static_cast<size_t>(n));
  if (!empty() || !is_writable(values)) return append(target, list, view_of(values), sparse);
  ids_.assign(list.begin(), list.end());
  values_ = std::move(values), count_ = n, sparse_ = sparse;
}

void SparseRows::append(const GradMetadata& target, std::span<const int64_t> ids, const View& values, bool sparse) {
  const auto n = static_cast<int64_t>(ids.size());
  read_ids();  // before these, since values follow one another in the order of their ids
  append_to(values_, count_, values, n, target.device);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  count_ += n, sparse_ = sparse_ && sparse;
}

// Returns the ids of all rows.
const std::vector<int64_t>& SparseRows::read_ids() {
  if (unread_) {
    const Tensor host = make_tensor({unread_}, kInt64);
    copy_between(unread_ids_.device(), rows_of(view_of(unread_ids_), unread_), kCPU, view_of(host));
    const int64_t* first = host.data<int64_t>();
    ids_.insert(ids_.end(), first, first + unread_);
    unread_ = 0;
  }
  return ids_;
}

void SparseRows::merge(const GradMetadata& target, SparseRows& other) {
  if (other.empty()) return;
  append(target, other.read_ids(), rows_of(view_of(other.values_), other.count_), other.sparse_);
}

void SparseRows::flush_into(Tensor& dense, const GradMetadata& target) {
  if (empty()) return;
  make_writable(dense, target);
  Tensor ids = unread_ids_;  // as they are, if the host has none of them
  if (unread_ != count_) ids = tensor(read_ids()).to(target.device);
  kernels_on(target.device)
      .index_add(view_of(dense), 0, rows_of(view_of(ids), count_), rows_of(view_of(values_), count_));
  clear();
}

SparseGrad SparseRows::take(Device device) {
  const std::vector<int64_t>& ids = read_ids();
  SparseGrad rows;
  if (values_.size(0) == count_ && is_writable(values_) &&
      std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end()) {
    rows = {tensor(ids, {.device = device}), std::move(values_)};  // there is nothing to add
  } else {
    const View values = rows_of(view_of(values_), count_);
    const Tensor sorted = make_tensor({count_}, kInt64, kCPU), order = make_tensor({count_}, kInt64, kCPU);
    const View unsorted = make_view(const_cast<int64_t*>(ids.data()), {count_}, {1}, kInt64);
    kernels_on(kCPU).sort(false, unsorted, view_of(sorted), view_of(order));
    std::vector<int64_t> distinct, place(ids.size());
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t id = sorted.data<int64_t>()[i];
      if (distinct.empty() || distinct.back() != id) distinct.push_back(id);
      place[static_cast<size_t>(order.data<int64_t>()[i])] = static_cast<int64_t>(distinct.size()) - 1;
    }
    Shape shape = values.shape;
    shape[0] = static_cast<int64_t>(distinct.size());
    rows = {tensor(distinct).to(device), make_zeros({values.dtype, device, shape})};
    const Tensor places = tensor(place).to(device);
    kernels_on(device).index_add(view_of(rows.values), 0, view_of(places), values);
  }
  clear();
  return rows;
}

void SparseRows::record_current_stream() const {
  for (const Tensor* pack : {&values_, &unread_ids_})
    if (pack->defined()) reel::record_current_stream(*pack);
}

}  // namespace reel
