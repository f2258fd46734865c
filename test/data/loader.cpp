#include "reel/data/loader.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>

#include "reel/ops.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

struct Numbers {
  int64_t n;
  int64_t size() const { return n; }
  int64_t get(int64_t i) const { return i; }
};

template <class Loader>
std::vector<std::vector<int64_t>> epoch(Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (const Tensor& batch : loader) batches.push_back(batch.template to_vector<int64_t>());
  return batches;
}

// Each sample is its index and some noise.
auto noisy(int64_t n) {
  return data::map(Numbers{n}, [](int64_t i) { return std::pair(i, randn({3}) + static_cast<double>(i)); });
}

}  // namespace

TEST_CASE("a loader yields batches that unpack in each epoch anew", "[threads]") {
  const Tensor x = arange(10).view({5, 2}), y = arange(5);
  data::DataLoader loader(data::TensorDataset(x, y), {.batch_size = 2});
  CHECK(loader.size() == 3);
  for (int e = 0; e < 2; ++e) {
    CHECK(loader.epoch() == e);
    int64_t count = 0;
    for (auto [rows, labels] : loader) {
      CHECK(rows.shape() == Shape{count < 2 ? 2 : 1, 2});
      CHECK(labels[0].item<int64_t>() == 2 * count);
      CHECK(loader.position() == ++count);
    }
    CHECK(count == 3);
  }
  data::DataLoader cut(Numbers{5}, {.batch_size = 2, .drop_last = true});
  CHECK(epoch(cut) == std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}});
  data::DataLoader none(Numbers{0}, {.workers = 2});
  CHECK(epoch(none).empty());
  const std::vector<std::string> words{"a", "b", "c"};
  data::DataLoader texts(std::cref(words), {.batch_size = 2},
                         [](std::vector<std::string> batch) { return batch[0] + std::to_string(batch.size()); });
  std::string all;
  for (const std::string& text : texts) all += text;
  CHECK(all == "a2c1");
}

TEST_CASE("order and random numbers are the same for any number of workers", "[threads][cpu]") {
  const auto run = [](int workers, int prefetch, uint64_t seed) {
    data::DataLoader loader(noisy(23),
                            {.batch_size = 4, .shuffle = true, .workers = workers, .prefetch = prefetch, .seed = seed});
    std::vector<Tensor> all;
    for (int e = 0; e < 2; ++e)
      for (auto [index, noise] : loader) all.push_back(cat({index.to(kFloat32), noise.flatten()}));
    return cat(all);
  };
  const Tensor expected = run(0, 1, 7);
  for (const int workers : {1, 2, 5}) CHECK(equal(run(workers, 2, 7), expected));
  CHECK(equal(run(3, 1, 7), expected));
  CHECK_FALSE(equal(run(0, 1, 8), expected));
  // Not the same noise in every epoch, nor for every sample.
  const Tensor noise = expected.view({2, 23 * 4});
  CHECK_FALSE(equal(noise[0], noise[1]));
}

TEST_CASE("loading draws nothing from the loop's own generator and records nothing") {
  manual_seed(1);
  data::DataLoader loader(data::map(noisy(6), [w = ones({3}).requires_grad_()](const auto& s) { return s.second * w; }),
                          {.batch_size = 3, .seed = 1});
  manual_seed(2);
  const float expected = rand({}).item<float>();
  manual_seed(2);
  for (const Tensor& batch : loader) CHECK_FALSE(batch.requires_grad());
  CHECK(rand({}).item<float>() == expected);
  CHECK(grad_enabled());
}

TEST_CASE("workers make samples as the loop's own thread does, without autocast", "[threads]") {
  struct Products {
    int64_t size() const { return 2; }
    Tensor get(int64_t) const { return mm(ones({2, 2}), ones({2, 2})); }
  };
  const amp::Autocast half(kBFloat16);
  for (const int workers : {0, 1, 2}) {
    data::DataLoader loader(Products{}, {.workers = workers});
    for (const Tensor& batch : loader) {
      CHECK(batch.dtype() == kFloat32);
      CHECK(batch.device() == default_device());
    }
    CHECK(amp::autocast_enabled());
  }
}

TEST_CASE("a loader without a seed follows manual_seed") {
  const auto run = [] {
    data::DataLoader loader(Numbers{30}, {.batch_size = 30, .shuffle = true});
    return epoch(loader)[0];
  };
  manual_seed(1);
  const auto first = run(), second = run();
  CHECK(first != second);
  manual_seed(1);
  CHECK(run() == first);
}

TEST_CASE("an exception in a worker arrives at its place in the order", "[threads]") {
  const auto failing = data::map(Numbers{20}, [](int64_t i) {
    if (i == 9) throw std::out_of_range("nine");
    return i;
  });
  for (const int workers : {0, 1, 3}) {
    data::DataLoader loader(failing, {.batch_size = 2, .workers = workers});
    int64_t good = 0;
    const auto walk = [&] {
      for ([[maybe_unused]] const Tensor& batch : loader) ++good;
    };
    CHECK_THROWS_AS(walk(), std::out_of_range);
    CHECK(good == 4);
    CHECK(loader.epoch() == 1);
    CHECK_THROWS_WITH(walk(), Equals("nine"));  // and it goes on working
    CHECK(good == 8);
  }
}

TEST_CASE("a loop that is left early stops the workers", "[threads]") {
  std::atomic<int> made{0};
  const auto counting = data::map(Numbers{1000}, [&](int64_t i) { return ++made, i; });
  {
    data::DataLoader loader(counting, {.workers = 3, .prefetch = 2});
    for (const Tensor& batch : loader)
      if (batch.item<int64_t>() == 5) break;
    const int now = made;
    CHECK(now <= 6 + 1 + 6);  // those taken and six ahead
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(made == now);
    CHECK(loader.epoch() == 1);
    CHECK(epoch(loader).size() == 1000);  // the next loop is a whole epoch
    CHECK(loader.epoch() == 2);
  }
  made = 0;
  data::DataLoader unused(counting, {.workers = 3});
  CHECK(made == 0);
}

TEST_CASE("workers stay within their prefetch", "[threads]") {
  std::atomic<int> made{0};
  data::DataLoader loader(data::map(Numbers{100}, [&](int64_t i) { return ++made, i; }), {.workers = 2, .prefetch = 3});
  int taken = 0;
  bool within = true;
  for ([[maybe_unused]] const Tensor& batch : loader) {
    ++taken;
    if (taken % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    within = within && made <= taken + 6;
  }
  CHECK(within);
  CHECK(made == 100);
}

TEST_CASE("many tiny batches pass through workers that wake one by one", "[threads]") {
  for (const int workers : {1, 2, 5}) {
    data::DataLoader loader(Numbers{20000}, {.workers = workers});
    int64_t expected = 0;
    bool in_order = true;
    for (const Tensor& batch : loader) in_order = in_order && batch.item<int64_t>() == expected++;
    CHECK(in_order);
    CHECK(expected == 20000);
  }
}

TEST_CASE("a loader goes on in the middle of an epoch", "[threads][cpu]") {
  const data::DataLoaderOptions options{.batch_size = 3, .shuffle = true, .workers = 2, .seed = 5};
  std::vector<Tensor> expected;
  {
    data::DataLoader loader(noisy(20), options);
    for (int e = 0; e < 2; ++e)
      for (auto [index, noise] : loader) expected.push_back(noise);
  }
  for (const size_t stop : {size_t{1}, size_t{4}, size_t{7}, size_t{8}, size_t{14}}) {
    StateDict state;
    {
      data::DataLoader loader(noisy(20), options);
      size_t count = 0;
      while (count < stop)
        for ([[maybe_unused]] auto& batch : loader)
          if (++count == stop) {
            state = loader.state_dict();
            break;
          }
    }
    data::DataLoader loader(noisy(20), {.batch_size = 3, .shuffle = true});
    loader.load_state_dict(state);
    size_t count = stop;
    bool same = true;
    while (loader.epoch() < 2)
      for (auto [index, noise] : loader) same = same && equal(noise, expected[count++]);
    CHECK(same);
    CHECK(count == expected.size());
  }
  data::DataLoader loader(Numbers{3}, {.seed = 1});
  CHECK_THROWS_WITH(loader.load_state_dict({}), Contains("no number sample_seed"));
  data::DataLoader between(noisy(20), options);
  for ([[maybe_unused]] auto& batch : between) {
  }
  data::DataLoader next(noisy(20), options);
  next.load_state_dict(between.state_dict());  // between epochs the whole next one is to come
  int64_t batches = 0;
  for ([[maybe_unused]] auto& batch : next) ++batches;
  CHECK(batches == 7);
  CHECK(next.epoch() == 2);
}

TEST_CASE("a state taken after a break leads to the batches that the loader goes on with", "[threads]") {
  const data::DataLoaderOptions options{.batch_size = 10, .shuffle = true, .workers = 2, .seed = 1};
  data::DataLoader loader(Numbers{100}, options), other(Numbers{100}, options);
  StateDict inside;
  for ([[maybe_unused]] const Tensor& batch : loader)
    if (loader.position() == 3) {
      inside = loader.state_dict();
      break;
    }
  CHECK(loader.epoch() == 1);
  CHECK(loader.position() == 0);
  other.load_state_dict(loader.state_dict());
  CHECK(epoch(other) == epoch(loader));
  other.load_state_dict(inside);  // the rest of the loop that it was taken in
  CHECK(epoch(other).size() == 7);

  int loops = 0;
  loader.set_epoch(0);
  while (loader.epoch() < 5) {
    ++loops;
    for ([[maybe_unused]] const Tensor& batch : loader)
      if (loader.position() == 10) break;
  }
  CHECK(loops == 5);
}

TEST_CASE("resuming in the middle of an epoch with another batch size is refused") {
  data::DataLoader loader(Numbers{100}, {.batch_size = 10}), larger(Numbers{100}, {.batch_size = 20}),
      more(Numbers{110}, {.batch_size = 10}), single(Numbers{10});
  for ([[maybe_unused]] const Tensor& batch : loader)
    if (loader.position() == 3) {
      CHECK_THROWS_WITH(larger.load_state_dict(loader.state_dict()),
                        Contains("an epoch of size 10, batch size 10; here they are 5 and 20"));
      CHECK_THROWS_WITH(more.load_state_dict(loader.state_dict()), Contains("here they are 11 and 10"));
      CHECK_THROWS_WITH(single.load_state_dict(loader.state_dict()), Contains("here they are 10 and 1"));
    }
  CHECK(larger.epoch() == 0);
  larger.load_state_dict(loader.state_dict());  // between epochs any size will do
  CHECK(larger.epoch() == 1);
  CHECK(epoch(larger).size() == 5);

  data::BucketSampler buckets({1, 2, 3, 4}, {.batch_size = 1}), pairs({1, 2, 3, 4, 5, 6, 7, 8}, {.batch_size = 2});
  buckets.set_place(0, 1);
  CHECK_THROWS_WITH(pairs.load_state_dict(buckets.state_dict()), Contains("here they are 4 and 2"));
}

TEST_CASE("a second loop inside a loader's first is an Error", "[threads]") {
  for (const int workers : {0, 2}) {
    data::DataLoader loader(Numbers{5}, {.workers = workers});
    int64_t count = 0;
    for ([[maybe_unused]] const Tensor& batch : loader) {
      CHECK_THROWS_WITH(loader.begin(), Contains("a loop over it runs already"));
      ++count;
    }
    CHECK(count == 5);
    CHECK(loader.epoch() == 1);
    CHECK(epoch(loader).size() == 5);
  }
}

TEST_CASE("loaders take samplers and samplers of batches") {
  data::DataLoader subset(Numbers{10}, data::SubsetSampler({7, 2, 2}), {.batch_size = 2});
  CHECK(epoch(subset) == std::vector<std::vector<int64_t>>{{7, 2}, {2}});
  data::DataLoader buckets(Numbers{4}, data::BucketSampler({9, 1, 8, 2}, {.batch_size = 2, .shuffle = false}));
  CHECK(epoch(buckets) == std::vector<std::vector<int64_t>>{{1, 3}, {2, 0}});
  data::DataLoader ranks(Numbers{4}, data::DistributedSampler(4, {.rank = 1, .world_size = 2, .shuffle = false}));
  CHECK(epoch(ranks) == std::vector<std::vector<int64_t>>{{1}, {3}});
  data::DataLoader wrong(Numbers{3}, data::SubsetSampler({5}));
  CHECK_THROWS_WITH(epoch(wrong), Equals("dataset: index 5 of 3 samples"));

  using Subset = data::SubsetSampler;
  CHECK_THROWS_WITH((data::DataLoader(Numbers{3}, Subset({1}), {.shuffle = true})),
                    Contains("shuffle does not go with"));
  CHECK_THROWS_WITH((data::DataLoader(Numbers{4}, data::BucketSampler({1}, {}), {.batch_size = 2})),
                    Contains("batch_size and drop_last do not go with"));
  CHECK_THROWS_WITH((data::DataLoader(Numbers{3}, {.batch_size = 0})), Equals("DataLoader: batches of 0"));
  CHECK_THROWS_WITH((data::DataLoader(Numbers{3}, {.workers = -1})), Equals("DataLoader: -1 workers"));
  CHECK_THROWS_WITH((data::DataLoader(Numbers{3}, {.prefetch = 0})), Contains("prefetch is 0"));
}

TEST_CASE("a loader sees samples that are added between its loops", "[threads]") {
  for (const bool shuffle : {false, true})
    for (const int workers : {0, 2}) {
      std::vector<int64_t> buffer{0, 1, 2};
      data::DataLoader loader(std::cref(buffer), {.batch_size = 2, .shuffle = shuffle, .workers = workers, .seed = 1});
      data::DataLoader both(data::concat(std::cref(buffer), std::cref(buffer)), {.workers = workers});
      for (const int64_t size : {3, 7, 4, 0, 2}) {
        buffer.resize(static_cast<size_t>(size));
        std::iota(buffer.begin(), buffer.end(), 0);
        CHECK(loader.size() == (size + 1) / 2);
        std::vector<int64_t> seen;
        for (const std::vector<int64_t>& batch : epoch(loader)) seen.insert(seen.end(), batch.begin(), batch.end());
        if (shuffle) std::sort(seen.begin(), seen.end());
        CHECK(seen == buffer);
        CHECK(static_cast<int64_t>(epoch(both).size()) == 2 * size);
      }
    }
}

TEST_CASE("an epoch goes on only over as many samples as it began with", "[threads]") {
  std::vector<int64_t> buffer{0, 1, 2};
  data::DataLoader loader(std::cref(buffer), {.batch_size = 2, .shuffle = true, .seed = 1});
  auto it = loader.begin();
  const StateDict before = loader.state_dict();
  buffer.push_back(3);  // as many batches, in another order
  const StateDict after = loader.state_dict();
  for (const StateDict& state : {before, after}) {
    data::DataLoader other(std::cref(buffer), {.batch_size = 2, .shuffle = true, .seed = 1});
    other.load_state_dict(state);
    CHECK_THROWS_WITH(other.begin(), Contains("the middle of an epoch of 3 samples; here they are 4"));
    other.set_epoch(1);
    CHECK(epoch(other).size() == 2);
  }
  ++it;
  CHECK((*it).numel() == 1);  // the loop that runs has those that were there
}

TEST_CASE("the position of a loader counts batches that an exception came in place of", "[threads]") {
  struct Broken {
    int64_t size() const { return 8; }
    int64_t get(int64_t i) const {
      if (i == 2 || i == 5) throw std::runtime_error("cannot be read");
      return i;
    }
  };
  for (const int workers : {0, 2})
    for (const std::optional<Device> device : {std::optional<Device>(), std::optional(kCPU)})
      for (int64_t stop = 1; stop <= 6; ++stop) {
        const data::DataLoaderOptions options{.workers = workers, .device = device};
        data::DataLoader loader(Broken(), options), other(Broken(), options);
        std::vector<int64_t> all;
        const auto run = [&](auto& from, int64_t max) {
          auto it = from.begin();
          while (it != from.end() && static_cast<int64_t>(all.size()) < max) {
            all.push_back((*it).template item<int64_t>());
            if (static_cast<int64_t>(all.size()) == max) return from.state_dict();
            for (bool next = false; !next;) try {
                ++it;
                next = true;
              } catch (const std::runtime_error&) {
              }
          }
          return from.state_dict();
        };
        other.load_state_dict(run(loader, stop));
        bool at_once = true;  // the batch that the loop would go on with throws
        try {
          run(other, 8);
        } catch (const std::runtime_error&) {
          at_once = false;
        }
        INFO(workers << " workers, " << stop << " batches");
        const std::vector<int64_t> expected{0, 1, 3, 4, 6, 7};
        CHECK(at_once == (stop != 2 && stop != 4));
        if (at_once) CHECK(all == expected);
      }
}
