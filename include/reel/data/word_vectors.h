#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reel/data/vocabulary.h"

#pragma GCC visibility push(default)
/// Readers and writers of word vectors.
namespace reel::data {

/// How a file of word vectors is written.
enum class WordVectorFormat {
  kText,            ///< "word number number …" a line: GloVe's; word2vec's begins with a line "words size" as well.
  kWord2VecBinary,  ///< "words size", LF, and for each word its name, a space and float32 numbers.
};

/// Of read_word_vectors.
struct WordVectorOptions {
  WordVectorFormat format = WordVectorFormat::kText;  ///< Of the file.
  /// Whether a text file has word2vec's first line. If not given, a first line of two whole numbers is one.
  std::optional<bool> header = {};
  std::optional<int64_t> max_words = {};                 ///< The first ones, in most files the most frequent.
  std::function<bool(std::string_view)> keep = nullptr;  ///< Only these; nothing else is held in memory.
};

/// A word, and the cosine of the angle between its vector and the one that was looked for.
struct Neighbour {
  std::string word;  ///< The word.
  double cosine;     ///< In [-1, 1].
};

/// Words and their vectors: row words.id("tree") of `vectors`, float32 [words, size], is that of "tree".
struct WordVectors {
  Vocabulary words;  ///< In the order of the file.
  Tensor vectors;    ///< float32 [words, size]

  /// Writes the vectors of the vocabulary's words, as far as there are any, over the rows of `weight`, [words in the
  /// vocabulary, size], such as an embedding matrix; the other rows stay. Returns how many were written.
  int64_t copy_into(Tensor weight, const Vocabulary& vocabulary) const;

  ///@{
  /// The `count` words whose vectors have the smallest angle to `direction` [size], nearest first, but for those
  /// numbers in `except`; or to that of a word, without the word itself. An unknown word is an Error.
  std::vector<Neighbour> nearest(const Tensor& direction, int64_t count, std::span<const int64_t> except = {}) const;
  std::vector<Neighbour> nearest(std::string_view word, int64_t count) const;
  ///@}
  /// What is to c as b is to a: the nearest words to b - a + c, of vectors of length 1 (Mikolov, Yih & Zweig 2013),
  /// without these three.
  std::vector<Neighbour> analogy(std::string_view a, std::string_view b, std::string_view c, int64_t count) const;
};

/// Reads word vectors. A word that occurs again is skipped. In a text file the numbers are the last fields of a
/// line, so that words may hold spaces, as some of GloVe's do. An Error reads "file:line: …", or "file: byte N: …".
WordVectors read_word_vectors(const std::filesystem::path& path, const WordVectorOptions& options = {});

/// Of score_analogies.
struct AnalogyScore {
  int64_t asked = 0;    ///< Questions whose words are all known.
  int64_t right = 0;    ///< Those of them that were answered right.
  int64_t skipped = 0;  ///< Questions with a word that is not known.
  /// right / asked; NaN if nothing was asked.
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(asked); }
};
/// Asks what is to c as b is to a, a line "a b c d" a question whose answer is d; lines that begin with a colon are
/// headings, as in word2vec's questions-words.txt. Words are looked up as they are and, if they are not known, in lower
/// case. A line of another form is an Error.
AnalogyScore score_analogies(const WordVectors& vectors, std::span<const std::string> lines);

/// Of score_similarities.
struct SimilarityScore {
  double correlation = 0;  ///< Spearman's rank correlation of cosines and given scores; equal values share their rank.
  int64_t pairs = 0;       ///< Those whose words are known.
  int64_t skipped = 0;     ///< The others.
};
/// Compares with people's judgement: a line "word word score" a pair, separated by tabs or spaces (WordSim-353, MEN,
/// SimLex-999 as in Faruqui & Dyer 2014). Words are looked up as above.
SimilarityScore score_similarities(const WordVectors& vectors, std::span<const std::string> lines);

/// Writes them as word2vec does, text or binary. `vectors` is [words, size]; a word that holds a space or a line end
/// is an Error.
void write_word_vectors(const std::filesystem::path& path, const Vocabulary& words, const Tensor& vectors,
                        WordVectorFormat format = WordVectorFormat::kText);

}  // namespace reel::data
#pragma GCC visibility pop
