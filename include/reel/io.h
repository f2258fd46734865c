#pragma once
// Tensors in files: safetensors, NumPy's .npy and .npz, checkpoints. Files appear whole or not at all; nothing that is
// read is trusted, and an Error names the file and the byte.
#include "reel/io/checkpoint.h"
#include "reel/io/npy.h"
#include "reel/io/safetensors.h"
