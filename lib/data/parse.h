#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <type_traits>

// Parsing of fields in text files: fast, independent of the locale, and strict, since files are not trusted.
namespace reel::data {

/// `text` without the spaces around it.
inline std::string_view trim_spaces(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Whether a floating-point number that std::from_chars found out of range is too small rather than too large, by the
/// exponent of its first digit that is not 0 (std::from_chars reports both as one error).
inline bool underflows(std::string_view number) {
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

/// Parses the whole of `text` as a number; false if it is not one or is larger than T's range. A floating-point number
/// too small for T becomes 0 (or -0), as in Python and C.
template <class T>
bool parse_number(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if constexpr (std::is_floating_point_v<T>)
    if (error == std::errc::result_out_of_range && at == end && underflows(text)) {
      value = text[0] == '-' ? -T(0) : T(0);
      return true;
    }
  return error == std::errc() && at == end;
}

}  // namespace reel::data
