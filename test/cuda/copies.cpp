// Copies between host and GPU: when they have read and written what, with pinned memory and without.
#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "reel/autograd.h"
#include "reel/batching.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

const TensorOptions kOnGpu{.device = kCUDA};

/// Enough work for what is queued behind it to be late on a real GPU.
Tensor slowly(Tensor x) {
  for (int i = 0; i < 40; ++i) x = x + 1;
  return x - 40;
}

}  // namespace

TEST_CASE("what was copied to a GPU may change on the host right after it, pinned or not", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const bool pinned : {false, true})
    for (const int64_t rows : {1, 10, 2'200'000})  // the last is more than what is staged
      for (const bool turned : {false, true})
        for (const DType dtype : {kFloat32, kFloat64}) {
          if (rows > 10 && (turned || dtype == kFloat64)) continue;
          INFO((pinned ? "pinned, " : "") << rows << " rows" << (turned ? ", transposed" : "") << ", to " << dtype);
          Tensor x = ones({rows, 2}, {.device = kCPU});
          if (pinned) x = x.pin_memory();
          const Tensor from = turned ? x.t() : x;
          Tensor copy = zeros(from.shape(), {.dtype = dtype, .device = kCUDA}), late = slowly(zeros({3000}, kOnGpu));
          const Tensor strided = zeros(from.t().shape(), {.dtype = dtype, .device = kCUDA}).t();
          const Tensor moved = from.to(kCUDA);
          x.fill_(2);
          copy.copy_(from);
          x.fill_(3);
          Tensor(strided).copy_(from);
          x.fill_(9);
          CHECK(all(moved == 1).item<bool>());
          CHECK(all(copy == 2).item<bool>());
          CHECK(all(strided == 3).item<bool>());
        }
}

TEST_CASE("what was copied to the host is there, pinned or not", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const bool pinned : {false, true})
    for (const DType dtype : {kFloat32, kInt64}) {
      const Tensor x = slowly(full({300, 10}, 3.f, kOnGpu));
      Tensor target = zeros({300, 10}, {.dtype = dtype, .device = kCPU});
      if (pinned) target = target.pin_memory();
      target.copy_(x);
      CHECK(all(target == 3).item<bool>());
      CHECK(all(x.to(kCPU) == 3).item<bool>());
    }
}

TEST_CASE("copies that do not wait are done when their stream is", "[cuda]") {
  if (!cuda::is_available()) return;
  const cuda::Stream side;
  const Tensor x = arange(600, {.dtype = kFloat32, .device = kCPU}).reshape({30, 20}).pin_memory();
  const Tensor pageable = x.clone();
  for (const bool turned : {false, true})
    for (const DType dtype : {kFloat32, kInt32}) {
      const Tensor from = turned ? x.t() : x, expected = (turned ? pageable.t() : pageable).to(dtype);
      Tensor there, back, kept = zeros(expected.shape(), {.dtype = dtype, .device = kCPU}).pin_memory();
      {
        const cuda::StreamGuard guard(side);
        cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
        there = empty(expected.shape(), {.dtype = dtype, .device = kCUDA});
        there.copy_(from, {.non_blocking = true});
        there = there * 2 - from.to(kCUDA, {.non_blocking = true}).to(dtype);
        back = there.t().to(kCPU, {.non_blocking = true});
        kept.copy_(there, {.non_blocking = true});
        cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
      }
      side.synchronize();
      CHECK(back.is_pinned());
      CHECK(all(back.t() == expected).item<bool>());
      CHECK(all(kept == expected).item<bool>());
    }
  // Where it changes nothing.
  CHECK(all(pageable.to(kCUDA, {.non_blocking = true}).to(kCPU) == pageable).item<bool>());
  CHECK(x.to(kCPU, {.non_blocking = true}).is_same(x));
  Tensor other = zeros({30, 20}, {.device = kCPU});
  other.copy_(x, {.non_blocking = true});
  CHECK(all(other == x).item<bool>());
  CHECK(x.narrow(0, 0, 0).to(kCUDA, {.non_blocking = true}).numel() == 0);
  Tensor leaf = x.detach().requires_grad_();
  sum(leaf.to(kCUDA, {.non_blocking = true}) * 2).backward();
  CHECK(all(leaf.grad() == 2).item<bool>());
}

TEST_CASE("a captured graph copies from and to pinned memory in each replay", "[cuda]") {
  if (!cuda::is_available()) return;
  Tensor in = ones({100}, {.device = kCPU}).pin_memory(), out = zeros({100}, {.device = kCPU}).pin_memory();
  Tensor x = zeros({100}, kOnGpu);
  cuda::Graph graph;
  graph.capture([&] {
    x.copy_(in);
    out.copy_(x * 2, {.non_blocking = true});
  });
  for (int i = 1; i < 4; ++i) {
    in.fill_(i);
    graph.replay();
    cuda::synchronize();
    CHECK(out.to_vector<float>() == std::vector<float>(100, float(2 * i)));
  }
  CHECK_THROWS_WITH(graph.capture([&] { out.copy_(x); }), Contains("cannot be captured"));
}

TEST_CASE("any number of parts is joined, of any size", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const DType dtype : {kFloat32, kUInt8, kFloat16})
    for (const size_t count : {3, 16, 17, 128, 129, 512, 513, 1600, 3000}) {
      CAPTURE(dtype, count);
      std::vector<Tensor> parts, on_cpu;
      for (size_t i = 0; i < count; ++i) {
        const int64_t rows = i % 97 == 5 ? 1500 : static_cast<int64_t>(i % 3);  // some of none, some of several blocks
        on_cpu.push_back(remainder(arange(rows * 3, {.dtype = kInt64, .device = kCPU}) + static_cast<int64_t>(i), 251)
                             .to(dtype)
                             .view({rows, 3}));
        parts.push_back(on_cpu.back().to(kCUDA));
      }
      const Tensor expected = cat(on_cpu);
      CHECK(equal(cat(parts).to(kCPU), expected));
      CHECK(equal(cat(parts, 0).t().to(kCPU), expected.t()));
      if (dtype != kFloat32 || count % 2) continue;
      Tensor y = zeros(expected.shape(), {.dtype = dtype, .device = kCUDA});
      cuda::Graph graph;
      graph.capture([&] { y.copy_(cat(parts)); });
      parts[1].add_(1), on_cpu[1].add_(1);
      graph.replay();
      CHECK(equal(y.to(kCPU), cat(on_cpu)));
    }
}

// ---- small copies that wait for others, inside of batching::map -----------------------------------------------------

namespace {

/// Runs work(i) as 40 examples of one map, which all go on after a call that they make together.
template <class F>
void as_examples(const F& work) {
  std::vector<int64_t> numbers(40);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto together = batching::rows("together", [](const Tensor& x) { return x + 1; });
  batching::map(numbers, [&](int64_t i) {
    work(i);
    together(zeros({1, 1}, {.device = kCPU}));
    return 0;
  });
}

}  // namespace

TEST_CASE("small copies of a map's examples have been made when anything reads them", "[cuda]") {
  if (!cuda::is_available()) return;
  const auto twice = batching::rows("twice", [](const Tensor& x) { return x * 2; });
  std::vector<int64_t> numbers(3000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto results = batching::map(
      numbers,
      [&](int64_t i) {
        const Tensor wide = tensor({double(i), 1.5, -2.0}).to(kFloat16).to(kCUDA);  // which is converted and odd
        Tensor turned = zeros({3, 2}, kOnGpu).t();
        turned.copy_(arange(6, {.dtype = kFloat32, .device = kCPU}).view({2, 3}));
        CHECK(all(turned.to(kCPU) == arange(6, {.device = kCPU}).view({2, 3})).item<bool>());
        const Tensor y = twice(tensor({i}, kOnGpu));
        if (i % 100 == 0) CHECK(wide[2].to(kFloat32).item<float>() == -2);
        return y + wide[1].to(kInt64);
      },
      {.window = 2000});
  for (const int64_t i : numbers) CHECK(results[static_cast<size_t>(i)].item<int64_t>() == 2 * i + 1);
}

TEST_CASE("small copies to one place are made in their order, whatever its memory has been before", "[cuda]") {
  if (!cuda::is_available()) return;
  std::vector<Tensor> kept;
  Tensor target = zeros({40, 3}, kOnGpu);
  as_examples([&](int64_t i) {
    Tensor row = target[i];
    for (float value : {1.f, 2.f, 3.f}) row.copy_(tensor({value, value, value}, {.device = kCPU}));
    row[1].copy_(tensor(7.f, {.device = kCPU}));
    for (int k = 0; k < 3; ++k) tensor({i}, kOnGpu);  // whose memory is used again at once
    const Tensor filled = full({1}, i, kOnGpu);       // maybe there
    tensor({-i}, kOnGpu);
    kept.push_back(tensor({100 + i}, kOnGpu));
    CHECK(filled.item<int64_t>() == i);
  });
  for (int64_t i = 0; i < 40; ++i) {
    CHECK(target[i].to_vector<float>() == std::vector<float>{3, 7, 3});
    CHECK(kept[static_cast<size_t>(i)].item<int64_t>() == 100 + i);
  }
}

TEST_CASE("small copies that wait are before whatever their stream is ordered before", "[cuda]") {
  if (!cuda::is_available()) return;
  const cuda::Stream side;
  cuda::Graph graph;
  Tensor in = zeros({1}, kOnGpu), out = zeros({1}, kOnGpu);
  graph.capture([&] { out.copy_(in * 2); });
  Tensor elsewhere;
  if (cuda::device_count() > 1) elsewhere = full({2}, -9, {.dtype = kInt64, .device = Device{DeviceType::kCUDA, 1}});
  as_examples([&](int64_t i) {
    const Tensor x = tensor({i, -i}, kOnGpu);
    switch (i % 6) {
      case 0: {  // an event
        cuda::Event event;
        event.record();
        event.wait(side);
        const cuda::StreamGuard guard(side);
        CHECK((x + 1).to_vector<int64_t>() == std::vector<int64_t>{i + 1, 1 - i});
        break;
      }
      case 1: {  // a thread that the host orders after this one
        std::vector<int64_t> found;
        std::thread([&] { found = (x + 1).to_vector<int64_t>(); }).join();
        CHECK(found == std::vector<int64_t>{i + 1, 1 - i});
        break;
      }
      case 2: {  // a graph
        in.copy_(tensor({float(i)}, {.device = kCPU}));
        graph.replay();
        CHECK(out.item<float>() == float(2 * i));
        break;
      }
      case 3: {  // a copy that does not wait, and a query
        const Tensor there = x.to(kCPU, {.non_blocking = true});
        while (!cuda::Stream::current().query()) cuda::Stream::current().synchronize();
        CHECK(there.to_vector<int64_t>() == std::vector<int64_t>{i, -i});
        break;
      }
      case 4: {  // another GPU, which writes to the same place
        if (!elsewhere.defined()) break;
        Tensor(x).copy_(elsewhere);
        CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{-9, -9});
        break;
      }
      default: {  // memory that another thread releases and fills
        Tensor late = tensor({i, i, i}, kOnGpu), next;
        std::thread([&] {
          late.reset();
          next = full({3}, -5, {.dtype = kInt64, .device = kCUDA});
        }).join();
        CHECK(next.to_vector<int64_t>() == std::vector<int64_t>{-5, -5, -5});
      }
    }
  });
}

TEST_CASE("maps of several threads make their small copies on one stream", "[cuda]") {
  if (!cuda::is_available()) return;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round)
        as_examples([&](int64_t i) { wrong += (tensor({i + t}, kOnGpu) * 2).item<int64_t>() != 2 * (i + t); });
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
