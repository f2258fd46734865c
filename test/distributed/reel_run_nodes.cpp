// reel-run's store, and several of them as if they were on several machines.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <list>
#include <memory>

#include "reel/distributed/launch.h"
#include "reel/distributed/store.h"
#include "test/distributed/launched.h"

using namespace launched;
using reel::distributed::Launch, reel::distributed::Member;

namespace {

const Variables kToken{{"REEL_TOKEN", "0123456789abcdef0123456789abcdef"}};

/// This program as a rank that runs a section of the hidden test case.
std::vector<std::string> rank(std::vector<std::string> options, const std::string& section) {
  options.insert(options.end(),
                 {std::filesystem::read_symlink("/proc/self/exe").string(), "a rank of reel-run", "-c", section});
  return options;
}

/// One that nothing listens at; somebody else may take it, but not within a test.
std::string free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(fd);
  return std::to_string(ntohs(address.sin_port));
}

/// Flags of one of so many machines.
std::vector<std::string> node(int number, int nodes, const std::string& port, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--nnodes", std::to_string(nodes), "--node-rank", std::to_string(number), "--master-addr",
                           "127.0.0.1", "--master-port", port});
  return more;
}

}  // namespace

TEST_CASE("a rank of reel-run", "[.]") {
  const Launch launch = Launch::from_environment();
  REQUIRE(launch.source == "reel-run");
  REQUIRE(launch.store_is_hosted);
  reel::distributed::StoreOptions options;
  options.host = launch.master_host;
  options.port = launch.master_port;
  options.run_id = launch.run_id;
  options.generation = launch.generation;
  options.world_size = launch.world_size;
  options.token = launch.token;
  const auto member = reel::distributed::connect_store(launch.rank, options);
  const std::string prefix = std::to_string(launch.generation) + "/";
  member->set(prefix + std::to_string(launch.rank), std::to_string(launch.local_rank));
  std::string all;
  for (int i = 0; i < launch.world_size; ++i) all += member->get(prefix + std::to_string(i), 10s);
  SECTION("meets") { std::printf("met %s\n", all.c_str()); }
  SECTION("loses rank 1") {
    if (launch.rank == 1 && launch.generation == 0) ::raise(SIGKILL);
    if (launch.generation == 0) CHECK_THROWS_WITH(member->get("never", 10s), Contains("rank 1"));
    if (launch.generation == 0) std::_Exit(21);  // in milliseconds, as one that throws
    std::printf("met %s again\n", all.c_str());
  }
  SECTION("has an error in rank 1") {
    if (launch.rank == 1) {
      member->abort({reel::distributed::Error::kAborted, "rank 1: out of coffee", {1}});
      std::this_thread::sleep_for(200ms);  // later than the others
      std::_Exit(31);
    }
    CHECK_THROWS_WITH(member->get("never", 10s), Contains("out of coffee"));
    std::_Exit(30);
  }
}

TEST_CASE("a rank of mpirun", "[.]") {
  const Launch launch = Launch::from_environment();
  const reel::distributed::StoreOptions options{
      .host = launch.master_host, .port = launch.master_port, .run_id = launch.run_id, .world_size = launch.world_size};
  std::unique_ptr<reel::distributed::StoreServer> server;
  if (launch.rank == 0) server = std::make_unique<reel::distributed::StoreServer>(options);
  const auto member = reel::distributed::connect_store(launch.rank, options);
  const std::string mine = std::to_string(launch.rank) + " of " + std::to_string(launch.world_size) + ", here " +
                           std::to_string(launch.local_rank) + " of " + std::to_string(launch.local_world_size);
  member->set(std::to_string(launch.rank), mine);
  for (int i = 0; i < launch.world_size; ++i) std::printf("%s; ", member->get(std::to_string(i), 10s).c_str());
  std::printf("by %s\n", launch.source.c_str());
  // The server goes last.
  if (member->add("have read", 1) == launch.world_size) member->set("all have read", "");
  if (launch.rank == 0) member->get("all have read", 10s);
}

TEST_CASE("ranks of mpirun meet", "[launcher]") {
  std::string path;
  std::istringstream folders(::getenv("PATH"));
  for (std::string folder; path.empty() && std::getline(folders, folder, ':');)
    if (::access((folder + "/mpirun").c_str(), X_OK) == 0) path = folder + "/mpirun";
  if (path.empty()) {
    WARN("skipped: there is no mpirun");
    return;
  }
  const Variables variables{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                            {"OMPI_MCA_rmaps_base_oversubscribe", "1"}};
  Run run({"-n", "3", std::filesystem::read_symlink("/proc/self/exe").string(), "a rank of mpirun"}, variables, -1, -1,
          path.c_str());
  CHECK(run.wait() == 0);
  for (const char* source : {"by OpenMPI", "by mpirun"}) {
    std::string text = run.out();
    int lines = 0;
    for (size_t at = 0; (at = text.find(source, at)) != std::string::npos; ++at) ++lines;
    if (lines) CHECK(lines == 3);
  }
  CHECK_THAT(run.out(), Contains("0 of 3, here 0 of 3; 1 of 3, here 1 of 3; 2 of 3, here 2 of 3; by "));
}

TEST_CASE("ranks meet by reel-run's store", "[launcher]") {
  Run run(rank({"-n", "3"}, "meets"));
  CHECK(run.wait() == 0);
  for (const char* rank : {"[0] ", "[1] ", "[2] "}) CHECK_THAT(run.out(), Contains(rank + std::string("met 012\n")));
  Run alone(rank({"-n", "1"}, "meets"));
  CHECK(alone.wait() == 0);
  CHECK_THAT(alone.out(), Contains("[0] met 0\n"));
}

TEST_CASE("reel-run knows from its store which rank was the cause", "[launcher]") {
  Run killed(rank({"-n", "3"}, "loses rank 1"));
  CHECK(killed.wait() == 128 + SIGKILL);
  CHECK_THAT(killed.err(), Contains("the first failure: rank 1 (process ") && Contains("killed by signal 9"));
  CHECK_THAT(killed.err(), Contains("the reason that ranks were told: ") && !Contains("the first failure: rank 0"));
  Run error(rank({"-n", "2"}, "has an error in rank 1"));
  CHECK(error.wait() == 31);
  CHECK_THAT(error.err(), Contains("the first failure: rank 1 ") && Contains("out of coffee"));
}

TEST_CASE("ranks that are started again meet again", "[launcher]") {
  Run run(rank({"-n", "3", "--max-restarts", "1"}, "loses rank 1"));
  CHECK(run.wait() == 0);
  for (const char* rank : {"[0] ", "[1] ", "[2] "})
    CHECK_THAT(run.out(), Contains(rank + std::string("met 012 again\n")));
}

TEST_CASE("several machines are one job", "[launcher]") {
  const std::string port = free_port();
  std::list<Run> runs;
  // The one that hosts the store comes last; they have different numbers of ranks.
  runs.emplace_back(rank(node(2, 3, port, {"-n", "1"}), "meets"), kToken);
  runs.emplace_back(rank(node(1, 3, port, {"-n", "2"}), "meets"), kToken);
  runs.emplace_back(rank(node(0, 3, port, {"-n", "2"}), "meets"), kToken);
  for (auto& run : runs) CHECK(run.wait() == 0);
  const auto expected = [](int first, int last) {
    std::vector<std::string> lines;
    for (int i = first; i <= last; ++i) lines.push_back("[" + std::to_string(i) + "] met 01010");
    return lines;
  };
  const auto met = [](const Run& run) {
    auto lines = sorted_lines(run.out());
    std::erase_if(lines, [](const std::string& line) { return line.find("met") == std::string::npos; });
    return lines;
  };
  CHECK(met(runs.back()) == expected(0, 1));
  CHECK(met(*std::next(runs.begin())) == expected(2, 3));
  CHECK(met(runs.front()) == expected(4, 4));
}

TEST_CASE("a failure on one machine ends all", "[launcher]") {
  const std::string port = free_port();
  const auto program = [](int failing) {
    return "[ $RANK = " + std::to_string(failing) + " ] && { echo it is me >&2; exit 6; }; exec sleep 30";
  };
  for (const int failing : {0, 3}) {
    std::list<Run> runs;
    for (const int i : {0, 1})
      runs.emplace_back(script(node(i, 2, port, {"-n", "2", "--grace", "0.1"}), program(failing)), kToken);
    for (auto& run : runs) {
      CHECK(run.wait() == 6);
      CHECK_THAT(run.err(),
                 Contains("the first failure: rank " + std::to_string(failing)) && Contains("\n    it is me\n"));
    }
    CHECK_THAT((failing ? runs.front() : runs.back()).err(), Contains("a rank of node rank"));
  }
}

TEST_CASE("a failure on one machine starts all again", "[launcher]") {
  const std::string port = free_port();
  std::list<Run> runs;
  for (const int i : {0, 1})
    runs.emplace_back(rank(node(i, 2, port, {"-n", "2", "--max-restarts", "1"}), "loses rank 1"), kToken);
  for (auto& run : runs) CHECK(run.wait() == 0);
  CHECK_THAT(runs.front().out(), Contains("[0] met 0101 again") && Contains("[1] met 0101 again"));
  CHECK_THAT(runs.back().out(), Contains("[2] met 0101 again") && Contains("[3] met 0101 again"));
}

TEST_CASE("a machine that is lost ends the others", "[launcher]") {
  const std::string port = free_port();
  for (const int lost : {0, 1}) {
    std::list<Run> runs;
    for (const int i : {0, 1})
      runs.emplace_back(script(node(i, 2, port, {"-n", "1", "--grace", "0.1"}), "echo pid $$; exec sleep 30"), kToken);
    std::vector<pid_t> ids;
    for (auto& run : runs) REQUIRE(run.prints("pid"));
    for (auto& run : runs)
      for (const pid_t id : ids_in(run.out())) ids.push_back(id);
    Run& first = lost == 0 ? runs.front() : runs.back();
    Run& other = lost == 0 ? runs.back() : runs.front();
    first.signal(SIGKILL);
    CHECK(other.wait() != 0);
    CHECK_THAT(other.err(), Contains("another machine is lost"));
    CHECK(all_end(ids, 2s));
  }
}

TEST_CASE("a machine that does not come is named", "[launcher]") {
  const std::string port = free_port();
  Run host(script(node(0, 2, port, {"--rdzv-timeout", "0.5"}), "true"), kToken);
  CHECK(host.wait() == 1);
  CHECK_THAT(host.err(), Contains("node rank 1 of 2 has not come within 0.5 s"));
  Run other(script(node(1, 2, port, {"--rdzv-timeout", "0.5"}), "true"), kToken);
  CHECK(other.wait() == 1);
  CHECK_THAT(other.err(), Contains("127.0.0.1") && Contains(port));
}

TEST_CASE("several machines need a secret", "[launcher]") {
  const std::string port = free_port();
  Run none(script(node(0, 2, port), "true"));
  CHECK(none.wait() == 1);
  CHECK_THAT(none.err(), Contains("REEL_TOKEN") && Contains("openssl rand -hex 16"));
  Run host(script(node(0, 2, port, {"--rdzv-timeout", "1"}), "true"), kToken);
  Run wrong(script(node(1, 2, port, {"--rdzv-timeout", "10"}), "true"),
            {{"REEL_TOKEN", "1123456789abcdef0123456789abcdef"}});
  CHECK(wrong.wait() == 1);
  CHECK_THAT(wrong.err(), Contains("token"));
  CHECK(host.wait() == 1);
}

TEST_CASE("a signal ends a reel-run that waits for another machine", "[launcher]") {
  Run run(script(node(0, 2, free_port()), "true"), kToken);
  std::this_thread::sleep_for(200ms);
  run.signal(SIGINT);
  CHECK(run.wait() == 128 + SIGINT);
}

TEST_CASE("a signal to one machine's reel-run ends the job, and does not start it again", "[launcher]") {
  const std::string port = free_port();
  std::list<Run> runs;
  for (const int i : {0, 1})
    runs.emplace_back(script(node(i, 2, port, {"-n", "1", "--max-restarts", "3", "--grace", "0.1"}),
                             "echo ready; while true; do sleep 0.01; done"),
                      kToken);
  for (auto& run : runs) REQUIRE(run.prints("ready"));
  runs.back().signal(SIGTERM);
  for (auto& run : runs) CHECK(run.wait() == 128 + SIGTERM);
}
