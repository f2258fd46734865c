#pragma once
#include "reel/ops/common.h"

/// Losses over sequences: linear-chain conditional random fields and CTC.
namespace reel {}  // namespace reel
