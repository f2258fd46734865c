// Kernels on their own: products beside the peak of the machine's multipliers, and what moves memory beside memcpy.
#include "bench/kernels.h"

#include "bench/reel.h"

using namespace reel;

namespace {

void product(const bench::Report& report, double secs, const bench::Product& p) {
  const std::string limit = bench::field("limit", bench::peak_gflops(secs, report.threads()));
  const Tensor a = p.trans_a ? rand({p.k, p.m}).t() : rand({p.m, p.k});
  const Tensor b = p.trans_b ? rand({p.n, p.k}).t() : rand({p.k, p.n});
  const auto repeat = [&] {
    for (int i = 0; i < p.repeats(); ++i) mm(a, b);
  };
  report.rate(p.name, bench::measure(repeat, secs), p.flop() * p.repeats() * 1e-9, "GFLOP/s", limit);
}

void streams(ReelReport& report, double secs, const bench::Size& size) {
  /// f(x, y, row, column) for matrices x and y, and vectors, reads and writes x's bytes `moved` times.
  const auto stream = [&](const std::string& kernel, double moved, const auto& f) {
    const std::string name = "k.stream." + kernel + "." + size.name;
    report.run(name, [&] {
      const std::string limit = bench::field("limit", bench::memcpy_bandwidth(size, secs, report.threads()));
      const Tensor x = rand({size.rows, size.columns}), y = rand({size.rows, size.columns});
      const Tensor weight = rand({size.columns}), bias = rand({size.columns});
      const auto repeat = [&] {
        for (int i = 0; i < size.repeats; ++i) f(x, y, weight, bias);
      };
      report.rate(name, bench::measure(repeat, secs), moved * size.gigabytes() * size.repeats, "GB/s", limit);
    });
  };
  using T = const Tensor&;
  stream("copy", 2, [](T x, T, T, T) { return x.clone(); });
  stream("add", 3, [](T x, T y, T, T) { return x + y; });
  stream("exp", 2, [](T x, T, T, T) { return exp(x); });
  stream("tanh", 2, [](T x, T, T, T) { return tanh(x); });
  stream("softmax", 2, [](T x, T, T, T) { return softmax(x, 1); });
  stream("layernorm", 2, [&](T x, T, T weight, T bias) { return layer_norm(x, {size.columns}, weight, bias); });
  stream("layernorm_grad", 6, [&](T x, T y, T weight, T bias) {
    EnableGrad recorded;
    const Tensor a = x.detach().requires_grad_(), w = weight.detach().requires_grad_();
    const Tensor b = bias.detach().requires_grad_();
    return grad({layer_norm(a, {size.columns}, w, b)}, {a, w, b}, {y})[0];
  });
  stream("sum", 1, [](T x, T, T, T) { return sum(x); });
  stream("sum_last", 1, [](T x, T, T, T) { return sum(x, 1); });
  stream("sum_first", 1, [](T x, T, T, T) { return sum(x, 0); });
  stream("transposed", 2, [](T x, T, T, T) { return x.t().contiguous(); });
}

/// Attention over 64 sequences of 5 to 64 rows with 4 heads of 32 columns, forward and with gradients: by lengths, and
/// padded with a mask.
void attention(const bench::Report& report, double secs) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 64; ++i) lengths.push_back(5 + i * 37 % 60);
  const std::shared_ptr<const Lengths> known = Lengths::of(lengths);
  const auto sequences = [&] { return Ragged{rand({known->total(), 4, 32}).requires_grad_(), known}; };
  const Ragged q = sequences(), k = sequences(), v = sequences();
  const auto padded = [](const Ragged& x) { return x.pad().transpose(1, 2).contiguous().detach().requires_grad_(); };
  const Tensor pq = padded(q), pk = padded(k), pv = padded(v), mask = k.mask().unsqueeze(1).unsqueeze(1);
  const auto both = [&](const std::string& name, const std::vector<Tensor>& in, const auto& attend) {
    bench::time_calls(report, secs, name + ".fwd", 1, attend);
    bench::time_calls(report, secs, name + ".grad", 1, [&] {
      EnableGrad recorded;
      return grad({sum(attend())}, {in[0], in[1], in[2]});
    });
  };
  both("k.attention.64x5-64.ragged", {q.values, k.values, v.values},
       [&] { return scaled_dot_product_attention(q, k, v).values; });
  both("k.attention.64x5-64.padded", {pq, pk, pv},
       [&] { return scaled_dot_product_attention(pq, pk, pv, {.mask = mask}); });
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  const double secs = options.secs;
  NoGrad guard;
  if (report.on_gpu()) {
    report.skip("k", "it compares with what a processor and its memory can do; gpu.cpp has kernels of GPUs");
    return 0;
  }

  for (const bench::Product& p : bench::kProducts) report.run(p.name, [&] { product(report, secs, p); });
  report.run("k.gemm.1x1x1", [&] {
    const Tensor a = rand({1, 1}), b = rand({1, 1});
    bench::time_calls(report, secs, "k.gemm.1x1x1", 1000, [&] { return mm(a, b); });
  });
  report.run("k.gemv600x300.mv", [&] {
    const Tensor w = rand({600, 300}), x = rand({300});
    bench::time_calls(report, secs, "k.gemv600x300.mv", 100, [&] { return mv(w, x); });
  });
  report.run("k.gemv600x300.mm1row", [&] {
    const Tensor w = rand({600, 300}).t(), x = rand({1, 300});
    bench::time_calls(report, secs, "k.gemv600x300.mm1row", 100, [&] { return mm(x, w); });
  });
  report.run("k.adam.16M", [&] {
    const Tensor p = rand({16 << 20}).requires_grad_();
    {
      EnableGrad recorded;
      sum(p).backward();
    }
    optim::Adam adam({p}, {.lr = 1e-3});
    bench::time_calls(report, secs, "k.adam.16M", 1, [&] { adam.step(); });
  });
  report.run("k.embedding_grad.100000x128", [&] {
    const Tensor table = rand({20000, 128}).requires_grad_(), g = rand({100000, 128});
    const Tensor ids = randint(0, 20000, {100000});
    bench::time_calls(report, secs, "k.embedding_grad.100000x128", 1, [&] {
      EnableGrad recorded;
      return grad({embedding(table, ids)}, {table}, {g});
    });
  });
  report.run("k.attention.64x5-64", [&] { attention(report, secs); });
  for (const bench::Size& size : bench::kSizes) streams(report, secs, size);
  return report.good() ? 0 : 1;
}
