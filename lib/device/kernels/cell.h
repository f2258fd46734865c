#pragma once
#include <cstdint>

#include "reel/types.h"

namespace reel {

/// The pointwise part of an LSTM or Tree-LSTM cell over `rows` × `hidden`, everything contiguous. The columns input,
/// forget, output, update say where in a row of gates each gate's block begins (child k's forget gate at forget + k
/// hidden).
struct Cell {
  DType dtype;  // kFloat32 or kFloat64
  int64_t rows, hidden;
  int children;
  int64_t input, forget, output, update;
  const void* gates;           // [rows, (3 + children) hidden], pre-activations; unused in backward
  const void* const* child_c;  // children × [rows, hidden]
  void* h;                     // [rows, hidden]
  void* c;                     // [rows, hidden]
  void* activated;             // σ or tanh of each gate, laid out like gates; forward: nullptr is not wanted
  void* tanh_c;                // [rows, hidden]; the same
  // Backward: gradients in (nullptr is zero) and out (nullptr is not wanted).
  const void* grad_h;
  const void* grad_c;
  void* grad_gates;
  void* const* grad_child_c;
};

}  // namespace reel
