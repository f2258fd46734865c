#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "lib/distributed/engine.h"
#include "lib/distributed/reducer.h"
#include "reel/ops.h"

// How gradients of rows travel: over the host's memory, since how many there are differs by rank.
namespace reel::distributed {
namespace {

/// Those of a parameter that one rank has sent: the ids, then the values, which end at a multiple of 8 bytes.
struct Rows {
  const int64_t* ids;
  const char* values;
  int64_t count;
};

int64_t row_size(const Tensor& parameter) { return parameter.numel() / std::max<int64_t>(parameter.size(0), 1); }
int64_t row_bytes(const Tensor& parameter) { return row_size(parameter) * size_of(parameter.dtype()); }
int64_t value_bytes(const Tensor& parameter, int64_t count) { return (count * row_bytes(parameter) + 7) / 8 * 8; }

/// The rows of all ranks as one gradient: distinct sorted ids, whose values are added in the order of the ranks and
/// divided. On the CPU.
SparseGrad add_rows(const Tensor& parameter, std::span<const Rows> ranks, int divisor) {
  std::vector<std::pair<int64_t, const void*>> all;  // an id, its values
  for (const Rows& rows : ranks)
    for (int64_t k = 0; k < rows.count; ++k) all.emplace_back(rows.ids[k], rows.values + k * row_bytes(parameter));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Shape shape = parameter.shape();
  shape[0] = 0;
  for (size_t i = 0; i < all.size(); ++i) shape[0] += i == 0 || all[i].first != all[i - 1].first;
  const SparseGrad sum{empty({shape[0]}, {.dtype = kInt64, .device = kCPU}),
                       empty(shape, {.dtype = parameter.dtype(), .device = kCPU})};
  int64_t* id = sum.ids.data<int64_t>();
  char* value = static_cast<char*>(memory_of(sum.values));
  std::vector<const void*> parts;
  for (size_t i = 0; i < all.size(); value += row_bytes(parameter)) {
    *id++ = all[i].first;
    parts.clear();
    for (const int64_t of = all[i].first; i < all.size() && all[i].first == of; ++i) parts.push_back(all[i].second);
    reduce_parts(parts, row_size(parameter), parameter.dtype(), ReduceOp::kSum, value);
    if (divisor != 1) divide(value, row_size(parameter), parameter.dtype(), divisor);
  }
  return sum;
}

}  // namespace

// Sends how many rows of each sparse parameter this rank has.
void DistributedDataParallel::Impl::count_rows(bool active) {
  const size_t n = parameters.size(), own = n * static_cast<size_t>(rank);
  if (std::find(sparse_.begin(), sparse_.end(), 1) == sparse_.end()) return;
  row_counts_.assign(n * static_cast<size_t>(world), 0);
  for (size_t i = 0; i < n && active; ++i) {
    if (!sparse_[i]) continue;
    const Tensor& parameter = parameters[i].second;
    if (const SparseGrad* const rows = parameter.sparse_grad())
      row_counts_[own + i] = rows->ids.numel();
    else if (parameter.grad().defined())
      row_counts_[own + i] = kAllRows;
  }
  const std::vector<size_t> bytes(static_cast<size_t>(world), n * sizeof(int64_t));
  counts_ticket_ =
      channel->all_gather(&row_counts_[own], row_counts_.data(), bytes, "DistributedDataParallel: numbers of rows");
}

// Exchanges the rows themselves; of a parameter that is dense on some rank all of it.
void DistributedDataParallel::Impl::receive_rows(const Verdict& verdict, bool active) {
  if (std::find(sparse_.begin(), sparse_.end(), 1) == sparse_.end()) return;
  channel->wait(counts_ticket_);
  std::vector<uint32_t> slots;
  for (uint32_t i = 0; i < parameters.size(); ++i)
    if (sparse_[i] && verdict.used[i]) slots.push_back(i);
  const size_t n = slots.size(), ranks = static_cast<size_t>(world), self = static_cast<size_t>(rank);
  const auto count_of = [&](size_t r, size_t i) { return row_counts_[r * parameters.size() + slots[i]]; };

  std::vector<uint8_t> dense(n, 0);
  std::vector<size_t> bytes(ranks, 0);
  size_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    const Tensor& parameter = parameters[slots[i]].second;
    const int64_t all = parameter.dim() ? parameter.size(0) : 0;
    for (size_t r = 0; r < ranks; ++r) {
      const int64_t count = count_of(r, i);
      if (count < kAllRows || count > all)
        throw Error(Error::kMismatch, detail::concat("DistributedDataParallel: rank ", group.ranks()[r], " has ", count,
                                                     " of ", all, " rows of ", parameters[slots[i]].first));
      dense[i] |= count == kAllRows;
    }
  }
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < n; ++i) {
      const Tensor& parameter = parameters[slots[i]].second;
      const int64_t count = dense[i] ? 0 : count_of(r, i);
      bytes[r] += static_cast<size_t>(count) * sizeof(int64_t) + static_cast<size_t>(value_bytes(parameter, count));
    }
    total += bytes[r];
  }

  // Of each rank the rows of one parameter, then of the next.
  const Tensor gathered = empty({static_cast<int64_t>(total)}, {.dtype = kUInt8, .device = kCPU});
  char* const all = static_cast<char*>(memory_of(gathered));
  char* const own = all + std::accumulate(bytes.begin(), bytes.begin() + rank, size_t{0});
  char* to = own;
  const auto append = [&](const Tensor& values) {
    const Tensor packed = values.contiguous().to(kCPU);
    const size_t size = static_cast<size_t>(packed.numel() * size_of(packed.dtype()));
    if (size) std::memcpy(to, memory_of(packed), size);
    const size_t padding = (8 - size % 8) % 8;
    std::memset(to + size, 0, padding);
    to += size + padding;
  };
  for (size_t i = 0; i < n; ++i) {
    if (dense[i] || count_of(self, i) == 0) continue;
    const SparseGrad* const rows = parameters[slots[i]].second.sparse_grad();
    append(rows->ids), append(rows->values);
  }
  if (total) channel->wait(channel->all_gather(own, all, bytes, "DistributedDataParallel: rows"));

  std::vector<const char*> from(ranks);
  size_t offset = 0;
  for (size_t r = 0; r < ranks; offset += bytes[r++]) from[r] = all + offset;
  for (size_t i = 0; i < n; ++i) {
    const auto& [path, parameter] = parameters[slots[i]];
    if (dense[i]) {
      const Tensor flat = empty({parameter.numel()}, {.dtype = parameter.dtype(), .device = parameter.device()});
      put_gradient(active ? parameter.grad() : Tensor(), flat, 0, parameter.numel());
      channel->wait(channel->all_reduce(flat, ReduceOp::kSum, "DistributedDataParallel: dense rows"));
      if (active) set_gradient(parameter, flat, 0, verdict.divisor);
      continue;
    }
    std::vector<Rows> rows;
    for (size_t r = 0; r < ranks; ++r) {
      const int64_t count = count_of(r, i);
      const auto* const ids = reinterpret_cast<const int64_t*>(from[r]);
      const char* const values = from[r] + static_cast<size_t>(count) * sizeof(int64_t);
      for (int64_t k = 0; k < count; ++k)
        if (ids[k] < 0 || ids[k] >= parameter.size(0))
          throw Error(Error::kMismatch, detail::concat("DistributedDataParallel: rank ", group.ranks()[r], " has row ",
                                                       ids[k], " of ", parameter.size(0), " of ", path));
      rows.push_back({ids, values, count});
      from[r] = values + value_bytes(parameter, count);
    }
    if (!active) continue;
    const SparseGrad sum = add_rows(parameter, rows, static_cast<int>(verdict.divisor));
    set_grad_rows(parameter, {sum.ids.to(parameter.device()), sum.values.to(parameter.device())});
  }
}

}  // namespace reel::distributed
