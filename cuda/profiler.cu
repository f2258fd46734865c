// Records what GPUs do, by CUPTI's activity API: kernels, copies and fills, and the host's waits for them.
//
// CUPTI is opened when the first recording needs it, and the program does not link to it. Each event of the host is an
// external region, and CUPTI tells which one a kernel was launched in: an ExternalCorrelation record comes before the
// record of the runtime's or the driver's function, which has the correlation id of the kernel. CUPTI takes the time
// from a function of ours and converts the GPU's times to it.
#include "lib/device/profiler.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "cuda/device.h"

namespace reel {
namespace cuda {
namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
using FillRecord = CUpti_ActivityMemset4;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr auto kRegion = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
constexpr size_t kBuffer = size_t{1} << 20;

// ---- the library ----------------------------------------------------------------------------------------------------

struct Functions {
  decltype(cuptiGetVersion)* get_version = nullptr;
  decltype(cuptiGetResultString)* result_string = nullptr;
  decltype(cuptiGetCallbackName)* callback_name = nullptr;
  decltype(cuptiActivityRegisterCallbacks)* register_buffers = nullptr;
  decltype(cuptiActivityRegisterTimestampCallback)* register_clock = nullptr;
  decltype(cuptiActivityEnable)* enable = nullptr;
  decltype(cuptiActivityDisable)* disable = nullptr;
  decltype(cuptiActivityFlushAll)* flush = nullptr;
  decltype(cuptiActivityGetNextRecord)* next_record = nullptr;
  decltype(cuptiActivityGetNumDroppedRecords)* dropped_records = nullptr;
  decltype(cuptiActivityPushExternalCorrelationId)* push = nullptr;
  decltype(cuptiActivityPopExternalCorrelationId)* pop = nullptr;

  /// Returns an empty string, or why there are no functions.
  std::string open();
};

std::string Functions::open() {
  const char* const wish = std::getenv("REEL_CUPTI");
#ifdef REEL_CUPTI  // where it was when this was built; else the program has these functions itself
  const std::string soname = "libcupti.so." + std::to_string(CUDART_VERSION / 1000);
  void* library = dlopen(wish ? wish : soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library && !wish) library = dlopen(REEL_CUPTI, RTLD_NOW | RTLD_LOCAL);
#else
  void* const library = dlopen(wish, RTLD_NOW | RTLD_LOCAL);
#endif
  if (!library) return dlerror();
  const char* missing = nullptr;
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) missing = name;
  };
  find(get_version, "cuptiGetVersion");
  find(result_string, "cuptiGetResultString");
  find(callback_name, "cuptiGetCallbackName");
  find(register_buffers, "cuptiActivityRegisterCallbacks");
  find(register_clock, "cuptiActivityRegisterTimestampCallback");
  find(enable, "cuptiActivityEnable");
  find(disable, "cuptiActivityDisable");
  find(flush, "cuptiActivityFlushAll");
  find(next_record, "cuptiActivityGetNextRecord");
  find(dropped_records, "cuptiActivityGetNumDroppedRecords");
  find(push, "cuptiActivityPushExternalCorrelationId");
  find(pop, "cuptiActivityPopExternalCorrelationId");
  if (missing) return std::string("CUPTI has no function ") + missing;
  // Until CUDA 13 versions were small numbers.
  uint32_t version = 0;
  get_version(&version);
  if (version / 10000 != CUPTI_API_VERSION / 10000)
    return "CUPTI's version is " + std::to_string(version) + ", and reel was built with " +
           std::to_string(CUPTI_API_VERSION);
  return {};
}

// ---- names ----------------------------------------------------------------------------------------------------------

/// Returns a kernel's name as people read it: without its result, its parameters and reel's own namespaces.
std::string readable(const char* mangled) {
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr);
  std::string name = demangled ? demangled : mangled;
  std::free(demangled);
  for (const std::string_view part : {"(anonymous namespace)::", "reel::cuda::", "reel::functors::", "reel::"})
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (depth == 0 && name[i] == '(') name.resize(i);
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  return name;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "memcpy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "memcpy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "memcpy device to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "memcpy between devices";
    default: return "memcpy";
  }
}

// ---- the profiler ---------------------------------------------------------------------------------------------------

class CuptiProfiler final : public DeviceProfiler {
 public:
  bool in_use() override {
    for (int device = 0; device < kMaxDevices; ++device)
      if (cuda::in_use(device)) return true;
    return false;
  }
  std::string start() override;
  void push_event(uint64_t event) override { cupti_.push(kRegion, event); }
  void pop_event() override { cupti_.pop(kRegion, nullptr); }
  std::vector<DeviceActivity> stop(std::string* note) override;

 private:
  struct Recorded {
    uint32_t correlation;
    DeviceActivity activity;
  };

  static void CUPTIAPI request_buffer(uint8_t** buffer, size_t* size, size_t* max_records);
  static void CUPTIAPI complete_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t size, size_t valid);
  static uint64_t CUPTIAPI time() {
    return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
  void read(const CUpti_Activity& record);
  template <class Record>
  void add(const Record& record, DeviceActivity::Kind kind, const char* name, int64_t bytes);
  void read_call(const CUpti_ActivityAPI& call);
  const char* kept(std::string name) { return names_.insert(std::move(name)).first->c_str(); }

  Functions cupti_;
  std::mutex mutex_;  // of what follows: CUPTI completes buffers on a thread of its own
  std::vector<Recorded> recorded_;
  std::unordered_map<uint32_t, uint64_t> events_;  // by correlation id
  std::unordered_map<std::string, const char*> kernels_;
  std::map<CUpti_CallbackId, const char*> waits_;  // names of functions; nullptr: it does not wait
  std::set<std::string> names_;
  size_t lost_ = 0;
};
CuptiProfiler& profiler() {
  static CuptiProfiler& instance = *new CuptiProfiler;
  return instance;
}

std::string CuptiProfiler::start() {
  Functions opened;
  if (std::string why = opened.open(); !why.empty()) return why;
  {
    const std::lock_guard lock(mutex_);
    cupti_ = opened;
    recorded_.clear(), events_.clear();
    lost_ = 0;
  }
  const auto failed = [&](const char* function, CUptiResult result) {
    const char* text = "?";
    cupti_.result_string(result, &text);
    for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
    return std::string(function) + ": " + text;
  };
  if (const CUptiResult result = cupti_.register_clock(time))
    return failed("cuptiActivityRegisterTimestampCallback", result);
  if (const CUptiResult result = cupti_.register_buffers(request_buffer, complete_buffer))
    return failed("cuptiActivityRegisterCallbacks", result);
  for (const CUpti_ActivityKind kind : kKinds)
    if (const CUptiResult result = cupti_.enable(kind)) return failed("cuptiActivityEnable", result);
  return {};
}

std::vector<DeviceActivity> CuptiProfiler::stop(std::string* note) {
  cupti_.disable(CUPTI_ACTIVITY_KIND_RUNTIME);  // the program has not made the calls that follow
  for (int device = 0; device < kMaxDevices && !capturing(); ++device) {
    if (!cuda::in_use(device)) continue;
    const DeviceGuard guard(device);
    const std::unique_lock lock(state_of(device).captures);  // it would break a capture of another thread
    cudaDeviceSynchronize();                                 // whoever waits next sees the errors
  }
  for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
  cupti_.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(mutex_);
  std::vector<DeviceActivity> all;
  all.reserve(recorded_.size());
  for (const Recorded& one : recorded_) {
    all.push_back(one.activity);
    if (const auto found = events_.find(one.correlation); found != events_.end()) all.back().event = found->second;
  }
  recorded_ = {}, events_ = {};
  if (lost_) *note = "CUPTI has lost " + std::to_string(lost_) + " records";
  return all;
}

void CuptiProfiler::request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::malloc(kBuffer));  // without one CUPTI drops records, and counts them
  *size = *buffer ? kBuffer : 0;
  *max_records = 0;  // as many as it has room for
}

void CuptiProfiler::complete_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CuptiProfiler& self = profiler();
  const std::lock_guard lock(self.mutex_);
  CUpti_Activity* record = nullptr;
  while (valid && self.cupti_.next_record(buffer, valid, &record) == CUPTI_SUCCESS) self.read(*record);
  size_t dropped = 0;
  if (self.cupti_.dropped_records(nullptr, 0, &dropped) == CUPTI_SUCCESS) self.lost_ += dropped;
  std::free(buffer);
}

/// Adds a record of what a GPU did.
template <class Record>
void CuptiProfiler::add(const Record& record, DeviceActivity::Kind kind, const char* name, int64_t bytes) {
  if (record.start == 0) {  // the GPU had no memory for its time
    ++lost_;
    return;
  }
  recorded_.push_back({record.correlationId,
                       {.kind = kind,
                        .name = name,
                        .device = static_cast<int>(record.deviceId),
                        .stream = static_cast<int>(record.streamId),
                        .begin = static_cast<int64_t>(record.start),
                        .end = static_cast<int64_t>(record.end),
                        .bytes = bytes}});
}

void CuptiProfiler::read(const CUpti_Activity& record) {
  using Kind = DeviceActivity::Kind;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const KernelRecord&>(record);
      const char*& name = kernels_[kernel.name];
      if (!name) name = kept(readable(kernel.name));
      return add(kernel, Kind::kKernel, name, 0);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CopyRecord&>(record);
      return add(copy, Kind::kCopy, copy_name(copy.copyKind), static_cast<int64_t>(copy.bytes));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& copy = reinterpret_cast<const PeerCopyRecord&>(record);
      return add(copy, Kind::kCopy, copy_name(copy.copyKind), static_cast<int64_t>(copy.bytes));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& fill = reinterpret_cast<const FillRecord&>(record);
      return add(fill, Kind::kFill, "memset", static_cast<int64_t>(fill.bytes));
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& region = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
      if (region.externalKind == kRegion) events_[region.correlationId] = region.externalId;
      return;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME: return read_call(reinterpret_cast<const CUpti_ActivityAPI&>(record));
    default: return;
  }
}

/// Adds a call of the runtime that waits for the GPU; of others, and of the driver's, only their region counts.
void CuptiProfiler::read_call(const CUpti_ActivityAPI& call) {
  const auto [known, added] = waits_.try_emplace(call.cbid, nullptr);
  if (added) {
    const char* text = nullptr;
    cupti_.callback_name(CUPTI_CB_DOMAIN_RUNTIME_API, call.cbid, &text);
    const std::string_view name = text ? text : "";
    if (name.find("Synchronize") != name.npos) known->second = kept(std::string(name.substr(0, name.find("_v"))));
  }
  if (known->second)
    recorded_.push_back({call.correlationId,
                         {.kind = DeviceActivity::Kind::kWait,
                          .name = known->second,
                          .begin = static_cast<int64_t>(call.start),
                          .end = static_cast<int64_t>(call.end)}});
}

}  // namespace
}  // namespace cuda

DeviceProfiler* cuda_profiler() { return &cuda::profiler(); }

}  // namespace reel
#else
namespace reel {

DeviceProfiler* cuda_profiler() { return nullptr; }

}  // namespace reel
#endif
