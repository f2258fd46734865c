#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reel/data.h"
#include "reel/tensor.h"

using reel::data::Vocabulary;

/// A tree as the model wants it: numbers for words and labels, two children or none, the root last.
struct Tree {
  static constexpr int kUnlabelled = -1;
  struct Node {
    int32_t left = -1, right = -1;
    int64_t word = 0;
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

/// <unk>, which stands for every other word, and the words that occur at least min_count times, in order of appearance.
/// With 2, words seen once teach the model what to think of words that it has never seen.
Vocabulary collect_words(const std::vector<reel::data::Tree>& trees, int min_count, bool lower_case);

struct Corpus {
  std::vector<reel::data::Tree> train, dev, test;
};
/// DIR/{train,dev,test}.txt or DIR/sst/{train,dev,test}.txt.
Corpus read_corpus(const std::filesystem::path& dir);
