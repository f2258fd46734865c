#pragma once
// Includes CUPTI's header, whose records have members that are called as macros of simt.h.
#pragma push_macro("blockDim")
#pragma push_macro("gridDim")
#undef blockDim
#undef gridDim
#include <cupti.h>
#pragma pop_macro("blockDim")
#pragma pop_macro("gridDim")
