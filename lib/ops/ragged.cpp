#include "lib/ops/ragged.h"

#include <algorithm>
#include <numeric>

#include "lib/device/device.h"

namespace reel {

// ---- lengths --------------------------------------------------------------------------------------------------------

/// What a device keeps of some lengths.
struct Lengths::Copy {
  const int kind;
  const Tensor values;
  // Of a GPU: the stream that has made it, and when.
  const DeviceStream* stream = nullptr;
  std::unique_ptr<DeviceEvent> made;
  Copy* next = nullptr;

  Copy(int kind_, Tensor values_) : kind(kind_), values(std::move(values_)) {
    const Device device = values.device();
    if (device == kCPU) return;
    const std::shared_ptr<DeviceStream> now = runtime(device).current_stream(device.index);
    stream = now.get();
    made = runtime(device).new_event(false);
    made->record(*now);
  }
  /// The tensor, for work on the current stream.
  const Tensor& get() const {
    if (!made) return values;
    const Device device = values.device();
    const std::shared_ptr<DeviceStream> now = runtime(device).current_stream(device.index);
    if (now.get() == stream) return values;
    if (capturing()) {
      current_capture->run_outside([&] { get(); });
      return values;
    }
    made->wait(*now);
    record_current_stream(values);
    return values;
  }
};

Lengths::Lengths(std::span<const int64_t> lengths) {
  offsets_.reserve(lengths.size() + 1);
  offsets_.push_back(0);
  for (size_t i = 0; i < lengths.size(); ++i) {
    int64_t end;
    REEL_CHECK(lengths[i] >= 0, "Lengths: sequence ", i, " has length ", lengths[i]);
    REEL_CHECK(!__builtin_add_overflow(offsets_.back(), lengths[i], &end), "Lengths: sequence ", i, " of length ",
               lengths[i], " after ", offsets_.back(), " rows; no tensor has as many");
    offsets_.push_back(end);
    longest_ = std::max(longest_, lengths[i]);
  }
}

Lengths::~Lengths() {
  for (Copy* copy = copies_.load(std::memory_order_relaxed); copy;) delete std::exchange(copy, copy->next);
}

std::shared_ptr<const Lengths> Lengths::of(std::span<const int64_t> lengths) {
  return std::make_shared<const Lengths>(lengths);
}

std::shared_ptr<const Lengths> Lengths::of(const Tensor& lengths) {
  const View& view = view_of(lengths, "Lengths");
  REEL_CHECK(view.dtype == kInt64 || view.dtype == kInt32 || view.dtype == kUInt8, "Lengths: ", view.dtype,
             " lengths, not int64");
  REEL_CHECK(view.shape.size() == 1, "Lengths: expected a vector of lengths, got shape ", view.shape);
  return of(std::span<const int64_t>(lengths.to_vector<int64_t>()));
}

std::vector<int64_t> Lengths::to_vector() const {
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i) lengths[i] = (*this)[i];
  return lengths;
}

int64_t count_not_empty(const Lengths& lengths) {
  int64_t count = 0;
  for (int64_t i = 0; i < lengths.size(); ++i) count += lengths[i] > 0;
  return count;
}

// ---- where a device needs them --------------------------------------------------------------------------------------

namespace {

using Ids = std::vector<int64_t>;
enum Kind {
  kOffsets,
  kCounts,
  kSequences,
  kPackedRows,
  kPackedPlaces,
  kSorted,
  kUnsorted,
  kStepSizes,
  kNotEmpty,
  kStarts,
  kLengthsOf,
  kPaddedByBatch,
  kPaddedBySteps,
};

Ids order_of(const Lengths& lengths) {
  Ids order(static_cast<size_t>(lengths.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  return order;
}
Ids inverse_of(const Ids& order) {
  Ids back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}
Ids step_sizes_of(const Lengths& lengths) {
  Ids sizes(static_cast<size_t>(lengths.longest()));
  for (int64_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0) ++sizes[lengths[i] - 1];
  for (size_t t = sizes.size(); t-- > 1;) sizes[t - 1] += sizes[t];
  return sizes;
}
Ids packed_rows_of(const Lengths& lengths) {
  const Ids order = order_of(lengths), sizes = step_sizes_of(lengths);
  Ids rows;
  rows.reserve(static_cast<size_t>(lengths.total()));
  for (size_t t = 0; t < sizes.size(); ++t)
    for (int64_t i = 0; i < sizes[t]; ++i) rows.push_back(lengths.offsets()[order[i]] + static_cast<int64_t>(t));
  return rows;
}
/// f(sequence, time) for each row.
template <class F>
void for_each_row(const Lengths& lengths, Ids& to, const F& f) {
  to.reserve(static_cast<size_t>(lengths.total()));
  for (int64_t i = 0; i < lengths.size(); ++i)
    for (int64_t t = 0; t < lengths[i]; ++t) to.push_back(f(i, t));
}
template <class F>
void for_each_not_empty(const Lengths& lengths, Ids& to, const F& f) {
  for (int64_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0) to.push_back(f(i));
}

}  // namespace

Tensor LengthsOnDevice::get(int kind, Fill fill) const {
  for (const Lengths::Copy* copy = lengths.copies_.load(std::memory_order_acquire); copy; copy = copy->next)
    if (copy->kind == kind && copy->values.device() == device) return copy->get();
  REEL_CHECK(device == kCPU || !capturing(), "Lengths: they are not on ", device,
             " yet, and while a graph is captured they cannot be copied there; do "
             "once before what is to be captured");
  Ids ids;
  fill(lengths, ids);
  const Tensor on_cpu = tensor(ids, on_host());
  auto copy = std::make_unique<Lengths::Copy>(kind, device == kCPU ? on_cpu : on_cpu.to(device));
  // Another thread may have added the same, which does no harm.
  Lengths::Copy* const mine = copy.release();
  mine->next = lengths.copies_.load(std::memory_order_relaxed);
  while (!lengths.copies_.compare_exchange_weak(mine->next, mine, std::memory_order_acq_rel)) {
  }
  return mine->values;
}

Tensor LengthsOnDevice::offsets() const {
  return get(kOffsets, [](const Lengths& l, Ids& to) { to.assign(l.offsets().begin(), l.offsets().end()); });
}
Tensor LengthsOnDevice::counts() const {
  return get(kCounts, [](const Lengths& l, Ids& to) { to = l.to_vector(); });
}
Tensor LengthsOnDevice::sequences() const {
  return get(kSequences, [](const Lengths& l, Ids& to) { for_each_row(l, to, [](int64_t i, int64_t) { return i; }); });
}
Tensor LengthsOnDevice::packed_rows() const {
  return get(kPackedRows, [](const Lengths& l, Ids& to) { to = packed_rows_of(l); });
}
Tensor LengthsOnDevice::packed_places() const {
  return get(kPackedPlaces, [](const Lengths& l, Ids& to) { to = inverse_of(packed_rows_of(l)); });
}
Tensor LengthsOnDevice::sorted() const {
  return get(kSorted, [](const Lengths& l, Ids& to) { to = order_of(l); });
}
Tensor LengthsOnDevice::unsorted() const {
  return get(kUnsorted, [](const Lengths& l, Ids& to) { to = inverse_of(order_of(l)); });
}
Tensor LengthsOnDevice::step_sizes() const {
  return LengthsOnDevice{lengths, kCPU}.get(kStepSizes, [](const Lengths& l, Ids& to) { to = step_sizes_of(l); });
}
Tensor LengthsOnDevice::not_empty() const {
  return get(kNotEmpty, [](const Lengths& l, Ids& to) { for_each_not_empty(l, to, [](int64_t i) { return i; }); });
}
Tensor LengthsOnDevice::starts() const {
  return get(kStarts,
             [](const Lengths& l, Ids& to) { for_each_not_empty(l, to, [&](int64_t i) { return l.offsets()[i]; }); });
}
Tensor LengthsOnDevice::lengths_of() const {
  return get(kLengthsOf, [](const Lengths& l, Ids& to) { for_each_not_empty(l, to, [&](int64_t i) { return l[i]; }); });
}
Tensor LengthsOnDevice::padded_places(bool batch_first) const {
  if (batch_first)
    return get(kPaddedByBatch, [](const Lengths& l, Ids& to) {
      for_each_row(l, to, [&](int64_t i, int64_t t) { return i * l.longest() + t; });
    });
  return get(kPaddedBySteps, [](const Lengths& l, Ids& to) {
    for_each_row(l, to, [&](int64_t i, int64_t t) { return t * l.size() + i; });
  });
}

// ---- rows elsewhere -------------------------------------------------------------------------------------------------

namespace {

/// [a, b, …] as [a b, …].
Tensor flat(const Tensor& x) { return x.contiguous().flatten(0, 1); }

}  // namespace

Tensor spread_rows(const Tensor& rows, const Tensor& places, const Shape& shape, Scalar value) {
  return call("pad(ragged)", {rows, places}, {}, [&](const Tensor& rows, const Tensor& places) {
    const View& view = view_of(rows);
    const Tensor y = full(shape, value, {.dtype = view.dtype, .device = rows.device()});
    if (view.numel) {
      const Tensor all = no_grad([&] { return flat(y); });
      kernels_of(y).index_copy(view_of(all), 0, view_of(places), view);
    }
    if (recording(rows))
      record("pad", y, inputs(rows),
             [places = SavedTensor(places)](Backward& back) { back.set(0, take_rows(back.grad(), back.get(places))); });
    return y;
  });
}

Tensor take_rows(const Tensor& x, const Tensor& places) {
  return call("unpad", {x, places}, {}, [](const Tensor& x, const Tensor& places) {
    const Tensor dense = x.contiguous();
    Shape shape = dense.shape();
    shape.erase(0);
    shape[0] = places.numel();
    const Tensor y = make_tensor(shape, dense.dtype(), dense.device());
    if (view_of(y).numel) {
      const Tensor all = no_grad([&] { return flat(dense); });
      kernels_of(y).index_select(view_of(all), 0, view_of(places), view_of(y), nullptr);
    }
    if (recording(dense))
      record("unpad", y, inputs(dense), [places = SavedTensor(places), shape = dense.shape()](Backward& back) {
        back.set(0, spread_rows(back.grad(), back.get(places), shape, 0));
      });
    return y;
  });
}

// ---- checks ---------------------------------------------------------------------------------------------------------

namespace detail {

const Tensor& rows_of(const char* op, const Ragged& x) {
  const Shape& shape = view_of(x.values, op).shape;
  REEL_CHECK(x.lengths, op, ": a Ragged without lengths");
  REEL_CHECK(!shape.empty() && shape[0] == x.lengths->total(), op, ": values of shape ", shape,
             " with lengths that add up to ", x.lengths->total());
  return x.values;
}

Ragged same_rows(const char* op, const Ragged& x, Tensor values) {
  const Shape& shape = view_of(values, op).shape;
  REEL_CHECK(!shape.empty() && shape[0] == x.lengths->total(), op, ": ", x.lengths->total(),
             " rows have become values of shape ", shape);
  return {std::move(values), x.lengths};
}

void check_same_lengths(const char* op, const Ragged& a, const Ragged& b) {
  rows_of(op, a), rows_of(op, b);
  if (*a.lengths == *b.lengths) return;
  const Lengths &left = *a.lengths, &right = *b.lengths;
  const int64_t common = std::min(left.size(), right.size());
  for (int64_t i = 0; i < common; ++i)
    REEL_CHECK(left[i] == right[i], op, ": sequence ", i, " has length ", left[i], " in one and ", right[i],
               " in the other");
  fail(op, ": ", left.size(), " and ", right.size(), " sequences");
}

}  // namespace detail

using detail::rows_of, detail::check_same_lengths;

// ---- the type -------------------------------------------------------------------------------------------------------

Ragged Ragged::of(TensorList sequences) {
  const char* op = "Ragged::of";
  REEL_CHECK(!sequences.empty(), op, ": no sequences, so their rows have no shape; make it of values [0, …] instead");
  Ids lengths;
  lengths.reserve(sequences.size());
  const Shape& first = view_of(sequences[0], op).shape;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const View& view = view_of(sequences[i], op);
    REEL_CHECK(!view.shape.empty(), op, ": sequence ", i, " is a 0-d tensor");
    REEL_CHECK(view.dtype == view_of(sequences[0]).dtype, op, ": sequence 0 is ", sequences[0].dtype(), ", sequence ",
               i, " ", view.dtype);
    bool fits = view.shape.size() == first.size();
    for (int d = 1; fits && d < first.size(); ++d) fits = view.shape[d] == first[d];
    REEL_CHECK(fits, op, ": sequence 0 has shape ", first, ", sequence ", i, " ", view.shape,
               "; they may differ in the first size only");
    lengths.push_back(view.shape[0]);
  }
  return {cat(sequences, 0), Lengths::of(lengths)};
}

Ragged Ragged::unpad(const Tensor& padded, std::shared_ptr<const Lengths> lengths, bool batch_first) {
  const char* op = "Ragged::unpad";
  REEL_CHECK(lengths, op, ": no lengths");
  const Shape shape = view_of(padded, op).shape;
  REEL_CHECK(shape.size() >= 2 && shape[batch_first ? 0 : 1] == lengths->size(), op, ": ", lengths->size(),
             " lengths for a tensor of shape ", shape);
  const int64_t longest = lengths->longest();
  REEL_CHECK(shape[batch_first ? 1 : 0] >= longest, op, ": a sequence of length ", longest, " in a tensor of shape ",
             shape);
  const LengthsOnDevice where{*lengths, padded.device()};
  return {take_rows(padded.narrow(batch_first ? 1 : 0, 0, longest), where.padded_places(batch_first)),
          std::move(lengths)};
}

int64_t Ragged::size() const {
  REEL_CHECK(lengths, "Ragged::size: a Ragged without lengths");
  return lengths->size();
}

Tensor Ragged::operator[](int64_t i) const {
  rows_of("Ragged", *this);
  const int64_t n = lengths->size(), at = i < 0 ? i + n : i;
  REEL_CHECK(at >= 0 && at < n, "Ragged: sequence ", i, " of ", n);
  return values.narrow(0, lengths->offsets()[at], (*lengths)[at]);
}

std::vector<Tensor> Ragged::unbind() const {
  rows_of("Ragged::unbind", *this);
  if (lengths->size() == 0) return {};
  return split(values, lengths->to_vector());
}

Tensor Ragged::pad(Scalar value, bool batch_first) const {
  rows_of("Ragged::pad", *this);
  const int64_t n = lengths->size(), longest = lengths->longest();
  Shape shape = values.shape();
  shape[0] = batch_first ? longest : n;
  shape.insert(0, batch_first ? n : longest);
  return spread_rows(values, on_device(*this).padded_places(batch_first), shape, value);
}

Tensor Ragged::mask() const {
  rows_of("Ragged::mask", *this);
  const Tensor places = arange(0, lengths->longest(), 1, {.dtype = kInt64, .device = values.device()});
  return places < on_device(*this).counts().unsqueeze(1);
}

Ragged Ragged::to(DType dtype) const { return {rows_of("Ragged::to", *this).to(dtype), lengths}; }
Ragged Ragged::to(Device device) const { return {rows_of("Ragged::to", *this).to(device), lengths}; }

// ---- arithmetic -----------------------------------------------------------------------------------------------------

namespace {

/// b beside x's rows, the same for each of them.
const Tensor& beside(const char* op, const Ragged& x, const Tensor& b) {
  const Shape &rows = rows_of(op, x).shape(), &shape = view_of(b, op).shape;
  REEL_CHECK(shape.size() < rows.size() || (shape.size() == rows.size() && shape[0] == 1), op, ": a tensor of shape ",
             shape, " beside sequences with values of shape ", rows,
             "; expand() repeats the row of a sequence for all of its rows");
  return b;
}
template <class Op>
Ragged both(const char* op, const Ragged& a, const Ragged& b, const Op& f) {
  check_same_lengths(op, a, b);
  REEL_CHECK(a.values.dim() == b.values.dim(), op, ": rows of values of shapes ", a.values.shape(), " and ",
             b.values.shape());
  return {f(a.values, b.values), a.lengths};
}

}  // namespace

#define REEL_ARITHMETIC(symbol, function)                                                                       \
  Ragged operator symbol(const Ragged& a, const Ragged& b) { return both("operator" #symbol, a, b, function); } \
  Ragged operator symbol(const Ragged& a, const Tensor& b) {                                                    \
    const Tensor& other = beside("operator" #symbol, a, b);                                                     \
    return {a.values symbol other, a.lengths};                                                                  \
  }                                                                                                             \
  Ragged operator symbol(const Tensor& a, const Ragged& b) {                                                    \
    const Tensor& other = beside("operator" #symbol, b, a);                                                     \
    return {other symbol b.values, b.lengths};                                                                  \
  }
REEL_ARITHMETIC(+, [](const Tensor& a, const Tensor& b) { return a + b; })
REEL_ARITHMETIC(-, [](const Tensor& a, const Tensor& b) { return a - b; })
REEL_ARITHMETIC(*, [](const Tensor& a, const Tensor& b) { return a * b; })
REEL_ARITHMETIC(/, [](const Tensor& a, const Tensor& b) { return a / b; })
#undef REEL_ARITHMETIC
Ragged operator-(const Ragged& x) { return {-rows_of("operator-", x), x.lengths}; }

// ---- within sequences -----------------------------------------------------------------------------------------------

namespace {

Tensor reduced(SegmentOp op, const char* name, const Ragged& x) {
  const Tensor& rows = rows_of(name, x);
  return reduce_segments(op, name, rows, on_device(x).offsets());
}

}  // namespace

Tensor sum(const Ragged& x) {
  return call("sum(ragged)", {rows_of("sum", x)}, {}, [&](const Tensor& values) {
    return reduced(SegmentOp::kSum, "sum", {values, x.lengths});
  });
}
Tensor mean(const Ragged& x) { return reduced(SegmentOp::kMean, "mean", x); }
Tensor max(const Ragged& x) { return reduced(SegmentOp::kMax, "max", x); }
Tensor min(const Ragged& x) { return reduced(SegmentOp::kMin, "min", x); }

Ragged softmax(const Ragged& x) {
  const Tensor& rows = rows_of("softmax", x);
  return {softmax_segments("softmax", rows, on_device(x).offsets()), x.lengths};
}

Ragged expand(const Tensor& x, const Ragged& like) {
  REEL_CHECK(like.lengths, "expand: a Ragged without lengths");
  const Shape& shape = view_of(x, "expand").shape;
  REEL_CHECK(!shape.empty() && shape[0] == like.lengths->size(), "expand: a tensor of shape ", shape, " for ",
             like.lengths->size(), " sequences");
  const LengthsOnDevice where{*like.lengths, x.device()};
  if (!x.is_floating_point()) return {index_select(x, 0, where.sequences()), like.lengths};
  return {expand_segments("expand", x, where.offsets(), like.lengths->total()), like.lengths};
}

// ---- convolution ----------------------------------------------------------------------------------------------------

Ragged conv1d(const Ragged& x, const Tensor& weight, const Tensor& bias, const ConvOptions<1>& options) {
  const char* op = "conv1d";
  const Tensor& rows = rows_of(op, x);
  REEL_CHECK(rows.dim() == 2, op, ": expected values [total, in], got shape ", rows.shape());
  REEL_CHECK(view_of(weight, op).shape.size() == 3, op, ": expected a weight with 3 dimensions, got shape ",
             weight.shape());
  const bool same = options.padding.rule == kSame;
  const int64_t stride = options.stride[0], dilation = options.dilation[0], amount = options.padding.amount[0];
  const auto check = [&](const char* what, int64_t given, int64_t least) {
    REEL_CHECK(given >= least && given <= INT32_MAX, op, ": ", what, " ", given, ", of at least ", least, " expected");
  };
  check("stride", stride, 1), check("padding", amount, 0), check("dilation", dilation, 1);
  REEL_CHECK(!same || stride == 1, op, ": padding kSame needs stride 1, got ", options.stride);
  int64_t reach = 0;  // from the first element of a window to its last
  REEL_CHECK(weight.size(2) > 0 && !__builtin_mul_overflow(dilation, weight.size(2) - 1, &reach) &&
                 !__builtin_add_overflow(reach, int64_t{1}, &reach) && reach <= INT32_MAX,
             op, ": a kernel of size ", weight.size(2), " and dilation ", dilation);
  const int64_t before = same ? (reach - 1) / 2 : amount, after = same ? reach - 1 - before : amount;

  // All sequences on one line, with as many zeros between them as they are padded with. Windows across a boundary are
  // computed, too, and left out; each sequence begins where a window does.
  const Lengths& lengths = *x.lengths;
  Ids from, to, counts;  // the places of the rows on the line, those of the windows on its image; windows each
  from.reserve(static_cast<size_t>(lengths.total()));
  int64_t end = 0;
  for (int64_t i = 0; i < lengths.size(); ++i) {
    const int64_t room = lengths[i] + before + after - reach, windows = room < 0 ? 0 : room / stride + 1;
    counts.push_back(windows);
    const int64_t begin = (end + stride - 1) / stride * stride;  // of the padding in front
    for (int64_t t = 0; t < lengths[i]; ++t) from.push_back(begin + before + t);
    for (int64_t w = 0; w < windows; ++w) to.push_back(begin / stride + w);
    // The next one's padding may be this one's, but for the rows.
    end = begin + before + lengths[i] + std::max<int64_t>(after - before, 0);
  }
  const int64_t line = std::max(end + std::max(before, after), reach);
  const Device device = rows.device();
  const Tensor spread = spread_rows(rows, tensor(from, on_host()).to(device), {1, line, rows.size(1)}, 0);
  const Tensor image = conv1d(spread.transpose(1, 2), weight, bias,
                              {.stride = options.stride, .dilation = options.dilation, .groups = options.groups});
  return {take_rows(image.transpose(1, 2), tensor(to, on_host()).to(device)), Lengths::of(counts)};
}

// ---- losses ---------------------------------------------------------------------------------------------------------

namespace {

/// Computes the loss of each sequence, or of each row.
Tensor cross_entropy_of(const Ragged& logits, const Tensor& target, const CrossEntropyLossOptions& options) {
  const char* op = "cross_entropy";
  CrossEntropyLossOptions each = options;
  each.reduction = kNoReduction;
  const Tensor losses = cross_entropy(logits.values, target, each);
  if (options.reduction == kNoReduction) return losses;
  const Tensor offsets = on_device(logits).offsets();
  const bool soft = target.is_floating_point();
  if (soft || options.reduction == kSum)
    return reduce_segments(soft && options.reduction == kMean ? SegmentOp::kMean : SegmentOp::kSum, op, losses,
                           offsets);
  const Tensor kept = target != options.ignore_index;
  const Tensor weights =
      options.weight.defined()
          ? where(kept, index_select(options.weight.to(losses.dtype()), 0, where(kept, target, 0)), 0)
          : kept.to(losses.dtype());
  const Tensor all = reduce_segments(SegmentOp::kSum, op, weights, offsets);  // what a sequence's sum is divided by
  return reduce_segments(SegmentOp::kSum, op, losses, offsets) / where(all == 0, 1, all);
}

}  // namespace

Tensor cross_entropy(const Ragged& logits, const Ragged& target, const CrossEntropyLossOptions& options) {
  const char* op = "cross_entropy";
  check_same_lengths(op, logits, target);
  const Tensor& scores = logits.values;
  REEL_CHECK(scores.dim() == 2, op, ": expected logits with values [total, classes], got shape ", scores.shape());
  REEL_CHECK(options.reduction != kBatchMean, op, ": kBatchMean is a reduction of kl_div");
  return call("cross_entropy(ragged)", {scores}, {}, [&](const Tensor& scores) {
    return cross_entropy_of({scores, logits.lengths}, target.values, options);
  });
}

}  // namespace reel
