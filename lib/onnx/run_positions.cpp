#include <algorithm>

#include "lib/onnx/run_ops.h"

// Ops that look up, place and rearrange elements.
namespace reel::onnx {
namespace {

// ---- elements by position -------------------------------------------------------------------------------------------

Tensor wrap(const Tensor& index, int64_t size) {
  const Tensor ids = index.to(kInt64);
  return where(ids < 0, ids + size, ids);
}

Tensor gather_slices(const Tensor& x, const Tensor& index, int64_t at) {
  const int64_t axis = wrap_axis(at, x.dim());
  const Tensor ids = wrap(index, x.size(axis));
  if (axis == 0 && x.dim() == 2) return embedding(x, ids);
  Shape shape = x.shape();
  shape.erase(static_cast<int>(axis));
  for (int i = 0; i < ids.dim(); ++i) shape.insert(static_cast<int>(axis) + i, ids.shape()[i]);
  return index_select(x, axis, ids.reshape({-1})).reshape(shape);
}

// For GatherND and ScatterND: x as [positions, rest] and the positions that index […, k] names, after `batch`
// dimensions.
struct Positions {
  Tensor rows, at;
  Shape rest, index;
};
Positions positions(const Tensor& x, const Tensor& index, int64_t batch) {
  REEL_CHECK(index.dim() > batch && batch >= 0 && index.size(-1) + batch <= x.dim(), "indices of shape ", index.shape(),
             " into ", x.shape());
  const int64_t k = index.size(-1);
  Positions p;
  int64_t count = 1, batches = 1;
  for (int64_t d = 0; d < batch; ++d) batches *= x.size(d);
  for (int64_t d = batch + k; d < x.dim(); ++d) p.rest.push_back(x.size(d));
  for (int64_t d = 0; d + 1 < index.dim(); ++d) p.index.push_back(index.size(d));
  const Tensor ids = index.to(kInt64);
  Tensor at = zeros(p.index, {.dtype = kInt64, .device = index.device()});
  for (int64_t j = k; j-- > 0; count *= x.size(batch + j)) {
    const int64_t size = x.size(batch + j);
    const Tensor part = wrap(ids.select(-1, j), size);
    REEL_CHECK(part.numel() == 0 || !any((part < 0) | (part >= size)).item<bool>(), "an index is out of range of ",
               x.shape());
    at = at + part * count;
  }
  if (batch) {
    REEL_CHECK(index.dim() > batch, "batch_dims ", batch);
    Shape shape(std::vector<int64_t>(p.index.size(), 1));
    for (int d = 0; d < batch; ++d) shape[d] = index.size(d);
    at = at + arange(batches, {.device = index.device()}).reshape(shape) * count;
  }
  p.at = at.reshape({-1});
  Shape rows{batches * count};
  for (const int64_t size : p.rest) rows.push_back(size);
  p.rows = x.reshape(rows);
  return p;
}

enum class Scatter { kSet, kAdd, kMul, kMax, kMin };
Scatter scatter_of(const Context& n) {
  const std::initializer_list<std::string_view> names = {"none", "add", "mul", "max", "min"};
  const std::string name = n.choice("reduction", "none", names);
  return static_cast<Scatter>(std::find(names.begin(), names.end(), name) - names.begin());
}
Tensor scatter_by(Scatter how, const Tensor& x, int64_t axis, const Tensor& at, const Tensor& source) {
  switch (how) {
    case Scatter::kSet: return scatter(x, axis, at, source);
    case Scatter::kAdd: return scatter_add(x, axis, at, source);
    case Scatter::kMul: return scatter_reduce(x, axis, at, source, Reduce::kProd);
    case Scatter::kMax: return scatter_reduce(x, axis, at, source, Reduce::kMax);
    case Scatter::kMin: return scatter_reduce(x, axis, at, source, Reduce::kMin);
  }
  return {};
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

// Positions are brought into the axis as ONNX does it: unlike NumPy, a start before its first element is that element,
// also where steps are negative.
Tensor slice_axis(const Tensor& x, int64_t axis, int64_t start, int64_t stop, int64_t step) {
  const int64_t size = x.size(axis);
  REEL_CHECK(step != 0 && step != INT64_MIN, "a step of ", step);
  const auto from_end = [&](int64_t i) { return i < 0 ? std::max(i, -size - 1) + size : std::min(i, size); };
  if (step > 0) return x.slice(axis, std::max<int64_t>(from_end(start), 0), std::max<int64_t>(from_end(stop), 0), step);
  if (size == 0) return x;
  const int64_t first = std::clamp<int64_t>(from_end(start), 0, size - 1), last = std::max<int64_t>(from_end(stop), -1);
  return flip(x, axis).slice(axis, size - 1 - first, std::max(size - 1 - last, int64_t{0}), -step);
}

Run make_slice(const Context& n) {
  const auto starts = n.integers("starts"), ends = n.integers("ends"), axes = n.integers("axes");
  return gives([=](Call& c) {
    const auto input = [&](size_t i, const std::vector<int64_t>& otherwise) {
      return c.has(i) ? c.integers(i) : otherwise;
    };
    const auto from = input(1, starts), to = input(2, ends), steps = input(4, {});
    auto over = input(3, axes);
    REEL_CHECK(from.size() == to.size() && (over.empty() || over.size() == from.size()) &&
                   (steps.empty() || steps.size() == from.size()),
               "starts, ends, axes and steps are ", from.size(), ", ", to.size(), ", ", over.size(), " and ",
               steps.size(), " numbers");
    Tensor y = c[0];
    if (over.empty())
      for (size_t i = 0; i < from.size(); ++i) over.push_back(static_cast<int64_t>(i));
    over = wrap_axes(over, y.dim());
    for (size_t i = 0; i < from.size(); ++i) y = slice_axis(y, over[i], from[i], to[i], steps.empty() ? 1 : steps[i]);
    return y;
  });
}

// Where each element of a padded axis is from.
int64_t source_of(int64_t i, int64_t size, const std::string& mode) {
  if (mode == "edge") return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "wrap") return ((i % size) + size) % size;
  const int64_t period = std::max<int64_t>(2 * (size - 1), 1), j = ((i % period) + period) % period;
  return std::min(j, period - j);
}

Run make_pad(const Context& n) {
  const std::string mode = n.choice("mode", "constant", {"constant", "edge", "reflect", "wrap"});
  const auto pads = n.integers("pads");
  const double value = n.number("value", 0);
  return gives([=](Call& c) {
    Tensor x = c[0];
    const std::vector<int64_t> given = c.has(1) ? c.integers(1) : pads;
    std::vector<int64_t> axes = c.has(3) ? c.integers(3) : std::vector<int64_t>();
    if (!c.has(3))
      for (int64_t d = 0; d < x.dim(); ++d) axes.push_back(d);
    REEL_CHECK(given.size() == 2 * axes.size(), given.size(), " pads for ", axes.size(), " axes");
    axes = wrap_axes(axes, x.dim());
    std::vector<int64_t> amounts(2 * x.dim());
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t axis = axes[i], before = given[i], after = given[i + axes.size()];
      int64_t size = x.size(axis);
      const bool keeps_some = size > 0 && before > -size && after > -size;
      REEL_CHECK((keeps_some || mode == "constant") && !__builtin_add_overflow(size, before, &size) &&
                     !__builtin_add_overflow(size, after, &size),
                 "pads ", before, " and ", after, " of a size of ", x.size(axis));
      check_extent(size);
      amounts[2 * (x.dim() - 1 - axis)] = before, amounts[2 * (x.dim() - 1 - axis) + 1] = after;
      if (mode == "constant") continue;
      if (before == 0 && after == 0) continue;
      std::vector<int64_t> from(size);
      for (int64_t j = 0; j < size; ++j) from[j] = source_of(j - before, x.size(axis), mode);
      x = index_select(x, axis, reel::tensor(from, {.device = x.device()}));
    }
    if (mode != "constant") return x;
    return pad(x, amounts, kConstant, c.has(2) ? c.as_is(2).item() : Scalar(value));
  });
}

Tensor reshape_to(const Tensor& x, const std::vector<int64_t>& to, bool allow_zero) {
  Shape shape(to);
  for (int i = 0; i < shape.size(); ++i)
    if (shape[i] == 0 && !allow_zero) shape[i] = x.size(i);
  return x.reshape(shape);
}

Tensor squeeze_axes(const Tensor& x, std::vector<int64_t> axes) {
  axes = wrap_axes(std::move(axes), x.dim());
  for (const int64_t axis : axes) REEL_CHECK(x.size(axis) == 1, "axis ", axis, " of ", x.shape(), " is not 1");
  std::sort(axes.rbegin(), axes.rend());
  Tensor y = x;
  for (const int64_t axis : axes) y = y.squeeze(axis);
  return y;
}

Tensor unsqueeze_axes(const Tensor& x, std::vector<int64_t> axes) {
  const int64_t rank = x.dim() + static_cast<int64_t>(axes.size());
  axes = wrap_axes(std::move(axes), rank);
  std::sort(axes.begin(), axes.end());
  Tensor y = x;
  for (const int64_t axis : axes) y = y.unsqueeze(axis);
  return y;
}

Run make_split(const Context& n) {
  const int64_t axis = n.integer("axis", 0), count = static_cast<int64_t>(n.node.outputs.size());
  if (n.has("num_outputs")) {
    const int64_t declared = n.integer("num_outputs", 0);
    REEL_CHECK(declared == count, n.node.label(), ": num_outputs is ", declared, " with ", count, " outputs");
    n.require(n.node.inputs.size() < 2 || n.node.inputs[1] < 0, "num_outputs beside the sizes of the parts");
  }
  const bool may_be_uneven = n.opset >= 18;  // the last part is the smaller one
  const auto attribute = n.integers("split");
  return [=](Call& c) {
    const Tensor x = c[0];
    std::vector<int64_t> sizes = c.has(1) ? c.integers(1) : attribute;
    if (sizes.empty()) {
      const int64_t size = x.size(axis), each = (size + count - 1) / count, last = size - each * (count - 1);
      REEL_CHECK(last >= 0 && (may_be_uneven || last == each), "a size of ", size, " in ", count, " parts");
      sizes.assign(static_cast<size_t>(count), each);
      sizes.back() = last;
    }
    REEL_CHECK(static_cast<int64_t>(sizes.size()) == count, sizes.size(), " parts for ", count, " outputs");
    const std::vector<Tensor> parts = split(x, sizes, axis);
    for (size_t i = 0; i < parts.size(); ++i) c.set(i, parts[i]);
  };
}

Run make_compress(const Context& n) {
  return gives([flat = !n.has("axis"), axis = n.integer("axis", 0)](Call& c) {
    return index_select(flat ? ravel(c[0]) : c[0], axis, nonzero(c[1]).reshape({-1}));
  });
}
Run make_constant_of_shape(const Context& n) {
  const Tensor value = n.has("value") ? n.tensor("value") : zeros({1}, {.device = kCPU});
  REEL_CHECK(value.numel() == 1, n.node.label(), ": its value has the shape ", value.shape());
  return gives([number = value.item(), type = value.dtype()](Call& c) {
    return full(Shape(c.integers(0)), number, {.dtype = type, .device = type == kInt64 ? kCPU : c.home});
  });
}
Run make_eye_like(const Context& n) {
  const int64_t k = n.integer("k", 0), type = n.integer("dtype", 0);
  const DType to = type ? dtype_of(type, n.node.label()) : kFloat32;
  return gives([=](Call& c) {
    const Tensor x = c[0];
    REEL_CHECK(x.dim() == 2, "expected a matrix, got shape ", x.shape());
    const TensorOptions on{.device = x.device()};
    return (arange(x.size(0), on).unsqueeze(1) + k == arange(x.size(1), on)).to(type ? to : x.dtype());
  });
}
Run make_scatter(const Context& n) {
  return gives([how = scatter_of(n), axis = n.integer("axis", 0)](Call& c) {
    const Tensor x = c[0], index = c[1], source = c[2];
    REEL_CHECK(index.shape() == source.shape(), "updates of shape ", source.shape(), " for indices of shape ",
               index.shape());
    return scatter_by(how, x, axis, wrap(index, x.size(axis)), source);
  });
}
Run make_scatter_nd(const Context& n) {
  return gives([how = scatter_of(n)](Call& c) {
    const Tensor x = c[0], source = c[2];
    const Positions p = positions(x, c[1], 0);
    Shape shape{p.at.numel()}, ids{p.at.numel()};
    Shape expected = p.index;
    for (const int64_t size : p.rest) shape.push_back(size), ids.push_back(1), expected.push_back(size);
    REEL_CHECK(source.shape() == expected, "updates of shape ", source.shape(), ", not ", expected);
    const Tensor updates = source.reshape(shape), at = p.at.reshape(ids).expand(shape);
    return scatter_by(how, p.rows, 0, at, updates).reshape(x.shape());
  });
}
Run make_shape(const Context& n) {
  return gives([start = n.integer("start", 0), end = n.integer("end", INT64_MAX)](Call& c) {
    const Shape& shape = c.as_is(0).shape();
    const std::vector<int64_t> sizes(shape.begin(), shape.end());
    return slice_axis(reel::tensor(sizes, {.device = kCPU}), 0, start, end, 1);
  });
}
Run make_squeeze(const Context& n) {
  return gives([axes = n.integers("axes"), given = n.has("axes")](Call& c) {
    const Tensor& x = c.as_is(0);
    return c.has(1) ? squeeze_axes(x, c.integers(1)) : given ? squeeze_axes(x, axes) : x.squeeze();
  });
}
Run make_transpose(const Context& n) {
  return gives([order = n.integers("perm")](Call& c) {
    const Tensor& x = c.as_is(0);
    Shape dims(order);
    if (order.empty())
      for (int64_t d = x.dim(); d-- > 0;) dims.push_back(d);
    return x.permute(dims);
  });
}
Run make_unsqueeze(const Context& n) {
  return gives(
      [axes = n.integers("axes")](Call& c) { return unsqueeze_axes(c.as_is(0), c.has(1) ? c.integers(1) : axes); });
}

Tensor flatten_at(Call& c, int64_t axis) {
  const Tensor x = c[0];
  const int64_t end = axis == x.dim() ? axis : wrap_axis(axis, x.dim());
  int64_t rows = 1, columns = 1;
  for (int64_t d = 0; d < x.dim(); ++d) (d < end ? rows : columns) *= x.size(d);
  return x.reshape({rows, columns});
}
Tensor gather_elements(Call& c, int64_t axis) {
  const Tensor x = c[0];
  return gather(x, axis, wrap(c[1], x.size(axis)));
}
Tensor gather_nd(Call& c, int64_t batch) {
  const Positions p = positions(c[0], c[1], batch);
  Shape shape = p.index;
  for (const int64_t size : p.rest) shape.push_back(size);
  return index_select(p.rows, 0, p.at).reshape(shape);
}
Tensor one_hot_at(Call& c, int64_t axis) {
  const int64_t depth = c.as_is(1).item<int64_t>();
  const Tensor ids = wrap(c[0], depth), values = c[2];
  REEL_CHECK(values.numel() == 2, "the values have the shape ", values.shape());
  const int64_t at = wrap_axis(axis, ids.dim() + 1);
  Shape shape(std::vector<int64_t>(ids.dim() + 1, 1));
  shape[static_cast<int>(at)] = depth;
  const Tensor hot = ids.unsqueeze(at) == arange(depth, {.device = ids.device()}).reshape(shape);
  return where(hot, values.select(0, 1), values.select(0, 0));
}
Tensor triangle(Call& c, int64_t upper) {
  const int64_t k = c.has(1) ? c.as_is(1).item<int64_t>() : 0;
  return upper ? triu(c[0], k) : tril(c[0], k);
}
Tensor range(Call& c) {
  const Scalar step = c.as_is(2).item();
  REEL_CHECK(step.to<double>() != 0, "the step is 0");
  return arange(c.as_is(0).item(), c.as_is(1).item(), step, c.as_is(0).options());
}

struct Plain {
  const char* type;
  int inputs;
  Tensor (*f)(Call&);
};
constexpr Plain kPlain[] = {
    {"Expand", 2, [](Call& c) { return c[0].expand(broadcast_shapes(c[0].shape(), Shape(c.integers(1)), "Expand")); }},
    {"NonZero", 1, [](Call& c) { return nonzero(c[0]).t(); }},
    {"Range", 3, range},
    {"Size", 1, [](Call& c) { return reel::tensor(c.as_is(0).numel(), {.dtype = kInt64, .device = kCPU}); }},
    {"Tile", 2, [](Call& c) { return tile(c[0], Shape(c.integers(1))); }},
    {"Where", 3, [](Call& c) { return where(c[0], c[1], c[2]); }}};
Run make_plain(const Context& n) { return gives(entry(kPlain, n).f); }

// With one integer attribute.
struct Placed {
  const char* type;
  int min_inputs, max_inputs;
  const char* attribute;
  int64_t otherwise;
  Tensor (*f)(Call&, int64_t);
};
constexpr Placed kPlaced[] = {
    {"Concat", 1, -1, "axis", 1, [](Call& c, int64_t axis) { return cat(c.inputs(), axis); }},
    {"Flatten", 1, 1, "axis", 1, flatten_at},
    {"Gather", 2, 2, "axis", 0, [](Call& c, int64_t axis) { return gather_slices(c[0], c[1], axis); }},
    {"GatherElements", 2, 2, "axis", 0, gather_elements},
    {"GatherND", 2, 2, "batch_dims", 0, gather_nd},
    {"Mod", 2, 2, "fmod", 0, [](Call& c, int64_t as_in_c) { return (as_in_c ? fmod : remainder)(c[0], c[1]); }},
    {"OneHot", 3, 3, "axis", -1, one_hot_at},
    {"Reshape", 2, 2, "allowzero", 0,
     [](Call& c, int64_t zero) { return reshape_to(c.as_is(0), c.integers(1), zero); }},
    {"Trilu", 1, 2, "upper", 1, triangle}};
Run make_placed(const Context& n) {
  const Placed& op = entry(kPlaced, n);
  const int64_t number =
      n.node.op == "Mod" ? n.flag(op.attribute, op.otherwise) : n.integer(op.attribute, op.otherwise);
  return gives([f = op.f, number](Call& c) { return f(c, number); });
}

}  // namespace

void add_positions(OpTable& table) {
  table.insert({{"Compress", {2, 2, make_compress}},
                {"ConstantOfShape", {1, 1, make_constant_of_shape}},
                {"EyeLike", {1, 1, make_eye_like}},
                {"Pad", {1, 4, make_pad}},
                {"Scatter", {3, 3, make_scatter}},
                {"ScatterElements", {3, 3, make_scatter}},
                {"ScatterND", {3, 3, make_scatter_nd}},
                {"Shape", {1, 1, make_shape}},
                {"Slice", {1, 5, make_slice}},
                {"Split", {1, 2, make_split}},
                {"Squeeze", {1, 2, make_squeeze}},
                {"Transpose", {1, 1, make_transpose}},
                {"Unsqueeze", {1, 2, make_unsqueeze}}});
  for (const Plain& op : kPlain) table[op.type] = {op.inputs, op.inputs, make_plain};
  for (const Placed& op : kPlaced) table[op.type] = {op.min_inputs, op.max_inputs, make_placed};
}

}  // namespace reel::onnx
