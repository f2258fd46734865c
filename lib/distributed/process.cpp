#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "lib/base/lazy.h"
#include "lib/distributed/group.h"
#include "lib/distributed/thread_members.h"
#include "lib/tensor/profile.h"
#include "reel/distributed/launch.h"

// The default group: that of the process, or of a thread in a job of threads.
namespace reel::distributed {
namespace {

/// A duration in seconds that a variable holds, `otherwise` if it is not set.
Milliseconds seconds_from(const char* variable, Milliseconds otherwise) {
  const char* const text = std::getenv(variable);
  if (!text || !*text) return otherwise;
  double seconds = 0;
  const std::string_view view = text;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), seconds);
  REEL_CHECK(error == std::errc() && end == view.data() + view.size() && seconds >= 0.001 && seconds <= 1e9, variable,
             '=', text, ": expected a number of seconds from 0.001 to 1e9");
  return Milliseconds(std::llround(seconds * 1000));
}

bool checks_from_environment() {
  const char* const text = std::getenv("REEL_DIST_CHECK");
  const std::string_view value = text ? text : "";
  REEL_CHECK(value.empty() || value == "0" || value == "1", "REEL_DIST_CHECK=", value, ": expected 0 or 1");
  return value != "0";
}

ProcessGroupOptions with_environment(ProcessGroupOptions options) {
  options.timeout = seconds_from("REEL_DIST_TIMEOUT", options.timeout);
  options.heartbeat = seconds_from("REEL_DIST_HEARTBEAT", options.heartbeat);
  if (const char* const name = std::getenv("REEL_IFNAME"); name && *name) options.interface = name;
  REEL_CHECK(options.timeout.count() > 0 && options.rendezvous.count() > 0 && options.heartbeat.count() > 0,
             "init_process_group: timeouts must be positive");
  return options;
}

int gpu_count() {
  try {
    return runtime(kCUDA).device_count();
  } catch (const reel::Error&) {
    return 0;  // a build without CUDA
  }
}

/// An Error if NCCL is asked for and is not to be had.
void check_nccl(const ProcessGroupOptions& options) {
  if (options.backend != Backend::kNccl) return;
  nccl_version();
  REEL_CHECK(gpu_count() > 0, "init_process_group: NCCL needs GPUs, and there is none that this process can use");
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::unique_ptr<ProcessGroup> make_group(const std::shared_ptr<Membership>& membership, std::vector<int> ranks,
                                         int number) {
  auto core = std::make_shared<Core>(membership, std::move(ranks), number);
  try {
    core->start();
  } catch (...) {
    core->close();
    throw;
  }
  return ProcessGroupImpl::make_group(std::move(core));
}

/// A rank of a job.
class Process {
 public:
  /// Of a job whose store is known. `neighbours` are the ranks on this machine.
  Process(std::shared_ptr<Member> member, ProcessGroupOptions options, int neighbours, bool threads)
      : membership_(std::make_shared<Membership>()) {
    membership_->threads = threads;
    membership_->checks = checks_from_environment();
    membership_->options = std::move(options);
    if (member) {
      membership_->rank = member->rank();
      membership_->world_size = member->world_size();
    }
    if (membership_->world_size > 1) {
      if (!threads) profile::set_rank(membership_->rank);
      membership_->member = std::move(member);
      const Backend backend = membership_->options.backend;
      if (!threads || backend == Backend::kGloo) find_address();
      // Not one rank of many: Core::choose_backend() asks whether all do.
      if (backend == Backend::kAuto && gpu_count() >= neighbours && has_nccl())
        membership_->member->add("backend/nccl", 1);
    }
    membership_->groups = 1;
    group_ = make_group(membership_, all_ranks(membership_->world_size), 0);
  }
  ~Process() { close(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int rank() const { return membership_->rank; }
  int world_size() const { return membership_->world_size; }
  ProcessGroup& group() { return *group_; }

  std::unique_ptr<ProcessGroup> new_group(std::span<const int> ranks) {
    REEL_CHECK(!ranks.empty(), "new_group: of no ranks");
    std::vector<int> sorted(ranks.begin(), ranks.end());
    std::sort(sorted.begin(), sorted.end());
    REEL_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "new_group: a rank is given twice");
    REEL_CHECK(sorted.front() >= 0 && sorted.back() < world_size(), "new_group: ranks ", sorted.front(), " to ",
               sorted.back(), " in a world of ", world_size());
    const int number = membership_->groups++;
    membership_->bury();
    if (!std::binary_search(sorted.begin(), sorted.end(), rank())) return nullptr;
    return make_group(membership_, {ranks.begin(), ranks.end()}, number);
  }

  /// Waits for all ranks, unless some of them wait for this one, and leaves.
  void close() noexcept {
    if (!group_) return;
    const auto core = ProcessGroupImpl::of(*group_).core;
    group_.reset();
    Member* const member = membership_->member.get();
    if (!member) return;
    if (!member->aborted() && std::uncaught_exceptions() == 0) {
      try {
        wait_for_others(*member);
      } catch (...) {
        // The job has ended otherwise.
      }
    }
    member->leave();
    const std::lock_guard lock(membership_->mutex);
    membership_->retired.clear();
  }

 private:
  void find_address() {
    try {
      membership_->address = local_address(*membership_->member, membership_->options.rendezvous);
    } catch (const Error& error) {
      membership_->member->abort(error);  // the cause for all, not that an exception has ended this rank
      throw;
    }
  }

  void wait_for_others(Member& member) {
    const auto deadline = Clock::now() + membership_->options.timeout;
    const auto patience = membership_->options.heartbeat * 3 / 4;
    const auto slice = std::clamp(patience / 8, Milliseconds(10), Milliseconds(250));
    member.set_activity("destroy_process_group");
    std::map<int, std::pair<std::string, Clock::time_point>> seen;  // since when a rank has been at something
    while (Clock::now() < deadline) {
      const std::vector<int> missing = meet(member, "destroy", rank(), all_ranks(world_size()), slice);
      if (missing.empty()) return;
      bool all_wait = true;
      for (const Activity& activity : member.activities()) {
        if (std::find(missing.begin(), missing.end(), activity.rank) == missing.end()) continue;
        auto& [what, since] = seen[activity.rank];
        if (what != activity.what) {
          what = activity.what;
          since = Clock::now();
        }
        if (what.starts_with("left")) return;
        if (what == "user code" || Clock::now() - since <= patience) all_wait = false;
      }
      // For what this rank will not do; a single one may wait for another, which computes.
      if (all_wait) return;
    }
  }

  std::shared_ptr<Membership> membership_;
  std::unique_ptr<ProcessGroup> group_;
};

/// Somebody else may listen at the master's port, as torchrun does: rank 0 takes the first that is free, and who is
/// there says which job it belongs to.
constexpr int kPorts = 8;

/// Deletes what a process has made in that process only. A forked child has none of its threads, and what it has of it
/// is not a rank: it must not leave in its parent's place.
struct DeleteInItsProcess {
  pid_t process = ::getpid();
  template <class T>
  void operator()(T* object) const {
    if (process == ::getpid()) delete object;
  }
};
template <class T>
using OfProcess = std::unique_ptr<T, DeleteInItsProcess>;

/// The rank's connection to the store, which rank 0 hosts if nobody else does.
struct Connection {
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Member> member;

  Connection(const Launch& launch, const ProcessGroupOptions& options) {
    StoreOptions store{.host = launch.master_host,
                       .port = launch.master_port,
                       .ports = launch.store_is_hosted ? 1 : kPorts,
                       .run_id = launch.run_id,
                       .generation = launch.generation,
                       .world_size = launch.world_size,
                       .token = launch.token,
                       .timeout = options.rendezvous,
                       .heartbeat = options.heartbeat};
    if (launch.rank == 0 && !launch.store_is_hosted) {
      server = std::make_unique<StoreServer>(store);
      store.port = server->port();
      store.ports = 1;
    }
    member = connect_store(launch.rank, store);
  }
};

/// That of the process. The server outlives the member.
struct Global {
  std::mutex mutex;
  OfProcess<Connection> connection;
  OfProcess<Process> process;
  bool ended = false;  // with the process
  void reset() {
    process.reset();
    connection.reset();
  }
};
/// Returns the process's group. At the end of the process the other ranks learn that this one has ended.
Global& global() {
  static constinit Lazy<Global> instance;
  return instance.get([] {
    std::atexit([] {
      Global& ended = global();
      const std::unique_lock lock(ended.mutex, std::try_to_lock);
      if (lock) ended.ended = true, ended.reset();
    });
    return Global();
  });
}
thread_local OfProcess<Process> of_thread;

const Launch& launch() {
  static constinit Lazy<Launch> instance;
  return instance.get(Launch::from_environment);
}

Process* current() {
  if (of_thread) return of_thread.get();
  Global& g = global();
  const std::lock_guard lock(g.mutex);
  return g.process.get();
}

Process& initialized() {
  if (Process* const process = current()) return *process;
  init_process_group();
  return *current();
}

}  // namespace

void init_process_group(const ProcessGroupOptions& given) {
  ProcessGroupOptions options = with_environment(given);
  check_nccl(options);
  REEL_CHECK(!of_thread, "init_process_group: this thread has a default group already");
  Global& g = global();
  const std::lock_guard lock(g.mutex);
  REEL_CHECK(!g.process, "init_process_group: there is a default group already");
  REEL_CHECK(!g.ended, "init_process_group: the process is ending, and has left its default group");
  if (launch().world_size == 1) {
    if (options.backend == Backend::kAuto) options.backend = Backend::kGloo;
    g.process = OfProcess<Process>(new Process(nullptr, std::move(options), 1, false));
    return;
  }
  OfProcess<Connection> connection(new Connection(launch(), options));
  g.process = OfProcess<Process>(new Process(connection->member, std::move(options), launch().local_world_size, false));
  connection->member.reset();
  g.connection = std::move(connection);
}

void init_process_group(std::shared_ptr<Member> member, const ProcessGroupOptions& given) {
  REEL_CHECK(member, "init_process_group: no member");
  ProcessGroupOptions options = with_environment(given);
  const bool threads = is_of_threads(*member);
  if (threads && options.backend == Backend::kAuto) options.backend = kThreadBackend;
  REEL_CHECK(!of_thread, "init_process_group: this thread has a default group already");
  check_nccl(options);
  const int ranks = member->world_size();
  of_thread = OfProcess<Process>(new Process(std::move(member), std::move(options), ranks, threads));
}

void destroy_process_group() {
  if (of_thread) {
    of_thread.reset();
    return;
  }
  Global& g = global();
  const std::lock_guard lock(g.mutex);
  g.reset();
}

bool is_initialized() { return current() != nullptr; }

int rank() {
  const Process* const process = current();
  return process ? process->rank() : launch().rank;
}
int world_size() {
  const Process* const process = current();
  return process ? process->world_size() : launch().world_size;
}
int local_rank() { return of_thread ? of_thread->rank() : launch().local_rank; }

ProcessGroup& default_group() { return initialized().group(); }
std::unique_ptr<ProcessGroup> new_group(std::span<const int> ranks) { return initialized().new_group(ranks); }

}  // namespace reel::distributed
