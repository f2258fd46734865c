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
/// A loader makes batches of a data set, in threads of its own.
namespace reel::data {

/// Of DataLoader.
struct DataLoaderOptions {
  int64_t batch_size = 1;  ///< Samples in a batch.
  bool shuffle = false;    ///< A new random order in every epoch.
  int workers = 0;         ///< Threads that make batches ahead of the loop; 0 makes them in the loop's own.
  int prefetch = 2;        ///< How many batches each worker may be ahead.
  bool drop_last = false;  ///< Leave out the last batch if it is smaller than the others.
  /// Make the tensors of batches (also those in pairs, tuples and vectors) in pinned memory, from which copies to a GPU
  /// may be asynchronous: Tensor::pin_memory(), CopyOptions::non_blocking.
  bool pin_memory = false;
  /// Copies the tensors of each batch to this device, one batch ahead of the loop; through pinned memory for a GPU.
  /// What the collate function has returned in pinned memory must not be changed later.
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
/// The data set is held by value; pass std::cref(dataset) or a shared_ptr where it should not be copied. One that grows
/// or shrinks between two loops is read as it is when a loop begins, unless a sampler decides. One loop at a time, a
/// second one is an Error; the loader must outlive it.
///
/// Where ++ of an iterator throws, the batch is skipped: another ++ goes on with the next one. Before that the iterator
/// is equal to end(), so a loop that catches such exceptions calls ++ again in place of comparing.
template <Dataset D, class Collate = DefaultCollate>
class DataLoader {
 public:
  /// What collate, or the data set's get_batch, returns.
  using Batch = decltype(detail::make_batch(std::declval<const D&>(), std::declval<const Collate&>(), {}, 0, 0));

  /// In order, or shuffled by `options.shuffle`.
  explicit DataLoader(D dataset, DataLoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), nullptr, options, std::move(collate)) {
    detail::check(options);
    set_batches([&] { return AllSamples(dataset_, options.shuffle ? seed_ : 0, options.shuffle); });
  }
  /// In a sampler's order; `options.shuffle` does not go with it.
  template <std::derived_from<Sampler> S>
  DataLoader(D dataset, S sampler, DataLoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), nullptr, options, std::move(collate)) {
    detail::check_with_sampler(options, false);
    set_batches([&] { return std::move(sampler); });
  }
  /// In a batch sampler's batches; `batch_size`, `shuffle` and `drop_last` do not go with it.
  template <std::derived_from<Batches> S>
  DataLoader(D dataset, S batches, DataLoaderOptions options = {}, Collate collate = {})
      : DataLoader(std::move(dataset), std::make_unique<S>(std::move(batches)), options, std::move(collate)) {
    detail::check_with_sampler(options, true);
  }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  int64_t size() const { return batches_->size(); }  ///< Batches in an epoch that would begin now.
  const D& dataset() const { return dataset_; }      ///< As it was given.

  /// The epoch of the running loop, or of the next one if none runs.
  int64_t epoch() const { return batches_->epoch(); }
  /// Batches of that epoch that the loop has received so far, or that an exception came in place of.
  int64_t position() const { return batches_->position(); }
  void set_epoch(int64_t epoch) { batches_->set_epoch(epoch); }  ///< The next loop is that one.

  ///@{
  /// Seeds and position, for checkpoints, in the middle of an epoch, too: after load_state_dict() the next loop yields
  /// the batches that the saved one had not received yet, the same bit for bit. In the middle of an epoch the batch
  /// size and the number of batches must be the saved ones, and so must, when the loop begins, the number of samples. A
  /// running loop is not affected.
  StateDict state_dict() const {
    StateDict dict = batches_->state_dict();
    const auto add = [&](const char* name, int64_t value) {
      dict.emplace_back(name, full({}, value, {.dtype = kInt64, .device = kCPU}));
    };
    add("sample_seed", static_cast<int64_t>(seed_));
    if (position() > 0 && samples_ >= 0) add("samples", samples_);  // of the epoch
    return dict;
  }
  void load_state_dict(const StateDict& dict) {
    StateDict rest = dict;
    const auto take = [&](const char* name, int64_t otherwise) {
      const Tensor* number = find(dict, name);
      if (!number) return otherwise;
      REEL_CHECK(number->defined() && number->dtype() == kInt64 && number->numel() == 1,
                 "DataLoader::load_state_dict: '", name, "' is not one int64");
      std::erase_if(rest, [&](const auto& entry) { return entry.first == name; });
      return number->template item<int64_t>();
    };
    REEL_CHECK(dict.contains("sample_seed"), "DataLoader::load_state_dict: no number sample_seed");
    const int64_t new_seed = take("sample_seed", 0), samples = take("samples", -1);
    batches_->load_state_dict(rest);
    seed_ = static_cast<uint64_t>(new_seed), samples_ = samples;
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
    Iterator& operator++() {
      batch_.reset();
      pass_.advance();  // past a batch that throws as well: the next one to be made is the one behind it
      batch_ = mover_ ? moved() : made();
      return *this;
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
      if (problem_) {
        const std::exception_ptr problem = std::exchange(problem_, nullptr);
        look_ahead();
        std::rethrow_exception(problem);
      }
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
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }  ///< Past the last batch.

 private:
  // All samples that the data set has when an epoch begins, in order or shuffled.
  class AllSamples : public Sampler {
   public:
    AllSamples(const D& dataset, uint64_t seed, bool shuffle) : Sampler(seed), dataset_(dataset), shuffle_(shuffle) {}
    int64_t size() const override { return num_samples(dataset_); }
    std::vector<int64_t> order(int64_t epoch) const override {
      return shuffle_ ? RandomSampler(size(), {.seed = seed()}).order(epoch) : SequentialSampler(size()).order(epoch);
    }

   private:
    const D& dataset_;  // the loader's, which is neither copied nor moved
    bool shuffle_;
  };

  DataLoader(D dataset, std::unique_ptr<Batches> batches, const DataLoaderOptions& options, Collate collate)
      : dataset_(std::move(dataset)),
        collate_(std::move(collate)),
        options_(options),
        seed_(options.seed ? *options.seed : detail::random_seed()),
        batches_(std::move(batches)) {}
  template <class MakeSampler>
  void set_batches(const MakeSampler& make_sampler) {
    batches_ = std::make_unique<BatchSampler>(make_sampler(), options_.batch_size, options_.drop_last);
  }

  std::unique_ptr<detail::Pipeline> start(const Batches::Pass& pass) {
    std::vector<int64_t> begins;  // each batch's first sample's place in the epoch
    int64_t samples = 0;
    for (const auto& batch : *pass.order()) {
      begins.push_back(samples);
      samples += static_cast<int64_t>(batch.size());
    }
    REEL_CHECK(pass.position() == 0 || samples_ < 0 || samples_ == samples,
               "DataLoader: the state is from the middle of an epoch of ", samples_, " samples; here they are ",
               samples);
    samples_ = samples;
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
  DataLoaderOptions options_;
  uint64_t seed_;
  std::unique_ptr<Batches> batches_;
  int64_t samples_ = -1;  // in the epoch of the last loop, or of the state that was loaded, if it says so
};

}  // namespace reel::data
#pragma GCC visibility pop
