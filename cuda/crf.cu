#include <algorithm>

#include "cuda/forward_backward.h"
#include "cuda/kernels.h"
#include "lib/device/kernels/crf.h"
#include "lib/functors/number.h"

// Linear-chain conditional random fields: log-likelihood and its gradient (forward-backward), and decoding (Viterbi).
// A thread block has a sequence; float32 and float64.
namespace reel::cuda {
namespace {

constexpr int64_t kMaxSharedTransitions = 96 << 10;  // bytes of transitions and their gradients kept in shared memory

template <class T>
struct Chain {
  const Crf& crf;
  int64_t s, first, length;
  int tags;
  /// Lengths out of range are clamped: the check that reports them is asynchronous, and memory must not be overrun.
  __device__ Chain(const Crf& c, int64_t chain)
      : crf(c), s(chain), first(c.offsets ? c.offsets[s] : s), length(c.steps), tags(static_cast<int>(c.tags)) {
    if (c.lengths) length = c.lengths[s] < 1 ? 1 : c.lengths[s] < c.steps ? c.lengths[s] : c.steps;
  }

  __device__ int64_t row_index(int64_t t) const { return first + t * crf.stride; }
  __device__ T* row(void* rows, int64_t t) const { return static_cast<T*>(rows) + row_index(t) * tags; }
  __device__ const T* emission(int64_t t) const { return static_cast<const T*>(crf.emissions) + row_index(t) * tags; }
  __device__ const T* transitions() const { return static_cast<const T*>(crf.transitions); }
  __device__ T start(int64_t j) const { return crf.start ? static_cast<const T*>(crf.start)[j] : T(0); }
  __device__ T end(int64_t j) const { return crf.end ? static_cast<const T*>(crf.end)[j] : T(0); }
  /// The observed tag, -1 where there is none.
  __device__ int64_t observed(int64_t t) const { return crf.observed ? crf.observed[row_index(t)] : -1; }

  /// The log-sum-exp over the last step's states, in all threads of the block (it contains barriers).
  __device__ T last() const {
    const T* alpha = row(crf.alpha, length - 1);
    T top = log_zero<T>(), sum = 0;
    for_each_state(tags, [&](int j) { top = MaxIgnoreNan()(top, alpha[j] + end(j)); });
    top = block_reduce(top, MaxIgnoreNan());
    if (top == log_zero<T>()) return top;
    for_each_state(tags, [&](int j) { sum += functors::exp(alpha[j] + end(j) - top); });
    return top + functors::log(block_reduce(sum, Plus()));
  }

  __device__ double score() const {
    const auto known = [&](int64_t tag) { return tag >= 0 && tag < tags; };
    double sum = 0;
    for (int64_t t = threadIdx.x; t < length; t += blockDim.x) {
      const int64_t tag = observed(t), before = t > 0 ? observed(t - 1) : 0;
      if (!known(tag) || !known(before)) continue;
      sum += double(emission(t)[tag]) + (t > 0 ? double(transitions()[before * tags + tag]) : double(start(tag)));
      if (t == length - 1) sum += double(end(tag));
    }
    return block_reduce(sum, Plus());
  }

  /// The first step whose observed tag is not allowed there, -1 where there is none.
  __device__ int64_t first_forbidden() const {
    const auto forbids = [](const bool* mask, int64_t i) { return mask && !mask[i]; };
    const auto known = [&](int64_t tag) { return tag >= 0 && tag < tags; };
    int64_t first = length;
    for (int64_t t = threadIdx.x; t < length && first == length; t += blockDim.x) {
      const int64_t tag = observed(t), before = t > 0 ? observed(t - 1) : 0;
      if (!known(tag) || !known(before)) continue;
      if ((t == 0 ? forbids(crf.allowed_start, tag) : forbids(crf.allowed_transitions, before * tags + tag)) ||
          (t == length - 1 && forbids(crf.allowed_end, tag)))
        first = t;
    }
    first = block_reduce(first, Minimum());
    return first < length ? first : -1;
  }

  /// clear(t) for the steps beyond the chain's end, which padded layouts have.
  template <class Clear>
  __device__ void pad(const Clear& clear) const {
    if (crf.offsets) return;
    for (int64_t t = length; t < crf.steps; ++t) clear(t);
  }
};

/// A block's workspace: rows of states, then a copy of the transitions where they fit: each step reads all of them.
template <class T>
struct Workspace {
  typename BlockWorkspace<T>::Device memory;
  bool with_transitions;

  __device__ const T* transitions(const Chain<T>& chain, T* copy) const {
    if (!with_transitions) return chain.transitions();
    for_each_state(chain.tags * chain.tags, [&](int i) { copy[i] = chain.transitions()[i]; });
    __syncthreads();
    return copy;
  }
};

// ---- the likelihood -------------------------------------------------------------------------------------------------

/// log Σ_i exp(before[i] + transitions[i][j])
template <class T>
__device__ T log_sum_predecessors(const T* before, const T* transitions, int j, int tags) {
  T top = log_zero<T>(), sum = 0;
  for (int i = 0; i < tags; ++i) top = MaxIgnoreNan()(top, before[i] + transitions[i * tags + j]);
  top = finite_or_zero(top);
  for (int i = 0; i < tags; ++i) sum += functors::exp(before[i] + transitions[i * tags + j] - top);
  return functors::log(sum) + top;
}

template <class T>
__global__ void likelihood(Crf crf, Workspace<T> memory) {
  const Chain<T> chain(crf, blockIdx.x);
  const int tags = chain.tags;
  T *before = memory.memory.get(), *here = before + tags;
  const T* const transitions = memory.transitions(chain, here + tags);
  double log_z = 0;
  for (int64_t t = 0; t < chain.length; ++t) {
    const T* const emission = chain.emission(t);
    for_each_state(tags, [&](int j) {
      const T own = emission[j];
      if (t == 0) {
        here[j] = chain.start(j) + own;
      } else {
        const T norm = log_sum_predecessors(before, transitions, j, tags);
        chain.row(crf.norm, t)[j] = norm;
        here[j] = norm + own;
      }
    });
    T* const alpha = chain.row(crf.alpha, t);
    normalize(here, tags, log_z, [&](int j, T value) { alpha[j] = value; });
    T* const other = before;
    before = here, here = other;
  }
  log_z += double(chain.last());
  const double score = crf.observed ? chain.score() : 0;
  const int64_t forbidden = crf.forbidden ? chain.first_forbidden() : -1;
  if (threadIdx.x > 0) return;
  static_cast<T*>(crf.result)[chain.s] = T(score - log_z);
  if (crf.forbidden) crf.forbidden[chain.s] = forbidden;
}

// ---- its gradient ---------------------------------------------------------------------------------------------------

/// A block's sums of the gradients of transitions [tags, tags], start and end [tags each], which all chains share. They
/// are added up in the order of the blocks by a second launch: atomic additions would not be deterministic.
template <class T>
struct PartialGrads {
  T* data;
  int64_t tags;
  __host__ __device__ int64_t size() const { return tags * tags + 2 * tags; }
  __device__ T* of(int64_t block) const { return data + block * size(); }
};

/// From the marginals `here` of a step to those of the step before it, `before`. The pairwise marginals of being at i
/// and then at j, subtracted from 1 for the observed pair and from 0 for others, times g are added to `counts`. A warp
/// takes a state i.
template <class T>
__device__ void backward_step(int tags, T g, const T* alpha, const T* norm, const T* transitions, const T* here,
                              T* before, T* counts, int64_t observed_before, int64_t observed) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < tags; i += warps) {
    T sum = 0;
    for (int j = lane; j < tags; j += kWarp) {
      const T p = here[j] * functors::exp(alpha[i] + transitions[i * tags + j] - norm[j]);
      sum += p;
      counts[i * tags + j] += (i == observed_before && j == observed ? g : T(0)) - g * p;
    }
    sum = warp_reduce(sum, Plus());
    if (lane == 0) before[i] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(512) gradient(Crf crf, Workspace<T> memory, PartialGrads<T> partials) {
  const int tags = static_cast<int>(crf.tags);
  T *here = memory.memory.get(), *before = here + tags;
  T *const alpha = before + tags, *const norm = alpha + tags;
  T* const partial = partials.of(blockIdx.x);
  T* const counts = memory.with_transitions ? norm + tags + tags * tags : partial;
  T *const of_start = partial + tags * tags, *const of_end = of_start + tags;
  const T* const transitions = memory.transitions(Chain<T>(crf, blockIdx.x), norm + tags);
  for_each_state(tags * tags, [&](int i) { counts[i] = 0; });
  for_each_state(2 * tags, [&](int i) { of_start[i] = 0; });
  for (int64_t s = blockIdx.x; s < crf.chains; s += gridDim.x) {
    const Chain<T> chain(crf, s);
    const T g = static_cast<const T*>(crf.grad)[s], total = chain.last();
    const T* const ends = chain.row(crf.alpha, chain.length - 1);
    const auto state_grad = [&](int j, int64_t tag) { return (j == tag ? g : T(0)) - g * here[j]; };
    __syncthreads();  // all threads have read the workspace of the chain before
    for_each_state(tags, [&](int j) {
      here[j] = functors::exp(ends[j] + chain.end(j) - total);
      of_end[j] += state_grad(j, chain.observed(chain.length - 1));
    });
    for (int64_t t = chain.length - 1;; --t) {
      const int64_t tag = chain.observed(t);
      __syncthreads();
      for_each_state(tags, [&](int j) {
        chain.row(crf.grad_emissions, t)[j] = state_grad(j, tag);
        if (t == 0) return;
        alpha[j] = chain.row(crf.alpha, t - 1)[j];
        norm[j] = finite_or_zero(chain.row(crf.norm, t)[j]);
      });
      if (t == 0) break;
      __syncthreads();
      backward_step(tags, g, alpha, norm, transitions, here, before, counts, chain.observed(t - 1), tag);
      T* const other = before;
      before = here, here = other;
    }
    for_each_state(tags, [&](int j) { of_start[j] += state_grad(j, chain.observed(0)); });
    chain.pad([&](int64_t t) { for_each_state(tags, [&](int j) { chain.row(crf.grad_emissions, t)[j] = T(0); }); });
  }
  if (counts == partial) return;
  __syncthreads();
  for_each_state(tags * tags, [&](int i) { partial[i] = counts[i]; });
}

template <class T>
__global__ void sum_partial_grads(Crf crf, PartialGrads<T> partials, int blocks) {
  const int64_t squares = partials.tags * partials.tags;
  for (int64_t i = first_index(); i < partials.size(); i += index_step()) {
    void* const to = i < squares ? crf.grad_transitions : i < squares + partials.tags ? crf.grad_start : crf.grad_end;
    if (!to) continue;
    T sum = 0;
    for (int b = 0; b < blocks; ++b) sum += partials.of(b)[i];
    static_cast<T*>(to)[i < squares ? i : (i - squares) % partials.tags] = sum;
  }
}

// ---- the best path --------------------------------------------------------------------------------------------------

constexpr int kStage = 4096;  // backpointers in shared memory

/// Follows the backpointers from the last step's tag, by one thread. Each read depends on the one before it, so the
/// block loads whole rows to shared memory first: one latency of global memory for many steps.
template <class T>
__device__ void backtrack(const Chain<T>& chain, int64_t tag) {
  __shared__ int32_t stage[kStage];
  const Crf& crf = chain.crf;
  const int rows = kStage / chain.tags;
  if (threadIdx.x == 0) crf.path[chain.row_index(chain.length - 1)] = tag;
  for (int64_t last = chain.length - 1; last > 0; last -= rows > 0 ? rows : 1) {
    const int64_t first = last - rows + 1 > 1 ? last - rows + 1 : 1;
    __syncthreads();
    if (rows > 0)
      for_each_state(static_cast<int>(last - first + 1) * chain.tags, [&](int i) {
        stage[i] = crf.from[chain.row_index(first + i / chain.tags) * chain.tags + i % chain.tags];
      });
    __syncthreads();
    if (threadIdx.x > 0) continue;
    for (int64_t t = last; t >= (rows > 0 ? first : last); --t) {
      tag = rows > 0 ? stage[(t - first) * chain.tags + tag] : crf.from[chain.row_index(t) * chain.tags + tag];
      crf.path[chain.row_index(t - 1)] = tag;
    }
  }
  chain.pad([&](int64_t t) {
    if (threadIdx.x == 0) crf.path[chain.row_index(t)] = -1;
  });
}

template <class T>
__global__ void decode(Crf crf, Workspace<T> memory) {
  const Chain<T> chain(crf, blockIdx.x);
  const int tags = chain.tags;
  T *before = memory.memory.get(), *here = before + tags;
  const T* const transitions = memory.transitions(chain, here + tags);
  for (int64_t t = 0; t < chain.length; ++t) {
    const T* const emission = chain.emission(t);
    for_each_state(tags, [&](int j) {
      const T own = emission[j];
      T best = t == 0 ? chain.start(j) : log_zero<T>();
      int32_t from = 0;
      for (int i = 0; i < tags && t > 0; ++i) {
        const T score = before[i] + transitions[i * tags + j];
        from = score > best ? i : from;
        best = score > best ? score : best;
      }
      if (t > 0) crf.from[chain.row_index(t) * tags + j] = from;
      here[j] = best + own + (t == chain.length - 1 ? chain.end(j) : T(0));
    });
    __syncthreads();
    T* const other = before;
    before = here, here = other;
  }
  int tag = 0;
  for (int j = 1; j < tags && threadIdx.x == 0; ++j)
    if (before[j] > before[tag]) tag = j;
  if (threadIdx.x == 0) static_cast<T*>(crf.result)[chain.s] = before[tag];
  backtrack(chain, tag);
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// f(memory, bytes of shared memory) for `rows` rows of states and `squares` of [tags, tags].
template <class T, class F>
void with_workspace(const Crf& crf, int64_t rows, int64_t squares, int64_t blocks, const F& f) {
  const int64_t square = squares * crf.tags * crf.tags, all = rows * crf.tags + square;
  const bool with = all * int64_t(sizeof(T)) <= std::min<int64_t>(kMaxSharedTransitions, max_shared_memory());
  const BlockWorkspace<T> memory(with ? all : all - square, blocks);
  f(Workspace<T>{memory.device(), with}, memory.shared());
}

template <class T>
void run_forward(void (*kernel)(Crf, Workspace<T>), const Crf& crf) {
  const dim3 grid(static_cast<unsigned>(crf.chains)), block(threads_for(std::min<int64_t>(crf.tags, kThreads)));
  with_workspace<T>(crf, 2, 1, crf.chains, [&](const Workspace<T>& memory, size_t shared) {
    launch(kernel, grid, block, shared, crf, memory);
  });
}

template <class T>
void run_gradient(const Crf& crf) {
  constexpr int64_t kMaxBlocks = 256, kMaxElements = 16 << 20;
  PartialGrads<T> partials{nullptr, crf.tags};
  const int64_t most = std::clamp<int64_t>(kMaxElements / partials.size(), 1, kMaxBlocks);
  const int64_t blocks = std::min(crf.chains, most);
  const Scratch<T> memory(blocks * partials.size());
  partials.data = memory;
  const dim3 grid(static_cast<unsigned>(blocks));
  const dim3 block(static_cast<unsigned>(kWarp * std::clamp<int64_t>(crf.tags / 2, 1, 16)));
  with_workspace<T>(crf, 4, 2, blocks, [&](const Workspace<T>& own, size_t shared) {
    launch(gradient<T>, grid, block, shared, crf, own, partials);
  });
  launch(sum_partial_grads<T>, blocks_for(partials.size()), kThreads, 0, crf, partials, static_cast<int>(blocks));
}

}  // namespace

void install_crf(KernelTable& table) {
  table.crf = [](const Crf& crf) {
    with_float(crf.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      run_forward<T>(likelihood<T>, crf);
    });
  };
  table.crf_grad = [](const Crf& crf) {
    with_float(crf.dtype, [&](auto type) { run_gradient<typename decltype(type)::type>(crf); });
  };
  table.crf_decode = [](const Crf& crf) {
    with_float(crf.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      run_forward<T>(decode<T>, crf);
    });
  };
}

}  // namespace reel::cuda
