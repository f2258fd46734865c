#include "lib/base/fibers.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "reel/tensor.h"
#include "test/support/pch.h"

using namespace reel;

namespace {

/// A fiber that calls `step` again and again, and goes back to its maker after each call.
struct Stepper {
  explicit Stepper(std::function<void()> f, size_t bytes = 256 << 10)
      : step(std::move(f)), maker(Fiber::running()), fiber(&main, this, bytes) {}
  static void main(void* self) {
    while (true) static_cast<Stepper*>(self)->step(), static_cast<Stepper*>(self)->maker.switch_to();
  }
  void run() { fiber.switch_to(); }
  std::function<void()> step;
  Fiber& maker;
  Fiber fiber;
};

[[gnu::noinline]] int descend(int depth) {
  volatile char frame[256];
  frame[0] = 1;
  return depth == 0 ? 0 : descend(depth - 1) + frame[0];
}

/// Recurses with frames of so many bytes, of which the innermost alone are written.
template <size_t bytes>
[[gnu::noinline]] int leap(int depth) {
  volatile char frame[bytes];
  frame[0] = 1;
  return depth == 0 ? 0 : leap<bytes>(depth - 1) + frame[0];
}

/// Does a process end by a signal, or an error that a sanitizer reports, where f runs in a fiber?
bool dies(size_t stack_bytes, const std::function<void()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    close(2);
    std::signal(SIGSEGV, SIG_DFL);
    std::vector<std::unique_ptr<Stepper>> fibers;  // stacks that lie above and below each other
    for (int i = 0; i < 8; ++i) fibers.push_back(std::make_unique<Stepper>(f, stack_bytes));
    fibers[0]->run();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace

TEST_CASE("a fiber continues where it was", "[cpu]") {
  std::vector<int> order;
  Fiber& own = Fiber::running();
  int local = 0;
  Stepper fiber([&] {
    for (int i = 0; i < 3; ++i) order.push_back(10 + ++local), own.switch_to();
  });
  for (int i = 0; i < 3; ++i) fiber.run(), order.push_back(i);
  CHECK(order == std::vector{11, 0, 12, 1, 13, 2});
  CHECK(&Fiber::running() == &own);
}

TEST_CASE("a fiber has as deep a stack as it was given", "[cpu]") {
  int depth = 0;
  Stepper fiber([&] { depth = descend(10000); }, 16 << 20);
  fiber.run();
  CHECK(depth == 10000);
}

TEST_CASE("each fiber has exceptions of its own", "[cpu]") {
  Fiber& own = Fiber::running();
  std::vector<std::string> caught;
  const auto handle = [&](std::string name) {
    return [&, name] {
      try {
        throw std::runtime_error(name);
      } catch (const std::exception&) {
        own.switch_to();  // while this one is being handled, the other fiber handles its own
        try {
          throw;
        } catch (const std::exception& error) {
          caught.push_back(error.what());
        }
      }
    };
  };
  Stepper first(handle("first")), second(handle("second"));
  first.run(), second.run();
  CHECK(std::current_exception() == nullptr);
  first.run(), second.run();
  CHECK(caught == std::vector<std::string>{"first", "second"});

  struct Witness {
    Fiber& own;
    int& during;
    ~Witness() { during = std::uncaught_exceptions(), own.switch_to(); }
  };
  int during = -1;
  Stepper unwinding([&] {
    try {
      const Witness witness{own, during};
      throw 1;
    } catch (int) {
    }
  });
  unwinding.run();
  CHECK(during == 1);
  CHECK(std::uncaught_exceptions() == 0);
  unwinding.run();
}

TEST_CASE("a fiber that overflows its stack ends the process", "[cpu]") {
  CHECK(dies(256 << 10, [] { descend(1 << 20); }));
}

TEST_CASE("a fiber that overflows its stack by large frames ends the process", "[cpu]") {
  constexpr size_t kStack = 2 << 20;
  const auto overflow = []<size_t bytes>(std::integral_constant<size_t, bytes>) {
    return dies(kStack, [] { leap<bytes>(kStack / bytes + 1); });  // just so deep
  };
  CHECK(overflow(std::integral_constant<size_t, 4 << 10>()));
  CHECK(overflow(std::integral_constant<size_t, 20'000>()));
  CHECK(overflow(std::integral_constant<size_t, 64 << 10>()));
  CHECK(overflow(std::integral_constant<size_t, 256 << 10>()));
  CHECK(overflow(std::integral_constant<size_t, 1 << 20>()));
}

TEST_CASE("a trimmed fiber keeps what is in use, and runs on", "[cpu]") {
  Fiber& own = Fiber::running();
  int sum = 0;
  Stepper fiber(
      [&] {
        volatile int local[1000];
        for (int i = 0; i < 1000; ++i) local[i] = i;
        descend(10000);
        own.switch_to();
        for (int i = 0; i < 1000; ++i) sum += local[i];
      },
      8 << 20);
  fiber.run();
  fiber.fiber.trim(0);
  fiber.run();
  CHECK(sum == 999 * 500);
  fiber.fiber.trim(1 << 30);
  fiber.run(), fiber.run();
  CHECK(sum == 2 * 999 * 500);
}

TEST_CASE("fibers of several threads", "[threads][cpu]") {
  std::vector<std::thread> threads;
  std::vector<int> counts(4);
  for (int& count : counts)
    threads.emplace_back([&count] {
      std::vector<std::unique_ptr<Stepper>> fibers;
      for (int i = 0; i < 50; ++i) fibers.push_back(std::make_unique<Stepper>([&count] { ++count; }));
      for (int round = 0; round < 20; ++round)
        for (const auto& fiber : fibers) fiber->run();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(counts == std::vector<int>(4, 1000));
}
