// Several threads at once; run under the thread sanitizer, too.
#include <dlfcn.h>

#include <thread>

#include "lib/base/sanitizers.h"
#include "lib/cpu/onednn.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;

namespace {
void on_threads(int count, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}
}  // namespace

// Hogwild, as reel/ops/sampled.h describes it: a race on purpose, of this function alone. The sanitizer is a library of
// its own, which must see the symbol.
#if defined(REEL_THREAD_SANITIZER)
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "race:train_without_locks\n";
}
#endif
static void train_without_locks(const Tensor& in, const Tensor& out, int thread) {
  manual_seed(static_cast<uint64_t>(thread));
  const Tensor own_in = in.detach().requires_grad_(), own_out = out.detach().requires_grad_();
  optim::SGD sgd({own_in, own_out}, {.lr = 0.1});
  for (int step = 0; step < 300; ++step) {
    const Tensor words = randint(20, {10}), next = remainder(words + 1, 20);
    sgd.zero_grad();
    negative_sampling_loss(embedding(own_in, words, true), own_out, next, randint(20, {10, 3}), kSum).backward();
    sgd.step();
  }
}

TEST_CASE("threads train one model without locks", "[threads]") {
  manual_seed(4);
  const Tensor in = rand({20, 8}) - 0.5, out = zeros({20, 8});
  on_threads(4, [&](int i) { train_without_locks(in, out, i); });
  const Tensor found = argmax(matmul(in, out.t()), 1), right = sum(found == remainder(arange(20) + 1, 20));
  CHECK(right.item<int64_t>() > 15);
}

TEST_CASE("eight threads each train a model of their own", "[threads]") {
  std::vector<double> losses(8);
  on_threads(8, [&](int i) {
    manual_seed(11);
    struct Net : nn::Module {
      nn::Linear hidden{*this, "hidden", 4, 16}, out{*this, "out", 16, 1};
      Tensor forward(const Tensor& x) const { return out(tanh(hidden(x))); }
    } net;
    optim::Adam adam(net.parameters(), {.lr = 1e-2});
    const Tensor x = randn({32, 4}), y = sum(x, 1, true);
    for (int step = 0; step < 60; ++step) {
      const Tensor loss = mse_loss(net.forward(x), y);
      adam.zero_grad();
      loss.backward();
      adam.step();
      losses[i] = loss.item<double>();
    }
  });
  for (double loss : losses) CHECK(loss == losses[0]);  // the same seed, the same numbers
  CHECK(losses[0] < 1);
}

TEST_CASE("threads share parameters, and their gradients add up", "[threads]") {
  const Tensor w = ones({4, 4}).requires_grad_(), e = ones({5, 4}).requires_grad_();
  on_threads(8, [&](int i) {
    for (int step = 0; step < 20; ++step) sum(linear(embedding(e, tensor({i % 5}), true), w)).backward();
  });
  CHECK(w.grad().to_vector<float>() == std::vector<float>(16, 160));
  REQUIRE(e.sparse_grad());
  CHECK(e.sparse_grad()->ids.numel() == 5);
  CHECK(sum(e.grad()).item<float>() == 160 * 16);
}

TEST_CASE("a graph may be handed to another thread", "[threads]") {
  const Tensor w = tensor({3.0}).requires_grad_();
  Tensor y = w;
  for (int i = 0; i < 1000; ++i) y = y + w;
  std::thread([&, z = std::move(y)]() mutable {
    z.backward();
    z.reset();
  }).join();
  CHECK(w.grad().item<float>() == 1001);
  CHECK(live_nodes() == 0);
}

TEST_CASE("memory freed on another thread is used again", "[threads]") {
  for (int round = 0; round < 4; ++round) {
    std::vector<Tensor> made;
    for (int i = 0; i < 2000; ++i) made.push_back(ones({64}));
    std::thread([&] { made.clear(); }).join();
  }
  const int64_t held = memory_stats().in_use + memory_stats().cached;
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> made;
    for (int i = 0; i < 2000; ++i) made.push_back(ones({64}));
    std::thread([&] { made.clear(); }).join();
  }
  CHECK(memory_stats().in_use + memory_stats().cached - held < (4 << 20));
}

TEST_CASE("the peak of memory counts what threads that have ended have freed", "[threads]") {
  Tensor tensor = empty({1 << 20});
  std::thread([&] { tensor.reset(); }).join();
  reset_peak_memory_stats();
  CHECK(memory_stats().peak_in_use == memory_stats().in_use);
}

TEST_CASE("oneDNN uses the calling thread alone", "[cpu]") {
  const auto openmp_threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const auto set_openmp_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  REQUIRE(openmp_threads);
  REQUIRE(set_openmp_threads);
  const int before = openmp_threads();
  set_openmp_threads(3);
  {
    const cpu::OnednnCall call;
    CHECK(openmp_threads() == 1);
  }
  CHECK(openmp_threads() == 3);  // the program's own
  set_openmp_threads(before);
}
