#include "reel/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "reel/data/loader.h"

// Samplers: the order of samples, or batches, of an epoch is a function of seed and epoch, so that a training run can
// be continued in the middle of one from (seed, epoch, position) alone.
namespace reel::data {
namespace {

using detail::SampleScope;
using detail::sub_seed;

uint64_t seed_of(const Sampler& sampler, int64_t epoch) {
  return sub_seed(sampler.seed(), static_cast<uint64_t>(epoch));
}

void check_size(const char* op, int64_t size) { REEL_CHECK(size >= 0, op, ": a data set of ", size, " samples"); }

std::vector<double> uniform(int64_t n, uint64_t seed) {
  const SampleScope scope(seed);
  return rand({n}, {.dtype = kFloat64, .device = kCPU}).to_vector<double>();
}

template <class T>
void shuffle(std::vector<T>& values, uint64_t seed) {
  std::vector<T> shuffled;
  shuffled.reserve(values.size());
  for (const int64_t i : detail::random_order(static_cast<int64_t>(values.size()), seed))
    shuffled.push_back(std::move(values[i]));
  values = std::move(shuffled);
}

std::vector<int64_t> ascending(int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

int64_t count_of(int64_t items, int64_t size, bool drop_last) {
  return drop_last ? items / size : items / size + (items % size != 0);
}

// Appends [first, last) in batches.
template <class Iterator>
void cut(Iterator first, Iterator last, int64_t size, bool drop_last, std::vector<std::vector<int64_t>>& batches) {
  for (; first != last && (!drop_last || last - first >= size); first += std::min<int64_t>(size, last - first))
    batches.emplace_back(first, first + std::min<int64_t>(size, last - first));
}

}  // namespace

// ---- the pass over an epoch -----------------------------------------------------------------------------------------

template <class Item>
SamplerOf<Item>::SamplerOf(std::optional<uint64_t> seed) : seed_(seed ? *seed : detail::random_seed()) {}

template <class Item>
SamplerOf<Item>::SamplerOf(const SamplerOf& other)
    : seed_(other.seed_), place_(std::make_shared<Place>(*other.place_)) {}

template <class Item>
SamplerOf<Item>& SamplerOf<Item>::operator=(const SamplerOf& other) {
  seed_ = other.seed_;
  place_ = std::make_shared<Place>(*other.place_);
  return *this;
}

template <class Item>
void SamplerOf<Item>::set_place(int64_t epoch, int64_t position) {
  REEL_CHECK(epoch >= 0 && position >= 0, "sampler: there is no position ", position, " in an epoch ", epoch);
  place_ = std::make_shared<Place>(Place{.epoch = epoch, .position = position});  // a loop that runs keeps the old one
}

template <class Item>
auto SamplerOf<Item>::start() -> Pass {
  REEL_CHECK(place_.use_count() == 1, "sampler: a loop over it runs already");
  std::vector<Item> order = this->order(epoch());
  REEL_CHECK(position() <= static_cast<int64_t>(order.size()), "sampler: position ", position(), " in an epoch of ",
             order.size());
  place_->size = static_cast<int64_t>(order.size());
  return Pass(std::move(order), place_);
}

template <class Item>
SamplerOf<Item>::Pass::Pass(std::vector<Item> order, std::shared_ptr<Place> place)
    : order_(std::make_shared<const std::vector<Item>>(std::move(order))),
      place_(place.get(), [place](Place* at) { *at = {.epoch = at->epoch + 1}; }) {}

template <class Item>
bool SamplerOf<Item>::Pass::advance() {
  if (place_ && place_->position < static_cast<int64_t>(order_->size())) return ++place_->position, true;
  place_.reset();
  return false;
}

template <class Item>
StateDict SamplerOf<Item>::state_dict() const {
  const auto number = [](int64_t value) { return full({}, value, {.dtype = kInt64, .device = kCPU}); };
  return {{"seed", number(static_cast<int64_t>(seed()))},
          {"epoch", number(epoch())},
          {"position", number(position())},
          {"size", number(place_->size < 0 ? size() : place_->size)},
          {"batch_size", number(batch_size())}};
}

template <class Item>
void SamplerOf<Item>::load_state_dict(const StateDict& dict) {
  const auto number = [&](const char* name) {
    const Tensor* tensor = find(dict, name);
    REEL_CHECK(tensor && tensor->defined() && tensor->dtype() == kInt64 && tensor->numel() == 1,
               "sampler: load_state_dict: '", name, "' is not there or not one int64");
    return tensor->item<int64_t>();
  };
  const int64_t new_seed = number("seed"), epoch = number("epoch"), position = number("position"),
                items = number("size"), samples = number("batch_size");
  for (const auto& [name, tensor] : dict)
    REEL_CHECK(name == "seed" || name == "epoch" || name == "position" || name == "size" || name == "batch_size",
               "sampler: load_state_dict: unexpected: ", name);
  REEL_CHECK(position == 0 || (items == size() && samples == batch_size()),
             "sampler: load_state_dict: the state is from the middle of an epoch of size ", items, ", batch size ",
             samples, "; here they are ", size(), " and ", batch_size());
  set_place(epoch, position);
  set_seed(static_cast<uint64_t>(new_seed));
}

template class SamplerOf<int64_t>;
template class SamplerOf<std::vector<int64_t>>;

// ---- orders ---------------------------------------------------------------------------------------------------------

SequentialSampler::SequentialSampler(int64_t size) : size_(size) { check_size("SequentialSampler", size); }

std::vector<int64_t> SequentialSampler::order(int64_t) const { return ascending(size_); }

RandomSampler::RandomSampler(int64_t size, RandomSamplerOptions options)
    : Sampler(options.seed),
      size_(size),
      num_samples_(options.num_samples.value_or(size)),
      replacement_(options.replacement) {
  check_size("RandomSampler", size);
  REEL_CHECK(num_samples_ >= 0 && (num_samples_ <= size || (replacement_ && size > 0)), "RandomSampler: ", num_samples_,
             " samples of ", size, replacement_ ? " with" : " without", " replacement");
}

std::vector<int64_t> RandomSampler::order(int64_t epoch) const {
  if (replacement_) {
    if (num_samples_ == 0) return {};
    const SampleScope scope(seed_of(*this, epoch));
    return randint(size_, {num_samples_}).to_vector<int64_t>();
  }
  std::vector<int64_t> order = detail::random_order(size_, seed_of(*this, epoch));
  order.resize(num_samples_);
  return order;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples,
                                             WeightedRandomSamplerOptions options)
    : Sampler(options.seed),
      weights_(std::move(weights)),
      num_samples_(num_samples),
      replacement_(options.replacement) {
  int64_t positive = 0;
  for (const double weight : weights_) {
    REEL_CHECK(weight >= 0 && std::isfinite(weight), "WeightedRandomSampler: a weight is ", weight);
    positive += weight > 0;
  }
  REEL_CHECK(num_samples >= 0 && (replacement_ ? positive > 0 || num_samples == 0 : num_samples <= positive),
             "WeightedRandomSampler: ", num_samples, " samples", replacement_ ? " with" : " without",
             " replacement from ", positive, " positive weights");
}

std::vector<int64_t> WeightedRandomSampler::order(int64_t epoch) const {
  const auto size = static_cast<int64_t>(weights_.size());
  std::vector<int64_t> order;
  if (replacement_) {
    std::vector<double> sums(size);
    std::partial_sum(weights_.begin(), weights_.end(), sums.begin());
    for (const double x : uniform(num_samples_, seed_of(*this, epoch))) {
      const auto at = std::upper_bound(sums.begin(), sums.end(), x * sums.back());
      // Rounding may lead past the end, or onto a weight of zero there.
      auto index = std::min<int64_t>(at - sums.begin(), size - 1);
      while (weights_[index] == 0) --index;
      order.push_back(index);
    }
    return order;
  }
  // Without replacement: the samples with the smallest keys Exp(1) / weight (Efraimidis & Spirakis 2006).
  std::vector<double> keys = uniform(size, seed_of(*this, epoch));
  for (int64_t i = 0; i < size; ++i) keys[i] = weights_[i] > 0 ? -std::log1p(-keys[i]) / weights_[i] : INFINITY;
  order = ascending(size);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  order.resize(num_samples_);
  return order;
}

SubsetSampler::SubsetSampler(std::vector<int64_t> indices, SubsetSamplerOptions options)
    : Sampler(options.shuffle ? options.seed : 0), indices_(std::move(indices)), shuffle_(options.shuffle) {}

std::vector<int64_t> SubsetSampler::order(int64_t epoch) const {
  std::vector<int64_t> order = indices_;
  if (shuffle_) shuffle(order, seed_of(*this, epoch));
  return order;
}

DistributedSampler::DistributedSampler(int64_t size, DistributedSamplerOptions options)
    : Sampler(options.seed), size_(size), options_(options) {
  check_size("DistributedSampler", size);
  REEL_CHECK(options.world_size > 0 && options.rank >= 0 && options.rank < options.world_size,
             "DistributedSampler: rank ", options.rank, " of ", options.world_size);
}

int64_t DistributedSampler::size() const { return count_of(size_, options_.world_size, options_.drop_last); }

std::vector<int64_t> DistributedSampler::order(int64_t epoch) const {
  const std::vector<int64_t> all =
      options_.shuffle ? detail::random_order(size_, seed_of(*this, epoch)) : ascending(size_);
  std::vector<int64_t> share(size());
  for (size_t i = 0; i < share.size(); ++i) share[i] = all[(options_.rank + i * options_.world_size) % all.size()];
  return share;
}

// ---- batches --------------------------------------------------------------------------------------------------------

BatchSampler::BatchSampler(std::shared_ptr<Sampler> sampler, int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
  REEL_CHECK(batch_size > 0, "BatchSampler: batches of ", batch_size);
}

int64_t BatchSampler::size() const { return count_of(sampler_->size(), batch_size_, drop_last_); }

std::vector<std::vector<int64_t>> BatchSampler::order(int64_t epoch) const {
  std::vector<std::vector<int64_t>> batches;
  const std::vector<int64_t> order = sampler_->order(epoch);
  cut(order.begin(), order.end(), batch_size_, drop_last_, batches);
  return batches;
}

BucketSampler::BucketSampler(std::vector<int64_t> lengths, BucketSamplerOptions options)
    : Batches(options.shuffle ? options.seed : 0), lengths_(std::move(lengths)), options_(options) {
  REEL_CHECK(options.batch_size > 0 && options.pool > 0, "BucketSampler: pools of ", options.pool, " batches of ",
             options.batch_size);
}

int64_t BucketSampler::size() const {
  return count_of(static_cast<int64_t>(lengths_.size()), options_.batch_size, options_.drop_last);
}

std::vector<std::vector<int64_t>> BucketSampler::order(int64_t epoch) const {
  const auto size = static_cast<int64_t>(lengths_.size());
  const uint64_t seed = sub_seed(this->seed(), static_cast<uint64_t>(epoch));
  std::vector<int64_t> order = options_.shuffle ? detail::random_order(size, seed) : ascending(size);
  // Batches are many fewer than 2^31, and so is what fits into memory.
  const int64_t pool = options_.shuffle && options_.pool < size / options_.batch_size + 1
                           ? options_.pool * options_.batch_size
                           : std::max<int64_t>(size, 1);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t begin = 0; begin < size; begin += pool) {
    const auto first = order.begin() + begin, last = order.begin() + std::min(size, begin + pool);
    std::stable_sort(first, last, [&](int64_t a, int64_t b) { return lengths_[a] < lengths_[b]; });
    cut(first, last, options_.batch_size, options_.drop_last, batches);
  }
  if (options_.shuffle) shuffle(batches, sub_seed(seed, 1));
  return batches;
}

}  // namespace reel::data
