#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "samples/ranks.h"

// What the samples with a command line share.

/// Options that all of them have; a sample derives its own from these.
struct CommonOptions {
  std::string data, save, load, checkpoint, log, device = "cpu";
  double checkpoint_minutes = 10;
  bool evaluate = false;
  int epochs = 10, batch = 1;
  double lr = 1e-3;
  uint64_t seed = 1;
};

/// Adds them to the command line. `things` is what the sample trains on, "images".
inline void add_common_options(CLI::App& app, CommonOptions& o, const std::string& things) {
  app.option_defaults()->always_capture_default();
  app.add_option("--save", o.save, "write the model that is best on held-out data to this .safetensors file");
  app.add_option("--load", o.load, "start from this file");
  app.add_option("--checkpoint", o.checkpoint,
                 "keep what the run needs to continue in this .safetensors file, and continue from it if it is there");
  app.add_option("--checkpoint-minutes", o.checkpoint_minutes, "how often within an epoch")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--log", o.log, "write curves to this folder, for tensorboard --logdir");
  app.add_flag("--evaluate", o.evaluate, "do not train")->needs("--load");
  app.add_option("--device", o.device, "cpu, cuda or cuda:N");
  app.add_option("--epochs", o.epochs, "passes over the training " + things)->check(CLI::Range(1, 1000000));
  app.add_option("--batch", o.batch, things + " in a step of each process")->check(CLI::Range(1, 1000000));
  app.add_option("--seed", o.seed, "seed of parameters, order and dropout; the same seed gives the same bits");
}

/// What --device names; "cuda" is another GPU for each process of a machine.
inline reel::Device device_of(const CommonOptions& o) {
  const bool several = reel::distributed::world_size() > 1;
  return reel::Device::from_string(
      o.device == "cuda" && several ? "cuda:" + std::to_string(reel::distributed::local_rank()) : o.device);
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

/// Thrown when a run has been asked to stop by a signal, and has saved.
struct Stopped {
  int signal;
  std::string file;
};

/// The exit status of run(), whose errors are printed. Of several processes rank 0 says how it goes, for all.
template <class Run>
int status_of(const char* program, const Run& run) {
  try {
    if (reel::distributed::rank() > 0) REEL_CHECK(std::freopen("/dev/null", "w", stdout), "no /dev/null");
    run();
    return 0;
  } catch (const Stopped& stopped) {
    std::fprintf(stderr, "%s: stopped by signal %d; the same command continues from %s\n", program, stopped.signal,
                 stopped.file.c_str());
    return 128 + stopped.signal;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program, e.what());
    return 1;
  }
}
