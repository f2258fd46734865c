// When a graph is freed: as soon as nothing can use it.
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;

TEST_CASE("in-place programs that are dropped without backward leave nothing behind", "[tape][inplace][cpu]") {
  const Tensor w = full({4}, 2.0).requires_grad_();
  const std::vector<std::pair<std::string, std::function<void(Tensor h)>>> programs{
      {"h.copy_(h * w)", [&](Tensor h) { h.copy_(h * w); }},
      {"h.add_(h * w)", [&](Tensor h) { h.add_(h * w); }},
      {"h[0].copy_(h[1] * w)", [&](Tensor h) { h[0].copy_(h[1] * w[1]); }},
      {"the view dies first",
       [&](Tensor h) {
         const Tensor product = h[1] * w[1];
         h[0].copy_(product);
       }},
      {"a view of a view",
       [&](Tensor h) {
         h.view({2, 2})[0].copy_(h.view({2, 2}).t()[1] * w.narrow(0, 0, 2));
       }},
      {"a view that is used again",
       [&](Tensor h) {
         Tensor v = h.narrow(0, 0, 2);
         const Tensor product = v * w.narrow(0, 0, 2);
         h.narrow(0, 0, 2).copy_(product);
         v.mul_(v * w.narrow(0, 0, 2));
         h.add_(sum(v) * w);
       }},
      {"mul_", [&](Tensor h) { h.mul_(h); }},
      {"pow_", [&](Tensor h) { h.pow_(h); }},
      {"addcmul_", [&](Tensor h) { h.addcmul_(h, h); }},
      {"addcdiv_", [&](Tensor h) { h.addcdiv_(h, h); }},
      {"lerp_", [&](Tensor h) { h.lerp_(h * w, h); }},
      {"index_put_",
       [&](Tensor h) {
         h.index_put_({tensor({0, 1})}, h.narrow(0, 2, 2) * w.narrow(0, 0, 2));
       }},
      {"scatter_reduce_",
       [&](Tensor h) {
         h.scatter_reduce_(0, tensor({0, 1}), h * w, Reduce::kMax);
       }},
      {"several times",
       [&](Tensor h) {
         for (int i = 0; i < 3; ++i) h.copy_(h * w), h[i].copy_(h[i + 1] * w[0]);
       }},
      {"one thing saved since",
       [&](Tensor h) {
         const Tensor a = h * w;
         h.copy_(a), h = h * h * w;
       }},
      {"across two tensors",
       [&](Tensor h) {
         Tensor other = ones({4});
         const Tensor a = h * w, b = other * w;
         other.copy_(a), h.copy_(b);
       }},
      {"its gradient is kept",
       [&](Tensor h) {
         Tensor t = h * w;
         t.retain_grad();
         t.copy_(t * w);
       }},
  };
  for (const bool constant : {false, true})
    for (const auto& [name, run] : programs) {
      INFO(name << (constant ? ", from a constant" : ", from a computed tensor"));
      const auto start = [&] { return constant ? full({4}, 1.5) : w * 1; };
      run(start());
      const int64_t nodes = live_nodes(), bytes = memory_stats().in_use;
      CHECK(nodes == 0);
      for (int i = 0; i < 10; ++i) run(start());
      CHECK(live_nodes() == nodes);
      CHECK(memory_stats().in_use == bytes);
    }
}

TEST_CASE("a history that something has saved since a change in place is kept without a handle", "[tape][inplace]") {
  const Tensor x = tensor({0.5, 2.0}).to(kFloat64).requires_grad_();
  for (const bool keep : {false, true}) {
    Tensor h = x * 1, before = h * x;  // it saves h, in vain: h is changed
    h.mul_(x);
    Tensor g = sum(h * h.narrow(0, 0, 2) * x);  // x⁵
    if (!keep) before.reset();
    h.reset();
    double factor = 1;
    for (int power = 4; power > 0; --power) {
      g = grad({sum(g)}, {x}, {}, {.create_graph = true})[0];
      factor *= power + 1;
      if (power == 3) before.reset();
      for (int i = 0; i < 2; ++i)
        CHECK(g.to_vector<double>()[i] == Approx(factor * std::pow(x.to_vector<double>()[i], power)));
    }
  }
}

TEST_CASE("when handles are dropped changes no gradient, and everything is freed", "[tape][inplace][cpu]") {
  // Random programs of views and changes in place. What they give: gradients and second derivatives, or the Error.
  const auto run = [](uint64_t seed, bool keep) {
    std::mt19937_64 random(seed);
    const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
    const TensorOptions wide{.dtype = kFloat64, .requires_grad = true};
    const Tensor x = full({4}, 0.9, wide), w = full({4}, 1.1, wide);
    std::vector<Tensor> pool{x * 1, w * 1}, kept;
    const auto any = [&]() -> Tensor {
      const auto i = static_cast<size_t>(below(pool.size() + 2));
      return i < pool.size() ? pool[i] : i == pool.size() ? x : w;
    };
    const auto half = [&](const Tensor& t) { return t.narrow(0, below(3), 2); };
    std::string result;
    try {
      for (int64_t step = below(10); step >= 0; --step) {
        Tensor target = pool[static_cast<size_t>(below(pool.size()))];
        switch (below(9)) {
          case 0: pool.push_back(any() * any()); break;
          case 1: pool.push_back(any() + any()); break;
          case 2: pool.push_back(target.view({2, 2}).t().t().view({4})); break;
          case 3: target.mul_(any()); break;
          case 4: target.copy_(target * any()); break;
          case 5: half(target).copy_(half(any()) * half(any())); break;
          case 6: half(target).add_(half(target) * half(w)); break;
          case 7: target.copy_(any()); break;
          default:
            if (pool.size() < 2) break;
            kept.push_back(pool.front());
            pool.erase(pool.begin());
            if (!keep) kept.clear();
        }
      }
      Tensor loss = 0.0;
      std::vector<Tensor> others;  // may have saved what the loss depends on, before a change
      for (const Tensor& t : pool)
        if (below(2))
          loss = loss * 0.5 + sum(t * t);
        else
          others.push_back(t);
      if (!keep) pool.clear();
      const std::vector<Tensor> first = grad({loss}, {x, w}, {}, {.create_graph = true, .allow_unused = true});
      Tensor slope = 0.0;
      for (const Tensor& g : first)
        if (g.defined()) result += g.to_string(), slope = slope + sum(g * g);
      for (const Tensor& g : grad({slope}, {x, w}, {}, {.allow_unused = true}))
        if (g.defined()) result += g.to_string();
    } catch (const Error& error) {
      result += error.what();
    }
    return result;
  };
  for (uint64_t seed = 0; seed < 10; ++seed) run(seed, false);
  const int64_t nodes = live_nodes(), bytes = memory_stats().in_use;
  int errors = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    INFO(seed);
    const std::string result = run(seed, true);
    CHECK(run(seed, false) == result);
    CHECK(live_nodes() == nodes);
    CHECK(memory_stats().in_use == bytes);
    errors += result.find("changed in place") != std::string::npos;
  }
  INFO(errors);
  CHECK((errors > 300 && errors < 2700));  // some programs of each kind
}

TEST_CASE("gradients with a history are freed with the tensors that they belong to", "[tape][cpu]") {
  const int64_t nodes = live_nodes(), bytes = memory_stats().in_use;
  const auto run = [] {
    const Tensor x = tensor({0.5, 2.0}).requires_grad_(), w = tensor({3.0, 4.0}).requires_grad_();
    Tensor h = x * w;
    h.retain_grad();
    const Tensor y = sum(h * h * x);
    y.backward({}, {.create_graph = true});
    sum(x.grad() * w.grad()).backward({}, {.create_graph = true});
    CHECK(x.grad().requires_grad());
  };
  for (int i = 0; i < 3; ++i) run();
  CHECK(live_nodes() == nodes);
  CHECK(memory_stats().in_use == bytes);
}

TEST_CASE("leaves that only hooks link are freed without recursion", "[tape][cpu]") {
  Tensor head = ones({1}).requires_grad_();
  for (int i = 0; i < 200'000; ++i) {
    Tensor next = ones({1}).requires_grad_();
    next.register_hook([head](const Tensor&) { return Tensor(); });
    head = next;
  }
  const int64_t before = memory_stats().in_use;
  head.reset();
  CHECK(memory_stats().in_use < before);
  Tensor first = ones({1}).requires_grad_(), last = first;
  for (int i = 0; i < 200'000; ++i) {  // or gradients
    const Tensor next = ones({1}).requires_grad_();
    last.set_grad(next);
    last = next;
  }
}

TEST_CASE("foreign memory that other foreign memory holds is freed without recursion", "[tape][cpu]") {
  float data[1] = {1};
  int released = 0;
  Tensor head = from_blob(data, {1});
  for (int i = 0; i < 200'000; ++i) head = from_blob(data, {1}, [head, &released] { ++released; });
  const int64_t before = memory_stats().in_use;
  head.reset();
  CHECK(released == 200'000);
  CHECK(memory_stats().in_use < before);
}
