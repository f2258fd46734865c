#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "lib/autograd/tape.h"
#include "lib/nn/hooks.h"
#include "reel/autograd.h"

namespace reel::nn::internal {

/// For the time in which a model is run only to look at it: the model is in evaluation mode, and its modes and buffers
/// are put back at the end and hooks taken off.
class DryRun {
 public:
  explicit DryRun(Module& model) : buffers_(model.buffers()) {
    for (Module* module : model.modules()) modes_.emplace_back(module, module->is_training());
    for (const Tensor& buffer : buffers_) values_.push_back(buffer.clone());
    model.eval();
  }
  ~DryRun() {
    for (const auto& [module, hook] : hooks_) module->remove_hook(hook);
    for (const auto& [module, mode] : modes_) module->train(mode);  // each after those around it
    NoGrad guard;
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  ///@{
  /// Unless the module is not called, but asked for its parameters.
  void before(Module& module, ForwardPreHook hook) {
    if (ModuleParts::is_layer(module)) hooks_.emplace_back(&module, module.register_forward_pre_hook(std::move(hook)));
  }
  void after(Module& module, ForwardHook hook) {
    if (ModuleParts::is_layer(module)) hooks_.emplace_back(&module, module.register_forward_hook(std::move(hook)));
  }
  ///@}

 private:
  std::vector<std::pair<Module*, bool>> modes_;
  std::vector<std::pair<Module*, int64_t>> hooks_;
  std::vector<Tensor> buffers_, values_;
};

/// Which module's call has recorded an op, for as long as the run lasts.
class CallRecorder {
 public:
  CallRecorder(DryRun& run, Module& model) {
    for (Module* module : model.modules()) {
      if (module == &model) continue;
      run.before(*module, [this](Module& called, std::vector<Tensor>&) {
        open_.push_back(calls_.size());
        calls_.push_back({next_sequence(), 0, &called});
      });
      run.after(*module, [this](Module&, const std::vector<Tensor>&, std::vector<Tensor>&) {
        calls_[open_.back()].end = next_sequence();
        open_.pop_back();
      });
    }
  }
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  /// The innermost module whose call recorded the op of that number; nullptr for the model itself.
  const Module* caller_of(uint64_t sequence) const {
    const Module* caller = nullptr;
    for (const Call& call : calls_)  // the last one that has it is the innermost
      if (call.begin <= sequence && sequence < call.end) caller = call.module;
    return caller;
  }

 private:
  struct Call {
    uint64_t begin, end;  // numbers of ops: later ones are greater
    const Module* module;
  };
  std::vector<Call> calls_;
  std::vector<size_t> open_;  // of calls_
};

}  // namespace reel::nn::internal
