#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "lib/distributed/socket.h"
#include "lib/distributed/store_job.h"
#include "reel/distributed/store.h"

namespace reel::distributed {
namespace {

constexpr uint64_t kListener = 0, kWake = ~uint64_t{0};    // beside the peers' numbers
constexpr Clock::duration kGoodbye = Milliseconds(5000);   // for the others, when the server's own rank has left
constexpr Clock::duration kLastWords = Milliseconds(500);  // for what is to be sent when the server ends

const StoreOptions& checked(const StoreOptions& options) {
  REEL_CHECK(options.world_size >= 1 && options.world_size <= wire::kMaxWorld, "store: a world of ", options.world_size,
             " ranks");
  REEL_CHECK(options.heartbeat >= Milliseconds(10), "store: a heartbeat of ", options.heartbeat.count(), " ms");
  REEL_CHECK(options.generation >= 0, "store: generation ", options.generation);
  REEL_CHECK(
      !options.token.empty() || names_loopback(options.host), "store: ", options.host,
      " can be reached from other machines, so it needs a token: set REEL_TOKEN to the same 32 hex digits on all "
      "machines, such as \"openssl rand -hex 16\" prints");
  return options;
}

void watch(const Descriptor& epoll, int operation, int fd, uint32_t events, uint64_t id) {
  epoll_event event = {.events = events, .data = {.u64 = id}};
  if (::epoll_ctl(epoll.get(), operation, fd, &event) != 0)
    throw Error(Error::kStoreLost, std::string("store: epoll: ") + std::strerror(errno));
}

}  // namespace

struct StoreServer::Impl {
  explicit Impl(const StoreOptions& options)
      : patience(wire::patience_of(options.heartbeat)),
        listener(listen_at(options.host, options.port, options.ports)),
        job(options) {
    if (!epoll || !wake)
      throw Error(Error::kStoreLost, std::string("store: no descriptor for the server: ") + std::strerror(errno));
    watch(epoll, EPOLL_CTL_ADD, listener.get(), EPOLLIN, kListener);
    watch(epoll, EPOLL_CTL_ADD, wake.get(), EPOLLIN, kWake);
    thread = start_thread("reel-store", [this] { run(); });
  }

  ~Impl() {
    {
      std::unique_lock lock(mutex);
      say_goodbye(lock);
      stopping = true;
    }
    rouse();
    thread.join();
  }

  // Ranks leave at about the same time, after a barrier. One that has not yet must not take the server's end for the
  // job's.
  void say_goodbye(std::unique_lock<std::mutex>& lock) noexcept {
    try {
      const auto gone = [&] { return job.aborted() || job.present() == 0; };
      const bool own_left = job.present() == static_cast<int>(job.present_elsewhere().size());
      if (own_left) news.wait_for(lock, std::min<Clock::duration>(kGoodbye, patience), gone);
      if (gone()) return;
      const int host = job.host_rank();
      const std::string who =
          host < 0 ? "the process that hosts the store" : "rank " + std::to_string(host) + ", which hosts the store,";
      job.abort(Error(Error::kPeerLost, who + " left while " + name_ranks(job.present_elsewhere()) + " went on",
                      host < 0 ? std::vector<int>{} : std::vector<int>{host}),
                Clock::now());
    } catch (const std::exception&) {  // the clients notice that the connection ends
    }
  }

  void rouse() noexcept {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
  }

  // ---- the thread ---------------------------------------------------------------------------------------------------

  void run() noexcept {
    std::array<epoll_event, 128> events;
    std::unique_lock lock(mutex);
    Time next = Clock::now();
    while (!stopping) {
      const auto rest = std::chrono::ceil<Milliseconds>(next - Clock::now()).count();
      lock.unlock();
      int count =
          ::epoll_wait(epoll.get(), events.data(), events.size(), static_cast<int>(std::clamp<int64_t>(rest, 0, 1000)));
      lock.lock();
      const Time now = Clock::now();
      // All that has come is looked at before anybody is found to be silent: this process may have been stopped.
      for (int round = 0; count > 0; ++round) {
        for (int i = 0; i < count; ++i) handle(events[static_cast<size_t>(i)], now);
        if (static_cast<size_t>(count) < events.size() && now < next) break;
        count = round < 64 ? ::epoll_wait(epoll.get(), events.data(), events.size(), 0) : 0;
      }
      try {
        next = job.tick(now);
      } catch (const std::exception&) {  // no memory: again
        next = now + Milliseconds(10);
      }
      flush();
      news.notify_all();
    }
    finish();
  }

  void handle(const epoll_event& event, Time now) noexcept {
    const uint64_t id = event.data.u64;
    if (id == kListener) return accept_all(now);
    if (id == kWake) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = ::read(wake.get(), &count, sizeof count);
      return;
    }
    const auto socket = sockets.find(id);
    StoreJob::Peer* const peer = job.find(id);
    if (socket == sockets.end() || !peer) return;  // closed by an event before this one
    try {
      if (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read(*peer, socket->second, now);
      if (event.events & EPOLLOUT) changed.push_back(id);
    } catch (const std::exception& error) {
      drop(id, error.what(), now);
    }
  }

  void accept_all(Time now) noexcept {
    constexpr int kAtOnce = 64;
    for (int i = 0; i < kAtOnce; ++i) {
      Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        // Without a free descriptor the connection stays in line, and would wake this thread for ever.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) refuse_one();
        return;
      }
      try {
        make_prompt(socket);
        const Address from = remote_end(socket);
        if (from.size == 0) continue;  // it has gone already
        StoreJob::Peer& peer = job.open(from.host(), from.is_loopback() ? "" : local_end(socket).host(), now);
        const uint64_t id = peer.id;
        const Descriptor& kept = sockets.emplace(id, std::move(socket)).first->second;
        watch(epoll, EPOLL_CTL_ADD, kept.get(), EPOLLIN, id);
        read(peer, kept, now);           // its hello is often there already
      } catch (const std::exception&) {  // no memory: the client tries again
      }
    }
  }

  // Gives up the spare descriptor for the moment, to take a connection and end it.
  void refuse_one() noexcept {
    spare = Descriptor();
    { const Descriptor refused(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }
    spare = Descriptor(::eventfd(0, EFD_CLOEXEC));
  }

  void read(StoreJob::Peer& peer, const Descriptor& socket, Time now) {
    constexpr int kAtOnce = 16;  // other peers have their turn, too
    const uint64_t id = peer.id;
    for (int i = 0; i < kAtOnce; ++i) {
      const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
      if (got > 0) job.receive(peer, {buffer.data(), static_cast<size_t>(got)}, now);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got == 0) return drop(id, "its connection to the store was closed", now);
      if (got < 0)
        return drop(id, std::string("its connection to the store broke (") + std::strerror(errno) + ")", now);
      if (peer.closing || got < static_cast<ssize_t>(buffer.size())) return;
    }
  }

  void drop(uint64_t id, const std::string& why, Time now) noexcept {
    sockets.erase(id);  // which epoll notices
    blocked_.erase(id);
    try {
      job.closed(id, why, now);
    } catch (const std::exception&) {
    }
  }

  /// Sends what there is. Whether all is sent.
  bool send_out(StoreJob::Peer& peer, const Descriptor& socket, std::string& why) {
    while (!peer.out.empty()) {
      std::array<iovec, 16> parts;
      size_t count = 0, begin = peer.out_begin;
      for (const auto& text : peer.out) {
        if (count == parts.size()) break;
        parts[count++] = {const_cast<char*>(text->data()) + begin, text->size() - begin};
        begin = 0;
      }
      msghdr message = {};
      message.msg_iov = parts.data();
      message.msg_iovlen = count;
      const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) {
        if (errno != EAGAIN) why = std::string("its connection to the store broke (") + std::strerror(errno) + ")";
        return false;
      }
      peer.out_bytes -= static_cast<size_t>(sent);
      peer.out_begin += static_cast<size_t>(sent);
      while (!peer.out.empty() && peer.out_begin >= peer.out.front()->size()) {
        peer.out_begin -= peer.out.front()->size();
        peer.out.pop_front();
      }
    }
    return true;
  }

  void flush() noexcept {
    for (bool more = true; more;) {
      for (const uint64_t id : job.changed()) {
        if (StoreJob::Peer* const peer = job.find(id)) peer->dirty = false;
        changed.push_back(id);
      }
      more = !changed.empty();
      // What this process's own rank hears may make it end the process: it hears it last.
      std::vector<uint64_t> all = std::exchange(changed, {});
      std::stable_partition(all.begin(), all.end(), [&](uint64_t id) {
        const StoreJob::Peer* const peer = job.find(id);
        return !peer || peer->rank < 0 || peer->rank != job.host_rank();
      });
      for (const uint64_t id : all) flush(id);
    }
  }

  void flush(uint64_t id) noexcept {
    const auto socket = sockets.find(id);
    StoreJob::Peer* const peer = job.find(id);
    if (!peer) return;
    try {
      std::string why;
      if (socket == sockets.end()) return drop(id, "its connection to the store was closed", Clock::now());
      const bool sent = send_out(*peer, socket->second, why);
      if (peer->closing) why = "it asked the store for more than it read";
      if (!why.empty()) return drop(id, why, Clock::now());
      const bool blocked = !sent;
      if (blocked != blocked_.contains(id)) {
        watch(epoll, EPOLL_CTL_MOD, socket->second.get(), blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, id);
        if (blocked)
          blocked_.insert(id);
        else
          blocked_.erase(id);
      }
    } catch (const std::exception& error) {
      drop(id, error.what(), Clock::now());
    }
  }

  /// Ranks that still listen get what there is to say.
  void finish() noexcept {
    flush();
    for (const Time end = Clock::now() + kLastWords; !sockets.empty() && Clock::now() < end;) {
      bool all = true;
      for (auto& [id, socket] : sockets) {
        StoreJob::Peer* const peer = job.find(id);
        std::string why;
        if (peer && !send_out(*peer, socket, why) && why.empty()) all = false;
      }
      if (all) break;
      std::this_thread::sleep_for(Milliseconds(5));
    }
    for (auto& [id, socket] : sockets) ::shutdown(socket.get(), SHUT_WR);
  }

  const Milliseconds patience;
  std::mutex mutex;  // guards all below but the descriptors
  std::condition_variable news;
  const Descriptor listener, epoll{::epoll_create1(EPOLL_CLOEXEC)}, wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Descriptor spare{::eventfd(0, EFD_CLOEXEC)};
  StoreJob job;
  std::unordered_map<uint64_t, Descriptor> sockets;
  std::set<uint64_t> blocked_;    // peers whose sockets are full
  std::vector<uint64_t> changed;  // peers to look at
  std::vector<char> buffer = std::vector<char>(size_t{64} << 10);
  bool stopping = false;
  std::thread thread;
};

StoreServer::StoreServer(StoreOptions options) : impl_(std::make_unique<Impl>(checked(options))) {}
StoreServer::~StoreServer() = default;

uint16_t StoreServer::port() const { return local_end(impl_->listener).port(); }

void StoreServer::restart(int generation) {
  const std::lock_guard lock(impl_->mutex);
  impl_->job.restart(generation, Clock::now());
  impl_->flush();
}

std::optional<Error> StoreServer::aborted() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->job.aborted();
}

}  // namespace reel::distributed
