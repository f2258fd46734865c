#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "reel/progress.h"
#include "samples/ranks.h"

/// Rank 0's bar. Each process does a share of the work: `total` and `before` are those of this one.
inline reel::ProgressBar progress_bar(std::string title, int64_t total, std::string unit, int64_t before) {
  return reel::ProgressBar({.title = std::move(title),
                            .total = total,
                            .unit = std::move(unit),
                            .initial = before,
                            .rank = reel::distributed::rank(),
                            .processes = reel::distributed::world_size()});
}
