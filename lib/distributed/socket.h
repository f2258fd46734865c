#pragma once
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/distributed/descriptor.h"

namespace reel::distributed {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

/// Of one end of a connection.
struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  std::string host() const;  ///< In numbers: "10.0.0.7", "fe80::1%eth0"; IPv4 also where it is mapped to IPv6.
  uint16_t port() const;
  void set_port(uint16_t port);
  bool is_loopback() const;
  bool operator==(const Address& other) const { return host() == other.host() && port() == other.port(); }
};
Address local_end(const Descriptor& socket);
Address remote_end(const Descriptor& socket);

/// Whether a host's name is one of this machine's loopback: "localhost", "127.0.0.1", "::1", …
bool names_loopback(const std::string& host);

/// Returns the addresses of a host: none if it has none, or if they are not known by the deadline. Then `why` says so,
/// unless it says what was wrong in an earlier try that had more time.
std::vector<Address> resolve(const std::string& host, Time deadline, std::string& why);

/// A socket (non-blocking, as all here, and closed by exec) that is connected, or none, and `why` says why.
Descriptor connect_to(const Address& address, Time deadline, std::string& why);

/// Listens at the first free of `ports` ports from `port` on, 0 for any; on loopback, or on all interfaces. Throws
/// Error.
Descriptor listen_at(const std::string& host, uint16_t port, int ports);

/// Small messages are to go at once, and to be sent again soon where the network was down for a moment.
void make_prompt(const Descriptor& socket);

/// Waits until the socket can be read or written, or the deadline; returns poll()'s events, 0 at the deadline.
short wait_for(const Descriptor& socket, short events, Time deadline);

/// A thread that leaves all signals to the program's own. Throws Error if there can be none.
std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace reel::distributed
