#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/ops/rows.h"
#include "reel/ragged.h"

namespace reel::nn {

/// The sequences of calls that are made as one.
struct JoinedParts {
  std::vector<Tensor> parts;       // sequences or, of a Ragged, all of its rows
  std::vector<int64_t> rows;       // of each part
  std::vector<int64_t> lengths;    // of each sequence
  std::vector<int64_t> sequences;  // of each call

  /// Those of one more call: a list or, with its lengths, the values of a Ragged.
  void add(std::span<const Tensor> own, const Lengths* ragged) {
    for (const Tensor& part : own) parts.push_back(part), rows.push_back(part.size(0));
    const auto count = static_cast<int64_t>(own.size());
    if (ragged)
      for (int64_t i = 0; i < ragged->size(); ++i) lengths.push_back((*ragged)[i]);
    else
      lengths.insert(lengths.end(), rows.end() - count, rows.end());
    sequences.push_back(ragged ? ragged->size() : count);
  }
  Ragged all() const { return {detail::gather_rows(parts), Lengths::of(lengths)}; }
};

}  // namespace reel::nn
