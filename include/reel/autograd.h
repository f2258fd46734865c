#pragma once
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Modes of recording, gradients of any order, custom ops, checkpointing, and the tape as text.
namespace reel {

// ---- recording on and off -------------------------------------------------------------------------------------------

/// Whether ops of the calling thread are recorded; true when the thread starts.
bool grad_enabled();
/// { NoGrad guard; … } turns recording on the calling thread on or off for the guard's lifetime; then the previous mode
/// is restored. Guards nest.
class GradMode {
 public:
  explicit GradMode(bool enabled);  ///< True turns recording on, false off.
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
/// Turns recording off: results have no history, and nothing is saved for a backward pass.
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
/// Turns recording on inside a NoGrad.
struct EnableGrad : GradMode {
  EnableGrad() : GradMode(true) {}
};
/// no_grad([&] { … }) runs f without recording and returns what it returns.
template <class F>
decltype(auto) no_grad(F&& f) {
  NoGrad guard;
  return std::forward<F>(f)();
}
/// enable_grad([&] { … }) runs f with recording and returns what it returns.
template <class F>
decltype(auto) enable_grad(F&& f) {
  EnableGrad guard;
  return std::forward<F>(f)();
}

// ---- gradients ------------------------------------------------------------------------------------------------------

/// d(outputs)/d(inputs), summed over the outputs, each weighted by its grad_outputs (empty: 1 for one-element outputs;
/// required, and of the output's shape, otherwise). One gradient for each input, of its shape and dtype. No tensor's
/// grad() is changed, and only the part of the graph that leads to the inputs is traversed. The graph is freed unless
/// retain_graph. An Error if an input does not require grad, if no output depends on it (see allow_unused), or if the
/// graph has been freed already.
std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs = {}, GradOptions options = {});
/// Tensor::backward() of several tensors in one backward pass. Rules that several outputs depend on run once.
void backward(TensorList outputs, TensorList grad_outputs = {}, GradOptions options = {});

// ---- custom ops -----------------------------------------------------------------------------------------------------

/// The short form. `output` has been computed from `inputs` (without recording: under NoGrad, or by other means);
/// `rule` maps the gradient of the output to the gradients of the inputs, in order, undefined where there is none.
/// Written in reel ops it is differentiable again. Gradients may be of a shape that the input broadcasts to, or of
/// another float dtype: they are summed and cast back. The result has `output`'s elements and the new history; it has
/// none if `output` is of an integer type or nothing is recorded. An Error that begins with `name` if the rule does not
/// return one gradient per input. If `output` shares memory with an input, recorded in-place changes of the result are
/// an Error, and so is its use after one of the input. The rule must not capture `output`, whose in-place changes it
/// would not notice. If it needs the value, use the long form and save_for_backward:
///
///   Tensor cube(const Tensor& x) {
///     return custom_op("cube", no_grad([&] { return x * x * x; }), {x},
///                      [x](const Tensor& grad) { return std::vector{grad * 3 * x * x}; });
///   }
Tensor custom_op(const char* name, const Tensor& output, std::vector<Tensor> inputs,
                 std::function<std::vector<Tensor>(const Tensor& grad)> rule);

class FunctionContext;
namespace detail {
/// forward and backward of a Function.
struct FunctionForm {
  std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)> forward, backward;
};
std::vector<Tensor> apply_function(const char* name, std::vector<Tensor> inputs, const FunctionForm& form);
struct FunctionRule;
}  // namespace detail

/// Passes data from Function::forward to Function::backward.
class FunctionContext {
 public:
  /// Tensors that backward needs, inputs and outputs alike; an in-place change of one before backward is an Error.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  /// In backward: the tensors that forward has saved, in the same order.
  const std::vector<Tensor>& saved() const { return saved_; }
  /// Whether the gradient of input number `input` is needed; backward may return an undefined Tensor for it if not.
  bool needs_input_grad(int input) const { return needs_[input]; }
  /// Any other data: ctx.state<State>() default-constructs it at the first call; forward and backward get the same
  /// object. State must be the same type in every call.
  template <class State>
  State& state() {
    if (!state_) state_ = std::make_shared<State>();
    return *static_cast<State*>(state_.get());
  }

 private:
  friend struct detail::FunctionRule;
  friend std::vector<Tensor> detail::apply_function(const char*, std::vector<Tensor>, const detail::FunctionForm&);
  std::vector<Tensor> to_save_, saved_;
  std::vector<bool> needs_;
  std::shared_ptr<void> state_;
};

/// The long form, for ops with several outputs or a state:
///
///   struct Swap : Function<Swap> {
///     static constexpr const char* name = "swap";
///     static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& inputs);
///     static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& grads);
///   };
///   std::vector<Tensor> outputs = Swap::apply({a, b});
///
/// forward runs without recording. backward gets one gradient for each output (zeros where none arrived) and returns
/// one for each input; written in reel ops it is differentiable again. Outputs of integer types have no gradient, and
/// backward gets none for them. An output that shares memory with an input or another output cannot be changed in place
/// while recording, nor used after such a change of the input: return a clone() if that is needed.
template <class Derived>
struct Function {
  /// Runs forward and, where an input requires grad, records the op. Arguments behind the inputs, such as numbers, are
  /// passed on: Scale::apply({x}, 0.5) calls forward(ctx, {x}, 0.5). What backward needs of them forward keeps in
  /// ctx.state().
  template <class... Args>
  static std::vector<Tensor> apply(std::vector<Tensor> inputs, const Args&... args) {
    const auto forward = [&](FunctionContext& ctx, const std::vector<Tensor>& given) {
      return Derived::forward(ctx, given, args...);
    };
    return detail::apply_function(Derived::name, std::move(inputs), {forward, Derived::backward});
  }
};

// ---- activation checkpointing ---------------------------------------------------------------------------------------

/// Runs f(inputs) without saving intermediate results; the backward pass runs f again to compute them (Chen et al.,
/// Training Deep Nets with Sublinear Memory Cost, 2016). f may use parameters and other tensors that it captures; they
/// get their gradients, too. The second run gets the random numbers and the autocast mode of the first. An Error if f
/// changes an input in place and, in the backward pass, if the second run returns other shapes than the first. Results
/// that share memory with an input cannot be changed in place while recording. What else f changes, it changes twice:
/// the running statistics of a BatchNorm in training take the same batch in two times, in effect with a larger
/// momentum.
std::vector<Tensor> checkpoint(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f, TensorList inputs);

// ---- inspecting the tape --------------------------------------------------------------------------------------------

/// While the guard lives, a backward pass of the calling thread checks every gradient for NaN, and throws an Error with
/// the op whose rule made it and where that op was recorded (a stack trace, taken for every op recorded in this mode:
/// slow; link the program with -rdynamic to see names in it).
class DetectAnomaly {
 public:
  explicit DetectAnomaly(bool enabled = true);  ///< False turns the mode off inside another guard.
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
/// The number of recorded ops that are alive, over all threads; 0 when every graph has been freed.
int64_t live_nodes();

}  // namespace reel
#pragma GCC visibility pop
