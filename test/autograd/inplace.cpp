// In-place ops, views of what they change, and their gradients.
#include "lib/tensor/tensor_impl.h"
#include "reel/reel.h"
#include "reel/testing.h"
#include "test/support/pch.h"

using namespace reel;
using Floats = std::vector<float>;

TEST_CASE("in-place arithmetic is differentiable where the out-of-place op is", "[inplace]") {
  const Tensor x = tensor({1.0, 2.0}).requires_grad_(), y = tensor({3.0, 4.0}).requires_grad_();
  Tensor z = x * 1;
  z.mul_(y).add_(x, 2).tanh_();
  sum(z).backward();
  for (int i = 0; i < 2; ++i) {
    const double xv = i + 1, yv = i + 3, slope = 1 - std::pow(std::tanh(xv * yv + 2 * xv), 2);
    CHECK(x.grad().to_vector<double>()[i] == Approx(slope * (yv + 2)).margin(1e-6));
    CHECK(y.grad().to_vector<double>()[i] == Approx(slope * xv).margin(1e-6));
  }
}

TEST_CASE("in-place twins without a gradient of their own", "[inplace]") {
  Tensor x = tensor({-5.5, 7.0});
  CHECK(x.clone().sign_().to_vector<float>() == Floats{-1, 1});
  CHECK(x.clone().fmod_(3).to_vector<float>() == Floats{-2.5, 1});
  CHECK(x.sub_(1, 2).to_vector<float>() == Floats{-7.5, 5});
}

TEST_CASE("rows written into a buffer carry their gradients", "[inplace]") {
  const Tensor a = tensor({1.0, 2.0}).requires_grad_(), b = tensor({3.0, 4.0}).requires_grad_();
  Tensor buffer = zeros({3, 2});
  buffer[0].copy_(a * 2);
  buffer[2].copy_(b);
  buffer[0].mul_(5);
  CHECK(buffer.to_vector<float>() == Floats{10, 20, 0, 0, 3, 4});
  sum(buffer * tensor({{1, 2}, {3, 4}, {5, 6}})).backward();
  CHECK(a.grad().to_vector<float>() == Floats{10, 20});
  CHECK(b.grad().to_vector<float>() == Floats{5, 6});
}

TEST_CASE("a view made before its base is changed sees the new history", "[inplace]") {
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0}).requires_grad_();
  Tensor base = x * 1;
  Tensor square_view = base.view({2, 2}), column = square_view.select(1, 1);
  base.mul_(3);
  column.mul_(10);
  CHECK(base.to_vector<float>() == Floats{3, 60, 9, 120});
  sum(square_view).backward({}, {.retain_graph = true});
  CHECK(x.grad().to_vector<float>() == Floats{3, 30, 3, 30});
  Tensor(x).set_grad({});
  sum(column).backward();
  CHECK(x.grad().to_vector<float>() == Floats{0, 30, 0, 30});
}

TEST_CASE("leaves that require grad change only under no_grad", "[inplace]") {
  Tensor w = ones({2, 2}).requires_grad_();
  CHECK_THROWS_WITH(w.add_(1), "add_: a leaf that requires grad can be changed in place only under no_grad");
  CHECK_THROWS_WITH(w[0].zero_(), Catch::Contains("through a view of it"));
  CHECK(w.to_vector<float>() == Floats{1, 1, 1, 1});
  no_grad([&] { w.add_(1), w[0].zero_(); });
  CHECK(w.to_vector<float>() == Floats{0, 0, 2, 2});
  CHECK(w.is_leaf());
  Tensor part = ones({3}).narrow(0, 1, 2).detach().requires_grad_(), view = ones({3}).narrow(0, 1, 2).requires_grad_();
  CHECK_THROWS_WITH(part.add_(1), Catch::Contains("only under no_grad"));
  CHECK_THROWS_WITH(view.add_(1), Catch::Contains("only under no_grad"));
  CHECK(w.version() == 2);
}

TEST_CASE("a view that becomes a leaf is protected from changes that would give it a history", "[inplace]") {
  const Tensor w = ones({3}).requires_grad_();
  Tensor base = ones({5}), other = base.narrow(0, 2, 3);
  {
    Tensor leaf = base.narrow(0, 1, 3).requires_grad_(), part = leaf.narrow(0, 0, 1);
    CHECK_THROWS_WITH(part.add_(1), Catch::Contains("through a view of it"));
    const auto clear = Catch::Contains("another view of this memory is a leaf");
    CHECK_THROWS_WITH(base.narrow(0, 0, 3).add_(w), clear);
    CHECK_THROWS_WITH(other.copy_(w * 2), clear);
    CHECK_THROWS_WITH(base.add_(amax(leaf.clone(), {0}, true)), clear);
    CHECK(base.to_vector<float>() == Floats{1, 1, 1, 1, 1});
    CHECK(base.version() == 0);
    base.mul_(2);  // without history it is like a change under no_grad
    sum(leaf * leaf).backward();
    CHECK(leaf.is_leaf());
    CHECK(leaf.grad().to_vector<float>() == Floats{4, 4, 4});
    leaf.requires_grad_(false);
    CHECK_THROWS_WITH(leaf.mul_(w), Catch::Contains("became a leaf"));
  }
  Tensor alone = ones({5}).narrow(0, 1, 3).requires_grad_();
  alone.requires_grad_(false);
  alone.mul_(w), alone.mul_(w);  // without base and requires_grad it is a tensor like others
  other.mul_(w);                 // the leaf does not exist any more
  sum(base).backward();
  CHECK(w.grad().to_vector<float>() == Floats{2, 2, 2});
}

TEST_CASE("parameters that are views follow their module to another type", "[inplace]") {
  const Tensor w = ones({2}).requires_grad_();
  Tensor flat = ones({4}), leaf = flat.narrow(0, 0, 2).requires_grad_();
  set_data(leaf, leaf.detach().to(kFloat64));
  flat.narrow(0, 2, 2).add_(w);
  sum(flat).backward();
  CHECK(w.grad().to_vector<float>() == Floats{1, 1});
  sum(leaf).backward();
  CHECK(leaf.grad().to_vector<double>() == std::vector<double>{1, 1});
}

TEST_CASE("in-place ops refuse what they cannot do and change nothing", "[inplace]") {
  Tensor x = tensor({1.0, 2.0}), ids = tensor({1, 2});
  CHECK_THROWS_WITH(x.add_(ones({2, 2})), Catch::Contains("add_") && Catch::Contains("[2, 2]"));
  CHECK_THROWS_WITH(ids.mul_(1.5), Catch::Contains("mul_") && Catch::Contains("int64"));
  CHECK_THROWS_WITH(ones({1}).expand({3}).add_(1), Catch::Contains("expanded"));
  Tensor view = no_grad([&] { return x.view({2, 1}); });
  const Tensor y = tensor({{1.0}, {1.0}}).requires_grad_();
  CHECK_THROWS_WITH(view.copy_(y), Catch::Contains("made under no_grad"));
  CHECK(x.to_vector<float>() == Floats{1, 2});
  CHECK(ids.to_vector<int64_t>() == std::vector<int64_t>{1, 2});
  CHECK(x.version() == 0);
}

TEST_CASE("an operand that shares the storage is read before it is written", "[inplace]") {
  Tensor x = tensor({{1, 2}, {3, 4}}).to(kFloat32);
  x.add_(x.t());
  CHECK(x.to_vector<float>() == Floats{2, 5, 5, 8});
  Tensor v = arange(5.0);
  v.slice(0, 1).copy_(v.slice(0, 0, 4));
  CHECK(v.to_vector<float>() == Floats{0, 0, 1, 2, 3});
}

TEST_CASE("index_put_ writes through and differentiates", "[inplace]") {
  const Tensor v = tensor({10.0, 20.0}).requires_grad_();
  Tensor x = zeros({3, 2});
  x.index_put_({Slice(0, 2), 1}, v);
  x.index_put_({tensor({2}), tensor({0})}, 7);
  CHECK(x.to_vector<float>() == Floats{0, 10, 0, 20, 7, 0});
  sum(x * x).backward();
  CHECK(v.grad().to_vector<float>() == Floats{20, 40});
}

TEST_CASE("changing part of a linalg result in place keeps the gradient of the rest", "[inplace]") {
  const Tensor a = tensor({{2.0, 0.0}, {0.0, 5.0}}).requires_grad_();
  Tensor values = linalg::eigvalsh(a);
  values[0].fill_(0);
  sum(values).backward();
  CHECK(a.grad().to_vector<float>() == Floats{0, 0, 0, 1});

  const Tensor b = stack({a.detach(), a.detach() * 2}).requires_grad_();
  const Tensor log = linalg::slogdet(b).logabsdet;
  log[0].mul_(3);
  sum(log).backward();
  CHECK(b.grad().to_vector<float>() == Floats{1.5, 0, 0, 0.6f, 0.25, 0, 0, 0.1f});
}

TEST_CASE("what a write through a view has overwritten gets the gradient 0, not NaN", "[inplace]") {
  // sqrt has the slope infinity at the 0 that is written.
  const struct {
    const char* name;
    Tensor (*write)(const Tensor& x);
  } table[] = {
      {"select",
       [](const Tensor& x) {
         Tensor y = x * 1;
         return y[0].fill_(0), y;
       }},
      {"narrow",
       [](const Tensor& x) {
         Tensor y = x * 1;
         return y.narrow(0, 0, 1).copy_(zeros({1})), y;
       }},
      {"index_put_ of a number",
       [](const Tensor& x) {
         Tensor y = x * 1;
         return y.index_put_({0}, 0.0), y;
       }},
      {"index_put_ of ids",
       [](const Tensor& x) {
         Tensor y = x * 1;
         return y.index_put_({tensor({0})}, 0.0), y;
       }},
      {"index_put_ of a slice and ids",
       [](const Tensor& x) {
         return (x * 1).view({1, 2}).index_put_({Slice(), tensor({0})}, 0.0).view({2});
       }},
      {"index_put_ of a part and ids",
       [](const Tensor& x) {
         const Tensor y = stack({x, x});
         Tensor(y).index_put_({Slice(0, 1), tensor({0})}, 0.0);
         return y[0];
       }},
      {"select_scatter", [](const Tensor& x) { return select_scatter(x, zeros({}), 0, 0); }},
      {"slice_scatter", [](const Tensor& x) { return slice_scatter(x, zeros({1}), 0, 0, 1); }},
      {"diagonal_scatter",
       [](const Tensor& x) {
         return diagonal_scatter(x.view({1, 2}), zeros({1})).view({2});
       }},
      {"masked_fill_",
       [](const Tensor& x) {
         return (x * 1).masked_fill_(tensor({true, false}), 0);
       }},
      {"a base with gaps",
       [](const Tensor& x) {
         Tensor y = zeros({2, 2}).select(1, 0).detach();
         y.copy_(x);
         return y[0].fill_(0), y;
       }},
  };
  for (const auto& [name, write] : table) {
    INFO(name);
    for (const bool create_graph : {false, true}) {
      const Tensor x = tensor({1.0, 4.0}).requires_grad_();
      const Tensor g = grad({sum(sqrt(write(x)))}, {x}, {}, {.create_graph = create_graph})[0];
      CHECK(g.to_vector<float>() == Floats{0, 0.25});
    }
  }
}

TEST_CASE("writes through views have derivatives of higher order", "[inplace]") {
  const auto through = [](Tensor (*base)()) {
    return [base](const std::vector<Tensor>& in) {
      Tensor y = base();
      y.copy_(in[0] * in[0]);
      const Tensor column = y.select(1, 1);
      Tensor(column).mul_(in[1]);
      Tensor(y[0]).add_(y[1].clone() * in[1].narrow(0, 0, 1));
      return y * column.unsqueeze(1);
    };
  };
  const TensorOptions doubles{.dtype = kFloat64};
  const std::vector<Tensor> inputs{randn({2, 3}, doubles), randn({2}, doubles)};
  const auto row_major = through([] { return zeros({2, 3}, {.dtype = kFloat64}); });
  const auto permuted = through([] { return zeros({3, 2}, {.dtype = kFloat64}).t().detach(); });
  const auto with_gaps = through([] {
    return zeros({4, 5}, {.dtype = kFloat64}).slice(0, 1, {}, 2).narrow(1, 1, 3).detach();
  });
  for (const auto& f : {row_major, permuted, with_gaps}) {
    testing::gradcheck(f, inputs);
    testing::gradgradcheck(f, inputs);
  }
}

TEST_CASE("a view of a tensor with gaps, or of a permuted one, sees its new history", "[inplace]") {
  const Tensor w = tensor({1.0, 2.0}).requires_grad_();
  Tensor base = arange(6.0).view({2, 3}).t().detach();  // [[0, 3], [1, 4], [2, 5]]
  const Tensor row = base[1], flat = base.t().view({6});
  base.mul_(w);
  CHECK(flat.to_vector<float>() == Floats{0, 1, 2, 6, 8, 10});
  sum(row * tensor({10.0, 1.0})).backward({}, {.retain_graph = true});
  CHECK(w.grad().to_vector<float>() == Floats{10, 4});
  Tensor(w).set_grad({});
  sum(flat * arange(6.0)).backward({}, {.retain_graph = true});
  CHECK(w.grad().to_vector<float>() == Floats{0 + 1 + 4, 3 * 3 + 4 * 4 + 5 * 5});
  Tensor(w).set_grad({});

  Tensor wide = zeros({2, 8}).slice(1, 0, {}, 4).detach();
  wide[1].copy_(w * 3);
  sum(wide * tensor({{1.0, 2.0}, {5.0, 7.0}})).backward();
  CHECK(w.grad().to_vector<float>() == Floats{15, 21});

  Tensor same = zeros({1, 2}).expand({3, 2}).detach();
  CHECK_THROWS_WITH(same[0].copy_(w), Catch::Contains("expanded"));
  CHECK(same.to_vector<float>() == Floats(6, 0));
}

TEST_CASE("a result that a constant overwrites stays in the graph, with gradient 0", "[inplace]") {
  const std::pair<const char*, void (*)(Tensor&)> table[] = {
      {"zero_", [](Tensor& y) { y.zero_(); }},
      {"fill_", [](Tensor& y) { y.fill_(3); }},
      {"copy_", [](Tensor& y) { y.copy_(ones({2})); }},
      {"normal_", [](Tensor& y) { y.normal_(); }},
  };
  for (const auto& [name, overwrite] : table) {
    INFO(name);
    const Tensor x = tensor({1.0, 2.0}).requires_grad_();
    Tensor y = x * 2;
    const Tensor view = y[1];
    overwrite(y);
    CHECK(y.requires_grad());
    CHECK(view.requires_grad());
    (sum(y) + view).backward();
    REQUIRE(x.grad().defined());
    CHECK(x.grad().to_vector<float>() == Floats{0, 0});
  }
  Tensor w = ones({2}).requires_grad_(), y = w * 2;
  y.zero_();
  y[0].add_(w[1] * 5);
  sum(y).backward();
  CHECK(w.grad().to_vector<float>() == Floats{0, 5});
}

TEST_CASE("foreign memory that overlaps is read before it is written", "[inplace][cpu]") {
  const int64_t n = 100000;
  std::vector<float> memory(n + 1);
  const auto restart = [&] {
    for (int64_t i = 0; i <= n; ++i) memory[i] = static_cast<float>(i);
  };
  const auto wrong = [&](auto expected) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += memory[i + 1] != expected(i);
    return count;
  };
  const Tensor from = from_blob(memory.data(), {n});
  Tensor to = from_blob(memory.data() + 1, {n});
  restart();
  to.copy_(from);
  CHECK(wrong([](int64_t i) { return i; }) == 0);
  restart();
  to.add_(from);
  CHECK(wrong([](int64_t i) { return 2 * i + 1; }) == 0);
  restart();
  to.addcmul_(from, ones({n}), 2);
  CHECK(wrong([](int64_t i) { return 3 * i + 1; }) == 0);
  restart();
  to.index_copy_(0, arange(n), from);
  CHECK(wrong([](int64_t i) { return i; }) == 0);
  restart();
  to.index_put_({arange(n)}, from);
  CHECK(wrong([](int64_t i) { return i; }) == 0);
}

TEST_CASE("repeated tensors share no memory with what they repeat", "[inplace]") {
  for (const auto& repeated : {reel::repeat, reel::tile}) {
    Tensor x = tensor({1.0, 2.0}), column = tensor({{1.0}, {2.0}});
    Tensor y = repeated(x, {2, 1}), z = repeated(column, {1, 2}), same = repeated(x, {1});
    x.fill_(7), column.fill_(7);
    CHECK(y.to_vector<float>() == Floats{1, 2, 1, 2});
    CHECK(z.to_vector<float>() == Floats{1, 1, 2, 2});
    CHECK(same.to_vector<float>() == Floats{1, 2});
    y.add_(1);
    y[0].fill_(0);
    CHECK(y.to_vector<float>() == Floats{0, 0, 2, 3});
  }
}

TEST_CASE("quotients and clamped tensors may be changed in place", "[inplace]") {
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> table[] = {
      {"div", [](const Tensor& a, const Tensor& b) { return a / b; }},
      {"clamp", [](const Tensor& a, const Tensor& b) { return clamp(a * b, -1., 1.); }},
      {"hardtanh", [](const Tensor& a, const Tensor& b) { return hardtanh(a * b); }},
      {"relu6", [](const Tensor& a, const Tensor& b) { return relu6(a * b); }},
      {"normalize", [](const Tensor& a, const Tensor& b) { return normalize(a * b, 2, 0); }},
  };
  const Tensor a0 = tensor(std::vector{0.5, -2.0, 3.0, 0.25}), b0 = tensor(std::vector{2.0, 1.5, 1.25, -1.5});
  for (const auto& [name, f] : table) {
    INFO(name);
    const auto gradients = [&, f = f](bool in_place) {
      const Tensor a = a0.clone().requires_grad_(), b = b0.clone().requires_grad_();
      Tensor y = f(a, b);
      if (in_place)
        y.add_(b);
      else
        y = y + b;
      return grad({sum(y * y * tensor(std::vector{1.0, 2.0, 3.0, 4.0}))}, {a, b});
    };
    const std::vector<Tensor> expected = gradients(false), got = gradients(true);
    for (int i = 0; i < 2; ++i) CHECK(equal(got[i], expected[i]));
  }
}

TEST_CASE("computed tensors are row-major, so that view() takes them", "[inplace]") {
  const Tensor x = randn({2, 8, 3, 3}), m = randn({3, 4}), n = randn({3, 5});
  CHECK(softmax(x, 1).view({-1}).numel() == x.numel());
  CHECK(log_softmax(x, 0).view({-1}).numel() == x.numel());
  CHECK(einsum("ki,kj->ji", {m, n}).view({-1}).numel() == 20);
  CHECK(einsum("bi,bj->ijb", {m, n}).view({-1}).numel() == 60);
  CHECK(repeat(m, {2, 2}).view({-1}).numel() == 48);
  CHECK(tile(m, {3, 1, 1}).view({-1}).numel() == 36);
  CHECK(pixel_shuffle(x, 2).view({-1}).numel() == x.numel());
  CHECK(pixel_unshuffle(pixel_shuffle(x, 2), 2).view({-1}).numel() == x.numel());
  CHECK(channel_shuffle(x, 4).view({-1}).numel() == x.numel());
}

TEST_CASE("a view that was made of a leaf is not changed in place when the leaf no longer requires grad", "[inplace]") {
  Tensor leaf = ones({3}).requires_grad_(), view = leaf.narrow(0, 0, 2);
  leaf.requires_grad_(false);
  const Tensor w = full({2}, 3.0).requires_grad_();
  CHECK_THROWS_WITH(view.mul_(w), Catch::Contains("when its base required grad"));
  CHECK_THROWS_WITH(view.mul_(2), Catch::Contains("when its base required grad"));
  CHECK((equal(leaf, ones({3})) && !leaf.requires_grad()));
  Tensor now = leaf.narrow(0, 0, 2);
  now.mul_(w);
  sum(square(now)).backward();
  CHECK(equal(w.grad(), full({2}, 6.0)));
}
