// Attention of long sequences in half types, which a GPU computes without writing down the scores.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

#include "lib/device/kernels/attention.h"
#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/precision.h"
#include "reel/ragged.h"
#include "reel/random.h"

namespace reel::cuda {
[[gnu::weak]] unsigned long long fallbacks();  // cuda/runtime.h; absent from a build without CUDA
}
namespace simt {
[[gnu::weak]] extern unsigned long long launches();
}  // namespace simt

using namespace reel;

namespace {

/// The minimum length of sequences that use flash attention. The simulated GPU is slow, so it is lowered there.
const int64_t kFlashLength = [] {
  if (simt::launches) min_flash_length = 64;
  return min_flash_length;
}();

bool library_is(const char* way) {
  const char* const ways = std::getenv("SIMT_DNN");
  return ways && std::string(ways) == way;
}
/// Whether test/simt's cuDNN computes attention.
bool counted() {
  return simt::launches && !library_is("0") && !library_is("wrong_attention") && !library_is("ignored_lengths");
}

template <class F>
unsigned long long launched(const F& work) {
  const auto before = simt::launches ? simt::launches() : 0;
  work();
  return simt::launches ? simt::launches() - before : 0;
}

/// Deterministic gradients are the default, and then they are not in flash form.
struct AnyOrder {
  AnyOrder() { cuda::set_cudnn_deterministic(false); }
  ~AnyOrder() { cuda::set_cudnn_deterministic(true); }
};

struct Case {
  DType dtype;
  bool causal, permuted;
  int dims;
  int64_t heads = 2, width = 16;
};
struct Inputs {
  Tensor all[3];
  /// Queries [2, heads, kFlashLength + 16, width] or fewer dimensions, keys and values [2, 2, kFlashLength + 8, width].
  Inputs(const Case& c, Device device, DType dtype) {
    manual_seed(7);
    for (int i = 0; i < 3; ++i) {
      const int64_t rows = kFlashLength + (i ? 8 : 16);
      Tensor x = randn({2, rows, i ? 2 : c.heads, c.width}, {.dtype = kFloat64, .device = kCPU})
                     .to(c.dtype)
                     .to(dtype)
                     .to(device);
      x = c.permuted ? x.permute({0, 2, 1, 3}) : x.permute({0, 2, 1, 3}).contiguous();
      for (int d = 4; d > c.dims; --d) x = x.select(0, 1);
      all[i] = x.detach().requires_grad_();
    }
  }
};

double error(const Tensor& found, const Tensor& wanted) {
  return (max(abs(found.to(kCPU).to(kFloat64) - wanted)) / max(abs(wanted))).item<double>();
}

}  // namespace

TEST_CASE("attention of long sequences is in flash form what it is composed", "[cuda]") {
  if (!cuda::is_available()) return;
  const AnyOrder any_order;
  for (const Case& c : {Case{kBFloat16, false, true, 4},
                        {kFloat16, true, true, 4},
                        {kBFloat16, true, false, 3},
                        {kFloat16, false, false, 2},
                        {kBFloat16, true, true, 4, 4},
                        {kFloat16, false, false, 3, 6, 8},
                        {kBFloat16, false, true, 3, 2, 160}}) {
    const AttentionOptions options{
        .is_causal = c.causal, .scale = 1.6 / std::sqrt(c.width), .enable_gqa = c.heads != 2};
    const double tolerance = c.dtype == kBFloat16 ? 0.03 : 0.004;
    CAPTURE(c.dtype, c.causal, c.permuted, c.dims, c.heads, c.width);
    const Inputs exact(c, kCPU, kFloat64);
    const Tensor wanted = scaled_dot_product_attention(exact.all[0], exact.all[1], exact.all[2], options);
    const Tensor g = randn(wanted.shape(), {.dtype = kFloat64, .device = kCPU}).to(c.dtype).to(kFloat64);
    wanted.backward(g);
    for (int run = 0; run < 2; ++run) {
      const Inputs x(c, kCUDA, c.dtype);
      const auto attend = [&] { return scaled_dot_product_attention(x.all[0], x.all[1], x.all[2], options); };
      Tensor y;
      const auto forward = launched([&] { y = attend(); });
      CHECK(error(y.detach(), wanted.detach()) < tolerance);
      const Tensor there = g.to(c.dtype).to(kCUDA);
      const auto backward = launched([&] { y.backward(there); });
      for (int i = 0; i < 3; ++i) CHECK(error(x.all[i].grad(), exact.all[i].grad()) < 2 * tolerance);
      if (counted() && run) CHECK(forward + backward == 0);  // the first is compared with the formula
      const Tensor alone = no_grad(attend);
      CHECK(error(alone, wanted.detach()) < tolerance);
    }
  }
}

TEST_CASE("attention within long sequences of their own lengths is in flash form, too", "[cuda]") {
  if (!cuda::is_available()) return;
  const AnyOrder any_order;
  const auto queries = Lengths::of(std::vector<int64_t>{kFlashLength + 18, kFlashLength, kFlashLength + 65});
  const auto keys = Lengths::of(std::vector<int64_t>{kFlashLength, kFlashLength + 88, 3});
  for (const bool causal : {false, true})
    for (const bool by_heads : {true, false}) {
      CAPTURE(causal, by_heads);
      const AttentionOptions options{.is_causal = causal, .scale = 0.3, .enable_gqa = true};
      Tensor exact[3], there[3];
      manual_seed(5);
      for (int i = 0; i < 3; ++i) {
        const int64_t rows = (i ? keys : queries)->total();
        const Shape shape = by_heads ? Shape{rows, !i && causal ? 4 : 2, 16} : Shape{rows, 16};
        const Tensor x = randn(shape, {.dtype = kFloat64, .device = kCPU}).to(kBFloat16);
        exact[i] = x.to(kFloat64).requires_grad_(), there[i] = x.to(kCUDA).requires_grad_();
      }
      const auto attend = [&](const Tensor(&x)[3]) {
        return scaled_dot_product_attention(Ragged{x[0], queries}, Ragged{x[1], keys}, Ragged{x[2], keys}, options)
            .values;
      };
      const Tensor wanted = attend(exact), g = randn(wanted.shape(), {.dtype = kFloat64, .device = kCPU});
      wanted.backward(g);
      const Tensor y = attend(there);
      CHECK(error(y.detach(), wanted.detach()) < 0.03);
      y.backward(g.to(kBFloat16).to(kCUDA));
      for (int i = 0; i < 3; ++i) CHECK(error(there[i].grad(), exact[i].grad()) < 0.06);
      const Tensor twice = grad({attend(there)}, {there[0]}, {ones_like(y)}, {.create_graph = true})[0];
      const Tensor wanted_twice = grad({attend(exact)}, {exact[0]}, {ones_like(wanted)})[0];
      CHECK(error(twice.detach(), wanted_twice) < 0.06);
    }
}

TEST_CASE("flash attention has derivatives of any order, and keeps to what is asked for", "[cuda]") {
  if (!cuda::is_available()) return;
  const Case c{kBFloat16, true, true, 4};
  const AttentionOptions causal{.is_causal = true};
  const Inputs x(c, kCUDA, c.dtype);
  const auto attend = [&] { return scaled_dot_product_attention(x.all[0], x.all[1], x.all[2], causal); };
  no_grad(attend), attend();
  if (counted()) {
    CHECK(launched([&] { no_grad(attend); }) == 0);
    CHECK(launched(attend) > 0);  // its gradients are to be the same bits in each run
  }
  const AnyOrder any_order;
  attend();
  if (counted()) CHECK(launched(attend) == 0);
  if (counted())  // dropout, masks and short sequences
    CHECK(launched([&] {
            scaled_dot_product_attention(x.all[0].narrow(2, 0, kFlashLength / 5), x.all[1], x.all[2], causal);
          }) > 0);
  const Tensor once = grad({attend()}, {x.all[0]}, {ones_like(x.all[0])})[0];
  const Tensor twice = grad({attend()}, {x.all[0]}, {ones_like(x.all[0])}, {.create_graph = true})[0];
  CHECK(error(twice.detach(), once.to(kCPU).to(kFloat64)) < 0.05);
  const Tensor second = grad({twice}, {x.all[1]}, {ones_like(twice)})[0];
  CHECK(isfinite(second).all().item<bool>());
}

TEST_CASE("a module's causal attention makes no mask", "[cuda]") {
  if (!cuda::is_available()) return;
  nn::MultiheadAttention layer(32, 2, {.batch_first = true});
  layer.to(kCUDA), layer.to(kBFloat16), layer.eval();
  const Tensor x = randn({1, kFlashLength, 32}, {.device = kCUDA}).to(kBFloat16);
  const auto attend = [&] {
    return no_grad([&] { return layer(x, x, x, {.need_weights = false, .is_causal = true}).output; });
  };
  const Tensor y = attend();
  if (counted()) CHECK(launched(attend) == 1);  // which brings the heads together
  const Tensor place = arange(kFlashLength, {.dtype = kInt64, .device = kCPU}), later = place.unsqueeze(1) < place;
  layer.to(kCPU), layer.to(kFloat64);
  const Tensor there = x.to(kCPU).to(kFloat64);
  const Tensor wanted =
      no_grad([&] { return layer(there, there, there, {.need_weights = false, .attn_mask = later}).output; });
  CHECK(error(y, wanted) < 0.03);
}

TEST_CASE("attention is captured before and after it was compared with the formula", "[cuda]") {
  if (!cuda::is_available()) return;
  const Inputs x({kBFloat16, false, true, 4}, kCUDA, kBFloat16);
  const Inputs exact({kBFloat16, false, true, 4}, kCPU, kFloat64);
  const AttentionOptions options{.scale = 0.3};
  const auto attend = [&](const Inputs& in) {
    return no_grad([&] { return scaled_dot_product_attention(in.all[0], in.all[1], in.all[2], options); });
  };
  cuda::Graph first, second;
  Tensor early, late;
  first.capture([&] { early = attend(x); });
  attend(x);
  const auto later = launched([&] { second.capture([&] { late = attend(x); }); });
  if (counted()) CHECK(later == 0);
  first.replay(), second.replay();
  for (const Tensor& found : {early, late}) CHECK(error(found, attend(exact)) < 0.03);
}

TEST_CASE("causal attention that is composed is captured, with its gradients", "[cuda]") {
  if (!cuda::is_available()) return;
  // More heads of queries, more queries and more keys.
  for (const Shape& shape : {Shape{2, 4, 5, 8}, Shape{2, 2, 9, 8}, Shape{2, 2, 3, 8}}) {
    manual_seed(3);
    Tensor q = randn(shape, {.device = kCUDA}).requires_grad_(), y, gradient;
    const Tensor k = randn({2, 2, 5, 8}, {.device = kCUDA}), v = randn({2, 2, 5, 8}, {.device = kCUDA});
    const Tensor g = randn(shape, {.device = kCUDA});
    const AttentionOptions options{.is_causal = true, .enable_gqa = true};
    const auto attend = [&] {
      y = scaled_dot_product_attention(q, k, v, options);
      gradient = grad({y}, {q}, {g})[0];
    };
    attend();
    cuda::Graph graph;
    graph.capture(attend);
    no_grad([&] { q.copy_(randn(shape, {.device = kCUDA})); });
    graph.replay();
    const auto exact = [](const Tensor& x) { return x.detach().to(kCPU).to(kFloat64); };
    const Tensor there = exact(q).requires_grad_();
    const Tensor wanted = scaled_dot_product_attention(there, exact(k), exact(v), options);
    CHECK(error(y.detach(), wanted.detach()) < 1e-5);
    CHECK(error(gradient, grad({wanted}, {there}, {exact(g)})[0]) < 1e-5);
  }
}

TEST_CASE("attention heeds lengths of keys, also after keys that were all whole", "[cuda]") {
  if (!cuda::is_available()) return;
  const AnyOrder any_order;
  const auto before = cuda::fallbacks ? cuda::fallbacks() : 0;
  for (const int64_t shortest : {kFlashLength + 8, kFlashLength / 12}) {
    const auto queries = Lengths::of(std::vector<int64_t>{kFlashLength + 8, kFlashLength, kFlashLength + 8});
    const auto keys = Lengths::of(std::vector<int64_t>{kFlashLength + 8, shortest, kFlashLength + 8});
    Tensor exact[3], there[3];
    manual_seed(5);
    for (int i = 0; i < 3; ++i) {
      const int64_t rows = (i ? keys : queries)->total();
      const Tensor x = randn({rows, 2, 16}, {.dtype = kFloat64, .device = kCPU}).to(kBFloat16);
      exact[i] = x.to(kFloat64).requires_grad_(), there[i] = x.to(kCUDA).requires_grad_();
    }
    const auto attend = [&](const Tensor(&x)[3]) {
      return scaled_dot_product_attention(Ragged{x[0], queries}, Ragged{x[1], keys}, Ragged{x[2], keys}).values;
    };
    const Tensor wanted = attend(exact), y = attend(there);
    CHECK(error(y.detach(), wanted.detach()) < 0.03);
    const Tensor g = randn(wanted.shape(), {.dtype = kFloat64, .device = kCPU}).to(kBFloat16);
    wanted.backward(g.to(kFloat64)), y.backward(g.to(kCUDA));
    for (int i = 0; i < 3; ++i) CHECK(error(there[i].grad(), exact[i].grad()) < 0.06);
  }
  if (cuda::fallbacks && library_is("ignored_lengths")) CHECK(cuda::fallbacks() == before + 1);
}

TEST_CASE("attention that a library gets wrong is composed", "[cuda]") {
  if (!cuda::is_available() || !library_is("wrong_attention")) return;
  const Inputs x({kFloat16, false, true, 4}, kCUDA, kFloat16);
  const auto attend = [&] {
    return no_grad([&] { return scaled_dot_product_attention(x.all[0], x.all[1], x.all[2]); });
  };
  const auto before = cuda::fallbacks();
  attend();
  CHECK(cuda::fallbacks() == before + 1);
  CHECK(launched(attend) > 0);
  CHECK(cuda::fallbacks() == before + 1);
}
