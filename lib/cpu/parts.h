#pragma once
#include <span>
#include <utility>

#include "lib/device/kernels/update.h"
#include "lib/device/view.h"
#include "reel/threads.h"

// How large kernels are divided among threads. A kernel whose elements or rows are independent calls itself on parts of
// its operands, so that one division serves all dtypes and layouts; parts depend on the operands alone, never on the
// number of threads.
namespace reel::cpu {

/// About as many elements as a part has: a few ten microseconds of work. Nothing smaller is divided. A variable so that
/// tests divide small tensors, too.
extern int64_t part_size;

/// Elements begin … end of dimension d. A size of 1 is left as it is: that dimension is broadcast, or reduced.
View part_of(const View& x, int d, int64_t begin, int64_t end);
/// Returns a view of n adjacent elements.
View flat_view(const void* data, DType dtype, int64_t n);
/// A row-major view of y's shape on other memory.
View dense_like(const View& y, void* data, DType dtype);

/// The dimension along which x of that shape is divided into parts, -1 if there is none, for those of which the bit is
/// not set in `whole`: the outermost that makes enough parts, or else the largest.
int divided_dim(const Shape& shape, unsigned whole, int64_t parts);
/// The size of parts, where `size` elements are to be divided into `parts` of about equal size.
int64_t step_of(int64_t size, int64_t parts);
/// How many parts that many elements are divided into.
int64_t parts_of(int64_t numel);

inline constexpr int kMaxViews = 6;
using PartFunction = void (*)(const void* f, const View* const* parts);
bool call_parts(const View* const* views, int count, unsigned whole, int64_t cost, PartFunction call, const void* f);

/// f(parts) for parts of the views, at once; false, having done nothing, where no dimension can be divided. They have
/// one shape, but for sizes of 1, or else are contiguous and have equally many elements. nullptr stays nullptr; the
/// last one is not. Dimensions whose bits are set in `whole` are not divided. An element costs as much as `cost` cheap
/// ones.
template <size_t count, class F>
bool for_each_part(const View* const (&views)[count], unsigned whole, const F& f, int64_t cost = 1) {
  static_assert(count <= kMaxViews);
  const auto call = [](const void* g, const View* const* parts) { (*static_cast<const F*>(g))(parts); };
  return call_parts(views, count, whole, cost, call, &f);
}

/// Returns the View that an argument of a kernel is, or nullptr.
template <class T>
const View* view_in(const T& x) {
  if constexpr (std::is_same_v<T, View>)
    return &x;
  else if constexpr (std::is_same_v<T, const View*>)
    return x;
  else
    return nullptr;
}
/// Returns the part in place of an argument that is a View, or else the argument.
template <class T>
decltype(auto) part_or(const T& x, const View* part) {
  if constexpr (std::is_same_v<T, View>)
    return *part;
  else if constexpr (std::is_same_v<T, const View*>)
    return part;
  else
    return x;
}

/// run() is a pointwise kernel, the last View of whose arguments is as large as any, divided where that is large.
template <auto kernel>
struct Divided;
template <class... Args, void (*kernel)(Args...)>
struct Divided<kernel> {
  static void run(Args... args) {
    int64_t numel = 0;
    ((numel = numel_of(args, numel)), ...);
    if (numel > part_size) [[unlikely]]
      return in_parts(std::index_sequence_for<Args...>(), args...);
    kernel(args...);
  }

 private:
  template <class T>
  static int64_t numel_of(const T& x, int64_t before) {
    if constexpr (std::is_same_v<T, View>)
      return x.numel;
    else
      return before;
  }
  template <size_t... i>
  [[gnu::noinline]] static void in_parts(std::index_sequence<i...>, Args... args) {
    const View* const views[] = {view_in(args)...};
    for_each_part(views, 0, [&](const View* const* part) { run(part_or(args, part[i])...); });
  }
};

/// f(begin, end) for ranges of rows, or other units, of which each has `row_size` elements.
template <class F>
void for_each_range(int64_t rows, int64_t row_size, const F& f) {
  if (rows * row_size <= part_size) [[likely]]
    return f(int64_t{0}, rows);
  const int64_t parts = parts_of(rows * row_size);
  parallel_for(rows, parts < rows ? (rows - 1) / parts + 1 : 1, f);
}

/// f(tensor, begin, end) for what elements begin … end are of the tensors, one behind the other.
template <class F>
void for_each_in_range(std::span<const Updated> tensors, int64_t begin, int64_t end, const F& f) {
  for (const Updated& tensor : tensors) {
    const int64_t from = begin > 0 ? begin : 0, to = end < tensor.numel ? end : tensor.numel;
    if (from < to) f(tensor, from, to);
    begin -= tensor.numel, end -= tensor.numel;
  }
}
int64_t numel_of(std::span<const Updated> tensors);

}  // namespace reel::cpu
