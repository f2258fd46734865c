#include "lib/ops/attention.h"

#include <cmath>
#include <limits>

#include "lib/ops/internal.h"

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
    const TensorOptions positions{.dtype = kInt64, .device = like.device()};
    mask = arange(shape[shape.size() - 2], positions).unsqueeze(1) >= arange(shape.back(), positions);
  }
  if (!mask.defined()) return mask;
  REEL_CHECK(mask.dtype() == kBool || mask.is_floating_point(), op, ": a mask is bool or floating-point, got ",
             mask.dtype());
  REEL_CHECK(broadcast_shapes(mask.shape(), shape, op) == shape, op, ": a mask of shape ", mask.shape(),
             " for scores of shape ", shape);
  if (mask.dtype() == kBool) return where(mask, zeros({}, placed), full({}, kMinusInfinity, placed));
  return mask.to(like.dtype());
}

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
  if (query.size(-3) == groups) return attend(op, query, key, value, options);
  Shape scores = query.shape();
  scores[scores.size() - 1] = key.size(-2);
  // A group's queries are as many rows of one product; the mask has to be laid out like them.
  if (options.is_causal || options.mask.defined()) {
    options.mask = grouped(additive_mask(op, options, scores, query).expand(scores), groups);
    options.is_causal = false;
  }
  const Attended attended = attend(op, grouped(query, groups), key, value, options);
  Shape output = query.shape();
  output[output.size() - 1] = value.size(-1);
  return {attended.output.reshape(output), attended.weights.reshape(scores)};
}

}  // namespace

Attended attend(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options) {
  if (const CastToHalf low{}) return attend(op, low(query), low(key), low(value), options);
  check(op, query, key, value, options);
  if (options.enable_gqa) return attend_grouped(op, query, key, value, options);
  const double scale = options.scale.value_or(query.size(-1) ? 1 / std::sqrt(query.size(-1)) : 1);
  Tensor scores = matmul(query * scale, key.transpose(-2, -1)), blind;
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

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  return attend("scaled_dot_product_attention", query, key, value, options).output;
}

}  // namespace reel
