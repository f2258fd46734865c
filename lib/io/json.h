#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "reel/error.h"

// Settings in small JSON files.
namespace reel::io {

/// A file that holds an object, whose values are looked up and checked one by one.
class JsonObject {
 public:
  explicit JsonObject(const std::filesystem::path& path);
  ~JsonObject();

  /// Whether there is a value, which is not null.
  bool has(const char* key) const;
  ///@{
  /// The value, `otherwise` if there is none; an Error if it is of another kind.
  bool value(const char* key, bool otherwise) const;
  int64_t value(const char* key, int64_t otherwise) const;
  double value(const char* key, double otherwise) const;
  std::string value(const char* key, const std::string& otherwise) const;
  std::string value(const char* key, const char* otherwise) const { return value(key, std::string(otherwise)); }
  ///@}
  /// A text, or the one that an object has under `inner`.
  std::string text(const char* key, const char* inner, const std::string& otherwise) const;
  const std::string& path() const { return path_; }

 private:
  struct Parsed;  // nlohmann's, which takes long to compile

  std::string path_;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace reel::io
