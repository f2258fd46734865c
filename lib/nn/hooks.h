#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reel/nn/module.h"

// What a module carries only when somebody looks into its calls.
namespace reel::nn::internal {

struct ParametrizationList;
/// A parameter that is computed anew for each call of the module and shown by `member` meanwhile.
struct Computed {
  Tensor* member;
  bool inside;  // the module, with which the member moves
  ParametrizationList* list;
  std::string name;
  Tensor value() const;
  Tensor shown() const;  // without history, and without the changes that a call in training makes
};

struct Hooks {
  Module* module = nullptr;  // when it is gone, too
  std::vector<std::pair<int64_t, ForwardPreHook>> before;
  std::vector<std::pair<int64_t, ForwardHook>> after;
  std::vector<std::pair<int64_t, FullBackwardHook>> backward;
  std::vector<Computed> computed;
  std::unique_ptr<Module> parametrizations;  // what `computed` computes from
  int depth = 0;                             // of the calls that are running
};

}  // namespace reel::nn::internal
