#pragma once
#include <cstdint>

#include "dataset.h"

/// ListOps (Nangia & Bowman 2018, "ListOps: A Diagnostic Dataset for Latent Tree Learning"): nested prefix expressions
/// over digits whose value is a digit again, such as
///
///   [MAX 2 9 [MIN 4 7 ] 0 ]  =  9
///
/// with MAX, MIN, MED (the median, rounded down) and SM (the sum modulo 10). As in the paper an expression is a
/// left-branching binary tree: (((([MAX 2) 9) …) 0) ]). A node's label is its value; operators, brackets and lists
/// that are still open have none.
struct ListOpsOptions {
  int train = 20000, dev = 500, test = 1000;
  int max_depth = 4;                    ///< How deep operators nest.
  int max_arguments = 5;                ///< Of one operator, at least 2.
  int min_leaves = 4, max_leaves = 40;  ///< Of a tree: digits, operators and closing brackets.
  double operator_probability = 0.3;    ///< That an argument is an expression and not a digit.
  uint64_t seed = 1;
};
inline constexpr int kListOpsClasses = 10;

/// No expression occurs twice, be it in one part or in two. Throws where the bounds do not leave room for as many.
Corpus generate_listops(const ListOpsOptions& options);
