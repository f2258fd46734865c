#include "reel/nn/padding.h"

#include <catch2/catch.hpp>

#include "reel/ops.h"
#include "reel/random.h"

using namespace reel;

TEST_CASE("padding layers print as in PyTorch", "[nn][pad]") {
  CHECK(nn::ConstantPad1d(2, 3.5).to_string() == "ConstantPad1d(padding=(2, 2), value=3.5)");
  CHECK(nn::ConstantPad2d(1, 2).to_string() == "ConstantPad2d(padding=(1, 1, 1, 1), value=2)");
  CHECK(nn::ZeroPad2d(1).to_string() == "ZeroPad2d((1, 1, 1, 1))");
  CHECK(nn::ReflectionPad3d(1).to_string() == "ReflectionPad3d((1, 1, 1, 1, 1, 1))");
  CHECK(nn::ReplicationPad2d({1, 2, 3, 4}).to_string() == "ReplicationPad2d((1, 2, 3, 4))");
  CHECK(nn::CircularPad1d({1, 2}).to_string() == "CircularPad1d((1, 2))");
}

TEST_CASE("padding layers pad", "[nn][pad]") {
  manual_seed(1);
  struct Net : nn::Module {
    nn::ConstantPad1d constant1{*this, "constant1", {1, 2}, -1};
    nn::ConstantPad2d constant2{*this, "constant2", {1, 2, 0, 1}, 0.5};
    nn::ConstantPad3d constant3{*this, "constant3", 1, 2};
    nn::ZeroPad1d zero1{*this, "zero1", 1};
    nn::ZeroPad2d zero2{*this, "zero2", {1, -1, 2, 0}};
    nn::ZeroPad3d zero3{*this, "zero3", {1, 0, 2, 0, 0, 1}};
    nn::ReflectionPad1d reflect1{*this, "reflect1", 2};
    nn::ReflectionPad2d reflect2{*this, "reflect2", {1, 2, 0, 1}};
    nn::ReflectionPad3d reflect3{*this, "reflect3", 1};
    nn::ReplicationPad1d replicate1{*this, "replicate1", 5};
    nn::ReplicationPad2d replicate2{*this, "replicate2", {1, 2, 0, 7}};
    nn::ReplicationPad3d replicate3{*this, "replicate3", 3};
    nn::CircularPad1d circular1{*this, "circular1", 3};
    nn::CircularPad2d circular2{*this, "circular2", {1, 2, 0, 3}};
    nn::CircularPad3d circular3{*this, "circular3", 2};
  } net;
  const Tensor line = randn({2, 2, 4}), plane = randn({2, 2, 3, 4}), volume = randn({2, 2, 2, 3, 4});
  const auto check = [](const Tensor& a, const Tensor& b) {
    CHECK(a.shape() == b.shape());
    CHECK(a.to_vector<float>() == b.to_vector<float>());
  };
  check(net.constant1(line), pad(line, {1, 2}, kConstant, -1));
  check(net.constant2(plane), pad(plane, {1, 2, 0, 1}, kConstant, 0.5));
  check(net.constant3(volume), pad(volume, {1, 1, 1, 1, 1, 1}, kConstant, 2));
  check(net.zero1(line), pad(line, {1, 1}));
  check(net.zero2(plane), pad(plane, {1, -1, 2, 0}));
  check(net.zero3(volume), pad(volume, {1, 0, 2, 0, 0, 1}));
  check(net.reflect1(line), pad(line, {2, 2}, kReflect));
  check(net.reflect2(plane), pad(plane, {1, 2, 0, 1}, kReflect));
  check(net.reflect3(volume), pad(volume, {1, 1, 1, 1, 1, 1}, kReflect));
  check(net.replicate1(line), pad(line, {5, 5}, kReplicate));
  check(net.replicate2(plane), pad(plane, {1, 2, 0, 7}, kReplicate));
  check(net.replicate3(volume), pad(volume, {3, 3, 3, 3, 3, 3}, kReplicate));
  check(net.circular1(line), pad(line, {3, 3}, kCircular));
  check(net.circular2(plane), pad(plane, {1, 2, 0, 3}, kCircular));
  check(net.circular3(volume), pad(volume, {2, 2, 2, 2, 2, 2}, kCircular));
}
