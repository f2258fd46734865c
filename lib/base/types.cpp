#include "reel/types.h"

#include <algorithm>
#include <charconv>
#include <ostream>

#include "lib/base/half.h"

namespace reel {

Float16::Float16(float value) : bits(float_to_float16(value)) {}
Float16::operator float() const { return float16_to_float(bits); }
BFloat16::BFloat16(float value) : bits(float_to_bfloat16(value)) {}
BFloat16::operator float() const { return bfloat16_to_float(bits); }

const char* name_of(DType type) {
  constexpr const char* names[] = {"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"};
  return names[static_cast<int>(type)];
}

std::ostream& operator<<(std::ostream& out, DType type) { return out << name_of(type); }

DType promote_types(DType a, DType b) {
  // Types are declared in the order of promotion; only the two half types have no order among themselves.
  if (a != b && is_half(a) && is_half(b)) return kFloat32;
  return std::max(a, b);
}

Device Device::from_string(std::string_view text) {
  if (text == "cpu") return kCPU;
  Device device = kCUDA;
  std::string_view rest = text;
  if (rest.starts_with("cuda")) {
    rest.remove_prefix(4);
    if (rest.empty()) return device;
    const char* const end = rest.data() + rest.size();
    if (rest[0] == ':' && rest.size() > 1 && rest[1] != '-') {
      const auto [stop, error] = std::from_chars(rest.data() + 1, end, device.index);
      if (error == std::errc() && stop == end) return device;
    }
  }
  reel::detail::fail("device: expected cpu, cuda or cuda:N, got '", text, "'");
}

std::ostream& operator<<(std::ostream& out, Device device) {
  if (device.type == DeviceType::kCPU) return out << "cpu";
  return out << "cuda:" + std::to_string(device.index);
}

void Shape::assign(const int64_t* sizes, size_t count) {
  REEL_CHECK(count <= kMaxDims, "shape: ", count, " dimensions, at most ", kMaxDims, " are supported");
  rank_ = static_cast<uint8_t>(count);
  std::copy_n(sizes, count, dims_);
}

void Shape::insert(int at, int64_t size) {
  REEL_CHECK(rank_ < kMaxDims, "shape ", *this, ": at most ", kMaxDims, " dimensions are supported");
  std::copy_backward(dims_ + at, dims_ + rank_, dims_ + rank_ + 1);
  dims_[at] = size;
  ++rank_;
}

void Shape::erase(int at) {
  std::copy(dims_ + at + 1, dims_ + rank_, dims_ + at);
  --rank_;
}

void Shape::resize(int rank, int64_t fill) {
  REEL_CHECK(rank <= kMaxDims, "shape: ", rank, " dimensions, at most ", kMaxDims, " are supported");
  if (rank > rank_) std::fill(dims_ + rank_, dims_ + rank, fill);
  rank_ = static_cast<uint8_t>(rank);
}

int64_t Shape::numel() const {
  int64_t count = 1;
  bool empty = false, overflow = false;
  for (int64_t size : *this) {
    REEL_CHECK(size >= 0, "shape ", *this, ": sizes cannot be negative");
    empty |= size == 0;
    overflow |= size != 0 && __builtin_mul_overflow(count, size, &count);
  }
  if (empty) return 0;
  REEL_CHECK(!overflow, "shape ", *this, ": too many elements for 63 bits");
  return count;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  const Shape &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  for (int i = 0; i < shorter.size(); ++i) {
    const int64_t size = shorter[shorter.size() - 1 - i];
    int64_t& to = result[longer.size() - 1 - i];
    REEL_CHECK(size == to || size == 1 || to == 1, op, ": shapes ", a, " and ", b, " do not broadcast");
    if (to == 1) to = size;
  }
  return result;
}

void Scalar::fail_to_fit(const char* op, size_t bytes, bool is_signed) const {
  const char* const type = is_signed ? " does not fit into int" : " does not fit into uint";
  if (is_floating_point()) reel::detail::fail(op, ": ", float_, type, 8 * bytes);
  reel::detail::fail(op, ": ", int_, type, 8 * bytes);
}
void Scalar::fail_above(uint64_t value) {
  reel::detail::fail("Scalar: ", value, " does not fit into int64, in which integers are held");
}

}  // namespace reel
