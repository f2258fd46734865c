#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "reel/distributed/group.h"

namespace reel::distributed::test {

/// What a rank has returned or thrown.
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
  /// The kind of a distributed::Error; -1 for everything else.
  int kind() const {
    if (!error) return -1;
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      return e.kind;
    } catch (...) {
      return -1;
    }
  }
};

/// Runs f(rank) on all ranks of a job of threads. Assertions of Catch belong outside of f: they are for one thread.
/// A job that hangs ends the program.
template <class F>
auto try_ranks(int world, F f, Options options = {}) {
  using T = decltype(f(0));
  std::vector<Outcome<T>> outcomes(static_cast<size_t>(world));
  const auto members = thread_members(world);
  std::mutex mutex;
  std::condition_variable changed;
  int running = world;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank, member = members[static_cast<size_t>(rank)]]() mutable {
      Outcome<T>& mine = outcomes[static_cast<size_t>(rank)];
      try {
        init_process_group(std::move(member), options);
        mine.value = f(rank);
        destroy_process_group();
      } catch (...) {
        mine.error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      --running;
      changed.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return running == 0; })) {
      std::fputs("a job of threads hangs\n", stderr);
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// The same where all ranks must succeed: what they return.
template <class F>
auto on_ranks(int world, F f, Options options = {}) {
  auto outcomes = try_ranks(world, std::move(f), std::move(options));
  std::vector<decltype(f(0))> values;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].error) throw reel::Error("rank " + std::to_string(rank) + ": " + outcomes[rank].message());
    values.push_back(std::move(*outcomes[rank].value));
  }
  return values;
}

}  // namespace reel::distributed::test
