#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "reel/amp/autocast.h"
#include "reel/autograd.h"
#include "reel/data/collate.h"
#include "reel/data/dataset.h"
#include "reel/random.h"

#pragma GCC visibility push(default)
// What the template DataLoader (data/loader.h) is made of; the definitions are in lib/data/loader.cpp.
namespace reel::data {

struct DataLoaderOptions;

namespace detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

/// f(tensor) for the tensors of a batch, also those in its pairs, tuples and vectors, and the values of a Ragged.
template <class T, class F>
void for_each_tensor(T& batch, const F& f) {
  if constexpr (std::is_same_v<T, Tensor>)
    f(batch);
  else if constexpr (std::is_same_v<T, Ragged>)
    f(batch.values);
  else if constexpr (is_tuple<T>)
    std::apply([&](auto&... elements) { (for_each_tensor(elements, f), ...); }, batch);
  else if constexpr (is_vector<T>)
    for (auto& element : batch) for_each_tensor(element, f);
}

uint64_t random_seed();  // from the thread's generator
uint64_t sub_seed(uint64_t seed, uint64_t number);

/// Seeds the calling thread's generator, and stops recording and autocast; the destructor restores them.
class SampleScope {
 public:
  explicit SampleScope(uint64_t seed) : before_(generator_state()) { manual_seed(seed); }
  ~SampleScope() { set_generator_state(before_); }
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

 private:
  GeneratorState before_;
  NoGrad no_grad_;
  amp::NoAutocast exact_;
};

/// Calls make(i) for i in [first, last) on `workers` threads (0: in take()), which have the default device of the
/// thread that makes this, at most `ahead` results before they are taken, and hands them out in order.
class Pipeline {
 public:
  using Result = std::shared_ptr<void>;
  Pipeline(int workers, int64_t ahead, int64_t first, int64_t last, std::function<Result(int64_t)> make);
  ~Pipeline();                   // joins the threads, each after the result that it is computing
  std::optional<Result> take();  // throws what make() has thrown; nothing at the end

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// Copies tensors to a device while the loop computes on those that came before.
class Mover {
 public:
  explicit Mover(Device device);
  ~Mover();
  Tensor move(const Tensor& x);  // queues the copy
  void arrive(const Tensor& x);  // orders the current stream's later work after the copy that move() returned

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// The samples of `indices`, of which the first has position `first` in its epoch, as a batch.
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

void check(const DataLoaderOptions& options);
void check_with_sampler(const DataLoaderOptions& options, bool of_batches);

}  // namespace detail
}  // namespace reel::data
#pragma GCC visibility pop
