#include "reel/ops/packed.h"

#include <algorithm>
#include <numeric>

#include "lib/ops/ragged.h"

namespace reel {

Tensor permute_rows(const Tensor& x, const Tensor& order, const Tensor& back) {
  return call("permute_rows", {x, order, back}, {}, [](const Tensor& x, const Tensor& order, const Tensor& back) {
    const View& view = view_of(x);
    const Tensor y = make_tensor(view.shape, view.dtype, x.device());
    kernels_of(x).index_select(view, 0, view_of(order), view_of(y), nullptr);
    if (recording(x))
      record("permute_rows", y, inputs(x), [order = SavedTensor(order), inverse = SavedTensor(back)](Backward& back) {
        back.set(0, permute_rows(back.grad(), back.get(inverse), back.get(order)));
      });
    return y;
  });
}

namespace {

using Ids = std::vector<int64_t>;

Ids inverse(const Ids& order) {
  Ids back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

/// How sequences of these lengths are packed.
struct Packing {
  Ids order, batch_sizes;  // the sequences in the order of their lengths; the rows of each step
  bool sorted = true;      // order is 0, 1, 2, …

  Packing(const char* op, const Ids& lengths, bool enforce_sorted) : order(lengths.size()) {
    REEL_CHECK(!lengths.empty(), op, ": no sequences");
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = 0; i < lengths.size(); ++i) {
      REEL_CHECK(lengths[i] > 0, op, ": sequence ", i, " has length ", lengths[i], "; it needs at least one element");
      sorted = sorted && (i == 0 || lengths[i] <= lengths[i - 1]);
      REEL_CHECK(sorted || !enforce_sorted, op, ": sequence ", i, " of length ", lengths[i],
                 " follows a shorter one of length ", lengths[i - 1], ", and enforce_sorted is set");
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    size_t n = lengths.size();
    for (int64_t t = 0; t < lengths[order[0]]; ++t) {
      while (lengths[order[n - 1]] <= t) --n;
      batch_sizes.push_back(static_cast<int64_t>(n));
    }
  }
  /// Of each row of the data, place(its sequence, its time).
  template <class Place>
  Ids rows(const Place& place) const {
    Ids ids;
    for (size_t t = 0; t < batch_sizes.size(); ++t)
      for (int64_t i = 0; i < batch_sizes[t]; ++i) ids.push_back(place(order[i], static_cast<int64_t>(t)));
    return ids;
  }
  PackedSequence of(const Tensor& data) const {
    if (sorted) return {data, tensor(batch_sizes, on_host())};
    return {data, tensor(batch_sizes, on_host()), tensor(order).to(data.device()),
            tensor(inverse(order)).to(data.device())};
  }
};

/// What unpacking needs: where each step begins, and in the original order the sequences' places and lengths.
struct Layout {
  Ids starts, places, lengths;

  Layout(const char* op, const PackedSequence& packed) {
    const View& data = view_of(packed.data, op);
    REEL_CHECK(view_of(packed.batch_sizes, op).dtype == kInt64 && packed.batch_sizes.dim() == 1, op,
               ": batch_sizes are ", packed.batch_sizes.dtype(), " ", packed.batch_sizes.shape(),
               ", not int64 [steps]");
    const Ids sizes = packed.batch_sizes.to_vector<int64_t>();
    int64_t total = 0;
    for (size_t t = 0; t < sizes.size(); ++t) {
      REEL_CHECK(sizes[t] > 0 && (t == 0 || sizes[t] <= sizes[t - 1]), op, ": batch_sizes[", t, "] is ", sizes[t],
                 " after ", t ? sizes[t - 1] : 0);
      starts.push_back(total);
      REEL_CHECK(!__builtin_add_overflow(total, sizes[t], &total), op, ": batch_sizes[", t, "] is ", sizes[t],
                 "; no data has as many rows");
    }
    REEL_CHECK(total > 0 && !data.shape.empty() && data.shape[0] == total, op, ": data of shape ", data.shape,
               " with batch_sizes that add up to ", total);
    const int64_t n = sizes[0];
    lengths.assign(n, 0);
    for (const int64_t size : sizes)
      for (int64_t i = 0; i < size; ++i) ++lengths[i];
    places.resize(n);
    std::iota(places.begin(), places.end(), 0);
    if (!packed.unsorted_indices.defined()) return;
    places = packed.unsorted_indices.to_vector<int64_t>();
    REEL_CHECK(static_cast<int64_t>(places.size()) == n, op, ": ", places.size(), " unsorted_indices for ", n,
               " sequences");
    const Ids sorted = lengths;
    std::vector<bool> seen(places.size());
    for (int64_t i = 0; i < n; ++i) {
      REEL_CHECK(places[i] >= 0 && places[i] < n && !seen[places[i]], op, ": unsorted_indices[", i, "] is ", places[i],
                 "; they should be the numbers from 0 to ", n - 1, ", each once");
      seen[places[i]] = true;
      lengths[i] = sorted[places[i]];
    }
  }
  int64_t row(int64_t sequence, int64_t time) const { return starts[time] + places[sequence]; }
  int64_t longest() const { return static_cast<int64_t>(starts.size()); }
};

/// The rows of all sequences at their places among rows of `padding`: [n, longest, …] or [longest, n, …]. row(i, t) is
/// that of sequence i at time t.
template <class Row>
Tensor padded(const Tensor& rows, const Ids& lengths, int64_t longest, bool batch_first, Scalar padding,
              const Row& row) {
  const View& view = view_of(rows);
  const int64_t n = static_cast<int64_t>(lengths.size());
  Shape shape = view.shape;
  shape[0] = Shape{n, longest}.numel();
  const Tensor all = full(shape, padding, {.dtype = view.dtype, .device = rows.device()});
  Ids places(view.shape[0]);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t t = 0; t < lengths[i]; ++t) places[row(i, t)] = batch_first ? i * longest + t : t * n + i;
  shape[0] = batch_first ? longest : n;
  shape.insert(0, batch_first ? n : longest);
  return index_copy(all, 0, tensor(places).to(rows.device()), rows).view(shape);
}

Ids lengths_of(const char* op, std::span<const Tensor> sequences) {
  Ids lengths;
  for (const Tensor& x : sequences) {
    REEL_CHECK(!view_of(x, op).shape.empty(), op, ": sequence ", lengths.size(), " is a 0-d tensor");
    lengths.push_back(view_of(x).shape[0]);
  }
  return lengths;
}

/// Where each sequence begins when they are laid end to end.
Ids starts_of(const Ids& lengths) {
  Ids starts(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), int64_t{0});
  return starts;
}

}  // namespace

PackedSequence PackedSequence::to(DType dtype) const {
  return {data.to(dtype), batch_sizes, sorted_indices, unsorted_indices};
}
PackedSequence PackedSequence::to(Device device) const {
  const auto moved = [&](const Tensor& ids) { return ids.defined() ? ids.to(device) : ids; };
  return {data.to(device), batch_sizes, moved(sorted_indices), moved(unsorted_indices)};
}

PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted) {
  constexpr Op op = "pack_sequence";
  const Ids lengths = lengths_of(op, sequences), starts = starts_of(lengths);
  const Packing packing(op, lengths, enforce_sorted);
  const Ids rows = packing.rows([&](int64_t i, int64_t t) { return starts[i] + t; });
  return packing.of(call(op, sequences, {}, [&](std::span<const Tensor> sequences) {
    const Tensor all = cat(sequences);
    return permute_rows(all, tensor(rows).to(all.device()), tensor(inverse(rows)).to(all.device()));
  }));
}

std::vector<Tensor> unpack_sequence(const PackedSequence& packed) {
  const Layout layout("unpack_sequence", packed);
  Ids rows;
  for (size_t i = 0; i < layout.lengths.size(); ++i)
    for (int64_t t = 0; t < layout.lengths[i]; ++t) rows.push_back(layout.row(static_cast<int64_t>(i), t));
  const Device device = packed.data.device();
  return split(permute_rows(packed.data, tensor(rows).to(device), tensor(inverse(rows)).to(device)), layout.lengths);
}

PackedSequence pack_padded_sequence(const Tensor& padded, const Ids& lengths, bool batch_first, bool enforce_sorted) {
  constexpr Op op = "pack_padded_sequence";
  const Shape& shape = view_of(padded, op).shape;
  REEL_CHECK(shape.size() >= 2, op, ": expected at least two dimensions, got shape ", shape);
  const int64_t n = shape[batch_first ? 0 : 1], longest = shape[batch_first ? 1 : 0];
  REEL_CHECK(static_cast<int64_t>(lengths.size()) == n, op, ": ", lengths.size(), " lengths for ", n, " sequences");
  for (const int64_t length : lengths)
    REEL_CHECK(length <= longest, op, ": a sequence of length ", length, " in a tensor of shape ", shape);
  const Packing packing(op, lengths, enforce_sorted);
  const Ids rows = packing.rows([&](int64_t i, int64_t t) { return batch_first ? i * longest + t : t * n + i; });
  return packing.of(call(op, {padded}, {}, [&](const Tensor& padded) {
    return index_select(padded.flatten(0, 1), 0, tensor(rows).to(padded.device()));
  }));
}

PaddedSequence pad_packed_sequence(const PackedSequence& packed, bool batch_first, Scalar padding_value,
                                   std::optional<int64_t> total_length) {
  const Layout layout("pad_packed_sequence", packed);
  const int64_t longest = total_length.value_or(layout.longest());
  REEL_CHECK(longest >= layout.longest(), "pad_packed_sequence: total_length ", longest,
             " is less than the longest sequence's, ", layout.longest());
  return {padded(packed.data, layout.lengths, longest, batch_first, padding_value,
                 [&](int64_t i, int64_t t) { return layout.row(i, t); }),
          layout.lengths};
}

Tensor pad_sequence(TensorList sequences, bool batch_first, Scalar padding_value) {
  const Ids lengths = lengths_of("pad_sequence", sequences);
  REEL_CHECK(!lengths.empty(), "pad_sequence: no sequences");
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  Shape gap = sequences[0].shape();
  DType dtype = sequences[0].dtype();
  for (const Tensor& x : sequences) {
    bool fits = x.dim() == gap.size();
    for (int d = 1; fits && d < gap.size(); ++d) fits = x.shape()[d] == gap[d];
    REEL_CHECK(fits, "pad_sequence: shapes ", sequences[0].shape(), " and ", x.shape(),
               " differ in more than dimension 0");
    dtype = promote_types(dtype, x.dtype());
  }
  gap[0] = *longest - *shortest;
  const Tensor padding = full({}, padding_value, {.dtype = dtype, .device = sequences[0].device()}).expand(gap);
  std::vector<Tensor> padded;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t missing = *longest - lengths[i];
    padded.push_back(missing ? cat({sequences[i], padding.narrow(0, 0, missing)}) : sequences[i]);
  }
  return stack(padded, batch_first ? 0 : 1);
}

std::vector<Tensor> unpad_sequence(const Tensor& padded, const Ids& lengths, bool batch_first) {
  const Shape& shape = view_of(padded, "unpad_sequence").shape;
  REEL_CHECK(shape.size() >= 2, "unpad_sequence: expected at least two dimensions, got shape ", shape);
  const int batch = batch_first ? 0 : 1;
  REEL_CHECK(static_cast<int64_t>(lengths.size()) == shape[batch], "unpad_sequence: ", lengths.size(), " lengths for ",
             shape[batch], " sequences");
  std::vector<Tensor> sequences;
  for (size_t i = 0; i < lengths.size(); ++i) {
    REEL_CHECK(lengths[i] >= 0 && lengths[i] <= shape[1 - batch], "unpad_sequence: a sequence of length ", lengths[i],
               " in a tensor of shape ", shape);
    sequences.push_back(padded.select(batch, static_cast<int64_t>(i)).narrow(0, 0, lengths[i]));
  }
  return sequences;
}

}  // namespace reel
