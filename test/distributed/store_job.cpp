#include "lib/distributed/store_job.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "reel/version.h"
#include "test/distributed/store_support.h"
#include "test/fuzz/store_target.h"

// The store's server without sockets, and with a clock of the test's own.

using namespace reel::distributed;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using wire::Op, wire::Reader, wire::Writer;

namespace {

struct World {
  StoreJob job;
  Time now{1h};
  std::vector<uint64_t> ids;

  explicit World(int ranks) : job(store_options(ranks, 2000)) {
    job.tick(now);
    for (int rank = 0; rank < ranks; ++rank) {
      wire::Hello hello;
      hello.token = std::string(wire::kTokenBytes, '\0');
      hello.run_id = "test";
      hello.version = reel::version();
      hello.rank = rank;
      hello.world_size = ranks;
      hello.process = static_cast<uint64_t>(rank);
      hello.host = "host" + std::to_string(rank);
      ids.push_back(job.open("10.0.0." + std::to_string(rank), "10.0.0.99", now).id);
      say(rank, hello.frame());
    }
  }
  StoreJob::Peer& peer(int rank) { return *job.find(ids[static_cast<size_t>(rank)]); }
  void say(int rank, const std::string& frame) { job.receive(peer(rank), frame, now); }
  // Time passes, and these ranks are alive.
  void pass(Milliseconds time, const std::vector<int>& alive) {
    for (const Time end = now + time; now < end; now += 50ms) {
      for (const int rank : alive) say(rank, Writer(Op::kBeat).string("step 9").finish());
      job.tick(now);
    }
  }
  std::string reason() const { return job.aborted() ? job.aborted()->what() : ""; }
};

}  // namespace

TEST_CASE("silent ranks are lost after a heartbeat and a little more") {
  World world(4);
  world.pass(10s, {0, 1, 2, 3});
  CHECK(world.reason() == "");
  world.pass(2s, {0, 1, 3});
  CHECK(world.reason() == "");
  world.pass(600ms, {0, 1, 3});
  CHECK_THAT(world.reason(), Contains("rank 2 (process 0 on host2)") && Contains("step 9") && !Contains("silent are"));
  CHECK(world.job.aborted()->ranks == std::vector<int>{2});
}

TEST_CASE("several silent ranks are named together") {
  World world(4);
  world.pass(1s, {0, 1, 2, 3});
  SECTION("two") {
    world.pass(3s, {1, 3});
    CHECK(world.job.aborted()->ranks == std::vector<int>{0, 2});
    CHECK_THAT(world.reason(), Contains("ranks 0 and 2") && !Contains("server's machine"));
  }
  SECTION("all") {
    world.pass(3s, {});
    CHECK(world.job.aborted()->ranks == std::vector<int>{0, 1, 2, 3});
    CHECK_THAT(world.reason(), Contains("perhaps it is the server's machine"));
  }
}

TEST_CASE("a server that was stopped itself blames nobody at once") {
  World world(2);
  world.pass(1s, {0, 1});
  world.now += 30s;
  world.job.tick(world.now);
  world.pass(300ms, {0});
  CHECK(world.reason() == "");
  world.pass(3s, {0, 1});
  CHECK(world.reason() == "");
  world.pass(3s, {1});
  CHECK(world.job.aborted()->ranks == std::vector<int>{0});
}

TEST_CASE("a server gives signs of life, but not to those who do not read") {
  World world(2);
  const auto drain = [&] {
    size_t bytes = 0;
    for (const uint64_t id : world.job.changed()) {
      StoreJob::Peer& peer = *world.job.find(id);
      peer.dirty = false;
      if (id != world.ids[0]) continue;
      bytes += peer.out_bytes;
      peer.out.clear();
      peer.out_bytes = 0;
    }
    return bytes;
  };
  drain();
  size_t pulses = 0;
  for (int i = 0; i < 20; ++i) {
    world.pass(500ms, {0, 1});
    pulses += drain() > 0;
  }
  CHECK(pulses >= 9);
  CHECK(world.peer(1).out.size() <= 3);
}

TEST_CASE("the address of the server's machine is known once a rank of another one has come") {
  World world(3);
  const auto answer = [&](int rank) {
    Reader fields(std::string_view(*world.peer(rank).out.back()).substr(4));
    fields.u8();
    fields.u32();
    fields.u8();
    return std::string(fields.string(100));
  };
  world.say(1, Writer(Op::kAddress, 1).i64(1000).finish());
  CHECK(answer(1) == "10.0.0.99");

  StoreJob job(store_options(2));
  wire::Hello hello;
  hello.token = std::string(wire::kTokenBytes, '\0');
  hello.run_id = "test";
  hello.version = reel::version();
  hello.world_size = 2;
  StoreJob::Peer& near = job.open("127.0.0.1", "", world.now);
  job.receive(near, hello.frame() + Writer(Op::kAddress, 1).i64(1000).finish(), world.now);
  const size_t before = near.out.size();
  hello.rank = 1;
  StoreJob::Peer& far = job.open("10.0.0.7", "10.0.0.5", world.now);
  job.receive(far, hello.frame(), world.now);
  REQUIRE(near.out.size() > before);
  CHECK_THAT(*near.out.back(), Contains("10.0.0.5"));
}

TEST_CASE("names of ranks and times in messages") {
  CHECK(name_ranks({4}) == "rank 4");
  CHECK(name_ranks({4, 5}) == "ranks 4 and 5");
  CHECK(list_ranks({1, 2, 3}) == "1, 2 and 3");
  std::vector<int> many(100);
  for (int i = 0; i < 100; ++i) many[static_cast<size_t>(i)] = i;
  CHECK_THAT(list_ranks(many), Contains("15 and 84 more"));
  CHECK(in_seconds(2500ms) == "2.5 s");
  CHECK(in_seconds(20ms) == "0.02 s");
}

// ---- the fuzzer's seeds ---------------------------------------------------------------------------------------------

TEST_CASE("a server survives its fuzzer's seeds, whole and damaged") {
  std::mt19937 random(1);
  int survived = 0;
  for (const std::string& seed : store_seeds()) {
    std::vector<uint8_t> bytes(seed.begin(), seed.end());
    survived += feed_store(bytes);
    for (size_t length = 0; length < bytes.size(); ++length) CHECK_NOTHROW(feed_store(std::span(bytes).first(length)));
    for (int i = 0; i < 1000; ++i) {
      std::vector<uint8_t> changed = bytes;
      for (int j = 0; j < 3; ++j) changed[random() % changed.size()] = static_cast<uint8_t>(random());
      CHECK_NOTHROW(feed_store(changed));
    }
  }
  CHECK(survived == 4);
  // test/fuzz/run begins with these files.
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("test/fuzz/seeds/store")) {
    std::ifstream file(entry.path(), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  for (const std::string& file : files)
    CHECK_NOTHROW(feed_store({reinterpret_cast<const uint8_t*>(file.data()), file.size()}));
  CHECK(files.size() == store_seeds().size());
}
