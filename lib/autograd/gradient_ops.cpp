#include "lib/autograd/gradient_ops.h"

#include <optional>

#include "lib/autograd/backward.h"
#include "lib/device/kernels/enums.h"
#include "lib/functors/binary.h"
#include "lib/tensor/op_trace.h"

namespace reel {

// ---- sums -----------------------------------------------------------------------------------------------------------

void add_views(Device device, const View& a, const View& b, const View& sum) {
  constexpr functors::Add add;
  kernels_on(device).binary[functors::index_of<functors::BinaryList, functors::Add>](&add, a, b, sum);
}

namespace {
void check_same_device(const Tensor& a, const Tensor& b) {
  REEL_CHECK(a.device() == b.device(), "backward: gradients of one tensor on different devices, ", a.device(), " and ",
             b.device());
}
}  // namespace

void add_in_place(Tensor& sum, const Tensor& g) {
  check_same_device(sum, g);
  const View& to = view_of(sum);
  for (int d = 0; d < to.shape.size(); ++d)
    REEL_CHECK(to.strides[d] != 0 || to.shape[d] <= 1 || to.numel == 0,
               "backward: a gradient that set_grad has set is expanded, several ",
               "of its elements are one; set a clone() of it");
  add_views(sum.device(), to, view_of(g), to);
  TensorImpl::of(sum)->storage->changed();
}

Tensor accumulate(const Tensor& a, const Tensor& b) {
  const View &av = view_of(a), &bv = view_of(b);
  check_same_device(a, b);
  const Tensor y = make_tensor(av.shape, av.dtype, a.device());
  add_views(a.device(), av, bv, view_of(y));
  if (recording(a, b))
    record("add", y, inputs(a, b), [](Backward& back) {
      for (const int input : {0, 1}) back.set(input, back.grad());
    });
  return y;
}

namespace {
/// Returns the dimension whose size is 2 in `shape` and another in `kept`, if these differ in nothing else, or -1.
int halved_dim(const Shape& shape, const Shape& kept) {
  int halved = -1;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == kept[d]) continue;
    if (halved >= 0 || shape[d] != 2) return -1;
    halved = d;
  }
  return halved;
}
}  // namespace

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const View& view = view_of(x);
  if (view.shape == shape) return x;
  Shape kept = view.shape;  // the result's as the kernel takes it, of x's rank
  const int lead = view.shape.size() - shape.size();
  for (int d = 0; d < kept.size(); ++d) kept[d] = d < lead ? 1 : shape[d - lead];
  const Tensor y = make_tensor(shape, view.dtype, x.device());
  const View sum = make_view(view_of(y).data, kept, contiguous_strides(kept), view.dtype);
  if (const int d = halved_dim(view.shape, kept); d >= 0) {
    const auto half = [&](int64_t i) {
      return make_view(view.as<char>() + i * view.strides[d] * size_of(view.dtype), kept, view.strides, view.dtype);
    };
    add_views(x.device(), half(0), half(1), sum);
  } else {
    kernels_of(x).reduce(ReduceOp::kSum, view, sum);
  }
  if (recording(x))
    record("sum_to", y, inputs(x),
           [whole = view.shape](Backward& back) { back.set(0, expand_to(back.grad(), whole)); });
  return y;
}

Tensor expand_to(const Tensor& x, const Shape& shape) {
  if (is_tracing()) [[unlikely]]
    return traced("expand", {x}, {}, [&] { return expand_to(x, shape); });
  const View wide = expand_view(view_of(x), shape);
  const Tensor y = alias(x, wide.data, wide.shape, wide.strides);
  // Backward::set sums the gradient to x's shape.
  if (recording(x)) record("expand", y, inputs(x), [](Backward& back) { back.set(0, back.grad()); });
  return y;
}

// ---- parts ----------------------------------------------------------------------------------------------------------

void AsStridedBackward::operator()(Backward& back) const {
  if (back.create_graph())
    back.set(0, embed(back.grad(), whole, offset, strides));
  else
    back.set_region(0, offset, strides, back.grad());
}

Tensor region(const Tensor& x, int64_t offset, const Shape& shape, const Strides& strides) {
  const Tensor from = x.contiguous();
  const View& view = view_of(from);
  const Tensor y = alias(from, view.as<char>() + offset * size_of(view.dtype), shape, strides);
  if (recording(from)) record("region", y, inputs(from), AsStridedBackward{offset, strides, view.shape});
  return y;
}

Tensor embed(const Tensor& g, const Shape& shape, int64_t offset, const Strides& strides) {
  Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  Shape distinct = g.shape();
  for (int d = 0; d < distinct.size(); ++d)
    if (strides[d] == 0) distinct[d] = 1;
  const Tensor part = no_grad([&] { return sum_to(g, distinct); });
  const View place = make_view(view_of(y).as<char>() + offset * size_of(g.dtype()), distinct, strides, g.dtype());
  kernels_of(y).copy(view_of(part), place);
  if (recording(g))
    record("embed", y, inputs(g), [offset, strides, part = g.shape()](Backward& back) {
      back.set(0, region(back.grad(), offset, part, strides));
    });
  return y;
}

// ---- views of a base ------------------------------------------------------------------------------------------------

// Where the base has gaps, or its dimensions are permuted, what a view shows need not be a strided part of a row-major
// gradient (a flat view of a transposed matrix is not). It is one of a tensor that is laid out as the base's memory is.

ViewOfBase::ViewOfBase(const TensorImpl* view) {
  const View& base = view->base->view;
  for (int d = 0; d < base.shape.size(); ++d)
    REEL_CHECK(base.strides[d] != 0 || base.shape[d] <= 1, "in-place: the base of the view, shape ", base.shape,
               " with strides ", base.strides,
               ", is expanded, several of its elements are one; change a clone() of it");
  const int64_t bytes = static_cast<char*>(view->view.data) - static_cast<char*>(base.data);
  part = {bytes / size_of(base.dtype), view->view.shape, view->view.strides};
  shape = base.shape, strides = base.strides, row_major = base.contiguous;
}

Shape ViewOfBase::memory() const {
  int64_t last = 0;
  for (int d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
  return {last + 1};
}
Tensor ViewOfBase::as_in_memory(const Tensor& x) const { return row_major ? x : reel::embed(x, memory(), 0, strides); }
Tensor ViewOfBase::from_memory(const Tensor& flat) const { return region(flat, 0, shape, strides).contiguous(); }

Tensor ViewOfBase::of(const Tensor& x) const { return region(as_in_memory(x), part.offset, part.shape, part.strides); }
Tensor ViewOfBase::embed(const Tensor& g) const {
  if (row_major) return reel::embed(g, shape, part.offset, part.strides);
  return from_memory(reel::embed(g, memory(), part.offset, part.strides));
}
Tensor ViewOfBase::without(const Tensor& x) const {
  const Tensor y = no_grad([&] {
    const Tensor whole = row_major ? x.clone() : as_in_memory(x);
    const View& view = view_of(whole);
    kernels_of(x).fill(
        make_view(view.as<char>() + part.offset * size_of(view.dtype), part.shape, part.strides, view.dtype), 0);
    return row_major ? whole : from_memory(whole);
  });
  if (recording(x)) record("without", y, inputs(x), [*this](Backward& back) { back.set(0, without(back.grad())); });
  return y;
}

void rebuild_view_history(TensorImpl* impl) {
  REEL_CHECK(impl->in_place != InPlace::kAliasesInput, "in-place: a tensor that shares memory with an input of the ",
             "custom op, checkpoint or backward hook that made it is used after an in-place change of that input, ",
             "which its gradient does not take into account; let the op return a clone()");
  const Tensor base = TensorImpl::share(impl->base), view = TensorImpl::share(impl);
  const std::optional<ViewOfBase> part = needs_grad(base) ? std::optional<ViewOfBase>(impl) : std::nullopt;
  impl->history_version = impl->base->history_version;
  detach_history(impl);
  if (!part) return;
  if (part->row_major)
    record("view", view, inputs(base), AsStridedBackward{part->part.offset, part->part.strides, part->shape});
  else
    record("view", view, inputs(base), [part = *part](Backward& back) { back.set(0, part.embed(back.grad())); });
}

}  // namespace reel
