#include "reel/plot.h"

#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "reel/ops.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

std::string drawn(const std::vector<PlotSeries>& series, const PlotOptions& options = {}) {
  Folder folder;
  plot(series, folder / "a.svg", options);
  return contents(folder / "a.svg");
}

using Line = std::vector<std::pair<double, double>>;

// The points of all lines, those of the legend included. Not by std::regex, whose stack grows with the text.
std::vector<Line> lines_of(const std::string& svg) {
  const std::string head = "<polyline points=\"";
  std::vector<Line> lines;
  for (size_t at = svg.find(head); at != svg.npos; at = svg.find(head, at)) {
    at += head.size();
    std::istringstream list(svg.substr(at, svg.find('"', at) - at));
    lines.emplace_back();
    char comma;
    for (double x, y; list >> x >> comma >> y;) lines.back().emplace_back(x, y);
  }
  return lines;
}

// What is written at the axes: the number and its place.
std::vector<std::pair<double, double>> ticks_of(const std::string& svg, const std::string& anchor) {
  std::vector<std::pair<double, double>> ticks;
  const std::regex text("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" text-anchor=\"" + anchor +
                        "\" fill=\"#64748b\">([-+0-9.e]+)</text>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), text), end; it != end; ++it)
    ticks.emplace_back(std::stod((*it)[3]), anchor == "middle" ? std::stod((*it)[1]) : std::stod((*it)[2]) - 4);
  return ticks;
}

}  // namespace

TEST_CASE("a plot draws points where its ticks say", "[plot]") {
  const std::vector<float> y = {3, 1, 4, 1, 5};
  const std::string svg = drawn({{"", y}});
  const auto lines = lines_of(svg);
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0].size() == 5);
  const auto across = ticks_of(svg, "middle"), up = ticks_of(svg, "end");
  REQUIRE(across.size() >= 3);
  REQUIRE(up.size() >= 3);
  const auto at = [](const auto& ticks, double value) {  // by the first and last tick
    const auto& [a, pa] = ticks.front();
    const auto& [b, pb] = ticks.back();
    return pa + (pb - pa) * (value - a) / (b - a);
  };
  for (size_t i = 0; i < 5; ++i) {
    CHECK(lines[0][i].first == Approx(at(across, static_cast<double>(i))).margin(0.3));
    CHECK(lines[0][i].second == Approx(at(up, y[i])).margin(0.3));
  }
  CHECK(lines[0][0].second > lines[0][4].second);  // upwards is smaller
}

TEST_CASE("a scatter plot has dots and no lines, from tensors as from vectors", "[plot]") {
  const std::vector<double> x = {1, 3, 2}, y = {4, 6, 5};
  const std::string svg = drawn({{"a", x, y}}, {.lines = false});
  CHECK_THAT(svg, !Contains("<polyline") && Contains("<circle"));
  CHECK(svg == drawn({{"a", tensor(x), tensor(y).to(kFloat32)}}, {.lines = false}));
  CHECK(drawn({{"a", y}}) == drawn({{"a", tensor(y).reshape({3, 1})}}));
  size_t dots = 0;
  for (size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1)) ++dots;
  CHECK(dots == 4);  // and the legend's
  std::vector<double> many(100000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i * i % 97);
  CHECK(drawn({{"", many}}, {.lines = false}).size() < 4500000);
}

TEST_CASE("a logarithmic axis has equal steps for equal ratios", "[plot]") {
  const std::string svg =
      drawn({{"", std::vector{1, 10, 100}, std::vector{1e-3, 1.0, 1e3}}}, {.log_x = true, .log_y = true});
  const auto lines = lines_of(svg);
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0].size() == 3);
  CHECK(lines[0][1].first - lines[0][0].first == Approx(lines[0][2].first - lines[0][1].first).margin(0.2));
  CHECK(lines[0][1].second - lines[0][0].second == Approx(lines[0][2].second - lines[0][1].second).margin(0.2));
  const auto up = ticks_of(svg, "end");
  REQUIRE(up.size() == 7);
  CHECK(up[0].first == 1e-3);
  CHECK(up[6].first == 1e3);
  // A range within one decade has ticks, too.
  CHECK(ticks_of(drawn({{"", std::vector{3.1, 3.9}}}, {.log_y = true}), "end").size() >= 2);
}

TEST_CASE("NaN and infinity are gaps, and so are values not above 0 on a logarithmic axis", "[plot]") {
  const std::string svg = drawn({{"a", std::vector{1.0, 2.0, kNan, 3.0, -kInf, 2.0, 1.0, 3.0}}});
  const auto lines = lines_of(svg);  // and the legend's
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].size() == 2);
  CHECK(lines[1].size() == 3);
  CHECK_THAT(svg, Contains("<circle"));  // the lonely 3
  CHECK_THAT(svg, Contains("not drawn: 2 NaN or infinite<"));
  CHECK_THAT(drawn({{"", std::vector{1.0, 0.0, -1.0, 2.0}}}, {.log_y = true}),
             Contains("not drawn: 0 NaN or infinite, 2 not above 0"));
  CHECK_THAT(drawn({{"", std::vector{1.0, 2.0}}}), !Contains("not drawn"));
  CHECK(lines_of(drawn({{"", std::vector{kNan, kNan}}})).empty());
}

TEST_CASE("a plot has a legend, a title and labels, whatever characters they have", "[plot]") {
  const std::vector y = {1, 2};
  const std::string svg =
      drawn({{"train & <dev>", y}, {"Übung", y}, {"", y}}, {.title = "a<b", .x_label = "epoch", .y_label = "loss"});
  for (const char* text : {">train &amp; &lt;dev&gt;<", ">Übung<", ">a&lt;b<", ">epoch<", ">loss<"})
    CHECK_THAT(svg, Contains(text));
  CHECK(lines_of(svg).size() == 5);
  // Twenty series do not look alike.
  std::vector<PlotSeries> many(20, {"", y});
  std::set<std::string> looks;
  const std::string all = drawn(many);
  static const std::regex look("<polyline [^>]*fill=\"none\"([^>]*)>");
  for (std::sregex_iterator it(all.begin(), all.end(), look), end; it != end; ++it) looks.insert((*it)[1]);
  CHECK(looks.size() == 20);
}

TEST_CASE("a plot of a million points keeps the extremes and is small", "[plot]") {
  std::vector<double> y(1000000);
  for (size_t i = 0; i < y.size(); ++i) y[i] = std::sin(static_cast<double>(i) / 1e5);
  y[123456] = 7, y[654321] = -7;
  const std::string svg = drawn({{"", y}});
  CHECK(svg.size() < 100000);
  const auto lines = lines_of(svg);
  REQUIRE(lines.size() == 1);
  double low = kInf, high = -kInf;
  for (const auto& [px, py] : lines[0]) low = std::min(low, py), high = std::max(high, py);
  const auto up = ticks_of(svg, "end");
  const double unit = (up.back().second - up.front().second) / (up.back().first - up.front().first);
  CHECK((high - low) / -unit == Approx(14).margin(0.1));
}

TEST_CASE("plots of extreme values end", "[plot]") {
  constexpr double kMax = std::numeric_limits<double>::max(), kMin = std::numeric_limits<double>::denorm_min();
  for (const std::vector<double>& y : std::vector<std::vector<double>>{{5},
                                                                       {0},
                                                                       {2, 2},
                                                                       {-kMax, kMax},
                                                                       {0, kMin},
                                                                       {kMin, kMax},
                                                                       {1, 1 + 2e-16},
                                                                       {1e15, 1e15 + 1},
                                                                       {1e-300, 2e-300}})
    for (const bool log : {false, true}) {
      const std::string svg = drawn({{"", y}}, {.log_y = log});
      CHECK_THAT(svg, !Contains("nan") && !Contains("inf,") && !Contains("\"inf"));
    }
}

TEST_CASE("a plot refuses what it cannot draw", "[plot]") {
  Folder folder;
  const std::vector y = {1, 2};
  CHECK_THROWS_WITH(plot({}, folder / "a.svg"), "plot: no series");
  CHECK_THROWS_WITH(plot({"a", y}, folder / "a.png"), Contains("a.png") && Contains("does not end with .svg"));
  CHECK_THROWS_WITH(plot({{"a", y}, {"b", std::vector<int>{}}}, folder / "a.svg"), "plot: series 1 'b' has no points");
  CHECK_THROWS_WITH(plot({{"a", std::vector{1}, y}}, folder / "a.svg"), "plot: series 0 'a' has 1 x and 2 y");
  CHECK_THROWS_WITH(plot({{"\xff", y}}, folder / "a.svg"), Contains("a series' name: byte 0, 0xff, is not UTF-8"));
  CHECK_THROWS_WITH(plot({{"a", y}}, folder / "a.svg", {.width = 10}), Contains("a picture of 10 x 420 pixels"));
  CHECK(folder.count() == 0);
  CHECK_THROWS_WITH(plot({{"a", y}}, folder / "none/a.svg"), Contains((folder / "none").string()) && Contains("a.svg"));
}
