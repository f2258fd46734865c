#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/io/file.h"
#include "reel/error.h"

// Settings in small JSON files.
namespace reel::io {

/// A file that holds an object, whose values are looked up and checked one by one.
class JsonObject {
 public:
  explicit JsonObject(const std::filesystem::path& path) : path_(path.string()) {
    const InputFile file(path);
    constexpr int64_t kMost = 1 << 20;
    REEL_CHECK(file.size() <= kMost, path_, ": ", file.size(), " bytes are no settings, which have at most ", kMost);
    std::string text(static_cast<size_t>(file.size()), ' ');
    file.read(text.data(), file.size(), 0);
    try {
      object_ = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& error) {
      reel::detail::fail(path_, ": ", error.what());
    }
    REEL_CHECK(object_.is_object(), path_, ": not a JSON object");
  }

  /// Whether there is a value, which is not null.
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  /// The value, which is of T's kind, an Error otherwise; `otherwise` if there is none.
  template <class T>
  T value(const char* key, const T& otherwise) const {
    if (!has(key)) return otherwise;
    const nlohmann::json& found = object_[key];
    bool right = false;
    if constexpr (std::is_same_v<T, bool>)
      right = found.is_boolean();
    else if constexpr (std::is_same_v<T, int64_t>)
      right = found.is_number_integer() &&
              !(found.is_number_unsigned() && found.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    else if constexpr (std::is_same_v<T, double>)
      right = found.is_number();
    else
      right = found.is_string();
    REEL_CHECK(right, path_, ": '", key, "' is of another kind: ", text_of(found));
    return found.get<T>();
  }
  /// A text, or the one that an object has under `inner`.
  std::string text(const char* key, const char* inner, const std::string& otherwise) const {
    if (!has(key) || !object_[key].is_object()) return value(key, otherwise);
    const nlohmann::json& object = object_[key];
    REEL_CHECK(object.contains(inner) && object[inner].is_string(), path_, ": '", key, "' has no text '", inner, "'");
    return object[inner].get<std::string>();
  }
  const std::string& path() const { return path_; }

 private:
  /// What an error shows of a value: a number or the like as it is, nothing that may be long or deep.
  static std::string text_of(const nlohmann::json& value) {
    if (value.is_string() || value.is_structured()) return std::string("a JSON ") + value.type_name();
    return value.dump();
  }

  std::string path_;
  nlohmann::json object_;
};

}  // namespace reel::io
