#include "lib/io/elements.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "lib/io/mapped_file.h"

namespace reel::io {
namespace {

static_assert(std::endian::native == std::endian::little);

void reverse_each(char* data, int64_t count, int width) {
  if (width > 1)
    for (int64_t i = 0; i < count; ++i, data += width) std::reverse(data, data + width);
}

// `from` may be the last bytes of `to`: To is wider, so writing never overtakes reading.
template <class From, class To>
void widen(const char* from, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    const To wide = value;
    std::memcpy(to + i * static_cast<int64_t>(sizeof wide), &wide, sizeof wide);
  }
}

// The conversion of integers that no dtype has.
auto widener(Element element) {
  const bool is_signed = element.kind == Element::kSigned;
  return element.bytes == 1   ? widen<int8_t, int32_t>
         : element.bytes == 4 ? widen<uint32_t, int64_t>
         : is_signed          ? widen<int16_t, int32_t>
                              : widen<uint16_t, int32_t>;
}

}  // namespace

void* bytes_of(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case kBool: return tensor.data<bool>();
    case kUInt8: return tensor.data<uint8_t>();
    case kInt32: return tensor.data<int32_t>();
    case kInt64: return tensor.data<int64_t>();
    case kFloat16: return tensor.data<Float16>();
    case kBFloat16: return tensor.data<BFloat16>();
    case kFloat32: return tensor.data<float>();
    case kFloat64: return tensor.data<double>();
  }
  return nullptr;
}

std::optional<int64_t> byte_count(std::span<const int64_t> shape, DType type) {
  int64_t bytes = size_of(type);
  bool is_empty = false;
  for (const int64_t size : shape) {
    is_empty |= size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return {};
  }
  return is_empty ? 0 : bytes;
}

std::optional<DType> Element::dtype() const {
  switch (kind) {
    case kBool: return bytes == 1 ? std::optional(reel::kBool) : std::nullopt;
    case kUnsigned:
      if (bytes == 1) return kUInt8;
      if (bytes == 2) return kInt32;
      if (bytes == 4) return kInt64;
      return {};
    case kSigned:
      if (bytes == 1 || bytes == 2 || bytes == 4) return kInt32;
      if (bytes == 8) return kInt64;
      return {};
    case kFloat:
      if (bytes == 2) return kFloat16;
      if (bytes == 4) return kFloat32;
      if (bytes == 8) return kFloat64;
      return {};
    case kBrainFloat: return bytes == 2 ? std::optional(kBFloat16) : std::nullopt;
  }
  return {};
}

std::span<char> staging_bytes(const Tensor& tensor, Element element) {
  const int64_t bytes = tensor.numel() * element.bytes;
  return {static_cast<char*>(bytes_of(tensor)) + byte_count(tensor) - bytes, static_cast<size_t>(bytes)};
}

void convert_elements(const Tensor& tensor, Element element) {
  char* from = staging_bytes(tensor, element).data();
  if (element.big_endian) reverse_each(from, tensor.numel(), element.bytes);
  if (element.bytes < size_of(tensor.dtype()))
    widener(element)(from, tensor.numel(), static_cast<char*>(bytes_of(tensor)));
}

bool fits_in_place(const char* data, Element element) {
  const DType dtype = element.dtype().value();
  return !element.big_endian && element.bytes == size_of(dtype) && dtype != reel::kBool &&
         reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element.bytes) == 0;
}

Tensor read_elements(Source& source, Element element, std::span<const int64_t> shape, const std::string& what) {
  const DType dtype = element.dtype().value();
  if (shape.size() > kMaxDims) source.fail(what, " has ", shape.size(), " dimensions, more than ", kMaxDims);
  const auto bytes = byte_count(shape, dtype);
  if (!bytes) source.fail("the shape ", Shape(shape), " of ", what, " is too large");
  const int64_t count = *bytes / size_of(dtype), in_file = count * element.bytes;
  if (in_file > source.max_remaining())
    source.fail(what, " of shape ", Shape(shape), " has ", in_file, " bytes, where at most ", source.max_remaining(),
                " can follow");

  const Tensor tensor = empty(Shape(shape), {.dtype = dtype, .device = kCPU});
  prefer_huge_pages({memory_of(tensor)});
  const std::span<char> staging = staging_bytes(tensor, element);
  const int64_t begin = source.position();
  source.read_exactly(staging.data(), in_file);
  if (dtype == reel::kBool)
    for (int64_t i = 0; i < count; ++i)
      if (static_cast<uint8_t>(staging[i]) > 1)
        source.fail_at(begin + i, what, ": a bool is ", int{static_cast<uint8_t>(staging[i])});
  convert_elements(tensor, element);
  return tensor;
}

}  // namespace reel::io
