#include "lib/distributed/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>

#include "reel/distributed/error.h"

namespace reel::distributed {
namespace {

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

/// Without asking a name server.
bool parse_address(const std::string& host, Address& address) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return true;
}

/// Of a look-up that may take longer than anybody waits.
struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::vector<Address> addresses;
  std::string why;

  void run(const std::string& host) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const int error = errno;
    const std::lock_guard lock(mutex);
    if (failure)
      why = "cannot resolve " + host + ": " + (failure == EAI_SYSTEM ? std::strerror(error) : ::gai_strerror(failure));
    for (const addrinfo* a = found; a; a = a->ai_next) {
      Address& address = addresses.emplace_back();
      std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
      address.size = a->ai_addrlen;
    }
    if (found) ::freeaddrinfo(found);
    done = true;
    changed.notify_all();
  }
};

int milliseconds_until(Time deadline) {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(rest, 0, std::numeric_limits<int>::max()));
}

Descriptor try_listen(const Address& address) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // the last job's connections may be in TIME_WAIT
  if (address.storage.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      ::listen(socket.get(), 4096) != 0)
    return {};
  return socket;
}

}  // namespace

std::string Address::host() const {
  char text[NI_MAXHOST] = "";
  if (size == 0 || ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, text, sizeof text, nullptr, 0,
                                 NI_NUMERICHOST) != 0)
    return "?";
  constexpr const char* kMapped = "::ffff:";
  const bool mapped = std::strncmp(text, kMapped, std::strlen(kMapped)) == 0 && std::strchr(text, '.');
  return mapped ? text + std::strlen(kMapped) : text;
}

uint16_t Address::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

void Address::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

Address local_end(const Descriptor& socket) {
  Address address;
  address.size = sizeof address.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) address.size = 0;
  return address;
}

Address remote_end(const Descriptor& socket) {
  Address address;
  address.size = sizeof address.storage;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) address.size = 0;
  return address;
}

bool names_loopback(const std::string& host) {
  Address address;
  return host.empty() || host == "localhost" || (parse_address(host, address) && address.is_loopback());
}

std::vector<Address> resolve(const std::string& host, Time deadline, std::string& why) {
  if (Address address; parse_address(host, address)) return {address};
  // getaddrinfo() knows no deadline. A thread that takes longer has what it needs for itself.
  const auto lookup = std::make_shared<Lookup>();
  start_thread("reel-resolve", [lookup, host] {
    try {
      lookup->run(host);
    } catch (const std::exception&) {  // no memory: it looks as if there were no answer
    }
  }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->changed.wait_until(lock, deadline, [&] { return lookup->done; })) {
    // What was wrong before says more than that there is no time left.
    if (why.empty()) why = "cannot resolve " + host + ": no name server has answered";
    return {};
  }
  if (!lookup->why.empty()) why = lookup->why;
  return lookup->addresses;
}

void make_prompt(const Descriptor& socket) {
  set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);  // every 0.2 s, not after 0.2, 0.4, 0.8, 1.6 …
}

short wait_for(const Descriptor& socket, short events, Time deadline) {
  while (true) {
    pollfd poll = {.fd = socket.get(), .events = events, .revents = 0};
    const int ready = ::poll(&poll, 1, milliseconds_until(deadline));
    if (ready > 0) return poll.revents;
    if (ready == 0 && Clock::now() >= deadline) return 0;
    if (ready < 0 && errno != EINTR) return POLLERR;
  }
}

Descriptor connect_to(const Address& address, Time deadline, std::string& why) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int failure = errno;
  if (socket) {
    make_prompt(socket);
    failure = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) ? errno : 0;
  }
  if (failure == EINPROGRESS) {
    socklen_t size = sizeof failure;
    if (!wait_for(socket, POLLOUT, deadline))
      failure = ETIMEDOUT;
    else if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0)
      failure = errno;
  }
  // Where nobody listens, the kernel may choose the port of the other end for this one, which then talks to itself.
  if (!failure && local_end(socket) == remote_end(socket)) failure = ECONNREFUSED;
  if (!failure) return socket;
  why = std::strerror(failure);
  return {};
}

Descriptor listen_at(const std::string& host, uint16_t port, int ports) {
  std::vector<Address> addresses(1);
  if (!names_loopback(host)) {
    parse_address("::", addresses[0]);
    parse_address("0.0.0.0", addresses.emplace_back());  // where there is no IPv6
  } else if (!parse_address(host, addresses[0])) {
    parse_address("127.0.0.1", addresses[0]);
  }
  int failure = 0;
  for (int i = 0; i < std::max(ports, 1) && port + i <= 0xffff; ++i)
    for (Address& address : addresses) {
      address.set_port(static_cast<uint16_t>(port + i));
      if (Descriptor socket = try_listen(address)) return socket;
      failure = errno;
      if (failure == EADDRINUSE) break;  // also for the other kind of address
    }
  const std::string last = ports > 1 ? " to " + std::to_string(port + ports - 1) : "";
  throw Error(Error::kStoreLost, "store: cannot listen at " + host + ", port " + std::to_string(port) + last + ": " +
                                     std::strerror(failure));
}

std::thread start_thread(const char* name, std::function<void()> run) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  try {
    std::thread thread(std::move(run));
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    throw Error(Error::kStoreLost, std::string("store: cannot start a thread: ") + error.what());
  }
}

}  // namespace reel::distributed
