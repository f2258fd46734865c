#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reel/distributed/error.h"

#pragma GCC visibility push(default)
/// The store, by which the processes of a job find each other.
namespace reel::distributed {

using Milliseconds = std::chrono::milliseconds;  ///< Of all timeouts.

/// A map of keys and values that all processes of a job share: how ranks find each other. It carries no tensors. Any
/// thread may call it. Keys have at most 4 KiB, values at most 16 MiB; more is an Error. Every wait has a deadline,
/// which is an Error of kTimeout that names what did not come.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::string_view value) = 0;       ///< Wakes those that wait for the key.
  virtual std::string get(std::string_view key, Milliseconds timeout) = 0;  ///< Waits until the key is there.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;            ///< A counter, from 0: its new value.
  /// Sets the key if its value is `expected`, "" where there is none. Returns the value afterwards.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) = 0;
  virtual void wait(std::span<const std::string> keys, Milliseconds timeout) = 0;  ///< Until all of them are there.
  virtual bool erase(std::string_view key) = 0;                                    ///< Whether it was there.
};

/// Keys of a store that begin with a prefix: a part of it for a group, or a generation of the job.
std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store);

/// What a rank was doing when it was last heard of.
struct Activity {
  int rank;              ///< Which one.
  std::string what;      ///< "all_reduce 12 of group 0", "user code", …
  Milliseconds silence;  ///< Since its last heartbeat.
};

/// A rank's connection to the job: the store, and who is alive. A rank that dies, stops or is cut off is noticed by the
/// store, not by timeouts of collectives, since a slow rank is legal: one that validates while the others wait.
class Member : public Store {
 public:
  virtual int rank() const = 0;        ///< Of this one.
  virtual int world_size() const = 0;  ///< How many there are.
  /// Says what the rank does from here on, for the others' messages. It costs no system call: heartbeats carry it.
  virtual void set_activity(std::string_view what) = 0;
  virtual std::vector<Activity> activities() = 0;  ///< Of all ranks; asks the store.
  /// Ends the job for all ranks, this one included: the first reason wins, and every rank gets it.
  virtual void abort(const Error& reason) noexcept = 0;
  /// Why the job has ended, if it has.
  virtual std::optional<Error> aborted() const = 0;
  /// Calls f once, from another thread or within abort(), when the job has ended; at once if it has already. f must not
  /// throw nor call the member. Returns a number for forget_abort(), after which f is not running and will not be
  /// called.
  virtual int64_t on_abort(std::function<void(const Error&)> f) = 0;
  virtual void forget_abort(int64_t id) noexcept = 0;  ///< Takes an on_abort() back.
  /// Says goodbye: the end of this rank is then not a death. Once all ranks that are left wait for keys, which nobody
  /// will set, they get an Error of kPeerLost that says who has left. The destructor does the same unless an exception
  /// is on its way, which ends the job.
  virtual void leave() noexcept = 0;
};

/// What server and clients of a job agree on.
struct StoreOptions {
  std::string host = "127.0.0.1";  ///< Of the server: a name or an address.
  uint16_t port = 0;               ///< 0 lets the server choose.
  int ports = 1;                   ///< From `port` on: the server takes the first that is free, clients look for it.
  std::string run_id = {};         ///< Of the job; another job's clients are refused.
  int generation = 0;              ///< Counts the restarts of a job; older processes are refused.
  int world_size = 1;              ///< How many ranks there are.
  std::string token = {};          ///< 32 hex digits; required unless all of the job is on one machine.
  Milliseconds timeout{30'000};    ///< For the server to appear.
  Milliseconds heartbeat{10'000};  ///< A rank that is not heard of for so long is lost.
};

/// The server of a job, in a thread of its own: of rank 0, or of reel-run. Listens on loopback only if `host` is a
/// loopback address, otherwise on every interface, with a token that clients must know.
class StoreServer {
 public:
  /// An Error if no port is free, or if a token is needed and there is none.
  explicit StoreServer(StoreOptions options);
  /// If a rank of this process has left, waits up to 5 s for the others to leave, too. Ends the job for those that have
  /// not.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  uint16_t port() const;  ///< Where it listens.
  /// Starts a generation anew: processes of earlier ones are refused, keys are forgotten.
  void restart(int generation);
  /// Why the current generation has ended, if it has.
  std::optional<Error> aborted() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Connects rank `rank` with the server, which may come up later, until the timeout.
/// An Error if it is another job's, or if the server knows of another world size, generation or version of reel.
std::shared_ptr<Member> connect_store(int rank, const StoreOptions& options);
/// The address of this machine on the way to the server: the one that other ranks reach it at. Where the server is on
/// this machine, it waits until a rank of another one has come, or all ranks; an Error of kTimeout names the missing.
std::string local_address(const Member& member, Milliseconds timeout = Milliseconds(30'000));

}  // namespace reel::distributed
#pragma GCC visibility pop
