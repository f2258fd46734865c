#include "dataset.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "reel/reel.h"

namespace fs = std::filesystem;
using namespace reel;

// ---- files ----------------------------------------------------------------------------------------------------------

namespace {

/// CoNLL-X or CoNLL-U: lines of ten columns, of which the first is the word's number.
bool has_ids(const std::string& path) {
  for (const std::string& line : data::read_lines(path))
    if (!line.empty() && line[0] != '#')
      return std::count(line.begin(), line.end(), '\t') == 9 &&
             (line.starts_with("1\t") || line.starts_with("1-") || line.starts_with("0.1\t"));
  return false;
}

std::vector<std::string>& column(const std::string& path, data::ConllSentence& of, int number) {
  const auto count = static_cast<int>(of.columns.size());
  REEL_CHECK(number && std::abs(number) <= count, path, ": column ", number, " of ", count);
  return of.columns[static_cast<size_t>(number > 0 ? number - 1 : count + number)];
}

data::TagScheme scheme_of(const std::string& path, const std::string& name, const std::vector<Sentence>& sentences) {
  if (name == "none") return data::TagScheme::kNone;
  if (name == "iob1") return data::TagScheme::kIOB1;
  if (name == "iob2") return data::TagScheme::kIOB2;
  if (name == "iobes") return data::TagScheme::kIOBES;
  std::vector<std::vector<std::string>> tags;
  for (const Sentence& sentence : sentences) tags.push_back(sentence.tags);
  try {
    return data::find_tag_scheme(tags);
  } catch (const Error& error) {
    reel::detail::fail(path, ": ", error.what(), " (--tag-scheme)");
  }
}

}  // namespace

std::vector<Sentence> read_sentences(const std::string& path, const ReadOptions& options) {
  const bool ids = has_ids(path);
  const int word_column = options.word_column ? options.word_column : ids ? 2 : 1;
  const int tag_column = options.tag_column ? options.tag_column : ids ? 4 : -1;
  std::vector<Sentence> sentences;
  for (auto& parsed : data::read_conll(path, {.separators = ids ? "\t" : " \t\r",
                                             .comment = ids && options.comment.empty() ? "#" : options.comment,
                                             .latin1 = options.latin1})) {
    const auto &words = column(path, parsed, word_column), &tags = column(path, parsed, tag_column);
    Sentence& sentence = sentences.emplace_back();
    for (size_t i = 0; i < words.size(); ++i) {
      // "3-4" is a token of two words that follow, "8.1" is no word of the text.
      if (ids && parsed.columns[0][i].find_first_of("-.") != std::string::npos) continue;
      const bool prefixed = words[i].size() > options.word_prefix.size() && words[i].starts_with(options.word_prefix);
      sentence.words.push_back(prefixed ? words[i].substr(options.word_prefix.size()) : words[i]);
      sentence.tags.push_back(tags[i]);
    }
  }
  std::set<std::string> different;
  const data::TagScheme scheme = scheme_of(path, options.scheme, sentences);
  for (size_t i = 0; i < sentences.size(); ++i) try {
      sentences[i].tags = data::to_iob2(sentences[i].tags, scheme);
      different.insert(sentences[i].tags.begin(), sentences[i].tags.end());
    } catch (const Error& error) {
      reel::detail::fail(path, ": sentence ", i + 1, ": ", error.what());
    }
  REEL_CHECK(different.size() != 1, path, ": all tags are '", *different.begin(), "'; choose a column by --tag-column");
  return sentences;
}

Corpus read_corpus(const std::string& folder, const ReadOptions& options) {
  const auto part = [&](const std::string& name) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().filename().string().find(name) != std::string::npos)
        found.push_back(entry.path());
    REEL_CHECK(found.size() == 1, folder, ": ", found.size(), " files with '", name, "' in their names, expected one");
    return read_sentences(found[0], options);
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
