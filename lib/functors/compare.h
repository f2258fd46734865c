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

using CompareList = std::tuple<Eq, Ne, Lt, Le, LogicalAnd, LogicalOr, LogicalXor>;

// clang-format on

}  // namespace reel::functors
