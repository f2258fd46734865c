#pragma once
#include <string>

#include "reel/nn/module.h"
#include "reel/ops/pad.h"

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
using ZeroPad1d = Padding<1, kZeros>;
using ZeroPad2d = Padding<2, kZeros>;
using ZeroPad3d = Padding<3, kZeros>;
using ReflectionPad1d = Padding<1, kReflect>;
using ReflectionPad2d = Padding<2, kReflect>;
using ReflectionPad3d = Padding<3, kReflect>;
using ReplicationPad1d = Padding<1, kReplicate>;
using ReplicationPad2d = Padding<2, kReplicate>;
using ReplicationPad3d = Padding<3, kReplicate>;
using CircularPad1d = Padding<1, kCircular>;
using CircularPad2d = Padding<2, kCircular>;
using CircularPad3d = Padding<3, kCircular>;

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
using ConstantPad1d = ConstantPad<1>;
using ConstantPad2d = ConstantPad<2>;
using ConstantPad3d = ConstantPad<3>;

}  // namespace reel::nn
