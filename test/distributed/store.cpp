#include <dirent.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>

#include "lib/distributed/socket.h"
#include "test/distributed/store_support.h"

using namespace reel::distributed;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

int open_descriptors() {
  int count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder)) ++count;
  ::closedir(folder);
  return count;
}

std::string message(const std::optional<Error>& error) { return error ? error->what() : "nothing was thrown"; }

}  // namespace

// ---- keys -----------------------------------------------------------------------------------------------------------

TEST_CASE("all ranks see the keys of a store") {
  StoreFixture job(2);
  job[0].set("a", "1");
  CHECK(job[1].get("a", 1s) == "1");
  CHECK(job[1].add("n", 5) == 5);
  CHECK(job[0].add("n", -7) == -2);
  CHECK(job[0].get("n", 0ms) == "-2");
  CHECK(job[0].compare_set("c", "", "x") == "x");
  CHECK(job[1].compare_set("c", "y", "z") == "x");
  CHECK(job[1].compare_set("c", "x", "z") == "z");
  CHECK(job[1].compare_set("d", "x", "z") == "");
  CHECK(job[0].erase("c"));
  CHECK_FALSE(job[0].erase("c"));
  std::string odd("\0\xff\n", 3);
  job[0].set(odd, odd);
  job[0].set("", "no name");
  CHECK(job[1].get(odd, 0ms) == odd);
  CHECK(job[1].get("", 0ms) == "no name");
}

TEST_CASE("a rank waits for the keys of others") {
  StoreFixture job(2);
  std::thread later([&] {
    for (const char* const key : {"c", "a", "b"}) {
      std::this_thread::sleep_for(30ms);
      job[1].set(key, std::string(1 << 20, *key));
    }
  });
  const std::vector<std::string> keys{"a", "b", "c", "a"};
  Stopwatch watch;
  job[0].wait(keys, 5s);
  CHECK(watch.ms() >= 60);
  CHECK(job[0].get("b", 0ms) == std::string(1 << 20, 'b'));
  job[0].wait({}, 0ms);
  later.join();
}

TEST_CASE("keys and values have limits") {
  StoreFixture job(1);
  const std::string key(4096, 'k'), value(size_t{16} << 20, 'v');
  job[0].set(key, value);
  CHECK(job[0].get(key, 1s) == value);
  CHECK(job[0].compare_set(key, value, value) == value);
  CHECK_THROWS_WITH(job[0].set(key + "k", ""), Contains("4097"));
  CHECK_THROWS_WITH(job[0].set("v", value + "v"), Contains("16777217"));
  job[0].set("word", "nine");
  CHECK_THROWS_WITH(job[0].add("word", 1), Contains("\"word\"") && Contains("\"nine\""));
  job[0].set("much", "9223372036854775807");
  CHECK_THROWS_WITH(job[0].add("much", 1), Contains("overflows"));
  CHECK(job[0].get("much", 0ms) == "9223372036854775807");
  // It is full, says so, and works on.
  std::string refusal;
  for (int i = 0; i < 80 && refusal.empty(); ++i) try {
      job[0].set("fill" + std::to_string(i), value);
    } catch (const reel::Error& error) {
      refusal = error.what();
    }
  CHECK_THAT(refusal, Contains("full"));
  CHECK(job[0].erase("fill0"));
  job[0].set("fill0", "small");
  CHECK_FALSE(job[0].aborted());
}

TEST_CASE("64 ranks race for keys") {
  constexpr int kRanks = 64, kRounds = 20;
  StoreFixture job(kRanks);
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      for (int round = 0; round < kRounds; ++round) {
        job[rank].add("sum", rank);
        const std::string mine = std::to_string(rank), name = "lock" + std::to_string(round);
        if (job[rank].compare_set(name, "", mine) == mine) ++winners;
      }
      job[rank].set("done" + std::to_string(rank), "");
    });
  std::vector<std::string> keys;
  for (int rank = 0; rank < kRanks; ++rank) keys.push_back("done" + std::to_string(rank));
  job[0].wait(keys, 20s);
  for (std::thread& thread : threads) thread.join();
  CHECK(winners == kRounds);
  CHECK(job[0].get("sum", 0ms) == std::to_string(kRounds * kRanks * (kRanks - 1) / 2));
}

TEST_CASE("a part of a store has keys of its own") {
  StoreFixture job(1);
  const auto part = prefix_store("part", job.members[0]);
  part->set("a", "1");
  CHECK(job[0].get("part/a", 0ms) == "1");
  CHECK(part->get("a", 0ms) == "1");
  CHECK(part->add("n", 2) == 2);
  CHECK(part->compare_set("c", "", "x") == "x");
  const std::vector<std::string> keys{"a", "n", "c"};
  part->wait(keys, 0ms);
  CHECK(part->erase("a"));
  CHECK_THROWS_WITH(part->get("a", 1ms), Contains("\"part/a\""));
  CHECK_THROWS_WITH(prefix_store("part", nullptr), Contains("no store"));
}

// ---- time -----------------------------------------------------------------------------------------------------------

TEST_CASE("a wait ends at its deadline and names what has not come") {
  StoreFixture job(store_options(3), 2);
  job[0].set("here", "");
  const std::vector<std::string> keys{"here", "gone", "away"};
  for (const int64_t limit : {0, 300}) {
    Stopwatch watch;
    const auto error = error_of([&] { job[0].wait(keys, Milliseconds(limit)); });
    CHECK(watch.ms() >= limit);
    CHECK(watch.ms() < limit + 500);
    REQUIRE(error);
    CHECK(error->kind == Error::kTimeout);
    CHECK(error->ranks == std::vector<int>{2});
    CHECK_THAT(message(error),
               Contains("\"gone\", \"away\"") && Contains("rank 2 has not joined") && !Contains("here"));
  }
  CHECK_FALSE(job[0].aborted());  // it is the caller who decides
  job[1].set("late", "1");
  CHECK(job[0].get("late", 1s) == "1");
}

TEST_CASE("ranks find a server that comes late") {
  uint16_t port = 0;
  {
    const StoreServer before(store_options(1));
    port = before.port();
  }
  StoreOptions options = store_options(1);
  options.port = port;
  std::shared_ptr<Member> member;
  std::thread client([&] { member = connect_store(0, options); });
  std::this_thread::sleep_for(300ms);
  const StoreServer server(options);
  client.join();
  REQUIRE(member);
  member->set("a", "1");
  member.reset();
}

TEST_CASE("a server that never comes is an error at the timeout") {
  StoreOptions options = store_options(2);
  {
    const StoreServer before(options);
    options.port = before.port();
  }
  options.timeout = 400ms;
  Stopwatch watch;
  const auto error = error_of([&] { connect_store(1, options); });
  CHECK(watch.ms() >= 400);
  CHECK(watch.ms() < 900);
  REQUIRE(error);
  CHECK(error->kind == Error::kTimeout);
  CHECK_THAT(message(error), Contains("rank 1") && Contains("127.0.0.1:" + std::to_string(options.port)) &&
                                 Contains("0.4 s") && Contains("refused"));
  // The last try, which has no time left, must not hide what the others have found.
  for (const char* const name : {"localhost", "127.0.0.2", "::1"}) {
    options.host = name;
    for (const auto timeout : {200ms, 333ms}) {
      options.timeout = timeout;
      CHECK_THAT(message(error_of([&] { connect_store(1, options); })),
                 Contains("refused") || Contains("Cannot assign requested address"));  // there is no IPv6
    }
  }
  options.host = "no-such-host.invalid";
  options.token = std::string(32, '0');
  CHECK_THAT(message(error_of([&] { connect_store(1, options); })), Contains("cannot resolve no-such-host.invalid"));
}

// ---- who is let in --------------------------------------------------------------------------------------------------

TEST_CASE("processes of another job are refused, and the job goes on") {
  StoreFixture job(store_options(2), 1);
  StoreOptions other = job.options;
  other.timeout = 300ms;
  const auto refused = [&](int rank) {
    const auto error = error_of([&] { connect_store(rank, other); });
    REQUIRE(error);
    CHECK_FALSE(job[0].aborted());
    return message(error);
  };
  SECTION("the same rank twice") {
    CHECK_THAT(refused(0), Contains("two of rank 0") && Contains("process " + std::to_string(::getpid())));
  }
  SECTION("another run") {
    other.run_id = "tomorrow";
    CHECK_THAT(refused(1), Contains("\"tomorrow\"") && Contains("\"test\""));
    other.run_id = std::string(5000, 'x');
    CHECK_THAT(refused(1), Contains("xxx#") && Contains("\"test\""));
  }
  SECTION("an old generation") {
    job.server->restart(3);
    const auto error = await_end(job[0]);
    REQUIRE(error);
    CHECK_THAT(message(error), Contains("generation 3") && Contains("generation 0"));
    job.members.clear();
    other.generation = 2;
    CHECK_THAT(message(error_of([&] { connect_store(1, other); })),
               Contains("generation 2") && Contains("generation 3"));
    job.options.generation = 3;
    job.join(0);
  }
  SECTION("a later generation waits for this one's end") {
    other.generation = 1;
    CHECK_THAT(refused(1), Contains("generation 1") && Contains("generation 0"));
    other.timeout = 10s;
    std::shared_ptr<Member> next;
    std::thread early([&] { next = connect_store(1, other); });
    std::this_thread::sleep_for(100ms);
    job.server->restart(1);
    early.join();
    CHECK(next);
    job.members = {next};
    job.options.generation = 1;
    job.join(0);
    std::swap(job.members[0], job.members[1]);
  }
  SECTION("nobody") {}
  if (job.members.size() == 1) job.join(1);
  job[0].set("a", "1");
  CHECK(job[1].get("a", 1s) == "1");
}

TEST_CASE("ranks that were started for another world end the job, on all sides") {
  StoreFixture job(store_options(2), 1);
  StoreOptions other = job.options;
  other.world_size = 3;
  const auto error = error_of([&] { connect_store(2, other); });
  CHECK_THAT(message(error), Contains("rank 2") && Contains("one of 3 ranks") && Contains("has 2"));
  const auto seen = await_end(job[0]);
  REQUIRE(seen);
  CHECK(seen->kind == Error::kMismatch);
  CHECK(message(seen) == message(error));
  CHECK(message(job.server->aborted()) == message(error));
  CHECK(message(error_of([&] { job.join(1); })) == message(error));  // also for those that come later
}

TEST_CASE("a token keeps strangers out") {
  StoreOptions options = store_options(1);
  options.host = "0.0.0.0";
  CHECK_THROWS_WITH(StoreServer(options), Contains("REEL_TOKEN") && Contains("openssl rand -hex 16"));
  options.token = "secret";
  CHECK_THROWS_WITH(StoreServer(options), Contains("32 hex digits") && Contains("6 characters") && !Contains("secret"));
  options.token = "0123456789abcdefABCDEF9876543210";
  const StoreServer server(options);
  options.port = server.port();
  options.host = "127.0.0.1";
  options.timeout = 2s;
  for (const std::string wrong : {"", "0123456789abcdefABCDEF9876543211"}) {
    StoreOptions stranger = options;
    stranger.token = wrong;
    const auto error = error_of([&] { connect_store(0, stranger); });
    CHECK_THAT(message(error), Contains("REEL_TOKEN") && !Contains("98765"));
  }
  const auto member = connect_store(0, options);
  CHECK_FALSE(server.aborted());
}

TEST_CASE("a server takes the first free port of some, and clients find it") {
  StoreOptions options = store_options(1);
  options.run_id = "first";
  const StoreServer first(options);
  options.port = first.port();
  options.ports = 50;
  options.run_id = "second";
  options.timeout = 5s;
  const StoreServer second(options);
  CHECK(second.port() > first.port());
  const auto member = connect_store(0, options);
  member->set("a", "1");
  options.ports = 1;
  CHECK_THROWS_WITH(StoreServer(options), Contains("Address already in use") && Contains(std::to_string(options.port)));
}

TEST_CASE("the address that others reach a rank at") {
  StoreFixture job(2);
  CHECK(local_address(job[0]) == "127.0.0.1");
  CHECK(names_loopback("localhost"));
  CHECK(names_loopback("::1"));
  CHECK_FALSE(names_loopback("10.0.0.1"));
}

// ---- the end of a job -----------------------------------------------------------------------------------------------

TEST_CASE("the first reason to abort reaches all ranks") {
  StoreFixture job(3);
  std::atomic<int> calls = 0, forgotten = 0;
  std::string told;
  job[2].on_abort([&](const Error& reason) {
    told = reason.what();
    ++calls;
  });
  job[2].forget_abort(job[2].on_abort([&](const Error&) { ++forgotten; }));
  std::optional<Error> waited;
  std::thread waiter([&] { waited = error_of([&] { job[1].get("never", 20s); }); });
  std::this_thread::sleep_for(50ms);
  job[0].abort(Error(Error::kMismatch, "this one", {0, 2}, 7));
  REQUIRE(job[0].aborted());
  job[1].abort(Error(Error::kAborted, "not this one"));
  waiter.join();
  for (int rank = 0; rank < 3; ++rank) {
    const auto reason = await_end(job[rank]);
    REQUIRE(reason);
    CHECK(message(reason) == "this one");
    CHECK(reason->kind == Error::kMismatch);
    CHECK(reason->ranks == std::vector<int>{0, 2});
    CHECK(reason->sequence == 7);
  }
  CHECK(message(waited) == "this one");
  CHECK(message(error_of([&] { job[2].set("a", ""); })) == "this one");
  CHECK(message(job.server->aborted()) == "this one");
  CHECK(message(error_of([&] { job.join(1); })) == "this one");
  job[2].on_abort([&](const Error&) { ++calls; });
  for (int i = 0; i < 1000 && calls < 2; ++i) std::this_thread::sleep_for(1ms);
  CHECK(calls == 2);
  CHECK(told == "this one");
  CHECK(forgotten == 0);
}

TEST_CASE("a rank that leaves is not a death, but others are told if they wait") {
  StoreFixture job(3);
  job[1].set_activity("step 7");
  job[1].leave();
  job[1].leave();
  CHECK(error_of([&] { job[1].set("a", ""); })->kind == Error::kAborted);
  job[0].set("a", "1");  // the others go on
  CHECK(job[2].get("a", 1s) == "1");
  const std::vector<Activity> all = job[0].activities();
  CHECK_THAT(all[1].what, Contains("left") && Contains("step 7"));
  std::optional<Error> error;
  Stopwatch watch;
  std::thread other([&] { error = error_of([&] { job[2].get("a key", 20s); }); });
  const auto own = error_of([&] { job[0].get("a key", 20s); });
  other.join();
  CHECK(watch.ms() < 2000);
  REQUIRE(own);
  REQUIRE(error);
  for (const auto& e : {*own, *error}) {
    CHECK(e.kind == Error::kPeerLost);
    CHECK(e.ranks == std::vector<int>{1});
    CHECK_THAT(std::string(e.what()), Contains("rank 1 left") && Contains("step 7") && Contains("\"a key\""));
  }
  CHECK_FALSE(job[0].aborted());
  // It may come again once all have left, and finds a new store.
  job.options.timeout = 300ms;
  CHECK_THAT(message(error_of([&] { job.join(1); })), Contains("ranks 0 and 2 not yet"));
  job.options.timeout = 10s;
  job[0].leave();
  job[2].leave();
  job.join(1);
  CHECK_THROWS(job.members.back()->get("a", 0ms));
}

TEST_CASE("a member that an exception destroys ends the job") {
  StoreFixture job(2);
  try {
    const auto mine = std::move(job.members[1]);
    throw std::runtime_error("a user's");
  } catch (const std::runtime_error&) {
  }
  const auto reason = await_end(job[0]);
  REQUIRE(reason);
  CHECK(reason->kind == Error::kAborted);
  CHECK(reason->ranks == std::vector<int>{1});
  CHECK_THAT(message(reason), Contains("rank 1") && Contains("exception"));
}

TEST_CASE("a member may be used after an exception was caught") {
  StoreFixture job(2);
  try {
    throw std::runtime_error("a user's");
  } catch (const std::runtime_error&) {
    job.members[1].reset();
  }
  std::this_thread::sleep_for(50ms);
  CHECK_FALSE(job[0].aborted());
}

TEST_CASE("a server waits for ranks that leave a little later than its own") {
  StoreFixture job(2);
  std::thread late([&] {
    std::this_thread::sleep_for(100ms);
    CHECK_FALSE(job[1].aborted());
    job[1].leave();
  });
  // Both are in the server's process here, so neither is its own: all of them are.
  job[0].leave();
  late.join();
  job.server.reset();
  CHECK_FALSE(job[0].aborted());
  CHECK_FALSE(job[1].aborted());
}

TEST_CASE("a server that ends before the ranks have left tells them") {
  StoreFixture job(2);
  Stopwatch watch;
  job.server.reset();
  CHECK(watch.ms() < 1000);
  const auto reason = await_end(job[1]);
  REQUIRE(reason);
  CHECK_THAT(message(reason), Contains("rank 0, which hosts the store, left"));
  CHECK_THROWS(job[1].get("a", 10s));
}

TEST_CASE("activities say what every rank does at this moment") {
  StoreFixture job(store_options(4, 10'000), 3);
  job[0].set_activity("all_reduce 12 of group 0");
  job[1].set_activity("user code");
  job[2].set_activity(std::string(1000, 'x'));
  for (int round = 0; round < 3; ++round) {
    job[1].set_activity("round " + std::to_string(round));
    Stopwatch watch;
    const std::vector<Activity> all = job[1].activities();
    CHECK(watch.ms() < 400);
    REQUIRE(all.size() == 4);
    CHECK(all[0].what == "all_reduce 12 of group 0");
    CHECK(all[1].what == "round " + std::to_string(round));
    CHECK(all[2].what == std::string(120, 'x'));
    CHECK(all[3].what == "has not joined");
    for (int rank = 0; rank < 4; ++rank) CHECK(all[static_cast<size_t>(rank)].rank == rank);
    for (int rank = 0; rank < 3; ++rank) CHECK(all[static_cast<size_t>(rank)].silence < 500ms);
    std::this_thread::sleep_for(40ms);
  }
}

// ---- resources ------------------------------------------------------------------------------------------------------

TEST_CASE("100 rendezvous leave no descriptor behind") {
  const auto rendezvous = [] {
    StoreFixture job(store_options(3));
    for (int rank = 0; rank < 3; ++rank) job[rank].set(std::to_string(rank), "");
    const std::vector<std::string> keys{"0", "1", "2"};
    for (int rank = 0; rank < 3; ++rank) job[rank].wait(keys, 5s);
    if (rand() % 2) job[0].abort(Error(Error::kAborted, "enough"));
  };
  rendezvous();
  const int before = open_descriptors();
  for (int i = 0; i < 100; ++i) rendezvous();
  CHECK(open_descriptors() == before);
}
