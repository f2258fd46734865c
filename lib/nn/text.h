#pragma once
#include <sstream>
#include <string>
#include <utility>

#include "reel/types.h"

// What extra_repr is written with.
namespace reel::nn {

template <class... Parts>
std::string text(const Parts&... parts) {
  detail::TextStream out;
  ((out << std::boolalpha) << ... << parts);
  return std::move(out).str();
}

/// As Python writes a tuple: (3,), (3, 4).
inline std::string tuple(const Shape& shape) {
  std::string all = "(";
  for (int d = 0; d < shape.size(); ++d) all += text(d ? ", " : "", shape[d]);
  return all + (shape.size() == 1 ? ",)" : ")");
}

/// The end of the text of a layer that takes its channels first or last.
inline const char* layout(bool channels_last) { return channels_last ? ", channels_last=true" : ""; }

/// A number that is the same for all dimensions, or a tuple.
template <int N>
std::string text(const PerDim<N>& sizes) {
  return sizes == PerDim<N>(sizes[0]) ? text(sizes[0]) : tuple(Shape(std::span<const int64_t>(sizes.values)));
}

}  // namespace reel::nn
