#include <algorithm>
#include <cstring>

#include "lib/core/half.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/dispatch.h"
#include "lib/functors/number.h"
#include "lib/kernels/copy.h"

// Copies between views, with conversions of dtype and layout, and fill. Memory is the limit: transposed matrices are
// copied by square tiles, contiguous runs by memcpy.
namespace reel::cpu {
namespace {

/// Stands for bool in with_all_types, where bools must be told from bytes.
struct Bool {
  uint8_t byte;
};

template <class F>
void with_all_types(DType dtype, const F& f) {
  if (dtype == kBool) return f(Type<Bool>());
  with_type(dtype, f);
}

/// The value of an element as an arithmetic type.
template <class T>
auto widen(T x) {
  if constexpr (std::is_same_v<T, Bool>)
    return x.byte != 0;
  else if constexpr (std::is_same_v<T, Float16>)
    return float16_to_float(x.bits);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return bfloat16_to_float(x.bits);
  else
    return x;
}

template <class To, class From>
To narrow(From x) {
  if constexpr (std::is_same_v<To, Bool>) {
    return {x != From(0)};
  } else if constexpr (std::is_same_v<To, Float16> || std::is_same_v<To, BFloat16>) {
    To result;
    if constexpr (std::is_same_v<To, Float16>)
      result.bits = float_to_float16(static_cast<float>(x));
    else
      result.bits = float_to_bfloat16(static_cast<float>(x));
    return result;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return functors::to_integer<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

/// Square tiles, so that neither side's cache lines are read twice; of constant size but at the edges, so that the
/// compiler unrolls them.
template <class T>
void transpose(const T* from, T* to, int64_t rows, int64_t columns, int64_t from_stride, int64_t to_stride) {
  constexpr int64_t kTile = 16;
  const auto tile = [=](int64_t i0, int64_t j0, int64_t height, int64_t width) {
    for (int64_t j = j0; j < j0 + width; ++j)
      for (int64_t i = i0; i < i0 + height; ++i) to[j * to_stride + i] = from[i * from_stride + j];
  };
  for (int64_t i = 0; i < rows; i += kTile)
    for (int64_t j = 0; j < columns; j += kTile)
      if (rows - i >= kTile && columns - j >= kTile)
        tile(i, j, kTile, kTile);
      else
        tile(i, j, std::min(kTile, rows - i), std::min(kTile, columns - j));
}

/// True, and copied, when the last two dimensions of `from` are a transposed matrix and `to` is row-major.
bool copy_transposed(const View& from, const View& to) {
  const int rank = from.shape.size();
  if (rank < 2 || !to.contiguous) return false;
  const int row = rank - 2, column = rank - 1;
  const int64_t rows = from.shape[column], columns = from.shape[row];  // of the matrix as it lies in memory
  if (from.strides[row] != 1 || rows < 8 || columns < 8) return false;
  with_word(from.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    // One matrix after the other; views of the dimensions before these two.
    View source = from, target = to;
    source.shape.resize(row), source.strides.resize(row), target.shape.resize(row), target.strides.resize(row);
    const View* const views[] = {&source, &target};
    plain::for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
      for (int64_t i = 0; i < n; ++i)
        transpose(reinterpret_cast<const T*>(p[0] + i * s[0]), reinterpret_cast<T*>(p[1] + i * s[1]), rows, columns,
                  from.strides[column], rows);
    });
  });
  return true;
}

void copy_bytes(const View& from, const View& to) {
  if (from.contiguous && to.contiguous) {
    std::memcpy(to.data, from.data, from.numel * size_of(from.dtype));
  } else if (!copy_transposed(from, to)) {
    const View* const views[] = {&to, &from};
    plain::for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
      const int64_t size = size_of(to.dtype);
      if (s[0] == size && s[1] == size) {
        std::memcpy(p[0], p[1], n * size);
      } else {
        with_word(to.dtype, [&](auto type) {
          using T = typename decltype(type)::type;
          for (int64_t i = 0; i < n; ++i) plain::element<T>(p[0], i * s[0]) = plain::element<const T>(p[1], i * s[1]);
        });
      }
    });
  }
}

}  // namespace

void copy(const View& from, const View& to) {
  if (to.numel == 0) return;
  if (from.dtype == to.dtype && from.dtype != kBool) return copy_bytes(from, to);
  with_all_types(from.dtype, [&](auto from_type) {
    with_all_types(to.dtype, [&](auto to_type) {
      using From = typename decltype(from_type)::type;
      using To = typename decltype(to_type)::type;
      plain::map_elements<From, To>([](From x) { return narrow<To>(widen(x)); }, to, from);
    });
  });
}

namespace {

void copy_blocks(std::span<const BlockCopy> blocks) {
  for (const BlockCopy& block : blocks) {
    const auto copy_rows = [&](auto bytes) {
      for (int64_t row = 0; row < block.rows; ++row)
        std::memcpy(static_cast<char*>(block.to) + row * block.to_step,
                    static_cast<const char*>(block.from) + row * block.from_step, bytes);
    };
    switch (block.bytes) {  // single elements need no call
      case 4: copy_rows(std::integral_constant<size_t, 4>()); break;
      case 8: copy_rows(std::integral_constant<size_t, 8>()); break;
      default: copy_rows(static_cast<size_t>(block.bytes));
    }
  }
}

}  // namespace

void fill(const View& to, Scalar value) {
  with_all_types(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T element = value.is_floating_point() ? narrow<T>(value.to<double>()) : narrow<T>(value.to<int64_t>());
    const View* const views[] = {&to};
    plain::for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
      if (s[0] == sizeof(T)) {
        T* y = reinterpret_cast<T*>(p[0]);
        for (int64_t i = 0; i < n; ++i) y[i] = element;
      } else {
        for (int64_t i = 0; i < n; ++i) plain::element<T>(p[0], i * s[0]) = element;
      }
    });
  });
}

void install_copy(KernelTable& table) {
  table.copy = copy;
  table.copy_from = [](int, const View& from, const View& to) { copy(from, to); };
  table.copy_blocks = copy_blocks;
  table.fill = fill;
}

}  // namespace reel::cpu
