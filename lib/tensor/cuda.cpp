#include "reel/cuda.h"

#include "lib/device/device.h"
#include "lib/tensor/profile.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/base/detail/no_suspend_guard.h"

// reel/cuda.h and what tensors have of it, over the DeviceRuntime of the GPUs.
namespace reel {
namespace {
DeviceRuntime& gpus() { return runtime(kCUDA); }
}  // namespace

Tensor make_pinned_tensor(const Shape& shape, DType dtype) {
  void* const data = gpus().allocate_pinned(static_cast<size_t>(shape.numel() * size_of(dtype)));
  return from_blob(data, dtype, shape, [data] { gpus().release_pinned(data); });
}

bool Tensor::is_pinned() const {
  const View& view = view_of(*this, "is_pinned");
  DeviceRuntime* const cuda = cuda_runtime();
  return cuda && view.host && cuda->is_pinned(TensorImpl::of(*this)->storage->data);
}

Tensor Tensor::pin_memory() const {
  const View& view = view_of(*this, "pin_memory");
  REEL_CHECK(view.host, "pin_memory: the tensor is on ", device(), ", not on the CPU");
  if (is_pinned()) return *this;
  const Tensor pinned = make_pinned_tensor(view.shape, view.dtype);
  cpu_kernels().copy(view, view_of(pinned));
  return pinned;
}

void Tensor::record_stream(const cuda::Stream& stream) const {
  REEL_CHECK(!view_of(*this, "record_stream").host, "record_stream: the tensor is on the CPU");
  gpus().record_stream(TensorImpl::of(*this)->storage->block, *stream.impl_);
}

namespace cuda {

int current_device() {
  DeviceRuntime* const cuda = cuda_runtime();
  return cuda ? cuda->current_device() : 0;
}
int device_count() {
  DeviceRuntime* const cuda = cuda_runtime();
  return cuda ? cuda->device_count() : 0;
}
std::string device_name(int device) { return gpus().device_name(device); }
void synchronize(int device) { gpus().synchronize(device); }
void set_sync_debug_mode(SyncDebugMode mode) {
  if (DeviceRuntime* const cuda = cuda_runtime()) cuda->forbid_synchronization(mode == SyncDebugMode::kError);
}

MemoryStats memory_stats(int device) { return gpus().memory_stats(device); }
void reset_peak_memory_stats(int device) { gpus().reset_peak_memory_stats(device); }
void empty_cache(int device) { gpus().empty_cache(device); }

Stream::Stream(int device) : impl_(gpus().new_stream(device)) {}
Stream Stream::current(int device) { return Stream(gpus().current_stream(device)); }
int Stream::device() const { return impl_->device(); }
void Stream::synchronize() const { impl_->synchronize(); }
bool Stream::query() const { return impl_->query(); }
void* Stream::native() const { return impl_->native(); }

StreamGuard::StreamGuard(const Stream& stream) : impl_(std::make_unique<DeviceStreamGuard>(gpus(), stream.impl_)) {}
StreamGuard::~StreamGuard() = default;

Event::Event(bool timing) : impl_(gpus().new_event(timing)) {}
void Event::record(const Stream& stream) { impl_->record(*stream.impl_); }
void Event::record() { impl_->record(*gpus().current_stream(current_device())); }
void Event::wait(const Stream& stream) const { impl_->wait(*stream.impl_); }
void Event::synchronize() const { impl_->synchronize(); }
bool Event::query() const { return impl_->query(); }
double Event::elapsed_time(const Event& end) const { return impl_->elapsed_time(*end.impl_); }

Graph::Graph() = default;
Graph::~Graph() = default;
void Graph::capture(const std::function<void()>& work, int device) {
  REEL_CHECK(!capturing(), "cuda::Graph::capture: a graph is being captured already");
  impl_.reset();
  const detail::NoSuspendGuard no_suspend;
  impl_ = gpus().capture(work, device);
}
void Graph::replay() {
  REEL_CHECK(impl_, "cuda::Graph::replay: nothing has been captured");
  const profile::Span span("graph_replay", profile::Kind::kKernel);
  impl_->replay();
}
size_t Graph::size() const { return impl_ ? impl_->size() : 0; }

}  // namespace cuda
}  // namespace reel
