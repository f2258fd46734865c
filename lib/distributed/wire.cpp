#include "lib/distributed/wire.h"
#include "lib/base/lazy.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <utility>

namespace reel::distributed::wire {

// ---- writing --------------------------------------------------------------------------------------------------------

namespace {
constexpr size_t kLength = 4, kHeader = 9;

void put32(char* to, uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<char>(value >> 8 * i);
}
}  // namespace

Writer::Writer(Op op, uint32_t id) : text_(kLength, '\0') { u8(static_cast<uint8_t>(op)).u32(id); }

Writer& Writer::u8(uint8_t value) {
  text_.push_back(static_cast<char>(value));
  return *this;
}
Writer& Writer::u32(uint32_t value) {
  char bytes[4];
  put32(bytes, value);
  text_.append(bytes, sizeof bytes);
  return *this;
}
Writer& Writer::u64(uint64_t value) {
  return u32(static_cast<uint32_t>(value)).u32(static_cast<uint32_t>(value >> 32));
}
Writer& Writer::bytes(std::string_view value) {
  text_.append(value);
  return *this;
}
Writer& Writer::string(std::string_view value) { return u32(static_cast<uint32_t>(value.size())).bytes(value); }

Writer& Writer::error(const Error& error) {
  u8(static_cast<uint8_t>(error.kind)).u64(error.sequence);
  const size_t ranks = std::min<size_t>(error.ranks.size(), kMaxWorld);
  u32(static_cast<uint32_t>(ranks));
  for (size_t i = 0; i < ranks; ++i) i32(error.ranks[i]);
  return string(std::string_view(error.what()).substr(0, kMaxMessage));
}

std::string Writer::finish(size_t more) {
  put32(text_.data(), static_cast<uint32_t>(text_.size() - kLength + more));
  return std::move(text_);
}

void set_id(std::string& frame, uint32_t id) { put32(frame.data() + kLength + 1, id); }

// ---- reading --------------------------------------------------------------------------------------------------------

std::string_view Reader::bytes(size_t count) {
  if (count > rest_.size()) throw Malformed("a message ends too early");
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

uint8_t Reader::u8() { return static_cast<uint8_t>(bytes(1)[0]); }
uint32_t Reader::u32() {
  uint32_t value = 0;
  const std::string_view taken = bytes(4);
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(taken[i])} << 8 * i;
  return value;
}
uint64_t Reader::u64() {
  const uint64_t low = u32();
  return low | uint64_t{u32()} << 32;
}

std::string_view Reader::string(size_t most) {
  const uint32_t length = u32();
  if (length > most) throw Malformed("a message has a text that is too long");
  return bytes(length);
}

Error Reader::error() {
  const uint8_t kind = u8();
  if (kind > Error::kAborted) throw Malformed("a message has an error of no known kind");
  const uint64_t sequence = u64();
  const uint32_t count = u32();
  if (count > kMaxWorld || count > rest_.size() / 4) throw Malformed("a message has too many ranks");
  std::vector<int> ranks(count);
  for (int& rank : ranks) rank = i32();
  return Error(static_cast<Error::Kind>(kind), std::string(string(kMaxMessage)), std::move(ranks), sequence);
}

void Reader::end() const {
  if (!rest_.empty()) throw Malformed("a message is too long");
}

void FrameBuffer::append(std::string_view bytes) {
  if (begin_ == bytes_.size()) bytes_.clear(), begin_ = 0;
  if (begin_ > bytes_.size() / 2) bytes_.erase(0, std::exchange(begin_, 0));
  bytes_.append(bytes);
}

std::optional<std::string_view> FrameBuffer::next(size_t most) {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kLength) {
    // A large message's memory is not kept by a connection that rests.
    if (rest.empty() && bytes_.capacity() > size_t{1} << 20) std::string().swap(bytes_), begin_ = 0;
    return {};
  }
  const size_t length = Reader(rest).u32();
  if (length > most || length < kHeader - kLength) throw Malformed("its length is impossible");
  if (rest.size() - kLength < length) return {};
  begin_ += kLength + length;
  return rest.substr(kLength, length);
}

// ---- who it is ------------------------------------------------------------------------------------------------------

std::string Hello::frame() const {
  Writer writer(Op::kHello);
  writer.u32(kMagic).u32(protocol).bytes(token).string(run_id).i32(generation);
  writer.string(version).i32(rank).i32(world_size).u64(process).u32(pid).string(host);
  return writer.finish();
}

Hello Hello::read(Reader& fields) {
  Hello hello;
  if (fields.u32() != kMagic) throw Malformed("what it sent is no message of a store");
  hello.protocol = fields.u32();
  hello.token = fields.bytes(kTokenBytes);
  hello.run_id = fields.string(kMaxRunId);
  hello.generation = fields.i32();
  if (hello.protocol != kProtocol) return hello;
  hello.version = fields.string(kMaxHello);
  hello.rank = fields.i32();
  hello.world_size = fields.i32();
  hello.process = fields.u64();
  hello.pid = fields.u32();
  hello.host = fields.string(kMaxHost);
  fields.end();
  return hello;
}

std::string parse_token(const std::string& digits) {
  std::string token(kTokenBytes, '\0');
  if (digits.empty()) return token;
  const auto value = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  const bool good = digits.size() == 2 * kTokenBytes &&
                    std::all_of(digits.begin(), digits.end(), [&](char c) { return value(c) >= 0; });
  REEL_CHECK(good, "store: the token is no 32 hex digits, such as \"openssl rand -hex 16\" makes (it has ",
             digits.size(), " characters)");
  for (size_t i = 0; i < kTokenBytes; ++i)
    token[i] = static_cast<char>(value(digits[2 * i]) << 4 | value(digits[2 * i + 1]));
  return token;
}

std::string short_run_id(const std::string& run_id) {
  if (run_id.size() <= kMaxRunId) return run_id;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the same on all machines
  for (const char c : run_id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return run_id.substr(0, kMaxRunId - 21) + "#" + std::to_string(hash);
}

uint64_t process_number() {
  static constinit Lazy<uint64_t> number;
  return number.get([] {
    std::random_device random;
    return uint64_t{random()} << 32 ^ random() ^ static_cast<uint64_t>(::getpid());
  });
}

Milliseconds patience_of(Milliseconds heartbeat) { return heartbeat + std::min(heartbeat / 4, Milliseconds(500)); }
Milliseconds beat_of(Milliseconds patience) { return std::max(patience / 3, Milliseconds(1)); }

}  // namespace reel::distributed::wire
