#pragma once
#include <reel/reel.h>

#include <filesystem>
#include <iostream>

// Each page of the guide has a file of code, whose parts between `// [name]` and `// [/name]` are what the page shows.
// Beside them the files check that what the page says is so.
void tensors();
void model();
void data_sets();
void training();
void trees();
void custom_ops();
void gpu();
void many_machines();
void from_pytorch();
void deploy();
