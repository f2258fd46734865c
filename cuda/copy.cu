#include <cstring>
#include <optional>

#include "cuda/device.h"
#include "cuda/elementwise.h"
#include "cuda/kernels.h"
#include "cuda/pending_uploads.h"
#include "cuda/pinned_scratch.h"
#include "lib/base/per_thread.h"
#include "lib/device/allocator.h"
#include "lib/functors/number.h"

// Copies within a GPU, between host and GPU and between GPUs, with conversions of dtype and layout; fill and where.
namespace reel::cuda {
namespace {

struct Identity {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};
template <class To, class From>
struct Convert {
  __device__ To operator()(From x) const {
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
      return functors::to_integer<To>(x);
    else
      return static_cast<To>(x);
  }
};
struct ToBool {
  template <class T>
  __device__ uint8_t operator()(T x) const {
    return x != T(0);
  }
};

// ---- transposed copies ----------------------------------------------------------------------------------------------

constexpr int kTile = 32, kTileRows = 8;

/// y[a, b, i, j] = x[a, b, j, i] by tiles of 32 × 32 in shared memory, so that a warp reads and writes adjacent
/// addresses on both sides. There are `inner` of b; x_outer and x_inner are the strides of a and b.
template <class T>
__global__ void transpose_kernel(const T* x, unsigned inner, int64_t x_outer, int64_t x_inner, int64_t x_step, T* y,
                                 int64_t rows, int64_t columns) {
  __shared__ T tile[kTile][kTile + 1];  // the odd width puts a column's elements into different banks
  const int64_t row = int64_t(blockIdx.y) * kTile, column = int64_t(blockIdx.x) * kTile;
  const T* const from = x + blockIdx.z / inner * x_outer + blockIdx.z % inner * x_inner;
  T* const to = y + blockIdx.z * rows * columns;
  for (int i = threadIdx.y; i < kTile; i += kTileRows)
    if (column + i < columns && row + threadIdx.x < rows)
      tile[i][threadIdx.x] = from[(column + i) * x_step + row + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kTileRows)
    if (row + i < rows && column + threadIdx.x < columns)
      to[(row + i) * columns + column + threadIdx.x] = tile[threadIdx.x][i];
}

/// Copies a batch of transposed matrices to a contiguous y; false, having done nothing, if the views are not that.
/// Below 8 × 8 a tile would be mostly idle.
bool transpose(const View& x, const View& y) {
  if (!y.contiguous || x.dtype != y.dtype) return false;
  const View* const views[] = {&y, &x};
  if (y.numel >= int64_t{1} << 31) return false;
  const Layout<2> layout = detail::merged(views);
  if (layout.rank < 2 || layout.rank > 4 || layout.strides[1][1] != 1) return false;
  const auto size = [&](int d) { return d < layout.rank ? int64_t{layout.sizes[d].divisor} : 1; };
  const auto stride = [&](int d) { return d < layout.rank ? layout.strides[d][1] : 0; };
  const int64_t columns = size(0), rows = size(1), batch = size(2) * size(3);
  const int64_t across = ceil_div(columns, kTile), down = ceil_div(rows, kTile);
  if (rows < 8 || columns < 8 || down > 65535 || batch > 65535) return false;
  with_word(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(transpose_kernel<T>, dim3(across, down, batch), dim3(kTile, kTileRows), 0, x.as<const T>(),
           static_cast<unsigned>(size(2)), stride(3), stride(2), stride(0), y.as<T>(), rows, columns);
  });
  return true;
}

// ---- on the device --------------------------------------------------------------------------------------------------

/// Makes two views of one dtype and shape views of words twice as large where both have pairs of adjacent elements that
/// begin at aligned addresses, as often as they do: there are half as many to locate. Dimensions are merged.
void take_larger_words(View& x, View& y) {
  if (y.numel > detail::kMaxStridedCount) return;  // Layout's sizes
  const View* const views[] = {&y, &x};
  const Layout<2> layout = detail::merged(views);
  const int rank = layout.rank;
  if (rank == 0 || rank == kMaxDims || layout.strides[0][0] != 1 || layout.strides[0][1] != 1) return;
  int64_t bytes = size_of(y.dtype), factor = 1;
  const auto fit = [&](int64_t words) {
    bool all = layout.sizes[0].divisor % words == 0;
    for (int v = 0; v < 2; ++v) {
      all = all && reinterpret_cast<uintptr_t>(views[v]->data) % static_cast<size_t>(words * bytes) == 0;
      for (int d = 1; d < rank; ++d) all = all && layout.strides[d][v] % words == 0;
    }
    return all;
  };
  while (2 * factor * bytes <= 8 && fit(2 * factor)) factor *= 2;
  if (factor == 1) return;
  Shape shape;
  Strides strides[2];
  for (int d = rank - 1; d >= 0; --d) {
    const int64_t words = d ? 1 : factor;
    shape.push_back(layout.sizes[d].divisor / words);
    for (int v = 0; v < 2; ++v) strides[v].push_back(d ? layout.strides[d][v] / factor : 1);
  }
  bytes *= factor;
  for (View* const view : {&y, &x}) {
    view->shape = shape, view->strides = strides[view == &x];
    view->numel /= factor;
    view->dtype = bytes == 2 ? kFloat16 : bytes == 4 ? kInt32 : kInt64;
  }
}

void copy_on_device(const View& from, const View& to) {
  if (from.dtype == to.dtype) {
    View x = from, y = to;
    if (!x.contiguous || !y.contiguous) take_larger_words(x, y);
    if (transpose(x, y)) return;
    return with_word(y.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      map<T, T>(Identity(), y, &x);
    });
  }
  with_type(from.dtype, [&](auto source) {
    using From = typename decltype(source)::type;
    if (to.dtype == kBool) return map<uint8_t, From>(ToBool(), to, &from);
    with_type(to.dtype, [&](auto target) {
      using To = typename decltype(target)::type;
      map<To, From>(Convert<Wide<To>, Wide<From>>(), to, &from);
    });
  });
}

// ---- between host and device ----------------------------------------------------------------------------------------

/// A contiguous view of the same shape, over other memory.
View contiguous_like(const View& view, void* data, bool host) {
  View same = view;
  same.data = data;
  same.host = host;
  same.contiguous = true;
  int64_t step = 1;
  for (int d = view.shape.size() - 1; d >= 0; --d) {
    same.strides[d] = step;
    step *= view.shape[d];
  }
  return same;
}
size_t size_of_elements(const View& view) { return static_cast<size_t>(view.numel * size_of(view.dtype)); }

/// A temporary buffer of the host.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes) : bytes_(bytes), data_(allocate_cpu(bytes)) {}
  ~HostMemory() { release_cpu(data_, bytes_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

/// Fills `to` with one element of the host's, which travels as a kernel argument: no copy, so nothing to synchronize or
/// to pin, and a captured graph has it.
void fill_from(const View& from, const View& to) {
  alignas(8) unsigned char element[8];
  View number = to;
  number.data = element, number.host = true, number.contiguous = true, number.numel = 1;
  number.shape = number.strides = Shape();
  View one = from;
  one.shape = one.strides = Shape();
  cpu_kernels().copy(one, number);
  with_word(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, T>(Identity(), to, &number);
  });
}

constexpr size_t kMaxStagedBytes = size_t{16} << 20;
/// Copies from the host. With `may_wait` few bytes are copied when the stream is next used (upload_small).
void upload(const View& from, const View& to, bool may_wait) {
  if (size_of_elements(to) <= PendingUploads::kMaxBytes && to.contiguous && !capturing() && !refreshing) {
    alignas(8) unsigned char elements[PendingUploads::kMaxBytes];
    cpu_kernels().copy(from, contiguous_like(to, elements, true));
    return upload_small(to.data, elements, size_of_elements(to), may_wait);
  }
  if (from.numel == 1) return fill_from(from, to);
  if (!from.contiguous) {
    const HostMemory memory(size_of_elements(from));
    const View packed = contiguous_like(from, memory.data(), true);
    cpu_kernels().copy(from, packed);
    return upload(packed, to, false);
  }
  if (!to.contiguous || from.dtype != to.dtype) {
    const Scratch<unsigned char> memory(static_cast<int64_t>(size_of_elements(from)));
    const View packed = contiguous_like(from, memory.data(), false);
    upload(from, packed, false);
    return copy_on_device(packed, to);
  }
  const bool pinned = is_pinned(from.data);
  REEL_CHECK(!capturing() || pinned, "a copy to the GPU: the memory is not pinned (Tensor::pin_memory), so ",
             "it cannot be captured in a cuda::Graph");
  // cudaMemcpyAsync from pageable memory may synchronize the stream first, so up to kMaxStagedBytes go through a pinned
  // buffer; so does what is pinned, since the caller may change it next. Larger copies take long enough for the wait
  // not to matter.
  const size_t bytes = size_of_elements(from);
  if (bytes <= kMaxStagedBytes && !capturing()) {
    const PinnedScratch staged(bytes);
    std::memcpy(staged.data(), from.data, bytes);
    return staged.copy_to(to.data, bytes);
  }
  const bool waits = pinned && !capturing();
  if (waits) check_wait("a copy from pinned memory that is not non_blocking");
  CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyHostToDevice, stream()));
  note_copy(from.data);
  if (waits) wait_for_gpu("a copy from pinned memory");
}

constexpr size_t kSlot = 256;
/// Pinned memory of the calling thread for the few bytes of an item(): a copy to pageable memory takes the driver
/// longer.
void* pinned_slot() {
  struct Slot {
    void* const data = allocate_pinned(kSlot);
    ~Slot() { release_pinned(data); }
  };
  static constinit thread_local PerThread<Slot> slot;
  return slot->data;
}

void download(const View& from, const View& to) {
  check_wait("a copy to the host");  // first: cudaMemcpyAsync to pageable memory synchronizes by itself
  const Contiguous packed(from);
  if (!to.contiguous || from.dtype != to.dtype) {
    const HostMemory memory(size_of_elements(from));
    const View there = contiguous_like(from, memory.data(), true);
    download(packed.view(), there);
    return cpu_kernels().copy(there, to);
  }
  const size_t bytes = size_of_elements(from);
  void* const slot = bytes <= kSlot ? pinned_slot() : to.data;
  CUDA_CHECK(cudaMemcpyAsync(slot, packed.view().data, bytes, cudaMemcpyDeviceToHost, stream()));
  wait_for_gpu("a copy to the host");
  if (slot != to.data) std::memcpy(to.data, slot, bytes);
}

void copy(const View& from, const View& to, bool may_wait) {
  if (to.numel == 0) return;
  if (to.host) return download(from, to);
  from.host ? upload(from, to, may_wait) : copy_on_device(from, to);
}
/// This is the table's. Kernels that copy do not let it wait: they may have got the stream's handle before.
void copy(const View& from, const View& to) { copy(from, to, true); }

// ---- between devices ------------------------------------------------------------------------------------------------

/// Lets `device` write into the target's memory pool directly (peer access). Where the machine has no such connection,
/// cudaMemcpyPeerAsync stages the copy in the host's memory.
void enable_peer_access(DeviceState& target, int device) {
  std::lock_guard lock(target.mutex);
  if (std::exchange(target.opened_to[device], true)) return;
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, device};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, device, target.index) != cudaSuccess ||
      (can && cudaMemPoolSetAccess(target.memory, &access, 1) != cudaSuccess))
    cudaGetLastError();
}

/// The copy runs on the source's stream, so that its memory can be released or overwritten right afterwards in stream
/// order. Events order it after the work that the target's stream has been given so far and before what follows there.
void copy_from(int source, const View& from, const View& to) {
  if (to.numel == 0) return;
  REEL_CHECK(!capturing(), "a copy between GPUs: it cannot be captured in a cuda::Graph");
  const int target = current.device;
  DeviceState& device = state_of(target);
  CudaStream &sender = current_stream(source), &receiver = current_stream(target);
  const size_t bytes = size_of_elements(to);
  std::optional<Scratch<unsigned char>> sent, received;
  if (!to.contiguous) received.emplace(static_cast<int64_t>(bytes));
  const View there = received ? contiguous_like(to, received->data(), false) : to;
  {
    const DeviceGuard guard(source);
    View here = from;
    if (!from.contiguous || from.dtype != to.dtype) {
      sent.emplace(static_cast<int64_t>(bytes));
      here = contiguous_like(to, sent->data(), false);
      copy_on_device(from, here);
    }
    enable_peer_access(device, source);
    check(order(receiver, sender), "an event of the target");
    CUDA_CHECK(cudaMemcpyPeerAsync(there.data, target, here.data, source, bytes, sender.handle()));
    check(order(sender, receiver), "an event of the source");
  }
  if (received) copy_on_device(there, to);
}

// ---- filling and choosing -------------------------------------------------------------------------------------------

void fill(const View& to, Scalar value) {
  if (to.numel == 0) return;
  alignas(8) unsigned char element[8];
  View number = to;
  number.data = element, number.numel = 1, number.shape = number.strides = Shape();
  cpu_kernels().fill(number, value);
  number.host = true;
  fill_from(number, to);
}

struct Select {
  template <class T>
  __device__ T operator()(uint8_t condition, T a, T b) const {
    return condition ? a : b;
  }
};
void where(const View& condition, const View& a, const View& b, const View& y) {
  with_word(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    map<T, uint8_t, T, T>(Select(), y, &condition, &a, &b);
  });
}

}  // namespace

Contiguous::Contiguous(const View& view) : view_(view) {
  if (view.contiguous && !view.host) return;
  view_ = contiguous_like(view, allocate(size_of_elements(view), &block_), false);
  copy(view, view_, false);
}
Contiguous::~Contiguous() {
  if (block_) release(block_);
}

ContiguousOutput::ContiguousOutput(const View& y) : y_(y), view_(y) {
  if (!y.contiguous) view_ = contiguous_like(y, allocate(size_of_elements(y), &block_), false);
}
ContiguousOutput::~ContiguousOutput() {
  if (block_) release(block_);
}
void ContiguousOutput::store() const {
  if (block_) copy(view_, y_, false);
}

void install_copy(KernelTable& table) {
  table.copy = copy;
  table.copy_from = copy_from;
  table.fill = fill;
  table.where = where;
}

}  // namespace reel::cuda
