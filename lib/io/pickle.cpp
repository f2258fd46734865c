#include "lib/io/pickle.h"

#include <cstring>
#include <unordered_map>
#include <utility>

namespace reel::io {

/// The machine that a pickle is a program for: a stack of values, marks in it, and numbered memos.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, const std::function<bool(std::string_view)>& allowed)
      : pickle_(pickle), bytes_(pickle.bytes_), allowed_(allowed) {}

  void run() {
    none_ = add(PickleValue::kOther), other_ = add(PickleValue::kOther), empty_tuple_ = add(PickleValue::kSequence);
    false_ = add_int(0), true_ = add_int(1);
    pickle_.values_[static_cast<size_t>(none_)].is_none = true;
    while (!done_) {
      begin_ = at_;
      step(take(1)[0]);
    }
    if (at_ != bytes_.size()) fail("bytes after the end of the pickle");
  }

 private:
  static constexpr size_t kMaxName = 1000;  // of a global

  // By the names of pickletools.
  void step(char opcode) {
    switch (opcode) {
      case '\x80': return protocol(number<uint8_t>());
      case '\x95': return static_cast<void>(take(8));  // FRAME
      case '.': return stop();
      // Values.
      case 'N': return push(none_);
      case '\x88': return push(true_);
      case '\x89': return push(false_);
      case 'J': return push(add_int(number<int32_t>()));
      case 'K': return push(add_int(number<uint8_t>()));
      case 'M': return push(add_int(number<uint16_t>()));
      case '\x8a': return long_integer(number<uint8_t>());
      case '\x8b': return long_integer(number<uint32_t>());
      case 'G': return take(8), push(other_);
      case 'B': return take(number<uint32_t>()), push(other_);
      case 'C': return take(number<uint8_t>()), push(other_);
      case '\x8e':
      case '\x96': return take(number<uint64_t>()), push(other_);
      case 'X':
      case 'T': return push_string(take(number<uint32_t>()));
      case '\x8c':
      case 'U': return push_string(take(number<uint8_t>()));
      case '\x8d': return push_string(take(number<uint64_t>()));
      // Containers.
      case '(': return marks_.push_back(stack_.size());
      case ')': return push(empty_tuple_);
      case '\x85': return tuple(1);
      case '\x86': return tuple(2);
      case '\x87': return tuple(3);
      case 't':
      case 'l':
      case '\x91': return tuple(after_mark());
      case 'd': return dict(pop(after_mark()));
      case '\x8f':
      case ']': return push(add(PickleValue::kSequence));
      case '}': return push(add(PickleValue::kDict));
      case 'a': return append(pop(1));
      case '\x90':
      case 'e': return append(pop(after_mark()));
      case 's': return set_items(pop(2));
      case 'u': return set_items(pop(after_mark()));
      // Memos.
      case 'q': return memoize(number<uint8_t>());
      case 'r': return memoize(number<uint32_t>());
      case '\x94': return memoize(static_cast<uint32_t>(memos_.size()));
      case 'h': return recall(number<uint8_t>());
      case 'j': return recall(number<uint32_t>());
      case '0': return static_cast<void>(pop(1));
      case '1': return static_cast<void>(pop(after_mark()));
      // Objects.
      case 'c': return global();
      case '\x93': return stack_global();
      case 'R':
      case '\x81': return call();
      case 'b': return build();
      case 'Q': return push(add(PickleValue::kPersistent, pop(1)));
      default: fail("opcode ", int{static_cast<uint8_t>(opcode)}, " is not one of a state_dict's pickle");
    }
  }

  void protocol(int version) {
    if (version < 2 || version > 5) fail("protocol ", version, " of pickle is not read, only 2 to 5");
  }
  void stop() {
    if (stack_.size() != 1 || !marks_.empty()) fail("the pickle ends with ", stack_.size(), " values, not 1");
    pickle_.root_ = stack_[0], done_ = true;
  }

  void long_integer(uint32_t bytes) {
    const std::string_view text = take(bytes);
    if (text.size() > sizeof(int64_t)) return push(other_);
    int64_t value = !text.empty() && text.back() < 0 ? -1 : 0;
    std::memcpy(&value, text.data(), text.size());
    push(add_int(value));
  }
  void push_string(std::string_view text) {
    push(add(PickleValue::kString));
    top().text = text;
  }
  void tuple(size_t count) {
    std::vector<int> items = pop(count);
    push(add(PickleValue::kSequence, std::move(items)));
  }
  void dict(const std::vector<int>& items) {
    push(add(PickleValue::kDict));
    set_items(items);
  }
  void append(const std::vector<int>& items) {
    if (top().kind != PickleValue::kSequence || stack_.back() == empty_tuple_) fail("items for what is no list");
    top().items.insert(top().items.end(), items.begin(), items.end());
  }
  // Into a dict, or into an object of a class that is one.
  void set_items(const std::vector<int>& items) {
    if (items.size() % 2) fail("a key without a value");
    int dict = at_top();
    if (top().kind == PickleValue::kCall) {
      if (top().contents < 0) {
        const int contents = add(PickleValue::kDict);
        top().contents = contents;
      }
      dict = top().contents;
    }
    PickleValue& target = pickle_.values_[static_cast<size_t>(dict)];
    if (target.kind != PickleValue::kDict) fail("items for what is no dict");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  void memoize(uint32_t number) {
    memos_[number] = at_top();
    check_count(memos_.size());
  }
  void recall(uint32_t number) {
    const auto found = memos_.find(number);
    if (found == memos_.end()) fail("memo ", number, " has not been written");
    push(found->second);
  }

  void global() {
    const std::string_view module = line();
    push_global(module, line());
  }
  void stack_global() {
    const std::vector<int> names = pop(2);
    const PickleValue &module = pickle_[names[0]], &name = pickle_[names[1]];
    if (module.kind != PickleValue::kString || name.kind != PickleValue::kString) fail("a global without a name");
    push_global(module.text, name.text);
  }
  void push_global(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kMaxName) fail("a global whose name has ", module.size() + name.size(), " bytes");
    if (module == "__builtin__") module = "builtins";  // protocol 2 has Python 2's names
    push(add(PickleValue::kGlobal));
    top().text = pickle_.globals_.emplace_back(std::string(module) + "." + std::string(name));
    if (!allowed_(top().text)) pickle_.refuse(at_top());
  }
  void call() {
    std::vector<int> items = pop(2);
    if (pickle_[items[0]].kind != PickleValue::kGlobal || pickle_[items[1]].kind != PickleValue::kSequence)
      fail("a call of what is no function, or without a tuple of arguments");
    push(add(PickleValue::kCall, std::move(items)));
  }
  void build() {
    const int state = pop(1)[0];
    if (top().kind != PickleValue::kCall) fail("a state for what is no object");
    top().state = state;
  }

  // ---- the stack ----

  void check_count(size_t count) const {
    if (count > Pickle::kMaxValues)
      fail("a pickle of more than ", Pickle::kMaxValues, " values: save tensors, not lists of numbers");
  }
  int add(PickleValue::Kind kind, std::vector<int> items = {}) {
    check_count(pickle_.size());
    PickleValue& value = pickle_.values_.emplace_back();
    value.kind = kind, value.items = std::move(items), value.position = static_cast<int64_t>(begin_);
    return static_cast<int>(pickle_.values_.size() - 1);
  }
  int add_int(int64_t number) {
    const int value = add(PickleValue::kInt);
    pickle_.values_.back().number = number;
    return value;
  }
  void push(int value) { stack_.push_back(value); }
  int at_top() {
    if (stack_.size() <= floor()) fail("nothing on the stack");
    return stack_.back();
  }
  PickleValue& top() { return pickle_.values_[static_cast<size_t>(at_top())]; }
  std::vector<int> pop(size_t count) {
    if (stack_.size() - floor() < count) fail("fewer values on the stack than the opcode takes");
    std::vector<int> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  // What an opcode may take lies above the last mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // The number of values above the last mark, which is taken away.
  size_t after_mark() {
    if (marks_.empty()) fail("no mark on the stack");
    const size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return count;
  }

  // ---- the bytes ----

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("the pickle ends inside an opcode");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("the pickle ends inside a name");
    const std::string_view text = take(end - at_);
    take(1);
    return text;
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    reel::detail::fail(pickle_.name_, ": byte ", begin_, ": ", parts...);
  }

  Pickle& pickle_;
  const std::string_view bytes_;
  const std::function<bool(std::string_view)>& allowed_;
  size_t at_ = 0, begin_ = 0;  // in the bytes: the next one, and where the opcode begins
  std::vector<int> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint32_t, int> memos_;
  int none_ = -1, other_ = -1, empty_tuple_ = -1, false_ = -1, true_ = -1;  // which need not be made anew
  bool done_ = false;
};

Pickle::Pickle(std::string name, std::string bytes, const std::function<bool(std::string_view)>& allowed)
    : name_(std::move(name)), bytes_(std::move(bytes)) {
  PickleReader(*this, allowed).run();
}

void Pickle::refuse(int global) const {
  const PickleValue& value = (*this)[global];
  fail(value, "the file wants to run ", value.text,
       ", which is refused: save a state_dict() of tensors, or choose those beside it by {.keep} or {.prefix}");
}

}  // namespace reel::io
