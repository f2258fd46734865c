// A stand-in for CUPTI: the functions that cuda/profiler.cu uses, by the rules of the real library's documentation. It
// records what the shim runs. SIMT_CUPTI chooses a way in which a real library may behave: old (of another CUDA), busy
// (another profiler has it) or full (it drops what the first buffer has no room for).
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cupti_header.h"
#include "simt.h"
#include "streams.h"

namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

bool behaves(std::string_view way) {
  const char* const chosen = std::getenv("SIMT_CUPTI");
  return chosen && chosen == way;
}

std::set<CUpti_ActivityKind> enabled;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
CUpti_TimestampCallbackFunc clock_function = nullptr;
thread_local std::vector<uint64_t> regions;  // external correlation ids
uint32_t correlations = 0;

// ---- buffers --------------------------------------------------------------------------------------------------------

struct Buffer {
  uint8_t* data = nullptr;
  size_t size = 0, used = 0, records = 0, max_records = 0;
} buffer;
size_t dropped = 0;

void flush() {
  if (!buffer.data) return;
  const Buffer full = std::exchange(buffer, {});
  complete(nullptr, 0, full.data, full.size, full.used);
}

/// Records lie behind each other, at multiples of 8 bytes, in buffers that the client lends.
template <class Record>
void put(const Record& record) {
  static_assert(sizeof(Record) % ACTIVITY_RECORD_ALIGNMENT == 0);
  if (!enabled.contains(record.kind)) return;
  const auto fits = [] {
    return buffer.used + sizeof(Record) <= buffer.size &&
           (buffer.max_records == 0 || buffer.records < buffer.max_records);
  };
  if (buffer.data && !fits() && !behaves("full")) flush();
  if (!buffer.data) {
    request(&buffer.data, &buffer.size, &buffer.max_records);
    if (!buffer.data) buffer = {};
    if (reinterpret_cast<uintptr_t>(buffer.data) % ACTIVITY_RECORD_ALIGNMENT)
      simt::die("CUPTI: a buffer is not aligned");
  }
  if (!fits()) {
    ++dropped;
    return;
  }
  std::memcpy(buffer.data + buffer.used, &record, sizeof record);
  buffer.used += sizeof record, ++buffer.records;
}

size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(KernelRecord);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CopyRecord);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(FillRecord);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_RUNTIME: return sizeof(CUpti_ActivityAPI);
    default: return 0;
  }
}

// ---- records --------------------------------------------------------------------------------------------------------

/// The functions of the runtime that are recorded, by their callback ids.
constexpr const char* kFunctions[] = {nullptr,
                                      "cudaLaunchKernel_v7000",
                                      "cudaMemcpyAsync_v3020",
                                      "cudaMemsetAsync_v3020",
                                      "cudaStreamSynchronize_v3020",
                                      "cudaDeviceSynchronize_v3020",
                                      "cudaEventSynchronize_v3020"};
CUpti_CallbackId id_of(std::string_view function) {
  for (CUpti_CallbackId id = 1; id < std::size(kFunctions); ++id)
    if (std::string_view(kFunctions[id]).starts_with(function)) return id;
  simt::die("CUPTI: no id of %s", function.data());
}

uint64_t time_now() {
  if (clock_function) return clock_function();
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

/// A call of the runtime, with the innermost region that its thread is in. Returns its correlation id.
uint32_t put_call(std::string_view function, uint64_t begin) {
  const uint32_t correlation = ++correlations;
  if (enabled.contains(CUPTI_ACTIVITY_KIND_RUNTIME) && !regions.empty()) {
    CUpti_ActivityExternalCorrelation region{};
    region.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    region.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    region.externalId = regions.back();
    region.correlationId = correlation;
    put(region);
  }
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.cbid = id_of(function);
  call.start = begin, call.end = time_now();
  call.correlationId = correlation;
  put(call);
  return correlation;
}

uint32_t number_of(cudaStream_t stream) {
  static auto& numbers = *new std::map<cudaStream_t, uint32_t>;
  return numbers.try_emplace(stream, static_cast<uint32_t>(7 + numbers.size())).first->second;
}

class Recorder final : public simt::Tracer {
 public:
  std::function<void()> queued(const simt::Activity& activity, cudaStream_t stream, simt::Work work) override {
    static constexpr const char* kLaunches[] = {"", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"};
    const uint32_t correlation = put_call(kLaunches[activity.kind], time_now());
    return [=, work = std::move(work)] {
      const uint64_t begin = time_now();
      work();
      const auto finish = [&](auto record, CUpti_ActivityKind kind) {
        record.kind = kind;
        record.start = begin, record.end = time_now();
        record.deviceId = static_cast<uint32_t>(stream->device), record.streamId = number_of(stream);
        record.correlationId = correlation;
        put(record);
      };
      if (activity.kind == simt::Activity::kKernel) {
        KernelRecord kernel{};
        kernel.name = activity.kernel ? simt::symbol_of(activity.kernel) : activity.name;
        finish(kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
      } else if (activity.kind == simt::Activity::kCopy) {
        CopyRecord copy{};
        copy.copyKind = activity.direction == cudaMemcpyHostToDevice     ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                        : activity.direction == cudaMemcpyDeviceToHost   ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                        : activity.direction == cudaMemcpyDeviceToDevice ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                                                                         : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
        copy.bytes = activity.bytes;
        finish(copy, CUPTI_ACTIVITY_KIND_MEMCPY);
      } else {
        FillRecord fill{};
        fill.bytes = activity.bytes;
        finish(fill, CUPTI_ACTIVITY_KIND_MEMSET);
      }
    };
  }
  void blocked(const char* function, uint64_t begin) override { put_call(function, begin); }
  uint64_t time() override { return time_now(); }
} recorder;

std::lock_guard<std::recursive_mutex> serialized() { return std::lock_guard(simt::state().mutex); }

}  // namespace

// ---- the library's functions ----------------------------------------------------------------------------------------

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = behaves("old") ? 26 : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                                   : "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API || id == 0 || id >= std::size(kFunctions))
    return CUPTI_ERROR_INVALID_PARAMETER;
  *name = kFunctions[id];
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  const auto lock = serialized();
  if (!function) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!enabled.empty()) simt::die("CUPTI: the clock changes while activities are recorded");
  clock_function = function;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  const auto lock = serialized();
  if (!requested || !completed) return CUPTI_ERROR_INVALID_PARAMETER;
  request = requested, complete = completed;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const auto lock = serialized();
  if (behaves("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  if (!request) simt::die("CUPTI: activities are recorded without callbacks for buffers");
  enabled.insert(kind);
  simt::tracer = &recorder;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const auto lock = serialized();
  enabled.erase(kind);
  if (enabled.empty()) simt::tracer = nullptr;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  const auto lock = serialized();
  if (!complete) return CUPTI_ERROR_INVALID_OPERATION;
  flush();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* data, size_t valid, CUpti_Activity** record) {
  if (!data) return CUPTI_ERROR_INVALID_PARAMETER;
  uint8_t* next = data;
  if (*record) next = reinterpret_cast<uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= data + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return size_of((*record)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* count) {
  if (!count) return CUPTI_ERROR_INVALID_PARAMETER;
  *count = std::exchange(dropped, 0);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return CUPTI_ERROR_INVALID_PARAMETER;
  regions.push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t* last) {
  if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return CUPTI_ERROR_INVALID_PARAMETER;
  if (regions.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last) *last = regions.back();
  regions.pop_back();
  return CUPTI_SUCCESS;
}

}  // extern "C"
