#pragma once
// What the samples use of reel::distributed: started by reel-run -n 2, two processes train one model. A build without
// it has a world of one.
#ifdef REEL_SAMPLES_DISTRIBUTED
#include "reel/distributed.h"
#else
#include "reel/reel.h"

namespace reel::distributed {

inline int rank() { return 0; }
inline int local_rank() { return 0; }
inline int world_size() { return 1; }
inline void barrier() {}
inline void all_reduce(const Tensor&) {}
inline Tensor all_gather(const Tensor& in) { return in.unsqueeze(0); }

struct DistributedDataParallel {
  explicit DistributedDataParallel(nn::Module&) {}
};

struct SamplerOptions {
  uint64_t seed = 0;
};
struct DistributedSampler : data::DistributedSampler {
  explicit DistributedSampler(int64_t size, SamplerOptions options)
      : data::DistributedSampler(size, {.seed = options.seed}) {}
};

}  // namespace reel::distributed
#endif
