#pragma once
#include "reel/tensor.h"

#pragma GCC visibility push(default)
// What the templates of ragged.h are made of; the definitions are in lib/ops/ragged.cpp.
namespace reel {

struct Ragged;

namespace detail {

/// The values, which have as many rows as there are; an Error in op's name otherwise.
const Tensor& rows_of(const char* op, const Ragged& x);
/// What a row-wise function has made of x's values, with x's lengths; an Error unless it has as many rows.
Ragged same_rows(const char* op, const Ragged& x, Tensor values);
/// Throws, naming the first sequence whose lengths differ; also where values do not have as many rows as lengths.
void check_same_lengths(const char* op, const Ragged& a, const Ragged& b);

}  // namespace detail
}  // namespace reel
#pragma GCC visibility pop
