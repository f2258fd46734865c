// These functions let pointwise kernels take operands whose order in memory is not that of the result.
#pragma once
#include <utility>

#include "lib/cpu/parts.h"

namespace reel::cpu::REEL_ISA {

/// Returns whether rows of the view are not adjacent elements, but those of another dimension are.
bool needs_reordering(const View& x);

/// Calls f(views) with the dimensions of the views sorted by the strides of the last one.
void call_reordered(const View* const* views, int count, PartFunction call, const void* f);

/// Calls f(parts) for parts of the views of a pointwise kernel, of which the last is the result: at once where they are
/// large, and so that rows of all parts are adjacent elements or repeat one, where reordered dimensions or copies of
/// transposed operands make them so. Views that are nullptr stay nullptr.
void call_strided(const View* const* views, int count, PartFunction call, const void* f);

/// Pointwise is a kernel for views of one shape, the last argument of which is the result. run() calls it for parts
/// where they are large, and in the order in which the elements of the result lie in memory.
template <auto kernel>
struct Pointwise;
template <class... Args, void (*kernel)(Args...)>
struct Pointwise<kernel> {
  static void run(Args... args) {
    if ((is_contiguous(args) && ...)) [[likely]]
      return Divided<kernel>::run(args...);
    run_strided(std::index_sequence_for<Args...>(), args...);
  }

 private:
  template <class T>
  static bool is_contiguous(const T& x) {
    if constexpr (std::is_same_v<T, View>)
      return x.contiguous;
    else if constexpr (std::is_same_v<T, const View*>)
      return !x || x->contiguous;
    else
      return true;
  }
  template <size_t... i>
  [[gnu::noinline]] static void run_strided(std::index_sequence<i...>, const Args&... args) {
    const auto call_kernel = [&](const View* const* parts) { kernel(part_or(args, parts[i])...); };
    const auto call = [](const void* f, const View* const* parts) {
      (*static_cast<const decltype(call_kernel)*>(f))(parts);
    };
    const View* const views[] = {view_in(args)...};
    call_strided(views, sizeof...(Args), call, &call_kernel);
  }
};

}  // namespace reel::cpu::REEL_ISA
