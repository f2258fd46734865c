#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// A reader of labelled trees in brackets.
namespace reel::data {

/// A labelled tree over words, such as "(3 (2 It) (4 works))". The nodes are in postorder: children, left to right,
/// before their parent, the root last. A loop over `nodes` reaches every node after its children.
struct Tree {
  /// A labelled word or a labelled list of nodes.
  struct Node {
    std::string label;                                  ///< As in the text, "3".
    std::string word;                                   ///< Of a leaf; inner nodes have none.
    int32_t first_child = 0;                            ///< Where in child_ids its children begin.
    int32_t num_children = 0;                           ///< How many there are.
    bool is_leaf() const { return num_children == 0; }  ///< Has a word.
  };
  std::vector<Node> nodes;         ///< In postorder.
  std::vector<int32_t> child_ids;  ///< The children of all nodes, as positions in `nodes`.

  const Node& root() const { return nodes.back(); }  ///< The last node.
  /// The children of a node, left to right, as positions in `nodes`.
  std::span<const int32_t> children(const Node& node) const {
    return std::span(child_ids).subspan(node.first_child, node.num_children);
  }
  std::string to_string() const;  ///< In bracket notation, as parse_tree reads it.
};

/// Reads one tree: (label word) is a leaf, (label tree tree …) an inner node, of any arity and depth. A bracket without
/// a label around a whole tree, as in the Penn Treebank's files, "( (S …))", is left out. ASCII spaces, tabs and line
/// ends separate; everything else, no-break spaces and escapes such as -LRB- and \/ included, is part of a token and
/// kept as it is. The Error of malformed text begins with `where`, followed by the column (in bytes, from 1): "4: …".
Tree parse_tree(std::string_view text, const std::string& where = "column ");

/// Reads a file of trees: one on each line, the Stanford Sentiment Treebank's format, or over several of which all but
/// the first are indented, as in the Penn Treebank; empty lines are skipped. An Error reads "file:line:column: what is
/// wrong". The file may be gzip, as for all readers here.
std::vector<Tree> read_trees(const std::filesystem::path& path);

}  // namespace reel::data
#pragma GCC visibility pop
