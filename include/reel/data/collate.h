#pragma once
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/ops/join.h"
#include "reel/ragged.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// How samples become a batch.
namespace reel::data {

namespace detail {
template <class T>
inline constexpr bool is_tuple = requires {
  std::tuple_size<T>::value;
};

/// What DefaultCollate and, with `ragged`, RaggedCollate do.
template <bool ragged>
struct Collate {
  /// The batch of these samples.
  template <class Sample>
  auto operator()(std::vector<Sample> samples) const {
    if constexpr (std::is_same_v<Sample, Tensor> && ragged)
      return Ragged::of(samples);
    else if constexpr (std::is_same_v<Sample, Tensor>)
      return stack(samples);
    else if constexpr (std::is_integral_v<Sample> && !std::is_same_v<Sample, bool>)
      return tensor(std::vector<int64_t>(samples.begin(), samples.end()), {.device = kCPU});
    else if constexpr (std::is_arithmetic_v<Sample>)
      return tensor(samples, {.device = kCPU});
    else if constexpr (is_tuple<Sample>)
      return by_element(samples, std::make_index_sequence<std::tuple_size_v<Sample>>());
    else
      return samples;
  }

 private:
  template <class Sample, size_t... I>
  auto by_element(std::vector<Sample>& samples, std::index_sequence<I...>) const {
    const auto column = [&](auto index) {
      std::vector<std::tuple_element_t<index, Sample>> elements;
      elements.reserve(samples.size());
      for (Sample& sample : samples) elements.push_back(std::move(std::get<index>(sample)));
      return (*this)(std::move(elements));
    };
    if constexpr (requires { samples[0].first; })
      return std::pair(column(std::integral_constant<size_t, 0>()), column(std::integral_constant<size_t, 1>()));
    else
      return std::tuple(column(std::integral_constant<size_t, I>())...);
  }
};

}  // namespace detail

/// Makes a batch of samples, as PyTorch's default_collate does:
///   tensors of one shape  are stacked along a new first dimension; an Error for several shapes: use RaggedCollate, or
///                         write a collate function that pads or packs them (pad_sequence, pack_sequence)
///   numbers               become a tensor: int64 of integers (labels, indices), bool, float32 or float64
///   pairs and tuples      become a pair or tuple of batches, element by element
///   anything else         stays a std::vector: strings, trees, user-defined structs, sentences of different lengths
struct DefaultCollate : detail::Collate<false> {};

/// The same, but tensors [len, …] are sequences of their own lengths, which become a Ragged:
///
///   data::DataLoader loader(sentences, {.batch_size = 32}, data::RaggedCollate());  // pairs of words and tags
///   for (auto [words, tags] : loader) cross_entropy(tagger(words), tags, kSum) …
struct RaggedCollate : detail::Collate<true> {};

}  // namespace reel::data
#pragma GCC visibility pop
