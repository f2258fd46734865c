#pragma once
#include <charconv>
#include <string_view>

namespace reel::data {

/// The whole of `text` as a number; false if it is none, or out of T's range.
template <class T>
bool parse_number(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end;
}

}  // namespace reel::data
