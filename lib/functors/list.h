#pragma once
#include <tuple>
#include <type_traits>

// What the lists of functors share (pointwise.h says what a functor is).
namespace reel::functors {

/// Which of its tensors a derivative reads: the tape keeps these and nothing else. Flags.
/// kSame: the derivative is the incoming gradient itself.
enum Save : int { kNothing = 0, kInput = 1, kOutput = 2, kA = 1, kB = 4, kSame = 8 };

template <class F, class... Others>
inline constexpr bool kIsOneOf = (std::is_same_v<F, Others> || ...);

template <class F, class... All>
consteval int position(std::tuple<All...>*) {
  static_assert((std::is_same_v<F, All> || ...), "a functor is named in a list of lib/functors");
  int at = 0;
  (void)((std::is_same_v<F, All> ? true : (++at, false)) || ...);
  return at;
}
/// The row of F in a backend's table.
template <class List, class F>
inline constexpr int index_of = position<F>(static_cast<List*>(nullptr));

}  // namespace reel::functors
