#pragma once
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

// A folder of a test's own, which goes when the test ends.
struct Folder {
  std::filesystem::path path;
  explicit Folder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path(parent / ("reel-test-" + std::to_string(::getpid()) + "-" + std::to_string(next()))) {
    std::filesystem::create_directories(path);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path operator/(const char* name) const { return path / name; }
  int64_t count() const {
    return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
  }

 private:
  static int next() {
    static int count = 0;
    return count++;
  }
};

inline const std::filesystem::path& write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The same bytes as a gzip file; mode "ab" adds another member.
inline const std::filesystem::path& write_gzip(const std::filesystem::path& path, const std::string& bytes,
                                               const char* mode = "wb") {
  gzFile file = gzopen(path.c_str(), mode);
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return path;
}
