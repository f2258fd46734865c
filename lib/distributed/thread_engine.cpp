#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lib/base/lazy.h"
#include "lib/distributed/engine.h"
#include "lib/distributed/mailbox.h"

namespace reel::distributed {
namespace {

enum Collective { kAllReduce, kBroadcast, kAllGather, kAllToAll, kBarrier };

/// Where the ranks meet for one collective.
struct Meeting {
  explicit Meeting(int size) : in(static_cast<size_t>(size)), in_bytes(static_cast<size_t>(size)) {}
  int arrived = 0;  // in all stages: stage k is over when it is k times the ranks
  int readers = 0;  // ranks that read what others have shown
  int left = 0;
  std::vector<const void*> in;
  std::vector<std::span<const size_t>> in_bytes;
  std::unique_ptr<char[]> result;
};

struct Sending;
struct Envelope {
  Header header;
  Sending* sending;
};

/// A message between threads; mutex_ of the hub, as Receiving is.
struct Sending {
  const void* data;
  bool over = false;
};

/// What the threads of a group share.
class Hub {
 public:
  explicit Hub(int size_) : size(size_), mail_(static_cast<size_t>(size_)) {}
  const int size;

  std::shared_ptr<Meeting> enter(Tag tag, Collective kind) {
    const std::lock_guard lock(mutex_);
    check();
    auto& meeting = meetings_[{tag, kind}];
    if (!meeting) meeting = std::make_shared<Meeting>(size);
    return meeting;
  }

  /// Waits until all ranks have come so far; with `show` first, without anybody else.
  void sync(Meeting& meeting, int stage, const std::function<void()>& show = {}) {
    std::unique_lock lock(mutex_);
    check();
    if (show) show();
    ++meeting.arrived;
    changed_.notify_all();
    changed_.wait(lock, [&] { return meeting.arrived >= stage * size || aborted_; });
    if (meeting.arrived >= stage * size) return;
    // What this rank has shown is its caller's memory.
    changed_.wait(lock, [&] { return meeting.readers == 0; });
    check();
  }

  /// Runs f, which reads what other ranks have shown: none of them leaves meanwhile.
  template <class F>
  void read(Meeting& meeting, const F& f) {
    {
      const std::lock_guard lock(mutex_);
      check();
      ++meeting.readers;
    }
    f();
    const std::lock_guard lock(mutex_);
    --meeting.readers;
    changed_.notify_all();
  }

  void leave(Meeting& meeting, Tag tag, Collective kind) {
    const std::lock_guard lock(mutex_);
    if (++meeting.left == size) meetings_.erase({tag, kind});
  }

  void send(int from, int to, const Envelope& envelope) {
    const std::lock_guard lock(mutex_);
    check();
    if (Receiving* const receiving = mail_[static_cast<size_t>(to)].arrive(from, envelope))
      deliver(*receiving, from, envelope);
  }
  void recv(int rank, Receiving* receiving) {
    const std::lock_guard lock(mutex_);
    check();
    mail_[static_cast<size_t>(rank)].wait_for(
        receiving, [&](int from, const Envelope& envelope) { deliver(*receiving, from, envelope); });
  }
  template <class Over>
  void wait(const Over& over) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over() || aborted_; });
    if (!over()) check();
  }
  template <class Over>
  bool done(const Over& over) {
    const std::lock_guard lock(mutex_);
    return over() || aborted_;
  }
  void forget(int rank, Receiving* receiving) {
    const std::lock_guard lock(mutex_);
    mail_[static_cast<size_t>(rank)].forget(receiving);
  }
  void forget(int to, Sending* sending) {
    const std::lock_guard lock(mutex_);
    mail_[static_cast<size_t>(to)].forget_if([&](const Envelope& envelope) { return envelope.sending == sending; });
  }

  void abort() noexcept {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  void check() const {
    if (aborted_) throw std::runtime_error("the group has ended");
  }

  void deliver(Receiving& receiving, int from, const Envelope& envelope) {
    if (envelope.header.bytes != receiving.bytes || envelope.header.dtype != receiving.dtype)
      receiving.error = wrong_message(from, envelope.header, receiving.bytes, receiving.dtype);
    else if (receiving.bytes)
      std::memcpy(receiving.data, envelope.sending->data, receiving.bytes);
    receiving.sender = from;
    envelope.sending->over = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Tag, Collective>, std::shared_ptr<Meeting>> meetings_;
  std::vector<Mailbox<Envelope>> mail_;  // of each rank
  bool aborted_ = false;
};

/// The hubs of all groups, by number: rank 0 makes one, the others find it.
class Hubs {
 public:
  static Hubs& of_process() {
    static constinit Lazy<Hubs> hubs;
    return hubs.get();
  }
  std::string add(const std::shared_ptr<Hub>& hub) {
    const std::lock_guard lock(mutex_);
    std::erase_if(hubs_, [](const auto& entry) { return entry.second.expired(); });
    const std::string name = std::to_string(++last_);
    hubs_.emplace(name, hub);
    return name;
  }
  std::shared_ptr<Hub> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = hubs_.find(name);
    return found == hubs_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Hub>> hubs_;
  int64_t last_ = 0;
};

class ThreadMessage : public Message {
 public:
  // Of a send.
  ThreadMessage(std::shared_ptr<Hub> hub, int from, int to, const Header& header, const void* data)
      : hub_(std::move(hub)), rank_(to), sends_(true), sending_{data} {
    hub_->send(from, to, {header, &sending_});
  }
  // Of a receipt.
  ThreadMessage(std::shared_ptr<Hub> hub, int rank, Receiving receiving)
      : hub_(std::move(hub)), rank_(rank), sends_(false), receiving_(std::move(receiving)) {
    hub_->recv(rank, &receiving_);
  }
  ~ThreadMessage() override {
    if (sends_)
      hub_->forget(rank_, &sending_);
    else
      hub_->forget(rank_, &receiving_);
  }
  ThreadMessage(const ThreadMessage&) = delete;
  ThreadMessage& operator=(const ThreadMessage&) = delete;

  int wait() override {
    hub_->wait([&] { return over(); });
    if (sends_) return rank_;
    if (receiving_.error) throw Error(*receiving_.error);
    return receiving_.sender;
  }
  bool done() override {
    return hub_->done([&] { return over(); });
  }

 private:
  bool over() const { return sends_ ? sending_.over : receiving_.sender >= 0; }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
  const bool sends_;
  Sending sending_{};
  Receiving receiving_{};
};

class ThreadEngine : public Engine {
 public:
  ThreadEngine(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~ThreadEngine() override { hub_->abort(); }  // who still waits would wait for ever
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  void all_reduce(Tag tag, void* data, int64_t count, DType dtype, ReduceOp op) override {
    const auto meeting = hub_->enter(tag, kAllReduce);
    const int64_t size = size_of(dtype);
    hub_->sync(*meeting, 1, [&] {
      show(*meeting, data);
      if (!meeting->result) meeting->result.reset(new char[static_cast<size_t>(count * size)]);
    });
    // Each rank reduces a part for all.
    const int64_t begin = count * rank_ / hub_->size, end = count * (rank_ + 1) / hub_->size;
    hub_->read(*meeting, [&] {
      std::vector<const void*> parts(meeting->in);
      for (const void*& part : parts) part = static_cast<const char*>(part) + begin * size;
      reduce_parts(parts, end - begin, dtype, op, meeting->result.get() + begin * size);
    });
    hub_->sync(*meeting, 2);
    if (count) std::memcpy(data, meeting->result.get(), static_cast<size_t>(count * size));
    hub_->leave(*meeting, tag, kAllReduce);
  }

  void broadcast(Tag tag, void* data, size_t bytes, int root) override {
    exchange(tag, kBroadcast, data, {}, [&](const Meeting& meeting) {
      if (rank_ != root && bytes) std::memcpy(data, meeting.in[static_cast<size_t>(root)], bytes);
    });
  }

  void all_gather(Tag tag, const void* in, void* out, std::span<const size_t> bytes) override {
    exchange(tag, kAllGather, in, {}, [&](const Meeting& meeting) {
      char* to = static_cast<char*>(out);
      for (size_t r = 0; r < bytes.size(); to += bytes[r++])
        if (bytes[r] && meeting.in[r] != to) std::memcpy(to, meeting.in[r], bytes[r]);
    });
  }

  void all_to_all(Tag tag, const void* in, std::span<const size_t> in_bytes, void* out,
                  std::span<const size_t> out_bytes) override {
    exchange(tag, kAllToAll, in, in_bytes, [&](const Meeting& meeting) {
      char* to = static_cast<char*>(out);
      for (size_t r = 0; r < out_bytes.size(); to += out_bytes[r++]) {
        const std::span<const size_t> parts = meeting.in_bytes[r].first(static_cast<size_t>(rank_));
        const size_t offset = std::accumulate(parts.begin(), parts.end(), size_t{0});
        if (out_bytes[r]) std::memcpy(to, static_cast<const char*>(meeting.in[r]) + offset, out_bytes[r]);
      }
    });
  }

  void barrier(Tag tag) override {
    const auto meeting = hub_->enter(tag, kBarrier);
    hub_->sync(*meeting, 1);
    hub_->leave(*meeting, tag, kBarrier);
  }

  std::unique_ptr<Message> send(int to, int tag, const void* data, size_t bytes, DType dtype) override {
    return std::make_unique<ThreadMessage>(hub_, rank_, to, Header{tag, dtype, bytes, 0}, data);
  }
  std::unique_ptr<Message> recv(std::span<const int> from, int tag, void* data, size_t bytes, DType dtype) override {
    return std::make_unique<ThreadMessage>(hub_, rank_, Receiving{{from.begin(), from.end()}, tag, data, bytes, dtype});
  }

  void abort() noexcept override { hub_->abort(); }

 private:
  void show(Meeting& meeting, const void* in, std::span<const size_t> in_bytes = {}) const {
    meeting.in[static_cast<size_t>(rank_)] = in;
    meeting.in_bytes[static_cast<size_t>(rank_)] = in_bytes;
  }

  /// Shows `in` to all, takes from what all have shown, and leaves when all have taken.
  template <class Take>
  void exchange(Tag tag, Collective kind, const void* in, std::span<const size_t> in_bytes, const Take& take) {
    const auto meeting = hub_->enter(tag, kind);
    hub_->sync(*meeting, 1, [&] { show(*meeting, in, in_bytes); });
    hub_->read(*meeting, [&] { take(*meeting); });
    hub_->sync(*meeting, 2);
    hub_->leave(*meeting, tag, kind);
  }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::unique_ptr<Engine> make_thread_engine(std::shared_ptr<Store> store, int rank, int size, Milliseconds timeout) {
  std::shared_ptr<Hub> hub;
  if (rank == 0) {
    hub = std::make_shared<Hub>(size);
    store->set("hub", Hubs::of_process().add(hub));
  } else {
    hub = Hubs::of_process().find(store->get("hub", timeout));
    REEL_CHECK(hub, "the ranks of a group of threads must be threads of one process");
  }
  auto engine = std::make_unique<ThreadEngine>(hub, rank);
  // Nobody leaves before all have found it.
  if (store->add("found", 1) == size) store->set("complete", "");
  store->get("complete", timeout);
  return engine;
}

}  // namespace reel::distributed
