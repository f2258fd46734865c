#include "reel/tensor.h"

#include <algorithm>
#include <cmath>

#include "lib/autograd/accumulate_grad.h"
#include "lib/autograd/tape.h"
#include "lib/base/copies.h"
#include "lib/base/fibers.h"
#include "lib/device/device.h"
#include "lib/tensor/op_trace.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/tensor/detail/batching.h"

namespace reel {

[[maybe_unused]] static const bool is_only_copy = report_copies();  // when the program or a plug-in is loaded

// ---- life of a tensor -----------------------------------------------------------------------------------------------

void detail::destroy(Counted* counted) {
  auto* impl = static_cast<TensorImpl*>(counted);
  detach_history(impl);
  if (impl->watched) [[unlikely]]
    unwatch(impl);
  // One branch for what most tensors do not have.
  const auto bits = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  if (bits(impl->leaf) | bits(impl->base) | bits(impl->packed)) {
    if (impl->leaf) free_accumulate_grad(impl->leaf);
    if (impl->base) TensorImpl::wrap(impl->base).reset();
    delete impl->packed;
  }
  end_leaf_view(impl);
  impl->storage->drop();
  impl->~TensorImpl();
  release_cpu(impl, sizeof(TensorImpl));
}

void detail::release_only_handle(Counted* counted) {
  if (counted->refs.load(std::memory_order_acquire) != 1) {  // recorded ops refer to it, too
    auto* impl = static_cast<TensorImpl*>(counted);
    drop_unusable_history(impl, impl->graph_refs());
    if (impl->leaf) impl->leaf->drop_recorded_grad();
    if (counted->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  }
  destroy(counted);
}

// Only without elements can strides exceed 63 bits, and then nothing reads them.
static int64_t next_stride(int64_t stride, int64_t size) {
  return __builtin_mul_overflow(stride, std::max<int64_t>(size, 1), &stride) ? 1 : stride;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    strides[d] = step;
    step = next_stride(step, shape[d]);
  }
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != step) return false;
    step *= shape[d];
  }
  return true;
}

View make_view(void* data, const Shape& shape, const Strides& strides, DType dtype) {
  View view;
  view.data = data;
  view.shape = shape;
  view.strides = strides;
  view.dtype = dtype;
  view.numel = shape.numel();
  view.contiguous = is_contiguous(shape, strides) || view.numel == 0;
  return view;
}

View expand_view(const View& view, const Shape& shape) {
  View wide = view;
  wide.shape = wide.strides = shape;
  const int lead = shape.size() - view.shape.size();
  for (int d = 0; d < shape.size(); ++d) {
    const bool repeated = d < lead || (view.shape[d - lead] == 1 && shape[d] != 1);
    wide.strides[d] = repeated ? 0 : view.strides[d - lead];
  }
  wide.numel = shape.numel();
  wide.contiguous = is_contiguous(wide.shape, wide.strides) || wide.numel == 0;
  return wide;
}

Tensor make_tensor(const Shape& shape, DType dtype, Device device) {
  const int64_t numel = shape.numel();
  REEL_CHECK(numel <= INT64_MAX / 8 - 64, "shape ", shape, ": too many bytes for 63 bits");
  Storage* storage = Storage::make(static_cast<size_t>(numel * size_of(dtype)), device, shape, dtype);
  TensorImpl* impl = TensorImpl::make();
  impl->storage = storage;
  View& view = impl->view;
  view.data = storage->data;
  view.numel = numel;
  view.dtype = dtype;
  view.host = device == kCPU;
  view.shape = shape;
  view.strides = shape;
  int64_t step = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    view.strides[d] = step;
    step = next_stride(step, shape[d]);
  }
  return TensorImpl::wrap(impl);
}

Tensor alias(const Tensor& x, void* data, const Shape& shape, const Strides& strides) {
  TensorImpl* source = TensorImpl::of(x);
  TensorImpl* impl = TensorImpl::make();
  impl->storage = source->storage;
  impl->storage->retain();
  impl->view = make_view(data, shape, strides, source->view.dtype);
  impl->view.host = source->view.host;
  if (grad_mode) {
    if (source->in_place >= InPlace::kAliasesInput) impl->in_place = source->in_place;
    set_base(impl, source);
  } else {
    impl->in_place = unrecorded_view(source);
  }
  return TensorImpl::wrap(impl);
}

void leave_base(TensorImpl* view) {
  view->storage->leaf_views.fetch_add(1, std::memory_order_relaxed);
  view->in_place = InPlace::kLeafView;
  TensorImpl::wrap(std::exchange(view->base, nullptr)).reset();
}

void set_base(TensorImpl* view, TensorImpl* source) {
  view->base = source->base ? source->base : source;
  view->base->refs.fetch_add(1, std::memory_order_relaxed);
  view->history_version = view->base->history_version;
}

int wrap_dim(int64_t dim, int rank, const char* op) {
  const int64_t count = std::max(rank, 1);
  REEL_CHECK(dim >= -count && dim < count, op, ": dimension ", dim, " is out of range for a tensor of ", rank,
             " dimensions");
  return static_cast<int>(dim < 0 ? dim + count : dim);
}

// ---- metadata and values --------------------------------------------------------------------------------------------

Tensor::Tensor(Scalar number) {
  const DType dtype = number.is_bool() ? kBool : number.is_integral() ? kInt64 : kFloat64;
  *this = make_tensor({}, dtype);
  TensorImpl* impl = TensorImpl::of(*this);
  if (dtype == kFloat64)
    *impl->view.as<double>() = number.to<double>();
  else if (dtype == kInt64)
    *impl->view.as<int64_t>() = number.to<int64_t>();
  else
    *impl->view.as<bool>() = number.to<bool>();
  impl->is_wrapped_number = true;
}

const Shape& Tensor::shape() const { return view_of(*this, "shape").shape; }
const Strides& Tensor::strides() const { return view_of(*this, "strides").strides; }
int64_t Tensor::size(int64_t dim) const {
  const Shape& sizes = view_of(*this, "size").shape;
  const int d = wrap_dim(dim, sizes.size(), "size");
  REEL_CHECK(!sizes.empty(), "size: a 0-d tensor has no dimension ", dim);
  if (is_tracing()) [[unlikely]]
    note_size_read(*this, d);
  return sizes[d];
}
int64_t Tensor::numel() const { return view_of(*this, "numel").numel; }
DType Tensor::dtype() const { return view_of(*this, "dtype").dtype; }
Device Tensor::device() const { return view_of(*this, "device"), TensorImpl::of(*this)->device(); }
TensorOptions Tensor::options() const { return {.dtype = dtype(), .device = device()}; }
bool Tensor::is_contiguous() const { return view_of(*this, "is_contiguous").contiguous; }
uint32_t Tensor::version() const {
  return view_of(*this, "version"), TensorImpl::of(*this)->storage->version.load(std::memory_order_relaxed);
}

void* Tensor::data(DType wanted) const {
  const View& view = view_of(*this, "data");
  REEL_CHECK(view.dtype == wanted, "data: asked for ", wanted, " elements of a tensor of ", view.dtype, "");
  if (is_tracing()) [[unlikely]]
    host_reads("data", *this);
  return view.data;
}

namespace {
// Returns element i of a contiguous view that the host can read.
Scalar element(const View& view, int64_t i) {
  switch (view.dtype) {
    case kBool: return view.as<bool>()[i];
    case kUInt8: return view.as<uint8_t>()[i];
    case kInt32: return view.as<int32_t>()[i];
    case kInt64: return view.as<int64_t>()[i];
    case kFloat16: return static_cast<float>(view.as<Float16>()[i]);
    case kBFloat16: return static_cast<float>(view.as<BFloat16>()[i]);
    case kFloat32: return view.as<float>()[i];
    default: return view.as<double>()[i];
  }
}

}  // namespace

bool fits(Scalar value, DType dtype) {
  switch (dtype) {
    case kUInt8: return value.fits<uint8_t>();
    case kInt32: return value.fits<int32_t>();
    case kInt64: return value.fits<int64_t>();
    default: return true;
  }
}

namespace {
[[noreturn]] void fail_to_fit(const char* op, Scalar value, DType dtype) {
  if (value.is_floating_point()) detail::fail(op, ": ", value.to<double>(), " does not fit into ", dtype);
  detail::fail(op, ": ", value.to<int64_t>(), " does not fit into ", dtype);
}

// Throws unless `to` can hold each element of a contiguous view that the host can read.
void check_fit(const char* op, const View& from, DType to) {
  const bool narrows = is_floating_point(from.dtype) || from.dtype > to;  // among integers the order is that of ranges
  if (!narrows || is_floating_point(to) || to == kBool) return;
  for (int64_t i = 0; i < from.numel; ++i)
    if (const Scalar value = element(from, i); !fits(value, to)) fail_to_fit(op, value, to);
}
}  // namespace

Scalar Tensor::item() const {
  const View& view = view_of(*this, "item");
  REEL_CHECK(view.numel == 1, "item: the tensor has ", view.numel, " elements, shape ", view.shape);
  if (device() != kCPU) return to(kCPU).item();
  if (op_modes.active) [[unlikely]] {
    if (op_modes.has(OpModes::kBatching))
      static_cast<batching::internal::BatchScheduler*>(fiber_waits.scheduler)->note_item();
    if (is_tracing()) host_reads("item", *this);
  }
  return element(view, 0);
}

Tensor detail::to_host(const char* op, const Tensor& x, DType dtype) {
  const Tensor dense = x.to(kCPU).contiguous();
  check_fit(op, view_of(dense, op), dtype);
  return dense.to(dtype);
}

void record_current_stream(const Tensor& tensor) {
  const Storage& storage = *TensorImpl::of(tensor)->storage;
  DeviceRuntime& device = runtime(storage.device);
  device.record_stream(storage.block, *device.current_stream(storage.device.index));
}

Tensor Tensor::detach() const {
  const View& view = view_of(*this, "detach");
  TensorImpl* impl = TensorImpl::make();
  impl->storage = TensorImpl::of(*this)->storage;
  impl->storage->retain();
  impl->view = view;
  return TensorImpl::wrap(impl);
}

void set_data(const Tensor& target, const Tensor& source) {
  view_of(target, "set_data"), view_of(source, "set_data");
  TensorImpl *to = TensorImpl::of(target), *from = TensorImpl::of(source);
  REEL_CHECK(!to->node, "set_data: the tensor is not a leaf");
  if (to->base) TensorImpl::wrap(std::exchange(to->base, nullptr)).reset();
  from->storage->retain();
  end_leaf_view(to);
  std::exchange(to->storage, from->storage)->drop();
  to->view = from->view;
  to->rectified = false;
  if (to->packed) to->packed->clear();
}

// ---- factories ------------------------------------------------------------------------------------------------------

void check_fits(const char* op, Scalar value, DType dtype) {
  const bool wraps = dtype == kUInt8 && !value.is_floating_point() && value.to<int64_t>() < 0;
  if (!(wraps ? value.to<int64_t>() > -256 : fits(value, dtype))) fail_to_fit(op, value, dtype);
}

namespace {
Tensor filled(const Shape& shape, Scalar value, DType dtype, const TensorOptions& options) {
  if (is_tracing()) [[unlikely]]
    return traced("full", {}, {{"value", value.to<double>()}}, [&] { return filled(shape, value, dtype, options); });
  Tensor result = make_tensor(shape, dtype, options.device);
  kernels_on(options.device).fill(view_of(result), value);
  return result.requires_grad_(options.requires_grad), result;
}
}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  Tensor result = make_tensor(shape, options.dtype.value_or(kFloat32), options.device);
  return result.requires_grad_(options.requires_grad), result;
}
Tensor zeros(const Shape& shape, TensorOptions options) {
  return filled(shape, 0, options.dtype.value_or(kFloat32), options);
}
Tensor ones(const Shape& shape, TensorOptions options) {
  return filled(shape, 1, options.dtype.value_or(kFloat32), options);
}
Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
  const DType natural = value.is_bool() ? kBool : value.is_integral() ? kInt64 : kFloat32;
  const DType dtype = options.dtype.value_or(natural);
  check_fits("full", value, dtype);
  return filled(shape, value, dtype, options);
}
namespace {
TensorOptions like(const char* op, const Tensor& other, TensorOptions options) {
  options.dtype = options.dtype.value_or(view_of(other, op).dtype);
  options.device = other.device();
  return options;
}
}  // namespace
Tensor empty_like(const Tensor& other, TensorOptions options) {
  options = like("empty_like", other, options);
  return empty(other.shape(), options);
}
Tensor full_like(const Tensor& other, Scalar value, TensorOptions options) {
  options = like("full_like", other, options);
  return full(other.shape(), value, options);
}
Tensor zeros_like(const Tensor& other, TensorOptions options) {
  options = like("zeros_like", other, options);
  return zeros(other.shape(), options);
}
Tensor ones_like(const Tensor& other, TensorOptions options) {
  options = like("ones_like", other, options);
  return ones(other.shape(), options);
}

Tensor eye(int64_t n, std::optional<int64_t> m, TensorOptions options) {
  Tensor result = zeros({n, m.value_or(n)}, {.dtype = options.dtype, .device = options.device});
  const View& view = view_of(result);
  const int64_t count = std::min(view.shape[0], view.shape[1]);
  const View diagonal = make_view(view.data, {count}, {view.shape[1] + 1}, view.dtype);
  kernels_of(result).fill(diagonal, 1);
  return result.requires_grad_(options.requires_grad), result;
}

Tensor from_blob(void* data, DType dtype, const Shape& shape, std::function<void()> release) {
  const int64_t numel = shape.numel();
  REEL_CHECK(data || numel == 0, "from_blob: null pointer for shape ", shape);
  TensorImpl* impl = TensorImpl::make();
  impl->storage = Storage::adopt(data, static_cast<size_t>(numel * size_of(dtype)), std::move(release));
  impl->view = make_view(data, shape, contiguous_strides(shape), dtype);
  impl->view.host = true;
  return TensorImpl::wrap(impl);
}

Tensor tensor(const void* data, DType dtype, const Shape& shape, TensorOptions options) {
  Tensor result = make_tensor(shape, options.dtype.value_or(dtype));
  const View& to = view_of(result);
  if (to.numel) {
    const View from = make_view(const_cast<void*>(data), shape, contiguous_strides(shape), dtype);
    check_fit("tensor", from, to.dtype);
    cpu_kernels().copy(from, to);
  }
  result = result.to(options.device);
  return result.requires_grad_(options.requires_grad), result;
}

void detail::check_nested(size_t got, int64_t expected) {
  REEL_CHECK(static_cast<int64_t>(got) == expected, "tensor: rows of different lengths, ", expected, " and ", got);
}

}  // namespace reel
