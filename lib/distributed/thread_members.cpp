#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "lib/distributed/thread_members.h"

namespace reel::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxKey = 4 << 10, kMaxValue = 16 << 20;

/// What the members of one job share.
class Job {
 public:
  explicit Job(int size) : seats_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(seats_.size()); }

  void set(std::string_view key, std::string_view value) {
    check(key, value);
    const std::lock_guard lock(mutex_);
    throw_if_ended();
    assign(key, value);
  }

  std::string get(int rank, std::string_view key, Milliseconds timeout) {
    check(key, {});
    std::unique_lock lock(mutex_);
    await(lock, rank, key, Clock::now() + timeout, timeout);
    return values_.find(key)->second;
  }

  void wait(int rank, std::span<const std::string> keys, Milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    std::unique_lock lock(mutex_);
    for (const std::string& key : keys) await(lock, rank, key, deadline, timeout);
  }

  int64_t add(std::string_view key, int64_t amount) {
    check(key, {});
    const std::lock_guard lock(mutex_);
    throw_if_ended();
    int64_t sum = 0;
    if (const auto found = values_.find(key); found != values_.end()) {
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum);
      REEL_CHECK(error == std::errc() && end == text.data() + text.size(), "store: add to key \"", key,
                 "\", whose value is not a number");
    }
    REEL_CHECK(!__builtin_add_overflow(sum, amount, &sum), "store: add to key \"", key, "\" overflows");
    assign(key, std::to_string(sum));
    return sum;
  }

  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    check(key, desired);
    const std::lock_guard lock(mutex_);
    throw_if_ended();
    const auto found = values_.find(key);
    const std::string_view before = found == values_.end() ? std::string_view() : std::string_view(found->second);
    if (before != expected) return std::string(before);
    assign(key, desired);
    return std::string(desired);
  }

  bool erase(std::string_view key) {
    const std::lock_guard lock(mutex_);
    throw_if_ended();
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    values_.erase(found);
    return true;
  }

  void set_activity(int rank, std::string_view what) {
    Seat& seat = seats_[static_cast<size_t>(rank)];
    const std::lock_guard lock(seat.mutex);
    seat.activity = what;
  }

  std::vector<Activity> activities() const {
    std::vector<Activity> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back({rank, activity(rank), Milliseconds(0)});
    return all;
  }

  void end(const Error& reason) noexcept try {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    ended_ = reason;
    changed_.notify_all();
    // Callbacks run without the lock, and forget() waits for the one that runs.
    while (!callbacks_.empty()) {
      const auto next = callbacks_.extract(callbacks_.begin());
      running_.push_back(next.key());
      lock.unlock();
      next.mapped()(reason);
      lock.lock();
      std::erase(running_, next.key());
      changed_.notify_all();
    }
  } catch (...) {
    // Without memory for the reason nobody can be told.
  }

  std::optional<Error> ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  int64_t on_end(std::function<void(const Error&)> f) {
    std::unique_lock lock(mutex_);
    const int64_t id = ++last_callback_;
    if (ended_) {
      const Error reason = *ended_;
      lock.unlock();
      f(reason);
    } else {
      callbacks_.emplace(id, std::move(f));
    }
    return id;
  }

  void forget(int64_t id) noexcept {
    std::unique_lock lock(mutex_);
    callbacks_.erase(id);
    changed_.wait(lock, [&] { return std::find(running_.begin(), running_.end(), id) == running_.end(); });
  }

  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    Seat& seat = seats_[static_cast<size_t>(rank)];
    if (std::exchange(seat.left, true)) return;
    changed_.notify_all();
    const std::lock_guard activity_lock(seat.mutex);
    try {
      seat.activity.insert(0, "left after: ");
    } catch (const std::bad_alloc&) {
      seat.activity = "left";
    }
  }

 private:
  /// Of one rank. Its own lock, since an activity is set for each op.
  struct Seat {
    mutable std::mutex mutex;
    std::string activity = "starting";
    bool left = false;  // mutex_ of the job
  };

  static void check(std::string_view key, std::string_view value) {
    REEL_CHECK(key.size() <= kMaxKey, "store: a key of ", key.size(), " bytes, more than ", kMaxKey);
    REEL_CHECK(value.size() <= kMaxValue, "store: a value of ", value.size(), " bytes, more than ", kMaxValue);
  }

  void assign(std::string_view key, std::string_view value) {
    if (const auto found = values_.find(key); found != values_.end())
      found->second = value;
    else
      values_.emplace(key, value);
    changed_.notify_all();
  }

  void throw_if_ended() const {
    if (ended_) throw Error(*ended_);
  }

  std::string activity(int rank) const {
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    const std::lock_guard lock(seat.mutex);
    return seat.activity;
  }

  std::vector<int> gone() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank)
      if (seats_[static_cast<size_t>(rank)].left) ranks.push_back(rank);
    return ranks;
  }

  void await(std::unique_lock<std::mutex>& lock, int rank, std::string_view key, Clock::time_point deadline,
             Milliseconds timeout) {
    const auto found = [&] { return values_.find(key) != values_.end(); };
    const auto alone = [&] {
      for (int other = 0; other < size(); ++other)
        if (other != rank && !seats_[static_cast<size_t>(other)].left) return false;
      return size() > 1;
    };
    const bool in_time = changed_.wait_until(lock, deadline, [&] { return ended_ || found() || alone(); });
    throw_if_ended();
    if (found()) return;
    const std::vector<int> left = gone();
    if (left.empty())
      throw Error(Error::kTimeout,
                  detail::concat("store: key \"", key, "\" did not come within ", timeout.count(), " ms"));
    std::string message = detail::concat("store: nobody set key \"", key, "\"");
    if (!in_time) message += detail::concat(" within ", timeout.count(), " ms");
    for (const int other : left) message += detail::concat(", rank ", other, ' ', activity(other));
    throw Error(Error::kPeerLost, message, left);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<Seat> seats_;
  std::optional<Error> ended_;
  std::map<int64_t, std::function<void(const Error&)>> callbacks_;
  std::vector<int64_t> running_;
  int64_t last_callback_ = 0;
};

class ThreadMember : public Member {
 public:
  ThreadMember(std::shared_ptr<Job> job, int rank) : job_(std::move(job)), rank_(rank) {}
  ~ThreadMember() override {
    if (std::uncaught_exceptions() == 0) {
      leave();
      return;
    }
    try {
      job_->end(Error(Error::kPeerLost, detail::concat("rank ", rank_, " ended by an exception"), {rank_}));
    } catch (...) {
      leave();
    }
  }
  ThreadMember(const ThreadMember&) = delete;
  ThreadMember& operator=(const ThreadMember&) = delete;

  void set(std::string_view key, std::string_view value) override { job_->set(key, value); }
  std::string get(std::string_view key, Milliseconds timeout) override { return job_->get(rank_, key, timeout); }
  int64_t add(std::string_view key, int64_t amount) override { return job_->add(key, amount); }
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    return job_->compare_set(key, expected, desired);
  }
  void wait(std::span<const std::string> keys, Milliseconds timeout) override { job_->wait(rank_, keys, timeout); }
  bool erase(std::string_view key) override { return job_->erase(key); }

  int rank() const override { return rank_; }
  int world_size() const override { return job_->size(); }
  void set_activity(std::string_view what) override { job_->set_activity(rank_, what); }
  std::vector<Activity> activities() override { return job_->activities(); }
  void abort(const Error& reason) noexcept override { job_->end(reason); }
  std::optional<Error> aborted() const override { return job_->ended(); }
  int64_t on_abort(std::function<void(const Error&)> f) override { return job_->on_end(std::move(f)); }
  void forget_abort(int64_t id) noexcept override { job_->forget(id); }
  void leave() noexcept override { job_->leave(rank_); }

 private:
  const std::shared_ptr<Job> job_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Member>> thread_members(int world_size) {
  REEL_CHECK(world_size >= 1, "thread_members: a world of ", world_size);
  const auto job = std::make_shared<Job>(world_size);
  std::vector<std::shared_ptr<Member>> members;
  for (int rank = 0; rank < world_size; ++rank) members.push_back(std::make_shared<ThreadMember>(job, rank));
  return members;
}

bool is_of_threads(const Member& member) { return dynamic_cast<const ThreadMember*>(&member) != nullptr; }

}  // namespace reel::distributed
