#pragma once
#include <optional>
#include <span>
#include <string>

#include "lib/io/source.h"
#include "reel/tensor.h"

/// Numbers as files hold them, and the tensors that take them.
namespace reel::io {

/// The first element's address, of whatever type.
void* bytes_of(const Tensor& tensor);
inline int64_t byte_count(const Tensor& tensor) { return tensor.numel() * size_of(tensor.dtype()); }
/// What a tensor of that shape takes; nothing where that does not fit into 63 bits, or its strides do not.
std::optional<int64_t> byte_count(std::span<const int64_t> shape, DType type);

/// One number of a file.
struct Element {
  enum Kind : char { kBool, kUnsigned, kSigned, kFloat, kBrainFloat } kind;
  int bytes;
  bool big_endian = false;

  /// The type of tensor that holds all of its values: 8- and 16-bit integers become int32, but for uint8, and uint32
  /// int64. Nothing for those that have none (uint64, long double).
  std::optional<DType> dtype() const;
};

/// A tensor takes elements in two steps: they are read as they stand to its last bytes, and converted there.
std::span<char> place_for(const Tensor& tensor, Element element);
void convert_elements(const Tensor& tensor, Element element);

/// Reads a row-major tensor of `shape`. Sizes that the source cannot hold are an Error before anything is allocated;
/// `what` names the tensor there.
Tensor read_elements(Source& source, Element element, std::span<const int64_t> shape, const std::string& what);

}  // namespace reel::io
