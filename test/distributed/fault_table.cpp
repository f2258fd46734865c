// What becomes of a training job when a rank dies, stops or does not come, at each place where it may be. The
// environment describes the job, and rank 0 hosts its store: its end is the store's.
#include <signal.h>
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "reel/distributed/collectives.h"
#include "test/distributed/models.h"
#include "test/distributed/processes.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;
using namespace std::chrono_literals;
using ranks::concat, ranks::expect;

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBound = 3s;  // of what the heartbeat of 2 s is to notice

/// Returns the variable of the environment that the test has set for its ranks.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (!value) throw std::runtime_error(concat(name, " is not set"));
  return value;
}
int number(const char* name) { return std::stoi(variable(name)); }

/// The victim's end.
void end_here() {
  ranks::say("dying");
  kill(getpid(), number("TEST_SIGNAL"));
  // Stopped, not killed: it goes on when it is continued.
}

void end_later(Milliseconds delay) {
  std::thread([delay] {
    std::this_thread::sleep_for(delay);
    end_here();
  }).detach();
}

/// A part of a checkpoint that takes its time, and may be the last that is seen of its rank.
struct Slow {
  bool is_last;
  StateDict state_dict() const {
    std::this_thread::sleep_for(100ms);
    if (is_last) end_here();
    return {};
  }
  void load_state_dict(const StateDict&) {}
};

/// Trains until an Error ends it.
void train(std::string_view where, bool is_victim) {
  if (where == "rendezvous") {
    // Rank 1 does not come.
    if (rank() == 1) {
      std::this_thread::sleep_for(30s);
      std::_Exit(1);
    }
    if (is_victim) end_later(1500ms);  // the third rank is there by then
    init_process_group();
  }
  Mlp net;
  DistributedDataParallel ddp(net, {.bucket_bytes = 64, .first_bucket_bytes = 64});
  const Tensor large = zeros({1 << 22});
  const auto train_step = [&](int step) {
    if (is_victim && step == 3 && (where == "forward" || where == "join")) end_here();
    net.loss(rank() + step).backward();
  };
  if (where == "join") {
    const auto guard = ddp.join();
    for (int step = 1; rank() != 1 || step <= 2; ++step) train_step(step);
  }
  for (int step = 1;; ++step) {
    train_step(step);
    if (step != 3) continue;
    if (where == "all_reduce") {
      const Work work = default_group().all_reduce(large);
      if (is_victim) end_here();
      work.wait();
    } else if (where == "barrier") {
      if (is_victim)
        end_later(50ms);
      else
        std::this_thread::sleep_for(150ms);
      barrier();
    } else if (where == "save") {
      const auto file = std::filesystem::temp_directory_path() / concat("reel-fault-", getpid());
      Slow slow{is_victim};
      if (rank() == 0) io::Checkpoint().add("model", net).add("slow", slow).save(file);
      if (is_victim) end_here();
      std::filesystem::remove(file);
      barrier();
    }
  }
}

/// A job of which a rank gets a signal.
struct Job {
  std::string where;
  int world, victim, signal = SIGKILL;
  std::unique_ptr<ranks::Processes> processes = {};

  void start() {
    processes = std::make_unique<ranks::Processes>(
        world, "a rank of the table of faults",
        ranks::Processes::Options{.variables = {concat("TEST_WHERE=", where), concat("TEST_VICTIM=", victim),
                                                concat("TEST_SIGNAL=", signal), "REEL_DIST_HEARTBEAT=2"}});
  }
  /// All others name the victim in time, and hold their groups.
  void check() {
    INFO("signal " << signal << " of rank " << victim << " in " << where);
    processes->wait_for(victim, "dying");
    const auto begin = Clock::now();
    const auto is_there = [&](int rank) { return rank != 1 || where != "rendezvous"; };
    for (int rank = 0; rank < world; ++rank)
      if (rank != victim && is_there(rank)) processes->wait_for(rank, "lost");
    CHECK(Clock::now() - begin < kBound);
    if (signal == SIGSTOP) REQUIRE(kill(processes->pid(victim), SIGCONT) == 0);
    for (int rank = 0; rank < world; ++rank) {
      if (!is_there(rank)) continue;
      const int code = processes->wait(rank);
      CAPTURE(rank, processes->output(rank));
      CHECK(code == (rank == victim && signal == SIGKILL ? 128 + SIGKILL : 3));
    }
  }
};

}  // namespace

TEST_CASE("a rank of the table of faults", "[.rank]") {
  const std::string where = variable("TEST_WHERE");
  const int victim = number("TEST_VICTIM");
  try {
    train(where, rank() == victim);
  } catch (const distributed::Error& error) {
    const std::string text = error.what();
    ranks::say(concat("lost ", text));
    if (rank() == victim) {
      std::_Exit(text.find("expelled") != text.npos || text.find("gave up") != text.npos ? 3 : 5);
    }
    if (error.ranks != std::vector<int>{victim}) std::_Exit(6);
    // Who holds the group does not keep the others from knowing.
    std::this_thread::sleep_for(1s);
    std::string later;
    try {
      if (is_initialized()) barrier();
    } catch (const distributed::Error& again) {
      later = again.what();
    }
    if (where != "rendezvous" && later.empty()) std::_Exit(7);
    destroy_process_group();
    std::exit(3);
  }
}

TEST_CASE("a rank that dies anywhere is named to the others, which hold their groups") {
  const std::string where = GENERATE("forward", "all_reduce", "barrier", "rendezvous", "join", "save");
  const int world = where == "all_reduce" ? 4 : 3;  // of four not all are connected by a ring
  Job first{where, world, 0}, last{where, world, world - 1};
  for (Job* job : {&first, &last}) {
    job->start();
    job->check();
  }
}

TEST_CASE("a rank that is stopped anywhere is named to the others, and learns it") {
  const std::string where = GENERATE("forward", "all_reduce");
  for (const int victim : {0, 2}) {
    Job job{where, 3, victim, SIGSTOP};
    job.start();
    job.check();
  }
}

TEST_CASE("a rank that is slow", "[.rank]") {
  init_process_group({.timeout = 20s});
  if (rank() == 1) std::this_thread::sleep_for(3 * 500ms);
  const Tensor t = ones({3});
  all_reduce(t);
  CHECK(t[0].item<int>() == world_size());
}
TEST_CASE("a rank may compute for three heartbeats while the others wait") {
  ranks::Processes(3, "a rank that is slow", {.variables = {"REEL_DIST_HEARTBEAT=0.5"}}).succeed();
}

TEST_CASE("a rank of which another is missing", "[.rank]") {
  if (std::getenv("TEST_RANK") == std::string("1")) std::_Exit(0);
  const auto begin = Clock::now();
  try {
    init_process_group({.rendezvous = 1500ms});
  } catch (const distributed::Error& error) {
    const auto time = Clock::now() - begin;
    ranks::say(error.what());
    CHECK(error.kind == distributed::Error::kTimeout);
    CHECK(error.ranks == std::vector<int>{1});
    CHECK(time > 1000ms);
    CHECK(time < 2000ms);
  }
  CHECK_FALSE(is_initialized());
}
TEST_CASE("a missing rank is named when the time for the rendezvous is over") {
  ranks::Processes(3, "a rank of which another is missing").succeed();
}

TEST_CASE("a rank that is done while others work", "[.rank]") {
  init_process_group();
  const auto group = new_group(std::vector<int>{1, 2});
  if (rank() == 0) return;
  // It waits for longer than rank 0's patience, but not for rank 0.
  if (rank() == 1) std::this_thread::sleep_for(1500ms);
  const Tensor t = ones({3});
  group->all_reduce(t).wait();
  group->barrier();
  CHECK(t[0].item<int>() == 2);
}
TEST_CASE("a rank that is done and hosts the store waits for others that work") {
  ranks::Processes(3, "a rank that is done while others work", {.variables = {"REEL_DIST_HEARTBEAT=0.5"}}).succeed();
}

// The first thing that a program does with the library, so that it is the last that is destroyed.
TEST_CASE("a rank whose program ends with work under way", "[.rank]") {
  init_process_group();
  static std::vector<Work> works;
  const bool dies = std::getenv("TEST_DIES") && rank() == 1;
  try {
    for (int i = 0; i < 8; ++i) {
      if (dies && i == 4) end_here();
      works.push_back(default_group().all_reduce(full({300, 1000}, i).transpose(0, 1)));
    }
    const Tensor never = zeros({2});
    works.push_back(default_group().recv(never, 1 - rank(), 9));
  } catch (const distributed::Error&) {
    // It may be known already that rank 1 is dead.
  }
  std::exit(0);
}
TEST_CASE("a program may end with work under way, also that of a job that has ended") {
  ranks::Processes job(2, "a rank whose program ends with work under way", {.variables = {"REEL_DIST_HEARTBEAT=2"}});
  ranks::Processes dead(2, "a rank whose program ends with work under way",
                        {.variables = {"REEL_DIST_HEARTBEAT=2", "TEST_DIES=1", concat("TEST_SIGNAL=", SIGKILL)}});
  job.succeed(10s);
  CHECK(dead.wait(1) == 128 + SIGKILL);
  CHECK(dead.wait(0, 10s) == 0);
}

TEST_CASE("a module that outlives its group does not train on alone") {
  ranks::threads(2, [](int) {
    Mlp net;
    DistributedDataParallel ddp(net);
    net.loss(0).backward();
    destroy_process_group();
    std::string text;
    try {
      net.loss(1).backward();
    } catch (const distributed::Error& error) {
      text = error.what();
    }
    expect(text.find("group 0 has been destroyed") != text.npos, "not refused: ", text);
  });
}

/// Of namespaces.sh: trains for some steps, or until an Error ends it, and says what the weights are.
TEST_CASE("a rank that trains in a network", "[.rank]") {
  try {
    init_process_group();
    Mlp net;
    DistributedDataParallel ddp(net, {.bucket_bytes = 64, .first_bucket_bytes = 64});
    optim::Adam adam(net.parameters(), {.lr = 0.01});
    ranks::say("ready");
    for (int step = 0, steps = number("TEST_STEPS"); step < steps; ++step) {
      std::this_thread::sleep_for(Milliseconds(number("TEST_PAUSE")));
      adam.zero_grad();
      net.loss(step * world_size() + rank()).backward();
      adam.step();
    }
    uint64_t hash = 0xcbf29ce484222325;
    for (const Tensor& p : net.parameters())
      for (const float x : p.detach().to_vector<float>()) hash = (hash ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3;
    ranks::say(concat("weights ", hash));
    destroy_process_group();
  } catch (const distributed::Error& error) {
    ranks::say(concat("end ", error.kind, " ", error.what()));
    std::_Exit(3);
  }
}
