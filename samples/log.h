#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "reel/tensorboard.h"
#include "samples/common.h"

/// The curves of --log, over epochs; without it nothing is written.
class Log {
 public:
  /// After checkpoints have been resumed: so many epochs are `done`, and what the log has of later ones is hidden. A
  /// `part` of a run, such as a fold, has curves of its own.
  Log(const CommonOptions& options, int64_t done, const std::string& part = "") {
    if (options.log.empty()) return;
    reel::tensorboard::SummaryWriterOptions how{.rank = reel::distributed::rank()};
    if (done > 0) how.purge_step = done + 1;
    writer_.emplace(std::filesystem::path(options.log) / part, how);
  }
  void add(const std::map<std::string, double>& values, int64_t epoch) {
    if (!writer_) return;
    for (const auto& [tag, value] : values) writer_->add_scalar(tag, value, epoch);
  }

 private:
  std::optional<reel::tensorboard::SummaryWriter> writer_;
};
