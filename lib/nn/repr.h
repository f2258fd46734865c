// This file has the class that extra_repr is written with.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "reel/types.h"

namespace reel::nn {

/// Returns the numbers as Python prints a tuple: (3,), (3, 4).
inline std::string tuple(std::span<const int64_t> numbers) {
  std::string all = "(";
  for (size_t i = 0; i < numbers.size(); ++i) all += (i ? ", " : "") + std::to_string(numbers[i]);
  return all + (numbers.size() == 1 ? ",)" : ")");
}

/// Returns the number that all dimensions share, otherwise a tuple.
template <int N>
std::string number_or_tuple(const PerDim<N>& sizes) {
  return sizes == PerDim<N>(sizes[0]) ? std::to_string(sizes[0]) : tuple(sizes.values);
}

/// A Repr builds the text in the parentheses of a printed module, "3, 8, kernel_size=(3, 3), bias=false".
class Repr {
 public:
  /// Begins with values without a name.
  template <class... Values>
  explicit Repr(const Values&... values) {
    ((separate() << values), ...);
  }
  /// Adds "name=value" for each name and value.
  template <class T, class... More>
  Repr& add(const char* name, const T& value, const More&... more) {
    separate() << name << '=';
    write(value);
    if constexpr (sizeof...(more) > 0) add(more...);
    return *this;
  }
  /// Adds "name=value" unless the value is the usual one.
  template <class T>
  Repr& add_unless(const std::type_identity_t<T>& usual, const char* name, const T& value) {
    return value == usual ? *this : add(name, value);
  }
  std::string text() const { return out_.str(); }

 private:
  std::ostream& separate() { return out_ << std::boolalpha << (out_.tellp() > 0 ? ", " : ""); }
  template <class T>
  void write(const T& value) {
    out_ << value;
  }
  template <int N>
  void write(const PerDim<N>& sizes) {
    out_ << tuple(sizes.values);
  }
  template <class T>
  void write(const std::optional<T>& value) {
    value ? write(*value) : write("None");
  }

  detail::TextStream out_;
};

}  // namespace reel::nn
