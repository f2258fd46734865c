// Reads the results that the benchmarks have written with --json, and prints them as a table, draws them, or decides
// whether one commit is slower than another.
#include <fmt/core.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/io/svg.h"

namespace {

using Json = nlohmann::json;

// ---- results --------------------------------------------------------------------------------------------------------

/// What one program measured for one workload in one round. A thread's CPU time is what a quiet machine would show; for
/// several threads or processes and for a GPU the wall clock is taken. The peak of memory is that of the GPU, if there
/// is one.
struct Result {
  double value, wall, slow, peak;  // slow: nine of ten were faster, or for a rate, one of ten
  std::optional<double> limit, loss, wasted;
  std::string beside;  // what the program has measured turn about with it, if anything
  double beside_value = 0, ratio = 0, ratio_low = 0, ratio_high = 0;

  explicit Result(const Json& line) {
    const bool on_gpu = line.value("device", "cpu") == "cuda";
    const bool alone = line.at("threads") == 1 && line.value("processes", 1) == 1;
    value = line.at(alone && !on_gpu ? "cpu_median" : "median");
    wall = line.at("median"), slow = line.at("p90");
    peak = line.at(on_gpu ? "peak_device_mib" : "peak_rss_mib");
    if (line.contains("limit")) limit = line.at("limit").get<double>();
    if (line.contains("beside")) {
      beside = line.at("beside"), beside_value = line.at("beside_median");
      ratio = line.at("ratio"), ratio_low = line.at("ratio_low"), ratio_high = line.at("ratio_high");
    }
    if (line.contains("first_pass_loss")) loss = line.at("first_pass_loss").get<double>();
    if (line.contains("wasted_cells")) wasted = line.at("wasted_cells").get<double>();
  }
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min(static_cast<size_t>(q * static_cast<double>(values.size())), values.size() - 1)];
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

/// The rounds of one library.
struct Rounds : std::vector<Result> {
  double value() const {
    return median_of([](const Result& r) { return r.value; });
  }
  double peak() const {
    return median_of([](const Result& r) { return r.peak; });
  }
  std::optional<double> limit() const {
    if (empty() || !front().limit) return {};
    return median_of([](const Result& r) { return *r.limit; });
  }

 private:
  template <class F>
  double median_of(const F& f) const {
    std::vector<double> values;
    for (const Result& result : *this) values.push_back(f(result));
    return median(values);
  }
};

struct Workload {
  std::string name, unit;
  int threads = 1;
  std::map<std::string, Rounds> of;  // libraries

  const Rounds* rounds(const std::string& library) const {
    const auto found = of.find(library);
    return found == of.end() ? nullptr : &found->second;
  }
  bool is_beside() const { return !of.empty() && !of.begin()->second.front().beside.empty(); }
  bool is_rate() const { return unit.size() > 2 && unit.substr(unit.size() - 2) == "/s"; }
  std::string label() const { return threads == 1 ? name : fmt::format("{} ({} threads)", name, threads); }
};

/// How many times as fast `a` is as `b`: a figure for each round, in which both ran one right after the other.
struct Speedup {
  double middle, low, high, upper_quartile;
  Speedup(const Workload& workload, const Rounds& a, const Rounds& b) {
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      ratios.push_back(workload.is_rate() ? a[i].value / b[i].value : b[i].value / a[i].value);
    middle = median(ratios), low = quantile(ratios, 0), high = quantile(ratios, 1);
    upper_quartile = quantile(ratios, 0.75);
  }
};

struct Results {
  std::string machine, date, commit;
  std::vector<Workload> workloads;     // in the order of the file
  std::vector<std::string> libraries;  // reel, then the others

  explicit Results(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line);
      if (json.contains("machine"))
        machine = json.at("machine"), date = json.at("date"), commit = json.at("commit");
      else
        add(json);
    }
    if (workloads.empty()) throw std::runtime_error("no results in " + path);
    std::stable_partition(libraries.begin(), libraries.end(), [](const auto& name) { return name == "reel"; });
  }
  const Workload* find(const std::string& name, int threads) const {
    for (const Workload& w : workloads)
      if (w.name == name && w.threads == threads) return &w;
    return nullptr;
  }

 private:
  void add(const Json& line) {
    const std::string name = line.at("workload"), library = line.at("library");
    const int threads = line.at("threads");
    const Workload* known = find(name, threads);
    const size_t at = known ? static_cast<size_t>(known - workloads.data()) : workloads.size();
    if (!known) workloads.push_back({name, line.at("unit"), threads, {}});
    workloads[at].of[library].emplace_back(line);
    if (std::find(libraries.begin(), libraries.end(), library) == libraries.end()) libraries.push_back(library);
  }
};

// ---- the table ------------------------------------------------------------------------------------------------------

/// Three digits, as many as the noise leaves: 0.0931, 26,900.
std::string number(double x) {
  if (x == 0) return "0";
  const int before = static_cast<int>(std::floor(std::log10(std::abs(x)))) + 1;
  if (before > 3) {
    const double unit = std::pow(10, before - 3);
    std::string digits = fmt::format("{:.0f}", std::round(x / unit) * unit);
    for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
    return digits;
  }
  return fmt::format("{:.{}f}", x, std::min(3 - before, 4));
}

std::string times(double ratio) { return fmt::format("{:.{}f}", ratio, ratio < 9.95 ? ratio < 1.995 ? 2 : 1 : 0); }

/// libtorch-2.15.0+cpu: libtorch 2.15
std::string display_name(std::string library) {
  library = library.substr(0, library.find('+'));
  std::replace(library.begin(), library.end(), '-', ' ');
  if (std::count(library.begin(), library.end(), '.') == 2) library.resize(library.rfind('.'));
  return library;
}

using Table = std::vector<std::vector<std::string>>;

/// As Markdown that is also readable as it is.
void print(const Table& table) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      const auto starts = [](char c) { return (c & 0xC0) != 0x80; };  // of UTF-8
      widths[i] = std::max(widths[i], static_cast<size_t>(std::count_if(row[i].begin(), row[i].end(), starts)));
    }
  }
  for (size_t r = 0; r < table.size(); ++r) {
    for (size_t i = 0; i < table[r].size(); ++i)
      fmt::print(fmt::runtime(i < 2 ? "| {:<{}} " : "| {:>{}} "), table[r][i], widths[i]);
    fmt::print("|\n");
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) fmt::print("|{:-<{}}{}", "", widths[i] + 1, i < 2 ? "-" : ":");
    fmt::print("|\n");
  }
}

void print_table(const Results& results) {
  const bool compares = results.libraries.size() > 1;
  bool limits = false;
  for (const Workload& w : results.workloads)
    for (const auto& [library, rounds] : w.of) limits |= rounds.limit().has_value();

  Table table(1, {"workload", "unit"});
  for (const std::string& library : results.libraries) {
    table[0].push_back(display_name(library));
    if (compares && library != "reel") table[0].insert(table[0].end(), {"ratio", "spread"});
  }
  if (limits) table[0].push_back("limit");
  for (const std::string& library : results.libraries) table[0].push_back(display_name(library) + ", MiB");

  for (const Workload& w : results.workloads) {
    if (w.is_beside()) continue;
    std::vector<std::string> row = {w.label(), w.unit}, peaks;
    const Rounds* own = w.rounds("reel");
    for (const std::string& library : results.libraries) {
      const Rounds* rounds = w.rounds(library);
      row.push_back(rounds ? number(rounds->value()) : "");
      peaks.push_back(rounds ? fmt::format("{:.0f}", rounds->peak()) : "");
      if (!compares || library == "reel") continue;
      if (rounds && own) {
        const Speedup speedup(w, *own, *rounds);
        row.insert(row.end(), {times(speedup.middle), times(speedup.low) + " – " + times(speedup.high)});
      } else {
        row.insert(row.end(), 2, "");
      }
    }
    if (limits) row.push_back(own && own->limit() ? number(*own->limit()) : "");
    row.insert(row.end(), peaks.begin(), peaks.end());
    table.push_back(std::move(row));
  }
  if (table.size() > 1) print(table);
}

/// What has been measured turn about with something else: how many times as fast it is. Two processes.
void print_beside(const Results& results) {
  Table table(1, {"workload", "unit"});
  for (const std::string& library : results.libraries) {
    table[0].insert(table[0].end(), {display_name(library), "beside", "ratio", "spread"});
    if (library != "reel") table[0].insert(table[0].end(), {"reel is", "spread"});
  }
  for (const Workload& w : results.workloads) {
    if (!w.is_beside()) continue;
    std::vector<std::string> row = {w.name, w.unit};
    const Rounds* own = w.rounds("reel");
    for (const std::string& library : results.libraries) {
      const Rounds* rounds = w.rounds(library);
      if (!rounds) {
        row.insert(row.end(), library == "reel" ? 4 : 6, "");
        continue;
      }
      std::vector<double> ratios, others;
      for (const Result& r : *rounds) ratios.push_back(r.ratio), others.push_back(r.beside_value);
      const bool one = rounds->size() == 1;
      row.insert(row.end(),
                 {number(rounds->value()), rounds->front().beside + " " + number(median(others)), times(median(ratios)),
                  times(one ? rounds->front().ratio_low : quantile(ratios, 0)) + " – " +
                      times(one ? rounds->front().ratio_high : quantile(ratios, 1))});
      if (library == "reel") continue;
      if (own) {
        const Speedup speedup(w, *own, *rounds);
        row.insert(row.end(), {times(speedup.middle), times(speedup.low) + " – " + times(speedup.high)});
      } else {
        row.insert(row.end(), 2, "");
      }
    }
    table.push_back(std::move(row));
  }
  if (table.size() > 1) print(table);
}

/// One thread beside several, of every library; the limit is that of copies or multiplications.
void print_threads(const Results& results) {
  int threads = 1;
  for (const Workload& w : results.workloads) threads = std::max(threads, w.threads);
  Table table(1, {"workload", "unit"});
  for (const std::string& library : results.libraries)
    table[0].insert(table[0].end(),
                    {display_name(library) + ", 1", fmt::format("{} threads", threads), "speed", "spread", "at p90"});
  table[0].push_back("limit");
  for (const Workload& one : results.workloads) {
    const Workload* several = results.find(one.name, threads);
    if (one.threads != 1 || !several) continue;
    std::vector<std::string> row = {one.name, one.unit};
    for (const std::string& library : results.libraries) {
      const Rounds *a = one.rounds(library), *b = several->rounds(library);
      if (!a || !b) {
        row.insert(row.end(), 5, "");
        continue;
      }
      std::vector<double> before, after, ratios, slow;
      for (size_t i = 0; i < std::min(a->size(), b->size()); ++i) {
        before.push_back((*a)[i].wall), after.push_back((*b)[i].wall);
        ratios.push_back(one.is_rate() ? after[i] / before[i] : before[i] / after[i]);
        slow.push_back(one.is_rate() ? (*b)[i].slow / (*a)[i].slow : (*a)[i].slow / (*b)[i].slow);
      }
      row.insert(row.end(), {number(median(before)), number(median(after)), times(median(ratios)),
                             times(quantile(ratios, 0)) + " – " + times(quantile(ratios, 1)), times(median(slow))});
    }
    const Rounds *a = one.rounds("reel"), *b = several->rounds("reel");
    row.push_back(a && b && a->limit() && b->limit() ? times(*b->limit() / *a->limit()) : "");
    table.push_back(std::move(row));
  }
  print(table);
  if (!results.machine.empty()) fmt::print("\n{}, {}, {}\n", results.machine, results.date, results.commit);
}

/// Whether all libraries computed the same; prints the differences. The last digits may differ, as sums are taken in
/// another order.
bool losses_agree(const Results& results) {
  bool agree = true;
  for (const Workload& w : results.workloads) {
    const Rounds* own = w.rounds("reel");
    if (!own || !own->front().loss) continue;
    for (const auto& [library, rounds] : w.of) {
      const double loss = *own->front().loss, other = rounds.front().loss.value_or(loss);
      if (std::abs(loss - other) <= 1e-3 * std::abs(other)) continue;
      fmt::print("\n{}: the loss of the first pass is {}, {}'s {}\n", w.label(), loss, display_name(library), other);
      agree = false;
    }
  }
  return agree;
}

// ---- over batch sizes
// ------------------------------------------------------------------------------------------------

/// What `treelstm --workload sweep` has measured: one kind of pass over one kind of trees, tree by tree and in batches.
struct Sweep {
  std::string title, colour;
  bool dashed;
  const Workload* one;                                        // tree by tree
  std::vector<std::pair<int, const Workload*>> batches = {};  // by their size

  Speedup speedup(const Workload& w) const { return {w, *w.rounds("reel"), *one->rounds("reel")}; }
  double last() const { return speedup(*batches.back().second).middle; }
};

std::vector<Sweep> sweeps_of(const Results& results) {
  std::vector<Sweep> all;
  for (const std::string trees : {"real", "equal"})
    for (const std::string pass : {"infer", "train"}) {
      const std::string prefix = "sweep." + pass + "." + trees + ".";
      const Workload* const one = results.find(prefix + "eager", 1);
      if (!one) throw std::runtime_error("no results of " + prefix + "eager");
      const std::string title = (pass == "infer" ? "inference, " : "training, ") + trees + " trees";
      all.push_back({title, pass == "infer" ? "#0d9488" : "#d97706", trees == "equal", one});
      for (const Workload& w : results.workloads)
        if (w.name.rfind(prefix, 0) == 0 && &w != one)
          all.back().batches.emplace_back(std::stoi(w.name.substr(prefix.size())), &w);
    }
  return all;
}

/// Rows are batch sizes; trees a second, and how many times as fast as tree by tree that is.
void print_sweep(const Results& results) {
  const std::vector<Sweep> sweeps = sweeps_of(results);
  Table table(1, {"batch", "unit"});
  for (const Sweep& sweep : sweeps) table[0].insert(table[0].end(), {sweep.title, "speed", "spread"});
  table.push_back({"eager", sweeps[0].one->unit});
  for (const Sweep& sweep : sweeps)
    table[1].insert(table[1].end(), {number(sweep.one->rounds("reel")->value()), "1", ""});
  for (size_t i = 0; i < sweeps[0].batches.size(); ++i) {
    std::vector<std::string> row = {std::to_string(sweeps[0].batches[i].first), sweeps[0].one->unit};
    for (const Sweep& sweep : sweeps) {
      const Workload& w = *sweep.batches.at(i).second;
      const Speedup speedup = sweep.speedup(w);
      row.insert(row.end(), {number(w.rounds("reel")->value()), times(speedup.middle),
                             times(speedup.low) + " – " + times(speedup.high)});
    }
    table.push_back(std::move(row));
  }
  print(table);
  if (!results.machine.empty()) fmt::print("\n{}, {}, {}\n", results.machine, results.date, results.commit);
}

// ---- padding --------------------------------------------------------------------------------------------------------

/// Ways to read sentences: of each library the words a second, and how many times as fast as one by one that is.
void print_padding(const Results& results) {
  for (const std::string pass : {"train", "infer"}) {
    const std::string prefix = "padding." + pass + ".";
    Table table(1, {pass == "train" ? "training" : "inference", "unit", "padding"});
    for (const std::string& library : results.libraries) {
      table[0].insert(table[0].end(), {display_name(library), "speed", "spread"});
      if (library != "reel") table[0].insert(table[0].end(), {"reel is", "spread"});
    }
    const Workload* const one = results.find(prefix + "one", 1);
    if (!one) continue;  // another --workload
    for (const Workload& w : results.workloads) {
      if (w.name.rfind(prefix, 0) != 0) continue;
      const Rounds* own = w.rounds("reel");
      std::vector<std::string> row = {w.name.substr(prefix.size()), w.unit,
                                      fmt::format("{:.1f} %", 100 * own->front().wasted.value_or(0))};
      const auto add = [&](const Speedup& s) {
        row.insert(row.end(), {times(s.middle), times(s.low) + " – " + times(s.high)});
      };
      for (const std::string& library : results.libraries) {
        const Rounds *rounds = w.rounds(library), *base = one->rounds(library);
        if (!rounds || !base) {
          row.insert(row.end(), library == "reel" ? 3 : 5, "");
          continue;
        }
        row.push_back(number(rounds->value()));
        add({w, *rounds, *base});
        if (library != "reel") add({w, *own, *rounds});
      }
      table.push_back(std::move(row));
    }
    print(table);
    fmt::print("\n");
  }
  if (!results.machine.empty()) fmt::print("{}, {}, {}\n", results.machine, results.date, results.commit);
}

// ---- the picture ----------------------------------------------------------------------------------------------------

/// A file of SVG with a heading.
class Drawing {
 public:
  explicit Drawing(const std::string& path) : file_(path) {
    if (!file_) throw std::runtime_error("cannot write " + path);
  }

 protected:
  void begin(double width, double height, const std::string& title, const std::string& subtitle) {
    svg_.emplace(width, height);
    svg_->text(24, 34, "start", "#0f172a", title, "font-size=\"17\" font-weight=\"600\"");
    svg_->text(24, 54, "start", "#64748b", subtitle);
  }
  /// With where and when below, and no more.
  void end(double y, const Results& results) {
    const std::string about = fmt::format("{} · {} · {}", results.machine, results.date, results.commit);
    if (!results.machine.empty()) svg_->text(24, y, "start", "#94a3b8", about, "font-size=\"11\"");
    file_ << std::move(*svg_).finished();
    file_.close();
    if (!file_) throw std::runtime_error("the picture could not be written");
  }

  std::optional<reel::io::Svg> svg_;

 private:
  std::ofstream file_;
};

/// One bar a workload and peer: how many times as fast reel is, on a scale of powers, from the line where both are
/// level. A thin line across its end spans the rounds; where that crosses the line, the bar has no colour.
class Picture : Drawing {
 public:
  Picture(const Results& results, const std::string& path) : Drawing(path), results_(results) {
    for (const Workload& w : results.workloads)
      for (const std::string& library : results.libraries)
        if (library != "reel" && w.rounds(library) && w.rounds("reel"))
          bars_.push_back({&w, library, Speedup(w, *w.rounds("reel"), *w.rounds(library))});
    if (bars_.empty()) throw std::runtime_error("a picture needs results of two libraries (--peer)");
    for (const Bar& bar : bars_) {
      low_ = std::min(low_, bar.speedup.low);
      high_ = std::max(high_, bar.speedup.high);
    }
    low_ /= 1.1, high_ *= 1.6;  // room for the figure behind the longest bar
  }

  void draw() {
    constexpr int kTop = 92, kFoot = 44;
    double y = kTop;
    for (size_t i = 0; i < bars_.size(); ++i) y += (starts_group(i) ? kHeading : 0) + kRow;
    const double bottom = y + 4;
    begin(kWidth, bottom + kFoot, title(),
          "how many times as fast, on a logarithmic scale; thin lines span the rounds");
    for (double tick : ticks()) {
      const bool level = tick == 1;
      svg_->line(x(tick), kTop - 8, x(tick), bottom, level ? "#475569" : "#e2e8f0", level ? 1.2 : 1);
      svg_->text(x(tick), kTop - 14, "middle", level ? "#475569" : "#94a3b8", fmt::format("{:g}×", tick));
    }
    svg_->text(kWidth - 24, kTop - 14, "end", "#94a3b8", "reel : the other");
    y = kTop;
    for (size_t i = 0; i < bars_.size(); ++i) {
      if (starts_group(i)) {
        y += kHeading;
        svg_->text(24, y - 8, "start", "#0f172a", group_title(group(i)), "font-weight=\"600\"");
      }
      draw(bars_[i], y);
      y += kRow;
    }
    end(bottom + 26, results_);
  }

 private:
  static constexpr int kWidth = 860, kLeft = 212, kRight = 640, kRow = 21, kHeading = 34;
  struct Bar {
    const Workload* workload;
    std::string library;
    Speedup speedup;
  };

  double x(double ratio) const { return kLeft + (kRight - kLeft) * std::log(ratio / low_) / std::log(high_ / low_); }
  std::vector<double> ticks() const {
    std::vector<double> all;
    for (double power = 0.001; power < 1e6; power *= 10)
      for (double digit : {1, 2, 5}) {
        const double tick = std::round(digit * power * 1000) / 1000;
        if (tick >= low_ && tick <= high_) all.push_back(tick);
      }
    return all;
  }
  /// The first word of a workload's name.
  std::string group(size_t i) const {
    const std::string& name = bars_[i].workload->name;
    return name.substr(0, name.find('.'));
  }
  bool starts_group(size_t i) const { return i == 0 || group_title(group(i)) != group_title(group(i - 1)); }
  static std::string group_title(const std::string& group) {
    if (group == "op") return "One small operation";
    if (group == "k") return "Kernels";
    if (group == "gpu") return "What only GPUs are for";
    if (group == "tree" || group == "tag" || group == "ner") return "Dynamic models";
    if (group == "padding") return "With and without padding";
    if (group == "ddp" || group == "allreduce" || group == "wire") return "Two processes";
    return "Dense models";
  }
  std::string title() const {
    std::string peers;
    for (const std::string& library : results_.libraries)
      if (library != "reel") peers += (peers.empty() ? "" : " and ") + display_name(library);
    return "reel against " + peers;
  }

  void draw(const Bar& bar, double y) {
    const Workload& w = *bar.workload;
    const double from = x(1), to = x(bar.speedup.middle), middle = y + kRow / 2.0;
    const bool level = bar.speedup.low <= 1 && bar.speedup.high >= 1, wins = bar.speedup.middle > 1;
    const char* colour = level ? "#94a3b8" : wins ? "#0d9488" : "#d97706";
    svg_->text(kLeft - 10, middle + 4, "end", "#334155", w.label());
    svg_->write(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="13" rx="2" fill="{}"/>)", std::min(from, to),
                middle - 6.5, std::max(std::abs(to - from), 1.0), colour);
    svg_->line(x(bar.speedup.low), middle, x(bar.speedup.high), middle,
               level  ? "#334155"
               : wins ? "#134e4a"
                      : "#7c2d12",
               1.5);
    svg_->text(std::max(x(bar.speedup.high), from) + 7, middle + 4, "start", "#0f172a", times(bar.speedup.middle) + "×",
               "font-weight=\"600\"");
    const std::string figures =
        fmt::format("{} : {} {}", number(w.rounds("reel")->value()), number(w.rounds(bar.library)->value()), w.unit);
    svg_->text(kWidth - 24, middle + 4, "end", "#64748b", figures);
  }

  const Results& results_;
  std::vector<Bar> bars_;
  double low_ = 0.7, high_ = 2;
};

/// A curve a sweep: how many times as fast as tree by tree over the batch size, both on a scale of powers of two. Thin
/// lines span the rounds.
class Curves : Drawing {
 public:
  Curves(const Results& results, const std::string& path)
      : Drawing(path), results_(results), sweeps_(sweeps_of(results)) {
    for (const Sweep& sweep : sweeps_)
      for (const auto& [size, workload] : sweep.batches) {
        last_ = std::max<double>(last_, size);
        high_ = std::max(high_, std::exp2(std::ceil(std::log2(sweep.speedup(*workload).high))));
      }
    // So that labels are in the order of the curves' ends.
    std::sort(sweeps_.begin(), sweeps_.end(), [](const Sweep& a, const Sweep& b) { return a.last() > b.last(); });
  }

  void draw() {
    begin(kWidth, kBottom + 66, "Is dynamic batching worth it?",
          "a Tree-LSTM under batching::map: how many times as fast as tree by tree, over the trees at once");
    for (double tick = kLow; tick <= high_; tick *= 2) {
      const bool level = tick == 1;
      svg_->line(kLeft, y(tick), kRight, y(tick), level ? "#475569" : "#e2e8f0", level ? 1.2 : 1);
      svg_->text(kLeft - 10, y(tick) + 4, "end", level ? "#475569" : "#94a3b8", fmt::format("{:g}×", tick));
    }
    for (double size = 1; size <= last_; size *= 2)
      svg_->text(x(size), kBottom + 20, "middle", "#94a3b8", fmt::format("{:g}", size));
    svg_->text(kRight + 14, kBottom + 20, "start", "#94a3b8", "trees at once");
    for (const Sweep& sweep : sweeps_) draw(sweep);
    end(kBottom + 48, results_);
  }

 private:
  static constexpr double kWidth = 860, kLeft = 72, kRight = 640, kTop = 84, kBottom = 400, kLow = 0.5;

  double x(double size) const { return kLeft + (kRight - kLeft) * std::log2(size) / std::log2(last_); }
  double y(double speed) const {
    return kBottom - (kBottom - kTop) * std::log2(speed / kLow) / std::log2(high_ / kLow);
  }
  void draw(const Sweep& sweep) {
    std::string points;
    double end = 0;
    for (const auto& [size, workload] : sweep.batches) {
      const Speedup speedup = sweep.speedup(*workload);
      end = y(speedup.middle);
      points += fmt::format("{:.1f},{:.1f} ", x(size), end);
      svg_->line(x(size), y(speedup.low), x(size), y(speedup.high), sweep.colour.c_str(), 1);
      svg_->write(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="{}"/>)", x(size), end, sweep.colour);
    }
    svg_->write(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"{}/>)", points, sweep.colour,
                sweep.dashed ? " stroke-dasharray=\"5 4\"" : "");
    label_ = std::max(label_ + 17, end + 4);  // below the one before it
    svg_->text(kRight + 14, label_, "start", sweep.colour, fmt::format("{}: {}×", sweep.title, times(sweep.last())),
               "font-weight=\"600\"");
  }

  const Results& results_;
  std::vector<Sweep> sweeps_;
  double last_ = 2, high_ = 2, label_ = 0;
};

// ---- two commits ----------------------------------------------------------------------------------------------------

/// Prints the changes and returns the workloads that became slower: by over 10 % in three rounds of four, so that noise
/// between rounds is not taken for a regression. Times below the clock's resolution are left out.
std::vector<std::string> losses(const Results& base, const Results& now) {
  constexpr double kMaxSlowdown = 1.1, kLeastNanoseconds = 2;
  std::vector<std::string> lost;
  Table table(1, {"workload", "unit", "base", "now", "speed", "spread", ""});
  for (const Workload& w : now.workloads) {
    const Workload* before = base.find(w.name, w.threads);
    const Rounds *a = w.rounds("reel"), *b = before ? before->rounds("reel") : nullptr;
    if (!a || !b) continue;
    const Speedup speedup(w, *a, *b);
    const bool counts = w.unit != "ns/op" || a->value() > kLeastNanoseconds;
    const bool slower = counts && speedup.upper_quartile < 1 / kMaxSlowdown;
    if (slower) lost.push_back(w.name);
    table.push_back({w.label(), w.unit, number(b->value()), number(a->value()), times(speedup.middle),
                     times(speedup.low) + " – " + times(speedup.high), slower ? "slower" : ""});
  }
  print(table);
  return lost;
}

int usage() {
  fmt::print(stderr,
             "usage: report RESULTS [--plot FILE.svg]    the table, and the picture of reel against its peers\n"
             "       report --threads RESULTS                one thread beside several\n"
             "       report --padding RESULTS [--plot FILE.svg]  with and without padding\n"
             "       report --sweep RESULTS [--plot FILE.svg]    batch sizes beside tree by tree\n"
             "       report --base RESULTS RESULTS [--losses FILE]    whether the second is slower than the first\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> flags;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0)
      files.push_back(word);
    else if (word == "--threads" || word == "--sweep" || word == "--padding")
      flags[word] = "";
    else if ((word == "--plot" || word == "--base" || word == "--losses") && i + 1 < argc)
      flags[word] = argv[++i];
    else
      return usage();
  }
  if (files.size() != 1) return usage();
  const Results results(files[0]);
  if (flags.count("--base")) {
    const auto lost = losses(Results(flags["--base"]), results);
    if (flags.count("--losses")) {
      std::ofstream file(flags["--losses"]);
      for (const std::string& name : lost) file << name << '\n';
    }
    return lost.empty() ? 0 : 1;
  }
  if (flags.count("--sweep")) {
    print_sweep(results);
    if (flags.count("--plot")) Curves(results, flags["--plot"]).draw();
    return 0;
  }
  if (flags.count("--threads")) {
    print_threads(results);
  } else if (flags.count("--padding")) {
    print_padding(results);
  } else {
    print_table(results), print_beside(results);
    if (!results.machine.empty()) fmt::print("\n{}, {}, {}\n", results.machine, results.date, results.commit);
  }
  if (flags.count("--plot")) Picture(results, flags["--plot"]).draw();
  return losses_agree(results) ? 0 : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "report: {}\n", e.what());
  return 2;
}
