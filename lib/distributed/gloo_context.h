#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <signal.h>

#include <atomic>
#include <memory>

#include "reel/distributed/store.h"

namespace reel::distributed {

// Gloo's timeouts are of single waits, and close all connections: deadlines are the group's.
constexpr auto kForever = Milliseconds(std::chrono::hours(24 * 365));

/// Within its life a broken connection is an error, not a signal that ends the process: Gloo does not see to that.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

/// Within its life the thread, and for good the threads that it starts, wait for a core where others run, instead of
/// taking it from them. Gloo's thread would take it from one that is writing to a connection and holds its lock, and
/// then poll for that lock until its time slice is over, 4 ms later.
class NoPreemption {
 public:
  NoPreemption();
  ~NoPreemption();
  NoPreemption(const NoPreemption&) = delete;
  NoPreemption& operator=(const NoPreemption&) = delete;

 private:
  const int policy_;
};

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

/// A context whose rendezvous is one value a rank, and which can be interrupted at any time.
class GlooContext : public gloo::Context {
 public:
  GlooContext(int rank, int size, std::shared_ptr<gloo::transport::Device> device);

  void connect(Store& store, Milliseconds timeout);

  /// From any thread. Whoever waits for one of its buffers or connections throws, now and ever after.
  void interrupt() noexcept;
  void check() const;

 private:
  class Transport;
  std::shared_ptr<gloo::transport::Context> gloo_;
  std::shared_ptr<Transport> transport_;  // around it
  std::atomic<bool> connecting_ = false;
};

}  // namespace reel::distributed
