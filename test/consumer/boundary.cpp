// What must work between a program and the library, also a shared one: exceptions and types are the same on both sides,
// and what a program derives, instantiates and hands over is called back.
#include <reel/reel.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

using namespace reel;

namespace {

#define EXPECT(condition) \
  if (!(condition)) throw std::logic_error("boundary.cpp: " #condition)

struct Stop : std::exception {};

struct Twice : nn::Module {
  Tensor operator()(const Tensor& x) const { return x * 2; }
};
struct Net : nn::Module {
  nn::Linear linear{*this, "linear", 2, 2};
  Twice twice;
  Net() { register_module("twice", twice); }
};

struct Doubled : Function<Doubled> {
  static constexpr const char* name = "doubled";
  static std::vector<Tensor> forward(FunctionContext&, const std::vector<Tensor>& in) { return {in[0] * 2}; }
  static std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>& g) { return {g[0] * 2}; }
};

template <class Thrown, class F>
bool throws(F f) {
  try {
    f();
  } catch (const Thrown&) {
    return true;
  }
  return false;
}

}  // namespace

int main() {
  EXPECT(version() == std::to_string(REEL_VERSION_MAJOR) + "." + std::to_string(REEL_VERSION_MINOR) + "." +
                          std::to_string(REEL_VERSION_PATCH));

  // The library's exception here, and a program's own through the library's frames.
  EXPECT(throws<Error>([] { matmul(ones({2, 3}), ones({2, 3})); }));
  EXPECT(throws<std::runtime_error>([] { io::load("/no/such/file"); }));
  Tensor x = ones({2}).requires_grad_();
  x.register_hook([](const Tensor&) -> Tensor { throw Stop(); });
  EXPECT(throws<Stop>([&] { sum(x).backward(); }));

  // Types of either side behind a base class.
  Net net;
  int linears = 0, twices = 0;
  for (nn::Module* module : net.modules()) {
    linears += dynamic_cast<nn::Linear*>(module) != nullptr;
    twices += dynamic_cast<Twice*>(module) != nullptr;
  }
  EXPECT(linears == 1 && twices == 1);

  // Templates that are instantiated here.
  const Tensor y = ones({1}).requires_grad_();
  Doubled::apply({y})[0].backward();
  EXPECT(y.grad().item<float>() == 2);
  nn::Sequential steps(nn::ReLU(), [](const Tensor& t) { return t + 1; });
  EXPECT(steps(zeros({1})).item<float>() == 1);
  EXPECT(throws<Error>([] { REEL_CHECK(false, "a check of a program's own, ", kFloat32); }));
}
