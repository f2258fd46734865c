// NCCL between threads, each with a GPU of the shim, by NCCL's rules: calls that another thread or rank has to match
// block their streams, not the host; what a group of calls queues is queued when the communicator is no longer in
// progress; a communicator that is aborted opens its own streams only. With SIMT_NCCL_DELAY=n every call is in progress
// until its n-th poll.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <string>

#include "simt.h"
#include "streams.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
// lib/distributed/nccl.cpp declares these by itself.
static_assert(ncclSuccess == 0 && ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclInProgress == 7);
static_assert(ncclUint8 == 1 && ncclInt32 == 2 && ncclInt64 == 4 && ncclFloat16 == 6 && ncclFloat32 == 7);
static_assert(ncclFloat64 == 8 && ncclBfloat16 == 9 && sizeof(ncclUniqueId) == 128);
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4);
static_assert(offsetof(ncclConfig_t, blocking) == 16 && offsetof(ncclConfig_t, version) == 12);
#else
using ncclResult_t = int;
using ncclDataType_t = int;
using ncclRedOp_t = int;
enum { ncclSuccess = 0, ncclInvalidArgument = 4, ncclInvalidUsage = 5, ncclInProgress = 7 };
enum {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};
enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking;
};
using ncclComm_t = struct ncclComm*;
#endif

namespace {

using namespace simt;

enum class Kind { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kMessage };

/// What one rank gives to an op.
struct Part {
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  int type = 0, op = 0, root = 0;
  cudaStream_t stream = nullptr;
  bool arrived = false;  // its stream has come to it
};
struct Transfer {
  Kind kind;
  std::map<int, Part> parts;  // of the ranks that have called it
  size_t ranks;               // that have to
  bool done = false;
};

/// The ranks of one id. All of this is guarded by the shim's mutex.
struct Job {
  size_t size = 0;
  std::vector<ncclComm_t> joined;
  std::map<uint64_t, std::shared_ptr<Transfer>> collectives;
  std::map<std::pair<int, int>, std::map<uint64_t, std::shared_ptr<Transfer>>> messages;  // by sender and receiver
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Job> job;
  int rank, device;
  uint64_t next = 0;
  std::map<std::pair<int, int>, uint64_t> next_message;
  bool aborted = false, has_failed = false;
  std::string error;
  int polls = 0;  // before what is deferred happens
  std::list<std::function<void()>> deferred;
};

namespace {

std::map<std::string, std::shared_ptr<Job>>& jobs() {
  static auto& all = *new std::map<std::string, std::shared_ptr<Job>>;
  return all;
}
std::list<ncclComm>& communicators() {
  static auto& all = *new std::list<ncclComm>;
  return all;
}

int delay() {
  static const int polls = [] {
    const char* const text = std::getenv("SIMT_NCCL_DELAY");
    return text ? std::atoi(text) : 0;
  }();
  return polls;
}

// ---- what happens on the GPUs ---------------------------------------------------------------------------------------

size_t size_of_type(int type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclFloat64: return 8;
    default: die("nccl: data type %d", type);
  }
}

/// `to` = the parts' elements from `offset` on, combined in float for halves.
template <class T, class Wide>
void reduce(const Transfer& t, size_t offset, size_t count, void* to) {
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    Wide value{};
    bool first = true;
    for (const auto& [rank, part] : t.parts) {
      const Wide next = static_cast<Wide>(static_cast<const T*>(part.in)[offset + i]);
      if (std::exchange(first, false)) {
        value = next;
        continue;
      }
      switch (part.op) {
        case ncclProd: value = static_cast<Wide>(value * next); break;
        case ncclMax: value = std::max(value, next); break;
        case ncclMin: value = std::min(value, next); break;
        default: value = static_cast<Wide>(value + next);
      }
    }
    if (t.parts.begin()->second.op == ncclAvg) value = static_cast<Wide>(value / static_cast<Wide>(t.ranks));
    result[i] = static_cast<T>(value);
  }
  std::memcpy(to, result.data(), count * sizeof(T));
}
void reduce(const Transfer& t, size_t offset, size_t count, void* to) {
  switch (t.parts.begin()->second.type) {
    case ncclUint8: return reduce<uint8_t, uint8_t>(t, offset, count, to);
    case ncclInt32: return reduce<int32_t, int32_t>(t, offset, count, to);
    case ncclInt64: return reduce<int64_t, int64_t>(t, offset, count, to);
    case ncclFloat16: return reduce<__half, float>(t, offset, count, to);
    case ncclBfloat16: return reduce<__nv_bfloat16, float>(t, offset, count, to);
    case ncclFloat32: return reduce<float, float>(t, offset, count, to);
    default: return reduce<double, double>(t, offset, count, to);
  }
}

void run(const Transfer& t) {
  reopen(kAllDevices);
  const Part& first = t.parts.begin()->second;
  for (const auto& [rank, part] : t.parts)
    if (part.count != first.count || part.type != first.type || part.op != first.op || part.root != first.root)
      die("nccl: ranks disagree: %zu and %zu elements, types %d and %d, roots %d and %d", first.count, part.count,
          first.type, part.type, first.root, part.root);
  const size_t bytes = first.count * size_of_type(first.type);
  std::vector<std::pair<void*, std::string>> results;  // since in and out may be the same
  const auto read = [&](const void* from, size_t size) { return std::string(static_cast<const char*>(from), size); };
  switch (t.kind) {
    case Kind::kAllReduce:
      for (const auto& [rank, part] : t.parts) {
        results.emplace_back(part.out, std::string(bytes, '\0'));
        reduce(t, 0, first.count, results.back().second.data());
      }
      break;
    case Kind::kReduceScatter:
      for (const auto& [rank, part] : t.parts) {
        results.emplace_back(part.out, std::string(bytes, '\0'));
        reduce(t, first.count * static_cast<size_t>(rank), first.count, results.back().second.data());
      }
      break;
    case Kind::kBroadcast:
      for (const auto& [rank, part] : t.parts) results.emplace_back(part.out, read(t.parts.at(first.root).in, bytes));
      break;
    case Kind::kAllGather: {
      std::string all;
      for (const auto& [rank, part] : t.parts) all += read(part.in, bytes);
      for (const auto& [rank, part] : t.parts) results.emplace_back(part.out, all);
      break;
    }
    case Kind::kMessage: {
      const void* from = nullptr;
      for (const auto& [rank, part] : t.parts)
        if (part.in) from = part.in;
      for (const auto& [rank, part] : t.parts)
        if (part.out) results.emplace_back(part.out, read(from, bytes));
    }
  }
  for (const auto& [to, result] : results) std::memcpy(to, result.data(), result.size());
}

/// What one rank has queued as one.
class Queued : public Gate {
 public:
  Queued(ncclComm& comm, std::vector<std::pair<int, std::shared_ptr<Transfer>>> own)
      : comm_(comm), own_(std::move(own)) {}
  void arrive() {
    if (comm_.aborted) return;
    for (const auto& [key, transfer] : own_) {
      transfer->parts.at(key).arrived = true;
      const auto& parts = transfer->parts;
      if (transfer->done || parts.size() < transfer->ranks ||
          !std::all_of(parts.begin(), parts.end(), [](const auto& entry) { return entry.second.arrived; }))
        continue;
      run(*transfer);
      transfer->done = true;
    }
    notify_gates();
  }
  bool open() override {
    return comm_.aborted || std::all_of(own_.begin(), own_.end(), [](const auto& entry) { return entry.second->done; });
  }
  cudaStream_t needs() override {
    for (const auto& [key, transfer] : own_)
      if (!transfer->done)
        for (const auto& [other, part] : transfer->parts)
          if (!part.arrived) return part.stream;
    return nullptr;
  }

 private:
  ncclComm& comm_;
  const std::vector<std::pair<int, std::shared_ptr<Transfer>>> own_;  // with this rank's key among its parts
};

// ---- calls ----------------------------------------------------------------------------------------------------------

struct Call {
  ncclComm_t comm;
  Kind kind;
  Part part;
  int other = -1;  // of a message
};
thread_local int group_depth = 0;
thread_local std::vector<Call> group;

bool is_at_work(ncclComm_t comm) { return comm->polls > 0 || !comm->deferred.empty(); }

/// Registers calls of one communicator and stream, and queues them.
void queue(ncclComm& comm, const std::vector<Call>& calls) {
  std::vector<std::pair<int, std::shared_ptr<Transfer>>> own;
  for (const Call& call : calls) {
    std::shared_ptr<Transfer>* transfer = nullptr;
    int key = comm.rank;
    size_t ranks = comm.job->size;
    if (call.kind == Kind::kMessage) {
      const bool sends = call.part.in != nullptr;
      const auto way = sends ? std::pair(comm.rank, call.other) : std::pair(call.other, comm.rank);
      key = sends ? 0 : 1, ranks = 2;
      const uint64_t number = comm.next_message[{way.first * 2 + !sends, way.second}]++;
      transfer = &comm.job->messages[way][number];
    } else {
      transfer = &comm.job->collectives[comm.next++];
    }
    if (!*transfer) *transfer = std::make_shared<Transfer>(Transfer{call.kind, {}, ranks});
    if ((*transfer)->kind != call.kind) die("nccl: ranks call different collectives");
    (*transfer)->parts[key] = call.part;
    own.emplace_back(key, *transfer);
  }
  const auto queued = std::make_shared<Queued>(comm, std::move(own));
  const cudaStream_t stream = calls.front().part.stream;
  issue(*stream, [queued] { queued->arrive(); });
  add_gate(*stream, queued);
  notify_gates();
}

ncclResult_t issue_group() {
  std::map<ncclComm_t, std::vector<Call>> by_communicator;
  for (const Call& call : group) by_communicator[call.comm].push_back(call);
  group.clear();
  bool in_progress = false;
  for (auto& [comm, calls] : by_communicator) {
    if (comm->aborted) die("nccl: a call of a communicator that has ended");
    if (comm->has_failed) return ncclInvalidUsage;
    if (is_at_work(comm) || comm->job->joined.size() < comm->job->size) die("nccl: the communicator is in progress");
    if (current_device != comm->device) die("nccl: device %d is current, not %d", current_device, comm->device);
    for (const Call& call : calls) {
      const Stream* const stream = find_stream(call.part.stream);
      if (!stream || stream->device != comm->device) die("nccl: a stream of another device");
      if (call.part.stream != calls[0].part.stream) die("nccl: two streams in a group");
      for (const void* data : {call.part.in, const_cast<const void*>(call.part.out)})
        if (data && !find_block(data)) return ncclInvalidArgument;
    }
    comm->deferred.push_back([comm = comm, calls = calls] { queue(*comm, calls); });
    comm->polls = delay();
    if (comm->polls == 0) {
      comm->deferred.front()();
      comm->deferred.clear();
    } else {
      in_progress = true;
    }
  }
  return in_progress ? ncclInProgress : ncclSuccess;
}

ncclResult_t add(Call call) {
  const std::lock_guard lock(state().mutex);
  call.part.stream = find_stream(call.part.stream);
  group.push_back(call);
  return group_depth ? ncclSuccess : issue_group();
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = 22809, ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(state().mutex);
  static int made = 0;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "job %d", ++made);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::lock_guard lock(state().mutex);
  if (size < 1 || rank < 0 || rank >= size || config->magic != 0xcafebeef) return ncclInvalidArgument;
  if (config->blocking != 0) die("nccl: a communicator that blocks");
  std::shared_ptr<Job>& job = jobs()[id.internal];
  if (!job) job = std::make_shared<Job>();
  job->size = static_cast<size_t>(size);
  *comm = &communicators().emplace_back(ncclComm{job, rank, current_device, 0, {}, false, false, {}, 0, {}});
  for (const ncclComm_t other : job->joined)
    if (other->device == current_device)
      for (const ncclComm_t one : {other, *comm}) one->has_failed = true, one->error = "Duplicate GPU detected";
  job->joined.push_back(*comm);
  (*comm)->polls = delay();
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(state().mutex);
  if (comm->aborted) die("nccl: a communicator that has ended is asked");
  *error = ncclInProgress;
  if (comm->polls > 0 && --comm->polls > 0) return ncclSuccess;
  for (const auto& f : std::exchange(comm->deferred, {})) f();
  const Job& job = *comm->job;
  if (comm->has_failed)
    *error = ncclInvalidUsage;
  else if (job.joined.size() == job.size)
    *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (comm->aborted) die("nccl: a communicator is aborted twice");
  comm->aborted = true;
  notify_gates();
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : "invalid usage"; }
const char* ncclGetLastError(ncclComm_t comm) { return comm ? comm->error.c_str() : ""; }

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(state().mutex);
  return --group_depth ? ncclSuccess : issue_group();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return add({comm, Kind::kAllReduce, {in, out, count, type, op, 0, stream}});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return add({comm, Kind::kBroadcast, {in, out, count, type, 0, root, stream}});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add({comm, Kind::kAllGather, {in, out, count, type, 0, 0, stream}});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return add({comm, Kind::kReduceScatter, {in, out, count, type, op, 0, stream}});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({comm, Kind::kMessage, {in, nullptr, count, type, 0, 0, stream}, peer});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({comm, Kind::kMessage, {nullptr, out, count, type, 0, 0, stream}, peer});
}

}  // extern "C"
