#include "reel/data/tree.h"

#include <catch2/catch.hpp>

#include "reel/error.h"
#include "test/support/folder.h"

using namespace reel;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
namespace fs = std::filesystem;

namespace {

std::vector<int32_t> ids(const data::Tree& tree, int node) {
  const auto children = tree.children(tree.nodes[node]);
  return {children.begin(), children.end()};
}

}  // namespace

TEST_CASE("a bracketed tree is laid out in postorder") {
  const data::Tree tree = data::parse_tree("(3 (2 It) (4 (2 really) (3 works)))");
  REQUIRE(tree.nodes.size() == 5);
  std::string order;
  for (const auto& node : tree.nodes) order += node.label + (node.is_leaf() ? ":" + node.word : "") + " ";
  CHECK(order == "2:It 2:really 3:works 4 3 ");
  CHECK(ids(tree, 0).empty());
  CHECK(ids(tree, 3) == std::vector{1, 2});
  CHECK(ids(tree, 4) == std::vector{0, 3});
  CHECK(&tree.root() == &tree.nodes[4]);
  CHECK(tree.to_string() == "(3 (2 It) (4 (2 really) (3 works)))");
}

TEST_CASE("trees of any arity and spacing and tokens") {
  CHECK(data::parse_tree("(S (NP a)(VP b) (PP (X c)) (Y d))").to_string() == "(S (NP a) (VP b) (PP (X c)) (Y d))");
  CHECK(data::parse_tree("  (  2   word  )  ").to_string() == "(2 word)");
  const std::string odd =
      "(2 (3 -LRB-) (2 8\xc2\xa0"
      "1\\/2) (1 \\*) (0 caf\xc3\xa9))";
  const data::Tree tree = data::parse_tree(odd);
  CHECK(tree.nodes[0].word == "-LRB-");
  CHECK(tree.nodes[1].word ==
        "8\xc2\xa0"
        "1\\/2");
  CHECK(tree.nodes[2].word == "\\*");
  CHECK(tree.to_string() == odd);
}

TEST_CASE("malformed trees are refused with the column and the reason") {
  const auto check = [](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_WITH(data::parse_tree(text), Equals("column " + message));
  };
  check("", "1: expected '('");
  check("   ", "4: expected '('");
  check("word", "1: expected '('");
  check(")", "1: expected '('");
  check("(", "2: expected a label");
  check("()", "2: expected a label");
  check("(((2 a)))", "3: expected a label");
  check("((2 a) (2 b))", "13: a bracket without a label holds one tree");
  check("(2 ((3 a)))", "5: expected a label");
  check("(2", "3: the line ends inside a bracket");
  check("(2)", "3: a node has neither a word nor children");
  check("(2 a", "5: the line ends inside a bracket");
  check("(2 (3 a)", "9: the line ends inside a bracket");
  check("(2 (3 a) (1))", "12: a node has neither a word nor children");
  check("(2 a b)", "6: a node has two words");
  check("(2 a (3 b))", "6: a node has both a word and children");
  check("(2 (3 b) a)", "10: a node has both a word and children");
  check("(2 a))", "6: text after the tree");
  check("(2 a) (2 b)", "7: text after the tree");
}

TEST_CASE("a tree a million deep is read and printed without recursion") {
  const int depth = 1000000;
  std::string text;
  for (int i = 0; i < depth; ++i) text += "(1 ";
  text += "(0 word)" + std::string(depth, ')');
  const data::Tree tree = data::parse_tree(text);
  CHECK(tree.nodes.size() == depth + 1);
  CHECK(tree.to_string() == text);
  CHECK_THROWS_WITH(data::parse_tree(std::string(depth, '(')), Contains("expected a label"));
  CHECK_THROWS_AS(data::parse_tree(text.substr(0, text.size() - 1)), Error);
}

TEST_CASE("trees over several lines, with tabs and without a label at the root are read as in the Penn Treebank") {
  const Folder folder;
  const fs::path path = write(folder / "x.mrg",
                              "\n( (S \n    (NP-SBJ-1 (NNP Pierre) (NNP Vinken) )\n\t(VP (MD will)\t(-NONE- *-1) )\r\n"
                              "    (. .) ))\n( (S (NP (DT The)) (VP (VBZ is))) )\n\n(3\t(2\tIt)\t(4\tworks))\n"
                              "(3\n  (2 It)\n\n  (4\n    works))\n(1 a) (2 b)\n");
  std::string all;
  for (const data::Tree& tree : data::read_trees(path)) {
    all += tree.to_string() + "\n";
    CHECK(data::parse_tree("\t(" + tree.to_string() + ")\n").to_string() == tree.to_string());
  }
  CHECK(all ==
        "(S (NP-SBJ-1 (NNP Pierre) (NNP Vinken)) (VP (MD will) (-NONE- *-1)) (. .))\n(S (NP (DT The)) (VP (VBZ is)))\n"
        "(3 (2 It) (4 works))\n(3 (2 It) (4 works))\n(1 a)\n(2 b)\n");

  // A bracket that is not closed does not swallow the next tree, even where one too many follows.
  write(path, "(2 a)\n(3 (2 b) (4 c)\n(3 (2 d) (4 e)))\n");
  CHECK_THROWS_WITH(data::read_trees(path), Contains(":3: a tree begins inside that of line 2"));
  write(path, "(2 a)\n(3 (2 b)\n");
  CHECK_THROWS_WITH(data::read_trees(path), Contains("the file ends inside the tree of line 2"));
}

TEST_CASE("a file of trees is read line by line and errors say where") {
  const Folder folder;
  const fs::path path = folder / "trees";
  write(path, "(2 a)\r\n\n   \n(3 (2 b) (4 c))");
  const auto trees = data::read_trees(path);
  REQUIRE(trees.size() == 2);
  CHECK(trees[0].root().word == "a");
  CHECK(trees[1].to_string() == "(3 (2 b) (4 c))");
  CHECK(data::read_trees(write_gzip(folder / "trees.gz", contents(path))).size() == 2);

  write(path, "(2 a)\n\n(3 (2 b) 4 c))\n");
  CHECK_THROWS_WITH(data::read_trees(path), Equals(path.string() + ":3:10: a node has both a word and children"));
  CHECK(data::read_trees(write(path, "")).empty());
  CHECK_THROWS_WITH(data::read_trees(folder / "nothing"), Contains("No such file"));
  CHECK_THROWS_WITH(data::read_trees(folder.path), Contains("not a regular file"));
}
