#include "lib/io/json.h"

#include <nlohmann/json.hpp>

#include "lib/io/file.h"

namespace reel::io {

using nlohmann::json;

namespace {

/// What an error shows of a value: a number or the like as it is, nothing that may be long or deep.
std::string text_of(const json& value) {
  if (value.is_string() || value.is_structured()) return std::string("a JSON ") + value.type_name();
  return value.dump();
}

}  // namespace

struct JsonObject::Parsed {
  json object;

  const json* find(const char* key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  /// The value of a key that is of the right kind, `otherwise` if there is none.
  template <class T, class Right>
  T value(const std::string& path, const char* key, const T& otherwise, Right right) const {
    const json* const found = find(key);
    if (!found) return otherwise;
    REEL_CHECK(right(*found), path, ": '", key, "' is of another kind: ", text_of(*found));
    return found->get<T>();
  }
};

JsonObject::JsonObject(const std::filesystem::path& path) : path_(path.string()), parsed_(std::make_unique<Parsed>()) {
  const InputFile file(path);
  constexpr int64_t kMaxBytes = 1 << 20;
  REEL_CHECK(file.size() <= kMaxBytes, path_, ": ", file.size(), " bytes are no settings, which have at most ",
             kMaxBytes);
  std::string text(static_cast<size_t>(file.size()), ' ');
  file.read(text.data(), file.size(), 0);
  try {
    parsed_->object = json::parse(text);
  } catch (const json::exception& error) {
    reel::detail::fail(path_, ": ", error.what());
  }
  REEL_CHECK(parsed_->object.is_object(), path_, ": not a JSON object");
}
JsonObject::~JsonObject() = default;

bool JsonObject::has(const char* key) const { return parsed_->find(key); }

bool JsonObject::value(const char* key, bool otherwise) const {
  return parsed_->value(path_, key, otherwise, [](const json& found) { return found.is_boolean(); });
}
int64_t JsonObject::value(const char* key, int64_t otherwise) const {
  return parsed_->value(path_, key, otherwise, [](const json& found) {
    return found.is_number_integer() &&
           !(found.is_number_unsigned() && found.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  });
}
double JsonObject::value(const char* key, double otherwise) const {
  return parsed_->value(path_, key, otherwise, [](const json& found) { return found.is_number(); });
}
std::string JsonObject::value(const char* key, const std::string& otherwise) const {
  return parsed_->value(path_, key, otherwise, [](const json& found) { return found.is_string(); });
}

std::string JsonObject::text(const char* key, const char* inner, const std::string& otherwise) const {
  const json* const object = parsed_->find(key);
  if (!object || !object->is_object()) return value(key, otherwise);
  const auto found = object->find(inner);
  REEL_CHECK(found != object->end() && found->is_string(), path_, ": '", key, "' has no text '", inner, "'");
  return found->get<std::string>();
}

}  // namespace reel::io
