#pragma once
#include <cstdint>
#include <string>
#include <vector>

/// A sentence: its words and the tag of each.
struct Sentence {
  std::vector<std::string> words, tags;
};

struct Corpus {
  std::vector<Sentence> train, dev, test;
};

struct ReadOptions {
  std::string word_prefix;              ///< Taken off every word, such as WikiANN's "en:".
  std::string scheme = "auto";          ///< How tags mark entities: none, iob1, iob2 or iobes.
  int word_column = 0, tag_column = 0;  ///< From 1, or from -1 for the last; 0 chooses.
  std::string comment;                  ///< Lines that begin with this are skipped.
  bool latin1 = false;                  ///< The encoding is ISO 8859-1.
};
/// Reads the files of a folder whose names hold "train", "dev" and "test"; see read_sentences.
Corpus read_corpus(const std::string& folder, const ReadOptions& options);
/// The words and tags of one file, plain or gzip. Columns: unless chosen, those of CoNLL-X and CoNLL-U (ten, and an ID
/// is first) are the 2nd and the 4th, of other files the first and the last. Tags that mark entities become IOB2. A
/// file whose tags are all equal is an Error.
std::vector<Sentence> read_sentences(const std::string& path, const ReadOptions& options = {});

struct LanguageOptions {
  int64_t train = 2000, dev = 300, test = 500;
  uint64_t seed = 1;
};
/// Sentences of a made-up language. Endings tell some words' tags, but a third of the stems have no ending and are noun
/// or verb according to their place, and half of the stems of the test are new: words, letters and context all count.
Corpus generate_language(const LanguageOptions& options);

/// Whether all tags are O, B-X or I-X: then entities are what is scored.
bool names_entities(const std::vector<Sentence>& sentences);
