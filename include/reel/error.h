#pragma once
#include <ios>
#include <sstream>
#include <stdexcept>
#include <string>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// Errors, and the macro that checks arguments.
namespace reel {

/// Every wrong call and unreadable file is reported by throwing this. The message names the op (or the file and
/// offset), says what is wrong and shows the values. Everything that the caller holds is left unchanged (the strong
/// exception guarantee), which also holds where memory runs out: a failed allocation of a tensor's memory throws
/// OutOfMemoryError, any other one std::bad_alloc.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reports that the memory of a tensor could not be allocated. A program may catch it and go on with a smaller batch.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

namespace detail {
/// Returns the text with a backslash and a 0 for each NUL, at which what() would end.
[[gnu::cold]] std::string without_nul(std::string text);

/// A TextStream makes text that does not depend on the global locale, which may group digits or write a decimal comma.
struct TextStream : std::ostringstream {
  TextStream();
};

/// Streams all parts into one string. Throws std::bad_alloc where there is no memory for it.
template <class... Parts>
[[gnu::visibility("hidden")]] std::string concat(const Parts&... parts) {
  TextStream text;
  text.exceptions(std::ios::badbit);
  (text << ... << parts);
  return std::move(text).str();
}
/// Throws the concatenation of all parts as an E.
template <class E, class... Parts>
[[noreturn, gnu::cold, gnu::noinline, gnu::visibility("hidden")]] void fail_as(const Parts&... parts) {
  throw E(without_nul(concat(parts...)));
}
/// The same as an Error.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline, gnu::visibility("hidden")]] void fail(const Parts&... parts) {
  fail_as<Error>(parts...);
}
}  // namespace detail

}  // namespace reel
#pragma GCC visibility pop

/// REEL_CHECK(a.dim() == 2, "mm: expected a matrix, got shape ", a.shape()) throws reel::Error when the condition is
/// false. The message is built only then.
#define REEL_CHECK(condition, ...)                                            \
  do {                                                                        \
    if (__builtin_expect(!(condition), 0)) ::reel::detail::fail(__VA_ARGS__); \
  } while (false)
