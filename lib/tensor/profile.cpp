#include "lib/tensor/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lib/base/fork_lock.h"
#include "lib/base/lazy.h"
#include "lib/base/per_thread.h"
#include "lib/device/allocator.h"
#include "lib/device/device.h"
#include "lib/device/kernels/copy.h"
#include "lib/device/kernels/gemm.h"
#include "lib/device/kernels/table.h"
#include "lib/device/kernels/update.h"
#include "lib/device/profiler.h"
#include "lib/functors/lists.h"
#include "lib/tensor/op_trace.h"

namespace reel::profile {
namespace {

// ---- what a thread writes down --------------------------------------------------------------------------------------

struct Raw {
  const char* name;
  int64_t begin, end = 0, bytes, in_use = 0;
  Kind kind;
  bool backward, continued = false, pushed = false;  // pushed: the profiler of GPUs knows of it
};
struct Buffer {
  uint64_t number = 0;  // among the recording's
  std::mutex mutex;     // of what follows: one thread writes, and stop() reads
  std::vector<Raw> events;
  std::vector<size_t> open;  // events that have not ended, innermost last
  std::unordered_set<std::string> names;
  int64_t in_use_before = 0;  // the thread's bytes in use when its first event began
};

struct Recorder {
  std::mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers;
  Buffer messages;
  std::atomic<uint64_t> run{0};  // counts the recordings: a thread's buffer of an earlier one is not used again
  int64_t start = 0;
  // The profiler of GPUs while it records, from the first op on a GPU on.
  std::atomic<DeviceProfiler*> gpus{nullptr};
  std::atomic<bool> gpus_tried{false};
  std::string gpu_note;  // why it does not
};
Recorder& recorder() {
  static constinit Lazy<Recorder> recorder;
  return recorder.get();
}

/// MyBuffer refers to the buffer that this thread writes to. It has a share, since another recording may begin
/// meanwhile.
struct MyBuffer {
  std::shared_ptr<Buffer> buffer;
  uint64_t run = 0;
};
constinit thread_local PerThread<MyBuffer> my_share;

Buffer& my_buffer() {
  MyBuffer& mine = *my_share;
  Recorder& all = recorder();
  if (!mine.buffer || mine.run != all.run) {
    std::lock_guard lock(all.mutex);
    mine.buffer = all.buffers.emplace_back(std::make_shared<Buffer>());
    mine.buffer->number = all.buffers.size();
    mine.buffer->in_use_before = thread_memory_in_use();
    mine.run = all.run;
  }
  return *mine.buffer;
}

/// What the profiler of GPUs knows an event by: a number that no other event of this or an earlier recording has.
uint64_t event_id(uint64_t run, uint64_t buffer, uint64_t event) { return run << 48 | buffer << 32 | event; }

/// Locks the recorder's mutex. In a forked child it drops the buffers of the other threads, which may be half changed:
/// they are neither read nor destroyed.
struct RecorderLock {
  void lock() { recorder().mutex.lock(); }
  void unlock() { recorder().mutex.unlock(); }
  void renew() {
    Recorder& all = recorder();
    new (&all.mutex) std::mutex;
    all.gpus = nullptr;  // a child cannot use CUDA
    new (&all.buffers) std::vector<std::shared_ptr<Buffer>>;
    if (const MyBuffer* const mine = my_share.get_if_made(); mine && mine->buffer && mine->run == all.run)
      all.buffers.push_back(mine->buffer);
  }
} recorder_mutex;
ForkLock recorder_lock(ForkLock::Order::kProfile, recorder_mutex);

}  // namespace

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

namespace internal {
constinit std::atomic<bool> recording = false;
}  // namespace internal

void Span::begin(const char* name, Kind kind, int64_t bytes) {
  Buffer& mine = my_buffer();
  const std::lock_guard lock(mine.mutex);
  const bool backward = kind == Kind::kRule || (!mine.open.empty() && mine.events[mine.open.back()].backward);
  if (kind != Kind::kKernel) name = mine.names.emplace(name).first->c_str();  // the kernels' last for ever
  mine.open.push_back(mine.events.size());
  DeviceProfiler* const gpus = recorder().gpus.load(std::memory_order_acquire);
  if (gpus) gpus->push_event(event_id(recorder().run, mine.number, mine.events.size()));
  mine.events.push_back(
      {.name = name, .begin = now(), .bytes = bytes, .kind = kind, .backward = backward, .pushed = gpus != nullptr});
}

void Span::end() {
  Buffer& mine = my_buffer();
  const std::lock_guard lock(mine.mutex);
  if (mine.open.empty()) return;  // begun in an earlier recording
  Raw& event = mine.events[mine.open.back()];
  event.end = now();
  event.in_use = thread_memory_in_use() - mine.in_use_before;
  mine.open.pop_back();
  if (!event.pushed) return;
  if (DeviceProfiler* const gpus = recorder().gpus.load(std::memory_order_acquire)) gpus->pop_event();
}

void pause_events(OpenEvents& open) {
  open.events.clear();
  if (!running()) return;
  Buffer& mine = my_buffer();
  open.run = recorder().run;
  try {
    for (const size_t at : mine.open) open.events.push_back({mine.events[at].name, mine.events[at].kind});
  } catch (const std::bad_alloc&) {  // then they have ended
    open.events.clear();
  }
  while (!mine.open.empty()) Span::end();
}

void resume_events(OpenEvents& open) {
  if (running() && open.run == recorder().run)
    for (const OpenEvents::Event& event : open.events) {
      Span::begin(event.name, event.kind, 0);
      Buffer& mine = my_buffer();
      const std::lock_guard lock(mine.mutex);
      mine.events.back().continued = true;
    }
  open.events.clear();
}

void add_message(const char* name, int64_t begin, int64_t end, int64_t bytes) {
  if (!running()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (begin < all.start) return;  // in an earlier recording
  name = all.messages.names.emplace(name).first->c_str();
  all.messages.events.push_back(
      {.name = name, .begin = begin, .end = end, .bytes = bytes, .kind = Kind::kCommunication, .backward = true});
}

Scope::Scope(const std::string& name, Kind kind) : recorded_(running()) {
  if (recorded_) Span::begin(name.c_str(), kind, 0);
}
Scope::~Scope() {
  if (recorded_) Span::end();
}

// ---- GPUs -----------------------------------------------------------------------------------------------------------

namespace {

void finish_from_environment();

/// Begins to record what GPUs do, if it has not been tried in this recording. What a graph's capture queues is no work
/// yet, and to begin may break it.
void record_gpus() {
  Recorder& all = recorder();
  if (all.gpus_tried.load(std::memory_order_acquire) || capturing()) return;
  Buffer& mine = my_buffer();
  const std::lock_guard lock(all.mutex);
  DeviceProfiler* const gpus = cuda_profiler();
  if (!running() || all.gpus_tried) return;
  all.gpus_tried = true;
  if (!gpus) all.gpu_note = "this build has no CUPTI";
  if (!gpus || !(all.gpu_note = gpus->start()).empty()) return;
  const std::lock_guard of_buffer(mine.mutex);
  for (const size_t at : mine.open) {
    gpus->push_event(event_id(all.run, mine.number, at));
    mine.events[at].pushed = true;
  }
  all.gpus.store(gpus, std::memory_order_release);
  // By now CUDA's own exit handlers are registered. REEL_PROFILE's recording has to end before they run.
  static constinit Lazy<int> registered;
  registered.get([] { return std::atexit(finish_from_environment); });
}

}  // namespace

// ---- kernels --------------------------------------------------------------------------------------------------------
// While something is recorded or traced, a table of functions that call the real ones takes the place of the CPU's, and
// while something is recorded, one that of the GPUs'.

namespace {

enum class On { kCpu, kGpu };
template <On on>
const KernelTable* real = nullptr;

int64_t touched(const View& view) { return view.numel * size_of(view.dtype); }
int64_t touched(const View* view) { return view ? touched(*view) : 0; }
int64_t touched(const Gemm& g) { return g.batch * (g.m * g.k + g.k * g.n + g.m * g.n) * size_of(g.dtype); }
int64_t touched(std::span<const Updated> gradients) {
  int64_t bytes = 0;
  for (const Updated& g : gradients) bytes += g.numel * size_of(g.dtype);
  return bytes;
}
int64_t touched(std::span<const BlockCopy> blocks) {
  int64_t bytes = 0;
  for (const BlockCopy& block : blocks)
    bytes += block.rows * (block.bytes + block.bytes / size_of(block.from_type) * size_of(block.to_type));
  return bytes;
}
template <class T>
int64_t touched(const T&) {
  return 0;
}

/// The name of the kernel that get finds, or of number `row` where there are many.
template <class Get, size_t row>
inline const char* name_of = nullptr;

/// What a kernel reads and writes of its tensors.
enum class Touches {
  kAll,     // each of them
  kPartly,  // of the first only as much as the last one has
  kTwice    // reads and writes each
};
template <class Get, size_t row>
inline Touches touches_of = Touches::kAll;

Touches touches_of_slot(std::string_view kernel) {
  for (const char* const partly : {"index_select", "index_copy", "index_add", "gather", "scatter"})
    if (kernel == partly) return Touches::kPartly;
  return kernel == "multi_tensor_scale" || kernel == "multi_tensor_update" ? Touches::kTwice : Touches::kAll;
}

// ---- where the memory is that a kernel is given ----

/// Of all arguments. What is no View is a number or, as a struct of addresses, opaque.
class Memory {
 public:
  template <class... Args>
  explicit Memory(const Args&... args) {
    (add(args), ...);
  }
  void report(const char* kernel) const { kernel_outside_of_trace(kernel, std::span(at_.data(), count_), opaque_); }

 private:
  void add(const View& view) { at_[count_++] = view.data; }
  void add(const View* view) {
    if (view) at_[count_++] = view->data;
  }
  template <class T>
  void add(const T&) {
    if constexpr (std::is_class_v<T> && !std::is_same_v<T, Scalar>) opaque_ = true;
  }

  std::array<const void*, 8> at_{};
  size_t count_ = 0;
  bool opaque_ = false;
};

/// Puts a function that records in place of the kernel that `call` finds in the real table.
template <On on, class Get, size_t row, auto call, class R, class... Args>
void stand_in(R (*&kernel)(Args...), const char* name, Touches touches) {
  name_of<Get, row> = name;
  touches_of<Get, row> = touches;
  kernel = [](Args... args) -> R {
    if constexpr (on == On::kGpu) {  // the memory is used later, so no rate can be told of the time
      const Span span(name_of<Get, row>, Kind::kKernel);
      return call(*real<on>)(args...);
    }
    if (is_tracing()) [[unlikely]]
      Memory(args...).report(name_of<Get, row>);
    int64_t bytes = 0, first = 0, last = 0;
    const auto add = [&](int64_t more) { bytes += more, last = more ? more : last, first = first ? first : more; };
    (add(touched(args)), ...);
    const Touches how = touches_of<Get, row>;
    if (how == Touches::kPartly) bytes += last - first;
    if (how == Touches::kTwice) bytes *= 2;
    const Span span(name_of<Get, row>, Kind::kKernel, bytes);
    return call(*real<on>)(args...);
  };
}

/// "log_softmax" of "… [with Functor = reel::functors::LogSoftmax]" or "… [Functor = …]".
std::string op_name(std::string_view text) {
  text = text.substr(0, text.find_first_of(";]", text.find("Functor = ")));
  std::string result;
  for (const char c : text.substr(text.rfind(':') + 1)) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && !result.empty()) result += '_';
    result += upper ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return result;
}
template <class Functor>
const char* name_of_functor() {
  static constinit Lazy<std::string> name;
  constexpr const char* function = __PRETTY_FUNCTION__;
  return name.get([] { return op_name(function); }).c_str();
}

template <On on>
struct PutStandIns {
  KernelTable& table;

  template <class Get>
  void operator()(const char* name, Get get) const {
    stand_in<on, Get, 0, [](const KernelTable& t) { return Get()(t); }>(get(table), name, touches_of_slot(name));
  }
  template <class Get, class... Functors>
  void operator()(const char* slot, Get get, std::tuple<Functors...>*) const {
    auto& rows = get(table);
    static std::array<std::decay_t<decltype(*rows)>, sizeof...(Functors)> stand_ins;
    [&]<size_t... i>(std::index_sequence<i...>) {
      (stand_in<on, Get, i, [](const KernelTable& t) { return Get()(t)[i]; }>(stand_ins[i], name_of_functor<Functors>(),
                                                                              touches_of_slot(slot)),
       ...);
    }
    (std::index_sequence_for<Functors...>());
    rows = stand_ins.data();
  }
};

template <On on>
KernelTable make_recording_table(const KernelTable& of) {
  real<on> = &of;
  KernelTable table = of;
  for_each_kernel<functors::Lists>(PutStandIns<on>{table});
  return table;
}

const KernelTable& recording_table_of_gpus(const KernelTable& of) {
  record_gpus();
  static constinit Lazy<KernelTable> table;
  return table.get([&] { return make_recording_table<On::kGpu>(of); });
}

std::mutex stand_ins;
ForkLock stand_ins_lock(ForkLock::Order::kTensors, stand_ins);
int users_of_stand_ins = 0;

}  // namespace

void use_stand_ins() {
  const std::lock_guard lock(stand_ins);
  static constinit Lazy<KernelTable> table;
  const KernelTable& recording = table.get([] { return make_recording_table<On::kCpu>(cpu_kernels()); });
  ++users_of_stand_ins;
  current_cpu_kernels = &recording;
}
void release_stand_ins() {
  const std::lock_guard lock(stand_ins);
  if (!--users_of_stand_ins) current_cpu_kernels = real<On::kCpu>;
}

void start() {
  Recorder& all = recorder();
  std::unique_lock lock(all.mutex);
  REEL_CHECK(!running(), "profile::start: something is recorded already");
  use_stand_ins();
  all.buffers.clear();
  all.messages.events.clear();
  all.messages.names.clear();
  ++all.run;
  all.start = now();
  all.gpus_tried = false;
  all.gpu_note.clear();
  internal::recording = true;
  gpu_stand_ins = recording_table_of_gpus;
  lock.unlock();
  if (DeviceProfiler* const gpus = cuda_profiler(); gpus && gpus->in_use()) record_gpus();
}

Report stop() {
  Recorder& all = recorder();
  // Without the lock, which a thread may want while it captures a graph, which this waits for.
  std::string lost;
  DeviceProfiler* const gpus = all.gpus.exchange(nullptr);
  const std::vector<DeviceActivity> activities = gpus ? gpus->stop(&lost) : std::vector<DeviceActivity>();
  std::lock_guard lock(all.mutex);
  REEL_CHECK(running(), "profile::stop: nothing is recorded");
  gpu_stand_ins = nullptr;
  release_stand_ins();
  internal::recording = false;
  const auto seconds = [&](int64_t time) { return static_cast<double>(time - all.start) * 1e-9; };
  Report report;
  report.seconds = seconds(now());
  report.gpu_note = all.gpu_note.empty() ? lost : "GPU kernels are not shown: " + all.gpu_note;
  int thread = 0;
  std::vector<size_t> parents;                  // of the events in the report; events.size() if there is none
  std::unordered_map<uint64_t, size_t> of_gpu;  // places in the report by event_id
  for (const auto& buffer : all.buffers) {
    const std::lock_guard of_buffer(buffer->mutex);
    std::vector<size_t> around;  // places of the events that the present one is in
    for (const Raw& raw : buffer->events) {
      if (!raw.end) continue;  // still going on
      Event event{raw.name,         raw.kind, raw.backward, thread,     seconds(raw.begin),
                  seconds(raw.end), 0,        raw.bytes,    raw.in_use, raw.continued};
      event.self = event.end - event.begin;
      while (!around.empty() && report.events[around.back()].end <= event.begin) around.pop_back();
      if (!around.empty()) report.events[around.back()].self -= event.self;
      const size_t place = report.events.size();
      if (raw.pushed)
        of_gpu[event_id(all.run, buffer->number, static_cast<size_t>(&raw - buffer->events.data()))] = place;
      parents.push_back(around.empty() ? SIZE_MAX : around.back());
      around.push_back(place);
      report.events.push_back(std::move(event));
    }
    ++thread;
  }
  for (const Raw& raw : all.messages.events) {
    const double begin = seconds(raw.begin), end = seconds(raw.end);
    report.events.push_back({raw.name, raw.kind, raw.backward, -1, begin, end, end - begin, raw.bytes, 0});
  }
  for (const DeviceActivity& one : activities) {
    if (one.begin < all.start) continue;  // queued in an earlier recording
    std::string path;
    const auto found = of_gpu.find(one.event);
    for (size_t at = found == of_gpu.end() ? SIZE_MAX : found->second; at != SIZE_MAX; at = parents[at])
      path = report.events[at].name + (path.empty() ? "" : "/") + path;
    report.gpu.push_back({one.name, static_cast<GpuEvent::Kind>(one.kind), std::move(path), one.device, one.stream,
                          seconds(one.begin), seconds(one.end), one.bytes});
  }
  std::stable_sort(report.gpu.begin(), report.gpu.end(),
                   [](const GpuEvent& a, const GpuEvent& b) { return a.begin < b.begin; });
  return report;
}

// ---- what is made of it ---------------------------------------------------------------------------------------------

namespace {

std::atomic<int> process_rank = -1;

constexpr const char* kKinds[] = {"kernel", "rule", "layer", "scope", "comm"};
constexpr const char* kGpuKinds[] = {"kernel", "copy", "fill", "wait"};
constexpr const char* kAllOfKind[] = {"all kernels", "all copies", "all fills", "all waits of the host"};
auto key_of(const Event& e) { return std::tuple(e.name, e.kind, e.backward); }

}  // namespace

void set_rank(int rank) { process_rank = rank; }

std::vector<Row> Report::rows() const {
  std::map<std::tuple<std::string, Kind, bool>, Row> rows;
  std::vector<const Event*> around;
  int thread = -1;
  for (const Event& e : events) {
    if (std::exchange(thread, e.thread) != e.thread || e.kind == Kind::kCommunication) around.clear();
    while (!around.empty() && around.back()->end <= e.begin) around.pop_back();
    const bool inside =
        std::any_of(around.begin(), around.end(), [&](const Event* o) { return key_of(*o) == key_of(e); });
    Row& row = rows.try_emplace(key_of(e), Row{e.name, e.kind, e.backward, 0, 0, 0, 0}).first->second;
    row.calls += !e.continued;
    row.self += e.self;
    row.bytes += e.bytes;
    if (!inside) row.total += e.end - e.begin;
    around.push_back(&e);
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.self > b.self; });
  return sorted;
}

std::vector<Launch> Report::launches() const {
  std::map<std::pair<std::string_view, std::string_view>, Launch> launches;
  for (const GpuEvent& e : gpu) {
    Launch& launch = launches.try_emplace({e.op, e.name}, Launch{e.op, e.name, e.kind, 0, 0, 0}).first->second;
    ++launch.count;
    launch.seconds += e.end - e.begin;
    launch.bytes += e.bytes;
  }
  std::vector<Launch> sorted;
  for (auto& [key, launch] : launches) sorted.push_back(std::move(launch));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Launch& a, const Launch& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string Report::table(size_t most) const {
  const std::vector<Row> all = rows();
  std::string text = fmt::format("{:<32} {:<6} {:<8} {:>9} {:>11} {:>11} {:>7} {:>8}\n", "name", "kind", "pass",
                                 "calls", "self ms", "total ms", "self %", "GB/s");
  double inside = 0, shown = 0;
  int threads = 0;
  for (const Event& e : events) threads = std::max(threads, e.thread + 1);
  for (const Row& row : all)
    if (row.kind != Kind::kCommunication) inside += row.self;
  const double whole = std::max(seconds * std::max(threads, 1), 1e-12);
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    const Row& row = all[i];
    if (row.kind != Kind::kCommunication) shown += row.self;
    const std::string rate =
        row.bytes && row.self > 0 ? fmt::format("{:.1f}", static_cast<double>(row.bytes) * 1e-9 / row.self) : "";
    text += fmt::format("{:<32} {:<6} {:<8} {:>9} {:>11.3f} {:>11.3f} {:>7.1f} {:>8}\n", row.name,
                        kKinds[static_cast<int>(row.kind)], row.backward ? "backward" : "forward", row.calls,
                        row.self * 1e3, row.total * 1e3, 100 * row.self / whole, rate);
  }
  const auto rest = [&](const std::string& name, double time) {
    text += fmt::format("{:<58} {:>11.3f} {:>11} {:>7.1f}\n", name, time * 1e3, "", 100 * time / whole);
  };
  if (all.size() > most) rest(fmt::format("{} more", all.size() - most), inside - shown);
  rest("outside of all", whole - inside);
  if (!gpu_note.empty()) text += gpu_note + '\n';
  if (gpu.empty()) return text;
  const std::vector<Launch> all_launches = launches();
  text += fmt::format("\n{:>9} {:>11} {:>9} {:>8}  {:<40} {}\n", "count", "total ms", "mean us", "GB/s", "on the GPU",
                      "op");
  const auto line = [&](const std::string& name, const std::string& op, int64_t count, double time, int64_t bytes) {
    text += fmt::format(
        "{:>9} {:>11.3f} {:>9.1f} {:>8}  {:<40} {}\n", count, time * 1e3, time * 1e6 / static_cast<double>(count),
        bytes && time > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) * 1e-9 / time) : "", name, op);
  };
  Launch more{}, sums[4] = {};
  for (size_t i = 0; i < all_launches.size(); ++i) {
    const Launch& launch = all_launches[i];
    if (i < most) line(launch.name, launch.op, launch.count, launch.seconds, launch.bytes);
    for (Launch* const sum : {&sums[static_cast<int>(launch.kind)], i < most ? nullptr : &more})
      if (sum) sum->count += launch.count, sum->seconds += launch.seconds, sum->bytes += launch.bytes;
  }
  if (more.count) line(fmt::format("{} more", all_launches.size() - most), "", more.count, more.seconds, more.bytes);
  for (size_t kind = 0; kind < std::size(sums); ++kind)
    if (sums[kind].count) line(kAllOfKind[kind], "", sums[kind].count, sums[kind].seconds, sums[kind].bytes);
  return text;
}

void Report::save_trace(const std::filesystem::path& path) const {
  std::ofstream file(path);
  std::map<std::string, std::string> quoted;  // names as JSON
  const char* comma = "";
  int64_t messages = 0;
  const int process = std::max(process_rank.load(), 0);
  file << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  const auto quote = [&](const std::string& text) -> const std::string& {
    const auto [name, added] = quoted.try_emplace(text);
    if (added) name->second = nlohmann::json(text).dump();
    return name->second;
  };
  /// Asynchronous events, for what overlaps.
  const auto overlapping = [&](const auto& e, const char* kind, const std::string& args) {
    ++messages;
    for (const auto& [phase, time] : {std::pair('b', e.begin), std::pair('e', e.end)})
      file << fmt::format(R"({}{{"name": {}, "cat": "{}", "ph": "{}", "id": {}, "pid": {}, "ts": {:.3f}, )"
                          R"("args": {{{}}}}})",
                          std::exchange(comma, ",\n"), quote(e.name), kind, phase, messages, process, time * 1e6, args);
  };
  const auto nested = [&](const auto& e, const char* kind, int row, const std::string& args) {
    file << fmt::format(R"({}{{"name": {}, "cat": "{}", "ph": "X", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, )"
                        R"("args": {{{}}}}})",
                        std::exchange(comma, ",\n"), quote(e.name), kind, process, row, e.begin * 1e6,
                        (e.end - e.begin) * 1e6, args);
  };
  std::vector<std::pair<double, const Event*>> by_end;
  int rows = 0;
  for (const Event& e : events) {
    const char* const kind = kKinds[static_cast<int>(e.kind)];
    const std::string bytes = fmt::format(R"("bytes": {})", e.bytes);
    rows = std::max(rows, e.thread + 1);
    if (e.kind == Kind::kCommunication) {
      overlapping(e, kind, bytes);
      continue;
    }
    nested(e, kind, e.thread, fmt::format(R"("pass": "{}", {})", e.backward ? "backward" : "forward", bytes));
    by_end.emplace_back(e.end, &e);
  }
  std::map<std::pair<int, int>, int> streams;  // their rows
  for (const GpuEvent& e : gpu) {
    const std::string kind = std::string("gpu ") + kGpuKinds[static_cast<int>(e.kind)];
    const std::string args = fmt::format(R"("op": {}, "bytes": {})", quote(e.op), e.bytes);
    if (e.kind == GpuEvent::Kind::kWait) {
      overlapping(e, kind.c_str(), args);
      continue;
    }
    const auto [stream, added] = streams.try_emplace({e.device, e.stream}, rows);
    if (added)
      file << fmt::format(R"({}{{"name": "thread_name", "ph": "M", "pid": {}, "tid": {}, )"
                          R"("args": {{"name": "GPU {}, stream {}"}}}})",
                          std::exchange(comma, ",\n"), process, rows++, e.device, e.stream);
    nested(e, kind.c_str(), stream->second, args);
  }
  std::stable_sort(by_end.begin(), by_end.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<int, int64_t> of_thread;
  int64_t in_use = 0;
  for (const auto& [time, event] : by_end) {
    int64_t& own = of_thread[event->thread];
    if (own == event->in_use) continue;
    in_use += event->in_use - std::exchange(own, event->in_use);
    file << fmt::format(R"({}{{"name": "memory", "ph": "C", "pid": {}, "ts": {:.3f}, "args": {{"bytes": {}}}}})",
                        std::exchange(comma, ",\n"), process, time * 1e6, in_use);
  }
  file << "]}\n";
  file.close();
  REEL_CHECK(file, "profile: cannot write ", path.string());
}

// ---- REEL_PROFILE ---------------------------------------------------------------------------------------------------

namespace {
struct FromEnvironment {
  const char* path = std::getenv("REEL_PROFILE");
  FromEnvironment() {
    if (path && *path) start();
  }
  ~FromEnvironment() { finish(); }
  void finish() const {
    if (!path || !*path || !running()) return;
    try {
      const Report report = stop();
      std::fputs(report.table().c_str(), stderr);
      std::filesystem::path file = path;
      if (process_rank >= 0)
        file.replace_filename(file.stem().string() + ".rank" + std::to_string(process_rank) +
                              file.extension().string());
      report.save_trace(file);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
} from_environment;

void finish_from_environment() { from_environment.finish(); }
}  // namespace

}  // namespace reel::profile
