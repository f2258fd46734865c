#include <algorithm>
#include <exception>
#include <new>
#include <numeric>
#include <utility>

#include "lib/distributed/group.h"
#include "lib/tensor/profile.h"

namespace reel::distributed {
namespace {

constexpr auto kPoll = Milliseconds(10);  // of what has no notification
constexpr auto kPolling = Milliseconds(1);

/// 2.5 s, 300 s
std::string seconds(Milliseconds time) { return detail::concat(static_cast<double>(time.count()) / 1000, " s"); }

bool contains(std::span<const int> ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// "rank 1 at user code, rank 2 at barrier 3 of group 0 (silent for 1.2 s)"
std::string list(const std::vector<Activity>& activities, std::span<const int> ranks) {
  std::string text;
  for (const Activity& activity : activities) {
    if (!contains(ranks, activity.rank)) continue;
    text += detail::concat(text.empty() ? "" : ", ", "rank ", activity.rank, " at ", activity.what);
    if (activity.silence >= Milliseconds(1000)) text += detail::concat(" (silent for ", seconds(activity.silence), ")");
  }
  return text;
}

}  // namespace

std::vector<int> meet(Store& store, const std::string& place, int rank, std::span<const int> ranks,
                      Milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const auto key = [&](int r) { return detail::concat(place, '/', r); };
  store.set(key(rank), "here");
  std::vector<std::string> keys;
  for (const int r : ranks) keys.push_back(key(r));
  try {
    store.wait(keys, limit);
    return {};
  } catch (const Error& error) {
    if (error.kind != Error::kTimeout || Clock::now() + Milliseconds(100) < deadline) throw;
  }
  std::vector<int> missing;
  for (const int r : ranks) {
    try {
      store.get(key(r), Milliseconds(0));
    } catch (const Error& error) {
      if (error.kind != Error::kTimeout) throw;
      missing.push_back(r);
    }
  }
  return missing;
}

void Membership::bury() noexcept try {
  std::list<Retired> dead;
  const std::lock_guard lock(mutex);
  for (auto next = retired.begin(); next != retired.end();) {
    const auto here = next++;
    if (here->store->add("closed", 0) >= here->size) dead.splice(dead.end(), retired, here);
  }
} catch (...) {
  // They go with the membership.
}

// ---- ops ------------------------------------------------------------------------------------------------------------

Op::Op(std::shared_ptr<Core> core, std::string what, uint64_t sequence, std::function<void()> body)
    : core_(std::move(core)),
      what_(std::move(what)),
      sequence_(sequence),
      deadline_(Clock::now() + core_->timeout()),
      body_(std::move(body)) {}

Op::Op(std::shared_ptr<Core> core, std::string what, std::unique_ptr<Message> message, bool sends)
    : core_(std::move(core)), what_(std::move(what)), sequence_(0), sends_(sends), message_(std::move(message)) {}

void Op::wait() {
  if (message_) {
    const std::lock_guard lock(finishing_);
    core_->wait_for_message(*this);
  } else {
    core_->wait(*this);
  }
  finish();
}

bool Op::done() {
  if (!core_->is_over(*this)) return false;
  try {
    wait();
  } catch (...) {
    // wait() throws it again.
  }
  return true;
}

void Op::finish() {
  const std::lock_guard lock(finishing_);
  if (!after_) return;
  const auto after = std::exchange(after_, nullptr);
  after();
}

// ---- the life of a group --------------------------------------------------------------------------------------------

Core::Core(std::shared_ptr<Membership> membership, std::vector<int> ranks, int number)
    : membership_(std::move(membership)), ranks_(std::move(ranks)), name_(detail::concat("group ", number)) {
  rank_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), membership_->rank) - ranks_.begin());
  if (size() > 1) store_ = prefix_store(detail::concat("group", number, '/'), membership_->member);
}

Core::~Core() { close(); }

void Core::start() {
  if (size() == 1) return;
  const ProcessGroupOptions& options = membership_->options;
  callback_ = membership_->member->on_abort([this](const Error& reason) { fail(reason); });
  const std::string what = "the rendezvous of " + name_;
  membership_->member->set_activity(what);
  std::unique_ptr<Engine> engine;
  try {
    check();
    const std::vector<int> missing = distributed::meet(*store_, "start", membership_->rank, ranks_, options.rendezvous);
    if (!missing.empty()) end(late(what, 0, options.rendezvous, missing));
    choose_backend();
    compare_settings();
    if (shares_memory())
      engine = make_thread_engine(store_, rank_, size(), options.rendezvous);
    else
      engine = make_gloo_engine(store_, rank_, size(), options, membership_->address,
                                [this](std::function<void()> interrupt) { set_interrupt(std::move(interrupt)); });
  } catch (const Error& error) {
    end(error);
  } catch (...) {
    explain(what, 0);
  }
  {
    const std::lock_guard lock(mutex_);
    engine_ = std::move(engine);
    if (dead_) engine_->abort();
  }
  check();
  const int workers = shares_memory() ? 1 : 2;
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  threads_.emplace_back([this] { watch(); });
  membership_->member->set_activity("user code");
}

void Core::compare_settings() {
  const auto compare = [&](const char* key, const std::string& mine, const char* setting, const char* verb) {
    if (rank_ == 0) return store_->set(key, mine);
    const std::string first = store_->get(key, membership_->options.rendezvous);
    if (first != mine)
      throw Error(Error::kMismatch,
                  detail::concat(setting, " differs: ", verb, ' ', first, " on rank ", ranks_[0], " and ", mine,
                                 " on rank ", membership_->rank),
                  {membership_->rank});
  };
  const char* const names[] = {"kAuto", "kGloo", "kNccl", "kThreads"};
  compare("checks", checks() ? "on" : "off", "REEL_DIST_CHECK", "checks are");
  compare("backend", names[static_cast<int>(backend())], "ProcessGroupOptions::backend", "it is");
}

void Core::set_interrupt(std::function<void()> interrupt) {
  const std::lock_guard lock(interrupt_mutex_);
  interrupt_ = std::move(interrupt);
  if (interrupt_ && dead_) interrupt_();
}

void Core::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  if (!dead_ && std::uncaught_exceptions() > 0) abort("an exception has left the block that owns " + name_);
  // Those that receive are no loss to anybody.
  for (std::list<std::shared_ptr<Op>>::iterator next; !dead_;) {
    std::shared_ptr<Op> op;
    {
      const std::lock_guard lock(mutex_);
      if (under_way_.empty()) break;
      op = std::move(under_way_.front());
      under_way_.pop_front();
      if (op->message_ && !op->sends_) continue;
      closing_ = op.get();  // the watchdog sees to it
    }
    try {
      op->wait();
    } catch (...) {
      // Nobody has asked.
    }
    const std::lock_guard lock(mutex_);
    closing_ = nullptr;
  }
  close_gpu();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queued_.notify_all();
    stopping_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  gone_ = true;
  if (callback_) membership_->member->forget_abort(*callback_);
  std::list<std::shared_ptr<Op>> forgotten;
  {
    const std::lock_guard lock(mutex_);
    forgotten.swap(under_way_);
  }
  forgotten.clear();
  if (!engine_ || dead_) {
    engine_.reset();
    nccl_.reset();
    return;
  }
  try {
    store_->add("closed", 1);
    const std::lock_guard lock(membership_->mutex);
    membership_->retired.push_back({store_, std::move(engine_), std::move(nccl_), size()});
  } catch (...) {
    engine_.reset();
    nccl_.reset();
  }
  membership_->bury();
}

// ---- running ops ----------------------------------------------------------------------------------------------------

void Core::check() const {
  if (!dead_) {
    // What outlives its group would go on alone.
    if (gone_) throw Error(Error::kAborted, name_ + " has been destroyed: what uses it must be destroyed before");
    return;
  }
  const std::lock_guard lock(mutex_);
  throw_error();
}

void Core::throw_error() const {
  // There is none if there was no memory for it.
  throw error_ ? Error(*error_) : Error(Error::kAborted, "the group has ended");
}

void Core::launch(const std::shared_ptr<Op>& op) {
  prune();
  check();
  const std::lock_guard lock(mutex_);
  under_way_.push_back(op);
  queue_.push_back(op.get());
  queued_.notify_one();
}

void Core::launch_message(const std::shared_ptr<Op>& op) {
  prune();
  const std::lock_guard lock(mutex_);
  under_way_.push_back(op);
}

void Core::run_now(const std::shared_ptr<Op>& op) {
  prune();
  check();
  {
    const std::lock_guard lock(mutex_);
    op->status_ = Op::kRunning;
    ++running_;
    under_way_.push_back(op);
  }
  run(*op);
  {
    const std::lock_guard lock(mutex_);
    under_way_.remove(op);  // unless another thread has seen that it is done
  }
  op->wait();
}

void Core::prune() {
  std::list<std::shared_ptr<Op>> done;
  {
    const std::lock_guard lock(mutex_);
    // Also behind one that lasts: a message may be expected for as long as the job goes on.
    for (auto next = under_way_.begin(); next != under_way_.end();) {
      const auto here = next++;
      if ((*here)->status_ == Op::kDone) done.splice(done.end(), under_way_, here);
    }
  }
  for (const auto& op : done)
    if (!op->failed_) op->finish();
}

void Core::run(Op& op) noexcept {
  bool failed = true;
  try {
    check();
    membership_->member->set_activity(op.what_);
    op.body_();
    failed = false;
  } catch (...) {
    try {
      explain(op.what_, op.sequence_);
    } catch (...) {
      // It is the group's Error now.
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) idle();
    op.status_ = Op::kDone;
    op.failed_ = failed;
    op.ended_ = profile::now();
    finished_.notify_all();
  }
}

void Core::idle() noexcept try { membership_->member->set_activity("user code"); } catch (...) {
  // For want of memory: the last one remains.
}

void Core::wait(Op& op) {
  // To put a core to sleep and to wake it costs more than what small ops move. So a worker runs the op, and this thread
  // keeps its core awake for a while.
  const auto polled = Clock::now() + kPolling;
  while (op.status_ != Op::kDone && Clock::now() < polled) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  if (op.status_ == Op::kQueued) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), &op));
    op.status_ = Op::kRunning;
    ++running_;
    lock.unlock();
    run(op);
    lock.lock();
  }
  finished_.wait(lock, [&] { return op.status_ == Op::kDone; });
  if (op.failed_) throw_error();
}

void Core::wait_for_message(Op& op) {
  {
    const std::lock_guard lock(mutex_);
    if (op.status_ == Op::kDone) {
      if (op.failed_) throw_error();
      return;
    }
    op.status_ = Op::kRunning;
    op.deadline_ = Clock::now() + timeout();
    ++running_;
  }
  bool failed = true;
  try {
    check();
    membership_->member->set_activity(op.what_);
    op.other_ = op.message_->wait();
    failed = false;
  } catch (...) {
    try {
      explain(op.what_, op.sequence_, true);
    } catch (...) {
      // It is the group's Error now.
    }
  }
  const std::lock_guard lock(mutex_);
  if (--running_ == 0) idle();
  op.status_ = Op::kDone;
  op.failed_ = failed;
  if (failed) throw_error();
}

bool Core::is_over(Op& op) {
  if (op.message_ && !dead_) return op.message_->done();
  const std::lock_guard lock(mutex_);
  return op.status_ == Op::kDone || op.message_;
}

void Core::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    queued_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Op& op = *queue_.front();
    queue_.pop_front();
    op.status_ = Op::kRunning;
    ++running_;
    lock.unlock();
    run(op);  // the op may be gone afterwards
    lock.lock();
  }
}

void Core::watch() {
  Clock::time_point asked;
  const auto tick = std::clamp(timeout() / 20, Milliseconds(5), Milliseconds(200));
  std::unique_lock lock(mutex_);
  while (!stop_) {
    stopping_.wait_for(lock, tick);
    if (!on_gpu_.empty()) {
      lock.unlock();
      if (!watch_gpu(asked)) return;
      lock.lock();
    }
    const auto now = Clock::now();
    const auto is_late = [&](const Op& op) {
      // Nobody may have asked for a message yet.
      return op.deadline_ < now && (op.status_ == Op::kRunning || (op.status_ == Op::kQueued && !op.message_));
    };
    Op* late_one = closing_ && is_late(*closing_) ? closing_ : nullptr;
    for (const auto& op : under_way_)
      if (!late_one && is_late(*op)) late_one = op.get();
    if (!late_one) continue;
    const std::string what = late_one->what_;
    const uint64_t sequence = late_one->sequence_;
    lock.unlock();
    try {
      end(late(what, sequence, timeout()));
    } catch (...) {
      return;  // the group has ended
    }
  }
}

void Core::all_reduce(Tag tag, void* data, int64_t count, DType dtype, ReduceOp op) {
  const auto ranks = static_cast<size_t>(size());
  if (dtype != kFloat16 && dtype != kBFloat16) {
    engine_->all_reduce(tag, data, count, dtype, op == ReduceOp::kAvg ? ReduceOp::kSum : op);
    if (op == ReduceOp::kAvg) divide(data, count, dtype, size());
    return;
  }
  // Each rank gets all ranks' halves of its part, so that they are rounded once; the bytes on the wire are the same.
  std::vector<size_t> bytes(ranks), own(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    const auto part = [&](size_t i) { return static_cast<size_t>(count) * i / ranks; };
    bytes[r] = (part(r + 1) - part(r)) * 2;
  }
  const auto me = static_cast<size_t>(rank_);
  std::fill(own.begin(), own.end(), bytes[me]);
  const std::unique_ptr<char[]> parts(new char[std::max<size_t>(bytes[me] * ranks, 1)]);
  engine_->all_to_all(tag, data, bytes, parts.get(), own);
  std::vector<const void*> addresses(ranks);
  for (size_t r = 0; r < ranks; ++r) addresses[r] = parts.get() + r * bytes[me];
  char* const mine = static_cast<char*>(data) + std::accumulate(bytes.begin(), bytes.begin() + rank_, size_t{0});
  reduce_parts(addresses, static_cast<int64_t>(bytes[me] / 2), dtype, op, mine);
  engine_->all_gather(tag, mine, data, bytes);
}

// ---- the end of a group ---------------------------------------------------------------------------------------------

void Core::fail(const Error& reason) noexcept {
  Engine* engine = nullptr;
  Nccl* nccl = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (dead_.exchange(true)) return;
    try {
      error_ = reason;
    } catch (const std::bad_alloc&) {
      error_.reset();  // see throw_error()
    }
    engine = engine_.get();
    nccl = nccl_.get();
  }
  if (engine) engine->abort();
  if (nccl) nccl->abort();
  const std::lock_guard lock(interrupt_mutex_);
  if (interrupt_) interrupt_();
}

void Core::end(const Error& reason) {
  check();
  if (membership_->member) {
    membership_->member->abort(reason);
    fail(membership_->member->aborted().value_or(reason));
  } else {
    fail(reason);
  }
  check();
  throw Error(reason);
}

void Core::abort(std::string_view why) noexcept try {
  end(Error(Error::kAborted, detail::concat("rank ", membership_->rank, " ended the job: ", why), {membership_->rank}));
} catch (...) {
  // The group has ended.
}

void Core::explain(const std::string& what, uint64_t sequence, bool of_message) {
  std::string message;
  try {
    throw;
  } catch (const Error& error) {
    // Of this library: ranks that disagree, what the store says, or a message that is not what was waited for.
    if (!of_message || dead_) end(error);
    std::vector<int> senders;
    for (const int rank : error.ranks) senders.push_back(ranks_.at(static_cast<size_t>(rank)));
    end(Error(error.kind, detail::concat(error.what(), " (", what, ")"), senders));
  } catch (const reel::Error& error) {
    end(Error(Error::kAborted, detail::concat("rank ", membership_->rank, " failed in ", what, ": ", error.what()),
              {membership_->rank}, sequence));
  } catch (const std::bad_alloc&) {
    end(Error(Error::kAborted, detail::concat("rank ", membership_->rank, " ran out of memory in ", what),
              {membership_->rank}, sequence));
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "unknown exception";
  }
  // The engine knows only that a connection broke. Why is what the store will say, at the latest when a heartbeat is
  // missed.
  const auto deadline = Clock::now() + membership_->options.heartbeat + Milliseconds(1000);
  for (auto asked = Clock::time_point(); Clock::now() < deadline; std::this_thread::sleep_for(kPoll)) {
    check();
    if (const auto reason = membership_->member->aborted()) end(*reason);
    if (Clock::now() < asked + 10 * kPoll) continue;
    asked = Clock::now();
    check_left(what, sequence);
  }
  end(Error(Error::kPeerLost, detail::concat(what, " failed: ", message), {}, sequence));
}

void Core::check_left(const std::string& what, uint64_t sequence) {
  std::vector<int> left;
  const std::vector<Activity> activities = ask();
  for (const Activity& activity : activities)
    if (contains(ranks_, activity.rank) && activity.what.starts_with("left")) left.push_back(activity.rank);
  if (left.empty()) return;
  std::string text;
  for (const Activity& activity : activities)
    if (contains(left, activity.rank)) text += detail::concat("rank ", activity.rank, ' ', activity.what, ", ");
  end(Error(Error::kPeerLost, detail::concat(text, "while rank ", membership_->rank, " was at ", what), left,
            sequence));
}

std::vector<Activity> Core::ask() const {
  try {
    return membership_->member->activities();
  } catch (const Error&) {
    return {};  // the member will say why
  }
}

Error Core::late(const std::string& what, uint64_t sequence, Milliseconds limit, std::vector<int> missing) const {
  const std::vector<Activity> activities = ask();
  if (missing.empty()) {
    // Who is at the same as this rank waits as it does: the op, or one that has begun after it.
    std::string own = what;
    for (const Activity& activity : activities)
      if (activity.rank == membership_->rank) own = activity.what;
    for (const Activity& activity : activities)
      if (contains(ranks_, activity.rank) && activity.what != what && activity.what != own)
        missing.push_back(activity.rank);
  }
  std::sort(missing.begin(), missing.end());
  std::string text = detail::concat(what, " took longer than ", seconds(limit), " on rank ", membership_->rank);
  for (const int rank : missing) text += detail::concat(rank == missing[0] ? ": no rank " : ", ", rank);
  if (!activities.empty()) text += "; " + list(activities, ranks_);
  return Error(Error::kTimeout, text, missing, sequence);
}

void Core::meet(const std::string& place, Milliseconds limit) {
  const uint64_t number = ++meetings_;
  const auto name = [&](uint64_t n) { return detail::concat(place, n); };
  const std::string what = detail::concat(place, ' ', number, " of ", name_);
  membership_->member->set_activity(what);
  std::vector<int> missing;
  try {
    missing = distributed::meet(*store_, name(number), membership_->rank, ranks_, limit);
    // Who is here has seen all of those that came to the last one.
    if (number > 1) store_->erase(detail::concat(name(number - 1), '/', membership_->rank));
  } catch (const Error& error) {
    end(error);
  }
  if (!missing.empty()) end(late(what, 0, limit, missing));
  idle();
}

}  // namespace reel::distributed
