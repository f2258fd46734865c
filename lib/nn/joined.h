#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/ops/rows.h"
#include "reel/ragged.h"

namespace reel::nn {

/// JoinedParts collects the sequences of calls that are made as one, each call with a part of all rows.
struct JoinedParts {
  std::vector<Tensor> parts;       // of each call
  std::vector<int64_t> rows;       // of each call
  std::vector<int64_t> lengths;    // of each sequence
  std::vector<int64_t> sequences;  // of each call

  /// Those of one more call: a list or, with its lengths, the values of a Ragged.
  void add(std::span<const Tensor> own, const Lengths* ragged) {
    parts.push_back(detail::gather_rows(own));
    rows.push_back(parts.back().size(0));
    if (ragged)
      for (int64_t i = 0; i < ragged->size(); ++i) lengths.push_back((*ragged)[i]);
    else
      for (const Tensor& part : own) lengths.push_back(part.size(0));
    sequences.push_back(ragged ? ragged->size() : static_cast<int64_t>(own.size()));
  }
  Ragged all(RowGroup* group) const { return {detail::gather_rows(parts, group), Lengths::of(lengths)}; }
};

}  // namespace reel::nn
