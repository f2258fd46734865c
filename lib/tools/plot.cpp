#include "reel/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lib/data/utf8.h"
#include "lib/io/file.h"
#include "lib/tools/svg.h"
#include "reel/tensor.h"

namespace reel {
namespace {

constexpr const char *kText = "#0f172a", *kSoft = "#64748b", *kFrame = "#475569", *kGrid = "#e2e8f0";
constexpr double kCharacter = 6.8;  // the mean width of one, in pixels, at the size of labels
constexpr std::array kColours = {"#0d9488", "#d97706", "#4f46e5", "#db2777",
                                 "#65a30d", "#0284c7", "#78350f", "#334155"};
constexpr std::array kDashes = {"", "7 4", "2 3"};  // for what comes after all colours

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Values of one direction, and their places in the picture.
class Axis {
 public:
  explicit Axis(bool log) : log_(log) {}

  bool shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void include(double value) { low_ = std::min(low_, scaled(value)), high_ = std::max(high_, scaled(value)); }
  /// When all values are included: `margin` is a share of the range at both ends, and pixels go `from` … `to`.
  void place(double margin, double from, double to) {
    if (low_ > high_) low_ = 0, high_ = 1;  // there is no value
    const double size = std::max(std::abs(low_), std::abs(high_));
    if (high_ / 2 - low_ / 2 <= std::max(size * 1e-10, 1e-300)) {
      const double room = log_ || size < 1e-300 ? 0.5 : size / 10;
      low_ -= room, high_ += room;
    } else {
      const double room = margin * (high_ / 2 - low_ / 2) * 2;
      if (std::isfinite(low_ - room) && std::isfinite(high_ + room)) low_ -= room, high_ += room;
    }
    from_ = from, to_ = to;
  }
  double pixel(double value) const {
    // Halves, since the range of the largest numbers is infinite.
    return from_ + (to_ - from_) * ((scaled(value) / 2 - low_ / 2) / (high_ / 2 - low_ / 2));
  }

  struct Tick {
    double value;
    std::string label;
  };
  std::vector<Tick> ticks() const {
    std::vector<Tick> all;
    if (log_) all = decades();
    if (all.size() < 2) all = multiples();
    return all;
  }

 private:
  double scaled(double value) const { return log_ ? std::log10(value) : value; }
  double value_at(double at) const { return log_ ? std::pow(10, at) : at; }
  bool within(double value) const {
    const double slack = 1e-9 * (high_ / 2 - low_ / 2);
    return scaled(value) >= low_ - slack && scaled(value) <= high_ + slack;
  }

  std::vector<Tick> decades() const {
    constexpr double kMost = 8;
    const double first = std::floor(low_), last = std::floor(high_), step = std::ceil((last - first + 1) / kMost);
    const bool few = high_ - low_ < 2.5;
    std::vector<Tick> all;
    for (double decade = first; decade <= last; decade += step)
      for (const int digit : {1, 2, 5}) {
        const double value = digit * std::pow(10, decade);
        if ((digit == 1 || few) && shows(value) && within(value)) all.push_back({value, fmt::format("{:g}", value)});
      }
    return all;
  }
  // Of 1, 2 or 5 times a power of ten, about six.
  std::vector<Tick> multiples() const {
    constexpr int kMostTicks = 12;  // also where the numbers are so large or small that their steps are not
    const double low = value_at(low_), high = value_at(high_), rough = (high / 2 - low / 2) / 3;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
    const double largest = std::max(std::abs(low), std::abs(high));
    // fmax also takes 6 where the quotient is NaN.
    const int digits = static_cast<int>(std::fmin(std::fmax(std::ceil(std::log10(largest / step)) + 1, 6), 15));
    std::vector<Tick> all;
    const double first = std::ceil(low / step - 1e-9);
    for (int i = 0; i < kMostTicks && first + i <= high / step + 1e-9; ++i) {
      const double value = (first + i) * step;
      if (within(value)) all.push_back({value, fmt::format("{:.{}g}", value + 0.0, digits)});
    }
    return all;
  }

  const bool log_;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;  // scaled
  double from_ = 0, to_ = 1;
};

struct Point {
  double x, y;  // pixels
};

/// What is drawn of points that follow one another: of each pixel's column the first, the last and the extremes.
std::vector<Point> thinned(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (size_t begin = 0, end; begin < points.size(); begin = end) {
    std::array<size_t, 4> of = {begin, begin, begin, begin};
    for (end = begin; end < points.size() && std::floor(points[end].x) == std::floor(points[begin].x); ++end) {
      if (points[end].y < points[of[1]].y) of[1] = end;
      if (points[end].y > points[of[2]].y) of[2] = end;
      of[3] = end;
    }
    std::sort(of.begin(), of.end());
    const auto last = std::unique(of.begin(), of.end());
    for (auto i = of.begin(); i != last; ++i) kept.push_back(points[*i]);
  }
  return kept;
}

// One of those that are drawn at the same pixel.
std::vector<Point> scattered(std::vector<Point> points) {
  const auto pixel = [](const Point& p) { return std::pair(std::round(p.x), std::round(p.y)); };
  std::sort(points.begin(), points.end(), [&](const Point& a, const Point& b) { return pixel(a) < pixel(b); });
  const auto same = [&](const Point& a, const Point& b) { return pixel(a) == pixel(b); };
  points.erase(std::unique(points.begin(), points.end(), same), points.end());
  return points;
}

void draw_run(io::Svg& svg, const std::vector<Point>& run, const char* colour, const char* dash, bool lines,
              bool markers) {
  if (run.empty()) return;
  const std::vector<Point> points = lines ? thinned(run) : scattered(run);
  if (lines && points.size() > 1) {
    std::string list;
    for (const Point& p : points) fmt::format_to(std::back_inserter(list), "{:.1f},{:.1f} ", p.x, p.y);
    list.pop_back();
    svg.write(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.8" stroke-linejoin="round"{}/>)", list,
              colour, *dash ? fmt::format(R"( stroke-dasharray="{}")", dash) : "");
  }
  if (!lines || markers || points.size() == 1)  // a point between two gaps has no line
    for (const Point& p : points) svg.write(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.6" fill="{}"/>)", p.x, p.y, colour);
}

void check(const std::vector<PlotSeries>& series, const PlotOptions& o) {
  REEL_CHECK(!series.empty(), "plot: no series");
  const auto check_text = [](const char* what, const std::string& text) {
    const size_t bad = data::first_not_utf8(text);
    REEL_CHECK(bad == text.size(), "plot: ", what, ": byte ", bad, ", ", data::hex(text[bad]), ", is not UTF-8");
  };
  for (size_t i = 0; i < series.size(); ++i) {
    const PlotSeries& s = series[i];
    check_text("a series' name", s.name);
    REEL_CHECK(s.x.size() == s.y.size(), "plot: series ", i, " '", s.name, "' has ", s.x.size(), " x and ", s.y.size(),
               " y");
    REEL_CHECK(!s.y.empty(), "plot: series ", i, " '", s.name, "' has no points");
  }
  check_text("the title", o.title), check_text("x_label", o.x_label), check_text("y_label", o.y_label);
  REEL_CHECK(std::min(o.width, o.height) >= 160 && std::max(o.width, o.height) <= 10000, "plot: a picture of ", o.width,
             " x ", o.height, " pixels, expected 160 to 10000");
}

}  // namespace

std::vector<double> PlotSeries::numbers(const Tensor& tensor) { return tensor.to(kFloat64).to_vector<double>(); }

void plot(const std::vector<PlotSeries>& series, const std::filesystem::path& path, const PlotOptions& o) {
  check(series, o);
  REEL_CHECK(path.extension() == ".svg", "plot: ", path, " does not end with .svg, which is what is written");
  Axis x_axis(o.log_x), y_axis(o.log_y);
  int64_t not_finite = 0, not_positive = 0;
  size_t longest_name = 0;
  const auto shown = [&](double x, double y) { return x_axis.shows(x) && y_axis.shows(y); };
  for (const PlotSeries& s : series) {
    longest_name = std::max(longest_name, characters(s.name));
    for (size_t i = 0; i < s.y.size(); ++i)
      if (shown(s.x[i], s.y[i]))
        x_axis.include(s.x[i]), y_axis.include(s.y[i]);
      else
        ++(std::isfinite(s.x[i]) && std::isfinite(s.y[i]) ? not_positive : not_finite);
  }

  // Where the frame lies: labels of the y axis take what room they need, the legend a third of the width at most.
  const bool gaps = not_finite + not_positive > 0;
  const double top = o.title.empty() ? 20 : 46, bottom = o.height - 28 - (o.x_label.empty() ? 0 : 20) - (gaps ? 18 : 0);
  const double legend = longest_name ? std::min(34 + kCharacter * static_cast<double>(longest_name), o.width / 3.0) : 0;
  const double right = o.width - 20 - legend;
  y_axis.place(0.04, bottom, top);
  const std::vector<Axis::Tick> y_ticks = y_axis.ticks();
  size_t longest_tick = 1;
  for (const Axis::Tick& tick : y_ticks) longest_tick = std::max(longest_tick, tick.label.size());
  const double left = 20 + kCharacter * static_cast<double>(longest_tick) + (o.y_label.empty() ? 0 : 22);
  x_axis.place(o.lines ? 0 : 0.02, left, right);

  io::Svg svg(o.width, o.height);
  if (!o.title.empty()) svg.text(left, 28, "start", kText, o.title, R"(font-size="16" font-weight="600")");
  for (const Axis::Tick& tick : y_ticks) {
    const double y = y_axis.pixel(tick.value);
    svg.line(left, y, right, y, kGrid, 1);
    svg.text(left - 8, y + 4, "end", kSoft, tick.label);
  }
  for (const Axis::Tick& tick : x_axis.ticks()) {
    const double x = x_axis.pixel(tick.value);
    svg.line(x, top, x, bottom, kGrid, 1);
    svg.text(x, bottom + 18, "middle", kSoft, tick.label);
  }
  svg.line(left, bottom, right, bottom, kFrame, 1.2);
  svg.line(left, top, left, bottom, kFrame, 1.2);
  if (!o.x_label.empty()) svg.text((left + right) / 2, bottom + 38, "middle", kText, o.x_label);
  if (!o.y_label.empty())
    svg.text(0, 0, "middle", kText, o.y_label,
             fmt::format(R"~(transform="translate(18 {:.1f}) rotate(-90)")~", (top + bottom) / 2));
  if (gaps)
    svg.text(left, o.height - 8, "start", kSoft,
             fmt::format("not drawn: {} NaN or infinite", not_finite) +
                 (not_positive ? fmt::format(", {} not above 0 on a logarithmic axis", not_positive) : ""),
             R"(font-size="11")");

  double label_y = top + 12;
  for (size_t i = 0; i < series.size(); ++i) {
    const PlotSeries& s = series[i];
    const char* colour = kColours[i % kColours.size()];
    const char* dash = kDashes[i / kColours.size() % kDashes.size()];
    std::vector<Point> run;
    for (size_t j = 0; j < s.y.size(); ++j) {
      if (shown(s.x[j], s.y[j])) {
        run.push_back({x_axis.pixel(s.x[j]), y_axis.pixel(s.y[j])});
      } else {
        draw_run(svg, run, colour, dash, o.lines, o.markers);
        run.clear();
      }
    }
    draw_run(svg, run, colour, dash, o.lines, o.markers);
    if (s.name.empty()) continue;
    const std::vector<Point> sample = {{right + 12, label_y - 4}, {right + 28, label_y - 4}};
    draw_run(svg, o.lines ? sample : std::vector{sample[1]}, colour, dash, o.lines, false);
    svg.text(right + 34, label_y, "start", kText, s.name);
    label_y += 18;
  }

  const std::string text = std::move(svg).finished();
  io::AtomicFile file(path);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.commit();
}

}  // namespace reel
