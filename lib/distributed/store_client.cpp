#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <type_traits>

#include "lib/distributed/socket.h"
#include "lib/distributed/store_job.h"
#include "lib/distributed/wire.h"
#include "reel/distributed/store.h"
#include "reel/version.h"

namespace reel::distributed {
namespace {

using wire::Op, wire::Reader, wire::Retry, wire::Status, wire::Writer;

constexpr Milliseconds kSlack(2000);    // for an answer that the server times
constexpr Milliseconds kGoodbye(1000);  // for the server to have heard a goodbye, or to answer an abort
constexpr Milliseconds kLongest(int64_t{1} << 40);

// A call whose answer is awaited.
struct Pending {
  std::condition_variable changed;
  bool done = false;
  std::string answer;  // of the fields
};

class TcpMember final : public Member {
 public:
  TcpMember(int rank, const StoreOptions& options, Descriptor socket, wire::FrameBuffer in, Milliseconds patience)
      : rank_(rank),
        world_size_(options.world_size),
        patience_(patience),
        beat_(wire::beat_of(patience)),
        where_(remote_end(socket).host() + ":" + std::to_string(remote_end(socket).port())),
        exceptions_(std::uncaught_exceptions()),
        socket_(std::move(socket)),
        in_(std::move(in)),
        heard_(Clock::now()) {
    sent_ = heard_;
    thread_ = start_thread("reel-member", [this] { run(); });
  }

  ~TcpMember() override {
    if (std::uncaught_exceptions() <= exceptions_)
      leave();
    else
      abort_by_exception();
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  TcpMember(const TcpMember&) = delete;
  TcpMember& operator=(const TcpMember&) = delete;

  // ---- keys ---------------------------------------------------------------------------------------------------------

  void set(std::string_view key, std::string_view value) override {
    check_key(key);
    check_value(key, value);
    call(Writer(Op::kSet).string(key).string(value).finish());
  }

  std::string get(std::string_view key, Milliseconds timeout) override {
    check_key(key);
    timeout = limited(timeout);
    const std::string answer = call(Writer(Op::kGet).string(key).i64(timeout.count()).finish(), timeout);
    return std::string(fields(answer, [](Reader& r) { return r.string(wire::kMaxValue); }));
  }

  int64_t add(std::string_view key, int64_t amount) override {
    check_key(key);
    const std::string answer = call(Writer(Op::kAdd).string(key).i64(amount).finish());
    return fields(answer, [](Reader& r) { return r.i64(); });
  }

  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    check_key(key);
    check_value(key, expected);
    check_value(key, desired);
    const std::string answer = call(Writer(Op::kCompareSet).string(key).string(expected).string(desired).finish());
    return std::string(fields(answer, [](Reader& r) { return r.string(wire::kMaxValue); }));
  }

  void wait(std::span<const std::string> keys, Milliseconds timeout) override {
    timeout = limited(timeout);
    Writer request(Op::kWait);
    request.i64(timeout.count()).u32(static_cast<uint32_t>(keys.size()));
    size_t size = 0;
    for (const std::string& key : keys) {
      check_key(key);
      size += key.size();
      request.string(key);
    }
    REEL_CHECK(keys.size() <= wire::kMaxKeys, "store: waits for ", keys.size(), " keys at once, more than ",
               wire::kMaxKeys);
    REEL_CHECK(size <= wire::kMaxValue, "store: waits for keys of ", size, " bytes at once, more than ",
               wire::kMaxValue);
    call(request.finish(), timeout);
  }

  bool erase(std::string_view key) override {
    check_key(key);
    const std::string answer = call(Writer(Op::kErase).string(key).finish());
    return fields(answer, [](Reader& r) { return r.u8(); }) != 0;
  }

  // ---- the job ------------------------------------------------------------------------------------------------------

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  void set_activity(std::string_view what) override {
    const std::lock_guard lock(activity_mutex_);
    activity_size_ = std::min(what.size(), sizeof activity_);
    std::memcpy(activity_, what.data(), activity_size_);
  }

  std::vector<Activity> activities() override {
    send(Writer(Op::kBeat).string(activity()).finish(), patience_);  // this rank's own
    const std::string answer = call(Writer(Op::kActivities).finish());
    return fields(answer, [](Reader& r) {
      const uint32_t count = r.u32();
      if (count > wire::kMaxWorld) throw wire::Malformed("too many ranks");
      std::vector<Activity> all;
      for (uint32_t rank = 0; rank < count; ++rank) {
        std::string what(r.string(2 * wire::kMaxActivity));
        all.push_back({static_cast<int>(rank), std::move(what), Milliseconds(r.i64())});
      }
      return all;
    });
  }

  void abort(const Error& reason) noexcept override {
    try {
      std::unique_lock lock(mutex_);
      if (ended_ || left_) return;
      lock.unlock();
      send(Writer(Op::kAbort).error(reason).finish(), kGoodbye);
      lock.lock();
      // The server says which reason was the first.
      changed_.wait_for(lock, kGoodbye, [&] { return ended_ || left_; });
      lock.unlock();
      end(reason);
    } catch (const std::exception&) {  // no memory: the others notice that the connection ends
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
  }

  std::optional<Error> aborted() const override {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  int64_t on_abort(std::function<void(const Error&)> f) override {
    std::unique_lock lock(mutex_);
    const int64_t id = ++last_callback_;
    if (!ended_) {
      callbacks_.emplace(id, std::move(f));
      return id;
    }
    const Error reason = *ended_;
    lock.unlock();
    f(reason);
    return id;
  }

  void forget_abort(int64_t id) noexcept override {
    std::unique_lock lock(mutex_);
    callbacks_.erase(id);
    changed_.wait(lock, [&] { return running_ != id; });
  }

  void leave() noexcept override {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (ended_ || left_) return;
        left_ = true;
        wake_all();
      }
      send(Writer(Op::kBye).string(activity()).finish(), kGoodbye);
    } catch (const std::exception&) {  // no memory: it looks like a death
    }
    ::shutdown(socket_.get(), SHUT_WR);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kGoodbye, [&] { return deaf_; });  // the server closes its end once it has read that
  }

  /// Of this end, or how ranks on other machines see this one.
  std::string address(Milliseconds timeout) const {
    timeout = limited(timeout);
    const Address own = local_end(socket_);
    if (own.size == 0) call(Writer(Op::kActivities).finish());  // throws why there is no connection
    if (!own.is_loopback()) return own.host();
    const std::string answer = call(Writer(Op::kAddress).i64(timeout.count()).finish(), timeout);
    const std::string reached(fields(answer, [](Reader& r) { return r.string(wire::kMaxHello); }));
    return reached.empty() ? own.host() : reached;
  }

 private:
  static Milliseconds limited(Milliseconds timeout) { return std::clamp(timeout, Milliseconds(0), kLongest); }
  static void check_key(std::string_view key) {
    REEL_CHECK(key.size() <= wire::kMaxKey, "store: a key of ", key.size(), " bytes, more than ", wire::kMaxKey);
  }
  static void check_value(std::string_view key, std::string_view value) {
    REEL_CHECK(value.size() <= wire::kMaxValue, "store: the value of \"", key, "\" has ", value.size(),
               " bytes, more than ", wire::kMaxValue);
  }

  std::string activity() const {
    const std::lock_guard lock(activity_mutex_);
    return {activity_, activity_size_};
  }

  /// What read() makes of an answer's fields after the status.
  template <class Read>
  std::invoke_result_t<const Read&, Reader&> fields(const std::string& answer, const Read& read) const {
    try {
      Reader reader(answer);
      reader.u8();
      return read(reader);
    } catch (const wire::Malformed& error) {
      throw Error(Error::kStoreLost, "store: the server at " + where_ + " sent no answer: " + error.what());
    }
  }

  void throw_if_over() const {
    if (ended_) throw Error(*ended_);
    if (left_) throw Error(Error::kAborted, "store: rank " + std::to_string(rank_) + " has left the job", {rank_});
    if (deaf_) throw Error(Error::kStoreLost, "store: the connection to " + where_ + " is lost");  // no memory for why
  }

  /// Sends a request and waits for its answer, which a server that is alive gives within `time`.
  std::string call(std::string frame, Milliseconds time = {}) const {
    Pending pending;
    struct Entry {
      const TcpMember& member;
      uint32_t id = 0;
      ~Entry() {
        const std::lock_guard lock(member.mutex_);
        member.pending_.erase(id);
      }
    } entry{*this};
    {
      const std::lock_guard lock(mutex_);
      throw_if_over();
      entry.id = ++last_id_;
      pending_[entry.id] = &pending;
    }
    wire::set_id(frame, entry.id);
    send(frame, patience_);
    std::unique_lock lock(mutex_);
    const Milliseconds most = time > Milliseconds(0) ? time + kSlack : 2 * patience_;
    const Time deadline = Clock::now() + most;
    const bool answered =
        pending.changed.wait_until(lock, deadline, [&] { return pending.done || ended_ || left_ || deaf_; });
    if (!pending.done) throw_if_over();
    if (!answered)
      throw Error(Error::kTimeout, "store: the server at " + where_ + " has not answered within " + in_seconds(most));
    lock.unlock();
    Reader reader(pending.answer);
    try {
      const auto status = static_cast<Status>(reader.u8());
      if (status == Status::kDone) return std::move(pending.answer);
      if (status == Status::kFailed) throw reader.error();
      throw reel::Error(std::string(reader.string(wire::kMaxMessage)));
    } catch (const wire::Malformed& error) {
      throw Error(Error::kStoreLost, "store: the server at " + where_ + " sent no answer: " + error.what());
    }
  }

  /// Sends all of it, after what could not be sent before. Gives the connection up if nothing can be sent for `most`.
  void send(std::string_view frame, Milliseconds most) const {
    const std::lock_guard lock(send_mutex_);
    send_locked(frame, most);
  }
  void send_locked(std::string_view frame, Milliseconds most) const {
    const auto push = [&](std::string_view& text) {
      while (!text.empty()) {
        const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
        if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
        if (sent > 0 || (sent < 0 && errno == EINTR)) continue;
        if (errno != EAGAIN || most == Milliseconds(0) || !wait_for(socket_, POLLOUT, Clock::now() + most))
          return false;
      }
      return true;
    };
    std::string_view before = unsent_;
    const bool clear = push(before);
    unsent_.erase(0, unsent_.size() - before.size());
    const size_t size = frame.size();
    if (clear && push(frame)) return sent_.store(Clock::now());
    if (most > Milliseconds(0)) {
      ::shutdown(socket_.get(), SHUT_RDWR);  // the thread notices
    } else if (frame.size() < size) {
      unsent_ += frame;  // of a sign of life that has begun
    }
  }

  // ---- the thread ---------------------------------------------------------------------------------------------------

  void run() noexcept {
    try {
      try {
        listen();
      } catch (const std::exception& error) {
        lose("the connection to " + server() + " is lost: " + error.what());
      }
    } catch (const std::exception&) {  // no memory for the reason: deaf_ says that there is one
    }
    std::unique_lock lock(mutex_);
    deaf_ = true;
    wake_all();
    while (ended_ && !callbacks_.empty()) {
      const auto next = callbacks_.extract(callbacks_.begin());
      running_ = next.key();
      const Error& reason = *ended_;  // it is set once
      lock.unlock();
      try {
        next.mapped()(reason);
      } catch (...) {  // it must not throw; there is nobody to tell
      }
      lock.lock();
      running_ = 0;
      changed_.notify_all();
    }
  }

  void listen() {
    std::vector<char> buffer(size_t{64} << 10);
    while (take_frames()) {
      // The server's pulse wakes this thread anyway; its own clock is for when that does not come.
      Time now = Clock::now();
      if (now - sent_.load() >= beat_ * 3 / 4) beat();
      const Time next = std::min(sent_.load() + beat_ * 5 / 4, heard_ + patience_);
      const bool ready = wait_for(socket_, POLLIN, std::max(next, now + Milliseconds(1)));
      now = Clock::now();
      // This process itself may have been stopped: then the server's word is to come first.
      if (now > next + beat_) heard_ = std::max(heard_, now - patience_ + 2 * beat_);
      if (!ready) {
        if (now - heard_ >= patience_) return give_up();
        continue;
      }
      const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (got > 0) {
        in_.append({buffer.data(), static_cast<size_t>(got)});
        heard_ = Clock::now();
      } else if (got == 0) {
        return lose("the connection to " + server() + " was closed");
      } else if (errno != EINTR && errno != EAGAIN) {
        return lose("the connection to " + server() + " broke (" + std::strerror(errno) + ")");
      }
    }
  }

  /// Whether the connection is still needed.
  bool take_frames() {
    while (const std::optional<std::string_view> frame = in_.next(wire::kMaxFrame)) {
      Reader fields(*frame);
      const Op op = static_cast<Op>(fields.u8());
      const uint32_t id = fields.u32();
      if (op == Op::kReply) {
        const std::lock_guard lock(mutex_);
        const auto found = pending_.find(id);
        if (found == pending_.end()) continue;  // it came too late
        found->second->answer = fields.rest();
        found->second->done = true;
        found->second->changed.notify_one();
      } else if (op == Op::kAbort) {
        Error reason = fields.error();
        const bool me = reason.kind == Error::kPeerLost &&
                        std::find(reason.ranks.begin(), reason.ranks.end(), rank_) != reason.ranks.end();
        end(me ? Error(reason.kind,
                       "this process, rank " + std::to_string(rank_) + ", was expelled from the job: " + reason.what(),
                       reason.ranks, reason.sequence)
               : reason);
        return false;
      } else if (op == Op::kPulse) {
        host_rank_ = fields.i32();
      } else if (op == Op::kProbe) {
        beat();
      }
    }
    return true;
  }

  void beat() {
    sent_ = Clock::now();  // also if there is no room for it
    const std::unique_lock lock(send_mutex_, std::try_to_lock);
    if (lock) send_locked(Writer(Op::kBeat).string(activity()).finish(), Milliseconds(0));
    // Otherwise other bytes are on their way.
  }

  std::string server() const {
    const std::string host = host_rank_ < 0 ? "" : "rank " + std::to_string(host_rank_) + ", which hosts ";
    return host + "the store at " + where_;
  }

  void lose(const std::string& what) {
    const int host = host_rank_;
    end(Error(Error::kStoreLost, what + (host < 0 ? "" : ": it died"),
              host < 0 ? std::vector<int>{} : std::vector<int>{host}));
  }

  void give_up() {
    const int host = host_rank_;
    const std::string silence = " has not been heard of for " + in_seconds(Clock::now() - heard_);
    const std::vector<int> ranks = host < 0 ? std::vector<int>{} : std::vector<int>{host};
    // If it was only stopped, it learns that the job has gone on without it.
    const Error reason(Error::kStoreLost, server() + silence + ", so rank " + std::to_string(rank_) + " gave up",
                       ranks);
    send(Writer(Op::kAbort).error(reason).finish(), Milliseconds(0));
    end(Error(Error::kStoreLost, server() + silence + ": it was stopped, or one of the machines is cut off", ranks));
    ::shutdown(socket_.get(), SHUT_RDWR);
  }

  /// The first reason is kept.
  void end(const Error& reason) {
    const std::lock_guard lock(mutex_);
    if (ended_ || left_) return;
    ended_.emplace(reason);
    wake_all();
  }

  void wake_all() const {
    for (const auto& [id, pending] : pending_) pending->changed.notify_one();
    changed_.notify_all();
  }

  void abort_by_exception() noexcept {
    try {
      abort(Error(Error::kAborted, "rank " + std::to_string(rank_) + " was ended by an exception", {rank_}));
    } catch (const std::exception&) {
    }
  }

  const int rank_, world_size_;
  const Milliseconds patience_, beat_;
  const std::string where_;
  const int exceptions_;
  const Descriptor socket_;

  mutable std::mutex send_mutex_;
  mutable std::string unsent_;  // by send_mutex_
  mutable std::atomic<Time> sent_{Time()};

  mutable std::mutex activity_mutex_;
  char activity_[wire::kMaxActivity];  // by activity_mutex_
  size_t activity_size_ = 0;

  wire::FrameBuffer in_;  // of the thread, as the next two
  Time heard_;
  int host_rank_ = -1;

  mutable std::mutex mutex_;  // guards the rest
  mutable std::condition_variable changed_;
  mutable std::map<uint32_t, Pending*> pending_;
  mutable uint32_t last_id_ = 0;
  std::optional<Error> ended_;
  bool left_ = false;
  bool deaf_ = false;  // the thread does not read any more
  std::map<int64_t, std::function<void(const Error&)>> callbacks_;
  int64_t last_callback_ = 0, running_ = 0;

  std::thread thread_;
};

// ---- connecting -----------------------------------------------------------------------------------------------------

/// Refused for good.
struct Refused {
  Retry retry;
  Error error;
};

/// One try at one address. Throws Refused; otherwise nothing, and why.
std::shared_ptr<Member> try_connect(int rank, const StoreOptions& options, const std::string& hello,
                                    const Address& address, Time deadline, std::string& why) {
  // A server takes a rank that has said hello and goes away for dead: patience with answers is what is cheap.
  const Milliseconds connecting(options.ports > 1 ? 1000 : 3000), answering(5000);
  std::string failure;
  const Time connected = std::min(deadline, Clock::now() + connecting);
  Descriptor socket = connect_to(address, connected, failure);
  if (!socket) {
    // What was wrong before says more than that there is no time left.
    if (connected < deadline || why.empty()) why = failure;
    return nullptr;
  }
  const ssize_t sent = ::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL);  // always fits
  const Time limit = std::min(deadline, Clock::now() + answering);
  wire::FrameBuffer in;
  std::array<char, 4096> buffer;
  while (sent == static_cast<ssize_t>(hello.size())) {
    if (!wait_for(socket, POLLIN, limit)) {
      if (limit < deadline || why.empty()) why = "whatever listens there gives no answer";
      return nullptr;
    }
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) break;
    in.append({buffer.data(), static_cast<size_t>(got)});
    try {
      const std::optional<std::string_view> frame = in.next(2 * wire::kMaxMessage + 4 * wire::kMaxWorld);
      if (!frame) continue;
      Reader fields(*frame);
      const Op op = static_cast<Op>(fields.u8());
      fields.u32();
      if (op == Op::kRefused) {
        const auto retry = static_cast<Retry>(fields.u8());
        throw Refused{retry, fields.error()};
      }
      if (op != Op::kWelcome) throw wire::Malformed("not a store");
      const Milliseconds patience(fields.u32());
      return std::make_shared<TcpMember>(rank, options, std::move(socket), std::move(in), patience);
    } catch (const wire::Malformed&) {
      why = "whatever listens there is no store of reel";
      return nullptr;
    }
  }
  why = "it closed the connection";
  return nullptr;
}

}  // namespace

std::shared_ptr<Member> connect_store(int rank, const StoreOptions& options) {
  const int world = options.world_size;
  REEL_CHECK(world >= 1 && world <= wire::kMaxWorld && rank >= 0 && rank < world, "store: rank ", rank, " of ", world);
  REEL_CHECK(options.port, "store: rank ", rank, " needs the server's port");
  wire::Hello hello;
  hello.token = wire::parse_token(options.token);
  hello.run_id = wire::short_run_id(options.run_id);
  hello.generation = options.generation;
  hello.version = version();
  hello.rank = rank;
  hello.world_size = world;
  hello.process = wire::process_number();
  hello.pid = static_cast<uint32_t>(::getpid());
  char host[wire::kMaxHost + 1] = "";
  ::gethostname(host, wire::kMaxHost);
  hello.host = host;
  const std::string greeting = hello.frame();

  const Time deadline = Clock::now() + std::clamp(options.timeout, Milliseconds(0), kLongest);
  const std::string where = options.host + ":" + std::to_string(options.port);
  std::mt19937_64 random(hello.process ^ static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15);
  std::string why;
  for (double pause = 10;; pause = std::min(pause * 1.5, 1000.0)) {
    for (Address address : resolve(options.host.empty() ? "127.0.0.1" : options.host, deadline, why))
      for (int i = 0; i < options.ports && options.port + i <= 0xffff; ++i) {
        address.set_port(static_cast<uint16_t>(options.port + i));
        try {
          if (auto member = try_connect(rank, options, greeting, address, deadline, why)) return member;
        } catch (const Refused& refused) {
          const bool final =
              refused.retry == Retry::kNever || (refused.retry == Retry::kElsewhere && options.ports == 1);
          if (final) throw refused.error;
          why = refused.error.what();
        }
      }
    // Many ranks whose server comes late should not all come at once.
    const auto rest = std::chrono::duration<double, std::milli>(deadline - Clock::now()).count();
    if (rest <= 0) break;
    const double jitter = std::uniform_real_distribution<double>(0.5, 1)(random);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(std::min(pause * jitter, rest)));
  }
  throw Error(Error::kTimeout, "store: rank " + std::to_string(rank) + " found no server at " + where + " within " +
                                   in_seconds(options.timeout) + ": " + why);
}

std::string local_address(const Member& member, Milliseconds timeout) {
  const auto* const tcp = dynamic_cast<const TcpMember*>(&member);
  return tcp ? tcp->address(timeout) : "127.0.0.1";
}

}  // namespace reel::distributed
