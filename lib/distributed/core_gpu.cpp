#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lib/distributed/group.h"

// What a group's Core has for tensors on GPUs.
namespace reel::distributed {
namespace {
constexpr auto kPatience = Milliseconds(500);  // with an op, before somebody is asked whether ranks have left
}

GpuOp::GpuOp(std::shared_ptr<Core> core, Device device, std::string what, uint64_t sequence)
    : core_(std::move(core)),
      device_(device),
      what_(std::move(what)),
      sequence_(sequence),
      ended_(runtime(device).new_event(false)) {}

GpuOp::~GpuOp() {
  if (!queued_ || !after_ || core_->dead_) return;
  try {
    wait();
  } catch (...) {
    // Nobody has asked.
  }
}

void GpuOp::wait() {
  core_->check();
  const std::lock_guard lock(finishing_);
  ended_->wait(*runtime(device_).current_stream(device_.index));
  if (!after_) return;
  const auto after = std::exchange(after_, nullptr);
  after();
}

bool GpuOp::done() { return core_->dead_ || ended_->query(); }

// Group 0 says for all groups: NCCL if each rank has a GPU of its own and can open it.
void Core::choose_backend() {
  Backend& backend = membership_->options.backend;
  if (backend != Backend::kAuto) return;
  backend = membership_->member->add("backend/nccl", 0) == membership_->world_size ? Backend::kNccl : Backend::kGloo;
}

std::shared_ptr<DeviceStream> Core::stream_of(Device device) {
  const std::lock_guard lock(mutex_);
  for (const auto& [where, stream] : streams_)
    if (where == device) return stream;
  streams_.emplace_back(device, runtime(device).new_stream(device.index));
  return streams_.back().second;
}

Nccl& Core::connected(Device device, Nccl::Deadline deadline) {
  const std::lock_guard connecting(connecting_);
  if (nccl_) {
    REEL_CHECK(nccl_->device() == device, "a tensor on ", device, ", but ", name_, " works with ", nccl_->device(),
               " on this rank: NCCL has one GPU for a rank");
    return *nccl_;
  }
  auto made = std::make_unique<Nccl>(rank_, size(), device);
  Nccl& nccl = *made;
  {
    const std::lock_guard lock(mutex_);
    nccl_ = std::move(made);
    if (dead_) nccl_->abort();
  }
  nccl.connect(*store_, deadline);
  return nccl;
}

void Core::launch(const std::shared_ptr<GpuOp>& op, const GpuBody& f) {
  prune();
  check();
  REEL_CHECK(!capturing(), op->what_, ": a graph cannot capture it");
  const auto deadline = Clock::now() + timeout();
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = on_gpu_.empty();
  }
  try {
    if (first) membership_->member->set_activity(op->what_);
    Nccl& nccl = connected(op->device_, deadline);
    DeviceRuntime& device = runtime(op->device_);
    const auto stream = stream_of(op->device_);
    const auto ready = device.new_event(false);
    ready->record(*device.current_stream(op->device_.index));
    ready->wait(*stream);
    f(nccl, *stream, deadline);
    op->ended_->record(*stream);
  } catch (const Nccl::Late&) {
    end(late(op->what_, op->sequence_, timeout()));
  } catch (const Nccl::Aborted&) {
    check();
    end(Error(Error::kAborted, "NCCL was ended in " + op->what_));
  } catch (...) {
    explain(op->what_, op->sequence_);
  }
  op->queued_ = true;
  const std::lock_guard lock(mutex_);
  on_gpu_.push_back({op->what_, op->sequence_, op->ended_, Clock::now(), deadline});
}

// Looks at what is queued; false when the group has ended.
bool Core::watch_gpu(Clock::time_point& asked) {
  std::string what;
  uint64_t sequence = 0;
  try {
    while (true) {
      std::shared_ptr<DeviceEvent> first;
      {
        const std::lock_guard lock(mutex_);
        if (on_gpu_.empty()) break;
        first = on_gpu_.front().ended;
        what = on_gpu_.front().what;
        sequence = on_gpu_.front().sequence;
      }
      if (!first->query()) break;
      const std::lock_guard lock(mutex_);
      on_gpu_.pop_front();
      if (on_gpu_.empty() && running_ == 0) idle();
    }
    const std::string failure = nccl_->failure();
    if (!failure.empty()) throw std::runtime_error(failure);
    std::unique_lock lock(mutex_);
    if (on_gpu_.empty()) return true;
    // What the others are told: where this rank waits, not what it has queued since.
    if (running_ == 0) membership_->member->set_activity(on_gpu_.front().what);
    const auto now = Clock::now();
    const bool is_late = now > on_gpu_.front().deadline;
    const bool waits = now - on_gpu_.front().begin > kPatience && now - asked > kPatience;
    lock.unlock();
    if (is_late) end(late(what, sequence, timeout()));
    if (waits) {  // no connection breaks that NCCL would notice
      asked = now;
      check_left(what, sequence);
    }
    return true;
  } catch (const Error&) {
    return false;
  } catch (...) {
    try {
      explain(what, sequence);
    } catch (...) {
      // It is the group's Error now.
    }
    return false;
  }
}

// Waits for the GPU. If that waits for a rank that does not come, the watchdog ends the group, and so the work. An
// index out of range, which synchronizing would report, is for others to hear of.
void Core::close_gpu() noexcept try {
  std::shared_ptr<DeviceEvent> last;
  {
    const std::lock_guard lock(mutex_);
    if (!on_gpu_.empty()) last = on_gpu_.back().ended;
  }
  while (last && !dead_ && !last->query()) std::this_thread::sleep_for(std::chrono::microseconds(50));
} catch (...) {
  // Whoever uses the GPU next gets to know.
}

}  // namespace reel::distributed
