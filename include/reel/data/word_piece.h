#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reel/data/vocabulary.h"
#include "reel/ragged.h"

#pragma GCC visibility push(default)
/// The tokenizer of models of the BERT family.
namespace reel::data {

/// How a WordPiece reads text. The defaults are those of BERT's uncased models.
struct WordPieceOptions {
  bool lower_case = true;                  ///< do_lower_case of tokenizer_config.json: false for cased models.
  std::optional<bool> strip_accents = {};  ///< Whether é becomes e; as lower_case says, by default.
  bool split_chinese = true;               ///< Every Chinese character is a word (tokenize_chinese_chars).
  int64_t max_word_chars = 100;            ///< A longer word is the unknown token.
  /// A special token that is written in a text, "[SEP]", is that token, as in the transformers package. False for text
  /// that is not trusted: it is then read as brackets and letters.
  bool read_specials = true;
  ///@{
  /// The special tokens; each of them must be in the vocabulary, but for the mask.
  std::string unknown = "[UNK]", cls = "[CLS]", sep = "[SEP]", pad = "[PAD]", mask = "[MASK]";
  ///@}

  /// These options, where a tokenizer_config.json says otherwise (do_lower_case, strip_accents, tokenize_chinese_chars,
  /// unk_token and the other special tokens) as that says. A file of another tokenizer than BERT's is an Error.
  WordPieceOptions with_settings_of(const std::filesystem::path& path) const;
};

/// Texts as numbers for models of the BERT family (Devlin et al. 2019): words are split at white space and
/// punctuation, then into the longest pieces that the vocabulary has, from the left: "unbelievable" may become "un",
/// "##believ", "##able". The result is that of BertTokenizer in the transformers package. May be used by several
/// threads at once.
class WordPiece {
 public:
  /// Pieces by number, those inside of a word beginning with "##".
  explicit WordPiece(Vocabulary vocabulary, WordPieceOptions options = {});
  /// With the pieces of a vocab.txt, one a line; one that appears twice is an Error. `path` is that file, or a model's
  /// folder with it, where the settings in a tokenizer_config.json come before the options.
  static WordPiece load(const std::filesystem::path& path, WordPieceOptions options = {});

  /// The numbers of a text's pieces. Text that is not UTF-8 is an Error that names the byte.
  std::vector<int64_t> pieces(std::string_view text) const;
  /// The same as tokens.
  std::vector<std::string> tokenize(std::string_view text) const;
  ///@{
  /// What a model reads: [CLS] text [SEP], or [CLS] text [SEP] second [SEP] (whose token types are 0 up to the first
  /// [SEP], then 1). Longer than max_length (at least 3) it is cut: the text at its end, of two the longer one first.
  std::vector<int64_t> encode(std::string_view text, int64_t max_length = 512) const;
  std::vector<int64_t> encode(std::string_view text, std::string_view second, int64_t max_length = 512) const;
  ///@}
  /// The first form for many texts, whose lengths differ: what nn::Bert takes.
  Ragged encode_all(std::span<const std::string> texts, int64_t max_length = 512) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }  ///< The pieces.
  const WordPieceOptions& options() const { return options_; }  ///< As given.
  int64_t cls() const { return cls_; }                          ///< The number of [CLS].
  int64_t sep() const { return sep_; }                          ///< The number of [SEP].
  int64_t pad() const { return pad_; }                          ///< The number of [PAD].
  int64_t unknown() const { return unknown_; }                  ///< The number of [UNK].
  std::optional<int64_t> mask() const { return mask_; }         ///< The number of [MASK], if there is one.

 private:
  void add_plain(std::string_view text, std::vector<int64_t>& ids) const;
  void add_word(std::string_view word, std::vector<int64_t>& ids) const;

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  int64_t unknown_, cls_, sep_, pad_;
  std::optional<int64_t> mask_;
  size_t longest_ = 0;  // bytes of the longest piece
};

}  // namespace reel::data
#pragma GCC visibility pop
