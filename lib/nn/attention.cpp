#include "reel/nn/attention.h"

#include <limits>

#include "lib/ops/attention.h"
#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::nn {
namespace {

constexpr const char* kName = "MultiheadAttention";
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

int64_t check_heads(int64_t embed_dim, int64_t num_heads) {
  REEL_CHECK(embed_dim > 0 && num_heads > 0 && embed_dim % num_heads == 0, kName, ": embed_dim ", embed_dim,
             " is no multiple of num_heads ", num_heads);
  return num_heads;
}

/// A mask of PyTorch's modules, true where nothing is to be seen, as numbers to add.
Tensor additive(const char* what, const Tensor& mask, const Tensor& like) {
  REEL_CHECK(mask.dtype() == kBool || mask.is_floating_point(), kName, ": ", what, " is bool or floating-point, got ",
             mask.dtype());
  if (mask.dtype() != kBool) return mask.to(like.dtype());
  const TensorOptions placed{.dtype = like.dtype(), .device = like.device()};
  return where(mask, full({}, kMinusInfinity, placed), zeros({}, placed));
}

/// mask with `count` columns of zeros more, for keys that everybody sees.
Tensor widened(const Tensor& mask, int64_t count) {
  if (count == 0) return mask;
  Shape extra = mask.shape();
  extra[extra.size() - 1] = count;
  return cat({mask, zeros(extra, {.dtype = mask.dtype(), .device = mask.device()})}, -1);
}

/// The two masks as one, to be added to scores [n, heads, l, s + extra]; undefined if there is none.
Tensor merged_mask(const MultiheadAttentionCallOptions& options, const Tensor& like, int64_t n, int64_t heads,
                   int64_t l, int64_t s, int64_t extra) {
  Tensor mask;
  if (options.is_causal) {
    REEL_CHECK(!options.attn_mask.defined(), kName, ": is_causal and an attn_mask");
    const TensorOptions positions{.dtype = kInt64, .device = like.device()};
    const Tensor later = arange(l, positions).unsqueeze(1) < arange(s, positions);
    mask = widened(additive("attn_mask", later, like), extra);
  } else if (options.attn_mask.defined()) {
    const Tensor& given = options.attn_mask;
    const bool each = given.dim() == 3;
    REEL_CHECK(given.shape() == (each ? Shape{n * heads, l, s} : Shape{l, s}), kName, ": expected attn_mask of shape ",
               Shape{l, s}, " or ", Shape{n * heads, l, s}, ", got ", given.shape());
    mask = widened(additive("attn_mask", each ? given.reshape({n, heads, l, s}) : given, like), extra);
  }
  if (!options.key_padding_mask.defined()) return mask;
  const Tensor& padding = options.key_padding_mask;
  REEL_CHECK(padding.shape() == Shape({n, s}) || (n == 1 && padding.shape() == Shape{s}), kName,
             ": expected key_padding_mask of shape ", Shape{n, s}, ", got ", padding.shape());
  const Tensor padded = widened(additive("key_padding_mask", padding, like).reshape({n, 1, 1, s}), extra);
  return mask.defined() ? mask + padded : padded;
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed, int64_t heads, MultiheadAttentionOptions given)
    : embed_dim(embed),
      num_heads(check_heads(embed, heads)),
      options(given),
      in_proj_weight(*this, "in_proj_weight"),
      q_proj_weight(*this, "q_proj_weight"),
      k_proj_weight(*this, "k_proj_weight"),
      v_proj_weight(*this, "v_proj_weight"),
      in_proj_bias(*this, "in_proj_bias", given.bias ? empty({3 * embed}) : Tensor()),
      bias_k(*this, "bias_k", given.add_bias_kv ? empty({1, 1, embed}) : Tensor()),
      bias_v(*this, "bias_v", given.add_bias_kv ? empty({1, 1, embed}) : Tensor()),
      out_proj(*this, "out_proj", embed, embed, {.bias = given.bias}) {
  const int64_t kdim = options.kdim.value_or(embed), vdim = options.vdim.value_or(embed);
  if (kdim == embed && vdim == embed) {
    in_proj_weight = empty({3 * embed, embed});
  } else {
    q_proj_weight = empty({embed, embed});
    k_proj_weight = empty({embed, kdim});
    v_proj_weight = empty({embed, vdim});
  }
  reset_parameters();
}

void MultiheadAttention::reset_parameters() {
  for (const Tensor* weight : {&in_proj_weight, &q_proj_weight, &k_proj_weight, &v_proj_weight})
    if (weight->defined()) init::xavier_uniform_(*weight);
  if (in_proj_bias.defined()) init::zeros_(in_proj_bias), init::zeros_(out_proj.bias);
  if (bias_k.defined()) init::xavier_normal_(bias_k), init::xavier_normal_(bias_v);
}

MultiheadAttention::Heads MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                      const Tensor& value) const {
  const int64_t E = embed_dim, head_dim = E / num_heads;
  // What goes in is [a, b, features], with the batch first or second.
  const Shape order = options.batch_first ? Shape{0, 2, 1, 3} : Shape{1, 2, 0, 3};
  const auto heads = [&](const Tensor& x) {
    return x.reshape({x.size(0), x.size(1), num_heads, head_dim}).permute(order);
  };
  const auto bias = [&](int64_t block, int64_t count) {
    return in_proj_bias.defined() ? in_proj_bias.narrow(0, block * E, count * E) : Tensor();
  };
  if (!in_proj_weight.defined())
    return {heads(linear(query, q_proj_weight, bias(0, 1))), heads(linear(key, k_proj_weight, bias(1, 1))),
            heads(linear(value, v_proj_weight, bias(2, 1)))};
  const auto weight = [&](int64_t block, int64_t count) { return in_proj_weight.narrow(0, block * E, count * E); };
  const auto block = [&](const Tensor& x, int64_t i) { return heads(x.narrow(2, i * E, E)); };
  if (query.is_same(key) && key.is_same(value)) {
    const Tensor all = linear(query, in_proj_weight, in_proj_bias);
    return {block(all, 0), block(all, 1), block(all, 2)};
  }
  const Tensor q = linear(query, weight(0, 1), bias(0, 1));
  if (key.is_same(value)) {
    const Tensor both = linear(key, weight(1, 2), bias(1, 2));
    return {heads(q), block(both, 0), block(both, 1)};
  }
  return {heads(q), heads(linear(key, weight(1, 1), bias(1, 1))), heads(linear(value, weight(2, 1), bias(2, 1)))};
}

MultiheadAttentionOutput MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const MultiheadAttentionCallOptions& given) const {
  REEL_CHECK(query.defined() && key.defined() && value.defined(), kName, ": undefined tensor");
  const int64_t rank = query.dim(), kdim = options.kdim.value_or(embed_dim), vdim = options.vdim.value_or(embed_dim);
  REEL_CHECK((rank == 2 || rank == 3) && key.dim() == rank && value.dim() == rank && query.size(-1) == embed_dim &&
                 key.size(-1) == kdim && value.size(-1) == vdim,
             kName, ": expected query, key and value of 2 or 3 dimensions with ", embed_dim, ", ", kdim, " and ", vdim,
             " features, got shapes ", query.shape(), ", ", key.shape(), " and ", value.shape());
  if (rank == 2) {
    const int64_t batch = options.batch_first ? 0 : 1;
    const bool one = query.is_same(key) && key.is_same(value), pair = key.is_same(value);
    const Tensor q = query.unsqueeze(batch), k = one ? q : key.unsqueeze(batch), v = pair ? k : value.unsqueeze(batch);
    const MultiheadAttentionOutput result = forward(q, k, v, given);
    return {result.output.squeeze(batch), given.need_weights ? result.weights.squeeze(0) : Tensor()};
  }
  const int64_t batch = options.batch_first ? 0 : 1, n = query.size(batch), l = query.size(1 - batch),
                s = key.size(1 - batch);
  REEL_CHECK(key.size(batch) == n && value.size(batch) == n && value.size(1 - batch) == s, kName,
             ": batches or lengths of query, key and value differ, shapes ", query.shape(), ", ", key.shape(), " and ",
             value.shape());
  auto [q, k, v] = project(query, key, value);
  const auto append = [&](Tensor& x, const Tensor& for_all) {
    x = cat({x, for_all.reshape({1, num_heads, 1, -1}).expand({n, num_heads, 1, x.size(3)})}, 2);
  };
  if (bias_k.defined()) append(k, bias_k), append(v, bias_v);
  if (options.add_zero_attn) {
    const Tensor zero = zeros({embed_dim}, {.dtype = q.dtype(), .device = q.device()});
    append(k, zero), append(v, zero);
  }
  const bool is_causal = given.is_causal && !given.attn_mask.defined() && !given.key_padding_mask.defined() &&
                         k.size(2) == s;  // and that is all: no mask has to be made for it
  const Tensor mask = is_causal ? Tensor() : merged_mask(given, q, n, num_heads, l, s, k.size(2) - s);
  const Attended attended =
      attend(kName, q, k, v, {.mask = mask, .dropout = is_training() ? options.dropout : 0, .is_causal = is_causal},
             given.need_weights);
  const Tensor joined = options.batch_first ? attended.output.permute({0, 2, 1, 3}).reshape({n, l, embed_dim})
                                            : attended.output.permute({2, 0, 1, 3}).reshape({l, n, embed_dim});
  Tensor weights;
  if (given.need_weights) weights = given.average_attn_weights ? mean(attended.weights, 1) : attended.weights;
  return {out_proj(joined), weights};
}

}  // namespace reel::nn
