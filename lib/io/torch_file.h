#pragma once
#include "lib/io/file.h"
#include "reel/state_dict.h"

// Files of PyTorch's torch.save and of libtorch's torch::save.
namespace reel::io {

/// Whether the file is one, of whatever age, and not a safetensors file. Zip files are taken for one.
bool is_torch_file(const InputFile& file);
/// Its tensors by path: "model.fc.weight".
StateDict load_torch(const InputFile& file, const LoadOptions& options);

}  // namespace reel::io
