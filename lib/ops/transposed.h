#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "reel/tensor.h"

namespace reel::detail {

/// Weights [out, in] that many products in a row share, as [in, out]: a product of some rows need not turn the weight
/// each time, which takes as long as the product of 10 rows. For as long as nobody changes a weight but by ops:
/// those it sees by the version of the storage.
class TransposedWeights {
 public:
  TransposedWeights() = default;
  TransposedWeights(const TransposedWeights&) = delete;
  TransposedWeights& operator=(const TransposedWeights&) = delete;

  /// While it lives, linear() on this thread takes its weights from there.
  class Use {
   public:
    explicit Use(TransposedWeights& weights) : before_(std::exchange(in_use, &weights)) {}
    ~Use() { in_use = before_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    TransposedWeights* const before_;
  };

  /// For a product with so many rows: the copy, made when a weight is first seen again; nullptr where there is none,
  /// or none that would help.
  static const Tensor* find(const Tensor& weight, int64_t rows) {
    return in_use && rows >= kMinRows ? in_use->copy_of(weight) : nullptr;
  }

 private:
  // Fewer rows are faster with the weight as it is. Smaller weights are turned in no time; of larger ones products with
  // the copy would go to a library (lib/cpu/simd/gemm.cpp).
  static constexpr int64_t kMinRows = 4, kMinSize = 1 << 13, kMaxSize = 1 << 20;
  static constexpr int64_t kMaxBytes = 64 << 20;  // of all copies
  static constinit thread_local TransposedWeights* in_use;

  const Tensor* copy_of(const Tensor& weight);

  struct Known {
    Tensor held;  // keeps the memory from becoming another tensor's
    uint32_t version;
    Tensor copy;
  };
  std::vector<Known> known_;
  int64_t bytes_ = 0;
};

}  // namespace reel::detail
