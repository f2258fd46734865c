// Every allocation of the heap fails, one at a time and from there on, in training, second derivatives, loading of
// data, files and each op of the table with its gradients: each must leave as an OutOfMemoryError
// (memory of tensors) or a std::bad_alloc (any other), lose nothing, and the same
// call must then give the same bits as if nothing had happened. Convolutions are left out: oneDNN ends the
// process when a small allocation of its own fails.
#include <execinfo.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "reel/reel.h"
#include "test/support/op_table.h"

using namespace reel;

// ---- the faults -----------------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> active{false};  // in a call of the library
std::atomic<long> countdown{0};   // allocations until one fails; 0: none does
std::atomic<bool> stays{false};   // and so do all that follow
std::atomic<bool> fired{false};   // one has
// Blocks that have not been freed, by their size in words.
constexpr size_t kSizes = 256;
std::atomic<long> living[kSizes];
std::atomic<long>& living_like(void* block) {
  return living[std::min(::malloc_usable_size(block) / sizeof(void*), kSizes - 1)];
}

// Where the first failed, for addr2line.
void* frames[16];
int num_frames = 0;

bool fails() {
  if (!active || countdown == 0) return false;
  if (countdown == 1) {
    if (!stays) countdown = 0;
    if (!fired.exchange(true)) num_frames = ::backtrace(frames, std::size(frames));
    return true;
  }
  --countdown;
  return false;
}

void* allocate(size_t bytes, size_t alignment) {
  void* const block = fails() ? nullptr : ::memalign(alignment, bytes);
  if (block) ++living_like(block);
  return block;
}
void* allocate_or_throw(size_t bytes, size_t alignment) {
  if (void* const block = allocate(bytes, alignment)) return block;
  throw std::bad_alloc();
}
void release(void* block) {
  if (block) --living_like(block);
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
  std::fprintf(stderr, "%s: %s; what failed:\n", what, detail);
  ::backtrace_symbols_fd(frames, num_frames, 2);
}

/// Calls f, and once more if it has thrown.
template <class F>
void attempt(const F& f) {
  active = true;
  try {
    f();
    active = false;
    return;
  } catch (const OutOfMemoryError&) {
    active = false;
  } catch (const std::bad_alloc&) {
    active = false;
  } catch (const std::exception& error) {
    active = false;
    problem("neither OutOfMemoryError nor std::bad_alloc, but", error.what());
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
    (grads[0].square().sum() + grads[1].exp().sum()).backward({}, {.retain_graph = true});
  });
  attempt([&] { loss.backward({}, {.retain_graph = true}); });
  Values values;
  for (const Tensor& leaf : {w, x}) append(values, leaf.grad());
  return values;
}

/// A tensor that messages about a lack of memory list, and one of foreign memory.
Values hold() {
  float foreign[] = {1, 2, 3};
  const auto held = std::make_shared<int>();
  Tensor large, other;
  attempt([&] { large = ones({1 << 19}); });
  attempt([&] { other = from_blob(foreign, {3}, [held] {}); });
  Values values = {large.sum().item<double>()};
  append(values, other);
  large = Tensor();
  empty_cache();  // where memory runs out later, the pages of large tensors would be given back, which is no leak
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

/// In-place ops: one that has failed has changed neither values nor history, or it would be done twice.
Values change_in_place() {
  Values values;
  for (const DType dtype : {kFloat32, kBFloat16}) {
    Tensor leaf, x, factor, row, ids, mask, places;
    attempt([&] {
      manual_seed(5);
      leaf = rand({6, 4}, {.dtype = dtype}).requires_grad_();
      factor = rand({6, 4}, {.dtype = dtype}), row = rand({2, 4}, {.dtype = dtype}).t().contiguous().t();
      ids = tensor({4, 1}), mask = tensor({true, false, true, false}), places = tensor({{1, 0, 2, 3}});
    });
    const std::vector<TensorIndex> at{ids};
    for (const bool recorded : {false, true}) {
      attempt([&] { x = recorded ? leaf * 1 : leaf.detach().clone(); });
      attempt([&] { x.mul_(factor); });
      attempt([&] { x.narrow(0, 1, 3).exp_(); });
      attempt([&] { x.t().sub_(factor.t(), 0.5); });
      attempt([&] { x.index_add_(0, ids, row); });
      attempt([&] { x.scatter_add_(0, places, factor); });
      attempt([&] { x.masked_fill_(mask, 0.5); });
      attempt([&] { x.index_put_(at, row, true); });
      attempt([&] { x.select(0, 2).addcmul_(row.select(0, 0), row.select(0, 1)); });
      attempt([&] { x.clamp_(-1, 2.5); });
      append(values, x);
    }
    attempt([&] {
      leaf.set_grad({});
      x.square().sum().backward({}, {.retain_graph = true});
    });
    append(values, leaf.grad());
  }
  return values;
}

/// Ops that take lists which a row of the table would make itself.
Values take_lists() {
  Tensor x, y, ids, mask;
  attempt([&] {
    manual_seed(6);
    x = randn({4, 6}).requires_grad_(), y = randn({4, 6}), ids = tensor({3, 0, 3}), mask = tensor({1, 0, 1, 1}) > 0;
  });
  const std::vector<int64_t> amounts{1, 2}, sizes{1, 3}, starts{2, 3}, zero{0}, lengths{4, 2, 1, 1};
  const std::vector<TensorIndex> at_ids{ids}, at_mask{mask}, at_slice{1, Slice(1, 4)};
  const InterpolateOptions twice{.scale_factor = {2}};
  const std::vector<std::string> tags{"O", "B-a", "I-a"};
  const std::vector<double> weights{1, 2, 3};
  const std::vector<int64_t> counts{5, 1, 2};
  Values values;
  const auto add = [&](const auto& call) {
    Tensor result;
    attempt([&] { result = call(); });
    append(values, result);
    attempt([&] {
      x.set_grad({});
      if (result.requires_grad()) result.square().sum().backward();
    });
    if (x.grad().defined()) append(values, x.grad());
  };
  for (const PadMode mode : {kConstant, kReflect}) add([&] { return pad(x, amounts, mode); });
  add([&] { return split(x, sizes)[1]; });
  add([&] { return tensor_split(x, starts)[1]; });
  add([&] { return tensordot(x, y, zero, zero); });
  for (const auto* at : {&at_ids, &at_mask, &at_slice}) {
    add([&] { return x.index(*at); });
    add([&] { return index_put(x, *at, y[0][0]); });
    add([&] { return index_put(x, *at, y[0][0], true); });
  }
  add([&] { return interpolate(x.unsqueeze(0), twice); });
  add([&] { return unpad_sequence(x, lengths, true)[1]; });
  add([&] { return pack_padded_sequence(x.t(), lengths, false, false).data; });
  add([&] { return pad_packed_sequence(pack_padded_sequence(x.t(), lengths, false, false)).data; });
  add([&] { return crf_bio_constraints(tags).transitions.to(kFloat32); });
  add([&] { return manual_seed(8), AliasTable(weights).sample_for(ids.narrow(0, 1, 1), 2, true).log_expected; });
  add([&] { return HuffmanTree(counts).bits.to(kFloat32); });
  return values;
}

/// An op of the table, with the gradients of its inputs.
Values run_row(const Row& row, DType dtype) {
  Tensors inputs;
  Tensor y, weight;
  for (const Input& input : row.inputs)
    inputs.push_back(make_input(input, input.shape, dtype, static_cast<int>(inputs.size())));
  for (Tensor& input : inputs)
    if (row.traits.differentiable && is_floating_point(input.dtype())) input.requires_grad_();
  attempt([&] { manual_seed(7), y = row.call(inputs); });
  Values values;
  append(values, y);
  if (!y.requires_grad()) return values;
  attempt([&] {
    for (Tensor& input : inputs)
      if (input.requires_grad()) input.set_grad({});
    y.sum().backward({}, {.retain_graph = true});
  });
  for (const Tensor& input : inputs)
    if (input.requires_grad() && input.grad().defined()) append(values, input.grad());
  return values;
}

// ---- the cases ------------------------------------------------------------------------------------------------------

using Program = std::function<Values()>;
enum Outcome { kFine, kWrong, kUnreached };

/// Runs the program with this fault in a process of its own, and again without it.
Outcome run_with_fault(const Program& program, const Values* expected, long nth, bool for_good) {
  const pid_t child = ::fork();
  if (child == 0) {
    long before[kSizes];
    std::copy(std::begin(living), std::end(living), before);
    countdown = nth, stays = for_good;
    Values result = program();
    countdown = 0;
    const int64_t in_use = memory_stats().in_use;
    if (program() != result || (expected && result != *expected)) problem("wrong", "another result after the fault");
    result = Values();
    if (memory_stats().in_use != in_use) problem("leak", "of a tensor");
    // What a process allocates once was there before.
    if (expected &&
        std::accumulate(std::begin(living), std::end(living), 0L) != std::accumulate(before, before + kSizes, 0L))
      for (size_t words = 0; words < kSizes; ++words)
        if (const long more = living[words] - before[words]; more)
          problem("leak of the heap", (std::to_string(more) + " x " + std::to_string(words) + " words").c_str());
    ::_exit(problems ? kWrong : fired ? kFine : kUnreached);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) ? Outcome(WEXITSTATUS(status)) : kWrong;
}

}  // namespace

reel::Device reel::test_device() { return reel::kCPU; }

/// allocations [STEP [NAME]]: every STEPth allocation fails, all if it is not given, in programs and ops of this name.
int main(int argc, char** argv) {
  std::string name = (std::filesystem::temp_directory_path() / "reel-allocations-XXXXXX").string();
  folder = ::mkdtemp(name.data());
  // What is made once in a process: when memory first runs out, and when oneDNN compiles its products, with thousands
  // of allocations.
  ::backtrace(frames, 1);
  set_num_threads(1);  // each child would start helpers of its own, which takes memory
  mm(ones({128, 128}), ones({128, 128}));
  try {
    empty({int64_t{1} << 50});
  } catch (const OutOfMemoryError&) {
  }
  const long step = argc > 1 ? std::max(std::atol(argv[1]), 1L) : 1;
  const char* const wanted = argc > 2 ? argv[2] : nullptr;
  int wrong = 0, cases = 0;
  long first = 0;
  const auto test = [&](const char* title, const Program& program, bool warm) {
    if (wanted && std::strcmp(title, wanted) != 0) return;
    Values expected;
    if (warm)
      for (int i = 0; i < 3; ++i) expected = program();
    if (run_with_fault(program, nullptr, 0, false) != kUnreached) {
      ++wrong;
      std::fprintf(stderr, "%s: fails without a fault\n", title);
      return;
    }
    for (const bool for_good : {false, true})
      for (long nth = 1 + first % step;; nth += step) {
        const Outcome outcome = run_with_fault(program, warm ? &expected : nullptr, nth, for_good);
        if (outcome == kUnreached) break;
        ++cases;
        if (outcome == kFine) continue;
        if (++wrong > 100) break;  // it may be wrong without a fault, and so without an end
        std::fprintf(stderr, "%s: allocation %ld%s of a %s process\n", title, nth, for_good ? " and all after it" : "",
                     warm ? "warm" : "cold");
      }
    ++first;
  };
  for (const bool warm : {false, true}) {
    test("train", train, warm);
    test("differentiate", differentiate, warm);
    test("hold", hold, warm);
    test("load_data", load_data, warm);
    test("keep", keep, warm);
    test("change_in_place", change_in_place, warm);
    test("take_lists", take_lists, warm);
  }
  for (const Row& row : op_table())
    for (const DType dtype : {kFloat32, kBFloat16})
      if (std::strncmp(row.name, "conv", 4) != 0)
        test(
            row.name, [&] { return run_row(row, dtype); }, true);
  std::filesystem::remove_all(folder);
  std::printf("%d cases, %d of them wrong\n", cases, wrong);
  return wrong || cases < 100 ? 1 : 0;
}
