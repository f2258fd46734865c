// What a program may call while it ends: in destructors of static and thread_local objects, in handlers of atexit and
// of pthread keys, and in threads that are left. Each place is a process of its own, which runs this program again.
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/sanitizers.h"
#include "reel/onnx.h"
#include "reel/reel.h"
#include "reel/tensorboard.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

using Values = std::vector<double>;
struct EntryPoint {
  const char* name;
  std::function<Values()> call;  // the same values in all calls, but for rounding
  double tolerance = 1e-3;       // relative to 1 + the value
};
// The distance of neighbouring bfloat16: a process that is ending sums without oneDNN, in another order.
constexpr double kBFloat16Step = 0x1p-7;

Values values_of(const Tensor& x) { return x.detach().to(kFloat64).contiguous().reshape({-1}).to_vector<double>(); }
Tensor drawn(Shape shape) { return manual_seed(5), randn(shape); }
Tensor leaf(Shape shape) { return drawn(shape).requires_grad_(); }
std::filesystem::path file(const char* name) {
  const char* const folder = std::getenv("REEL_TEST_FOLDER");
  static std::atomic<int> files = 0;
  return std::filesystem::path(folder) / (std::to_string(files++) + name);
}
Values trained(nn::Module& net, const std::function<Tensor()>& loss) {
  optim::Adam adam(net.parameters());
  loss().backward();
  adam.step();
  return values_of(loss());
}

// Never destroyed.
const std::vector<EntryPoint>& entry_points() {
  static const auto& all = *new std::vector<EntryPoint>{
      {"pointwise", [] { return values_of(exp(drawn({40})) * 2); }},
      {"backward",
       [] {
         Tensor w = leaf({3});
         (w * w).sum().backward();
         return values_of(w.grad());
       }},
      {"deferred gradients",
       [] {
         Tensor w = leaf({9, 7});
         const Tensor x = randn({2, 7});
         for (int i = 0; i < 4; ++i) linear(x, w).square().sum().backward();
         return values_of(w.grad());
       }},
      {"grad",
       [] {
         Tensor w = leaf({3});
         return values_of(grad({(w * w).sum()}, {w})[0]);
       }},
      {"grad of grad",
       [] {
         Tensor w = leaf({3});
         const Tensor g = grad({(w * w * w).sum()}, {w}, {}, {.create_graph = true})[0];
         g.sum().backward();
         return values_of(w.grad());
       }},
      {"hooks",
       [] {
         Tensor w = leaf({3}), y = w * 2;
         y.register_hook([](const Tensor& g) { return g * 2; });
         y.sum().backward();
         return values_of(w.grad());
       }},
      {"checkpoint",
       [] {
         Tensor w = leaf({3});
         checkpoint([](const std::vector<Tensor>& v) { return std::vector{v[0] * v[0]}; }, {w})[0].sum().backward();
         return values_of(w.grad());
       }},
      {"anomaly",
       [] {
         const DetectAnomaly detect;
         Tensor w = leaf({3});
         (w * 2).sum().backward();
         return values_of(w.grad());
       }},
      {"mm",
       [] {
         return values_of(mm(drawn({300, 300}), randn({300, 300})));
       }},
      {"mm of transposed",
       [] {
         return values_of(mm(drawn({200, 300}).t(), randn({300, 200}).t()));
       }},
      {"mm of float64",
       [] {
         return values_of(mm(drawn({200, 200}).to(kFloat64), randn({200, 200}).to(kFloat64)));
       }},
      {"mm of bfloat16",
       [] {
         return values_of(mm(drawn({256, 256}).to(kBFloat16), randn({256, 256}).to(kBFloat16)).to(kFloat32));
       },
       kBFloat16Step},
      {"conv of bfloat16",
       [] {
         return values_of(conv2d(drawn({2, 16, 9, 9}).to(kBFloat16), randn({16, 16, 3, 3}).to(kBFloat16)).to(kFloat32));
       },
       kBFloat16Step},
      {"bmm",
       [] {
         return values_of(bmm(drawn({3, 90, 90}), randn({3, 90, 90})));
       }},
      {"conv",
       [] {
         Tensor x = leaf({2, 3, 16, 16}), w = randn({8, 3, 3, 3}).requires_grad_();
         conv2d(x, w).square().mean().backward();
         Values values = values_of(x.grad()), more = values_of(w.grad());
         values.insert(values.end(), more.begin(), more.end());
         return values;
       }},
      {"large conv",
       [] {
         nn::Conv2d conv(3, 32, 3);
         for (Tensor& p : conv.parameters()) NoGrad(), p.fill_(.01);
         const NoGrad guard;
         return values_of(conv(drawn({8, 3, 40, 40})));
       }},
      {"lstm",
       [] {
         manual_seed(5);
         nn::LSTM lstm(4, 5);
         return values_of(lstm(randn({3, 2, 4})).output);
       }},
      {"training",
       [] {
         manual_seed(5);
         nn::Sequential net(nn::Linear(4, 400), nn::ReLU(), nn::Linear(400, 1));
         const Tensor x = randn({40, 4});
         return trained(net, [&] { return net(x).square().mean(); });
       }},
      {"average",
       [] {
         Tensor w = drawn({3});
         optim::StochasticWeightAverage average({w});
         average.update();
         return values_of(w);
       }},
      {"loader",
       [] {
         const std::vector<int> numbers(20, 1);
         double sum = 0;
         for (const int workers : {0, 2}) {
           data::DataLoader loader(numbers, {.batch_size = 3, .shuffle = true, .workers = workers});
           for ([[maybe_unused]] const auto& batch : loader) ++sum;
         }
         return Values{sum};
       }},
      {"map",
       [] {
         manual_seed(5);
         nn::Linear layer(4, 5);
         const std::vector<Tensor> xs{randn({4}), randn({4}), randn({4})};
         const auto sums = batching::map(xs, [&](const Tensor& x) { return layer(x.view({1, 4})).sum(); });
         stack(sums).sum().backward();
         return values_of(layer.weight.grad());
       }},
      {"safetensors",
       [] {
         const auto path = file("l.safetensors");
         io::save(StateDict{{"w", drawn({3})}}, path);
         return values_of(io::load(path).at("w"));
       }},
      {"error",
       [] {
         try {
           mm(randn({2, 3}), randn({4, 5}));
         } catch (const Error& e) {
           return Values{std::strstr(e.what(), "mm") ? 1. : 0.};
         }
         return Values{0.};
       }},
      {"print",
       [] {
         std::ostringstream text;
         text << ones({20, 20}) << nn::Linear(2, 3);
         return Values{static_cast<double>(text.str().size())};
       }},
      {"sort", [] { return values_of(sort(drawn({5000})).values); }},
      {"linalg",
       [] {
         const Tensor a = drawn({40, 40});
         return values_of(linalg::solve(mm(a, a.t()) + 40 * eye(40), randn({40, 3})));
       }},
      {"svd",
       [] {
         return values_of(linalg::svd(drawn({20, 20})).s);
       }},
      {"orthogonal_",
       [] {
         return values_of(nn::init::orthogonal_(drawn({8, 4})));
       }},
      {"profile",
       [] {
         static std::mutex one;  // there is one recording at a time
         const std::lock_guard lock(one);
         profile::start();
         (drawn({3}) * 2).sum();
         return Values{profile::stop().events.empty() ? 0. : 1.};
       }},
      {"autocast",
       [] {
         const amp::Autocast guard(kBFloat16);
         return values_of(mm(drawn({4, 4}), randn({4, 4})));
       },
       kBFloat16Step},
      {"onnx",
       [] {
         manual_seed(5);
         nn::Sequential net(nn::Linear(4, 2), nn::Tanh());
         const auto path = file("l.onnx");
         onnx::save(net, {zeros({1, 4})}, path);
         auto model = onnx::load(path);
         return values_of(model(ones({1, 4}))[0]);
       }},
      {"tensorboard",
       [] {
         tensorboard::SummaryWriter log(file("tb"));
         log.add_scalar("a", 1.0, 1);
         log.add_histogram("h", drawn({100}), 1);
         return Values{1};
       }},
      {"random", [] { return values_of(bernoulli(full({10}, 0.5) + 0 * drawn({10}))); }},
      {"threads",
       [] {
         std::vector<double> sums(1000);
         parallel_for(1000, 1, [&](int64_t i, int64_t) { sums[static_cast<size_t>(i)] = static_cast<double>(i); });
         std::thread([] { (leaf({3}) * 2).sum().backward(); }).join();
         return sums;
       }},
      {"progress",
       [] {
         std::FILE* const null = std::fopen("/dev/null", "w");
         for ([[maybe_unused]] const int i : Progress(std::vector{1, 2}, {.file = null})) drawn({2});
         std::fclose(null);
         return Values{1};
       }},
      {"memory", [] { return empty_cache(), Values{memory_stats().in_use >= 0 ? 1. : 0.}; }},
      {"crf",
       [] {
         return Values{static_cast<double>(crf_bio_constraints({"O", "B-X", "I-X"}).transitions.numel())};
       }},
  };
  return all;
}

// What each has given at first.
std::map<std::string, Values>& expected() {
  static auto& values = *new std::map<std::string, Values>;
  return values;
}
void say(const std::string& text) { static_cast<void>(!::write(STDOUT_FILENO, text.data(), text.size())); }

/// Calls all, and ends the process if one of them does not give what it gave before.
void call_all(const char* where) {
  const EnableGrad recording;  // exit() ends no guard that is around it, as a loader's worker has one
  for (const EntryPoint& entry : entry_points()) {
    if (std::getenv("REEL_PROFILE") && std::strcmp(entry.name, "profile") == 0) continue;  // the process is recorded
    say(std::string(where) + ": " + entry.name);
    Values values;
    try {
      values = entry.call();
    } catch (const std::exception& e) {
      say(std::string(" has thrown ") + e.what() + "\n"), ::_exit(1);
    }
    const Values& before = expected().try_emplace(entry.name, values).first->second;
    const auto near = [&](double a, double b) { return std::abs(a - b) <= entry.tolerance * (1 + std::abs(b)); };
    if (!std::ranges::equal(values, before, near)) say(" has another value\n"), ::_exit(1);
    say("\n");
  }
  say(std::string(where) + " done\n");
}

struct Late {
  const char* where = nullptr;
  ~Late() {
    if (where) call_all(where);
  }
};
// Made before anything of the library's that is made when it is first needed: destroyed after that.
Late late_static;
thread_local Late late_of_thread;
pthread_key_t key;

std::atomic<bool> may_exit = false;
/// Whoever reads its sample 1 ends the process, once that may be.
struct Exits {
  int64_t size() const { return 2; }
  int get(int64_t i) const {
    if (i == 0) return 0;
    while (!may_exit) std::this_thread::yield();
    std::exit(0);
  }
};

/// Runs the hidden test case below in a process of its own, and returns what it printed, and its status.
std::pair<std::string, int> run(const char* place) {
  const Folder folder;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSanitized ? 300 : 60);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]), ::close(ends[1]);
    ::setenv("REEL_TEST_PLACE", place, 1);
    ::setenv("REEL_TEST_FOLDER", folder.path.c_str(), 1);
    ::execl("/proc/self/exe", "reel_tests", "[exit_child]", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t bytes; (bytes = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(bytes));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {text, status};
}

}  // namespace

TEST_CASE("a process that ends", "[.][exit_child]") {
  const char* const place = std::getenv("REEL_TEST_PLACE");
  if (!place) return;
  const std::string_view where = place;
  set_num_threads(2);
  if (where == "static") {
    late_static.where = place;
    call_all("main");
  } else if (where == "atexit") {
    std::atexit([] { call_all("atexit"); });
    call_all("main");
  } else if (where == "exit in a thread") {
    late_static.where = place;
    std::thread([&] {
      late_of_thread.where = "thread_local";
      call_all("thread");
      std::exit(0);
    }).join();
  } else if (where == "exit in a worker") {
    late_static.where = place;
    call_all("main");
    static data::DataLoader loader(Exits(), {.workers = 2});
    static auto batch = loader.begin();
    may_exit = true;
    while (true) ::pause();  // without the loader and its iterator, which the worker destroys
  } else if (where == "thread_local") {
    std::thread([&] {
      late_of_thread.where = place;
      call_all("thread");
    }).join();
    late_of_thread.where = "thread_local of the main thread";
    call_all("main");
  } else if (where == "key") {
    pthread_key_create(&key, [](void*) { call_all("key"); });
    std::thread([&] {
      pthread_setspecific(key, place);
      call_all("thread");
    }).join();
  } else if (where == "detached") {  // once all values are known
    call_all("main");
    for (int i = 0; i < 3; ++i)
      std::thread([i] {
        for (size_t at = static_cast<size_t>(i);; at += 5) {
          const EntryPoint& entry = entry_points()[at % entry_points().size()];
          if (std::strcmp(entry.name, "profile") != 0) entry.call();
        }
      }).detach();
    for (int i = 0; i < 2; ++i)
      std::thread([] {
        for (int size = 250;; size = size == 600 ? 250 : size + 1) {
          mm(randn({size, size}), randn({size, size}));
          nn::Conv2d(3, 8, 3)(randn({2, 3, size / 9, 32}));
        }
      }).detach();
    const char* const wait = std::getenv("REEL_TEST_MILLISECONDS");
    std::this_thread::sleep_for(std::chrono::milliseconds(wait ? std::atoi(wait) : 50));
  }
}

TEST_CASE("every entry point works while the process or its thread ends", "[cpu]") {
  const char* const place = GENERATE("static", "atexit", "exit in a thread", "exit in a worker", "thread_local", "key");
  const auto [text, status] = run(place);
  CAPTURE(place, text);
  CHECK(status == 0);
  CHECK(text.find(std::string(place) + " done") != std::string::npos);
}

TEST_CASE("a process whose detached threads still compute ends as any other", "[cpu]") {
  for (int milliseconds = 1; milliseconds < 60; milliseconds += kSanitized ? 30 : 6) {
    ::setenv("REEL_TEST_MILLISECONDS", std::to_string(milliseconds).c_str(), 1);
    if (milliseconds % 4 == 3)
      ::setenv("REEL_PROFILE", "/dev/null", 1);  // it is written while threads go on
    else
      ::unsetenv("REEL_PROFILE");
    const auto [text, status] = run("detached");
    ::unsetenv("REEL_PROFILE");
    CAPTURE(milliseconds, text);
    CHECK(status == 0);
  }
}
