#pragma once
#include <sys/eventfd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "lib/distributed/run/output.h"

namespace reel::distributed::run {

/// A function that waits for other machines, in a thread, so that the main thread hears signals. `f(stopped)` should
/// return soon once `stopped` is true, which the destructor waits for.
template <class T>
class Task {
 public:
  template <class F>
  explicit Task(F f)
      : done_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this, f = std::move(f)]() mutable { run(f); }) {}
  ~Task() { stopped_ = true; }  // and the thread is joined
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  int fd() const { return done_.get(); }  ///< Readable when there is a result.
  /// What f has returned or thrown, once fd() is readable.
  T take() {
    thread_.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(*result_);
  }

 private:
  template <class F>
  void run(F& f) noexcept {
    try {
      result_.emplace(f(stopped_));
    } catch (...) {
      error_ = std::current_exception();
    }
    ::eventfd_write(done_.get(), 1);
  }

  Descriptor done_;
  std::atomic<bool> stopped_{false};
  std::optional<T> result_;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace reel::distributed::run
