// These provide memory for tensors that are loaded: files that are mapped, and large pages.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/io/file.h"

namespace reel::io {

/// A MappedFile has a file's bytes in memory, read from the file when they are touched. Changes of this memory are
/// private: they reach neither the file nor other mappings of it. Bytes of the file that are overwritten in place may
/// appear here, and memory behind the end of a file that was truncated raises SIGBUS; a file that is replaced, as by
/// AtomicFile, stays as it was mapped.
class MappedFile {
 public:
  explicit MappedFile(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  int64_t size_;
};

/// Asks the system for large pages where memory that has not been touched is about to be filled: it takes a fraction of
/// the time to provide them. Pieces that are neighbours are taken together. Does nothing where there is no such page.
void prefer_huge_pages(std::vector<std::span<char>> memory);

}  // namespace reel::io
