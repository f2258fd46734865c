// This file tests that calls of ops, sequences and chains of several examples become one.
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "reel/batching.h"
#include "reel/reel.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

std::vector<int> numbers(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  return a.numel() ? max(abs(a - b)).item<double>() / std::max(1.0, max(abs(a)).item<double>()) : 0;
}

using One = std::function<std::vector<Tensor>(int)>;

/// Compares one(i), alone and in a map, and the gradients of the parameters by all results.
void check_like_alone(int n, nn::Module& net, const One& one, batching::Report* report = nullptr) {
  const auto with_gradients = [&](std::vector<std::vector<Tensor>> results) {
    std::vector<Tensor> all, sums;
    for (const std::vector<Tensor>& result : results)
      for (const Tensor& x : result) {
        all.push_back(x.detach());
        if (x.requires_grad()) sums.push_back(sum(sin(x)));
      }
    net.zero_grad();
    if (!sums.empty()) sum(stack(sums)).backward();
    for (const Tensor& p : net.parameters()) all.push_back(p.grad().defined() ? p.grad().clone() : zeros({}));
    return all;
  };
  std::vector<std::vector<Tensor>> alone;
  for (const int i : numbers(n)) alone.push_back(one(i));
  const auto expected = with_gradients(alone);
  const auto got = with_gradients(batching::map(numbers(n), one, {.report = report}));
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(difference(expected[i], got[i]) < 1e-5);
}

/// Returns the groups of a row or, by the name of an op alone, of all weights of the op.
int64_t groups(const batching::Report& report, const std::string& name) {
  int64_t all = 0;
  for (const batching::Report::Row& row : report.rows)
    if (row.name == name || row.name.starts_with(name + " [")) all += row.groups;
  return all;
}

struct Weights : nn::Module {
  nn::Parameter a{*this, "a", randn({3, 3})}, b{*this, "b", randn({3, 3})};
};

}  // namespace

TEST_CASE("ops with one weight become one call, ops with two do not") {
  manual_seed(1);
  Weights net;
  const Tensor frozen = randn({3, 3}), x = randn({8, 3});
  const auto groups_of = [&](const char* op, const std::function<Tensor(const Tensor& row, int i)>& f) {
    batching::Report report;
    check_like_alone(
        8, net, [&](int i) { return std::vector{f(x.narrow(0, i, 1), i)}; }, &report);
    return groups(report, op);
  };
  CHECK(groups_of("linear", [&](const Tensor& row, int) { return linear(row, net.a); }) == 1);
  CHECK(groups_of("linear", [&](const Tensor& row, int) { return linear(row.squeeze(0), net.a); }) == 1);
  CHECK(groups_of("linear", [&](const Tensor& row, int) { return linear(row, frozen); }) == 1);
  CHECK(groups_of("linear", [&](const Tensor& row, int i) { return linear(row, i % 2 ? net.a : net.b); }) == 2);
  CHECK(groups_of("linear",
                  [&](const Tensor& row, int i) { return linear(row, net.a, i % 2 ? net.b[0] : Tensor()); }) == 1);
  CHECK(groups_of("linear", [&](const Tensor& row, int) { return linear(row, net.a.clone()); }) == 0);
  CHECK(groups_of("mm", [&](const Tensor& row, int) { return mm(row, net.a); }) == 1);
  CHECK(groups_of("matmul", [&](const Tensor& row, int) { return matmul(row, net.a); }) == 1);
  CHECK(groups_of("matmul", [&](const Tensor& row, int) { return matmul(row.squeeze(0), net.a); }) == 1);
  CHECK(groups_of("mm", [&](const Tensor& row, int) { return mm(row, row.t()); }) == 0);  // no weight
  CHECK(groups_of("mm", [&](const Tensor& row, int i) {
          return matmul(row.expand({1 + i, row.size(1)}).unsqueeze(0), net.a);
        }) == 1);
  CHECK(groups_of("embedding", [&](const Tensor&, int i) { return embedding(net.a, tensor({i % 3})); }) == 1);
  CHECK(groups_of("embedding", [&](const Tensor&, int i) {
          return embedding(net.a, tensor({i % 3}), {.padding_idx = i % 2});
        }) == 2);
  CHECK(groups_of("embedding", [&](const Tensor&, int i) { return embedding(net.a, tensor({i % 3}), true); }) == 1);
  CHECK(groups_of("embedding", [&](const Tensor&, int i) {
          return embedding(net.a, tensor({i % 3}), {.scale_grad_by_freq = true});
        }) == 0);
}

TEST_CASE("a bilinear of operands of different ranks, and norms of other shapes, are not joined") {
  struct Net : nn::Module {
    nn::Parameter cube{*this, "cube", rand({3, 3, 3})};
  } net;
  const Tensor x = randn({3, 1, 3, 3}), y = randn({3, 1, 3});
  check_like_alone(3, net, [&](int i) {
    return std::vector{bilinear(x[i], y[i], net.cube, {}), bilinear(y[i], x[i].narrow(1, 0, 1), net.cube, {})};
  });
  const auto failed = batching::map(numbers(4), [&](int i) {
    try {
      return layer_norm(ones({1, 8}), {i == 2 ? 7 : 8}), 0;
    } catch (const Error&) {
      return 1;
    }
  });
  CHECK(failed == std::vector{0, 0, 1, 0});
}

TEST_CASE("normalised dimensions are no rows, and images of two layouts are not joined") {
  struct Net : nn::Module {
    nn::Parameter scale{*this, "scale", rand({3, 3})}, w{*this, "w", rand({3, 3, 1, 1})},
        cube{*this, "cube", rand({3, 3, 3})};
  } net;
  const auto groups_of = [&](const char* op, const std::function<Tensor(int i)>& f) {
    batching::Report report;
    check_like_alone(
        6, net, [&](int i) { return std::vector{f(i)}; }, &report);
    return groups(report, op);
  };
  const Tensor x = randn({6, 1, 3, 3}), images = randn({6, 1, 3, 3, 3});
  CHECK(groups_of("layer_norm", [&](int i) { return layer_norm(x[i], {3, 3}, net.scale); }) == 1);
  CHECK(groups_of("layer_norm", [&](int i) { return layer_norm(x[i][0], {3, 3}, net.scale); }) == 0);
  CHECK(groups_of("rms_norm", [&](int i) { return rms_norm(x[i], {3, 3}, net.scale); }) == 1);
  CHECK(groups_of("bilinear", [&](int i) { return bilinear(x[i][0], x[i][0], net.cube, {}); }) == 1);
  CHECK(groups_of("conv2d", [&](int i) { return conv2d(images[i], net.w, {}, {.channels_last = i % 2 == 1}); }) == 2);
}

TEST_CASE("an op that fails in a group fails for the wrong example only") {
  Weights net;
  const auto failed = batching::map(numbers(5), [&](int i) {
    try {
      tree_lstm_cell(ones({1, i < 3 ? 6 : 7}), {});
      return 0;
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("tree_lstm_cell"));
      return 1;
    }
  });
  CHECK(failed == std::vector{0, 0, 0, 1, 1});
  CHECK_THROWS_WITH(batching::map(numbers(3),
                                  [&](int i) {
                                    return linear(ones({1, i == 1 ? 4 : 3}), net.a);
                                  }),
                    Contains("linear") && Contains("[1, 4]"));
  CHECK_THROWS_WITH(batching::map(numbers(2), [&](int) { return linear(Tensor(), net.a); }), Contains("undefined"));
}

// Elsewhere they are found later.
TEST_CASE("an index or tag out of range fails for the wrong example only", "[cpu]") {
  Weights net;
  const nn::CRF crf(3, {.allowed = crf_bio_constraints({"O", "B-X", "I-X"})});
  const auto failures = [](int n, const std::function<void(int)>& f) {
    return batching::map(numbers(n), [&](int i) {
      try {
        f(i);
        return std::string();
      } catch (const Error& error) {
        return std::string(error.what());
      }
    });
  };
  const auto ids = failures(5, [&](int i) { embedding(net.a, tensor({i})); });
  for (int i = 0; i < 5; ++i) CHECK_THAT(ids[i], Contains(i < 3 ? "" : "embedding: index " + std::to_string(i)));
  for (int i = 0; i < 3; ++i) CHECK(ids[i].empty());
  const auto tags = failures(3, [&](int i) { crf(zeros({2, 3}), tensor({0, i})); });
  CHECK((tags[0].empty() && tags[1].empty()));
  CHECK_THAT(tags[2], Contains("I-X"));
}

TEST_CASE("ops under autocast become one call in the half type", "[cpu]") {
  Weights net;
  const Tensor x = randn({6, 3});
  batching::Report report;
  const auto half = [&](int i) {
    const Tensor row = x.narrow(0, i, 1);
    return std::pair(linear(row, net.a), matmul(row, net.b));
  };
  {
    const amp::Autocast autocast(kBFloat16);
    for (const auto& [a, b] : batching::map(numbers(6), half, {.report = &report}))
      CHECK((a.dtype() == kBFloat16 && b.dtype() == kBFloat16));
  }
  CHECK(groups(report, "linear") == 1);
  CHECK(groups(report, "matmul") == 1);
  const auto results = batching::map(numbers(6), [&](int i) {
    const amp::Autocast autocast(kBFloat16, i % 2 == 1);
    return half(i);
  });
  for (int i = 0; i < 6; ++i) CHECK(results[i].first.dtype() == (i % 2 ? kBFloat16 : kFloat32));
}

TEST_CASE("a function that finds no others does not wait in its parts") {
  nn::Sequential mlp(nn::Linear(3, 3), nn::Tanh(), nn::Linear(3, 3));
  nn::Linear other(3, 3);
  batching::Report report;
  const auto f = batching::rows("mlp", [&](const Tensor& x) { return mlp(x); });
  batching::map(numbers(2), [&](int i) { return i ? f(ones({1, 3})) : other(ones({1, 3})); }, {.report = &report});
  REQUIRE(report.rows.size() == 2);
  for (const auto& row : report.rows) CHECK((row.calls == 1 && row.groups == 0));
}

TEST_CASE("the parts of a layer with hooks are called for several examples") {
  nn::Sequential mlp(nn::Linear(3, 3), nn::Tanh(), nn::Linear(3, 3));
  int calls = 0;
  mlp.register_forward_hook([&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) { ++calls; });
  mlp[0].register_forward_hook([&](nn::Module&, const std::vector<Tensor>&, std::vector<Tensor>&) { ++calls; });
  batching::Report report;
  check_like_alone(
      5, mlp,
      [&](int i) {
        return std::vector{mlp(full({1, 3}, 0.5 * i))};
      },
      &report);
  CHECK(calls == 4 * 5);
  CHECK(groups(report, "linear") == 2);
}

TEST_CASE("both takes functions that return nothing") {
  nn::Linear linear(3, 3);
  int done = 0;
  const auto work = [&] { linear(ones({1, 3})), ++done; };
  const auto value = [&] { return work(), 7; };
  const auto run = [&](int) {
    static_assert(std::is_void_v<decltype(batching::both(work, work))>);
    batching::both(work, work);
    const auto [a, nothing] = batching::both(value, work);
    const auto [none, b] = batching::both(work, value);
    static_assert(std::is_same_v<decltype(none), decltype(nothing)>);
    return a + b;
  };
  CHECK(run(0) == 14);
  CHECK(batching::map(numbers(3), run) == std::vector{14, 14, 14});
  CHECK(done == 6 * 4);
}

TEST_CASE("recurrent nets read the sequences of several examples, with and without a state") {
  manual_seed(3);
  struct Nets : nn::Module {
    nn::LSTM lstm{*this, "lstm", 3, 4, {.num_layers = 2, .bidirectional = true}};
    nn::LSTM projected{*this, "projected", 3, 4, {.proj_size = 2}};
    nn::GRU gru{*this, "gru", 3, 4};
    nn::RNN rnn{*this, "rnn", 3, 4, {.bidirectional = true}};
  } nets;
  std::vector<Tensor> inputs;
  for (int i = 0; i < 8; ++i) inputs.push_back(randn({1 + i * 5 % 7, 3}));
  const Tensor first = randn({8, 4, 3, 4});
  batching::Report report;
  const One one = [&](int i) {
    const Tensor &x = inputs[static_cast<size_t>(i)], h = first[i], none;
    const std::vector<Tensor> list{x, inputs[0], x.narrow(0, 0, 1)};
    const Ragged ragged = Ragged::of(list);
    const auto state = [&](int64_t slots, int64_t n, int64_t width) {
      const Tensor part = h.narrow(0, 0, slots).narrow(1, 0, std::max<int64_t>(n, 1)).narrow(2, 0, width);
      return n ? part : part.squeeze(1);
    };
    std::vector<Tensor> all;
    const auto take = [&](const auto& result) {
      for (const Tensor& t : nn::internal::collect_tensors(result)) all.push_back(t);
    };
    const bool with = i % 4 != 3;  // every fourth example begins with zeros
    take(nets.lstm(x, with ? CellState{state(4, 0, 4), state(4, 0, 4)} : CellState()));
    take(nets.lstm(list, with ? CellState{state(4, 3, 4), state(4, 3, 4)} : CellState()));
    take(nets.lstm(ragged, with ? CellState{state(4, 3, 4), state(4, 3, 4)} : CellState()));
    take(nets.projected(x, {state(1, 0, 2), state(1, 0, 4)}));
    take(nets.gru(x, with ? state(1, 0, 4) : none));
    take(nets.gru(ragged, with ? state(1, 3, 4) : none));
    take(nets.rnn(list, state(2, 3, 4)));
    take(nets.rnn(x));
    return all;
  };
  check_like_alone(8, nets, one, &report);
  CHECK(groups(report, "lstm (LSTM)") == 6);
  CHECK(groups(report, "projected (LSTM)") == 2);  // the examples are in two groups since the first call
  CHECK(groups(report, "gru (GRU)") == 4);
  CHECK(groups(report, "rnn (RNN)") == 4);
  for (const auto& other : report.unbatched) CHECK_THAT(other.name, !Contains("lstm") && !Contains("GRU"));
}

TEST_CASE("a sequence, a list and a Ragged of several examples become one call") {
  nn::LSTM lstm(3, 4);
  batching::Report report;
  check_like_alone(
      6, lstm,
      [&](int i) {
        const Tensor x = full({2, 3}, 0.1 * i);
        if (i % 3 == 0) return std::vector{lstm(x).output};
        if (i % 3 == 1) return std::vector{lstm(std::vector{x, x}).output[1]};
        const Ragged both{full({4, 3}, 0.1 * i), Lengths::of(std::vector<int64_t>{2, 2})};
        return std::vector{lstm(both).output.values};
      },
      &report);
  CHECK(groups(report, "LSTM") == 1);
}

TEST_CASE("a state that does not fit fails for its own example") {
  nn::GRU gru(3, 4);
  const auto failed = batching::map(numbers(4), [&](int i) {
    const std::vector<Tensor> list{ones({2, 3}), ones({1, 3})};
    try {  // one state too many, and one too few: as many as there are sequences, all in all
      gru(list, ones({1, i == 1 ? 3 : i == 2 ? 1 : 2, 4}));
      return 0;
    } catch (const Error&) {
      return 1;
    }
  });
  CHECK(failed == std::vector{0, 1, 1, 0});
  CHECK_THROWS_WITH(batching::map(numbers(2), [&](int i) { return gru(ones({i, 3})); }), Contains("length 0"));
}

TEST_CASE("an empty sequence of a Ragged has no output and keeps its state, in a map") {
  nn::GRU gru(3, 4);
  const Tensor h = randn({1, 2, 4});
  check_like_alone(4, gru, [&](int i) {
    const Ragged x{ones({i, 3}), Lengths::of(std::vector<int64_t>{i, 0})};
    const auto [y, last] = gru(x, h);
    return std::vector{y.values, last};
  });
}

TEST_CASE("a CRF scores and decodes the chains of several examples") {
  manual_seed(4);
  struct Net : nn::Module {
    nn::Linear out{*this, "out", 3, 5};
    nn::CRF crf{*this, "crf", 5};
    nn::CRF mean{*this, "mean", 5, {.reduction = kMean}};
  } net;
  batching::Report report;
  const One one = [&](int i) {
    const int64_t len = 1 + i * 5 % 7;
    const Tensor x = sin(arange(len * 3).to(kFloat32) + i).view({len, 3}), tags = (arange(len) < 2).to(kInt64) + 1,
                 scores = net.out(x);
    const std::vector<Tensor> chains{scores, scores.narrow(0, 0, 1)}, both_tags{tags, tags.narrow(0, 0, 1)};
    const CrfPaths best = net.crf.decode(scores);
    return std::vector{net.crf(scores, tags), net.crf(chains, both_tags),
                       net.mean(Ragged::of(chains), Ragged::of(both_tags)), best.tags.to(kFloat32), best.scores};
  };
  check_like_alone(8, net, one, &report);
  CHECK(groups(report, "crf (CRF)") == 2);
  CHECK(groups(report, "crf (CRF).decode") == 1);
  CHECK(groups(report, "mean (CRF)") == 1);
  for (const auto& other : report.unbatched) CHECK_THAT(other.name, !Contains("crf"));
}

TEST_CASE("a report counts item() where it was called", "[cpu]") {
  nn::Linear first(3, 3), second(3, 3);
  batching::Report report;
  const auto steps = batching::map(numbers(4),
                                   [&](int i) {
                                     if (full({}, i).item<int>() == 3) return 0;  // before all layers
                                     Tensor x = first(ones({1, 3}));
                                     for (int k = 0; k < i; ++k) x = second(x);
                                     return sum(x).item<double>() > 1e9 ? 1 : 0;
                                   },
                                   {.report = &report});
  CHECK(steps.size() == 4);
  CHECK(report.items == 4 + 3);
  REQUIRE(report.rows.size() == 1);  // both have weights of one shape
  CHECK(report.rows[0].items == 3);
  CHECK_THAT(report.table(), Contains("item()") && Contains("7 calls of item()"));
}

TEST_CASE("empty sequences in lists have no output and keep their state, in a map and alone", "[cpu]") {
  manual_seed(5);
  struct Nets : nn::Module {
    nn::LSTM lstm{*this, "lstm", 3, 4, {.num_layers = 2, .bidirectional = true}};
    nn::GRU gru{*this, "gru", 3, 4};
    nn::RNN rnn{*this, "rnn", 3, 4};
    nn::CRF crf{*this, "crf", 3, {.reduction = kNoReduction}};
  } nets;
  const Tensor h = randn({1, 3, 4});
  const One one = [&](int i) {
    const auto rows = [&](int64_t n) { return sin(arange(3 * n).to(kFloat32) + i).view({n, 3}); };
    const auto tags = [](int64_t n) { return zeros({n}, kInt64); };
    const int64_t n = i % 3;  // 0, too
    const std::vector<Tensor> list{rows(n), rows(0), rows(2)}, targets{tags(n), tags(0), tags(2)};
    std::vector<Tensor> all;
    const auto take = [&](const auto& result) {
      for (const Tensor& t : nn::internal::collect_tensors(result)) all.push_back(t);
    };
    take(nets.lstm(list)), take(nets.gru(list, h)), take(nets.rnn(list, h));
    all.push_back(nets.crf(list, targets));
    const auto [y, last] = nets.gru(Ragged::of(list), h);
    CHECK(difference(y.values, cat(nets.gru(list, h).output)) < 1e-5);
    CHECK(difference(last, nets.gru(list, h).h) < 1e-5);
    CHECK(equal(last.select(1, 1), h.select(1, 1)));
    CHECK(difference(all.back(), nets.crf(Ragged::of(list), Ragged::of(targets))) < 1e-5);
    // By themselves, and nothing but empty ones.
    take(nets.lstm(std::vector<Tensor>{rows(n)})), take(nets.rnn(std::vector<Tensor>{rows(0), rows(0)}));
    all.push_back(nets.crf(std::vector<Tensor>{rows(0)}, std::vector<Tensor>{tags(0)}));
    CHECK(all.back().item<float>() == 0);
    return all;
  };
  check_like_alone(7, nets, one);
}
