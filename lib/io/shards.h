// These functions load models in several files, shards, as Hugging Face's libraries write large ones.
#pragma once
#include "lib/io/file.h"
#include "reel/io/safetensors.h"

namespace reel::io {

/// Returns whether a file is the index of such a model, a JSON object, and not a safetensors file.
bool is_shard_index(const InputFile& file);
/// Loads the tensors that the index names, shard by shard, in the order of the shards' names, and the metadata of all
/// shards.
StateDict load_shards(const InputFile& index, const LoadOptions& options, Metadata* metadata);

}  // namespace reel::io
