#include "reel/distributed/group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "lib/distributed/group.h"
#include "lib/distributed/stage.h"
#include "reel/autograd.h"

namespace reel::distributed {
namespace {

constexpr uint32_t kCalls = 0, kChecks = 1;  // channels
constexpr uint64_t kMaxObject = uint64_t{1} << 40;

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kAvg: return "avg";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kProd: return "prod";
  }
  return "?";
}

std::string text_of(const Tensor& tensor) {
  return detail::concat(tensor.dtype(), ' ', tensor.shape(), tensor.is_cuda() ? " on cuda" : "");
}

std::string text_of(std::span<const Tensor> tensors) {
  std::string text = "{";
  for (const Tensor& tensor : tensors) text += (text.size() > 1 ? ", " : "") + text_of(tensor);
  return text + "}";
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// ---- comparing calls ------------------------------------------------------------------------------------------------

/// Throws an Error of kMismatch on all ranks if they do not make the same call.
void compare(Core& core, uint64_t sequence, const std::string& call) {
  const auto ranks = static_cast<size_t>(core.size());
  const std::vector<size_t> sizes(ranks, sizeof(uint64_t));
  const uint64_t mine = hash_of(call);
  std::vector<uint64_t> hashes(ranks);
  core.engine()->all_gather(Core::tag(kChecks, sequence), &mine, hashes.data(), sizes);
  if (std::all_of(hashes.begin(), hashes.end(), [&](uint64_t hash) { return hash == mine; })) return;

  constexpr size_t kText = 512;
  const std::vector<size_t> texts(ranks, kText);
  std::string text = call;
  if (text.size() > kText) text.replace(kText - 3, std::string::npos, "...");
  text.resize(kText);
  std::string all(ranks * kText, 0);
  core.engine()->all_gather(Core::tag(kChecks, sequence, 1), text.data(), all.data(), texts);
  std::map<std::string, std::vector<int>> callers;
  for (size_t r = 0; r < ranks; ++r) {
    const std::string_view padded(all.data() + r * kText, kText);
    // The hash tells apart what is the same within the first bytes.
    std::string key(padded.substr(0, padded.find('\0')));
    if (key.size() == kText) key += detail::concat(" (", hashes[r], ')');
    callers[key].push_back(core.ranks()[r]);
  }
  size_t most = 0;
  for (const auto& [_, group] : callers) most = std::max(most, group.size());
  const auto is_common = [&](const auto& entry) { return entry.second.size() == most; };
  const bool tie = std::count_if(callers.begin(), callers.end(), is_common) > 1;
  std::string message = detail::concat("the ranks of ", core.name(), " disagree in call ", sequence);
  std::vector<int> odd;
  std::map<int, std::string> lines;
  for (const auto& [what, group] : callers) {
    std::string line = group.size() == 1 ? "rank " : "ranks ";
    for (const int rank : group) line += detail::concat(rank == group[0] ? "" : ", ", rank);
    lines[group[0]] = line + ": " + what;
    if (tie || group.size() < most) odd.insert(odd.end(), group.begin(), group.end());
  }
  for (const auto& [_, line] : lines) message += "\n  " + line;
  std::sort(odd.begin(), odd.end());
  throw Error(Error::kMismatch, message, odd, sequence);
}

/// What all_to_all brings, which differs by rank.
struct ExchangedParts {
  std::vector<uint64_t> sent, expected;
  std::string texts;

  ExchangedParts() = default;
  ExchangedParts(std::span<const Tensor> outs, std::span<const Tensor> ins) : texts(text_of(outs)) {
    for (const Tensor& in : ins) sent.push_back(hash_of(text_of(in)));
    for (const Tensor& out : outs) expected.push_back(hash_of(text_of(out)));
  }
  /// Throws an Error of kMismatch if a rank sends what another has no room for.
  void compare(Core& core, uint64_t sequence) const {
    std::vector<uint64_t> coming(sent.size());
    const std::vector<size_t> sizes(sent.size(), sizeof(uint64_t));
    core.engine()->all_to_all(Core::tag(kChecks, sequence, 2), sent.data(), sizes, coming.data(), sizes);
    for (size_t r = 0; r < coming.size(); ++r)
      if (coming[r] != expected[r])
        throw Error(Error::kMismatch,
                    detail::concat("all_to_all, call ", sequence, " of ", core.name(), ": rank ", core.ranks()[r],
                                   " sends rank ", core.ranks()[static_cast<size_t>(core.rank())],
                                   " something else than it has room for: number ", r, " of ", texts),
                    {core.ranks()[r]}, sequence);
    // Who has found an error has ended the job before the others get here.
    core.engine()->barrier(Core::tag(kChecks, sequence, 3));
  }
};

// ---- launching ------------------------------------------------------------------------------------------------------

/// Under the number of its op.
using Body = std::function<void(Core& core, uint64_t sequence)>;

/// `call` makes the text of the call; `ready` waits for what the body reads; `after` runs in a thread of the caller's.
template <class Call>
Work start(const std::shared_ptr<Core>& core, const char* name, const Call& call, Body body,
           std::function<void()> after = {}, Run run = Run::kAsync, std::function<void()> ready = {}) {
  core->check();
  const uint64_t sequence = core->next_sequence();
  if (core->size() == 1) {
    if (ready) ready();
    body(*core, sequence);
    if (after) after();
    return {};
  }
  std::string text;
  if (core->checks()) text = call();
  const auto op =
      std::make_shared<Op>(core, detail::concat(name, ' ', sequence, " of ", core->name()), sequence,
                           [core = core.get(), sequence, text, body = std::move(body), ready = std::move(ready)] {
                             if (!text.empty()) compare(*core, sequence, text);
                             if (ready) ready();
                             body(*core, sequence);
                           });
  op->on_finish(std::move(after));
  if (run == Run::kNow)
    core->run_now(op);
  else
    core->launch(op);
  return WorkState::work(op);
}

/// The same by NCCL. Calls are compared at once, so it returns when all ranks have made it.
template <class Call>
Work queue(const std::shared_ptr<Core>& core, const char* name, Device device, const Call& call,
           std::span<const Tensor> tensors, const Core::GpuBody& body, std::function<void()> after,
           const Body& more_checks = {}) {
  core->check();
  for (const Tensor& tensor : tensors)
    REEL_CHECK(tensor.device() == device, name, ": tensors on ", device, " and ", tensor.device());
  const uint64_t sequence = core->next_sequence();
  const std::string what = detail::concat(name, ' ', sequence, " of ", core->name());
  if (core->checks())
    core->run_now(std::make_shared<Op>(core, what, sequence, [&, text = call()] {
      compare(*core, sequence, text);
      if (more_checks) more_checks(*core, sequence);
    }));
  const auto op = std::make_shared<GpuOp>(core, device, what, sequence);
  op->on_finish(std::move(after));
  core->launch(op, body);
  const auto stream = core->stream_of(device);
  for (const Tensor& tensor : tensors) record_stream(tensor, *stream);
  return WorkState::work(op);
}

/// outs[r] = ins[this rank] of rank r, where they are defined.
template <class Call>
Work exchange(const std::shared_ptr<Core>& core, const char* name, std::span<const Tensor> outs,
              std::span<const Tensor> ins, const Call& call, const Body& more_checks = {}) {
  const auto ranks = static_cast<size_t>(core->size());
  std::vector<Tensor> all_outs(outs.begin(), outs.end()), all_ins(ins.begin(), ins.end()), held;
  all_outs.resize(ranks), all_ins.resize(ranks);
  const Parts to(all_outs);
  std::vector<const void*> from(ranks);
  std::vector<size_t> sizes(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    if (!all_ins[r].defined()) continue;
    Tensor dense = packed(all_ins[r]);
    for (const Tensor& out : to.dense())
      if (share_memory(dense, out)) dense = dense.clone();
    from[r] = address(dense);
    sizes[r] = bytes_of(dense);
    held.push_back(dense);
  }
  std::vector<Tensor> tensors = to.dense();
  tensors.insert(tensors.end(), held.begin(), held.end());
  return queue(
      core, name, tensors.at(0).device(), call, tensors,
      [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
        nccl.all_to_all(from, sizes, to.addresses(), to.sizes(), stream, deadline);
      },
      [to, held] { to.finish(); }, more_checks);
}

void check_rank(const char* op, const Core& core, int rank) {
  REEL_CHECK(rank >= 0 && rank < core.size(), op, ": rank ", rank, " of a group of ", core.size());
}

void check_reduce(const char* name, DType dtype, ReduceOp op) {
  REEL_CHECK(op != ReduceOp::kAvg || is_floating_point(dtype), name, ": an average of ", dtype,
             ", expected a floating-point type");
  REEL_CHECK(dtype != kBool || op == ReduceOp::kMin || op == ReduceOp::kMax, name, ": ", name_of(op),
             " of bool, which has kMin (and) and kMax (or) only");
}

void check_count(const char* op, const char* what, size_t count, const Core& core) {
  REEL_CHECK(count == static_cast<size_t>(core.size()), op, ": ", count, ' ', what, " in a group of ", core.size());
}

void check_same(const char* op, const Tensor& a, const Tensor& b) {
  REEL_CHECK(a.dtype() == b.dtype() && a.shape() == b.shape(), op, ": expected tensors of one dtype and shape, got ",
             text_of(a), " and ", text_of(b));
}

/// [size, …] of […]
void check_stacked(const char* op, const Tensor& all, const Tensor& one, const Core& core) {
  Shape shape = one.shape();
  REEL_CHECK(shape.size() < kMaxDims, op, ": ", shape, " has as many dimensions as a tensor can have");
  shape.insert(0, core.size());
  REEL_CHECK(all.dtype() == one.dtype() && all.shape() == shape, op, ": expected ", one.dtype(), ' ', shape, ", got ",
             text_of(all));
}

}  // namespace

// ---- Work -----------------------------------------------------------------------------------------------------------

void Work::wait() const {
  if (state_) state_->wait();
}
bool Work::done() const { return !state_ || state_->done(); }

// ---- ProcessGroup ---------------------------------------------------------------------------------------------------

ProcessGroup::ProcessGroup(std::unique_ptr<ProcessGroupImpl> impl) : impl_(std::move(impl)) {}
ProcessGroup::~ProcessGroup() { impl_->core->close(); }

int ProcessGroup::rank() const { return impl_->core->rank(); }
int ProcessGroup::size() const { return impl_->core->size(); }
const std::vector<int>& ProcessGroup::ranks() const { return impl_->core->ranks(); }
Backend ProcessGroup::backend() const { return impl_->core->backend(); }
Milliseconds ProcessGroup::timeout() const { return impl_->core->timeout(); }
void ProcessGroup::abort(std::string_view why) noexcept { impl_->core->abort(why); }

Work ProcessGroupImpl::all_reduce(const Tensor& tensor, ReduceOp op, Run run) {
  check_written("all_reduce", tensor);
  check_reduce("all_reduce", tensor.dtype(), op);
  if (core->size() == 1) return core->check(), Work();
  const auto call = [&] { return detail::concat("all_reduce(", text_of(tensor), ", ", name_of(op), ')'); };
  Stage stage(*core);
  if (core->uses_nccl(tensor.device())) {
    const Written written(tensor, Written::kDevice);
    written.fill(stage);
    const Tensor dense = written.dense();
    return queue(
        core, "all_reduce", tensor.device(), call, std::span(&dense, 1),
        [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
          if (dense.numel()) nccl.all_reduce(address(dense), dense.numel(), dense.dtype(), op, stream, deadline);
        },
        [written] { written.finish(); });
  }
  const Written written(tensor);
  if (written.is_copied()) written.fill(stage);
  return start(
      core, "all_reduce", call,
      [data = address(written.dense()), count = tensor.numel(), dtype = tensor.dtype(), op](Core& c,
                                                                                            uint64_t sequence) {
        if (count) c.all_reduce(Core::tag(kCalls, sequence), data, count, dtype, op);
      },
      [written] { written.finish(); }, run, stage.wait_for());
}

Work ProcessGroupImpl::broadcast(const Tensor& tensor, int root, Run run) {
  check_rank("broadcast", *core, root);
  core->rank() == root ? check_tensor("broadcast", tensor) : check_written("broadcast", tensor);
  if (core->size() == 1) return core->check(), Work();
  const bool is_root = core->rank() == root;
  const auto call = [&] { return detail::concat("broadcast(", text_of(tensor), ", root ", root, ')'); };
  Stage stage(*core);
  if (core->uses_nccl(tensor.device())) {
    const Tensor from = is_root ? packed(tensor) : Tensor();
    const std::optional<Written> to =
        is_root ? std::nullopt : std::optional<Written>(std::in_place, tensor, Written::kDevice);
    const Tensor dense = is_root ? from : to->dense();
    return queue(
        core, "broadcast", tensor.device(), call, std::span(&dense, 1),
        [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
          if (dense.numel()) nccl.broadcast(address(dense), bytes_of(dense), root, stream, deadline);
        },
        [from, to] {
          if (to) to->finish();
        });
  }
  const Tensor dense = is_root ? stage.read(tensor) : Tensor();
  std::function<void()> after = [dense] {};
  void* data = is_root ? address(dense) : nullptr;
  if (!is_root) {
    const Written written(tensor);
    data = address(written.dense());
    after = [written] { written.finish(); };
  }
  return start(
      core, "broadcast", call,
      [data, size = bytes_of(tensor), root](Core& c, uint64_t sequence) {
        if (size) c.engine()->broadcast(Core::tag(kCalls, sequence), data, size, root);
      },
      std::move(after), run, stage.wait_for());
}

Work ProcessGroupImpl::all_gather(const Tensor& out, const Tensor& in, Run run) {
  check_written("all_gather", out);
  check_tensor("all_gather", in);
  check_stacked("all_gather", out, in, *core);
  const auto call = [&] { return detail::concat("all_gather(", text_of(in), ')'); };
  const size_t size = bytes_of(in);
  Stage stage(*core);
  if (core->uses_nccl(in.device())) {
    const Written written(out, Written::kDevice);
    Tensor dense = packed(in);
    void* const own = at(written.dense(), size * static_cast<size_t>(core->rank()));
    if (share_memory(dense, written.dense()) && address(dense) != own) dense = dense.clone();
    const Tensor both[] = {dense, written.dense()};
    return queue(
        core, "all_gather", in.device(), call, both,
        [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
          if (size) nccl.all_gather(address(dense), address(written.dense()), size, stream, deadline);
        },
        [written, dense] { written.finish(); });
  }
  const Written written(out);
  Tensor dense = stage.read(in);
  // Memory of `out` that is not this rank's place there is overwritten while it is read.
  void* const own = at(written.dense(), size * static_cast<size_t>(core->rank()));
  if (share_memory(dense, written.dense()) && address(dense) != own) dense = dense.clone();
  return start(
      core, "all_gather", call,
      [from = address(dense), to = address(written.dense()), size](Core& c, uint64_t sequence) {
        const std::vector<size_t> sizes(static_cast<size_t>(c.size()), size);
        if (!size) return;
        if (c.engine())
          c.engine()->all_gather(Core::tag(kCalls, sequence), from, to, sizes);
        else if (from != to)
          std::memcpy(to, from, size);
      },
      [written, dense] { written.finish(); }, run, stage.wait_for());
}

Work ProcessGroupImpl::all_gather_v(std::span<const Tensor> outs, const Tensor& in, Run run) {
  check_count("all_gather_v", "results", outs.size(), *core);
  for (const Tensor& out : outs) check_written("all_gather_v", out);
  check_tensor("all_gather_v", in);
  check_same("all_gather_v", outs[static_cast<size_t>(core->rank())], in);
  const auto call = [&] { return detail::concat("all_gather_v(", text_of(outs), ')'); };
  std::vector<size_t> sizes;
  Stage stage(*core);
  if (core->uses_nccl(in.device())) {
    const Parts to(outs);
    const Tensor dense = packed(in);
    std::vector<Tensor> tensors = to.dense();
    tensors.push_back(dense);
    return queue(
        core, "all_gather_v", in.device(), call, tensors,
        [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
          nccl.all_gather_v(address(dense), to.addresses(), to.sizes(), stream, deadline);
        },
        [to, dense] { to.finish(); });
  }
  auto [all, finish] = split(outs, sizes);
  const Tensor dense = stage.read(in);
  return start(
      core, "all_gather_v", call,
      [from = address(dense), to = address(all), sizes](Core& c, uint64_t sequence) {
        if (std::accumulate(sizes.begin(), sizes.end(), size_t{0}) == 0) return;
        if (c.engine())
          c.engine()->all_gather(Core::tag(kCalls, sequence), from, to, sizes);
        else
          std::memcpy(to, from, sizes[0]);
      },
      [finish = std::move(finish), dense] { finish(); }, run, stage.wait_for());
}

Work ProcessGroupImpl::reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op, Run run) {
  check_written("reduce_scatter", out);
  check_tensor("reduce_scatter", in);
  check_stacked("reduce_scatter", in, out, *core);
  check_reduce("reduce_scatter", out.dtype(), op);
  const auto call = [&] { return detail::concat("reduce_scatter(", text_of(in), ", ", name_of(op), ')'); };
  Stage stage(*core);
  if (core->uses_nccl(in.device())) {
    const Written written(out, Written::kDevice);
    Tensor dense = packed(in);
    if (share_memory(dense, written.dense())) dense = dense.clone();
    const Tensor both[] = {dense, written.dense()};
    return queue(
        core, "reduce_scatter", in.device(), call, both,
        [&](Nccl& nccl, DeviceStream& stream, Nccl::Deadline deadline) {
          if (out.numel())
            nccl.reduce_scatter(address(dense), address(written.dense()), out.numel(), out.dtype(), op, stream,
                                deadline);
        },
        [written, dense] { written.finish(); });
  }
  const Written written(out);
  const Tensor dense = stage.read(in);
  const Tensor parts = core->size() == 1 ? dense : host_memory(in.shape(), in.dtype(), kCPU);
  return start(
      core, "reduce_scatter", call,
      [from = address(dense), to = address(parts), result = address(written.dense()), count = out.numel(),
       dtype = out.dtype(), op](Core& c, uint64_t sequence) {
        if (!count) return;
        const auto size = static_cast<size_t>(count * size_of(dtype));
        const std::vector<size_t> sizes(static_cast<size_t>(c.size()), size);
        if (c.engine()) c.engine()->all_to_all(Core::tag(kCalls, sequence), from, sizes, to, sizes);
        // In the order of the ranks: the same bits everywhere, and in each run.
        std::vector<const void*> addresses(sizes.size());
        for (size_t r = 0; r < sizes.size(); ++r) addresses[r] = static_cast<const char*>(to) + r * size;
        reduce_parts(addresses, count, dtype, op, result);
      },
      [written, dense, parts] { written.finish(); }, run, stage.wait_for());
}

Work ProcessGroupImpl::all_to_all(std::span<const Tensor> outs, std::span<const Tensor> ins, Run run) {
  check_count("all_to_all", "results", outs.size(), *core);
  check_count("all_to_all", "tensors", ins.size(), *core);
  for (const Tensor& out : outs) check_written("all_to_all", out);
  for (const Tensor& in : ins) check_tensor("all_to_all", in);
  const auto me = static_cast<size_t>(core->rank());
  check_same("all_to_all", outs[me], ins[me]);
  const auto call = [] { return std::string("all_to_all"); };
  ExchangedParts parts;
  if (core->checks()) parts = {outs, ins};
  if (core->uses_nccl(ins[me].device()))
    return exchange(core, "all_to_all", outs, ins, call,
                    [&](Core& c, uint64_t sequence) { parts.compare(c, sequence); });
  Stage stage(*core);
  std::vector<size_t> in_sizes, out_sizes;
  const Tensor from = stage.joined(ins, in_sizes);
  auto [to, finish] = split(outs, out_sizes);
  return start(
      core, "all_to_all", call,
      [from = address(from), to = address(to), in_sizes, out_sizes, parts = std::move(parts)](Core& c,
                                                                                              uint64_t sequence) {
        if (!c.engine()) {
          if (in_sizes[0]) std::memcpy(to, from, in_sizes[0]);
          return;
        }
        if (c.checks()) parts.compare(c, sequence);
        c.engine()->all_to_all(Core::tag(kCalls, sequence), from, in_sizes, to, out_sizes);
      },
      [finish = std::move(finish), from] { finish(); }, run, stage.wait_for());
}

Work ProcessGroupImpl::gather(std::span<const Tensor> outs, const Tensor& in, int root, Run run) {
  check_rank("gather", *core, root);
  check_tensor("gather", in);
  const bool is_root = core->rank() == root;
  if (is_root) check_count("gather", "results", outs.size(), *core);
  for (const Tensor& out : outs) check_written("gather", out), check_same("gather", out, in);
  const auto ranks = static_cast<size_t>(core->size()), to_root = static_cast<size_t>(root);
  const auto call = [&] { return detail::concat("gather(", text_of(in), ", root ", root, ')'); };
  if (core->uses_nccl(in.device())) {
    std::vector<Tensor> to_each(ranks);
    to_each[to_root] = in;
    return exchange(core, "gather", is_root ? outs : outs.first(0), to_each, call);
  }
  Stage stage(*core);
  const Tensor dense = stage.read(in);
  std::vector<size_t> in_sizes(ranks), out_sizes;
  in_sizes[to_root] = bytes_of(in);
  auto [to, finish] = split(is_root ? outs : outs.first(0), out_sizes);
  out_sizes.resize(ranks);
  return start(
      core, "gather", call,
      [from = address(dense), to = address(to), in_sizes, out_sizes, to_root](Core& c, uint64_t sequence) {
        if (!in_sizes[to_root]) return;
        if (c.engine())
          c.engine()->all_to_all(Core::tag(kCalls, sequence), from, in_sizes, to, out_sizes);
        else
          std::memcpy(to, from, in_sizes[0]);
      },
      [finish = std::move(finish), dense] { finish(); }, run, stage.wait_for());
}

Work ProcessGroupImpl::scatter(const Tensor& out, std::span<const Tensor> ins, int root, Run run) {
  check_rank("scatter", *core, root);
  check_written("scatter", out);
  const bool is_root = core->rank() == root;
  if (is_root) check_count("scatter", "tensors", ins.size(), *core);
  for (const Tensor& in : ins) check_tensor("scatter", in), check_same("scatter", in, out);
  const auto ranks = static_cast<size_t>(core->size()), from_root = static_cast<size_t>(root);
  const auto call = [&] { return detail::concat("scatter(", text_of(out), ", root ", root, ')'); };
  if (core->uses_nccl(out.device())) {
    std::vector<Tensor> from_each(ranks);
    from_each[from_root] = out;
    return exchange(core, "scatter", from_each, is_root ? ins : ins.first(0), call);
  }
  Stage stage(*core);
  std::vector<size_t> in_sizes, out_sizes(ranks);
  const Tensor from = stage.joined(is_root ? ins : ins.first(0), in_sizes);
  in_sizes.resize(ranks);
  out_sizes[from_root] = bytes_of(out);
  const Written written(out);
  return start(
      core, "scatter", call,
      [from = address(from), to = address(written.dense()), in_sizes, out_sizes, from_root](Core& c,
                                                                                            uint64_t sequence) {
        if (!out_sizes[from_root]) return;
        if (c.engine())
          c.engine()->all_to_all(Core::tag(kCalls, sequence), from, in_sizes, to, out_sizes);
        else
          std::memcpy(to, from, in_sizes[0]);
      },
      [written, from] { written.finish(); }, run, stage.wait_for());
}

Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op) { return impl_->all_reduce(tensor, op, Run::kAsync); }
Work ProcessGroup::broadcast(const Tensor& tensor, int root) { return impl_->broadcast(tensor, root, Run::kAsync); }
Work ProcessGroup::all_gather(const Tensor& out, const Tensor& in) { return impl_->all_gather(out, in, Run::kAsync); }
Work ProcessGroup::all_gather_v(TensorList outs, const Tensor& in) {
  return impl_->all_gather_v(outs, in, Run::kAsync);
}
Work ProcessGroup::reduce_scatter(const Tensor& out, const Tensor& in, ReduceOp op) {
  return impl_->reduce_scatter(out, in, op, Run::kAsync);
}
Work ProcessGroup::all_to_all(TensorList outs, TensorList ins) { return impl_->all_to_all(outs, ins, Run::kAsync); }
Work ProcessGroup::gather(TensorList outs, const Tensor& in, int root) {
  return impl_->gather(outs, in, root, Run::kAsync);
}
Work ProcessGroup::scatter(const Tensor& out, TensorList ins, int root) {
  return impl_->scatter(out, ins, root, Run::kAsync);
}

// ---- messages -------------------------------------------------------------------------------------------------------

namespace {

/// Posts a message, and gives its op to the group.
template <class Post>
std::shared_ptr<Op> post(const std::shared_ptr<Core>& core, const std::string& what, bool sends, const Post& post_it) {
  core->check();
  std::unique_ptr<Message> message;
  try {
    message = post_it();
  } catch (...) {
    core->explain(what, 0);
  }
  return std::make_shared<Op>(core, what, std::move(message), sends);
}

void check_other(const char* op, const Core& core, int rank) {
  check_rank(op, core, rank);
  REEL_CHECK(rank != core.rank(), op, ": the other rank is ", rank, ", as this one");
}

std::shared_ptr<Op> receive(const std::shared_ptr<Core>& core, const Tensor& tensor, std::span<const int> from,
                            int tag) {
  check_written("recv", tensor);
  std::string what = "recv from ";
  for (const int& rank : from) {
    check_other("recv", *core, rank);
    what += detail::concat(&rank == from.data() ? "rank " : ", ", core->ranks()[static_cast<size_t>(rank)]);
  }
  REEL_CHECK(!from.empty(), "recv: from no rank");
  const Written written(tensor);
  const auto op = post(core, detail::concat(what, " with tag ", tag, " of ", core->name()), false, [&] {
    return core->engine()->recv(from, tag, address(written.dense()), bytes_of(tensor), tensor.dtype());
  });
  op->on_finish([written] { written.finish(); });
  core->launch_message(op);
  return op;
}

}  // namespace

Work ProcessGroup::send(const Tensor& tensor, int to, int tag) {
  const auto& core = impl_->core;
  check_tensor("send", tensor);
  check_other("send", *core, to);
  Stage stage(*core);
  const Tensor dense = stage.read(tensor);
  if (const auto wait = stage.wait_for()) wait();
  const auto op = post(
      core,
      detail::concat("send to rank ", core->ranks()[static_cast<size_t>(to)], " with tag ", tag, " of ", core->name()),
      true, [&] { return core->engine()->send(to, tag, address(dense), bytes_of(dense), dense.dtype()); });
  op->on_finish([dense] {});
  core->launch_message(op);
  return WorkState::work(op);
}

Work ProcessGroup::recv(const Tensor& tensor, int from, int tag) {
  return WorkState::work(receive(impl_->core, tensor, std::span(&from, 1), tag));
}

Received ProcessGroup::recv_any(const Tensor& tensor, std::span<const int> from, int tag) {
  const auto op = receive(impl_->core, tensor, from, tag);
  op->wait();
  return {op->other()};
}

// ---- what waits -----------------------------------------------------------------------------------------------------

void ProcessGroup::barrier() {
  const auto& core = impl_->core;
  start(
      core, "barrier", [] { return std::string("barrier()"); },
      [](Core& c, uint64_t sequence) {
        // All have come where calls have been compared.
        if (c.engine() && !c.checks()) c.engine()->barrier(Core::tag(kCalls, sequence));
      },
      {}, Run::kNow);
}

void ProcessGroup::monitored_barrier(Milliseconds timeout) {
  impl_->core->check();
  if (size() > 1) impl_->core->meet("monitored_barrier", timeout);
}

std::string ProcessGroup::broadcast_object(std::string_view object, int root) {
  const auto& core = impl_->core;
  check_rank("broadcast_object", *core, root);
  if (core->size() == 1) return core->check(), std::string(object);
  std::string result(core->rank() == root ? object : std::string_view());
  start(
      core, "broadcast_object", [&] { return detail::concat("broadcast_object(root ", root, ')'); },
      [&](Core& c, uint64_t sequence) {
        uint64_t size = result.size();
        c.engine()->broadcast(Core::tag(kCalls, sequence), &size, sizeof size, root);
        REEL_CHECK(size <= kMaxObject, "broadcast_object: an object of ", size, " bytes");
        result.resize(size);
        if (size) c.engine()->broadcast(Core::tag(kCalls, sequence, 1), result.data(), size, root);
      },
      {}, Run::kNow);
  return result;
}

std::vector<std::string> ProcessGroup::all_gather_object(std::string_view object) {
  const auto& core = impl_->core;
  if (core->size() == 1) return core->check(), std::vector<std::string>{std::string(object)};
  const auto ranks = static_cast<size_t>(core->size());
  std::vector<std::string> result(ranks);
  start(
      core, "all_gather_object", [] { return std::string("all_gather_object()"); },
      [&](Core& c, uint64_t sequence) {
        const uint64_t mine = object.size();
        std::vector<uint64_t> sizes(ranks);
        const std::vector<size_t> words(ranks, sizeof mine);
        c.engine()->all_gather(Core::tag(kCalls, sequence), &mine, sizes.data(), words);
        uint64_t total = 0;
        for (const uint64_t size : sizes) {
          REEL_CHECK(size <= kMaxObject, "all_gather_object: an object of ", size, " bytes");
          total += size;
        }
        std::string all(total, 0);
        const std::vector<size_t> bytes(sizes.begin(), sizes.end());
        if (total) c.engine()->all_gather(Core::tag(kCalls, sequence, 1), object.data(), all.data(), bytes);
        size_t offset = 0;
        for (size_t r = 0; r < ranks; offset += sizes[r++]) result[r] = all.substr(offset, sizes[r]);
      },
      {}, Run::kNow);
  return result;
}

}  // namespace reel::distributed
