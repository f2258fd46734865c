#pragma once
// Everything that a program on one machine needs.
#include "reel/autograd.h"
#include "reel/data.h"
#include "reel/error.h"
#include "reel/io.h"
#include "reel/memory.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/optim.h"
#include "reel/random.h"
#include "reel/tensor.h"
#include "reel/threads.h"
#include "reel/types.h"
