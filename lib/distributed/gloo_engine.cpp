#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "lib/distributed/engine.h"
#include "lib/distributed/gloo_context.h"
#include "lib/distributed/mailbox.h"

namespace reel::distributed {
namespace {

// Slots are Gloo's addresses of messages; its collectives use prefixes up to 0x08.
constexpr uint64_t kHeaders = uint64_t{0x41} << 56, kPayloads = uint64_t{0x42} << 56;

/// Of Gloo, by any thread.
struct Call {
  explicit Call(const GlooContext& context) { context.check(); }
  NoSigpipe guard;
};

struct Arrived {
  Header header;
};

/// The messages that come to a rank. Each begins with a header, and what follows is received into the memory that waits
/// for it only if it fits, since Gloo ends the process if it does not. A thread does that: senders wait for nothing
/// else.
class Inbox {
 public:
  explicit Inbox(std::shared_ptr<GlooContext> context) : context_(std::move(context)) {}
  ~Inbox() {
    stop();
    if (thread_.joinable()) thread_.join();
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void add(Receiving* receiving) {
    const std::lock_guard lock(mutex_);
    if (failed_) std::rethrow_exception(failed_);
    if (stopped_) throw std::runtime_error("the group has ended");
    if (!thread_.joinable()) {
      headers_ = context_->createUnboundBuffer(&header_, sizeof header_);
      thread_ = std::thread([this] { run(); });
    }
    mail_.wait_for(receiving, [&](int from, const Arrived& arrived) {
      matched_.push_back({receiving, from, arrived.header});
      headers_->abortWaitRecv();
    });
  }

  /// The other rank, once the message is complete.
  int wait(const Receiving& receiving) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return receiving.sender >= 0 || failed_; });
    if (receiving.sender < 0) std::rethrow_exception(failed_);
    if (receiving.error) throw Error(*receiving.error);
    return receiving.sender;
  }
  bool done(const Receiving& receiving) {
    const std::lock_guard lock(mutex_);
    return receiving.sender >= 0 || failed_;
  }

  void forget(Receiving* receiving) {
    std::unique_lock lock(mutex_);
    mail_.forget(receiving);
    std::erase_if(matched_, [&](const Match& match) { return match.receiving == receiving; });
    changed_.wait(lock, [&] { return busy_ != receiving; });
  }

  /// From any thread. Whoever waits for a message throws.
  void stop() noexcept {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (headers_) headers_->abortWaitRecv();
  }

 private:
  struct Match {
    Receiving* receiving;
    int from;
    Header header;
  };

  void run() noexcept {
    const NoSigpipe guard;
    try {
      std::vector<int> others(static_cast<size_t>(context_->size));
      std::iota(others.begin(), others.end(), 0);
      others.erase(others.begin() + context_->rank);
      headers_->recv(others, kHeaders);
      while (receive_matched()) {
        int from = -1;
        if (!headers_->waitRecv(&from, kForever)) continue;  // woken
        const Arrived arrived{header_};
        REEL_CHECK(arrived.header.dtype <= kFloat64, "malformed message of rank ", from, " of the group");
        headers_->recv(others, kHeaders);
        const std::lock_guard lock(mutex_);
        if (Receiving* const receiving = mail_.arrive(from, arrived))
          matched_.push_back({receiving, from, arrived.header});
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      busy_ = nullptr;
      failed_ = std::current_exception();
      changed_.notify_all();
    }
  }

  /// False when the group has ended.
  bool receive_matched() {
    std::unique_lock lock(mutex_);
    while (!stopped_ && !matched_.empty()) {
      const auto [receiving, from, header] = matched_.front();
      matched_.pop_front();
      if (header.bytes != receiving->bytes || header.dtype != receiving->dtype) {
        receiving->error = wrong_message(from, header, receiving->bytes, receiving->dtype);
      } else if (header.bytes) {
        busy_ = receiving;
        lock.unlock();
        const Buffer payload = context_->createUnboundBuffer(receiving->data, receiving->bytes);
        payload->recv(from, kPayloads | header.id);
        payload->waitRecv(kForever);
        lock.lock();
        busy_ = nullptr;
      }
      receiving->sender = from;
      changed_.notify_all();
    }
    if (stopped_) throw std::runtime_error("the group has ended");
    return true;
  }

  const std::shared_ptr<GlooContext> context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Mailbox<Arrived> mail_;
  std::deque<Match> matched_;
  Receiving* busy_ = nullptr;  // what the thread receives
  Header header_{};
  Buffer headers_;
  bool stopped_ = false;
  std::exception_ptr failed_;
  std::thread thread_;
};

class SentMessage : public Message {
 public:
  SentMessage(std::shared_ptr<GlooContext> context, int to, const Header& header, void* data)
      : context_(std::move(context)), to_(to), header_(header) {
    head_ = context_->createUnboundBuffer(&header_, sizeof header_);
    if (header.bytes) body_ = context_->createUnboundBuffer(data, header.bytes);
    head_->send(to, kHeaders);
    if (body_) body_->send(to, kPayloads | header.id);
  }
  ~SentMessage() override {
    if (waiter_.joinable()) waiter_.join();
  }
  SentMessage(const SentMessage&) = delete;
  SentMessage& operator=(const SentMessage&) = delete;

  int wait() override {
    const NoSigpipe guard;
    if (waiter_.joinable())
      waiter_.join();
    else if (!over_)
      wait_for_both();
    if (error_) std::rethrow_exception(error_);
    return to_;
  }
  /// Gloo can only wait, so somebody must.
  bool done() override {
    if (!over_ && !waiter_.joinable()) waiter_ = std::thread([this] { wait_for_both(); });
    return over_;
  }

 private:
  void wait_for_both() noexcept {
    try {
      head_->waitSend(kForever);
      if (body_) body_->waitSend(kForever);
    } catch (...) {
      error_ = std::current_exception();
    }
    over_ = true;
  }

  const std::shared_ptr<GlooContext> context_;
  const int to_;
  Header header_;
  Buffer head_, body_;
  std::exception_ptr error_;
  std::atomic<bool> over_ = false;
  std::thread waiter_;
};

class ReceivedMessage : public Message {
 public:
  ReceivedMessage(std::shared_ptr<Inbox> inbox, Receiving receiving)
      : inbox_(std::move(inbox)), receiving_(std::move(receiving)) {
    inbox_->add(&receiving_);
  }
  ~ReceivedMessage() override { inbox_->forget(&receiving_); }
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;
  int wait() override { return inbox_->wait(receiving_); }
  bool done() override { return inbox_->done(receiving_); }

 private:
  const std::shared_ptr<Inbox> inbox_;
  Receiving receiving_;
};

/// Gloo's collectives. Lengths of 0 are the callers' to leave out, but for single ranks' parts.
class GlooEngine : public Engine {
 public:
  explicit GlooEngine(std::shared_ptr<GlooContext> context)
      : context_(std::move(context)), inbox_(std::make_shared<Inbox>(context_)) {}
  ~GlooEngine() override { GlooEngine::abort(); }  // wakes the inbox
  GlooEngine(const GlooEngine&) = delete;
  GlooEngine& operator=(const GlooEngine&) = delete;

  void all_reduce(Tag tag, void* data, int64_t count, DType dtype, ReduceOp op) override {
    const Call call(*context_);
    gloo::AllreduceOptions options(context_);
    const auto elements = static_cast<size_t>(count);
    switch (size_of(dtype)) {  // Gloo cuts between elements
      case 1: options.setOutput(static_cast<uint8_t*>(data), elements); break;
      case 2: options.setOutput(static_cast<uint16_t*>(data), elements); break;
      case 4: options.setOutput(static_cast<uint32_t*>(data), elements); break;
      default: options.setOutput(static_cast<uint64_t*>(data), elements); break;
    }
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction([=](void* out, const void* a, const void* b, size_t n) {
      if (out == b) std::swap(a, b);
      if (out != a) std::memcpy(out, a, n * static_cast<size_t>(size_of(dtype)));
      combine(out, b, static_cast<int64_t>(n), dtype, op);
    });
    options.setTag(tag);
    options.setTimeout(kForever);
    gloo::allreduce(options);
  }

  void broadcast(Tag tag, void* data, size_t bytes, int root) override {
    const Call call(*context_);
    gloo::BroadcastOptions options(context_);
    options.setOutput(static_cast<char*>(data), bytes);
    options.setRoot(root);
    options.setTag(tag);
    options.setTimeout(kForever);
    gloo::broadcast(options);
  }

  void all_gather(Tag tag, const void* in, void* out, std::span<const size_t> bytes) override {
    const Call call(*context_);
    const auto me = bytes.begin() + context_->rank;
    char* const own = static_cast<char*>(out) + std::accumulate(bytes.begin(), me, size_t{0});
    if (in != own && *me) std::memcpy(own, in, *me);
    gloo::AllgathervOptions options(context_);
    options.setOutput(static_cast<char*>(out), std::vector<size_t>(bytes.begin(), bytes.end()));
    options.setTag(tag);
    options.setTimeout(kForever);
    gloo::allgatherv(options);
  }

  void all_to_all(Tag tag, const void* in, std::span<const size_t> in_bytes, void* out,
                  std::span<const size_t> out_bytes) override {
    const Call call(*context_);
    gloo::AlltoallvOptions options(context_);
    options.setInput(static_cast<char*>(const_cast<void*>(in)), std::vector<int64_t>(in_bytes.begin(), in_bytes.end()));
    options.setOutput(static_cast<char*>(out), std::vector<int64_t>(out_bytes.begin(), out_bytes.end()));
    options.setTag(tag);
    options.setTimeout(kForever);
    gloo::alltoallv(options);
  }

  void barrier(Tag tag) override {
    const Call call(*context_);
    gloo::BarrierOptions options(context_);
    options.setTag(tag);
    options.setTimeout(kForever);
    gloo::barrier(options);
  }

  std::unique_ptr<Message> send(int to, int tag, const void* data, size_t bytes, DType dtype) override {
    const Call call(*context_);
    Header header{};
    header.tag = tag, header.dtype = dtype, header.bytes = bytes, header.id = ++last_;
    return std::make_unique<SentMessage>(context_, to, header, const_cast<void*>(data));
  }
  std::unique_ptr<Message> recv(std::span<const int> from, int tag, void* data, size_t bytes, DType dtype) override {
    const Call call(*context_);
    return std::make_unique<ReceivedMessage>(
        inbox_,
        Receiving{.from = {from.begin(), from.end()}, .tag = tag, .data = data, .bytes = bytes, .dtype = dtype});
  }

  void abort() noexcept override {
    inbox_->stop();
    context_->interrupt();
  }

 private:
  const std::shared_ptr<GlooContext> context_;
  const std::shared_ptr<Inbox> inbox_;
  std::atomic<uint64_t> last_ = 0;
};

}  // namespace

std::unique_ptr<Engine> make_gloo_engine(std::shared_ptr<Store> store, int rank, int size,
                                         const ProcessGroupOptions& options, const std::string& address,
                                         const std::function<void(std::function<void()>)>& abort) {
  const NoSigpipe guard;  // the device's thread inherits it
  gloo::transport::tcp::attr attributes;
  if (options.interface.empty())
    attributes.hostname = address;
  else
    attributes.iface = options.interface;
  const auto device = [&] {
    const NoPreemption of_its_thread;
    return gloo::transport::tcp::CreateDevice(attributes);
  }();
  const auto context = std::make_shared<GlooContext>(rank, size, device);
  struct Interruptible {
    const std::function<void(std::function<void()>)>& abort;
    ~Interruptible() { abort(nullptr); }
  } const scope{abort};
  abort([context] { context->interrupt(); });
  context->connect(*store, options.rendezvous);
  return std::make_unique<GlooEngine>(context);
}

}  // namespace reel::distributed
