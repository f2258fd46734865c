// The promises of the tape (autograd.h): cost, memory, order, sharing.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>

#include "lib/base/sanitizers.h"
#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;

namespace {
std::atomic<int64_t> heap_allocations{0};
}
// Counts what the C++ heap is asked for in this program. Sanitizers have these functions themselves.
#if !defined(REEL_ADDRESS_SANITIZER) && !defined(REEL_THREAD_SANITIZER)
[[gnu::noinline]] void* operator new(size_t bytes) {
  heap_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* block = std::malloc(bytes ? bytes : 1)) return block;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  heap_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { std::free(block); }
#endif

namespace {

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

Tensor parameter(const Shape& shape, double scale = 1) {
  return no_grad([&] { return randn(shape) * scale; }).requires_grad_();
}

}  // namespace

TEST_CASE("recording and backward allocate nothing from the heap in the steady state", "[tape][cpu]") {
  manual_seed(1);
  const Tensor w = parameter({8, 8}, 0.1), b = parameter({8}), e = parameter({10, 8});
  const Tensor x = randn({1, 8}), ids = tensor({3});
  auto iteration = [&] {
    Tensor h = x, c = x;
    for (int i = 0; i < 20; ++i) {
      h = tanh(linear(h, w, b)) * h + embedding(e, ids);
      h = cat({h, h}, 1).narrow(1, 4, 8);
      c = lstm_cell(cat({h, h, h, h}, 1), c).c;
      h = h - c * 0.5;
    }
    sum(h).backward();
  };
  for (int i = 0; i < 5; ++i) iteration();
  const int64_t heap = heap_allocations, system = memory_stats().in_use + memory_stats().cached;
  iteration();
  // A backward pass as a whole may allocate a few (its roots and seeds), an op may not.
  CHECK(heap_allocations - heap < 20);
  CHECK(memory_stats().in_use + memory_stats().cached == system);
}

TEST_CASE("a chain of a million ops is built, traversed and freed without recursion", "[tape][cpu]") {
  const Tensor x = ones({1}).requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 1'000'000; ++i) y = y + 1e-6;
  CHECK(live_nodes() >= 1'000'000);
  y.backward();
  CHECK(x.grad().item<float>() == 1);
  CHECK(live_nodes() <= 1);
  y = x;
  for (int i = 0; i < 1'000'000; ++i) y = y * 1;
  y.reset();  // dropped without a backward pass
  CHECK(live_nodes() == 0);
}

TEST_CASE("each of 100,000 uses delivers its gradient once", "[tape][cpu]") {
  const Tensor x = tensor({2.0, 3.0}).requires_grad_();
  std::vector<Tensor> uses;
  for (int i = 0; i < 100'000; ++i) uses.push_back(x * static_cast<float>(i % 3));
  int fired = 0;
  Tensor(x).register_hook([&](const Tensor&) { return ++fired, Tensor(); });
  sum(stack(uses)).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{99'999, 99'999});
  CHECK(fired == 1);
}

TEST_CASE("graphs that are dropped without backward leave nothing behind", "[tape][cpu]") {
  const Tensor w = parameter({4, 4}), x = randn({1, 4});
  auto evaluate = [&](int steps) {
    for (int i = 0; i < steps; ++i) sum(tanh(mm(x, w)) * 2);
  };
  evaluate(1000);
  const double before = resident_mib();
  evaluate(1'000'000);
  CHECK(resident_mib() - before < 2);
  CHECK(live_nodes() == 0);
}

TEST_CASE("backward frees what rules have saved, node by node", "[tape][cpu]") {
  const Tensor x = ones({1 << 16}).requires_grad_();
  std::vector<int64_t> in_use;
  Tensor y = x;
  for (int i = 0; i < 16; ++i) {
    y = tanh(y);  // saves its output, 256 KiB
    y.register_hook([&](const Tensor&) { return in_use.push_back(memory_stats().in_use), Tensor(); });
  }
  sum(y).backward();
  REQUIRE(in_use.size() == 16);
  CHECK(in_use.front() - in_use.back() > 12 * (1 << 18));
}

TEST_CASE("retain_graph keeps the graph for another backward pass, which is refused without it", "[tape]") {
  const Tensor x = tensor({3.0}).requires_grad_();
  const Tensor y = square(x) * x;
  y.backward({}, {.retain_graph = true});
  y.backward();
  CHECK(x.grad().item<float>() == 54);
  CHECK_THROWS_WITH(y.backward(), Catch::Contains("freed by an earlier backward") && Catch::Contains("retain_graph"));
}

TEST_CASE("create_graph gives derivatives of any order", "[tape]") {
  const Tensor x = tensor({0.7}).to(kFloat64).requires_grad_();
  Tensor y = sin(x);
  const double expected[] = {std::cos(0.7), -std::sin(0.7), -std::cos(0.7), std::sin(0.7), std::cos(0.7)};
  for (double value : expected) {
    y = grad({y}, {x}, {}, {.create_graph = true})[0];
    CHECK(y.item<double>() == Approx(value).margin(1e-12));
  }
  CHECK(!x.grad().defined());
}

TEST_CASE("grad runs only rules that lead to its inputs and touches no leaf", "[tape]") {
  const Tensor a = tensor({2.0}).requires_grad_(), b = tensor({5.0}).requires_grad_();
  const Tensor inner = a * 3;
  Tensor aside = tanh(b);
  bool visited = false;
  aside.register_hook([&](const Tensor&) { return visited = true, Tensor(); });
  const Tensor y = inner * inner + aside;
  const std::vector<Tensor> g = grad({y}, {inner}, {}, {.retain_graph = true});
  CHECK(g[0].item<float>() == 12);
  CHECK(!visited);
  CHECK(grad({y}, {inner, a}, {}, {.retain_graph = true})[1].item<float>() == 36);
  CHECK(!a.grad().defined());
  CHECK(!b.grad().defined());
  const Tensor other = ones({1}).requires_grad_();
  CHECK_THROWS_WITH(grad({y}, {other}, {}, {.retain_graph = true}), Catch::Contains("no output depends on input 0"));
  CHECK(!grad({y}, {other}, {}, {.retain_graph = true, .allow_unused = true})[0].defined());
  CHECK(grad({y, inner}, {a}, {tensor({2.0}), tensor({1.0})})[0].item<float>() == 75);
}

TEST_CASE("grad with respect to an output itself is the seed", "[tape]") {
  const Tensor a = tensor({2.0}).requires_grad_();
  const Tensor y = a * 3;
  CHECK(grad({y}, {y}, {tensor({7.0})}, {.retain_graph = true})[0].item<float>() == 7);
  CHECK(grad({y}, {a})[0].item<float>() == 3);
}

TEST_CASE("no_grad and enable_grad nest", "[tape]") {
  const Tensor x = ones({2}).requires_grad_();
  {
    NoGrad off;
    CHECK(!(x * 2).requires_grad());
    CHECK(enable_grad([&] { return x * 2; }).requires_grad());
    CHECK(!grad_enabled());
  }
  CHECK((x * 2).requires_grad());
  CHECK(!x.detach().requires_grad());
}

TEST_CASE("hooks see the final gradient once and may replace it", "[tape]") {
  Tensor w = tensor({1.0, 2.0}).requires_grad_();
  std::vector<float> seen;
  const int64_t id = w.register_hook([&](const Tensor& g) { return seen = g.to_vector<float>(), g * 10; });
  Tensor y = w * 1;
  for (int i = 0; i < 4; ++i) y = y + w;
  int inner = 0;
  Tensor z = y * 2;
  z.register_hook([&](const Tensor&) { return ++inner, Tensor(); });
  int after = 0;
  w.register_post_accumulate_grad_hook([&](const Tensor& leaf) { after += leaf.grad().numel() == 2; });
  sum(z + z).backward();
  CHECK(seen == std::vector<float>{20, 20});
  CHECK(w.grad().to_vector<float>() == std::vector<float>{200, 200});
  CHECK(inner == 1);
  CHECK(after == 1);
  w.remove_hook(id);
  w.set_grad({});
  sum(w * 3).backward();
  CHECK(w.grad().to_vector<float>() == std::vector<float>{3, 3});
  CHECK_THROWS_WITH(w.remove_hook(id), Catch::Contains("has no hook"));
}

TEST_CASE("a parameter is final while the rest of the backward pass goes on", "[tape]") {
  // What lets communication overlap with the backward pass: the last layer's gradient is there before the first layer's
  // rule runs.
  Tensor w1 = tensor({2.0}).requires_grad_(), w2 = tensor({3.0}).requires_grad_();
  std::vector<std::string> order;
  w1.register_post_accumulate_grad_hook([&](const Tensor&) { order.push_back("w1"); });
  w2.register_post_accumulate_grad_hook([&](const Tensor&) { order.push_back("w2"); });
  const Tensor x = ones({1});
  Tensor h = x * w1;
  h.register_hook([&](const Tensor&) { return order.push_back("h"), Tensor(); });
  (h * w2).backward();
  CHECK(order == std::vector<std::string>{"w2", "h", "w1"});
}

TEST_CASE("retain_grad keeps the gradient of a tensor in the middle", "[tape]") {
  const Tensor x = tensor({3.0}).requires_grad_();
  Tensor y = x * 2;
  y.retain_grad();
  (y * y).backward();
  CHECK(y.grad().item<float>() == 12);
  CHECK(x.grad().item<float>() == 24);
}

TEST_CASE("a gradient is not added to one that was set to an expanded tensor", "[tape]") {
  // Each of its elements would get the sum of all.
  Tensor x = tensor({1.0, 2.0, 3.0}).requires_grad_();
  x.set_grad(tensor({10.0}).expand({3}));
  CHECK_THROWS_WITH(sum(x * x).backward(), Catch::Contains("set_grad") && Catch::Contains("expanded"));
  x.set_grad(x.grad().clone());
  sum(x * x).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{12, 14, 16});
}

TEST_CASE("a saved tensor that was changed in place is found out", "[tape]") {
  const Tensor x = tensor({3.0}).requires_grad_();
  Tensor y = x * 2;
  const Tensor z = y * y;
  y.add_(1);
  CHECK_THROWS_WITH(z.backward(), Catch::Contains("mul") && Catch::Contains("changed in place") &&
                                      Catch::Contains("float32 [1]") && Catch::Contains("version 0"));
  CHECK(!x.grad().defined());
  Tensor t = tanh(x);
  const Tensor u = t * 1;
  t.mul_(2);
  CHECK_THROWS_WITH(u.backward({}, {.retain_graph = true}),
                    Catch::Contains("tanh") || Catch::Contains("changed in place"));
}

TEST_CASE("a rule that throws leaves everything as it was", "[tape]") {
  const Tensor x = tensor({1.0}).requires_grad_();
  bool broken = true;
  const Tensor y = x * 2;
  const Tensor z = custom_op("fragile", y.detach(), {y}, [&](const Tensor& g) {
    if (broken) throw Error("broken");
    return std::vector{g};
  });
  const Tensor loss = sum(z + y);
  CHECK_THROWS_WITH(loss.backward({}, {.retain_graph = true}), "broken");
  CHECK(!x.grad().defined());
  broken = false;
  loss.backward({}, {.retain_graph = true});
  CHECK(x.grad().item<float>() == 4);
}

TEST_CASE("a backward pass that an exception ends leaves no node behind", "[tape]") {
  const int64_t before = live_nodes();
  {
    const Tensor x = tensor({1.0}).requires_grad_();
    const Tensor z =
        custom_op("fragile", x.detach(), {x * 2}, [](const Tensor&) -> std::vector<Tensor> { throw Error("broken"); });
    CHECK_THROWS_AS(sum(z + z * x).backward(), Error);
  }
  CHECK(live_nodes() == before);
}

TEST_CASE("a hook may remove itself and add others", "[tape]") {
  Tensor w = tensor({1.0}).requires_grad_();
  std::string seen;
  int64_t id = 0;
  const std::string name = "a name that is too long to be stored in place";
  id = w.register_hook([&, name](const Tensor&) {
    w.remove_hook(id);
    for (int i = 0; i < 8; ++i) w.register_hook([](const Tensor& g) { return g * 2; });
    seen = name;
    return Tensor();
  });
  Tensor y = w * 1;
  y.register_hook([&, name](const Tensor&) {
    for (int i = 0; i < 8; ++i) y.register_hook([](const Tensor&) { return Tensor(); });
    return seen = name, Tensor();
  });
  sum(y).backward();
  CHECK(seen == name);
}

TEST_CASE("gradients are tensors of their own that may be changed in place", "[tape]") {
  Tensor a = ones({3}).requires_grad_(), b = ones({3}).requires_grad_();
  Tensor h = a + b;
  h.retain_grad();
  const Tensor seed = full({3}, 2.0);
  h.backward(seed, {.create_graph = true});
  CHECK(!a.grad().is_same(b.grad()));
  no_grad([&] { a.grad().zero_(), h.grad().mul_(3); });
  CHECK(b.grad().to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(seed.to_vector<float>() == std::vector<float>{2, 2, 2});
  a.set_grad({});
  sum(a).backward({}, {.create_graph = true});
  sum(a * 2).backward();
  a.grad().mul_(0.5);
  CHECK(a.grad().to_vector<float>() == std::vector<float>{1.5, 1.5, 1.5});
}

TEST_CASE("a tensor that keeps its gradient may be changed in place, and die", "[tape]") {
  const Tensor x = ones({3}).requires_grad_();
  Tensor z;
  {
    Tensor y = x * 2;
    y.retain_grad();
    y.mul_(3);
    z = sum(y * 5);
    z.backward({}, {.retain_graph = true});
    CHECK(y.grad().to_vector<float>() == std::vector<float>{5, 5, 5});
  }
  std::vector<Tensor> others;
  for (int i = 0; i < 40; ++i) others.push_back(ones({3}));
  z.backward();
  for (const Tensor& other : others) CHECK(!other.grad().defined());
}

TEST_CASE("a number that losses were added to keeps its history", "[tape]") {
  const Tensor a = ones({2}).requires_grad_(), b = ones({2}).requires_grad_();
  Tensor loss = 0.0;
  loss += sum(a * 2);
  (loss + sum(b)).backward();
  REQUIRE(a.grad().defined());
  CHECK(a.grad().to_vector<float>() == std::vector<float>{2, 2});
  Tensor power = 2.0;
  power.requires_grad_();
  CHECK(pow(ones({2}), power).requires_grad());
}

TEST_CASE("a loss may be added to in place", "[tape]") {
  const Tensor x = zeros({1, 2}).requires_grad_();
  Tensor loss = cross_entropy(x, tensor({0}), kSum);
  loss += sum(square(x));
  loss += 1.0;
  CHECK_NOTHROW(loss.backward());
}

TEST_CASE("a hook may run a backward pass of another graph", "[tape]") {
  const Tensor a = tensor({2.0}).requires_grad_(), b = tensor({3.0}).requires_grad_();
  Tensor y = a * a;
  y.register_hook([&](const Tensor& g) {
    enable_grad([&] { (b * b * b).backward(); });
    return g * b.grad();
  });
  (y * 1).backward();
  CHECK(b.grad().item<float>() == 27);
  CHECK(a.grad().item<float>() == 108);
}

TEST_CASE("the tape prints itself", "[tape]") {
  const Tensor w = ones({2, 3}).requires_grad_();
  const Tensor y = sum(tanh(w) * 2);
  const std::string text = tape_to_string(y);
  CHECK_THAT(text, Catch::Contains("sum float32 [] <- #") && Catch::Contains("mul float32 [2, 3] <- #") &&
                       Catch::Contains("tanh float32 [2, 3] <- leaf float32 [2, 3]"));
  CHECK(text.find("sum") < text.find("tanh"));
  const std::string dot = tape_to_dot(y);
  CHECK_THAT(dot, Catch::StartsWith("digraph tape {") && Catch::Contains("label=\"tanh\\nfloat32 [2, 3]\"") &&
                      Catch::Contains("leaf") && Catch::EndsWith("}\n"));
  CHECK_THROWS_WITH(tape_to_string(ones({1})), Catch::Contains("no history"));
}

TEST_CASE("a printed tape is the same in a locale that groups digits", "[tape]") {
  struct Dots : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const Tensor x = ones({2000}, {.requires_grad = true});
  Tensor y = x * 2;
  for (int i = 0; i < 1000; ++i) y = y + 1;  // numbers of four digits
  const std::string text = tape_to_string(y), dot = tape_to_dot(y);
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Dots));
  const std::string grouped_text = tape_to_string(y), grouped_dot = tape_to_dot(y);
  std::locale::global(before);
  CHECK(grouped_text == text);
  CHECK(grouped_dot == dot);
}

TEST_CASE("rules write over gradients that no other handle shares, and only over those", "[tape]") {
  Tensor x = tensor({0.5, -1.}).requires_grad_(), middle = exp(x), seen;
  const Tensor seed = tensor({1., 2.});
  middle.retain_grad();
  Tensor y = tanh(middle * middle);
  y.register_hook([&](const Tensor& g) { return seen = g, Tensor(); });
  y.backward(seed, {.retain_graph = true});
  const Tensor kept = middle.grad().clone(), first = x.grad().clone();
  CHECK(equal(seed, tensor({1., 2.})));
  CHECK(equal(seen, seed));
  testing::assert_close(kept, (1 - square(y)) * 2 * middle * seed);
  x.set_grad({});
  y.backward(seed);
  CHECK(equal(x.grad(), first));
  // A chain of any length needs no more room for gradients than one of its ops.
  Tensor chain = ones({1000}, {.requires_grad = true});
  for (int i = 0; i < 50; ++i) chain = tanh(chain);
  const Tensor ones_like_it = ones({1000});
  reset_peak_memory_stats();
  const int64_t before = memory_stats().in_use;
  chain.backward(ones_like_it);
  CHECK(memory_stats().peak_in_use - before < 3 * 4096 + 2048);
}

TEST_CASE("anomaly mode names the op that made a NaN and where it was recorded", "[tape]") {
  const Tensor x = tensor({0.0}).requires_grad_();
  DetectAnomaly guard;
  const Tensor y = sqrt(x) * 0;  // 0 / 0 in sqrt's gradient
  CHECK_THROWS_WITH(y.backward(), Catch::Contains("NaN") && Catch::Contains("'sqrt'") && Catch::Contains("  at "));
}

TEST_CASE("checkpoint gives the same gradients from less memory", "[tape]") {
  manual_seed(5);
  const Tensor w = parameter({64, 64}, 0.1);
  const Tensor outside = parameter({1, 64});
  const Tensor x = parameter({64, 64});
  auto segment = [&](const std::vector<Tensor>& in) {
    Tensor h = in[0];
    for (int i = 0; i < 8; ++i) h = dropout(tanh(linear(h, w) + outside * outside), 0.2);
    return std::vector{h};
  };
  struct Run {
    std::vector<float> w, outside, x;
    int64_t peak;
  };
  auto run = [&](bool checkpointed) {
    manual_seed(7);
    for (Tensor t : {w, outside, x}) t.set_grad({});
    const int64_t start = memory_stats().in_use;
    Tensor h = x;
    for (int i = 0; i < 4; ++i) h = checkpointed ? checkpoint(segment, {h})[0] : segment({h})[0];
    const int64_t held = memory_stats().in_use - start;
    sum(h).backward();
    return Run{w.grad().to_vector<float>(), outside.grad().to_vector<float>(), x.grad().to_vector<float>(), held};
  };
  int fired = 0;
  Tensor(w).register_post_accumulate_grad_hook([&](const Tensor&) { ++fired; });
  const Run plain = run(false);
  const Run saved = run(true);
  CHECK(fired == 2);
  for (size_t i = 0; i < plain.w.size(); ++i) REQUIRE(saved.w[i] == Approx(plain.w[i]).margin(1e-4));
  for (size_t i = 0; i < plain.outside.size(); ++i) REQUIRE(saved.outside[i] == Approx(plain.outside[i]).margin(1e-4));
  CHECK(saved.x == plain.x);
  CHECK(saved.peak * 4 < plain.peak);
}

TEST_CASE("checkpoint can be differentiated twice and nested", "[tape]") {
  const Tensor x = tensor({0.5}).to(kFloat64).requires_grad_(), k = tensor({2.0}).to(kFloat64).requires_grad_();
  const Tensor outer = k * 1;  // captured, and not a leaf
  auto inner = [&](const std::vector<Tensor>& in) { return std::vector{sin(in[0] * outer)}; };
  auto f = [&](const std::vector<Tensor>& in) { return std::vector{checkpoint(inner, in)[0] * in[0]}; };
  const Tensor y = checkpoint(f, {x})[0];  // x sin(k x)
  const std::vector<Tensor> g = grad({y}, {x, k}, {}, {.create_graph = true});
  CHECK(g[0].item<double>() == Approx(std::sin(1.0) + 0.5 * 2 * std::cos(1.0)));
  CHECK(g[1].item<double>() == Approx(0.25 * std::cos(1.0)));
  const Tensor second = grad({g[0]}, {x})[0];
  CHECK(second.item<double>() == Approx(2 * 2 * std::cos(1.0) - 0.5 * 4 * std::sin(1.0)));
}

TEST_CASE("a hook that removes itself does not keep the next one from being called", "[tape]") {
  Tensor leaf = ones({2}).requires_grad_(), middle = leaf * 2;
  for (Tensor x : {leaf, middle}) {
    int first = 0, removed = 0, later = 0;
    int64_t id = 0, victim = 0;
    id = x.register_hook([&](const Tensor&) {
      ++first;
      x.remove_hook(id), x.remove_hook(victim);
      x.register_hook([&](const Tensor&) { return ++later, Tensor(); });
      return Tensor();
    });
    x.register_hook([](const Tensor& g) { return g * 10; });
    victim = x.register_hook([&](const Tensor&) { return ++removed, Tensor(); });
    x.register_hook([](const Tensor& g) { return g + 1; });
    CHECK(grad({sum(middle)}, {x}, {}, {.retain_graph = true})[0].to_vector<float>()[0] == (x.is_same(leaf) ? 21 : 11));
    CHECK((first == 1 && removed == 0 && later == 0));
    grad({sum(middle)}, {x}, {}, {.retain_graph = true});
    CHECK((first == 1 && later == 1));
  }
  Tensor w = ones({2}).requires_grad_();
  int first = 0, second = 0, added = 0;
  int64_t id = 0;
  id = w.register_post_accumulate_grad_hook([&](const Tensor&) {
    ++first;
    w.remove_hook(id);
    w.register_post_accumulate_grad_hook([&](const Tensor&) { ++added; });
  });
  w.register_post_accumulate_grad_hook([&](const Tensor&) { ++second; });
  sum(w).backward();
  CHECK((first == 1 && second == 1 && added == 0));
  sum(w).backward();
  CHECK((first == 1 && second == 2 && added == 1));
}

TEST_CASE("several threads may read and clear one gradient", "[tape][threads][cpu]") {
  for (int round = 0; round < 50; ++round) {
    const Tensor table = ones({50, 8}).requires_grad_(), w = ones({8, 8}).requires_grad_();
    sum(embedding(table, tensor({1, 2, 3, 3}), true)).backward();  // rows, which grad() makes dense
    sum(linear(ones({1, 8}), w)).backward();                       // a product that is deferred
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        if (sum(table.grad()).item<double>() != 32 || sum(w.grad()).item<double>() != 64) ++wrong;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    threads.clear();
    threads.emplace_back([&] { Tensor(w).set_grad({}); });
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&] {
        if (const Tensor g = w.grad(); g.defined() && sum(g).item<double>() != 64) ++wrong;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("a backward pass within another leaves that one's targets alone", "[tape]") {
  const Tensor x = tensor({3.0}).requires_grad_(), other = tensor({5.0}).requires_grad_();
  const Tensor h = x * 2;
  Tensor y = h * h;
  int calls = 0;
  y.register_hook([&](const Tensor&) {
    ++calls;
    const Tensor z = enable_grad([&] { return other * other; });
    CHECK(!grad({z}, {h}, {}, {.allow_unused = true})[0].defined());
    return Tensor();
  });
  CHECK(grad({y * 1}, {h})[0].item<float>() == 12);
  CHECK(calls == 1);
}

TEST_CASE("a backward pass within another is refused the nodes that that one is at work on", "[tape]") {
  const int64_t nodes = live_nodes();
  {
    const Tensor x = tensor({3.0}).requires_grad_(), w = tensor({2.0}).requires_grad_();
    const Tensor h = x * w, y = h * h * x, z = h * 5;
    int refused = 0;
    const auto again = [&](const Tensor& root) {
      CHECK_THROWS_WITH(root.backward({}, {.retain_graph = true}),
                        Catch::Contains("is part of the backward pass that runs this one"));
      ++refused;
      return Tensor();
    };
    Tensor(h).register_hook([&](const Tensor&) { return again(y); });
    Tensor(w).register_hook([&](const Tensor&) { return again(z); });
    y.backward({}, {.retain_graph = true});
    CHECK(refused == 2);
    CHECK(x.grad().item<float>() == 3 * 9 * 4);  // x³w²
    CHECK(w.grad().item<float>() == 27 * 4);
    Tensor(x).set_grad({});
    y.backward({}, {.retain_graph = true});
    CHECK(x.grad().item<float>() == 3 * 9 * 4);
    Tensor(x).set_grad({}), Tensor(w).set_grad({});
  }
  CHECK(live_nodes() == nodes);
}

TEST_CASE("a hook keeps its own state from call to call", "[tape][hooks]") {
  const Tensor leaf = ones({2}).requires_grad_(), middle = leaf * 2;
  std::vector<int> seen;
  for (const Tensor& x : {leaf, middle})
    Tensor(x).register_hook([&seen, calls = 0](const Tensor&) mutable { return seen.push_back(++calls), Tensor(); });
  Tensor(leaf).register_post_accumulate_grad_hook(
      [&seen, calls = 10](const Tensor&) mutable { seen.push_back(++calls); });
  for (int i = 0; i < 2; ++i) sum(middle).backward({}, {.retain_graph = true});
  CHECK(seen == std::vector<int>{1, 1, 11, 2, 2, 12});
}
