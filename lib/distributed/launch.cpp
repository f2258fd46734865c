#include "reel/distributed/launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace reel::distributed {
namespace {

// What one machine can sensibly be told by a wrong variable.
constexpr int kMaxWorld = 1 << 20;
constexpr size_t kMaxHosts = 65'536;
constexpr size_t kMaxHostName = 253;  // of DNS
constexpr size_t kTokenDigits = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The same on all machines, unlike std::hash.
uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Below the range that Linux gives to outgoing connections, from 32768 on.
uint16_t port_of(std::string_view job) { return static_cast<uint16_t>(15'000 + stable_hash(job) % 10'000); }

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

/// Variables; one that is empty counts as not set.
class Variables {
 public:
  explicit Variables(const std::function<const char*(const char*)>& variable) : variable_(variable) {}

  std::optional<std::string> text(const char* name) const {
    const char* const value = variable_(name);
    if (!value || !*value) return std::nullopt;
    return value;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto parsed = to_integer(*value);
    REEL_CHECK(parsed && *parsed >= least && *parsed <= most, name, "=", *value, ": expected an integer from ", least,
               " to ", most);
    return static_cast<int>(*parsed);
  }

  int required(const char* name, int least, int most, const char* because) const {
    const auto value = number(name, least, most);
    REEL_CHECK(value, because, "=", text(because).value_or(""), " is set, but ", name, " is not");
    return *value;
  }

 private:
  const std::function<const char*(const char*)>& variable_;
};

/// Names of the variables of one source.
struct Names {
  const char *rank, *world, *local_rank, *local_world;
};
constexpr Names kExplicit{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

/// Reads the four, and checks that they fit. Returns whether all ranks are known to be on this machine.
bool read_ranks(const Variables& variables, const Names& names, Launch& launch) {
  launch.world_size = variables.required(names.world, 1, kMaxWorld, names.rank);
  launch.rank = variables.required(names.rank, 0, kMaxWorld - 1, names.world);
  REEL_CHECK(launch.rank < launch.world_size, names.rank, "=", launch.rank, ", but ", names.world, "=",
             launch.world_size);
  const auto local_world = variables.number(names.local_world, 1, kMaxWorld);
  launch.local_rank = variables.number(names.local_rank, 0, kMaxWorld - 1).value_or(0);
  launch.local_world_size = local_world.value_or(launch.local_rank + 1);
  REEL_CHECK(launch.local_rank < launch.local_world_size, names.local_rank, "=", launch.local_rank, ", but ",
             names.local_world, "=", launch.local_world_size);
  REEL_CHECK(launch.local_world_size <= launch.world_size, local_world ? names.local_world : names.local_rank, "=",
             local_world ? launch.local_world_size : launch.local_rank, ", but ", names.world, "=", launch.world_size);
  return local_world && launch.local_world_size == launch.world_size;
}

/// Where the store is: MASTER_ADDR and MASTER_PORT, if they are set; otherwise `host`, and a port that follows from the
/// job. Loopback where all ranks are on this machine.
void read_master(const Variables& variables, bool one_machine, std::string host, std::string_view job,
                 const char* advice, Launch& launch) {
  host = variables.text("MASTER_ADDR").value_or(std::move(host));
  if (one_machine || launch.world_size == 1) host = is_loopback(host) ? host : Launch().master_host;
  REEL_CHECK(!host.empty(), launch.source, ": the ", launch.world_size,
             " ranks may be on several machines, and MASTER_ADDR is not set: ", advice);
  launch.master_host = std::move(host);
  launch.master_port =
      static_cast<uint16_t>(variables.number("MASTER_PORT", 1, UINT16_MAX).value_or(job.empty() ? 0 : port_of(job)));
  REEL_CHECK(launch.master_port || launch.world_size == 1, launch.source, ": MASTER_PORT is not set: ", advice);
}

void check_same(const char* name, int value, const char* other, int other_value) {
  REEL_CHECK(value == other_value, name, "=", value, ", but ", other, "=", other_value,
             ": unset what does not belong to this job");
}

/// RANK and WORLD_SIZE would be the same for all processes if a user had exported them around mpirun or srun. Where a
/// launcher has set them, beside LOCAL_RANK, it may run under either, once a machine.
void check_agrees(const Variables& variables, const Launch& launch) {
  if (variables.has("TORCHELASTIC_RUN_ID") || variables.has("LOCAL_RANK")) return;
  const auto check = [&](const char* rank_name, const char* world_name) {
    const auto rank = variables.number(rank_name, 0, INT_MAX), world = variables.number(world_name, 1, INT_MAX);
    if (!rank || !world || *world == 1) return;
    check_same("WORLD_SIZE", launch.world_size, world_name, *world);
    check_same("RANK", launch.rank, rank_name, *rank);
  };
  check(kOpenMpi.rank, kOpenMpi.world);
  if (variables.has(kPmi.local_rank)) check(kPmi.rank, kPmi.world);
}

/// REEL_STORE, "run id@host:port" where reel-run's store is. Below it something else may have been started, by a
/// launcher with another run id, for which that store is not meant.
bool read_hosted_store(const Variables& variables, const std::string& run, Launch& launch) {
  const auto store = variables.text("REEL_STORE");
  if (!store) return false;
  const size_t at = store->rfind('@'), colon = store->rfind(':');
  const bool formed = at != store->npos && colon != store->npos && at + 1 < colon;
  const auto port = formed ? to_integer(store->substr(colon + 1)) : std::nullopt;
  REEL_CHECK(port && *port > 0 && *port <= UINT16_MAX, "REEL_STORE=", *store, ": expected run id@host:port");
  if (store->substr(0, at) != run) return false;
  launch.source = "reel-run";
  launch.store_is_hosted = true;
  launch.run_id = run;
  launch.master_host = store->substr(at + 1, colon - at - 1);
  launch.master_port = static_cast<uint16_t>(*port);
  return true;
}

void read_explicit(const Variables& variables, Launch& launch) {
  const auto run = variables.text("TORCHELASTIC_RUN_ID");
  const bool one_machine = read_ranks(variables, kExplicit, launch);
  launch.source = run ? "torchrun" : "RANK and WORLD_SIZE";
  check_agrees(variables, launch);
  if (const auto per_node = variables.text("PET_NPROC_PER_NODE"); per_node && !variables.has(kExplicit.local_rank))
    REEL_CHECK(*per_node == "1" || *per_node == "auto", "PET_NPROC_PER_NODE=", *per_node,
               ", but LOCAL_RANK is not set, so RANK=", launch.rank,
               " counts pods and not processes: start the program with reel-run");
  launch.generation = variables.number("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX).value_or(0);
  if (read_hosted_store(variables, run.value_or(""), launch)) return;
  read_master(variables, one_machine, {}, {},
              "set MASTER_ADDR and MASTER_PORT to where rank 0 listens, or use reel-run", launch);
  // Jobs of torchrun that nobody has named all have the run id "none".
  launch.run_id = run.value_or("") + ":" + std::to_string(launch.master_port);
  // torchrun's own store listens at MASTER_PORT.
  if (const auto agent = variables.text("TORCHELASTIC_USE_AGENT_STORE"); agent == "True" || agent == "1")
    launch.master_port = port_of(launch.run_id + ":" + std::to_string(launch.generation));
}

void read_mpi(const Variables& variables, const Names& names, const char* source, Launch& launch) {
  const bool one_machine = read_ranks(variables, names, launch);
  launch.source = source;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"})
    if (const auto job = variables.text(name)) {
      launch.run_id = *job;
      break;
    }
  read_master(
      variables, one_machine, {}, "mpirun " + launch.run_id,
      "mpirun -x MASTER_ADDR=… (OpenMPI) or mpirun -genv MASTER_ADDR … (MPICH, Intel MPI) names rank 0's machine",
      launch);
}

/// The number of tasks on a machine by SLURM_STEP_TASKS_PER_NODE, "2(x3),1" for 2, 2, 2 and 1.
std::optional<int> slurm_tasks(std::string_view list, int node) {
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    int64_t machines = 1;
    if (const size_t open = item.find("(x"); open != item.npos && item.ends_with(")")) {
      machines = to_integer(item.substr(open + 2, item.size() - open - 3)).value_or(0);
      item = item.substr(0, open);
    }
    const auto tasks = to_integer(item);
    if (!tasks || *tasks < 1 || *tasks > kMaxWorld || machines < 1) return std::nullopt;
    if (node < machines) return static_cast<int>(*tasks);
    node -= static_cast<int>(std::min<int64_t>(machines, node));
  }
  return std::nullopt;
}

/// Whether this is a task that srun has started, and not a shell or batch script of a job, which Slurm counts as steps
/// of their own, from this number on.
bool in_slurm_step(const Variables& variables) {
  const auto step = variables.text("SLURM_STEP_ID");
  const auto number = step ? to_integer(*step) : std::nullopt;
  return number && *number < 0xffff'fff0;
}

void read_slurm(const Variables& variables, Launch& launch) {
  const char* const world = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  Names names{"SLURM_PROCID", world, "SLURM_LOCALID", ""};
  read_ranks(variables, names, launch);
  launch.source = "Slurm";
  launch.generation = variables.number("SLURM_RESTART_COUNT", 0, INT_MAX).value_or(0);
  const char* const tasks =
      variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (const auto list = variables.text(tasks)) {
    const auto local = slurm_tasks(*list, variables.number("SLURM_NODEID", 0, INT_MAX).value_or(0));
    REEL_CHECK(local, tasks, "=", *list, ": expected a list like 2(x3),1 that counts SLURM_NODEID=",
               variables.text("SLURM_NODEID").value_or("0"));
    REEL_CHECK(launch.local_rank < *local, "SLURM_LOCALID=", launch.local_rank, ", but ", tasks, "=", *list);
    REEL_CHECK(*local <= launch.world_size, tasks, "=", *list, ", but ", world, "=", launch.world_size);
    launch.local_world_size = *local;
  }
  launch.run_id = variables.text("SLURM_JOB_ID").value_or("") + "." + *variables.text("SLURM_STEP_ID");
  std::vector<std::string> hosts;
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
    if (const auto list = variables.text(name); list && hosts.empty()) hosts = expand_hostlist(*list);
  read_master(variables, hosts.size() == 1, hosts.empty() ? "" : hosts.front(), "Slurm " + launch.run_id,
              "nor is a list of hosts", launch);
}

std::string read_token_file(const std::string& path) {
  struct Descriptor {
    int fd;
    ~Descriptor() {
      if (fd >= 0) ::close(fd);
    }
  } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  char text[kTokenDigits + 64];
  const ssize_t size = file.fd < 0 ? -1 : ::read(file.fd, text, sizeof text);
  REEL_CHECK(size >= 0, "REEL_TOKEN_FILE=", path, ": ", std::strerror(errno));
  std::string token(text, static_cast<size_t>(size));
  while (!token.empty() && std::strchr(" \t\r\n", token.back())) token.pop_back();
  return token;
}

// The token itself is in no message.
std::string read_token(const Variables& variables) {
  const auto given = variables.text("REEL_TOKEN");
  const auto path = variables.text("REEL_TOKEN_FILE");
  const auto check = [](const char* name, const std::string& token) {
    const auto hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
    REEL_CHECK(token.size() == kTokenDigits && std::ranges::all_of(token, hex), name, ": expected ", kTokenDigits,
               " hexadecimal digits, as `openssl rand -hex 16` makes, got ", token.size(), " characters");
  };
  if (given) check("REEL_TOKEN", *given);
  if (!path) return given.value_or("");
  const std::string held = read_token_file(*path);
  check("REEL_TOKEN_FILE", held);
  REEL_CHECK(!given || *given == held, "REEL_TOKEN is another token than REEL_TOKEN_FILE=", *path, " holds");
  return held;
}

/// "08-10,20" within brackets: calls f for each number as it is written.
template <class F>
void for_each_number(std::string_view ranges, const F& f) {
  do {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    ranges.remove_prefix(range.size());
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash), last = dash == range.npos ? first : range.substr(dash + 1);
    const auto valid = [](std::string_view digits) {
      return !digits.empty() && digits.size() <= 18 && std::ranges::all_of(digits, is_digit);
    };
    REEL_CHECK(valid(first) && valid(last), "\"", range, "\" is no range of numbers");
    const int64_t low = *to_integer(first), high = *to_integer(last);
    REEL_CHECK(low <= high, "\"", range, "\" is an empty range");
    REEL_CHECK(high - low < static_cast<int64_t>(kMaxHosts), "more than ", kMaxHosts, " hosts");
    for (int64_t i = low; i <= high; ++i) {
      std::string number = std::to_string(i);
      number.insert(0, first.size() - std::min(first.size(), number.size()), '0');
      f(number);
    }
    if (ranges.empty()) return;
    ranges.remove_prefix(1);  // the comma, which a range must follow
  } while (true);
}

/// One host, or "rack[1-2]node[01-16]".
void expand_hosts(std::string_view pattern, std::vector<std::string>& hosts) {
  std::vector<std::string> names{""};
  while (!pattern.empty()) {
    const size_t open = pattern.find('[');
    const std::string_view plain = pattern.substr(0, open);
    for (const char c : plain)
      REEL_CHECK(static_cast<unsigned char>(c) > ' ' && c != 0x7f && c != ']', "unexpected '", c, "' in a name");
    for (auto& name : names) name += plain;
    REEL_CHECK(plain.size() <= kMaxHostName, "a name of more than ", kMaxHostName, " characters");
    pattern.remove_prefix(plain.size());
    if (pattern.empty()) break;
    const size_t close = pattern.find(']');
    REEL_CHECK(close != pattern.npos, "no ] after [");
    std::vector<std::string> longer;
    for_each_number(pattern.substr(1, close - 1), [&](const std::string& number) {
      REEL_CHECK(hosts.size() + longer.size() + names.size() <= kMaxHosts, "more than ", kMaxHosts, " hosts");
      for (const auto& name : names) longer.push_back(name + number);
    });
    // Slurm counts the last number fastest.
    std::vector<std::string> ordered;
    ordered.reserve(longer.size());
    const size_t numbers = longer.size() / names.size();
    for (size_t i = 0; i < names.size(); ++i)
      for (size_t j = 0; j < numbers; ++j) ordered.push_back(std::move(longer[j * names.size() + i]));
    names = std::move(ordered);
    pattern.remove_prefix(close + 1);
  }
  REEL_CHECK(!names.front().empty(), "an empty name");
  REEL_CHECK(names.front().size() <= kMaxHostName, "a name of more than ", kMaxHostName, " characters");
  REEL_CHECK(hosts.size() + names.size() <= kMaxHosts, "more than ", kMaxHosts, " hosts");
  std::ranges::move(names, std::back_inserter(hosts));
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list) {
  std::vector<std::string> hosts;
  try {
    bool inside = false;
    size_t begin = 0;
    for (size_t i = 0; i <= list.size(); ++i) {
      if (i < list.size() && list[i] == '[') {
        REEL_CHECK(!inside, "a [ within brackets");
        inside = true;
      }
      if (i < list.size() && list[i] == ']') inside = false;
      if (i < list.size() && (list[i] != ',' || inside)) continue;
      expand_hosts(list.substr(begin, i - begin), hosts);
      begin = i + 1;
    }
  } catch (const reel::Error& error) {
    reel::detail::fail("the list of hosts \"", list.substr(0, 200), "\": ", error.what());
  }
  return hosts;
}

Launch Launch::from(const std::function<const char*(const char*)>& variable) {
  const Variables variables(variable);
  Launch launch;
  launch.source = "nothing";
  if (variables.has(kExplicit.rank) || variables.has(kExplicit.world))
    read_explicit(variables, launch);
  else if (variables.has(kOpenMpi.rank) || variables.has(kOpenMpi.world))
    read_mpi(variables, kOpenMpi, "OpenMPI", launch);
  else if (variables.has(kPmi.rank) && (variables.has(kPmi.local_rank) || !in_slurm_step(variables)))
    read_mpi(variables, kPmi, "mpirun", launch);
  else if (const auto nodes = variables.text("PET_NNODES"), local = variables.text("PET_NPROC_PER_NODE");
           nodes.value_or("1") != "1" || local.value_or("1") != "1")
    reel::detail::fail("PET_NNODES=", nodes.value_or("1"), " and PET_NPROC_PER_NODE=", local.value_or("1"),
                       " say that this is a pod of a TrainJob, but RANK is not set: start the program with reel-run");
  else if (in_slurm_step(variables))
    read_slurm(variables, launch);
  launch.token = read_token(variables);
  return launch;
}

Launch Launch::from_environment() {
  return from([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace reel::distributed
