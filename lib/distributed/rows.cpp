#include <algorithm>
#include <cstring>

#include "lib/distributed/reducer.h"
#include "lib/distributed/text.h"
#include "reel/ops.h"

// How gradients of rows travel: over the host's memory, since how many there are differs by rank.
namespace reel::distributed {

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
        throw Error(Error::kMismatch, concat("DistributedDataParallel: rank ", group.ranks()[r], " has ", count, " of ",
                                             all, " rows of ", parameters[slots[i]].first));
      dense[i] |= count == kAllRows;
    }
  }
  const auto row_bytes = [&](const Tensor& p) {
    return static_cast<size_t>(p.numel() / std::max<int64_t>(p.size(0), 1) * size_of(p.dtype()));
  };
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < n; ++i)
      if (!dense[i])
        bytes[r] += static_cast<size_t>(count_of(r, i)) * (sizeof(int64_t) + row_bytes(parameters[slots[i]].second));
    total += bytes[r];
  }

  // Of each rank the ids and the values of one parameter, then of the next.
  std::vector<char> own(bytes[self]), gathered(total);
  char* to = own.data();
  const auto append = [&](const Tensor& values) {
    const Tensor packed = values.contiguous().to(kCPU);
    const size_t size = static_cast<size_t>(packed.numel() * size_of(packed.dtype()));
    if (size) std::memcpy(to, memory_of(packed), size);
    to += size;
  };
  for (size_t i = 0; i < n; ++i) {
    if (dense[i] || count_of(self, i) == 0) continue;
    const SparseGrad* const rows = parameters[slots[i]].second.sparse_grad();
    append(rows->ids), append(rows->values);
  }
  if (total) channel->wait(channel->all_gather(own.data(), gathered.data(), bytes, "DistributedDataParallel: rows"));

  std::vector<const char*> from(ranks);
  size_t offset = 0;
  for (size_t r = 0; r < ranks; offset += bytes[r++]) from[r] = gathered.data() + offset;
  for (size_t i = 0; i < n; ++i) {
    const auto& [path, parameter] = parameters[slots[i]];
    if (dense[i]) {
      const Tensor flat = empty({parameter.numel()}, {.dtype = parameter.dtype(), .device = parameter.device()});
      put_gradient(active ? parameter.grad() : Tensor(), flat, 0, parameter.numel());
      channel->wait(channel->all_reduce(flat, ReduceOp::kSum, "DistributedDataParallel: dense rows"));
      if (active) set_gradient(parameter, flat, 0, verdict.divisor);
      continue;
    }
    int64_t rows = 0;
    for (size_t r = 0; r < ranks; ++r) rows += count_of(r, i);
    Shape shape = parameter.shape();
    shape[0] = rows;
    const Tensor ids = empty({rows}, {.dtype = kInt64, .device = kCPU});
    const Tensor values = empty(shape, {.dtype = parameter.dtype(), .device = kCPU});
    int64_t* id = ids.data<int64_t>();
    char* value = static_cast<char*>(memory_of(values));
    for (size_t r = 0; r < ranks; ++r) {
      const size_t count = static_cast<size_t>(count_of(r, i));
      if (!count) continue;
      std::memcpy(id, from[r], count * sizeof(int64_t));
      std::memcpy(value, from[r] + count * sizeof(int64_t), count * row_bytes(parameter));
      for (size_t k = 0; k < count; ++k)
        if (id[k] < 0 || id[k] >= parameter.size(0))
          throw Error(Error::kMismatch, concat("DistributedDataParallel: rank ", group.ranks()[r], " has row ", id[k],
                                               " of ", parameter.size(0), " of ", path));
      id += count, value += count * row_bytes(parameter);
      from[r] += count * (sizeof(int64_t) + row_bytes(parameter));
    }
    if (!active) continue;
    const SparseGrad sum = add_rows(ids, values, verdict.divisor);
    set_grad_rows(parameter, {sum.ids.to(parameter.device()), sum.values.to(parameter.device())});
  }
}

}  // namespace reel::distributed
