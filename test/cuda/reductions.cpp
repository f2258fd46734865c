#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "lib/device/kernels/enums.h"
#include "lib/device/kernels/norm.h"
#include "lib/device/kernels/table.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "test/support/tolerance.h"

// Reductions, scans, softmax and norms on a GPU against the CPU's, for sizes that the op table does not have: where a
// row no longer fits into registers, a sum is shared by blocks, a scan is cut in chunks.
namespace reel {
namespace {

using Generator = std::mt19937_64;
using Tensors = std::vector<Tensor>;

const double kNaN = std::nan(""), kInf = std::numeric_limits<double>::infinity();

/// Numbers of [-2, 2], whole ones for integers; a few of them infinite or NaN if `odd`.
Tensor numbers(const Shape& shape, DType dtype, Generator& random, bool odd = false) {
  std::vector<double> values(shape.numel());
  for (double& v : values) {
    v = std::uniform_real_distribution<>(-2, 2)(random);
    if (!is_floating_point(dtype)) v = std::round(dtype == kInt32 || dtype == kInt64 ? 3 * v : std::abs(v));
    if (odd && is_floating_point(dtype) && random() % 50 == 0) v = random() % 3 ? (random() % 2 ? kInf : -kInf) : kNaN;
  }
  return tensor(values, shape, {.device = kCPU}).to(dtype);
}

/// x in another layout.
Tensor lay_out(const Tensor& x, int layout) {
  const int rank = x.shape().size();
  if (rank == 0) return x;
  Shape back = x.shape();
  for (int d = 0; d < rank; ++d) back[d] = rank - 1 - d;
  switch (layout) {
    case 1: return x.permute(back).contiguous().permute(back);
    case 2: return cat({x, x}, -1).slice(-1, 1, {}, 2).narrow(-1, 0, x.size(-1));
    case 3: return x.numel() ? x.narrow(0, 0, 1).expand(x.shape()) : x;
    case 4: return rank > 1 ? x.transpose(0, 1).contiguous().transpose(0, 1) : x;
    default: return x;
  }
}

/// As close as rounding allows, relative to the largest element.
void compare(const Tensor& expected, const Tensor& result, double error, double least = 0) {
  const std::vector<double> a = expected.to_vector<double>(), b = result.to(kCPU).to_vector<double>();
  REQUIRE(a.size() == b.size());
  double scale = least;
  for (double v : a)
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]) || std::abs(a[i] - b[i]) <= error * scale;
    if (same) continue;
    INFO("element " << i << " of " << a.size() << ": " << b[i] << ", not " << a[i]);
    REQUIRE(same);
  }
}

const KernelTable& on_gpu() { return kernels_on(kCUDA); }
const KernelTable& on_cpu() { return cpu_kernels(); }
/// A tensor, and the layout that it is brought into.
struct Input {
  Tensor x;
  int layout = 0;
  Input(const Tensor& tensor, int how = 0) : x(tensor), layout(how) {}
  Tensor on(Device device, DType dtype) const { return x.defined() ? lay_out(x.to(dtype).to(device), layout) : x; }
  Tensor on(Device device) const { return x.defined() ? on(device, x.dtype()) : x; }
};
using Inputs = std::vector<Input>;
Tensor made(const Shape& shape, DType dtype, Device device) { return empty(shape, {.dtype = dtype, .device = device}); }

/// f(table, inputs, outputs) on both machines; the outputs must agree.
template <class F>
void check(const Inputs& inputs, const std::vector<std::pair<Shape, DType>>& outputs, const F& f) {
  Tensors cpu_inputs, gpu_inputs, cpu_outputs, gpu_outputs;
  for (const Input& x : inputs) cpu_inputs.push_back(x.on(kCPU)), gpu_inputs.push_back(x.on(kCUDA));
  for (const auto& [shape, dtype] : outputs) {
    cpu_outputs.push_back(made(shape, dtype, kCPU));
    gpu_outputs.push_back(made(shape, dtype, kCUDA));
  }
  const auto views = [](const Tensors& tensors) {
    std::vector<View> all;
    for (const Tensor& t : tensors) all.push_back(t.defined() ? view_of(t) : View());
    return all;
  };
  f(on_cpu(), views(cpu_inputs), views(cpu_outputs));
  f(on_gpu(), views(gpu_inputs), views(gpu_outputs));
  for (size_t i = 0; i < outputs.size(); ++i) {
    INFO("output " << i);
    compare(cpu_outputs[i], gpu_outputs[i], tolerance_of(outputs[i].second));
  }
}

bool no_gpu() {
  if (cuda::is_available()) return false;
  WARN("there is no GPU that CUDA can use");
  return true;
}

using Views = std::vector<View>;
const DType kAllDTypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kUInt8, kInt32, kInt64, kBool};

}  // namespace

TEST_CASE("GPU: reductions of any dimensions", "[cuda]") {
  if (no_gpu()) return;
  Generator random(1);
  const struct {
    Shape shape;
    std::vector<int> gone;
  } cases[] = {{{}, {}},
               {{7}, {0}},
               {{40000}, {0}},
               {{3, 5}, {1}},
               {{3, 5}, {0}},
               {{5, 1030}, {1}},
               {{1030, 5}, {0}},
               {{300, 70}, {0}},
               {{300, 70}, {1}},
               {{6, 20000}, {1}},
               {{20000, 3}, {0}},
               {{4, 3, 5, 7}, {0, 2, 3}},
               {{9, 8, 33}, {0, 2}},
               {{9, 8, 33}, {1}},
               {{64, 3, 400}, {0, 2}},
               {{0, 3}, {0}},
               {{3, 0}, {0}},
               {{2, 3, 4}, {0, 1, 2}},
               {{4, 1, 6}, {1}},
               {{33, 64}, {1}},
               {{5, 4096}, {0}},
               {{1030, 40}, {0}},
               {{9, 50, 24}, {0, 1}},
               {{9, 50, 24}, {1}},
               {{20000, 8}, {0}}};
  for (const auto& [shape, gone] : cases)
    for (const DType dtype : kAllDTypes)
      for (int layout = 0; layout < 5; ++layout)
        for (const bool odd : {false, true}) {
          if (odd && (!is_floating_point(dtype) || layout)) continue;
          const Input x(numbers(shape, dtype, random, odd), layout);
          Shape kept = shape;
          for (int d : gone) kept[d] = 1;
          INFO(shape << " to " << kept << ", " << dtype << ", layout " << layout);
          const auto reduce = [&](ReduceOp op) {
            INFO("op " << static_cast<int>(op));
            check({x}, {{kept, dtype}}, [&](const KernelTable& table, const Views& in, const Views& out) {
              table.reduce(op, in[0], out[0]);
            });
          };
          if (dtype == kFloat32 || dtype == kFloat64 || dtype == kInt64) reduce(ReduceOp::kSum);
          if ((dtype == kFloat32 || dtype == kFloat64 || dtype == kInt64) && shape.numel() < 100)
            reduce(ReduceOp::kProd);
          reduce(ReduceOp::kMax);
          reduce(ReduceOp::kMin);
          if (dtype == kBool) reduce(ReduceOp::kAny), reduce(ReduceOp::kAll);
          if (gone.size() == 1 && shape.numel())
            for (const bool largest : {true, false})
              check({x}, {{kept, kInt64}},
                    [&, dim = gone[0]](const KernelTable& table, const Views& in, const Views& out) {
                      table.arg_reduce(largest, in[0], dim, out[0]);
                    });
        }
}

TEST_CASE("GPU: a sum of many float32 numbers is exact", "[cuda]") {
  if (no_gpu()) return;
  for (const Shape& shape : {Shape{1 << 20}, Shape{1 << 18, 4}}) {
    const Tensor x = full(shape, 0.1, {.dtype = kFloat32, .device = kCUDA});
    Shape kept = shape;
    kept[0] = 1;
    const Tensor y = made(kept, kFloat32, kCUDA);
    on_gpu().reduce(ReduceOp::kSum, view_of(x), view_of(y));
    compare(full(kept, double(0.1f) * double(shape[0]), {.dtype = kFloat64, .device = kCPU}), y, 1e-7);
  }
}

TEST_CASE("GPU: scans", "[cuda]") {
  if (no_gpu()) return;
  Generator random(2);
  const struct {
    Shape shape;
    int dim;
  } cases[] = {{{}, 0},        {{1}, 0},      {{5}, 0},       {{100}, 0},       {{3000}, 0},   {{40000}, 0},
               {{4, 30}, 1},   {{4, 130}, 1}, {{7, 2000}, 1}, {{300, 3}, 0},    {{30, 40}, 0}, {{3, 200, 5}, 1},
               {{2, 9000}, 1}, {{0, 3}, 0},   {{3, 0}, 0},    {{2, 3, 1500}, 2}};
  for (const auto& [shape_, dim_] : cases)
    for (const DType dtype : kAllDTypes) {
      if (dtype == kBool) continue;
      for (int layout = 0; layout < 5; ++layout)
        for (const bool odd : {false, true}) {
          const Shape& shape = shape_;
          const int dim = dim_;
          if (odd && (!is_floating_point(dtype) || layout)) continue;
          const Input x(numbers(shape, dtype, random, odd), layout);
          INFO(shape << " along " << dim << ", " << dtype << ", layout " << layout << ", odd " << odd);
          const auto scan = [&](ScanOp op) {
            INFO("op " << static_cast<int>(op));
            check({x}, {{shape, dtype}}, [&](const KernelTable& table, const Views& in, const Views& out) {
              table.scan(op, in[0], dim, out[0]);
            });
          };
          scan(ScanOp::kSum);
          if (!is_floating_point(dtype) || shape.numel() < 200) scan(ScanOp::kProd);
          if (is_floating_point(dtype)) scan(ScanOp::kLogSumExp);
          for (const bool largest : {true, false})
            check({x}, {{shape, dtype}, {shape, kInt64}},
                  [&](const KernelTable& table, const Views& in, const Views& out) {
                    table.cum_extreme(largest, in[0], dim, out[0], out[1]);
                  });
          if (dtype != kFloat32 && dtype != kFloat64) continue;
          const Input g(numbers(shape, dtype, random), (layout + 1) % 5);
          const Tensor lse = made(shape, dtype, kCPU);
          const Input in(where(x.x == kInf, -kInf, x.x), layout);  // some that count for nothing
          on_cpu().scan(ScanOp::kLogSumExp, view_of(in.on(kCPU)), dim, view_of(lse));
          check({g, in, lse}, {{shape, dtype}}, [&](const KernelTable& table, const Views& v, const Views& out) {
            table.logcumsumexp_grad(v[0], v[1], v[2], dim, out[0]);
          });
        }
    }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

namespace {

/// As check(), with the CPU computing in float64 what is some float on the GPU. Errors are relative to the largest
/// element, or to `least` if that is more.
template <class F>
void check_wide(DType dtype, const Inputs& inputs, const std::vector<std::pair<Shape, DType>>& outputs, const F& f,
                double least = 0) {
  const auto widened = [](DType type) { return is_floating_point(type) ? kFloat64 : type; };
  Tensors wide_inputs, gpu_inputs, wide_outputs, gpu_outputs;
  std::vector<View> in, out, gpu_in, gpu_out;
  for (const Input& input : inputs) {
    wide_inputs.push_back(input.x.defined() ? input.on(kCPU, widened(input.x.dtype())) : input.x);
    gpu_inputs.push_back(input.on(kCUDA));
    in.push_back(input.x.defined() ? view_of(wide_inputs.back()) : View());
    gpu_in.push_back(input.x.defined() ? view_of(gpu_inputs.back()) : View());
  }
  for (const auto& [shape, type] : outputs) {
    wide_outputs.push_back(made(shape, widened(type), kCPU));
    gpu_outputs.push_back(made(shape, type, kCUDA));
    out.push_back(view_of(wide_outputs.back())), gpu_out.push_back(view_of(gpu_outputs.back()));
  }
  f(on_cpu(), in, out);
  f(on_gpu(), gpu_in, gpu_out);
  for (size_t i = 0; i < outputs.size(); ++i) {
    INFO("output " << i);
    const double own = tolerance_of(gpu_outputs[i].dtype());
    compare(wide_outputs[i], gpu_outputs[i], dtype == kFloat64 ? own : std::max(own, tolerance_of(kFloat32)), least);
  }
}

const DType kFloats[] = {kFloat32, kFloat64, kFloat16, kBFloat16};
const int64_t kLengths[] = {1, 2, 3, 10, 32, 33, 100, 256, 257, 1000, 1024, 4096, 8192, 8195, 12000};

Tensor ids(int64_t count, int64_t low, int64_t high, Generator& random) {
  std::vector<int64_t> values(count);
  for (int64_t& v : values) v = std::uniform_int_distribution<int64_t>(low, high - 1)(random);
  return tensor(values, {count}, {.device = kCPU});
}

}  // namespace

TEST_CASE("GPU: sums and means of all floats", "[cuda]") {
  if (no_gpu()) return;
  Generator random(7);
  const struct {
    Shape shape, kept;
  } cases[] = {{{}, {}},
               {{40000}, {1}},
               {{5, 1030}, {5, 1}},
               {{1030, 5}, {1, 5}},
               {{0, 3}, {1, 3}},
               {{6, 20000}, {6, 1}},
               {{4, 3, 5, 7}, {1, 3, 1, 1}},
               {{9, 8, 33}, {9, 1, 33}},
               {{1030, 72}, {1, 72}},
               {{20000, 16}, {1, 16}}};
  for (const auto& [shape_, kept_] : cases)
    for (const DType dtype : kFloats)
      for (int layout = 0; layout < 5; ++layout) {
        const Shape &shape = shape_, &kept = kept_;
        INFO(shape << " to " << kept << ", " << dtype << ", layout " << layout);
        const Input x(numbers(shape, dtype, random) * 0.25, layout);  // no sum overflows
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean})
          check_wide(dtype, {x}, {{kept, dtype}}, [&](const KernelTable& table, const Views& in, const Views& out) {
            table.reduce(op, in[0], out[0]);
          });
      }
}

namespace {

/// Checks softmax and cross entropy of numbers of a shape [n, classes, d…].
void check_softmax(const Shape& shape, DType dtype, Generator& random) {
  for (const bool odd : {false, true}) {
    INFO(shape << ", " << dtype << ", odd " << odd);
    Tensor x = numbers(shape, dtype, random) * 5;
    if (odd)  // infinities, and in one row nothing else
      x = where(numbers(shape, dtype, random) > 1.5, -kInf, x), x[0].fill_(-kInf), x[-1][0].fill_(kInf);
    const Tensor g = numbers(shape, dtype, random), y = softmax(x, 1);
    const int64_t n = shape[1], rows = x.numel() / n;
    const Tensor t = ids(rows, -2, n, random);
    for (const bool log : {false, true}) {
      INFO("log " << log);
      check_wide(dtype, {x}, {{shape, dtype}}, [&](const KernelTable& table, const Views& in, const Views& out) {
        table.softmax(log, in[0], 1, out[0]);
      });
      if (odd) continue;
      check_wide(
          dtype, {g, log ? reel::log(y) : y}, {{shape, dtype}},
          [&](const KernelTable& table, const Views& in, const Views& out) {
            table.softmax_grad(log, in[0], in[1], 1, out[0]);
          },
          0.1);
    }
    const DType wide = is_half(dtype) ? kFloat32 : dtype;
    const Tensor count = full({}, 3, {.dtype = wide, .device = kCPU});
    const Tensor max = amax(x.to(kFloat64), 1), total = sum(exp(x.to(kFloat64) - max.unsqueeze(1)), 1);
    const Tensor norms = stack({max.flatten(), 1 / total.flatten()}, 1).to(wide);
    const Tensor loss_g = numbers({rows}, dtype, random).to(wide);
    for (const double smoothing : {0., 0.2})
      for (const bool divided : {false, true}) {
        INFO("smoothing " << smoothing << ", divided " << divided);
        check_wide(
            dtype, {x, t, count}, {{{rows}, wide}, {{rows, 2}, wide}},
            [&](const KernelTable& table, const Views& in, const Views& out) {
              table.cross_entropy(smoothing, in[0], in[1], divided ? &in[2] : nullptr, out[0], &out[1], nullptr);
            },
            0.1);
        if (odd) continue;
        for (const int layout : {0, 2, 3})
          check_wide(
              dtype, {{loss_g, layout}, x, norms, t, count}, {{shape, dtype}},
              [&](const KernelTable& table, const Views& in, const Views& out) {
                table.cross_entropy_grad(smoothing, in[0], in[1], in[2], in[3], divided ? &in[4] : nullptr, out[0]);
              },
              0.1);
      }
  }
}

}  // namespace

TEST_CASE("GPU: softmax and cross entropy of rows of any length", "[cuda]") {
  if (no_gpu()) return;
  Generator random(3);
  for (const int64_t n : kLengths)
    for (const int64_t rows : {1, 5, 19})
      for (const DType dtype : kFloats)
        if (rows * n <= 50000) check_softmax({rows, n}, dtype, random);
}

// ---- norms ----------------------------------------------------------------------------------------------------------

namespace {

struct NormCase {
  int64_t outer, groups, channels, inner;
};

void check_norm(const NormCase& c, DType dtype, bool by_channel, bool parameters, bool center, bool given,
                double offset, Generator& random) {
  INFO(c.outer << " x " << c.groups << " x " << c.channels << " x " << c.inner << ", " << dtype << ", parameters "
               << parameters << ", center " << center << ", given " << given << ", offset " << offset);
  const Shape shape{c.outer, c.groups, c.channels, c.inner}, each{c.groups, c.channels};
  const int64_t statistics = by_channel ? c.groups : c.outer * c.groups;
  // What the gradient of a norm of one or two elements cancels has the size of 1 / √eps.
  const bool small = (by_channel ? c.outer * c.inner : c.channels * c.inner) <= 2;
  const Tensor x = (numbers(shape, dtype, random) + offset).to(dtype), g = numbers(shape, dtype, random);
  const Tensor w = parameters ? numbers(each, dtype, random) : Tensor(),
               b = parameters ? numbers(each, dtype, random) : w;
  const Tensor means = numbers({statistics}, kFloat64, random);
  const Tensor variances = square(numbers({statistics}, kFloat64, random)) + 0.1;
  const auto describe = [&](const Views& in, const Views& out) {
    Norm norm{};
    norm.dtype = in[0].dtype;
    norm.outer = c.outer, norm.groups = c.groups, norm.channels = c.channels, norm.inner = c.inner;
    norm.eps = 1e-5, norm.center = center, norm.given = given;
    norm.x = in[0].data, norm.weight = in[1].data;
    norm.mean = out[0].as<double>(), norm.variance = out[1].as<double>();
    return norm;
  };
  const auto forward = [&](const KernelTable& table, const Views& in, const Views& out) {
    Norm norm = describe(in, out);
    if (given) table.copy(in[3], out[0]), table.copy(in[4], out[1]);
    norm.bias = in[2].data;
    norm.y = out[2].data;
    by_channel ? table.channel_norm(norm) : table.row_norm(norm);
  };
  // The statistics are float64 whatever dtype is; those of x as it is in that dtype.
  check_wide(dtype, {x, w, b, means, variances}, {{{statistics}, kFloat64}, {{statistics}, kFloat64}, {shape, dtype}},
             forward, 1);
  for (const bool gx : {true, false})
    for (const bool gw : {true, false}) {
      if (!gx && !gw) continue;
      const auto backward = [&](const KernelTable& table, const Views& in, const Views& out) {
        Norm norm = describe(in, out);
        std::vector<char> unused;
        Norm first = norm;
        if (given) table.copy(in[3], out[0]), table.copy(in[4], out[1]);
        first.y = out[2].data;
        by_channel ? table.channel_norm(first) : table.row_norm(first);
        for (const int i : {3, 4}) table.fill(out[i], 0.0);
        table.fill(out[2], 0.0);
        norm.grad_y = in[5].data;
        norm.grad_x = gx ? out[2].data : nullptr;
        norm.grad_weight = gw ? out[3].data : nullptr;
        norm.grad_bias = gw && gx ? out[4].data : nullptr;
        by_channel ? table.channel_norm_grad(norm) : table.row_norm_grad(norm);
      };
      check_wide(
          dtype, {x, w, b, means, variances, g},
          {{{statistics}, kFloat64}, {{statistics}, kFloat64}, {shape, dtype}, {each, kFloat64}, {each, kFloat64}},
          backward, small ? 300 : 4);
    }
}

}  // namespace

TEST_CASE("GPU: softmax and cross entropy along a dimension that is not the last", "[cuda]") {
  if (no_gpu()) return;
  Generator random(4);
  for (const Shape& shape : {Shape{3, 21, 5, 7}, Shape{2, 1, 9}, Shape{1, 130, 33}, Shape{2, 3, 1}})
    for (const DType dtype : kFloats) check_softmax(shape, dtype, random);
}

TEST_CASE("GPU: norms of rows of any length", "[cuda]") {
  if (no_gpu()) return;
  Generator random(4);
  for (const NormCase& c : std::initializer_list<NormCase>{{5, 1, 7, 1},
                                                           {3, 1, 64, 1},
                                                           {40, 1, 256, 1},
                                                           {4, 1, 1000, 1},
                                                           {2, 1, 8192, 1},
                                                           {3, 1, 9001, 1},
                                                           {3, 2, 3, 5},
                                                           {2, 3, 4, 8},
                                                           {2, 4, 6, 1},
                                                           {2, 2, 3, 3000},
                                                           {1, 1, 1, 1},
                                                           {3, 1, 1, 50},
                                                           {2, 1, 5, 12},
                                                           {700, 1, 20, 1},
                                                           {600, 1, 1100, 1},
                                                           {7, 1, 1, 64}})
    for (const DType dtype : kFloats)
      for (const bool parameters : {true, false})
        for (const bool center : {true, false}) {
          const bool large = c.outer * c.channels > 500000;
          if (large && (!parameters || !center || dtype == kFloat64)) continue;
          check_norm(c, dtype, false, parameters, center, false, 0, random);
          if (dtype == kFloat32 && center && c.channels * c.inner > 1)
            check_norm(c, dtype, false, parameters, center, false, 1000, random);
        }
}

TEST_CASE("GPU: norms of channels", "[cuda]") {
  if (no_gpu()) return;
  Generator random(5);
  for (const NormCase& c : std::initializer_list<NormCase>{{5, 3, 1, 7},
                                                           {40, 64, 1, 1},
                                                           {9, 33, 1, 1},
                                                           {4, 5, 1, 64},
                                                           {64, 3, 1, 400},
                                                           {1, 2, 1, 9000},
                                                           {3, 1, 1, 50},
                                                           {2000, 2, 1, 1},
                                                           {4, 300, 1, 4},
                                                           {2, 1, 1, 1}})
    for (const DType dtype : kFloats)
      for (const bool parameters : {true, false})
        for (const bool given : {true, false}) {
          check_norm(c, dtype, true, parameters, true, given, 0, random);
          if (dtype == kFloat32 && !given) check_norm(c, dtype, true, parameters, true, given, 1000, random);
        }
}

// ---- segments -------------------------------------------------------------------------------------------------------

TEST_CASE("GPU: ragged rows", "[cuda]") {
  if (no_gpu()) return;
  Generator random(6);
  for (const std::vector<int64_t>& lengths : std::initializer_list<std::vector<int64_t>>{
           {}, {3}, {0, 4, 1, 0, 7, 2}, {5000}, {0, 0}, {40, 1, 33, 2500, 12}, {3000, 4000}})
    for (const int64_t m : {0, 1, 2, 5, 32, 33, 70})
      for (const DType dtype : {kFloat32, kFloat64})
        for (const bool odd : {false, true}) {
          std::vector<int64_t> bounds{0};
          for (const int64_t length : lengths) bounds.push_back(bounds.back() + length);
          const int64_t n = bounds.back(), s = lengths.size();
          if (n * m > 30000 * (dtype == kFloat32 ? 3 : 1)) continue;
          INFO(n << " rows in " << s << " segments x " << m << ", " << dtype << ", odd " << odd);
          Tensor x = numbers({n, m}, dtype, random, odd);
          if (!odd) x = round(x * 2);  // ties
          const Tensor offsets = tensor(bounds, {s + 1}, {.device = kCPU}), g = numbers({n, m}, dtype, random);
          const Tensor gs = numbers({s, m}, dtype, random), best = made({s, m}, dtype, kCPU);
          for (const SegmentOp op : {SegmentOp::kSum, SegmentOp::kMean, SegmentOp::kMax, SegmentOp::kMin}) {
            INFO("op " << static_cast<int>(op));
            check_wide(dtype, {x, offsets}, {{{s, m}, dtype}},
                       [&](const KernelTable& table, const Views& in, const Views& out) {
                         table.segment_reduce(op, in[0], in[1], out[0]);
                       });
          }
          for (const bool mean : {false, true})
            check_wide(dtype, {gs, offsets}, {{{n, m}, dtype}},
                       [&](const KernelTable& table, const Views& in, const Views& out) {
                         table.segment_broadcast(mean, in[0], in[1], out[0]);
                       });
          on_cpu().segment_reduce(SegmentOp::kMax, view_of(x), view_of(offsets), view_of(best));
          check_wide(dtype, {gs, x, best, offsets}, {{{n, m}, dtype}},
                     [&](const KernelTable& table, const Views& in, const Views& out) {
                       table.segment_extreme_grad(in[0], in[1], in[2], in[3], out[0]);
                     });
          check_wide(dtype, {x, offsets}, {{{n, m}, dtype}},
                     [&](const KernelTable& table, const Views& in, const Views& out) {
                       table.segment_softmax(in[0], in[1], out[0]);
                     });
          check_wide(dtype, {g, g, offsets}, {{{n, m}, dtype}},
                     [&](const KernelTable& table, const Views& in, const Views& out) {
                       table.segment_softmax_grad(in[0], in[1], in[2], out[0]);
                     });
        }
}

}  // namespace reel
