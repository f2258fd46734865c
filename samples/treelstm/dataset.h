#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "reel/data.h"
#include "reel/tensor.h"

/// The words that a model knows, by number. Number 0 stands for every other word.
class Vocabulary {
 public:
  static constexpr int32_t kUnknown = 0;

  Vocabulary() { add("<unk>"); }
  /// From the text that to_string() gave.
  explicit Vocabulary(const std::string& text);
  int32_t add(const std::string& word);
  int32_t find(const std::string& word) const;
  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  std::string to_string() const;  ///< A word a line, in order.

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, int32_t> ids_;
};

/// A tree as the model wants it: numbers for words and labels, two children or none, the root last.
struct Tree {
  static constexpr int kUnlabelled = -1;
  struct Node {
    int32_t left = -1, right = -1;
    int32_t word = Vocabulary::kUnknown;
    int32_t label = kUnlabelled;
    bool is_leaf() const { return left < 0; }
  };
  std::vector<Node> nodes;
  reel::Tensor labels;  ///< int64: those of the labelled nodes, in their order. The root is labelled always.

  const Node& root() const { return nodes.back(); }
};

struct EncodeOptions {
  int classes = 5;         ///< Labels are 0 … classes - 1, or "-" for none.
  bool lower_case = true;  ///< ASCII only.
};
/// Turns words and labels into numbers. `name` says where the trees are from in the Error of one that does not fit:
/// a label out of range, an inner node without exactly two children, a tree deeper than recursion should go.
std::vector<Tree> encode(const std::vector<reel::data::Tree>& trees, const Vocabulary& words, EncodeOptions options,
                         const std::string& name);

/// The words that occur at least min_count times, in order of appearance. With 2, words seen once teach the model what
/// to think of words that it has never seen.
Vocabulary collect_words(const std::vector<reel::data::Tree>& trees, int min_count, bool lower_case);

struct Corpus {
  std::vector<reel::data::Tree> train, dev, test;
};
/// DIR/{train,dev,test}.txt or DIR/sst/{train,dev,test}.txt.
Corpus read_corpus(const std::filesystem::path& dir);
