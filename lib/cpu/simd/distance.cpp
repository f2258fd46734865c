// This file has the kernels of distances between all vectors of two lists, and their gradients: blocks of results are
// kept in registers, as those of a product of matrices are.
#include "lib/functors/distance.h"

#include <algorithm>
#include <type_traits>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/batch.h"
#include "lib/cpu/simd/power.h"

namespace reel::cpu::REEL_ISA {
namespace {

using functors::select;

constexpr int kRows = 4, kBatches = 2;  // of a block
constexpr int64_t kBlock = 128;         // elements of vectors whose terms are added at once
constexpr int64_t kRowsOfPart = 64, kPartWork = int64_t{1} << 17;

/// Returns where the pair (i, j), i < j, of n vectors is in the list of pairs.
int64_t place_of(int64_t i, int64_t j, int64_t n) { return i * n - i * (i + 1) / 2 + j - i - 1; }

/// Distances are one problem of a batch. With `pairs` y (and g) have the pairs of x1 with itself alone.
template <class T>
struct Distances {
  int64_t m, n, d;
  const T *x1, *x2;
  T* y;
  bool pairs;
};

/// Returns norm.join(sum, gap), in one rounding where the instruction set has such an instruction.
template <class Norm, class B>
B join(const Norm& norm, const B& sum, const B& gap) {
  if constexpr (std::is_same_v<Norm, functors::EuclideanNorm>) return fma(gap, gap, sum);
  return norm.join(sum, gap);
}
/// Returns sum + norm.slope(weight, gap, y), likewise.
template <class Norm, class B>
B add_slope(const Norm& norm, const B& sum, const B& weight, const B& gap, const B& y) {
  if constexpr (std::is_same_v<Norm, functors::EuclideanNorm>) return fma(weight, gap, sum);
  return sum + norm.slope(weight, gap, y);
}

/// Computes the norms of the differences of `rows` vectors, at x1 and `d` apart, to those of which the elements lie in
/// lanes.
template <int rows, class T, class Norm>
void measure(const Norm& norm, int64_t d, const T* x1, const T* lanes, Batch<T> (*result)[kBatches]) {
  const Batch<T> zero(T(0));
  for (int r = 0; r < rows; ++r)
    for (int b = 0; b < kBatches; ++b) result[r][b] = zero;
  for (int64_t begin = 0; begin < d; begin += kBlock) {
    const int64_t end = std::min(d, begin + kBlock);
    Batch<T> sum[rows][kBatches];
    for (auto& row : sum)
      for (auto& s : row) s = zero;
    const T* column = lanes + begin * kBatches * kWidth<T>;
    for (int64_t k = begin; k < end; ++k, column += kBatches * kWidth<T>)
      for (int r = 0; r < rows; ++r) {
        const Batch<T> x(x1[r * d + k]);
        for (int b = 0; b < kBatches; ++b) sum[r][b] = join(norm, sum[r][b], x - load(column + b * kWidth<T>));
      }
    for (int r = 0; r < rows; ++r)
      for (int b = 0; b < kBatches; ++b) result[r][b] = begin == 0 ? sum[r][b] : norm.merge(result[r][b], sum[r][b]);
  }
  for (int r = 0; r < rows; ++r)
    for (int b = 0; b < kBatches && d > 0; ++b) result[r][b] = norm.finish(result[r][b]);
}

/// Computes the distances of vectors begin … end of x1 to `columns` of x2 from j on.
template <class T, class Norm>
void measure_panel(const Norm& norm, const Distances<T>& job, int64_t begin, int64_t end, int64_t j, int64_t columns,
                   T* lanes) {
  constexpr int64_t kColumns = kBatches * kWidth<T>;
  for (int64_t c = 0; c < kColumns; ++c) {
    const T* const from = job.x2 + (j + std::min(c, columns - 1)) * job.d;
    for (int64_t k = 0; k < job.d; ++k) lanes[k * kColumns + c] = from[k];
  }
  if (job.pairs) end = std::min(end, j + columns - 1);  // vectors with pairs behind them
  Batch<T> result[kRows][kBatches];
  for (int64_t i = begin; i < end; i += kRows) {
    const int64_t rows = std::min<int64_t>(kRows, end - i);
    const T* const from = job.x1 + i * job.d;
    if (rows == kRows)
      measure<kRows>(norm, job.d, from, lanes, result);
    else
      for (int64_t r = 0; r < rows; ++r) measure<1>(norm, job.d, from + r * job.d, lanes, result + r);
    for (int64_t r = 0; r < rows; ++r) {
      if (job.pairs) {
        T all[kColumns];
        for (int b = 0; b < kBatches; ++b) store(all + b * kWidth<T>, result[r][b]);
        const int64_t first = std::max<int64_t>(i + r + 1 - j, 0);
        if (first < columns) std::copy(all + first, all + columns, job.y + place_of(i + r, j + first, job.n));
        continue;
      }
      T* const to = job.y + (i + r) * job.n + j;
      for (int64_t b = 0; b * kWidth<T> < columns; ++b)
        store_up_to(to + b * kWidth<T>, result[r][b], columns - b * kWidth<T>);
    }
  }
}

template <class T>
Distances<T> distances_of(const View& x1, const View& x2, const View& y, int64_t batch) {
  const int64_t m = x1.shape[1], n = x2.shape[1], d = x1.shape[2];
  const bool pairs = y.shape.size() == 1;
  return {m,
          n,
          d,
          x1.as<const T>() + batch * m * d,
          x2.as<const T>() + batch * n * d,
          y.as<T>() + (pairs ? 0 : batch * m * n),
          pairs};
}

template <class T>
void cdist_of(double p, const View& x1, const View& x2, const View& y) {
  constexpr int64_t kColumns = kBatches * kWidth<T>;
  const int64_t m = x1.shape[1], n = x2.shape[1], d = x1.shape[2];
  const int64_t down = (m + kRowsOfPart - 1) / kRowsOfPart, across = (n + kColumns - 1) / kColumns;
  functors::with_norm(p, d, [&](const auto& norm) {
    const int64_t grain = std::max<int64_t>(kPartWork * 8 / (kRowsOfPart * kColumns * (d + 1)), 1);
    parallel_for(x1.shape[0] * across * down, grain, [&](int64_t first, int64_t last) {
      const Scratch lanes(static_cast<size_t>(d * kColumns + 1) * sizeof(T));
      for (int64_t part = first; part < last; ++part) {
        const auto job = distances_of<T>(x1, x2, y, part / (across * down));
        const int64_t i = part % down * kRowsOfPart, j = part / down % across * kColumns;
        measure_panel(norm, job, i, std::min(m, i + kRowsOfPart), j, std::min(n - j, kColumns), lanes.data<T>());
      }
    });
  });
}

// ---- gradients ------------------------------------------------------------------------------------------------------

/// These are the terms of the gradient of one vector, for each of the n vectors to which it has distances.
template <class T>
struct Weights {
  T *weight, *distance;
};

/// Copies line i of the symmetric matrix of which `pairs` has the elements above the diagonal.
template <class T>
void copy_line(const T* pairs, int64_t i, int64_t n, T* line) {
  for (int64_t j = 0; j < i; ++j) line[j] = pairs[place_of(j, i, n)];
  line[i] = 0;
  if (i + 1 < n) std::copy_n(pairs + place_of(i, i + 1, n), n - i - 1, line + i + 1);
}

template <class T, class Norm>
void set_weights(const Norm& norm, const Distances<T>& job, const T* g, int64_t i, const Weights<T>& line) {
  const int64_t n = job.n, d = job.d;
  if (job.pairs) {
    copy_line(g, i, n, line.weight);
    copy_line(job.y, i, n, line.distance);
  } else {
    std::copy_n(g + i * n, n, line.weight);
    std::copy_n(job.y + i * n, n, line.distance);
  }
  for (int64_t j = 0; j < n; j += kWidth<T>) {
    const Batch<T> w = norm.weight(load_up_to(line.weight + j, n - j), load_up_to(line.distance + j, n - j));
    store_up_to(line.weight + j, w, n - j);
  }
  if constexpr (std::is_same_v<Norm, functors::MaxNorm>) {
    for (int64_t j = 0; j < n; ++j) {
      const Batch<T> y(line.distance[j]);
      Batch<T> equals(T(0));
      for (int64_t k = 0; k < d; k += kWidth<T>) {
        const Batch<T> gap = load_up_to(job.x1 + i * d + k, d - k) - load_up_to(job.x2 + j * d + k, d - k);
        equals += select(abs(gap) == y, Batch<T>(T(1)), Batch<T>(T(0)));
      }
      // Beyond the vectors' ends differences are 0.
      const int64_t beyond = (kWidth<T> - d % kWidth<T>) % kWidth<T>;
      const T count = hadd(equals) - (line.distance[j] == T(0) ? T(beyond) : T(0));
      if (count > T(1)) line.weight[j] /= count;
    }
  }
}

/// Computes the gradients of `rows` vectors from i on, of elements from k on.
template <int rows, class T, class Norm>
void add_slopes(const Norm& norm, const Distances<T>& job, int64_t i, int64_t k, const Weights<T>* weights, T* gx) {
  constexpr bool kReadsDistance = std::is_same_v<Norm, functors::MaxNorm>;
  const int64_t d = job.d, left = d - k, batches = left > kWidth<T> ? kBatches : 1;
  Batch<T> x[rows][kBatches], sum[rows][kBatches];
  const auto load_at = [&](const T* from, int b) {
    return b < batches ? load_up_to(from + b * kWidth<T>, left - b * kWidth<T>) : Batch<T>(T(0));
  };
  for (int r = 0; r < rows; ++r)
    for (int b = 0; b < kBatches; ++b) x[r][b] = load_at(job.x1 + (i + r) * d + k, b), sum[r][b] = Batch<T>(T(0));
  const auto add = [&](const auto& load_row) {
    for (int64_t j = 0; j < job.n; ++j) {
      const T* const from = job.x2 + j * d + k;
      for (int b = 0; b < kBatches; ++b) {
        const Batch<T> other = load_row(from, b);
        for (int r = 0; r < rows; ++r) {
          const Batch<T> y(kReadsDistance ? weights[r].distance[j] : T(0));
          sum[r][b] = add_slope(norm, sum[r][b], Batch<T>(weights[r].weight[j]), x[r][b] - other, y);
        }
      }
    }
  };
  if (left >= kBatches * kWidth<T>)
    add([](const T* from, int b) { return load(from + b * kWidth<T>); });
  else
    add(load_at);
  for (int r = 0; r < rows; ++r)
    for (int64_t b = 0; b < batches; ++b)
      store_up_to(gx + (i + r) * d + k + b * kWidth<T>, sum[r][b], left - b * kWidth<T>);
}

template <class T>
void cdist_grad_of(double p, const View& g, const View& x1, const View& x2, const View& y, const View& gx) {
  constexpr int64_t kElements = kBatches * kWidth<T>;
  const int64_t m = x1.shape[1], n = x2.shape[1], d = x1.shape[2], blocks = (m + kRows - 1) / kRows;
  if (d == 0) return;
  functors::with_norm(p, d, [&](const auto& norm) {
    const int64_t grain = std::max<int64_t>(kPartWork * 8 / (kRows * (n + 1) * std::max(d, kElements)), 1);
    parallel_for(x1.shape[0] * blocks, grain, [&](int64_t first, int64_t last) {
      const Scratch scratch(static_cast<size_t>(2 * kRows * n + 1) * sizeof(T));
      Weights<T> weights[kRows];
      for (int r = 0; r < kRows; ++r) weights[r] = {scratch.data<T>() + 2 * r * n, scratch.data<T>() + (2 * r + 1) * n};
      for (int64_t block = first; block < last; ++block) {
        const int64_t batch = block / blocks, i = block % blocks * kRows, rows = std::min<int64_t>(kRows, m - i);
        const auto job = distances_of<T>(x1, x2, y, batch);
        const T* const grad = g.as<const T>() + (job.pairs ? 0 : batch * m * n);
        T* const to = gx.as<T>() + batch * m * d;
        for (int64_t r = 0; r < rows; ++r) set_weights(norm, job, grad, i + r, weights[r]);
        for (int64_t k = 0; k < d; k += kElements) {
          if (rows == kRows)
            add_slopes<kRows>(norm, job, i, k, weights, to);
          else
            for (int64_t r = 0; r < rows; ++r) add_slopes<1>(norm, job, i + r, k, weights + r, to);
        }
      }
    });
  });
}

bool cdist(double p, const View& x1, const View& x2, const View& y) {
  if (y.numel == 0) return true;
  y.dtype == kFloat32 ? cdist_of<float>(p, x1, x2, y) : cdist_of<double>(p, x1, x2, y);
  return true;
}
void cdist_grad(double p, const View& g, const View& x1, const View& x2, const View& y, const View& gx) {
  if (gx.numel == 0) return;
  gx.dtype == kFloat32 ? cdist_grad_of<float>(p, g, x1, x2, y, gx) : cdist_grad_of<double>(p, g, x1, x2, y, gx);
}

}  // namespace

void install_distance(KernelTable& table) {
  table.cdist = cdist;
  table.cdist_grad = cdist_grad;
}

}  // namespace reel::cpu::REEL_ISA
