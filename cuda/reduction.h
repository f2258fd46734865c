#pragma once
#include <algorithm>
#include <cstdlib>

#include "cuda/aligned_vector.h"
#include "cuda/block.h"

// Reductions of any strided dimensions to any others: one kernel for rows, columns and everything at once. What is
// reduced, and how, is a Job:
//   using Element, Acc (at most 16 bytes, trivially copyable)
//   Acc identity()                  combined with a it gives a
//   auto context(output, at)        computed once a thread and output; `at` is the offset of the output's first element
//   Acc element(context, at, i)     the element at offset `at`, number i of the innermost reduced dimension
//   Acc vector(context, at, i)      the same of AlignedVector<Element>::kSize adjacent ones
//   Acc combine(a, b)               commutative, as the order in which threads' results are combined is the kernel's
//   void finish(output, y_at, acc)  stores the result
// and, if it can have 16 bytes of adjacent outputs a thread (Packing):
//   Acc item(pack, k, i)            what element() gives of element k of an AlignedVector<Element> of number i
//   const Element* x
// Deterministic: that order depends on shapes and strides alone. Hence blocks that share an output write partial
// results for a second launch to combine, where atomic additions would combine them in the order in which blocks end.
namespace reel::cuda {

// ---- dimensions -----------------------------------------------------------------------------------------------------

/// A nest of loops over elements of x and y; dimension 0 is the innermost. Strides in elements. Dimensions that one
/// stride can cover are merged as they are added.
struct LoopNest {
  int rank = 0;
  int64_t sizes[kMaxDims], x[kMaxDims], y[kMaxDims];

  void add(int64_t size, int64_t x_stride, int64_t y_stride) {
    if (size == 1) return;
    if (rank > 0 && x_stride == x[rank - 1] * sizes[rank - 1] && y_stride == y[rank - 1] * sizes[rank - 1]) {
      sizes[rank - 1] *= size;
      return;
    }
    sizes[rank] = size, x[rank] = x_stride, y[rank] = y_stride;
    ++rank;
  }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
  /// The same loops in the order of x's strides, so that neighbouring threads read neighbouring addresses.
  LoopNest sorted() const {
    int order[kMaxDims];
    for (int d = 0; d < rank; ++d) order[d] = d;
    std::stable_sort(order, order + rank, [&](int a, int b) { return std::abs(x[a]) < std::abs(x[b]); });
    LoopNest nest;
    for (int d = 0; d < rank; ++d) nest.add(sizes[order[d]], x[order[d]], y[order[d]]);
    return nest;
  }
  /// Removes the innermost dimension.
  void pop() {
    for (int d = 1; d < rank; ++d) sizes[d - 1] = sizes[d], x[d - 1] = x[d], y[d - 1] = y[d];
    if (rank) --rank;
  }
  /// The offsets in x and y of iteration number `index`.
  __device__ void locate(int64_t index, int64_t* x_at, int64_t* y_at) const {
    *x_at = *y_at = 0;
    for (int d = 0; d < rank; ++d) {
      int64_t i = index;
      if (d + 1 < rank) {
        if (index >> 32 == 0 && sizes[d] >> 32 == 0) {  // 32-bit division is several times as fast
          const uint32_t whole = static_cast<uint32_t>(index), size = static_cast<uint32_t>(sizes[d]);
          index = whole / size;
          i = whole % size;
        } else {
          i = index % sizes[d];
          index /= sizes[d];
        }
      }
      *x_at += i * x[d], *y_at += i * y[d];
    }
  }
};

// ---- the shape of a launch ------------------------------------------------------------------------------------------

/// How a reduction is divided among threads. A block has `kept_lanes` outputs, for each of which `run_lanes` × `lanes`
/// threads reduce a part of its elements. Where there are too few outputs to fill the GPU, gridDim.y blocks share the
/// elements of each output (splits × run_splits).
struct Reduction {
  LoopNest kept, runs;        // the outputs; the reduced dimensions but the innermost,
  int64_t n = 1, stride = 0;  // which is this
  int64_t outputs, run_count;
  unsigned kept_lanes, run_lanes, lanes;
  bool columns;             // neighbouring threads have neighbouring outputs; else, neighbouring elements of one output
  bool vectorized = false;  // elements of an output are read 16 bytes at a time
  unsigned width = 1;       // outputs of a thread, whose elements are adjacent and read at once
  unsigned splits = 1, run_splits = 1;

  /// `vector_size`: how many elements make 16 aligned bytes; 0 where x is not aligned. `packs`: whether the Job can
  /// have several outputs a thread.
  Reduction(const LoopNest& outputs_of, const LoopNest& reduced, size_t element_size, int64_t vector_size,
            bool packs = false);
  int64_t blocks() const { return ceil_div(outputs, int64_t(kept_lanes) * width); }
  unsigned parts() const { return splits * run_splits; }
};

inline constexpr unsigned kReduceThreads = 256;

inline Reduction::Reduction(const LoopNest& outputs_of, const LoopNest& reduced, size_t element_size,
                            int64_t vector_size, bool packs)
    : kept(outputs_of.sorted()), runs(reduced.sorted()) {
  if (runs.rank) n = runs.sizes[0], stride = runs.x[0];
  runs.pop();
  outputs = kept.numel(), run_count = runs.numel();
  const int64_t work = n * run_count;
  columns = kept.rank && kept.x[0] != 0 && (work <= 1 || stride == 0 || std::abs(kept.x[0]) < std::abs(stride));

  const auto whole_vectors = [&](const LoopNest& nest, int first = 0) {
    for (int d = first; d < nest.rank; ++d)
      if (nest.x[d] % vector_size) return false;
    return true;
  };
  const bool packed = packs && vector_size > 1 && columns && kept.x[0] == 1 && kept.sizes[0] % vector_size == 0 &&
                      stride % vector_size == 0 && whole_vectors(kept, 1) && whole_vectors(runs);
  if (packed) width = static_cast<unsigned>(vector_size);
  vectorized = vector_size && !columns && stride == 1 && n >= vector_size && whole_vectors(kept) && whole_vectors(runs);
  const int64_t step = vectorized ? vector_size : 1;

  unsigned reduced_lanes;
  if (columns) {
    const unsigned line = static_cast<unsigned>(128 / element_size) / width;  // of a cache line: a full transaction
    reduced_lanes = std::min(kReduceThreads / power_of_two_from(kept.sizes[0] / width, line),
                             power_of_two_from(ceil_div(work, 4), kReduceThreads));
  } else {
    reduced_lanes = work <= 1024 ? power_of_two_from(ceil_div(work, step), kWarp) : kReduceThreads;
  }
  kept_lanes = kReduceThreads / reduced_lanes;
  lanes = power_of_two_from(ceil_div(n, step), reduced_lanes);
  run_lanes = reduced_lanes / lanes;

  // Several blocks share an output where there are fewer than four blocks for each of an H100's 132 multiprocessors, as
  // many as make eight for each, which is all that they run at a time, but each thread keeps at least kShort loads:
  // below that the second launch costs more.
  constexpr int64_t kFew = 132 * 4, kEnough = 132 * 8, kShort = 8;
  const int64_t rounds = work / (reduced_lanes * step);
  if (blocks() >= kFew || rounds < 2 * kShort) return;
  const int64_t wanted = std::min(ceil_div(kEnough, blocks()), rounds / kShort);
  splits = static_cast<unsigned>(std::clamp<int64_t>(n / (lanes * step * kShort), 1, wanted));
  run_splits = static_cast<unsigned>(std::clamp<int64_t>(run_count / run_lanes, 1, wanted / splits));
}

// ---- kernels --------------------------------------------------------------------------------------------------------

/// The result of the elements that the calling thread has of an output, whose elements begin at x_at. Four loads are
/// issued before they are combined, to have them in flight at the same time.
template <class Job>
__device__ typename Job::Acc fold(const Job& job, const Reduction& r, unsigned lane_number, int64_t output,
                                  int64_t x_at) {
  constexpr int64_t kVectorSize = AlignedVector<typename Job::Element>::kSize;
  const int64_t first = int64_t(blockIdx.y % r.splits) * r.lanes + lane_number % r.lanes;
  const int64_t step = int64_t(r.splits) * r.lanes;
  const int64_t first_run = int64_t(blockIdx.y / r.splits) * r.run_lanes + lane_number / r.lanes;
  const auto context = job.context(output, x_at);
  typename Job::Acc total = job.identity();
  for (int64_t run = first_run; run < r.run_count; run += int64_t(r.run_splits) * r.run_lanes) {
    int64_t at, none;
    r.runs.locate(run, &at, &none);
    at += x_at;
    int64_t i = first;
    if (r.vectorized) {
      const int64_t vectors = r.n / kVectorSize;
      const auto vector = [&](int64_t v) { return job.vector(context, at + v * kVectorSize, v * kVectorSize); };
      for (; i + 3 * step < vectors; i += 4 * step) {
        const auto a = vector(i), b = vector(i + step), c = vector(i + 2 * step), d = vector(i + 3 * step);
        total = job.combine(total, job.combine(job.combine(a, b), job.combine(c, d)));
      }
      for (; i < vectors; i += step) total = job.combine(total, vector(i));
      i = vectors * kVectorSize + first;
    }
    for (; i + 3 * step < r.n; i += 4 * step) {
      const auto a = job.element(context, at + i * r.stride, i);
      const auto b = job.element(context, at + (i + step) * r.stride, i + step);
      const auto c = job.element(context, at + (i + 2 * step) * r.stride, i + 2 * step);
      const auto d = job.element(context, at + (i + 3 * step) * r.stride, i + 3 * step);
      total = job.combine(total, job.combine(job.combine(a, b), job.combine(c, d)));
    }
    for (; i < r.n; i += step) total = job.combine(total, job.element(context, at + i * r.stride, i));
  }
  return total;
}

/// Combines the values of `count` threads, `distance` apart; the first of them gets the result. All threads of the
/// block call it, since it contains barriers. Groups that lie within one warp synchronize that warp only.
template <class Job>
__device__ typename Job::Acc combine_lanes(const Job& job, typename Job::Acc total, unsigned lane_number,
                                           unsigned count, unsigned distance) {
  using Acc = typename Job::Acc;
  static_assert(sizeof(Acc) <= 16);
  __shared__ __align__(16) unsigned char memory[kReduceThreads * sizeof(Acc)];
  Acc* const mine = reinterpret_cast<Acc*>(memory) + threadIdx.x;
  const bool one_warp = distance == 1 && count <= kWarp;
  *mine = total;
  for (unsigned half = count / 2; half > 0; half /= 2) {
    if (one_warp)
      __syncwarp();
    else
      __syncthreads();
    if (lane_number < half) *mine = job.combine(*mine, mine[half * distance]);
  }
  return *mine;
}

// Without a number of blocks nvcc saves registers, and spills some.
template <class Job>
__global__ void __launch_bounds__(kReduceThreads, 3)
    reduce_kernel(const Job job, const Reduction r, typename Job::Acc* partial) {
  const unsigned count = r.lanes * r.run_lanes;
  const unsigned neighbour = r.columns ? threadIdx.x % r.kept_lanes : threadIdx.x / count;
  const unsigned lane_number = r.columns ? threadIdx.x / r.kept_lanes : threadIdx.x % count;
  const int64_t output = int64_t(blockIdx.x) * r.kept_lanes + neighbour;
  int64_t x_at = 0, y_at = 0;
  typename Job::Acc total = job.identity();
  if (output < r.outputs) {
    r.kept.locate(output, &x_at, &y_at);
    total = fold(job, r, lane_number, output, x_at);
  }
  total = combine_lanes(job, total, lane_number, count, r.columns ? r.kept_lanes : 1);
  if (lane_number != 0 || output >= r.outputs) return;
  if (partial)
    partial[output * gridDim.y + blockIdx.y] = total;
  else
    job.finish(output, y_at, total);
}

/// The second launch, where several blocks have shared an output: a block for each output combines its parts.
template <class Job>
__global__ void __launch_bounds__(kReduceThreads)
    combine_kernel(const Job job, const LoopNest kept, const typename Job::Acc* partial, unsigned parts) {
  typename Job::Acc total = job.identity();
  for (unsigned i = threadIdx.x; i < parts; i += blockDim.x)
    total = job.combine(total, partial[int64_t(blockIdx.x) * parts + i]);
  total = combine_lanes(job, total, threadIdx.x, blockDim.x, 1);
  if (threadIdx.x) return;
  int64_t x_at, y_at;
  kept.locate(blockIdx.x, &x_at, &y_at);
  job.finish(blockIdx.x, y_at, total);
}

/// 16 outputs a thread would take too many registers.
template <class Job>
concept Packing = sizeof(typename Job::Element) > 1 &&
                  requires(const Job& job, const AlignedVector<typename Job::Element>& pack) {
  job.item(pack, 0, int64_t{0});
};

/// reduce_kernel where r.width > 1: a thread has a pack of adjacent outputs.
template <class Job>
__global__ void __launch_bounds__(kReduceThreads, 3)
    reduce_packs_kernel(const Job job, const Reduction r, typename Job::Acc* partial) {
  using Pack = AlignedVector<typename Job::Element>;
  constexpr int kSize = Pack::kSize;
  const unsigned count = r.lanes * r.run_lanes, lane_number = threadIdx.x / r.kept_lanes;
  const int64_t output = (int64_t(blockIdx.x) * r.kept_lanes + threadIdx.x % r.kept_lanes) * kSize;
  typename Job::Acc totals[kSize];
  for (auto& total : totals) total = job.identity();
  int64_t x_at = 0, y_at = 0;
  if (output < r.outputs) {
    r.kept.locate(output, &x_at, &y_at);
    const int64_t first = int64_t(blockIdx.y % r.splits) * r.lanes + lane_number % r.lanes;
    const int64_t step = int64_t(r.splits) * r.lanes;
    const int64_t first_run = int64_t(blockIdx.y / r.splits) * r.run_lanes + lane_number / r.lanes;
    for (int64_t run = first_run; run < r.run_count; run += int64_t(r.run_splits) * r.run_lanes) {
      int64_t at, none, i = first;
      r.runs.locate(run, &at, &none);
      const auto* const from = job.x + at + x_at;
      for (; i + 3 * step < r.n; i += 4 * step) {  // four loads in flight
        Pack packs[4];
        for (int p = 0; p < 4; ++p) packs[p] = load_vector(from + (i + p * step) * r.stride);
        for (int k = 0; k < kSize; ++k) {
          const auto item = [&](int p) { return job.item(packs[p], k, i + p * step); };
          totals[k] = job.combine(totals[k], job.combine(job.combine(item(0), item(1)), job.combine(item(2), item(3))));
        }
      }
      for (; i < r.n; i += step) {
        const Pack pack = load_vector(from + i * r.stride);
        for (int k = 0; k < kSize; ++k) totals[k] = job.combine(totals[k], job.item(pack, k, i));
      }
    }
  }
  for (int k = 0; k < kSize; ++k) {
    if (k) __syncthreads();  // the shared memory of the one before has been read
    const auto total = combine_lanes(job, totals[k], lane_number, count, r.kept_lanes);
    if (lane_number != 0 || output >= r.outputs) continue;
    if (partial)
      partial[(output + k) * gridDim.y + blockIdx.y] = total;
    else
      job.finish(output + k, y_at + k * r.kept.y[0], total);
  }
}

template <class Job>
void launch_reduction(const Job& job, const Reduction& r, dim3 grid, typename Job::Acc* partial) {
  if constexpr (Packing<Job>) {
    if (r.width > 1) return launch(reduce_packs_kernel<Job>, grid, kReduceThreads, 0, job, r, partial);
  }
  launch(reduce_kernel<Job>, grid, kReduceThreads, 0, job, r, partial);
}

template <class Job>
void run(const Job& job, const Reduction& r) {
  const unsigned blocks = static_cast<unsigned>(r.blocks()), parts = r.parts();
  if (parts == 1) return launch_reduction(job, r, blocks, nullptr);
  const Scratch<typename Job::Acc> partial(r.outputs * parts);
  launch_reduction(job, r, dim3(blocks, parts), partial.data());
  launch(combine_kernel<Job>, static_cast<unsigned>(r.outputs),
         std::max<unsigned>(kWarp, power_of_two_from(parts, kReduceThreads)), 0, job, r.kept, partial.data(), parts);
}

}  // namespace reel::cuda
