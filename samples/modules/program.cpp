#include "program.h"

#include <algorithm>

#include "reel/data/tree.h"
#include "reel/error.h"

namespace {

// The model visits a program by recursion, a stack frame a level.
constexpr int kMaxDepth = 500;

class Reader {
 public:
  Reader(const reel::data::Tree& tree, const std::string& where) : tree_(tree), where_(where) {}

  Program question() const {
    const auto& root = tree_.root();
    REEL_CHECK(root.num_children == 1 && root.label != "find", where_,
               "a question is (exists X), (count X) or (WORD X), ", "not (", root.label, " …)");
    const Program::Kind kind = root.label == "exists"  ? Program::kExists
                               : root.label == "count" ? Program::kCount
                                                       : Program::kDescribe;
    return {kind, kind == Program::kDescribe ? root.label : "", {part(tree_.children(root)[0], 1)}};
  }

 private:
  Program part(int32_t i, int depth) const {
    REEL_CHECK(depth <= kMaxDepth, where_, "the program is deeper than ", kMaxDepth);
    const auto& node = tree_.nodes[static_cast<size_t>(i)];
    const bool joins = node.label == "and" || node.label == "or";
    const bool known = node.is_leaf() ? node.label == "find" : node.num_children == (joins ? 2 : 1);
    REEL_CHECK(known && (node.is_leaf() || node.label != "find"), where_,
               "expected (find WORD), (WORD X), (and X X) or ", "(or X X), got (", node.label,
               node.is_leaf() ? " " + node.word : " …", ") with ", node.num_children, " parts");
    if (node.is_leaf()) return {Program::kFind, node.word, {}};
    std::vector<Program> parts;
    for (const int32_t child : tree_.children(node)) parts.push_back(part(child, depth + 1));
    const Program::Kind kind = !joins ? Program::kRelocate : node.label == "and" ? Program::kAnd : Program::kOr;
    return {kind, joins ? "" : node.label, std::move(parts)};
  }

  const reel::data::Tree& tree_;
  const std::string& where_;
};

std::string name_of(const Program& program) {
  switch (program.kind) {
    case Program::kAnd: return "and";
    case Program::kOr: return "or";
    case Program::kExists: return "exists";
    case Program::kCount: return "count";
    default: return program.word;
  }
}

}  // namespace

int Program::depth() const {
  int deepest = 0;
  for (const Program& part : parts) deepest = std::max(deepest, part.depth());
  return deepest + (kind == kExists || kind == kCount || kind == kDescribe ? 0 : 1);
}

std::vector<std::string> Program::names() const {
  std::vector<std::string> all = {name_of(*this)};
  for (const Program& part : parts)
    for (std::string& name : part.names()) all.push_back(std::move(name));
  return all;
}

std::string Program::to_string() const {
  std::string text = (kind == kFind ? "(find " : "(") + name_of(*this);
  for (const Program& part : parts) text += ' ' + part.to_string();
  return text + ')';
}

Program parse_program(std::string_view text, const std::string& where) {
  const reel::data::Tree tree = reel::data::parse_tree(text, where + "column ");
  return Reader(tree, where).question();
}
