#include "reel/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reel/data/loader.h"
#include "reel/random.h"

// What the data sets of the headers need that is no template: random orders and the lengths of splits.
namespace reel::data::detail {

std::vector<int64_t> random_order(int64_t n, uint64_t seed) {
  const SampleScope scope(seed);
  return randperm(n, {.device = kCPU}).to_vector<int64_t>();
}

std::vector<int64_t> part_lengths(int64_t n, const std::vector<Scalar>& shares) {
  std::vector<int64_t> lengths;
  double sum = 0;
  for (const Scalar& share : shares) sum += share.to<double>();
  const auto is_fraction = [](const Scalar& share) { return share.is_floating_point(); };
  if (std::any_of(shares.begin(), shares.end(), is_fraction)) {
    REEL_CHECK(std::abs(sum - 1) < 1e-6, "random_split: the fractions add up to ", sum, ", not to 1");
    for (const Scalar& share : shares) {
      REEL_CHECK(share.to<double>() >= 0, "random_split: a fraction is ", share.to<double>());
      lengths.push_back(static_cast<int64_t>(
          std::floor(share.to<double>() * static_cast<double>(n) + 1e-9)));  // 0.29 * 100 is 28.999…
    }
    // What rounding has left over goes to the parts in turn, one sample each, as in PyTorch.
    int64_t left = n - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    for (size_t i = 0; left > 0; i = (i + 1) % lengths.size(), --left) ++lengths[i];
  } else {
    for (const Scalar& share : shares) {
      lengths.push_back(share.to<int64_t>());
      REEL_CHECK(lengths.back() >= 0 && lengths.back() <= n, "random_split: a length is ", lengths.back(), ", of ", n,
                 " samples");
    }
    REEL_CHECK(sum == static_cast<double>(n), "random_split: the lengths add up to ", sum, ", not to the ", n,
               " samples");
  }
  return lengths;
}

void check_index(int64_t index, int64_t size) {
  REEL_CHECK(index >= 0 && index < size, "dataset: index ", index, " of ", size, " samples");
}

}  // namespace reel::data::detail
