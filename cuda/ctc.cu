#include <algorithm>

#include "cuda/forward_backward.h"
#include "cuda/kernels.h"
#include "lib/device/kernels/ctc.h"
#include "lib/functors/number.h"

// Connectionist temporal classification (Graves et al. 2006): loss and gradient by forward-backward, a thread block for
// each sequence. Its states are blank, label, blank, label, …, blank. A state is reached from itself, from the one
// before it and, between different labels, from the one before that, skipping a blank. float32 and float64.
namespace reel::cuda {
namespace {

template <class T>
struct Sequence {
  const Ctc& ctc;
  int64_t n, length;
  int states;
  /// Lengths out of range are clamped: the check that reports them is asynchronous, and memory must not be overrun.
  __device__ Sequence(const Ctc& c, int64_t number)
      : ctc(c),
        n(number),
        length(clamp(c.input_lengths[n], c.steps)),
        states(2 * static_cast<int>(clamp(c.label_lengths[n], c.most_labels)) + 1) {}

  __device__ static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }
  __device__ int64_t label(int s) const { return s % 2 ? ctc.labels[n * ctc.most_labels + s / 2] : ctc.blank; }
  __device__ bool known(int64_t label) const { return label >= 0 && label < ctc.classes; }
  __device__ bool may_skip(int s) const { return s % 2 && s > 2 && label(s) != label(s - 2); }
  __device__ int64_t row(int64_t t) const { return (t * ctc.batch + n) * ctc.classes; }
  __device__ T log_prob(int64_t t, int s) const {
    const int64_t class_ = label(s);
    return known(class_) ? static_cast<const T*>(ctc.log_probs)[row(t) + class_] : log_zero<T>();
  }
  __device__ T* state_row(void* rows, int64_t t) const {
    return static_cast<T*>(rows) + (n * ctc.steps + t) * (2 * ctc.most_labels + 1);
  }
  __device__ T* alpha(int64_t t) const { return state_row(ctc.alpha, t); }
  __device__ T* norm(int64_t t) const { return state_row(ctc.norm, t); }

  /// The log-sum-exp over the two states that a path may end in.
  __device__ T last() const {
    const T* a = alpha(length - 1);
    const T one = a[states - 1], two = states > 1 ? a[states - 2] : log_zero<T>(), top = MaxIgnoreNan()(one, two);
    return top == log_zero<T>() ? top : top + functors::log(functors::exp(one - top) + functors::exp(two - top));
  }
  /// The gradient of the sequence's loss. NaN (or with zero_infinity 0) if no path exists, whose loss is infinite.
  __device__ T grad() const {
    if (length > 0 && last() == log_zero<T>()) return ctc.zero_infinity ? T(0) : T(NAN);
    return static_cast<const T*>(ctc.grad)[n];
  }
};

/// log(exp(before[s]) + exp(before[s - 1]) + exp(before[s - 2])), the last one if a blank may be left out
template <class T>
__device__ T log_sum_predecessors(const T* before, int s, bool may_skip) {
  const T stay = before[s], advance = s > 0 ? before[s - 1] : log_zero<T>(),
          skip = may_skip ? before[s - 2] : log_zero<T>();
  const T top = finite_or_zero(MaxIgnoreNan()(stay, MaxIgnoreNan()(advance, skip)));
  return functors::log(functors::exp(stay - top) + functors::exp(advance - top) + functors::exp(skip - top)) + top;
}

template <class T>
__global__ void __launch_bounds__(1024) forward(Ctc ctc, typename BlockWorkspace<T>::Device memory) {
  const Sequence<T> sequence(ctc, blockIdx.x);
  const int states = sequence.states;
  T *before = memory.get(), *here = before + 2 * ctc.most_labels + 1;
  double log_z = 0;
  for (int64_t t = 0; t < sequence.length; ++t) {
    for_each_state(states, [&](int s) {
      const T own = sequence.log_prob(t, s);
      if (t == 0) {
        here[s] = s < 2 ? own : log_zero<T>();
      } else {
        const T norm = log_sum_predecessors(before, s, sequence.may_skip(s));
        sequence.norm(t)[s] = norm;
        here[s] = norm + own;
      }
    });
    T* const alpha = sequence.alpha(t);
    normalize(here, states, log_z, [&](int s, T value) { alpha[s] = value; });
    T* const other = before;
    before = here, here = other;
  }
  if (threadIdx.x > 0) return;
  static_cast<T*>(ctc.loss)[sequence.n] = sequence.length > 0 ? T(-(log_z + double(sequence.last())))
                                          : states == 1       ? T(0)
                                                              : -log_zero<T>();
}

/// The gradient's first term, g exp(log_probs), for all classes; blocks stride over the rows of classes.
template <class T>
__global__ void probability_grad(Ctc ctc) {
  for (int64_t i = blockIdx.x; i < ctc.steps * ctc.batch; i += gridDim.x) {
    const Sequence<T> sequence(ctc, i % ctc.batch);
    const T g = sequence.grad();
    const bool zero = i / ctc.batch >= sequence.length || g == 0;
    const int64_t row = i * ctc.classes;
    for (int64_t c = threadIdx.x; c < ctc.classes; c += blockDim.x)
      static_cast<T*>(ctc.grad_log_probs)[row + c] =
          zero ? T(0) : g * functors::exp(static_cast<const T*>(ctc.log_probs)[row + c]);
  }
}

/// For each label of a sequence the next position of the same label (-1: none), and whether it is the label's first. So
/// one thread can sum a label's states. Blanks, which are half of the states, are summed by the whole block instead.
struct LabelLinks {
  int* next;
  bool* first;
  template <class T>
  __device__ void find(const Sequence<T>& sequence) const {
    for_each_state(sequence.states / 2, [&](int l) {
      const int64_t label = sequence.label(2 * l + 1);
      first[l] = sequence.known(label) && label != sequence.ctc.blank;
      for (int k = 0; k < l && first[l]; ++k) first[l] = sequence.label(2 * k + 1) != label;
      next[l] = l + 1;
      while (next[l] < sequence.states / 2 && sequence.label(2 * next[l] + 1) != label) ++next[l];
      if (next[l] == sequence.states / 2) next[l] = -1;
    });
  }
};

/// The gradient's second term, minus g times the posterior of each class: the sum over the states with its label. One
/// thread adds those of a label in their order, so no atomic additions are needed and the sum is deterministic.
template <class T>
__global__ void __launch_bounds__(1024) subtract_posteriors(Ctc ctc, typename BlockWorkspace<T>::Device memory) {
  const Sequence<T> sequence(ctc, blockIdx.x);
  const T g = sequence.grad();
  if (g == 0 || sequence.length == 0) return;
  const int states = sequence.states;
  const int64_t most = 2 * ctc.most_labels + 1;
  T *here = memory.get(), *before = here + most;
  const LabelLinks links{reinterpret_cast<int*>(before + most),
                         reinterpret_cast<bool*>(before + most) + ctc.most_labels * sizeof(int)};
  links.find(sequence);
  const T total = sequence.last();
  for_each_state(states, [&](int s) {
    here[s] = s >= states - 2 && total != log_zero<T>() ? functors::exp(sequence.alpha(sequence.length - 1)[s] - total)
                                                        : T(0);
  });
  for (int64_t t = sequence.length - 1;; --t) {
    __syncthreads();
    T* const to = static_cast<T*>(ctc.grad_log_probs) + sequence.row(t);
    T blank = 0;
    for_each_state(states, [&](int s) {
      if (s % 2 == 0 || sequence.label(s) == ctc.blank) blank += here[s];
      if (s % 2 == 0 || !links.first[s / 2]) return;
      T sum = 0;
      for (int l = s / 2; l >= 0; l = links.next[l]) sum += here[2 * l + 1];
      to[sequence.label(s)] -= g * sum;
    });
    blank = block_reduce(blank, Plus());
    if (threadIdx.x == 0) to[ctc.blank] -= g * blank;
    if (t == 0) break;
    const T *const alpha = sequence.alpha(t - 1), *const norm = sequence.norm(t);
    for_each_state(states, [&](int s) {
      const auto from = [&](int to) { return here[to] * functors::exp(alpha[s] - finite_or_zero(norm[to])); };
      T sum = from(s);
      if (s + 1 < states) sum += from(s + 1);
      if (s + 2 < states && sequence.may_skip(s + 2)) sum += from(s + 2);
      before[s] = sum;
    });
    T* const other = before;
    before = here, here = other;
  }
}

template <class T>
void run_forward(const Ctc& ctc) {
  const int64_t states = 2 * ctc.most_labels + 1;
  const BlockWorkspace<T> memory(2 * states, ctc.batch);
  launch(forward<T>, dim3(static_cast<unsigned>(ctc.batch)), dim3(threads_for(states)), memory.shared(), ctc,
         memory.device());
}

template <class T>
void run_gradient(const Ctc& ctc) {
  const int64_t states = 2 * ctc.most_labels + 1, rows = ctc.steps * ctc.batch;
  launch(probability_grad<T>, dim3(blocks_for(rows, 1)), dim3(threads_for(std::min<int64_t>(ctc.classes, kThreads))), 0,
         ctc);
  const BlockWorkspace<T> memory(2 * states + ceil_div(ctc.most_labels * (sizeof(int) + 1), sizeof(T)), ctc.batch);
  launch(subtract_posteriors<T>, dim3(static_cast<unsigned>(ctc.batch)), dim3(threads_for(states)), memory.shared(),
         ctc, memory.device());
}

}  // namespace

void install_ctc(KernelTable& table) {
  table.ctc = [](const Ctc& ctc) {
    with_float(ctc.dtype, [&](auto type) { run_forward<typename decltype(type)::type>(ctc); });
  };
  table.ctc_grad = [](const Ctc& ctc) {
    with_float(ctc.dtype, [&](auto type) { run_gradient<typename decltype(type)::type>(ctc); });
  };
}

}  // namespace reel::cuda
