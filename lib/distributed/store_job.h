#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/distributed/socket.h"
#include "lib/distributed/wire.h"

namespace reel::distributed {

/// What the store's server knows of a job, and what it answers: keys, ranks, who waits for what, who is alive. It does
/// no input or output and reads no clock; one thread at a time may call it.
class StoreJob {
 public:
  /// A connection.
  struct Peer {
    uint64_t id;
    std::string from;  ///< The address of the other end.
    std::string here;  ///< Of this end, "" if the other is on this machine's loopback.
    Time opened, heard, sent;
    int rank = -1;  ///< Until it has said hello.
    wire::FrameBuffer in;
    std::deque<std::shared_ptr<const std::string>> out;  ///< Values are shared between those who asked for them.
    size_t out_begin = 0;                                ///< Bytes of the first that have been sent.
    size_t out_bytes = 0;                                ///< All that have not.
    bool closing = false;                                ///< Once its output has been sent.
    bool dirty = false;                                  ///< It is in changed().
  };

  explicit StoreJob(const StoreOptions& options);

  Peer& open(std::string from, std::string here, Time now);
  /// Takes bytes that have come from a peer.
  void receive(Peer& peer, std::string_view bytes, Time now);
  /// The connection has ended, for whatever reason.
  void closed(uint64_t id, const std::string& why, Time now);
  /// Does what is due; returns when it is to be called next.
  Time tick(Time now);
  Peer* find(uint64_t id);
  /// Peers that have output or are to be closed, since the last call.
  std::vector<uint64_t> changed() { return std::exchange(changed_, {}); }

  void restart(int generation, Time now);
  /// Ends the job: the first reason wins.
  void abort(const Error& reason, Time now);
  const std::optional<Error>& aborted() const { return aborted_; }
  /// Ranks that are connected.
  int present() const { return present_; }
  /// Those of them whose process is not the server's.
  std::vector<int> present_elsewhere() const;
  /// The lowest rank in the server's process, -1 if there is none.
  int host_rank() const { return host_rank_; }

 private:
  enum class State : uint8_t { kAbsent, kHere, kLeft };
  struct Rank {
    State state = State::kAbsent;
    uint64_t peer = 0;
    std::string name;      // "rank 2 (process 4711 on gnode7)"
    std::string activity;  // when it was last heard of
    Time beat = {};        // when that was
    Time probed = {};
    int waits = 0;
    bool is_local = false;  // of the server's process
  };
  // A request that is answered later.
  struct Waiter {
    uint64_t peer;
    uint32_t id;
    wire::Op op;
    std::vector<std::string> keys;
    size_t next;  // of keys: those before have been there
    Time since, deadline;
    Milliseconds timeout;
    int missing;  // of kActivities: ranks that have not answered
  };

  void greet(Peer& peer, wire::Reader& fields, Time now);
  void refuse(Peer& peer, wire::Retry retry, const Error& error);
  void join(Peer& peer, const wire::Hello& hello);
  void leave(Peer& peer, std::string_view activity, Time now);
  void handle(Peer& peer, std::string_view frame, Time now);
  void beat(Rank& rank, std::string_view activity, Time now);
  void set(std::string_view key, std::string value);
  void erase(std::string_view key);
  void wait(Peer& peer, Waiter waiter);
  bool advance(uint64_t number, Waiter& waiter);
  void answer_activities(const Waiter& waiter, Time now);
  void give_up(Waiter& waiter, Time now);
  std::map<uint64_t, Waiter>::iterator forget(std::map<uint64_t, Waiter>::iterator waiter);
  void fail_orphans(Time now);
  void find_silent(Time now);
  void reset(Time now);

  void send(Peer& peer, std::string frame, std::shared_ptr<const std::string> body = {});
  void send_shared(Peer& peer, std::shared_ptr<const std::string> frame);
  void fail(Peer& peer, uint32_t id, const Error& error);
  void wrong_call(Peer& peer, uint32_t id, const std::string& message);
  void close(Peer& peer);
  std::vector<int> ranks_in(State state) const;

  const std::string token_, run_id_;
  const bool needs_token_;
  const int world_size_;
  const Milliseconds patience_, beat_;
  int generation_;
  std::optional<Error> aborted_;
  uint64_t next_peer_ = 1, next_waiter_ = 1;
  std::unordered_map<uint64_t, Peer> peers_;
  std::deque<uint64_t> strangers_;  // have not said hello; oldest first
  std::vector<uint64_t> changed_;
  std::vector<Rank> ranks_;
  int present_ = 0, left_ = 0, waiting_ranks_ = 0, host_rank_ = -1;
  std::string reached_at_;  // the server's address, as a client on another machine knows it
  std::unordered_map<std::string, std::shared_ptr<const std::string>> values_;
  size_t stored_ = 0;  // bytes of keys and values
  std::map<uint64_t, Waiter> waiters_;
  std::unordered_map<std::string, std::vector<uint64_t>> waiting_for_;
  std::set<std::pair<Time, uint64_t>> deadlines_;
  std::optional<Time> orphaned_;  // since when all that are left wait
  Time swept_ = {}, judge_after_ = {};
};

/// "0, 2, 3 and 7": of many the first ones, and how many there are.
std::string list_ranks(const std::vector<int>& ranks);
/// "rank 2" or "ranks 2 and 3".
std::string name_ranks(const std::vector<int>& ranks);
/// "2.5 s".
std::string in_seconds(Clock::duration time);

}  // namespace reel::distributed
