#include "lib/distributed/states.h"

#include <cstring>

#include "lib/distributed/buckets.h"

namespace reel::distributed {
namespace {

constexpr int64_t kMaxDims = 64;

// A number of the sender's, or the bytes of a tensor.
void append(std::string& text, const void* from, size_t size) {
  if (size) text.append(static_cast<const char*>(from), size);
}
void append(std::string& text, int64_t number) { append(text, &number, sizeof number); }

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}
  bool done() const { return left_.empty(); }
  std::string_view take(size_t size) {
    REEL_CHECK(size <= left_.size(), "join: the state of an optimizer is incomplete");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  int64_t number(int64_t most) {
    int64_t number = 0;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    REEL_CHECK(number >= 0 && number <= most, "join: the state of an optimizer has ", number, " where at most ", most,
               " is possible");
    return number;
  }
  int64_t size() { return number(static_cast<int64_t>(left_.size())); }

 private:
  std::string_view left_;
};

}  // namespace

std::string pack_state(const StateDict& dict) {
  std::string text;
  for (const auto& [name, tensor] : dict) {
    const Tensor packed = tensor.to(kCPU).contiguous();
    append(text, static_cast<int64_t>(name.size()));
    append(text, name.data(), name.size());
    append(text, static_cast<int64_t>(packed.dtype()));
    append(text, packed.dim());
    for (const int64_t n : packed.shape()) append(text, n);
    append(text, memory_of(packed), static_cast<size_t>(packed.numel() * size_of(packed.dtype())));
  }
  return text;
}

StateDict unpack_state(std::string_view text) {
  StateDict dict;
  for (Reader reader(text); !reader.done();) {
    std::string name(reader.take(static_cast<size_t>(reader.size())));
    const auto dtype = static_cast<DType>(reader.number(static_cast<int64_t>(kFloat64)));
    std::vector<int64_t> shape(static_cast<size_t>(reader.number(kMaxDims)));
    int64_t bytes = size_of(dtype);
    for (int64_t& n : shape) {
      n = reader.number(INT64_MAX);
      REEL_CHECK(!__builtin_mul_overflow(bytes, n, &bytes), "join: the state of an optimizer has ", name,
                 " with too many elements");
    }
    const std::string_view data = reader.take(static_cast<size_t>(bytes));  // before memory is asked for
    const Tensor tensor = empty(Shape(std::span<const int64_t>(shape)), {.dtype = dtype});
    if (bytes) std::memcpy(memory_of(tensor), data.data(), data.size());
    dict.emplace_back(std::move(name), tensor);
  }
  return dict;
}

void broadcast_text(Channel& channel, std::string& text, int root, int rank, const char* name) {
  uint64_t size = text.size();
  channel.wait(channel.broadcast(&size, sizeof size, root, name));
  if (rank != root) text.resize(size);
  channel.wait(channel.broadcast(text.data(), text.size(), root, name));
}

}  // namespace reel::distributed
