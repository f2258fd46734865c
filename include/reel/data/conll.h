#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// Readers of CoNLL files, with one word a line, and of CoNLL-U.
namespace reel::data {

// ---- columns --------------------------------------------------------------------------------------------------------

/// Of read_conll.
struct ConllOptions {
  std::string separators = " \t";  ///< Each run of these ends a column.
  int columns = 0;                 ///< How many each line has; 0: as many as the first.
  std::string comment = {};        ///< Lines that begin with this are skipped, as with "# "; empty: none.
  bool latin1 = false;             ///< The file's bytes are ISO 8859-1's characters. What is read is UTF-8.
};

/// A sentence as columns: columns[0] its tokens, columns.back() usually its tags.
struct ConllSentence {
  std::vector<std::vector<std::string>> columns;  ///< Of one length each.
  /// The number of tokens.
  int64_t size() const { return columns.empty() ? 0 : static_cast<int64_t>(columns[0].size()); }
};

/// Reads a token a line, its columns side by side, sentences separated by blank lines, as in CoNLL-2000, -2003 and most
/// files for tagging. Lines that begin with -DOCSTART- are skipped. Only the given separators count: a no-break space
/// is part of a token. An Error reads "file:line: what is wrong", which may be bytes that are not UTF-8.
std::vector<ConllSentence> read_conll(const std::filesystem::path& path, const ConllOptions& options = {});

// ---- CoNLL-U --------------------------------------------------------------------------------------------------------

/// A line of CoNLL-U, its ID and HEAD as numbers. "_" is kept as it is.
struct ConlluWord {
  ///@{
  /// The field of that name.
  std::string form, lemma, upos, xpos;
  std::string deprel, deps, misc;
  ///@}
  std::vector<std::pair<std::string, std::string>> feats;  ///< {"Case", "Nom"}, …; empty for "_".
  int64_t head = -1;                                       ///< 0 for the root, -1 for "_".
};

/// A sentence of CoNLL-U (https://universaldependencies.org/format.html).
struct ConlluSentence {
  /// Words that are written as one token: "2-3" is first = 2, last = 3, counted from 1.
  struct Range {
    int64_t first;                                           ///< The first word.
    int64_t last;                                            ///< The last word.
    std::string form;                                        ///< As it is written.
    std::string misc;                                        ///< The last field.
    std::vector<std::pair<std::string, std::string>> feats;  ///< Typo=Yes at most.
  };
  /// An empty node of the enhanced dependencies: "8.1" is the first one after word 8.
  struct Empty {
    int64_t after;    ///< 8
    int64_t number;   ///< 1
    ConlluWord word;  ///< Its fields.
  };
  std::vector<std::string> comments;  ///< Without the '#'.
  std::vector<ConlluWord> words;      ///< The syntactic words: word 1 is words[0].
  std::vector<Range> ranges;          ///< Tokens of several words, in order.
  std::vector<Empty> empties;         ///< Empty nodes, in order.

  /// The number of syntactic words.
  int64_t size() const { return static_cast<int64_t>(words.size()); }
  /// The value of a comment "# key = value": metadata("sent_id"), metadata("text").
  std::optional<std::string> metadata(std::string_view key) const;
  /// The lines of the format again, with the blank line that ends them.
  std::string to_string() const;
};

/// An Error reads "file:line: what is wrong": a line without ten filled columns, IDs that do not count from 1, ranges
/// that overlap or leave the sentence, heads outside of it.
std::vector<ConlluSentence> read_conllu(const std::filesystem::path& path);

}  // namespace reel::data
#pragma GCC visibility pop
