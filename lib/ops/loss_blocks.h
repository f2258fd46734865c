// This file has losses of many elements, which are added up in blocks that stay in the caches.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lib/ops/internal.h"
#include "lib/ops/pointwise.h"
#include "reel/threads.h"

namespace reel {

/// Returns the reduced losses f(operands…) of elements of the operands, or an undefined tensor unless these are many,
/// of one shape, nothing is recorded, and the result is one number. The elements are taken in the order in which all
/// operands have them in memory, or by rows if there is none, some at a time, so that what f computes in between stays
/// in the caches.
template <class F, class... Operands>
Tensor losses_in_blocks(Reduction reduction, DType wide, const F& f, const Operands&... operands) {
  constexpr int64_t kBlock = int64_t{1} << 15;
  const View* const views[] = {&view_of(operands)...};
  const View& first = *views[0];
  if (first.numel <= kBlock || reduction == kNoReduction || reduction == kBatchMean || recording(operands...) ||
      is_tracing())
    return {};
  bool is_dense = true;
  for (const View* view : views) {
    if (!view->host || !(view->shape == first.shape)) return {};
    is_dense = is_dense && view->contiguous;
  }
  const auto order = is_dense ? std::nullopt : memory_order(first.shape, {&view_of(operands)...});
  const bool by_rows = !is_dense && !order;
  const int64_t count = by_rows ? first.shape[0] : first.numel, block = kBlock / (first.numel / count);
  if (block == 0) return {};
  const NoGrad guard;
  const auto flat = [&](const Tensor& x) { return by_rows ? x : (order ? order->apply(x) : x).reshape({first.numel}); };
  const std::array<Tensor, sizeof...(operands)> all{flat(operands)...};
  // Every thread has a block at a time. The sums are those of blocks, whatever the number of threads.
  const int64_t step = block * num_threads();
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t n = std::min(step, count - begin);
    const Tensor losses = [&]<size_t... i>(std::index_sequence<i...>) {
      return f(all[i].narrow(0, begin, n).to(wide)...).contiguous();
    }
    (std::index_sequence_for<Operands...>());
    for (int64_t at = 0; at < n; at += block)
      total += sum(losses.narrow(0, at, std::min(block, n - at))).template item<double>();
  }
  return full({}, reduction == kMean ? total / static_cast<double>(first.numel) : total, {.dtype = wide});
}

}  // namespace reel
