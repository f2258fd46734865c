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

using Taps = std::vector<int64_t>;
using Reach = Taps (*)(int64_t size, int64_t window);  // the elements of a window, -1 for padding; none behind the last

/// f of the places of x in each window of the last `dims` dimensions; those in the padding have a coordinate -1.
Array for_windows(const Array& x, int dims, Reach reach, const std::function<double(const std::vector<Index>&)>& f) {
  const int rank = x.shape.size();
  Shape shape = x.shape;
  for (int d = rank - dims; d < rank; ++d)
    for (shape[d] = 0; !reach(x.shape[d], shape[d]).empty();) ++shape[d];
  return build(shape, [&](const Index& at) {
    std::vector<Index> places{at};
    for (int d = rank - dims; d < rank; ++d) {
      std::vector<Index> more;
      for (const Index& place : places)
        for (int64_t tap : reach(x.shape[d], at[d])) more.push_back(with(place, d, static_cast<double>(tap)));
      places = more;
    }
    return f(places);
  });
}
/// What `reduce` makes of the elements in each window; those in the padding are NaN.
Array pooled(const Array& x, int dims, Reach reach, double (*reduce)(const Line&)) {
  return for_windows(x, dims, reach, [&](const std::vector<Index>& places) {
    Line line;
    for (const Index& place : places)
      line.push_back(std::find(place.begin(), place.end(), -1) == place.end() ? x(place) : std::nan(""));
    return reduce(line);
  });
}
/// Where in its plane of x the first maximum of each window is.
Array places(const Array& x, int dims, Reach reach) {
  return for_windows(x, dims, reach, [&](const std::vector<Index>& all) {
    double best = -ref::kInfinity, at = -1;
    for (const Index& place : all) {
      if (std::find(place.begin(), place.end(), -1) != place.end() || x(place) <= best) continue;
      best = x(place), at = 0;
      for (int d = place.size() - dims; d < place.size(); ++d)
        at = at * static_cast<double>(x.shape[d]) + static_cast<double>(place[d]);
    }
    return at;
  });
}

template <int kernel, int stride, int padding, int dilation = 1, bool ceil_mode = false>
Taps fixed(int64_t size, int64_t window) {
  const int64_t start = window * stride - padding, end = start + (kernel - 1) * dilation;
  const bool there = ceil_mode ? start < size && end < size + padding + stride - 1 : end < size + padding;
  Taps taps;
  for (int64_t i = start; there && i <= end; i += dilation)
    if (i < size + padding) taps.push_back(i < size ? i : -1);
  return taps;
}
template <int out>
Taps adaptive(int64_t size, int64_t window) {
  Taps taps;
  for (int64_t i = window * size / out; window < out && i < ((window + 1) * size + out - 1) / out; ++i)
    taps.push_back(i);
  return taps;
}

double maximum_of(const Line& line) {
  double best = -ref::kInfinity;
  for (double v : line)
    if (v > best) best = v;
  return best;
}
double mean_with_padding(const Line& line) {
  double sum = 0;
  for (double v : line) sum += std::isnan(v) ? 0 : v;
  return sum / static_cast<double>(line.size());
}
double mean_without_padding(const Line& line) {
  Line inside;
  for (double v : line)
    if (!std::isnan(v)) inside.push_back(v);
  return ref::average(inside);
}
double third_of_sum(const Line& line) { return mean_with_padding(line) * static_cast<double>(line.size()) / 3; }
double cubic_mean(const Line& line) { return ref::norm(line, 3); }
double euclidean(const Line& line) { return ref::norm(line, 2); }

const Traits kFixed{.integers_give = Result::kInt64, .floats_give = Result::kInt64, .differentiable = false};

}  // namespace

// clang-format off
const std::vector<Row>& pool_rows() {
  static const std::vector<Row> rows{

// ---- pooling

{"max_pool1d", [](In x) { return max_pool1d(x[0], 3, {.stride = 2, .padding = 1}); },
 [](Ref x) { return pooled(x[0], 1, fixed<3, 2, 1>, maximum_of); }, {{{2, 2, 9}}}},
{"max_pool1d(one)", [](In x) { return max_pool1d(x[0], 2); },
 [](Ref x) { return pooled(x[0], 1, fixed<2, 2, 0>, maximum_of); }, {{{2, 37}}}},
{"max_pool1d(dense)", [](In x) { return max_pool1d(x[0], 3, {.stride = 1, .dilation = 2}); },
 [](Ref x) { return pooled(x[0], 1, fixed<3, 1, 0, 2>, maximum_of); }, {{{2, 23}}}},
{"max_pool2d", [](In x) { return max_pool2d(x[0], 2); },
 [](Ref x) { return pooled(x[0], 2, fixed<2, 2, 0>, maximum_of); }, {{{2, 2, 5, 6}}}},
{"max_pool2d(ceil)", [](In x) { return max_pool2d(x[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true}); },
 [](Ref x) { return pooled(x[0], 2, fixed<3, 2, 1, 1, true>, maximum_of); }, {{{2, 6, 7}}}},
{"max_pool2d(wide)", [](In x) { return max_pool2d(x[0], {2, 3}, {.stride = {2, 3}, .padding = 1, .dilation = {1, 2}}); },
 [](Ref x) {
   const Array rows = pooled(x[0], 1, fixed<3, 3, 1, 2>, maximum_of);
   const auto turn = [](const Array& a) {
     return build({a.shape[0], a.shape[2], a.shape[1]}, [&](const Index& at) { return a({at[0], at[2], at[1]}); });
   };
   return turn(pooled(turn(rows), 1, fixed<2, 2, 1>, maximum_of));
 }, {{{1, 5, 29}}}},
{"max_pool3d", [](In x) { return max_pool3d(x[0], 2, {.stride = 1, .padding = 1}); },
 [](Ref x) { return pooled(x[0], 3, fixed<2, 1, 1>, maximum_of); }, {{{1, 2, 3, 4}}}},
{"max_pool1d_with_indices", [](In x) { return max_pool1d_with_indices(x[0], 3, {.stride = 4}).indices; },
 [](Ref x) { return places(x[0], 1, fixed<3, 4, 0>); }, {{{2, 50}, -2048, 2048}}, kFixed},
{"max_pool2d_with_indices", [](In x) { return max_pool2d_with_indices(x[0], 3, {.stride = 2, .padding = 1}).indices; },
 [](Ref x) { return places(x[0], 2, fixed<3, 2, 1>); }, {{{3, 4, 7}, -42, 42}}, kFixed},
{"max_pool3d_with_indices", [](In x) { return max_pool3d_with_indices(x[0], 2, {.stride = 1}).indices; },
 [](Ref x) { return places(x[0], 3, fixed<2, 1, 0>); }, {{{2, 2, 3, 4}, -24, 24}}, kFixed},
{"max_unpool1d", [](In x) { return max_unpool1d(x[0], x[1], 2); },
 [](Ref x) { return ref::scatter(build({2, 6}, [](const Index&) { return 0.; }), 1, x[1], x[0], false); },
 {{{2, 3}}, {{2, 3}, 0, 6, Input::kDistinctIds}}},
{"max_unpool2d", [](In x) { return max_unpool2d(x[0], x[1].reshape({2, 2, 2}), 2, {.stride = 2, .padding = 1}); },
 [](Ref x) {
   const Array flat{{2, 4}, x[0].data};
   Array y = ref::scatter(build({2, 4}, [](const Index&) { return 0.; }), 1, x[1], flat, false);
   return y.shape = {2, 2, 2}, y;
 }, {{{2, 2, 2}}, {{2, 4}, 0, 4, Input::kDistinctIds}}},
{"max_unpool3d", [](In x) { return max_unpool3d(x[0], x[1].reshape({1, 1, 2, 2}), 1, {.output_size = {1, 2, 3}}); },
 [](Ref x) {
   const Array flat{{1, 4}, x[0].data};
   Array y = ref::scatter(build({1, 6}, [](const Index&) { return 0.; }), 1, x[1], flat, false);
   return y.shape = {1, 1, 2, 3}, y;
 }, {{{1, 1, 2, 2}}, {{1, 4}, 0, 6, Input::kDistinctIds}}},
{"adaptive_max_pool1d", [](In x) { return adaptive_max_pool1d(x[0], 3); },
 [](Ref x) { return pooled(x[0], 1, adaptive<3>, maximum_of); }, {{{2, 7}}}},
{"adaptive_max_pool2d", [](In x) { return adaptive_max_pool2d(x[0], {-1, 3}); },
 [](Ref x) { return pooled(x[0], 1, adaptive<3>, maximum_of); }, {{{2, 3, 6}}}},
{"adaptive_max_pool3d", [](In x) { return adaptive_max_pool3d(x[0], 2); },
 [](Ref x) { return pooled(x[0], 3, adaptive<2>, maximum_of); }, {{{1, 2, 3, 5}}}},
{"adaptive_max_pool1d_with_indices", [](In x) { return adaptive_max_pool1d_with_indices(x[0], 3).indices; },
 [](Ref x) { return places(x[0], 1, adaptive<3>); }, {{{2, 7}, -14, 14}}, kFixed},
{"adaptive_max_pool2d_with_indices", [](In x) { return adaptive_max_pool2d_with_indices(x[0], 3).indices; },
 [](Ref x) { return places(x[0], 2, adaptive<3>); }, {{{2, 4, 5}, -40, 40}}, kFixed},
{"adaptive_max_pool3d_with_indices", [](In x) { return adaptive_max_pool3d_with_indices(x[0], 2).indices; },
 [](Ref x) { return places(x[0], 3, adaptive<2>); }, {{{2, 3, 2, 4}, -48, 48}}, kFixed},
// Samples of 0 put windows of 2 at 0, 1 and 3 of 5.
{"fractional_max_pool2d", [](In x) {
   return fractional_max_pool2d(x[0], 2, {.output_size = 3, .random_samples = zeros({1, 2, 2}, {.device = test_device()})});
 }, [](Ref x) {
   return build({2, 3, 3}, [&](const Index& at) {
     const int64_t start[] = {0, 1, 3}, i = start[at[1]], j = start[at[2]];
     return maximum_of({x[0]({at[0], i, j}), x[0]({at[0], i, j + 1}), x[0]({at[0], i + 1, j}),
                        x[0]({at[0], i + 1, j + 1})});
   });
 }, {{{2, 5, 5}}}},
{"fractional_max_pool3d", [](In x) {
   return fractional_max_pool3d(x[0], {1, 1, 2}, {.output_size = {2, 2, 3}, .random_samples = zeros({1, 1, 3}, {.device = test_device()})});
 }, [](Ref x) {
   return build({1, 2, 2, 3}, [&](const Index& at) {
     const int64_t start[] = {0, 1, 3}, k = start[at[3]];
     return std::max(x[0]({0, at[1], at[2], k}), x[0]({0, at[1], at[2], k + 1}));
   });
 }, {{{1, 2, 2, 5}}}},
{"fractional_max_pool2d_with_indices", [](In x) {
   return fractional_max_pool2d_with_indices(x[0], {1, 2}, {.output_size = {3, 3}, .random_samples = zeros({1, 2, 2}, {.device = test_device()})})
       .indices;
 }, [](Ref x) {
   return build({2, 3, 3}, [&](const Index& at) {
     const int64_t start[] = {0, 1, 3}, j = start[at[2]];
     return static_cast<double>(at[1] * 5 + j + (x[0](with(at, 2, j + 1)) > x[0](with(at, 2, j))));
   });
 }, {{{2, 3, 5}, -30, 30}}, kFixed},
{"fractional_max_pool3d_with_indices", [](In x) {
   return fractional_max_pool3d_with_indices(x[0], 1, {.output_size = 2, .random_samples = zeros({1, 1, 3}, {.device = test_device()})}).indices;
 }, [](Ref) {
   return build({1, 2, 2, 2}, [](const Index& at) { return static_cast<double>(at[1] * 4 + at[2] * 2 + at[3]); });
 }, {{{1, 2, 2, 2}}}, kFixed},
{"avg_pool1d", [](In x) { return avg_pool1d(x[0], 3, {.stride = 2, .padding = 1}); },
 [](Ref x) { return pooled(x[0], 1, fixed<3, 2, 1>, mean_with_padding); }, {{{2, 2, 37}}}},
{"avg_pool1d(dense)", [](In x) { return avg_pool1d(x[0], 5, {.stride = 1}); },
 [](Ref x) { return pooled(x[0], 1, fixed<5, 1, 0>, mean_with_padding); }, {{{2, 29}}}},
{"avg_pool2d", [](In x) { return avg_pool2d(x[0], 2); },
 [](Ref x) { return pooled(x[0], 2, fixed<2, 2, 0>, mean_with_padding); }, {{{2, 2, 5, 6}}}},
{"avg_pool2d(ceil)", [](In x) { return avg_pool2d(x[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true}); },
 [](Ref x) { return pooled(x[0], 2, fixed<3, 2, 1, 1, true>, mean_with_padding); }, {{{2, 6, 7}}}},
{"avg_pool2d(inside)", [](In x) {
   return avg_pool2d(x[0], 3, {.stride = 3, .padding = 1, .count_include_pad = false});
 }, [](Ref x) { return pooled(x[0], 2, fixed<3, 3, 1>, mean_without_padding); }, {{{2, 6, 7}}}},
{"avg_pool2d(divisor)", [](In x) { return avg_pool2d(x[0], 2, {.stride = 1, .divisor_override = 3}); },
 [](Ref x) { return pooled(x[0], 2, fixed<2, 1, 0>, third_of_sum); }, {{{2, 3, 4}}}},
{"avg_pool3d", [](In x) { return avg_pool3d(x[0], 2, {.stride = 1, .padding = 1}); },
 [](Ref x) { return pooled(x[0], 3, fixed<2, 1, 1>, mean_with_padding); }, {{{1, 2, 3, 4}}}},
{"max_pool2d(channels last)", [](In x) {
   return max_pool2d(x[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true, .channels_last = true});
 }, [](Ref x) {
   return ref::channels_last(x, 2, [](Ref y) { return pooled(y[0], 2, fixed<3, 2, 1, 1, true>, maximum_of); });
 }, {{{2, 6, 7, 3}}}},
{"max_pool1d(channels last, many)", [](In x) { return max_pool1d(x[0], 3, {.stride = 1, .dilation = 2, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 1, [](Ref y) { return pooled(y[0], 1, fixed<3, 1, 0, 2>, maximum_of); }); },
 {{{6, 37}}}},
{"max_pool3d(channels last)", [](In x) { return max_pool3d(x[0], 2, {.stride = 1, .padding = 1, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 3, [](Ref y) { return pooled(y[0], 3, fixed<2, 1, 1>, maximum_of); }); },
 {{{2, 3, 4, 2}}}},
{"max_pool2d_with_indices(channels last)",
 [](In x) { return max_pool2d_with_indices(x[0], 3, {.stride = 2, .padding = 1, .channels_last = true}).indices; },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return places(y[0], 2, fixed<3, 2, 1>); }); },
 {{{4, 7, 3}, -42, 42}}, kFixed},
{"max_unpool1d(channels last)", [](In x) { return max_unpool1d(x[0], x[1].transpose(0, 1), 2, {.channels_last = true}); },
 [](Ref x) {
   return ref::scatter(build({6, 2}, [](const Index&) { return 0.; }), 0, ref::movedim(x[1], 1, 0), x[0], false);
 }, {{{3, 2}}, {{2, 3}, 0, 6, Input::kDistinctIds}}},
{"avg_pool2d(channels last)", [](In x) { return avg_pool2d(x[0], 3, {.stride = 2, .padding = 1, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return pooled(y[0], 2, fixed<3, 2, 1>, mean_with_padding); }); },
 {{{2, 6, 7, 3}}}},
{"avg_pool1d(channels last, many)",
 [](In x) { return avg_pool1d(x[0], 3, {.stride = 3, .padding = 1, .count_include_pad = false, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 1, [](Ref y) { return pooled(y[0], 1, fixed<3, 3, 1>, mean_without_padding); }); },
 {{{2, 7, 18}}}},
{"adaptive_max_pool2d(channels last)", [](In x) { return adaptive_max_pool2d(x[0], {-1, 3}, {.channels_last = true}); },
 [](Ref x) {
   return ref::channels_last(x, 2, [](Ref y) { return pooled(y[0], 1, adaptive<3>, maximum_of); });
 }, {{{3, 6, 2}}}},
{"adaptive_avg_pool2d(channels last)", [](In x) { return adaptive_avg_pool2d(x[0], 3, {.channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return pooled(y[0], 2, adaptive<3>, mean_with_padding); }); },
 {{{2, 4, 5, 3}}}},
{"adaptive_avg_pool2d(channels last, one)", [](In x) { return adaptive_avg_pool2d(x[0], 1, {.channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return pooled(y[0], 2, adaptive<1>, mean_with_padding); }); },
 {{{3, 4, 2}}}},
{"lp_pool2d(channels last)", [](In x) { return lp_pool2d(x[0], 2, 3, {.stride = 2, .channels_last = true}); },
 [](Ref x) { return ref::channels_last(x, 2, [](Ref y) { return pooled(y[0], 2, fixed<3, 2, 0>, euclidean); }); },
 {{{5, 6, 2}}}, {.tolerance = 8}},
{"adaptive_avg_pool1d", [](In x) { return adaptive_avg_pool1d(x[0], 3); },
 [](Ref x) { return pooled(x[0], 1, adaptive<3>, mean_with_padding); }, {{{2, 7}}}},
{"adaptive_avg_pool2d", [](In x) { return adaptive_avg_pool2d(x[0], 3); },
 [](Ref x) { return pooled(x[0], 2, adaptive<3>, mean_with_padding); }, {{{2, 4, 5}}}},
{"adaptive_avg_pool2d(one)", [](In x) { return adaptive_avg_pool2d(x[0], 1); },
 [](Ref x) { return pooled(x[0], 2, adaptive<1>, mean_with_padding); }, {{{2, 3, 4}}}},
{"adaptive_avg_pool3d", [](In x) { return adaptive_avg_pool3d(x[0], 2); },
 [](Ref x) { return pooled(x[0], 3, adaptive<2>, mean_with_padding); }, {{{1, 2, 4, 6}}}},
{"lp_pool1d", [](In x) { return lp_pool1d(x[0], 3, 2); }, [](Ref x) { return pooled(x[0], 1, fixed<2, 2, 0>, cubic_mean); },
 {{{2, 7}, 0.5, 2}}, {.tolerance = 8}},
{"lp_pool2d", [](In x) { return lp_pool2d(x[0], 2, 3, {.stride = 2}); },
 [](Ref x) { return pooled(x[0], 2, fixed<3, 2, 0>, euclidean); }, {{{2, 5, 6}}}, {.tolerance = 8}},
{"lp_pool3d", [](In x) { return lp_pool3d(x[0], 2, 2); }, [](Ref x) { return pooled(x[0], 3, fixed<2, 2, 0>, euclidean); },
 {{{1, 2, 4, 5}}}, {.tolerance = 8}},

};
  return rows;
}

namespace {

const WrongCall kWrongCalls[] = {
{[](World& w) { max_pool2d(w.vector, 2); },
 "max_pool2d: x of shape [3], not [n, channels, …] or [channels, …] with 2 more"},
{[](World& w) { max_pool1d(w.whole.reshape({1, 3}), 2); },
 "max_pool1d: a tensor of int64; convert it to a floating point type first"},
{[](World& w) { max_pool2d(w.cube, 0); },
 "max_pool2d: kernel_size [0, 0], stride [0, 0] and dilation [1, 1] must be positive and at most 2147483647"},
{[](World& w) { max_pool2d(w.cube, 2, {.stride = {1, -1}}); },
 "max_pool2d: kernel_size [2, 2], stride [1, -1] and dilation [1, 1] must be positive and at most 2147483647"},
{[](World& w) { max_pool1d(w.matrix, 3, {.dilation = int64_t{1} << 62}); },
 "max_pool1d: kernel_size [3], stride [0] and dilation [4611686018427387904] must be positive and at most 2147483647"},
{[](World& w) { max_pool1d(w.matrix, int64_t{1} << 62, {.padding = 2, .dilation = 4}); }, "max_pool1d: kernel_size …"},
{[](World& w) { lp_pool2d(w.cube, 2, int64_t{1} << 40); }, "lp_pool2d: kernel_size …"},
{[](World& w) { max_pool2d(w.cube, {2, 3}, {.padding = 2}); },
 "max_pool2d: padding [2, 2] is not between 0 and half of kernel_size [2, 3]"},
{[](World& w) { max_pool2d(w.cube, 4); },
 "max_pool2d: kernel_size [4, 4] with dilation [1, 1] and padding [0, 0] does not fit into x of shape [2, 3, 4]"},
{[](World& w) { max_pool1d(w.cube, 2, {.padding = 1, .dilation = 5}); },
 "max_pool1d: dilation [5] exceeds x of shape [2, 3, 4]"},
{[](World&) { avg_pool1d(ones({2, 0}), 1); }, "avg_pool1d: nothing to pool in x of shape [2, 0]"},
{[](World& w) { avg_pool2d(w.cube, 2, {.divisor_override = -1}); }, "avg_pool2d: divisor_override -1 is negative"},
{[](World& w) { adaptive_avg_pool2d(w.cube, -2); }, "adaptive_avg_pool2d: output_size [-2, -2] is negative"},
{[](World& w) { adaptive_max_pool1d(w.undefined, 1); }, "adaptive_max_pool1d: undefined tensor"},
{[](World& w) { max_unpool1d(w.matrix, w.ids, 2); },
 "max_unpool1d: indices are int64 [3], not int64 of x's shape [3, 4]"},
{[](World&) { max_unpool1d(ones({1, 2}), tensor({{0, 4}}), 2); },
 "max_unpool1d: index 4 is out of range for 4 elements"},
{[](World&) { max_unpool1d(ones({1, 2}), tensor({{0, 1}}), 2, {.padding = -1}); },
 "max_unpool1d: kernel_size [2] and stride [0] must be positive, padding [-1] not negative, and all at most 2147483647"},
{[](World&) { max_unpool1d(ones({1, 2}), tensor({{0, 1}}), 2, {.stride = -1}); },
 "max_unpool1d: kernel_size [2] and stride [-1] must be positive, padding [0] not negative, and all at most 2147483647"},
{[](World&) { max_unpool2d(ones({1, 1, 1}), zeros({1, 1, 1}, {.dtype = kInt64}), 2, {.output_size = int64_t{1} << 32}); },
 "shape [1, 4294967296, 4294967296]: too many elements for 63 bits"},
{[](World&) { max_unpool1d(ones({1, 1}), tensor({{0}}), 1, {.padding = 1}); },
 "max_unpool1d: nothing is left of size 1 with kernel_size [1], stride [0], padding [1] and output_size [0]"},
{[](World& w) { fractional_max_pool2d(w.cube, 2, {}); },
 "fractional_max_pool2d: 0 windows of kernel_size [2, 2] do not fit into x of shape [2, 3, 4]"},
{[](World& w) { fractional_max_pool2d(w.cube, 2, {.output_size = 1, .output_ratio = {0.5}}); },
 "fractional_max_pool2d: both output_size and output_ratio are given"},
{[](World& w) { fractional_max_pool2d(w.cube, 2, {.output_ratio = {1.5}}); },
 "fractional_max_pool2d: output_ratio 1.5 is not between 0 and 1"},
{[](World& w) { fractional_max_pool2d(w.cube, 2, {.output_size = 2, .random_samples = w.vector}); },
 "fractional_max_pool2d: random_samples are float32 [3], not floating-point numbers [1, 2, 2]"},
{[](World& w) { lp_pool1d(w.matrix, 0, 2); }, "lp_pool1d: norm_type is 0"},
};
// clang-format on

}  // namespace

TEST_CASE("a wrong pooling says what is wrong", "[errors]") { check_wrong_calls(kWrongCalls); }

TEST_CASE("pooling: NaN wins and the first of equals is the maximum", "[ops][isa]") {
  const double nan = std::nan(""), infinity = ref::kInfinity;
  for (DType dtype : {kFloat32, kFloat64}) {
    // As a row alone and in one long enough for vectors.
    Tensor x = full({1, 40}, 1, {.dtype = dtype});
    x.index_put_({0, 5}, nan);
    x.index_put_({0, Slice(8, 12)}, -infinity);
    x.index_put_({0, 39}, infinity);
    const auto [y, at] = max_pool1d_with_indices(x, 2);
    CHECK(std::isnan(y[0][2].item<double>()));
    CHECK(at[0][2].item<int64_t>() == 5);
    CHECK(at[0][0].item<int64_t>() == 0);
    CHECK(y[0][4].item<double>() == -infinity);
    CHECK(at[0][4].item<int64_t>() == 8);
    CHECK(y[0][19].item<double>() == infinity);
    Tensor leaf = x.clone().requires_grad_();
    sum(max_pool1d(leaf, 2)).backward();
    CHECK(leaf.grad()[0][5].item<double>() == 1);
    CHECK(leaf.grad()[0][8].item<double>() == 1);
    CHECK(sum(leaf.grad()).item<double>() == 20);
  }
}

TEST_CASE("unpooling puts maxima back where they were", "[ops]") {
  manual_seed(2);
  const Tensor x = rand({2, 3, 8, 10});
  const auto [y, at] = max_pool2d_with_indices(x, 2);
  const Tensor back = max_unpool2d(y, at, 2);
  CHECK(back.shape() == x.shape());
  CHECK(equal(max_pool2d(back, 2), y));
  CHECK(equal(where(back == 0, x, back), x));
}

TEST_CASE("pooling of no examples", "[ops]") {
  const Tensor x = zeros({0, 2, 6, 6}, {.requires_grad = true});
  for (const Tensor& y : {max_pool2d(x, 2), avg_pool2d(x, 2), adaptive_avg_pool2d(x, 3), adaptive_max_pool2d(x, 3),
                          fractional_max_pool2d(x, 2, {.output_size = 3}), lp_pool2d(x, 2, 2)}) {
    CHECK(y.shape() == Shape{0, 2, 3, 3});
    y.backward(ones_like(y));
    CHECK(x.grad().shape() == x.shape());
  }
}

TEST_CASE("fractional windows cover the whole of x and are drawn for each channel", "[ops]") {
  manual_seed(7);
  const Tensor x = arange(0, 100).to(kFloat32).view({1, 1, 10, 10}).expand({4, 3, 10, 10});
  const Tensor y = fractional_max_pool2d(x, 2, {.output_ratio = {0.5, 0.7}});
  CHECK(y.shape() == Shape{4, 3, 5, 7});
  CHECK(equal(amax(y, {2, 3}), full({4, 3}, 99.f)));
  CHECK_FALSE(equal(y, y[0][0].expand(y.shape())));
}

TEST_CASE("windows are PyTorch's", "[pins]") {
  const StateDict pins = load_reference("pool.safetensors");
  const auto pin = [&](const std::string& name) { return *find(pins, name); };
  const Tensor x = pin("x"), deep = pin("deep");  // [1, 2, 7, 20], [1, 1, 3, 4, 9]
  const auto check = [&](const std::string& name, const ValuesIndices& pooled) {
    INFO(name);
    testing::assert_close(pooled.values, pin(name));
    testing::assert_close(pooled.indices, pin(name + ".indices").to(kInt64));
  };
  const auto check_mean = [&](const std::string& name, const Tensor& y) {
    INFO(name);
    testing::assert_close(y, pin(name));
  };
  check("max.ceil", max_pool2d_with_indices(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true}));
  check("max.dilated", max_pool2d_with_indices(x, 2, {.stride = {2, 3}, .dilation = {3, 2}, .ceil_mode = true}));
  check("max.deep", max_pool3d_with_indices(deep, 2, {.stride = 2, .padding = 1, .ceil_mode = true}));
  check("max.adaptive", adaptive_max_pool2d_with_indices(x, {3, 7}));
  check("max.fractional",
        fractional_max_pool2d_with_indices(x, {2, 3}, {.output_size = {4, 9}, .random_samples = pin("samples2")}));
  check("max.fractional3",
        fractional_max_pool3d_with_indices(deep, 2, {.output_size = {1, 2, 5}, .random_samples = pin("samples3")}));
  check_mean("avg.ceil", avg_pool2d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true}));
  check_mean("avg.inside",
             avg_pool2d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}));
  check_mean("avg.deep", avg_pool3d(deep, 2, {.stride = 2, .padding = 1, .ceil_mode = true}));
  check_mean("avg.adaptive", adaptive_avg_pool2d(x, {3, 7}));
  check_mean("lp.ceil", lp_pool2d(x, 2, 3, {.stride = 2, .ceil_mode = true}));
}

TEST_CASE("pooling many planes gives what each plane gives by itself", "[ops]") {
  for (const int64_t planes : {7, 16, 37}) {
    const Tensor x = randn({planes, 1, 9, 8});
    const auto check = [&](const auto& pool) {
      const auto with_grad = [&](const Tensor& part) {
        const Tensor leaf = part.clone().requires_grad_(), y = pool(leaf);
        return std::pair(y, grad({sum(y * y)}, {leaf})[0]);
      };
      const auto [y, g] = with_grad(x);
      for (int64_t i = 0; i < planes; ++i) {
        const auto [one, one_g] = with_grad(x[i]);
        CHECK(equal(y[i], one));
        CHECK(equal(g[i], one_g));
      }
    };
    check([](const Tensor& t) { return max_pool2d(t, 2); });
    check([](const Tensor& t) { return max_pool2d(t, 3, {.stride = 2, .padding = 1, .dilation = 2}); });
    check([](const Tensor& t) { return avg_pool2d(t, 3, {.stride = 1, .padding = 1}); });
    check([](const Tensor& t) { return adaptive_avg_pool2d(t, {4, 3}); });
    check([](const Tensor& t) { return adaptive_max_pool2d(t, {4, 3}); });
  }
}

}  // namespace reel
