// Products, convolutions and pooling on a GPU beyond the op table: half types, unaligned data, every argument of the
// kernels. The CPU's kernels in float64 are the reference.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/gemm.h"
#include "lib/device/kernels/pool.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/precision.h"
#include "reel/random.h"

namespace reel::cuda {
[[gnu::weak]] unsigned long long fallbacks();  // cuda/runtime.h; absent from a build without CUDA
}

namespace simt {
[[gnu::weak]] extern unsigned long long launches();
}  // namespace simt

using namespace reel;

namespace {

constexpr DType kDTypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16};

double tolerance(DType dtype) {
  return dtype == kFloat64 ? 1e-12 : dtype == kFloat32 ? 1e-5 : dtype == kFloat16 ? 2e-3 : 2e-2;
}

/// The same numbers twice: float64 on the CPU, and `dtype` on the GPU from element `skip` of a buffer on.
struct Twin {
  Tensor cpu, buffer;
  int64_t skip;
  DType dtype;

  Twin(const Tensor& values, DType type, int64_t unused = 0) : skip(unused), dtype(type) {
    const Tensor rounded = values.to(dtype).contiguous();
    cpu = rounded.to(kFloat64).clone();
    buffer = cat({zeros({skip}, {.dtype = dtype, .device = kCPU}), rounded.reshape({-1})}).to(kCUDA);
  }
  void* at() const { return static_cast<char*>(view_of(buffer).data) + skip * size_of(dtype); }
  View gpu() const {
    View view = view_of(cpu);
    view.data = at(), view.dtype = dtype;
    return view;
  }
  Tensor back() const { return buffer.to(kCPU).to(kFloat64).narrow(0, skip, cpu.numel()).reshape(cpu.shape()); }
  void check(double factor = 1) const {
    const std::vector<double> wanted = cpu.to_vector<double>(), found = back().to_vector<double>();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double limit = tolerance(dtype) * factor * (1 + std::abs(wanted[i]));
      if (std::isnan(wanted[i]) ? std::isnan(found[i])
                                : wanted[i] == found[i] || std::abs(wanted[i] - found[i]) <= limit)
        continue;
      CAPTURE(i, wanted[i], found[i], dtype, cpu.shape());
      FAIL_CHECK();
      return;
    }
    SUCCEED();
  }
};

const TensorOptions kHost{.dtype = kFloat64, .device = kCPU};
Tensor numbers(const Shape& shape) { return randn(shape, kHost); }

const KernelTable& gpu() { return kernels_on(kCUDA); }
const KernelTable& cpu() { return kernels_on(kCPU); }

// ---- products -------------------------------------------------------------------------------------------------------

struct ProductCase {
  int64_t m, n, k, batch = 1;
  bool bias = false;
  double alpha = 1, beta = 0;
  int64_t pad = 0;     // elements at the end of each row
  int64_t skip = 0;    // elements before the data
  bool one_b = false;  // for all batches
  bool relu = false, sums = false;
};

void check_product(const ProductCase& p, DType dtype, bool trans_a, bool trans_b) {
  const auto shape = [&](int64_t rows, int64_t columns) { return Shape{p.batch, rows, columns + p.pad}; };
  const Shape a_shape = trans_a ? shape(p.k, p.m) : shape(p.m, p.k);
  const Shape b_shape = trans_b ? shape(p.n, p.k) : shape(p.k, p.n);
  const Shape c_shape = shape(p.m, p.n);
  Tensor left = numbers(a_shape);
  if (p.relu && p.k) left.flatten()[0].fill_(NAN);  // which stays
  const Twin a(left, dtype, p.skip), b(numbers(b_shape), dtype, 2 * p.skip);
  const Tensor before = p.beta != 0 ? numbers(c_shape) : full(c_shape, NAN, kHost);
  const Twin c(before, dtype, 4 * p.skip), bias(numbers({p.n}), dtype, p.skip);
  const Twin sums(full({p.m}, NAN, kHost), dtype, p.skip);
  Gemm g{.dtype = kFloat64,
         .trans_a = trans_a,
         .trans_b = trans_b,
         .m = p.m,
         .n = p.n,
         .k = p.k,
         .a = view_of(a.cpu).data,
         .lda = a_shape[2],
         .b = view_of(b.cpu).data,
         .ldb = b_shape[2],
         .c = view_of(c.cpu).data,
         .ldc = c_shape[2],
         .alpha = p.alpha,
         .beta = p.beta,
         .bias = p.bias ? view_of(bias.cpu).data : nullptr,
         .batch = p.batch,
         .stride_a = a_shape[1] * a_shape[2],
         .stride_b = p.one_b ? 0 : b_shape[1] * b_shape[2],
         .stride_c = c_shape[1] * c_shape[2]};
  // The CPU's kernels do not take a leading dimension of 0.
  g.lda = std::max<int64_t>(g.lda, 1), g.ldb = std::max<int64_t>(g.ldb, 1), g.ldc = std::max<int64_t>(g.ldc, 1);
  cpu().gemm(g);
  Tensor result = c.cpu.narrow(2, 0, p.n);
  if (p.relu) result.copy_(relu(result));
  if (p.sums) Tensor(sums.cpu).copy_(sum(a.cpu.narrow(2, 0, a_shape[2] - p.pad), trans_a ? 1 : 2)[0]);
  g.dtype = dtype, g.a = a.at(), g.b = b.at(), g.c = c.at(), g.bias = p.bias ? bias.at() : nullptr;
  g.relu = p.relu, g.a_sums = p.sums ? sums.at() : nullptr;
  gpu().gemm(g);
  CAPTURE(p.m, p.n, p.k, p.batch, p.bias, p.alpha, p.beta, p.pad, p.skip, trans_a, trans_b);
  c.check(std::sqrt(static_cast<double>(p.k + 1)));
  if (p.sums) sums.check(std::sqrt(static_cast<double>(p.k + 1)));
}

}  // namespace

TEST_CASE("products of all sizes, layouts and types are the CPU's", "[cuda]") {
  if (!cuda::is_available()) return;
  const ProductCase cases[] = {{5, 7, 3},
                               {1, 1, 1},
                               {64, 48, 96},
                               {1, 33, 65},
                               {33, 1, 40},
                               {4, 6, 0},
                               {4, 6, 0, 2, false, 1, 0.5},
                               {4, 6, 0, 2, true},
                               {0, 6, 3},
                               {4, 0, 3},
                               {4, 6, 3, 0},
                               {9, 8, 7, 1, true},
                               {9, 8, 7, 3, true, 0.5},
                               {9, 8, 40, 3, false, -2, 0.25},
                               {9, 8, 40, 3, false, 1, 1, 3, 1},
                               {16, 8, 24, 2, true, 1, 0, 5, 3},
                               {6, 5, 4, 3, false, 1, 0, 0, 0, true},
                               {.m = 9, .n = 8, .k = 7, .batch = 2, .relu = true},
                               {.m = 9, .n = 8, .k = 7, .batch = 2, .bias = true, .pad = 3, .relu = true},
                               {.m = 4, .n = 6, .k = 0, .bias = true, .relu = true},
                               {.m = 9, .n = 8, .k = 70, .beta = 1, .pad = 2, .skip = 1, .sums = true},
                               {.m = 9, .n = 8, .k = 0, .sums = true},
                               {.m = 9, .n = 0, .k = 5, .sums = true}};
  for (const ProductCase& p : cases)
    for (const DType dtype : kDTypes)
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true}) check_product(p, dtype, trans_a, trans_b);
}

TEST_CASE("what a library refuses is computed all the same", "[cuda]") {
  if (!cuda::is_available() || !cuda::fallbacks) return;
  const auto before = cuda::fallbacks();
  for (const DType dtype : kDTypes) {
    check_product({1, 71, 35, 2, false, 0.5, 0.25}, dtype, true, false);
    check_product({73, 1, 35}, dtype, false, true);
  }
  const auto products = cuda::fallbacks() - before;
  const Tensor x = randn({2, 3, 7, 9}, {.device = kCPU}), w = randn({4, 3, 2, 2}, {.device = kCPU});
  CHECK(allclose(conv2d(x.to(kCUDA), w.to(kCUDA)).to(kCPU), conv2d(x, w), 1e-4, 1e-4));
  const char *const lt = std::getenv("SIMT_LT"), *const dnn = std::getenv("SIMT_DNN");
  CHECK((products > 0) == (lt && std::string(lt).find("refuse_one_row") != std::string::npos));
  CHECK((cuda::fallbacks() - before > products) == (dnn && std::string(dnn) == "0"));
}

TEST_CASE("more products than a grid has blocks", "[cuda]") {
  if (!cuda::is_available()) return;
  check_product({1, 2, 3, 70000}, kFloat32, false, false);
}

TEST_CASE("a program chooses how exact products are", "[cuda]") {
  CHECK(matmul_precision() == MatmulPrecision::kHighest);
  set_matmul_precision(MatmulPrecision::kHigh);
  CHECK(matmul_precision() == MatmulPrecision::kHigh);
  if (cuda::is_available()) {
    const Tensor a = randn({40, 50}, {.device = kCPU}), b = randn({50, 30}, {.device = kCPU});
    const double error = max(abs(matmul(a.to(kCUDA), b.to(kCUDA)).to(kCPU) - matmul(a, b))).item<double>();
    CHECK(error < 0.1);
  }
  set_matmul_precision(MatmulPrecision::kHighest);
}

TEST_CASE("a program chooses how cuDNN's engines are found", "[cuda]") {
  CHECK_FALSE(cuda::cudnn_benchmark());
  CHECK(cuda::cudnn_deterministic());
  cuda::set_cudnn_benchmark(true), cuda::set_cudnn_deterministic(false);
  CHECK(cuda::cudnn_benchmark());
  CHECK_FALSE(cuda::cudnn_deterministic());
  if (cuda::is_available())
    for (int run = 0; run < 2; ++run) {  // the engines are timed in the first
      const Tensor x = randn({2, 4, 9, 9}, {.device = kCPU}), w = randn({8, 4, 3, 3}, {.device = kCPU});
      Tensor grads[2];
      for (const Device device : {kCPU, kCUDA}) {
        const Tensor weight = w.to(device).clone().requires_grad_();
        sum(square(conv2d(x.to(device), weight))).backward();
        grads[device == kCUDA] = weight.grad().to(kCPU);
      }
      CHECK(allclose(grads[0], grads[1], 1e-4, 1e-3));
    }
  cuda::set_cudnn_benchmark(false), cuda::set_cudnn_deterministic(true);
}

TEST_CASE("a bias' gradient comes along with its weight's where that is faster", "[cuda]") {
  if (!cuda::is_available()) return;
  const auto launched = [](bool sums) {
    const auto before = simt::launches ? simt::launches() : 0;
    check_product({.m = 9, .n = 8, .k = 70, .sums = sums}, kFloat32, true, false);
    return simt::launches ? simt::launches() - before : 0;
  };
  const char* const lt = std::getenv("SIMT_LT");
  const std::string library = lt ? lt : "";
  cuda::set_cudnn_benchmark(true);
  launched(true);  // both ways are timed
  const auto with = launched(true), without = launched(false);
  if (library.find("slow_sums") != std::string::npos) CHECK(with == without + 1);
  if (library.find("fast_sums") != std::string::npos) CHECK(with == without);
  cuda::set_cudnn_benchmark(false);
  const auto untimed = launched(true);
  if (simt::launches && library.find("plain") == std::string::npos) CHECK(untimed == without);
}

// ---- convolutions ---------------------------------------------------------------------------------------------------

namespace {

using Three = std::array<int64_t, 3>;

struct ConvCase {
  int dims;
  int64_t n, in, out, groups;
  Three x, kernel, stride = {1, 1, 1}, dilation = {1, 1, 1}, before = {0, 0, 0};
  Three after = {0, 0, 0};  // negative ones leave pixels out
};
const ConvCase kConvCases[] = {{2, 2, 3, 4, 1, {1, 7, 8}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
                               {2, 2, 4, 6, 2, {1, 9, 8}, {1, 3, 2}, {1, 2, 3}, {1, 1, 1}, {0, 1, 0}, {0, 1, 0}},
                               {2, 1, 4, 4, 4, {1, 9, 8}, {1, 3, 3}, {1, 1, 1}, {1, 2, 2}, {0, 2, 2}, {0, 2, 2}},
                               {2, 2, 3, 2, 1, {1, 5, 5}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 1, 1}},
                               {2, 2, 3, 2, 1, {1, 9, 9}, {1, 2, 2}, {1, 2, 2}, {1, 1, 1}, {0, 1, 1}, {0, -4, -5}},
                               {1, 3, 2, 5, 1, {1, 1, 20}, {1, 1, 5}, {1, 1, 2}, {1, 1, 1}, {0, 0, 2}, {0, 0, 2}},
                               {1, 3, 2, 5, 1, {1, 1, 20}, {1, 1, 3}, {1, 1, 1}, {1, 1, 4}, {0, 0, 8}, {0, 0, 0}},
                               {3, 2, 2, 3, 1, {4, 5, 6}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {1, 1, 1}, {0, 1, 2}},
                               {3, 1, 2, 2, 2, {4, 5, 6}, {2, 1, 3}, {2, 1, 1}, {1, 1, 1}, {0, 0, 1}, {0, 0, 1}},
                               {2, 3, 1, 4, 1, {1, 12, 16}, {1, 3, 16}, {1, 1, 1}, {1, 1, 1}, {0, 1, 0}, {0, 1, 0}},
                               {1, 70, 3, 4, 1, {1, 1, 5}, {1, 1, 1}}};

Convolution statement(const ConvCase& c) {
  Convolution form{.dtype = kFloat64,
                   .dims = c.dims,
                   .n = c.n,
                   .in = c.in,
                   .out = c.out,
                   .groups = c.groups,
                   .x_size = c.x,
                   .kernel = c.kernel,
                   .y_size = {1, 1, 1},
                   .stride = c.stride,
                   .dilation = c.dilation,
                   .before = c.before};
  for (size_t d = 0; d < 3; ++d) {
    const int64_t reach = (c.kernel[d] - 1) * c.dilation[d] + 1;
    form.y_size[d] = (c.x[d] + c.before[d] + c.after[d] - reach) / c.stride[d] + 1;
  }
  return form;
}

/// With `last`, x and y lie on the GPU with their channels last.
void check_convolution(const ConvCase& c, DType dtype, ConvPart wanted, bool with_bias, bool last) {
  Convolution form = statement(c);
  const auto make = [&](ConvPart part, const Shape& shape) {
    return Twin(part == wanted ? full(shape, NAN, kHost) : numbers(shape), dtype);
  };
  const auto sized = [](int64_t a, int64_t b, const Three& s) { return Shape{a, b, s[0], s[1], s[2]}; };
  Twin parts[] = {make(kConvX, sized(c.n, c.in, form.x_size)),
                  make(kConvWeight, sized(c.out, c.in / c.groups, form.kernel)),
                  make(kConvY, sized(c.n, c.out, form.y_size))};
  const Twin bias(numbers({c.out}), dtype);
  const auto use = [&](auto pick) {
    for (size_t part = 0; part < 3; ++part) form.data[part] = pick(parts[part]);
    form.bias = with_bias ? pick(bias) : nullptr;
  };
  use([](const Twin& twin) { return view_of(twin.cpu).data; });
  CHECK(cpu().convolve(wanted, form));
  form.dtype = dtype, form.channels_last = {last, false, last};
  for (const ConvPart part : {kConvX, kConvY}) {
    if (!last) continue;
    parts[part] = Twin(movedim(parts[part].cpu, 1, -1), dtype);
    if (part == wanted) parts[part].buffer.fill_(NAN);
  }
  use([](const Twin& twin) { return twin.at(); });
  CAPTURE(&c - kConvCases, int(wanted), with_bias, last);
  if (gpu().convolve(wanted, form))
    parts[wanted].check(10);
  else
    CHECK(last);
}

}  // namespace

TEST_CASE("convolutions of all kinds and types are the CPU's", "[cuda]") {
  if (!cuda::is_available()) return;
  // With test/simt once more as if cuDNN refused every convolution, or those with a bias.
  for (const char* known : {"1", "0", "no_bias"}) {
    setenv("SIMT_DNN", known, 1);
    for (const ConvCase& c : kConvCases)
      for (const DType dtype : kDTypes)
        for (const bool last : {false, true}) {
          for (const ConvPart wanted : {kConvX, kConvWeight, kConvY}) check_convolution(c, dtype, wanted, false, last);
          check_convolution(c, dtype, kConvY, true, last);
        }
  }
  unsetenv("SIMT_DNN");
}

TEST_CASE("windows become columns and columns images as on the CPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const ConvCase& c : kConvCases)
    for (const DType dtype : kDTypes) {
      Convolution form = statement(c);
      const auto volume = [](const Three& s) { return s[0] * s[1] * s[2]; };
      const Shape x_shape{c.n, c.in, volume(form.x_size)},
          y_shape{c.n, c.in * volume(form.kernel), volume(form.y_size)};
      for (const bool to_columns : {true, false}) {
        const Twin x(to_columns ? numbers(x_shape) : full(x_shape, NAN, kHost), dtype);
        const Twin y(to_columns ? full(y_shape, NAN, kHost) : numbers(y_shape), dtype);
        form.dtype = kFloat64, form.data = {view_of(x.cpu).data, nullptr, view_of(y.cpu).data};
        to_columns ? cpu().unfold(form) : cpu().fold(form);
        form.dtype = dtype, form.data = {x.at(), nullptr, y.at()};
        to_columns ? gpu().unfold(form) : gpu().fold(form);
        CAPTURE(&c - kConvCases, to_columns);
        (to_columns ? y : x).check();
      }
    }
}

// ---- pooling --------------------------------------------------------------------------------------------------------

namespace {

Pooling pool(int64_t planes, Three in, Three kernel, Three stride, Three padding = {0, 0, 0},
             Three dilation = {1, 1, 1}, bool ceil = false) {
  Pooling p{planes, in, {}, kernel, stride, padding, dilation};
  for (size_t d = 0; d < 3; ++d) {
    const int64_t room = in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1 + (ceil ? stride[d] - 1 : 0);
    p.out[d] = room / stride[d] + 1;
    if (ceil && (p.out[d] - 1) * stride[d] >= in[d] + padding[d]) --p.out[d];
  }
  return p;
}
Pooling adaptive(int64_t planes, Three in, Three out) {
  Pooling p{planes, in, out, {}, {}, {0, 0, 0}, {1, 1, 1}, true, false};
  for (size_t d = 0; d < 3; ++d) p.kernel[d] = p.stride[d] = in[d] / out[d];
  return p;
}
const Pooling kPools[] = {pool(3, {1, 8, 9}, {1, 2, 2}, {1, 2, 2}),
                          pool(3, {1, 8, 9}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}),
                          pool(2, {1, 7, 7}, {1, 2, 3}, {1, 2, 2}, {0, 1, 0}, {1, 1, 1}, true),
                          pool(2, {1, 1, 50}, {1, 1, 4}, {1, 1, 3}, {0, 0, 2}),
                          pool(2, {5, 6, 7}, {2, 3, 2}, {1, 2, 2}, {1, 1, 1}),
                          pool(2, {1, 20, 21}, {1, 7, 6}, {1, 3, 5}, {0, 3, 3}),
                          pool(2, {1, 13, 13}, {1, 13, 13}, {1, 1, 1}),
                          adaptive(2, {1, 7, 9}, {1, 3, 4}),
                          adaptive(2, {1, 5, 4}, {1, 8, 6}),
                          adaptive(2, {3, 13, 17}, {2, 2, 2})};
const Pooling kDilated[] = {pool(2, {1, 9, 9}, {1, 3, 3}, {1, 1, 2}, {0, 1, 1}, {1, 2, 2}),
                            pool(2, {1, 1, 60}, {1, 1, 33}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
                            pool(2, {1, 30, 30}, {1, 7, 7}, {1, 2, 2}, {0, 3, 2}, {1, 3, 4})};

Shape shape_of(int64_t planes, const Three& size) { return {planes, size[0], size[1], size[2]}; }

void check_max_pool(const Pooling& p, const Tensor& values, DType dtype) {
  const Twin x(values, dtype), y(full(shape_of(p.planes, p.out), NAN, kHost), dtype);
  const Tensor wanted = zeros(shape_of(p.planes, p.out), {.dtype = kInt64, .device = kCPU}), found = wanted.to(kCUDA);
  cpu().max_pool(p, view_of(x.cpu), view_of(y.cpu), &view_of(wanted));
  gpu().max_pool(p, x.gpu(), y.gpu(), &view_of(found));
  y.check(0);
  CHECK(found.to(kCPU).to_vector<int64_t>() == wanted.to_vector<int64_t>());
  gpu().max_pool(p, x.gpu(), y.gpu(), nullptr);
  y.check(0);
}

template <class F>
void for_each_pool(const F& f, bool dilated) {
  for (const Pooling& p : kPools) f(p);
  for (const Pooling& p : kDilated)
    if (dilated || p.dilation == Three{1, 1, 1}) f(p);
}

}  // namespace

TEST_CASE("maxima of windows and their places are the CPU's", "[cuda]") {
  if (!cuda::is_available()) return;
  for_each_pool(
      [](const Pooling& p) {
        CAPTURE(p.in, p.kernel);
        const Shape shape = shape_of(p.planes, p.in);
        const Tensor one_nan = numbers(shape);
        one_nan.data<double>()[p.in[1] * p.in[2] / 2] = NAN;
        for (const DType dtype : kDTypes) {
          check_max_pool(p, numbers(shape), dtype);
          check_max_pool(p, randint(0, 3, shape, {.device = kCPU}).to(kFloat64), dtype);
          check_max_pool(p, full(shape, -INFINITY, kHost), dtype);
          check_max_pool(p, one_nan, dtype);
        }
      },
      true);
}

TEST_CASE("averages of windows and their gradients are the CPU's", "[cuda]") {
  if (!cuda::is_available()) return;
  for_each_pool(
      [](Pooling p) {
        CAPTURE(p.in, p.kernel);
        for (const DType dtype : kDTypes)
          for (const int way : {0, 1, 2}) {
            p.count_include_pad = way == 0, p.divisor = way == 2 ? 5 : 0;
            const Twin x(numbers(shape_of(p.planes, p.in)), dtype), y(numbers(shape_of(p.planes, p.out)), dtype);
            cpu().avg_pool_grad(p, view_of(y.cpu), view_of(x.cpu));
            gpu().avg_pool_grad(p, y.gpu(), x.gpu());
            x.check(4);
            const Twin x2(numbers(shape_of(p.planes, p.in)), dtype);
            cpu().avg_pool(p, view_of(x2.cpu), view_of(y.cpu));
            gpu().avg_pool(p, x2.gpu(), y.gpu());
            y.check(4);
          }
      },
      false);
}

TEST_CASE("resampling and its adjoint are the CPU's, whatever the order of ids", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const DType dtype : kDTypes)
    for (const int dim : {0, 1, 2})
      for (const int64_t taps : {1, 2, 4}) {
        const Shape in{5, 6, 7};
        Shape out = in;
        out[dim] = 11;
        const Tensor ids = randint(0, in[dim], {out[dim], taps}, {.device = kCPU}), ids_there = ids.to(kCUDA);
        const Twin weights(numbers({out[dim], taps}), dtype), x(numbers(in), dtype), y(numbers(out), dtype);
        cpu().interpolate_grad(view_of(x.cpu), dim, view_of(ids), view_of(weights.cpu), view_of(y.cpu));
        gpu().interpolate_grad(x.gpu(), dim, view_of(ids_there), weights.gpu(), y.gpu());
        x.check(4);
        const Twin x2(numbers(in), dtype);
        cpu().interpolate(view_of(x2.cpu), dim, view_of(ids), view_of(weights.cpu), view_of(y.cpu));
        gpu().interpolate(x2.gpu(), dim, view_of(ids_there), weights.gpu(), y.gpu());
        y.check(4);
      }
}

// ---- strided elements -----------------------------------------------------------------------------------------------

// A launch of them counts in 32 bits, so larger views are split: at 2^31 elements on a GPU, at 2^15 in test/simt.
TEST_CASE("strided inputs that are too many for one launch keep their own strides", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor a = randn({300, 200}, {.device = kCPU}), b = randn({200, 1}, {.device = kCPU});
  const Tensor c = randn({300}, {.device = kCPU}), condition = a.t() > 0;
  const auto check = [](const Tensor& found, const Tensor& wanted) {
    CHECK(found.to(kCPU).to_vector<float>() == wanted.to_vector<float>());
  };
  check(a.to(kCUDA).t() - b.to(kCUDA), a.t() - b);
  check(b.to(kCUDA) - a.to(kCUDA).t(), b - a.t());
  check(where(condition.to(kCUDA), b.to(kCUDA), c.to(kCUDA)), where(condition, b, c));
  check(a.to(kCUDA).t() * 2, a.t() * 2);
  Tensor long_line = zeros({100000}, {.device = kCUDA});
  long_line.slice(0, 0, 100000, 2).fill_(1);  // one dimension
  CHECK(sum(long_line).item<double>() == 50000);
}
