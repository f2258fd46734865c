#include "reel/data/sampler.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "reel/random.h"
#include "test/support/pch.h"

using namespace reel;
using namespace reel::data;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Order = std::vector<int64_t>;

namespace {

template <class Item>
std::vector<Item> walk(SamplerOf<Item>& sampler) {
  std::vector<Item> items;
  for (const Item& item : sampler) items.push_back(item);
  return items;
}
Order sorted(Order order) { return std::sort(order.begin(), order.end()), order; }
Order ascending(int64_t n) {
  Order order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

TEST_CASE("each loop over a sampler is an epoch in an order of its own") {
  SequentialSampler in_order(4);
  CHECK(walk(in_order) == ascending(4));
  CHECK(walk(in_order) == ascending(4));
  CHECK(in_order.epoch() == 2);

  RandomSampler random(50, {.seed = 1});
  const Order first = walk(random), second = walk(random);
  CHECK(sorted(first) == ascending(50));
  CHECK(sorted(second) == ascending(50));
  CHECK(first != second);
  CHECK(RandomSampler(50, {.seed = 1}).order(1) == second);
  CHECK(RandomSampler(50, {.seed = 2}).order(0) != first);
  random.set_epoch(0);
  CHECK(walk(random) == first);
  CHECK(walk(*std::make_unique<SequentialSampler>(0)).empty());
}

TEST_CASE("a sampler without a seed follows manual_seed") {
  manual_seed(5);
  const Order first = RandomSampler(20).order(0), second = RandomSampler(20).order(0);
  CHECK(first != second);
  manual_seed(5);
  CHECK(RandomSampler(20).order(0) == first);
}

TEST_CASE("a sampler goes on where its state was taken") {
  RandomSampler one(10, {.seed = 1});
  walk(one);
  Order seen;
  StateDict state;
  for (const int64_t index : one) {
    seen.push_back(index);
    if (one.position() == 4) {
      state = one.state_dict();
      break;
    }
  }
  RandomSampler other(10, {.seed = 99});
  other.load_state_dict(state);
  const Order rest = walk(other);
  CHECK(rest.size() == 6);
  seen.insert(seen.end(), rest.begin(), rest.end());
  CHECK(seen == RandomSampler(10, {.seed = 1}).order(1));
  CHECK(walk(other) == RandomSampler(10, {.seed = 1}).order(2));
  CHECK(walk(one) == RandomSampler(10, {.seed = 1}).order(2));  // a loop left early is over

  // Taken at the last item, the epoch still has to end.
  other.set_place(3, 10);
  CHECK(walk(other).empty());
  CHECK(other.epoch() == 4);

  CHECK_THROWS_WITH(other.load_state_dict({{"epoch", full({}, 1, {.dtype = kInt64})}}),
                    Contains("'seed' is not there"));
  state.emplace_back("more", ones({}));
  CHECK_THROWS_WITH(other.load_state_dict(state), Contains("unexpected: more"));
  state.pop_back();
  state[2].second = full({}, -1, {.dtype = kInt64});
  CHECK_THROWS_WITH(other.load_state_dict(state), Contains("no position -1"));
  CHECK(other.epoch() == 4);
  CHECK(other.seed() == 1);
  SequentialSampler small(3);
  small.set_place(0, 4);
  CHECK_THROWS_WITH(walk(small), Contains("position 4 in an epoch of 3"));
}

TEST_CASE("a place that is set inside a loop is where the next one begins") {
  SequentialSampler sampler(5);
  Order seen;
  for (const int64_t index : sampler) {
    seen.push_back(index);
    if (index == 1) sampler.set_place(7, 3);
  }
  CHECK(seen == ascending(5));  // the loop that ran was not disturbed
  CHECK(sampler.epoch() == 7);
  CHECK(walk(sampler) == Order{3, 4});
  for ([[maybe_unused]] const int64_t index : sampler) {
    sampler.set_place(2, 4);
    break;
  }
  CHECK(walk(sampler) == Order{4});
  CHECK(sampler.epoch() == 3);
}

TEST_CASE("a copy of a sampler walks on its own") {
  RandomSampler sampler(10, {.seed = 1});
  const Order whole = sampler.order(0);
  for ([[maybe_unused]] const int64_t index : sampler) {
    if (sampler.position() < 4) continue;
    RandomSampler copy = sampler;
    CHECK(walk(copy) == Order(whole.begin() + sampler.position(), whole.end()));
    CHECK(copy.epoch() == 1);
    CHECK_THROWS_WITH(sampler.begin(), Contains("a loop over it runs already"));
  }
  CHECK(sampler.epoch() == 1);
}

TEST_CASE("random samplers draw with and without replacement") {
  const Order some = RandomSampler(100, {.num_samples = 10, .seed = 1}).order(0);
  CHECK(some.size() == 10);
  CHECK(std::set(some.begin(), some.end()).size() == 10);
  const Order drawn = RandomSampler(5, {.replacement = true, .num_samples = 5000, .seed = 1}).order(0);
  CHECK(drawn.size() == 5000);
  for (int64_t i = 0; i < 5; ++i) CHECK(std::abs(std::count(drawn.begin(), drawn.end(), i) - 1000) < 150);
  CHECK_THROWS_WITH(RandomSampler(5, {.num_samples = 6}), Equals("RandomSampler: 6 samples of 5 without replacement"));
  CHECK_THROWS_WITH(RandomSampler(0, {.replacement = true, .num_samples = 1}), Contains("1 samples of 0"));
  CHECK_THROWS_AS(RandomSampler(-1), Error);
}

TEST_CASE("a weighted sampler follows its weights") {
  const std::vector<double> weights{0, 1, 0, 3, 0};
  const Order drawn = WeightedRandomSampler(weights, 8000, {.seed = 1}).order(0);
  CHECK(std::abs(std::count(drawn.begin(), drawn.end(), 3) - 6000) < 200);
  CHECK(std::count(drawn.begin(), drawn.end(), 1) + std::count(drawn.begin(), drawn.end(), 3) == 8000);

  CHECK(sorted(WeightedRandomSampler(weights, 2, {.replacement = false, .seed = 1}).order(0)) == Order{1, 3});
  int first_is_3 = 0;
  const WeightedRandomSampler without(weights, 2, {.replacement = false, .seed = 1});
  for (int epoch = 0; epoch < 1000; ++epoch) first_is_3 += without.order(epoch)[0] == 3;
  CHECK(std::abs(first_is_3 - 750) < 60);

  CHECK_THROWS_WITH(WeightedRandomSampler(weights, 3, {.replacement = false}),
                    Equals("WeightedRandomSampler: 3 samples without replacement from 2 positive weights"));
  CHECK_THROWS_WITH(WeightedRandomSampler({1, -1}, 1), Contains("a weight is -1"));
  CHECK_THROWS_WITH(WeightedRandomSampler({0, 0}, 1), Contains("from 0 positive weights"));
}

TEST_CASE("subset and batch samplers") {
  SubsetSampler subset({5, 3, 9});
  CHECK(walk(subset) == Order{5, 3, 9});
  CHECK(sorted(SubsetSampler({5, 3, 9}, {.shuffle = true, .seed = 1}).order(0)) == Order{3, 5, 9});

  BatchSampler batches(SequentialSampler(5), 2);
  CHECK(batches.size() == 3);
  CHECK(walk(batches) == std::vector<Order>{{0, 1}, {2, 3}, {4}});
  BatchSampler whole(SequentialSampler(5), 2, true);
  CHECK(whole.size() == 2);
  CHECK(walk(whole) == std::vector<Order>{{0, 1}, {2, 3}});
  BatchSampler random(RandomSampler(10, {.seed = 4}), 3), other(RandomSampler(10, {.seed = 5}), 3);
  other.load_state_dict(random.state_dict());
  CHECK(walk(random) == walk(other));
  CHECK_THROWS_WITH(BatchSampler(SequentialSampler(5), 0), Contains("batches of 0"));
}

TEST_CASE("buckets hold samples of similar length and each once") {
  std::vector<int64_t> lengths;
  manual_seed(1);
  for (const int64_t length : randint(1, 100, {1000}).to_vector<int64_t>()) lengths.push_back(length);
  const auto spread = [&](const std::vector<Order>& batches) {
    int64_t padded = 0;
    for (const Order& batch : batches) {
      int64_t longest = 0;
      for (const int64_t i : batch) longest = std::max(longest, lengths[i]);
      for (const int64_t i : batch) padded += longest - lengths[i];
    }
    return padded;
  };
  BucketSampler buckets(lengths, {.batch_size = 10, .pool = 20, .seed = 1});
  const auto first = walk(buckets), second = walk(buckets);
  CHECK(first.size() == 100);
  CHECK(first != second);
  Order all;
  for (const Order& batch : first) all.insert(all.end(), batch.begin(), batch.end());
  CHECK(sorted(all) == ascending(1000));
  CHECK(spread(first) * 5 < spread(BatchSampler(RandomSampler(1000, {.seed = 1}), 10).order(0)));
  const auto in_order = BucketSampler(lengths, {.batch_size = 10, .shuffle = false}).order(0);
  CHECK(spread(in_order) < spread(first));
  CHECK(BucketSampler({3, 1, 2}, {.batch_size = 2, .shuffle = false}).order(0) == std::vector<Order>{{1, 2}, {0}});
  CHECK(BucketSampler({3, 1, 2}, {.batch_size = 2, .drop_last = true, .seed = 1}).order(0).size() == 1);
  CHECK(BucketSampler({}, {.batch_size = 2}).order(0).empty());
}

TEST_CASE("ranks share an epoch evenly") {
  for (const bool drop : {false, true})
    for (const int world : {1, 3, 4}) {
      std::map<int64_t, int> seen;
      for (int rank = 0; rank < world; ++rank) {
        DistributedSampler share(10, {.rank = rank, .world_size = world, .drop_last = drop, .seed = 2});
        const Order order = walk(share);
        CHECK(static_cast<int64_t>(order.size()) == share.size());
        CHECK(share.size() == (drop ? 10 / world : (10 + world - 1) / world));
        for (const int64_t index : order) ++seen[index];
        CHECK(walk(share) != order);  // another epoch
      }
      CHECK(static_cast<int>(seen.size()) == (drop ? 10 / world * world : 10));
    }
  CHECK(DistributedSampler(5, {.rank = 1, .world_size = 2, .shuffle = false}).order(0) == Order{1, 3, 0});
  CHECK(DistributedSampler(1, {.rank = 3, .world_size = 4, .shuffle = false}).order(0) == Order{0});
  CHECK_THROWS_WITH(DistributedSampler(5, {.rank = 2, .world_size = 2}), Equals("DistributedSampler: rank 2 of 2"));
}
