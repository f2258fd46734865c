#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "reel/data/vocabulary.h"

#pragma GCC visibility push(default)
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

/// Words and their vectors: row words.id("tree") of `vectors`, float32 [words, size], is that of "tree".
struct WordVectors {
  Vocabulary words;  ///< In the order of the file.
  Tensor vectors;    ///< float32 [words, size]

  /// Writes the vectors of the vocabulary's words, as far as there are any, over the rows of `weight`, [words in the
  /// vocabulary, size], such as an embedding matrix; the other rows stay. Returns how many were written.
  int64_t copy_into(Tensor weight, const Vocabulary& vocabulary) const;
};

/// Reads word vectors. A word that occurs again is skipped. In a text file the numbers are the last fields of a
/// line, so that words may hold spaces, as some of GloVe's do. An Error reads "file:line: …", or "file: byte N: …".
WordVectors read_word_vectors(const std::filesystem::path& path, const WordVectorOptions& options = {});

/// Writes them as word2vec does, text or binary. `vectors` is [words, size]; a word that holds a space or a line end
/// is an Error.
void write_word_vectors(const std::filesystem::path& path, const Vocabulary& words, const Tensor& vectors,
                        WordVectorFormat format = WordVectorFormat::kText);

}  // namespace reel::data
#pragma GCC visibility pop
