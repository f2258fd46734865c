#pragma once
// Models in the ONNX format. Not part of reel/reel.h.
#include "reel/onnx/model.h"
#include "reel/onnx/save.h"
