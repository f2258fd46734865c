#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "reel/distributed/store.h"

inline reel::distributed::StoreOptions store_options(int world, int64_t heartbeat = 10'000) {
  reel::distributed::StoreOptions options;
  options.run_id = "test";
  options.world_size = world;
  options.heartbeat = reel::distributed::Milliseconds(heartbeat);
  options.timeout = std::chrono::seconds(10);
  return options;
}

/// A server and its members, in this process.
struct StoreFixture {
  reel::distributed::StoreOptions options;
  std::unique_ptr<reel::distributed::StoreServer> server;
  std::vector<std::shared_ptr<reel::distributed::Member>> members;

  explicit StoreFixture(reel::distributed::StoreOptions o) : StoreFixture(o, o.world_size) {}
  explicit StoreFixture(int world) : StoreFixture(store_options(world)) {}
  /// The first ranks only.
  StoreFixture(reel::distributed::StoreOptions o, int ranks)
      : options(std::move(o)), server(std::make_unique<reel::distributed::StoreServer>(options)) {
    options.port = server->port();
    for (int rank = 0; rank < ranks; ++rank) join(rank);
  }
  void join(int rank) { members.push_back(connect_store(rank, options)); }
  reel::distributed::Member& operator[](int rank) { return *members[static_cast<size_t>(rank)]; }
};

/// The Error that f throws, if it does.
template <class F>
std::optional<reel::distributed::Error> error_of(const F& f) {
  try {
    f();
  } catch (const reel::distributed::Error& error) {
    return error;
  }
  return {};
}

/// Why the job has ended, once it has.
inline std::optional<reel::distributed::Error> await_end(const reel::distributed::Member& member,
                                                         std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!member.aborted() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return member.aborted();
}

class Stopwatch {
 public:
  int64_t ms() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};
