// What ops of several streams share without the program's knowing.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reel/amp.h"
#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"

using namespace reel;

namespace {

const TensorOptions kOnGpu{.device = kCUDA};

/// Enough work for what is queued behind it to be late on a real GPU.
Tensor slowly(Tensor x) {
  for (int i = 0; i < 40; ++i) x = x + 1;
  return x - 40;
}

void on(const cuda::Stream& stream, const std::function<void()>& work) {
  const cuda::StreamGuard guard(stream);
  work();
}

/// A way in which a gradient comes to a leaf [8, 4]: a loss whose gradient is `factor` times that of factor 1.
struct Way {
  std::string name;
  std::function<Tensor(const Tensor& w, float factor)> loss;
};
std::vector<Way> ways() {
  const Tensor rows = ones({3, 4}, kOnGpu), many = ones({20, 4}, kOnGpu), ids = tensor({1, 5, 1}, kOnGpu);
  return {
      {"element by element", [](const Tensor& w, float f) { return sum(slowly(w) * f); }},
      {"product of few rows", [=](const Tensor& w, float f) { return sum(slowly(linear(rows, w)) * f); }},
      {"product of many rows", [=](const Tensor& w, float f) { return sum(slowly(linear(many, w)) * f); }},
      {"product and elements", [=](const Tensor& w, float f) { return sum(linear(rows, w) * f) + sum(w * f); }},
      {"rows", [=](const Tensor& w, float f) { return sum(slowly(embedding(w, ids)) * f); }},
      {"sparse rows", [=](const Tensor& w, float f) { return sum(slowly(embedding(w, ids, true)) * f); }},
      {"a view", [](const Tensor& w, float f) { return sum(slowly(w.narrow(0, 2, 3)) * f); }},
  };
}

Tensor new_leaf() { return ones({8, 4}, {.device = kCUDA, .requires_grad = true}); }

}  // namespace

TEST_CASE("gradients of passes on several streams add up in one leaf", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const Way& way : ways())
    for (const Way& other : ways())
      for (const bool hooked : {false, true}) {
        INFO(way.name << ", then " << other.name << (hooked ? ", with a hook" : ""));
        const auto pass = [&](const Tensor& w, int i) { (i % 2 ? other : way).loss(w, float(i + 1)).backward(); };
        Tensor alone = new_leaf(), w = new_leaf();
        for (int i = 0; i < 4; ++i) pass(alone, i);
        if (hooked) w.register_hook([](const Tensor& g) { return g * 1; });
        cuda::synchronize();
        const cuda::Stream streams[3];
        for (int i = 0; i < 4; ++i) on(streams[i % 3], [&] { pass(w, i); });
        // Backwards, so that nothing is done in the order of the passes but what they order themselves.
        std::vector<float> found;
        on(streams[1], [&] { found = w.grad().to_vector<float>(); });
        CHECK(found == alone.grad().to_vector<float>());
      }
}

TEST_CASE("gradients of passes on several threads and streams add up in one leaf", "[cuda][threads]") {
  if (!cuda::is_available()) return;
  for (const Way& way : ways()) {
    INFO(way.name);
    Tensor alone = new_leaf(), w = new_leaf();
    for (int i = 0; i < 6; ++i) way.loss(alone, float(i % 3 + 1)).backward();
    cuda::synchronize();
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        const cuda::Stream stream;
        for (int i = 0; i < 2; ++i) on(stream, [&] { way.loss(w, float(t + 1)).backward(); });
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(w.grad().to_vector<float>() == alone.grad().to_vector<float>());
  }
}

TEST_CASE("the gradient that a non-leaf retains adds up over streams", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor w = new_leaf();
  Tensor h = w * 1;
  h.retain_grad();
  cuda::synchronize();
  const cuda::Stream first, second;
  on(first, [&] { sum(slowly(h) * 2).backward({}, {.retain_graph = true}); });
  on(second, [&] { sum(h * 3).backward({}, {.retain_graph = true}); });
  second.synchronize();
  CHECK(h.grad().to_vector<float>() == std::vector<float>(32, 5));
}

TEST_CASE("a backward pass on another stream comes after the forward pass", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor w = new_leaf();
  cuda::synchronize();
  const cuda::Stream forward, backward;
  Tensor loss;
  on(forward, [&] { loss = sum(square(slowly(w * 3))); });
  on(backward, [&] {
    loss.backward();
    CHECK(w.grad().to_vector<float>() == std::vector<float>(32, 18));
  });
}

TEST_CASE("a gradient is replaced, cleared and read on any stream", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor w = new_leaf();
  cuda::synchronize();
  const cuda::Stream first, second;
  for (int i = 0; i < 10; ++i) {
    on(first, [&] { sum(slowly(w) * 2).backward(); });
    on(second, [&] { sum(w * 3).backward(); });
    const Tensor seen = w.grad() * 1;
    on(second, [&] { w.set_grad({}); });
    on(first, [&] {
      const Tensor next = full({8, 4}, -1.f, kOnGpu);  // may get the gradient's memory
      sum(next * 2);
    });
    CHECK(seen.to_vector<float>() == std::vector<float>(32, 5));
  }
}

TEST_CASE("memory that a backward pass on another stream has read is not reused too early", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor w = full({3000}, 2.f, kOnGpu).requires_grad_();
  cuda::synchronize();
  const cuda::Stream forward, backward;
  for (int i = 0; i < 5; ++i) {
    Tensor loss;
    on(forward, [&] { loss = sum(square(w * 3)); });
    cuda::Event done;
    done.record(forward);
    done.wait(backward);
    on(backward, [&] {
      const Tensor late = slowly(ones({3000}, kOnGpu));
      loss.backward(sum(late) / 3000);  // releases what the forward pass has saved
    });
    on(forward, [&] {
      for (int j = 0; j < 3; ++j) full({3000}, -7.f, kOnGpu);
      forward.synchronize();
    });
  }
  on(backward, [&] { CHECK(w.grad().to_vector<float>() == std::vector<float>(3000, 5 * 36)); });
}

TEST_CASE("the cast of a weight is ready on each stream that uses it under autocast", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor w = new_leaf(), x = ones({2, 4}, kOnGpu);
  cuda::synchronize();
  const cuda::Stream first, second;
  const amp::Autocast autocast(kBFloat16);
  Tensor a, b;
  on(first, [&] { a = linear(x, w); });
  on(second, [&] { b = linear(x, w); });
  on(second, [&] { CHECK(b.to_vector<float>() == std::vector<float>(16, 4)); });
  on(first, [&] { CHECK(a.to_vector<float>() == std::vector<float>(16, 4)); });
}
