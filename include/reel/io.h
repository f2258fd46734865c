#pragma once
// Tensors in files: safetensors, NumPy's .npy and .npz, checkpoints. Files are written atomically; input is validated
// completely, and an Error names the file and the byte.
#include "reel/io/checkpoint.h"
#include "reel/io/npy.h"
#include "reel/io/safetensors.h"
