#pragma once
#include <optional>
#include <span>
#include <string>

#include "lib/io/source.h"
#include "reel/tensor.h"

// Elements of arrays in files (.npy, safetensors, IDX), and their conversion to dtypes that tensors have.
namespace reel::io {

/// The address of the first element, for any dtype.
void* bytes_of(const Tensor& tensor);
inline int64_t byte_count(const Tensor& tensor) { return tensor.numel() * size_of(tensor.dtype()); }
/// Returns the elements of a contiguous tensor as bytes.
inline std::span<char> memory_of(const Tensor& tensor) {
  return {static_cast<char*>(bytes_of(tensor)), static_cast<size_t>(byte_count(tensor))};
}
/// The bytes of a tensor of that shape; nothing where they, or the strides, exceed 63 bits. An empty shape is not
/// exempt: {2^62, 2^62, 0} has strides, too.
std::optional<int64_t> byte_count(std::span<const int64_t> shape, DType type);

/// The type of elements in a file.
struct Element {
  enum Kind : char { kBool, kUnsigned, kSigned, kFloat, kBrainFloat } kind;
  int bytes;
  bool big_endian = false;

  /// The dtype that holds all values: 8- and 16-bit integers become int32, but for uint8, and uint32 becomes int64.
  /// Nothing for types that have none (uint64, long double).
  std::optional<DType> dtype() const;
};

/// Elements are read in two steps, without a second buffer: raw bytes go to the end of the tensor's own memory
/// (staging_bytes), and convert_elements() converts them in place, from the first to the last.
std::span<char> staging_bytes(const Tensor& tensor, Element element);
void convert_elements(const Tensor& tensor, Element element);

/// Returns whether a tensor may use elements of a mapped file where they lie: they are neither converted nor at an odd
/// address. Booleans are not used so, since they are checked once and might become other bytes afterwards.
bool fits_in_place(const char* data, Element element);

/// Reads a row-major tensor of `shape`. Sizes that the source cannot hold are an Error before anything is allocated;
/// `what` names the tensor there.
Tensor read_elements(Source& source, Element element, std::span<const int64_t> shape, const std::string& what);

}  // namespace reel::io
