// DistributedDataParallel where graphs, gradients and numbers of examples differ by rank and by step.
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "test/distributed/models.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;
using Catch::Contains;

namespace {

/// Branches, of which an example takes some.
struct Branches : nn::Module {
  static constexpr int kBranches = 6;
  nn::Linear b0{*this, "b0", 3, 2}, b1{*this, "b1", 3, 2}, b2{*this, "b2", 3, 2}, b3{*this, "b3", 3, 2},
      b4{*this, "b4", 3, 2}, b5{*this, "b5", 3, 2};
  const nn::Linear* const all[kBranches] = {&b0, &b1, &b2, &b3, &b4, &b5};

  Tensor loss(uint64_t example) const {
    manual_seed(example);
    std::mt19937_64 random(example);
    const Tensor x = randn({4, 3});
    Tensor sum = (*all[random() % kBranches])(x);
    for (int taken = static_cast<int>(random() % 4); taken > 0; --taken) sum = sum + (*all[random() % kBranches])(x);
    return reel::mean(square(sum));
  }
};

struct One : nn::Module {
  nn::Parameter w{*this, "w", zeros({3})};
};

std::vector<Tensor> moments(const optim::Optimizer& optimizer) {
  std::vector<Tensor> result;
  for (const auto& [name, value] : optimizer.state_dict()) result.push_back(value);
  return copies(result);
}

}  // namespace

TEST_CASE("graphs may differ by rank and by step", "[ddp]") {
  constexpr int kSteps = 200;
  const auto example = [](int step, int rank) { return static_cast<uint64_t>(step * 2 + rank); };
  // Unused parameters keep undefined gradients, so that Adam skips them.
  manual_seed(1);
  Branches model;
  optim::Adam adam(model.parameters(), {.lr = 0.0625});
  for (int step = 0; step < kSteps; ++step) {
    adam.zero_grad();
    for (int r = 0; r < 2; ++r) {
      model.loss(example(step, r)).backward();
      for (const Tensor& p : model.parameters()) p.grad();
    }
    for (const Tensor& p : model.parameters())
      if (p.grad().defined()) p.grad().div_(2);
    adam.step();
  }
  const Tensors reference = copies(model.parameters()), state = moments(adam);

  struct Result {
    Tensors weights, state;
    int undefined = 0;
  };
  for (const size_t bytes : {size_t{1}, size_t{1} << 20}) {
    const auto results = on_ranks(2, [&](int rank) {
      manual_seed(1);
      Branches net;
      DistributedDataParallel ddp(net, {.bucket_bytes = bytes, .first_bucket_bytes = bytes});
      optim::Adam optimizer(net.parameters(), {.lr = 0.0625});
      Result result;
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        net.loss(example(step, rank)).backward();
        for (const Tensor& p : net.parameters()) result.undefined += !p.grad().defined();
        optimizer.step();
      }
      result.weights = copies(net.parameters());
      result.state = moments(optimizer);
      return result;
    });
    for (const Result& result : results) {
      CHECK(same(result.weights, reference));
      CHECK(same(result.state, state));
      CHECK(result.undefined > 100);
    }
  }
}

TEST_CASE("a rule that gives nothing does not stop a reduction", "[ddp]") {
  struct Two : nn::Module {
    nn::Parameter a{*this, "a", ones({2})}, b{*this, "b", ones({2})};
  };
  const auto results = on_ranks(2, [](int rank) {
    Two net;
    DistributedDataParallel ddp(net);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      const Tensor y =
          custom_op("nothing", no_grad([&] { return net.a + net.b; }), {net.a, net.b}, [rank](const Tensor& g) {
            return std::vector{g, rank == 0 ? g : Tensor()};
          });
      sum(y).backward();
    }
    return grads(net);
  });
  for (const Tensors& g : results) {
    CHECK(equal(g[0], full({2}, 1.0)));
    CHECK(equal(g[1], full({2}, 0.5)));
  }
}

TEST_CASE("gradients that were accumulated without communication are reduced with the next", "[ddp]") {
  for (const int world : {2, 3}) {
    const auto results = on_ranks(world, [&](int rank) {
      One net;
      DistributedDataParallel ddp(net);
      const auto add = [&](double value) { (sum(net.w) * value).backward(); };
      std::vector<Tensor> seen;
      for (int step = 0; step < 3; ++step) {
        net.zero_grad();
        {
          const auto guard = ddp.no_sync();
          for (int k = 0; k < 4; ++k) add((rank + 1) * 10);
          seen.push_back(net.w.grad().clone());
        }
        if (step == 1)
          ddp.reduce();
        else
          add(rank + 1);
        seen.push_back(net.w.grad().clone());
      }
      // Without zero_grad the mean is added to.
      add(rank + 1);
      seen.push_back(net.w.grad().clone());
      // Nobody has touched it since.
      ddp.reduce();
      seen.push_back(net.w.grad().clone());
      return seen;
    });
    const double mean = (world + 1) / 2.0;
    for (int rank = 0; rank < world; ++rank) {
      const Tensors& g = results[static_cast<size_t>(rank)];
      const std::vector<double> expected{(rank + 1) * 40.0, mean * 41, (rank + 1) * 40.0, mean * 40,
                                         (rank + 1) * 40.0, mean * 41, mean * 42,         mean * 42};
      REQUIRE(g.size() == expected.size());
      for (size_t i = 0; i < g.size(); ++i) CHECK(equal(g[i], full({3}, expected[i])));
    }
  }
}

TEST_CASE("a rank whose graph does not reach a parameter contributes what it has", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    Branches net;
    DistributedDataParallel ddp(net);
    const Tensor x = ones({1, 3});
    std::vector<Tensor> seen;
    for (int step = 0; step < 2; ++step) {  // the second is added to the first
      sum((rank == 0 ? net.b0 : net.b1)(x)).backward();
      seen.push_back(net.b0.weight.grad().clone());
      seen.push_back(net.b1.weight.grad().clone());
      seen.push_back(net.b2.weight.grad());
    }
    return seen;
  });
  for (const Tensors& g : results) {
    CHECK(equal(g[0], full({2, 3}, 0.5)));
    CHECK(equal(g[1], full({2, 3}, 0.5)));
    CHECK(!g[2].defined());
    CHECK(equal(g[3], full({2, 3}, 1.0)));
    CHECK(equal(g[4], full({2, 3}, 1.0)));
    CHECK(!g[5].defined());
  }
}

TEST_CASE("ranks may have different numbers of examples", "[ddp]") {
  const std::vector<int> batches{10, 7, 1, 0};
  const int world = 4;
  // Gradients are divided by the number of ranks that are still there.
  const auto run = [&](bool divide_by_active) {
    manual_seed(1);
    Mlp model;
    optim::SGD sgd(model.parameters(), {.lr = 0.0625, .momentum = 0.5});
    for (int step = 0; step < 10; ++step) {
      sgd.zero_grad();
      int active = 0;
      for (int r = 0; r < world; ++r) {
        if (step >= batches[static_cast<size_t>(r)]) continue;
        ++active;
        model.loss(step * world + r).backward();
        for (const Tensor& p : model.parameters()) p.grad();
      }
      for (const Tensor& p : model.parameters()) p.grad().div_(divide_by_active ? active : world);
      sgd.step();
    }
    return copies(model.parameters());
  };
  for (const bool divide_by_active : {true, false}) {
    const Tensors reference = run(divide_by_active);
    const auto results = on_ranks(world, [&](int rank) {
      manual_seed(1);
      Mlp net;
      DistributedDataParallel ddp(net, {.divide_by_active = divide_by_active});
      optim::SGD sgd(net.parameters(), {.lr = 0.0625, .momentum = 0.5});
      {
        const auto guard = ddp.join();
        for (int step = 0; step < batches[static_cast<size_t>(rank)]; ++step) {
          sgd.zero_grad();
          net.loss(step * world + rank).backward();
          sgd.step();
        }
      }
      Tensors weights = copies(net.parameters());
      // Afterwards all train on together.
      net.zero_grad();
      net.loss(rank).backward();
      for (const Tensor& g : grads(net)) weights.push_back(g);
      return weights;
    });
    for (const Tensors& w : results) {
      CHECK(same(w, results[0]));
      for (size_t i = 0; i < reference.size(); ++i) CHECK(allclose(w[i], reference[i], 1e-5, 1e-6));
    }
  }
  // Nobody has any; a world of one.
  for (const int ranks : {1, 2})
    CHECK_NOTHROW(on_ranks(ranks, [](int) {
      One net;
      DistributedDataParallel ddp(net);
      { const auto guard = ddp.join(); }
      return 0;
    }));
}

TEST_CASE("gradients of rows stay rows, in the order of the ranks", "[ddp]") {
  struct Words : nn::Module {
    nn::Embedding words{*this, "words", 20, 3, {.sparse = true}};
    nn::Linear out{*this, "out", 3, 2};
  };
  for (const int world : {2, 3}) {
    const auto results = on_ranks(world, [&](int rank) {
      manual_seed(1);
      Words net;
      DistributedDataParallel ddp(net);
      std::vector<Tensor> seen;
      for (int step = 0; step < 4; ++step) {
        net.zero_grad();
        const Tensor ids = tensor({rank + step, 7, rank + step, 12 + rank});
        if (rank != 1 || step != 2)
          sum(net.out(net.words(ids))).backward();
        else  // does not reach it
          sum(net.out(ones({1, 3}))).backward();
        const SparseGrad* const rows = net.words.weight.sparse_grad();
        seen.push_back(rows ? rows->ids.clone() : Tensor());
        seen.push_back(rows ? rows->values.clone() : Tensor());
      }
      return seen;
    });
    manual_seed(1);
    Words net;
    for (size_t step = 0; step < 4; ++step) {
      net.zero_grad();
      for (int rank = 0; rank < world; ++rank) {
        if (rank == 1 && step == 2) continue;
        const int at = rank + static_cast<int>(step);
        sum(net.out(net.words(tensor({at, 7, at, 12 + rank})))).backward();
        net.words.weight.sparse_grad();
      }
      const SparseGrad* const rows = net.words.weight.sparse_grad();
      REQUIRE(rows);
      for (const Tensors& seen : results) {
        REQUIRE(seen[2 * step].defined());
        CHECK(equal(seen[2 * step], rows->ids));
        CHECK(allclose(seen[2 * step + 1], rows->values / world, 1e-6, 1e-7));
        CHECK(equal(seen[2 * step + 1], results[0][2 * step + 1]));
      }
    }
  }
}

TEST_CASE("rows of one rank and a dense gradient of another make a dense one", "[ddp]") {
  struct Words : nn::Module {
    nn::Embedding words{*this, "words", 5, 2, {.sparse = true}};
  };
  struct Result {
    Tensor grad;
    bool sparse;
  };
  // Which of the ranks have rows, dense gradients or none, step by step.
  for (const std::string steps : {"rd", "ee re ee rr", "rr rd rr", "nn rr rr rr", "dd rr rr rr", "rn nr dn rr"}) {
    CAPTURE(steps);
    const auto results = on_ranks(2, [&](int rank) {
      manual_seed(1);
      Words net;
      DistributedDataParallel ddp(net, {.bucket_bytes = 1});
      std::vector<Result> seen;
      for (size_t at = 0; at < steps.size(); at += 3) {
        net.zero_grad();
        const char kind = steps[at + static_cast<size_t>(rank)];
        if (kind == 'n')
          ddp.reduce();
        else if (kind == 'e')  // reaches it with nothing
          sum(net.words(empty({0}, {.dtype = kInt64}))).backward();
        else if (kind == 'r')
          sum(net.words(tensor({1 + rank, 1}))).backward();
        else
          sum(net.words.weight * (rank + 1)).backward();
        const bool sparse = net.words.weight.sparse_grad();
        const Tensor grad = net.words.weight.grad();
        seen.push_back({grad.defined() ? grad.clone() : Tensor(), sparse});
      }
      return seen;
    });
    for (size_t step = 0; 3 * step < steps.size(); ++step) {
      const std::string kinds = steps.substr(3 * step, 2);
      Tensor expected = zeros({5, 2});
      for (int rank = 0; rank < 2; ++rank) {
        if (kinds[static_cast<size_t>(rank)] == 'd') expected = expected + rank + 1.0;
        if (kinds[static_cast<size_t>(rank)] != 'r') continue;
        expected[1 + rank].add_(1);
        expected[1].add_(1);
      }
      for (const auto& seen : results) {
        CAPTURE(step, kinds);
        CHECK(seen[step].grad.defined() == (kinds != "nn"));
        if (seen[step].grad.defined()) CHECK(equal(seen[step].grad, expected / 2));
        // Those that were dense or unknown at first travel in buckets twice, and are dense then.
        if (kinds.find('d') != std::string::npos) CHECK(!seen[step].sparse);
      }
      if (step == 3 && kinds == "rr") CHECK(results[0][step].sparse);
    }
  }
}

TEST_CASE("threads of a rank accumulate, and one of them reduces", "[ddp]") {
  const auto results = on_ranks(2, [](int rank) {
    Mlp net;
    DistributedDataParallel ddp(net);
    std::vector<Tensor> seen;
    for (int step = 0; step < 5; ++step) {
      net.zero_grad();
      {
        const auto guard = ddp.no_sync();
        std::vector<std::thread> threads;
        for (int t = 0; t < 3; ++t)
          threads.emplace_back([&, t] { (sum(net.a.bias) * (rank + 1) * (t + 1)).backward(); });
        for (std::thread& thread : threads) thread.join();
      }
      ddp.reduce();
      seen.push_back(net.a.bias.grad().clone());
      seen.push_back(net.a.weight.grad());
    }
    return seen;
  });
  for (const Tensors& seen : results)
    for (size_t i = 0; i < seen.size(); i += 2) {
      CHECK(equal(seen[i], full({8}, 9.0)));
      CHECK(!seen[i + 1].defined());
    }
}

TEST_CASE("gradients that are integers have the same bits with any number of ranks", "[ddp]") {
  struct Linear : nn::Module {
    nn::Linear fc{*this, "fc", 4, 2};
    Tensor loss(int i) const {
      const Tensor x = tensor({i % 3, 1, -i % 5, 2}).to(kFloat32).view({1, 4});
      return sum(fc(x) * tensor({1.0, -2.0}).to(kFloat32));
    }
  };
  manual_seed(1);
  Linear model;
  optim::SGD sgd(model.parameters(), {.lr = 0.0078125});
  for (int step = 0; step < 20; ++step) {
    sgd.zero_grad();
    for (int r = 0; r < 4; ++r) (model.loss(step * 4 + r) / 4).backward();
    sgd.step();
  }
  for (const int world : {1, 2, 4})
    for (const Tensors& w : on_ranks(world, [&](int rank) {
           manual_seed(1);
           Linear net;
           DistributedDataParallel ddp(net);
           optim::SGD optimizer(net.parameters(), {.lr = 0.0078125});
           const int each = 4 / world;
           for (int step = 0; step < 20; ++step) {
             optimizer.zero_grad();
             Tensor loss = 0.0;
             for (int k = 0; k < each; ++k) loss = loss + net.loss(step * 4 + rank * each + k) / each;
             loss.backward();
             optimizer.step();
           }
           return copies(net.parameters());
         }))
      CHECK(same(w, copies(model.parameters())));
}
