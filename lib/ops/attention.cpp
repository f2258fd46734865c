#include "lib/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lib/autograd/subgraph.h"
#include "lib/device/kernels/attention.h"
#include "lib/ops/internal.h"
#include "lib/ops/matmul.h"

namespace reel {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

void check(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
           const AttentionOptions& options) {
  const Shape &q = view_of(query, op).shape, &k = view_of(key, op).shape, &v = view_of(value, op).shape;
  const DType dtype = query.dtype();
  REEL_CHECK(is_floating_point(dtype) && key.dtype() == dtype && value.dtype() == dtype, op,
             ": expected query, key and value of one floating-point type, got ", dtype, ", ", key.dtype(), " and ",
             value.dtype());
  REEL_CHECK(
      q.size() >= 2 && k.size() >= 2 && v.size() >= 2 && q.back() == k.back() && k[k.size() - 2] == v[v.size() - 2], op,
      ": expected query [..., L, E], key [..., S, E] and value [..., S, Ev], got shapes ", q, ", ", k, " and ", v);
  REEL_CHECK(!options.is_causal || !options.mask.defined(), op, ": is_causal and a mask");
  REEL_CHECK(options.dropout >= 0 && options.dropout <= 1, op, ": dropout must be between 0 and 1, got ",
             options.dropout);
}

/// What is added to the scores of `shape`: undefined for nothing.
Tensor additive_mask(const char* op, const AttentionOptions& options, const Shape& shape, const Tensor& like) {
  const TensorOptions placed{.dtype = like.dtype(), .device = like.device()};
  Tensor mask = options.mask;
  if (options.is_causal) {
    const int64_t queries = shape[shape.size() - 2], keys = shape.back();
    const Tensor places = arange(std::max(queries, keys), {.dtype = kInt64, .device = like.device()});
    mask = places.narrow(0, 0, queries).unsqueeze(1) >= places.narrow(0, 0, keys);
  }
  if (!mask.defined()) return mask;
  REEL_CHECK(mask.dtype() == kBool || mask.is_floating_point(), op, ": a mask is bool or floating-point, got ",
             mask.dtype());
  REEL_CHECK(broadcast_shapes(mask.shape(), shape, op) == shape, op, ": a mask of shape ", mask.shape(),
             " for scores of shape ", shape);
  if (mask.dtype() == kBool) return where(mask, zeros({}, placed), full({}, kMinusInfinity, placed));
  return mask.to(like.dtype());
}

/// From products, a softmax and what else is wanted. As many heads of keys as of queries, unless there is enable_gqa.
Attended composed(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                  const AttentionOptions& options);

/// [..., heads, L, E] as [..., groups, heads / groups L, E].
Tensor grouped(const Tensor& x, int64_t groups) {
  Shape shape = x.shape();
  const int heads = shape.size() - 3;
  shape[heads + 1] *= shape[heads] / groups;
  shape[heads] = groups;
  return x.reshape(shape);
}

Attended attend_grouped(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                        AttentionOptions options) {
  options.enable_gqa = false;
  const int64_t rank = query.dim();
  REEL_CHECK(rank >= 3 && key.dim() == rank && value.dim() == rank && key.size(-3) == value.size(-3) &&
                 key.size(-3) > 0 && query.size(-3) % key.size(-3) == 0,
             op, ": the query's heads are no multiple of the key's and value's, shapes ", query.shape(), ", ",
             key.shape(), " and ", value.shape());
  const int64_t groups = key.size(-3);
  if (query.size(-3) == groups) return composed(op, query, key, value, options);
  Shape scores = query.shape();
  scores[scores.size() - 1] = key.size(-2);
  // A group's queries are as many rows of one product; the mask has to be laid out like them.
  if (options.is_causal || options.mask.defined()) {
    options.mask = grouped(additive_mask(op, options, scores, query).expand(scores), groups);
    options.is_causal = false;
  }
  const Attended attended = composed(op, grouped(query, groups), key, value, options);
  Shape output = query.shape();
  output[output.size() - 1] = value.size(-1);
  return {attended.output.reshape(output), attended.weights.reshape(scores)};
}

// ---- flash attention ------------------------------------------------------------------------------------------------

double scale_of(int64_t width, const AttentionOptions& options) {
  return options.scale.value_or(width ? 1 / std::sqrt(width) : 1);
}

/// A batch of sequences of one length, as RaggedAttention::Batch has it: for shapes [n, heads, L, E] and those with
/// fewer dimensions.
class Batch {
 public:
  Batch(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options)
      : query_(view_of(query)), key_(view_of(key)), value_(view_of(value)), options_(options) {}

  /// Whether a kernel may be asked that does not write down the scores: they are what takes the time of long sequences,
  /// and are half of the memory of a Transformer's training.
  bool suits() const {
    const int rank = query_.shape.size();
    if (!is_half(query_.dtype) || options_.mask.defined() || options_.dropout > 0 || rank > 4) return false;
    if (options_.enable_gqa && rank < 3) return false;
    if (key_.shape.size() != rank || value_.shape != key_.shape || query_.shape[rank - 2] < min_flash_length ||
        key_.shape[rank - 2] < min_flash_length || query_.numel == 0 || key_.numel == 0)
      return false;
    for (int d = 0; d < rank - 2; ++d) {
      const bool shared = options_.enable_gqa && d == rank - 3 && query_.shape[d] % key_.shape[d] == 0;
      if (query_.shape[d] != key_.shape[d] && !shared) return false;
    }
    for (const View* view : {&query_, &key_, &value_})
      if (view->strides[rank - 1] != 1) return false;
    return true;
  }
  RaggedAttention describe() const {
    const int rank = query_.shape.size();
    const auto size = [&](int from_behind) { return rank >= from_behind ? query_.shape[rank - from_behind] : 1; };
    const int64_t n = size(4), heads = size(3), width = size(1), kv_heads = rank >= 3 ? key_.shape[rank - 3] : 1;
    RaggedAttention call{.dtype = query_.dtype,
                         .sequences = n,
                         .queries = n * size(2),
                         .keys = n * key_.shape[rank - 2],
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .width = width,
                         .value_width = width,
                         .scale = scale_of(width, options_),
                         .causal = options_.is_causal};
    call.query = query_.data, call.key = key_.data, call.value = value_.data;
    return call;
  }
  /// Where a view's elements are. Dimensions of one element have any step.
  static RaggedAttention::Steps steps_of(const View& view) {
    const int rank = view.shape.size();
    const int64_t row = view.strides[rank - 2], head = rank >= 3 ? view.strides[rank - 3] : row * view.shape[rank - 2];
    return {rank >= 4 ? view.strides[rank - 4] : head * (rank >= 3 ? view.shape[rank - 3] : 1), head, row};
  }
  const AttentionOptions& options() const { return options_; }

 private:
  const View &query_, &key_, &value_;
  const AttentionOptions& options_;
};

/// int32 [n], or both undefined.
struct PaddedLengths {
  Tensor queries, keys;

  void describe(RaggedAttention::Batch& batch) const {
    if (!keys.defined()) return;
    batch.query_lengths = view_of(queries).as<const int32_t>();
    batch.key_lengths = view_of(keys).as<const int32_t>();
  }
  /// `options` with a mask that says the same.
  AttentionOptions masked(AttentionOptions options, int64_t l, int64_t s) const {
    if (!keys.defined()) return options;
    const TensorOptions placed{.dtype = kInt64, .device = keys.device()};
    options.mask = arange(s, placed) < keys.view({-1, 1, 1, 1});
    if (std::exchange(options.is_causal, false))
      options.mask = logical_and(options.mask, arange(l, placed).unsqueeze(1) >= arange(s, placed));
    return options;
  }
};

/// Gradients by the device's kernel or, where it has none or derivatives of higher order are wanted, by those of the
/// composed form.
struct FlashRule {
  AttentionOptions options;
  PaddedLengths lengths;
  SavedTensor query, key, value, y, log_sums;

  void operator()(Backward& back) const {
    const Tensor q = back.get(query), k = back.get(key), v = back.get(value);
    if (!back.create_graph()) {
      const Tensor out = back.get(y), sums = back.get(log_sums), g = back.grad().contiguous();
      const auto like = [](const Tensor& x) { return make_tensor(x.shape(), x.dtype(), x.device()); };
      Tensor grads[] = {like(q), like(k), like(v)};
      const auto steps = [](const Tensor& x) { return Batch::steps_of(view_of(x)); };
      bool computed = false;
      RaggedAttention::Batch batch{steps(q),        steps(k),        steps(v),        steps(out), steps(g),
                                   steps(grads[0]), steps(grads[1]), steps(grads[2]), &computed};
      lengths.describe(batch);
      RaggedAttention call = Batch(q, k, v, options).describe();
      call.batch = &batch, call.y = view_of(out).data, call.log_sums = view_of(sums).data;
      call.grad = view_of(g).data, call.grad_query = view_of(grads[0]).data;
      call.grad_key = view_of(grads[1]).data, call.grad_value = view_of(grads[2]).data;
      kernels_of(q).ragged_attention_grad(call);
      for (int i = 0; computed && i < 3; ++i) back.set(i, std::move(grads[i]));
      if (computed) return;
    }
    // Of views of their own, since one tensor may be query, key and value.
    const GradMode mode(true);
    const Tensor ins[] = {q.view(q.shape()), k.view(k.shape()), v.view(v.shape())};
    EdgeList edges;
    for (const Tensor& x : ins) edges.add(x);
    const uint64_t since = next_sequence();
    const Tensor again[] = {composed("scaled_dot_product_attention", ins[0], ins[1], ins[2],
                                     lengths.masked(options, q.size(-2), k.size(-2)))
                                .output};
    std::vector<Tensor> found = subgraph_grad(again, {back.grad()}, since, edges.edges, back.create_graph());
    for (size_t i = 0; i < found.size(); ++i) back.set(static_cast<int>(i), std::move(found[i]));
  }
};

/// Undefined where the device has no kernel for it.
Tensor flash(const Batch& batch, const Tensor& query, const Tensor& key, const Tensor& value,
             const PaddedLengths& lengths = {}) {
  const bool recorded = recording(query, key, value);
  const Shape& shape = view_of(query).shape;
  Shape rows = shape;
  rows[rows.size() - 1] = 1;
  // What is not computed must not be NaN: the gradients of such rows are 0, and so is their product with them.
  const auto made = [&](const Shape& of, DType dtype) {
    return lengths.keys.defined() ? zeros(of, {.dtype = dtype, .device = query.device()})
                                  : make_tensor(of, dtype, query.device());
  };
  const Tensor y = no_grad([&] { return made(shape, query.dtype()); });
  const Tensor sums = recorded ? made(rows, kFloat32) : Tensor();
  const auto steps = [](const Tensor& x) { return Batch::steps_of(view_of(x)); };
  bool computed = false;
  RaggedAttention::Batch call_batch{steps(query), steps(key), steps(value), steps(y), {}, {}, {}, {}, &computed};
  lengths.describe(call_batch);
  RaggedAttention call = batch.describe();
  call.batch = &call_batch, call.y = view_of(y).data, call.log_sums = recorded ? view_of(sums).data : nullptr;
  kernels_of(query).ragged_attention(call);
  if (!computed) return {};
  if (recorded)
    record("scaled_dot_product_attention", y, inputs(query, key, value),
           FlashRule{batch.options(), lengths, SavedTensor(query), SavedTensor(key), SavedTensor(value),
                     SavedTensor::output(y), SavedTensor(sums)});
  return y;
}

}  // namespace

Attended attend(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options, bool with_weights) {
  return call("scaled_dot_product_attention", {query, key, value}, {},
              [&](const Tensor& query, const Tensor& key, const Tensor& value) {
                check(op, query, key, value, options);
                if (const Batch batch(query, key, value, options); !with_weights && batch.suits())
                  if (const Tensor y = flash(batch, query, key, value); y.defined()) return Attended{y, {}};
                return composed(op, query, key, value, options);
              });
}

namespace {

Attended composed(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                  const AttentionOptions& options) {
  if (options.enable_gqa) return attend_grouped(op, query, key, value, options);
  const double scale = scale_of(query.size(-1), options);
  Tensor scores = detail::scaled_matmul(query, key.transpose(-2, -1), scale), blind;
  if (Tensor mask = additive_mask(op, options, scores.shape(), scores); mask.defined()) {
    // Softmax has no answer where everything is masked: such a query looks at everything and its result is dropped.
    if (options.mask.defined() && mask.numel()) {
      blind = no_grad([&] { return amax(mask, -1, true) == kMinusInfinity; });
      if (!is_readable(blind) || any(blind).item<bool>())
        mask = masked_fill(mask, blind, 0);
      else
        blind.reset();
    }
    scores = scores + mask;
  }
  Tensor weights = softmax(scores, -1);
  if (blind.defined()) weights = masked_fill(weights, blind, 0);
  if (options.dropout > 0) weights = dropout(weights, options.dropout);
  return {matmul(weights, value), weights};
}

}  // namespace

Tensor attend_padded(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options,
                     const Tensor& query_lengths, const Tensor& key_lengths) {
  const Batch batch(query, key, value, options);
  return batch.suits() ? flash(batch, query, key, value, {query_lengths, key_lengths}) : Tensor();
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  return attend("scaled_dot_product_attention", query, key, value, options, false).output;
}

}  // namespace reel
