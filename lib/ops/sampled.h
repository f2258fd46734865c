#pragma once
#include "lib/ops/internal.h"

namespace reel {

/// Which rows of a matrix each of n vectors is compared with, and what is true of each pair, an entry.
struct LogitEntries {
  Tensor ids = {};     ///< int64 [m]: the row of each entry, those of a vector one after the other.
  Tensor bounds = {};  ///< int64 [n + 1]: where each vector's begin; undefined: each vector has m / n.
  Tensor owners = {};  ///< int64 [m]: the vector of each; undefined without bounds.
  Tensor truth = {};   ///< bool [m]; undefined without bounds: the first of each vector is true, the others are not.
  Tensor shift = {};   ///< [m], subtracted from the scores, or undefined.
};

/// For each vector the sum of log(1 + exp(∓s)) over its entries, - where they are true, with s = hidden · weight[id] +
/// bias[id] - shift: [n], in the type that hidden is computed in. Shapes have been checked. The rows are not made,
/// unless the types are half ones or differ.
Tensor logistic_losses(const char* op, const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                       const LogitEntries& entries);

}  // namespace reel
