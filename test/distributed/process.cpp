#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "reel/distributed/collectives.h"
#include "reel/ops.h"
#include "test/distributed/processes.h"

using namespace reel;
using namespace reel::distributed;
using namespace std::chrono_literals;
using ranks::concat, ranks::expect;

namespace {

int sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    count += target.starts_with("socket:");
  }
  return count;
}

int threads() { return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {})); }

}  // namespace

TEST_CASE("a rank of the environment", "[.rank]") {
  const int world = std::atoi(std::getenv("TEST_WORLD")), before = sockets();
  // Others look for the store where there is none yet, or another job's, for longer than one round.
  if (std::getenv("TEST_LATE") && std::getenv("TEST_RANK") == std::string("0"))
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  CHECK_FALSE(is_initialized());
  CHECK(distributed::rank() == std::atoi(std::getenv("TEST_RANK")));
  CHECK(local_rank() == distributed::rank());
  CHECK(world_size() == world);
  CHECK_FALSE(is_initialized());
  const Tensor t = full({2}, distributed::rank(), {.dtype = kFloat32});
  all_reduce(t);
  CHECK(t[0].item<int>() == world * (world - 1) / 2);
  CHECK(is_initialized());
  CHECK(default_group().backend() == Backend::kGloo);
  CHECK(default_group().timeout() == 77500ms);
  CHECK_THROWS_WITH(init_process_group(), Catch::Contains("already"));
  if (world == 1) CHECK(sockets() == before);
  if (std::getenv("TEST_DESTROY")) {
    new_group(std::vector<int>{world - 1, 0})->barrier();
    destroy_process_group();
    CHECK_FALSE(is_initialized());
    CHECK(sockets() == before);
  }  // otherwise at the end of the program
}

TEST_CASE("a job that the environment describes") {
  std::vector<std::string> variables = {"REEL_DIST_TIMEOUT=77.5", "REEL_DIST_HEARTBEAT=3"};
  SECTION("whose store rank 0 hosts, where another listens at its port") {}
  SECTION("whose store comes late") { variables.push_back("TEST_LATE=1"); }
  SECTION("that is destroyed") { variables.push_back("TEST_DESTROY=1"); }
  bool hosted = false;
  SECTION("whose store is hosted") { hosted = true; }
  SECTION("on a network interface") { variables.push_back("REEL_IFNAME=lo"); }
  SECTION("without checks") { variables.push_back("REEL_DIST_CHECK=0"); }
  ranks::Processes job(2, "a rank of the environment", {.variables = variables, .hosted = hosted});
  job.succeed(10s);
}

TEST_CASE("a world of one has no socket") {
  ranks::Processes job(1, "a rank of the environment", {.variables = {"REEL_DIST_TIMEOUT=77.5"}});
  job.succeed(10s);
}

TEST_CASE("variables that are malformed") {
  for (const char* value : {"abc", "-1", "0", "1e30", "5s"}) {
    ranks::Processes job(1, "a rank of the environment", {.variables = {concat("REEL_DIST_TIMEOUT=", value)}});
    CHECK(job.wait(0) != 0);
    CHECK_THAT(job.output(0), Catch::Contains(concat("REEL_DIST_TIMEOUT=", value, ": expected a number")));
  }
}

TEST_CASE("a rank with other checks", "[.rank]") {
  if (std::atoi(std::getenv("TEST_RANK")) == 1) setenv("REEL_DIST_CHECK", "0", 1);
  ranks::run_rank([](int) { barrier(); });
}
TEST_CASE("REEL_DIST_CHECK that differs between ranks") {
  ranks::Processes job(2, "a rank with other checks");
  for (const int rank : {0, 1}) {
    CHECK(job.wait(rank) == 3);
    CHECK_THAT(job.output(rank), Catch::Contains("checks are on on rank 0 and off on rank 1"));
  }
}

TEST_CASE("groups that come and go leave no threads") {
  const int before = threads();
  for (int i = 0; i < 20; ++i) ranks::threads(3, [](int) { new_group(std::vector<int>{0, 1, 2})->barrier(); });
  CHECK(threads() <= before + 1);  // one may end just now
}

TEST_CASE("a rank of many groups", "[.rank]") {
  ranks::run_rank([](int) {
    barrier();
    int sockets_after_first = 0, threads_after_first = 0;
    for (int i = 0; i < 20; ++i) {
      const auto group = new_group(std::vector<int>{0, 1});
      const Tensor t = ones({10});
      group->all_reduce(t).wait();
      expect(t[9].item<int>() == 2, "sum");
      if (i == 2) sockets_after_first = sockets(), threads_after_first = threads();
      if (i > 2) {
        expect(sockets() <= sockets_after_first + 4, sockets(), " sockets after ", i);
        expect(threads() <= threads_after_first + 4, threads(), " threads after ", i);
      }
    }
  });
}
TEST_CASE("groups over Gloo are closed") { ranks::Processes(2, "a rank of many groups").succeed(); }
