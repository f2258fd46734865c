#pragma once
// Mixed precision.
#include "reel/amp/autocast.h"
#include "reel/amp/grad_scaler.h"
