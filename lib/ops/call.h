// This file has `call`, the front door of an op, which runs the op in the modes of its thread.
#pragma once
#include <array>
#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/base/op_modes.h"
#include "lib/ops/op_info.h"
#include "lib/tensor/op_trace.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/base/detail/no_suspend_guard.h"

// An op is a function of its tensors, which `call` runs:
//
//   Tensor cumsum(const Tensor& x, int64_t dim) {
//     const int d = wrap_dim(dim, view_of(x, "cumsum").shape.size(), "cumsum");
//     return call("cumsum", {x}, {{"dim", d}}, [&](const Tensor& x) { … });
//   }
//
// The name stands for a line of the table in op_info.h. What that says (that autocast computes the op in float32, say)
// happens before the function runs and after it: the function may get other tensors than the op was called with. It
// must not use the op's own, hence the parameters of the same names. The attributes are the other arguments that the
// result depends on: calls whose attributes are equal may be batched, and exports write them down.
namespace reel {

namespace detail {

/// An Input refers to an input of an op; `call` takes a list of them.
struct Input {
  Input(const Tensor& x) : tensor(&x) {}  // NOLINT(google-explicit-constructor)
  const Tensor* tensor;
};
using Inputs = std::span<const Tensor* const>;

/// An OpCall is the call of an op, as the modes see it.
class OpCall {
 public:
  /// Computes the results from inputs that replace those of the call.
  virtual void run(Inputs inputs) = 0;
  /// Returns the results, which others than run() may fill in.
  virtual std::span<Tensor> results() = 0;

 protected:
  ~OpCall() = default;
};

/// Returns the tensors of a result: a Tensor, a list of them, or a struct that has nothing but Tensors.
template <class Result>
std::span<Tensor> tensors_of(Result& result) {
  if constexpr (std::is_same_v<Result, Tensor>) {
    return {&result, 1};
  } else if constexpr (std::is_same_v<Result, std::vector<Tensor>>) {
    return result;
  } else {
    static_assert(std::is_aggregate_v<Result> && sizeof(Result) % sizeof(Tensor) == 0);
    return {reinterpret_cast<Tensor*>(&result), sizeof(Result) / sizeof(Tensor)};
  }
}

/// An OpCallOf is the call f(inputs[0], …, inputs[N - 1]) or, with a list behind these, f(inputs[0], …, list).
template <size_t N, bool has_list, class F>
class OpCallOf final : public OpCall {
 public:
  explicit OpCallOf(const F& f) : f_(f) {}
  void run(Inputs inputs) override {
    [&]<size_t... i>(std::index_sequence<i...>) {
      if constexpr (has_list) {
        std::vector<Tensor> list;
        for (const Tensor* x : inputs.subspan(N)) list.push_back(*x);
        result_.emplace(f_(*inputs[i]..., std::span<const Tensor>(list)));
      } else {
        result_.emplace(f_(*inputs[i]...));
      }
    }
    (std::make_index_sequence<N>());
  }
  std::span<Tensor> results() override {
    if constexpr (std::default_initializable<Result>)
      if (!result_) result_.emplace();
    return tensors_of(*result_);
  }
  auto take() { return std::move(*result_); }

 private:
  template <size_t... i>
  static auto result_of(const F& f, const Tensor& x, std::index_sequence<i...>) {
    if constexpr (has_list)
      return f((static_cast<void>(i), x)..., std::span<const Tensor>());
    else
      return f((static_cast<void>(i), x)...);
  }
  using Result =
      decltype(result_of(std::declval<const F&>(), std::declval<const Tensor&>(), std::make_index_sequence<N>()));
  const F& f_;
  std::optional<Result> result_;
};

/// InputPointers hold the inputs of a call in one list, without memory of the heap if they are few.
class InputPointers {
 public:
  InputPointers(std::span<const Input> inputs, std::span<const Tensor> list) : count_(inputs.size() + list.size()) {
    if (count_ > few_.size()) many_.resize(count_);
    const Tensor** next = count_ > few_.size() ? many_.data() : few_.data();
    for (const Input& input : inputs) *next++ = input.tensor;
    for (const Tensor& x : list) *next++ = &x;
  }
  Inputs all() const { return {count_ > few_.size() ? many_.data() : few_.data(), count_}; }

 private:
  const size_t count_;
  std::array<const Tensor*, 12> few_;
  std::vector<const Tensor*> many_;
};

/// Runs `call` in the modes of the thread that concern the op.
void run_in_modes(const OpInfo& info, Inputs inputs, std::span<const Attribute> attributes, OpCall& call);

/// Returns true if the op computes half types in float32 and has an input of one.
inline bool widens(const OpInfo& info, std::span<const Input> inputs, std::span<const Tensor> list) {
  if (info.compute != Compute::kFloat32) return false;
  const auto half = [](const Tensor& x) { return x.defined() && is_half(view_of(x).dtype); };
  for (const Input& input : inputs)
    if (half(*input.tensor)) return true;
  for (const Tensor& x : list)
    if (half(x)) return true;
  return false;
}

// This is outlined, so that the frame of the path is no part of an op's own.
template <size_t N, bool has_list, class F>
[[gnu::noinline, gnu::cold]] auto run_outlined(const OpInfo& info, std::span<const Input> inputs,
                                               std::span<const Tensor> list, std::span<const Attribute> attributes,
                                               const F& f) {
  OpCallOf<N, has_list, F> call(f);
  run_in_modes(info, InputPointers(inputs, list).all(), attributes, call);
  return call.take();
}

}  // namespace detail

///@{
/// Returns f(inputs…), run in the modes of the thread. f's result is a Tensor, a std::vector of them or a struct of
/// nothing but Tensors. Inputs may be undefined.
template <size_t N, class F>
[[gnu::always_inline]] inline auto call(Op op, const detail::Input (&inputs)[N], std::span<const Attribute> attributes,
                                        const F& f) {
  if (op.concerns(op_modes) || detail::widens(op.info(), inputs, {})) [[unlikely]]
    return detail::run_outlined<N, false>(op.info(), inputs, {}, attributes, f);
  return [&]<size_t... i>(std::index_sequence<i...>) { return f(*inputs[i].tensor...); }
  (std::make_index_sequence<N>());
}
template <size_t N, class F>
[[gnu::always_inline]] inline auto call(Op op, const detail::Input (&inputs)[N],
                                        std::initializer_list<Attribute> attributes, const F& f) {
  return call(op, inputs, std::span(attributes.begin(), attributes.size()), f);
}
/// Returns f(inputs…, list) likewise.
template <size_t N, class F>
[[gnu::always_inline]] inline auto call(Op op, const detail::Input (&inputs)[N], std::span<const Tensor> list,
                                        std::initializer_list<Attribute> attributes, const F& f) {
  if (op.concerns(op_modes) || detail::widens(op.info(), inputs, list)) [[unlikely]]
    return detail::run_outlined<N, true>(op.info(), inputs, list, std::span(attributes.begin(), attributes.size()), f);
  return [&]<size_t... i>(std::index_sequence<i...>) { return f(*inputs[i].tensor..., list); }
  (std::make_index_sequence<N>());
}
/// Returns f(list) likewise.
template <class F>
[[gnu::always_inline]] inline auto call(Op op, std::span<const Tensor> list,
                                        std::initializer_list<Attribute> attributes, const F& f) {
  if (op.concerns(op_modes) || detail::widens(op.info(), {}, list)) [[unlikely]]
    return detail::run_outlined<0, true>(op.info(), {}, list, std::span(attributes.begin(), attributes.size()), f);
  return f(list);
}
///@}

///@{
/// Returns f(inputs…) of an op that a mode concerns, as `call` does. It is for the smallest ops, whose time is that of
/// a few calls: f is the op itself, so that the compiler inlines what the op does once instead of twice.
///
///   if (op.concerns(op_modes)) [[unlikely]]
///     return call_in_modes(op, {x}, {}, [&](const Tensor& x) { return unary(op, x); });
template <size_t N, class F>
auto call_in_modes(Op op, const detail::Input (&inputs)[N], std::span<const Attribute> attributes, const F& f) {
  // Autocast and tracing are off where f runs. So must be what makes calls wait, or f would come back here.
  const auto once = [&](const auto&... x) {
    const detail::NoSuspendGuard no_suspend;
    return f(x...);
  };
  return detail::run_outlined<N, false>(op.info(), inputs, {}, attributes, once);
}
template <size_t N, class F>
auto call_in_modes(Op op, const detail::Input (&inputs)[N], std::initializer_list<Attribute> attributes, const F& f) {
  return call_in_modes(op, inputs, std::span(attributes.begin(), attributes.size()), f);
}
///@}

}  // namespace reel
