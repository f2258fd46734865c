#include "lib/distributed/channel.h"

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "lib/distributed/group.h"
#include "lib/distributed/stage.h"
#include "lib/tensor/profile.h"

namespace reel::distributed {

struct Channel::Impl {
  std::shared_ptr<Core> core;
  uint32_t number;
  mutable std::mutex mutex;
  Ticket last = 0;
  struct Launched {
    std::shared_ptr<WorkState> state;
    Op* op;  // the same, unless it is on a GPU
  };
  std::map<Ticket, Launched> ops;  // not waited for yet

  Ticket next() {
    core->check();
    const std::lock_guard lock(mutex);
    return ++last;
  }
  std::string what(const char* name, Ticket ticket) const {
    return detail::concat(name, ' ', ticket, " of ", core->name());
  }
  void add(Ticket ticket, Launched launched) {
    const std::lock_guard lock(mutex);
    ops.emplace(ticket, std::move(launched));
  }

  /// `body` is given the op's tag; `ready` waits for what it reads; `after` runs when it has been waited for.
  Ticket launch(const char* name, std::function<void(Core&, Tag)> body, std::function<void()> ready = {},
                std::function<void()> after = {}) {
    const Ticket ticket = next();
    if (!core->engine()) {
      body(*core, 0);
      return ticket;
    }
    const auto op = std::make_shared<Op>(
        core, what(name, ticket), ticket,
        [core = core.get(), tag = Core::tag(number, ticket), body = std::move(body), ready = std::move(ready)] {
          if (ready) ready();
          body(*core, tag);
        });
    op->on_finish(std::move(after));
    core->launch(op);
    add(ticket, {op, op.get()});
    return ticket;
  }

  /// By NCCL.
  Ticket queue(const char* name, const Tensor& tensor, const Core::GpuBody& body) {
    const Ticket ticket = next();
    const auto op = std::make_shared<GpuOp>(core, tensor.device(), what(name, ticket), ticket);
    core->launch(op, body);
    record_stream(tensor, *core->stream_of(tensor.device()));
    add(ticket, {op, nullptr});
    return ticket;
  }
};

Channel::Channel(ProcessGroup& group) : impl_(std::make_unique<Impl>()) {
  impl_->core = ProcessGroupImpl::of(group).core;
  impl_->number = impl_->core->next_channel();
}

Channel::~Channel() {
  for (const auto& [_, launched] : impl_->ops) {
    try {
      launched.state->wait();
    } catch (...) {
      // The group says it when it is next used.
    }
  }
}

Channel::Ticket Channel::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, const char* name) {
  return impl_->launch(name, [=](Core& core, Tag tag) {
    if (count && core.engine()) core.all_reduce(tag, data, count, dtype, op);
  });
}

Channel::Ticket Channel::broadcast(void* data, size_t bytes, int root, const char* name) {
  return impl_->launch(name, [=](Core& core, Tag tag) {
    if (bytes && core.engine()) core.engine()->broadcast(tag, data, bytes, root);
  });
}

Channel::Ticket Channel::all_gather(const void* in, void* out, std::span<const size_t> bytes, const char* name) {
  std::vector<size_t> sizes(bytes.begin(), bytes.end());
  return impl_->launch(name, [in, out, sizes = std::move(sizes)](Core& core, Tag tag) {
    if (std::accumulate(sizes.begin(), sizes.end(), size_t{0}) == 0) return;
    if (core.engine())
      core.engine()->all_gather(tag, in, out, sizes);
    else if (in != out)
      std::memcpy(out, in, sizes[0]);
  });
}

Channel::Ticket Channel::all_reduce(const Tensor& tensor, ReduceOp op, const char* name) {
  const int64_t count = tensor.numel();
  const DType dtype = tensor.dtype();
  if (!tensor.is_cuda()) return all_reduce(address(tensor), count, dtype, op, name);
  if (impl_->core->uses_nccl(tensor.device()))
    return impl_->queue(name, tensor, [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
      if (count) nccl.all_reduce(address(tensor), count, dtype, op, stream, deadline);
    });
  Stage stage(*impl_->core);
  const Written written(tensor);
  written.fill(stage);
  return impl_->launch(
      name,
      [=, data = address(written.dense())](Core& core, Tag tag) {
        if (count && core.engine()) core.all_reduce(tag, data, count, dtype, op);
      },
      stage.wait_for(), [written] { written.finish(); });
}

Channel::Ticket Channel::broadcast(const Tensor& tensor, int root, const char* name) {
  const size_t bytes = bytes_of(tensor);
  if (!tensor.is_cuda()) return broadcast(address(tensor), bytes, root, name);
  if (impl_->core->uses_nccl(tensor.device()))
    return impl_->queue(name, tensor, [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
      if (bytes) nccl.broadcast(address(tensor), bytes, root, stream, deadline);
    });
  Stage stage(*impl_->core);
  const Written written(tensor);
  if (impl_->core->rank() == root) written.fill(stage);
  return impl_->launch(
      name,
      [=, data = address(written.dense())](Core& core, Tag tag) {
        if (bytes && core.engine()) core.engine()->broadcast(tag, data, bytes, root);
      },
      stage.wait_for(), [written] { written.finish(); });
}

int64_t Channel::wait(Ticket ticket) {
  Impl::Launched launched;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->ops.find(ticket);
    if (found == impl_->ops.end()) return 0;
    launched = std::move(found->second);
    impl_->ops.erase(found);
  }
  launched.state->wait();
  return launched.op ? launched.op->ended() : profile::now();
}

bool Channel::done(Ticket ticket) const {
  std::shared_ptr<WorkState> state;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->ops.find(ticket);
    if (found == impl_->ops.end()) return true;
    state = found->second.state;
  }
  return state->done();
}

void Channel::abort(const std::string& why) noexcept { impl_->core->abort(why); }

}  // namespace reel::distributed
