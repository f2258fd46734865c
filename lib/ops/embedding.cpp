#include "lib/device/kernels/embedding_bag.h"
#include "lib/ops/index.h"

namespace reel {
namespace {

/// Ids of rows, as contiguous int64. Without `check` the kernel checks them.
Tensor row_ids(const char* op, const Tensor& weight, const Tensor& ids, bool check = true) {
  const Shape& rows = view_of(weight, op).shape;
  const Tensor dense = to_ids(op, weight, ids).contiguous();
  REEL_CHECK(!rows.empty(), op, ": the weight needs a dimension of rows, got a 0-d tensor");
  if (check) check_range(op, dense, 0, rows[0], 0);
  return dense;
}

/// A row counted from 0, or -1 for none.
int64_t padding_row(const char* op, std::optional<int64_t> padding, const Tensor& weight) {
  if (!padding) return -1;
  const int64_t rows = weight.size(0);
  REEL_CHECK(*padding >= -rows && *padding < rows, op, ": padding_idx ", *padding, " is out of range for ", rows,
             " rows");
  return *padding < 0 ? *padding + rows : *padding;
}

/// Delivers g [n, …], the gradients of the rows `ids` [n] of input 0, a matrix of `shape`; not that of `padding`.
void give_rows(Backward& back, Tensor g, const Shape& shape, Tensor ids, int64_t padding, bool sparse) {
  if (padding >= 0 && !sparse && !is_readable(ids)) {
    ids = where(ids == padding, shape[0], ids);  // beyond the last row: added nowhere, and no count is read
  } else if (padding >= 0) {
    const Tensor kept = nonzero(ids != padding).squeeze(1);
    if (kept.numel() < ids.numel()) g = index_select(g, 0, kept), ids = index_select(ids, 0, kept);
  }
  if (view_of(g).numel && !back.create_graph()) return back.set_rows(0, ids, g, sparse);
  back.set(0, add_slices(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), 0, ids, g));
}

/// How often each of the ids [n] in [0, rows) occurs among them, as a column for a gradient of `rank` dimensions.
Tensor frequencies(const Tensor& ids, int64_t rows, DType dtype, int rank) {
  const TensorOptions options{.dtype = kInt64, .device = ids.device()};
  const Tensor counts = scatter_add(zeros({rows}, options), 0, ids, ones(ids.shape(), options));
  Shape column{view_of(ids).numel};
  column.resize(rank, 1);
  return index_select(counts, 0, ids).to(dtype).view(column);
}

}  // namespace

// ---- rows -----------------------------------------------------------------------------------------------------------

Tensor embedding(const Tensor& weight, const Tensor& ids, bool sparse) {
  return embedding(weight, ids, EmbeddingLookup{.sparse = sparse});
}

namespace {
Tensor look_up(const Tensor& weight, const Tensor& ids, const EmbeddingLookup& options) {
  const Tensor dense = row_ids("embedding", weight, ids, false);
  const int64_t padding = padding_row("embedding", options.padding_idx, weight);
  const View &rows = view_of(weight), &at = view_of(dense);
  Shape shape = at.shape, flat = rows.shape;
  flat[0] = at.numel;
  for (int d = 1; d < rows.shape.size(); ++d) shape.push_back(rows.shape[d]);
  const Tensor y = make_tensor(shape, rows.dtype, weight.device());
  IdCheck range{.op = "embedding"};
  if (kernels_of(y).index_select(rows, 0, make_view(at.data, {at.numel}, {1}, kInt64),
                                 make_view(view_of(y).data, flat, contiguous_strides(flat), rows.dtype), &range))
    fail_range(range, rows.shape[0], 0);
  if (recording(weight))
    record("embedding", y, inputs(weight),
           [whole = rows.shape, ids = SavedTensor(dense), padding, by_freq = options.scale_grad_by_freq,
            sparse = options.sparse](Backward& back) {
             const Tensor at = back.get(ids);
             Shape flat = whole;
             flat[0] = at.numel();
             const Tensor list = at.dim() == 1 ? at : at.reshape({flat[0]});
             Tensor g = back.grad().reshape(flat);
             if (by_freq) g = g / frequencies(list, whole[0], g.dtype(), flat.size());
             const Tensor kept = sparse ? back.rows_in_pass(flat[0]) : Tensor();
             if (!kept.defined()) return give_rows(back, g, whole, list, padding, sparse);
             give_rows(back, index_select(g, 0, kept), whole, index_select(list, 0, kept), padding, sparse);
           });
  return y;
}
}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids, const EmbeddingLookup& options) {
  // The frequencies are those of one call.
  return call(
      options.scale_grad_by_freq ? Op("embedding(one call)") : Op("embedding"), {weight, ids},
      {{"padding_idx", options.padding_idx.value_or(std::numeric_limits<int64_t>::min())}, {"sparse", options.sparse}},
      [&](const Tensor& weight, const Tensor& ids) { return look_up(weight, ids, options); });
}

Tensor embedding_renorm_(Tensor weight, const Tensor& ids, double max_norm, double norm_type) {
  constexpr const char* op = "embedding_renorm_";
  const Tensor at = row_ids(op, weight, ids).reshape({ids.numel()});
  REEL_CHECK(weight.dim() == 2 && weight.is_floating_point(), op, ": expected a matrix of floats, got ", weight.dtype(),
             " ", weight.shape());
  REEL_CHECK(max_norm >= 0, op, ": max_norm is ", max_norm);
  NoGrad guard;
  const auto norms_of = [&](const Tensor& rows) { return norm(to_compute(rows), norm_type, 1, true); };
  const Tensor norms =
      at.numel() < weight.size(0) ? norms_of(index_select(weight, 0, at)) : index_select(norms_of(weight), 0, at);
  const Tensor longer = nonzero(norms.flatten() > max_norm).flatten(), changed = index_select(at, 0, longer);
  const Tensor scale = max_norm / (index_select(norms, 0, longer) + 1e-7);
  weight.index_put_({changed}, (to_compute(index_select(weight, 0, changed)) * scale).to(weight.dtype()));
  return weight;
}

// ---- bags -----------------------------------------------------------------------------------------------------------

namespace {

constexpr const char* kBag = "embedding_bag";

/// Where each bag begins and where the last one ends: int64 [bags + 1], where the ids are. The offsets may be
/// elsewhere: on the CPU, to check them waits for no GPU.
Tensor bag_bounds(const Tensor& ids, const EmbeddingBagLookup& options) {
  const Tensor& offsets = options.offsets;
  if (ids.dim() == 2) {
    REEL_CHECK(!offsets.defined(), kBag, ": ids of shape ", ids.shape(), " are bags already, and offsets are given");
    return arange(ids.size(0) + 1, {.dtype = kInt64, .device = ids.device()}) * ids.size(1);
  }
  REEL_CHECK(ids.dim() == 1, kBag, ": expected ids of 1 or 2 dimensions, got shape ", ids.shape());
  REEL_CHECK(offsets.defined() && offsets.dim() == 1 && (offsets.dtype() == kInt64 || offsets.dtype() == kInt32), kBag,
             ": 1-d ids need 1-d int64 offsets");
  const int64_t n = ids.numel();
  Tensor bounds = offsets.to(kInt64).contiguous();
  if (!options.include_last_offset) bounds = cat({bounds, full({1}, n, {.dtype = kInt64, .device = bounds.device()})});
  const int64_t count = bounds.numel();
  REEL_CHECK(count > 0, kBag, ": include_last_offset and no offset");
  const bool ascending = all(bounds.narrow(0, 0, count - 1) <= bounds.narrow(0, 1, count - 1)).item<bool>();
  REEL_CHECK(bounds[0].item<int64_t>() == (count > 1 ? 0 : n) && bounds[count - 1].item<int64_t>() == n && ascending,
             kBag, ": the offsets must ascend from 0 to at most ", n, ", the number of ids",
             options.include_last_offset ? ", and end with it" : "");
  return bounds.to(ids.device());
}

void check_bags(const Tensor& weight, const Tensor& ids, const EmbeddingBagLookup& options) {
  view_of(weight, kBag), view_of(ids, kBag);
  REEL_CHECK(weight.dim() == 2 && weight.is_floating_point(), kBag, ": expected a matrix of floats, got ",
             weight.dtype(), " ", weight.shape());
  REEL_CHECK(options.mode == Reduce::kSum || options.mode == Reduce::kMean || options.mode == Reduce::kMax, kBag,
             ": a bag is summed, averaged or searched for its largest elements");
  REEL_CHECK(options.mode != Reduce::kMax || !(options.sparse || options.scale_grad_by_freq), kBag,
             ": kMax has no gradients that are sparse or scaled by frequency");
  const Tensor& factors = options.per_sample_weights;
  if (!factors.defined()) return;
  REEL_CHECK(options.mode == Reduce::kSum, kBag, ": per_sample_weights go with sums only");
  REEL_CHECK(factors.shape() == ids.shape() && factors.dtype() == weight.dtype(), kBag,
             ": expected per_sample_weights of ", weight.dtype(), " ", ids.shape(), ", got ", factors.dtype(), " ",
             factors.shape());
}

Tensor reduce_bags(const Tensor& weight, const Tensor& ids, const EmbeddingBagLookup& options) {
  check_bags(weight, ids, options);
  const Tensor at = row_ids(kBag, weight, ids), flat = at.view({at.numel()});
  const int64_t padding = padding_row(kBag, options.padding_idx, weight);
  check_device(kBag, weight, {&options.per_sample_weights});
  const Tensor bounds = bag_bounds(at, options);
  const int64_t bags = bounds.numel() - 1, width = weight.size(1), n = flat.numel();
  const bool max = options.mode == Reduce::kMax, mean = options.mode == Reduce::kMean;
  const Tensor factors = options.per_sample_weights.defined() ? options.per_sample_weights.reshape({n}).contiguous()
                                                              : options.per_sample_weights;
  const Tensor matrix = view_of(weight).strides[1] == 1 ? weight : no_grad([&] { return weight.contiguous(); });

  const Device device = weight.device();
  const bool recorded = !max && recording(weight, factors);
  const Tensor bag = make_tensor({recorded ? n : 0}, kInt64, device), count = make_tensor({bags}, kInt64, device);
  const Tensor y = make_tensor({bags, width}, max ? kInt64 : weight.dtype(), device);
  kernels_of(weight).embedding_bag({.dtype = weight.dtype(),
                                    .max = max,
                                    .mean = mean,
                                    .bags = bags,
                                    .width = width,
                                    .weight = view_of(matrix).data,
                                    .rows = weight.size(0),
                                    .stride = view_of(matrix).strides[0],
                                    .ids = view_of(flat).as<const int64_t>(),
                                    .bounds = view_of(bounds).as<const int64_t>(),
                                    .factors = factors.defined() ? view_of(factors).data : nullptr,
                                    .padding = padding,
                                    .out = view_of(y).data,
                                    .bag = recorded ? view_of(bag).as<int64_t>() : nullptr,
                                    .count = view_of(count).as<int64_t>()});
  if (max) {  // y says in which row the largest element is; empty bags take it from row 0, where there is one
    if (weight.size(0) == 0) return sum(weight, 0, true).expand({bags, width}).clone();  // zeros, recorded
    return masked_fill(gather(weight, 0, y), (count == 0).unsqueeze(1), 0);
  }
  if (recorded)
    record(kBag, y, inputs(weight, factors),
           [ids = SavedTensor(flat), bag = SavedTensor(bag), count = saved_if(mean, count),
            factors = saved_if(factors.defined(), factors), weight = saved_if(needs_grad(factors), weight),
            shape = view_of(weight).shape, padding, by_freq = options.scale_grad_by_freq,
            sparse = options.sparse](Backward& back) {
             const Tensor at = back.get(ids);
             Tensor g = back.grad();
             if (count.defined()) g = g / maximum(back.get(count), 1).unsqueeze(1).to(g.dtype());
             g = index_select(g, 0, back.get(bag));
             if (factors.defined() && back.needs(1)) {
               const Tensor products = sum(g * index_select(back.get(weight), 0, at), 1);
               back.set(1, padding < 0 ? products : masked_fill(products, at == padding, 0));
             }
             if (!back.needs(0)) return;
             if (factors.defined()) g = g * back.get(factors).unsqueeze(1);
             if (by_freq) g = g / frequencies(at, shape[0], g.dtype(), 2);
             give_rows(back, g, shape, at, padding, sparse);
           });
  return y;
}

}  // namespace

Tensor embedding_bag(const Tensor& weight, const Tensor& ids, const EmbeddingBagLookup& options) {
  return call("embedding_bag", {weight, ids, options.offsets, options.per_sample_weights},
              {{"mode", static_cast<int>(options.mode)}, {"padding", options.padding_idx.has_value()}},
              [&](const Tensor& weight, const Tensor& ids, const Tensor&, const Tensor&) {
                return reduce_bags(weight, ids, options);
              });
}

}  // namespace reel
