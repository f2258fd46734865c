// Which process of which job this is: Launch, and lists of hosts.
#include "reel/distributed/launch.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "test/support/folder.h"

using namespace reel::distributed;
using Catch::Matchers::Contains, Catch::Matchers::Equals;

namespace {

using Environment = std::map<std::string, std::string>;

Launch launch(const Environment& environment) {
  return Launch::from([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string error(const Environment& environment) {
  try {
    const Launch found = launch(environment);
    return "no error, but " + found.source + " rank " + std::to_string(found.rank);
  } catch (const reel::Error& e) {
    return e.what();
  }
}

Environment operator+(Environment a, const Environment& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

Environment without(Environment a, const std::string& name) {
  a.erase(name);
  return a;
}

const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
const Environment kPod{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_NAMESPACE", "3735879681"}};
const Environment kMpich{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSlurm{{"SLURM_JOB_ID", "77"},      {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "5"},       {"SLURM_NTASKS", "7"},
                         {"SLURM_LOCALID", "1"},      {"SLURM_STEP_NODELIST", "gnode[10,20-22]"},
                         {"SLURM_NODEID", "2"},       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_RESTART_COUNT", "1"}};

}  // namespace

TEST_CASE("without variables the world is this process") {
  for (const Environment& environment : {Environment{}, Environment{{"RANK", ""}, {"WORLD_SIZE", ""}},
                                         Environment{{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "1"}}}) {
    const Launch found = launch(environment);
    CHECK(found.source == "nothing");
    CHECK(found.rank == 0);
    CHECK(found.world_size == 1);
    CHECK(found.local_rank == 0);
    CHECK(found.local_world_size == 1);
    CHECK(found.generation == 0);
    CHECK_FALSE(found.store_is_hosted);
    CHECK(found.token.empty());
  }
}

TEST_CASE("a shell or a batch script of a Slurm job is a world of 1") {
  CHECK(launch(without(kSlurm, "SLURM_STEP_ID")).world_size == 1);
  CHECK(launch(kSlurm + Environment{{"SLURM_STEP_ID", "4294967290"}}).world_size == 1);  // salloc's shell
  CHECK(launch(kSlurm + Environment{{"SLURM_STEP_ID", "4294967291"}}).world_size == 1);  // sbatch's script
}

TEST_CASE("each launcher's variables are understood") {
  struct Row {
    const char* what;
    Environment environment;
    const char* source;
    int rank, world, local_rank, local_world, generation;
    const char* host;
    int port;  // 0: one that follows from the job
  };
  const Environment run{{"REEL_STORE", "none@node1:29499"}};
  const Row rows[] = {
      {"torchrun", kTorchrun, "torchrun", 5, 8, 1, 4, 2, "node0", 29500},
      {"torchrun on one machine", kTorchrun + Environment{{"LOCAL_WORLD_SIZE", "8"}}, "torchrun", 5, 8, 1, 8, 2,
       "127.0.0.1", 29500},
      {"torchrun, whose store has the port", kTorchrun + Environment{{"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       "torchrun", 5, 8, 1, 4, 2, "node0", 0},
      {"torchrun under srun", kTorchrun + kSlurm, "torchrun", 5, 8, 1, 4, 2, "node0", 29500},
      {"torchrun under mpirun", kTorchrun + kOpenMpi, "torchrun", 5, 8, 1, 4, 2, "node0", 29500},
      {"reel-run", kTorchrun + run, "reel-run", 5, 8, 1, 4, 2, "node1", 29499},
      {"torchrun under reel-run", kTorchrun + run + Environment{{"TORCHELASTIC_RUN_ID", "other"}}, "torchrun", 5, 8, 1,
       4, 2, "node0", 29500},
      {"PyTorchJob", kPod, "RANK and WORLD_SIZE", 1, 2, 0, 1, 0, "job-master-0", 23456},
      {"PyTorchJob, one process a pod", kPod + Environment{{"PET_NPROC_PER_NODE", "1"}}, "RANK and WORLD_SIZE", 1, 2, 0,
       1, 0, "job-master-0", 23456},
      {"PyTorchJob, auto", kPod + Environment{{"PET_NPROC_PER_NODE", "auto"}}, "RANK and WORLD_SIZE", 1, 2, 0, 1, 0,
       "job-master-0", 23456},
      {"by hand", kPod + Environment{{"LOCAL_RANK", "1"}, {"MASTER_ADDR", "localhost"}}, "RANK and WORLD_SIZE", 1, 2, 1,
       2, 0, "localhost", 23456},
      {"a world of 1 by hand",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
       "RANK and WORLD_SIZE",
       0,
       1,
       0,
       1,
       0,
       "127.0.0.1",
       -1},
      {"mpirun's, made explicit", kPod + kOpenMpi, "RANK and WORLD_SIZE", 1, 2, 0, 1, 0, "job-master-0", 23456},
      {"OpenMPI", kOpenMpi, "OpenMPI", 1, 2, 1, 2, 0, "127.0.0.1", 0},
      {"OpenMPI on two machines",
       kOpenMpi + Environment{{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                              {"MASTER_ADDR", "node0"}},
       "OpenMPI", 1, 2, 0, 1, 0, "node0", 0},
      {"OpenMPI under Slurm", kOpenMpi + kSlurm, "OpenMPI", 1, 2, 1, 2, 0, "127.0.0.1", 0},
      {"MPICH", kMpich + Environment{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "15001"}}, "mpirun", 3, 4, 1, 2, 0,
       "node0", 15001},
      {"MPICH on one machine", kMpich + Environment{{"MPI_LOCALNRANKS", "4"}}, "mpirun", 3, 4, 1, 4, 0, "127.0.0.1", 0},
      {"Slurm", kSlurm, "Slurm", 5, 7, 1, 2, 1, "gnode10", 0},
      {"Slurm's PMI", kSlurm + Environment{{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}}, "Slurm", 5, 7, 1, 2, 1, "gnode10", 0},
      {"Slurm with an address", kSlurm + Environment{{"MASTER_ADDR", "gnode20"}, {"MASTER_PORT", "15002"}}, "Slurm", 5,
       7, 1, 2, 1, "gnode20", 15002},
      {"a step of a part of the job's tasks",
       kSlurm + Environment{{"SLURM_NTASKS", "70"}, {"SLURM_STEP_NUM_TASKS", "7"}}, "Slurm", 5, 7, 1, 2, 1, "gnode10",
       0},
      {"Slurm on one machine",
       kSlurm +
           Environment{{"SLURM_STEP_NODELIST", "gnode10"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "7"}},
       "Slurm", 5, 7, 1, 7, 1, "127.0.0.1", 0},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Launch found = launch(row.environment);
    CHECK(found.source == row.source);
    CHECK(found.rank == row.rank);
    CHECK(found.world_size == row.world);
    CHECK(found.local_rank == row.local_rank);
    CHECK(found.local_world_size == row.local_world);
    CHECK(found.generation == row.generation);
    CHECK(found.master_host == row.host);
    if (row.port > 0) {
      CHECK(found.master_port == row.port);
    } else if (row.port == 0) {
      CHECK(found.master_port >= 15000);
      CHECK(found.master_port < 25000);
    }
    CHECK(found.store_is_hosted == (row.source == std::string("reel-run")));
  }
}

TEST_CASE("ports and names of jobs differ by job, and agree within one") {
  const Launch a = launch(kSlurm), b = launch(kSlurm + Environment{{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "0"}}),
               other = launch(kSlurm + Environment{{"SLURM_STEP_ID", "1"}});
  CHECK(a.master_port == b.master_port);
  CHECK(a.run_id == b.run_id);
  CHECK(a.run_id != other.run_id);
  CHECK(a.master_port != other.master_port);
  const Environment agent{{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(launch(kTorchrun + agent).master_port !=
        launch(kTorchrun + agent + Environment{{"MASTER_PORT", "29501"}}).master_port);
  CHECK(launch(kTorchrun).run_id != launch(kTorchrun + Environment{{"TORCHELASTIC_RUN_ID", "other"}}).run_id);
  CHECK(launch(kOpenMpi).master_port != launch(kOpenMpi + Environment{{"PMIX_NAMESPACE", "1"}}).master_port);
}

TEST_CASE("contradictions are errors that print both values") {
  struct Row {
    Environment environment;
    std::vector<const char*> words;
  };
  const Row rows[] = {
      {without(kTorchrun, "WORLD_SIZE"), {"RANK=5 is set, but WORLD_SIZE is not"}},
      {without(kTorchrun, "RANK"), {"WORLD_SIZE=8 is set, but RANK is not"}},
      {kTorchrun + Environment{{"RANK", "8"}}, {"RANK=8", "WORLD_SIZE=8"}},
      {kTorchrun + Environment{{"RANK", "-1"}}, {"RANK=-1", "an integer from 0"}},
      {kTorchrun + Environment{{"RANK", "1x"}}, {"RANK=1x"}},
      {kTorchrun + Environment{{"RANK", "99999999999999999999"}}, {"RANK=99999999999999999999"}},
      {kTorchrun + Environment{{"WORLD_SIZE", "0"}}, {"WORLD_SIZE=0", "from 1"}},
      {kTorchrun + Environment{{"LOCAL_RANK", "4"}}, {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}},
      {kTorchrun + Environment{{"LOCAL_WORLD_SIZE", "9"}}, {"LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"}},
      {kTorchrun + Environment{{"MASTER_PORT", "65536"}}, {"MASTER_PORT=65536", "from 1 to 65535"}},
      {kTorchrun + Environment{{"TORCHELASTIC_RESTART_COUNT", "two"}}, {"TORCHELASTIC_RESTART_COUNT=two"}},
      {kTorchrun + Environment{{"REEL_STORE", "node0:29500"}}, {"REEL_STORE=node0:29500", "run id@host:port"}},
      {kTorchrun + Environment{{"REEL_STORE", "none@node0:0"}}, {"REEL_STORE=none@node0:0", "run id@host:port"}},
      {without(kPod, "MASTER_ADDR"), {"MASTER_ADDR is not set", "reel-run"}},
      {without(kPod, "MASTER_PORT"), {"MASTER_PORT is not set", "reel-run"}},
      {kPod + Environment{{"PET_NPROC_PER_NODE", "4"}}, {"PET_NPROC_PER_NODE=4", "reel-run"}},
      {kPod + kOpenMpi + Environment{{"OMPI_COMM_WORLD_RANK", "0"}}, {"RANK=1", "OMPI_COMM_WORLD_RANK=0"}},
      {kPod + kMpich, {"WORLD_SIZE=2", "PMI_SIZE=4"}},
      {{{"PET_NNODES", "2"}, {"PET_NPROC_PER_NODE", "1"}}, {"PET_NNODES=2", "reel-run"}},
      {{{"PET_NPROC_PER_NODE", "auto"}}, {"PET_NPROC_PER_NODE=auto", "reel-run"}},
      {without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not"}},
      {kOpenMpi + Environment{{"OMPI_COMM_WORLD_SIZE", "3"}}, {"MASTER_ADDR is not set", "mpirun -x MASTER_ADDR"}},
      {without(kMpich, "PMI_SIZE"), {"PMI_RANK=3", "PMI_SIZE is not"}},
      {without(kSlurm, "SLURM_PROCID"), {"SLURM_NTASKS=7", "SLURM_PROCID is not"}},
      {kSlurm + Environment{{"SLURM_PROCID", "7"}}, {"SLURM_PROCID=7", "SLURM_NTASKS=7"}},
      {kSlurm + Environment{{"SLURM_LOCALID", "3"}}, {"SLURM_LOCALID=3", "SLURM_STEP_TASKS_PER_NODE=2(x3),1"}},
      {kSlurm + Environment{{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}, {"SLURM_STEP_TASKS_PER_NODE=2(x"}},
      {kSlurm + Environment{{"SLURM_NODEID", "4"}}, {"SLURM_STEP_TASKS_PER_NODE=2(x3),1", "SLURM_NODEID=4"}},
      {kSlurm + Environment{{"SLURM_STEP_NODELIST", "gnode[10"}}, {"gnode[10"}},
      {without(kSlurm, "SLURM_STEP_NODELIST"), {"MASTER_ADDR is not set"}},
  };
  for (const Row& row : rows)
    for (const char* word : row.words) CHECK_THAT(error(row.environment), Contains(word));
}

TEST_CASE("a token comes from a variable or a file, and is not told") {
  const std::string token = "0123456789abcdefABCDEF0123456789", other = "f" + token.substr(1);
  const Folder folder;
  const std::string path = folder / "token";
  write(path, token + "\r\n");
  CHECK(launch({{"REEL_TOKEN", token}}).token == token);
  CHECK(launch({{"REEL_TOKEN_FILE", path}}).token == token);
  CHECK(launch(kTorchrun + Environment{{"REEL_TOKEN_FILE", path}, {"REEL_TOKEN", token}}).token == token);
  CHECK_THAT(error({{"REEL_TOKEN_FILE", path}, {"REEL_TOKEN", other}}), Contains("another token") && Contains(path));
  CHECK_THAT(error({{"REEL_TOKEN_FILE", path}, {"REEL_TOKEN", other}}), !Contains(token) && !Contains(other));
  CHECK_THAT(error({{"REEL_TOKEN", token + "0"}}), Contains("got 33 characters") && !Contains(token));
  CHECK_THAT(error({{"REEL_TOKEN", "x" + token.substr(1)}}), Contains("hexadecimal") && !Contains(token.substr(1)));
  CHECK_THAT(error({{"REEL_TOKEN_FILE", path + ".none"}}), Contains(path + ".none: No such file"));
  CHECK_THAT(error({{"REEL_TOKEN_FILE", folder.path.string()}}), Contains("Is a directory"));
  write(path, "");
  CHECK_THAT(error({{"REEL_TOKEN_FILE", path}}), Contains("REEL_TOKEN_FILE: expected 32"));
  write(path, std::string(1 << 20, 'a'));
  CHECK_THAT(error({{"REEL_TOKEN_FILE", path}}), Contains("REEL_TOKEN_FILE: expected 32"));
}

TEST_CASE("lists of hosts are expanded as Slurm does") {
  using List = std::vector<std::string>;
  CHECK(expand_hostlist("gnode[08-10,20],login") == List{"gnode08", "gnode09", "gnode10", "gnode20", "login"});
  CHECK(expand_hostlist("a") == List{"a"});
  CHECK(expand_hostlist("a,b-1,c.d") == List{"a", "b-1", "c.d"});
  CHECK(expand_hostlist("n[1]") == List{"n1"});
  CHECK(expand_hostlist("n[9-11]") == List{"n9", "n10", "n11"});
  CHECK(expand_hostlist("n[099-101]-ib") == List{"n099-ib", "n100-ib", "n101-ib"});
  CHECK(expand_hostlist("r[1-2]n[3-4],x") == List{"r1n3", "r1n4", "r2n3", "r2n4", "x"});
  CHECK(expand_hostlist("[1-2]") == List{"1", "2"});
  CHECK(expand_hostlist("n[0-65535]").size() == 65536);
  CHECK(expand_hostlist("r[0-255]n[0-255]").size() == 65536);
}

TEST_CASE("malformed lists of hosts are errors that show them") {
  for (const char* list : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "n[",
                           "n[]",
                           "n]",
                           "n[1",
                           "n1]",
                           "n[1-]",
                           "n[-1]",
                           "n[1,]",
                           "n[,1]",
                           "n[2-1]",
                           "n[a]",
                           "n[1-2-3]",
                           "n[[1]]",
                           "n[1]]",
                           "n[0x1]",
                           "n[1 ]",
                           "a b",
                           "a\nb",
                           "n[9999999999999999999]",
                           "n[0-65536]",
                           "n[0-999999999999999999]",
                           "r[0-255]n[0-256]",
                           "n[0-65535],a",
                           "a[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"}) {
    INFO(list);
    CHECK_THROWS_WITH(expand_hostlist(list), Contains("the list of hosts \"" + std::string(list)));
  }
  CHECK_THROWS_WITH(expand_hostlist(std::string(1000, 'a')), Contains("characters"));
  CHECK_THROWS_WITH(expand_hostlist("n" + std::string(100'000, '[')), Contains("brackets"));
}
