#pragma once
#include <concepts>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reel/data/collate.h"
#include "reel/data/dataset.h"
#include "reel/data/detail/loader.h"
#include "reel/data/sampler.h"

#pragma GCC visibility push(default)
namespace reel::data {

/// Of DataLoader.
struct LoaderOptions {
  int64_t batch_size = 1;  ///< Samples in a batch.
  bool shuffle = false;    ///< A new random order in every epoch.
  int workers = 0;         ///< Threads that make batches ahead of the loop; 0 makes them in the loop's own.
  int prefetch = 2;        ///< How many batches each worker may be ahead.
  bool drop_last = false;  ///< Leave out the last batch if it is smaller than the others.
  /// Make the tensors of batches (also those in pairs, tuples and vectors) in pinned memory, from which copies to a GPU
  /// are asynchronous: Tensor::pin_memory().
  bool pin_memory = false;
  /// Copies the tensors of each batch to this device, one batch ahead of the loop; through pinned memory for a GPU.
  std::optional<Device> device = {};
  /// Decides the order and all random numbers drawn for samples. Drawn from the calling thread's generator, which
  /// manual_seed() seeds, if not given.
  std::optional<uint64_t> seed = {};
};

/// Iterates over a data set in batches; each loop is one epoch:
///
///   data::DataLoader loader(data::Mnist("mnist/"), {.batch_size = 100, .shuffle = true, .workers = 2});
///   for (int epoch = 0; epoch < 5; ++epoch)
///     for (auto [x, y] : loader) …
///
/// Batches are what `collate`, called with a std::vector of samples, returns. They come in the same order and with the
/// same contents for any number of workers: before each sample is made the thread's generator is seeded from the
/// loader's seed, the epoch, the sample's place in it and its index, so that random transforms agree as well. The data
/// set and `collate` are called without recording or autocast and with the loop's default device, by several threads at
/// once when there are workers; an exception that they throw reaches the loop in place of the batch it belongs to.
/// Leaving a loop early stops the workers; the next loop is the next epoch.
///
/// The data set is held by value; pass std::cref(dataset) or a shared_ptr where it should not be copied. One loop at a
/// time, a second one is an Error; the loader must outlive it.
template <Dataset D, class Collate = DefaultCollate>
class DataLoader {
 public:
  /// What collate, or the data set's get_batch, returns.
  using Batch = decltype(detail::make_batch(std::declval<const D&>(), std::declval<const Collate&>(), {}, 0, 0));

  /// In order, or shuffled by `options.shuffle`.
  explicit DataLoader(D dataset, LoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), nullptr, options, std::move(collate)) {
    detail::check(options);
    const int64_t size = num_samples(dataset_);
    if (options.shuffle)
      set_batches([&] { return RandomSampler(size, {.seed = seed_}); });
    else
      set_batches([&] { return SequentialSampler(size); });
  }
  /// In a sampler's order; `options.shuffle` does not go with it.
  template <std::derived_from<Sampler> S>
  DataLoader(D dataset, S sampler, LoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), nullptr, options, std::move(collate)) {
    detail::check_with_sampler(options, false);
    set_batches([&] { return std::move(sampler); });
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
  const D& dataset() const { return dataset_; }      ///< As it was given.

  /// The epoch of the running loop, or of the next one if none runs.
  int64_t epoch() const { return batches_->epoch(); }
  /// Batches of that epoch that the loop has received so far.
  int64_t position() const { return batches_->position(); }
  void set_epoch(int64_t epoch) { batches_->set_epoch(epoch); }  ///< The next loop is that one.

  ///@{
  /// Seeds and position, for checkpoints, in the middle of an epoch, too: after load_state_dict() the next loop yields
  /// the batches that the saved one had not received yet, the same bit for bit. In the middle of an epoch the batch
  /// size and the number of batches must be the saved ones. A running loop is not affected.
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
  ///@}

  /// What begin() returns: an input iterator over the batches of an epoch.
  class Iterator {
   public:
    ///@{
    /// Those of an input iterator.
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_.get(); }
    Iterator& operator++() try {
      batch_.reset();
      batch_ = mover_ ? moved() : made();
      pass_.advance();
      return *this;
    } catch (const std::bad_alloc&) {
      reel::detail::fail_bad_alloc("DataLoader");
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batch_; }
    ///@}

   private:
    friend DataLoader;
    explicit Iterator(DataLoader& loader) : pass_(loader.batches_->start()), pipeline_(loader.start(pass_)) {
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
    // An exception is rethrown when the loop reaches the batch in which it was thrown.
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
    Batches::Pass pass_;
    std::unique_ptr<detail::Pipeline> pipeline_;
    std::unique_ptr<detail::Mover> mover_;
    std::shared_ptr<Batch> batch_, next_;
    std::exception_ptr problem_;
  };
  /// Begins a loop. An Error while another loop runs.
  Iterator begin() try { return Iterator(*this); } catch (const std::bad_alloc&) {
    reel::detail::fail_bad_alloc("DataLoader");
  }
  std::default_sentinel_t end() const { return {}; }  ///< Past the last batch.

 private:
  DataLoader(D dataset, std::unique_ptr<Batches> batches, const LoaderOptions& options, Collate collate) try
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        options_(options),
        seed_(options.seed ? *options.seed : detail::random_seed()),
        batches_(std::move(batches)) {
  } catch (const std::bad_alloc&) {
    reel::detail::fail_bad_alloc("DataLoader");
  }
  template <class MakeSampler>
  void set_batches(const MakeSampler& make_sampler) try {
    batches_ = std::make_unique<BatchSampler>(make_sampler(), options_.batch_size, options_.drop_last);
  } catch (const std::bad_alloc&) {
    reel::detail::fail_bad_alloc("DataLoader");
  }

  std::unique_ptr<detail::Pipeline> start(const Batches::Pass& pass) {
    std::vector<int64_t> begins;  // each batch's first sample's place in the epoch
    for (int64_t begin = 0; const auto& batch : *pass.order()) {
      begins.push_back(begin);
      begin += static_cast<int64_t>(batch.size());
    }
    return std::make_unique<detail::Pipeline>(
        options_.workers, int64_t{options_.workers} * options_.prefetch, pass.position(),
        static_cast<int64_t>(pass.order()->size()),
        [this, order = pass.order(), begins = std::move(begins),
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
#pragma GCC visibility pop
