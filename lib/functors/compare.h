#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// Comparisons of two arguments, which give bool.
namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

struct Eq { template <class T> REEL_HD auto operator()(T a, T b) const { return a == b; } };
struct Ne { template <class T> REEL_HD auto operator()(T a, T b) const { return a != b; } };
struct Lt { template <class T> REEL_HD auto operator()(T a, T b) const { return a < b; } };
struct Le { template <class T> REEL_HD auto operator()(T a, T b) const { return a <= b; } };
struct LogicalAnd { template <class T> REEL_HD auto operator()(T a, T b) const { return (a != T(0)) & (b != T(0)); } };
struct LogicalOr { template <class T> REEL_HD auto operator()(T a, T b) const { return (a != T(0)) | (b != T(0)); } };
struct LogicalXor { template <class T> REEL_HD auto operator()(T a, T b) const { return (a != T(0)) != (b != T(0)); } };
/// IsClose is |a - b| <= atol + rtol |b|, for equal infinities, too, and for two NaN if `equal_nan`. Integers are compared
/// as doubles.
struct IsClose {
  double rtol, atol;
  bool equal_nan;
  template <class T> REEL_HD bool operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return (a == b) | operator()(static_cast<double>(a), static_cast<double>(b));
    } else {
      const T apart = abs(a - b);
      const bool near = (apart < T(kInfinity)) & (apart <= T(atol) + T(rtol) * abs(b));
      return (a == b) | near | (equal_nan & (a != a) & (b != b));
    }
  }
};

using CompareList = std::tuple<Eq, Ne, Lt, Le, LogicalAnd, LogicalOr, LogicalXor, IsClose>;

// clang-format on

}  // namespace reel::functors
