#include "reel/ops/resize.h"

#include <cmath>

#include "lib/autograd/engine.h"
#include "lib/autograd/subgraph.h"
#include "lib/device/kernels/grid_sample.h"
#include "lib/functors/grid_sample.h"
#include "lib/ops/internal.h"
#include "lib/ops/pointwise.h"

namespace reel {
namespace {

void check_float(const char* op, const View& x) {
  REEL_CHECK(is_floating_point(x.dtype), op, ": a tensor of ", x.dtype, "; convert it to a floating point type first");
}

// ---- one dimension --------------------------------------------------------------------------------------------------

/// y[j] = Σ_k weights[j, k] x[ids[j, k]]
struct Taps {
  Tensor ids, weights;
};

Tensor spread_back(const Tensor& g, int dim, int64_t size, const Taps& taps);

// Linear, so its rule is its adjoint, and the other way round.
Tensor resample(const Tensor& x, int dim, const Taps& taps) {
  return call("interpolate", {x, taps.ids, taps.weights}, {{"dim", dim}},
              [&](const Tensor& x, const Tensor& ids, const Tensor& weights) {
                const Tensor from = x.contiguous();
                Shape shape = x.shape();
                shape[dim] = ids.size(0);
                const Tensor y = make_tensor(shape, x.dtype(), x.device());
                kernels_of(x).interpolate(view_of(from), dim, view_of(ids), view_of(weights), view_of(y));
                if (recording(x))
                  record("interpolate", y, inputs(x),
                         [dim, size = x.size(dim), taps = Taps{ids, weights}](Backward& back) {
                           back.set(0, spread_back(back.grad(), dim, size, taps));
                         });
                return y;
              });
}
Tensor spread_back(const Tensor& g, int dim, int64_t size, const Taps& taps) {
  const Tensor from = g.contiguous();
  Shape shape = g.shape();
  shape[dim] = size;
  const Tensor gx = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  kernels_of(g).interpolate_grad(view_of(gx), dim, view_of(taps.ids), view_of(taps.weights), view_of(from));
  if (recording(g))
    record("interpolate", gx, inputs(g),
           [dim, taps](Backward& back) { back.set(0, resample(back.grad(), dim, taps)); });
  return gx;
}

/// Where the elements of the result lie among those of x: `scale` apart.
struct Axis {
  int64_t in, out;
  double scale;
  bool align_corners;
  double place(int64_t j) const {
    return align_corners ? static_cast<double>(j) * scale : (static_cast<double>(j) + 0.5) * scale - 0.5;
  }
};

/// Keys' convolution kernel.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

struct TapLists {
  std::vector<int64_t> ids = {};
  std::vector<double> weights = {};
  int64_t count = 1;  // for each element of the result
};

TapLists nearest(const Axis& axis, bool exact) {
  TapLists taps;
  for (int64_t j = 0; j < axis.out; ++j) {
    const double place = (static_cast<double>(j) + (exact ? 0.5 : 0)) * axis.scale;
    taps.ids.push_back(std::min(static_cast<int64_t>(place), axis.in - 1));
    taps.weights.push_back(1);
  }
  return taps;
}
TapLists linear(const Axis& axis) {
  TapLists taps{.count = 2};
  for (int64_t j = 0; j < axis.out; ++j) {
    const double place = std::max(axis.place(j), 0.);
    const int64_t i = std::min(static_cast<int64_t>(place), axis.in - 1);
    const double weight = std::min(place - static_cast<double>(i), 1.);
    for (int64_t k : {i, std::min(i + 1, axis.in - 1)}) taps.ids.push_back(k);
    for (double w : {1 - weight, weight}) taps.weights.push_back(w);
  }
  return taps;
}
TapLists cubic(const Axis& axis) {
  TapLists taps{.count = 4};
  for (int64_t j = 0; j < axis.out; ++j) {
    const double place = axis.place(j), start = std::floor(place) - 1;
    for (int k = 0; k < 4; ++k) {
      taps.ids.push_back(std::clamp(static_cast<int64_t>(start) + k, int64_t{0}, axis.in - 1));
      taps.weights.push_back(cubic(place - start - k, -0.75));
    }
  }
  return taps;
}
/// As PIL has it: the kernel is as much wider as x is larger; its weights inside of x are scaled to sum 1.
TapLists antialiased(const Axis& axis, Interpolation mode) {
  const double stretch = std::max(axis.scale, 1.), support = (mode == kBicubic ? 2 : 1) * stretch;
  TapLists taps{.count = std::min(static_cast<int64_t>(std::ceil(support)) * 2 + 1, axis.in)};
  for (int64_t j = 0; j < axis.out; ++j) {
    const double centre = (static_cast<double>(j) + 0.5) * axis.scale;
    const int64_t begin = std::max(static_cast<int64_t>(std::floor(centre - support + 0.5)), int64_t{0});
    const int64_t end = std::min(static_cast<int64_t>(std::floor(centre + support + 0.5)), axis.in);
    const auto weight = [&](int64_t i) {
      const double distance = (static_cast<double>(i) - centre + 0.5) / stretch;
      return mode == kBicubic ? cubic(distance, -0.5) : std::max(1 - std::abs(distance), 0.);
    };
    double total = 0;
    for (int64_t i = begin; i < end; ++i) total += weight(i);
    // What is left of the list shares the last element: with a weight of 0 another one's infinity would count as NaN.
    const int64_t sharing = taps.count - (end - 1 - begin);
    for (int64_t k = 0; k < taps.count; ++k) {
      const int64_t i = std::min(begin + k, end - 1);
      taps.ids.push_back(i);
      taps.weights.push_back(weight(i) / total / static_cast<double>(i < end - 1 ? 1 : sharing));
    }
  }
  return taps;
}

Taps taps_of(const Axis& axis, const InterpolateOptions& options, const Tensor& x) {
  TapLists lists;
  if (options.antialias)
    lists = antialiased(axis, options.mode);
  else if (options.mode == kNearest || options.mode == kNearestExact)
    lists = nearest(axis, options.mode == kNearestExact);
  else
    lists = options.mode == kBicubic ? cubic(axis) : linear(axis);
  const Shape shape{axis.out, lists.count};
  return {tensor(lists.ids, shape).to(x.device()), tensor(lists.weights, shape).to(x.dtype()).to(x.device())};
}

// ---- interpolate ----------------------------------------------------------------------------------------------------

void check_mode(const InterpolateOptions& options, int dims) {
  const Interpolation mode = options.mode;
  const int wanted = mode == Interpolation::kLinear          ? 1
                     : mode == kBilinear || mode == kBicubic ? 2
                     : mode == kTrilinear                    ? 3
                                                             : dims;
  REEL_CHECK(dims == wanted, "interpolate: this mode is for ", wanted, " dimensions, x has ", dims,
             " besides examples and channels");
  REEL_CHECK(!options.align_corners || mode == Interpolation::kLinear || mode == kBilinear || mode == kBicubic ||
                 mode == kTrilinear,
             "interpolate: align_corners is for linear and cubic modes");
  REEL_CHECK(!options.antialias || mode == kBilinear || mode == kBicubic,
             "interpolate: antialias is for kBilinear and kBicubic");
}

/// The number for dimension i of a list that has one for all or one for each.
template <class List>
auto each(const List& list, int i) {
  return list.size() == 1 ? *list.begin() : *(list.begin() + i);
}

Tensor area(const Tensor& x, const Shape& size, const AdaptivePoolOptions& options) {
  switch (size.size()) {
    case 1: return adaptive_avg_pool1d(x, size[0], options);
    case 2: return adaptive_avg_pool2d(x, {size[0], size[1]}, options);
    default: return adaptive_avg_pool3d(x, {size[0], size[1], size[2]}, options);
  }
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  constexpr const char* op = "interpolate";
  const View& view = view_of(x, op);
  check_float(op, view);
  const int dims = view.shape.size() - 2, first = options.channels_last ? 1 : 2,
            given = static_cast<int>(options.size.size()), scales = static_cast<int>(options.scale_factor.size());
  REEL_CHECK(dims >= 1 && dims <= 3, op, ": x of shape ", view.shape, ", not ",
             options.channels_last ? "[n, …, channels]" : "[n, channels, …]", " with one to three more");
  REEL_CHECK((given == 0) != (scales == 0), op, ": one of size and scale_factor is to be given");
  REEL_CHECK(given + scales == 1 || given + scales == dims, op, ": ", given + scales, " sizes or scales for ", dims,
             " dimensions");
  check_mode(options, dims);

  Shape size, result = view.shape;
  for (int i = 0; i < dims; ++i) {
    const int64_t in = view.shape[first + i];
    const double scaled = scales ? static_cast<double>(in) * each(options.scale_factor, i) : 0;
    REEL_CHECK(std::abs(scaled) < 0x1p63, op, ": from size ", in, " to size ", scaled, " in dimension ", first + i);
    size.push_back(given ? each(options.size, i) : static_cast<int64_t>(scaled));
    REEL_CHECK(in > 0 && (size[i] > 0 || (size[i] == 0 && options.mode == kArea)), op, ": from size ", in, " to size ",
               size[i], " in dimension ", first + i);
    result[first + i] = size[i];
  }
  return call("interpolate(all)", {x}, {}, [&](const Tensor& x) {
    const View& view = view_of(x);
    if (options.mode == kArea) return area(x, size, {options.channels_last});
    if (view.numel == 0) return x.reshape(result).clone();
    make_tensor(result, view.dtype, x.device());  // a result that is too large is refused before its taps are made
    Tensor y = x;
    for (int i = dims - 1; i >= 0; --i) {
      Axis axis{view.shape[first + i], size[i], 0, options.align_corners};
      if (axis.align_corners)
        axis.scale = axis.out > 1 ? static_cast<double>(axis.in - 1) / static_cast<double>(axis.out - 1) : 0;
      else
        axis.scale =
            scales ? 1 / each(options.scale_factor, i) : static_cast<double>(axis.in) / static_cast<double>(axis.out);
      if (axis.in != axis.out || axis.scale != 1) y = resample(y, first + i, taps_of(axis, options, x));
    }
    return y.is_same(x) ? x.clone() : y;
  });
}

// ---- shuffles -------------------------------------------------------------------------------------------------------

Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor) {
  const Shape& shape = view_of(x, "pixel_shuffle").shape;
  const int rank = shape.size();
  const int64_t r = upscale_factor;
  REEL_CHECK(rank >= 3, "pixel_shuffle: x of shape ", shape, ", not […, channels, h, w]");
  REEL_CHECK(r > 0 && r <= INT32_MAX && shape[rank - 3] % (r * r) == 0, "pixel_shuffle: ", shape[rank - 3],
             " channels cannot be divided by the square of ", r);
  const Shape lead(std::span<const int64_t>(shape.begin(), static_cast<size_t>(rank - 3)));
  const int64_t n = lead.numel(), c = shape[rank - 3] / (r * r), h = shape[rank - 2], w = shape[rank - 1];
  Shape result = shape;
  result[rank - 3] = c, result[rank - 2] = h * r, result[rank - 1] = w * r;
  return x.reshape({n, c, r, r, h, w}).permute({0, 1, 4, 2, 5, 3}).clone().view(result);
}

Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor) {
  const Shape& shape = view_of(x, "pixel_unshuffle").shape;
  const int rank = shape.size();
  const int64_t r = downscale_factor;
  REEL_CHECK(rank >= 3, "pixel_unshuffle: x of shape ", shape, ", not […, channels, h, w]");
  REEL_CHECK(r > 0 && r <= INT32_MAX && shape[rank - 2] % r == 0 && shape[rank - 1] % r == 0,
             "pixel_unshuffle: ", shape[rank - 2], " x ", shape[rank - 1], " cannot be divided by ", r);
  const Shape lead(std::span<const int64_t>(shape.begin(), static_cast<size_t>(rank - 3)));
  const int64_t n = lead.numel(), c = shape[rank - 3], h = shape[rank - 2] / r, w = shape[rank - 1] / r;
  Shape result = shape;
  result[rank - 3] = Shape{c, r, r}.numel(), result[rank - 2] = h, result[rank - 1] = w;
  return x.reshape({n, c, h, r, w, r}).permute({0, 1, 3, 5, 2, 4}).clone().view(result);
}

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  const Shape& shape = view_of(x, "channel_shuffle").shape;
  REEL_CHECK(shape.size() >= 3, "channel_shuffle: x of shape ", shape, ", not [n, channels, …]");
  REEL_CHECK(groups > 0 && shape[1] % groups == 0, "channel_shuffle: ", shape[1], " channels cannot be divided into ",
             groups, " groups");
  int64_t inner = 1;
  for (int d = 2; d < shape.size(); ++d) inner *= shape[d];
  // A copy also of one group, or of groups of one channel, for which reshape would make none.
  return x.reshape({shape[0], groups, shape[1] / groups, inner}).transpose(1, 2).clone().view(shape);
}

// ---- grids ----------------------------------------------------------------------------------------------------------

namespace {

/// Positions that are outside of x brought inside, as `padding` says.
Tensor brought_inside(const Tensor& at, int64_t size, const GridSampleOptions& options) {
  const double n = static_cast<double>(size);
  if (options.padding == GridPadding::kZeros) return at;
  if (options.padding == GridPadding::kBorder) return clamp(at, 0., n - 1);
  return clamp(options.align_corners ? functors::reflected(at, 0, n - 1) : functors::reflected(at, -0.5, n - 0.5), 0.,
               n - 1);
}

/// The elements of one dimension that a place is made of, and their weights; undefined is 1.
struct Neighbour {
  Tensor position, weight;  // position: whole numbers
};

std::vector<Neighbour> neighbours(const Tensor& at, Interpolation mode) {
  if (mode == kNearest) {
    const Tensor nearest = no_grad([&] { return round(at); });
    if (!recording(at)) return {{nearest, {}}};
    // A weight of 1 through which the grid gets a gradient: zeros.
    return {{nearest, masked_fill(at, ones(at.shape(), {.dtype = kBool, .device = at.device()}), 1)}};
  }
  const Tensor base = no_grad([&] { return floor(at); }), t = at - base;
  if (mode == kBilinear) return {{base, 1 - t}, {base + 1, t}};
  using functors::cubic_far, functors::cubic_near;
  return {
      {base - 1, cubic_far(t + 1)}, {base, cubic_near(t)}, {base + 1, cubic_near(1 - t)}, {base + 2, cubic_far(2 - t)}};
}

/// Returns samples composed of other ops. x and the grid have passed grid_sample's checks, and `result` is the result's
/// shape.
Tensor composed_sample(const Tensor& x, const Tensor& grid, const Shape& result, const GridSampleOptions& options) {
  const View& view = view_of(x);
  const int dims = view.shape.size() - 2;
  const int64_t n = view.shape[0], channels = view.shape[1];
  int64_t count = 1, plane = 1;
  for (int i = 0; i < dims; ++i) {
    count *= result[2 + i];
    plane *= view.shape[2 + i];
  }
  const Tensor flat = x.reshape({n, channels, plane}), points = grid.reshape({n, count, dims});

  // The sum over all combinations of neighbours in the dimensions, the first of which is the last of a grid's point.
  struct Term {
    Tensor index, inside, weight;  // [n, count]; undefined is 0, everywhere, 1
  };
  std::vector<Term> terms(1);
  const auto times = [](const Tensor& a, const Tensor& b) { return !a.defined() ? b : !b.defined() ? a : a * b; };
  for (int i = 0; i < dims; ++i) {
    const int64_t size = view.shape[2 + i];
    Tensor at =
        functors::grid_position(points.select(2, dims - 1 - i), static_cast<double>(size), options.align_corners);
    // A cubic's neighbours are brought inside one by one, a linear's place as a whole.
    if (options.mode != kBicubic) at = brought_inside(at, size, options);
    std::vector<Term> more;
    for (const Neighbour& neighbour : neighbours(at, options.mode)) {
      const auto [index, inside] = no_grad([&] {
        const Tensor own =
            options.mode == kBicubic ? brought_inside(neighbour.position, size, options) : neighbour.position;
        const double last = static_cast<double>(size - 1);
        const Tensor in = (own >= 0) & (own <= last);
        return std::pair(where(in, own, 0.).to(kInt64), in);
      });
      for (const Term& term : terms)
        more.push_back({term.index.defined() ? term.index * size + index : index,
                        term.inside.defined() ? term.inside & inside : inside, times(term.weight, neighbour.weight)});
    }
    terms = std::move(more);
  }
  Tensor y;
  for (const Term& term : terms) {
    const Tensor values = gather(flat, 2, term.index.unsqueeze(1).expand({n, channels, count}));
    // What lies outside is 0, whatever the element is that stands for it.
    const Tensor seen = masked_fill(values, ~term.inside.unsqueeze(1), 0);
    const Tensor part = term.weight.defined() ? seen * term.weight.unsqueeze(1) : seen;
    y = y.defined() ? y + part : part;
  }
  return y.reshape(result);
}

GridSample job_of(const Tensor& x, const Tensor& grid, const Tensor& y, const GridSampleOptions& options) {
  return {.mode = options.mode == kNearest    ? GridMode::kNearest
                  : options.mode == kBilinear ? GridMode::kBilinear
                                              : GridMode::kBicubic,
          .edge = options.padding == GridPadding::kZeros    ? GridEdge::kZeros
                  : options.padding == GridPadding::kBorder ? GridEdge::kBorder
                                                            : GridEdge::kReflection,
          .align_corners = options.align_corners,
          .x = view_of(x),
          .grid = view_of(grid),
          .y = view_of(y)};
}

/// A GridSampleRule computes the gradients of the kernel's result.
struct GridSampleRule {
  SavedTensor x, grid;
  GridSampleOptions options;

  void operator()(Backward& back) {
    const Tensor xt = back.get(x), places = back.get(grid);
    if (back.create_graph()) {
      const Tensor inputs[] = {xt, places};
      EdgeList edges;
      for (const Tensor& input : inputs) edges.add(input);
      const uint64_t since = next_sequence();
      const Tensor y = composed_sample(xt, places, back.grad().shape(), options);
      std::vector<Tensor> found = subgraph_grad({&y, 1}, {back.grad()}, since, edges.edges, true);
      for (size_t i = 0; i < found.size(); ++i) back.set(static_cast<int>(i), std::move(found[i]));
      return;
    }
    const Tensor g = back.grad().contiguous();
    Tensor gx, grid_grad;
    if (back.needs(0)) gx = zeros(xt.shape(), {.dtype = xt.dtype(), .device = xt.device()});
    if (back.needs(1)) grid_grad = make_tensor(places.shape(), places.dtype(), places.device());
    GridSample job = job_of(xt, places, g, options);
    if (gx.defined()) job.gx = &view_of(gx);
    if (grid_grad.defined()) job.grid_grad = &view_of(grid_grad);
    kernels_of(xt).grid_sample_grad(job);
    if (gx.defined()) back.set(0, std::move(gx));
    if (grid_grad.defined()) back.set(1, std::move(grid_grad));
  }
};

/// Returns samples of x, which has passed grid_sample's checks with the grid but for their dtypes.
Tensor sampled(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  constexpr const char* op = "grid_sample";
  const View &view = view_of(x), &places = view_of(grid);
  REEL_CHECK(places.dtype == view.dtype, op, ": x is ", view.dtype, " and the grid ", places.dtype);
  Shape result{view.shape[0], view.shape[1]};
  for (int i = 2; i < view.shape.size(); ++i) {
    REEL_CHECK(view.shape[i] > 0, op, ": nothing to sample in x of shape ", view.shape);
    result.push_back(places.shape[i - 1]);
  }
  common_device(op, {&x, &grid});
  if (is_tracing()) return composed_sample(x, grid, result, options);
  const Tensor xt = x.contiguous(), points = grid.contiguous(), y = make_tensor(result, view.dtype, x.device());
  if (!kernels_of(y).grid_sample(job_of(xt, points, y, options))) return composed_sample(x, grid, result, options);
  if (recording(xt, points))
    record(op, y, inputs(xt, points), GridSampleRule{SavedTensor(xt), SavedTensor(points), options});
  return y;
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  constexpr Op op = "grid_sample";
  const View &view = view_of(x, op), &places = view_of(grid, op);
  const int dims = view.shape.size() - 2;
  check_float(op, view);
  REEL_CHECK(dims == 2 || dims == 3, op, ": x of shape ", view.shape,
             ", not [n, channels, h, w] or [n, channels, d, h, w]");
  REEL_CHECK(places.shape.size() == dims + 2 && places.shape.back() == dims && places.shape[0] == view.shape[0], op,
             ": a grid of shape ", places.shape, " for x of shape ", view.shape);
  REEL_CHECK(options.mode == kBilinear || options.mode == kNearest || (options.mode == kBicubic && dims == 2), op,
             ": the mode is not kBilinear, kNearest or, for images, kBicubic");
  return call(op, {x, grid}, {}, [&](const Tensor& x, const Tensor& grid) { return sampled(x, grid, options); });
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners) {
  constexpr Op op = "affine_grid";
  const View& view = view_of(theta, op);
  const int dims = size.size() - 2;
  check_float(op, view);
  REEL_CHECK(dims == 2 || dims == 3, op, ": a size of ", size, ", not [n, channels, h, w] or [n, channels, d, h, w]");
  REEL_CHECK(view.shape == Shape({size[0], dims, dims + 1}), op, ": maps of shape ", view.shape, "; for a size of ",
             size, " they should be ", Shape{size[0], dims, dims + 1});
  return call(op, {theta}, {}, [&](const Tensor& theta) {
    const TensorOptions like{.dtype = theta.dtype(), .device = theta.device()};
    Shape all(std::span<const int64_t>(size.begin() + 2, static_cast<size_t>(dims)));
    const int64_t count = all.numel();
    std::vector<Tensor> columns;
    for (int i = dims - 1; i >= 0; --i) {  // x comes first
      const double edge = all[i] < 2 ? 0 : align_corners ? 1 : 1 - 1 / static_cast<double>(all[i]);
      Shape shape = all;
      for (int d = 0; d < dims; ++d)
        if (d != i) shape[d] = 1;
      columns.push_back(linspace(-edge, edge, all[i], like).reshape(shape).expand(all).reshape({count}));
    }
    columns.push_back(ones({count}, like));
    const Tensor points = stack(columns, 1);  // [count, dims + 1]
    Shape result{size[0]};
    for (int64_t s : all) result.push_back(s);
    result.push_back(dims);
    return matmul(points, theta.transpose(1, 2)).reshape(result);
  });
}

}  // namespace reel
