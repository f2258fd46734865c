#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/base/lazy.h"
#include "lib/onnx/writer/emitter.h"

// Ops that move elements, or make them.
namespace reel::onnx::writer {
namespace {

bool all_equal(const Number& n) {
  return std::count(n.begin(), n.end(), n[0]) == static_cast<std::ptrdiff_t>(n.size());
}

void identity(Emitter& e) { e.is("Identity", {e.in(0)}); }
void to(Emitter& e) { e.set(e.cast(e.in(0), e.dtype(0), e.result().dtype())); }

/// Sizes that ONNX fills in itself are left to it: 0 for the input's, -1 for what remains.
void reshape(Emitter& e) {
  std::vector<Number> shape = e.result_sizes();
  int unknown = -1, dynamic = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool same = static_cast<int>(d) < e.rank(0) && e.size(0, static_cast<int64_t>(d)) == shape[d];
    if (all_equal(shape[d])) continue;
    if (same)
      shape[d].assign(shape[d].size(), 0);
    else
      unknown = static_cast<int>(d), ++dynamic;
  }
  // One is enough, where all others are known and not 0.
  const bool empty = e.result().numel() == 0;
  if (dynamic == 1 && !empty) shape[static_cast<size_t>(unknown)].assign(shape[0].size(), -1);
  if (empty && dynamic == 0) return e.is("Reshape", {e.in(0), e.sizes(shape, "shape")}, {{"allowzero", 1}});
  e.is("Reshape", {e.in(0), e.sizes(shape, "shape")});
}

void expand(Emitter& e) { e.set(e.expanded(e.in(0), e.result_sizes())); }

std::vector<int64_t> wrapped(std::vector<int64_t> dims, int rank) {
  for (int64_t& d : dims)
    if (d < 0) d += rank;
  return dims;
}
void permute(Emitter& e) {
  if (!e.rank(0)) return identity(e);
  e.set(e.transposed(e.in(0), wrapped(e.list("dims"), e.rank(0))));
}

/// Writes positions as the caller wrote them, which ONNX understands as reel does: negative ones count from the end,
/// and what lies beyond an end is clamped to it.
void slice(Emitter& e) {
  const int64_t dim = e.integer("dim");
  const Number stop = e.number("stop");
  const Name end = stop == e.size(0, dim) && !all_equal(stop) ? e.ints({std::numeric_limits<int64_t>::max()})
                                                              : e.sizes({stop}, "stop");
  e.is("Slice", {e.in(0), e.sizes({e.number("start")}, "start"), end, e.ints({dim}), e.ints({e.integer("step")})});
}

/// Writes a number as a 0-d tensor.
Name number(Emitter& e, const char* name) {
  const Number n = e.number(name);
  return all_equal(n) ? e.constant(reel::full({}, n[0], {.dtype = kInt64, .device = kCPU}))
                      : e.squeezed(e.sizes({n}, name), {0});
}

void select(Emitter& e) { e.is("Gather", {e.in(0), number(e, "index")}, {{"axis", e.integer("dim")}}); }

void flip(Emitter& e) {
  if (!e.rank(0)) return identity(e);
  const std::vector<int64_t> dims = wrapped(e.list("dims"), e.rank(0));
  const auto times = [&](int64_t n) { return e.ints(std::vector<int64_t>(dims.size(), n)); };
  e.is("Slice", {e.in(0), times(-1), times(std::numeric_limits<int64_t>::min()), e.ints(dims), times(-1)});
}

/// Joins the elements from size - shift mod size on and those before. The result of Mod has the sign of the divisor.
void roll(Emitter& e) {
  const int64_t dim = e.integer("dim");
  const Name size = e.sizes({e.size(0, dim)}, "size"), shift = e.sizes({e.number("shift")}, "shift");
  const Name begin = e.node("Sub", {size, e.node("Mod", {shift, size})});
  const Name last = e.node("Slice", {e.in(0), begin, e.ints({std::numeric_limits<int64_t>::max()}), e.ints({dim})}),
             first = e.node("Slice", {e.in(0), e.ints({0}), begin, e.ints({dim})});
  e.is("Concat", {last, first}, {{"axis", dim}});
}

void cat(Emitter& e) {
  int64_t dim = e.integer("dim");
  if (dim < 0) dim += e.rank(0);
  Names parts;
  for (size_t i = 0; i < e.count(); ++i) parts.push_back(e.cast(e.in(i), e.dtype(i), e.result().dtype()));
  e.is("Concat", parts, {{"axis", dim}});
}
void stack(Emitter& e) {
  const int64_t dim = e.integer("dim");
  Names parts;
  for (size_t i = 0; i < e.count(); ++i)
    parts.push_back(e.unsqueezed(e.cast(e.in(i), e.dtype(i), e.result().dtype()), {dim}));
  e.is("Concat", parts, {{"axis", dim}});
}

void split(Emitter& e) {
  std::vector<Number> lengths;
  for (size_t k = 0; k < e.results(); ++k) lengths.push_back(e.result_size(0, k));
  const Names parts = e.nodes("Split", {e.in(0), e.sizes(lengths, "sizes")}, e.results(), {{"axis", 0}});
  for (size_t k = 0; k < parts.size(); ++k) e.set(parts[k], k);
}
void unbind(Emitter& e) {
  for (size_t k = 0; k < e.results(); ++k)
    e.set(e.node("Gather", {e.in(0), e.constant(full({}, static_cast<int64_t>(k), {.device = kCPU}))}, {{"axis", 0}}),
          k);
}

void pad(Emitter& e) {
  const std::vector<int64_t> before = e.list("before");
  std::vector<Number> amounts;
  for (const int64_t n : before) amounts.emplace_back(e.size(0, 0).size(), n);
  for (int d = 0; d < e.rank(0); ++d) {
    Number after = e.result_size(d);
    const Number size = e.size(0, d);
    for (size_t r = 0; r < after.size(); ++r) after[r] -= size[r] + before[static_cast<size_t>(d)];
    amounts.push_back(after);
  }
  const DType dtype = e.dtype(0), as = dtype == kBool ? kUInt8 : dtype;
  e.set(e.cast(e.node("Pad", {e.cast(e.in(0), dtype, as), e.sizes(amounts, "pads"), e.scalar(e.real("value"), as)}), as,
               dtype));
}

/// Elements a constant distance apart, in the dimensions row and column.
void diagonal(Emitter& e) {
  const int64_t row = e.integer("row"), column = e.integer("column"), offset = e.integer("offset");
  const int rank = e.rank(0);
  for (const int64_t d : {row, column})
    if (!all_equal(e.size(0, d))) e.fail("the diagonal of dimensions that are dynamic");
  const int64_t columns = e.shape(0)[static_cast<int>(column)], count = e.result().size(-1);
  std::vector<int64_t> order, at;
  for (int64_t d = 0; d < rank; ++d)
    if (d != row && d != column) order.push_back(d);
  order.push_back(row), order.push_back(column);
  const int64_t first = offset < 0 ? -offset * columns : offset;
  for (int64_t i = 0; i < count; ++i) at.push_back(first + i * (columns + 1));
  std::vector<int64_t> flat(static_cast<size_t>(rank) - 2, 0);
  flat.push_back(-1);
  if (e.tensor(0).numel() == 0) e.fail("of an empty tensor");
  e.is("Gather", {e.reshaped(e.transposed(e.in(0), order), flat), e.ints(at)}, {{"axis", rank - 2}});
}

void full(Emitter& e) { e.set(e.expanded(e.scalar(e.real("value"), e.result().dtype()), e.result_sizes())); }

void arange(Emitter& e) {
  const Name range = e.node("Range", {number(e, "start"), number(e, "end"), number(e, "step")});
  e.set(e.cast(range, kInt64, e.result().dtype()));
}

/// A value that takes the place of another one: of its shape and type.
void assign(Emitter& e) {
  const Name x = e.cast(e.in(0), e.dtype(0), e.result().dtype());
  if (e.shape(0) == e.result().shape()) return e.is("Identity", {x});
  e.set(e.expanded(x, e.result_sizes()));
}

void select_scatter(Emitter& e) {
  int64_t dim = e.integer("dim");
  if (dim < 0) dim += e.rank(0);
  const Number size = e.size(0, dim);
  if (!all_equal(size)) e.fail("into a dimension that is dynamic");
  const int64_t index = e.integer("index"), at = index < 0 ? index + size[0] : index;
  const Name x = e.in(0), part = e.cast(e.in(1), e.dtype(1), e.dtype(0));
  Shape row = e.shape(0);
  row.erase(static_cast<int>(dim));
  if (e.shape(1) != row) e.fail("a source that is broadcast");
  e.is("Concat", {e.sliced(x, dim, 0, at), e.unsqueezed(part, {dim}), e.sliced(x, dim, at + 1, size[0])},
       {{"axis", dim}});
}
void slice_scatter(Emitter& e) {
  int64_t dim = e.integer("dim");
  if (dim < 0) dim += e.rank(0);
  const Number size = e.size(0, dim);
  if (!all_equal(size) || e.integer("step") != 1) e.fail("into a dimension that is dynamic, or with a step");
  const auto bound = [&](const char* name) {
    const int64_t at = e.integer(name);
    return std::clamp<int64_t>(at < 0 ? at + size[0] : at, 0, size[0]);
  };
  const int64_t from = bound("start"), to = std::max(from, bound("stop"));
  Shape part = e.shape(0);
  part[static_cast<int>(dim)] = to - from;
  if (e.shape(1) != part) e.fail("a source that is broadcast");
  const Name x = e.in(0);
  e.is("Concat", {e.sliced(x, dim, 0, from), e.cast(e.in(1), e.dtype(1), e.dtype(0)), e.sliced(x, dim, to, size[0])},
       {{"axis", dim}});
}

}  // namespace

const EmitTable& shape_ops() {
  static constinit Lazy<EmitTable> table;
  return table.get([] {
    return EmitTable{
        {"clone", identity},
        {"to", to},
        {"reshape", reshape},
        {"expand", expand},
        {"permute", permute},
        {"slice", slice},
        {"select", select},
        {"flip", flip},
        {"roll", roll},
        {"cat", cat},
        {"stack", stack},
        {"split", split},
        {"unbind", unbind},
        {"pad", pad},
        {"full", full},
        {"arange", arange},
        {"assign", assign},
        {"diagonal", diagonal},
        {"select_scatter", select_scatter},
        {"slice_scatter", slice_scatter},
    };
  });
}

}  // namespace reel::onnx::writer
