#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "lib/device/kernels/copy.h"
#include "lib/device/kernels/embedding_bag.h"
#include "lib/device/kernels/enums.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"

// Indexing, sorting and random numbers on the GPU, kernel by kernel against the CPU's: every way that a kernel takes,
// which depends on sizes, over layouts and element types.

using namespace reel;

namespace {

#define NEEDS_GPU()                  \
  if (!cuda::is_available()) return; \
  const KernelTable& gpu = kernels_on(kCUDA)

std::mt19937 engine(7);
int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); }

/// A tensor on both devices.
struct Both {
  Tensor cpu, gpu;
  explicit Both(const Tensor& x) : cpu(x), gpu(x.to(kCUDA)) {}
  Both(Tensor x, Tensor y) : cpu(std::move(x)), gpu(std::move(y)) {}
  template <class F>
  Both map(const F& f) const {
    return {f(cpu), f(gpu)};
  }
  const View& on_cpu() const { return view_of(cpu); }
  const View& on_gpu() const { return view_of(gpu); }
};

enum class Layout { kDense, kTransposed, kSliced };
constexpr Layout kLayouts[] = {Layout::kDense, Layout::kTransposed, Layout::kSliced};
constexpr DType kDTypes[] = {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

/// Numbers with repetitions, and NaN, infinity and both zeros among floats.
Tensor numbers(const Shape& shape, DType dtype, bool special = true) {
  Tensor x = make_tensor(shape, kFloat64);
  const double rare[] = {NAN, -0.0, 0.0, INFINITY, -INFINITY, -NAN};
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = static_cast<double>(below(4001) - 2000) / 64;
    x.data<double>()[i] = special && is_floating_point(dtype) && below(8) == 0 ? rare[below(6)] : value;
  }
  return (is_floating_point(dtype) ? x : round(x)).to(dtype);
}

Both lay_out(const Shape& shape, DType dtype, Layout layout, bool special = true) {
  const int rank = shape.size();
  if (rank == 0 || layout == Layout::kDense) return Both(numbers(shape, dtype, special));
  Shape base = shape;
  if (layout == Layout::kTransposed) {
    std::swap(base[0], base[rank - 1]);
    return Both(numbers(base, dtype, special)).map([&](const Tensor& x) { return x.transpose(0, rank - 1); });
  }
  base[rank - 1] += 3;
  return Both(numbers(base, dtype, special)).map([&](const Tensor& x) {
    return x.narrow(rank - 1, 2, shape[rank - 1]);
  });
}

Both ids_below(const Shape& shape, int64_t size, bool negative = false) {
  Tensor ids = make_tensor(shape, kInt64);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data<int64_t>()[i] = below(size) - (negative && below(2) ? size : 0);
  return Both(ids);
}

/// Equal bit for bit, but for NaNs' bits; or within a relative tolerance.
bool same(const Both& x, double tolerance = 0) {
  const Tensor a = x.cpu.contiguous(), b = x.gpu.to(kCPU).contiguous();
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const int64_t size = size_of(a.dtype());
  if (!std::memcmp(view_of(a).data, view_of(b).data, a.numel() * size)) return true;
  if (!is_floating_point(a.dtype()) && a.dtype() != kBool) return false;  // bools may be any byte
  const Tensor u = a.to(kFloat64), v = b.to(kFloat64);
  for (int64_t i = 0; i < u.numel(); ++i) {
    const double p = u.data<double>()[i], q = v.data<double>()[i];
    if (std::isnan(p) && std::isnan(q)) continue;
    if (p == q && std::signbit(p) == std::signbit(q)) continue;
    if (!(std::abs(p - q) <= tolerance * (1 + std::abs(p)))) return false;
  }
  return true;
}

Both copy_of(const Both& x) {  // of the same layout
  Both y = x;
  const int rank = x.cpu.dim();
  y = x.map([&](const Tensor& t) {
    const Shape& shape = view_of(t).shape;
    if (rank < 2 || view_of(t).contiguous) return t.clone();
    return t.transpose(0, rank - 1).contiguous().clone().transpose(0, rank - 1).reshape(shape);
  });
  return y;
}

const char* name(ScatterOp op) {
  const char* names[] = {"replace", "add", "mul", "max", "min"};
  return names[static_cast<int>(op)];
}
constexpr ScatterOp kScatters[] = {ScatterOp::kReplace, ScatterOp::kAdd, ScatterOp::kMul, ScatterOp::kMax,
                                   ScatterOp::kMin};

/// Half types are joined in float on the GPU, and rounded once or twice; long runs are joined in pieces.
double tolerance_for(DType dtype, bool pieces) {
  return dtype == kFloat16 ? 2e-3 : dtype == kBFloat16 ? 2e-2 : pieces ? 1e-4 : 0;
}
Tensor wide(const Tensor& x) { return is_half(x.dtype()) ? x.to(kFloat32) : x; }
/// f(y), of which the CPU gets a wider copy if it would round each step to a half type.
template <class F>
Both joined(const Both& y, const F& f) {
  const Tensor there = wide(y.cpu);
  f(cpu_kernels(), view_of(there), [](const Both& x) { return wide(x.cpu); });
  f(kernels_on(kCUDA), y.on_gpu(), [](const Both& x) { return x.gpu; });
  return {there.to(y.cpu.dtype()), y.gpu};
}

struct SliceCase {
  Shape x;
  int dim;
  int64_t n;
};
const SliceCase kSlices[] = {
    {{5}, 0, 3},        {{7, 4}, 0, 40},       {{50, 33}, 0, 100}, {{3, 2, 5}, 1, 70},    {{6, 5}, 1, 9},
    {{4, 3, 8}, 2, 65}, {{300, 8}, 0, 1500},   {{1, 6}, 0, 2100},  {{2, 40, 3}, 1, 1100}, {{9, 16}, 0, 0},
    {{9, 0}, 0, 4},     {{1000, 12}, 0, 1024}, {{4, 300}, 0, 5},   {{2}, 0, 5000},        {{70000}, 0, 3000},
};

}  // namespace

TEST_CASE("cuda: slices are selected, copied and added as on the CPU", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  for (const auto& [shape, dim, n] : kSlices)
    for (const DType dtype : kDTypes)
      for (const Layout layout : kLayouts) {
        CAPTURE(shape, dim, n, dtype, static_cast<int>(layout));
        Shape plain = shape;
        plain[dim] = n;
        const Both ids = ids_below({n}, shape[dim], true);
        const Both x = lay_out(shape, dtype, layout), from = lay_out(plain, dtype, layout, false);
        const Both selected(make_tensor(plain, dtype), make_tensor(plain, dtype, kCUDA));
        cpu.index_select(x.on_cpu(), dim, ids.on_cpu(), selected.on_cpu(), nullptr);
        gpu.index_select(x.on_gpu(), dim, ids.on_gpu(), selected.on_gpu(), nullptr);
        REQUIRE(same(selected));
        const Both y = copy_of(x), sum = copy_of(lay_out(shape, dtype, layout, false));
        cpu.index_copy(y.on_cpu(), dim, ids.on_cpu(), from.on_cpu());
        gpu.index_copy(y.on_gpu(), dim, ids.on_gpu(), from.on_gpu());
        REQUIRE(same(y));
        const Both total = joined(sum, [&, dim = dim](const KernelTable& table, const View& to, const auto& here) {
          table.index_add(to, dim, view_of(here(ids)), view_of(here(from)));
        });
        REQUIRE(same(total, tolerance_for(dtype, n > 1024)));
      }
}

TEST_CASE("cuda: many tensors are joined as on the CPU, whatever their alignment", "[cuda]") {
  if (!cuda::is_available()) return;
  for (const DType dtype : {kUInt8, kBFloat16, kFloat32, kInt64})
    for (const int dim : {0, 1, 2}) {
      std::vector<Tensor> parts, moved;
      for (int i = 0; i < 150; ++i) {
        Shape shape{3, 4, 2};
        shape[dim] = i % 7;
        const Tensor all = randint(0, 200, {5 + shape.numel()}, {.dtype = kInt64, .device = kCPU}).to(dtype);
        const auto part = [&](const Tensor& from) {
          const Tensor x = from.narrow(0, i % 6, shape.numel());
          return i % 11 ? x.reshape(shape) : x.reshape({shape[2], shape[1], shape[0]}).transpose(0, 2);
        };
        parts.push_back(part(all)), moved.push_back(part(all.to(kCUDA)));
      }
      CAPTURE(dtype, dim);
      REQUIRE(same(Both(cat(parts, dim), cat(moved, dim))));
    }
}

TEST_CASE("cuda: many tensors are converted as on the CPU, whatever their alignment", "[cuda]") {
  NEEDS_GPU();
  for (const auto& [from, to] :
       {std::pair{kFloat32, kBFloat16}, {kBFloat16, kFloat32}, {kFloat32, kFloat16}, {kFloat16, kFloat32}}) {
    std::vector<BlockCopy> blocks[2];
    std::vector<Both> sources, targets;
    for (int64_t i = 0; i < 70; ++i) {  // more than a launch takes
      const int64_t skip = i % 3 * 4, n = i % 5 ? i * 8 + i % 2 : i * 500;
      sources.emplace_back(numbers({n + skip}, from));
      targets.emplace_back(full({n + skip}, 7, {.dtype = to, .device = kCPU}));
      for (const bool on_gpu : {false, true}) {
        const auto at = [&](const Both& x) {
          const View& view = on_gpu ? x.on_gpu() : x.on_cpu();
          return view.as<char>() + skip * size_of(view.dtype);
        };
        blocks[on_gpu].push_back(whole_copy(at(sources.back()), from, at(targets.back()), to, n));
      }
    }
    cpu_kernels().copy_blocks(blocks[0]);
    gpu.copy_blocks(blocks[1]);
    CAPTURE(from, to);
    for (size_t i = 0; i < targets.size(); ++i) {
      REQUIRE(same(targets[i]));
      const int64_t skip = static_cast<int64_t>(i) % 3 * 4;
      if (from == kFloat32)
        REQUIRE(same(Both(targets[i].cpu.narrow(0, skip, targets[i].cpu.size(0) - skip),
                          sources[i].cpu.narrow(0, skip, targets[i].cpu.size(0) - skip).to(to).to(kCUDA))));
    }
  }
}

TEST_CASE("cuda: elements are gathered and scattered as on the CPU", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  struct Case {
    Shape x, index;
    int dim;
  };
  const Case cases[] = {
      {{5}, {3}, 0},         {{6, 5}, {4, 1}, 1},   {{6, 5}, {9, 5}, 0},           {{3, 4, 5}, {2, 30, 4}, 1},
      {{8, 50}, {8, 40}, 1}, {{3, 9}, {3, 200}, 1}, {{2, 300, 3}, {2, 500, 3}, 1}, {{2, 3}, {2, 2000}, 1},
      {{}, {}, 0},           {{4, 3}, {0, 3}, 0},   {{40000}, {35000}, 0},         {{5000}, {3000}, 0},
      {{9, 2}, {9, 100}, 1},
  };
  for (const auto& [shape, places, dim] : cases)
    for (const DType dtype : kDTypes)
      for (const Layout layout : kLayouts) {
        CAPTURE(shape, places, dim, dtype, static_cast<int>(layout));
        const int64_t n = places.empty() ? 1 : places[dim], size = shape.empty() ? 1 : shape[dim];
        Both index = ids_below(places, size);
        if (layout == Layout::kTransposed && places.size() > 1)  // strided, too
          index = index.map([&](const Tensor& t) { return t.transpose(0, 1).contiguous().transpose(0, 1); });
        const Both x = lay_out(shape, dtype, layout), from = lay_out(places, dtype, layout, false);
        const Both y(make_tensor(places, dtype), make_tensor(places, dtype, kCUDA));
        cpu.gather(x.on_cpu(), dim, index.on_cpu(), y.on_cpu(), nullptr);
        gpu.gather(x.on_gpu(), dim, index.on_gpu(), y.on_gpu(), nullptr);
        REQUIRE(same(y));
        for (const ScatterOp op : kScatters) {
          CAPTURE(name(op));
          const bool few_factors = op == ScatterOp::kMul && n > 100;  // else all is 0 or infinite
          const Both start = lay_out(shape, dtype, layout, op != ScatterOp::kAdd && !few_factors);
          const Both to = copy_of(start);
          Both what = op == ScatterOp::kMax || op == ScatterOp::kMin ? lay_out(places, dtype, layout) : from;
          if (few_factors && is_floating_point(dtype)) what = Both((1 + what.cpu.contiguous() / 1e5).to(dtype));
          const Both result = joined(to, [&, dim = dim](const KernelTable& table, const View& y, const auto& here) {
            table.scatter(op, y, dim, view_of(here(index)), view_of(here(what)));
          });
          REQUIRE(same(result, op == ScatterOp::kAdd || op == ScatterOp::kMul ? tolerance_for(dtype, n > 1024) : 0));
        }
      }
}

TEST_CASE("cuda: many elements that go to one place are joined in pieces", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  const int64_t n = 9000;
  for (const int64_t hot : {int64_t{1}, int64_t{3}}) {
    Tensor list = make_tensor({n}, kInt64);
    for (int64_t i = 0; i < n; ++i) list.data<int64_t>()[i] = below(4) ? below(hot) : below(500);
    const Both ids(list), x(numbers({500, 3}, kFloat64, false)), from(numbers({n, 3}, kFloat64, false));
    const Both y = copy_of(x);
    cpu.index_add(y.on_cpu(), 0, ids.on_cpu(), from.on_cpu());
    gpu.index_add(y.on_gpu(), 0, ids.on_gpu(), from.on_gpu());
    REQUIRE(same(y, 1e-12));
    for (const ScatterOp op : {ScatterOp::kAdd, ScatterOp::kMax, ScatterOp::kMin}) {
      CAPTURE(name(op));
      const Both wide = ids.map([&](const Tensor&t) { return t.unsqueeze(1).expand({n, 3}); }), z = copy_of(x);
      cpu.scatter(op, z.on_cpu(), 0, wide.on_cpu(), from.on_cpu());
      gpu.scatter(op, z.on_gpu(), 0, wide.on_gpu(), from.on_gpu());
      REQUIRE(same(z, 1e-12));
    }
  }
}

TEST_CASE("cuda: ids that are out of range read zeros, write nothing, and are reported", "[cuda]") {
  NEEDS_GPU();
  const int64_t wild[] = {5, -6, INT64_MAX, INT64_MIN, 1 << 30};
  for (const int64_t n : {6, 80, 1500, 40000}) {
    Tensor list = make_tensor({n}, kInt64);
    for (int64_t i = 0; i < n; ++i) list.data<int64_t>()[i] = i % 3 == 0 ? wild[i / 3 % 5] : i % 5;
    const Tensor ids = list.to(kCUDA), good = tensor(std::vector<int64_t>{0}).to(kCUDA);
    const Tensor x = ones({5, 4}, {.device = kCPU}).to(kCUDA), rows = ones({n, 4}, {.device = kCPU}).to(kCUDA);
    const auto total = [](const Tensor& t) { return sum(t.to(kCPU)).item<float>(); };
    const auto zeros_there = [] { return zeros({5, 4}, {.device = kCPU}).to(kCUDA); };
    Tensor y = make_tensor({n, 4}, kFloat32, kCUDA);
    gpu.index_select(view_of(x), 0, view_of(ids), view_of(y), nullptr);
    const Tensor read = y.to(kCPU);
    for (int64_t i = 0; i < n; ++i) REQUIRE(read.data<float>()[4 * i] == (i % 3 == 0 ? 0 : 1));

    double expected = 0;  // of the additions to x
    for (int64_t i = 0; i < n; ++i) expected += i % 3 != 0;
    Tensor to = zeros_there();
    gpu.index_add(view_of(to), 0, view_of(ids), view_of(rows));
    REQUIRE(total(to) == 4 * expected);
    gpu.index_copy(view_of(to), 0, view_of(ids), view_of(rows));
    REQUIRE(max(to.to(kCPU)).item<float>() == 1);

    const Tensor wide = ids.unsqueeze(1).expand({n, 4});
    gpu.gather(view_of(x), 0, view_of(wide), view_of(y), nullptr);
    REQUIRE(total(y) == 4 * expected);
    for (const ScatterOp op : kScatters) {
      to = zeros_there();
      gpu.scatter(op, view_of(to), 0, view_of(wide), view_of(rows));
      if (op == ScatterOp::kAdd) REQUIRE(total(to) == 4 * expected);
    }

    int64_t bad = 0;
    REQUIRE_FALSE(gpu.check_bounds("someone", view_of(ids), 0, 5, &bad));
    // The first one, unless there are very many.
    REQUIRE_THROWS_WITH(cuda::synchronize(), Catch::Contains(n < 10000 ? "someone: index 5 is" : "someone: index "));
    cuda::synchronize();  // once
    REQUIRE_FALSE(gpu.check_bounds("someone", view_of(good), 0, 5, &bad));
    cuda::synchronize();
  }
}

TEST_CASE("cuda: targets are read in one go, but for ignored ones", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t n : {0, 1, 2, 5, 33, 1000, 5000, 70001})
    for (const int64_t ignored : {-100, -1, 0, 3, 255}) {
      CAPTURE(n, ignored);
      std::vector<int64_t> values(static_cast<size_t>(n));
      for (int64_t& v : values) v = below(4) ? below(5) : ignored;
      const auto read = [&](const std::vector<int64_t>& given) {
        const Tensor ids = tensor(given, {n + 1}, {.device = kCUDA}).narrow(0, 1, n);  // not at an aligned address
        const Tensor marked = full({n}, 77, {.dtype = kInt64, .device = kCUDA});
        for (const DType dtype : {kFloat32, kFloat64}) {
          const Tensor kept = make_tensor({}, dtype, kCUDA);
          int64_t bad;
          gpu.read_targets("someone", view_of(ids), 5, ignored, view_of(kept),
                           dtype == kFloat32 ? &view_of(marked) : nullptr, &bad);
          const int64_t found = kept.item<int64_t>();  // or an Error
          REQUIRE(found == n - std::count(given.begin() + 1, given.end(), ignored));
        }
        std::vector<int64_t> expected(given.begin() + 1, given.end());
        std::replace(expected.begin(), expected.end(), ignored, int64_t{-1});
        REQUIRE(marked.to_vector<int64_t>() == expected);
      };
      values.insert(values.begin(), 9);
      read(values);
      if (n < 5) continue;
      values[static_cast<size_t>(n) / 2 + 1] = -2, values[static_cast<size_t>(n)] = 5;
      REQUIRE_THROWS_WITH(read(values), Catch::Contains("someone: index -2 is"));
      cuda::synchronize();  // once
    }
}

TEST_CASE("cuda: bags of rows are made as on the CPU", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  for (const DType dtype : {kFloat32, kFloat64})
    for (const int64_t width : {0, 1, 5, 64, 300})
      for (const int mode : {0, 1, 2, 3}) {  // sums, means, maxima, weighted sums
        CAPTURE(dtype, width, mode);
        const int64_t bags = 20;
        Tensor limits = make_tensor({bags + 1}, kInt64);
        limits.data<int64_t>()[0] = 0;
        for (int64_t b = 0; b < bags; ++b) limits.data<int64_t>()[b + 1] = limits.data<int64_t>()[b] + below(9);
        const int64_t n = limits.data<int64_t>()[bags];
        const Both bounds(limits), ids = ids_below({n}, 30);
        const Both weight = lay_out({30, width}, dtype, Layout::kSliced, mode == 2);
        const Both factors(numbers({n}, dtype, false));
        const auto pair = [](const Shape& shape, DType type) {
          return Both(make_tensor(shape, type), make_tensor(shape, type, kCUDA));
        };
        const Both bag = pair({n}, kInt64), count = pair({bags}, kInt64);
        const Both out = pair({bags, width}, mode == 2 ? kInt64 : dtype);
        const auto run = [&](const KernelTable& table, auto side) {
          table.embedding_bag({.dtype = dtype,
                               .max = mode == 2,
                               .mean = mode == 1,
                               .bags = bags,
                               .width = width,
                               .weight = side(weight).data,
                               .rows = 30,
                               .stride = side(weight).strides[0],
                               .ids = side(ids).template as<const int64_t>(),
                               .bounds = side(bounds).template as<const int64_t>(),
                               .factors = mode == 3 ? side(factors).data : nullptr,
                               .padding = 4,
                               .out = side(out).data,
                               .bag = side(bag).template as<int64_t>(),
                               .count = side(count).template as<int64_t>()});
        };
        run(cpu, [](const Both& x) -> const View& { return x.on_cpu(); });
        run(gpu, [](const Both& x) -> const View& { return x.on_gpu(); });
        REQUIRE(same(out, mode == 3 ? 1e-6 : 0));
        REQUIRE(same(bag));
        REQUIRE(same(count));
      }
}

TEST_CASE("cuda: sorting is stable, with NaN the largest, as on the CPU", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  struct Case {
    Shape x;
    int64_t k;
  };
  const Case cases[] = {{{}, 1},        {{1}, 1},          {{7, 1}, 1},       {{40, 10}, 10},   {{40, 10}, 3},
                        {{3, 0}, 0},    {{2, 3, 33}, 33},  {{3, 1000}, 1000}, {{2048}, 2048},   {{2049}, 2049},
                        {{3, 5000}, 5}, {{2, 2500}, 2500}, {{40000}, 7},      {{10000}, 10000}, {{3, 3000}, 700}};
  for (const auto& [shape, k] : cases)
    for (const DType dtype : kDTypes)
      for (const Layout layout : kLayouts)
        for (const bool descending : {false, true}) {
          if (shape.numel() > 9000 && layout == Layout::kTransposed) continue;
          CAPTURE(shape, k, dtype, static_cast<int>(layout), descending);
          const Both x = lay_out(shape, dtype, layout);
          Shape result = shape;
          if (!result.empty()) result[result.size() - 1] = k;
          const Both values(make_tensor(result, dtype), make_tensor(result, dtype, kCUDA));
          const Both order(make_tensor(result, kInt64), make_tensor(result, kInt64, kCUDA));
          cpu.sort(descending, x.on_cpu(), values.on_cpu(), order.on_cpu());
          gpu.sort(descending, x.on_gpu(), values.on_gpu(), order.on_gpu());
          REQUIRE(same(order));
          REQUIRE(same(values));
          if (x.cpu.numel() == 0 || descending) continue;
          if (!result.empty()) result[result.size() - 1] = 1;
          const Both at(make_tensor(result, kInt64), make_tensor(result, kInt64, kCUDA));
          for (const bool nan_wins : {false, true}) {
            cpu.kthvalue(k / 2, nan_wins, x.on_cpu(), at.on_cpu());
            gpu.kthvalue(k / 2, nan_wins, x.on_gpu(), at.on_gpu());
            REQUIRE(same(at));
          }
          const Both clean = lay_out(shape, dtype, layout, false);
          cpu.kthvalue(k / 2, true, clean.on_cpu(), at.on_cpu());
          gpu.kthvalue(k / 2, true, clean.on_gpu(), at.on_gpu());
          REQUIRE(same(at));
        }
}

TEST_CASE("cuda: rows are ordered, values found and nonzeros listed as on the CPU", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  for (const DType dtype : kDTypes) {
    for (const auto& [n, m] :
         {std::pair<int64_t, int64_t>{0, 3}, {1, 2}, {30, 0}, {200, 3}, {1024, 1}, {2500, 2}, {5000, 1}}) {
      CAPTURE(dtype, n, m);
      Tensor rows = numbers({n, m}, dtype);
      if (is_floating_point(dtype)) rows = round(rows / 8).to(dtype);
      const Both x(rows), order(make_tensor({n}, kInt64), make_tensor({n}, kInt64, kCUDA));
      cpu.lexsort(x.on_cpu(), order.on_cpu());
      gpu.lexsort(x.on_gpu(), order.on_gpu());
      REQUIRE(same(order));
    }
    for (const bool right : {false, true})
      for (const auto& [in, of] :
           {std::pair<Shape, Shape>{{50}, {3, 70}}, {{4, 60}, {4, 33}}, {{1}, {5}}, {{0}, {5}}}) {
        CAPTURE(dtype, in, of, right);
        Tensor lines = numbers(in, dtype);
        if (lines.numel()) lines = sort(lines, -1).values;
        const Both sorted(lines), values(numbers(of, dtype));
        const Both at(make_tensor(of, kInt64), make_tensor(of, kInt64, kCUDA));
        cpu.searchsorted(right, sorted.on_cpu(), values.on_cpu(), at.on_cpu());
        gpu.searchsorted(right, sorted.on_gpu(), values.on_gpu(), at.on_gpu());
        REQUIRE(same(at));
      }
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 4}, Shape{3, 4, 5}, Shape{4096}, Shape{100, 101}})
      for (const Layout layout : kLayouts) {
        CAPTURE(dtype, shape, static_cast<int>(layout));
        Both x = lay_out(shape, dtype, layout);
        const int64_t count = cpu.count_nonzero(x.on_cpu());
        REQUIRE(gpu.count_nonzero(x.on_gpu()) == count);
        const Shape list{count, static_cast<int64_t>(shape.size())};
        const Both at(make_tensor(list, kInt64), make_tensor(list, kInt64, kCUDA));
        cpu.nonzero(x.on_cpu(), at.on_cpu());
        gpu.nonzero(x.on_gpu(), at.on_gpu());
        REQUIRE(same(at));
      }
  }
}

TEST_CASE("cuda: random numbers are the CPU's", "[cuda]") {
  NEEDS_GPU();
  const KernelTable& cpu = cpu_kernels();
  struct Case {
    RandomKind kind;
    double a, b;
  };
  const Case cases[] = {
      {RandomKind::kUniform, -1.5, 2.25}, {RandomKind::kUniform, 3, 3},   {RandomKind::kNormal, 1, 0.3},
      {RandomKind::kInteger, -5, 1e12},   {RandomKind::kInteger, 0, 200}, {RandomKind::kLogNormal, 0.1, 0.5},
      {RandomKind::kExponential, 2, 0},   {RandomKind::kCauchy, 0, 1},    {RandomKind::kGeometric, 0.3, 0}};
  for (const auto& [kind, a, b] : cases)
    for (const DType dtype : kDTypes)
      for (const Layout layout : kLayouts)
        for (const uint64_t offset : {uint64_t{0}, uint64_t{3}, uint64_t{8}, (uint64_t{1} << 34) + 1}) {
          if (b == 1e12 && dtype != kInt64 && dtype != kFloat64) continue;  // out of range: undefined
          CAPTURE(static_cast<int>(kind), a, b, dtype, static_cast<int>(layout), offset);
          const Both y = lay_out({3, 37}, dtype, layout, false);
          cpu.random(kind, a, b, 42, offset, y.on_cpu());
          gpu.random(kind, a, b, 42, offset, y.on_gpu());
          REQUIRE(same(y, 1e-6));
        }
  for (const DType dtype : {kFloat32, kFloat64})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{5}}) {
      const int64_t n = 1000;
      const Both rate(abs(numbers({n}, dtype, false))), events(make_tensor({n}, dtype), make_tensor({n}, dtype, kCUDA));
      cpu.poisson(9, offset, rate.on_cpu(), events.on_cpu());
      gpu.poisson(9, offset, rate.on_gpu(), events.on_gpu());
      REQUIRE(same(events));
      for (const double p : {0.0, 0.3, 1.0}) {
        const Both x(numbers({n}, dtype)), y(make_tensor({n}, dtype), make_tensor({n}, dtype, kCUDA));
        const Both keep(make_tensor({n}, kBool), make_tensor({n}, kBool, kCUDA));
        cpu.dropout(p, 9, offset, x.on_cpu(), y.on_cpu(), keep.on_cpu());
        gpu.dropout(p, 9, offset, x.on_gpu(), y.on_gpu(), keep.on_gpu());
        REQUIRE(same(y));
        REQUIRE(same(keep));
      }
      const Both sums(cumsum(abs(numbers({3, 50}, kFloat64, false)), 1));
      const Both drawn(make_tensor({3, 41}, kInt64), make_tensor({3, 41}, kInt64, kCUDA));
      cpu.multinomial(9, offset, sums.on_cpu(), drawn.on_cpu());
      gpu.multinomial(9, offset, sums.on_gpu(), drawn.on_gpu());
      REQUIRE(same(drawn));
    }
}

TEST_CASE("ids and targets of the host's go to the GPU of what they index, without a wait", "[cuda]") {
  if (!cuda::is_available()) return;
  const Tensor table = randn({7, 5}, {.device = kCUDA}), weight = rand({5}, {.device = kCUDA}) + 0.5;
  const Tensor images = randn({2, 5, 3}, {.device = kCUDA});
  for (const DType dtype : {kInt64, kInt32, kUInt8}) {
    CAPTURE(dtype);
    const auto ids_of = [&](std::vector<int64_t> ids) { return tensor(ids, {.device = kCPU}).to(dtype); };
    const Tensor ids = ids_of({3, 6, 0, 3}), classes = ids_of({4, 0, 2, 1, 1, 4, 3}), one = ids_of({2}).squeeze(0);
    const Tensor of_elements = ids_of({3, 6, 0, 3, 1, 1, 2, 0, 5, 4}).view({2, 5}),
                 pixels = ids_of({4, 0, 2, 1, 1, 3}).view({2, 3});
    struct Case {
      const char* op;
      std::function<Tensor(const Tensor& x, Device where)> run;
    };
    const std::vector<Case> cases = {
        {"embedding", [&](const Tensor& x, Device to) { return embedding(x, ids.to(to)); }},
        {"sparse embedding", [&](const Tensor& x, Device to) { return embedding(x, ids.to(to), true); }},
        {"embedding_bag", [&](const Tensor& x, Device to) { return embedding_bag(x, of_elements.to(to)); }},
        {"index_select", [&](const Tensor& x, Device to) { return index_select(x, 0, ids.to(to)); }},
        {"index_select of columns", [&](const Tensor& x, Device to) { return index_select(x, 1, classes.to(to)); }},
        {"x[ids]", [&](const Tensor& x, Device to) { return x.index({ids.to(kInt64).to(to)}); }},
        {"gather", [&](const Tensor& x, Device to) { return gather(x, 0, of_elements.to(to)); }},
        {"take", [&](const Tensor& x, Device to) { return take(x, of_elements.to(to)); }},
        {"index_add", [&](const Tensor& x, Device to) { return index_add(x, 0, ids.to(to), x.narrow(0, 0, 4)); }},
        {"nll_loss", [&](const Tensor& x, Device to) { return nll_loss(x, classes.to(to)); }},
        {"nll_loss with weights",
         [&](const Tensor& x, Device to) { return nll_loss(x, classes.to(to), {.weight = weight}); }},
        {"nll_loss of one row", [&](const Tensor& x, Device to) { return nll_loss(x[0], one.to(to)); }},
        {"cross_entropy", [&](const Tensor& x, Device to) { return cross_entropy(x, classes.to(to)); }},
        {"cross_entropy of a sum", [&](const Tensor& x, Device to) { return cross_entropy(x, classes.to(to), kSum); }},
        {"cross_entropy that ignores",
         [&](const Tensor& x, Device to) { return cross_entropy(x, classes.to(to), {.ignore_index = 1}); }},
        {"cross_entropy with weights",
         [&](const Tensor& x, Device to) { return cross_entropy(x, classes.to(to), {.weight = weight}); }},
        {"smooth cross_entropy",
         [&](const Tensor& x, Device to) {
           return cross_entropy(x, classes.to(to), {.weight = weight, .label_smoothing = 0.1});
         }},
        {"cross_entropy of images",
         [&](const Tensor& x, Device to) { return cross_entropy(images * x[0][0], pixels.to(to)); }},
    };
    for (const Case& c : cases) {
      CAPTURE(c.op);
      struct Result {
        Tensor x, y;
      };
      const auto result = [&](Device to) {
        const Tensor x = table.clone().requires_grad_(), y = c.run(x, to);
        sum(y * y).backward();
        return Result{x, y};
      };
      const Result there = result(kCUDA);
      cuda::set_sync_debug_mode(cuda::SyncDebugMode::kError);
      Result here;
      CHECK_NOTHROW(here = result(kCPU));
      cuda::set_sync_debug_mode(cuda::SyncDebugMode::kDefault);
      REQUIRE(here.y.defined());
      CHECK(equal(here.y, there.y));
      CHECK(allclose(here.x.grad(), there.x.grad()));
    }
  }
  const Tensor here = tensor({0, 1}, {.device = kCUDA});
  CHECK_THROWS_WITH(index_select(zeros({3, 2}, {.device = kCPU}), 0, here), Catch::Contains("its indices on cuda:0"));
  CHECK_THROWS_WITH(nll_loss(zeros({2, 2}, {.device = kCPU}), here), Catch::Contains("cuda:0"));
  index_select(table, 0, tensor({0, 7}, {.device = kCPU}));
  CHECK_THROWS_WITH(cuda::synchronize(), Catch::Contains("index_select: index 7 is out of range [0, 7)"));
}
