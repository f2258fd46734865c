#include <algorithm>
#include <cstring>

#include "lib/cpu/kernels.h"
#include "lib/cpu/loop.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/halves.h"
#include "lib/cpu/simd/tiles.h"
#include "lib/cpu/simd/transpose_blocks.h"
#include "lib/device/dispatch.h"
#include "lib/device/kernels/copy.h"
#include "lib/functors/binary.h"
#include "lib/functors/number.h"

// Copies between views, with conversions of dtype and layout, and fill. Memory is the limit: transposed matrices are
// copied by square tiles, contiguous runs by memcpy.
namespace reel::cpu::REEL_ISA {
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
auto number_in(T x) {
  if constexpr (std::is_same_v<T, Bool>)
    return x.byte != 0;
  else
    return widen(x);
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

/// Writes from[2 * i] to to[i], for i < n. A pair of narrow elements is loaded as one number.
template <class T>
void copy_every_second(int64_t n, const T* from, T* to) {
  int64_t i = 0;
  if constexpr (sizeof(T) >= 4) {
    using F = std::conditional_t<sizeof(T) == 4, float, double>;
    const F* const x = reinterpret_cast<const F*>(from);
    F* const y = reinterpret_cast<F*>(to);
    for (; i + kWidth<F> <= n; i += kWidth<F>) store(y + i, load_every_second(x + 2 * i));
  } else {
    using Pair = std::conditional_t<sizeof(T) == 1, uint16_t, uint32_t>;
    for (; i < n - 1; ++i) {
      Pair pair;
      std::memcpy(&pair, from + 2 * i, sizeof(pair));
      to[i] = static_cast<T>(pair);
    }
  }
  for (; i < n; ++i) to[i] = from[2 * i];
}

/// Writes from[-2 * i] to to[i], for i < n. A narrow element is the second one of a pair.
template <class T>
void copy_every_second_back(int64_t n, const T* from, T* to) {
  int64_t i = 0;
  if constexpr (sizeof(T) >= 4) {
    using F = std::conditional_t<sizeof(T) == 4, float, double>;
    constexpr int64_t kLanes = kWidth<F>;
    const F* const x = reinterpret_cast<const F*>(from);
    F* const y = reinterpret_cast<F*>(to);
    const auto load_reversed = []<size_t... lane>(const F* p, std::index_sequence<lane...>) {
      return load_even(p, std::index_sequence<(sizeof...(lane) - 1 - lane)...>());
    };
    for (; i + kLanes <= n; i += kLanes)
      store(y + i, load_reversed(x - 2 * (i + kLanes - 1), std::make_index_sequence<size_t(kLanes)>()));
  } else {
    using Pair = std::conditional_t<sizeof(T) == 1, uint16_t, uint32_t>;
    constexpr int64_t kLanes = 64 / sizeof(Pair);
    typedef Pair Pairs [[gnu::vector_size(64)]];
    typedef T Elements [[gnu::vector_size(64 / 2)]];
    for (; i + kLanes < n; i += kLanes) {
      Pairs pairs;
      std::memcpy(&pairs, from - 2 * (i + kLanes) + 1, sizeof(pairs));
      [&]<size_t... lane>(std::index_sequence<lane...>) {
        pairs = __builtin_shufflevector(pairs, pairs, (sizeof...(lane) - 1 - lane)...) >> 8 * sizeof(T);
      }
      (std::make_index_sequence<size_t(kLanes)>());
      const Elements last = __builtin_convertvector(pairs, Elements);
      std::memcpy(to + i, &last, sizeof(last));
    }
  }
  for (; i < n; ++i) to[i] = from[-2 * i];
}

#if defined(__AVX512F__)
/// Returns 64 bytes of pairs, the first elements of which are p[0], p[step], p[2 * step], ….
template <int64_t step, class T>
__m512i load_pairs(const T* p) {
  const auto half = [p] { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
  if constexpr (step == 2)
    return _mm512_loadu_si512(p);
  else if constexpr (sizeof(T) == 2)
    return step == 1 ? _mm512_cvtepu16_epi32(half()) : _mm512_set1_epi16(static_cast<int16_t>(*p));
  else
    return step == 1 ? _mm512_cvtepu32_epi64(half()) : _mm512_set1_epi32(static_cast<int32_t>(*p));
}
#endif

/// Writes from[step * i] to to[2 * i], for i < n. What lies between these is not written: it may be another thread's.
template <int64_t step, class T>
void copy_to_every_second(int64_t n, const T* from, T* to) {
  int64_t i = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    constexpr int64_t kPairs = 32 / sizeof(T);
    for (; i + kPairs < n; i += kPairs) {
      const __m512i pairs = load_pairs<step>(from + step * i);
      if constexpr (sizeof(T) == 2)
        _mm512_mask_storeu_epi16(to + 2 * i, 0x55555555, pairs);
      else
        _mm512_mask_storeu_epi32(to + 2 * i, 0x5555, pairs);
    }
  }
#endif
  for (; i < n; ++i) to[2 * i] = from[step * i];
}

/// Copies n elements, whose neighbours in x are x_step bytes apart and those in y y_step bytes: multiples of their
/// size.
template <class T>
void copy_run(int64_t n, char* y, int64_t y_step, char* x, int64_t x_step) {
  constexpr int64_t kUnit = sizeof(T), kTogether = 4;
  const T* const from = reinterpret_cast<const T*>(x);
  T* const to = reinterpret_cast<T*>(y);
  if (y_step == kUnit) switch (x_step / kUnit) {
      case 1: return void(std::memcpy(y, x, n * kUnit));
      case 0: return void(std::fill_n(to, n, *from));
      case 2: return copy_every_second(n, from, to);
      case -2: return copy_every_second_back(n, from, to);
      case -1:
        for (int64_t i = 0; i < n; ++i) to[i] = from[-i];
        return;
    }
  if (y_step == 2 * kUnit) switch (x_step / kUnit) {
      case 0: return copy_to_every_second<0>(n, from, to);
      case 1: return copy_to_every_second<1>(n, from, to);
      case 2: return copy_to_every_second<2>(n, from, to);
    }
  int64_t i = 0;
  const auto move = [=](int64_t i) { element<T>(y, i * y_step) = element<const T>(x, i * x_step); };
  for (; i + kTogether <= n; i += kTogether)
    for (int64_t j = 0; j < kTogether; ++j) move(i + j);
  for (; i < n; ++i) move(i);
}

/// Word<bytes> is the unsigned integer of that size.
template <size_t bytes>
using Word =
    std::conditional_t<bytes == 1, uint8_t,
                       std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

/// Writes from[i * from_stride + j] to to[j * to_stride + i * to_step], for i < rows and j < columns, in tiles, so that
/// neither side's cache lines are read twice. Rows of registers that are less than a cache line go through a tile
/// without gaps: lines that are a power of two apart would displace each other before they are whole.
template <class T>
void transpose(const T* from, T* to, int64_t rows, int64_t columns, int64_t from_stride, int64_t to_stride,
               int64_t to_step) {
  constexpr int64_t kTile = 64, kUnit = sizeof(T);
  T tile[kTile * kTile];
  for (int64_t i = 0; i < rows; i += kTile)
    for (int64_t j = 0; j < columns; j += kTile) {
      const int64_t height = std::min(kTile, rows - i), width = std::min(kTile, columns - j);
      const T* const source = from + i * from_stride + j;
      T* const target = to + j * to_stride + i * to_step;
      if (to_step == 1 && sizeof(Row<T>) == 64) {
        transpose_blocks(source, from_stride, width, height, target, to_stride);
        continue;
      }
      transpose_blocks(source, from_stride, width, height, tile, kTile);
      for (int64_t k = 0; k < width; ++k)
        if (to_step == 1 && height == kTile)  // a constant size needs no call
          std::memcpy(target + k * to_stride, tile + k * kTile, kTile * kUnit);
        else
          copy_run<Word<kUnit>>(height, reinterpret_cast<char*>(target + k * to_stride), to_step * kUnit,
                                reinterpret_cast<char*>(tile + k * kTile), kUnit);
    }
}

/// Returns whether the last two dimensions of `from` are a transposed matrix and those of `to` are not.
bool is_transposed(const View& from, const View& to) {
  const int rank = from.shape.size();
  return rank >= 2 && from.strides[rank - 2] == 1 && from.strides[rank - 1] != 0 && to.strides[rank - 1] > 0 &&
         to.strides[rank - 2] > to.strides[rank - 1] && from.shape[rank - 1] >= 8 && from.shape[rank - 2] >= 8;
}

/// BlockElement<Word> is the type of that size of which there are rows of registers.
template <class Word>
using BlockElement = std::conditional_t<sizeof(Word) == 4, float, std::conditional_t<sizeof(Word) == 8, double, Word>>;

void copy_transposed(const View& from, const View& to) {
  const int row = from.shape.size() - 2, column = row + 1;
  const int64_t rows = from.shape[column], columns = from.shape[row];  // of the matrix as it lies in memory
  with_word(from.dtype, [&](auto type) {
    using T = BlockElement<typename decltype(type)::type>;
    // One matrix after the other; views of the dimensions before these two.
    View source = from, target = to;
    source.shape.resize(row), source.strides.resize(row), target.shape.resize(row), target.strides.resize(row);
    const View* const views[] = {&source, &target};
    for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
      for (int64_t i = 0; i < n; ++i)
        transpose(reinterpret_cast<const T*>(p[0] + i * s[0]), reinterpret_cast<T*>(p[1] + i * s[1]), rows, columns,
                  from.strides[column], to.strides[row], to.strides[column]);
    });
  });
}

void copy_bytes(const View& from, const View& to) {
  if (from.contiguous && to.contiguous) {
    std::memcpy(to.data, from.data, from.numel * size_of(from.dtype));
  } else if (is_transposed(from, to)) {
    copy_transposed(from, to);
  } else {
    with_word(to.dtype, [&](auto type) {
      const View* const views[] = {&to, &from};
      for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
        copy_run<typename decltype(type)::type>(n, p[0], s[0], p[1], s[1]);
      });
    });
  }
}

constexpr int64_t kBlock = 256;  // elements that are converted at once

/// Writes n converted elements. Numbers of half types become float32 first.
template <class From, class To>
void convert_run(const From* x, To* y, int64_t n) {
  if constexpr (requires { convert(x, y, n); }) {
    convert(x, y, n);
  } else if constexpr (
      requires(float* wide) { convert(x, wide, n); } || requires(float* wide) { convert(wide, y, n); }) {
    float wide[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      convert_run(x + i, wide, count);
      convert_run(wide, y + i, count);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = narrow<To>(number_in(x[i]));
  }
}

/// Copies elements of another type. Each run goes through buffers of adjacent elements, which vectors read and write.
template <class From, class To>
void convert_in_blocks(const View& from, const View& to) {
  if (from.contiguous && to.contiguous) return convert_run(from.as<const From>(), to.as<To>(), to.numel);
  const View* const views[] = {&to, &from};
  for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
    constexpr int64_t kFrom = sizeof(From), kTo = sizeof(To);
    From xs[kBlock];
    To ys[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      char *const x = p[1] + begin * s[1], *const y = p[0] + begin * s[0];
      if (s[1] != kFrom) copy_run<Word<sizeof(From)>>(count, reinterpret_cast<char*>(xs), kFrom, x, s[1]);
      convert_run(s[1] == kFrom ? reinterpret_cast<const From*>(x) : xs, s[0] == kTo ? reinterpret_cast<To*>(y) : ys,
                  count);
      if (s[0] != kTo) copy_run<Word<sizeof(To)>>(count, y, s[0], reinterpret_cast<char*>(ys), kTo);
    }
  });
}

/// Returns whether rows are so short that it is faster to copy the columns. Rows that are one behind the other are not.
bool has_short_rows(const View& from, const View& to) {
  constexpr int64_t kShort = 8, kMinRows = 16;
  const int last = to.shape.size() - 1;
  if (last < 1 || to.shape[last] >= kShort || to.shape[last] * kMinRows > to.numel) return false;
  const auto follow = [last](const View& x) { return x.strides[last - 1] == x.strides[last] * x.shape[last]; };
  return to.shape[last] > 1 && to.shape[last - 1] > 1 && !(follow(from) && follow(to));
}

/// Returns the elements of x that have this index in the last dimension.
View column_of(const View& x, int64_t index) {
  const int last = x.shape.size() - 1;
  View column = part_of(x, last, index, index + 1);
  column.shape.resize(last), column.strides.resize(last);
  column.contiguous = x.contiguous && x.shape[last] == 1;
  return column;
}

void copy_part(const View& from, const View& to) {
  if (to.numel == 0) return;
  const int last = to.shape.size() - 1;
  if (last >= 1 && to.shape[last] == 1) return copy_part(column_of(from, 0), column_of(to, 0));
  if (has_short_rows(from, to)) {
    constexpr int64_t kTogether = 4096;  // elements that stay in the first-level cache
    const int64_t parts = (to.numel - 1) / kTogether + 1;
    if (const int d = divided_dim(to.shape, 1u << last, parts); parts > 1 && d >= 0) {
      const int64_t size = to.shape[d], step = step_of(size, parts);
      for (int64_t i = 0; i < size; i += step)
        copy_part(part_of(from, d, i, std::min(i + step, size)), part_of(to, d, i, std::min(i + step, size)));
      return;
    }
    for (int64_t i = 0; i < to.shape[last]; ++i) copy_part(column_of(from, i), column_of(to, i));
    return;
  }
  if (from.dtype == to.dtype && from.dtype != kBool) return copy_bytes(from, to);
  with_all_types(from.dtype, [&](auto from_type) {
    with_all_types(to.dtype, [&](auto to_type) {
      using From = typename decltype(from_type)::type;
      using To = typename decltype(to_type)::type;
      convert_in_blocks<From, To>(from, to);
    });
  });
}

void convert(const BlockCopy& block) {
  const int64_t n = block.bytes / size_of(block.from_type);
  copy(flat_view(block.from, block.from_type, n), flat_view(block.to, block.to_type, n));
}

void add(const BlockCopy& block) {
  const int64_t n = block.bytes / size_of(block.from_type);
  const auto operand = [&](const void* data) { return flat_view(data, block.from_type, n); };
  constexpr functors::Add f;
  cpu_kernels().binary[functors::index_of<functors::BinaryList, functors::Add>](
      &f, operand(block.from), operand(block.addend), operand(block.to));
}

void copy_blocks(std::span<const BlockCopy> blocks) {
  for (const BlockCopy& block : blocks) {
    if (block.addend) {
      add(block);
      continue;
    }
    char* const to = static_cast<char*>(block.to);
    const char* const from = static_cast<const char*>(block.from);
    if (block.from_type != block.to_type) {
      convert(block);
      continue;
    }
    if (block.rows == 1) {
      for_each_range((block.bytes + 3) / 4, 1, [=](int64_t begin, int64_t end) {
        std::memcpy(to + 4 * begin, from + 4 * begin, std::min(4 * end, block.bytes) - 4 * begin);
      });
      continue;
    }
    for_each_range(block.rows, (block.bytes + 3) / 4, [&](int64_t begin, int64_t end) {
      const auto copy_elements = [&](auto element) {
        constexpr int64_t kUnit = sizeof(element);
        // A row of several narrow elements may begin anywhere.
        const auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                          static_cast<uintptr_t>(block.to_step) | static_cast<uintptr_t>(block.from_step);
        if (bits % kUnit != 0) {
          for (int64_t row = begin; row < end; ++row)
            std::memcpy(to + row * block.to_step, from + row * block.from_step, kUnit);
          return;
        }
        copy_run<decltype(element)>(end - begin, to + begin * block.to_step, block.to_step,
                                    const_cast<char*>(from) + begin * block.from_step, block.from_step);
      };
      switch (block.bytes) {  // single elements need no call
        case 1: return copy_elements(uint8_t());
        case 2: return copy_elements(uint16_t());
        case 4: return copy_elements(uint32_t());
        case 8: return copy_elements(uint64_t());
      }
      for (int64_t row = begin; row < end; ++row)
        std::memcpy(to + row * block.to_step, from + row * block.from_step, block.bytes);
    });
  }
}

void fill_part(const View& to, Scalar value) {
  with_all_types(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T filler = value.is_floating_point() ? narrow<T>(value.to<double>()) : narrow<T>(value.to<int64_t>());
    const View* const views[] = {&to};
    for_each_run(views, [&](int64_t n, char* const* p, const int64_t* s) {
      if (s[0] == sizeof(T)) {
        T* y = reinterpret_cast<T*>(p[0]);
        for (int64_t i = 0; i < n; ++i) y[i] = filler;
      } else {
        for (int64_t i = 0; i < n; ++i) element<T>(p[0], i * s[0]) = filler;
      }
    });
  });
}

}  // namespace

void copy(const View& from, const View& to) {
  const View* const views[] = {&from, &to};
  if (needs_reordering(to))
    return call_reordered(
        views, 2, [](const void*, const View* const* sorted) { copy(*sorted[0], *sorted[1]); }, nullptr);
  if (from.dtype != to.dtype && !(from.contiguous && to.contiguous))
    return call_strided(
        views, 2, [](const void*, const View* const* parts) { copy_part(*parts[0], *parts[1]); }, nullptr);
  if (to.numel <= part_size) return copy_part(from, to);
  if ((from.contiguous && to.contiguous) || !is_transposed(from, to)) {
    for_each_part(views, 0, [](const View* const* part) { copy_part(*part[0], *part[1]); });
    return;
  }
  // Matrices, or strips of them that are contiguous in `from`: others, or narrower ones, would touch as many pages of
  // memory for less.
  const int column = to.shape.size() - 1;
  const int outer = std::max(divided_dim(to.shape, 3u << (column - 1), 16), 0);
  const int64_t parts = parts_of(to.numel), matrices = outer < column - 1 ? to.shape[outer] : 1;
  if (matrices >= parts)
    return parallel_for(matrices, step_of(matrices, parts), [&](int64_t begin, int64_t end) {
      copy_part(part_of(from, outer, begin, end), part_of(to, outer, begin, end));
    });
  const int64_t columns = to.shape[column], width = std::max<int64_t>(step_of(columns, parts / matrices), 64);
  const int64_t strips = (columns - 1) / width + 1;
  parallel_for(matrices * strips, 1, [&](int64_t part, int64_t) {
    const int64_t matrix = part / strips, begin = part % strips * width, end = std::min(begin + width, columns);
    const auto strip = [&](const View& x) {
      return part_of(matrices > 1 ? part_of(x, outer, matrix, matrix + 1) : x, column, begin, end);
    };
    copy_part(strip(from), strip(to));
  });
}

void fill(const View& to, Scalar value) {
  const View* const views[] = {&to};
  if (needs_reordering(to))
    return call_reordered(
        views, 1, [](const void* f, const View* const* sorted) { fill(*sorted[0], *static_cast<const Scalar*>(f)); },
        &value);
  if (to.numel > part_size)
    for_each_part(views, 0, [&](const View* const* part) { fill_part(*part[0], value); });
  else
    fill_part(to, value);
}

void install_copy(KernelTable& table) {
  table.copy = copy;
  table.copy_from = [](int, const View& from, const View& to) { copy(from, to); };
  table.copy_blocks = copy_blocks;
  table.fill = fill;
}

}  // namespace reel::cpu::REEL_ISA
