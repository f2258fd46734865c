#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reel/nn/module.h"

// What a module carries only when its calls are observed or parametrized.
namespace reel::nn::internal {

struct ParametrizationList;
/// A parameter that is computed anew for each call of the module and shown by `member` meanwhile.
struct Computed {
  RegisteredTensor* member;
  ParametrizationList* list;
  std::string name;
  Tensor value() const;
  Tensor shown() const;  // without history, and without the changes that a call in training makes
  /// Replaces the tensor that the member shows; assigning to the Parameter itself is an Error.
  Tensor& handle() const { return *member; }
};

struct Hooks {
  Module* module = nullptr;  // when it is gone, too
  // Shared, so that a call can walk a copy of the list: hooks may change it, and keep states of their own.
  template <class Hook>
  using List = std::vector<std::pair<int64_t, std::shared_ptr<const Hook>>>;
  List<ForwardPreHook> before;
  List<ForwardHook> after;
  List<FullBackwardHook> backward;
  std::vector<Computed> computed;
  std::unique_ptr<Module> parametrizations;  // what `computed` computes from
  int depth = 0;                             // of the calls that are running
};

/// The library's access to what a Module is made of.
struct ModuleParts {
  using Entry = Module::Entry;
  static std::vector<Entry>& entries(Module& module) { return module.entries_; }
  static const std::vector<Entry>& entries(const Module& module) { return module.entries_; }
  static Module*& parent(Module& module) { return module.parent_; }
  static const Module* parent(const Module& module) { return module.parent_; }
  static bool is_layer(const Module& module) { return module.is_layer(); }
  static std::string label(const Module& module) { return module.label(); }
  /// The entry of that name in the module itself, nullptr if there is none.
  static Entry* find(Module& module, std::string_view name);

  static bool& fused(Module& module) { return module.fused_; }
  static int8_t& folded_dims(Module& module) { return module.folded_dims_; }

  static Hooks* hooks(const Module& module) { return module.hooks_.get(); }
  /// An Error for a module whose calls would not run hooks.
  static void check_layer(const char* op, const Module& module);
  static Hooks& make_hooks(Module& module);      // unless there are some
  static void drop_empty_hooks(Module& module);  // without hooks a call costs nothing
};

}  // namespace reel::nn::internal
