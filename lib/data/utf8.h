#pragma once
#include <utf8proc.h>

#include <string>
#include <string_view>

// Text in UTF-8, character by character.
namespace reel::data {

/// The character at the front of `text`, which is not empty, and its bytes; 0 bytes if it is not UTF-8.
struct Character {
  int32_t code;
  size_t bytes;
};
inline Character first_character(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x80) return {text[0], 1};
  int32_t code = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &code);
  return {code, bytes > 0 ? static_cast<size_t>(bytes) : 0};
}

inline void append_character(std::string& text, int32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t count = utf8proc_encode_char(code, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

/// Where the first character begins that is not UTF-8; the size if there is none.
inline size_t first_not_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = first_character(text.substr(at)).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return text.size();
}

/// A byte as 0xe9.
inline std::string hex(char c) {
  const auto code = static_cast<unsigned char>(c);
  return std::string("0x") + "0123456789abcdef"[code >> 4] + "0123456789abcdef"[code & 15];
}

}  // namespace reel::data
