// This file converts half types by vectors, and divides operands of half types into pieces of float32.
#include "lib/cpu/simd/halves.h"

#include <algorithm>

#include "lib/base/half.h"
#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/scratch.h"
#include "lib/cpu/simd/batch.h"

namespace reel::cpu::REEL_ISA {
namespace {

constexpr int64_t kPiece = 1024;  // elements

/// Returns dimensions `first` … of a view; one of size 1 stands for dimension -1.
View inner_dims(const View& x, int first) {
  View result = x;
  const int rank = x.shape.size() - first;
  result.shape.resize(rank), result.strides.resize(rank);
  for (int d = 0; d < rank; ++d) {
    const bool is_new = first + d < 0;
    result.shape[d] = is_new ? 1 : x.shape[first + d], result.strides[d] = is_new ? 0 : x.strides[first + d];
  }
  result.numel = result.shape.numel();
  return result;
}

/// Converts n halves to float32.
void widen(const View& from, float* to, int64_t n) {
  from.dtype == kFloat16 ? convert(from.as<const Float16>(), to, n) : convert(from.as<const BFloat16>(), to, n);
}
/// Rounds n numbers to halves.
void narrow(const float* from, const View& to, int64_t n) {
  to.dtype == kFloat16 ? convert(from, to.as<Float16>(), n) : convert(from, to.as<BFloat16>(), n);
}

/// An Operand is one of the views of a kernel.
struct Operand {
  View part;               // its elements in the current piece
  View packed;             // these elements in a row, each once
  View wide;               // what the kernel gets: their float32 copy, or else `part`
  bool is_copied = false;  // whether it is of a half type
  bool is_dense = true;    // whether the elements lie in a row, in the order of the copy

  Operand() = default;
  /// `copy` has room for float32 copies of a piece of x, and behind them for its halves, if x is of a half type.
  Operand(const View& x, float* copy) : part(x), wide(x), is_copied(copy) {
    int64_t stride = 1, part_stride = 1;
    for (int d = part.shape.size() - 1; d >= 0; --d) {
      is_dense = is_dense && (part.shape[d] == 1 || part.strides[d] == part_stride);
      part_stride *= part.shape[d];
      if (!is_copied || wide.strides[d] == 0) continue;
      wide.strides[d] = stride, stride *= part.shape[d];
    }
    part.contiguous = wide.contiguous = is_dense;
    if (is_copied) {
      const bool repeats = stride != part_stride;
      wide.data = copy + x.numel, wide.contiguous = !repeats;
      packed = wide;
      wide.dtype = kFloat32, wide.data = copy;
    }
  }

  void move_to(char* data, int64_t n) {
    part.data = data;
    if (!is_copied) wide.data = data;
    for (View* view : {&part, &packed, &wide})
      if (!view->shape.empty()) view->numel = view->numel / view->shape[0] * n, view->shape[0] = n;
  }
  void read() const {
    if (is_dense) return widen(part, wide.as<float>(), part.numel);
    const View halves = distinct(packed);
    copy(distinct(part), halves);
    widen(halves, wide.as<float>(), halves.numel);
  }
  void write() const {
    if (is_dense) return narrow(wide.as<const float>(), part, part.numel);
    narrow(wide.as<const float>(), packed, packed.numel);
    copy(packed, part);
  }
};

void call_with_pieces(const View* const* given, int count, int whole, PartFunction call, const void* f) {
  View views[kMaxViews];
  const bool flat = whole == 0 && std::all_of(given, given + count, [](const View* v) { return !v || v->contiguous; });
  for (int i = 0; i < count; ++i)
    if (given[i]) views[i] = flat ? flat_view(given[i]->data, given[i]->dtype, given[i]->numel) : *given[i];

  // A piece has `step` elements of dimension `cut` and all of those behind it.
  const Shape shape = views[count - 1].shape;
  int cut = shape.size() - 1;
  int64_t inner = 1;
  for (; cut >= 0 && (whole > 0 || (cut > 0 && inner * shape[cut] <= kPiece)); --cut, --whole) inner *= shape[cut];
  const int64_t size = cut < 0 ? 1 : shape[cut], step = std::min(std::max<int64_t>(kPiece / inner, 1), size);

  const int64_t room = step * inner + (step * inner + 1) / 2;  // of a piece's float32 copies and its halves
  const Scratch memory(static_cast<size_t>(count * room) * sizeof(float));
  Operand operands[kMaxViews];
  const View* pieces[kMaxViews] = {};
  char* data[kMaxViews] = {};
  for (int i = 0; i < count; ++i) {
    if (!given[i]) continue;
    float* const copy = is_half(views[i].dtype) ? memory.data<float>() + i * room : nullptr;
    View x = inner_dims(views[i], cut);
    x.numel = x.numel / size * step, x.shape[0] = step;
    operands[i] = Operand(x, copy);
    pieces[i] = &operands[i].wide;
    data[i] = views[i].as<char>();
  }
  const auto move = [&](int d, int64_t by) {
    for (int i = 0; i < count; ++i)
      if (given[i] && d >= 0) data[i] += by * views[i].strides[d] * size_of(views[i].dtype);
  };
  int64_t at[kMaxDims] = {};
  while (true) {
    for (int64_t begin = 0; begin < size; begin += step) {
      const int64_t n = std::min(step, size - begin);
      for (int i = 0; i < count; ++i) {
        if (!given[i]) continue;
        const bool is_repeated = operands[i].part.data == data[i] && operands[i].part.shape[0] == n && begin > 0;
        operands[i].move_to(data[i], n);
        if (operands[i].is_copied && !is_repeated && i < count - 1) operands[i].read();
      }
      call(f, pieces);
      if (operands[count - 1].is_copied) operands[count - 1].write();
      move(cut, n);
    }
    move(cut, -size);
    int d = cut - 1;
    for (; d >= 0; --d) {
      move(d, 1);
      if (++at[d] < shape[d]) break;
      move(d, -shape[d]);
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace

void call_in_float32(const View* const* views, int count, int whole, PartFunction call, const void* f) {
  const View& result = *views[count - 1];
  if (result.numel == 0) return;
  const auto call_part = [=](const View* const* parts) { call_with_pieces(parts, count, whole, call, f); };
  const auto erased = [](const void* g, const View* const* parts) {
    (*static_cast<const decltype(call_part)*>(g))(parts);
  };
  // Pointwise kernels have been divided already.
  const unsigned mask = ((1u << whole) - 1) << std::max(result.shape.size() - whole, 0);
  if (whole > 0 && result.numel > part_size && call_parts(views, count, mask, 1, erased, &call_part)) return;
  call_part(views);
}

#ifdef __F16C__
// These convert a vector of elements at a time, and the last ones one by one with the same instructions.
void convert(const Float16* x, float* y, int64_t n) {
  int64_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
#endif
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  for (; i < n; ++i) y[i] = _cvtsh_ss(x[i].bits);
}
void convert(const float* x, Float16* y, int64_t n) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
  int64_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), _mm512_cvtps_ph(_mm512_loadu_ps(x + i), kNearest));
#endif
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), kNearest));
  for (; i < n; ++i) y[i].bits = static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x[i]), kNearest)));
}
#else
void convert(const Float16* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = float16_to_float(x[i].bits);
}
void convert(const float* x, Float16* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i].bits = float_to_float16(x[i]);
}
#endif
// The compiler vectorises these two.
void convert(const BFloat16* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = bfloat16_to_float(x[i].bits);
}
void convert(const float* x, BFloat16* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i].bits = float_to_bfloat16(x[i]);
}

}  // namespace reel::cpu::REEL_ISA
