// What several processes cost: DistributedDataParallel beside the same ranks without a connection, all_reduce beside
// bare Gloo, and communication that overlaps with the backward pass beside one that does not.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <spawn.h>

#include <filesystem>
#include <thread>

#include "bench/lenet.h"
#include "bench/nets.h"
#include "bench/perceptron.h"
#include "bench/tree_model.h"
#include "reel/distributed.h"

using namespace reel;

extern char** environ;

namespace {

constexpr int kRanks = 2;

// ---- two ways of doing the same -------------------------------------------------------------------------------------

/// Times of a step of each, on this rank, and how many times as fast the second is, over all ranks.
struct Comparison {
  bench::Samples first, second;
  double ratio, low, high;  // median of the rounds, and the tenths at both ends
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min(static_cast<size_t>(q * static_cast<double>(values.size())), values.size() - 1)];
}

/// In every round all ranks take some steps of the first kind, and as many of the second.
template <class First, class Second>
Comparison compare(const First& first, const Second& second, double secs) {
  constexpr double kRound = 0.2;  // seconds of one kind
  constexpr int kWarmUp = 3, kLeast = 5;
  const auto timed = [](const auto& step, int64_t steps, bench::Samples* samples) {
    distributed::barrier();
    const bench::Time begin = bench::now();
    for (int64_t i = 0; i < steps; ++i) {
      const bench::Time from = bench::now();
      step();
      if (samples) samples->add(from, bench::now());
    }
    return bench::now().wall - begin.wall;
  };
  timed(first, kWarmUp, nullptr), timed(second, kWarmUp, nullptr);
  // Rank 0 decides how many, for all.
  const Tensor times = tensor({timed(first, kWarmUp, nullptr) / kWarmUp, timed(second, kWarmUp, nullptr) / kWarmUp});
  distributed::broadcast(times, 0);
  const double a = times[0].item<double>(), b = times[1].item<double>();
  const auto steps = std::max<int64_t>(1, static_cast<int64_t>(kRound / std::max(a, b)));
  const int rounds = std::max(kLeast, static_cast<int>(secs / (static_cast<double>(steps) * (a + b))));

  Comparison result{};
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    const double one = timed(first, steps, &result.first), other = timed(second, steps, &result.second);
    const Tensor mean = distributed::mean(tensor({one, other}));
    ratios.push_back(mean[0].item<double>() / mean[1].item<double>());
  }
  result.ratio = quantile(ratios, 0.5), result.low = quantile(ratios, 0.1), result.high = quantile(ratios, 0.9);
  return result;
}

/// Says the second's time; beside that of the first, which has a name. Only rank 0 says anything.
void say(const bench::Options& options, const std::string& workload, const Comparison& c, const char* beside,
         double scale = 1e3, const char* unit = "ms") {
  if (distributed::rank() != 0) return;
  bench::Options quiet = options;
  quiet.list = true;  // no heading
  using bench::field;
  bench::Report("reel", quiet)
      .time(workload, c.second, scale, unit,
            field("processes", distributed::world_size()) + ", \"beside\": \"" + beside + "\", " +
                field("beside_median", c.first.wall() * scale) + ", " + field("ratio", c.ratio) + ", " +
                field("ratio_low", c.low) + ", " + field("ratio_high", c.high));
}

// ---- training -------------------------------------------------------------------------------------------------------

/// make() returns what trains a net of its own, and has module() and step(). The ratio is efficiency: the time of a
/// step on ranks that know nothing of each other, over that of a step with DistributedDataParallel.
template <class Make>
void train(const bench::Options& options, const std::string& workload, const Make& make) {
  const auto alone = make(), together = make();
  const distributed::DistributedDataParallel ddp(together->module());
  say(options, workload, compare([&] { alone->step(); }, [&] { together->step(); }, options.secs), "alone");
}

/// A net on one batch.
template <class Net, class Optimizer>
class Dense {
 public:
  template <class Options>
  Dense(Tensor x, Tensor y, Options options)
      : x_(std::move(x)), y_(std::move(y)), optimizer_(net_.parameters(), options) {}
  nn::Module& module() { return net_; }
  void step() {
    const Tensor loss = cross_entropy(net_.forward(x_), y_);
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.step();
  }

 private:
  Net net_;
  const Tensor x_, y_;
  Optimizer optimizer_;
};

/// Two hidden layers of 2048.
struct Wide : nn::Module {
  static constexpr int kWidth = 2048;
  nn::Linear hidden1{*this, "hidden1", kWidth, kWidth}, hidden2{*this, "hidden2", kWidth, kWidth},
      out{*this, "out", kWidth, 10};
  Wide() {
    fill(hidden1.weight, 3, 0.03f), fill(hidden2.weight, 4, 0.03f), fill(out.weight, 5, 0.03f);
    zero({hidden1.bias, hidden2.bias, out.bias});
  }
  Tensor forward(const Tensor& x) const { return out(relu(hidden2(relu(hidden1(x))))); }
};

/// A Tree-LSTM on every other tree. Ranks get trees of like sizes in each step: what is measured is not that some have
/// more to do.
class Trees {
 public:
  Trees(const bench::Treebank& bank, int rank) : model_(bank.words), adagrad_(model_.parameters(), kOptions) {
    std::vector<const bench::Tree*> trees;
    for (const bench::Tree& tree : bank.trees) trees.push_back(&tree);
    std::stable_sort(trees.begin(), trees.end(), [](const auto* a, const auto* b) { return a->size() < b->size(); });
    std::vector<size_t> order(trees.size() / kRanks);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    bench::Random random(1);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int>(i)))]);
    for (const size_t i : order) examples_.emplace_back(*trees[kRanks * i + static_cast<size_t>(rank)]);
  }
  nn::Module& module() { return model_; }
  void step() {
    std::vector<Tensor> losses;
    for (int i = 0; i < bench::tree::kBatch; ++i)
      tree_model::add_losses(model_, examples_[next_++ % examples_.size()], losses);
    adagrad_.zero_grad();
    tree_model::backward(losses);
    adagrad_.step();
  }

 private:
  static constexpr optim::AdagradOptions kOptions{.lr = bench::tree::kLearningRate};
  tree_model::Model model_;
  optim::Adagrad adagrad_;
  std::vector<tree_model::Example> examples_;
  size_t next_ = 0;
};

// ---- all_reduce -----------------------------------------------------------------------------------------------------

std::shared_ptr<gloo::Context> connect_gloo() {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "reel-bench-XXXXXX").string();
  if (distributed::rank() == 0 && !mkdtemp(folder.data())) throw std::runtime_error("cannot make " + folder);
  folder = distributed::broadcast_object(folder, 0);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(distributed::rank(), distributed::world_size());
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  context->connectFullMesh(store, device);
  distributed::barrier();
  if (distributed::rank() == 0) fs::remove_all(folder);
  return context;
}

void all_reduce(const bench::Options& options, const std::string& workload, int64_t count) {
  const auto context = connect_gloo();
  std::vector<float> data(static_cast<size_t>(count));
  const Tensor tensor = zeros({count});
  uint32_t tag = 0;
  const auto bare = [&] {
    gloo::AllreduceOptions o(context);
    o.setOutput(data.data(), data.size());
    o.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    o.setReduceFunction([](void* out, const void* a, const void* b, size_t n) { gloo::sum<float>(out, a, b, n); });
    o.setTag(++tag % 1024);
    gloo::allreduce(o);
  };
  const Comparison c = compare(
      bare, [&] { distributed::all_reduce(tensor); }, options.secs);
  if (count < 1024)
    say(options, workload, c, "Gloo", 1e6, "us");
  else
    say(options, workload, c, "Gloo");
}

// ---- overlap --------------------------------------------------------------------------------------------------------

/// A net whose backward pass sleeps, as if a GPU computed: 60 parameters of 1 MiB, 8 ms each.
struct Sleeper : nn::Module {
  static constexpr int kLayers = 60;
  static constexpr auto kTime = std::chrono::milliseconds(8);
  nn::ParameterList weights{*this, "weights"};
  Sleeper() {
    for (int i = 0; i < kLayers; ++i) weights.append(zeros({1 << 18}));
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const Tensor& weight : weights)
      y = custom_op("sleep", no_grad([&] { return y.clone(); }), {y, weight},
                    [shape = weight.shape()](const Tensor& g) {
                      std::this_thread::sleep_for(kTime);
                      return std::vector{g, zeros(shape)};
                    });
    return y;
  }
};

void overlap(const bench::Options& options, const std::string& workload) {
  Sleeper net;
  distributed::DistributedDataParallel ddp(net);
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  const Tensor x = ones({1});
  const auto step = [&] {
    sgd.zero_grad();
    sum(net.forward(x)).backward();
  };
  const auto apart = [&] {
    {
      const auto guard = ddp.no_sync();
      step();
    }
    ddp.reduce();
  };
  say(options, workload, compare(apart, step, options.secs), "apart");
}

// ---- workloads ------------------------------------------------------------------------------------------------------

/// What a rank does.
void measure(const bench::Options& options, const std::string& workload) {
  const auto dense = [&]<class Net, class Optimizer>(int64_t batch, const Shape& shape, auto o) {
    train(options, workload, [&] {
      std::vector<int64_t> whole = {batch};
      whole.insert(whole.end(), shape.begin(), shape.end());
      const auto seed = static_cast<uint64_t>(1 + distributed::rank());
      return std::make_unique<Dense<Net, Optimizer>>(filled(Shape(whole), seed, 1), classes(batch, 10), o);
    });
  };
  if (workload == "ddp.tree") {
    const bench::Treebank bank = bench::load_trees(options);
    train(options, workload, [&] { return std::make_unique<Trees>(bank, distributed::rank()); });
  } else if (workload == "ddp.lenet") {
    dense.operator()<LeNet, optim::SGD>(64, {1, 28, 28}, optim::SGDOptions{.lr = 0.01});
  } else if (workload == "ddp.mlp2048") {
    dense.operator()<Wide, optim::SGD>(100, {Wide::kWidth}, optim::SGDOptions{.lr = 0.01});
  } else if (workload == "ddp.mlp") {
    dense.operator()<Perceptron, optim::Adam>(100, {784}, optim::AdamOptions{.lr = 1e-3});
  } else if (workload == "allreduce.4B" || workload == "allreduce.checked") {
    all_reduce(options, workload, 1);
  } else if (workload == "allreduce.25MiB") {
    all_reduce(options, workload, 25 << 18);
  } else if (workload == "wire.overlap") {  // see bench/wire.sh
    overlap(options, workload);
  } else {
    throw std::runtime_error("there is no such workload");
  }
}

/// Starts this program once for each rank, and waits for both.
bool start_ranks(const std::vector<std::string>& arguments, const std::string& workload) {
  std::vector<std::string> words = arguments;
  words.insert(words.end(), {"--workload", workload});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int port = 20000 + getpid() % 10000;  // or one of the next that are free
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<std::string> variables = {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(kRanks),
                                          "LOCAL_RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",
                                          "MASTER_PORT=" + std::to_string(port)};
    if (!workload.ends_with(".checked")) variables.emplace_back("REEL_DIST_CHECK=0");
    std::vector<char*> envp;
    for (std::string& variable : variables) envp.push_back(variable.data());
    for (char** variable = environ; *variable; ++variable) envp.push_back(*variable);
    envp.push_back(nullptr);
    pid_t child = -1;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv.data(), envp.data()) != 0) break;
    ranks.push_back(child);
  }
  bool good = ranks.size() == kRanks;
  for (const pid_t child : ranks) {
    int status = 1;
    good &= waitpid(child, &status, 0) == child && status == 0;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  if (std::getenv("RANK") && !options.list) {
    try {
      set_num_threads(options.threads);
      distributed::init_process_group();
      measure(options, options.workload);
      distributed::destroy_process_group();
      return 0;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s: %s\n", options.workload.c_str(), e.what());
      return 1;
    }
  }
  const bench::Report heading("reel, 2 processes", options);
  const std::vector<std::string> arguments(argv, argv + argc);
  bool good = true;
  for (const std::string workload :
       {"ddp.tree", "ddp.lenet", "ddp.mlp2048", "ddp.mlp", "allreduce.4B", "allreduce.checked", "allreduce.25MiB"}) {
    const auto within = [](const std::string& name, const std::string& group) {
      return group.empty() || name == group || name.starts_with(group + ".");
    };
    if (!within(workload, options.workload)) continue;
    if (options.list)
      std::printf("%s\n", workload.c_str());
    else
      good &= start_ranks(arguments, workload);
  }
  return good ? 0 : 1;
}
