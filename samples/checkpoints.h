#pragma once
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "reel/reel.h"
#include "samples/common.h"

// What makes a training run survive being stopped.

/// The loss and the samples of an epoch so far; a part of checkpoints.
class EpochTotals {
 public:
  /// Of losses on this device.
  explicit EpochTotals(reel::Device device = reel::default_device())
      : loss_(reel::zeros({}, {.dtype = reel::kFloat64, .device = device})) {}
  void reset() { loss_.zero_(), samples_ = 0; }
  /// The sum of the losses of so many samples. Nothing is read before mean().
  void add(const reel::Tensor& loss, int64_t samples) { loss_ += loss.detach(), samples_ += samples; }
  /// Makes rank 0's that of all ranks, and the others' empty. All of them call it.
  void collect();
  /// Of this rank.
  double mean() const { return loss_.item<double>() / static_cast<double>(samples_); }
  int64_t samples() const { return samples_; }

  reel::StateDict state_dict() const;
  void load_state_dict(const reel::StateDict& dict);

 private:
  reel::Tensor loss_;
  int64_t samples_ = 0;
};

/// The file of --checkpoint: all that a run needs to continue where it was stopped, with the same final bits. It is
/// written after every epoch, every --checkpoint-minutes, and when SIGINT or SIGTERM come; a run finds it by itself.
/// Without --checkpoint nothing of this happens.
///
/// Of several processes all call the same, and have the same parts but for their generators and totals. Rank 0 writes,
/// and all read, so the file must be where all of them see it.
class Checkpoints {
 public:
  /// Throws if a file that the options name cannot be written: now rather than after the training. `about` is what must
  /// be the same when a run is continued, the vocabulary, say.
  Checkpoints(const CommonOptions& options, reel::io::Metadata about);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  template <reel::io::Stateful T>
  Checkpoints& add(std::string name, T& object) {
    checkpoint_.add(std::move(name), object);
    return *this;
  }
  Checkpoints& add(std::string name, EpochTotals& totals) {
    totals_ = &totals;
    return add<EpochTotals>(std::move(name), totals);
  }
  /// Loads the newest file that is not damaged, if there is one, and says so.
  void resume();
  /// To be called after every step of the optimizer; throws Stopped when a signal has come.
  void step();
  /// To be called after every epoch.
  void save();

 private:
  using Clock = std::chrono::steady_clock;
  /// The generators of all ranks.
  struct Generators {
    reel::Tensor states;  // [world, 2]
    reel::StateDict state_dict() const { return {{"states", states}}; }
    void load_state_dict(const reel::StateDict& dict);
  };

  const std::string file_;
  const std::chrono::duration<double> interval_;
  reel::io::Metadata about_;
  reel::io::Checkpoint checkpoint_;
  Generators generators_;
  EpochTotals* totals_ = nullptr;
  Clock::time_point saved_ = Clock::now();
};

/// The tensors of the model that is best on held-out data, which does not follow as the model is trained further; a
/// part of checkpoints.
class Best {
 public:
  /// Copies the dict if the score is higher than any before, and returns whether it is.
  bool keep(double score, const reel::StateDict& dict);
  const reel::StateDict& state() const { return state_; }

  reel::StateDict state_dict() const;
  void load_state_dict(const reel::StateDict& dict);

 private:
  double score_ = -std::numeric_limits<double>::infinity();
  reel::StateDict state_;
};

/// io::save of --save's file, by rank 0.
void save_model(const reel::StateDict& dict, const std::string& file, const reel::io::Metadata& metadata = {});
