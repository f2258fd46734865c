#pragma once
#include "reel/amp/autocast.h"
#include "reel/amp/grad_scaler.h"
