#include "lib/distributed/nccl.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "reel/distributed/error.h"

namespace reel::distributed {
namespace {

// ---- NCCL's ABI -----------------------------------------------------------------------------------------------------

enum Result { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7 };
enum Type { kInt32Type = 2, kUint8Type = 1, kInt64Type = 4, kHalf = 6, kFloat = 7, kDouble = 8, kBrain = 9 };
enum Op { kSumOp = 0, kProdOp = 1, kMaxOp = 2, kMinOp = 3, kAvgOp = 4 };

struct UniqueId {
  char bytes[128];
};
/// As of 2.14; what later versions have added has its default.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

int type_of(DType dtype) {
  switch (dtype) {
    case kBool:
    case kUInt8: return kUint8Type;
    case kInt32: return kInt32Type;
    case kInt64: return kInt64Type;
    case kFloat16: return kHalf;
    case kBFloat16: return kBrain;
    case kFloat64: return kDouble;
    default: return kFloat;
  }
}
int op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAvg: return kAvgOp;
    case ReduceOp::kMin: return kMinOp;
    case ReduceOp::kMax: return kMaxOp;
    case ReduceOp::kProd: return kProdOp;
    default: return kSumOp;
  }
}

}  // namespace

/// A program that has NCCL's functions itself, since it is linked with it, keeps those.
struct Nccl::Library {
  int (*get_version)(int*);
  int (*get_unique_id)(UniqueId*);
  int (*init)(void**, int, UniqueId, int, Config*);
  int (*abort)(void*);
  const char* (*error_string)(int);
  const char* (*last_error)(void*);
  int (*async_error)(void*, int*);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*);
  int (*broadcast)(const void*, void*, size_t, int, int, void*, void*);
  int (*all_gather)(const void*, void*, size_t, int, void*, void*);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, void*, void*);
  int (*send)(const void*, size_t, int, int, void*, void*);
  int (*receive)(void*, size_t, int, int, void*, void*);
  int version = 0;

  Library() {
    void* opened = dlopen(nullptr, RTLD_NOW);
    if (!opened || !dlsym(opened, "ncclGetVersion")) {
      const char* const named = std::getenv("REEL_NCCL");
      std::vector<std::string> files = {"libnccl.so.2"};
      if (named && *named) files = {named};
#ifdef REEL_NCCL_LIBRARY  // where it was when this was built
      else
        files.emplace_back(REEL_NCCL_LIBRARY);
#endif
      std::string why;
      opened = nullptr;
      for (const std::string& file : files) {
        if (opened) break;
        opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!opened) why += (why.empty() ? "" : "; ") + std::string(dlerror());
      }
      REEL_CHECK(opened, "NCCL: ", why);
    }
    const auto find = [&](auto& function, const char* name) {
      void* const found = dlsym(opened, name);
      REEL_CHECK(found, "NCCL: it has no ", name);
      std::memcpy(&function, &found, sizeof found);
    };
    find(get_version, "ncclGetVersion");
    get_version(&version);
    REEL_CHECK(version >= 21400, "NCCL: version ", version, ", older than 21400");
    find(get_unique_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRankConfig");
    find(abort, "ncclCommAbort");
    find(error_string, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(async_error, "ncclCommGetAsyncError");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(all_reduce, "ncclAllReduce");
    find(broadcast, "ncclBroadcast");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
  }
};

const Nccl::Library& Nccl::library() {
  static const Library instance;
  return instance;
}

bool has_nccl() {
  try {
    Nccl::library();
    return true;
  } catch (const reel::Error&) {
    return false;
  }
}

int nccl_version() { return Nccl::library().version; }

// ---- the communicator -----------------------------------------------------------------------------------------------

Nccl::Nccl(int rank, int size, Device device) : rank_(rank), size_(size), device_(device) { library(); }

Nccl::~Nccl() {
  abort();
  if (aborter_.joinable()) aborter_.join();
}

void Nccl::make_current() const { runtime(device_).kernels(device_.index); }

std::string Nccl::reason(int result) const {
  std::string text = library().error_string(result);
  const char* const last = communicator_ ? library().last_error(communicator_) : nullptr;
  if (last && *last) text += detail::concat(" (", last, ')');
  return text;
}

void Nccl::finish(int result, const char* call, Deadline deadline) {
  using Clock = std::chrono::steady_clock;
  for (int round = 0; result == kInProgress; ++round) {
    if (aborted_) throw Aborted();
    if (Clock::now() > deadline) throw Late();
    if (round < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(round < 1000 ? 20 : 500));
    int state = kSuccess;
    result = library().async_error(communicator_, &state);
    if (result == kSuccess) result = state;
  }
  if (aborted_) throw Aborted();
  if (result == kSuccess) return;
  const std::string text = detail::concat("NCCL: ", reason(result), " from ", call);
  if (result == kInvalidArgument || result == kInvalidUsage) throw reel::Error(text);
  throw std::runtime_error(text);
}

void Nccl::connect(Store& store, Deadline deadline) {
  const auto rest = [&] {
    const auto left = deadline - std::chrono::steady_clock::now();
    return std::max(std::chrono::duration_cast<Milliseconds>(left), Milliseconds(0));
  };
  UniqueId id{};
  int version = library().version;
  if (rank_ == 0) {
    finish(library().get_unique_id(&id), "ncclGetUniqueId", deadline);
    std::string text(sizeof version + sizeof id, '\0');
    std::memcpy(text.data(), &version, sizeof version);
    std::memcpy(text.data() + sizeof version, &id, sizeof id);
    store.set("nccl", text);
  } else {
    std::string text;
    try {
      text = store.get("nccl", rest());
    } catch (const Error& error) {
      if (error.kind == Error::kTimeout) throw Late();
      throw;
    }
    REEL_CHECK(text.size() == sizeof version + sizeof id, "NCCL: an id of ", text.size(), " bytes");
    std::memcpy(&version, text.data(), sizeof version);
    std::memcpy(&id, text.data() + sizeof version, sizeof id);
    if (version != library().version)
      throw Error(Error::kMismatch, detail::concat("NCCL: version ", version, " on the first rank of the group, ",
                                                   library().version, " on rank ", rank_, " of it"));
  }
  const std::lock_guard lock(mutex_);
  if (aborted_) throw Aborted();
  make_current();
  Config config;
  finish(library().init(&communicator_, size_, id, rank_, &config), "ncclCommInitRankConfig", deadline);
}

void Nccl::issue(const char* call, const std::function<int()>& f, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (aborted_ || !communicator_) throw Aborted();
  make_current();
  finish(library().group_start(), "ncclGroupStart", deadline);
  const int result = f();
  const int end = library().group_end();
  if (result != kInProgress) finish(result, call, deadline);
  finish(end, call, deadline);
}

void Nccl::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, DeviceStream& stream, Deadline deadline) {
  issue(
      "ncclAllReduce",
      [&] {
        return library().all_reduce(data, data, static_cast<size_t>(count), type_of(dtype), op_of(op), communicator_,
                                    stream.native());
      },
      deadline);
}

void Nccl::broadcast(void* data, size_t bytes, int root, DeviceStream& stream, Deadline deadline) {
  issue(
      "ncclBroadcast",
      [&] { return library().broadcast(data, data, bytes, kUint8Type, root, communicator_, stream.native()); },
      deadline);
}

void Nccl::all_gather(const void* in, void* out, size_t bytes, DeviceStream& stream, Deadline deadline) {
  issue(
      "ncclAllGather", [&] { return library().all_gather(in, out, bytes, kUint8Type, communicator_, stream.native()); },
      deadline);
}

void Nccl::all_gather_v(const void* in, std::span<void* const> outs, std::span<const size_t> bytes,
                        DeviceStream& stream, Deadline deadline) {
  issue(
      "ncclBroadcast",
      [&] {
        for (size_t r = 0; r < outs.size(); ++r) {
          if (!bytes[r]) continue;
          const int result = library().broadcast(static_cast<int>(r) == rank_ ? in : outs[r], outs[r], bytes[r],
                                                 kUint8Type, static_cast<int>(r), communicator_, stream.native());
          if (result != kSuccess && result != kInProgress) return result;
        }
        return int{kSuccess};
      },
      deadline);
}

void Nccl::reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op, DeviceStream& stream,
                          Deadline deadline) {
  issue(
      "ncclReduceScatter",
      [&] {
        return library().reduce_scatter(in, out, static_cast<size_t>(count), type_of(dtype), op_of(op), communicator_,
                                        stream.native());
      },
      deadline);
}

void Nccl::all_to_all(std::span<const void* const> ins, std::span<const size_t> in_bytes, std::span<void* const> outs,
                      std::span<const size_t> out_bytes, DeviceStream& stream, Deadline deadline) {
  issue(
      "ncclSend and ncclRecv",
      [&] {
        const auto good = [](int result) { return result == kSuccess || result == kInProgress; };
        for (size_t r = 0; r < ins.size(); ++r) {
          int result = kSuccess;
          if (in_bytes[r])
            result =
                library().send(ins[r], in_bytes[r], kUint8Type, static_cast<int>(r), communicator_, stream.native());
          if (good(result) && out_bytes[r])
            result = library().receive(outs[r], out_bytes[r], kUint8Type, static_cast<int>(r), communicator_,
                                       stream.native());
          if (!good(result)) return result;
        }
        return int{kSuccess};
      },
      deadline);
}

// ---- its end --------------------------------------------------------------------------------------------------------

std::string Nccl::failure() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || aborted_ || !communicator_) return {};  // whoever is at work sees it
  int state = kSuccess;
  const int result = library().async_error(communicator_, &state);
  if (result != kSuccess) state = result;
  return state == kSuccess || state == kInProgress ? std::string() : detail::concat("NCCL: ", reason(state));
}

void Nccl::abort() noexcept {
  if (aborted_.exchange(true)) return;
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const auto work = [this] {
    const std::lock_guard lock(mutex_);
    if (!communicator_) return;
    try {
      make_current();
    } catch (...) {
      // NCCL will say so.
    }
    library().abort(communicator_);
    communicator_ = nullptr;
  };
  const auto watched = [work] {
    Progress progress;
    std::thread aborting([&] {
      work();
      const std::lock_guard lock(progress.mutex);
      progress.done = true;
      progress.changed.notify_all();
    });
    {
      std::unique_lock lock(progress.mutex);
      if (!progress.changed.wait_for(lock, kAbortLimit, [&] { return progress.done; })) {
        std::fputs("reel: ncclCommAbort hangs, so the process ends\n", stderr);
        _exit(70);
      }
    }
    aborting.join();
  };
  try {
    aborter_ = std::thread([work, watched] {
      try {
        watched();
      } catch (...) {
        work();  // there is no second thread to be had
      }
    });
  } catch (...) {
    work();
  }
}

}  // namespace reel::distributed
