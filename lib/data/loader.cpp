#include "reel/data/loader.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lib/device/device.h"
#include "lib/device/philox.h"
#include "lib/tensor/tensor_impl.h"

// The part of DataLoader that is no template: workers that make batches ahead, in order, and copies to a GPU on a
// stream of their own.
namespace reel::data::detail {

uint64_t random_seed() {
  return static_cast<uint64_t>(randint(int64_t{1} << 53, {}, {.device = kCPU}).item<int64_t>());
}

uint64_t sub_seed(uint64_t seed, uint64_t number) {
  const PhiloxBlock block = philox(seed, number, 0xDA7A);
  return uint64_t{block.lane[0]} << 32 | block.lane[1];
}

void check(const DataLoaderOptions& options) {
  REEL_CHECK(options.batch_size > 0, "DataLoader: batches of ", options.batch_size);
  REEL_CHECK(options.workers >= 0, "DataLoader: ", options.workers, " workers");
  REEL_CHECK(options.prefetch > 0, "DataLoader: prefetch is ", options.prefetch, ", but a worker makes at least 1");
}

void check_with_sampler(const DataLoaderOptions& options, bool of_batches) {
  check(options);
  REEL_CHECK(!options.shuffle, "DataLoader: shuffle does not go with a sampler, which decides the order");
  REEL_CHECK(!of_batches || (options.batch_size == 1 && !options.drop_last),
             "DataLoader: batch_size and drop_last do not go with a sampler of batches");
}

struct Pipeline::Shared {
  // What make() has returned or thrown.
  struct Outcome {
    Result result;
    std::exception_ptr error;
    bool made = false;
  };

  std::mutex mutex;
  std::condition_variable room, news;
  bool stopping = false;
  const int64_t ahead, last;
  int64_t to_make, to_take;
  std::vector<Outcome> outcomes;  // a ring of `ahead`: a worker has nobody to tell that an allocation failed
  const std::function<Result(int64_t)> make;
  const Device device = default_device();  // the loop's, which is a worker's as well
  const pid_t process = ::getpid();        // that of the workers: its forked children have none
  std::vector<std::jthread> threads;       // joined before the rest goes

  Shared(int64_t ahead_, int64_t first, int64_t last_, std::function<Result(int64_t)> make_)
      : ahead(ahead_),
        last(last_),
        to_make(first),
        to_take(first),
        outcomes(static_cast<size_t>(ahead_)),
        make(std::move(make_)) {}
  Outcome& outcome_of(int64_t i) { return outcomes[static_cast<size_t>(i % ahead)]; }

  bool is_here() const { return process == ::getpid(); }
  bool is_worker() const {
    const auto is_this = [](const std::jthread& thread) { return thread.get_id() == std::this_thread::get_id(); };
    return std::any_of(threads.begin(), threads.end(), is_this);
  }

  ~Shared() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
  }

  // Polls a few times, yielding, before it blocks: small batches are made in less time than a thread takes to wake up.
  template <class Ready>
  static void wait_for(std::condition_variable& change, std::unique_lock<std::mutex>& lock, const Ready& ready) {
    constexpr int kPolls = 50;
    for (int i = 0; i < kPolls && !ready(); ++i) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    change.wait(lock, ready);
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      wait_for(room, lock, [&] { return stopping || to_make == last || to_make < to_take + ahead; });
      if (stopping || to_make == last) return;
      const int64_t mine = to_make++;
      lock.unlock();
      Outcome outcome;
      try {
        set_default_device(device);
        outcome.result = make(mine);
      } catch (...) {
        outcome.error = std::current_exception();
      }
      lock.lock();
      outcome.made = true;
      outcome_of(mine) = std::move(outcome);
      news.notify_one();
    }
  }

  Outcome wait() {
    std::unique_lock lock(mutex);
    wait_for(news, lock, [&] { return outcome_of(to_take).made; });
    Outcome outcome = std::exchange(outcome_of(to_take++), {});
    lock.unlock();
    room.notify_one();  // there is room for one more batch
    return outcome;
  }
};

Pipeline::Pipeline(int workers, int64_t ahead, int64_t first, int64_t last, std::function<Result(int64_t)> make)
    : shared_(std::make_unique<Shared>(ahead, first, last, std::move(make))) {
  const int64_t wanted = std::min<int64_t>(workers, last - first);
  shared_->threads.reserve(static_cast<size_t>(std::max<int64_t>(wanted, 0)));
  try {
    for (int64_t i = 0; i < wanted; ++i) shared_->threads.emplace_back([shared = shared_.get()] { shared->work(); });
  } catch (const std::system_error&) {  // a limit of threads: those that have started do the work, or take() does it
  } catch (const std::bad_alloc&) {
  }
}

Pipeline::~Pipeline() {
  // Workers of another process cannot be joined, and may hold the mutex. A worker that has called exit() destroys
  // static objects, and cannot join itself.
  if (!shared_->is_here() || shared_->is_worker()) static_cast<void>(shared_.release());
}

struct Mover::Shared {
  const Device device;
  DeviceRuntime& runtime = reel::runtime(device);
  const std::shared_ptr<DeviceStream> stream = runtime.new_stream(device.index);
  const std::unique_ptr<DeviceEvent> copied = runtime.new_event(false);
};
Mover::Mover(Device device) : shared_(new Shared{device}) {}
Mover::~Mover() = default;

Tensor Mover::move(const Tensor& x) {
  if (!x.defined()) return x;
  const DeviceStreamGuard guard(shared_->runtime, shared_->stream);
  const Tensor there = x.to(shared_->device, {.non_blocking = true});  // nobody else has x
  shared_->copied->record(*shared_->stream);
  return there;
}

void Mover::arrive(const Tensor& x) {
  if (!x.defined()) return;
  shared_->copied->wait(*shared_->runtime.current_stream(shared_->device.index));
  record_current_stream(x);
}

std::optional<Pipeline::Result> Pipeline::take() {
  if (shared_->to_take == shared_->last) return {};
  if (shared_->threads.empty()) return shared_->make(shared_->to_take++);
  REEL_CHECK(shared_->is_here(), "DataLoader: the process has been forked within the loop, and the child has no ",
             shared_->threads.size(), " workers to go on; begin another loop in it");
  Shared::Outcome outcome = shared_->wait();
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.result);
}

}  // namespace reel::data::detail
