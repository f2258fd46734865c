// The op.* workloads under callgrind, by bench/run instructions: each phase of each chain at two lengths, whose
// difference is what an op costs.
#include <valgrind/callgrind.h>

#include <string>

#include "bench/reel.h"

using namespace reel;

namespace {

/// Counts the instructions of f() as those of "name length".
template <class F>
void count(const std::string& name, int length, const F& f) {
  CALLGRIND_ZERO_STATS;
  f();
  const std::string label = name + " " + std::to_string(length);
  CALLGRIND_DUMP_STATS_AT(label.c_str());
}

constexpr int kFew = 1000, kMany = 2000;

void add1(const std::string& name, bool requires_grad) {
  const Tensor a = ones({1}, {.requires_grad = requires_grad}), b = ones({1});
  for (const int length : {kMany, kFew, kMany}) {  // first to warm up
    count(name, length, [&] {
      for (int i = 0; i < length; ++i) const Tensor sum = a + b;
    });
  }
}

/// y = step(y), from x on, as in bench/ops.cpp.
template <class Step>
void chain(const std::string& name, std::vector<Tensor> leaves, const Step& step) {
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  for (const int length : {kMany, kFew, kMany}) {
    for (Tensor& leaf : leaves) leaf.set_grad({});
    Tensor y = leaves[0];
    count(name + ".fwd", length, [&] {
      for (int i = 0; i < length; ++i) y = step(y);
    });
    const Tensor grad = ones_like(y);
    count(name + ".bwd", length, [&] { y.backward(grad); });
    count(name + ".free", length, [&] { y.reset(); });
  }
}

}  // namespace

int main() {
  add1("op.add1.nograd", false);
  add1("op.add1.grad", true);
  const Tensor b = ones({1}), x = ones({1});
  chain("op.chain_add", {ones({1})}, [&](const Tensor& y) { return y + b; });
  chain("op.chain_addx", {x}, [&](const Tensor& y) { return y + x; });
  chain("op.chain_tanh64", {ones({64})}, [](const Tensor& y) { return tanh(y); });
  const Tensor w = filled({64, 64}, 3, 0.2f);
  chain("op.chain_mm64", {ones({1, 64}), w}, [&](const Tensor& y) { return mm(y, w); });
}
