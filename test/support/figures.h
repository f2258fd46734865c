#pragma once
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "reel/io.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "test/support/load.h"

// A module against what PyTorch computed with the same weights: test/reference/attention.py.
namespace reel {

class Figures {
 public:
  explicit Figures(const std::string& name) {
    static const StateDict all = load_reference("attention.safetensors");
    for (const auto& [path, tensor] : all)
      if (path.starts_with(name + "/")) mine_.emplace_back(path.substr(name.size() + 1), tensor);
    for (auto& [path, tensor] : group("in"))
      inputs_.emplace_back(path, mine_.contains("grad_in/" + path) ? tensor.requires_grad_() : tensor);
  }

  /// An input, undefined if there is none of that name.
  Tensor in(const std::string& name) const {
    const Tensor* found = find(inputs_, name);
    return found ? *found : Tensor();
  }
  /// What is stored as "kind/…".
  StateDict group(const std::string& kind) const {
    StateDict result;
    for (const auto& [path, tensor] : mine_)
      if (path.starts_with(kind + "/")) result.emplace_back(path.substr(kind.size() + 1), tensor);
    return result;
  }
  template <class M>
  M& load(M& module) const {
    module.to(kFloat64);
    module.load_state_dict(group("state"));
    return module;
  }
  /// Compares outputs, and the gradients of sum(output * ramp) of parameters and inputs.
  void check(const nn::Module& module, const StateDict& outputs) const {
    Tensor loss = 0.;
    for (const auto& [name, output] : outputs) {
      check_close("out/" + name, output);
      const Tensor ramp = sin(arange(output.numel(), {.dtype = kFloat64})).view(output.shape());
      loss = loss + sum(output * ramp);
    }
    CHECK(outputs.size() == group("out").size());
    loss.backward();
    for (const auto& [name, expected] : group("grad")) check_close("grad/" + name, module.get_parameter(name).grad());
    for (const auto& [name, expected] : group("grad_in")) check_close("grad_in/" + name, in(name).grad());
  }

 private:
  void check_close(const std::string& path, const Tensor& actual) const {
    INFO(path);
    REQUIRE(mine_.contains(path));
    const Tensor& expected = mine_[path];
    REQUIRE(actual.defined());
    REQUIRE(actual.shape() == expected.shape());
    CHECK(amax(abs(actual - expected)).item<double>() < 1e-9);
  }
  StateDict mine_, inputs_;
};

}  // namespace reel
