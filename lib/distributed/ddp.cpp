#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/device/device.h"
#include "lib/distributed/reducer.h"
#include "lib/distributed/states.h"
#include "lib/tensor/profile.h"
#include "reel/autograd.h"

namespace reel::distributed {

// ---- construction ---------------------------------------------------------------------------------------------------

namespace {

ProcessGroup& group_of(const DistributedDataParallelOptions& options) {
  if (options.group) return *options.group;
  return default_group();
}

size_t default_bytes(const ProcessGroup& group, const nn::Module& module) {
  bool on_gpu = false;
  for (const Tensor& tensor : module.parameters()) on_gpu |= tensor.is_cuda();
  return on_gpu && group.backend() == Backend::kNccl ? size_t{25} << 20 : size_t{4} << 20;
}

}  // namespace

DistributedDataParallel::Impl::Impl(nn::Module& module_, DistributedDataParallelOptions options_)
    : module(module_),
      options([&] {
        if (!options_.bucket_bytes) options_.bucket_bytes = default_bytes(group_of(options_), module_);
        return std::move(options_);
      }()),
      group(group_of(options)),
      rank(group.rank()),
      world(group.size()) {
  REEL_CHECK(world <= kMaxWorld, "DistributedDataParallel: ", world, " ranks, more than ", kMaxWorld);
  for (auto& [path, tensor] : module.named_parameters()) {
    if (tensor.requires_grad())
      parameters.emplace_back(path, tensor);
    else
      frozen.emplace_back(path, tensor);
  }
  for (const auto& [path, tensor] : module.named_buffers()) buffers.push_back(tensor);
  for (const auto& [path, tensor] : parameters)
    described.push_back({path, tensor.dtype(), tensor.shape(), tensor.device()});
  if (world > 1) compare_layouts(group, module, options);  // so that all ranks hear of one where nothing is trained
  REEL_CHECK(!parameters.empty(), "DistributedDataParallel: no parameter of the module requires a gradient");
  if (world == 1) return;
  try {
    for (uint32_t i = 0; i < parameters.size(); ++i) try {
        observe(parameters[i].second, this, i);
      } catch (const reel::Error&) {
        throw reel::Error("DistributedDataParallel: another one has parameters of this module already");
      }
    start();
  } catch (...) {
    stop();
    throw;
  }
}

void DistributedDataParallel::Impl::start() {
  // One that is set free later would not be reduced. Frozen ones may be parts of several wrapped modules.
  for (uint32_t i = 0; i < frozen.size(); ++i) {
    try {
      observe(frozen[i].second, this, static_cast<uint32_t>(parameters.size()) + i);
    } catch (const reel::Error&) {
    }
  }
  channel.emplace(group);
  std::vector<Tensor> all;
  for (const auto& [path, tensor] : parameters) all.push_back(tensor);
  for (const auto& [path, tensor] : frozen) all.push_back(tensor);
  all.insert(all.end(), buffers.begin(), buffers.end());
  broadcast_tensors(*channel, all, 0, rank, "DistributedDataParallel: parameters");
  for (const Tensor& buffer : buffers) buffer_versions.push_back(buffer.version());
  reached_.assign(parameters.size(), 0);
  waited_.assign(parameters.size(), 0);
  sparse_.assign(parameters.size(), 0);
  seen_sparse_.assign(parameters.size(), 0);
}

void DistributedDataParallel::Impl::stop() noexcept {
  for (const auto& [path, tensor] : parameters) stop_observing(tensor, this);
  for (const auto& [path, tensor] : frozen) stop_observing(tensor, this);
}

DistributedDataParallel::Impl::~Impl() {
  stop();
  channel.reset();  // it may be at work in the buckets
}

// Buckets of all parameters that do not travel as rows.
void DistributedDataParallel::Impl::make_layout() {
  std::vector<Tensor> tensors;
  std::vector<uint32_t> dense;
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    tensors.push_back(parameters[i].second);
    if (!sparse_[i]) dense.push_back(i);
  }
  buckets_ = make_buckets(tensors, dense, options.first_bucket_bytes, options.bucket_bytes);
  const size_t header = 3 * static_cast<size_t>(world) + parameters.size() + 1;
  own_header_.clear();
  // Over the host's memory, so that nobody waits for a GPU to read it.
  const bool inside = !buckets_.empty() && buckets_[0].dtype == kFloat32 && buckets_[0].device == kCPU && !options.hook;
  if (inside) {
    buckets_[0].header = static_cast<int64_t>((header + 15) / 16 * 16);
    buckets_[0].count += buckets_[0].header;
    for (int64_t& offset : buckets_[0].offsets) offset += buckets_[0].header;
  } else {
    own_header_.assign(header, 0);
  }
  for (Bucket& bucket : buckets_) {
    bucket.flat = zeros({bucket.count}, {.dtype = bucket.dtype, .device = bucket.device});
    bucket.adopted = !options.hook && can_adopt(bucket, world);
  }
  header_ = inside ? static_cast<float*>(memory_of(buckets_[0].flat)) : own_header_.data();
  places_.assign(parameters.size(), {});
  for (uint32_t b = 0; b < buckets_.size(); ++b)
    for (uint32_t i = 0; i < buckets_[b].slots.size(); ++i) places_[buckets_[b].slots[i]] = {b, i};
}

// f(), with the step in the message of what ends it.
template <class F>
auto DistributedDataParallel::Impl::say_step(F f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.kind != Error::kPeerLost) throw;
    const bool left = std::string_view(error.what()).find(" left") != std::string_view::npos;
    throw Error(error.kind,
                detail::concat(error.what(), ", while this rank was in step ", step_, " of DistributedDataParallel",
                               left ? "; ranks with different numbers of examples need join()" : ""),
                error.ranks, error.sequence);
  }
}

// ---- a round begins -------------------------------------------------------------------------------------------------

// One round at a time.
void DistributedDataParallel::Impl::enter() {
  {
    const std::lock_guard lock(error_mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  REEL_CHECK(
      !busy_.exchange(true),
      "DistributedDataParallel: two reductions at once; let threads call backward() within no_sync(), and one of "
      "them reduce() when all have ended");
  thread_ = std::this_thread::get_id();
}

void DistributedDataParallel::Impl::leave() {
  thread_ = std::thread::id();
  busy_ = false;
}

void DistributedDataParallel::Impl::check_frozen() const {
  for (const auto& [path, tensor] : frozen)
    REEL_CHECK(!tensor.requires_grad(), "DistributedDataParallel: parameter ", path, ", ", tensor.dtype(), " ",
               tensor.shape(), ", that was frozen requires a gradient now; wrap the module anew");
}

void DistributedDataParallel::Impl::check_unchanged() {
  check_frozen();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& tensor = parameters[i].second;
    const Description& was = described[i];
    REEL_CHECK(tensor.dtype() == was.dtype && tensor.shape() == was.shape && tensor.device() == was.device,
               "DistributedDataParallel: parameter ", was.path, " was ", was.dtype, " ", was.shape, " on ", was.device,
               ", and is ", tensor.dtype(), " ", tensor.shape(), " on ", tensor.device(),
               "; convert and move a module before it is wrapped");
  }
  const auto now = module.named_parameters();
  size_t trained = 0, others = 0;  // in the order of the module
  for (const auto& [path, tensor] : now) {
    if (trained < parameters.size() && parameters[trained].second.is_same(tensor))
      ++trained;
    else if (others < frozen.size() && frozen[others].second.is_same(tensor))
      ++others;
    else
      detail::fail("DistributedDataParallel: parameter ", path,
                   " was added or replaced after the module had been wrapped");
  }
  REEL_CHECK(trained == parameters.size() && others == frozen.size(), "DistributedDataParallel: the module has ",
             now.size(), " parameters, and had ", parameters.size() + frozen.size(), " when it was wrapped");
  // A buffer may be replaced, as a mask is by another one.
  const auto buffers_now = module.named_buffers();
  const bool as_many = buffers_now.size() == buffers.size();
  for (size_t i = 0; i < buffers_now.size() && options.broadcast_buffers; ++i) {
    const auto& [path, tensor] = buffers_now[i];
    REEL_CHECK(as_many && tensor.dtype() == buffers[i].dtype() && tensor.shape() == buffers[i].shape() &&
                   tensor.device() == buffers[i].device(),
               "DistributedDataParallel: buffer ", path, ", ", tensor.dtype(), " ", tensor.shape(), " on ",
               tensor.device(), ", was added or replaced by one of another kind after the module had been wrapped; ",
               "set broadcast_buffers = false for buffers of a rank's own");
  }
  for (size_t i = 0; i < buffers.size() && options.broadcast_buffers && as_many; ++i)
    if (!buffers_now[i].second.is_same(buffers[i]))
      buffers[i] = buffers_now[i].second, buffer_versions[i] = buffers[i].version() - 1;
}

// With static_graph the first round says which parameters the others have to reach.
void DistributedDataParallel::Impl::check_static(std::span<const uint32_t> reached) {
  if (!options.static_graph) return;
  std::vector<uint8_t> now(parameters.size(), 0);
  for (const uint32_t slot : reached) now[slot] = 1;
  if (static_reached_.empty()) static_reached_ = now;
  for (size_t i = 0; i < now.size(); ++i)
    REEL_CHECK(now[i] == static_reached_[i], "DistributedDataParallel: with static_graph, backward() has ",
               now[i] ? "" : "not ", "reached parameter ", parameters[i].first, ", unlike the first one");
}

bool DistributedDataParallel::Impl::begin(std::span<const uint32_t> reached) {
  // Not within no_sync() either: reduce() would not know which gradients a replay has changed.
  REEL_CHECK(!capturing(), "DistributedDataParallel: a graph cannot capture the backward() of a wrapped module");
  for (const uint32_t slot : reached)
    if (slot >= parameters.size())
      check_frozen(), detail::fail("DistributedDataParallel: a frozen parameter is trained");
  if (busy_ && thread_.load() == std::this_thread::get_id()) {  // a walk within the walk, of a hook
    for (const uint32_t slot : reached)
      REEL_CHECK(!discovered_ || waited_[slot] || sparse_[slot],
                 "DistributedDataParallel: a backward() within backward() adds to parameter ", parameters[slot].first,
                 ", whose gradient has been sent; call it before or after the other one, within no_sync()");
    for (const uint32_t slot : reached) reached_[slot] = 1;
    return false;
  }
  if (unsynced > 0) {
    REEL_CHECK(!busy_, "DistributedDataParallel: a backward() of another thread while gradients are reduced");
    return false;
  }
  enter();
  try {
    ++step_;
    REEL_CHECK(!grad_enabled(),
               "DistributedDataParallel: backward() with create_graph, whose gradients cannot be "
               "reduced; use grad(), or call it within no_sync() and reduce() what is to be reduced");
    check_unchanged();
    check_static(reached);
  } catch (...) {
    leave();
    throw;
  }
  try {
    std::fill(reached_.begin(), reached_.end(), uint8_t{0});
    for (const uint32_t slot : reached) reached_[slot] = 1;
    if (discovered_) {
      waited_ = reached_;
      say_step([&] { send_all(true); });
    }
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
  return true;
}

void DistributedDataParallel::Impl::arrived(uint32_t slot, bool) {
  if (!discovered_) return;
  waited_[slot] = 0;
  if (sparse_[slot]) return;
  fill(slot);
  say_step([&] { launch_full(); });
}

void DistributedDataParallel::Impl::end() {
  say_step([&] { finish(true); });
  leave();
}

void DistributedDataParallel::Impl::failed() noexcept { fail(std::current_exception()); }

// What this rank has begun, the others cannot end: the job is over, and its error is this one.
void DistributedDataParallel::Impl::fail(const std::exception_ptr& error) noexcept {
  try {
    std::exception_ptr ended = error;
    std::string why;
    try {
      std::rethrow_exception(error);
    } catch (const Error&) {  // the group's, or one that all ranks throw
    } catch (const std::exception& e) {
      why = detail::concat("an exception ended step ", step_, " of DistributedDataParallel: ", e.what());
    } catch (...) {
      why = detail::concat("an exception ended step ", step_, " of DistributedDataParallel");
    }
    if (!why.empty()) {
      channel->abort(why);
      const int self = group.ranks()[static_cast<size_t>(rank)];
      ended = std::make_exception_ptr(
          Error(Error::kAborted, detail::concat("rank ", self, " ended the job: ", why), {self}));
    }
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = ended;
  } catch (...) {
    channel->abort("DistributedDataParallel: no memory");
  }
  leave();
}

void DistributedDataParallel::Impl::reduce() {
  if (world == 1) return;
  enter();
  try {
    ++step_;
    check_unchanged();
  } catch (...) {
    leave();
    throw;
  }
  try {
    const NoGrad guard;
    std::fill(reached_.begin(), reached_.end(), uint8_t{0});
    say_step([&] {
      if (discovered_) send_all(true);
      finish(true);
    });
    leave();
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
}

// Takes part in the others' rounds, with nothing, until nobody is active.
void DistributedDataParallel::Impl::join(optim::Optimizer* optimizer) {
  if (world == 1) return;
  enter();
  try {
    const NoGrad guard;
    check_unchanged();
    while (true) {
      std::fill(reached_.begin(), reached_.end(), uint8_t{0});
      const bool over = say_step([&] {
        if (discovered_) send_all(false);
        return finish(false).active.empty();
      });
      if (over) break;
    }
    if (!last_active_.empty()) {
      std::vector<Tensor> all;
      for (const auto& [path, tensor] : parameters) all.push_back(tensor);
      if (options.broadcast_buffers) all.insert(all.end(), buffers.begin(), buffers.end());
      const int root = last_active_.front();
      broadcast_tensors(*channel, all, root, rank, "DistributedDataParallel: join");
      std::string state = optimizer && rank == root ? pack_state(optimizer->state_dict()) : std::string();
      broadcast_text(*channel, state, root, rank, "DistributedDataParallel: optimizer");
      if (rank != root && optimizer) optimizer->load_state_dict(unpack_state(state));
      for (size_t i = 0; i < buffers.size(); ++i) buffer_versions[i] = buffers[i].version();
    }
    leave();
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
}

// An exception is on its way out of a loop that others go on with.
void DistributedDataParallel::Impl::leave_join() noexcept {
  if (world == 1) return;
  try {
    throw reel::Error("it has left the scope of join()");
  } catch (const reel::Error&) {
    fail(std::current_exception());
  }
}

// ---- sending --------------------------------------------------------------------------------------------------------

// The first round: which parameters have rows only, on all ranks that have touched them.
void DistributedDataParallel::Impl::discover(bool active) {
  enum Kind : char { kUnknown, kDense, kRows };
  const size_t n = parameters.size();
  std::vector<char> kinds(n * static_cast<size_t>(world), kUnknown);
  char* const own = kinds.data() + n * static_cast<size_t>(rank);
  for (size_t i = 0; i < n && active; ++i) {
    const Tensor& tensor = parameters[i].second;
    if (tensor.sparse_grad())
      own[i] = kRows;
    else if (tensor.grad().defined())
      own[i] = kDense;
  }
  const std::vector<size_t> bytes(static_cast<size_t>(world), n);
  channel->wait(channel->all_gather(own, kinds.data(), bytes, "DistributedDataParallel: kinds of gradients"));
  for (size_t i = 0; i < n; ++i) {
    bool rows = false, dense = false;
    for (size_t r = 0; r < static_cast<size_t>(world); ++r) {
      rows |= kinds[r * n + i] == kRows;
      dense |= kinds[r * n + i] == kDense;
    }
    sparse_[i] = rows && !dense;
  }
  discovered_ = true;
  make_layout();
}

// Sends the header and all that no walk will bring.
void DistributedDataParallel::Impl::send_all(bool active) {
  launched_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<uint32_t>(bucket.slots.size());
    if (!bucket.flat.defined()) bucket.flat = empty({bucket.count}, {.dtype = bucket.dtype, .device = bucket.device});
  }
  if (own_header_.empty()) header_ = static_cast<float*>(memory_of(buckets_[0].flat));
  write_header(active);
  for (Bucket& bucket : buckets_) {
    if (!active) {
      put_gradient({}, bucket.flat, bucket.header, bucket.count - bucket.header);
      bucket.missing = 0, bucket.ready_at = profile::now();
    } else {
      for (const uint32_t slot : bucket.slots)
        if (!waited_[slot]) fill(slot);
    }
    launch_full();
  }
}

void DistributedDataParallel::Impl::write_header(bool active) {
  float *const steps = header_, *const waits = steps + world, *const weights = waits + world,
               *const used = weights + world;
  std::fill(steps, used + parameters.size() + 1, 0.0f);
  if (active) {
    steps[rank] = static_cast<float>(step_ % kSteps + 1);
    waits[rank] = header_wait_;
    if (options.check_weights) weights[rank] = sample_weights();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool touched = reached_[i] || is_touched(parameters[i].second);
      used[i] = static_cast<float>(touched + (seen_sparse_[i] ? kSeenSparse : 0));
    }
    bool changed = false;
    for (size_t i = 0; i < buffers.size() && options.broadcast_buffers; ++i)
      changed |= buffers[i].version() != buffer_versions[i];
    used[parameters.size()] = changed;
  }
  if (own_header_.empty()) return;
  header_launched_ = profile::now();
  header_ticket_ = channel->all_reduce(header_, static_cast<int64_t>(own_header_.size()), kFloat32, ReduceOp::kSum,
                                       "DistributedDataParallel: header");
}

// Copies the accumulated gradient into its bucket.
void DistributedDataParallel::Impl::fill(uint32_t slot) {
  const auto [b, i] = places_[slot];
  Bucket& bucket = buckets_[b];
  const Tensor& parameter = parameters[slot].second;
  if (parameter.sparse_grad()) seen_sparse_[slot] = 1;
  if (bucket.adopted)
    put_divided(parameter.grad(), bucket.flat, bucket.offsets[i], parameter.numel(), world);
  else
    put_gradient(parameter.grad(), bucket.flat, bucket.offsets[i], parameter.numel());
  if (--bucket.missing == 0) bucket.ready_at = profile::now();
}

// Strictly in order, which is that of all ranks.
void DistributedDataParallel::Impl::launch_full() {
  for (; launched_ < buckets_.size() && buckets_[launched_].missing == 0; ++launched_) {
    Bucket& bucket = buckets_[launched_];
    bucket.launched_at = profile::now();
    if (launched_ == 0 && own_header_.empty()) header_launched_ = bucket.launched_at;
    if (options.hook)
      bucket.finish = options.hook(group, {static_cast<int>(launched_), bucket.flat});
    else
      bucket.ticket = channel->all_reduce(bucket.flat, ReduceOp::kSum, bucket.name.c_str());
  }
}

// ---- receiving ------------------------------------------------------------------------------------------------------

Verdict DistributedDataParallel::Impl::finish(bool active) {
  if (!discovered_) {
    discover(active);
    send_all(active);
  }
  REEL_CHECK(launched_ == buckets_.size(), "DistributedDataParallel: ", launched_, " of ", buckets_.size(),
             " buckets are full");
  count_rows(active);
  const Verdict verdict = read_header();
  receive_rows(verdict, active);
  receive_buckets(verdict, active);
  if (verdict.buffers_changed) {
    broadcast_tensors(*channel, buffers, verdict.active.front(), rank, "DistributedDataParallel: buffers");
    for (size_t i = 0; i < buffers.size(); ++i) buffer_versions[i] = buffers[i].version();
  }
  bool changed = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (verdict.used[i] && active) take_touched(parameters[i].second);
    if (!verdict.sparse[i]) continue;
    sparse_[i] = 1, seen_sparse_[i] = 0;
    changed = true;
  }
  if (changed) make_layout();
  return verdict;
}

Verdict DistributedDataParallel::Impl::read_header() {
  const int64_t ended = channel->wait(own_header_.empty() ? buckets_[0].ticket : header_ticket_);
  if (own_header_.empty()) buckets_[0].ended_at = ended;
  const float *const steps = header_, *const waits = steps + world, *const weights = waits + world,
                     *const used = weights + world;
  Verdict verdict;
  float first = 0;
  bool differ = false;
  for (int r = 0; r < world; ++r) {
    if (steps[r] == 0) continue;
    if (verdict.active.empty()) first = steps[r];
    differ |= steps[r] != first;
    verdict.active.push_back(r);
  }
  if (differ) {
    std::string message = "DistributedDataParallel: ranks are at different steps:";
    for (const int r : verdict.active)
      message += detail::concat(r == verdict.active.front() ? " " : ", ", "rank ",
                                group.ranks()[static_cast<size_t>(r)], " at ", static_cast<int64_t>(steps[r]) - 1);
    throw Error(Error::kMismatch, message + "; an exception in backward() that was caught makes a rank skip one");
  }
  for (const int r : verdict.active)
    if (weights[r] != weights[verdict.active.front()]) explain_weights(verdict.active);
  if (!verdict.active.empty()) last_active_ = verdict.active;
  verdict.divisor = options.divide_by_active ? static_cast<double>(std::max<size_t>(verdict.active.size(), 1)) : world;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int sum = static_cast<int>(used[i]);
    verdict.used.push_back(sum % kSeenSparse);
    verdict.sparse.push_back(sum / kSeenSparse > 0 && !sparse_[i]);
    if (options.static_graph && verdict.used[i] && verdict.used[i] != static_cast<int>(verdict.active.size()))
      throw Error(Error::kMismatch,
                  detail::concat("DistributedDataParallel: with static_graph, parameter ", parameters[i].first,
                                 " was used by ", verdict.used[i], " of ", verdict.active.size(), " ranks"));
  }
  if (profile::running() && header_end_ && !verdict.active.empty()) {
    const auto last = std::min_element(verdict.active.begin(), verdict.active.end(),
                                       [&](int a, int b) { return waits[a] < waits[b]; });
    profile::add_message(detail::concat("rank ", group.ranks()[static_cast<size_t>(*last)], " came last").c_str(),
                         header_begin_, header_end_, 0);
  }
  header_begin_ = header_launched_, header_end_ = ended;
  header_wait_ = static_cast<float>(ended - header_launched_) * 1e-3f;
  verdict.buffers_changed = used[parameters.size()] > 0;
  if (!verdict.active.empty() && std::find(verdict.active.begin(), verdict.active.end(), rank) == verdict.active.end())
    step_ = static_cast<int64_t>(first) - 1;  // goes on from there when all have joined
  return verdict;
}

void DistributedDataParallel::Impl::receive_buckets(const Verdict& verdict, bool active) {
  for (Bucket& bucket : buckets_) {
    if (options.hook) {
      std::exchange(bucket.finish, {})();
      bucket.ended_at = profile::now();
    } else if (const int64_t ended = channel->wait(bucket.ticket)) {
      bucket.ended_at = ended;
    }
    if (!active) continue;
    if (profile::running()) {
      profile::add_message(bucket.name.c_str(), bucket.launched_at, bucket.ended_at, bucket.bytes());
      profile::add_message((bucket.name + ", ready and waiting").c_str(), bucket.ready_at, bucket.launched_at, 0);
    }
    // What was divided on its way into the bucket may have been divided by too many.
    const double divisor = bucket.adopted ? verdict.divisor / world : verdict.divisor;
    bool left = false;
    for (size_t i = 0; i < bucket.slots.size(); ++i) {
      if (!verdict.used[bucket.slots[i]]) continue;
      const Tensor& parameter = parameters[bucket.slots[i]].second;
      if (bucket.adopted && divisor == 1 && adopt_gradient(parameter, bucket.flat, bucket.offsets[i]))
        left = true;
      else
        set_gradient(parameter, bucket.flat, bucket.offsets[i], divisor);
    }
    if (left) bucket.flat = {};
  }
}

// ---- what users call ------------------------------------------------------------------------------------------------

DistributedDataParallel::DistributedDataParallel(nn::Module& module, DistributedDataParallelOptions options)
    : impl_(std::make_unique<Impl>(module, std::move(options))) {}
DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() { return NoSync(*this); }
DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : ddp_(ddp) { ++ddp_.impl_->unsynced; }
DistributedDataParallel::NoSync::~NoSync() { --ddp_.impl_->unsynced; }

DistributedDataParallel::Join DistributedDataParallel::join() { return Join(*this, nullptr); }
DistributedDataParallel::Join DistributedDataParallel::join(optim::Optimizer& optimizer) {
  return Join(*this, &optimizer);
}
DistributedDataParallel::Join::Join(DistributedDataParallel& ddp, optim::Optimizer* optimizer)
    : ddp_(ddp), optimizer_(optimizer), exceptions_(std::uncaught_exceptions()) {}
DistributedDataParallel::Join::~Join() noexcept(false) {
  if (std::uncaught_exceptions() == exceptions_)
    ddp_.impl_->join(optimizer_);
  else
    ddp_.impl_->leave_join();
}

void DistributedDataParallel::reduce() { impl_->reduce(); }

}  // namespace reel::distributed
