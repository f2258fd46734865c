// Several GPUs in one process; skipped where there is one only.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "test/support/op_table.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

constexpr Device kFirst{DeviceType::kCUDA, 0}, kSecond{DeviceType::kCUDA, 1};

bool has_two() {
  if (cuda::device_count() >= 2) return true;
  WARN("skipped: there are not two GPUs");
  return false;
}

/// Enough work for what is queued behind it to be late on a real GPU.
Tensor slowly(Tensor x) {
  for (int i = 0; i < 40; ++i) x = x + 1;
  return x - 40;
}

struct Net : nn::Module {
  nn::Linear hidden{*this, "hidden", 6, 32}, out{*this, "out", 32, 3};
};

std::vector<float> filled(size_t count, float value) { return std::vector<float>(count, value); }

}  // namespace

TEST_CASE("a copy from GPU to GPU comes after what wrote its source", "[cuda]") {
  if (!has_two()) return;
  for (int i = 0; i < 10; ++i) {
    const Tensor x = slowly(full({5000}, float(i), {.device = kFirst}));
    const Tensor y = x.to(kSecond);
    CHECK(y.device() == kSecond);
    CHECK(slowly(y).to_vector<float>() == filled(5000, float(i)));
    CHECK(y.to(kFirst).to_vector<float>() == filled(5000, float(i)));
  }
}

TEST_CASE("the source of a copy from GPU to GPU may change or go right after it", "[cuda]") {
  if (!has_two()) return;
  std::vector<Tensor> copies;
  for (int i = 0; i < 20; ++i) {
    Tensor x = slowly(full({5000}, float(i), {.device = kFirst}));
    slowly(ones({5000}, {.device = kSecond}));  // the copy is late
    copies.push_back(x.to(kSecond));
    if (i % 2)
      x.fill_(-1);
    else
      x = Tensor();
    const Tensor next = full({5000}, -2.f, {.device = kFirst});  // may have the same memory
  }
  for (int i = 0; i < 20; ++i) CHECK(copies[i].to_vector<float>() == filled(5000, float(i)));
}

TEST_CASE("the target of a copy from GPU to GPU has been read by then", "[cuda]") {
  if (!has_two()) return;
  Tensor y = zeros({5000}, {.device = kSecond});
  std::vector<Tensor> read;
  for (int i = 0; i < 10; ++i) {
    read.push_back(slowly(y) + 0);
    y.copy_(full({5000}, float(i + 1), {.device = kFirst}));
  }
  for (int i = 0; i < 10; ++i) CHECK(read[i].to_vector<float>() == filled(5000, float(i)));
}

TEST_CASE("views and other types are copied from GPU to GPU", "[cuda]") {
  if (!has_two()) return;
  const Tensor x = arange(24, {.dtype = kFloat32, .device = kFirst}).view({4, 6}), expected = x.to(kCPU);
  const auto same = [](const Tensor& a, const Tensor& b) {
    CHECK(a.to(kCPU).contiguous().to_vector<double>() == b.contiguous().to_vector<double>());
  };
  same(x.t().to(kSecond), expected.t());
  same(x.narrow(1, 2, 3).to(kSecond), expected.narrow(1, 2, 3));
  same(x.select(0, 2).expand({3, 6}).to(kSecond), expected.select(0, 2).expand({3, 6}));
  same(x.narrow(0, 0, 0).to(kSecond), expected.narrow(0, 0, 0));
  Tensor y = zeros({6, 4}, {.dtype = kInt64, .device = kSecond});
  y.t().copy_(x);
  same(y, expected.t());
  y.select(0, 1).copy_(x.select(1, 0).select(0, 3));  // one number for all
  CHECK(y.select(0, 1).to_vector<int64_t>() == std::vector<int64_t>{18, 18, 18, 18});
  Tensor z = zeros({4, 6}, {.device = kSecond}), on_host = zeros({4, 6}, {.device = kCPU});
  z.copy_(x.to(kFloat64));
  on_host.copy_(z);
  same(on_host, expected);
  CHECK((x.to(kBool).to(kSecond)).to(kCPU).to_vector<bool>() == expected.to(kBool).to_vector<bool>());
}

TEST_CASE("gradients go back from GPU to GPU", "[cuda]") {
  if (!has_two()) return;
  const Tensor a = full({1000}, 3.f, {.device = kFirst}).requires_grad_();
  const Tensor b = full({1000}, 5.f, {.device = kSecond}).requires_grad_();
  const Tensor loss = sum((a * 2).to(kSecond) * b);
  std::thread([&] { loss.backward(); }).join();
  CHECK(a.grad().device() == kFirst);
  CHECK(a.grad().to_vector<float>() == filled(1000, 10));
  CHECK(b.grad().to_vector<float>() == filled(1000, 6));
}

TEST_CASE("a gradient on another device than its tensor is refused", "[cuda]") {
  if (!cuda::is_available()) return;
  const TensorOptions on_gpu{.device = kFirst}, on_host{.device = kCPU};
  const Tensor x = ones({2}, on_gpu).requires_grad_(), host = ones({2}, on_host);
  CHECK_THROWS_WITH((x * 1).backward(host), "backward: a gradient on cpu for a tensor on cuda:0");
  CHECK_THROWS_WITH(grad({x * 1}, {x}, {host}), "grad: a gradient on cpu for a tensor on cuda:0");
  const auto misplaced = [](const Tensor& g) { return std::vector{g.to(kCPU)}; };
  CHECK_THROWS_WITH(sum(custom_op("mine", x.detach() * 2, {x}, misplaced)).backward(),
                    "mine: its rule returned a gradient on cpu for input 0 on cuda:0");
  Tensor made = x * 1;
  made.register_hook([](const Tensor& g) { return g.to(kCPU); });
  CHECK_THROWS_WITH(sum(made * 2).backward(), "mul: a hook's gradient on cpu for a tensor on cuda:0");
  CHECK_FALSE(x.grad().defined());
  Tensor hooked = ones({2}, on_gpu).requires_grad_();
  hooked.register_hook([](const Tensor& g) { return g.to(kCPU); });
  CHECK_THROWS_WITH(sum(hooked * 2).backward(), "backward: a hook's gradient on cpu for a tensor on cuda:0");
  CHECK_FALSE(hooked.grad().defined());
  const Tensor scalar = full({}, 3.f, on_gpu).requires_grad_();  // a number may come from anywhere
  (scalar * 2).backward(ones({}, on_host));
  CHECK(scalar.grad().device() == kFirst);
  CHECK(scalar.grad().item<float>() == 2);
}

TEST_CASE("a model on each GPU learns the same", "[cuda]") {
  if (!has_two()) return;
  std::vector<std::vector<double>> losses(2);
  const auto train = [&](int device) {
    set_default_device({DeviceType::kCUDA, static_cast<int8_t>(device)});
    manual_seed(3);
    const Net net;
    optim::Adam adam(net.parameters(), {.lr = 0.01});
    const Tensor x = randn({8, 6}), y = remainder(arange(8), 3);
    Tensor loss;
    const auto step = [&] {
      adam.zero_grad();
      loss = cross_entropy(net.out(dropout(relu(net.hidden(x)), 0.25)), y);
      loss.backward();
      adam.step();
    };
    const auto read = [&] { losses[device].push_back(loss.item<double>()); };
    for (int i = 0; i < 3; ++i) step(), read();
    cuda::Graph graph;
    graph.capture(step);
    for (int i = 0; i < 3; ++i) graph.replay(), read();
    cuda::synchronize();
  };
  std::thread first([&] { train(0); }), second([&] { train(1); });
  first.join(), second.join();
  CHECK(losses[0] == losses[1]);
  CHECK(losses[0].size() == 6);
}

TEST_CASE("memory is that of its GPU, whoever releases it", "[cuda]") {
  if (!has_two()) return;
  const auto in_use = [](int device) { return cuda::memory_stats(device).in_use; };
  const Tensor used = ones({10}, {.device = kSecond});
  const int64_t first = in_use(0), second = in_use(1);
  Tensor small = ones({1000}, {.device = kSecond}), large = ones({1 << 20}, {.device = kSecond});
  CHECK(in_use(0) == first);
  CHECK(in_use(1) >= second + (4 << 20));
  const Tensor here = ones({10}, {.device = kFirst});
  small = Tensor();  // while the other one is current
  std::thread([&] { large = Tensor(); }).join();
  CHECK(in_use(1) == second);
  CHECK(sum(here).item<float>() == 10);
  cuda::empty_cache(1);
  CHECK(sum(here + 1).item<float>() == 20);
  CHECK(sum(used).item<float>() == 10);
  CHECK_THROWS_WITH(empty({int64_t{1} << 42}, {.device = kSecond}), Contains("out of memory on cuda:1"));
  CHECK_THROWS_WITH(cuda::memory_stats(-1), Contains("cuda:-1 was asked for"));
  CHECK_THROWS_WITH(cuda::memory_stats(99), Contains("cuda:99 was asked for"));
}

TEST_CASE("memory that another GPU's stream uses is not reused too early", "[cuda]") {
  if (!has_two()) return;
  const cuda::Stream side(0);
  std::vector<Tensor> results;
  for (int i = 0; i < 10; ++i) {
    Tensor x = full({5000}, float(i), {.device = kSecond});
    cuda::Event made;
    made.record(cuda::Stream::current(1));
    made.wait(side);
    {
      const cuda::StreamGuard guard(side);
      slowly(ones({5000}, {.device = kFirst}));
      results.push_back(x.to(kFirst));
      x.record_stream(side);
    }
    x = Tensor();
    const Tensor next = full({5000}, -1.f, {.device = kSecond});
  }
  const cuda::StreamGuard guard(side);
  for (int i = 0; i < 10; ++i) CHECK(results[i].to_vector<float>() == filled(5000, float(i)));
}

TEST_CASE("streams, guards and events are those of their GPU", "[cuda]") {
  if (!has_two()) return;
  const int before = cuda::current_device();
  const cuda::Stream side(1);
  CHECK(side.device() == 1);
  CHECK(cuda::Stream::current(1).device() == 1);
  const Tensor x = ones({1000}, {.device = kFirst});
  Tensor y;
  cuda::Event start(true), done(true), moved;
  CHECK(done.query());  // not yet recorded
  moved.record(cuda::Stream::current(0));
  {
    const cuda::StreamGuard guard(side);
    CHECK(cuda::current_device() == 1);
    CHECK(cuda::Stream::current() == side);
    start.record();
    const Tensor z = x + 1;  // on the first
    y = slowly(full({1000}, 4.f, {.device = kSecond}));
    y.add_(z.to(kSecond));
    done.record();
    moved.record(side);  // now one of the other device
  }
  CHECK(cuda::current_device() == before);
  done.wait(cuda::Stream::current(0));
  done.wait(cuda::Stream::current(1));
  y.record_stream(cuda::Stream::current(1));
  CHECK(y.to(kFirst).to_vector<float>() == filled(1000, 6));
  moved.synchronize();
  side.synchronize();
  CHECK(start.elapsed_time(done) >= 0);
  cuda::Event other(true);
  other.record(cuda::Stream::current(0));
  other.synchronize();
  CHECK_THROWS_WITH(start.elapsed_time(other), Contains("of one device"));
  CHECK_THROWS_WITH(cuda::Event(true).elapsed_time(other), Contains("recorded"));
}

TEST_CASE("what waits for one GPU leaves the other current", "[cuda]") {
  if (!has_two()) return;
  const Tensor x = ones({100}, {.device = kFirst}), y = ones({100}, {.device = kSecond});
  const Tensor z = x + 1;
  cuda::synchronize(1);
  cuda::reset_peak_memory_stats(1);
  cuda::empty_cache(1);
  const cuda::Stream other(1);
  CHECK_THROWS_WITH(sum(y + x), Contains("different devices"));
  CHECK(sum(z + x).item<float>() == 300);
  CHECK(sum(y).item<float>() == 100);
}

TEST_CASE("an index out of range is reported by the GPU that met it", "[cuda]") {
  if (!has_two()) return;
  const Tensor table = ones({5, 3}, {.device = kSecond});
  const Tensor rows = index_select(table, 0, tensor({1, 7}, {.device = kSecond}));
  CHECK_NOTHROW(cuda::synchronize(0));
  CHECK_THROWS_WITH(cuda::synchronize(1), Contains("index_select: index 7 is out of range [0, 5)"));
  CHECK_NOTHROW(cuda::synchronize(1));
}

TEST_CASE("pinned memory is copied to either GPU", "[cuda]") {
  if (!has_two()) return;
  std::vector<Tensor> copies;
  for (int i = 0; i < 20; ++i) {
    const Tensor pinned = full({2000}, float(i), {.device = kCPU}).pin_memory();
    copies.push_back(pinned.to(i % 2 ? kSecond : kFirst));
    copies.push_back(pinned.to(i % 2 ? kFirst : kSecond));
  }
  for (int i = 0; i < 20; ++i)
    for (int copy = 0; copy < 2; ++copy) CHECK(copies[2 * i + copy].to_vector<float>() == filled(2000, float(i)));
}

TEST_CASE("random numbers are the same on each GPU", "[cuda]") {
  if (!has_two()) return;
  manual_seed(7);
  const Tensor a = randn({1000}, {.device = kFirst});
  manual_seed(7);
  CHECK(randn({1000}, {.device = kSecond}).to_vector<float>() == a.to_vector<float>());
}

TEST_CASE("a graph is captured and replayed on its GPU", "[cuda]") {
  if (!has_two()) return;
  Tensor x = ones({1000}, {.device = kSecond}), other = ones({10}, {.device = kFirst}), y;
  const auto work = [&] { y = slowly(x) * 2; };
  cuda::Graph graph;
  CHECK_THROWS_WITH(graph.capture(work, 0), Contains("the work of cuda:0 is captured, and this is on cuda:1"));
  CHECK_THROWS_WITH(graph.capture([&] { y = x.to(kFirst); }, 1), Contains("captured"));
  CHECK_THROWS_WITH(graph.capture([&] { other.add_(1), y = x + 1; }, 1), Contains("this is on cuda:0"));
  Tensor dropped = ones({1 << 20}, {.device = kFirst});
  graph.capture(
      [&] {
        work();
        dropped = Tensor();  // which is no work
      },
      1);
  for (int i = 0; i < 3; ++i) {
    x.fill_(float(i));
    const Tensor z = other * 3;
    graph.replay();
    CHECK(sum(z).item<float>() == 30);
    CHECK(y.to_vector<float>() == filled(1000, float(2 * i)));
  }
  const cuda::StreamGuard guard(cuda::Stream::current(1));
  graph.capture(work);  // on the guard's device
  graph.replay();
  CHECK(y.to_vector<float>() == filled(1000, 4));
}
