#include "lib/distributed/run/options.h"

#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>

#include "reel/version.h"

namespace reel::distributed::run {
namespace {

constexpr int kMaxRanks = 4096;  // on a machine
constexpr int kMaxNodes = 65'536;
constexpr uint16_t kDefaultPort = 29'500;  // torchrun's

int to_number(std::string_view text, int least, int most, const std::string& name) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw CLI::ValidationError(name, "expected an integer from " + std::to_string(least) + " to " +
                                         std::to_string(most) + ", got \"" + std::string(text) + "\"");
  return value;
}

// By what the driver shows: a launcher needs no CUDA, which would take memory on every GPU.
int gpus() {
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    int count = 0;
    for (std::string_view list = visible; !list.empty(); ++count) {
      const std::string_view item = list.substr(0, list.find(','));
      if (item.empty() || item.starts_with('-')) break;  // hides those after it
      list.remove_prefix(std::min(list.size(), item.size() + 1));
    }
    return count;
  }
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && name.size() > 6 &&
        std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      ++count;
  }
  return count;
}

int ranks_from(const std::string& text) {
  if (text == "cpu") return available_cores();
  if (text == "auto") return gpus() > 0 ? gpus() : available_cores();
  if (text == "gpu") {
    const int count = gpus();
    if (count == 0) throw CLI::ValidationError("--nproc-per-node", "\"gpu\", but this machine shows no GPU");
    return count;
  }
  return to_number(text, 1, kMaxRanks, "--nproc-per-node (a number, auto, cpu or gpu)");
}

int nodes_from(const std::string& text) {
  const size_t colon = text.find(':');
  const int least = to_number(text.substr(0, colon), 1, kMaxNodes, "--nnodes");
  if (colon == text.npos) return least;
  const int most = to_number(text.substr(colon + 1), 1, kMaxNodes, "--nnodes");
  if (least != most)
    throw CLI::ValidationError("--nnodes", text + ": the number of machines must be fixed, it cannot grow or shrink");
  return least;
}

StreamChoice streams_from(const std::string& text, const std::string& name) {
  StreamChoice choice;
  if (text.find(':') == text.npos) {
    choice.all = static_cast<Streams>(to_number(text, 0, 3, name));
    return choice;
  }
  for (std::string_view list = text; !list.empty();) {
    const std::string_view item = list.substr(0, list.find(','));
    const size_t colon = std::min(item.find(':'), item.size());
    const int rank = to_number(item.substr(0, colon), 0, kMaxRanks - 1, name);
    choice.some[rank] = static_cast<Streams>(to_number(item.substr(std::min(colon + 1, item.size())), 0, 3, name));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
  }
  return choice;
}

// "host:port", "host", "[::1]:port".
void endpoint_from(const std::string& text, std::string& host, std::string& port) {
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == text.npos) throw CLI::ValidationError("--rdzv-endpoint", text + ": no ] after [");
    host = text.substr(1, close - 1);
    if (close + 1 < text.size() && text[close + 1] == ':') port = text.substr(close + 2);
    return;
  }
  const size_t colon = text.rfind(':');
  host = text.substr(0, colon);
  if (colon != text.npos) port = text.substr(colon + 1);
}

// Where both say it, they must agree.
void merge(const std::string& from_endpoint, std::string& given, const char* flag) {
  if (from_endpoint.empty()) return;
  if (!given.empty() && given != from_endpoint)
    throw CLI::ValidationError(flag, given + ", but --rdzv-endpoint says " + from_endpoint);
  given = from_endpoint;
}

/// The command line as it is written.
struct Given {
  std::string ranks, nodes = "1", node, host, port, endpoint, run_id, backend, tee, redirects;
  bool standalone = false, no_python = false;
  RunOptions options;
};

void add_options(CLI::App& app, Given& given) {
  // As torchrun does, with dashes and with underscores.
  const auto names = [](std::string name) {
    std::string other = name;
    std::replace(other.begin() + 2, other.end(), '-', '_');
    return other == name ? name : name + "," + other;
  };
  const auto variable = [](std::string name) {
    std::string upper = "PET_";
    for (const char c : name.substr(2)) upper += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    return upper;
  };
  const auto add = [&](const char* name, auto& value, const char* text, const char* brief = "") {
    return app.add_option(brief + names(name), value, text)->envname(variable(name));
  };
  RunOptions& o = given.options;
  const auto positive = CLI::Range(1e-3, 1e9);
  add("--nproc-per-node", given.ranks, "processes on this machine: a number, cpu, gpu, or auto (GPUs, else cores)",
      "-n,");
  add("--nnodes", given.nodes, "machines");
  add("--node-rank", given.node, "which of them this is, from 0; 0 hosts the store");
  add("--master-addr", given.host, "the machine of node rank 0");
  add("--master-port", given.port, "a free port there, 29500 by default; on one machine what MASTER_PORT shall be");
  add("--rdzv-endpoint", given.endpoint, "the same two as HOST:PORT");
  add("--rdzv-id", given.run_id, "a name of the job, the same on all machines");
  add("--rdzv-backend", given.backend, "for torchrun's scripts; static and c10d are the same here")
      ->check(CLI::IsMember({"static", "c10d"}));
  add("--max-restarts", o.max_restarts, "how often all ranks are started again after one has failed")
      ->check(CLI::Range(0, 1'000'000));
  app.add_flag("--standalone", given.standalone, "one machine, whatever variables say");
  app.add_flag(names("--no-python"), given.no_python, "for torchrun's scripts; it is always so");
  add("--log-dir", o.log_dir, "also write each rank's output to files in this folder");
  add("--tee", given.tee,
      "which output goes to files and to the terminal: 0, 1 (stdout), 2 (stderr), 3, or 0:1,1:3 by rank", "-t,");
  add("--redirects", given.redirects, "which output goes to files only", "-r,");
  app.add_option("--timeout", o.timeout, "seconds that a collective may take")->check(positive);
  app.add_option("--heartbeat", o.heartbeat, "seconds after which a silent rank is lost")
      ->check(positive)
      ->envname("REEL_DIST_HEARTBEAT");
  app.add_option("--rdzv-timeout,--rdzv_timeout", o.rendezvous, "seconds to wait for the other machines")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--grace", o.grace,
                 "seconds that ranks have to end after one has failed, and again after SIGTERM, before SIGKILL")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
}

void complete(Given& given) {
  RunOptions& o = given.options;
  o.ranks = given.ranks.empty() ? 1 : ranks_from(given.ranks);
  o.nodes = given.standalone ? 1 : nodes_from(given.nodes);
  o.run_id = given.run_id;
  if (!given.tee.empty()) o.tee = streams_from(given.tee, "--tee");
  if (!given.redirects.empty()) o.redirects = streams_from(given.redirects, "--redirects");
  if (o.redirects && o.log_dir.empty()) throw CLI::ValidationError("--redirects", "needs --log-dir");
  if (o.nodes == 1) {
    // Whatever the machine is called, its ranks meet on it.
    o.host = "127.0.0.1";
    if (!given.node.empty()) to_number(given.node, 0, given.standalone ? kMaxNodes : 0, "--node-rank");
    if (!given.port.empty() && !given.standalone)
      o.port = static_cast<uint16_t>(to_number(given.port, 0, UINT16_MAX, "--master-port"));
    return;
  }
  const std::string nodes = std::to_string(o.nodes);
  if (given.node.empty())
    throw CLI::ValidationError("--node-rank", "is needed with --nnodes " + nodes + "; under srun it is $SLURM_NODEID");
  o.node = to_number(given.node, 0, o.nodes - 1, "--node-rank");
  std::string host, port;
  endpoint_from(given.endpoint, host, port);
  merge(host, given.host, "--master-addr");
  merge(port, given.port, "--master-port");
  if (given.host.empty())
    throw CLI::ValidationError("--master-addr", "is needed with --nnodes " + nodes + ": the machine of node rank 0");
  o.host = given.host;
  o.port =
      given.port.empty() ? kDefaultPort : static_cast<uint16_t>(to_number(given.port, 1, UINT16_MAX, "--master-port"));
}

struct Formatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: reel-run [OPTIONS] PROGRAM [ARGUMENTS...]\n";
  }
};

}  // namespace

bool StreamChoice::has(int local_rank, Streams stream) const {
  const auto found = some.find(local_rank);
  return (found == some.end() ? all : found->second) & stream;
}

bool RunOptions::logs(int local_rank, Streams stream) const {
  if (log_dir.empty()) return false;
  if (!tee && !redirects) return true;
  return (tee && tee->has(local_rank, stream)) || (redirects && redirects->has(local_rank, stream));
}

bool RunOptions::prints(int local_rank, Streams stream) const {
  return !(redirects && redirects->has(local_rank, stream)) || (tee && tee->has(local_rank, stream));
}

int available_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0) return CPU_COUNT(&allowed);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::optional<RunOptions> parse_command_line(int argc, char** argv, int& status) {
  CLI::App app(
      "Starts a program several times, as the ranks of a job of reel::distributed, and ends all of them when one\n"
      "fails. Variables tell the program its rank as torchrun's do. With several machines, start it on each of them.",
      "reel-run");
  app.formatter(std::make_shared<Formatter>());
  app.set_version_flag("--version", std::string("reel-run ") + version());
  app.footer(
      "With several machines all need the same REEL_TOKEN, or REEL_TOKEN_FILE, a secret: `openssl rand -hex 16`.\n"
      "The status is that of the rank that failed first, 128 + the signal's number if it was killed by one.");
  app.prefix_command();  // what follows the program is the program's
  Given given;
  add_options(app, given);
  try {
    app.parse(argc, argv);
    given.options.command = app.remaining();
    auto& command = given.options.command;
    if (!command.empty() && command.front() == "--") command.erase(command.begin());
    if (command.empty()) throw CLI::RequiredError("PROGRAM");
    if (command.front().starts_with('-')) throw CLI::ExtrasError("reel-run", {command.front()});
    complete(given);
    return given.options;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    status = code == 0 ? 0 : 2;
    return std::nullopt;
  }
}

}  // namespace reel::distributed::run
