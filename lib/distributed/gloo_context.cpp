#include "lib/distributed/gloo_context.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reel/error.h"

namespace reel::distributed {

NoSigpipe::NoSigpipe() {
  sigemptyset(&pipe_);
  sigaddset(&pipe_, SIGPIPE);
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
}

NoSigpipe::~NoSigpipe() {
  const timespec now{};
  if (!was_pending_)
    while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

namespace {
void set_policy(int policy) {
  const sched_param none{};
  sched_setscheduler(0, policy, &none);  // without it everything works, too
}
}  // namespace

NoPreemption::NoPreemption() : policy_(sched_getscheduler(0)) {
  if (policy_ == SCHED_OTHER) set_policy(SCHED_BATCH);
}

NoPreemption::~NoPreemption() {
  if (policy_ == SCHED_OTHER) set_policy(SCHED_OTHER);
}

// ---- buffers that can be interrupted --------------------------------------------------------------------------------

/// Gloo's transport, whose buffers are known. Gloo wakes those that it finds in the queues of a connection that breaks,
/// but not the one whose bytes its thread was just about to write: that one's wait would never end.
class GlooContext::Transport : public gloo::transport::Context {
 public:
  explicit Transport(std::shared_ptr<gloo::transport::Context> gloo)
      : Context(gloo->rank, gloo->size), gloo_(std::move(gloo)) {}

  std::unique_ptr<gloo::transport::Pair>& getPair(int other) override { return gloo_->getPair(other); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int other) override { return gloo_->createPair(other); }
  Buffer createUnboundBuffer(void* data, size_t bytes) override { return std::make_unique<Known>(*this, data, bytes); }

  void interrupt() noexcept {
    const std::lock_guard lock(buffers_mutex_);
    interrupted_ = true;
    for (gloo::transport::UnboundBuffer* const buffer : buffers_) {
      buffer->abortWaitSend();
      buffer->abortWaitRecv();
    }
  }
  void check() const {
    if (interrupted_) throw std::runtime_error("the group has ended");
  }

 private:
  class Known : public gloo::transport::UnboundBuffer {
   public:
    Known(Transport& transport, void* data, size_t bytes)
        : UnboundBuffer(data, bytes), transport_(transport), gloo_(transport.gloo_->createUnboundBuffer(data, bytes)) {
      const std::lock_guard lock(transport_.buffers_mutex_);
      transport_.check();
      place_ = transport_.buffers_.insert(transport_.buffers_.end(), gloo_.get());
    }
    ~Known() override {
      const std::lock_guard lock(transport_.buffers_mutex_);
      transport_.buffers_.erase(place_);
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

    bool waitRecv(int* from, Milliseconds timeout) override {
      transport_.check();
      const bool complete = gloo_->waitRecv(from, timeout);
      if (!complete) transport_.check();
      return complete;
    }
    bool waitSend(int* to, Milliseconds timeout) override {
      transport_.check();
      const bool complete = gloo_->waitSend(to, timeout);
      if (!complete) transport_.check();
      return complete;
    }
    void abortWaitRecv() override { gloo_->abortWaitRecv(); }
    void abortWaitSend() override { gloo_->abortWaitSend(); }
    void send(int to, uint64_t slot, size_t offset, size_t bytes) override { gloo_->send(to, slot, offset, bytes); }
    void recv(int from, uint64_t slot, size_t offset, size_t bytes) override { gloo_->recv(from, slot, offset, bytes); }
    void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override {
      gloo_->recv(std::move(from), slot, offset, bytes);
    }

   private:
    Transport& transport_;
    const Buffer gloo_;
    std::list<gloo::transport::UnboundBuffer*>::iterator place_;
  };

  const std::shared_ptr<gloo::transport::Context> gloo_;
  std::mutex buffers_mutex_;
  std::list<gloo::transport::UnboundBuffer*> buffers_;
  std::atomic<bool> interrupted_ = false;
};

// ---- a context ------------------------------------------------------------------------------------------------------

namespace {
/// Number `index` of what GlooContext::connect() has joined.
std::vector<char> part(const std::string& addresses, int index) {
  size_t at = 0;
  for (int i = 0;; ++i) {
    size_t digits = 0;
    const size_t length = std::stoul(addresses.substr(at), &digits);
    at += digits + 1;
    REEL_CHECK(at <= addresses.size() && length <= addresses.size() - at, "malformed addresses of a rank");
    if (i == index) return {addresses.data() + at, addresses.data() + at + length};
    at += length;
  }
}
}  // namespace

GlooContext::GlooContext(int rank_, int size_, std::shared_ptr<gloo::transport::Device> device)
    : gloo::Context(rank_, size_) {
  device_ = std::move(device);
  gloo_ = device_->createContext(rank, size);
  transport_ = std::make_shared<Transport>(gloo_);
  transportContext_ = transport_;
}

void GlooContext::connect(Store& store, Milliseconds timeout) {
  gloo_->setTimeout(std::max(timeout / 5, Milliseconds(1)));  // Gloo waits five times as long
  std::string addresses;
  for (int other = 0; other < size; ++other) {
    std::vector<char> address;
    if (other != rank) address = transport_->createPair(other)->address().bytes();
    addresses += detail::concat(address.size(), ' ') + std::string(address.begin(), address.end());
  }
  connecting_ = true;
  const auto key = [](int r) { return detail::concat("gloo/", r); };
  store.set(key(rank), addresses);
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    const std::vector<char> address = part(store.get(key(other), timeout), rank);
    check();
    transport_->getPair(other)->connect(address);
  }
  check();
  setTimeout(kForever);
}

void GlooContext::interrupt() noexcept {
  transport_->interrupt();
  if (!connecting_) return;
  try {
    // A wait that runs into its timeout closes all connections, and wakes whoever waits for one.
    char byte = 0;
    const Buffer buffer = gloo_->createUnboundBuffer(&byte, 1);
    buffer->waitRecv(Milliseconds(1));
  } catch (const std::exception&) {
    // That is how it ends.
  }
}

void GlooContext::check() const { transport_->check(); }

}  // namespace reel::distributed
