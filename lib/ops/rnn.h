#pragma once
#include "reel/ops/rnn.h"

namespace reel {

/// Throws an Error in the name of `op` unless all three probabilities are between 0 and 1.
void check_dropout(const char* op, const RecurrentOptions& options);

}  // namespace reel
