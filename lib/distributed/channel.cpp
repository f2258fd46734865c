#include "lib/distributed/channel.h"

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "lib/distributed/group.h"
#include "lib/distributed/text.h"

namespace reel::distributed {

struct Channel::Impl {
  std::shared_ptr<Core> core;
  uint32_t number;
  mutable std::mutex mutex;
  Ticket last = 0;
  std::map<Ticket, std::shared_ptr<Op>> ops;  // not waited for yet

  /// `body` is given the op's tag.
  Ticket launch(const char* name, std::function<void(Core&, Tag)> body) {
    core->check();
    Ticket ticket = 0;
    {
      const std::lock_guard lock(mutex);
      ticket = ++last;
    }
    if (!core->engine()) {
      body(*core, 0);
      return ticket;
    }
    const auto op = std::make_shared<Op>(
        core, concat(name, ' ', ticket, " of ", core->name()), ticket,
        [core = core.get(), tag = Core::tag(number, ticket), body = std::move(body)] { body(*core, tag); });
    core->launch(op);
    const std::lock_guard lock(mutex);
    ops.emplace(ticket, op);
    return ticket;
  }
};

Channel::Channel(ProcessGroup& group) : impl_(std::make_unique<Impl>()) {
  impl_->core = group.impl().core;
  impl_->number = impl_->core->next_channel();
}

Channel::~Channel() {
  for (const auto& [_, op] : impl_->ops) {
    try {
      op->wait();
    } catch (...) {
      // The group says it when it is next used.
    }
  }
}

Channel::Ticket Channel::all_reduce(void* data, int64_t count, DType dtype, Reduce op, const char* name) {
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

int64_t Channel::wait(Ticket ticket) {
  std::shared_ptr<Op> op;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->ops.find(ticket);
    if (found == impl_->ops.end()) return 0;
    op = std::move(found->second);
    impl_->ops.erase(found);
  }
  op->wait();
  return op->ended();
}

bool Channel::done(Ticket ticket) const {
  std::shared_ptr<Op> op;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->ops.find(ticket);
    if (found == impl_->ops.end()) return true;
    op = found->second;
  }
  return op->done();
}

void Channel::abort(const std::string& why) noexcept { impl_->core->abort(why); }

}  // namespace reel::distributed
