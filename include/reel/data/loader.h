#pragma once
#include <concepts>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "reel/autograd.h"
#include "reel/data/collate.h"
#include "reel/data/dataset.h"
#include "reel/data/sampler.h"
#include "reel/random.h"

namespace reel::data {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  int workers = 0;         ///< Threads that make batches ahead of the loop; 0 makes them in the loop's own.
  int prefetch = 2;        ///< How many batches each worker may be ahead.
  bool drop_last = false;  ///< Leave out the last batch if it is smaller than the others.
  /// Make the tensors of batches (also those in pairs, tuples and vectors) in memory of the host that GPUs copy from
  /// without anybody waiting: Tensor::pin_memory().
  bool pin_memory = false;
  /// Where to bring the tensors of batches: while the loop works on one batch, the next is on its way. From pinned
  /// memory if it is a GPU.
  std::optional<Device> device = {};
  /// Decides the order and all random numbers drawn for samples. Drawn from the calling thread's generator, which
  /// manual_seed() seeds, if not given.
  std::optional<uint64_t> seed = {};
};

namespace detail {

uint64_t random_seed();  // from the thread's generator
uint64_t sub_seed(uint64_t seed, uint64_t number);

/// Numbers are drawn from that seed, and nothing is recorded, while it lives.
class SampleScope {
 public:
  explicit SampleScope(uint64_t seed) : before_(generator_state()) { manual_seed(seed); }
  ~SampleScope() { set_generator_state(before_); }
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

 private:
  GeneratorState before_;
  NoGrad no_grad_;
};

/// Calls make(i) for i in [first, last) on `workers` threads (0: in take()), at most `ahead` results before they are
/// taken, and hands them out in order.
class Pipeline {
 public:
  using Result = std::shared_ptr<void>;
  Pipeline(int workers, int64_t ahead, int64_t first, int64_t last, std::function<Result(int64_t)> make);
  ~Pipeline();                   // the threads finish what they are at
  std::optional<Result> take();  // throws what make() has thrown; nothing at the end

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// Brings tensors to a device while the loop works on those that came before.
class Mover {
 public:
  explicit Mover(Device device);
  ~Mover();
  Tensor move(const Tensor& x);  // starts
  void arrive(const Tensor& x);  // from here on the loop may use what move() has returned

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// The samples of `indices`, of which the first has the place `first` in its epoch, as a batch.
template <class D, class Collate>
auto make_batch(const D& dataset, const Collate& collate, std::span<const int64_t> indices, int64_t first,
                uint64_t seed) {
  const uint64_t batch_seed = sub_seed(seed, ~static_cast<uint64_t>(first));
  // A data set may offer batches, made as DefaultCollate would make them.
  if constexpr (std::same_as<Collate, DefaultCollate> && requires { plain(dataset).get_batch(indices); }) {
    const SampleScope scope(batch_seed);
    return plain(dataset).get_batch(indices);
  } else {
    std::vector<SampleOf<D>> samples;
    samples.reserve(indices.size());
    for (const int64_t index : indices) {
      const SampleScope scope(sub_seed(sub_seed(seed, static_cast<uint64_t>(first++)), static_cast<uint64_t>(index)));
      samples.push_back(sample(dataset, index));
    }
    const SampleScope scope(batch_seed);
    return collate(std::move(samples));
  }
}

void check(const LoaderOptions& options);
void check_with_sampler(const LoaderOptions& options, bool of_batches);

}  // namespace detail

/// Walks a data set in batches, once with every loop:
///
///   data::DataLoader loader(data::Mnist("mnist/"), {.batch_size = 100, .shuffle = true, .workers = 2});
///   for (int epoch = 0; epoch < 5; ++epoch)
///     for (auto [x, y] : loader) …
///
/// Batches are what `collate`, called with a std::vector of samples, returns. They come in the same order and with the
/// same contents for any number of workers: before each sample is made the thread's generator is seeded from the
/// loader's seed, the epoch, the sample's place in it and its index, so that random transforms agree as well. The data
/// set and `collate` are called without recording, by several threads at once when there are workers; an exception
/// that they throw reaches the loop in place of the batch it belongs to. A loop that is left early stops the workers,
/// and the next one walks the next epoch.
///
/// The data set is held by value; pass std::cref(dataset) or a shared_ptr where it should not be copied. One loop at a
/// time, a second one is an Error; the loader must outlive it.
template <Dataset D, class Collate = DefaultCollate>
class DataLoader {
 public:
  using Batch = decltype(detail::make_batch(std::declval<const D&>(), std::declval<const Collate&>(), {}, 0, 0));

  explicit DataLoader(D dataset, LoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), nullptr, options, std::move(collate)) {
    detail::check(options);
    const int64_t size = num_samples(dataset_);
    if (options.shuffle)
      set_batches(RandomSampler(size, {.seed = seed_}));
    else
      set_batches(SequentialSampler(size));
  }
  /// In a sampler's order; `options.shuffle` does not go with it.
  template <std::derived_from<Sampler> S>
  DataLoader(D dataset, S sampler, LoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), nullptr, options, std::move(collate)) {
    detail::check_with_sampler(options, false);
    set_batches(std::move(sampler));
  }
  /// In a batch sampler's batches; `batch_size`, `shuffle` and `drop_last` do not go with it.
  template <std::derived_from<Batches> S>
  DataLoader(D dataset, S batches, LoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), std::make_unique<S>(std::move(batches)), options, std::move(collate)) {
    detail::check_with_sampler(options, true);
  }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  int64_t size() const { return batches_->size(); }  ///< Batches in an epoch.
  const D& dataset() const { return dataset_; }

  /// The epoch of the loop that runs, or of the next one once a loop is over: at its end, or left early.
  int64_t epoch() const { return batches_->epoch(); }
  /// Batches of that epoch that the loop has got so far.
  int64_t position() const { return batches_->position(); }
  void set_epoch(int64_t epoch) { batches_->set_epoch(epoch); }  ///< The next loop walks that one.

  /// Seeds and place, for checkpoints, in the middle of an epoch, too: after load_state_dict() the next loop yields the
  /// batches that the saved one had not got yet, the same bit for bit. In the middle of an epoch the batch size and the
  /// number of batches must be the saved ones. A loop that runs goes on as it was.
  StateDict state_dict() const {
    StateDict dict = batches_->state_dict();
    dict.emplace_back("sample_seed", full({}, static_cast<int64_t>(seed_), {.dtype = kInt64, .device = kCPU}));
    return dict;
  }
  void load_state_dict(const StateDict& dict) {
    StateDict rest = dict;
    const auto is_seed = [](const auto& entry) { return entry.first == "sample_seed"; };
    const Tensor* seed = find(dict, "sample_seed");
    REEL_CHECK(seed && seed->defined() && seed->numel() == 1, "DataLoader::load_state_dict: no number sample_seed");
    std::erase_if(rest, is_seed);
    const auto new_seed = static_cast<uint64_t>(seed->item<int64_t>());
    batches_->load_state_dict(rest);
    seed_ = new_seed;
  }

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_.get(); }
    Iterator& operator++() {
      batch_.reset();
      batch_ = mover_ ? moved() : made();
      walk_.advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    friend DataLoader;
    explicit Iterator(DataLoader& loader) : walk_(loader.batches_->start()), pipeline_(loader.start(walk_)) {
      if (loader.options_.device) {
        mover_ = std::make_unique<detail::Mover>(*loader.options_.device);
        look_ahead();
      }
      ++*this;
    }
    std::shared_ptr<Batch> made() {
      const auto next = pipeline_->take();
      return next ? std::static_pointer_cast<Batch>(*next) : nullptr;
    }
    // What goes wrong belongs to the batch that it happens in, which the loop has not come to yet.
    void look_ahead() {
      try {
        next_ = made();
        if (next_) detail::for_each_tensor(*next_, [&](Tensor& x) { x = mover_->move(x); });
      } catch (...) {
        problem_ = std::current_exception();
      }
    }
    std::shared_ptr<Batch> moved() {
      if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
      const auto here = std::move(next_);
      if (here) {
        detail::for_each_tensor(*here, [&](const Tensor& x) { mover_->arrive(x); });
        look_ahead();
      }
      return here;
    }
    Batches::Walk walk_;
    std::unique_ptr<detail::Pipeline> pipeline_;
    std::unique_ptr<detail::Mover> mover_;
    std::shared_ptr<Batch> batch_, next_;
    std::exception_ptr problem_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  DataLoader(D dataset, std::unique_ptr<Batches> batches, const LoaderOptions& options, Collate collate)
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        options_(options),
        seed_(options.seed ? *options.seed : detail::random_seed()),
        batches_(std::move(batches)) {}
  template <class S>
  void set_batches(S sampler) {
    batches_ = std::make_unique<BatchSampler>(std::move(sampler), options_.batch_size, options_.drop_last);
  }

  std::unique_ptr<detail::Pipeline> start(const Batches::Walk& walk) {
    std::vector<int64_t> begins;  // each batch's first sample's place in the epoch
    for (int64_t begin = 0; const auto& batch : *walk.order()) {
      begins.push_back(begin);
      begin += static_cast<int64_t>(batch.size());
    }
    return std::make_unique<detail::Pipeline>(
        options_.workers, int64_t{options_.workers} * options_.prefetch, walk.position(),
        static_cast<int64_t>(walk.order()->size()),
        [this, order = walk.order(), begins = std::move(begins),
         seed = detail::sub_seed(seed_, static_cast<uint64_t>(batches_->epoch()))](int64_t i) {
          auto batch = std::make_shared<Batch>(detail::make_batch(dataset_, collate_, (*order)[i], begins[i], seed));
          if (options_.pin_memory || (options_.device && *options_.device != kCPU))
            detail::for_each_tensor(*batch, [](Tensor& x) {
              if (x.defined() && x.device() == kCPU) x = x.pin_memory();
            });
          return batch;
        });
  }

  D dataset_;
  Collate collate_;
  LoaderOptions options_;
  uint64_t seed_;
  std::unique_ptr<Batches> batches_;
};

}  // namespace reel::data
