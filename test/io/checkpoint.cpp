#include "reel/io/checkpoint.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <random>
#include <thread>

#include "reel/reel.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
namespace fs = std::filesystem;

namespace {

struct Net : nn::Module {
  nn::Linear hidden{*this, "hidden", 4, 16}, out{*this, "out", 16, 1};
  Tensor forward(const Tensor& x) const { return out(dropout(tanh(hidden(x)), 0.2)); }
};

auto noisy_data() {
  const Tensor x = arange(200).to(kFloat32).view({50, 4}) / 200, y = sum(x, 1, true);
  return data::transform(data::TensorDataset(x, y), [](const Tensor& row) { return row + 0.1 * randn({4}); });
}

struct Seeded {
  Seeded() { manual_seed(3); }
};

// A training run with everything that must come back: weights, moments, rates, averages, the place in shuffled and
// noisy data, and the generator that dropout draws from.
struct Run : Seeded {
  Net net;
  optim::Adam adam{net.parameters(), {.lr = 1e-2}};
  optim::ExponentialLR schedule{adam, 0.99};
  optim::ExponentialMovingAverage average{net.parameters(), 0.9};
  data::DataLoader<decltype(noisy_data())> loader{noisy_data(), {.batch_size = 8, .shuffle = true, .workers = 2}};
  io::Checkpoint checkpoint;
  Run() {
    checkpoint.add("model", net)
        .add("optimizer", adam)
        .add("schedule", schedule)
        .add("average", average)
        .add("data", loader);
  }

  // f() after each of an epoch's seven steps.
  void train(int epochs, const std::function<void()>& f) {
    while (loader.epoch() < epochs)
      for (auto [x, y] : loader) {
        adam.zero_grad();
        mse_loss(net.forward(x), y).backward();
        adam.step();
        schedule.step();
        average.update();
        f();
      }
  }
};

}  // namespace

TEST_CASE("a checkpoint brings a whole run back bit for bit", "[cpu]") {
  const Folder folder;
  Run whole;
  std::vector<std::string> states;
  whole.train(2, [&] {
    const std::string name = "step" + std::to_string(states.size());
    whole.checkpoint.save(folder / name.c_str());
    states.push_back(contents(folder / name.c_str()));
  });
  REQUIRE(states.size() == 14);
  for (const size_t step : {size_t{0}, size_t{5}, size_t{6}, size_t{12}, size_t{13}}) {
    Run run;
    manual_seed(99);
    run.checkpoint.load(folder / ("step" + std::to_string(step)).c_str());
    size_t at = step;
    bool same = true;
    run.train(2, [&] {
      run.checkpoint.save(folder / "now");
      same = same && contents(folder / "now") == states.at(++at);
    });
    CHECK(same);
    CHECK(at == 13);
  }
}

TEST_CASE("a checkpoint carries metadata and takes anything with a state") {
  const Folder folder;
  struct Counter {
    int64_t n = 0;
    StateDict state_dict() const { return {{"n", full({}, n, {.dtype = kInt64})}}; }
    void load_state_dict(const StateDict& dict) { n = find(dict, "n")->item<int64_t>(); }
  } counter{5};
  nn::Dropout none;
  data::RandomSampler sampler(10, {.seed = 1});
  sampler.set_place(2, 3);
  io::Checkpoint checkpoint;
  checkpoint.add("counter", counter).add("none", none).add("sampler", sampler);
  checkpoint.save(folder / "x", {{"note", "ä"}});
  counter.n = 0;
  sampler.set_place(0, 0);
  CHECK(checkpoint.load(folder / "x") == io::Metadata{{"note", "ä"}});
  CHECK(counter.n == 5);
  CHECK(sampler.position() == 3);
  io::Metadata metadata;
  const StateDict tensors = io::load(folder / "x", &metadata);
  CHECK(find(tensors, "counter.n"));
  CHECK(metadata["reel.checkpoint"] == "2");
  CHECK(metadata["reel.parts"] == "counter,none,sampler,generator");

  // One part alone.
  io::Checkpoint part;
  part.add("counter", counter);
  counter.n = 0;
  manual_seed(8);
  CHECK_THROWS_WITH(part.load(folder / "x"), Contains("missing: ; unexpected: none,sampler"));
  part.load(folder / "x", {.strict = false});
  CHECK(counter.n == 5);
  CHECK(generator_state().seed == 8);

  CHECK_THROWS_WITH(checkpoint.add("a.b", counter), Equals("Checkpoint::add: a part cannot be named 'a.b'"));
  CHECK_THROWS_WITH(checkpoint.add("", counter), Contains("cannot be named ''"));
  CHECK_THROWS_WITH(checkpoint.add("generator", counter), Contains("cannot be named 'generator'"));
  CHECK_THROWS_WITH(checkpoint.add("none", counter), Contains("there is a part 'none' already"));
  CHECK_THROWS_WITH(checkpoint.save(folder / "x", {{"reel.parts", "x"}}), Contains("cannot be named 'reel.parts'"));
}

TEST_CASE("a checkpoint takes a run's variables") {
  const Folder folder;
  CellState state;
  Tensor mean = ones({2}, {.dtype = kFloat64}), none;
  double best = 1.0 / 3;
  int steps = 5;
  bool warm = true;
  io::Checkpoint checkpoint;
  checkpoint.add("state", state).add("mean", mean).add("none", none);
  checkpoint.add("best", best).add("steps", steps).add("warm", warm);
  checkpoint.save(folder / "undefined");
  state = {full({1, 2, 3}, 1.5), full({1, 2, 3}, 2.5)};
  checkpoint.save(folder / "defined");
  const CellState then = state;
  state = {}, mean = zeros({7}), none = ones({}), best = 0, steps = 0, warm = false;

  checkpoint.load(folder / "defined");
  CHECK(equal(state.h, then.h));
  CHECK(equal(state.c, then.c));
  CHECK(equal(mean, ones({2}, {.dtype = kFloat64})));
  CHECK_FALSE(none.defined());
  CHECK(best == 1.0 / 3);
  CHECK(steps == 5);
  CHECK(warm);
  checkpoint.load(folder / "undefined");
  CHECK_FALSE(state.h.defined());

  io::Checkpoint other;  // of which one variable has become another thing
  nn::Linear net(2, 2);
  other.add("state", mean).add("mean", net);
  CHECK_THROWS_WITH(other.load(folder / "defined", {.strict = false}), Contains("state"));
  CHECK(equal(mean, ones({2}, {.dtype = kFloat64})));
}

TEST_CASE("a number of a checkpoint comes back exactly, or is an Error") {
  const Folder folder;
  const auto round_trip = [&](auto number, auto& into) {
    io::Checkpoint saved, loaded;
    saved.add("x", number).save(folder / "x");
    loaded.add("x", into).load(folder / "x");
    return into;
  };
  const auto check = [&](auto number) {
    auto into = decltype(number)(1);
    CHECK(round_trip(number, into) == number);
  };
  check(int64_t{INT64_MIN}), check(int64_t{INT64_MAX}), check((int64_t{1} << 53) + 1), check(int16_t{-7});
  check(uint64_t{UINT64_MAX}), check((uint64_t{1} << 63) + 5), check(size_t{12}), check(uint8_t{255}), check('x');
  check(5e-324), check(0.1), check(0.1f), check(INFINITY), check(true), check(1.0L / 3), check(1e300L / 7);
  check(static_cast<long double>(UINT64_MAX));
  long double real = 0;
  CHECK(std::isnan(round_trip(std::nan(""), real)));
  CHECK_THROWS_WITH(round_trip(std::numeric_limits<long double>::max(), real),
                    Contains("is not the sum of two doubles"));

  const auto refuse = [&](auto number, auto before) {
    auto into = before;
    CHECK_THROWS_AS(round_trip(number, into), Error);
    CHECK(into == before);
  };
  refuse(int64_t{1} << 40, 3), refuse(2.7, 3), refuse(3e9, 3), refuse(std::nan(""), 3), refuse(300, uint8_t{3});
  refuse(-1, uint8_t{3}), refuse(-1, uint64_t{3}), refuse(uint64_t{UINT64_MAX}, int64_t{3}), refuse(2, true);
  refuse(0.5, true), refuse((int64_t{1} << 53) + 1, 3.0), refuse((1 << 24) + 1, 3.0f), refuse(1e300, 3.0f);
  refuse(INT64_MAX, 3.0), refuse(1.0L / 3, 3);
  float nearest = 0;
  CHECK(round_trip(0.1, nearest) == 0.1f);
  int whole = 0;
  CHECK(round_trip(2.0, whole) == 2);
}

TEST_CASE("a checkpoint that does not fit changes nothing") {
  const Folder folder;
  nn::Linear small(2, 2), large(3, 2);
  optim::SGD sgd(small.parameters(), {.lr = 0.5}), other(large.parameters(), {.lr = 0.25});
  io::Checkpoint saved;
  saved.add("optimizer", sgd).add("model", small);
  saved.save(folder / "x");

  manual_seed(5);
  const std::vector<float> before = large.parameters()[0].to_vector<float>();
  const auto check = [&](io::Checkpoint& checkpoint, const std::string& file, const std::string& reason) {
    INFO(reason);
    CHECK_THROWS_WITH(checkpoint.load(folder / file.c_str()), Contains("/" + file) && Contains(reason));
    CHECK(other.lr() == 0.25);
    CHECK(large.parameters()[0].to_vector<float>() == before);
    CHECK(generator_state().seed == 5);
  };
  io::Checkpoint wrong;
  wrong.add("optimizer", other).add("model", large);
  check(wrong, "x", "model: ");  // the optimizer alone would have fitted
  io::Checkpoint more;
  more.add("optimizer", other).add("scheduler", other);
  check(more, "x", "missing: scheduler; unexpected: model");

  const StateDict tensors = io::load(folder / "x");
  io::save(tensors, folder / "plain");
  check(saved, "plain", "not a checkpoint");
  io::save(tensors, folder / "new", {{"reel.checkpoint", "3"}, {"reel.parts", ""}});
  check(saved, "new", "a checkpoint of version 3, this is version 2");
  io::save(tensors, folder / "lost", {{"reel.checkpoint", "2"}, {"reel.parts", "model"}});
  check(saved, "lost", "belongs to none of its parts");
  StateDict bad = tensors;
  for (auto& [name, tensor] : bad)
    if (name == "generator.seed") tensor = ones({2});
  io::save(bad, folder / "bad", {{"reel.checkpoint", "2"}, {"reel.parts", "optimizer,model,generator"}});
  check(saved, "bad", "generator: it is not the state of a generator");
  write(folder / "half", contents(folder / "x").substr(0, 200));
  check(saved, "half", "byte");
}

TEST_CASE("a checkpoint whose parts cannot be restored either names the file and the parts") {
  const Folder folder;
  struct Part {
    double value = 1;
    std::function<void()> loading = [] {};
    StateDict state_dict() const { return {{"value", full({}, value, {.dtype = kFloat64})}}; }
    void load_state_dict(const StateDict& dict) {
      manual_seed(99);
      loading();
      value = find(dict, "value")->item<double>();
    }
  } first, second, third;
  io::Checkpoint checkpoint;
  checkpoint.add("first", first).add("second", second).add("third", third);
  checkpoint.save(folder / "x");
  manual_seed(5);
  first.value = 7, second.value = 8, third.value = 9;
  const auto no_disk = [] { throw std::runtime_error("no disk"); };
  third.loading = [&] { second.loading = no_disk, throw 3; };
  CHECK_THROWS_WITH(
      checkpoint.load(folder / "x"),
      Contains("/x: third: an exception that is no std::exception; second could not be restored: no disk"));
  CHECK(first.value == 7);
  CHECK(second.value == 1);
  CHECK(third.value == 9);
  CHECK(generator_state().seed == 5);
  second.value = 8;
  CHECK_THROWS_WITH(checkpoint.load(folder / "x"), Contains("/x: second: no disk"));
  CHECK(first.value == 7);
  CHECK(second.value == 8);
  second.loading = third.loading = [] {};
  checkpoint.load(folder / "x");
  CHECK(first.value == 1);
  CHECK(third.value == 1);
}

// ---- damage ---------------------------------------------------------------------------------------------------------

TEST_CASE("any bit of a checkpoint that is flipped is noticed, and changes nothing", "[cpu]") {
  const Folder folder;
  nn::Linear net(4, 3);
  optim::Adam adam(net.parameters(), {.lr = 0.5});
  io::Checkpoint checkpoint;
  checkpoint.add("model", net).add("optimizer", adam);
  sum(net(ones({1, 4}))).backward();
  adam.step();
  checkpoint.save(folder / "good");
  const std::string good = contents(folder / "good");
  no_grad([&] { net.weight.fill_(5); });
  manual_seed(5);
  size_t loaded = 0, changed = 0;
  for (size_t bit = 0; bit < 8 * good.size(); bit += 1 + bit % 3) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    write(folder / "bad", bad);
    try {
      checkpoint.load(folder / "bad");
      ++loaded;
    } catch (const Error&) {
    }
    changed += !all(net.weight == 5).item<bool>() || generator_state().seed != 5;
  }
  CHECK(loaded == 0);
  CHECK(changed == 0);
  std::string half = good;
  std::fill(half.begin() + static_cast<std::ptrdiff_t>(half.size() / 2), half.end(), '\0');
  write(folder / "half", half);
  CHECK_THROWS_AS(checkpoint.load(folder / "half"), Error);

  // What a program that knows nothing of the checksums has changed.
  io::Metadata metadata;
  const StateDict tensors = io::load(folder / "good", &metadata);
  CHECK_FALSE(metadata.contains("reel.crc32"));
  const size_t at = good.find("reel.crc32");
  std::string foreign = good;
  foreign[at] = 'x';
  write(folder / "foreign", foreign);
  CHECK(io::load(folder / "foreign").size() == tensors.size());
  CHECK_THROWS_WITH(checkpoint.load(folder / "foreign"), Contains("no checksums"));
  checkpoint.load(folder / "foreign", {.verify = false});
  CHECK_FALSE(all(net.weight == 5).item<bool>());
  foreign = good, foreign.back() = static_cast<char>(foreign.back() ^ 1);
  write(folder / "foreign", foreign);
  CHECK_THROWS_WITH(io::load(folder / "foreign"), Contains("the data are damaged, their CRC-32 is"));
  CHECK(io::load(folder / "foreign", {.verify = false}).size() == tensors.size());
  const std::string damaged = tensors.back().first;
  CHECK(io::load(folder / "foreign", {.keep = [&](std::string_view name) { return name == "model.weight"; }}).size() ==
        1);
  CHECK_THROWS_WITH(io::save(tensors, folder / "x", {{"reel.crc32", ""}}),
                    Contains("metadata cannot be named reel.crc32"));
}

TEST_CASE("older checkpoints are kept, and the newest that can be read is loaded") {
  const Folder folder;
  const fs::path path = folder / "run.safetensors";
  struct Counter {
    int64_t n = 0;
    StateDict state_dict() const { return {{"n", full({}, n, {.dtype = kInt64})}}; }
    void load_state_dict(const StateDict& dict) { n = find(dict, "n")->item<int64_t>(); }
  } counter;
  io::Checkpoint checkpoint;
  checkpoint.add("counter", counter);
  CHECK_FALSE(checkpoint.load_newest(path));
  for (counter.n = 1; counter.n <= 5; ++counter.n)
    checkpoint.save(path, {{"n", std::to_string(counter.n)}}, {.keep = 3});
  CHECK(folder.count() == 3);
  const auto newest = [&] {
    const auto found = checkpoint.load_newest(path);
    REQUIRE(found);
    CHECK(found->metadata.at("n") == std::to_string(counter.n));
    return std::pair(found->path.filename().string(), found->damaged.size());
  };
  CHECK(newest() == std::pair("run.safetensors"s, size_t{0}));
  CHECK(counter.n == 5);
  std::string bad = contents(path);
  bad.back() = static_cast<char>(bad.back() ^ 4);
  write(path, bad);
  CHECK(newest() == std::pair("run.1.safetensors"s, size_t{1}));
  CHECK(counter.n == 4);
  fs::remove(path);
  write(folder / "run.1.safetensors", "");
  CHECK(newest() == std::pair("run.2.safetensors"s, size_t{1}));
  CHECK(counter.n == 3);
  write(folder / "run.2.safetensors", bad);
  CHECK_THROWS_WITH(checkpoint.load_newest(path),
                    Contains("no file can be read: ") && Contains("too few") && Contains("the data are damaged"));
  CHECK(counter.n == 3);
  CHECK_THROWS_WITH(checkpoint.save(path, {}, {.keep = 0}), Contains("0 files to keep"));
  checkpoint.save(path, {}, {.keep = 2});
  checkpoint.save(path, {}, {.keep = 2});
  CHECK(checkpoint.load_newest(path)->damaged.empty());
  CHECK(folder.count() == 2);

  // A bit of the checksums' own name, and a save that fails, cost no older file.
  counter.n = 8, checkpoint.save(path, {{"n", "8"}}, {.keep = 2});
  counter.n = 9, checkpoint.save(path, {{"n", "9"}}, {.keep = 2});
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(checkpoint.save(path, {{"n", "\xff"}}, {.keep = 2}), Error);
  bad = contents(path);
  bad[bad.find("reel.crc32")] = 's';
  write(path, bad);
  counter.n = 8;
  CHECK(newest() == std::pair("run.1.safetensors"s, size_t{1}));

  fs::create_directories(folder / "store");
  fs::create_symlink("store/real.safetensors", folder / "link.safetensors");
  for (counter.n = 1; counter.n <= 2; ++counter.n)
    checkpoint.save(folder / "link.safetensors", {{"n", std::to_string(counter.n)}}, {.keep = 2});
  CHECK(fs::is_symlink(folder / "link.safetensors"));
  write(folder / "store" / "real.safetensors", "");
  CHECK(checkpoint.load_newest(folder / "link.safetensors")->metadata.at("n") == "1");
}

TEST_CASE("loading a checkpoint takes no more memory beside the run than its file", "[cpu]") {
  const Folder folder;
  nn::Linear net(500, 1000);
  optim::Adam adam(net.parameters(), {});
  io::Checkpoint checkpoint;
  checkpoint.add("model", net).add("optimizer", adam);
  const auto step = [&] {
    adam.zero_grad();
    sum(net(ones({1, 500}))).backward();
    adam.step();
  };
  step();
  checkpoint.save(folder / "x");
  const auto peak = [&](io::Checkpoint& target) {
    reset_peak_memory_stats();
    const int64_t before = memory_stats().in_use;
    target.load(folder / "x");
    const int64_t run = std::max(before, memory_stats().in_use);
    return static_cast<double>(memory_stats().peak_in_use - run) / static_cast<double>(fs::file_size(folder / "x"));
  };
  CHECK(peak(checkpoint) < 1.2);
  nn::Linear fresh(500, 1000);
  optim::Adam unused(fresh.parameters(), {});
  io::Checkpoint other;
  other.add("model", fresh).add("optimizer", unused);
  CHECK(peak(other) < 1.2);
}

// ---- a run that is killed
// ---------------------------------------------------------------------------------------------

namespace {

constexpr const char *kChild = "a training run for another test to kill", *kFolder = "REEL_TEST_CHILD_FOLDER";

void train_in(const fs::path& folder) {
  Run run;
  const fs::path path = folder / "run.safetensors";
  if (fs::exists(path)) run.checkpoint.load(path);
  run.train(8, [&] { run.checkpoint.save(path); });
  fs::rename(path, folder / "done.safetensors");
}

pid_t start_child(const fs::path& folder) {
  ::setenv(kFolder, folder.c_str(), 1);
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  std::string program = "reel_tests", test = kChild, quiet = "-o", output = "/dev/null";
  char* arguments[] = {program.data(), test.data(), quiet.data(), output.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0);
  return child;
}

}  // namespace

TEST_CASE("a training run for another test to kill", "[.]") {
  if (const char* folder = std::getenv(kFolder)) train_in(folder);
}

TEST_CASE("a run that is killed a hundred times ends as if it had never been", "[cpu]") {
  using Clock = std::chrono::steady_clock;
  const Folder folder(fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path());  // which syncs fast
  const fs::path done = folder / "done.safetensors";
  const auto begun = Clock::now();
  int status = 0;
  REQUIRE(::waitpid(start_child(folder.path), &status, 0) > 0);
  REQUIRE(status == 0);
  const auto whole = std::chrono::duration<double>(Clock::now() - begun);
  const std::string expected = contents(done);
  REQUIRE(!expected.empty());

  std::mt19937 random(1);
  int kills = 0, halfway = 0, ends = 0;
  while (kills < 100) {
    fs::remove(done);
    while (!fs::exists(done)) {
      const pid_t child = start_child(folder.path);
      std::this_thread::sleep_for(whole * std::uniform_real_distribution<>(0.1, 0.9)(random));
      ::kill(child, SIGKILL);
      REQUIRE(::waitpid(child, &status, 0) == child);
      kills += WIFSIGNALED(status);
      halfway += fs::exists(folder / "run.safetensors");
      REQUIRE((WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0));
    }
    ++ends;
    REQUIRE(contents(done) == expected);
  }
  CHECK(halfway > 30);
}

TEST_CASE("an integer above the range of int64 is no sum of two doubles") {
  const Folder folder;
  uint64_t large = UINT64_MAX;
  io::Checkpoint saved;
  saved.add("n", large).save(folder / "x.safetensors");
  double as_double = 0;
  int64_t as_int = 0;
  CHECK_THROWS_WITH(io::Checkpoint().add("n", as_double).load(folder / "x.safetensors"),
                    Catch::Contains("is not one that the variable can hold"));
  CHECK_THROWS_WITH(io::Checkpoint().add("n", as_int).load(folder / "x.safetensors"),
                    Catch::Contains("is not one that the variable can hold"));
}
