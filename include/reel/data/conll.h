#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reel::data {

// ---- columns --------------------------------------------------------------------------------------------------------

struct ConllOptions {
  std::string separators = " \t";  ///< Each run of these ends a column.
  int columns = 0;                 ///< How many each line has; 0 takes the first line's word for it.
};

/// A sentence as columns: columns[0] its tokens, columns.back() usually its tags.
struct ConllSentence {
  std::vector<std::vector<std::string>> columns;
  int64_t size() const { return columns.empty() ? 0 : static_cast<int64_t>(columns[0].size()); }
};

/// Reads a token a line, its columns side by side, sentences separated by blank lines, as in CoNLL-2000, -2003 and most
/// files for tagging. Lines that begin with -DOCSTART- are passed over. Only the separators separate: a no-break space
/// is part of a token. An Error reads "file:line: what is wrong".
std::vector<ConllSentence> read_conll(const std::filesystem::path& path, const ConllOptions& options = {});

// ---- CoNLL-U --------------------------------------------------------------------------------------------------------

/// A line of CoNLL-U, its ID and HEAD as numbers. "_" is kept as it is.
struct ConlluWord {
  std::string form, lemma, upos, xpos;
  std::vector<std::pair<std::string, std::string>> feats;  ///< {"Case", "Nom"}, …; empty for "_".
  int64_t head = -1;                                       ///< 0 for the root, -1 for "_".
  std::string deprel, deps, misc;
};

/// A sentence of CoNLL-U (https://universaldependencies.org/format.html).
struct ConlluSentence {
  struct Range {
    int64_t first, last;  ///< "2-3" is {2, 3}: words 2 and 3, counted from 1, are written as one.
    std::string form, misc;
    std::vector<std::pair<std::string, std::string>> feats;  ///< Typo=Yes at most.
  };
  struct Empty {
    int64_t after, number;  ///< "8.1" is {8, 1}: the first one after word 8.
    ConlluWord word;
  };
  std::vector<std::string> comments;  ///< Without the '#'.
  std::vector<ConlluWord> words;      ///< The syntactic words: word 1 is words[0].
  std::vector<Range> ranges;
  std::vector<Empty> empties;

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
