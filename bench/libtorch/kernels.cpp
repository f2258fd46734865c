// The kernels of bench/kernels.cpp in libtorch, written into tensors that are there already where its public interface
// allows it.
#include "bench/kernels.h"

#include "bench/libtorch/torch.h"

using torch::Tensor;

namespace {

void product(const bench::Report& report, double secs, const bench::Product& p) {
  const std::string limit = bench::field("limit", bench::peak_gflops(secs, report.threads()));
  const Tensor a = p.trans_a ? torch::rand({p.k, p.m}).t() : torch::rand({p.m, p.k});
  const Tensor b = p.trans_b ? torch::rand({p.n, p.k}).t() : torch::rand({p.k, p.n});
  Tensor c = torch::empty({p.m, p.n});
  const auto repeat = [&] {
    for (int i = 0; i < p.repeats(); ++i) torch::mm_out(c, a, b);
  };
  report.rate(p.name, bench::measure(repeat, secs), p.flop() * p.repeats() * 1e-9, "GFLOP/s", limit);
}

template <class Run>
void streams(const bench::Report& report, const Run& run, double secs, const bench::Size& size) {
  const auto stream = [&](const std::string& kernel, double moved, const auto& f) {
    const std::string name = "k.stream." + kernel + "." + size.name;
    run(name, [&] {
      const std::string limit = bench::field("limit", bench::memcpy_bandwidth(size, secs, report.threads()));
      const Tensor x = torch::rand({size.rows, size.columns}), y = torch::rand({size.rows, size.columns});
      Tensor out = torch::empty({size.rows, size.columns});
      const auto repeat = [&] {
        for (int i = 0; i < size.repeats; ++i) f(out, x, y);
      };
      report.rate(name, bench::measure(repeat, secs), moved * size.gigabytes() * size.repeats, "GB/s", limit);
    });
  };
  using T = const Tensor&;
  const Tensor weight = torch::rand({size.columns}), bias = torch::rand({size.columns});
  stream("copy", 2, [](Tensor& out, T x, T) { out.copy_(x); });
  stream("add", 3, [](Tensor& out, T x, T y) { torch::add_out(out, x, y); });
  stream("exp", 2, [](Tensor& out, T x, T) { torch::exp_out(out, x); });
  stream("tanh", 2, [](Tensor& out, T x, T) { torch::tanh_out(out, x); });
  stream("softmax", 2, [](Tensor&, T x, T) { torch::softmax(x, 1); });
  stream("layernorm", 2, [&](Tensor&, T x, T) { torch::layer_norm(x, {size.columns}, weight, bias); });
  stream("sum", 1, [](Tensor&, T x, T) { x.sum(); });
  stream("sum_last", 1, [](Tensor&, T x, T) { x.sum(1); });
  stream("sum_first", 1, [](Tensor&, T x, T) { x.sum(0); });
  stream("transposed", 2, [](Tensor& out, T x, T) { out.view({x.size(1), x.size(0)}).copy_(x.t()); });
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  TorchReport report(options);
  const double secs = options.secs;
  const auto run = [&](const std::string& workload, const std::function<void()>& f) {
    report.run(workload, [&] {
      torch::InferenceMode guard;
      f();
    });
  };

  for (const bench::Product& p : bench::kProducts) run(p.name, [&] { product(report, secs, p); });
  run("k.gemm.1x1x1", [&] {
    const Tensor a = torch::rand({1, 1}), b = torch::rand({1, 1});
    Tensor c = torch::empty({1, 1});
    bench::time_calls(report, secs, "k.gemm.1x1x1", 1000, [&] { torch::mm_out(c, a, b); });
  });
  run("k.gemv600x300.mv", [&] {
    const Tensor w = torch::rand({600, 300}), x = torch::rand({300});
    Tensor y = torch::empty({600});
    bench::time_calls(report, secs, "k.gemv600x300.mv", 100, [&] { torch::mv_out(y, w, x); });
  });
  run("k.gemv600x300.mm1row", [&] {
    const Tensor w = torch::rand({600, 300}).t(), x = torch::rand({1, 300});
    Tensor y = torch::empty({1, 600});
    bench::time_calls(report, secs, "k.gemv600x300.mm1row", 100, [&] { torch::mm_out(y, x, w); });
  });
  for (const bench::Size& size : bench::kSizes) streams(report, run, secs, size);
  return report.good() ? 0 : 1;
}
