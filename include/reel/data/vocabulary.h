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

#pragma GCC visibility push(default)
/// Tokens, how often they occur, and their numbers.
namespace reel::data {

namespace detail {
// For lookups of string_views among strings without a copy.
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
  void add(std::string_view token, int64_t times = 1);  ///< Counts a token so many times.
  /// Counts each of the tokens once.
  template <std::ranges::input_range Tokens>
  void add_all(const Tokens& tokens) {
    for (const auto& token : tokens) add(token);
  }
  int64_t count(std::string_view token) const;                           ///< 0 of a token that was not added.
  int64_t size() const { return static_cast<int64_t>(counts_.size()); }  ///< Different tokens.
  int64_t total() const { return total_; }                               ///< Tokens with their repetitions.
  const detail::TextCounts& counts() const { return counts_; }           ///< A map from tokens to counts.

 private:
  detail::TextCounts counts_;
  int64_t total_ = 0;
};

/// Which tokens a Vocabulary holds.
struct VocabularyOptions {
  int64_t min_count = 1;                           ///< Rarer tokens are left out.
  std::optional<int64_t> max_size = {};            ///< The most frequent ones only; specials count.
  std::vector<std::string> specials = {"<unk>"};   ///< They come first, in this order, whatever their counts.
  std::optional<std::string> unknown = {"<unk>"};  ///< The token that replaces all others, one of `specials`.
};

/// Numbers tokens: the specials from 0 on, then the others by falling count, equal ones in byte order.
class Vocabulary {
 public:
  /// An empty vocabulary; add() adds tokens.
  Vocabulary() = default;
  /// The specials, then the tokens by falling count.
  explicit Vocabulary(const TokenCounts& counts, const VocabularyOptions& options = {});
  /// In this order; a token that appears twice is an Error.
  explicit Vocabulary(const std::vector<std::string>& tokens, std::optional<std::string> unknown = {});
  /// Gives the token the next number unless it has one; returns its number.
  int64_t add(std::string_view token, int64_t count = 0);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  ///< The number of tokens.
  /// The token's number, or that of the unknown token for tokens that are not in it; throws if there is no unknown
  /// token.
  int64_t id(std::string_view token) const;
  std::optional<int64_t> find(std::string_view token) const;                       ///< nullopt if it is not there.
  bool contains(std::string_view token) const { return find(token).has_value(); }  ///< Whether it has a number.
  const std::string& token(int64_t id) const;                                      ///< The token of that number.
  int64_t count(int64_t id) const;  ///< Its count in the TokenCounts; 0 for specials that were not counted.
  const std::vector<std::string>& tokens() const { return tokens_; }  ///< All, by number.
  const std::vector<int64_t>& counts() const { return counts_; }      ///< Of all, by number.
  std::optional<int64_t> unknown() const { return unknown_; }         ///< The number of the unknown token, if any.

  /// The numbers of all tokens, int64 [n].
  template <std::ranges::input_range Tokens>
  Tensor encode(const Tokens& tokens) const {
    std::vector<int64_t> ids;
    for (const auto& token : tokens) ids.push_back(id(token));
    return tensor(ids);
  }
  std::vector<std::string> decode(
      const Tensor& ids) const;  ///< The tokens of integers of any shape, in row-major order.

  ///@{
  /// A text file: a line "reel vocabulary 1 UNKNOWN" (its number or -), then TOKEN<TAB>COUNT in order, where backslash,
  /// tab, LF and CR in a token are written as in C.
  void save(const std::filesystem::path& path) const;
  static Vocabulary load(const std::filesystem::path& path);
  ///@}

  ///@{
  /// The same text, for the metadata of a model's file.
  std::string to_string() const;
  static Vocabulary from_string(const std::string& text);
  ///@}

 private:
  static Vocabulary parse(const std::string& name, const std::function<bool(std::string&)>& read_line);
  void set_unknown(const std::optional<std::string>& unknown);

  std::vector<std::string> tokens_;
  std::vector<int64_t> counts_;
  detail::TextCounts ids_;
  std::optional<int64_t> unknown_;
};

}  // namespace reel::data
#pragma GCC visibility pop
