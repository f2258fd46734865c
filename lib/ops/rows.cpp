#include "lib/ops/rows.h"

#include <algorithm>
#include <optional>

#include "lib/autograd/engine.h"
#include "lib/ops/internal.h"

namespace reel {
namespace {

constexpr size_t kMaxOutputs = UINT16_MAX;  // of a node

// ---- views of consecutive rows --------------------------------------------------------------------------------------

/// Makes views of consecutive parts of x. Their references to its storage and base are counted at once.
class PartViews {
 public:
  /// For at most `count` parts; `in_place` is for those made while recording is on. With drop_dim, parts of one row
  /// lose the first dimension.
  PartViews(const Tensor& x, size_t count, bool drop_dim, InPlace in_place)
      : unused_(count), drop_dim_(drop_dim), in_place_(in_place) {
    TensorImpl* const source = TensorImpl::of(x);
    if (grad_mode) {
      base_ = source->base ? source->base : source;
      history_version_ = base_->history_version;
      if (source->in_place >= InPlace::kAliasesInput) in_place_ = source->in_place;
    } else {
      in_place_ = unrecorded_view(source);
    }
    storage_ = source->storage;
    part_ = source->view;
    const int64_t rows = part_.shape[0];
    row_numel_ = rows ? part_.numel / rows : 0;
    row_bytes_ = part_.strides[0] * size_of(part_.dtype);
    if (drop_dim) part_.shape.erase(0), part_.strides.erase(0);
    storage_->refs.fetch_add(static_cast<uint32_t>(count), std::memory_order_relaxed);
    if (base_) base_->refs.fetch_add(count, std::memory_order_relaxed);
  }
  PartViews(const PartViews&) = delete;
  PartViews& operator=(const PartViews&) = delete;
  ~PartViews() {  // these references are never the last ones: x has its own
    storage_->refs.fetch_sub(static_cast<uint32_t>(unused_), std::memory_order_relaxed);
    if (base_) base_->refs.fetch_sub(unused_, std::memory_order_relaxed);
  }

  /// The next part, of so many rows.
  Tensor next(int64_t rows) {
    TensorImpl* const impl = TensorImpl::make();
    impl->storage = storage_, impl->base = base_, --unused_;
    impl->history_version = history_version_;
    impl->in_place = in_place_;
    part_.numel = rows * row_numel_;
    if (!drop_dim_) part_.shape[0] = rows;
    impl->view = part_;
    if (!part_.contiguous) impl->view.contiguous = part_.numel == 0 || is_contiguous(part_.shape, part_.strides);
    skip(rows);
    return TensorImpl::wrap(impl);
  }
  void skip(int64_t rows) { part_.data = part_.as<char>() + rows * row_bytes_; }

 private:
  Storage* storage_;
  TensorImpl* base_ = nullptr;
  size_t unused_;
  bool drop_dim_;
  InPlace in_place_;
  uint32_t history_version_ = 0;
  int64_t row_numel_, row_bytes_;
  View part_;
};

/// Do a view's elements lie row-major from `at` on?
bool lies_at(const View& view, const char* at) { return view.contiguous && view.as<char>() == at; }

// ---- from a whole to parts ------------------------------------------------------------------------------------------

/// Says which results of which calls of a group parts are, if they are a group's: those of call `first` and the next.
struct GroupParts {
  RowGroup::Ref group;
  uint32_t first = 0;
  RowGroup::Results results = RowGroup::kAllResults;

  void arrive(const Backward& back) const {
    GraphTask& pass = running_pass();
    for (uint32_t i = 0; i < back.num_outputs(); ++i)
      if (back.grad(static_cast<int>(i)).defined()) group->arrive(pass.id, first + i, results);
    pass.meet_group(group);
  }
};

/// The rule of parts: their gradients together are that of rows `start` on of the whole.
struct PartsRule {
  static constexpr bool kSavesNothing = true;
  int64_t start, rows;
  bool drop_dim;
  Shape whole;
  GroupParts calls;

  void operator()(Backward& back) const {
    if (!back.needs(0)) return;
    if (calls.group) calls.arrive(back);
    Strides strides = contiguous_strides(whole);
    const int64_t offset = start * strides[0];
    const bool covers = rows == whole[0];
    if (back.create_graph()) {
      std::vector<Tensor> grads;
      for (int i = 0; i < count(back); ++i) grads.push_back(back.grad_or_zeros(i));
      const Tensor g = drop_dim ? stack(grads, 0) : cat(grads, 0);
      return back.set(0, covers ? g : embed(g, whole, offset, strides));
    }
    const int arrived = count_arrived(back);
    if (arrived < (count(back) + 3) / 4) return set_each(back, offset, strides);
    const Tensor g = join(back, arrived == count(back), strides);
    covers ? back.set(0, g) : back.set_region(0, offset, strides, g);
  }

 private:
  static int count(const Backward& back) { return static_cast<int>(back.num_outputs()); }
  static int count_arrived(const Backward& back) {
    int arrived = 0;
    for (int i = 0; i < count(back); ++i) arrived += back.grad(i).defined();
    return arrived;
  }

  /// A few gradients, one by one: what the others would get is not touched.
  void set_each(Backward& back, int64_t at, Strides strides) const {
    if (drop_dim) strides.erase(0);
    for (int i = 0; i < count(back); at += back.output(i++).shape.numel())
      if (back.grad(i).defined()) back.set_region(0, at, strides, back.grad(i));
  }

  /// The gradients in one tensor, zeros where none arrived: a view if they lie so.
  Tensor join(const Backward& back, bool all, Strides strides) const {
    Shape shape = whole;
    shape[0] = rows;
    const Tensor* first = nullptr;
    for (int i = 0; !first; ++i)
      if (back.grad(i).defined()) first = &back.grad(i);
    if (all && adjacent(back)) return alias(*first, view_of(*first).data, shape, strides);
    const Tensor y = make_tensor(shape, view_of(*first).dtype, first->device());
    if (!all) kernels_of(y).fill(view_of(y), 0);
    if (drop_dim) strides.erase(0);
    detail::Joiner joiner(y, 1, strides);
    for (int i = 0; i < count(back); ++i)
      if (const Tensor& g = back.grad(i); g.defined())
        joiner.add(view_of(g));
      else
        joiner.skip(back.output(i).shape.numel());
    joiner.finish();
    return y;
  }

  static bool adjacent(const Backward& back) {
    const Storage* storage = TensorImpl::of(back.grad(0))->storage;
    const char* next = view_of(back.grad(0)).as<char>();
    for (int i = 0; i < count(back); ++i) {
      const View& view = view_of(back.grad(i));
      if (TensorImpl::of(back.grad(i))->storage != storage || !lies_at(view, next)) return false;
      next += view.numel * size_of(view.dtype);
    }
    return true;
  }
};

/// Views of x, recorded together as long as a node has room for so many outputs.
std::vector<Tensor> recorded_parts(const char* op, const Tensor& x, size_t count, detail::PartSizes sizes,
                                   bool drop_dim, InPlace in_place, GroupParts calls = {}) {
  std::vector<Tensor> parts;
  parts.reserve(count);
  const Shape& whole = view_of(x).shape;
  {
    PartViews views(x, count, drop_dim, in_place);
    for (int64_t left = whole[0]; parts.size() < count;) {
      const int64_t rows = sizes(parts.size(), left);
      parts.push_back(views.next(rows)), left -= rows;
    }
  }
  if (!recording(x)) return parts;
  int64_t start = 0;
  for (size_t from = 0; from < count;) {
    const size_t end = std::min(from + kMaxOutputs, count);
    int64_t rows = 0;
    for (size_t i = from; i < end; ++i) rows += sizes(i, whole[0] - start - rows);
    calls.first = static_cast<uint32_t>(from);
    Node* node = make_node(
        op, end - from, 1, [&](size_t) { return edge_to(x); }, PartsRule{start, rows, drop_dim, whole, calls});
    for (uint32_t output = 0; from < end; ++from, ++output) attach_output(node, output, parts[from]);
    start += rows;
  }
  return parts;
}

// ---- from parts to a whole ------------------------------------------------------------------------------------------

/// The sizes of a node's inputs, to be kept in its rule: in a block of the allocator unless all are equal.
class KeptSizes {
 public:
  KeptSizes(std::span<const Tensor> parts, int64_t each) : count_(parts.size()), each_(each) {}
  explicit KeptSizes(std::span<const Tensor> parts) : KeptSizes(parts, view_of(parts[0]).shape[0]) {
    const auto differs = [this](const Tensor& part) { return view_of(part).shape[0] != each_; };
    if (std::none_of(parts.begin(), parts.end(), differs)) return;
    list_ = static_cast<int64_t*>(allocate_cpu(count_ * sizeof(int64_t)));
    std::transform(parts.begin(), parts.end(), list_, [](const Tensor& part) { return view_of(part).shape[0]; });
  }
  KeptSizes(KeptSizes&& other) noexcept
      : count_(other.count_), each_(other.each_), list_(std::exchange(other.list_, nullptr)) {}
  KeptSizes& operator=(KeptSizes&&) = delete;
  ~KeptSizes() {
    if (list_) release_cpu(list_, count_ * sizeof(int64_t));
  }
  size_t count() const { return count_; }
  detail::PartSizes sizes() const { return {list_, each_}; }

 private:
  size_t count_;
  int64_t each_, *list_ = nullptr;
};

/// The rule of a whole: each part gets its rows of the gradient.
struct WholeRule {
  static constexpr bool kSavesNothing = true;
  KeptSizes kept;
  bool drop_dim;
  RowGroup::Results results = RowGroup::kAllResults;  // which depend on the parts
  RowGroup::Ref group;                                // part i is an argument of its call i

  void operator()(Backward& back) const {
    const detail::PartSizes sizes = kept.sizes();
    const auto has_part = [&, pass = running_pass().id](size_t i) {
      return !group || group->has_part(pass, i, results);
    };
    if (back.create_graph()) {
      const std::vector<Tensor> grads =
          detail::parts_of(drop_dim ? "unbind" : "split", back.grad(), kept.count(), sizes, drop_dim);
      for (size_t i = 0; i < grads.size(); ++i)
        if (has_part(i)) back.set(static_cast<int>(i), grads[i]);
      return;
    }
    PartViews views(back.grad(), kept.count(), drop_dim, InPlace::kRecorded);
    int64_t left = view_of(back.grad()).shape[0];
    for (size_t i = 0; i < kept.count(); ++i) {
      const int64_t rows = sizes(i, left);
      if (const int input = static_cast<int>(i); back.needs(input) && has_part(i))
        back.set(input, views.next(rows));
      else
        views.skip(rows);
      left -= rows;
    }
  }
};

/// GroupWholeRule is the WholeRule of a group: it withholds gradients from calls that do not take part in a pass.
struct GroupWholeRule : WholeRule {
  static constexpr bool kWithholds = true;
};

/// Checks that the parts are rows of one tensor, and returns its shape.
Shape joined_shape(std::span<const Tensor> parts) {
  const View& first = view_of(parts[0], "gather_rows");
  REEL_CHECK(!first.shape.empty(), "gather_rows: a 0-d tensor has no rows");
  const Device device = TensorImpl::of(parts[0])->device();
  Shape shape = first.shape;
  for (const Tensor& part : parts.subspan(1)) {
    const View& view = view_of(part, "gather_rows");
    bool fits =
        view.dtype == first.dtype && view.shape.size() == shape.size() && TensorImpl::of(part)->device() == device;
    for (int d = 1; fits && d < shape.size(); ++d) fits = view.shape[d] == shape[d];
    REEL_CHECK(fits, "gather_rows: parts of ", first.dtype, " ", first.shape, " on ", device, " and of ", view.dtype,
               " ", view.shape, " on ", part.device(), " differ in more than the number of rows");
    REEL_CHECK(!__builtin_add_overflow(shape[0], view.shape[0], &shape[0]), "gather_rows: too many elements");
  }
  return shape;
}

/// A view of the parts if they are adjacent rows of one storage, nullopt otherwise. An in-place change of the tensor
/// that they are views of gives the whole another history, as it does the parts: so they must be views of one tensor,
/// and nothing but views.
std::optional<Tensor> adjacent_rows(std::span<const Tensor> parts, const Shape& shape) {
  const TensorImpl* first = TensorImpl::of(parts[0]);
  if (grad_mode && !first->base) return std::nullopt;
  const char* next = first->view.as<char>();
  InPlace in_place = InPlace::kBatchedRow;
  for (const Tensor& part : parts) {
    const TensorImpl* impl = TensorImpl::of(part);
    const bool is_view = impl->base == first->base && impl->in_place != InPlace::kAliasesInput;
    if (impl->storage != first->storage || !is_view || !lies_at(impl->view, next)) return std::nullopt;
    next += impl->view.numel * size_of(impl->view.dtype);
    if (!grad_mode && in_place != InPlace::kHidesHistory) in_place = unrecorded_view(impl);
  }
  const Tensor y = alias(parts[0], first->view.data, shape, contiguous_strides(shape));
  TensorImpl::of(y)->in_place = in_place;
  return y;
}

}  // namespace

namespace detail {

// ---- a whole --------------------------------------------------------------------------------------------------------

void Joiner::add(const View& from) {
  if (from.numel == 0) return;
  const int64_t bytes = from.numel / rows_ * size_of(dtype_);
  char* const to = std::exchange(to_, to_ + bytes);
  if (!from.contiguous || from.dtype != dtype_) return kernels_.copy(from, make_view(to, from.shape, strides_, dtype_));
  if (rows_ == 1 && count_) {
    BlockCopy& last = blocks_[count_ - 1];
    if (static_cast<const char*>(last.from) + last.bytes == from.data &&
        static_cast<char*>(last.to) + last.bytes == to) {
      last.bytes += bytes;
      return;
    }
  }
  if (count_ == blocks_.size()) together_ ? keep() : finish();
  blocks_[count_++] = {from.data, to, rows_, bytes, bytes, step_, dtype_, dtype_};
}

void Joiner::keep() { many_.insert(many_.end(), blocks_.begin(), blocks_.begin() + std::exchange(count_, 0)); }
void Joiner::finish_many() {
  keep();
  kernels_.copy_blocks(many_);
  many_.clear();
}

void record_whole(const char* op, const Tensor& y, std::span<const Tensor> parts, bool drop_dim, RowGroup* group) {
  WholeRule rule{drop_dim ? KeptSizes(parts, 1) : KeptSizes(parts), drop_dim, RowGroup::kAllResults,
                 RowGroup::Ref(group)};
  const auto edge = [&](size_t i) { return edge_to(parts[i]); };
  Node* node = group ? make_node(op, 1, parts.size(), edge, GroupWholeRule{std::move(rule)})
                     : make_node(op, 1, parts.size(), edge, std::move(rule));
  attach_output(node, 0, y);
}

Tensor gather_rows(std::span<const Tensor> parts, RowGroup* group) {
  REEL_CHECK(!parts.empty(), "gather_rows: no parts");
  const Shape shape = joined_shape(parts);
  if (parts.size() == 1) return parts[0];
  const std::optional<Tensor> view = adjacent_rows(parts, shape);
  const Tensor y = view ? *view : make_tensor(shape, view_of(parts[0]).dtype, parts[0].device());
  if (!view) {
    Joiner joiner(y, 1, view_of(y).strides);
    for (const Tensor& part : parts) joiner.add(view_of(part));
    joiner.finish();
  }
  if (recording(parts)) record_whole("gather_rows", y, parts, false, group);
  return y;
}

// ---- parts ----------------------------------------------------------------------------------------------------------

std::vector<Tensor> scatter_rows(const Tensor& whole, std::span<const int64_t> counts, RowGroup* group,
                                 RowGroup::Results results) {
  const View& view = view_of(whole, "scatter_rows");
  REEL_CHECK(!view.shape.empty(), "scatter_rows: a 0-d tensor has no rows");
  int64_t left = view.shape[0];
  for (const int64_t count : counts) {
    REEL_CHECK(count >= 0 && count <= left, "scatter_rows: a part of ", count, " rows, where ", left, " of ",
               view.shape[0], " are left");
    left -= count;
  }
  REEL_CHECK(left == 0, "scatter_rows: ", left, " of ", view.shape[0], " rows belong to no part");
  if (counts.size() == 1) return {whole};
  return recorded_parts("scatter_rows", whole, counts.size(), {.list = counts.data()}, false, InPlace::kBatchedRow,
                        {RowGroup::Ref(group), 0, results});
}

std::vector<Tensor> scatter_numbers(const Tensor& vector, RowGroup* group) {
  return recorded_parts("scatter_numbers", vector, static_cast<size_t>(vector.size(0)), {.each = 1}, true,
                        InPlace::kBatchedRow, {RowGroup::Ref(group)});
}

// Nodes are marked as visited by a pass number, as in a backward pass.
void relate_results(RowGroup* group, std::span<Node* const> gathers, std::span<const Tensor> wholes) {
  std::vector<RowGroup::Results> results(gathers.size());
  std::vector<Node*> stack;
  for (size_t k = 0; k < wholes.size(); ++k) {
    const uint64_t pass = new_pass();
    const auto visit = [&](Node* node) {
      if (node && node->pass != pass && recorded_here_since(*node, group->first_sequence()))
        node->pass = pass, stack.push_back(node);
    };
    if (needs_grad(wholes[k])) visit(TensorImpl::of(wholes[k])->node);
    while (!stack.empty()) {
      Node* const node = stack.back();
      stack.pop_back();
      const auto at = std::find(gathers.begin(), gathers.end(), node);
      if (at != gathers.end()) {
        results[static_cast<size_t>(at - gathers.begin())] |= RowGroup::result(k);
        continue;
      }
      for (uint32_t i = 0; i < node->num_inputs; ++i) visit(node->edges()[i].node);
    }
  }
  for (size_t i = 0; i < gathers.size(); ++i) static_cast<WholeRule*>(gathers[i]->rule())->results = results[i];
}

std::vector<Tensor> parts_of(const char* op, const Tensor& x, size_t count, PartSizes sizes, bool drop_dim) {
  return call(drop_dim ? Op("unbind") : Op("split"), {x}, {},
              [&](const Tensor& x) { return recorded_parts(op, x, count, sizes, drop_dim, InPlace::kRecorded); });
}

}  // namespace detail
}  // namespace reel
