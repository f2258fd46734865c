// Tensors on GPUs: by NCCL, and through pinned memory. With real GPUs, and with test/simt's, whose NCCL is its own.
#include <catch2/catch.hpp>
#include <future>

#include "lib/distributed/channel.h"
#include "lib/distributed/nccl.h"
#include "reel/cuda.h"
#include "reel/distributed/collectives.h"
#include "reel/distributed/ddp.h"
#include "reel/reel.h"
#include "test/distributed/models.h"
#include "test/distributed/processes.h"

namespace reel::distributed::test {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using ranks::concat;
using ranks::expect;

namespace {

Device gpu(int index) { return {DeviceType::kCUDA, static_cast<int8_t>(index)}; }

/// Whether the ranks can have a GPU each.
bool has_gpus(int count) {
  if (cuda::device_count() >= count) return true;
  WARN("skipped: there are " << cuda::device_count() << " GPUs, not " << count);
  return false;
}
bool can_run(Backend backend, int world) {
  if (backend != Backend::kNccl) return has_gpus(1);
  if (!has_gpus(world)) return false;
  if (!has_nccl()) WARN("skipped: there is no NCCL");
  return has_nccl();
}

/// Makes the rank's tensors on its GPU.
struct OnGpu {
  explicit OnGpu(int rank) { set_default_device(gpu(rank % cuda::device_count())); }
  ~OnGpu() { set_default_device(kCPU); }
};

const ProcessGroupOptions kQuick{.backend = Backend::kNccl, .timeout = 400ms, .rendezvous = 10s, .heartbeat = 2s};
ProcessGroupOptions with(Backend backend) {
  return {.backend = backend, .timeout = 20s, .rendezvous = 10s, .heartbeat = 2s};
}

/// f(rank) on all ranks, with default tensors on their GPUs.
template <class F>
auto on_gpus(int world, const F& f, const ProcessGroupOptions& options) {
  return on_ranks(
      world,
      [&](int rank) {
        const OnGpu device(rank);
        return f(rank);
      },
      options);
}

std::vector<float> floats(const Tensor& t) { return t.to(kCPU).to(kFloat32).contiguous().to_vector<float>(); }
std::vector<float> filled(size_t count, float value) { return std::vector<float>(count, value); }

void check_reductions(int rank, int world) {
  const auto sum = static_cast<float>(world * (world + 1) / 2), own = static_cast<float>(rank + 1);
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8}) {
    const Tensor x = full({7, 5}, own, {.dtype = dtype});
    all_reduce(x);
    expect(floats(x) == filled(35, sum), "sum of ", dtype);
    const Tensor y = full({3}, own, {.dtype = dtype});
    all_reduce(y, ReduceOp::kMax);
    expect(floats(y) == filled(3, static_cast<float>(world)), "maximum of ", dtype);
  }
  const Tensor average = full({4}, own);
  all_reduce(average, ReduceOp::kAvg);
  expect(floats(average) == filled(4, sum / static_cast<float>(world)), "average");
  const Tensor any = full({4}, rank == world - 1, {.dtype = kBool});
  all_reduce(any, ReduceOp::kMax);
  expect(floats(any) == filled(4, 1), "or");
  // Every second column of a matrix, whose others stay.
  const Tensor matrix = full({6, 4}, own);
  all_reduce(matrix.slice(1, 0, std::nullopt, 2));
  for (int i = 0; i < 4; ++i) expect(floats(matrix.select(1, i)) == filled(6, i % 2 ? own : sum), "column ", i);
  all_reduce(empty({0, 3}));
}

void check_moves(int rank, int world) {
  const auto own = static_cast<float>(rank);
  for (int root = 0; root < world; ++root) {
    const Tensor x = full({5, 3}, own);
    broadcast(x.t(), root);
    expect(floats(x) == filled(15, static_cast<float>(root)), "broadcast");
  }
  const Tensor all = all_gather(full({2, 2}, own));
  const std::vector<Tensor> parts = all_gather_v(full({rank + 1, 2}, own));
  const Tensor reduced = reduce_scatter(arange(world * 3).to(kFloat32).view({world, 3}) + own);
  std::vector<Tensor> ins, outs;
  for (int r = 0; r < world; ++r) {
    ins.push_back(full({3, r + 1}, own * 10 + static_cast<float>(r)));
    outs.push_back(empty({rank + 1, 3}).t());
  }
  all_to_all(outs, ins);
  const int root = world - 1;
  const std::vector<Tensor> gathered = gather(full({2}, own), root);
  std::vector<Tensor> pieces;
  for (int r = 0; r < world && rank == root; ++r) pieces.push_back(full({2}, static_cast<float>(r * 7)));
  const Tensor piece = empty({2});
  scatter(piece, pieces, root);
  expect(floats(piece) == filled(2, own * 7), "scatter");
  for (int r = 0; r < world; ++r) {
    const auto other = static_cast<float>(r);
    const auto i = static_cast<size_t>(r);
    expect(floats(all.select(0, r)) == filled(4, other), "all_gather");
    expect(floats(parts[i]) == filled(2 * i + 2, other), "all_gather_v");
    expect(floats(outs[i]) == filled(3 * (static_cast<size_t>(rank) + 1), other * 10 + own), "all_to_all");
    expect(rank != root || floats(gathered[i]) == filled(2, other), "gather");
  }
  for (int i = 0; i < 3; ++i)
    expect(
        floats(reduced)[static_cast<size_t>(i)] == static_cast<float>(world * (rank * 3 + i) + world * (world - 1) / 2),
        "reduce_scatter");
  if (world == 1) return;
  const Tensor message = full({3, 2}, own), received = empty({2, 3});
  const Work sent = default_group().send(message.t(), (rank + 1) % world, 5);
  recv(received, (rank + world - 1) % world, 5);
  sent.wait();
  expect(floats(received) == filled(6, static_cast<float>((rank + world - 1) % world)), "send and recv");
  barrier();
}

const auto kBackends = {kThreadBackend, Backend::kNccl};

}  // namespace

TEST_CASE("collectives of tensors on GPUs", "[gpu]") {
  for (const Backend backend : kBackends)
    for (const int world : {1, 2, 4}) {
      if (!can_run(backend, world)) continue;
      CAPTURE(world, static_cast<int>(backend));
      on_gpus(
          world,
          [&](int rank) {
            check_reductions(rank, world);
            check_moves(rank, world);
            return 0;
          },
          with(backend));
    }
}

TEST_CASE("collectives of GPUs go on while the host and the GPU do", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  on_gpus(
      2,
      [](int rank) {
        std::vector<Tensor> tensors;
        std::vector<Work> works;
        for (int i = 0; i < 20; ++i) {
          Tensor x = zeros({1000});
          for (int k = 0; k <= i; ++k) x = x + static_cast<float>(rank + 1);  // late, and its memory is used again
          works.push_back(default_group().all_reduce(x));
          tensors.push_back(x);
        }
        for (size_t i = 0; i < works.size(); ++i) {
          works[i].wait();
          tensors[i].mul_(2);  // behind it, without a wait of the host
        }
        for (size_t i = 0; i < works.size(); ++i)
          expect(floats(tensors[i]) == filled(1000, static_cast<float>(6 * (i + 1))), "sum ", i);
        return 0;
      },
      with(Backend::kNccl));
}

TEST_CASE("what nobody waits for is complete when its group is gone", "[gpu]") {
  for (const Backend backend : kBackends) {
    if (!can_run(backend, 2)) continue;
    on_gpus(
        2,
        [](int rank) {
          const int both[] = {0, 1};
          const Tensor x = full({4, 6}, static_cast<float>(rank + 1)), y = full({5}, static_cast<float>(rank + 1));
          {
            const auto group = new_group(both);
            group->all_reduce(x.t());
            group->all_reduce(y);
          }
          expect(floats(x) == filled(24, 3) && floats(y) == filled(5, 3), "sums");
          return 0;
        },
        with(backend));
  }
}

TEST_CASE("NCCL waits for no GPU", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  on_gpus(
      2,
      [](int rank) {
        const Tensor x = full({10}, static_cast<float>(rank));
        all_reduce(x);
        cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
        all_reduce(x);
        broadcast(x, 1);
        const Tensor all = all_gather(x);
        cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
        expect(floats(all) == filled(20, 2), "values");
        return 0;
      },
      with(Backend::kNccl));
}

TEST_CASE("groups of some ranks have communicators of their own", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  on_gpus(
      2,
      [](int rank) {
        const int reversed[] = {1, 0}, one[] = {1};
        const auto both = new_group(reversed), alone = new_group(one);
        const Tensor x = full({3}, static_cast<float>(rank + 1));
        both->broadcast(x, 0).wait();
        expect(floats(x) == filled(3, 2), "broadcast");
        if (alone) alone->all_reduce(x).wait();
        all_reduce(x);
        expect(floats(x) == filled(3, 4), "all_reduce");
        return 0;
      },
      with(Backend::kNccl));
}

TEST_CASE("ranks that make different calls of GPUs get an error before data moves", "[gpu]") {
  for (const Backend backend : kBackends) {
    if (!can_run(backend, 2)) continue;
    const auto outcomes = try_ranks(
        2,
        [](int rank) {
          const OnGpu device(rank);
          all_reduce(zeros({2 + rank}));
          return 0;
        },
        with(backend));
    for (const auto& outcome : outcomes) {
      CHECK(outcome.kind() == Error::kMismatch);
      CHECK_THAT(outcome.message(), Contains("rank 0: all_reduce(float32 (2) on cuda") ||
                                        Contains("rank 0: all_reduce(float32 [2] on cuda"));
    }
  }
  if (!can_run(Backend::kNccl, 2)) return;
  const auto outcomes = try_ranks(
      2,
      [](int rank) {
        const OnGpu device(rank);
        all_reduce(rank ? zeros({2}, {.device = kCPU}) : zeros({2}));
        return 0;
      },
      with(Backend::kNccl));
  for (const auto& outcome : outcomes) CHECK(outcome.kind() == Error::kMismatch);
}

TEST_CASE("two ranks on one GPU are an error of NCCL's", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  const auto outcomes = try_ranks(
      2,
      [](int) {
        const OnGpu device(0);
        all_reduce(zeros({2}));
        return 0;
      },
      with(Backend::kNccl));
  for (const auto& outcome : outcomes) {
    CHECK(outcome.kind() == Error::kAborted);
    CHECK_THAT(outcome.message(), Contains("Duplicate GPU"));
  }
}

TEST_CASE("a rank that does not come to NCCL is named at the timeout", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  for (const bool connected : {true, false}) {
    std::promise<void> over;
    std::shared_future<void> end = over.get_future().share();
    const auto begin = std::chrono::steady_clock::now();
    const auto outcomes = try_ranks(
        2,
        [&](int rank) {
          const OnGpu device(rank);
          const Tensor x = ones({100});
          // As DistributedDataParallel does, which does not compare calls.
          Channel channel(default_group());
          if (connected) channel.wait(channel.all_reduce(x, ReduceOp::kSum, "first"));
          if (rank == 1) {
            end.wait_for(5s);
            return 0;
          }
          try {
            channel.wait(channel.all_reduce(x, ReduceOp::kSum, "second"));
            floats(x);  // returns, with whatever there is
            barrier();
          } catch (...) {
            over.set_value();
            throw;
          }
          return 0;
        },
        kQuick);
    CHECK(std::chrono::steady_clock::now() - begin < 4s);
    CHECK(outcomes[0].kind() == Error::kTimeout);
    CHECK_THAT(outcomes[0].message(), Contains("second") && Contains("no rank 1"));
  }
}

TEST_CASE("a rank that gives up ends what others wait for on their GPUs", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  const auto outcomes = try_ranks(
      2,
      [](int rank) {
        const OnGpu device(rank);
        const Tensor x = ones({100});
        Channel channel(default_group());
        channel.wait(channel.all_reduce(x, ReduceOp::kSum, "first"));
        if (rank == 1) {
          std::this_thread::sleep_for(100ms);
          throw std::runtime_error("out of examples");
        }
        channel.wait(channel.all_reduce(x, ReduceOp::kSum, "second"));
        floats(x);
        all_reduce(x);
        return 0;
      },
      with(Backend::kNccl));
  CHECK(outcomes[0].kind() == Error::kPeerLost);
  CHECK_THAT(outcomes[0].message(), Contains("rank 1 left"));
}

// ---- DistributedDataParallel ----------------------------------------------------------------------------------------

namespace {

template <class Model, class Optimizer>
void check_like_alone(Backend backend, const DistributedDataParallelOptions& options = {}) {
  const Tensors reference = on_gpus(
      1, [](int) { return alone<Model, Optimizer>(2, 8); }, with(kThreadBackend))[0];
  const auto weights = on_gpus(
      2, [&](int rank) { return on_rank<Model, Optimizer>(rank, 2, options, 8); }, with(backend));
  for (const Tensors& own : weights)
    for (size_t i = 0; i < own.size(); ++i) {
      CHECK(own[i].is_cuda());
      CHECK(floats(own[i]) == floats(reference[i]));
    }
}

struct Normed : nn::Module {
  nn::Linear a{*this, "a", 6, 8};
  nn::BatchNorm1d norm{*this, "norm", 8};
  nn::Linear b{*this, "b", 8, 3};
  Tensor forward(const Tensor& x) { return b(relu(norm(a(x)))); }
};

}  // namespace

TEST_CASE("two GPUs train as one does, to the bit", "[gpu]") {
  for (const Backend backend : kBackends) {
    if (!can_run(backend, 2)) continue;
    CAPTURE(static_cast<int>(backend));
    check_like_alone<Mlp, optim::Adam>(backend);
    check_like_alone<Mlp, optim::SGD>(backend, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    check_like_alone<Recurrent, optim::SGD>(backend);
    check_like_alone<Tree, optim::SGD>(backend);
  }
}

TEST_CASE("a step of DistributedDataParallel by NCCL waits for no GPU", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  const auto results = on_gpus(
      2,
      [](int rank) {
        manual_seed(5);
        Normed model;
        DistributedDataParallel ddp(model, {.first_bucket_bytes = 64});
        optim::SGD sgd(model.parameters(), {.lr = 0.125});
        for (int step = 0; step < 4; ++step) {
          manual_seed(static_cast<uint64_t>(10 * step + rank));
          const Tensor x = randn({16, 6});
          if (step) cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
          sgd.zero_grad();
          reel::mean(square(model.forward(x))).backward();
          sgd.step();
          cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
        }
        Tensors all = copies(model.parameters());
        for (const auto& [path, buffer] : model.named_buffers()) all.push_back(buffer.clone());
        return all;
      },
      with(Backend::kNccl));
  REQUIRE(results[0].size() > 4);
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(floats(results[0][i]) == floats(results[1][i]));
}

TEST_CASE("a graph cannot capture a reduction", "[gpu]") {
  if (!can_run(Backend::kNccl, 2)) return;
  const auto messages = on_gpus(
      2,
      [](int) -> std::string {
        manual_seed(5);
        Normed model;
        DistributedDataParallel ddp(model);
        const Tensor x = ones({16, 6});
        const auto step = [&] { reel::mean(square(model.forward(x))).backward(); };
        step();
        const auto guard = ddp.no_sync();
        try {
          cuda::Graph().capture(step);
        } catch (const reel::Error& error) {
          return error.what();
        }
        return "none";
      },
      with(Backend::kNccl));
  for (const std::string& message : messages) CHECK_THAT(message, Contains("a graph cannot capture the backward()"));
}

TEST_CASE("halves, hooks, no_sync and join on GPUs", "[gpu]") {
  for (const Backend backend : kBackends) {
    if (!can_run(backend, 2)) continue;
    CAPTURE(static_cast<int>(backend));
    const auto results = on_gpus(
        2,
        [](int rank) {
          Tensors all;
          for (const CommHook& hook : {CommHook(), hooks::bf16(), hooks::fp16()}) {
            manual_seed(3);
            Mlp model;
            if (!hook) model.to(kBFloat16);
            DistributedDataParallel ddp(model, {.hook = hook});
            optim::SGD sgd(model.parameters(), {.lr = 0.125});
            const auto join = ddp.join();
            for (int step = 0; step < 3 + 2 * rank; ++step) {
              sgd.zero_grad();
              manual_seed(static_cast<uint64_t>(10 * step + rank));
              const Tensor x = randn({5, 6}).to(model.a.weight.dtype());
              const auto loss = [&] { return reel::mean(square(model.b(tanh(model.a(x))))); };
              {
                const auto no_sync = ddp.no_sync();
                loss().backward();
              }
              loss().backward();
              sgd.step();
            }
            for (const Tensor& p : model.parameters()) all.push_back(p);
          }
          return copies(all);
        },
        with(backend));
    for (size_t i = 0; i < results[0].size(); ++i) CHECK(floats(results[0][i]) == floats(results[1][i]));
  }
}

// ---- processes ------------------------------------------------------------------------------------------------------

TEST_CASE("a rank with a GPU", "[.rank]") {
  ranks::run_rank([](int rank) {
    const OnGpu device(rank);
    const int world = world_size();
    check_reductions(rank, world);
    check_moves(rank, world);
    const Tensors weights = on_rank<Mlp, optim::Adam>(rank, world, {}, 4);
    for (const Tensor& w : weights) {
      const Tensor all = all_gather(w);
      for (int r = 0; r < world; ++r) expect(floats(all.select(0, r)) == floats(w), "the weights of rank ", r);
    }
  });
}
TEST_CASE("processes with GPUs talk over Gloo", "[gpu]") {
  if (has_gpus(1)) ranks::Processes(2, "a rank with a GPU").succeed();
}

TEST_CASE("a rank that does not say by what", "[.rank]") {
  ranks::run_rank(
      [](int) {
        const bool enough = has_nccl() && cuda::device_count() >= world_size();
        expect(default_group().backend() == (enough ? Backend::kNccl : Backend::kGloo), "the backend");
        barrier();
      },
      {});
}
TEST_CASE("NCCL is chosen where each rank has a GPU", "[gpu]") {
  if (!has_gpus(1)) return;
  ranks::Processes(2, "a rank that does not say by what").succeed();
  ranks::Processes(9, "a rank that does not say by what").succeed();
}

// ---- NCCL itself ----------------------------------------------------------------------------------------------------

TEST_CASE("a communicator of one rank", "[gpu]") {
  if (!can_run(Backend::kNccl, 1)) return;
  const auto member = thread_members(1)[0];
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  Nccl nccl(0, 1, gpu(0));
  nccl.connect(*member, deadline);
  const auto stream = runtime(gpu(0)).current_stream(0);
  const Tensor x = full({1000}, 3.0f, {.device = gpu(0)}), y = empty({1000}, {.device = gpu(0)});
  nccl.all_reduce(x.data<float>(), 1000, kFloat32, ReduceOp::kAvg, *stream, deadline);
  nccl.all_gather(x.data<float>(), y.data<float>(), 4000, *stream, deadline);
  CHECK(floats(y) == filled(1000, 3));
  CHECK(nccl.failure().empty());
}

TEST_CASE("NCCL whose second rank is absent", "[gpu]") {
  if (!can_run(Backend::kNccl, 1)) return;
  const auto member = thread_members(1)[0];
  const auto begin = std::chrono::steady_clock::now();
  {
    Nccl nccl(0, 2, gpu(0));
    CHECK_THROWS_AS(nccl.connect(*member, begin + 500ms), Nccl::Late);
    nccl.abort();
    CHECK_THROWS_AS(nccl.broadcast(nullptr, 0, 0, *runtime(gpu(0)).current_stream(0), begin + 1s), Nccl::Aborted);
  }
  CHECK(std::chrono::steady_clock::now() - begin < Nccl::kAbortLimit);
}

}  // namespace reel::distributed::test
