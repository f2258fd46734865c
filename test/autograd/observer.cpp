// What follows backward passes: see lib/autograd/observer.h.
#include "lib/autograd/observer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "lib/autograd/accumulate_grad.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

struct Recorder final : BackwardObserver {
  std::vector<Tensor> leaves;
  bool follow = true;
  std::vector<std::vector<uint32_t>> reached;  // of each pass, sorted
  std::vector<std::string> events;
  std::function<void(uint32_t slot)> on_arrival;
  std::function<void()> on_begin, on_end;

  explicit Recorder(std::vector<Tensor> tensors) : leaves(std::move(tensors)) {
    for (uint32_t i = 0; i < leaves.size(); ++i) observe(leaves[i], this, i);
  }
  ~Recorder() {
    for (const Tensor& leaf : leaves) stop_observing(leaf, this);
  }

  bool begin(std::span<const uint32_t> slots) override {
    reached.emplace_back(slots.begin(), slots.end());
    std::sort(reached.back().begin(), reached.back().end());
    if (on_begin) on_begin();
    if (follow) events.push_back("begin");
    return follow;
  }
  void arrived(uint32_t slot, bool has_grad) override {
    events.push_back((has_grad ? "grad " : "none ") + std::to_string(slot));
    if (on_arrival) on_arrival(slot);
  }
  void end() override {
    if (on_end) on_end();
    events.push_back("end");
  }
  void failed() noexcept override {
    try {
      std::rethrow_exception(std::current_exception());
    } catch (const std::exception& e) {
      events.push_back(std::string("failed: ") + e.what());
    }
  }
  std::vector<std::string> take() { return std::exchange(events, {}); }
};

using Events = std::vector<std::string>;
using Slots = std::vector<uint32_t>;

Tensor leaf(double value) { return full({3, 2}, value).requires_grad_(); }

}  // namespace

TEST_CASE("an observer learns which leaves a pass reaches, and when each is final", "[tape]") {
  const Tensor a = leaf(2), b = leaf(3), unreached = leaf(4), other = leaf(5);
  Recorder recorder({a, b, unreached});
  recorder.on_arrival = [&](uint32_t slot) {  // all of it is there, and nothing is recorded
    CHECK(!grad_enabled());
    CHECK(equal(recorder.leaves[slot].grad(), full({3, 2}, slot == 0 ? 3.0 + 5.0 : 2.0)));
  };
  sum(a * b + a * other).backward();
  CHECK(recorder.reached == std::vector<Slots>{{0, 1}});
  Events events = recorder.take();
  REQUIRE(events.size() == 4);
  CHECK(events.front() == "begin");
  CHECK(events.back() == "end");
  std::sort(events.begin(), events.end());
  CHECK(events == Events{"begin", "end", "grad 0", "grad 1"});

  // A pass that returns gradients, and one that reaches none of the leaves, are not its business.
  recorder.on_arrival = nullptr;
  CHECK(grad({sum(a * b)}, {a})[0].defined());
  sum(other * 2).backward();
  CHECK(recorder.take().empty());
  // The root may be a leaf, and be one twice.
  const Tensor scalar = full({}, 1.0).requires_grad_();
  Recorder of_root({scalar});
  backward(std::vector{scalar, scalar});
  CHECK(of_root.take() == Events{"begin", "grad 0", "end"});
  CHECK(scalar.grad().item<float>() == 2);
}

TEST_CASE("an observer learns of a leaf whose rule gave nothing", "[tape]") {
  const Tensor a = leaf(2), b = leaf(3);
  Recorder recorder({a, b});
  const auto first_only = [&] {
    return custom_op("first_only", no_grad([&] { return a + b; }), {a, b}, [](const Tensor& g) {
      return std::vector{g, Tensor()};
    });
  };
  sum(first_only()).backward();
  Events events = recorder.take();
  std::sort(events.begin(), events.end());
  CHECK(events == Events{"begin", "end", "grad 0", "none 1"});
  CHECK(recorder.reached.back() == Slots{0, 1});
  CHECK(!b.grad().defined());
  CHECK(take_touched(a));
  CHECK(!take_touched(b));
}

TEST_CASE("an observer sees what hooks make of a gradient", "[tape][hooks]") {
  Tensor a = leaf(2);
  Recorder recorder({a});
  float seen = 0;
  recorder.on_arrival = [&](uint32_t) { seen = a.grad().flatten()[0].item<float>(); };
  a.register_hook([](const Tensor& g) { return g * 10; });
  a.register_post_accumulate_grad_hook([](const Tensor& t) { t.grad().add_(1); });
  sum(a * 3).backward();
  CHECK(seen == 31);
}

// The profiler does not see products on a GPU.
TEST_CASE("products of passes that an observer does not follow are multiplied once", "[tape][cpu]") {
  manual_seed(3);
  const Tensor w = randn({4, 6}).requires_grad_(), reference = w.detach().clone().requires_grad_();
  std::vector<Tensor> xs;
  for (int i = 0; i < 3; ++i) xs.push_back(randn({1, 6}));
  Recorder recorder({w});
  recorder.follow = false;
  profile::start();
  for (int i = 0; i < 3; ++i) {
    if (i == 2) {
      recorder.follow = true;
      recorder.on_arrival = [&](uint32_t) { w.grad(); };
    }
    sum(linear(xs[static_cast<size_t>(i)], w)).backward();
  }
  int products = 0;
  for (const profile::Event& e : profile::stop().events) products += e.name == "gemm" && e.backward;
  CHECK(recorder.take() == Events{"begin", "grad 0", "end"});
  CHECK(recorder.reached.size() == 3);
  for (const Tensor& x : xs) sum(linear(x, reference)).backward();
  CHECK(equal(w.grad(), reference.grad()));
  CHECK(products == 1);
}

TEST_CASE("an observer that refuses a pass leaves everything as it was", "[tape]") {
  const Tensor a = leaf(2);
  Recorder recorder({a});
  recorder.on_begin = [] { throw std::runtime_error("not now"); };
  const Tensor y = sum(a * 3);
  CHECK_THROWS_WITH(y.backward({}, {.retain_graph = true}), "not now");
  CHECK(recorder.take().empty());
  CHECK(!a.grad().defined());
  recorder.on_begin = nullptr;
  y.backward();
  CHECK(equal(a.grad(), full({3, 2}, 3.0)));
}

TEST_CASE("an observer learns of an exception that ends its pass", "[tape]") {
  const Tensor a = leaf(2), b = leaf(3);
  Recorder recorder({a});
  const auto failing = [&] {
    return custom_op("failing", no_grad([&] { return b * 1; }), {b},
                     [](const Tensor&) -> std::vector<Tensor> { throw std::runtime_error("no rule"); });
  };
  CHECK_THROWS_WITH(sum(failing() + a).backward(), Catch::Contains("no rule"));
  Events events = recorder.take();
  REQUIRE(events.size() >= 2);
  CHECK(events.front() == "begin");
  CHECK(events.back().find("failed: ") == 0);
  CHECK(std::count(events.begin(), events.end(), "end") == 0);

  // The observer's own, in each of its calls; nobody else's pass suffers.
  Recorder second({b});
  recorder.on_arrival = [](uint32_t) { throw std::runtime_error("arrival"); };
  CHECK_THROWS_WITH(sum(a * b).backward(), "arrival");
  CHECK(recorder.take().back() == "failed: arrival");
  CHECK(second.take().back() == "failed: arrival");
  recorder.on_arrival = nullptr;
  recorder.on_end = [] { throw std::runtime_error("end"); };
  CHECK_THROWS_WITH(sum(a * b).backward(), "end");
  CHECK(recorder.take().back() == "failed: end");
  recorder.on_end = nullptr;
  CHECK_NOTHROW(sum(a * b).backward());
  CHECK(recorder.take().back() == "end");
  // One that has not begun yet is not told.
  second.take();
  Recorder third({leaf(1)});
  third.on_begin = [] { throw std::runtime_error("begin"); };
  CHECK_THROWS_WITH(sum(third.leaves[0] * a).backward(), "begin");
  CHECK(third.take().empty());
}

TEST_CASE("an observer follows passes within a pass by themselves", "[tape]") {
  Tensor a = leaf(2), b = leaf(3);
  Recorder recorder({a, b});
  const Tensor inner = sum(b * 2);
  a.register_hook([&](const Tensor& g) {
    if (!b.grad().defined()) inner.backward();
    return g;
  });
  sum(a * 3).backward();
  CHECK(recorder.reached == std::vector<Slots>{{0}, {1}});
  CHECK(recorder.take() == Events{"begin", "begin", "grad 1", "end", "grad 0", "end"});
  // The second run of a checkpoint belongs to the pass around it.
  const auto f = [&](const std::vector<Tensor>& x) { return std::vector{x[0] * b * b}; };
  sum(checkpoint(f, {a * 1})[0]).backward();
  Events events = recorder.take();
  REQUIRE(events.size() == 4);
  CHECK(events.front() == "begin");
  CHECK(events.back() == "end");
  CHECK(recorder.reached.back() == Slots{0, 1});
}

TEST_CASE("two observers follow one pass", "[tape]") {
  const Tensor a = leaf(2), b = leaf(3);
  Recorder first({a}), second({b});
  CHECK_THROWS_WITH(observe(a, &second, 1), Catch::Contains("an observer already"));
  stop_observing(a, &second);
  sum(a * b).backward();
  CHECK(first.take() == Events{"begin", "grad 0", "end"});
  CHECK(second.take() == Events{"begin", "grad 0", "end"});
  first.follow = false;
  sum(a * b).backward();
  CHECK(first.take().empty());
  CHECK(second.take() == Events{"begin", "grad 0", "end"});
}

TEST_CASE("an observer follows the passes of several threads", "[tape][threads]") {
  struct Counter final : BackwardObserver {
    std::atomic<int> begun{0}, arrivals{0}, ended{0}, failures{0};
    bool begin(std::span<const uint32_t> slots) override { return ++begun, slots.size() == 1; }
    void arrived(uint32_t slot, bool has_grad) override { arrivals += slot == 7 && has_grad; }
    void end() override { ++ended; }
    void failed() noexcept override { ++failures; }
  } counter;
  const Tensor w = leaf(2);
  observe(w, &counter, 7);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) sum(w * 2).backward();
    });
  for (std::thread& thread : threads) thread.join();
  stop_observing(w, &counter);
  CHECK(counter.begun == 200);
  CHECK(counter.arrivals == 200);
  CHECK(counter.ended == 200);
  CHECK(counter.failures == 0);
  CHECK(equal(w.grad(), full({3, 2}, 400.0)));
}

TEST_CASE("a leaf knows whether its gradient was touched", "[tape]") {
  Tensor w = leaf(2);
  CHECK(!take_touched(w));
  CHECK(!take_touched(zeros({2})));
  sum(w * 2).backward();
  CHECK(is_touched(w));
  CHECK(take_touched(w));
  CHECK(!take_touched(w));
  sum(linear(ones({1, 2}), w)).backward();  // stays pending
  CHECK(take_touched(w));
  w.set_grad(ones({3, 2}));
  CHECK(take_touched(w));
  sum(w * 2).backward();
  w.set_grad({});
  CHECK(!take_touched(w));
  w.register_hook([](const Tensor& g) { return g; });
  sum(w * 2).backward();
  CHECK(take_touched(w));

  set_grad_rows(w, {tensor({0, 2}), ones({2, 2})});
  REQUIRE(w.sparse_grad());
  CHECK(take_touched(w));
  CHECK(w.sparse_grad()->ids.to_vector<int64_t>() == std::vector<int64_t>{0, 2});
  sum(embedding(w, tensor({2}), {.sparse = true})).backward();
  CHECK(equal(w.grad(), tensor({1, 1, 0, 0, 2, 2}).to(kFloat32).view({3, 2})));
}
