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

constexpr std::string_view kSpaces = " \t\r\n";

/// A TreeParser parses trees that may go on over several lines.
class TreeParser {
 public:
  /// Continues with a line, which must outlive the calls until the next one. Errors have `where` before the column.
  void begin_line(std::string_view line, std::string where) { text_ = line, where_ = std::move(where), at_ = 0; }

  /// Reads on to the end of a tree or of the line, and returns whether a tree has ended.
  bool read() {
    for (skip_spaces(); at_ < text_.size(); skip_spaces()) {
      check(!open_.empty() || text_[at_] == '(', "expected '('");
      if (text_[at_] == '(')
        open();
      else if (text_[at_] == ')')
        close();
      else
        word();
      if (open_.empty()) return true;
    }
    return false;
  }
  Tree take() {
    finished_.clear();
    return std::exchange(tree_, {});
  }

  bool is_inside() const { return !open_.empty(); }
  bool at_end() {
    skip_spaces();
    return at_ == text_.size();
  }
  void check(bool good, const char* what) const { REEL_CHECK(good, where_, at_ + 1, ": ", what); }

 private:
  struct Open {
    std::string label, word;
    size_t first_finished;  // its children are finished_[first_finished …]
  };

  void skip_spaces() { at_ = std::min(text_.find_first_not_of(kSpaces, at_), text_.size()); }
  std::string_view token() {
    const size_t end = std::min(text_.find_first_of(" \t\r\n()", at_), text_.size());
    const size_t begin = std::exchange(at_, end);
    return text_.substr(begin, end - begin);
  }

  void open() {
    check(open_.empty() || open_.back().word.empty(), "a node has both a word and children");
    ++at_;
    skip_spaces();
    const std::string_view label = token();
    // The Penn Treebank's files have a bracket without a label around each tree.
    check(!label.empty() || (open_.empty() && at_ < text_.size() && text_[at_] == '('), "expected a label");
    open_.push_back({std::string(label), {}, finished_.size()});
  }

  void word() {
    Open& node = open_.back();
    check(node.word.empty(), "a node has two words");
    check(finished_.size() == node.first_finished, "a node has both a word and children");
    node.word = token();
  }

  void close() {
    Open node = std::move(open_.back());
    const size_t children = finished_.size() - node.first_finished;
    check(!node.word.empty() || children > 0, "a node has neither a word nor children");
    if (node.label.empty()) {
      check(children == 1, "a bracket without a label holds one tree");
      open_.pop_back(), ++at_;
      return;
    }
    check(tree_.nodes.size() < std::numeric_limits<int32_t>::max(), "too many nodes");
    tree_.nodes.push_back({std::move(node.label), std::move(node.word), static_cast<int32_t>(tree_.child_ids.size()),
                           static_cast<int32_t>(children)});
    tree_.child_ids.insert(tree_.child_ids.end(), finished_.begin() + node.first_finished, finished_.end());
    finished_.resize(node.first_finished);
    finished_.push_back(static_cast<int32_t>(tree_.nodes.size() - 1));
    open_.pop_back();
    ++at_;
  }

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
  std::vector<Open> open_;
  std::vector<int32_t> finished_;  // nodes whose parents are still open
  Tree tree_;
};

}  // namespace

Tree parse_tree(std::string_view text, const std::string& where) {
  TreeParser parser;
  parser.begin_line(text, where);
  const bool ended = parser.read();
  parser.check(parser.is_inside() || ended, "expected '('");
  parser.check(ended, "the line ends inside a bracket");
  parser.check(parser.at_end(), "text after the tree");
  return parser.take();
}

std::vector<Tree> read_trees(const std::filesystem::path& path) {
  io::Source source(path);
  std::vector<Tree> trees;
  TreeParser parser;
  std::string line;
  int64_t begun_on = 0;
  while (source.read_line(line)) {
    const int64_t number = source.line_number();
    // Without this check one tree would become a part of another, up to a bracket too many.
    if (parser.is_inside() && line.starts_with('('))
      source.fail_line("a tree begins inside that of line ", begun_on, "; lines that continue one are indented");
    parser.begin_line(line, source.name() + ":" + std::to_string(number) + ":");
    if (!parser.is_inside()) begun_on = number;
    while (parser.read()) {
      trees.push_back(parser.take());
      begun_on = number;
    }
  }
  if (parser.is_inside()) source.fail_line("the file ends inside the tree of line ", begun_on);
  return trees;
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
