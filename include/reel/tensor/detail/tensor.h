#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

#include "reel/types.h"

#pragma GCC visibility push(default)
// What the templates and inline members of tensor.h are made of.
namespace reel::detail {

/// What a handle refers to: TensorImpl (lib/tensor) derives from it. The lower half of `refs` counts the handles, the
/// upper half the references of recorded ops, which keep a tensor for a backward pass only.
struct Counted {
  std::atomic<uint64_t> refs{1};
};
void destroy(Counted* counted);              // called when there are no references left
void release_only_handle(Counted* counted);  // drops a handle that is the only one

/// A pointer that counts in what it points to.
class IntrusivePtr {
 public:
  IntrusivePtr() noexcept {}
  explicit IntrusivePtr(Counted* counted) noexcept : counted_(counted) {}  // takes over one reference
  IntrusivePtr(const IntrusivePtr& other) noexcept : counted_(other.counted_) {
    if (counted_) counted_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  IntrusivePtr(IntrusivePtr&& other) noexcept : counted_(std::exchange(other.counted_, nullptr)) {}
  IntrusivePtr& operator=(const IntrusivePtr& other) noexcept { return *this = IntrusivePtr(other); }
  IntrusivePtr& operator=(IntrusivePtr&& other) noexcept { return std::swap(counted_, other.counted_), *this; }
  ~IntrusivePtr() { reset(); }
  void reset() {
    // A count of 1 means that this is the only handle, so that no other thread can be copying it.
    if (counted_) {
      if (static_cast<uint32_t>(counted_->refs.load(std::memory_order_acquire)) == 1)
        release_only_handle(counted_);
      else if (counted_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
        destroy(counted_);
    }
    counted_ = nullptr;
  }
  Counted* get() const { return counted_; }
  bool operator==(const IntrusivePtr& other) const { return counted_ == other.counted_; }

 private:
  Counted* counted_ = nullptr;
};

/// The dtype of literals of type T, which differs from that of variables: as with torch.tensor, 1.5 makes a float32 and
/// 1 an int64 tensor.
template <class T>
constexpr DType literal_dtype() {
  return std::is_same_v<T, double> ? kFloat32 : std::is_same_v<T, int> ? kInt64 : dtype_of<T>();
}

/// The elements of nested lists in row-major order. Not a vector, which has no array of bools.
template <class T>
struct Flat {
  Shape shape;
  std::unique_ptr<T[]> values;
};
void check_nested(size_t got, int64_t expected);  // an Error where lists are of different lengths

template <class T>
Flat<T> flatten(std::initializer_list<std::initializer_list<T>> rows) {
  const int64_t m = rows.size(), n = m ? rows.begin()->size() : 0;
  Flat<T> flat{{m, n}, std::make_unique<T[]>(m * n)};
  T* to = flat.values.get();
  for (const auto& row : rows) {
    check_nested(row.size(), n);
    to = std::copy(row.begin(), row.end(), to);
  }
  return flat;
}
template <class T>
Flat<T> flatten(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks) {
  const int64_t l = blocks.size(), m = l ? blocks.begin()->size() : 0, n = m ? blocks.begin()->begin()->size() : 0;
  Flat<T> flat{{l, m, n}, std::make_unique<T[]>(l * m * n)};
  T* to = flat.values.get();
  for (const auto& rows : blocks) {
    check_nested(rows.size(), m);
    const Flat<T> block = flatten(rows);
    for (const auto& row : rows) check_nested(row.size(), n);
    to = std::copy_n(block.values.get(), m * n, to);
  }
  return flat;
}

}  // namespace reel::detail
#pragma GCC visibility pop
