#include <algorithm>

#include "cuda/chain.h"
#include "cuda/kernels.h"
#include "lib/kernels/crf.h"
#include "lib/number.h"

namespace reel::cuda {
namespace {

constexpr int64_t kSharedTransitions = 96 << 10;  // bytes of them, and of their gradients, that are worth a copy

template <class T>
struct Chain {
  const Crf& crf;
  int64_t s, first, length;
  int tags;
  /// Lengths have been checked, but asynchronously.
  __device__ Chain(const Crf& c, int64_t chain)
      : crf(c), s(chain), first(c.offsets ? c.offsets[s] : s), length(c.steps), tags(static_cast<int>(c.tags)) {
    if (c.lengths) length = c.lengths[s] < 1 ? 1 : c.lengths[s] < c.steps ? c.lengths[s] : c.steps;
  }

  __device__ int64_t place(int64_t t) const { return first + t * crf.stride; }
  __device__ T* row(void* rows, int64_t t) const { return static_cast<T*>(rows) + place(t) * tags; }
  __device__ const T* emission(int64_t t) const { return static_cast<const T*>(crf.emissions) + place(t) * tags; }
  __device__ const T* transitions() const { return static_cast<const T*>(crf.transitions); }
  __device__ T start(int64_t j) const { return crf.start ? static_cast<const T*>(crf.start)[j] : T(0); }
  __device__ T end(int64_t j) const { return crf.end ? static_cast<const T*>(crf.end)[j] : T(0); }
  /// -1 where nothing is observed.
  __device__ int64_t observed(int64_t t) const { return crf.observed ? crf.observed[place(t)] : -1; }

  /// The log of the sum over the last step's states, for all threads of the block.
  __device__ T last() const {
    const T* alpha = row(crf.alpha, length - 1);
    T top = never<T>(), sum = 0;
    for_each_state(tags, [&](int j) { top = Larger()(top, alpha[j] + end(j)); });
    top = block_reduce(top, Larger());
    if (top == never<T>()) return top;
    for_each_state(tags, [&](int j) { sum += scalar::exp(alpha[j] + end(j) - top); });
    return top + scalar::log(block_reduce(sum, Plus()));
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

  /// Zeros beyond the end, or what else `clear(t)` does.
  template <class Clear>
  __device__ void pad(const Clear& clear) const {
    if (crf.offsets) return;
    for (int64_t t = length; t < crf.steps; ++t) clear(t);
  }
};

/// A block's memory: some rows of states, then the transitions where there is room for them.
template <class T>
struct Memory {
  typename BlockMemory<T>::Device memory;
  bool with_transitions;

  __device__ const T* transitions(const Chain<T>& chain, T* room) const {
    if (!with_transitions) return chain.transitions();
    for_each_state(chain.tags * chain.tags, [&](int i) { room[i] = chain.transitions()[i]; });
    __syncthreads();
    return room;
  }
};

// ---- the likelihood -------------------------------------------------------------------------------------------------

/// log Σ_i exp(before[i] + transitions[i][j])
template <class T>
__device__ T sum_over_ways(const T* before, const T* transitions, int j, int tags) {
  T top = never<T>(), sum = 0;
  for (int i = 0; i < tags; ++i) top = Larger()(top, before[i] + transitions[i * tags + j]);
  top = finite_or_zero(top);
  for (int i = 0; i < tags; ++i) sum += scalar::exp(before[i] + transitions[i * tags + j] - top);
  return scalar::log(sum) + top;
}

template <class T>
__global__ void likelihood(Crf crf, Memory<T> memory) {
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
        const T norm = sum_over_ways(before, transitions, j, tags);
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
  if (threadIdx.x == 0) static_cast<T*>(crf.result)[chain.s] = T(score - log_z);
}

// ---- its gradient ---------------------------------------------------------------------------------------------------

/// What a block has found of the gradients that all chains share: [tags, tags], then start's and end's. They are added
/// up in the order of the blocks.
template <class T>
struct Shares {
  T* data;
  int64_t tags;
  __host__ __device__ int64_t size() const { return tags * tags + 2 * tags; }
  __device__ T* of(int64_t block) const { return data + block * size(); }
};

/// The probabilities of the states a step earlier, `before`; those of being at i and then at j go to `counts`. A warp
/// takes a state i.
template <class T>
__device__ void step_back(int tags, T g, const T* alpha, const T* norm, const T* transitions, const T* here, T* before,
                          T* counts, int64_t observed_before, int64_t observed) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < tags; i += warps) {
    T sum = 0;
    for (int j = lane; j < tags; j += kWarp) {
      const T p = here[j] * scalar::exp(alpha[i] + transitions[i * tags + j] - norm[j]);
      sum += p;
      counts[i * tags + j] += (i == observed_before && j == observed ? g : T(0)) - g * p;
    }
    sum = warp_reduce(sum, Plus());
    if (lane == 0) before[i] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(512) gradient(Crf crf, Memory<T> memory, Shares<T> shares) {
  const int tags = static_cast<int>(crf.tags);
  T *here = memory.memory.get(), *before = here + tags;
  T *const alpha = before + tags, *const norm = alpha + tags;
  T* const share = shares.of(blockIdx.x);
  T* const counts = memory.with_transitions ? norm + tags + tags * tags : share;
  T *const of_start = share + tags * tags, *const of_end = of_start + tags;
  const T* const transitions = memory.transitions(Chain<T>(crf, blockIdx.x), norm + tags);
  for_each_state(tags * tags, [&](int i) { counts[i] = 0; });
  for_each_state(2 * tags, [&](int i) { of_start[i] = 0; });
  for (int64_t s = blockIdx.x; s < crf.chains; s += gridDim.x) {
    const Chain<T> chain(crf, s);
    const T g = static_cast<const T*>(crf.grad)[s], total = chain.last();
    const T* const ends = chain.row(crf.alpha, chain.length - 1);
    const auto share_of = [&](int j, int64_t tag) { return (j == tag ? g : T(0)) - g * here[j]; };
    __syncthreads();  // of the chain before everything has been read
    for_each_state(tags, [&](int j) {
      here[j] = scalar::exp(ends[j] + chain.end(j) - total);
      of_end[j] += share_of(j, chain.observed(chain.length - 1));
    });
    for (int64_t t = chain.length - 1;; --t) {
      const int64_t tag = chain.observed(t);
      __syncthreads();
      for_each_state(tags, [&](int j) {
        chain.row(crf.grad_emissions, t)[j] = share_of(j, tag);
        if (t == 0) return;
        alpha[j] = chain.row(crf.alpha, t - 1)[j];
        norm[j] = finite_or_zero(chain.row(crf.norm, t)[j]);
      });
      if (t == 0) break;
      __syncthreads();
      step_back(tags, g, alpha, norm, transitions, here, before, counts, chain.observed(t - 1), tag);
      T* const other = before;
      before = here, here = other;
    }
    for_each_state(tags, [&](int j) { of_start[j] += share_of(j, chain.observed(0)); });
    chain.pad([&](int64_t t) { for_each_state(tags, [&](int j) { chain.row(crf.grad_emissions, t)[j] = T(0); }); });
  }
  if (counts == share) return;
  __syncthreads();
  for_each_state(tags * tags, [&](int i) { share[i] = counts[i]; });
}

template <class T>
__global__ void add_shares(Crf crf, Shares<T> shares, int blocks) {
  const int64_t squares = shares.tags * shares.tags;
  for (int64_t i = first_index(); i < shares.size(); i += index_step()) {
    void* const to = i < squares ? crf.grad_transitions : i < squares + shares.tags ? crf.grad_start : crf.grad_end;
    if (!to) continue;
    T sum = 0;
    for (int b = 0; b < blocks; ++b) sum += shares.of(b)[i];
    static_cast<T*>(to)[i < squares ? i : (i - squares) % shares.tags] = sum;
  }
}

// ---- the best path --------------------------------------------------------------------------------------------------

constexpr int kStage = 4096;  // elements of `from` that are read at once

/// Follows the ways back from the last step's tag. What is read next depends on what was read before, so whole rows are
/// read ahead.
template <class T>
__device__ void follow(const Chain<T>& chain, int64_t tag) {
  __shared__ int32_t stage[kStage];
  const Crf& crf = chain.crf;
  const int rows = kStage / chain.tags;
  if (threadIdx.x == 0) crf.path[chain.place(chain.length - 1)] = tag;
  for (int64_t last = chain.length - 1; last > 0; last -= rows > 0 ? rows : 1) {
    const int64_t first = last - rows + 1 > 1 ? last - rows + 1 : 1;
    __syncthreads();
    if (rows > 0)
      for_each_state(static_cast<int>(last - first + 1) * chain.tags, [&](int i) {
        stage[i] = crf.from[chain.place(first + i / chain.tags) * chain.tags + i % chain.tags];
      });
    __syncthreads();
    if (threadIdx.x > 0) continue;
    for (int64_t t = last; t >= (rows > 0 ? first : last); --t) {
      tag = rows > 0 ? stage[(t - first) * chain.tags + tag] : crf.from[chain.place(t) * chain.tags + tag];
      crf.path[chain.place(t - 1)] = tag;
    }
  }
  chain.pad([&](int64_t t) {
    if (threadIdx.x == 0) crf.path[chain.place(t)] = -1;
  });
}

template <class T>
__global__ void decode(Crf crf, Memory<T> memory) {
  const Chain<T> chain(crf, blockIdx.x);
  const int tags = chain.tags;
  T *before = memory.memory.get(), *here = before + tags;
  const T* const transitions = memory.transitions(chain, here + tags);
  for (int64_t t = 0; t < chain.length; ++t) {
    const T* const emission = chain.emission(t);
    for_each_state(tags, [&](int j) {
      const T own = emission[j];
      T best = t == 0 ? chain.start(j) : never<T>();
      int32_t from = 0;
      for (int i = 0; i < tags && t > 0; ++i) {
        const T way = before[i] + transitions[i * tags + j];
        from = way > best ? i : from;
        best = way > best ? way : best;
      }
      if (t > 0) crf.from[chain.place(t) * tags + j] = from;
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
  follow(chain, tag);
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// f(memory, bytes of shared memory) for `rows` rows of states and `squares` of [tags, tags].
template <class T, class F>
void with_memory(const Crf& crf, int64_t rows, int64_t squares, int64_t blocks, const F& f) {
  const int64_t square = squares * crf.tags * crf.tags, all = rows * crf.tags + square;
  const bool with = all * int64_t(sizeof(T)) <= std::min<int64_t>(kSharedTransitions, most_shared());
  const BlockMemory<T> memory(with ? all : all - square, blocks);
  f(Memory<T>{memory.device(), with}, memory.shared());
}

template <class T>
void run_forward(void (*kernel)(Crf, Memory<T>), const Crf& crf) {
  const dim3 grid(static_cast<unsigned>(crf.chains)), block(threads_for(std::min<int64_t>(crf.tags, kThreads)));
  with_memory<T>(crf, 2, 1, crf.chains,
                 [&](const Memory<T>& memory, size_t shared) { launch(kernel, grid, block, shared, crf, memory); });
}

template <class T>
void run_gradient(const Crf& crf) {
  constexpr int64_t kMostBlocks = 256, kMostElements = 16 << 20;
  Shares<T> shares{nullptr, crf.tags};
  const int64_t most = std::clamp<int64_t>(kMostElements / shares.size(), 1, kMostBlocks);
  const int64_t blocks = std::min(crf.chains, most);
  const Scratch<T> memory(blocks * shares.size());
  shares.data = memory;
  const dim3 grid(static_cast<unsigned>(blocks));
  const dim3 block(static_cast<unsigned>(kWarp * std::clamp<int64_t>(crf.tags / 2, 1, 16)));
  with_memory<T>(crf, 4, 2, blocks, [&](const Memory<T>& own, size_t shared) {
    launch(gradient<T>, grid, block, shared, crf, own, shares);
  });
  launch(add_shares<T>, blocks_for(shares.size()), kThreads, 0, crf, shares, static_cast<int>(blocks));
}

}  // namespace

void install_crf(Backend& table) {
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
