#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/testing.h"
#include "test/support/load.h"
#include "test/support/op_rows.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

// ---- in double precision --------------------------------------------------------------------------------------------

/// The value between the elements of a line, beyond whose ends the last ones go on.
double between(const Line& line, double place) {
  const double last = static_cast<double>(line.size()) - 1;
  place = std::min(std::max(place, 0.), last);
  const double floor = std::min(std::floor(place), std::max(last - 1, 0.)), t = place - floor;
  const auto at = [&](double i) { return line[static_cast<size_t>(std::min(i, last))]; };
  return at(floor) * (1 - t) + at(floor + 1) * t;
}
/// Cubic convolution (Keys 1981) with a = -0.75, of which the four pieces are written out.
double cubic_between(const Line& line, double place) {
  const double a = -0.75, floor = std::floor(place);
  double sum = 0;
  for (int k = -1; k <= 2; ++k) {
    const double i = floor + k, d = std::abs(place - i);
    const double weight = d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1 : a * (d * d * d - 5 * d * d + 8 * d - 4);
    sum += weight * line[static_cast<size_t>(std::clamp(i, 0., static_cast<double>(line.size()) - 1))];
  }
  return sum;
}

template <int out, bool align>
Line stretched(const Line& line) {
  Line y;
  const double in = static_cast<double>(line.size());
  for (int j = 0; j < out; ++j)
    y.push_back(between(line, align ? j * (in - 1) / (out - 1) : (j + 0.5) * in / out - 0.5));
  return y;
}
template <int out, bool align>
Line cubic_stretched(const Line& line) {
  Line y;
  const double in = static_cast<double>(line.size());
  for (int j = 0; j < out; ++j)
    y.push_back(cubic_between(line, align ? j * (in - 1) / (out - 1) : (j + 0.5) * in / out - 0.5));
  return y;
}
template <int out>
Line repeated(const Line& line) {
  Line y;
  for (int j = 0; j < out; ++j) y.push_back(line[static_cast<size_t>(j) * line.size() / out]);
  return y;
}
template <int out>
Line repeated_exactly(const Line& line) {
  Line y;
  for (size_t j = 0; j < out; ++j) y.push_back(line[(2 * j + 1) * line.size() / (2 * out)]);
  return y;
}
/// The mean of each three; halving with the weights 1 3 3 1 of a tent, cut off and scaled at the ends.
Line thirds(const Line& line) {
  Line y;
  for (size_t j = 0; j + 2 < line.size(); j += 3) y.push_back((line[j] + line[j + 1] + line[j + 2]) / 3);
  return y;
}
Line halved(const Line& line) {
  Line y;
  for (size_t j = 0; j < line.size(); j += 2) {
    double sum = 3 * line[j] + 3 * line[j + 1], weight = 6;
    if (j > 0) sum += line[j - 1], ++weight;
    if (j + 2 < line.size()) sum += line[j + 2], ++weight;
    y.push_back(sum / weight);
  }
  return y;
}

/// x [n, c, h, w] at the points of grid [n, h', w', 2], between its elements or at the nearest; beyond it there are
/// zeros, or `move` says which place stands for one outside.
Array sampled(const Array& x, const Array& grid, bool align, bool nearest, double (*move)(double place, double size)) {
  const int64_t h = x.shape[2], w = x.shape[3];
  return build({x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]}, [&](const Index& at) {
    const auto place = [&](int64_t coordinate, double size) {
      const double g = grid({at[0], at[2], at[3], coordinate});
      const double p = align ? (g + 1) / 2 * (size - 1) : ((g + 1) * size - 1) / 2;
      return move ? move(p, size) : p;
    };
    const double px = place(0, static_cast<double>(w)), py = place(1, static_cast<double>(h));
    double sum = 0;
    for (int64_t i = 0; i < h; ++i)
      for (int64_t j = 0; j < w; ++j) {
        const double dy = std::abs(py - static_cast<double>(i)), dx = std::abs(px - static_cast<double>(j));
        const double weight = nearest ? dy < 0.5 && dx < 0.5 : std::max(1 - dy, 0.) * std::max(1 - dx, 0.);
        sum += weight * x({at[0], at[1], i, j});
      }
    return sum;
  });
}
double to_border(double place, double size) { return std::min(std::max(place, 0.), size - 1); }
double mirrored(double place, double size) {
  while (place < -0.5 || place > size - 0.5) place = place < -0.5 ? -1 - place : 2 * size - 1 - place;
  return to_border(place, size);
}
double mirrored_at_centres(double place, double size) {
  while (place < 0 || place > size - 1) place = place < 0 ? -place : 2 * (size - 1) - place;
  return place;
}

const Traits kSampled{.tolerance = 16};

}  // namespace

// clang-format off
const std::vector<Row>& resize_rows() {
  static const std::vector<Row> rows{

// ---- resizing

{"interpolate", [](In x) { return interpolate(x[0], {.size = {5, 3}}); },
 [](Ref x) { return along(along(x[0], 2, repeated<5>), 3, repeated<3>); }, {{{1, 2, 3, 4}}}},
{"interpolate(scale)", [](In x) { return interpolate(x[0], {.scale_factor = {2}}); },
 [](Ref x) { return along(x[0], 2, repeated<10>); }, {{{2, 2, 5}}}},
{"interpolate(exact)", [](In x) { return interpolate(x[0], {.size = {2, 7}, .mode = kNearestExact}); },
 [](Ref x) { return along(along(x[0], 2, repeated_exactly<2>), 3, repeated_exactly<7>); }, {{{1, 2, 3, 4}}}},
{"interpolate(linear)", [](In x) { return interpolate(x[0], {.size = {7}, .mode = Interpolation::kLinear}); },
 [](Ref x) { return along(x[0], 2, stretched<7, false>); }, {{{2, 2, 5}}}, {.tolerance = 4}},
{"interpolate(channels last)",
 [](In x) { return interpolate(x[0], {.size = {2, 6}, .mode = kBilinear, .channels_last = true}); },
 [](Ref x) {
   return ref::channels_last(x, 2, [](Ref y) {
     return along(along(y[0], 2, stretched<2, false>), 3, stretched<6, false>);
   });
 }, {{{2, 3, 4, 2}}}},
{"interpolate(area, channels last)",
 [](In x) { return interpolate(x[0], {.size = {2}, .mode = kArea, .channels_last = true}); },
 [](Ref x) {
   return along(x[0], 1, [](const Line& line) { return Line{(line[0] + line[1]) / 2, (line[2] + line[3]) / 2}; });
 }, {{{2, 4, 3}}}},
{"interpolate(bilinear)", [](In x) { return interpolate(x[0], {.size = {2, 6}, .mode = kBilinear}); },
 [](Ref x) { return along(along(x[0], 2, stretched<2, false>), 3, stretched<6, false>); }, {{{1, 2, 3, 4}}},
 {.tolerance = 4}},
{"interpolate(align)", [](In x) {
   return interpolate(x[0], {.size = {5, 3}, .mode = kBilinear, .align_corners = true});
 }, [](Ref x) { return along(along(x[0], 2, stretched<5, true>), 3, stretched<3, true>); }, {{{1, 2, 3, 4}}},
 {.tolerance = 4}},
{"interpolate(trilinear)", [](In x) { return interpolate(x[0], {.size = {3, 2, 4}, .mode = kTrilinear}); },
 [](Ref x) { return along(along(along(x[0], 2, stretched<3, false>), 3, stretched<2, false>), 4, stretched<4, false>); },
 {{{1, 1, 2, 3, 3}}}, {.tolerance = 4}},
{"interpolate(bicubic)", [](In x) { return interpolate(x[0], {.scale_factor = {2, 2}, .mode = kBicubic}); },
 [](Ref x) { return along(along(x[0], 2, cubic_stretched<6, false>), 3, cubic_stretched<8, false>); },
 {{{1, 2, 3, 4}}}, {.tolerance = 8}},
{"interpolate(bicubic align)", [](In x) {
   return interpolate(x[0], {.size = {4, 3}, .mode = kBicubic, .align_corners = true});
 }, [](Ref x) { return along(along(x[0], 2, cubic_stretched<4, true>), 3, cubic_stretched<3, true>); },
 {{{1, 1, 5, 4}}}, {.tolerance = 8}},
{"interpolate(area)", [](In x) { return interpolate(x[0], {.size = {2}, .mode = kArea}); },
 [](Ref x) { return along(x[0], 2, thirds); }, {{{2, 2, 6}}}},
{"interpolate(antialias)", [](In x) { return interpolate(x[0], {.size = {3, 4}, .mode = kBilinear, .antialias = true}); },
 [](Ref x) { return along(along(x[0], 2, halved), 3, halved); }, {{{1, 1, 6, 8}}}, {.tolerance = 4}},
{"pixel_shuffle", [](In x) { return pixel_shuffle(x[0], 2); }, [](Ref x) {
   return build({2, 2, 6}, [&](const Index& at) {
     return x[0]({at[0] * 4 + at[1] % 2 * 2 + at[2] % 2, at[1] / 2, at[2] / 2});
   });
 }, {{{8, 1, 3}}}, kMoves},
{"pixel_unshuffle", [](In x) { return pixel_unshuffle(x[0], 2); }, [](Ref x) {
   return build({1, 8, 1, 3}, [&](const Index& at) {
     return x[0]({0, at[1] / 4, at[2] * 2 + at[1] / 2 % 2, at[3] * 2 + at[1] % 2});
   });
 }, {{{1, 2, 2, 6}}}, kMoves},
{"channel_shuffle", [](In x) { return channel_shuffle(x[0], 2); }, [](Ref x) {
   return build({2, 6, 2}, [&](const Index& at) { return x[0](with(at, 1, static_cast<double>(at[1] % 2 * 3 + at[1] / 2))); });
 }, {{{2, 6, 2}}}, kMoves},
{"grid_sample", [](In x) { return grid_sample(x[0], x[1]); },
 [](Ref x) { return sampled(x[0], x[1], false, false, nullptr); }, {{{2, 2, 3, 4}}, {{2, 3, 2, 2}, -1.3, 1.3}}, kSampled},
{"grid_sample(align)", [](In x) { return grid_sample(x[0], x[1], {.align_corners = true}); },
 [](Ref x) { return sampled(x[0], x[1], true, false, nullptr); }, {{{1, 2, 4, 3}}, {{1, 3, 4, 2}, -1.3, 1.3}}, kSampled},
{"grid_sample(border)", [](In x) { return grid_sample(x[0], x[1], {.padding = GridPadding::kBorder}); },
 [](Ref x) { return sampled(x[0], x[1], false, false, to_border); }, {{{1, 2, 4, 3}}, {{1, 3, 4, 2}, -1.4, 1.4}}, kSampled},
{"grid_sample(reflection)", [](In x) { return grid_sample(x[0], x[1], {.padding = GridPadding::kReflection}); },
 [](Ref x) { return sampled(x[0], x[1], false, false, mirrored); }, {{{1, 1, 4, 3}}, {{1, 3, 4, 2}, -4, 4}}, kSampled},
{"grid_sample(reflection align)", [](In x) {
   return grid_sample(x[0], x[1], {.padding = GridPadding::kReflection, .align_corners = true});
 }, [](Ref x) { return sampled(x[0], x[1], true, false, mirrored_at_centres); },
 {{{1, 1, 4, 3}}, {{1, 3, 4, 2}, -4, 4}}, kSampled},
{"grid_sample(nearest)", [](In x) { return grid_sample(x[0], x[1], {.mode = kNearest}); },
 [](Ref x) { return sampled(x[0], x[1], false, true, nullptr); }, {{{1, 2, 4, 3}}, {{1, 3, 4, 2}, -1.2, 1.2}},
 {.differentiable = false}},
{"grid_sample(volume)", [](In x) { return grid_sample(x[0].unsqueeze(2), cat({x[1], x[1].narrow(-1, 0, 1) * 0}, -1).unsqueeze(1)).squeeze(2); },
 [](Ref x) { return sampled(x[0], x[1], false, false, nullptr); }, {{{1, 2, 4, 3}}, {{1, 2, 3, 2}, -1.3, 1.3}}, kSampled},
{"affine_grid", [](In x) { return affine_grid(x[0], {2, 5, 3, 4}); }, [](Ref x) {
   return build({2, 3, 4, 2}, [&](const Index& at) {
     const double u = (static_cast<double>(at[2]) * 2 - 3) / 4, v = (static_cast<double>(at[1]) * 2 - 2) / 3;
     const auto m = [&](int64_t j) { return x[0]({at[0], at[3], j}); };
     return m(0) * u + m(1) * v + m(2);
   });
 }, {{{2, 2, 3}}}, {.tolerance = 4}},
{"affine_grid(volume)", [](In x) { return affine_grid(x[0], {1, 1, 2, 1, 3}, true); }, [](Ref x) {
   return build({1, 2, 1, 3, 3}, [&](const Index& at) {
     const double u = static_cast<double>(at[3]) - 1, w = static_cast<double>(at[1]) * 2 - 1;
     const auto m = [&](int64_t j) { return x[0]({0, at[4], j}); };
     return m(0) * u + m(2) * w + m(3);
   });
 }, {{{1, 3, 4}}}, {.tolerance = 4}},

};
  return rows;
}

namespace {

const WrongCall kWrongCalls[] = {
{[](World& w) { interpolate(w.matrix, {.size = {2}}); },
 "interpolate: x of shape [3, 4], not [n, channels, …] with one to three more"},
{[](World& w) { interpolate(w.cube, {}); }, "interpolate: one of size and scale_factor is to be given"},
{[](World& w) { interpolate(w.cube, {.size = {2}, .scale_factor = {2}}); },
 "interpolate: one of size and scale_factor is to be given"},
{[](World& w) { interpolate(w.cube, {.size = {2, 2}}); }, "interpolate: 2 sizes or scales for 1 dimensions"},
{[](World& w) { interpolate(w.cube, {.size = {2}, .mode = kBilinear}); },
 "interpolate: this mode is for 2 dimensions, x has 1 besides examples and channels"},
{[](World& w) { interpolate(w.cube, {.size = {2}, .align_corners = true}); },
 "interpolate: align_corners is for linear and cubic modes"},
{[](World& w) { interpolate(w.cube, {.size = {2}, .mode = Interpolation::kLinear, .antialias = true}); },
 "interpolate: antialias is for kBilinear and kBicubic"},
{[](World& w) { interpolate(w.cube, {.scale_factor = {0.1}}); }, "interpolate: from size 4 to size 0 in dimension 2"},
{[](World& w) { interpolate(w.cube, {.size = {int64_t{1} << 62}}); },
 "shape [2, 3, 4611686018427387904]: too many elements for 63 bits"},
{[](World& w) { interpolate(w.cube, {.scale_factor = {1e300}}); },
 "interpolate: from size 4 to size 4e+300 in dimension 2"},
{[](World& w) { interpolate(w.cube, {.scale_factor = {std::nan("")}}); },
 "interpolate: from size 4 to size nan in dimension 2"},
{[](World& w) { interpolate(w.whole.reshape({1, 1, 3}), {.size = {2}}); },
 "interpolate: a tensor of int64; convert it to a floating point type first"},
{[](World& w) { pixel_shuffle(w.cube, 2); }, "pixel_shuffle: 2 channels cannot be divided by the square of 2"},
{[](World& w) { pixel_shuffle(w.cube, int64_t{1} << 32); },
 "pixel_shuffle: 2 channels cannot be divided by the square of 4294967296"},
{[](World& w) { pixel_shuffle(w.matrix, 2); }, "pixel_shuffle: x of shape [3, 4], not […, channels, h, w]"},
{[](World& w) { pixel_unshuffle(w.cube, 2); }, "pixel_unshuffle: 3 x 4 cannot be divided by 2"},
{[](World& w) { channel_shuffle(w.cube, 2); }, "channel_shuffle: 3 channels cannot be divided into 2 groups"},
{[](World& w) { grid_sample(w.cube, w.cube); },
 "grid_sample: x of shape [2, 3, 4], not [n, channels, h, w] or [n, channels, d, h, w]"},
{[](World& w) { grid_sample(w.cube.unsqueeze(0), w.cube.unsqueeze(0)); },
 "grid_sample: a grid of shape [1, 2, 3, 4] for x of shape [1, 2, 3, 4]"},
{[](World& w) { grid_sample(w.cube.unsqueeze(0), ones({1, 1, 1, 2}, {.dtype = kFloat64})); },
 "grid_sample: x is float32 and the grid float64"},
{[](World& w) { grid_sample(w.cube.unsqueeze(0), ones({1, 1, 1, 2}), {.mode = kArea}); },
 "grid_sample: the mode is not kBilinear, kNearest or, for images, kBicubic"},
{[](World& w) { affine_grid(w.cube, {2, 1, 3, 4}); },
 "affine_grid: maps of shape [2, 3, 4]; for a size of [2, 1, 3, 4] they should be [2, 2, 3]"},
{[](World& w) { affine_grid(w.cube, {2, 3}); },
 "affine_grid: a size of [2, 3], not [n, channels, h, w] or [n, channels, d, h, w]"},
};
// clang-format on

}  // namespace

TEST_CASE("a wrong resizing says what is wrong", "[errors]") { check_wrong_calls(kWrongCalls); }

TEST_CASE("resizing and sampling are PyTorch's", "[pins]") {
  const StateDict pins = load_reference("resize.safetensors");
  const auto check = [&](const std::string& name, const Tensor& y) {
    INFO(name);
    testing::assert_close(y, *find(pins, name));
  };
  const Tensor x = *find(pins, "x"), grid = *find(pins, "grid");  // [1, 2, 5, 7], [1, 3, 4, 2]
  const Interpolation modes[] = {kNearest, kNearestExact, kBilinear, kBicubic};
  for (int mode = 0; mode < 4; ++mode)
    for (bool align : {false, true}) {
      if (align && mode < 2) continue;
      const std::string name = std::to_string(mode) + (align ? ".align" : ".plain");
      check("size." + name, interpolate(x, {.size = {8, 3}, .mode = modes[mode], .align_corners = align}));
      check("scale." + name, interpolate(x, {.scale_factor = {1.7, 0.6}, .mode = modes[mode], .align_corners = align}));
    }
  check("antialias.2", interpolate(x, {.size = {3, 4}, .mode = kBilinear, .antialias = true}));
  check("antialias.3", interpolate(x, {.size = {3, 9}, .mode = kBicubic, .antialias = true}));
  for (int mode : {0, 2, 3})
    for (int padding = 0; padding < 3; ++padding)
      for (bool align : {false, true})
        check("grid." + std::to_string(mode) + std::to_string(padding) + (align ? ".align" : ".plain"),
              grid_sample(x, grid, {modes[mode], static_cast<GridPadding>(padding), align}));
  check("theta", affine_grid(*find(pins, "maps"), {1, 2, 3, 4}));
  check("theta.align", affine_grid(*find(pins, "maps"), {1, 2, 3, 4}, true));
  check("shuffle", pixel_shuffle(*find(pins, "many"), 2));
  check("channels", channel_shuffle(*find(pins, "many"), 4));
}

TEST_CASE("unshuffling undoes shuffling", "[ops]") {
  const Tensor x = arange(0, 2 * 12 * 3 * 4).reshape({2, 12, 3, 4});
  CHECK(equal(pixel_unshuffle(pixel_shuffle(x, 2), 2), x));
  CHECK(equal(channel_shuffle(channel_shuffle(x, 3), 4), x));
}

TEST_CASE("an image of no examples is resized at once", "[ops]") {
  const Tensor x = zeros({0, 3, 4}, {.requires_grad = true}), y = interpolate(x, {.size = {int64_t{1} << 40}});
  CHECK(y.shape() == Shape{0, 3, int64_t{1} << 40});
  y.backward(zeros(y.shape()));
  CHECK(x.grad().shape() == x.shape());
}

TEST_CASE("a resized image of no examples can be changed in place", "[ops]") {
  const Tensor x = zeros({0, 1, 6}, {.requires_grad = true});
  CHECK(interpolate(x, {.scale_factor = {0.5}}).asin_().shape() == Shape{0, 1, 3});
}

TEST_CASE("the nearest element gives the grid a gradient of zeros", "[ops]") {
  const Tensor x = ones({1, 1, 2, 2}), grid = zeros({1, 3, 3, 2}, {.requires_grad = true});
  const Tensor y = grid_sample(x, grid, {.mode = kNearest});
  CHECK(equal(y, ones({1, 1, 3, 3})));
  sum(y).backward();
  CHECK(equal(grid.grad(), zeros({1, 3, 3, 2})));
}

TEST_CASE("an infinite or NaN element counts for nothing where a sample lies outside", "[ops]") {
  Tensor x = tensor({std::nan(""), ref::kInfinity, 3., 4.}).view({1, 1, 2, 2});
  x.requires_grad_();
  // All of it outside, and on the last element, whose neighbours to the right and below are outside.
  const Tensor grid = tensor({8., 8., 1., 1.}).view({1, 1, 2, 2});
  const Tensor y = grid_sample(x, grid, {.align_corners = true});
  testing::assert_close(y, tensor({0., 4.}).view({1, 1, 1, 2}));
  sum(y).backward();
  testing::assert_close(x.grad(), tensor({0., 0., 0., 1.}).view({1, 1, 2, 2}));
}

TEST_CASE("sampling far outside and at NaN stays inside the memory", "[ops]") {
  const Tensor x = ones({1, 1, 2, 2});
  const Tensor grid = tensor({1e30, -1e30, std::nan(""), 0., ref::kInfinity, 5.}).view({1, 1, 3, 2});
  for (GridPadding padding : {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection})
    for (Interpolation mode : {kBilinear, kNearest, kBicubic})
      CHECK(grid_sample(x, grid, {mode, padding}).shape() == Shape{1, 1, 1, 3});
  CHECK(grid_sample(x, grid)[0][0][0][0].item<double>() == 0);
  CHECK(grid_sample(x, grid, {.padding = GridPadding::kBorder})[0][0][0][0].item<double>() == 1);
}

TEST_CASE("an antialiased resizing keeps infinity where it has weight", "[ops]") {
  const auto row = [](double at_2) {
    const Tensor x = tensor({1., 2., at_2, 4., 5., 6.}).view({1, 1, 1, 6});
    return interpolate(x, {.size = {1, 4}, .mode = kBicubic, .antialias = true}).flatten();
  };
  const Tensor finite = row(3), large = row(1e6), infinite = row(INFINITY);
  for (int64_t i = 0; i < 4; ++i) {
    const double change = (large[i] - finite[i]).item<double>();
    INFO("element " << i);
    if (std::abs(change) < 1)
      CHECK(infinite[i].item<double>() == Approx(finite[i].item<double>()));
    else
      CHECK(infinite[i].item<double>() == std::copysign(INFINITY, change));
  }
}

TEST_CASE("samples of many channels at many points are those of one channel at one point", "[ops]") {
  for (const int dims : {2, 3})
    for (const Interpolation mode : {kBilinear, kNearest, kBicubic})
      for (const GridPadding padding : {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection})
        for (const bool align : {false, true}) {
          if (dims == 3 && mode == kBicubic) continue;
          INFO(dims << " dimensions, mode " << int(mode) << ", padding " << int(padding) << ", align " << align);
          const GridSampleOptions options{mode, padding, align};
          const TensorOptions recorded{.dtype = kFloat64, .requires_grad = true};
          const Tensor x = randn(dims == 2 ? Shape{2, 19, 4, 5} : Shape{2, 19, 3, 4, 5}, recorded);
          const Tensor grid =
              ((rand(dims == 2 ? Shape{2, 1, 37, 2} : Shape{2, 1, 1, 37, 3}, {.dtype = kFloat64}) - 0.5) * 9)
                  .requires_grad_();
          const Tensor y = grid_sample(x, grid, options), g = randn(y.shape(), {.dtype = kFloat64});
          std::vector<Tensor> channels;
          for (const int64_t c : {0, 7, 18}) {
            std::vector<Tensor> points;
            for (int64_t i = 0; i < 37; ++i)
              points.push_back(grid_sample(x.narrow(1, c, 1), grid.narrow(-2, i, 1), options));
            const Tensor line = cat(points, -1);
            testing::assert_close(y.narrow(1, c, 1), line);
            testing::assert_close(grad({y.narrow(1, c, 1)}, {x, grid}, {g.narrow(1, c, 1)}, {.retain_graph = true})[1],
                                  grad({line}, {x, grid}, {g.narrow(1, c, 1)}, {.retain_graph = true})[1]);
          }
          // By the kernel and by the rule that can be differentiated again, which is composed.
          const auto once = grad({y}, {x, grid}, {g}, {.retain_graph = true});
          const auto twice = grad({y}, {x, grid}, {g}, {.create_graph = true});
          testing::assert_close(once[0], twice[0].detach());
          testing::assert_close(once[1], twice[1].detach());
        }
}

}  // namespace reel
