#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "reel/autograd.h"
#include "reel/distributed/collectives.h"
#include "reel/distributed/sampler.h"
#include "reel/ops.h"
#include "test/distributed/processes.h"

using namespace reel;
using namespace reel::distributed;
using ranks::concat, ranks::expect;

namespace {

enum class Layout { kDense, kTransposed, kSliced };

Tensor filled(const std::vector<double>& values, DType dtype, Layout layout) {
  const auto n = static_cast<int64_t>(values.size());
  const Tensor dense = tensor(values).to(dtype);
  if (layout == Layout::kDense || n == 0) return dense;
  if (layout == Layout::kSliced) {
    Tensor wide = zeros({n, 3}, {.dtype = dtype});
    Tensor part = wide.select(1, 1);
    part.copy_(dense);
    return part;
  }
  Tensor tall = zeros({n, 1, 2}, {.dtype = dtype});
  Tensor part = tall.transpose(0, 2).select(0, 0).transpose(0, 1);
  part.copy_(dense.reshape({n, 1}));
  return part;
}

Tensor floats(const Shape& shape, double value) { return full(shape, value, {.dtype = kFloat32}); }

bool is_integer(DType dtype) { return !is_floating_point(dtype) && dtype != kBool; }

/// Small integers, which all types hold exactly, and that differ by rank and position.
double value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 3) % 5 + (rank + i) % 2); }

std::vector<double> values(int rank, int64_t n) {
  std::vector<double> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(value(rank, i));
  return all;
}

void expect_equal(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  const std::vector<double> all = got.reshape({got.numel()}).to_vector<double>();
  expect(all.size() == want.size(), what, ": ", all.size(), " elements, expected ", want.size());
  for (size_t i = 0; i < all.size(); ++i)
    expect(all[i] == want[i], what, ": element ", i, " is ", all[i], ", expected ", want[i]);
}

const DType kTypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8, kBool};
const ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd};

double reduced(ReduceOp op, int world, int64_t i, bool is_bool) {
  double result = value(0, i);
  if (is_bool) result = result != 0;
  for (int r = 1; r < world; ++r) {
    double v = value(r, i);
    if (is_bool) v = v != 0;
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg: result += v; break;
      case ReduceOp::kMin: result = std::min(result, v); break;
      case ReduceOp::kMax: result = std::max(result, v); break;
      case ReduceOp::kProd: result *= v; break;
    }
  }
  return op == ReduceOp::kAvg ? result / world : result;
}

void check_all_reduce(int rank, int64_t n, DType dtype, Layout layout) {
  const int world = distributed::world_size();
  for (const ReduceOp op : kOps) {
    if (op == ReduceOp::kAvg && !is_floating_point(dtype)) continue;
    if (dtype == kBool && op != ReduceOp::kMin && op != ReduceOp::kMax) continue;
    const Tensor t = filled(values(rank, n), dtype, layout);
    all_reduce(t, op);
    std::vector<double> want;
    for (int64_t i = 0; i < n; ++i) want.push_back(reduced(op, world, i, dtype == kBool));
    if (op == ReduceOp::kAvg) want = tensor(want).to(dtype).to_vector<double>();
    expect_equal(t, want, concat("all_reduce ", static_cast<int>(op), " of ", dtype, ' ', n));
  }
}

void check_others(int rank, int64_t n, DType dtype, Layout layout) {
  const int world = distributed::world_size();
  ProcessGroup& group = default_group();
  const std::string what = concat(dtype, ' ', n, " on rank ", rank);
  const auto expected = [&](int r, int64_t count) { return tensor(values(r, count)).to(dtype).to_vector<double>(); };
  for (int root = 0; root < world; ++root) {
    const Tensor t = filled(values(rank, n), dtype, layout);
    broadcast(t, root);
    expect_equal(t, expected(root, n), "broadcast " + what);

    std::vector<Tensor> outs = gather(filled(values(rank, n), dtype, layout), root);
    expect(outs.size() == (rank == root ? static_cast<size_t>(world) : 0), "gather's results");
    for (size_t r = 0; r < outs.size(); ++r) expect_equal(outs[r], expected(static_cast<int>(r), n), "gather " + what);

    std::vector<Tensor> ins;
    if (rank == root)
      for (int r = 0; r < world; ++r) ins.push_back(filled(values(r, n), dtype, layout));
    const Tensor out = filled(values(9, n), dtype, layout);
    scatter(out, ins, root);
    expect_equal(out, expected(rank, n), "scatter " + what);
  }
  const Tensor all = all_gather(filled(values(rank, n), dtype, layout));
  for (int r = 0; r < world; ++r) expect_equal(all[r], expected(r, n), "all_gather " + what);
  // A result that is no dense tensor, and an input that is in it.
  Shape wide = filled(values(rank, n), dtype, layout).shape();
  wide.insert(0, world), wide.push_back(2);
  const Tensor out = zeros(wide, {.dtype = dtype}).select(-1, 1);
  Tensor own = out[(rank + 1) % world];
  own.copy_(filled(values(rank, n), dtype, layout));
  group.all_gather(out, own).wait();
  for (int r = 0; r < world; ++r) expect_equal(out[r], expected(r, n), "all_gather within " + what);

  const std::vector<Tensor> parts = all_gather_v(filled(values(rank, n + rank), dtype, Layout::kDense));
  for (int r = 0; r < world; ++r)
    expect_equal(parts[static_cast<size_t>(r)], expected(r, n + r), "all_gather_v " + what);

  std::vector<Tensor> ins, outs;
  for (int r = 0; r < world; ++r) {
    ins.push_back(filled(values(10 * rank + r, n + rank + 2 * r), dtype, layout));
    outs.push_back(filled(values(0, n + r + 2 * rank), dtype, layout));
  }
  all_to_all(outs, ins);
  for (int r = 0; r < world; ++r)
    expect_equal(outs[static_cast<size_t>(r)], expected(10 * r + rank, n + r + 2 * rank), "all_to_all " + what);

  for (const ReduceOp op : kOps) {
    if (op == ReduceOp::kAvg && !is_floating_point(dtype)) continue;
    if (dtype == kBool && op != ReduceOp::kMin && op != ReduceOp::kMax) continue;
    std::vector<double> stacked, want;
    for (int r = 0; r < world; ++r)
      for (int64_t i = 0; i < n; ++i) stacked.push_back(value(rank, i + r));
    const Tensor mine = reduce_scatter(tensor(stacked).to(dtype).reshape({world, n}), op);
    for (int64_t i = 0; i < n; ++i) want.push_back(reduced(op, world, i + rank, dtype == kBool));
    expect_equal(mine, tensor(want).to(dtype).to_vector<double>(), "reduce_scatter " + what);
  }
}

void check_collectives(int rank) {
  // With more processes than cores an op takes milliseconds.
  const int world = distributed::world_size();
  const bool all = default_group().backend() == kThreadBackend || world == 2;
  for (const DType dtype : kTypes)
    for (const int64_t n : {0, 1, 7}) {
      for (const Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kSliced}) {
        if (!all && (dtype == kFloat64 || is_integer(dtype) || n != 7 || layout != Layout::kSliced)) continue;
        if (n != 7 && layout != Layout::kDense) continue;
        check_all_reduce(rank, n, dtype, layout);
        check_others(rank, n, dtype, layout);
      }
    }
  const int64_t large = (1 << 20) + 3;
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const Tensor t = full({large}, rank + 1.0, {.dtype = dtype});
    all_reduce(t);
    expect(t.min().item<double>() == world * (world + 1) / 2 && t.max().item<double>() == world * (world + 1) / 2,
           "all_reduce of many");
  }
  expect(broadcast_object(concat("from ", rank), world - 1) == concat("from ", world - 1), "broadcast_object");
  expect(broadcast_object("", 0).empty(), "broadcast_object of nothing");
  const auto objects = all_gather_object(std::string(static_cast<size_t>(rank) * 1000, 'x'));
  for (int r = 0; r < world; ++r)
    expect(objects[static_cast<size_t>(r)].size() == static_cast<size_t>(r) * 1000, "all_gather_object");
  barrier();
  monitored_barrier(std::chrono::seconds(10));
  monitored_barrier(std::chrono::seconds(10));
  const Tensor m = distributed::mean(tensor(std::vector<float>{static_cast<float>(rank)}));
  expect(m.item<double>() == (world - 1) / 2.0, "mean");
}

void check_values(int rank) {
  const int world = distributed::world_size();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      // NaN on each of the ranks in turn, in the first and last places.
      for (int r = 0; r < world; ++r) {
        const Tensor t = tensor(std::vector<double>{r == rank ? nan : 1, 2, r == rank ? nan : 1}).to(dtype);
        all_reduce(t, op);
        const auto all = t.to_vector<double>();
        expect(std::isnan(all[0]) && all[1] == 2 && std::isnan(all[2]), "NaN of ", dtype);
      }
    }
  // Halves are rounded once: 2048 + 1 + 1 … is 2048 if each sum is rounded.
  const Tensor half = tensor(std::vector<double>(5, rank == 0 ? 2048 : 1)).to(kFloat16);
  all_reduce(half);
  expect_equal(half, tensor(std::vector<double>(5, 2048 + world - 1)).to(kFloat16).to_vector<double>(), "float16");
  // And an average does not overflow.
  const Tensor high = tensor(std::vector<double>(3, 60000)).to(kFloat16);
  all_reduce(high, ReduceOp::kAvg);
  expect_equal(high, std::vector<double>(3, 60000 - 60000 % 32), "average of float16");

  // All ranks have the same bits, also again.
  const auto random = [&] {
    std::vector<float> v;
    uint32_t x = static_cast<uint32_t>(rank) + 1;
    for (int i = 0; i < 100003; ++i) {
      x = x * 1664525 + 1013904223;
      v.push_back(static_cast<float>(static_cast<int32_t>(x)) * 1e-5f);
    }
    return tensor(v);
  };
  const Tensor first = random(), second = random();
  all_reduce(first);
  all_reduce(second);
  const Tensor all = all_gather(first);
  for (int r = 0; r < world; ++r) expect(equal(all[r], first), "rank ", r, " has other bits");
  expect(equal(first, second), "other bits in another run");

  // Works under way together, waited for in another order, or asked whether they are done.
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 40; ++i) {
    tensors.push_back(floats({1000 + i}, rank + i));
    works.push_back(default_group().all_reduce(tensors.back()));
  }
  for (size_t i = 40; i-- > 0;)
    if (i % 3)
      works[i].wait();
    else
      while (!works[i].done()) std::this_thread::yield();
  for (int i = 0; i < 40; ++i)
    expect(tensors[static_cast<size_t>(i)][0].item<double>() == world * i + world * (world - 1) / 2, "Work ", i);

  // Versions change.
  const Tensor t = zeros({3});
  const uint32_t before = t.version();
  all_reduce(t);
  expect(t.version() > before, "the version has not changed");
}

void check_messages(int rank) {
  const int world = distributed::world_size();
  ProcessGroup& group = default_group();
  const int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  // All send before they receive.
  for (const int64_t n : {0, 5, 100000}) {
    const Tensor out = floats({n}, rank), in = floats({n}, -1);
    const Work sent = group.send(out, next, 3);
    const Work got = group.recv(in, previous, 3);
    sent.wait();
    got.wait();
    expect_equal(in, std::vector<double>(static_cast<size_t>(n), previous), "recv");
  }
  // More receipts than there are threads, before a collective and what they wait for; in another order by tag, in the
  // same order within one.
  std::vector<Tensor> ins;
  std::vector<Work> works;
  for (int tag = 0; tag < 6; ++tag) {
    ins.push_back(zeros({2, 3}).transpose(0, 1));
    works.push_back(group.recv(ins.back(), previous, tag / 2));
  }
  const Tensor sum = floats({1}, 1.0);
  const Work reduction = group.all_reduce(sum);
  reduction.wait();
  for (int i = 5; i >= 0; --i) {
    const int nth = i ^ 1;  // within a tag in order
    group.send(floats({3, 2}, nth + 10 * rank), next, nth / 2).wait();
  }
  for (int i = 5; i >= 0; --i) {
    works[static_cast<size_t>(i)].wait();
    expect(ins[static_cast<size_t>(i)][0][0].item<int>() == i + 10 * previous, "message ", i);
    expect(works[static_cast<size_t>(i)].done(), "done");
  }
  // From whoever sends.
  if (rank == 0) {
    std::vector<int> others, seen;
    for (int r = 1; r < world; ++r) others.push_back(r);
    for (int r = 1; r < world; ++r) {
      const Tensor in = zeros({1});
      const int from = recv_any(in, others, 7);
      expect(in.item<int>() == from, "recv_any from ", from);
      seen.push_back(from);
    }
    std::sort(seen.begin(), seen.end());
    expect(seen == others, "recv_any from all");
  } else {
    const Work sent = group.send(floats({1}, rank), 0, 7);
    while (!sent.done()) std::this_thread::yield();
    sent.wait();
  }
}

void check_groups(int rank) {
  const int world = distributed::world_size();
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> reversed = [&] {
      std::vector<int> all;
      for (int r = world - 1; r >= 0; --r) all.push_back(r);
      return all;
    }();
    const auto back = new_group(reversed);
    expect(back->rank() == world - 1 - rank && back->ranks() == reversed, "ranks of a group");
    const std::vector<int> ends = {0, world - 1};
    const auto two = new_group(ends);
    expect((two != nullptr) == (rank == 0 || rank == world - 1), "who is in a group");
    const Tensor t = floats({3}, rank);
    back->broadcast(t, 0).wait();
    expect(t[0].item<int>() == world - 1, "broadcast in a group");
    if (two) {
      const Tensor s = floats({2}, rank + 1);
      two->all_reduce(s).wait();
      expect(s[0].item<int>() == world + 1, "all_reduce in a group");
    }
  }
  const std::vector<int> self = {0};
  const auto one = new_group(self);
  if (rank == 0) {
    const Tensor t = floats({3}, 5.0);
    one->all_reduce(t).wait();
    one->barrier();
    expect(t[0].item<int>() == 5, "a group of one");
  }
}

void check_all(int rank) {
  check_collectives(rank);
  check_values(rank);
  check_messages(rank);
  check_groups(rank);
}

}  // namespace

TEST_CASE("collectives between threads", "[threads]") {
  for (const int world : {2, 3, 4}) ranks::threads(world, check_all);
}

TEST_CASE("a rank of collectives", "[.rank]") { ranks::run_rank(check_all); }
TEST_CASE("collectives over Gloo") {
  for (const int world : {2, 3, 4}) ranks::Processes(world, "a rank of collectives").succeed();
}

TEST_CASE("a world of one") {
  ranks::threads(1, [](int rank) {
    check_collectives(rank);
    expect(distributed::world_size() == 1 && default_group().size() == 1, "size");
    const Tensor t = floats({2}, 3.0);
    all_reduce(t, ReduceOp::kAvg);
    expect(t[0].item<int>() == 3, "all_reduce");
    bool thrown = false;
    try {
      send(t, 0);
    } catch (const reel::Error&) {
      thrown = true;
    }
    expect(thrown, "send to oneself");
  });
}

TEST_CASE("tensors that collectives refuse") {
  ranks::threads(2, [](int) {
    const auto refused = [](const auto& f, const std::string& what) {
      try {
        f();
      } catch (const distributed::Error& error) {
        throw;
      } catch (const reel::Error& error) {
        expect(std::string(error.what()).find(what) != std::string::npos, error.what());
        return;
      }
      throw std::runtime_error("not refused: " + what);
    };
    const Tensor leaf = zeros({2}, {.requires_grad = true});
    refused([&] { all_reduce(leaf); }, "requires grad");
    refused([&] { all_reduce(Tensor()); }, "undefined");
    refused([&] { all_reduce(zeros({1}).expand({3})); }, "are the same");
    refused([&] { all_reduce(zeros({3}, {.dtype = kInt64}), ReduceOp::kAvg); }, "average of int64");
    refused([&] { all_reduce(zeros({3}, {.dtype = kBool})); }, "of bool");
    refused([&] { broadcast(zeros({3}), 2); }, "rank 2 of a group of 2");
    refused([&] { default_group().all_gather(zeros({3, 2}), zeros({2})); }, "expected float32 [2, 2]");
    refused([&] { new_group(std::vector<int>{0, 0}); }, "twice");
    // The group lives on.
    no_grad([&] { all_reduce(leaf); });
  });
}

TEST_CASE("a sampler knows its rank") {
  ranks::threads(2, [](int rank) {
    distributed::DistributedSampler sampler(10, {.shuffle = false});
    expect(sampler.order(0) == (rank == 0 ? std::vector<int64_t>{0, 2, 4, 6, 8} : std::vector<int64_t>{1, 3, 5, 7, 9}),
           "order of rank ", rank);
  });
}
