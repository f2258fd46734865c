#include <algorithm>
#include <bit>
#include <memory>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/runtime.h"

// Decompositions run on the CPU: the matrices are copied there and the results back, which synchronizes. Triangular
// systems are solved on the GPU.
namespace reel::cuda {
namespace {

/// A copy of a contiguous view in the host's memory.
class OnHost {
 public:
  explicit OnHost(const View& view)
      : bytes_(static_cast<size_t>(view.numel * size_of(view.dtype))),
        memory_(std::make_unique_for_overwrite<char[]>(bytes_)),
        view_(view),
        device_(view.data) {
    view_.data = memory_.get();
  }
  const View& view() const { return view_; }
  void fetch() const { copy(memory_.get(), device_, cudaMemcpyDeviceToHost); }
  void send() const { copy(device_, memory_.get(), cudaMemcpyHostToDevice); }

 private:
  void copy(void* to, const void* from, cudaMemcpyKind kind) const {
    if (bytes_) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes_, kind, stream()));
  }
  size_t bytes_;
  std::unique_ptr<char[]> memory_;
  View view_;
  void* device_;
};

/// Calls a function of the CPU's table with copies of the views, the first `inputs` of which it reads and the others
/// writes.
template <size_t inputs, class Function, class... Views>
auto on_host(const char* op, Function function, const Views&... views) {
  check_wait(op);
  const OnHost all[] = {OnHost(views)...};
  for (size_t i = 0; i < inputs; ++i) all[i].fetch();
  wait_for_gpu(op);
  const auto send = [&] {
    for (size_t i = inputs; i < sizeof...(Views); ++i) all[i].send();
    wait_for_gpu(op);  // the copies read host memory that is freed afterwards
  };
  const auto call = [&]<size_t... i>(std::index_sequence<i...>) { return function(all[i].view()...); };
  if constexpr (std::is_void_v<decltype(call(std::index_sequence_for<Views...>()))>) {
    call(std::index_sequence_for<Views...>());
    send();
  } else {
    const auto result = call(std::index_sequence_for<Views...>());
    send();
    return result;
  }
}

const KernelTable::Linalg& cpu() { return cpu_kernels().linalg; }

int64_t solve(const View& a, const View& b, const View& x) { return on_host<2>("solve", cpu().solve, a, b, x); }
void slogdet(const View& a, const View& sign, const View& logabsdet) {
  on_host<1>("slogdet", cpu().slogdet, a, sign, logabsdet);
}
int64_t cholesky(const View& a, const View& l) { return on_host<1>("cholesky", cpu().cholesky, a, l); }
void qr(const View& a, const View& q, const View& r) { on_host<1>("qr", cpu().qr, a, q, r); }
int64_t svd(const View& a, const View* u, const View& s, const View* vh) {
  const auto with_vectors = [](const View& a, const View& u, const View& s, const View& vh) {
    return cpu().svd(a, &u, s, &vh);
  };
  const auto alone = [](const View& a, const View& s) { return cpu().svd(a, nullptr, s, nullptr); };
  return u ? on_host<1>("svd", with_vectors, a, *u, s, *vh) : on_host<1>("svd", alone, a, s);
}
int64_t eigh(const View& a, const View& values, const View* vectors) {
  const auto with_vectors = [](const View& a, const View& values, const View& vectors) {
    return cpu().eigh(a, values, &vectors);
  };
  const auto alone = [](const View& a, const View& values) { return cpu().eigh(a, values, nullptr); };
  return vectors ? on_host<1>("eigh", with_vectors, a, values, *vectors) : on_host<1>("eigh", alone, a, values);
}

// ---- triangular systems ---------------------------------------------------------------------------------------------

/// Substitution, row by row: a block has a matrix and `columns` (a power of two up to 32) columns of x. The product of
/// a row with the elements that are solved already is summed by blockDim / columns threads.
template <class T>
__global__ void solve_triangle(bool upper, bool unit, const T* a, T* x, int64_t n, int64_t k, int columns) {
  const int thread = static_cast<int>(threadIdx.x), own = thread % columns, slice = thread / columns;
  const int slices = static_cast<int>(blockDim.x) / columns, warps = static_cast<int>(blockDim.x) / kWarp;
  __shared__ T partial[kThreads];
  const int64_t column = int64_t(blockIdx.x) * columns + own;
  const bool inside = column < k;
  a += blockIdx.y * n * n;
  x += blockIdx.y * n * k + column;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t row = upper ? n - 1 - step : step, first = upper ? row + 1 : 0;
    T sum = 0;
    for (int64_t j = slice; j < step && inside; j += slices) sum += a[row * n + first + j] * x[(first + j) * k];
    for (int lanes = kWarp / 2; lanes >= columns; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (thread % kWarp < columns) partial[thread / kWarp * columns + own] = sum;
    __syncthreads();
    if (slice == 0 && inside) {
      for (int w = 1; w < warps; ++w) sum += partial[w * columns + own];
      const T left = x[row * k] - sum;
      x[row * k] = unit ? left : left / a[row * n + row];
    }
    __syncthreads();
  }
}

void solve_triangular(bool upper, bool unit, const View& a, const View& x) {
  const int64_t batch = x.shape[0], n = x.shape[1], k = x.shape[2];
  if (x.numel == 0) return;
  const int columns = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(k, kWarp))));
  with_float(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t first = 0; first < batch; first += 65535) {
      const dim3 grid(static_cast<unsigned>(ceil_div(k, columns)),
                      static_cast<unsigned>(std::min<int64_t>(batch - first, 65535)));
      launch(solve_triangle<T>, grid, kThreads, 0, upper, unit, a.as<const T>() + first * n * n,
             x.as<T>() + first * n * k, n, k, columns);
    }
  });
}

}  // namespace

void install_linalg(KernelTable& table) {
  table.linalg = {solve, slogdet, cholesky, qr, svd, eigh, solve_triangular};
  // Distances are composed of other ops.
  table.cdist = [](double, const View&, const View&, const View&) { return false; };
  table.cdist_grad = [](double, const View&, const View&, const View&, const View&, const View&) {};
}

}  // namespace reel::cuda
