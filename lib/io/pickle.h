#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reel/error.h"

// Python's pickles (https://docs.python.org/3/library/pickletools.html), as data: what a pickle would call is described
// and never called.
namespace reel::io {

/// A value of a Pickle. Values refer to each other by number.
struct PickleValue {
  enum Kind : char {
    kOther,       ///< None, a float, bytes: nothing that is asked for.
    kInt,         ///< Or a bool; too long ones are kOther.
    kString,      ///< UTF-8, or what an old program has written.
    kSequence,    ///< A list, tuple or set of `items`.
    kDict,        ///< `items` are keys and values in turn.
    kGlobal,      ///< A function or class by name, "collections.OrderedDict"; Python 2's __builtin__ is "builtins".
    kCall,        ///< Of the function items[0] with the arguments items[1], a kSequence, or a new object of that class.
    kPersistent,  ///< What items[0] names, outside of the pickle.
  } kind = kOther;
  bool is_none = false;           ///< Whether a kOther is None.
  int64_t number = 0;             ///< Of kInt.
  std::string_view text;          ///< Of kString and kGlobal.
  std::vector<int> items;         ///< See the kinds.
  int contents = -1, state = -1;  ///< Of kCall: a kDict of what was put into it, and what it was given as its state.
  int64_t position = 0;           ///< In the pickle.
};

class Pickle {
 public:
  static constexpr size_t kMaxValues = 4'000'000;  ///< So many values take 350 MB; a tensor has about 20.
  /// Reads a pickle of protocols 2 to 5, without code, that `bytes` consists of. Globals that `allowed` does not know,
  /// all else that is not listed above, and more than kMaxValues values are an Error that begins with `name` and the
  /// byte.
  Pickle(std::string name, std::string bytes, const std::function<bool(std::string_view)>& allowed);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  int root() const { return root_; }
  const PickleValue& operator[](int number) const { return values_[static_cast<size_t>(number)]; }
  /// The number of values.
  size_t size() const { return values_.size(); }
  /// Throws the Error that refuses a global that is not allowed.
  [[noreturn]] void refuse(int global) const;
  template <class... Parts>
  [[noreturn]] void fail(const PickleValue& value, const Parts&... parts) const {
    reel::detail::fail(name_, ": byte ", value.position, ": ", parts...);
  }

 private:
  friend class PickleReader;

  std::string name_, bytes_;
  std::deque<std::string> globals_;  // their names
  std::vector<PickleValue> values_;
  int root_ = -1;
};

}  // namespace reel::io
