#include "dataset.h"

#include <algorithm>
#include <charconv>

#include "reel/error.h"

using reel::Tensor;

namespace {

// The model visits a tree by recursion, a stack frame a level.
constexpr int kMaxDepth = 2000;

std::string normalized(std::string word, bool lower_case) {
  if (lower_case)
    for (char& c : word)
      if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  return word;
}

int label_of(const std::string& text, int classes, const std::string& where) {
  if (text == "-") return Tree::kUnlabelled;
  int label = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  REEL_CHECK(error == std::errc() && end == text.data() + text.size() && label >= 0 && label < classes, where,
             "expected a label between 0 and ", classes - 1, ", got '", text, "'");
  return label;
}

Tree encode(const reel::data::Tree& tree, const Vocabulary& words, EncodeOptions options, const std::string& where) {
  Tree result;
  std::vector<int64_t> labels;
  std::vector<int> depth;
  for (const auto& node : tree.nodes) {
    auto& encoded = result.nodes.emplace_back();
    encoded.label = label_of(node.label, options.classes, where);
    if (encoded.label != Tree::kUnlabelled) labels.push_back(encoded.label);
    if (node.is_leaf()) {
      encoded.word = words.id(normalized(node.word, options.lower_case));
      depth.push_back(0);
      continue;
    }
    const auto children = tree.children(node);
    REEL_CHECK(children.size() == 2, where, "expected two children or a word in each node, got ", children.size(),
               " children");
    encoded.left = children[0], encoded.right = children[1];
    depth.push_back(1 + std::max(depth[encoded.left], depth[encoded.right]));
  }
  REEL_CHECK(depth.back() <= kMaxDepth, where, "the tree is ", depth.back(), " levels deep, the limit is ", kMaxDepth);
  REEL_CHECK(result.root().label != Tree::kUnlabelled, where, "the root has no label");
  result.labels = reel::tensor(labels);
  return result;
}

}  // namespace

Vocabulary collect_words(const std::vector<reel::data::Tree>& trees, int min_count, bool lower_case) {
  std::vector<std::string> all;
  for (const auto& tree : trees)
    for (const auto& node : tree.nodes)
      if (node.is_leaf()) all.push_back(normalized(node.word, lower_case));
  reel::data::TokenCounts counts;
  counts.add_all(all);
  Vocabulary words({"<unk>"}, "<unk>");
  for (const std::string& word : all)
    if (counts.count(word) >= min_count) words.add(word);
  return words;
}

std::vector<Tree> encode(const std::vector<reel::data::Tree>& trees, const Vocabulary& words, EncodeOptions options,
                         const std::string& name) {
  REEL_CHECK(!trees.empty(), name, ": there is no tree");
  std::vector<Tree> result;
  result.reserve(trees.size());
  for (const auto& tree : trees) {
    const std::string where = name + ": tree " + std::to_string(result.size() + 1) + ": ";
    result.push_back(encode(tree, words, options, where));
  }
  return result;
}

Corpus read_corpus(const std::filesystem::path& dir) {
  const auto folder = exists(dir / "sst" / "train.txt") ? dir / "sst" : dir;
  return {reel::data::read_trees(folder / "train.txt"), reel::data::read_trees(folder / "dev.txt"),
          reel::data::read_trees(folder / "test.txt")};
}
