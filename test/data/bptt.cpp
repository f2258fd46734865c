// Pieces of a text for truncated back-propagation.
#include "reel/data/bptt.h"

#include <algorithm>

#include "reel/data/dataset.h"
#include "reel/ops.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;
using Ids = std::vector<int64_t>;

TEST_CASE("a text is read in pieces, side by side, each token predicted once from the one before it") {
  const Tensor text = arange(12).to(kUInt8);
  const data::BpttDataset pieces(text, {.batch_size = 2, .steps = 3});
  CHECK(data::num_samples(pieces) == 2);
  CHECK(pieces.num_predictions() == 10);
  const auto [x, y] = pieces.get(0);
  CHECK(x.dtype() == kInt64);
  CHECK(x.shape() == Shape{3, 2});
  CHECK(x.to_vector<int64_t>() == Ids{0, 5, 1, 6, 2, 7});
  CHECK(equal(y, x + 1));
  const auto [rest, after] = data::sample(pieces, 1);
  CHECK(rest.to_vector<int64_t>() == Ids{3, 8, 4, 9});
  CHECK(after.to_vector<int64_t>() == Ids{4, 9, 5, 10});
}

TEST_CASE("pieces of all sizes predict what follows") {
  for (const int64_t n : {2, 7, 20, 61})
    for (const int64_t batch : {1, 3, 6})
      for (const int64_t steps : {1, 4, 50}) {
        if (n <= batch) continue;
        CAPTURE(n, batch, steps);
        const data::BpttDataset pieces(arange(n), {.batch_size = batch, .steps = steps});
        Ids predicted;
        for (int64_t i = 0; i < pieces.size(); ++i) {
          const auto [x, y] = pieces.get(i);
          CHECK(equal(y, x + 1));
          if (i > 0) CHECK(equal(x[0], pieces.get(i - 1).second[-1]));
          for (const int64_t token : y.to_vector<int64_t>()) predicted.push_back(token);
        }
        std::sort(predicted.begin(), predicted.end());
        CHECK(std::adjacent_find(predicted.begin(), predicted.end()) == predicted.end());
        CHECK(static_cast<int64_t>(predicted.size()) == pieces.num_predictions());
        CHECK(n - 1 - pieces.num_predictions() < batch);
      }
}

TEST_CASE("what is no text for truncated back-propagation is refused") {
  CHECK_THROWS_WITH(data::BpttDataset(arange(4), {.batch_size = 4}), Contains("4 tokens, too few for 4 sequences"));
  CHECK_THROWS_WITH(data::BpttDataset(zeros({9}), {}), Contains("expected integers [n], got float32 [9]"));
  CHECK_THROWS_WITH(data::BpttDataset(arange(9).view({3, 3}), {}), Contains("[3, 3]"));
  CHECK_THROWS_WITH(data::BpttDataset(arange(9), {.steps = 0}), Contains("steps 0"));
  CHECK_THROWS_WITH(data::BpttDataset(Tensor(), {}), Contains("undefined"));
  CHECK_THROWS_WITH(data::BpttDataset(arange(9), {.steps = 4}).get(2), Contains("index 2 of 2"));
}
