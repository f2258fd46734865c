#include "samples/checkpoints.h"

#include <csignal>
#include <cstdio>
#include <filesystem>

using namespace reel;

namespace {

volatile std::sig_atomic_t requested = 0;

// The second signal of a kind ends the process at once.
void stop_on(int signal) {
  struct sigaction action = {};
  action.sa_handler = [](int received) { requested = received; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(signal, &action, nullptr);
}

Tensor number(double value) { return full({}, value, {.dtype = kFloat64, .device = kCPU}); }

double number_in(const StateDict& dict, const char* name) {
  const Tensor* value = find(dict, name);
  REEL_CHECK(value && value->numel() == 1, "there is no number ", name);
  return value->item<double>();
}

}  // namespace

Checkpoints::Checkpoints(const CommonOptions& options, io::Metadata about)
    : file_(options.checkpoint), interval_(60 * options.checkpoint_minutes), about_(std::move(about)) {
  if (!file_.empty() && !options.save.empty())
    for (const char* kept : {"", ".1"}) {  // as Checkpoint::save names it
      std::filesystem::path path = file_;
      path.replace_filename(path.stem().string() + kept + path.extension().string());
      REEL_CHECK(std::filesystem::weakly_canonical(path) != std::filesystem::weakly_canonical(options.save),
                 "--checkpoint would replace the file that --save names, ", options.save);
    }
  for (const std::string& file : {options.save, file_})
    if (!file.empty() && distributed::rank() == 0) io::check_writable(file);
  if (file_.empty()) return;
  if (distributed::world_size() > 1) {
    generators_.states = zeros({distributed::world_size(), 2}, {.dtype = kInt64, .device = kCPU});
    checkpoint_.add("generators", generators_);
  }
  for (const int signal : {SIGINT, SIGTERM}) stop_on(signal);
}

Checkpoints::~Checkpoints() {
  if (file_.empty()) return;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
}

void Checkpoints::resume() {
  if (file_.empty()) return;
  const auto found = checkpoint_.load_newest(file_);
  if (!found) return;
  for (const std::string& problem : found->damaged) std::fprintf(stderr, "%s\n", problem.c_str());
  for (const auto& [key, value] : about_) {
    const auto saved = found->metadata.find(key);
    REEL_CHECK(saved != found->metadata.end() && saved->second == value, found->path,
               ": the checkpoint is of other data: its ", key, " differs");
  }
  if (distributed::rank() > 0) {  // the file has rank 0's
    set_rng_state(generators_.states[distributed::rank()]);
    totals_->reset();
  }
  std::printf("continues from %s\n", found->path.c_str());
  std::fflush(stdout);
}

void Checkpoints::save() {
  if (file_.empty()) return;
  if (distributed::world_size() > 1) {
    generators_.states = distributed::all_gather(get_rng_state());
    totals_->collect();
  }
  if (distributed::rank() == 0) checkpoint_.save(file_, about_, {.keep = 2});
  distributed::barrier();
  saved_ = Clock::now();
}

void Checkpoints::step() {
  if (file_.empty()) return;
  int signal = requested;
  bool due = Clock::now() - saved_ >= interval_;
  if (distributed::world_size() > 1) {  // all do it, or none: signals and clocks differ
    const Tensor wishes = distributed::all_gather(tensor({static_cast<int64_t>(signal), static_cast<int64_t>(due)}));
    signal = static_cast<int>(max(wishes.select(1, 0)).item<int64_t>());
    due = wishes[0][1].item<int64_t>() != 0;
  }
  if (!signal && !due) return;
  save();
  if (signal) throw Stopped{signal, file_};
}

void Checkpoints::Generators::load_state_dict(const StateDict& dict) {
  const Tensor* const found = find(dict, "states");
  REEL_CHECK(found && found->dim() == 2 && found->size(0) == distributed::world_size(),
             "the checkpoint is of another number of processes than ", distributed::world_size());
  states = found->clone();
}

void EpochTotals::collect() {
  if (distributed::world_size() == 1) return;
  const Tensor sums = stack({loss_.cpu(), number(static_cast<double>(samples_))});
  distributed::all_reduce(sums);
  reset();
  if (distributed::rank() > 0) return;
  loss_.fill_(sums[0].item<double>());
  samples_ = static_cast<int64_t>(sums[1].item<double>());
}

StateDict EpochTotals::state_dict() const {
  return {{"loss", loss_}, {"samples", number(static_cast<double>(samples_))}};
}

void EpochTotals::load_state_dict(const StateDict& dict) {
  const double loss = number_in(dict, "loss");
  samples_ = static_cast<int64_t>(number_in(dict, "samples"));
  loss_.fill_(loss);
}

bool Best::keep(double score, const StateDict& dict) {
  if (score <= score_) return false;
  StateDict copy;
  for (const auto& [name, tensor] : dict) copy.emplace_back(name, tensor.clone());
  state_ = std::move(copy);
  score_ = score;
  return true;
}

StateDict Best::state_dict() const {
  StateDict dict = state_;
  for (auto& [name, tensor] : dict) name.insert(0, "model.");
  dict.emplace_back("score", number(score_));
  return dict;
}

void Best::load_state_dict(const StateDict& dict) {
  const double score = number_in(dict, "score");
  StateDict state;
  for (const auto& [name, tensor] : dict)
    if (name.starts_with("model.")) state.emplace_back(name.substr(6), tensor);
  state_ = std::move(state);
  score_ = score;
}

void save_model(const StateDict& dict, const std::string& file, const io::Metadata& metadata) {
  if (distributed::rank() == 0) io::save(dict, file, metadata);
}
