#pragma once
#include <string>

#include "reel/nn/module.h"
#include "reel/ops/pad.h"

#pragma GCC visibility push(default)
/// Padding as layers; see reel/ops/pad.h. The amounts are one number for all sides of the last N dimensions, or
/// {left, right, top, bottom, front, back}, as far as there are dimensions.
namespace reel::nn {

/// ZeroPad, ReflectionPad, ReplicationPad and CircularPad for 1, 2 and 3 dimensions.
template <int N, PadMode kMode>
struct Padding : Layer<Padding<N, kMode>> {
  explicit Padding(PerDim<2 * N> amounts) : padding(amounts) {}
  Padding(Module& parent, std::string name, PerDim<2 * N> padding) : Padding(padding) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<2 * N> padding;
};
using ZeroPad1d = Padding<1, kZeros>;             ///< For x [n, channels, w].
using ZeroPad2d = Padding<2, kZeros>;             ///< For x [n, channels, h, w].
using ZeroPad3d = Padding<3, kZeros>;             ///< For x [n, channels, d, h, w].
using ReflectionPad1d = Padding<1, kReflect>;     ///< For x [n, channels, w].
using ReflectionPad2d = Padding<2, kReflect>;     ///< For x [n, channels, h, w].
using ReflectionPad3d = Padding<3, kReflect>;     ///< For x [n, channels, d, h, w].
using ReplicationPad1d = Padding<1, kReplicate>;  ///< For x [n, channels, w].
using ReplicationPad2d = Padding<2, kReplicate>;  ///< For x [n, channels, h, w].
using ReplicationPad3d = Padding<3, kReplicate>;  ///< For x [n, channels, d, h, w].
using CircularPad1d = Padding<1, kCircular>;      ///< For x [n, channels, w].
using CircularPad2d = Padding<2, kCircular>;      ///< For x [n, channels, h, w].
using CircularPad3d = Padding<3, kCircular>;      ///< For x [n, channels, d, h, w].

/// Padding by a number.
template <int N>
struct ConstantPad : Layer<ConstantPad<N>> {
  ConstantPad(PerDim<2 * N> amounts, double number) : padding(amounts), value(number) {}
  ConstantPad(Module& parent, std::string name, PerDim<2 * N> padding, double value) : ConstantPad(padding, value) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const;
  std::string name() const override;
  std::string extra_repr() const override;

  const PerDim<2 * N> padding;
  const double value;
};
using ConstantPad1d = ConstantPad<1>;  ///< For x [n, channels, w].
using ConstantPad2d = ConstantPad<2>;  ///< For x [n, channels, h, w].
using ConstantPad3d = ConstantPad<3>;  ///< For x [n, channels, d, h, w].

}  // namespace reel::nn
#pragma GCC visibility pop
