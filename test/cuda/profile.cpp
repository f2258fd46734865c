// What a profile says of GPUs: their kernels, copies and waits, and the ops that launched them.
#include "reel/profile.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "reel/batching.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "test/support/folder.h"

using namespace reel;
using profile::GpuEvent, profile::Launch, profile::Report;

namespace {

/// Sets a variable of the environment until it is destroyed.
struct Variable {
  const char* const name;
  Variable(const char* of, const char* value) : name(of) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
};

template <class F>
Report profiled(const F& work) {
  profile::start();
  work();
  return profile::stop();
}

/// Is there a GPU, and a profiler for it?
bool shows_gpus() {
  if (!cuda::is_available()) return false;
  const std::string note = profiled([] { ones({1}, {.device = kCUDA}); }).gpu_note;
  if (!note.empty()) WARN(note);
  return note.empty() || cuda::device_name() != "a CPU as an H100";
}
bool is_simulated() { return shows_gpus() && cuda::device_name() == "a CPU as an H100"; }

/// How many of a kind were launched by ops whose path begins, and ends, so.
int64_t count(const Report& report, GpuEvent::Kind kind, std::string_view begin, std::string_view end = "") {
  int64_t sum = 0;
  for (const Launch& one : report.launches())
    if (one.kind == kind && one.op.starts_with(begin) && one.op.ends_with(end)) sum += one.count;
  return sum;
}
constexpr auto kKernel = GpuEvent::Kind::kKernel, kCopy = GpuEvent::Kind::kCopy, kWait = GpuEvent::Kind::kWait;

struct Net : nn::Layer<Net> {
  nn::Linear fc{*this, "fc", 8, 4};
  Tensor forward(const Tensor& x) const { return tanh(fc(x)); }
};

}  // namespace

TEST_CASE("a profile has each kernel of a training step with the op that launched it", "[cuda]") {
  if (!shows_gpus()) return;
  Net net;
  net.to(kCUDA);
  optim::Adam adam(net.parameters());
  const Tensor x = randn({16, 8}, {.device = kCUDA});
  const auto step = [&] {
    const profile::Scope scope("step");
    adam.zero_grad();
    const Tensor loss = sum(net(x));
    loss.backward();
    adam.step();
    loss.item<float>();
  };
  step();
  const Report report = profiled([&] { step(), step(); });
  INFO(report.table(100));
  CHECK(report.gpu_note.empty());
  CHECK(count(report, kKernel, "step/Net/fc (Linear)", "/gemm") == 2);
  CHECK(count(report, kKernel, "step/Net/tanh") == 2);
  CHECK(count(report, kKernel, "step/backward/tanh") >= 2);
  CHECK(count(report, kKernel, "step/adam_update") == 2);
  CHECK(count(report, kKernel, "") == count(report, kKernel, "step/"));
  CHECK(count(report, kWait, "step") == 2);
  CHECK(count(report, kCopy, "step") == 2);
  for (const GpuEvent& e : report.gpu) {
    INFO(e.name << " of " << e.op);
    CHECK(e.begin >= 0);
    CHECK(e.begin <= e.end);
    CHECK(e.end <= report.seconds);
    CHECK((e.kind == kWait ? e.stream == -1 : e.device == 0));
    if (e.kind == kCopy) CHECK(e.bytes == 4);
    const size_t name = e.op.rfind('/') + 1;
    CHECK(std::any_of(report.events.begin(), report.events.end(), [&](const profile::Event& host) {
      return host.name == e.op.substr(name) && host.begin <= e.begin;
    }));
  }
  CHECK_THAT(report.table(), Catch::Contains("all kernels") && Catch::Contains("all waits of the host"));
  CHECK(profiled([] {}).gpu.empty());
}

TEST_CASE("a profile tells threads, streams, fibers and graphs apart", "[cuda][threads]") {
  if (!shows_gpus()) return;
  const Tensor x = ones({100}, {.device = kCUDA});
  const cuda::Stream first, second;
  const Report report = profiled([&] {
    const auto work = [&](const cuda::Stream& stream, const char* name, int times) {
      const cuda::StreamGuard guard(stream);
      const profile::Scope scope(name);
      for (int i = 0; i < times; ++i) exp(x);
    };
    std::thread other([&] { work(first, "one", 30); });
    work(second, "two", 50);
    other.join();
  });
  CHECK(count(report, kKernel, "one/exp") == 30);
  CHECK(count(report, kKernel, "two/exp") == 50);
  std::set<std::pair<std::string, int>> streams;
  for (const GpuEvent& e : report.gpu)
    if (e.kind == kKernel) streams.emplace(e.op, e.stream);
  CHECK(streams.size() == 2);
  CHECK(streams.begin()->second != streams.rbegin()->second);
  const Folder folder;
  report.save_trace(folder / "trace.json");
  std::set<int> named, used;
  nlohmann::json trace = nlohmann::json::parse(contents(folder / "trace.json"));
  for (auto& entry : trace["traceEvents"]) {
    if (entry["ph"] == "M") named.insert(entry["tid"].get<int>());
    if (entry["cat"] == "gpu kernel") used.insert(entry["tid"].get<int>());
  }
  CHECK(used.size() == 2);
  CHECK(used == named);

  const Report batched = profiled([&] {
    batching::map(std::vector<int>{1, 2, 3}, [&](int) {
      const profile::Scope scope("example");
      return sum(log(exp(x)));
    });
  });
  INFO(batched.table(100));
  CHECK(count(batched, kKernel, "") > 0);
  CHECK(count(batched, kKernel, "", "/exp") + count(batched, kKernel, "exp") > 0);

  cuda::Graph graph;
  const auto capture = [&] { graph.capture([&] { exp(log(x)); }); };
  capture();
  CHECK(count(profiled([&] { graph.replay(), graph.replay(); }), kKernel, "graph_replay") == 4);
  CHECK(count(profiled(capture), kKernel, "") == 0);  // it only records
}

TEST_CASE("a profile keeps what fills several buffers, and says what was lost", "[cuda]") {
  if (!shows_gpus()) return;
  constexpr int kMany = 10000;
  Tensor x = zeros({2}, {.device = kCUDA});
  const auto work = [&] {
    for (int i = 0; i < kMany; ++i) x += 1;
  };
  CHECK(count(profiled(work), kKernel, "add") == kMany);
  if (!is_simulated()) return;
  const Variable full("SIMT_CUPTI", "full");
  const Report report = profiled(work);
  CHECK(count(report, kKernel, "") < kMany);
  CHECK_THAT(report.table(), Catch::Contains("CUPTI has lost"));
}

TEST_CASE("a profile without CUPTI has the host's events and says so", "[cuda]") {
  const bool simulated = is_simulated();
  if (!shows_gpus()) return;
  const auto check = [](const char* variable, const char* value, const char* note) {
    const Variable set(variable, value);
    const Report report = profiled([] { exp(ones({3}, {.device = kCUDA})); });
    CHECK(report.gpu.empty());
    CHECK_THAT(report.gpu_note, Catch::StartsWith("GPU kernels are not shown: ") && Catch::Contains(note));
    CHECK_THAT(report.table(), Catch::Contains(report.gpu_note + '\n') && Catch::Contains("exp"));
  };
  check("REEL_CUPTI", "/nowhere/libcupti.so", "/nowhere/libcupti.so: cannot open shared object file");
  check("REEL_CUPTI", "libm.so.6", "CUPTI has no function cupti");
  if (simulated) {
    check("SIMT_CUPTI", "old", "CUPTI's version is 26, and reel was built with 1");
    check("SIMT_CUPTI", "busy", "cuptiActivityEnable: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
  }
  CHECK(profiled([] { exp(ones({3}, {.device = kCUDA})); }).gpu.size() >= 2);
}
