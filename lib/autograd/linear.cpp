#include "lib/autograd/linear.h"

#include "lib/autograd/backward.h"
#include "lib/functors/pointwise.h"
#include "lib/kernels/reduce.h"

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

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const View& view = view_of(x);
  if (view.shape == shape) return x;
  Shape kept = view.shape;  // the result's as the kernel takes it, of x's rank
  const int lead = view.shape.size() - shape.size();
  for (int d = 0; d < kept.size(); ++d) kept[d] = d < lead ? 1 : shape[d - lead];
  const Tensor y = make_tensor(shape, view.dtype, x.device());
  kernels_of(x).reduce(ReduceOp::kSum, view, make_view(view_of(y).data, kept, contiguous_strides(kept), view.dtype));
  if (recording(x))
    record("sum_to", y, inputs(x),
           [whole = view.shape](Backward& back) { back.set(0, expand_to(back.grad(), whole)); });
  return y;
}

Tensor expand_to(const Tensor& x, const Shape& shape) {
  const View wide = expand_view(view_of(x), shape);
  const Tensor y = alias(x, wide.data, wide.shape, wide.strides);
  // Backward::set sums the gradient to x's shape.
  if (recording(x)) record("expand", y, inputs(x), [](Backward& back) { back.set(0, back.grad()); });
  return y;
}

// ---- parts ----------------------------------------------------------------------------------------------------------

void RegionRule::operator()(Backward& back) const {
  if (back.create_graph())
    back.set(0, embed(back.grad(), whole, offset, strides));
  else
    back.set_region(0, offset, strides, back.grad());
}

Tensor region(const Tensor& x, int64_t offset, const Shape& shape, const Strides& strides) {
  const Tensor from = x.contiguous();
  const View& view = view_of(from);
  const Tensor y = alias(from, view.as<char>() + offset * size_of(view.dtype), shape, strides);
  if (recording(from)) record("region", y, inputs(from), RegionRule{offset, strides, view.shape});
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

Geometry geometry_in_base(const TensorImpl* view) {
  REEL_CHECK(view->base->view.contiguous, "in-place: the base of the view, shape ", view->base->view.shape,
             " with strides ", view->base->view.strides, ", is not contiguous; change a clone() of it");
  const int64_t bytes = static_cast<char*>(view->view.data) - static_cast<char*>(view->base->view.data);
  return {bytes / size_of(view->view.dtype), view->view.shape, view->view.strides};
}

void rebuild_view_history(TensorImpl* impl) {
  REEL_CHECK(impl->in_place != InPlace::kAliasesInput, "in-place: a tensor that shares memory with an input of the ",
             "custom op, checkpoint or backward hook that made it is used after an in-place change of that input, ",
             "which its gradient does not take into account; let the op return a clone()");
  const Tensor base = TensorImpl::share(impl->base), view = TensorImpl::share(impl);
  const bool has_history = needs_grad(base);
  const Geometry part = has_history ? geometry_in_base(impl) : Geometry{};
  impl->history_version = impl->base->history_version;
  detach_history(impl);
  if (has_history) record("view", view, inputs(base), RegionRule{part.offset, part.strides, impl->base->view.shape});
}

}  // namespace reel
