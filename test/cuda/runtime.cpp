// Memory, streams, events and graphs of a GPU, or of test/simt. Tests of running out of memory run only where
// SIMT_MEMORY limits it.
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/tensor.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

const TensorOptions kOnGpu{.device = kCUDA};

std::vector<float> filled(size_t count, float value) { return std::vector<float>(count, value); }

/// Enough work for what is queued behind it to be late on a real GPU.
Tensor slowly(Tensor x) {
  for (int i = 0; i < 40; ++i) x = x + 1;
  return x - 40;
}

/// More elements than there is room for twice, where SIMT_MEMORY says how much memory there is; else 0.
int64_t more_than_half() {
  const char* const memory = std::getenv("SIMT_MEMORY");
  if (!cuda::is_available() || !memory) return 0;
  cuda::empty_cache();
  return std::strtoll(memory, nullptr, 10) / 4 * 6 / 10;
}

}  // namespace

TEST_CASE("a GPU's memory is counted", "[cuda]") {
  if (!cuda::is_available()) return;
  cuda::synchronize();
  const int64_t before = cuda::memory_stats().in_use;
  {
    const Tensor x = zeros({1 << 20}, kOnGpu);
    CHECK(cuda::memory_stats().in_use >= before + (4 << 20));
    cuda::reset_peak_memory_stats();
    CHECK(cuda::memory_stats().peak_in_use == cuda::memory_stats().in_use);
  }
  CHECK(cuda::memory_stats().in_use == before);
  CHECK(cuda::memory_stats().peak_in_use >= before + (4 << 20));
  cuda::empty_cache();
  CHECK_FALSE(cuda::device_name().empty());
  CHECK_THROWS_WITH(zeros({1}, {.device = {DeviceType::kCUDA, 15}}), Contains("cuda:15 was asked for"));
}

TEST_CASE("a GPU without memory says who has it", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor kept = ones({1000}, kOnGpu);
  CHECK_THROWS_WITH(empty({int64_t{1} << 42}, kOnGpu),
                    Contains("out of memory on cuda:0: 17592186044416 bytes") && Contains("tensors have"));
  CHECK(sum(kept).item<float>() == 1000);
}

TEST_CASE("a GPU without memory pools is refused", "[cuda]") {
  const char* const pools = std::getenv("SIMT_POOLS");
  if (!cuda::is_available() || !pools || std::string(pools) != "0") return;
  CHECK_THROWS_WITH(zeros({1}, kOnGpu), Contains("cuda:0 has no memory pools"));
}

TEST_CASE("memory that other streams have freed is waited for", "[cuda]") {
  const int64_t most = more_than_half();
  if (!most) return;
  {
    const cuda::Stream side;
    {
      const cuda::StreamGuard guard(side);
      const Tensor x = zeros({most}, kOnGpu);
    }
    const Tensor again = ones({most}, kOnGpu);
    CHECK(again[most - 1].item<float>() == 1);
    CHECK_THROWS_WITH(ones({most}, kOnGpu), Contains("out of memory"));
    CHECK(again[0].item<float>() == 1);
  }
  const Tensor other = full({most + 1000}, 2.f, kOnGpu);  // not the size that was freed
  CHECK(other[most].item<float>() == 2);
}

TEST_CASE("memory that is kept for one size is given to another", "[cuda]") {
  const int64_t whole = more_than_half() * 5 / 3;  // as much as there is room for
  if (!whole) return;
  { const Tensor kept = zeros({whole / 5}, kOnGpu); }
  CHECK(zeros({whole * 4 / 5}, kOnGpu)[0].item<float>() == 0);
}

TEST_CASE("pinned memory is not reused while a GPU reads it", "[cuda]") {
  if (!cuda::is_available()) return;
  std::vector<Tensor> copies;
  for (int i = 0; i < 30; ++i) {
    const Tensor pinned = full({2000}, float(i), {.device = kCPU}).pin_memory();
    CHECK(pinned.is_pinned());
    CHECK(pinned.pin_memory().data<float>() == pinned.data<float>());
    copies.push_back(pinned.to(kCUDA, {.non_blocking = true}));
  }
  for (int i = 0; i < 30; ++i) CHECK(copies[i].to_vector<float>() == filled(2000, float(i)));
  CHECK_FALSE(zeros({3}, {.device = kCPU}).is_pinned());
  CHECK_THROWS_WITH(copies[0].pin_memory(), Contains("pin_memory: the tensor is on cuda:0"));
}

TEST_CASE("memory of the host may change right after it was copied to a GPU", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor x = ones({100}, {.device = kCPU});
  const Tensor y = slowly(x.to(kCUDA));
  x.fill_(7);
  CHECK(y.to_vector<float>() == filled(100, 1));
}

TEST_CASE("events order streams", "[cuda]") {
  if (!cuda::is_available()) return;
  const cuda::Stream side;
  CHECK(side.device() == 0);
  CHECK_FALSE(side == cuda::Stream::current());
  cuda::Event ready(true), done(true);
  Tensor x = zeros({1000}, kOnGpu), y;
  for (int i = 0; i < 5; ++i) {
    x = slowly(x + 1);
    ready.record();
    {
      const cuda::StreamGuard guard(side);
      CHECK(cuda::Stream::current() == side);
      ready.wait(side);
      y = slowly(x * 2);
      x.record_stream(side);
      done.record();
    }
    done.wait(cuda::Stream::current());
    y.record_stream(cuda::Stream::current());
    x = y + 0;
  }
  CHECK(x.to_vector<float>() == filled(1000, 62));
  while (!done.query()) {
  }
  while (!side.query()) {
  }
  CHECK(ready.elapsed_time(done) >= 0);
}

TEST_CASE("memory that another stream uses is not reused too early", "[cuda]") {
  if (!cuda::is_available()) return;
  const cuda::Stream side;
  std::vector<Tensor> results;
  for (int i = 0; i < 20; ++i) {
    Tensor x = full({5000}, float(i), kOnGpu);
    cuda::Event made;
    made.record();
    made.wait(side);
    {
      const cuda::StreamGuard guard(side);
      results.push_back(slowly(x) + 0);
      x.record_stream(side);
    }
    x = Tensor();
    const Tensor next = full({5000}, -1.f, kOnGpu);  // may have the same memory
  }
  side.synchronize();
  const cuda::StreamGuard guard(side);
  for (int i = 0; i < 20; ++i) CHECK(results[i].to_vector<float>() == filled(5000, float(i)));
  CHECK_THROWS_WITH(zeros({2}, {.device = kCPU}).record_stream(side), Contains("record_stream"));
}

TEST_CASE("threads have streams of their own, and events between them", "[cuda][threads]") {
  if (!cuda::is_available()) return;
  std::vector<Tensor> results(4);
  std::vector<cuda::Event> events(4);
  std::vector<std::thread> threads;
  std::vector<cuda::Stream> streams;
  for (int t = 0; t < 4; ++t) streams.emplace_back();
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const cuda::StreamGuard guard(streams[t]);
      Tensor x = full({3000}, float(t), kOnGpu);
      for (int i = 0; i < 10; ++i) x = slowly(x) * 2;
      results[t] = x;
      events[t].record();
    });
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) {
    events[t].wait(cuda::Stream::current());
    results[t].record_stream(cuda::Stream::current());
    CHECK(results[t].to_vector<float>() == filled(3000, float(t * 1024)));
  }
}

TEST_CASE("an index out of range is reported once, by the next wait", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor table = ones({5, 3}, kOnGpu);
  const Tensor ids = tensor({1, 7, 2}, kOnGpu);
  const Tensor rows = index_select(table, 0, ids);
  CHECK_THROWS_WITH(cuda::synchronize(), Contains("index_select: index 7 is out of range [0, 5)"));
  CHECK(sum(rows.narrow(0, 0, 1)).item<float>() == 3);
  const Tensor more = index_select(table, 0, ids);
  cuda::Event event;
  event.record();
  CHECK_THROWS_WITH(event.synchronize(), Contains("index 7"));
  const Tensor again = index_select(table, 0, ids);
  CHECK_THROWS_WITH(sum(again).item<float>(), Contains("index 7"));
  cuda::synchronize();
}

TEST_CASE("waits can be forbidden", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor x = ones({3}, kOnGpu);
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
  const Tensor y = x * 2;
  CHECK_THROWS_WITH(y.item<float>(),
                    Contains("SyncDebugMode::kError") || Contains("one element") || Contains("elements"));
  CHECK_THROWS_WITH(sum(y).item<float>(), Contains("which cuda::SyncDebugMode::kError forbids"));
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
  CHECK(sum(y).item<float>() == 6);
}

TEST_CASE("random outcomes of a GPU's probabilities wait for nothing", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor p = full({100}, 0.5, kOnGpu), deviation = ones({100}, kOnGpu);
  bernoulli(p), normal(p, deviation);  // the memory is there
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
  const Tensor outcomes = bernoulli(p), numbers = normal(p, deviation);
  cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
  CHECK(all((outcomes == 0) | (outcomes == 1)).item<bool>());
  CHECK(square(mean(numbers)).item<double>() < 1);
}

TEST_CASE("a graph computes anew from new inputs", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor x = ones({500}, kOnGpu);
  const Tensor w = ones({500}, kOnGpu).requires_grad_();
  Tensor loss, gradient;
  const auto work = [&] {
    loss = sum(slowly(x * w) * x);
    gradient = grad({loss}, {w})[0];
  };
  work();
  cuda::Graph graph;
  graph.capture(work);
  for (int i = 1; i < 5; ++i) {
    x.copy_(full({500}, float(i), {.device = kCPU}));
    graph.replay();
    CHECK(loss.item<float>() == 500.f * float(i * i));
    CHECK(gradient.to_vector<float>() == filled(500, float(i * i)));
  }
  CHECK_THROWS_WITH(graph.capture([&] { sum(x).item<float>(); }), Contains("cannot be captured in a cuda::Graph"));
  CHECK_THROWS_WITH(graph.capture([&] { x.copy_(zeros({500}, {.device = kCPU})); }), Contains("not pinned"));
  CHECK_THROWS_WITH(graph.replay(), Contains("nothing has been captured"));
  CHECK(sum(x).item<float>() == 2000);  // nothing is broken
}

TEST_CASE("a graph may go while it is being replayed", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor x = ones({3000}, kOnGpu);
  Tensor result = zeros({3000}, kOnGpu), last;
  const cuda::Stream other;
  for (int i = 0; i < 10; ++i) {
    {
      cuda::Graph graph;
      graph.capture([&] {
        last = slowly(x * 3);
        result.add_(last);
      });
      graph.replay();
    }
    x = ones({3000}, kOnGpu);
    result.add_(last);
    last = Tensor();
    const cuda::StreamGuard guard(other);
    const Tensor elsewhere = full({3000}, -5.f, kOnGpu) * 2;  // may get the memory of the graph
  }
  CHECK(result.to_vector<float>() == filled(3000, 60));
  cuda::synchronize();
}

TEST_CASE("a capture that runs out of memory leaves all as it was", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor x = ones({3000}, kOnGpu);
  Tensor y;
  cuda::synchronize();
  const int64_t before = cuda::memory_stats().in_use;
  cuda::Graph graph;
  for (int i = 0; i < 3; ++i)
    CHECK_THROWS_WITH(graph.capture([&] {
      y = x + 1;
      y = empty({int64_t{1} << 42}, kOnGpu);
    }),
                      Contains("out of memory on cuda:0"));
  CHECK_THROWS_WITH(graph.replay(), Contains("nothing has been captured"));
  y = Tensor();
  CHECK(cuda::memory_stats().in_use == before);
  CHECK(sum(x + 1).item<float>() == 6000);
  cuda::synchronize();
  graph.capture([&] { y = slowly(x) * 2; });
  graph.replay();
  CHECK(y.to_vector<float>() == filled(3000, 2));
}

TEST_CASE("a capture uses again what waits to be freed", "[cuda]") {
  const int64_t most = more_than_half();
  if (!most) return;
  const cuda::Stream side;
  {
    const cuda::StreamGuard guard(side);
    const Tensor x = zeros({most}, kOnGpu);
  }
  Tensor y;
  cuda::Graph graph;
  graph.capture([&] { y = ones({most}, kOnGpu); });
  graph.replay();
  CHECK(y[most - 1].item<float>() == 1);
}

TEST_CASE("other threads work on while one captures", "[cuda][threads]") {
  if (!cuda::is_available()) return;
  Tensor x = ones({3000}, kOnGpu), y;
  std::atomic<bool> captured = false, synchronized = false;
  cuda::Graph graph;
  std::thread waiting;
  graph.capture([&] {
    y = slowly(x);
    std::thread([] {  // whose first allocation this is
      const Tensor mine = full({3 << 20}, 2.f, kOnGpu);
      CHECK(sum(mine).item<double>() == 6 << 20);
      CHECK_THROWS_WITH(empty({int64_t{1} << 42}, kOnGpu), Contains("out of memory"));
      const Tensor pinned = ones({10}, {.device = kCPU}).pin_memory();
      CHECK(sum(pinned.to(kCUDA)).item<float>() == 10);
      CHECK(sum(matmul(ones({4, 5}, kOnGpu), ones({5, 6}, kOnGpu))).item<float>() == 120);
      cuda::Stream().synchronize();
    })
        .join();
    waiting = std::thread([&] {
      cuda::synchronize();
      cuda::empty_cache();
      CHECK(captured);
      synchronized = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(synchronized);
    CHECK_THROWS_WITH(cuda::synchronize(), Contains("cannot be captured"));
    CHECK_THROWS_WITH(cuda::StreamGuard(cuda::Stream::current()), Contains("one stream"));
    y = y * 2;
    captured = true;
  });
  waiting.join();
  x.fill_(3);
  graph.replay();
  CHECK(y.to_vector<float>() == filled(3000, 6));
}

TEST_CASE("two threads capture graphs at the same time, each with its first product", "[cuda][threads]") {
  if (!cuda::is_available()) return;
  std::barrier both(2);
  std::vector<float> results[2];
  const auto work = [&](int thread) {
    const Tensor x = full({6, 5}, static_cast<float>(thread + 1), kOnGpu), w = ones({5, 7}, kOnGpu);
    Tensor y;
    cuda::Graph graph;
    graph.capture([&] {
      both.arrive_and_wait();
      y = matmul(slowly(x), w);
      both.arrive_and_wait();
    });
    graph.replay();
    results[thread] = y.to_vector<float>();
  };
  std::thread other([&] { work(1); });
  std::thread([&] { work(0); }).join();
  other.join();
  CHECK(results[0] == filled(42, 5));
  CHECK(results[1] == filled(42, 10));
}

TEST_CASE("a capture may be the first to use a kernel or a library's plan", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor x = randn({3, 2, 11, 13}), w = randn({5, 2, 3, 3}), m = randn({286, 17}), ids = randn({1, 419});
  const auto work = [](const Tensor& x, const Tensor& w, const Tensor& m, const Tensor& ids) {
    const Tensor y = relu(linear(x.view({3, 286}), m.t(), ones({17}, {.device = x.device()})));
    return std::vector<Tensor>{conv2d(x, w), matmul(x.view({3, 286}), m), y, sort(ids).values, log_softmax(y, 1)};
  };
  const Tensor on_gpu[] = {x.to(kCUDA), w.to(kCUDA), m.to(kCUDA), ids.to(kCUDA)};
  cuda::synchronize();
  std::vector<Tensor> results;
  cuda::Graph graph;
  graph.capture([&] { results = work(on_gpu[0], on_gpu[1], on_gpu[2], on_gpu[3]); });
  graph.replay();
  const std::vector<Tensor> expected = work(x.to(kCPU), w.to(kCPU), m.to(kCPU), ids.to(kCPU));
  for (size_t i = 0; i < expected.size(); ++i) CHECK(allclose(results[i].to(kCPU), expected[i], 1e-4, 1e-4));
}

TEST_CASE("a graph's replays on two streams come one after the other", "[cuda]") {
  if (!cuda::is_available()) return;
  const cuda::Stream first, second;
  Tensor count = zeros({3000}, kOnGpu), result;
  cuda::Graph graph;
  graph.capture([&] {
    count.add_(1);
    result = slowly(count) * 2;
  });
  cuda::synchronize();
  std::vector<Tensor> read;
  for (int i = 0; i < 10; ++i) {
    const cuda::StreamGuard guard(i % 2 ? first : second);
    graph.replay();
    read.push_back(slowly(result) + 0);  // before the next replay writes it
  }
  cuda::synchronize();
  for (int i = 0; i < 10; ++i) CHECK(read[i].to_vector<float>() == filled(3000, float(2 * i + 2)));
}

TEST_CASE("the numbers of a replay are not those of the next one on another stream", "[cuda]") {
  if (!cuda::is_available()) return;
  const cuda::Stream first, second;
  const auto run = [&](bool two) {
    manual_seed(3);
    Tensor total = zeros({3000}, kOnGpu);
    cuda::Graph graph;
    graph.capture([&] { total.add_(slowly(rand({3000}, kOnGpu))); });
    cuda::synchronize();
    for (int i = 0; i < 6; ++i) {
      const cuda::StreamGuard guard(two && i % 2 ? first : second);
      graph.replay();
    }
    cuda::synchronize();
    return total.to_vector<float>();
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("arange and linspace have on a GPU the CPU's bits, and are captured", "[cuda]") {
  if (!cuda::is_available()) return;
  const auto all = [](Device device) {
    std::vector<Tensor> made;
    const auto add = [&](const Tensor& x) { made.push_back(x); };
    const TensorOptions plain{.device = device};
    for (const DType dtype : {kInt64, kInt32, kUInt8, kBool, kFloat32, kFloat64, kBFloat16, kFloat16}) {
      const TensorOptions options{.dtype = dtype, .device = device};
      add(arange(7, options)), add(arange(3, 90, 11, options)), add(arange(0, options)), add(arange(1, 2, 5, options));
      add(linspace(0.1, 0.7, 6, options));
      if (dtype != kUInt8) add(arange(5, -9, -2, options)), add(arange(-2.5, 2.5, 0.7, options));
    }
    for (const int64_t n : {0, 1, 2, 3, 1000, 100000}) add(linspace(-1.3, 2.7, n, plain));
    add(arange(INT64_MIN, INT64_MAX, INT64_MAX / 3, plain)), add(arange(0.1, 1000, 0.01, plain));
    return made;
  };
  const std::vector<Tensor> wanted = all(kCPU), found = all(kCUDA);
  std::vector<Tensor> captured;
  cuda::Graph graph;
  graph.capture([&] { captured = all(kCUDA); });
  graph.replay();
  for (const std::vector<Tensor>& made : {found, captured})
    for (size_t i = 0; i < wanted.size(); ++i) {
      CAPTURE(i, wanted[i].dtype(), wanted[i].shape());
      CHECK(made[i].dtype() == wanted[i].dtype());
      CHECK(made[i].shape() == wanted[i].shape());
      if (wanted[i].numel()) CHECK((made[i].to(kCPU) == wanted[i]).all().item<bool>());
    }
}
