#include <algorithm>
#include <cmath>

#include "lib/autograd/subgraph.h"
#include "lib/device/kernels/attention.h"
#include "lib/ops/attention.h"
#include "lib/ops/ragged.h"

namespace reel {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

/// What a call is given but for the tensors, checked.
struct Form {
  std::shared_ptr<const Lengths> query_lengths, key_lengths;
  double scale;
  bool causal;
  int64_t heads, kv_heads, width, value_width;

  RaggedAttention describe(DType dtype, Device device) const {
    const Tensor queries = LengthsOnDevice{*query_lengths, device}.offsets();
    const Tensor keys = LengthsOnDevice{*key_lengths, device}.offsets();
    return {.dtype = dtype,
            .sequences = query_lengths->size(),
            .queries = query_lengths->total(),
            .keys = key_lengths->total(),
            .heads = heads,
            .kv_heads = kv_heads,
            .width = width,
            .value_width = value_width,
            .scale = scale,
            .causal = causal,
            .query_offsets = view_of(queries).as<const int64_t>(),  // kept by the lengths
            .key_offsets = view_of(keys).as<const int64_t>()};
  }
};

/// By ops on padded tensors: with dropout, and for gradients of gradients.
Tensor composed(const Form& form, const Tensor& query, const Tensor& key, const Tensor& value, double dropout) {
  const bool by_heads = query.dim() == 3;
  const auto padded = [&](const Tensor& x, const std::shared_ptr<const Lengths>& lengths) {
    const Tensor all = Ragged{x, lengths}.pad();
    return by_heads ? all.permute({0, 2, 1, 3}) : all.unsqueeze(1);
  };
  const Ragged keys{key, form.key_lengths};
  Tensor mask = keys.mask().unsqueeze(1).unsqueeze(1);
  if (form.causal) {
    const TensorOptions places{.dtype = kInt64, .device = query.device()};
    mask = logical_and(mask, arange(form.query_lengths->longest(), places).unsqueeze(1) >=
                                 arange(form.key_lengths->longest(), places));
  }
  const Tensor y =
      attend(kOp, padded(query, form.query_lengths), padded(key, form.key_lengths), padded(value, form.key_lengths),
             {.mask = mask, .dropout = dropout, .scale = form.scale, .enable_gqa = true}, false)
          .output;
  return Ragged::unpad(by_heads ? y.permute({0, 2, 1, 3}) : y.squeeze(1), form.query_lengths).values;
}

struct AttentionRule {
  Form form;
  SavedTensor query, key, value, y, log_sums;

  void operator()(Backward& back) {
    const Tensor q = back.get(query), k = back.get(key), v = back.get(value);
    if (back.create_graph()) return recorded(back, q, k, v);
    const Tensor out = back.get(y), sums = back.get(log_sums), g = back.grad().contiguous();
    const auto like = [](const Tensor& x) { return make_tensor(x.shape(), x.dtype(), x.device()); };
    Tensor grads[] = {like(q), like(k), like(v)};
    RaggedAttention call = form.describe(q.dtype(), q.device());
    call.query = view_of(q).data, call.key = view_of(k).data, call.value = view_of(v).data;
    call.y = view_of(out).data, call.log_sums = view_of(sums).data, call.grad = view_of(g).data;
    call.grad_query = view_of(grads[0]).data, call.grad_key = view_of(grads[1]).data;
    call.grad_value = view_of(grads[2]).data;
    kernels_of(q).ragged_attention_grad(call);
    for (int i = 0; i < 3; ++i) back.set(i, std::move(grads[i]));
  }

  void recorded(Backward& back, const Tensor& q, const Tensor& k, const Tensor& v) const {
    // Of views of their own, since one tensor may be query, key and value.
    const Tensor ins[] = {q.view(q.shape()), k.view(k.shape()), v.view(v.shape())};
    EdgeList edges;
    for (const Tensor& x : ins) edges.add(x);
    const uint64_t since = next_sequence();
    const Tensor again[] = {composed(form, ins[0], ins[1], ins[2], 0)};
    std::vector<Tensor> found = subgraph_grad(again, {back.grad()}, since, edges.edges, true);
    for (size_t i = 0; i < found.size(); ++i) back.set(static_cast<int>(i), std::move(found[i]));
  }
};

Tensor attend_ragged(const Form& form, const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor q = query.contiguous(), k = key.contiguous(), v = value.contiguous();
  const DType dtype = q.dtype();
  const bool recorded = recording(q, k, v);
  Shape shape = q.shape();
  shape[shape.size() - 1] = form.value_width;
  const Tensor y = make_tensor(shape, dtype, q.device());
  const Tensor sums = recorded ? make_tensor({form.query_lengths->total(), form.heads}, dtype, q.device()) : Tensor();
  RaggedAttention call = form.describe(dtype, q.device());
  call.query = view_of(q).data, call.key = view_of(k).data, call.value = view_of(v).data;
  call.y = view_of(y).data, call.log_sums = recorded ? view_of(sums).data : nullptr;
  kernels_of(q).ragged_attention(call);
  if (recorded)
    record(
        kOp, y, inputs(q, k, v),
        AttentionRule{form, SavedTensor(q), SavedTensor(k), SavedTensor(v), SavedTensor::output(y), SavedTensor(sums)});
  return y;
}

/// In flash form, padded; undefined where the device has no kernel for it.
Tensor attend_flash(const Form& form, const Tensor& query, const Tensor& key, const Tensor& value) {
  const auto all_have_rows = [](const Lengths& lengths) {
    for (int64_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] == 0) return false;
    return true;
  };
  constexpr int64_t kMaxPadding = 4;
  const Lengths &queries = *form.query_lengths, &keys = *form.key_lengths;
  const int64_t longest = std::min(queries.longest(), keys.longest());
  const bool suits = is_half(query.dtype()) && form.width == form.value_width && longest >= min_flash_length &&
                     queries.longest() * queries.size() <= kMaxPadding * queries.total() &&
                     keys.longest() * keys.size() <= kMaxPadding * keys.total();
  if (!suits || !all_have_rows(queries) || !all_have_rows(keys)) return {};
  const bool by_heads = query.dim() == 3;
  const auto padded = [&](const Tensor& x, const std::shared_ptr<const Lengths>& lengths) {
    const Tensor all = Ragged{x, lengths}.pad();
    return by_heads ? all.permute({0, 2, 1, 3}) : all.unsqueeze(1);
  };
  const auto are_whole = [](const Lengths& of) { return of.longest() * of.size() == of.total(); };
  const bool whole = are_whole(queries) && are_whole(keys);
  const auto lengths = [&](const Lengths& of) {
    return whole ? Tensor() : LengthsOnDevice{of, query.device()}.counts().to(kInt32);
  };
  const Tensor y =
      attend_padded(padded(query, form.query_lengths), padded(key, form.key_lengths), padded(value, form.key_lengths),
                    {.is_causal = form.causal, .scale = form.scale, .enable_gqa = form.heads != form.kv_heads},
                    lengths(queries), lengths(keys));
  if (!y.defined()) return {};
  return Ragged::unpad(by_heads ? y.permute({0, 2, 1, 3}) : y.squeeze(1), form.query_lengths).values;
}

/// Returns the values of the result.
Tensor attend_in_each(const Ragged& query, const Ragged& key, const Ragged& value, const AttentionOptions& options) {
  const Tensor &q = detail::rows_of(kOp, query), &k = detail::rows_of(kOp, key), &v = detail::rows_of(kOp, value);
  const DType dtype = q.dtype();
  REEL_CHECK(is_floating_point(dtype) && k.dtype() == dtype && v.dtype() == dtype, kOp,
             ": expected query, key and value of one floating-point type, got ", dtype, ", ", k.dtype(), " and ",
             v.dtype());
  check_device(kOp, q, {&k, &v});
  const int64_t rank = q.dim();
  REEL_CHECK((rank == 2 || rank == 3) && k.dim() == rank && v.dim() == rank && q.size(-1) == k.size(-1) &&
                 (rank == 2 || k.size(1) == v.size(1)),
             kOp, ": expected values [total, E] or [total, heads, E], got shapes ", q.shape(), ", ", k.shape(), " and ",
             v.shape());
  REEL_CHECK(!options.mask.defined(), kOp, ": a mask for sequences of their own lengths");
  REEL_CHECK(options.dropout >= 0 && options.dropout <= 1, kOp, ": dropout must be between 0 and 1, got ",
             options.dropout);
  REEL_CHECK(query.size() == key.size(), kOp, ": ", query.size(), " sequences of queries and ", key.size(), " of keys");
  detail::check_same_lengths(kOp, key, value);
  const int64_t heads = rank == 2 ? 1 : q.size(1), kv_heads = rank == 2 ? 1 : k.size(1);
  REEL_CHECK(heads == kv_heads || (options.enable_gqa && kv_heads > 0 && heads % kv_heads == 0), kOp,
             ": the query's heads are no multiple of the key's and value's, shapes ", q.shape(), ", ", k.shape(),
             " and ", v.shape(), options.enable_gqa ? "" : ", and without enable_gqa they are the same");
  const int64_t width = q.size(-1);
  const Form form{query.lengths,
                  key.lengths,
                  options.scale.value_or(width ? 1 / std::sqrt(width) : 1),
                  options.is_causal,
                  heads,
                  kv_heads,
                  width,
                  v.size(-1)};
  if (heads == 0) return q.narrow(-1, 0, 0).reshape({q.size(0), 0, v.size(-1)});
  if (options.dropout == 0)
    if (const Tensor y = attend_flash(form, q, k, v); y.defined()) return y;
  const Tensor wide_q = to_compute(q), wide_k = to_compute(k), wide_v = to_compute(v);
  const Tensor y = options.dropout > 0 ? composed(form, wide_q, wide_k, wide_v, options.dropout)
                                       : attend_ragged(form, wide_q, wide_k, wide_v);
  return y.to(dtype);
}

}  // namespace

Ragged scaled_dot_product_attention(const Ragged& query, const Ragged& key, const Ragged& value,
                                    const AttentionOptions& options) {
  const Tensor y = call("scaled_dot_product_attention(ragged)", {query.values, key.values, value.values}, {},
                        [&](const Tensor& q, const Tensor& k, const Tensor& v) {
                          return attend_in_each({q, query.lengths}, {k, key.lengths}, {v, value.lengths}, options);
                        });
  return {y, query.lengths};
}

}  // namespace reel
