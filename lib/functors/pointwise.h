#pragma once
#include "lib/functors/binary.h"
#include "lib/functors/bits.h"
#include "lib/functors/compare.h"
#include "lib/functors/ternary.h"
#include "lib/functors/unary.h"

// The formula of every pointwise op and of its derivative, once. T is float or double in a CUDA kernel, an
// xsimd::batch in a CPU kernel, an integer where a functor says so, and Tensor in a gradient that must itself be
// differentiable. Hence the vocabulary: operators, comparisons, select(c, a, b), and the functions found by
// argument-dependent lookup or declared in number.h. Parameters are members of the functor.
//
// nvcc rejects generic host/device lambdas, so everything is a struct with a template.
//
// Each list has a header of its own, so that an edit of a functor compiles only the kernels of its list again.
