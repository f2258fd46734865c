// Copies, broadcasts and pools on a GPU against the CPU's, for the layouts that kernels tell apart: rows that divide
// into packs of 16 bytes and ones that do not, aligned and not, permuted, broadcast along each dimension.
#include <catch2/catch.hpp>
#include <limits>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"

using namespace reel;

namespace {

const DType kAllDTypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kUInt8, kInt32, kInt64, kBool};

/// Small whole numbers, which every dtype holds.
Tensor numbers(const Shape& shape, DType dtype) {
  return randint(0, 100, shape, {.dtype = kInt64, .device = kCPU}).to(dtype);
}

void check_equal(const Tensor& expected, const Tensor& result) {
  REQUIRE(result.device() == kCUDA);
  REQUIRE(result.shape() == expected.shape());
  CHECK(result.to(kCPU).to_vector<double>() == expected.to_vector<double>());
}

/// f on both machines, of numbers that start `offset` elements into their memory.
template <class F>
void check(const Shape& shape, DType dtype, int64_t offset, const F& f) {
  CAPTURE(shape, dtype, offset);
  const Tensor all = numbers({offset + shape.numel()}, dtype);
  const auto view = [&](const Tensor& t) { return t.narrow(0, offset, shape.numel()).view(shape); };
  check_equal(f(view(all)), f(view(all.to(kCUDA))));
}

const Shape kShapes[] = {{2, 3, 4, 16}, {3, 2, 5, 8}, {2, 5, 3, 6}, {2, 3, 9, 4}, {2, 2, 10, 33}, {3, 4, 12, 2}};

}  // namespace

TEST_CASE("copies of all layouts are the CPU's", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const DType dtype : kAllDTypes)
    for (const Shape& shape : kShapes)
      for (const int64_t offset : {0, 1, 2}) {
        const auto copy = [&](const auto& f) {
          check(shape, dtype, offset, [&](const Tensor& x) { return f(x).contiguous(); });
        };
        copy([](const Tensor& x) { return x.transpose(1, 2); });
        copy([](const Tensor& x) { return x.transpose(0, 2); });
        copy([](const Tensor& x) { return x.transpose(2, 3); });
        copy([](const Tensor& x) { return x.permute({0, 2, 3, 1}); });
        copy([](const Tensor& x) { return x.permute({3, 1, 0, 2}); });
        copy([](const Tensor& x) { return x.narrow(2, 1, 2); });
        copy([](const Tensor& x) { return x.narrow(3, 1, 1); });
        copy([](const Tensor& x) { return x.slice(3, 0, {}, 2); });
        copy([](const Tensor& x) { return x.narrow(1, 0, 1).expand(x.shape()); });
        copy([](const Tensor& x) { return x.narrow(3, 0, 1).expand(x.shape()); });
        copy([](const Tensor& x) { return x.transpose(1, 2).to(kFloat32); });
        copy([](const Tensor& x) { return x.transpose(1, 2).to(kBFloat16); });
        check(shape, dtype, offset, [](const Tensor& x) {  // into a part of a tensor
          Tensor y =
              zeros({x.size(0), x.size(1), x.size(2), x.size(3) + 8}, {.dtype = x.dtype(), .device = x.device()});
          y.narrow(3, 8, x.size(3)).copy_(x);
          y.narrow(3, 1, x.size(3)).narrow(2, 1, 2).copy_(x.narrow(2, 0, 2));
          return y;
        });
      }
}

TEST_CASE("matrices of all batches are transposed as on the CPU", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const DType dtype : {kFloat32, kBFloat16, kInt64})
    for (const Shape& shape : {Shape{3, 9, 4, 20}, {2, 33, 2, 40}, {2, 8, 3, 8}, {1, 70, 3, 9}})
      check(shape, dtype, 0, [](const Tensor& x) { return x.permute({0, 2, 3, 1}).contiguous(); });
}

TEST_CASE("broadcasts along every dimension are the CPU's", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64})
    for (const Shape& shape : kShapes)
      for (const int64_t offset : {0, 1}) {
        for (unsigned kept = 0; kept < 16; ++kept) {
          CAPTURE(kept);
          const auto part = [&](const Tensor& x) {
            Tensor y = x;
            for (int d = 0; d < 4; ++d)
              if (!(kept >> d & 1)) y = y.narrow(d, 0, 1);
            return y;
          };
          check(shape, dtype, offset, [&](const Tensor& x) { return x + part(x); });
          check(shape, dtype, offset, [&](const Tensor& x) { return part(x) < x; });
          check(shape, dtype, offset, [&](const Tensor& x) { return where(part(x) > 50, x, 7); });
        }
        check(shape, dtype, offset,
              [](const Tensor& x) { return x.transpose(0, 2) + x.narrow(0, 0, 1).transpose(0, 2); });
        check(shape, dtype, offset, [](const Tensor& x) {  // the result strided, too
          Tensor y = x.clone();
          y.narrow(3, 0, x.size(3) / 2).add_(x.narrow(3, 0, 1)).mul_(2);
          y.transpose(1, 2).add_(x.transpose(1, 2).narrow(1, 0, 1));
          return y;
        });
      }
}

TEST_CASE("pools and their gradients are the CPU's for planes of any number", "[cuda]") {
  if (!cuda::is_available()) return;
  const auto compare = [](const Tensor& x, const auto& pool) {
    Tensor grads[2], g;
    for (const Device device : {kCPU, kCUDA}) {
      const Tensor own = x.to(device).clone().requires_grad_();
      const Tensor y = pool(own);
      if (!g.defined()) g = numbers(y.shape(), x.dtype());
      y.backward(g.to(device));
      grads[device == kCUDA] = own.grad();
    }
    check_equal(grads[0], grads[1]);
  };
  for (const DType dtype : {kFloat32, kFloat64, kFloat16})
    for (const int64_t planes : {1, 3, 40}) {  // some are counted in 32 bits, others in 64
      CAPTURE(dtype, planes);
      const Tensor x = numbers({2, planes, 13, 11}, dtype);
      compare(x, [](const Tensor& t) { return max_pool2d(t, 2); });
      compare(x, [](const Tensor& t) { return max_pool2d(t, 3, {.stride = 2, .padding = 1}); });
      compare(x, [](const Tensor& t) { return max_pool2d(t, 3, {.stride = 1, .padding = 1, .dilation = 2}); });
      compare(x, [](const Tensor& t) { return max_pool2d(t, {2, 3}, {.stride = {3, 4}, .ceil_mode = true}); });
      compare(x, [](const Tensor& t) { return max_pool2d(t, 7, {.stride = 5}); });
      compare(x, [](const Tensor& t) { return adaptive_max_pool2d(t, {5, 4}); });
      compare(x, [](const Tensor& t) { return adaptive_max_pool2d(t, 1); });
      compare(x, [](const Tensor& t) { return max_pool3d(t, 2, {.stride = 1, .padding = 1}); });
      // As [n, h, w, channels].
      compare(x, [](const Tensor& t) { return max_pool2d(t, {1, 2}, {.channels_last = true}); });
      compare(x, [](const Tensor& t) { return avg_pool2d(t, {1, 2}, {.stride = {1, 3}, .channels_last = true}); });
    }
  for (const int64_t channels : {1, 3, 40}) {  // with channels for a warp's threads, its windows are not shared by them
    const Tensor x = numbers({2, 13, 11, channels}, kFloat32);
    compare(x, [](const Tensor& t) { return max_pool2d(t, 7, {.stride = 5, .channels_last = true}); });
    compare(x, [](const Tensor& t) { return max_pool2d(t, 3, {.stride = 2, .padding = 1, .channels_last = true}); });
    compare(x, [](const Tensor& t) { return avg_pool2d(t, 7, {.stride = 3, .padding = 2, .channels_last = true}); });
    compare(x, [](const Tensor& t) { return adaptive_max_pool2d(t, {5, 4}, {.channels_last = true}); });
  }
  Tensor x = numbers({2, 3, 8, 8}, kFloat32);
  x.narrow(2, 2, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  compare(x, [](const Tensor& t) { return max_pool2d(t, 3, {.stride = 1}); });
}

TEST_CASE("cross_entropy and its gradient are the CPU's where rows are infinite or ignored", "[cuda]") {
  if (!cuda::is_available()) return;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16})
    for (const int64_t classes : {5, 16, 300, 9001}) {
      CAPTURE(dtype, classes);
      Tensor x = (randn({7, classes}, {.device = kCPU}) * 5).to(dtype);
      Tensor target = randint(0, classes, {7}, {.dtype = kInt64, .device = kCPU});
      target.narrow(0, 3, 1).fill_(-100);
      x.narrow(0, 3, 1).fill_(infinity);  // ignored
      x.narrow(0, 4, 1).add_(3000);
      x.narrow(0, 5, 1).narrow(1, 0, 2).fill_(-infinity);
      target.narrow(0, 5, 1).fill_(2);
      for (const double smoothing : {0.0, 0.1}) {
        if (smoothing != 0) x.narrow(0, 5, 1).narrow(1, 0, 2).fill_(1);
        Tensor results[2];
        for (const Device device : {kCPU, kCUDA}) {
          const Tensor own = x.to(device).clone().requires_grad_();
          const Tensor loss = cross_entropy(own, target.to(device), {.label_smoothing = smoothing});
          loss.backward();
          results[device == kCUDA] =
              cat({loss.detach().to(kFloat64).view({1}), own.grad().to(kFloat64).flatten()}).to(kCPU);
        }
        CHECK(allclose(results[0], results[1], dtype == kBFloat16 ? 1e-2 : 1e-5, 1e-7));
      }
    }
}
