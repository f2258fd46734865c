#pragma once
// The corpora that the benchmarks train on, and the sizes of the models, the same for every library. A pass takes some
// hundred examples spread evenly over the file; the vocabulary is that of the whole file.
#include <zlib.h>

#include <memory>
#include <sstream>
#include <unordered_map>

#include "bench/bench.h"

namespace bench {

// ---- files ----------------------------------------------------------------------------------------------------------

/// The lines of the first of these files in the folder that is there, plain or with ".gz"; none if there is none.
inline std::vector<std::string> read_lines(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> lines;
  for (const std::string& name : names)
    for (const char* suffix : {"", ".gz"}) {
      const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen((folder + "/" + name + suffix).c_str(), "rb"),
                                                            gzclose);
      if (!file) continue;
      std::string text;
      char part[1 << 14];
      for (int n; (n = gzread(file.get(), part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
      std::istringstream stream(text);
      for (std::string line; std::getline(stream, line);) lines.push_back(line);
      return lines;
    }
  return lines;
}

/// Where an example comes from: a corpus under options.data, or, without --data, chance.
inline bool is_real(const Options& options, size_t found, const char* what) {
  if (found) return true;
  if (!options.data.empty()) throw std::runtime_error(std::string("no ") + what + " in " + options.data);
  std::fprintf(stderr, "no --data, random %s are used\n", what);
  return false;
}

/// `wanted` of the examples, spread evenly.
template <class Example>
void thin_out(std::vector<Example>& all, int wanted) {
  const size_t n = all.size(), m = static_cast<size_t>(wanted);
  for (size_t i = 0; m < n && i < m; ++i) std::swap(all[i], all[i * n / m]);
  if (m < n) all.resize(m);
}

/// Words are counted from 1; 0 are unknown ones.
class Ids {
 public:
  explicit Ids(int first = 1) : first_(first) {}
  int add(const std::string& name) {
    return ids_.try_emplace(name, first_ + static_cast<int>(ids_.size())).first->second;
  }
  int find(const std::string& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? 0 : found->second;
  }
  int size() const { return first_ + static_cast<int>(ids_.size()); }

 private:
  int first_;
  std::unordered_map<std::string, int> ids_;
};

// ---- trees ----------------------------------------------------------------------------------------------------------

/// The Tree-LSTM that all libraries train: a loss at every node, Adagrad.
namespace tree {
constexpr int kEmbedding = 300, kHidden = 150, kClasses = 5, kBatch = 25;
constexpr double kLearningRate = 0.05;
/// A node's, with these parameters and 300 trees of the Stanford Sentiment Treebank.
constexpr double kFirstPassLoss = 1.2362;
}  // namespace tree

/// Nodes in postorder, the root last. A leaf has no children, left < 0, but a word.
struct Tree {
  std::vector<int> left, right, label, word;
  int size() const { return static_cast<int>(label.size()); }
  int add(int l, int r, int y, int w) {
    left.push_back(l), right.push_back(r), label.push_back(y), word.push_back(w);
    return size() - 1;
  }
};

struct Treebank {
  std::vector<Tree> trees;
  int words = 0;
  bool real = false;
  int64_t nodes() const {
    int64_t n = 0;
    for (const Tree& tree : trees) n += tree.size();
    return n;
  }
};

class TreeReader {
 public:
  Tree read(const std::string& line) {
    line_ = &line, at_ = 0, tree_ = {};
    node();
    return std::move(tree_);
  }
  int words() const { return ids_.size(); }

 private:
  int node() {
    at_ = line_->find('(', at_) + 1;
    const int label = line_->at(at_++) - '0';
    while (line_->at(at_) == ' ') ++at_;
    int left = -1, right = -1, word = -1;
    if (line_->at(at_) == '(') {
      left = node();
      right = node();
    } else {
      const size_t end = line_->find(')', at_);
      word = ids_.add(line_->substr(at_, end - at_));
    }
    at_ = line_->find(')', at_) + 1;
    return tree_.add(left, right, label, word);
  }

  const std::string* line_ = nullptr;
  size_t at_ = 0;
  Tree tree_;
  Ids ids_;
};

inline int random_node(Tree& tree, Random& random, int leaves, int words) {
  int left = -1, right = -1, word = -1;
  if (leaves == 1) {
    word = random.below(words);
  } else {
    const int first = 1 + random.below(leaves - 1);
    left = random_node(tree, random, first, words);
    right = random_node(tree, random, leaves - first, words);
  }
  return tree.add(left, right, random.below(tree::kClasses), word);
}

/// The treebank under options.data or, where there is none, random trees of about its sizes.
inline Treebank load_trees(const Options& options) {
  Treebank bank;
  TreeReader reader;
  for (const std::string& line : read_lines(options.data, {"sst/train.txt", "train.txt"}))
    if (!line.empty()) bank.trees.push_back(reader.read(line));
  bank.words = reader.words();
  bank.real = is_real(options, bank.trees.size(), "trees");
  if (!bank.real) {
    constexpr int kWords = 16000;
    Random random(7);
    bank.trees.resize(static_cast<size_t>(std::max(options.trees, 1000)));
    for (Tree& tree : bank.trees) random_node(tree, random, 4 + random.below(31), kWords);
    bank.words = kWords + 1;
  }
  thin_out(bank.trees, options.trees);
  return bank;
}

/// Complete trees of 16 leaves, with the words and labels of the others: all of one shape.
inline void equalize(Treebank& bank) {
  constexpr int kLeaves = 16;
  std::vector<int> words;
  for (const Tree& tree : bank.trees)
    for (const int word : tree.word)
      if (word >= 0) words.push_back(word);
  size_t next = 0;
  for (Tree& tree : bank.trees) {
    const std::vector<int> labels = std::move(tree.label);
    const auto label = [&] { return labels[static_cast<size_t>(tree.size()) % labels.size()]; };
    tree = {};
    for (int i = 0; i < kLeaves; ++i) tree.add(-1, -1, label(), words[next++ % words.size()]);
    for (int i = 0; i + 1 < tree.size(); i += 2) tree.add(i, i + 1, label(), -1);
  }
  bank.real = false;
}

/// The loss a node as a field of JSON, checked where it is known.
inline std::string check_loss(const Treebank& bank, double loss) {
  return bank.real && bank.trees.size() == 300 ? check_loss(loss, tree::kFirstPassLoss)
                                               : field("first_pass_loss", loss);
}

// ---- sentences ------------------------------------------------------------------------------------------------------

/// The BiLSTM tagger of the DyNet benchmark: Adam, a step for every sentence; batched, for every 32.
namespace tagger {
constexpr size_t kBatch = 32;
constexpr int kEmbedding = 128, kHidden = 50, kMlp = 32;
constexpr double kLearningRate = 1e-3;
constexpr double kFirstPassLoss = 2.467731;  // a word's, of 320 sentences of UD English EWT
inline const std::vector<std::string> kFiles = {"ud-english-ewt/en_ewt-ud-train.conllu", "tags/train.txt"};
}  // namespace tagger

/// A BiLSTM-CRF: SGD, a step as often.
namespace ner {
constexpr int kEmbedding = 100, kHidden = 100;
constexpr double kLearningRate = 1e-2;
constexpr double kFirstPassLoss = 0.343116;  // a word's, of 320 sentences of WNUT17
inline const std::vector<std::string> kFiles = {"wnut17/wnut17train.conll", "ner/train.txt"};
}  // namespace ner

struct Sentence {
  std::vector<int64_t> words, tags;
};

struct Tagged {
  std::vector<Sentence> sentences;
  int words = 0, tags = 0;
  bool real = false;
  int64_t tokens() const {
    int64_t n = 0;
    for (const Sentence& sentence : sentences) n += static_cast<int64_t>(sentence.words.size());
    return n;
  }
};

using Token = std::pair<std::string, std::string>;  // a word and its tag

/// CoNLL-U (form and UPOS), or columns of which the first is the word and the last the tag. Lines that begin with # are
/// comments in both, which costs WNUT17 its hashtags, as it did when the figures that we compare with were taken.
inline std::vector<std::vector<Token>> read_tokens(const std::vector<std::string>& lines) {
  std::vector<std::vector<Token>> sentences(1);
  for (const std::string& line : lines) {
    std::vector<std::string> columns;
    std::istringstream stream(line);
    if (std::count(line.begin(), line.end(), '\t') == 9)
      for (std::string column; std::getline(stream, column, '\t');) columns.push_back(column);
    else
      for (std::string column; stream >> column;) columns.push_back(column);
    if (columns.empty()) {
      if (!sentences.back().empty()) sentences.emplace_back();
    } else if (columns.size() == 10 && line[0] != '#') {
      if (columns[0].find_first_of("-.") == std::string::npos) sentences.back().emplace_back(columns[1], columns[3]);
    } else if (line[0] != '#') {
      sentences.back().emplace_back(columns.front(), columns.back());
    }
  }
  if (sentences.back().empty()) sentences.pop_back();
  return sentences;
}

inline std::vector<std::vector<Token>> random_tokens() {
  std::vector<std::vector<Token>> sentences(2000);
  Random random(11);
  for (auto& sentence : sentences)
    for (int i = 5 + random.below(40); i > 0; --i)
      sentence.emplace_back("w" + std::to_string(random.below(1 + random.below(8000))),
                            "t" + std::to_string(random.below(9)));
  return sentences;
}

/// Sentences from the first of these files under options.data or, where there is none, random ones. Words that occur
/// only once are unknown.
inline Tagged load_tagged(const Options& options, const std::vector<std::string>& files) {
  std::vector<std::vector<Token>> sentences = read_tokens(read_lines(options.data, files));
  Tagged tagged;
  tagged.real = is_real(options, sentences.size(), "sentences");
  if (!tagged.real) sentences = random_tokens();
  std::unordered_map<std::string, int> counts;
  for (const auto& sentence : sentences)
    for (const auto& [word, tag] : sentence) ++counts[word];
  Ids words, tags(0);
  for (const auto& sentence : sentences)
    for (const auto& [word, tag] : sentence) {
      if (counts[word] > 1) words.add(word);
      tags.add(tag);
    }
  thin_out(sentences, options.sentences);
  for (const auto& sentence : sentences) {
    Sentence& ids = tagged.sentences.emplace_back();
    for (const auto& [word, tag] : sentence) {
      ids.words.push_back(words.find(word));
      ids.tags.push_back(tags.find(tag));
    }
  }
  tagged.words = words.size(), tagged.tags = tags.size();
  return tagged;
}

/// The loss a word as a field of JSON, checked where it is known.
inline std::string check_loss(const Tagged& tagged, double loss, double expected) {
  return tagged.real && tagged.sentences.size() == 320 ? check_loss(loss, expected) : field("first_pass_loss", loss);
}

}  // namespace bench
