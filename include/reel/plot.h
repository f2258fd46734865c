#pragma once
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "reel/error.h"

#pragma GCC visibility push(default)
/// Line plots as SVG files.
namespace reel {

class Tensor;

/// One line of a plot: a name for the legend and its points, converted to double. NaN and infinity are gaps.
struct PlotSeries {
  /// Values at 0, 1, 2, …, from any range of numbers or a Tensor's elements.
  template <class Y>
  PlotSeries(std::string name, const Y& y) : name(std::move(name)), y(numbers(y)) {
    for (size_t i = 0; i < this->y.size(); ++i) x.push_back(static_cast<double>(i));
  }
  /// Points (x, y). The line connects them in this order.
  template <class X, class Y>
  PlotSeries(std::string name, const X& x, const Y& y) : name(std::move(name)), x(numbers(x)), y(numbers(y)) {}

  std::string name;       ///< In the legend. Series without a name are not listed there.
  std::vector<double> x;  ///< Of the points.
  std::vector<double> y;  ///< As many as x.

 private:
  template <class Range>
  static std::vector<double> numbers(const Range& range) {
    return {std::begin(range), std::end(range)};
  }
  static std::vector<double> numbers(const Tensor& tensor);
};

/// Of plot().
struct PlotOptions {
  std::string title = {};    ///< Above the picture.
  std::string x_label = {};  ///< Below the x axis.
  std::string y_label = {};  ///< Left of the y axis.
  bool log_x = false;        ///< A logarithmic x axis: points whose x is not above 0 are gaps.
  bool log_y = false;        ///< The same for y.
  bool lines = true;         ///< Lines between the points; false: a dot at each point, a scatter plot.
  bool markers = false;      ///< A dot at each point, too.
  int width = 720;           ///< Of the picture, in pixels; 160 to 10000.
  int height = 420;          ///< As width.
};

/// Draws the series as lines with axes, ticks and a legend into a file of SVG, which browsers show:
///
///   plot({{"train", train_losses}, {"dev", dev_epochs, dev_losses}}, "loss.svg", {.x_label = "epoch", .log_y = true});
///
/// Predictions beside the truth: plot({{"houses", truth, predictions}}, "fit.svg", {.lines = false}).
///
/// A line under the picture says how many points are gaps. Of points that are too many to be told apart, the first, the
/// last and the extremes of each pixel's column are kept, or one at each pixel where there are no lines. The file is
/// replaced in one step. Errors: a file whose name does not end with .svg, no series, a series
/// without points or with other numbers of x and y, text that is not UTF-8, a size out of range, a file that cannot be
/// written.
void plot(const std::vector<PlotSeries>& series, const std::filesystem::path& file, const PlotOptions& options = {});
/// A plot of one series: plot({"loss", losses}, "loss.svg").
inline void plot(const PlotSeries& series, const std::filesystem::path& file, const PlotOptions& options = {}) {
  plot(std::vector<PlotSeries>{series}, file, options);
}

}  // namespace reel
#pragma GCC visibility pop
