#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/ops/index.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Data sets, the order in which they are read (sampler.h), and their batches (loader.h).
namespace reel::data {

// ---- what a data set is ---------------------------------------------------------------------------------------------

namespace detail {
// Dereferences pointers, smart pointers and std::ref.
template <class D>
const auto& plain(const D& dataset) {
  if constexpr (requires { *dataset; })
    return *dataset;
  else if constexpr (requires {
                       typename D::type;
                       dataset.get();
                     })
    return dataset.get();
  else
    return dataset;
}
std::vector<int64_t> random_order(int64_t n, uint64_t seed);
/// Lengths of the parts that `shares` describe: integers that add up to n, or fractions that add up to 1.
std::vector<int64_t> part_lengths(int64_t n, const std::vector<Scalar>& shares);
void check_index(int64_t index, int64_t size);
}  // namespace detail

/// A data set is anything with size() and either get(i) or operator[]: a std::vector, one of the classes below, a
/// user-defined one, or a pointer, shared_ptr or std::ref to one. A DataLoader's workers call them from several threads
/// at once, on a const object.
template <class D>
concept Dataset = requires(const D& dataset) {
  detail::plain(dataset).size();
}
&&(
    requires(const D& dataset) { detail::plain(dataset).get(int64_t{}); } ||
    requires(const D& dataset) { detail::plain(dataset)[int64_t{}]; });

/// size() of the data set.
template <Dataset D>
int64_t num_samples(const D& dataset) {
  return static_cast<int64_t>(detail::plain(dataset).size());
}

/// Sample i. An index out of range is an Error.
template <Dataset D>
decltype(auto) sample(const D& dataset, int64_t i) {
  const auto& plain = detail::plain(dataset);
  detail::check_index(i, static_cast<int64_t>(plain.size()));
  if constexpr (requires { plain.get(i); })
    return plain.get(i);
  else
    return plain[i];
}

/// The type of a data set's samples.
template <Dataset D>
using SampleOf = std::remove_cvref_t<decltype(sample(std::declval<const D&>(), 0))>;

// ---- data sets made of others ---------------------------------------------------------------------------------------

/// What map() returns.
template <Dataset D, class F>
class MapDataset {
 public:
  /// Of a data set and what is applied to its samples.
  MapDataset(D dataset, F f) : dataset_(std::move(dataset)), f_(std::move(f)) {}
  ///@{
  /// As of every data set.
  int64_t size() const { return num_samples(dataset_); }
  auto get(int64_t i) const { return f_(sample(dataset_, i)); }
  ///@}

 private:
  D dataset_;
  F f_;
};

/// The data set of f(sample), computed at each access. Random numbers that f draws (rand, randn,
/// …) come out the same for any number of workers of a DataLoader.
template <Dataset D, class F>
MapDataset<D, F> map(D dataset, F f) {
  return {std::move(dataset), std::move(f)};
}

/// The same, where f changes only the first part of a pair or tuple: of (image, label) the image. Samples become
/// std::tuples; those that are neither pair nor tuple go to f whole.
template <Dataset D, class F>
auto transform(D dataset, F f) {
  return map(std::move(dataset), [f = std::move(f)](const auto& whole) {
    if constexpr (requires { std::tuple_size<std::remove_cvref_t<decltype(whole)>>::value; })
      return std::apply([&](const auto& first, const auto&... rest) { return std::tuple(f(first), rest...); }, whole);
    else
      return f(whole);
  });
}

/// What concat() returns: data sets of one type of samples, one after the other. They may grow.
template <class Sample>
class ConcatDataset {
 public:
  template <Dataset D>
  void add(D dataset) {  ///< After those that were added before.
    const auto part = std::make_shared<const D>(std::move(dataset));
    parts_.push_back({[part] { return num_samples(*part); }, [part](int64_t i) -> Sample { return sample(*part, i); }});
  }
  ///@{
  /// As of every data set.
  int64_t size() const {
    int64_t size = 0;
    for (const Part& part : parts_) size += part.size();
    return size;
  }
  Sample get(int64_t i) const {
    detail::check_index(i, size());
    for (auto part = parts_.begin();; ++part) {
      const int64_t size = part->size();
      if (i < size || part + 1 == parts_.end()) return part->get(i);
      i -= size;
    }
  }
  ///@}

 private:
  struct Part {
    std::function<int64_t()> size;
    std::function<Sample(int64_t)> get;
  };
  std::vector<Part> parts_;
};

/// The data sets one after the other.
template <Dataset D, Dataset... More>
ConcatDataset<SampleOf<D>> concat(D first, More... more) {
  ConcatDataset<SampleOf<D>> all;
  all.add(std::move(first));
  (all.add(std::move(more)), ...);
  return all;
}
/// Of a list of data sets of one type, such as the folds of a cross-validation. A vector of strings is no such list but
/// one data set, of strings.
template <Dataset D>
ConcatDataset<SampleOf<D>> concat(std::vector<D> parts) requires(!std::convertible_to<D, std::string_view>) {
  ConcatDataset<SampleOf<D>> all;
  for (D& part : parts) all.add(std::move(part));
  return all;
}

/// Some samples of a data set, in the order of `indices`, which may repeat. An index out of range is an Error at once.
template <Dataset D>
class Subset {
 public:
  ///@{
  /// The data set itself, or one that is shared with others.
  Subset(D dataset, std::vector<int64_t> indices)
      : Subset(std::make_shared<const D>(std::move(dataset)), std::move(indices)) {}
  Subset(std::shared_ptr<const D> dataset, std::vector<int64_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {
    for (const int64_t index : indices_) detail::check_index(index, num_samples(*dataset_));
  }
  ///@}
  ///@{
  /// As of every data set.
  int64_t size() const { return static_cast<int64_t>(indices_.size()); }
  decltype(auto) get(int64_t i) const { return sample(*dataset_, indices_[i]); }
  auto get_batch(std::span<const int64_t> positions) const requires requires(const D& dataset) {
    detail::plain(dataset).get_batch(positions);
  }
  {
    std::vector<int64_t> chosen;
    chosen.reserve(positions.size());
    for (const int64_t i : positions) {
      detail::check_index(i, size());
      chosen.push_back(indices_[i]);
    }
    return detail::plain(*dataset_).get_batch(chosen);
  }
  ///@}
  const std::vector<int64_t>& indices() const { return indices_; }  ///< In the data set.

 private:
  std::shared_ptr<const D> dataset_;
  std::vector<int64_t> indices_;
};

/// Subset(dataset, indices)
template <Dataset D>
Subset<D> subset(D dataset, std::vector<int64_t> indices) {
  return {std::move(dataset), std::move(indices)};
}

/// Cuts a data set at random into parts that share it: `shares` are their sizes, {50000, 10000}, or fractions, {0.9,
/// 0.1}, where the samples that rounding leaves over go to the first parts, one each. The same seed gives the same
/// parts on every machine.
template <Dataset D>
std::vector<Subset<D>> random_split(D dataset, const std::vector<Scalar>& shares, uint64_t seed = 0) {
  const auto whole = std::make_shared<const D>(std::move(dataset));
  const std::vector<int64_t> lengths = detail::part_lengths(num_samples(*whole), shares);
  const std::vector<int64_t> order = detail::random_order(num_samples(*whole), seed);
  std::vector<Subset<D>> parts;
  auto begin = order.begin();
  for (const int64_t length : lengths) {
    parts.emplace_back(whole, std::vector(begin, begin + length));
    begin += length;
  }
  return parts;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

/// N tensors of one first dimension: sample i is the tuple of their rows i. `TensorDataset data(x, y);`
template <size_t N>
class TensorDataset {
 public:
  /// An Error unless all have the same size(0).
  template <std::same_as<Tensor>... T>
  explicit TensorDataset(const Tensor& first, const T&... more) : tensors_{first, more...} {
    for (const Tensor& tensor : tensors_)
      REEL_CHECK(tensor.defined() && tensor.dim() > 0 && tensor.size(0) == first.size(0),
                 "TensorDataset: tensors need a first dimension of one size, got ", shapes());
  }
  ///@{
  /// As of every data set.
  int64_t size() const { return tensors_[0].size(0); }
  auto get(int64_t i) const {
    return each([&](const Tensor& tensor) { return tensor.select(0, i); });
  }
  ///@}
  /// The rows of all indices at once, which is faster than one by one.
  auto get_batch(std::span<const int64_t> indices) const {
    const Tensor rows = reel::tensor(indices);
    return each([&](const Tensor& tensor) { return index_select(tensor, 0, rows); });
  }
  const Tensor& tensor(size_t i) const { return tensors_[i]; }  ///< The i-th of the tensors.

 private:
  template <class F>
  auto each(const F& f) const {
    return std::apply([&](const auto&... tensor) { return std::tuple(f(tensor)...); }, tensors_);
  }
  std::string shapes() const {
    std::string text;
    for (const Tensor& tensor : tensors_)
      text += (text.empty() ? "" : ", ") + (tensor.defined() ? tensor.shape().to_string() : "an undefined one");
    return text;
  }
  std::array<Tensor, N> tensors_;
};
/// Counts the tensors.
template <std::same_as<Tensor>... T>
TensorDataset(const Tensor&, const T&...) -> TensorDataset<1 + sizeof...(T)>;

}  // namespace reel::data
#pragma GCC visibility pop
