#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// Linear-chain CRFs: `chains` chains of up to `steps` steps over `tags` states, everything contiguous. Step t of chain
/// s is row (offsets ? offsets[s] : s) + t stride of emissions, observed, alpha, norm, from and path. Potentials may be
/// -infinity.
struct Crf {
  DType dtype = kFloat32;  // or kFloat64
  int64_t chains = 0, steps = 0, tags = 0, stride = 0;
  const int64_t* offsets = nullptr;
  const int64_t* lengths = nullptr;  // [chains], at least 1; nullptr: all have `steps`
  const void* emissions = nullptr;   // [rows, tags]
  const void* transitions = nullptr;
  const void* start = nullptr;        // [tags]; nullptr is zero
  const void* end = nullptr;          // the same
  const int64_t* observed = nullptr;  // [rows]
  void* result = nullptr;             // [chains]
  // Of the likelihood: masks of what observed tags may be, nullptr for anything, and the first step of each chain whose
  // tag may not be, or -1. The last is nullptr if nobody asks.
  const bool* allowed_transitions = nullptr;  // [tags, tags]
  const bool* allowed_start = nullptr;        // [tags]
  const bool* allowed_end = nullptr;          // [tags]
  int64_t* forbidden = nullptr;               // [chains]
  // The forward recursion, kept for backward: log sums over all ways to a state, less the row's largest, and the same
  // without the state's own emission (as they came: before subtraction).
  void* alpha = nullptr;  // [rows, tags]
  void* norm = nullptr;   // [rows, tags]
  // Backward: gradients in and out; all are written, none is added to. start and end may be nullptr.
  const void* grad = nullptr;  // [chains]
  void* grad_emissions = nullptr;
  void* grad_transitions = nullptr;
  void* grad_start = nullptr;
  void* grad_end = nullptr;
  void* scratch = nullptr;  // [2, tags]: backward and decoding
  // Decoding.
  int32_t* from = nullptr;  // [rows, tags]
  int64_t* path = nullptr;  // [rows]; -1 beyond the end of a chain
};

}  // namespace reel
