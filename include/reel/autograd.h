#pragma once
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reel/tensor.h"

namespace reel {

// ---- recording on and off -------------------------------------------------------------------------------------------

bool grad_enabled();  ///< Of the calling thread; true at its start.
/// Sets recording for as long as it lives: { NoGrad guard; … }.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
struct EnableGrad : GradMode {
  EnableGrad() : GradMode(true) {}
};
/// no_grad([&] { … }) runs f without recording and returns what it returns.
template <class F>
decltype(auto) no_grad(F&& f) {
  NoGrad guard;
  return std::forward<F>(f)();
}
template <class F>
decltype(auto) enable_grad(F&& f) {
  EnableGrad guard;
  return std::forward<F>(f)();
}

// ---- gradients ------------------------------------------------------------------------------------------------------

struct GradOptions {
  bool retain_graph = false;  ///< Keep the graph for another walk. Implied by create_graph.
  bool create_graph = false;  ///< Record the walk, so that the gradients can be differentiated in their turn.
  bool allow_unused = false;  ///< Undefined gradients for inputs that no output depends on, instead of an Error.
};
/// d(outputs)/d(inputs), summed over the outputs, each weighted by its grad_outputs (empty: 1 for one-element
/// outputs). No tensor's grad() is touched, and only the part of the graph that leads to the inputs is walked.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs = {}, GradOptions options = {});
inline std::vector<Tensor> grad(std::initializer_list<Tensor> outputs, std::initializer_list<Tensor> inputs,
                                std::initializer_list<Tensor> grad_outputs = {}, GradOptions options = {}) {
  return grad(std::span(outputs.begin(), outputs.size()), std::span(inputs.begin(), inputs.size()),
              std::span(grad_outputs.begin(), grad_outputs.size()), options);
}
/// backward() of several tensors in one walk.
void backward(std::span<const Tensor> outputs, std::span<const Tensor> grad_outputs = {}, GradOptions options = {});

// ---- ops of one's own -----------------------------------------------------------------------------------------------

/// The short form. `output` has been computed from `inputs` (without recording: under NoGrad, or by other means);
/// `rule` maps the gradient of the output to the gradients of the inputs, in order, undefined where there is none.
/// Written in reel ops it is differentiable in its turn. Gradients may be of the inputs' broadcast shape or another
/// float dtype: they are summed and cast back. The rule must not hold `output` itself (the tape
/// would hold itself, and never be freed); where it needs its value, take the long form and save_for_backward:
///
///   Tensor cube(const Tensor& x) {
///     return custom_op("cube", no_grad([&] { return x * x * x; }), {x},
///                      [x](const Tensor& grad) { return std::vector{grad * 3 * x * x}; });
///   }
Tensor custom_op(const char* name, const Tensor& output, std::vector<Tensor> inputs,
                 std::function<std::vector<Tensor>(const Tensor& grad)> rule);

/// What Function::forward leaves for Function::backward.
class FunctionContext {
 public:
  /// Tensors that backward needs, inputs and outputs alike; an in-place change of one before backward is an Error.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  const std::vector<Tensor>& saved() const { return saved_; }
  bool needs_input_grad(int input) const { return needs_[input]; }
  /// Anything else: ctx.state<MyState>() makes it in forward, finds it in backward.
  template <class State>
  State& state() {
    if (!state_) state_ = std::make_shared<State>();
    return *static_cast<State*>(state_.get());
  }

 private:
  friend struct FunctionRule;
  friend std::vector<Tensor> apply_function(const char*, std::vector<Tensor>, const struct FunctionForm&);
  std::vector<Tensor> to_save_, saved_;
  std::vector<bool> needs_;
  std::shared_ptr<void> state_;
};

struct FunctionForm {
  std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)> forward;
  std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)> backward;
};
std::vector<Tensor> apply_function(const char* name, std::vector<Tensor> inputs, const FunctionForm& form);

/// The long form, for several outputs or a state of its own:
///
///   struct Swap : Function<Swap> {
///     static constexpr const char* name = "swap";
///     static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& inputs);
///     static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& grads);
///   };
///   std::vector<Tensor> outputs = Swap::apply({a, b});
///
/// forward runs without recording. backward gets one gradient for each output (zeros where none arrived) and returns
/// one for each input; written in reel ops it is differentiable in its turn.
template <class Derived>
struct Function {
  static std::vector<Tensor> apply(std::vector<Tensor> inputs) {
    return apply_function(Derived::name, std::move(inputs), {Derived::forward, Derived::backward});
  }
};

// ---- memory for time ------------------------------------------------------------------------------------------------

/// f(inputs) without keeping what its backward needs: f is run again when the walk arrives there (Chen et al. 2016).
/// f may use parameters and other tensors that it captures; they get their gradients, too. The random numbers of the
/// second run are those of the first.
std::vector<Tensor> checkpoint(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f,
                               const std::vector<Tensor>& inputs);

// ---- looking at the tape --------------------------------------------------------------------------------------------

/// While it lives, backward() checks every gradient for NaN, and an Error names the op that made it and where that op
/// was recorded (a stack trace, taken for every op recorded in this mode: slow; link the program with -rdynamic to see
/// names in it).
class DetectAnomaly {
 public:
  explicit DetectAnomaly(bool enabled = true);
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool before_;
};

/// The graph behind `root`, an op a line, newest first: "#12 mul [2, 3] <- #11 tanh, leaf [3]".
std::string tape_to_string(const Tensor& root);
/// The same as a Graphviz digraph (pipe it into `dot -Tsvg`).
std::string tape_to_dot(const Tensor& root);
/// How many recorded ops are alive, over all threads; 0 when every graph has been freed.
int64_t live_nodes();

}  // namespace reel
