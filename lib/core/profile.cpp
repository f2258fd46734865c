#include "lib/core/profile.h"

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

#include "lib/core/allocator.h"
#include "lib/functors/pointwise.h"
#include "lib/functors/update.h"
#include "lib/kernels/copy.h"
#include "lib/kernels/gemm.h"
#include "lib/kernels/table.h"
#include "lib/kernels/update.h"

namespace reel::profile {
namespace {

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// ---- what a thread writes down --------------------------------------------------------------------------------------

struct Raw {
  const char* name;
  int64_t begin, end = 0, bytes, in_use = 0;
  Kind kind;
  bool backward;
};
struct Buffer {
  std::vector<Raw> events;
  std::vector<size_t> open;  // events that have not ended, innermost last
  std::unordered_set<std::string> names;
  int64_t in_use_before = 0;  // the thread's bytes in use when its first event began
};

/// Never destroyed, since threads and static objects may end after any other static object.
struct Recorder {
  std::mutex mutex;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::atomic<uint64_t> run{0};  // counts the recordings: a thread's buffer of an earlier one is not used again
  int64_t start = 0;
};
Recorder& recorder() {
  static Recorder* const recorder = new Recorder;
  return *recorder;
}

Buffer& my_buffer() {
  thread_local Buffer* buffer = nullptr;
  thread_local uint64_t run = 0;
  Recorder& all = recorder();
  if (run != all.run) {
    std::lock_guard lock(all.mutex);
    buffer = all.buffers.emplace_back(std::make_unique<Buffer>()).get();
    buffer->in_use_before = thread_memory_in_use();
    run = all.run;
  }
  return *buffer;
}

}  // namespace

namespace internal {
constinit std::atomic<bool> recording = false;
}

void Span::begin(const char* name, Kind kind, int64_t bytes) {
  Buffer& mine = my_buffer();
  const bool backward = kind == Kind::kRule || (!mine.open.empty() && mine.events[mine.open.back()].backward);
  if (kind != Kind::kKernel) name = mine.names.emplace(name).first->c_str();  // the kernels' last for ever
  mine.open.push_back(mine.events.size());
  mine.events.push_back({.name = name, .begin = nanoseconds(), .bytes = bytes, .kind = kind, .backward = backward});
}

void Span::end() {
  Buffer& mine = my_buffer();
  if (mine.open.empty()) return;  // begun in an earlier recording
  Raw& event = mine.events[mine.open.back()];
  event.end = nanoseconds();
  event.in_use = thread_memory_in_use() - mine.in_use_before;
  mine.open.pop_back();
}

Scope::Scope(const std::string& name, Kind kind) : recorded_(running()) {
  if (recorded_) Span::begin(name.c_str(), kind, 0);
}
Scope::~Scope() {
  if (recorded_) Span::end();
}

// ---- kernels --------------------------------------------------------------------------------------------------------
// While something is recorded, a table of functions that call the real ones takes the place of the CPU's.

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
  for (const BlockCopy& block : blocks) bytes += 2 * block.rows * block.bytes;
  return bytes;
}
template <class T>
int64_t touched(const T&) {
  return 0;
}

/// A name for each instantiation, which the kernel's stand-in finds without looking.
template <auto where, size_t index>
inline const char* name_of = nullptr;

/// What a kernel reads and writes of its tensors.
enum class Touches {
  kAll,     // each of them
  kPartly,  // of the first only as much as the last one has
  kTwice    // reads and writes each
};

template <auto where, size_t index, Touches how, class R, class... Args>
void stand_in(R (*&kernel)(Args...), const char* name) {
  if (!kernel) return;
  name_of<where, index> = name;
  kernel = [](Args... args) -> R {
    int64_t bytes = 0, first = 0, last = 0;
    const auto add = [&](int64_t more) { bytes += more, last = more ? more : last, first = first ? first : more; };
    (add(touched(args)), ...);
    if (how == Touches::kPartly) bytes += last - first;
    if (how == Touches::kTwice) bytes *= 2;
    const Span span(name_of<where, index>, Kind::kKernel, bytes);
    return where(*real, index)(args...);
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
  static const std::string name = op_name(__PRETTY_FUNCTION__);
  return name.c_str();
}
template <auto where, class... Functors, class Kernel>
void stand_in_for_all(std::tuple<Functors...>*, const Kernel*& rows) {
  static std::array<Kernel, sizeof...(Functors)> stand_ins;
  std::copy_n(rows, stand_ins.size(), stand_ins.begin());
  [&]<size_t... i>(std::index_sequence<i...>) {
    (stand_in<where, i, Touches::kAll>(stand_ins[i], name_of_functor<Functors>()), ...);
  }
  (std::index_sequence_for<Functors...>());
  rows = stand_ins.data();
}

#define KERNEL_OF(how, member) \
  stand_in<[](const KernelTable& b, size_t) { return b.member; }, 0, Touches::how>(table.member, #member)
#define KERNEL(member) KERNEL_OF(kAll, member)
#define KERNELS(member, List)                                                                                         \
  stand_in_for_all<[](const KernelTable& b, size_t i) { return b.member[i]; }>(static_cast<functors::List*>(nullptr), \
                                                                               table.member)

KernelTable make_recording_table() {
  KernelTable table = *real;
  KERNEL(copy), KERNEL(copy_blocks), KERNEL(fill), KERNEL(where);
  KERNELS(unary, UnaryList), KERNELS(unary_grad, UnaryList);
  KERNELS(binary, BinaryList), KERNELS(grad_a, BinaryList), KERNELS(grad_b, BinaryList);
  KERNELS(ternary, TernaryList), KERNELS(bits, BitList), KERNELS(compare, CompareList), KERNELS(update, UpdateList);
  KERNEL_OF(kTwice, multi_tensor_scale), KERNEL(multi_tensor_norm);
  KERNEL(reduce), KERNEL(arg_reduce), KERNEL(scan), KERNEL(logcumsumexp_grad), KERNEL(cum_extreme);
  KERNEL(segment_reduce), KERNEL(segment_broadcast), KERNEL(segment_extreme_grad), KERNEL(segment_softmax);
  KERNEL(segment_softmax_grad), KERNEL(softmax), KERNEL(softmax_grad), KERNEL(cross_entropy),
      KERNEL(cross_entropy_grad);
  KERNEL(row_norm), KERNEL(row_norm_grad), KERNEL(channel_norm), KERNEL(channel_norm_grad);
  KERNEL(max_pool), KERNEL(avg_pool), KERNEL(avg_pool_grad), KERNEL(interpolate), KERNEL(interpolate_grad);
  KERNEL(gemm), KERNEL(cell), KERNEL(cell_grad), KERNEL(recurrence), KERNEL(recurrence_grad);
  KERNEL(convolve), KERNEL(unfold), KERNEL(fold);
  KERNEL(crf), KERNEL(crf_grad), KERNEL(crf_decode), KERNEL(ctc), KERNEL(ctc_grad);
  KERNEL(check_bounds), KERNEL_OF(kPartly, index_select), KERNEL_OF(kPartly, index_copy), KERNEL_OF(kPartly, index_add),
      KERNEL_OF(kPartly, gather);
  KERNEL_OF(kPartly, scatter), KERNEL(embedding_bag), KERNEL(count_nonzero), KERNEL(nonzero);
  KERNEL(sort), KERNEL(kthvalue), KERNEL(lexsort), KERNEL(searchsorted);
  KERNEL(linalg.solve), KERNEL(linalg.slogdet), KERNEL(linalg.cholesky), KERNEL(linalg.qr), KERNEL(linalg.svd);
  KERNEL(linalg.eigh), KERNEL(linalg.solve_triangular);
  KERNEL(random), KERNEL(poisson), KERNEL(multinomial), KERNEL(dropout), KERNEL(dropout_grad);
  return table;
}

}  // namespace

void start() {
  Recorder& all = recorder();
  std::lock_guard lock(all.mutex);
  REEL_CHECK(!running(), "profile::start: something is recorded already");
  static const KernelTable* const table = [] {
    real = &cpu_kernels();
    return new KernelTable(make_recording_table());
  }();
  all.buffers.clear();
  ++all.run;
  all.start = nanoseconds();
  internal::recording = true;
  profiling_table = table;
}

Report stop() {
  Recorder& all = recorder();
  std::lock_guard lock(all.mutex);
  REEL_CHECK(running(), "profile::stop: nothing is recorded");
  profiling_table = nullptr;
  internal::recording = false;
  const auto seconds = [&](int64_t time) { return static_cast<double>(time - all.start) * 1e-9; };
  Report report;
  report.seconds = seconds(nanoseconds());
  int thread = 0;
  for (const auto& buffer : all.buffers) {
    std::vector<size_t> around;  // places of the events that the present one is in
    for (const Raw& raw : buffer->events) {
      if (!raw.end) continue;  // still going on
      Event event{raw.name,         raw.kind, raw.backward, thread,    seconds(raw.begin),
                  seconds(raw.end), 0,        raw.bytes,    raw.in_use};
      event.self = event.end - event.begin;
      while (!around.empty() && report.events[around.back()].end <= event.begin) around.pop_back();
      if (!around.empty()) report.events[around.back()].self -= event.self;
      around.push_back(report.events.size());
      report.events.push_back(std::move(event));
    }
    ++thread;
  }
  return report;
}

// ---- what is made of it ---------------------------------------------------------------------------------------------

namespace {

constexpr const char* kKinds[] = {"kernel", "rule", "layer", "scope"};
auto key_of(const Event& e) { return std::tuple(e.name, e.kind, e.backward); }

}  // namespace

std::vector<Row> Report::rows() const {
  std::map<std::tuple<std::string, Kind, bool>, Row> rows;
  std::vector<const Event*> around;
  int thread = -1;
  for (const Event& e : events) {
    if (std::exchange(thread, e.thread) != e.thread) around.clear();
    while (!around.empty() && around.back()->end <= e.begin) around.pop_back();
    const bool inside =
        std::any_of(around.begin(), around.end(), [&](const Event* o) { return key_of(*o) == key_of(e); });
    Row& row = rows.try_emplace(key_of(e), Row{e.name, e.kind, e.backward, 0, 0, 0, 0}).first->second;
    ++row.calls;
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
  for (const Row& row : all) inside += row.self;
  const double whole = std::max(seconds * std::max(threads, 1), 1e-12);
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    const Row& row = all[i];
    shown += row.self;
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
  file << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  std::vector<std::pair<double, const Event*>> by_end;
  for (const Event& e : events) {
    const auto [name, added] = quoted.try_emplace(e.name);
    if (added) name->second = nlohmann::json(e.name).dump();
    file << fmt::format(R"({}{{"name": {}, "cat": "{}", "ph": "X", "pid": 0, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, )"
                        R"("args": {{"pass": "{}", "bytes": {}}}}})",
                        std::exchange(comma, ",\n"), name->second, kKinds[static_cast<int>(e.kind)], e.thread,
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
    file << fmt::format(R"({}{{"name": "memory", "ph": "C", "pid": 0, "ts": {:.3f}, "args": {{"bytes": {}}}}})",
                        std::exchange(comma, ",\n"), time * 1e6, in_use);
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
      report.save_trace(path);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
} from_environment;
}  // namespace

}  // namespace reel::profile
