// Every allocation of the heap fails, one at a time and from there on, in training, second derivatives, loading of data
// and files: each must leave as a reel::Error, lose nothing, and the same call must then give the same bits as if
// nothing had happened. Convolutions are left out: oneDNN ends the process when a small allocation of its own fails.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "reel/reel.h"

using namespace reel;

// ---- the faults -----------------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> active{false};  // in a call of the library
std::atomic<long> countdown{0};   // allocations until one fails; 0: none does
std::atomic<bool> stays{false};   // and so do all that follow
std::atomic<bool> fired{false};   // one has
std::atomic<long> living{0};      // blocks that have not been freed

bool fails() {
  if (!active || countdown == 0) return false;
  if (countdown == 1) {
    if (!stays) countdown = 0;
    return fired = true;
  }
  --countdown;
  return false;
}

void* allocate(size_t bytes, size_t alignment) {
  void* const block = fails() ? nullptr : ::memalign(alignment, bytes);
  if (block) ++living;
  return block;
}
void* allocate_or_throw(size_t bytes, size_t alignment) {
  if (void* const block = allocate(bytes, alignment)) return block;
  throw std::bad_alloc();
}
void release(void* block) {
  if (block) --living;
  std::free(block);
}

constexpr size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

void* operator new(size_t bytes) { return allocate_or_throw(bytes, kUsual); }
void* operator new[](size_t bytes) { return allocate_or_throw(bytes, kUsual); }
void* operator new(size_t bytes, std::align_val_t at) { return allocate_or_throw(bytes, static_cast<size_t>(at)); }
void* operator new[](size_t bytes, std::align_val_t at) { return allocate_or_throw(bytes, static_cast<size_t>(at)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, kUsual); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, kUsual); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete[](void* block, size_t) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { release(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { release(block); }
// Slabs of tensors come from here.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return fails() ? nullptr : ::memalign(alignment, bytes);
}

// ---- what is done meanwhile -----------------------------------------------------------------------------------------

namespace {

int problems = 0;
void problem(const char* what, const char* detail) {
  ++problems;
  std::fprintf(stderr, "%s: %s\n", what, detail);
}

/// Calls f, and once more if it has thrown. f allocates nothing itself: that would be its own std::bad_alloc.
template <class F>
void attempt(const F& f) {
  active = true;
  try {
    f();
    active = false;
    return;
  } catch (const Error& error) {
    active = false;
  } catch (const std::exception& error) {
    active = false;
    problem("no reel::Error, but", error.what());
  }
  countdown = 0;
  f();
}

using Values = std::vector<double>;
void append(Values& values, const Tensor& x) {
  const auto more = x.to_vector<double>();
  values.insert(values.end(), more.begin(), more.end());
}

/// A model of trees, with sparse gradients.
Values train() {
  struct Model : nn::Module {
    nn::Embedding words{*this, "words", 20, 4, {.sparse = true}};
    nn::ChildSumTreeLSTM cell{*this, "cell", 4, 5};
    nn::Linear out{*this, "out", 5, 3};
  };
  std::optional<Model> model;
  std::optional<optim::Adam> adam;
  attempt([&] { manual_seed(1), model.emplace(); });
  attempt([&] { adam.emplace(model->parameters(), optim::AdamOptions{.lr = 0.1}); });
  for (uint64_t step = 0; step < 2; ++step) {
    attempt([&] {
      manual_seed(step);
      adam->zero_grad();
      const Tensor x = dropout(model->words(tensor({1, 2, 2, 7})), 0.2, true);
      const CellState left = model->cell(x.narrow(0, 0, 1)), right = model->cell(x.narrow(0, 1, 1));
      const CellState root = model->cell(x.narrow(0, 2, 1), {left, right});
      const Tensor all = cat({left.h, right.h, root.h}, 0);
      cross_entropy(model->out(all), tensor({0, 2, 1})).backward();
    });
    attempt([&] { optim::clip_grad_norm(model->parameters(), 0.5); });
    attempt([&] { adam->step(); });
  }
  Values values;
  for (const Tensor& p : model->parameters()) append(values, p);
  return values;
}

/// Second derivatives, hooks, a checkpoint, an op of the user's and a graph that is walked twice.
Values differentiate() {
  Tensor w, x, ids, loss;
  std::vector<Tensor> grads;
  attempt([&] {
    manual_seed(3);
    w = randn({4, 4}).requires_grad_();
    x = randn({4}).requires_grad_();
    w.register_hook([](const Tensor& g) { return g * 2; });
  });
  const std::vector<Tensor> inputs{w, x};
  attempt([&] { ids = tensor({1, 1, 3}); });
  const std::vector<TensorIndex> twice{ids};
  attempt([&] {
    const Tensor h =
        checkpoint([](const std::vector<Tensor>& in) { return std::vector{tanh(in[0].matmul(in[1]))}; }, inputs)[0];
    loss = logsumexp(h * h, 0) + h.index(twice).pow(3).sum();
  });
  attempt([&] { grads = grad({loss}, {w, x}, {}, {.create_graph = true}); });
  attempt([&] {
    w.set_grad({}), x.set_grad({});
    (grads[0].square().sum() + grads[1].exp().sum()).backward({}, true);
  });
  attempt([&] { loss.backward({}, true); });
  Values values;
  for (const Tensor& leaf : {w, x}) append(values, leaf.grad());
  return values;
}

/// Samples from two threads.
Values load_data() {
  Tensor rows, labels;
  attempt([&] { rows = arange(60.).view({20, 3}), labels = arange(20); });
  Values values;
  for (const int workers : {0, 2}) {
    double sum = 0;
    attempt([&] {
      sum = 0;
      data::DataLoader loader(data::TensorDataset(rows, labels),
                              {.batch_size = 3, .shuffle = true, .workers = workers, .seed = 5});
      for (const auto& [x, y] : loader) sum = 2 * sum + x.sum().item<double>() * y.sum().item<double>();
    });
    values.push_back(sum);
  }
  return values;
}

std::filesystem::path folder;

/// Files of each kind that is written.
Values keep() {
  const std::filesystem::path file = folder / "kept.safetensors", checkpoint_file = folder / "checkpoint.safetensors",
                              array = folder / "kept.npz";
  const io::Metadata metadata{{"epoch", "1"}};
  Values values;
  std::optional<nn::Linear> net;
  std::optional<optim::SGD> sgd;
  attempt([&] { manual_seed(4), net.emplace(3, 2); });
  attempt([&] { sgd.emplace(net->parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9}); });
  attempt([&] { io::save(*net, file); });
  attempt([&] { io::save_npz(net->state_dict(), array); });
  for (int i = 0; i < 2; ++i)
    attempt([&] {
      io::Checkpoint checkpoint;
      checkpoint.add("model", *net).add("optimizer", *sgd);
      checkpoint.save(checkpoint_file, metadata, {.keep = 2});
    });
  attempt([&] { no_grad([&] { net->weight.fill_(7); }); });
  attempt([&] {
    io::Checkpoint checkpoint;
    checkpoint.add("model", *net).add("optimizer", *sgd);
    checkpoint.load(checkpoint_file);
  });
  append(values, net->weight);
  StateDict dict;
  attempt([&] { dict = io::load(file); });
  for (const auto& [name, tensor] : dict) append(values, tensor);
  attempt([&] { dict = io::load_npz(array); });
  for (const auto& [name, tensor] : dict) append(values, tensor);
  attempt([&] { io::load(*net, file); });
  append(values, net->bias);
  return values;
}

// ---- the cases ------------------------------------------------------------------------------------------------------

using Program = Values (*)();
enum Outcome { kFine, kWrong, kUnreached };

/// Runs the program with this fault in a process of its own, and again without it.
Outcome run_with_fault(Program program, const Values* expected, long nth, bool for_good) {
  const pid_t child = ::fork();
  if (child == 0) {
    const long before = living;
    countdown = nth, stays = for_good;
    Values result = program();
    countdown = 0;
    const int64_t in_use = memory_stats().in_use;
    if (program() != result || (expected && result != *expected)) problem("wrong", "another result after the fault");
    result = Values();
    if (memory_stats().in_use != in_use) problem("leak", "of a tensor");
    // What a process allocates once was there before.
    if (expected && living != before) problem("leak: blocks of the heap", std::to_string(living - before).c_str());
    ::_exit(problems ? kWrong : fired ? kFine : kUnreached);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) ? Outcome(WEXITSTATUS(status)) : kWrong;
}

}  // namespace

/// allocations [STEP]: every STEPth allocation fails, all if it is not given.
int main(int argc, char** argv) {
  std::string name = (std::filesystem::temp_directory_path() / "reel-allocations-XXXXXX").string();
  folder = ::mkdtemp(name.data());
  const long step = argc > 1 ? std::max(std::atol(argv[1]), 1L) : 1;
  int wrong = 0, cases = 0;
  const std::pair<const char*, Program> programs[] = {
      {"train", train}, {"differentiate", differentiate}, {"load_data", load_data}, {"keep", keep}};
  for (const bool warm : {false, true})
    for (const auto& [title, program] : programs) {
      Values expected;
      if (warm)
        for (int i = 0; i < 3; ++i) expected = program();
      for (const bool for_good : {false, true})
        for (long nth = 1;; nth += step) {
          const Outcome outcome = run_with_fault(program, warm ? &expected : nullptr, nth, for_good);
          if (outcome == kUnreached) break;
          ++cases;
          if (outcome == kFine) continue;
          ++wrong;
          std::fprintf(stderr, "%s: allocation %ld%s of a %s process\n", title, nth,
                       for_good ? " and all after it" : "", warm ? "warm" : "cold");
        }
    }
  std::filesystem::remove_all(folder);
  std::printf("%d cases, %d of them wrong\n", cases, wrong);
  return wrong || cases < 100 ? 1 : 0;
}
