#pragma once
// Tensors in files: safetensors, NumPy's .npy and .npz, checkpoints. Files appear whole or not at all; what is read is
// trusted in nothing, and an Error names the file and the byte.
#include "reel/io/checkpoint.h"
#include "reel/io/npy.h"
#include "reel/io/safetensors.h"
