// What one small op costs: the tape, the allocator and the call, hardly any arithmetic.
#include "bench/reel.h"

using namespace reel;

namespace {

void add1(const bench::Report& report, double secs, const std::string& name, bool requires_grad) {
  constexpr int kOps = 1000;
  const Tensor a = rand({1}, {.requires_grad = requires_grad}), b = rand({1});
  const auto samples = bench::measure(
      [&] {
        for (int i = 0; i < kOps; ++i) const Tensor sum = a + b;
      },
      secs);
  report.time(name, samples, 1e9 / kOps, "ns/op");
}

/// y = step(y), `length` times from x on: forward, backward and release, each timed by itself.
template <class Step>
void chain(const bench::Report& report, double secs, const std::string& name, int length, std::vector<Tensor> leaves,
           const Step& step) {
  constexpr int kWarmUp = 3, kLeast = 7;
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  bench::Samples forward, backward, release;
  const double end = bench::now().wall + secs;
  for (int i = 0; i < kWarmUp + kLeast || bench::now().wall < end; ++i) {
    for (Tensor& leaf : leaves) leaf.set_grad({});
    const bench::Time start = bench::finished();
    Tensor y = leaves[0];
    for (int k = 0; k < length; ++k) y = step(y);
    const bench::Time forward_done = bench::finished();
    y.backward(ones_like(y));
    const bench::Time backward_done = bench::finished();
    y.reset();
    const bench::Time released = bench::now();
    if (i < kWarmUp) continue;
    forward.add(start, forward_done);
    backward.add(forward_done, backward_done);
    release.add(backward_done, released);
  }
  report.time(name + ".fwd", forward, 1e9 / length, "ns/op");
  report.time(name + ".bwd", backward, 1e9 / length, "ns/op");
  report.time(name + ".free", release, 1e9 / length, "ns/op");
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  const double secs = options.secs;

  report.run("op.add1.nograd", [&] { add1(report, secs, "op.add1.nograd", false); });
  report.run("op.add1.grad", [&] { add1(report, secs, "op.add1.grad", true); });
  report.run("op.chain_add", [&] {
    const Tensor x = rand({1}), b = rand({1});
    chain(report, secs, "op.chain_add", 1000, {x}, [&](const Tensor& y) { return y + b; });
  });
  report.run("op.chain_addx", [&] {  // one leaf, met 1,000 times
    const Tensor x = rand({1});
    chain(report, secs, "op.chain_addx", 1000, {x}, [&](const Tensor& y) { return y + x; });
  });
  report.run("op.chain_tanh64", [&] {
    const Tensor x = rand({64});
    chain(report, secs, "op.chain_tanh64", 1000, {x}, [](const Tensor& y) { return tanh(y); });
  });
  report.run("op.chain_mm64", [&] {
    const Tensor x = rand({1, 64}), w = filled({64, 64}, 3, 0.2f);
    chain(report, secs, "op.chain_mm64", 200, {x, w}, [&](const Tensor& y) { return mm(y, w); });
  });
  return report.good() ? 0 : 1;
}
