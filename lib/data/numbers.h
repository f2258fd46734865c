#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace reel::data {

/// Of a floating-point number whose digits are not all 0: whether it is less than 1 or so, by its first digit's place.
inline bool is_small(std::string_view number) {
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  int64_t exponent = 0;
  if (e < number.size()) {
    const char* first = number.data() + e + 1;
    if (*first == '+') ++first;
    const auto error = std::from_chars(first, number.data() + number.size(), exponent).ec;
    if (error == std::errc::result_out_of_range) return *first == '-';
  }
  const std::string_view digits = number.substr(0, e);
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size()));
  return exponent < static_cast<int64_t>(digits.find_first_of("123456789")) - point;
}

/// The whole of `text` as a number; false if it is none, or out of T's range. What is nearer to 0 than any
/// floating-point number is 0.
template <class T>
bool parse_number(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if constexpr (std::is_floating_point_v<T>)
    if (error == std::errc::result_out_of_range && at == end && is_small(text)) {
      value = text[0] == '-' ? -T(0) : T(0);
      return true;
    }
  return error == std::errc() && at == end;
}

}  // namespace reel::data
