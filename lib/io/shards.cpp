// Reads models in several files by their index: {"metadata": {"total_size": 16}, "weight_map": {"fc.weight":
// "model-00001-of-00002.safetensors", …}}, beside these. Shards may be safetensors or .pt files.
#include "lib/io/shards.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "lib/io/load_options.h"

namespace reel::io {
namespace {

using nlohmann::json;

constexpr int64_t kMaxIndex = 100'000'000;  // as of a safetensors file's header

/// An IndexReader collects the names of tensors by the files that they are in. It is a SAX parser, so that a malicious
/// index is never a JSON tree in memory.
class IndexReader : public nlohmann::json_sax<json> {
 public:
  explicit IndexReader(const std::string& file) : file_(file) {}
  std::map<std::string, std::unordered_set<std::string>> shards;

  bool start_object(size_t) override {
    other();
    in_map_ = depth_++ == 1 && key_ == "weight_map";
    return true;
  }
  bool key(std::string& key) override {
    key_ = std::move(key);
    return true;
  }
  bool string(std::string& value) override {
    if (!in_map_) return other();
    // A name with a folder could lead anywhere.
    REEL_CHECK(!value.empty() && value != "." && value != ".." && value.find('/') == std::string::npos, file_,
               ": the shard of '", key_.substr(0, 200), "' is '", value.substr(0, 200), "', not a file beside it");
    REEL_CHECK(names_.insert(key_).second, file_, ": '", key_.substr(0, 200), "' appears twice");
    shards[std::move(value)].insert(std::move(key_));
    return true;
  }
  bool start_array(size_t) override { return ++depth_, other(); }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(int64_t) override { return other(); }
  bool number_unsigned(uint64_t) override { return other(); }
  bool number_float(double, const std::string&) override { return other(); }
  bool binary(json::binary_t&) override { return other(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    reel::detail::fail(file_, ": not JSON: ", std::string(error.what()).substr(0, 200));
  }

 private:
  bool close() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }
  // Skips a value outside of the map; one inside is an Error.
  bool other() const {
    REEL_CHECK(!in_map_, file_, ": the shard of '", key_.substr(0, 200), "' is no text");
    return true;
  }

  const std::string& file_;
  int64_t depth_ = 0;
  bool in_map_ = false;
  std::string key_;
  std::unordered_set<std::string> names_;
};

}  // namespace

bool is_shard_index(const InputFile& file) {
  // A safetensors file begins with 8 bytes of a number, of which the last ones are 0.
  char begin[8];
  if (file.size() < 8) return false;
  file.read(begin, sizeof begin, 0);
  const char* const first = std::find_if(begin, begin + 8, [](char c) { return !std::strchr(" \t\r\n", c) || !c; });
  return first < begin + 8 && *first == '{' && std::find(first, static_cast<const char*>(begin + 8), '\0') == begin + 8;
}

StateDict load_shards(const InputFile& index, const LoadOptions& options, Metadata* metadata) {
  const std::string file = index.path().string();
  REEL_CHECK(index.size() <= kMaxIndex, file, ": ", index.size(), " bytes are no index of shards");
  std::string text(static_cast<size_t>(index.size()), '\0');
  index.read(text.data(), index.size(), 0);
  IndexReader reader(file);
  REEL_CHECK(text.find('\0') == std::string::npos, file, ": not JSON: it has a NUL");
  json::sax_parse(text, &reader);
  REEL_CHECK(!reader.shards.empty(), file,
             ": a JSON file without a \"weight_map\" is no index of a model in several files");

  StateDict all;
  std::unordered_set<std::string> names;
  Metadata all_metadata;
  for (const auto& [name, tensors] : reader.shards) {
    const std::filesystem::path shard = index.path().parent_path() / name;
    REEL_CHECK(!is_shard_index(InputFile(shard)), shard.string(), ": a shard that is an index itself");
    std::unordered_set<std::string> missing;
    for (const std::string& tensor : tensors)
      if (loaded_name(tensor, options)) missing.insert(tensor);
    if (missing.empty()) continue;
    LoadOptions of_shard = options;
    of_shard.keep = [&, &wanted = tensors](std::string_view tensor) {
      missing.erase(std::string(tensor));
      return wanted.contains(std::string(tensor)) && (!options.keep || options.keep(tensor));
    };
    Metadata own;
    StateDict loaded = load(shard, of_shard, &own);
    REEL_CHECK(missing.empty(), file, ": '", missing.begin()->substr(0, 200), "' is not in ", name);
    for (auto& [tensor, value] : loaded) {
      REEL_CHECK(names.insert(tensor).second, file, ": '", tensor, "' is given twice");
      all.emplace_back(std::move(tensor), std::move(value));
    }
    all_metadata.merge(own);
  }
  if (metadata) *metadata = std::move(all_metadata);
  return all;
}

}  // namespace reel::io
