#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "lib/ops/internal.h"
#include "lib/ops/joined_call.h"
#include "lib/ops/rows.h"

namespace reel {
namespace {

// ---- parts of a result ----------------------------------------------------------------------------------------------

/// Writes the tensors into each of `rows` rows of y, one after the other; `strides` are those of a tensor's place
/// there.
void join(std::span<const Tensor> tensors, const Tensor& y, int64_t rows, const Strides& strides) {
  detail::Joiner joiner(y, rows, strides);
  for (const Tensor& x : tensors) joiner.add(view_of(x));
  joiner.finish();
}

/// How many indices there are to the dimensions before dim.
int64_t rows_before(const Shape& shape, int dim) {
  return std::accumulate(shape.begin(), shape.begin() + dim, int64_t{1}, std::multiplies<>());
}

/// Up to this many inputs are recorded without the heap.
constexpr size_t kFew = 4;

template <class Rule>
void record_join(const char* name, const Tensor& y, std::span<const Tensor> tensors, Rule rule) {
  if (tensors.size() > kFew) return record(name, {&y, 1}, tensors, std::move(rule));
  const Tensor *out = &y, *ins[kFew];
  for (size_t i = 0; i < tensors.size(); ++i) ins[i] = &tensors[i];
  record_always(name, {&out, 1}, {ins, tensors.size()}, std::move(rule));
}

template <class Sizes>
void record_cat(const Tensor& y, std::span<const Tensor> tensors, int dim, Sizes sizes) {
  const int count = static_cast<int>(tensors.size());
  for (int i = 0; i < count; ++i) sizes[i] = view_of(tensors[i]).shape[dim];
  record_join("cat", y, tensors, [dim, count, sizes = std::move(sizes)](Backward& back) {
    int64_t start = 0;
    for (int i = 0; i < count; start += sizes[i++])
      if (back.needs(i)) back.set(i, back.grad().narrow(dim, start, sizes[i]));
  });
}

/// The dtype of the joined tensor, after a look at all that is joined.
DType joined_type(const char* op, std::span<const Tensor> tensors) {
  REEL_CHECK(!tensors.empty(), op, ": no tensors");
  const View& first = view_of(tensors[0], op);
  DType dtype = first.dtype;
  for (const Tensor& x : tensors) {
    const View& view = view_of(x, op);
    REEL_CHECK(x.device() == tensors[0].device(), op, ": tensors on ", tensors[0].device(), " and ", x.device());
    if (view.dtype != dtype) dtype = promote_types(dtype, view.dtype);
  }
  return dtype;
}

/// PyTorch's oldest empty tensor, which can be joined to anything.
bool is_blank(const Tensor& x) { return view_of(x).shape.size() == 1 && view_of(x).numel == 0; }

// ---- calls that are made together -----------------------------------------------------------------------------------

/// Returns how many rows the tensors have in all if they are rows of one dtype and shape; otherwise nothing.
std::optional<int64_t> rows_of_all(std::span<const Tensor> tensors) {
  const View& first = view_of(tensors[0]);
  if (first.shape.empty()) return {};
  int64_t rows = 0;
  for (const Tensor& x : tensors) {
    const View& view = view_of(x);
    Shape shape = view.shape;
    if (shape.empty() || view.dtype != first.dtype || __builtin_add_overflow(rows, shape[0], &rows)) return {};
    shape[0] = first.shape[0];
    if (shape != first.shape) return {};
  }
  return rows;
}

/// A JoinedCat joins tensors along their first dimension. Those of several calls are copied into one tensor, of whose
/// rows each call records its own.
class JoinedCat final : public JoinedCall {
 public:
  JoinedCat(Op op, std::span<const Tensor> tensors, int64_t rows_in_all)
      : JoinedCall(&op.info(), typeid(JoinedCat)), tensors_(tensors) {
    const auto recorded = std::find_if(tensors.begin(), tensors.end(), [](const Tensor& x) { return recording(x); });
    add(recorded == tensors.end() ? &tensors[0] : &*recorded);  // it stands for all, which differ in nothing else
    rows = rows_in_all;
  }
  bool same_arguments(const Call&) const override { return true; }
  std::string label() const override { return "cat"; }

  void run_all(RowGroup*) override {
    std::vector<int64_t> counts;
    Shape shape = view_of(tensors_[0]).shape;
    shape[0] = 0;
    for_each_call(*this, [&](JoinedCat& own) {
      counts.push_back(own.rows);
      REEL_CHECK(!__builtin_add_overflow(shape[0], own.rows, &shape[0]), "cat: too many elements");
    });
    const Tensor y = make_tensor(shape, view_of(tensors_[0]).dtype, tensors_[0].device());
    detail::Joiner joiner(y, 1, view_of(y).strides);
    for_each_call(*this, [&](JoinedCat& own) {
      for (const Tensor& x : own.tensors_) joiner.add(view_of(x));
    });
    joiner.finish();
    std::vector<Tensor> parts = detail::scatter_rows(y, counts);
    size_t at = 0;
    for_each_call(*this, [&](JoinedCat& own) {
      own.result = std::move(parts[at++]);
      if (recording(own.tensors_)) detail::record_whole("cat", own.result, own.tensors_);
    });
  }

  Tensor result;

 private:
  const std::span<const Tensor> tensors_;
};

}  // namespace

// ---- cat, stack and their opposites ---------------------------------------------------------------------------------

Tensor cat(TensorList tensors, int64_t dim) {
  const DType dtype = joined_type("cat", tensors);
  if (std::any_of(tensors.begin(), tensors.end(), is_blank)) {
    const auto other = std::find_if_not(tensors.begin(), tensors.end(), is_blank);
    if (other != tensors.end() && other->dim() > 1) {  // blanks become parts of size 0
      Shape part = other->shape();
      part[wrap_dim(dim, part.size(), "cat")] = 0;
      std::vector<Tensor> parts(tensors.begin(), tensors.end());
      for (Tensor& x : parts)
        if (is_blank(x)) x = x.reshape(part);
      return cat(parts, dim);
    }
  }
  constexpr Op op = "cat";
  std::optional<detail::NoSuspendGuard> alone;
  if (JoinedCall::may_wait(tensors[0]))
    if (const std::optional<int64_t> rows = rows_of_all(tensors); rows && wrap_dim(dim, tensors[0].dim(), op) == 0)
      if (JoinedCat joined(op, tensors, *rows); joined.wait(alone)) return joined.result;
  return call(op, tensors, {{"dim", dim}}, [&](std::span<const Tensor> tensors) {
    Shape shape = view_of(tensors[0]).shape;
    REEL_CHECK(!shape.empty(), "cat: 0-d tensors cannot be joined; stack them");
    const int d = wrap_dim(dim, shape.size(), "cat");
    for (size_t i = 1; i < tensors.size(); ++i) {
      const Shape& other = view_of(tensors[i]).shape;
      bool fits = other.size() == shape.size();
      for (int e = 0; fits && e < shape.size(); ++e) fits = e == d || other[e] == shape[e];
      REEL_CHECK(fits, "cat: shapes ", tensors[0].shape(), " and ", other, " differ in more than dimension ", d);
      REEL_CHECK(!__builtin_add_overflow(shape[d], other[d], &shape[d]), "cat: too many elements");
    }
    const Tensor y = make_tensor(shape, dtype, tensors[0].device());
    join(tensors, y, rows_before(shape, d), view_of(y).strides);
    if (recording(tensors) && is_floating_point(dtype)) {
      if (d == 0)
        detail::record_whole("cat", y, tensors);
      else if (tensors.size() <= kFew)
        record_cat(y, tensors, d, std::array<int64_t, kFew>());
      else
        record_cat(y, tensors, d, std::vector<int64_t>(tensors.size()));
    }
    return y;
  });
}

Tensor stack(TensorList tensors, int64_t dim) {
  const DType dtype = joined_type("stack", tensors);
  const Shape& each = view_of(tensors[0]).shape;
  for (const Tensor& x : tensors)
    REEL_CHECK(view_of(x).shape == each, "stack: shapes ", each, " and ", x.shape(), " differ");
  Shape shape = each;
  const int d = wrap_dim(dim, each.size() + 1, "stack");
  return call("stack", tensors, {{"dim", d}}, [&](std::span<const Tensor> tensors) {
    shape.insert(d, static_cast<int64_t>(tensors.size()));
    const Tensor y = make_tensor(shape, dtype, tensors[0].device());
    Strides strides = view_of(y).strides;
    strides.erase(d);
    join(tensors, y, rows_before(shape, d), strides);
    if (!recording(tensors) || !is_floating_point(dtype)) return y;
    if (d == 0)
      detail::record_whole("stack", y, tensors, true);
    else
      record_join("stack", y, tensors, [d, count = static_cast<int>(tensors.size())](Backward& back) {
        for (int i = 0; i < count; ++i)
          if (back.needs(i)) back.set(i, back.grad().select(d, i));
      });
    return y;
  });
}

namespace {

/// Sizes as a Shape is written; there may be more of them than a Shape holds.
std::string listed(const std::vector<int64_t>& sizes) {
  if (sizes.size() <= kMaxDims) return Shape(sizes).to_string();
  const std::string first = Shape(std::span(sizes).first(kMaxDims)).to_string();
  return first.substr(0, first.size() - 1) + ", … " + std::to_string(sizes.size()) + " in all]";
}

/// The parts of x of these sizes, which add up.
std::vector<Tensor> split_as(const char* op, const Tensor& x, const std::vector<int64_t>& sizes, int d) {
  if (d == 0) return detail::parts_of(op, x, sizes.size(), {.list = sizes.data()});
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  int64_t start = 0;
  for (const int64_t size : sizes) parts.push_back(x.narrow(d, start, size)), start += size;
  return parts;
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const View& view = view_of(x, "split");
  const int d = wrap_dim(dim, view.shape.size(), "split");
  REEL_CHECK(!view.shape.empty(), "split: a 0-d tensor cannot be split");
  int64_t left = view.shape[d];
  for (const int64_t size : sizes) {
    REEL_CHECK(size >= 0 && size <= left, "split: sizes ", listed(sizes), " do not add up to ", view.shape[d],
               ", the size of dimension ", d);
    left -= size;
  }
  REEL_CHECK(left == 0, "split: the sizes add up to ", view.shape[d] - left, ", but dimension ", d, " has size ",
             view.shape[d]);
  return split_as("split", x, sizes, d);
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const View& view = view_of(x, "split");
  const int d = wrap_dim(dim, view.shape.size(), "split");
  REEL_CHECK(!view.shape.empty(), "split: a 0-d tensor cannot be split");
  REEL_CHECK(size > 0 || (size == 0 && view.shape[d] == 0), "split: the size must be positive, got ", size);
  if (d == 0) {
    const int64_t count = size ? std::max<int64_t>((view.shape[0] - 1) / size + 1, 1) : 1;
    return detail::parts_of("split", x, static_cast<size_t>(count), {.each = size});
  }
  std::vector<Tensor> parts;
  int64_t start = 0;
  do {
    const int64_t length = std::min(size, view.shape[d] - start);
    parts.push_back(x.narrow(d, start, length));
    start += length;
  } while (start < view.shape[d]);
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  REEL_CHECK(chunks > 0, "chunk: the number of chunks must be positive, got ", chunks);
  const int64_t size = x.size(dim);
  if (size == 0) return split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), dim);
  return split(x, std::max<int64_t>(1, size / chunks + (size % chunks != 0)), dim);
}

std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  const Shape& shape = view_of(x, "tensor_split").shape;
  const int d = wrap_dim(dim, shape.size(), "tensor_split");
  REEL_CHECK(!shape.empty(), "tensor_split: a 0-d tensor cannot be split");
  REEL_CHECK(sections > 0, "tensor_split: the number of sections must be positive, got ", sections);
  const int64_t size = shape[d] / sections, larger = shape[d] % sections;
  std::vector<int64_t> sizes(static_cast<size_t>(sections), size);
  std::fill_n(sizes.begin(), larger, size + 1);
  return split_as("tensor_split", x, sizes, d);
}

std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& starts, int64_t dim) {
  const Shape& shape = view_of(x, "tensor_split").shape;
  const int d = wrap_dim(dim, shape.size(), "tensor_split");
  REEL_CHECK(!shape.empty(), "tensor_split: a 0-d tensor cannot be split");
  std::vector<Tensor> parts;
  int64_t from = 0;
  for (const int64_t start : starts) parts.push_back(x.slice(d, from, start)), from = start;
  parts.push_back(x.slice(d, from));
  return parts;
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  const Shape& shape = view_of(x, "unbind").shape;
  const int d = wrap_dim(dim, shape.size(), "unbind");
  REEL_CHECK(!shape.empty(), "unbind: a 0-d tensor has no parts");
  if (d == 0) return detail::parts_of("unbind", x, static_cast<size_t>(shape[0]), {.each = 1}, true);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < shape[d]; ++i) parts.push_back(x.select(d, i));
  return parts;
}

// ---- stacks, by the number of dimensions ----------------------------------------------------------------------------

namespace {

template <class F>
std::vector<Tensor> each(TensorList tensors, F f) {
  std::vector<Tensor> results;
  for (const Tensor& x : tensors) results.push_back(f(x));
  return results;
}

}  // namespace

Tensor hstack(TensorList tensors) {
  REEL_CHECK(!tensors.empty(), "hstack: no tensors");
  const std::vector<Tensor> parts = each(tensors, atleast_1d);
  return cat(parts, parts[0].dim() == 1 ? 0 : 1);
}
Tensor vstack(TensorList tensors) {
  REEL_CHECK(!tensors.empty(), "vstack: no tensors");
  return cat(each(tensors, atleast_2d), 0);
}
Tensor dstack(TensorList tensors) {
  REEL_CHECK(!tensors.empty(), "dstack: no tensors");
  return cat(each(tensors, atleast_3d), 2);
}
Tensor column_stack(TensorList tensors) {
  REEL_CHECK(!tensors.empty(), "column_stack: no tensors");
  return cat(each(tensors, [](const Tensor& x) { return x.dim() < 2 ? x.reshape({x.numel(), 1}) : x; }), 1);
}

namespace {

/// Returns a matrix [rows, columns] of zeros but for blocks, each of which is below and right of the one before.
Tensor join_diagonally(const std::vector<Tensor>& blocks, int64_t rows, int64_t columns, DType dtype) {
  const Tensor y = make_tensor({rows, columns}, dtype, blocks[0].device());
  const KernelTable& kernels = kernels_of(y);
  const auto place = [&](int64_t top, int64_t left, int64_t height, int64_t width) {
    char* const at = view_of(y).as<char>() + (top * columns + left) * size_of(dtype);
    return make_view(at, {height, width}, {columns, 1}, dtype);
  };
  const auto clear = [&](const View& part) {
    if (part.numel) kernels.fill(part, 0);
  };
  std::vector<std::array<int64_t, 2>> corners;
  int64_t top = 0, left = 0;
  for (const Tensor& block : blocks) {
    const int64_t height = block.size(0), width = block.size(1), right = left + width;
    clear(place(top, 0, height, left));
    if (block.numel()) kernels.copy(view_of(block), place(top, left, height, width));
    clear(place(top, right, height, columns - right));
    corners.push_back({top, left});
    top += height, left = right;
  }
  if (recording(blocks) && is_floating_point(dtype))
    record_join("block_diag", y, blocks, [corners, rows, columns](Backward& back) {
      const int count = static_cast<int>(corners.size());
      for (int i = 0; i < count; ++i) {
        if (!back.needs(i)) continue;
        const auto [top, left] = corners[i];
        const auto [below, right] = i + 1 < count ? corners[i + 1] : std::array{rows, columns};
        back.set(i, back.grad().narrow(0, top, below - top).narrow(1, left, right - left));
      }
    });
  return y;
}

}  // namespace

Tensor block_diag(TensorList tensors) {
  REEL_CHECK(!tensors.empty(), "block_diag: no tensors");
  const DType dtype = joined_type("block_diag", tensors);
  int64_t rows = 0, columns = 0;
  for (const Tensor& x : tensors) {
    REEL_CHECK(x.dim() <= 2, "block_diag: expected matrices, got shape ", x.shape());
    const bool fits = !__builtin_add_overflow(rows, atleast_2d(x).size(0), &rows) &&
                      !__builtin_add_overflow(columns, atleast_2d(x).size(1), &columns);
    REEL_CHECK(fits, "block_diag: too many elements");
  }
  const std::vector<Tensor> blocks = each(tensors, atleast_2d);
  if (!Op("cat").concerns(op_modes)) return join_diagonally(blocks, rows, columns, dtype);
  std::vector<Tensor> bands;
  int64_t left = 0;
  for (const Tensor& block : blocks) {
    const auto gap = [&](int64_t width) {
      return zeros({block.size(0), width}, {.dtype = dtype, .device = block.device()});
    };
    const int64_t right = columns - left - block.size(1);
    bands.push_back(cat({gap(left), block, gap(right)}, 1));
    left += block.size(1);
  }
  return cat(bands, 0);
}

}  // namespace reel
