#pragma once
#include <concepts>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "reel/nn/detail/call.h"
#include "reel/tensor/detail/batching.h"

#pragma GCC visibility push(default)
/// Dynamic batching: a model that is written for one example runs for many at once, however much their graphs differ.
///
///   auto losses = batching::map(batch, [&](const Tree& tree) { return loss(model(tree), tree.labels); });
///   sum(stack(losses)).backward();
///
/// Each example runs as a fiber: a function with a stack of its own. A call of an op that can be batched waits there,
/// and another example goes on. When none can, the largest group of waiting calls that can be one call becomes one: the
/// rows of their arguments are gathered in one tensor each, the op runs once, and each call returns its rows. Values
/// are there when a call returns, so control flow, item() and errors are as they always are, and what is recorded is an
/// ordinary graph.
///
/// Calls can be one if they are of the same op with the same weights and with equal arguments but for the rows of their
/// tensors: dtype, device, whether a gradient flows, and all sizes but the first must agree; so must grad mode,
/// autocast, anomaly mode and the default device. These wait, whether a layer calls them or the program does:
///
/// - linear, linear_relu, bilinear, embedding, lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell, tree_lstm_cell,
///   layer_norm, rms_norm and convolutions, whose weights are the same tensors;
/// - mm, and matmul of matrices, by a leaf that requires grad, a parameter;
/// - on a GPU tanh, sigmoid and the activation functions that are one kernel, whose launches take longer than they do;
/// - on a GPU cat along dimension 0 of tensors of one dtype, any number of them, and cross_entropy of classes, without
///   weights of these, for logits of two dimensions or more;
/// - the layers NaryTreeLSTM and ChildSumTreeLSTM as a whole, LSTM, GRU, RNN and CRF for one sequence, a list of them
/// or
///   a Ragged, and CRF::decode() for one sequence;
/// - functions that rows() makes.
///
/// A floating-point argument has rows along dimension 0 if it has two dimensions or more, of layer_norm and rms_norm
/// more than those that are normalised; an integer argument, if it has one.
///
/// Called for each example by itself are all other ops, embeddings with scale_grad_by_freq,
/// arguments without rows, and whatever is called inside of a backward pass, a function that is run for a group or has
/// found no others, a custom op, a checkpoint, a captured graph, an export, a parametrized layer, or a
/// cuda::StreamGuard of the example's own. Hooks of layers run for each example.
///
/// Gradients are those of single calls. A call whose results get none in a backward pass has no part in it: neither its
/// arguments nor parameters that no other example uses get a gradient, not even zeros, and no hook runs for them. So
/// that 0 times infinity does not spoil the gradients of others, a group for whose gradient an infinite value or NaN is
/// saved, or that has an infinite derivative (sqrt at 0), is made again by the calls whose arguments are finite, and
/// the others are called by themselves, or all if that is not the cause. This holds on the CPU; on a GPU, where looking
/// at values would wait for it, an example that overflows spoils the gradients of its groups, as it does where a
/// custom op in a function of rows() has finite results, but an infinite derivative. What such a function keeps of a
/// call other than its results, such as a tensor for an extra loss, is not an example's, and gets no right gradients.
///
/// backward() and grad() may be called inside of an example and for single examples. Such a pass computes with all rows
/// of the groups that it meets, and leaves what they have saved for the passes of other examples until the last tensor
/// of the group is gone. One pass from the sum of all losses takes as long as one of a single example then does.
///
/// The results of a group are views of one tensor's rows: changing them in place while recording is an Error, and each
/// keeps the memory of all of them. clone() rows that are to be changed, or kept for long.
///
/// While a call waits, other examples run: what several examples read, none of them may change. That includes state of
/// the thread which a guard of your own sets around a call (a thread_local variable, the rounding mode, a lock): other
/// examples run under it. Reel's own guards are each example's. Groups may compute with copies of parameters, which see
/// the changes that ops make, but not those of memory by other means.
///
/// Where a group fails, or is made again because of infinite values, a function of rows() has run for it and then runs
/// for its calls once more: what else it does, such as counting or drawing random numbers, is done twice.
///
/// Results differ from those of single calls by rounding. The order in which examples run, and with it every random
/// number and every bit, is the same in each run; but the examples take turns, so an example draws other random numbers
/// (for its dropout, say) than it would alone or in a scheduler. Threads may each run a map of their own.
namespace reel::batching {

/// What a map did: `Report report; map(examples, f, {.report = &report});`. It adds to what it holds. Measuring takes
/// time of its own, some 0.1 µs a call.
struct Report {
  /// A Row counts the calls of an op with weights of one shape, of a layer or of a function of rows().
  struct Row {
    /// The op and the shape of its weight, "linear [256, 784]"; the path and type of a layer, "encoder.lstm (LSTM)".
    std::string name;
    int64_t calls = 0;          ///< Made by examples.
    int64_t groups = 0;         ///< Calls that were made for several of them.
    int64_t alone = 0;          ///< Calls that could have been joined, and found no others.
    int64_t rows = 0;           ///< Of all groups, or sequences.
    double seconds = 0;         ///< In groups, all in all.
    double gather_seconds = 0;  ///< Of these, gathering arguments.
    int64_t gathered = 0;       ///< Bytes that this has copied; rows that lie together already are not copied.
    int64_t items = 0;          ///< Calls of item() by examples for which this was the last that waited.
  };
  /// Calls that did not wait for others.
  struct Unbatched {
    std::string name;    ///< The op or, with its path, the layer.
    std::string reason;  ///< Why.
    int64_t calls = 0;   ///< How many.
  };
  std::vector<Row> rows;             ///< In the order of their first calls.
  std::vector<Unbatched> unbatched;  ///< In the order of their first calls.
  double seconds = 0;                ///< In map, all in all.
  double schedule_seconds = 0;       ///< Of these, spent on choosing who goes on, and switching to it.
  int64_t switches = 0;              ///< From one fiber to another.
  int64_t most_fibers = 0;           ///< At the same time.
  /// Calls of item() by examples, also by those that no row names. On a GPU each waits until the GPU is done.
  int64_t items = 0;

  /// Returns all of that as text, the rows with the most time first.
  std::string table() const;
};

/// Options of map.
struct MapOptions {
  int64_t window = 64;       ///< The most examples that run at the same time, 4,096 at most.
  Report* report = nullptr;  ///< Where to add what has been done.
};

namespace internal {

/// A function that is called later: not owned.
struct FunctionRef {
  void* object;
  void (*call)(void* object, size_t i);
};
/// f(0) … f(n - 1) as fibers; throws what the first that fails has thrown.
void run(size_t n, FunctionRef f, const MapOptions& options);

/// f(0) as a fiber of its own, or in join() where there cannot be another fiber.
class ForkedFiber {
 public:
  explicit ForkedFiber(FunctionRef f);
  ForkedFiber(const ForkedFiber&) = delete;
  ForkedFiber& operator=(const ForkedFiber&) = delete;
  ~ForkedFiber();  // It waits for the fiber.
  void join();     // It waits for the fiber, and throws what f has thrown.

 private:
  friend class FiberScheduler;
  void wait();
  const FunctionRef f_;
  class FiberScheduler* scheduler_ = nullptr;  // that of the fiber; none: there is no fiber
  FiberTask* waiter_ = nullptr;                // which is in wait()
  bool ended_ = false;                         // the fiber
  std::exception_ptr error_;
};

// ---- functions that rows() makes ------------------------------------------------------------------------------------

/// Calls visit(&tensor) for each Tensor in value as visit_tensors does, and visit(nullptr) behind each list and
/// optional, so that values with the same visits have the same structure.
template <class T, class Visit>
void visit_structure(const T& value, const Visit& visit) {
  using nn::internal::Kind;
  constexpr Kind kind = nn::internal::kind_of<T>;
  const auto each = [&](const auto&... parts) { (visit_structure(parts, visit), ...); };
  if constexpr (kind == Kind::kTensor) {
    visit(&static_cast<const Tensor&>(value));
  } else if constexpr (kind == Kind::kList) {
    for (const auto& part : value) visit_structure(part, visit);
    visit(nullptr);
  } else if constexpr (kind == Kind::kOptional) {
    if (value) visit_structure(*value, visit);
    visit(nullptr);
  } else if constexpr (kind == Kind::kTuple) {
    std::apply(each, value);
  } else if constexpr (kind == Kind::kStruct) {
    std::apply(each, nn::internal::fields(value));
  }
}

template <class T>
inline constexpr bool has_tensors = nn::internal::kind_of<T> != nn::internal::Kind::kNone;
template <class T>
inline constexpr bool is_ragged = std::same_as<std::remove_cvref_t<T>, Ragged>;
/// Calls f(args…) can be joined if f returns Tensors by value, and arguments without Tensors can be compared. A Ragged
/// has lengths, which rows of its values do not keep.
template <class F, class... Args>
concept Joinable = ((has_tensors<Args> || std::equality_comparable<Args>)&&...) && !(is_ragged<Args> || ...) &&
                   requires(const F& f, const Args&... args) {
  requires !std::is_reference_v<decltype(f(args...))>;
  requires has_tensors<decltype(f(args...))> && !is_ragged<decltype(f(args...))>;
};

template <class F>
struct NamedFunction {
  std::string name;
  F f;
};

/// A FunctionCall is the call function.f(args…) in a fiber that waits.
template <class F, class... Args>
class FunctionCall final : public Call {
 public:
  using Result = std::remove_cv_t<std::invoke_result_t<const F&, const Args&...>>;

  explicit FunctionCall(const NamedFunction<F>& function, const Args&... args)
      : Call(Kind::kRows, &function, typeid(FunctionCall)), function_(function), args_(args...) {
    (visit_structure(args, [this](const Tensor* tensor) { add(tensor); }), ...);
  }

  void run(std::span<const Tensor> inputs) override {
    const auto call = [&](auto... held) {
      [[maybe_unused]] auto next = inputs.begin();
      (nn::internal::visit_tensors(held.value, [&](Tensor& tensor) { tensor = *next++; }), ...);
      result_.emplace(function_.f(held.pass()...));
    };
    std::apply([&](const Args&... args) { call(nn::internal::hold(static_cast<const Args*>(nullptr), args)...); },
               args_);
  }
  std::vector<Tensor> outputs() const override { return nn::internal::collect_tensors(*result_); }
  void set_result_from_group(const Call& leader, std::span<std::vector<Tensor>> outputs, size_t at) override {
    if (this != &leader) result_.emplace(*static_cast<const FunctionCall&>(leader).result_);
    size_t i = 0;
    nn::internal::visit_tensors(*result_, [&](Tensor& tensor) { tensor = std::move(outputs[i++][at]); });
  }
  bool same_arguments(const Call& other) const override {
    const auto same = [](const auto& a, const auto& b) {
      if constexpr (has_tensors<decltype(a)>)
        return true;
      else
        return a == b;
    };
    const auto& others = static_cast<const FunctionCall&>(other).args_;
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return (same(std::get<i>(args_), std::get<i>(others)) && ...);
    }
    (std::index_sequence_for<Args...>());
  }
  std::string label() const override { return function_.name; }
  Result result() { return std::move(*result_); }

 private:
  const NamedFunction<F>& function_;
  const std::tuple<const Args&...> args_;
  std::optional<Result> result_;
};

}  // namespace internal

/// f(example) for each of examples, a vector or another range with random access, in a std::vector in that order (f may
/// return void, too). Up to `window` examples run as fibers of the calling thread, each with a stack of 8 MB (address
/// space: what it does not use takes no memory).
///
/// What f throws ends the map: the other examples are unwound, by an exception that is no std::exception, and the first
/// one's is thrown. A group whose forward fails is called one by one, so that only the call that is wrong throws. f
/// must not hold a lock while it calls layers or ops. Grad mode, autocast, the default device, anomaly mode and the
/// profiler's scopes are each example's own; all other thread-local state is shared.
///
/// A map inside of a map adds its examples to that one; then the options do not count.
template <std::ranges::random_access_range Examples, class F>
auto map(Examples&& examples, F&& f, const MapOptions& options = {}) {
  const auto first = std::ranges::begin(examples);
  using Difference = std::ranges::range_difference_t<Examples>;
  using Result = std::invoke_result_t<F&, std::ranges::range_reference_t<Examples>>;
  static_assert(!std::is_reference_v<Result>, "batching::map: f returns a reference; let it return a value");
  const auto size = static_cast<size_t>(std::ranges::distance(examples));
  const auto each = [&](auto& call) {
    internal::run(size, {&call, [](void* object, size_t i) { (*static_cast<decltype(&call)>(object))(i); }}, options);
  };
  if constexpr (std::is_void_v<Result>) {
    auto call = [&](size_t i) { f(first[static_cast<Difference>(i)]); };
    each(call);
  } else {
    std::vector<std::optional<Result>> found(size);
    auto call = [&](size_t i) { found[i].emplace(f(first[static_cast<Difference>(i)])); };
    each(call);
    std::vector<Result> results;
    results.reserve(size);
    for (std::optional<Result>& result : found) results.push_back(std::move(*result));
    return results;
  }
}

/// {f(), g()}: in a map at the same time, as two fibers, so that the calls in both may become one; outside of a map one
/// after the other. What they throw is thrown when both have ended, f's first. While a map has 4,096 fibers, or has 128
/// and makes its calls on a CPU, whose caches do not hold more stacks, they run one after the other, too.
///
///   auto [left, right] = batching::both([&] { return visit(node.left); }, [&] { return visit(node.right); });
///
/// Of functions that return void it returns void; where one does, std::monostate stands for its result.
template <std::invocable F, std::invocable G>
auto both(F&& f, G&& g) {
  constexpr bool first_void = std::is_void_v<std::invoke_result_t<F&>>;
  constexpr bool second_void = std::is_void_v<std::invoke_result_t<G&>>;
  if constexpr (first_void || second_void) {
    const auto valued = [](auto& function) {
      return [&function] {
        if constexpr (std::is_void_v<decltype(function())>)
          return function(), std::monostate();
        else
          return function();
      };
    };
    auto results = both(valued(f), valued(g));
    if constexpr (!first_void || !second_void) return results;
  } else {
    std::optional<std::invoke_result_t<G&>> second;
    auto call = [&] { second.emplace(g()); };
    internal::ForkedFiber fork({&call, [](void* object, size_t) { (*static_cast<decltype(&call)>(object))(); }});
    std::invoke_result_t<F&> first = f();
    fork.join();
    return std::pair<std::invoke_result_t<F&>, std::invoke_result_t<G&>>(std::move(first), std::move(*second));
  }
}

/// Returns f as a function whose calls are batched: its arguments and results are Tensors, or structs and lists of
/// them, and row i of the results depends on row i of the arguments and on nothing that differs between examples.
/// Copies of what this returns are one function. It suits a cell of many small ops, which is then called once for a
/// group.
///
///   const auto gate = batching::rows("gate", [&](const Tensor& a, const Tensor& b) { return sigmoid(w(a)) * b; });
template <class F>
auto rows(std::string name, F f) {
  using Named = internal::NamedFunction<F>;
  return [function =
              std::make_shared<const Named>(Named{std::move(name), std::move(f)})]<class... Args>(const Args&... args) {
    static_assert(internal::Joinable<F, Args...>,
                  "batching::rows: the result is not made of Tensors, or an argument cannot be compared");
    if (internal::BatchScheduler* const scheduler = internal::scheduler()) {
      internal::FunctionCall<F, Args...> call(*function, args...);
      if (scheduler->wait(call)) return call.result();
      const detail::NoSuspendGuard no_suspend(call.state == internal::Call::State::kAlone);
      return function->f(args...);
    }
    return function->f(args...);
  };
}

}  // namespace reel::batching
#pragma GCC visibility pop
