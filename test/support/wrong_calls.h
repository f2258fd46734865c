#pragma once
#include <span>
#include <vector>

#include "reel/ops.h"

// What wrong calls say, word for word, and that they leave everything as it was.
namespace reel {

using Tensors = std::vector<Tensor>;

/// What the wrong calls are made with.
struct World {
  Tensor cube = arange(0, 24, 1, {.dtype = kFloat32}).view({2, 3, 4});
  Tensor matrix = arange(0, 12, 1, {.dtype = kFloat32}).view({3, 4});
  Tensor vector = arange(0, 3, 1, {.dtype = kFloat32});
  Tensor doubles = arange(0, 12, 1, {.dtype = kFloat64}).view({4, 3});
  Tensor whole = tensor({3, 0, -2});
  Tensor ids = tensor({0, 2, 1});
  Tensor mask = tensor({true, false, true});
  Tensor number = ones({});
  Tensor none = empty({0, 4});
  Tensor leaf = ones({2, 3}, {.requires_grad = true});
  Tensor made = leaf * 2;
  Tensor undefined;

  Tensors all() const { return {cube, matrix, vector, doubles, whole, ids, mask, number, none, leaf, made}; }
};

struct WrongCall {
  void (*call)(World&);
  const char* message;  // up to its end, or to "…"
};

/// Makes each call in a World of its own and compares what it throws.
void check_wrong_calls(std::span<const WrongCall> calls);

}  // namespace reel
