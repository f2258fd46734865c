#pragma once
#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "reel/error.h"

#pragma GCC visibility push(default)
/// The types that all of the library shares: dtypes, devices, shapes and scalars.
namespace reel {

// ---- element types --------------------------------------------------------------------------------------------------

/// The type of a tensor's elements.
enum class DType : uint8_t { kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64 };
///@{
/// The DType of that name.
inline constexpr DType kBool = DType::kBool, kUInt8 = DType::kUInt8, kInt32 = DType::kInt32, kInt64 = DType::kInt64,
                       kFloat16 = DType::kFloat16, kBFloat16 = DType::kBFloat16, kFloat32 = DType::kFloat32,
                       kFloat64 = DType::kFloat64;
///@}

/// IEEE half precision. The struct stores 16 bits and converts; ops on tensors of it compute in float32 and round each
/// result once.
struct Float16 {
  uint16_t bits = 0;              ///< Sign, 5 bits of exponent, 10 of mantissa.
  Float16() = default;            ///< 0
  explicit Float16(float value);  ///< Rounded to nearest even; infinite beyond 65504.
  operator float() const;         ///< Exact.
};

/// The upper half of a float. The struct stores 16 bits and converts; ops on tensors of it compute in float32 and round
/// each result once.
struct BFloat16 {
  uint16_t bits = 0;               ///< Sign, 8 bits of exponent, 7 of mantissa.
  BFloat16() = default;            ///< 0
  explicit BFloat16(float value);  ///< Rounded to nearest even.
  operator float() const;          ///< Exact.
};

/// Bytes of one element.
constexpr int64_t size_of(DType type) {
  constexpr int8_t sizes[] = {1, 1, 4, 8, 2, 2, 4, 8};
  return sizes[static_cast<int>(type)];
}
/// Whether it is float16, bfloat16, float32 or float64.
constexpr bool is_floating_point(DType type) { return type >= kFloat16; }
/// Whether it is float16 or bfloat16.
constexpr bool is_half(DType type) { return type == kFloat16 || type == kBFloat16; }
const char* name_of(DType type);                          ///< "float32", "int64", "bool", … as NumPy writes them.
std::ostream& operator<<(std::ostream& out, DType type);  ///< Writes name_of(type).

/// The DType whose C++ type is T: dtype_of<float>() == kFloat32. Any 32- or 64-bit signed integer type is accepted:
/// long and long long are both kInt64.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return kBool;
  else if constexpr (std::is_same_v<T, Float16>)
    return kFloat16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return kBFloat16;
  else if constexpr (std::is_same_v<T, float>)
    return kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return kFloat64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return kUInt8;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 4)
    return kInt32;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 8)
    return kInt64;
  else
    static_assert(!sizeof(T), "reel has no tensor of this element type");
}

/// The common type of two operands, PyTorch's rule: bool < integers < floats, then the wider; float16 with bfloat16
/// gives float32, uint8 with int32 gives int32.
DType promote_types(DType a, DType b);

// ---- devices --------------------------------------------------------------------------------------------------------

/// The CPU, or NVIDIA GPUs.
enum class DeviceType : uint8_t { kCPU, kCUDA };

/// Where a tensor's elements are: kCPU, kCUDA, or Device{DeviceType::kCUDA, 1}.
struct Device {
  DeviceType type = DeviceType::kCPU;                        ///< The kind of device.
  int8_t index = 0;                                          ///< Of the visible GPUs, from 0; 0 for the CPU.
  constexpr bool operator==(const Device&) const = default;  ///< The same type and index.
  /// Of "cpu", "cuda" (the first) or "cuda:1"; throws reel::Error for anything else.
  static Device from_string(std::string_view text);
};
///@{
/// The CPU, and the first GPU.
inline constexpr Device kCPU{DeviceType::kCPU, 0}, kCUDA{DeviceType::kCUDA, 0};
///@}
std::ostream& operator<<(std::ostream& out, Device device);  ///< "cpu", "cuda:0"

///@{
/// The calling thread's default device of new tensors: initially the CPU, in every thread. Readers of files and data
/// sets return CPU tensors all the same. set_default_device throws for a device that does not exist.
Device default_device();
void set_default_device(Device device);
///@}

// ---- shapes ---------------------------------------------------------------------------------------------------------

/// Tensors have at most this many dimensions.
inline constexpr int kMaxDims = 8;

/// Up to kMaxDims int64 sizes (or strides), held in place: no heap.
class Shape {
 public:
  Shape() = default;  ///< Of no dimensions.
  ///@{
  /// Of these sizes; an Error if there are more than kMaxDims.
  Shape(std::initializer_list<int64_t> sizes) { assign(sizes.begin(), sizes.size()); }
  Shape(std::span<const int64_t> sizes) { assign(sizes.data(), sizes.size()); }
  Shape(const std::vector<int64_t>& sizes) { assign(sizes.data(), sizes.size()); }
  template <std::integral T>
  requires(!std::same_as<T, bool>) Shape(const std::vector<T>& sizes) {
    for (const T size : sizes) push_back(static_cast<int64_t>(size));
  }
  ///@}
  ///@{
  /// A copy.
  Shape(const Shape& other) { copy(other); }
  Shape& operator=(const Shape& other) { return copy(other), *this; }
  ///@}

  int size() const { return rank_; }         ///< The number of dimensions.
  bool empty() const { return rank_ == 0; }  ///< Of no dimensions.
  ///@{
  /// The sizes, as of a std::vector. Not checked: i must be in [0, size()), and back() of an empty Shape is undefined.
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  int64_t back() const { return dims_[rank_ - 1]; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  int64_t* begin() { return dims_; }
  int64_t* end() { return dims_ + rank_; }
  ///@}
  ///@{
  /// As of a std::vector. All of these throw when the result would have more than kMaxDims dimensions.
  void push_back(int64_t size) { insert(rank_, size); }
  void insert(int at, int64_t size);
  void erase(int at);
  void resize(int rank, int64_t fill = 0);
  ///@}

  /// The product of the sizes, 1 for no dimensions. Throws when it does not fit into 63 bits or a size is negative.
  int64_t numel() const;
  /// As many dimensions, of the same sizes.
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != other.dims_[i]) return false;
    return true;
  }
  std::string to_string() const;  ///< "[2, 3]"

 private:
  void assign(const int64_t* sizes, size_t count);
  // The fence keeps the loop from becoming a memcpy or wide loads, which are slower for a few sizes just stored.
  void copy(const Shape& other) {
    rank_ = other.rank_;
    for (int i = 0; i < rank_; ++i) {
      dims_[i] = other.dims_[i];
      std::atomic_signal_fence(std::memory_order_acq_rel);
    }
  }
  uint8_t rank_ = 0;  // beside the first sizes, in one cache line
  int64_t dims_[kMaxDims];
};
using Strides = Shape;  ///< In elements, one for each dimension; 0 for expanded ones.
std::ostream& operator<<(std::ostream& out, const Shape& shape);  ///< Writes shape.to_string().

/// The dimensions that a reduction runs over; empty means all of them. A dimension that is given twice is an Error. A
/// bool is no dimension: sum(x, true) does not compile.
struct Dims {
  Shape dims;                                                ///< As given: negative ones count from the end.
  Dims() = default;                                          ///< All dimensions.
  Dims(std::initializer_list<int64_t> list) : dims(list) {}  ///< These.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Dims(T dim) : dims{static_cast<int64_t>(dim)} {}  ///< One.
};

/// A number per spatial dimension: stride = 2 sets all of them, stride = {2, 1} each, the first dimension first.
template <int N>
struct PerDim {
  int64_t values[N];  ///< One for each dimension.

  ///@{
  /// The same for all dimensions, or one for each.
  template <std::integral T>
  constexpr PerDim(T all) {
    for (int64_t& value : values) value = static_cast<int64_t>(all);
  }
  template <std::integral... T>
  requires(N > 1 && sizeof...(T) == N) constexpr PerDim(T... each) : values{static_cast<int64_t>(each)...} {}
  ///@}
  constexpr int64_t operator[](int i) const { return values[i]; }  ///< That of dimension i.
  constexpr bool operator==(const PerDim&) const = default;        ///< All are equal.
};
/// Writes the numbers as a Shape is written.
template <int N>
std::ostream& operator<<(std::ostream& out, const PerDim<N>& sizes) {
  return out << Shape(std::span<const int64_t>(sizes.values));
}

/// The shape that NumPy broadcasting gives a and b. Throws reel::Error, with a message that begins with `op`, when they
/// do not broadcast.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op = "broadcast_shapes");

// ---- scalars --------------------------------------------------------------------------------------------------------

/// One number with its kind, bool, integer or float, on which type promotion depends. Integers are held as int64,
/// floats as double.
class Scalar {
 public:
  /// Holds any C++ number. An unsigned one above the range of int64 is an Error.
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      float_ = static_cast<double>(value), kind_ = Kind::kFloat;
    } else {
      int_ = static_cast<int64_t>(value), kind_ = std::is_same_v<T, bool> ? Kind::kBool : Kind::kInt;
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof int_)
        if (int_ < 0) [[unlikely]]
          fail_above(value);
    }
  }
  bool is_bool() const { return kind_ == Kind::kBool; }             ///< Was made of a bool.
  bool is_integral() const { return kind_ == Kind::kInt; }          ///< Was made of an integer.
  bool is_floating_point() const { return kind_ == Kind::kFloat; }  ///< Was made of a float or double.
  /// Returns whether to<T>() has a value. Only integer types have a range: a fraction is cut off before the comparison,
  /// and NaN is in no range. A float that is too large for T becomes infinity, as in a conversion of C++.
  template <class T>
  bool fits() const {
    if constexpr (!std::is_integral_v<T> || std::is_same_v<T, bool>) {
      return true;
    } else if (is_floating_point()) {
      constexpr auto kHalf = std::numeric_limits<T>::max() / 2 + 1;
      constexpr double kEnd = 2.0 * static_cast<double>(kHalf);
      constexpr double kMin = std::is_signed_v<T> ? -kEnd : 0;
      return float_ < kEnd && (float_ >= kMin || float_ > kMin - 1);
    } else if constexpr (std::is_unsigned_v<T>) {
      return int_ >= 0 && static_cast<uint64_t>(int_) <= std::numeric_limits<T>::max();
    } else {
      return int_ >= std::numeric_limits<T>::min() && int_ <= std::numeric_limits<T>::max();
    }
  }
  /// Returns the number as a T. It is an Error that begins with `op` unless it fits. As in PyTorch 2.7 becomes 2,
  /// integers become the nearest float, and all but 0 is true.
  template <class T>
  T to(const char* op = "Scalar::to") const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      if (!fits<T>()) [[unlikely]]
        fail_to_fit(op, sizeof(T), std::is_signed_v<T>);
    return is_floating_point() ? static_cast<T>(float_) : static_cast<T>(int_);
  }

 private:
  enum class Kind : uint8_t { kBool, kInt, kFloat };
  [[noreturn, gnu::cold]] void fail_to_fit(const char* op, size_t bytes, bool is_signed) const;
  [[noreturn, gnu::cold]] static void fail_above(uint64_t value);
  union {
    double float_;
    int64_t int_;
  };
  Kind kind_;
};

}  // namespace reel
#pragma GCC visibility pop
