#include "lib/cpu/halves.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/parts.h"

namespace reel::cpu {
namespace {

int64_t volume(const std::array<int64_t, 3>& size) { return size[0] * size[1] * size[2]; }

}  // namespace

View distinct(const View& v) {
  View result = v;
  for (int d = 0; d < v.shape.size(); ++d)
    if (v.strides[d] == 0 && v.shape[d] > 1) result.numel /= v.shape[d], result.shape[d] = 1;
  return result;
}

Widened::Widened() : exceptions_(std::uncaught_exceptions()) {}

Widened::~Widened() {
  const bool written = std::uncaught_exceptions() == exceptions_;
  for (const Operand& o : operands_) {
    if (written && o.role & kOut) copy(o.wide, o.half);
    if (o.bytes) release_cpu(o.wide.data, o.bytes);
  }
}

const View& Widened::in(const View& x) { return take(x, kIn); }
const View* Widened::in(const View* x) { return x ? &in(*x) : nullptr; }
const View& Widened::out(const View& y) { return take(y, kOut); }
const View& Widened::in_out(const View& y) { return take(y, kInOut); }

const View& Widened::take(const View& half, Role role) {
  if (!is_half(half.dtype)) return half;
  const View from = distinct(half);
  const size_t bytes = static_cast<size_t>(from.numel) * sizeof(float);
  Operand& operand = operands_.emplace_back(Operand{half, from, 0, role});
  View& wide = operand.wide;
  wide.data = bytes ? allocate_cpu(bytes) : nullptr;
  operand.bytes = bytes;
  wide.dtype = kFloat32;
  wide.contiguous = true;
  int64_t stride = 1;
  for (int d = from.shape.size() - 1; d >= 0; --d) wide.strides[d] = stride, stride *= from.shape[d];
  if (role & kIn) copy(from, wide);
  for (int d = 0; d < half.shape.size(); ++d)
    if (half.shape[d] != from.shape[d]) wide.shape[d] = half.shape[d], wide.strides[d] = 0, wide.contiguous = false;
  wide.numel = half.numel;
  return wide;
}

std::span<const Updated> Widened::in(std::span<const Updated> tensors) { return take(tensors, kIn); }
std::span<const Updated> Widened::in_out(std::span<const Updated> tensors) { return take(tensors, kInOut); }

std::span<const Updated> Widened::take(std::span<const Updated> tensors, Role role) {
  tensors_.assign(tensors.begin(), tensors.end());
  for (Updated& t : tensors_) {
    replace(t.p, t.dtype, t.numel, role);
    t.dtype = kFloat32;
  }
  return tensors_;
}

std::span<const Updated> Widened::of_update(std::span<const Updated> parameters) {
  take(parameters, kInOut);
  for (size_t i = 0; i < parameters.size(); ++i) replace(tensors_[i].g, parameters[i].dtype, parameters[i].numel, kIn);
  return tensors_;
}

/// nullptr stays.
template <class T>
void Widened::replace(T*& data, DType dtype, const Shape& shape, const Strides& strides, Role role) {
  View view = flat_view(data, dtype, shape.numel());
  view.contiguous = false;  // even if they are: it is a matter of speed only
  view.shape = shape, view.strides = strides;
  if (data) data = take(view, role).data;
}
template <class T>
void Widened::replace(T*& data, DType dtype, int64_t n, Role role) {
  if (data) data = take(flat_view(data, dtype, n), role).data;
}

Cell Widened::of(Cell c) {
  const DType half = std::exchange(c.dtype, kFloat32);
  const int64_t states = c.rows * c.hidden, gates = states * (3 + c.children);
  replace(c.gates, half, gates, kIn);
  sources_.assign(c.child_c, c.child_c + c.children);
  for (const void*& child : sources_) replace(child, half, states, kIn);
  c.child_c = sources_.data();
  for (void** result : {&c.h, &c.c, &c.tanh_c}) replace(*result, half, states, kOut);
  replace(c.activated, half, gates, kOut);
  return c;
}

Cell Widened::of_grad(Cell c) {
  const DType half = std::exchange(c.dtype, kFloat32);
  const int64_t states = c.rows * c.hidden, gates = states * (3 + c.children);
  sources_.assign(c.child_c, c.child_c + c.children);
  for (const void*& child : sources_) replace(child, half, states, kIn);
  c.child_c = sources_.data();
  replace(c.activated, half, gates, kIn);
  replace(c.tanh_c, half, states, kIn);
  replace(c.grad_h, half, states, kIn);
  replace(c.grad_c, half, states, kIn);
  replace(c.grad_gates, half, gates, kOut);
  if (!c.grad_child_c) return c;
  targets_.assign(c.grad_child_c, c.grad_child_c + c.children);
  for (void*& child : targets_) replace(child, half, states, kOut);
  c.grad_child_c = targets_.data();
  return c;
}

Convolution Widened::of(ConvPart wanted, Convolution c) {
  const DType half = std::exchange(c.dtype, kFloat32);
  const int64_t sizes[] = {c.n * c.in * volume(c.x_size), c.out * (c.in / c.groups) * volume(c.kernel),
                           c.n * c.out * volume(c.y_size)};
  for (const ConvPart part : {kConvX, kConvWeight, kConvY})
    replace(c.data[part], half, sizes[part], part == wanted ? kOut : kIn);
  replace(c.bias, half, c.out, kIn);
  c.packed = nullptr;  // copies of halves
  return c;
}

Convolution Widened::of_windows(Convolution c, bool to_columns) {
  const DType half = std::exchange(c.dtype, kFloat32);
  replace(c.data[kConvX], half, c.n * c.in * volume(c.x_size), to_columns ? kIn : kOut);
  replace(c.data[kConvY], half, c.n * c.in * volume(c.kernel) * volume(c.y_size), to_columns ? kOut : kIn);
  return c;
}

Gemm Widened::of(Gemm g) {
  const DType half = std::exchange(g.dtype, kFloat32);
  const auto matrix = [&](auto*& data, int64_t rows, int64_t columns, int64_t& ld, int64_t& stride, Role role) {
    replace(data, half, {g.batch, rows, columns}, {stride, ld, 1}, role);
    if (stride != 0) stride = rows * columns;
    ld = std::max<int64_t>(columns, 1);
  };
  g.trans_a ? matrix(g.a, g.k, g.m, g.lda, g.stride_a, kIn) : matrix(g.a, g.m, g.k, g.lda, g.stride_a, kIn);
  g.trans_b ? matrix(g.b, g.n, g.k, g.ldb, g.stride_b, kIn) : matrix(g.b, g.k, g.n, g.ldb, g.stride_b, kIn);
  matrix(g.c, g.m, g.n, g.ldc, g.stride_c, g.beta == 0 ? kOut : kInOut);
  replace(g.bias, half, g.n, kIn);
  return g;
}

Recurrence Widened::of(Recurrence r) {
  const DType half = std::exchange(r.dtype, kFloat32);
  const int64_t gates = gate_count(r.kind) * r.hidden;
  replace(r.w_hh, half, gates * r.width, kIn);
  replace(r.b_hh, half, gates, kIn);
  replace(r.w_hr, half, r.width * r.hidden, kIn);
  replace(r.mask, half, r.rows * r.width, kIn);
  replace(r.masked, half, r.rows * r.width, kScratch);
  replace(r.gates, half, r.total * gates, r.h_before ? kInOut : kIn);  // activated gates are read by backward alone
  replace(r.h, half, r.rows * r.width, kInOut);
  replace(r.c, half, r.rows * r.hidden, kInOut);
  replace(r.y, half, {r.total, r.width}, {r.y_stride, 1}, kOut);
  r.y_stride = r.width;
  replace(r.h_before, half, r.total * r.width, kOut);
  replace(r.c_before, half, r.total * r.hidden, kOut);
  replace(r.inner, half, r.total * r.hidden, kOut);
  replace(r.scratch, half, r.rows * gates, kScratch);
  return r;
}

Recurrence Widened::of_grad(Recurrence r) {
  const DType half = std::exchange(r.dtype, kFloat32);
  const int64_t gates = gate_count(r.kind) * r.hidden;
  replace(r.w_hh, half, gates * r.width, kIn);
  replace(r.w_hr, half, r.width * r.hidden, kIn);
  replace(r.mask, half, r.rows * r.width, kIn);
  replace(r.masked, half, r.rows * r.width, kScratch);
  replace(r.gates, half, r.total * gates, kIn);
  replace(r.h_before, half, r.total * r.width, kIn);
  replace(r.c_before, half, r.total * r.hidden, kIn);
  replace(r.inner, half, r.total * r.hidden, kIn);
  replace(r.scratch, half, r.rows * gates, kScratch);
  replace(r.grad_y, half, {r.total, r.width}, {r.y_stride, 1}, kIn);
  r.y_stride = r.width;
  replace(r.grad_h, half, r.rows * r.width, kInOut);
  replace(r.grad_c, half, r.rows * r.hidden, kInOut);
  replace(r.grad_gates, half, r.total * gates, kOut);
  replace(r.grad_hidden, half, r.total * gates, kOut);
  replace(r.grad_projected, half, r.total * r.width, kOut);
  return r;
}

void update_halves(KernelTable::Update kernel, const void* functor, const View& p, const View& g,
                   const View* const* states, const View* ids) {
  if (!ids) return kernel(functor, Widened().in_out(p), Widened().in(g), states, nullptr);
  if (ids->numel == 0) return;
  const int64_t n = g.numel / ids->numel;
  const auto row = [n](const View& all, int64_t i) {
    return flat_view(all.as<const char>() + i * n * size_of(all.dtype), all.dtype, n);
  };
  for (int64_t i = 0; i < ids->numel; ++i) {
    const int64_t id = ids->as<const int64_t>()[i];
    View rows[functors::kMaxStates];
    const View* of_row[functors::kMaxStates] = {};
    for (int s = 0; s < functors::kMaxStates; ++s)
      if (states[s]) rows[s] = row(*states[s], id), of_row[s] = &rows[s];
    kernel(functor, Widened().in_out(row(p, id)), Widened().in(row(g, i)), of_row, nullptr);
  }
}

void index_add_halves(decltype(KernelTable::index_add) kernel, AddRows add_rows, const View& y, int dim,
                      const View& ids, const View& from) {
  constexpr int64_t kShort = 32;  // halves of a row, for which the ids take longer to sort than all of y to widen
  const int64_t n = ids.numel, size = y.shape.empty() ? 1 : y.shape[dim];
  int64_t outer = 1;
  for (int d = 0; d < dim; ++d) outer *= y.shape[d];
  const int64_t inner = y.numel / (outer * size);
  if (y.shape.empty() || (n >= size && inner < kShort) || !y.contiguous || !from.contiguous)
    return kernel(Widened().in_out(y), dim, ids, Widened().in(from));
  ScratchVector<std::pair<int64_t, int64_t>> order;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = ids.as<const int64_t>()[ids.shape.empty() ? 0 : i * ids.strides[0]];
    order.emplace_back(id < 0 ? id + y.shape[dim] : id, i);
  }
  if (!std::is_sorted(order.begin(), order.end())) std::sort(order.begin(), order.end());
  ScratchVector<int64_t> rows, firsts;  // in that order; where the ids of each slice begin among them
  for (const auto& [id, i] : order) {
    if (rows.empty() || id != order[rows.size() - 1].first) firsts.push_back(static_cast<int64_t>(rows.size()));
    rows.push_back(i);
  }
  firsts.push_back(n);
  parallel_for(static_cast<int64_t>(firsts.size()) - 1, std::max<int64_t>(part_size / (outer * inner), 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t slice = begin; slice < end; ++slice)
                   for (int64_t o = 0; o < outer; ++o) {
                     const int64_t first = firsts[slice], place = o * size + order[first].first;
                     add_rows(y.dtype, y.as<BFloat16>() + place * inner, from.as<const BFloat16>() + o * n * inner,
                              {rows.data() + first, static_cast<size_t>(firsts[slice + 1] - first)}, inner);
                   }
               });
}

void norm_grad(void (*kernel)(const Norm&), const Norm& norm) {
  const int64_t n = norm.groups * norm.channels;
  const Scratch sums(2 * static_cast<size_t>(n) * sizeof(double));
  std::fill_n(sums.data<double>(), 2 * n, 0.0);
  Norm call = norm;
  if (norm.grad_weight) call.grad_weight = sums.data<double>();
  if (norm.grad_bias) call.grad_bias = sums.data<double>() + n;
  kernel(call);
  const auto round = [&](const void* from, void* to) {
    if (to) copy(flat_view(from, kFloat64, n), flat_view(to, norm.grads_dtype, n));
  };
  round(call.grad_weight, norm.grad_weight);
  round(call.grad_bias, norm.grad_bias);
}

}  // namespace reel::cpu
