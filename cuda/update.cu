#include <algorithm>
#include <limits>

#include "cuda/aligned_vector.h"
#include "cuda/block.h"
#include "cuda/kernels.h"
#include "lib/device/kernels/update.h"
#include "lib/functors/update.h"

// Optimizer steps, gradient scaling and norms over many tensors at a time (multi-tensor apply): a launch takes up to 64
// tensors, described by a kernel argument, since launching once for each of a model's parameters would take longer than
// the updates.
namespace reel::cuda {
namespace {

constexpr int kVector = 4;  // elements that a thread loads at once
constexpr int kItemsPerBlock = 4 * kVector * kThreads;
constexpr int kMaxTensors = 64;  // of a launch: what fits into the 4 KiB of kernel arguments

/// A parameter of type T, its gradient and its states.
template <class T>
struct Parameter {
  T* p;
  const T* g;
  Wide<T>* states[functors::kMaxStates];
  int64_t numel;

  __device__ Parameter from(int64_t at, int64_t at_g, int64_t n) const {
    Parameter part{p + at, g + at_g, {}, n};
    for (int i = 0; i < functors::kMaxStates; ++i) part.states[i] = states[i] ? states[i] + at : nullptr;
    return part;
  }
};

/// The tensors of a launch; each has a range of the launch's blocks.
template <class T>
struct ParameterTable {
  Parameter<T> parameters[kMaxTensors];
  int first_block[kMaxTensors + 1];
  int count = 0;
};

template <class T>
__device__ bool is_vector_aligned(const T* data) {
  return is_aligned<alignof(AlignedVector<T, kVector>)>(data);
}

/// Updates n adjacent elements.
template <int n, class F, class T>
__device__ void step(const F& f, const Parameter<T>& x, int64_t at) {
  using W = Wide<T>;
  using Own = AlignedVector<T, n>;
  using States = AlignedVector<W, n>;
  Own p = *reinterpret_cast<const Own*>(x.p + at);
  const Own g = *reinterpret_cast<const Own*>(x.g + at);
  States states[functors::kMaxStates] = {};
  for (int i = 0; i < functors::kMaxStates; ++i)
    if (x.states[i]) states[i] = *reinterpret_cast<const States*>(x.states[i] + at);
  for (int k = 0; k < n; ++k) {
    W wide = widen(p.items[k]);
    f(wide, widen(g.items[k]), states[0].items[k], states[1].items[k], states[2].items[k]);
    p.items[k] = narrow<T>(wide);
  }
  *reinterpret_cast<Own*>(x.p + at) = p;
  for (int i = 0; i < functors::kMaxStates; ++i)
    if (x.states[i]) *reinterpret_cast<States*>(x.states[i] + at) = states[i];
}

/// Updates all elements, by the threads of a block.
template <class F, class T>
__device__ void step_all(const F& f, const Parameter<T>& x) {
  bool vectors = is_vector_aligned(x.p) && is_vector_aligned(x.g);
  for (int i = 0; i < functors::kMaxStates; ++i) vectors = vectors && is_vector_aligned(x.states[i]);
  const int64_t whole = vectors ? x.numel / kVector * kVector : 0;
  for (int64_t i = int64_t(threadIdx.x) * kVector; i < whole; i += int64_t(blockDim.x) * kVector)
    step<kVector>(f, x, i);
  for (int64_t i = whole + threadIdx.x; i < x.numel; i += blockDim.x) step<1>(f, x, i);
}

/// The part of a launch's tensors that the calling block has.
template <class T>
__device__ Parameter<T> block_part(const ParameterTable<T>& table) {
  const int which = part_of_block(table.first_block, table.count);
  const Parameter<T>& x = table.parameters[which];
  const int64_t begin = (int64_t(blockIdx.x) - table.first_block[which]) * kItemsPerBlock;
  const int64_t rest = x.numel - begin;
  return x.from(begin, begin, rest < kItemsPerBlock ? rest : kItemsPerBlock);
}

template <class F, class T>
__global__ void update_table(ReplayParam<F> f, ParameterTable<T> table) {
  const F now = f.get();
  step_all(now, block_part(table));
}

/// What gradients are multiplied with: a number or, given a norm in GPU memory, the factor that clips that norm to the
/// number. So clipping does not synchronize.
struct Factor {
  double number;
  const void* norm;
  bool wide;  // norm is float64
  __device__ double get() const {
    if (!norm) return number;
    return functors::clip_factor(number, wide ? *static_cast<const double*>(norm) : *static_cast<const float*>(norm));
  }
};

/// Multiplies n adjacent elements. Returns 0, or NaN if one of them is infinite or NaN (x * 0 is).
template <int n, class T>
__device__ Wide<T> rescale_items(Wide<T> factor, T* g) {
  AlignedVector<T, n> some = *reinterpret_cast<const AlignedVector<T, n>*>(g);
  Wide<T> zero = 0;
#pragma unroll
  for (int k = 0; k < n; ++k) {
    const Wide<T> x = widen(some.items[k]);
    zero += x * 0;
    some.items[k] = narrow<T>(x * factor);
  }
  *reinterpret_cast<AlignedVector<T, n>*>(g) = some;
  return zero;
}

template <class T>
__global__ void rescale_table(Factor by, ParameterTable<T> table, bool* found) {
  const Wide<T> factor = static_cast<Wide<T>>(by.get());
  if (factor == 1 && !found) return;
  const Parameter<T> x = block_part(table);
  const int64_t whole = is_vector_aligned(x.p) ? x.numel / kVector * kVector : 0;
  Wide<T> zero = 0;
  for (int64_t i = int64_t(threadIdx.x) * kVector; i < whole; i += int64_t(blockDim.x) * kVector)
    zero += rescale_items<kVector>(factor, x.p + i);
  for (int64_t i = whole + threadIdx.x; i < x.numel; i += blockDim.x) zero += rescale_items<1>(factor, x.p + i);
  if (found && zero != zero) *found = true;  // a benign race: all threads write the same
}

// Norms: term() of each element, combined by `combine`, and root() of the total.
struct Squares {
  Plus combine;
  template <class W>
  __device__ W term(W x) const {
    return x * x;
  }
  __device__ double root(double total) const { return functors::sqrt(total); }
};
struct Powers {
  double p;
  Plus combine;
  template <class W>
  __device__ W term(W x) const {
    return functors::pow(functors::abs(x), static_cast<W>(p));
  }
  __device__ double root(double total) const { return functors::pow(total, 1 / p); }
};
struct Magnitudes {
  Maximum combine;
  template <class W>
  __device__ W term(W x) const {
    return functors::abs(x);
  }
  __device__ double root(double total) const { return total; }
};

/// Each block's part of a norm.
template <class T, class Norm>
__global__ void norm_table(Norm norm, ParameterTable<T> table, double* parts) {
  const Parameter<T> x = block_part(table);
  const int64_t whole = is_vector_aligned(x.p) ? x.numel / kVector * kVector : 0;
  double total = 0;
  for (int64_t i = int64_t(threadIdx.x) * kVector; i < whole; i += int64_t(blockDim.x) * kVector) {
    const auto some = *reinterpret_cast<const AlignedVector<T, kVector>*>(x.p + i);
    Wide<T> part = norm.term(widen(some.items[0]));
#pragma unroll
    for (int k = 1; k < kVector; ++k) part = norm.combine(part, norm.term(widen(some.items[k])));
    total = norm.combine(total, static_cast<double>(part));
  }
  for (int64_t i = whole + threadIdx.x; i < x.numel; i += blockDim.x)
    total = norm.combine(total, static_cast<double>(norm.term(widen(x.p[i]))));
  total = block_reduce(total, norm.combine);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

/// Combines the parts of all blocks, by one block: two passes, in a fixed order, make the norm deterministic.
template <class Norm>
__global__ void finish_norm(Norm norm, const double* parts, int64_t count, void* y, bool wide) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) total = norm.combine(total, parts[i]);
  total = norm.root(block_reduce(total, norm.combine));
  if (threadIdx.x) return;
  if (wide)
    *static_cast<double*>(y) = total;
  else
    *static_cast<float*>(y) = static_cast<float>(total);
}

/// Updates rows `ids` of x, which has `rows` of `columns` elements, from a sparse gradient. Ids out of range, which
/// were reported before, are skipped.
template <class F, class T>
__global__ void update_ids(ReplayParam<F> f, Parameter<T> x, const int64_t* ids, int64_t n, int64_t rows,
                           int64_t columns) {
  const F now = f.get();
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const int64_t row = ids[i];
    if (row >= 0 && row < rows) step_all(now, x.from(row * columns, i * columns, columns));
  }
}

template <class T>
Parameter<T> parameter(const Updated& u) {
  Parameter<T> result{static_cast<T*>(u.p), static_cast<const T*>(u.g), {}, u.numel};
  for (int i = 0; i < functors::kMaxStates; ++i) result.states[i] = static_cast<Wide<T>*>(u.states[i]);
  return result;
}

/// run(blocks, table) for all tensors that have elements, kMaxTensors at a time.
template <class T, class Run>
void for_each_table(std::span<const Updated> parameters, const Run& run) {
  while (!parameters.empty()) {
    ParameterTable<T> table;
    const auto some = parameters.first(std::min<size_t>(parameters.size(), kMaxTensors));
    parameters = parameters.subspan(some.size());
    table.first_block[0] = 0;
    for (const Updated& u : some) {
      if (u.numel == 0) continue;
      const int next = table.first_block[table.count] + static_cast<int>(ceil_div(u.numel, kItemsPerBlock));
      table.parameters[table.count++] = parameter<T>(u);
      table.first_block[table.count] = next;
    }
    run(dim3(static_cast<unsigned>(table.first_block[table.count])), table);
  }
}

template <class T, class F>
void launch_table(const ReplayParam<F>& f, std::span<const Updated> parameters) {
  static_assert(sizeof(ParameterTable<T>) + sizeof(ReplayParam<F>) <= 4096, "what a kernel takes");
  for_each_table<T>(parameters, [&](dim3 blocks, const ParameterTable<T>& table) {
    launch(update_table<F, T>, blocks, kThreads, 0, f, table);
  });
}

void multi_tensor_scale(double factor, const View* norm, std::span<const Updated> gradients, bool* found) {
  if (gradients.empty()) return;
  const Factor by{factor, norm ? norm->data : nullptr, norm && norm->dtype == kFloat64};
  with_floating(gradients[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_table<T>(gradients, [&](dim3 blocks, const ParameterTable<T>& table) {
      launch(rescale_table<T>, blocks, kThreads, 0, by, table, found);
    });
  });
}

template <class Norm>
void norm_by(const Norm& norm, std::span<const Updated> tensors, const View& y) {
  int64_t count = 0;
  for (const Updated& x : tensors) count += ceil_div(x.numel, kItemsPerBlock);
  const Scratch<double> parts(std::max<int64_t>(count, 1));
  double* next = parts;
  if (count > 0)
    with_floating(tensors[0].dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      for_each_table<T>(tensors, [&](dim3 blocks, const ParameterTable<T>& table) {
        launch(norm_table<T, Norm>, blocks, kThreads, 0, norm, table, next);
        next += blocks.x;
      });
    });
  launch(finish_norm<Norm>, 1, kThreads, 0, norm, parts.data(), count, y.data, y.dtype == kFloat64);
}

void norm(double p, std::span<const Updated> tensors, const View& y) {
  if (p == 2)
    norm_by(Squares(), tensors, y);
  else if (p == std::numeric_limits<double>::infinity())
    norm_by(Magnitudes(), tensors, y);
  else
    norm_by(Powers{p, {}}, tensors, y);
}

template <size_t I>
struct Step {
  using F = std::tuple_element_t<I, functors::UpdateList>;

  static void many(const void* functor, std::span<const Updated> parameters) {
    if (parameters.empty()) return;
    const ReplayParam<F> f(*static_cast<const F*>(functor));
    with_floating(parameters[0].dtype, [&](auto type) { launch_table<typename decltype(type)::type>(f, parameters); });
  }

  static void one(const void* functor, const View& p, const View& g, const View* const* states, const View* ids) {
    Updated all{p.dtype, p.data, g.data, {}, p.numel};
    for (int i = 0; i < functors::kMaxStates; ++i) all.states[i] = states[i] ? states[i]->data : nullptr;
    if (!ids) return many(functor, {&all, 1});
    const int64_t n = ids->numel, columns = n ? g.numel / n : 0;
    if (columns == 0) return;
    const int64_t threads = std::min<int64_t>(ceil_div(columns, kVector * kWarp) * kWarp, kThreads);
    with_floating(p.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      launch(update_ids<F, T>, blocks_for(n, 1), dim3(static_cast<unsigned>(threads)), 0,
             ReplayParam<F>(*static_cast<const F*>(functor)), parameter<T>(all), ids->as<const int64_t>(), n,
             p.numel / columns, columns);
    });
  }
};

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Update rows[] = {Step<I>::one...};
  table.update = rows;
  static constexpr KernelTable::MultiTensorUpdate rows_of_many[] = {Step<I>::many...};
  table.multi_tensor_update = rows_of_many;
}

}  // namespace

void install_update(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::UpdateList>>());
  table.multi_tensor_scale = multi_tensor_scale;
  table.multi_tensor_norm = norm;
}

}  // namespace reel::cuda
