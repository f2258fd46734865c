#include "reel/data/tree.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/io/source.h"

// Trees in bracket notation, as in the Penn and the Stanford Sentiment Treebank: (label word) or (label child child …).
// Nodes are stored children first, so that a loop over them visits every child before its parent. Nothing is recursive:
// the depth of a tree in a file is not trusted.
namespace reel::data {
namespace {

class TreeParser {
 public:
  TreeParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Tree parse() {
    skip_spaces();
    check(at_ < text_.size() && text_[at_] == '(', "expected '('");
    do {
      if (text_[at_] == '(')
        open();
      else if (text_[at_] == ')')
        close();
      else
        word();
      skip_spaces();
      check(open_.empty() || at_ < text_.size(), "the line ends inside a bracket");
    } while (!open_.empty());
    check(at_ == text_.size(), "text after the tree");
    return std::move(tree_);
  }

 private:
  struct Open {
    std::string_view label, word;
    size_t column;
    size_t first_finished;  // its children are finished_[first_finished …]
  };

  void check(bool good, const char* what) const { REEL_CHECK(good, where_, at_ + 1, ": ", what); }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string_view token() {
    const size_t end = std::min(text_.find_first_of(" ()", at_), text_.size());
    const size_t begin = std::exchange(at_, end);
    return text_.substr(begin, end - begin);
  }

  void open() {
    check(open_.empty() || open_.back().word.empty(), "a node has both a word and children");
    const size_t column = at_++;
    skip_spaces();
    const std::string_view label = token();
    check(!label.empty(), "expected a label");
    open_.push_back({label, {}, column, finished_.size()});
  }

  void word() {
    Open& node = open_.back();
    check(node.word.empty(), "a node has two words");
    check(finished_.size() == node.first_finished, "a node has both a word and children");
    node.word = token();
  }

  void close() {
    const Open node = open_.back();
    const size_t children = finished_.size() - node.first_finished;
    check(!node.word.empty() || children > 0, "a node has neither a word nor children");
    check(tree_.nodes.size() < std::numeric_limits<int32_t>::max(), "too many nodes");
    tree_.nodes.push_back({std::string(node.label), std::string(node.word),
                           static_cast<int32_t>(tree_.child_ids.size()), static_cast<int32_t>(children)});
    tree_.child_ids.insert(tree_.child_ids.end(), finished_.begin() + node.first_finished, finished_.end());
    finished_.resize(node.first_finished);
    finished_.push_back(static_cast<int32_t>(tree_.nodes.size() - 1));
    open_.pop_back();
    ++at_;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  std::vector<Open> open_;
  std::vector<int32_t> finished_;  // nodes whose parents are still open
  Tree tree_;
};

}  // namespace

Tree parse_tree(std::string_view text, const std::string& where) { return TreeParser(text, where).parse(); }

std::vector<Tree> read_trees(const std::filesystem::path& path) try {
  io::Source source(path);
  std::vector<Tree> trees;
  std::string line;
  while (source.read_line(line))
    if (line.find_first_not_of(' ') != std::string::npos)
      trees.push_back(parse_tree(line, source.name() + ":" + std::to_string(source.line_number()) + ":"));
  return trees;
} catch (const std::bad_alloc&) {
  reel::detail::fail_bad_alloc("read_trees");
}

std::string Tree::to_string() const {
  std::string text;
  // A node to begin, or kClose for the end of one.
  constexpr int32_t kClose = -1;
  std::vector<int32_t> stack;
  if (!nodes.empty()) stack.push_back(static_cast<int32_t>(nodes.size()) - 1);
  while (!stack.empty()) {
    const int32_t id = stack.back();
    stack.pop_back();
    if (id == kClose) {
      text += ')';
      continue;
    }
    const Node& node = nodes[id];
    text += (text.empty() ? "(" : " (") + node.label;
    stack.push_back(kClose);
    if (node.is_leaf()) text += ' ' + node.word;
    const auto ids = children(node);
    stack.insert(stack.end(), ids.rbegin(), ids.rend());
  }
  return text;
}

}  // namespace reel::data
