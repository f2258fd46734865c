#pragma once
#include <cstdint>
#include <span>
#include <utility>

#include "reel/reel.h"

/// Digits as a seven-segment display shows them, but shifted, slanted, scaled and noisy: what the sample learns from
/// when it is given no files. A data set like data::Mnist: sample i is an image [1, 28, 28] and its label.
class Digits {
 public:
  Digits(int64_t count, uint64_t seed);
  int64_t size() const { return labels_.numel(); }
  std::pair<reel::Tensor, int64_t> get(int64_t i) const { return {images_[i], labels_[i].item<int64_t>()}; }
  std::pair<reel::Tensor, reel::Tensor> get_batch(std::span<const int64_t> indices) const {
    const reel::Tensor ids = reel::tensor(indices);
    return {index_select(images_, 0, ids), index_select(labels_, 0, ids)};
  }

 private:
  reel::Tensor images_, labels_;
};
