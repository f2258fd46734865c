#pragma once
#include <concepts>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/detail/batching.h"
#include "reel/nn/detail/call.h"

#pragma GCC visibility push(default)
// Calls of layers that others may join: see reel/batching.h.
namespace reel::nn::internal {

/// Derived's kBatching or, of a class within a function, which cannot have one, batching_mode().
template <class Derived>
constexpr batching::Mode batching_of() {
  if constexpr (requires { Derived::kBatching; })
    return Derived::kBatching;
  else if constexpr (requires { Derived::batching_mode(); })
    return Derived::batching_mode();
  else
    return batching::kNone;
}

/// For reports: "encoder.fc (Linear)".
std::string label_of(const Module& module);

/// visit(&tensor) for each Tensor in value as visit_tensors does, and visit(nullptr) behind each list and optional, so
/// that values with the same visits have the same structure.
template <class T, class Visit>
void visit_structure(const T& value, const Visit& visit) {
  constexpr Kind kind = kind_of<T>;
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
    std::apply(each, fields(value));
  }
}

/// Is self.forward(args…) a call that others may join? It returns Tensors by value, leaves its arguments as they are,
/// and those of them that have no Tensors can be compared. A Ragged has lengths, which rows of its values do not keep.
template <class Self, class... Args>
concept Joinable = ((kind_of<Args> != Kind::kNone || std::equality_comparable<std::remove_cvref_t<Args>>)&&...) &&
                   (!std::same_as<std::remove_cvref_t<Args>, Ragged> && ...) &&
                   requires(Self& self, const std::remove_reference_t<Args>&... args) {
  requires !std::is_reference_v<decltype(self.forward(args...))>;
  requires kind_of<decltype(self.forward(args...))>
  != Kind::kNone;
  requires !std::same_as<std::remove_cv_t<decltype(self.forward(args...))>, Ragged>;
};

/// Reports the call of a layer in which no call waits.
class UnjoinedCall {
 public:
  UnjoinedCall(const Module& module, const char* reason)
      : module_(module), reason_(reason), scheduler_(batching::internal::scheduler()) {
    if (scheduler_ && !scheduler_->reports()) scheduler_ = nullptr;
    if (scheduler_) waits_ = scheduler_->waits();
  }
  ~UnjoinedCall() {
    if (scheduler_ && scheduler_->waits() == waits_) report();
  }
  UnjoinedCall(const UnjoinedCall&) = delete;
  UnjoinedCall& operator=(const UnjoinedCall&) = delete;

 private:
  void report() noexcept;
  const Module& module_;
  const char* const reason_;
  batching::internal::BatchScheduler* scheduler_;
  int64_t waits_ = 0;
};

/// The call self.forward(args…) in a fiber that waits.
template <class Self, class... Args>
class JoinedCall final : public batching::internal::Call {
 public:
  using Result = std::remove_cv_t<decltype(std::declval<Self&>().forward(std::declval<const Args&>()...))>;

  JoinedCall(Self& self, const void* what, bool training, int64_t min_rank, const Args&... args)
      : Call(batching::kRows, what, typeid(JoinedCall), training, min_rank), self_(self), args_(args...) {
    (visit_structure(args, [this](const Tensor* tensor) { add(tensor); }), ...);
  }

  void run(std::span<const Tensor> inputs) override {
    const auto forward = [&](auto... held) {
      [[maybe_unused]] auto next = inputs.begin();
      (visit_tensors(held.value, [&](Tensor& tensor) { tensor = *next++; }), ...);
      result_.emplace(self_.forward(held.pass()...));
    };
    std::apply([&](const Args&... args) { forward(hold(static_cast<const Args*>(nullptr), args)...); }, args_);
  }
  std::vector<Tensor> outputs() const override { return collect_tensors(*result_); }
  void set_result_from_group(const Call& leader, std::span<std::vector<Tensor>> outputs, size_t at) override {
    if constexpr (std::is_same_v<Result, Tensor>) {
      result_.emplace(std::move(outputs[0][at]));
    } else {
      if (this != &leader) result_.emplace(*static_cast<const JoinedCall&>(leader).result_);
      size_t i = 0;
      visit_tensors(*result_, [&](Tensor& tensor) { tensor = std::move(outputs[i++][at]); });
    }
  }
  bool same_arguments(const Call& other) const override {
    const auto& others = static_cast<const JoinedCall&>(other).args_;
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return (same(std::get<i>(args_), std::get<i>(others)) && ...);
    }
    (std::index_sequence_for<Args...>());
  }
  std::string label() const override { return label_of(self_); }
  Result result() { return std::move(*result_); }

 private:
  template <class Arg>
  static bool same(const Arg& a, const Arg& b) {
    if constexpr (kind_of<Arg> == Kind::kNone)
      return a == b;
    else
      return true;
  }

  Self& self_;
  const std::tuple<const Args&...> args_;
  std::optional<Result> result_;
};

}  // namespace reel::nn::internal
#pragma GCC visibility pop
