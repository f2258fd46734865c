#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/file.h"
#include "reel/io/safetensors.h"

// A safetensors file that is open for reading.
namespace reel::io {

struct ElementName;
class MappedFile;

/// What the header says of a tensor.
struct TensorEntry {
  std::string name;
  int64_t position = 0;  // in the file, of its description
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape, offsets;
  const ElementName* type = nullptr;  // nullptr: a dtype that reel does not have
  std::optional<uint32_t> checksum;   // CRC-32 of its data
};

class TensorFile {
 public:
  /// Reads and checks the header: against itself, the file's size and, with `verify`, its checksum, if it has one.
  explicit TensorFile(const std::filesystem::path& path, bool verify = true);

  const std::vector<TensorEntry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }  ///< Without the checksums.
  bool has_checksums() const { return has_checksums_; }
  /// The tensors that the options select, under the names that they give.
  StateDict load(const LoadOptions& options = {}) const;
  /// Reads all data, and throws if they are not those of the checksums, or if there are none.
  void verify() const;

 private:
  void read_checksums(const std::string& header);
  void read(const TensorEntry& entry, const Tensor& tensor, const MappedFile* mapping) const;
  void verify(const TensorEntry& entry, uint32_t checksum) const;
  template <class... Parts>
  [[noreturn]] void fail_at(const TensorEntry& entry, const Parts&... parts) const;
  void check() const;
  void check_size(const TensorEntry& entry, int64_t given) const;
  int64_t begin_of(const TensorEntry& entry) const { return data_begin_ + (*entry.offsets)[0]; }  // of its data

  InputFile file_;
  std::vector<TensorEntry> entries_;
  Metadata metadata_;
  int64_t data_begin_ = 0;
  bool has_checksums_ = false;
};

/// io::save, with the files that AtomicFile::commit keeps.
void save(const StateDict& tensors, const std::filesystem::path& path, const Metadata& metadata, int keep);

}  // namespace reel::io
