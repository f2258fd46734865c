// Jobs whose ranks are threads of a test.
#pragma once
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lib/distributed/thread_members.h"
#include "reel/error.h"

namespace ranks {

using reel::detail::concat;

/// Throws if the condition is false. It is for ranks, since Catch's macros are for one thread.
template <class... Parts>
void expect(bool condition, const Parts&... what) {
  if (!condition) throw std::runtime_error(concat(what...));
}

/// An Outcome is what a rank has returned or thrown.
template <class T>
struct Outcome {
  std::optional<T> value;
  std::exception_ptr error;

  std::string message() const {
    if (!error) return {};
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      return e.what();
    }
  }
  /// Holds the kind of a distributed::Error; -1 for everything else.
  int kind() const {
    if (!error) return -1;
    try {
      std::rethrow_exception(error);
    } catch (const reel::distributed::Error& e) {
      return e.kind;
    } catch (...) {
      return -1;
    }
  }
};

/// Runs f(rank) on all ranks of a job of threads, with a default group. A job that hangs ends the program.
template <class F>
auto try_ranks(int world, F f, reel::distributed::ProcessGroupOptions options = {}) {
  using T = decltype(f(0));
  std::vector<Outcome<T>> outcomes(static_cast<size_t>(world));
  const auto members = reel::distributed::thread_members(world);
  std::mutex mutex;
  std::condition_variable changed;
  int running = world;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank, member = members[static_cast<size_t>(rank)]]() mutable {
      Outcome<T>& mine = outcomes[static_cast<size_t>(rank)];
      try {
        reel::distributed::init_process_group(std::move(member), options);
        mine.value = f(rank);
        reel::distributed::destroy_process_group();
      } catch (...) {
        mine.error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::seconds(100), [&] { return running == 0; })) {
      std::fputs("a job of threads hangs\n", stderr);
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// Returns what all ranks have returned; throws if one has thrown.
template <class F>
auto on_ranks(int world, F f, reel::distributed::ProcessGroupOptions options = {}) {
  auto outcomes = try_ranks(world, std::move(f), std::move(options));
  std::vector<decltype(f(0))> values;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].error) throw reel::Error(concat("rank ", rank, ": ", outcomes[rank].message()));
    values.push_back(std::move(*outcomes[rank].value));
  }
  return values;
}

/// Fails the test if a rank throws, which also aborts its group.
inline void threads(int world, const std::function<void(int rank)>& f,
                    reel::distributed::ProcessGroupOptions options = {.rendezvous = std::chrono::seconds(20),
                                                                      .heartbeat = std::chrono::seconds(2)}) {
  const auto run = [&](int rank) {
    try {
      f(rank);
    } catch (const std::exception& error) {
      if (reel::distributed::is_initialized()) reel::distributed::default_group().abort(error.what());
      throw;
    }
    return true;
  };
  const auto outcomes = try_ranks(world, run, std::move(options));
  for (size_t rank = 0; rank < outcomes.size(); ++rank)
    if (outcomes[rank].error) FAIL_CHECK("rank " << rank << ": " << outcomes[rank].message());
}

}  // namespace ranks
