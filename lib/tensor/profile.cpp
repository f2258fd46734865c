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
#include <unordered_set>
#include <utility>

#include "lib/base/fork_lock.h"
#include "lib/base/lazy.h"
#include "lib/base/per_thread.h"
#include "lib/device/allocator.h"
#include "lib/device/kernels/copy.h"
#include "lib/device/kernels/gemm.h"
#include "lib/device/kernels/table.h"
#include "lib/device/kernels/update.h"
#include "lib/functors/lists.h"
#include "lib/tensor/op_trace.h"

namespace reel::profile {
namespace {

// ---- what a thread writes down --------------------------------------------------------------------------------------

struct Raw {
  const char* name;
  int64_t begin, end = 0, bytes, in_use = 0;
  Kind kind;
  bool backward, continued = false;
};
struct Buffer {
  std::mutex mutex;  // of what follows: one thread writes, and stop() reads
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
    mine.buffer->in_use_before = thread_memory_in_use();
    mine.run = all.run;
  }
  return *mine.buffer;
}

/// Locks the recorder's mutex. In a forked child it drops the buffers of the other threads, which may be half changed:
/// they are neither read nor destroyed.
struct RecorderLock {
  void lock() { recorder().mutex.lock(); }
  void unlock() { recorder().mutex.unlock(); }
  void renew() {
    Recorder& all = recorder();
    new (&all.mutex) std::mutex;
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
  mine.events.push_back({.name = name, .begin = now(), .bytes = bytes, .kind = kind, .backward = backward});
}

void Span::end() {
  Buffer& mine = my_buffer();
  const std::lock_guard lock(mine.mutex);
  if (mine.open.empty()) return;  // begun in an earlier recording
  Raw& event = mine.events[mine.open.back()];
  event.end = now();
  event.in_use = thread_memory_in_use() - mine.in_use_before;
  mine.open.pop_back();
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

// ---- kernels --------------------------------------------------------------------------------------------------------
// While something is recorded or traced, a table of functions that call the real ones takes the place of the CPU's.

namespace {

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
template <class Get, size_t row, auto call, class R, class... Args>
void stand_in(R (*&kernel)(Args...), const char* name, Touches touches) {
  name_of<Get, row> = name;
  touches_of<Get, row> = touches;
  kernel = [](Args... args) -> R {
    if (is_tracing()) [[unlikely]]
      Memory(args...).report(name_of<Get, row>);
    int64_t bytes = 0, first = 0, last = 0;
    const auto add = [&](int64_t more) { bytes += more, last = more ? more : last, first = first ? first : more; };
    (add(touched(args)), ...);
    const Touches how = touches_of<Get, row>;
    if (how == Touches::kPartly) bytes += last - first;
    if (how == Touches::kTwice) bytes *= 2;
    const Span span(name_of<Get, row>, Kind::kKernel, bytes);
    return call(*real)(args...);
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

struct PutStandIns {
  KernelTable& table;

  template <class Get>
  void operator()(const char* name, Get get) const {
    stand_in<Get, 0, [](const KernelTable& t) { return Get()(t); }>(get(table), name, touches_of_slot(name));
  }
  template <class Get, class... Functors>
  void operator()(const char* slot, Get get, std::tuple<Functors...>*) const {
    auto& rows = get(table);
    static std::array<std::decay_t<decltype(*rows)>, sizeof...(Functors)> stand_ins;
    [&]<size_t... i>(std::index_sequence<i...>) {
      (stand_in<Get, i, [](const KernelTable& t) { return Get()(t)[i]; }>(stand_ins[i], name_of_functor<Functors>(),
                                                                          touches_of_slot(slot)),
       ...);
    }
    (std::index_sequence_for<Functors...>());
    rows = stand_ins.data();
  }
};

KernelTable make_recording_table() {
  KernelTable table = *real;
  for_each_kernel<functors::Lists>(PutStandIns{table});
  return table;
}

std::mutex stand_ins;
ForkLock stand_ins_lock(ForkLock::Order::kTensors, stand_ins);
int users_of_stand_ins = 0;

}  // namespace

void use_stand_ins() {
  const std::lock_guard lock(stand_ins);
  static constinit Lazy<KernelTable> table;
  const KernelTable& recording = table.get([] {
    real = &cpu_kernels();
    return make_recording_table();
  });
  ++users_of_stand_ins;
  current_cpu_kernels = &recording;
}
void release_stand_ins() {
  const std::lock_guard lock(stand_ins);
  if (!--users_of_stand_ins) current_cpu_kernels = real;
}

void start() {
  Recorder& all = recorder();
  std::lock_guard lock(all.mutex);
  REEL_CHECK(!running(), "profile::start: something is recorded already");
  use_stand_ins();
  all.buffers.clear();
  all.messages.events.clear();
  all.messages.names.clear();
  ++all.run;
  all.start = now();
  internal::recording = true;
}

Report stop() {
  Recorder& all = recorder();
  std::lock_guard lock(all.mutex);
  REEL_CHECK(running(), "profile::stop: nothing is recorded");
  release_stand_ins();
  internal::recording = false;
  const auto seconds = [&](int64_t time) { return static_cast<double>(time - all.start) * 1e-9; };
  Report report;
  report.seconds = seconds(now());
  int thread = 0;
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
      around.push_back(report.events.size());
      report.events.push_back(std::move(event));
    }
    ++thread;
  }
  for (const Raw& raw : all.messages.events) {
    const double begin = seconds(raw.begin), end = seconds(raw.end);
    report.events.push_back({raw.name, raw.kind, raw.backward, -1, begin, end, end - begin, raw.bytes, 0});
  }
  return report;
}

// ---- what is made of it ---------------------------------------------------------------------------------------------

namespace {

std::atomic<int> process_rank = -1;

constexpr const char* kKinds[] = {"kernel", "rule", "layer", "scope", "comm"};
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
  return text;
}

void Report::save_trace(const std::filesystem::path& path) const {
  std::ofstream file(path);
  std::map<std::string, std::string> quoted;  // names as JSON
  const char* comma = "";
  int64_t messages = 0;
  const int process = std::max(process_rank.load(), 0);
  file << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  std::vector<std::pair<double, const Event*>> by_end;
  for (const Event& e : events) {
    const auto [name, added] = quoted.try_emplace(e.name);
    if (added) name->second = nlohmann::json(e.name).dump();
    if (e.kind == Kind::kCommunication) {  // which overlap: asynchronous events
      ++messages;
      for (const auto& [phase, time] : {std::pair('b', e.begin), std::pair('e', e.end)})
        file << fmt::format(R"({}{{"name": {}, "cat": "{}", "ph": "{}", "id": {}, "pid": {}, "ts": {:.3f}, )"
                            R"("args": {{"bytes": {}}}}})",
                            std::exchange(comma, ",\n"), name->second, kKinds[static_cast<int>(e.kind)], phase,
                            messages, process, time * 1e6, e.bytes);
      continue;
    }
    file << fmt::format(R"({}{{"name": {}, "cat": "{}", "ph": "X", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, )"
                        R"("args": {{"pass": "{}", "bytes": {}}}}})",
                        std::exchange(comma, ",\n"), name->second, kKinds[static_cast<int>(e.kind)], process, e.thread,
                        e.begin * 1e6, (e.end - e.begin) * 1e6, e.backward ? "backward" : "forward", e.bytes);
    by_end.emplace_back(e.end, &e);
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
  ~FromEnvironment() {
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
}  // namespace

}  // namespace reel::profile
