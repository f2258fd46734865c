#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

inline constexpr int64_t kCtcMargin = 24;
/// Connectionist temporal classification of `batch` sequences, everything contiguous.
struct Ctc {
  DType dtype = kFloat32;  // or kFloat64
  int64_t batch = 0, steps = 0, classes = 0, blank = 0;
  bool zero_infinity = false;              // gradients of infinite losses are 0, not NaN
  const void* log_probs = nullptr;         // [steps, batch, classes]
  const int64_t* labels = nullptr;         // [batch, most_labels]
  const int64_t* input_lengths = nullptr;  // [batch]
  const int64_t* label_lengths = nullptr;  // [batch]
  int64_t most_labels = 0;
  void* loss = nullptr;  // [batch]
  // As in Crf, for the 2 most_labels + 1 states blank, label, blank, …: [batch, steps, states].
  void* alpha = nullptr;
  void* norm = nullptr;
  void* scratch = nullptr;         // [4, states + kCtcMargin]
  const void* grad = nullptr;      // [batch]
  void* grad_log_probs = nullptr;  // is written
};

}  // namespace reel
