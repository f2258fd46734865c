#include <algorithm>
#include <cstring>
#include <memory>

#include "lib/distributed/reducer.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"

// Whether the ranks still train the same model. Nothing but this would notice an optimizer with other options on one
// rank, a step that it has left out, or one that it has made with gradients of its own.
namespace reel::distributed {
namespace {

constexpr int kSamples = 32;  // elements of a round

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Where a NaN comes from is written in its bits, and may differ.
uint64_t without_payload(uint64_t bits, DType dtype) {
  const auto nan = [bits](uint64_t infinity, uint64_t fraction) {
    return (bits & infinity) == infinity && (bits & fraction) ? infinity | 1 : bits;
  };
  switch (dtype) {
    case kFloat16: return nan(0x7c00, 0x3ff);
    case kBFloat16: return nan(0x7f80, 0x7f);
    case kFloat32: return nan(0x7f800000, 0x7fffff);
    case kFloat64: return nan(0x7ff0000000000000, 0xfffffffffffff);
    default: return bits;
  }
}

// The bits of an element, counted in row-major order.
uint64_t element(const View& view, int64_t index) {
  int64_t at = index;
  if (!view.contiguous) {
    at = 0;
    for (int d = view.shape.size(); d-- > 0; index /= view.shape[d]) at += index % view.shape[d] * view.strides[d];
  }
  const auto size = static_cast<size_t>(size_of(view.dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(view.data) + at * static_cast<int64_t>(size), size);
  return without_payload(bits, view.dtype);
}

uint64_t hash_of(const Tensor& tensor) {
  const Tensor all = tensor.detach().to(kCPU).contiguous();
  const View& view = view_of(all);
  uint64_t hash = 0;
  for (int64_t i = 0; i < view.numel; ++i) hash = mix(hash ^ element(view, i));
  return hash;
}

}  // namespace

float DistributedDataParallel::Impl::sample_weights() const {
  const auto round = static_cast<uint64_t>(step_ % kSteps), n = static_cast<uint64_t>(parameters.size());
  uint64_t hash = 0;
  for (uint64_t i = round * kSamples; i < (round + 1) * kSamples; ++i) {
    const Tensor& parameter = parameters[i % n].second;
    if (parameter.numel() == 0 || parameter.device() != kCPU) continue;
    hash = mix(hash ^
               element(view_of(parameter), static_cast<int64_t>(mix(i) % static_cast<uint64_t>(parameter.numel()))));
  }
  return static_cast<float>(hash % kSampleRange + 1);
}

void DistributedDataParallel::Impl::explain_weights(const std::vector<int>& active) {
  const size_t n = parameters.size(), ranks = static_cast<size_t>(world), self = static_cast<size_t>(rank);
  std::vector<uint64_t> hashes(n * ranks);
  for (size_t i = 0; i < n; ++i) hashes[self * n + i] = hash_of(parameters[i].second);
  const std::vector<size_t> bytes(ranks, n * sizeof(uint64_t));
  channel->wait(
      channel->all_gather(&hashes[self * n], hashes.data(), bytes, "DistributedDataParallel: comparison of weights"));
  const auto base = static_cast<size_t>(active.front());
  std::string message = detail::concat("DistributedDataParallel: weights differ between the ranks in step ", step_);
  std::vector<int> others;
  for (size_t i = 0; i < n && others.empty(); ++i) {
    std::string names;
    for (const int r : active) {
      if (hashes[static_cast<size_t>(r) * n + i] == hashes[base * n + i]) continue;
      others.push_back(group.ranks()[static_cast<size_t>(r)]);
      names += detail::concat(names.empty() ? "" : ", ", "rank ", others.back());
    }
    if (others.empty()) continue;
    message += detail::concat(": ", parameters[i].first, " of ", names, " is not that of rank ", group.ranks()[base]);
  }
  std::sort(others.begin(), others.end());
  message +=
      "; all ranks have to make the same steps, with the same optimizers (join() brings the state of one along if "
      "it is told), on processors that all have AVX2, or with REEL_CPU=baseline; set check_weights = false if "
      "they differ on purpose";
  throw Error(Error::kMismatch, message, others);
}

}  // namespace reel::distributed
