#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <random>

#include "lib/distributed/socket.h"
#include "lib/distributed/wire.h"
#include "reel/version.h"
#include "test/distributed/store_support.h"

// What strangers and broken programs send to a store's server: the job does not notice.

using namespace reel::distributed;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// A connection that says whatever the test wants.
struct Stranger {
  Descriptor socket;

  explicit Stranger(uint16_t port) {
    std::string why;
    const Time deadline = Clock::now() + 5s;
    Address address = resolve("127.0.0.1", deadline, why).at(0);
    address.set_port(port);
    socket = connect_to(address, deadline, why);
    INFO(why);
    REQUIRE(socket);
  }
  void say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && (errno != EAGAIN || !wait_for(socket, POLLOUT, Clock::now() + 2s))) return;  // it is refused
    }
  }
  // Whether the server ends the connection in time.
  bool is_ended(Milliseconds limit) {
    const Time deadline = Clock::now() + limit;
    char buffer[4096];
    while (wait_for(socket, POLLIN, deadline)) {
      const ssize_t got = ::recv(socket.get(), buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }
};

wire::Hello hello_of(int rank, int world) {
  wire::Hello hello;
  hello.token = std::string(wire::kTokenBytes, '\0');
  hello.run_id = "test";
  hello.version = reel::version();
  hello.rank = rank;
  hello.world_size = world;
  hello.host = "nowhere";
  return hello;
}

std::string with_length(uint32_t length, const std::string& rest) {
  std::string text;
  for (int i = 0; i < 4; ++i) text.push_back(static_cast<char>(length >> 8 * i));
  return text + rest;
}

void check_unaffected(StoreFixture& job) {
  static int round = 0;
  const std::string value = std::to_string(++round);
  Stopwatch watch;
  job[0].set("still here", value);
  CHECK(job[1].get("still here", 1s) == value);
  CHECK(watch.ms() < 500);
  CHECK_FALSE(job[0].aborted());
}

}  // namespace

TEST_CASE("garbage is refused, and the job goes on") {
  StoreFixture job(2);
  std::mt19937 random(1);
  const std::string good = hello_of(0, 2).frame();
  const std::vector<std::string> messages{
      "GET / HTTP/1.1\r\n\r\n",
      with_length(0, ""),
      with_length(4, "abcd"),
      with_length(257, std::string(257, 'x')),
      with_length(0xffffffff, "x"),
      with_length(64, std::string(64, '\x01')),
      with_length(64, std::string(64, '\x05')),
      good.substr(0, 20) + std::string(300, 'z'),
      wire::Writer(wire::Op::kSet).string("a").string("b").finish(),
      good + good,  // refused as a second rank 0
  };
  for (const std::string& message : messages) {
    Stranger stranger(job.options.port);
    stranger.say(message);
    CHECK(stranger.is_ended(1s));
  }
  for (int i = 0; i < 300; ++i) {
    std::string message = good;
    for (int j = 0; j < 3; ++j) message[4 + random() % (message.size() - 4)] = static_cast<char>(random());
    // Not one that would be let in, or is a rank of another world: those are tests of their own.
    message[message.size() - 4 - 7 - 4 - 8 - 4 - 4] = 0;
    Stranger(job.options.port).say(message.substr(0, random() % message.size()));
  }
  check_unaffected(job);
}

TEST_CASE("a frame of 16 GiB takes no memory") {
  StoreFixture job(2);
  std::string claim = "\x05";  // kSet
  claim += std::string(4, '\0') + with_length(0xffffffff, "key");
  Stranger stranger(job.options.port);
  stranger.say(with_length(0xfffffff0, claim));
  CHECK(stranger.is_ended(1s));
  check_unaffected(job);

  StoreFixture other(store_options(2), 1);  // the same from a rank
  Stranger rank(other.options.port);
  rank.say(hello_of(1, 2).frame() + with_length(0xfffffff0, claim));
  const auto reason = await_end(other[0]);
  REQUIRE(reason);
  CHECK(reason->kind == Error::kPeerLost);
  CHECK(reason->ranks == std::vector<int>{1});
  CHECK_THAT(std::string(reason->what()), Contains("rank 1") && Contains("nowhere") && Contains("no message"));
}

TEST_CASE("idle connections and slow ones are refused, and the job goes on") {
  StoreFixture job(store_options(3), 2);
  std::vector<Stranger> strangers;
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int count = limit.rlim_cur >= 2500 ? 1000 : 200;
  for (int i = 0; i < count; ++i) strangers.emplace_back(job.options.port);
  check_unaffected(job);
  Stopwatch watch;
  job.join(2);
  CHECK(watch.ms() < 1000);
  int ended = 0;
  for (int i = 0; i < count - 64; ++i) ended += strangers[static_cast<size_t>(i)].is_ended(100ms);
  CHECK(ended == count - 64);
  strangers.clear();

  Stranger slow(job.options.port);
  const std::string hello = hello_of(2, 3).frame();
  bool ended_slow = false;
  watch = {};
  for (size_t i = 0; i < hello.size() - 1 && !ended_slow; ++i) {
    slow.say(hello.substr(i, 1));
    ended_slow = slow.is_ended(100ms);
  }
  CHECK(ended_slow);
  CHECK(watch.ms() < 6000);
  check_unaffected(job);
}

TEST_CASE("a client that ends in the middle of a message is dead") {
  StoreFixture job(store_options(2), 1);
  {
    Stranger rank(job.options.port);
    const std::string set = wire::Writer(wire::Op::kSet).string("a").string(std::string(1 << 20, 'x')).finish();
    rank.say(hello_of(1, 2).frame() + set.substr(0, 100'000));
    std::this_thread::sleep_for(50ms);
    CHECK_FALSE(job[0].aborted());
  }
  const auto reason = await_end(job[0], 1s);
  REQUIRE(reason);
  CHECK(reason->kind == Error::kPeerLost);
  CHECK(reason->ranks == std::vector<int>{1});
  CHECK_THAT(std::string(reason->what()), Contains("rank 1") && Contains("died"));
}

TEST_CASE("a client that asks and does not read is dropped") {
  StoreFixture job(store_options(2), 1);
  job[0].set("large", std::string(size_t{16} << 20, 'x'));
  Stranger rank(job.options.port);
  rank.say(hello_of(1, 2).frame());
  for (int i = 0; i < 100; ++i) rank.say(wire::Writer(wire::Op::kGet).string("large").i64(0).finish());
  const auto reason = await_end(job[0], 5s);
  REQUIRE(reason);
  CHECK_THAT(std::string(reason->what()), Contains("rank 1") && Contains("more than it read"));
}

TEST_CASE("another version of reel ends the job, on all sides") {
  for (const bool other_protocol : {false, true}) {
    StoreFixture job(store_options(2), 1);
    wire::Hello hello = hello_of(1, 2);
    (other_protocol ? hello.protocol = 2 : 0);
    hello.version = "99.0.0";
    Stranger rank(job.options.port);
    rank.say(hello.frame());
    CHECK(rank.is_ended(1s));
    const auto reason = await_end(job[0], 1s);
    REQUIRE(reason);
    CHECK(reason->kind == Error::kMismatch);
    if (other_protocol)
      CHECK_THAT(std::string(reason->what()), Contains("protocol 2") && Contains("127.0.0.1"));
    else
      CHECK_THAT(std::string(reason->what()), Contains("99.0.0") && Contains(reel::version()) && Contains("rank 1"));
  }
}

TEST_CASE("whatever else listens at the server's port is no store") {
  const Descriptor listener = listen_at("127.0.0.1", 0, 1);
  StoreOptions options = store_options(1);
  options.port = local_end(listener).port();
  options.timeout = 500ms;
  const auto failure = [&](const std::string& answer) {
    std::atomic<bool> over = false;
    std::thread other([&] {
      while (!over) {
        if (!wait_for(listener, POLLIN, Clock::now() + 10ms)) continue;
        const Descriptor socket(::accept(listener.get(), nullptr, nullptr));
        ::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        std::this_thread::sleep_for(20ms);
      }
    });
    Stopwatch watch;
    const auto error = error_of([&] { connect_store(0, options); });
    CHECK(watch.ms() < 1000);
    over = true;
    other.join();
    return error ? std::string(error->what()) : "";
  };
  CHECK_THAT(failure("HTTP/1.1 400 Bad Request\r\n\r\n"), Contains("no store of reel"));
  CHECK_THAT(failure(""), Contains("closed the connection") || Contains("no answer"));
}

TEST_CASE("bytes of any kind never break the parts of a message") {
  std::mt19937 random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 4 ? random() % 8 : random());
    wire::Reader reader(bytes);
    try {
      switch (random() % 3) {
        case 0: reader.error(); break;
        case 1: wire::Hello::read(reader); break;
        default:
          reader.string(100);
          reader.u64();
          reader.end();
      }
    } catch (const wire::Malformed&) {
    }
  }
  const Error error(Error::kPeerLost, "text", {3, 5}, uint64_t{1} << 40);
  const std::string frame = wire::Writer(wire::Op::kAbort, 9).error(error).finish();
  wire::FrameBuffer buffer;
  for (const char c : frame + frame) buffer.append({&c, 1});
  for (int i = 0; i < 2; ++i) {
    wire::Reader reader(*buffer.next(1000));
    CHECK(reader.u8() == static_cast<uint8_t>(wire::Op::kAbort));
    CHECK(reader.u32() == 9);
    const Error same = reader.error();
    reader.end();
    CHECK(same.kind == error.kind);
    CHECK(same.ranks == error.ranks);
    CHECK(same.sequence == error.sequence);
    CHECK(std::string(same.what()) == "text");
  }
  CHECK_FALSE(buffer.next(1000));
}
