#include "dataset.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "reel/reel.h"

namespace fs = std::filesystem;
using namespace reel;

// ---- files ----------------------------------------------------------------------------------------------------------

std::vector<Sentence> read_sentences(const std::string& path, const std::string& word_prefix) {
  std::vector<Sentence> sentences;
  if (path.find(".conllu") != std::string::npos) {
    for (const auto& parsed : data::read_conllu(path)) {
      Sentence& sentence = sentences.emplace_back();
      for (const auto& word : parsed.words) {
        sentence.words.push_back(word.form);
        sentence.tags.push_back(word.upos);
      }
    }
  } else {
    for (auto& parsed : data::read_conll(path, {.separators = " \t\r"}))
      sentences.push_back({std::move(parsed.columns.front()), std::move(parsed.columns.back())});
  }
  for (Sentence& sentence : sentences)
    for (std::string& word : sentence.words)
      if (word.size() > word_prefix.size() && word.starts_with(word_prefix)) word.erase(0, word_prefix.size());
  return sentences;
}

Corpus read_corpus(const std::string& folder, const std::string& word_prefix) {
  const auto part = [&](const std::string& name) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().filename().string().find(name) != std::string::npos)
        found.push_back(entry.path());
    REEL_CHECK(found.size() == 1, folder, ": ", found.size(), " files with '", name, "' in their names, expected one");
    return read_sentences(found[0], word_prefix);
  };
  return {part("train"), part("dev"), part("test")};
}

// ---- a made-up language ---------------------------------------------------------------------------------------------

namespace {

class Language {
 public:
  explicit Language(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 200; ++i) stems_.push_back(new_stem());
  }

  /// new_stems: how likely a stem is one that no sentence has had yet.
  Sentence sentence(double new_stems) {
    Sentence s;
    const auto add = [&](const std::string& word, const char* tag) {
      s.words.push_back(word);
      s.tags.push_back(tag);
    };
    const auto noun_phrase = [&] {
      add(pick({"ka", "ki", "su"}), "DET");
      while (chance(0.35)) add(stem(new_stems) + "al", "ADJ");
      const std::string noun = stem(new_stems);
      add(chance(0.3) ? noun : noun + pick({"or", "im"}), "NOUN");
    };
    noun_phrase();
    while (chance(0.2)) {
      add(pick({"pe", "ro"}), "ADP");
      noun_phrase();
    }
    if (chance(0.3)) add(stem(new_stems) + "ly", "ADV");
    const std::string verb = stem(new_stems);
    add(chance(0.3) ? verb : verb + pick({"en", "et"}), "VERB");
    if (chance(0.7)) noun_phrase();
    add(".", "PUNCT");
    return s;
  }

 private:
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  std::string pick(const std::vector<std::string>& of) { return of[random_() % of.size()]; }
  std::string new_stem() {
    std::string text;
    for (int syllable = 0; syllable < 2; ++syllable) {
      text += "bdfgklmnprstvz"[random_() % 14];
      text += "aeiou"[random_() % 5];
    }
    return text + "bdgkmnprst"[random_() % 10];
  }
  std::string stem(double new_stems) { return chance(new_stems) ? new_stem() : stems_[random_() % stems_.size()]; }

  std::mt19937_64 random_;
  std::vector<std::string> stems_;
};

}  // namespace

Corpus generate_language(const LanguageOptions& options) {
  Language language(options.seed);
  Corpus corpus;
  for (int64_t i = 0; i < options.train; ++i) corpus.train.push_back(language.sentence(0.05));
  for (int64_t i = 0; i < options.dev; ++i) corpus.dev.push_back(language.sentence(0.5));
  for (int64_t i = 0; i < options.test; ++i) corpus.test.push_back(language.sentence(0.5));
  return corpus;
}

bool names_entities(const std::vector<Sentence>& sentences) {
  for (const Sentence& sentence : sentences)
    for (const std::string& tag : sentence.tags)
      if (tag != "O" && !tag.starts_with("B-") && !tag.starts_with("I-")) return false;
  return true;
}
