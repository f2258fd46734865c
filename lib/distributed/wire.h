#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reel/distributed/store.h"

// Messages between the store's server and its clients. A frame is the length of what follows (4 bytes), what it is
// (1 byte), the number of the request that it belongs to (4 bytes), then fields. Numbers are little-endian; a string is
// its length (4 bytes) and its bytes.
namespace reel::distributed::wire {

enum class Op : uint8_t {
  // From a client. kHello begins with magic, protocol, token, run id and generation in all versions of the protocol, so
  // that others can be told apart from strangers.
  kHello = 1,
  kBeat,        // activity
  kBye,         // activity
  kAbort,       // error; also from the server
  kSet,         // key, value
  kGet,         // key, milliseconds
  kWait,        // milliseconds, number of keys, keys
  kAdd,         // key, amount
  kCompareSet,  // key, expected, desired
  kErase,       // key
  kActivities,
  kAddress,  // milliseconds
  // From the server.
  kWelcome = 64,  // patience in milliseconds
  kRefused,       // whether to try again (Retry), error
  kPulse,         // rank in whose process the server is, or -1
  kProbe,         // is to be answered with a kBeat at once
  kReply,         // status, then what was asked for or what was wrong
};

/// What a client that was refused makes of it.
enum class Retry : uint8_t {
  kNever,
  kElsewhere,  // another job's server: ours may be at another port
  kLater,      // the server's generation has not ended yet
};

enum class Status : uint8_t {
  kDone,
  kFailed,     // distributed::Error
  kWrongCall,  // reel::Error
};

constexpr uint32_t kMagic = 0x6c656572;  // "reel"
constexpr uint32_t kProtocol = 1;
constexpr size_t kMaxKey = 4096, kMaxValue = size_t{16} << 20;
constexpr size_t kMaxKeys = size_t{1} << 17;                 // of a wait
constexpr size_t kMaxHello = 256;                            // a frame's length before the sender is known
constexpr size_t kMaxFrame = kMaxKey + 2 * kMaxValue + 256;  // and afterwards
constexpr size_t kMaxActivity = 120, kMaxRunId = 100, kMaxHost = 40, kMaxMessage = size_t{64} << 10;
constexpr size_t kTokenBytes = 16;
constexpr int kMaxWorld = 1 << 16;

/// What the other side sent is no message of ours.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  explicit Writer(Op op, uint32_t id = 0);
  Writer& u8(uint8_t value);
  Writer& u32(uint32_t value);
  Writer& u64(uint64_t value);
  Writer& i32(int32_t value) { return u32(static_cast<uint32_t>(value)); }
  Writer& i64(int64_t value) { return u64(static_cast<uint64_t>(value)); }
  Writer& bytes(std::string_view value);  // without their length
  Writer& string(std::string_view value);
  Writer& error(const Error& error);
  /// The frame so far, as if `more` bytes followed.
  std::string finish(size_t more = 0);

 private:
  std::string text_;
};

/// Sets a finished frame's request.
void set_id(std::string& frame, uint32_t id);

/// Takes a frame apart; throws Malformed where it ends too early, or late.
class Reader {
 public:
  explicit Reader(std::string_view frame) : rest_(frame) {}
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  int32_t i32() { return static_cast<int32_t>(u32()); }
  int64_t i64() { return static_cast<int64_t>(u64()); }
  std::string_view bytes(size_t count);
  std::string_view string(size_t most);
  Error error();
  std::string_view rest() const { return rest_; }
  void end() const;

 private:
  std::string_view rest_;
};

/// Bytes that have come, as frames.
class FrameBuffer {
 public:
  void append(std::string_view bytes);
  /// The next frame without its length, until the next call of either; nothing while it has not come whole. Throws
  /// Malformed if it is longer than `most`.
  std::optional<std::string_view> next(size_t most);
  size_t size() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

/// What a client says first.
struct Hello {
  uint32_t protocol = kProtocol;
  std::string token;  // kTokenBytes
  std::string run_id;
  int generation = 0;
  // The rest is of this protocol only.
  std::string version;
  int rank = 0, world_size = 1;
  uint64_t process = 0;  // a random number of the process
  uint32_t pid = 0;
  std::string host;

  std::string frame() const;
  /// Of a frame's fields. Those that another protocol has elsewhere are left out.
  static Hello read(Reader& fields);
};

/// The bytes of 32 hex digits, zeros for "". An Error for anything else.
std::string parse_token(const std::string& digits);
/// The run id, or for a long one its beginning and a hash.
std::string short_run_id(const std::string& run_id);
/// A random number that no other process has.
uint64_t process_number();

/// Until a silent rank, or server, is lost: the heartbeat and a little for the network's and the scheduler's delays.
Milliseconds patience_of(Milliseconds heartbeat);
/// Between signs of life.
Milliseconds beat_of(Milliseconds patience);

}  // namespace reel::distributed::wire
