#pragma once
#include "reel/ops/activation.h"
#include "reel/ops/attention.h"
#include "reel/ops/conv.h"
#include "reel/ops/crf.h"
#include "reel/ops/distance.h"
#include "reel/ops/embedding.h"
#include "reel/ops/index.h"
#include "reel/ops/join.h"
#include "reel/ops/linalg.h"
#include "reel/ops/loss.h"
#include "reel/ops/norm.h"
#include "reel/ops/packed.h"
#include "reel/ops/pad.h"
#include "reel/ops/pointwise.h"
#include "reel/ops/pool.h"
#include "reel/ops/product.h"
#include "reel/ops/random.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/resize.h"
#include "reel/ops/rnn.h"
#include "reel/ops/sampled.h"
#include "reel/ops/scan.h"
#include "reel/ops/segment.h"
#include "reel/ops/sort.h"

/// Every op of reel, a header a family. All are differentiable where mathematics allows, to any order, and broadcast as
/// NumPy does where they take several tensors. Types are promoted by PyTorch's rules; meanings are PyTorch's unless a
/// description differs. A dimension `dim` counts from 0, or from the end when negative.
///
/// In programs that say `using namespace reel`, call reel::std by its full name: a bare `std` is the standard library.
