#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/io/file.h"

/// The part of the zip format (PKWARE's APPNOTE.TXT) that .npz needs: stored and deflated members, zip64, one disk, no
/// encryption.
namespace reel::io {

struct ZipEntry {
  std::string name;
  int64_t begin, end;  ///< its bytes in the file
  bool deflated;
  int64_t size;  ///< when inflated
  uint32_t crc;
};

/// The members in the order of the directory, which is checked against the file: members lie inside of it and do not
/// overlap, so that a small file cannot unfold into more than deflate allows.
std::vector<ZipEntry> read_zip(const InputFile& file);

class ZipWriter {
 public:
  /// Sizes and offsets from `zip64_from` on are written with 64 bits; tests set less than the format demands.
  ZipWriter(AtomicFile& file, bool deflate, int64_t zip64_from = 0xFFFFFFFF)
      : file_(file), deflate_(deflate), zip64_from_(zip64_from) {}
  /// A member made of these pieces, one after the other.
  void add(const std::string& name, const std::vector<std::span<const char>>& pieces);
  void finish();  ///< Writes the directory.

 private:
  void write(const std::string& bytes);

  AtomicFile& file_;
  bool deflate_;
  int64_t zip64_from_, at_ = 0, entries_ = 0;
  std::string directory_;
};

}  // namespace reel::io
