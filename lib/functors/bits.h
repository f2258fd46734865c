#pragma once
#include "lib/functors/list.h"
#include "lib/functors/number.h"

// Functions of the bits of two integers.
namespace reel::functors {

// A formula a line, whatever clang-format makes of templates:
// clang-format off

struct BitAnd { template <class T> REEL_HD T operator()(T a, T b) const { return T(a & b); } };
struct BitOr { template <class T> REEL_HD T operator()(T a, T b) const { return T(a | b); } };
struct BitXor { template <class T> REEL_HD T operator()(T a, T b) const { return T(a ^ b); } };
/// By a number of places outside [0, bits of T) all bits of T are shifted out.
struct ShiftLeft {
  template <class T> REEL_HD T operator()(T a, T b) const {
    return b < T(0) || b >= T(8 * sizeof(T)) ? T(0) : T(static_cast<uint64_t>(a) << b);
  }
};
struct ShiftRight {
  template <class T> REEL_HD T operator()(T a, T b) const {
    return b < T(0) || b >= T(8 * sizeof(T)) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b);
  }
};

using BitList = std::tuple<BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight>;

// clang-format on

}  // namespace reel::functors
