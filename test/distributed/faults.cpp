#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <thread>

#include "lib/distributed/engine.h"
#include "reel/distributed/collectives.h"
#include "reel/ops.h"
#include "test/distributed/processes.h"

using namespace reel;
using namespace reel::distributed;
using namespace std::chrono_literals;
using ranks::concat, ranks::expect;
using Clock = std::chrono::steady_clock;

namespace {

Tensor floats(const Shape& shape) { return zeros(shape, {.dtype = kFloat32}); }

/// What f throws.
distributed::Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const distributed::Error& error) {
    return error;
  }
  throw std::runtime_error("no Error was thrown");
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

void expect_error(const distributed::Error& error, distributed::Error::Kind kind, const std::vector<int>& blamed,
                  const std::vector<std::string>& parts) {
  expect(error.kind == kind, "kind ", error.kind, ", expected ", kind, ": ", error.what());
  expect(error.ranks == blamed, "other ranks to blame (", error.ranks.size(), "): ", error.what());
  for (const std::string& part : parts) expect(contains(error.what(), part), "no \"", part, "\" in: ", error.what());
}

/// The call of each rank, and what the message must print of it.
struct Mismatch {
  std::function<void()> calls[2];
  std::string prints[2];
};

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {{[] { all_reduce(floats({3})); }, [] { all_reduce(floats({4})); }},
       {"all_reduce(float32 [3], sum)", "all_reduce(float32 [4], sum)"}},
      {{[] { all_reduce(floats({1 << 20})); }, [] { all_reduce(floats({1 << 19})); }}, {"[1048576]", "[524288]"}},
      {{[] { all_reduce(floats({3})); }, [] { all_reduce(zeros({3}, {.dtype = kInt64})); }}, {"float32", "int64"}},
      {{[] { all_reduce(floats({3})); }, [] { all_reduce(floats({3}), ReduceOp::kMax); }}, {"sum", "max"}},
      {{[] { all_reduce(floats({3})); }, [] { broadcast(floats({3}), 0); }}, {"all_reduce", "broadcast"}},
      {{[] { broadcast(floats({3}), 0); }, [] { broadcast(floats({3}), 1); }}, {"root 0", "root 1"}},
      {{[] { barrier(); }, [] { all_gather(floats({2})); }}, {"barrier()", "all_gather(float32 [2])"}},
      {{[] { broadcast_object("x", 0); }, [] { all_gather_object("x"); }}, {"broadcast_object", "all_gather_object"}},
  };
  return all;
}

void check_mismatch(int rank, size_t number) {
  const Mismatch& mismatch = mismatches()[number];
  barrier();
  const auto error = error_of(mismatch.calls[rank]);
  expect_error(error, distributed::Error::kMismatch, {0, 1},
               {mismatch.prints[0], mismatch.prints[1], "rank 0", "rank 1"});
  expect(error.sequence == 2, "sequence ", error.sequence);
  // The group has ended.
  const auto again = error_of([] { barrier(); });
  expect(std::string(again.what()) == error.what(), "another error afterwards: ", again.what());
}

}  // namespace

TEST_CASE("ranks of threads that make different calls", "[threads]") {
  for (size_t i = 0; i < mismatches().size(); ++i) {
    INFO("mismatch " << i);
    ranks::threads(2, [&](int rank) { check_mismatch(rank, i); });
  }
}

TEST_CASE("a rank of different calls", "[.rank]") {
  ranks::run_rank([](int rank) { check_mismatch(rank, static_cast<size_t>(std::atoi(std::getenv("TEST_NUMBER")))); });
}
TEST_CASE("ranks of processes that make different calls") {
  for (const int i : {1, 4}) {
    INFO("mismatch " << i);
    ranks::Processes job(2, "a rank of different calls", {.variables = {concat("TEST_NUMBER=", i)}});
    job.succeed(10s);
  }
}

TEST_CASE("the rank that makes another call than the rest is named") {
  ranks::threads(4, [](int rank) {
    const auto error = error_of([&] { all_reduce(floats({rank == 2 ? 5 : 6})); });
    expect_error(error, distributed::Error::kMismatch, {2}, {"ranks 0, 1, 3: all_reduce(float32 [6]", "rank 2: all"});
  });
  ranks::threads(3, [](int rank) {
    std::vector<Tensor> ins(3, floats({2})), outs(3, Tensor());
    for (Tensor& out : outs) out = floats({2});
    if (rank == 1) ins[2] = floats({3});
    const auto error = error_of([&] { all_to_all(outs, ins); });
    expect_error(error, distributed::Error::kMismatch, {1}, {"all_to_all, call 1 of group 0: rank 1 sends rank 2"});
  });
}

// ---- messages -------------------------------------------------------------------------------------------------------

namespace {
void check_wrong_message(int rank) {
  if (rank == 0) {
    const auto error = error_of([] {
      send(zeros({8}, {.dtype = kInt64}), 1, 5);
      barrier();
    });
    expect_error(error, distributed::Error::kMismatch, {0}, {"8 of int64"});
  } else {
    const auto error = error_of([] { recv(floats({4}), 0, 5); });
    expect_error(error, distributed::Error::kMismatch, {0}, {"recv of 4 elements of float32 with tag 5", "8 of int64"});
  }
}
}  // namespace
TEST_CASE("a message of another size between threads", "[threads]") { ranks::threads(2, check_wrong_message); }
TEST_CASE("a rank of a wrong message", "[.rank]") { ranks::run_rank(check_wrong_message); }
TEST_CASE("a message of another size over Gloo") { ranks::Processes(2, "a rank of a wrong message").succeed(10s); }

// ---- time -----------------------------------------------------------------------------------------------------------

namespace {
void check_late(int rank) {
  barrier();
  const auto begin = Clock::now();
  if (rank == 1) {
    std::this_thread::sleep_for(2500ms);
    const auto error = error_of([] { all_reduce(floats({3})); });
    expect_error(error, distributed::Error::kTimeout, {1}, {"all_reduce 2 of group 0", "no rank 1"});
  } else {
    const auto error = error_of([] { all_reduce(floats({3})); });
    const auto time = Clock::now() - begin;
    expect_error(error, distributed::Error::kTimeout, {1},
                 {"all_reduce 2 of group 0 took longer than 1 s", "no rank 1", "rank 1 at user code"});
    expect(time > 800ms && time < 2000ms, "after ", std::chrono::duration<double>(time).count(), " s");
  }
}
const ProcessGroupOptions kQuick = {.backend = Backend::kGloo, .timeout = 1000ms};
}  // namespace
TEST_CASE("a thread that does not come in time", "[threads]") {
  ProcessGroupOptions options = kQuick;
  options.backend = kThreadBackend;
  ranks::threads(2, check_late, options);
}
TEST_CASE("a rank that is late", "[.rank]") { ranks::run_rank(check_late, kQuick); }
TEST_CASE("a process that does not come in time") { ranks::Processes(2, "a rank that is late").succeed(10s); }

TEST_CASE("a message that nobody sends") {
  ranks::threads(2,
                 [](int rank) {
                   // A message that nobody waits for is no error, and neither is one that nobody receives.
                   const Work unasked = default_group().recv(floats({3}), 1 - rank, 9);
                   std::this_thread::sleep_for(400ms);
                   barrier();
                   expect(!unasked.done(), "done");
                   const auto error = error_of([&] { recv(floats({3}), 1 - rank, 8); });
                   expect(error.kind == distributed::Error::kTimeout && contains(error.what(), "recv from rank"),
                          error.what());
                 },
                 {.timeout = 300ms});
}

TEST_CASE("a monitored barrier names who has not come") {
  ranks::threads(3, [](int rank) {
    monitored_barrier(5s);
    if (rank == 1) std::this_thread::sleep_for(600ms);
    const auto error = error_of([] { monitored_barrier(200ms); });
    expect_error(error, distributed::Error::kTimeout, {1}, {"monitored_barrier 2 of group 0", "no rank 1"});
  });
}

TEST_CASE("a rank that never comes is named") {
  auto members = thread_members(3);
  std::vector<std::thread> threads;
  std::vector<std::string> thrown(2);
  for (const int rank : {0, 2})
    threads.emplace_back([&, rank] {
      std::string& text = thrown[static_cast<size_t>(rank / 2)];
      try {
        init_process_group(members[static_cast<size_t>(rank)], {.rendezvous = 300ms});
        text = "no error";
      } catch (const distributed::Error& error) {
        if (error.kind != distributed::Error::kTimeout || error.ranks != std::vector<int>{1}) text = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(thrown == std::vector<std::string>(2));
}

// ---- who gives up, leaves or dies -----------------------------------------------------------------------------------

TEST_CASE("the reason of a rank that gives up") {
  ranks::threads(3, [](int rank) {
    barrier();
    if (rank == 1) {
      default_group().abort("no more examples");
    } else {
      const auto error = error_of([] { all_reduce(floats({1000})); });
      expect_error(error, distributed::Error::kAborted, {1}, {"rank 1 ended the job: no more examples"});
    }
    const auto error = error_of([] { barrier(); });
    expect_error(error, distributed::Error::kAborted, {1}, {"rank 1 ended the job: no more examples"});
  });
}

namespace {
void check_leaving(int rank) {
  barrier();
  if (rank == 1) return;
  const auto begin = Clock::now();
  const auto error = error_of([] { all_reduce(floats({3})); });
  expect_error(error, distributed::Error::kPeerLost, {1}, {"rank 1 left"});
  expect(Clock::now() - begin < 3s, "late");
}
}  // namespace
TEST_CASE("a thread that leaves early", "[threads]") { ranks::threads(2, check_leaving); }
TEST_CASE("a rank that leaves early", "[.rank]") { ranks::run_rank(check_leaving); }
TEST_CASE("a process that leaves early") { ranks::Processes(3, "a rank that leaves early").succeed(10s); }

TEST_CASE("a rank of a fault", "[.rank]") {
  const std::string_view where = std::getenv("TEST_WHERE");
  ranks::run_rank([&](int rank) {
    const Tensor large = floats({1 << 20});
    const auto step = [&] {
      if (where == "barrier")
        barrier();
      else
        all_reduce(large);
    };
    for (int i = 0; i < 3; ++i) step();
    ranks::say("ready");
    if (rank == std::atoi(std::getenv("TEST_VICTIM")) && where == "user code") std::this_thread::sleep_for(3s);
    const auto error = error_of([&] {
      while (true) step();
    });
    ranks::say(concat("kind ", error.kind, " blames ", error.ranks.empty() ? -1 : error.ranks[0], ": ", error.what()));
    if (where == "barrier") std::this_thread::sleep_for(1s);  // who holds the group tells the others all the same
    throw distributed::Error(error);
  });
}

namespace {
/// What survivors say within the time, when `victim` has got a signal.
void check_fault(int world, int victim, const char* where, int signal, Milliseconds limit) {
  INFO("signal " << signal << " of rank " << victim << " in " << where);
  ranks::Processes job(world, "a rank of a fault",
                       {.variables = {concat("TEST_WHERE=", where), concat("TEST_VICTIM=", victim)}});
  for (int rank = 0; rank < world; ++rank) job.wait_for(rank, "ready");
  const auto begin = Clock::now();
  REQUIRE(kill(job.pid(victim), signal) == 0);
  for (int rank = 0; rank < world; ++rank)
    if (rank != victim) job.wait_for(rank, "kind");
  CHECK(Clock::now() - begin < limit);
  for (int rank = 0; rank < world; ++rank) {
    if (rank == victim) continue;
    CHECK(job.wait(rank) == 3);
    CHECK_THAT(job.output(rank), Catch::Contains(concat("kind ", distributed::Error::kPeerLost, " blames ", victim)));
  }
  if (signal == SIGSTOP) {
    REQUIRE(kill(job.pid(victim), SIGCONT) == 0);
    CHECK(job.wait(victim) == 3);
    CHECK_THAT(job.output(victim), Catch::Contains("expelled"));
  } else {
    CHECK(job.wait(victim) == 128 + signal);
  }
}
}  // namespace

TEST_CASE("a rank that dies before the others meet", "[.rank]") {
  if (std::atoi(std::getenv("TEST_RANK")) == 1) {
    const auto member = ranks::member_of_process();
    ranks::say("ready");
    std::this_thread::sleep_for(30s);
  }
  ranks::say("ready");
  ranks::run_rank([](int) {});
}
TEST_CASE("a process that is killed in the rendezvous") {
  ranks::Processes job(3, "a rank that dies before the others meet");
  for (int rank = 0; rank < 3; ++rank) job.wait_for(rank, "ready");
  std::this_thread::sleep_for(50ms);
  const auto begin = Clock::now();
  REQUIRE(kill(job.pid(1), SIGKILL) == 0);
  for (const int rank : {0, 2}) {
    CHECK(job.wait(rank, 5s) == 3);
    CHECK_THAT(job.output(rank), Catch::Contains("rank 1"));
  }
  CHECK(Clock::now() - begin < 3s);
}

namespace {
/// A store that a rank is not seen to leave: it answers for one key only when it is told to.
class Slow : public Store {
 public:
  Slow(std::shared_ptr<Store> store, std::string key, std::future<void> release)
      : store_(std::move(store)), key_(std::move(key)), release_(std::move(release)) {}
  void set(std::string_view key, std::string_view value) override { store_->set(key, value); }
  std::string get(std::string_view key, Milliseconds timeout) override {
    if (key == key_) release_.wait();
    return store_->get(key, timeout);
  }
  int64_t add(std::string_view key, int64_t amount) override { return store_->add(key, amount); }
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    return store_->compare_set(key, expected, desired);
  }
  void wait(std::span<const std::string> keys, Milliseconds timeout) override { store_->wait(keys, timeout); }
  bool erase(std::string_view key) override { return store_->erase(key); }

 private:
  std::shared_ptr<Store> store_;
  std::string key_;
  std::future<void> release_;
};
}  // namespace

TEST_CASE("a rank that waits for another's connection can be interrupted") {
  for (int i = 0; i < 4; ++i) {  // which of them listens is chance
    const auto members = thread_members(2);
    std::promise<void> release;
    const auto slow = std::make_shared<Slow>(members[1], "gloo/0", release.get_future());
    const auto ignore = [](std::function<void()>) {};
    std::thread other([&] {
      try {
        make_gloo_engine(slow, 1, 2, {.rendezvous = 20s}, "127.0.0.1", ignore);
      } catch (const std::exception&) {
      }
    });
    std::thread interrupter;
    const auto begin = Clock::now();
    bool thrown = false;
    try {
      make_gloo_engine(members[0], 0, 2, {.rendezvous = 20s}, "127.0.0.1", [&](std::function<void()> interrupt) {
        if (interrupt)
          interrupter = std::thread([interrupt] {
            std::this_thread::sleep_for(100ms);
            interrupt();
          });
      });
    } catch (const std::exception&) {
      thrown = true;
    }
    const auto time = Clock::now() - begin;
    interrupter.join();
    release.set_value();
    other.join();
    INFO("thrown: " << thrown);
    CHECK(time < 2s);
  }
}

TEST_CASE("a process that is killed") {
  check_fault(3, 0, "all_reduce", SIGKILL, 3s);
  check_fault(3, 2, "barrier", SIGKILL, 3s);
  check_fault(2, 1, "user code", SIGKILL, 3s);
}
TEST_CASE("a process that is stopped") {
  check_fault(3, 2, "all_reduce", SIGSTOP, 3s);
  check_fault(2, 0, "user code", SIGSTOP, 3s);
}

// ---- many threads ---------------------------------------------------------------------------------------------------

TEST_CASE("ranks that name different backends", "[threads]") {
  const auto members = thread_members(2);
  std::vector<std::string> thrown(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        init_process_group(members[rank], {.backend = rank ? Backend::kGloo : kThreadBackend, .rendezvous = 5s});
        barrier();
      } catch (const std::exception& error) {
        thrown[rank] = error.what();
      }
      destroy_process_group();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& what : thrown)
    CHECK_THAT(what, Catch::Matchers::Contains("kThreads on rank 0") && Catch::Matchers::Contains("kGloo on rank 1"));
}

TEST_CASE("64 threads that come at different times", "[threads]") {
  const int world = 64;
  ranks::threads(world, [](int rank) {
    uint32_t x = static_cast<uint32_t>(rank) + 1;
    const auto delay = [&] {
      x = x * 1664525 + 1013904223;
      if (x >> 30 == 0) std::this_thread::sleep_for(std::chrono::microseconds((x >> 16) % 1000));
    };
    const auto four = new_group(std::vector<int>{0, 2, 4, 6});
    for (int i = 0; i < 10; ++i) {
      delay();
      const Tensor t = full({5}, rank, {.dtype = kFloat32});
      const Work work = default_group().all_reduce(t);
      delay();
      if (four) {
        const Tensor s = full({5}, rank, {.dtype = kFloat32});
        four->all_reduce(s).wait();
        expect(s[0].item<int>() == 12, "of a group");
      }
      work.wait();
      expect(t[4].item<int>() == world * (world - 1) / 2, "of all");
      const Tensor in = floats({2});
      const Work sent = default_group().send(full({2}, rank, {.dtype = kFloat32}), (rank + 1) % world);
      recv(in, (rank + world - 1) % world);
      expect(in[0].item<int>() == (rank + world - 1) % world, "message");
      sent.wait();
      delay();
      if (i % 4 == 0) barrier();
    }
  });
}
