#pragma once
#include <cstdint>

#include "reel/data/sampler.h"
#include "reel/distributed/group.h"

#pragma GCC visibility push(default)
/// A sampler of this rank's share of a data set.
namespace reel::distributed {

/// Options of `DistributedSampler`.
struct DistributedSamplerOptions {
  bool shuffle = true;     ///< A new order in every epoch.
  bool drop_last = false;  ///< Cut the order instead of padding it.
  uint64_t seed = 0;       ///< Must be the same on all ranks.
};
/// A data::DistributedSampler of this rank's share: its rank and world size are rank() and world_size() of the job.
class DistributedSampler : public data::DistributedSampler {
 public:
  /// Of so many samples in all.
  explicit DistributedSampler(int64_t size, DistributedSamplerOptions options = {})
      : data::DistributedSampler(size, {.rank = distributed::rank(),
                                        .world_size = distributed::world_size(),
                                        .shuffle = options.shuffle,
                                        .drop_last = options.drop_last,
                                        .seed = options.seed}) {}
};

}  // namespace reel::distributed
#pragma GCC visibility pop
