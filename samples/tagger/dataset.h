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

/// Reads the files of a folder whose names hold "train", "dev" and "test": CoNLL-U (.conllu), whose universal parts of
/// speech are the tags, or columns, of which the first is the word and the last the tag; plain or gzip. A prefix that
/// all words share, such as WikiANN's "en:", can be taken off.
Corpus read_corpus(const std::string& folder, const std::string& word_prefix);
/// The words and tags of one file.
std::vector<Sentence> read_sentences(const std::string& path, const std::string& word_prefix = {});

struct LanguageOptions {
  int64_t train = 2000, dev = 300, test = 500;
  uint64_t seed = 1;
};
/// Sentences of a made-up language. Endings tell some words' tags, but a third of the stems have no ending and are noun
/// or verb according to their place, and half of the stems of the test are new: words, letters and context all count.
Corpus generate_language(const LanguageOptions& options);

/// Whether all tags are O, B-X or I-X: then entities are what is scored.
bool names_entities(const std::vector<Sentence>& sentences);
