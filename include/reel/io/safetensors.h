#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "reel/nn/module.h"
#include "reel/state_dict.h"

#pragma GCC visibility push(default)
/// Tensors in files of the safetensors format (https://github.com/huggingface/safetensors), which Python's package of
/// that name reads and writes as well. PyTorch's own files are read, too.
namespace reel::io {

/// Free text that a file carries beside its tensors.
using Metadata = std::map<std::string, std::string>;

/// Writes the tensors, on whatever device, under their names, with checksums in the metadata: an entry "reel.crc32",
/// which load() checks and does not return. Tensors that share storage are written one by one.
///
/// The file is written atomically: under another name in the same folder, synced and renamed, so that a crash leaves
/// either the old file or the new one. An existing file keeps its permissions and owner, but for other hard links to
/// it, which keep the old contents. A symbolic link is followed. An Error, which names the file and the reason: a file
/// that the process may not write; a folder, device or pipe; another user's symbolic link in a sticky folder such as
/// /tmp.
void save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata = {});
/// The same with a module's state_dict().
void save(const nn::Module& module, const std::filesystem::path& path, const Metadata& metadata = {});

/// Throws the Error that a save to `path` would begin with, and writes nothing: for programs that save when hours of
/// work are done.
void check_writable(const std::filesystem::path& path);

///@{
/// Reads the tensors, in the order of the file's header, onto the CPU. I8, I16 and U16 become int32, U32 becomes int64;
/// U64 and other types that no tensor has are an Error. The input is validated completely: an Error names the file, the
/// byte and the tensor where it is malformed, and no more is allocated than the file's size justifies.
///
/// The index of a model in several files, "model.safetensors.index.json", loads the tensors that it names from the
/// files beside it; a tensor that is not where it says is an Error. A pointer of Git LFS in a file's place is named as
/// one.
///
/// A file of PyTorch's torch.save (since 1.6), torch.jit.save or libtorch's torch::save is read as well, whatever it is
/// called. Its tensors are those in its dicts, lists, sets and modules, by path: "model.fc.weight",
/// "optimizer.state.0.step", "(0, 1)" for a key that is a tuple; a single one is "0". Numbers and texts beside them,
/// and attributes of tensors, are left out; none requires a gradient. int8, int16 and uint16 become int32, uint32
/// becomes int64. Tensors that share memory in the file do so here, but for those in another order than row-major and
/// negated ones. No code is run: what a pickle would call is compared with a list of names, and anything else, such as
/// a whole module of Python's, is an Error that names it, unless `keep` or `prefix` chooses tensors beside it alone.
/// The old format, files of big-endian machines and pickles of more than 16 MiB are refused.
///
/// Files are read on several threads, and compared with their checksums, which files of reel and of PyTorch have,
/// unless LoadOptions::verify is off. With LoadOptions::mmap tensors are used where they lie in the file.
StateDict load(const std::filesystem::path& path, Metadata* metadata = nullptr);
StateDict load(const std::filesystem::path& path, const LoadOptions& options, Metadata* metadata = nullptr);
///@}
/// The same, into a module, as Module::load_state_dict: values are cast and moved to the module's device; after an
/// Error the module is unchanged.
nn::LoadResult load(nn::Module& module, const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace reel::io
#pragma GCC visibility pop
