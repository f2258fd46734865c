#include "reel/data/bptt.h"

#include <algorithm>

#include "reel/data/dataset.h"
#include "reel/ops/rearrange.h"

namespace reel::data {

BpttDataset::BpttDataset(Tensor tokens, BpttOptions options) : tokens_(std::move(tokens)), options_(options) {
  REEL_CHECK(tokens_.defined(), "BpttDataset: the tensor is undefined");
  REEL_CHECK(tokens_.dim() == 1 && !tokens_.is_floating_point() && tokens_.dtype() != kBool,
             "BpttDataset: expected integers [n], got ", tokens_.dtype(), " ", tokens_.shape());
  REEL_CHECK(options.batch_size > 0 && options.steps > 0, "BpttDataset: batch_size ", options.batch_size, ", steps ",
             options.steps);
  REEL_CHECK(tokens_.numel() > options.batch_size, "BpttDataset: ", tokens_.numel(), " tokens, too few for ",
             options.batch_size, " sequences");
  tokens_ = tokens_.contiguous();
  length_ = (tokens_.numel() - 1) / options.batch_size;
}

int64_t BpttDataset::size() const { return (length_ + options_.steps - 1) / options_.steps; }

std::pair<Tensor, Tensor> BpttDataset::get(int64_t i) const {
  detail::check_index(i, size());
  const int64_t first = i * options_.steps, steps = std::min(options_.steps, length_ - first);
  const auto part = [&](int64_t shift) {  // a row for each sequence, then a column
    const Tensor rows = tokens_.narrow(0, shift, length_ * options_.batch_size).view({options_.batch_size, length_});
    return rows.narrow(1, first, steps).transpose(0, 1).contiguous().to(kInt64);
  };
  return {part(0), part(1)};
}

}  // namespace reel::data
