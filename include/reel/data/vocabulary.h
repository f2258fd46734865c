#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "reel/tensor.h"

namespace reel::data {

namespace detail {
// Lets string_views be looked up among strings.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using TextCounts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;
}  // namespace detail

/// How often each token has been seen:
///
///   TokenCounts counts;
///   data::for_each_line("corpus.txt.gz", [&](std::string_view line) { counts.add_all(data::split_words(line)); });
///   Vocabulary words(counts, {.min_count = 5});
class TokenCounts {
 public:
  void add(std::string_view token, int64_t times = 1);
  template <std::ranges::input_range Tokens>
  void add_all(const Tokens& tokens) {
    for (const auto& token : tokens) add(token);
  }
  int64_t count(std::string_view token) const;
  int64_t size() const { return static_cast<int64_t>(counts_.size()); }  ///< Different tokens.
  int64_t total() const { return total_; }
  const detail::TextCounts& counts() const { return counts_; }

 private:
  detail::TextCounts counts_;
  int64_t total_ = 0;
};

struct VocabularyOptions {
  int64_t min_count = 1;                           ///< Rarer tokens are left out.
  std::optional<int64_t> max_size = {};            ///< The most frequent ones only; specials count.
  std::vector<std::string> specials = {"<unk>"};   ///< They come first, in this order, whatever their counts.
  std::optional<std::string> unknown = {"<unk>"};  ///< What stands for all other tokens, one of `specials`.
};

/// Numbers tokens: the specials from 0 on, then the others by falling count, equal ones in byte order.
class Vocabulary {
 public:
  /// Of no token. Tokens may be added.
  Vocabulary() = default;
  explicit Vocabulary(const TokenCounts& counts, const VocabularyOptions& options = {});
  /// In this order; a token that appears twice is an Error.
  explicit Vocabulary(const std::vector<std::string>& tokens, std::optional<std::string> unknown = {});
  /// Gives the token the next number unless it has one; returns its number.
  int64_t add(std::string_view token, int64_t count = 0);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// The token's number. For one that is not there, that of the unknown token; where there is none, an Error.
  int64_t id(std::string_view token) const;
  std::optional<int64_t> find(std::string_view token) const;
  bool contains(std::string_view token) const { return find(token).has_value(); }
  const std::string& token(int64_t id) const;
  int64_t count(int64_t id) const;  ///< As the counts said; 0 for specials that they did not hold.
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  std::optional<int64_t> unknown() const { return unknown_; }

  /// The numbers of all tokens, int64 [n].
  template <std::ranges::input_range Tokens>
  Tensor encode(const Tokens& tokens) const {
    std::vector<int64_t> ids;
    for (const auto& token : tokens) ids.push_back(id(token));
    return from(ids);
  }
  std::vector<std::string> decode(const Tensor& ids) const;

  /// A text file: a line "reel vocabulary 1 UNKNOWN" (its number or -), then TOKEN<TAB>COUNT in order, where backslash,
  /// tab, LF and CR in a token are written as in C.
  void save(const std::filesystem::path& path) const;
  static Vocabulary load(const std::filesystem::path& path);
  /// The same text, for the metadata of a model's file.
  std::string to_string() const;
  static Vocabulary from_string(const std::string& text);

 private:
  static Vocabulary parse(const std::string& name, const std::function<bool(std::string&)>& read_line);
  void set_unknown(const std::optional<std::string>& unknown);

  std::vector<std::string> tokens_;
  std::vector<int64_t> counts_;
  detail::TextCounts ids_;
  std::optional<int64_t> unknown_;
};

}  // namespace reel::data
