#pragma once
// What the sides of bench/nets.cpp share: the input of Kim's net, and the losses before the first step (mlp.mnist: of
// the first ten batches), which are the same in every library.
#include "bench/bench.h"

namespace bench {

constexpr double kSeedLoss = 226.907, kMnistLoss = 2.329267, kLenetLoss = 2.303381, kKimLoss = 1.610568,
                 kTransformerLoss = 0.334750;

/// The parameters of the Transformer's layer are uniform in ± the bound, each from a seed of its own.
constexpr float kTransformerBound = 0.05f;
inline uint64_t seed_of(const std::string& name) {
  uint64_t seed = 0;
  for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
  return seed;
}

namespace kim {
constexpr int kBatch = 50, kLength = 60, kWords = 16000;
inline std::vector<int64_t> words() {
  Random random(5);
  std::vector<int64_t> ids(kBatch * kLength);
  for (int64_t& id : ids) id = random.below(kWords);
  return ids;
}
}  // namespace kim

}  // namespace bench
