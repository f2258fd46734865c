#pragma once
#include <filesystem>

#include "reel/io/safetensors.h"
#include "reel/state_dict.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// NumPy's files (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html), which numpy.load reads and
/// numpy.save, savez and savez_compressed write.
namespace reel::io {

/// Writes one tensor, on whatever device, in row-major order; the file is written atomically. NumPy has no bfloat16:
/// convert such a tensor first.
void save_npy(const Tensor& tensor, const std::filesystem::path& path);

/// Reads one array, of either byte order and either memory order, as a contiguous tensor on the CPU; the file may be
/// gzip. 8- and 16-bit integers that no tensor type holds become int32, uint32 becomes int64; uint64, complex numbers,
/// text, dates, objects and records are an Error.
Tensor load_npy(const std::filesystem::path& path);

/// Of save_npz.
struct NpzOptions {
  bool compressed = false;  ///< savez_compressed instead of savez.
};
/// Writes tensors under their names: a zip file with a .npy for each.
void save_npz(const StateDict& tensors, const std::filesystem::path& path, NpzOptions options = {});
/// Reads all arrays, in the order of the file, or those that options.keep selects: the others may be text or objects.
StateDict load_npz(const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace reel::io
#pragma GCC visibility pop
