#pragma once
#include <array>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
// Runs the hooks of a Layer around its forward, and finds the Tensors in arguments and results for them: Tensors
// themselves, and those in lists, optionals, pairs, tuples, Ragged and structs of Tensors. Structs are searched if all
// of their members are Tensors or structs of Tensors, twelve at most.
namespace reel {
struct Ragged;
}
namespace reel::nn {
class Module;
}

namespace reel::nn::internal {

struct Hooks;

// ---- structs of Tensors ---------------------------------------------------------------------------------------------

struct TensorField {
  operator Tensor() const;
};
struct AnyField {
  template <class T>
  operator T() const;
};
template <class Field, size_t>
using Repeat = Field;
template <class T, class Field, size_t... i>
constexpr bool made_of(std::index_sequence<i...>) {
  return requires { T{Repeat<Field, i>{}...}; };
}
inline constexpr size_t kMaxFields = 12;

// As many Tensors as fit, with inner braces left out, are all that it has.
template <class T>
constexpr bool is_struct_of_tensors() {
  if constexpr (std::is_aggregate_v<T> && std::is_class_v<T> && sizeof(T) % sizeof(Tensor) == 0 &&
                sizeof(T) <= kMaxFields * sizeof(Tensor))
    return made_of<T, TensorField>(std::make_index_sequence<sizeof(T) / sizeof(Tensor)>());
  else
    return false;
}
template <class T, size_t n = kMaxFields>
constexpr size_t num_fields() {
  if constexpr (n == 0 || made_of<T, AnyField>(std::make_index_sequence<n>()))
    return n;
  else
    return num_fields<T, n - 1>();
}
template <class T>
auto fields(T& value) {
  constexpr size_t n = num_fields<std::remove_const_t<T>>();
  if constexpr (n == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
}

// ---- what has Tensors in it -----------------------------------------------------------------------------------------

enum class Kind { kNone, kTensor, kList, kOptional, kTuple, kStruct };
template <class T>
struct Look {
  static constexpr Kind kind = std::derived_from<T, Tensor> ? Kind::kTensor
                               : is_struct_of_tensors<T>()  ? Kind::kStruct
                                                            : Kind::kNone;
};
template <class T>
inline constexpr Kind kind_of = Look<std::remove_cvref_t<T>>::kind;
template <Kind kind, class... T>
struct LookInto {
  static constexpr Kind value = ((kind_of<T> != Kind::kNone) || ...) ? kind : Kind::kNone;
};
template <class T, class Allocator>
struct Look<std::vector<T, Allocator>> {
  static constexpr Kind kind = LookInto<Kind::kList, T>::value;
};
template <>
struct Look<Ragged> {  // its values
  static constexpr Kind kind = Kind::kStruct;
};
template <class T, size_t n>
struct Look<std::array<T, n>> {
  static constexpr Kind kind = LookInto<Kind::kList, T>::value;
};
template <class T>
struct Look<std::span<T>> {
  static constexpr Kind kind = LookInto<Kind::kList, T>::value;
};
template <>
struct Look<TensorList> : Look<std::span<const Tensor>> {};
template <class T>
struct Look<std::optional<T>> {
  static constexpr Kind kind = LookInto<Kind::kOptional, T>::value;
};
template <class A, class B>
struct Look<std::pair<A, B>> {
  static constexpr Kind kind = LookInto<Kind::kTuple, A, B>::value;
};
template <class... T>
struct Look<std::tuple<T...>> {
  static constexpr Kind kind = LookInto<Kind::kTuple, T...>::value;
};

/// visit(tensor) for every Tensor in value, in order.
template <class T, class Visit>
void visit_tensors(T& value, const Visit& visit) {
  constexpr Kind kind = kind_of<T>;
  const auto each = [&](auto&... parts) { (visit_tensors(parts, visit), ...); };
  if constexpr (kind == Kind::kTensor)
    visit(value);
  else if constexpr (kind == Kind::kList)
    for (auto& part : value) visit_tensors(part, visit);
  else if constexpr (kind == Kind::kOptional)
    value ? visit_tensors(*value, visit) : void();
  else if constexpr (kind == Kind::kTuple)
    std::apply(each, value);
  else if constexpr (kind == Kind::kStruct)
    std::apply(each, fields(value));
}
template <class... T>
std::vector<Tensor> collect_tensors(const T&... values) {
  std::vector<Tensor> all;
  (visit_tensors(values, [&](const Tensor& tensor) { all.push_back(tensor); }), ...);
  return all;
}

// ---- arguments that hooks may replace -------------------------------------------------------------------------------

// A copy of an argument with Tensors in it, so that they can be replaced; any other argument itself.
template <class Arg>
struct Held {
  using Copy = std::conditional_t<kind_of<Arg> == Kind::kTensor, Tensor, std::remove_cvref_t<Arg>>;
  using Type = std::conditional_t<kind_of<Arg> == Kind::kNone, Arg&&, Copy>;
  Type value;
  explicit Held(Arg&& arg) : value(std::forward<Arg>(arg)) {}
  decltype(auto) pass() {
    if constexpr (std::is_lvalue_reference_v<Arg>)
      return (value);
    else
      return std::move(value);
  }
};
template <class T>
struct HeldList {
  std::vector<std::remove_const_t<T>> value;
  explicit HeldList(std::span<const T> list) : value(list.begin(), list.end()) {}
  auto& pass() { return value; }
};
template <class T, class Arg>
Held<Arg> hold(const T*, Arg&& arg) {
  return Held<Arg>(std::forward<Arg>(arg));
}
template <class T, class Arg>
requires(kind_of<T> != Kind::kNone) HeldList<T> hold(const std::span<T>*, Arg&& list) { return HeldList<T>(list); }
inline HeldList<const Tensor> hold(const TensorList*, TensorList list) { return HeldList<const Tensor>(list); }

// ---- the call -------------------------------------------------------------------------------------------------------

/// One call of a module with hooks: its constructor runs the hooks before forward, finish() those after it.
class HookedCall {
 public:
  HookedCall(const Module& module, std::vector<Tensor> inputs);
  ~HookedCall();
  HookedCall(const HookedCall&) = delete;
  HookedCall& operator=(const HookedCall&) = delete;
  const std::vector<Tensor>& inputs() const { return inputs_; }
  std::vector<Tensor> finish(std::vector<Tensor> outputs);
  /// For outputs that forward returns by reference, which hooks may not replace.
  void finish_in_place(const std::vector<Tensor>& outputs);
  [[noreturn]] void rethrow() const;

 private:
  struct Backward;
  const Module& module_;
  const std::shared_ptr<Hooks> hooks_;
  std::vector<Tensor> inputs_, shown_;
  std::shared_ptr<Backward> backward_;
  std::shared_ptr<void> no_suspend_;  // while members show values of this call
};

template <class Self, class... Args>
[[gnu::noinline]] decltype(auto) call_with_hooks(Self& self, Args&&... args) {
  using Result = decltype(self.forward(std::forward<Args>(args)...));
  const auto replace = [](const std::vector<Tensor>& by, auto&... values) {
    [[maybe_unused]] auto next = by.begin();
    (visit_tensors(values, [&](Tensor& tensor) { tensor = *next++; }), ...);
  };
  const auto call = [&](auto... held) -> Result {
    HookedCall call(self, collect_tensors(held.value...));
    replace(call.inputs(), held.value...);
    try {
      if constexpr (std::is_void_v<Result>) {
        self.forward(held.pass()...);
        call.finish({});
      } else if constexpr (std::is_reference_v<Result>) {
        Result result = self.forward(held.pass()...);
        call.finish_in_place(collect_tensors(result));
        return static_cast<Result>(result);
      } else {
        std::remove_cv_t<Result> result = self.forward(held.pass()...);
        replace(call.finish(collect_tensors(result)), result);
        return result;
      }
    } catch (const Error&) {
      call.rethrow();
    }
  };
  return call(hold(static_cast<std::remove_cvref_t<Args>*>(nullptr), std::forward<Args>(args))...);
}

}  // namespace reel::nn::internal
#pragma GCC visibility pop
