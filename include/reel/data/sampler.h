#pragma once
#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reel/error.h"
#include "reel/state_dict.h"

#pragma GCC visibility push(default)
/// Samplers give the order in which a data set is read.
namespace reel::data {

// ---- what samplers share --------------------------------------------------------------------------------------------

/// The order in which a data set is read. The order of an epoch depends on nothing but the sampler's arguments, its
/// seed and the epoch's number, so that any process can continue where another one was stopped:
///
///   RandomSampler sampler(1000, {.seed = 1});
///   for (int64_t index : sampler) …       // epoch 0; the next loop is epoch 1
///
/// Item is int64_t for samplers, std::vector<int64_t> for samplers of whole batches.
template <class Item>
class SamplerOf {
  struct Place {
    int64_t epoch = 0, position = 0;
    int64_t size = -1;  // of the epoch of the loop that runs; size() may have changed since
  };

 public:
  virtual ~SamplerOf() = default;
  ///@{
  /// Copies seed and position; a running loop over `other` stays one over `other`.
  SamplerOf(const SamplerOf& other);
  SamplerOf& operator=(const SamplerOf& other);
  ///@}

  virtual int64_t size() const = 0;                          ///< Items in an epoch.
  virtual int64_t batch_size() const { return 1; }           ///< Samples in an item, but perhaps the last.
  virtual std::vector<Item> order(int64_t epoch) const = 0;  ///< All items of an epoch.
  virtual uint64_t seed() const { return seed_; }            ///< Decides the orders of all epochs.
  virtual void set_seed(uint64_t seed) { seed_ = seed; }     ///< For the loops that begin from here on.

  ///@{
  /// The epoch and the number of its items that the loop has reached, the current one included. After a loop, whether
  /// it ended, was left by break or by an exception, that is the beginning of the next epoch.
  int64_t epoch() const { return place_->epoch; }
  int64_t position() const { return place_->position; }
  ///@}
  /// The next loop begins there. A running loop is not affected, and from then on does not change epoch() and
  /// position().
  void set_place(int64_t epoch, int64_t position);
  void set_epoch(int64_t epoch) { set_place(epoch, 0); }  ///< The next loop is that epoch.

  ///@{
  /// "seed", "epoch", "position", "size" and "batch_size", for checkpoints. After load_state_dict() the next loop
  /// yields what was still to come where the state was taken: in a loop the rest of its epoch, after it the next epoch.
  /// A state from the middle of an epoch of another size or batch size is an Error: the rest would be other samples.
  /// After an Error the sampler is unchanged.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& dict);
  ///@}

  /// A pass over an epoch, for custom loops. It ends when advance() has returned false, or when the last copy is
  /// destroyed.
  class Pass {
   public:
    const std::shared_ptr<const std::vector<Item>>& order() const { return order_; }  ///< All items of the epoch.
    int64_t position() const { return place_->position; }                             ///< Items reached so far.
    bool advance();  ///< To the next item; false past the last of them.

   private:
    friend SamplerOf;
    Pass(std::vector<Item> order, std::shared_ptr<Place> place);
    std::shared_ptr<const std::vector<Item>> order_;
    std::shared_ptr<Place> place_;  // its deleter moves it to the next epoch
  };
  /// Begins a loop. One at a time: an Error while another one runs.
  Pass start();

  /// What begin() returns: a range-based for loop is a pass.
  class Iterator {
   public:
    ///@{
    /// Those of an input iterator.
    using value_type = Item;
    using difference_type = std::ptrdiff_t;
    const Item& operator*() const { return (*pass_.order())[pass_.position() - 1]; }
    Iterator& operator++() {
      done_ = !pass_.advance();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return done_; }
    ///@}

   private:
    friend SamplerOf;
    explicit Iterator(Pass pass) : pass_(std::move(pass)) { ++*this; }
    Pass pass_;
    bool done_ = false;
  };
  Iterator begin() { return Iterator(start()); }      ///< Begins a loop, as start() does.
  std::default_sentinel_t end() const { return {}; }  ///< Past the last item.

 protected:
  explicit SamplerOf(std::optional<uint64_t> seed = 0);  ///< nullopt draws it from the thread's generator.

 private:
  uint64_t seed_;
  std::shared_ptr<Place> place_ = std::make_shared<Place>();  // shared with the loop that runs
};
using Sampler = SamplerOf<int64_t>;               ///< Of single samples.
using Batches = SamplerOf<std::vector<int64_t>>;  ///< Of whole batches.
extern template class SamplerOf<int64_t>;
extern template class SamplerOf<std::vector<int64_t>>;

// ---- samplers -------------------------------------------------------------------------------------------------------
// A seed that is not given is drawn from the calling thread's generator: manual_seed() decides it.

/// 0, 1, … size - 1.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);  ///< Of so many samples.
  int64_t size() const override { return size_; }
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  int64_t size_;
};

/// Of RandomSampler.
struct RandomSamplerOptions {
  bool replacement = false;                 ///< An index may be drawn more than once in an epoch.
  std::optional<int64_t> num_samples = {};  ///< Per epoch; `size` if not given, and at most that without replacement.
  std::optional<uint64_t> seed = {};        ///< Drawn from the thread's generator if not given.
};
/// A random order; with replacement each index is drawn from all of them.
class RandomSampler : public Sampler {
 public:
  /// Of so many samples.
  explicit RandomSampler(int64_t size, RandomSamplerOptions options = {});
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  int64_t size_, num_samples_;
  bool replacement_;
};

/// Of WeightedRandomSampler.
struct WeightedRandomSamplerOptions {
  bool replacement = true;            ///< An index may be drawn more than once in an epoch.
  std::optional<uint64_t> seed = {};  ///< Drawn from the thread's generator if not given.
};
/// num_samples indices, index i with a probability proportional to weights[i]. The weights are finite, not negative and
/// not all zero; without replacement at least num_samples of them are positive (Efraimidis & Spirakis 2006).
class WeightedRandomSampler : public Sampler {
 public:
  /// One weight for each sample; num_samples indices in an epoch.
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, WeightedRandomSamplerOptions options = {});
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  std::vector<double> weights_;
  int64_t num_samples_;
  bool replacement_;
};

/// Of SubsetSampler.
struct SubsetSamplerOptions {
  bool shuffle = false;               ///< True makes it PyTorch's SubsetRandomSampler.
  std::optional<uint64_t> seed = {};  ///< Drawn from the thread's generator if not given.
};
/// The given indices, in their order or shuffled.
class SubsetSampler : public Sampler {
 public:
  /// Of these indices.
  explicit SubsetSampler(std::vector<int64_t> indices, SubsetSamplerOptions options = {});
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  std::vector<int64_t> indices_;
  bool shuffle_;
};

/// Of DistributedSampler.
struct DistributedSamplerOptions {
  int rank = 0;            ///< This process, from 0.
  int world_size = 1;      ///< The number of processes.
  bool shuffle = true;     ///< A new order in every epoch.
  bool drop_last = false;  ///< Cut the order instead of padding it.
  uint64_t seed = 0;       ///< Must be the same on all ranks.
};
/// Each process's share of an epoch: every world_size-th index of one common order, from `rank` on. All shares are of
/// one size: the order is padded from its own beginning, or cut with drop_last.
class DistributedSampler : public Sampler {
 public:
  /// Of so many samples in all.
  DistributedSampler(int64_t size, DistributedSamplerOptions options);
  int64_t size() const override;
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
};

// ---- samplers of batches --------------------------------------------------------------------------------------------

/// Cuts a sampler's order into batches.
class BatchSampler : public Batches {
 public:
  ///@{
  /// With drop_last a smaller last batch is left out.
  template <std::derived_from<Sampler> S>
  BatchSampler(S sampler, int64_t batch_size, bool drop_last = false)
      : BatchSampler(std::make_shared<S>(std::move(sampler)), batch_size, drop_last) {}
  BatchSampler(std::shared_ptr<Sampler> sampler, int64_t batch_size, bool drop_last = false);
  ///@}
  int64_t size() const override;
  int64_t batch_size() const override { return batch_size_; }
  std::vector<std::vector<int64_t>> order(int64_t epoch) const override;
  uint64_t seed() const override { return sampler_->seed(); }
  void set_seed(uint64_t seed) override { sampler_->set_seed(seed); }

 private:
  std::shared_ptr<Sampler> sampler_;
  int64_t batch_size_;
  bool drop_last_;
};

/// Of BucketSampler.
struct BucketSamplerOptions {
  int64_t batch_size = 1;             ///< Samples in a batch.
  bool shuffle = true;                ///< New batches in every epoch.
  bool drop_last = false;             ///< Leave out a smaller last batch.
  int64_t pool = 100;                 ///< Batches in a pool. Larger pools mean less padding and less randomness.
  std::optional<uint64_t> seed = {};  ///< Drawn from the thread's generator if not given.
};
/// Batches of samples of similar length, so that little is padded: the shuffled samples are cut into pools, each pool
/// is sorted by length and cut into batches, and the batches of all pools are shuffled. Without shuffle all samples are
/// one pool, and batches come in order of length.
class BucketSampler : public Batches {
 public:
  /// lengths[i] is that of sample i.
  BucketSampler(std::vector<int64_t> lengths, BucketSamplerOptions options);
  int64_t size() const override;
  int64_t batch_size() const override { return options_.batch_size; }
  std::vector<std::vector<int64_t>> order(int64_t epoch) const override;

 private:
  std::vector<int64_t> lengths_;
  BucketSamplerOptions options_;
};

}  // namespace reel::data
#pragma GCC visibility pop
