#pragma once
// What the benchmarks of reel and of its peers share: the way of timing, the numbers that parameters start from and the
// lines that are printed. C++17 and the standard library only, so that every peer can include it.
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

// ---- options --------------------------------------------------------------------------------------------------------

struct Options {
  std::string workload;  // this one or this group: op.chain_add.fwd, op.chain_add, op
  std::string data;      // a folder with the corpora that corpus.h reads
  std::string json;      // append the results to this file
  double secs = 3;       // of each measurement
  int trees = 300;       // in one pass, spread evenly over the file
  int sentences = 320;
  int threads = 1;
  std::string device = "cpu";  // or cuda
  bool small = false;          // less of what is for GPUs, so that a processor can do it
  bool scaling = false;        // count what more threads would gain
  bool list = false;           // only name the workloads
};

inline Options parse(int argc, char** argv) {
  Options options;
  if (const char* data = std::getenv("REEL_DATA")) options.data = data;
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string flag = argv[i];
      if (flag == "--list" || flag == "--small" || flag == "--scaling") {
        (flag == "--list" ? options.list : flag == "--small" ? options.small : options.scaling) = true;
        --i;
        continue;
      }
      if (i + 1 == argc) throw std::invalid_argument(flag);
      const std::string value = argv[i + 1];
      if (flag == "--workload")
        options.workload = value;
      else if (flag == "--data")
        options.data = value;
      else if (flag == "--json")
        options.json = value;
      else if (flag == "--secs")
        options.secs = std::stod(value);
      else if (flag == "--trees")
        options.trees = std::stoi(value);
      else if (flag == "--sentences")
        options.sentences = std::stoi(value);
      else if (flag == "--threads")
        options.threads = std::stoi(value);
      else if (flag == "--device" && (value == "cpu" || value == "cuda"))
        options.device = value;
      else
        throw std::invalid_argument(flag);
    }
  } catch (const std::exception&) {
    std::fprintf(
        stderr,
        "usage: %s [--list] [--workload NAME] [--data DIR] [--secs S] [--trees N] [--sentences N] [--threads N]\n"
        "          [--json FILE] [--device cpu|cuda] [--small] [--scaling]\n"
        "  NAME is a workload or the first words of several: op.chain_add.fwd, op.chain_add, op\n"
        "  DIR holds sst/train.txt, ud-english-ewt/en_ewt-ud-train.conllu and wnut17/wnut17train.conll, plain or with\n"
        "  .gz; default $REEL_DATA, else random trees and sentences\n"
        "  --small: less of what is for GPUs, so that a processor can do it\n"
        "  --scaling: of nets and kernels, count what more threads would gain\n",
        argv[0]);
    std::exit(2);
  }
  return options;
}

// ---- timing ---------------------------------------------------------------------------------------------------------

/// Wall clock and CPU time of the process, in seconds. On a machine that others use, too, the second says what a quiet
/// one would show for one thread.
struct Time {
  double wall, cpu;
};
inline Time now() {
  timespec cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9};
}

/// What a side that computes on a GPU sets in the process that measures.
struct Device {
  void (*wait)() = nullptr;        // until all that was queued is done
  double (*peak_mib)() = nullptr;  // the most of its memory that was in use at once
};
inline Device device;

/// Now, when the work that was queued is done.
inline Time finished() {
  if (device.wait) device.wait();
  return now();
}

/// The times of many repeats.
class Samples {
 public:
  void add(Time from, Time to) {
    wall_.push_back(to.wall - from.wall);
    cpu_.push_back(to.cpu - from.cpu);
  }
  double wall(double quantile = 0.5) const { return at(wall_, quantile); }
  double cpu() const { return at(cpu_, 0.5); }
  int count() const { return static_cast<int>(wall_.size()); }

 private:
  static double at(std::vector<double> times, double quantile) {
    std::sort(times.begin(), times.end());
    const auto i = static_cast<size_t>(quantile * static_cast<double>(times.size()));
    return times[std::min(i, times.size() - 1)];
  }
  std::vector<double> wall_, cpu_;
};

/// Repeats f for `secs` seconds, at least `least` times, after `warm_up` repeats that do not count. A repeat lasts
/// until a GPU has done its part.
template <class F>
Samples measure(const F& f, double secs, int warm_up = 3, int least = 7) {
  for (int i = 0; i < warm_up; ++i) f();
  Samples samples;
  for (const double end = finished().wall + secs; samples.count() < least || now().wall < end;) {
    const Time from = now();
    f();
    samples.add(from, finished());
  }
  return samples;
}

// ---- results --------------------------------------------------------------------------------------------------------

/// "key": value, for Report's `more`.
inline std::string field(const char* key, double value) {
  char text[96];
  std::snprintf(text, sizeof text, "\"%s\": %.7g", key, value);
  return text;
}

/// The loss of the first pass as a field. Throws when the model did not compute what every library computes; the last
/// digits are those of float sums in another order.
inline std::string check_loss(double loss, double expected) {
  if (!(std::abs(loss - expected) <= 1e-3 * std::abs(expected)))
    throw std::runtime_error("first-pass loss is " + std::to_string(loss) + ", expected " + std::to_string(expected));
  return field("first_pass_loss", loss);
}

/// A table on stdout and, if asked for, lines of JSON.
class Report {
 public:
  Report(std::string library, const Options& options) : library_(std::move(library)), options_(options) {
    if (options.list) return;
    std::printf("%s, %s%d thread%s\n%-26s %10s %10s %10s %10s  %-11s %8s\n", library_.c_str(),
                on_gpu() ? "on a GPU, " : "", options.threads, options.threads == 1 ? "" : "s", "workload", "median",
                "cpu", "p10", "p90", "unit", "peak MiB");
    std::fflush(stdout);
  }

  /// Runs f(), which measures one workload and calls time() or rate(), in a process of its own: each has its own peak
  /// of memory, and none finds what another left in the caches.
  void run(const std::string& workload, const std::function<void()>& f) {
    if (!within(workload, options_.workload) && !within(options_.workload, workload)) return;
    if (options_.list) return void(std::printf("%s\n", workload.c_str()));
    const pid_t child = fork();
    if (child == 0) {
      int status = 0;
      if (on_gpu()) alarm(kGpuSeconds);
      try {
        f();
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", workload.c_str(), e.what());
        status = 1;
      }
      std::fflush(stdout);
      _exit(status);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) good_ = false;
    if (WIFSIGNALED(status)) std::fprintf(stderr, "%s: ended by signal %d\n", workload.c_str(), WTERMSIG(status));
  }
  /// Instead of run(), for a workload that makes no sense on this device.
  void skip(const std::string& workload, const char* why) const {
    if (options_.list || !within(workload, options_.workload)) return;
    std::printf("%-26s not on %s: %s\n", workload.c_str(), on_gpu() ? "a GPU" : "a CPU", why);
    std::fflush(stdout);
  }
  bool on_gpu() const { return options_.device == "cuda"; }
  bool good() const { return good_; }  ///< All runs so far went well.

  /// Seconds times `scale`, in `unit`. `more` goes into the JSON line: fields, separated by commas.
  void time(const std::string& workload, const Samples& samples, double scale, const char* unit,
            const std::string& more = {}) const {
    print(
        workload, samples, unit, [=](double seconds) { return seconds * scale; }, more);
  }
  /// `count` things a repeat.
  void rate(const std::string& workload, const Samples& samples, double count, const char* unit,
            const std::string& more = {}) const {
    print(
        workload, samples, unit, [=](double seconds) { return count / seconds; }, more);
  }
  /// For a workload that starts threads of its own.
  void set_threads(int threads) { options_.threads = threads; }
  int threads() const { return options_.threads; }

 private:
  /// op.chain_add.fwd is within op.chain_add, op.chain_addx is not; everything is within "".
  static bool within(const std::string& name, const std::string& group) {
    return group.empty() || name == group || name.rfind(group + ".", 0) == 0;
  }
  template <class Convert>
  void print(const std::string& workload, const Samples& s, const char* unit, const Convert& value,
             const std::string& more) const {
    if (!within(workload, options_.workload)) return;
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const double resident = static_cast<double>(usage.ru_maxrss) / 1024;
    const double peak = device.peak_mib ? device.peak_mib() : resident;
    const double median = value(s.wall()), cpu = value(s.cpu());
    const double best = value(s.wall(0)), p10 = value(s.wall(0.1)), p90 = value(s.wall(0.9));
    std::printf("%-26s %10.4g %10.4g %10.4g %10.4g  %-11s %8.0f\n", workload.c_str(), median, cpu, p10, p90, unit,
                peak);
    if (!more.empty()) std::printf("  %s\n", more.c_str());
    std::fflush(stdout);
    if (options_.json.empty()) return;
    std::FILE* file = std::fopen(options_.json.c_str(), "a");
    if (!file) throw std::runtime_error("cannot write " + options_.json);
    std::fprintf(file,
                 "{\"workload\": \"%s\", \"library\": \"%s\", \"device\": \"%s\", \"threads\": %d, \"median\": %.6g, "
                 "\"unit\": \"%s\", "
                 "\"cpu_median\": %.6g, \"best\": %.6g, \"p10\": %.6g, \"p90\": %.6g, \"n\": %d, "
                 "\"peak_rss_mib\": %.1f, \"peak_device_mib\": %.1f%s%s}\n",
                 workload.c_str(), library_.c_str(), options_.device.c_str(), options_.threads, median, unit, cpu, best,
                 p10, p90, s.count(), resident, device.peak_mib ? peak : 0, more.empty() ? "" : ", ", more.c_str());
    std::fclose(file);
  }

  static constexpr int kGpuSeconds = 120;  // a workload of a GPU that takes longer is taken to hang
  const std::string library_;
  Options options_;
  bool good_ = true;
};

// ---- numbers that are the same everywhere ---------------------------------------------------------------------------

/// SplitMix64 (Steele, Lea & Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  float uniform(float bound) { return (static_cast<float>(next() >> 40) / 16777216.0f * 2 - 1) * bound; }

 private:
  uint64_t state_;
};

/// n numbers, uniform in ±bound.
inline std::vector<float> filled(size_t n, uint64_t seed, float bound) {
  Random random(seed);
  std::vector<float> values(n);
  for (float& value : values) value = random.uniform(bound);
  return values;
}

}  // namespace bench
