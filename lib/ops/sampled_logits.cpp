#include "lib/device/kernels/sampled.h"
#include "lib/ops/index.h"
#include "lib/ops/sampled.h"

namespace reel {
namespace {

/// Owners and truth for n vectors that have equally many entries.
Tensor owners_of(const LogitEntries& e, int64_t n) {
  if (e.owners.defined()) return e.owners;
  const Tensor rows = arange(0, n, 1, {.dtype = kInt64, .device = e.ids.device()});
  return n ? rows.unsqueeze(1).expand({n, e.ids.numel() / n}).reshape({e.ids.numel()}) : rows;
}
Tensor truth_of(const LogitEntries& e, int64_t n) {
  if (e.truth.defined()) return e.truth;
  const int64_t each = n ? e.ids.numel() / n : 0;
  const Tensor first = arange(0, each, 1, {.dtype = kInt64, .device = e.ids.device()}) == 0;
  return first.unsqueeze(0).expand({n, each}).reshape({n * each});
}

/// The scores, of rows that are made. Gradients of weight and bias are sparse.
Tensor scores_of(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const LogitEntries& e,
                 const Tensor& owners) {
  const auto rows = [&](const Tensor& matrix) { return to_compute(embedding(matrix, e.ids, true)); };
  Tensor scores = sum(rows(weight) * index_select(to_compute(hidden), 0, owners), 1);
  if (bias.defined()) scores = scores + rows(bias);
  return e.shift.defined() ? scores - e.shift.to(scores.dtype()) : scores;
}

Tensor composed_losses(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const LogitEntries& e) {
  const int64_t n = hidden.size(0);
  const Tensor owners = owners_of(e, n), scores = scores_of(hidden, weight, bias, e, owners);
  // log(1 + exp(x)); above 40 that is x to the last bit of a double.
  const Tensor costs = softplus(where(truth_of(e, n), -scores, scores), 1, 40);
  return scatter_add(zeros({n}, {.dtype = scores.dtype(), .device = scores.device()}), 0, owners, costs);
}

/// Entries by their rows: the rows' entries are order[begins[r]] … of the row ids[r].
struct Grouped {
  Tensor order, ids, begins;
};
Grouped grouped(const Tensor& ids) {
  const int64_t m = ids.numel();
  const auto [sorted, order] = sort(ids);
  const Tensor changes = nonzero(sorted.narrow(0, 1, m - 1) != sorted.narrow(0, 0, m - 1)).squeeze(1) + 1;
  const TensorOptions options{.dtype = kInt64, .device = ids.device()};
  const Tensor begins = cat({zeros({1}, options), changes, full({1}, m, options)});
  return {order, index_select(sorted, 0, begins.narrow(0, 0, begins.numel() - 1)), begins};
}

struct LogitsRule {
  SavedTensor hidden, weight, bias, ids, bounds, owners, truth, shift, slope, unit_grad;
  Shape shape;  // of weight

  void operator()(Backward& back) const {
    const LogitEntries e{back.get(ids), read(back, bounds), read(back, owners), read(back, truth), read(back, shift)};
    back.create_graph() ? composed(back, e) : fused(back, e);
  }

 private:
  static Tensor read(Backward& back, const SavedTensor& saved) { return saved.defined() ? back.get(saved) : Tensor(); }

  void fused(Backward& back, const LogitEntries& e) const {
    const Tensor g = back.grad().contiguous();
    if (back.needs(0)) back.set(0, back.get(unit_grad) * g.unsqueeze(1));
    const bool for_rows = back.needs(1), for_bias = back.needs(2);
    if (!for_rows && !for_bias) return;
    const int64_t m = e.ids.numel();
    const TensorOptions like{.dtype = g.dtype(), .device = g.device()};
    if (m == 0) {
      if (for_rows) back.set(1, zeros(shape, like));
      if (for_bias) back.set(2, zeros({shape[0]}, like));
      return;
    }
    const auto [order, distinct, begins] = grouped(e.ids);
    const Tensor h = back.get(hidden).contiguous(), slopes = back.get(slope);
    const int64_t count = distinct.numel(), width = shape[1];
    Tensor of_rows, of_bias;
    if (for_rows) of_rows = make_tensor({count, width}, g.dtype(), g.device());
    if (for_bias) of_bias = make_tensor({count}, g.dtype(), g.device());
    kernels_of(g).sampled_logits_grad({.dtype = g.dtype(),
                                       .width = width,
                                       .count = count,
                                       .entries = m,
                                       .hidden = view_of(h).data,
                                       .slope = view_of(slopes).data,
                                       .grad = view_of(g).data,
                                       .owners = e.owners.defined() ? view_of(e.owners).as<const int64_t>() : nullptr,
                                       .each = m / g.numel(),
                                       .order = view_of(order).as<const int64_t>(),
                                       .begins = view_of(begins).as<const int64_t>(),
                                       .of_rows = for_rows ? view_of(of_rows).data : nullptr,
                                       .of_bias = for_bias ? view_of(of_bias).data : nullptr});
    if (for_rows) back.set_rows(1, distinct, std::move(of_rows), true);
    if (for_bias) back.set_rows(2, distinct, std::move(of_bias), true);
  }

  /// In ops that can be differentiated.
  void composed(Backward& back, const LogitEntries& e) const {
    const Tensor h = back.get(hidden), w = back.get(weight), b = read(back, bias), g = back.grad();
    const Tensor of = owners_of(e, h.size(0)), scores = scores_of(h, w, b, e, of);
    const Tensor truths = truth_of(e, h.size(0)), p = sigmoid(where(truths, -scores, scores));
    const Tensor slopes = where(truths, -p, p) * index_select(g, 0, of), column = slopes.unsqueeze(1);
    const auto nothing = [&](const Shape& like) { return zeros(like, {.dtype = g.dtype(), .device = g.device()}); };
    if (back.needs(0)) back.set(0, add_slices(nothing(h.shape()), 0, of, column * index_select(w, 0, e.ids)));
    if (back.needs(1)) back.set(1, add_slices(nothing(shape), 0, e.ids, column * index_select(h, 0, of)));
    if (back.needs(2)) back.set(2, add_slices(nothing({shape[0]}), 0, e.ids, slopes));
  }
};

}  // namespace

Tensor logistic_losses(const char* op, const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                       const LogitEntries& e) {
  const DType dtype = hidden.dtype();
  check_device(op, hidden, {&weight, &bias, &e.ids, &e.shift});
  check_range(op, e.ids, 0, weight.size(0), 0);
  const bool one_type = compute_dtype(dtype) == dtype && weight.dtype() == dtype &&
                        (!bias.defined() || bias.dtype() == dtype) && (!e.shift.defined() || e.shift.dtype() == dtype);
  if (!one_type || recording(e.shift)) return composed_losses(hidden, weight, bias, e);

  const auto dense = [](const Tensor& x) { return no_grad([&] { return x.contiguous(); }); };
  const int64_t n = hidden.size(0), width = hidden.size(1), m = e.ids.numel();
  const Tensor h = dense(hidden), w = view_of(weight).strides[1] == 1 ? weight : dense(weight);
  const Tensor b = bias.defined() ? dense(bias) : bias, shift = e.shift.defined() ? dense(e.shift) : e.shift;
  const Tensor y = make_tensor({n}, dtype, hidden.device()), slope = make_tensor({m}, dtype, hidden.device());
  Tensor unit_grad;
  if (recording(hidden)) unit_grad = make_tensor({n, width}, dtype, hidden.device());
  const auto data = [](const Tensor& x) { return x.defined() ? view_of(x).data : nullptr; };
  kernels_of(y).sampled_logits({.dtype = dtype,
                                .n = n,
                                .width = width,
                                .entries = m,
                                .hidden = data(h),
                                .weight = data(w),
                                .rows = weight.size(0),
                                .stride = view_of(w).strides[0],
                                .bias = data(b),
                                .ids = view_of(e.ids).as<const int64_t>(),
                                .bounds = e.bounds.defined() ? view_of(e.bounds).as<const int64_t>() : nullptr,
                                .truth = e.truth.defined() ? view_of(e.truth).as<const bool>() : nullptr,
                                .shift = data(shift),
                                .loss = data(y),
                                .slope = data(slope),
                                .unit_grad = data(unit_grad)});
  if (recording(hidden, weight, bias)) {
    const auto saved = [](const Tensor& x) { return saved_if(x.defined(), x); };
    record(op, y, inputs(hidden, weight, bias),
           LogitsRule{SavedTensor(hidden), SavedTensor(weight), saved(bias), SavedTensor(e.ids), saved(e.bounds),
                      saved(e.owners), saved(e.truth), saved(shift), SavedTensor(slope), saved(unit_grad),
                      view_of(weight).shape});
  }
  return y;
}

}  // namespace reel
