#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "reel/state_dict.h"

// What the samples with a command line share.

/// Options that all of them have; a sample derives its own from these.
struct CommonOptions {
  std::string data, save, load, device = "cpu";
  bool evaluate = false;
  int epochs = 10, batch = 1;
  double lr = 1e-3;
  uint64_t seed = 1;
};

/// Adds them to the command line. `things` is what the sample trains on, "images".
inline void add_common_options(CLI::App& app, CommonOptions& o, const std::string& things) {
  app.option_defaults()->always_capture_default();
  app.add_option("--save", o.save, "write the trained model to this .safetensors file");
  app.add_option("--load", o.load, "start from this file");
  app.add_flag("--evaluate", o.evaluate, "do not train")->needs("--load");
  app.add_option("--device", o.device, "cpu, cuda or cuda:N");
  app.add_option("--epochs", o.epochs, "passes over the training " + things)->check(CLI::Range(1, 1000000));
  app.add_option("--batch", o.batch, things + " in a step")->check(CLI::Range(1, 1000000));
  app.add_option("--seed", o.seed, "seed of parameters, order and dropout; the same seed gives the same bits");
}

/// Reads the command line; a number is the program's exit status.
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
}

/// The exit status of run(), whose errors are printed.
template <class Run>
int status_of(const char* program, const Run& run) {
  try {
    run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program, e.what());
    return 1;
  }
}

/// The tensors of the model that is best on held-out data, which does not follow as the model is trained further.
class Best {
 public:
  /// Copies the dict if the score is higher than any before, and returns whether it is.
  bool keep(double score, const reel::StateDict& dict) {
    if (score <= score_) return false;
    score_ = score;
    state_.clear();
    for (const auto& [name, tensor] : dict) state_.emplace_back(name, tensor.clone());
    return true;
  }
  const reel::StateDict& state() const { return state_; }

 private:
  double score_ = -1;
  reel::StateDict state_;
};
