#include "lib/batching/scheduler.h"

#include <sys/resource.h>

#include <algorithm>
#include <new>

#include "lib/autograd/saved_log.h"
#include "lib/autograd/tape.h"
#include "lib/base/per_thread.h"
#include "lib/device/pending_uploads.h"
#include "lib/ops/rows.h"

namespace reel::batching::internal {
namespace {

constexpr size_t kStackBytes = 8 << 20;  // as much as a program's own has
constexpr size_t kMaxFibers = 4096;
// The idle stacks of a thread keep so much memory in all, shared equally.
constexpr size_t kKeptBytes = 64 << 20;
// both() adds none to so many while calls are made on a CPU: their stacks would leave the caches, which costs more than
// wider groups gain.
constexpr size_t kManyFibers = 128;
constexpr int kMinRank = 2;  // of a floating-point tensor whose dimension 0 counts rows

/// Unwinds a fiber. No std::exception, which programs and Layer::call catch.
struct Cancelled {};
/// A function that rows() batches does not return a row for each row.
struct WrongRows : Error {
  using Error::Error;
};

/// A NotFinite is thrown where a value that a group saves for its gradient is infinite or NaN.
struct NotFinite {};
/// While a JoinedCallScope lives, in_joined_call is true.
class JoinedCallScope {
 public:
  JoinedCallScope() : before_(std::exchange(in_joined_call, true)) {}
  ~JoinedCallScope() { in_joined_call = before_; }
  JoinedCallScope(const JoinedCallScope&) = delete;
  JoinedCallScope& operator=(const JoinedCallScope&) = delete;

 private:
  const bool before_;
};

/// A fiber whose main() runs one function after another.
struct Worker : FiberTask {
  explicit Worker(void (*main)(void*)) : own(main, this, kStackBytes) { fiber = &own; }
  Fiber own;
};
/// Those of a thread.
struct Workers {
  std::vector<std::unique_ptr<Worker>> idle;  // with room for all
  size_t count = 0;
  int64_t faults = 0;  // since they were trimmed
};
constinit thread_local PerThread<Workers> workers;

/// Returns how many pages the calling thread was the first to touch (minor page faults).
int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}
/// Gives back the memory that idle stacks have beyond what they keep, after a map in which there were so many page
/// faults. A system call for each stack takes time, so faults add up to a part of that memory first.
void trim_idle(int64_t faults) {
  constexpr size_t kPage = 4096;
  auto& [idle, count, untrimmed] = *workers;
  untrimmed += faults;
  if (static_cast<size_t>(untrimmed) * kPage <= kKeptBytes / 4) return;
  untrimmed = 0;
  for (const auto& worker : idle) worker->own.trim(kKeptBytes / idle.size());
}

bool alike(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const TensorImpl *x = TensorImpl::of(a), *y = TensorImpl::of(b);
  if (x->view.dtype != y->view.dtype || x->device() != y->device() || x->view.shape.size() != y->view.shape.size())
    return false;
  for (int64_t d = 1; d < x->view.shape.size(); ++d)
    if (x->view.shape[d] != y->view.shape[d]) return false;
  return !grad_mode || needs_grad(a) == needs_grad(b);
}

/// Can they be one call?
bool alike(const Call& a, const Call& b) {
  if (a.callee != b.callee || a.weight != b.weight || a.type != b.type || a.modes != b.modes || a.count != b.count)
    return false;
  for (size_t i = 0; i < a.count; ++i) {
    if (!a.entries[i] || !b.entries[i]) {
      if (a.entries[i] != b.entries[i]) return false;
    } else if (!alike(*a.entries[i], *b.entries[i])) {
      return false;
    }
  }
  return a.same_arguments(b);
}

/// Returns true if the call has a tensor on a GPU.
bool is_on_gpu(const Call& call) {
  const auto is_there = [](const TensorImpl* x) { return x->device() != kCPU; };
  for (size_t i = 0; i < call.count; ++i)
    if (const Tensor* const x = call.entries[i]; x && x->defined() && is_there(TensorImpl::of(*x))) return true;
  return call.weight && is_there(static_cast<const TensorImpl*>(call.weight));
}

/// Returns whether one of n numbers, read as integers, has all bits of the exponent: it is infinite or NaN.
template <class Bits>
bool any_not_finite(const void* data, int64_t n, Bits exponent) {
  const auto* const bits = static_cast<const Bits*>(data);
  int found = 0;  // without a branch, so that compilers make vectors of it
  for (int64_t i = 0; i < n; ++i) found |= (bits[i] & exponent) == exponent;
  return found != 0;
}
/// Returns false if x has an element that is infinite or NaN, and can be read without waiting for a GPU.
bool may_be_finite(const Tensor& x) {
  if (!view_of(x).host) return true;
  const Tensor dense = x.detach().contiguous();
  const View& view = view_of(dense);
  switch (view.dtype) {
    case kFloat32: return !any_not_finite<uint32_t>(view.data, view.numel, 0x7f800000);
    case kFloat64: return !any_not_finite<uint64_t>(view.data, view.numel, 0x7ff0000000000000);
    case kBFloat16: return !any_not_finite<uint16_t>(view.data, view.numel, 0x7f80);
    case kFloat16: return !any_not_finite<uint16_t>(view.data, view.numel, 0x7c00);
    default: return true;
  }
}
/// Returns whether x is a parameter, frozen or not. Examples share these whether they are one call or not.
bool is_parameter(const Tensor& x) { return TensorImpl::of(x)->leaf && !TensorImpl::of(x)->node; }
/// Checks all saved tensors but parameters, each once.
bool may_be_finite(std::span<const Tensor> saved) {
  for (size_t i = 0; i < saved.size(); ++i) {
    const auto same = [&](const Tensor& other) { return other.is_same(saved[i]); };
    if (saved[i].defined() && std::none_of(saved.begin(), saved.begin() + static_cast<int64_t>(i), same) &&
        !is_parameter(saved[i]) && !may_be_finite(saved[i]))
      return false;
  }
  return true;
}
bool may_be_finite(const Call& call) {
  const auto finite = [](const Tensor* x) { return !x || !x->defined() || may_be_finite(*x); };
  return std::all_of(call.entries.begin(), call.entries.begin() + call.count, finite);
}

double seconds(int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

}  // namespace

// ---- fibers ---------------------------------------------------------------------------------------------------------

FiberScheduler::FiberScheduler(Report* report)
    : on_gpu_(default_device() != kCPU),
      before_(exchange_fiber_waits({static_cast<BatchScheduler*>(this), report != nullptr})),
      report_(report),
      faults_(page_faults()) {
  host_.fiber = &Fiber::running();
  host_.scheduler = this;
  reports_ = report != nullptr;
  if (report) began_ = profile::now();
}

FiberScheduler::~FiberScheduler() {
  exchange_fiber_waits(before_);
  flush_pending_uploads();
  if (report_) report_->seconds += seconds(profile::now() - began_);
  trim_idle(page_faults() - faults_);
}

bool FiberScheduler::fork(void (*run)(void*), void* argument) {
  return others_ + 1 < (on_gpu_ ? kMaxFibers : kManyFibers) && start(run, argument);
}

bool FiberScheduler::start(void (*run)(void*), void* argument) {
  if (others_ + 1 >= kMaxFibers) return false;
  auto& [idle, count, faults] = *workers;
  try {
    if (calls_.capacity() < others_ + 2) calls_.reserve(2 * others_ + 16);  // run_group_of() must not fail
    if (idle.empty()) {
      if (idle.capacity() == count) idle.reserve(2 * count + 16);
      idle.push_back(std::make_unique<Worker>(&FiberScheduler::main));
      ++count;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  Worker* const worker = idle.back().release();
  idle.pop_back();
  worker->run = run, worker->argument = argument, worker->scheduler = this, worker->row = SIZE_MAX;
  worker->thread_state.begin();
  ++others_;
  if (report_) report_->most_fibers = std::max(report_->most_fibers, static_cast<int64_t>(others_ + 1));
  make_ready(worker);
  return true;
}

void FiberScheduler::main(void* task) {
  auto* const self = static_cast<Worker*>(task);
  while (true) {
    self->thread_state.restore();
    self->scheduler->end_schedule_timing();
    self->run(self->argument);
    self->scheduler->end_task();
  }
}

void FiberScheduler::end_task() {
  auto* const self = static_cast<Worker*>(running_);
  if (report_) choosing_ = profile::now();
  self->thread_state.save();  // ends what is open
  --others_;
  workers->idle.emplace_back(self);
  running_ = choose();
  running_->fiber->switch_to();
}

void FiberScheduler::make_ready(FiberTask* task) {
  task->next = nullptr;
  (first_ready_ ? last_ready_->next : first_ready_) = task;
  last_ready_ = task;
}

FiberTask* FiberScheduler::choose() {
  if (FiberTask* const next = first_ready_) {
    first_ready_ = next->next;
    if (first_ready_) first_ready_->fiber->prefetch();
    return next;
  }
  const auto largest = std::max_element(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
    return a.size != b.size ? a.size < b.size : a.number > b.number;
  });
  Call* const first = largest->first;
  first->state = largest->size == 1 ? Call::State::kAlone : Call::State::kRunsGroup;
  *largest = groups_.back();
  groups_.pop_back();
  return first->task;
}

void FiberScheduler::suspend() {
  FiberTask* const self = running_;
  if (report_) choosing_ = profile::now();
  self->thread_state.save();
  if (FiberTask* const next = choose(); next != self) {
    if (report_) ++report_->switches;
    running_ = next;
    next->fiber->switch_to();
  }
  self->thread_state.restore();
  end_schedule_timing();
}

void FiberScheduler::end_schedule_timing() {
  if (report_) report_->schedule_seconds += seconds(profile::now() - choosing_);
}

void FiberScheduler::cancel() {
  cancelled_ = true;
  for (const Group& group : groups_)
    for (Call* call = group.first; call; call = call->next)
      call->state = Call::State::kCancelled, make_ready(call->task);
  groups_.clear();
}

// ---- calls ----------------------------------------------------------------------------------------------------------

bool FiberScheduler::find_rows(Call& call) {
  if (!call.fits) return false;
  if (call.kind == Call::Kind::kSequences) return call.rows >= 0;
  for (size_t i = 0; i < call.count; ++i) {
    if (!call.entries[i] || !call.entries[i]->defined()) continue;
    const View& view = view_of(*call.entries[i]);
    if (view.shape.size() < (is_floating_point(view.dtype) ? kMinRank : 1)) return false;
    if (call.rows >= 0 && view.shape[0] != call.rows) return false;
    call.rows = view.shape[0];
  }
  return call.rows >= 0;
}

bool FiberScheduler::wait(Call& call) {
  if (std::uncaught_exceptions() > 0) return false;  // a destructor must not be left by an exception
  if (cancelled_) throw Cancelled();
  if (!find_rows(call)) {
    if (report_)
      note(call.label(),
           call.fits ? "its arguments have no rows, or different numbers of them" : "it has too many tensors");
    return false;
  }
  on_gpu_ = is_on_gpu(call);
  call.modes = current_modes();
  call.task = running_;
  if (report_) {
    Report::Row& row = row_of(call);
    ++row.calls;
    running_->row = static_cast<size_t>(&row - report_->rows.data());
  }
  try {
    add_to_group(call);
  } catch (const std::bad_alloc&) {
    return false;
  }
  suspend();
  switch (call.state) {
    case Call::State::kDone: return true;
    case Call::State::kRunsGroup: return run_group_of(call);
    case Call::State::kCancelled: throw Cancelled();
    default: break;
  }
  if (report_) ++row_of(call).alone;
  return false;
}

void FiberScheduler::add_to_group(Call& call) {
  for (Group& group : groups_)
    if (alike(*group.first, call)) {
      group.last = group.last->next = &call;
      ++group.size;
      return;
    }
  groups_.push_back({&call, &call, 1, groups_made_++});
}

bool FiberScheduler::run_group_of(Call& first) {
  calls_.clear();
  for (Call* call = &first; call; call = call->next) calls_.push_back(call);
  // If the group fails, each call runs by itself, so that only the wrong ones throw.
  for (Call* call : calls_) call->state = Call::State::kAlone;
  std::exception_ptr wrong;
  try {
    const detail::NoSuspendGuard no_suspend;
    const JoinedCallScope joined;
    const detail::TransposedWeights::Use use(weights_);
    try {
      run_group(first);
    } catch (const NotFinite&) {
      run_finite();
    }
  } catch (const WrongRows&) {
    wrong = std::current_exception();
  } catch (...) {
  }
  for (Call* call : calls_)  // which is gone when its fiber has gone on
    if (call != &first) make_ready(call->task);
  if (wrong) std::rethrow_exception(wrong);
  return first.state == Call::State::kDone;
}

// Runs the calls whose arguments are finite as a group. Where a call's result has no gradient, 0 times infinity must
// not be added to the gradients of parameters, which all calls share.
void FiberScheduler::run_finite() {
  Call *first = nullptr, *last = nullptr;
  for (Call* call : calls_) {
    call->next = nullptr;
    if (!may_be_finite(*call)) continue;
    (first ? last->next : first) = call;
    last = call;
  }
  if (first && first != last && calls_.size() > 1) run_group(*first);
}

void FiberScheduler::run_group(Call& first) {
  size_t size = 0;
  int64_t rows = 0;
  counts_.clear();
  for (Call* call = &first; call; call = call->next) ++size, rows += call->rows, counts_.push_back(call->rows);
  Report::Row* const row = report_ ? &row_of(first) : nullptr;
  const int64_t began = row ? profile::now() : 0;
  std::optional<profile::Scope> scope;
  if (profile::running()) scope.emplace(first.label(), profile::Kind::kLayer);
  struct Clear {
    FiberScheduler& scheduler;
    ~Clear() {
      scheduler.parts_.clear(), scheduler.inputs_.clear(), scheduler.gathers_.clear(), scheduler.saved_.clear();
    }
  } clear{*this};
  {
    const RowGroup::Ref group = grad_mode ? RowGroup::begin(counts_) : RowGroup::Ref();
    const SavedTensorLog log(saved_);
    if (first.kind == Call::Kind::kSequences)
      first.run_all(group.get());
    else
      run_rows(first, size, rows, group.get(), row);
    if (group) group->end();
  }
  if (!may_be_finite(saved_)) {
    if (report_) note(first.label(), "what its gradient needs is infinite or NaN");
    throw NotFinite();
  }
  for (Call* call = &first; call; call = call->next) call->state = Call::State::kDone;
  if (row) {
    row->seconds += seconds(profile::now() - began);
    ++row->groups;
    row->rows += rows;
  }
}

void FiberScheduler::run_rows(Call& first, size_t size, int64_t rows, RowGroup* group, Report::Row* row) {
  const int64_t began = row ? profile::now() : 0;
  for (size_t i = 0; i < first.count; ++i) {
    if (!first.entries[i]) continue;
    if (!first.entries[i]->defined()) {
      inputs_.emplace_back();
      continue;
    }
    parts_.clear();
    for (Call* call = &first; call; call = call->next) parts_.push_back(*call->entries[i]);
    inputs_.push_back(detail::gather_rows(parts_, group));
    if (group && needs_grad(inputs_.back())) gathers_.push_back(TensorImpl::of(inputs_.back())->node);
    if (row && view_of(inputs_.back()).data != view_of(parts_[0]).data)
      row->gathered += view_of(inputs_.back()).numel * size_of(view_of(inputs_.back()).dtype);
  }
  parts_.clear();
  if (row) row->gather_seconds += seconds(profile::now() - began);
  first.run(inputs_);
  const std::vector<Tensor> wholes = first.outputs();
  const auto node_of = [](const Tensor& x) { return x.defined() ? TensorImpl::of(x)->node : nullptr; };
  const auto other = [&](const Tensor& whole) { return node_of(whole) != node_of(wholes[0]); };
  if (!gathers_.empty() && std::any_of(wholes.begin(), wholes.end(), other))
    detail::relate_results(group, gathers_, wholes);
  std::vector<std::vector<Tensor>> outputs;
  for (const Tensor& whole : wholes) {
    const RowGroup::Results result = RowGroup::result(outputs.size());
    if (!whole.defined()) {
      outputs.emplace_back(size);
      continue;
    }
    if (whole.dim() == 0 || whole.size(0) != rows)
      detail::fail_as<WrongRows>(first.label(), ": its result must have a row for each of ", rows, " rows, but is ",
                                 whole.shape());
    outputs.push_back(detail::scatter_rows(whole, counts_, group, result));
  }
  size_t at = 1;
  for (Call* call = first.next; call; call = call->next) call->set_result_from_group(first, outputs, at++);
  first.set_result_from_group(first, outputs, 0);
}

// ---- the report -----------------------------------------------------------------------------------------------------

Report::Row& FiberScheduler::row_of(const Call& call) {
  const auto [number, added] = row_numbers_.try_emplace(call.label(), report_->rows.size());
  if (added) {
    const auto same = std::find_if(report_->rows.begin(), report_->rows.end(),
                                   [&name = number->first](const Report::Row& row) { return row.name == name; });
    number->second = static_cast<size_t>(same - report_->rows.begin());
    if (same == report_->rows.end()) report_->rows.push_back({.name = number->first});
  }
  return report_->rows[number->second];
}

void FiberScheduler::note(std::string_view label, const char* reason) noexcept {
  for (Report::Unbatched& known : report_->unbatched)
    if (known.name == label && known.reason == reason) return void(++known.calls);
  try {
    report_->unbatched.push_back({std::string(label), reason, 1});
  } catch (const std::bad_alloc&) {  // then the report lacks it
  }
}

void FiberScheduler::note_item() {
  if (!report_) return;
  ++report_->items;
  if (running_->row < report_->rows.size()) ++report_->rows[running_->row].items;
}

// ---- map and both ---------------------------------------------------------------------------------------------------

namespace {

FiberScheduler* current() { return static_cast<FiberScheduler*>(static_cast<BatchScheduler*>(fiber_waits.scheduler)); }

/// The examples of one map, which several fibers take.
struct Work {
  FiberScheduler& scheduler;
  const FunctionRef f;
  const size_t size;
  const bool whole;  // the scheduler's own map, not one inside of it
  size_t next = 0, fibers = 0;
  std::exception_ptr error = {};
  bool stopped = false;
  FiberTask* waiter = nullptr;

  void take() {
    while (next < size && !stopped) {
      try {
        f.call(f.object, next++);
      } catch (const Cancelled&) {
        stopped = true;
      } catch (...) {
        if (!error) error = std::current_exception();
        stopped = true;
        if (whole) scheduler.cancel();
      }
    }
  }
  static void run(void* object) {
    auto& work = *static_cast<Work*>(object);
    work.take();
    if (--work.fibers == 0 && work.waiter) work.scheduler.make_ready(work.waiter);
  }
  void run(size_t window) {
    while (fibers + 1 < std::min(window, size) && scheduler.start(run, this)) ++fibers;
    take();
    while (fibers > 0) {
      waiter = scheduler.running();
      scheduler.suspend();
    }
    if (error) std::rethrow_exception(error);
    if (scheduler.cancelled()) throw Cancelled();
  }
};

}  // namespace

void run(size_t n, FunctionRef f, const MapOptions& options) {
  REEL_CHECK(options.window >= 1, "batching::map: window must be at least 1, got ", options.window);
  if (FiberScheduler* const scheduler = current()) {
    Work{*scheduler, f, n, false}.run(n);
    return;
  }
  FiberScheduler scheduler(options.report);
  Work{scheduler, f, n, true}.run(static_cast<size_t>(options.window));
}

ForkedFiber::ForkedFiber(FunctionRef f) : f_(f) {
  FiberScheduler* const scheduler = current();
  const auto branch = [](void* object) {
    auto& fork = *static_cast<ForkedFiber*>(object);
    try {
      fork.f_.call(fork.f_.object, 0);
    } catch (...) {
      fork.error_ = std::current_exception();
    }
    fork.ended_ = true;
    if (fork.waiter_) fork.scheduler_->make_ready(fork.waiter_);
  };
  if (!scheduler || scheduler->cancelled()) return;
  scheduler_ = scheduler;
  if (!scheduler->fork(branch, this)) scheduler_ = nullptr;
}

void ForkedFiber::wait() {
  while (scheduler_ && !ended_) {
    waiter_ = scheduler_->running();
    scheduler_->suspend();
  }
}

ForkedFiber::~ForkedFiber() { wait(); }

void ForkedFiber::join() {
  if (!scheduler_) return f_.call(f_.object, 0);
  wait();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace reel::batching::internal
