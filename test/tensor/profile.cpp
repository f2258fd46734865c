#include "reel/profile.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/device/kernels/table.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/folder.h"

using namespace reel;

namespace {

const profile::Row* find(const std::vector<profile::Row>& rows, const std::string& name, bool backward) {
  for (const profile::Row& row : rows)
    if (row.name == name && row.backward == backward) return &row;
  return nullptr;
}

struct Net : nn::Module {
  nn::Linear fc{*this, "fc", 8, 4};
};

}  // namespace

TEST_CASE("a profile counts kernels, rules, layers and scopes", "[cpu]") {
  const Net net;
  const Tensor x = randn({16, 8});
  profile::start();
  {
    const profile::Scope scope("step");
    for (int i = 0; i < 3; ++i) sum(tanh(net.fc(x))).backward();
  }
  const profile::Report report = profile::stop();
  CHECK_FALSE(profile::running());
  const std::vector<profile::Row> rows = report.rows();
  const auto check = [&](const char* name, profile::Kind kind, bool backward, int64_t calls) {
    INFO(name);
    const profile::Row* row = find(rows, name, backward);
    REQUIRE(row);
    CHECK(row->kind == kind);
    CHECK(row->calls == calls);
    CHECK(row->self >= 0);
    CHECK(row->self <= row->total);
  };
  check("step", profile::Kind::kScope, false, 1);
  check("fc (Linear)", profile::Kind::kLayer, false, 3);
  check("gemm", profile::Kind::kKernel, false, 3);
  check("backward", profile::Kind::kRule, true, 3);
  check("tanh", profile::Kind::kKernel, false, 3);
  CHECK(find(rows, "tanh", false)->bytes == 3 * 2 * 16 * 4 * 4);
  double self = 0;
  for (const profile::Row& row : rows) self += row.self;
  CHECK(self == Approx(find(rows, "step", false)->total));  // nothing is counted twice
  CHECK(self <= report.seconds);
  CHECK_THAT(report.table(2),
             Catch::Contains("self ms") && Catch::Contains("more") && Catch::Contains("outside of all"));
}

TEST_CASE("a profile has each thread's events, and the trace is JSON with the memory in use", "[threads][cpu]") {
  profile::start();
  Tensor kept;
  std::thread other([&] { kept = exp(ones({1000})); });
  other.join();
  const Tensor y = log(kept);
  const profile::Report report = profile::stop();
  int threads = 0;
  for (const profile::Event& event : report.events) threads = std::max(threads, event.thread + 1);
  CHECK(threads == 2);
  const Folder folder;
  report.save_trace(folder / "trace.json");
  const nlohmann::json trace = nlohmann::json::parse(contents(folder / "trace.json"));
  bool memory = false, kernel = false;
  for (const auto& entry : trace["traceEvents"]) {
    memory |= entry["name"] == "memory" && entry["args"]["bytes"].get<int64_t>() >= 4000;
    kernel |= entry["name"] == "log" && entry["cat"] == "kernel" && entry["args"]["bytes"] == 8000;
  }
  CHECK(memory);
  CHECK(kernel);
  // Of a large table only the rows that are looked up count.
  const Tensor table = ones({10000, 10});
  profile::start();
  index_select(table, 0, tensor({1, 2}));
  const std::vector<profile::Row> rows = profile::stop().rows();
  CHECK(find(rows, "index_select", false)->bytes == 2 * 80 + 16);
}

TEST_CASE("recordings do not nest, and one that begins inside a scope leaves it out") {
  CHECK_THROWS_WITH(profile::stop(), "profile::stop: nothing is recorded");
  profile::start();
  CHECK_THROWS_WITH(profile::start(), "profile::start: something is recorded already");
  {
    const profile::Scope scope("first");
    CHECK(profile::stop().events.empty());
    profile::start();
  }
  const profile::Report report = profile::stop();
  CHECK(report.events.empty());
  CHECK(report.rows().empty());
}

TEST_CASE("every kernel is recorded") {
  for (const Device device : {kCPU, kCUDA}) {
    if (device == kCUDA && !cuda::is_available()) continue;
    profile::start();
    const KernelTable& recorded = kernels_on(device);
    profile::stop();
    const KernelTable& plain = kernels_on(device);
    using Entry = void (*)();
    constexpr size_t kEntries = sizeof(KernelTable) / sizeof(Entry);
    static_assert(sizeof(KernelTable) % sizeof(Entry) == 0);
    Entry mine[kEntries], others[kEntries];
    std::memcpy(mine, &recorded, sizeof mine), std::memcpy(others, &plain, sizeof others);
    size_t same = 0;
    for (size_t i = 0; i < kEntries; ++i) same += mine[i] && mine[i] == others[i];
    CHECK(same == 0);
  }
}
