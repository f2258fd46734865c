#pragma once
#include <cstdint>

#include "dataset.h"

/// Generated scenes and questions, as in the SHAPES of Andreas et al. 2016: shapes of several colours in a grid, each
/// moved a little, larger or smaller, lighter or darker, before a noisy background; and programs of find, left, right,
/// above and below (of direct neighbours), and, or, which exists, count, color and shape answer.
///
/// No part of a program is idle: what relates has something to relate to, and what joins two sets finds another set
/// than either. No question names the color or the shape that it asks for. All answers are equally frequent at each
/// depth.
struct ScenesOptions {
  int train = 45000, dev = 900, test = 4500;  ///< Questions; scenes are a quarter as many, 64 at least.
  int train_depth = 3, test_depth = 6;        ///< The deepest programs of train and dev, and of test.
  int grid = 4;                               ///< Rows and columns of a scene, of 8 x 8 pixels a cell.
  uint64_t seed = 1;
};

/// Throws where the options do not allow for such questions.
Corpus generate_scenes(const ScenesOptions& options);
